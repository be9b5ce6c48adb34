"""Kite's golden vectors, by the sections in which they are kept: hash to names.

Most stand beside what they are about, and are named in `ELSEWHERE`.
"""

import datetime as dt
import re
import uuid
from pathlib import Path

import pytest
from numbered_rules import is_test, numbers_of

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, by
from lakebed.errors import InvalidNameError, PredicateError

ELSEWHERE: dict[int, tuple[str, ...]] = {
    1: (  # hash
        "model/test_hashing.py::test_hash_code_is_javas",
        "model/test_hashing.py::test_user_1234_of_the_design_draft_is_in_bucket_15",
        "model/test_partition_values.py::test_vectors_19_1_hash_goes_by_the_type_of_the_schema",
    ),
    2: (  # ranges
        "model/test_partition_values.py::test_vectors_19_2_ranges",
        "model/test_partition_values.py::"
        "test_vectors_19_2_value_without_a_place_is_an_error_that_names_it",
        "model/test_partition_values.py::"
        "test_defect_20_11_fixed_ranges_are_exact_at_the_ends_of_a_long",
    ),
    3: (  # time
        "model/test_partition_functions.py::test_calendar_parts_are_kites_in_utc",
        "model/test_partition_values.py::test_vectors_19_3_calendar_of_numbers",
        "model/test_partition_values.py::test_vectors_19_3_date_format",
    ),
    4: (  # names of directories
        "model/test_names_and_keys.py::test_level_reads_as_hive_and_kartothek_expect",
        "model/test_names_and_keys.py::test_kites_padded_numbers_are_read",
    ),
    5: (  # projections
        "model/test_projection.py::test_year_is_projected_as_in_kite",
        "model/test_projection.py::test_vectors_19_5_of_ranges_of_one_size",
        "model/test_projection.py::test_vectors_19_5_of_value_lists",
        "model/test_projection.py::test_year_month_and_day_prune_together",
    ),
    6: (  # alignment
        "model/test_projection.py::test_view_on_partition_boundaries_is_aligned",
        "model/test_projection.py::test_view_inside_partitions_is_not_aligned",
        "model/test_projection.py::test_vectors_19_6_alignment_of_every_function",
        "test_view.py::test_alignment_is_that_of_kite",
        "test_view.py::test_hash_of_a_field_is_not_aligned_with_it",
    ),
    7: (  # URIs and names
        "model/test_uri.py::test_view_has_its_form_and_is_opened_by_it",
        "model/test_names_and_keys.py::test_kites_field_names_are_legal",
        "model/test_names_and_keys.py::test_illegal_field_name_is_refused_with_a_suggestion",
    ),
}


def test_every_section_has_a_test() -> None:
    assert numbers_of(globals(), "v") | set(ELSEWHERE) == set(range(1, 8))


@pytest.mark.parametrize("number", ELSEWHERE)
def test_tests_elsewhere_are_there(number: int) -> None:
    assert ELSEWHERE[number]
    assert [one for one in ELSEWHERE[number] if not is_test(one)] == []


SCHEMA = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "timestamp", "type": ["null", "long"]},
        {"name": "color", "type": ["null", "string"]},
        {"name": "ratio", "type": ["null", "float"]},
        {"name": "value", "type": ["null", "int"]},
    ],
}
YEAR_MONTH_DAY = "year(timestamp), month(timestamp), day(timestamp)"


@pytest.fixture
def lake() -> Repository:
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}")


def create(lake: Repository, partition_by: object = (), **options: object) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=partition_by, **options)
    return lake.create("events", descriptor)


# Names of directories


def test_v04_directory_of_a_day(lake: Repository) -> None:
    # Kite pads months and days to two digits; Lakebed writes numbers as Hive does, and reads both.
    events = create(lake, YEAR_MONTH_DAY, format="avro")

    commit = events.append([{"id": 1, "timestamp": 1379020547042}])

    (file,) = events.files()
    pattern = rf"events/data/year=2013/month=9/day=12/batch_id={commit.batch_id}/part-\w+\.avro"
    assert re.fullmatch(pattern, file.key)
    assert events.inspect.partitions()[0].values == {"year": 2013, "month": 9, "day": 12}


@pytest.mark.parametrize(
    ("value", "level"),
    [
        ("John Doe", "John%20Doe"),  # Kite: John+Doe, which Spark would read as it stands
        ("NY/USA", "NY%2FUSA"),
        ("a=b", "a%3Db"),
        ("100%", "100%25"),
        ("~", "~"),
        ("*", "%2A"),
        ("\u00e9", "%C3%A9"),
        ("a,b", "a%2Cb"),
        ("a+b", "a%2Bb"),
        ("\t", "%09"),
        ("\u65e5\u672c", "%E6%97%A5%E6%9C%AC"),
        (".", "."),
        ("..", ".."),
        ("_x", "_x"),
        ("", ""),
    ],
)
def test_v04_every_text_has_a_directory_and_comes_back(
    tmp_path: Path, value: str, level: str
) -> None:
    events = create(lakebed.open_repository(tmp_path), [by.identity("color", name="color_copy")])

    events.append([{"id": 1, "color": value}])

    (partition,) = events.inspect.partitions()
    assert partition.path == f"color_copy={level}"
    assert partition.values == {"color_copy": value}
    assert (tmp_path / "events" / "data" / partition.path).is_dir()
    assert events.kite.with_("color_copy", value).arrow(["color"])["color"].to_pylist() == [value]


# Alignment, as what a delete rewrites


@pytest.mark.parametrize(
    ("start", "stop", "is_aligned"),
    [
        (None, "2013-09-12T23:59:59.999", True),
        (None, "2013-09-12T23:59:57.999", False),
        ("2013-10-12T00:00:00.000", "2013-10-12T23:59:59.999", True),
        ("2013-10-12T00:01:00.000", "2013-10-12T23:59:59.999", False),
    ],
)
def test_v06_ends_of_a_day_to_the_millisecond(
    lake: Repository, start: str | None, stop: str, *, is_aligned: bool
) -> None:
    # Kite refuses to delete the others; Lakebed writes the files concerned anew.
    events = create(lake, YEAR_MONTH_DAY)
    days = [millis("2013-09-12T23:59:58.500"), millis("2013-10-12T00:00:30.000")]
    hours = [millis("2013-09-12T05:00:00.000"), millis("2013-10-12T05:00:00.000")]
    events.append([{"id": i, "timestamp": one} for i, one in enumerate([*days, *hours])])
    view = events.kite.to("timestamp", millis(stop))
    view = view if start is None else view.kite.from_("timestamp", millis(start))

    commit = view.delete()

    assert view.kite.is_aligned() is is_aligned
    assert commit is not None
    assert (commit.files_added == ()) is is_aligned
    assert events.count() == (2 if is_aligned else 3)


def millis(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


# URIs and names


def test_v07_dataset_has_the_uri_of_its_repository_and_its_name(tmp_path: Path) -> None:
    # Kite writes file:/datasets/ns/test-name; Lakebed has directories in the place of namespaces.
    lake = lakebed.open_uri(f"repo:file:{tmp_path}/datasets/ns")
    assert isinstance(lake, Repository)
    events = lake.create("test-name", DatasetDescriptor(schema=SCHEMA))

    assert events.kite.uri == f"dataset:{lake.uri}/test-name"
    for uri in (events.kite.uri, f"dataset:file:{tmp_path}/datasets/ns/test-name"):
        opened = lakebed.open_uri(uri)
        assert isinstance(opened, Dataset)
        assert opened.kite.is_of(events)


def test_v07_constraints_have_kites_forms(lake: Repository) -> None:
    events = create(lake)
    ranges = events.kite.from_("timestamp", 0).kite.to_before("timestamp", 5)

    for view, query in [
        (
            ranges.kite.from_after("color", "green").kite.to("color", "red"),
            "timestamp=[0,5)&color=(green,red]",
        ),
        (events.kite.with_("color", "", "orange"), "color=,orange"),
        (events.kite.with_("color", "a", "b", ""), "color=a,b,"),
        (events.kite.with_("ratio", 34.0, 5.6), "ratio=34.0,5.6"),
        (events.kite.with_("value", 45, 123), "value=45,123"),
    ]:
        assert view.kite.uri == f"view:{events.uri}?{query}"
        opened = lakebed.open_uri(view.kite.uri)
        assert isinstance(opened, lakebed.View)
        assert opened.constraint == view.constraint


def test_v07_option_that_is_no_constraint_is_refused(lake: Repository) -> None:
    # Kite keeps hdfs:port=1080 in the URI; settings of a store are given beside it, and any other
    # query field would widen the view.
    events = create(lake)

    with pytest.raises(PredicateError, match="hdfs:port"):
        lakebed.open_uri(f"view:{events.uri}?hdfs:port=1080")


@pytest.mark.parametrize(
    ("name", "is_field", "is_dataset"),
    [
        ("foo", True, True),
        ("Foo", True, True),
        ("3foo", True, True),
        ("_foo", True, True),
        ("foo3", True, True),
        ("foo_bar", True, True),
        ("foo.bar", False, False),
        ("foo-bar", True, True),  # Kartothek's rule for datasets takes a hyphen
        ("foo*", True, False),
    ],
)
def test_v07_names(lake: Repository, name: str, *, is_field: bool, is_dataset: bool) -> None:
    schema = {"type": "record", "name": "e", "fields": [{"name": name, "type": "long"}]}
    plain = DatasetDescriptor(schema=SCHEMA)

    if is_field:
        lake.create("fields", DatasetDescriptor(schema=schema)).append([{name: 1}])
    else:
        with pytest.raises(InvalidNameError):
            DatasetDescriptor(schema=schema)
    if is_dataset:
        lake.create(name, plain)
        assert name in lake.list()
    else:
        with pytest.raises(InvalidNameError):
            lake.create(name, plain)
