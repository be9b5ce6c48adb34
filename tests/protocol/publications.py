"""The model of publications: publishers of one table beside commits, cleanups and readers.

It stands for `lakebed.tables.engine`, `lakebed.state.published`, the Delta log and the Iceberg
metadata beside the data, and for what `lakebed.work.cleanup` and `inventory` make of notes. A commit
is one step here, and replaces all rows by one file. Tables that are given up, metadata that others
write, and deletions of old metadata are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from protocol.checker import (
    LOST,
    Model,
    Next,
    Program,
    Step,
    Value,
    View,
    choose,
    clock,
    create,
    delete,
    do,
    get,
    list_,
    put,
    replace,
    written,
)

HEAD, NOTE, HINT = "head", "note", "hint"
FORWARD = "a published table does not go back"
WHOLE = "a published table shows one whole version"
SHOWN = "no file of a version that a table shows is deleted"
TOLD = "readers of a table see what was published, or a later version"
EACH = "a published table shows each version once"
GRACE = "a reader of a table finds its files for the retention"
LONG_AGO = -9
LEASE = 1


class Head(NamedTuple):
    """The head, with what its history states.

    Attributes:
        files: The file of each version, oldest first.
        times: When each version was committed.
        horizon: The oldest version that no cleanup has given up.
    """

    files: tuple[str, ...]
    times: tuple[int, ...]
    horizon: int = 1

    @property
    def version(self) -> int:
        """The current version."""
        return len(self.files)

    def last_with(self, file: str) -> int:
        """Return the last version that has a file."""
        return max(at for at, one in enumerate(self.files, 1) if one == file)


class Publisher(NamedTuple):
    """A publisher at work: its name, its version, and when its lease ends."""

    name: str
    version: int
    until: int


class Note(NamedTuple):
    """The note of the table.

    Attributes:
        versions: The versions that the table may show.
        publishers: The publishers that have begun, and not ended.
        left: Versions that it no longer shows: the lowest of them, and when it showed the last one.
    """

    versions: frozenset[int] = frozenset()
    publishers: frozenset[Publisher] = frozenset()
    left: tuple[tuple[int, int], ...] = ()


class Entry(NamedTuple):
    """A commit of the Delta log."""

    version: int
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


class Metadata(NamedTuple):
    """A version of the metadata of an Iceberg table, with the manifest that it names."""

    version: int
    manifest: str


class Table(NamedTuple):
    """A table as a publisher finds it.

    Attributes:
        number: The number of its last log entry or metadata; 0 if there is none.
        version: The version of the dataset that it shows.
        files: The files of that version, as it shows them.
        is_found: Whether the hint of an Iceberg table leads there.
    """

    number: int = 0
    version: int = 0
    files: frozenset[str] = frozenset()
    is_found: bool = True


class Round(NamedTuple):
    """What a publisher carries through one round.

    Attributes:
        me: Its name.
        since: The version that it must publish at least.
        note: The note, as it was read or written last.
        others: The other publishers whose leases have not ended.
        head: The head that it publishes.
        table: The table before.
        until: When its lease ends.
    """

    me: str
    since: int
    note: Note
    others: frozenset[Publisher]
    head: Head
    table: Table
    until: int = 0


class Publications(Model):
    """Publishers beside others; `others` are the programs.

    Attributes:
        kind: `delta` or `iceberg`.
        others: What each actor does.
        retention: How long cleanups keep files for readers.
        is_new: Whether the table is not published yet.
    """

    name: ClassVar[str] = "publications"
    bugs: ClassVar[Mapping[str, str]] = {
        "a publisher reads the head before the note": FORWARD,
        "a publisher writes its log entry without a condition": FORWARD,
        "a publisher ends its note before it changes the table": SHOWN,
        "a publisher does not begin a note": SHOWN,
        "a publisher does not read the head again after its note": SHOWN,
        "a publisher that fails withdraws its version": SHOWN,
        "a publisher that loses a race counts as done": TOLD,
        "a publisher changes what is right": EACH,
        "a cleanup ignores publications": SHOWN,
        "a cleanup does not read the notes again after its commit": SHOWN,
        "a note forgets the versions that readers hold": GRACE,
        "a publisher puts its metadata without a condition": FORWARD,
        "a publisher leads readers back to its own metadata": FORWARD,
        "a publisher leads readers to metadata before it writes them": WHOLE,
        "a publisher ends without leading readers to metadata": TOLD,
    }
    kind: str = "delta"
    others: tuple[str, ...] = ("publish", "commit_and_publish")
    retention: int = 0
    is_new: bool = False

    def objects(self) -> Mapping[str, Value]:
        """Begin with two versions, of which the table shows the first."""
        found: dict[str, Value] = {
            HEAD: Head(("1", "2"), (LONG_AGO, LONG_AGO)),
            "data/1": "rows",
            "data/2": "rows",
        }
        found |= {f"data/{name}": "rows" for name in self.actors() if name in ("bob", "cyn")}
        if self.is_new:
            return found
        found[NOTE] = Note(frozenset({1}))
        if self.kind == "delta":
            return found | {"log/1": Entry(1, frozenset({"1"}))}
        return found | {
            "manifest/first": frozenset({"1"}),
            "metadata/1": Metadata(1, "manifest/first"),
            HINT: 1,
        }

    def actors(self) -> Mapping[str, Next]:
        """Return the actors."""
        names = {
            "publish": ("ann", "dan"),
            "commit": ("bob",),
            "commit_and_publish": ("bob", "cyn"),
            "clean": ("clean0", "clean1"),
            "read": ("reader",),
        }
        found: dict[str, Next] = {}
        for program in self.others:
            name = next(one for one in names[program] if one not in found)
            found[name] = Next(program, (name,))
        return found

    def _now(self) -> Program:
        return (yield clock()) if self.ticks else 0

    # --- Commits and readers

    def commit(self, me: str) -> Program:
        """Replace all rows by the own file."""
        now = yield from self._now()
        yield do(_commit, me, now)
        return ("committed",)

    def commit_and_publish(self, me: str) -> Program:
        """Replace all rows by the own file, and publish."""
        now = yield from self._now()
        version = yield do(_commit, me, now)
        return Next("publish", (me, version))

    def read(self, me: str) -> Program:
        """Open the table, and read its files later."""
        began = yield clock()
        version, files = yield do(_open, self.kind)
        for file in sorted(files or ()):
            if (yield get(f"data/{file}")) is None:
                age = (yield clock()) - began
                return ("lost", version, age < self.retention)
        return ("read", version)

    # --- Publishers

    def publish(self, me: str, since: int = 0) -> Program:
        """Read the note, then the head, then the table, and decide what to change."""
        if self.bug == "a publisher reads the head before the note":
            head = yield get(HEAD)
            note = (yield get(NOTE)) or Note()
        else:
            note = yield get(NOTE)
            head = yield get(HEAD)
        is_there, note = note is not None, note or Note()
        now = yield from self._now()
        others = frozenset(
            other for other in note.publishers if other.name != me and other.until > now
        )
        led_to = (yield get(HINT)) if self.kind == "iceberg" else None
        table = yield do(_find, self.kind, led_to)
        one = Round(me, since, note, others, head, table)
        if not _is_to_change(one) and note.versions == {head.version}:
            return Next("look_again", (me, since, head.version))
        if self.bug == "a publisher does not begin a note":
            return Next("apply", (one,))
        return Next("begin", (one, is_there))

    def begin(self, one: Round, is_there: bool) -> Program:
        """Record the version before the table shows it."""
        own = Publisher(one.me, one.head.version, (yield from self._now()) + LEASE)
        wanted = Note(one.note.versions | {own.version}, one.others | {own}, one.note.left)
        if self.bug == "a publisher ends its note before it changes the table":
            wanted = wanted._replace(versions=frozenset({one.head.version}))
        begun = one._replace(note=wanted, until=own.until)
        request = replace(NOTE, wanted, one.note) if is_there else create(NOTE, wanted)
        answer = yield request
        if answer is LOST:
            if (yield choose("repeat", "fail")) == "fail":
                return Next("fail", (one.me, one.since))
            answer = yield request
            if answer is LOST:
                return Next("fail", (one.me, one.since))
        if answer is False and (yield get(NOTE)) != wanted:
            return Next("publish", (one.me, one.since))  # another publisher has begun or ended
        return Next("apply", (begun,))

    def apply(self, one: Round) -> Program:
        """Look whether a cleanup has given the version up, and change the table."""
        if self.bug != "a publisher does not read the head again after its note":
            head = yield get(HEAD)
            if head.horizon > one.head.version:
                return Next("give_up", (one, "publish"))
        if (yield from self._now()) >= one.until > 0:
            return Next("give_up", (one, "fail"))
        return Next(f"apply_{self.kind}", (one,))

    def apply_delta(self, one: Round) -> Program:
        """Put the next entry of the log, if there is none."""
        if (
            one.table.version == one.head.version
            and self.bug != "a publisher changes what is right"
        ):
            return Next("finish", (one,))
        files = frozenset({one.head.files[-1]})
        entry = Entry(one.head.version, files - one.table.files, one.table.files - files)
        key = f"log/{one.table.number + 1}"
        if self.bug == "a publisher writes its log entry without a condition":
            answer = yield put(key, entry)
        else:
            answer = yield create(key, entry)
        if answer is LOST:
            return Next("give_up", (one, "fail"))
        if answer is False and self.bug != "a publisher that loses a race counts as done":
            return Next("give_up", (one, "publish"))
        return Next("finish", (one,))

    def apply_iceberg(self, one: Round) -> Program:
        """Put a manifest, and the next metadata if there are none."""
        if one.table.version == one.head.version:
            return Next("lead", (one, one.table.number))
        number = one.table.number + 1
        manifest = f"manifest/{one.me}{number}@{one.head.version}"
        key, metadata = f"metadata/{number}", Metadata(one.head.version, manifest)
        yield from written(manifest, frozenset({one.head.files[-1]}))
        if self.bug == "a publisher leads readers to metadata before it writes them":
            yield replace(HINT, number, (yield get(HINT)))
        if self.bug == "a publisher puts its metadata without a condition":
            answer = yield put(key, metadata)
        else:
            answer = yield create(key, metadata)
        if answer is LOST:
            return Next("give_up", (one, "fail"))
        if answer is False and (yield get(key)) != metadata:
            return Next("give_up", (one, "publish"))
        if self.bug == "a publisher ends without leading readers to metadata":
            return Next("finish", (one,))
        return Next("lead", (one, number))

    def lead(self, one: Round, number: int) -> Program:
        """Lead readers to metadata, unless they are led as far already."""
        led_to = yield get(HINT)
        if self.bug == "a publisher leads readers back to its own metadata":
            answer = yield replace(HINT, number, led_to)
        elif led_to is not None and led_to >= number:
            answer = True
        elif led_to is None:
            answer = yield create(HINT, number)
        else:
            answer = yield replace(HINT, number, led_to)
        if answer is LOST:
            return Next("give_up", (one, "fail"))
        if answer is False:
            return Next("lead", (one, number))
        if (yield get(f"metadata/{number + 1}")) is not None:
            return Next("lead", (one, number + 1))
        return Next("finish", (one,))

    def finish(self, one: Round) -> Program:
        """Record that the table shows the version; look again if the note has changed."""
        if self.bug == "a publisher does not begin a note":
            return Next("look_again", (one.me, one.since, one.head.version))
        versions = frozenset({one.head.version, *(other.version for other in one.others)})
        gone, left = one.note.versions - versions, one.note.left
        if gone and self.retention and "forgets" not in self.bug:
            left = (*left, (min(gone), (yield from self._now())))
        answer = yield replace(NOTE, Note(versions, one.others, left), one.note)
        if answer is LOST:
            return Next("fail", (one.me, one.since))
        if answer is True:
            return Next("look_again", (one.me, one.since, one.head.version))
        if (yield from self._end(one)):
            return Next("look_again", (one.me, one.since, one.head.version))
        return Next("publish", (one.me, one.since))

    def give_up(self, one: Round, then: str) -> Program:
        """Withdraw from the note, which keeps the version; then fail, or publish again."""
        yield from self._end(one)
        return Next(then, (one.me, one.since))

    def fail(self, me: str, since: int) -> Program:
        """Report a failure, or look again since others have changed the note."""
        if (yield choose("fail", "look again")) == "fail":
            return ("failed",)
        return Next("publish", (me, since))

    def look_again(self, me: str, since: int, version: int) -> Program:
        """Go on if the head has moved."""
        head = yield get(HEAD)
        return (
            Next("publish", (me, since))
            if head.version != version
            else ("published", version, since)
        )

    def _end(self, one: Round) -> Program:
        """Take the publisher out of the note; return whether others are active."""
        while True:
            note = (yield get(NOTE)) or Note()
            others = frozenset(other for other in note.publishers if other.name != one.me)
            versions = note.versions | {one.head.version}
            if self.bug == "a publisher that fails withdraws its version":
                versions = note.versions - {one.head.version}
            wanted = Note(versions, others, note.left)
            if wanted == note or (yield replace(NOTE, wanted, note)) is True:
                now = yield from self._now()
                return any(other.until > now for other in others)

    # --- Cleanups

    def clean(self, me: str) -> Program:
        """List files, read head and note, and decide which files are dead."""
        now = yield from self._now()
        listed = yield list_("data/")
        head = yield get(HEAD)
        note = (yield get(NOTE)) or Note()
        files = frozenset(key.partition("/")[2] for key, _ in listed)
        old = self._old(files, head, note, now)
        if not old:
            return ("done",)
        horizon = max((head.horizon, *(head.last_with(file) + 1 for file in old)))
        if horizon <= head.horizon:
            return Next("remove", (old,))
        return Next("give_files_up", (old, horizon, note, now))

    def give_files_up(self, old: frozenset[str], horizon: int, note: Note, now: int) -> Program:
        """Commit what is given up, and judge again by the note and the head after it."""
        yield do(_give_up, horizon, now)
        head = yield get(HEAD)
        if self.bug != "a cleanup does not read the notes again after its commit":
            note = (yield get(NOTE)) or Note()
        return Next("remove", (self._old(old, head, note, now),))

    def remove(self, old: frozenset[str]) -> Program:
        """Delete files."""
        if old:
            yield delete(*(f"data/{file}" for file in sorted(old)))
        return ("done",)

    def _old(self, files: frozenset[str], head: Head, note: Note, now: int) -> frozenset[str]:
        """Return the files that were replaced before the retention, and that no table shows."""
        cutoff = now - self.retention
        held = min((since for since, at in note.left if at > cutoff), default=head.version)
        shown = {*note.versions, *range(held, head.version + 1)}
        if self.bug == "a cleanup ignores publications":
            shown = set()
        known = (version for version in shown if version <= head.version)
        kept = {head.files[version - 1] for version in (*known, head.version)}
        return frozenset(
            file
            for file in files - kept
            if file in head.files and head.times[head.last_with(file)] <= cutoff
        )

    # --- Rules

    def invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each state."""
        return {
            WHOLE: self._whole,
            SHOWN: self._shown,
            TOLD: self._told,
            EACH: self._each,
            GRACE: _grace,
        }

    def step_invariants(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return the rules of each change."""
        return {FORWARD: self._forward}

    def _whole(self, view: View) -> str:
        version, files = shown(view.objects, self.kind)
        if version == 0:
            return "it cannot be read" if files is None else ""
        wanted = frozenset({view.objects[HEAD].files[version - 1]})
        return "" if files == wanted else f"version {version} is shown with {files}, not {wanted}"

    def _shown(self, view: View) -> str:
        version, files = shown(view.objects, self.kind)
        gone = [file for file in sorted(files or ()) if f"data/{file}" not in view.objects]
        return f"{', '.join(gone)} of version {version} is shown, and gone" if gone else ""

    def _told(self, view: View) -> str:
        version, _ = shown(view.objects, self.kind)
        for name, (told, since) in view.ended("published"):
            if not since <= told <= version:
                return f"{name} committed {since}, published {told}, and readers see {version}"
        return ""

    def _each(self, view: View) -> str:
        folder = "log/" if self.kind == "delta" else "metadata/"
        counts = Counter(one.version for key, one in view.objects.items() if key.startswith(folder))
        return ", ".join(f"{one} is there {n} times" for one, n in counts.items() if n > 1)

    def _forward(self, before: Mapping[str, Value], after: Mapping[str, Value]) -> str:
        old, new = (shown(one, self.kind)[0] for one in (before, after))
        if new < old:
            return f"version {old} was shown, and then {new}"
        old, new = (self._last(one) for one in (before, after))
        return "" if old <= new else f"version {old} was the last one, and then {new}"

    def _last(self, objects: Mapping[str, Value]) -> int:
        """Return the version that readers see who look for newer metadata than the hint names."""
        return _find({key: (value, 0) for key, value in objects.items()}, self.kind, None).version

    def probes(self) -> Mapping[str, object]:  # type: ignore[override]
        """Return what has to be met."""
        met: dict[str, object] = {
            "a publisher that loses a race for the table": lambda step, _before, _after: (
                _is_put_of_table(step) and step.answer is False
            ),
            "a note that has changed meanwhile": lambda step, _before, _after: (
                step.request is not None
                and (step.request.op, step.request.key) == ("replace", NOTE)
                and step.answer is False
            ),
            "a table that shows two versions, one after the other": lambda _step, before, after: (
                0 < shown(before.objects, self.kind)[0] < shown(after.objects, self.kind)[0]
            ),
        }
        if self.crashes:
            met["a table whose publisher was killed before it ended its note"] = (
                lambda _step, _before, after: (
                    any(True for _ in after.ended("killed"))
                    and any(True for _ in after.ended("published"))
                    and bool((after.objects.get(NOTE) or Note()).publishers)
                )
            )
        if self.losses:
            met["a late change of the table that lands"] = lambda step, before, after: (
                step.outcome == "lands late"
                and _is_put_of_table(step)
                and before.objects != after.objects
            )
            met["a late change of the table that is refused"] = lambda step, before, after: (
                step.outcome == "lands late"
                and _is_put_of_table(step)
                and before.objects == after.objects
            )
        if "clean" in self.others:
            met["a cleanup that deletes a file"] = lambda step, before, after: (
                step.request is not None
                and step.request.op == "delete"
                and before.objects != after.objects
            )
            met["a cleanup that keeps what a publisher has noted since it began"] = (
                lambda step, before, _after: (
                    step.request is not None
                    and step.request == get(NOTE)
                    and step.actor.startswith("clean")
                    and step.answer is not None
                    and before.objects[HEAD].horizon > min(step.answer.versions, default=99)
                )
            )
            met["a publisher whose version was given up"] = lambda step, before, _after: (
                step.request == get(HEAD)
                and step.answer is not None
                and any(
                    one.name == step.actor and one.version < step.answer.horizon
                    for one in (before.objects.get(NOTE) or Note()).publishers
                )
            )
        if "read" in self.others:
            met["a reader that goes on after the retention"] = lambda _step, _before, after: any(
                True for _ in after.ended("lost")
            )
        return met


def shown(objects: Mapping[str, Value], kind: str) -> tuple[int, frozenset[str] | None]:
    """Return the version that readers of a table see, and its files; None if it cannot be read.

    Readers of Iceberg follow the hint; readers of Delta play the log.
    """
    if kind == "delta":
        return _played(objects)[1:]
    if HINT not in objects:
        return 0, frozenset()
    metadata = objects.get(f"metadata/{objects[HINT]}")
    return (0, None) if metadata is None else (metadata.version, objects.get(metadata.manifest))


def _played(objects: Mapping[str, Value]) -> tuple[int, int, frozenset[str] | None]:
    """Return the number of the last log entry, and the version and files that it leads to."""
    files: frozenset[str] = frozenset()
    version = number = 0
    while (entry := objects.get(f"log/{number + 1}")) is not None:
        number += 1
        if entry.added & files or not entry.removed <= files:
            return number, entry.version, None
        version, files = entry.version, files - entry.removed | entry.added
    return number, version, files


def _find(objects: Mapping[str, tuple[Value, int]], kind: str, led_to: int | None) -> Table:
    """Find the newest version of a table: versions are immutable, and numbered without gaps."""
    found = _plain(objects)
    if kind == "delta":
        number, version, files = _played(found)
        return Table(number, version, files or frozenset())
    number = 0
    while f"metadata/{number + 1}" in found:
        number += 1
    if not number:
        return Table()
    metadata = found[f"metadata/{number}"]
    return Table(number, metadata.version, found[metadata.manifest], led_to == number)


def _open(objects: Mapping[str, tuple[Value, int]], kind: str) -> Value:
    return shown(_plain(objects), kind)


def _plain(objects: Mapping[str, tuple[Value, int]]) -> dict[str, Value]:
    return {key: value for key, (value, _) in objects.items()}


def _commit(objects: dict[str, tuple[Value, int]], file: str, now: int) -> int:
    head = objects[HEAD][0]
    objects[HEAD] = (head._replace(files=(*head.files, file), times=(*head.times, now)), 0)
    return head.version + 1


def _give_up(objects: dict[str, tuple[Value, int]], horizon: int, now: int) -> None:
    _commit(objects, objects[HEAD][0].files[-1], now)
    head = objects[HEAD][0]
    objects[HEAD] = (head._replace(horizon=max(head.horizon, horizon)), 0)


def _is_to_change(one: Round) -> bool:
    return one.table.version != one.head.version or not one.table.is_found


def _is_put_of_table(step: Step) -> bool:
    return (
        step.request is not None
        and step.request.op in ("create", "put")
        and str(step.request.key).startswith(("log/", "metadata/"))
    )


def _grace(view: View) -> str:
    early = [f"{name} of {version}" for name, (version, is_early) in view.ended("lost") if is_early]
    return f"{', '.join(early)} has lost a file within the retention" if early else ""
