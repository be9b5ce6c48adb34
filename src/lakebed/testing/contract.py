"""The contract of `lakebed.store.Store` as a test suite."""

# ruff: noqa: D102 - the name of a test states its rule

from __future__ import annotations

import itertools
import pickle
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import (
    ConflictError,
    InvalidInputError,
    InvalidNameError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.store.base import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")


class _SourceFailedError(OSError):
    """An error that a stream raises."""


ILLEGAL_KEYS = (
    "",
    "/",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "a/../b",
    "a/./b",
    "../a",
    ".hidden",
    "a/.hidden",
    "a\\b",
    "a\x00b",
    "a\nb",
    "a\x7fb",
    "a\udc80b",
    "x" * 256,
    "ä" * 128,
)
UNUSUAL_KEYS = (
    "%20",
    "%2F",
    "a b",
    "a%",
    "a&b",
    "a'b",
    "a+b",
    "a,b;c",
    "a:b",
    "a=b",
    "a?b#c",
    "a@b",
    "a~b",
    "dt=2013-01-01/batch_id=1449784608123/part.parquet",
    "day=__HIVE_DEFAULT_PARTITION__/x",
    "name=A%2FB%20%C3%A9/x",
    "x" * 255,
    "é/日本",
)


class StoreContract(ABC):
    """Base class of a test class: implement `make_store`, and pytest runs every test below.

    Attributes:
        rounds: Number of rounds of each race; lower it if requests are slow.
    """

    rounds: int = 30

    @abstractmethod
    def make_store(self, tmp_path: Path) -> Store:
        """Return an empty store. It is called once for each test."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        """Give each test an empty store of its own."""
        return self.make_store(tmp_path)

    # Writers

    def test_store_that_keeps_writers_apart_says_so_and_leaves_nothing(self, store: Store) -> None:
        store.check_writable()
        store.check_writable()

        assert list(store.list()) == []

    # Objects

    def test_created_object_is_read_back_with_the_etag_that_create_returned(
        self, store: Store
    ) -> None:
        etag = store.create("a/b", b"content")

        stored = store.get("a/b")

        assert (stored.key, stored.data, stored.etag) == ("a/b", b"content", etag)

    def test_replaced_object_is_read_back_with_the_etag_that_replace_returned(
        self, store: Store
    ) -> None:
        first = store.create("a", b"one")

        second = store.replace("a", b"two", if_match=first)

        stored = store.get("a")
        assert (stored.data, stored.etag) == (b"two", second)
        assert first != second

    def test_an_object_that_no_writer_has_claimed_stays_as_it_is(self, store: Store) -> None:
        etag = store.replace("a", b"two", if_match=store.create("a", b"one"))

        assert not store.finish_claim("a", etag=etag)
        assert store.get("a").data == b"two"

    def test_create_refuses_a_taken_key_and_writes_nothing(self, store: Store) -> None:
        store.create("a", b"one")

        with pytest.raises(ObjectExistsError):
            store.create("a", b"two")

        assert store.get("a").data == b"one"

    def test_create_succeeds_again_after_delete(self, store: Store) -> None:
        store.create("a", b"one")
        store.delete(["a"])

        store.create("a", b"two")

        assert store.get("a").data == b"two"

    def test_replace_with_an_old_etag_writes_nothing(self, store: Store) -> None:
        old = store.create("a", b"one")
        store.replace("a", b"two", if_match=old)

        with pytest.raises(PreconditionFailedError):
            store.replace("a", b"three", if_match=old)

        assert store.get("a").data == b"two"

    def test_replace_of_a_deleted_object_fails_its_precondition(self, store: Store) -> None:
        etag = store.create("a", b"one")
        store.delete(["a"])

        with pytest.raises(PreconditionFailedError):
            store.replace("a", b"two", if_match=etag)

        assert list(store.list()) == []

    def test_etags_of_objects_that_put_wrote_can_be_matched(self, store: Store) -> None:
        store.put("a", b"one")

        store.replace("a", b"two", if_match=store.get("a").etag)

        assert store.get("a").data == b"two"

    def test_put_writes_over_what_is_there(self, store: Store) -> None:
        store.put("a", b"a longer one")

        store.put("a", b"two")

        assert store.get("a").data == b"two"

    def test_unchanged_object_is_not_read_again(self, store: Store) -> None:
        first = store.create("a", b"one")

        assert store.get_if_changed("a", etag=first) is None

        second = store.replace("a", b"two", if_match=first)
        stored = store.get_if_changed("a", etag=first)
        assert stored is not None
        assert (stored.key, stored.data, stored.etag) == ("a", b"two", second)
        assert store.get_if_changed("a", etag=second) is None

    def test_etag_of_put_and_of_stream_tells_a_change(self, store: Store) -> None:
        store.put("a", b"one")
        first = store.get("a").etag
        store.put_stream("a", [b"tw", b"o"])

        stored = store.get_if_changed("a", etag=first)

        assert stored is not None
        assert stored.data == b"two"

    def test_object_that_is_gone_is_not_unchanged(self, store: Store) -> None:
        etag = store.create("a", b"one")
        store.delete(["a"])

        with pytest.raises(ObjectNotFoundError):
            store.get_if_changed("a", etag=etag)

    def test_delete_if_match_removes_only_what_has_the_etag(self, store: Store) -> None:
        first = store.create("a", b"one")
        second = store.replace("a", b"two", if_match=first)

        assert not store.delete_if_match("a", etag=first)
        assert store.get("a").data == b"two"

        assert store.delete_if_match("a", etag=second)
        assert not store.delete_if_match("a", etag=second)
        with pytest.raises(ObjectNotFoundError):
            store.get("a")

    def test_empty_object_is_an_object(self, store: Store) -> None:
        store.put("empty", b"")

        assert store.get("empty").data == b""
        assert store.size("empty") == 0
        assert store.get_range("empty", 0, 10) == b""
        assert [entry.size_bytes for entry in store.list()] == [0]

    @pytest.mark.parametrize(
        "make_data",
        [bytes, bytearray, memoryview, pa.py_buffer],
        ids=["bytes", "bytearray", "memoryview", "arrow-buffer"],
    )
    def test_every_write_takes_any_buffer(
        self, store: Store, make_data: Callable[[bytes], bytes]
    ) -> None:
        etag = store.create("created", make_data(b"one"))
        store.replace("created", make_data(b"two"), if_match=etag)
        store.put("put", make_data(b"three"))

        assert store.get("created").data == b"two"
        assert store.get("put").data == b"three"

    def test_object_of_more_than_ten_megabytes_survives_every_way_of_writing(
        self, store: Store
    ) -> None:
        data = bytes(range(256)) * 44_000  # 11,264,000 bytes

        store.put("put", data)
        etag = store.create("created", data)
        store.replace("created", data[::-1], if_match=etag)

        assert store.get("put").data == data
        assert store.get("created").data == data[::-1]
        assert store.size("put") == len(data)
        assert store.get_range("put", 11_000_000, 512) == data[11_000_000:11_000_512]

    # Streams

    def test_stream_is_read_back_as_one_object(self, store: Store) -> None:
        pieces: list[Buffer] = [b"one", bytearray(b" and "), memoryview(b"two")]
        store.put_stream("a", iter(pieces))
        store.put_stream("empty", [])

        assert store.get("a").data == b"one and two"
        assert store.get("empty").data == b""

    def test_stream_writes_over_what_is_there(self, store: Store) -> None:
        store.put("a", b"a longer one")

        store.put_stream("a", [b"two"])

        assert store.get("a").data == b"two"

    @pytest.mark.parametrize("is_size_known", [False, True])
    def test_stream_of_several_parts_survives(self, store: Store, *, is_size_known: bool) -> None:
        piece = bytes(range(256)) * 8_000  # 2,048,000 bytes

        store.put_stream(
            "a", (piece for _ in range(10)), size_bytes=10 * len(piece) if is_size_known else None
        )

        assert store.size("a") == 10 * len(piece)
        assert store.get("a").data == piece * 10

    @pytest.mark.parametrize("piece_count", [1, 10])
    def test_stream_that_fails_writes_nothing_and_raises_its_own_error(
        self, store: Store, piece_count: int
    ) -> None:
        store.put("a", b"before")

        def pieces() -> Iterator[bytes]:
            for _ in range(piece_count):
                yield b"x" * 2_000_000
            raise _SourceFailedError

        for key in ("a", "b"):
            with pytest.raises(_SourceFailedError):
                store.put_stream(key, pieces())

        assert [entry.key for entry in store.list()] == ["a"]
        assert store.get("a").data == b"before"
        assert store.remove_leftovers(older_than=timedelta(0)) == ()

    def test_attributes_come_back_where_the_store_keeps_them(self, store: Store) -> None:
        attributes = {"datalake": '{"path": "/a b", "more": "\\u00e9"}', "owner": "ops"}

        store.put_stream("a", [b"12345"], attributes=attributes)
        store.put_stream("large", [b"x" * 3_000_000] * 3, attributes=attributes)
        store.put("plain", b"1")

        kept = attributes if store.keeps_attributes else {}
        assert store.stat("a").attributes == kept
        assert store.stat("large").attributes == kept
        assert store.stat("plain").attributes == {}

    def test_stat_tells_what_a_list_tells(self, store: Store) -> None:
        store.put_stream("d/a", [b"12345"])

        stat = store.stat("d/a")

        (listed,) = store.list("d")
        assert (stat.key, stat.size_bytes) == (listed.key, listed.size_bytes) == ("d/a", 5)
        # Services return whole seconds in one answer and fractions in the other.
        assert abs(stat.modified_at - listed.modified_at) < timedelta(seconds=1)
        assert stat.modified_at.tzinfo is not None

    def test_content_comes_with_the_time_that_a_list_tells_or_with_none(self, store: Store) -> None:
        etag = store.create("d/a", b"1")
        store.replace("d/a", b"2", if_match=etag)

        objects = (store.get("d/a"), store.get_if_changed("d/a", etag=etag))

        (listed,) = store.list("d")
        for stored in objects:
            assert stored is not None
            if stored.modified_at is not None:
                assert stored.modified_at.tzinfo is not None
                assert abs(stored.modified_at - listed.modified_at) < timedelta(seconds=1)

    # Missing objects

    def test_missing_object_is_reported_by_every_read(self, store: Store) -> None:
        store.put("here/a", b"x")

        for key in ("missing", "here", "here/b", "here/a/b"):
            for read in (
                lambda key=key: store.get(key),
                lambda key=key: store.get_range(key, 0, 1),
                lambda key=key: store.get_range(key, 0, 0),
                lambda key=key: store.size(key),
                lambda key=key: store.stat(key),
                lambda key=key: store.open_input(key),
            ):
                with pytest.raises(ObjectNotFoundError, match=key):
                    read()

    def test_replace_of_a_key_that_never_was_fails_its_precondition(self, store: Store) -> None:
        etag = store.create("other", b"one")

        with pytest.raises(PreconditionFailedError):
            store.replace("missing", b"two", if_match=etag)

        assert [entry.key for entry in store.list()] == ["other"]

    # Ranges

    def test_range_is_what_a_slice_is(self, store: Store) -> None:
        data = b"0123456789"
        store.put("a", data)

        for start, length in [(0, 10), (0, 3), (3, 4), (8, 2), (8, 100), (9, 1), (4, 0)]:
            assert store.get_range("a", start, length) == data[start : start + length]

    def test_range_at_or_after_the_end_is_empty(self, store: Store) -> None:
        store.put("a", b"0123456789")

        assert store.get_range("a", 10, 1) == b""
        assert store.get_range("a", 99, 5) == b""

    def test_negative_range_is_refused(self, store: Store) -> None:
        store.put("a", b"0123456789")

        with pytest.raises(InvalidInputError):
            store.get_range("a", -1, 1)
        with pytest.raises(InvalidInputError):
            store.get_range("a", 0, -1)

    # Files for Arrow

    @pytest.mark.parametrize("is_size_known", [False, True])
    def test_arrow_reads_parquet_through_open_input(
        self, store: Store, *, is_size_known: bool
    ) -> None:
        table = pa.table({"id": list(range(1000)), "name": [f"n{i}" for i in range(1000)]})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=300)
        written = sink.getvalue()
        store.put("a.parquet", written)

        with store.open_input("a.parquet", size_bytes=written.size if is_size_known else None) as f:
            group = pq.ParquetFile(f).read_row_group(2, columns=["name"])

        assert group.column("name").to_pylist() == [f"n{i}" for i in range(600, 900)]

    def test_open_input_can_seek(self, store: Store) -> None:
        store.put("a", b"0123456789")

        with store.open_input("a") as file:
            file.seek(-3, 2)
            tail = file.read()
            file.seek(2)
            middle = file.read(3)

        assert (tail, middle) == (b"789", b"234")

    def test_local_path_holds_the_object_where_there_is_one(self, store: Store) -> None:
        store.put("d/a", b"content")

        path = store.local_path("d/a")

        assert path is None or path.read_bytes() == b"content"

    def test_local_paths_are_those_of_each_key(self, store: Store) -> None:
        keys = ["d/a", "d/b", "c", "d/e/f", *UNUSUAL_KEYS]
        for key in keys:
            store.put(key, b"content")

        paths = store.local_paths(keys)

        each = [store.local_path(key) for key in keys]
        assert (each if paths is None else list(paths)) == [
            None if paths is None else str(path) for path in each
        ]

    def test_hadoop_uri_ends_with_the_key_as_it_is(self, store: Store) -> None:
        for key in ("d/a", *UNUSUAL_KEYS):
            uri = store.hadoop_uri(key)

            assert uri is None or re.fullmatch(r"[a-z0-9]+://.*/" + re.escape(key), uri, re.DOTALL)

    # Lists

    def test_list_is_in_key_order_and_recursive(self, store: Store) -> None:
        keys = ["a/b/c", "a-b", "a.b", "a/b-c", "a0", "B", "a/b.c"]
        for key in keys:
            store.put(key, b"x")

        assert [entry.key for entry in store.list()] == sorted(keys)
        assert [entry.key for entry in store.list("a")] == ["a/b-c", "a/b.c", "a/b/c"]

    def test_list_takes_a_prefix_as_a_directory(self, store: Store) -> None:
        for key in ["pre/a", "pre/b/c", "pre2/a", "prefix", "other"]:
            store.put(key, b"x")

        assert [entry.key for entry in store.list("pre")] == ["pre/a", "pre/b/c"]
        assert [entry.key for entry in store.list("pre/")] == ["pre/a", "pre/b/c"]
        assert [entry.key for entry in store.list("pre/b")] == ["pre/b/c"]
        assert [entry.key for entry in store.list("prefix")] == []
        assert [entry.key for entry in store.list("missing/deep")] == []

    def test_list_can_stay_in_one_directory(self, store: Store) -> None:
        for key in ["head.json", "z", "data/a", "data/b", "data/deep/c"]:
            store.put(key, b"x")

        assert [entry.key for entry in store.list(recursive=False)] == ["head.json", "z"]
        assert [e.key for e in store.list("data", recursive=False)] == ["data/a", "data/b"]

    def test_list_of_an_empty_store_is_empty(self, store: Store) -> None:
        assert list(store.list()) == []
        assert list(store.list(recursive=False)) == []

    def test_folders_are_those_directly_in_a_directory(self, store: Store) -> None:
        keys = ["head.json", "sales/a", "sales/deep/b", "sales-2/a", "w\u00f6rter/a b/c", "sales.x"]
        for key in keys:
            store.put(key, b"x")

        assert store.folders() == ["sales", "sales-2", "w\u00f6rter"]
        assert store.folders("sales") == store.folders("sales/") == ["deep"]
        assert store.folders("w\u00f6rter") == ["a b"]
        assert store.folders("sales/deep") == store.folders("missing/deep") == []

    def test_folders_are_of_a_valid_directory(self, store: Store) -> None:
        store.put("sales/a", b"x")

        for prefix in ("..", "sales/..", "a//b", ".hidden", "back\\slash"):
            with pytest.raises(InvalidNameError):
                store.folders(prefix)

    def test_list_tells_size_and_time(self, store: Store) -> None:
        store.put("a", b"12345")

        (entry,) = store.list()

        assert entry.size_bytes == 5
        assert entry.modified_at.tzinfo == UTC
        assert abs(datetime.now(UTC) - entry.modified_at) < timedelta(hours=1)

    def test_list_shows_nothing_but_objects_after_every_kind_of_write(self, store: Store) -> None:
        etag = store.create("d/a", b"1")
        store.replace("d/a", b"2", if_match=etag)
        with pytest.raises(ConflictError):
            store.replace("d/a", b"3", if_match=etag)
        with pytest.raises(ObjectExistsError):
            store.create("d/a", b"3")
        store.put("d/b", b"1")
        store.delete(["d/b"])

        assert [entry.key for entry in store.list()] == ["d/a"]

    # Deletions

    def test_delete_removes_what_is_named_and_nothing_else(self, store: Store) -> None:
        for key in ["a", "a2", "d/a", "d/b"]:
            store.put(key, b"x")

        store.delete(["a", "d/b"])

        assert [entry.key for entry in store.list()] == ["a2", "d/a"]

    def test_delete_takes_missing_and_repeated_keys(self, store: Store) -> None:
        for key in ["a", "b", "c"]:
            store.put(key, b"x")

        store.delete(iter(["missing", "a", "a", "d/missing", "c"]))
        store.delete(["a"])
        store.delete([])

        assert [entry.key for entry in store.list()] == ["b"]

    def test_delete_of_a_directory_removes_nothing(self, store: Store) -> None:
        store.put("d/a", b"x")

        store.delete(["d"])

        assert [entry.key for entry in store.list()] == ["d/a"]

    def test_delete_refuses_one_string(self, store: Store) -> None:
        with pytest.raises(TypeError):
            store.delete("abc")

    # Keys

    @pytest.mark.parametrize("key", ILLEGAL_KEYS, ids=ascii)
    def test_illegal_key_is_refused_by_every_method(self, store: Store, key: str) -> None:
        for use in (
            lambda: store.get(key),
            lambda: store.get_range(key, 0, 1),
            lambda: store.size(key),
            lambda: store.create(key, b"x"),
            lambda: store.replace(key, b"x", if_match="e"),
            lambda: store.put(key, b"x"),
            lambda: store.put_stream(key, [b"x"]),
            lambda: store.stat(key),
            lambda: store.delete(["legal", key]),
            lambda: store.local_path(key),
            lambda: store.local_paths(["legal", key]),
            lambda: store.hadoop_uri(key),
            lambda: store.open_input(key),
            # Every prefix below is illegal in itself: a final slash is not.
            lambda: list(store.list(f"{key}//")),
        ):
            with pytest.raises(InvalidNameError):
                use()

    def test_unusual_characters_stay_what_they_are(self, store: Store) -> None:
        for key in UNUSUAL_KEYS:
            store.put(key, key.encode())

        assert [entry.key for entry in store.list()] == sorted(UNUSUAL_KEYS)
        for key in UNUSUAL_KEYS:
            assert store.get(key).data == key.encode()
        store.delete(UNUSUAL_KEYS)
        assert list(store.list()) == []

    # Races

    @pytest.mark.parametrize("writers", [2, 8])
    def test_of_all_that_race_to_create_exactly_one_wins(self, store: Store, writers: int) -> None:
        for number in range(self.rounds):
            key = f"race/{number}"

            def create(writer: int, key: str = key) -> int | None:
                try:
                    store.create(key, f"writer {writer}".encode())
                except ObjectExistsError:
                    return None
                return writer

            winners = [won for won in _at_once(create, writers) if won is not None]

            assert len(winners) == 1
            assert store.get(key).data == f"writer {winners[0]}".encode()

    @pytest.mark.parametrize("writers", [2, 8])
    def test_of_all_that_race_to_replace_exactly_one_wins(self, store: Store, writers: int) -> None:
        etag = store.create("raced", b"")
        for number in range(self.rounds):

            def replace(writer: int, number: int = number, etag: str = etag) -> int | None:
                try:
                    store.replace("raced", f"{number} {writer}".encode(), if_match=etag)
                except PreconditionFailedError:
                    return None
                return writer

            winners = [won for won in _at_once(replace, writers) if won is not None]

            assert len(winners) == 1
            stored = store.get("raced")
            assert stored.data == f"{number} {winners[0]}".encode()
            etag = stored.etag

    def test_increments_by_get_and_replace_are_never_lost(self, store: Store) -> None:
        store.create("counter", b"0")
        each = self.rounds // 3 or 1

        def increment(_: int) -> None:
            for _ in range(each):
                while True:
                    stored = store.get("counter")
                    try:
                        more = str(int(stored.data) + 1).encode()
                        store.replace("counter", more, if_match=stored.etag)
                    except PreconditionFailedError:
                        continue
                    break

        _at_once(increment, 3)

        assert int(store.get("counter").data) == 3 * each

    def test_reader_sees_the_old_or_the_new_object_and_never_a_mixture(self, store: Store) -> None:
        def content(number: int) -> bytes:
            return bytes([number % 256]) * (40_000 + 7_000 * (number % 5))

        store.create("a", content(0))
        store.put("b", content(0))
        is_done = threading.Event()

        def write() -> None:
            try:
                for number in range(1, self.rounds + 1):
                    store.replace("a", content(number), if_match=store.get("a").etag)
                    store.put("b", content(number))
            finally:
                is_done.set()

        def read() -> Iterator[bytes]:
            for key in itertools.cycle("ab"):
                yield store.get(key).data
                if is_done.is_set():
                    return

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            wrong = [data[:1] for data in read() if data != content(data[0])]
            writing.result()

        assert wrong == []

    # The store as a value

    def test_pickled_store_sees_the_same_objects(self, store: Store) -> None:
        etag = store.create("a", b"one")

        copy = pickle.loads(pickle.dumps(store))

        assert (copy.uri, copy.get("a").etag) == (store.uri, etag)
        copy.replace("a", b"two", if_match=etag)
        assert store.get("a").data == b"two"

    def test_store_says_what_it_is(self, store: Store) -> None:
        assert "://" in store.uri
        assert not store.uri.endswith("/")
        assert store.uri in repr(store)
        assert store.supports_compare_and_swap

    def test_finished_writes_leave_nothing_behind(self, store: Store) -> None:
        etag = store.create("a", b"one")
        store.replace("a", b"two", if_match=etag)
        store.put("b", b"three")

        removed = store.remove_leftovers(older_than=timedelta(0))

        assert removed == ()
        assert store.get("a").data == b"two"


def _at_once(task: Callable[[int], T], count: int) -> list[T]:
    """Run `task(0)` to `task(count - 1)` in threads that start together."""
    barrier = threading.Barrier(count)

    def wait_and_run(number: int) -> T:
        barrier.wait()
        return task(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(wait_and_run, range(count)))
