"""Functions that hash values."""

from __future__ import annotations

from lakebed.model.formulas.functions_base import FunctionCall, SqlFunction, declarer, simple, taken
from lakebed.model.formulas.typed import (
    BOOLEAN,
    BYTES,
    CLOCK,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    TEXT,
    TIMESTAMP,
    Typed,
    duck_text,
    duck_type,
    joined,
)
from lakebed.model.schema import SMALLINT, TINYINT, Decimal, ListOf, Struct, Type

declare = declarer("Hashes")


def _sha2(call: FunctionCall) -> Typed:
    data, bits = call.values(2)
    parts = [taken(data, "binary", call), taken(bits, "int", call)]
    template = "CASE WHEN {1} IN (0, 256) THEN sha256({0}) ELSE lakebed_sha2({0}, {1}) END"
    return joined(template, parts, TEXT)


def _hash(name: str, kind: Type, seed: int) -> SqlFunction:
    """Return a function that hashes values one after the other: each by the hash before it."""

    def call_it(call: FunctionCall) -> Typed:
        result = Typed(sql=f"CAST({seed} AS {duck_type(kind)})", type=kind)
        for value in call.values(1, 1_000):
            result = _folded(name, value, result, call)
        return result

    return call_it


def _folded(name: str, value: Typed, seed: Typed, call: FunctionCall) -> Typed:
    """Return the hash of a value; of NULL, that before it."""
    kind = value.type
    if kind is None:
        return seed
    if isinstance(kind, ListOf):
        element = Typed(sql="v_x", type=kind.element)
        body = _folded(name, element, Typed(sql="v_h", type=seed.type), call)
        if "v_h" in value.sql:
            raise call.refused("it hashes arrays of arrays")
        template = "coalesce(list_reduce({0}, lambda v_h, v_x: {1}, {2}), {2})"
        return joined(template, [value, body, seed], seed.type)
    if isinstance(kind, Struct):
        for field in kind.fields:
            part = joined(f"struct_extract({{0}}, {duck_text(field.name)})", [value], field.type)
            seed = _folded(name, part, seed, call)
        return seed
    word, converted = _plain(value, call)
    return joined(f"lakebed_{name}_{word}({{0}}, {{1}})", [converted, seed], seed.type)


def _plain(value: Typed, call: FunctionCall) -> tuple[str, Typed]:
    """Return the form in which a value is hashed, and the value in it."""
    kind = value.type
    if kind in (BOOLEAN, TINYINT, SMALLINT, INT):
        return "int", joined("CAST({0} AS INTEGER)", [value], INT)
    if kind == DATE:
        return "int", joined("CAST({0} - DATE '1970-01-01' AS INTEGER)", [value], INT)
    if kind == LONG:
        return "long", value
    if kind in (TIMESTAMP, CLOCK):
        return "long", joined("epoch_us({0})", [value], LONG)
    if kind in (FLOAT, DOUBLE, TEXT):
        return {FLOAT: "float", DOUBLE: "double", TEXT: "text"}[kind], value
    if kind == BYTES:
        return "bytes", value
    if isinstance(kind, Decimal) and kind.precision <= 18:
        digits = "replace(CAST({0} AS VARCHAR), '.', '')"
        return "long", joined(f"CAST({digits} AS BIGINT)", [value], LONG)
    if isinstance(kind, Decimal):
        return "digits", joined("replace(CAST({0} AS VARCHAR), '.', '')", [value], TEXT)
    raise call.refused(f"it hashes {kind}")


declare("md5", simple("binary", TEXT, "md5({0})"))
declare("sha sha1", simple("binary", TEXT, "sha1({0})"))
declare("sha2", _sha2)
declare("crc32", simple("binary", LONG, "lakebed_crc32({0})"))
declare("hash", _hash("murmur", INT, 42))
declare("xxhash64", _hash("xxhash", LONG, 42))
