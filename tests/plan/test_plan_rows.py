"""Rows of any plan are the rows of a full scan with the same filter, whatever the plan asked."""

import dataclasses
import itertools
import random
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from inside import state_of
from strategies import TYPES, VALUES, predicates

import lakebed
from lakebed.dataset import Dataset
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import matches
from lakebed.model.predicate import Predicate, bind
from lakebed.plan.search import plan
from lakebed.store import open_store
from lakebed.store.cache import PROCESS_CACHE

_names = itertools.count()

# Long ones, of which the file table keeps a part only.
LONG = {
    "string": ["z" * 200, "z" * 127 + "\ud7ff" * 9, "\U0010ffff" * 130, "é" * 128 + "a"],
    "bytes": [b"a" * 200, b"\xff" * 130, b"a" * 127 + b"\xff" * 9],
}
CHOICES: dict[str, list[Any]] = {
    **{name: [*values, *LONG.get(name, [])] for name, values in VALUES.items()},
    "p": ["", "a", "b/ü"],
}
COLUMNS = {**TYPES, "p": TYPES["string"]}
SCHEMA = pa.schema(
    [("row", pa.int64()), *((name, type_to_arrow(kind)) for name, kind in COLUMNS.items())]
)
INDEXED = ["long", "double", "string", "bytes", "timestamp", "decimal", "unsigned_long"]

# Few distinct values a file, as in sorted data: then bounds tell something.
rows_of_a_file = st.fixed_dictionaries(
    {
        name: st.lists(st.none() | st.sampled_from(values), min_size=1, max_size=2)
        for name, values in CHOICES.items()
    }
)
PREDICATES = predicates(CHOICES, max_leaves=5)
steps = st.one_of(
    st.tuples(st.just("append"), rows_of_a_file),
    st.tuples(st.just("append"), rows_of_a_file),
    st.tuples(st.just("overwrite"), rows_of_a_file),
    st.tuples(st.just("delete"), predicates(CHOICES, max_leaves=2)),
    st.tuples(st.just("index"), st.sets(st.sampled_from(INDEXED), max_size=4)),
    st.tuples(st.just("build"), st.sampled_from(INDEXED)),
)
damages = st.lists(
    st.tuples(st.sampled_from(["gone", "cut", "other"]), st.integers(0, 99)), max_size=2
)


class Model:
    """A dataset, and the rows that it must hold."""

    def __init__(self, partition_by: str | None, index: set[str]) -> None:
        self.store = open_store(f"memory://plans-{next(_names)}")
        descriptor = lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by=partition_by or (), index=sorted(index)
        )
        self.dataset: Dataset = lakebed.Repository(self.store).create("d", descriptor)
        self.rows: dict[int, dict[str, Any]] = {}
        self._numbers = itertools.count()

    def new_rows(self, chosen: dict[str, list[Any]]) -> list[dict[str, Any]]:
        rows = []
        for position in range(3):
            row = {name: values[position % len(values)] for name, values in chosen.items()}
            rows.append({"row": next(self._numbers), **row})
        return rows

    def do(self, step: tuple[str, Any]) -> None:
        match step:
            case ("append", chosen):
                rows = self.new_rows(chosen)
                self.dataset.append(rows)
                self.rows |= {row["row"]: row for row in rows}
            case ("overwrite", chosen):
                rows = self.new_rows(chosen)
                self.dataset.overwrite(rows)
                replaced = {row["p"] for row in rows}
                is_partitioned = bool(len(self.dataset.descriptor.partition_by))
                self.rows = {
                    number: row
                    for number, row in self.rows.items()
                    if is_partitioned and row["p"] not in replaced
                }
                self.rows |= {row["row"]: row for row in rows}
            case ("delete", predicate):
                self.dataset.where(bind(predicate, COLUMNS)).delete()
                self.rows = {n: row for n, row in self.rows.items() if not matches(predicate, row)}
            case ("build", column):
                self.dataset.indices.build(column)
            case ("index", columns):
                descriptor = self.dataset.descriptor
                self.dataset.evolve(
                    dataclasses.replace(descriptor, index=tuple(sorted(columns))),
                    base=self.dataset.version,
                )

    def damage(self, how: str, number: int) -> None:
        """Spoil a segment of the file table or of an index."""
        keys = [
            info.key for folder in ("d/files/", "d/postings/") for info in self.store.list(folder)
        ]
        if not keys:
            return
        key = keys[number % len(keys)]
        data = bytearray(self.store.get(key).data)
        self.store.delete([key])
        match how:
            case "cut":
                self.store.put(key, bytes(data[: len(data) // 2]))
            case "other":
                noise = random.Random(number)
                for _ in range(3):
                    data[noise.randrange(len(data))] ^= 1 + noise.randrange(255)
                self.store.put(key, bytes(data))
        PROCESS_CACHE.clear()

    def check(self, predicate: Predicate) -> None:
        view = self.dataset.where(bind(predicate, state_of(self.dataset).layout.predicate_types))
        expected = sorted(n for n, row in self.rows.items() if matches(predicate, row))

        chosen = view.plan()
        told = chosen.explain()

        assert sorted(view.arrow(["row"])["row"].to_pylist()) == expected
        assert view.count() == len(expected)
        assert view.kite.is_empty() is (not expected)
        dropped = (
            told.dropped_by_partition,
            told.dropped_by_schema,
            told.dropped_by_statistics,
            told.dropped_by_index,
        )
        assert told.kept + sum(dropped) == told.file_count
        assert min(dropped) >= 0
        by_head = plan(chosen.state, chosen.predicate, requests=0)
        assert {file.key for file in chosen.files} <= {file.key for file in by_head.files}
        assert chosen.files == view.plan().files


@pytest.mark.timeout(3_600)  # with the profile `long` eight minutes, on two cores that are idle
@examples(0.5, long=2_500)
@given(
    st.sampled_from(["p", None]),
    st.sets(st.sampled_from(INDEXED), max_size=4),
    st.lists(steps, min_size=2, max_size=6),
    damages,
    st.lists(PREDICATES, min_size=3, max_size=6),
)
def test_rows_of_a_plan_are_those_of_a_full_scan(
    partition_by: str | None,
    index: set[str],
    todo: list[tuple[str, Any]],
    damage: list[tuple[str, int]],
    asked: list[Predicate],
) -> None:
    model = Model(partition_by, index)
    for step in todo:
        model.do(step)
    for predicate in asked[:2]:
        model.check(predicate)
    for how, number in damage:
        model.damage(how, number)
    for predicate in asked:
        model.check(predicate)
