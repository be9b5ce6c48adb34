"""The data source `lakebed`: found by its name, it reads and writes what the library does."""

import datetime as dt
import decimal
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.spark.session import is_classic

pytestmark = pytest.mark.spark

START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema([("n", pa.int64()), ("id", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
ROWS = [{"n": n, "id": f"id{n // 10}", "at": START + dt.timedelta(hours=n)} for n in range(72)]
FRAME = "SELECT id AS n, 'new' AS id, timestamp'2020-01-02 00:00:00Z' AS at FROM range({count})"


def create(directory: Path, name: str = "events") -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="date(at) as dt")
    events = lakebed.open_repository(directory).create(name, descriptor)
    events.append(ROWS, run="first")
    return events


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Dataset:
    events = create(tmp_path_factory.mktemp("lake"))
    events.append([{"n": 100, "id": "late", "at": START}])
    return events


@pytest.fixture
def events(tmp_path: Path) -> lakebed.Dataset:
    return create(tmp_path)


def load(spark: Any, dataset: lakebed.Dataset, **options: object) -> Any:
    return spark.read.format("lakebed").options(**options).load(path_of(dataset))


def path_of(dataset: lakebed.Dataset) -> str:
    return dataset.uri.removeprefix("file://")


def save(frame: Any, dataset: lakebed.Dataset, mode: str, **options: object) -> None:
    frame.write.format("lakebed").mode(mode).options(**options).save(path_of(dataset))


def keys(dataset: lakebed.Dataset) -> set[str]:
    repository = lakebed.open_repository(dataset.uri.rpartition("/")[0])
    return {info.key for info in repository.store.list("") if not info.key.startswith(".")}


# Reading


def test_all_fields_are_read_in_their_order(spark: Any, read_only: Any) -> None:
    frame = load(spark, read_only)

    assert frame.columns == SCHEMA.names
    found = frame.orderBy("n").toArrow()
    assert found.cast(SCHEMA) == read_only.arrow().sort_by("n")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"where": "at < '2020-01-02'"}, 25),
        ({"where": "dt = '2020-01-02' AND n > 40"}, 7),
        ({"version": 1}, 72),
        ({"versionAsOf": 0}, 0),
        ({"timestampAsOf": "2100-01-01T00:00:00Z"}, 73),
    ],
)
def test_options_say_which_rows_of_which_version(
    spark: Any, read_only: Any, options: dict[str, object], count: int
) -> None:
    assert load(spark, read_only, **options).count() == count


def test_batch_id_names_a_version(spark: Any, read_only: Any) -> None:
    first = next(commit.batch_id for commit in read_only.history() if commit.run == "first")

    assert load(spark, read_only, batchId=first).count() == 72


def test_columns_may_be_partition_fields(spark: Any, read_only: Any) -> None:
    frame = load(spark, read_only, columns="dt, batch_id, n")

    assert frame.dtypes == [("dt", "date"), ("batch_id", "bigint"), ("n", "bigint")]
    last = read_only.history()[-1].batch_id
    assert frame.where("n = 100").collect() == [(START.date(), last, 100)]


def test_declared_schema_narrows_what_is_read(spark: Any, read_only: Any) -> None:
    frame = spark.read.format("lakebed").schema("n long, dt date").load(path_of(read_only))

    assert frame.where("dt = '2020-01-03'").agg({"n": "sum"}).collect()[0][0] == sum(range(48, 72))


def test_view_uri_is_read(spark: Any, read_only: Any) -> None:
    uri = read_only.at(version=1).where("n < 3").kite.uri

    assert spark.read.format("lakebed").load(uri).count() == 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "schema", "message"),
    [
        ({"versionof": 1}, None, "InvalidInputError: The data source lakebed has no option"),
        (
            {"changeColumns": "true"},
            None,
            "InvalidInputError: The option changeColumns is for streaming reads only.",
        ),
        ({"version": 9}, None, "VersionNotFoundError: Dataset 'events' has no version 9."),
        ({"columns": "m"}, None, "SchemaMismatchError: "),
        ({"where": "m = 1"}, None, "PredicateError: "),
        ({}, "n string", "SchemaMismatchError: Column 'n' was declared as string, but is bigint."),
        ({}, "m long", "SchemaMismatchError: "),
    ],
)
def test_error_arrives_with_its_name_and_remedy(
    spark: Any, read_only: Any, options: dict[str, object], schema: str | None, message: str
) -> None:
    from pyspark.errors import AnalysisException

    reader = spark.read.format("lakebed").options(**options)
    reader = reader if schema is None else reader.schema(schema)

    with pytest.raises(AnalysisException) as refused:
        reader.load(path_of(read_only)).count()

    lines = str(refused.value).splitlines()
    # On Connect the traceback of the worker comes first.
    first_lines = lines[:6] if is_classic(spark) else lines
    assert f"lakebed.errors.{message}" in "\n".join(first_lines)


def test_rows_of_whole_files_are_counted_without_opening_them(spark: Any, events: Any) -> None:
    frame = load(spark, events, columns="batch_id")
    shutil.rmtree(Path(path_of(events), "data"))

    assert frame.count() == 72


@pytest.mark.classic("partitions are counted by an RDD")
def test_one_file_is_read_by_several_tasks(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    numbers = lake.create("numbers", lakebed.DatasetDescriptor(schema=pa.schema([("n", "int64")])))
    table = pa.table({"n": pa.array(range(20_000))})
    numbers.with_options(write=lakebed.WriteOptions(row_group_bytes=10_000)).append(table)
    (file,) = numbers.files()

    frame = load(spark, numbers, splitBytes=file.size_bytes // 3)

    assert frame.rdd.getNumPartitions() > 1
    assert frame.selectExpr("count(n)", "count(DISTINCT n)").collect() == [(20_000, 20_000)]


@pytest.mark.thorough
def test_query_without_a_filter_has_all_rows_though_another_had_one(
    spark: Any, read_only: Any
) -> None:
    # In Spark 4.3, filters that a source takes are taken for all queries of the DataFrame.
    with lakebed.spark.session.settings_for(
        spark, {"spark.sql.python.filterPushdown.enabled": "true"}
    ):
        frame = load(spark, read_only)

        assert frame.where("n < 10").count() == 10
        assert frame.count() == 73
        assert frame.where("n < 10").union(frame.where("n >= 10")).count() == 73


def test_all_types_are_read_and_written(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("required", pa.int32(), nullable=False),
            ("flag", pa.bool_()),
            ("small", pa.float32()),
            ("text", pa.string()),
            ("bytes", pa.binary()),
            ("day", pa.date32()),
            ("local", pa.timestamp("us")),
            ("money", pa.decimal128(10, 2)),
            ("tags", pa.list_(pa.string())),
            ("counts", pa.map_(pa.string(), pa.int64())),
            ("place", pa.struct([("latitude", pa.float64()), ("names", pa.list_(pa.string()))])),
        ]
    )
    full = {
        "required": 1,
        "flag": True,
        "small": 1.5,
        "text": "é",
        "bytes": b"\x00\xff",
        "day": dt.date(2020, 1, 1),
        "local": dt.datetime(2020, 1, 1, 12),
        "money": decimal.Decimal("12.34"),
        "tags": ["a", None],
        "counts": {"a": 1},
        "place": {"latitude": 0.5, "names": ["b"]},
    }
    lake = lakebed.open_repository(tmp_path)
    one = lake.create("one", lakebed.DatasetDescriptor(schema=schema))
    other = lake.create("other", lakebed.DatasetDescriptor(schema=schema))
    one.append([full, {"required": 2}])

    save(load(spark, one), other, "append")

    by_required = [("required", "ascending")]
    assert other.arrow().sort_by(by_required) == one.arrow().sort_by(by_required)


# Writing


def test_append_adds_a_batch_of_a_named_run(spark: Any, events: Any) -> None:
    save(spark.sql(FRAME.format(count=3)), events, "append", run="second")

    commit = events.history()[-1]
    assert (commit.operation, commit.run, commit.row_count) == ("append", "second", 3)
    assert events.count() == 75
    assert events.check().problems == ()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "operation", "count"),
    [
        ({}, "overwrite", 3),
        ({"overwriteMode": "partitions"}, "overwrite", 48 + 3),
        ({"replaceWhere": "dt >= '2020-01-02'"}, "overwrite", 24 + 3),
        ({"overwriteMode": "run", "run": "first", "replaceAll": True}, "rerun", 3),
        ({"overwriteMode": "run", "run": "other"}, "rerun", 75),
        ({"overwriteMode": "run-partitions", "run": "other"}, "rerun", 48 + 3),
    ],
)
def test_overwrite_replaces_what_its_options_say(
    spark: Any, events: Any, options: dict[str, object], operation: str, count: int
) -> None:
    save(spark.sql(FRAME.format(count=3)), events, "overwrite", **options)

    assert events.count() == count
    assert events.history()[-1].operation == operation


def test_staged_batch_waits_for_its_commit(spark: Any, events: Any) -> None:
    save(spark.sql(FRAME.format(count=3)), events, "append", staged=True, run="later")

    assert events.count() == 72
    (staged,) = events.staged.list()
    assert staged.commit().run == "later"
    assert events.count() == 75


def test_missing_dataset_is_created_where_an_option_says_what_it_is(
    spark: Any, events: Any
) -> None:
    lake = lakebed.open_repository(events.uri.rpartition("/")[0])
    frame = load(spark, events)
    path = f"{path_of(events)}_new"

    frame.write.format("lakebed").mode("append").option("partitionBy", "date(at) as dt").save(path)

    created = lake.open("events_new")
    assert created.descriptor == events.descriptor
    assert created.arrow().sort_by("n") == events.arrow().sort_by("n")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("frame", "mode", "options", "message"),
    [
        (FRAME, "append", {"overwriteMode": "all"}, "InvalidInputError: Option overwriteMode"),
        (FRAME, "append", {"partitionBy": "id"}, "InvalidInputError: Option partitionBy is 'id'"),
        (FRAME, "overwrite", {"replaceWhere": "n = 1"}, "PredicateError: The view n = 1 is not"),
        (FRAME, "overwrite", {"replaceWhere": "dt = '2020-01-01'"}, "InvalidInputError: 3 of 3"),
        (FRAME, "overwrite", {"base": 0}, "CommitConflictError: "),
        (FRAME, "append", {"base": 7}, "VersionNotFoundError: "),
        ("SELECT 1L AS n, 2 AS id, now() AS at", "append", {}, "SchemaMismatchError: Column 'id'"),
        ("SELECT 1L AS n", "append", {}, "PartitionSpecError: The data lacks 'at'"),
    ],
)
def test_write_that_is_refused_leaves_nothing(
    spark: Any, events: Any, frame: str, mode: str, options: dict[str, object], message: str
) -> None:
    from pyspark.errors import AnalysisException

    before = keys(events)

    with pytest.raises(AnalysisException) as refused:
        save(spark.sql(frame.format(count=3)).coalesce(1), events, mode, **options)

    assert f"lakebed.errors.{message}" in str(refused.value)
    assert keys(events) == before


def test_task_that_fails_leaves_nothing_of_tasks_that_were_done(spark: Any, events: Any) -> None:
    from pyspark.errors import PySparkException

    before = keys(events)
    frame = spark.sql(
        "SELECT id AS n, if(id = 7, raise_error('no such row'), 'new') AS id, now() AS at "
        "FROM range(0, 8, 1, 8)"
    )

    with pytest.raises(PySparkException, match="no such row"):
        save(frame, events, "append")

    # The tasks of this session run two at a time: one may still be writing while the job ends,
    # and what it writes is left to a cleanup.
    assert len(keys(events) - before) <= 1
    assert before <= keys(events)
    assert events.count() == 72


@pytest.mark.thorough
def test_tasks_give_a_dimension_no_more_values_than_its_cap(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import AnalysisException

    schema = pa.schema([("k", pa.string())])
    strategy = [lakebed.by.dimension("k", "*", cap=2, name="v")]
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=strategy)
    capped = lakebed.open_repository(tmp_path).create("capped", descriptor)
    frame = spark.range(0, 4, 1, 2).selectExpr("concat('v', id) AS k")

    with pytest.raises(AnalysisException, match="'v' would have 4 values, but is capped at 2"):
        save(frame, capped, "append")
    save(frame.coalesce(1), capped, "append")

    assert {partition.path for partition in capped.inspect.partitions()} == {
        "v=v0",
        "v=v1",
        "v=OTHER",
    }
    assert capped.count() == 4


# SQL


def test_temporary_view_is_read_and_inserted_into(spark: Any, events: Any) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW source_view USING lakebed "
        f"OPTIONS (path '{path_of(events)}')"
    )
    try:
        assert spark.sql("SELECT count(*) FROM source_view").collect()[0][0] == 72
        spark.sql(f"INSERT INTO source_view {FRAME.format(count=2)}")
        assert events.count() == 74
    finally:
        spark.catalog.dropTempView("source_view")


def test_table_is_read_and_written_with_its_path_at_each_use(spark: Any, events: Any) -> None:
    path = path_of(events)
    spark.sql(f"CREATE TABLE source_table USING lakebed OPTIONS (path '{path}')")
    try:
        spark.sql(f"INSERT INTO source_table WITH (path = '{path}') {FRAME.format(count=2)}")

        counted = spark.sql(f"SELECT count(*) FROM source_table WITH (path = '{path}')")
        assert counted.collect()[0][0] == events.count() == 74
    finally:
        spark.sql("DROP TABLE source_table")
    assert events.count() == 74
