"""Indices over files that are there: built, broken off, rebuilt, described, dropped, merged."""

import datetime as dt
import uuid
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.common.progress import Progress
from lakebed.dataset import Dataset
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    SchemaMismatchError,
)
from lakebed.index import kartothek_file, postings_writer
from lakebed.index.segment import size_of
from lakebed.repository import Repository
from lakebed.state.reader import read_head
from lakebed.state.state import State
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore

SCHEMA = pa.schema([("n", pa.int64()), ("plane", pa.string()), ("delay", pa.float64())])
FILES = 6


@pytest.fixture
def repository() -> Repository:
    return Repository(MemoryStore(uuid.uuid4().hex))


@pytest.fixture
def flights(repository: Repository) -> Dataset:
    """Six files; each plane is in two of them, each number in one."""
    dataset = repository.create("flights", lakebed.DatasetDescriptor(schema=SCHEMA))
    for file in range(FILES):
        dataset.append(
            [
                {"n": 7 * i + file, "plane": f"N{(file + i % 2) % FILES}", "delay": 0.5 * i}
                for i in range(40)
            ]
        )
    return dataset


def state_of(repository: Repository) -> State:
    return read_head(repository.store, "flights").state


def kept_files(dataset: Dataset, text: str) -> int:
    return len(dataset.where(text).plan().files)


def test_a_build_covers_the_files_that_are_there_and_those_that_come(
    repository: Repository, flights: Dataset
):
    told: list[Progress] = []
    files = flights.files()

    built = flights.indices.build("plane", on_progress=told.append)
    flights.append([{"n": 1, "plane": "N99", "delay": None}])

    assert built.is_complete
    sizes = [repository.store.size(file.key) for file in files]
    assert [progress.file_count for progress in told] == [*range(FILES + 1)]
    assert (told[-1].file_total, told[-1].size_bytes) == (FILES, sum(sizes))
    assert flights.indices.list()[0].covered_count == FILES + 1
    assert kept_files(flights, "plane = 'N2'") == 2
    assert kept_files(flights, "plane = 'N99'") == 1


def test_a_build_goes_on_where_it_was_broken_off(repository: Repository, flights: Dataset):
    def stop(progress: Progress) -> None:
        if progress.file_count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        flights.indices.build("plane", on_progress=stop, commit_bytes=1)
    assert flights.indices.list()[0].covered_count == 2
    told: list[Progress] = []

    flights.indices.build("plane", on_progress=told.append)

    assert {progress.file_total for progress in told} == {FILES - 2}
    assert told[-1].file_count == FILES - 2
    assert flights.indices.list()[0].is_complete


def test_a_build_indexes_what_is_appended_meanwhile_too(repository: Repository, flights: Dataset):
    def append(progress: Progress) -> None:
        if 0 < progress.file_count <= 3 and progress.file_total == FILES:
            flights.append([{"n": progress.file_count, "plane": "N7", "delay": None}])

    flights.indices.build("plane", on_progress=append, commit_bytes=1)

    index = flights.indices.list()[0]
    assert index.covered_count == index.file_count == FILES + 3


def test_a_writer_that_began_before_the_build_leaves_files_for_the_next_one(
    repository: Repository, flights: Dataset
):
    writer = flights.kite.writer()
    writer.write({"n": 1, "plane": "N50", "delay": None})
    flights.indices.build("plane")
    writer.close()
    assert flights.indices.list()[0].covered_count == FILES
    assert kept_files(flights, "plane = 'N50'") == 1

    again = flights.indices.build("plane")

    assert again.is_complete
    assert flights.where("plane = 'N50'").count() == 1


def test_files_of_an_older_schema_are_indexed_as_they_read_now(
    repository: Repository, flights: Dataset
):
    fields = [
        {"name": "n", "type": "double"},
        {"name": "plane", "type": ["null", "string"]},
        {"name": "delay", "type": ["null", "double"]},
        {"name": "seats", "type": "int", "default": 150},
    ]
    schema = {"type": "record", "name": "entity", "fields": fields}
    older = repository.create(
        "older",
        lakebed.DatasetDescriptor(
            schema=pa.schema([pa.field("n", pa.int32(), nullable=False), *list(SCHEMA)[1:]])
        ),
    )
    older.append([{"n": n, "plane": None, "delay": None} for n in range(5)])
    older.evolve(lakebed.DatasetDescriptor(schema=schema), base=older.version)
    older.append([{"n": 2.5, "plane": None, "delay": None, "seats": 9}])

    older.indices.build("n")
    older.indices.build("seats")

    assert len(older.where("n = 3").plan().files) == 1
    assert [row["n"] for row in older.where("seats = 150").kite.reader()] == [0, 1, 2, 3, 4]
    assert len(older.where("seats = 9").plan().files) == 1


def test_a_damaged_data_file_stops_the_build_and_leaves_nothing(
    repository: Repository, flights: Dataset
):
    repository.store.put(flights.files()[2].key, b"damaged")

    with pytest.raises(CorruptMetadataError, match="damaged"):
        flights.indices.build("plane")

    assert list(repository.store.list("flights/postings/")) == []


@pytest.mark.parametrize(
    ("column", "error", "hint"),
    [
        ("plain", SchemaMismatchError, "Did you mean 'plane'?"),
        ("zzz", SchemaMismatchError, "Columns are: n, plane, delay."),
        ("batch_id", InvalidInputError, "files are found by them."),
    ],
)
def test_a_column_that_cannot_be_indexed_changes_nothing(
    flights: Dataset, column: str, error: type[Exception], hint: str
):
    version = flights.version

    with pytest.raises(error) as raised:
        flights.indices.build(column)

    assert raised.value.hint.endswith(hint)

    assert flights.version == version


def test_a_dropped_index_is_asked_no_more_and_answers_stay(flights: Dataset):
    flights.indices.build("plane")
    before = sorted(row["n"] for row in flights.where("plane = 'N2'").kite.reader())

    commit = flights.indices.drop("plane")

    assert commit.operation == "update"
    assert flights.indices.list() == ()
    assert sorted(row["n"] for row in flights.where("plane = 'N2'").kite.reader()) == before
    with pytest.raises(InvalidInputError, match="has no index of 'plane'"):
        flights.indices.drop("plane")


def test_an_index_is_described_by_numbers(flights: Dataset):
    index = flights.indices.build("plane")

    assert (index.value_count, index.pair_count) == (FILES, 2 * FILES)
    assert (index.values_per_file, index.files_per_value) == (2, 2)
    assert index.segment_count == 1
    assert index.size_bytes > 0
    assert "6 of 6 files" in repr(index)
    assert "6 of 6" in index._repr_html_()


def test_values_that_are_in_most_files_get_a_warning(flights: Dataset):
    assert "is in 33% of the files" in flights.indices.build("plane").warning
    assert flights.indices.build("n").warning == ""


def test_values_in_one_file_each_get_no_warning_while_segments_are_apart(repository: Repository):
    dataset = repository.create("apart", lakebed.DatasetDescriptor(schema=SCHEMA, index="n"))
    for file in range(6):
        dataset.append([{"n": 7 * i + file, "plane": "", "delay": 0.0} for i in range(40)])

    (index,) = dataset.indices.list()

    assert (index.segment_count, index.files_per_value, index.warning) == (6, 1, "")
    assert index.file_share == pytest.approx(1 / 6)


def test_null_in_every_file_does_not_count_as_a_value_that_is_in_many(repository: Repository):
    dataset = repository.create("nulls", lakebed.DatasetDescriptor(schema=SCHEMA, index="n"))
    for n in (3, 0, 5, 1, 4, 2):
        dataset.append([{"n": n, "plane": "", "delay": 0.0}, {"n": None, "plane": "", "delay": 0}])

    assert dataset.indices.list()[0].files_per_value == 1


def test_files_that_were_overwritten_do_not_add_to_the_values_of_a_file(repository: Repository):
    dataset = repository.create("over", lakebed.DatasetDescriptor(schema=SCHEMA, index="n"))
    for _ in range(4):
        dataset.overwrite([{"n": i, "plane": "", "delay": 0.0} for i in range(100)])

    (index,) = dataset.indices.list()

    assert (index.covered_count, index.indexed_count, index.values_per_file) == (1, 4, 100)


def test_a_column_that_the_data_is_sorted_by_gets_a_warning(repository: Repository):
    dataset = repository.create("sorted", lakebed.DatasetDescriptor(schema=SCHEMA, index="n"))
    for file in range(8):
        dataset.append([{"n": 100 * file + i, "plane": "", "delay": 0.0} for i in range(10)])

    assert "sorted by the column" in dataset.indices.list()[0].warning


def test_a_damaged_segment_is_named_and_a_build_covers_its_files_again(
    repository: Repository, flights: Dataset
):
    flights.indices.build("plane")
    (segment,) = state_of(repository).lists.postings["plane"]
    repository.store.put(segment.key, b"damaged")
    PROCESS_CACHE.clear()

    assert list(flights.indices.list()[0].lost) == [segment.key]
    assert flights.where("plane = 'N2'").count() == 40

    flights.indices.build("plane")

    assert flights.indices.list()[0].covered_count == FILES
    assert kept_files(flights, "plane = 'N2'") == 2


def test_a_compaction_makes_one_segment_without_files_that_no_version_has(
    repository: Repository, flights: Dataset
):
    flights.indices.build("plane")
    flights.append([{"n": 1, "plane": "N8", "delay": None}])
    flights.overwrite([{"n": 2, "plane": "N9", "delay": None}])
    flights.cleanup("0s", dry_run=False)

    (merged,) = [one for one in flights.compact(metadata=True) if one.name == "index of plane"]

    assert (merged.segments_before, merged.segments_after) == (3, 1)
    index = flights.indices.list()[0]
    assert (index.covered_count, index.value_count) == (1, 1)
    assert flights.compact(metadata=True) == ()


def test_a_compaction_names_what_it_merged_beside_a_segment_that_is_damaged(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    dataset = repository.create("flights", lakebed.DatasetDescriptor(schema=SCHEMA, index="n"))
    numbers = np.random.default_rng(0).integers(2**62, size=5_000)
    nothing = pa.nulls(5_000)
    dataset.append(pa.table({"n": numbers, "plane": nothing, "delay": nothing}))
    (large,) = state_of(repository).lists.postings["n"]
    for n in range(3):
        dataset.append([{"n": n, "plane": "", "delay": 0.0}])
    monkeypatch.setattr(postings_writer, "LARGE_BYTES", size_of(large) - 1)
    repository.store.put(large.key, b"damaged")
    PROCESS_CACHE.clear()

    dataset.compact(metadata=True)

    named = {segment.key for segment in state_of(repository).lists.postings["n"]}
    assert len(named) == 2
    count = len(list(repository.store.list("flights/postings/")))
    dataset.compact(metadata=True)
    assert len(list(repository.store.list("flights/postings/"))) == count


def test_what_arrow_cannot_write_for_other_tools_is_left_out(
    repository: Repository, flights: Dataset, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> bytes:
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    monkeypatch.setattr(kartothek_file, "encode", fail)

    assert flights.indices.build("plane").is_complete
    assert state_of(repository).indices == {}


@pytest.mark.parametrize("bound", ["MAX_PAIRS", "MAX_BYTES"])
def test_an_index_that_is_too_large_to_hold_is_not_written_for_other_tools(
    repository: Repository, flights: Dataset, monkeypatch: pytest.MonkeyPatch, bound: str
):
    monkeypatch.setattr(kartothek_file, bound, 5)

    assert flights.indices.build("plane").is_complete
    assert state_of(repository).indices == {}


class _Racing(DelegatingStore):
    """Appends while a data file is read."""

    def __init__(self, inner, race) -> None:
        super().__init__(inner)
        self._race = race

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        if "/data/" in key and self._race is not None:
            race, self._race = self._race, None
            race()
        return self.inner.get_range(key, start, length)


def test_an_index_file_for_others_is_never_named_beside_files_that_it_lacks(
    repository: Repository, flights: Dataset
):
    racing = Repository(
        _Racing(repository.store, lambda: flights.append([{"n": 1, "plane": "x", "delay": 1.0}]))
    )

    racing.open("flights").indices.build("plane")

    state = state_of(repository)
    (key,) = state.indices.values()
    table = pq.read_table(pa.BufferReader(repository.store.get(key).data))
    labels = {label for labels in table.column("partition").to_pylist() for label in labels}
    assert labels == set(state.labels)


class _RacingIndexFile(DelegatingStore):
    """Does something else right after an index file for others is written."""

    def __init__(self, inner, race) -> None:
        super().__init__(inner)
        self._race = race

    def _create(self, key: str, data: memoryview) -> str:
        etag = self.inner.create(key, data)
        if "/indices/" in key and self._race is not None:
            race, self._race = self._race, None
            race()
        return etag


def lose_the_index_file(flights: Dataset) -> None:
    """Add a row that has no place in the file, and take it out again."""
    flights.append([{"n": -1, "plane": None, "delay": 1.0}])
    flights.delete(flights.where("n = -1"))


@pytest.mark.parametrize("verb", ["build", "compact", "compact metadata"])
def test_an_index_file_is_not_named_for_a_later_field_of_its_name(
    repository: Repository, flights: Dataset, verb: str
):
    def replace_the_field() -> None:
        rest = pa.schema([SCHEMA.field("n"), SCHEMA.field("delay")])
        for descriptor in (
            lakebed.DatasetDescriptor(schema=rest),
            lakebed.DatasetDescriptor(schema=SCHEMA, index="plane"),
        ):
            flights.evolve(lambda _, descriptor=descriptor: descriptor)

    if verb != "build":
        flights.indices.build("plane")
        lose_the_index_file(flights)
    racing = Repository(_RacingIndexFile(repository.store, replace_the_field)).open("flights")

    racing.indices.build("plane") if verb == "build" else racing.compact(
        metadata="metadata" in verb
    )

    assert flights.where("plane is null").count() == flights.count()
    for key in state_of(repository).indices.values():
        table = pq.read_table(pa.BufferReader(repository.store.get(key).data))
        assert table.num_rows == 0


def test_an_index_file_is_not_named_once_the_index_is_dropped(
    repository: Repository, flights: Dataset
):
    racing = _RacingIndexFile(repository.store, lambda: flights.indices.drop("plane"))

    with pytest.raises(CommitConflictError, match="was dropped while it was built"):
        Repository(racing).open("flights").indices.build("plane")

    assert state_of(repository).indices == {}


@pytest.mark.parametrize(
    ("column", "is_named"), [("plane", True), ("n", True), ("delay", False), ("at", False)]
)
def test_an_index_file_for_others_is_named_where_it_is_right(
    repository: Repository, column: str, *, is_named: bool
):
    schema = pa.schema([*SCHEMA, ("at", pa.timestamp("us"))])
    dataset = repository.create("flights", lakebed.DatasetDescriptor(schema=schema, index=column))
    nan = float("nan")
    dataset.append([{"n": 3, "plane": "N1", "delay": nan}, {"n": 1, "plane": "N1", "delay": 1.0}])
    dataset.append([{"n": 1, "plane": "N0", "delay": 2.0}])

    dataset.compact(metadata=True)

    state = state_of(repository)
    assert list(state.indices) == ([column] if is_named else [])
    if is_named:
        table = pq.read_table(pa.BufferReader(repository.store.get(state.indices[column]).data))
        first, second = state.labels
        wanted = {"plane": {"N0": [second], "N1": [first]}, "n": {1: [first, second], 3: [first]}}
        rows = zip(table[column].to_pylist(), table["partition"].to_pylist(), strict=True)
        assert {value: sorted(labels) for value, labels in rows} == {
            value: sorted(labels) for value, labels in wanted[column].items()
        }
        dataset.append([{"n": 5, "plane": None, "delay": 1.0}])
        assert list(state_of(repository).indices) == ([] if column == "plane" else [column])


def test_a_build_leaves_the_other_index_files_named(repository: Repository, flights: Dataset):
    flights.indices.build("plane")
    before = state_of(repository).indices
    assert list(before) == ["plane"]

    flights.indices.build("n")

    assert sorted(state_of(repository).indices) == ["n", "plane"]
    assert state_of(repository).indices["plane"] == before["plane"]


def test_an_index_file_stays_named_until_it_or_the_schema_changes(
    repository: Repository, flights: Dataset
):
    flights.indices.build("plane")
    flights.indices.build("n")

    flights.evolve(_with(flights, properties={"owner": "ops"}), base=flights.version)
    after_property = dict(state_of(repository).indices)
    flights.indices.drop("n")
    after_drop = dict(state_of(repository).indices)
    flights.evolve(
        _with(flights, schema=SCHEMA.append(pa.field("more", pa.int64()))), base=flights.version
    )

    assert sorted(after_property) == ["n", "plane"]
    assert list(after_drop) == ["plane"]
    assert state_of(repository).indices == {}


def _with(dataset: Dataset, **changed) -> lakebed.DatasetDescriptor:
    now = dataset.descriptor
    plain = {"schema": now.schema, "index": now.index, "properties": now.properties}
    return lakebed.DatasetDescriptor(**{**plain, **changed})


def test_a_compaction_writes_the_index_files_that_others_read(
    repository: Repository, flights: Dataset
):
    flights.indices.build("plane")
    lose_the_index_file(flights)
    assert state_of(repository).indices == {}

    report = flights.compact()

    state = state_of(repository)
    assert list(state.indices) == ["plane"]
    assert [commit.operation for commit in report.commits] == ["compact", "compact"]
    assert report.commits[-1].version == flights.version
    table = pq.read_table(pa.BufferReader(repository.store.get(state.indices["plane"]).data))
    assert {label for one in table["partition"].to_pylist() for label in one} == {*state.labels}
    assert flights.compact().commits == ()


def test_a_compaction_that_finds_no_small_files_writes_the_index_files_too(
    repository: Repository, flights: Dataset
):
    flights.evolve(_with(flights, index=["delay", "plane"]), base=flights.version)
    flights.compact()
    flights.append([{"n": 1, "plane": "N99", "delay": float("nan")}])
    lose_the_index_file(flights)
    version = flights.version

    would = flights.compact(target_bytes=1, dry_run=True)
    unchanged = flights.version
    report = flights.compact(target_bytes=1)

    assert (would.commits, unchanged) == ((), version)
    assert (len(report.partitions), len(report.commits)) == (0, 1)
    # Not that of a column with NaN, which it has no place for.
    assert list(state_of(repository).indices) == ["plane"]


@pytest.mark.parametrize("column", ["plane", "dt"])
def test_a_partition_field_needs_no_index_and_a_build_says_so(repository: Repository, column: str):
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC"))),
        partition_by="plane, date(at) as dt",
        index=["n"],
    )
    dataset = repository.create("flights", descriptor)
    when = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    for day in range(3):
        moment = when + dt.timedelta(days=day)
        dataset.append([{"n": day, "plane": f"N{day}", "delay": 1.0, "at": moment}])
    before = state_of(repository)

    built = dataset.indices.build(column)

    assert state_of(repository) == before
    assert (built.column, built.is_complete, built.covered_count) == (column, True, 3)
    assert (built.segment_count, built.size_bytes) == (0, 0)
    assert "partition field" in built.warning
    assert len(dataset.where("plane = 'N1'").plan().files) == 1
    assert len(dataset.where("dt = '2013-01-02'").plan().files) == 1
    with pytest.raises(InvalidInputError, match="has no index of") as caught:
        dataset.indices.drop(column)
    assert "partition field" in caught.value.hint


@pytest.mark.spark
def test_tasks_of_spark_index_files_and_write_postings(tmp_path: Path, spark):
    repository = lakebed.open_repository(tmp_path)
    frame = spark.range(20_000).selectExpr("id AS n", "concat('N', id % 500) AS plane")
    dataset = repository.create(
        "flights",
        lakebed.DatasetDescriptor(schema=frame, partition_by="hash(n, 8)", index="n"),
    )
    dataset.append(frame.repartition(3))

    built = dataset.indices.build("plane", spark)

    assert built.is_complete
    assert [one.covered_count for one in dataset.indices.list()] == [len(dataset.files())] * 2
    assert dataset.where("n = 77").spark(spark).count() == 1
    assert dataset.where("plane = 'N7'").count() == 40
    assert len(dataset.where("n = -5").plan().files) == 0


@pytest.mark.spark
def test_an_unpartitioned_append_of_spark_is_indexed(tmp_path: Path, spark):
    repository = lakebed.open_repository(tmp_path)
    frame = spark.range(1000)
    dataset = repository.create("n", lakebed.DatasetDescriptor(schema=frame, index="id"))

    dataset.append(frame)

    (index,) = dataset.indices.list()
    assert index.is_complete
    assert index.value_count == 1000
    assert np.all([len(dataset.where(f"id = {n}").plan().files) == 1 for n in (0, 999)])


def test_a_build_whose_index_is_dropped_meanwhile_says_so(flights: Dataset) -> None:
    other = flights.indices.build("n")

    def drop(progress: Progress) -> None:
        if progress.file_count == FILES:
            flights.indices.drop("plane")

    with pytest.raises(CommitConflictError, match="'plane' in 'flights' was dropped"):
        flights.indices.build("plane", on_progress=drop)

    assert flights.descriptor.index == ("n",)
    assert [index.column for index in flights.indices.list()] == [other.column]
    assert flights.check(deep=True).problems == ()
