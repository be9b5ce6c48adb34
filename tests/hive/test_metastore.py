"""Publishing to a Thrift metastore, which other processes read."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from table_doors import EVERY_TYPE, EVERY_VALUE

import lakebed

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

PARTITIONS = [f"2013-01-{n:02}" for n in range(1, 7)]


def fill(dataset: lakebed.Dataset, batch: int, partitions: list[str]) -> None:
    rows = [{"dt": one, "batch": batch, "n": n} for one in partitions for n in range(10)]
    dataset.overwrite(rows)


def told(hive, table: str) -> dict[str, tuple[str, str]]:
    rows = hive.sql(f"SELECT dt, count(*), max(batch) FROM {table} GROUP BY dt")
    return {dt: (count, batch) for dt, count, batch in rows}


@pytest.fixture
def publish(hive, lake, days):
    """Publish `days` in the other process."""

    def publish(table: str, **options):
        directory = lake.uri.removeprefix("file://")
        return hive("publish", lake=directory, name="days", table=table, **options)

    return publish


@pytest.mark.thorough
def test_a_rerun_is_seen_at_once_and_the_old_batch_stays(hive, publish, days):
    odd = ["a/b", "ä€", "q'uo\\te", "100%"]
    fill(days, 1, [*odd, "x"])
    first = publish("lake.e1")
    fill(days, 2, odd[:2])
    days.delete(days.where("dt = 'x'"))

    second = publish("lake.e1")

    assert (first["created"], len(first["added"])) == (True, 5)
    assert (len(second["changed"]), second["dropped"]) == (2, ["dt=x"])
    assert told(hive, "lake.e1") == {
        **dict.fromkeys(odd[:2], ("10", "2")),
        **dict.fromkeys(odd[2:], ("10", "1")),
    }
    assert publish("lake.e1", check=True)["is_in_step"]
    assert days.at(version=1).count() == 50
    publish("lake.e1b", mode="batches")
    assert hive.sql("SELECT count(DISTINCT batch_id), count(*) FROM lake.e1b") == [["2", "40"]]


def test_what_users_do_to_the_table_is_harmless_or_found_and_undone(hive, publish, days):
    fill(days, 1, PARTITIONS[:2])
    publish("lake.users")
    fill(days, 2, PARTITIONS[:1])
    publish("lake.users")
    before = told(hive, "lake.users")

    # The directories of the dataset are no partitions of the table's own directory.
    hive.sql("MSCK REPAIR TABLE lake.users")
    assert told(hive, "lake.users") == before
    assert publish("lake.users", check=True)["is_in_step"]
    hive.sql(
        f"INSERT OVERWRITE lake.users PARTITION (dt='{PARTITIONS[0]}') SELECT 9 AS batch, 9 AS n"
    )

    found = publish("lake.users", check=True)
    assert len(found["damaged"]) == 1
    assert "missing" in found["damaged"][0]
    # All but the batch that was shown is still there.
    days.rollback(version=1)
    publish("lake.users")
    assert told(hive, "lake.users") == dict.fromkeys(PARTITIONS[:2], ("10", "1"))


@pytest.mark.long
def test_drift_is_found_and_mended(hive, publish, days):
    fill(days, 1, PARTITIONS[:3])
    publish("lake.drift")
    hive.sql(f"ALTER TABLE lake.drift DROP PARTITION (dt='{PARTITIONS[0]}')")
    hive.sql(
        f"ALTER TABLE lake.drift PARTITION (dt='{PARTITIONS[1]}') SET LOCATION 'file:///nowhere'"
    )
    hive.sql("ALTER TABLE lake.drift ADD COLUMNS (stray INT)")

    drift = publish("lake.drift", check=True)
    mended = publish("lake.drift", repair=True)

    assert drift["added"] == mended["added"] == [f"dt={PARTITIONS[0]}"]
    assert drift["changed"] == mended["changed"] == [f"dt={PARTITIONS[1]}"]
    assert drift["schema_changes"] == ["column stray int is not of the dataset"]
    assert publish("lake.drift", check=True)["is_in_step"]
    assert told(hive, "lake.drift") == dict.fromkeys(PARTITIONS[:3], ("10", "1"))


def test_each_partition_is_one_whole_batch_in_every_read(hive, lake, days):
    fill(days, 0, PARTITIONS)
    directory = lake.uri.removeprefix("file://")
    hive("publish", lake=directory, name="days", table="lake.race")

    found = hive(
        "race",
        lake=directory,
        name="days",
        table="lake.race",
        batches=[1, 2, 3, 4],
        partitions=PARTITIONS,
    )

    assert found["wrong"] == []
    assert found["reads"] >= 3
    assert found["seen"][f"{len(PARTITIONS)} partitions"] == found["reads"]
    assert told(hive, "lake.race") == dict.fromkeys(PARTITIONS, ("10", "4"))


def test_table_is_adopted_where_it_lies(hive, lake):
    directory = lake.uri.removeprefix("file://")
    hive.sql("CREATE DATABASE IF NOT EXISTS lake")
    hive.sql(
        "CREATE EXTERNAL TABLE lake.old (n BIGINT, at TIMESTAMP) "
        f"PARTITIONED BY (dt DATE, k STRING) STORED AS PARQUET LOCATION 'file://{directory}/old'"
    )
    hive.sql(
        "INSERT INTO lake.old PARTITION (dt=DATE'2013-01-01', k='a/b') "
        "SELECT 1, TIMESTAMP'2013-01-01 05:00:00'"
    )
    hive.sql(
        "INSERT INTO lake.old PARTITION (dt=DATE'2013-01-02', k='ä') "
        "SELECT id, TIMESTAMP'2013-01-02 05:00:00' FROM range(3)"
    )

    found = hive("adopt", lake=directory, name="old", table="lake.old")

    assert found["rows"] == 4
    assert found["schema"] == ["n: long", "at: timestamp", "dt: date", "k: string"]
    dataset = lake.open("old")
    assert {one["k"] for one in dataset.where("dt = '2013-01-02'").kite.reader()} == {"ä"}
    done = hive("publish", lake=directory, name="old", table="lake.old_again")
    assert len(done["added"]) == 2
    columns = "n, at, dt, k"
    assert sorted(hive.sql(f"SELECT {columns} FROM lake.old_again")) == sorted(
        hive.sql(f"SELECT {columns} FROM lake.old")
    )


@pytest.mark.long
def test_embedded_metastore_keeps_to_its_directory(lake, days, tmp_path):
    fill(days, 1, PARTITIONS[:2])
    here = tmp_path / "here"
    here.mkdir()
    command = [sys.executable, "-m", "lakebed", "publish", "hive", f"{lake.uri}/days", "-o", "json"]
    command += ["--table", "lake.days", "--warehouse", str(tmp_path / "hive")]

    done = subprocess.run(
        command,
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["added"] == [f"dt={one}" for one in PARTITIONS[:2]]
    assert list(here.iterdir()) == []
    assert (tmp_path / "hive" / "metastore_db").is_dir()


@pytest.mark.long
def test_readers_see_whole_batches_for_a_minute_of_reruns(lake, days, hive, start_worker, tmp_path):
    partitions = [f"p{n:03}" for n in range(150)]
    directory = lake.uri.removeprefix("file://")
    stop = tmp_path / "stop"
    fill(days, 0, partitions)
    hive("publish", lake=directory, name="days", table="lake.minute")
    reader = start_worker()
    reader.begin("read", table="lake.minute", stop=str(stop), seconds=600)

    began, versions, batch = time.monotonic(), 0, 0
    while batch < 20 or time.monotonic() - began < 60:
        batch += 1
        rows = [{"dt": one, "batch": batch, "n": n} for one in partitions for n in range(10)]
        days.rerun(rows, run="all", replace_all=True) if batch > 1 else days.overwrite(
            rows, run="all"
        )
        hive("publish", lake=directory, name="days", table="lake.minute")
        days.cleanup(older_than="30s", dry_run=False, published="noted")
        seen = lakebed.open_repository(Path(directory)).open("days").arrow(columns=["batch"])
        assert seen.num_rows == 1500
        assert len(set(seen.column("batch").to_pylist())) == 1
        versions += 1
    stop.touch()

    found = reader.end()
    assert found["wrong"] == []
    assert found["seen"]["150 partitions"] == found["reads"] >= 5
    assert told(hive, "lake.minute") == dict.fromkeys(partitions, ("10", str(batch)))
    assert days.check().findings == ()
    checked = hive("publish", lake=directory, name="days", table="lake.minute", check=True)
    assert checked["is_in_step"]


def test_avro_is_published_and_read_by_hives_own_reader(hive, lake):
    """Spark's reader of Avro is another package; Hive's is part of pyspark."""
    kinds = [(name, kind) for name, kind in zip(EVERY_TYPE.names, EVERY_TYPE.types, strict=True)]
    schema = pa.schema([(n, k) for n, k in kinds if n not in ("day", "instant", "clock")])
    descriptor = lakebed.DatasetDescriptor(
        schema=schema.append(pa.field("dt", pa.string())), partition_by="dt", format="avro"
    )
    dataset = lake.create("avro", descriptor)
    whole = {name: EVERY_VALUE[name] for name in schema.names}
    dataset.append([{**whole, "dt": "a"}, {"dt": "b", "long": 7}])

    def publish(**options):
        directory = lake.uri.removeprefix("file://")
        return hive("publish", lake=directory, name="avro", table="lake.avro", **options)

    assert (publish()["created"], publish(check=True)["is_in_step"]) == (True, True)
    columns = "`boolean`, `long`, `text`, `date`, `small`, `big`, `list`, `map`, `structs`"
    (found,) = hive.sql(f"SELECT {columns} FROM lake.avro WHERE dt = 'a'")
    assert found == [
        *("True", str(2**63 - 1), whole["text"], "1969-12-31", "-12345.67"),
        *("1234567890123456789012345678.0123456789", "[1, None, 3]", "{'a': 1.5, 'b': None}"),
        "[Row(x=None, y=None), Row(x=2, y=[])]",
    ]
    assert hive.sql("SELECT `long`, `text`, dt FROM lake.avro WHERE `long` = 7") == [
        ["7", "None", "b"]
    ]
    dataset.overwrite([{"dt": "b", "long": 8}])
    assert publish()["changed"] == ["dt=b"]
    assert hive.sql("SELECT `long` FROM lake.avro WHERE dt = 'b'") == [["8"]]

    fields = lakebed.DatasetDescriptor(schema=pa.schema([("more", pa.int64())])).schema.fields
    dataset.evolve(
        lambda old: lakebed.DatasetDescriptor(
            schema=dataclasses.replace(old.schema, fields=(*old.schema, *fields)),
            partition_by=old.partition_by,
            format="avro",
        )
    )
    dataset.overwrite([{"dt": "b", "long": 9, "more": 1}])
    with pytest.raises(AssertionError, match="cannot be changed in place"):
        publish()
    hive.sql("DROP TABLE lake.avro")
    publish()
    assert hive.sql("SELECT `long`, more FROM lake.avro ORDER BY `long`") == [
        ["9", "1"],
        [str(2**63 - 1), "None"],
    ]


def test_upper_case_names_in_avro_are_read_by_hives_own_reader(hive, lake):
    """The user of the first document: `userId`; also inside records, lists and maps."""
    user = {
        "type": "record",
        "name": "User",
        "fields": [
            {"name": "userId", "type": "long"},
            {"name": "username", "type": "string", "doc": 'it\'s; a "name"'},
            {
                "name": "homeTowns",
                "type": {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Town",
                        "fields": [{"name": "zipCode", "type": ["null", "string"]}],
                    },
                },
            },
            {"name": "dt", "type": "string"},
        ],
    }
    dataset = lake.create("users", lakebed.DatasetDescriptor(
        schema=user, partition_by="dt", format="avro"
    ))  # fmt: skip
    row = {"userId": 1234, "username": "u1234", "homeTowns": [{"zipCode": "8000"}, {}], "dt": "a"}
    dataset.append([row, {**row, "userId": 5, "dt": "b"}])
    directory = lake.uri.removeprefix("file://")

    def publish(table, **options):
        return hive("publish", lake=directory, name="users", table=table, **options)

    assert (publish("lake.users")["created"], publish("lake.users", check=True)["is_in_step"]) == (
        True,
        True,
    )
    for statement in dataset.publish("hive", table="lake.u2", print_sql=True):
        hive.sql(statement)
    for table in ("lake.users", "lake.u2"):
        query = f"SELECT userId, username, homeTowns[0].zipCode, dt FROM {table} ORDER BY userId"
        assert hive.sql(query) == [["5", "u1234", "8000", "b"], ["1234", "u1234", "8000", "a"]]
        assert hive.sql(f"SELECT count(*) FROM {table} WHERE userId = 1234") == [["1"]]


def test_a_hive_table_of_avro_is_adopted(hive, lake):
    home = f"{lake.uri}/old_avro"
    hive.sql(
        "CREATE TABLE lake.old_avro (n bigint, name string, day date, price decimal(9,2)) "
        f"PARTITIONED BY (p string) STORED AS AVRO LOCATION '{home}'"
    )
    hive.sql("INSERT INTO lake.old_avro PARTITION (p='x/y') VALUES (1, 'ä', DATE'2013-01-01', 1.5)")
    hive.sql("INSERT INTO lake.old_avro PARTITION (p='b') VALUES (2, NULL, NULL, NULL)")

    done = hive(
        "adopt", lake=lake.uri.removeprefix("file://"), name="old_avro", table="lake.old_avro"
    )

    assert done["rows"] == 2
    assert done["schema"] == [
        "n: long",
        "name: string",
        "day: date",
        "price: decimal(9, 2)",
        "p: string",
    ]
    dataset = lake.open("old_avro")
    assert dataset.descriptor.format == "avro"
    dataset.append([{"n": 3, "p": "c"}])
    rows = sorted(dataset.arrow().to_pylist(), key=lambda row: row["n"])
    assert [(row["n"], row["name"], row["p"]) for row in rows] == [
        (1, "ä", "x/y"),
        (2, None, "b"),
        (3, None, "c"),
    ]
