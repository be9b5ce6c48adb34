"""Names of types in SQL text."""

from __future__ import annotations

from typing import Any

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.formulas import typed
from lakebed.model.schema import SMALLINT, TINYINT, Decimal, Type
from lakebed.model.sql_dialect import to_text


def type_of(node: Any, text: str) -> Type:
    """Return the type that a node names.

    Raises:
        PredicateError: No field has such a type.
    """
    name = node.this.name
    if name == "DECIMAL":
        given = [part.name for part in node.expressions] or ["10", "0"]
        if len(given) > 2 or not all(digits.isdecimal() and len(digits) < 4 for digits in given):
            raise PredicateError(
                f"Illegal {shown(to_text(node))} in {shown(text)}.",
                hint="Write DECIMAL(p, s), such as DECIMAL(10, 2).",
            )
        try:
            return Decimal(*map(int, given), *[0][len(given) - 1 :])
        except InvalidInputError as exc:
            raise PredicateError(exc.message, hint=exc.hint) from exc
    kind = _TYPES.get(name)
    if kind is None or node.expressions:
        raise PredicateError(
            f"{shown(to_text(node))} in {shown(text)} is not a type of a value without parts.",
            hint="Types are boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), "
            "string, binary, date, timestamp and timestamp_ntz.",
        )
    return kind


_TYPES: dict[str, Type] = {
    "BOOLEAN": typed.BOOLEAN,
    "TINYINT": TINYINT,
    "SMALLINT": SMALLINT,
    "INT": typed.INT,
    "BIGINT": typed.LONG,
    "FLOAT": typed.FLOAT,
    "DOUBLE": typed.DOUBLE,
    "TEXT": typed.TEXT,
    "VARCHAR": typed.TEXT,
    "BINARY": typed.BYTES,
    "VARBINARY": typed.BYTES,
    "DATE": typed.DATE,
    "TIMESTAMP": typed.TIMESTAMP,
    "TIMESTAMPTZ": typed.TIMESTAMP,
    "TIMESTAMPLTZ": typed.TIMESTAMP,
    "TIMESTAMPNTZ": typed.CLOCK,
}
