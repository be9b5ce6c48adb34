"""The manifests of a tree: one of each leaf, which snapshots share, and small ones of the buffer.

A manifest of a leaf is named by the leaf and by the files that it no longer shows. A snapshot takes
over the manifests of the one before for leaves that have not changed, and writes those of the others.
Files that a fold or a merge has moved to another leaf keep the snapshot that added them: their entries
are those of the manifests before.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, ManifestFile

from lakebed.errors import CorruptMetadataError
from lakebed.state.state import State
from lakebed.state.tree.leaf_refs import Ref
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.tables.iceberg.manifests import (
    ManifestWriter,
    PartitionKey,
    entries_of,
    live_count,
    with_status,
)

_NAME = re.compile(r"(([0-9a-f]{32})-[0-9a-f]{32})-[0-9a-f]{32}-m[0-9]+\.avro")
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSnapshot:
    """The files of a tree for a snapshot.

    Attributes:
        state: State of the dataset.
        added: Labels of the files that the table lacks.
        removed: Locations of files that the table no longer shows.
        location: Function that returns the location of a label, as the table names it.
        entries_of: Function that returns the entries of files by their labels.
    """

    state: State
    added: Collection[str]
    removed: Mapping[str, PartitionKey]
    location: Callable[[str], str]
    entries_of: Callable[[Sequence[str]], list[DataFile]]

    @property
    def tree(self) -> TreeFiles:
        """The files."""
        assert isinstance(self.state.live, TreeFiles)
        return self.state.live

    def name_of(self, ref: Ref) -> str:
        """Return the beginning of the name of a leaf's manifest."""
        gone = self.tree.root.gone.get(ref.id)
        runs = "" if gone is None else " ".join(map(str, gone.runs))
        digest = hashlib.blake2b(runs.encode(), digest_size=_DIGEST_BYTES).hexdigest()
        return f"{ref.id.hex()}-{digest}"


def manifests_of(
    writer: ManifestWriter, snapshot: TreeSnapshot, before: Sequence[ManifestFile]
) -> list[ManifestFile]:
    """Write the manifests that a snapshot of a tree needs; return all of them.

    Args:
        writer: Writes manifests.
        snapshot: The files.
        before: The manifests of the snapshot before that name files.

    Raises:
        CorruptMetadataError: The manifests before do not name the files that they should.

    Cost:
        A manifest of the added files; and for each leaf that has changed since, its labels and a
        manifest, with the manifests that named its files before.
    """
    known: dict[str, ManifestFile] = {}
    loose = []
    for manifest in before:
        match = _NAME.fullmatch(manifest.manifest_path.rpartition("/")[2])
        if match is None or match[1] in known:
            loose.append(manifest)
        else:
            known[match[1]] = manifest
    refs = {snapshot.name_of(ref): ref for ref in snapshot.tree.root.refs}
    changed = {name: ref for name, ref in refs.items() if name not in known}
    kept = [manifest for name, manifest in known.items() if name in refs]
    left = [manifest for name, manifest in known.items() if name not in refs]
    if changed or left:
        moved = _Moved(writer, snapshot)
        loose = moved.take(left, loose)
        kept += [moved.write(name, ref) for name, ref in changed.items()]
        loose += moved.rest()
    else:
        loose, missing = writer.remove(loose, snapshot.removed)
        _require_none(missing)
        loose += writer.add(snapshot.entries_of(list(snapshot.added)))
    manifests = [*kept, *writer.merge(loose)]
    count = sum(map(live_count, manifests))
    if count != snapshot.state.live.count:
        raise CorruptMetadataError(
            f"The manifests name {count} files, and version {snapshot.state.version} has "
            f"{snapshot.state.live.count}.",
            hint="Publish with repair, which compares all files.",
        )
    return manifests


@dataclass(slots=True)
class _Moved:
    """The entries of manifests that do not stay, on their way to others.

    Attributes:
        writer: Writes manifests.
        snapshot: The files.
        entries: The entries by location.
        added: Labels of added files that no manifest names yet.
    """

    writer: ManifestWriter
    snapshot: TreeSnapshot
    entries: dict[str, ManifestEntry] = field(default_factory=dict)
    added: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.added = set(self.snapshot.added)

    def take(
        self, manifests: Iterable[ManifestFile], loose: Iterable[ManifestFile]
    ) -> list[ManifestFile]:
        """Take the entries of manifests; return the loose ones whose files are all in the buffer."""
        held = {self.snapshot.location(label) for label in self.snapshot.tree.root.held}
        kept = []
        for manifest in manifests:
            self._take(entries_of(manifest, self.writer.io))
        for manifest in loose:
            entries = entries_of(manifest, self.writer.io)
            if all(entry.data_file.file_path in held for entry in entries):
                kept.append(manifest)
            else:
                self._take(entries)
        return kept

    def _take(self, entries: Iterable[ManifestEntry]) -> None:
        self.entries.update((entry.data_file.file_path, entry) for entry in entries)

    def write(self, name: str, ref: Ref) -> ManifestFile:
        """Write the manifest of a leaf; its name begins with `name`."""
        labels = self.snapshot.tree.of_leaf(ref).labels()
        return self.writer.write(self._entries(labels), name=name)

    def _entries(self, labels: Iterable[str]) -> list[ManifestEntry]:
        existing, new, lost = list[ManifestEntry](), list[str](), list[str]()
        for label in labels:
            location = self.snapshot.location(label)
            entry = self.entries.pop(location, None)
            if entry is not None:
                existing.append(with_status(entry, ManifestEntryStatus.EXISTING))
            elif label in self.added:
                self.added.discard(label)
                new.append(label)
            else:
                lost.append(location)
        _require_none(lost)
        return [*existing, *self.writer.added(self.snapshot.entries_of(new))]

    def rest(self) -> list[ManifestFile]:
        """Write the manifests of files of the buffer, and of the removed files."""
        held = [
            label
            for label in self.snapshot.tree.root.held
            if label in self.added or self.snapshot.location(label) in self.entries
        ]
        entries = self._entries(held)
        _require_none(self.entries.keys() - self.snapshot.removed.keys())
        entries += self.writer.removed(self.entries.values())
        return [self.writer.write(entries)] if entries else []


def _require_none(locations: Collection[str]) -> None:
    if locations:
        raise CorruptMetadataError(
            f"The table does not name {min(locations)!r} as the dataset does.",
            hint="Publish with repair, which compares all files.",
        )


__all__ = ["TreeSnapshot", "manifests_of"]
