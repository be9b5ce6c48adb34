"""Names and comments of columns in Spark, by each way of reading and writing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
import lakebed.spark
from lakebed import by

pytestmark = pytest.mark.spark

NAMES = [
    "my col",
    "größe",
    "中",
    "50%",
    "a/b",
    "a=b",
    "x,y",
    "q'u\"o",
    "@where",
    "b\\s",
    "select",
    "[€]",
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def odd(lake: lakebed.Repository) -> lakebed.Dataset:
    fields = [pa.field(name, pa.int64(), metadata={"comment": f"it's {name}"}) for name in NAMES]
    inner = pa.struct([("in ner", pa.int64())])
    odd = lake.create(
        "odd",
        lakebed.DatasetDescriptor(
            schema=pa.schema([*fields, ("st ruct", inner), ("plain", pa.float64())]),
            partition_by=[by.hash("größe", 3), by.identity("a=b"), by.identity("中")],
            index=["my col"],
        ),
    )
    odd.append(
        [
            {
                **{name: 100 * n + place for place, name in enumerate(NAMES)},
                "中": n % 2,
                "a=b": n % 2,
                "st ruct": {"in ner": n},
                "plain": n / 2,
            }
            for n in range(10)
        ]
    )
    return odd


def rows_of(frame: Any) -> list[dict]:
    return sorted(
        (row.asDict(recursive=True) for row in frame.collect()), key=lambda row: row["my col"]
    )


def all_rows(odd: lakebed.Dataset) -> list[dict]:
    return sorted(odd.arrow().to_pylist(), key=lambda row: row["my col"])


@pytest.mark.parametrize("way", ["auto", "native", "arrow"])
def test_every_way_gives_the_rows_under_their_names(
    spark: Any, odd: lakebed.Dataset, way: Any
) -> None:
    assert rows_of(odd.spark(spark, way=way)) == all_rows(odd)
    columns = ["größe_hash", "中", "a=b", "my col", "st ruct"]
    some = sorted(odd.arrow(columns).to_pylist(), key=lambda row: row["my col"])
    assert rows_of(odd.spark(spark, columns=columns, way=way)) == some
    view = odd.where("`größe` = 301 AND `st ruct`.`in ner` = 3 AND 中 = 1")
    assert rows_of(view.spark(spark, way=way)) == view.arrow().to_pylist()


@pytest.mark.parametrize("way", ["auto", "native", "arrow"])
def test_comments_are_those_of_the_frame(spark: Any, odd: lakebed.Dataset, way: Any) -> None:
    schema = odd.spark(spark, way=way).schema

    comments = {field.name: field.metadata.get("comment") for field in schema}
    assert comments == {**{name: f"it's {name}" for name in NAMES}, "st ruct": None, "plain": None}


def test_attached_view_is_asked_and_described(spark: Any, lake: Any, odd: lakebed.Dataset) -> None:
    with lakebed.spark.attach(spark, lake, datasets=["odd"]):
        answer = spark.sql(
            "SELECT `my col` FROM odd WHERE `größe` = 401 AND `a=b` = 0 AND `x,y` > 1"
        )
        described = {row[0]: row[2] for row in spark.sql("DESCRIBE odd").collect()}

        assert [row[0] for row in answer.collect()] == [400]
    assert described["größe"] == "it's größe"
    assert described["größe_hash"] is None


def test_data_source_reads_and_writes_the_names(
    spark: Any, lake: Any, odd: lakebed.Dataset
) -> None:
    uri = odd.uri
    frame = spark.read.format("lakebed").load(uri)

    assert rows_of(frame) == all_rows(odd)
    assert frame.schema["50%"].metadata["comment"] == "it's 50%"
    assert frame.where("`größe` = 201 AND `my col` < 1000").count() == 1
    listed = spark.read.format("lakebed").option("columns", "plain, `x,y`,größe").load(uri)
    assert listed.columns == ["plain", "x,y", "größe"]
    copy = lake.create("copy", odd.descriptor)
    frame.write.format("lakebed").mode("append").save(copy.uri)
    assert all_rows(copy) == all_rows(odd)


def test_frame_gives_its_names_and_comments_to_a_dataset(
    spark: Any, lake: Any, odd: lakebed.Dataset
) -> None:
    frame = odd.spark(spark)
    made = lake.create("made", lakebed.DatasetDescriptor(schema=frame, partition_by="`my col`"))

    made.append(frame)

    assert made.schema.get("größe").doc == "it's größe"
    assert all_rows(made) == all_rows(odd)
    report = made.merge(frame.where("`größe` < 300"), on=["größe", "my col"])
    assert report.updated_row_count == 3
