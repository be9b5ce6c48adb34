"""Compare-and-swap by numbered claims: every order of steps, and every place to die."""

from __future__ import annotations

import itertools
import random
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from numbered_tree import MemoryTreeStore

from lakebed.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)

HIDDEN = ".lakebed"


class Died(BaseException):
    """A process ends where it is, without a word."""


class Turns:
    """Lets actors take their steps on a tree one at a time, in an order of a seed.

    An actor may be told to die before its nth step.
    """

    def __init__(self, store: MemoryTreeStore, seed: int) -> None:
        self.outcomes: dict[str, object] = {}
        self._dice = random.Random(seed)
        self._tree = store.memory
        self._waiting: dict[str, threading.Event] = {}
        self._all_wait = threading.Condition()
        self._running = 0
        self._dies_at: dict[str, int] = {}
        self._steps: dict[str, itertools.count[int]] = {}

    def play(
        self, actors: dict[str, Callable[[], object]], *, dies_at: dict[str, int] | None = None
    ) -> dict[str, object]:
        """Run all actors to their ends and return what each gave or raised."""
        self._dies_at = dies_at or {}
        self._running = len(actors)
        threads = [
            threading.Thread(target=self._act, args=item, name=item[0]) for item in actors.items()
        ]
        self._steps = {name: itertools.count(1) for name in actors}
        self._tree.before = self._wait
        for thread in threads:
            thread.start()
        while True:
            with self._all_wait:
                self._all_wait.wait_for(lambda: len(self._waiting) == self._running)
                if not self._running:
                    break
                name = self._dice.choice(sorted(self._waiting))
                self._waiting.pop(name).set()
        for thread in threads:
            thread.join()
        self._tree.before = lambda *_: None
        return self.outcomes

    def _wait(self, operation: str, path: str) -> None:
        name = threading.current_thread().name
        event = threading.Event()
        with self._all_wait:
            self._waiting[name] = event
            self._all_wait.notify()
        event.wait()
        if next(self._steps[name]) == self._dies_at.get(name):
            raise Died

    def _act(self, name: str, act: Callable[[], object]) -> None:
        try:
            self._wait("begin", name)
            outcome = act()
        except BaseException as exc:  # noqa: BLE001 - it is what the test asks for
            outcome = exc
        self.outcomes[name] = outcome
        with self._all_wait:
            self._running -= 1
            self._all_wait.notify()


@pytest.fixture
def store() -> MemoryTreeStore:
    return MemoryTreeStore(uuid.uuid4().hex)


def hidden_of(store: MemoryTreeStore) -> list[str]:
    return [path for path in store.memory.paths() if HIDDEN in path]


def increments(store: MemoryTreeStore, times: int) -> Callable[[], int]:
    """Add one by get and replace, as often as it takes; return how often it was acknowledged."""

    def add() -> int:
        for done in range(times):
            while True:
                try:
                    stored = store.get("d/n")
                    store.replace("d/n", str(int(stored.data) + 1).encode(), if_match=stored.etag)
                except PreconditionFailedError:
                    continue
                except ObjectNotFoundError:
                    return done
                break
        return times

    return add


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_in_any_order_no_increment_is_lost_and_nothing_is_left(first: int) -> None:
    for seed in range(first, first + 20):
        store = MemoryTreeStore(uuid.uuid4().hex)
        store.create("d/n", b"0")

        outcomes = Turns(store, seed).play({name: increments(store, 2) for name in "abc"})

        assert set(outcomes.values()) == {2}, (seed, outcomes)
        assert store.get("d/n").data == b"6", seed
        assert hidden_of(store) == [], seed


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_in_any_order_a_writer_who_dies_anywhere_keeps_nobody_from_writing(first: int) -> None:
    for seed in range(first, first + 30):
        store = MemoryTreeStore(uuid.uuid4().hex)
        store.create("d/n", b"0")

        outcomes = Turns(store, seed).play(
            {name: increments(store, 2) for name in "abc"}, dies_at={"a": 1 + seed % 25}
        )

        assert outcomes["b"] == outcomes["c"] == 2, (seed, outcomes)
        died = isinstance(outcomes["a"], Died)
        # What the dead one was about to do has happened or not, and once.
        assert int(store.get("d/n").data) in ({4, 5, 6} if died else {6}), seed
        assert increments(store, 1)() == 1
        store.remove_leftovers("d", older_than=timedelta(0))
        assert hidden_of(store) == [], seed


@pytest.mark.parametrize("first", range(0, 300, 30))
@pytest.mark.parametrize("way", ["delete", "delete_if_match"])
def test_in_any_order_what_is_removed_does_not_come_back(first: int, way: str) -> None:
    for seed in range(first, first + 30):
        store = MemoryTreeStore(uuid.uuid4().hex)
        etag = store.create("d/n", b"0")
        store.put("d/other", b"x")

        def remove(store: MemoryTreeStore = store, etag: str = etag) -> object:
            if way == "delete":
                return store.delete(["d/n"])
            return store.delete_if_match("d/n", etag=etag)

        outcomes = Turns(store, seed).play(
            {"a": increments(store, 2), "b": increments(store, 1), "remover": remove}
        )

        if outcomes["remover"] is False:
            assert (outcomes["a"], outcomes["b"]) == (2, 1), seed
            assert store.get("d/n").data == b"3", seed
        else:
            assert [info.key for info in store.list()] == ["d/other"], (seed, outcomes)
        assert hidden_of(store) == [], seed


def of_removers(store: MemoryTreeStore, etag: str) -> dict[str, Callable[[], object]]:
    def remove_and_create(name: str) -> Callable[[], object]:
        def act() -> object:
            if not store.delete_if_match("d/n", etag=etag):
                return "late"
            try:
                store.create("d/n", name.encode())
            except ObjectExistsError:
                return "taken"
            return "created"

        return act

    return {name: remove_and_create(name) for name in "abc"}


@pytest.mark.parametrize("first", range(0, 300, 30))
def test_in_any_order_a_slow_remover_leaves_what_was_created_since(first: int) -> None:
    for seed in range(first, first + 30):
        store = MemoryTreeStore(uuid.uuid4().hex)
        etag = store.create("d/n", b"0")
        store.put("d/other", b"x")

        outcomes = Turns(store, seed).play(of_removers(store, etag))

        assert sorted(outcomes.values()) == ["created", "late", "late"], (seed, outcomes)
        (winner,) = [name for name, outcome in outcomes.items() if outcome == "created"]
        assert store.get("d/n").data == winner.encode(), seed
        assert hidden_of(store) == [], seed


def replacing(store: MemoryTreeStore, etag: str, data: bytes) -> Callable[[], str]:
    return lambda: store.replace("d/n", data, if_match=etag)


def steps_of(act: Callable[[], object], store: MemoryTreeStore) -> int:
    """Return how many steps something takes on a tree."""
    count = 0

    def count_up(operation: str, path: str) -> None:
        nonlocal count
        count += 1

    store.memory.before = count_up
    act()
    store.memory.before = lambda *_: None
    return count


def test_dead_after_its_claim_a_write_is_finished_by_the_next_writer() -> None:
    endings = set()
    for step in itertools.count(1):
        store = MemoryTreeStore(uuid.uuid4().hex)
        etag = store.create("d/n", b"old")
        died = Turns(store, 0).play(
            {"dead": replacing(store, etag, b"dead")}, dies_at={"dead": step}
        )["dead"]
        if not isinstance(died, Died):
            break
        seen = store.get("d/n").data  # a reader needs nobody

        try:
            store.replace("d/n", b"next", if_match=etag)
            ending = "replaced"
        except PreconditionFailedError:
            assert store.get("d/n").data == b"dead"
            ending = "finished" if seen == b"old" else "was done"
        endings.add(ending)
        assert seen in (b"old", b"dead")

    assert endings == {"replaced", "finished", "was done"}


@pytest.mark.parametrize("what", ["replacement", "removal"])
def test_dead_after_its_claim_a_write_is_finished_by_a_reader_that_must_know(what: str) -> None:
    endings = set()
    for step in itertools.count(1):
        store = MemoryTreeStore(uuid.uuid4().hex)
        etag = store.create("d/n", b"old")
        acts = {
            "replacement": replacing(store, etag, b"dead"),
            "removal": lambda store=store, etag=etag: store.delete_if_match("d/n", etag=etag),
        }
        died = Turns(store, 0).play({"dead": acts[what]}, dies_at={"dead": step})["dead"]

        before = content_of(store)
        was_claimed = before == b"old" and store.finish_claim("d/n", etag=etag)
        after = content_of(store)

        assert was_claimed == (before != after)
        assert after is None or not store.finish_claim("d/n", etag=store.get("d/n").etag)
        endings.add((before, after))
        if after == b"old":
            store.replace("d/n", b"next", if_match=etag)  # nobody wins against a reader that knows
        if not isinstance(died, Died):
            break

    done = b"dead" if what == "replacement" else None
    assert endings == {(b"old", b"old"), (b"old", done), (done, done)}


def content_of(store: MemoryTreeStore) -> bytes | None:
    try:
        return bytes(store.get("d/n").data)
    except ObjectNotFoundError:
        return None


@pytest.mark.parametrize("right", ["list", "move"])
def test_a_reader_without_rights_leaves_a_claim_to_others(
    store: MemoryTreeStore, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    etag = store.create("d/n", b"old")
    steps = steps_of(replacing(store, etag, b"counted"), store)
    etag = store.get("d/n").etag
    Turns(store, 0).play({"dead": replacing(store, etag, b"dead")}, dies_at={"dead": steps - 1})
    refused = {"list": "entries", "move": "move_over"}[right]

    def refuse(operation: str, path: str) -> None:
        if operation == refused:
            raise AccessDeniedError("Permission denied.")

    store.memory.before = refuse
    was_claimed = store.finish_claim("d/n", etag=etag)
    store.memory.before = lambda *_: None

    assert not was_claimed
    assert "claim stays key=d/n" in caplog.text
    assert store.get("d/n").data == b"counted"
    assert store.finish_claim("d/n", etag=etag)
    assert store.get("d/n").data == b"dead"


def test_a_claim_that_the_storage_does_not_finish_is_an_error_and_not_an_old_answer(
    store: MemoryTreeStore,
) -> None:
    etag = store.create("d/n", b"old")
    steps = steps_of(replacing(store, etag, b"counted"), store)
    etag = store.get("d/n").etag
    Turns(store, 0).play({"dead": replacing(store, etag, b"dead")}, dies_at={"dead": steps - 1})

    def fall_silent(operation: str, path: str) -> None:
        if operation == "move_over":
            raise StorageError("There is no answer.", retryable=True)

    store.memory.before = fall_silent
    with pytest.raises(StorageError, match="no answer"):
        store.finish_claim("d/n", etag=etag)


@pytest.mark.parametrize("what", ["replacement", "removal"])
@pytest.mark.parametrize("is_for_good", [False, True], ids=["once", "from then on"])
def test_a_write_that_was_told_to_have_failed_is_carried_out_by_nobody(
    what: str, is_for_good: bool
) -> None:
    """A storage that refuses a step leaves the object as it is, or the outcome is not known."""
    endings = set()
    for step in itertools.count(1):
        store = MemoryTreeStore(uuid.uuid4().hex)
        etag = store.create("d/n", b"old")
        steps = itertools.count(1)

        def refuse(
            operation: str,
            path: str,
            steps: itertools.count[int] = steps,
            step: int = step,
        ) -> None:
            number = next(steps)
            if number == step or (is_for_good and number > step):
                raise AccessDeniedError("The token has expired.")

        store.memory.before = refuse
        try:
            if what == "removal":
                store.delete_if_match("d/n", etag=etag)
            else:
                store.replace("d/n", b"refused", if_match=etag)
        except StorageError as exc:
            ending = "not known" if exc.retryable else "failed"
        else:
            ending = "done"
        is_over = next(steps) <= step
        store.memory.before = lambda *_: None
        endings.add(ending)

        if ending == "failed":
            store.replace("d/n", b"next", if_match=etag)
            assert store.get("d/n").data == b"next", step
        if is_over:
            break

    assert endings == {"done", "failed", *(["not known"] if is_for_good else [])}


class Pause:
    """Holds a thread before one of its steps on a tree."""

    def __init__(self, store: MemoryTreeStore, step: int) -> None:
        self.outcome: object = None
        self._tree = store.memory
        self._step = step
        self._steps = itertools.count(1)
        self._arrived = threading.Event()
        self._goes_on = threading.Event()
        self._thread = threading.current_thread()

    def begin(self, act: Callable[[], object]) -> None:
        """Let a thread run until it is held."""
        self._thread = threading.Thread(target=self._act, args=(act,))
        self._tree.before = self._wait
        self._thread.start()
        self._arrived.wait()

    def end(self) -> None:
        """Let it go on to its end."""
        self._goes_on.set()
        self._thread.join()
        self._tree.before = lambda *_: None

    def _act(self, act: Callable[[], object]) -> None:
        try:
            self.outcome = act()
        except PreconditionFailedError as exc:
            self.outcome = exc

    def _wait(self, operation: str, path: str) -> None:
        if threading.current_thread() is self._thread and next(self._steps) == self._step:
            self._arrived.set()
            self._goes_on.wait()


def test_a_claim_on_what_is_long_replaced_is_void(store: MemoryTreeStore) -> None:
    etag = store.create("d/n", b"0")
    total = steps_of(replacing(store, etag, b"1"), store)
    wins = []
    for step in range(1, total + 1):
        pause = Pause(store, step)
        pause.begin(replacing(store, store.get("d/n").etag, b"slow"))
        # Meanwhile others go on for long, and clean up after themselves.
        refused = 0
        for number in range(5):
            try:
                store.replace("d/n", f"{step} {number}".encode(), if_match=store.get("d/n").etag)
            except PreconditionFailedError:  # the slow one had a good claim, and was helped
                assert store.get("d/n").data == b"slow"
                refused += 1
        pause.end()

        assert store.get("d/n").data == f"{step} 4".encode(), step
        is_won = isinstance(pause.outcome, str)
        assert is_won == (refused == 1 or step == total), step
        assert hidden_of(store) == [], step
        wins.append(is_won)

    # find, write, find, move: the claim is there before the fifth step.
    assert wins == [False] * 4 + [True] * (total - 4)


def test_claims_are_no_objects_and_survive_what_cleans_up_the_young(
    store: MemoryTreeStore,
) -> None:
    etag = store.create("lake.json", b"old")
    dying = Turns(store, 0)
    # begin, find, write, find, move: the claim is there, and its owner is dead.
    dying.play({"dead": replacing_key(store, "lake.json", etag)}, dies_at={"dead": 6})
    assert len(hidden_of(store)) == 1

    assert [info.key for info in store.list()] == ["lake.json"]
    assert store.remove_leftovers("lake", older_than=timedelta(hours=1)) == ()
    assert store.remove_leftovers("lakes", older_than=timedelta(0)) == ()
    assert len(hidden_of(store)) == 1

    assert len(store.remove_leftovers("lake", older_than=timedelta(0), dry_run=True)) == 1
    assert len(hidden_of(store)) == 1
    removed = store.remove_leftovers("lake", older_than=timedelta(0))
    assert [path.partition("/")[0] for path in removed] == [HIDDEN]
    # It was good: what its owner wanted is done, not undone.
    assert store.get("lake.json").data == b"dead"
    assert hidden_of(store) == []


def replacing_key(store: MemoryTreeStore, key: str, etag: str) -> Callable[[], str]:
    return lambda: store.replace(key, b"dead", if_match=etag)


def test_directories_that_become_empty_go_with_the_last_object(store: MemoryTreeStore) -> None:
    store.create("a/b/c", b"1")
    store.put("a/d", b"1")

    store.delete(["a/b/c"])
    assert [entry.name for entry in store.memory.entries("a")] == ["d"]

    store.delete(["a/d"])
    assert store.memory.entries("") == []


def test_another_tool_that_writes_the_object_changes_its_etag(store: MemoryTreeStore) -> None:
    etag = store.create("d.json", b"ours")
    store.memory.write("theirs", [memoryview(b"theirs")])
    store.memory.move_over("theirs", "d.json")

    with pytest.raises(PreconditionFailedError):
        store.replace("d.json", b"ours again", if_match=etag)

    stored = store.get("d.json")
    assert stored.data == b"theirs"
    store.replace("d.json", b"merged", if_match=stored.etag)
    assert store.get("d.json").data == b"merged"
