"""The plan of faults, and Lakebed's client of S3 behind the proxy: conditional puts are sent once."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from s3_services import served

import lakebed
from judge.faults import FAULTS, Fault, Kind, Plan
from judge.proxy import BUCKET, Proxy, proxied
from lakebed.errors import (
    AccessDeniedError,
    CommitUnknownError,
    LakebedError,
    ObjectExistsError,
    StorageError,
)
from lakebed.store import Store, open_store

_SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


@pytest.fixture(scope="module")
def behind() -> Iterator[tuple[str, Proxy]]:
    from moto.server import DomainDispatcherApplication, create_backend_app

    application = DomainDispatcherApplication(create_backend_app)
    with served(application) as service:
        host, _, port = service.removeprefix("http://").partition(":")
        with proxied(host, int(port)) as (endpoint, proxy):
            _made(endpoint)
            yield endpoint, proxy


@pytest.fixture
def proxy(behind: tuple[str, Proxy]) -> Iterator[Proxy]:
    _, proxy = behind
    yield proxy
    proxy.plan = None
    proxy.seen.clear()


@pytest.fixture
def store(behind: tuple[str, Proxy], proxy: Proxy, request: pytest.FixtureRequest) -> Store:
    endpoint, _ = behind
    found = open_store(
        f"s3://{BUCKET}/{abs(hash(request.node.nodeid))}",
        storage_options={
            "endpoint": endpoint,
            "allow_http": "true",
            "region": "us-east-1",
            "access_key_id": "testing",
            "secret_access_key": "testing",
        },
    )
    found.create("first", b"")  # with it, the client has tried whether conditions hold
    proxy.seen.clear()
    return found


def _made(endpoint: str) -> None:
    import urllib.request

    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()


def fail_at(proxy: Proxy, kind: Kind, number: int, fault: Fault) -> Plan:
    proxy.plan = Plan(0, at={(kind, number): fault})
    return proxy.plan


def test_same_seed_has_the_same_faults() -> None:
    def faults(seed: int) -> list[Fault | None]:
        plan = Plan(seed)
        return [plan.next(kind) for _ in range(100) for kind in Kind]

    assert faults(7) == faults(7)
    assert faults(7) != faults(8)
    assert {one for seed in range(30) for one in faults(seed)} == {None, *Fault}


def test_fault_does_not_depend_on_the_requests_of_other_classes() -> None:
    plan, other = Plan(7), Plan(7)
    for _ in range(50):
        other.chosen(Kind.GET, 1)

    assert [plan.chosen(Kind.PUT, n) for n in range(50)] == [
        other.chosen(Kind.PUT, n) for n in range(50)
    ]


# What the client makes of a fault of a conditional put; and whether the object is there afterwards.
OUTCOMES: dict[Fault, tuple[type[LakebedError] | None, bool]] = {
    Fault.LOST: (StorageError, False),
    Fault.LOST_ANSWER: (StorageError, True),
    Fault.ERROR_500: (StorageError, False),
    Fault.ERROR_503: (StorageError, False),
    Fault.DONE_500: (StorageError, True),
    Fault.DONE_503: (StorageError, True),
    Fault.CONFLICT_409: (StorageError, False),
    Fault.SLOW: (None, True),
    Fault.TWICE: (None, True),
    Fault.TWICE_LAST: (ObjectExistsError, True),
    Fault.EXPIRED: (AccessDeniedError, False),
}


def test_all_faults_of_conditional_puts_have_an_outcome() -> None:
    assert {*OUTCOMES, Fault.LATE} == set(FAULTS[Kind.CONDITIONAL_PUT])


@pytest.mark.parametrize("fault", OUTCOMES)
def test_conditional_put_is_sent_once(store: Store, proxy: Proxy, fault: Fault) -> None:
    expected, is_there = OUTCOMES[fault]
    fail_at(proxy, Kind.CONDITIONAL_PUT, 1, fault)

    if expected is None:
        store.create("key", b"mine")
    else:
        with pytest.raises(expected) as raised:
            store.create("key", b"mine")
        is_open = expected is StorageError
        assert getattr(raised.value, "retryable", False) == is_open

    sent = [seen for seen in proxy.seen if seen[1].endswith("/key")]
    assert sent == [("PUT", sent[0][1], fault)]
    proxy.plan = None
    assert ("key" in [one.key for one in store.list()]) == is_there


def test_put_that_is_late_does_not_overwrite_what_came_between(
    store: Store, proxy: Proxy, behind: tuple[str, Proxy]
) -> None:
    from judge.proxy import tell

    fail_at(proxy, Kind.CONDITIONAL_PUT, 1, Fault.LATE)
    with pytest.raises(StorageError):
        store.create("key", b"late")
    first = b"next"
    try:
        store.create("key", b"next")
    except ObjectExistsError:
        first = b"late"  # it was held for a shorter time than this took

    tell(behind[0], "settle")

    assert store.get("key").data == first


@pytest.mark.parametrize("number", [pytest.param(1, marks=pytest.mark.thorough), 3])  # 3 commits
@pytest.mark.parametrize("fault", FAULTS[Kind.CONDITIONAL_PUT])
def test_append_is_there_once_if_it_was_acknowledged_and_not_if_it_was_refused(
    store: Store, proxy: Proxy, behind: tuple[str, Proxy], fault: Fault, number: int
) -> None:
    from judge.proxy import tell

    dataset = lakebed.Repository(store).create("d", _SCHEMA)
    dataset.append([{"k": "first", "n": 0}])
    plan = fail_at(proxy, Kind.CONDITIONAL_PUT, number, fault)
    try:
        dataset.append([{"k": "mine", "n": 1}])
        expected = {1}
    except CommitUnknownError:
        expected = {0, 1}
    except LakebedError:
        expected = {0}
    assert plan.injected[Kind.CONDITIONAL_PUT, fault] == 1

    tell(behind[0], "settle")

    keys = lakebed.Repository(store).open("d").arrow(["k"]).column("k").to_pylist()
    assert keys.count("first") == 1
    assert keys.count("mine") in expected
