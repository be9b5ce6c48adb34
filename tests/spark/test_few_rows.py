"""Few rows are written by the driver: as the tasks would, once, and with fewer files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from frames import spark_rows
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed.errors import InvalidInputError, SchemaMismatchError, StorageError
from lakebed.spark.few import FEW_ROWS, rows_if_few
from lakebed.testing import FailingStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from lakebed import Dataset, Repository

pytestmark = pytest.mark.spark

KINDS = ["proven", "local", "unknown"]
STRATEGIES = ["", "key", "date(at) as dt"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path / "lake")


def events(spark: SparkSession, count: int, tasks: int) -> DataFrame:
    """Return rows of 3 keys, scattered over tasks, an hour apart."""
    return spark.range(0, count, 1, tasks).select(
        "id",
        F.timestamp_micros(F.col("id") * 3_600_000_000).alias("at"),
        (F.col("id") % 3).cast("int").alias("key"),
    )


def of_kind(kind: str, frame: DataFrame) -> DataFrame:
    """Return the same rows as a frame whose plan says how many they are, holds them, or neither."""

    def same(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    match kind:
        case "local":
            return frame.sparkSession.createDataFrame(frame.toArrow(), frame.schema)
        case "unknown":
            return frame.mapInArrow(same, frame.schema)
    return frame


def new_dataset(
    repository: Repository, frame: DataFrame, strategy: str, name: str = "events", **more: object
) -> Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=frame, partition_by=strategy or (), **more)
    return repository.create(name, descriptor)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", KINDS)
def test_few_rows_of_several_tasks_make_one_file_a_partition(
    spark: SparkSession, repository: Repository, kind: str, strategy: str
) -> None:
    frame = events(spark, 100, 4)
    # Spark's own writer takes what has neither partitions nor an index, where no plan tells more.
    index = [] if strategy or kind == "local" else ["key"]
    dataset = new_dataset(repository, frame, strategy, index=index)

    commit = dataset.append(of_kind(kind, frame))

    assert commit.row_count == 100
    assert len(commit.files_added) == max(1, len(commit.partitions))
    assert spark_rows(dataset.spark(spark)) == spark_rows(frame)
    assert dataset.check(deep=True).is_ok


def test_an_overwrite_of_one_day_by_many_tasks_makes_one_file(
    spark: SparkSession, repository: Repository
) -> None:
    frame = of_kind("unknown", events(spark, 4_800, 4))
    dataset = new_dataset(repository, frame, "date(at) as dt")
    dataset.append(frame)
    day = frame.where("at >= '1970-01-05' AND at < '1970-01-06'").withColumn("key", F.lit(7))

    commit = dataset.overwrite(day.repartition(3))

    assert (commit.row_count, len(commit.files_added)) == (24, 1)
    assert dataset.where("key = 7").count() == 24
    assert dataset.count() == 4_800


@pytest.mark.parametrize("count", [FEW_ROWS, FEW_ROWS + 1])
def test_a_task_of_more_than_few_rows_writes_them_itself(
    spark: SparkSession, repository: Repository, count: int
) -> None:
    frame = of_kind("unknown", events(spark, 2 * count, 2))
    dataset = new_dataset(repository, frame, "hash(key, 1)")

    commit = dataset.append(frame)

    # The driver makes one file of what it is given; tasks make one each.
    assert len(commit.files_added) == (1 if count == FEW_ROWS else 2)
    assert spark_rows(dataset.spark(spark)) == spark_rows(frame)


def test_large_rows_stay_in_the_tasks(spark: SparkSession, repository: Repository) -> None:
    frame = events(spark, 40, 2).withColumn("text", F.repeat(F.lit("x"), F.lit(20_000)))
    dataset = new_dataset(repository, frame, "hash(key, 1)")

    commit = dataset.append(of_kind("unknown", frame))

    assert (commit.row_count, len(commit.files_added)) == (40, 2)


def test_only_the_first_tasks_may_give_rows(spark: SparkSession, repository: Repository) -> None:
    frame = of_kind("unknown", events(spark, 66, 66))
    dataset = new_dataset(repository, frame, "hash(key, 1)")

    commit = dataset.append(frame)

    assert commit.row_count == 66
    assert len(commit.files_added) == 1 + 66 - 64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES[:2])
def test_rows_that_do_not_fit_are_refused_and_nothing_stays(
    spark: SparkSession, repository: Repository, kind: str, strategy: str
) -> None:
    frame = events(spark, 60, 3)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("at", pa.timestamp("us", tz="UTC")),
            ("key", pa.int32()),
        ]
    )
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=strategy or ())
    dataset = repository.create("events", descriptor)
    holed = frame.withColumn("id", F.when(F.col("id") != 50, F.col("id")))
    dataset.append(frame.where("key = 0"))
    before = {info.key for info in repository.store.list()}

    with pytest.raises(SchemaMismatchError, match="'id' is not nullable"):
        dataset.append(of_kind(kind, holed))
    with pytest.raises(InvalidInputError, match="outside the view"):
        dataset.where("key = 1").append(of_kind(kind, frame))

    assert {info.key for info in repository.store.list()} == before


def test_what_tasks_have_written_goes_where_the_driver_cannot_write_the_rest(
    spark: SparkSession, repository: Repository
) -> None:
    many = events(spark, 2_500, 1).withColumn("key", F.lit(1))
    few = events(spark, 10, 1).withColumn("key", F.lit(2))
    frame = of_kind("unknown", many.unionByName(few))
    new_dataset(repository, frame, "key")
    before = {info.key for info in repository.store.list()}
    failing = FailingStore(repository.store, fail_on="put", matching="key=2/")

    with pytest.raises(StorageError):
        lakebed.Repository(failing).open("events").append(frame)

    assert {info.key for info in repository.store.list()} == before


@pytest.mark.classic("its runs are counted by an accumulator")
def test_a_query_that_gives_other_rows_each_time_runs_once(
    spark: SparkSession, repository: Repository
) -> None:
    runs = spark.sparkContext.accumulator(0)

    def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            runs.add(batch.num_rows)
            yield batch

    frame = events(spark, 90, 3).mapInArrow(counted, "id long, at timestamp, key int")
    for name, data in {"unknown": frame, "proven": frame.limit(80)}.items():
        dataset = new_dataset(repository, data, "key", name)
        before = runs.value

        commit = dataset.append(data)

        assert commit.row_count == (90 if name == "unknown" else 80)
        assert runs.value - before == 90


def test_a_frame_without_rows_is_no_error(spark: SparkSession, repository: Repository) -> None:
    for number, kind in enumerate(KINDS):
        frame = events(spark, 10, 2)
        dataset = new_dataset(repository, frame, "key", f"d{number}")

        commit = dataset.append(of_kind(kind, frame.where("id < 0")))

        assert (commit.row_count, commit.files_added) == (0, ())


@pytest.mark.classic("nobody can prove it on Connect")
def test_few_rows_with_bytes_in_them_are_not_brought_to_the_driver_unseen(
    spark: SparkSession, repository: Repository
) -> None:
    plain = spark.range(3).select("id")
    images = plain.select("id", F.array(F.lit("x").cast("binary")).alias("images"))

    assert rows_if_few(plain) is not None
    assert rows_if_few(images) is None  # each may be of megabytes

    dataset = new_dataset(repository, images, "")
    dataset.append(images)
    assert dataset.count() == 3
