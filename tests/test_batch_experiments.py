"""The experiments with plain Spark tables, repeated against Lakebed.

Their numbers are those of the fact sheet on batch ids; E1, E4 and E5 are about a metastore. Plain
tables showed mixed states, missing partitions and lost data; here every sample must be whole.
"""

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import Dataset, DatasetDescriptor, by
from lakebed.errors import LakebedError

pytestmark = pytest.mark.thorough

COUNT = 150
SCHEMA = pa.schema([("dt", pa.string()), ("n", pa.int64())])


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """150 partitions of three rows, all of generation 0."""
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("dt")])
    dataset = lakebed.open_repository(tmp_path).create("flights", descriptor)
    dataset.rerun(generation(0), "daily", replace_all=True)
    return dataset


def generation(number: int) -> pa.Table:
    """Rows of all partitions, each of which tells its generation."""
    days = [f"day-{day:03d}" for day in range(COUNT) for _ in range(3)]
    return pa.table({"dt": days, "n": [number] * len(days)}, SCHEMA)


def data_files(dataset: Dataset) -> dict[Path, tuple[int, int]]:
    root = Path(dataset.uri.removeprefix("file://")) / "data"
    found = [path for path in root.rglob("*") if path.is_file() and "batch_id=" in str(path)]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in found}


def check_whole(table: pa.Table) -> int:
    """Return the one generation of which all partitions are."""
    assert table.num_rows == 3 * COUNT
    assert len(set(table["dt"].to_pylist())) == COUNT
    (number,) = set(table["n"].to_pylist())
    return int(number)


def sample_while(dataset: Dataset, write: Callable[[], object]) -> list[int]:
    """Read over and over while something is written; every read must be of one generation."""
    done = threading.Event()
    seen: list[int] = []
    broken: list[BaseException] = []

    def read() -> None:
        mine = lakebed.open_repository(Path(dataset.uri.removeprefix("file://")).parent)
        try:
            while not done.is_set():
                seen.append(check_whole(mine.open("flights").arrow()))
        except BaseException as exc:  # noqa: BLE001 - a thread cannot fail the test by itself
            broken.append(exc)

    def look() -> None:
        """Watch the file system: what the head names is there, and of one batch."""
        root = Path(dataset.uri.removeprefix("file://")).parent
        head = root / "flights.by-dataset-metadata.json"
        try:
            while not done.is_set():
                partitions = json.loads(head.read_bytes())["partitions"]
                files = [root / one["files"]["data"] for one in partitions.values()]
                assert len({path.parent.parent for path in files}) == COUNT
                assert len({path.parent.name for path in files}) == 1
                assert all(path.is_file() for path in files)
        except BaseException as exc:  # noqa: BLE001 - as above
            broken.append(exc)

    threads = [threading.Thread(target=one) for one in (read, look)]
    for thread in threads:
        thread.start()
    try:
        write()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert broken == []
    return seen


@pytest.mark.spark
def test_e02_frame_that_was_planned_before_keeps_reading_the_old_batch(
    dataset: Dataset, spark: Any
) -> None:
    before = dataset.spark(spark)
    before.count()

    dataset.rerun(generation(1), "daily", replace_all=True)

    assert {row.n for row in before.select("n").collect()} == {0}
    assert {row.n for row in dataset.spark(spark).select("n").collect()} == {1}


@pytest.mark.spark
def test_e03_old_batches_in_the_same_directories_are_never_counted(
    dataset: Dataset, spark: Any
) -> None:
    dataset.rerun(generation(1), "daily", replace_all=True)

    root = dataset.uri.removeprefix("file://") + "/data"
    assert pq.read_table(root, partitioning="hive").num_rows == 2 * 3 * COUNT  # what a listing sees
    assert dataset.count() == dataset.spark(spark).count() == 3 * COUNT
    assert check_whole(dataset.arrow()) == 1


def test_e06_overwrite_of_a_partition_leaves_its_old_batches_and_its_neighbours(
    dataset: Dataset,
) -> None:
    before = data_files(dataset)

    commit = dataset.overwrite([{"dt": "day-007", "n": 9}], dataset.where("dt = 'day-007'"))

    after = data_files(dataset)
    assert before.items() <= after.items()
    assert len(after) == len(before) + 1
    assert commit.partitions == ("dt=day-007",)
    assert check_whole(dataset.at(version=1).arrow()) == 0


def test_e07_dynamic_overwrite_touches_no_file_that_is_there(dataset: Dataset) -> None:
    before = data_files(dataset)

    commit = dataset.overwrite(generation(1))

    after = data_files(dataset)
    assert before.items() <= after.items()
    new = {path.parent.name for path in after.keys() - before.keys()}
    assert new == {f"batch_id={commit.batch_id}"}
    assert check_whole(dataset.arrow()) == 1


def test_e08_run_without_rows_empties(dataset: Dataset) -> None:
    dataset.append([{"dt": "day-007", "n": 7}], run="other")

    dataset.rerun([], "daily", replace_all=True)

    assert dataset.arrow().to_pylist() == [{"dt": "day-007", "n": 7}]
    dataset.overwrite([], dataset.where("dt = 'day-007'"))
    assert dataset.count() == 0
    assert check_whole(dataset.at(version=1).arrow()) == 0


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ["rerun", "overwrite", "staged"])
def test_e09_no_sample_is_mixed_or_lacks_a_partition(dataset: Dataset, verb: str) -> None:
    def write() -> None:
        for number in range(1, 6):
            if verb == "rerun":
                dataset.rerun(generation(number), "daily", replace_all=True)
            elif verb == "overwrite":
                dataset.overwrite(generation(number))
            else:
                dataset.staged.add(generation(number), "overwrite").commit()

    seen = sample_while(dataset, write)

    assert seen == sorted(seen)  # and never back
    assert len(seen) >= 5
    assert check_whole(dataset.arrow()) == 5


@pytest.mark.spark
@pytest.mark.thorough
def test_e09_no_sample_is_mixed_while_spark_writes(dataset: Dataset, spark: Any) -> None:
    def write() -> None:
        for number in range(1, 4):
            dataset.rerun(
                spark.createDataFrame(generation(number).to_pandas()), "daily", replace_all=True
            )

    seen = sample_while(dataset, write)

    assert seen == sorted(seen)
    assert check_whole(dataset.arrow()) == 3


def failing_rows() -> Iterator[pa.RecordBatch]:
    yield from generation(1).to_batches(max_chunksize=100)[:3]
    raise ZeroDivisionError


def test_e10_run_that_fails_half_way_leaves_everything(dataset: Dataset) -> None:
    before = data_files(dataset)

    def write() -> None:
        for act in (
            lambda rows: dataset.rerun(rows, "daily", replace_all=True),
            dataset.overwrite,
            lambda rows: dataset.overwrite(rows, dataset.where("dt >= ''")),
            lambda rows: dataset.staged.add(rows, "overwrite"),
        ):
            reader = pa.RecordBatchReader.from_batches(SCHEMA, failing_rows())
            with pytest.raises(ZeroDivisionError):
                act(reader)

    seen = sample_while(dataset, write)

    assert set(seen) <= {0}
    assert data_files(dataset) == before
    assert (dataset.version, dataset.staged.list()) == (1, ())


@pytest.mark.spark
def test_e10_spark_job_that_fails_half_way_leaves_everything(dataset: Dataset, spark: Any) -> None:
    bad = spark.range(3 * COUNT).selectExpr(
        "concat('day-', lpad(cast(id % 150 as string), 3, '0')) as dt",
        "case when id = 400 then cast(raise_error('broken') as bigint) else 1 end as n",
    )

    with pytest.raises(Exception, match="broken") as caught:
        dataset.rerun(bad, "daily", replace_all=True)

    assert not isinstance(caught.value, LakebedError)
    assert dataset.version == 1
    assert check_whole(dataset.arrow()) == 0
    assert check_whole(dataset.spark(spark).toArrow()) == 0


# What the batch document promises, P1 to P16; what is not here is of the metastore and of cleanup


def test_p01_layout_is_keys_then_batch(dataset: Dataset) -> None:
    (commit,) = dataset.history()[1:]
    for key in commit.files_added:
        table, data, day, batch, name = key.split("/")
        assert (table, data, batch) == ("flights", "data", f"batch_id={commit.batch_id}")
        assert day.startswith("dt=day-")
        assert name.startswith("part-")


def test_p02_batch_id_is_when_the_run_began_and_the_footprint_of_its_rows(dataset: Dataset) -> None:
    began = dt.datetime.now(dt.UTC)
    staged = dataset.staged.add(generation(1), "rerun", run="daily", replace_all=True)
    ended = dt.datetime.now(dt.UTC)

    commit = staged.commit()

    batch = dataset.batches()[-1]
    assert began - dt.timedelta(milliseconds=1) <= batch.started_at <= ended
    assert batch.committed_at is not None
    assert batch.committed_at >= ended
    assert set(dataset.arrow(["batch_id"])["batch_id"].to_pylist()) == {commit.batch_id}


def test_p03_rerun_writes_new_directories_and_touches_no_file(dataset: Dataset) -> None:
    before = data_files(dataset)

    commit = dataset.rerun(generation(1), "daily", replace_all=True)

    after = data_files(dataset)
    assert before.items() <= after.items()
    assert {path.parent.name for path in after.keys() - before} == {f"batch_id={commit.batch_id}"}


def test_p06_largest_batch_id_is_the_latest(dataset: Dataset) -> None:
    for number in range(1, 4):
        dataset.rerun(generation(number), "daily", replace_all=True)

    ids = [batch.batch_id for batch in dataset.batches()]
    assert ids == sorted(set(ids))
    assert [batch.is_live for batch in dataset.batches()] == [False, False, False, True]


def test_p07_half_written_batch_is_never_taken_for_the_latest(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = dataset.staged.add(generation(1), "rerun", run="daily", replace_all=True)
    folder = Path(dataset.uri.removeprefix("file://")) / "batches"
    manifest = json.loads((folder / f"{staged.batch_id}.json").read_bytes())
    assert len(manifest["files"]) == COUNT  # with rows, bytes and checksum of each
    assert all(
        {"label", "row_count", "size_bytes", "checksum"} <= one.keys() for one in manifest["files"]
    )

    # A writer that dies in the middle: its files are there, its manifest is not complete.
    del manifest["files"], manifest["completed_at"], manifest["staging"]
    (folder / f"{staged.batch_id}.json").write_text(json.dumps(manifest))

    assert dataset.staged.list() == ()
    with pytest.raises(LakebedError, match="no staged batch"):
        staged.commit()
    assert check_whole(dataset.arrow()) == 0


def test_p08_old_batch_can_be_read(dataset: Dataset) -> None:
    old = dataset.batches()[0].batch_id
    dataset.rerun(generation(1), "daily", replace_all=True)

    assert check_whole(dataset.at(batch_id=old).arrow()) == 0
    root = Path(dataset.uri.removeprefix("file://")) / "data"
    by_path = pq.read_table(root / "dt=day-007" / f"batch_id={old}")  # as the document has it
    assert by_path["n"].to_pylist() == [0, 0, 0]


def test_p12_update_of_many_partitions_is_one_commit(dataset: Dataset) -> None:
    commit = dataset.rerun(generation(1), "daily", replace_all=True)

    assert commit.version == 2
    assert len(commit.partitions) == COUNT


def test_p13_rerun_is_one_call(dataset: Dataset) -> None:
    for number in (1, 2):
        dataset.rerun(generation(number), "daily", replace_all=True)

    assert check_whole(dataset.arrow()) == 2


def test_p14_batch_id_is_no_field_unless_it_is_asked_for(dataset: Dataset) -> None:
    assert "batch_id" not in dataset.arrow().column_names
    assert "batch_id" not in dataset.schema.names
    assert "batch_id" in dataset.arrow(["n", "batch_id"]).column_names


@pytest.mark.parametrize("scheme", ["memory", "s3"])
def test_p15_other_storage_does_the_same(scheme: str, request: pytest.FixtureRequest) -> None:
    options = {} if scheme == "memory" else request.getfixturevalue("s3_options")
    place = "memory://p15" if scheme == "memory" else "s3://lake/p15"
    repository = lakebed.open_repository(place, storage_options=options)
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("dt")])
    dataset = repository.create("flights", descriptor)

    for number in range(3):
        rows = [{"dt": f"day-{day}", "n": number} for day in range(3)]
        dataset.rerun(rows, "daily", replace_all=True)
    dataset.staged.add([{"dt": "day-1", "n": 9}], "overwrite").commit()
    dataset.rollback(version=2)

    assert set(dataset.arrow()["n"].to_pylist()) == {1}
    assert dataset.count() == 3
