"""Erasure by fields that files of older schemas lack, or had other values for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from erasing import erased_without_trace
from planted import key

import lakebed
from lakebed import Dataset, DatasetDescriptor

K = key(7)
FLAT = pa.schema([("k", pa.int64()), ("x", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(str(tmp_path / "lake"))


def left(visits: Dataset, version: int | None = None) -> list[int]:
    at = visits if version is None else visits.at(version=version)
    return sorted(row["k"] for row in at.arrow(["k"]).to_pylist())


@pytest.mark.parametrize(
    ("where", "now"),
    [
        (f"x = '{K}'", [2, 4]),
        (f"x = '{K}' OR z = '{K}'", [2, 4]),
        (f"x = '{K}' AND z IS NULL", [2, 3, 4]),
        ({"x": K, "z": None}, [2, 3, 4]),
    ],
    ids=["alone", "or", "and", "keys"],
)
def test_a_field_that_was_added_again_and_one_that_is_new(
    lake: lakebed.Repository, where: Any, now: list[int]
) -> None:
    visits = lake.create("visits", FLAT)
    visits.append([{"k": 1, "x": K}, {"k": 2, "x": "bob"}])
    visits.evolve(lambda old: old.drop_field("x"))
    visits.evolve(lambda old: old.add_field("x", "string"))
    visits.evolve(lambda old: old.add_field("z", "string"))
    visits.append([{"k": 3, "x": K, "z": K}, {"k": 4, "x": "amy"}])

    done = visits.erase(where, reason="request 17", grace="0s")

    assert done.is_finished
    assert (left(visits, 1), left(visits)) == ([2], now)


def nested(*inner: tuple[str, Any]) -> DatasetDescriptor:
    return DatasetDescriptor(
        schema=pa.schema([("k", pa.int64()), ("r", pa.struct([pa.field(*one) for one in inner]))])
    )


X, Y = ("x", pa.string()), ("y", pa.int64())


def added_again(visits: Dataset) -> None:
    for fields in ((Y,), (Y, X)):
        schema = nested(*fields).schema
        visits.evolve(lambda old, schema=schema: replace(old, schema=schema))


def test_a_nested_field_that_was_added_again(lake: lakebed.Repository, tmp_path: Path) -> None:
    visits = lake.create("visits", nested(X, Y))
    visits.append([{"k": 1, "r": {"x": K, "y": 1}}, {"k": 2, "r": {"x": "bob", "y": 2}}])
    added_again(visits)
    visits.append([{"k": 3, "r": {"y": 1, "x": K}}])

    erased_without_trace(visits, {"r.x": K}, tmp_path / "lake")

    assert (left(visits, 1), left(visits)) == ([2], [2])


@pytest.mark.parametrize("remove", [True, False], ids=["replaced", "live"])
def test_null_in_a_field_that_was_added_again(lake: lakebed.Repository, *, remove: bool) -> None:
    visits = lake.create("visits", nested(X, Y))
    visits.append([{"k": 1, "r": {"x": "ada", "y": 1}}, {"k": 2, "r": {"x": None, "y": 2}}])
    if remove:
        visits.delete(visits)
    added_again(visits)
    visits.append([{"k": 3, "r": {"y": 1, "x": "zed"}}])

    visits.erase("r.x IS NULL", reason="request 17", grace="0s")

    # The current version shows null in live files of the former schema.
    assert (left(visits, 1), left(visits)) == ([1] if remove else [], [3])


OTHERS: dict[str, Callable[[DatasetDescriptor], DatasetDescriptor]] = {
    "renamed": lambda old: old.rename_field("x", "person"),
    "dropped": lambda old: old.drop_field("x"),
}


@pytest.mark.parametrize("change", OTHERS)
def test_versions_in_which_the_name_was_that_of_another_field(
    lake: lakebed.Repository, change: str
) -> None:
    visits = lake.create("visits", FLAT)
    visits.append([{"k": 1, "x": K}, {"k": 2, "x": "bob"}])
    visits.evolve(OTHERS[change])
    visits.evolve(lambda old: old.add_field("x", "string"))
    visits.append([{"k": 4, "x": K}])

    visits.erase({"x": K}, reason="request 17", grace="0s")

    assert (left(visits, 1), left(visits)) == ([2], [2])


@pytest.mark.parametrize(
    ("condition", "first", "now"),
    [
        ("concat(person, '!') = '{}!'", [2], [2, 3]),
        ("length(z) = 3", [1, 2], [1, 2]),
        ("length(coalesce(z, '-')) = 1", [], [3]),
        ("concat(person, coalesce(z, '-')) = '{}-'", [2], [2, 3]),
    ],
)
def test_expressions_over_renamed_and_new_fields(
    lake: lakebed.Repository, condition: str, first: list[int], now: list[int]
) -> None:
    visits = lake.create("visits", FLAT)
    visits.append([{"k": 1, "x": K}, {"k": 2, "x": "bob"}])
    visits.evolve(lambda old: old.rename_field("x", "person"))
    visits.evolve(lambda old: old.add_field("z", "string"))
    visits.append([{"k": 3, "person": "eve", "z": "new"}])

    visits.erase(condition.format(K), reason="request 17", grace="0s")

    assert (left(visits, 1), left(visits)) == (first, now)


def test_a_renamed_field_and_a_new_one(lake: lakebed.Repository, tmp_path: Path) -> None:
    visits = lake.create("visits", FLAT)
    visits.append([{"k": 1, "x": K}, {"k": 2, "x": "bob"}])
    visits.delete(visits)
    visits.evolve(lambda old: old.rename_field("x", "person"))
    visits.evolve(lambda old: old.add_field("z", "string"))

    erased_without_trace(visits, f"person = '{K}' OR z = '{K}'", tmp_path / "lake")

    assert left(visits, 1) == [2]
