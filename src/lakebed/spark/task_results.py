"""Messages of tasks to the driver: results as bytes, errors as text.

An error of ours is an answer, for Spark would only try the same again; any other fails the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from lakebed.errors import LakebedError, from_document, to_document

_Result = TypeVar("_Result")

ANSWER = "answer binary, error string"
ANSWER_SCHEMA = pa.schema([("answer", pa.binary()), ("error", pa.string())])


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


def answer(result: object) -> pa.RecordBatch:
    """Return what a task gives, such as `Written`, as a message of `ANSWER`."""
    told = pa.array([encode_result(result)])
    return pa.record_batch([told, pa.nulls(1, pa.string())], schema=ANSWER_SCHEMA)


def encode_result(result: object) -> bytes:
    """Return what a task gives as bytes."""
    return msgspec.msgpack.encode(result, enc_hook=_to_wire)


def refusal(error: LakebedError) -> pa.RecordBatch:
    """Return an error as a message of `ANSWER`."""
    told = pa.array([write_error(error)], pa.string())
    return pa.record_batch([pa.nulls(1, pa.binary()), told], schema=ANSWER_SCHEMA)


def results(rows: Iterable[Any], kind: type[_Result]) -> Iterator[_Result]:
    """Yield what tasks have given, and raise the first error at the end.

    Args:
        rows: Rows of `ANSWER`, or other objects with these two attributes.
        kind: Type of the results.
    """
    errors = []
    for row in rows:
        if row.error is None:
            yield msgspec.msgpack.decode(bytes(row.answer), type=kind, dec_hook=_from_wire)
        else:
            errors.append(read_error(row.error))
    if errors:
        raise errors[0]


def _to_wire(value: Any) -> bytes | str:
    """Return what msgpack does not know as what it knows."""
    if isinstance(value, pa.Table):
        return table_to_bytes(value)
    if isinstance(value, LakebedError):
        return write_error(value)
    raise NotImplementedError(type(value))


def _from_wire(_: type, data: bytes | str) -> pa.Table | LakebedError:
    return read_error(data) if isinstance(data, str) else table_from_bytes(data)


def write_error(exc: LakebedError) -> str:
    """Return an error as text."""
    return json.dumps(to_document(exc), default=str)


def read_error(text: str) -> LakebedError:
    """Read what `write_error` gave."""
    return from_document(json.loads(text))
