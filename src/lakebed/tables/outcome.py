"""The result of a publication to another format."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lakebed.common.html import facts_to_html, shortened
from lakebed.model.publishing import Mode, TableKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """The changes of a publication, made or planned; for a check, the differences of the table.

    Counts are of files; of a Hive table they are of partitions, which `added`, `changed` and
    `dropped` name as `SHOW PARTITIONS` does: the empty text is an unpartitioned table.

    Attributes:
        kind: `delta`, `iceberg`, `hive` or `kartothek`.
        table: URL of the table, or its name in a catalog or metastore.
        version: Version of the dataset that the table shows.
        table_version: The table's own number for it; None if nothing was written, and of Hive and
            Kartothek.
        mode: `partitions` or `batches`, of a Hive table.
        is_applied: True if the changes were made.
        created: True if the table did not exist.
        schema_changes: Differences other than files: columns, properties.
        added: Partitions of a Hive table that were missing.
        changed: Partitions of a Hive table that showed another directory.
        dropped: Partitions of a Hive table that the dataset does not have.
        added_count: Number of files or partitions that were missing.
        removed_count: Number of files or partitions that the dataset does not have.
        unchanged_count: Number of files or partitions that were already right.
        foreign: Changes that others made to the table, which a repair reverts.
        damaged: Reasons why readers could not read the table. A publication repairs those of a log
            or of metadata; directories of a Hive table only a check compares.
        calls: Statements and catalog calls that were sent to the metastore.
        seconds: Duration of the publication.

    >>> done = Publication(kind="delta", table="lake/flights/data", version=3, is_applied=True)
    >>> done.is_in_step
    True
    """

    kind: TableKind
    table: str
    version: int
    table_version: int | None = None
    mode: Mode | None = None
    is_applied: bool
    created: bool = False
    schema_changes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    added_count: int = 0
    removed_count: int = 0
    unchanged_count: int = 0
    foreign: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    calls: int = 0
    seconds: float = 0.0

    @property
    def is_in_step(self) -> bool:
        """True if the table is right now, because it was or because it was brought up to date."""
        return self.was_in_step or self.is_applied

    @property
    def was_in_step(self) -> bool:
        """True if the table was right before, so that nothing needed to change."""
        return not (
            self.created
            or self.schema_changes
            or self.added_count
            or self.changed
            or self.removed_count
            or self.foreign
            or self.damaged
        )

    def followed_by(self, later: Publication) -> Publication:
        """Return the combined result of two rounds of one publication."""
        added = tuple(dict.fromkeys((*self.added, *later.added)))
        dropped = tuple(dict.fromkeys((*self.dropped, *later.dropped)))
        return replace(
            later,
            table_version=self.table_version
            if later.table_version is None
            else later.table_version,
            created=self.created or later.created,
            schema_changes=(*self.schema_changes, *later.schema_changes),
            added=added,
            changed=tuple(dict.fromkeys((*self.changed, *later.changed))),
            dropped=dropped,
            # A partition that was named twice counts once.
            added_count=len(added) or self.added_count + later.added_count,
            removed_count=len(dropped) or self.removed_count + later.removed_count,
            foreign=(*self.foreign, *later.foreign),
            damaged=(*self.damaged, *later.damaged),
        )

    def _repr_html_(self) -> str:
        partitions = {
            "partitions added": shortened(self.added) or "none",
            "partitions changed": shortened(self.changed) or "none",
            "partitions dropped": shortened(self.dropped) or "none",
            "partitions unchanged": f"{self.unchanged_count:,}",
            "calls of the metastore": f"{self.calls:,}",
        }
        files = {
            "files added": f"{self.added_count:,}",
            "files removed": f"{self.removed_count:,}",
            "files unchanged": f"{self.unchanged_count:,}",
            "written by others": shortened(self.foreign) or "nothing",
        }
        return facts_to_html(
            f"{self.kind.capitalize()} table {self.table}",
            {
                "version": self.version,
                **({"mode": self.mode} if self.mode else {}),
                **({} if self.table_version is None else {"table version": self.table_version}),
                "was in step": self.was_in_step,
                "schema": shortened(self.schema_changes) or "right",
                **(partitions if self.kind == "hive" else files),
                "damaged": shortened(self.damaged) or "no",
                "seconds": f"{self.seconds:.2f}",
            },
        )
