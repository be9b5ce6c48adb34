"""Statements of Spark that change rows: the rows that it hands over, and how they name old rows.

A row of a data file is named by the number of its file and its position in it. So a changed row
finds its run and its raw file, and rows that do not change need not be handed over at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from lakebed.errors import StorageError
from lakebed.model.predicate import Predicate
from lakebed.plan.plan import DataFile
from lakebed.state.state import State

# No field has a dot in its name.
OPERATION = "lakebed.operation"
FILE = "lakebed.file"
ROW = "lakebed.row"
# The number of the file once more. Spark makes it null in a row that it changes.
UNCHANGED = "lakebed.unchanged"
IDENTITY = (ROW, FILE, UNCHANGED)  # the columns that name a row


class RowOperation(IntEnum):
    """The effect of a statement on a row, by the numbers of `RowDeltaUtils` of Spark 4.2."""

    UPDATE = 2
    INSERT = 3
    COPY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStatement:
    """A statement that changes rows of one version.

    Attributes:
        operation: Operation for the history.
        base: The version that it has read.
        read: The files that it has read as a whole.
        may_delete: Whether a row of these files that it does not hand over is deleted. Otherwise
            only changed and new rows are handed over.
        condition: A condition that holds for all rows that it may change or match.
    """

    operation: str
    base: State
    read: tuple[DataFile, ...]
    may_delete: bool
    condition: Predicate


def file_number(label: str) -> int:
    """Return the number of a data file, which every process computes alike: 62 bits of a hash.

    It is at least 2**62, so that Java never takes it for a number of 32 bits.
    """
    digest = hashlib.blake2b(label.encode(), digest_size=8).digest()
    return 2**62 + (int.from_bytes(digest, "big") >> 2)


def identity_columns(label: str, start: int, count: int) -> dict[str, pa.Array]:
    """Return the columns that name some rows of a data file, which follow one another.

    Args:
        label: Label of the file.
        start: Position of the first of the rows.
        count: Number of the rows.
    """
    numbers = pa.repeat(pa.scalar(file_number(label), pa.int64()), count)
    return {
        ROW: pa.array(range(start, start + count), pa.int64()),
        FILE: numbers,
        UNCHANGED: numbers,
    }


def numbered_files(files: Iterable[DataFile]) -> dict[int, DataFile]:
    """Return files by their numbers.

    Raises:
        StorageError: Two files have the same number.
    """
    numbered: dict[int, DataFile] = {}
    for file in files:
        other = numbered.setdefault(file_number(file.label), file)
        if other.label != file.label:
            raise StorageError(
                f"The data files {other.key} and {file.key} have the same number.",
                hint="Compact the dataset: new files have other names.",
            )
    return numbered


__all__ = [
    "FILE",
    "IDENTITY",
    "OPERATION",
    "ROW",
    "UNCHANGED",
    "RowOperation",
    "RowStatement",
    "file_number",
    "identity_columns",
    "numbered_files",
]
