"""Tables of other formats after a rename: Iceberg shows it, Delta and Hive refuse it by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from table_doors import DELTA, ICEBERG, assert_shows

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.model.schema import Field, Kind, Primitive, Schema

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("s", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def numbers(lake: lakebed.Repository) -> lakebed.Dataset:
    described = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="hash(s, 2) as part")
    dataset = lake.create("numbers", described)
    dataset.append([{"a": 1, "b": 10, "s": "x"}, {"a": 2, "b": 20, "s": None}])
    return dataset


def exchange(dataset: lakebed.Dataset) -> None:
    dataset.evolve(
        lambda known: (
            known.rename_field("a", "t")
            .rename_field("b", "a")
            .rename_field("t", "b")
            .rename_field("s", "text")
        )
    )


def add(dataset: lakebed.Dataset, name: str) -> None:
    added = Field(name=name, type=Primitive(Kind.LONG))
    dataset.evolve(
        lambda old: dataclasses.replace(old, schema=Schema(fields=(*old.schema.fields, added)))
    )


@pytest.mark.parametrize("is_published_before", [True, False])
def test_iceberg_shows_renamed_fields(
    numbers: lakebed.Dataset, *, is_published_before: bool
) -> None:
    if is_published_before:
        numbers.publish("iceberg")
    exchange(numbers)
    numbers.publish("iceberg")
    assert_shows(ICEBERG, numbers)
    numbers.append([{"b": 3, "a": 30, "text": "z"}])
    numbers.publish("iceberg")
    assert_shows(ICEBERG, numbers)
    exchange_back = {"text": "s", "a": "t", "b": "a", "t": "b"}
    for old, new in exchange_back.items():
        numbers.evolve(lambda known, old=old, new=new: known.rename_field(old, new))
        numbers.publish("iceberg")
        assert_shows(ICEBERG, numbers)
    assert numbers.publish("iceberg", check=True).was_in_step


def test_iceberg_keeps_the_id_of_a_renamed_field(numbers: lakebed.Dataset) -> None:
    from pyiceberg.table import StaticTable

    root = Path(numbers.uri.removeprefix("file://"))
    numbers.publish("iceberg")
    before = StaticTable.from_metadata(str(root / "iceberg")).schema()
    exchange(numbers)
    numbers.publish("iceberg")
    after = StaticTable.from_metadata(str(root / "iceberg")).schema()

    for old, new in (("a", "b"), ("b", "a"), ("s", "text"), ("part", "part")):
        assert before.find_field(old).field_id == after.find_field(new).field_id


def test_iceberg_distinguishes_a_field_of_a_name_that_was_renamed_away(
    numbers: lakebed.Dataset,
) -> None:
    numbers.publish("iceberg")
    numbers.evolve(lambda known: known.rename_field("a", "first"))
    add(numbers, "a")
    numbers.append([{"first": 3, "b": 30, "s": "z", "a": 300}])
    numbers.publish("iceberg")
    assert_shows(ICEBERG, numbers)
    numbers.evolve(
        lambda old: dataclasses.replace(
            old, schema=Schema(fields=tuple(one for one in old.schema if one.name != "first"))
        )
    )
    numbers.publish("iceberg")
    assert_shows(ICEBERG, numbers)


def test_a_table_of_a_catalog_shows_renamed_fields(
    numbers: lakebed.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/house"}
    with SqlCatalog("renamed", **settings) as catalog:
        # pyiceberg reads its configuration once a process.
        monkeypatch.setattr("lakebed.tables.iceberg.homes.load_catalog", lambda _: catalog)
        catalog.create_namespace("lake")
        for _ in range(2):
            numbers.publish("iceberg", catalog="renamed", table="lake.numbers")
            found = catalog.load_table("lake.numbers").scan().to_arrow().select(numbers.columns)
            by_first = sorted(found.to_pylist(), key=repr)
            assert by_first == sorted(numbers.arrow().to_pylist(), key=repr)
            if "s" in numbers.columns:
                exchange(numbers)


def test_delta_refuses_a_renamed_field_and_keeps_the_last_table(numbers: lakebed.Dataset) -> None:
    numbers.publish("delta")
    root = Path(numbers.uri.removeprefix("file://")) / DELTA.folder
    before = sorted(path.name for path in root.iterdir())
    exchange(numbers)
    numbers.append([{"b": 3, "a": 30, "text": "z"}])

    with pytest.raises(InvalidInputError, match="Delta cannot show the renamed field 'b'"):
        numbers.publish("delta")

    assert sorted(path.name for path in root.iterdir()) == before


def test_statements_for_hive_refuse_a_renamed_field(numbers: lakebed.Dataset) -> None:
    exchange(numbers)

    with pytest.raises(InvalidInputError, match="Hive cannot show the renamed field 'b'"):
        numbers.publish("hive", table="lake.numbers", print_sql=True)


def test_a_property_publishes_a_renamed_field_to_iceberg(lake: lakebed.Repository) -> None:
    properties = {"publish.iceberg": "true"}
    numbers = lake.create(
        "numbers", lakebed.DatasetDescriptor(schema=SCHEMA, properties=properties)
    )
    numbers.append([{"a": 1, "b": 10, "s": "x"}])
    exchange(numbers)
    commit = numbers.append([{"b": 3, "a": 30, "text": "z"}])

    assert commit.not_published == ()
    assert_shows(ICEBERG, numbers)
