"""What a task sends on: tables as bytes, errors as text."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from lakebed import errors
from lakebed.errors import InvalidInputError, LakebedError


def table_to_bytes(table: pa.Table) -> bytes:
    """Return a table, facts or rows, as a stream of Arrow's format."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def table_from_bytes(data: bytes | pa.Buffer) -> pa.Table:
    """Read what `table_to_bytes` gave."""
    return pa.ipc.open_stream(data).read_all()


def write_error(exc: LakebedError) -> str:
    """Return an error as text."""
    return json.dumps({"class": type(exc).__name__, "message": exc.message, "hint": exc.hint})


def read_error(text: str) -> LakebedError:
    """Read what `write_error` gave."""
    document: dict[str, Any] = json.loads(text)
    found = getattr(errors, document["class"], InvalidInputError)
    error: LakebedError = found(document["message"], hint=document["hint"])
    return error
