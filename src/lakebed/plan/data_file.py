"""One file of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.model.values import Scalar
from lakebed.state.facts import Recorded


@dataclass(frozen=True, slots=True)
class Share:
    """One of several parts of a data file, which together have each of its rows once.

    Attributes:
        number: From 0 on.
        count: Of the parts.
    """

    number: int
    count: int

    def row_groups(self, row_counts: Sequence[int]) -> list[int]:
        """Return the row groups that belong to the part: those whose middle lies in it.

        Args:
            row_counts: Of all row groups of the file.

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
        key: Where it is in the store.
        label: Its name in the head.
        partition: Typed values of its directory levels.
        is_filtered: Whether some of its rows may not belong to the view.
        schema_number: Of the schema that it is of; None for a file of another tool.
        constants: Fields that its schema lacks, and what all its rows have in their place.
        row_count: Number of its entities; None where the plan did not have to know.
        recorded: What its content must be before any of it is used; None if it is read as it is.
        share: Which part of it is read, by row groups of Parquet; None for all of it.
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
