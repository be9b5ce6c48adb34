"""Repair of a tree: lost and damaged leaves, copies of the head, and segments of its history.

A leaf is rebuilt from the record of each file: the history states when it was added and removed,
and its facts are in the commits, in other leaves, in the manifest of its batch, or in the file. The
totals in the root prove that a rebuilt leaf has the same files. If its bytes are the same too, they
are put under the old key. Otherwise a commit names another leaf in its place.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from lakebed.errors import CorruptMetadataError, LakebedError
from lakebed.model.keys import batch_id_of, split_label
from lakebed.model.layout import TABLE, Folder
from lakebed.state import history, reservation
from lakebed.state.codec import from_document, to_document
from lakebed.state.erased_files import mark_of, marks_in
from lakebed.state.head import HeadFormat, decode_head, encode_head
from lakebed.state.history import Entry
from lakebed.state.state import State, descriptor_from
from lakebed.state.tree import folded_commits, leaf
from lakebed.state.tree.find import StoredLeaves, read_commits, table_of, table_of_commit
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_merge import check_totals, leaves_of
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.older_version import read_copy
from lakebed.state.tree.tree_commit import (
    SIZES,
    facts_in_order,
    leaf_files,
    put_leaves,
    with_root,
)
from lakebed.state.tree.tree_files import TreeFiles, locate
from lakebed.state.tree.tree_objects import readable_copies
from lakebed.state.tree.tree_root import Buffered, HistoryRef, Root, RootEntry
from lakebed.store.base import Store

ReadFacts = Callable[[Sequence[str]], pa.Table]
"""Computes the facts of data files from their content; leaves files out that cannot be read."""
_FOREVER = 2**62


@dataclass(frozen=True, slots=True)
class _Added:
    """A file, from the commit that added it up to the one that removed it."""

    label: str
    since: int
    ended: int = _FOREVER


class TreeRepair:
    """Rebuilds the lost objects of a tree.

    Attributes:
        rebuilt: Keys of the objects that were put again.
        missing: The reason why an object cannot be rebuilt, by key.
        leaves: Rebuilt leaves whose bytes differ, by id: a commit has to name others in their place.
    """

    def __init__(
        self, store: Store, state: State, broken: Iterable[str], read_facts: ReadFacts
    ) -> None:
        """Take a tree and its lost objects.

        Args:
            store: The store that holds the dataset.
            state: The current state of a tree.
            broken: Keys of objects that are lost or damaged.
            read_facts: Function that computes the facts of data files.
        """
        assert isinstance(state.live, TreeFiles)
        self.rebuilt: list[str] = []
        self.missing: dict[str, str] = {}
        self.leaves: dict[bytes, Files] = {}
        self._store, self._state, self._tree = store, state, state.live
        self._broken = frozenset(broken)
        self._read_facts = read_facts
        self._order = state.live.order
        self._stored = StoredLeaves(store, state.name)
        self._known: dict[bytes, Files | None] = {}  # files of leaves, None for a lost one
        self._commits: dict[int, Buffered] = {one.entry.version: one for one in self._root.buffer}

    @property
    def _root(self) -> Root:
        return self._tree.root

    @property
    def keys(self) -> list[str]:
        """The keys of the lost leaves that a commit has to replace."""
        return [self._refs[leaf_id].key(self._state.name) for leaf_id in self.leaves]

    def run(self) -> None:
        """Rebuild what can be, and put it where it was.

        Raises:
            StorageError: The store failed. What was put again stays.

        Cost:
            The whole tree and its history; of files whose facts are nowhere else the content. A PUT
            for each object.
        """
        for one in self._root.history:
            self._read_or_rebuild(one)
        lost = self._lost_leaves()
        # All are looked for before one is put: two may be stored under each other's key.
        misplaced = {ref.id: data for ref in lost if (data := self._misplaced(ref)) is not None}
        for ref in lost:
            if ref.id in misplaced:
                self._put(ref.key(self._state.name), misplaced[ref.id])
                self._known.pop(ref.id, None)
        for ref in lost:
            if ref.id not in misplaced:
                self._rebuild_leaf(ref)
        for version, key in sorted(readable_copies(self._state, self._root).items()):
            if key in self._broken:
                self._rebuild_copy(version, key)

    def _put(self, key: str, data: bytes) -> None:
        self._store.put(key, data)
        self.rebuilt.append(key)

    # Segments of the history

    def _read_or_rebuild(self, one: HistoryRef) -> None:
        key = one.key(self._state.name)
        try:
            commits: Sequence[Buffered] = read_commits(self._store, self._state.name, one)
        except CorruptMetadataError:
            try:
                commits = self._commits_of(one)
            except CorruptMetadataError as exc:
                self.missing[key] = exc.message
                return
            self._put(key, folded_commits.encode(commits))
        self._commits.update((commit.entry.version, commit) for commit in commits)

    def _commits_of(self, one: HistoryRef) -> list[Buffered]:
        """Return the commits of a lost segment from the segments that it was made of.

        Raises:
            CorruptMetadataError: They are not there any more, or are not the same.
        """
        versions = range(one.first, one.last + 1)
        lost = [version for version in versions if version not in self._merged_commits]
        if lost:
            raise _beyond(
                f"the segments that it was made of lack version {lost[0]}. Versions {one.first} to "
                f"{one.last} cannot be read, unless a copy of the head is of that version"
            )
        commits = [self._merged_commits[version] for version in versions]
        if history.weight_of(commit.entry for commit in commits) != one.weight:
            raise _beyond("the segments that it was made of have other commits")
        before, after = self._copy_at(one.first - 1), self._copy_at(one.last)
        if before is not None and after is not None:
            found = self._advanced(before[1], commits)
            if found.totals != after[1].totals:
                raise _beyond("the commits lead to other files than those of the copy of the head")
        return commits

    @cached_property
    def _merged_commits(self) -> dict[int, Buffered]:
        """The commits in segments that later ones were made of, by version."""
        folder = f"{Folder.HISTORY.of(self._state.name)}/"
        marks = marks_in(self._recorded)
        found: dict[int, Buffered] = {}
        for info in self._store.list(folder):
            try:
                stored = self._store.get(info.key)
                commits = folded_commits.decode_found(stored.data, info.key)
            except LakebedError:
                continue
            for one in folded_commits.stamped(commits, stored.modified_at):
                named = map(self._state.layout.key, (*one.entry.added, *one.entry.removed))
                if marks.isdisjoint(map(mark_of, named)):  # else it is from before an erasure
                    found.setdefault(one.entry.version, one)
        return found

    @cached_property
    def _recorded(self) -> list[Entry]:
        """The entries that can be read, oldest first, without labels that leaves stand for."""
        entries: list[Entry] = []
        for one in self._state.lists.history:
            if not isinstance(one, history.OtherEntries):
                with suppress(CorruptMetadataError):
                    entries += history.read(self._store, (one,))
        return [*entries, *(self._commits[version].entry for version in sorted(self._commits))]

    # Copies of the head

    def _copy_at(self, version: int) -> tuple[State, Root] | None:
        """Return a copy of the head; None if there is none, or it cannot be read."""
        if version not in self._root.copies:
            return None
        key = self._root.copy_key(self._state.name, version)
        try:
            return read_copy(self._store, self._state.name, version, key)
        except CorruptMetadataError:
            return None

    def _advanced(self, root: Root, commits: Iterable[Buffered]) -> Root:
        for one in commits:
            gone = locate(root, one.entry, self._stored, self._order)
            root = root.after(one.entry, one.facts, gone)
        return root

    def _between(self, after: int, last: int) -> list[Buffered]:
        lost = [version for version in range(after + 1, last + 1) if version not in self._commits]
        if lost:
            raise _beyond(f"the commit of version {lost[0]} is lost")
        return [self._commits[version] for version in range(after + 1, last + 1)]

    def _rebuild_copy(self, version: int, key: str) -> None:
        try:
            state = self._later_copy(version) or self._first_copy(version)
            live = state.live
            assert isinstance(live, TreeFiles)
            following = next((each for each in self._root.copies if each > version), None)
            then = None if following is None else self._copy_at(following)
            if then is not None and following is not None:
                commits = self._between(version, following)
                if self._advanced(live.root, commits).totals != then[1].totals:
                    raise _beyond(f"it would not lead to the files of version {following}")
        except CorruptMetadataError as exc:
            self.missing[key] = exc.message
            return
        self._put(key, encode_head(to_document(state), HeadFormat.MSGPACK))

    def _later_copy(self, version: int) -> State | None:
        """Return the copy at a version from the last one before it; None if there is none."""
        earlier = [each for each in self._root.copies if each < version]
        copied = next(filter(None, map(self._copy_at, reversed(earlier))), None)
        if copied is None:
            return None
        state, root = copied
        commits = self._between(root.version, version)
        root = self._advanced(root, commits)
        files = root.held_files(self._order)
        return self._copied(state, commits, replace(root, buffer=()), files)

    def _first_copy(self, version: int) -> State:
        """Return the copy at a version from the whole history."""
        live = [one for one in self._files_ever if one.since <= version < one.ended]
        entries = [one for one in self._recorded if one.version <= version]
        past = history.replay(entries, version)
        descriptor, lineage = descriptor_from(past.descriptor, Folder.HISTORY.of(self._state.name))
        state = replace(
            self._state.as_of(descriptor, lineage),
            version=version,
            commit_id=past.entry.commit_id,
            committed_at=past.entry.committed_at,
        )
        files = self._with_facts(live)
        return self._copied(state, (), Root(version=version, totals=files.totals()), files)

    def _copied(self, state: State, commits: Sequence[Buffered], root: Root, files: Files) -> State:
        """Return a copy of the head with further files in a leaf of their own."""
        leaves = []
        if files.count:
            level = SIZES.level_of(files.count)
            leaves = leaves_of(files, self._order, SIZES, level=level, run=root.runs)
            put_leaves(self._store, self._state.name, leaves, [])
        version, folder = root.version, Folder.HISTORY.of(self._state.name)
        root = replace(
            root,
            folded_at=version,
            runs=root.runs + 1,
            refs=(*root.refs, *(each.ref for each in leaves)),
            history=tuple(one for one in self._root.history if one.last <= version),
            origin=self._root.origin,
        )
        root.check_balance()
        for one in commits:
            entry = one.entry
            if entry.descriptor is not None:
                state = state.as_of(*descriptor_from(entry.descriptor, folder))
            state = replace(
                state,
                version=entry.version,
                commit_id=entry.commit_id,
                committed_at=entry.committed_at,
                last_batch_id=max(state.last_batch_id, entry.batch_id or 0),
            )
        return with_root(state, root, TreeFiles(root, self._order, self._stored))

    # Leaves

    @cached_property
    def _roots(self) -> list[Root]:
        """The current root, and those of all copies of the head that can be read, newest first."""
        roots = [self._root]
        for info in self._store.list(f"{Folder.ROOTS.of(self._state.name)}/"):
            try:
                document = decode_head(self._store.get(info.key).data, HeadFormat.MSGPACK, info.key)
                live = from_document(document, HeadFormat.MSGPACK, info.key).live
            except LakebedError:
                continue
            if isinstance(live, TreeFiles):
                roots.append(live.root)
        return sorted(roots, key=lambda root: -root.version)

    @cached_property
    def _brought(self) -> dict[bytes, Buffered]:
        """The commits that name leaves of files that they added, by id of the leaf."""
        return {ref.id: one for one in self._commits.values() for ref in one.entry.brought}

    @cached_property
    def _dropped(self) -> dict[bytes, Buffered]:
        """The commits that name leaves of files that they removed, by id of the leaf."""
        return {ref.id: one for one in self._commits.values() for ref in one.entry.dropped}

    @cached_property
    def _refs(self) -> dict[bytes, Ref]:
        """All leaves that are named, those of files that a commit added first."""
        of_commits = (
            *(ref for one in self._commits.values() for ref in one.entry.brought),
            *(ref for one in self._commits.values() for ref in one.entry.dropped),
        )
        of_roots = (ref for root in self._roots for ref in root.refs)
        found: dict[bytes, Ref] = {}
        for ref in (*of_commits, *of_roots):
            found.setdefault(ref.id, ref)
        return found

    def _lost_leaves(self) -> list[Ref]:
        return [ref for ref in self._refs.values() if ref.key(self._state.name) in self._broken]

    def _files(self, ref: Ref) -> Files | None:
        """Return the files of a leaf, without facts; None if it is lost."""
        if ref.id not in self._known:
            try:
                files = self._stored.files(ref)
                check_totals(ref, files)
            except CorruptMetadataError:
                self._known[ref.id] = None
            else:
                self._known[ref.id] = files
        return self._known[ref.id]

    def _rebuild_leaf(self, ref: Ref) -> None:
        key = ref.key(self._state.name)
        files = self._rebuilt_files(ref)
        if files is None:
            self.missing[key] = (
                "no record of its files gives the number and the checksum that the root states"
            )
            return
        self._known[ref.id] = replace(files, facts=None)
        self.__dict__.pop("_files_ever", None)  # a commit may name the leaf
        data = self._same_bytes(ref, files)
        if data is not None:
            self._put(key, data)
        elif self._are_places_same(ref, files):
            self.leaves[ref.id] = files
        else:
            self.missing[key] = "the order of its files is lost, by which the root hides some"

    def _misplaced(self, ref: Ref) -> bytes | None:
        """Return the bytes of a leaf if they are stored under the key of another one."""
        for info in self._listed_leaves:
            if info[1] == sum(ref.lengths):
                data = self._store.get(info[0]).data
                if _hashes(ref, data) == ref.hashes:
                    return data
        return None

    @cached_property
    def _listed_leaves(self) -> list[tuple[str, int]]:
        folder = f"{Folder.LEAVES.of(self._state.name)}/"
        return [(info.key, info.size_bytes) for info in self._store.list(folder)]

    def _rebuilt_files(self, ref: Ref) -> Files | None:
        is_removed = ref.id in self._dropped
        for candidate in self._candidates(ref):
            if len(candidate) != ref.files:
                continue
            files = self._bare(candidate)
            totals = files.totals()
            if (totals.low, totals.high) != (ref.totals.low, ref.totals.high):
                continue
            if not is_removed:
                files = self._with_facts(candidate)
            stored = self._files(ref)
            if stored is not None:  # it has the counts, and they are proved
                files = replace(stored, facts=files.facts)
            if files.totals() == ref.totals:
                return files
        return None

    def _bare(self, some: Sequence[_Added]) -> Files:
        blank = facts_in_order([], [one.label for one in some])
        return leaf_files(
            [one.label for one in some], blank, self._order, since=[one.since for one in some]
        )

    def _with_facts(self, some: Sequence[_Added]) -> Files:
        labels = [one.label for one in some]
        return leaf_files(labels, self._facts(some), self._order, since=[one.since for one in some])

    def _candidates(self, ref: Ref) -> Iterator[Sequence[_Added]]:
        """Yield sets of files that a leaf may have had, in its order among the files of a commit."""
        files = self._files(ref)
        if files is not None:  # only its facts, or its partitions, are lost
            yield _added(files)
            return
        if ref.id in self._brought:
            yield from self._of_large_commit(ref, self._brought[ref.id].entry)
        if ref.id in self._dropped:
            yield from self._removed_at_once(ref, self._dropped[ref.id].entry)
            return
        for root in self._roots:
            if any(one.id == ref.id for one in root.refs):
                yield from self._in_root(ref, root)

    def _of_large_commit(self, ref: Ref, entry: RootEntry) -> Iterator[Sequence[_Added]]:
        """Yield the files that a commit added: as other leaves, its batch, or storage show them."""
        start = 0
        for one in entry.brought:
            if one.id == ref.id:
                break
            start += one.files
        stated = set(entry.added)
        for labels in self._labels_of_batch(entry):
            wanted = [label for label in labels if label not in stated]
            if len(wanted) == sum(one.files for one in entry.brought):
                files = self._bare([_Added(label, entry.version) for label in wanted])
                yield _added(files)[start : start + ref.files]

    def _labels_of_batch(self, entry: Entry) -> Iterator[list[str]]:
        # Files of it that other leaves have: it was merged, or it was one before.
        known = [
            one.label
            for ref in self._refs.values()
            if ref.id not in self._dropped and (files := self._files(ref)) is not None
            for one in _added(files)
            if one.since == entry.version
        ]
        yield list(dict.fromkeys(known))
        if entry.restores is not None:
            before = self._live_at(entry.version - 1)
            yield [label for label in self._live_at(entry.restores) if label not in before]
        if entry.batch_id is None:
            return
        manifest = self._manifest(entry.batch_id)
        yield list(manifest)
        yield [label for label in self._listed_labels if batch_id_of(label) == entry.batch_id]

    def _live_at(self, version: int) -> dict[str, None]:
        """Return the labels of a version, in the order in which its files were added."""
        live = (one.label for one in self._files_ever if one.since <= version < one.ended)
        return dict.fromkeys(live)

    @cached_property
    def _listed_labels(self) -> list[str]:
        prefix, suffix = f"{self._state.name}/{TABLE}/", self._state.descriptor.file_suffix
        keys = (info.key for info in self._store.list(prefix))
        return [
            key.removeprefix(prefix).removesuffix(suffix) for key in keys if key.endswith(suffix)
        ]

    def _manifest(self, batch_id: int) -> Mapping[str, tuple[int, int, str]]:
        """Return rows, size and checksum of the files of a batch, by label; empty if it is lost."""
        try:
            record = reservation.read_record(
                self._store, reservation.key_of(self._state.name, batch_id)
            )
        except LakebedError:
            return {}
        return {
            file.label: (file.row_count, file.size_bytes, file.checksum)
            for file in record.files or ()
        }

    def _removed_at_once(self, ref: Ref, entry: RootEntry) -> Iterator[Sequence[_Added]]:
        """Yield the files that a large commit removed: no other commit removed them, and they are gone."""
        if any(self._files(one) is None for one in self._root.refs):
            return
        live = {
            (label, since)
            for one in self._root.refs
            for label, since in _pairs(self._tree.of_leaf(one))
        }
        live |= {
            (label, self._root.buffer[at].entry.version)
            for label, (at, _) in self._root.held.items()
        }
        lost = [
            _Added(one.label, 0)
            for one in self._files_ever
            if one.since < entry.version
            and one.ended == _FOREVER
            and (one.label, one.since) not in live
        ]
        ordered, start = _added(self._bare(lost)), 0
        for one in entry.dropped:
            if one.id == ref.id:
                yield ordered[start : start + one.files]
            if self._files(one) is None:
                start += one.files

    @cached_property
    def _files_ever(self) -> list[_Added]:
        """Each file that a commit added, in the order of commits, with the one that removed it."""
        found: list[_Added] = []
        live: dict[str, int] = {}
        for entry in self._recorded:
            removed, added = list(entry.removed), list(entry.added)
            if isinstance(entry, RootEntry):
                for refs, labels in ((entry.dropped, removed), (entry.brought, added)):
                    for ref in refs:
                        files = self._files(ref)
                        labels += [] if files is None else files.labels()
            for label in removed:
                place = live.pop(label, None)
                if place is not None:
                    found[place] = replace(found[place], ended=entry.version)
            for label in added:
                live[label] = len(found)
                found.append(_Added(label, entry.version))
        return found

    def _in_root(self, ref: Ref, root: Root) -> Iterator[Sequence[_Added]]:
        """Yield the files of a leaf at each version at which it may have been written.

        They are those of its range that no other leaf of a root has.
        """
        order = self._order
        first, last = order(ref.first), order(ref.last)
        others: set[tuple[str, int]] = set()
        for one in root.refs:
            if one.id != ref.id and order(one.first) <= last and first <= order(one.last):
                files = self._files(one)
                others.update(() if files is None else _pairs(files))
        held = {(label, root.buffer[at].entry.version) for label, (at, _) in root.held.items()}
        others |= held
        pool = [
            one
            for one in self._files_ever
            if one.since <= ref.since
            and one.ended > ref.since
            and (one.label, one.since) not in others
            and first <= order(split_label(one.label)[0]) <= last
        ]
        ends = {one.ended - 1 for one in pool if one.ended <= root.version}
        for version in sorted({root.version, *ends}, reverse=True):
            yield [one for one in pool if one.since <= version < one.ended]

    def _facts(self, some: Sequence[_Added]) -> pa.Table:
        """Return the facts of some files: from commits, other leaves, manifests and the files."""
        labels = [one.label for one in some]
        missing = set(labels)
        tables: list[pa.Table] = []
        # A file that came back has the facts of the commit that brought it back.
        by_commit: dict[int, list[str]] = {}
        for one in some:
            by_commit.setdefault(one.since, []).append(one.label)
        for version in sorted(by_commit.keys() & self._commits.keys()):
            commit = self._commits[version]
            own = set(by_commit[version]).intersection(commit.entry.added)
            if own:
                table = table_of_commit(commit)
                places = [at for at, label in enumerate(commit.entry.added) if label in own]
                tables.append(table.take(pa.array(places, pa.int64())))
                missing -= own
        for ref in self._refs.values() if missing else ():
            files = None if ref.id in self._dropped else self._files(ref)
            places = [] if files is None else sorted(files.find(missing).values())
            if not places:
                continue
            try:
                whole = self._stored.with_facts(ref)
            except CorruptMetadataError:
                continue
            found = whole.take(np.array(places, np.int64))
            tables.append(table_of(found))
            missing.difference_update(found.labels())
        for version in sorted(self._commits) if missing else ():
            commit = self._commits[version]
            own = missing.intersection(commit.entry.added)
            if own:
                tables.append(table_of_commit(commit))
                missing -= own
        if missing:
            tables += self._computed(sorted(missing))
        return facts_in_order(tables, labels)

    def _computed(self, labels: Sequence[str]) -> list[pa.Table]:
        """Return the facts of files from their content, unless their manifests know it was another."""
        noted: dict[str, tuple[int, int, str]] = {}
        for batch_id in {batch_id_of(label) for label in labels} - {None}:
            noted.update(self._manifest(batch_id or 0))
        computed = self._read_facts(labels)
        found = computed.column("label").to_pylist()
        checksums = computed.column("checksum").to_pylist()
        places = [
            place
            for place, (label, checksum) in enumerate(zip(found, checksums, strict=True))
            if label not in noted or noted[label][2] == checksum
        ]
        known = {found[place] for place in places}
        rest = [label for label in labels if label in noted and label not in known]
        columns = [list(column) for column in zip(*(noted[label] for label in rest), strict=True)]
        rows, sizes, sums = columns or ([], [], [])
        manifest = pa.table(
            {
                "label": pa.array(rest, pa.string()),
                "row_count": pa.array(rows, pa.int64()),
                "size_bytes": pa.array(sizes, pa.int64()),
                "checksum": pa.array(sums, pa.string()),
            }
        )
        return [computed.take(pa.array(places, pa.int64())), manifest]

    def _same_bytes(self, ref: Ref, files: Files) -> bytes | None:
        """Return the bytes of a leaf if each section is stored, or is rebuilt as it was."""
        rebuilt = leaf.encode(files, self._order)
        sections, start = [], 0
        for number in range(len(ref.lengths)):
            own = rebuilt.data[start : start + rebuilt.lengths[number]]
            start += rebuilt.lengths[number]
            if rebuilt.hashes[number] != ref.hashes[number]:
                try:
                    own = self._stored.section(ref, number)
                except CorruptMetadataError:
                    return None
            sections.append(own)
        return b"".join(sections)

    def _are_places_same(self, ref: Ref, files: Files) -> bool:
        """Return whether each root hides the same files of a leaf by their positions as before."""
        hidden = (root.gone[ref.id] for root in self._roots if ref.id in root.gone)
        return all(files.take(gone.places).totals() == gone.totals for gone in hidden)


@dataclass(frozen=True, slots=True)
class RebuiltLeaves:
    """Leaves in the place of lost ones, with the same files in the same order.

    See `lakebed.state.tree.renewal.NewFiles`.
    """

    leaves: Mapping[bytes, Files] = field(default_factory=dict)

    def files(self, ref: Ref) -> Files | None:
        """Return the files of a lost leaf; None for others."""
        return self.leaves.get(ref.id)

    def commit(self, one: Buffered) -> Buffered:
        """Return the commit as it is."""
        return one

    def places(self, ref: Ref, places: np.ndarray, files: Files) -> np.ndarray:  # noqa: ARG002 - a protocol
        """Return the same positions."""
        return places


def _added(files: Files) -> list[_Added]:
    return [_Added(label, since) for label, since in _pairs(files)]


def _pairs(files: Files) -> Iterator[tuple[str, int]]:
    return zip(files.labels(), files.since.tolist(), strict=True)


def _hashes(ref: Ref, data: bytes) -> tuple[bytes, ...]:
    starts = np.cumsum([0, *ref.lengths]).tolist()
    return tuple(leaf.section_hash(data[start:end]) for start, end in itertools.pairwise(starts))


def _beyond(what: str) -> CorruptMetadataError:
    return CorruptMetadataError(what, hint="Restore the object from a copy.")
