"""Every way to read a plan with Spark gives the rows of the local scan, and none that are dead."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from frames import comparable, setting, spark_rows
from hypothesis import given
from hypothesis import strategies as st
from inside import store_of
from pyspark import cloudpickle

import lakebed
from lakebed import by
from lakebed.errors import CorruptMetadataError, InvalidInputError, SchemaMismatchError
from lakebed.spark.through_arrow import reading_task
from lakebed.state import file_table
from lakebed.state.reader import read_head

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

PREPARED = () if os.environ.get("LAKEBED_TEST_SPARK") == "connect" else ("prepared",)
NATIVE = ("paths", *PREPARED)
WAYS = ("auto", "native", *NATIVE, "arrow")
needs_prepared = pytest.mark.classic("a session on Connect cannot use a prepared list of files")
NAMES = ["plain", "é/ü", "100%", "x%2Fy", "a=b", "two words", None, "日本 😀", "__HIVE_DEFAULT"]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
        ("price", pa.decimal128(9, 2)),
    ]
)
NEW_FIELD = pa.field("note", pa.string())


def table(start: int = 0, count: int = 60) -> pa.Table:
    first = dt.datetime(2013, 6, 1, tzinfo=dt.UTC)
    rows = [
        {
            "id": n,
            "at": first + dt.timedelta(hours=9 * n) if n % 13 else None,
            "name": NAMES[n % len(NAMES)],
            "price": n * 3 if n % 4 else None,
        }
        for n in range(start, start + count)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def small_files() -> lakebed.WriteOptions:
    return lakebed.WriteOptions(target_bytes=400, row_group_bytes=400)


def flat(dataset: lakebed.Dataset) -> None:
    dataset.with_options(write=small_files()).append(table())


def in_batches(dataset: lakebed.Dataset) -> None:
    for start in (0, 20, 40):
        dataset.append(table(start, 20))


def with_holes(dataset: lakebed.Dataset) -> None:
    in_batches(dataset)
    dataset.delete(dataset.where("id = 7 OR id > 50"))
    dataset.overwrite(table(3, 2))


def evolved(dataset: lakebed.Dataset) -> None:
    dataset.append(table(0, 30))
    wider = pa.schema([*SCHEMA, NEW_FIELD])
    partition_by = dataset.descriptor.partition_by
    dataset.evolve(
        lakebed.DatasetDescriptor(schema=wider, partition_by=partition_by), base=dataset.version
    )
    more = table(30, 30)
    dataset.append(more.append_column(NEW_FIELD, pa.array([f"n{n}" for n in range(30)])))


def compacted(dataset: lakebed.Dataset) -> None:
    in_batches(dataset)
    dataset.compact()
    dataset.append(table(60, 10))


STRATEGIES: dict[str, Any] = {
    "unpartitioned": [],
    "date": [by.date("at", name="dt")],
    "dimension": [by.dimension("name", ["plain", "é/ü"])],
    "text": [by.identity("name")],
    "two levels": [by.identity("name"), by.hash("id", 3)],
}
HISTORIES: dict[str, Callable[[lakebed.Dataset], None]] = {
    "one batch": flat,
    "batches": in_batches,
    "holes": with_holes,
    "evolved": evolved,
    "compacted": compacted,
}
PREDICATES = [
    "TRUE",
    "id < 25",
    "name = 'é/ü'",
    "name IS NULL OR id = 8",
    "at >= '2013-06-08' AND price IS NOT NULL",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path_factory.mktemp("lake ü, 100%"))


def dataset_of(lake: lakebed.Repository, strategy: str, history: str) -> lakebed.Dataset:
    name = f"{strategy}_{history}".replace(" ", "_")
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=STRATEGIES[strategy])
    if lake.exists(name):
        return lake.open(name)
    dataset = lake.create(name, descriptor)
    HISTORIES[history](dataset)
    return dataset


@examples(0.03, long=100)
@given(
    strategy=st.sampled_from(list(STRATEGIES)),
    history=st.sampled_from(list(HISTORIES)),
    predicate=st.sampled_from(PREDICATES),
    levels=st.booleans(),
)
def test_every_way_gives_the_rows_of_the_scan(
    spark: Any,
    lake: lakebed.Repository,
    strategy: str,
    history: str,
    predicate: str,
    levels: bool,
) -> None:
    dataset = dataset_of(lake, strategy, history)
    view = dataset if predicate == "TRUE" else dataset.where(predicate)
    partition_names = [one.name for one in dataset.descriptor.partition_by]
    columns = [*dict.fromkeys([*partition_names, "batch_id", "id"])] if levels else None
    expected = comparable(view.arrow(columns))

    for way in WAYS:
        assert spark_rows(view.spark(spark, columns, way=way)) == expected, way


@pytest.fixture
def dataset(tmp_path: Path) -> lakebed.Dataset:
    """One batch of many files in one directory."""
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA)
    dataset = lakebed.open_repository(tmp_path / "lake").create("events", descriptor)
    with dataset.with_options(write=small_files()).kite.writer() as writer:
        for row in table(0, 1_000).to_pylist():
            writer.write(row)
    assert len(dataset.files()) > 200
    return dataset


def paths_of(dataset: lakebed.Dataset, tmp_path: Path) -> list[Path]:
    return [tmp_path / "lake" / file.key for file in dataset.files()]


def location(frame: Any, capsys: Any) -> str:
    """What Spark itself says of where it found the files."""
    capsys.readouterr()
    frame.explain()
    return capsys.readouterr().out.partition("Location: ")[2].partition(",")[0].partition("[")[0]


@pytest.mark.thorough
def test_files_of_a_failed_task_in_the_directory_are_not_read(
    spark: Any, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    first = paths_of(dataset, tmp_path)[0]
    shutil.copy(first, first.with_name("part-" + "0" * 32 + ".parquet"))

    for way in WAYS:
        assert dataset.spark(spark, way=way).count() == 1_000, way


@needs_prepared
def test_the_way_is_chosen_by_the_files(spark: Any, dataset: lakebed.Dataset, capsys: Any) -> None:
    assert location(dataset.spark(spark), capsys) == "MetadataLogFileIndex(1 paths)"
    few = dataset.where("id = 7").plan()
    assert len(few) < 10
    found = location(dataset.where("id = 7").spark(spark), capsys)
    assert found == f"InMemoryFileIndex({len(few)} paths)"


@needs_prepared
@pytest.mark.thorough
def test_a_prepared_list_is_not_lost_when_spark_refreshes_it(
    spark: Any, dataset: lakebed.Dataset
) -> None:
    frame = dataset.spark(spark, way="prepared").cache()
    frame.createOrReplaceTempView("prepared_events")
    assert frame.count() == 1_000

    spark.catalog.refreshTable("prepared_events")
    spark.catalog.refreshByPath("/")

    assert frame.count() == spark.table("prepared_events").count() == 1_000
    frame.unpersist()
    spark.catalog.dropTempView("prepared_events")


@needs_prepared
def test_sizes_in_the_file_table_are_not_believed(
    spark: Any, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    """A size that is too small would make Spark drop rows without a word."""
    store = lakebed.open_repository(tmp_path / "lake").store
    for segment in read_head(store, "events").state.lists.files:
        facts = file_table.decode(store.get(segment.key).data, segment.key)
        sizes = facts.schema.get_field_index("size_bytes")
        wrong = facts.set_column(sizes, "size_bytes", pa.array([1] * len(facts), pa.int64()))
        (tmp_path / "lake" / segment.key).write_bytes(file_table.encode(wrong))

    for way in ("auto", *NATIVE, "arrow"):
        assert dataset.spark(spark, way=way).count() == 1_000, way


@needs_prepared
def test_a_session_that_ignores_prepared_lists_still_gets_all_rows(
    spark: Any, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    first = paths_of(dataset, tmp_path)[0]
    shutil.copy(first, first.with_name("part-" + "0" * 32 + ".parquet"))
    with setting(spark, "spark.sql.streaming.fileStreamSink.ignoreMetadata", "true"):
        with pytest.raises(InvalidInputError, match="Spark found 0 files instead of"):
            dataset.spark(spark, way="prepared")

        assert dataset.spark(spark).count() == 1_000


@pytest.mark.parametrize("way", [*NATIVE, "arrow"])
def test_a_missing_file_is_an_error_whatever_the_session_ignores(
    spark: Any, dataset: lakebed.Dataset, tmp_path: Path, way: Any
) -> None:
    with setting(spark, "spark.sql.files.ignoreMissingFiles", "true"):
        frame = dataset.spark(spark, way=way)
        assert frame.count() == 1_000
        paths_of(dataset, tmp_path)[3].unlink()

        with pytest.raises(Exception, match=r"(?i)missing|not exist|not found"):
            frame.count()
        with pytest.raises(Exception, match=r"(?i)missing|not exist"):
            dataset.spark(spark, way=way).count()


@needs_prepared
def test_a_missing_file_is_noticed_when_the_list_is_prepared(
    spark: Any, dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    gone = paths_of(dataset, tmp_path)[3]
    gone.unlink()

    with pytest.raises(CorruptMetadataError, match=gone.name):
        dataset.spark(spark, way="prepared")


def test_a_task_carries_no_files_but_its_own(dataset: lakebed.Dataset) -> None:
    whole, few = dataset.plan(), dataset.where("id = 7").plan()

    sizes = [
        len(cloudpickle.dumps(reading_task(store_of(dataset.where("TRUE")), plan, ["id"])))
        for plan in (whole, few)
    ]

    assert len(whole) > len(few) + 50
    assert sizes[0] < sizes[1] + 100


@pytest.mark.thorough
def test_each_task_of_many_scattered_files_reads_a_few(
    spark: Any, dataset: lakebed.Dataset
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    frame = dataset.spark(spark, ["id"], way="arrow")

    tasks = frame.select(F.spark_partition_id().alias("task")).distinct().count()

    assert tasks >= len(dataset.files()) // 32
    assert spark_rows(frame) == comparable(dataset.arrow(["id"]))


def test_an_unknown_way_is_refused(spark: Any, dataset: lakebed.Dataset) -> None:
    with pytest.raises(InvalidInputError, match="'jdbc'"):
        dataset.spark(spark, way="jdbc")


def record(*names: str) -> pa.DataType:
    return pa.struct([(name, pa.int64()) for name in names])


@pytest.mark.parametrize(
    ("fields", "row", "strategy", "columns", "alike"),
    [
        (
            {"ts": pa.timestamp("us", tz="UTC"), "date": pa.date32()},
            {"ts": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "date": dt.date(1999, 9, 9)},
            "date(ts) as Date",
            ["date", "Date"],
            "'date' and 'Date'",
        ),
        ({"a": pa.int64(), "A": pa.int64()}, {"a": 1, "A": 2}, [], ["A"], "'a' and 'A'"),
        (
            {"n": pa.int64(), "r": pa.list_(pa.struct([("s", record("b", "B"))]))},
            {"n": 1, "r": [{"s": {"b": 1, "B": 2}}]},
            [],
            None,
            "'b' and 'B'",
        ),
        ({"Batch_ID": pa.int64()}, {"Batch_ID": 5}, [], None, "'Batch_ID' and 'batch_id'"),
    ],
)
def test_columns_that_differ_in_case_keep_their_values(
    spark: Any,
    tmp_path: Path,
    fields: dict[str, pa.DataType],
    row: dict[str, Any],
    strategy: Any,
    columns: list[str] | None,
    alike: str,
) -> None:
    schema = pa.schema(list(fields.items()))
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=strategy)
    dataset = lakebed.open_repository(tmp_path / "lake").create("odd", descriptor)
    dataset.append([row])

    for way in ("auto", "arrow"):
        found = dataset.spark(spark, columns, way=way)
        assert spark_rows(found) == comparable(dataset.arrow(columns)), way
    for way in ("native", *NATIVE):
        with pytest.raises(InvalidInputError, match=alike):
            dataset.spark(spark, columns, way=way)


def test_names_that_are_alike_on_different_levels_are_no_obstacle(
    spark: Any, tmp_path: Path
) -> None:
    schema = pa.schema([("a", record("A", "b")), ("B", record("A", "c"))])
    descriptor = lakebed.DatasetDescriptor(schema=schema)
    dataset = lakebed.open_repository(tmp_path / "lake").create("even", descriptor)
    dataset.append([{"a": {"A": 1, "b": 2}, "B": {"A": 3, "c": 4}}])

    assert spark_rows(dataset.spark(spark, way="native")) == comparable(dataset.arrow())


OLD = {"day": dt.date(1200, 1, 1), "at": dt.datetime(1200, 1, 1, 12, tzinfo=dt.UTC)}
OLD_SCHEMA = pa.schema([("day", pa.date32()), ("at", pa.timestamp("us", tz="UTC"))])


@pytest.mark.parametrize("way", [*NATIVE, "arrow"])
def test_old_dates_are_read_as_they_were_written_whatever_calendar_the_session_has(
    spark: Any, tmp_path: Path, way: Any
) -> None:
    descriptor = lakebed.DatasetDescriptor(schema=OLD_SCHEMA)
    dataset = lakebed.open_repository(tmp_path / "lake").create("old", descriptor)
    dataset.append([OLD])
    view = dataset.where("day = '1200-01-01' AND at <= '1200-01-01T12:00:00Z'")

    with setting(spark, "spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY"):
        found = view.spark(spark, way=way).selectExpr("CAST(day AS string)", "CAST(at AS string)")

        assert [tuple(row) for row in found.collect()] == [("1200-01-01", "1200-01-01 12:00:00")]


def test_old_dates_are_written_as_they_are_whatever_calendar_the_session_has(
    spark: Any, tmp_path: Path
) -> None:
    frame = spark.sql("SELECT DATE'1200-01-01' AS day, TIMESTAMP'1200-01-01 12:00:00' AS at")
    descriptor = lakebed.DatasetDescriptor(schema=OLD_SCHEMA)
    dataset = lakebed.open_repository(tmp_path / "lake").create("old", descriptor)

    with setting(spark, "spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"):
        dataset.append(frame)

    assert dataset.arrow().to_pylist() == [OLD]
    assert dataset.where("day = '1200-01-01'").count() == 1


@pytest.mark.parametrize(
    ("columns", "message"), [([], "names no column"), (["id", "id"], "names 'id' 2 times")]
)
def test_spark_refuses_the_columns_that_the_local_reader_refuses(
    spark: Any, dataset: lakebed.Dataset, columns: list[str], message: str
) -> None:
    errors = []
    for read in (dataset.arrow, lambda columns: dataset.spark(spark, columns)):
        with pytest.raises(SchemaMismatchError, match=f"argument columns {message}") as caught:
            read(columns)
        errors.append(str(caught.value))

    assert errors[0] == errors[1]


OLD_DAYS = (
    *(dt.date(1, 1, 1), dt.date(999, 12, 31), dt.date(1000, 1, 1), dt.date(1582, 10, 4)),
    *(dt.date(1582, 10, 10), dt.date(1582, 10, 15), dt.date(2000, 2, 29), dt.date(9999, 12, 31)),
)


@pytest.fixture(scope="module")
def old_days(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Dataset:
    midnights = [dt.datetime.combine(day, dt.time()) for day in OLD_DAYS]
    rows = pa.table(
        {
            "d": pa.array(OLD_DAYS, pa.date32()),
            "t": pa.array(midnights, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
            "w": pa.array(midnights, pa.timestamp("us")),
        }
    )
    repository = lakebed.open_repository(tmp_path_factory.mktemp("old"))
    dataset = repository.create("days", lakebed.DatasetDescriptor(schema=rows.schema))
    dataset.append(rows)  # one file, so that the bounds of files decide nothing
    return dataset


@pytest.mark.parametrize(
    "condition",
    [
        "{c} = {year1}",
        "{c} < {before1000}",
        "{c} <= {before1000}",
        "{c} <> {year1}",
        "{c} IN ({year1}, {before1000}, {gap}, {last})",
        "{c} NOT IN ({year1}, {gap})",
        "{c} BETWEEN {before1000} AND {gap}",
    ],
)
@pytest.mark.parametrize("column", ["d", "t", "w"])
@pytest.mark.parametrize("way", ["native", "arrow"])
@pytest.mark.thorough
def test_conditions_on_days_of_any_year_are_read_in_every_way(
    spark: Any, old_days: lakebed.Dataset, condition: str, column: str, way: Any
) -> None:
    form = "DATE '{}'" if column == "d" else "TIMESTAMP '{} 00:00:00{}'"
    zone = "Z" if column == "t" else ""
    days = {"year1": 0, "before1000": 1, "gap": 4, "last": 7}
    literals = {name: form.format(OLD_DAYS[n], zone) for name, n in days.items()}
    view = old_days.where(condition.format(c=column, **literals))

    frame = view.spark(spark, ["w"], way=way).selectExpr("year(w) * 10000 + dayofyear(w) AS n")

    expected = [row["w"].year * 10000 + row["w"].timetuple().tm_yday for row in view.kite.reader()]
    assert expected
    assert sorted(row.n for row in frame.collect()) == sorted(expected)
