"""The vectors of Mozilla's telemetry layout: names, paths, and trees that are read in."""

import pytest
from dimension_documents import NIGHTLY, TELEMETRY, document
from hypothesis import given
from hypothesis import strategies as st

from lakebed import DimensionSchema
from lakebed.errors import InvalidInputError
from lakebed.model.telemetry_layout import TelemetryLayout, limited, safe_name

SCHEMA = DimensionSchema.from_json(TELEMETRY)
LAYOUT = TelemetryLayout(schema=SCHEMA, base="foo")
OPEN = TelemetryLayout(
    schema=DimensionSchema.from_json(document(("a", "*"), ("b", "*"), ("date", "*"))), base="foo"
)


@pytest.mark.parametrize(
    ("values", "path"),
    [
        (
            ["saved-session", "Firefox", "nightly", "28.0a1", "20131112030204", "20131113"],
            "foo/saved_session/Firefox/nightly/28.0a1/20131112030204.20131113.v1.log",
        ),
        (["main"], "foo/main/OTHER/OTHER/OTHER/OTHER.OTHER.v1.log"),
        (None, "foo/OTHER/OTHER/OTHER/OTHER/OTHER.OTHER.v1.log"),
        ([], "foo/OTHER/OTHER/OTHER/OTHER/OTHER.OTHER.v1.log"),
    ],
)
def test_paths_under_the_published_schema(values, path: str) -> None:
    assert LAYOUT.path(values) == path


def test_value_that_is_safe_already_is_not_the_one_in_the_list() -> None:
    assert limited(SCHEMA, ["saved_session"])[0] == "OTHER"
    assert limited(SCHEMA, ["saved-session"])[0] == "saved-session"


def test_date_first_with_a_range_of_numbers() -> None:
    dates_first = DimensionSchema.from_json(
        document(
            ("submission_date", "*"),
            ("reason", ["idle-daily"]),
            ("appName", ["Firefox"]),
            ("appUpdateChannel", ["release"]),
            ("appVersion", "*"),
            ("appBuildID", "*"),
            ("memsize", {"min": 448, "max": 500, "type": "long"}),
        )
    )
    record = ["19700101", "idle-daily", "Firefox", "release", "23.0.1", "20130814063812"]

    assert limited(dates_first, [*record, 447]) == (*record, "OTHER")
    assert limited(dates_first, [*record, "448"]) == (*record, "448")
    assert limited(dates_first, [*record, 500]) == (*record, "500")
    assert limited(dates_first, [*record, "50"])[-1] == "OTHER"  # as text, it lies between


@given(st.lists(st.text("ab.-_~/é ", max_size=4), min_size=3, max_size=3))
def test_path_reads_back_as_what_was_written_or_is_refused(values: list[str]) -> None:
    try:
        path = OPEN.path(values)
    except InvalidInputError:
        return

    assert list(OPEN.values(path).values()) == [safe_name(value) for value in values]
    assert path.startswith("foo/")


@pytest.mark.parametrize(
    "name",
    [
        "b1.20130908.v1.log",
        "b1.20130908.v1.log.0123456789abcdef0123456789abcdef.lzma",
        "b1.20130908.v5.log.0123456789abcdef0123456789abcdef.xz",
        "b1.20130908.v1.log.1234.1370000000.compressme",
    ],
)
def test_names_of_every_stage_hold_the_same_dimensions(name: str) -> None:
    assert OPEN.values(f"foo/x/{name}") == {"a": "x", "b": "b1", "date": "20130908"}


def test_tree_without_dimensions_in_names_takes_any_name() -> None:
    layout = TelemetryLayout(schema=OPEN.schema, base="", named=0)

    assert layout.values("x/y/z/any-name.gz") == {"a": "x", "b": "y", "date": "z"}
    with pytest.raises(InvalidInputError, match="holds 2 dimensions, not 3"):
        layout.values("x/y/any-name.gz")


@pytest.mark.parametrize("base", ["foo", "./foo", "foo/", "/foo", "/a/b", "", ".", "a/b/"])
def test_base_may_be_written_in_several_ways(base: str) -> None:
    layout = TelemetryLayout(schema=OPEN.schema, base=base)

    path = layout.path(["x", "y", "20130908"])

    assert list(layout.values(path).values()) == ["x", "y", "20130908"]


def test_more_dimensions_in_names_than_there_are_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="4 of 3 dimensions"):
        TelemetryLayout(schema=OPEN.schema, named=4)


def test_schema_of_the_originals_tests() -> None:
    schema = DimensionSchema.from_json(NIGHTLY)
    given = ["bogus", "someAppName", "nightly", "someAppVersion", "someBuildID", "20130908"]

    assert limited(schema, given) == ("OTHER", *given[1:])
    assert limited(schema, ["saved-session", "anything is ok"])[1] == "anything is ok"
