"""Defects of Kartothek and plateau that Lakebed must not have, by their numbers in its facts."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zstandard

import lakebed
from lakebed import by
from lakebed.errors import CommitConflictError, CorruptMetadataError, DatasetNotFoundError
from lakebed.state.codec import to_document
from lakebed.state.head import encode_head
from lakebed.state.reader import read_head
from lakebed.state.state import State, digest_of
from lakebed.store import Store
from lakebed.store.posix import PosixStore

WORKER = Path(__file__).with_name("commit_worker.py")
SOURCE = Path(lakebed.__file__).parents[1]
JSON_HEAD = "d.by-dataset-metadata.json"
MSGPACK_HEAD = "d.by-dataset-metadata.msgpack.zstd"

_names = itertools.count()


@pytest.fixture
def repository() -> lakebed.Repository:
    return lakebed.open_repository(f"memory://defects-{next(_names)}")


def partitioned_by(key: pa.DataType) -> lakebed.DatasetDescriptor:
    return lakebed.DatasetDescriptor(
        schema=pa.schema([("p", key), ("v", pa.int64())]), partition_by=[by.identity("p")]
    )


def values_of(view: lakebed.View, column: str = "v") -> list[Any]:
    return sorted(view.arrow([column]).column(column).to_pylist())


def test_b1_no_acknowledged_update_is_lost(repository: lakebed.Repository) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()))
    start = threading.Barrier(8)

    def update(number: int) -> None:
        start.wait()
        dataset.append([{"p": "a", "v": number}])

    threads = [threading.Thread(target=update, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert values_of(dataset) == list(range(8))
    assert dataset.version == 8


def test_b1_an_update_of_what_somebody_else_has_changed_is_refused(
    repository: lakebed.Repository,
) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()))

    def rows() -> Any:
        dataset.append([{"p": "a", "v": 1}])  # while the overwrite is under way
        yield {"p": "a", "v": 2}

    with pytest.raises(CommitConflictError, match="p=a") as caught:
        dataset.overwrite(rows())

    assert caught.value.partitions == ("p=a",)
    assert values_of(dataset) == [1]


@pytest.mark.thorough
def test_b2_no_reader_sees_a_torn_head(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, durable=False)
    lakebed.Repository(store).create("d", partitioned_by(pa.int64()))
    head = read_head(store, "d")
    etag = store.replace(head.key, bytes_of(head.state, 0), if_match=head.etag)
    reader = subprocess.Popen(
        [sys.executable, str(WORKER), "read_heads", str(tmp_path), "d"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    reader.stdout.readline()

    for number in range(1, 61):
        etag = store.replace(head.key, bytes_of(head.state, number), if_match=etag)
    output, _ = reader.communicate()

    assert reader.returncode == 0
    answer = json.loads(output)
    assert answer["reads"] >= 2
    assert answer["last"] == 60


def bytes_of(state: State, version: int) -> bytes:
    """Return a head of 30,000 files, of which none need exist."""
    labels = tuple(f"p={number}/batch_id={version}/part-0" for number in range(30_000))
    big = dataclasses.replace(state.with_labels(labels), version=version, digest=digest_of(labels))
    return encode_head(to_document(big), big.head_format)


def test_b3_bool_keys_read_back_as_they_were_written(repository: lakebed.Repository) -> None:
    dataset = repository.create("d", partitioned_by(pa.bool_()))

    dataset.append([{"p": True, "v": 1}, {"p": False, "v": 0}, {"p": None, "v": 2}])

    rows = {(row["p"], row["v"]) for row in dataset.kite.reader()}
    assert rows == {(True, 1), (False, 0), (None, 2)}
    assert values_of(dataset.where("p = false")) == [0]
    assert values_of(dataset.where([[("p", "==", True)]])) == [1]
    assert dataset.where("p = false").arrow(["p"]).column("p").to_pylist() == [False]


ODD_TEXTS = [
    "a/b",
    "/",
    "../up",
    "..",
    ".",
    "a..b",
    "",
    " ",
    "a=b",
    "a%2Fb",
    "%",
    "é☺",
    "None",
    "__HIVE_DEFAULT_PARTITION__",
    "a\nb",
    "a\\b",
    "batch_id=1",
    "007",
    None,
]


def test_b4_a_slash_or_any_other_text_in_a_key_is_kept(repository: lakebed.Repository) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()))

    dataset.append([{"p": text, "v": number} for number, text in enumerate(ODD_TEXTS)])

    assert {row["v"]: row["p"] for row in dataset.kite.reader()} == dict(enumerate(ODD_TEXTS))
    assert len(dataset.inspect.partitions()) == len(ODD_TEXTS)
    assert {one.values["p"] for one in dataset.inspect.partitions()} == set(ODD_TEXTS)
    for number, text in enumerate(ODD_TEXTS):
        assert values_of(dataset.where([[("p", "==", text)]])) == [number]
    dataset.overwrite([{"p": "a/b", "v": 100}])
    assert values_of(dataset.where([[("p", "==", "a/b")]])) == [100]
    assert dataset.count() == len(ODD_TEXTS)


@pytest.mark.parametrize("column", ["s", "p"])
def test_b5_nulls_are_found(repository: lakebed.Repository, column: str) -> None:
    schema = pa.schema([("p", pa.string()), ("s", pa.string()), ("v", pa.int64())])
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=[by.identity("p")])
    dataset = repository.create("d", descriptor)
    texts = ["x", None, "y", None]

    dataset.append([{"p": text, "s": text, "v": number} for number, text in enumerate(texts)])

    assert values_of(dataset.where([[(column, "==", None)]])) == [1, 3]
    assert values_of(dataset.where([[(column, "in", ["x", None])]])) == [0, 1, 3]
    assert values_of(dataset.where([[(column, "!=", None)]])) == [0, 2]
    assert values_of(dataset.where(f"{column} IS NULL")) == [1, 3]


def test_b5_nans_and_nulls_of_a_float_column_are_told_apart(
    repository: lakebed.Repository,
) -> None:
    schema = pa.schema([("f", pa.float64()), ("v", pa.int64())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))

    dataset.append([{"f": math.nan, "v": 0}, {"f": None, "v": 1}, {"f": 1.5, "v": 2}])

    assert values_of(dataset.where([[("f", "==", math.nan)]])) == [0]
    assert values_of(dataset.where([[("f", "==", None)]])) == [1]
    assert values_of(dataset.where([[("f", "in", [1.5, None])]])) == [1, 2]


def update_as_plateau(
    store: Store, added: str | None = None, removed: str | None = None
) -> dict[str, Any]:
    """Update a dataset as plateau does: whatever head it reads, it writes JSON, in place."""
    try:
        document = json.loads(store.get(JSON_HEAD).data)
    except lakebed.errors.ObjectNotFoundError:
        packed = zstandard.ZstdDecompressor().decompress(store.get(MSGPACK_HEAD).data)
        document = msgspec.msgpack.decode(packed)
    if added is not None:
        document["partitions"][added] = {"files": {"data": f"d/data/{added}.parquet"}}
    if removed is not None:
        del document["partitions"][removed]
    store.put(JSON_HEAD, json.dumps(document).encode())
    return document


def copied_file(store: Store, dataset: lakebed.Dataset, partition: str) -> str:
    """Put a data file under a name as plateau gives it, and return its label."""
    (source,) = [file.key for file in dataset.files() if file.partition == partition][:1]
    label = f"{partition}/batch_id=7/{next(_names):032x}"
    store.put(f"d/data/{label}.parquet", store.get(source).data)
    return label


def heads_of(store: Store) -> list[str]:
    return [info.key for info in store.list(recursive=False)]


@pytest.fixture
def twins(repository: lakebed.Repository) -> lakebed.Dataset:
    """A dataset with a msgpack head of ours, and plateau's JSON head beside it."""
    dataset = repository.create("d", partitioned_by(pa.string()), head_format="msgpack.zstd")
    dataset.append([{"p": "a", "v": 1}, {"p": "b", "v": 2}])
    update_as_plateau(repository.store, added=copied_file(repository.store, dataset, "p=a"))
    assert len(heads_of(repository.store)) == 2
    return dataset


def test_b9_of_two_heads_the_newer_one_is_read(twins: lakebed.Dataset) -> None:
    assert values_of(twins) == [1, 1, 2]
    assert values_of(twins.at(version=1)) == [1, 2]


def test_b9_our_commit_leaves_one_head(
    repository: lakebed.Repository, twins: lakebed.Dataset
) -> None:
    commit = twins.append([{"p": "b", "v": 3}])

    assert heads_of(repository.store) == [JSON_HEAD]
    assert values_of(repository.open("d")) == [1, 1, 2, 3]
    assert [one.operation for one in twins.history()] == ["create", "append", "foreign", "append"]
    assert commit.version == twins.version == 3
    assert values_of(twins.at(version=1)) == [1, 2]
    assert values_of(twins.at(version=2)) == [1, 1, 2]
    assert values_of(twins.at(version=3)) == [1, 1, 2, 3]


def test_b9_drop_removes_both_heads(repository: lakebed.Repository, twins: lakebed.Dataset) -> None:
    repository.drop("d")

    assert list(repository.store.list()) == []
    with pytest.raises(DatasetNotFoundError):
        repository.open("d")


def test_b9_a_stale_head_that_survives_our_commit_is_not_read(
    repository: lakebed.Repository, twins: lakebed.Dataset
) -> None:
    stale = repository.store.get(MSGPACK_HEAD).data
    twins.append([{"p": "b", "v": 3}])

    repository.store.put(MSGPACK_HEAD, stale)  # as after a crash before it was deleted

    assert values_of(repository.open("d")) == [1, 1, 2, 3]
    twins.overwrite([{"p": "b", "v": 4}])
    assert values_of(repository.open("d")) == [1, 1, 4]


def test_b9_plateaus_own_metadata_beside_unchanged_files_is_kept(
    repository: lakebed.Repository,
) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()), head_format="msgpack.zstd")
    dataset.append([{"p": "a", "v": 1}])
    document = update_as_plateau(repository.store)
    document["metadata"]["owner"] = {"team": ["x", 1]}
    repository.store.put(JSON_HEAD, json.dumps(document).encode())

    dataset.append([{"p": "a", "v": 2}])

    assert heads_of(repository.store) == [JSON_HEAD]
    head = json.loads(repository.store.get(JSON_HEAD).data)
    assert head["metadata"]["owner"] == {"team": ["x", 1]}
    assert values_of(dataset) == [1, 2]


def test_b9_two_heads_that_contradict_each_other_are_named(
    repository: lakebed.Repository, twins: lakebed.Dataset
) -> None:
    plateaus = repository.store.get(JSON_HEAD).data
    repository.store.delete([JSON_HEAD])
    twins.append([{"p": "b", "v": 3}])
    repository.store.put(JSON_HEAD, plateaus)

    with pytest.raises(CorruptMetadataError, match="has two heads") as caught:
        repository.open("d")

    assert JSON_HEAD in str(caught.value)
    assert MSGPACK_HEAD in str(caught.value)


@pytest.mark.parametrize("head_format", ["json", "msgpack.zstd"])
def test_overwrite_takes_out_what_plateau_has_added_to_the_partition(
    repository: lakebed.Repository, head_format: Any
) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()), head_format=head_format)
    dataset.append([{"p": "a", "v": 1}, {"p": "b", "v": 2}])
    update_as_plateau(repository.store, added=copied_file(repository.store, dataset, "p=a"))

    dataset.overwrite([{"p": "a", "v": 9}])

    assert values_of(dataset) == [2, 9]
    assert values_of(dataset.at(version=2)) == [1, 1, 2]


def test_overwrite_conflicts_with_what_plateau_did_since_it_began(
    repository: lakebed.Repository,
) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()))
    dataset.append([{"p": "a", "v": 1}, {"p": "b", "v": 2}])

    def rows(partition: str) -> Any:
        label = copied_file(repository.store, dataset, partition)
        update_as_plateau(repository.store, added=label)
        yield {"p": "a", "v": 9}

    with pytest.raises(CommitConflictError, match="another tool"):
        dataset.overwrite(rows("p=a"))
    dataset.overwrite(rows("p=b"))

    assert values_of(dataset) == [2, 2, 9]


def test_overwrite_does_not_conflict_with_an_old_change_that_somebody_else_adopts(
    repository: lakebed.Repository,
) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()))
    dataset.append([{"p": "a", "v": 1}, {"p": "b", "v": 2}])
    update_as_plateau(repository.store, added=copied_file(repository.store, dataset, "p=a"))

    def rows() -> Any:
        dataset.append([{"p": "b", "v": 3}])  # its commit notes plateau's change in the history
        yield {"p": "a", "v": 9}

    dataset.overwrite(rows())

    assert values_of(dataset) == [2, 3, 9]
    operations = collections.Counter(commit.operation for commit in dataset.history())
    assert operations == {"create": 1, "append": 2, "foreign": 1, "overwrite": 1}


def test_history_goes_on_after_plateau_removed_files_again_and_again(
    repository: lakebed.Repository,
) -> None:
    dataset = repository.create("d", partitioned_by(pa.string()))
    dataset.append([{"p": "b", "v": -1}])  # the loss of all files would not be taken over
    expected: dict[int, list[int]] = {0: [], 1: [-1]}

    for number in range(12):
        commit = dataset.append([{"p": "a", "v": number}])
        expected[commit.version] = values_of(dataset)
        label = commit.files_added[0].removeprefix("d/data/").removesuffix(".parquet")
        update_as_plateau(repository.store, removed=label)
        expected[commit.version + 1] = values_of(dataset)
    dataset.append([{"p": "b", "v": 100}])

    assert dataset.version == 26
    for version, values in expected.items():
        assert values_of(dataset.at(version=version)) == values, version
    assert values_of(dataset) == [-1, 100]
