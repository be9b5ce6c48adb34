"""The 34 behaviours of Mozilla's telemetry storage, each under its number.

Where a behaviour is about a tool of the original, the test says the same of Lakebed. Elsewhere:
the record format, its writers, readers and codecs (13 to 18 and 32) belong to the submissions
format; here is only where their files lie (14). The framing of Heka messages (31) and the packing
of histograms (33) are contents of other tools, which Lakebed stores and does not interpret. Two
stores behaving alike (34) is the contract suite in tests/contract.
"""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from dimension_documents import NIGHTLY, TELEMETRY, UNIFIED, document

import lakebed
from lakebed import DimensionSchema, by
from lakebed.common.grouping import balanced_groups
from lakebed.errors import (
    FormatError,
    InvalidInputError,
    NotFoundError,
    PartitionSpecError,
    PredicateError,
)
from lakebed.model.telemetry_layout import (
    Selection,
    TelemetryLayout,
    dimension,
    dimensions_of,
    limited,
    safe_name,
)

SCHEMA = DimensionSchema.from_json(NIGHTLY)
GIVEN = ("bogus", "someAppName", "nightly", "someAppVersion", "someBuildID", "20130908")


def layout_of(*dimensions: tuple, base: str = "foo", named: int = 2) -> TelemetryLayout:
    schema = DimensionSchema.from_json(document(*dimensions))
    return TelemetryLayout(schema=schema, base=base, named=named)


# 1 to 12: the schema and the paths


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        ("Hello World!", "Hello_World_"),
        ("what\nam\ni", "what_am_i"),
        ("saved-session", "saved_session"),
    ],
)
def test_b01_safe_names(value: str, safe: str) -> None:
    assert safe_name(value) == safe


@pytest.mark.parametrize("allowed", [["saved-session"], "saved-session"])
def test_b02_filter_compares_values_as_they_stand_in_a_path(allowed: object) -> None:
    layout = layout_of(("reason", allowed), ("build", "*"), ("date", "*"))

    found = layout.select(["foo/saved_session/b.d.v1.log", "foo/idle_daily/b.d.v1.log"])

    assert found.included == ("foo/saved_session/b.d.v1.log",)
    assert found.excluded == ("foo/idle_daily/b.d.v1.log",)


def test_b03_disallowed_value_becomes_other() -> None:
    other = ("bogus", "someAppName", "aurora", "someAppVersion", "someBuildID", "20140428")

    assert limited(SCHEMA, GIVEN) == ("OTHER", *GIVEN[1:])
    assert limited(SCHEMA, other) == (
        "OTHER",
        "someAppName",
        "OTHER",
        "someAppVersion",
        "someBuildID",
        "OTHER",
    )


def test_b04_there_are_as_many_values_as_dimensions() -> None:
    assert limited(SCHEMA, [*GIVEN, "more", "bonus", "dimensions!"]) == limited(SCHEMA, GIVEN)


def test_b05_missing_tail_is_other() -> None:
    assert limited(SCHEMA, ["saved-session"]) == ("saved-session", *["OTHER"] * 5)
    assert limited(SCHEMA, []) == limited(SCHEMA, None) == ("OTHER",) * 6


@pytest.mark.parametrize("version", [1, 99])
def test_b06_path_of_a_file(version: int) -> None:
    layout = TelemetryLayout(schema=SCHEMA, base="foo")

    path = layout.path(["saved-session", *GIVEN[1:]], version)

    folder = "foo/saved_session/someAppName/nightly/someAppVersion"
    assert path == f"{folder}/someBuildID.20130908.v{version}.log"


def test_b07_dimensions_of_a_path_invert_the_builder() -> None:
    layout = TelemetryLayout(schema=SCHEMA, base="foo")
    values = ["saved-session", *GIVEN[1:]]

    found = layout.values(layout.path(values))

    assert json.loads(json.dumps(found)) == dict(
        zip(SCHEMA.names, map(safe_name, values), strict=True)
    )
    with pytest.raises(InvalidInputError, match="outside 'foo'"):
        layout.values("bar/saved_session/a/nightly/v/b.20130908.v1.log")


def test_b08_filter_of_27_files() -> None:
    layout = TelemetryLayout(schema=SCHEMA, base="/foo/bar")
    inside = [
        f"/foo/bar/{reason}/Firefox/{channel}/27.0a1/b{n}.{day}.v1.log"
        for reason, channel, day in itertools.product(
            ["saved_session", "idle_daily"],
            ["nightly", "aurora", "OTHER"],
            ["20130908", "20130909"],
        )
        for n in (1, 2)
    ]
    compressed = "/foo/bar/saved_session/Fennec/nightly/27.0a1/b1.20130908.v2.log."
    paths = [
        *inside,
        f"{compressed}{'0' * 32}.lzma",
        "/foo/bar_baz/saved_session/Firefox/nightly/27.0a1/b1.20130908.v1.log",
        "garbage/saved_session/Firefox/nightly/27.0a1/b1.20130908.v1.log",
    ]
    paths[23] = f"{compressed}{'1' * 32}.xz"

    found = layout.select(paths)

    assert len(paths) == 27
    assert found.included == (paths[0], paths[1], paths[23], paths[24])
    assert len(found.excluded) == 21
    assert set(found.refused) == set(paths[-2:])


def test_b09_missing_field_is_unknown() -> None:
    assert dimensions_of(SCHEMA, {}, "20130908") == (*["UNKNOWN"] * 5, "20130908")
    assert dimensions_of(SCHEMA, {"appName": "x"}, "20130909")[1:] == (
        "x",
        *["UNKNOWN"] * 3,
        "OTHER",
    )


@pytest.mark.parametrize(
    ("name", "is_limited", "is_safe", "expected"),
    [
        ("reason", False, False, "saved-session"),
        ("reason", False, True, "saved_session"),
        ("reason", True, False, "saved-session"),
        ("reason", True, True, "saved_session"),
        ("appUpdateChannel", False, False, "release"),
        ("appUpdateChannel", True, False, "OTHER"),
        ("appUpdateChannel", True, True, "OTHER"),
        ("appVersion", True, True, "26.0a_1"),
    ],
)
def test_b10_lookup_of_one_dimension(name, is_limited, is_safe, expected) -> None:
    values = ["saved-session", "Firefox", "release", "26.0a+1"]

    assert dimension(SCHEMA, values, name, is_limited=is_limited, is_safe=is_safe) == expected


def test_b10_lookup_of_an_unknown_or_missing_dimension_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="Did you mean 'appName'"):
        dimension(SCHEMA, GIVEN, "appname")
    with pytest.raises(InvalidInputError, match="there are 2 values"):
        dimension(SCHEMA, GIVEN[:2], "appVersion")


@pytest.mark.parametrize(
    ("allowed", "kept"),
    [
        ({"min": "b", "max": "d"}, ["b", "c", "d"]),
        ({"min": "b"}, ["b", "c", "d", "da", "e"]),
        ({"max": "b"}, ["a", "b"]),
        ({}, ["a", "b", "c", "d", "da", "e"]),
    ],
)
def test_b11_ranges_are_inclusive_and_may_be_open(allowed: dict, kept: list[str]) -> None:
    schema = DimensionSchema.from_json(document(("d", allowed)))

    found = [
        value for value in ["a", "b", "c", "d", "da", "e"] if limited(schema, [value]) == (value,)
    ]

    assert found == kept


def test_b12_text_is_compared_exactly() -> None:
    schema = DimensionSchema.from_json(document(("build", "one_specific_build")))
    close = ["two_specific_build", "*", "one_specific_build ", "one-specific-build"]

    assert limited(schema, ["one_specific_build"]) == ("one_specific_build",)
    assert {limited(schema, [value]) for value in close} == {("OTHER",)}


def test_b14_file_of_some_dimensions_lies_where_the_original_puts_it() -> None:
    names = ["reason", "appName", "channel", "version", "build", "date"]
    layout = layout_of(*[(name, "*") for name in names], base="")

    assert (
        layout.path(["r1", "a1", "c1", "v1", "b1", "20130102"]) == "r1/a1/c1/v1/b1.20130102.v1.log"
    )


# 19 to 26: choosing files


def test_b19_listing_of_two_dates() -> None:
    names = ["reason", "appName", "channel", "version", "build"]
    layout = layout_of(
        *[(name, "*") for name in names], ("submission_date", ["20131003", "20131004"]), base=""
    )
    paths = [f"idle_daily/Firefox/nightly/27.0a1/b.201310{day:02}.v2.log" for day in range(1, 7)]

    assert layout.select(paths).included == tuple(paths[2:4])


def test_b20_listing_of_eight_dimensions() -> None:
    layout = TelemetryLayout(schema=DimensionSchema.from_json(UNIFIED), base="telemetry", named=0)
    paths = [
        f"telemetry/20130910/telemetry/4/{doc_type}/Firefox/nightly/26.0a1/{build}/{n}.gz"
        for doc_type in ("saved_session", "main")
        for build in ("20130910160258", "20130911")
        for n in range(3)
    ]

    found = layout.select(paths)

    assert found.included == tuple(paths[:3])
    assert not found.refused


@pytest.mark.parametrize("base", ["", "telemetry-executive-summary-2", "a/b/c/d"])
def test_b21_listing_up_to_a_date(base: str) -> None:
    layout = layout_of(("submissionDate", {"max": "20150901"}), base=base, named=0)
    days = [f"201508{day}" for day in (30, 31)] + [f"201509{day:02}" for day in range(1, 8)]
    paths = [f"{base}/{day}/part".removeprefix("/") for day in days]

    assert layout.select(paths).included == tuple(paths[:3])


def test_b22_bad_schema_missing_file_and_no_json_are_distinct_errors(tmp_path: Path) -> None:
    bad, broken = tmp_path / "bad.json", tmp_path / "broken.json"
    bad.write_text(document(("reason", None)))
    broken.write_text('{"version": 1')

    with pytest.raises(PartitionSpecError, match=r"dimensions\[0\]\.allowed_values: None"):
        DimensionSchema.from_json(bad)
    with pytest.raises(NotFoundError, match="No dimension schema"):
        DimensionSchema.from_json(tmp_path / "missing.json")
    with pytest.raises(FormatError, match="is not JSON"):
        DimensionSchema.from_json(broken)


@pytest.fixture
def pings(tmp_path: Path) -> lakebed.Dataset:
    schema = pa.schema([("id", pa.int64()), ("reason", pa.string()), ("payload", PAYLOAD)])
    dataset = lakebed.open_repository(tmp_path).create(
        "pings",
        lakebed.DatasetDescriptor(
            schema=schema, partition_by=[by.dimension("reason", ["dir-1", "dir-2"])]
        ),
    )
    dataset.append(
        [
            {"id": 1, "reason": "dir-1", "payload": {"a": {"b": {"c": 10}}}},
            {"id": 2, "reason": "dir-2", "payload": {"a": {"b": None}}},
            {"id": 3, "reason": "dir-3", "payload": None},
        ]
    )
    dataset.append([{"id": 4, "reason": "dir-1"}, {"id": 5, "reason": None}])
    return dataset


PAYLOAD = pa.struct([("a", pa.struct([("b", pa.struct([("c", pa.int64())]))]))])


def test_b23_narrowing_gives_another_view_and_names_what_is_wrong(pings: lakebed.Dataset) -> None:
    narrowed = pings.kite.with_("reason", "dir-1")

    assert (pings.count(), narrowed.count()) == (5, 2)
    with pytest.raises(PredicateError, match="outside the view"):
        narrowed.kite.with_("reason", "dir-2")
    with pytest.raises(PredicateError, match="Did you mean 'reason'"):
        pings.kite.with_("reasons", "dir-1")


def test_b24_value_finds_the_folder_that_holds_it(pings: lakebed.Dataset) -> None:
    layout = layout_of(("dim1", "dir-1"), named=0, base="")
    paths = ["dir_1/file1", "dir_1/file2", "dir_2/file3", "dir_2/file4"]

    assert layout.select(paths).included == tuple(paths[:2])
    assert len(pings.where("reason = 'dir-1'").plan()) == 2


def test_b25_base_is_a_directory_whether_or_not_a_slash_follows() -> None:
    paths = ["a/b/dir1/x", "a/b/dir2/x", "a/bc/dir1/x", "a/dir1/x"]

    for base in ("a/b", "a/b/"):
        everything = layout_of(("dim1", "*"), named=0, base=base).select(paths)
        one = layout_of(("dim1", "dir1"), named=0, base=base).select(paths)
        assert (everything.included, one.included) == (tuple(paths[:2]), tuple(paths[:1]))


def test_b26_files_are_told_with_their_sizes(pings: lakebed.Dataset) -> None:
    (summary,) = pings.files()[:1]

    assert summary.key.startswith("pings/data/reason_dimension=")
    assert summary.size_bytes is not None
    assert summary.size_bytes > 0


# 27 and 28: groups. The original's round robin is not taken over: it is no balance.


def sums(groups: list[list[str]], sizes: dict[str, int]) -> list[int]:
    return sorted((sum(sizes[name] for name in group) for group in groups), reverse=True)


@pytest.mark.parametrize(
    ("count", "expected"), [(1, [10]), (2, [5, 5]), (3, [4, 3, 3]), (9, [4, 3, 2, 1])]
)
def test_b27_groups_of_sizes_one_to_four(count: int, expected: list[int]) -> None:
    sizes = {str(size): size for size in range(1, 5)}

    groups = balanced_groups(sizes, count)

    assert sums(groups, sizes) == expected
    assert sorted(itertools.chain(*groups)) == sorted(sizes)


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        ([70, 70, 70, 70], 2, [140, 140]),
        ([4, 1, 3, 2], 3, [4, 3, 3]),
        ([2, 2, 2], 3, [2, 2, 2]),
        ([150, 70, 70, 70], 2, [150, 140, 70]),
        ([100, 1, 1, 1], 2, [100, 3]),
        ([0, 0, 0, 0], 2, [0, 0]),
        ([2**33, 1], 1, [2**33, 1]),
    ],
)
def test_b28_groups_of_equal_size(sizes: list[int], count: int, expected: list[int]) -> None:
    named = {f"f{position}": size for position, size in enumerate(sizes)}

    groups = balanced_groups(named, count, threshold_bytes=100)

    assert sums(groups, named) == expected


def test_b28_groups_cannot_be_fewer_than_one() -> None:
    with pytest.raises(InvalidInputError, match="0 groups"):
        balanced_groups({"a": 1}, 0)


# 29 and 30: samples and nested fields


def test_b29_sample_of_files() -> None:
    paths = tuple(f"file{n}" for n in range(100))
    found = Selection(included=paths, excluded=(), refused={})
    sample: Callable = found.sample

    assert len(sample(0.1)) == 10
    assert sample(0.1) == sample(0.1) == sample(0.1, seed=42)
    assert len({sample(0.1, seed=None) for _ in range(5)}) > 1
    assert sample(0.1, limit=5) == paths[:5]
    assert (sample(0), sample(1)) == ((), paths)
    with pytest.raises(InvalidInputError, match=r"sample of 1\.5"):
        sample(1.5)


def test_b30_nested_field_that_is_missing_is_null(pings: lakebed.Dataset) -> None:
    rows = pings.arrow(["id", "payload"]).sort_by("id").to_pylist()

    assert [row["payload"] and row["payload"]["a"] for row in rows] == [
        {"b": {"c": 10}},
        {"b": None},
        None,
        None,
        None,
    ]
    assert pings.where("payload.a.b.c = 10").count() == 1
    assert pings.where("payload.a.b.c IS NULL").where("id > 2").count() == 3


def test_published_schema_holds_its_real_dimensions_in_order() -> None:
    schema = DimensionSchema.from_json(TELEMETRY)

    assert schema.names == (
        "reason",
        "appName",
        "appUpdateChannel",
        "appVersion",
        "appBuildID",
        "submission_date",
    )
    assert DimensionSchema.from_json(schema.to_json()) == schema
