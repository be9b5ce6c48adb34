"""Columns and types that data has and a dataset lacks: refused with the way, or taken over."""

import datetime as dt
import decimal
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from lakebed import Dataset, Repository, open_repository
from lakebed.cli import main
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import schema_from_arrow
from lakebed.model.drift import grown
from lakebed.model.evolution import check_schema


@pytest.fixture
def lake() -> Repository:
    return open_repository(f"memory://{uuid.uuid4().hex}")


def as_append(lake: Repository, rows: Any, **options: Any) -> object:
    return lake["t"].append(rows, **options)


def as_write(lake: Repository, rows: Any, **options: Any) -> object:
    return lake.write("t", rows, **options)


def as_rerun(lake: Repository, rows: Any, **options: Any) -> object:
    return lake["t"].rerun(rows, "2026-11-02", **options)


def as_view(lake: Repository, rows: Any, **options: Any) -> object:
    return lake["t"].where("id > 0").append(rows, **options)


def as_upsert(lake: Repository, rows: Any, **options: Any) -> object:
    return lake["t"].upsert(rows, "id", **options)


def as_merge(lake: Repository, rows: Any, **options: Any) -> object:
    return lake["t"].merge(rows, on="id", update_where="source.id > 0", **options)


def as_staged(lake: Repository, rows: Any, **options: Any) -> object:
    return lake["t"].staged.add(rows, **options).commit()


DOORS: list[Callable[..., object]] = [
    *(as_append, as_write, as_rerun, as_view, as_upsert, as_merge, as_staged),
]
FORMS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "dicts": lambda rows: rows,
    "generator": lambda rows: (row for row in rows),
    "arrow": pa.Table.from_pylist,
    "reader": lambda rows: pa.Table.from_pylist(rows).to_reader(),
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "tables": lambda rows: [pa.Table.from_pylist(rows)],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", DOORS)
def test_a_new_column_is_added_where_it_may_be(
    lake: Repository, door: Callable[..., object], form: str
) -> None:
    lake.write("t", [{"id": 1}])
    rows = [{"id": 2, "channel": "w"}, {"id": 3, "channel": None}]
    with pytest.raises(SchemaMismatchError, match="Unknown column 'channel'") as raised:
        door(lake, FORMS[form](rows))
    assert re.search("unknown.*'keep'", raised.value.hint)
    door(lake, FORMS[form](rows), unknown="keep")
    kept = sorted(lake["t"].arrow().to_pylist(), key=lambda row: row["id"])
    assert kept == [{"id": 1, "channel": None}, *rows]
    assert lake["t"].schema.get("channel").nullable


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_view", [False, True])
def test_an_overwrite_adds_columns_and_widens_types_where_it_may(
    lake: Repository, form: str, is_view: bool
) -> None:
    ids = pa.table({"id": [1, 2], "x": pa.array([1, 2], pa.int32())})
    lake.write("t", ids, partition_by="fixed_range(id, 1) as part")
    table, rows = lake["t"], [{"id": 2, "x": 2**40, "n": "a"}, {"id": 3, "x": 0, "n": None}]
    view = table.where("part >= 2") if is_view else None
    growing = {"unknown": "keep", "types": "widen"}

    with pytest.raises(SchemaMismatchError, match="unknown='keep'"):
        table.overwrite(FORMS[form](rows), view)
    found = table.overwrite(FORMS[form](rows), view, dry_run=True, **growing)
    assert (found.version, found.inserted_row_count, found.deleted_row_count) == (1, 2, 1)
    assert table.version == 1
    commit = table.overwrite(FORMS[form](rows), view, base=found.version, **growing)

    kept = sorted(table.arrow().to_pylist(), key=lambda row: row["id"])
    assert kept == [{"id": 1, "x": 1, "n": None}, *rows]
    assert commit.operation == "overwrite"


def test_a_transaction_keeps_the_schema_of_its_start(lake: Repository) -> None:
    lake.write("t", [{"id": 1}])
    with lake["t"].transaction() as transaction:
        for verb in (transaction.append, transaction.overwrite):
            with pytest.raises(InvalidInputError, match="schema of its start"):
                verb([{"id": 2, "n": 1}], unknown="keep")
        transaction.append([{"id": 2}], unknown="reject", types="strict")
    assert lake["t"].count() == 2


WIDER = {
    "int to long": (pa.int32(), 1, pa.int64(), 2**40),
    "int to double": (pa.int32(), 1, pa.float64(), 1.5),
    "int and float to double": (pa.int32(), 2**30 + 1, pa.float32(), 1.5),
    "float to double": (pa.float32(), 1.5, pa.float64(), 0.1),
    "date to timestamp": (
        pa.date32(),
        dt.date(2026, 11, 1),
        pa.timestamp("us"),
        dt.datetime(2026, 11, 1, 5),
    ),
    "decimals": (
        pa.decimal128(5, 2),
        decimal.Decimal("123.45"),
        pa.decimal128(7, 4),
        decimal.Decimal("1.2345"),
    ),
    "in a list": (pa.list_(pa.int32()), [1], pa.list_(pa.int64()), [2**40]),
    "in a record": (
        pa.struct([("a", pa.int32())]),
        {"a": 1},
        pa.struct([("a", pa.int64())]),
        {"a": 2**40},
    ),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", WIDER)
def test_a_wider_type_widens_the_field_where_it_may(
    lake: Repository, door: Callable[..., object], case: str
) -> None:
    narrow, old, wide, new = WIDER[case]
    lake.write("t", pa.table({"id": [1], "x": pa.array([old], narrow)}))
    rows = pa.table({"id": [2], "x": pa.array([new], wide)})
    with pytest.raises(SchemaMismatchError) as raised:
        door(lake, rows)
    assert "types='widen'" in raised.value.hint
    assert "Cast" not in raised.value.hint
    door(lake, rows, types="widen")
    kept = [row["x"] for row in sorted(lake["t"].arrow().to_pylist(), key=lambda row: row["id"])]
    first = dt.datetime(2026, 11, 1) if isinstance(old, dt.date) else old
    assert kept == [first, new]


LOSSY = {
    "long to double": (pa.int64(), pa.float64()),
    "double to long": (pa.float64(), pa.string()),
    "text": (pa.string(), pa.int64()),
    "zones": (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    "decimals beyond 38 digits": (pa.decimal128(38, 0), pa.decimal128(38, 38)),
}


@pytest.mark.parametrize("case", LOSSY)
def test_a_type_that_would_change_values_is_refused_and_nothing_changes(
    lake: Repository, case: str
) -> None:
    before, after = LOSSY[case]
    lake.write("t", pa.table({"id": [1], "x": pa.array([None], before)}))
    with pytest.raises(SchemaMismatchError, match="Column 'x'") as raised:
        lake.write(
            "t",
            pa.table({"id": [2], "x": pa.array([None], after), "new": [1]}),
            unknown="keep",
            types="widen",
        )
    assert "Cast" not in raised.value.hint
    assert lake["t"].version == 1
    assert lake["t"].schema.names == ("id", "x")


def test_one_setting_does_not_stand_for_the_other(lake: Repository) -> None:
    lake.write("t", pa.table({"x": pa.array([1], pa.int32())}))
    rows = pa.table({"x": [2**40], "y": [1]})
    for options in ({"unknown": "keep"}, {"types": "widen"}):
        with pytest.raises(SchemaMismatchError):
            lake.write("t", rows, **options)  # type: ignore[arg-type]
        assert lake["t"].version == 1
    for options in ({"unknown": "add"}, {"types": "lossy"}):
        with pytest.raises(InvalidInputError, match="Give"):
            lake.write("t", rows, **options)  # type: ignore[arg-type]


def test_dicts_widen_only_where_a_value_does_not_fit(lake: Repository) -> None:
    lake.write("t", pa.table({"x": pa.array([1], pa.int32()), "y": pa.array([1], pa.int32())}))
    with pytest.raises(SchemaMismatchError) as raised:
        lake.write("t", [{"x": 2**40, "y": 3}])
    assert "types='widen'" in raised.value.hint
    lake.write("t", [{"x": 2**40, "y": 3}], types="widen")
    assert [str(field.type) for field in lake["t"].schema] == ["long", "int"]


def test_fields_within_records_are_added(lake: Repository) -> None:
    lake.write("t", pa.table({"r": pa.array([{"a": 1}], pa.struct([("a", pa.int32())]))}))
    lake.write("t", [{"r": {"a": 2, "b": "x"}}], unknown="keep")
    assert str(lake["t"].schema.get("r").type) == "struct<a: int, b: string>"
    assert [row["r"] for row in lake["t"].arrow().to_pylist()] == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]


def test_a_column_without_values_is_no_reason_to_refuse(lake: Repository) -> None:
    lake.write("t", [{"id": 1, "x": "a"}])
    for rows in ([{"id": 2, "x": None, "y": 1}], pa.table({"id": [3], "x": pa.nulls(1), "z": [1]})):
        lake.write("t", rows, unknown="keep")
    with pytest.raises(SchemaMismatchError, match="null"):
        lake.write("t", pa.table({"id": [4], "w": pa.nulls(1)}), unknown="keep")
    assert lake["t"].schema.names == ("id", "x", "y", "z")


def test_a_dry_run_changes_no_schema(lake: Repository) -> None:
    lake.write("t", [{"id": 1}])
    table: Dataset = lake["t"]
    rows = [{"id": 2, "y": 1}]
    assert table.append(rows, unknown="keep", dry_run=True).row_count == 1
    assert table.rerun(rows, "2026-11-02", unknown="keep", dry_run=True).row_count == 1
    assert table.upsert(rows, "id", unknown="keep", dry_run=True).inserted_row_count == 1
    assert table.merge(rows, "id", unknown="keep", dry_run=True).inserted_row_count == 1
    assert table.staged.add(rows, unknown="keep", dry_run=True).row_count == 1
    assert (table.version, table.schema.names) == (1, ("id",))


def test_names_that_mean_another_field_are_not_added(lake: Repository) -> None:
    lake.write("t", [{"id": 1, "carrier": "UA"}])
    lake["t"].evolve(lambda old: old.rename_field("carrier", "airline"))
    for name in ("ID", "carrier"):
        with pytest.raises(SchemaMismatchError, match=f"'{name}'"):
            lake.write("t", [{"id": 2, name: "x"}], unknown="keep")
    assert lake["t"].schema.names == ("id", "airline")


def test_writers_that_add_fields_at_the_same_time_all_succeed(lake: Repository) -> None:
    lake.write("t", [{"id": 0}])
    failures: list[BaseException] = []

    def add(number: int) -> None:
        try:
            lake.write("t", [{"id": number, f"f{number % 3}": number}], unknown="keep")
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sorted(lake["t"].schema.names) == ["f0", "f1", "f2", "id"]
    assert lake["t"].count() == 7


def types() -> Iterator[pa.DataType]:
    yield from (pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.bool_())
    yield from (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.binary())
    yield from (pa.decimal128(5, 2), pa.decimal128(9, 4), pa.list_(pa.int32()))
    yield from (pa.list_(pa.float64()), pa.struct([("a", pa.int32())]))


def test_no_pair_of_types_leads_to_a_schema_that_evolution_refuses() -> None:
    for before in types():
        for after in types():
            declared = schema_from_arrow(pa.schema([("x", before)]))
            given = schema_from_arrow(pa.schema([("x", after), ("y", after)]))
            check_schema(declared, grown(declared, given, "keep", "widen"), 1)
            assert grown(declared, given, "reject", "strict") is declared


def test_a_type_is_changed_in_python_and_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = open_repository(tmp_path)
    lake.write("t", pa.table({"x": pa.array([1], pa.int32()), "y": pa.array([1.5], pa.float32())}))
    lake["t"].change_type("x", "long")
    with pytest.raises(SystemExit) as ended:
        main(["schema", "change-type", str(tmp_path / "t"), "y", "double"])
    assert ended.value.code == 0
    assert [str(field.type) for field in lake["t"].schema] == ["long", "double"]
    with pytest.raises(SchemaMismatchError, match="cannot become int"):
        lake["t"].change_type("x", "int")
    with pytest.raises(SchemaMismatchError):
        lake["t"].change_type("z", "int")
