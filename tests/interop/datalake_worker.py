"""Answers calls with datalake's client, in its own environment: one line of JSON in, one out."""

from __future__ import annotations

import json
import os
import sys
from importlib import metadata
from typing import Any

import requests
from datalake import Archive
from datalake.common import DatalakeRecord, Metadata


def version() -> str:
    """Return the version of datalake."""
    return metadata.version("datalake")


def push(http_url: str, path: str, fields: dict[str, Any]) -> str:
    """Push a file, and return its URL."""
    return Archive(http_url=http_url).prepare_metadata_and_push(path, **fields)


def list_files(http_url: str, **question: Any) -> list[dict[str, Any]]:
    """Return the records of all pages."""
    return list(Archive(http_url=http_url).list(**question))


def list_with_token(http_url: str, token: str, **question: Any) -> list[dict[str, Any]]:
    """Return the records of all pages, asked for with a token."""
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {token}"
        return list(Archive(http_url=http_url, session=session).list(**question))


def latest(http_url: str, what: str, where: str, lookback: Any = None) -> dict[str, Any]:
    """Return the record with the latest start."""
    return Archive(http_url=http_url).latest(what, where, lookback)


def fetch(http_url: str, url: str, stream: bool = False) -> dict[str, Any]:
    """Return metadata and content of a file."""
    file = Archive(http_url=http_url).fetch(url, stream=stream)
    # read() of a stream takes a time that grows with the square of the size.
    content = b"".join(file.iter_content()) if stream else file.read()
    return {"metadata": file.metadata, "content": content.hex()}


def fetch_to_filename(http_url: str, url: str, template: str, folder: str) -> str:
    """Write a file, and return where."""
    os.chdir(folder)
    return Archive(http_url=http_url).fetch_to_filename(url, template)


def records(http_url: str, url: str) -> list[dict[str, Any]]:
    """Return the documents that datalake puts into its index for a stored file."""
    return [dict(record) for record in DatalakeRecord.list_from_url(url)]


def normalize_date(http_url: str, values: list[Any]) -> list[Any]:
    """Return what datalake takes values for: milliseconds, or the name of an error."""
    return [_normalized(value) for value in values]


def _normalized(value: Any) -> Any:
    try:
        return Metadata.normalize_date(value)
    except Exception as error:  # noqa: BLE001 - every error is an answer
        return type(error).__name__


CALLS = {
    call.__name__: call
    for call in (
        version,
        push,
        list_files,
        list_with_token,
        latest,
        fetch,
        fetch_to_filename,
        records,
        normalize_date,
    )
}


def main() -> None:
    """Answer until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints must not get between the answers
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"result": CALLS[request["call"]](**request["arguments"])}
        except Exception as error:  # noqa: BLE001 - every error is an answer
            answer = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
