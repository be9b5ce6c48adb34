"""Values as JSON, between the tests and plateau's own environment. Standard library only."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any


def to_json(value: Any) -> Any:
    """Return `value` as JSON; what JSON cannot hold becomes an object with one tag."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return {"float": repr(value)}
        case bytes():
            return {"bytes": value.hex()}
        case dt.datetime():
            return {"datetime": value.isoformat()}
        case dt.date():
            return {"date": value.isoformat()}
        case decimal.Decimal():
            return {"decimal": str(value)}
        case list() | tuple():
            return [to_json(one) for one in value]
        case dict():
            return {"dict": [[to_json(key), to_json(one)] for key, one in value.items()]}
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


_READERS = {
    "float": float,
    "bytes": bytes.fromhex,
    "datetime": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "decimal": decimal.Decimal,
}
