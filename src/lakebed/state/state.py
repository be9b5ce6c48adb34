"""The state of a dataset as a value, and the pure function that changes it."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    LakebedError,
    UnsupportedVersionError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import BATCH_ID, TABLE, decode_path, partition_of, split_label
from lakebed.model.lineage import Lineage
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Schema, Type, dotted_types
from lakebed.model.values import Scalar
from lakebed.state.caps import Caught
from lakebed.state.head import METADATA_VERSION, HeadDocument, HeadFormat, PartitionEntry
from lakebed.state.history import Entry
from lakebed.state.scope import Nothing, Scope
from lakebed.store.segments import Segment

FORMAT_VERSION = 2  # of what Lakebed itself puts on storage
# Datasets whose schema never changed, and into which no raw files were ingested, are as they were:
# releases that know neither schema numbers nor sources read them too, and refuse the others instead
# of taking old files for new ones, or forgetting what was read in.
_FORMAT_WITHOUT_LINEAGE = 1

_PREFIX = "lakebed."
_CREATED = "creation_time"  # Kartothek's own entry
_NO_TEXTS = "[]"
_NUMBER = re.compile(r"[0-9]{1,18}")  # surely below 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A dataset after a commit.

    Attributes:
        name: Of the dataset.
        table: Kartothek's table name; `data` in datasets of ours.
        head_format: How the head is written.
        descriptor: What the dataset is.
        partition_keys: Directory levels in order, `batch_id` last in datasets of ours.
        labels: Of the live data files.
        created_at: As the head says it, set once.
        version: 0 at creation, then one more a commit.
        commit_id: Of the commit that made this version; empty in a dataset of another tool.
        committed_at: When that commit was made.
        last_batch_id: The highest one that a commit has used.
        files: Segments of the file table.
        history: Segments of the history.
        sources: Segments that tell which raw files were read in.
        digest: Of the labels, as the last commit of ours left them.
        annotations: Metadata entries of the user and of other tools.
        indices: Kartothek index files, which other tools keep.
        lineage: Number of the current schema, and how files of older ones are read.
    """

    name: str
    table: str
    head_format: HeadFormat
    descriptor: DatasetDescriptor
    partition_keys: tuple[str, ...]
    labels: tuple[str, ...]
    created_at: str
    version: int = 0
    commit_id: str = ""
    committed_at: dt.datetime | None = None
    last_batch_id: int = 0
    files: tuple[Segment, ...] = ()
    history: tuple[Segment, ...] = ()
    sources: tuple[Segment, ...] = ()
    digest: str = ""
    annotations: Mapping[str, Any]
    indices: Mapping[str, str]
    lineage: Lineage = field(default_factory=Lineage)

    @property
    def is_ours(self) -> bool:
        """Whether Lakebed created the dataset, so that it can commit to it."""
        return bool(self.commit_id)

    @property
    def is_changed_by_others(self) -> bool:
        """Whether another tool has changed the data files since our last commit.

        Cost:
            A hash over all labels; about 0.1 s for a million.
        """
        return self.is_ours and self.digest != digest_of(self.labels)

    @property
    def column_types(self) -> dict[str, Type]:
        """All columns that can be asked for, with their types."""
        fields = {field.name: field.type for field in self.descriptor.schema}
        return {**fields, **self.partition_types}

    @property
    def predicate_types(self) -> dict[str, Type]:
        """All columns that can stand in a predicate, nested ones by dots, with their types."""
        return {**dotted_types(self.descriptor.schema), **self.partition_types}

    @property
    def partition_types(self) -> dict[str, Type]:
        """Directory levels in order, with their types."""
        declared = self.descriptor.column_types
        return {name: declared[name] for name in self.partition_keys}

    @property
    def partition_level_types(self) -> dict[str, Type]:
        """Directory levels of a partition: all but the batch."""
        return {name: kind for name, kind in self.partition_types.items() if name != BATCH_ID}

    @property
    def sure_strategy(self) -> PartitionStrategy:
        """The partition functions that tell something of the rows under every path."""
        return self.lineage.sure_strategy(self.descriptor.partition_by)

    @property
    def stored_schema(self) -> Schema:
        """The fields that data files hold."""
        schema = self.descriptor.schema
        return schema.select(tuple(n for n in schema.names if n not in self.partition_keys))

    def key(self, label: str) -> str:
        """Return the key of a data file."""
        return f"{self.name}/{self.table}/{label}{self.descriptor.file_suffix}"

    def directories(self) -> dict[str, list[str]]:
        """Return the labels by directory, in order of first appearance."""
        found: dict[str, list[str]] = {}
        for label in self.labels:
            found.setdefault(split_label(label)[0], []).append(label)
        return found

    def directory_values(self, directory: str) -> dict[str, Scalar]:
        """Return the typed values of a directory's levels.

        Raises:
            CorruptMetadataError: The directory does not fit the schema.
        """
        return decode_path(directory, self.partition_types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit wants to do, independent of the state that it meets.

    Attributes:
        operation: For the history.
        commit_id: Stable over retries.
        base_version: The version that the change was computed from.
        batch_id: The batch to make visible, if any.
        run: Name of the run, if it has one.
        added: Labels of the new data files.
        row_count: Entities in them.
        caught: What the caps of dimensions sent to `OTHER`.
        facts: Segment of the file table that holds their facts, if there are any.
        sources: Segment that tells which raw files it read in, if any.
        scope: The partitions that it replaces.
        descriptor: What the dataset is from now on; None if it stays as it is.
        lineage: Of that descriptor's schema.
    """

    operation: str
    commit_id: str
    base_version: int
    batch_id: int | None = None
    run: str | None = None
    added: tuple[str, ...] = ()
    row_count: int = 0
    caught: tuple[Caught, ...] = ()
    facts: Segment | None = None
    sources: Segment | None = None
    scope: Scope = field(default_factory=Nothing)
    descriptor: DatasetDescriptor | None = None
    lineage: Lineage = field(default_factory=Lineage)


def apply(state: State, change: Change, now: dt.datetime) -> tuple[State, Entry]:
    """Return the state after the change, and its entry in the history. No I/O.

    Segments are appended, not merged; the new entry's own segment is not yet in the history.

    Args:
        state: What the head says.
        change: Already checked for conflicts.
        now: Aware; moved up to the last commit's time if the clock runs behind it.
    """
    removed = tuple(label for label in state.labels if change.scope.removes(label))
    gone = frozenset(removed)
    kept = (label for label in state.labels if label not in gone) if gone else state.labels
    labels = (*kept, *change.added)
    touched = dict.fromkeys(_partition(label) for label in (*removed, *change.added))
    committed_at = max(now, state.committed_at) if state.committed_at else now
    entry = Entry(
        version=state.version + 1,
        commit_id=change.commit_id,
        operation=change.operation,
        committed_at=committed_at,
        batch_id=change.batch_id,
        run=change.run,
        row_count=change.row_count,
        caught=change.caught,
        added=change.added,
        removed=removed,
        partitions=tuple(touched),
        descriptor=None
        if change.descriptor is None
        else describe(change.descriptor, change.lineage),
    )
    if change.descriptor is not None:
        state = replace(state, descriptor=change.descriptor, lineage=change.lineage)
    new = replace(
        state,
        labels=labels,
        version=entry.version,
        commit_id=change.commit_id,
        committed_at=committed_at,
        last_batch_id=max(state.last_batch_id, change.batch_id or 0),
        files=(*state.files, change.facts) if change.facts else state.files,
        sources=(*state.sources, change.sources) if change.sources else state.sources,
        digest=digest_of(labels),
        # An index is complete or it is not named: what other tools built covers no file of ours.
        indices={} if change.added or removed or change.descriptor else state.indices,
    )
    return new, entry


def adopt(state: State, known: tuple[str, ...], now: dt.datetime, commit_id: str) -> Entry:
    """Return the entry for what other tools have changed since our last commit.

    Args:
        state: What the head says.
        known: The labels that our last commit left.
        now: Aware.
        commit_id: For the entry.
    """
    before, after = frozenset(known), frozenset(state.labels)
    added = tuple(label for label in state.labels if label not in before)
    removed = tuple(label for label in known if label not in after)
    touched = dict.fromkeys(_partition(label) for label in (*removed, *added))
    return Entry(
        version=state.version + 1,
        commit_id=commit_id,
        operation="foreign",
        committed_at=max(now, state.committed_at) if state.committed_at else now,
        added=added,
        removed=removed,
        partitions=tuple(touched),
    )


def _partition(label: str) -> str:
    return partition_of(split_label(label)[0])


def digest_of(labels: tuple[str, ...]) -> str:
    """Return a digest of the labels in their order."""
    return hashlib.blake2b("\n".join(labels).encode(), digest_size=16).hexdigest()


def to_document(state: State) -> HeadDocument:
    """Return the head of a dataset of ours."""
    return HeadDocument(
        dataset_metadata_version=METADATA_VERSION,
        dataset_uuid=state.name,
        indices=dict(state.indices) or None,
        metadata={
            _CREATED: state.created_at,
            **state.annotations,
            f"{_PREFIX}format_version": str(
                FORMAT_VERSION
                if state.lineage.number > 1 or state.sources
                else _FORMAT_WITHOUT_LINEAGE
            ),
            f"{_PREFIX}head": str(state.head_format),
            f"{_PREFIX}version": str(state.version),
            f"{_PREFIX}commit": state.commit_id,
            f"{_PREFIX}committed_at": state.committed_at.isoformat() if state.committed_at else "",
            f"{_PREFIX}batch": str(state.last_batch_id),
            f"{_PREFIX}descriptor": _encode(describe(state.descriptor, state.lineage)),
            f"{_PREFIX}files": _encode([segment.key for segment in state.files]),
            f"{_PREFIX}history": _encode([segment.key for segment in state.history]),
            # Only where there are any: heads of other datasets stay as they are.
            **(
                {f"{_PREFIX}sources": _encode([segment.key for segment in state.sources])}
                if state.sources
                else {}
            ),
            f"{_PREFIX}digest": state.digest,
        },
        partitions={
            label: PartitionEntry({state.table: state.key(label)}) for label in state.labels
        },
        partition_keys=list(state.partition_keys),
    )


def _encode(document: object) -> str:
    return msgspec.json.encode(document).decode()


def from_document(document: HeadDocument, head_format: HeadFormat, key: str) -> State:
    """Read the head of a dataset of ours.

    Raises:
        CorruptMetadataError: An entry is missing, of a wrong type, or points outside.
        UnsupportedVersionError: A newer release wrote it, or it has several tables.
    """
    ours = _Entries(document.metadata, key)
    version = ours.number("format_version")
    if version > FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"Head {key!r} has lakebed.format_version {version}; "
            f"this release reads up to {FORMAT_VERSION}.",
            hint="Upgrade Lakebed.",
        )
    name = document.dataset_uuid
    descriptor, lineage = _read_descriptor(ours.text("descriptor"), key)
    labels = labels_of(document, TABLE, key, descriptor.file_suffix)
    keys = tuple(document.partition_keys or ())
    if keys != tuple(descriptor.partition_types):
        raise CorruptMetadataError(
            f"Head {key!r} has partition_keys {list(keys)}, but its descriptor has "
            f"{list(descriptor.partition_types)}.",
            hint="Restore the object from a copy; no data file was touched.",
        )
    return State(
        name=name,
        table=TABLE,
        head_format=head_format,
        descriptor=descriptor,
        partition_keys=keys,
        labels=labels,
        created_at=str(document.metadata.get(_CREATED, "")),
        version=ours.number("version"),
        commit_id=ours.text("commit"),
        committed_at=ours.time("committed_at"),
        last_batch_id=ours.number("batch"),
        files=tuple(Segment.parse(one, name) for one in ours.texts("files")),
        history=tuple(Segment.parse(one, name) for one in ours.texts("history")),
        sources=tuple(Segment.parse(one, name) for one in ours.texts("sources", default=_NO_TEXTS)),
        digest=ours.text("digest"),
        annotations=annotations_of(document),
        indices={k: v for k, v in (document.indices or {}).items() if isinstance(v, str)},
        lineage=lineage,
    )


def is_ours(document: HeadDocument) -> bool:
    """Whether Lakebed wrote the head, or another tool changed one that Lakebed wrote."""
    return f"{_PREFIX}format_version" in document.metadata


def annotations_of(document: HeadDocument) -> dict[str, Any]:
    """Return the metadata entries that are neither ours nor Kartothek's."""
    return {
        name: value
        for name, value in document.metadata.items()
        if name != _CREATED and not name.startswith(_PREFIX)
    }


def creation_time_of(document: HeadDocument) -> str:
    """Return when the dataset was created, as the head says it."""
    return str(document.metadata.get(_CREATED, ""))


def labels_of(
    document: HeadDocument, table: str, key: str, suffix: str = ".parquet"
) -> tuple[str, ...]:
    """Return the labels of a head, each of which must name the key that belongs to it.

    Raises:
        CorruptMetadataError: A label refers to another key, perhaps outside the dataset.
        UnsupportedVersionError: A label has files of several tables.
    """
    prefix = f"{document.dataset_uuid}/{table}/"
    partitions = document.partitions or {}
    for label, entry in partitions.items():
        if len(entry.files) > 1:
            raise UnsupportedVersionError(
                f"Head {key!r} has several tables: {', '.join(sorted(entry.files))}.",
                hint="Lakebed reads datasets of one table; split it with kartothek.",
            )
        if entry.files.get(table) != f"{prefix}{label}{suffix}" or _leaves(label):
            raise CorruptMetadataError(
                f"Head {key!r}, label {label!r} refers to {next(iter(entry.files.items()), None)}.",
                hint=f"It must refer to {prefix}{label}{suffix}, in table {table!r}.",
            )
    return tuple(partitions)


def _leaves(label: str) -> bool:
    """Whether a label is no relative path; two dots within a partition value are fine."""
    padded = f"/{label}/"
    return "/../" in padded or "/./" in padded or "//" in padded


@functools.lru_cache(maxsize=256)
def _read_descriptor(text: str, key: str) -> tuple[DatasetDescriptor, Lineage]:
    try:
        document = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise _unreadable_descriptor(key, exc) from exc
    return descriptor_from(document, key)


def describe(descriptor: DatasetDescriptor, lineage: Lineage) -> dict[str, Any]:
    """Return the form of a descriptor that the head and the history keep."""
    document = descriptor.to_document()
    if lineage.number > 1:
        document["lineage"] = lineage.to_document(descriptor.schema)
    return document


def descriptor_from(document: Mapping[str, Any], key: str) -> tuple[DatasetDescriptor, Lineage]:
    """Read a descriptor from the head or the history, and the lineage of its schema.

    Args:
        document: What `describe` gave.
        key: Where it was, for the error.

    Raises:
        CorruptMetadataError: It does not describe a dataset.
    """
    try:
        descriptor = DatasetDescriptor.from_document(document)
        if "lineage" not in document:
            return descriptor, Lineage()
        return descriptor, Lineage.from_document(document["lineage"], descriptor.schema)
    # Whatever can be wrong with JSON of any form: it is not taken apart by a schema before.
    except (
        LakebedError,
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as exc:
        raise _unreadable_descriptor(key, exc) from exc


def _unreadable_descriptor(key: str, cause: Exception) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"{key!r} holds a descriptor ('{_PREFIX}descriptor') that cannot be read: {cause}.",
        hint="Restore the object from a copy, or upgrade Lakebed.",
    )


class _Entries:
    """Our metadata entries, each of which must be text of its form."""

    def __init__(self, metadata: Mapping[str, Any], key: str) -> None:
        self._metadata = metadata
        self._key = key

    def text(self, name: str) -> str:
        value = self._metadata.get(_PREFIX + name)
        if not isinstance(value, str) or not value:
            raise self._corrupt(name, value)
        return value

    def number(self, name: str) -> int:
        text = self.text(name)
        if not _NUMBER.fullmatch(text):
            raise self._corrupt(name, text)
        return int(text)

    def time(self, name: str) -> dt.datetime:
        text = self.text(name)
        try:
            moment = dt.datetime.fromisoformat(text)
            if moment.tzinfo is None:
                raise self._corrupt(name, text)
            return moment.astimezone(dt.UTC)
        except (ValueError, OverflowError) as exc:
            raise self._corrupt(name, text) from exc

    def texts(self, name: str, *, default: str | None = None) -> list[str]:
        if default is not None and _PREFIX + name not in self._metadata:
            text = default
        else:
            text = self.text(name)
        try:
            return msgspec.json.decode(text, type=list[str])
        except msgspec.MsgspecError as exc:
            raise self._corrupt(name, text) from exc

    def _corrupt(self, name: str, value: object) -> FormatError:
        return CorruptMetadataError(
            f"Head {self._key!r}, metadata entry '{_PREFIX}{name}' is {str(value)[:80]!r}.",
            hint="Restore the object from a copy; no data file was touched.",
        )
