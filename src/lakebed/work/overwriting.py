"""Search for the partitions and rows that an overwrite would replace, without a write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.common.html import facts_to_html
from lakebed.common.items import Items
from lakebed.common.shown import counted
from lakebed.model.declared import rows_checked
from lakebed.model.keys import partition_of_label
from lakebed.model.totals import known_total
from lakebed.state import file_table
from lakebed.state.check_results import passed
from lakebed.state.facts import ColumnFacts, FileFacts, facts_table
from lakebed.state.scope import Scope
from lakebed.state.state import State
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.local_days import check_local_days
from lakebed.work.writer import settled_scope

if TYPE_CHECKING:
    from lakebed.arrow.kernel import BatchTarget
    from lakebed.arrow.partition_counts import PartitionCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedPartition:
    """A partition that an overwrite replaces, or fills.

    Attributes:
        partition: Path of the partition; empty if unpartitioned.
        inserted_row_count: Number of new entities.
        deleted_row_count: Number of removed entities; None if another tool wrote a file.
        removed_file_count: Number of removed data files.
    """

    partition: str
    inserted_row_count: int
    deleted_row_count: int | None
    removed_file_count: int

    def _row_(self) -> dict[str, object]:
        deleted = self.deleted_row_count
        return {
            "partition": self.partition or "(all)",
            "rows inserted": f"{self.inserted_row_count:,}",
            "deleted": None if deleted is None else f"{deleted:,}",
            "files removed": f"{self.removed_file_count:,}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The partitions and rows that an overwrite would replace.

    Attributes:
        dataset: Name of the dataset.
        version: The version that was inspected. As the `base` of the overwrite, it protects later
            commits of others from being replaced.
        partitions: The affected partitions, in order of path; includes new ones.
    """

    dataset: str
    version: int
    partitions: Items[ReplacedPartition]

    @property
    def inserted_row_count(self) -> int:
        """Number of new entities."""
        return sum(one.inserted_row_count for one in self.partitions)

    @property
    def deleted_row_count(self) -> int | None:
        """Number of removed entities; None if another tool wrote a file."""
        return known_total([one.deleted_row_count for one in self.partitions])

    @property
    def removed_file_count(self) -> int:
        """Number of removed data files."""
        return sum(one.removed_file_count for one in self.partitions)

    @property
    def replaced_partitions(self) -> tuple[str, ...]:
        """Paths of the partitions that lose files; see `Commit.replaced_partitions`."""
        return tuple(one.partition for one in self.partitions if one.removed_file_count)

    def __str__(self) -> str:
        """Return a summary: `1 row in place of 365 rows in 365 files of 1 partition`."""
        deleted = self.deleted_row_count
        rows = "an unknown number of rows" if deleted is None else counted(deleted, "row")
        return (
            f"{counted(self.inserted_row_count, 'row')} in place of {rows} in "
            f"{counted(self.removed_file_count, 'file')} of "
            f"{counted(len(self.replaced_partitions), 'partition')}"
        )

    def __repr__(self) -> str:
        return f"<Replacement in {self.dataset!r} at version {self.version}: {self}>"

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Replacement in {self.dataset}",
            {
                "version": self.version,
                "rows inserted": f"{self.inserted_row_count:,}",
                "rows deleted": "unknown"
                if self.deleted_row_count is None
                else f"{self.deleted_row_count:,}",
                "files removed": f"{self.removed_file_count:,}",
                "partitions replaced": f"{len(self.replaced_partitions):,}",
            },
        )


def find_replacement(
    store: Store, base: State, counts: PartitionCounts, scope: Scope | None, target: BatchTarget
) -> Replacement:
    """Find the partitions and rows that an overwrite would replace; see `View.overwrite`.

    Args:
        store: The store that holds the dataset.
        base: The state of the dataset.
        counts: Rows of the data by partition.
        scope: The scope that is replaced; None for the partitions of the data.
        target: The batch that an overwrite would write the rows into.

    Raises:
        InvalidInputError: The data lies outside the scope, there is no scope and no row, or rows of
            another time zone would remove others; see `check_local_days`.

    Cost:
        The few objects of the file table.
    """
    inserted = counts.rows
    settled = settled_scope(base.name, frozenset(inserted), scope)
    check_local_days(store, base, as_if_written(counts, target), settled)
    labels = base.live.removed_by(settled)
    removed: dict[str, list[int | None]] = {path: [] for path in inserted}
    for label, row_count in zip(labels, _row_counts(store, base, labels), strict=True):
        removed.setdefault(partition_of_label(label), []).append(row_count)
    return Replacement(
        dataset=base.name,
        version=base.version,
        partitions=Items(
            ReplacedPartition(
                partition=path,
                inserted_row_count=inserted.get(path, 0),
                deleted_row_count=known_total(removed[path]),
                removed_file_count=len(removed[path]),
            )
            for path in sorted(removed)
        ),
    )


def as_if_written(counts: PartitionCounts, target: BatchTarget) -> Written:
    """Return rows that were only counted, by partition, as one file for each partition.

    For a dry run of rows that Spark would write: it decides the number and size of the files.
    """
    facts = [
        FileFacts(
            label=target.new_label(path),
            row_count=row_count,
            size_bytes=0,
            checksum="",
            columns={
                name: ColumnFacts(min=bounds[path][0], max=bounds[path][1])
                for name, bounds in counts.bounds.items()
                if path in bounds
            },
        )
        for path, row_count in sorted(counts.rows.items())
        if row_count
    ]
    return Written(
        zones=counts.zones,
        facts=facts_table(facts, target.descriptor.file_schema),
        checks=tuple(passed(*one) for one in rows_checked(target.descriptor).items()),
    )


def _row_counts(store: Store, base: State, labels: Sequence[str]) -> list[int | None]:
    """Return the row count of each file; None if another tool wrote it."""
    if not labels:
        return []
    known = file_table.find(store, base.lists.files, pa.array(labels, pa.large_string()), {})
    counts: list[int | None] = known.row_count.to_pylist()
    return counts
