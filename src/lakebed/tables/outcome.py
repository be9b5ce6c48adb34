"""The result of a publication to Delta or Iceberg."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakebed.common.html import facts_to_html, shortened
from lakebed.model.publishing import TableKind


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePublication:
    """The changes of a publication, made or planned; for a check, the differences of the table.

    Attributes:
        kind: `delta` or `iceberg`.
        table: URL of the table, or its name in a catalog.
        version: Version of the dataset that the table shows.
        table_version: The table's own number for it; None if nothing was written.
        is_applied: True if the changes were made.
        created: True if the table did not exist.
        schema_changes: Differences other than files: columns, properties.
        added_count: Files that the table lacked.
        removed_count: Files in the table that the dataset does not have.
        unchanged_count: Files that were already right.
        foreign: Changes that others made to the table, which a repair reverts.
        damaged: Reasons why readers could not read the table, which a publication repairs.
        seconds: Duration of the publication.

    >>> done = TablePublication(kind="delta", table="lake/flights/data", version=3, is_applied=True)
    >>> done.is_in_step
    True
    """

    kind: TableKind
    table: str
    version: int
    table_version: int | None = None
    is_applied: bool
    created: bool = False
    schema_changes: tuple[str, ...] = ()
    added_count: int = 0
    removed_count: int = 0
    unchanged_count: int = 0
    foreign: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_in_step(self) -> bool:
        """True if the table is right now, because it was or because it was brought into step."""
        return self.was_in_step or self.is_applied

    @property
    def was_in_step(self) -> bool:
        """True if the table was right before, so that nothing needed to change."""
        return not (
            self.created
            or self.schema_changes
            or self.added_count
            or self.removed_count
            or self.foreign
            or self.damaged
        )

    def followed_by(self, later: TablePublication) -> TablePublication:
        """Return the combined result of two rounds of one publication."""
        return replace(
            later,
            table_version=self.table_version
            if later.table_version is None
            else later.table_version,
            created=self.created or later.created,
            schema_changes=(*self.schema_changes, *later.schema_changes),
            added_count=self.added_count + later.added_count,
            removed_count=self.removed_count + later.removed_count,
            foreign=(*self.foreign, *later.foreign),
            damaged=(*self.damaged, *later.damaged),
        )

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"{self.kind.capitalize()} {self.table}",
            {
                "version": self.version,
                "version of the table": self.table_version,
                "was in step": self.was_in_step,
                "schema": shortened(self.schema_changes) or "right",
                "files added": f"{self.added_count:,}",
                "files removed": f"{self.removed_count:,}",
                "files unchanged": f"{self.unchanged_count:,}",
                "written by others": shortened(self.foreign) or "nothing",
                "damaged": shortened(self.damaged) or "no",
                "seconds": f"{self.seconds:.2f}",
            },
        )
