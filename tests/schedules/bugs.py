"""Bugs that are put into Lakebed, or into its store, to see that schedules find them.

Each takes a rule of the protocol out, or gets a step of it wrong. `TEXTS` has a schedule that finds
it, which is played in a second; from `tests/`, `python -m schedules.bugs` looks for these again, in
the orders of the pairs that a bug names.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest

from lakebed.errors import StorageError
from lakebed.index import postings_writer
from lakebed.state import (
    committing,
    conflicts,
    creation,
    group_commit,
    moving,
    reader,
    reservation,
    transaction,
    updates,
)
from lakebed.state.committing import Succession, Swaps
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_own_head
from lakebed.state.reservation import Reservation
from lakebed.state.tree import fold as folding
from lakebed.state.tree import stored_folds
from lakebed.state.tree.tree_root import Root
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.memory import MemoryStore
from lakebed.tables.delta.log import Log
from lakebed.work import (
    cleanup,
    compaction,
    deletion,
    epochs,
    erased_objects,
    erasure,
    indexing,
    inventory,
    promotion,
    rollback,
    staging,
)
from lakebed.work.ingest.quarantine import Quarantine
from schedules.interleavings import (
    Pair,
    claimed_orders,
    failing_orders,
    killed_orders,
    orders,
    schedule_from,
    standing_orders,
)
from schedules.play import Played, play, simulated
from schedules.triples import Triple, orders_of_three
from schedules.world import forget_setups

Put = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug, how it is put in, and where it is looked for.

    Attributes:
        name: What goes wrong.
        put: Function that puts it in.
        pairs: Pairs of verbs whose schedules are to find it: those without faults, after `!` those
            with faults, after `~` those where the first one stands still, after `†` those where the
            second one is killed within the first, after `‡` those where the first one is killed after
            a claim.
    """

    name: str
    put: Put
    pairs: tuple[str, ...]


BUGS: list[Bug] = []


def bug(name: str, *pairs: str) -> Callable[[Put], Put]:
    def note(put: Put) -> Put:
        BUGS.append(Bug(name, put, pairs))
        return put

    return note


def take_out(name: str, place: Any, step: str, *pairs: str) -> None:
    """Note a bug by which a step does nothing."""
    BUGS.append(Bug(name, lambda patch: patch.setattr(place, step, lambda *_, **__: None), pairs))


# --- The store


@bug("the store skips the etag of a put", "document: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    def replace_(self: MemoryStore, key: str, data: memoryview, *, if_match: str) -> str:
        self._put(key, data)
        return self._get(key).etag

    patch.setattr(MemoryStore, "_replace", replace_)


@bug("the store creates what exists", "dropped: create+append | create")
def _(patch: pytest.MonkeyPatch) -> None:
    def create(self: MemoryStore, key: str, data: memoryview) -> str:
        self._put(key, data)
        return self._get(key).etag

    patch.setattr(MemoryStore, "_create", create)


@bug(
    "a conditional delete has no condition",
    "document: drop | drop+create",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def delete(self: MemoryStore, key: str, etag: str) -> bool:
        self._delete([key])
        return True

    patch.setattr(MemoryStore, "_delete_if_match", delete)


@bug("a cached head is taken for the current one", "document: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryStore, "_get_if_changed", lambda *_, **__: None)


take_out(
    "a reader does not look for a claim",
    Store,
    "finish_claim",
    "‡document: append | append_lost",
)


# --- The commit


@bug("a refused put of the head counts as done", "document: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    put = committing.put_head

    def put_head(*given: Any, **named: Any) -> bool:
        put(*given, **named)
        return True

    patch.setattr(group_commit, "put_head", put_head)


@bug("an answer that was lost counts as refused", "!document: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_commit.Swaps, "begin", lambda *_: None)
    patch.setattr(group_commit.Swaps, "refuse", lambda *_: None)
    patch.setattr(
        group_commit.Member,
        "fail",
        lambda self, exc: (setattr(self, "_error", exc), setattr(self, "is_done", True)),
    )


@bug("an attempt does not look for its own commit", "!document: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    look = group_commit.Member.look

    def look_(self: Any, head: Any, since: Sequence[Any]) -> bool:
        own = self.terms.change.commit_id
        return look(self, head, [one for one in since if one.commit_id != own])

    patch.setattr(group_commit.Member, "look", look_)


@bug("a put is forgotten once another one is sent", "!document: append | read")
def _(patch: pytest.MonkeyPatch) -> None:
    begin = Swaps.begin

    def begin_(self: Swaps, head: Any, new: Any) -> None:
        self.end([head.key])
        begin(self, head, new)

    patch.setattr(Swaps, "begin", begin_)


@bug("a lost answer counts as a success", "!document: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    put = committing.put_head

    def put_head(*given: Any, **named: Any) -> bool:
        try:
            return put(*given, **named)
        except StorageError:
            return True

    patch.setattr(group_commit, "put_head", put_head)


class _Forgets(set[Any]):
    def __contains__(self, _key: object) -> bool:
        return False


@bug("a group takes one staged batch twice", "document: commit_staged&commit_staged | read")
def _(patch: pytest.MonkeyPatch) -> None:
    begin = group_commit._Limit.__init__

    def begin_forgetful(self: Any, leader: Any) -> None:
        begin(self, leader)
        self._commit_ids = _Forgets()

    patch.setattr(group_commit._Limit, "__init__", begin_forgetful)


@bug(
    "members of a group are not checked against each other",
    "document: rerun&rerun | read",
    "document: overwrite&merge | read",
)
def _(patch: pytest.MonkeyPatch) -> None:
    grouped: set[str] = set()
    add, finish, check = Succession.add, Succession.finish, conflicts.Terms.check

    def noted(self: Succession, terms: conflicts.Terms) -> Any:
        entry = add(self, terms)
        grouped.add(entry.commit_id)
        return entry

    def finished(self: Succession) -> Any:
        grouped.clear()
        return finish(self)

    def check_alone(self: conflicts.Terms, store: Any, now: Any, since: Any) -> None:
        check(self, store, now, [one for one in since if one.commit_id not in grouped])

    patch.setattr(Succession, "add", noted)
    patch.setattr(Succession, "finish", finished)
    patch.setattr(conflicts.Terms, "check", check_alone)


take_out(
    "nothing is checked for conflicts",
    conflicts,
    "check",
    "document: overwrite | append",
    "document: merge | overwrite",
)
take_out(
    "a dropped namesake is not noticed",
    group_commit,
    "_check_same_dataset",
    "document: append | drop+create+append",
)
take_out(
    "files that are replaced are not compared",
    conflicts,
    "_check_files",
    "document: overwrite | append",
    "document: delete | append",
)
take_out(
    "a rerun does not look for another one",
    conflicts,
    "_check_run",
    "document: rerun | rerun",
    "document: rerun | append#0",
)
take_out(
    "a writer may outlast its lease",
    conflicts,
    "check_in_time",
    "document: commit_staged | discard_staged",
)
take_out(
    "a cleanup in between is not noticed",
    conflicts,
    "_check_cleanup",
    "~document: build_index | cleanup",
    "~document: compact_metadata | cleanup",
    "~document: rollback | cleanup",
)
take_out(
    "an erasure in between is not noticed",
    conflicts,
    "_check_erased",
    "document: rollback | erase",
    "document: compact | erase#1",
    "document: read+rollback | erase",
)
take_out(
    "an update in between is not noticed",
    conflicts,
    "_check_descriptor",
    "document: append#7 | promote",
    "document: overwrite | promote",
    "document: promote | promote#1",
    "document: add_field | add_field",
)
take_out(
    "the progress of a query is not compared",
    conflicts,
    "_check_progress",
    "document: epoch | epoch",
)
take_out(
    "raw files of another ingest are not compared",
    conflicts,
    "check_sources",
    "document: ingest | ingest",
)


@bug(
    "a compaction trusts that its files are still live",
    "document: compact | overwrite",
    "document: compact | delete",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conflicts, "_lost_or_missed", lambda *_: {})
    patch.setattr(compaction._Share, "without", lambda self, _: (self, [], frozenset()))


@bug(
    "a promotion trusts equal labels",
    "document: promote | append#8+undo",
    "document: promote#5 | append#7+delete#5",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def lost_or_missed(scope: Any, since: Any) -> dict[str, Any]:
        before, labels = since.state.labels, since.now.labels
        if before == labels:
            return {}
        gone = scope.labels.intersection(before).difference(labels)
        new = filter(scope.misses, set(labels).difference(before))
        return {conflicts.partition_of_label(label): None for label in (*gone, *new)}

    patch.setattr(conflicts, "_lost_or_missed", lost_or_missed)


# --- Names, heads


@bug(
    "a creator is told before it has the name",
    "dropped: create | create#0+append",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(creation, "_claim_name", creation._own_first_head)


@bug(
    "two heads are compared that were not there at once",
    "document: move_head | drop+create | move_head",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reader, "_is_unchanged", lambda *_: True)


def reuse_an_earlier_look(patch: pytest.MonkeyPatch) -> None:
    """Judge a new head by the old one as it was read before."""
    find = reader._find
    earlier: dict[tuple[Any, ...], Any] = {}

    def noted(store: Any, *of: Any) -> Any:
        earlier[id(store), *of] = found = find(store, *of)
        return found

    patch.setattr(reader, "_find", noted)
    patch.setattr(
        reader, "_find_beside", lambda store, name: earlier[id(store), name, HeadFormat.MSGPACK]
    )


@bug(
    "an old head that was read before the new one proves it",
    "†new: append | move_head#1",
)
def _(patch: pytest.MonkeyPatch) -> None:
    reuse_an_earlier_look(patch)
    patch.setattr(committing, "_is_valid", lambda _: True)


@bug("a creator leaves what a hand-over may confirm", "document: move_head | drop | create")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(creation, "_remove_unconfirmed", lambda *_: True)


@bug("a drop takes any head", "document: drop | drop+create", "document: drop | append")
def _(patch: pytest.MonkeyPatch) -> None:
    def remove(store: Any, head: Any) -> bool:
        delete_or_leave(store, [head.key])
        return True

    patch.setattr(moving, "remove_unchanged", remove)


@bug("a hand-over removes the old head whatever it says", "document: move_head | append")
def _(patch: pytest.MonkeyPatch) -> None:
    def advance(store: Any, head: Any) -> bool:
        target = head.state.moves_to
        if target is None:
            return False
        store.put(target.key(head.state.name), moving.encode_moved(head.state, target))
        delete_or_leave(store, [head.key])
        return True

    patch.setattr(moving, "_advance", advance)


@bug("a hand-over leaves the head that it came from", "document: move_head | append")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(moving, "remove_unchanged", lambda *_: True)
    patch.setattr(moving, "_MOST_LOOKS", 3)


@bug(
    "an update writes the descriptor that it read at first",
    "document: add_field | set_property",
    "document: build_index | add_field",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def update(store: Any, dataset: str, edit: Any, *rest: Any) -> Any:
        outdated = edit(read_own_head(store, dataset).state.descriptor)
        return updates.update(store, dataset, lambda _: outdated, *rest)

    patch.setattr(indexing, "update", update)


# --- Batches


@bug("a batch takes an id that is taken", "document: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    def create(store: Any, key: str, data: bytes) -> str:
        store.put(key, data)
        return str(store.get(key).etag)

    patch.setattr(reservation, "_create", create)


take_out(
    "a discard makes no commit",
    staging,
    "_shut_out",
    "document: discard_staged | commit_staged",
    "document: commit_staged | discard_staged",
)


@bug(
    "a writer that fails deletes what was committed",
    "!document: append | append",
    "!document: commit_staged | append",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Swaps, "may_land", property(lambda self: False))
    patch.setattr(Reservation, "give_up", lambda self: delete_or_leave(self._store, [self.key]))


@bug(
    "a staged batch is committed as often as one asks",
    "document: commit_staged | commit_staged",
    "document: commit_staged+commit_staged | read",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(staging, "find_commit", lambda *_: None)
    patch.setattr(conflicts, "check_in_time", lambda *_: None)


# --- Cleanup


@bug(
    "a cleanup deletes without a commit",
    "document: cleanup | rollback",
    "document: cleanup | read#1",
    "document: cleanup | append",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def give_up(store: Any, inventory_: Any, rules: Any, options: Any) -> Any:
        state, judged = cleanup._plan(inventory_, rules)
        return state, judged, None, None

    patch.setattr(cleanup, "_give_up", give_up)


@bug(
    "a cleanup takes each lease for over",
    "~document: cleanup | append",
    "~document: cleanup | stage",
    "~document: append | cleanup",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inventory.Reserved, "lease_is_over", lambda *_: True)
    patch.setattr(inventory.Judge, "_is_past", lambda *_: True)


@bug("a cleanup deletes what no head names, however new", "document: append | cleanup")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(inventory.Rules, "oldest_lease", property(lambda self: self.now))
    patch.setattr(inventory.Reserved, "began_after", inventory.Reserved.began_at)
    patch.setattr(conflicts, "_check_cleanup", lambda *_: None)
    patch.setattr(conflicts, "check_in_time", lambda *_: None)
    patch.setattr(inventory.Reserved, "lease_is_over", lambda *_: True)


@bug("a rollback restores files without a look", "document: rollback | cleanup")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rollback, "_check_files", lambda *_: None)
    patch.setattr(conflicts, "is_readable", lambda *_: True)
    patch.setattr(conflicts, "_check_cleanup", lambda *_: None)


# --- Indices, dimensions, streams, raw files, erasure


@bug(
    "an index is built of all files but one",
    "document: build_index | read",
    "document: build_index | append",
)
def _(patch: pytest.MonkeyPatch) -> None:
    missing = indexing._missing_files
    patch.setattr(indexing, "_missing_files", lambda *given: missing(*given)[1:])


@bug("an index lacks a value of one of its files", "document: append | read")
def _(patch: pytest.MonkeyPatch) -> None:
    pairs = postings_writer.sorted_pairs

    def sorted_pairs(*given: Any) -> Any:
        return tuple(part[:-1] for part in pairs(*given))

    patch.setattr(postings_writer, "sorted_pairs", sorted_pairs)


@bug("a delete forgets one of its files", "document: delete | read")
def _(patch: pytest.MonkeyPatch) -> None:
    find = deletion.find_deleted
    patch.setattr(deletion, "find_deleted", lambda *given: find(*given)[1:])


take_out(
    "a compaction keeps what it has written of files that are gone",
    transaction.Transaction,
    "leave_out",
    "document: compact | overwrite",
    "document: compact | delete",
)


@bug(
    "a promotion looks once for rows to move",
    "document: promote | append#8",
    "document: promote#5 | append#7",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(promotion, "CATCHING_UP", 1)
    patch.setattr(conflicts, "_lost_or_missed", lambda *_: {})


@bug(
    "an epoch is written without its number",
    "document: epoch | epoch",
    "document: epoch+epoch | read",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def commit(started: Any, epoch: Any, standing: Any, operation: str, scope: Any) -> Any:
        committed = started.commit(epochs.Change(operation=operation, scope=scope))
        return epochs.Commit.of(committed, started.base)

    patch.setattr(epochs, "_commit", commit)
    patch.setattr(epochs, "find_standing", lambda *_: epochs.EpochStanding())


@bug(
    "an epoch is looked up only in its own process",
    "document: epoch+epoch | epoch",
    "document: epoch | epoch",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(epochs, "find_standing", lambda *_: epochs.EpochStanding())
    patch.setattr(conflicts, "_check_progress", lambda *_: None)
    patch.setattr(conflicts, "_check_run", lambda *_: None)


@bug("rejected lines are added once more", "document: ingest | ingest")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quarantine, "_replaced", lambda *_: None)
    patch.setattr(conflicts, "check_sources", lambda *_: None)


@bug("rejected lines are forgotten", "document: ingest | read")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quarantine, "set_aside", lambda *_: None)


@bug("an erasure leaves older versions", "document: erase | read", "document: erase | append")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(erasure, "portions", lambda *_: [])


@bug("an erasure deletes what a stalled commit may name", "~document: erase | erase")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        erased_objects._Deletion,
        "_refuse_stalled",
        lambda self: (self._judged_segments(), None),
    )


# --- Trees


@bug("a fold loses a file", "tree: append | append")
def _(patch: pytest.MonkeyPatch) -> None:
    real = folding.fold

    def fold(root: Root, *given: Any, **named: Any) -> Any:
        folded = real(root, *given, **named)
        if folded is None or len(folded.root.refs) < 2:
            return folded
        lost = replace(folded.root, refs=folded.root.refs[1:], gone={})
        return replace(folded, root=replace(lost, totals=lost.totals_of_parts()))

    patch.setattr(stored_folds, "fold", fold)
    patch.setattr(stored_folds, "land", _landed_without_a_look)


@bug(
    "a bitmap of removed files is lost in a fold",
    "tree: overwrite | append",
    "tree: delete | append",
)
def _(patch: pytest.MonkeyPatch) -> None:
    real = folding.fold

    def fold(root: Root, *given: Any, **named: Any) -> Any:
        folded = real(root, *given, **named)
        if folded is None:
            return None
        lost = replace(folded.root, gone={})
        return replace(folded, root=replace(lost, totals=lost.totals_of_parts()))

    patch.setattr(stored_folds, "fold", fold)
    patch.setattr(stored_folds, "land", _landed_without_a_look)


def _landed_without_a_look(folded: Any, now: Root, leaves: Any, order: Any) -> Root | None:
    return folded.root if now.version == folded.root.version else None


@bug(
    "a fold forgets what was removed meanwhile", "tree: append | overwrite", "tree: append | delete"
)
def _(patch: pytest.MonkeyPatch) -> None:
    def land(folded: Any, now: Root, leaves: Any, order: Any) -> Root | None:
        if now.folded_at != folded.base.folded_at:
            return None
        root = folded.root
        for one in now.buffer[len(folded.base.buffer) :]:
            entry = msgspec.structs.replace(one.entry, removed=(), dropped=())
            root = root.after(entry, one.facts, {})
        return root  # type: ignore[no-any-return]

    patch.setattr(stored_folds, "land", land)


@bug("a fold counts twice", "tree: append | append", "tree: append | compact_metadata")
def _(patch: pytest.MonkeyPatch) -> None:
    def land(folded: Any, now: Root, leaves: Any, order: Any) -> Root:
        # What was folded stays in the buffer, too.
        doubled = replace(folded.root, version=now.version, buffer=now.buffer)
        return replace(doubled, totals=doubled.totals_of_parts())

    patch.setattr(stored_folds, "land", land)


# --- Published tables


@bug(
    "publications overwrite each other",
    "document: publish | append+publish",
    "document: publish+append+publish | append+publish",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def add(self: Log, number: int, lines: Any) -> bool:
        self._store.put(self.key(number), b"\n".join(lines) + b"\n")
        return True

    patch.setattr(Log, "add", add)


# --- Looking for them


WAYS = {"!": failing_orders, "~": standing_orders, "†": killed_orders, "‡": claimed_orders}
PUT: Mapping[str, Put] = {one.name: one.put for one in BUGS}


def schedules_of(one: Bug) -> Iterator[Played]:
    """Play the schedules that are to find a bug, those without faults first."""
    for text in one.pairs:
        way = WAYS.get(text[0], orders)
        kind, _, verbs = text.lstrip("".join(WAYS)).partition(": ")
        names = [verb.strip() for verb in verbs.split("|")]
        if len(names) == 3:
            yield from orders_of_three(Triple(kind, (names[0], names[1], names[2])))
        else:
            yield from way(Pair(kind, names[0], names[1]))


def is_caught(played: Played) -> bool:
    """Return whether a rule is broken; not by an error that the bug itself runs into."""
    return any(one.rule != "errors are named" for one in played.violations)


@contextmanager
def put_in(put: Put) -> Iterator[None]:
    """Put a bug in, for schedules that are played meanwhile."""
    with pytest.MonkeyPatch.context() as patch, simulated():
        put(patch)
        forget_setups()
        try:
            yield
        finally:
            forget_setups()


def first_failure(one: Bug, most: int) -> tuple[Played | None, int]:
    """Return the first schedule that finds a bug, and the number of those played."""
    count = 0
    with put_in(one.put):
        for count, found in enumerate(itertools.islice(schedules_of(one), most), 1):
            if is_caught(found):
                return found, count
    return None, count


def finds(one: Bug, text: str) -> Played:
    """Play a schedule with a bug put in."""
    with put_in(one.put):
        return play(schedule_from(text))


TEXTS: Mapping[str, str] = {
    "a reader does not look for a claim": "document: append | append_lost ; - ; ann write 9 claimed",
    "the store skips the etag of a put": "document: append | append ; ann 1, bob 9",
    "the store creates what exists": "dropped: create+append | create ; ann 1, bob 3",
    "a conditional delete has no condition": "document: drop | drop+create ; ann 1",
    "a cached head is taken for the current one": "document: append | append",
    "a refused put of the head counts as done": "document: append | append ; ann 1, bob 9",
    "an answer that was lost counts as refused": "document: append | append ; ann 16 ; ann write 9 landed",
    "an attempt does not look for its own commit": "document: append | append ; ann 16 ; ann write 9 landed",
    "a put is forgotten once another one is sent": "document: append | read ; ann 15 ; ann write 9 late after 2",
    "a lost answer counts as a success": "document: append | append ; ann 15 ; ann write 9 landed",
    "a group takes one staged batch twice": "document: commit_staged&commit_staged | read ; ann 1",
    "members of a group are not checked against each other": "document: overwrite&merge | read ; ann 1",
    "nothing is checked for conflicts": "document: overwrite | append ; ann 2",
    "a dropped namesake is not noticed": "document: append | drop+create+append ; ann 2",
    "files that are replaced are not compared": "document: overwrite | append ; ann 2",
    "a rerun does not look for another one": "document: rerun | rerun ; ann 1, bob 2",
    "a writer may outlast its lease": "document: commit_staged | discard_staged ; ann 2, bob 21",
    "a cleanup in between is not noticed": "document: build_index | cleanup ; - ; ann call 21 stands 691200",
    "an erasure in between is not noticed": "document: rollback | erase ; ann 3, bob 52",
    "an update in between is not noticed": "document: append#7 | promote ; ann 2",
    "the progress of a query is not compared": "document: epoch | epoch ; ann 1, bob 2",
    "raw files of another ingest are not compared": "document: ingest | ingest ; ann 1, bob 18",
    "a compaction trusts that its files are still live": "document: compact | overwrite ; ann 8",
    "a creator is told before it has the name": "dropped: create | create#0+append ; ann 2, bob 18",
    "two heads are compared that were not there at once": "document: move_head | drop+create | move_head ; ann 6",
    "an old head that was read before the new one proves it": "new: append | move_head#1 ; ann 13 ; bob write 2 kill after",
    "a creator leaves what a hand-over may confirm": "document: move_head | drop | create ; ann 12, bob 7",
    "a drop takes any head": "document: drop | drop+create ; ann 1",
    "a hand-over removes the old head whatever it says": "document: move_head | append",
    "a hand-over leaves the head that it came from": "document: move_head | append",
    "an update writes the descriptor that it read at first": "document: build_index | add_field ; ann 3",
    "a discard makes no commit": "document: discard_staged | commit_staged ; ann 1, bob 12",
    "a writer that fails deletes what was committed": "document: append | append ; ann 16 ; ann write 9 landed x200",
    "a cleanup deletes without a commit": "document: cleanup | rollback",
    "a cleanup deletes what no head names, however new": "document: append | cleanup ; ann 4, bob 14",
    "a rollback restores files without a look": "document: rollback | cleanup ; ann 3",
    "an index lacks a value of one of its files": "document: append | read",
    "a delete forgets one of its files": "document: delete | read",
    "a promotion looks once for rows to move": "document: promote | append#8 ; ann 3",
    "an epoch is written without its number": "document: epoch | epoch",
    "an epoch is looked up only in its own process": "document: epoch+epoch | epoch",
    "rejected lines are added once more": "document: ingest | ingest ; ann 1, bob 18",
    "rejected lines are forgotten": "document: ingest | read",
    "an erasure leaves older versions": "document: erase | read",
    "an erasure deletes what a stalled commit may name": "document: erase | erase ; - ; ann call 74 stands 691200",
    "a fold loses a file": "tree: append | append",
    "a bitmap of removed files is lost in a fold": "tree: overwrite | append ; ann 1",
    "a fold forgets what was removed meanwhile": "tree: append | overwrite ; ann 11, bob 11",
    "a fold counts twice": "tree: append | append",
}

NOT_CAUGHT: Mapping[str, str] = {
    "a promotion trusts equal labels": "rows have to come and go while it runs, which takes more than two switches. Random schedules find it (`make thorough`).",
    "publications overwrite each other": "it takes three publications, and one that stands still. Random schedules find it (`make thorough`).",
    "a batch takes an id that is taken": "ids follow clocks, which agree in these orders, so two batches never ask for the same id.",
    "a cleanup takes each lease for over": "no harm to rows: the head names the batch as given up, so its writer is refused. The model has no rule that a cleanup waits for leases.",
    "an index is built of all files but one": "no harm: an index states which files it covers, and readers read the others.",
    "a staged batch is committed as often as one asks": "no harm: the batch keeps the id of its commit, which is found in the history.",
    "a compaction keeps what it has written of files that are gone": "no harm in these orders: the commit is refused, since the files that it replaces are gone.",
}


def _main() -> None:
    parser = argparse.ArgumentParser(prog="schedules.bugs", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; default: all bugs")
    parser.add_argument("--most", type=int, default=60, help="schedules to play of each")
    given = parser.parse_args()
    for one in BUGS:
        if given.names and not any(part in one.name for part in given.names):
            continue
        try:
            found, count = first_failure(one, given.most)
        except Exception as exc:  # noqa: BLE001 - told, and the next bug goes on
            sys.stdout.write(f'    # "{one.name}": {type(exc).__name__}: {exc}\n')
        else:
            told = "None" if found is None else f'"{found.schedule.text}"'
            rules = "" if found is None else f"  # {found.violations[0]}"[:180]
            sys.stdout.write(f'    "{one.name}": {told},  # {count}{rules}\n')
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
