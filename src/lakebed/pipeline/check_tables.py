"""The form of the table `[checks]`, for the JSON schema of declarations."""

from __future__ import annotations

from typing import Any, get_args

from lakebed.model.declared import MOST_CHECKS, ON_FAILURE, Of

_TEXT = {"type": "string", "pattern": r"\S"}
_NAME = {"type": "string", "minLength": 1}
_NAMES = {"anyOf": [_NAME, {"type": "array", "items": _NAME, "minItems": 1}]}
_COUNT = {"type": "integer", "minimum": 0}
_AGE = {"type": "string", "pattern": r"^\s*[0-9]{1,9} ?[smhdw]\s*$"}
_OF_ROWS = {"of": {"enum": ["batch"]}, "on_failure": {"enum": list(ON_FAILURE)}}
_OF_BATCH = {"of": {"enum": ["batch"]}, "on_failure": {"enum": ["refuse", "warn"]}}
_OF_KEYS = {**_OF_BATCH, "of": {"enum": list(get_args(Of))}}


def _kind(common: dict[str, Any], *required: str, **keys: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**keys, **common},
        "required": list(required or keys),
        "additionalProperties": False,
    }


_KINDS = [
    _kind(_OF_ROWS, rows={**_TEXT, "description": "Condition in SQL, true of each new row."}),
    _kind(_OF_ROWS, not_null={**_NAMES, "description": "Columns that have no null."}),
    _kind(_OF_KEYS, unique={**_NAMES, "description": "Columns in which no two rows agree."}),
    _kind(
        _OF_BATCH,
        reference={
            "type": "string",
            "pattern": r"\S\s*->\s*[^\s.]+\.\S",
            "description": "Column, and that of another dataset: airport -> airports.code.",
        },
    ),
    _kind(
        _OF_BATCH,
        "row_count_within",
        row_count_within={
            "type": "number",
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 1000,
            "description": "Greatest difference from the mean of the last batches, as a share.",
        },
        of_last={"type": "integer", "minimum": 1, "maximum": 1000},
    ),
    _kind(_OF_BATCH, "min_rows", min_rows=_COUNT, max_rows=_COUNT),
    _kind(_OF_BATCH, max_rows=_COUNT),
    _kind(
        _OF_BATCH,
        column={**_TEXT, "description": "Column of times, of which the newest is not older."},
        within=_AGE,
    ),
]
SCHEMA_OF_CHECKS: dict[str, Any] = {
    "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"},
    "maxProperties": MOST_CHECKS,
    "additionalProperties": {"anyOf": [_TEXT, *_KINDS]},
}
