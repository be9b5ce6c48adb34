"""A tree in memory, and a set of labels that it is compared with."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakebed.model.keys import new_file_name
from lakebed.model.schema import Kind, Primitive
from lakebed.state.tree import folded_commits as segment
from lakebed.state.tree import tree_root
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.fold import Folded, fold
from lakebed.state.tree.inline import InlineBounds, InlineFacts, facts_table
from lakebed.state.tree.leaf import PartitionFiles, decode_facts, decode_files, decode_partitions
from lakebed.state.tree.leaf_files import Files, files_of
from lakebed.state.tree.leaf_merge import leaves_of, merge
from lakebed.state.tree.tree_files import TreeFiles, locate, replayed
from lakebed.state.tree.tree_root import Buffered, HistoryRef, Ref, Root, RootEntry, Sizes

ORDER = DirectoryOrder(
    {
        "day": Primitive(Kind.DATE),
        "n": Primitive(Kind.INT),
        "batch_id": Primitive(Kind.LONG),
    }
)
SMALL = Sizes(leaf=8, buffer=4, inline=6, fanout=2)
NULL = "__HIVE_DEFAULT_PARTITION__"
MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class MemoryLeaves:
    """Objects of a tree by key, from which leaves are decoded."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def partitions(self, ref: Ref) -> Sequence[PartitionFiles]:
        return decode_partitions(self.sections(ref)[0], ref.key("d"))

    def files(self, ref: Ref) -> Files:
        return decode_files(self.sections(ref)[1], ref.key("d"))

    def with_facts(self, ref: Ref) -> Files:
        files = self.files(ref)
        return replace(files, facts=decode_facts(self.sections(ref)[2], files.count, ref.key("d")))

    def sections(self, ref: Ref) -> tuple[bytes, bytes, bytes]:
        data, (first, second, _) = self.objects[ref.key("d")], ref.lengths
        return data[:first], data[first : first + second], data[first + second :]


@dataclass
class World:
    """A tree that grows by random commits, and what each version must hold."""

    rng: random.Random
    sizes: Sizes = SMALL
    leaves: MemoryLeaves = field(default_factory=MemoryLeaves)
    root: Root = field(default_factory=Root)
    live: dict[str, int] = field(default_factory=dict)
    versions: list[frozenset[str]] = field(default_factory=lambda: [frozenset()])
    copies: dict[int, Root] = field(default_factory=lambda: {0: Root()})

    @property
    def tree(self) -> TreeFiles:
        return TreeFiles(self.root, ORDER, self.leaves)

    def label(self) -> str:
        day, number = self.rng.randint(1, 9), self.rng.choice(["1", "2", "10", NULL])
        name = self.rng.choice(
            [new_file_name(1), new_file_name(1), new_file_name(12), f"part-1-{32 * '0'}", "ünlike"]
        )
        place = f"day=2013-01-{day:02d}/n={number}/batch_id={self.rng.randint(1, 40)}"
        return f"{place}/{name}-{self.rng.getrandbits(30)}" if "-1-" in name else f"{place}/{name}"

    def commit(self, added_count: int, removed_count: int) -> None:
        """Add and remove some files; by leaves if they are more than a commit may state."""
        added = {self.label(): None for _ in range(added_count)}
        added = [label for label in added if label not in self.live]
        removed = self.rng.sample(sorted(self.live), min(removed_count, len(self.live)))
        version = self.root.version + 1
        rows = [self.rng.choice([None, 0, 7, 2**40]) for _ in added]
        facts = facts_for(rows)
        refs: dict[str, tuple[Ref, ...]] = {"brought": (), "dropped": ()}
        stated = {"added": tuple(added), "removed": tuple(removed)}
        if len(added) > self.sizes.inline:
            (table,) = facts_table([facts], "test")
            files = files_of(
                added, ORDER, since=version, rows=facts.rows, sizes=facts.sizes, facts=table
            )
            refs["brought"] = self.put(files)
            stated["added"], facts = (), facts_for([])
        stored = [label for label in removed if label not in self.root.held]
        if len(stored) > self.sizes.inline:
            refs["dropped"] = self.put(files_of(stored, ORDER))
            stated["removed"] = tuple(label for label in removed if label in self.root.held)
        entry = RootEntry(
            version=version,
            commit_id=str(version),
            operation="append",
            committed_at=MOMENT,
            **stated,
            **refs,
        )
        gone = locate(self.root, entry, self.leaves, ORDER)
        self.root = self.root.after(entry, facts, gone)
        for label in removed:
            del self.live[label]
        self.live.update(dict.fromkeys(added, version))
        self.versions.append(frozenset(self.live))

    def put(self, files: Files) -> tuple[Ref, ...]:
        leaves = leaves_of(files, ORDER, self.sizes, level=1, run=self.root.runs)
        for leaf in leaves:
            self.leaves.objects[leaf.ref.key("d")] = leaf.sections.data
        return tuple(leaf.ref for leaf in leaves)

    def folded(self) -> Folded | None:
        return fold(
            self.root,
            self.leaves.with_facts,
            ORDER,
            self.sizes,
            load_segment=self.commits_of,
        )

    def fold(self) -> None:
        folded = self.folded()
        if folded is not None:
            self.leaves.objects |= folded.objects("d")
            self.root = folded.root
            self.copies[self.root.version] = self.root

    def merge(self, runs: frozenset[int] | None = None) -> None:
        """Merge some runs; by default all."""
        runs = frozenset(ref.run for ref in self.root.refs) if runs is None else runs
        if not runs:
            return
        for step in merge(self.root, runs, self.leaves.with_facts, ORDER, self.sizes):
            if isinstance(step, Root):
                self.root = step
            elif step.sections is not None:
                self.leaves.objects[step.ref.key("d")] = step.sections.data

    def store_and_read(self) -> None:
        """Replace the root by what its bytes give."""
        self.root = tree_root.decode(tree_root.encode(self.root), "d")

    def commits_of(self, one: HistoryRef) -> tuple[Buffered, ...]:
        return segment.decode(self.leaves.objects[one.key("d")], one, one.key("d"))

    def at(self, version: int) -> TreeFiles:
        """Return an older version, from the copy before it and the commits since."""
        start = max(copy for copy in self.root.copies if copy <= version)
        commits = [
            commit
            for one in self.root.history
            if one.last > start and one.first <= version
            for commit in self.commits_of(one)
        ]
        commits += self.root.buffer
        since = [one for one in commits if start < one.entry.version <= version]
        return replayed(self.copies[start], since, ORDER, self.leaves)


def facts_for(rows: Sequence[int | None]) -> InlineFacts:
    count = len(rows)
    columns = {"x": InlineBounds("date", list(range(count)), list(range(count)), [0] * count)}
    checksums = [f"sha256:{number:064x}" for number in range(count)]
    return InlineFacts(list(rows), [5] * count, checksums, columns if count else {})


def table_of(files: Files) -> pa.Table:
    assert files.facts is not None
    return files.facts
