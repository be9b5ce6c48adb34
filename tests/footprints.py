"""A dataset whose rows were written by runs, merged, compacted, rolled back and promoted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import lakebed
from lakebed import by
from lakebed.model.footprint import started_at

SCHEMA = pa.schema([("id", pa.int64()), ("channel", pa.string())])


def _rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "channel": ("beta", "esr", "own")[number % 3]} for number in ids]


def changed_datasets(
    lake: lakebed.Repository, name: str = "d", file_format: str = "parquet"
) -> Iterator[tuple[lakebed.Dataset, dict[int, str | None]]]:
    """Yield a dataset after each change, with the run that wrote each row."""
    strategy = [by.dimension("channel", ["beta"], name="level")]
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=strategy, format=file_format)
    dataset = lake.create(name, descriptor)
    dataset.append(_rows(0, 1, 2), run="a")
    dataset.append(_rows(3, 4))
    dataset.rerun(_rows(5, 6), run="b")
    runs = {0: "a", 1: "a", 2: "a", 3: None, 4: None, 5: "b", 6: "b"}
    yield dataset, runs
    before, version = dict(runs), dataset.version
    for _ in range(2):
        dataset.upsert(_rows(1, 7), on=["id"], run="m")
        dataset.delete("id = 2")
        runs = {**before, 7: "m"}
        del runs[2]
        yield dataset, runs
        dataset.compact()
        yield dataset, runs
        dataset.rollback(version=version)
        yield dataset, before
    dataset.dimensions.promote({"channel": ["beta", "esr"]})
    yield dataset, before


def expected_footprints(dataset: lakebed.Dataset, runs: dict[int, str | None]) -> list[Any]:
    """Return the footprint of each row: the batch by its column, the time by the id."""
    batches = dataset.arrow(["id", "batch_id"]).to_pylist()
    return sorted(
        (row["id"], row["batch_id"], started_at(row["batch_id"]), runs[row["id"]])
        for row in batches
    )
