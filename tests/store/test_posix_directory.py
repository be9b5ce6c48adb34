"""What a directory adds to the promise of a store."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from places import as_user_of_no_rights

import lakebed.store
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    DatasetNotFoundError,
    InvalidNameError,
    LakebedError,
    ObjectNotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    StorageError,
    StorageFullError,
)
from lakebed.store import open_store
from lakebed.store.base import location_exists
from lakebed.store.posix import PosixStore, content_etag, translating_os_errors

SOURCE = Path(lakebed.store.__file__).parents[2]
NOW = timedelta(0)


def test_opening_and_reading_do_not_make_the_directory(tmp_path: Path) -> None:
    store = PosixStore(tmp_path / "not" / "there")

    with pytest.raises(ObjectNotFoundError):
        store.get("a")
    with pytest.raises(PreconditionFailedError):
        store.replace("d/a", b"x", if_match="e")
    store.delete(["a"])

    assert list(store.list()) == []
    assert list(tmp_path.iterdir()) == []


def test_directory_that_this_user_may_not_look_into_is_an_error(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)

    with as_user_of_no_rights():
        store = PosixStore(closed / "lake")
        for ask in (lambda: list(store.list()), lambda: location_exists(store)):
            with pytest.raises(AccessDeniedError, match="closed/lake"):
                ask()


def test_relative_root_stays_where_it_was_when_the_process_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = PosixStore("lake")
    (tmp_path / "elsewhere").mkdir()

    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("a", b"x")

    assert (tmp_path / "lake" / "a").read_bytes() == b"x"


def test_etag_is_a_hash_of_the_content() -> None:
    assert content_etag(b"one") == content_etag(bytearray(b"one"))
    assert content_etag(b"one") != content_etag(b"two")
    assert len(content_etag(b"one")) == 32


def test_replace_notices_a_change_that_left_size_and_time_as_they_were(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    etag = store.create("a", b"one")
    path = tmp_path / "a"
    status = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(PreconditionFailedError):
        store.replace("a", b"three", if_match=etag)

    assert store.get("a").data == b"two"


def test_what_the_store_keeps_for_itself_is_hidden(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    store.replace("a", b"two", if_match=store.create("a", b"one"))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / ".b.parquet.crc").write_bytes(b"of Hadoop")

    assert (tmp_path / ".lakebed" / "locks").is_dir()
    assert [entry.key for entry in store.list()] == ["a"]


def test_number_of_lock_files_does_not_grow_with_the_number_of_objects(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, durable=False)
    keys = [f"d/{number}" for number in range(300)]
    for key in keys:
        store.put(key, b"x")

    store.delete(keys)

    assert len(list((tmp_path / ".lakebed" / "locks").iterdir())) <= 64


def test_delete_removes_directories_that_it_empties(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    store.put("dt=2013-01-01/batch_id=1/a", b"x")
    store.put("dt=2013-01-01/batch_id=2/a", b"x")

    store.delete(["dt=2013-01-01/batch_id=1/a"])

    assert [path.name for path in (tmp_path / "dt=2013-01-01").iterdir()] == ["batch_id=2"]
    store.delete(["dt=2013-01-01/batch_id=2/a"])
    assert not (tmp_path / "dt=2013-01-01").exists()
    assert tmp_path.exists()


@pytest.mark.thorough
def test_writers_go_on_while_their_directory_is_removed_under_them(tmp_path: Path) -> None:
    store = PosixStore(tmp_path, durable=False)
    failures: list[LakebedError] = []

    def write() -> None:
        try:
            for number in range(300):
                store.put(f"p/q/{number}", b"x")
                store.delete([f"p/q/{number}"])
        except LakebedError as error:
            failures.append(error)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    assert failures == []
    assert list(store.list()) == []


def test_directory_that_is_made_and_removed_by_others_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PosixStore(tmp_path)
    make = os.mkdir
    calls: list[object] = []

    def lose_first(path: object, mode: int = 0o777) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", lose_first)

    store.put("d/a", b"x")

    assert store.get("d/a").data == b"x"


LINKED_CALLS: dict[str, Callable[[PosixStore, str, Path], object]] = {
    "get": lambda store, key, _: store.get(key),
    "get_if_changed": lambda store, key, _: store.get_if_changed(key, etag="x"),
    "get_range": lambda store, key, _: store.get_range(key, 0, 1),
    "size": lambda store, key, _: store.size(key),
    "stat": lambda store, key, _: store.stat(key),
    "open_input": lambda store, key, _: store.open_input(key).close(),
    "local_path": lambda store, key, _: store.local_path(key),
    "local_paths": lambda store, key, _: store.local_paths(["d/z/b", f"{key}-other", key]),
    "create": lambda store, key, _: store.create(key, b"y"),
    "replace": lambda store, key, _: store.replace(key, b"y", if_match=content_etag(b"x")),
    "put": lambda store, key, _: store.put(key, b"y"),
    "put_stream": lambda store, key, _: store.put_stream(key, [b"y"]),
    "begin_file": lambda store, key, _: store.begin_file(key),
    "adopt": lambda store, key, own: store.adopt(own, key),
    "make_durable": lambda store, key, _: store.make_durable(key),
}


@pytest.mark.parametrize(
    ("call", "link"),
    [
        *((call, link) for call in LINKED_CALLS for link in ("d", "d/data", "d/data/a")),
        ("replace", ".lakebed"),
    ],
)
def test_nothing_is_read_or_written_through_a_link(tmp_path: Path, call: str, link: str) -> None:
    store = PosixStore(tmp_path / "lake")
    store.put("d/data/a", b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "lake" / ".lakebed").mkdir(exist_ok=True)
    inside, outside = tmp_path / "lake" / link, tmp_path / "outside" / "x"
    inside.rename(outside)
    inside.symlink_to(outside)
    own = tmp_path / "lake" / "own"
    own.write_bytes(b"y")
    before = {path: path.read_bytes() for path in outside.parent.rglob("*") if path.is_file()}

    with pytest.raises(AccessDeniedError, match="is a symbolic link") as caught:
        LINKED_CALLS[call](store, "d/data/a", own)

    assert str(inside) in caught.value.message
    assert "links=true" in caught.value.hint
    after = {path: path.read_bytes() for path in outside.parent.rglob("*") if path.is_file()}
    assert after == before


PIPE_CALLS: dict[str, Callable[[PosixStore], object]] = {
    "get": lambda store: store.get("d/a"),
    "get_if_changed": lambda store: store.get_if_changed("d/a", etag="x"),
    "get_range": lambda store: store.get_range("d/a", 0, 1),
    "size": lambda store: store.size("d/a"),
    "stat": lambda store: store.stat("d/a"),
    "open_input": lambda store: store.open_input("d/a").close(),
    "replace": lambda store: store.replace("d/a", b"y", if_match=content_etag(b"x")),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("call", PIPE_CALLS)
def test_pipe_is_no_object_and_is_not_waited_for(tmp_path: Path, call: str) -> None:
    store = PosixStore(tmp_path)
    store.put("d/b", b"x")
    os.mkfifo(tmp_path / "d/a")

    with pytest.raises((ObjectNotFoundError, PreconditionFailedError)) as caught:
        PIPE_CALLS[call](store)

    assert "is not a regular file" in str(caught.value) or call == "replace"
    assert [info.key for info in store.list()] == ["d/b"]
    assert not store.delete_if_match("d/a", etag=content_etag(b""))


@pytest.mark.timeout(30)
def test_dataset_whose_head_or_file_is_a_pipe_has_a_named_error(tmp_path: Path) -> None:
    lake = lakebed.open_repository(str(tmp_path))
    dataset = lake.create("t", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    dataset.append([{"n": 1}])
    (file,) = dataset.files()
    (tmp_path / file.key).unlink()
    os.mkfifo(tmp_path / file.key)

    with pytest.raises(CorruptMetadataError, match="is not a regular file"):
        lake.open("t").arrow()

    head = tmp_path / "t.by-dataset-metadata.json"
    head.unlink()
    os.mkfifo(head)
    with pytest.raises(DatasetNotFoundError):
        lakebed.open_repository(str(tmp_path)).open("t")


def test_links_are_read_if_an_option_allows_it_but_not_listed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "a").write_bytes(b"x")
    store = open_store(tmp_path / "lake", storage_options={"links": "true"})
    store = pickle.loads(pickle.dumps(store))
    store.put("own", b"x")
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "outside")

    assert store.get("link/a").data == b"x"
    assert [entry.key for entry in store.list()] == ["own"]


@pytest.mark.parametrize("link", ["d", "d/data"])
def test_what_lies_behind_a_link_is_never_listed_nor_deleted(tmp_path: Path, link: str) -> None:
    store = PosixStore(tmp_path / "lake", links=True)
    store.put("other", b"x")
    outside = tmp_path / "outside"
    (outside / "data").mkdir(parents=True)
    for victim in (outside / "a", outside / "data" / "a", outside / f".a.{'0' * 32}.tmp"):
        victim.write_bytes(b"of somebody else")
    before = sorted(outside.rglob("*"))
    place = tmp_path / "lake" / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside, target_is_directory=True)
    key = f"{link}/a"
    etag = store.get(key).etag

    acts = {
        "list": lambda: list(store.list(f"{link}/")),
        "list below": lambda: list(store.list(f"{link}/data/")),
        "list one level": lambda: list(store.list(link, recursive=False)),
        "delete": lambda: store.delete([key]),
        "delete below": lambda: store.delete([f"{link}/data/a"]),
        "delete_if_match": lambda: store.delete_if_match(key, etag=etag),
        "remove_leftovers": lambda: store.remove_leftovers(link, older_than=NOW),
    }
    for name, act in acts.items():
        with pytest.raises(StorageError, match="is a symbolic link") as caught:
            act()
        assert str(place) in caught.value.message, name
        assert not caught.value.retryable

    assert sorted(outside.rglob("*")) == before
    assert [info.key for info in store.list()] == ["other"]


def test_of_many_keys_those_behind_no_link_are_deleted(tmp_path: Path) -> None:
    store = PosixStore(tmp_path / "lake")
    store.put("a", b"x")
    store.put("z", b"x")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "b").write_bytes(b"x")
    (tmp_path / "lake" / "link").symlink_to(tmp_path / "outside")

    with pytest.raises(StorageError, match="is a symbolic link"):
        store.delete(["a", "link/b", "z"])

    assert list(store.list()) == []
    assert (tmp_path / "outside" / "b").exists()


@pytest.mark.parametrize("is_directory", [False, True])
def test_link_is_deleted_by_its_name_and_leads_nowhere(tmp_path: Path, is_directory: bool) -> None:
    store = PosixStore(tmp_path / "lake")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_bytes(b"x")
    store.put("own", b"x")
    link = tmp_path / "lake" / "link"
    link.symlink_to(outside if is_directory else outside / "a")

    store.delete(["link"])

    assert not link.is_symlink()
    assert (outside / "a").read_bytes() == b"x"


def test_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "there")
    store = PosixStore(tmp_path / "lake")
    store.put("d/a", b"x")

    assert [info.key for info in store.list("d/")] == ["d/a"]
    store.delete(["d/a"])

    assert list(store.list()) == []


def test_name_is_an_object_or_a_directory(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    store.put("a", b"x")
    store.put("d/b", b"x")

    with pytest.raises(InvalidNameError, match="not both"):
        store.put("a/b", b"x")
    with pytest.raises(InvalidNameError, match="not both"):
        store.put("d", b"x")

    assert [entry.key for entry in store.list()] == ["a", "d/b"]


def test_leftovers_of_killed_writers_are_found_by_age_and_place(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    store.put("d/a", b"x")
    store.put("e/a", b"x")
    names = [f"{directory}/.a.{'0' * 32}.tmp" for directory in "de"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")

    assert store.remove_leftovers(older_than=timedelta(hours=1)) == ()
    assert store.remove_leftovers(older_than=NOW, dry_run=True) == tuple(names)
    assert store.remove_leftovers("d", older_than=NOW) == (names[0],)
    assert store.remove_leftovers(older_than=NOW) == (names[1],)

    assert [entry.key for entry in store.list()] == ["d/a", "e/a"]


def test_writers_survive_the_removal_of_the_lock_files(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    etag = store.replace("a", b"two", if_match=store.create("a", b"one"))
    shutil.rmtree(tmp_path / ".lakebed")

    store.replace("a", b"three", if_match=etag)

    assert store.get("a").data == b"three"


@pytest.mark.parametrize(
    ("number", "expected", "retryable"),
    [
        (errno.EACCES, AccessDeniedError, False),
        (errno.EPERM, AccessDeniedError, False),
        (errno.EROFS, AccessDeniedError, False),
        (errno.ENOSPC, StorageFullError, False),
        (errno.EDQUOT, StorageFullError, False),
        (errno.EIO, StorageError, True),
        (errno.ESTALE, StorageError, True),
        (errno.EMFILE, StorageError, True),
    ],
    ids=lambda value: errno.errorcode.get(value) if isinstance(value, int) else None,
)
@pytest.mark.parametrize("writing", [False, True])
def test_errors_of_the_system_have_their_own_class(
    number: int, expected: type[StorageError], *, retryable: bool, writing: bool
) -> None:
    original = OSError(number, os.strerror(number))

    with (
        pytest.raises(expected, match="/lake/a") as caught,
        translating_os_errors(Path("/lake/a"), writing=writing),
    ):
        raise original

    assert type(caught.value) is expected
    assert caught.value.retryable is retryable
    assert caught.value.__cause__ is original


def test_name_that_the_file_system_cannot_hold_is_no_legal_name(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)

    with pytest.raises(InvalidNameError, match="too long"):
        store.put("/".join(["x" * 250] * 20), b"x")


def test_answer_is_unknown_when_the_disk_fails_after_the_name_appeared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PosixStore(tmp_path)
    etag = store.create("a", b"one")
    sync = os.fsync
    calls: list[int] = []

    def fail_second(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_second)

    with pytest.raises(StorageError) as caught:
        store.replace("a", b"two", if_match=etag)

    assert caught.value.retryable
    assert store.get("a").data == b"two"


def test_file_system_without_locks_refuses_to_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    store = PosixStore(tmp_path)
    etag = store.create("a", b"one")

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)

    with pytest.raises(ReadOnlyError, match="no file locks"):
        store.replace("a", b"two", if_match=etag)

    assert store.get("a").data == b"one"


def test_system_without_advisory_locks_can_read_and_refuses_writes(tmp_path: Path) -> None:
    PosixStore(tmp_path).put("a", b"x")
    program = """
import sys
sys.modules["fcntl"] = None
from lakebed.errors import ReadOnlyError
from lakebed.store import open_store
store = open_store(sys.argv[1])
assert store.get("a").data == b"x" and not store.supports_compare_and_swap
for write in (
    lambda: store.create("b", b""), lambda: store.put("b", b""),
    lambda: store.replace("a", b"", if_match="e"), lambda: store.delete(["a"]),
):
    try:
        write()
    except ReadOnlyError as error:
        assert "Windows" in error.hint
    else:
        raise AssertionError
"""

    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
    )

    assert [path.name for path in tmp_path.iterdir()] == ["a"]
