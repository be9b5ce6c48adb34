"""A dataset whose head is a tree, in a metastore: its table is that of one with a document."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from tree_copies import shrink

import lakebed

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

SCHEMA = pa.schema([("dt", pa.string()), ("batch", pa.int64()), ("n", pa.int64())])


def rows(batch: int, *partitions: str) -> list[dict]:
    return [{"dt": one, "batch": batch, "n": n} for one in partitions for n in range(3)]


CHANGES = {
    "overwrite": lambda d: d.overwrite(rows(1, *"abcdefgh")),
    "nothing": lambda d: None,
    "overwrite of two": lambda d: d.overwrite(rows(2, "b", "i")),
    "delete": lambda d: d.where("dt = 'c'").delete(),
    "much": lambda d: [d.overwrite(rows(batch, *"defgjk")) for batch in (3, 4)],
    "fold": lambda d: d.compact(metadata=True),
    "rollback": lambda d: d.rollback(version=2),
}


@pytest.mark.parametrize("mode", ["partitions", "batches"])
def test_table_of_a_tree_follows_the_same_changes(spark, tmp_path, monkeypatch, mode):
    shrink(monkeypatch)
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="dt")
    datasets = {
        f"hive_tests.{head}{uuid.uuid4().hex}": lakebed.open_repository(tmp_path / head).create(
            "days", descriptor, head=head
        )
        for head in ("document", "tree")
    }
    for change, do in CHANGES.items():
        done = []
        for table, dataset in datasets.items():
            do(dataset)
            published = dataset.publish("hive", spark, table=table, mode=mode)
            parts = (published.added, published.changed, published.dropped)
            shown = spark.table(table).select("dt", "batch", "n").collect()
            wanted = sorted(tuple(row.values()) for row in dataset.arrow().to_pylist())
            assert sorted(map(tuple, shown)) == wanted, change
            if mode == "batches":  # ids of batches differ
                parts = tuple(map(len, parts))
            done.append((*parts, published.unchanged_count))
        assert done[0] == done[1], change
    for table, dataset in datasets.items():
        assert dataset.publish("hive", spark, table=table, check=True).was_in_step
        assert dataset.unpublish("hive", spark, table=table)
