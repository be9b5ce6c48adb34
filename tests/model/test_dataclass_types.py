"""Dataclasses as schemas, and rows as their instances."""

import datetime as dt
import decimal
from dataclasses import dataclass, field
from typing import Optional

import pytest

from lakebed.errors import SchemaMismatchError
from lakebed.model.dataclass_types import builder, schema_from_dataclass
from lakebed.model.schema import Field, Kind, ListOf, MapOf, Primitive, Struct


@dataclass
class Place:
    lat: float
    name: str | None = None


@dataclass
class Visit:
    visited_at: dt.datetime
    place: Place
    day: dt.date | None
    tags: list[str]
    path: list[Place | None]
    scores: dict[str, int]
    homes: dict[str, Place]
    per_day: dict[dt.date, int | None]
    pair: tuple[int, ...]
    note: Optional[bytes] = None  # noqa: UP045 - the old form must work, too
    seen: bool = field(default=False, init=False)


@dataclass
class Node:
    next: "Node | None"


def test_annotations_become_types() -> None:
    schema = schema_from_dataclass(Visit)

    place = Struct(
        (
            Field(name="lat", type=Primitive(Kind.DOUBLE), nullable=False),
            Field(name="name", type=Primitive(Kind.STRING), nullable=True),
        )
    )
    assert schema.name == "Visit"
    assert {f.name: (f.type, f.nullable) for f in schema} == {
        "visited_at": (Primitive(Kind.TIMESTAMP), False),
        "place": (place, False),
        "day": (Primitive(Kind.DATE), True),
        "tags": (ListOf(Primitive(Kind.STRING), element_nullable=False), False),
        "path": (ListOf(place, element_nullable=True), False),
        "scores": (MapOf(Primitive(Kind.LONG), value_nullable=False), False),
        "homes": (MapOf(place, value_nullable=False), False),
        "per_day": (MapOf(Primitive(Kind.LONG), key=Primitive(Kind.DATE)), False),
        "pair": (ListOf(Primitive(Kind.LONG), element_nullable=False), False),
        "note": (Primitive(Kind.BYTES), True),
        "seen": (Primitive(Kind.BOOLEAN), False),
    }


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (decimal.Decimal, "without precision"),
        (object, "of field 'a'"),
        (int | str, "of field 'a'"),
        (list, "of field 'a'"),
        (dict[list[int], str], "of field 'a'"),
        (list[complex], r"of field 'a\[\]'"),
        (dict[str, complex], r"of field 'a\{\}'"),
        (tuple[int, str], "of field 'a'"),
    ],
)
def test_annotation_without_a_type_is_refused_with_its_place(hint: object, message: str) -> None:
    cls = dataclass(type("Bad", (), {"__annotations__": {"a": hint}}))

    with pytest.raises(SchemaMismatchError, match=message):
        schema_from_dataclass(cls)


def test_dataclass_that_contains_itself_is_refused() -> None:
    with pytest.raises(SchemaMismatchError, match="contains itself"):
        schema_from_dataclass(Node)


def test_annotation_that_nobody_knows_is_a_named_error() -> None:
    cls = dataclass(type("Bad", (), {"__annotations__": {"a": "Nobody"}}))

    with pytest.raises(SchemaMismatchError, match="cannot be resolved"):
        schema_from_dataclass(cls)


def test_field_name_outside_ascii_is_kept() -> None:
    cls = dataclass(type("Sizes", (), {"__annotations__": {"größe": int}}))

    assert schema_from_dataclass(cls).names == ("größe",)


def test_row_becomes_an_instance_at_every_depth() -> None:
    row = {
        "visited_at": dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
        "place": {"lat": 1.5, "name": "x"},
        "day": None,
        "tags": ["a"],
        "path": [{"lat": 2.0, "name": None}, None],
        "scores": {"a": 1},
        "homes": {"lat": {"lat": 3.0, "name": "lat"}},
        "per_day": {dt.date(2013, 1, 1): None},
        "pair": [1, 2],
        "note": None,
    }

    visit = builder(Visit)(row)

    assert visit == Visit(
        visited_at=dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
        place=Place(1.5, "x"),
        day=None,
        tags=["a"],
        path=[Place(2.0), None],
        scores={"a": 1},
        homes={"lat": Place(3.0, "lat")},
        per_day={dt.date(2013, 1, 1): None},
        pair=(1, 2),
    )
