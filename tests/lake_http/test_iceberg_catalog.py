"""The Iceberg catalog over HTTP: rows that clients get by its plans, and what it refuses."""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import json
import random
import sys
import time
import uuid
import zlib
from base64 import urlsafe_b64encode
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pytest
from asking import Answer, Client
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions as ie
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import BadRequestError, NoSuchTableError
from table_doors import EVERY_TYPE, EVERY_VALUE, rows_of

import lakebed
from lakebed import by
from lakebed.cli import main
from lakebed.errors import InvalidInputError, InvalidNameError, MissingDependencyError
from lakebed.model.allowed import read_allowed
from lakebed.model.dimensions import DimensionRule
from lakebed.model.predicate import FALSE
from lakebed.model.schema import Kind, Primitive
from lakebed.tables.iceberg import catalog_plans
from lakebed.tables.iceberg.catalog_tables import CatalogTables
from lakebed.tables.iceberg.pushed_filters import translate
from lakebed.web import IcebergDoor, create_app

MODES = ("virtual", "cache", "beside")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("kind", pa.string()),
        ("n", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(9, 2)),
        ("ratio", pa.float64()),
        ("flag", pa.bool_()),
    ]
)
TABLE = "/v1/lake/namespaces/lake/tables/events"
BEGIN = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)


def event(number: int) -> dict[str, object]:
    """Return a row, with nulls in every column now and then."""
    moment = BEGIN + dt.timedelta(hours=7 * number)
    row = {
        "id": f"u{number:04d}",
        "kind": ("click", "view", "buy", "z/%=ä")[number % 4],
        "n": number - 50,
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "price": decimal.Decimal(number * 37) / 100,
        "ratio": float("nan") if number % 11 == 5 else number / 8 - 3,
        "flag": number % 3 == 0,
    }
    lost = list(row)[number % 9 : number % 9 + 1]
    return {name: None if name in lost and name != "at" else value for name, value in row.items()}


def fill(lake, name: str, properties=None) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA,
        partition_by=["kind", "date(at) as day"],
        index=["id"],
        properties=properties or {},
    )
    dataset = lake.create(name, descriptor)
    for begin in range(0, 120, 40):
        dataset.append([event(number) for number in range(begin, begin + 40)], run=f"r{begin}")
    return dataset


class Door:
    """A served lake, and clients of it."""

    def __init__(self, folder, mode: str, **options) -> None:
        self.mode = mode
        self.lake = lakebed.open_repository(str(folder / "lake"))
        self.properties = {"publish.iceberg": "true"} if mode == "beside" else {}
        metadata = str(folder / "cache") if mode == "cache" else None
        app = create_app(self.lake, iceberg=IcebergDoor(metadata=metadata), **options)
        self.client = Client(app)
        self.token = options.get("token")

    def catalog(self, **properties: str):
        own = {} if self.token is None else {"token": self.token}
        return load_catalog(
            uuid.uuid4().hex, type="rest", uri=f"http://{self.client.place}", **own, **properties
        )

    def table(self, name: str = "events"):
        return self.catalog().load_table(f"lake.{name}")

    def post(self, path: str, body: object, headers=None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.ask(path, "POST", headers or {}, data)

    def plan(self, condition: object = None, **more: object) -> list[dict]:
        asked = {**more} if condition is None else {"filter": condition, **more}
        answer = self.post(f"{TABLE}/plan", asked)
        assert answer.status == 200, answer.text
        document = json.loads(answer.body)
        assert document["status"] == "completed"
        return document["file-scan-tasks"]

    def numbers(self, condition: object, **more: object) -> set[int]:
        """Return the first files' rows: the numbers of rows in the planned files."""
        paths = [task["data-file"]["file-path"] for task in self.plan(condition, **more)]
        return {
            int(text[1:])
            for path in paths
            for text in pa.parquet.read_table(path.removeprefix("file://"))["id"].to_pylist()
            if text is not None
        }


@pytest.fixture(scope="module", autouse=True)
def _planner():
    # Polars warns where its own planner is not installed.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        yield


@pytest.fixture(scope="module", params=MODES)
def door(request, tmp_path_factory):
    door = Door(tmp_path_factory.mktemp(request.param), request.param)
    fill(door.lake, "events", door.properties)
    return door


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    door = Door(tmp_path_factory.mktemp("one"), "virtual")
    fill(door.lake, "events")
    return door


# Clients


def test_pyiceberg_lists_and_loads(door) -> None:
    catalog = door.catalog()

    assert catalog.list_namespaces() == [("lake",)]
    assert catalog.list_tables("lake") == [("lake", "events")]
    assert catalog.namespace_exists("lake")
    assert not catalog.namespace_exists("other")
    assert catalog.table_exists("lake.events")
    assert not catalog.table_exists("lake.other")
    assert catalog.supports_server_side_planning()
    with pytest.raises(NoSuchTableError):
        catalog.load_table("lake.other")


def test_pyiceberg_reads_all_rows(door) -> None:
    wanted = door.lake.open("events").select(*SCHEMA.names, "day", "batch_id").arrow()
    found = door.table().scan().to_arrow()

    assert rows_of(found, wanted.schema.names) == rows_of(wanted, wanted.schema.names)


@pytest.mark.parametrize("reader", ["native", "pyiceberg"])
def test_polars_reads_and_filters(door, reader) -> None:
    frame = pl.scan_iceberg(door.table(), reader_override=reader)

    assert frame.collect().height == 120
    assert frame.filter(pl.col("id") == "u0030").collect()["n"].to_list() == [-20]
    clicks = frame.filter(pl.col("kind") == "click").select("n").collect()
    wanted = door.lake.open("events").where("kind = 'click'").count()
    assert clicks.height == wanted


def test_the_index_leaves_one_file(door) -> None:
    table = door.table()
    scan = table.scan("id = 'u0030'")

    assert len(list(scan.plan_files())) == 1
    assert len(list(table.scan().plan_files())) > 50
    assert scan.to_arrow()["n"].to_pylist() == [-20]


def test_without_plans_rows_are_the_same(door) -> None:
    if door.mode == "virtual":
        pytest.skip("there are no manifests")
    table = door.catalog(**{"scan-planning-mode": "client"}).load_table("lake.events")

    assert not table.catalog.supports_server_side_planning()
    assert table.scan("id = 'u0030'").to_arrow()["n"].to_pylist() == [-20]
    assert table.scan().count() == 120


def test_a_commit_is_visible_at_the_next_load(door) -> None:
    dataset = fill(door.lake, "fresh", door.properties)
    catalog = door.catalog()
    for number in range(3):
        before = catalog.load_table("lake.fresh")
        dataset.append([event(500 + number)])
        after = catalog.load_table("lake.fresh")

        assert after.scan(f"id = 'u{500 + number:04d}'").count() == 1
        assert after.scan().count() == 121 + number
        pinned = before.scan(snapshot_id=before.metadata.current_snapshot_id)
        assert pinned.count() == 120 + number


def test_a_snapshot_is_as_old_as_its_commit(door) -> None:
    """Readers that begin after a commit see it, although the metadata may be younger than they."""
    dataset = fill(door.lake, "timed", door.properties)
    for number in range(2):
        dataset.append([event(500 + number)])
        began = int(time.time() * 1000) + 1
        time.sleep(0.01)
        metadata = door.table("timed").metadata

        assert metadata.current_snapshot().timestamp_ms <= began
        assert metadata.last_updated_ms <= began
        moments = [entry.timestamp_ms for entry in metadata.snapshot_log]
        assert moments == sorted(set(moments))


def test_time_travel_reads_the_rows_of_then(door) -> None:
    dataset = fill(door.lake, "past", door.properties)
    catalog = door.catalog()
    first = catalog.load_table("lake.past").metadata.current_snapshot_id
    dataset.where("kind = 'click'").delete()
    dataset.append([event(300)])
    table = catalog.load_table("lake.past")

    assert table.scan().count() == dataset.count()
    assert table.scan("kind = 'click'").count() == dataset.where("kind = 'click'").count()
    assert table.scan("kind = 'click'", snapshot_id=first).count() > 0
    assert table.scan(snapshot_id=first).count() == 120


def test_a_virtual_snapshot_has_the_number_of_its_version(virtual) -> None:
    dataset = fill(virtual.lake, "numbered")
    table = virtual.table("numbered")

    assert [one.snapshot_id for one in table.metadata.snapshots] == [1, 2, 3]
    for version in (1, 2, 3):
        assert table.scan(snapshot_id=version).count() == dataset.at(version=version).count()


def test_versions_that_were_cleaned_up_are_not_listed(virtual) -> None:
    dataset = fill(virtual.lake, "cleaned")
    dataset.where("kind = 'click'").delete()
    dataset.cleanup(dt.timedelta(0), dry_run=False)
    table = virtual.table("cleaned")

    horizon = dataset.version - len(table.metadata.snapshots) + 1
    assert horizon > 1
    for snapshot in table.metadata.snapshots:
        version = snapshot.snapshot_id
        assert table.scan(snapshot_id=version).count() == dataset.at(version=version).count()
    answer = virtual.post("/v1/lake/namespaces/lake/tables/cleaned/plan", {"snapshot-id": 1})
    assert answer.status == 400
    assert "has no snapshot 1" in answer.text


def rerouted(lake, name: str, *steps: str) -> lakebed.Dataset:
    """Return a dataset whose levels were the dimensions of each of these lists of fields."""
    allowed = {"kind": ["buy"], "flag": "*"}
    asked = [step.split(",") for step in steps]
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension(one, allowed[one]) for one in asked[0]]
    )
    dataset = lake.create(name, descriptor)
    dataset.append([event(number) for number in range(8)])
    for step in asked[1:]:
        rules = [
            DimensionRule(field_name=one, allowed=read_allowed(allowed[one], one)) for one in step
        ]
        dataset.dimensions.promote(lakebed.DimensionSchema(dimensions=tuple(rules)), reroute=True)
    return dataset


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        (["kind,flag", "flag,kind"], [1, 2]),
        (["kind", "flag"], [2]),
        (["kind", "flag,kind"], [2]),
        (["kind,flag", "flag"], [2]),
        (["kind,flag", "flag", "kind,flag"], [1, 3]),
    ],
    ids=lambda given: "-".join(map(str, given)),
)
def test_versions_with_other_levels_are_not_listed(virtual, steps, shown) -> None:
    name = f"rerouted-{uuid.uuid4().hex}"
    dataset = rerouted(virtual.lake, name, *steps)
    table = virtual.table(name)

    assert [one.snapshot_id for one in table.metadata.snapshots] == shown
    levels = [one.name for one in dataset.descriptor.partition_by]
    columns = ["id", *levels]
    for version in shown:
        found = table.scan(snapshot_id=version).to_arrow()
        assert rows_of(found, columns) == rows_of(
            dataset.at(version=version).arrow(columns), columns
        )


def test_a_field_that_was_added_is_read_in_all_versions(door) -> None:
    dataset = fill(door.lake, "evolved", door.properties)
    catalog = door.catalog()
    first = catalog.load_table("lake.evolved").metadata.current_snapshot_id
    dataset.evolve(lambda old: old.add_field("note", "string"))
    dataset.append([{**event(200), "note": "new"}])
    dataset.evolve(lambda old: old.drop_field("flag"))
    table = catalog.load_table("lake.evolved")

    assert table.scan("note = 'new'").to_arrow()["id"].to_pylist() == ["u0200"]
    assert table.scan("note is null").count() == 120
    old = table.scan(snapshot_id=first).to_arrow()
    assert old.num_rows == 120
    assert "flag" in old.schema.names
    assert "note" not in old.schema.names


def test_an_empty_dataset_has_no_rows(door) -> None:
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, properties=door.properties)
    door.lake.create("empty", descriptor)

    assert door.table("empty").scan("id = 'x'").to_arrow().num_rows == 0


def test_every_type_and_null_comes_through(door) -> None:
    descriptor = lakebed.DatasetDescriptor(
        schema=EVERY_TYPE, partition_by="day", properties=door.properties
    )
    dataset = door.lake.create("types", descriptor)
    nulls = dict.fromkeys(EVERY_VALUE)
    empty = {**nulls, "day": EVERY_VALUE["day"], "structs": []}
    dataset.append([dict(EVERY_VALUE), {**nulls, "structs": []}, empty])
    found = door.table("types").scan().to_arrow()

    wanted = dataset.arrow()
    assert rows_of(found, wanted.schema.names) == rows_of(wanted, wanted.schema.names)


PARTITIONS = {
    "text": (pa.string(), [None, "a", "", "ä/%=&'+ #?", "__HIVE_DEFAULT_PARTITION__"]),
    "day": (pa.date32(), [None, dt.date(1969, 12, 31), dt.date(2013, 1, 3)]),
    "int": (pa.int32(), [None, -1, 0, 2**31 - 1]),
    "long": (pa.int64(), [None, -(2**63), 5]),
    "flag": (pa.bool_(), [None, True, False]),
}


@pytest.mark.parametrize("name", PARTITIONS)
def test_partitions_of_every_type_and_null(virtual, name) -> None:
    kind, values = PARTITIONS[name]
    schema = pa.schema([("part", kind), ("other", pa.string()), ("n", pa.int64())])
    dataset = virtual.lake.create(
        f"by_{name}",
        lakebed.DatasetDescriptor(schema=schema, partition_by=["part", "other"]),
    )
    rows = [
        {"part": value, "other": other, "n": number}
        for number, value in enumerate(values)
        for other in (None, "x")
    ]
    dataset.append(rows)
    table = virtual.table(f"by_{name}")

    for frame in (
        table.scan().to_arrow(),
        pl.scan_iceberg(table, reader_override="native").collect().to_arrow(),
    ):
        assert rows_of(frame, schema.names) == rows_of(dataset.arrow(), schema.names)
    assert sorted(table.scan("part is null").to_arrow()["n"].to_pylist()) == [0, 0]
    for number, value in list(enumerate(values))[1:]:
        found = table.scan(ie.EqualTo("part", value)).to_arrow()
        assert sorted(found["n"].to_pylist()) == [number, number]


def test_a_scan_that_pyiceberg_would_answer_wrongly_is_refused(virtual) -> None:
    table = virtual.table()

    with pytest.raises(BadRequestError, match="would find no rows"):
        table.scan("kind = 'click'", selected_fields=("n",)).to_arrow()
    selected = table.scan("kind = 'click'", selected_fields=("n", "kind")).to_arrow()
    assert selected.num_rows == virtual.lake.open("events").where("kind = 'click'").count()


def test_files_that_hold_their_partitions_answer_it(tmp_path) -> None:
    door = Door(tmp_path, "beside")
    dataset = fill(door.lake, "events", door.properties)
    found = door.table().scan("kind = 'click'", selected_fields=("n",)).to_arrow()

    assert found.num_rows == dataset.where("kind = 'click'").count()


# Conditions

_COLUMNS = {
    "id": st.integers(-3, 130).map(lambda number: f"u{number:04d}"),
    "kind": st.sampled_from(["click", "view", "buy", "z/%=ä", "none"]),
    "n": st.integers(-60, 80),
    "day": st.dates(dt.date(2012, 12, 30), dt.date(2013, 2, 10)),
    "at": st.datetimes(dt.datetime(2012, 12, 30), dt.datetime(2013, 2, 10)).map(
        lambda moment: moment.replace(tzinfo=dt.UTC)
    ),
    "local": st.integers(-1, 125).map(
        lambda number: BEGIN.replace(tzinfo=None) + dt.timedelta(hours=7 * number)
    ),
    "price": st.integers(-100, 4500).map(lambda cents: decimal.Decimal(cents).scaleb(-2)),
    "ratio": st.integers(-30, 100).map(lambda number: number / 8),
    "flag": st.booleans(),
}
_COMPARED = (
    ie.EqualTo,
    ie.NotEqualTo,
    ie.LessThan,
    ie.LessThanOrEqual,
    ie.GreaterThan,
    ie.GreaterThanOrEqual,
)


@st.composite
def _leaf(draw):
    column = draw(st.sampled_from(sorted(_COLUMNS)))
    values = _COLUMNS[column]
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return draw(st.sampled_from([ie.IsNull, ie.NotNull]))(column)
    if kind == 1:
        listed = draw(st.sets(values, min_size=1, max_size=4))
        return draw(st.sampled_from([ie.In, ie.NotIn]))(column, listed)
    if kind == 2 and column in ("id", "kind"):
        prefix = draw(st.sampled_from(["u00", "u01", "c", "z/"]))
        return draw(st.sampled_from([ie.StartsWith, ie.NotStartsWith]))(column, prefix)
    if kind == 3:
        return draw(st.sampled_from([ie.IsNaN, ie.NotNaN]))("ratio")
    if column == "flag":
        return draw(st.sampled_from([ie.EqualTo, ie.NotEqualTo]))(column, draw(values))
    return draw(st.sampled_from(_COMPARED))(column, draw(values))


conditions = st.recursive(
    _leaf(),
    lambda inner: (
        st.builds(ie.And, inner, inner) | st.builds(ie.Or, inner, inner) | st.builds(ie.Not, inner)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A table whose files hold their partitions, so that pyiceberg filters rows alone."""
    door = Door(tmp_path_factory.mktemp("whole"), "beside")
    fill(door.lake, "events", door.properties)
    table = door.table()
    planning = door.catalog(**{"scan-planning-mode": "client"}).load_table("lake.events")
    return table, planning, table.scan().to_arrow()


@settings(deadline=None)
@given(condition=conditions)
def test_no_row_is_lost_or_added_by_a_plan(whole, condition) -> None:
    table, planning, rows = whole
    wanted = sorted(map(repr, rows.filter(ie_to_arrow(table, condition)).to_pylist()))
    scan = table.scan(condition)

    assert sorted(map(repr, scan.to_arrow().to_pylist())) == wanted
    assert scan.count() == len(wanted)
    # The client's own plan, of the manifests.
    try:
        own = planning.scan(condition).to_arrow().to_pylist()
    except TypeError as exc:
        if "'NoneType'" not in str(exc):
            raise
        return  # pyiceberg 0.12 compares a partition that is null, which Python refuses
    assert sorted(map(repr, own)) == wanted


def ie_to_arrow(table, condition):
    """Return the filter that pyiceberg applies to rows."""
    from pyiceberg.expressions.visitors import bind
    from pyiceberg.io.pyarrow import expression_to_pyarrow

    bound = bind(table.schema(), condition, case_sensitive=True)
    return expression_to_pyarrow(bound, table.schema())


# What Spark 4.1 with Iceberg 1.11 has sent, with names and values of this table.
SPARK = [
    (
        {
            "type": "and",
            "left": {"type": "not-null", "term": "id"},
            "right": {"type": "eq", "term": "id", "value": "u0030"},
        },
        {30},
    ),
    ({"type": "in", "term": "id", "values": ["u0010", "u0011"]}, {10, 11}),
    ({"type": "eq", "term": "price", "value": "11.10"}, {30}),
    ({"type": "eq", "term": "at", "value": 1357754400000000}, {30}),
    ({"type": "eq", "term": "local", "value": 1357754400000000}, {30}),
    ({"type": "eq", "term": "DAY", "value": 15714}, {28, 29, 30}),
    (
        {
            "type": "eq",
            "term": {"type": "transform", "transform": "day", "term": "at"},
            "value": 15714,
        },
        {28, 29, 30},
    ),
]
# The same in the newer form of the specification.
NEWER = [
    (
        {
            "type": "eq",
            "left": {"type": "reference", "term": "id"},
            "right": {"type": "literal", "data-type": "string", "value": "u0030"},
        },
        {30},
    ),
    (
        {
            "type": "gt",
            "left": {"type": "literal", "data-type": "string", "value": "u0003"},
            "right": {"type": "reference", "name": "id"},
        },
        {1, 2},
    ),
    (
        {
            "type": "in",
            "child": {"type": "reference", "term": "id"},
            "values": [{"type": "literal", "value": "u0030"}],
        },
        {30},
    ),
    (
        {
            "type": "not",
            "child": {
                "type": "gt-eq",
                "term": {"type": "reference", "term": "day"},
                "value": {"type": "literal", "data-type": "date", "value": "2013-01-02"},
            },
        },
        {1, 2, 3},
    ),
]


@pytest.mark.parametrize(("condition", "wanted"), [*SPARK, *NEWER])
def test_requests_of_other_clients(virtual, condition, wanted) -> None:
    found = virtual.numbers(condition, **{"case-sensitive": False, "select": ["id"]})

    assert wanted - {9 * number for number in range(20)} <= found
    assert len(found) < 20


UNKNOWN = [
    {"type": "eq", "term": "other", "value": 1},
    {"type": "eq", "term": "ID", "value": "u0030"},
    {"type": "eq", "term": "id", "value": 5},
    {"type": "eq", "term": "id", "value": None},
    {"type": "eq", "term": "n", "value": 1.5},
    {"type": "eq", "term": "n", "value": True},
    {"type": "eq", "term": "price", "value": 1.5},
    {"type": "eq", "term": "price", "value": "0.001"},
    {"type": "eq", "term": "day", "value": "2013-01-01T00:00:00"},
    {"type": "lt", "term": "at", "value": "2013-01-01T00:00:00.123456789"},
    {"type": "lt", "term": "local", "value": "2013-01-01T00:00:00+02:00"},
    {"type": "lt", "term": "at", "value": 2**62},
    {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "id"}},
    {"type": "starts-with", "term": "n", "value": "1"},
    {"type": "st-intersects", "term": "id", "value": "x"},
    {"type": "not", "child": {"type": "eq", "term": "other", "value": 1}},
    {"type": "in", "term": "id", "values": "u0030"},
    {"type": "apply", "function": "f", "arguments": []},
    [],
    "id = 5",
    7,
]


@pytest.mark.parametrize("condition", UNKNOWN, ids=str)
def test_what_is_not_understood_is_left_to_the_client(virtual, condition) -> None:
    every = virtual.plan()
    tasks = virtual.plan(condition)

    assert len(tasks) == len(every)
    assert all(task["residual-filter"] == condition for task in tasks)


def test_only_whole_files_have_no_residual(virtual) -> None:
    by_day = virtual.plan({"type": "eq", "term": "day", "value": "2013-01-02"})
    by_id = virtual.plan({"type": "eq", "term": "id", "value": "u0030"})
    unlike = virtual.plan({"type": "not-eq", "term": "kind", "value": "click"})

    assert {json.dumps(task["residual-filter"]) for task in by_day} == {"true"}
    assert by_id[0]["residual-filter"] == {"type": "eq", "term": "id", "value": "u0030"}
    assert all(task["residual-filter"] != True for task in unlike)  # noqa: E712 - a document


def test_a_deep_or_wide_condition_is_bounded(virtual) -> None:
    leaf = {"type": "eq", "term": "id", "value": "u0030"}
    chain = leaf
    for _ in range(600):
        chain = {"type": "and", "left": chain, "right": {"type": "not-null", "term": "n"}}
    assert 30 in virtual.numbers(chain)
    assert len(virtual.plan(chain)) == 1

    nested = leaf
    for number in range(300):
        nested = {"type": ("and", "or")[number % 2], "left": nested, "right": leaf}
    assert 30 in virtual.numbers(nested)

    deep = b'{"filter":' + b'{"type":"not","child":' * 30_000 + b"true" + b"}" * 30_001
    answer = virtual.post(f"{TABLE}/plan", deep)
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["type"] == "BadRequestException"


def test_many_negations_do_not_add_up() -> None:
    types = {"n": Primitive(Kind.LONG), "ratio": Primitive(Kind.DOUBLE)}
    chain = {"type": "eq", "term": "n", "value": 0}
    for number in range(1, 50):
        leaf = {"type": "not-eq", "term": "n", "value": number}
        chain = {"type": "and", "left": chain, "right": leaf}
    negated = chain
    for _ in range(150):
        negated = {"type": "not", "child": negated}

    assert translate(negated, types) == translate(chain, types)


@pytest.mark.parametrize("kind", ["lt", "lt-eq"])
def test_a_negation_of_numbers_may_or_may_not_hold_for_nan(kind) -> None:
    types = {"ratio": Primitive(Kind.DOUBLE)}
    pushed = translate(
        {"type": "not", "child": {"type": kind, "term": "ratio", "value": 5.0}}, types
    )

    # NaN meets it where NOT is evaluated, and fails it where the opposite is.
    assert "ratio IS NULL" in str(pushed.may)
    assert pushed.must == FALSE


def test_older_versions_in_memory_have_a_bounded_number_of_files(tmp_path, monkeypatch) -> None:
    door = Door(tmp_path, "virtual")
    schema = pa.schema([("n", pa.int64())])
    dataset = door.lake.create("events", lakebed.DatasetDescriptor(schema=schema))
    for number in range(6):
        dataset.append([{"n": number}])
    tables = CatalogTables(door.lake.store)
    plans = catalog_plans.CatalogPlans(tables)
    monkeypatch.setattr(catalog_plans, "MOST_FILES_HELD", 7)

    for version in (2, 3, 5, 4):
        found = json.loads(plans.plan("events", b'{"snapshot-id":%d}' % version))
        assert len(found["file-scan-tasks"]) == version
    assert [key[2] for key in plans.states] == [4]


def test_long_plans_come_in_pieces(virtual, monkeypatch) -> None:
    monkeypatch.setattr(catalog_plans, "FILES_A_PAGE", 20)
    monkeypatch.setattr(catalog_plans, "FEWEST_A_PAGE", 1)
    monkeypatch.setattr(catalog_plans, "PAGE_BYTES", 1 << 30)
    table = virtual.table()

    assert table.scan().count() == 120
    assert (
        table.scan("n >= 0").to_arrow().num_rows
        == virtual.lake.open("events").where("n >= 0").count()
    )
    first = json.loads(virtual.post(f"{TABLE}/plan", {}).body)
    assert len(first["file-scan-tasks"]) == 20
    # Any process can continue the plan.
    other = Client(create_app(virtual.lake, iceberg=IcebergDoor()))
    body = json.dumps({"plan-task": first["plan-tasks"][0]}).encode()
    second = json.loads(other.ask(f"{TABLE}/tasks", "POST", body=body).body)
    paths = {
        task["data-file"]["file-path"]
        for answer in (first, second)
        for task in answer["file-scan-tasks"]
    }
    assert len(paths) == 40
    assert "status" not in second


def test_a_plan_of_the_longest_condition_can_be_continued(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(catalog_plans, "FEWEST_A_PAGE", 1)
    monkeypatch.setattr(catalog_plans, "FILES_A_PAGE", 1)
    door = Door(tmp_path, "virtual")
    schema = pa.schema([("id", pa.string())])
    dataset = door.lake.create("events", lakebed.DatasetDescriptor(schema=schema))
    for name in ("a", "b"):
        dataset.append([{"id": name}])
    random_text = urlsafe_b64encode(random.Random(0).randbytes(785_000)).decode()
    condition = {"type": "in", "term": "id", "values": ["a", "b", random_text]}

    first = json.loads(door.post(f"{TABLE}/plan", {"filter": condition}).body)
    task = first["plan-tasks"][0]
    assert len(task) > catalog_plans.MAX_BODY_BYTES
    second = door.post(f"{TABLE}/tasks", {"plan-task": task})
    assert second.status == 200, second.text
    assert len(json.loads(second.body)["file-scan-tasks"]) == 1


FORGED = [
    "",
    "x",
    "ä",
    urlsafe_b64encode(zlib.compress(b'[1,1,"x",0]')).decode(),
    urlsafe_b64encode(zlib.compress(b'[3,3,"x",-1]')).decode(),
    urlsafe_b64encode(zlib.compress(b"[" * 100_000)).decode(),
    urlsafe_b64encode(zlib.compress(b" " * 100_000_000)).decode(),
    urlsafe_b64encode(zlib.compress(b'[99,99,"x",0]')).decode(),
]


@pytest.mark.parametrize("task", FORGED, ids=range(len(FORGED)))
def test_a_forged_task_is_unknown(virtual, task) -> None:
    answer = virtual.post(f"{TABLE}/tasks", {"plan-task": task})

    assert answer.status == 404
    assert json.loads(answer.body)["error"]["type"] == "NoSuchPlanTaskException"


# Requests


def error_of(answer: Answer) -> tuple[int, str]:
    document = json.loads(answer.body)["error"]
    assert document["code"] == answer.status
    assert document["message"]
    return answer.status, document["type"]


def test_the_configuration_offers_no_writes(virtual) -> None:
    document = json.loads(virtual.client.get("/v1/config?warehouse=x").body)

    assert document["defaults"] == {"scan-planning-mode": "server"}
    assert document["overrides"] == {"prefix": "lake"}
    methods = {endpoint.partition(" ")[0] for endpoint in document["endpoints"]}
    assert methods == {"GET", "HEAD", "POST"}
    posts = [one for one in document["endpoints"] if one.startswith("POST")]
    assert [one.rpartition("/")[2] for one in posts] == ["plan", "tasks", "metrics"]


def test_only_virtual_tables_insist_on_plans_by_the_server(door) -> None:
    document = json.loads(door.client.get(TABLE).body)

    wanted = {"scan-planning-mode": "server"} if door.mode == "virtual" else {}
    assert document["config"] == wanted
    assert "credential" not in json.dumps(document)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/lake/namespaces/other", "NoSuchNamespaceException"),
        ("/v1/lake/namespaces/other/tables", "NoSuchNamespaceException"),
        ("/v1/lake/namespaces?parent=other", "NoSuchNamespaceException"),
        ("/v1/lake/namespaces/lake%1Fevents/tables/snapshots", "NoSuchTableException"),
        ("/v1/lake/namespaces/lake/tables/other", "NoSuchTableException"),
        ("/v1/lake/namespaces/lake/tables/.", "NoSuchTableException"),
        ("/v1/lake/namespaces/lake/tables/" + "x" * 5000, "NoSuchTableException"),
        ("/v1/lake/namespaces/lake/tables/" + quote("a'\"<b>\n"), "NoSuchTableException"),
        ("/v1/lake/namespaces/lake/tables/..%2F..%2Fetc", "NotFoundException"),
        ("/v1/lake/namespaces/lake/tables/events/", "NotFoundException"),
        ("/v1/lake/views", "NotFoundException"),
        ("/v1/oauth/tokens", "NotFoundException"),
    ],
)
def test_what_does_not_exist(virtual, path, kind) -> None:
    assert error_of(virtual.client.ask(path)) == (404, kind)


def test_heads_answer_without_a_body(virtual) -> None:
    for path, status in ((TABLE, 204), (f"{TABLE}x", 404), ("/v1/lake/namespaces/lake", 200)):
        answer = virtual.client.ask(path, "HEAD")
        assert (answer.status, answer.body) == (status, b"")


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_writes_are_refused(virtual, method) -> None:
    assert error_of(virtual.client.ask(TABLE, method))[0] == 405
    assert error_of(virtual.client.ask("/v1/lake/namespaces", method))[0] == 405


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", b'{"snapshot-id": "x"}', b'{"select": 5}', b'{"filter": {}'],
)
def test_a_body_that_is_not_a_request(virtual, body) -> None:
    assert error_of(virtual.post(f"{TABLE}/plan", body)) == (400, "BadRequestException")


def test_a_long_body_is_refused(virtual) -> None:
    body = b'{"filter": "' + b"x" * (1 << 20) + b'"}'

    assert error_of(virtual.post(f"{TABLE}/plan", body)) == (413, "BadRequestException")


def test_incremental_scans_are_refused(virtual) -> None:
    asked = {"start-snapshot-id": 1, "end-snapshot-id": 2}

    answer = virtual.post(f"{TABLE}/plan", asked)
    assert error_of(answer) == (406, "UnsupportedOperationException")


def test_a_token_protects_the_catalog(tmp_path) -> None:
    door = Door(tmp_path, "virtual", token="a-long-secret")
    fill(door.lake, "events")

    assert error_of(door.client.ask("/v1/config")) == (401, "NotAuthorizedException")
    assert door.post(f"{TABLE}/plan", {}).status == 401
    assert door.table().scan("id = 'u0030'").count() == 1


def test_a_table_that_has_not_changed_is_not_sent_again(door) -> None:
    first = door.client.ask(TABLE)
    tag = first.headers["etag"]
    again = door.client.ask(TABLE, headers={"if-none-match": tag})
    assert (again.status, again.body) == (304, b"")

    door.lake.open("events").append([event(900)])
    door.lake.open("events").where("id = 'u0900'").delete()
    assert door.client.ask(TABLE, headers={"if-none-match": tag}).status == 200


def test_answers_are_compressed_if_the_client_can(virtual) -> None:
    plain = virtual.post(f"{TABLE}/plan", {})
    packed = virtual.post(f"{TABLE}/plan", {}, {"accept-encoding": "gzip"})

    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 3


def test_pages_of_tables(tmp_path) -> None:
    door = Door(tmp_path, "virtual")
    for name in ("a", "b", "c"):
        door.lake.create(name, lakebed.DatasetDescriptor(schema=SCHEMA))
    tables = "/v1/lake/namespaces/lake/tables"

    first = json.loads(door.client.get(f"{tables}?pageSize=2").body)
    assert [one["name"] for one in first["identifiers"]] == ["a", "b"]
    after = first["next-page-token"]
    second = json.loads(door.client.get(f"{tables}?pageSize=2&pageToken={after}").body)
    assert [one["name"] for one in second["identifiers"]] == ["c"]
    assert second["next-page-token"] is None
    for count in ("0", "-1", "x", "9" * 5000):
        every = json.loads(door.client.get(f"{tables}?pageSize={count}").body)
        assert [one["name"] for one in every["identifiers"]] == ["a", "b", "c"]


def test_one_dataset_alone_is_shown(tmp_path) -> None:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    fill(lake, "events")
    fill(lake, "secret")
    client = Client(create_app(lake, name="events", iceberg=IcebergDoor()))

    listed = json.loads(client.get("/v1/lake/namespaces/lake/tables").body)
    assert [one["name"] for one in listed["identifiers"]] == ["events"]
    assert client.ask("/v1/lake/namespaces/lake/tables/secret").status == 404
    assert client.ask("/v1/lake/namespaces/lake/tables/secret", "HEAD").status == 404


def test_what_iceberg_cannot_express_is_refused_with_the_reason(virtual) -> None:
    schema = pa.schema([("n", pa.uint64())])
    virtual.lake.create("unsigned", lakebed.DatasetDescriptor(schema=schema))

    with pytest.raises(BadRequestError, match="which Iceberg does not have"):
        virtual.table("unsigned")


def test_pages_are_there_beside_the_catalog(virtual) -> None:
    assert virtual.client.ask("/").status == 200
    plain = Client(create_app(virtual.lake))
    assert plain.ask("/v1/config").headers["content-type"].startswith("text/html")


def test_refused_options(tmp_path) -> None:
    with pytest.raises(InvalidNameError):
        IcebergDoor(namespace="a/b")
    archive = lakebed.open_archive(str(tmp_path / "raw"))
    with pytest.raises(InvalidInputError, match="shows a lake"):
        create_app(None, archive=archive, iceberg=IcebergDoor())
    memory = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    with pytest.raises(InvalidInputError, match="other processes cannot access it"):
        create_app(memory, iceberg=IcebergDoor())


def test_the_cache_is_tidied_and_begun_again(tmp_path) -> None:
    door = Door(tmp_path, "cache")
    dataset = fill(door.lake, "events")
    before = sorted(path.name for path in (tmp_path / "lake" / "events").iterdir())
    assert door.table().scan().count() == 120
    assert sorted(path.name for path in (tmp_path / "lake" / "events").iterdir()) == before

    door.lake.drop("events")
    with pytest.raises(NoSuchTableError):
        door.table()
    fill(door.lake, "events").append([event(1000)])
    assert door.table().scan().count() == 121
    assert dataset.name == "events"


def test_a_table_that_was_unpublished_is_published_again(tmp_path) -> None:
    door = Door(tmp_path, "beside")
    dataset = fill(door.lake, "events", door.properties)
    assert door.table().scan().count() == 120

    dataset.unpublish("iceberg")
    assert door.table().scan().count() == 120


def test_a_missing_package_is_named_with_its_extras(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lakebed.tables.iceberg.pointer_tables", None)
    lake = lakebed.open_repository(str(tmp_path))

    with pytest.raises(MissingDependencyError) as raised:
        create_app(lake, iceberg=IcebergDoor())
    assert "lakebed[serve,iceberg]" in raised.value.hint


@pytest.mark.parametrize("option", ["--namespace", "--iceberg-metadata", "--iceberg-root"])
def test_options_of_a_catalog_need_one(tmp_path, option) -> None:
    result = CliRunner().invoke(main, ["serve", str(tmp_path), option, "x"])

    assert result.exit_code == 2
    assert f"{option} needs a catalog" in result.output
