"""Input files: which there are, and what their headers say."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa

from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.schema import Decimal, Kind, Primitive, Schema

FileFormat = Literal["csv", "json", "parquet"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

STDIN = Path("-")

_FORMAT_OF_SUFFIX: dict[str, FileFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
_LABELS: dict[FileFormat, str] = {"csv": "CSV", "json": "JSON lines", "parquet": "Parquet"}
_COMPRESSION_SUFFIXES = (".gz", ".bz2", ".zst")


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """How CSV is written.

    Attributes:
        has_header: Whether the first line names the columns.
        delimiter: One character.
        null_text: A further text that stands for null, besides the empty cell.
    """

    has_header: bool = True
    delimiter: str = ","
    null_text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Files of one format.

    Attributes:
        format: CSV with a header, JSON lines, or Parquet.
        paths: At least one.
        csv: How CSV is written.
    """

    format: FileFormat
    paths: tuple[Path, ...]
    csv: CsvOptions

    @property
    def label(self) -> str:
        """How many files of which format, in words."""
        count = len(self.paths)
        return f"{count} {_LABELS[self.format]} file{'' if count == 1 else 's'}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, as they lie there."""
        return sum(path.stat().st_size for path in self.paths)


def find_inputs(given: Sequence[Path], format: FileFormat | None, csv: CsvOptions) -> Inputs:  # noqa: A002 - the word of the option
    """Find the files that are meant.

    Args:
        given: Files, or directories, of which the files of the format are taken; `-` is JSON
            lines on stdin.
        format: None to tell it by the suffix.
        csv: How CSV is written.

    Raises:
        InvalidInputError: A file is missing, or the format cannot be told.
    """
    if STDIN in given:
        if len(given) > 1 or format not in (None, "json"):
            raise InvalidInputError(
                "Standard input is one input by itself, of JSON lines.",
                hint="Give '-' alone, or files.",
            )
        return Inputs(format="json", paths=(STDIN,), csv=csv)
    paths = [path for one in given for path in _expand(one, format)]
    return Inputs(format=format or _common_format(paths), paths=tuple(paths), csv=csv)


def _expand(path: Path, wanted: FileFormat | None) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise InvalidInputError(f"No file {str(path)!r}.", hint="Check the path.")
        return [path]
    found = sorted(
        child
        for child in path.iterdir()
        if child.is_file()
        and not child.name.startswith((".", "_"))
        and _format_of(child) is not None
        and _format_of(child) == (wanted or _format_of(child))
    )
    if not found:
        raise InvalidInputError(
            f"No {wanted or 'CSV, JSON lines or Parquet'} file in the directory {str(path)!r}.",
            hint="Files are known by their suffix, and subdirectories are not searched.",
        )
    return found


def _format_of(path: Path) -> FileFormat | None:
    name = path.name.lower()
    for suffix in _COMPRESSION_SUFFIXES:
        name = name.removesuffix(suffix)
    return _FORMAT_OF_SUFFIX.get(Path(name).suffix)


def _common_format(paths: Sequence[Path]) -> FileFormat:
    first = _format_of(paths[0])
    for path in paths:
        if _format_of(path) is None:
            raise InvalidInputError(
                f"Cannot tell the format of {str(path)!r} by its suffix.",
                hint=f"Give --format {'|'.join(FILE_FORMATS)}.",
            )
    for path in paths:
        if _format_of(path) != first:
            raise InvalidInputError(
                f"{str(paths[0])!r} and {str(path)!r} are of different formats.",
                hint="Load one format at a time.",
            )
    assert first is not None
    return first


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in what goes wrong with it, and let it all be errors of the input.

    Raises:
        InvalidInputError: The file cannot be read, or holds something else.
    """
    try:
        yield
    except InvalidInputError as exc:
        exc.message = f"{path}: {exc.message}"
        raise
    except (pa.ArrowException, UnicodeError, EOFError) as exc:
        reason = " ".join(str(exc).split())
        raise InvalidInputError(f"{path}: {reason}", hint="Correct the file.") from exc
    except OSError as exc:
        reason = exc.strerror or " ".join(str(exc).split())
        raise InvalidInputError(f"Cannot read {path}: {reason}", hint="Check the file.") from exc


def read_text(path: Path) -> str:
    """Read a small text file.

    Raises:
        InvalidInputError: It cannot be read.
    """
    with reading(path):
        return path.read_text(encoding="utf-8-sig")


@contextmanager
def open_binary(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file, uncompressed if its suffix says that it is compressed."""
    with pa.input_stream(path, compression="detect") as stream, io.BufferedReader(stream) as file:
        yield file


def read_header(path: Path, options: CsvOptions) -> tuple[str, ...]:
    """Read the first line of a CSV file.

    Raises:
        InvalidInputError: The file is empty, or a column stands twice in it.
    """
    with reading(path), open_binary(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
        names = tuple(next(csv.reader(text, delimiter=options.delimiter), ()))
        if not names:
            raise SchemaMismatchError(
                "The file is empty, it lacks even a header.", hint="Leave the file out."
            )
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaMismatchError(
                f"Column {twice!r} stands twice in the header.", hint="Rename one of them."
            )
        return names


def check_flat(schema: Schema) -> None:
    """Check that CSV can hold all fields.

    Raises:
        SchemaMismatchError: One is nested, or bytes; the message names it.
    """
    for field in schema:
        if not isinstance(field.type, Primitive | Decimal) or field.type == Primitive(Kind.BYTES):
            raise SchemaMismatchError(
                f"CSV cannot hold column {field.name!r} of type {field.type}.",
                hint="Give JSON lines or Parquet.",
            )
