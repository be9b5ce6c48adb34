"""The model of a cleanup: what it gives up by a commit, and deletes then, beside writers.

It stands for `lakebed.work.cleanup`, `inventory`, and for the leases of `lakebed.state.reservation`.
Writers, rollbacks and merges of metadata may stand still while time passes, and clocks may be off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from protocol.checker import (
    Model,
    Next,
    Program,
    Value,
    View,
    clock,
    create,
    delete,
    do,
    get,
    get_all,
    get_timed,
    list_,
    put,
    replace,
)
from protocol.commits import (
    GROWS,
    HEAD,
    LANDS_ONCE,
    LIVE,
    ONCE,
    REFUSED,
    acknowledged_once,
    grows_by_one,
    lands_once,
    refused_absent,
)

KEPT = "a version that is kept can be read"
LEASE = "no writer is shut out within its lease if clocks are right"
SPAN = 1  # of a lease
ROWS = "rows"


class Head(NamedTuple):
    """The head: as in the other models, with what cleanups have given up."""

    version: int
    files: frozenset[str]
    facts: tuple[str, ...]
    history: tuple[str, ...]
    horizon: int = 0
    oldest_batch: int = 0
    open_batches: frozenset[int] = frozenset()
    last_batch: int = 0

    def may_commit(self, batch: int) -> bool:
        """Return whether no cleanup has given a batch up."""
        return batch >= self.oldest_batch or batch in self.open_batches


class Entry(NamedTuple):
    """A segment of the history."""

    version: int
    commit: str
    operation: str
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    batch: int = 0
    erased: frozenset[str] = frozenset()

    @property
    def is_fence(self) -> bool:
        """True if a commit with a base before it names nothing that was written without a lease."""
        return self.operation == "cleanup" or bool(self.erased)


class Record(NamedTuple):
    """A reservation; complete once all files are written."""

    commit: str
    started: int
    until: int
    is_complete: bool = False


class Planned(NamedTuple):
    """What a cleanup is about to give up."""

    horizon: int
    oldest_batch: int
    open_batches: frozenset[int]
    wanted: frozenset[str]


class Seen(NamedTuple):
    """What a cleanup has read before it plans."""

    objects: tuple[tuple[str, int], ...]
    reserved: tuple[tuple[int, Record, int], ...]  # id, record, when it was stored
    now: int


class Cleanups(Model):
    """A cleanup beside others; `others` are their programs."""

    name: ClassVar[str] = "cleanups"
    bugs: ClassVar[Mapping[str, str]] = {
        "a cleanup deletes without a commit": KEPT,
        "a writer may outlast its lease": LIVE,
        "a cleanup in between is not noticed": LIVE,
        "a cleanup deletes what no head names, however new": LIVE,
        "a rollback restores files without a look": LIVE,
        "a cleanup takes each lease for over": LEASE,
        "a cleanup shuts out all batches below the oldest": LEASE,
        "a cleanup does not read the head again after its commit": LIVE,
        "a cleanup makes no commit for what a stalled one may name": LIVE,
    }
    others: tuple[str, ...] = ("overwrite",)
    cleanups: int = 1
    ticks = 2
    tolerance: int = 0  # of clocks that differ
    is_clean: bool = False  # nothing superseded is left at the beginning

    def objects(self) -> Mapping[str, Value]:
        """Begin with a file that was superseded, and a writer that has died."""
        first, second = frozenset({"x/1"}), frozenset({"x/2"})
        found: dict[str, Value] = {
            HEAD: Head(
                2,
                second,
                ("facts/1", "facts/2"),
                ("history/1", "history/2"),
                horizon=2 if self.is_clean else 1,
                last_batch=2,
            ),
            "data/x/2": ROWS,
            "facts/1": "facts",
            "facts/2": "facts",
            "history/1": Entry(1, "first", "append", first, batch=1),
            "history/2": Entry(2, "second", "overwrite", second, first, batch=2),
            "batch/1": Record("first", -9, -8, is_complete=True),
            "batch/2": Record("second", -9, -8, is_complete=True),
        }
        if not self.is_clean:
            found["data/x/1"] = ROWS
        return found

    def actors(self) -> Mapping[str, Next]:
        """Return the cleanups and the others."""
        found = {f"clean{n}": Next("inspect", (f"clean{n}",)) for n in range(self.cleanups)}
        for name, program in zip(("ann", "bob"), self.others, strict=False):
            found[name] = Next(program, (name,))
        return found

    def is_timed(self, key: str) -> bool:
        """Return whether a cleanup looks at the time of an object."""
        return key.startswith(("facts/", "history/", "batch/"))

    # --- Writers

    def overwrite(self, me: str) -> Program:
        """Overwrite everything by a batch."""
        base = yield get(HEAD)
        batch, record = yield from self._reserve(me, base)
        yield put(f"data/x/{batch}", ROWS)
        if not (yield replace(f"batch/{batch}", record._replace(is_complete=True), record)):
            return Next("fail", (me, batch, "its id was taken away", record.until))
        yield put(f"facts/{batch}@{me}", self._facts(f"x/{batch}"))
        return Next("commit_batch", (me, base, batch, record.until))

    def _reserve(self, me: str, base: Head) -> Program:
        batch = base.last_batch + 1
        now = yield clock()
        record = Record(me, now, now + SPAN)
        while not (yield create(f"batch/{batch}", record)):
            batch += 1
        return batch, record

    def commit_batch(self, me: str, base: Head, batch: int, until: int) -> Program:
        """Check that the batch was not given up, and swap the head."""
        head = yield get(HEAD)
        if not head.may_commit(batch) and self.bug not in (
            "a writer may outlast its lease",
            "a cleanup deletes what no head names, however new",
        ):
            return Next("fail", (me, batch, "outlasted its lease", until))
        since = yield get_all(head.history[len(base.history) :])
        if None in since:  # an erasure has rewritten them
            return Next("commit_batch", (me, base, batch, until))
        if any(entry.added or entry.removed or entry.erased for entry in since):
            return Next("fail", (me, batch, "conflict", until))
        entry = Entry(
            head.version + 1, me, "overwrite", frozenset({f"x/{batch}"}), head.files, batch
        )
        after = after_commit(head, entry, facts=(*head.facts, f"facts/{batch}@{me}"))
        done = yield from self._swap(me, head, after, entry)
        return (
            ("acknowledged", entry.version)
            if done
            else Next("commit_batch", (me, base, batch, until))
        )

    def fail(self, me: str, batch: int, why: str, until: int) -> Program:
        """Delete what was staged."""
        is_early = (
            why in ("outlasted its lease", "its id was taken away") and (yield clock()) < until
        )
        yield delete(f"data/x/{batch}", f"facts/{batch}@{me}")
        yield delete(f"batch/{batch}")
        return ("refused", "within its lease" if is_early else why)

    def merge_facts(self, me: str) -> Program:
        """Merge the facts into one segment, which has no reservation."""
        base = yield get(HEAD)
        merged = yield from self._merged(base)
        yield put(f"facts/{me}", merged)
        return Next("commit_merged", (me, base))

    def _facts(self, _file: str) -> Value:
        return "facts"

    def _merged(self, _base: Head) -> Program:
        return "facts"
        yield

    def commit_merged(self, me: str, base: Head) -> Program:
        """Check that no cleanup has come in between, and swap the head."""
        head, entries = yield do(read_head)
        since = [entry for entry, _ in entries[len(base.history) :]]
        is_cleaned = any(entry.is_fence for entry in since)
        if is_cleaned and self.bug != "a cleanup in between is not noticed":
            yield delete(f"facts/{me}")
            return ("refused", "cleanup")
        entry = Entry(head.version + 1, me, "merge")
        left = tuple(key for key in head.facts if key not in base.facts)
        after = after_commit(head, entry, facts=(f"facts/{me}", *left))
        done = yield from self._swap(me, head, after, entry)
        return ("acknowledged", entry.version) if done else Next("commit_merged", (me, base))

    def rollback(self, me: str) -> Program:
        """Restore the first version, if its files are still kept."""
        base = yield get(HEAD)
        first = yield get_all(base.history[:1])
        if first[0] is None or base.horizon > first[0].version:
            return ("refused", "gone")
        is_there = yield from self._are_there(first[0].added)
        return Next("restore", (me, base, first[0])) if is_there else ("refused", "gone")

    def _are_there(self, files: Iterable[str]) -> Program:
        found = yield get_all(tuple(f"data/{file}" for file in sorted(files)))
        return all(found)

    def restore(self, me: str, base: Head, first: Entry) -> Program:
        """Swap the head, unless a cleanup has given the version up, or others have changed it."""
        head, entries = yield do(read_head)
        since = [entry for entry, _ in entries[len(base.history) :]]
        if any(entry.added or entry.removed for entry in since):
            return ("refused", "conflict")
        erased = frozenset(file for entry in since for file in entry.erased)
        if erased & first.added and self.bug != "an erasure in between is not noticed":
            return ("refused", "erased")
        if head.horizon > first.version and self.bug != "a rollback restores files without a look":
            return ("refused", "gone")
        entry = Entry(head.version + 1, me, "rollback", first.added, head.files)
        done = yield from self._swap(me, head, after_commit(head, entry), entry)
        return ("acknowledged", entry.version) if done else Next("restore", (me, base, first))

    def _swap(self, me: str, head: Head, after: Head, entry: Entry) -> Program:
        yield put(after.history[-1], entry)
        # Answers that are lost are of the model of commits.
        return (yield replace(HEAD, after, head))

    # --- Cleanup

    def inspect(self, me: str) -> Program:
        """List all objects, and read then what is needed to judge them."""
        now = yield clock()
        objects, reserved, head, entries = yield from self._inventory()
        return Next("plan", (me, Seen(objects, reserved, now), head, entries))

    def _inventory(self) -> Program:
        objects = yield list_()
        head, entries = yield do(read_head)
        committed = {entry.batch for entry, _ in entries}
        ids = [id_of(key) for key, _ in objects if key.startswith("batch/")]
        ids = [one for one in ids if one not in committed]
        records = yield get_timed(tuple(f"batch/{one}" for one in ids))
        reserved = tuple(
            (one, *found) for one, found in zip(ids, records, strict=True) if found is not None
        )
        return objects, reserved, head, entries

    def plan(
        self, me: str, seen: Seen, head: Head, entries: tuple[tuple[Entry, int], ...]
    ) -> Program:
        """Decide which objects are dead, and whether that needs a commit."""
        expired = {one for one, *found in seen.reserved if self._is_expired(seen, *found)}
        oldest = max((head.oldest_batch, *(one + 1 for one in expired)))
        alive = {one for one, *_ in seen.reserved if one < oldest and one not in expired}
        if self.bug == "a cleanup shuts out all batches below the oldest":
            oldest, alive = max((oldest, *(one + 1 for one, *_ in seen.reserved))), set()
        planned = head._replace(
            horizon=head.version,
            oldest_batch=oldest,
            open_batches=frozenset(one for one in alive if head.may_commit(one)),
        )
        wanted = self._dead(seen, planned, entries)
        if not wanted:
            return ("done",)
        if self.bug == "a cleanup deletes without a commit":
            return Next("remove", (wanted,))
        is_known = wanted <= self._dead(seen, head, entries)
        if is_known and not self._may_be_named(seen, wanted, entries):
            return Next("remove", (wanted,))
        plan = Planned(planned.horizon, oldest, planned.open_batches, wanted)
        return Next("give_up", (me, seen, plan))
        yield

    def give_up(self, me: str, seen: Seen, plan: Planned) -> Program:
        """Commit what is given up, and judge again by the state that was committed."""
        while True:
            head = yield get(HEAD)
            entry = Entry(head.version + 1, me, "cleanup")
            oldest = max(head.oldest_batch, plan.oldest_batch)
            still = {
                one
                for one in head.open_batches | plan.open_batches
                if one < oldest
                and head.may_commit(one)
                and (one >= plan.oldest_batch or one in plan.open_batches)
            }
            after = after_commit(head, entry)._replace(
                horizon=max(head.horizon, plan.horizon),
                oldest_batch=oldest,
                open_batches=frozenset(still),
            )
            if (yield from self._swap(me, head, after, entry)):
                break
        if self.bug == "a cleanup does not read the head again after its commit":
            return Next("remove", (plan.wanted,))
        now, entries = yield do(read_head)
        return Next("remove", (plan.wanted & self._dead(seen, now, entries),))

    def remove(self, dead: frozenset[str]) -> Program:
        """Delete what is dead, reservations last."""
        others = sorted(key for key in dead if not key.startswith("batch/"))
        if others:
            yield delete(*others)
        if len(others) < len(dead):
            yield delete(*sorted(dead.difference(others)))
        return ("done",)

    # --- Verdicts

    def _is_expired(self, seen: Seen, record: Record, stored: int) -> bool:
        if self.bug in (
            "a cleanup takes each lease for over",
            "a cleanup deletes what no head names, however new",
        ):
            return True
        if record.started <= seen.now + self.tolerance:
            return record.until <= seen.now - self.tolerance
        return stored <= seen.now - self.tolerance - (record.until - record.started)

    def _dead(
        self, seen: Seen, head: Head, entries: tuple[tuple[Entry, int], ...]
    ) -> frozenset[str]:
        """Return the objects that are dead by a state of the head."""
        kept = files_since(head.horizon, [entry for entry, _ in entries])
        ever = {file for entry, _ in entries for file in entry.added}
        committed = {entry.batch for entry, _ in entries}
        reserved = {one: found for one, *found in seen.reserved if one not in committed}
        given_up = {
            one
            for one, found in reserved.items()
            if self._is_expired(seen, *found) and not head.may_commit(one)
        }
        living = [
            stored - (record.until - record.started)
            for one, (record, stored) in reserved.items()
            if head.may_commit(one) or not self._is_expired(seen, record, stored)
        ]
        oldest_start = min(living, default=seen.now) - self.tolerance
        dead = set()
        for key, stored in seen.objects:
            folder, _, rest = key.partition("/")
            if folder == "data":
                batch = id_of(rest)
                is_superseded = rest in ever and rest not in kept
                is_left = rest not in ever and (
                    batch in given_up or (batch not in reserved and not head.may_commit(batch))
                )
                if is_superseded or is_left:
                    dead.add(key)
            elif folder == "batch" and id_of(rest) in given_up:
                dead.add(key)
            elif folder in ("facts", "history") and key not in (*head.facts, *head.history):
                age = 0 if "however new" in self.bug else SPAN + self.tolerance
                if stored < min(seen.now - age, oldest_start) or "however new" in self.bug:
                    dead.add(key)
        return frozenset(dead)

    def _may_be_named(
        self, seen: Seen, wanted: frozenset[str], entries: tuple[tuple[Entry, int], ...]
    ) -> bool:
        """Return whether a stalled commit may still name one of the doomed segments."""
        if self.bug == "a cleanup makes no commit for what a stalled one may name":
            return False
        doomed = [at for key, at in seen.objects if key in wanted and key[0] in "fh"]
        fences = [at for entry, at in entries if entry.is_fence]
        return bool(doomed) and (not fences or max(doomed) >= fences[-1])

    # --- Rules

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        found = {LANDS_ONCE: lands_once, ONCE: acknowledged_once, REFUSED: refused_absent}
        found |= {LIVE: live, KEPT: kept_readable}
        return found if any(self.skews.values()) else {**found, LEASE: _lease}

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {GROWS: grows_by_one}

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        return {
            "a cleanup that deletes a file": lambda step, before, after: (
                step.actor.startswith("clean")
                and step.request is not None
                and step.request.op == "delete"
                and before.objects != after.objects
            ),
            "a cleanup whose commit loses a race": lambda step, _before, _after: (
                step.actor.startswith("clean")
                and step.request is not None
                and step.request.op == "replace"
                and step.answer is False
            ),
            "a refusal by a cleanup": lambda _step, _before, after: any(
                why
                in (("outlasted its lease",), ("its id was taken away",), ("cleanup",), ("gone",))
                for _, why in after.ended("refused")
            ),
            "a commit beside a cleanup": lambda step, before, after: (
                not step.actor.startswith("clean")
                and any(
                    outcome is None for name, outcome in after.outcomes.items() if name[0] == "c"
                )
                and before.objects.get(HEAD) != after.objects.get(HEAD)
            ),
        }


def read_head(objects: Mapping[str, tuple[Value, int]]) -> Value:
    """Read the head, and the history that it names, which is immutable."""
    head = objects[HEAD][0]
    return head, tuple(objects[key] for key in head.history)


def id_of(key: str) -> int:
    return int(key.rpartition("/")[2])


def after_commit(head: Head, entry: Entry, *, facts: tuple[str, ...] | None = None) -> Head:
    return head._replace(
        version=entry.version,
        files=head.files - entry.removed | entry.added,
        facts=head.facts if facts is None else facts,
        history=(*head.history, f"history/{entry.commit}@{entry.version}"),
        last_batch=max(head.last_batch, entry.batch),
        open_batches=head.open_batches - {entry.batch},
    )


def files_since(horizon: int, entries: Iterable[Entry]) -> frozenset[str]:
    """Return the files of all versions from the horizon on."""
    files: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    for entry in sorted(entries, key=lambda entry: entry.version):
        files = files - entry.removed | entry.added
        if entry.version >= horizon:
            kept |= files
    return kept


def live(view: View) -> str:
    """Check that all that the head names is there."""
    head = view.objects[HEAD]
    named = (*(f"data/{file}" for file in sorted(head.files)), *head.facts, *head.history)
    gone = [key for key in named if key not in view.objects]
    return f"the head names {', '.join(gone)}, which is gone" if gone else ""


def kept_readable(view: View) -> str:
    """Check that the files of all versions since the horizon are there."""
    head = view.objects[HEAD]
    entries = [view.objects[key] for key in head.history if key in view.objects]
    kept = files_since(head.horizon, entries)
    gone = [file for file in sorted(kept) if f"data/{file}" not in view.objects]
    return f"{', '.join(gone)} of a version since {head.horizon} is gone" if gone else ""


def _lease(view: View) -> str:
    early = [name for name, why in view.ended("refused") if why == ("within its lease",)]
    return f"{', '.join(early)} was shut out within its lease" if early else ""
