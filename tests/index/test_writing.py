"""Postings are written with the rows, whoever writes them, and vanish with a write that fails."""

import datetime as dt
import json
import uuid

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed.dataset import Dataset
from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.index import postings_writer
from lakebed.index.lookup import Lookup, lookup
from lakebed.model.keys import file_id, file_ids
from lakebed.model.predicate import Comparison, NullCheck, Op
from lakebed.repository import Repository
from lakebed.state.reader import read_head
from lakebed.state.state import State
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import FANOUT
from lakebed.testing import FailingStore

SCHEMA = pa.schema([("id", pa.int64()), ("plane", pa.string()), ("day", pa.date32())])
DAYS = [dt.date(2013, 1, day) for day in (1, 2, 3)]


def a_repository() -> Repository:
    return Repository(MemoryStore(uuid.uuid4().hex))


def a_dataset(repository: Repository, **more) -> Dataset:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, index=["plane", "id"], **{"partition_by": "day", **more}
    )
    return repository.create("flights", descriptor)


def rows(*planes: str | None) -> list[dict]:
    """Return rows of three days, each of which has every plane."""
    return [
        {"id": 10 * place + day, "plane": plane, "day": DAYS[day]}
        for day in range(3)
        for place, plane in enumerate(planes)
    ]


def state_of(repository: Repository) -> State:
    return read_head(repository.store, "flights").state


def ask(repository: Repository, leaf) -> Lookup:
    state = state_of(repository)
    kind = state.layout.column_types[leaf.column]
    return lookup(repository.store, state.lists.postings[leaf.column], leaf, kind)


def labels_of(state: State, ids) -> list[str]:
    return [label for label in state.labels if file_id(label) in set(ids.tolist())]


@given(st.lists(st.uuids(), max_size=5), st.sampled_from(["", "2-", "12-"]))
def test_ids_of_many_files_are_those_of_each(names: list[uuid.UUID], number: str):
    labels = [f"day=1/part-{number}{name.hex}" for name in names]
    labels += ["part-00000-c000", f"part-0-{'a' * 32}", "a/part-1", f"a/part-{'A' * 32}"]

    found = file_ids(labels).tolist()

    assert found == [-1 if file_id(label) is None else file_id(label) for label in labels]
    assert found[len(names) :] == [-1] * 4
    assert all(0 <= one < 2**63 for one in found[: len(names)])


def test_every_file_that_is_written_is_covered():
    repository = a_repository()
    a_dataset(repository).append(rows("N1", "N2", None))

    answer = ask(repository, Comparison("plane", Op.EQ, "N1"))

    state = state_of(repository)
    assert len(state.labels) == 3
    assert answer.covered.tolist() == answer.found.tolist() == sorted(file_ids(state.labels))
    assert len(ask(repository, NullCheck("plane")).found) == 3


def test_a_value_is_found_in_the_files_that_hold_it_alone():
    repository = a_repository()
    dataset = a_dataset(repository)
    dataset.append(rows("N1", "N2"))
    dataset.append(rows("N3"))

    answer = ask(repository, Comparison("id", Op.EQ, 11))

    (label,) = labels_of(state_of(repository), answer.found)
    assert label.startswith("day=2013-01-02/")
    assert len(answer.covered) == 6


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_every_format_is_indexed(format_: str):
    repository = a_repository()
    a_dataset(repository, format=format_).append(rows("N1", None))

    assert len(ask(repository, Comparison("plane", Op.EQ, "N1")).found) == 3


def test_an_entity_writer_indexes_what_it_writes():
    repository = a_repository()
    with a_dataset(repository).kite.writer() as writer:
        for row in rows("N1"):
            writer.write(row)

    assert len(ask(repository, Comparison("plane", Op.EQ, "N1")).found) == 3


def test_files_that_a_delete_writes_anew_are_indexed_too():
    repository = a_repository()
    dataset = a_dataset(repository)
    dataset.append(rows("N1", "N2"))
    dataset.delete(dataset.where("plane = 'N1' AND day = '2013-01-01'"))

    live = file_ids(state_of(repository).labels).tolist()
    answer = ask(repository, Comparison("plane", Op.EQ, "N1"))

    assert set(live) <= set(answer.covered.tolist())
    assert len(set(live) & set(answer.found.tolist())) == 2
    assert dataset.where("plane = 'N1'").count() == 2


def test_an_overwrite_leaves_no_trace_of_what_was_there():
    repository = a_repository()
    dataset = a_dataset(repository)
    dataset.append(rows("N1"))
    dataset.overwrite(rows("N2"))

    live = set(file_ids(state_of(repository).labels).tolist())
    answer = ask(repository, Comparison("plane", Op.EQ, "N1"))

    assert live <= set(answer.covered.tolist())
    assert not live & set(answer.found.tolist())


@pytest.mark.thorough
def test_many_commits_leave_few_segments():
    repository = a_repository()
    dataset = a_dataset(repository)
    for number in range(3 * FANOUT):
        dataset.append([{"id": number, "plane": f"N{number}", "day": DAYS[0]}])

    state = state_of(repository)
    assert all(len(segments) < 2 * FANOUT for segments in state.lists.postings.values())
    answer = ask(repository, Comparison("id", Op.EQ, 17))
    assert (len(answer.covered), len(answer.found)) == (3 * FANOUT, 1)


def test_a_write_that_is_refused_leaves_no_postings():
    repository = a_repository()
    dataset = a_dataset(repository)

    with pytest.raises(SchemaMismatchError):
        dataset.append([*rows("N1"), {"id": "no number", "plane": "N1", "day": DAYS[0]}])

    assert list(repository.store.list("flights/postings/")) == []


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_store_that_fails_leaves_no_postings_or_all_of_them(nth: int):
    repository = a_repository()
    a_dataset(repository)
    failing = Repository(FailingStore(repository.store, fail_on="put", nth=nth))

    try:
        failing.open("flights").append(rows("N1"))
    except StorageError:
        assert list(repository.store.list("flights/postings/")) == []
        assert state_of(repository).lists.postings == {}
    else:
        assert {len(one) for one in state_of(repository).lists.postings.values()} == {1}


def test_postings_of_a_column_that_lost_its_index_meanwhile_are_left_out():
    repository = a_repository()
    dataset = a_dataset(repository)
    with dataset.kite.writer() as writer:
        for row in rows("N1"):
            writer.write(row)
        repository.open("flights").indices.drop("plane")

    assert set(state_of(repository).lists.postings) == {"id"}
    assert dataset.where("plane = 'N1'").count() == 3


def test_values_of_a_field_that_was_dropped_and_added_again_are_not_those_of_the_new_one():
    repository = a_repository()
    dataset = a_dataset(repository, partition_by=())
    writer = dataset.kite.writer()
    writer.write({"id": 1, "plane": "old", "day": DAYS[0]})
    without = pa.schema([one for one in SCHEMA if one.name != "plane"])
    for schema, index in ((without, ["id"]), (SCHEMA, ["id", "plane"])):
        dataset.evolve(lakebed.DatasetDescriptor(schema=schema, index=index), base=dataset.version)

    writer.close()

    assert "plane" not in state_of(repository).lists.postings
    assert dataset.where("plane = 'old'").count() == 0
    assert dataset.where("plane IS NULL").count() == 1


@examples(0.2)
@given(
    parts=st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["N1", "N2", None])), max_size=8),
        min_size=1,
        max_size=4,
    ),
    wanted=st.integers(0, 5),
)
def test_rows_of_a_view_are_those_of_a_full_scan(parts: list[list[tuple]], wanted: int):
    repository = a_repository()
    dataset = a_dataset(repository, partition_by=())
    for part in parts:
        dataset.append([{"id": n, "plane": plane, "day": None} for n, plane in part])
    everything = [(n, plane) for part in parts for n, plane in part]

    for text, holds in (
        (f"id = {wanted}", lambda n, _: n == wanted),
        (f"id = {wanted} OR plane IS NULL", lambda n, plane: n == wanted or plane is None),
        (f"id >= {wanted} AND plane = 'N1'", lambda n, plane: n >= wanted and plane == "N1"),
    ):
        found = [(row["id"], row["plane"]) for row in dataset.where(text).kite.reader()]
        assert sorted(found, key=repr) == sorted(
            (one for one in everything if holds(*one)), key=repr
        )


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (["plain"], SchemaMismatchError, "Did you mean 'plane'"),
        (["day"], InvalidInputError, "partition field"),
        (["batch_id"], InvalidInputError, "partition field"),
        (["plane", "plane"], InvalidInputError, "twice"),
        (["many"], InvalidInputError, "list<long>"),
        (["record.part"], InvalidInputError, "lies in a record"),
        (["partition"], InvalidInputError, "use that name for the column"),
        ([7], InvalidInputError, "7"),
    ],
)
def test_a_column_that_cannot_have_an_index_is_refused(index, error, message):
    schema = pa.schema(
        [
            *SCHEMA,
            ("many", pa.list_(pa.int64())),
            ("record", pa.struct([("part", pa.int64())])),
            ("partition", pa.int64()),
        ]
    )

    with pytest.raises(error, match=message):
        lakebed.DatasetDescriptor(schema=schema, partition_by="day", index=index)


def test_a_descriptor_keeps_its_index_in_order():
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, index=["plane", "id"])

    read = lakebed.DatasetDescriptor.from_document(descriptor.to_document())

    assert read == descriptor
    assert read.index == ("plane", "id")
    assert lakebed.DatasetDescriptor(schema=SCHEMA, index="id").index == ("id",)
    assert "index" not in lakebed.DatasetDescriptor(schema=SCHEMA).to_document()


@pytest.mark.parametrize(
    "entry",
    [
        "no json",
        '["flights/postings/id/0000000001-x.parquet"]',
        '{"id": ["other/postings/id/0000000001-x.parquet"]}',
        '{"id": ["flights/postings/plane/0000000001-x.parquet"]}',
        '{"id": ["flights/postings/id/../../../0000000001-x.parquet"]}',
        '{"day": ["flights/postings/day/0000000001-x.parquet"]}',
    ],
)
def test_a_head_that_names_other_objects_as_postings_is_refused(entry: str):
    repository = a_repository()
    a_dataset(repository)
    key = "flights.by-dataset-metadata.json"
    stored = repository.store.get(key)
    head = json.loads(stored.data)
    head["metadata"]["lakebed.postings"] = entry
    repository.store.replace(key, json.dumps(head).encode(), if_match=stored.etag)

    with pytest.raises(CorruptMetadataError):
        repository.open("flights").count()


def test_a_file_with_more_values_than_fit_into_memory_is_indexed_in_parts(monkeypatch):
    repository = a_repository()
    dataset = repository.create("flights", lakebed.DatasetDescriptor(schema=SCHEMA))
    for start in (0, 5_000):
        dataset.append(
            [
                {"id": i, "plane": f"N{i % 700:03d}" if i % 9 else None, "day": None}
                for i in range(start, start + 5_000)
            ]
        )
    monkeypatch.setattr(postings_writer, "PART_BYTES", 1_000)

    for column in ("id", "plane"):
        dataset.indices.build(column)

    ids, planes = dataset.indices.list()
    assert (ids.value_count, ids.pair_count, ids.is_complete) == (10_000, 10_000, True)
    assert (planes.value_count, planes.pair_count) == (700, 1_402)  # and null in both files
    assert len(ask(repository, Comparison("id", Op.EQ, 7_777)).found) == 1
    assert len(ask(repository, Comparison("plane", Op.EQ, "N007")).found) == 2
    assert len(ask(repository, NullCheck("plane")).found) == 2
