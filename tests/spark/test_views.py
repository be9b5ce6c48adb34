"""Views in Spark: nested columns in predicates, and writing through a view in tasks."""

import functools
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates

import lakebed
from lakebed import by
from lakebed.errors import InvalidInputError
from lakebed.model.predicate import Predicate
from lakebed.model.spark_types import schema_to_spark

pytestmark = pytest.mark.spark

POSITION = pa.struct([("latitude", pa.float64()), ("at", pa.struct([("code", pa.string())]))])
SCHEMA = pa.schema([("n", pa.int64()), ("p", pa.string()), ("position", POSITION)])
VALUES: dict[str, list[Any]] = {
    "position.latitude": [0.0, 1.5, -1.5, math.nan],
    "position.at.code": ["a", "b", "é"],
    "p": ["x", "y"],
    "n": [0, 30],
}


def position(n: int) -> dict[str, Any] | None:
    if n % 7 == 0:
        return None
    latitude = [0.0, -0.0, None, 1.5, math.nan, -1.5, math.inf, 1.5, 1.5, 1.5][n // 6 % 10]
    return {"latitude": latitude, "at": {"code": "abé"[n % 3]} if n % 5 else None}


ROWS = [{"n": n, "p": ["x", "y", None][n % 3], "position": position(n)} for n in range(60)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Dataset:
    lake = lakebed.open_repository(tmp_path_factory.mktemp("lake"))
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    dataset = lake.create("places", descriptor)
    # Row groups of a few rows, some of them equal but for a NaN: bounds do not tell of it.
    dataset.with_options(write=lakebed.WriteOptions(row_group_bytes=100)).append(ROWS)
    return dataset


@examples(0.02)  # a frame costs a look at its files
@given(many=st.lists(predicates(VALUES, max_leaves=4), min_size=8, max_size=8))
def test_spark_reads_exactly_the_entities_that_a_view_includes(
    spark: Any, dataset: lakebed.Dataset, many: list[Predicate]
) -> None:
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    views = [dataset.where(predicate) for predicate in many]
    frames = [
        view.spark(spark, ["n"], way=way).select(F.lit(i).alias("i"), F.lit(way).alias("w"), "n")
        for i, view in enumerate(views)
        for way in ("auto", "arrow")
    ]

    found = {
        (row.i, row.w, row.n) for row in functools.reduce(lambda a, b: a.union(b), frames).collect()
    }

    assert found == {
        (i, way, one["n"])
        for i, view in enumerate(views)
        for one in ROWS
        if view.kite.includes(one)
        for way in ("auto", "arrow")
    }


def test_row_groups_with_a_nested_nan_are_not_lost(spark: Any, tmp_path: Path) -> None:
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA)
    dataset = lakebed.open_repository(tmp_path).create("places", descriptor)
    latitudes = [1.5, math.nan, 1.5, None]
    dataset.append(
        [{"n": n, "p": "x", "position": {"latitude": one}} for n, one in enumerate(latitudes)]
    )

    for text, wanted in [
        ("> 5", [1]),
        ("!= 1.5", [1]),
        ("= 1.5", [0, 2]),
        ("IS NULL", [3]),
        ("= 'nan'", [1]),
        (">= 'nan'", [1]),
        ("IN (7, 'nan')", [1]),
    ]:
        view = dataset.where(f"position.latitude {text}")
        assert sorted(row.n for row in view.spark(spark).collect()) == wanted
        assert sorted(view.arrow(["n"])["n"].to_pylist()) == wanted


@pytest.mark.parametrize("is_partitioned", [True, False])
def test_tasks_refuse_every_entity_outside_a_view(
    spark: Any, tmp_path: Path, is_partitioned: bool
) -> None:
    partition_by = [by.identity("p")] if is_partitioned else []
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=partition_by)
    dataset = lakebed.open_repository(tmp_path).create("places", descriptor)
    frame = spark.createDataFrame(
        pa.Table.from_pylist(ROWS, SCHEMA), schema_of(descriptor)
    ).repartition(2, "n")
    view = dataset.where("n < 59")

    with pytest.raises(InvalidInputError, match=r"outside the view n < 59: n = 59"):
        view.append(frame)
    assert list((tmp_path / "places" / "data").rglob("*.parquet")) == []
    assert dataset.version == 0

    view.append(frame.where("n < 59"))
    assert dataset.count() == 59
    with dataset.where("n = 59").kite.writer() as writer:
        writer.write(ROWS[59])
    dataset.where("position.latitude > 1 AND p = 'x'").delete()

    kept = [
        n
        for n in range(60)
        if not dataset.where("position.latitude > 1 AND p = 'x'").kite.includes(ROWS[n])
    ]
    assert sorted(row.n for row in dataset.spark(spark, ["n"]).collect()) == kept


def schema_of(descriptor: lakebed.DatasetDescriptor) -> Any:
    from pyspark.sql.types import StructType

    return StructType.fromJson(schema_to_spark(descriptor.schema))
