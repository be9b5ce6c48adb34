"""The state of a dataset as a value, and the pure function that changes it."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    LakebedError,
    UnsupportedVersionError,
)
from lakebed.index import postings
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import check_under, partition_of_label
from lakebed.model.layout import Layout, postings_folder
from lakebed.model.lineage import Lineage
from lakebed.state.caps import Caught
from lakebed.state.head import METADATA_VERSION, HeadDocument, HeadFormat
from lakebed.state.history import Entry
from lakebed.state.partitions import encode_partitions, labels_of
from lakebed.state.protections import Protection
from lakebed.state.scope import Nothing, Scope
from lakebed.store.segments import Segment

FORMAT_VERSION = 3  # of what Lakebed itself puts on storage
# What earlier releases would do wrong without knowing it. A head on its way to the other format: they
# do not confirm it, so that what they leave would pass for a remnant of a dropped dataset. What raw
# files were read in: they do not know what stands for a path, and would read those files again.
_FORMAT_OF_MOVING_AND_SOURCES = 3
_FORMAT_WITH_LINEAGE = 2
# Datasets whose schema never changed, and into which no raw files were ingested, are as they were:
# releases that know neither schema numbers nor sources read them too, and refuse the others instead
# of taking old files for new ones, or forgetting what was read in.
_FORMAT_WITHOUT_LINEAGE = 1

FOREIGN = "foreign"  # the operation of what other tools have changed
UNCONFIRMED = " unconfirmed"  # at the end of `moved_from`
CREATION = "creation"  # as `moved_from`, until the creator has looked for a namesake
COMMITTED = 2  # the least claim of a head that somebody has committed to

_PREFIX = "lakebed."
_CREATED = "creation_time"  # Kartothek's own entry
_NO_TEXTS = "[]"
_NUMBER = re.compile(r"[0-9]{1,18}")  # surely below 2**63

_T = TypeVar("_T")
Segments = tuple[Segment, ...]


class _Memo:
    """What was computed from the labels of a state; a copy in another process begins anew."""

    __slots__ = ("digest", "directories")

    def __init__(self) -> None:
        self.digest: str | None = None
        self.directories: dict[str, list[str]] | None = None

    def __reduce__(self) -> tuple[type[_Memo], tuple[()]]:
        return _Memo, ()


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A dataset after a commit.

    Attributes:
        layout: What the dataset is: where data files lie, and how they are read.
        head_format: How the head is written.
        labels: Of the live data files.
        created_at: As the head says it, set once.
        version: 0 at creation, then one more a commit.
        commit_id: Of the commit that made this version; empty in a dataset of another tool.
        committed_at: When that commit was made.
        last_batch_id: The highest one that a commit has used.
        files: Segments of the file table.
        history: Segments of the history.
        sources: Segments that tell which raw files were read in.
        runs: Segments that tell which run wrote what.
        postings: Segments of the inverted indices, by column.
        digest: Of the labels, as the last commit of ours left them.
        annotations: Metadata entries of the user and of other tools.
        indices: Kartothek index files, which other tools keep.
        horizon: Versions before it can be read only if they are protected: a cleanup has given
            up the others.
        oldest_batch: A batch with a lower id that is not committed may not be committed any more:
            a cleanup has taken its writer for dead, or it was discarded.
        open_batches: Batches with lower ids that may, since nobody gave them up.
        protections: What no cleanup may give up.
        moves_to: Format in which the head shall go on: no commit is made to this one any more.
        moved_from: Format from which the head came, and an id, until the first commit to it; of
            a new dataset that its creator may still give up, `CREATION`.
    """

    layout: Layout
    head_format: HeadFormat
    labels: tuple[str, ...]
    created_at: str
    version: int = 0
    commit_id: str = ""
    committed_at: dt.datetime | None = None
    last_batch_id: int = 0
    files: tuple[Segment, ...] = ()
    history: tuple[Segment, ...] = ()
    sources: tuple[Segment, ...] = ()
    runs: tuple[Segment, ...] = ()
    postings: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    digest: str = ""
    annotations: Mapping[str, Any]
    indices: Mapping[str, str]
    horizon: int = 0
    oldest_batch: int = 0
    open_batches: tuple[int, ...] = ()
    protections: tuple[Protection, ...] = ()
    moves_to: HeadFormat | None = None
    moved_from: str = ""
    _memo: _Memo = field(default_factory=_Memo, init=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Of the dataset."""
        return self.layout.name

    @property
    def descriptor(self) -> DatasetDescriptor:
        """What the dataset is."""
        return self.layout.descriptor

    @property
    def lineage(self) -> Lineage:
        """Number of the current schema, and how files of older ones are read."""
        return self.layout.lineage

    @property
    def is_ours(self) -> bool:
        """Whether Lakebed created the dataset, so that it can commit to it."""
        return self.layout.is_ours

    def as_of(self, descriptor: DatasetDescriptor, lineage: Lineage) -> State:
        """Return the same with another descriptor, and how files come to be of its schema."""
        return replace(self, layout=replace(self.layout, descriptor=descriptor, lineage=lineage))

    def may_commit(self, batch_id: int) -> bool:
        """Whether a batch that is not committed may be: no cleanup or discard gave it up."""
        return batch_id >= self.oldest_batch or batch_id in self.open_batches

    @property
    def is_changed_by_others(self) -> bool:
        """Whether another tool has changed the data files since our last commit.

        Cost:
            A hash over all labels the first time; about 0.1 s for a million.
        """
        if self._memo.digest is None:
            self._memo.digest = digest_of(self.labels)
        return self.is_ours and self.digest != self._memo.digest

    def trust_digest(self) -> None:
        """Take the digest for that of the labels: the state was just made, and by us."""
        self._memo.digest = self.digest

    @property
    def is_unconfirmed(self) -> bool:
        """Whether a hand-over has written the head, and nobody has seen the old one after that.

        Where it is alone, it was written after the dataset was dropped, and means nothing.
        """
        return self.moved_from.endswith(UNCONFIRMED)

    @property
    def side_keys(self) -> tuple[str, ...]:
        """The keys of all side objects that the head names."""
        lists = (self.files, self.history, self.sources, self.runs)
        segments = (segment.key for one in lists for segment in one)
        return (*segments, *postings.keys_of(self.postings), *self.indices.values())

    def directories(self) -> Mapping[str, Sequence[str]]:
        """Return the labels by directory, in order of first appearance.

        Cost:
            A pass over all labels the first time.
        """
        if self._memo.directories is None:
            self._memo.directories = _by_directory(self.labels)
        return self._memo.directories


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
        deleted_row_count: Entities that a delete takes out, though files may go on without them.
        caught: What the caps of dimensions sent to `OTHER`.
        facts: Segment of the file table that holds their facts, if there are any.
        sources: Segment that tells which raw files it read in, if any.
        postings: Segments of inverted indices to add, by column; those of a column that is not
            indexed when the commit is made are left out.
        dropped_postings: Keys of segments that these replace.
        indices: Keys of Kartothek index files to name, by column.
        indices_of: Digest of the labels that they cover; beside other labels, none is named.
        scope: The partitions that it replaces.
        carried: By label of a file that was written anew: the run whose rows it holds.
        descriptor: What the dataset is from now on; None if it stays as it is.
        lineage: Of that descriptor's schema.
        restores: The older version whose files are among those added, if there is one.
        horizon: From now on no version before it can be read, but for protected ones.
        oldest_batch: From now on no batch with a lower id may be committed, but for open ones.
        open_batches: Batches that may be committed, whatever their ids are.
        protect: What shall not be cleaned up; each takes the place of one of the same target.
        unprotect: What may be cleaned up again.
        new_files: The file table to put in the place of that of the base, for a commit on the
            base itself. On a later version the file table stays as it is.
        merged: For `files` and `history`: segments at the begin of the list, and those that take
            their place. Where the list begins otherwise by now, it stays as it is.
        lost_segments: Keys of segments of the file table and of postings that cannot be read.
        lost_indices: Columns whose Kartothek index files are not right.
        moves_to: Format in which the head shall go on; see `lakebed.state.handover`.
        earlier: Changes that make versions of their own right before it, by the same put.
    """

    operation: str
    commit_id: str
    base_version: int
    batch_id: int | None = None
    run: str | None = None
    added: tuple[str, ...] = ()
    row_count: int = 0
    deleted_row_count: int = 0
    caught: tuple[Caught, ...] = ()
    facts: Segment | None = None
    sources: Segment | None = None
    postings: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    dropped_postings: frozenset[str] = frozenset()
    indices: Mapping[str, str] = field(default_factory=dict)
    indices_of: str = ""
    scope: Scope = field(default_factory=Nothing)
    carried: Mapping[str, str] = field(default_factory=dict)
    descriptor: DatasetDescriptor | None = None
    lineage: Lineage = field(default_factory=Lineage)
    restores: int | None = None
    horizon: int = 0
    oldest_batch: int = 0
    open_batches: tuple[int, ...] = ()
    protect: tuple[Protection, ...] = ()
    unprotect: tuple[Protection, ...] = ()
    new_files: tuple[Segment, ...] | None = None
    merged: Mapping[str, tuple[Segments, Segments]] = field(default_factory=dict)
    lost_segments: frozenset[str] = frozenset()
    lost_indices: frozenset[str] = frozenset()
    moves_to: HeadFormat | None = None
    earlier: tuple[Change, ...] = ()

    @property
    def brings_unreserved(self) -> bool:
        """Whether it names objects that were written before, and that no reservation holds."""
        is_reserved = self.batch_id is not None and self.operation != "adopt"
        written = (self.facts, self.sources, self.postings, self.indices, self.merged)
        return not is_reserved and any((*written, self.new_files))


def apply(state: State, change: Change, now: dt.datetime) -> tuple[State, Entry]:
    """Return the state after the change, and its entry in the history. No I/O.

    Segments are appended, not merged; the new entry's own segment is not yet in the history.

    Args:
        state: What the head says.
        change: Already checked for conflicts.
        now: Aware; moved up to the last commit's time if the clock runs behind it.
    """
    # An append need not look at a million files.
    takes_out = not isinstance(change.scope, Nothing)
    removed = tuple(filter(change.scope.removes, state.labels)) if takes_out else ()
    gone = frozenset(removed)
    kept = (label for label in state.labels if label not in gone) if gone else state.labels
    labels = (*kept, *change.added)
    touched = dict.fromkeys(partition_of_label(label) for label in (*removed, *change.added))
    committed_at = max(now, state.committed_at) if state.committed_at else now
    entry = Entry(
        version=state.version + 1,
        commit_id=change.commit_id,
        operation=change.operation,
        committed_at=committed_at,
        batch_id=change.batch_id,
        run=change.run,
        row_count=change.row_count,
        deleted_row_count=change.deleted_row_count,
        caught=change.caught,
        added=change.added,
        removed=removed,
        partitions=tuple(touched),
        carried=dict(change.carried),
        horizon=change.horizon or None,
        protected=tuple(one.target for one in change.protect),
        unprotected=tuple(one.target for one in change.unprotect),
        descriptor=None
        if change.descriptor is None
        else describe(change.descriptor, change.lineage),
    )
    digest = digest_of(labels)
    # An index is complete or it is not named: what other tools built covers no file of ours.
    indices = {} if change.added or removed else _indices(state, change, digest)
    if change.descriptor is not None:
        state = state.as_of(change.descriptor, change.lineage)
    new = replace(
        state,
        labels=labels,
        version=entry.version,
        commit_id=change.commit_id,
        committed_at=committed_at,
        last_batch_id=max(state.last_batch_id, change.batch_id or 0),
        files=_files(state, change),
        history=_merged(state.history, change.merged.get("history")),
        sources=(*state.sources, change.sources) if change.sources else state.sources,
        postings=_postings(state, change),
        digest=digest,
        indices=indices,
        horizon=max(state.horizon, change.horizon),
        **_open_batches(state, change),
        protections=_protections(state, change),
        moves_to=None if change.moves_to is state.head_format else change.moves_to,
        moved_from="",
    )
    return new, entry


def _merged(segments: Segments, change: tuple[Segments, Segments] | None) -> Segments:
    if change is None:
        return segments
    old, new = change
    return (*new, *segments[len(old) :]) if segments[: len(old)] == old else segments


def _files(state: State, change: Change) -> Segments:
    files = _merged(state.files, change.merged.get("files"))
    if change.new_files is not None and state.version == change.base_version:
        files = change.new_files
    if change.lost_segments:
        files = tuple(one for one in files if one.key not in change.lost_segments)
    return (*files, change.facts) if change.facts else files


def _open_batches(state: State, change: Change) -> dict[str, Any]:
    """Return which batches may still be committed.

    A batch that was once shut out stays so: of two cleanups, each may know of others.
    """
    oldest = max(state.oldest_batch, change.oldest_batch)
    candidates = {*state.open_batches, *change.open_batches}
    return {
        "oldest_batch": oldest,
        "open_batches": tuple(
            sorted(
                one
                for one in candidates
                if one < oldest
                and one != change.batch_id
                and state.may_commit(one)
                and (one >= change.oldest_batch or one in change.open_batches)
            )
        ),
    }


def _indices(state: State, change: Change, digest: str) -> dict[str, str]:
    """Return the Kartothek index files to name after a change that leaves the files as they are."""
    gone = set(change.lost_indices)
    if change.descriptor is not None:
        if change.descriptor.schema != state.descriptor.schema:
            return {}
        gone |= {*state.descriptor.index} - {*change.descriptor.index}
    kept = {column: key for column, key in state.indices.items() if column not in gone}
    return {**kept, **(change.indices if change.indices_of == digest else {})}


def _protections(state: State, change: Change) -> tuple[Protection, ...]:
    if not change.protect and not change.unprotect:
        return state.protections
    gone = {(one.version, one.batch_id) for one in (*change.protect, *change.unprotect)}
    kept = (one for one in state.protections if (one.version, one.batch_id) not in gone)
    return (*kept, *change.protect)


def _postings(state: State, change: Change) -> dict[str, tuple[Segment, ...]]:
    """Return the segments of the columns that are indexed, after the change."""
    found = {}
    for column in state.descriptor.index:
        kept = (
            segment
            for segment in state.postings.get(column, ())
            if segment.key not in change.dropped_postings | change.lost_segments
        )
        found[column] = (*kept, *change.postings.get(column, ()))
    return {column: segments for column, segments in found.items() if segments}


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
    touched = dict.fromkeys(partition_of_label(label) for label in (*removed, *added))
    return Entry(
        version=state.version + 1,
        commit_id=commit_id,
        operation=FOREIGN,
        committed_at=max(now, state.committed_at) if state.committed_at else now,
        added=added,
        removed=removed,
        partitions=tuple(touched),
    )


def _by_directory(labels: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    last, group = None, []
    # Files of a batch stand side by side, so that few of them need to be looked up.
    for label, directory in zip(
        labels, [label.rpartition("/")[0] for label in labels], strict=True
    ):
        if directory != last:
            last, group = directory, found.setdefault(directory, [])
        group.append(label)
    return found


def digest_of(labels: tuple[str, ...]) -> str:
    """Return a digest of the labels in their order."""
    return hashlib.blake2b("\n".join(labels).encode(), digest_size=16).hexdigest()


def to_document(state: State, *, with_partitions: bool = True) -> HeadDocument:
    """Return the head of a dataset of ours, or only what it says beside its files."""
    return HeadDocument(
        dataset_metadata_version=METADATA_VERSION,
        dataset_uuid=state.name,
        indices=dict(state.indices) or None,
        metadata={
            _CREATED: state.created_at,
            **state.annotations,
            f"{_PREFIX}format_version": str(_format_version(state)),
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
            **(
                {
                    f"{_PREFIX}postings": _encode(
                        {
                            column: [segment.key for segment in segments]
                            for column, segments in state.postings.items()
                        }
                    )
                }
                if state.postings
                else {}
            ),
            **(
                {f"{_PREFIX}runs": _encode([segment.key for segment in state.runs])}
                if state.runs
                else {}
            ),
            **_upkeep_entries(state),
            **_moving_entries(state),
            f"{_PREFIX}digest": state.digest,
        },
        partitions=encode_partitions(state.labels, state.layout.naming, state.head_format)
        if with_partitions
        else None,
        partition_keys=list(state.layout.partition_keys),
    )


def _upkeep_entries(state: State) -> dict[str, str]:
    """Return what cleanups and protections have put into the head.

    A release that does not know them would read, restore or commit files that are gone.
    """
    entries = {
        "horizon": str(state.horizon) if state.horizon else "",
        "oldest_batch": str(state.oldest_batch) if state.oldest_batch else "",
        "open_batches": _encode(state.open_batches) if state.open_batches else "",
        "protections": _encode(state.protections) if state.protections else "",
    }
    return {f"{_PREFIX}{name}": text for name, text in entries.items() if text}


def _moving_entries(state: State) -> dict[str, str]:
    """Return what a hand-over has put into the head.

    A release that does not know it would commit to a head that is about to be removed.
    """
    entries = {"moves_to": state.moves_to or "", "moved_from": state.moved_from}
    return {f"{_PREFIX}{name}": str(text) for name, text in entries.items() if text}


def _format_version(state: State) -> int:
    """Return the lowest format version of which releases do right by a state."""
    if state.moves_to is not None or state.is_unconfirmed or state.sources:
        return _FORMAT_OF_MOVING_AND_SOURCES
    is_more = (
        state.lineage.number > 1
        or state.descriptor.index
        or _upkeep_entries(state)
        or _moving_entries(state)
    )
    return _FORMAT_WITH_LINEAGE if is_more else _FORMAT_WITHOUT_LINEAGE


def is_only_head(document: HeadDocument) -> bool:
    """Whether a JSON head says that there is no other of any meaning; every other may have a twin.

    Until its first commit, somebody may have created the dataset in the other format as well.
    """
    entries = document.metadata
    return (
        entries.get(f"{_PREFIX}head") == HeadFormat.JSON
        and entries.get(f"{_PREFIX}version") != "0"
        and not entries.keys() & {f"{_PREFIX}moves_to", f"{_PREFIX}moved_from"}
    )


def is_one_dataset(one: State, other: State) -> bool:
    """Whether two heads are of one dataset, and not of two that were created under one name."""
    if one.created_at != other.created_at or one.is_ours != other.is_ours:
        return False
    are_both_new = one.version == other.version == 0
    return not are_both_new or one.commit_id == other.commit_id


def claim_of(state: State) -> int:
    """Return how much speaks for a head beside that of another dataset under the same name.

    Nothing (0), if nobody has been told of it yet. More (1), if its creator may have been told.
    All (3), if somebody has committed to it. In between (2) is a head that was moved and not
    committed to since: it may have been written long after its time, as (-1) one surely was that is
    unconfirmed, since the old head is not there.
    """
    if state.is_unconfirmed:
        return -1
    if state.version == 0 and not state.is_changed_by_others:
        return 0 if state.moved_from == CREATION else 1
    return COMMITTED if state.moved_from else COMMITTED + 1


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
    layout = Layout.of_ours(name, descriptor, lineage)
    labels = labels_of(document, layout.naming, key)
    keys = tuple(document.partition_keys or ())
    if keys != layout.partition_keys:
        raise CorruptMetadataError(
            f"Head {key!r} has partition_keys {list(keys)}, but its descriptor has "
            f"{list(layout.partition_keys)}.",
            hint="Restore the object from a copy; no data file was touched.",
        )
    return State(
        layout=layout,
        head_format=head_format,
        labels=labels,
        created_at=str(document.metadata.get(_CREATED, "")),
        version=ours.number("version"),
        commit_id=ours.text("commit"),
        committed_at=ours.time("committed_at"),
        last_batch_id=ours.number("batch"),
        files=tuple(Segment.parse(one, name) for one in ours.texts("files")),
        history=tuple(Segment.parse(one, name) for one in ours.texts("history")),
        sources=tuple(Segment.parse(one, name) for one in ours.texts("sources", default=_NO_TEXTS)),
        runs=tuple(Segment.parse(one, name) for one in ours.texts("runs", default=_NO_TEXTS)),
        postings=_read_postings(ours, descriptor, name),
        digest=ours.text("digest"),
        annotations=annotations_of(document),
        indices={k: v for k, v in (document.indices or {}).items() if isinstance(v, str)},
        horizon=ours.number("horizon", default=0),
        oldest_batch=ours.number("oldest_batch", default=0),
        open_batches=ours.values("open_batches", int),
        protections=ours.values("protections", Protection),
        moves_to=_read_move(ours, head_format),
        moved_from=ours.text("moved_from", default=""),
    )


def _read_move(ours: _Entries, head_format: HeadFormat) -> HeadFormat | None:
    text = ours.text("moves_to", default="")
    try:
        target = HeadFormat(text) if text else None
    except ValueError as exc:
        raise ours.corrupt("moves_to", text) from exc
    # plateau copies the entries of a msgpack head into the JSON head that it writes.
    return None if target is head_format else target


def _read_postings(
    ours: _Entries, descriptor: DatasetDescriptor, name: str
) -> dict[str, tuple[Segment, ...]]:
    """Read the segments of the indexed columns, each of which lies in its column's directory."""
    found = {}
    for column, keys in ours.lists("postings").items():
        if column not in descriptor.index:
            raise ours.corrupt("postings", column)
        segments = tuple(Segment.parse(key, name) for key in keys)
        for segment in segments:
            check_under(segment.key, f"{postings_folder(name, column)}/")
        found[column] = segments
    return found


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

    def text(self, name: str, *, default: str | None = None) -> str:
        if default is not None and _PREFIX + name not in self._metadata:
            return default
        value = self._metadata.get(_PREFIX + name)
        if not isinstance(value, str) or not value:
            raise self.corrupt(name, value)
        return value

    def number(self, name: str, *, default: int | None = None) -> int:
        if default is not None and _PREFIX + name not in self._metadata:
            return default
        text = self.text(name)
        if not _NUMBER.fullmatch(text):
            raise self.corrupt(name, text)
        return int(text)

    def time(self, name: str) -> dt.datetime:
        text = self.text(name)
        try:
            moment = dt.datetime.fromisoformat(text)
            if moment.tzinfo is None:
                raise self.corrupt(name, text)
            return moment.astimezone(dt.UTC)
        except (ValueError, OverflowError) as exc:
            raise self.corrupt(name, text) from exc

    def texts(self, name: str, *, default: str | None = None) -> list[str]:
        if default is not None and _PREFIX + name not in self._metadata:
            text = default
        else:
            text = self.text(name)
        try:
            return msgspec.json.decode(text, type=list[str])
        except msgspec.MsgspecError as exc:
            raise self.corrupt(name, text) from exc

    def values(self, name: str, kind: type[_T]) -> tuple[_T, ...]:
        """Read a list of values; none where the entry is missing."""
        if _PREFIX + name not in self._metadata:
            return ()
        text = self.text(name)
        try:
            return msgspec.json.decode(text, type=tuple[kind, ...])  # type: ignore[valid-type]  # known at run time
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise self.corrupt(name, text) from exc

    def lists(self, name: str) -> dict[str, list[str]]:
        """Read lists of texts by name; none where the entry is missing."""
        if _PREFIX + name not in self._metadata:
            return {}
        text = self.text(name)
        try:
            return msgspec.json.decode(text, type=dict[str, list[str]])
        except msgspec.MsgspecError as exc:
            raise self.corrupt(name, text) from exc

    def corrupt(self, name: str, value: object) -> FormatError:
        return CorruptMetadataError(
            f"Head {self._key!r}, metadata entry '{_PREFIX}{name}' is {str(value)[:80]!r}.",
            hint="Restore the object from a copy; no data file was touched.",
        )
