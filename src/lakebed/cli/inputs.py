"""Input files named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions
from lakebed.arrow.reading.files import STDIN, FileFormat, RawFile, find_any_files
from lakebed.arrow.reading.inference import find_notation, recognize_some
from lakebed.arrow.reading.sniffing import Recognized
from lakebed.cli.notation_options import Notation
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
        csv: Notation of CSV, as far as the first rows show it.
        json: Notation of JSON, as far as the first rows show it.
        notation: Parts of the notation that were given.
        remarks: Remarks on the files.
        recognized: Format and notation by the first bytes; None if they must be recognized again.
    """

    format: FileFormat
    files: tuple[RawFile, ...]
    csv: CsvOptions
    json: JsonOptions
    notation: Notation
    remarks: tuple[str, ...] = ()
    recognized: Recognized | None = None

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
    notation: Notation | None = None,
    *,
    levels: bool = True,
) -> Inputs:
    """Find the files that arguments name, and their notation, which their first rows show.

    Args:
        given: Files, patterns, or directories, whose files of the format are taken; `-` is JSON
            lines on stdin.
        format: The format; None to find it by the suffix and the first bytes.
        notation: Parts of the notation that are given.
        levels: False to read folders `name=value` as plain folders.

    Raises:
        InvalidInputError: A file is missing, or the format is unknown.
    """
    if STDIN in given and (len(given) > 1 or format not in (None, "json")):
        raise InvalidInputError(
            "Standard input cannot be combined with files, and takes only JSON lines.",
            hint="Give '-' alone, or files.",
        )
    notation = notation or Notation()
    files = find_any_files(given, format, levels=levels)
    csv, json = notation.csv, notation.json
    recognized = recognize_some(files, format, csv=csv, json=json)
    found = find_notation(files, format, csv=csv, json=json, recognized=recognized)
    # An encoding counts only for the format that it is given for, which is now known.
    is_final = format is not None or not ("encoding" in csv or "encoding" in json)
    return Inputs(
        format=found.format,
        files=files,
        csv=found.csv,
        json=found.json,
        notation=notation,
        recognized=recognized if is_final else None,
    )
