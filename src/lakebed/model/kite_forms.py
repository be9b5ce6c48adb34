"""Kite's own forms: partitions and mappings in its Avro schemas, and its metadata files. No I/O."""

from __future__ import annotations

import ast
import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from lakebed.errors import FormatError, PartitionSpecError, SchemaMismatchError
from lakebed.model.names import nearest
from lakebed.model.partition import PartitionFunction, PartitionStrategy
from lakebed.model.partition.function import find_type, flat
from lakebed.model.partition.registry import build_function
from lakebed.model.schema import Kind, MapOf, Primitive, Schema, Struct

MAPPING = "kite.mapping"
"""The property that stores a column mapping, as JSON: Lakebed has no columns to map to."""

MAX_TEXT = 100_000  # characters of an expression or of properties; longer texts are not metadata
_WHOLE = frozenset({Kind.INT, Kind.LONG})
# Members of each type of column mapping, besides the source.
_MAPPED = {
    "key": (),
    "column": ("family", "qualifier"),
    "keyAsColumn": ("family",),
    "counter": ("family", "qualifier"),
    "occVersion": (),
}
_CALENDAR = ("year", "month", "day", "hour", "minute")


def find_strategy(document: Mapping[str, Any]) -> PartitionStrategy | None:
    """Return the partition strategy that an Avro schema holds under `partitions`; None without.

    Missing names default to Kite's: an identity is called `<source>_copy`.

    Raises:
        PartitionSpecError: The strategy is not of Kite's form.
    """
    if "partitions" not in document:
        return None
    partitions = document["partitions"]
    if isinstance(partitions, list):
        partitions = [_with_kites_name(one) for one in partitions]
    return PartitionStrategy.from_document(partitions)


def _with_kites_name(document: object) -> object:
    if not isinstance(document, Mapping) or document.get("type") != "identity":
        return document
    source = document.get("source")
    if "name" in document or not isinstance(source, str):
        return document
    return {**document, "name": f"{flat(source)}_copy"}


def find_mapping(
    document: Mapping[str, Any], schema: Schema, strategy: PartitionStrategy
) -> str | None:
    """Return the column mapping that an Avro schema holds under `mapping`, as JSON; None without.

    Raises:
        SchemaMismatchError: The mapping is not of Kite's form, or does not fit the fields.
    """
    if "mapping" not in document:
        return None
    mapping = document["mapping"]
    if not isinstance(mapping, list):
        raise _unmapped("mapping", mapping, "It is a list of objects with source and type.")
    kinds = [
        _check_mapped(one, f"mapping[{position}]", schema, strategy)
        for position, one in enumerate(mapping)
    ]
    if kinds.count("occVersion") > 1 or {"occVersion", "counter"} <= set(kinds):
        raise _unmapped("mapping", kinds, "Give at most one occVersion, and no counter with it.")
    return json.dumps(mapping, ensure_ascii=False, separators=(",", ":"))


def _check_mapped(document: object, place: str, schema: Schema, strategy: PartitionStrategy) -> str:
    if not isinstance(document, Mapping) or str(document.get("type")) not in _MAPPED:
        raise _unmapped(place, document, f"Types are: {', '.join(_MAPPED)}.")
    kind, source = str(document["type"]), document.get("source")
    if not isinstance(source, str) or find_type(schema, source) is None:
        hint = nearest(str(source), schema.names) or f"Fields are: {', '.join(schema.names)}."
        raise _unmapped(f"{place}.source", source, hint)
    given = dict(document)
    if isinstance(given.get("value"), str):  # the old form
        family, _, qualifier = given["value"].partition(":")
        given = {"family": family, "qualifier": qualifier, **given}
    for name in _MAPPED[kind]:
        if not isinstance(given.get(name), str) or not given[name]:
            raise _unmapped(f"{place}.{name}", given.get(name), f"A {kind} has {name!r}.")
    of = find_type(schema, source)
    is_primitive = isinstance(of, Primitive)
    fits = {
        "counter": is_primitive and isinstance(of, Primitive) and of.kind in _WHOLE,
        "occVersion": is_primitive and isinstance(of, Primitive) and of.kind in _WHOLE,
        "keyAsColumn": isinstance(of, MapOf | Struct),
        "key": is_primitive
        and any(one.source == source and one.type_name == "identity" for one in strategy),
    }
    if not fits.get(kind, True):
        raise _unmapped(
            f"{place}.source",
            source,
            "A counter and an occVersion are whole numbers, a keyAsColumn is a map or record, and a "
            "key has a partition by identity.",
        )
    return kind


def _unmapped(place: str, value: object, hint: str) -> SchemaMismatchError:
    return SchemaMismatchError(f"{place}: {reprlib.repr(value)} is not valid here.", hint=hint)


def parse_expression(text: str) -> PartitionStrategy:
    """Read a partition strategy in the form of `descriptor.properties`; no code of it is run.

    >>> str(parse_expression('[year("ts", "year"), hash("user", "user_hash", 16)]'))
    'year(ts) as year, hash(user, 16) as user_hash'

    Raises:
        PartitionSpecError: The text is not of Kite's form.
    """
    try:
        if len(text) > MAX_TEXT:
            raise _unread(text)
        body = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise _unread(text) from exc
    calls = body.elts if isinstance(body, ast.List) else [body]
    return PartitionStrategy(tuple(_function_of(call, text) for call in calls))


def _function_of(call: ast.expr, text: str) -> PartitionFunction:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise _unread(text)
    arguments = [_value_of(argument, text) for argument in call.args]
    texts = [one for one in arguments[:2] if isinstance(one, str)]
    if len(texts) != len(arguments[:2]) or len(texts) < 2:
        raise _unread(text)
    (source, name), others = texts, arguments[2:]
    match call.func.id, others:
        case "identity", [*_]:  # the type and the number of values are redundant
            return build_function("identity", source, {}, name)
        case "hash", [int(buckets)]:
            return build_function("hash", source, {"buckets": buckets}, name)
        case "range", [_, *_]:
            return build_function("range", source, {"bounds": tuple(others)}, name)
        case "fixedSizeRange", [int(size)]:
            return build_function("fixed_range", source, {"size": size}, name)
        case "dateFormat", [str(pattern)]:
            return build_function("date_format", source, {"format": pattern}, name)
        case "provided", []:
            return build_function("provided", source, {"values": name})
        case calendar, [] if calendar in _CALENDAR:
            return build_function(calendar, source, {}, name)
    raise _unread(text)


def _value_of(argument: ast.expr, text: str) -> str | int:
    is_negative = isinstance(argument, ast.UnaryOp) and isinstance(argument.op, ast.USub)
    constant = argument.operand if isinstance(argument, ast.UnaryOp) else argument
    if not isinstance(constant, ast.Constant) or type(constant.value) not in (str, int):
        raise _unread(text)
    value = constant.value
    if isinstance(value, int):
        return -value if is_negative else value
    if is_negative or isinstance(argument, ast.UnaryOp):
        raise _unread(text)
    assert isinstance(value, str)
    return value


def _unread(text: str) -> PartitionSpecError:
    return PartitionSpecError(
        f"Kite's partition expression {reprlib.repr(text)} cannot be read.",
        hint='It has the form [year("ts", "year"), hash("user", "user_hash", 16)].',
    )


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    r"""Read a file of Java's properties.

    >>> parse_properties("#Mon\nversion=1\nlocation=file\\:/data/users\n")
    {'version': '1', 'location': 'file:/data/users'}

    Raises:
        FormatError: The text is too long.
    """
    if len(text) > MAX_TEXT:
        raise FormatError(
            f"Properties of {len(text):,} characters are too long for metadata.",
            hint="Check the file.",
        )
    properties = {}
    for line in _logical_lines(text):
        match = _PAIR.fullmatch(line)
        if match is not None and match[1]:
            properties[_unescaped(match[1])] = _unescaped(match[2])
    return properties


def _logical_lines(text: str) -> Sequence[str]:
    lines: list[str] = []
    is_continued = False
    for raw in re.split(r"\r\n|[\n\r]", text):
        line = raw.lstrip(" \t\f")
        if not is_continued and (not line or line.startswith(("#", "!"))):
            continue
        ends = len(line) - len(line.rstrip("\\"))
        body = line[:-1] if ends % 2 else line
        if is_continued:
            lines[-1] += body
        else:
            lines.append(body)
        is_continued = bool(ends % 2)
    return lines


def _unescaped(text: str) -> str:
    plain = _ESCAPED.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2]), text
    )
    # Java writes characters outside the basic plane as two units.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")
