"""What publishers tell each other, and cleanups, of what a table shows."""

import datetime as dt
import uuid
from collections.abc import Iterator
from itertools import zip_longest

import msgspec
import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import CorruptMetadataError, PreconditionFailedError
from lakebed.state import published
from lakebed.state.published import Note, Publisher, Shown
from lakebed.store.memory import MemoryStore

KEY = "flights/published/lake.flights.json"
PARTITIONS = range(3)


def note_of(store: MemoryStore) -> Note:
    return Note(store, "flights", "lake.flights")


def noted(store: MemoryStore) -> Shown:
    (shown,) = published.read(store, "flights")
    return shown


class Lake:
    """A dataset whose commits touch some partitions, and a table that publishers change."""

    def __init__(self) -> None:
        self.touched = [frozenset(PARTITIONS)]
        self.table = dict.fromkeys(PARTITIONS, 0)
        self.store = MemoryStore(uuid.uuid4().hex)
        first = note_of(self.store)
        first.read()
        first.begin(0)
        first.finish()
        self.told = 0  # the version that the table itself names

    @property
    def head(self) -> int:
        return len(self.touched) - 1

    def location(self, partition: int, version: int) -> int:
        return max(n for n in range(version + 1) if partition in self.touched[n])

    def publisher(self) -> Iterator[None]:
        """Publish as `lakebed.tables.hive.to_hive` does, and let others go on between any two steps."""
        note, version, is_open = note_of(self.store), None, True
        while is_open or version != self.head:
            version = self.head
            yield
            note.read()
            yield
            base = self.told if note.shows_only(self.told) and self.told <= version else None
            since = [] if base is None else self.touched[base + 1 : version + 1]
            wrong = [
                partition
                for partition in PARTITIONS
                if (
                    self.table[partition] != self.location(partition, version)
                    if base is None
                    else any(partition in touched for touched in since)
                )
            ]
            yield
            if not note.begin(version):
                is_open = True
                continue
            for partition in wrong:
                yield
                self.table[partition] = self.location(partition, version)
            yield
            self.told = version
            yield
            is_open = note.finish()

    def check(self) -> None:
        shown = noted(self.store)
        for partition, location in self.table.items():
            assert location in {self.location(partition, one) for one in shown.versions}
        if not shown.publishers and shown.versions == (self.told,):
            assert self.table == {one: self.location(one, self.told) for one in PARTITIONS}


commits = st.frozensets(st.sampled_from(PARTITIONS), min_size=1)
steps = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=60)


@given(
    steps=steps,
    coming=st.lists(commits, max_size=4),
    deaths=st.frozensets(st.integers(0, 59), max_size=3),
)
def test_note_covers_what_a_table_shows_and_the_last_publisher_leaves_it_right(
    steps, coming, deaths
):
    lake = Lake()
    waiting = list(coming)
    at_work = {one: lake.publisher() for one in range(3)}
    has_died = False
    for number, (actor, count) in enumerate(steps):
        if actor == 3:
            lake.touched += [waiting.pop()] if waiting else []
            continue
        if number in deaths:
            has_died = has_died or actor in at_work
            at_work.pop(actor, None)
            continue
        for _ in range(count if actor in at_work else 0):
            next(at_work[actor], None)
            lake.check()
    lake.touched += waiting
    for _ in zip_longest(lake.publisher(), *at_work.values()):
        lake.check()

    assert lake.table == {one: lake.location(one, lake.head) for one in PARTITIONS}
    if not has_died:
        assert noted(lake.store) == Shown(table="lake.flights", versions=(lake.head,))


def test_dead_publisher_is_waited_for_no_longer_than_its_lease():
    store = MemoryStore(uuid.uuid4().hex)
    dead, later = note_of(store), note_of(store)
    dead.read()
    assert dead.begin(1)
    later.read()
    assert later.begin(2)
    assert later.finish() is False
    later.read()
    assert (noted(store).versions, later.shows_only(2)) == ((1, 2), False)

    name, publisher = noted(store).publishers.popitem()
    over = Publisher(version=publisher.version, until=dt.datetime.now(dt.UTC))
    past = Shown(table="lake.flights", versions=(1, 2), publishers={name: over})
    store.put(KEY, msgspec.json.encode(past))
    later.read()
    assert not later.shows_only(2)
    assert not later.is_disturbed()
    assert later.begin(2)
    later.finish()

    assert noted(store) == Shown(table="lake.flights", versions=(2,))


def test_publisher_that_lost_the_answer_to_its_note_is_alone_with_it():
    class Deaf(MemoryStore):
        """Writes, and then says that somebody else has."""

        def _replace(self, key, data, *, if_match):
            super()._replace(key, data, if_match=if_match)
            raise PreconditionFailedError("The object changed.", hint="Read it again.")

    store = Deaf(uuid.uuid4().hex)
    first, second = note_of(store), note_of(store)
    first.read()
    first.begin(1)
    second.read()

    assert second.begin(2)
    first.finish()
    second.finish()

    assert noted(store).publishers == {}


@pytest.mark.parametrize(
    "data",
    [
        b'{"table": "lake.flights", "versions": [-1]}',
        b'{"table": "lake.flights\xff", "versions": []}',
        b'{"other": ' * 50_000,
        b'{"table": "lake.flights", "versions": [%s]}' % (b"9" * 5000),
    ],
    ids=lambda data: repr(data[:40]),
)
def test_note_that_cannot_be_read_is_named(data: bytes):
    store = MemoryStore(uuid.uuid4().hex)
    store.put(KEY, data)

    with pytest.raises(CorruptMetadataError, match=r"lake\.flights\.json' cannot be read"):
        note_of(store).read()


def test_note_of_a_year_is_small_and_holds_what_was_shown_and_little_more() -> None:
    store, start = MemoryStore(uuid.uuid4().hex), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    note = Note(store, "flights", "flights", kind="delta", name="delta")
    left_at: dict[int, dt.datetime] = {}
    with time_machine.travel(start, tick=False) as clock:
        for version in range(24 * 400):
            clock.shift(3600)
            left_at[version - 1] = dt.datetime.now(dt.UTC)
            note.read()
            assert note.begin(version)
            note.finish()
        now = dt.datetime.now(dt.UTC)

    (shown,) = published.read(store, "flights")
    assert len(store.get("flights/published/delta.json").data) < 8_000
    for retention in (
        dt.timedelta(hours=hours) for hours in (0, 1, 5, 30, 24 * 7, 24 * 90, 24 * 365)
    ):
        held = shown.held_since(now - retention)
        needed = min((v for v, at in left_at.items() if at > now - retention), default=None)
        most = min((v for v, at in left_at.items() if at > now - retention * 1.25), default=None)
        assert held == needed or (needed is not None and most <= held <= needed), retention


def test_note_of_a_table_that_was_given_up_is_of_no_table() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    note = Note(store, "flights", "flights", kind="delta", name="delta")
    note.read()
    note.begin(3)
    note.place = "7"
    note.finish()
    note.read()

    assert note.give_table_up(7)

    assert published.read(store, "flights") == ()
    note.read()
    assert (note.given_up, note.place, note.is_there) == (7, "", False)
    note.begin(4)
    note.place = "8"
    note.finish()
    (shown,) = published.read(store, "flights")
    assert (shown.versions, shown.given_up) == ((4,), 7)


def test_publisher_that_was_at_work_as_the_table_was_given_up_looks_again() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    publisher, other = (
        Note(store, "flights", "flights", kind="delta", name="delta") for _ in range(2)
    )
    publisher.read()
    publisher.begin(3)
    other.read()
    assert other.give_table_up(7)

    assert publisher.finish()

    assert publisher.given_up == 7
    publisher.read()
    assert publisher.given_up == 7
    assert not other.give_table_up(9)


def test_table_that_was_never_published_is_of_no_version():
    table = published.PublishedTable(
        kind="hive", table="lake.days", version=None, latest_version=3, is_automatic=True
    )

    assert str(table) == "hive lake.days was never published"
