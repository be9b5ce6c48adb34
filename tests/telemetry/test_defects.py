"""What was wrong with the original layout, and is not here: one test for each of the twelve."""

import datetime as dt
from pathlib import Path

import pytest
from dimension_documents import TELEMETRY, document

import lakebed
from lakebed import DimensionSchema, by
from lakebed.errors import InvalidInputError
from lakebed.model.telemetry_layout import TelemetryLayout, limited

LAYOUT = TelemetryLayout(schema=DimensionSchema.from_json(TELEMETRY), base="foo")
START = ["idle-daily", "Firefox", "release"]
HOSTILE = [
    "../../etc",
    "/abs",
    "..",
    ".",
    "",
    "build.with.dots",
    "a-b",
    "a_b",
    "a b",
    "2013/1/1",
    "日本",
    "東京",
    "OTHER",
    "UNKNOWN",
    "~OTHER",
    "\0",
    "x=y",
]


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> lakebed.Dataset:
    """Hostile values, one entity each, and one without a value; to be read."""
    tmp_path = tmp_path_factory.mktemp("builds")
    schema = {
        "type": "record",
        "name": "build",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "build", "type": ["null", "string"]},
        ],
    }
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=[by.dimension("build")])
    dataset = lakebed.open_repository(tmp_path / "lake").create("builds", descriptor)
    dataset.append([{"id": i, "build": value} for i, value in enumerate([*HOSTILE, None])])
    return dataset


def test_d01_value_cannot_climb_out_of_the_tree(builds: lakebed.Dataset) -> None:
    for value in ("../../etc", "/abs", "..", "."):
        with pytest.raises(InvalidInputError, match="cannot be read back from their path"):
            LAYOUT.path([*START, value, "b", "20130908"])

    lake = Path(builds.uri.removeprefix("file://")).parent
    assert list(lake.parent.iterdir()) == [lake]
    depths = {len(file.key.split("/")) for file in builds.files()}
    assert len(depths) == 1


@pytest.mark.parametrize("value", HOSTILE)
def test_d02_slash_and_dot_in_a_value_shift_no_level(builds: lakebed.Dataset, value: str) -> None:
    view = builds.kite.with_("build", value)

    assert [row["build"] for row in view.kite.reader()] == [value]
    # OTHER may hold what a cap has sent there; nothing has, so that there is no such file.
    assert len(view.plan()) == 1


def test_d02_dot_in_the_build_reads_back_in_the_original_layout() -> None:
    values = [*START, "28.0a1", "build.with.dots", "20130908"]

    path = LAYOUT.path(values)

    assert path == "foo/idle_daily/Firefox/release/28.0a1/build.with.dots.20130908.v1.log"
    assert LAYOUT.values(path)["appBuildID"] == "build.with.dots"


def test_d03_empty_value_collapses_no_level(builds: lakebed.Dataset) -> None:
    with pytest.raises(InvalidInputError, match="supports no empty value"):
        LAYOUT.path([*START, "", "b", "20130908"])
    with pytest.raises(InvalidInputError, match="holds"):
        LAYOUT.values("foo/idle_daily/Firefox//28.0a1/b.20130908.v1.log")

    assert "build_dimension=" in {partition.path for partition in builds.inspect.partitions()}


def test_d04_date_makes_no_directories() -> None:
    with pytest.raises(InvalidInputError, match="cannot be read back from their path"):
        LAYOUT.path([*START, "28.0a1", "b", "2013/1/1"])


@pytest.mark.parametrize(
    "path",
    [
        "foobar/x/y/z/v/b.20130908.v1.log",
        "fo",
        "foo",
        "",
        "/foo/x/y/z/v/b.20130908.v1.log",
        "foo/../bar/x/y/z/v/b.20130908.v1.log",
    ],
)
def test_d05_base_is_compared_by_segments(path: str) -> None:
    with pytest.raises(InvalidInputError, match="outside 'foo'"):
        LAYOUT.values(path)


def test_d06_file_without_a_dot_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidInputError, match="'foo/a/b/c/d/file' does not hold 2 dimensions"):
        LAYOUT.values("foo/a/b/c/d/file")


def test_d07_values_that_look_alike_share_no_directory(builds: lakebed.Dataset) -> None:
    partitions = [partition.path for partition in builds.inspect.partitions()]

    assert len(partitions) == len(set(partitions)) == len(HOSTILE) + 1


def test_d08_open_range_lets_no_token_pass() -> None:
    layout = TelemetryLayout(
        schema=DimensionSchema.from_json(document(("channel", {"min": "2"}))), base="", named=0
    )
    paths = [f"{value}/part" for value in ("20130607", "OTHER", "other", "UNKNOWN")]

    assert layout.select(paths).included == ("20130607/part",)


def test_d08_range_compares_in_the_type_that_is_declared() -> None:
    of_numbers = DimensionSchema.from_json(document(("n", {"min": "20", "type": "long"})))
    of_days = by.dimension("day", {"max": "2013-06-07"}, name="p")

    assert limited(of_numbers, ["9"]) == limited(of_numbers, ["OTHER"]) == ("OTHER",)
    assert limited(of_numbers, ["100"]) == ("100",)
    strategy = lakebed.PartitionStrategy((of_days,))
    day = lakebed.DatasetDescriptor(
        schema={
            "type": "record",
            "name": "r",
            "fields": [
                {"name": "day", "type": {"type": "int", "logicalType": "date"}},
                {"name": "n", "type": "int"},
            ],
        },
        partition_by=strategy,
    ).schema
    assert strategy.values({"day": dt.date(2013, 6, 7)}, day) == {"p": "2013-06-07"}
    assert strategy.values({"day": dt.date(2013, 6, 8)}, day) == {"p": "OTHER"}


def test_d09_tokens_meet_no_genuine_value(builds: lakebed.Dataset) -> None:
    partitions = {partition.path: partition.row_count for partition in builds.inspect.partitions()}

    assert partitions["build_dimension=UNKNOWN"] == 1
    assert partitions["build_dimension=~UNKNOWN"] == 1
    assert partitions["build_dimension=~OTHER"] == 1
    assert partitions["build_dimension=~~OTHER"] == 1
    assert "build_dimension=OTHER" not in partitions
    assert builds.where("build IS NULL").count() == 1


@pytest.mark.parametrize("allowed", ["saved-session", ["saved-session"], {"max": "saved-session"}])
def test_d10_allowed_values_of_every_kind_are_compared_alike(allowed: object) -> None:
    layout = TelemetryLayout(
        schema=DimensionSchema.from_json(document(("reason", allowed))), base="", named=0
    )

    assert layout.select(["saved_session/part"]).included == ("saved_session/part",)


def test_d11_values_of_every_script_have_partitions_of_their_own(builds: lakebed.Dataset) -> None:
    assert builds.kite.with_("build_dimension", "日本").count() == 1
    assert builds.kite.with_("build_dimension", "東京").count() == 1


def test_d12_no_input_explodes_the_tree(tmp_path: Path) -> None:
    descriptor = lakebed.DatasetDescriptor(
        schema={
            "type": "record",
            "name": "r",
            "fields": [{"name": "version", "type": "string"}, {"name": "n", "type": "int"}],
        },
        partition_by=[by.dimension("version", cap=10, name="p")],
    )
    dataset = lakebed.open_repository(tmp_path).create("pings", descriptor)

    commit = dataset.append([{"version": f"v{n}", "n": n} for n in range(100)])

    assert len(dataset.inspect.partitions()) == 11
    (caught,) = commit.caught
    assert (caught.dimension, caught.cap, caught.row_count) == ("p", 10, 90)
    assert dataset.count() == 100
