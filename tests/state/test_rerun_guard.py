"""A rerun that would take out rows which its new rows do not stand for is refused."""

import datetime as dt
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed import Dataset, Repository, open_repository
from lakebed.cli import main
from lakebed.errors import InvalidInputError, LakebedWarning

UTC = dt.UTC
Rows = list[dict[str, Any]]


@pytest.fixture
def lake() -> Repository:
    return open_repository(f"memory://{uuid.uuid4().hex}")


def rows(day: int, *, kind: str = "a", n: int = 3) -> Rows:
    moment = dt.datetime(2026, 11, day, 10, tzinfo=UTC)
    return [
        {"id": i, "kind": kind, "at": moment + dt.timedelta(minutes=i), "on": moment.date()}
        for i in range(n)
    ]


def as_write(lake: Repository, data: Rows, **options: Any) -> object:
    return lake.write("t", data, run="daily", **options)


def as_rerun(lake: Repository, data: Rows, **options: Any) -> object:
    return lake["t"].rerun(data, "daily", **options)


def as_dry_run(lake: Repository, data: Rows, **options: Any) -> object:
    return lake["t"].rerun(data, "daily", dry_run=True, **options)


def as_partitions(lake: Repository, data: Rows, **options: Any) -> object:
    return lake["t"].rerun(data, "daily", partitions=True, **options)


def as_staged(lake: Repository, data: Rows, **options: Any) -> object:
    return lake["t"].staged.add(data, "rerun", run="daily", **options).commit()


DOORS: list[Callable[..., object]] = [as_write, as_rerun, as_dry_run, as_partitions, as_staged]
STRATEGIES = [None, "on", "kind", "hour(at)", "date(at) as d, hash(id, 2)"]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("partition_by", STRATEGIES)
def test_another_day_under_the_same_name_is_refused_and_named(
    lake: Repository, door: Callable[..., object], partition_by: str | None
) -> None:
    head: Any = "tree" if partition_by in (None, "on") else "document"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LakebedWarning)  # partitions by the hour alone repeat
        lake.create("t", pa.Table.from_pylist(rows(1)), partition_by=partition_by, head=head)
    lake.write("t", rows(1), run="daily")
    with pytest.raises(InvalidInputError, match="3 rows of this run") as raised:
        door(lake, rows(2))
    assert "'daily'" in raised.value.message
    assert "2026-11-01" in raised.value.message or "=" in raised.value.message
    assert "replace_all=True" in raised.value.hint
    assert "2026-11-01" in raised.value.hint
    assert lake["t"].version == 1
    door(lake, rows(1, n=4))
    door(lake, rows(2), replace_all=True)
    if door is not as_dry_run:
        assert {row["on"].day for row in lake["t"].arrow().to_pylist()} == {2}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("partition_by", [None, "kind"])
def test_no_rows_are_refused_in_place_of_some(
    lake: Repository, door: Callable[..., object], partition_by: str | None
) -> None:
    lake.write("t", rows(1), partition_by=partition_by, run="daily")
    with pytest.raises(InvalidInputError, match="3 rows of this run, without new ones"):
        door(lake, [])
    assert lake["t"].count() == 3


def test_partitions_that_go_are_named_with_their_number_of_rows(lake: Repository) -> None:
    data = [row for day in range(1, 7) for row in rows(day)]
    lake.write("t", data, partition_by="on", run="daily")
    lake.write("t", rows(1), run="other")
    with pytest.raises(InvalidInputError) as raised:
        lake.write("t", rows(6), run="daily")
    assert "15 rows" in raised.value.message
    assert "on=2026-11-01, on=2026-11-02, on=2026-11-03 and 2 more" in raised.value.message


def test_a_run_whose_rows_moved_or_are_of_one_period_runs_again(lake: Repository) -> None:
    lake.write("t", rows(1) + rows(2), partition_by="on", run="2026-11")
    lake.write("t", rows(1, n=1) + rows(2, n=9) + rows(3), run="2026-11")
    lake.write("t", rows(1), run="other")
    assert lake["t"].count() == 16


@pytest.mark.parametrize("times", [None, dt.datetime(9999, 12, 31, tzinfo=UTC)])
def test_rows_without_a_time_in_common_are_no_evidence(
    lake: Repository, times: dt.datetime | None
) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    before = pa.Table.from_pylist([{"id": 1, "at": None}, {"id": 2, "at": None}], schema)
    lake.write("t", before, run="customers")
    after = pa.Table.from_pylist([{"id": 3, "at": times}], schema)
    lake.write("t", after, run="customers")
    assert lake["t"].arrow()["id"].to_pylist() == [3]


def test_one_column_with_a_day_in_common_is_enough(lake: Repository) -> None:
    def loaded(day: int) -> Rows:
        return [row | {"on": dt.date(2026, 12, day)} for row in rows(1)]

    lake.write("t", loaded(1), run="2026-11-01")
    lake.write("t", loaded(2), run="2026-11-01")
    assert lake["t"].count() == 3


def test_the_guard_of_a_staged_rerun_holds_on_the_state_that_it_is_committed_to(
    lake: Repository,
) -> None:
    lake.write("t", rows(1), partition_by="on", run="2026-11-01")
    table: Dataset = lake["t"]
    staged = table.staged.add(rows(2), "rerun", run="daily")
    reopened = open_repository(lake.uri)["t"].staged.open(staged.batch_id)
    assert reopened.commit().row_count == 3
    later = table.staged.add(rows(2), "rerun", run="daily", replace_all=True)
    assert table.staged.open(later.batch_id).commit().deleted_row_count == 3


def test_replace_all_needs_a_run(lake: Repository) -> None:
    with pytest.raises(InvalidInputError, match="replace_all"):
        lake.write("t", rows(1), replace_all=True)
    lake.write("t", rows(1))
    with pytest.raises(InvalidInputError, match="replace_all"):
        lake["t"].staged.add(rows(1), replace_all=True)


def test_the_command_line_refuses_it_and_takes_the_remedy(
    lake: Repository, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = open_repository(tmp_path / "lake")
    place.write("t", rows(1), partition_by="on", run="daily")
    (tmp_path / "day.csv").write_text("id,kind,at,on\n7,a,2026-11-02T10:00:00Z,2026-11-02\n")
    call = ["rerun", str(tmp_path / "lake/t"), str(tmp_path / "day.csv"), "--run", "daily"]
    assert exit_code(call) == 2
    said = capsys.readouterr().err
    assert "on=2026-11-01" in said
    assert "--replace-all" in said
    assert exit_code([*call, "--replace-all"]) == 0
    assert place["t"].count() == 1
    assert exit_code(["rerun", str(tmp_path / "lake/t"), "--empty", "--run", "daily"]) == 0
    assert place["t"].count() == 0


def exit_code(arguments: list[str]) -> object:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code
