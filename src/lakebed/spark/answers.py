"""What a task sends on: tables as bytes, errors as text."""

from __future__ import annotations

import json

import pyarrow as pa

from lakebed.errors import LakebedError, from_document, to_document


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
    return json.dumps(to_document(exc), default=str)


def read_error(text: str) -> LakebedError:
    """Read what `write_error` gave."""
    return from_document(json.loads(text))
