"""The model of staged batches: stage, commit and discard, by processes that do not know each other.

It stands for `lakebed.work.staging` and for what a writer does whose manifest has no answer. A
cleanup after the lease does to a staged batch what a discard does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from protocol.checker import (
    LOST,
    Model,
    Next,
    Program,
    Value,
    View,
    choose,
    create,
    delete,
    do,
    get,
    put,
    replace,
    written,
)
from protocol.commits import (
    GROWS,
    HEAD,
    LANDS_ONCE,
    LIVE,
    Entry,
    entries_of,
    grows_by_one,
    is_swap,
    lands_once,
)

ONCE = "a commit of a staged batch is acknowledged as often as asked, and lands once"
DISCARDED = "what is discarded is never visible"
REFUSED = "a batch that was given up is not visible"
STAGED, BATCH = "batch/2", 2


class Head(NamedTuple):
    """The head, with the lowest batch that may still be committed."""

    version: int
    files: frozenset[str]
    history: tuple[str, ...]
    oldest_batch: int = 0


class Record(NamedTuple):
    """A reservation; staged once it is complete."""

    is_staged: bool = False
    is_given_up: bool = False


class Stages(Model):
    """Actors that do something to one batch; `verbs` are their programs."""

    name: ClassVar[str] = "stages"
    bugs: ClassVar[Mapping[str, str]] = {
        "a discard makes no commit": DISCARDED,
        "a discard does not look again after its commit": LIVE,
        "a stage deletes what was committed": LIVE,
        "a commit of a staged batch does not look for an earlier one": LANDS_ONCE,
        "a commit does not look whether its batch was given up": DISCARDED,
    }
    verbs: tuple[str, ...] = ("promote", "promote", "discard")
    is_staged: bool = True

    def objects(self) -> Mapping[str, Value]:
        """Begin with a version, and the staged batch unless an actor stages it."""
        first = frozenset({"a/1"})
        found: dict[str, Value] = {
            HEAD: Head(1, first, ("history/first",)),
            "data/a/1": "rows",
            "batch/1": Record(),
            "history/first": Entry(1, "first", 0, "a", first, batch=1),
        }
        if self.is_staged:
            found |= {STAGED: Record(is_staged=True), "data/a/2": "rows"}
        return found

    def actors(self) -> Mapping[str, Next]:
        """Return the actors."""
        names = ("ann", "bob", "cyn")
        return {name: Next(verb, (name,)) for name, verb in zip(names, self.verbs, strict=False)}

    def stage(self, me: str) -> Program:
        """Write the data, and complete the reservation."""
        if (yield create(STAGED, Record())) is not True:
            return ("refused", "the store failed")  # the id may be ours, and stays without files
        if (yield put("data/a/2", "rows")) is LOST:
            return Next("give_up", (me,))
        while True:
            answer = yield replace(STAGED, Record(is_staged=True), Record())
            if answer is True:
                return ("staged",)
            if answer is False:
                there = yield get(STAGED)
                return ("staged",) if there == Record(is_staged=True) else Next("give_up", (me,))
            if (yield choose("try again", "give up")) == "give up":
                return Next("give_up", (me,))

    def give_up(self, me: str) -> Program:
        """Ensure that no manifest can be written any more, and delete; or leave everything."""
        answer = yield replace(STAGED, Record(is_given_up=True), Record())
        if self.bug != "a stage deletes what was committed":
            if answer is LOST:
                return ("unknown",)
            if answer is False and (yield get(STAGED)) is not None:
                return ("unknown",)
        yield delete("data/a/2")
        yield delete(STAGED)
        return ("refused", "the store failed")

    def promote(self, me: str) -> Program:
        """Read the record, and commit it."""
        record = yield get(STAGED)
        if record is None or not record.is_staged:
            return ("refused", "no such batch")
        return Next("commit", (me, None))

    def commit(self, me: str, pending: Head | None) -> Program:
        """Look for the commit, and swap the head."""
        head, entries = yield do(_read_head)
        own = next((entry for entry in entries if entry.commit == "staged"), None)
        if own is not None and "does not look for an earlier one" not in self.bug:
            return ("acknowledged", own.version)
        is_given_up = head.oldest_batch > BATCH
        if is_given_up and self.bug != "a commit does not look whether its batch was given up":
            # A head that has moved refuses what was put on an earlier one.
            return ("refused", "given up") if head != pending else ("unknown",)
        segment = f"history/{me}@{head.version}"
        entry = Entry(head.version + 1, "staged", 1, "a", frozenset({"a/2"}), batch=BATCH)
        yield from written(segment, entry)
        after = head._replace(
            version=entry.version, files=head.files | entry.added, history=(*head.history, segment)
        )
        answer = yield replace(HEAD, after, head)
        if answer is True:
            return ("acknowledged", entry.version)
        if answer is LOST and (yield choose("try again", "give up")) == "give up":
            return ("unknown",)
        return Next("commit", (me, head if answer is LOST else None))

    def discard(self, me: str) -> Program:
        """Shut the batch out by a commit, unless it is committed, and delete it then."""
        head, entries = yield do(_read_head)
        if (yield get(STAGED)) is None:
            return ("refused", "no such batch")
        if any(entry.commit == "staged" for entry in entries):
            return ("refused", "it is committed")
        if head.oldest_batch <= BATCH and self.bug != "a discard makes no commit":
            return Next("shut_out", (me,))
        return Next("remove", (me,))

    def shut_out(self, me: str) -> Program:
        """Commit that the batch can no longer be committed, and look again."""
        while True:
            head, entries = yield do(_read_head)
            if any(entry.commit == me for entry in entries):
                break
            segment = f"history/{me}@{head.version}"
            yield from written(segment, Entry(head.version + 1, me, head.version, ""))
            after = head._replace(
                version=head.version + 1, history=(*head.history, segment), oldest_batch=BATCH + 1
            )
            answer = yield replace(HEAD, after, head)
            if answer is True:
                break
            if answer is LOST and (yield choose("try again", "give up")) == "give up":
                return ("unknown",)
        _, entries = yield do(_read_head)
        is_committed = any(entry.commit == "staged" for entry in entries)
        if is_committed and self.bug != "a discard does not look again after its commit":
            return ("refused", "it is committed")
        return Next("remove", (me,))

    def remove(self, me: str) -> Program:
        """Delete the files, and the record last."""
        yield delete("data/a/2")
        yield delete(STAGED)
        return ("discarded",)

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        return {
            LANDS_ONCE: lands_once,
            ONCE: _acknowledged,
            DISCARDED: _discarded,
            REFUSED: _refused,
            LIVE: _live,
        }

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {GROWS: grows_by_one}

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        met: dict[str, object] = {
            "a lost race": lambda step, _before, _after: is_swap(step) and step.answer is False,
        }
        if self.is_staged:
            met |= {
                "two acknowledgements of one commit": lambda _step, _before, after: (
                    len(list(after.ended("acknowledged"))) > 1
                ),
                "a discard that finds the batch committed after its own commit": (
                    lambda step, _before, after: (
                        step.request is not None
                        and step.request.op == "do"
                        and ("it is committed",)
                        in [why for name, why in after.ended("refused") if name == step.actor]
                        and any(entry.commit == step.actor for entry in entries_of(after))
                    )
                ),
                "a commit that finds its batch given up": lambda _step, _before, after: any(
                    why == ("given up",) for _, why in after.ended("refused")
                ),
            }
        else:
            met["a batch that may be staged although its writer had no answer"] = (
                lambda _step, _before, after: (
                    bool(list(after.ended("unknown")))
                    and after.objects.get(STAGED) == Record(is_staged=True)
                )
            )
        return met


def _read_head(objects: Mapping[str, tuple[Value, int]]) -> Value:
    """Read the head, and the history that it names, which is immutable."""
    head = objects[HEAD][0]
    return head, tuple(objects[key][0] for key in head.history)


def _acknowledged(view: View) -> str:
    there = [entry.version for entry in entries_of(view) if entry.commit == "staged"]
    wrong = [name for name, (version,) in view.ended("acknowledged") if there != [version]]
    return f"{', '.join(wrong)} was acknowledged, and it landed as {there}" if wrong else ""


def _discarded(view: View) -> str:
    has_landed = any(entry.commit == "staged" for entry in entries_of(view))
    return "it was discarded, and is visible" if has_landed and any(view.ended("discarded")) else ""


def _refused(view: View) -> str:
    has_landed = any(entry.commit == "staged" for entry in entries_of(view))
    given_up = [name for name, why in view.ended("refused") if why == ("given up",)]
    return (
        f"{', '.join(given_up)} was refused, and it is visible" if has_landed and given_up else ""
    )


def _live(view: View) -> str:
    head = view.objects[HEAD]
    named = (*(f"data/{file}" for file in sorted(head.files)), *head.history)
    batches = tuple(f"batch/{file.rpartition('/')[2]}" for file in sorted(head.files))
    gone = [key for key in (*named, *batches) if key not in view.objects]
    return f"the head needs {', '.join(gone)}, which is gone" if gone else ""
