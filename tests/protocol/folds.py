"""The model of a tree head: commits into its buffer, folds by a swap of their own, and cleanups.

It stands for `lakebed.state.tree`: the root with leaves, positions of removed files, and a buffer;
folds that write leaves, a segment of the history and a copy of the head, and then land on whatever
root there is; merges of leaves and of segments. Files are in leaves by name, not by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar, NamedTuple

from protocol.checker import (
    LOST,
    Model,
    Next,
    Program,
    Value,
    View,
    choose,
    delete,
    do,
    get,
    list_,
    replace,
    written,
)
from protocol.commits import (
    HEAD,
    LANDS_ONCE,
    LIVE,
    ONCE,
    acknowledged_once,
    is_swap,
    lands_once,
)

KEPT = "a version that is kept can be read"
BALANCE = "the root balances: its files are those that the history leads to"
ANSWER = "a fold changes no answer"
GROWS = "versions grow by one"
FULL, LATE = 2, 3  # commits in the buffer at which its filler folds, and others do


class Entry(NamedTuple):
    """A commit, in the buffer or in a segment of the history."""

    version: int
    commit: str
    operation: str
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


class Folded(NamedTuple):
    """A segment of the history, with the name of its copy of the head, and its last version."""

    name: str
    last: int


class Root(NamedTuple):
    """The root: `total` is what stands for the sum of the live files."""

    version: int
    leaves: tuple[str, ...]
    gone: frozenset[str]
    buffer: tuple[Entry, ...]
    history: tuple[Folded, ...]
    total: frozenset[str]
    folded_at: int = 0
    horizon: int = 0


class Fold(NamedTuple):
    """What a fold has written, and the root that it leads to."""

    base: Root
    root: Root
    objects: tuple[tuple[str, Value], ...]


Objects = Mapping[str, tuple[Value, int]]


def after(root: Root, entry: Entry, in_leaves: frozenset[str]) -> Root:
    """Return a root after a commit: removed files that are in leaves are marked as gone."""
    return root._replace(
        version=entry.version,
        gone=root.gone | (entry.removed & in_leaves),
        buffer=(*root.buffer, entry),
        total=root.total - entry.removed | entry.added,
        horizon=entry.version - 1 if entry.operation == "cleanup" else root.horizon,
    )


def live_files(root: Root, leaves: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the live files of a root, from its leaves and its buffer."""
    held: frozenset[str] = frozenset()
    for entry in root.buffer:
        held = held - entry.removed | entry.added
    return frozenset[str]().union(*(leaves[key] for key in root.leaves)) - root.gone | held


def copies_of(root: Root) -> dict[int, str]:
    """Return the keys of the copies of the head, by version."""
    return {0: "roots/born", **{one.last: f"roots/{one.name}" for one in root.history}}


def copies_for(root: Root, horizon: int) -> dict[int, str]:
    """Return the copies that reads of versions since a horizon need."""
    copies = copies_of(root)
    first = max(version for version in copies if version <= horizon)
    return {version: copies[version] for version in sorted(copies) if version >= first}


class Folds(Model):
    """Writers that fold, beside a cleanup."""

    name: ClassVar[str] = "folds"
    bugs: ClassVar[Mapping[str, str]] = {
        "a fold loses a file": BALANCE,
        "a list of removed files is lost in a fold": BALANCE,
        "a fold forgets what was removed meanwhile": BALANCE,
        "a fold counts twice": BALANCE,
        "a fold forgets the commits made meanwhile": GROWS,
        "a fold lands after a cleanup": LIVE,
        "a fold lands beside another one": GROWS,
        "a fold merges segments up to the horizon": KEPT,
        "a fold that had no answer deletes what it wrote": LIVE,
    }
    verbs: tuple[str, ...] = ("append", "overwrite")
    cleans: bool = True

    def objects(self) -> Mapping[str, Value]:
        """Begin with a folded version, and one in the buffer."""
        first, second = frozenset({"f1"}), frozenset({"f2"})
        folded = (Folded("fold1", 1),)
        copy = Root(1, ("leaves/1",), frozenset(), (), folded, first, folded_at=1)
        entry = Entry(2, "second", "append", second)
        return {
            HEAD: after(copy, entry, first),
            "leaves/1": first,
            "history/fold1": (Entry(1, "first", "append", first),),
            "roots/fold1": copy,
            "roots/born": Root(0, (), frozenset(), (), (), frozenset()),
        }

    def actors(self) -> Mapping[str, Next]:
        """Return the writers and the cleanup."""
        found = {
            name: Next("commit", (name, verb, False))
            for name, verb in zip(("ann", "bob"), self.verbs, strict=False)
        }
        return {**found, "clean": Next("clean", ("clean",))} if self.cleans else found

    def commit(self, me: str, verb: str, is_repeated: bool) -> Program:
        """Swap a root with the commit in its buffer, and fold if that has filled it."""
        found = yield do(_read_root)
        if found is None:
            return ("broken",)
        root, leaves, entries = found
        own = next((entry for entry in entries if is_repeated and entry.commit == me), None)
        if own is not None:
            return ("acknowledged", own.version)
        removed = live_files(root, dict(leaves)) if verb == "overwrite" else frozenset()
        entry = Entry(root.version + 1, me, verb, frozenset({me}), removed)
        new = after(root, entry, frozenset().union(*(files for _, files in leaves)))
        answer = yield replace(HEAD, new, root)
        if answer is not True:
            return Next("commit", (me, verb, is_repeated or answer is LOST))
        done = ("acknowledged", entry.version)
        is_due = len(new.buffer) >= LATE or (len(new.buffer) >= FULL > len(root.buffer))
        return Next("fold", (me, new, leaves, done)) if is_due else done

    def fold(
        self, me: str, root: Root, leaves: tuple[tuple[str, frozenset[str]], ...], done: Value
    ) -> Program:
        """Write leaves, a segment of the history and a copy of the head."""
        name = f"{me}@{root.version}"
        known = dict(leaves)
        held = frozenset(
            file for entry in root.buffer for file in entry.added if file in root.total
        )
        if self.bug == "a fold loses a file":
            held = frozenset(sorted(held)[1:])
        key, merged = f"leaves/{name}", f"leaves/{name}+"
        # All runs of leaves are merged into one, without the files that are gone.
        kept = frozenset().union(*(known[one] for one in root.leaves)) - root.gone
        taken = [one for one in root.history if one.last > root.horizon]
        if self.bug == "a fold merges segments up to the horizon":
            taken = list(root.history)
        folded = root._replace(
            folded_at=root.version,
            leaves=(merged,) if kept else (),
            gone=frozenset(),
            buffer=(),
            history=(
                *(one for one in root.history if one not in taken),
                Folded(name, root.version),
            ),
        )
        if len(root.leaves) < 2:  # nothing to merge
            folded = folded._replace(leaves=root.leaves, gone=root.gone)
        if self.bug == "a list of removed files is lost in a fold":
            folded = folded._replace(gone=frozenset())
        folded = folded._replace(leaves=(*folded.leaves, key))
        if self.bug == "a fold counts twice":
            folded = folded._replace(buffer=root.buffer[:-1], leaves=(*folded.leaves, key))
        older = yield do(_read_segments, tuple(one.name for one in taken))
        if older is None:
            return ("broken",)
        objects = [
            (key, held),
            (f"history/{name}", (*older, *root.buffer)),
            (f"roots/{name}", folded),
        ]
        if merged in folded.leaves:
            objects.insert(0, (merged, kept))
        for one, value in objects:
            yield from written(one, value)
        return Next("land", (Fold(root, folded, tuple(objects)), done, True))

    def land(self, fold: Fold, done: Value, is_without_trace: bool) -> Program:
        """Put a fold under the root that there is by now."""
        now = yield get(HEAD)
        if any(one.name == fold.root.history[-1].name for one in now.history):
            return done
        root = self._landed(fold, now)
        if root is None:
            if is_without_trace:
                yield delete(*(key for key, _ in fold.objects))
            return done
        answer = yield replace(HEAD, root, now)
        if answer is True:
            return done
        if answer is LOST:
            if self.bug == "a fold that had no answer deletes what it wrote":
                yield delete(*(key for key, _ in fold.objects))
            return done  # it may have landed: nothing is deleted
        return Next("land", (fold, done, False))

    def _landed(self, fold: Fold, now: Root) -> Root | None:
        base, root = fold.base, fold.root
        is_other = now.folded_at != base.folded_at or now.buffer[: len(base.buffer)] != base.buffer
        if is_other and self.bug != "a fold lands beside another one":
            return None
        since = now.buffer[len(base.buffer) :]
        if self.bug == "a fold lands beside another one":
            since = tuple(one for one in now.buffer if one not in base.buffer)
        is_cleaned = any(entry.operation == "cleanup" for entry in since)
        if is_cleaned and self.bug != "a fold lands after a cleanup":
            return None
        if self.bug == "a fold forgets the commits made meanwhile":
            return root
        leaves = frozenset().union(*(v for k, v in fold.objects if k.startswith("leaves/")))
        in_leaves = leaves | base.total
        for entry in since:
            removed = root.gone, root.total | entry.added
            root = after(root, entry, in_leaves)
            if self.bug == "a fold forgets what was removed meanwhile":
                root = root._replace(gone=removed[0], total=removed[1])
        if root.total != now.total and not self.bug:
            return None  # the code refuses such a fold: see the invariant of the model
        return root

    def clean(self, me: str) -> Program:
        """List, commit that older versions are given up, and delete what no head needs."""
        objects = yield list_()
        while True:
            root = yield get(HEAD)
            entry = Entry(root.version + 1, me, "cleanup")
            if (yield replace(HEAD, after(root, entry, frozenset()), root)) is True:
                break
            if (yield choose("try again", "die")) == "die":
                return ("killed",)
        root, copies = yield do(_read_copies)
        needed = needed_by(root, dict(copies))
        dead = [key for key, _ in objects if key != HEAD and key not in needed]
        if dead:
            yield delete(*dead)
        return ("done",)

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        return {
            LANDS_ONCE: partial(lands_once, find=_all_entries),
            ONCE: partial(acknowledged_once, find=_all_entries),
            LIVE: _live,
            BALANCE: _balance,
            KEPT: _kept,
        }

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {GROWS: _grows, ANSWER: _same_answer}

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        met: dict[str, object] = {
            "a fold beside a commit": lambda step, before, after: (
                _has_folded(before, after) and len(after.objects[HEAD].buffer) > 0
            ),
            "a fold that loses its race": lambda step, before, _after: (
                is_swap(step)
                and step.answer is False
                and step.request.value.folded_at == step.request.value.history[-1].last
            ),
            "a fold of files that were removed meanwhile": lambda step, before, after: (
                _has_folded(before, after) and bool(after.objects[HEAD].gone)
            ),
            "a merge of leaves": lambda step, before, after: (
                _has_folded(before, after)
                and any(key.endswith("+") for key in after.objects[HEAD].leaves)
            ),
        }
        if self.cleans:
            met["a fold that a cleanup keeps from landing"] = lambda step, before, after: (
                step.request is not None
                and step.actor != "clean"
                and step.request.op == "delete"
                and any(entry.operation == "cleanup" for entry in after.objects[HEAD].buffer)
            )
        return met


def needed_by(root: Root, copies: Mapping[str, Root]) -> frozenset[str]:
    """Return what a root names, and what reads of versions since its horizon need."""
    found = {*root.leaves, *(f"history/{one.name}" for one in root.history)}
    for key in copies_for(root, root.horizon).values():
        found.add(key)
        found.update(copies[key].leaves if key in copies else ())
    return frozenset(found)


def _read_root(objects: Objects) -> Value:
    """Read the root, with its leaves and its history, which are immutable."""
    root = objects[HEAD][0]
    if any(key not in objects for key in (*root.leaves, *_segments(root))):
        return None
    leaves = tuple((key, objects[key][0]) for key in root.leaves)
    return root, leaves, (*_entries(root.history, objects), *root.buffer)


def _segments(root: Root) -> tuple[str, ...]:
    return tuple(f"history/{one.name}" for one in root.history)


def _read_segments(objects: Objects, names: tuple[str, ...]) -> Value:
    if any(f"history/{name}" not in objects for name in names):
        return None
    return tuple(entry for name in names for entry in objects[f"history/{name}"][0])


def _read_copies(objects: Objects) -> Value:
    """Read the root, and the copies that its history names, which are immutable."""
    root = objects[HEAD][0]
    keys = copies_of(root).values()
    return root, tuple((key, objects[key][0]) for key in keys if key in objects)


def _entries(history: Iterable[Folded], objects: Objects) -> Iterable[Entry]:
    for one in history:
        yield from objects[f"history/{one.name}"][0]


def _all_entries(view: View) -> list[Entry]:
    root = view.objects[HEAD]
    segments = (view.objects.get(f"history/{one.name}", ()) for one in root.history)
    return [*(entry for segment in segments for entry in segment), *root.buffer]


def _replayed(entries: Iterable[Entry], until: int) -> frozenset[str]:
    files: frozenset[str] = frozenset()
    for entry in entries:
        if entry.version <= until:
            files = files - entry.removed | entry.added
    return files


def _live(view: View) -> str:
    root = view.objects[HEAD]
    named = (*root.leaves, *(f"history/{one.name}" for one in root.history))
    gone = [key for key in named if key not in view.objects]
    return f"the root needs {', '.join(gone)}, which is gone" if gone else ""


def _balance(view: View) -> str:
    root = view.objects[HEAD]
    if any(key not in view.objects for key in root.leaves):
        return ""  # of another rule
    there = live_files(root, view.objects)
    wanted = _replayed(_all_entries(view), root.version)
    counted = [file for key in root.leaves for file in view.objects[key]]
    if len(counted) != len(set(counted)):
        return f"leaves hold a file twice: {sorted(counted)}"
    if there == wanted == root.total:
        return ""
    return f"leaves and buffer have {sorted(there)}, the history {sorted(wanted)}, the sum {sorted(root.total)}"


def _kept(view: View) -> str:
    """Read each version since the horizon from the copy of the head before it."""
    root = view.objects[HEAD]
    entries = _all_entries(view)
    for version in range(root.horizon, root.version + 1):
        copy = view.objects.get(next(iter(copies_for(root, version).values())))
        if copy is None:
            return f"no copy of the head is there for version {version}"
        if any(key not in view.objects for key in copy.leaves):
            return f"a leaf of the copy for version {version} is gone"
        files = live_files(copy, view.objects)
        for entry in entries:
            if copy.version < entry.version <= version:
                files = files - entry.removed | entry.added
        if files != _replayed(entries, version):
            return f"version {version} reads as {sorted(files)}"
    return ""


def _grows(before: Mapping[str, Value], after_: Mapping[str, Value]) -> str:
    old, new = before[HEAD], after_[HEAD]
    if old == new or new.version == old.version or new.version == old.version + 1:
        return ""
    return f"version {old.version} became {new.version}"


def _same_answer(before: Mapping[str, Value], after_: Mapping[str, Value]) -> str:
    old, new = before[HEAD], after_[HEAD]
    is_fold = old != new and old.version == new.version
    return "the files differ after a fold" if is_fold and old.total != new.total else ""


def _has_folded(before: View, after_: View) -> bool:
    old, new = before.objects[HEAD], after_.objects[HEAD]
    return bool(old.version == new.version and old.folded_at != new.folded_at)
