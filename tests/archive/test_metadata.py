"""Metadata and records: the rules in their order, and the keys made of them."""

import json
import pickle
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.archive import ArchiveRecord, FileMetadata, content_hash
from lakebed.archive.times import to_datetime
from lakebed.errors import InvalidInputError, UnsupportedVersionError

DAY = 86_400_000
EPOCH = to_datetime(0)
T0 = 1426809600000


def test_version_defaults_to_0(fields_of) -> None:
    assert FileMetadata(fields_of(version=...))["version"] == 0


@pytest.mark.parametrize("version", [1, "0", -1, 0.5, [], {}, "x"])
def test_other_version_is_unsupported(fields_of, version: object) -> None:
    with pytest.raises(UnsupportedVersionError):
        FileMetadata(fields_of(version=version))


@pytest.mark.parametrize("version", [0, 0.0])
def test_what_equals_0_is_version_0(fields_of, version: object) -> None:
    assert FileMetadata(fields_of(version=version))["version"] == 0


@pytest.mark.parametrize(
    ("start", "ms"),
    [
        ("2015-03-20T00:00:00Z", T0),
        ("1426809600.25", T0 + 250),
        ("1426809600123", T0 + 123),
        (1426809600, T0),
    ],
)
def test_start_is_normalised(fields_of, start: object, ms: int) -> None:
    assert FileMetadata(fields_of(start=start)).start == ms


@pytest.mark.parametrize("end", ["bxfl230", [], "inf", b"x"])
def test_bad_end_is_refused(fields_of, end: object) -> None:
    with pytest.raises(InvalidInputError, match="not a time"):
        FileMetadata(fields_of(end=end))


def test_id_is_drawn_and_a_given_one_is_kept(fields_of) -> None:
    drawn = FileMetadata(fields_of())

    assert uuid.UUID(hex=drawn.id).version == 4
    assert len(drawn.id) == 32
    assert FileMetadata(fields_of()).id != drawn.id
    for given_id in ("12345", "2" * 40, ""):
        assert FileMetadata(fields_of(id=given_id)).id == given_id
    assert FileMetadata(fields_of(id=5))["id"] == 5


@pytest.mark.parametrize("name", ["version", "start", "where", "what", "id", "hash", "path"])
def test_none_for_a_required_field_is_refused_by_name(fields_of, name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"without '{name}'"):
        FileMetadata(fields_of(**{name: None}))


def test_first_broken_rule_is_told(fields_of) -> None:
    broken: dict[str, Any] = {
        "version": 3,
        "where": "A",
        "what": "B",
        "work_id": "C",
        "path": "d",
        "start": "e",
        "end": "f",
    }
    for name, message in [
        ("version", "version 3"),
        ("where", "where 'A'"),
        ("what", "what 'B'"),
        ("work_id", "work_id 'C'"),
        ("path", "path 'd'"),
        ("start", "'e' is not a time"),
        ("end", "'f' is not a time"),
    ]:
        with pytest.raises((InvalidInputError, UnsupportedVersionError), match=message):
            FileMetadata(fields_of(**broken))
        del broken[name]
    FileMetadata(fields_of(**broken))


def test_work_id_none_is_kept_but_must_be_there(fields_of) -> None:
    assert FileMetadata(fields_of(work_id=None)).work_id is None
    with pytest.raises(InvalidInputError, match="without 'work_id'"):
        FileMetadata(fields_of(work_id=...))


def test_missing_end_becomes_none(fields_of) -> None:
    metadata = FileMetadata(fields_of(end=...))

    assert metadata.end is None
    assert list(metadata)[-1] == "end"


@pytest.mark.parametrize("name", ["where", "what", "work_id"])
@pytest.mark.parametrize(
    "value",
    ["#$", "Nebraska", "a b", "a.b", "a:b", "ä", "", "abc\n", "a/b", 5, ["a"], {"a": 1}, b"a"],
)
def test_bad_slug_is_refused(fields_of, name: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=name):
        FileMetadata(fields_of(**{name: value}))


def test_work_id_null_is_refused(fields_of) -> None:
    with pytest.raises(InvalidInputError, match="'null'"):
        FileMetadata(fields_of(work_id="null"))


@pytest.mark.parametrize("path", ["/", "/a/b", "C:\\x", "Z:\\\\foo", "c:\\a b\\ä"])
def test_absolute_path_is_accepted(fields_of, path: str) -> None:
    assert FileMetadata(fields_of(path=path)).path == path


@pytest.mark.parametrize(
    "path", ["C:\\", "C:/x", "\\\\srv\\x", "foo\\abc.txt", "./a", "../a", "a", "", 5, ["/"]]
)
def test_relative_path_is_refused(fields_of, path: object) -> None:
    with pytest.raises(InvalidInputError, match="absolute"):
        FileMetadata(fields_of(path=path))


def test_interval(fields_of) -> None:
    with pytest.raises(InvalidInputError, match="before start"):
        FileMetadata(fields_of(end=T0 - 1))
    assert FileMetadata(fields_of(end=T0)).end == T0
    with pytest.raises(InvalidInputError, match="before start"):
        FileMetadata(fields_of(end=EPOCH))
    assert FileMetadata(fields_of(start=EPOCH, end=EPOCH)).end == 0
    with pytest.raises(InvalidInputError, match="not a clear time"):
        FileMetadata(fields_of(end=0))


def test_json_round_trip_in_ascii_with_unknown_keys_in_their_order(fields_of) -> None:
    given_fields = {"zebra": [1, {"ä": None}], **fields_of(path="/ü", version=..., end=...)}
    metadata = FileMetadata(given_fields)

    text = metadata.to_json()

    assert text.isascii()
    assert FileMetadata.from_json(text) == metadata
    assert FileMetadata.from_json(text.encode()) == metadata
    assert list(json.loads(text)) == [*given_fields, "id", "version", "end"]


@pytest.mark.parametrize("ms", [0, -1, 12, 20150320])
def test_times_before_1973_survive_json_though_they_look_like_seconds(fields_of, ms) -> None:
    metadata = FileMetadata(fields_of(start=to_datetime(ms)))

    again = FileMetadata.from_json(metadata.to_json())

    assert again == metadata
    assert again.with_hash(metadata.hash) == metadata
    assert pickle.loads(pickle.dumps(again)) == metadata


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "null", "1", '"x"', "[]", "{}", "NaN", b"\xff", "[" * 100_000, '{"a": NaN}'],
    ids=lambda text: repr(text)[:12],
)
def test_bad_json_is_refused(text: object) -> None:
    with pytest.raises(InvalidInputError):
        FileMetadata.from_json(text)


@pytest.mark.parametrize("value", [object(), {1, 2}, float("inf"), b"x", {"deep": [float("nan")]}])
def test_extra_field_that_json_cannot_hold_is_refused(fields_of, value: object) -> None:
    with pytest.raises(InvalidInputError, match="more"):
        FileMetadata(fields_of(more=value))


def test_fields_that_are_no_mapping_or_have_odd_names_are_refused(fields_of) -> None:
    for bad in ([], "x", None, 5, {**fields_of(), 5: 1}):
        with pytest.raises(InvalidInputError):
            FileMetadata(bad)


def test_metadata_cannot_change(fields_of) -> None:
    given_fields = fields_of(more=[1])
    metadata = FileMetadata(given_fields)
    before = dict(metadata)

    given_fields["more"].append(2)
    metadata["more"].append(3)

    assert dict(metadata) == before
    assert "id" not in given_fields
    with pytest.raises(TypeError):
        metadata["more"] = 1


def test_metadata_pickles_and_hashes(fields_of) -> None:
    metadata = FileMetadata(fields_of())

    assert pickle.loads(pickle.dumps(metadata)) == metadata
    assert len({metadata, FileMetadata(dict(metadata))}) == 1


@given(
    st.dictionaries(st.text(), st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text())))
)
def test_anything_is_metadata_or_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises((InvalidInputError, UnsupportedVersionError)):
        FileMetadata({**fields, "path": "relative"})


# Hash and record


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "cae66941d9efbd404e4d88758ea67670"),
        (b"mwahaha", "a3e75ee4f45f676422e038f2c116d000"),
        (b"hello\n", "ea41b4de6c03f13a95758b28dd75693e"),
    ],
)
def test_hash_is_blake2b_of_16_bytes(content: bytes, expected: str) -> None:
    assert content_hash([content]) == expected
    assert content_hash(content[i : i + 1] for i in range(len(content))) == expected


FILE_ID = "91dd2525a5924c6c972e3d67fee8cda9"


def test_keys_of_a_record(record_of) -> None:
    record = record_of(id=FILE_ID)

    assert record.time_index_keys == ("16514:apache",)
    assert record.work_id_index_key == f"null{FILE_ID}:apache"
    assert record.range_key == f"nebraska:{FILE_ID}"
    assert record_of(id=FILE_ID, work_id="job-1").work_id_index_key == "job-1:apache"


def test_documents_have_version_0_of_the_record_format(record_of) -> None:
    record = record_of(id=FILE_ID, url="s3://raw/x", end=T0 + DAY, create_time_ms=5_000)

    documents = record.to_documents()

    assert [one["time_index_key"] for one in documents] == ["16514:apache", "16515:apache"]
    assert documents[0] == {
        "version": 0,
        "url": "s3://raw/x",
        "time_index_key": "16514:apache",
        "work_id_index_key": f"null{FILE_ID}:apache",
        "range_key": f"nebraska:{FILE_ID}",
        "create_time": 5_000,
        "size": 7,
        "metadata": dict(record.metadata),
    }
    assert {ArchiveRecord.from_document(one) for one in documents} == {record}


@pytest.mark.parametrize(
    ("days", "keys"), [(29, 30), (30, ("long:apache",)), (100, ("long:apache",))]
)
def test_file_of_more_than_30_days_is_kept_as_long(record_of, days: int, keys: object) -> None:
    found = record_of(start=T0, end=T0 + days * DAY).time_index_keys

    assert (len(found) if isinstance(keys, int) else found) == keys


def test_record_tells_its_times_aware(record_of) -> None:
    record = record_of(end=None)

    assert record.start.isoformat() == "2015-03-20T00:00:00+00:00"
    assert record.end is None
    assert record.last_ms == T0
    assert record.created_at.utcoffset().total_seconds() == 0


@pytest.mark.parametrize("found", ["", "a3", "xyz", "a3" * 15, "a3" * 17, "A3" * 16, 7, True])
def test_hash_of_new_metadata_is_16_bytes_in_hex(fields_of, found: object) -> None:
    with pytest.raises(InvalidInputError, match="hash"):
        FileMetadata(fields_of(hash=found))


def test_hash_of_stored_metadata_is_that_of_its_writer(fields_of) -> None:
    stored = json.dumps(dict(FileMetadata(fields_of())) | {"hash": "a3"})

    assert FileMetadata.from_json(stored).hash == "a3"


@pytest.mark.parametrize("version", [False, True, "0", 1])
def test_version_is_the_number_0(fields_of, version: object) -> None:
    with pytest.raises(UnsupportedVersionError):
        FileMetadata(fields_of(version=version))
