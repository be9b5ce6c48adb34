"""The store of a dry run: it behaves as a store, and the real one receives nothing."""

import io
import pickle
import uuid
from datetime import timedelta
from pathlib import Path

import pytest

from lakebed.errors import InvalidInputError, ObjectNotFoundError, ReadOnlyError
from lakebed.store import Store, open_store
from lakebed.store.dry_run import DryRunStore
from lakebed.testing import DelegatingStore, StoreContract


class TestAsAStore(StoreContract):
    rounds = 5

    def make_store(self, tmp_path: Path) -> Store:
        return DryRunStore(open_store(tmp_path / "real"))

    # Contents of more than a MiB are data, which a dry run does not read again.
    test_object_of_more_than_ten_megabytes_survives_every_way_of_writing = None  # type: ignore[assignment]
    test_stream_of_several_parts_survives = None  # type: ignore[assignment]
    # A copy, as in a task of Spark, begins without writes.
    test_pickled_store_sees_the_same_objects = None  # type: ignore[assignment]


@pytest.fixture(params=["directory", "memory"])
def real(request, tmp_path: Path) -> Store:
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}")
    return open_store(tmp_path / "real")


def contents(store: Store) -> dict[str, bytes]:
    return {info.key: store.get(info.key).data for info in store.list()}


def test_no_way_of_writing_reaches_the_real_store(real: Store, tmp_path: Path) -> None:
    real.put("a", b"1")
    real.put("b/c", b"2")
    before, dry = contents(real), DryRunStore(real)
    path = tmp_path / "file"
    path.write_bytes(b"adopted")

    dry.create("new", b"x")
    dry.replace("a", b"replaced", if_match=dry.get("a").etag)
    dry.put("b/c", b"put")
    dry.put_stream("stream", iter([b"1", b"2"]))
    dry.adopt(path, "adopted")
    assert dry.delete_if_match("a", etag=dry.get("a").etag)
    dry.delete(["b/c"])
    dry.remove_leftovers(older_than=timedelta())

    assert contents(real) == before
    assert contents(dry) == {"adopted": b"adopted", "new": b"x", "stream": b"12"}
    assert dry.written == {"adopted": 7, "new": 1, "stream": 2}


def test_listing_shows_both_in_order(real: Store) -> None:
    for key in ("a", "c/1", "e"):
        real.put(key, b"1")
    dry = DryRunStore(real)
    dry.put("b", b"22")
    dry.put("c/2", b"22")
    dry.delete(["e"])

    assert [info.key for info in dry.list()] == ["a", "b", "c/1", "c/2"]
    assert [info.key for info in dry.list(recursive=False)] == ["a", "b"]
    assert [info.key for info in dry.list("c")] == ["c/1", "c/2"]


def test_contents_of_data_files_are_counted_and_dropped(real: Store) -> None:
    dry = DryRunStore(real)
    key = "flights/data/batch_id=1/part-0.parquet"
    dry.put(key, b"12345")
    dry.put_stream("stream", [bytes(2**20), b"1"])

    assert dry.written_bytes([key, "stream", "missing"]) == 5 + 2**20 + 1
    for dropped in (key, "stream"):
        with pytest.raises(InvalidInputError, match="not kept in a dry run"):
            dry.get(dropped)


def test_growing_file_lies_outside_the_real_store(tmp_path: Path) -> None:
    real = open_store(tmp_path / "real")
    dry = DryRunStore(real)

    file = dry.begin_file("flights/data/a")
    assert file is not None
    file.write(b"12")
    file.close()

    assert tmp_path not in file.path.parents
    dry.adopt(file.path, "flights/data/a")
    assert dry.size("flights/data/a") == 2
    assert not file.path.exists()
    assert not (tmp_path / "real").exists()


def test_written_object_has_no_path_but_a_real_one_has(tmp_path: Path) -> None:
    real = open_store(tmp_path)
    real.put("a", b"1")
    dry = DryRunStore(real)
    dry.put("b", b"2")

    assert dry.local_path("a") == tmp_path / "a"
    assert (dry.local_path("b"), dry.hadoop_uri("b")) == (None, None)
    with dry.open_input("b") as file:
        assert file.read() == b"2"


def test_pickled_copy_begins_without_writes(tmp_path: Path) -> None:
    real = open_store(tmp_path)
    real.put("a", b"1")
    dry = DryRunStore(real)
    dry.put("b", b"2")

    copy = pickle.loads(pickle.dumps(dry))

    assert isinstance(copy, DryRunStore)
    assert [info.key for info in copy.list()] == ["a"]
    with pytest.raises(ObjectNotFoundError):
        copy.get("b")


def test_store_that_can_only_be_read_is_refused(real: Store) -> None:
    class ReadOnly(DelegatingStore):
        supports_compare_and_swap = False

        def __init__(self, inner: Store) -> None:
            super().__init__(inner)
            self.supports_compare_and_swap = False

    dry = DryRunStore(ReadOnly(real))

    with pytest.raises(ReadOnlyError):
        dry.check_writable()
    with pytest.raises(ReadOnlyError):
        dry.create("a", b"1")


def test_source_that_fails_leaves_nothing(real: Store) -> None:
    dry = DryRunStore(real)

    def pieces():
        yield b"1"
        raise io.UnsupportedOperation

    with pytest.raises(io.UnsupportedOperation):
        dry.put_stream("a", pieces())
    assert list(dry.list()) == []
