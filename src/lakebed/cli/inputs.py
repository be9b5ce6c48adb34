"""Input files named on the command line."""

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
        files: At least one file.
    """

    format: FileFormat
    files: tuple[RawFile, ...]
    csv: CsvOptions

    @property
    def label(self) -> str:
        """The number of files and their format, in words."""
        return counted(len(self.files), f"{_LABELS[self.format]} file")

    @property
    def size_bytes(self) -> int:
        """The stored bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def locations(self) -> list[str]:
        """The locations of the files."""
        return [file.location for file in self.files]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The paths of the files on this machine."""
        return tuple(Path(file.location) for file in self.files)

    @property
    def is_stdin(self) -> bool:
        """True if the input is standard input."""
        return self.locations == [STDIN]


def find_inputs(
    given: Sequence[str],
    format: FileFormat | None,  # noqa: A002 - the word of the option
    csv: CsvOptions,
    *,
    levels: bool = True,
) -> Inputs:
    """Find the files that arguments name.

    Args:
        given: Files, patterns, or directories, whose files of the format are taken; `-` is JSON
            lines on stdin.
        format: The format; None to find it by the suffix.
        csv: Options of CSV files.
        levels: False to read folders `name=value` as plain folders.

    Raises:
        InvalidInputError: A file is missing, or the format is unknown.
    """
    if STDIN in given and (len(given) > 1 or format not in (None, "json")):
        raise InvalidInputError(
            "Standard input cannot be combined with files, and takes only JSON lines.",
            hint="Give '-' alone, or files.",
        )
    found, files = find_files(given, format, levels=levels)
    return Inputs(format=found, files=files, csv=csv)
