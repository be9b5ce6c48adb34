"""Few rows are written by the driver: as the tasks would, once, and with fewer files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from frames import spark_rows
from pyspark.errors import PySparkException
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


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_only_the_first_tasks_may_give_rows(spark: SparkSession, repository: Repository) -> None:
    frame = of_kind("unknown", events(spark, 66, 66))
    dataset = new_dataset(repository, frame, "hash(key, 1)")

    commit = dataset.append(frame)

    assert commit.row_count == 66
    assert len(commit.files_added) == 1 + 66 - 64


@pytest.mark.thorough
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


@pytest.mark.thorough
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


@pytest.mark.thorough
class TestQueries:
    """Of a query over files nobody can tell how many rows it has: the driver asks for a few."""

    pytestmark = pytest.mark.classic("nobody can look at the plan on Connect")

    @pytest.fixture
    def stored(self, spark: SparkSession, tmp_path: Path) -> DataFrame:
        """Return 300 rows in three files."""
        path = str(tmp_path / "source")
        with_text = events(spark, 300, 3).withColumn("text", F.col("id").cast("string"))
        with_text.write.parquet(path)
        return spark.read.parquet(path)

    @pytest.fixture
    def _twenty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lakebed.spark.few.DRIVER_ROWS", 20)

    @pytest.mark.parametrize(("strategy", "count"), [("", 0), ("", 100), ("date(at) as dt", 100)])
    def test_few_rows_of_files_make_one_file_a_partition(
        self, stored: DataFrame, repository: Repository, strategy: str, count: int
    ) -> None:
        frame = stored.where(f"id % 3 = 1 AND id < {3 * count}")
        dataset = new_dataset(repository, frame, strategy)

        commit = dataset.append(frame)

        assert rows_if_few(frame) is not None
        assert commit.row_count == count
        assert len(commit.files_added) == (len(commit.partitions) if strategy else min(count, 1))
        assert spark_rows(dataset.spark(frame.sparkSession)) == spark_rows(frame)
        assert dataset.check(deep=True).is_ok

    @pytest.mark.usefixtures("_twenty")
    @pytest.mark.parametrize(("strategy", "count"), [("key", 20), ("", 21), ("key", 21)])
    def test_one_row_more_than_the_driver_takes_is_for_tasks(
        self, stored: DataFrame, repository: Repository, strategy: str, count: int
    ) -> None:
        frame = stored.where(f"id >= 90 AND id < {90 + count}")
        dataset = new_dataset(repository, frame, strategy)

        commit = dataset.append(frame)

        assert (rows_if_few(frame) is not None) == (count == 20)
        assert commit.row_count == count
        assert spark_rows(dataset.spark(frame.sparkSession)) == spark_rows(frame)

    @pytest.mark.usefixtures("_twenty")
    @pytest.mark.parametrize(("strategy", "part"), [("key", "0.02"), ("", "0.5"), ("key", "0.5")])
    def test_a_query_that_gives_other_rows_each_time_is_written_as_one_of_them(
        self, stored: DataFrame, repository: Repository, strategy: str, part: str
    ) -> None:
        chance = "CAST(reflect('java.lang.Math', 'random') AS DOUBLE)"  # has no seed
        frame = stored.where(f"{chance} < {part}").select(
            "*",
            F.monotonically_increasing_id().alias("number"),
            F.expr("reflect('java.util.UUID', 'randomUUID')").alias("mark"),
        )
        dataset = new_dataset(repository, frame, strategy)

        commits = [dataset.append(frame) for _ in range(3)]

        rows = dataset.arrow().to_pylist()
        assert len(rows) == sum(commit.row_count for commit in commits) > 0
        assert len({row["mark"] for row in rows}) == len(rows)
        for commit in commits:
            of_commit = dataset.at(batch_id=commit.batch_id, alone=True).arrow().to_pylist()
            assert len(of_commit) == commit.row_count
            for name in ("id", "number"):
                assert len({row[name] for row in of_commit}) == len(of_commit)

    @pytest.mark.parametrize("strategy", ["", "key"])
    def test_a_query_that_fails_is_an_error_and_leaves_nothing(
        self, stored: DataFrame, repository: Repository, strategy: str
    ) -> None:
        failing = stored.where("id >= 100").withColumn(
            "text", F.when(F.col("id") == 250, F.raise_error(F.lit("boom"))).otherwise("x")
        )
        dataset = new_dataset(repository, failing, strategy)
        dataset.append(stored.where("id < 5"))
        before = {info.key for info in repository.store.list()}

        with pytest.raises(PySparkException, match="boom"):
            dataset.append(failing)

        assert {info.key for info in repository.store.list()} == before

    @pytest.mark.parametrize(("strategy", "place"), [("", "text"), ("key", "inner")])
    def test_few_rows_that_are_large_stay_in_the_tasks(
        self, stored: DataFrame, repository: Repository, strategy: str, place: str
    ) -> None:
        text = F.repeat("text", F.when(F.col("id") == 7, 9_000).otherwise(1)).alias("text")
        column = text if place == "text" else F.struct(text).alias("inner")
        frame = stored.where("id < 9").select("id", "key", column)
        dataset = new_dataset(repository, frame, strategy)

        assert rows_if_few(frame) is None
        assert rows_if_few(frame.where("id != 7")) is not None
        assert dataset.append(frame).row_count == 9
        assert spark_rows(dataset.spark(frame.sparkSession)) == spark_rows(frame)

    def test_nulls_and_nested_fields_come_as_they_are(
        self, stored: DataFrame, repository: Repository
    ) -> None:
        odd, halved = F.when(F.col("id") % 2 == 1, F.col("text")), F.col("id") / 2
        frame = stored.where("id < 6").select(
            "id",
            odd.alias("text"),
            F.when(F.col("id") > 2, F.struct(odd.alias("a"), halved.alias("b"))).alias("r"),
            F.lit("1.25").cast("decimal(20,2)").alias("price"),
        )
        dataset = new_dataset(repository, frame, "hash(id, 2)")

        assert rows_if_few(frame) is not None
        dataset.append(frame)

        assert spark_rows(dataset.spark(frame.sparkSession)) == spark_rows(frame)

    def test_records_of_fields_that_may_not_be_null_are_left_to_tasks(
        self, stored: DataFrame
    ) -> None:
        """Spark cannot hand them out as Arrow where a record is null, however few they are."""
        record = F.when(F.col("id") > 2, F.struct(F.lit(1.5).alias("b"))).alias("r")

        assert rows_if_few(stored.where("id < 6").select("id", record)) is None
        assert rows_if_few(stored.select("id", record).limit(6)) is None

    def test_a_query_is_begun_only_where_that_costs_little(
        self, stored: DataFrame, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        filtered = stored.where("id < 9")
        grouped = filtered.groupBy("key").count()
        of_users = filtered.mapInArrow(lambda batches: batches, filtered.schema)
        of_users_too = filtered.withColumn("n", F.udf(lambda n: n, "long")("id"))
        asking = stored.where(F.col("id") < 9).where("key = (SELECT max(id) % 3 FROM range(9))")

        for frame in (stored, filtered, grouped, stored.unionByName(filtered), stored.sort("id")):
            assert rows_if_few(frame) is not None
        for frame in (of_users, of_users_too, asking):
            assert rows_if_few(frame) is None
        monkeypatch.setattr("lakebed.spark.few._UNFILTERED_BYTES", 100)
        assert (rows_if_few(stored), rows_if_few(filtered) is None) == (None, False)
        monkeypatch.setattr("lakebed.spark.few._WIDE_BYTES", 100)
        assert (rows_if_few(grouped), rows_if_few(filtered) is None) == (None, False)
        monkeypatch.setattr("lakebed.spark.few._NARROW_BYTES", 100)
        assert rows_if_few(filtered) is None

    def test_rows_of_many_partitions_are_left_to_tasks(
        self, spark: SparkSession, repository: Repository
    ) -> None:
        frame = spark.range(0, 2_400, 1, 2).select("id", (F.col("id") % 300).alias("key"))
        dataset = new_dataset(repository, frame, "key")

        commit = dataset.append(frame)

        assert (commit.row_count, len(commit.files_added)) == (2_400, 300)
        assert spark_rows(dataset.spark(spark)) == spark_rows(frame)
