"""Requests that clients have sent are answered in the form that they read.

tests/publication/record_requests.py has recorded them, from pyiceberg 0.12, Polars 2.1, Spark 4.1
with Iceberg 1.11, DuckDB 1.5 and Daft 0.7.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import Client
from engine_questions import fill

import lakebed
from lakebed.web import IcebergDoor, create_app

RECORDED: dict[str, list[dict[str, Any]]] = json.loads(
    Path(__file__).with_name("client_requests.json").read_text(encoding="utf-8")
)
REQUESTS = [
    pytest.param(request, id=f"{client}-{number}")
    for client, requests in RECORDED.items()
    for number, request in enumerate(requests)
]
FILE_KEYS = {
    "spec-id",
    "content",
    "file-path",
    "file-format",
    "partition",
    "file-size-in-bytes",
    "record-count",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    lake = lakebed.open_repository(str(tmp_path_factory.mktemp("recorded") / "lake"))
    fill(lake, "events", {})
    return Client(create_app(lake, iceberg=IcebergDoor()))


def assert_form(path: str, document: dict[str, Any]) -> None:
    """Check the parts of an answer that clients need."""
    end = path.partition("?")[0].rpartition("/")[2]
    if "error" in document:
        assert set(document["error"]) == {"message", "type", "code"}
    elif end == "config":
        assert set(document) == {"defaults", "overrides", "endpoints"}
    elif end == "namespaces":
        assert all(isinstance(part, str) for name in document["namespaces"] for part in name)
    elif end == "tables":
        assert {"namespace": ["lake"], "name": "events"} in document["identifiers"]
    elif end == "plan":
        assert document["status"] == "completed"
        for task in document["file-scan-tasks"]:
            assert set(task) == {"data-file", "residual-filter"}
            assert set(task["data-file"]) == FILE_KEYS
    elif end == "lake":
        assert document["namespace"] == ["lake"]
    else:
        assert set(document) == {"metadata-location", "metadata", "config"}
        metadata = document["metadata"]
        assert metadata["format-version"] == 2
        assert metadata["current-snapshot-id"] == metadata["refs"]["main"]["snapshot-id"]


@pytest.mark.parametrize("request_", REQUESTS)
def test_a_recorded_request_is_answered_as_then(client, request_) -> None:
    body = json.dumps(request_["body"]).encode() if "body" in request_ else None
    answer = client.ask(request_["path"], request_["method"], request_["headers"], body)

    assert answer.status == request_["status"], answer.text
    if request_["method"] == "HEAD":
        assert answer.body == b""
        return
    document = json.loads(answer.body)
    assert_form(request_["path"], document)
    if "files" in request_:
        assert len(document["file-scan-tasks"]) == request_["files"]


def test_the_recorded_plans_leave_out_files() -> None:
    for client in ("pyiceberg", "polars", "spark"):
        planned = [one["files"] for one in RECORDED[client] if "files" in one]
        assert min(planned) == 1, client
        assert max(planned) > 100, client


def test_nothing_recorded_names_a_machine() -> None:
    text = json.dumps(RECORDED).casefold()

    assert [
        word for word in ("127.0.0.1", "localhost", "authorization", "file:/") if word in text
    ] == []
