"""Views with conditions that are computed have the same rows in a session, whatever its settings are."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import Dataset, Schema
from lakebed.model.schema import Field, Kind, Primitive

pytestmark = pytest.mark.spark

MOMENTS = [dt.datetime(2024, 1, 31, hour, tzinfo=dt.UTC) for hour in (0, 5, 12, 23)]
CONDITIONS = [
    "length(name) = 2",
    "id % 2 = 1 AND name <> 'x'",
    "hour(seen) = 23 OR id / 2 > 1",
    "CAST(seen AS STRING) LIKE '% 05:%'",
    "coalesce(extra, 7) = 7",
    "concat(part, name) = 'aab'",
    "id <> 0 AND 6 / id > 2",
]


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    rows = {
        "id": [0, 1, 2, 3],
        "name": ["ab", None, "x", "ab"],
        "seen": MOMENTS,
        "part": list("aabb"),
    }
    lake.write("t", pa.table(rows), partition_by="part")
    dataset = lake["t"]
    extra = Field(name="extra", type=Primitive(Kind.LONG), default=7)
    dataset.evolve(lambda old: replace(old, schema=Schema(fields=(*old.schema, extra))))
    return dataset


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_rows_are_those_of_one_process(spark: Any, dataset: Dataset, zone: str, ansi: str) -> None:
    settings = {"spark.sql.session.timeZone": zone, "spark.sql.ansi.enabled": ansi}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        for condition in CONDITIONS:
            view = dataset.where(condition)
            wanted = sorted(view.arrow(["id"])["id"].to_pylist())
            found = sorted(row.id for row in view.spark(spark).select("id").collect())
            assert found == wanted, condition
            assert view.spark(spark).count() == len(wanted), condition
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
