"""Publish to Iceberg: keep metadata over the data files in step with a dataset.

Each publication is one snapshot, which records the version of the dataset that the table shows. The
next publication adds and removes only the files that changed since that version and trusts the
rest; `check` and `repair` compare all files of the snapshot. Snapshots of other writers are
reported, and only a repair reverts them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    InvalidInputError,
    ObjectNotFoundError,
)
from lakebed.model.field_ids import widens
from lakebed.model.keys import BATCH_ID, split_label
from lakebed.model.publishing import HIDE_BATCH_ID, is_on
from lakebed.model.schema import Field
from lakebed.state.published import Note
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.root import root_of
from lakebed.tables import engine
from lakebed.tables.compatibility import check_compatible, dropped_fields, unknown_fields
from lakebed.tables.engine import Request, check_deadline
from lakebed.tables.iceberg.library_errors import importing_pyiceberg, reading
from lakebed.tables.iceberg.metadata_names import snapshot_of
from lakebed.tables.outcome import Publication
from lakebed.tables.shown_facts import shown_files
from lakebed.tables.since import Since, find_since

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

    from lakebed.tables.iceberg.homes import IcebergTable, TableHome

_log = logging.getLogger(__name__)

NOTE = "iceberg"
_PROPERTIES = {
    "gc.enabled": "false",  # the dataset's cleanup deletes orphans and old snapshots
    "write.metadata.delete-after-commit.enabled": "false",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "false",
}
# Cleanups of the dataset do not look into catalogs; see `lakebed.tables.iceberg.homes`.
_PROPERTIES_IN_A_CATALOG = _PROPERTIES | {"write.metadata.delete-after-commit.enabled": "true"}


def publish(
    store: Store,
    dataset: str,
    *,
    catalog: str | None = None,
    table: str | None = None,
    root: str | None = None,
    hide_batch_id: bool | None = None,
    check: bool = False,
    repair: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress = NO_PROGRESS,
) -> Publication:
    """Bring the Iceberg table of a dataset into step; see `Dataset.publish`."""
    began = time.monotonic()
    request = Request(check=check, repair=repair, dry_run=dry_run)
    spelled = root_of(store, root, s3="s3")  # the scheme that connectors of Iceberg know
    home = _home(store, dataset, catalog, table, spelled)
    target = _IcebergTarget(
        store,
        dataset,
        home,
        spelled,
        on_progress,
        is_root_given=root is not None,
        hide_batch_id=hide_batch_id,
    )
    note = _note(store, dataset, catalog, home)
    to = f"iceberg table={home.table}"
    with closing(home):
        return engine.publish(store, dataset, target, note, request, to=to, began=began)


def unpublish(
    store: Store,
    dataset: str,
    *,
    catalog: str | None = None,
    table: str | None = None,
    dry_run: bool = False,
) -> bool:
    """Drop the Iceberg table of a dataset; see `Dataset.unpublish`."""
    home = _home(store, dataset, catalog, table, store.uri)
    note = _note(store, dataset, catalog, home)
    with closing(home):
        is_there = _is_own(store, dataset, home)
        if dry_run:
            return is_there
        note.read(is_damage_nothing=True)
        if is_there or note.is_there:
            home.drop(note)
        return is_there


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """The columns and properties of a dataset as a new Iceberg table.

    Attributes:
        schema: The columns.
        levels: Levels of directories that are columns of the table.
        properties: Properties of the table.
    """

    schema: Schema
    levels: tuple[str, ...]
    properties: Mapping[str, str]


def publish_in(
    store: Store,
    dataset: str,
    root: str,
    *,
    cache: Store,
    cache_root: str,
    hide_batch_id: bool | None = None,
) -> Publication:
    """Bring a table into step whose metadata, and note, are in another store than the data.

    Metadata that cannot be read is replaced: only readers of older snapshots lose something.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        root: URL of that store for the readers of the table.
        cache: The store of the metadata.
        cache_root: URL of that one for the readers.
        hide_batch_id: Whether the table leaves `batch_id` out; None for what the dataset says.
    """
    home = _home(cache, dataset, None, None, cache_root)
    note = _note(cache, dataset, None, home)
    target = _IcebergTarget(store, dataset, home, root, hide_batch_id=hide_batch_id)
    to, began = f"iceberg table={home.table}", time.monotonic()
    try:
        return engine.publish(store, dataset, target, note, Request(), to=to, began=began)
    except CorruptMetadataError as exc:
        _log.warning("metadata of a catalog is replaced dataset=%s: %s", dataset, exc)
    try:
        note.read()
    except CorruptMetadataError:
        note.forget()
    request = Request(repair=True)
    return engine.publish(store, dataset, target, note, request, to=to, began=began)


def columns_for(store: Store, state: State, home: TableHome, root: str) -> NewTable:
    """Return the columns under which a state would be published as a new table.

    Raises:
        InvalidInputError: Iceberg cannot express the dataset, or would read some file differently.
    """
    target = _IcebergTarget(store, state.name, home, root)
    plan = target.plan(state, _note(store, state.name, None, home), is_full=False)
    return NewTable(schema=plan.schema, levels=plan.levels, properties=plan.properties)


def published_with(store: Store, dataset: str) -> tuple[bool | None, str | None]:
    """Return how the table beside the data was published: without `batch_id`, and with which root.

    Both are None if there is no table that can be read; the root also if it is the usual one.
    """
    from lakebed.tables.iceberg.iceberg_schema import ROOT

    home = _home(store, dataset, None, None, store.uri)
    with closing(home):
        try:
            table = home.find("")
        except CorruptMetadataError:
            return None, None
    if table is None:
        return None, None
    names = {part.name for part in table.metadata.spec().fields}
    root = table.metadata.properties.get(ROOT)
    return BATCH_ID not in names, None if root == root_of(store, None, s3="s3") else root


def _is_own(store: Store, dataset: str, home: TableHome) -> bool:
    """Return whether there is a table, readable or not.

    Raises:
        AlreadyExistsError: There is one that does not show the dataset.
    """
    from lakebed.tables.iceberg.iceberg_schema import DATASET

    try:
        table = home.find("")
    except CorruptMetadataError:
        if home.folder is None:
            raise
        return True  # the folder is the dataset's own
    if table is None:
        return False
    recorded = table.metadata.properties.get(DATASET)
    # A table beside the data shows this dataset, even if the dataset has moved since.
    if recorded != f"{store.uri}/{dataset}" and (recorded is None or home.folder is None):
        raise _not_ours(home)
    return True


def _note(store: Store, dataset: str, catalog: str | None, home: TableHome) -> Note:
    if catalog is None:
        return Note(store, dataset, dataset, kind="iceberg", name=NOTE)
    name = f"{NOTE}-{quote(home.table, safe='.')}"
    return Note(store, dataset, home.table, kind="iceberg", name=name)


def _home(
    store: Store, dataset: str, catalog: str | None, table: str | None, root: str
) -> TableHome:
    with importing_pyiceberg():
        from lakebed.tables.iceberg.homes import FilesBeside, InCatalog
    if catalog is None and table is None:
        return FilesBeside(store, dataset, root)
    if catalog is None or table is None:
        raise InvalidInputError(
            "catalog and table must be given together.",
            hint="Give both, or neither for metadata files beside the data.",
        )
    return InCatalog(catalog, table)


def _not_ours(home: TableHome) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"There is an Iceberg table {home.table!r} that does not show this dataset.",
        hint="Choose another name; the table was not touched.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The changes that bring the table in step with the head.

    Attributes:
        state: State of the dataset.
        table: The table; None if it does not exist.
        schema: Schema that the table needs.
        levels: Levels of directories that are columns of the table.
        properties: Properties that the table needs.
        dropped: Fields that older files may hold.
        shown: Version and commit in the table's snapshot; None if another writer made it.
        added: Labels of files that the table lacks.
        removed: Locations of files to remove from the table, with their partition values.
        operation: Operation of the snapshot.
        snapshot_id: Id that a client has given the snapshot; None for a new one.
        schema_changes: Differences other than files.
        foreign: Snapshots of other writers.
        has_deletes: True if other writers have deleted rows within files.
        damaged: Reasons why readers cannot read the table.
        after: Number of the metadata that a new table begins above.
        is_compared: True if all files of the snapshot were compared.
        is_whole: True if `added` holds all files, because the table's own list cannot be read.
    """

    state: State
    table: IcebergTable | None
    schema: Schema
    levels: tuple[str, ...]
    properties: dict[str, str] = field(default_factory=dict)
    dropped: tuple[Field, ...] = ()
    shown: tuple[int, str] | None = None
    added: Sequence[str] = ()
    removed: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    operation: str = "append"
    snapshot_id: int | None = None
    schema_changes: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    has_deletes: bool = False
    damaged: tuple[str, ...] = ()
    after: int = 0
    is_compared: bool = False
    is_whole: bool = False

    @property
    def renamed(self) -> Mapping[str, str]:
        """The names that data files have for renamed columns."""
        return self.state.descriptor.schema.renamed


class _IcebergTarget:
    """The Iceberg table of one dataset."""

    def __init__(
        self,
        store: Store,
        dataset: str,
        home: TableHome,
        root: str,
        on_progress: OnProgress = NO_PROGRESS,
        *,
        is_root_given: bool = False,
        hide_batch_id: bool | None = None,
    ) -> None:
        self._on_progress = on_progress
        self._is_root_given = is_root_given
        self._hide_batch_id = hide_batch_id
        self._store = store
        self._dataset = dataset
        self._home = home
        self._root = root
        self._is_believed = True  # until a commit meets metadata that it cannot read
        self._is_rewritten = False  # True if it met such metadata although all was compared

    @property
    def title(self) -> str:
        return f"Iceberg {self._home.table}"

    def plan(self, state: State, note: Note, *, is_full: bool) -> _Plan:
        _, _, snapshot_id = note.place.partition(" ")
        is_full = is_full or not self._is_believed
        try:
            with reading(self._home.table, "an Iceberg table"):
                table, after = self._found(state, note, is_full=is_full)
                return self._compared(state, table, snapshot_id, is_full=is_full, after=after)
        except CorruptMetadataError as exc:
            if not is_full:
                raise
            after = max(self._home.last_number(), note.given_up)
            plan = self._compared(state, None, "", is_full=True, after=after)
            return replace(plan, damaged=(exc.message,))

    def _found(self, state: State, note: Note, *, is_full: bool) -> tuple[IcebergTable | None, int]:
        """Return the table to go on with, or None and the number that a new one begins above."""
        from lakebed.tables.iceberg.iceberg_schema import BEGINS_AT, CREATED, number_in

        table = self._home.find("" if is_full else note.place)
        if table is None:
            return None, max(note.given_up, 0)
        properties = table.metadata.properties
        is_given_up = number_in(properties, BEGINS_AT, 1) <= note.given_up
        if not is_given_up:
            self._check_own(properties)
        if self._home.folder is None:
            return table, 0
        if is_given_up or properties.get(CREATED, state.created_at) != state.created_at:
            # The old table will be deleted, with the other dataset or because it was given up.
            return None, max(int(table.place), note.given_up)
        return table, 0

    def _compared(
        self, state: State, table: IcebergTable | None, known: str, *, is_full: bool, after: int
    ) -> _Plan:
        plan = self._with_files(self._described(state, table), known, is_full=is_full)
        self._prove(plan)
        plan = replace(self._with_properties(plan), after=after)
        trouble = "" if table is None else self._home.trouble(table)
        return replace(plan, damaged=(*plan.damaged, trouble)) if trouble else plan

    def _described(self, state: State, table: IcebergTable | None) -> _Plan:
        """Return a plan with the columns that the table needs."""
        from lakebed.tables.iceberg.iceberg_schema import (
            NAME_MAPPING,
            columns_of,
            highest_id,
            levels_of,
            schema_of,
        )

        levels = levels_of(state, hides_batch_id=self._hides_batch_id(state, table))
        columns, number, used = columns_of(state, levels), 0, 0
        old, mapping = None, None
        if table is not None:
            number, old = _schema_number(table), table.metadata.schema()
            mapping = table.metadata.properties.get(NAME_MAPPING)
            used = max(table.metadata.last_column_id, highest_id(mapping))
        schema = schema_of(
            columns,
            state.lineage,
            old,
            shown=number,
            used=used,
            ids=state.layout.field_ids,
            mapping=mapping,
        )
        plan = _Plan(state=state, table=table, schema=schema, levels=levels)
        if table is not None and table.metadata.snapshots:
            self._check_partitions(plan)
            self._check_ids(plan)
        return plan

    def _hides_batch_id(self, state: State, table: IcebergTable | None) -> bool:
        """Return whether the table leaves `batch_id` out.

        Raises:
            InvalidInputError: It is there, or left out, in spite of what was asked for.
        """
        wanted = self._hide_batch_id
        if wanted is None and HIDE_BATCH_ID in state.descriptor.properties:
            wanted = is_on(state.descriptor.properties, HIDE_BATCH_ID)
        if table is None or not table.metadata.snapshots:
            return bool(wanted)
        is_hidden = BATCH_ID not in {part.name for part in table.metadata.spec().fields}
        if wanted not in (None, is_hidden):
            raise InvalidInputError(
                f"Table {self._home.table!r} was published {'without' if is_hidden else 'with'} the "
                f"column {BATCH_ID!r}, which cannot be changed in place.",
                hint="Unpublish it and publish it again; in between readers do not find it.",
            )
        return is_hidden

    def _with_files(self, plan: _Plan, known: str, *, is_full: bool) -> _Plan:
        """Return a plan with the files to add and to remove.

        Args:
            plan: The plan so far.
            known: Id of the snapshot in the note; empty if there is none.
            is_full: Compare all files.
        """
        from lakebed.tables.iceberg import manifests
        from lakebed.tables.iceberg.iceberg_schema import COMMIT, CREATED, VERSION, number_in

        state = plan.state
        current = None if plan.table is None else plan.table.metadata.current_snapshot()
        if plan.table is None or current is None:
            return replace(plan, added=state.labels)
        foreign = self._foreign(plan.table.metadata, current, known)
        if foreign and not is_full:
            raise self._written_by_others(foreign)
        recorded = current.summary.additional_properties if current.summary else {}
        shown = None if foreign else (number_in(recorded, VERSION, -1), recorded.get(COMMIT, ""))
        plan = replace(plan, shown=shown, foreign=foreign)
        since = None
        if shown is not None and not is_full and known:
            since = find_since(self._store, state, shown[0], recorded.get(CREATED, ""), shown[1])
        try:
            if since is not None:
                manifests.live_manifests(current, self._home.io)  # fails if it cannot be read
                return self._with_changes(plan, since)
            if self._is_rewritten:
                return replace(plan, added=state.labels, is_whole=True)
            have = manifests.live_files(current, self._home.io)
            has_deletes = manifests.has_deletes(current, self._home.io)
        except (CorruptMetadataError, ObjectNotFoundError) as exc:
            damaged = (*plan.damaged, exc.message)
            return replace(plan, added=state.labels, is_whole=True, damaged=damaged)
        wanted = {self._location(state, label): label for label in state.labels}
        added = tuple(label for location, label in wanted.items() if location not in have)
        removed = {location: values for location, values in have.items() if location not in wanted}
        return replace(
            plan,
            added=added,
            removed=removed,
            operation=operation_of(added, tuple(removed), set()),
            has_deletes=has_deletes,
            is_compared=True,
        )

    def _with_changes(self, plan: _Plan, since: Since) -> _Plan:
        """Return a plan with the files that commits have added and removed."""
        state = plan.state
        added, labels = since.labels
        removed = {self._location(state, label): self._values(plan, label) for label in labels}
        operations = {entry.operation for entry in since.entries}
        operation = operation_of(added, labels, operations)
        number = snapshot_of(since.entries[-1].run) if since.entries else None
        return replace(plan, added=added, removed=removed, operation=operation, snapshot_id=number)

    def _with_properties(self, plan: _Plan) -> _Plan:
        """Return a plan with all other differences; the table must map every column of every file."""
        from lakebed.tables.iceberg.iceberg_schema import NAME_MAPPING, name_mapping_of

        state, table = plan.state, plan.table
        is_known = table is not None and _schema_number(table) == state.lineage.number
        dropped = (
            *(() if is_known else dropped_fields(self._store, state)),
            *unknown_fields(self._store, state, plan.added),
        )
        mapping = None if table is None else table.metadata.properties.get(NAME_MAPPING)
        properties = self._properties(state)
        names = name_mapping_of(plan.schema, plan.renamed, dropped, mapping)
        properties[NAME_MAPPING] = names.model_dump_json()
        changes = []
        if table is not None:
            have = table.metadata.properties
            if table.metadata.schema().as_struct() != plan.schema.as_struct():
                changes.append("columns of the table")
            if any(have.get(name) != value for name, value in properties.items()):
                changes.append("properties of the table")
        return replace(plan, dropped=dropped, properties=properties, schema_changes=tuple(changes))

    def _check_own(self, properties: dict[str, str]) -> None:
        """Check that the table shows this dataset, and adopt its spelling of the repository."""
        from lakebed.tables.iceberg.iceberg_schema import DATASET, ROOT

        own, recorded = f"{self._store.uri}/{self._dataset}", properties.get(DATASET)
        if recorded != own:
            if recorded is not None and self._home.folder is not None:
                raise InvalidInputError(
                    f"The Iceberg table beside {own!r} was published when the dataset was at "
                    f"{recorded!r}, and still names the files there.",
                    hint="Unpublish it and publish it again.",
                )
            raise _not_ours(self._home)
        root = properties.get(ROOT, self._root)
        if self._is_root_given and root != self._root:
            raise InvalidInputError(
                f"Table {self._home.table!r} names its files in {root!r}, not in {self._root!r}.",
                hint="Unpublish it and publish it again; in between readers do not find it.",
            )
        self._root = root

    def _check_partitions(self, plan: _Plan) -> None:
        """Check that the table has the partitions of the dataset; they cannot be changed in place."""
        assert plan.table is not None
        metadata, names = plan.table.metadata, plan.levels
        spec = metadata.spec()
        old = metadata.schema()
        same = [part.name for part in spec.fields] == list(names) and all(
            plan.schema.find_field(part.name).field_id == part.source_id
            and plan.schema.find_type(part.name) == old.find_type(part.name)
            for part in spec.fields
        )
        if not same:
            raise InvalidInputError(
                f"The partitions of {self._home.table!r} cannot be changed in place.",
                hint="Unpublish it and publish it again; in between readers do not find it.",
            )

    def _check_ids(self, plan: _Plan) -> None:
        """Check that a table of an earlier release gives columns the ids that new files have.

        Readers find columns of new files by these ids.
        """
        from lakebed.tables.iceberg.iceberg_schema import FIELD_IDS, paths_of

        assert plan.table is not None
        metadata = plan.table.metadata
        if plan.state.layout.field_ids is None or FIELD_IDS in metadata.properties:
            return
        # Before there were ids in files, tables had the names of columns in files, too.
        wanted = paths_of(plan.schema, plan.renamed)
        paths = {number: path for path, number in wanted.items()}
        present = paths_of(metadata.schema())
        differs = any(wanted.get(path, number) != number for path, number in present.items())
        is_reused = any(
            paths.get(number, path) != path
            for schema in metadata.schemas
            for path, number in paths_of(schema).items()
        )
        if differs or is_reused:
            raise InvalidInputError(
                f"Table {self._home.table!r} gives its columns other ids than new data files have.",
                hint="Unpublish it and publish it again; in between readers do not find it.",
            )

    def _foreign(self, metadata: Any, current: Snapshot, known: str) -> tuple[str, ...]:
        """Return the snapshots of other writers since the one in the note, newest first."""
        from lakebed.tables.iceberg.iceberg_schema import VERSION

        foreign = []
        snapshot: Snapshot | None = current
        while snapshot is not None and str(snapshot.snapshot_id) != known:
            summary = snapshot.summary
            recorded = {} if summary is None else summary.additional_properties
            if VERSION not in recorded:
                operation = "no summary" if summary is None else summary.operation.value
                foreign.append(f"snapshot {snapshot.snapshot_id}: {operation}")
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else metadata.snapshot_by_id(parent)
        return tuple(foreign)

    def _written_by_others(self, foreign: Sequence[str]) -> InvalidInputError:
        return InvalidInputError(
            f"Others have written to the Iceberg table {self._home.table!r}: "
            f"{'; '.join(foreign[:3])}. These changes are not in the dataset; nothing was "
            "published.",
            hint="If you want their rows, append them to the dataset first. Then publish with "
            "repair, which reverts their changes to the table and keeps their files.",
        )

    def _prove(self, plan: _Plan) -> None:
        """Prove that readers of the table read the new files as Lakebed does."""
        from lakebed.tables.iceberg.iceberg_schema import paths_of

        state, number = plan.state, plan.state.lineage.number
        is_known = plan.table is not None and _schema_number(plan.table) == number
        pieces = [plan.added] if is_known else state.live.pieces()
        check_compatible(
            self._store,
            state,
            chain.from_iterable(pieces),
            reader="Iceberg",
            widens=widens,
            ids=paths_of(plan.schema, plan.renamed),
        )

    def _properties(self, state: State) -> dict[str, str]:
        from lakebed.tables.iceberg.iceberg_schema import CREATED, DATASET, FIELD_IDS, ROOT, SCHEMA

        known = _PROPERTIES_IN_A_CATALOG if self._home.folder is None else _PROPERTIES
        if state.layout.field_ids is not None:
            known = known | {FIELD_IDS: "files"}
        return known | {
            DATASET: f"{self._store.uri}/{self._dataset}",
            CREATED: state.created_at,
            SCHEMA: str(state.lineage.number),
            ROOT: self._root,
        }

    def _location(self, state: State, label: str) -> str:
        return f"{self._root}/{state.layout.key(label)}"

    def _values(self, plan: _Plan, label: str) -> tuple[Any, ...]:
        from lakebed.tables.iceberg.iceberg_schema import internal

        values = plan.state.layout.directory_values(split_label(label)[0])
        return tuple(internal(values[name]) for name in plan.levels)

    def is_to_change(self, plan: _Plan) -> bool:
        return bool(plan.damaged) or self._needs_snapshot(plan)

    def _needs_snapshot(self, plan: _Plan) -> bool:
        return (
            plan.is_whole
            or plan.shown != (plan.state.version, plan.state.commit_id)
            or bool(plan.added or plan.removed or plan.schema_changes or plan.foreign)
            or plan.has_deletes
        )

    def apply(self, plan: _Plan, note: Note) -> bool:
        from lakebed.tables.iceberg.snapshots import commit

        check_deadline(note, self.title)
        files = dict.fromkeys((*plan.added, *plan.removed), 0)
        tally = Tally(self._on_progress, f"publish to {self.title}", files)
        if plan.table is not None and not self._needs_snapshot(plan):
            self._home.lead(plan.table)
            note.place = f"{plan.table.place} {plan.table.metadata.current_snapshot_id}"
            return True
        try:
            committed = commit(
                self._home,
                plan.table,
                schema=plan.schema,
                properties=plan.properties,
                dropped=plan.dropped,
                renamed=plan.renamed,
                files=lambda labels: shown_files(self._store, plan.state, labels),
                added=plan.added,
                location=lambda label: self._location(plan.state, label),
                state=plan.state,
                removed=plan.removed,
                operation=plan.operation,
                snapshot_id=plan.snapshot_id,
                summary=self._summary(plan.state),
                levels=plan.levels,
                is_schema_new=bool(plan.schema_changes),
                horizon=plan.state.horizon,
                after=plan.after,
                is_whole=plan.is_whole,
            )
        except (CorruptMetadataError, ObjectNotFoundError):
            if self._is_rewritten:
                raise
            # The next plan compares all files. If this one did, the manifests differ from their
            # list.
            self._is_rewritten = plan.is_compared
            self._is_believed = False
            return False
        if committed is None:
            return False
        note.place = f"{committed.place} {committed.metadata.current_snapshot_id}"
        tally.finish()
        return True

    def _summary(self, state: State) -> dict[str, str]:
        from lakebed.tables.iceberg.iceberg_schema import COMMIT, CREATED, VERSION

        return {
            VERSION: str(state.version),
            COMMIT: state.commit_id,
            CREATED: state.created_at,
        }

    def report(self, plan: _Plan, *, is_applied: bool) -> Publication:
        return Publication(
            kind="iceberg",
            table=self._home.table,
            version=plan.state.version,
            table_version=self._number(plan) if is_applied and self._needs_snapshot(plan) else None,
            is_applied=is_applied,
            created=plan.table is None and not plan.damaged,
            schema_changes=plan.schema_changes,
            added_count=len(plan.added),
            removed_count=len(plan.removed),
            unchanged_count=plan.state.live.count - len(plan.added),
            foreign=plan.foreign,
            damaged=plan.damaged,
        )

    def _number(self, plan: _Plan) -> int:
        """Return the sequence number of the snapshot to make."""
        from lakebed.tables.iceberg.snapshots import last_sequence_number

        return 1 if plan.table is None else last_sequence_number(plan.table.metadata) + 1


def _schema_number(table: IcebergTable) -> int:
    """Return the number of the dataset's schema that a table last showed."""
    from lakebed.tables.iceberg.iceberg_schema import SCHEMA, number_in

    return number_in(table.metadata.properties, SCHEMA, 0)


def operation_of(added: Sequence[str], removed: Sequence[str], operations: set[str]) -> str:
    """Return the operation of a snapshot.

    Args:
        added: The files that it adds.
        removed: The files that it removes.
        operations: Operations of the commits that it shows; empty if they are not known.
    """
    if operations == {"compact"}:
        return "replace"
    if removed:
        return "overwrite" if added else "delete"
    return "append"
