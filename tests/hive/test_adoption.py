"""Adopting Parquet files where they lie."""

import datetime as dt
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from heads import ON_TREES
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
from lakebed.model.keys import adopted_file_name
from lakebed.model.layout import TABLE, Folder, Naming
from lakebed.testing import FailingStore
from lakebed.work import batch_directories
from lakebed.work.adoption import find_adoption

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
    row = next(iter(flights.where("dt = '2013-01-03'").kite.reader()))
    assert row == {"n": 7, "at": MOMENT, "dt": dt.date(2013, 1, 3), "carrier": "UA"}
    values = {one.values["carrier"] for one in flights.inspect.partitions()}
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

    flights.publish("hive", spark, table="hive_tests.adopted")

    columns = ["dt", "carrier", "n", "at"]
    found = spark.table("hive_tests.adopted").select(*columns).collect()
    wanted = flights.spark(spark, columns=columns).collect()
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))
    assert flights.publish("hive", spark, table="hive_tests.adopted", check=True).is_in_step
    put(home / "dt=2013-01-02" / "carrier=UA" / "later.parquet")
    assert flights.publish("hive", spark, table="hive_tests.adopted", check=True).damaged == (
        "flights/dt=2013-01-02/carrier=UA: 1 files are not live, such as 'later.parquet'",
    )


@pytest.mark.spark
def test_gathered_batches_and_batches_of_another_name_are_read_through_hive(lake, tmp_path, spark):
    home = tmp_path / "lake" / "sales"
    for number, batch in enumerate(("dt=1/batchid=1449784608", "dt=1/batchid=1449847129")):
        put(home / batch / "part-0.parquet", n=number)
    put(home / "dt=2" / "batchid=1449847129" / "part-0.parquet", n=2)
    sales = lake.adopt("sales", partition_by="dt", current="all", batch_level="batchid")
    with pytest.raises(InvalidInputError, match="several live batches"):
        sales.publish("hive", spark, table="hive_tests.gathered")

    sales.compact(sales.where("dt = '1'"), gather=True)
    sales.publish("hive", spark, table="hive_tests.gathered")

    found = spark.table("hive_tests.gathered").select("dt", "n").collect()
    assert sorted(map(tuple, found)) == [
        (d, n) for d, n in (("1", 0), ("1", 1), ("2", 2)) for _ in "ab"
    ]


@pytest.mark.parametrize(
    ("path", "partition_by", "reason"),
    [
        ("dt=2013-01-01/more.parquet", "dt date, carrier", "does not lie in dt=…/carrier=…"),
        ("dt=2013-01-01/carrier=UA/deep/x.parquet", "dt date, carrier", "does not lie in"),
        ("carrier=UA/dt=2013-01-01/x.parquet", "dt date, carrier", "does not lie in"),
        ("dt=yesterday/carrier=UA/x.parquet", "dt date, carrier", "is not a valid date"),
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


@pytest.mark.timeout(60)
def test_pipe_is_refused_as_a_listing_would_leave_it_out(lake, home):
    pipe = home / "dt=2013-01-03/carrier=UA/batch_id=1449784608/000001_0"
    os.mkfifo(pipe)

    with pytest.raises(InvalidInputError, match="is a pipe, a socket or a device") as caught:
        adopt(lake)

    assert str(pipe) in caught.value.message
    assert lake.list() == []


def test_name_that_no_listing_shows_is_refused(lake, home):
    (home / "dt=2013-01-02").rename(home / "dt=2013-01-02\n")

    with pytest.raises(InvalidInputError, match="which no key of a store can have"):
        adopt(lake)
    assert lake.list() == []


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
        Naming("flights", "data", ".parquet").key(label)


def test_dry_run_lists_the_files(lake, home):
    found = find_adoption(lake.store, "flights", None, "dt date, carrier", None)

    assert [file.key for file in found.files] == sorted(file.key for file in found.files)
    assert len(found.files) == 9
    assert lake.list() == []


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    """The layout of the batch document: one day was run three times, one twice, one once."""
    home = tmp_path / "lake" / "sales"
    for day, started in (
        ("2015-12-09", (1449700000, 1449800000)),
        ("2015-12-10", (1449784608, 1449800000, 1449847129)),
        ("2015-12-11", (1449871000,)),
    ):
        for number, batch_id in enumerate(started):
            put(home / f"dt={day}" / f"batch_id={batch_id}" / "part-0.parquet", n=number)
    return home


def days(view: lakebed.View) -> dict[str, int]:
    """Return of each day how often it had been run when its rows were written."""
    rows = view.arrow(["dt", "n"]).to_pylist()
    assert len(rows) == 2 * len({row["dt"] for row in rows})  # each file holds two
    return {row["dt"]: row["n"] for row in rows}


def test_newest_batch_of_a_partition_is_current_and_older_ones_are_its_history(lake, batches):
    before = {path: path.read_bytes() for path in batches.rglob("*.parquet")}

    sales = lake.adopt("sales", partition_by="dt")

    assert days(sales) == {"2015-12-09": 1, "2015-12-10": 2, "2015-12-11": 0}
    assert sales.count() == 6
    # Each superseded batch, as the dataset was when it had just been written.
    assert days(sales.at(batch_id=1449700000)) == {"2015-12-09": 0}
    assert days(sales.at(batch_id=1449784608)) == {"2015-12-09": 0, "2015-12-10": 0}
    assert days(sales.at(batch_id=1449800000)) == {"2015-12-09": 1, "2015-12-10": 1}
    assert [(one.batch_id, one.file_count, one.is_live) for one in sales.batches()] == [
        (1449700000, 1, False),
        (1449784608, 1, False),
        (1449800000, 2, True),
        (sales.history()[-1].batch_id, 2, True),
    ]
    assert [one.operation for one in sales.history()] == ["create", *4 * ["adopt"]]
    found = sales.arrow(["dt", "batch_id"]).to_pylist()
    assert {row["dt"]: row["batch_id"] for row in found} == {
        "2015-12-09": 1449800000,
        "2015-12-10": 1449847129,
        "2015-12-11": 1449871000,
    }
    assert {path: path.read_bytes() for path in before} == before
    assert troubles(sales) == []


def test_rerun_of_one_batch_keeps_both_ids(lake, tmp_path):
    home = tmp_path / "lake" / "sales" / "dt=2015-12-10"
    put(home / "batch_id=1449784608" / "part-0.parquet", n=1)
    put(home / "batch_id=1449847129" / "part-0.parquet", n=2)

    sales = lake.adopt("sales", partition_by="dt date")

    assert [row["n"] for row in sales.kite.reader()] == [2, 2]
    assert [one.batch_id for one in sales.batches()] == [1449784608, 1449847129]
    assert [row["n"] for row in sales.at(batch_id=1449784608).kite.reader()] == [1, 1]
    assert sales.batches()[0].started_at.isoformat() == "2015-12-10T21:56:48+00:00"
    sales.rollback(batch_id=1449784608)
    assert [row["n"] for row in sales.kite.reader()] == [1, 1]
    sales.append([{"dt": dt.date(2015, 12, 10), "n": 3, "at": MOMENT}])
    assert sales.batches()[-1].batch_id > 1449847129
    assert sales.count() == 3


def test_batches_of_a_dataset_without_partitions_follow_the_same_rule(lake, tmp_path):
    for batch_id in (1449784608, 1449847129):
        put(tmp_path / "lake" / "sales" / f"batch_id={batch_id}" / "part-0.parquet")

    assert lake.adopt("sales").count() == 2


def test_batches_of_the_documents_appendix_are_adopted_by_the_name_of_their_level(lake, tmp_path):
    home = tmp_path / "lake" / "sales"
    for batch in ("dt=2015-12-10/batchid=1449784608", "dt=2015-12-10/batchid=1449847129"):
        put(home / batch / "part-0.parquet", n=int(batch[-1]))
    before = {path: path.read_bytes() for path in home.rglob("*.parquet")}

    with pytest.raises(InvalidInputError, match="does not lie in dt=…") as caught:
        lake.adopt("sales", partition_by="dt date")
    assert "batch_level='batchid'" in caught.value.hint
    sales = lake.adopt("sales", partition_by="dt date", batch_level="batchid")

    assert {path: path.read_bytes() for path in before} == before
    assert [row["n"] for row in sales.kite.reader()] == [9, 9]
    assert [row["n"] for row in sales.at(batch_id=1449784608).kite.reader()] == [8, 8]
    assert [one.batch_id for one in sales.batches()] == [1449784608, 1449847129]
    (shown,) = [
        one for one in sales.publish("hive", table="lake.sales", print_sql=True) if "ADD" in one
    ]
    assert shown.endswith("/sales/dt=2015-12-10/batchid=1449847129'")
    sales.rerun(
        [{"dt": dt.date(2015, 12, 10), "n": 3, "at": MOMENT}], run="again", replace_all=True
    )
    sales.overwrite([{"dt": dt.date(2015, 12, 10), "n": 4, "at": MOMENT}])
    (file,) = sales.files()
    assert file.key.startswith("sales/data/dt=2015-12-10/batch_id=")
    assert troubles(sales) == []


@pytest.mark.parametrize("name", ["", "a/b", "batch=id", None])
def test_name_of_the_level_of_batches_must_be_one(lake, batches, name):
    with pytest.raises(InvalidInputError, match="batch_level is"):
        lake.adopt("sales", partition_by="dt", batch_level=name)


def test_level_of_batches_is_no_partition_field(lake, tmp_path):
    with pytest.raises(PartitionSpecError, match="'batchid' is taken"):
        lake.adopt("sales", partition_by="dt, batchid long", batch_level="batchid")


def test_seconds_and_milliseconds_are_compared_as_times(lake, tmp_path):
    home = tmp_path / "lake" / "sales" / "dt=1"
    put(home / "batch_id=1449784608123" / "part-0.parquet", n=1)
    put(home / "batch_id=1449847129" / "part-0.parquet", n=2)  # later, in seconds

    assert {row["n"] for row in lake.adopt("sales", partition_by="dt").kite.reader()} == {2}


def test_all_batches_are_current_where_that_is_said(lake, batches):
    sales = lake.adopt("sales", partition_by="dt", current="all")

    assert sales.count() == 12
    assert sales.version == 1
    with pytest.raises(InvalidInputError, match="current is 'none'"):
        lake.adopt("more", current="none")


def test_remedy_for_several_batches_in_a_partition_is_the_one_that_is_printed(lake, batches):
    sales = lake.adopt("sales", partition_by="dt", current="all")

    with pytest.raises(InvalidInputError, match="several live batches") as caught:
        sales.publish("hive", table="lake.sales", print_sql=True)
    assert "`compact` with gather" in caught.value.hint
    sales.compact(gather=True)

    partitions = [
        one
        for one in sales.publish("hive", table="lake.sales", print_sql=True)
        if "LOCATION" in one
    ]
    homes = {file.key.rpartition("/")[0] for file in sales.files()}
    assert all(any(f"/{home}'" in text for text in partitions) for home in homes)
    assert len(homes) == len(sales.inspect.partitions())


def test_plan_says_what_is_taken_for_what_and_writes_nothing(lake, batches):
    found = lake.adopt("sales", partition_by="dt", dry_run=True)

    assert lake.list() == []
    told = [(one.partition[-2:], one.batch_id, one.taken_for, one.reason) for one in found.batches]
    assert told == [
        ("09", 1449700000, "history", "superseded by batch 1449800000"),
        ("09", 1449800000, "current", "newest of 2 batches"),
        ("10", 1449784608, "history", "superseded by batch 1449847129"),
        ("10", 1449800000, "history", "superseded by batch 1449847129"),
        ("10", 1449847129, "current", "newest of 3 batches"),
        ("11", 1449871000, "current", "only batch"),
    ]
    assert str(found) == (
        "6 rows in 3 files become the dataset. 6 rows in 3 files, of 3 older batches, become its "
        "history; a cleanup deletes the part that is older than its retention."
    )
    assert found.batches[0].row_count == 2
    assert found.batches[0].size_bytes == sum(file.size_bytes for file in found.batches[0].files)


def test_cleanup_takes_older_batches_unless_they_are_protected(lake, batches):
    sales = lake.adopt("sales", partition_by="dt")
    sales.protections.add(batch_id=1449784608, reason="audit")

    report = sales.cleanup(older_than="0s", dry_run=False)

    assert [file.key for file in report.files] == [
        "sales/dt=2015-12-09/batch_id=1449700000/part-0.parquet",
        "sales/dt=2015-12-10/batch_id=1449800000/part-0.parquet",
    ]
    assert (batches / "dt=2015-12-10/batch_id=1449784608/part-0.parquet").exists()
    assert sales.count() == 6
    assert troubles(sales) == []


def test_empty_newest_batch_that_succeeded_empties_its_partition(lake, batches):
    empty = batches / "dt=2015-12-09" / "batch_id=1449900000"
    empty.mkdir()
    (empty / "_SUCCESS").touch()
    (batches / "dt=2015-12-11" / "batch_id=1449900000").mkdir()  # nobody has written there
    (batches / "dt=2015-12-11" / "batch_id=1449900000" / ".hidden").touch()

    sales = lake.adopt("sales", partition_by="dt")

    assert days(sales) == {"2015-12-10": 2, "2015-12-11": 0}
    assert days(sales.at(batch_id=1449800000))["2015-12-09"] == 1


@pytest.mark.parametrize("sign", ["no success", "temporary"])
def test_newest_batch_that_looks_unfinished_is_refused(lake, batches, sign):
    newest = batches / "dt=2015-12-10" / "batch_id=1449847129"
    if sign == "temporary":
        put(newest / "_temporary" / "0" / "part-1.parquet")
    else:
        (batches / "dt=2015-12-10" / "batch_id=1449784608" / "_SUCCESS").touch()

    with pytest.raises(InvalidInputError, match="looks unfinished") as caught:
        lake.adopt("sales", partition_by="dt")

    assert "dt=2015-12-10/batch_id=1449847129" in caught.value.message
    assert lake.list() == []
    if sign == "no success":
        (newest / "_SUCCESS").touch()
        assert lake.adopt("sales", partition_by="dt").count() == 6


def test_older_batch_that_is_no_history_is_left_where_it_is(lake, batches):
    other = pa.table({"n": ["text"], "at": pa.array([MOMENT], pa.timestamp("us"))})
    put(batches / "dt=2015-12-09" / "batch_id=1449700000" / "part-0.parquet", table=other)
    (batches / "dt=2015-12-10" / "batch_id=1449784608" / "part-0.parquet").write_bytes(b"cut")
    put(batches / "dt=2015-12-10" / "batch_id=1449800000" / "_temporary" / "part-1.parquet")

    found = lake.adopt("sales", partition_by="dt", dry_run=True)
    sales = lake.adopt("sales", partition_by="dt")

    left = {one.batch_id: one.reason for one in found.taken_for("left")}
    assert "another schema" in left[1449700000]
    assert "cannot be read as Parquet" in left[1449784608]
    assert "unfinished" in left[1449800000]
    assert (sales.version, sales.count()) == (1, 6)
    assert "3 files are left where they are: " in str(found)
    assert all(reason in str(found) for reason in left.values())
    sales.cleanup(older_than="0s", dry_run=False)
    assert len(list(batches.rglob("part-0.parquet"))) == 6


def test_files_beside_directories_of_batches_are_refused(lake, batches):
    put(batches / "dt=2015-12-10" / "part-9.parquet")

    with pytest.raises(InvalidInputError, match="it is unclear which is current") as caught:
        lake.adopt("sales", partition_by="dt")

    assert "dt=2015-12-10/part-9.parquet" in caught.value.message
    assert lake.adopt("sales", partition_by="dt", current="all").count() == 14


def test_history_of_very_many_reruns_is_bounded(lake, tmp_path):
    home = tmp_path / "lake" / "sales" / "dt=1"
    reruns = batch_directories.MAX_OLDER_BATCHES + 3
    put(home / "batch_id=1000000000" / "part-0.parquet", n=0)
    data = (home / "batch_id=1000000000" / "part-0.parquet").read_bytes()
    for number in range(1, reruns):
        path = home / f"batch_id={1000000000 + number}" / "part-0.parquet"
        path.parent.mkdir()
        path.write_bytes(data)

    found = lake.adopt("sales", partition_by="dt", dry_run=True)
    sales = lake.adopt("sales", partition_by="dt")

    assert [one.batch_id for one in found.taken_for("left")] == [1000000000, 1000000001]
    assert sales.version == batch_directories.MAX_OLDER_BATCHES + 1
    assert sales.count() == 2
    assert sales.at(batch_id=1000000002).count() == 2


def test_adoption_of_history_that_fails_is_never_seen_half_done(lake, batches):
    before = {path: path.read_bytes() for path in batches.rglob("*.parquet")}
    for number in range(1, 30):
        failing = lakebed.Repository(FailingStore(lake.store, fail_on="put", nth=number))
        try:
            failing.adopt("sales", partition_by="dt")
        except StorageError:
            assert not lake.exists("sales") or lake.open("sales").version == 0
            assert lake.adopt("sales", partition_by="dt", dry_run=True).taken_for("history")
        else:
            break

    assert number > 1
    assert lake.open("sales").count() == 6
    assert lake.open("sales").version == 4
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("folder", ["cleanups", "published", "postings", "hive"])
def test_folders_of_a_dataset_are_not_for_files_of_others(lake, tmp_path, folder):
    put(tmp_path / "lake" / "sales" / folder / "x.parquet")

    with pytest.raises(InvalidInputError, match=f"{folder}/ is the dataset's own"):
        lake.adopt("sales", tmp_path / "lake" / "sales" / folder)


def test_every_folder_of_a_dataset_is_its_own(lake):
    schema = pa.schema([("n", pa.int64())])
    numbers = lake.create("numbers", lakebed.DatasetDescriptor(schema=schema, index=["n"]))
    numbers.append([{"n": 1}], run="one")
    numbers.rerun([{"n": 2}], run="one", replace_all=True)
    numbers.staged.add([{"n": 3}])
    numbers.compact(metadata=True)
    numbers.kite.signal_ready()
    numbers.cleanup(older_than="0s", dry_run=False)

    found = {info.key.split("/")[1] for info in lake.store.list("numbers/")}

    # Index files for others are beside documents alone.
    assert {"data", "cleanups", "postings", "leaves" if ON_TREES else "indices"} <= found
    assert found <= {TABLE, *Folder}


@pytest.mark.parametrize("head", ["document", "tree"])
def test_files_are_adopted_into_an_empty_dataset_with_their_facts(lake, batches, head):
    """The directory of a tree has a copy of its head, and several versions add files."""
    found = lake.adopt("sales", partition_by="dt", dry_run=True)
    lake.create("sales", found.descriptor, head=head)

    sales = lake.adopt("sales", partition_by="dt")

    assert days(sales) == {"2015-12-09": 1, "2015-12-10": 2, "2015-12-11": 0}
    assert sales.version > 1
    for version in range(1, sales.version + 1):
        assert None not in [file.row_count for file in sales.at(version=version).files()]
    assert len(sales.where("n > 10000").plan().files) == 0
    assert sales.check(deep=True).is_ok


def test_plan_that_was_looked_at_is_what_is_adopted(lake, batches):
    found = lake.adopt("sales", partition_by="dt", dry_run=True)
    put(batches / "dt=2015-12-12" / "batch_id=1449900000" / "part-0.parquet")

    sales = lake.adopt("sales", found)

    assert days(sales) == {"2015-12-09": 1, "2015-12-10": 2, "2015-12-11": 0}
    with pytest.raises(InvalidInputError, match="'sales' cannot make a dataset 'more'"):
        lake.adopt("more", found)
    with pytest.raises(DatasetExistsError):
        lake.adopt("sales", found)


def test_batch_id_is_no_partition_field_to_name(lake, batches):
    with pytest.raises(PartitionSpecError, match="'batch_id' is taken") as caught:
        lake.adopt("sales", partition_by="dt, batch_id long")

    assert "Leave it out" in caught.value.hint


@pytest.mark.spark
def test_of_a_table_what_its_metastore_shows_is_current(lake, batches, spark):
    shown = batches / "dt=2015-12-10" / "batch_id=1449800000"  # not the newest
    spark.sql("CREATE DATABASE IF NOT EXISTS hive_tests")
    spark.sql(
        "CREATE TABLE hive_tests.shown (n BIGINT, at TIMESTAMP, dt STRING) USING parquet "
        f"PARTITIONED BY (dt) LOCATION 'file://{batches}'"
    )
    spark.sql(
        f"ALTER TABLE hive_tests.shown ADD PARTITION (dt='2015-12-10') LOCATION 'file://{shown}'"
    )

    sales = lake.adopt("sales", "hive_tests.shown", metastore=spark)

    assert days(sales) == {"2015-12-10": 1}
    assert [one.batch_id for one in sales.batches()] == [1449800000]
    spark.sql("DROP TABLE hive_tests.shown")
