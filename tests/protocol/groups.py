"""The model of group commit: threads of one process share a put, beside another process.

It stands for `lakebed.state.group_commit` and `waiting_line`. What threads of a process share is an
object that no request reaches, and that ends with the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from protocol.checker import (
    BLOCKED,
    INTERRUPTED,
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
    internal,
    replace,
    written,
)
from protocol.commits import (
    GROWS,
    HEAD,
    LANDS_ONCE,
    LIVE,
    ONCE,
    REFUSED,
    SEEN,
    Entry,
    acknowledged_once,
    is_swap,
    lands_once,
    refused_absent,
    seen_before,
)

LINE = "memory/line"


class Head(NamedTuple):
    """The head: version, live files, and the segments of the history."""

    version: int
    files: frozenset[str]
    history: tuple[str, ...]


class Member(NamedTuple):
    """A commit that waits; `pending` is a head whose replacement may have landed or may land."""

    name: str
    verb: str
    base: int
    pending: Head | None = None


class Line(NamedTuple):
    """What threads of a process share: who leads, who waits, who was taken along, who is decided."""

    leader: str = ""
    waiting: tuple[Member, ...] = ()
    decided: frozenset[tuple[str, Value]] = frozenset()


class Groups(Model):
    """Two threads of a process, and another process."""

    name: ClassVar[str] = "groups"
    bugs: ClassVar[Mapping[str, str]] = {
        "members of a group are not checked against each other": SEEN,
        "a segment is deleted while its put may land": LIVE,
        "a put goes on without its leader": LIVE,
        "a put that is lost is noted for the leader alone": LANDS_ONCE,
    }
    verbs: tuple[str, ...] = ("overwrite", "append", "append")
    interrupts = True

    def __init__(self, bug: str = "", **bounds: Value) -> None:
        super().__init__(bug, **bounds)
        self.processes = {"ann": "p", "bob": "p", "cyn": "q"}

    def objects(self) -> Mapping[str, Value]:
        """Begin with a version that has a file."""
        first = frozenset({"first"})
        return {
            HEAD: Head(1, first, ("history/first",)),
            "history/first": (Entry(1, "first", 0, "a", first),),
            "data/first": "rows",
            "data/ann": "rows",
            "data/bob": "rows",
            "data/cyn": "rows",
            f"{LINE} of p": Line(),
            f"{LINE} of q": Line(),
        }

    def actors(self) -> Mapping[str, Next]:
        """Return the threads."""
        names = ("ann", "bob", "cyn")
        return {
            name: Next("write", (name, verb, f"{LINE} of {self.processes[name]}"))
            for name, verb in zip(names, self.verbs, strict=False)
        }

    def write(self, me: str, verb: str, line: str) -> Program:
        """Read the base, and join the line."""
        base = yield get(HEAD)
        if base is INTERRUPTED:
            return ("interrupted",)
        yield do(_join, line, Member(me, verb, base.version))
        return Next("wait", (me, line))

    def wait(self, me: str, line: str) -> Program:
        """Wait until the commit is decided, or it leads."""
        decided = yield do(_wait, line, me)
        return Next("attempt", (me, line)) if decided is None else decided

    def attempt(self, me: str, line: str) -> Program:
        """Take the waiting commits along, look, check, and swap the head."""
        members = yield do(_take, line)
        answer = yield do(_read_head)
        head, entries = answer
        joined: list[Member] = []
        made: list[Entry] = []
        decided: dict[str, Value] = {}
        files = head.files
        for member in members:
            own = next((entry for entry in entries if entry.commit == member.name), None)
            if own is not None and member.pending is not None:
                decided[member.name] = ("acknowledged", own.version)
                continue
            since = [entry for entry in entries if entry.version > member.base]
            if self.bug != "members of a group are not checked against each other":
                since += made
            if member.verb == "overwrite" and since:
                decided[member.name] = (
                    ("unknown",) if member.pending == head else ("refused", "conflict")
                )
                continue
            removed = files if member.verb == "overwrite" else frozenset()
            added = frozenset({member.name})
            version = head.version + len(made) + 1
            made.append(Entry(version, member.name, member.base, "a", added, removed))
            files = files - removed | added
            joined.append(member)
        if decided:
            yield do(_decide, line, tuple(sorted(decided.items())))
        is_alone = self.bug == "a put goes on without its leader" and joined
        if not is_alone and (not joined or joined[0].name != me):
            # Only the leader owns what is written: without it, the others try again.
            yield do(_leave, line, me)
            return decided[me]
        group = tuple(one.name for one in joined)
        segment = f"history/{'+'.join(group)}@{head.version}"
        if (yield from written(segment, tuple(made))) is INTERRUPTED:
            yield do(_leave, line, me)
            return ("interrupted",)
        after = Head(made[-1].version, files, (*head.history, segment))
        noted = (me,) if "for the leader alone" in self.bug else group
        yield do(_begin_put, line, noted, head)
        answer = yield replace(HEAD, after, head)
        if answer is INTERRUPTED:
            yield do(_leave, line, me)
            return ("interrupted",)
        if answer is True:
            done = tuple((entry.commit, ("acknowledged", entry.version)) for entry in made)
            yield do(_decide, line, done)
            yield do(_leave, line, me)
            if me in decided:
                yield delete(segment)  # of its attempt, which was refused
                return decided[me]
            return dict(done)[me]
        if self.bug == "a segment is deleted while its put may land" and answer is LOST:
            yield delete(segment)
        if answer is LOST and (yield choose("try again", "give up")) == "give up":
            yield do(_leave, line, me)
            return ("unknown",)
        return Next("attempt", (me, line))

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        return {
            LANDS_ONCE: lands_once,
            ONCE: acknowledged_once,
            REFUSED: refused_absent,
            SEEN: seen_before,
            LIVE: _live,
        }

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {GROWS: _grows_by_group}

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        return {
            "a put of two commits": lambda step, before, after: (
                is_swap(step)
                and before.objects[HEAD] != after.objects[HEAD]
                and after.objects[HEAD].version == before.objects[HEAD].version + 2
            ),
            "a lost race": lambda step, _before, _after: is_swap(step) and step.answer is False,
            "a lost answer that had landed": lambda step, _before, _after: (
                is_swap(step) and step.outcome == "landed, answer lost"
            ),
            "a leader that is interrupted, and whose group goes on": lambda step, _before, after: (
                after.outcomes["ann"] == ("interrupted",)
                and after.outcomes["bob"] is not None
                and after.outcomes["bob"][0] == "acknowledged"
            ),
            "a commit that is refused beside one that goes on": lambda _step, _before, after: (
                after.outcomes["ann"] == ("refused", "conflict")
                and after.outcomes["bob"] is not None
                and after.outcomes["bob"][0] == "acknowledged"
            ),
        }


Objects = dict[str, tuple[Value, int]]


def _read_head(objects: Objects) -> Value:
    """Read the head, and the history that it names, which is immutable."""
    head = objects[HEAD][0]
    return head, tuple(entry for key in head.history for entry in objects[key][0])


def _join(objects: Objects, line: str, member: Member) -> None:
    there = objects[line][0]
    objects[line] = (there._replace(waiting=(*there.waiting, member)), 0)


def _wait(objects: Objects, line: str, me: str) -> Value:
    there = objects[line][0]
    decided = dict(there.decided)
    if me in decided:
        return decided[me]
    if there.leader or there.waiting[0].name != me:
        return BLOCKED
    objects[line] = (there._replace(leader=me), 0)
    return None


def _take(objects: Objects, line: str) -> Value:
    there = objects[line][0]
    # The leader first, whatever has joined before it.
    return tuple(sorted(there.waiting, key=lambda one: one.name != there.leader))


@internal
def _decide(objects: Objects, line: str, decided: tuple[tuple[str, Value], ...]) -> None:
    there = objects[line][0]
    names = dict(decided)
    left = tuple(one for one in there.waiting if one.name not in names)
    objects[line] = (there._replace(waiting=left, decided=there.decided | set(decided)), 0)


@internal
def _begin_put(objects: Objects, line: str, names: tuple[str, ...], head: Head) -> None:
    there = objects[line][0]
    waiting = tuple(
        one._replace(pending=head) if one.name in names else one for one in there.waiting
    )
    objects[line] = (there._replace(waiting=waiting), 0)


@internal
def _leave(objects: Objects, line: str, me: str) -> None:
    there = objects[line][0]
    waiting = tuple(one for one in there.waiting if one.name != me)
    objects[line] = (there._replace(leader="", waiting=waiting), 0)


def _live(view: View) -> str:
    head = view.objects[HEAD]
    named = (*(f"data/{file}" for file in sorted(head.files)), *head.history)
    gone = [key for key in named if key not in view.objects]
    return f"the head needs {', '.join(gone)}, which is gone" if gone else ""


def _grows_by_group(before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
    old, new = before[HEAD], after[HEAD]
    if old == new:
        return ""
    versions = [entry.version for entry in after.get(new.history[-1], ())]
    is_next = versions == list(range(old.version + 1, new.version + 1)) and versions
    return "" if is_next else f"{old.version} became {new.version} with the entries {versions}"
