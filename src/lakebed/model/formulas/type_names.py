"""Names of types in SQL text."""

from __future__ import annotations

from typing import Any, Final

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.formulas import typed
from lakebed.model.schema import SMALLINT, TINYINT, Decimal, Kind, Primitive, Type
from lakebed.model.sql_dialect import to_text


def type_of(node: Any, text: str) -> Type:
    """Return the type of a value without parts that a node names.

    Raises:
        PredicateError: It names none.
    """
    try:
        kind = find_plain_type(node)
    except InvalidInputError as exc:
        raise PredicateError(exc.message, hint=exc.hint) from exc
    if kind is None:
        raise PredicateError(
            f"{shown(to_text(node))} in {shown(text)} is not a type of a value without parts.",
            hint="Types are boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), "
            "string, binary, date, timestamp and timestamp_ntz.",
        )
    return kind


def find_plain_type(node: Any) -> Primitive | Decimal | None:
    """Return the type of values without parts that a node names; None for another one.

    Raises:
        InvalidInputError: It is a decimal whose precision or scale is not possible, or not a number.
    """
    name = node.this.name
    if name != "DECIMAL":
        return None if node.expressions else _TYPES.get(name)
    given = [part.name for part in node.expressions]
    if len(given) > 2 or not all(digits.isdecimal() and len(digits) < 4 for digits in given):
        raise InvalidInputError(
            f"Illegal {shown(to_text(node))}.", hint="Write DECIMAL(p, s), such as DECIMAL(10, 2)."
        )
    return Decimal(*map(int, given), *[10, 0][len(given) :])


def sql_type_of(kind: Type) -> str:
    """Return how SQL names a type of values without parts."""
    words = {Kind.LONG: "bigint", Kind.UNSIGNED_LONG: "decimal(20, 0)", Kind.BYTES: "binary"}
    return words.get(kind.kind, str(kind)) if isinstance(kind, Primitive) else str(kind)


_TYPES: Final[dict[str, Primitive]] = {
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
