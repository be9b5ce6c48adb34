"""One file of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.model.values import Scalar
from lakebed.state.facts import Recorded


@dataclass(frozen=True, slots=True)
class Share:
    """One of several disjoint parts of a data file, which together are the whole file.

    Attributes:
        number: Number of the part, from 0 on.
        count: Number of parts.
    """

    number: int
    count: int

    def row_groups(self, row_counts: Sequence[int]) -> list[int]:
        """Return the row groups that belong to the part: those whose middle is in it.

        Args:
            row_counts: Number of rows of each row group of the file.

        >>> [Share(number, 2).row_groups([10, 10, 10]) for number in (0, 1)]
        [[0], [1, 2]]
        """
        total, end = sum(row_counts), 0
        mine = []
        for number, row_count in enumerate(row_counts):
            middle, end = 2 * end + row_count, end + row_count  # in half rows
            if middle * self.count // max(1, 2 * total) == self.number:
                mine.append(number)
        return mine


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a plan.

    Attributes:
        key: Key of the file in the store.
        label: Name of the file in the head.
        partition: Typed values of its directory levels.
        is_filtered: True if some of its rows may not belong to the view.
        schema_number: Number of its schema; None for a file of another tool.
        constants: Fields that its schema lacks, with the value that all its rows have for them.
        row_count: Number of its entities; None if the plan did not need it.
        recorded: Recorded size and checksum, which are verified before the content is used; None
            for no verification.
        share: The part of the file to read, in row groups of Parquet; None for all of it.
    """

    key: str
    label: str
    partition: Mapping[str, Scalar]
    is_filtered: bool
    schema_number: int | None = 1
    constants: Mapping[str, Any] = field(default_factory=dict)
    row_count: int | None = None
    recorded: Recorded | None = None
    share: Share | None = None
