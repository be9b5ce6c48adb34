"""What has become visible is never told as if it had failed, though the store falls silent then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from inside import store_of

import lakebed
from lakebed import by
from lakebed.errors import StorageError
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.testing import DelegatingStore, FailingStore

SCHEMA = pa.schema([("c", pa.string()), ("n", pa.int64())])
ROWS = [{"c": "a", "n": 1}, {"c": "b", "n": 2}]


class Silent(DelegatingStore):
    """Falls silent once a head has been replaced so many times."""

    def __init__(self, inner: Store, after: int = 1) -> None:
        super().__init__(inner)
        self.left = after

    def check(self) -> None:
        if self.left <= 0:
            raise StorageError("There is no answer.", retryable=True)

    def _get(self, key: str) -> Any:
        self.check()
        return super()._get(key)

    def _get_if_changed(self, key: str, etag: str) -> Any:
        self.check()
        return super()._get_if_changed(key, etag)

    def _get_range(self, key: str, start: int, length: int) -> bytes:
        self.check()
        return super()._get_range(key, start, length)

    def _size(self, key: str) -> int:
        self.check()
        return super()._size(key)

    def _put(self, key: str, data: memoryview) -> None:
        self.check()
        super()._put(key, data)

    def _create(self, key: str, data: memoryview) -> str:
        self.check()
        return super()._create(key, data)

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        self.check()
        etag = super()._replace(key, data, if_match=if_match)
        self.left -= "dataset-metadata" in key
        return etag

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[Any]:
        self.check()
        return super()._list(begins_with, recursive=recursive)

    def _delete(self, keys: Sequence[str]) -> None:
        self.check()
        super()._delete(keys)

    def _delete_if_match(self, key: str, etag: str) -> bool:
        self.check()
        return super()._delete_if_match(key, etag)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path)


def filled(place: Path, *, head: Any = "document") -> Store:
    found = open_store(place)
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("c", ["a"])], index=["n"]
    )
    dataset = lakebed.Repository(found).create("d", descriptor, head=head)
    dataset.append(ROWS, run="monday")
    dataset.append(ROWS)
    dataset.append(ROWS)
    dataset.protections.add(version=1, reason="audit")
    return found


def with_property(old: lakebed.DatasetDescriptor) -> lakebed.DatasetDescriptor:
    return lakebed.DatasetDescriptor(
        schema=old.schema,
        partition_by=old.partition_by,
        index=old.index,
        properties={**old.properties, "owner": "ann"},
    )


def in_transaction(dataset: lakebed.Dataset) -> None:
    with dataset.transaction() as t:
        t.append(ROWS)


def by_writer(dataset: lakebed.Dataset) -> None:
    with dataset.kite.writer() as writer:
        writer.write(ROWS[0])


ONE_COMMIT: dict[str, Callable[[lakebed.Dataset], object]] = {
    "append": lambda d: d.append(ROWS),
    "overwrite": lambda d: d.overwrite(ROWS),
    "rerun": lambda d: d.rerun(ROWS, "monday", replace_all=True),
    "rerun of a new run": lambda d: d.rerun(ROWS, "tuesday", replace_all=True),
    "rerun of partitions": lambda d: d.rerun(ROWS, "tuesday", partitions=True, replace_all=True),
    "delete": lambda d: d.where("n = 1").delete(),
    "merge": lambda d: d.merge([{**ROWS[0], "n": 77}], on=["n"]),
    "rollback": lambda d: d.rollback(version=1),
    "rollback that holds": lambda d: d.rollback(version=1, hold=True, reason="bad"),
    "epoch": lambda d: d.sink(ROWS, 7, query="q"),
    "reroute": lambda d: d.dimensions.promote({"c": ["b"]}, reroute=True),
    "protect": lambda d: d.protections.add(version=2, reason="audit"),
    "unprotect": lambda d: d.protections.remove(version=1),
    "update": lambda d: d.evolve(with_property(d.descriptor), base=d.version),
    "update by a function": lambda d: d.evolve(with_property),
    "promote": lambda d: d.dimensions.promote({"c": ["a", "b"]}),
    "drop an index": lambda d: d.indices.drop("n"),
    "commit what is staged": lambda d: d.staged.add(ROWS).commit(),
    "a transaction": in_transaction,
    "a writer": by_writer,
}


@pytest.mark.thorough
@pytest.mark.parametrize("verb", ONE_COMMIT)
def test_a_verb_of_one_commit_has_succeeded_with_it(store: Store, verb: str) -> None:
    check_that_it_has_succeeded(store, verb)


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(verb, marks=() if "rerun" in verb else pytest.mark.thorough)
        for verb in ONE_COMMIT
    ],
)
def test_a_commit_to_a_tree_has_succeeded_with_it(tmp_path: Path, verb: str) -> None:
    """What a verb does after its commit may need leaves, which the store no longer gives."""
    store = filled(tmp_path, head="tree")
    lakebed.Repository(store).open("d").compact(metadata=True)

    check_that_it_has_succeeded(store, verb)


def check_that_it_has_succeeded(store: Store, verb: str) -> None:
    silent = Silent(store)
    before = lakebed.Repository(store).open("d").version
    PROCESS_CACHE.clear()

    ONE_COMMIT[verb](lakebed.Repository(silent).open("d"))

    with pytest.raises(StorageError, match="no answer"):
        silent.check()
    assert lakebed.Repository(store).open("d").version == before + 1


BY_PARTS: dict[str, tuple[Callable[[lakebed.Dataset], object], str]] = {
    "build_index": (
        lambda d: d.indices.build("c"),
        "Writers index 'c' from now on, and 0 existing files",
    ),
    "compact": (lambda d: d.compact(), "Compacted in version 5"),
    "compact_metadata": (lambda d: d.compact(metadata=True), "Indices are merged"),
    "cleanup": (lambda d: d.cleanup("0s", dry_run=False), "Version 6 has given up dead files"),
    "discard": (lambda d: d.staged.add(ROWS).discard(), "can no longer be committed"),
    "move the head": (
        lambda d: hand_over(store_of(d), "d", HeadFormat.MSGPACK),
        "Version 5 has announced the move to msgpack.zstd",
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("verb", BY_PARTS)
def test_a_verb_of_several_parts_says_what_has_landed(store: Store, verb: str) -> None:
    act, told = BY_PARTS[verb]
    silent = Silent(store)
    if verb == "cleanup":
        lakebed.Repository(store).open("d").rollback(version=1)

    with pytest.raises(StorageError, match="no answer") as failure:
        act(lakebed.Repository(silent).open("d"))

    assert any(told in note for note in failure.value.__notes__), failure.value.__notes__


def test_a_dataset_that_was_created_is_not_read_again(store: Store) -> None:
    silent = Silent(store)

    created = lakebed.Repository(silent).create("e", lakebed.DatasetDescriptor(schema=SCHEMA))

    assert silent.left == 0
    assert created.name == "e"
    assert lakebed.Repository(store).open("e").version == 0


def test_what_was_adopted_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), tmp_path / "t" / "000000_0.parquet")
    silent = Silent(open_store(tmp_path), after=2)

    adopted = lakebed.Repository(silent).adopt("t")

    assert silent.left == 0
    silent.left = 1
    assert adopted.count() == 2


def test_an_adoption_that_fails_says_that_the_dataset_is_there(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), tmp_path / "t" / "000000_0.parquet")

    with pytest.raises(StorageError) as failure:
        lakebed.Repository(Silent(open_store(tmp_path))).adopt("t")

    assert failure.value.__notes__ == [
        "Dataset 't' was created for it, and may be empty: adopt the files again, or drop it, "
        "which leaves the files in place."
    ]
    assert lakebed.open_repository(tmp_path).adopt("t").count() == 2


def test_a_drop_that_leaves_objects_says_that_the_dataset_is_gone(store: Store) -> None:
    failing = FailingStore(store, fail_on="delete", matching="d/data/")

    with pytest.raises(StorageError) as failure:
        lakebed.Repository(failing).drop("d")

    assert failure.value.__notes__[0].startswith("Dataset 'd' is dropped.")
    assert not lakebed.Repository(store).exists("d")


def test_an_update_is_seen_by_the_object_that_made_it(store: Store) -> None:
    dataset = lakebed.Repository(store).open("d")

    dataset.evolve(with_property)

    assert dataset.descriptor.properties == {"owner": "ann"}
