"""Adopting Parquet files where they lie."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upkeep_lake import Interfering

import lakebed
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    DatasetExistsError,
    InvalidInputError,
    NotFoundError,
    PartitionSpecError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.hive.adoption import find_adoption
from lakebed.model.keys import adopted_file_name, data_key
from lakebed.testing import FailingStore

MOMENT = dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The directory of a table, as Spark and Hive leave it."""
    home = tmp_path / "lake" / "flights"
    for day in ("2013-01-01", "2013-01-02"):
        for carrier in ("UA", "a%2Fb", "b b", "__HIVE_DEFAULT_PARTITION__"):
            put(home / f"dt={day}" / f"carrier={carrier}" / "part-00000-ab.c000.snappy.parquet")
    put(home / "dt=2013-01-03" / "carrier=UA" / "batch_id=1449784608" / "000000_0", n=7)
    (home / "dt=2013-01-03" / "_SUCCESS").touch()
    return home


def put(path: Path, *, n: int = 1, table: pa.Table | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if table is None:
        at = pa.array([MOMENT] * 2, pa.timestamp("us"))
        table = pa.table({"n": pa.array([n, n], pa.int64()), "at": at})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True)


def snapshot(home: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(home)): (path.stat().st_ino, path.read_bytes())
        for path in home.rglob("*")
        if path.is_file() and path.relative_to(home).parts[0].startswith("dt=")
    }


def troubles(dataset: lakebed.Dataset) -> list[object]:
    return [one for one in dataset.check().findings if one.severity != "note"]


def adopt(lake: lakebed.Repository) -> lakebed.Dataset:
    return lake.adopt("flights", partition_by="dt date, carrier")


def test_files_become_the_first_version_and_stay_as_they_are(lake, home):
    before = snapshot(home)

    flights = adopt(lake)

    assert snapshot(home) == before
    assert (flights.version, flights.count()) == (1, 18)
    assert flights.history()[-1].operation == "adopt"
    row = next(iter(flights.where("dt = '2013-01-03'").reader()))
    assert row == {"n": 7, "at": MOMENT, "dt": dt.date(2013, 1, 3), "carrier": "UA"}
    values = {one.values["carrier"] for one in flights.partitions()}
    assert values == {"UA", "a/b", "b b", None}
    assert sum(file.row_count for file in flights.files()) == 18
    assert {file.key for file in flights.files()} == {
        f"flights/{path}" for path in before if not path.endswith("_SUCCESS")
    }
    assert troubles(flights) == []


def test_batch_ids_of_directories_are_kept(lake, home):
    flights = adopt(lake)

    found = flights.arrow(columns=["dt", "batch_id"]).to_pylist()

    ids = {one["dt"]: one["batch_id"] for one in found}
    adopted = flights.history()[-1].batch_id
    assert ids[dt.date(2013, 1, 3)] == 1449784608
    assert ids[dt.date(2013, 1, 1)] == adopted
    # What can be read and protected is the adoption.
    assert [one.batch_id for one in flights.batches()] == [adopted]
    assert flights.at(batch_id=adopted).count() == flights.count()
    with pytest.raises(NotFoundError):
        flights.at(batch_id=1449784608)


def test_plans_go_by_the_footers(lake, home):
    flights = adopt(lake)

    assert len(flights.where("n > 5").plan().files) == 1
    assert flights.where("n > 5").count() == 2


def test_adopted_dataset_is_a_dataset_like_any_other(lake, home):
    flights = adopt(lake)
    row = {"dt": dt.date(2013, 1, 1), "carrier": "UA", "n": 10, "at": MOMENT}

    overwritten = flights.overwrite([row])
    appended = flights.append([{**row, "carrier": "new"}])
    flights.delete(flights.where("carrier = 'a/b' AND dt = '2013-01-02'"))

    assert overwritten.files_removed == (
        "flights/dt=2013-01-01/carrier=UA/part-00000-ab.c000.snappy.parquet",
    )
    assert appended.files_added[0].startswith("flights/data/dt=2013-01-01/carrier=new/batch_id=")
    assert flights.count() == 18 - 2 + 1 + 1 - 2
    assert flights.at(version=1).count() == 18
    flights.rollback(version=1)
    assert flights.count() == 18
    assert troubles(flights) == []


def test_cleanup_deletes_what_is_superseded_and_nothing_else(lake, home):
    stray = home / "dt=2013-01-01" / "carrier=UA" / "later.parquet"
    flights = adopt(lake)
    put(stray)
    flights.overwrite([{"dt": dt.date(2013, 1, 1), "carrier": "UA", "n": 10, "at": MOMENT}])
    kept = {path: held for path, held in snapshot(home).items() if "01/carrier=UA/part" not in path}

    young = flights.cleanup(older_than="7d", dry_run=False)
    report = flights.cleanup(older_than="0s", dry_run=False)

    assert young.files == ()
    assert [file.key for file in report.files] == [
        "flights/dt=2013-01-01/carrier=UA/part-00000-ab.c000.snappy.parquet"
    ]
    assert snapshot(home) == kept
    assert flights.count() == 17
    assert troubles(flights) == []


@pytest.mark.spark
def test_what_was_adopted_is_published_file_by_file(lake, home, spark):
    flights = adopt(lake)

    flights.publish(spark, table="hive_tests.adopted")

    columns = ["dt", "carrier", "n", "at"]
    found = spark.table("hive_tests.adopted").select(*columns).collect()
    wanted = flights.spark(spark, columns=columns).collect()
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert flights.publish(spark, table="hive_tests.adopted", check=True).is_in_step
    put(home / "dt=2013-01-02" / "carrier=UA" / "later.parquet")
    assert flights.publish(spark, table="hive_tests.adopted", check=True).damaged == (
        "flights/dt=2013-01-02/carrier=UA: 1 files are not live, such as 'later.parquet'",
    )


@pytest.mark.parametrize(
    ("path", "partition_by", "reason"),
    [
        ("dt=2013-01-01/more.parquet", "dt date, carrier", "does not lie in dt=…/carrier=…"),
        ("dt=2013-01-01/carrier=UA/deep/x.parquet", "dt date, carrier", "does not lie in"),
        ("carrier=UA/dt=2013-01-01/x.parquet", "dt date, carrier", "does not lie in"),
        ("dt=yesterday/carrier=UA/x.parquet", "dt date, carrier", "is no date"),
        ("dt=2013-01-01/carrier=UA/batch_id=99999999999999/x.parquet", "dt date, carrier", "begun"),
        ("x.parquet", "dt, carrier", "does not lie in"),
    ],
)
def test_file_that_fits_no_partition_is_named(lake, home, path, partition_by, reason):
    put(home / path)

    with pytest.raises(InvalidInputError, match=reason) as caught:
        lake.adopt("flights", partition_by=partition_by)

    assert path in caught.value.message
    assert lake.list() == []


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"n": [1.5], "at": pa.array([MOMENT], pa.timestamp("us"))}), "of type double"),
        (pa.table({"N": [1], "at": pa.array([MOMENT], pa.timestamp("us"))}), "is called"),
    ],
)
def test_file_of_another_schema_is_named(lake, home, table, reason):
    put(home / "dt=2013-01-09" / "carrier=UA" / "x.parquet", table=table)

    with pytest.raises(SchemaMismatchError, match=reason) as caught:
        adopt(lake)

    assert "flights/dt=2013-01-0" in caught.value.message
    assert lake.list() == []


def test_file_that_is_no_parquet_is_named(lake, home):
    (home / "dt=2013-01-01" / "carrier=UA" / "notes.txt").write_text("hello")

    with pytest.raises(SchemaMismatchError, match=r"notes\.txt' cannot be read as Parquet"):
        adopt(lake)


def test_directory_elsewhere_is_refused_with_the_way_that_works(lake, home, tmp_path):
    with pytest.raises(InvalidInputError, match="only to files in its own directory") as caught:
        lake.adopt("trips", home, partition_by="dt date, carrier")
    assert f"Open the repository file://{tmp_path}/lake and adopt it there" in caught.value.hint
    assert "under the name 'flights'" in caught.value.hint

    assert (
        lake.adopt("flights", home, partition_by={"dt": "date", "carrier": "string"}).count() == 18
    )


@pytest.mark.parametrize(
    "part", ["dt=2013-01-02", "dt=2013-01-03/carrier=UA/batch_id=1449784608/000000_0"]
)
def test_link_is_refused_by_its_name(lake, home, tmp_path, part):
    (home / part).rename(tmp_path / "elsewhere")
    (home / part).symlink_to(tmp_path / "elsewhere")
    before = snapshot(home)

    with pytest.raises(InvalidInputError, match="is a symbolic link") as caught:
        adopt(lake)

    assert str(home / part) in caught.value.message
    assert lake.list() == []
    assert snapshot(home) == before


def test_nothing_to_adopt_and_unknown_types_are_said(lake, home):
    with pytest.raises(NotFoundError, match="no file to adopt"):
        lake.adopt("nothing")
    with pytest.raises(PartitionSpecError, match="Unknown type 'day'"):
        lake.adopt("flights", partition_by="dt day")


def test_dataset_is_not_adopted_twice(lake, home):
    adopt(lake)

    with pytest.raises(DatasetExistsError):
        adopt(lake)


def test_of_two_adoptions_at_once_one_is_refused_and_no_row_counts_twice(lake, home):
    before = snapshot(home)
    slow = Interfering(
        lake.store,
        lambda operation, key: operation == "put" and "/files/" in key,
        lambda: adopt(lake),
    )

    with pytest.raises(CommitConflictError, match="the adopt that made version 1"):
        adopt(lakebed.Repository(slow))

    assert lake.open("flights").count() == 18
    assert snapshot(home) == before


def test_a_failed_adoption_deletes_no_file_and_can_be_done_again(lake, home):
    before = snapshot(home)
    for number in range(1, 30):
        store = FailingStore(lake.store, fail_on="put", nth=number)
        failing = lakebed.Repository(store)
        try:
            adopt(failing)
        except StorageError:
            assert snapshot(home) == before
        else:
            break
        if lake.exists("flights") and lake.open("flights").version:
            break
    if not lake.exists("flights") or not lake.open("flights").version:
        adopt(lake)

    assert number > 1
    assert lake.open("flights").count() == 18
    assert snapshot(home) == before


def test_label_of_an_adopted_file_cannot_lead_out_of_the_dataset():
    label = f"batch_id=1/{adopted_file_name('../other/data/x.parquet')}"

    with pytest.raises(CorruptMetadataError, match="outside"):
        data_key("flights", "data", label, ".parquet")


def test_dry_run_lists_the_files(lake, home):
    found = find_adoption(lake.store, "flights", None, "dt date, carrier", None)

    assert [file.key for file in found.files] == sorted(file.key for file in found.files)
    assert len(found.files) == 9
    assert lake.list() == []
