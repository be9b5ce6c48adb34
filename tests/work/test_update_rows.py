"""Setting fields of the rows of a view: an UPDATE … WHERE."""

import datetime as dt
import decimal
import functools
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from copies import copy_of
from hypothesis import given
from hypothesis import strategies as st
from merge_model import Meddling

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, by
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    LakebedError,
    PredicateError,
    ReadOnlyError,
    SchemaMismatchError,
)
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("carrier", pa.string()),
        pa.field("delay", pa.int32()),
        pa.field("speed", pa.float64()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("day", pa.date32()),
        pa.field("seen", pa.timestamp("us", "UTC")),
        pa.field("late", pa.bool_()),
        pa.field("note", pa.string()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "id": 1,
        "carrier": " ua",
        "delay": 5,
        "speed": 2.5,
        "price": decimal.Decimal("1.25"),
        "day": dt.date(2013, 6, 1),
        "seen": dt.datetime(1969, 12, 31, 23, 30, tzinfo=dt.UTC),
        "late": True,
        "note": "12",
    },
    {
        "id": 2,
        "carrier": "Straße ",
        "delay": -7,
        "speed": 0.0,
        "price": decimal.Decimal("-3.35"),
        "day": dt.date(1960, 1, 1),
        "seen": dt.datetime(2013, 6, 1, 1, 2, 3, tzinfo=dt.UTC),
        "late": False,
        "note": "-3",
    },
    {"id": 3, "carrier": None, "delay": None, "speed": -2.5, "note": None},
    {"id": 4, "carrier": "", "delay": 40, "speed": None, "note": "7"},
]


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


def make(store: Store, *functions: Any, **others: Any) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=list(functions), **others)
    return Repository(store).create("d", descriptor)


@pytest.fixture
def dataset(store: Store) -> Dataset:
    dataset = make(store)
    dataset.append(ROWS)
    return dataset


def values(view: lakebed.View, name: str) -> dict[int, Any]:
    return {row["id"]: row[name] for row in view.arrow(["id", name]).to_pylist()}


def test_fields_of_the_rows_of_a_view_are_set_in_one_commit(dataset: Dataset) -> None:
    commit = dataset.where("id <= 2").update_rows(
        {"carrier": "upper(trim(carrier))", "delay": "delay + 1", "late": None, "note": "'seen'"},
        run="tidy",
    )

    assert commit is not None
    assert (commit.version, commit.operation, commit.run) == (2, "update_rows", "tidy")
    counts = commit.inserted_row_count, commit.updated_row_count, commit.deleted_row_count
    assert counts == (0, 2, 0)
    assert commit.rewritten_row_count == 2
    assert "2 rows updated, 2 rewritten" in repr(commit)
    assert values(dataset, "carrier") == {1: "UA", 2: "STRASSE", 3: None, 4: ""}
    assert values(dataset, "delay") == {1: 6, 2: -6, 3: None, 4: 40}
    assert values(dataset, "late") == {1: None, 2: None, 3: None, 4: None}
    assert values(dataset, "note") == {1: "seen", 2: "seen", 3: None, 4: "7"}


def test_values_are_of_the_row_as_it_was_before(dataset: Dataset) -> None:
    dataset.update_rows({"carrier": "note", "note": "carrier"})

    assert values(dataset, "carrier") == {row["id"]: row["note"] for row in ROWS}
    assert values(dataset, "note") == {row["id"]: row["carrier"] for row in ROWS}


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("carrier", "lower(carrier) || '-' || note"),
        ("carrier", "ltrim(carrier) || rtrim(carrier)"),
        ("carrier", "CAST(delay AS string)"),
        ("carrier", "CAST(day AS string)"),
        ("carrier", "CAST(late AS string)"),
        ("carrier", "CASE WHEN carrier IS NULL THEN 'none' WHEN delay > 10 THEN 'late' END"),
        ("carrier", "CASE id WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE carrier END"),
        ("carrier", "CASE WHEN delay > id THEN 'more' ELSE 'less' END"),
        ("id", "abs(delay)"),
        ("id", "CAST(note AS bigint) * 2"),
        ("id", "COALESCE(CAST(round(speed) AS bigint), 9)"),
        ("id", "COALESCE(CAST(late AS bigint), 9)"),
        ("delay", "-delay"),
        ("delay", "CAST(id * 3 AS int)"),
        ("delay", "IF(late, delay, 0)"),
        ("delay", "GREATEST(delay, 0) - LEAST(delay, 3)"),
        ("speed", "CASE WHEN speed <> 0 THEN 10 / speed ELSE 0 END"),
        ("speed", "round(speed / 3, 2)"),
        ("speed", "CAST(delay AS double) / 4"),
        ("price", "round(price, 1)"),
        ("price", "abs(price) + 1"),
        ("price", "CAST(delay AS decimal(10, 2))"),
        ("day", "CAST(seen AS date)"),
        ("day", "COALESCE(day, DATE '2020-02-29')"),
        ("late", "CASE WHEN delay > 0 THEN TRUE ELSE FALSE END"),
    ],
)
def test_expressions_give_what_sql_gives(dataset: Dataset, field: str, text: str) -> None:
    target = dataset.where("id <= 4 AND delay IS NOT NULL") if field == "id" else dataset
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    flights = target.arrow()
    connection.register("flights", flights)
    kind = {"string": "VARCHAR"}.get(str(SCHEMA.field(field).type), "")
    asked = f"CAST({text} AS {kind})" if kind else text
    expected = [row[0] for row in connection.sql(f"SELECT {asked} FROM flights").fetchall()]
    order = target.arrow(["id"])["id"].to_pylist()

    target.update_rows({"note": "CAST(id AS string)", field: text})

    changed = {row["note"]: row[field] for row in dataset.arrow(["note", field]).to_pylist()}
    given = [changed[str(number)] for number in order]
    assert given == expected


@given(
    st.lists(st.none() | st.integers(-(10**10) + 1, 10**10 - 1), min_size=1, max_size=6),
    st.integers(-12, 4),
)
def test_each_decimal_is_rounded_exactly_or_refused(cents: list[int | None], places: int) -> None:
    prices = [None if cent is None else decimal.Decimal(cent).scaleb(-2) for cent in cents]
    dataset = make(MemoryStore(uuid.uuid4().hex))
    dataset.append([{"id": number, "price": price} for number, price in enumerate(prices)])

    unit = decimal.Decimal(1).scaleb(-min(places, 2))
    expected = [
        None if price is None else price.quantize(unit, "ROUND_HALF_UP") for price in prices
    ]
    if any(price is not None and abs(price) >= 10**8 for price in expected):
        with pytest.raises(SchemaMismatchError, match="cannot be set"):
            dataset.update_rows({"price": f"round(price, {places})"})
        expected = prices
    else:
        dataset.update_rows({"price": f"round(price, {places})"})

    assert values(dataset, "price") == dict(enumerate(expected))


@pytest.mark.parametrize(
    ("field", "extreme", "text"),
    [
        ("price", decimal.Decimal("99999999.99"), "round(price)"),
        ("price", decimal.Decimal("99999999.99"), "price + 1"),
        ("price", decimal.Decimal("-99999999.99"), "price - price * 2 + price * 3"),
        ("delay", 2**31 - 1, "delay + 1"),
        ("delay", 2**31 - 1, "round(delay, -1)"),
        ("delay", -(2**31), "-delay"),
        ("delay", -(2**31), "abs(delay)"),
        ("delay", 2**31 - 1, "CAST(delay * 2 AS int)"),
    ],
)
@pytest.mark.parametrize("position", range(3))
def test_a_value_too_large_is_refused_wherever_it_stands(
    field: str, extreme: Any, text: str, position: int
) -> None:
    dataset = make(MemoryStore(uuid.uuid4().hex))
    dataset.append(
        [{"id": number, field: extreme if number == position else 1} for number in range(3)]
    )

    with pytest.raises(SchemaMismatchError, match=f"Field '{field}' of type .* cannot be set"):
        dataset.update_rows({field: text})

    assert values(dataset, field)[position] == extreme


def test_joined_text_is_null_where_a_part_is(dataset: Dataset) -> None:
    dataset.update_rows({"carrier": "concat(carrier, '/', note)"})

    assert values(dataset, "carrier") == {1: " ua/12", 2: "Straße /-3", 3: None, 4: "/7"}


def test_a_value_that_is_no_text_is_taken_as_it_is(dataset: Dataset) -> None:
    seen = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)

    dataset.update_rows({"delay": 7, "speed": 1, "late": False, "seen": seen, "note": None})

    row = dataset.where("id = 1").arrow().to_pylist()[0]
    expected = {"delay": 7, "speed": 1.0, "late": False, "seen": seen, "note": None}
    assert {name: row[name] for name in expected} == expected


def test_a_view_without_rows_makes_no_version(dataset: Dataset, store: Store) -> None:
    before = {info.key for info in store.list("d/")}

    assert dataset.where("id = 99").update_rows({"delay": 1}) is None
    assert make(MemoryStore(uuid.uuid4().hex)).update_rows({"delay": 1}) is None

    assert dataset.version == 1
    assert {info.key for info in store.list("d/")} == before


def test_a_row_need_not_be_in_the_view_afterwards(dataset: Dataset) -> None:
    dataset.where("note = '12'").update_rows({"note": "'13'"})

    assert values(dataset, "note")[1] == "13"


def test_a_changed_partition_source_moves_the_row(store: Store) -> None:
    dataset = make(store, by.date("day"))
    dataset.append([{"id": n, "day": dt.date(2013, 6, n)} for n in (1, 2, 3)])

    commit = dataset.where("id = 1").update_rows({"day": "DATE '2013-06-03'"})

    assert commit is not None
    paths = sorted(file.partition for file in dataset.files())
    assert paths == ["day_date=2013-06-02", "day_date=2013-06-03", "day_date=2013-06-03"]
    assert len(commit.files_removed) == 1
    assert dataset.where("day = '2013-06-03'").count() == 2


def test_files_without_a_row_of_the_view_stay(store: Store) -> None:
    dataset = make(store)
    for number in range(4):
        dataset.append([{"id": number, "delay": number % 2}])
    before = {file.key for file in dataset.files()}

    commit = dataset.where("delay = 1").update_rows({"delay": "delay + 10"})

    assert commit is not None
    assert len(before & {file.key for file in dataset.files()}) == 2
    assert values(dataset, "delay") == {0: 0, 1: 11, 2: 0, 3: 11}


def test_indices_and_bounds_know_the_new_values(store: Store) -> None:
    dataset = make(store, index=["carrier"])
    for number in range(12):
        dataset.append([{"id": number, "carrier": f"c{number}"}])
    dataset.where("id = 3").update_rows({"carrier": "'new'", "delay": 500})

    assert values(dataset.where("carrier = 'new'"), "delay") == {3: 500}
    assert dataset.where("carrier = 'c3'").count() == 0
    assert dataset.where("delay > 400").count() == 1
    assert len(dataset.where("delay > 400").plan().files) == 1
    assert dataset.check().is_ok


def test_a_row_stays_with_the_run_that_wrote_it(dataset: Dataset) -> None:
    dataset.append([{"id": 10, "delay": 1}], run="ten")
    dataset.where("id = 10").update_rows({"delay": 2}, run="later")

    dataset.rerun([{"id": 11}], run="ten", replace_all=True)

    assert sorted(values(dataset, "delay")) == [1, 2, 3, 4, 11]
    dataset.rerun([{"id": 12}], run="later", replace_all=True)  # which wrote no rows of its own
    assert sorted(values(dataset, "delay")) == [1, 2, 3, 4, 11, 12]


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({}, InvalidInputError, "no field to set"),
        ("delay = 1", InvalidInputError, "update_rows() with 'delay = 1'"),
        ({"carier": "'x'"}, SchemaMismatchError, "Did you mean 'carrier'?"),
        ({"carrier": "UA"}, PredicateError, "Unknown column 'UA' in the value of 'carrier'"),
        ({"carrier": "UA"}, PredicateError, "\"'UA'\""),
        ({"delay": "target.delay"}, PredicateError, "Unknown column 'target.delay'"),
        ({"carrier": 5}, InvalidInputError, "5 (int) does not fit column 'carrier'"),
        ({"id": None}, SchemaMismatchError, "'id' is not nullable"),
        ({"id": "CAST(delay AS bigint)"}, SchemaMismatchError, "'id' is not nullable"),
        ({"delay": "CAST(id * 1000000000 AS int)"}, SchemaMismatchError, "delay"),
        ({"speed": "speed / 0"}, SchemaMismatchError, "division by zero"),
        ({"id": "CAST(speed AS bigint)"}, SchemaMismatchError, "not nullable"),
        ({"id": "CAST(carrier AS bigint)"}, SchemaMismatchError, "is not a value of type long"),
        ({"id": "TRY_CAST(note AS smallint)"}, SchemaMismatchError, "not nullable"),
        ({"delay": "round(speed, delay)"}, PredicateError, "not a literal"),
        ({"delay": "carrier + 1"}, SchemaMismatchError, "is not a value of type long"),
        ({"delay": "carrier"}, SchemaMismatchError, "set by column 'carrier'"),
        ({"delay": "(SELECT 1)"}, PredicateError, "Cannot compute"),
        ({"delay": "delay +"}, PredicateError, "the value of column 'delay'"),
        ({"day_of": "'x'"}, SchemaMismatchError, "day_of"),
    ],
)
def test_what_cannot_be_set_is_refused_by_name(
    dataset: Dataset, given: Any, error: type[LakebedError], message: str
) -> None:
    before = dataset.arrow()

    with pytest.raises(error) as caught:
        dataset.update_rows(given)

    assert message in f"{caught.value} {caught.value.hint}"
    assert dataset.version == 1
    assert dataset.arrow().equals(before)


def test_an_older_state_is_read_only(dataset: Dataset) -> None:
    dataset.append([{"id": 9}])

    with pytest.raises(ReadOnlyError):
        dataset.at(version=1).update_rows({"delay": 1})
    with pytest.raises(ReadOnlyError):
        dataset.snapshot().update_rows({"delay": 1})


def test_a_base_that_others_have_overtaken_is_a_conflict(dataset: Dataset) -> None:
    base = dataset.snapshot()
    dataset.where("id = 2").update_rows({"delay": 3})

    with pytest.raises(CommitConflictError):
        dataset.where("id = 1").update_rows({"delay": 1}, base=base)

    assert values(dataset, "delay")[1] == 5


@pytest.mark.parametrize("before", ["head", "file"])
@pytest.mark.parametrize(
    "act",
    [
        lambda one: one.append([{"id": 5, "delay": 2}]),
        lambda one: one.where("id = 2").delete(),
        lambda one: one.update_rows({"delay": 3}),
        lambda one: one.compact(),
        lambda one: one.overwrite([{"id": 8, "delay": 8}]),
    ],
    ids=["append", "delete", "update", "compact", "overwrite"],
)
def test_it_applies_to_what_others_did_meanwhile(
    dataset: Dataset, store: Store, before: str, act: Callable[[Dataset], object]
) -> None:
    dataset.append([{"id": 7, "delay": 7}])
    expected = Repository(copy_of(store)).open("d")
    act(expected)
    expected.update_rows({"delay": "delay + 10"})
    meddling = Meddling(store)
    meddling.before = before
    meddling.act = functools.partial(act, Repository(store).open("d"))

    Repository(meddling).open("d").update_rows({"delay": "delay + 10"})

    assert values(dataset, "delay") == values(expected, "delay")


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_store_that_fails_leaves_all_or_nothing(nth: int) -> None:
    memory = MemoryStore(uuid.uuid4().hex)
    dataset = make(memory, index=["carrier"])
    dataset.append(ROWS)

    try:
        failing = FailingStore(memory, fail_on="put", nth=nth)
        Repository(failing).open("d").update_rows({"delay": 1})
    except LakebedError:
        assert values(dataset, "delay") == {row["id"]: row["delay"] for row in ROWS}
    else:
        assert set(values(dataset, "delay").values()) == {1}
    assert dataset.check().is_ok


def test_all_formats_and_directories_are_updated(tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path)
    for name, form in (("p", "parquet"), ("a", "avro")):
        schema = pa.schema([("id", pa.int64()), ("x", pa.string())])
        dataset = repository.create(name, DatasetDescriptor(schema=schema, format=form))
        dataset.append([{"id": 1, "x": "é"}, {"id": 2, "x": "ü"}])

        dataset.where("id = 1").update_rows({"x": "upper(x) || x"})

        assert {row["id"]: row["x"] for row in dataset.kite.reader()} == {1: "Éé", 2: "ü"}


def test_texts_of_a_large_dataset_are_updated_without_the_positions_in_memory(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.work import merge

    monkeypatch.setattr(merge, "MOST_KEPT", 3)
    dataset = make(store)
    for start in (0, 10):
        dataset.append([{"id": start + n, "delay": n} for n in range(5)])

    dataset.where("delay > 1").update_rows({"delay": "delay * 2"})

    assert sorted(values(dataset, "delay").values()) == [0, 0, 1, 1, 4, 4, 6, 6, 8, 8]
