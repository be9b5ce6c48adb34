"""Compaction across old runs: files become few, and a rerun of a merged run is refused by name."""

import datetime as dt
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed import Dataset, LayoutRule, Repository, open_repository
from lakebed.cli import main
from lakebed.errors import InvalidInputError
from lakebed.state import runs
from lakebed.state.runs import merged_name, merged_runs, shown_run

HEADS: Any = ["document", "tree"]


@pytest.fixture(params=HEADS)
def hourly(request: pytest.FixtureRequest) -> Dataset:
    lake = open_repository(f"memory://{uuid.uuid4().hex}")
    return make_hourly(lake, request.param)


def make_hourly(lake: Repository, head: Any = "document", count: int = 4) -> Dataset:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    dataset = lake.create("t", schema, partition_by="day", index="id", head=head)
    for hour in range(count):
        dataset.rerun([{"id": hour, "day": "1"}, {"id": 10 + hour, "day": "2"}], f"hour {hour}")
    return dataset


def ids(dataset: Dataset) -> list[int]:
    return sorted(dataset.arrow()["id"].to_pylist())


def test_files_of_old_runs_become_one_and_all_else_stays(hourly: Dataset) -> None:
    before, version = ids(hourly), hourly.version
    hourly.protections.add(version=version, reason="audit")
    planned = hourly.compact(across_runs_older_than="0s", dry_run=True)
    report = hourly.compact(across_runs_older_than=dt.timedelta(0))
    assert (planned.files_before, planned.files_after) == (8, 2)
    assert (report.files_before, report.files_after) == (8, 2)
    assert [partition.run for partition in report.partitions] == ["4 runs, merged"] * 2
    assert len(hourly.files()) == 2
    assert ids(hourly) == before
    assert ids(hourly.at(version=version)) == before
    assert len(hourly.at(version=version).files()) == 8
    assert hourly.changes(version).arrow().num_rows == 0
    assert hourly.where("id = 12").count() == 1
    assert hourly.check(deep=True).problems == ()
    assert hourly.compact(across_runs_older_than="0s").commits == ()


def test_without_it_runs_stay_apart_and_the_report_says_what_merges_them(hourly: Dataset) -> None:
    for report in (hourly.compact(), hourly.compact(across_runs_older_than="30d")):
        assert report.partitions == ()
        assert "8 small files belong to 4 runs and stay apart" in repr(report)
        assert "across_runs_older_than='30d'" in repr(report)
        assert "--across-runs-older-than" in report.notes[0]
    assert len(hourly.files()) == 8


def test_a_run_that_wrote_lately_and_a_run_alone_in_its_partition_stay(hourly: Dataset) -> None:
    hourly.rerun([{"id": 99, "day": "3"}, {"id": 98, "day": "3"}], "alone")
    hourly.compact(across_runs_older_than="0s")
    hourly.rerun([{"id": 1000, "day": "1"}], "hour 9")
    assert hourly.rerun([{"id": 97, "day": "3"}], "alone").deleted_row_count == 2
    report = hourly.compact(across_runs_older_than="1h")
    assert report.partitions == ()
    assert hourly.rerun([{"id": 1001, "day": "1"}], "hour 9").deleted_row_count == 1


RERUNS: dict[str, Callable[[Dataset], object]] = {
    "rerun": lambda d: d.rerun([{"id": 1, "day": "1"}], "hour 1"),
    "all": lambda d: d.rerun([{"id": 1, "day": "1"}], "hour 1", replace_all=True),
    "partitions": lambda d: d.rerun([{"id": 1, "day": "1"}], "hour 1", partitions=True),
    "empty": lambda d: d.rerun([], "hour 1", replace_all=True),
    "dry run": lambda d: d.rerun([{"id": 1, "day": "1"}], "hour 1", dry_run=True),
    "staged": lambda d: d.staged.add([{"id": 1, "day": "1"}], "rerun", run="hour 1").commit(),
}


@pytest.mark.parametrize("rerun", RERUNS)
def test_a_rerun_of_a_merged_run_is_refused_with_the_remedy(hourly: Dataset, rerun: str) -> None:
    hourly.compact(across_runs_older_than="0s")
    version = hourly.version
    with pytest.raises(InvalidInputError, match=r"'hour 1'.*cannot be replaced") as raised:
        RERUNS[rerun](hourly)
    assert "day=1, day=2" in raised.value.message
    assert "Overwrite these partitions" in raised.value.hint
    assert hourly.version == version
    assert hourly.rerun([{"id": 77, "day": "1"}], "hour 1b").row_count == 1


REWRITES: dict[str, Callable[[Dataset], object]] = {
    "delete": lambda d: d.delete("id = 2"),
    "upsert": lambda d: d.upsert([{"id": 2, "day": "1"}], "id"),
    "compact": lambda d: (d.rerun([{"id": 50, "day": "1"}], "x"), d.compact(gather=True)),
    "across again": lambda d: (
        d.rerun([{"id": 50, "day": "1"}], "x"),
        d.compact(across_runs_older_than="0s"),
    ),
}


@pytest.mark.parametrize("rewrite", REWRITES)
def test_a_rewritten_file_still_knows_its_runs(hourly: Dataset, rewrite: str) -> None:
    hourly.compact(across_runs_older_than="0s")
    REWRITES[rewrite](hourly)
    with pytest.raises(InvalidInputError, match="cannot be replaced"):
        RERUNS["rerun"](hourly)


def test_a_run_can_be_replaced_again_once_its_merged_rows_are_gone(hourly: Dataset) -> None:
    version = hourly.version
    hourly.compact(across_runs_older_than="0s")
    hourly.rollback(version=version)
    new = [{"id": 1, "day": "1"}, {"id": 11, "day": "2"}]
    assert hourly.rerun(new, "hour 1").deleted_row_count == 2
    hourly.compact(across_runs_older_than="0s")
    hourly.overwrite(hourly.arrow(), run="closed")
    assert hourly.rerun([{"id": 7, "day": "1"}], "hour 1").row_count == 1


def test_a_rerun_during_the_compaction_wins_or_is_refused(hourly: Dataset) -> None:
    staged = hourly.staged.add(
        [{"id": 5, "day": "1"}, {"id": 6, "day": "2"}], "rerun", run="hour 1"
    )
    hourly.compact(across_runs_older_than="0s")
    before = ids(hourly)
    with pytest.raises(InvalidInputError, match="cannot be replaced"):
        staged.commit()
    assert ids(hourly) == before


def test_epochs_of_a_stream_are_never_merged_across(hourly: Dataset) -> None:
    hourly.sink([{"id": 40, "day": "1"}], 0, query="q")
    hourly.compact(across_runs_older_than="0s")
    assert hourly.sink([{"id": 41, "day": "1"}], 0, query="q") is not None
    assert hourly.where("id = 40").count() == 0


def test_names_of_merged_runs_are_united() -> None:
    name = merged_name(["b", None, merged_name(["a", "c"])])
    assert merged_runs(name) == ("a", "b", "c")
    assert shown_run(name) == "3 runs, merged"
    assert (merged_runs("a"), merged_runs(None), shown_run("a")) == ((), (), "a")
    assert runs.Runs(carried={"x": name}).settled().of("x") == name


def test_the_command_line_and_the_rule_of_a_pipeline_take_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = make_hourly(open_repository(tmp_path))
    with pytest.raises(SystemExit):
        main(["compact", str(tmp_path / "t")])
    said = capsys.readouterr().err
    assert "No partition has small files of one run" in said
    assert "--across-runs-older-than 30d" in said
    with pytest.raises(SystemExit) as ended:
        main(["compact", str(tmp_path / "t"), "--across-runs-older-than", "0s"])
    assert ended.value.code == 0
    assert len(dataset.files()) == 2
    assert LayoutRule(
        across_runs_older_than="30d"
    ).options().across_runs_older_than == dt.timedelta(days=30)
    with pytest.raises(InvalidInputError, match="not a valid age"):
        LayoutRule(across_runs_older_than="a month")
    with pytest.raises(InvalidInputError, match="rewrites no data file"):
        dataset.compact(metadata=True, across_runs_older_than="0s")  # type: ignore[call-overload]
