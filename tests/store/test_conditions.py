"""A service that does not keep the conditions of a put is found out before it loses a commit."""

from __future__ import annotations

import io
import json
import pickle
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import AccessDeniedError, ReadOnlyError, StorageError
from lakebed.store import Store, conditions, open_store
from lakebed.testing import CountingStore

CONDITIONS = ["If-Match", "If-None-Match"]
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema={"type": "record", "name": "n", "fields": [{"name": "n", "type": "long"}]}
)


@pytest.fixture
def place() -> str:
    return f"s3://lake/{uuid.uuid4().hex}"


@pytest.fixture
def options(s3_options: dict[str, str], forgetful_s3: Any) -> dict[str, str]:
    """Lead to the service that may forget; `s3_options` lead to the same objects without it."""
    return {**s3_options, "endpoint": forgetful_s3[1]}


@pytest.fixture
def forgetful(forgetful_s3: Any) -> Any:
    return forgetful_s3[0]


def keys(place: str, s3_options: dict[str, str]) -> list[str]:
    """Every object, those that no listing of Lakebed shows, too."""
    import obstore

    store = open_store(place, storage_options=s3_options)
    found = obstore.list(store._client, place.removeprefix("s3://lake/")).collect()
    return [one["path"].partition("/")[2] for one in found]


def is_note(key: str) -> bool:
    return key.startswith(".lakebed/conditions-")


def in_another_process() -> None:
    """Forget what this process has found out."""
    conditions._known.clear()


@pytest.mark.parametrize("forgotten", CONDITIONS)
def test_append_by_a_process_that_did_not_create_the_dataset_is_refused(
    place: str,
    forgetful: Any,
    options: dict[str, str],
    s3_options: dict[str, str],
    forgotten: str,
) -> None:
    before = lakebed.open_repository(place, storage_options=s3_options).create("d", DESCRIPTOR)
    before.append([{"n": 1}])
    objects = keys(place, s3_options)
    forgetful.forgets = (forgotten,)
    dataset = lakebed.open_repository(place, storage_options=options).open("d")

    with pytest.raises(ReadOnlyError, match=forgotten):
        dataset.append([{"n": 2}])

    assert keys(place, s3_options) == objects
    assert dataset.arrow().to_pylist() == [{"n": 1}]


@pytest.mark.parametrize("forgotten", CONDITIONS)
@pytest.mark.parametrize(
    "write",
    [
        lambda store: lakebed.Repository(store).create("d", DESCRIPTOR),
        lambda store: lakebed.archive.Archive(store, lakebed.archive.open_index("sqlite://")).push(
            io.BytesIO(b"x"), path="/x", where="w", what="x", start="2026-01-01"
        ),
        lambda store: lakebed.archive.Archive(store, lakebed.archive.open_index("sqlite://")).push(
            io.BytesIO(b"x"), path="/x", where="w", what="x", start="2026-01-01", id="one"
        ),
        lambda store: store.create("a", b"x"),
        lambda store: store.replace("a", b"x", if_match='"etag"'),
    ],
    ids=["create a dataset", "push", "push with an id", "create", "replace"],
)
def test_first_write_is_refused_and_leaves_nothing(
    place: str,
    forgetful: Any,
    options: dict[str, str],
    s3_options: dict[str, str],
    forgotten: str,
    write: Callable[[Store], object],
) -> None:
    forgetful.forgets = (forgotten,)

    with pytest.raises(ReadOnlyError, match=forgotten) as caught:
        write(open_store(place, storage_options=options))

    assert "is read-only" in str(caught.value)
    assert "doctor" in caught.value.hint
    assert keys(place, s3_options) == []


def test_every_store_of_the_place_is_read_only_once_it_is_known(
    place: str, forgetful: Any, options: dict[str, str], s3_options: dict[str, str]
) -> None:
    open_store(place, storage_options=s3_options).put("a", b"x")
    other = open_store(place, storage_options=options)
    forgetful.forgets = ("If-Match",)
    with pytest.raises(ReadOnlyError):
        open_store(place, storage_options=options).create("b", b"x")
    forgetful.requests.clear()

    for write in (
        lambda: other.put("a", b"y"),
        lambda: other.delete(["a"]),
        lambda: pickle.loads(pickle.dumps(other)).create("b", b"y"),
        lambda: CountingStore(other).create("b", b"y"),
    ):
        with pytest.raises(ReadOnlyError, match="If-Match"):
            write()

    assert forgetful.requests == []
    assert other.get("a").data == b"x"


def test_service_that_keeps_conditions_is_asked_six_requests_once(
    place: str, forgetful: Any, options: dict[str, str], s3_options: dict[str, str]
) -> None:
    first, second = (open_store(place, storage_options=options) for _ in range(2))

    etag = first.create("a", b"1")
    asked = len(forgetful.requests) - 1
    first.replace("a", b"2", if_match=etag)
    second.create("b", b"1")
    second.check_writable()

    assert asked == 6
    assert len(forgetful.requests) == asked + 3
    assert [key for key in keys(place, s3_options) if not is_note(key)] == ["a", "b"]
    assert [info.key for info in first.list()] == ["a", "b"]


def test_next_process_reads_what_the_first_has_noted(
    place: str, forgetful: Any, options: dict[str, str]
) -> None:
    open_store(place, storage_options=options).create("a", b"1")
    forgetful.requests.clear()

    in_another_process()
    store = open_store(place, storage_options=options)
    store.create("b", b"1")
    store.create("c", b"1")

    methods = [method for method, _ in forgetful.requests]
    assert methods == ["GET", "PUT", "PUT"]


def test_note_of_a_service_says_nothing_of_another_one_with_the_same_objects(
    place: str, forgetful: Any, options: dict[str, str], s3_options: dict[str, str]
) -> None:
    open_store(place, storage_options=s3_options).create("a", b"1")
    in_another_process()
    forgetful.forgets = ("If-None-Match",)

    with pytest.raises(ReadOnlyError, match="If-None-Match"):
        open_store(place, storage_options=options).create("b", b"1")


@pytest.mark.parametrize(
    "content",
    [
        b'{"kept": [], "tried_at": "2020-02-02T02:02:02Z"}',  # as in a copy of the bucket
        b'{"kept": [], "tried_at": "2020-02-02T02:02:02"}',
        b'{"kept": [], "tried_at": "soon"}',
        b'{"kept": []}',
        b"[]",
        b"\xff",
        b"[" * 100_000,
    ],
    ids=["older", "no zone", "no time", "nothing", "list", "binary", "deep"],
)
def test_note_that_was_not_written_here_and_now_is_not_believed(
    place: str, forgetful: Any, options: dict[str, str], s3_options: dict[str, str], content: bytes
) -> None:
    store = open_store(place, storage_options=options)
    store.check_writable()
    (note,) = filter(is_note, keys(place, s3_options))
    store._put(note, memoryview(content))
    in_another_process()
    forgetful.forgets = ("If-Match",)

    with pytest.raises(ReadOnlyError, match="If-Match"):
        open_store(place, storage_options=options).create("b", b"1")


def test_note_that_may_not_be_read_or_written_hinders_nobody(service: Any) -> None:
    given = {"endpoint": service.url, "allow_http": "true", "skip_signature": "true"}
    store = open_store("s3://lake/pre", storage_options={**given, "max_retries": "0"})
    denied, refused = (403, {}, b""), (412, {}, b"")
    written = (200, {"etag": '"new"'}, b"")
    service.script(denied, written, refused, refused, (204, {}, b""), denied, written)

    store.create("a", b"x")

    methods = [request.method for request in service.requests]
    assert methods[0] == "GET"
    assert len(methods) == 7


def test_trying_anew_finds_what_has_changed_and_takes_the_note_back(
    place: str, forgetful: Any, options: dict[str, str], s3_options: dict[str, str]
) -> None:
    store = open_store(place, storage_options=options)
    store.check_writable()
    forgetful.forgets = ("If-Match",)
    store.check_writable()  # believes the note, and what it has found before

    with pytest.raises(ReadOnlyError, match="If-Match"):
        store.try_conditions()

    assert keys(place, s3_options) == []
    with pytest.raises(ReadOnlyError, match="If-Match"):
        store.create("a", b"1")
    forgetful.forgets = ()
    store.try_conditions()
    assert store.create("a", b"1")


def test_reading_and_the_writes_of_workers_ask_nothing(
    place: str, forgetful: Any, options: dict[str, str], s3_options: dict[str, str]
) -> None:
    store = open_store(place, storage_options=options)

    store.put("part", b"x")
    store.get("part")
    list(store.list())

    assert len(forgetful.requests) == 3


def test_probe_that_fails_is_tried_again(
    place: str, forgetful: Any, options: dict[str, str], s3_options: dict[str, str]
) -> None:
    refusing = open_store(place, storage_options={**options, "endpoint": "http://127.0.0.1:9"})
    with pytest.raises(StorageError) as caught:
        refusing.create("a", b"x")
    assert caught.value.retryable

    with pytest.raises(StorageError):
        refusing.check_writable()
    assert open_store(place, storage_options=options).create("a", b"x")


def test_denied_probe_says_what_it_was_for(service: Any) -> None:
    given = {"endpoint": service.url, "allow_http": "true", "skip_signature": "true"}
    store = open_store("s3://lake/pre", storage_options={**given, "max_retries": "0"})
    service.script((404, {}, b""), (403, {}, b""))

    with pytest.raises(AccessDeniedError, match=r"s3://lake/pre/\.lakebed-probe-") as caught:
        store.create("a", b"x")

    assert "first commit" in caught.value.hint
    assert [request.method for request in service.requests] == ["GET", "PUT"]


def test_probe_that_may_not_be_removed_stays_behind_with_a_warning(
    service: Any, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"endpoint": service.url, "allow_http": "true", "skip_signature": "true"}
    store = open_store("s3://lake/pre", storage_options={**given, "max_retries": "0"})
    written = (200, {"etag": '"new"'}, b"")
    refused = (412, {}, b"")
    service.script((404, {}, b""), written, refused, refused, (403, {}, b""), written)

    store.create("a", b"x")

    assert ".lakebed-probe-" in caplog.text


class TestDoctor:
    """What `lakebed doctor` says of the place."""

    @staticmethod
    def store_row(place: str, options: dict[str, str]) -> tuple[int, dict[str, str]]:
        import click.testing

        from lakebed.cli import main

        given = [f"--storage-option={name}={value}" for name, value in options.items()]
        in_another_process()
        result = click.testing.CliRunner().invoke(main, ["doctor", place, *given, "-o", "json"])
        (row,) = [row for row in json.loads(result.stdout) if row["name"] == "store"]
        return result.exit_code, row

    @pytest.mark.parametrize("forgotten", CONDITIONS)
    def test_service_that_forgets_a_condition_has_failed(
        self, place: str, forgetful: Any, options: dict[str, str], forgotten: str
    ) -> None:
        forgetful.forgets = (forgotten,)

        exit_code, row = self.store_row(place, options)

        assert (exit_code, row["status"]) == (1, "failed")
        assert forgotten in row["detail"]

    def test_service_that_keeps_them_is_ok_and_nothing_stays(
        self, place: str, options: dict[str, str], s3_options: dict[str, str]
    ) -> None:
        exit_code, row = self.store_row(place, options)

        assert (exit_code, row["status"]) == (0, "ok")
        assert "0 datasets" in row["detail"]
        assert keys(place, s3_options) == []

    def test_store_that_the_user_has_made_read_only_is_ok(
        self, place: str, forgetful: Any, options: dict[str, str]
    ) -> None:
        exit_code, row = self.store_row(place, {**options, "conditional_put": "disabled"})

        assert (exit_code, row["status"]) == (0, "ok")
        assert "read only" in row["detail"]
        assert {method for method, _ in forgetful.requests} == {"GET"}

    def test_credentials_that_may_only_read_are_told_and_no_failure(
        self, place: str, service: Any
    ) -> None:
        listed = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"
        service.script((200, {}, listed), (200, {}, listed), (403, {}, b""))
        given = {"endpoint": service.url, "allow_http": "true", "skip_signature": "true"}

        exit_code, row = self.store_row(place, {**given, "max_retries": "0"})

        assert (exit_code, row["status"]) == (0, "ok")
        assert "read only with these credentials" in row["detail"]
