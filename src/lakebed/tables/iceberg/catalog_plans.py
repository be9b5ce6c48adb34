"""Plans of scans for clients of the catalog: the data files that Lakebed chooses by its indices.

A plan is of the snapshot that the client asks for. The files are a superset of those that the
condition needs; each file has the condition as its residual, unless all of its rows meet it.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from lakebed.arrow.footers import read_footers, sound_footers
from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import InvalidInputError, VersionNotFoundError
from lakebed.model.field_ids import widens
from lakebed.model.keys import BATCH_ID
from lakebed.model.predicate import TRUE
from lakebed.model.schema import Type
from lakebed.model.values import Scalar
from lakebed.plan.plan import DataFile
from lakebed.plan.search import plan
from lakebed.state.reader import Head, read_own_head
from lakebed.state.snapshot import Snapshot, Source
from lakebed.state.state import State
from lakebed.tables.compatibility import check_compatible
from lakebed.tables.iceberg.catalog_tables import CatalogTables, ServedTable
from lakebed.tables.iceberg.iceberg_schema import (
    columns_of,
    internal,
    levels_of,
    paths_of,
    schema_of,
)
from lakebed.tables.iceberg.pushed_filters import Pushed, columns_in, translate
from lakebed.tables.shown_facts import sizes_of

FILES_A_PAGE = 50_000
MAX_BODY_BYTES = 1 << 20  # of a request for a plan
MAX_TASK_BYTES = 2 * MAX_BODY_BYTES  # of one to continue it: the task holds the condition
PAGE_BYTES = 32 << 20  # of residuals in a page: each file repeats the condition
FEWEST_A_PAGE = 100  # files of a page
_MOST_HELD = 32  # states of older versions in memory
MOST_FILES_HELD = 1_000_000  # of all these states, whose lists of files are in memory
_MOST_FOOTERS = 1000  # that one request reads

_TRUE = msgspec.Raw(b"true")
_NONE = msgspec.Raw(b"null")


class PlanRequest(msgspec.Struct, rename="kebab"):
    """A request for a plan.

    Attributes:
        snapshot_id: The snapshot to read; None for the current one.
        select: Columns to read; None for all.
        filter: The condition; null for none.
        case_sensitive: False to compare names of columns without regard to case.
        start_snapshot_id: Begin of an incremental scan, which is not offered.
        end_snapshot_id: End of an incremental scan.
    """

    snapshot_id: int | None = None
    select: list[str] | None = None
    filter: msgspec.Raw = _NONE
    case_sensitive: bool = True
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None


class _TaskRequest(msgspec.Struct, rename="kebab"):
    plan_task: str


class _Token(msgspec.Struct, array_like=True):
    """The rest of a plan: all that is needed to continue it, in any process.

    Attributes:
        snapshot: Id of the snapshot.
        version: Version of the dataset.
        commit_id: Commit of the version.
        offset: Position of the next file.
        condition: The condition; null for none.
        ignores_case: True if names of columns are compared without regard to case.
    """

    snapshot: int
    version: int
    commit_id: str
    offset: int
    condition: msgspec.Raw = _NONE
    ignores_case: bool = False


class UnsupportedScanError(InvalidInputError):
    """A scan that the catalog does not plan."""


class UnknownTaskError(InvalidInputError):
    """A task of a plan that does not exist, or no longer."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The files of a plan, and the condition for each of those that are filtered."""

    state: State
    files: Sequence[DataFile]
    is_exact: bool
    residual: msgspec.Raw


class CatalogPlans:
    """Plans scans of the tables of one repository.

    Attributes:
        states: The older versions that were asked for last, held in memory.
    """

    def __init__(self, tables: CatalogTables) -> None:
        """Plan scans of the tables that `tables` serves."""
        self._tables = tables
        self._store = tables.store
        self.states: OrderedDict[tuple[str, str, int, str], State] = OrderedDict()
        self._continued: tuple[tuple[object, ...], _Chosen] | None = None
        self._with_levels: OrderedDict[tuple[str, ...], bool] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, name: str, body: bytes, *, is_pyiceberg: bool = False) -> bytes:
        """Return the answer to a request for a plan.

        Args:
            name: Name of the dataset.
            body: The request.
            is_pyiceberg: True if the client is pyiceberg, whose releases up to 0.12 take the values
                of partitions as they come, and no nulls: then dates are numbers of days, and the
                specs are those of `ServedTable.without_nulls`.

        Raises:
            InvalidInputError: The request is not valid, or there is no such snapshot; as an
                `UnsupportedScanError` if the scan is incremental.
            LakebedError: The dataset cannot be read.

        Cost:
            As `View.plan`; of an older version also the history, once.
        """
        request = _decoded(body, PlanRequest)
        if request.start_snapshot_id is not None or request.end_snapshot_id is not None:
            raise UnsupportedScanError(
                "Incremental scans are not planned by the server.",
                hint="Let the client plan them: set scan-planning-mode to client.",
            )
        served = self._tables.showing(name, request.snapshot_id)
        snapshot = served.current if request.snapshot_id is None else request.snapshot_id
        if snapshot is None:
            return _answer((), is_first=True)
        version, commit_id = served.versions[snapshot]
        token = _Token(
            snapshot=snapshot,
            version=version,
            commit_id=commit_id,
            offset=0,
            condition=request.filter,
            ignores_case=not request.case_sensitive,
        )
        chosen = self._chosen(served, token)
        if is_pyiceberg and request.select is not None:
            self._check_levels(served, request.select, request.filter, chosen)
        return self._page(served, chosen, token, is_pyiceberg=is_pyiceberg)

    def tasks(self, name: str, body: bytes, *, is_pyiceberg: bool = False) -> bytes:
        """Return the next files of a plan.

        Args:
            name: Name of the dataset.
            body: The request, with the task that an answer has named.
            is_pyiceberg: As for `plan`.

        Raises:
            InvalidInputError: There is no such task; as an `UnknownTaskError`.
            LakebedError: As for `plan`.
        """
        token = _token_of(_decoded(body, _TaskRequest).plan_task)
        try:
            served = self._tables.showing(name, token.snapshot)
        except InvalidInputError as exc:
            raise UnknownTaskError(exc.message, hint="Plan the scan again.") from exc
        if served.versions[token.snapshot] != (token.version, token.commit_id):
            raise UnknownTaskError(
                "The task is of another table of this name.", hint="Plan the scan again."
            )
        chosen = self._chosen(served, token)
        return self._page(served, chosen, token, is_pyiceberg=is_pyiceberg)

    def _chosen(self, served: ServedTable, token: _Token) -> _Chosen:
        """Return the files of a plan, again if it was interrupted."""
        condition = bytes(token.condition)
        key = (served.name, token.version, token.commit_id, condition, token.ignores_case)
        continued = self._continued
        if token.offset and continued is not None and continued[0] == key:
            return continued[1]
        head = read_own_head(self._store, served.name)
        state = self._state(served, head, token.version, token.commit_id)
        pushed = Pushed(TRUE, TRUE)
        if condition != _NONE:
            document = _decoded(condition, Any)
            types = _types(state, head.state)
            pushed = translate(document, types, ignores_case=token.ignores_case)
        found = plan(state, pushed.may, requests=0, store=self._store)
        residual = _TRUE if condition == _NONE else token.condition
        chosen = _Chosen(state, found.files, pushed.is_exact, residual)
        self._continued = (key, chosen) if len(found.files) > _page_size(residual) else None
        return chosen

    def _page(
        self, served: ServedTable, chosen: _Chosen, token: _Token, *, is_pyiceberg: bool
    ) -> bytes:
        size = _page_size(chosen.residual)
        end = token.offset + size
        files = chosen.files[token.offset : end]
        following = None
        if end < len(chosen.files):
            following = _text_of(msgspec.structs.replace(token, offset=end))
        row_count, size_bytes = sizes_of(self._store, chosen.state, [file.label for file in files])
        tasks = _tasks(served, chosen, files, row_count, size_bytes, is_pyiceberg=is_pyiceberg)
        return _answer(tasks, is_first=not token.offset, following=following)

    def _state(self, served: ServedTable, head: Head, version: int, commit_id: str) -> State:
        """Return the state of a version, of which Iceberg reads each file as Lakebed does."""
        state = head.state
        if (state.version, state.commit_id) == (version, commit_id):
            return state
        key = served.name, state.created_at, version, commit_id
        with self._lock:
            held = self.states.get(key)
        if held is not None and version >= state.horizon:
            return held
        source = Source(self._store, served.name, Snapshot(state, head.requests, is_head=True))
        older = source.at_version(version).load().state
        if older.commit_id != commit_id:
            raise VersionNotFoundError(
                f"Version {version} of {served.name!r} is another one than the table shows.",
                hint="Load the table again.",
            )
        if served.is_virtual:
            self._prove(older, _levels_of(served, older))
        with self._lock:
            self.states[key] = older
            while len(self.states) > 1 and self._holds_too_much():
                self.states.popitem(last=False)
        return older

    def _holds_too_much(self) -> bool:
        file_count = sum(state.live.count for state in self.states.values())
        return len(self.states) > _MOST_HELD or file_count > MOST_FILES_HELD

    def _prove(self, state: State, levels: tuple[str, ...]) -> None:
        """Prove what a publication has proven for other tables."""
        columns, ids = columns_of(state, levels), state.layout.field_ids
        schema = schema_of(columns, state.lineage, None, shown=0, used=0, ids=ids)
        held = paths_of(schema, state.descriptor.schema.renamed)
        check_compatible(
            self._store, state, state.labels, reader="Iceberg", widens=widens, ids=held
        )

    def _check_levels(
        self, served: ServedTable, select: Sequence[str], condition: bytes, chosen: _Chosen
    ) -> None:
        """Refuse a scan for which pyiceberg would find no rows, without an error.

        pyiceberg 0.12 takes the values of partitions from the plan only for selected columns.

        Raises:
            InvalidInputError: The condition names a level of directories that is not selected, and
                that some file lacks.
        """
        named = {name.casefold() for name in columns_in(_decoded(condition, Any))}
        selected = {name.casefold() for name in select}
        missing = [
            level
            for level in served.levels
            if level.casefold() in named and level.casefold() not in selected
        ]
        if missing and not self._hold_levels(chosen, missing):
            raise InvalidInputError(
                f"pyiceberg would find no rows: the condition names the partition field "
                f"{missing[0]!r}, which is not selected, and which data files lack.",
                hint=f"Select {missing[0]!r} too; or set the property publish.iceberg, and overwrite "
                "the partitions with their own rows.",
            )

    def _hold_levels(self, chosen: _Chosen, levels: Sequence[str]) -> bool:
        """Return whether all files hold some levels of directories; False if that is not known."""
        keys = [file.key for file in chosen.files]
        unknown = [key for key in keys if (key, *levels) not in self._with_levels]
        if len(unknown) > _MOST_FOOTERS:
            return False
        for key, footer in sound_footers(read_footers(self._store, unknown)).items():
            held = set(footer.schema.to_arrow_schema().names)
            self._with_levels[key, *levels] = held.issuperset(levels)
        is_held = all(self._with_levels.get((key, *levels), False) for key in keys)
        while len(self._with_levels) > 100 * _MOST_FOOTERS:
            self._with_levels.popitem(last=False)
        return is_held


def _types(state: State, newest: State) -> Mapping[str, Type]:
    """Return the columns that a condition may name.

    Clients resolve names by the schema of the table or by that of the snapshot. So a column of an
    older version counts only if it is the same one in both.
    """
    types, now = state.layout.predicate_types, newest.layout
    if now.descriptor.schema == state.descriptor.schema and now.lineage == state.lineage:
        return types
    known, own, ids = now.predicate_types, state.layout.field_ids, now.field_ids
    if own is None or ids is None:
        return {}
    return {
        name: kind
        for name, kind in types.items()
        if known.get(name) == kind and own.get(name) == ids.get(name)
    }


def _levels_of(served: ServedTable, state: State) -> tuple[str, ...]:
    """Return the levels of a version that are fields of the partition spec, in its order.

    A level may have had another name, and directories may have had their levels in another order.
    """
    levels = levels_of(state, hides_batch_id=BATCH_ID not in served.levels)
    ids = state.layout.field_ids
    if ids is not None:
        by_id = {ids[level]: level for level in levels}
        found = tuple(by_id[number] for number in served.level_ids if number in by_id)
    else:
        found = served.levels if set(levels) == set(served.levels) else levels
    if not len(found) == len(levels) == len(served.levels):
        raise InvalidInputError(
            f"Version {state.version} of {state.name!r} has other partitions than the table.",
            hint="Read it with Lakebed.",
        )
    return found


def _page_size(residual: bytes) -> int:
    return max(FEWEST_A_PAGE, min(FILES_A_PAGE, PAGE_BYTES // max(1, len(bytes(residual)))))


def _tasks(
    served: ServedTable,
    chosen: _Chosen,
    files: Sequence[DataFile],
    row_count: Sequence[int],
    size_bytes: Sequence[int],
    *,
    is_pyiceberg: bool,
) -> list[dict[str, Any]]:
    levels = _levels_of(served, chosen.state)
    # Files of one directory share their values, and so the mapping.
    partitions: dict[int, tuple[int, msgspec.Raw]] = {}
    tasks = []
    for file, rows, size in zip(files, row_count, size_bytes, strict=True):
        partition = partitions.get(id(file.partition))
        if partition is None:
            values = [file.partition[level] for level in levels]
            partition = _partition(served, values, is_pyiceberg=is_pyiceberg)
            partitions[id(file.partition)] = partition
        is_whole = chosen.is_exact and not file.is_filtered
        tasks.append(
            {
                "data-file": {
                    "spec-id": partition[0],
                    "content": "data",
                    "file-path": f"{served.root}/{file.key}",
                    "file-format": "parquet",
                    "partition": partition[1],
                    "file-size-in-bytes": size,
                    "record-count": rows,
                },
                "residual-filter": _TRUE if is_whole else chosen.residual,
            }
        )
    return tasks


def _partition(
    served: ServedTable, values: Sequence[Scalar], *, is_pyiceberg: bool
) -> tuple[int, msgspec.Raw]:
    """Return the id of a partition spec, and the values of its fields."""
    spec_id, shown = served.spec_id, list(values)
    if is_pyiceberg:
        nulls = [level for level, one in zip(served.levels, values, strict=True) if one is None]
        spec_id = served.spec_without(nulls)
        shown = [internal(one) for one in values if one is not None]
    return spec_id, msgspec.Raw(msgspec.json.encode(shown))


def _answer(
    tasks: Sequence[Mapping[str, Any]], *, is_first: bool, following: str | None = None
) -> bytes:
    document: dict[str, Any] = {"status": "completed"} if is_first else {}
    document["file-scan-tasks"] = tasks
    if following is not None:
        document["plan-tasks"] = [following]
    return msgspec.json.encode(document)


def _decoded(body: bytes, kind: Any) -> Any:
    try:
        return from_json(body, kind)
    except UNREADABLE as exc:
        raise InvalidInputError(
            f"The request cannot be read: {exc}.", hint="Send the JSON of Iceberg's REST protocol."
        ) from exc


def _text_of(token: _Token) -> str:
    packed = zlib.compress(msgspec.json.encode(token), 1)
    return base64.urlsafe_b64encode(packed).decode("ascii")


def _token_of(text: str) -> _Token:
    """Return the token of a text; nothing in it is trusted, it is as a request."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(
            base64.b64decode(text, altchars=b"-_", validate=True), MAX_BODY_BYTES + 4096
        )
        token: _Token = from_json(data, _Token)
    except (ValueError, zlib.error, msgspec.MsgspecError, RecursionError) as exc:
        raise UnknownTaskError("There is no such task.", hint="Plan the scan again.") from exc
    if token.offset < 0:
        raise UnknownTaskError("There is no such task.", hint="Plan the scan again.")
    return token
