"""Publish to Kartothek: a head and a schema file, by which plateau and kartothek read the files.

The dataset `<name>-kartothek` has no file of its own: its head leads to those of the dataset. So a
garbage collection of these tools finds nothing to delete. The head is replaced as a whole, and only
as it was read; it records the version that it shows, and a digest of its list of files.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    InvalidInputError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    UnsupportedVersionError,
)
from lakebed.model.layout import KARTOTHEK_NOTE, TABLE, kartothek_name, schema_key
from lakebed.model.names import check_dataset_name
from lakebed.state import kartothek
from lakebed.state.codec import shown_properties
from lakebed.state.head import (
    METADATA_VERSION,
    PUBLISHED_FROM,
    HeadDocument,
    HeadFormat,
    decode_head,
    encode_head,
    encode_partitions,
)
from lakebed.state.published import Note
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.tables import engine
from lakebed.tables.engine import Request, check_deadline
from lakebed.tables.outcome import Publication
from lakebed.tables.shown_facts import check_format
from lakebed.tables.since import find_since

_PREFIX = "lakebed.published_"
_CREATED, _VERSION, _COMMIT = f"{_PREFIX}created_at", f"{_PREFIX}version", f"{_PREFIX}commit"
_DIGEST = f"{_PREFIX}digest"
_OURS, _OTHER = HeadFormat.MSGPACK, HeadFormat.JSON  # plateau writes the other one


def publish(
    store: Store,
    dataset: str,
    *,
    check: bool = False,
    repair: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress = NO_PROGRESS,
) -> Publication:
    """Bring the Kartothek dataset of a dataset into step; see `Dataset.publish`."""
    began = time.monotonic()
    request = Request(check=check, repair=repair, dry_run=dry_run)
    target = _KartothekTarget(store, dataset, on_progress)
    note = _note(store, dataset)
    return engine.publish(store, dataset, target, note, request, to="kartothek", began=began)


def unpublish(store: Store, dataset: str, *, dry_run: bool = False) -> bool:
    """Delete the head and the schema file of the Kartothek dataset; see `Dataset.unpublish`.

    Cost:
        Two GETs of the head, one of the note, and their deletion.
    """
    name, note = kartothek_name(dataset), _note(store, dataset)
    heads = [
        head for head in (_find(store, dataset, one) for one in (_OURS, _OTHER)) if head is not None
    ]
    for head in heads:
        if not head.is_of(dataset):
            raise _not_ours(store, name)
    if not dry_run:
        for head in heads:
            store.delete_if_match(head.key, etag=head.etag)
        if heads:
            store.delete([schema_key(name, TABLE)])
        note.read(is_damage_nothing=True)
        if note.is_there:
            note.forget()
    return bool(heads)


def drop_with(store: Store, dataset: str) -> None:
    """Delete the Kartothek dataset of a dataset that is about to be dropped, if it has one.

    Cost:
        One HEAD of the note; with a publication that of `unpublish`.
    """
    with contextlib.suppress(ObjectNotFoundError):
        store.size(KARTOTHEK_NOTE.format(dataset))
        unpublish(store, dataset)


def _note(store: Store, dataset: str) -> Note:
    return Note(store, dataset, dataset, kind="kartothek", name="kartothek")


def _not_ours(store: Store, name: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"There is a dataset {name!r} in {store.uri}, which is not a publication of this one.",
        hint="It was not touched. Rename or drop it, and publish again.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundHead:
    """A head of the Kartothek dataset.

    Attributes:
        key: Its key.
        etag: Its etag.
        document: Its content; None if it cannot be read.
        problem: Reason why it cannot be read.
    """

    key: str
    etag: str
    document: HeadDocument | None
    problem: str = ""

    def is_of(self, dataset: str) -> bool:
        """Return whether it is the publication of a dataset; one that cannot be read counts."""
        return self.document is None or self.document.metadata.get(PUBLISHED_FROM) == dataset

    def text(self, name: str) -> str:
        """Return an entry of its metadata; empty if it has none."""
        return "" if self.document is None else str(self.document.metadata.get(name, ""))

    @property
    def version(self) -> int:
        """The version that it shows; -1 if it does not tell."""
        text = self.text(_VERSION)
        return int(text) if text.isascii() and text.isdecimal() else -1

    @property
    def is_unchanged(self) -> bool:
        """True if its list of files is as Lakebed wrote it."""
        return self.document is not None and self.text(_DIGEST) == _digest_of(self.document)


def _find(store: Store, dataset: str, head_format: HeadFormat) -> _FoundHead | None:
    key = head_format.key(kartothek_name(dataset))
    try:
        stored = store.get(key)
    except ObjectNotFoundError:
        return None
    try:
        document = decode_head(stored.data, head_format, key)
    except (CorruptMetadataError, UnsupportedVersionError) as exc:
        return _FoundHead(key=key, etag=stored.etag, document=None, problem=exc.message)
    return _FoundHead(key=key, etag=stored.etag, document=document)


def _digest_of(document: HeadDocument) -> str:
    partitions = document.partitions
    data = b"" if partitions is None else partitions.encoded
    keys = ",".join(document.partition_keys or ()).encode()
    return hashlib.blake2b(data + b"\n" + keys, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The changes that bring the Kartothek dataset in step with the head.

    Attributes:
        state: State of the dataset.
        found: The head by now.
        other: The head in the other format, which another tool has written.
        added: Number of files to add.
        removed: Number of files to remove.
        differences: Differences other than files.
        foreign: Changes of other writers.
        damaged: Reasons why the head cannot be read.
    """

    state: State
    found: _FoundHead | None
    other: _FoundHead | None
    added: int = 0
    removed: int = 0
    differences: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()

    @property
    def is_same_version(self) -> bool:
        """True if the head shows the version of the state."""
        found, state = self.found, self.state
        return found is not None and (
            (found.version, found.text(_COMMIT), found.text(_CREATED))
            == (state.version, state.commit_id, state.created_at)
        )


class _KartothekTarget:
    """The Kartothek dataset of one dataset."""

    def __init__(self, store: Store, dataset: str, on_progress: OnProgress) -> None:
        self._store = store
        self._dataset = dataset
        self._name = check_dataset_name(kartothek_name(dataset))
        self._on_progress = on_progress

    @property
    def title(self) -> str:
        return f"Kartothek {self._name}"

    def plan(self, state: State, note: Note, *, is_full: bool) -> _Plan:
        del note  # the head itself records what it shows
        check_format(state, "Kartothek")
        found, other = (_find(self._store, self._dataset, one) for one in (_OURS, _OTHER))
        for head in (found, other):
            if head is not None and not head.is_of(self._dataset):
                raise _not_ours(self._store, self._name)
        foreign = []
        if other is not None:
            foreign.append(f"{other.key!r}, a head in the other format")
        if found is not None and found.document is not None and not found.is_unchanged:
            foreign.append(f"other files in {found.key!r}")
        if foreign and not is_full:
            raise InvalidInputError(
                f"Others have written to the Kartothek dataset {self._name!r}: "
                f"{'; '.join(foreign)}. These changes are not in the dataset; nothing was published.",
                hint="If you want their rows, append them to the dataset first. Then publish with "
                "repair, which reverts their changes and keeps their files.",
            )
        plan = _Plan(
            state=state,
            found=found,
            other=other,
            foreign=tuple(foreign),
            damaged=() if found is None or not found.problem else (found.problem,),
        )
        return self._counted(plan, is_full=is_full)

    def _counted(self, plan: _Plan, *, is_full: bool) -> _Plan:
        """Return a plan with the number of files to add and to remove."""
        state, found = plan.state, plan.found
        if found is None or found.document is None:
            return replace(plan, added=state.live.count)
        if not (is_full or plan.foreign):
            since = find_since(
                self._store, state, found.version, found.text(_CREATED), found.text(_COMMIT)
            )
            if since is not None:
                added, removed = since.labels
                return replace(plan, added=len(added), removed=len(removed))
        partitions = found.document.partitions
        named = set() if partitions is None else set(partitions.decode(dict[str, object]))
        count = sum(label in named for piece in state.live.pieces() for label in piece)
        is_other = is_full and not plan.foreign and not self._is_schema_there(state)
        return replace(
            plan,
            added=state.live.count - count,
            removed=len(named) - count,
            differences=("the schema file",) if is_other else (),
        )

    def _is_schema_there(self, state: State) -> bool:
        try:
            held = bytes(self._store.get(schema_key(self._name, TABLE)).data)
        except ObjectNotFoundError:
            return False
        return held == self._schema_of(state)

    def _schema_of(self, state: State) -> bytes:
        descriptor = state.descriptor
        return kartothek.encode_schema(descriptor.schema, descriptor.partition_types)

    def is_to_change(self, plan: _Plan) -> bool:
        return not plan.is_same_version or bool(
            plan.added or plan.removed or plan.differences or plan.foreign or plan.damaged
        )

    def apply(self, plan: _Plan, note: Note) -> bool:
        state, found = plan.state, plan.found
        tally = Tally(self._on_progress, f"publish to {self.title}", {"files": plan.added})
        data = encode_head(self._document(state), _OURS)
        check_deadline(note, self.title)
        # The tools find no dataset without it, and read new columns as null with an older one.
        self._store.put(schema_key(self._name, TABLE), self._schema_of(state))
        try:
            if found is None:
                self._store.create(_OURS.key(self._name), data)
            else:
                self._store.replace(found.key, data, if_match=found.etag)
        except (ObjectExistsError, PreconditionFailedError, ObjectNotFoundError):
            return False
        if plan.other is not None:
            self._store.delete_if_match(plan.other.key, etag=plan.other.etag)
        tally.finish()
        return True

    def _document(self, state: State) -> HeadDocument:
        labels: Sequence[str] = [label for piece in state.live.pieces() for label in piece]
        document = HeadDocument(
            dataset_metadata_version=METADATA_VERSION,
            dataset_uuid=self._name,
            metadata={
                "creation_time": state.created_at,
                **shown_properties(state.descriptor.properties),
                PUBLISHED_FROM: self._dataset,
                _CREATED: state.created_at,
                _VERSION: str(state.version),
                _COMMIT: state.commit_id,
            },
            partitions=encode_partitions(labels, state.layout.naming, _OURS),
            partition_keys=list(state.layout.partition_keys),
        )
        document.metadata[_DIGEST] = _digest_of(document)
        return document

    def report(self, plan: _Plan, *, is_applied: bool) -> Publication:
        return Publication(
            kind="kartothek",
            table=f"{self._store.uri}/{self._name}",
            version=plan.state.version,
            is_applied=is_applied,
            created=plan.found is None,
            schema_changes=plan.differences,
            added_count=plan.added,
            removed_count=plan.removed,
            unchanged_count=plan.state.live.count - plan.added,
            foreign=plan.foreign,
            damaged=plan.damaged,
        )


__all__ = ["drop_with", "publish", "unpublish"]
