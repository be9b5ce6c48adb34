"""Input files as the command line names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lakebed.arrow.reading.files import STDIN, CsvOptions, FileFormat, RawFile, find_files
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError

_LABELS: dict[FileFormat, str] = {
    "csv": "CSV",
    "json": "JSON lines",
    "submissions": "submission",
    "avro": "Avro",
    "parquet": "Parquet",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Files of one format.

    Attributes:
        format: Of the files.
        files: At least one.
        csv: How CSV is written.
    """

    format: FileFormat
    files: tuple[RawFile, ...]
    csv: CsvOptions

    @property
    def label(self) -> str:
        """How many files of which format, in words."""
        return counted(len(self.files), f"{_LABELS[self.format]} file")

    @property
    def size_bytes(self) -> int:
        """Bytes of all files, as they lie there."""
        return sum(file.size_bytes for file in self.files)

    @property
    def locations(self) -> list[str]:
        """Where the files are."""
        return [file.location for file in self.files]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files as paths of this machine."""
        return tuple(Path(file.location) for file in self.files)

    @property
    def is_stdin(self) -> bool:
        """Whether the input is what comes through standard input."""
        return self.locations == [STDIN]


def find_inputs(given: Sequence[str], format: FileFormat | None, csv: CsvOptions) -> Inputs:  # noqa: A002 - the word of the option
    """Find the files that are meant.

    Args:
        given: Files, patterns, or directories, of which the files of the format are taken; `-`
            is JSON lines on stdin.
        format: None to tell it by the suffix.
        csv: How CSV is written.

    Raises:
        InvalidInputError: A file is missing, or the format cannot be told.
    """
    if STDIN in given and (len(given) > 1 or format not in (None, "json")):
        raise InvalidInputError(
            "Standard input is one input by itself, of JSON lines.",
            hint="Give '-' alone, or files.",
        )
    told, files = find_files(given, format)
    return Inputs(format=told, files=files, csv=csv)
