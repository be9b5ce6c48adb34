"""What an object on storage says, whatever the versions of the libraries that wrote it."""

from __future__ import annotations

import io
import json
import re

import msgspec
import pyarrow.parquet as pq
import zstandard

from lakebed.model.arrow_types import field_ids_in, has_field_ids

_SIZES_IN_NAME = re.compile(r"([0-9]{10}-[0-9a-f]{32})-[0-9a-f]+-[0-9a-f]+-[0-9a-f]{32}(?=\.)")
# Of data files and segments, which hold what the library says of itself, as well compressed as it can.
_OF_THESE_BYTES = {"lakebed.hash", "lakebed.postings.groups"}
_SIZES = re.compile(r'"(size_bytes|checksum|lakebed\.digest)":("[^"]*"|[0-9]+)')

# Lengths of data files and manifests, in tables of other formats.
_DELTA_SIZES = re.compile(rb'"(size|sizeInBytes)":[0-9]+')
_DELTA_DIGEST = re.compile(rb'(?<=checkpoint_digest\\":\\")[0-9a-f]+')
_ICEBERG_SIZES = re.compile(r'"(file_size_in_bytes|manifest_length)": [0-9]+')


def decoded(key: str, data: bytes) -> str:
    """Return what an object says as text, without what depends on versions of libraries."""
    if key.endswith((".zst", ".zstd")):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    if key.endswith(".msgpack.zstd"):
        text = _json(msgspec.msgpack.decode(data))
    elif "/_delta_log/" in key and not key.endswith(".parquet"):
        text = _DELTA_DIGEST.sub(b"", _DELTA_SIZES.sub(rb'"\1":0', data)).decode()
    elif key.endswith("version-hint.text"):
        text = data.decode()
    elif key.endswith((".json", ".json.zst")) or "/signals/" in key:
        text = _json(msgspec.json.decode(data))
    elif key.endswith(".avro"):
        text = _records(data, is_manifest="/iceberg/" in key)
    elif key.endswith(".tsv.zst"):
        text = data.decode()
    else:
        text = _table(data)
    return name_without_sizes(_SIZES.sub(r'"\1":0', text))


def name_without_sizes(key: str) -> str:
    """Return a key, or a text with keys in it, without what index segments say of their bytes."""
    return _SIZES_IN_NAME.sub(r"\1", key)


def _json(document: object) -> str:
    if isinstance(document, dict) and "dataset_uuid" in document:
        # Side objects and the descriptor stand as text in it, which is JSON again.
        document["metadata"] = {
            name: json.loads(value) if value[:1] in ("{", "[") else value
            for name, value in document["metadata"].items()
        }
    if isinstance(document, dict):
        for one in document.get("restored", ()):
            one["current"] = dict(sorted(one["current"].items()))  # no order is promised
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _records(data: bytes, *, is_manifest: bool) -> str:
    import fastavro

    reader = fastavro.reader(io.BytesIO(data))
    # The library gives defaults of a schema in the order of a set.
    schema = reader.writer_schema
    text = json.dumps([schema, list(reader)], default=str, sort_keys=is_manifest)
    return _ICEBERG_SIZES.sub(r'"\1": 0', text)


def _table(data: bytes) -> str:
    file = pq.ParquetFile(io.BytesIO(data))
    table, groups = file.read(), file.metadata.num_row_groups
    codec = file.metadata.row_group(0).column(0).compression if groups else ""
    entries = {name.decode(): value for name, value in (table.schema.metadata or {}).items()}
    known = {
        name: entries[name].decode()
        for name in sorted(entries)
        if name.startswith("lakebed.") and name not in _OF_THESE_BYTES
    }
    for name in ("size_bytes", "checksum"):
        if name in table.column_names and "stats" in table.column_names:
            table = table.drop_columns([name])
    schema = [
        f"{field.name}: {field.type}{'' if field.nullable else ' not null'}"
        for field in table.schema
    ]
    ids = [json.dumps(field_ids_in(table.schema))] if has_field_ids(table.schema) else []
    rows = [json.dumps(row, default=str, ensure_ascii=False) for row in table.to_pylist()]
    return "\n".join([*schema, *ids, codec, json.dumps(known), *rows])
