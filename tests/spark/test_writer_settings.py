"""Settings of Spark's writers: each is honoured, or refused by Spark or by Lakebed; none is dropped."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.base import IllegalArgumentException

import lakebed
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.spark

MODE = "spark.sql.sources.partitionOverwriteMode"
ROWS = "SELECT id AS n, concat('p', id % 3) AS p FROM range(9)"
ONE = "SELECT id AS n, 'p1' AS p FROM range(100, 102)"


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def parts(spark: Any, lake: lakebed.Repository) -> lakebed.Dataset:
    parts = lake.create(
        "parts", lakebed.DatasetDescriptor(schema=spark.sql(ROWS), partition_by="p")
    )
    parts.append(spark.sql(ROWS))
    return parts


@pytest.fixture
def dynamic(spark: Any) -> Iterator[None]:
    spark.conf.set(MODE, "Dynamic")
    yield
    spark.conf.unset(MODE)


def path_of(dataset: lakebed.Dataset) -> str:
    return dataset.uri.removeprefix("file://")


def new_path(lake: lakebed.Repository, name: str = "new") -> str:
    return f"{lake.uri.removeprefix('file://')}/{name}"


def overwrite(frame: Any, dataset: lakebed.Dataset, **options: object) -> int:
    frame.write.format("lakebed").mode("overwrite").options(**options).save(path_of(dataset))
    return dataset.count()


# The session's mode of overwriting


def test_overwrite_follows_the_mode_of_the_session_unless_an_option_chooses(
    spark: Any, lake: lakebed.Repository, parts: lakebed.Dataset, dynamic: None
) -> None:
    one, none = spark.sql(ONE), spark.sql(ONE).where("n < 0")

    assert overwrite(one, parts) == 6 + 2
    version = parts.version
    assert overwrite(none, parts) == 8  # as in Spark: no partition has rows
    assert overwrite(spark.createDataFrame([], "n long, p string"), parts) == 8
    assert parts.version == version
    assert overwrite(one, parts, replaceWhere="p IN ('p0', 'p1')") == 3 + 2
    spark.sql(
        f"CREATE TEMPORARY VIEW all_overwritten USING lakebed OPTIONS (path '{path_of(parts)}')"
    )
    with pytest.raises(PySparkException, match="does not support dynamic overwrite"):
        spark.sql("INSERT OVERWRITE all_overwritten SELECT 7L, 'p0'")
    assert parts.count() == 3 + 2
    spark.catalog.dropTempView("all_overwritten")
    assert overwrite(one, parts, partitionOverwriteMode="static") == 2
    assert overwrite(spark.sql(ROWS), parts, overwriteMode="all") == 9
    plain = lake.write("plain", spark.sql(ROWS))
    assert plain
    assert overwrite(one, lake.open("plain")) == 2  # no partitions: everything, as in Spark


def test_option_of_spark_chooses_the_mode_of_an_overwrite(
    spark: Any, parts: lakebed.Dataset
) -> None:
    assert overwrite(spark.sql(ONE), parts, partitionOverwriteMode="dynamic") == 6 + 2
    assert overwrite(spark.sql(ONE), parts) == 2


def test_insert_overwrite_follows_the_mode_of_the_session(
    spark: Any, lake: lakebed.Repository, parts: lakebed.Dataset, dynamic: None
) -> None:
    spark.sql(ONE).createOrReplaceTempView("one")
    lake.sql("INSERT OVERWRITE parts SELECT n, p FROM one", spark, write=True)
    assert parts.count() == 6 + 2
    spark.conf.set(MODE, "static")
    lake.sql("INSERT OVERWRITE parts SELECT n, p FROM one", spark, write=True)
    assert parts.count() == 2


# Settings that say how a table is laid out

BATCH: dict[str, Callable[[Any], Any]] = {
    "partitionBy": lambda writer: writer.partitionBy("p"),
    "clusterBy": lambda writer: writer.clusterBy("p"),
    "bucketBy": lambda writer: writer.bucketBy(2, "p"),
    "bucketBy and sortBy": lambda writer: writer.bucketBy(2, "p").sortBy("p"),
    "mode error": lambda writer: writer.mode("error"),
    "mode ignore": lambda writer: writer.mode("ignore"),
    "another option": lambda writer: writer.option("mergeSchema", "true"),
}


@pytest.mark.parametrize("setting", BATCH)
@pytest.mark.parametrize("is_new", [False, True])
def test_setting_of_a_batch_that_is_not_honoured_is_refused(
    spark: Any, lake: lakebed.Repository, parts: lakebed.Dataset, setting: str, is_new: bool
) -> None:
    writer = spark.sql(ONE).write.format("lakebed").mode("append")
    if is_new:
        writer = writer.option("partitionBy", "p")

    with pytest.raises((PySparkException, IllegalArgumentException)):
        BATCH[setting](writer).save(new_path(lake) if is_new else path_of(parts))

    assert not lake.exists("new")
    assert parts.count() == 9


def test_table_of_spark_does_not_create_a_dataset_without_the_partitions_that_it_names(
    spark: Any, lake: lakebed.Repository
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    frame, options = spark.sql(ONE), {"path": new_path(lake), "create": "true"}

    def v2() -> Any:
        return frame.writeTo("of_settings").using("lakebed").options(**options)

    def v1() -> Any:
        return frame.write.format("lakebed").options(**options).mode("append")

    ways: list[Callable[[], Any]] = [
        lambda: v2().partitionedBy(F.col("p")).create(),
        lambda: v2().clusterBy("p").create(),
        lambda: v1().partitionBy("p").saveAsTable("of_settings"),
        lambda: v1().bucketBy(2, "p").saveAsTable("of_settings"),
        lambda: v1().clusterBy("p").saveAsTable("of_settings"),
    ]
    for write in ways:
        with pytest.raises(PySparkException, match="its partitions are not named"):
            write()
        spark.sql("DROP TABLE IF EXISTS of_settings")
    assert not lake.exists("new")


# Streams

STREAM: dict[str, Callable[[Any], Any]] = {
    "partitionBy": lambda writer: writer.partitionBy("p"),
    "clusterBy": lambda writer: writer.clusterBy("p"),
    "nothing": lambda writer: writer,
}


@pytest.fixture
def incoming(spark: Any, tmp_path: Path) -> Any:
    spark.sql(ONE).coalesce(1).write.json(str(tmp_path / "in"))
    return spark.readStream.schema("n LONG, p STRING").json(str(tmp_path / "in"))


def start(writer: Any, path: str) -> None:
    writer.trigger(availableNow=True).start(path).awaitTermination()


@pytest.mark.parametrize("setting", STREAM)
def test_stream_creates_a_dataset_only_with_partitions_that_its_options_name(
    spark: Any, lake: lakebed.Repository, incoming: Any, tmp_path: Path, setting: str
) -> None:
    def writer(state: str, **options: str) -> Any:
        stream = incoming.writeStream.format("lakebed").options(**options)
        return STREAM[setting](stream.option("checkpointLocation", str(tmp_path / state)))

    with pytest.raises(PySparkException, match="its partitions are not named"):
        start(writer("a", create="true"), new_path(lake))
    assert not lake.exists("new")

    start(writer("b", partitionBy="p"), new_path(lake))
    assert str(lake.open("new").descriptor.partition_by) == "identity(p) as p"
    start(writer("c", partitionBy=""), new_path(lake, "plain"))
    assert not len(lake.open("plain").descriptor.partition_by)
    with pytest.raises(PySparkException, match="but the dataset is partitioned by identity"):
        start(writer("d", partitionBy=""), new_path(lake))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (lambda writer: writer.outputMode("update"), "does not support Update mode"),
        (lambda writer: writer.trigger(continuous="1 second"), "[Cc]ontinuous"),
        (lambda writer: writer.option("mergeSchema", "true"), "no option 'mergeschema'"),
        (lambda writer: writer.option("run", "x"), "option run is for batch writes"),
    ],
)
def test_setting_of_a_stream_that_is_not_honoured_is_refused(
    parts: lakebed.Dataset, incoming: Any, tmp_path: Path, setting: Any, message: str
) -> None:
    writer = incoming.writeStream.format("lakebed").trigger(availableNow=True)
    writer = setting(writer.option("checkpointLocation", str(tmp_path / "state")))

    with pytest.raises(PySparkException, match=message):
        writer.start(path_of(parts)).awaitTermination()

    assert parts.count() == 9


# A day of the session's zone

HOURS = "SELECT id AS n, timestamp_seconds({first} + id * 3600) AS t FROM range({count})"  # UTC instants
JULY_1 = 1719792000  # 2024-07-01T00:00:00Z


def hours(spark: Any, first: int, count: int) -> Any:
    return spark.sql(HOURS.format(first=JULY_1 + first * 3600, count=count))


@pytest.fixture
def new_york(spark: Any) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_local_day_replaces_no_rows_of_its_neighbours(
    spark: Any, lake: lakebed.Repository, new_york: None
) -> None:
    days = lake.create("days", hours(spark, 0, 96), partition_by="date(t) as dt")
    days.append(hours(spark, 0, 96))
    local, all_overwritten = hours(spark, 28, 24), hours(spark, 24, 24)
    gathered = days.with_options(write=lakebed.WriteOptions(cluster=True))

    refused = pytest.raises(InvalidInputError, match=r"America/New_York .* date\(t\) = 2024-07-01")
    with refused:
        days.overwrite(local)
    with refused:
        days.overwrite(local, dry_run=True)
    with refused:
        days.rerun(local, "local", partitions=True, dry_run=True)
    with refused:
        gathered.overwrite(local)
    with refused:
        days.rerun(local, "local", partitions=True)
    with refused:
        days.staged.add(local, "overwrite")
    for options in ({"overwriteMode": "partitions"}, {"partitionOverwriteMode": "dynamic"}):
        with pytest.raises(PySparkException, match="by the time zone America/New_York"):
            overwrite(local, days, **options)
    assert days.count() == 96
    assert days.version == 1

    assert days.overwrite(all_overwritten, dry_run=True).inserted_row_count == 24
    assert days.overwrite(all_overwritten).row_count == 24
    assert overwrite(all_overwritten.where("n % 7 != 3"), days, overwriteMode="partitions") == 93
    named = days.where("dt >= '2024-07-02' AND dt <= '2024-07-03'")
    assert named.overwrite(local).row_count == 24
    assert days.count() == 48 + 24
