"""The model of an erasure: rows leave every version, then the objects that held them, beside others.

It stands for `lakebed.work.erasure`, `erased_objects`, and `lakebed.state.erasing`. Two files have
rows of the person at the beginning: one was superseded, the other is live. The others are those of
the model of cleanups, and a compaction, which writes again what it has read. Staged batches,
indices, published tables and raw files are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from protocol.checker import (
    Next,
    Program,
    Value,
    View,
    clock,
    delete,
    do,
    get,
    get_all,
    put,
    replace,
)
from protocol.cleanups import (
    ROWS,
    SPAN,
    Cleanups,
    Entry,
    Head,
    Record,
    Seen,
    after_commit,
    files_since,
    read_head,
)
from protocol.commits import GROWS, HEAD, LIVE

ERASED = "rows that were erased are in no version"
GONE = "an erasure that has finished leaves no object that held the rows or names their file"
HERS, MIXED, OTHERS = "hers", "hers and others'", ROWS  # what a file has

Timed = tuple[tuple[Entry, int], ...]
Erases = tuple[tuple[str, str], ...]  # files, each with the one that takes its place, or none


class Erasures(Cleanups):
    """Erasures of the same person beside others; `others` are their programs."""

    name: ClassVar[str] = "erasures"
    bugs: ClassVar[Mapping[str, str]] = {
        "an erasure leaves older versions": ERASED,
        "an erasure searches once": ERASED,
        "an erasure in between is not noticed": ERASED,
        "an erasure forgets commits made meanwhile": GROWS,
        "an erasure deletes before its commit": LIVE,
        "an erasure makes no commit for what a stalled one may name": LIVE,
        "an erasure does not read the head again after that commit": LIVE,
        "an erasure deletes segments of writers at work": LIVE,
        "an erasure leaves the older facts": GONE,
        "an erasure leaves facts of files that no version has": GONE,
        "an erasure leaves what was written in its second": GONE,
    }
    others: tuple[str, ...] = ("rollback",)
    cleanups: int = 0
    erasures: int = 1
    ticks = 0

    def objects(self) -> Mapping[str, Value]:
        """Begin with rows of the person in a file of the first version, and in a live one."""
        first, second = frozenset({"x/1"}), frozenset({"x/2"})
        return {
            HEAD: Head(
                2, second, ("facts/1",), ("history/1", "history/2"), horizon=1, last_batch=2
            ),
            "data/x/1": HERS,
            "data/x/2": MIXED,
            "facts/1": first | second,
            "history/1": Entry(1, "first", "append", first, batch=1),
            "history/2": Entry(2, "second", "overwrite", second, first, batch=2),
        }

    def actors(self) -> Mapping[str, Next]:
        """Return the erasures, the cleanups and the others."""
        erasers = {f"erase{n}": Next("search", (f"erase{n}",)) for n in range(self.erasures)}
        return {**erasers, **super().actors()}

    # --- Writers

    def _facts(self, file: str) -> Value:
        return frozenset({file})

    def _merged(self, base: Head) -> Program:
        found = yield get_all(base.facts)
        return frozenset(
            file for files in found for file in files or ()
        )  # what is gone is left out

    def compact(self, me: str) -> Program:
        """Write all rows into one file."""
        base = yield get(HEAD)
        found = yield get_all(tuple(f"data/{file}" for file in sorted(base.files)))
        if None in found:
            return ("refused", "gone")
        batch, record = yield from self._reserve(me, base)
        yield put(f"data/x/{batch}", MIXED if {HERS, MIXED} & set(found) else OTHERS)
        if not (yield replace(f"batch/{batch}", record._replace(is_complete=True), record)):
            return Next("fail", (me, batch, "its id was taken away", record.until))
        yield put(f"facts/{batch}@{me}", self._facts(f"x/{batch}"))
        return Next("commit_compaction", (me, base, batch, record.until))

    def commit_compaction(self, me: str, base: Head, batch: int, until: int) -> Program:
        """Check that all files that were read are there, and swap the head."""
        head = yield get(HEAD)
        if not head.may_commit(batch):
            return Next("fail", (me, batch, "outlasted its lease", until))
        if not base.files <= head.files:
            return Next("fail", (me, batch, "conflict", until))
        entry = Entry(head.version + 1, me, "compact", frozenset({f"x/{batch}"}), base.files, batch)
        after = after_commit(head, entry, facts=(*head.facts, f"facts/{batch}@{me}"))
        done = yield from self._swap(me, head, after, entry)
        again = Next("commit_compaction", (me, base, batch, until))
        return ("acknowledged", entry.version) if done else again

    # --- Erasure: the rows

    def search(self, me: str, number: int = 0) -> Program:
        """Look for the rows in all versions, in the current one first."""
        head, entries = yield do(read_head)
        kept = head.files | files_since(head.horizon, [entry for entry, _ in entries])
        files = sorted(head.files if self.bug == "an erasure leaves older versions" else kept)
        rows = yield get_all(tuple(f"data/{file}" for file in files))
        if None in rows:
            return Next("search", (me, number))  # a cleanup was faster
        found = {file: of for file, of in zip(files, rows, strict=True) if of != OTHERS}
        now = {file: of for file, of in found.items() if file in head.files}
        named = yield from self._merged(head)
        if self.bug not in (
            "an erasure leaves the older facts",
            "an erasure leaves facts of files that no version has",
        ):
            # What may be of the person: their bounds are not in the model.
            now |= dict.fromkeys((named & {"x/1", "x/2"}) - kept, HERS)
        if not (now or found) or (number and self.bug == "an erasure searches once"):
            return Next("list_objects", (me, number))
        return Next("write_rest", (me, number, head, tuple((now or found).items())))

    def write_rest(
        self, me: str, number: int, base: Head, found: tuple[tuple[str, str], ...]
    ) -> Program:
        """Write files with the rows of others, by a batch."""
        mixed = [file for file, of in found if of == MIXED]
        if self.bug == "an erasure deletes before its commit":
            yield delete(*(f"data/{file}" for file, _ in found))
        if not mixed:
            erases = tuple((file, "") for file, _ in found)
            return Next("commit_erasure", (me, number, base, erases, 0))
        batch, record = yield from self._reserve(me, base)
        rest = {file: f"{file.replace('/', '')}/{batch}" for file in mixed}
        for file in rest.values():
            yield put(f"data/{file}", OTHERS)
        erases = tuple((file, rest.get(file, "")) for file, _ in found)
        if not (yield replace(f"batch/{batch}", record._replace(is_complete=True), record)):
            return Next("give_back", (me, number, erases, batch))
        yield put(f"facts/{batch}@{me}", frozenset(rest.values()))
        return Next("commit_erasure", (me, number, base, erases, batch))

    def commit_erasure(
        self, me: str, number: int, base: Head, erases: Erases, batch: int
    ) -> Program:
        """Write history and facts without the files, and swap the head."""
        head, entries = yield do(read_head)
        since = entries[len(base.history) :]
        others = frozenset(file for entry, _ in since for file in entry.erased)
        is_late = batch and not head.may_commit(batch)
        if is_late or others & dict(erases).keys():
            return Next("give_back", (me, number, erases, batch))
        if self.bug == "an erasure forgets commits made meanwhile":
            entries = entries[: len(base.history)]
        version = head.version + 1
        history, facts, written = [], [], dict[str, Value]()
        named = zip(head.history, entries, strict=False)
        found = yield get_all(head.facts)
        if None in found:
            return Next("commit_erasure", (me, number, base, erases, batch))
        for key, old in (
            *((key, entry) for key, (entry, _) in named),
            *zip(head.facts, found, strict=True),
        ):
            new, is_entry = _without(old, erases), isinstance(old, Entry)
            kept = key if new == old else f"{key}~{me}@{version}"
            if new != old and (is_entry or self.bug != "an erasure leaves the older facts"):
                written[kept] = new
            (history if is_entry else facts).append(kept if kept in written else key)
        mine = [f"facts/{batch}@{me}"] if batch else []
        for key, new in written.items():
            yield put(key, new)
        files = frozenset(file for file, _ in erases)
        entry = Entry(version, f"{me}.{number}", "erase", batch=batch, erased=files)
        after = after_commit(
            head._replace(history=tuple(history), files=_replaced(head.files, erases)),
            entry,
            facts=(*facts, *mine),
        )
        if (yield from self._swap(me, head, after, entry)):
            return Next("search", (me, number + 1))
        yield delete(*written, after.history[-1])
        return Next("commit_erasure", (me, number, base, erases, batch))

    def give_back(self, me: str, number: int, erases: Erases, batch: int) -> Program:
        """Delete what was staged, and search again."""
        if batch:
            rest = [f"data/{file}" for _, file in erases if file]
            yield delete(*rest, f"facts/{batch}@{me}")
            yield delete(f"batch/{batch}")
        return Next("search", (me, number))
        yield

    # --- Erasure: the objects

    def list_objects(self, me: str, number: int) -> Program:
        """List all objects, and read then what is needed to judge them."""
        objects, reserved, head, entries = yield from self._inventory()
        now = yield clock()
        seen = Seen(objects, reserved, now)
        return Next("delete_objects", (me, number, seen, head, entries, False))

    def delete_objects(
        self, me: str, number: int, seen: Seen, head: Head, entries: Timed, is_fenced: bool
    ) -> Program:
        """Delete what held the rows or names their files; a commit comes first if it must."""
        segments, are_left = self._segments(seen, head, entries)
        is_checked = is_fenced or self.bug == (
            "an erasure makes no commit for what a stalled one may name"
        )
        if not is_checked and self._may_be_named(seen, segments, entries):
            return Next("fence", (me, number, seen, head, entries))
        marks = {file for entry, _ in entries for file in entry.erased}
        kept = head.files | files_since(head.horizon, [entry for entry, _ in entries])
        data = {key.removeprefix("data/") for key, _ in seen.objects if key.startswith("data/")}
        strays = sorted(data - marks - kept)
        rows = yield get_all(tuple(f"data/{file}" for file in strays))
        are_left |= bool({HERS, MIXED} & set(rows))
        doomed = sorted({f"data/{file}" for file in (data & marks) - kept} | segments)
        if doomed:
            yield delete(*doomed)
        return ("erased", "in part" if are_left else "whole")

    def fence(self, me: str, number: int, seen: Seen, was: Head, before: Timed) -> Program:
        """Commit, so that stalled commits are refused, and judge again."""
        head = yield get(HEAD)
        entry = Entry(head.version + 1, f"{me}.{number}", "cleanup")
        if not (yield from self._swap(me, head, after_commit(head, entry), entry)):
            return Next("fence", (me, number, seen, was, before))
        if self.bug == "an erasure does not read the head again after that commit":
            return Next("delete_objects", (me, number, seen, was, before, True))
        head, entries = yield do(read_head)
        return Next("delete_objects", (me, number, seen, head, entries, True))

    def _segments(self, seen: Seen, head: Head, entries: Timed) -> tuple[frozenset[str], bool]:
        """Return the segments that are dead, and whether others may name the files."""
        moments = [at for entry, at in entries if entry.erased]
        if not moments:
            return frozenset(), False
        committed = {entry.batch for entry, _ in entries}
        writing = [
            (record, stored)
            for one, record, stored in seen.reserved
            if one not in committed
            and (head.may_commit(one) or not self._is_expired(seen, record, stored))
        ]
        if self.bug == "an erasure deletes segments of writers at work":
            writing = []
        begun = min((self._began_after(*one) for one in writing), default=seen.now + 1)
        oldest = min((_began_at(*one) for one in writing), default=seen.now) - self.tolerance
        old = min(seen.now - SPAN - self.tolerance, oldest)
        named = {*head.facts, *head.history}
        unnamed = {
            key: at
            for key, at in seen.objects
            if key.startswith(("facts/", "history/")) and key not in named
        }
        settled = moments[-1]
        if self.bug == "an erasure leaves what was written in its second":
            settled -= 1
        dead = frozenset(
            key for key, at in unnamed.items() if (at <= settled and at < begun) or at < old
        )
        return dead, any(at <= settled for key, at in unnamed.items() if key not in dead)

    def _began_after(self, record: Record, stored: int) -> int:
        return max(_began_at(record, stored), min(record.started - self.tolerance, stored))

    # --- Rules

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        return {**super().invariants(), ERASED: _erased, GONE: _gone}

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {GROWS: _grows}

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        return {
            "an erasure whose commit loses a race": lambda step, _before, _after: (
                step.actor.startswith("erase")
                and step.request is not None
                and step.request.op == "replace"
                and step.request.key == HEAD
                and step.answer is False
            ),
            "an erasure that leaves something": lambda _step, _before, after: any(
                how == ("in part",) for _, how in after.ended("erased")
            ),
            "an erasure that takes out a file of another writer": lambda _step, _before, after: any(
                file not in ("x/1", "x/2") for entry in _entries(after) for file in entry.erased
            ),
            "a refusal by an erasure": lambda _step, _before, after: any(
                why in (("erased",), ("cleanup",), ("conflict",))
                for _, why in after.ended("refused")
            ),
            "a commit for what a stalled one may name": lambda _step, _before, after: any(
                entry.commit.startswith("erase") and entry.operation == "cleanup"
                for entry in _entries(after)
            ),
        }


def _began_at(record: Record, stored: int) -> int:
    return stored - (record.until - record.started)


def _replaced(files: Iterable[str], erases: Erases) -> frozenset[str]:
    new = dict(erases)
    return frozenset(file for file in (new.get(old, old) for old in files) if file)


def _without(old: Value, erases: Erases) -> Value:
    """Return an entry, or the facts of files, without the files that are taken out."""
    if isinstance(old, Entry):
        return old._replace(
            added=_replaced(old.added, erases), removed=_replaced(old.removed, erases)
        )
    return old - frozenset(dict(erases))


def _named(segment: Value) -> frozenset[str]:
    return segment.added | segment.removed if isinstance(segment, Entry) else segment


def _entries(view: View) -> tuple[Entry, ...]:
    named = view.objects[HEAD].history
    return tuple(view.objects[key] for key in named if key in view.objects)


def _erased(view: View) -> str:
    """Check that no version has rows of the person once an erasure has ended."""
    if not any(True for _ in view.ended("erased")):
        return ""
    head = view.objects[HEAD]
    kept = head.files | files_since(head.horizon, _entries(view))
    holding = [file for file in sorted(kept) if view.objects.get(f"data/{file}") in (HERS, MIXED)]
    return f"{', '.join(holding)} of a version has rows that were erased" if holding else ""


def _gone(view: View) -> str:
    """Check that nothing is left of what a whole erasure took out, or wrote on its way."""
    if not any(how == ("whole",) for _, how in view.ended("erased")):
        return ""
    marks = {file for entry in _entries(view) for file in entry.erased} | {"x/1", "x/2"}
    left = [f"data/{file}" for file in sorted(marks) if f"data/{file}" in view.objects]
    for key, value in view.objects.items():
        if key.startswith(("facts/1", "history/1", "history/2")):
            left += [key] if _named(value) & marks else []
    return f"{', '.join(left)} is left" if left else ""


def _grows(before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
    """Check that each put of the head makes the next version, of the commits before it and one."""
    old, new = before.get(HEAD), after.get(HEAD)
    if old is None or new is None or old == new:
        return ""
    commits = [after[key].commit for key in new.history if key in after]
    was = [before[key].commit for key in old.history if key in before]
    if new.version == old.version + 1 and commits[:-1] == was and len(commits) == new.version:
        return ""
    return f"{old.version} {was} became {new.version} {commits}"
