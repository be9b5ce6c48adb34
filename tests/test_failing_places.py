"""Places that fail for a while: what was acknowledged is there once, and writers go on afterwards.

A bucket and a disk that are full, credentials that expire, and a NameNode that starts again.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import resource
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hdfs_cluster import cluster
from s3_services import RefusingService, served

import lakebed
from lakebed.errors import (
    AccessDeniedError,
    CommitUnknownError,
    LakebedError,
    StorageError,
    StorageFullError,
)

SCHEMA = pa.schema([("k", pa.string()), ("id", pa.string())])
DESCRIPTOR = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="k")
TIMEOUT_S = 120
WRITERS = 3


def rows(run: str) -> list[dict[str, str]]:
    return [{"k": "ab"[n % 2], "id": f"{run}/{n}"} for n in range(4)]


@dataclass
class Writers:
    """Threads that append with run names of their own, and what each append came to.

    Attributes:
        open: Opens the dataset; each writer has its own.
        acknowledged: Runs that were committed.
        failed: Errors by run.
    """

    open: Callable[[], lakebed.Dataset]
    acknowledged: list[str] = field(default_factory=list)
    failed: dict[str, LakebedError] = field(default_factory=dict)
    broken: list[BaseException] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _is_over: bool = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the writers append until the end of the block."""
        threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over = True
            for thread in threads:
                thread.join(TIMEOUT_S)
        assert not any(thread.is_alive() for thread in threads)
        assert not self.broken, self.broken

    def wait_for_acknowledged(self, more: int) -> None:
        self._wait(lambda: len(self.acknowledged), more)

    def wait_for_failed(self, more: int) -> None:
        self._wait(lambda: len(self.failed), more)

    def _wait(self, count: Callable[[], int], more: int) -> None:
        with self._changed:
            wanted = count() + more
            assert self._changed.wait_for(lambda: count() >= wanted or self.broken, TIMEOUT_S)
            assert not self.broken, self.broken

    def _write(self, number: int) -> None:
        try:
            dataset = self.open()
            turn = 0
            while not self._is_over:
                self.append(dataset, f"w{number}-{turn}")
                turn += 1
        except BaseException as exc:  # noqa: BLE001 - told by `running`
            with self._changed:
                self.broken.append(exc)
                self._changed.notify_all()

    def append(self, dataset: lakebed.Dataset, run: str) -> None:
        error = None
        try:
            dataset.append(rows(run), run=run)
        except LakebedError as exc:  # another one is a defect, and ends the writer
            error = exc
        with self._changed:
            if error is None:
                self.acknowledged.append(run)
            else:
                self.failed[run] = error
            self._changed.notify_all()


def assert_right(dataset: lakebed.Dataset, writers: Writers) -> None:
    """Check what is there, give each run that failed again, and check that nothing is there twice."""
    there = Counter(dataset.arrow()["id"].to_pylist())
    for run in writers.acknowledged:
        assert [there[row["id"]] for row in rows(run)] == [1] * 4, run
    for run, error in writers.failed.items():
        counts = {there[row["id"]] for row in rows(run)}
        assert counts <= {0, 1}, run
        assert len(counts) == 1, f"{run} is there in part: {error!r}"
        if not isinstance(error, CommitUnknownError):
            assert counts == {0}, f"{run} was refused: {error!r}"
        assert error.hint, repr(error)

    for run in writers.failed:
        dataset.rerun(rows(run), run=run, replace_all=True)
    dataset.append(rows("last"), run="last")

    runs = (*writers.acknowledged, *writers.failed, "last")
    wanted = Counter(row["id"] for run in runs for row in rows(run))
    assert Counter(dataset.arrow()["id"].to_pylist()) == wanted
    assert dataset.check(deep=True).is_ok


# A place without room


@pytest.fixture
def refusing_s3(s3_application: Any) -> Iterator[tuple[RefusingService, str]]:
    service = RefusingService(s3_application)
    with served(service) as url:
        yield service, url


def bucket_options(s3_options: dict[str, str], url: str) -> dict[str, str]:
    return {**s3_options, "endpoint": url}


@pytest.fixture
def full_bucket(
    refusing_s3: tuple[RefusingService, str], s3_options: dict[str, str]
) -> tuple[RefusingService, lakebed.Repository]:
    service, url = refusing_s3
    options = bucket_options(s3_options, url)
    return service, lakebed.open_repository(
        f"s3://lake/{uuid.uuid4().hex}", storage_options=options
    )


def test_writers_to_a_bucket_that_is_full_for_a_while_lose_and_double_nothing(
    full_bucket: tuple[RefusingService, lakebed.Repository],
) -> None:
    service, repository = full_bucket
    dataset = repository.create("d", DESCRIPTOR)
    writers = Writers(lambda: repository.open("d"))

    with writers.running():
        writers.wait_for_acknowledged(WRITERS)
        service.is_full = True
        writers.wait_for_failed(WRITERS)
        service.is_full = False
        writers.wait_for_acknowledged(WRITERS)

    assert {type(error) for error in writers.failed.values()} == {StorageFullError}
    assert_right(dataset, writers)


def test_bucket_that_is_full_before_any_put_of_a_commit_refuses_it(
    full_bucket: tuple[RefusingService, lakebed.Repository],
) -> None:
    service, repository = full_bucket
    dataset = repository.create("d", DESCRIPTOR)
    dataset.append(rows("first"), run="first")
    writers = Writers(lambda: dataset, acknowledged=["first"])

    for room in range(20):
        refused, service.room = service.refused, room
        writers.append(dataset, f"room-{room}")
        is_refused = service.refused > refused
        service.is_full, service.room = False, -1
        if not is_refused:
            break
        error = writers.failed[f"room-{room}"]
        assert isinstance(error, StorageFullError), repr(error)

    assert len(writers.failed) >= 5  # reservation, two files, manifest, segments, head
    assert_right(dataset, writers)


@contextmanager
def no_room_for_files(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow over a size, by the system itself."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size_bytes", [0, 400, 1500])
def test_writers_to_a_directory_without_room_for_a_while_lose_and_double_nothing(
    tmp_path: Path, size_bytes: int
) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create("d", DESCRIPTOR)
    writers = Writers(lambda: repository.open("d"))

    with writers.running():
        writers.wait_for_acknowledged(WRITERS)
        with no_room_for_files(size_bytes):
            writers.wait_for_failed(WRITERS)
        writers.wait_for_acknowledged(WRITERS)

    assert {type(error) for error in writers.failed.values()} == {StorageFullError}
    assert_right(dataset, writers)


# Credentials that expire


@pytest.mark.parametrize(
    ("is_renewed", "status"),
    [(True, "400 Bad Request"), (False, "403 Forbidden")],  # as S3 answers, and as others do
    ids=["renewed", "given"],
)
def test_writers_whose_token_expires_go_on_with_a_new_one(
    refusing_s3: tuple[RefusingService, str],
    s3_options: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_renewed: bool,
    status: str,
) -> None:
    service, url = refusing_s3
    service.token, service.status_of_expired = "first", status
    vault = Vault("first")
    root = f"s3://lake/{uuid.uuid4().hex}"
    options = bucket_options(s3_options, url)

    def opened() -> lakebed.Repository:
        given = {} if is_renewed else {"session_token": vault.token}
        return lakebed.open_repository(root, storage_options={**options, **given})

    with served(vault) as vault_url:
        if is_renewed:
            for name in ("access_key_id", "secret_access_key"):
                del options[name]
            (tmp_path / "token").write_text("of the pod")
            monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", vault_url)
            monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        dataset = opened().create("d", DESCRIPTOR)
        writers = Writers(lambda: opened().open("d"))
        with writers.running():
            writers.wait_for_acknowledged(WRITERS)
            service.token = "second"
            writers.wait_for_failed(WRITERS)
            vault.token = "second"
            if is_renewed:
                writers.wait_for_acknowledged(2 * WRITERS)
        if not is_renewed:
            assert len(writers.failed) >= 2 * WRITERS
            dataset = opened().open("d")

        assert {type(error) for error in writers.failed.values()} == {AccessDeniedError}
        assert "expired" in next(iter(writers.failed.values())).message
        assert_right(dataset, writers)


class Vault:
    """Gives credentials to a pod, as the agent of EKS does; they expire so soon that all are asked for."""

    def __init__(self, token: str) -> None:
        self.token = token

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        until = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=30)
        body = json.dumps(
            {
                "AccessKeyId": "testing",
                "SecretAccessKey": "testing",
                "Token": self.token,
                "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        ).encode()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]


# A NameNode that starts again

PATIENT = {"max_retries": "20", "retry_timeout_s": "100", "read_timeout_s": "5"}


@pytest.mark.long  # fetches a jar, and starts a JVM
def test_writers_to_hdfs_go_on_after_its_name_node_has_started_again(tmp_path: Path) -> None:
    with cluster(tmp_path) as running, waiting_for_retries() as has_retried:
        options = {**running.options, **PATIENT}
        repository = lakebed.open_repository(running.url("lake"), storage_options=options)
        dataset = repository.create("d", DESCRIPTOR)
        writers = Writers(lambda: repository.open("d"))

        with writers.running():
            writers.wait_for_acknowledged(WRITERS)
            running.hdfs.shutdownNameNode(0)
            assert has_retried.wait(TIMEOUT_S)
            running.hdfs.restartNameNode(0)
            writers.wait_for_acknowledged(2 * WRITERS)

        # They lose at most the upload that was under way to a DataNode.
        assert len(writers.failed) <= WRITERS, writers.failed
        kinds = (StorageError, CommitUnknownError)
        others = [error for error in writers.failed.values() if not isinstance(error, kinds)]
        assert not others, "\n".join(map(repr, others))
        assert_right(dataset, writers)


@contextmanager
def waiting_for_retries() -> Iterator[threading.Event]:
    """Yield an event that is set once a request to a NameNode was repeated."""
    met = threading.Event()

    def look(record: logging.LogRecord) -> bool:
        if "retries" in record.msg:
            met.set()
        return True

    logger = logging.getLogger("lakebed.store.webhdfs")
    logger.addFilter(look)
    try:
        yield met
    finally:
        logger.removeFilter(look)
