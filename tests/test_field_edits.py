"""Fields that are added and dropped one at a time, and fields that no update drops silently."""

import dataclasses
import datetime as dt
import json

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakebed
from lakebed.cli.main import main
from lakebed.errors import (
    InvalidNameError,
    LakebedError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.repository import Repository
from lakebed.store.memory import MemoryStore

ROWS = [{"day": 1, "n": 1, "country": "NL"}, {"day": 2, "n": 2, "country": "DE"}]


@pytest.fixture
def orders(tmp_path):
    lake = lakebed.open_repository(tmp_path)
    lake.write("o", ROWS, partition_by="day", index=["country"])
    return lake["o"]


def test_added_field_is_null_in_old_rows_and_held_by_new_ones(orders):
    orders.evolve(lambda d: d.add_field("note", "string", doc="free text"))
    orders.append([{"day": 3, "n": 3, "country": "FR", "note": "x"}])

    assert sorted(orders.arrow()["note"].to_pylist(), key=str) == [None, None, "x"]
    field = orders.descriptor.schema.get("note")
    assert (str(field.type), field.nullable, field.doc) == ("string", True, "free text")


def test_added_field_with_a_default_reads_as_it_in_old_rows(orders):
    orders.evolve(lambda d: d.add_field("source", "string", nullable=False, default="import"))
    orders.evolve(lambda d: d.add_field("level", pa.int32(), default=5))

    table = orders.arrow()

    assert table["source"].to_pylist() == ["import", "import"]
    assert table["level"].to_pylist() == [5, 5]


@pytest.mark.parametrize(
    ("type_", "shown"),
    [
        ("decimal(10, 2)", "decimal(10, 2)"),
        ("timestamp", "timestamp"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("date", "date"),
        (pa.list_(pa.string()), "list<string>"),
        ({"type": "array", "items": "long"}, "list<long>"),
        ('{"type": "array", "items": "long"}', "list<long>"),
        ("long", "long"),
    ],
    ids=str,
)
def test_types_of_added_fields(orders, type_, shown):
    orders.evolve(lambda d: d.add_field("x", type_))

    assert str(orders.descriptor.schema.get("x").type) == shown
    assert orders.arrow()["x"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("name", "type_", "more", "error"),
    [
        ("n", "string", {}, SchemaMismatchError),
        ("x", "strang", {}, SchemaMismatchError),
        ("x", "decimal(10)", {}, SchemaMismatchError),
        ("x", "{", {}, SchemaMismatchError),
        ("x", str, {}, SchemaMismatchError),
        ("x", "long", {"default": "five"}, SchemaMismatchError),
        ("x", "long", {"nullable": False}, SchemaMismatchError),
        ("x.y", "long", {}, LakebedError),
        ("", "long", {}, InvalidNameError),
        ("batch_id", "long", {}, LakebedError),
    ],
)
def test_field_that_cannot_be_added_is_refused(orders, name, type_, more, error):
    with pytest.raises(error) as caught:
        orders.evolve(lambda d: d.add_field(name, type_, **more))

    assert caught.value.hint
    assert orders.version == 1


def test_dropped_field_goes_with_its_index_and_stays_in_older_versions(orders):
    orders.evolve(lambda d: d.drop_field("country"))

    assert orders.descriptor.index == ()
    assert orders.arrow().column_names == ["day", "n"]
    assert "country" in orders.at(version=1).arrow().column_names


def test_dropped_field_may_be_followed_by_other_changes(orders):
    orders.evolve(
        lambda d: d.drop_field("country").add_field("note", "string").rename_field("n", "number")
    )

    assert orders.descriptor.schema.names == ("day", "number", "note")


def test_dropped_field_of_a_new_name(orders):
    orders.evolve(lambda d: d.rename_field("country", "land"))
    orders.evolve(lambda d: d.drop_field("land"))

    assert orders.descriptor.schema.names == ("day", "n")


@pytest.mark.parametrize(
    ("name", "error"),
    [("x", SchemaMismatchError), ("day", PartitionSpecError), ("n.x", SchemaMismatchError)],
)
def test_field_that_cannot_be_dropped_is_refused(orders, name, error):
    with pytest.raises(error):
        orders.evolve(lambda d: d.drop_field(name))

    assert orders.version == 1


def test_only_field_is_not_dropped():
    descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))

    with pytest.raises(SchemaMismatchError, match="the only one"):
        descriptor.drop_field("n")


def without_country(old):
    schema = pa.schema([("day", pa.int64()), ("n", pa.int64()), ("note", pa.string())])
    return DatasetDescriptor(schema=schema, partition_by=old.partition_by)


def test_field_that_a_schema_lacks_is_dropped_with_a_warning_unless_it_is_named(orders, caplog):
    before = orders.descriptor.schema
    orders.evolve(without_country)
    assert "('country',)" in caplog.text

    orders.evolve(lambda old: dataclasses.replace(old, schema=before))
    caplog.clear()
    orders.evolve(without_country, drop=["country"])

    assert "country" not in caplog.text
    assert orders.descriptor.schema.names == ("day", "n", "note")


def test_names_of_fields_to_drop_are_checked(orders):
    with pytest.raises(SchemaMismatchError, match="'contry'"):
        orders.evolve(without_country, drop="contry")


def test_schema_with_its_base_may_lack_a_field(orders):
    orders.evolve(without_country, base=orders.snapshot())

    assert "country" not in orders.descriptor.schema


def test_field_that_was_dropped_and_added_again_is_not_dropped_by_an_earlier_note(orders, caplog):
    kept = []

    def drop(old):
        kept.append(old.drop_field("country"))
        return kept[0]

    orders.evolve(drop)
    assert not orders.descriptor.dropped
    orders.evolve(lambda d: d.add_field("country", "string"))

    caplog.clear()
    orders.evolve(lambda d: dataclasses.replace(d, schema=without_country(d).schema))
    assert "('country',)" in caplog.text


def test_dry_run_of_an_added_and_a_dropped_field_writes_nothing(orders):
    assert orders.evolve(lambda d: d.add_field("note", "string"), dry_run=True).is_dry_run
    assert orders.evolve(without_country, drop="country", dry_run=True).is_dry_run

    assert orders.version == 1


def test_error_of_an_unknown_column_shows_how_it_is_added(orders):
    with pytest.raises(SchemaMismatchError) as caught:
        orders.append([{**ROWS[0], "note": "x"}])

    assert "add_field('note', 'string')" in caught.value.hint
    assert "lakebed schema add DATASET note string" in caught.value.hint


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words])


def test_command_line_adds_and_drops_fields(orders, tmp_path):
    place = f"{tmp_path}/o"

    dry = run("schema", "add", place, "note", "string", "--dry-run")
    assert (dry.exit_code, orders.version) == (0, 1)
    assert "+note: string" in dry.stderr
    done = run(
        "schema", "add", place, "level", "long", "--not-null", "--default", "7", "--doc", "d"
    )
    assert done.exit_code == 0, done.stderr
    assert orders.arrow()["level"].to_pylist() == [7, 7]
    done = run("schema", "drop", place, "level", "country", "-o", "json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["version"] == 3
    assert orders.descriptor.schema.names == ("day", "n")


@pytest.mark.parametrize(
    "words",
    [
        ["add", "x", "strang"],
        ["add", "x", "long", "--default", "x"],
        ["add", "x", "date", "--default", "2013-01-01"],
        ["add", "n", "long"],
        ["add", "x", "long", "--not-null"],
        ["drop", "x"],
    ],
    ids=" ".join,
)
def test_command_line_refuses_what_cannot_be_added_or_dropped(orders, tmp_path, words):
    verb, *rest = words

    done = run("schema", verb, f"{tmp_path}/o", *rest)

    assert done.exit_code == 2
    assert "Hint:" in done.stderr
    assert orders.version == 1


def test_default_of_a_date():
    lake = Repository(MemoryStore("date-default"))
    lake.write("o", [{"n": 1}])
    lake["o"].evolve(lambda d: d.add_field("day", "date", default=dt.date(2013, 1, 1)))

    assert lake["o"].arrow()["day"].to_pylist() == [dt.date(2013, 1, 1)]
