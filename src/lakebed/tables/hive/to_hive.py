"""Publish: keep a table of a metastore in step with the current version of a dataset.

The table records the version that it shows, so a publication updates only the partitions that later
commits have changed. The record is trusted only if the note on storage, in which publishers announce
their changes, names no other publisher. After a crash, and with other publishers, the whole table
is compared. The rounds of a publication are those of `lakebed.tables.engine`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    noting,
)
from lakebed.model.keys import decode_path, partition_of
from lakebed.model.layout import Folder
from lakebed.model.publishing import MODES, Mode, TableName
from lakebed.state import published
from lakebed.state.reader import read_own_head
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.root import plain_location, root_of
from lakebed.tables.engine import Request, bring_into_step
from lakebed.tables.hive.directories import (
    Directory,
    ScatteredError,
    check_compatible,
    directories_of,
    problems,
)
from lakebed.tables.hive.metastore import FoundTable, Metastore
from lakebed.tables.hive.metastore_session import session_of
from lakebed.tables.hive.table import Columns, Spec, added_columns, columns_of, schema_differences
from lakebed.tables.outcome import Publication
from lakebed.tables.since import find_since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

DATASET = "lakebed.dataset"
"""The property of a table that names its dataset."""

_CREATED = "lakebed.created_at"
_VERSION, _SCHEMA, _MODE = "lakebed.version", "lakebed.schema", "lakebed.mode"
_COMMIT = "lakebed.commit_id"
_UNPARTITIONED = Spec("")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    """Options of a publication.

    Attributes:
        mode: With `partitions`, each partition of the dataset is a partition of the table, and
            moves to another batch in one step. With `batches`, each live batch of a partition is a
            partition of the table, with a last column `batch_id`. None for the mode of the table,
            or `partitions` for a new table.
        root: The repository as the readers of the table spell it, such as `s3://bucket/lake`;
            None for `file://…`, `s3a://…` or `gs://…` after the repository's own URL.
        check: Only compare the whole table and all directories with the dataset.
        repair: Compare the whole table with the dataset, and repair it.
        dry_run: Only report what would be done.
    """

    mode: Mode | None = None
    root: str | None = None
    check: bool = False
    repair: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.mode not in (None, *MODES):
            raise InvalidInputError(
                f"Unknown mode {self.mode!r}.", hint="Give 'partitions' or 'batches'."
            )


def publish(
    store: Store,
    dataset: str,
    metastore: SparkSession | str | os.PathLike[str] | None,
    table: str,
    options: PublishOptions,
    on_progress: OnProgress = NO_PROGRESS,
) -> Publication:
    """Bring a table into step with a dataset; see `Dataset.publish`."""
    name = TableName.parse(table)
    began = time.monotonic()
    # What no table can show is refused before the first contact with a metastore, which is slow.
    columns_of(read_own_head(store, dataset).state, options.mode or "partitions")
    with_metastore = Metastore(session_of(metastore), name)
    publisher = _Publisher(store, dataset, with_metastore, name, options, on_progress)
    with with_metastore.settings():
        done = publisher.run()
    done = replace(done, calls=with_metastore.calls, seconds=time.monotonic() - began)
    _log.info(
        "published dataset=%s table=%s version=%d added=%d changed=%d dropped=%d calls=%d applied=%s",
        dataset,
        name,
        done.version,
        len(done.added),
        len(done.changed),
        len(done.dropped),
        done.calls,
        done.is_applied,
    )
    return done


def unpublish(
    store: Store,
    dataset: str,
    metastore: SparkSession | str | os.PathLike[str] | None,
    table: str,
    *,
    dry_run: bool = False,
) -> bool:
    """Drop the table of a dataset; see `Dataset.unpublish`."""
    name = TableName.parse(table)
    with_metastore = Metastore(session_of(metastore), name)
    with with_metastore.settings():
        found_table = with_metastore.find()
        if found_table is None:
            if not dry_run:
                published.forget(store, dataset, str(name))
            return False
        _check_own(found_table, name, f"{store.uri}/{dataset}")
        if not dry_run:
            with_metastore.drop()
            with noting(
                f"Table {name} was dropped. Unpublish it again, so that cleanups know about it."
            ):
                published.forget(store, dataset, str(name))
    return True


def owner_of(table: FoundTable) -> str | None:
    """Return the URI of the dataset in a table's properties; None if Lakebed did not publish it."""
    return table.properties.get(DATASET)


def _check_own(table: FoundTable, name: TableName, dataset: str) -> None:
    owner = owner_of(table)
    if owner is None:
        raise AlreadyExistsError(
            f"Table {str(name)!r} exists, but Lakebed did not publish it.",
            hint="Choose another name; the table was not touched.",
        )
    if owner != dataset:
        raise AlreadyExistsError(
            f"Table {str(name)!r} shows the dataset {owner}, not {dataset}.",
            hint="Choose another name, or unpublish that one first.",
        )
    purges = table.properties.get("external.table.purge", "").lower() == "true"
    if not table.is_external or purges:
        raise InvalidInputError(
            f"Table {str(name)!r} is no longer external: dropping a partition would delete its "
            "files.",
            hint="ALTER TABLE … SET TBLPROPERTIES ('EXTERNAL'='TRUE', "
            "'external.table.purge'='false'), then publish again.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The changes that bring the table in step with the head."""

    state: State
    mode: Mode
    columns: Columns
    found: FoundTable | None
    added: Mapping[Spec, Directory]
    changed: Mapping[Spec, Directory]
    dropped: tuple[Spec, ...]
    unchanged: int
    schema_changes: tuple[str, ...]
    damaged: tuple[str, ...]


class _Publisher:
    """Brings one table into step."""

    def __init__(
        self,
        store: Store,
        dataset: str,
        metastore: Metastore,
        table: TableName,
        options: PublishOptions,
        on_progress: OnProgress,
    ) -> None:
        self._store = store
        self._dataset = dataset
        self._metastore = metastore
        self._table = table
        self._options = options
        self._on_progress = on_progress
        self._root = root_of(store, options.root)
        self._note = published.Note(store, dataset, str(table))

    def run(self) -> Publication:
        options = self._options
        request = Request(check=options.check, repair=options.repair, dry_run=options.dry_run)
        return bring_into_step(self._store, self._dataset, self, self._note, request)

    @property
    def title(self) -> str:
        return str(self._table)

    def plan(self, state: State, note: published.Note, *, is_full: bool) -> _Plan:
        """Compare the table with the dataset, only as far as needed."""
        table = self._metastore.find()
        if table is not None:
            _check_own(table, self._table, f"{self._store.uri}/{self._dataset}")
        mode = self._mode(table)
        columns = columns_of(state, mode)
        if table is None:
            wanted = directories_of(state, columns)
            return self._checked(state, mode, columns, None, wanted, {}, {})
        changes = schema_differences(columns, table.columns)
        if not columns.keys:
            wanted = directories_of(state, columns)
            have = {_UNPARTITIONED: table.location}
            here = self._location(wanted[_UNPARTITIONED]) if wanted else self._empty_location()
            moved = {} if have[_UNPARTITIONED] == here else have
            return self._checked(state, mode, columns, table, wanted, have, moved, changes)
        touched = None if is_full else self._touched(state, table, note)
        wanted = directories_of(state, columns, touched)
        if touched is None:
            have = self._metastore.locations(table.columns.keys)
            moved = {
                spec: have[spec]
                for spec, directory in wanted.items()
                if spec in have and have[spec] != self._location(directory)
            }
            return self._checked(state, mode, columns, table, wanted, have, moved, changes)
        return self._incremental(state, mode, columns, table, wanted, touched, changes)

    def _incremental(
        self,
        state: State,
        mode: Mode,
        columns: Columns,
        table: FoundTable,
        wanted: Mapping[Spec, Directory],
        touched: frozenset[str],
        changes: tuple[str, ...],
    ) -> _Plan:
        """Return a plan that changes the partitions of later commits, and trusts the others."""
        if not touched and not changes:
            plan = self._checked(state, mode, columns, table, {}, {}, {}, changes)
            if state.is_tree:
                plan = replace(plan, unchanged=len(self._metastore.partitions()))
            return plan
        specs = self._specs_of(state, touched, columns, mode)
        here = self._metastore.partitions()
        have = {
            spec: ""
            for spec in here
            if (spec.without_batch() if mode == "batches" else spec) in specs
        }
        # The directory of a batch never changes.
        moved = {} if mode == "batches" else {spec: "" for spec in wanted if spec in have}
        plan = self._checked(state, mode, columns, table, wanted, have, moved, changes)
        if state.is_tree:
            same = sum(spec in have for spec in wanted) - len(plan.changed)
            plan = replace(plan, unchanged=len(here) - len(have) + same)
        return plan

    def _specs_of(
        self, state: State, paths: frozenset[str], columns: Columns, mode: Mode
    ) -> set[Spec]:
        keys = columns.keys[:-1] if mode == "batches" else columns.keys
        specs = set()
        for path in paths:
            values = decode_path(path, state.layout.partition_level_types)
            # A metastore has no partition of such values; the dataset may have dropped it since.
            with contextlib.suppress(InvalidInputError):
                specs.add(Spec.of(values, keys))
        return specs

    def _checked(
        self,
        state: State,
        mode: Mode,
        columns: Columns,
        table: FoundTable | None,
        wanted: Mapping[Spec, Directory],
        have: Mapping[Spec, str],
        moved: Mapping[Spec, str],
        schema_changes: tuple[str, ...] = (),
    ) -> _Plan:
        """Check the directories that the table will show, and return the plan."""
        is_check = self._options.check
        added = {spec: directory for spec, directory in wanted.items() if spec not in have}
        changed = {spec: wanted[spec] for spec in moved if spec in wanted}
        if not columns.keys and table is not None:
            added = {}
            dropped = tuple(moved) if not wanted else ()
        else:
            dropped = tuple(spec for spec in have if spec not in wanted)
        new = [*added.values(), *changed.values()]
        shown = list(wanted.values()) if is_check else new
        wrong = problems(self._store, state, shown, at_once=is_check)
        if wrong and not is_check:
            named = "; ".join(f"{key}: {reason}" for key, reason in list(wrong.items())[:3])
            raise ScatteredError(
                f"{len(wrong):,} directories of {state.name!r} do not hold exactly their live "
                f"files, so the table would show other rows: {named}.",
                hint="`compact` with gather moves such partitions to directories of their own; if live "
                "files are missing, roll back or rerun. Nothing was published.",
                directories=frozenset(wrong),
            )
        if not is_check:
            check_compatible(self._store, state, self._labels_to_check(state, table, new))
        return _Plan(
            state=state,
            mode=mode,
            columns=columns,
            found=table,
            added=added,
            changed=changed,
            dropped=dropped,
            # To count the partitions of a tree, all leaves would be read; see `_incremental`.
            unchanged=(len(wanted) if state.is_tree else _count(state, mode))
            - len(added)
            - len(changed),
            schema_changes=schema_changes,
            damaged=tuple(f"{key}: {reason}" for key, reason in sorted(wrong.items())),
        )

    def _labels_to_check(
        self, state: State, table: FoundTable | None, new: Sequence[Directory]
    ) -> Sequence[str]:
        """Return the files that were not yet compared with the table's columns."""
        if table is None or table.properties.get(_SCHEMA) != str(state.lineage.number):
            return state.labels
        return [label for directory in new for label in directory.labels]

    def _mode(self, table: FoundTable | None) -> Mode:
        asked = self._options.mode
        if table is None:
            return asked or "partitions"
        have = table.properties.get(_MODE)
        known: Mode = "batches" if have == "batches" else "partitions"
        if asked not in (None, known):
            raise InvalidInputError(
                f"Table {str(self._table)!r} has mode {known!r}, not {asked!r}.",
                hint="Unpublish it first, or publish under another name.",
            )
        return known

    def _touched(
        self, state: State, table: FoundTable, note: published.Note
    ) -> frozenset[str] | None:
        """Return the partitions that later commits have changed; None if unknown."""
        shown = table.properties.get(_VERSION, "")
        if not shown.isascii() or not shown.isdecimal():
            return None
        if not note.shows_only(int(shown)):
            return None  # another publisher runs or has failed: partitions may show other versions
        created_at = table.properties.get(_CREATED, "")
        commit_id = table.properties.get(_COMMIT, "")  # tables of older releases have none
        since = find_since(self._store, state, int(shown), created_at, commit_id)
        return None if since is None else since.partitions

    def _location(self, directory: Directory) -> str:
        return plain_location(f"{self._root}/{directory.key}")

    def _empty_location(self) -> str:
        """Return an empty directory, apart from all data.

        An INSERT OVERWRITE or MSCK of a user on the table's own directory does no harm there.
        """
        return plain_location(f"{self._root}/{Folder.HIVE.of(self._dataset, str(self._table))}")

    def apply(self, plan: _Plan, note: published.Note) -> bool:
        self._metastore.deadline = note.deadline
        try:
            self._apply(plan)
        finally:
            self._metastore.deadline = None
        return True

    def is_to_change(self, plan: _Plan) -> bool:
        differences = (plan.added, plan.changed, plan.dropped, plan.schema_changes)
        return plan.found is None or any(differences) or self._is_to_note(plan)

    def _is_to_note(self, plan: _Plan) -> bool:
        shown = plan.found.properties if plan.found is not None else {}
        return any(shown.get(name) != value for name, value in self._properties(plan).items())

    def _properties(self, plan: _Plan) -> dict[str, str]:
        """Return the properties of the table once it shows the version."""
        return {
            DATASET: f"{self._store.uri}/{self._dataset}",
            _CREATED: plan.state.created_at,
            _MODE: plan.mode,
            _VERSION: str(plan.state.version),
            _COMMIT: plan.state.commit_id,
            _SCHEMA: str(plan.state.lineage.number),
            **plan.columns.properties,
        }

    def _apply(self, plan: _Plan) -> None:
        metastore, keys = self._metastore, plan.columns.keys
        properties = self._properties(plan)
        if plan.found is None:
            own = plan.added.get(_UNPARTITIONED)
            location = self._location(own) if own is not None else self._empty_location()
            # Without a version, because the table shows none until it has all partitions.
            first = {name: properties[name] for name in (DATASET, _CREATED, _MODE)}
            metastore.create(plan.columns, location, first)
        else:
            self._set_columns(plan, plan.found)
            if not keys and (plan.changed or plan.dropped):
                own = plan.changed.get(_UNPARTITIONED)
                metastore.set_location(self._location(own) if own else self._empty_location())
        if keys:
            self._set_partitions(plan)
        if self._is_to_note(plan):
            metastore.set_properties(properties)

    def _set_partitions(self, plan: _Plan) -> None:
        metastore, keys = self._metastore, plan.columns.keys
        specs = dict.fromkeys(map(str, (*plan.changed, *plan.added, *plan.dropped)), 0)
        tally = Tally(self._on_progress, f"publish to {self.title}", specs, unit="partition")

        if plan.changed:
            locations = {spec: self._location(d) for spec, d in plan.changed.items()}
            metastore.point(locations, keys, tally.add)
        if plan.mode == "batches" and plan.dropped:
            # The dropped batches were replaced: for a moment readers see no batch, not both.
            metastore.remove(plan.dropped, keys, tally.add)
        if plan.added:
            locations = {spec: self._location(d) for spec, d in plan.added.items()}
            metastore.add(locations, keys, tally.add)
        if plan.mode == "partitions" and plan.dropped:
            metastore.remove(plan.dropped, keys, tally.add)

    def _set_columns(self, plan: _Plan, table: FoundTable) -> None:
        if not plan.schema_changes:
            return
        # Each partition of Hive has its own columns, by which Hive's reader of Avro reads its files.
        is_avro = plan.columns.format == "avro"
        new = None if is_avro else added_columns(plan.columns, table.columns)
        if new is not None:
            self._metastore.add_columns(new)
            return
        same_keys = [key.identity for key in plan.columns.keys] == [
            key.identity for key in table.columns.keys
        ]
        if same_keys and not is_avro and self._metastore.set_columns(plan.columns):
            return
        raise InvalidInputError(
            f"The columns of table {str(self._table)!r} cannot be changed in place: "
            f"{'; '.join(plan.schema_changes)}.",
            hint="Unpublish it and publish it again; in between readers do not find it.",
        )

    def report(self, plan: _Plan, *, is_applied: bool) -> Publication:
        return Publication(
            kind="hive",
            table=str(self._table),
            version=plan.state.version,
            mode=plan.mode,
            is_applied=is_applied,
            created=plan.found is None,
            schema_changes=plan.schema_changes,
            added=_paths(plan.added),
            changed=_paths(plan.changed),
            dropped=_paths(plan.dropped),
            added_count=len(plan.added),
            removed_count=len(plan.dropped),
            unchanged_count=plan.unchanged,
            damaged=plan.damaged,
        )


def _count(state: State, mode: Mode) -> int:
    """Return the number of partitions that the table needs."""
    directories = state.directories()
    if mode == "batches":
        return len(directories)
    return len({partition_of(directory) for directory in directories})


def _paths(specs: Mapping[Spec, Directory] | tuple[Spec, ...]) -> tuple[str, ...]:
    return tuple(sorted(str(spec) for spec in specs))
