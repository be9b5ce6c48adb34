"""Messages of tasks to the driver: results as bytes, errors as text.

An error of Lakebed is sent as an answer, since Spark would only retry the task; any other error
fails the task.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from lakebed.common.decoding import from_msgpack
from lakebed.errors import LakebedError, from_document, to_document

_Result = TypeVar("_Result")

ANSWER = "answer binary, error string"
ANSWER_SCHEMA = pa.schema([("answer", pa.binary()), ("error", pa.string())])


def table_to_bytes(table: pa.Table) -> bytes:
    """Return a table of facts or rows as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def table_from_bytes(data: bytes | pa.Buffer) -> pa.Table:
    """Read a table that `table_to_bytes` has written."""
    return pa.ipc.open_stream(data).read_all()


def answer(result: object) -> pa.RecordBatch:
    """Return the result of a task, such as `Written`, as a message of `ANSWER`."""
    encoded = pa.array([encode_result(result)])
    return pa.record_batch([encoded, pa.nulls(1, pa.string())], schema=ANSWER_SCHEMA)


def encode_result(result: object) -> bytes:
    """Return the result of a task as bytes."""
    return msgspec.msgpack.encode(result, enc_hook=_to_wire)


def refusal(error: LakebedError) -> pa.RecordBatch:
    """Return an error as a message of `ANSWER`."""
    encoded = pa.array([write_error(error)], pa.string())
    return pa.record_batch([pa.nulls(1, pa.binary()), encoded], schema=ANSWER_SCHEMA)


def results(rows: Iterable[Any], kind: type[_Result]) -> Iterator[_Result]:
    """Yield the results of tasks, and raise the first error at the end.

    Args:
        rows: Rows of `ANSWER`, or other objects with these two attributes.
        kind: Type of the results.
    """
    errors = []
    for row in rows:
        if row.error is None:
            yield from_msgpack(bytes(row.answer), kind, _from_wire)
        else:
            errors.append(read_error(row.error))
    if errors:
        raise errors[0]


def _to_wire(value: Any) -> bytes | str:
    """Encode a value that msgpack does not support."""
    if isinstance(value, pa.Table):
        return table_to_bytes(value)
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return value.tobytes()
    if isinstance(value, LakebedError):
        return write_error(value)
    raise NotImplementedError(type(value))


def _from_wire(kind: type, data: bytes | str) -> pa.Table | LakebedError | np.ndarray:
    if kind is np.ndarray and isinstance(data, bytes):
        return np.frombuffer(data, np.bool_)
    return read_error(data) if isinstance(data, str) else table_from_bytes(data)


def write_error(exc: LakebedError) -> str:
    """Return an error as text."""
    return json.dumps(to_document(exc), default=str)


def read_error(text: str) -> LakebedError:
    """Read an error that `write_error` has written."""
    return from_document(json.loads(text))
