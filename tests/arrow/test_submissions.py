"""The submissions format: what is in the files, and what is read from the documents."""

import contextlib
import gzip
import json
import lzma
from dataclasses import replace

import pyarrow as pa
import pytest
import zstandard
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import DatasetDescriptor, WriteOptions, by
from lakebed.arrow.formats.submissions import SubmissionsReader, SubmissionsWriter
from lakebed.errors import (
    CorruptMetadataError,
    DamagedFileError,
    InvalidInputError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.state.facts import ColumnFacts

OWN = [("uuid", pa.string()), ("document", pa.string())]
DECLARED = [
    ("reason", pa.string()),
    ("build", pa.int64()),
    ("at", pa.timestamp("us", tz="UTC")),
    ("info", pa.struct([("os", pa.string()), ("ram", pa.float64())])),
]


def descriptor(fields=(), **others) -> DatasetDescriptor:
    return DatasetDescriptor(schema=pa.schema([*OWN, *fields]), format="submissions", **others)


@pytest.fixture
def lake(tmp_path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def pings(lake) -> lakebed.Dataset:
    return lake.create("pings", descriptor(DECLARED, partition_by=[by.identity("reason")]))


def data_of(lake, dataset) -> list[bytes]:
    return [lake.store.get(file.key).data for file in dataset.files()]


DECOMPRESS = {
    "zstd": (
        ".tsv.zst",
        lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    ),
    "gzip": (".tsv.gz", gzip.decompress),
    "xz": (".tsv.xz", lzma.decompress),
    "lz4": (".tsv.lz4", lambda data: pa.CompressedInputStream(pa.BufferReader(data), "lz4").read()),
    "uncompressed": (".tsv", bytes),
}


@pytest.mark.parametrize("compression", DECOMPRESS)
def test_file_is_lines_that_any_tool_reads(lake, compression: str) -> None:
    suffix, decompress = DECOMPRESS[compression]
    dataset = lake.create("pings", descriptor(compression=compression))
    entities = [{"uuid": f"u{n}", "document": f'{{"n": {n}}}'} for n in range(500)]

    dataset.append(entities)

    (file,) = dataset.files()
    (data,) = data_of(lake, dataset)
    assert file.key.endswith(suffix)
    assert decompress(data) == b"".join(b'u%d\t{"n": %d}\n' % (n, n) for n in range(500))
    assert list(dataset.kite.reader()) == entities
    assert dataset.count() == 500


def test_compression_of_other_formats_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="snappy"):
        descriptor(compression="snappy")


def test_default_is_zstd() -> None:
    assert descriptor().compression == "zstd"


def test_fields_are_read_from_the_document(lake, pings) -> None:
    document = {
        "reason": "main",
        "build": 20130912,
        "at": "2013-09-12T10:00:00Z",
        "info": {"os": "Linux", "ram": 8, "more": [1]},
        "other": {"deep": [None]},
    }

    pings.append([{"uuid": "a", "document": json.dumps(document)}, {"uuid": "b", "document": "{}"}])

    rows = {row["uuid"]: row for row in pings.kite.reader()}
    assert rows["a"]["build"] == 20130912
    assert rows["a"]["at"].isoformat() == "2013-09-12T10:00:00+00:00"
    assert rows["a"]["info"] == {"os": "Linux", "ram": 8.0}
    assert rows["a"]["document"] == json.dumps(document)
    assert [rows["b"][name] for name in ("reason", "build", "at", "info")] == [None] * 4
    assert {one.values["reason"] for one in pings.inspect.partitions()} == {"main", None}


def test_missing_field_has_its_default(lake) -> None:
    fields = [
        {"name": "uuid", "type": "string"},
        {"name": "document", "type": "string"},
        {"name": "channel", "type": "string", "default": "release"},
    ]
    schema = {"type": "record", "name": "ping", "fields": fields}
    dataset = lake.create("pings", DatasetDescriptor(schema=schema, format="submissions"))

    dataset.append([{"uuid": "a", "document": "{}"}])

    assert dataset.arrow(["channel"]).to_pylist() == [{"channel": "release"}]


def test_predicates_on_fields_prune_and_filter(pings) -> None:
    pings.append(
        [{"uuid": f"u{n}", "document": {"reason": "abc"[n % 3], "build": n}} for n in range(30)]
    )

    view = pings.where("reason = 'a' AND build >= 15")

    assert sorted(view.arrow(["build"])["build"].to_pylist()) == [15, 18, 21, 24, 27]
    assert len(view.plan().files) == 1
    assert pings.where("build > 100").count() == 0


def test_only_the_columns_asked_for_are_decoded(pings) -> None:
    schema = pings.schema
    # No JSON: whoever decodes it fails.
    content = zstandard.compress(b"a\tno json\n")

    def read(*names: str) -> list[dict]:
        wanted = replace(schema, fields=tuple(schema.get(name) for name in names))
        (batch,) = SubmissionsReader().batches(pa.BufferReader(content), wanted)
        return batch.to_pylist()

    assert read("uuid", "document") == [{"uuid": "a", "document": "no json"}]
    with pytest.raises(CorruptMetadataError, match="not JSON"):
        read("build")


def test_given_field_must_agree_with_the_document(pings) -> None:
    pings.append([{"uuid": "a", "document": {"build": 1}, "build": 1}])

    with pytest.raises(SchemaMismatchError, match="'build' differs"):
        pings.append([{"uuid": "a", "document": {"build": 1}, "build": 2}])

    assert pings.count() == 1


def test_what_was_read_can_be_written(lake, pings) -> None:
    pings.append([{"uuid": "a", "document": {"reason": "x", "info": {"ram": 0.1}}}])
    copy = lake.create("copy", pings.descriptor)

    copy.append(pings.arrow())

    assert list(copy.kite.reader()) == list(pings.kite.reader())


def test_arrow_table_of_lines_alone_is_enough(pings) -> None:
    pings.append(
        pa.table({"uuid": ["a"], "document": pa.array(['{"reason":"x"}'], pa.large_string())})
    )

    assert pings.where("reason = 'x'").count() == 1


BAD = {
    "tab in uuid": ({"uuid": "a\tb", "document": "{}"}, "Uuid"),
    "newline in uuid": ({"uuid": "a\nb", "document": "{}"}, "Uuid"),
    "empty uuid": ({"uuid": "", "document": "{}"}, "Uuid"),
    "no uuid": ({"document": "{}"}, "uuid"),
    "no document": ({"uuid": "a"}, "document"),
    "null document": ({"uuid": "a", "document": None}, "document"),
    "not JSON": ({"uuid": "a", "document": "{"}, "not JSON"),
    "no object": ({"uuid": "a", "document": "[1]"}, "object"),
    "two objects": ({"uuid": "a", "document": "{} {}"}, "not JSON"),
    "NaN": ({"uuid": "a", "document": '{"x": NaN}'}, "not JSON"),
    "NaN in a dict": ({"uuid": "a", "document": {"x": float("nan")}}, "JSON"),
    "half a surrogate": ({"uuid": "a", "document": '{"x": "\\ud800"}'}, "not JSON"),
    "raw surrogate": ({"uuid": "a", "document": '{"x": "\ud800"}'}, "document"),
    "deep": ({"uuid": "a", "document": '{"x":' * 100_000 + "1" + "}" * 100_000}, "too deep"),
    "other type": ({"uuid": "a", "document": {"build": "one"}}, "build"),
    "fraction": ({"uuid": "a", "document": {"build": 1.5}}, "build"),
    "too long a number": ({"uuid": "a", "document": '{"build": 1' + "0" * 30 + "}"}, "build"),
    "huge number": ({"uuid": "a", "document": '{"info": {"ram": 1e999999}}'}, "info.ram"),
    "absurd number": ({"uuid": "a", "document": '{"build": 1e99999999999999999999}'}, "range"),
    "no time": ({"uuid": "a", "document": {"at": "noon"}}, "noon"),
    "unknown column": ({"uuid": "a", "document": "{}", "extra": 1}, "extra"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_submission_is_a_named_error_and_nothing_is_written(pings, case: str) -> None:
    entity, told = BAD[case]

    with pytest.raises(InvalidInputError) as caught:
        pings.append([{"uuid": "good", "document": "{}"}, entity])

    assert told in str(caught.value)
    assert len(str(caught.value)) < 1_000
    assert (pings.version, pings.count()) == (0, 0)


def test_last_value_of_a_name_that_stands_twice_counts(pings) -> None:
    pings.append([{"uuid": "a", "document": '{"build": 1, "build": 2}'}])

    assert pings.arrow(["build"]).to_pylist() == [{"build": 2}]


@pytest.mark.thorough
def test_large_documents(pings) -> None:
    text = json.dumps({"reason": "big", "text": "é" * 1_000_000})

    pings.append([{"uuid": f"u{n}", "document": text} for n in range(3)])

    assert pings.where("reason = 'big'").arrow(["document"])["document"].to_pylist() == [text] * 3


MIXED = [
    {"uuid": "a", "document": {"build": 1}},
    {"uuid": "b", "document": {"build": 2}, "build": 2},
    {"uuid": "c", "document": {"build": 3, "reason": "x"}, "reason": "x"},
]


def test_not_all_submissions_of_an_append_need_give_the_same_fields(pings) -> None:
    pings.append([{"reason": None, **one} for one in MIXED[:2]] + MIXED[2:])

    assert sorted(row["build"] for row in pings.kite.reader()) == [1, 2, 3]


def test_not_all_submissions_of_a_writer_need_give_the_same_fields(pings) -> None:
    with pings.kite.writer() as writer:
        for one in MIXED:
            writer.write(one)
        with pytest.raises(SchemaMismatchError, match="'build' differs"):
            writer.write({"uuid": "d", "document": {"build": 4}, "build": 5})

    assert sorted(row["build"] for row in pings.kite.reader()) == [1, 2, 3]


def test_bad_entity_leaves_the_writer_usable(pings) -> None:
    with pings.kite.writer() as writer:
        writer.write({"uuid": "a", "document": {"build": 1}})
        with pytest.raises(SchemaMismatchError):
            writer.write({"uuid": "b", "document": "{"})
        writer.write({"uuid": "c", "document": {"build": 3}})

    assert sorted(row["build"] for row in pings.kite.reader()) == [1, 3]


def test_fields_of_the_line_are_required() -> None:
    with pytest.raises(SchemaMismatchError, match="'document'"):
        DatasetDescriptor(schema=pa.schema([("uuid", pa.string())]), format="submissions")
    with pytest.raises(PartitionSpecError, match="'uuid'"):
        descriptor(partition_by=[by.identity("uuid")])
    assert descriptor(partition_by=[by.hash("uuid", 4)]).file_suffix == ".tsv.zst"


def test_other_readers_of_zstd_files_can_compare_a_checksum(lake, pings) -> None:
    pings.append([{"uuid": f"u{n}", "document": {"build": n}} for n in range(100)])
    (data,) = data_of(lake, pings)

    assert zstandard.get_frame_parameters(data).has_checksum


@pytest.mark.parametrize("damage", [b"", b"\x28\xb5\x2f\xfd", b"no file of ours", None])
def test_damaged_file_is_named(lake, pings, damage) -> None:
    pings.append([{"uuid": f"u{n}", "document": {"build": n}} for n in range(100)])
    (file,) = pings.files()
    data = lake.store.get(file.key).data
    lake.store.put(file.key, data[: len(data) // 2] if damage is None else damage)

    with pytest.raises(DamagedFileError, match="damaged") as caught:
        pings.arrow()
    assert caught.value.key == file.key


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@examples(0.4)
@given(
    st.lists(
        st.tuples(
            st.text(
                st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1
            ),
            st.dictionaries(
                TEXTS.filter(lambda name: name not in ("uuid", "document", "n", "s")),
                JSON,
                max_size=4,
            ),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | TEXTS,
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(["zstd", "lz4", "gzip", "xz"]),
)
def test_every_document_comes_back_byte_for_byte(submissions, compression: str) -> None:
    repository = lakebed.open_repository("memory://submissions-law")
    fields = [("n", pa.int64()), ("s", pa.string())]
    if repository.exists("law"):
        repository.drop("law")
    dataset = repository.create("law", descriptor(fields, compression=compression))
    entities = [
        {"uuid": uuid, "document": json.dumps({**rest, "n": n, "s": s})}
        for uuid, rest, n, s in submissions
    ]

    dataset.with_options(write=WriteOptions(target_bytes=200)).append(entities)

    rows = sorted(dataset.kite.reader(), key=lambda row: (row["uuid"], row["document"]))
    expected = sorted(
        (
            {**entity, "n": n, "s": s}
            for entity, (_, _, n, s) in zip(entities, submissions, strict=True)
        ),
        key=lambda row: (row["uuid"], row["document"]),
    )
    assert rows == expected


@examples(0.5)
@given(st.binary(max_size=200))
def test_hostile_bytes_are_an_error_or_a_document(data: bytes) -> None:
    repository = lakebed.open_repository("memory://submissions-hostile")
    dataset = repository.create("hostile", descriptor(DECLARED), "open")
    table = pa.table({"uuid": ["a"], "document": pa.array([data], pa.binary())})

    with contextlib.suppress(InvalidInputError):  # any other error fails the test
        dataset.append(table)


def test_compression_stays_since_names_of_files_tell_it(lake, pings) -> None:
    with pytest.raises(InvalidInputError, match="cannot change"):
        pings.evolve(
            descriptor(DECLARED, partition_by=[by.identity("reason")], compression="lz4"),
            base=pings.version,
        )


def test_field_that_came_later_is_read_from_later_documents(lake) -> None:
    dataset = lake.create("pings", descriptor())
    dataset.append([{"uuid": "a", "document": {"n": 1}}])

    dataset.evolve(descriptor([("n", pa.int64())]), base=dataset.version)
    dataset.append([{"uuid": "b", "document": {"n": 2}}])

    # What was written before was never compared with the new field.
    rows = sorted(dataset.kite.reader(), key=lambda row: row["uuid"])
    assert [row["n"] for row in rows] == [None, 2]


def test_facts_bound_the_fields_of_documents() -> None:
    schema = descriptor(DECLARED).schema
    writer = SubmissionsWriter(schema, "lz4")

    writer.write(
        pa.Table.from_pylist(
            [
                {"uuid": "b", "document": '{"build": 3}', "build": 3},
                {"uuid": "a", "document": "{}"},
            ],
            schema_to_arrow(schema),
        )
    )

    written = writer.close()
    assert written.row_count == 2
    assert written.columns["build"] == ColumnFacts(min=3, max=3, null_count=1)
    assert written.columns["uuid"] == ColumnFacts(min="a", max="b", null_count=0)
    assert written.columns["document"] == ColumnFacts(null_count=0)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [{"reason": None, "build": None}],
        [{"reason": "c"}],
        [{"reason": "c", "build": None, "more": [1]}],
        [{"reason": "ü", "build": 2**63 - 1}, {}],
    ],
    ids=["alike", "null", "missing", "more", "far"],
)
def test_fields_are_read_the_same_whatever_other_documents_hold(lake, others) -> None:
    fields = [("reason", pa.string()), ("build", pa.int64())]
    dataset = lake.create("some", descriptor(fields))
    documents = [{"reason": "a", "build": 1}, {"build": 2, "reason": "b"}, *others]

    dataset.append([{"uuid": str(n), "document": one} for n, one in enumerate(documents)])

    found = sorted(dataset.arrow().to_pylist(), key=lambda row: row["uuid"])
    assert [(one["reason"], one["build"]) for one in found] == [
        (one.get("reason"), one.get("build")) for one in documents
    ]


@pytest.mark.parametrize("value", ["2.5", "9223372036854775808", '"1"', "true"])
def test_a_document_of_another_type_is_refused_among_plain_ones(lake, value) -> None:
    dataset = lake.create("some", descriptor([("build", pa.int64())]))
    documents = ['{"build": 1}', f'{{"build": {value}}}']

    with pytest.raises(SchemaMismatchError):
        dataset.append([{"uuid": str(n), "document": one} for n, one in enumerate(documents)])

    assert dataset.version == 0


OF_OTHER_TYPES = ["5", "true", "1.50", "1e400", "[1, 2]", '{"a": [null]}', "[]", "{}"]


@pytest.mark.parametrize("format_", ["submissions", "parquet"])
def test_value_of_another_type_is_a_text_of_a_dimension(lake, tmp_path, format_) -> None:
    lines = [f'u{n}\t{{"channel": {value}, "x": 1}}' for n, value in enumerate(OF_OTHER_TYPES)]
    lines += ['v0\t{"channel": "beta"}', 'v1\t{"channel": null}', "v2\t{}", 'v3\t{"x": "1"}']
    (tmp_path / "raw.tsv").write_text("\n".join(lines) + "\n")
    schema = pa.schema([*OWN, ("channel", pa.string()), ("x", pa.int64())])
    dataset = lake.create(
        "pings",
        DatasetDescriptor(
            schema=schema, partition_by="dimension(channel, 'beta', '5')", format=format_
        ),
    )

    report = dataset.load(tmp_path / "raw.tsv", "submissions")

    assert report.rejected_count == 1  # x is no dimension
    found = {row["uuid"]: row for row in dataset.arrow().to_pylist()}
    placed = dataset.arrow(["uuid", "channel_dimension"]).to_pylist()
    places = {row["uuid"]: row["channel_dimension"] for row in placed}
    assert places == {
        **{f"u{n}": "OTHER" for n in range(len(OF_OTHER_TYPES))},
        "u0": "5",
        "v0": "beta",
        "v1": "UNKNOWN",
        "v2": "UNKNOWN",
    }
    for number, value in enumerate(OF_OTHER_TYPES):
        row = found[f"u{number}"]
        assert row["document"] == f'{{"channel": {value}, "x": 1}}'
        assert "e400" in value or json.loads(row["channel"]) == json.loads(value)
    assert dataset.where("channel = '5'").count() == 1
    assert dataset.where("channel IS NULL").count() == 2
    dataset.append(
        [{"uuid": "w", "document": {"channel": [3]}}] if format_ == "submissions" else []
    )
    assert dataset.where("channel = '[3]'").count() == (format_ == "submissions")
