"""Telemetry trees: written for other tools, and adopted as they left them."""

import datetime as dt
import gzip
import json
import lzma
import os
import re
import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_exports import exported

import lakebed
from lakebed import DatasetDescriptor, DimensionSchema, Repository, TelemetryOptions
from lakebed.errors import (
    DatasetExistsError,
    InvalidInputError,
    NotFoundError,
    SchemaMismatchError,
)
from lakebed.store.base import StoredObject
from lakebed.store.posix import PosixStore

SCHEMA = {
    "type": "record",
    "name": "ping",
    "fields": [
        {"name": "uuid", "type": "string"},
        {"name": "document", "type": "string"},
        {"name": "day", "type": ["null", "string"]},
        {"name": "channel", "type": ["null", "string"]},
        {
            "name": "info",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "info",
                    "fields": [{"name": "os", "type": ["null", "string"]}],
                },
            ],
        },
    ],
}
DIMENSIONS = DimensionSchema.from_document(
    {
        "version": 1,
        "dimensions": [
            {"field_name": "day", "allowed_values": "*"},
            {"field_name": "channel", "allowed_values": ["nightly", "aurora", "release"]},
            {"field_name": "info.os", "allowed_values": ["winnt", "darwin", "linux"]},
        ],
    }
)
PINGS = [
    ("20130612", "nightly", "winnt"),
    ("20130612", "nightly", "winnt"),
    ("20130612", "my-own", "darwin"),
    ("20130611", "release", None),
    ("20130611", None, "beos"),
]


def submissions(*pings: tuple) -> list[dict[str, str]]:
    return [
        {
            "uuid": f"u{number}",
            "document": json.dumps({"day": day, "channel": channel, "info": {"os": system}}),
        }
        for number, (day, channel, system) in enumerate(pings)
    ]


def lines(view: lakebed.View) -> Counter:
    return Counter((row["uuid"], row["document"]) for row in view.arrow().to_pylist())


@pytest.fixture
def pings() -> lakebed.Dataset:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    descriptor = DatasetDescriptor(
        schema=SCHEMA, format="submissions", partition_by=DIMENSIONS.partition_by()
    )
    pings = repository.create("pings", descriptor)
    pings.append(submissions(*PINGS))
    return pings


def test_tree_is_that_of_the_document(pings: lakebed.Dataset, tmp_path: Path) -> None:
    done = exported(pings, tmp_path / "tree")

    assert done.files == (
        "20130611/UNKNOWN/OTHER/001.gz",
        "20130611/release/UNKNOWN/001.gz",
        "20130612/OTHER/darwin/001.gz",
        "20130612/nightly/winnt/001.gz",
    )
    path = tmp_path / "tree" / "20130612" / "nightly" / "winnt" / "001.gz"
    with pa.CompressedInputStream(pa.OSFile(str(path)), "gzip") as stream:
        assert stream.read().decode() == "".join(
            f"{one['uuid']}\t{one['document']}\n" for one in submissions(*PINGS)[:2]
        )
    assert (done.row_count, done.version, done.shared) == (5, 1, ())


def test_files_are_cut_at_their_size_and_numbered(pings: lakebed.Dataset, tmp_path: Path) -> None:
    pings.append(submissions(*[("20130613", "nightly", "linux")] * 25))
    each = len(f"u10\t{submissions(*PINGS)[0]['document']}\n")

    done = exported(
        pings.where("day = '20130613'"),
        tmp_path / "tree",
        options=TelemetryOptions(max_bytes=10 * each),
    )

    assert [path.rpartition("/")[2] for path in done.files] == ["001.gz", "002.gz", "003.gz"]
    assert done.row_count == 25


def test_names_of_the_finished_code(pings: lakebed.Dataset, tmp_path: Path) -> None:
    options = TelemetryOptions(named=2, compression="xz", version=4)

    done = exported(pings, tmp_path / "tree", options=options)

    assert all(
        re.fullmatch(r"[0-9]+/\w+\.\w+\.v4\.log\.[0-9a-f]{32}\.xz", one) for one in done.files
    )
    (path,) = (tmp_path / "tree" / "20130612").glob("nightly.winnt.v4.log.*.xz")
    assert lzma.decompress(path.read_bytes()).count(b"\n") == 2


def test_schema_of_the_export_says_levels_and_allowed_values(
    pings: lakebed.Dataset, tmp_path: Path
) -> None:
    schema = tmp_path / "telemetry_schema.json"
    rule = {"field_name": "channel", "allowed_values": ["release"]}
    schema.write_text(json.dumps({"version": 1, "dimensions": [rule]}))

    done = exported(pings, tmp_path / "tree", schema)

    assert done.files == ("OTHER/001.gz", "UNKNOWN/001.gz", "release/001.gz")


@pytest.mark.parametrize("is_partitioned", [True, False])
def test_schema_that_a_dataset_was_made_by_exports_it_whatever_its_types(
    tmp_path: Path, is_partitioned: bool
) -> None:
    allowed = {"n": {"min": 1, "max": 500}, "k": [1, 2], "day": {"min": "2013-06-01"}, "b": "*"}
    schema = DimensionSchema.from_document(
        {
            "version": 1,
            "dimensions": [
                {"field_name": name, "allowed_values": values} for name, values in allowed.items()
            ],
        }
    )
    fields = [("uuid", pa.string()), ("document", pa.string()), ("n", pa.int64())]
    fields += [("k", pa.int32()), ("day", pa.date32()), ("b", pa.bool_())]
    descriptor = DatasetDescriptor(
        schema=pa.schema(fields), partition_by=schema.partition_by() if is_partitioned else ()
    )
    dataset = lakebed.open_repository(tmp_path / "lake").create("pings", descriptor)
    days = [dt.date(2013, 6, 12), dt.date(2013, 5, 31), None]
    rows = [(7, 2, days[0], True), (501, 3, days[1], False), (None, None, days[2], None)]
    names = ("n", "k", "day", "b")
    dataset.append(
        {"uuid": f"u{number}", "document": "{}", **dict(zip(names, row, strict=True))}
        for number, row in enumerate(rows)
    )

    files = exported(dataset, tmp_path / "tree", schema).files

    # Partition fields of dimensions are texts.
    day, yes, no = (
        ("2013_06_12", "true", "false") if is_partitioned else ("20130612", "True", "False")
    )
    assert files == (
        f"7/2/{day}/{yes}/001.gz",
        f"OTHER/OTHER/OTHER/{no}/001.gz",
        "UNKNOWN/UNKNOWN/UNKNOWN/UNKNOWN/001.gz",
    )


@pytest.mark.parametrize(("named", "most"), [(0, 255), (2, 198)])
def test_value_too_long_for_a_name_is_refused_with_the_remedy(
    tmp_path: Path, named: int, most: int
) -> None:
    schema = DimensionSchema.from_document(
        {
            "version": 1,
            "dimensions": [{"field_name": name, "allowed_values": "*"} for name in ("day", "k")],
        }
    )
    fields = [(name, pa.string()) for name in ("uuid", "document", "day", "k")]
    descriptor = DatasetDescriptor(schema=pa.schema(fields))
    options = TelemetryOptions(named=named)
    for length in (most, most + 1):
        dataset = lakebed.open_repository(tmp_path).create(f"pings{length}", descriptor)
        dataset.append([{"uuid": "u", "document": "{}", "day": "1", "k": "x" * length}])
        target = tmp_path / f"tree{length}"
        if length == most:
            assert exported(dataset, target, schema, options=options).row_count == 1
            continue
        with pytest.raises(InvalidInputError, match="is too long for a name") as caught:
            exported(dataset, target, schema, options=options)
        assert "to OTHER" in caught.value.hint


def test_values_that_are_written_alike_share_a_directory_and_are_told(tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path / "lake")
    descriptor = DatasetDescriptor(schema=SCHEMA, format="submissions", partition_by="channel")
    odd = repository.create("odd", descriptor)
    odd.append(submissions(*[("1", channel, None) for channel in ("a-b", "a b", "../../etc", "")]))

    done = exported(odd, tmp_path / "tree")

    assert done.files == ("_._.._etc/001.gz", "_/001.gz", "a_b/001.gz")
    assert done.shared == ("a_b",)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lake", "tree"]


def test_export_of_what_is_no_submission_is_refused(tmp_path: Path) -> None:
    plain = lakebed.open_repository(tmp_path / "lake").create(
        "plain", DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    )

    with pytest.raises(SchemaMismatchError, match="no field 'uuid'"):
        exported(plain, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_unknown_dimension_is_refused_by_name(pings: lakebed.Dataset, tmp_path: Path) -> None:
    schema = '{"version": 1, "dimensions": [{"field_name": "chanel", "allowed_values": "*"}]}'

    with pytest.raises(SchemaMismatchError, match="'chanel'") as caught:
        exported(pings, tmp_path / "tree", schema)
    assert "channel" in caught.value.hint


@pytest.mark.parametrize("named", [0, 2])
def test_exported_tree_is_adopted_in_place(
    pings: lakebed.Dataset, tmp_path: Path, named: int
) -> None:
    options = TelemetryOptions(named=named, compression="xz")
    exported(pings, tmp_path / "pings", options=options)
    before = {path: path.read_bytes() for path in (tmp_path / "pings").rglob("*.xz")}

    adopted = lakebed.open_repository(tmp_path).adopt("pings", telemetry=DIMENSIONS)

    assert lines(adopted) == lines(pings)
    assert adopted.where("channel = 'nightly' AND info_os = 'winnt'").count() == 2
    assert len(adopted.where("channel = 'nightly'").plan()) == 1
    assert [one for one in adopted.check().findings if one.severity != "note"] == []
    assert {path: path.read_bytes() for path in before} == before
    # And it goes on as any other dataset.
    tuesday = (
        adopted.kite.with_("day", "20130613")
        .kite.with_("channel", "beta")
        .kite.with_("info_os", "linux")
    )
    tuesday.append(submissions(("20130613", "beta", "linux")))
    assert adopted.count() == 6
    adopted.where("day = '20130611'").delete()
    assert adopted.count() == 4


@pytest.mark.parametrize(
    ("names", "compression"),
    [
        (["001", "002"], "uncompressed"),
        (["001.lz4", "002.lz4"], "lz4"),
        (["001.gz", "002.gz", "003"], "gzip"),
        (["001.gz", "002", "003"], "uncompressed"),
        (["001.lzma"], "xz"),
        (["001.v1.log"], "uncompressed"),
    ],
)
def test_new_files_are_compressed_as_most_of_those_that_were_adopted(
    tmp_path: Path, names: list[str], compression: str
) -> None:
    directory = tmp_path / "pings/20130611/nightly/winnt"
    for name in names:
        packer = _PACKERS.get(name.rpartition(".")[2], bytes)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(packer(f"{name}\t{{}}\n".encode()))

    adopted = lakebed.open_repository(tmp_path).adopt("pings", telemetry=DIMENSIONS)

    assert adopted.descriptor.compression == compression
    place = (
        adopted.kite.with_("day", "20130611")
        .kite.with_("channel", "nightly")
        .kite.with_("info_os", "winnt")
    )
    place.append(submissions(("20130611", "nightly", "winnt")))
    assert adopted.count() == len(names) + 1


def test_adopted_lines_make_a_dataset_whose_documents_say_the_dimensions(
    pings: lakebed.Dataset, tmp_path: Path
) -> None:
    exported(pings, tmp_path / "pings")
    repository = lakebed.open_repository(tmp_path)
    adopted = repository.adopt("pings", telemetry=DIMENSIONS)

    again = repository.create("again", pings.descriptor)
    again.append(adopted.arrow(["uuid", "document"]))

    assert [(one.path, one.row_count) for one in again.inspect.partitions()] == [
        (one.path, one.row_count) for one in pings.inspect.partitions()
    ]


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())


_PACKERS = {
    "gz": gzip.compress,
    "lzma": lambda data: lzma.compress(data, format=lzma.FORMAT_ALONE),
    "lz4": lambda data: pa.compress(data, codec="lz4", asbytes=True),
}


def test_tree_of_the_finished_code_is_adopted_as_it_lies(tmp_path: Path) -> None:
    tree = tmp_path / "pings"
    place = "saved_session/Firefox/nightly/28.0a1"
    put(tree / f"{place}/20131112030204.20131113.v1.log", 'a\t{"n": 1}\nb\t{"n": 2}\n')
    packed = tree / f"{place}/20131112030204.20131113.v1.log.{'0' * 32}.lzma"
    packed.write_bytes(lzma.compress(b'c\t{"n": 3}\n', format=lzma.FORMAT_ALONE))
    put(tree / f"{place}/20131112030204.20131114.v1.log.compressing", "half a l")
    put(tree / f"{place}/20131112030204.20131115.v1.log.{'1' * 32}.lz4", "")
    names = ("reason", "appName", "channel", "version", "build", "date")
    schema = {
        "version": 1,
        "dimensions": [{"field_name": name, "allowed_values": "*"} for name in names],
    }
    repository = lakebed.open_repository(tmp_path)

    found = repository.adopt("pings", telemetry=json.dumps(schema), dry_run=True)
    adopted = repository.adopt("pings", found)

    assert [one.reason for one in found.taken_for("left")] == [
        "unfinished: its name is that of a file still being written",
        "empty: a compressed file never is, so its writer has died",
    ]
    assert "empty: a compressed file never is" in str(found)
    assert sorted(row["uuid"] for row in adopted.kite.reader()) == ["a", "b", "c"]
    (partition,) = adopted.inspect.partitions()
    assert list(partition.values.values()) == [*place.split("/"), "20131112030204", "20131113"]


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("1/nightly/winnt/deeper/001.lz4", "a\t{}\n", "4 directories deep"),
        ("1/nightly/winnt/001", "no tab\n", "no tab"),
        ("1/nightly/winnt/001", "a\t{}\nb\t{}", "no end"),
        ("data/nightly/winnt/001", "a\t{}\n", "data/ is the dataset's own"),
    ],
)
def test_file_that_is_none_of_the_tree_is_refused_and_nothing_written(
    tmp_path: Path, path: str, content: str, message: str
) -> None:
    put(tmp_path / "pings" / path, content)

    with pytest.raises(InvalidInputError, match=message):
        lakebed.open_repository(tmp_path).adopt("pings", telemetry=DIMENSIONS)

    assert [one.name for one in tmp_path.iterdir()] == ["pings"]


@pytest.mark.parametrize("place", ["1/nightly/winnt/002", "1/nightly/darwin"])
def test_link_is_refused_by_its_name_as_its_rows_would_be_missing(
    tmp_path: Path, place: str
) -> None:
    home = tmp_path / "lake" / "pings"
    put(home / "1/nightly/winnt/001", "a\t{}\n")
    put(tmp_path / "elsewhere/001", "b\t{}\n")
    is_directory = place.endswith("darwin")
    (home / place).symlink_to(tmp_path / ("elsewhere" if is_directory else "elsewhere/001"))

    with pytest.raises(InvalidInputError, match="is a symbolic link") as caught:
        lakebed.open_repository(tmp_path / "lake").adopt("pings", telemetry=DIMENSIONS)

    assert str(home / place) in caught.value.message
    assert [one.name for one in (tmp_path / "lake").iterdir()] == ["pings"]


@pytest.mark.parametrize("name", [b"win\nnt", b"win\\nt", "M\u00fcnchen".encode("latin-1")])
def test_name_that_no_listing_shows_is_refused_as_its_rows_would_be_missing(
    tmp_path: Path, name: bytes
) -> None:
    put(tmp_path / "pings/1/nightly/winnt/001", "a\t{}\n")
    put(tmp_path / "pings/1/nightly" / os.fsdecode(name) / "001", "b\t{}\n")

    with pytest.raises(InvalidInputError, match="which no key of a store can have") as caught:
        lakebed.open_repository(tmp_path).adopt("pings", telemetry=DIMENSIONS)

    caught.value.message.encode()  # and can be printed


def test_file_that_grows_while_the_tree_is_looked_at_is_refused(tmp_path: Path) -> None:
    class Growing(PosixStore):
        """Another process goes on with a file after it was listed."""

        def _get(self, key: str) -> StoredObject:
            if key.startswith("pings/"):
                put(tmp_path / key, 'a\t{}\nb\t{"n": 2}\n')
            return super()._get(key)

    put(tmp_path / "pings/1/nightly/winnt/001", "a\t{}\n")

    with pytest.raises(InvalidInputError, match=r"had 5 bytes in the listing, and 16 when"):
        Repository(Growing(tmp_path)).adopt("pings", telemetry=DIMENSIONS)

    assert [one.name for one in tmp_path.iterdir()] == ["pings"]


def test_empty_tree_and_a_dataset_that_is_there_are_refused(
    pings: lakebed.Dataset, tmp_path: Path
) -> None:
    repository = lakebed.open_repository(tmp_path)
    with pytest.raises(NotFoundError):
        repository.adopt("pings", telemetry=DIMENSIONS)

    exported(pings, tmp_path / "pings")
    repository.adopt("pings", telemetry=DIMENSIONS)
    with pytest.raises(DatasetExistsError):
        repository.adopt("pings", telemetry=DIMENSIONS)
    with pytest.raises(InvalidInputError, match="define schema and partitions themselves"):
        repository.adopt("others", telemetry=DIMENSIONS, kite=True)


TEXTS = st.text(st.characters(exclude_characters="\t\r\n", codec="utf-8"), max_size=8)


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS | st.none(), TEXTS), min_size=1, max_size=12),
    named=st.sampled_from([0, 2]),
    max_bytes=st.integers(1, 200),
)
def test_every_line_that_is_exported_is_adopted(rows: list, named: int, max_bytes: int) -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    descriptor = DatasetDescriptor(schema=SCHEMA, format="submissions", partition_by="day, channel")
    pings = repository.create("pings", descriptor)
    pings.append(submissions(*rows))
    place = f"memory://{uuid.uuid4().hex}"
    options = TelemetryOptions(named=named, max_bytes=max_bytes)

    done = exported(pings, f"{place}/pings", options=options)
    schema = {
        "version": 1,
        "dimensions": [{"field_name": name, "allowed_values": "*"} for name in ("day", "channel")],
    }
    adopted = lakebed.open_repository(place).adopt("pings", telemetry=json.dumps(schema))

    assert lines(adopted) == lines(pings)
    assert done.row_count == len(rows)
    assert len(adopted.files()) == len(done.files)
