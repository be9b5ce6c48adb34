"""All that Lakebed parses, as functions of bytes. An input may raise the named errors, and no other.

A target whose objects are compressed gets what is in the frame, so that mutations reach what reads
it; frames are a target of their own.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import uuid
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from every_object import SCHEMA, lake_of, rows

import lakebed
from fuzz import worlds
from fuzz.worlds import Frozen, answered, frozen_lake, key_in, objects, small_repository
from lakebed.archive import query as archive_query
from lakebed.archive.metadata import FileMetadata
from lakebed.archive.notifications import ingest_message, ingest_url
from lakebed.archive.query import ArchiveQuery
from lakebed.archive.retraction import find_retraction, key_of_retraction
from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.reading.dialect import CsvOptions, JsonOptions
from lakebed.arrow.reading.files import FileFormat, RawFile
from lakebed.arrow.reading.sift import Job, census_of, sift
from lakebed.arrow.workers import Threads
from lakebed.common.ages import parse_age
from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.common.sizes import parse_size
from lakebed.index import file_homes, kartothek_file, segment
from lakebed.model.descriptor import DatasetDescriptor, read_schema
from lakebed.model.dimensions import DimensionSchema
from lakebed.model.formulas.storing import parse_term
from lakebed.model.keys import decode_path
from lakebed.model.kite_forms import parse_expression, parse_properties
from lakebed.model.locations import location_and_name, refuse_credentials
from lakebed.model.names import check_dataset_name, check_field_name, split_table
from lakebed.model.partition.strategy import PartitionStrategy
from lakebed.model.schema import Kind, Primitive
from lakebed.model.sql_heads import head_of
from lakebed.model.sql_predicates import parse_sql
from lakebed.model.uri import parse_constraints, parse_uri
from lakebed.pipeline.declaration import read_pipeline
from lakebed.sql.asking import tables_of, tree_of
from lakebed.state import file_table, history, published, runs, sources
from lakebed.state.head import HeadFormat, decode_head
from lakebed.state.reservation import BatchRecord, decode_record, encode_record
from lakebed.state.tree import folded_commits, leaf, tree_root
from lakebed.store.base import validate_key
from lakebed.store.locate import open_store
from lakebed.store.memory import MemoryStore
from lakebed.store.object_options import parse_url
from lakebed.store.segments import Segment, compress, decompress, unpack
from lakebed.tables.iceberg import commit_requests, homes
from lakebed.work import cleanup_log

Call = Callable[[bytes], object]
TYPES = dict(worlds.descriptor().predicate_types)


@dataclass(frozen=True)
class Target:
    """A parser under test.

    Attributes:
        name: Name, which is also that of its corpus.
        call: Function that parses an input. It may raise `LakebedError`.
        seeds: Function that returns inputs of the right form.
        words: Words of the language, which mutations insert.
        most: Limit for the length of inputs.
        share: Share of the mutations of `make test`, less for what reads whole datasets.
    """

    name: str
    call: Call
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[bytes, ...] = ()
    most: int = 4096
    share: float = 1.0


TARGETS: dict[str, Target] = {}


def target(
    name: str,
    seeds: Callable[[], Iterable[bytes]],
    words: str = "",
    most: int = 4096,
    share: float = 1.0,
) -> Callable[[Call], Call]:
    """Add a function to the table."""

    def add(call: Call) -> Call:
        TARGETS[name] = Target(name, call, seeds, tuple(words.encode().split()), most, share)
        return call

    return add


def text_of(data: bytes) -> str:
    """Return the text of an argument of the command line, which may hold surrogates."""
    return data.decode("utf-8", "surrogateescape")


def texts(*given: str) -> Callable[[], Iterable[bytes]]:
    """Return seeds of texts."""
    return lambda: [one.encode() for one in given]


def unpacked(*found: bytes) -> list[bytes]:
    """Return the contents of frames."""
    return [zstandard.ZstdDecompressor().decompressobj().decompress(one) for one in found]


def _packed(data: bytes) -> bytes:
    return compress(data, level=1)


def _replaced(kind: str, key: str, data: bytes) -> lakebed.Repository:
    return lakebed.Repository(Frozen(frozen_lake(kind), {key: data}))


def _use(repository: lakebed.Repository) -> None:
    """Read a dataset in the usual ways."""
    dataset = repository["d"]
    dataset.files()
    dataset.where("n > 20 AND p = 'b'").count()
    dataset.where("n = 200").plan()
    dataset.history()
    dataset.protections.list()
    dataset.staged.list()


# Heads


@target("head-json", lambda: objects("document", "d.by-dataset"), most=20_000, share=0.1)
def _head_json(data: bytes) -> None:
    decode_head(data, HeadFormat.JSON, "d.by-dataset-metadata.json")
    _use(_replaced("document", "d.by-dataset-metadata.json", data))


@target(
    "head-msgpack", lambda: unpacked(*objects("packed", "d.by-dataset")), most=20_000, share=0.1
)
def _head_msgpack(data: bytes) -> None:
    key = "d.by-dataset-metadata.msgpack.zstd"
    decode_head(_packed(data), HeadFormat.MSGPACK, key)
    _use(_replaced("packed", key, _packed(data)))


@target("head-tree", lambda: unpacked(*objects("tree", "d.by-dataset")), most=20_000, share=0.1)
def _head_tree(data: bytes) -> None:
    key = "d.by-dataset-metadata.msgpack.zstd"
    decode_head(_packed(data), HeadFormat.MSGPACK, key)
    _use(_replaced("tree", key, _packed(data)))


@target(
    "head-kartothek",
    lambda: unpacked(*objects("document", "d-kartothek.by-dataset")),
    most=20_000,
    share=0.3,
)
def _head_kartothek(data: bytes) -> None:
    """Read the head of another tool; the entry that names Lakebed is left out."""
    key = "d-kartothek.by-dataset-metadata.msgpack.zstd"
    data = data.replace(b"lakebed.published", b"other.published__")
    _replaced("document", key, _packed(data))["d-kartothek"].files()


def _roots() -> list[bytes]:
    found = unpacked(*objects("tree", "d.by-dataset"))
    return [msgspec.msgpack.encode(msgspec.msgpack.decode(one)["tree"]) for one in found]


@target("tree-root", _roots, most=16_000)
def _tree_root(data: bytes) -> None:
    root = tree_root.decode(data, "k")
    for _ in root.refs:
        pass
    root.held_files(_order(), "k")
    root.check_balance()


@cache
def _order() -> Any:
    from tree_world import ORDER

    return ORDER


# Leaves, and copies of the head


def _leaves(part: int) -> list[bytes]:
    dataset = lakebed.Repository(frozen_lake("tree"))["d"]
    state = dataset._source.load().state
    found = []
    for ref in state.tree.refs if hasattr(state, "tree") else _refs():
        data = lake_of("tree").now[ref.key("d")]
        start = sum(ref.lengths[:part])
        found.append(data[start : start + ref.lengths[part]])
    return found


def _refs() -> Iterable[Any]:
    return [ref for one in _roots() for ref in tree_root.decode(one, "k").refs]


@target("leaf-partitions", lambda: unpacked(*_leaves(0)))
def _leaf_partitions(data: bytes) -> None:
    leaf.decode_partitions(_packed(data), "k")


_PARTS = 6


def _exploded_leaves() -> list[bytes]:
    """Return the sections of files of leaves, with the parts unpacked and their lengths before them."""
    found = []
    for data in _leaves(1):
        count, *lengths = leaf._HEADER.unpack_from(data)
        start, parts = leaf._HEADER.size, []
        for length in lengths:
            parts += unpacked(data[start : start + length])
            start += length
        head = leaf._HEADER.pack(count, *map(len, parts))
        found.append(head + b"".join(parts) + data[start:])
    return found


@target("leaf-files", _exploded_leaves)
def _leaf_files(data: bytes) -> None:
    if len(data) >= leaf._HEADER.size:
        count, *lengths = leaf._HEADER.unpack_from(data)
        start, parts = leaf._HEADER.size, []
        for length in lengths:
            parts.append(_packed(data[start : start + min(length, len(data))]))
            start += length
        data = leaf._HEADER.pack(count, *map(len, parts)) + b"".join(parts) + data[start:]
    leaf.decode_files(data, "k")


@target("leaf-files-frames", lambda: _leaves(1))
def _leaf_files_frames(data: bytes) -> None:
    leaf.decode_files(data, "k")


@target("leaf-facts", lambda: _leaves(2), most=16_000)
def _leaf_facts(data: bytes) -> None:
    leaf.decode_facts(data, 3, "k")


@target("tree-copy", lambda: unpacked(*objects("tree", "d/roots/")), most=16_000, share=0.05)
def _tree_copy(data: bytes) -> None:
    key = key_in("tree", "d/roots/")
    dataset = _replaced("tree", key, _packed(data))["d"]
    for version in (2, 5, 8):
        with contextlib.suppress(lakebed.errors.LakebedError):
            dataset.at(version=version).count()


@target("tree-history", lambda: unpacked(*objects("tree", "d/history/", ".msgpack.zst")))
def _tree_history(data: bytes) -> None:
    folded_commits.decode_found(_packed(data), "k")


# Segments


@target("frame", lambda: [_packed(b"x" * 1000), *objects("document", "d/runs/")])
def _frame(data: bytes) -> None:
    unpack(data, dict, "It", "hint")
    with contextlib.suppress(zstandard.ZstdError):
        decompress(data, 2**16)


@target("history", lambda: unpacked(*objects("document", "d/history/")))
def _history(data: bytes) -> None:
    history.decode(_packed(data), "d/history/x.json.zst")
    history.decode(data, "d/history/x.json")


@target("runs", lambda: unpacked(*objects("document", "d/runs/")))
def _runs(data: bytes) -> None:
    found = runs.decode(_packed(data), "k")
    found.files_of("first", ["p=a/batch_id=1/part-x"])


@target("sources", lambda: unpacked(*objects("document", "d/sources/")))
def _sources(data: bytes) -> None:
    key = key_in("document", "d/sources/")
    store = Frozen(frozen_lake(), {key: _packed(data)})
    found = Segment.parse(key, "d")
    with contextlib.suppress(lakebed.errors.LakebedError):
        sources.read(store, [found])
    part = sources._marked(store, found)
    everything = sources.Sought(
        starts=frozenset(), file_ids=frozenset(), labels=frozenset(part.marked.runs)
    )
    sources.read_sought(store, [found], everything)


def _with_hash(data: bytes) -> bytes:
    """Return a segment of the file table without its hash, as early releases wrote it."""
    return data.replace(b"lakebed.hash", b"lakebed.hush")


@target(
    "file-table", lambda: map(_with_hash, objects("document", "d/files/")), most=16_000, share=0.2
)
def _file_table(data: bytes) -> None:
    table = file_table.decode(data, "d/files/x.parquet")
    file_table.joined([table, table])
    key = key_in("document", "d/files/")
    store = Frozen(frozen_lake(), {key: data})
    lakebed.Repository(store)["d"].where("n > 20 AND text = 'x'").count()


@target("cleanup-log", lambda: unpacked(*objects("document", "d/cleanups/")), share=0.5)
def _cleanup_log(data: bytes) -> None:
    key = key_in("document", "d/cleanups/")
    store = Frozen(frozen_lake(), {key: _packed(data)})
    logs = cleanup_log.logs_in(store.list("d/"), "d")
    cleanup_log.observation_before(store, logs, logs[0].modified_at)


def _postings() -> list[bytes]:
    return objects("document", "d/postings/n/") + objects("tree", "d/postings/n/")


@target("postings", _postings, most=16_000, share=0.5)
def _postings_segment(data: bytes) -> None:
    """Read a segment whose hashes of the name are right."""
    tail = data[4:]
    for has_homes in (False, True):
        end = "-3" if has_homes else ""
        name = f"{0:010d}-{'0' * 32}-{len(data):x}-{len(tail):x}-{segment._hash(tail).hex()}{end}"
        key = f"d/postings/n/{name}.parquet"
        store = MemoryStore(uuid.uuid4().hex)
        store.put(key, data)
        with contextlib.suppress(lakebed.errors.CorruptMetadataError):
            footer, _ = segment.open_segment(store, Segment.parse(key, "d"))
            segment.file_ids_of(store, footer)
            segment.read_groups(store, footer, range(footer.groups.num_rows))


@target("postings-homes", lambda: unpacked(*file_homes.encode(_ids(), ["p=a", "p=b", "p=a"])))
def _postings_homes(data: bytes) -> None:
    with contextlib.suppress(*file_homes.ERRORS):
        file_homes.decode(_packed(data), 3)


def _ids() -> Any:
    import numpy as np

    return np.array([2, 4, 6])


@target("index-file", lambda: objects("document", "d/indices/"), most=16_000)
def _index_file(data: bytes) -> None:
    kartothek_file._decode(data, "n", "k", pa.int64())


@target("schema-file", lambda: objects("document", "d/data/_common_metadata"), most=16_000)
def _schema_file(data: bytes) -> None:
    _replaced("document", "d/data/_common_metadata", data)["d-kartothek"]
    _as_other_tool(data)


def _as_other_tool(data: bytes) -> None:
    from lakebed.state.kartothek import _read_schema

    store = MemoryStore(uuid.uuid4().hex)
    store.put("x", data)
    _read_schema(store, "x")


# Notes


@target("manifest", lambda: objects("document", "d/batches/"), share=0.2)
def _manifest(data: bytes) -> None:
    key = key_in("document", "d/batches/")
    sealed = data
    with contextlib.suppress(*UNREADABLE):  # with its checksum put right, more of it is looked at
        record = from_json(data, BatchRecord)
        sealed = encode_record(msgspec.structs.replace(record, checksum=None))
    decode_record(sealed, key)
    repository = _replaced("document", key, sealed)
    repository["d"].staged.list()
    repository["d"].check()


@target("published-note", lambda: objects("document", "d/published/"), share=0.1)
def _published_note(data: bytes) -> None:
    for name in ("delta", "iceberg", "kartothek", "lake.t"):
        store = Frozen(frozen_lake(), {f"d/published/{name}.json": data})
        list(published.read_each(store, "d"))
    key = key_in("document", "d/published/")
    _replaced("document", key, data)["d"].cleanup("0s", published="noted")


@target("signal", lambda: objects("document", "d/signals/"), share=0.3)
def _signal(data: bytes) -> None:
    repository = _replaced("document", key_in("document", "d/signals/"), data)
    repository["d"].where("p = 'a'").kite.ready_at()


@target("republication", lambda: [b'{"note":{},"root":null,"hide_batch_id":true}'])
def _republication(data: bytes) -> None:
    from lakebed.tables.erased_tables import _find

    _find(Frozen(frozen_lake(), {"d/erasures/republish-delta.json": data}), "d", "delta")


@target("run-log", lambda: [json.dumps(_RUN).encode()])
def _run_log(data: bytes) -> None:
    from lakebed.work.pipeline_runs import list_entries, read_entries

    store = MemoryStore(uuid.uuid4().hex)
    store.put("_lakebed.runs/d/run=a/20260301T000000.000000Z-0123456789abcdef.ok.json", data)
    list(read_entries(store, list_entries(store)))


_RUN: dict[str, Any] = {
    "pipeline": "sales",
    "dataset": "d",
    "run": "a",
    "began_at": "2026-03-01T00:00:00Z",
    "ended_at": "2026-03-01T00:00:01Z",
    "exit_code": 0,
    "steps": [],
}


_EXPORT = (
    b'{"version":1,"levels":["day"],"named":1,"places":{"day=a":{"lines":1,"digest":"00",'
    b'"files":{"day=a/x.json":5}}},"claimed_by":"ab","pending":{"id":"0a","places":{}}}'
)


@target("export-note", lambda: [_EXPORT])
def _export_note(data: bytes) -> None:
    from lakebed.tables.trees.exported import _read

    _read(data, MemoryStore(uuid.uuid4().hex))


@target("conditions-note", lambda: [b'{"kept":["If-Match"],"tried_at":"2026-03-01T00:00:00Z"}'])
def _conditions_note(data: bytes) -> None:
    import datetime as dt

    from lakebed.store.base import StoredObject
    from lakebed.store.conditions import ConditionsNote

    note = StoredObject(key="x", data=data, etag="e", modified_at=dt.datetime.now(dt.UTC))
    ConditionsNote(key="x").is_believed(note)


# Tables of other formats


@target("delta-commit", lambda: objects("document", "d/data/_delta_log/", ".json"))
def _delta_commit(data: bytes) -> None:
    from lakebed.tables.delta.log import _commit, _lines, checkpoint_in

    checkpoint_in(data)
    for line in data.splitlines():
        _commit(0, line)
    key = key_in("document", "d/data/_delta_log/")
    list(_lines(Frozen(frozen_lake(), {key: data}), key))


def _checkpoints() -> list[bytes]:
    schema = pa.schema(
        [
            ("metaData", pa.struct([("configuration", pa.map_(pa.string(), pa.string()))])),
            ("protocol", pa.struct([("minReaderVersion", pa.int32())])),
            ("add", pa.struct([("path", pa.string())])),
        ]
    )
    sink = io.BytesIO()
    given = [
        {"metaData": {"configuration": [("a", "b")]}},
        {"protocol": {"minReaderVersion": 1}},
        {"add": {"path": "p=a/part-0.parquet"}},
    ]
    pq.write_table(pa.Table.from_pylist(given, schema), sink)
    return [sink.getvalue()]


@target("delta-checkpoint", _checkpoints)
def _delta_checkpoint(data: bytes) -> None:
    from lakebed.tables.delta.log import _checkpoint

    list(_checkpoint(Frozen(frozen_lake(), {"x.parquet": data}), "x.parquet"))


@target("iceberg-metadata", lambda: objects("document", "d/iceberg/metadata/", ".json"))
def _iceberg_metadata(data: bytes) -> None:
    homes.named_lists(data, "k")


@target(
    "iceberg-lists",
    lambda: objects("document", "d/iceberg/metadata/", ".avro"),
    most=16_000,
    share=0.5,
)
def _iceberg_lists(data: bytes) -> None:
    key = key_in("document", "d/iceberg/metadata/", ".avro")
    homes.named_manifests(Frozen(frozen_lake(), {key: data}), key)


@target("iceberg-uploads", lambda: objects("document", "d/iceberg/metadata/", ".avro"))
def _iceberg_uploads(data: bytes) -> None:
    from lakebed.tables.iceberg.uploaded_files import ClientFiles

    reader = object.__new__(ClientFiles)
    reader._store = Frozen(frozen_lake(), {"up.avro": data})
    list(reader._records("up.avro", "up.avro", "manifest", 10**6))


# Data files and raw files


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFile(RawFile):
    """A raw file in memory."""

    content: bytes = b""

    def open_raw(self) -> pa.NativeFile:
        return pa.BufferReader(self.content)


def _load(
    data: bytes,
    format: FileFormat,  # noqa: A002 - the word of the option
    name: str,
    csv: CsvOptions = CsvOptions(),  # noqa: B008 - frozen
    given: DatasetDescriptor | None = None,
) -> None:
    """Sift a raw file, take a census of it, and read it under each rule for unknown fields."""
    file = HeldFile(location=name, size_bytes=len(data), content=data)
    descriptor = given or worlds.descriptor()
    for unknown in ("reject", "ignore"):
        job = Job(
            target=BatchTarget(dataset="d", batch_id=1, descriptor=descriptor),
            format=format,
            csv=csv,
            json=JsonOptions(),
            unknown=unknown,  # type: ignore[arg-type]  # each of them is one
            rejects_files=True,
        )
        sift(MemoryStore(uuid.uuid4().hex), job, [file])
    census_of(Threads(1), [file], format, descriptor, csv)


_JSON_LINE = {
    "s": "é",
    "n": 5,
    "x": 0.5,
    "f": 1e3,
    "b": True,
    "raw": "AAEC",
    "day": "2013-01-01",
    "at": "2013-01-01T10:00:00Z",
    "local": "2013-01-01T10:00:00",
    "fare": "12.25",
    "items": [1, None],
    "seen": {"lat": 0.5, "who": "me"},
    "by_name": {"a": 1},
    "more": {"deep": [{}]},
}


@target(
    "raw-json",
    lambda: [f"{json.dumps(_JSON_LINE)}\n\n{{}}\n".encode()],
    'null true 1e999 " \\u',
    share=0.05,
)
def _raw_json(data: bytes) -> None:
    _load(data, "json", "a.jsonl")


_FLAT = [
    ("s", pa.string()),
    ("n", pa.int64()),
    ("x", pa.float64()),
    ("b", pa.bool_()),
    ("day", pa.date32()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("fare", pa.decimal128(9, 2)),
]


@target(
    "raw-csv",
    texts(
        ',\ns,n,x,b,day,at,fare\n"a ""b""",1,0.5,true,2013-01-01,2013-01-01T10:00:00Z,1.25\n,,,,,,\n',
        ';NA\ns;n\nNA;7\n"x\ny";8\n',
    ),
    '" "" , ; NA true 2013-01-01',
    share=0.05,
)
def _raw_csv(data: bytes) -> None:
    """Read a CSV file; its first line has the delimiter and the text of nulls."""
    options, _, rest = data.partition(b"\n")
    notation = text_of(options)
    csv = CsvOptions(
        delimiter=notation[:1], null_text=notation[1:], has_header=b"\0" not in options
    )
    _load(rest, "csv", "a.csv", csv, worlds.descriptor(_FLAT))


def _submission_descriptor() -> DatasetDescriptor:
    fields = [("uuid", pa.string()), ("document", pa.string()), ("reason", pa.string())]
    return DatasetDescriptor(schema=pa.schema([*fields, ("n", pa.int64())]), format="submissions")


@target("raw-submissions", lambda: [b'u1\t{"reason":"idle","n":3}\nu2\t{}\n'], share=0.05)
def _raw_submissions(data: bytes) -> None:
    _load(data, "submissions", "a.tsv", given=_submission_descriptor())


def _compressions() -> list[bytes]:
    import gzip
    import lzma

    line = f"{json.dumps(_JSON_LINE)}\n".encode()
    lz4 = pa.BufferOutputStream()
    with pa.CompressedOutputStream(lz4, "lz4") as out:
        out.write(line)
    return [
        b"0" + gzip.compress(line),
        b"1" + lzma.compress(line),
        b"2" + _packed(line),
        b"3" + lz4.getvalue().to_pybytes(),
        b"4" + __import__("bz2").compress(line),
    ]


@target("raw-compressed", _compressions, share=0.05)
def _raw_compressed(data: bytes) -> None:
    suffix = ["gz", "xz", "zst", "lz4", "bz2"][data[0] % 5 if data else 0]
    _load(data[1:], "json", f"a.jsonl.{suffix}")


def _avro_files() -> list[bytes]:
    import fastavro

    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "s", "type": ["null", "string"]},
            {"name": "n", "type": "long"},
            {"name": "items", "type": {"type": "array", "items": "long"}},
            {"name": "by_name", "type": {"type": "map", "values": "long"}},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {
                "name": "fare",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        ],
    }
    import datetime as dt
    import decimal

    record = {
        "s": "a",
        "n": 4,
        "items": [1],
        "by_name": {"a": 1},
        "at": dt.datetime(2013, 1, 1, tzinfo=dt.UTC),
        "fare": decimal.Decimal("1.25"),
    }
    found = []
    for codec in ("null", "deflate", "snappy", "zstandard", "bzip2", "xz"):
        sink = io.BytesIO()
        fastavro.writer(sink, schema, [record, record], codec=codec)
        found.append(sink.getvalue())
    return found


@target(
    "raw-avro",
    _avro_files,
    "null string long record array map enum fixed union",
    most=2048,
    share=0.05,
)
def _raw_avro(data: bytes) -> None:
    _load(data, "avro", "a.avro")


@target(
    "data-avro",
    _avro_files,
    "null string long record array map enum fixed union",
    most=2048,
    share=0.3,
)
def _data_avro(data: bytes) -> None:
    from lakebed.arrow.formats.avro_files import AvroReader

    wanted = worlds.descriptor(
        [("s", pa.string()), ("n", pa.int64()), ("items", pa.list_(pa.int64()))]
    )
    reader = AvroReader()
    for read in (
        lambda: reader.header(pa.BufferReader(data)),
        lambda: reader.count(pa.BufferReader(data)),
        lambda: list(reader.batches(pa.BufferReader(data), wanted.file_schema)),
    ):
        with contextlib.suppress(lakebed.errors.LakebedError, pa.ArrowException, OSError):
            read()


@target(
    "data-submissions",
    lambda: [b'u1\t{"reason":"idle","n":3}\nu2\t{}\n', *_lines_packed()],
    share=0.5,
)
def _data_submissions(data: bytes) -> None:
    from lakebed.arrow.formats.submissions import SubmissionsReader

    reader, wanted = SubmissionsReader(), _submission_descriptor().file_schema
    with contextlib.suppress(lakebed.errors.LakebedError, pa.ArrowException, OSError):
        reader.count(pa.BufferReader(data))
    list(reader.batches(pa.BufferReader(data), wanted))


def _lines_packed() -> list[bytes]:
    return [_packed(b'u1\t{"reason":"idle","n":3}\n')]


def _parquet_files() -> list[bytes]:
    found = []
    for rows_of_group in (2, 100):
        sink = io.BytesIO()
        table = pa.Table.from_pylist(rows(0, 6), SCHEMA)
        pq.write_table(table, sink, row_group_size=rows_of_group, write_page_checksum=True)
        found.append(sink.getvalue())
    return found


@target("raw-parquet", _parquet_files, most=8192, share=0.1)
def _raw_parquet(data: bytes) -> None:
    _load(data, "parquet", "a.parquet", given=DatasetDescriptor(schema=SCHEMA))


@target(
    "data-parquet", lambda: objects("document", "d/data/p=a/", ".parquet"), most=8192, share=0.05
)
def _data_parquet(data: bytes) -> None:
    repository = _replaced("document", key_in("document", "d/data/p=a/", ".parquet"), data)
    repository["d"].where("p = 'a'").arrow()


# The archive


def _event(key: str = f"{worlds.FILE_ID}/data", name: str = "ObjectCreated:Put") -> str:
    record = {
        "eventVersion": "2.1",
        "eventName": name,
        "s3": {"bucket": {"name": "lake"}, "object": {"key": key}},
    }
    return json.dumps({"Records": [record]})


@target(
    "archive-notification",
    texts(
        _event(),
        _event(name="ObjectRemoved:Delete"),
        json.dumps({"Message": _event("../x/data")}),
        '{"Event": "s3:TestEvent"}',
    ),
    "Records eventVersion eventName s3 bucket object key name ../ %2e%2e ObjectRemoved:Delete",
)
def _archive_notification(data: bytes) -> None:
    archive = worlds.bucket_archive()._on_dry_run()
    for message in (data, text_of(data)):
        ingest_message(archive, message)
    ingest_url(archive, text_of(data))


@target("archive-metadata", lambda: [json.dumps(worlds.METADATA).encode()])
def _archive_metadata(data: bytes) -> None:
    with contextlib.suppress(lakebed.errors.LakebedError):
        FileMetadata.from_json(data).to_json()
    metadata = FileMetadata.from_json(text_of(data))
    metadata.to_json()
    hash(metadata)


@target("archive-retraction", lambda: [b'{"reason":"x","retracted_at":"2026-03-01T00:00:00Z"}'])
def _archive_retraction(data: bytes) -> None:
    store = Frozen(frozen_lake(), {key_of_retraction("x"): data})
    find_retraction(store, "x")


_QUERY = ArchiveQuery.of("syslog", start=worlds.T0, end=worlds.T0 + 1000)


@target(
    "archive-cursor",
    lambda: [archive_query.encode_cursor(_QUERY, "sqlite", (5, "x")).encode()],
)
def _archive_cursor(data: bytes) -> None:
    archive_query.decode_cursor(_QUERY, "sqlite", text_of(data))


@target("archive-cursor-content", lambda: [json.dumps([_QUERY.digest("sqlite"), 5, "x"]).encode()])
def _archive_cursor_content(data: bytes) -> None:
    cursor = base64.urlsafe_b64encode(data).decode().rstrip("=")
    archive = worlds.archive()
    archive.page("syslog", start=worlds.T0, end=worlds.T0 + 1000, cursor=cursor)


@target("archive-key", texts("0a/data", "2-nyc/syslog/1430092800000/0a-x.txt", "s3://lake/a/data"))
def _archive_key(data: bytes) -> None:
    from lakebed.archive.file_keys import check_file_id, file_id_of, ids_in
    from lakebed.archive.kept_files import find_record, key_of

    text = text_of(data)
    file_id_of(text)
    list(ids_in(text))
    store = worlds.bucket_archive().store
    for ask in (check_file_id, lambda one: key_of(store, one), lambda one: find_record(store, one)):
        with contextlib.suppress(lakebed.errors.LakebedError):
            ask(text)


@target("archive-time", texts("2015-03-20", "Fri Mar 20 2015", "1426809600000", "now", "7d"))
def _archive_time(data: bytes) -> None:
    ArchiveQuery.of("syslog", start=text_of(data), end="now")


# Addresses and names


@target(
    "uri",
    texts(
        "view:s3://bucket/lake/flights?s=UA,B6&at=[2013-06-01T00:00:00Z,)&n=in()",
        "dataset:/data/lake/flights?@version=3",
        "repo:file:lake",
        "view:x/y?raw=BmFiYw&@where=n%3E5&x=exists()&fare=(1.5,2.5]&day=[,2013-01-01]",
    ),
    "view: dataset: repo: @where= @version= exists() in() [ ) , & %00 %ff ../ s3:// user:pass@",
)
def _uri(data: bytes) -> None:
    address = parse_uri(text_of(data))
    parse_constraints(address.constraints, TYPES)


@target(
    "location",
    texts("s3://bucket/a/b", "az://c/x", "hdfs://nn:8020/x", "file:///tmp/x", "memory://x", "a:b"),
    "s3:// gs:// az:// hdfs:// file:// memory:// .. @ : ? # % //",
    share=0.2,
)
def _location(data: bytes) -> None:
    text = text_of(data)
    for read in (
        refuse_credentials,
        location_and_name,
        parse_url,
        split_table,
        check_dataset_name,
        check_field_name,
        validate_key,
        lambda one: decode_path(one, {"p": Primitive(Kind.STRING), "n": Primitive(Kind.LONG)}),
    ):
        with contextlib.suppress(lakebed.errors.LakebedError):
            read(text)
    if text.startswith(("s3:", "gs:", "az:", "hdfs:")):
        return  # clients of services make directories and threads
    open_store(text)


@target("path-level", texts("p=a/n=5", "p=__HIVE_DEFAULT_PARTITION__/n=-1", "p=%5F%2F/n=007"))
def _path_level(data: bytes) -> None:
    text = text_of(data)
    for kind in Kind:
        with contextlib.suppress(lakebed.errors.LakebedError):
            decode_path(text, {"p": Primitive(kind), "n": Primitive(Kind.LONG)})


@target(
    "option", texts("7d", "128MB", "a=b,c=d", '{"s3://x": {"key": "v"}}', "dt date, `a b` long")
)
def _option(data: bytes) -> None:
    from lakebed.model.declared import parse_within
    from lakebed.model.names import split_names
    from lakebed.model.publishing import TableName
    from lakebed.store.configured import _of_variable
    from lakebed.work.adoption import _parse_keys

    text = text_of(data)
    for read in (
        parse_age,
        parse_size,
        parse_within,
        split_names,
        TableName.parse,
        _of_variable,
        lambda one: _parse_keys(one, "batchid"),
    ):
        with contextlib.suppress(lakebed.errors.LakebedError):
            read(text)


# Conditions and statements

_SQL_WORDS = (
    "AND OR NOT IN BETWEEN IS NULL LIKE ILIKE DATE TIMESTAMP INTERVAL ' \" ` ( ) , = < >= <=> X'00' "
    "1e400 :a ? now() startswith upper lower CAST CASE WHEN THEN END -- /* */ \\ 0x10 || s n x day at"
)


@target(
    "predicate",
    texts(
        "s = 'UA' AND n IN (1, 2) OR NOT x BETWEEN 1 AND 2.5",
        "day >= DATE '2013-01-01' AND at < now() - INTERVAL 2 DAYS AND raw = X'00ff'",
        "s LIKE 'a%\\_' AND startswith(s, 'x') AND upper(s) = 'Y' AND seen.lat IS NOT NULL",
        "fare <=> 1.25 AND n = ? AND s = :name AND b",
        "NOT ((((n > 1))))",
    ),
    _SQL_WORDS,
    most=1024,
    share=0.5,
)
def _predicate(data: bytes) -> None:
    predicate = parse_sql(text_of(data), TYPES)
    assert str(parse_sql(str(predicate), TYPES)) == str(predicate)


@target(
    "term",
    texts("n + 1", "coalesce(s, 'x')", "CASE WHEN n > 1 THEN 'a' ELSE s END", "CAST(x AS INT)"),
    _SQL_WORDS,
    most=1024,
    share=0.3,
)
def _term(data: bytes) -> None:
    for name in ("s", "n", "x", "day", "fare"):
        with contextlib.suppress(lakebed.errors.LakebedError):
            parse_term(text_of(data), TYPES, TYPES[name], name)


@target(
    "sql",
    texts(
        "MERGE INTO flights AS t USING (SELECT 1 AS n) AS s ON t.n = s.n WHEN MATCHED THEN DELETE",
        "UPDATE flights SET n = n + 1 WHERE text LIKE 'a%'",
        "DELETE FROM flights WHERE n IN (1, 2)",
        "INSERT INTO flights (n, p) VALUES (1, 'a')",
        "CREATE TABLE IF NOT EXISTS t (a INT NOT NULL, b DECIMAL(9, 2)) PARTITIONED BY (a)",
        "ALTER TABLE flights ADD COLUMN z STRING",
        "OPTIMIZE flights WHERE p = 'a' ZORDER BY (n)",
        "VACUUM flights RETAIN 1 HOURS DRY RUN",
        "RESTORE TABLE flights TO VERSION AS OF 1",
        "SHOW PARTITIONS flights",
        "DESCRIBE HISTORY flights LIMIT 2",
        "SELECT p, count(*) FROM flights GROUP BY p",
        "DROP TABLE IF EXISTS flights",
        "TRUNCATE TABLE flights",
        "FROM flights SELECT n LIMIT 1",
    ),
    _SQL_WORDS + " MERGE INTO USING ON MATCHED UPDATE SET DELETE INSERT VALUES CREATE TABLE ALTER "
    "OPTIMIZE VACUUM RESTORE SHOW DESCRIBE HISTORY SELECT FROM VERSION AS OF flights COPY TO read_csv",
    most=1024,
    share=0.2,
)
def _sql(data: bytes) -> None:
    """Run a statement that changes something as a dry run; of a query, only parse it."""
    text = text_of(data)
    if head_of(text) is None:
        tables_of(tree_of(text))
        return
    small_repository().sql(text, dry_run=True, write=True)


# HTTP doors

_CATALOG = "/v1/lake/namespaces/lake/tables/d"
_FILTER = {
    "filter": {
        "type": "and",
        "left": {"type": "in", "term": "n", "values": [1, 2]},
        "right": {"type": "not", "child": {"type": "starts-with", "term": "text", "value": "a"}},
    },
    "select": ["n"],
    "case-sensitive": False,
}
_COMMIT = {
    "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1}],
    "updates": [
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": 5,
                "parent-snapshot-id": 1,
                "manifest-list": "s3://lake/d/iceberg/metadata/x.avro",
                "summary": {"operation": "append"},
            },
        },
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5},
    ],
}


@target("rest-commit", lambda: [json.dumps(_COMMIT).encode()])
def _rest_commit(data: bytes) -> None:
    commit_requests.parse(data)


@target("rest-filter", lambda: [json.dumps(_FILTER["filter"]).encode()])
def _rest_filter(data: bytes) -> None:
    from lakebed.tables.iceberg.pushed_filters import columns_in, translate

    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    list(columns_in(document))
    translate(document, TYPES)
    translate(document, TYPES, ignores_case=True)


def _requests() -> list[bytes]:
    plan = json.dumps(_FILTER).encode()
    writer = b"authorization: Bearer " + b"w" * 20
    return [
        b"GET /",
        b"GET /v1/config",
        b"GET /v1/lake/namespaces?pageToken=&pageSize=2",
        f"GET {_CATALOG}".encode(),
        f"HEAD {_CATALOG}".encode(),
        f"POST {_CATALOG}/plan\ncontent-type: application/json\n\n".encode() + plan,
        f'POST {_CATALOG}/tasks\n\n{{"plan-task":"abc"}}'.encode(),
        f"POST {_CATALOG}\n".encode() + writer + b"\n\n" + json.dumps(_COMMIT).encode(),
    ]


_HTTP_WORDS = (
    "GET HEAD POST %00 %2e%2e %2F .. ? & = + accept: range: bytes=0-5 host: if-none-match:"
)


@target("http-catalog", _requests, _HTTP_WORDS, most=2048, share=0.2)
def _http_catalog(data: bytes) -> None:
    _check_answer(worlds.pages(), data)


@target(
    "http-pages",
    lambda: [
        b"GET /datasets/d",
        b"GET /datasets/d/rows?where=n%20%3E%205&sort=n&order=desc&rows=20&columns=n,p&version=3",
        b"GET /datasets/d/plan?where=p%20=%20%27a%27",
        b"GET /datasets/d/compare?from_=2&to=5&where=n%3E1",
        b"GET /datasets/d/download?kind=csv&where=n=5",
        b"GET /datasets/d/file?key=d/data/p=a/x.parquet",
        b"GET /datasets/d/runs?sort=name&page=1",
        b"GET /runs",
        b"GET /archive?what=syslog&start=2015-03-20&end=now&cursor=",
    ],
    _HTTP_WORDS,
    most=1024,
    share=0.1,
)
def _http_pages(data: bytes) -> None:
    _check_answer(worlds.pages(), data)


@target(
    "http-archive",
    lambda: [
        b"GET /v0/archive/files/?what=syslog&start=1426809600000&end=now&cursor=",
        f"GET /v0/archive/files/{worlds.FILE_ID}/data\nrange: bytes=0-2".encode(),
        f"GET /v0/archive/files/{worlds.FILE_ID}/metadata".encode(),
        b"GET /v0/archive/latest/syslog/nyc?lookback=3",
        b"GET /v0/environment/",
        b"GET /spec/",
        b"GET /archive/contents/x",
    ],
    _HTTP_WORDS,
    most=1024,
    share=0.2,
)
def _http_archive(data: bytes) -> None:
    _check_answer(worlds.pages(), data)


def _check_answer(app: Any, data: bytes) -> None:
    status, body = answered(app, data)
    assert status < 500 or status == 503, body[:500]
    assert b"Traceback" not in body, body[:500]


# Declarations

_TOML = """\
name = "sales"
max_age = "7d"

[source]
paths = "raw/*.csv"
format = "csv"
[source.csv]
delimiter = ";"

[dataset]
into = "lake/sales"
partition_by = "date(at) as dt, carrier"
index = ["carrier"]

[dataset.schema]
type = "record"
name = "sale"
fields = [
  { name = "at", type = { type = "long", logicalType = "timestamp-micros" } },
  { name = "carrier", type = "string" },
]

[ingest]
start = 2024-01-01
max_rejects = 0.1
provided = { region = "eu" }

[checks.few]
kind = "row_count"
min = 1

[layout]
target_size = "128MB"

[retention]
keep = "90d"
by = "dt"

[publish]
delta = true
hive = "lake.sales"

[cleanup]
older_than = "7d"
"""


@target(
    "pipeline",
    texts(_TOML),
    '[dataset] [ingest] [checks.a] [layout] [retention] [publish] [cleanup] = " \'\'\' """ [[ ]] { }',
)
def _pipeline(data: bytes) -> None:
    read_pipeline(text_of(data) + "\n")


_DIMENSIONS = {
    "version": 1,
    "dimensions": [
        {"field_name": "reason", "allowed_values": ["idle", "saved"]},
        {"field_name": "build", "allowed_values": {"min": "1", "max": "9"}},
        {"field_name": "channel", "allowed_values": "*"},
    ],
}


@target(
    "dimensions",
    lambda: [json.dumps(_DIMENSIONS).encode()],
    "version dimensions field_name allowed_values min max * cap",
)
def _dimensions(data: bytes) -> None:
    text = text_of(data)
    if text.lstrip().startswith(("{", "[")):  # else it is a path
        DimensionSchema.from_json(text).to_json()


_AVRO_SCHEMA = {
    "type": "record",
    "name": "e",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "m", "type": {"type": "map", "values": "double"}, "default": {}},
        {
            "name": "in",
            "type": {"type": "record", "name": "i", "fields": [{"name": "x", "type": "int"}]},
        },
        {
            "name": "d",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}


@target("schema", lambda: [json.dumps(_AVRO_SCHEMA).encode()], "record array map enum fixed null")
def _schema(data: bytes) -> None:
    text = text_of(data)
    if text.lstrip().startswith("{"):  # else it is a path
        read_schema(text)


def _descriptors() -> list[bytes]:
    head = json.loads(objects("document", "d.by-dataset")[0])
    return [head["metadata"]["lakebed.descriptor"].encode()]


@target("descriptor", _descriptors, "schema partition_by format compression index checks lineage")
def _descriptor(data: bytes) -> None:
    try:
        document = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(document, dict):
        DatasetDescriptor.from_document(document).to_document()


@target(
    "strategy",
    texts(
        '[{"type": "year", "source": "at", "name": "y"}, {"type": "hash", "source": "s", "buckets": 4}]',
        "year(at) as y, hash(s, 16) as h, range(n, [1, 5]) as r, date_format(at, 'yyyy-MM') as f",
        '[year("ts", "year"), hash("user", "user_hash", 16), dateFormat("t", "n", "yyyy")]',
        "dimension(s, ['a', 'b'], cap=3) as c, values(s, [['a'], ['b']]), provided(z), identity(n)",
    ),
    "year( hash( range( dimension( values( provided( identity( date_format( as [ ] ' \" buckets cap=",
    most=1024,
)
def _strategy(data: bytes) -> None:
    text = text_of(data)
    for read in (PartitionStrategy.from_json, PartitionStrategy.parse, parse_expression):
        with contextlib.suppress(lakebed.errors.LakebedError):
            read(text)
    parse_properties(text)


def quiet() -> None:
    """Leave out warnings, which are no error of an input."""
    warnings.simplefilter("ignore")
