"""The report of an ingest from a table of Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakebed.commit import Commit
from lakebed.common.html import facts_to_html
from lakebed.common.shown import counted, facts_of
from lakebed.model.totals import known_total
from lakebed.state.after import NotPublished
from lakebed.state.check_results import CheckOutcome, total_of_checks


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """The whole table, or one part of its window, and what became of its rows.

    Attributes:
        run: Name of its run, by which a repetition finds the rows to replace.
        source_row_count: Rows of the table when they were counted.
        row_count: Rows that were written, or in a dry run would be.
        replaced_row_count: Rows of an earlier run that they replace; None if unknown.
        file_count: Data files that were written; in a dry run at least so many; None if unknown.
        size_bytes: Their size; None if unknown, as in a dry run.
        commit: The commit; None if nothing was written.
        kept_back: Reason why nothing was written; empty if it was, or if there was nothing.
    """

    run: str
    source_row_count: int
    row_count: int = 0
    replaced_row_count: int | None = 0
    file_count: int | None = 0
    size_bytes: int | None = 0
    commit: Commit | None = None
    kept_back: str = ""

    def to_record(self) -> dict[str, object]:
        """Return the part as a record for JSON."""
        return {
            "run": self.run,
            "source_row_count": self.source_row_count,
            "row_count": self.row_count,
            "replaced_row_count": self.replaced_row_count,
            "file_count": self.file_count,
            "size_bytes": self.size_bytes,
            "version": None if self.commit is None else self.commit.version,
            "kept_back": self.kept_back or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIngestReport:
    """The outcome of one run for a table of Spark.

    Attributes:
        name: Name of the ingest.
        dataset: Name of the dataset.
        table: Name of the table, or `the query`.
        location: URL of the files of the table, as Spark names it; None if it does not.
        table_version: Version or snapshot of the table; None for formats without one.
        parts: The parts with rows in the table or in the dataset, oldest first.
        timeless_row_count: Rows without a time, which are in no window and were not read.
        ignored_fields: Columns that were left out because of `unknown="ignore"`.
        schema_changes: Additions to the schema by `unknown="keep"`.
        creates_dataset: True if the dataset was missing.
        not_published: Tables that the properties of the dataset name and that do not show it.
        is_dry_run: True if nothing was written.
        duration_s: Duration in seconds.

    >>> report = TableIngestReport(
    ...     name="sales", dataset="sales", table="shop.sales",
    ...     parts=[TablePart(run="sales: shop.sales", source_row_count=3, row_count=3)],
    ... )
    >>> report
    <TableIngestReport of 'sales': 3 rows of shop.sales, 0 kept back>
    """

    name: str
    dataset: str
    table: str
    location: str | None = None
    table_version: str | None = None
    parts: Sequence[TablePart] = ()
    timeless_row_count: int = 0
    ignored_fields: Sequence[str] = ()
    schema_changes: Sequence[str] = ()
    creates_dataset: bool = False
    not_published: Sequence[NotPublished] = ()
    is_dry_run: bool = False
    duration_s: float = field(default=0.0, compare=False)

    @property
    def commits(self) -> tuple[Commit, ...]:
        """The commits, oldest first; in a dry run those that would be made."""
        return tuple(part.commit for part in self.parts if part.commit is not None)

    @property
    def row_count(self) -> int:
        """Number of rows that were written, or in a dry run would be."""
        return sum(part.row_count for part in self.parts)

    @property
    def replaced_row_count(self) -> int | None:
        """Number of earlier rows that they replace; None if unknown."""
        return known_total([part.replaced_row_count for part in self.parts])

    @property
    def file_count(self) -> int | None:
        """Number of data files; in a dry run at least so many; None if unknown."""
        return known_total([part.file_count for part in self.parts])

    @property
    def size_bytes(self) -> int | None:
        """Size of the data files; None if unknown, as in a dry run."""
        return known_total([part.size_bytes for part in self.parts])

    @property
    def kept_back(self) -> tuple[TablePart, ...]:
        """Parts that a person has to check; their earlier rows have stayed."""
        return tuple(part for part in self.parts if part.kept_back)

    @property
    def checks(self) -> tuple[CheckOutcome, ...]:
        """Results of the declared checks, over all parts."""
        return total_of_checks(result for commit in self.commits for result in commit.checks)

    def to_record(self) -> dict[str, object]:
        """Return the report as one record with stable keys."""
        return {
            "name": self.name,
            "dataset": self.dataset,
            "table": self.table,
            "location": self.location,
            "table_version": self.table_version,
            "row_count": self.row_count,
            "replaced_row_count": self.replaced_row_count,
            "file_count": self.file_count,
            "size_bytes": self.size_bytes,
            "part_count": len(self.parts),
            "kept_back_count": len(self.kept_back),
            "timeless_row_count": self.timeless_row_count,
            "ignored_fields": ", ".join(self.ignored_fields) or None,
            "schema_changes": ", ".join(self.schema_changes) or None,
            "creates_dataset": self.creates_dataset,
            "parts": [part.to_record() for part in self.parts],
            "checks": [
                {"name": one.name, "outcome": one.outcome, "count": one.count}
                for one in self.checks
            ],
            "duration_s": round(self.duration_s, 3),
        }

    def __repr__(self) -> str:
        kind = "TableIngestReport, a dry run," if self.is_dry_run else "TableIngestReport"
        rows = counted(self.row_count, "row")
        return (
            f"<{kind} of {self.name!r}: {rows} of {self.table}, {len(self.kept_back):,} kept back>"
        )

    def _repr_html_(self) -> str:
        hidden = ("parts", "checks")
        return facts_to_html(f"Ingest {self.name}", facts_of(self.to_record(), hidden=hidden))
