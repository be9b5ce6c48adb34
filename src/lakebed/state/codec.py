"""The codec of the head: from a state to its document, and back."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CorruptMetadataError, FormatError, UnsupportedVersionError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import check_under
from lakebed.model.layout import Layout, postings_folder
from lakebed.state import history
from lakebed.state.head import (
    HEAD_ENTRY,
    METADATA_VERSION,
    TREE,
    TREE_VERSION,
    HeadDocument,
    HeadFormat,
    encode_partitions,
    labels_of,
)
from lakebed.state.lists import FILES, HISTORY, RUNS, SOURCES, Lists, Segments
from lakebed.state.state import (
    HEAD_FACTS,
    HeadFact,
    HeldFor,
    Listed,
    Live,
    State,
    describe,
    read_descriptor,
)
from lakebed.store.segments import Segment

FORMAT_VERSION = 5  # of the objects that Lakebed itself writes
# Earlier releases would write rows past the declared checks.
_FORMAT_WITH_CHECKS = 5
_FORMAT_OF_TREES = 4
# Earlier releases would look for the column of a renamed field under the name of the field, in this
# version or in an older one, and read null.
_FORMAT_WITH_RENAMES = 4
# Earlier releases would handle two cases wrongly without noticing. They do not confirm a head that
# moves to the other format, so the head that they leave would pass for a remnant of a dropped
# dataset. They do not identify raw files by path, and would read the same files again.
_FORMAT_OF_MOVING_AND_SOURCES = 3
_FORMAT_WITH_LINEAGE = 2
# Datasets whose schema never changed, and into which no raw files were ingested, keep version 1:
# releases that know neither schema numbers nor sources can read them too. They refuse the others
# instead of reading old files as new ones, or losing the records of raw files.
_FORMAT_WITHOUT_LINEAGE = 1
_PREFIX = "lakebed."
_CREATED = "creation_time"  # Kartothek's own entry
_NO_TEXTS = "[]"
_POSTINGS = "postings"
# Other lists have an entry only if they are not empty, so heads without them stay unchanged.
_ALWAYS = {FILES, HISTORY}
_NUMBER = re.compile(r"[0-9]{1,18}")  # always below 2**63


def to_document(state: State, *, with_partitions: bool = True) -> HeadDocument:
    """Return the head of a dataset of ours, with or without its list of files."""
    if state.is_tree:
        return _tree_document(state)
    return HeadDocument(
        dataset_metadata_version=METADATA_VERSION,
        dataset_uuid=state.name,
        indices=dict(state.indices) or None,
        metadata={
            _CREATED: state.created_at,
            **shown_properties(state.descriptor.properties),
            **state.annotations,
            f"{_PREFIX}format_version": str(_format_version(state)),
            f"{_PREFIX}head": str(state.head_format),
            f"{_PREFIX}version": str(state.version),
            f"{_PREFIX}commit": state.commit_id,
            f"{_PREFIX}committed_at": state.committed_at.isoformat() if state.committed_at else "",
            f"{_PREFIX}batch": str(state.last_batch_id),
            f"{_PREFIX}descriptor": _encode(describe(state.descriptor, state.lineage)),
            **_list_entries(state.lists),
            **_fact_entries(state),
            f"{_PREFIX}digest": state.digest,
        },
        partitions=encode_partitions(state.labels, state.layout.naming, state.head_format)
        if with_partitions
        else None,
        partition_keys=list(state.layout.partition_keys),
    )


def _tree_document(state: State) -> HeadDocument:
    """Return the head of a dataset whose head is a tree."""
    from lakebed.state.tree import tree_root as root
    from lakebed.state.tree.tree_files import TreeFiles

    assert isinstance(state.live, TreeFiles)
    # The files, their facts and the newer history are in the tree.
    older = [one for one in state.lists.history if not isinstance(one, history.OtherEntries)]
    lists = replace(state.lists, files=(), history=tuple(older))
    document = to_document(replace(state, live=Listed(()), lists=lists))
    document.dataset_metadata_version = TREE_VERSION
    document.metadata |= {
        f"{_PREFIX}format_version": str(_FORMAT_OF_TREES),
        HEAD_ENTRY: TREE,
    }
    document.tree = root.encode(state.live.root)
    return document


def _list_entries(lists: Lists) -> dict[str, str]:
    """Return the entries that name the segments; most empty lists have no entry."""
    postings = {column: _keys(segments) for column, segments in lists.postings.items()}
    return {
        _PREFIX + name: _encode(keys)
        for name, keys in (
            (FILES, _keys(lists.files)),
            (HISTORY, _keys(lists.history)),
            (SOURCES, _keys(lists.sources)),
            (_POSTINGS, postings),
            (RUNS, _keys(lists.runs)),
        )
        if keys or name in _ALWAYS
    }


def _keys(segments: Segments) -> list[str]:
    return [segment.key for segment in segments]


def _fact_entries(state: State, *, with_optional: bool = True) -> dict[str, str]:
    """Return the entries of the facts that differ from their default."""
    return {
        _PREFIX + name: _text_of(getattr(state, name))
        for name, fact in HEAD_FACTS.items()
        if getattr(state, name) != fact.default and (with_optional or not fact.is_optional)
    }


def _text_of(value: object) -> str:
    return str(value) if isinstance(value, (int, str)) else _encode(value)


def _format_version(state: State) -> int:
    """Return the lowest format version whose releases handle a state correctly."""
    if state.descriptor.checks:
        return _FORMAT_WITH_CHECKS
    if state.lineage.has_renamed:
        return _FORMAT_WITH_RENAMES
    if state.moves_to is not None or state.is_unconfirmed or state.lists.sources:
        return _FORMAT_OF_MOVING_AND_SOURCES
    is_more = (
        not state.lineage.is_first
        or state.descriptor.index
        # A release that does not know these facts would read or commit files that were given up,
        # or commit to a head that is about to be removed.
        or _fact_entries(state, with_optional=False)
    )
    return _FORMAT_WITH_LINEAGE if is_more else _FORMAT_WITHOUT_LINEAGE


def is_only_head(document: HeadDocument) -> bool:
    """Return whether a JSON head is known to be the only valid one; any other head may have a twin.

    Until the first commit, another writer may have created the dataset in the other format as well.
    """
    entries = document.metadata
    return (
        entries.get(f"{_PREFIX}head") == HeadFormat.JSON
        and entries.get(f"{_PREFIX}version") != "0"
        and not entries.keys() & {f"{_PREFIX}moves_to", f"{_PREFIX}moved_from"}
    )


def _encode(document: object) -> str:
    return msgspec.json.encode(document).decode()


def from_document(
    document: HeadDocument,
    head_format: HeadFormat,
    key: str,
    stored_at: dt.datetime | None = None,
) -> State:
    """Read the head of a dataset of ours.

    Args:
        document: The head as it was decoded.
        head_format: Its format.
        key: Its key, for errors.
        stored_at: Time when the storage stored it, if known: the commits of its last put are in the
            buffer of a tree, and have no other object that shows their time.

    Raises:
        CorruptMetadataError: An entry is missing, has a wrong type, or points outside the dataset.
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
    descriptor, lineage = read_descriptor(ours.text("descriptor"), key)
    layout = Layout.of_ours(name, descriptor, lineage)
    lists = _read_lists(ours, descriptor, name)
    live: Live
    if document.dataset_metadata_version == TREE_VERSION:
        live, lists = _read_tree(document, layout, lists, key, stored_at)
    else:
        live = Listed(labels_of(document, layout.naming, key))
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
        live=live,
        created_at=str(document.metadata.get(_CREATED, "")),
        version=ours.number("version"),
        commit_id=ours.text("commit"),
        committed_at=ours.time("committed_at"),
        last_batch_id=ours.number("batch"),
        lists=lists,
        digest=ours.text("digest"),
        annotations=annotations_of(document, descriptor.properties),
        indices={k: v for k, v in (document.indices or {}).items() if isinstance(v, str)},
        **_read_facts(ours, head_format),
    )


def _read_tree(
    document: HeadDocument, layout: Layout, lists: Lists, key: str, stored_at: dt.datetime | None
) -> tuple[Live, Lists]:
    """Return the files of a tree, and the lists with those that are in it."""
    # Most datasets have no tree: opening them must not import Parquet.
    from lakebed.state.tree import find
    from lakebed.state.tree import folded_commits as commits
    from lakebed.state.tree.directory_order import DirectoryOrder
    from lakebed.state.tree.tree_files import TreeFiles
    from lakebed.state.tree.tree_root import decode

    root = decode(document.tree or b"", key)
    stated = _Entries(document.metadata, key).number("version")
    if root.version != stated:
        raise CorruptMetadataError(
            f"Head {key!r} is of version {stated}, and its tree of version {root.version}.",
            hint="Restore the object from a copy; no data file was touched.",
        )
    root = replace(root, buffer=commits.stamped(root.buffer, stored_at))
    live = TreeFiles(root, DirectoryOrder(layout.partition_types), find.NoLeaves())
    name = layout.name
    facts = find.TreeFacts(root, live.order, name)
    return live, replace(lists, files=facts, history=(*lists.history, *find.history_of(root, name)))


def _read_facts(ours: _Entries, head_format: HeadFormat) -> dict[str, Any]:
    facts: dict[str, Any] = {
        name: ours.fact(name, fact) for name, fact in HEAD_FACTS.items() if name in ours
    }
    # plateau copies the entries of a msgpack head into the JSON head that it writes.
    if facts.get("moves_to") is head_format:
        del facts["moves_to"]
    if isinstance(facts.get("held"), HeldFor) and not facts["held"].seconds:
        del facts["held"]  # it has ended
    return facts


def _read_lists(ours: _Entries, descriptor: DatasetDescriptor, dataset: str) -> Lists:
    def read(name: str) -> Segments:
        keys = ours.texts(name, default=None if name in _ALWAYS else _NO_TEXTS)
        return _parsed(keys, dataset)

    return Lists(
        files=read(FILES),
        history=read(HISTORY),
        sources=read(SOURCES),
        runs=read(RUNS),
        postings=_read_postings(ours, descriptor, dataset),
    )


def _read_postings(
    ours: _Entries, descriptor: DatasetDescriptor, dataset: str
) -> dict[str, Segments]:
    """Read the segments of the indexed columns; each lies in the directory of its column."""
    lists = {}
    for column, keys in ours.lists(_POSTINGS).items():
        if column not in descriptor.stored_index:
            raise ours.corrupt(_POSTINGS, column)
        lists[column] = _parsed(keys, dataset)
        for segment in lists[column]:
            check_under(segment.key, f"{postings_folder(dataset, column)}/")
    return lists


def _parsed(keys: Iterable[str], dataset: str) -> Segments:
    return tuple(Segment.parse(key, dataset) for key in keys)


def is_ours(document: HeadDocument) -> bool:
    """Return whether Lakebed wrote the head, perhaps with later changes by another tool."""
    return f"{_PREFIX}format_version" in document.metadata


def with_hold(document: HeadDocument, state: State, hold: HeldFor) -> bool:
    """Put a hold into a head.

    A head of very many files is quickly changed in this way: its list of files stays as it is.

    Args:
        document: The head, which is changed.
        state: A state of the dataset.
        hold: The hold; without a second, it ends the one of the same commit.

    Returns:
        False if that is not to be: the head is of another dataset, moves to another format, has the
        hold of another commit, or has none that could be ended.
    """
    entries, name = document.metadata, f"{_PREFIX}held"
    there = _Entries(entries, name).fact("held", HEAD_FACTS["held"]) if name in entries else None
    known = there if isinstance(there, HeldFor) else HeldFor("", 0)
    fits = known.commit_id == hold.commit_id or (hold.seconds > 0 and not known.seconds)
    is_one = is_ours(document) and creation_time_of(document) == state.created_at
    if not (is_one and fits) or entries.keys() & {f"{_PREFIX}moves_to", f"{_PREFIX}moved_from"}:
        return False
    entries[name] = _text_of(hold)
    return True


def shown_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that stand as entries of their own in a head, where other tools look."""
    return {name: value for name, value in properties.items() if _is_free(name)}


def annotations_of(
    document: HeadDocument, properties: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the metadata entries that are neither ours nor Kartothek's.

    Args:
        document: The head.
        properties: Properties of the dataset. An entry with the name and value of a property is left
            out; another value is that of another tool.
    """
    return {
        name: value
        for name, value in document.metadata.items()
        if _is_free(name) and (name not in properties or properties[name] != value)
    }


def _is_free(name: str) -> bool:
    return name != _CREATED and not name.startswith(_PREFIX)


def creation_time_of(document: HeadDocument) -> str:
    """Return the time when the dataset was created, as the head states it."""
    return str(document.metadata.get(_CREATED, ""))


class _Entries:
    """Our metadata entries; each must be text in the expected form."""

    def __init__(self, metadata: Mapping[str, Any], key: str) -> None:
        self._metadata = metadata
        self._key = key

    def __contains__(self, name: str) -> bool:
        return _PREFIX + name in self._metadata

    def text(self, name: str) -> str:
        value = self._metadata.get(_PREFIX + name)
        if not isinstance(value, str) or not value:
            raise self.corrupt(name, value)
        return value

    def number(self, name: str) -> int:
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
            return from_json(text, list[str])
        except UNREADABLE as exc:
            raise self.corrupt(name, text) from exc

    def fact(self, name: str, fact: HeadFact) -> object:
        """Read the value of a fact that has an entry."""
        if fact.form is int:
            return self.number(name)
        text = self.text(name)
        try:
            if isinstance(fact.form, type) and issubclass(fact.form, str):
                return fact.form(text)
            return from_json(text, fact.form)
        except (msgspec.MsgspecError, RecursionError, ValueError) as exc:
            raise self.corrupt(name, text) from exc

    def lists(self, name: str) -> dict[str, list[str]]:
        """Read lists of texts by name; empty if the entry is missing."""
        if _PREFIX + name not in self._metadata:
            return {}
        text = self.text(name)
        try:
            return from_json(text, dict[str, list[str]])
        except UNREADABLE as exc:
            raise self.corrupt(name, text) from exc

    def corrupt(self, name: str, value: object) -> FormatError:
        return CorruptMetadataError(
            f"Head {self._key!r}, metadata entry '{_PREFIX}{name}' is {str(value)[:80]!r}.",
            hint="Restore the object from a copy; no data file was touched.",
        )
