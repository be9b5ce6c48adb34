"""The 48 behaviours that Kite's own tests show, each under its number, in the words of Lakebed.

Those that another file shows already are named in `ELSEWHERE`. Where Lakebed promises something
else than Kite, a comment says what.
"""

import datetime as dt
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click.testing
import pytest
from numbered_rules import is_test, numbers_of

import lakebed
from lakebed import DatasetDescriptor, Repository, View, by
from lakebed.cli import main
from lakebed.errors import (
    AlreadyExistsError,
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    PartitionSpecError,
    PredicateError,
    SchemaMismatchError,
)

ELSEWHERE: dict[int, tuple[str, ...]] = {
    # A. Writers and readers
    1: ("work/test_writer.py::test_behaviour_1_nothing_is_visible_before_the_writer_is_closed",),
    2: ("work/test_writer.py::test_behaviour_2_empty_writer_leaves_no_file_and_no_version",),
    3: (
        "work/test_writer.py::test_behaviour_3_writer_whose_store_failed_commits_nothing",
        "work/test_writer.py::test_behaviour_3_error_in_the_block_leaves_nothing",
    ),
    4: (
        "work/test_writer.py::test_behaviour_4_bad_record_raises_and_the_writer_stays_usable",
        "work/test_writer.py::test_behaviour_4_entity_without_a_partition_is_a_bad_record",
        "work/test_writer.py::test_behaviour_4_entity_outside_the_view_is_a_bad_record",
    ),
    5: ("work/test_writer.py::test_behaviour_5_closing_twice_is_fine",),
    6: (
        "work/test_writer.py::test_behaviour_6_writer_that_has_ended_takes_nothing_more",
        "work/test_writer.py::test_behaviour_6_closed_reader_refuses",
    ),
    7: ("work/test_writer.py::test_behaviour_7_next_past_the_end_stops",),
    # Kite shows what was flushed; Lakebed shows files by the commit alone.
    8: (
        "work/test_writer.py::test_behaviour_8_files_of_a_writer_become_visible_by_the_commit_alone",
    ),
    9: (
        "arrow/test_kernel.py::test_behaviour_9_files_from_2_mib_on_are_within_a_tenth_of_the_target",
        "work/test_writer.py::test_behaviour_9_rolled_files_hold_every_entity_once",
    ),
    10: ("work/test_writer.py::test_behaviour_10_writer_that_stays_open_begins_other_files",),
    11: (
        "work/test_writer.py::test_behaviour_11_entities_of_an_older_schema_are_read_by_the_newer",
        "arrow/test_formats.py::test_behaviour_11_file_of_an_older_schema_is_read_by_the_newer",
        "arrow/test_formats.py::test_any_avro_reader_understands_the_files",
    ),
    # B. Partition functions and paths
    12: (
        "model/test_hashing.py::test_hash_code_is_javas",
        "model/test_partition_values.py::test_vectors_19_1_hash_goes_by_the_type_of_the_schema",
        "model/test_partition_values.py::test_vectors_19_2_ranges",
        "model/test_partition_values.py::test_vectors_19_3_calendar_of_numbers",
        "kite/test_vectors.py::test_v04_directory_of_a_day",
    ),
    13: (
        "work/test_writer.py::test_behaviour_13_ten_users_over_two_hashes_make_six_partitions",
        "arrow/test_kernel.py::test_behaviour_13_ten_users_over_two_hashes_lie_in_six_partitions",
    ),
    17: ("model/test_names_and_keys.py::test_kites_padded_numbers_are_read",),
    18: (
        "model/test_names_and_keys.py::test_path_that_does_not_fit_is_corrupt",
        "model/test_names_and_keys.py::test_reference_that_leaves_its_prefix_is_corrupt",
    ),
    # C. Views
    19: ("test_view.py::test_view_reads_exactly_the_entities_that_it_includes",),
    21: (
        "test_view.py::test_writer_goes_on_after_an_entity_outside",
        "test_view.py::test_every_entity_outside_the_view_is_refused_and_nothing_is_left",
    ),
    22: (
        "test_view.py::test_refinement_narrows_and_a_set_replaces",
        "test_view.py::test_refinement_outside_the_view_is_refused",
    ),
    24: (
        "model/test_projection.py::test_vectors_19_5_of_ranges_of_one_size",
        "model/test_projection.py::test_vectors_19_5_of_value_lists",
        "model/test_projection.py::test_year_is_projected_as_in_kite",
        "model/test_projection.py::test_year_month_and_day_prune_together",
        "model/test_projection.py::test_equality_prunes_by_hash_and_ranges_do_not",
        "model/test_projection.py::test_law_holds_for_every_function",
    ),
    25: (
        "test_view.py::test_alignment_is_that_of_kite",
        "model/test_projection.py::test_vectors_19_6_alignment_of_every_function",
    ),
    26: (
        "work/test_deletion.py::test_whole_partitions_go_by_metadata_alone",
        "work/test_deletion.py::test_nothing_to_delete_is_no_new_version",
    ),
    27: (
        "test_view.py::test_covering_partitions_are_disjoint_views_in_path_order_and_need_the_head_only",
        "test_view.py::test_view_reads_exactly_the_entities_that_it_includes",
    ),
    28: (
        "model/test_uri.py::test_view_has_its_form_and_is_opened_by_it",
        "model/test_uri.py::test_every_view_that_refinements_make_comes_back",
        "model/test_uri.py::test_every_view_that_sql_makes_comes_back",
    ),
    29: ("test_view.py::test_refinement_is_strict_about_names_and_types",),
    # Kite leaves out subtrees while it lists; Lakebed lists nothing at all.
    30: (
        "plan/test_plan.py::test_plan_takes_the_requests_that_it_says_and_lists_nothing",
        "arrow/test_scan.py::test_planned_files_alone_are_read_and_nothing_is_listed",
    ),
    # D. Metadata and evolution
    32: (
        "test_repository.py::test_taken_name_is_an_error",
        "test_repository.py::test_missing_dataset_names_the_nearest_or_all",
        "test_provider.py::TestEveryProvider::test_deleting_what_is_not_there_is_false",
    ),
    33: (
        "test_evolution.py::test_a_refused_update_changes_nothing",
        "model/test_evolution.py::test_other_partitions_are_refused",
    ),
    34: ("test_evolution.py::test_old_and_new_files_read_as_one",),
    35: (
        "model/test_evolution.py::test_every_historic_schema_must_stay_readable",
        "test_evolution.py::test_twenty_versions_are_kept",
        "test_evolution.py::test_an_equal_descriptor_makes_no_new_version",
    ),
    36: (
        "test_evolution.py::test_a_provided_partition_becomes_a_field_of_the_same_name",
        "model/test_evolution.py::test_a_provided_function_may_be_replaced_by_one_that_holds_its_values",
    ),
    37: ("test_evolution.py::test_properties_and_compression_change_without_a_new_schema",),
    38: ("test_evolution.py::test_a_thousand_fields_evolve",),
    39: ("model/test_partition_forms.py::test_behaviour_39_every_function_survives_json_and_text",),
    # A head always says where its files lie; what it may lack are the optional keys.
    40: (
        "test_evolution.py::test_a_descriptor_without_optional_keys_loads",
        "test_evolution.py::test_a_dataset_of_the_first_format_evolves",
    ),
    # E. Replacing, jobs
    42: (
        "test_dataset.py::test_overwrite_replaces_the_partitions_that_the_data_touches",
        "test_dataset.py::test_overwrite_of_the_dataset_replaces_everything",
        "test_dataset.py::test_overwrite_takes_a_view_of_the_same_dataset_only",
        "test_view.py::test_overwrite_of_a_view_replaces_it_and_refuses_the_rest",
    ),
    43: (
        "test_view.py::test_append_where_the_view_must_be_empty",
        "test_view.py::test_view_that_must_be_empty_stays_so_until_the_commit",
    ),
    # F. Validation
    45: (
        "model/test_partition_forms.py::test_behaviour_45_malformed_json_is_refused_with_its_place",
        "model/test_partition_functions.py::test_json_that_is_no_strategy_is_refused",
        "model/test_partition_forms.py::test_function_that_does_not_fit_the_schema_is_refused",
    ),
    46: (
        "model/test_partition_functions.py::test_partition_field_that_stands_twice_is_refused",
        "model/test_partition_functions.py::test_illegal_partition_field_name_is_refused",
        "model/test_names_and_keys.py::test_partition_field_that_readers_would_hide_is_refused",
    ),
    47: (
        "test_view.py::test_signals_have_the_names_of_kite",
        "test_view.py::test_second_signal_is_later_than_the_first",
        "test_view.py::test_signal_is_of_exactly_one_view",
    ),
    # G. Command line
    48: (
        "cli/test_errors.py::test_error_is_a_document_with_an_exit_code",
        "cli/test_errors.py::test_exit_code_is_that_of_the_class",
        "cli/test_delete.py::TestDelete::test_unknown_constraint_of_a_view_uri_is_refused",
        "cli/test_verbs.py::TestCreate::test_from_parquet_with_a_strategy_in_a_file",
        "arrow/test_inference.py::test_column_of_csv_has_the_narrowest_type_that_holds_all",
        "arrow/test_inference.py::test_fields_are_nullable_unless_required",
        "arrow/test_inference.py::test_bad_name_comes_with_a_legal_one",
        "cli/test_import.py::test_file_that_does_not_fit_is_an_error_of_input",
    ),
}


def test_every_behaviour_has_a_test() -> None:
    assert numbers_of(globals(), "b") | set(ELSEWHERE) == set(range(1, 49))


@pytest.mark.parametrize("number", ELSEWHERE)
def test_tests_elsewhere_are_there(number: int) -> None:
    assert ELSEWHERE[number]
    assert [one for one in ELSEWHERE[number] if not is_test(one)] == []


UTC = dt.UTC
SCHEMA = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "n", "type": ["null", "long"]},
        {"name": "timestamp", "type": ["null", "long"]},  # milliseconds, as in Kite
        {"name": "color", "type": ["null", "string"]},
        {
            "name": "position",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "position",
                    "fields": [
                        {"name": "latitude", "type": ["null", "double"]},
                        {"name": "code", "type": ["null", "string"]},
                    ],
                },
            ],
        },
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "counts", "type": ["null", {"type": "map", "values": "long"}]},
    ],
}
YEAR_MONTH_DAY = "year(timestamp), month(timestamp), day(timestamp)"


def millis(text: str) -> int:
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=UTC)
    return (moment - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(milliseconds=1)


def described(**options: Any) -> DatasetDescriptor:
    return DatasetDescriptor(schema=SCHEMA, **options)


@pytest.fixture
def lake() -> Repository:
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}")


def ids(view: View) -> list[int]:
    return sorted(view.arrow(["id"])["id"].to_pylist())


# B. Partition functions and paths


@pytest.mark.parametrize(
    "partition_by",
    [
        "n",
        "identity(n) as copy",
        "hash(n, 2)",
        "range(n, 5, 10)",
        "fixed_range(n, 5)",
        "values(n, [1, 2], [3])",
        "date(n) as dt",
        "date_format(n, 'yyyy') as written",
        "year(n), month(n), day(n), hour(n), minute(n)",
    ],
)
def test_b14_nullable_source_works_and_null_has_a_partition_of_its_own(
    lake: Repository, partition_by: str
) -> None:
    # Kite fails on an actual null.
    events = lake.create("events", described(partition_by=partition_by))

    events.append([{"id": 1, "n": 2}, {"id": 2, "n": None}, {"id": 3, "n": None}])

    assert len(events.inspect.partitions()) == 2
    (null,) = [one for one in events.inspect.partitions() if set(one.values.values()) == {None}]
    assert null.row_count == 2
    assert (ids(events), ids(events.where("n = 2"))) == ([1, 2, 3], [1])
    assert ids(events.where("n IS NULL")) == [2, 3]


def test_b15_nested_sources_give_partitions_and_prune(lake: Repository) -> None:
    strategy = [by.identity("position.latitude", name="latitude"), by.hash("position.code", 4)]
    events = lake.create("events", described(partition_by=strategy))

    events.append(
        [
            {"id": 1, "position": {"latitude": 1.5, "code": "a"}},
            {"id": 2, "position": {"latitude": 2.5, "code": None}},
            {"id": 3, "position": None},
        ]
    )

    assert len(events.inspect.partitions()) == 3
    for text, expected in [
        ("position.latitude = 1.5", [1]),
        ("position.latitude > 2", [2]),
        ("position.code = 'a'", [1]),
        ("latitude = 2.5", [2]),
        ("position.latitude IS NULL", [3]),
    ]:
        view = events.where(text)
        assert (ids(view), len(view.plan().files)) == (expected, 1), text


def test_b16_provided_partition_needs_a_value(lake: Repository) -> None:
    events = lake.create("events", described(partition_by=[by.provided("version", "int")]))

    with pytest.raises(PartitionSpecError, match="'version'"):
        events.append([{"id": 0}])
    with events.kite.writer() as writer, pytest.raises(PartitionSpecError, match="'version'"):
        writer.write({"id": 0})
    assert events.version == 0

    events.kite.with_("version", 6).append([{"id": 6}])
    seven = lakebed.open_uri(f"view:{events.uri}?version=7")
    assert isinstance(seven, View)
    seven.append([{"id": 7}])

    assert [one.path for one in events.inspect.partitions()] == ["version=6", "version=7"]
    assert (ids(events), ids(seven)) == ([6, 7], [7])


def test_b17_what_lies_beside_the_files_of_the_head_is_not_read(tmp_path: Path) -> None:
    # Kite walks the tree and takes 2013/09/22 for a partition; Lakebed reads what the head names.
    lake = lakebed.open_repository(tmp_path)
    events = lake.create("events", described(partition_by=YEAR_MONTH_DAY))
    events.append([{"id": 1, "timestamp": millis("2013-09-25T12:00:00")}])
    (file,) = events.files()
    written = tmp_path / file.key
    table = tmp_path / "events" / "data"

    for other in (
        table / "2013/09/22" / written.name,
        table / "year=2013/month=09/day=25" / written.name,
        table / "year=2013/month=9/day=26/batch_id=1" / written.name,
        written.with_name("other.parquet"),
        written.with_name(".hidden.tmp"),
    ):
        other.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(written, other)

    assert ids(events) == ids(lake.open("events")) == [1]
    assert events.count() == 1
    assert len(events.inspect.partitions()) == 1


# C. Views

MOMENTS = [
    f"{day}T{hour}"
    for day in ("2012-12-31", "2013-09-12", "2013-09-13", "2013-10-12")
    for hour in ("00:00:00", "12:30:00", "23:59:59.999")
]
EDGES = ["2012-12-31T12:30:00", "2013-09-12T00:00:00", "2013-09-13T23:59:59.999", "2013-09-30"]


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    ("verb", "fits"),
    [
        ("from_", lambda found, edge: found >= edge),
        ("from_after", lambda found, edge: found > edge),
        ("to", lambda found, edge: found <= edge),
        ("to_before", lambda found, edge: found < edge),
        ("with_", lambda found, edge: found == edge),
    ],
)
def test_b19_refinements_read_exactly_what_fits_within_and_across_partitions(
    lake: Repository, verb: str, fits: Callable[[int, int], bool], edge: str
) -> None:
    events = lake.create("events", described(partition_by=YEAR_MONTH_DAY))
    events.append([{"id": i, "timestamp": millis(one)} for i, one in enumerate(MOMENTS)])
    bound = millis(edge)

    view = getattr(events.kite, verb)("timestamp", bound)

    assert ids(view) == [i for i, one in enumerate(MOMENTS) if fits(millis(one), bound)]
    narrower = getattr(events.kite.with_("month", 9).kite, verb)("timestamp", bound)
    assert ids(narrower) == [
        i for i, one in enumerate(MOMENTS) if fits(millis(one), bound) and "-09-" in one
    ]


def test_b20_field_that_no_partition_knows_filters(lake: Repository) -> None:
    events = lake.create("events", described(partition_by="hash(id, 3)"))
    events.append([{"id": i, "color": color} for i, color in enumerate(["green", "red", None] * 3)])

    assert ids(events.kite.with_("color", "green")) == [0, 3, 6]
    assert ids(events.kite.from_after("color", "green")) == [1, 4, 7]
    assert ids(events.kite.with_("color")) == [0, 1, 3, 4, 6, 7]
    assert ids(events.kite.with_("color", "green").kite.with_("id_hash", 0)) == [0, 3, 6]
    assert ids(events.kite.with_("color", "green").kite.with_("id_hash", 1)) == []


def test_b23_empty_directory_within_a_range_is_fine(tmp_path: Path) -> None:
    events = lakebed.open_repository(tmp_path).create(
        "events", described(partition_by=YEAR_MONTH_DAY)
    )
    days = ["2013-09-12", "2013-09-13", "2013-09-14"]
    events.append([{"id": i, "timestamp": millis(one)} for i, one in enumerate(days)])
    (tmp_path / "events/data/year=2013/month=9/day=15").mkdir(parents=True)
    (tmp_path / "events/data/year=2013/month=10").mkdir(parents=True)

    events.kite.with_("day", 13).delete()

    assert ids(events.kite.from_("timestamp", millis(days[0]))) == [0, 2]
    assert events.kite.from_("timestamp", millis("2013-09-15")).kite.is_empty()


def test_b26_delete_takes_partitions_out_and_leaves_the_dataset(lake: Repository) -> None:
    # Kite deletes aligned views alone, and directories at once. In Lakebed any view can be deleted,
    # an aligned one without a file being written; the old files stay readable by version.
    events = lake.create("events", described(partition_by=YEAR_MONTH_DAY))
    events.append([{"id": i, "timestamp": millis(one)} for i, one in enumerate(MOMENTS)])
    last_of_day = millis("2013-09-12T23:59:59.999")

    aligned = events.kite.to("timestamp", last_of_day).delete()

    assert aligned is not None
    assert aligned.files_added == ()
    assert (ids(events), len(events.inspect.partitions())) == (list(range(6, 12)), 2)
    assert events.kite.to("timestamp", last_of_day).delete() is None

    across = events.kite.to("timestamp", millis("2013-09-13T12:30:00")).delete()

    assert across is not None
    assert len(across.files_added) == 1
    assert ids(events) == list(range(8, 12))
    events.delete(events)
    assert (events.inspect.partitions(), events.count(), events.delete(events)) == ((), 0, None)
    assert lake.exists("events")
    assert ids(events.at(version=1)) == list(range(12))


# D. Metadata and evolution


def test_b31_life_of_a_dataset(tmp_path: Path) -> None:
    # Lakebed has no namespaces: a repository is a directory, and others may lie below it.
    lake = lakebed.open_repository(tmp_path)
    below = lakebed.open_repository(tmp_path / "below")
    assert (lake.list(), lake.exists("events")) == ([], False)

    created = lake.create("events", described())
    below.create("events", described(partition_by="hash(id, 3)"))
    lake.create("other", described())

    assert (lake.list(), below.list()) == (["events", "other"], ["events"])
    assert lake.open("events").descriptor == created.descriptor
    updated = described(properties={"owner": "ops"})
    created.evolve(updated, base=created.version)
    assert lake.open("events").descriptor == updated

    lake.drop("events")
    assert (lake.list(), lake.exists("events")) == (["other"], False)
    assert below.exists("events")
    below.drop("events")
    assert below.list() == []


def test_b32_what_is_there_twice_or_not_at_all_is_an_error(lake: Repository) -> None:
    # Kite's delete of a missing dataset says False; Lakebed's drop is an error like open.
    events = lake.create("events", described())

    with pytest.raises(DatasetExistsError):
        lake.create("events", described())
    lake.drop("events")

    for call in (
        lambda: lake.open("events"),
        lambda: lake.drop("events"),
        lambda: events.evolve(described(properties={"owner": "ops"}), base=events.version),
    ):
        with pytest.raises(DatasetNotFoundError, match="'events'"):
            call()
    assert lake.list() == []


# E. Merge, replace, jobs


def test_b41_rows_of_another_dataset_are_taken_over_in_one_commit(lake: Repository) -> None:
    # Kite moves files of one format and strategy out of a temporary dataset. Lakebed stages a batch
    # and commits it once, so format and strategy may differ, the schema not; the source stays.
    target = lake.create("target", described(partition_by="hash(id, 2)"))
    source = lake.create("source", described(format="avro", partition_by="hash(id, 3)"))
    unlike = lake.create("unlike", DatasetDescriptor(schema=SCHEMA | {"fields": [OTHER_ID]}))
    target.append([{"id": i} for i in range(10)])
    source.append([{"id": i} for i in range(10, 15)])
    unlike.append([{"id": "x"}])

    commit = target.append(source.record_batches())

    assert (commit.row_count, commit.version) == (5, 2)
    assert (ids(target), ids(source)) == (list(range(15)), list(range(10, 15)))
    with pytest.raises(SchemaMismatchError):
        target.append(unlike.record_batches())
    assert (target.version, target.count()) == (2, 15)


OTHER_ID = {"name": "id", "type": "string"}


def test_b42_whole_replacement_takes_out_what_the_data_lacks(lake: Repository) -> None:
    # Kite also removes directories that mean the same (0, hash=0); in Lakebed a value has one path.
    events = lake.create("events", described(partition_by="color"))
    events.append([{"id": 1, "color": "green"}, {"id": 2, "color": "red"}])

    events.overwrite([{"id": 3, "color": "red"}])
    assert ids(events) == [1, 3]

    events.overwrite([{"id": 4, "color": "blue"}], events)
    assert ids(events) == [4]
    with pytest.raises(PredicateError, match="not aligned"):
        events.where("id > 3").overwrite([])


def test_b43_modes_of_a_job(lake: Repository) -> None:
    events = lake.create("events", described(partition_by="color"))
    green = events.kite.with_("color", "green")

    green.append([{"id": 1, "color": "green"}], if_not_empty="error")
    with pytest.raises(AlreadyExistsError):
        green.append([{"id": 2, "color": "green"}], if_not_empty="error")
    green.append([{"id": 3, "color": "green"}])
    assert ids(green) == [1, 3]
    green.overwrite([{"id": 4, "color": "green"}])
    assert ids(green) == [4]

    red = events.kite.with_("color", "red")
    red.kite.signal_ready()
    with pytest.raises(AlreadyExistsError):
        red.append([{"id": 5, "color": "red"}], if_not_empty="error")


def test_b44_job_signals_its_view_and_not_the_dataset(lake: Repository) -> None:
    # In Lakebed the job says so itself, after the commit: a commit alone signals nothing.
    events = lake.create("events", described(partition_by="color"))
    green = events.kite.with_("color", "green")

    green.append([{"id": 1, "color": "green"}])
    assert not green.kite.is_ready()
    green.kite.signal_ready()

    assert green.kite.is_ready()
    assert lake.open("events").kite.with_("color", "green").kite.is_ready()
    assert not events.kite.is_ready()
    assert not events.kite.with_("color", "red").kite.is_ready()


# F. Validation


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"partition_by": "hash(missing, 3)"}, PartitionSpecError, "missing"),
        ({"partition_by": "hash(position.longitude, 3)"}, PartitionSpecError, "longitude"),
        ({"partition_by": "identity(n) as color"}, PartitionSpecError, "data field"),
        ({"partition_by": "hash(position, 3)"}, PartitionSpecError, "position"),
        ({"partition_by": "hash(tags, 3)"}, PartitionSpecError, "tags"),
        ({"partition_by": "hash(counts, 3)"}, PartitionSpecError, "counts"),
        ({"partition_by": "tags"}, PartitionSpecError, "tags"),
        ({"partition_by": "identity(position) as p"}, PartitionSpecError, "position"),
        ({"partition_by": "year(color)"}, PartitionSpecError, "color"),
        ({"partition_by": "hash(n, 2), hash(n, 2)"}, PartitionSpecError, "n_hash"),
        ({"compression": "lzo"}, InvalidInputError, "lzo"),
        ({"format": "avro", "compression": "gzip"}, InvalidInputError, "gzip"),
        ({"format": "Parquet"}, InvalidInputError, "Parquet"),
        ({"format": "csv"}, InvalidInputError, "csv"),
        ({"schema": {"type": "record", "name": "e", "fields": []}}, InvalidInputError, "field"),
        ({"schema": "string"}, SchemaMismatchError, "'string'"),
        ({"schema": None}, SchemaMismatchError, "NoneType"),
    ],
)
def test_b45_descriptor_that_means_nothing_is_refused(
    lake: Repository, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lake.create("events", DatasetDescriptor(**{"schema": SCHEMA, **options}))

    assert list(lake.store.list("")) == []


@pytest.mark.parametrize("document", ["{}", "5", '"hash"', "[5]", "[[]]", "[", "null"])
def test_b45_json_that_is_no_list_of_objects_is_refused(document: str) -> None:
    with pytest.raises(PartitionSpecError):
        lakebed.PartitionStrategy.from_json(document)


@pytest.mark.parametrize("kind", ["int", "long"])
def test_b45_calendar_takes_whole_numbers_of_both_sizes(lake: Repository, kind: str) -> None:
    # Kite takes long alone; in Lakebed the unit says what a number means, whatever its size.
    fields = [{"name": "t", "type": kind}, {"name": "id", "type": "long"}]
    schema = {"type": "record", "name": "e", "fields": fields}
    events = lake.create("events", DatasetDescriptor(schema=schema, partition_by="year(t, s)"))

    events.append([{"t": 1384912178, "id": 1}])

    assert [one.path for one in events.inspect.partitions()] == ["year=2013"]


def test_b46_partition_field_with_an_illegal_name_is_refused() -> None:
    for name in ("n.2", "n`", "", "_n"):
        with pytest.raises(InvalidNameError):
            by.hash("n", 2, name=name)


def test_b47_signal_of_several_fields_has_them_in_order(lake: Repository) -> None:
    events = lake.create("events", described())
    view = events.kite.with_("id", 3, 2, 7).kite.to_before("color", "red")
    assert view.kite.ready_at() is None  # Kite: -1

    view.kite.signal_ready()

    assert [info.key for info in lake.store.list("events/signals")] == [
        "events/signals/color=(,red)&id=2,3,7"
    ]
    assert (
        events.kite.to_before("color", "red").kite.with_("id", 7, 2, 3).kite.ready_at()
        == view.kite.ready_at()
    )


# G. Command line


def run(*arguments: object) -> tuple[int, dict[str, Any]]:
    found = click.testing.CliRunner().invoke(
        main, [*map(str, arguments), "-o", "json"], prog_name="lakebed"
    )
    return found.exit_code, json.loads(found.stdout or found.stderr.splitlines()[-1])


def test_b48_create_takes_the_schema_of_a_file_and_refuses_what_conflicts(tmp_path: Path) -> None:
    events = lakebed.open_repository(tmp_path).create("events", described(partition_by="color"))
    events.append([{"id": 1, "color": "green"}])
    schema = tmp_path / "events.avsc"
    schema.write_text(json.dumps(SCHEMA))
    call = ["create", events.uri, "--schema", schema, "--partition-by", "color"]

    code, error = run(*call)
    assert (code, error["error"]["code"]) == (4, "dataset-exists")
    code, error = run(*call, "--if-exists", "open", "--format", "avro")
    assert (code, error["error"]["code"]) == (4, "dataset-exists")
    code, shown = run(*call, "--if-exists", "open")
    assert (code, shown["name"]) == (0, "events")
    assert ids(events) == [1]
