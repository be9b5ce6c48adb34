"""Datasets whose schema changes: old and new files read as one, and nothing old changes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import examples
from heads import ON_TREES
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import DatasetDescriptor, by
from lakebed.arrow.kernel import BatchTarget, write_batches
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    PartitionSpecError,
    ReadOnlyError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.model.keys import schema_number_of
from lakebed.state import file_table
from lakebed.state.head import HeadFormat
from lakebed.state.transaction import Transaction
from lakebed.store import open_store, segments
from lakebed.testing import DelegatingStore, FailingStore

FORMAT_V1 = Path(__file__).parent / "data" / "format-v1"
QUICK = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)
_names = itertools.count()


def one(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def maybe(kind: Any) -> list[Any]:
    return ["null", kind]


def record(*fields: dict[str, Any], name: str = "entity") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def described(*fields: dict[str, Any], **more: Any) -> DatasetDescriptor:
    return DatasetDescriptor(schema=record(*fields), **more)


def create(*fields: dict[str, Any], **more: Any) -> lakebed.Dataset:
    repository = lakebed.open_repository(f"memory://evolution-{next(_names)}")
    return repository.create("d", described(*fields, **more))


def store_of(dataset: lakebed.Dataset) -> Any:
    return open_store(dataset.uri.rpartition("/")[0])


def content_of(dataset: lakebed.Dataset) -> dict[str, bytes]:
    store = store_of(dataset)
    return {info.key: bytes(store.get(info.key).data) for info in store.list()}


ID = one("id", "long")
formats = pytest.mark.parametrize("format_", ["parquet", "avro"])


@formats
def test_old_and_new_files_read_as_one(format_: str) -> None:
    """Behaviour 34: a field with a default is added, one is removed, types are promoted."""
    dataset = create(ID, one("n", "int"), one("f", "float"), one("gone", "string"), format=format_)
    dataset.append([{"id": 1, "n": 7, "f": 0.5, "gone": "x"}])

    commit = dataset.evolve(
        described(
            one("added", "string", default="none"),
            one("n", "long"),
            ID,
            one("f", "double"),
            format=format_,
        ),
        base=dataset.version,
    )
    dataset.append([{"id": 2, "n": 2**40, "f": 0.1, "added": "yes"}])

    assert (commit.operation, commit.version, commit.row_count) == ("update", 2, 0)
    rows = [
        {"added": "none", "n": 7, "id": 1, "f": 0.5},
        {"added": "yes", "n": 2**40, "id": 2, "f": 0.1},
    ]
    assert list(dataset.kite.reader()) == rows
    assert dataset.arrow().schema == pa.schema(
        [("added", pa.string()), ("n", pa.int64()), ("id", pa.int64()), ("f", pa.float64())]
    )
    assert dataset.pandas().to_dict("records") == rows
    assert dataset.count() == 2
    assert dataset.arrow(["added"]).to_pydict() == {"added": ["none", "yes"]}
    assert list(dataset.at(version=1).kite.reader()) == [{"id": 1, "n": 7, "f": 0.5, "gone": "x"}]
    assert dataset.at(version=1).schema.names == ("id", "n", "f", "gone")

    @dataclasses.dataclass
    class Entity:
        id: int
        added: str

    assert list(dataset.kite.reader(type=Entity)) == [Entity(1, "none"), Entity(2, "yes")]


@formats
@pytest.mark.parametrize(
    ("predicate", "ids"),
    [
        ("added = 'none'", [1, 2]),
        ("added = 'yes'", [3]),
        ("added <> 'yes'", [1, 2]),
        ("added IS NULL", []),
        ("empty IS NULL", [1, 2, 3]),
        ("empty = 5", []),
        ("n > 7", [2, 3]),
        ("n = 7", [1]),
        ("day >= '2013-01-02'", [2, 3]),
        ("day = '2013-01-01'", [1]),
        ("f > 0.4", [1]),
        ("added = 'none' AND n = 8", [2]),
        ("added = 'yes' OR n = 8", [2, 3]),
        ("added = 'other' OR n = 8", [2]),
    ],
)
def test_predicates_ask_old_files_what_they_read_as(
    format_: str, predicate: str, ids: list[int]
) -> None:
    day, wall = (
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
    )
    dataset = create(ID, one("n", "int"), one("f", "float"), one("day", day), format=format_)
    dataset.append(
        [
            {"id": 1, "n": 7, "f": 0.5, "day": dt.date(2013, 1, 1)},
            {"id": 2, "n": 8, "f": -1, "day": dt.date(2013, 1, 2)},
        ]
    )
    dataset.evolve(
        described(
            ID,
            one("n", "double"),
            one("f", "double"),
            one("day", wall),
            one("added", "string", default="none"),
            one("empty", maybe("int")),
            format=format_,
        ),
        base=dataset.version,
    )
    dataset.append(
        [{"id": 3, "n": 9.5, "f": 0.1, "day": dt.datetime(2014, 1, 1, 5), "added": "yes"}]
    )

    view = dataset.where(predicate)

    assert sorted(view.arrow(["id"]).column(0).to_pylist()) == ids
    assert view.count() == len(ids)


def test_files_whose_default_is_no_match_are_dropped_by_the_plan() -> None:
    dataset = create(ID)
    dataset.append([{"id": 1}])
    dataset.evolve(described(ID, one("added", "int", default=0)), base=dataset.version)
    dataset.append([{"id": 2, "added": 5}])

    plan = dataset.where("added = 5").plan()

    assert [file.schema_number for file in plan.files] == [2]
    assert (plan.explain().dropped_by_schema, plan.explain().dropped_by_partition) == (1, 0)
    assert "1 by schema" in str(plan.explain())
    assert dataset.where("added = 0").plan().files[0].constants == {"added": 0}
    assert not dataset.where("added = 0 AND id > 0").plan().explain().dropped_by_partition


@formats
def test_a_name_added_again_never_shows_the_old_column(format_: str) -> None:
    dataset = create(ID, one("a", maybe("string")), one("b", maybe("int")), format=format_)
    dataset.append([{"id": 1, "a": "old", "b": 1}])
    dataset.evolve(described(ID, one("b", maybe("int")), format=format_), base=dataset.version)
    dataset.append([{"id": 2, "b": 2}])
    dataset.evolve(
        described(
            ID, one("b", maybe("int")), one("a", ["string", "null"], default="new"), format=format_
        ),
        base=dataset.version,
    )
    dataset.append([{"id": 3, "b": 3, "a": "fresh"}])

    assert dataset.arrow(["id", "a"]).to_pydict() == {"id": [1, 2, 3], "a": ["new", "new", "fresh"]}
    assert dataset.where("a = 'old'").count() == 0
    assert dataset.where("a = 'new'").arrow(["id"]).column(0).to_pylist() == [1, 2]
    assert dataset.at(version=1).arrow(["a"]).column(0).to_pylist() == ["old"]


def test_no_field_of_old_files_needs_to_be_left() -> None:
    for format_ in ("parquet", "avro"):
        dataset = create(one("a", "int"), format=format_)
        dataset.append([{"a": 1}, {"a": 2}])
        dataset.evolve(described(one("b", "int", default=5), format=format_), base=dataset.version)

        assert dataset.arrow().to_pydict() == {"b": [5, 5]}
        assert dataset.count() == dataset.where("b = 5").count() == 2
        assert dataset.where("b > 5").count() == 0


PLACE = record(one("x", "int"), one("y", maybe("string")), name="place")
WIDER = record(
    one("z", "double", default=1.5), one("x", "long"), one("y", maybe("string")), name="place"
)
WITHOUT = record(one("z", "double", default=1.5), one("x", "long"), name="place")


@formats
def test_parts_of_records_lists_and_maps_change_too(format_: str) -> None:
    def fields(place: dict[str, Any], name: str) -> list[dict[str, Any]]:
        named = [{**place, "name": f"{name}{number}"} for number in range(3)]
        return [
            ID,
            one("p", maybe(named[0])),
            one("l", maybe({"type": "array", "items": maybe(named[1])})),
            one("m", maybe({"type": "map", "values": maybe(named[2])})),
        ]

    def entity(number: int, place: dict[str, Any]) -> dict[str, Any]:
        return {"id": number, "p": place, "l": [place, None, place], "m": {"k": place, "n": None}}

    dataset = create(*fields(PLACE, "a"), format=format_)
    old = {"x": 1, "y": "old"}
    dataset.append([entity(1, old), {"id": 2, "p": None, "l": None, "m": None}, entity(3, old)])
    dataset.evolve(described(*fields(WIDER, "b"), format=format_), base=dataset.version)
    dataset.append([entity(4, {"z": 2.5, "x": 2**40, "y": "y"})])
    dataset.evolve(described(*fields(WITHOUT, "c"), format=format_), base=dataset.version)
    dataset.evolve(described(*fields(WIDER, "d"), format=format_), base=dataset.version)

    again = {"z": 1.5, "x": 1, "y": None}
    assert list(dataset.kite.reader()) == [
        entity(1, again),
        {"id": 2, "p": None, "l": None, "m": None},
        entity(3, again),
        entity(4, {"z": 2.5, "x": 2**40, "y": None}),
    ]
    assert dataset.where("p.z = 1.5").arrow(["id"]).column(0).to_pylist() == [1, 3]
    assert dataset.where("p.z = 1.5 AND id > 1").count() == 1
    assert dataset.where("p.y IS NOT NULL").count() == 0
    assert dataset.where("p.x > 1").arrow(["id"]).column(0).to_pylist() == [4]


KINDS = ["int", "long", "float", "double", "string"]
VALUES = {"int": 7, "long": 2**40, "float": 0.5, "double": 0.1, "string": "text"}


@st.composite
def versions(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Schemas of a few fields, each a change of the one before."""
    found: list[list[dict[str, Any]]] = [[one("a", "int")]]
    for _ in range(draw(st.integers(1, 5))):
        fields = {field["name"]: field for field in found[-1]}
        for name in draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=2)):
            kind = draw(st.sampled_from(KINDS))
            if draw(st.booleans()):
                fields[name] = one(name, [kind, "null"], default=VALUES[kind])
            elif draw(st.booleans()):
                fields[name] = one(name, maybe(kind))
            else:
                fields.pop(name, None)
        found.append(draw(st.permutations(list(fields.values()))))
    return [fields for fields in found if fields]


@given(versions(), st.sampled_from(["parquet", "avro"]))
@examples(0.6)
def test_an_allowed_update_never_changes_what_old_rows_read_as(
    schemas: list[list[dict[str, Any]]], format_: str
) -> None:
    dataset = create(*schemas[0], format=format_)
    for fields in schemas[1:]:
        names = dataset.schema.names
        dataset.append([{}] if all(f.nullable for f in dataset.schema) else [{"a": 7}])
        before = sorted(dataset.kite.reader(), key=str)
        history = len(dataset.history())
        wanted = described(*fields, format=format_)
        try:
            dataset.evolve(wanted, base=dataset.version)
        except SchemaMismatchError:
            assert len(dataset.history()) == history
            assert sorted(dataset.kite.reader(), key=str) == before
            continue
        after = list(dataset.kite.reader())
        kept = [name for name in names if name in wanted.schema]
        assert sorted(map(str, ({n: row[n] for n in kept} for row in after))) == sorted(
            map(str, ({n: _as(wanted, n, row[n]) for n in kept} for row in before))
        )
        for field in fields:
            if field["name"] not in names:
                assert {row[field["name"]] for row in after} == {field.get("default")}


def _as(descriptor: DatasetDescriptor, name: str, value: Any) -> Any:
    is_float = str(descriptor.schema.get(name).type) in ("float", "double")
    return float(value) if is_float and value is not None else value


def test_a_provided_partition_becomes_a_field_of_the_same_name() -> None:
    """Behaviour 36: what stood in the path alone is then the field's value in old rows."""
    dataset = create(ID, partition_by=[by.provided("release", "int")])
    dataset.kite.with_("release", 6).append([{"id": 1}])
    fields = [ID, one("release", maybe("long"))]

    dataset.evolve(described(*fields, partition_by=[by.identity("release")]), base=dataset.version)
    dataset.append([{"id": 2, "release": 6}, {"id": 3, "release": 7}])

    assert sorted(dataset.kite.reader(), key=lambda row: row["id"]) == [
        {"id": 1, "release": 6},
        {"id": 2, "release": 6},
        {"id": 3, "release": 7},
    ]
    view = dataset.where("release = 6")
    assert view.count() == 2
    assert view.plan().explain().dropped_by_partition == 1


def test_paths_that_were_provided_are_not_taken_for_those_of_a_later_function() -> None:
    dataset = create(ID, partition_by=[by.provided("bucket", "int")])
    dataset.kite.with_("bucket", 9).append([{"id": 1}])

    dataset.evolve(
        described(ID, partition_by=[by.hash("id", 4, name="bucket")]), base=dataset.version
    )
    dataset.append([{"id": 1}, {"id": 2}])

    assert dataset.where("id = 1").count() == 2
    assert dataset.where("bucket = 9").plan().explain().dropped_by_partition == 2
    assert not dataset.where("id = 1").kite.is_aligned()


def test_an_equal_descriptor_makes_no_new_version() -> None:
    dataset = create(ID, properties={"owner": "ops"})
    commit = dataset.append([{"id": 1}])

    again = dataset.evolve(described(ID, properties={"owner": "ops"}), base=dataset.version)

    assert again == commit
    assert dataset.version == 1


def test_properties_and_compression_change_without_a_new_schema() -> None:
    """Behaviour 37: custom properties round-trip."""
    dataset = create(ID)
    properties = {"owner": "ops", "ünï": '{"a": "b"}', "empty": ""}

    dataset.evolve(described(ID, properties=properties, compression="snappy"), base=dataset.version)
    dataset.append([{"id": 1}])

    assert dataset.descriptor.properties == properties
    assert dataset.descriptor.compression == "snappy"
    assert [one.number for one in dataset.inspect.schemas()] == [1]
    (file,) = dataset.files()
    metadata = pq.read_metadata(pa.BufferReader(store_of(dataset).get(file.key).data))
    assert metadata.row_group(0).column(0).compression == "SNAPPY"


@pytest.mark.thorough
def test_twenty_versions_are_kept() -> None:
    """Behaviour 35."""
    fields = [ID]
    dataset = create(*fields)
    for number in range(20):
        dataset.append([{"id": number}])
        fields = [*fields, one(f"f{number}", "int", default=number)]
        dataset.evolve(described(*fields), base=dataset.version)

    assert [len(known.schema.fields) for known in dataset.inspect.schemas()] == list(range(1, 22))
    assert dataset.inspect.schemas()[3].version == 6
    last = dataset.arrow().to_pylist()[-1]
    assert last == {"id": 19, **{f"f{number}": number for number in range(20)}}
    assert dataset.at(version=9).schema == dataset.inspect.schemas()[4].schema
    assert {len(dataset.where(f"f{n} = {n}").plan()) for n in range(20)} == {20}


@pytest.mark.thorough
def test_a_thousand_fields_evolve() -> None:
    """Behaviour 38."""
    fields = [one(f"f{number}", maybe("int")) for number in range(999)]
    dataset = create(ID, *fields)
    dataset.append([{"id": 1, "f998": 5}])

    dataset.evolve(
        described(ID, *(one(f"f{n}", maybe("long")) for n in range(998)), one("new", maybe("int"))),
        base=dataset.version,
    )
    dataset.append([{"id": 2, "f0": 2**40}])

    assert len(dataset.schema.fields) == 1000
    assert dataset.arrow(["id", "f0", "new"]).to_pylist() == [
        {"id": 1, "f0": None, "new": None},
        {"id": 2, "f0": 2**40, "new": None},
    ]


def test_a_descriptor_without_optional_keys_loads() -> None:
    """Behaviour 40, in our terms: only the schema must be there."""
    document = {"schema": record(ID)}

    assert DatasetDescriptor.from_document(document) == described(ID)


@pytest.mark.parametrize("name", ["flights", "flights_packed"])
def test_a_dataset_of_the_first_format_evolves(tmp_path: Path, name: str) -> None:
    shutil.copytree(FORMAT_V1, tmp_path / "lake")
    dataset = lakebed.open_repository(tmp_path / "lake").open(name)
    before, old = dataset.arrow().to_pylist(), dataset.descriptor
    fields = [
        dataclasses.replace(f, type=lakebed.model.schema.Primitive(lakebed.model.schema.Kind.LONG))
        if f.name == "distance"
        else f
        for f in old.schema
    ]

    dataset.evolve(
        DatasetDescriptor(
            schema=lakebed.Schema(fields=tuple(fields)),
            partition_by=old.partition_by,
            properties=old.properties,
        ),
        base=dataset.version,
    )

    assert dataset.arrow().to_pylist() == before
    assert dataset.at(version=3).descriptor == old
    assert dataset.arrow(["distance"]).schema.field(0).type == pa.int64()


def test_an_evolved_head_says_so_to_releases_that_know_no_schema_numbers() -> None:
    dataset = create(ID)

    def format_version() -> str:
        head = json.loads(store_of(dataset).get(HeadFormat.JSON.key("d")).data)
        return str(head["metadata"]["lakebed.format_version"])

    assert format_version() == "1"
    dataset.evolve(described(ID, properties={"a": "b"}), base=dataset.version)
    assert format_version() == "1"
    dataset.evolve(described(ID, one("a", maybe("int"))), base=dataset.version)
    assert format_version() == "2"


def test_names_of_files_tell_their_schema() -> None:
    dataset = create(ID)
    dataset.append([{"id": 1}])
    dataset.evolve(described(ID, one("a", maybe("int"))), base=dataset.version)
    dataset.append([{"id": 2}])

    numbers = [file.schema_number for file in dataset.plan().files]

    assert numbers == [1, 2]
    assert "/part-2-" in dataset.files()[1].key
    assert schema_number_of("dt=1/3f2a", newest=2) is None


@pytest.mark.parametrize("tail", ["part-3-ab", "part-1-ab", "part-0-ab", "part-02-ab", "part-x-ab"])
def test_an_unknown_schema_number_is_corrupt(tail: str) -> None:
    dataset = create(ID)
    dataset.append([{"id": 1}])
    dataset.evolve(described(ID, one("a", maybe("int"))), base=dataset.version)
    store, key = store_of(dataset), HeadFormat.JSON.key("d")
    head = json.loads(store.get(key).data)
    (label,) = head["partitions"]
    spoiled = f"{label.rpartition('/')[0]}/{tail}"
    head["partitions"] = {spoiled: {"files": {"data": f"d/data/{spoiled}.parquet"}}}
    store.put(key, json.dumps(head).encode())

    with pytest.raises(CorruptMetadataError, match="has schemas 1 to 2"):
        dataset.arrow()


def test_a_file_of_another_tool_reads_with_defaults_for_what_it_lacks() -> None:
    dataset = create(ID, one("a", "string", default="none"), one("b", maybe("int")))
    dataset.append([{"id": 1, "a": "x", "b": 1}])
    store, key = store_of(dataset), HeadFormat.JSON.key("d")
    head = json.loads(store.get(key).data)
    for name, table in {
        "f1": pa.table({"id": [2], "b": [2]}),
        "f2": pa.table({"id": [3], "a": ["y"]}),
    }.items():
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        label = f"batch_id=5/{name}"
        store.put(f"d/data/{label}.parquet", sink.getvalue())
        head["partitions"][label] = {"files": {"data": f"d/data/{label}.parquet"}}
    store.put(key, json.dumps(head).encode())

    assert sorted(dataset.kite.reader(), key=lambda row: row["id"]) == [
        {"id": 1, "a": "x", "b": 1},
        {"id": 2, "a": "none", "b": 2},
        {"id": 3, "a": "y", "b": None},
    ]
    assert dataset.where("a = 'none'").arrow(["id"]).column(0).to_pylist() == [2]
    assert dataset.where("a <> 'none'").count() == 2


def test_facts_of_promoted_columns_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "FANOUT", 2)
    day, wall = (
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "local-timestamp-micros"},
    )
    dataset = create(ID, one("n", "int"), one("f", "float"), one("t", day), one("gone", "string"))
    row = {"id": 1, "n": 7, "f": 0.5, "t": dt.date(2013, 1, 1), "gone": "x"}
    dataset.append([row])
    wider = [ID, one("n", "long"), one("f", "double"), one("t", wall), one("new", maybe("string"))]
    dataset.evolve(described(*wider), base=dataset.version)
    dataset.append([{"id": 2, "n": 2**40, "f": 0.1, "t": dt.datetime(2014, 1, 1), "new": "y"}])

    (segment,) = [
        info.key for info in store_of(dataset).list("d/files/") if "/0000000002-" in info.key
    ]
    facts = file_table.decode(store_of(dataset).get(segment).data, segment)

    first, second = facts.column("stats").to_pylist()
    assert (first["n"]["max"], second["n"]["max"]) == (7, 2**40)
    assert (first["f"]["min"], second["f"]["min"]) == (0.5, 0.1)
    assert first["t"]["min"] == dt.datetime(2013, 1, 1)
    assert (first["gone"]["min"], first["new"]) == ("x", None)
    assert (second["gone"], second["new"]["max"]) == (None, "y")
    assert [file.row_count for file in dataset.files()] == [1, 1]


REFUSALS = {
    "format": (described(ID, format="avro"), InvalidInputError),
    "partitions": (described(ID, one("a", maybe("int")), partition_by="a"), PartitionSpecError),
    "required": (described(ID, one("a", "int")), SchemaMismatchError),
    "type": (described(one("id", "string")), SchemaMismatchError),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refused_update_changes_nothing(case: str) -> None:
    """Behaviour 33."""
    dataset = create(ID)
    dataset.append([{"id": 1}])
    before = content_of(dataset)
    descriptor, error = REFUSALS[case]

    with pytest.raises(error):
        dataset.evolve(descriptor, base=0)

    assert content_of(dataset) == before


@pytest.mark.parametrize("given", [None, 3, {"type": "record"}, lambda _: None, lambda _: "n int"])
def test_an_update_to_something_else_than_a_descriptor_is_named(given: object) -> None:
    dataset = create(ID)

    with pytest.raises(InvalidInputError, match=r"cannot become a .*DatasetDescriptor"):
        dataset.evolve(given)

    assert dataset.version == 0


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize(
    ("call", "nth"), [("put", 1), ("put", 2), ("replace", 1), ("get", 1), ("get", 2)]
)
def test_an_update_on_a_failing_store_happens_wholly_or_not_at_all(
    call: str, nth: int, landed: bool
) -> None:
    dataset = create(ID)
    dataset.append([{"id": 1}])
    store = store_of(dataset)
    failing = FailingStore(store, fail_on=call, nth=nth, landed=landed)
    wanted = described(ID, one("a", "int", default=5))

    happened: bool | None = None
    try:
        lakebed.Repository(failing).open("d").with_options(commit=QUICK).evolve(wanted, base=1)
        happened = True
    except CommitUnknownError:
        pass
    except LakebedError:
        happened = False

    reopened = lakebed.Repository(store).open("d")
    if happened is not None:
        assert (reopened.descriptor == wanted) is happened
        assert reopened.version == 1 + happened
    assert reopened.arrow(["id"]).column(0).to_pylist() == [1]
    reopened.evolve(described(ID, one("a", "int", default=6)), base=reopened.version)
    assert reopened.arrow().to_pylist() == [{"id": 1, "a": 5 if reopened.version == 3 else 6}]


def test_a_schema_file_that_cannot_be_written_is_mended_by_the_next_update(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset = create(ID)
    store = store_of(dataset)
    failing = FailingStore(
        store, fail_on="put", nth=1, matching="_common_metadata", error=StorageError("Full.")
    )
    wanted = described(ID, one("a", maybe("int")))

    def columns() -> list[str]:
        return pq.read_schema(pa.BufferReader(store.get("d/data/_common_metadata").data)).names

    lakebed.Repository(failing).open("d").evolve(wanted, base=0)
    assert "a" not in columns()
    assert "schema file is not that of the head" in caplog.text

    dataset.evolve(wanted, base=dataset.version)
    assert columns() == ["batch_id", "a", "id"]
    assert dataset.version == 1


class _Schemas(DelegatingStore):
    """Counts the puts of schema files, and stops the process right before the first ones."""

    def __init__(self, inner: Any, crashes: int = 0) -> None:
        super().__init__(inner)
        self.crashes, self.put_count = crashes, 0

    def _put(self, key: str, data: memoryview) -> None:
        if key.endswith("_common_metadata"):
            self.put_count += 1
            if self.put_count <= self.crashes:
                raise KeyboardInterrupt
        super()._put(key, data)


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_schema_file_whose_writer_has_stopped_is_written_by_the_next_commit(
    crashes: int,
) -> None:
    dataset = create(ID)
    store = store_of(dataset)
    stopping = lakebed.Repository(_Schemas(store, crashes)).open("d")
    names = [f"a{number}" for number in range(crashes)]
    for name in names:
        with pytest.raises(KeyboardInterrupt):
            stopping.evolve(lambda old, name=name: old.add_field(name, "int"))

    def columns() -> list[str]:
        return pq.read_schema(pa.BufferReader(store.get("d/data/_common_metadata").data)).names

    assert columns() == ["batch_id", "id"]
    dataset.append([{"id": 1}])
    assert columns() == ["batch_id", *names, "id"]
    counting = _Schemas(store)
    for _ in range(2):
        lakebed.Repository(counting).open("d").append([{"id": 2}])
    assert counting.put_count == 0
    assert dataset.count() == 3


def test_a_schema_file_that_cannot_be_written_is_tried_by_each_commit() -> None:
    dataset = create(ID)
    store = store_of(dataset)
    for landed in (False, True):
        failing = FailingStore(store, fail_on="put", matching="_common_metadata", landed=landed)
        failing_dataset = lakebed.Repository(failing).open("d")
        if not landed:
            failing_dataset.evolve(lambda old: old.add_field("a", "int"))
        else:
            failing_dataset.append([{"id": 1}])  # the answer is lost
    counting = _Schemas(store)

    lakebed.Repository(counting).open("d").append([{"id": 2}])
    lakebed.Repository(counting).open("d").append([{"id": 3}])

    assert counting.put_count == 1
    assert dataset.arrow(["id"]).column(0).to_pylist() == [1, 2, 3]


def test_an_append_that_began_before_the_update_commits() -> None:
    dataset = create(ID, one("gone", maybe("string")))
    store = store_of(dataset)
    transaction = Transaction.begin(store, "d", "append")
    target = BatchTarget(
        dataset="d", batch_id=transaction.batch_id, descriptor=transaction.base.descriptor
    )
    rows = pa.RecordBatch.from_pylist([{"id": 1, "gone": "x"}])
    written = write_batches(store, target, [rows])

    dataset.evolve(described(ID, one("a", "int", default=5)), base=dataset.version)
    dataset.evolve(
        described(ID, one("a", "int", default=5), one("gone", maybe("string"))),
        base=dataset.version,
    )
    transaction.add(written)
    transaction.commit()

    assert list(dataset.kite.reader()) == [{"id": 1, "a": 5, "gone": None}]
    assert dataset.plan().files[0].schema_number == 1


def test_files_staged_under_a_wrong_number_are_not_committed() -> None:
    dataset = create(ID)
    dataset.evolve(described(ID, one("a", maybe("int"))), base=dataset.version)
    store = store_of(dataset)
    transaction = Transaction.begin(store, "d", "append")
    target = BatchTarget(
        dataset="d", batch_id=transaction.batch_id, descriptor=transaction.base.descriptor
    )
    written = write_batches(store, target, [pa.RecordBatch.from_pylist([{"id": 1}])])

    transaction.add(written)
    with pytest.raises(TypeError, match="another schema than 2"):
        transaction.commit()


class BetweenReadAndSwap(DelegatingStore):
    """Lets something happen once, right before the head is replaced."""

    def __init__(self, inner: Any, event: Any) -> None:
        super().__init__(inner)
        self._event = event

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> Any:
        event, self._event = self._event, None
        if event is not None:
            event()
        return self.inner.replace(key, data, if_match=if_match)


def test_of_two_updates_at_a_time_one_conflicts() -> None:
    dataset = create(ID)
    first = described(ID, one("a", maybe("int")))
    slow = BetweenReadAndSwap(
        store_of(dataset), lambda: dataset.evolve(first, base=dataset.version)
    )

    with pytest.raises(CommitConflictError, match="Both change the descriptor"):
        lakebed.Repository(slow).open("d").evolve(described(ID, one("b", maybe("int"))), base=0)

    assert dataset.descriptor == first
    assert dataset.version == 1
    history = {info.key for info in store_of(dataset).list("d/history/")}
    assert len(history) == (1 if ON_TREES else 2)  # a tree has the new entry in the head


def test_appends_and_updates_at_a_time_all_count() -> None:
    dataset = create(ID)

    def append(number: int) -> None:
        for turn in range(6):
            dataset.append([{"id": number * 100 + turn}])

    threads = [threading.Thread(target=append, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    fields = [ID]
    for number in range(4):
        fields = [*fields, one(f"f{number}", "int", default=number)]
        dataset.evolve(described(*fields), base=dataset.version)
    for thread in threads:
        thread.join()

    table = dataset.arrow()
    assert table.num_rows == 18
    assert set(table.column("f3").to_pylist()) == {3}
    assert dataset.version == 22


def test_an_older_state_cannot_be_updated() -> None:
    dataset = create(ID)
    dataset.append([{"id": 1}])

    with pytest.raises(ReadOnlyError, match="older state"):
        dataset.at(version=0).evolve(described(ID, one("a", maybe("int"))))


def test_the_schema_file_follows_the_head() -> None:
    dataset = create(ID, one("n", maybe("int")))
    dataset.evolve(
        described(ID, one("n", maybe("double")), one("a", maybe("string"))), base=dataset.version
    )

    schema = pq.read_schema(pa.BufferReader(store_of(dataset).get("d/data/_common_metadata").data))

    assert schema.names == ["batch_id", "a", "id", "n"]
    assert schema.field("n").type == pa.float64()


def test_rows_are_rewritten_under_the_current_schema() -> None:
    dataset = create(ID, one("gone", maybe("string")))
    dataset.append([{"id": n, "gone": "x"} for n in range(4)])
    dataset.evolve(described(ID, one("a", "int", default=5)), base=dataset.version)
    dataset.evolve(described(ID, one("a", "int", default=6)), base=dataset.version)

    dataset.delete(dataset.where("id < 2"))

    assert list(dataset.kite.reader()) == [{"id": 2, "a": 5}, {"id": 3, "a": 5}]
    assert [file.schema_number for file in dataset.plan().files] == [3]
