"""Spark writes batches and reads plans, by its own reader and through Arrow."""

import datetime as dt
import decimal
import math
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frames import comparable, frame_of, spark_rows
from pyspark.errors import PythonException
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed import by
from lakebed.errors import (
    InvalidInputError,
    PartitionSpecError,
    PredicateError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.store import open_store
from lakebed.testing import FailingStore

pytestmark = pytest.mark.spark

NOON = dt.datetime(2013, 6, 1, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("ok", pa.bool_()),
        ("ratio", pa.float32()),
        ("price", pa.float64()),
        ("name", pa.string()),
        ("blob", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("exact", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.string())),
        ("place", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("by_day", pa.map_(pa.date32(), pa.map_(pa.int64(), pa.string()))),
    ]
)
NAMES = ["plain", "é/ü", "a=b", "100%", "x%2Fy", "two words", None, "日本 😀", "007", "True"]


def rows(count=40):
    return [
        {
            "id": i,
            "small": i % 7 if i % 5 else None,
            "ok": i % 2 == 0 if i % 11 else None,
            "ratio": [0.5, math.nan, None, -1.25][i % 4],
            "price": [math.nan, i * 1.5, None, -3.0, 7.0][i % 5],
            "name": NAMES[i % len(NAMES)],
            "blob": bytes([i]) if i % 3 else None,
            "day": dt.date(1969, 12, 28) + dt.timedelta(days=i % 6),
            "at": NOON + dt.timedelta(hours=7 * i, microseconds=i) if i % 9 else None,
            "wall": dt.datetime(2013, 3, 31, 1, 30) + dt.timedelta(minutes=30 * i),
            "exact": decimal.Decimal(i * 101) / 100 if i % 4 else None,
            "tags": ["a", None, str(i)][: i % 4] if i % 6 else None,
            "place": {"lat": i / 2, "lon": None} if i % 7 else None,
            "counts": [("k", i), ("n", None)] if i % 5 else None,
            "by_day": [(dt.date(1969, 12, 31), [(i, "x"), (-i - 1, None)])] if i % 3 else None,
        }
        for i in range(count)
    ]


def table(count=40):
    return pa.Table.from_pylist(rows(count), schema=SCHEMA)


@pytest.fixture
def repository(tmp_path):
    return lakebed.open_repository(tmp_path / "a lake, 100%")


@pytest.fixture
def everything(repository):
    """All types, partitioned by text with every kind of odd character."""
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("name"), by.date("at", name="dt")]
    )
    return repository.create("everything", descriptor)


@pytest.mark.parametrize("way", ["native", "arrow"])
@pytest.mark.parametrize("source", ["spark", "arrow"])
def test_every_type_comes_back_as_it_was_written(spark, everything, source, way):
    data = frame_of(spark, table()) if source == "spark" else table()

    commit = everything.append(data)

    assert commit.row_count == 40
    assert comparable(everything.arrow()) == comparable(table())
    assert spark_rows(everything.spark(spark, way=way)) == comparable(table())


def test_types_of_a_spark_read_are_those_of_the_schema(spark, everything):
    everything.append(table())

    native = everything.spark(spark, way="native")
    arrow = everything.spark(spark, way="arrow")

    assert native.schema == arrow.schema
    assert lakebed.DatasetDescriptor(schema=native).schema.fields == everything.schema.fields


PREDICATES = [
    "id = 7",
    "id != 7 AND small > 3",
    "id IN (1, 2, 99)",
    "small NOT IN (1, 2)",
    "small IS NULL OR ok",
    "NOT ok",
    "price > 6",
    "price >= 7 OR price < 0",
    "price != 7",
    "price = 'nan'",
    "price NOT IN (7)",
    "price <= 'nan'",
    "ratio > 0.4",
    "name = 'é/ü'",
    "name < 'b'",
    "name IS NULL",
    "name IN ('日本 😀', 'a=b')",
    "name != 'plain'",
    "day < '1970-01-01'",
    "day = DATE '1969-12-31' OR name = '007'",
    "at >= '2013-06-02' AND at < '2013-06-05'",
    "at = '2013-06-01T19:00:00.000001'",
    "wall < '2013-03-31T03:00:00'",
    "exact > 10.5",
    "dt = '2013-06-02'",
    "dt IS NULL",
    "dt > '2013-06-03' OR id < 3",
    "batch_id > 0 AND id > 30",
    "FALSE",
    "blob IS NOT NULL AND id BETWEEN 3 AND 9",
]


@pytest.mark.parametrize(
    "zone", [pytest.param("UTC", marks=pytest.mark.thorough), "America/New_York"]
)
def test_predicates_select_the_same_rows_locally_and_in_spark(spark, everything, zone):
    everything.append(table(20))
    everything.append(pa.Table.from_pylist(rows(40)[20:], schema=SCHEMA))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for predicate in PREDICATES:
            view = everything.where(predicate)
            expected = sorted(view.arrow(["id"]).column("id").to_pylist())

            native = sorted(row.id for row in view.spark(spark, ["id"], way="native").collect())
            arrow = sorted(row.id for row in view.spark(spark, ["id"], way="arrow").collect())

            assert native == expected, predicate
            assert arrow == expected, predicate
            assert view.count() == len(expected), predicate
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


def test_partition_fields_and_the_batch_can_be_asked_for(spark, everything):
    commit = everything.append(table(6))

    for way in ("native", "arrow"):
        frame = everything.spark(spark, ["batch_id", "dt", "name", "id"], way=way)
        found = {row.id: (row.batch_id, row.dt, row.name) for row in frame.collect()}

        assert frame.columns == ["batch_id", "dt", "name", "id"]
        assert found[1] == (commit.batch_id, dt.date(2013, 6, 1), "é/ü")
        assert found[0] == (commit.batch_id, None, "plain")


def test_only_partition_fields_can_be_read(spark, everything):
    everything.append(table(10))

    for way in ("native", "arrow"):
        names = [row.name for row in everything.spark(spark, ["name"], way=way).collect()]

        assert sorted(names, key=str) == sorted(NAMES, key=str)
        assert everything.spark(spark, way=way).count() == 10


def test_a_partition_of_the_empty_text_is_read_through_arrow(spark, repository):
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema([("k", pa.string()), ("v", pa.int64())]), partition_by="k"
    )
    dataset = repository.create("texts", descriptor)
    dataset.append([{"k": "", "v": 1}, {"k": "__HIVE_DEFAULT_PARTITION__", "v": 2}])

    found = {(row.k, row.v) for row in dataset.spark(spark).collect()}

    assert found == {("", 1), ("__HIVE_DEFAULT_PARTITION__", 2)}
    with pytest.raises(InvalidInputError, match="the empty text"):
        dataset.spark(spark, way="native")


def test_a_directory_that_looks_like_a_pattern_is_read_through_arrow(spark, tmp_path):
    repository = lakebed.open_repository(tmp_path / "lake [1] {x}*")
    dataset = repository.create("plain", lakebed.DatasetDescriptor(schema=events(spark)))
    dataset.append(events(spark, 30).repartition(3))

    found = dataset.spark(spark)

    # Spark's own reader gives every row three times here, with or without __globPaths__.
    assert sorted(row.id for row in found.collect()) == list(range(30))
    with pytest.raises(InvalidInputError, match="pattern"):
        dataset.spark(spark, way="native")


def test_an_empty_view_has_the_schema(spark, everything):
    everything.append(table(5))

    frame = everything.where("id > 1000").spark(spark)
    nothing = everything.where("dt = '1999-01-01'").spark(spark)

    assert frame.count() == nothing.count() == 0
    assert frame.schema == nothing.schema


def test_many_files_are_read_without_changing_the_callers_settings(spark, repository):
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema([("k", pa.int32()), ("v", pa.int64())]), partition_by="k"
    )
    dataset = repository.create("many", descriptor)
    dataset.append(pa.table({"k": pa.array(range(60), pa.int32()), "v": list(range(60))}))
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "17")

    found = dataset.spark(spark, way="native").agg(F.sum("v"), F.sum("k")).collect()

    assert tuple(found[0]) == (1770, 1770)
    assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == "17"
    spark.conf.unset("spark.sql.sources.parallelPartitionDiscovery.threshold")


@pytest.fixture
def plain(repository):
    """Unpartitioned: Spark's own writer serves."""
    schema = {
        "type": "record",
        "name": "event",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "x", "type": ["null", "double"]},
            {"name": "note", "type": ["null", "string"]},
        ],
    }
    return repository.create("plain", lakebed.DatasetDescriptor(schema=schema))


def events(spark, count=100):
    return spark.range(count).select(
        "id",
        F.timestamp_micros(F.col("id") * 1_000_000).alias("at"),
        (F.col("id") / 4).alias("x"),
        F.concat(F.lit("n"), F.col("id").cast("string")).alias("note"),
    )


def test_unpartitioned_frames_are_written_by_sparks_own_writer_with_facts(spark, plain, tmp_path):
    commit = plain.append(events(spark).repartition(3))

    assert commit.row_count == 100
    assert sum(file.row_count for file in plain.files()) == 100
    assert plain.where("at >= '1970-01-01T00:01:30'").count() == 10
    assert spark_rows(plain.spark(spark)) == spark_rows(events(spark))
    for file in plain.files():
        path = tmp_path / "a lake, 100%" / file.key
        assert path.stat().st_size == file.size_bytes
    assert not [path for path in tmp_path.rglob("*") if "staging" in path.parts or
                path.name.endswith((".crc", "_SUCCESS"))]  # fmt: skip


@pytest.mark.parametrize("compression", ["zstd", "snappy", "gzip", "lz4", "uncompressed"])
def test_sparks_own_writer_uses_the_codec_of_the_descriptor(spark, repository, compression):
    descriptor = lakebed.DatasetDescriptor(schema=events(spark), compression=compression)
    dataset = repository.create("coded", descriptor)

    dataset.append(events(spark, 50))

    key = dataset.files()[0].key
    footer = pq.read_metadata(repository.store.local_path(key))
    assert footer.row_group(0).column(0).compression.lower() == compression
    assert dataset.count() == dataset.spark(spark).count() == 50


def test_columns_are_widened_ordered_and_filled_with_null(spark, plain):
    frame = events(spark, 5).select(F.col("x").cast("float"), F.col("id").cast("int"))

    plain.append(frame)

    assert plain.arrow().to_pylist()[-1] == {"id": 4, "at": None, "x": 1.0, "note": None}


def test_a_null_in_a_required_field_is_refused_and_nothing_stays(spark, plain, tmp_path):
    frame = events(spark).withColumn("id", F.when(F.col("id") != 50, F.col("id")))

    with pytest.raises(SchemaMismatchError, match="'id' is not nullable"):
        plain.append(frame)

    assert plain.version == 0
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("batches/*"))


def test_a_null_in_a_required_field_is_refused_by_tasks_too(spark, repository, tmp_path):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("k", pa.string())])
    dataset = repository.create(
        "strict", lakebed.DatasetDescriptor(schema=schema, partition_by="k")
    )
    frame = spark.range(100).select(
        F.when(F.col("id") != 50, F.col("id")).alias("id"), F.lit("a").alias("k")
    )

    with pytest.raises(SchemaMismatchError, match="'id' is not nullable"):
        dataset.append(frame)

    assert dataset.version == 0
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_null_in_a_required_list_is_refused(spark, repository, tmp_path):
    schema = pa.schema([pa.field("tags", pa.list_(pa.string()), nullable=False), ("n", pa.int64())])
    dataset = repository.create("lists", lakebed.DatasetDescriptor(schema=schema))
    frame = spark.range(9).select(
        F.when(F.col("id") != 5, F.array(F.lit("a"))).alias("tags"), F.col("id").alias("n")
    )

    with pytest.raises(SchemaMismatchError, match="'tags' is not nullable"):
        dataset.append(frame)

    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("door", ["few", "native", "tasks", "upsert", "format"])
def test_void_is_null_of_any_field_at_any_depth(spark, repository, tmp_path, door):
    place = pa.struct([("x", pa.list_(pa.int64())), ("y", pa.int32())])
    fields = {"id": pa.int64(), "n": pa.int32(), "tags": pa.list_(pa.string()), "place": place}
    parts = {"partition_by": "hash(id, 2)"} if door == "tasks" else {}
    dataset = repository.create("t", lakebed.DatasetDescriptor(schema=pa.schema(fields), **parts))
    frame = spark.sql("SELECT 1L id, NULL n, array() tags, named_struct('x', NULL) place")

    if door == "format":
        frame.write.format("lakebed").mode("append").save(f"{tmp_path}/a lake, 100%/t")
    elif door == "upsert":
        dataset.upsert(frame, on="id")
    else:
        options = lakebed.WriteOptions(cluster=None if door == "few" else False)
        dataset.with_options(write=options).append(frame)

    expected = {"id": 1, "n": None, "tags": [], "place": {"x": None, "y": None}}
    assert dataset.arrow().to_pylist() == [expected]


@pytest.mark.parametrize("shape", ["{0}", "array({0})", "named_struct('x', {0})"])
def test_collation_is_refused_by_every_door(spark, repository, tmp_path, shape):
    collated, plain = (shape.format(text) for text in ("'A' COLLATE UTF8_LCASE", "'B'"))
    frame = spark.sql(f"SELECT 1L id, {collated} s")
    repository.write("t", spark.sql(f"SELECT 2L id, {plain} s"))
    dataset = repository["t"]
    path = f"{tmp_path}/a lake, 100%/t"
    doors = {
        "create": lambda: repository.create("u", frame),
        "write": lambda: repository.write("v", frame),
        "append": lambda: dataset.append(frame),
        "upsert": lambda: dataset.upsert(frame, on="id"),
        "dry run": lambda: dataset.merge(frame, on="id", dry_run=True),
        "format": lambda: frame.write.format("lakebed").mode("append").save(path),
    }

    for door in doors.values():
        with pytest.raises(Exception, match="the collation UTF8_LCASE"):
            door()

    assert dataset.count() == 1
    assert repository.list() == ["t"]


@pytest.mark.parametrize("partition_by", ["", "p"])
def test_null_value_of_a_map_of_records_with_required_parts(spark, repository, partition_by):
    maps = "map('a', named_struct('x', 1.5D), 'b', NULL) m"
    frame = spark.sql(f"SELECT id, id % 2 AS p, {maps} FROM range(4)")
    repository.write("t", frame, partition_by=partition_by)
    dataset = repository["t"]

    dataset.upsert(frame, on="id")
    dataset.append(frame)
    dataset.compact()

    found = [row.asDict(recursive=True) for row in dataset.spark(spark).collect()]
    assert [row["m"] for row in found] == [{"a": {"x": 1.5}, "b": None}] * 8


@pytest.mark.parametrize("shape", ["{0}", "array({0})", "map({0}, 1)", "named_struct('x', {0})"])
def test_text_that_is_not_utf8_is_refused_by_every_writer(spark, repository, tmp_path, shape):
    text = "CAST(IF(id = 7, X'C328', X'6162') AS STRING)"
    frame = spark.sql(f"SELECT id, id % 2 AS k, {shape.format(text)} AS s FROM range(9)")
    many = lakebed.WriteOptions(cluster=False)
    doors = {
        "few": {"schema": frame},
        "native": {"schema": frame},
        "tasks": {"schema": frame, "partition_by": "k"},
    }
    for door, form in doors.items():
        dataset = repository.create(door, lakebed.DatasetDescriptor(**form))
        if door != "few":
            dataset = dataset.with_options(write=many)

        with pytest.raises(SchemaMismatchError, match="text that is not UTF-8"):
            dataset.append(frame)

        assert dataset.version == 0
    repository.create("format", lakebed.DatasetDescriptor(schema=frame))
    with pytest.raises(Exception, match="text that is not UTF-8"):
        frame.write.format("lakebed").mode("append").save(f"{tmp_path}/a lake, 100%/format")
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda f: f.withColumn("nam", F.lit(1)), SchemaMismatchError, "Did you mean 'name'"),
        (lambda f: f.withColumn("id", F.col("id").cast("string")), SchemaMismatchError, "string"),
        (lambda f: f.drop("at"), PartitionSpecError, "the source of partition field 'dt'"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_before_any_job(
    spark, everything, tmp_path, change, error, message
):
    frame = change(frame_of(spark, table(5)))

    with pytest.raises(error, match=message):
        everything.append(frame)

    assert everything.version == 0
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("batches/*"))


def test_a_failing_job_leaves_nothing_visible(spark, plain, everything):
    @F.udf("long")
    def fail(value):
        if value == 3:
            raise ValueError("broken row")
        return value

    with pytest.raises(PythonException, match="broken row"):
        plain.append(events(spark).withColumn("id", fail("id")))
    with pytest.raises(PythonException, match="broken row"):
        everything.append(frame_of(spark, table()).withColumn("id", fail("id")))

    assert plain.version == everything.version == 0
    assert plain.count() == everything.count() == 0


def test_a_store_that_fails_while_it_takes_files_over_keeps_none(spark, tmp_path):
    inner = open_store(tmp_path / "lake")
    store = FailingStore(inner, fail_on="put", nth=2, landed=True, matching="/part-")
    repository = lakebed.Repository(store)
    dataset = repository.create("plain", lakebed.DatasetDescriptor(schema=events(spark)))

    with pytest.raises(StorageError):
        # The driver would write so few rows by itself.
        dataset.with_options(write=lakebed.WriteOptions(cluster=False)).append(
            events(spark).repartition(3)
        )

    assert store.has_failed
    assert dataset.version == 0
    assert not list(tmp_path.rglob("*.parquet"))


def test_an_empty_frame_is_a_batch_without_files(spark, plain):
    commit = plain.append(events(spark).where("id < 0"))

    assert (commit.version, commit.row_count, commit.files_added) == (1, 0, ())


def test_overwrite_replaces_the_partitions_that_the_frame_touches(spark, everything):
    everything.append(table())
    one_day = everything.where("dt = '2013-06-02'")
    kept = everything.count() - one_day.count()
    changed = one_day.spark(spark).withColumn("price", F.lit(0.0))
    expected = one_day.count()

    commit = everything.overwrite(changed)

    assert commit.row_count == expected > 0
    assert everything.count() == kept + expected
    assert set(one_day.arrow(["price"]).column("price").to_pylist()) == {0.0}
    assert everything.at(version=1).count() == 40


def test_overwrite_of_a_view_refuses_rows_outside_it(spark, everything):
    everything.append(table())
    day = everything.where("at >= '2013-06-02' AND at < '2013-06-03'")

    with pytest.raises(PredicateError, match="not aligned"):
        everything.overwrite([], everything.where("at >= '2013-06-02T01:00:00'"))
    with pytest.raises(InvalidInputError, match="outside the view"):
        everything.overwrite(frame_of(spark, table()), day)
    commit = everything.overwrite(frame_of(spark, table(0)), day)

    assert commit.version == 2
    assert day.count() == 0
    assert everything.count() < 40


def test_small_files_roll_in_tasks_at_the_target_size(spark, plain):
    frame = events(spark, 20_000).coalesce(1)

    commit = plain.with_options(write=lakebed.WriteOptions(target_bytes=50_000)).append(frame)

    assert len(commit.files_added) > 2
    assert plain.count() == 20_000


def test_a_store_in_this_process_is_served_in_this_process(spark):
    repository = lakebed.open_repository("memory://spark-tests")
    dataset = repository.create("t", lakebed.DatasetDescriptor(schema=events(spark)))

    dataset.append(events(spark, 10))

    assert spark_rows(dataset.where("id < 5").spark(spark)) == spark_rows(events(spark, 5))


def test_readers_see_one_version_while_others_commit(spark, plain):
    plain.append(events(spark, 10))
    frame = plain.spark(spark)

    plain.overwrite(events(spark, 3))

    assert frame.count() == 10
    assert plain.spark(spark).count() == 3


def test_the_default_path_uses_public_pyspark_api_alone():
    source = Path(lakebed.__file__).parent / "spark"
    private = re.compile(r"\._jvm|\._jsc|\._jdf|\._jsparkSession|\.sparkContext|\.rdd\b")

    found = sorted(path.name for path in source.glob("*.py") if private.search(path.read_text()))

    # Each where the session has them, and not without: what the optimizer knows of a plan, which
    # files it reads, which of them its filters leave, the values of its joins, the description of a
    # job, an accumulator that tells of progress, the hosts of executors, for whoever looks for what
    # they lack, days that the zone of the JVM skips, and the size of what tasks read, for the planner
    # of joins.
    assert found == [
        "accumulated.py",
        "few.py",
        "file_lists.py",
        "jvm_filters.py",
        "pruned_files.py",
        "session.py",
        "sized_tasks.py",
        "uncertain_dates.py",
        "worker_report.py",
    ]
