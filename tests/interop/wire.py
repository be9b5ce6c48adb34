"""Values as JSON, between the tests and the environments of plateau and kartothek.

Standard library only, and nothing that Python 3.9 does not know.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import sys
from collections.abc import Callable
from typing import Any


def to_json(value: Any) -> Any:
    """Return `value` as JSON; what JSON cannot hold becomes an object with one tag."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [to_json(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[to_json(key), to_json(one)] for key, one in value.items()]}
    for kind, tag, write in _WRITERS:
        if isinstance(value, kind):
            return {tag: write(value)}
    raise TypeError(f"No JSON form for {value!r} of type {type(value)}.")


def from_json(document: Any) -> Any:
    """Read what `to_json` gave; tuples come back as lists."""
    if isinstance(document, list):
        return [from_json(one) for one in document]
    if not isinstance(document, dict):
        return document
    ((tag, content),) = document.items()
    if tag == "dict":
        return {from_json(key): from_json(one) for key, one in content}
    return _READERS[tag](content)


# A datetime is a date, too.
_WRITERS = (
    (float, "float", repr),
    (bytes, "bytes", bytes.hex),
    (dt.datetime, "datetime", dt.datetime.isoformat),
    (dt.date, "date", dt.date.isoformat),
    (decimal.Decimal, "decimal", str),
)
_READERS = {
    "float": float,
    "bytes": bytes.fromhex,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "decimal": decimal.Decimal,
}


def answer(calls: dict[str, Callable[..., Any]]) -> None:
    """Call what each line of the input asks for, until it ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints must not get between the answers
    for line in sys.stdin:
        request = from_json(json.loads(line))
        try:
            told = {"result": calls[request["call"]](**request["arguments"])}
        except Exception as error:  # noqa: BLE001 - every error is an answer
            told = {"error": type(error).__name__, "message": str(error)}
        print(json.dumps(to_json(told)), file=answers, flush=True)
