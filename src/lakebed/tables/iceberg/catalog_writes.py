"""Commits of clients of the catalog: each request becomes one commit of the dataset.

The rows of the files that a client has uploaded are written anew, so that partitions, indices,
checks and caps are those of any other write. The client's snapshot id is the name of the run: a
request that is repeated is found by it, and changes nothing. The files of the client stay where they
are until a cleanup deletes them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow.conform import Conformer
from lakebed.common.shown import shown
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
)
from lakebed.model.allowed import TOKENS
from lakebed.model.layout import Folder
from lakebed.model.predicate import TRUE
from lakebed.state import runs
from lakebed.state.committing import Committed
from lakebed.state.conflicts import Read
from lakebed.state.reader import read_own_head
from lakebed.state.scope import RunFiles, Several, TheseFiles, ThesePartitions, Unchanged
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.root import plain_location
from lakebed.tables.iceberg.catalog_tables import CatalogTables, ServedTable, head_of
from lakebed.tables.iceberg.commit_requests import (
    LOAD_AGAIN,
    AllowedWrites,
    AskedCommit,
    UnsupportedCommitError,
    check_allowed,
    parse,
)
from lakebed.tables.iceberg.new_rows import are_new, replaces_partitions
from lakebed.tables.iceberg.uploaded_files import ClientFiles, SnapshotChanges, UploadedFile
from lakebed.work.copy_on_write import append_rows, take_back

_log = logging.getLogger(__name__)

_LOADS = 5  # of a table that other writers change meanwhile


class CatalogWrites:
    """Makes the commits that clients ask for."""

    def __init__(self, tables: CatalogTables, allowed: AllowedWrites) -> None:
        """Allow some writes to the tables that `tables` serves.

        Raises:
            MissingDependencyError: fastavro is not installed.
        """
        try:
            import fastavro  # noqa: F401 - now, rather than at the first request
        except ImportError as exc:
            raise MissingDependencyError.for_extra(
                "fastavro", "avro", "Writing by an Iceberg catalog"
            ) from exc
        self._tables = tables
        self._store = tables.store
        self._allowed: AllowedWrites = allowed
        self._locks = [threading.Lock() for _ in range(16)]  # each for some of the tables

    def commit(self, name: str, body: bytes) -> ServedTable:
        """Commit what a request asks for, unless that has been done.

        Args:
            name: Name of the dataset.
            body: The request.

        Returns:
            The table after the commit.

        Raises:
            DatasetNotFoundError: There is no such dataset.
            UnsupportedCommitError: The catalog does not make such changes.
            InvalidInputError: The request, or a file of it, cannot be used; or the rows do not fit.
            CommitConflictError: The table has changed since the client loaded it.
            CommitUnknownError: The commit may have been made; the same request finds out.
            StorageError: The store failed; nothing became visible.

        Cost:
            That of `CatalogTables.load` twice; the manifests that the request adds and leaves out,
            and the rows, read and written. If the table shows another snapshot than the one that
            the request follows, the list of runs.
        """
        asked = parse(body)
        # In turns: of requests at once all but one would write their rows in vain.
        with self._locks[hash(name) % len(self._locks)]:
            table, state = self._current(name)
            is_after = asked.parent_id == table.current and _shown_version(table) == state.version
            # After its own commit another snapshot would be current.
            if not is_after and self._is_made(state, asked):
                return self._after(name, asked)
            self._check(table, state, asked)
            files = _files(table)
            changes = files.changes(asked.manifest_list, table.manifest_list)
            check_allowed(self._allowed, asked, len(changes.removed))
            try:
                made = self._make(table, state, asked, files, changes)
            except CommitConflictError:
                # A repetition of the request may have been faster, at another server.
                if not self._is_made(read_own_head(self._store, name).state, asked):
                    raise
            else:
                _log.info(
                    "committed for a client dataset=%s version=%d run=%s",
                    name,
                    made.entry.version,
                    asked.run,
                )
            return self._after(name, asked)

    def _current(self, name: str) -> tuple[ServedTable, State]:
        """Return a table, and the state of the dataset that it shows."""
        for _ in range(_LOADS):
            table = self._tables.load(name)
            state = read_own_head(self._store, name).state
            if table.head == head_of(state):
                return table, state
        raise CommitConflictError(
            f"Others commit to {name!r} all the time.",
            hint=LOAD_AGAIN,
            expected=table.head[1],
            actual=state.version,
        )

    def _is_made(self, state: State, asked: AskedCommit) -> bool:
        """Return whether the commit was made before, as the answer of which was lost."""
        return asked.run in runs.read(self._store, state.lists).batches.values()

    def _after(self, name: str, asked: AskedCommit) -> ServedTable:
        try:
            return self._tables.load(name)
        except LakebedError as exc:
            raise CommitUnknownError(
                f"The rows are committed to {name!r} as run {asked.run!r}, but the table cannot be "
                f"shown: {exc.message}",
                hint="Do not write them again: load the table once the reason is gone.",
                commit_id=asked.run,
            ) from exc

    def _check(self, table: ServedTable, state: State, asked: AskedCommit) -> None:
        if table.unwritable is not None:
            why, hint = table.unwritable
            raise UnsupportedCommitError(
                f"Table {table.name!r} can only be read: {why}.", hint=hint
            )
        asked.check(table, state.version)
        version = _shown_version(table)
        if version != state.version:
            raise InvalidInputError(
                f"Table {table.name!r} shows version {version}, and not the current one, "
                f"{state.version}, whose checks have failed.",
                hint="Mend the rows by Lakebed first.",
            )

    def _make(
        self,
        table: ServedTable,
        state: State,
        asked: AskedCommit,
        files: ClientFiles,
        changes: SnapshotChanges,
    ) -> Committed:
        ids = {one["name"]: one["id"] for one in _present_schema(table)["fields"]}

        def rows() -> Iterator[pa.RecordBatch]:
            yield from _conformed(files.rows(changes.added, ids), state)

        replaced = self._labels(table, state, changes.removed)
        own = RunFiles(asked.run, replaces=False)
        operation = "overwrite" if replaced else "append"
        with Transaction.begin(
            self._store, table.name, operation, run=asked.run, base=state
        ) as transaction:
            if not replaced:
                append_rows(transaction, rows())
                return transaction.commit(Change(scope=own))
            if replaces_partitions(asked.summaries):
                append_rows(transaction, rows())
                scope = _whole_partitions(transaction, replaced)
                return transaction.commit(Change(scope=Several((own, scope))))
            added = _count(changes.added)
            is_new = partial(are_new, asked.summaries, added)
            taken = take_back(transaction, replaced, rows, added, is_new)
            # The client has read all that it might have changed: as SQL has it, no row may be new.
            unchanged = Unchanged(TRUE, state.layout.partition_level_types)
            return transaction.commit(
                Change(
                    scope=Several((own, TheseFiles.of(taken.removed))),
                    rewritten_row_count=taken.rewritten_row_count,
                ),
                reads=[Read(state=state, scope=unchanged)],
            )

    def _labels(
        self, table: ServedTable, state: State, locations: frozenset[str]
    ) -> frozenset[str]:
        """Return the labels of live data files at some locations.

        Raises:
            CommitConflictError: One of them is not live.
        """
        if not locations:
            return frozenset()
        naming, root = state.layout.naming, f"{plain_location(table.root)}/"
        keys = frozenset(plain_location(one).removeprefix(root) for one in locations)
        labels = frozenset(
            key.removeprefix(naming.prefix).removesuffix(naming.suffix) for key in keys
        )
        live = state.live.holding(labels)
        if live != labels:  # such as files that were adopted, which keep their keys
            live = frozenset(label for label in state.labels if naming.key(label) in keys)
        if len(live) != len(locations):
            raise CommitConflictError(
                f"The request removes {len(locations) - len(live):,} data files that are not in "
                f"{table.name!r}.",
                hint=LOAD_AGAIN,
                expected=state.version,
                actual=state.version,
            )
        return live


def _whole_partitions(transaction: Transaction, replaced: frozenset[str]) -> ThesePartitions:
    """Return the partitions that the new rows of a transaction are in.

    To the client the table has no partitions, so it has removed the files of others, too: they stay.

    Raises:
        InvalidInputError: There is no row; or the client has not removed all files of a partition.
    """
    base, touched = transaction.base, transaction.written.partitions
    if not touched:
        raise InvalidInputError(
            f"The request replaces partitions of {base.name!r} and has no row that may be written, "
            "so the partitions are unknown.",
            hint="Delete the rows of the partitions instead.",
        )
    kept = [label for label in base.live.of(touched) if label not in replaced]
    if kept:
        raise UnsupportedCommitError(
            f"The request replaces partitions of {base.name!r}, and leaves {len(kept):,} of their "
            "data files.",
            hint="Overwrite by a condition instead, or by Lakebed's overwrite.",
        )
    return ThesePartitions(touched)


def _shown_version(table: ServedTable) -> int:
    return -1 if table.current is None else table.versions[table.current][0]


def _files(table: ServedTable) -> ClientFiles:
    assert table.home is not None  # a virtual table is not writable
    root = str(table.metadata["location"]).removesuffix(f"/{Folder.ICEBERG.of(table.name)}")
    return ClientFiles(table.home, table.name, root)


def _count(uploads: Sequence[UploadedFile]) -> int:
    return sum(upload.row_count for upload in uploads)


def _present_schema(table: ServedTable) -> Any:
    current = table.metadata["current-schema-id"]
    return next(one for one in table.metadata["schemas"] if one["schema-id"] == current)


def _conformed(batches: Iterator[pa.RecordBatch], state: State) -> Iterator[pa.RecordBatch]:
    """Yield rows with the fields of the schema.

    Columns of partition fields that are computed from others are checked, and left out.

    Raises:
        InvalidInputError: Such a column has other values than Lakebed computes.
        LakebedError: The rows do not fit.
    """
    descriptor = state.descriptor
    schema, strategy = descriptor.schema, descriptor.partition_by
    derived = [function.name for function in strategy if function.name not in schema]
    known: tuple[pa.Schema, Conformer] | None = None
    for batch in batches:
        given = {name: batch.column(name) for name in derived if name in batch.schema.names}
        plain = batch.drop_columns(list(given)) if given else batch
        if known is None or known[0] != plain.schema:
            known = plain.schema, Conformer(plain.schema, descriptor)
        rows = known[1].conform(plain)
        if given and rows.num_rows:
            arrays = strategy.arrays(rows, schema)
            own = dict(zip([one.name for one in strategy], arrays, strict=True))
            for name, column in given.items():
                _check_derived(name, column, own[name])
        yield rows


def _check_derived(name: str, given: pa.Array, own: pa.Array) -> None:
    try:
        value = given.cast(own.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        raise InvalidInputError(
            f"Column {name!r} of the data has type {given.type}, and not {own.type}.",
            hint="Leave the column out, or leave it null: Lakebed computes it.",
        ) from exc
    differs = pc.and_(
        pc.is_valid(value), pc.fill_null(pc.not_equal(value, own), pa.scalar(value=True))
    )
    if pa.types.is_string(own.type):
        # Rows of values beyond a cap, or that were not allowed when they were written.
        differs = pc.and_(differs, pc.invert(pc.is_in(value, pa.array(sorted(TOKENS)))))
    place = pc.index(differs, True).as_py()
    if place >= 0:
        raise InvalidInputError(
            f"Column {name!r} of the data is {shown(value[place].as_py())} where Lakebed computes "
            f"{shown(own[place].as_py())} from other columns.",
            hint="Leave the column out, or leave it null: Lakebed computes it.",
        )
