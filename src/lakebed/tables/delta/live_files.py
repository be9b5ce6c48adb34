"""The live files of Delta tables written by other tools, of the newest version and of older ones."""

from __future__ import annotations

import datetime as dt
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CorruptMetadataError, InvalidInputError, LakebedError
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.schema import Schema
from lakebed.model.values import Scalar, parse_value
from lakebed.work.foreign import ForeignFile, ForeignVersion, cannot_adopt

if TYPE_CHECKING:
    from deltalake import DeltaTable

_COMMIT = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\..*")
_MAPPING = "delta.columnMapping.mode"


def files_of(table: DeltaTable, name: str, title: str) -> Iterator[tuple[str, ForeignFile]]:
    """Yield the live files of a version of a table by key.

    Raises:
        InvalidInputError: A file lies outside of the table's directory.
    """
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions())
    wanted = [*("path", "size_bytes", "num_records"), *(["partition"] if columns else [])]
    held = [name for name in wanted if name in actions.column_names]
    for action in actions.select(held).to_pylist():
        values: Mapping[str, Any] = action.get("partition") or {}
        yield (
            key_of(action["path"], name, title),
            ForeignFile(
                size_bytes=action["size_bytes"],
                row_count=action.get("num_records"),
                values={column: values.get(column) for column in columns},
            ),
        )


def key_of(path: str, name: str, title: str) -> str:
    """Return the key of a file that a log names.

    Raises:
        InvalidInputError: The file lies outside of the table's directory.
    """
    decoded = urllib.parse.unquote(path)
    if ":" in path.partition("/")[0] or path.startswith("/") or ".." in decoded.split("/"):
        raise cannot_adopt(
            title,
            f"its file {decoded!r} lies outside of the table's directory",
            "Let its own tool write a deep clone, which holds all its files itself.",
        )
    return f"{name}/{decoded}"


class _Added(msgspec.Struct):
    """A file that a commit adds."""

    path: str
    size: int
    partition_values: dict[str, str | None] = msgspec.field(name="partitionValues")
    stats: str | None = None
    vector: object = msgspec.field(name="deletionVector", default=None)


class _Removed(msgspec.Struct):
    """A file that a commit removes."""

    path: str


class _Metadata(msgspec.Struct):
    """Columns of a table from a commit on."""

    schema: str = msgspec.field(name="schemaString")
    partition_columns: list[str] = msgspec.field(name="partitionColumns")
    configuration: dict[str, str] = {}


class _Info(msgspec.Struct):
    """Facts in the information of a commit."""

    operation: str = "commit"
    timestamp: int | None = None
    in_commit: int | None = msgspec.field(name="inCommitTimestamp", default=None)


class _Action(msgspec.Struct):
    """A line of a commit, as far as it is needed."""

    add: _Added | None = None
    remove: _Removed | None = None
    metadata: _Metadata | None = msgspec.field(name="metaData", default=None)
    info: _Info | None = msgspec.field(name="commitInfo", default=None)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Columns of a version, to compare with those of the newest."""

    types: Mapping[str, object]
    partition_by: tuple[str, ...]
    mapping: str

    @classmethod
    def of(cls, schema: str, partition_by: list[str], configuration: Mapping[str, str]) -> _Columns:
        from deltalake import Schema as DeltaSchema

        fields = json.loads(DeltaSchema.from_json(schema).to_json())["fields"]
        return cls(
            types={one["name"]: one["type"] for one in fields},
            partition_by=tuple(partition_by),
            mapping=configuration.get(_MAPPING, "none"),
        )

    def differ(self, newest: _Columns) -> str:
        """Return why files of these columns cannot be read as those of the newest version."""
        if self.mapping != "none":
            return f"column mapping by {self.mapping} was on"
        if self.partition_by != newest.partition_by:
            return f"it is partitioned by {', '.join(self.partition_by) or 'nothing'}"
        for name, kind in self.types.items():
            if name not in newest.types:
                return f"it has a column {name!r}, which the newest version lacks"
            if kind != newest.types[name]:
                return f"its column {name!r} has another type"
        return ""


@dataclass(slots=True)
class _Replay:
    """The state of a table while its commits are replayed.

    Attributes:
        name: Name of its directory.
        title: For messages.
        schema: Schema of the newest version.
        newest: Columns of the newest version.
        known: The live files of the newest version.
        live: The live files.
        unfit: Live files that do not hold exactly their live rows, by key, each with the reason.
        columns: Columns of the version; None before the first commit.
    """

    name: str
    title: str
    schema: Schema
    newest: _Columns
    known: Mapping[str, ForeignFile]
    live: dict[str, ForeignFile] = field(default_factory=dict)
    unfit: dict[str, str] = field(default_factory=dict)
    columns: _Columns | None = None

    def apply(self, number: int, actions: list[_Action], stored_at: dt.datetime) -> ForeignVersion:
        """Return the version that a commit makes."""
        added = [action.add for action in actions if action.add is not None]
        removed = {
            key_of(action.remove.path, self.name, self.title)
            for action in actions
            if action.remove is not None
        }
        for action in actions:
            given = action.metadata
            if given is not None:
                self.columns = _Columns.of(
                    given.schema, given.partition_columns, given.configuration
                )
        new = {key_of(add.path, self.name, self.title): add for add in added}
        # A commit may remove and add the same file: with other statistics, or a deletion vector.
        gone = frozenset(key for key in removed if key not in new and key in self.live)
        for key in removed:
            self.unfit.pop(key, None)
        for key in gone:
            del self.live[key]
        files = {key: self._file(key, add) for key, add in new.items() if key not in self.live}
        self.live |= files
        for key, add in new.items():
            if add.vector is not None:
                self.unfit[key] = f"{key!r} has a deletion vector"
        return self.version(number, actions, stored_at, files, gone)

    def version(
        self,
        number: int,
        actions: list[_Action],
        stored_at: dt.datetime,
        added: Mapping[str, ForeignFile],
        removed: frozenset[str],
    ) -> ForeignVersion:
        """Return the version that the live files make."""
        info = next((action.info for action in actions if action.info is not None), _Info())
        made = info.timestamp if info.in_commit is None else info.in_commit
        differ = "" if self.columns is None else self.columns.differ(self.newest)
        return ForeignVersion(
            name=str(number),
            operation=f"delta {info.operation.lower()}",
            made_at=stored_at if made is None else dt.datetime.fromtimestamp(made / 1000, dt.UTC),
            added=added,
            removed=removed,
            obstacle=differ or next(iter(self.unfit.values()), ""),
        )

    def _file(self, key: str, add: _Added) -> ForeignFile:
        if key in self.known:
            return self.known[key]
        values: dict[str, Scalar] = {}
        for column in self.newest.partition_by:
            text = add.partition_values.get(column)
            # Delta writes null and the empty text alike.
            try:
                values[column] = (
                    parse_value(text, self.schema.get(column).type, column) if text else None
                )
            except InvalidInputError as exc:
                self.unfit[key] = exc.message.rstrip(".")
        return ForeignFile(size_bytes=add.size, row_count=_row_count(add.stats), values=values)


def _row_count(stats: str | None) -> int | None:
    try:
        count = json.loads(stats or "{}").get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return None
    return count if isinstance(count, int) else None


def read_history(
    table: DeltaTable,
    log: Path,
    stored_at: Mapping[int, dt.datetime],
    title: str,
    name: str,
    check_protocol: Callable[[DeltaTable, str], None],
) -> tuple[ForeignVersion, ...]:
    """Return all versions of a table that its log holds, oldest first.

    The log reaches back to the first commit, or to a checkpoint.

    Args:
        table: The newest version.
        log: A copy of the whole log.
        stored_at: When the storage stored each commit.
        title: For messages.
        name: Name of its directory.
        check_protocol: Raises an error if a version cannot be read from its files alone.

    Raises:
        CorruptMetadataError: A commit cannot be read, or the commits do not lead to the newest
            version.
        InvalidInputError: A file lies outside of the table's directory.
    """
    names = [path.name for path in log.iterdir()]
    commits = {int(found[1]) for found in map(_COMMIT.fullmatch, names) if found}
    checkpoints = {int(found[1]) for found in map(_CHECKPOINT.fullmatch, names) if found}
    newest = first = table.version()
    while first - 1 in commits:
        first -= 1
    replay = _Replay(
        name=name,
        title=title,
        schema=schema_from_arrow(pa.schema(table.schema().to_arrow())),
        newest=_columns_of(table),
        known=dict(files_of(table, name, title)),
    )
    versions: list[ForeignVersion] = []
    if first > 0:
        begun = _begin(
            replay, log, sorted(one for one in checkpoints if one >= first), check_protocol
        )
        if begun is None:
            return ()
        first = begun
        versions.append(
            replay.version(
                first,
                _actions(log, first),
                stored_at.get(first, dt.datetime.now(dt.UTC)),
                dict(replay.live),
                frozenset(),
            )
        )
        first += 1
    for number in range(first, newest + 1):
        at = stored_at.get(number, dt.datetime.now(dt.UTC))
        versions.append(replay.apply(number, _actions(log, number), at))
    if replay.live.keys() != replay.known.keys():
        raise CorruptMetadataError(
            f"The commits of {title} do not lead to the files of its version {newest}.",
            hint="Adopt it without its history.",
        )
    return tuple(versions)


def _columns_of(table: DeltaTable) -> _Columns:
    metadata = table.metadata()
    return _Columns.of(table.schema().to_json(), metadata.partition_columns, metadata.configuration)


def _begin(
    replay: _Replay,
    log: Path,
    checkpoints: Iterable[int],
    check_protocol: Callable[[DeltaTable, str], None],
) -> int | None:
    """Begin with the oldest checkpoint whose rows can be read; return its number."""
    from deltalake import DeltaTable

    for number in checkpoints:
        base = DeltaTable(log.parent, version=number)
        try:
            check_protocol(base, replay.title)
            replay.live = dict(files_of(base, replay.name, replay.title))
        except LakebedError:
            continue
        replay.columns = _columns_of(base)
        return number
    return None


def _actions(log: Path, number: int) -> list[_Action]:
    path = log / f"{number:020}.json"
    try:
        return [from_json(line, _Action) for line in path.read_bytes().splitlines() if line.strip()]
    except (*UNREADABLE, OSError) as exc:
        raise CorruptMetadataError(
            f"Commit {path.name!r} of the Delta log cannot be read: {exc}.",
            hint="Adopt the table without its history.",
        ) from exc
