"""What object stores answer, and what Lakebed makes of it."""

from __future__ import annotations

import builtins
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import obstore.exceptions
import pytest

import lakebed.store
from lakebed.errors import (
    AccessDeniedError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    ReadOnlyError,
    StorageError,
    StorageFullError,
    ThrottledError,
)
from lakebed.store import Store, open_store
from lakebed.store.object import TRANSLATIONS, translating_object_store_errors

# `service` is the fixture of conftest.py; a test module cannot import its class.
SOURCE = Path(lakebed.store.__file__).parents[2]
WRITTEN = {"etag": '"new"', "x-goog-generation": "8"}
READ = {
    "etag": '"old"',
    "x-goog-generation": "7",
    "last-modified": "Thu, 10 Dec 2015 21:56:48 GMT",
}


PROBED = (  # no note, put, two refusals, delete, and a note
    (404, {}, b""),
    (200, WRITTEN, b""),
    (412, {}, b""),
    (412, {}, b""),
    (200, {}, b"<DeleteResult></DeleteResult>"),
    (200, WRITTEN, b""),
)


def probed(service: Any, store: Store) -> Store:
    """Return the store after the service was asked whether it keeps conditions."""
    service.script(*PROBED)
    store.check_writable()
    service.probe = list(service.requests)
    service.requests.clear()
    return store


def unprobed_s3(service: Any, **options: str) -> Store:
    given = {"endpoint": service.url, "allow_http": "true", "skip_signature": "true"}
    given |= {"region": "us-east-1", "max_retries": "0", **options}
    return open_store("s3://lake/pre", storage_options=given)


def s3(service: Any, **options: str) -> Store:
    store = unprobed_s3(service, **options)
    return probed(service, store) if store.supports_compare_and_swap else store


def gcs(service: Any) -> Store:
    account = {"gcs_base_url": service.url, "disable_oauth": True, "client_email": ""}
    account |= {"private_key": "", "private_key_id": ""}
    options = {"service_account_key": json.dumps(account), "allow_http": "true"}
    store = open_store("gs://lake/pre", storage_options={**options, "max_retries": "0"})
    return probed(service, store)


def azure(service: Any) -> Store:
    options = {"azure_storage_account_name": "acc", "endpoint": service.url, "allow_http": "true"}
    store = open_store("az://lake/pre", storage_options={**options, "skip_signature": "true"})
    return probed(service, store)


# Conditions


@pytest.mark.parametrize(
    ("open_at", "create_condition", "replace_condition"),
    [
        (s3, ("if-none-match", "*"), ("if-match", '"old"')),
        (gcs, ("x-goog-if-generation-match", "0"), ("x-goog-if-generation-match", "7")),
        (azure, ("if-none-match", "*"), ("if-match", '"old"')),
    ],
)
def test_conditions_are_sent_as_the_service_understands_them(
    service: Any,
    open_at: Callable[[Any], Store],
    create_condition: tuple[str, str],
    replace_condition: tuple[str, str],
) -> None:
    store = open_at(service)
    service.script((200, READ, b"content"), (200, WRITTEN, b""))

    found = store.get("a")
    store.replace("a", b"two", if_match=found.etag)
    store.create("b", b"one")

    assert found.data == b"content"
    _, replaced, created = service.requests
    assert (replaced.method, unquote(replaced.path)) == ("PUT", "/lake/pre/a")
    assert replaced.body == b"two"
    assert replaced.headers[replace_condition[0]] == replace_condition[1]
    assert created.headers[create_condition[0]] == create_condition[1]


@pytest.mark.parametrize(
    ("open_at", "create_condition", "unmet"),
    [
        (s3, ("if-none-match", "*"), ("if-match", f'"{"0" * 32}"')),
        (gcs, ("x-goog-if-generation-match", "0"), ("x-goog-if-generation-match", "1")),
        (azure, ("if-none-match", "*"), ("if-match", '"0x1"')),
    ],
)
def test_probe_sends_conditions_that_do_not_hold(
    service: Any,
    open_at: Callable[[Any], Store],
    create_condition: tuple[str, str],
    unmet: tuple[str, str],
) -> None:
    open_at(service)

    _, put, created, replaced, _, noted = service.probe
    assert len({unquote(request.path) for request in (put, created, replaced)}) == 1
    assert unquote(put.path).startswith("/lake/pre/.lakebed-probe-")
    assert unquote(noted.path).startswith("/lake/pre/.lakebed/conditions-")
    assert create_condition[0] not in put.headers
    assert created.headers[create_condition[0]] == create_condition[1]
    assert replaced.headers[unmet[0]] == unmet[1]


@pytest.mark.parametrize("open_at", [s3, gcs, azure])
def test_refused_conditions_have_the_errors_of_the_contract(
    service: Any, open_at: Callable[[Any], Store]
) -> None:
    store = open_at(service)
    service.script((412, {}, b""))

    with pytest.raises(ObjectExistsError):
        store.create("a", b"x")
    with pytest.raises(PreconditionFailedError):
        store.replace("a", b"x", if_match='"old"\n7')


# Lost answers

LOST = [
    pytest.param((0, {}, b""), StorageError, id="connection-closed"),
    pytest.param((500, {}, b""), StorageError, id="500"),
    pytest.param((502, {}, b""), StorageError, id="502"),
    pytest.param((408, {}, b""), StorageError, id="408"),
    pytest.param((503, {}, b"<Code>SlowDown</Code>"), ThrottledError, id="503"),
    pytest.param((429, {}, b""), ThrottledError, id="429"),
]


@pytest.mark.parametrize(("answer", "expected"), LOST)
@pytest.mark.parametrize("operation", ["create", "replace"])
def test_lost_answer_is_retryable_and_the_condition_is_sent_once(
    service: Any,
    answer: tuple[int, dict[str, str], bytes],
    expected: type[StorageError],
    operation: str,
) -> None:
    # A second try would be refused because of the first, if that one landed.
    store = s3(service, max_retries="5")
    service.script(answer, (412, {}, b""))

    write = {
        "create": lambda: store.create("a", b"x"),
        "replace": lambda: store.replace("a", b"x", if_match='"old"'),
    }[operation]
    with pytest.raises(StorageError) as caught:
        write()

    assert type(caught.value) is expected
    assert caught.value.retryable
    assert len(service.requests) == 1


@pytest.mark.parametrize(("answer", "expected"), LOST)
def test_conditional_delete_is_sent_once(
    service: Any, answer: tuple[int, dict[str, str], bytes], expected: type[StorageError]
) -> None:
    # A second try could meet what others have written after the first, if that one landed.
    store = s3(service, max_retries="5")
    service.script((200, READ, b"content"))
    etag = store.get("a").etag
    service.script((304, {}, b""), answer, (204, {}, b""))

    with pytest.raises(StorageError) as caught:
        store.delete_if_match("a", etag=etag)

    assert type(caught.value) is expected
    assert caught.value.retryable
    assert len(service.requests) == 3


def test_other_requests_are_tried_again(service: Any) -> None:
    store = s3(service, max_retries="2")
    service.script((503, {}, b""), (200, READ, b"content"))

    found = store.get("a")

    assert found.data == b"content"
    assert len(service.requests) == 2


def test_service_that_is_not_there_is_retryable() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "allow_http": "true", "skip_signature": "true"}
    store = open_store("s3://lake", storage_options={**options, "max_retries": "0"})

    with pytest.raises(StorageError) as caught:
        store.get("a")

    assert caught.value.retryable


def test_conflict_of_requests_under_way_is_no_lost_race(service: Any) -> None:
    store = s3(service)
    service.script((409, {}, b"<Error><Code>ConditionalRequestConflict</Code></Error>"))

    with pytest.raises(StorageError) as caught:
        store.create("a", b"x")

    assert caught.value.retryable


# Definite refusals


@pytest.mark.parametrize(
    ("status", "expected"),
    [(400, StorageError), (401, AccessDeniedError), (403, AccessDeniedError), (501, ReadOnlyError)],
)
def test_refusal_is_not_retryable(service: Any, status: int, expected: type[LakebedError]) -> None:
    store = s3(service)
    service.script((status, {}, b""))

    with pytest.raises(expected, match=r"s3://lake/pre/a") as caught:
        store.create("a", b"x")

    assert type(caught.value) is expected
    assert not getattr(caught.value, "retryable", False)
    assert isinstance(caught.value.__cause__, Exception)


@pytest.mark.parametrize(
    ("status", "code", "expected", "hint"),
    [
        (507, "XMinioStorageFull", StorageFullError, "Free some space"),
        (403, "QuotaExceeded", StorageFullError, "raise the quota"),
        (400, "XMinioAdminBucketQuotaExceeded", StorageFullError, "raise the quota"),
        (403, "ExpiredToken", AccessDeniedError, "Renew them"),
        (400, "ExpiredToken", AccessDeniedError, "Renew them"),
        (403, "AccessDenied", AccessDeniedError, "permissions"),
    ],
)
def test_refusal_for_a_known_reason_says_what_to_do(
    service: Any, status: int, code: str, expected: type[StorageError], hint: str
) -> None:
    store = s3(service)
    body = f'<?xml version="1.0"?><Error><Code>{code}</Code></Error>'.encode()
    service.script((status, {"content-type": "application/xml"}, body))

    with pytest.raises(expected, match=code) as caught:
        store.create("a", b"x")

    assert type(caught.value) is expected
    assert hint in caught.value.hint
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.get("a"),
        lambda store: store.create("a", b""),
        lambda store: store.replace("a", b"", if_match='"e"'),
        lambda store: store.put("a", b""),
        lambda store: list(store.list()),
        lambda store: list(store.list(recursive=False)),
        lambda store: store.delete(["a"]),
    ],
    ids=["get", "create", "replace", "put", "list", "list-flat", "delete"],
)
def test_missing_bucket_is_told_from_a_missing_object(
    service: Any, use: Callable[[Store], object]
) -> None:
    store = s3(service)
    service.script((404, {}, b"<Error><Code>NoSuchBucket</Code></Error>"))

    with pytest.raises(StorageError, match="bucket"):
        use(store)


def test_endpoint_without_tls_says_which_option_it_needs(service: Any) -> None:
    store = unprobed_s3(service, allow_http="false")

    with pytest.raises(StorageError, match="allow_http") as caught:
        store.get("a")

    assert not caught.value.retryable


def test_service_that_returns_no_etag_cannot_keep_writers_apart(service: Any) -> None:
    store = s3(service)
    service.script((200, {"last-modified": READ["last-modified"]}, b"x"))

    with pytest.raises(StorageError):
        store.get("a")


def test_write_without_an_etag_in_the_answer_may_have_landed(service: Any) -> None:
    store = s3(service)
    service.script((200, {"etag": ""}, b""))

    with pytest.raises(StorageError, match="no etag") as caught:
        store.create("a", b"x")

    assert caught.value.retryable


def test_messages_do_not_show_what_signs_a_request() -> None:
    text = "GET https://acc.blob/lake?sv=1&sig=SECRET%3D and X-Amz-Signature=SECRET failed"

    with pytest.raises(StorageError) as caught, translating_object_store_errors("az://lake/a"):
        raise obstore.exceptions.GenericError(text)

    assert "SECRET" not in str(caught.value)
    assert "sv=1" in str(caught.value)


# Deletions


def test_missing_keys_do_not_keep_others_from_being_deleted(service: Any) -> None:
    store = gcs(service)
    service.script((404, {}, b""))

    # More than obstore sends at a time, so that the first refusal leaves some unsent.
    store.delete([f"k{number}" for number in range(40)])

    paths = {unquote(request.path) for request in service.requests}
    assert paths == {f"/lake/pre/k{number}" for number in range(40)}


def test_more_than_a_thousand_keys_are_deleted_in_several_requests(service: Any) -> None:
    store = s3(service)
    service.script((200, {}, b"<DeleteResult><Deleted><Key>k</Key></Deleted></DeleteResult>"))

    store.delete(f"k{number}" for number in range(2_500))

    assert [request.body.count(b"<Key>") for request in service.requests] == [1000, 1000, 500]


# Lists


def test_services_that_list_out_of_order_are_put_in_order(service: Any) -> None:
    store = azure(service)
    blob = (
        "<Blob><Name>pre/{}</Name><Properties><Content-Length>1</Content-Length>"
        "<Etag>e</Etag><Content-Type>text/plain</Content-Type>"
        "<Last-Modified>Thu, 10 Dec 2015 21:56:48 GMT</Last-Modified></Properties></Blob>"
    )
    blobs = "".join(blob.format(key) for key in ["b", "a", ".hidden/c", "c"])
    body = f"<EnumerationResults><Blobs>{blobs}</Blobs></EnumerationResults>"
    service.script((200, {}, body.encode()))

    entries = list(store.list())

    assert [entry.key for entry in entries] == ["a", "b", "c"]
    assert entries[0].modified_at == datetime(2015, 12, 10, 21, 56, 48, tzinfo=UTC)


# A store without compare-and-swap


@pytest.mark.parametrize("by", ["option", "prefixed-option", "environment"])
def test_store_without_conditional_puts_reads_and_refuses_every_write(
    service: Any, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"option": "conditional_put", "prefixed-option": "AWS_CONDITIONAL_PUT"}
    options = {names[by]: "disabled"} if by in names else {}
    if by == "environment":
        monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    store = s3(service, **options)
    service.script((200, READ, b"content"))

    assert not store.supports_compare_and_swap
    for write in (
        lambda: store.create("a", b"x"),
        lambda: store.replace("a", b"x", if_match='"e"'),
        lambda: store.put("a", b"x"),
        lambda: store.delete(["a"]),
    ):
        with pytest.raises(ReadOnlyError, match="compare-and-swap") as caught:
            write()
        assert "conditional_put" in caught.value.hint
    assert service.requests == []
    assert store.get("a").data == b"content"


# Translation


def test_every_error_of_obstore_is_translated() -> None:
    names = {
        name
        for name, value in vars(obstore.exceptions).items()
        if isinstance(value, type) and issubclass(value, BaseException)
    }

    assert names <= set(TRANSLATIONS)
    assert names | {n for n in TRANSLATIONS if hasattr(builtins, n)} == set(TRANSLATIONS)


@pytest.mark.parametrize("name", sorted(TRANSLATIONS))
def test_translated_error_is_ours_names_the_object_and_keeps_its_cause(name: str) -> None:
    cls = getattr(obstore.exceptions, name, None) or getattr(builtins, name)
    original = cls("what obstore said\n\nDebug source: …")

    with (
        pytest.raises(LakebedError, match=r"s3://lake/a") as caught,
        translating_object_store_errors("s3://lake/a"),
    ):
        raise original

    assert caught.value.__cause__ is original
    assert "Debug" not in str(caught.value)


def test_errors_of_ours_and_of_the_programmer_pass_untouched() -> None:
    for error in (ObjectNotFoundError("ours"), TypeError("a slip")):
        with pytest.raises(type(error)) as caught, translating_object_store_errors("k"):
            raise error
        assert caught.value is error


# Opening


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3a://lake/pre/", "s3://lake/pre"),
        ("S3://lake/a%20b/c d", "s3://lake/a%20b/c d"),
        ("gs://lake/pre", "gs://lake/pre"),
    ],
)
def test_url_is_normalised(url: str, uri: str) -> None:
    assert open_store(url).uri == uri


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///pre", "s3:/lake", "s3://lake/a//b", "s3://lake/../b"]
)
def test_url_without_bucket_or_with_odd_prefix_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        open_store(url)


@pytest.mark.parametrize(
    "options",
    [
        {"bogus": "bogus"},
        {"conditional_put": "bogus"},
        {"max_retries": "many"},
        {"timeout": "soon"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_option_that_cannot_be_used_is_refused_when_the_store_is_opened(
    options: dict[str, str],
) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(options.values()))):
        open_store("s3://lake", storage_options={"region": "us-east-1", **options})


def test_pickled_store_keeps_its_options_and_no_display_shows_them(service: Any) -> None:
    store = s3(
        service,
        conditional_put="disabled",
        access_key_id="testing",
        secret_access_key="very-secret",
    )
    service.script((200, READ, b"content"))

    copy = pickle.loads(pickle.dumps(store))

    assert copy.get("a").data == b"content"
    assert not copy.supports_compare_and_swap
    assert "very-secret" not in repr(store) + str(store)


@pytest.mark.thorough
@pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("gs", "gcs"), ("az", "azure")])
def test_missing_package_is_told_with_the_extra_that_brings_it(scheme: str, extra: str) -> None:
    program = f"""
import sys
sys.modules["obstore"] = None
from lakebed.errors import MissingDependencyError
from lakebed.store import open_store
try:
    open_store("{scheme}://lake")
except MissingDependencyError as error:
    print(error.extra)
"""

    found = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
        capture_output=True,
        text=True,
    )

    assert found.stdout.strip() == extra
    assert issubclass(MissingDependencyError, ImportError)


def test_status_of_a_range_beyond_the_end_is_the_one_that_is_looked_for() -> None:
    from lakebed.store.object import HTTP_RANGE_NOT_SATISFIABLE

    assert HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE == HTTP_RANGE_NOT_SATISFIABLE


def test_range_beyond_the_end_is_empty_also_where_the_service_sends_an_empty_one(
    service: Any,
) -> None:
    store = azure(service)
    service.script((206, {**READ, "content-range": "bytes 10-9/10"}, b""), (200, READ, b"x" * 10))

    assert store.get_range("a", 10, 5) == b""


def test_http_endpoint_that_is_not_allowed_is_told_how_to_allow_it() -> None:
    store = open_store(
        "s3://lake",
        storage_options={
            "endpoint": "http://127.0.0.1:1",
            "region": "eu-west-1",
            "skip_signature": "true",
        },
    )

    with pytest.raises(StorageError) as caught:
        store.get("x")

    assert "--storage-option" in caught.value.hint
    assert "allow_http=true" in caught.value.hint
    assert "AWS_ALLOW_HTTP=true" in caught.value.hint
