"""A head from which another tool has removed all files, or damage has, is not gone on from."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakebed
from lakebed import by
from lakebed.errors import CommitConflictError
from lakebed.store.memory import MemoryStore
from lakebed.work.check import Severity

HEAD = "d.by-dataset-metadata.json"
SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
ROW = {"p": "a", "n": 3}


@pytest.fixture
def dataset() -> lakebed.Dataset:
    store = MemoryStore(uuid.uuid4().hex)
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    dataset = lakebed.Repository(store).create("d", descriptor, head="document")
    dataset.append([{"p": "a", "n": 1}])
    dataset.append([{"p": "b", "n": 2}])
    document = json.loads(store.get(HEAD).data)
    document["partitions"] = {}
    store.put(HEAD, json.dumps(document).encode())
    return lakebed.Repository(store).open("d")


@pytest.mark.parametrize(
    "write",
    [
        lambda dataset: dataset.append([ROW]),
        lambda dataset: dataset.append([ROW], run="2024-01-01"),
        lambda dataset: dataset.overwrite([ROW]),
        lambda dataset: dataset.overwrite([ROW], dataset.where("p = 'a'")),
        lambda dataset: dataset.merge([ROW], on=["n"]),
        lambda dataset: dataset.evolve(lambda descriptor: descriptor.add_field("z", "long")),
        lambda dataset: dataset.staged.add([ROW]).commit(),
    ],
)
def test_no_commit_takes_the_loss_of_all_files_over(
    dataset: lakebed.Dataset, write: Callable[[lakebed.Dataset], object]
) -> None:
    with pytest.raises(CommitConflictError, match="removed all 2 files") as caught:
        write(dataset)

    assert "rollback to version 2" in caught.value.hint
    assert [entry.operation for entry in dataset.history()] == ["create", "append", "append"]


def test_a_rollback_restores_the_files(dataset: lakebed.Dataset) -> None:
    (finding,) = (one for one in dataset.check().findings if one.severity is Severity.ERROR)
    assert "rollback(version=2)" in finding.remedy

    dataset.rollback(version=2)

    assert sorted(row["n"] for row in dataset.arrow().to_pylist()) == [1, 2]
    assert not dataset.check().findings


def test_an_overwrite_of_everything_accepts_it(dataset: lakebed.Dataset) -> None:
    dataset.overwrite([ROW], dataset)

    assert dataset.arrow().to_pylist() == [ROW]
    assert "foreign" in [entry.operation for entry in dataset.history()]
