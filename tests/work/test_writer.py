"""Entity streams: the behaviours of Kite's readers and writers, by their numbers."""

import collections
import contextlib
import dataclasses
import datetime as dt
import io
import json
import logging
import time
import types
import uuid
from collections.abc import Callable
from typing import Any

import attrs
import fastavro
import msgspec
import pandas as pd
import pyarrow as pa
import pydantic
import pytest

import lakebed
from lakebed import DatasetDescriptor, WriteOptions, by
from lakebed.dataset import Dataset
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    LakebedError,
    PartitionSpecError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.state import reservation
from lakebed.state.reservation import decode_record, encode_record
from lakebed.state.snapshot import Source
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore
from lakebed.testing.stores import DelegatingStore
from lakebed.work.writer import ENTITIES_PER_BATCH, EntityWriter

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("name", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture(params=["parquet", "avro"])
def users(store: Store, request: pytest.FixtureRequest) -> Dataset:
    return create(store, format=request.param)


def create(store: Store, **options: object) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, **options)
    return lakebed.open_repository(store.uri).create("users", descriptor)


def data_files(store: Store) -> list[str]:
    return [info.key for info in store.list("") if "/data/" in info.key and "part-" in info.key]


def ids(dataset: Dataset) -> list[int]:
    return [row["id"] for row in dataset.kite.reader()]


def write_two_and_fail(dataset: Dataset) -> None:
    with dataset.kite.writer() as writer:
        writer.write({"id": 1})
        writer.write({"id": 2})
        raise KeyboardInterrupt


def write_many(writer: EntityWriter) -> None:
    for number in range(10 * ENTITIES_PER_BATCH):
        writer.write({"id": number % 7})


# Writers


def test_behaviour_1_nothing_is_visible_before_the_writer_is_closed(
    users: Dataset, store: Store
) -> None:
    writer = users.kite.writer()
    writer.write({"id": 1})
    assert (users.count(), users.version) == (0, 0)

    writer.close()

    assert ids(users) == [1]
    assert len(data_files(store)) == len(users.files()) == 1


def test_behaviour_2_empty_writer_leaves_no_file_and_no_version(
    users: Dataset, store: Store
) -> None:
    before = [info.key for info in store.list("")]

    with users.kite.writer() as writer:
        pass

    assert writer.commit is None
    assert users.version == 0
    assert [info.key for info in store.list("")] == before


class HalfWayError(Exception):
    """What goes wrong in the middle of a job."""


def fail_before_a_finally(users: Dataset) -> None:
    writer = users.kite.writer()
    try:
        writer.write({"id": 1})
        raise HalfWayError
    finally:
        writer.close()


def fail_in_a_view(users: Dataset) -> None:
    fail_before_a_finally(users.where("id > 0"))  # type: ignore[arg-type]


def fail_and_raise_again(users: Dataset) -> None:
    writer = users.kite.writer()
    try:
        writer.write({"id": 1})
        raise HalfWayError
    except HalfWayError:
        writer.close()
        raise


def fail_and_go_on(users: Dataset) -> None:
    writer = users.kite.writer()
    try:
        writer.write({"id": 1})
        raise HalfWayError
    except HalfWayError:
        writer.close()


def fail_within_another_error(users: Dataset) -> None:
    try:
        raise KeyError
    except KeyError:
        fail_before_a_finally(users)


def fail_and_close_in_a_function(users: Dataset) -> None:
    def finish() -> None:
        writer.close()

    writer = users.kite.writer()
    try:
        writer.write({"id": 1})
        raise HalfWayError
    finally:
        finish()


def fail_in_a_closing_block(users: Dataset) -> None:
    with contextlib.closing(users.kite.writer()) as writer:
        writer.write({"id": 1})
        raise HalfWayError


def fail_in_an_exit_stack(users: Dataset) -> None:
    with contextlib.ExitStack() as stack:
        writer = users.kite.writer()
        stack.callback(writer.close)
        writer.write({"id": 1})
        raise HalfWayError


def fail_in_a_generator(users: Dataset) -> None:
    def written() -> Any:
        writer = users.kite.writer()
        try:
            for number in range(3):
                writer.write({"id": number})
                yield number
        finally:
            writer.close()

    for number in written():
        if number == 1:
            break  # the generator is closed: not all was written
    raise HalfWayError


HALF_JOBS = [
    fail_before_a_finally,
    fail_in_a_view,
    fail_and_raise_again,
    fail_and_go_on,
    fail_within_another_error,
    fail_and_close_in_a_function,
    fail_in_a_closing_block,
    fail_in_an_exit_stack,
    fail_in_a_generator,
]


@pytest.mark.parametrize("job", HALF_JOBS, ids=lambda job: job.__name__)
def test_close_while_an_error_is_on_its_way_commits_nothing_and_says_so(
    users: Dataset,
    store: Store,
    caplog: pytest.LogCaptureFixture,
    job: Callable[[Dataset], None],
) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(HalfWayError) as caught:
        job(users)

    assert (users.version, users.count(), data_files(store)) == (0, 0, [])
    assert "nothing was committed" in caplog.text
    if job is not fail_in_a_generator:  # there it is GeneratorExit that was on its way
        (note,) = caught.value.__notes__
        assert "(1 entity)" in note
        assert "close(ignore_error=True)" in note


def test_close_after_an_error_was_handled_commits(users: Dataset) -> None:
    writer = users.kite.writer()
    for text in ("1", "two", "3"):
        try:
            writer.write({"id": int(text)})
        except ValueError:
            writer.write({"id": -1})

    writer.close()

    assert ids(users) == [1, -1, 3]


def test_writer_that_was_opened_while_an_error_was_handled_commits(users: Dataset) -> None:
    try:
        raise KeyError
    except KeyError:
        try:
            raise ValueError
        except ValueError:
            writer = users.kite.writer()
            writer.write({"id": 1})
            other = users.kite.writer()
            other.write({"id": 2})
            other.close()
        writer.close()  # the outer error is older than the writer

    assert sorted(ids(users)) == [1, 2]


def test_block_that_ends_well_commits_whatever_goes_on_around_it(users: Dataset) -> None:
    writer = users.kite.writer()
    try:
        raise KeyError
    except KeyError:
        with writer:
            writer.write({"id": 1})

    assert ids(users) == [1]


def test_rows_that_are_complete_in_spite_of_an_error_are_committed_on_request(
    users: Dataset,
) -> None:
    writer = users.kite.writer()
    rows = iter([{"id": 1}, {"id": 2}])
    while True:
        try:
            writer.write(next(rows))
        except StopIteration:
            writer.close(ignore_error=True)
            break

    assert ids(users) == [1, 2]


def test_empty_writer_is_closed_without_a_word_whatever_is_on_its_way(
    users: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    writer = users.kite.writer()
    try:
        raise KeyError
    except KeyError:
        writer.close()

    assert (writer.is_open, users.version, caplog.text) == (False, 0, "")


def test_behaviour_3_writer_whose_store_failed_commits_nothing(store: Store) -> None:
    users = create(store, partition_by="identity(id) as part")
    failing = Dataset(Source(FailingStore(store, fail_on="put", nth=2), "users"))
    writer = failing.with_options(
        write=WriteOptions(memory_bytes=3_000, row_group_bytes=100)
    ).kite.writer()

    with pytest.raises(StorageError):
        write_many(writer)
    with pytest.raises(InvalidInputError, match="aborted"):
        writer.write({"id": 1})
    writer.close()

    assert writer.commit is None
    assert (users.version, data_files(store)) == (0, [])


class _Renewing(DelegatingStore):
    """Fails puts of leases while it is told to, before or after they have landed."""

    trouble: StorageError | None = None
    has_landed = False
    renewals = 0

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        if "/batches/" not in key:
            return super()._replace(key, data, if_match=if_match)
        self.renewals += 1
        if self.trouble and not self.has_landed:
            raise self.trouble
        etag = super()._replace(key, data, if_match=if_match)
        if self.trouble:
            raise self.trouble
        return etag


class _Clock:
    """Shows reservations so many hours from now."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.hours = 0
        patch.setattr(reservation, "_now", self.now)
        patch.setattr(reservation, "_WAITS_S", (0.0,))

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC) + dt.timedelta(hours=self.hours)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    return _Clock(monkeypatch)


def write_some(writer: EntityWriter) -> None:
    for number in range(ENTITIES_PER_BATCH):
        writer.write({"id": number})


def lease_of(store: Store) -> dt.datetime:
    (key,) = (info.key for info in store.list("users/batches/"))
    return dt.datetime.fromisoformat(json.loads(store.get(key).data)["lease_until"])


@pytest.mark.thorough
@pytest.mark.parametrize("has_landed", [False, True])
@pytest.mark.parametrize("is_retryable", [False, True])
@pytest.mark.parametrize("is_renewed_later", [False, True])
def test_writer_goes_on_without_a_renewal_while_its_lease_lasts(
    store: Store, clock: _Clock, has_landed: bool, is_retryable: bool, is_renewed_later: bool
) -> None:
    users, shaky = create(store), _Renewing(store)
    shaky.has_landed = has_landed
    writer = Dataset(Source(shaky, "users")).kite.writer()
    write_some(writer)
    assert shaky.renewals == 0

    clock.hours = 13
    shaky.trouble = StorageError("No answer.", retryable=is_retryable)
    write_some(writer)
    tried = shaky.renewals
    write_some(writer)  # not at once again
    shaky.trouble = None
    assert 0 < tried == shaky.renewals
    if is_renewed_later:
        # Half of what was left is over; or of a whole lease, where it was renewed after all.
        clock.hours = 26 if has_landed and is_retryable else 20
        write_some(writer)
        left = lease_of(store) - clock.now()
        assert left > dt.timedelta(hours=23)
    writer.close()

    assert users.count() == ENTITIES_PER_BATCH * (4 if is_renewed_later else 3)


def test_writer_whose_lease_is_over_before_it_is_renewed_is_aborted(
    store: Store, clock: _Clock
) -> None:
    users, shaky = create(store), _Renewing(store)
    writer = Dataset(Source(shaky, "users")).kite.writer()
    shaky.trouble = StorageError("No answer.", retryable=True)

    clock.hours = 25
    with pytest.raises(StorageError, match="No answer"):
        write_some(writer)

    assert (users.version, data_files(store)) == (0, [])


@pytest.mark.parametrize("change", [{"commit_id": "of another"}, {"files": ()}, None], ids=str)
def test_writer_whose_batch_was_taken_away_does_not_take_it_back(
    store: Store, clock: _Clock, change: dict[str, object] | None
) -> None:
    users = create(store)
    writer = users.kite.writer()
    (key,) = (info.key for info in store.list("users/batches/"))
    record = decode_record(store.get(key).data, key)
    theirs = (
        b"noise" if change is None else encode_record(msgspec.structs.replace(record, **change))
    )
    store.put(key, theirs)

    clock.hours = 13
    with pytest.raises(CommitConflictError, match="taken away"):
        write_some(writer)

    assert store.get(key).data == theirs
    assert (users.version, data_files(store)) == (0, [])


def test_behaviour_3_error_in_the_block_leaves_nothing(users: Dataset, store: Store) -> None:
    before = [info.key for info in store.list("")]

    with pytest.raises(KeyboardInterrupt):
        write_two_and_fail(users)

    assert users.version == 0
    assert [info.key for info in store.list("")] == before


BAD = [
    ({"id": None}, SchemaMismatchError, "not nullable"),
    ({}, SchemaMismatchError, "lacks column 'id'"),
    ({"id": "7"}, SchemaMismatchError, "'7'"),
    ({"id": 2**63}, SchemaMismatchError, "9223372036854775808"),
    ({"id": True}, SchemaMismatchError, "True"),
    ({"id": 1, "nmae": "x"}, SchemaMismatchError, "Did you mean 'name'"),
    ({"id": 1, "name": "\ud800"}, SchemaMismatchError, "name"),
    ({"id": 1, "tags": [1]}, SchemaMismatchError, "tags"),
    ({"id": 1, "at": dt.date}, SchemaMismatchError, "at"),
    (7, InvalidInputError, "type int"),
]


@pytest.mark.parametrize(("bad", "error", "message"), BAD)
def test_behaviour_4_bad_record_raises_and_the_writer_stays_usable(
    users: Dataset, bad: object, error: type[LakebedError], message: str
) -> None:
    with users.kite.writer() as writer:
        writer.write({"id": 1})
        with pytest.raises(error, match=message):
            writer.write(bad)
        writer.write({"id": 2})

    assert ids(users) == [1, 2]


def test_behaviour_4_entity_without_a_partition_is_a_bad_record(store: Store) -> None:
    users = create(store, partition_by="name")

    with users.kite.writer() as writer:
        writer.write({"id": 1, "name": "a"})
        with pytest.raises(PartitionSpecError, match="lacks 'name'"):
            writer.write({"id": 2})
        with pytest.raises(PartitionSpecError, match="needs 305 bytes"):
            writer.write({"id": 3, "name": "x" * 300})
        writer.write({"id": 4, "name": None})

    assert sorted(ids(users)) == [1, 4]


def test_behaviour_4_entity_outside_the_view_is_a_bad_record(users: Dataset) -> None:
    with users.where("id < 5").kite.writer() as writer:
        writer.write({"id": 1})
        with pytest.raises(InvalidInputError, match="outside the view"):
            writer.write({"id": 5})
        writer.write({"id": 2})

    assert ids(users) == [1, 2]


@pytest.mark.parametrize("through", ["a view", "provided"])
def test_entity_costs_about_the_same_through_a_view(store: Store, through: str) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="provided(version, int)")
    repository = lakebed.open_repository(store.uri)
    provided = repository.create("provided", descriptor).kite.with_("version", 1)
    plain = create(store)

    seconds = {}
    for name, view in [
        ("plain", plain),
        ("other", {"a view": plain.kite.from_("id", 0)}.get(through, provided)),
    ]:
        with view.kite.writer() as writer:
            start = time.perf_counter()
            for number in range(ENTITIES_PER_BATCH - 1):
                writer.write({"id": number, "name": "a"})
            seconds[name] = time.perf_counter() - start

    assert seconds["other"] < 8 * seconds["plain"]  # a record batch for each takes 30 times as long


def test_value_that_only_the_kernel_can_judge_is_refused_at_once(store: Store) -> None:
    users = create(store, partition_by=[by.dimension("name", "*", cap=1)])
    users.append([{"id": 1, "name": "a"}])

    with users.where("name_dimension <> 'OTHER'").kite.writer() as writer:
        writer.write({"id": 2, "name": "a"})
        with pytest.raises(InvalidInputError, match="name_dimension = 'OTHER'"):
            writer.write({"id": 3, "name": "b"})  # beyond the cap

    assert sorted(ids(users)) == [1, 2]


def test_behaviour_5_closing_twice_is_fine(users: Dataset) -> None:
    writer = users.kite.writer()
    writer.write({"id": 1})
    writer.close()
    writer.close()
    writer.abort()
    unused = users.kite.writer()
    unused.abort()
    unused.close()

    reader = users.kite.reader()
    reader.close()
    reader.close()

    assert ids(users) == [1]
    assert users.version == 1


@pytest.mark.parametrize("end", ["close", "abort"])
def test_behaviour_6_writer_that_has_ended_takes_nothing_more(users: Dataset, end: str) -> None:
    writer = users.kite.writer()
    getattr(writer, end)()

    with pytest.raises(InvalidInputError, match=r"The writer is (closed|aborted)"):
        writer.write({"id": 1})


def test_behaviour_8_files_of_a_writer_become_visible_by_the_commit_alone(
    users: Dataset, store: Store
) -> None:
    with users.with_options(
        write=WriteOptions(target_bytes=1_000, row_group_bytes=1_000)
    ).kite.writer() as writer:
        for number in range(3 * ENTITIES_PER_BATCH):
            writer.write({"id": number})
        assert data_files(store)
        assert users.count() == 0

    assert ids(users) == list(range(3 * ENTITIES_PER_BATCH))


@pytest.mark.thorough
def test_behaviour_9_rolled_files_hold_every_entity_once(users: Dataset) -> None:
    options = WriteOptions(target_bytes=20_000)
    with users.with_options(write=options).kite.writer() as writer:
        for number in range(20_000):
            writer.write({"id": number, "name": f"{hash(str(number))}"})

    sizes = sorted(file.size_bytes for file in users.files())
    assert len(sizes) > 5
    assert ids(users) == list(range(20_000))
    assert sizes[-1] < 1.5 * 20_000


def test_behaviour_10_writer_that_stays_open_begins_other_files(
    users: Dataset, store: Store
) -> None:
    with users.with_options(write=WriteOptions(roll_interval_s=0.02)).kite.writer() as writer:
        for number in range(3):
            writer.write({"id": number})
            time.sleep(0.03)
        assert users.count() == 0

    assert writer.commit is not None
    assert len(writer.commit.files_added) >= 2
    assert ids(users) == [0, 1, 2]


def test_behaviour_13_ten_users_over_two_hashes_make_six_partitions(store: Store) -> None:
    users = create(store, partition_by="hash(name, 2), hash(id, 3)")

    with users.kite.writer() as writer:
        for number in range(10):
            writer.write({"id": number // 2, "name": f"test-{number}"})

    assert len(users.inspect.partitions()) == 6
    assert sum(one.row_count for one in users.inspect.partitions()) == 10


# Kinds of entities


@dataclasses.dataclass
class User:
    id: int
    name: str | None = None
    tags: list[str] | None = None


Named = collections.namedtuple("Named", ["id", "name"])


def test_entities_are_dicts_dataclasses_named_tuples_and_records_of_avro(users: Dataset) -> None:
    document = {
        "type": "record",
        "name": "user",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
    sink = io.BytesIO()
    fastavro.writer(sink, document, [{"id": 4, "name": "avro"}])
    sink.seek(0)

    with users.kite.writer() as writer:
        writer.write({"id": 1, "name": "dict", "tags": ["a", "b"]})
        writer.write(User(2, "dataclass", ["c"]))
        writer.write(Named(3, "tuple"))
        for record in fastavro.reader(sink):
            writer.write(record)

    assert list(users.kite.reader(User)) == [
        User(1, "dict", ["a", "b"]),
        User(2, "dataclass", ["c"]),
        User(3, "tuple"),
        User(4, "avro"),
    ]


class Plain:
    """A class that declares nothing: its instances have attributes."""

    def __init__(self, id: int, name: str) -> None:  # noqa: A002 - the field
        self.id = id
        self.name = name
        self._cache = object()

    @property
    def shout(self) -> str:
        return self.name.upper()


class Private:
    """Keeps all to itself."""

    def __init__(self) -> None:
        self._id = 1


@attrs.define
class OfAttrs:
    id: int
    name: str = "attrs"


class OfPydantic(pydantic.BaseModel):
    id: int
    name: str = "pydantic"


class OfMsgspec(msgspec.Struct):
    id: int
    name: str = "msgspec"


ENTITIES = [
    Plain(1, "plain"),
    OfAttrs(1),
    OfPydantic(id=1),
    OfMsgspec(1),
    types.SimpleNamespace(id=1, name="namespace"),
]


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: type(entity).__name__)
def test_objects_of_other_classes_are_written_by_their_fields(
    users: Dataset, entity: object
) -> None:
    with users.kite.writer() as writer:
        writer.write(entity)
    users.append([entity])

    rows = [(row["id"], row["name"]) for row in users.kite.reader()]
    assert rows == [(1, entity.name)] * 2  # type: ignore[attr-defined]
    assert users.kite.includes(entity)


def test_object_in_a_record_of_an_object_is_written_too(store: Store) -> None:
    nested = pa.schema([("user", pa.struct([("id", pa.int64()), ("name", pa.string())]))])
    owners = lakebed.open_repository(store.uri).create("owners", DatasetDescriptor(schema=nested))

    owners.append([types.SimpleNamespace(user=entity) for entity in ENTITIES])

    assert [row["user"]["name"] for row in owners.kite.reader()] == [
        entity.name  # type: ignore[attr-defined]
        for entity in ENTITIES
    ]


@pytest.mark.parametrize(
    "other", [object(), User, len, io, 1, "text", pd.Series([1], ["id"]), Private(), None]
)
def test_object_without_public_fields_is_refused_and_not_taken_for_an_empty_entity(
    users: Dataset, other: object
) -> None:
    with (
        users.kite.writer() as writer,
        pytest.raises(InvalidInputError, match="Cannot read an entity of type") as caught,
    ):
        writer.write(other)

    assert "public attributes" in str(caught.value.hint)
    assert users.version == 0


def test_attribute_that_is_not_a_field_is_named(users: Dataset) -> None:
    with users.kite.writer() as writer, pytest.raises(SchemaMismatchError, match="nome"):
        writer.write(types.SimpleNamespace(id=1, nome="x"))


def test_entity_may_be_used_again_for_the_next_one(users: Dataset) -> None:
    entity = {"id": 0, "tags": []}

    with users.kite.writer() as writer:
        for number in range(3):
            entity["id"] = number
            entity["tags"].append(str(number))
            writer.write(entity)

    assert [row["tags"] for row in users.kite.reader()] == [["0"], ["0", "1"], ["0", "1", "2"]]


# Readers


def test_streams_are_read_and_written_in_kites_words(users: Dataset) -> None:
    writer = users.kite.writer()
    writer.open()
    writer.write({"id": 1})
    writer.write({"id": 2})
    writer.close()

    found = []
    reader = users.kite.reader()
    reader.open()
    while reader.has_next() and reader.has_next():
        found.append(reader.read()["id"])

    assert sorted(found) == [1, 2]
    assert not reader.is_open
    with pytest.raises(InvalidInputError, match="at its end"):
        reader.read()
    reader.close()
    assert not reader.has_next()
    with pytest.raises(InvalidInputError, match="writer is closed"):
        writer.open()


def test_entity_that_was_asked_for_ahead_comes_first_in_every_form(users: Dataset) -> None:
    users.append([{"id": number} for number in range(3)])
    reader = users.kite.reader()

    assert reader.has_next()

    assert reader.is_open
    assert [next(reader)["id"], *(row["id"] for row in reader)] == [0, 1, 2]


@pytest.mark.parametrize("word", ["open", "has_next", "read"])
def test_reader_that_was_closed_early_refuses_kites_words(users: Dataset, word: str) -> None:
    users.append([{"id": 1}, {"id": 2}])
    reader = users.kite.reader()
    reader.has_next()
    reader.close()

    with pytest.raises(InvalidInputError, match="reader is closed"):
        getattr(reader, word)()


def test_behaviour_7_next_past_the_end_stops(users: Dataset) -> None:
    users.append([{"id": 1}])

    with users.kite.reader() as reader:
        assert next(reader)["id"] == 1
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(reader)


def test_behaviour_6_closed_reader_refuses(users: Dataset) -> None:
    users.append([{"id": number} for number in range(3)])

    with users.kite.reader() as reader:
        next(reader)

    with pytest.raises(InvalidInputError, match="closed"):
        next(reader)


def test_behaviour_11_entities_of_an_older_schema_are_read_by_the_newer(users: Dataset) -> None:
    users.append([{"id": 1, "name": "old"}])
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    added = {"name": "since", "type": "int", "default": 2013}
    newer = {"type": "record", "name": "user", "fields": [*fields, added]}
    now = users.descriptor

    users.evolve(
        DatasetDescriptor(schema=newer, format=now.format, compression=now.compression),
        base=users.version,
    )
    users.append([{"id": 2, "name": "new", "since": 2020}])

    assert list(users.kite.reader()) == [
        {"id": 1, "name": "old", "since": 2013},
        {"id": 2, "name": "new", "since": 2020},
    ]
