"""The state of a dataset as a value, and the pure function that changes it.

The head also holds the progress of streaming queries. A query commits its epochs in order, each as
a named run. After a failure it repeats the last one, and never an earlier one. So the head names
the last epoch of each query, and only that one may still be replaced.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, Protocol

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.common.given import check_given
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    ReadOnlyError,
)
from lakebed.model.descriptor import DatasetDescriptor, new_checks
from lakebed.model.keys import FIRST_MOMENT, BatchId, batch_id_of, partition_of_label
from lakebed.model.layout import Layout
from lakebed.model.lineage import Lineage
from lakebed.state.check_results import (
    UnmetCheck,
    Verdict,
    not_checked,
    unmet_after,
)
from lakebed.state.erased_files import mark_of, replaced
from lakebed.state.head import HeadFormat
from lakebed.state.history import Entry
from lakebed.state.lists import FILES, Edit, Lists, postings_of
from lakebed.state.protections import Protection
from lakebed.state.scope import Nothing, Scope

# In the head. For a query that has not committed for longer, the runs still hold its progress.
MOST_QUERIES = 256
_RUN = re.compile(r"stream:(.+):([0-9]{1,18})", re.DOTALL)
_LONGEST_QUERY = 200  # it is part of every entry of the history

FOREIGN = "foreign"  # the operation of changes by other tools
UNCONFIRMED = " unconfirmed"  # at the end of `moved_from`
CREATION = "creation"  # as `moved_from`, until the creator has looked for the other head
COMMITTED = 2  # the lowest claim of a head that has a commit


# Of a document: with more, each commit and each plan is faster with a tree.
MOST_LISTED = 50_000


class HeadKind(StrEnum):
    """The kinds of heads: a document that lists all files, or a tree whose leaves do."""

    DOCUMENT = "document"
    TREE = "tree"


MOST_HELD_S = 300


class HeldFor(msgspec.Struct, frozen=True):
    """A request that other writers wait before their next commit; see `lakebed.state.patience`.

    Attributes:
        commit_id: Id of the commit that they are to wait for.
        seconds: For how long, from when they first see it.
    """

    commit_id: str
    seconds: Annotated[int, msgspec.Meta(ge=0, le=MOST_HELD_S)]


class Live(Protocol):
    """The live files of a state."""

    @property
    def is_tree(self) -> bool:
        """True if leaves list the files, and not the head itself."""

    @property
    def count(self) -> int:
        """Number of the files."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all files, in the order of the state."""

    @property
    def digest(self) -> str:
        """A digest of all files."""

    @property
    def memory_bytes(self) -> int:
        """Approximate size in memory."""

    def pieces(self) -> Iterator[Sequence[str]]:
        """Yield the labels of all files piece by piece, in the order of the state."""

    def of(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Return the labels of the files in some partitions, in the order of the state."""

    def of_batches(self, batches: Collection[int]) -> tuple[str, ...]:
        """Return the labels of the files in the directories of some batches."""

    def holding(self, labels: Collection[str]) -> frozenset[str]:
        """Return those of some labels whose files are live."""

    def removed_by(self, scope: Scope) -> tuple[str, ...]:
        """Return the labels of the files that a commit of a scope removes, in the order of the state."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The live files of a state that lists them all.

    Attributes:
        labels: Labels of the files.

    >>> live = Listed(("p=a/batch_id=1/x", "p=b/batch_id=1/y"))
    >>> live.count, live.of({"p=b"}), live.holding(["p=a/batch_id=1/x", "p=c/batch_id=1/z"])
    (2, ('p=b/batch_id=1/y',), frozenset({'p=a/batch_id=1/x'}))
    """

    labels: tuple[str, ...]

    @property
    def is_tree(self) -> bool:
        """False: the head lists them."""
        return False

    @property
    def count(self) -> int:
        """Number of the files."""
        return len(self.labels)

    @property
    def digest(self) -> str:
        """A digest of the labels in their order."""
        return digest_of(self.labels)

    @property
    def memory_bytes(self) -> int:
        """Approximate size in memory; a state refers to each label twice."""
        return sum(map(len, self.labels)) + 65 * len(self.labels)

    def pieces(self) -> Iterator[Sequence[str]]:
        """Yield the labels of all files, in one piece."""
        if self.labels:
            yield self.labels

    def of(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Return the labels of the files in some partitions."""
        return tuple(label for label in self.labels if partition_of_label(label) in partitions)

    def of_batches(self, batches: Collection[int]) -> tuple[str, ...]:
        """Return the labels of the files in the directories of some batches."""
        return tuple(label for label in self.labels if batch_id_of(label) in batches)

    def holding(self, labels: Collection[str]) -> frozenset[str]:
        """Return those of some labels whose files are live."""
        wanted = labels if isinstance(labels, frozenset) else frozenset(labels)
        return frozenset(filter(wanted.__contains__, self.labels)) if wanted else wanted

    def removed_by(self, scope: Scope) -> tuple[str, ...]:
        """Return the labels of the files that a commit of a scope removes."""
        # An append need not iterate over a million files.
        is_append = isinstance(scope, Nothing)
        return () if is_append else tuple(filter(scope.removes, self.labels))


def digest_of(labels: tuple[str, ...]) -> str:
    """Return a digest of the labels in their order."""
    return hashlib.blake2b("\n".join(labels).encode(), digest_size=16).hexdigest()


class Epoch(msgspec.Struct, frozen=True, order=True):
    """One epoch of a streaming query.

    Attributes:
        query: Id of the query; it stays the same when the query is restarted.
        number: Number of the epoch, from 0.
    """

    query: str
    number: Annotated[int, msgspec.Meta(ge=0)]

    @property
    def run(self) -> str:
        """The name of the run that writes it."""
        return f"stream:{self.query}:{self.number}"

    def check(self) -> None:
        """Check that the epoch can be committed.

        Raises:
            InvalidInputError: The name of the query is empty or too long, or the number is not valid.
        """
        number = "Give the epoch_id that foreachBatch passes, a whole number."
        check_given("epoch_id", self.number, int, number)
        if not self.query or len(self.query) > _LONGEST_QUERY or self.number < 0:
            raise InvalidInputError(
                f"Cannot commit epoch {self.number} of the query {self.query[:_LONGEST_QUERY]!r}: "
                "the name or the number is not valid.",
                hint=f"Name the query, in up to {_LONGEST_QUERY} characters; epochs begin at 0.",
            )


class QueryProgress(msgspec.Struct, frozen=True):
    """The progress of a streaming query.

    Attributes:
        query: Id of the query.
        epoch: Number of the epoch that was committed last.
        batch_id: The batch that holds this epoch.
    """

    query: str
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    batch_id: BatchId


def epoch_of(run: str | None) -> Epoch | None:
    """Return the epoch that a run has written; None if it is not the run of a streaming query."""
    match = None if run is None else _RUN.fullmatch(run)
    return None if match is None else Epoch(match[1], int(match[2]))


def find_progress(known: Iterable[QueryProgress], query: str) -> QueryProgress | None:
    """Return the progress of a query; None if it is not known."""
    return next((progress for progress in known if progress.query == query), None)


def advanced(known: tuple[QueryProgress, ...], now: QueryProgress) -> tuple[QueryProgress, ...]:
    """Return the progress of all queries after a commit of one; that of the newest batch is last."""
    others = [progress for progress in known if progress.query != now.query]
    latest = sorted((*others, now), key=lambda progress: progress.batch_id)
    return tuple(latest[-MOST_QUERIES:])


def newest_epochs(runs: Mapping[int, str]) -> dict[str, QueryProgress]:
    """Return the epoch that each query has written last, for runs by batch id.

    It is the highest epoch, unless a rollback removed later ones and the query repeated them.
    """
    latest: dict[str, QueryProgress] = {}
    for batch_id in sorted(runs):
        epoch = epoch_of(runs[batch_id])
        if epoch is not None:
            latest[epoch.query] = QueryProgress(epoch.query, epoch.number, batch_id)
    return latest


def describe(descriptor: DatasetDescriptor, lineage: Lineage) -> dict[str, Any]:
    """Return the form of a descriptor that is stored in the head and the history."""
    document = descriptor.to_document()
    if not lineage.is_first:
        document["lineage"] = lineage.to_document(descriptor.schema)
    return document


def descriptor_from(document: Mapping[str, Any], key: str) -> tuple[DatasetDescriptor, Lineage]:
    """Read a descriptor from the head or the history, and the lineage of its schema.

    Args:
        document: The result of `describe`.
        key: Key of the object that holds it, for the error.

    Raises:
        CorruptMetadataError: The document does not describe a dataset.
    """
    try:
        descriptor = DatasetDescriptor.from_document(document)
        descriptor.schema.as_stored()  # two fields cannot be one column
        if "lineage" not in document:
            return descriptor, Lineage()
        return descriptor, Lineage.from_document(document["lineage"], descriptor)
    # Arbitrary JSON can raise any of these: no schema has checked it before.
    except (
        LakebedError,
        AttributeError,
        LookupError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as exc:
        raise _unreadable(key, exc) from exc


@functools.lru_cache(maxsize=256)
def read_descriptor(text: str, key: str) -> tuple[DatasetDescriptor, Lineage]:
    """Read a descriptor from its text in a head; see `descriptor_from`."""
    try:
        document = from_json(text, dict[str, Any])
    except UNREADABLE as exc:
        raise _unreadable(key, exc) from exc
    return descriptor_from(document, key)


def _unreadable(key: str, cause: Exception) -> CorruptMetadataError:
    return CorruptMetadataError(
        f"{key!r} holds a descriptor ('lakebed.descriptor') that cannot be read: {cause}.",
        hint="Restore the object from a copy, or upgrade Lakebed.",
    )


class _Memo:
    """Values computed from the labels of a state; a copy in another process starts without them."""

    __slots__ = ("digest", "directories")

    def __init__(self) -> None:
        self.digest: str | None = None
        self.directories: dict[str, list[str]] | None = None

    def __reduce__(self) -> tuple[type[_Memo], tuple[()]]:
        return _Memo, ()


@dataclass(frozen=True, slots=True)
class HeadFact:
    """A fact that commits record in the head: how it is merged and written.

    Attributes:
        default: The value for a head without the entry; it is not written.
        form: Type of the value.
        merged: Function that returns the value after a change, from the state before and the change.
        is_optional: Whether a release that does not know the entry may commit to the dataset.
    """

    default: object
    form: Any
    merged: Callable[[State, Change], object]
    is_optional: bool


def head_fact(
    default: object,
    form: Any,
    merged: Callable[[State, Change], object],
    *,
    is_optional: bool = False,
) -> Any:
    """Declare a field of `State` that is an entry of the head, under the same name.

    The codec and `apply` iterate over `HEAD_FACTS`: a new fact only needs the field here, a field
    of `Change`, and the verb that sets that.
    """
    fact = HeadFact(default, form, merged, is_optional)
    return field(default=default, metadata={"head": fact})


def _merged_oldest_batch(state: State, change: Change) -> int:
    return max(state.oldest_batch, change.oldest_batch)


def _merged_open_batches(state: State, change: Change) -> tuple[int, ...]:
    """Return the batches that may still be committed.

    A batch that was shut out once stays out: two cleanups may know of different open batches.
    """
    oldest = _merged_oldest_batch(state, change)
    return tuple(
        sorted(
            batch_id
            for batch_id in {*state.open_batches, *change.open_batches}
            if batch_id < oldest
            and batch_id != change.batch_id
            and state.may_commit(batch_id)
            and (batch_id >= change.oldest_batch or batch_id in change.open_batches)
        )
    )


def _merged_protections(state: State, change: Change) -> tuple[Protection, ...]:
    if not change.protect and not change.unprotect:
        return state.protections
    replaced = {
        (protection.version, protection.batch_id)
        for protection in (*change.protect, *change.unprotect)
    }
    kept = (
        protection
        for protection in state.protections
        if (protection.version, protection.batch_id) not in replaced
    )
    return (*kept, *change.protect)


def _merged_streams(state: State, change: Change) -> tuple[QueryProgress, ...]:
    return state.streams if change.progress is None else advanced(state.streams, change.progress)


def _merged_unmet(state: State, change: Change) -> tuple[UnmetCheck, ...]:
    descriptor = change.new_descriptor or state.descriptor
    if not descriptor.checks:
        return ()
    # Checks that were declared anew are tested with the change.
    new = new_checks(state.descriptor, descriptor)
    before = (one for one in state.unmet if one.name not in new)
    is_write = change.new_descriptor is None and change.checks_all_added
    replaces_all = is_write and len(state.live.removed_by(change.scope)) == state.live.count
    return unmet_after(before, descriptor.checks, change.checks, replaces_all=replaces_all)


def _merged_indexed(state: State, change: Change) -> tuple[str, ...]:
    """Return the columns whose indices cover all files of a tree, after a change.

    A segment states in its name how many files it covers, and covers no file of another segment.
    So an index stays complete if the new segments cover as many files as are new. A document lists
    its files, so that a lookup needs no such record.
    """
    if not state.is_tree or change.head is HeadKind.DOCUMENT:
        return ()
    descriptor = change.new_descriptor or state.descriptor
    return tuple(
        column for column in descriptor.stored_index if _is_covered_after(state, change, column)
    )


def _is_covered_after(state: State, change: Change, column: str) -> bool:
    was_covered = column in state.indexed or not state.live.count
    if column in change.covers:
        return was_covered or state.version == change.base_version
    edits = [edit for edit in change.edits if edit.name == postings_of(column)]
    if change.erases or any(edit.removed for edit in edits):
        return False
    added = [segment for edit in edits for segment in edit.added]
    if not was_covered or not added:
        return was_covered and not change.added
    # Opening a dataset must not import Parquet.
    from lakebed.index.segment import file_count_of

    return sum(file_count_of(segment) or 0 for segment in added) == len(change.added)


def _merged_schema_file(state: State, change: Change) -> int:
    """Return the version whose schema the schema file may lack; a commit that writes it sets 0."""
    old, new = state.descriptor, change.new_descriptor
    is_same = new is None or (
        new.schema == old.schema and new.partition_types == old.partition_types
    )
    return state.schema_file_due if is_same else state.version + 1


def _merged_move(state: State, change: Change) -> HeadFormat | None:
    return None if change.moves_to is state.head_format else change.moves_to


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A dataset after a commit.

    Attributes:
        layout: Descriptor of the dataset, and all that is needed to find and read its data files.
        head_format: Format of the head.
        live: The live data files.
        created_at: Time of creation as stored in the head, set once.
        version: 0 at creation, incremented by each commit.
        commit_id: Id of the commit that made this version; empty in a dataset of another tool.
        committed_at: Time of that commit.
        last_batch_id: The highest batch id that a commit has used.
        lists: Segments of the data that grows with every commit.
        digest: Digest of the labels after the last commit of ours.
        annotations: Metadata entries of other tools; properties are entries as well.
        indices: Kartothek index files, which other tools maintain.
        horizon: Earlier versions can only be read if they are protected: a cleanup has given up the
            others.
        oldest_batch: A batch with a lower id can no longer be committed: a cleanup treated its
            writer as dead, or it was discarded.
        open_batches: Batches with lower ids that can still be committed, since they were not given
            up.
        protections: Versions and batches that no cleanup may give up.
        streams: Progress of the streaming queries that committed to it, the latest last.
        unmet: Declared checks that rows of the version may fail, by name.
        indexed: Columns of data files whose index covers all files of a tree.
        moves_to: Format that the head moves to: this head gets no more commits.
        moved_from: Format that the head came from, and an id, until the first commit to it;
            `CREATION` for a new dataset that its creator may still give up.
        held: The commit that other writers are to let through, until the next commit.
        schema_file_due: Version whose schema the schema file may lack, if its writer stopped right
            after the commit; 0 if the file is known to be written.
    """

    layout: Layout
    head_format: HeadFormat
    live: Live
    created_at: str
    version: int = 0
    commit_id: str = ""
    committed_at: dt.datetime | None = None
    last_batch_id: int = 0
    lists: Lists = field(default_factory=Lists)
    digest: str = ""
    annotations: Mapping[str, Any]
    indices: Mapping[str, str]
    horizon: int = head_fact(0, int, lambda state, change: max(state.horizon, change.horizon or 0))
    oldest_batch: int = head_fact(0, int, _merged_oldest_batch)
    open_batches: tuple[int, ...] = head_fact((), tuple[int, ...], _merged_open_batches)
    protections: tuple[Protection, ...] = head_fact((), tuple[Protection, ...], _merged_protections)
    moves_to: HeadFormat | None = head_fact(None, HeadFormat, _merged_move)  # noqa: RUF009 -- a dataclass field
    moved_from: str = head_fact("", str, lambda _state, _change: "")
    # Releases that do not know this entry drop it: then the runs show the progress.
    streams: tuple[QueryProgress, ...] = head_fact(
        (), tuple[QueryProgress, ...], _merged_streams, is_optional=True
    )
    held: HeldFor | None = head_fact(None, HeldFor, lambda _state, _change: None, is_optional=True)  # noqa: RUF009 -- a dataclass field
    unmet: tuple[UnmetCheck, ...] = head_fact((), tuple[UnmetCheck, ...], _merged_unmet)
    indexed: tuple[str, ...] = head_fact((), tuple[str, ...], _merged_indexed)
    # Releases that do not know this entry drop it, and leave the file to `check`.
    schema_file_due: int = head_fact(0, int, _merged_schema_file, is_optional=True)
    _memo: _Memo = field(default_factory=_Memo, init=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.layout.name

    @property
    def descriptor(self) -> DatasetDescriptor:
        """Descriptor of the dataset."""
        return self.layout.descriptor

    @property
    def lineage(self) -> Lineage:
        """Number of the current schema, and how files of older schemas are read."""
        return self.layout.lineage

    @property
    def is_ours(self) -> bool:
        """True if Lakebed created the dataset, so that it can commit to it."""
        return self.layout.is_ours

    def as_of(self, descriptor: DatasetDescriptor, lineage: Lineage) -> State:
        """Return the same state with another descriptor and the lineage of its schema."""
        return replace(self, layout=self.layout.as_of(descriptor, lineage))

    def may_commit(self, batch_id: int) -> bool:
        """Return whether an uncommitted batch can be committed: no cleanup or discard gave it up."""
        return batch_id >= self.oldest_batch or batch_id in self.open_batches

    @property
    def is_changed_by_others(self) -> bool:
        """True if another tool has changed the data files since our last commit.

        Cost:
            A hash over all labels the first time; about 0.1 s for a million.
        """
        if self.is_tree:
            return False  # other tools cannot write to it
        if self._memo.digest is None:
            self._memo.digest = self.live.digest
        return self.is_ours and self.digest != self._memo.digest

    def standing_of_checks(self) -> dict[str, Verdict]:
        """Return for each declared check whether all rows of the version pass it.

        Returns:
            `passed`, or `warned` or `not checked` if some rows may fail, by the name of the check.
        """
        checks = self.descriptor.checks
        if checks and self.is_changed_by_others:
            return dict.fromkeys(checks, "not checked")
        unmet = {one.name: one.outcome for one in self.unmet}
        return {name: unmet.get(name, "passed") for name in checks}

    def trust_digest(self) -> None:
        """Use the stored digest as that of the labels, since we have just made the state."""
        self._memo.digest = self.digest

    @property
    def is_unconfirmed(self) -> bool:
        """True if a hand-over has written the head, and the old one was not seen beside it since.

        If it is the only head, it was written after the dataset was dropped, and is invalid.
        """
        return self.moved_from.endswith(UNCONFIRMED)

    @property
    def side_keys(self) -> tuple[str, ...]:
        """Keys of all side objects that the head names."""
        return (*self.lists.keys, *self.indices.values())

    @property
    def is_tree(self) -> bool:
        """True if the head is a tree: its leaves list the files."""
        return self.live.is_tree

    @property
    def is_of_tree(self) -> bool:
        """True for a tree, and for an older version of one, whose files are listed."""
        return self.is_tree or not isinstance(self.lists.files, tuple)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all live data files.

        Cost:
            All leaves of a tree; nothing for another state. Most callers need only `live`.
        """
        return self.live.labels

    def with_labels(self, labels: Iterable[str]) -> State:
        """Return the same state with other live files."""
        return replace(self, live=Listed(tuple(labels)))

    def with_older_files(self, labels: Iterable[str]) -> State:
        """Return the same state with other live files, which may be of former dimensions.

        They are not searched by what the dimensions are made of, since other values were allowed.
        """
        layout = replace(self.layout, has_former_levels=True)
        return replace(self.with_labels(labels), layout=layout)

    def directories(self) -> Mapping[str, Sequence[str]]:
        """Return the labels by directory, in order of first appearance.

        Cost:
            A pass over all labels the first time.
        """
        if self._memo.directories is None:
            self._memo.directories = _by_directory(self.labels)
        return self._memo.directories


HEAD_FACTS: Mapping[str, HeadFact] = {
    each.name: each.metadata["head"] for each in fields(State) if "head" in each.metadata
}


class Change(Entry, frozen=True, kw_only=True):
    """The draft of a commit, independent of the state that it is applied to.

    It is an `Entry` whose facts the verb sets. `apply` derives the others from the state: the
    fields `version`, `committed_at`, `removed`, `partitions`, `protected`, `unprotected`, `erased`
    and `descriptor` of a draft have no meaning. The fields that are declared here change the head.

    Attributes:
        commit_id: Stable over retries; empty until the transaction sets it.
        operation: Empty for the operation of the transaction.
        base_version: The version that the change was computed from.
        edits: Edits of the lists of segments, except those of the history and of the runs, which
            the commit makes itself.
        indices: Keys of Kartothek index files to name, by column.
        indices_of: Digest of the labels that the index files cover; no index is named beside
            other labels.
        scope: The files that the commit replaces.
        new_descriptor: The descriptor from this version on; None if it stays as it is.
        new_lineage: Lineage of the schema of `new_descriptor`; None if it stays as it is.
        oldest_batch: From now on no batch with a lower id may be committed, except open ones.
        open_batches: Ids of batches below `oldest_batch` that may still be committed.
        protect: Protections to add; each replaces one of the same target.
        unprotect: Protections to remove.
        progress: Progress of the streaming query whose epoch is committed.
        lost_indices: Columns whose Kartothek index files are wrong.
        moves_to: Format that the head moves to; see `lakebed.state.handover`.
        erases: Files that the commit takes out of all versions, each with the files that take its
            place; see `lakebed.state.erasing`.
        rewritten_sources: Fingerprint and size of raw files that were rewritten, by key.
        earlier: Changes that make the versions right before it, by the same put.
        made_at: When another tool has made the version that an adoption takes over; None for now.
        leaves_unchecked: Whether checks that the new descriptor adds are not tested on the rows that
            the dataset has.
        head: The kind of head that the dataset gets; None if it keeps its kind.
        covers: Columns whose index was proved to cover all files of the base version. Segments that
            its edits remove and add cover the same live files.
        leaves: Rebuilt leaves of a tree, by id of the lost one; see `lakebed.state.tree.tree_repair`.
    """

    version: int = 0
    commit_id: str = ""
    operation: str = ""
    committed_at: dt.datetime = FIRST_MOMENT
    base_version: int = 0
    edits: tuple[Edit, ...] = ()
    indices: Mapping[str, str] = {}
    indices_of: str = ""
    scope: Scope = Nothing()
    new_descriptor: DatasetDescriptor | None = None
    new_lineage: Lineage | None = None
    oldest_batch: int = 0
    open_batches: tuple[int, ...] = ()
    protect: tuple[Protection, ...] = ()
    unprotect: tuple[Protection, ...] = ()
    progress: QueryProgress | None = None
    lost_indices: frozenset[str] = frozenset()
    moves_to: HeadFormat | None = None
    erases: Mapping[str, tuple[str, ...]] = {}
    rewritten_sources: Mapping[str, tuple[str, int]] = {}
    earlier: tuple[Change, ...] = ()
    made_at: dt.datetime | None = None
    leaves_unchecked: bool = False
    head: HeadKind | None = None
    covers: frozenset[str] = frozenset()
    leaves: Mapping[bytes, Any] = {}

    @property
    def brought_keys(self) -> tuple[str, ...]:
        """Keys of the objects that were written for the change, except data files."""
        segments = (segment.key for edit in self.edits for segment in edit.added)
        return (*segments, *self.indices.values())

    @property
    def brings_unreserved(self) -> bool:
        """True if it names objects that were written before, and that no reservation protects."""
        is_reserved = self.batch_id is not None and self.operation != "adopt"
        return not is_reserved and bool(self.brought_keys)


def apply(state: State, change: Change, now: dt.datetime) -> tuple[State, Entry]:
    """Return the state after the change, and its entry in the history. No I/O, except of a tree.

    Segments are appended, not merged; the new entry's own segment is not yet in the history. A tree
    has the same files as before: `lakebed.state.tree.tree_commit` enters the commit into its root.

    Args:
        state: The state to change.
        change: The change, already checked for conflicts.
        now: The current time, aware; the time of the last commit is used if that is later.
    """
    removed = state.live.removed_by(change.scope)
    added = change.added
    touched = dict.fromkeys(partition_of_label(label) for label in (*removed, *added))
    live, edits = state.live, change.edits
    if state.is_tree:
        check_fits_tree(state, change)
        edits = tuple(edit for edit in edits if edit.name != FILES)
        if change.erases:
            touched = _places_of(sorted(live.holding(change.erases.keys())), change.erases)
    elif change.erases:
        added, live = (), Listed(replaced(state.labels, change.erases))
        touched = _places_of(state.labels, change.erases)
    else:
        gone = frozenset(removed)
        kept = (label for label in state.labels if label not in gone) if gone else state.labels
        live = Listed((*kept, *added))
    if change.made_at is not None:
        now = min(now, change.made_at)  # the clock of its writer may have been ahead
    committed_at = max(now, state.committed_at) if state.committed_at else now
    computed: dict[str, Any] = {
        "version": state.version + 1,
        "committed_at": committed_at,
        "removed": removed,
        "partitions": tuple(touched),
        "protected": tuple(protection.target for protection in change.protect),
        "unprotected": tuple(protection.target for protection in change.unprotect),
        "descriptor": None,
        "added": added,
        "erased": tuple(sorted(mark_of(state.layout.key(label)) for label in change.erases)),
    }
    digest = live.digest
    # Only a complete index is named: those that other tools built do not cover our new files.
    is_changed = bool(change.added or removed or change.erases) or state.is_tree
    indices = {} if is_changed else _indices(state, change, digest)
    facts: dict[str, Any] = {name: fact.merged(state, change) for name, fact in HEAD_FACTS.items()}
    if change.new_descriptor is not None:
        lineage = state.lineage if change.new_lineage is None else change.new_lineage
        before, after = state.descriptor.properties, change.new_descriptor.properties
        changed = {name for name in after if after[name] != before.get(name)}
        others = {name: own for name, own in state.annotations.items() if name not in changed}
        state = replace(state.as_of(change.new_descriptor, lineage), annotations=others)
        computed["descriptor"] = describe(change.new_descriptor, lineage)
    entry = Entry(**{name: getattr(change, name) for name in Entry.__struct_fields__} | computed)
    new = replace(
        state,
        live=live,
        version=entry.version,
        commit_id=change.commit_id,
        committed_at=committed_at,
        last_batch_id=max(state.last_batch_id, change.batch_id or 0),
        lists=state.lists.edited(
            edits,
            state.descriptor.stored_index,
            is_base=state.version == change.base_version,
        ),
        digest=digest,
        indices=indices,
        **facts,
    )
    return new, entry


def _places_of(labels: Iterable[str], erases: Mapping[str, tuple[str, ...]]) -> dict[str, None]:
    """Return the partitions of live files that an erasure replaces; an emptied one is not named."""
    new = (one for label in labels if label in erases for one in erases[label])
    return dict.fromkeys(map(partition_of_label, new))


def _indices(state: State, change: Change, digest: str) -> dict[str, str]:
    """Return the Kartothek index files to name after a change that keeps all data files."""
    lost = set(change.lost_indices)
    if change.new_descriptor is not None:
        if change.new_descriptor.schema != state.descriptor.schema:
            return {}
        lost |= {*state.descriptor.stored_index} - {*change.new_descriptor.stored_index}
    kept = {column: key for column, key in state.indices.items() if column not in lost}
    return {**kept, **(change.indices if change.indices_of == digest else {})}


def adopt(state: State, known: tuple[str, ...], now: dt.datetime, commit_id: str) -> Entry:
    """Return the entry for the changes by other tools since our last commit.

    Args:
        state: The current state.
        known: The labels after our last commit.
        now: The current time, aware.
        commit_id: Commit id of the entry.
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
        checks=tuple(not_checked(*one) for one in state.descriptor.checks.items()) if added else (),
    )


def _by_directory(labels: tuple[str, ...]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    last, group = None, []
    # Files of a batch are adjacent, so few of them need a lookup.
    for label, directory in zip(
        labels, [label.rpartition("/")[0] for label in labels], strict=True
    ):
        if directory != last:
            last, group = directory, groups.setdefault(directory, [])
        group.append(label)
    return groups


def new_labels(before: Sequence[str], after: Sequence[str]) -> frozenset[str]:
    """Return the labels of a later state that an earlier one lacks.

    Commits keep the labels in order and add new ones at the end. So one pass finds them, without a
    set of all labels. If another tool has changed the order, labels of both states are among them,
    and so are files that were removed and restored.

    >>> new_labels(["a", "b", "c"], ["a", "c", "d"]) == {"d"}
    True
    """
    position = 0
    for label in before:
        if position < len(after) and after[position] == label:
            position += 1
    return frozenset(after[position:])


def refuse_tree(state: State, operation: str) -> None:
    """Refuse an operation that a dataset whose head is a tree does not have.

    Args:
        state: The state of the dataset.
        operation: The operation, as a noun, such as `cleanup`.

    Raises:
        ReadOnlyError: The head is a tree.
    """
    if state.is_tree:
        raise ReadOnlyError(
            f"The head of dataset {state.name!r} is a tree, for which there is no {operation} in "
            "this release.",
            hint=f"Move the head to a document first: lakebed compact {state.name} --head document.",
        )


def check_fits_tree(state: State, change: Change) -> None:
    """Check that a commit to a tree only does what the root can state.

    Raises:
        ReadOnlyError: It moves the head to another format.
    """
    if change.moves_to is not None:
        refuse_tree(state, f"head in {change.moves_to}")


def is_one_dataset(one: State, other: State) -> bool:
    """Return whether two heads belong to one dataset, and not to two datasets of the same name."""
    if one.created_at != other.created_at or one.is_ours != other.is_ours:
        return False
    are_both_new = one.version == other.version == 0
    return not are_both_new or one.commit_id == other.commit_id


def should_be_tree(state: State) -> bool:
    """Return whether a document lists so many files that a tree would be faster."""
    return state.is_ours and not state.is_tree and state.live.count > MOST_LISTED


def have_same_files(one: State, other: State) -> bool:
    """Return whether two states have the same files; those of a tree only change by commits."""
    if one.is_tree and other.is_tree:
        return one.version == other.version
    return one.labels == other.labels


def claim_of(state: State) -> int:
    """Return the rank of a head beside that of another dataset under the same name.

    - 3: it has a commit.
    - 2: it was moved, and has no commit since. It may have been written long after its hand-over.
    - 1: it has no commit, but its creation may have been reported as successful.
    - 0: its creation has not been reported yet.
    - -1: it is unconfirmed, and was written too late, since the old head is not there.
    """
    if state.is_unconfirmed:
        return -1
    if state.version == 0 and not state.is_changed_by_others:
        return 0 if state.moved_from == CREATION else 1
    return COMMITTED if state.moved_from else COMMITTED + 1
