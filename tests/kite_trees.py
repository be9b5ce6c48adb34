"""A dataset of Kite, written by the rules of its source."""

import json
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro

from lakebed.model.partition import PartitionFunction, PartitionStrategy
from lakebed.model.schema import Kind, Primitive, Schema

Place = Callable[[Mapping[str, Any]], Iterable[tuple[str, object]]]


def java_hash(value: int | str) -> int:
    """Return what Java's `hashCode` gives of a Long or a String, as a signed int."""
    if isinstance(value, int):
        low = (value ^ ((value & (2**64 - 1)) >> 32)) & 0xFFFFFFFF
    else:
        low = 0
        units = value.encode("utf-16-be")
        for start in range(0, len(units), 2):
            low = (31 * low + int.from_bytes(units[start : start + 2], "big")) & 0xFFFFFFFF
    return low - 2**32 if low >= 2**31 else low


def bucket(value: int | str, buckets: int) -> int:
    return (java_hash(value) & 0x7FFFFFFF) % buckets


def directory(levels: Iterable[tuple[str, object]]) -> str:
    """Return a path as Kite writes it: two digits for parts of a date, values form-encoded."""
    padded = {"month", "day", "hour", "minute"}
    return "/".join(
        f"{name}={value:02d}"
        if name in padded
        else f"{name}={urllib.parse.quote_plus(str(value), safe='*-._').replace('~', '%7E')}"
        for name, value in levels
    )


def write_kite(
    home: Path,
    schemas: list[dict[str, Any]],
    expression: str | None,
    rows: Iterable[Mapping[str, Any]],
    place: Place = lambda _: (),
    codec: str = "snappy",
    properties: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Write a dataset; return the rows of each directory."""
    metadata = home / ".metadata"
    (metadata / "schemas").mkdir(parents=True)
    for number, schema in enumerate(schemas, 1):
        (metadata / "schemas" / f"{number}.avsc").write_text(json.dumps(schema, indent=2))
    (metadata / "schema.avsc").write_text(json.dumps(schemas[-1], indent=2))
    told = {
        "version": "1",
        "format": "avro",
        "compressionType": codec,
        "location": f"file\\:{home}",
    }
    if expression is not None:
        told["partitionExpression"] = expression.replace("=", "\\=").replace(":", "\\:")
    lines = [f"{key}={value}" for key, value in {**told, **(properties or {})}.items()]
    (metadata / "descriptor.properties").write_text("\n".join(["#Mon", *lines, ""]))
    by_directory: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_directory.setdefault(directory(place(row)), []).append(row)
    for path, held in by_directory.items():
        write_avro(home / path, schemas[-1], held, codec)
    return {path: len(held) for path, held in by_directory.items()}


def write_avro(
    folder: Path, schema: dict[str, Any], rows: list[Mapping[str, Any]], codec: str = "snappy"
) -> Path:
    """Write one file of it; beside it lies what a writer that died has left."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid.uuid4()}.avro"
    with path.open("wb") as sink:
        fastavro.writer(sink, fastavro.parse_schema(schema), rows, codec=codec)
    (folder / f".{uuid.uuid4()}.avro.tmp").write_bytes(b"half")
    return path


def to_expression(strategy: PartitionStrategy, schema: Schema) -> str:
    """Return a partition strategy as `descriptor.properties` has it."""
    calls = [_call_of(function, schema) for function in strategy]
    return calls[0] if len(calls) == 1 else f"[{', '.join(calls)}]"


def _call_of(function: PartitionFunction, schema: Schema) -> str:
    head = [function.source, function.name]
    parameters = function.parameters()
    match function.type_name:
        case "identity":
            return _call("identity", *head, _java_type(function, schema), -1)
        case "hash":
            return _call("hash", *head, parameters["buckets"])
        case "range":
            return _call("range", *head, *parameters["bounds"])
        case "fixed_range":
            return _call("fixedSizeRange", *head, parameters["size"])
        case "date_format":
            return _call("dateFormat", *head, parameters["format"])
        case "provided":
            return _call("provided", function.name, parameters.get("values", "string"))
    return _call(function.type_name, *head)  # a part of a date


_JAVA_TYPES = {
    Kind.BOOLEAN: "Boolean",
    Kind.INT: "Integer",
    Kind.LONG: "Long",
    Kind.FLOAT: "Float",
    Kind.DOUBLE: "Double",
}


def _java_type(function: PartitionFunction, schema: Schema) -> str:
    kind = function.source_type(schema)
    named = _JAVA_TYPES.get(kind.kind) if isinstance(kind, Primitive) else None
    return f"java.lang.{named or 'String'}"


def _call(name: str, *arguments: object) -> str:
    texts = [f'"{one}"' if isinstance(one, str) else str(one) for one in arguments]
    return f"{name}({', '.join(texts)})"


def to_properties(properties: Mapping[str, str]) -> str:
    """Return a file of Java's properties."""
    return "".join(f"{_escaped(key)}={_escaped(text)}\n" for key, text in properties.items())


def _escaped(text: str) -> str:
    named = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}
    return "".join(
        named.get(one)
        or (f"\\{one}" if one in "\\=:#! " else one if 32 <= ord(one) < 127 else _unicode(one))
        for one in text
    )


def _unicode(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
