"""What must be true after a schedule, whatever the order: the rules of the design, as a model.

The model replays the history in the order of its versions. What each commit was to do is known from
the verb that made it, and what it did is read from storage, version by version.
"""

from __future__ import annotations

import collections
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from inside import cached_state_of

import lakebed
from lakebed.errors import DatasetNotFoundError, LakebedError, VersionNotFoundError
from lakebed.state import history
from lakebed.state.codec import to_document
from lakebed.state.history import replay
from lakebed.state.readable import protected_versions
from lakebed.state.reader import read_head
from lakebed.state.state import State, is_one_dataset
from lakebed.tables.delta.actions import path_of
from lakebed.tables.delta.log import LiveFiles, Log
from lakebed.tables.iceberg.homes import FilesBeside
from lakebed.tables.iceberg.manifests import live_files
from lakebed.tables.iceberg.metadata_names import hint_key
from schedules.verbs import AT_FIRST, BROKEN_LINE, LEVEL, NAME, RAW_LINES, ROOT
from schedules.world import ANSWERS, Attempt, HeadEvent, World

_T = TypeVar("_T")
_MOST_ANSWERS = 4_000
# A refused verb of these may have come a part of its way, commit by commit, as its docs say.
_BY_PARTS = frozenset(
    {"build_index", "change_kind", "compact", "compact_metadata", "erase", "move_head"}
)
_SCHEMA_FILE = "/_common_metadata"
_WRITE_SCHEMA_FILE = frozenset({"create", "drop", "add_field", "set_property"})
# Commits of these change rows; those of all others leave them as they are.
_CHANGE_ROWS = frozenset(
    {"append", "overwrite", "rerun", "delete", "merge", "rollback", "transaction", "ingest"}
)
# A verb takes at most 66 turns where nobody else is, and a few hundred beside others.
MOST_TURNS = 600
# An epoch that was taken back is written again.
_TAKE_BACK = frozenset({"drop", "rollback"})
# Commits of these say what will be deleted, which may fail afterwards.
_GIVE_UP = frozenset({"cleanup", "discard"})


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that does not hold, and where."""

    rule: str
    told: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.told}"


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it was given, and the run that wrote it."""

    values: Mapping[str, Any]
    run: str | None

    def read_with(self, fields: tuple[str, ...]) -> tuple[Any, ...]:
        """Return what a reader sees of it: a field that it lacks is null."""
        return tuple(self.values.get(name) for name in fields)


@dataclass(frozen=True, slots=True)
class Known:
    """What a version of the dataset is by the model."""

    rows: Mapping[int, Row] = field(default_factory=dict)
    fields: tuple[str, ...] = ("c", "n", "k")
    properties: Mapping[str, str] = field(default_factory=dict)
    index: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset(AT_FIRST)

    def level_of(self, row: Row) -> str:
        """Return the partition of a row."""
        value = row.values["c"]
        return value if value in self.allowed else "OTHER"

    def levels(self, rows: Mapping[int, Row]) -> frozenset[str]:
        return frozenset(map(self.level_of, rows.values()))

    def within(self, levels: frozenset[str]) -> dict[int, Row]:
        """Return the rows of some partitions."""
        return {n: row for n, row in self.rows.items() if self.level_of(row) in levels}

    def without(self, levels: frozenset[str]) -> dict[int, Row]:
        return {n: row for n, row in self.rows.items() if self.level_of(row) not in levels}


def judge(world: World, *, is_settled: bool = False) -> list[Violation]:
    """Return the rules that do not hold once everybody has come to an end.

    Args:
        world: Where all that had to be done is done.
        is_settled: Nothing is half done any more, so that a check must find nothing, either.
    """
    return _Judge(world, is_settled=is_settled).violations()


class _Judge:
    def __init__(self, world: World, *, is_settled: bool) -> None:
        self.world = world
        self.is_settled = is_settled
        self.found: list[Violation] = []
        self.repository = lakebed.Repository(world.inner)
        self.landed: dict[str, HeadEvent] = {}
        self.created: dict[tuple[str, str], HeadEvent] = {}  # by commit id and creation time
        for event in world.events:
            if event.is_put:
                self.created.setdefault((event.state.commit_id, event.state.created_at), event)
                for commit_id in event.commit_ids:
                    self.landed.setdefault(commit_id, event)
                known = self.landed.setdefault(event.state.commit_id, event)
                # A creation that landed unheard and gave way to a namesake may be made anew.
                is_anew = known.state.created_at != event.state.created_at
                if is_anew and known.attempt is event.attempt:
                    self.landed[event.state.commit_id] = event
        self.dropped: set[str] = set()  # datasets, by creation time, that a drop has taken
        self.versions: dict[int, Known] = {}
        self.born: dict[int, int] = {}  # the version that brought a row
        # Whoever erases rows may have come a part of the way: they may be there, or not.
        self.doomed = {n for one in world.attempts for n in one.intent.get("erases", ())}
        self.all_rows = {
            n: Row(values, attempt.intent.get("run"))
            for attempt in world.attempts
            for n, values in attempt.intent.get("rows", {}).items()
            if n not in self.doomed
        }

    def say(self, rule: str, told: object) -> None:
        self.found.append(Violation(rule, str(told)))

    def violations(self) -> list[Violation]:
        self.check_errors()
        self.check_drops()
        self.check_moves()
        for attempt, key in self.world.live_deleted:
            self.say("nothing live is deleted", f"{key}: {attempt}")
        state, dataset = self.final()
        if state is None or dataset is None:
            self.check_acknowledged(None, {})
            return self.found
        try:
            entries = dataset.history()
        except LakebedError as exc:
            self.say("the history is readable", exc)
            return self.found
        by_id = {one.commit_id: one for one in entries}
        if len(by_id) != len(entries):
            self.say("a commit lands once", [(one.version, one.operation) for one in entries])
        if [one.version for one in entries] != list(range(len(entries))):
            self.say("versions are without a gap", [one.version for one in entries])
        self.check_acknowledged(state, by_id)
        self.check_refused(by_id)
        self.check_discarded(entries)
        self.replay(state, dataset, entries)
        self.check_reads(state)
        self.check_final(state, dataset)
        self.check_epochs(by_id)
        self.check_sources(state, dataset, entries)
        if "published" in self.world.notes:
            self.check_published(state)
        if self.is_settled and "iceberg" in self.world.notes:
            self.check_iceberg(state)
        return self.found

    def check_errors(self) -> None:
        for attempt in self.world.attempts:
            if attempt.outcome == "broken":
                self.say("errors are named", attempt)
            is_long = self.world.is_systematic and attempt.turns > MOST_TURNS
            if attempt.outcome == "running" or is_long:
                self.say("every verb comes to an end", f"after {attempt.turns} turns: {attempt}")
            if attempt.actor in ("setup", "settle", "sweep") and attempt.outcome != "done":
                gone = isinstance(attempt.error, DatasetNotFoundError)
                if not gone:
                    self.say("who comes last can go on", attempt)

    def check_drops(self) -> None:
        """Check that a drop takes what it has seen, and nothing else."""
        states = self.world.states
        for event in self.world.events:
            if event.is_put or event.attempt.verb != "drop":
                continue
            seen = {states[etag].created_at for etag in event.attempt.seen if etag in states}
            if event.state.created_at in seen:
                self.dropped.add(event.state.created_at)
            else:
                self.say("a drop takes only the dataset that it has seen", event.attempt)

    def check_moves(self) -> None:
        """Check that a new head gets no commit while the old one exists."""
        heads: dict[str, State] = {}
        for event in self.world.events:
            if not event.is_put:
                heads.pop(event.key, None)
                continue
            heads[event.key] = state = event.state
            for key, other in heads.items():
                is_old = key != event.key and other.moves_to is state.head_format
                if is_old and is_one_dataset(other, state) and state.version > other.version:
                    self.say("no commit goes to a new head beside the old one", event.attempt)

    def final(self) -> tuple[State | None, lakebed.Dataset | None]:
        try:
            state = read_head(self.world.inner, NAME).state
            dataset = self.repository.open(NAME)
        except DatasetNotFoundError:
            return None, None
        except LakebedError as exc:
            self.say("the dataset can be opened", f"{type(exc).__name__}: {exc}")
            return None, None
        for attempt in self.world.attempts:
            has_dropped = attempt.verb == "drop" and attempt.outcome == "done"
            if has_dropped and state.created_at in self.taken_by(attempt):
                self.say("what was dropped is gone", attempt)
        return state, dataset

    def taken_by(self, drop: Attempt) -> set[str]:
        """Return the datasets, by creation time, that a drop has taken, or at least has found.

        Where it found two new ones of the name, it takes the one that has the name.
        """
        events = (event for event in self.world.events if event.attempt is drop)
        taken = {event.state.created_at for event in events if not event.is_put}
        first = self.world.states.get(drop.seen[0]) if drop.seen else None
        return taken or ({first.created_at} if first is not None else set())

    def acknowledged(self) -> Iterator[tuple[Attempt, str, int]]:
        for attempt in self.world.attempts:
            for commit in attempt.answers:
                yield attempt, commit.commit_id, commit.version
            if attempt.verb == "create" and attempt.outcome == "done":
                for event in self.landed.values():
                    if event.attempt is attempt and event.state.version == 0:
                        yield attempt, event.state.commit_id, 0

    def check_acknowledged(self, state: State | None, by_id: Mapping[str, Any]) -> None:
        for attempt, commit_id, version in self.acknowledged():
            event = self.landed.get(commit_id)
            if state is not None:  # of a creation that was made anew, the one that is here
                event = self.created.get((commit_id, state.created_at), event)
            if event is None:
                self.say("what is acknowledged has landed", attempt)
            elif state is not None and event.state.created_at == state.created_at:
                entry = by_id.get(commit_id)
                if entry is None or entry.version != version:
                    self.say(
                        "what is acknowledged stays in the history",
                        f"version {version} of {attempt}",
                    )
            elif event.state.created_at not in self.dropped:
                self.say("what is acknowledged is not lost with its dataset", attempt)

    def check_refused(self, by_id: Mapping[str, Any]) -> None:
        """Check that what was refused is not visible, nor what nobody has asked for."""
        for commit_id, entry in by_id.items():
            attempt = self.world.commits.get(commit_id)
            told = f"version {entry.version} of {attempt}"
            if attempt is None:
                self.say("every commit is somebody's", entry)
            elif entry.operation in _GIVE_UP:
                continue
            elif attempt.verb == "stage":
                commits = [
                    one.outcome
                    for one in self.world.attempts
                    if one.verb == "commit_staged" and one.intent.get("batch") == entry.batch_id
                ]
                if set(commits) <= {"refused"}:
                    self.say("what is refused is not visible", told)
            elif attempt.outcome == "refused" and attempt.verb not in _BY_PARTS:
                self.say("what is refused is not visible", told)

    def check_discarded(self, entries: Any) -> None:
        committed = {one.batch_id: one for one in entries if one.batch_id is not None}
        for attempt in self.world.attempts:
            entry = committed.get(attempt.intent.get("discarded"))
            if entry is None:
                continue
            told = f"version {entry.version} is of what {attempt} discarded"
            writer = self.world.commits.get(entry.commit_id)
            if writer is not None and writer.intent.get("batch") == entry.batch_id:
                self.say("what is discarded is never visible", told)
            else:
                self.say("the id of a batch is given once", told)

    # The replay.

    def replay(self, state: State, dataset: lakebed.Dataset, entries: Any) -> None:
        kept = {one.version for one in state.protections if one.version is not None}
        for entry in entries:
            attempt = self.world.commits.get(entry.commit_id)
            self.check_place(entry, attempt)
            before = self.versions.get(entry.version - 1, Known())
            expected = before if attempt is None else self.after(before, entry, attempt)
            try:
                past = dataset.at(version=entry.version)
            except VersionNotFoundError as exc:
                if entry.version >= state.horizon or entry.version in kept:
                    self.say("a version that is kept can be read", f"{entry.version}: {exc}")
                self.versions[entry.version] = expected
                continue
            except LakebedError as exc:
                self.say("a version that is kept can be read", f"{entry.version}: {exc}")
                self.versions[entry.version] = expected
                continue
            expected = self.compare_descriptor(entry, attempt, expected, past)
            is_same = not entry.files_added and not entry.files_removed
            if is_same and expected == before and entry.version:
                # The same files under the same descriptor, which have just been read.
                self.versions[entry.version] = expected
                continue
            self.versions[entry.version] = self.compare_rows(entry, attempt, expected, past)

    def check_place(self, entry: Any, attempt: Attempt | None) -> None:
        """Check that a commit is not to a namesake of the dataset that its writer has seen."""
        event = self.landed.get(entry.commit_id)
        if attempt is None or event is None or entry.operation == "create":
            return
        # When it chose the id of its commit it had read the head.
        heads = attempt.bases.get(entry.commit_id, ())
        seen = {one.created_at for etag in heads if (one := self.world.states.get(etag))}
        if seen and event.state.created_at not in seen:
            self.say("a commit goes to the dataset that its writer has seen", attempt)

    def compare_descriptor(self, entry: Any, attempt: Any, expected: Known, past: Any) -> Known:
        descriptor = past.descriptor
        (function,) = descriptor.partition_by
        actual = replace(
            expected,
            fields=tuple(descriptor.schema.names),
            properties=dict(descriptor.properties),
            index=frozenset(descriptor.index),
            allowed=frozenset(function.allowed.values),
        )
        told = f"version {entry.version} of {attempt}"
        if set(actual.fields) != set(expected.fields):
            lost = set(expected.fields) - set(actual.fields)
            self.say("fields are never undone by another verb", f"{sorted(lost)} lost: {told}")
        if actual.properties != dict(expected.properties):
            self.say(
                "properties are never undone by another verb",
                f"{expected.properties} is {actual.properties}: {told}",
            )
        if actual.index != expected.index:
            self.say(
                "indices are never undone by another verb",
                f"{set(expected.index)} is {set(actual.index)}: {told}",
            )
        if actual.allowed != expected.allowed:
            self.say(
                "dimensions are never undone by another verb",
                f"{set(expected.allowed)} is {set(actual.allowed)}: {told}",
            )
        return actual

    def compare_rows(self, entry: Any, attempt: Any, expected: Known, past: Any) -> Known:
        told = f"version {entry.version} of {attempt}"
        try:
            read = self.rows_of(past)
        except LakebedError as exc:
            self.say("a version that is kept can be read", f"{told}: {type(exc).__name__}: {exc}")
            return expected
        self.check_erased(read, told)
        read = [row for row in read if row["n"] not in self.doomed]
        counts = collections.Counter(row["n"] for row in read)
        twice = sorted(n for n, count in counts.items() if count > 1)
        more = sorted(counts.keys() - expected.rows.keys())
        less = sorted(expected.rows.keys() - counts.keys())
        if twice or more or less:
            self.say(
                "a commit changes the rows that it says, and no others",
                f"too many {more}, missing {less}, twice {twice}: {told}",
            )
            rows = {n: self.all_rows[n] for n in counts if n in self.all_rows}
            return replace(expected, rows=rows)
        for row in read:
            wanted = expected.rows[row["n"]].read_with(expected.fields)
            if tuple(row[name] for name in expected.fields) != wanted:
                self.say("values stay what they were", f"{row} is not {wanted}: {told}")
        return expected

    def rows_of(self, past: Any) -> list[dict[str, Any]]:
        """Return the rows of a version."""
        state = cached_state_of(past)
        keys = sorted(map(state.layout.naming.key, state.labels))
        asked = (
            state.lineage.number,
            state.descriptor.schema.names,
            *((key, self.world.inner.get(key).data) for key in keys),
        )
        return self.remembered(asked, lambda: past.arrow().to_pylist())

    def columns_of(self, read: Any, *names: str) -> list[list[Any]]:
        """Return columns of the rows that a dataset or a view has."""
        plan = read.plan()
        get = self.world.inner.get
        asked = (
            names,
            plan.layout.lineage.number,
            plan.layout.descriptor.schema.names,
            str(plan.residual),
            # Facts of the last commits to a tree are in its head.
            *(
                get(one.key).data if one.key else to_document(plan.state).tree
                for one in plan.file_table
            ),
            *((str(file), get(file.key).data) for file in plan.files),
        )

        def columns() -> list[list[Any]]:
            table = plan.record_batches(names).read_all()
            return [column.to_pylist() for column in table.columns]

        return self.remembered(asked, columns)

    def remembered(self, asked: tuple[object, ...], read: Callable[[], _T]) -> _T:
        """Return what a read has given: of the same objects it gives the same in each run."""
        if not self.world.is_systematic:
            return read()
        if asked not in ANSWERS:
            if len(ANSWERS) >= _MOST_ANSWERS:
                ANSWERS.clear()
            ANSWERS[asked] = read()
        return ANSWERS[asked]  # type: ignore[no-any-return]

    def check_erased(self, read: list[dict[str, Any]], told: str) -> None:
        """Check that rows which somebody has erased are in no version."""
        for attempt in self.world.attempts:
            if attempt.outcome == "done" and attempt.intent.get("erased"):
                left = sorted({row["n"] for row in read}.intersection(attempt.intent["erases"]))
                if left:
                    self.say("what is erased is in no version", f"{left} in {told}: {attempt}")

    def after(self, before: Known, entry: Any, attempt: Attempt) -> Known:
        """Return what a commit makes of the version before it."""
        intent, verb = attempt.intent, attempt.verb
        known = before
        if verb in ("create", "begin_document", "begin_tree", "begin_packed"):
            known = replace(known, index=frozenset(intent["index"]))
        if verb == "add_field":
            known = replace(known, fields=(*known.fields, intent["adds"]))
        if verb == "set_property":
            name, value = intent["sets"]
            known = replace(known, properties={**known.properties, name: value})
        if verb == "build_index" and entry.operation == "update":
            known = replace(known, index=known.index | {intent["indexes"]})
        if verb == "drop_index":
            known = replace(known, index=known.index - {intent["unindexes"]})
        if verb == "promote":
            known = replace(known, allowed=known.allowed | set(intent["allows"]))
        if entry.operation not in _CHANGE_ROWS:
            return known
        return replace(known, rows=self.rows_after(before, entry, attempt))

    def rows_after(self, before: Known, entry: Any, attempt: Attempt) -> dict[int, Row]:
        intent = attempt.intent
        new = {n: self.all_rows[n] for n in intent.get("rows", {}) if n not in self.doomed}
        self.born |= dict.fromkeys(new, entry.version)
        read = self.versions.get(intent.get("read_version"))
        if read is not None:
            written = intent.get("replaces") or before.levels(new)
            looked_at = intent.get("reads") or written
            self.check_nothing_lost(before, read, frozenset(looked_at), attempt)
        match entry.operation:
            case "append" | "ingest":
                # An epoch or a raw file that is written again takes the place of its rows.
                return {**before.rows, **new}
            case "rerun" if "epoch" in intent:
                # Written again after a promotion, the same rows are in other partitions.
                return {**before.rows, **new}
            case "overwrite":
                told = intent["replaces"]
                levels = before.levels(new) if told == "touched" else frozenset(told)
                self.check_nothing_lost(before, self.base_of(entry, attempt), levels, attempt)
                return {**before.without(levels), **new}
            case "rerun":
                gone = {n for n, row in before.rows.items() if row.run == intent["run"]}
                base = self.base_version_of(entry, attempt)
                late = sorted(n for n in gone if base is not None and self.born[n] > base)
                if late:
                    self.say("a rerun replaces nothing that it has not seen", f"{late}: {attempt}")
                return {**{n: row for n, row in before.rows.items() if n not in gone}, **new}
            case "merge":
                gone = set(intent["removes"])
                return {**{n: row for n, row in before.rows.items() if n not in gone}, **new}
            case "transaction":
                levels = frozenset(intent["replaces"])
                self.check_nothing_lost(before, read, levels, attempt)
                return {**before.without(levels), **new}
            case "delete":
                return self.rows_after_delete(before, entry, attempt)
            case _:
                return self.rows_after_rollback(before, entry, attempt)

    def check_nothing_lost(
        self, before: Known, base: Known | None, levels: frozenset[str], attempt: Attempt
    ) -> None:
        """Check that partitions which a commit replaces are those that its writer had seen."""
        if base is None:
            return
        seen, replaced = (sorted(_within(one, before, levels)) for one in (base, before))
        if seen != replaced:
            self.say("no update is lost", f"{seen} was {replaced} by then: {attempt}")

    def rows_after_delete(self, before: Known, entry: Any, attempt: Attempt) -> dict[int, Row]:
        """Take out what matches.

        What was appended since the base, to a partition that the delete did not touch, may stay:
        it is as if the delete had been first.
        """
        column, values = attempt.intent["deletes"]

        def matches(row: Row) -> bool:
            return (before.level_of(row) if column == LEVEL else row.values[column]) in values

        base = self.base_of(entry, attempt) or before
        touched = before.levels({n: row for n, row in base.rows.items() if matches(row)})
        return {
            n: row
            for n, row in before.rows.items()
            if not matches(row) or (n not in base.rows and before.level_of(row) not in touched)
        }

    def rows_after_rollback(self, before: Known, entry: Any, attempt: Attempt) -> dict[int, Row]:
        """Bring back the partitions that were others at the base; the rest stays as it is."""
        past = self.versions.get(attempt.intent["restores"])
        base = self.base_of(entry, attempt)
        if past is None or base is None:
            return dict(before.rows)
        level = attempt.intent["level"]
        rows: dict[int, Row] = {}
        for one in {*before.allowed, "OTHER"}:
            levels = frozenset({one})
            then, at_base = _within(past, before, levels), _within(base, before, levels)
            is_meant = level in (None, one) and then.keys() != at_base.keys()
            if is_meant:
                self.check_nothing_lost(before, base, levels, attempt)
            rows |= then if is_meant else before.within(levels)
        return rows

    def base_of(self, entry: Any, attempt: Attempt) -> Known | None:
        """Return the version that a commit was made from."""
        version = self.base_version_of(entry, attempt)
        return None if version is None else self.versions.get(version)

    def base_version_of(self, entry: Any, attempt: Attempt) -> int | None:
        """Return the newest version that a writer had seen when it named its commit."""
        event = self.landed.get(entry.commit_id)
        if event is None:
            return None
        states = (self.world.states.get(one) for one in attempt.bases.get(entry.commit_id, ()))
        versions = [
            one.version
            for one in states
            if one is not None and one.created_at == event.state.created_at
        ]
        return max(versions, default=None)

    # What readers saw, and what anybody sees at last.

    def check_reads(self, state: State) -> None:
        states = self.world.states
        for attempt in self.world.attempts:
            if attempt.verb != "read" or not attempt.seen:
                continue
            last = states.get(attempt.seen[-1])
            if last is None or last.created_at != state.created_at:
                continue
            asked = attempt.intent.get("of")
            version = last.version if asked is None else asked
            if attempt.outcome == "refused" and attempt.error is not None:
                # An erasure without grace deletes what running readers use, as its docs say.
                is_erased = any(one.verb == "erase" for one in self.world.attempts)
                is_lost = attempt.error.code == "corrupt-metadata" and not is_erased
                if is_lost and version >= state.horizon:
                    self.say("a reader of a version that is kept can go on", attempt)
                continue
            known = self.versions.get(version)
            rows = sorted(known.rows) if known is not None else None
            read = [n for n in attempt.intent.get("read", ()) if n not in self.doomed]
            if attempt.outcome == "done" and rows not in (None, read):
                self.say("readers see whole versions", f"version {version} is {rows}: {attempt}")

    def check_final(self, state: State, dataset: lakebed.Dataset) -> None:
        known = self.versions[state.version]
        protected = protected_versions(state)
        try:
            columns = self.columns_of(dataset, "n", LEVEL)
            read = sorted(one for one in zip(*columns, strict=True) if one[0] not in self.doomed)
            if read != sorted((n, known.level_of(row)) for n, row in known.rows.items()):
                self.say("every row is in its partition", read)
            for column in sorted(known.index):
                self.check_index(dataset, known, column)
            problems = dataset.check(deep=True).problems if self.is_settled else ()
        except LakebedError as exc:
            self.say("the current version can be read", f"{type(exc).__name__}: {exc}")
            return
        told = [
            f"{one.key}: {one.what}"
            for one in problems
            if not (one.key.endswith(_SCHEMA_FILE) and self.may_schema_file_differ())
            # A hand-over that woke up late leaves a head that means nothing; the next commit
            # deletes it.
            and not one.what.startswith("There is a second head")
        ]
        if told:
            self.say("a check finds no problem", told)
        for attempt in self.world.attempts:
            version = attempt.intent.get("protects")
            is_undone = any(one.intent.get("unprotects") == version for one in self.world.attempts)
            answers = [self.landed.get(one.commit_id) for one in attempt.answers]
            is_here = any(one and one.state.created_at == state.created_at for one in answers)
            if version is not None and is_here and not is_undone and version not in protected:
                self.say("what is protected stays so", attempt)

    def check_index(self, dataset: lakebed.Dataset, known: Known, column: str) -> None:
        """Check that an index leads to all rows of a value; at last, of each."""
        values = sorted({row.values[column] for row in known.rows.values()}) or [0]
        if not (self.world.is_systematic and self.is_settled):
            first = next(iter(known.rows.values()), None)
            values = [0 if first is None else first.values[column]]
        for value in values:
            (held,) = self.columns_of(dataset.kite.with_(column, value), "n")
            found = sorted(n for n in held if n not in self.doomed)
            wanted = sorted(n for n, one in known.rows.items() if one.values[column] == value)
            if found != wanted:
                self.say("an index hides no row", f"{column} = {value}: {found} is not {wanted}")

    def check_epochs(self, by_id: Mapping[str, Any]) -> None:
        """Check that an epoch is in the history once whoever was told so has ended."""
        made = [
            attempt
            for commit_id in by_id
            if (attempt := self.world.commits.get(commit_id)) is not None
            and attempt.intent.get("epoch") is not None
        ]
        if len(made) > 1 and not any(one.verb in _TAKE_BACK for one in self.world.attempts):
            self.say("an epoch counts once", [str(one) for one in made])
        for attempt in self.world.attempts:
            is_told = attempt.outcome == "done" and attempt.intent.get("epoch") is not None
            if is_told and not made and not self.dropped:
                self.say("an epoch counts once", f"none, but {attempt}")

    def check_sources(self, state: State, dataset: lakebed.Dataset, entries: Any) -> None:
        """Check that rows of raw files, the record of these and the quarantine agree."""
        runs = [one for one in self.world.attempts if one.intent.get("ingests")]
        if not runs or any(one.verb in ("drop", "rollback") for one in self.world.attempts):
            return
        taken_in = any(one.operation == "ingest" for one in entries)
        recorded = {Path(one.location).name for one in dataset.sources.list() if one.row_count}
        if recorded != (set(RAW_LINES) if taken_in else set()):
            self.say("lineage and quarantine agree", f"recorded {sorted(recorded)}, {taken_in=}")
        told = [one for one in runs if one.outcome == "done"]
        if told and not taken_in:
            self.say("what is acknowledged has landed", told[0])
        try:
            table = self.repository.open(f"{NAME}_quarantine").arrow(["line"])
            lines = [line.decode() for line in table["line"].to_pylist()]
        except DatasetNotFoundError:
            lines = []
        except LakebedError as exc:
            self.say("lineage and quarantine agree", f"the quarantine cannot be read: {exc}")
            return
        if lines != [BROKEN_LINE] and (told or lines):
            self.say("lineage and quarantine agree", f"{lines} in the quarantine")

    def check_published(self, state: State) -> None:
        """Check that every commit of the Delta log shows one whole version, and none an older one.

        Once settled, the last one shows the current files, and all of them are there.
        """
        log, live = Log(self.world.inner, NAME), LiveFiles()
        naming = state.layout.naming
        entries = history.read(self.world.inner, state.lists.history)
        shown_before = -1
        for commit in log.commits_since(0):
            for line in self.world.inner.get(log.key(commit.number)).data.splitlines():
                live.play(json.loads(line))
            mark = commit.mark
            if mark is None:
                self.say("every commit of a table is a publication", commit)
            elif mark.created_at == state.created_at:
                if mark.version < shown_before:
                    self.say("a table never goes back to an older version", commit)
                shown_before = mark.version
                labels = replay(entries, mark.version).labels
                wanted = {path_of(label, naming) for label in labels}
                if live.files.keys() != wanted:
                    self.say(
                        "a table shows whole versions",
                        f"{sorted(live.files)} is not {sorted(wanted)}: {commit}",
                    )
        if self.is_settled:
            shown = log.live_files().files  # a cleanup has taken what is before a checkpoint
            if shown.keys() != {path_of(label, naming) for label in state.labels}:
                self.say("a publication shows the current version", sorted(shown))
            for label in state.labels:
                self.world.inner.size(naming.key(label))

    def check_iceberg(self, state: State) -> None:
        """Check that readers come by the hint to a table that shows the current files."""
        home = FilesBeside(self.world.inner, NAME, ROOT)
        try:
            led_to = self.world.inner.get(hint_key(NAME)).data.decode()
            table = home.find("")
            assert table is not None
            shown = live_files(table.metadata.current_snapshot(), home.io).keys()
        except LakebedError as exc:
            self.say("an Iceberg table can be read", f"{type(exc).__name__}: {exc}")
            return
        if led_to != table.place:
            self.say("the hint leads to the last version", f"{led_to} is not {table.place}")
        wanted = {f"{ROOT}/{state.layout.naming.key(label)}" for label in state.labels}
        if shown != wanted:
            self.say("a publication shows the current version", sorted(shown))

    def may_schema_file_differ(self) -> bool:
        """Whether somebody may not have come as far as the file for plateau.

        It is written after the head, and left as it is where the store does not answer: that the
        head has changed is true all the same.
        """
        return any(
            one.verb in _WRITE_SCHEMA_FILE and (one.outcome != "done" or one.lost)
            for one in self.world.attempts
        )


def _within(known: Known, now: Known, levels: frozenset[str]) -> dict[int, Row]:
    """Return the rows of partitions as they would be routed now."""
    return {n: row for n, row in known.rows.items() if now.level_of(row) in levels}
