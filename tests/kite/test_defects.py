"""The 16 defects that Kite has, each under its number, and none of them in Lakebed."""

import concurrent.futures
import datetime as dt
import re
import uuid
from pathlib import Path

import fastavro
import pytest
from numbered_rules import is_test, numbers_of

import lakebed
from lakebed import (
    CommitOptions,
    DatasetDescriptor,
    PartitionStrategy,
    Repository,
    WriteOptions,
    by,
)
from lakebed.errors import InvalidNameError, LakebedError, PartitionSpecError
from lakebed.model.schema import Kind, Primitive
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

ELSEWHERE: dict[int, tuple[str, ...]] = {
    1: ("model/test_projection.py::test_defect_20_1_bounded_ranges_are_not_off_by_one",),
    2: (
        "model/test_projection.py::test_month_without_its_year_prunes_no_range",
        "model/test_projection.py::test_part_without_its_parent_promises_nothing",
    ),
    3: (
        "model/test_projection.py::test_defect_20_3_unsortable_date_format_prunes_no_range",
        "model/test_projection.py::test_patterns_prune_ranges_where_texts_sort_as_times",
    ),
    4: ("model/test_projection.py::test_defect_20_4_text_ranges_take_every_constraint",),
    7: (
        "test_view.py::test_every_entity_outside_the_view_is_refused_and_nothing_is_left",
        "test_view.py::test_entity_outside_is_found_in_any_form_of_data",
    ),
    9: (
        "test_evolution.py::test_an_update_on_a_failing_store_happens_wholly_or_not_at_all",
        "test_evolution.py::test_a_refused_update_changes_nothing",
        "test_evolution.py::test_of_two_updates_at_a_time_one_conflicts",
    ),
    10: (
        "model/test_uri.py::test_constraint_that_does_not_fit_is_refused",
        "cli/test_delete.py::TestDelete::test_unknown_constraint_of_a_view_uri_is_refused",
    ),
    11: (
        "model/test_partition_values.py::"
        "test_defect_20_11_fixed_ranges_are_exact_at_the_ends_of_a_long",
    ),
    14: (
        "model/test_partition_forms.py::test_behaviour_45_malformed_json_is_refused_with_its_place",
    ),
    16: (
        "arrow/test_inference.py::test_type_comes_from_all_rows_not_from_the_first",
        "arrow/test_inference.py::test_column_of_csv_has_the_narrowest_type_that_holds_all",
    ),
}


def test_every_defect_has_a_test() -> None:
    assert numbers_of(globals(), "d") | set(ELSEWHERE) == set(range(1, 17))


@pytest.mark.thorough
@pytest.mark.parametrize("number", ELSEWHERE)
def test_tests_elsewhere_are_there(number: int) -> None:
    assert ELSEWHERE[number]
    assert [one for one in ELSEWHERE[number] if not is_test(one)] == []


UTC = dt.UTC
QUICK = CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)
SCHEMA = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "i", "type": ["null", "int"]},
        {"name": "s", "type": ["null", "string"]},
        {"name": "ts", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}


def create(partition_by: str = "", **options: object) -> lakebed.Dataset:
    store = MemoryStore(uuid.uuid4().hex)
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=partition_by or (), **options)
    return Repository(store).create("events", descriptor)


def ids(view: lakebed.View) -> list[int]:
    return sorted(view.arrow(["id"])["id"].to_pylist())


@pytest.mark.parametrize(("text", "expected"), [("i < 15", [0, 1, 2]), ("i <= 14", [0, 1, 2])])
def test_d01_range_that_ends_on_a_bound_leaves_it_out(text: str, expected: list[int]) -> None:
    events = create("range(i, 5, 10, 15, 20)")
    events.append([{"id": n, "i": i} for n, i in enumerate((5, 10, 14, 15, 16))])
    view = events.where(text)

    assert ids(view) == expected
    assert not view.kite.is_aligned()
    view.delete()
    assert ids(events) == [3, 4]


@pytest.mark.filterwarnings("ignore:Partitions of .* repeat:lakebed.errors.LakebedWarning")
@pytest.mark.parametrize("part", ["month", "day", "hour"])
def test_d02_part_of_a_calendar_without_its_year_loses_and_adds_nothing(part: str) -> None:
    events = create(f"{part}(ts)")
    moments = ["2012-02-10", "2012-11-20", "2013-01-15", "2013-02-05", "2014-02-05"]
    events.append(
        [
            {"id": n, "ts": dt.datetime.fromisoformat(f"{one}T05:00Z")}
            for n, one in enumerate(moments)
        ]
    )

    winter = events.where("ts >= '2012-11-15' AND ts < '2013-02-10'")
    february = events.where("ts >= '2013-02-01' AND ts < '2013-03-01'")

    assert (ids(winter), ids(february)) == ([1, 2, 3], [3])
    assert not february.kite.is_aligned()
    february.delete()
    assert ids(events) == [0, 1, 2, 4]


def test_d03_pattern_that_does_not_sort_loses_no_rows() -> None:
    events = create("date_format(ts, 'dd-MM-yyyy') as day")
    days = ["2013-09-11", "2013-09-12", "2013-09-30", "2013-10-12"]
    events.append(
        [{"id": n, "ts": dt.datetime.fromisoformat(f"{one}T05:00Z")} for n, one in enumerate(days)]
    )

    assert ids(events.where("ts >= '2013-09-12' AND ts < '2013-10-12'")) == [1, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("s >= '0' AND s < 'a'", [0]),
        ("s >= 'aa' AND s <= 'b'", [2, 3]),
        ("s <= 'd'", [0, 1, 2, 3]),
        ("s > 'c'", []),
        ("s = 'x'", []),
        ("s IN ('aa', 'x')", [2]),
    ],
)
@pytest.mark.parametrize(
    "partition_by", ["range(s, 'a', 'b', 'c')", "values(s, ['0', 'a'], ['aa', 'b'])"]
)
def test_d04_constraint_beyond_bounds_and_lists_matches_nothing_there(
    partition_by: str, text: str, expected: list[int]
) -> None:
    events = create(partition_by)
    events.append([{"id": n, "s": s} for n, s in enumerate(("0", "a", "aa", "b"))])

    assert ids(events.where(text)) == expected


@pytest.mark.parametrize("text", ["h\u00e9llo", "\u65e5\u672c", "\U0001f600", "ascii"])
def test_d05_text_has_one_hash_whatever_it_was_read_from(text: str, tmp_path: Path) -> None:
    events = create("hash(s, 16)", format="avro")
    path = tmp_path / "events.avro"
    with path.open("wb") as file:
        fastavro.writer(file, SCHEMA, [{"id": 1, "s": text}])
    with path.open("rb") as file, events.kite.writer() as writer:
        for record in fastavro.reader(file):
            writer.write(record)
    events.append([{"id": 2, "s": text}])
    events.load([path])

    assert len(events.inspect.partitions()) == 1
    assert ids(events.kite.with_("s", text)) == [1, 1, 2]


def test_d05_hash_is_of_utf_16_units() -> None:
    function = by.hash("s", 16)

    assert function.value("h\u00e9llo", Primitive(Kind.STRING)) == 14


def test_d06_nothing_is_hidden_by_its_name() -> None:
    with pytest.raises(InvalidNameError, match="hide"):
        by.identity("s", name="_s")
    with pytest.raises(InvalidNameError, match="hide"):
        create("hash(i, 3) as _i")

    lake = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    events = lake.create("_events", DatasetDescriptor(schema=SCHEMA, partition_by="s"))
    events.append([{"id": 1, "s": "_hidden"}, {"id": 2, "s": ".hidden"}])

    assert lake.list() == ["_events"]
    assert ids(lake.open("_events")) == [1, 2]


@pytest.mark.thorough
@pytest.mark.parametrize("partition_by", ["", "hash(id, 1)"])
def test_d08_files_roll_with_and_without_partitions(partition_by: str) -> None:
    events = create(partition_by)
    with events.with_options(write=WriteOptions(target_bytes=20_000)).kite.writer() as writer:
        for number in range(20_000):
            writer.write({"id": number, "s": f"{number * 2654435761 % 2**32:x}"})

    sizes = [file.size_bytes for file in events.files()]
    assert len(sizes) > 3
    assert max(sizes) < 40_000
    assert events.count() == 20_000


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("nth", range(1, 8))
def test_d12_writer_of_many_partitions_that_fails_to_close_leaves_nothing(
    nth: int, *, landed: bool
) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="s")
    events = Repository(store).create("events", descriptor)
    failing = FailingStore(store, fail_on="put", nth=nth, landed=landed)
    writer = Repository(failing).open("events").with_options(commit=QUICK).kite.writer()
    for n, s in enumerate("abcdef"):
        writer.write({"id": n, "s": s})

    try:
        writer.close()
        has_failed = False
    except LakebedError:
        has_failed = True

    left = [info.key for info in store.list("events/data") if "part-" in info.key]
    assert has_failed or events.version == 1
    assert ids(events) == ([] if events.version == 0 else list(range(6)))
    assert len(left) == (0 if events.version == 0 else 6)
    assert has_failed or nth > 6  # one put for each of six files


def test_d13_sizes_are_of_the_files_of_the_dataset_alone(tmp_path: Path) -> None:
    lake = lakebed.open_repository(tmp_path)
    events = lake.create("events", DatasetDescriptor(schema=SCHEMA, partition_by="s"))
    events.append([{"id": 1, "s": "a"}])
    (file,) = events.files()
    size = (tmp_path / file.key).stat().st_size
    for name in (".hidden.tmp", "_temporary", "other.parquet"):
        (tmp_path / file.key).with_name(name).write_bytes(b"x" * 1_000)

    (partition,) = lake.open("events").inspect.partitions()

    assert partition.size_bytes == file.size_bytes == size


@pytest.mark.parametrize("bounds", [["m", "z", "M", "Z"], [2, 1], [1, 1]])
def test_d14_bounds_out_of_order_are_refused(bounds: list) -> None:
    with pytest.raises(PartitionSpecError, match="must ascend"):
        by.range("s", bounds)
    with pytest.raises(PartitionSpecError):
        PartitionStrategy.parse(f"range(s, {', '.join(map(repr, bounds))})")


def test_d15_one_date_format_serves_many_threads() -> None:
    function, source = by.date_format("ts", "yyyy-MM-dd HHmmssSSS"), Primitive(Kind.TIMESTAMP)
    first = dt.datetime(2013, 1, 1, tzinfo=UTC)
    moments = [first + dt.timedelta(days=n, milliseconds=n) for n in range(500)]
    alone = [function.value(moment, source) for moment in moments]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [function.value(m, source) for m in moments], range(8)))

    assert found == [alone] * 8
    assert all(re.fullmatch(r"201[34]-\d\d-\d\d \d{9}", str(text)) for text in alone)


def test_d16_csv_is_typed_by_all_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("a,b,c\n1,1,-1\n-2,x,-2.5\n")

    schema = lakebed.infer_schema(path)

    assert [str(field.type) for field in schema] == ["long", "string", "double"]
