"""Datasets attached as tables: SQL gives what views give, and reads what the planner keeps."""

import datetime as dt
import functools
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from frames import files_read
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates

import lakebed
from lakebed.errors import DatasetNotFoundError, InvalidInputError
from lakebed.model.predicate import Predicate
from lakebed.spark.planned_frame import read_frame
from lakebed.spark.session import is_classic
from lakebed.store.base import ObjectInfo
from lakebed.testing import DelegatingStore

pytestmark = pytest.mark.spark

START = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("id", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("x", pa.float64()),
    ]
)
ROWS = [
    {
        "n": n,
        "id": None if n % 50 == 0 else f"id{n // 10}",
        "at": START + dt.timedelta(hours=n),
        "x": [None, float("nan"), n / 2, n / 2][n % 4],
    }
    for n in range(240)
]


def create(lake: lakebed.Repository, name: str = "events") -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by="date(at) as dt", index=["id"]
    )
    events = lake.create(name, descriptor)
    events.append(ROWS)
    return events


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def events(spark: Any, lake: lakebed.Repository) -> Any:
    events = create(lake)
    with lakebed.spark.attach(spark, lake, datasets=["events"]):
        yield events


def test_view_shows_the_fields_and_then_the_partition_fields(spark: Any, events: Any) -> None:
    table = spark.table("events")

    assert table.columns == ["n", "id", "at", "x", "dt"]
    assert dict(table.dtypes)["dt"] == "date"
    names = ["n", "id", "at", "dt"]
    found = table.select(*names).orderBy("n").toArrow()
    wanted = events.arrow(names).sort_by("n")
    assert found.cast(wanted.schema) == wanted


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("condition", "file_count"),
    [
        ("dt = '2020-01-03'", 1),
        ("at >= '2020-01-03' AND at < '2020-01-05'", 2),
        ("date(at) = '2020-01-03' AND at = '2020-01-03 05:00:00'", 1),
        ("id = 'id8'", 1),
        ("id IN ('id1', 'id20')", 2),
        ("id = 'id1' OR at >= '2020-01-10'", 2),
        ("id LIKE 'id20%'", 1),
        ("n > 230 AND id IS NOT NULL", 1),
        ("x > 1000", 10),  # NaN is greater, and in all files
        ("n > 1000", 0),
        ("dt >= '2020-01-03' AND at < '2020-01-05'", 2),
        ("NOT (at < '2020-01-09')", 2),
        ("length(id) = 4", 10),  # which nobody can know before
    ],
)
def test_query_reads_the_files_that_the_planner_keeps(
    spark: Any, events: Any, condition: str, file_count: int
) -> None:
    from_text = spark.sql(f"SELECT n FROM events WHERE {condition}")
    later = spark.table("events").where(condition).select("n")
    wanted = spark.createDataFrame(
        [(r["n"], r["id"], r["at"], r["x"], r["at"].date()) for r in ROWS], later_schema()
    )

    assert files_read(from_text) == files_read(later) == file_count
    assert sorted(from_text.collect()) == sorted(wanted.where(condition).select("n").collect())


def later_schema() -> str:
    return "n long, id string, at timestamp, x double, dt date"


@pytest.mark.thorough
@pytest.mark.parametrize("java8", ["true", "false"])
def test_times_are_those_of_the_session(spark: Any, events: Any, java8: str) -> None:
    settings = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.datetime.java8API.enabled": java8,
    }
    with lakebed.spark.session.settings_for(spark, settings):
        frame = spark.sql(
            "SELECT n FROM events WHERE at >= '2020-01-02 20:00:00' AND at < '2020-01-03'"
        )

        assert files_read(frame) == 1
        assert sorted(row.n for row in frame.collect()) == [49, 50, 51, 52]


def test_times_of_the_julian_calendar_are_those_that_were_written(
    spark: Any, tmp_path: Path
) -> None:
    lake = lakebed.open_repository(tmp_path)
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="date(at) as dt")
    days = [dt.datetime(year, 10, 11, tzinfo=dt.UTC) for year in (1000, 1400, 2020)]
    rows = [{**ROWS[1], "n": n, "at": day} for n, day in enumerate(days)]
    lake.create("events", descriptor).append(rows)

    # Spark hands out its filters in a class of Java that had another calendar then.
    with (
        lakebed.spark.session.settings_for(spark, {"spark.sql.datetime.java8API.enabled": "false"}),
        lakebed.spark.attach(spark, lake, prefix="old_"),
    ):
        frame = spark.sql("SELECT n FROM old_events WHERE at >= '1400-10-11 00:00:00Z'")

        assert sorted(row.n for row in frame.collect()) == [1, 2]


VALUES: dict[str, list[Any]] = {
    "n": [0, 100, 239],
    "id": ["id0", "id11", "id23", "id9"],
    "at": [START, START + dt.timedelta(days=3, hours=5)],
    "x": [0.0, 50.0, float("nan")],
    "dt": [dt.date(2020, 1, 2), dt.date(2020, 1, 9)],
}


@examples(0.01)
@given(many=st.lists(predicates(VALUES, max_leaves=4), min_size=12, max_size=12))
def test_sql_gives_what_views_give(spark: Any, events: Any, many: list[Predicate]) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    from lakebed.spark.column import to_spark_column

    types = events.plan().layout.predicate_types
    views = [events.where(predicate) for predicate in many]
    frames = [
        spark.table("events")
        .where(to_spark_column(view.constraint, types))
        .select(F.lit(i).alias("i"), "n")
        for i, view in enumerate(views)
    ]

    found = {(row.i, row.n) for row in functools.reduce(lambda a, b: a.union(b), frames).collect()}

    assert found == {
        (i, n) for i, view in enumerate(views) for n in view.arrow(["n"])["n"].to_pylist()
    }


def commit_elsewhere(directory: Path) -> None:
    """Change datasets in another process."""
    code = (
        "import datetime as dt, sys, lakebed\n"
        "lake = lakebed.open_repository(sys.argv[1])\n"
        "at = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)\n"
        "lake['events'].append([{'n': n, 'id': None, 'at': at, 'x': None} for n in range(5)])\n"
        "lake.drop('gone')\n"
        "lake.create('new-one', lake['events'].descriptor)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(directory)], check=True)


def test_view_shows_one_version_until_it_is_refreshed(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    create(lake)
    create(lake, "gone")
    attached = lakebed.spark.attach(spark, lake, prefix="v_")
    before = spark.table("v_events")

    commit_elsewhere(tmp_path)

    assert attached.versions == {"v_events": 1, "v_gone": 1}
    assert spark.sql("SELECT count(*) FROM v_events").collect()[0][0] == 240
    assert attached.refresh() is attached
    assert attached.versions == {"v_events": 2, "v_new-one": 0}
    assert spark.sql("SELECT count(*) FROM v_events").collect()[0][0] == 245
    assert spark.sql("SELECT count(*) FROM `v_new-one`").collect()[0][0] == 0
    # On Connect a frame finds its tables anew whenever it is asked.
    assert before.count() == (240 if is_classic(spark) else 245)
    assert not spark.catalog.tableExists("v_gone")
    attached.detach()
    assert attached.names == ()
    assert not spark.catalog.tableExists("v_events")


def test_refresh_brings_back_a_view_that_was_dropped(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    create(lake)
    create(lake, "other")
    spark.sql("CREATE TABLE back_other AS SELECT 1 AS n")  # what the name means without the view
    try:
        with lakebed.spark.attach(spark, lake, prefix="back_") as attached:
            spark.sql("CACHE TABLE back_events")
            spark.sql("DROP VIEW back_other")

            attached.refresh()

            assert spark.table("back_other").count() == 240
            assert spark.catalog.isCached("back_events")  # of a view that is there nothing changes
            spark.catalog.dropTempView("back_events")
            assert attached.refresh().names == ("back_events", "back_other")
            assert spark.table("back_events").count() == 240
    finally:
        spark.sql("DROP TABLE back_other")


def test_refresh_notices_a_dataset_that_was_created_anew(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    create(lake)
    with lakebed.spark.attach(spark, lake, prefix="anew_") as attached:
        lake.drop("events")
        descriptor = lakebed.DatasetDescriptor(schema=SCHEMA)
        lake.create("events", descriptor).append(ROWS[:7])

        attached.refresh()

        assert attached.versions == {"anew_events": 1}  # as before
        assert spark.table("anew_events").count() == 7


def test_a_dataset_that_is_dropped_while_views_are_refreshed_is_left_out(
    spark: Any, tmp_path: Path
) -> None:
    lake = lakebed.open_repository(tmp_path)
    create(lake, "staying")
    create(lake, "leaving")

    class DroppingStore(DelegatingStore):
        """Somebody drops a dataset right after the list was made."""

        def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
            infos = list(super()._list(begins_with, recursive=recursive))
            if "leaving" in lake:
                lake.drop("leaving")
            return iter(infos)

    with lakebed.spark.attach(spark, lakebed.Repository(DroppingStore(lake.store))) as attached:
        assert attached.names == ("staying",)


def test_only_named_datasets_are_attached_and_all_of_them(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    create(lake, "one")
    create(lake, "other")

    with lakebed.spark.attach(spark, lake, datasets="one") as attached:
        assert attached.names == ("one",)
    with pytest.raises(DatasetNotFoundError, match="'othre' not found"):
        lakebed.spark.attach(spark, lake, datasets=["one", "othre"])
    assert not spark.catalog.tableExists("one")


def test_path_or_dataset_instead_of_a_repository_is_refused(spark: Any, tmp_path: Path) -> None:
    dataset = create(lakebed.open_repository(tmp_path), "one")

    for wrong in (str(tmp_path), dataset):
        with pytest.raises(InvalidInputError, match="Give a repository"):
            lakebed.spark.attach(spark, wrong)


def test_names_that_spark_takes_for_one_are_refused(spark: Any, tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    create(lake, "Events")
    create(lake, "events")

    with pytest.raises(
        InvalidInputError, match="does not distinguish the views 'v_Events' and 'v_events'"
    ):
        lakebed.spark.attach(spark, lake, prefix="v_")


@pytest.mark.thorough
def test_files_of_older_schemas_and_of_other_formats_are_attached(
    spark: Any, tmp_path: Path
) -> None:
    lake = lakebed.open_repository(tmp_path)
    grown = create(lake, "grown")
    wider = pa.schema([*SCHEMA, ("extra", pa.int64())])
    grown.evolve(
        lakebed.DatasetDescriptor(schema=wider, partition_by="date(at) as dt", index=["id"]),
        base=grown.version,
    )
    grown.append([{**row, "extra": 1} for row in ROWS[:30]])
    avro = lake.create("avro", lakebed.DatasetDescriptor(schema=SCHEMA, format="avro"))
    avro.append(ROWS)
    lake.create("empty", lakebed.DatasetDescriptor(schema=SCHEMA))

    with lakebed.spark.attach(spark, lake, prefix="o_"):
        found = spark.sql("SELECT n, extra FROM o_grown WHERE at < '2020-01-01 02:00:00'")
        assert files_read(found) == 2
        assert sorted(found.collect(), key=str) == [(0, 1), (0, None), (1, 1), (1, None)]
        assert spark.sql("SELECT n FROM o_grown WHERE extra = 1").count() == 30
        assert spark.sql("SELECT n FROM o_avro WHERE n < 3").count() == 3
        assert spark.sql("SELECT * FROM o_empty").count() == 0


@pytest.mark.classic("the log is that of the server")
def test_query_reads_everything_where_the_planner_fails(
    spark: Any, events: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Predicate) -> frozenset[str]:
        message = "no answer"
        raise RuntimeError(message)

    plan = events.plan()
    store = lakebed.open_repository(events.uri.rpartition("/")[0]).store
    frame = read_frame(spark, store, plan, ["n", "dt"], choose=fail).where("n < 3")

    with caplog.at_level(logging.WARNING, "lakebed"):
        assert frame.count() == 3
    assert "files not pruned reason=RuntimeError: no answer" in caplog.text


@pytest.mark.thorough
def test_rows_of_a_view_are_written_to_another_dataset(
    spark: Any, events: Any, tmp_path: Path
) -> None:
    # The planner is asked while this process waits for Spark, with settings changed for the write.
    other = lakebed.open_repository(tmp_path).create("other", events.descriptor)

    other.append(spark.table("events").where("at < '2020-01-02'").drop("dt"))
    overwritten = spark.sql("SELECT n, id, at, x FROM events WHERE id = 'id8'")
    overwritten.write.format("lakebed").mode("append").save(other.uri.removeprefix("file://"))

    assert sorted(other.arrow(["n"])["n"].to_pylist()) == [*range(24), *range(80, 90)]


def test_a_dataset_in_place_of_its_repository_is_refused(
    spark: Any, lake: lakebed.Repository
) -> None:
    create(lake, "alone")
    address = f"{lake.uri}/alone"

    with pytest.raises(InvalidInputError, match="alone is a dataset, not a repository"):
        lakebed.spark.attach(spark, lakebed.open_repository(address))
