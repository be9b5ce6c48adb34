"""The model of a commit: reserve, stage, complete, and attempts to swap the head.

It stands for `lakebed.state.transaction`, `reservation`, `group_commit` (for a single commit) and
`committing`. Objects are the head, a reservation or manifest and a data file of each batch, and a
segment of the history of each attempt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from protocol.checker import (
    LOST,
    Model,
    Next,
    Program,
    Step,
    Value,
    View,
    choose,
    create,
    delete,
    get,
    get_all,
    put,
    replace,
)

HEAD = "head"
ONCE = "what is acknowledged is in the history, once"
REFUSED = "what is refused is not visible"
GROWS = "versions grow by one"
LANDS_ONCE = "a commit lands once"
LIVE = "nothing live is deleted"
SEEN = "what a commit replaces is what its writer has seen"
SUM = "the files are those that the history leads to"
ID_ONCE = "the id of a batch is given once"


class Head(NamedTuple):
    """The head: the version, the live files, and the segments of the history, oldest first."""

    version: int
    files: frozenset[str] = frozenset()
    history: tuple[str, ...] = ()
    last_batch: int = 0


class Entry(NamedTuple):
    """A segment of the history, with one entry."""

    version: int
    commit: str
    base: int
    partition: str
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    batch: int = 0


class Record(NamedTuple):
    """A reservation; with files, a manifest."""

    commit: str
    files: frozenset[str] | None = None


class Attempt(NamedTuple):
    """What a commit carries from one attempt to the next.

    Attributes:
        commit: Id of the commit, which is the name of its writer.
        verb: `append`, `overwrite` or `delete`.
        partition: What it replaces.
        base: The head that it is computed from.
        batch: Id of its batch; 0 for none.
        pending: A head whose replacement may have landed, or may still land.
        named: The histories that the puts of that replacement have named, one for each attempt.
    """

    commit: str
    verb: str
    partition: str
    base: Head
    batch: int = 0
    pending: Head | None = None
    named: tuple[tuple[str, ...], ...] = ()

    @property
    def file(self) -> str:
        """The data file of the batch."""
        return f"{self.partition}/{self.batch}"

    @property
    def keys(self) -> tuple[str, ...]:
        """The objects of the batch: data before the reservation."""
        return (f"data/{self.file}", f"batch/{self.batch}") if self.batch else ()


def next_head(one: Attempt, head: Head, segment: str) -> tuple[Head, Entry]:
    """Return the head after a commit, and the entry of it."""
    removed = frozenset(file for file in head.files if file.startswith(f"{one.partition}/"))
    removed = removed if one.verb != "append" else frozenset()
    added = frozenset((one.file,) if one.batch else ())
    entry = Entry(
        head.version + 1, one.commit, one.base.version, one.partition, added, removed, one.batch
    )
    files = head.files - removed | added
    last = max(head.last_batch, one.batch)
    return Head(entry.version, files, (*head.history, segment), last), entry


class Commits(Model):
    """Writers that race for the head.

    Attributes:
        verbs: What each writer does, and to which partition.
        may_give_up: Whether a deadline may end a commit after any answer that was lost.
    """

    name: ClassVar[str] = "commits"
    bugs: ClassVar[Mapping[str, str]] = {
        "the store skips the etag of a put": GROWS,
        "a refused put of the head counts as done": ONCE,
        "an answer that was lost counts as refused": REFUSED,
        "an attempt does not look for its own commit": LANDS_ONCE,
        "a lost answer counts as a success": ONCE,
        "nothing is checked for conflicts": SEEN,
        "a writer that fails deletes what was committed": LIVE,
        "a batch takes an id that is taken": ID_ONCE,
        "a higher version proves that a put has not landed": LANDS_ONCE,
        "a put is forgotten once another one is sent": LANDS_ONCE,
        "the segment of an earlier attempt is named again": GROWS,
    }
    verbs: tuple[tuple[str, str], ...] = (("append", "a"), ("overwrite", "a"))
    may_give_up = True

    def objects(self) -> Mapping[str, Value]:
        """Begin with a version that has a file."""
        first = frozenset({"a/1"})
        return {
            HEAD: Head(1, first, ("history/first",), 1),
            "data/a/1": "rows",
            "batch/1": Record("first", first),
            "history/first": Entry(1, "first", 0, "a", first, batch=1),
        }

    def actors(self) -> Mapping[str, Next]:
        """Return the writers."""
        names = ("ann", "bob", "cyn", "dan")
        return {
            name: Next("write", (name, verb, partition))
            for name, (verb, partition) in zip(names, self.verbs, strict=False)
        }

    # --- Programs

    def write(self, me: str, verb: str, partition: str) -> Program:
        """Read the base, and reserve the next id that is free."""
        base = yield get(HEAD)
        one = Attempt(me, verb, partition, base)
        if verb == "delete":
            return Next("attempt", (one,))
        batch = base.last_batch + 1
        is_first = True
        while True:
            if self.bug == "a batch takes an id that is taken":
                yield put(f"batch/{batch}", Record(me))
                break
            answer = yield create(f"batch/{batch}", Record(me))
            if answer is True:
                break
            if answer is LOST:
                is_first = False
                continue
            if not is_first and (yield get(f"batch/{batch}")) == Record(me):
                break  # an earlier put, whose answer was lost
            batch, is_first = batch + 1, True
        return Next("stage", (one._replace(batch=batch),))

    def stage(self, one: Attempt) -> Program:
        """Write the data file, and complete the reservation."""
        if (yield put(f"data/{one.file}", "rows")) is LOST:
            return Next("abort", (one, "the store failed"))
        key, done = f"batch/{one.batch}", Record(one.commit, frozenset({one.file}))
        while True:
            answer = yield replace(key, done, Record(one.commit))
            if answer is True:
                break
            if answer is False:
                # By nothing but an earlier put of ours.
                if (yield get(key)) == done:
                    break
                return Next("abort", (one, "its id was taken away"))
        return Next("attempt", (one,))

    def attempt(self, one: Attempt, is_late: bool = False) -> Program:
        """Look, check, write a segment, and swap the head."""
        head = yield get(HEAD)
        if self._may_have_landed(one, head):
            entries = yield get_all(head.history[len(one.base.history) :])
            own = next((entry for entry in entries if entry.commit == one.commit), None)
            if own is not None and self.bug != "an attempt does not look for its own commit":
                return ("acknowledged", own.version)
        if head != one.pending:
            one = one._replace(pending=None)  # a condition that failed once never holds again
            if self.bug != "the segment of an earlier attempt is named again":
                one = one._replace(named=())
        if is_late:
            return Next("end", (one, "deadline"))
        if self.bug != "nothing is checked for conflicts" and one.verb != "append":
            entries = yield get_all(head.history[len(one.base.history) :])
            if any(entry.partition == one.partition for entry in entries):
                return Next("end", (one, "conflict"))
        segment = f"history/{one.commit}@{head.version}.{len(one.named)}"
        if self.bug == "the segment of an earlier attempt is named again":
            segment = f"history/{one.commit}"
        after, entry = next_head(one, head, segment)
        if (
            not (self.bug == "the segment of an earlier attempt is named again" and one.named)
            and (yield put(segment, entry)) is LOST
        ):
            return Next("again", (one,))
        return Next("swap", (one._replace(named=(*one.named, after.history)), head, after))

    def swap(self, one: Attempt, head: Head, after: Head) -> Program:
        """Put the next head under the condition of the current one."""
        if self.bug == "the store skips the etag of a put":
            answer = yield put(HEAD, after)
        else:
            answer = yield replace(HEAD, after, head)
        done = ("acknowledged", after.version)
        if answer is True:
            return done
        if answer is False:
            if self.bug == "a refused put of the head counts as done":
                return done
            # What was under way has failed or landed: the next look decides.
            return Next("again", (one,))
        if self.bug == "a lost answer counts as a success":
            return done
        if self.bug == "an answer that was lost counts as refused":
            return Next("abort", (one, "the store failed"))
        return Next("again", (one._replace(pending=head),))

    def again(self, one: Attempt) -> Program:
        """Try again, or look for the last time since the deadline is over."""
        is_late = False
        if self.may_give_up and one.pending is not None:
            is_late = (yield choose("try again", "look once more")) == "look once more"
        return Next("attempt", (one, is_late))
        yield

    def end(self, one: Attempt, why: str) -> Program:
        """Report a failure: nothing is deleted while a put may land."""
        if one.pending is not None and self.bug != "a writer that fails deletes what was committed":
            return ("unknown",)
        return Next("abort", (one, why))
        yield

    def abort(self, one: Attempt, why: str) -> Program:
        """Delete what was staged, the reservation last."""
        for key in one.keys:
            yield delete(key)
        return ("refused", why)

    def _may_have_landed(self, one: Attempt, head: Head) -> bool:
        """Return whether the head does not prove that an earlier put has not landed."""
        if one.pending is None:
            return False
        if self.bug == "a higher version proves that a put has not landed":
            return head.version <= one.pending.version
        known = one.named
        if self.bug == "a put is forgotten once another one is sent":
            known = known[-1:]
        is_next = head.history[:-1] == one.pending.history and head.history not in known
        return not (
            head.version == one.pending.version
            or is_next
            or (one.batch and head.last_batch < one.batch)
        )

    # --- Rules

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        return {
            LANDS_ONCE: lands_once,
            ONCE: acknowledged_once,
            REFUSED: refused_absent,
            LIVE: _live,
            SUM: _sum,
            SEEN: seen_before,
            ID_ONCE: _ids,
        }

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {GROWS: grows_by_one}

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        return {
            "a lost race": lambda step, _before, _after: is_swap(step) and step.answer is False,
            "a lost answer that had landed": lambda step, _before, _after: (
                is_swap(step) and step.outcome == "landed, answer lost"
            ),
            "a late put that lands": lambda step, before, after: (
                step.outcome == "lands late"
                and step.request.key == HEAD
                and before.objects != after.objects
            ),
            "a late put that is refused": lambda step, before, after: (
                step.outcome == "lands late"
                and step.request.key == HEAD
                and before.objects == after.objects
            ),
            "an acknowledgement by the history": lambda step, _before, after: (
                step.request is not None
                and step.request.op == "get all"
                and any(True for name, _ in after.ended("acknowledged") if name == step.actor)
            ),
            "an unknown outcome": lambda _step, _before, after: any(
                True for _ in after.ended("unknown")
            ),
            "a conflict": lambda step, _before, after: (
                ("conflict",)
                in [told for name, told in after.ended("refused") if name == step.actor]
            ),
            "a killed writer whose commit has landed": lambda _step, _before, after: any(
                any(entry.commit == name for entry in entries_of(after))
                for name, _ in after.ended("killed")
            ),
        }


def is_swap(step: Step) -> bool:
    """Return whether a step is a put of the head."""
    return step.request is not None and step.request.key == HEAD and step.request.op == "replace"


def entries_of(view: View) -> tuple[Entry, ...]:
    """Return the entries that the head names."""
    head = view.objects.get(HEAD)
    found = (view.objects.get(key) for key in (head.history if head else ()))
    segments = (one if one and not hasattr(one, "commit") else (one,) for one in found)
    return tuple(one for segment in segments for one in segment if one is not None)


def lands_once(view: View, find: Callable[[View], Iterable[Any]] = entries_of) -> str:
    """Check that no commit is in the history twice."""
    counts = Counter(entry.commit for entry in find(view))
    return ", ".join(f"{one} lands {count} times" for one, count in counts.items() if count > 1)


def acknowledged_once(view: View, find: Callable[[View], Iterable[Any]] = entries_of) -> str:
    """Check that what was acknowledged is in the history, at its version."""
    entries = list(find(view))
    for name, (version,) in view.ended("acknowledged"):
        there = [entry.version for entry in entries if entry.commit == name]
        if there != [version]:
            return (
                f"{name} was acknowledged as version {version}, and the history has it at {there}"
            )
    return ""


def refused_absent(view: View) -> str:
    """Check that what was refused is not in the history."""
    refused = {name for name, _ in view.ended("refused")}
    return ", ".join(
        f"{entry.commit} was refused, and is version {entry.version}"
        for entry in entries_of(view)
        if entry.commit in refused
    )


def _live(view: View) -> str:
    head = view.objects[HEAD]
    named = [*(f"data/{file}" for file in head.files), *head.history]
    return ", ".join(
        f"{key} is named by the head, and gone" for key in named if key not in view.objects
    )


def _sum(view: View) -> str:
    files: frozenset[str] = frozenset()
    for entry in entries_of(view):
        files = files - entry.removed | entry.added
    there = view.objects[HEAD].files
    return "" if files == there else f"{sorted(files)} by the history, {sorted(there)} in the head"


def seen_before(view: View) -> str:
    """Check that no commit takes out what was added since its base."""
    entries = entries_of(view)
    for entry in entries:
        for earlier in entries:
            is_between = entry.base < earlier.version < entry.version
            if is_between and earlier.added & entry.removed:
                return f"{entry.commit} takes out what {earlier.commit} has added unseen"
    return ""


def _ids(view: View) -> str:
    counts = Counter(entry.batch for entry in entries_of(view) if entry.batch)
    return ", ".join(
        f"batch {one} is of {count} commits" for one, count in counts.items() if count > 1
    )


def grows_by_one(before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
    """Check that each put of the head makes the next version, which its history states."""
    old, new = before.get(HEAD), after.get(HEAD)
    if old is None or new is None or old == new:
        return ""
    last = after.get(new.history[-1])
    is_next = new.version == old.version + 1 and new.history[:-1] == old.history
    if is_next and last is not None and last.version == new.version:
        return ""
    return f"{old.version} {old.history} became {new.version} {new.history} with {last}"
