"""Counts of rows and totals of partitions, computed for all files without an object for each."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from inside import store_of

import lakebed
from lakebed import by
from lakebed.commit import partitions_of
from lakebed.errors import CorruptMetadataError
from lakebed.plan import search
from lakebed.plan.partition_totals import partition_totals
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.store import Store, open_store
from lakebed.store.cache import PROCESS_CACHE

SCHEMA = pa.schema([("p", pa.string()), ("v", pa.int64())])
HEAD = HeadFormat.JSON.key("d")
CONDITIONS = ["TRUE", "p = 'a'", "p IS NULL OR p = 'b/c'", "v >= 2", "p = 'a' AND v < 3", "v = 99"]

_names = itertools.count()


def make(*partitioning: Any) -> lakebed.Dataset:
    store = open_store(f"memory://totals-{next(_names)}")
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=list(partitioning))
    return lakebed.Repository(store).create("d", descriptor)


def lose_facts(store: Store) -> None:
    """Damage the oldest segment of the file table: the facts of its files are unknown then."""
    segment = read_head(store, "d").state.lists.files[0]
    store.put(segment.key, b"damaged")


rows = st.fixed_dictionaries({"p": st.sampled_from(["a", "b/c", "", None]), "v": st.integers(0, 4)})


@given(
    commits=st.lists(st.lists(rows, min_size=1, max_size=6), max_size=5),
    is_partitioned=st.booleans(),
    is_damaged=st.booleans(),
)
@examples(0.3)
def test_totals_are_those_of_the_files_and_counts_those_of_the_rows(
    commits: list[list[dict[str, Any]]], is_partitioned: bool, is_damaged: bool
) -> None:
    dataset = make(*([by.identity("p")] if is_partitioned else []))
    for one in commits:
        dataset.append(one)
    if commits and is_damaged:
        lose_facts(store_of(dataset))

    types = read_head(store_of(dataset), "d").state.layout.partition_level_types
    assert list(dataset.inspect.partitions()) == list(partitions_of(dataset.files(), types))
    for condition in CONDITIONS:
        view = dataset.where(condition)
        assert view.count() == sum(1 for _ in view.kite.reader())


def test_a_file_of_unknown_rows_makes_the_total_of_its_partition_unknown() -> None:
    dataset = make(by.identity("p"))
    dataset.append([{"p": "a", "v": 1}])
    dataset.append([{"p": "a", "v": 2}, {"p": "b", "v": 3}])
    lose_facts(store_of(dataset))
    PROCESS_CACHE.clear()

    totals = {one.path: (one.file_count, one.row_count) for one in dataset.inspect.partitions()}

    assert totals == {"p=a": (2, None), "p=b": (1, 1)}
    assert dataset.count() == 3


def test_no_file_becomes_an_object_if_all_rows_are_known() -> None:
    dataset = make(by.identity("p"))
    for number in range(4):
        dataset.append([{"p": p, "v": number} for p in "ab"])

    with mock.patch.object(search, "DataFile", side_effect=AssertionError("an object a file")):
        assert dataset.count() == 8
        assert dataset.where("p = 'a'").count() == 4
        assert [one.row_count for one in dataset.inspect.partitions()] == [4, 4]


def test_only_files_that_must_be_opened_become_objects() -> None:
    dataset = make(by.identity("p"))
    dataset.append([{"p": "a", "v": 1}, {"p": "b", "v": 1}])
    dataset.append([{"p": "a", "v": 2}, {"p": "a", "v": 5}])
    made: list[Any] = []
    kind = search.DataFile

    def noted(**facts: Any) -> Any:
        made.append(kind(**facts))
        return made[-1]

    with mock.patch.object(search, "DataFile", side_effect=noted):
        assert dataset.where("v >= 2 AND v < 5 OR p = 'b'").count() == 2

    assert [file.is_filtered for file in made] == [True]


def test_rows_of_an_older_schema_are_counted() -> None:
    dataset = make(by.identity("p"))
    dataset.append([{"p": "a", "v": 1}])
    wider = SCHEMA.append(pa.field("w", pa.int64()))
    dataset.evolve(lambda old: dataclasses.replace(old, schema=wider))
    dataset.append([{"p": "a", "v": 2, "w": 1}, {"p": "b", "v": 2, "w": None}])

    assert dataset.count() == 3
    assert dataset.where("w IS NULL").count() == 2
    assert dataset.where("w = 1").count() == 1


@pytest.mark.parametrize("labels", [["p=a/batch_id=1/x", "p=a/batch_id=1/q=2/y"], ["q=1/x"]])
def test_a_directory_that_does_not_fit_is_refused_by_name(labels: list[str]) -> None:
    dataset = make(by.identity("p"))
    document = json.loads(store_of(dataset).get(HEAD).data)
    document["partitions"] = {
        label: {"files": {"data": f"d/data/{label}.parquet"}} for label in labels
    }
    store_of(dataset).put(HEAD, json.dumps(document).encode())

    with pytest.raises(CorruptMetadataError, match=labels[-1].rpartition("/")[0]):
        lakebed.Repository(store_of(dataset)).open("d").inspect.partitions()


def test_totals_of_partitions_do_not_depend_on_the_order_of_the_labels() -> None:
    dataset = make(by.identity("p"))
    for number in range(3):
        dataset.append([{"p": p, "v": number} for p in ("a", "b", None)])
    store = store_of(dataset)
    state = read_head(store, "d").state
    expected = partition_totals(store, state)
    mixed = state.with_labels(sorted(state.labels, key=lambda x: x[::-1]))

    assert partition_totals(store, mixed) == expected
    assert [one.file_count for one in expected] == [3, 3, 3]
