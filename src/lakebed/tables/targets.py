"""Publication to one table by the name of its format: delta, iceberg, hive or kartothek."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal, get_args

from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError
from lakebed.store.base import Store
from lakebed.tables import delta, hive, iceberg, trees

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.model.publishing import Mode
    from lakebed.tables.outcome import Publication

TargetName = Literal["delta", "iceberg", "hive", "kartothek"]

_TARGETS: tuple[str, ...] = get_args(TargetName)
_UPKEEP = frozenset(("check", "repair", "dry_run", "on_progress"))
_TAKES = {
    "delta": _UPKEEP,
    "kartothek": _UPKEEP,
    "iceberg": _UPKEEP | {"catalog", "table", "root", "hide_batch_id"},
    "hive": _UPKEEP | {"metastore", "table", "mode", "root", "print_sql", "since"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """The arguments of a publication, of which each format takes some; see `Dataset.publish`.

    Attributes:
        metastore: The metastore of a Hive table.
        table: Name of the table.
        mode: Partitions of a Hive table.
        catalog: Catalog of an Iceberg table.
        root: URL of the repository for readers.
        hide_batch_id: True for an Iceberg table without the column `batch_id`.
        check: True to change nothing, and compare everything.
        repair: True to compare everything, and repair it.
        dry_run: True to change nothing.
        print_sql: True to return the statements for a Hive table.
        since: The version that the table shows, for the statements.
        on_progress: Callback for progress.
    """

    metastore: SparkSession | str | os.PathLike[str] | None = None
    table: str | None = None
    mode: Mode | None = None
    catalog: str | None = None
    root: str | None = None
    hide_batch_id: bool | None = None
    check: bool = False
    repair: bool = False
    dry_run: bool = False
    print_sql: bool = False
    since: int | None = None
    on_progress: OnProgress = NO_PROGRESS

    def check_for(self, target: str) -> None:
        """Check that a format takes the arguments that are given.

        Raises:
            InvalidInputError: The target is unknown, or does not take one of them.
        """
        check_target(target)
        given = (one.name for one in fields(self) if getattr(self, one.name) != one.default)
        for name in given:
            if name not in _TAKES[target]:
                takers = " or ".join(repr(one) for one in _TARGETS if name in _TAKES[one])
                raise InvalidInputError(
                    f"A table of {target} has no {name}.",
                    hint=f"Leave it out, or publish {takers}.",
                )

    def hive_table(self) -> str:
        """Return the name of a Hive table.

        Raises:
            InvalidInputError: No table is given.
        """
        if self.table is None:
            raise InvalidInputError(
                "A table of Hive needs a name.", hint="Give the table as database.table."
            )
        return self.table


def check_target(target: object) -> None:
    """Check that a target is the name of a format.

    Raises:
        InvalidInputError: It is not.
    """
    if target not in _TARGETS:
        raise InvalidInputError(
            f"{shown(target)} is not a format to publish to.",
            hint="Name the format first: delta, iceberg, hive or kartothek; for hive give the table, too.",
        )


def publish(
    store: Store, dataset: str, target: TargetName, options: TableOptions
) -> Publication | tuple[str, ...]:
    """Bring the table of a format up to date; or return the statements that do so."""
    options.check_for(target)
    upkeep = {
        "check": options.check,
        "repair": options.repair,
        "dry_run": options.dry_run,
    }
    if target == "delta":
        return delta.to_delta.publish(store, dataset, **upkeep, on_progress=options.on_progress)
    if target == "iceberg":
        return iceberg.to_iceberg.publish(
            store,
            dataset,
            catalog=options.catalog,
            table=options.table,
            root=options.root,
            hide_batch_id=options.hide_batch_id,
            **upkeep,
            on_progress=options.on_progress,
        )
    if target == "kartothek":
        return trees.to_kartothek.publish(store, dataset, **upkeep, on_progress=options.on_progress)
    table = options.hive_table()
    if options.print_sql:
        _check_alone(options)
        return hive.statements.statements(
            store, dataset, table, since=options.since, root=options.root
        )
    if options.since is not None:
        raise InvalidInputError(
            f"since is {options.since}, without print_sql.", hint="Give print_sql=True with it."
        )
    given = hive.to_hive.PublishOptions(mode=options.mode, root=options.root, **upkeep)
    return hive.to_hive.publish(
        store, dataset, options.metastore, table, given, options.on_progress
    )


def _check_alone(options: TableOptions) -> None:
    """Check that nothing is given beside the statements that queries a metastore."""
    others = ("metastore", "mode", "check", "repair", "dry_run")
    for name in others:
        if getattr(options, name):
            raise InvalidInputError(
                f"print_sql with {name}: no metastore is queried.", hint=f"Leave {name} out."
            )


def unpublish(store: Store, dataset: str, target: TargetName, options: TableOptions) -> bool:
    """Drop the table of a format; return False if there is none."""
    options.check_for(target)
    if target == "delta":
        return delta.to_delta.unpublish(store, dataset, dry_run=options.dry_run)
    if target == "kartothek":
        return trees.to_kartothek.unpublish(store, dataset, dry_run=options.dry_run)
    if target == "iceberg":
        return iceberg.to_iceberg.unpublish(
            store, dataset, catalog=options.catalog, table=options.table, dry_run=options.dry_run
        )
    return hive.to_hive.unpublish(
        store, dataset, options.metastore, options.hive_table(), dry_run=options.dry_run
    )
