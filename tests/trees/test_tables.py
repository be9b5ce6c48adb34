"""Tables of Delta, Iceberg and others that are taken over where they lie, or refused by name."""

import datetime as dt
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from frames import setting
from heads import head_key
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType

import lakebed
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
    NotFoundError,
)
from lakebed.store.memory import MemoryStore
from lakebed.testing import DelegatingStore, FailingStore

DAYS = [dt.date(2013, 1, 1), dt.date(2013, 1, 2), None]
ROWS = pa.table(
    {
        "dt": DAYS * 400,
        "carrier": ["a/b", "ü %", "UA", None] * 300,
        "n": pa.array(range(1200), pa.int64()),
        "at": pa.array([dt.datetime(2013, 1, 1 + n % 3, tzinfo=dt.UTC) for n in range(1200)]),
        "inner": [{"x": 1, "y": ["z"]}] * 1200,
    }
)
LIVE = ROWS.slice(0, 300)
FEATURES = "minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"


@pytest.fixture
def wh(tmp_path: Path) -> Path:
    (tmp_path / "a wh").mkdir()
    return tmp_path / "a wh"


@pytest.fixture
def lake(wh: Path) -> lakebed.Repository:
    return lakebed.open_repository(wh)


@pytest.fixture
def delta(wh: Path) -> Path:
    """A Delta table of 300 live rows of 1,500 in its files."""
    write_deltalake(wh / "d", ROWS, partition_by=["dt", "carrier"])
    write_deltalake(wh / "d", LIVE, mode="overwrite")
    return wh / "d"


@pytest.fixture
def catalog(wh: Path, tmp_path: Path) -> Iterator[SqlCatalog]:
    uri = f"sqlite:///{tmp_path}/c.db"
    with SqlCatalog("tests", uri=uri, warehouse=f"file://{wh}") as catalog:
        catalog.create_namespace("web")
        yield catalog


@pytest.fixture
def iceberg(catalog: SqlCatalog, wh: Path) -> Table:
    """An Iceberg table of 300 live rows of 1,500 in its files."""
    table = catalog.create_table("web.e", ROWS.schema, location=f"file://{wh}/e")
    with table.update_spec() as spec:
        spec.add_identity("carrier")
    table.append(ROWS)
    table.overwrite(LIVE)
    return table


def held(home: Path) -> dict[str, bytes]:
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}


def by_n(rows: pa.Table) -> list[dict]:
    return rows.select(ROWS.column_names).sort_by("n").to_pylist()


def troubles(dataset: lakebed.Dataset) -> list[object]:
    return [one for one in dataset.check().findings if one.severity != "note"]


# --- Refused as plain files


@pytest.mark.parametrize("options", [{"partition_by": "dt date, carrier"}, {}, {"kite": True}])
def test_delta_table_is_refused_as_plain_files_with_the_way_that_works(lake, delta, options):
    before = held(delta)

    with pytest.raises(InvalidInputError, match="is a table of Delta") as caught:
        lake.adopt("d", **options)

    assert "delta=True" in caught.value.hint
    assert "--delta" in caught.value.hint
    assert held(delta) == before
    assert lake.list() == []


def test_iceberg_table_is_refused_as_plain_files_with_the_way_that_works(lake, iceberg):
    with pytest.raises(InvalidInputError, match="is a table of Iceberg") as caught:
        lake.adopt("e", partition_by="carrier", dry_run=True)

    assert "iceberg=True" in caught.value.hint


def test_data_directory_of_a_table_is_refused_as_its_log_lies_above(wh, delta, iceberg):
    (delta / "inner" / "deeper").mkdir(parents=True)

    with pytest.raises(InvalidInputError, match="is a table of Iceberg") as caught:
        lakebed.open_repository(wh / "e").adopt("data", partition_by="carrier")
    assert "'e' in the repository" in caught.value.hint
    with pytest.raises(InvalidInputError, match="is a table of Delta"):
        lakebed.open_repository(wh / "d").adopt("inner")
    with pytest.raises(InvalidInputError, match="is a table of Delta"):
        lakebed.open_repository(wh / "d" / "inner").adopt("deeper")


def test_table_below_the_directory_is_refused(wh, lake, delta):
    (wh / "more").mkdir()
    shutil.move(delta, wh / "more" / "d")

    with pytest.raises(InvalidInputError, match="is a table of Delta") as caught:
        lake.adopt("more")

    assert "'d' in the repository" in caught.value.hint


@pytest.mark.parametrize("place", ["h", "h/inner", "."])
def test_hudi_table_is_refused(wh, lake, place):
    (wh / "h" / "inner").mkdir(parents=True)
    pq.write_table(LIVE, wh / "h" / "x.parquet")
    (wh / place / ".hoodie").mkdir()
    (wh / place / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=h")

    with pytest.raises(InvalidInputError, match="is a table of Hudi"):
        lake.adopt("h")


def test_directory_of_a_dataset_is_refused(wh, lake):
    flights = lake.create("flights", lakebed.DatasetDescriptor(schema=LIVE.schema))
    flights.append(LIVE)

    with pytest.raises(InvalidInputError, match="is a table of Lakebed"):
        lakebed.open_repository(wh / "flights").adopt("data")
    (wh / head_key("flights")).unlink()
    with pytest.raises(InvalidInputError, match="is a table of Lakebed") as caught:
        lake.adopt("flights")
    assert "restore its head" in caught.value.hint


def test_telemetry_tree_with_a_log_is_refused(wh, lake):
    (wh / "t" / "1").mkdir(parents=True)
    (wh / "t" / "1" / "001").write_text("a\t{}\n")
    (wh / "t" / "metadata").mkdir()
    (wh / "t" / "metadata" / "v1.metadata.json").write_text("{}")
    schema = {"version": 1, "dimensions": [{"field_name": "day", "allowed_values": "*"}]}

    with pytest.raises(InvalidInputError, match="is a table of Iceberg"):
        lake.adopt("t", telemetry=json.dumps(schema))


def test_kinds_of_tables_exclude_each_other(lake, delta):
    with pytest.raises(InvalidInputError, match="define schema and partitions themselves"):
        lake.adopt("d", delta=True, iceberg=True)
    with pytest.raises(InvalidInputError, match="define schema and partitions themselves"):
        lake.adopt("d", delta=True, partition_by="dt")


def test_import_of_the_files_of_a_table_is_refused_but_for_those_that_are_named(wh, lake, delta):
    copy = lake.create("copy", lakebed.DatasetDescriptor(schema=ROWS.schema))
    first = sorted(delta.rglob("*.parquet"))[0]

    for paths in (str(delta), f"{delta}/**/*.parquet", f"file://{delta}", str(first.parent)):
        with pytest.raises(InvalidInputError, match="is a table of Delta"):
            copy.load(paths, format="parquet")
    with pytest.raises(InvalidInputError, match="is a table of Delta"):
        lakebed.infer_schema(str(delta), format="parquet")

    assert copy.version == 0
    assert copy.load(str(first)).row_count > 0
    assert copy.arrow().column("carrier").null_count == 0


# --- Delta


def test_live_files_of_a_delta_table_become_the_dataset_in_place(lake, delta):
    before = held(delta)

    found = lake.adopt("d", delta=True, dry_run=True)
    adopted = lake.adopt("d", found)

    assert "300 rows" in str(found)
    assert "version 1 of Delta table 'd'" in str(found)
    assert "Stop all writers and cleanups" in str(found)
    assert {path: content for path, content in held(delta).items() if path in before} == before
    assert by_n(adopted.arrow()) == by_n(DeltaTable(delta).to_pyarrow_table())
    assert [str(one) for one in adopted.descriptor.partition_by] == [
        "identity(dt) as dt",
        "identity(carrier) as carrier",
    ]
    assert sum(file.row_count for file in adopted.files()) == 300
    assert len(adopted.where("carrier = 'a/b'").plan()) < len(adopted.files())
    assert troubles(adopted) == []


def test_adopted_delta_table_goes_on_and_its_own_readers_keep_their_version(lake, delta):
    adopted = lake.adopt("d", delta=True)
    shown = by_n(DeltaTable(delta).to_pyarrow_table())

    adopted.append(ROWS.slice(300, 10))
    adopted.cleanup("0s", dry_run=False)
    assert adopted.count() == 310
    assert by_n(DeltaTable(delta).to_pyarrow_table()) == shown
    adopted.compact(gather=True)
    done = adopted.publish("delta")

    assert done.is_in_step
    assert DeltaTable(delta / "data").to_pyarrow_table().num_rows == 310
    assert by_n(DeltaTable(delta).to_pyarrow_table()) == shown
    assert DeltaTable(delta).version() == 1


def test_log_with_a_checkpoint_is_read_from_any_store(delta):
    table = DeltaTable(delta)
    table.create_checkpoint()
    write_deltalake(delta, ROWS.slice(300, 5), mode="append")
    store = MemoryStore("checkpointed")
    for path, content in held(delta).items():
        if not path.endswith("00000000000000000000.json"):  # expired
            store.put(f"d/{path}", content)

    adopted = lakebed.Repository(store).adopt("d", delta=True)

    assert by_n(adopted.arrow()) == by_n(DeltaTable(delta).to_pyarrow_table())


def change(log: Path, act: Callable[[dict], None]) -> None:
    """Change the actions of a commit."""
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        act(action)
    log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def needs(*features: str) -> Callable[[dict], None]:
    def act(action: dict) -> None:
        if "protocol" in action:
            action["protocol"] = dict(zip(FEATURES, (3, 7, features, features), strict=True))

    return act


def vector(action: dict) -> None:
    needs("deletionVectors")(action)
    if "add" in action:
        action["add"]["deletionVector"] = {
            "storageType": "u",
            "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": 4,
            "sizeInBytes": 40,
            "cardinality": 1,
        }


def mapping(action: dict) -> None:
    if "metaData" in action:
        action["metaData"]["configuration"] = {"delta.columnMapping.mode": "name"}
        schema = json.loads(action["metaData"]["schemaString"])
        schema["fields"][0]["metadata"] = {
            "delta.columnMapping.id": 1,
            "delta.columnMapping.physicalName": "col-1",
        }
        action["metaData"]["schemaString"] = json.dumps(schema)
    if "protocol" in action:
        action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}


def elsewhere(action: dict) -> None:
    if "add" in action:
        action["add"]["path"] = "file:///tmp/other/x.parquet"


def longer(action: dict) -> None:
    if "add" in action:
        action["add"]["size"] += 1


def more_rows(action: dict) -> None:
    if "add" in action:
        action["add"]["stats"] = json.dumps({"numRecords": 7})


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (vector, "deletion vectors"),
        (mapping, "column mapping by name"),
        (needs("typeWidening"), "must support typeWidening"),
        (elsewhere, "lies outside"),
        (longer, "bytes, has"),
        (more_rows, "rows instead of 7"),
    ],
)
def test_delta_table_whose_files_are_not_all_it_says_is_refused_by_name(wh, lake, act, reason):
    write_deltalake(wh / "one", pa.table({"n": [1, 2, 3]}))
    change(wh / "one" / "_delta_log" / f"{0:020d}.json", act)
    before = held(wh)

    with pytest.raises(InvalidInputError, match=reason) as caught:
        lake.adopt("one", delta=True)

    assert "cannot be adopted" in caught.value.message
    assert "append" in caught.value.hint
    assert held(wh) == before


NEAR = [
    dt.datetime(2020, 1, 1, 12, 30, 5, 123000),
    dt.datetime(1969, 12, 31, 23, 59, 59),
    dt.datetime(2200, 12, 31),
    None,
]
UTC = pa.timestamp("us", "UTC")


def times_of(unit: str) -> pa.Table:
    """Times without a zone at every depth."""
    kind = pa.timestamp(unit)
    columns = {
        "c": pa.array(NEAR, kind),
        "s": pa.array([{"at": time} for time in NEAR], pa.struct([("at", kind)])),
        "l": pa.array([NEAR, [], None, [None]], pa.list_(kind)),
        "m": pa.array([[("a", time)] for time in NEAR], pa.map_(pa.string(), kind)),
        "n": [1, 2, 3, 4],
    }
    return pa.table(columns)


def as_instants(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return UTC
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_instants(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, as_instants(kind.item_type))
    return pa.list_(as_instants(kind.value_type)) if pa.types.is_list(kind) else kind


def instants_of(clocks: pa.Table) -> pa.Table:
    return clocks.cast(pa.schema([(f.name, as_instants(f.type)) for f in clocks.schema]))


def rewritten(home: Path, rows: pa.Table, row_group_size: int = 1) -> None:
    """Replace the one file of a table by other rows, as another writer writes them."""
    (log,) = (home / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            file = home / action["add"]["path"]
            pq.write_table(rows, file, row_group_size=row_group_size)
            action["add"]["size"] = file.stat().st_size
    log.write_text("\n".join(map(json.dumps, actions)))


@pytest.fixture
def clocks(wh: Path, lake: lakebed.Repository, request: pytest.FixtureRequest) -> lakebed.Dataset:
    """An adopted table whose file holds instants without a zone, several in a row group or one."""
    unit, row_group_size = request.param
    times = times_of(unit)
    write_deltalake(wh / "two", instants_of(times))
    rewritten(wh / "two", times, row_group_size)
    return lake.adopt("two", delta=True)


WITHOUT_ZONE = [(unit, size) for unit in ("ms", "us", "ns") for size in (1, 2, 10)]
# Bounds that are equal, that differ, and that are of times before and after 1970.
CONDITIONS = {
    "c > '2020-01-01T12:30:05Z'": [1, 3],
    "c <= '2020-01-01T13:30:05.123+01:00'": [1, 2],
    "c = '1969-12-31T23:59:59Z'": [2],
    "NOT (c = '1969-12-31T23:59:59Z')": [1, 3],
    "c IN ('2200-12-31T00:00:00Z', '2200-12-30T15:00:00Z')": [3],
    "c IS NULL": [4],
    "c IS NULL OR c < '1970-01-01T00:00:00Z' AND n > 1": [2, 4],
    "s.at > '2020-01-01T12:30:05Z'": [1, 3],
    "c > '2201-01-01T00:00:00Z'": [],
    "c > '2200-12-30T15:00:00Z'": [3],  # not in Tokyo, if the time were a local one
}


@pytest.mark.parametrize("clocks", WITHOUT_ZONE, indirect=True)
def test_instants_without_a_zone_in_files_of_delta_are_read_as_utc(wh, lake, clocks):
    instants = instants_of(times_of("ms"))
    row_count = clocks.count()
    rows = clocks.arrow().sort_by("n")

    assert row_count == 4
    assert rows == instants
    assert rows == DeltaTable(wh / "two").to_pyarrow_table().cast(rows.schema)
    for condition, ns in CONDITIONS.items():
        view = clocks.where(condition)
        assert sorted(view.arrow()["n"].to_pylist()) == ns, condition
        assert view.count() == len(ns), condition
        for column in ("c", "n"):  # the only column that is read, or a column beside it
            assert view.arrow(columns=[column]).num_rows == len(ns), condition
        text = condition.replace("Z'", "+00:00'")
        assert lake.sql(f"SELECT n FROM two WHERE {text}").num_rows == len(ns), condition


@pytest.mark.parametrize("clocks", [("us", 2)], indirect=True)
def test_instants_without_a_zone_are_read_through_pushed_filters(clocks):
    moment = dt.datetime(2020, 1, 1, 12, 30, 5, tzinfo=dt.UTC)
    dataset = clocks.dataset()

    assert dataset.to_table(filter=pc.field("c") > pa.scalar(moment)).num_rows == 2
    assert pl.scan_pyarrow_dataset(dataset).filter(pl.col("c") > moment).collect().height == 2
    assert duckdb.sql(f"SELECT n FROM dataset WHERE c > TIMESTAMPTZ '{moment}'").fetchall()


@pytest.mark.parametrize("clocks", [("ms", 2), ("us", 10), ("ns", 2)], indirect=True)
def test_instants_without_a_zone_are_changed_and_written_as_utc(wh, clocks):
    instants = instants_of(times_of("ms"))
    clocks.where("c > '2200-01-01T00:00:00Z'").update_rows({"n": 30})
    clocks.where("c < '1970-01-01T00:00:00Z'").delete()
    clocks.append(instants)
    clocks.compact(gather=True)

    assert sorted(clocks.arrow()["n"].to_pylist()) == [1, 1, 2, 3, 4, 4, 30]
    assert clocks.where("c > '2020-01-01T12:30:05Z'").count() == 4
    for path in clocks.dataset().files:
        assert pq.read_schema(wh / path).field("c").type == UTC
    assert [one for one in clocks.check(deep=True).findings if one.severity != "note"] == []


@pytest.mark.parametrize("clocks", [("us", 2)], indirect=True)
def test_instants_without_a_zone_are_found_by_an_index(clocks):
    clocks.indices.build("c")

    assert clocks.where("c = '1969-12-31T23:59:59Z'").arrow()["n"].to_pylist() == [2]
    assert clocks.where("c = '1969-12-31T15:00:00Z'").count() == 0


@pytest.mark.parametrize("clocks", [("us", 2)], indirect=True)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_instants_without_a_zone_are_not_published_to_other_readers(clocks, kind):
    with pytest.raises(InvalidInputError, match="Overwrite its partition"):
        clocks.publish(kind)


@pytest.mark.spark
@pytest.mark.parametrize("clocks", [("ms", 2), ("us", 10), ("ns", 1)], indirect=True)
def test_instants_without_a_zone_are_the_same_in_spark_in_any_zone(spark, lake, clocks):
    micros = [None if t is None else int(t.timestamp() * 1e6) for t in
              (t and t.replace(tzinfo=dt.UTC) for t in NEAR)]  # fmt: skip
    with setting(spark, "spark.sql.session.timeZone", "Asia/Tokyo"):
        frame = clocks.spark(spark)
        rows = frame.selectExpr(
            "n", "unix_micros(c) c", "unix_micros(s.at) s", "unix_micros(m['a']) m"
        )
        later = frame.where("c > TIMESTAMP '2020-01-01 21:30:05'")  # nine hours after UTC
        local = frame.where("s.at = TIMESTAMP '1970-01-01 08:59:59'")
        viewed = clocks.where("c > '2020-01-01T12:30:05Z'").spark(spark)

        assert [tuple(row)[1:] for row in rows.orderBy("n").collect()] == [
            (t, t, t) for t in micros
        ]
        assert (later.count(), local.count(), viewed.count()) == (2, 1, 2)
        with lakebed.spark.attach(spark, lake):
            statement = "DELETE FROM two WHERE c = TIMESTAMP '1970-01-01 08:59:59'"
            lake.sql(statement, spark, write=True)
            kept = spark.sql(
                "SELECT n FROM two WHERE c > TIMESTAMP '1970-01-01 08:59:58'"
            ).collect()
        assert sorted(row.n for row in kept) == [1, 3]


def test_clocks_that_files_hold_with_a_zone_are_refused(wh, lake):
    clocks = pa.table({"c": times_of("us")["c"]})
    write_deltalake(wh / "two", clocks)
    rewritten(wh / "two", clocks.cast(pa.schema([("c", pa.timestamp("us", "UTC"))])))

    with pytest.raises(InvalidInputError, match=r"timestamp\[us, tz=UTC\] instead of"):
        lake.adopt("two", delta=True)


def test_features_that_leave_live_files_whole_are_adopted(wh, lake):
    write_deltalake(wh / "one", pa.table({"n": [1, 2, 3]}))
    change(wh / "one" / "_delta_log" / f"{0:020d}.json", needs("deletionVectors", "timestampNtz"))

    assert lake.adopt("one", delta=True).count() == 3


def test_feature_that_the_library_does_not_know_is_told(wh, lake):
    write_deltalake(wh / "one", pa.table({"n": [1, 2, 3]}))
    change(wh / "one" / "_delta_log" / f"{0:020d}.json", needs("ofTomorrow"))

    with pytest.raises(CorruptMetadataError, match="ofTomorrow"):
        lake.adopt("one", delta=True)


def test_file_that_is_gone_is_named(wh, lake, delta):
    (wh / lake.adopt("d", delta=True, dry_run=True).files[0].key).unlink()

    with pytest.raises(InvalidInputError, match="is missing"):
        lake.adopt("d", delta=True)


def test_table_without_a_log_or_a_live_file_is_said(wh, lake, delta):
    DeltaTable(delta).delete()
    with pytest.raises(NotFoundError, match="no live file"):
        lake.adopt("d", delta=True)
    (wh / "plain").mkdir()
    with pytest.raises(NotFoundError, match="no Delta log"):
        lake.adopt("plain", delta=True)


def test_delta_table_that_is_written_to_meanwhile_is_refused(wh, lake, delta):
    found = lake.adopt("d", delta=True, dry_run=True)
    write_deltalake(delta, ROWS.slice(300, 5), mode="append")
    before = held(delta)

    with pytest.raises(CommitConflictError, match="was written to while it was adopted"):
        lake.adopt("d", found)

    assert held(delta) == before
    assert lake.list() == []
    assert lake.adopt("d", delta=True).count() == 305


def test_commit_to_the_table_at_the_last_moment_is_noticed(wh, delta):
    class Busy(DelegatingStore):
        """Another process commits to the table once the dataset has its name."""

        def _create(self, key: str, data: bytes) -> str:
            etag = super()._create(key, data)
            if key == head_key("d"):
                write_deltalake(delta, ROWS.slice(300, 5), mode="append")
            return etag

    store = lakebed.open_repository(wh).store
    with pytest.raises(CommitConflictError, match="was written to while it was adopted"):
        lakebed.Repository(Busy(store)).adopt("d", delta=True)

    lake = lakebed.open_repository(wh)
    assert lake["d"].version == 0
    assert lake.adopt("d", delta=True).count() == 305


def test_library_that_is_missing_is_named_with_its_extra(lake, delta, monkeypatch):
    monkeypatch.setitem(sys.modules, "deltalake", None)

    with pytest.raises(MissingDependencyError, match="deltalake") as caught:
        lake.adopt("d", delta=True)

    assert caught.value.extra == "delta"


@pytest.mark.parametrize("fail_on", ["put", "create", "replace"])
def test_adoption_that_fails_leaves_the_source_and_so_does_a_drop(delta, wh, fail_on):
    before = held(delta)
    for nth in range(1, 9):
        store = FailingStore(lakebed.open_repository(wh).store, fail_on=fail_on, nth=nth)
        try:
            lakebed.Repository(store).adopt("d", delta=True)
        except LakebedError:
            pass
        else:
            break
        now = held(delta)
        assert {path: now.get(path) for path in before} == before
        lake = lakebed.open_repository(wh)
        if lake.exists("d"):
            assert lake.open("d").version == 0
            lake.drop("d")
        now = held(delta)
        assert {path: now.get(path) for path in before} == before

    assert lakebed.open_repository(wh).open("d").count() == 300


# --- Iceberg


def test_live_files_of_an_iceberg_table_become_the_dataset_in_place(wh, lake, iceberg):
    before = held(wh / "e")

    adopted = lake.adopt("e", iceberg=True)

    assert by_n(adopted.arrow()) == by_n(iceberg.scan().to_arrow())
    assert {path: content for path, content in held(wh / "e").items() if path in before} == before
    assert [str(one) for one in adopted.descriptor.partition_by] == ["identity(carrier) as carrier"]
    assert troubles(adopted) == []
    adopted.append(ROWS.slice(300, 10))
    assert adopted.publish("iceberg").is_in_step
    adopted.cleanup("0s", dry_run=False)
    assert by_n(iceberg.scan().to_arrow()) == by_n(LIVE)
    assert adopted.count() == 310


def test_columns_that_were_added_since_are_read_as_null(lake, iceberg):
    with iceberg.update_schema() as schema:
        schema.add_column("more", LongType())

    adopted = lake.adopt("e", iceberg=True)

    assert set(adopted.arrow(["more"])["more"].to_pylist()) == {None}


def test_days_are_partitions_and_files_without_ids_go_by_the_name_mapping(catalog, wh, lake):
    table = catalog.create_table("web.f", ROWS.schema, location=f"file://{wh}/f")
    with table.update_spec() as spec:
        spec.add_field("at", DayTransform(), "at_day")
    (wh / "f" / "data").mkdir(exist_ok=True)
    paths = [f"{wh}/f/data/{day}.parquet" for day in range(3)]
    for day, path in enumerate(paths):
        pq.write_table(ROWS.take(list(range(day, 1200, 3))), path)
    table.add_files([f"file://{path}" for path in paths])

    adopted = lake.adopt("f", iceberg=True)

    assert [str(one) for one in adopted.descriptor.partition_by] == ["date(at) as at_day"]
    assert adopted.where("at_day = '2013-01-02'").count() == 400
    narrow = adopted.where("at >= '2013-01-02T00:00:00Z' AND at < '2013-01-03T00:00:00Z'")
    assert (narrow.count(), len(narrow.plan())) == (400, 1)
    adopted.append(ROWS.slice(0, 3))
    assert [one.row_count for one in adopted.inspect.partitions()] == [401, 401, 401]


def rename(table: Table) -> None:
    with table.update_schema() as schema:
        schema.rename_column("n", "number")


def rename_inside(table: Table) -> None:
    with table.update_schema() as schema:
        schema.rename_column("inner.x", "z")


def drop_and_add(table: Table) -> None:
    with table.update_schema() as schema:
        schema.delete_column("n")
    with table.update_schema() as schema:
        schema.add_column("n", LongType())


def change_spec(table: Table) -> None:
    with table.update_spec() as spec:
        spec.add_identity("dt")


def delete_rows(table: Table) -> None:
    """Do what engines do that delete by position: pyiceberg 0.12 does not."""

    class Deletes(ManifestWriterV2):
        def content(self) -> ManifestContent:
            return ManifestContent.DELETES

    snapshot = table.current_snapshot()
    assert snapshot is not None
    folder = f"{table.location()}/metadata"
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"{table.location()}/data/deletes.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record("UA"),
        record_count=1,
        file_size_in_bytes=10,
    )
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=snapshot.snapshot_id, data_file=file
    )
    output = table.io.new_output(f"{folder}/deletes.avro")
    with Deletes(table.spec(), table.schema(), output, snapshot.snapshot_id, "deflate") as writer:
        writer.add_entry(entry)
    manifests = [*snapshot.manifests(table.io), writer.to_manifest_file()]
    listed = table.io.new_output(f"{folder}/with-deletes.avro")
    sequence = snapshot.sequence_number
    with write_manifest_list(2, listed, snapshot.snapshot_id, None, sequence, "deflate") as out:
        out.add_manifests(manifests)
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    for one in metadata["snapshots"]:
        if one["snapshot-id"] == snapshot.snapshot_id:
            one["manifest-list"] = f"{folder}/with-deletes.avro"
    path.write_text(json.dumps(metadata))


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (rename, "'n' was renamed to 'number'"),
        (rename_inside, "'inner.x' was renamed to 'z'"),
        (drop_and_add, "'n' was dropped"),
        (change_spec, "older partition spec"),
        (delete_rows, "1 files mark rows as deleted"),
    ],
)
def test_iceberg_table_whose_files_are_not_all_it_says_is_refused_by_name(
    wh, lake, iceberg, act, reason
):
    act(iceberg)
    before = held(wh / "e")

    with pytest.raises(InvalidInputError, match=reason) as caught:
        lake.adopt("e", iceberg=True)

    assert "cannot be adopted" in caught.value.message
    assert "rewrite_data_files" in caught.value.hint
    assert held(wh / "e") == before


def test_iceberg_table_that_was_moved_is_refused(wh, lake, iceberg):
    shutil.move(wh / "e", wh / "moved")

    with pytest.raises(InvalidInputError, match="lies outside of"):
        lake.adopt("moved", iceberg=True)


def test_one_of_several_newest_metadata_must_be_named(lake, iceberg):
    newest = Path(iceberg.metadata_location.removeprefix("file://"))
    orphan = newest.with_name(f"{newest.name[:6]}{'0' * 8}.metadata.json")
    shutil.copy(newest, orphan)

    with pytest.raises(InvalidInputError, match="several newest") as caught:
        lake.adopt("e", iceberg=True)
    assert orphan.name in caught.value.message
    with pytest.raises(InvalidInputError, match="is not in"):
        lake.adopt("e", iceberg="/elsewhere/v1.metadata.json")

    assert lake.adopt("e", iceberg=f"metadata/{newest.name}", dry_run=True).notes
    assert lake.adopt("e", iceberg=iceberg.metadata_location).count() == 300


def test_iceberg_table_that_is_written_to_meanwhile_is_refused(lake, iceberg):
    found = lake.adopt("e", iceberg=True, dry_run=True)
    iceberg.append(ROWS.slice(300, 5))

    with pytest.raises(CommitConflictError, match="was written to while it was adopted"):
        lake.adopt("e", found)

    assert lake.adopt("e", iceberg=True).count() == 305


@pytest.mark.parametrize("pattern", ["*-m0.avro", "snap-*.avro"], ids=["manifest", "list"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:4] + b"\x02\x80\x80\x80\x80\x02",  # a key of 256 MiB
        lambda data: data[:-40] + bytes(24) + data[-16:],
    ],
    ids=["half", "huge", "content"],
)
def test_damaged_manifest_is_named_by_its_own_name(wh, lake, iceberg, pattern, damage):
    for path in (wh / "e" / "metadata").glob(pattern):
        path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(CorruptMetadataError, match=r"\.avro' cannot be read as a") as caught:
        lake.adopt("e", iceberg=True)

    assert "newest pyiceberg" in caught.value.hint


def test_damaged_metadata_is_named(wh, lake, iceberg):
    Path(iceberg.metadata_location.removeprefix("file://")).write_text("{")

    with pytest.raises(CorruptMetadataError, match="cannot be read as metadata of an Iceberg"):
        lake.adopt("e", iceberg=True)
