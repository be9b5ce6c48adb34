"""A dataset of Kite, written by the rules of its source."""

import json
import urllib.parse
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import fastavro

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
