"""Archives to work with: over a directory and SQLite, over S3 and DynamoDB."""

import contextlib
import io
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import lakebed
from lakebed.archive import Archive, ArchiveIndex, ArchiveRecord, FileMetadata, open_index

DAY = 86_400_000
T0 = 1426809600000  # 2015-03-20, day 16514


@pytest.fixture
def aws(s3_endpoint: str, s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the services, with credentials in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return s3_endpoint


@pytest.fixture(scope="session")
def dynamodb_client(s3_endpoint: str) -> Iterator[Any]:
    import boto3

    client = boto3.client(
        "dynamodb",
        region_name="us-east-1",
        endpoint_url=s3_endpoint,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    yield client
    client.close()


@pytest.fixture
def dynamodb_url(aws: str, dynamodb_client: Any) -> Iterator[str]:
    table = f"archive-{uuid.uuid4().hex}"
    yield f"dynamodb://{table}?region=us-east-1&endpoint={quote(aws, safe='')}"
    # moto copies all tables for each transaction: the fewer there are, the faster it is.
    with contextlib.suppress(dynamodb_client.exceptions.ResourceNotFoundException):
        dynamodb_client.delete_table(TableName=table)


@pytest.fixture(params=["sqlite", "dynamodb"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ArchiveIndex]:
    """Every index there is, empty."""
    if request.param == "dynamodb":
        opened = open_index(request.getfixturevalue("dynamodb_url"))
    else:
        opened = open_index(f"sqlite://{tmp_path}/index.db")
    opened.create()
    yield opened
    opened.close()


@pytest.fixture(params=["directory", "s3"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    """An archive on a store with attributes, and on one without; empty.

    A test that asks for `s3-dynamodb` gets both services; for the rest `test_index` is enough.
    """
    if request.param != "directory":
        is_cloud = request.param == "s3-dynamodb"
        opened = lakebed.open_archive(
            f"s3://lake/raw-{uuid.uuid4().hex}",
            index=request.getfixturevalue("dynamodb_url") if is_cloud else "sqlite://",
            storage_options=request.getfixturevalue("s3_options"),
        )
    else:
        opened = lakebed.open_archive(tmp_path / "raw")
    opened.init()
    yield opened
    opened.index.close()


Push = Callable[..., ArchiveRecord]


@pytest.fixture
def push(archive: Archive) -> Push:
    """Push a content with as few words as possible."""

    def push(content: bytes = b"content", **fields: Any) -> ArchiveRecord:
        given = {"where": "box", "what": "log", "start": T0, "path": "/var/log/a.log", **fields}
        return archive.push(io.BytesIO(content), **given)

    return push


def fields_of(**changes: Any) -> dict[str, Any]:
    """Return the basic metadata of the originals' tests, changed."""
    basic = {
        "version": 0,
        "start": T0,
        "end": 1426895999999,
        "path": "/var/log/apache/access.log",
        "where": "nebraska",
        "what": "apache",
        "hash": "12345" + 27 * "0",
        "work_id": None,
    }
    return {name: value for name, value in {**basic, **changes}.items() if value is not ...}


def record_of(*, url: str = "", create_time_ms: int = T0, **changes: Any) -> ArchiveRecord:
    metadata = FileMetadata(fields_of(**changes))
    return ArchiveRecord(
        url=url or f"s3://raw/{metadata.id}/data",
        metadata=metadata,
        create_time_ms=create_time_ms,
        size_bytes=7,
    )


@pytest.fixture(name="fields_of")
def fields_of_fixture() -> Callable[..., dict[str, Any]]:
    return fields_of


@pytest.fixture(name="record_of")
def record_of_fixture() -> Callable[..., ArchiveRecord]:
    return record_of
