"""Spark reads files of several schemas as one DataFrame, and writes under the current one."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed import DatasetDescriptor
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.spark

DAY = {"type": "int", "logicalType": "date"}
WALL = {"type": "long", "logicalType": "local-timestamp-micros"}


def money(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def one(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def described(*fields: dict[str, Any], **more: Any) -> DatasetDescriptor:
    return DatasetDescriptor(schema={"type": "record", "name": "r", "fields": list(fields)}, **more)


OLD = [
    one("id", "int"),
    one("ratio", ["null", "float"]),
    one("price", ["null", money(5, 2)]),
    one("day", DAY),
    one("gone", ["null", "string"]),
    one("part", "string"),
]
NEW = [
    one("part", "string"),
    one("label", "string", default="none"),
    one("id", "long"),
    one("ratio", ["null", "double"]),
    one("price", ["null", money(20, 4)]),
    one("day", WALL),
    one("blob", "bytes", default="\u00ff"),
    one("tags", {"type": "array", "items": "string"}, default=[]),
    one("counts", {"type": "map", "values": "int"}, default={}),
    one("empty", ["null", "int"]),
]
PRICE = decimal.Decimal("1.25")
NONE_YET = {"label": "none", "blob": b"\xff", "tags": [], "counts": {}, "empty": None}
ROWS = [
    {
        "id": 1,
        "ratio": 0.5,
        "price": PRICE,
        "day": dt.datetime(2013, 1, 1),
        "part": "a",
        **NONE_YET,
    },
    {
        "id": 2,
        "ratio": None,
        "price": None,
        "day": dt.datetime(2014, 1, 1),
        "part": "b",
        **NONE_YET,
    },
    {
        **NONE_YET,
        "id": 2**40,
        "ratio": 0.1,
        "price": PRICE,
        "day": dt.datetime(2015, 1, 1, 5),
        "part": "a",
        "label": "new",
        "tags": ["x"],
        "counts": {"k": 1},
        "empty": 5,
    },
]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> lakebed.Dataset:
    """Files of two schemas, those of the second written by Spark."""
    lake = tmp_path_factory.mktemp("mixed")
    dataset = lakebed.open_repository(lake).create("d", described(*OLD, partition_by="part"))
    dataset.append(
        [
            {
                "id": 1,
                "ratio": 0.5,
                "price": PRICE,
                "day": dt.date(2013, 1, 1),
                "gone": "x",
                "part": "a",
            },
            {"id": 2, "day": dt.date(2014, 1, 1), "gone": "y", "part": "b"},
        ]
    )
    dataset.evolve(described(*NEW, partition_by="part"), base=dataset.version)
    schema = dataset.spark(spark).schema
    dataset.append(spark.createDataFrame([tuple(ROWS[2][n] for n in schema.names)], schema))
    return dataset


def rows_of(frame: Any) -> list[dict[str, Any]]:
    found = [row.asDict() for row in frame.collect()]
    return sorted(
        [{**row, "blob": bytes(row["blob"])} if "blob" in row else row for row in found],
        key=lambda row: row["id"],
    )


@pytest.mark.parametrize("way", ["auto", "native", "arrow"])
def test_mixed_files_are_one_frame_with_right_types(
    mixed: lakebed.Dataset, spark: Any, way: Any
) -> None:
    frame = mixed.spark(spark, way=way)

    assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
        ("part", "string"),
        ("label", "string"),
        ("id", "bigint"),
        ("ratio", "double"),
        ("price", "decimal(20,4)"),
        ("day", "timestamp_ntz"),
        ("blob", "binary"),
        ("tags", "array<string>"),
        ("counts", "map<string,int>"),
        ("empty", "int"),
    ]
    assert rows_of(frame) == ROWS
    assert frame.count() == 3
    assert {"/part-2-" in file.key for file in mixed.files()} == {True, False}


@pytest.mark.parametrize("way", ["native", "arrow"])
@pytest.mark.parametrize(
    ("predicate", "ids"),
    [
        ("label = 'none'", [1, 2]),
        ("label = 'new' OR id = 1", [1, 2**40]),
        ("empty IS NULL AND part = 'a'", [1]),
        ("ratio >= 0.1", [1, 2**40]),
        ("day > '2013-06-01'", [2, 2**40]),
        ("price = 1.25", [1, 2**40]),
        ("id > 1", [2, 2**40]),
    ],
)
def test_predicates_ask_old_files_what_they_read_as(
    mixed: lakebed.Dataset, spark: Any, way: Any, predicate: str, ids: list[int]
) -> None:
    frame = mixed.where(predicate).spark(spark, ["id"], way=way)

    assert sorted(row.id for row in frame.collect()) == ids


def test_a_column_that_no_old_file_holds_is_read_alone(mixed: lakebed.Dataset, spark: Any) -> None:
    found = mixed.spark(spark, ["label"], way="native").collect()

    assert sorted(row.label for row in found) == ["new", "none", "none"]


def test_older_versions_keep_their_schema(mixed: lakebed.Dataset, spark: Any) -> None:
    frame = mixed.at(version=1).spark(spark)

    assert frame.columns == [field["name"] for field in OLD]
    assert sorted(row.gone for row in frame.collect()) == ["x", "y"]
    assert frame.schema["id"].dataType.simpleString() == "int"


def test_records_of_another_form_are_read_through_arrow(tmp_path: Path, spark: Any) -> None:
    def place(*fields: dict[str, Any]) -> Any:
        return ["null", {"type": "record", "name": "place", "fields": list(fields)}]

    fields = [one("id", "long"), one("p", place(one("x", "int"), one("y", ["null", "int"])))]
    dataset = lakebed.open_repository(tmp_path).create("d", described(*fields))
    dataset.append([{"id": 1, "p": {"x": 1, "y": 2}}, {"id": 2, "p": None}])
    fields[1] = one("p", place(one("z", "int", default=7), one("x", "long")))
    dataset.evolve(described(*fields), base=dataset.version)
    dataset.append([{"id": 3, "p": {"z": 8, "x": 2**40}}])

    found = dataset.spark(spark).collect()

    assert sorted((row.id, row.p and tuple(row.p)) for row in found) == [
        (1, (7, 1)),
        (2, None),
        (3, (8, 2**40)),
    ]
    assert [row.id for row in dataset.where("p.z = 7").spark(spark).collect()] == [1]
    # What does not ask for the record needs no detour.
    assert dataset.spark(spark, ["id"], way="native").count() == 3
    with pytest.raises(InvalidInputError, match="'p' has another form in files of schema 1"):
        dataset.spark(spark, way="native")
