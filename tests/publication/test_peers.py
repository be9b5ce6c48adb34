"""Engines of an environment of their own read what was published: Spark 4.1 with Delta and Iceberg, DuckDB.

`make doors-env` installs it, and Spark fetches its jars.
"""

import datetime as dt
import decimal
from pathlib import Path

import pyarrow as pa
import pytest
from asking import Client
from engine_peers import NEEDS_ENGINES
from table_doors import EVERY_TYPE, EVERY_VALUE, rows_of

import lakebed
from lakebed.tables.delta import to_delta
from lakebed.web import IcebergDoor, create_app

ENGINES = ["delta-spark", "iceberg-spark", "duckdb delta", "duckdb iceberg"]
END = dt.datetime.max.replace(tzinfo=dt.UTC)  # as tables write it of what is still valid

pytestmark = [
    pytest.mark.long,
    NEEDS_ENGINES,
]


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(str(tmp_path / "lake"))


def assert_all_read(peers, dataset) -> None:
    wanted = dataset.arrow()
    names = list(wanted.schema.names)
    for engine in ENGINES:
        table = peers.read(engine, dataset)
        assert rows_of(table, names) == rows_of(wanted, names), engine


def publish(dataset) -> None:
    dataset.publish("delta")
    dataset.publish("iceberg")


def test_types_nulls_and_odd_partitions_are_read_back(peers, lake):
    schema = EVERY_TYPE.insert(0, pa.field("p", pa.string()))
    whole = {**EVERY_VALUE, "p": "a"}
    odd = ["a/b", "a=b", "%41", "ä ö", "a b", ".x", "'q\"", "null", "a\\b", "a#?&+"]
    odd += ["__HIVE_DEFAULT_PARTITION__", None, "1"]
    typed = lake.create(
        "typed",
        lakebed.DatasetDescriptor(schema=schema, partition_by="p, day, hash(long, 4) as h"),
    )
    typed.append(
        [
            whole,
            dict.fromkeys(whole),
            {**whole, "double": float("inf"), "text": "x" * 999},
            {**whole, "double": float("nan"), "float": float("-inf")},
            *({**whole, "p": p, "day": None} for p in odd),
        ]
    )
    publish(typed)

    assert_all_read(peers, typed)


def test_conditions_find_every_row_whatever_bounds_are_told(peers, lake):
    """Each row is in a file of its own, so that a bound that is misread loses it."""
    wide = decimal.Decimal("0.002")
    values = {
        "flag": (pa.bool_(), True, "flag"),
        "ratio": (pa.float64(), 0.5, "ratio = CAST('0.5' AS DOUBLE)"),
        "small": (pa.decimal128(7, 2), decimal.Decimal("-0.01"), "small = -0.01"),
        "wide": (pa.decimal128(20, 3), wide, "wide = CAST('0.002' AS DECIMAL(20, 3))"),
        "text": (pa.string(), "x" * 999, "text > 'x'"),
        "ended": (pa.timestamp("us", "UTC"), END, "ended > TIMESTAMP '9999-12-31 23:00:00Z'"),
        "clock": (pa.timestamp("us"), END.replace(tzinfo=None), "clock IS NOT NULL"),
        "record": (pa.struct([("x", pa.int64())]), {"x": 1}, "record.x = 1"),
        "later": (pa.int64(), 7, "later = 7"),
    }
    fields = [(name, kind) for name, (kind, _, _) in values.items()]
    schema = pa.schema([("n", pa.int64()), *fields[:-1]])
    typed = lake.create("typed", lakebed.DatasetDescriptor(schema=schema))
    typed.append([{"n": -1}])
    publish(typed)
    typed.evolve(
        lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64()), *fields])),
        base=typed.version,
    )
    for n, (name, (_, value, _)) in enumerate(values.items()):
        typed.append([{"n": n, name: value}])
    publish(typed)

    for engine in ENGINES:
        for n, (_, _, condition) in enumerate(values.values()):
            rows = peers.read(engine, typed, condition)
            assert rows.column("n").to_pylist() == [n], (engine, condition)


def test_schema_versions_are_read_back(peers, lake):
    old = pa.schema([("p", pa.string()), ("n", pa.int64()), ("gone", pa.string())])
    new = pa.schema([("p", pa.string()), ("n", pa.int64()), ("more", pa.float64())])
    grown = lake.create("grown", lakebed.DatasetDescriptor(schema=old, partition_by="p"))
    grown.append([{"p": "a", "n": 1, "gone": "x"}])
    publish(grown)
    grown.evolve(lambda _: lakebed.DatasetDescriptor(schema=new, partition_by="p"))
    grown.append([{"p": "b", "n": 2, "more": 1.5}])
    publish(grown)

    assert_all_read(peers, grown)


def test_promoted_fields_are_read_back_by_iceberg(peers, lake):
    kinds = {"i": (pa.int32(), pa.int64()), "f": (pa.float32(), pa.float64())}
    kinds["d"] = (pa.decimal128(7, 2), pa.decimal128(20, 2))
    grown = lake.create(
        "grown",
        lakebed.DatasetDescriptor(schema=pa.schema([(n, k[0]) for n, k in kinds.items()])),
    )
    row = {"i": 1, "f": 1.5, "d": decimal.Decimal("1.25")}
    grown.append([row])
    new = pa.schema([(n, k[1]) for n, k in kinds.items()])
    grown.evolve(lambda _: lakebed.DatasetDescriptor(schema=new))
    grown.append([{**row, "i": 2**40, "d": decimal.Decimal("123456789012.25")}])
    grown.publish("iceberg")

    wanted = grown.arrow()
    for engine in ("iceberg-spark", "duckdb iceberg"):
        table = peers.read(engine, grown)
        assert rows_of(table, wanted.schema.names) == rows_of(wanted, wanted.schema.names), engine


def test_empty_text_as_a_partition_is_read_back_by_iceberg(peers, lake):
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    odd = lake.create("odd", lakebed.DatasetDescriptor(schema=schema, partition_by="p"))
    odd.append([{"p": "", "n": 1}, {"p": None, "n": 2}])
    odd.publish("iceberg")

    wanted = rows_of(odd.arrow(), ["p", "n"])
    assert rows_of(peers.read("iceberg-spark", odd), ["p", "n"]) == wanted
    assert rows_of(peers.read("duckdb iceberg", odd), ["p", "n"]) == wanted


def test_each_verb_is_read_back(peers, lake, monkeypatch):
    """By the commits of the log, and from the middle on by its checkpoints."""
    schema = pa.schema([("p", pa.string()), ("n", pa.int64())])
    days = lake.create("days", lakebed.DatasetDescriptor(schema=schema, partition_by="p"))
    for do in (
        lambda: days.append([{"p": p, "n": n} for p in "ab" for n in range(3)], run="first"),
        lambda: days.rerun([{"p": "b", "n": 9}], run="first", replace_all=True),
        lambda: days.overwrite([{"p": "c", "n": n} for n in range(5)]),
        lambda: days.delete(days.where("n > 2")),
        lambda: days.merge([{"p": "a", "n": 1}, {"p": "d", "n": 9}], ["p", "n"], run="merge"),
        lambda: monkeypatch.setattr(to_delta, "COMMITS_A_CHECKPOINT", 1),
        lambda: days.compact(gather=True),
        lambda: days.rollback(version=1),
        lambda: days.cleanup("0s", dry_run=False),
    ):
        do()
        publish(days)
        assert_all_read(peers, days)


def test_spark_may_not_write_to_the_delta_table_nor_vacuum_it(peers, lake):
    schema = pa.schema([("n", pa.int64())])
    days = lake.create("days", lakebed.DatasetDescriptor(schema=schema))
    for n in range(3):
        days.overwrite([{"n": n}])
    days.publish("delta")
    root = days.uri.removeprefix("file://")
    files = sorted(Path(root).rglob("*.parquet"))

    for statement in (
        "VACUUM {table}",
        "SET spark.databricks.delta.retentionDurationCheck.enabled=false",
        "VACUUM {table} RETAIN 0 HOURS",
        "DELETE FROM {table} WHERE n = 2",
        "INSERT INTO {table} SELECT 1, 1",
        "UPDATE {table} SET n = 1",
    ):
        said = peers.ask(root=root, sql=statement)["said"]
        assert ("lakebed" in said) != statement.startswith("SET"), said

    # What an INSERT writes before it asks may be left over; no file of ours is gone.
    assert set(files) <= set(Path(root).rglob("*.parquet"))
    assert days.publish("delta", check=True).was_in_step


@pytest.mark.parametrize("engine", ["duckdb catalog", "spark catalog"])
@pytest.mark.parametrize("mode", ["beside", "cache", "virtual"])
def test_the_catalog_is_read(peers, tmp_path, lake, engine, mode):
    if (engine, mode) == ("duckdb catalog", "virtual"):
        pytest.skip("DuckDB plans with the manifests")
    days = [dt.date(2013, 1, 1 + number) for number in range(4)]
    schema = pa.schema([("p", pa.string()), ("day", pa.date32()), ("n", pa.int64())])
    dataset = lake.create(
        "served",
        lakebed.DatasetDescriptor(
            schema=schema,
            partition_by="p, day",
            index=["n"],
            properties={"publish.iceberg": "true"} if mode == "beside" else {},
        ),
    )
    kinds = ("a", "b/c", None)
    dataset.append([{"p": p, "day": day, "n": day.day} for p in kinds for day in days])
    metadata = str(tmp_path / "cache") if mode == "cache" else None
    client = Client(create_app(lake, iceberg=IcebergDoor(metadata=metadata)))
    try:
        for where in (
            "true",
            "n = 3",
            "p = 'b/c'",
            "p IS NULL",
            "p IS NULL AND n > 2",
            "p != 'a'",
            "day = DATE '2013-01-02'",
            "day >= DATE '2013-01-03' AND n IN (3, 9)",
            "NOT (n = 3 OR p = 'a')",
        ):
            wanted = dataset.where(where.replace("true", "n >= 0")).arrow()
            found = peers.read_at(engine, f"http://{client.place} lake.served", where)
            assert rows_of(found, schema.names) == rows_of(wanted, schema.names), where
    finally:
        client.stop()


def test_spark_writes_by_the_catalog(peers, tmp_path, lake):
    """Each statement is one commit; a rerun afterwards doubles nothing."""
    at, token = dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "a-token-for-writes"
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    dataset = lake.create(
        "written",
        lakebed.DatasetDescriptor(schema=schema, partition_by="date(at) as day", index=["id"]),
    )
    first = [{"id": number, "n": number, "at": at} for number in range(4)]
    dataset.append(first, run="a")
    dataset.append([{**row, "id": row["id"] + 10} for row in first], run="b")
    door = IcebergDoor(metadata=str(tmp_path / "cache"), allow_writes="all", write_token=token)
    client = Client(create_app(lake, iceberg=door))
    table = "{catalog}.lake.written"
    moment = "TIMESTAMP '2013-01-02 03:00:00'"
    source = "(SELECT 2L AS id, 70L AS n UNION ALL SELECT 30L, 7L)"

    def run(text: str) -> str:
        return peers.ask(catalog=f"http://{client.place}", token=token, sql=text)["said"]

    try:
        assert run(f"INSERT INTO {table} (id, n, at) VALUES (20L, 5L, {moment})") == ""
        assert dataset.where("id = 20").plan().files[0].partition["day"] == dt.date(2013, 1, 2)
        assert run(f"DELETE FROM {table} WHERE id IN (1, 11)") == ""
        assert run(f"UPDATE {table} SET n = 50 WHERE id = 20") == ""
        merge = (
            f"MERGE INTO {table} t USING {source} s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET n = s.n "
            f"WHEN NOT MATCHED THEN INSERT (id, n, at) VALUES (s.id, s.n, {moment})"
        )
        assert run(merge) == ""
        found = {row["id"]: row["n"] for row in dataset.kite.reader()}
        assert found == {0: 0, 2: 70, 3: 3, 10: 0, 12: 2, 13: 3, 20: 50, 30: 7}
        assert "several runs" in run(f"UPDATE {table} SET n = 9 WHERE id IN (3, 13)")
        rewrite = "CALL {catalog}.system.rewrite_data_files(table => 'lake.written', options => map('rewrite-all', 'true'))"
        assert "lakebed compact" in run(rewrite)
        assert "lakebed schema" in run(f"ALTER TABLE {table} ADD COLUMN x int")
        dataset.rerun(first, "a", replace_all=True)
        ids = sorted(row["id"] for row in dataset.kite.reader())
        assert ids == [0, 1, 2, 3, 10, 12, 13, 20]
        assert dataset.check().problems == ()
    finally:
        client.stop()


def test_spark_overwrites_by_the_catalog(peers, tmp_path, lake):
    """Days, the whole table, and no rows in their place: one commit each, whatever runs they were of."""
    begin, token = dt.datetime(2013, 1, 1, tzinfo=dt.UTC), "a-token-for-writes"
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    dataset = lake.create(
        "overwritten",
        lakebed.DatasetDescriptor(schema=schema, partition_by="date(at) as day", index=["id"]),
    )
    by_run = {
        run: [{"id": first + day, "n": 1, "at": begin + dt.timedelta(days=day)} for day in range(3)]
        for run, first in (("a", 0), ("b", 10))
    }
    model = dict.fromkeys(("2013-01-01", "2013-01-02", "2013-01-03"), ())
    for run, rows in by_run.items():
        dataset.append(rows, run=run)
        model = {
            day: (*ids, row["id"]) for (day, ids), row in zip(model.items(), rows, strict=True)
        }
    door = IcebergDoor(metadata=str(tmp_path / "cache"), allow_writes="all", write_token=token)
    client = Client(create_app(lake, iceberg=door))
    table = "{catalog}.lake.overwritten"

    def run(text: str) -> str:
        return peers.ask(catalog=f"http://{client.place}", token=token, sql=text)["said"]

    def rows(day: str, *ids: int, more: str = "") -> str:
        values = ", ".join(f"({one}L, 5L, TIMESTAMP '{day} 03:00:00'{more})" for one in ids)
        return f"SELECT * FROM VALUES {values}"

    def check(commits: int) -> None:
        wanted = sorted((one, day) for day, ids in model.items() for one in ids)
        found = sorted((row["id"], str(row["at"].date())) for row in dataset.kite.reader())
        assert found == wanted
        assert dataset.version == 2 + commits

    whole = f"INSERT OVERWRITE {table} (id, n, at)"
    first, second, third = model
    try:
        # A static overwrite of a day. The column that Lakebed computes may be null.
        assert (
            run(
                f"INSERT INTO {table} REPLACE WHERE day = DATE '{second}' "
                f"{rows(second, 50, 51, 52, more=', NULL')}"
            )
            == ""
        )
        model[second] = (50, 51, 52)
        check(1)

        # By partitions: the days of the rows.
        assert run("SET spark.sql.sources.partitionOverwriteMode=dynamic") == ""
        for commits in (2, 3):
            assert run(f"{whole} {rows(third, 60, 61)}") == ""
            model[third] = (60, 61)
            check(commits)
        assert run(f"{whole} {rows(third, 62)} WHERE false") == ""  # no row, so no day
        check(3)
        assert run("SET spark.sql.sources.partitionOverwriteMode=static") == ""

        # A rerun brings its rows of the days back that were overwritten, and doubles no others.
        dataset.rerun(by_run["a"], "a", replace_all=True)
        for row, day in zip(by_run["a"], model, strict=True):
            model[day] = tuple({*model[day], row["id"]})
        check(4)

        # As many rows as there were might be changed ones.
        assert "lakebed.overwrite=true" in run(
            f"INSERT INTO {table} REPLACE WHERE day = DATE '{first}' "
            f"{rows(first, 70, 71, more=', NULL')}"
        )
        check(4)
        assert run("SET `spark.sql.iceberg.snapshot-property.lakebed.overwrite`=true") == ""
        assert (
            run(
                f"INSERT INTO {table} REPLACE WHERE day = DATE '{first}' "
                f"{rows(first, 70, 71, more=', NULL')}"
            )
            == ""
        )
        assert run("RESET `spark.sql.iceberg.snapshot-property.lakebed.overwrite`") == ""
        model[first] = (70, 71)
        check(5)

        # All rows, and none in their place.
        assert run(f"{whole} {rows(first, 80)}") == ""
        model = {first: (80,)}
        check(6)
        assert run(f"{whole} {rows(first, 80)} WHERE false") == ""
        model = {}
        check(7)
        assert "NON_PARTITION_COLUMN" in run(
            f"INSERT OVERWRITE {table} PARTITION (day = DATE '{first}') (id, n, at) "
            f"{rows(first, 90)}"
        )
        assert dataset.check().problems == ()
    finally:
        client.stop()
