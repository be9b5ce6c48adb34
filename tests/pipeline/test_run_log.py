"""The log of runs: what it records, how it is bounded, and what it makes of strange entries."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import uuid
from pathlib import Path

import pytest
from sales_days import Sales

import lakebed
from lakebed.pipeline import run_log
from lakebed.pipeline.pipeline_report import PipelineReport
from lakebed.pipeline.run_log import RunLog
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.testing import FailingStore
from lakebed.upkeep.step_report import StepReport
from lakebed.work.pipeline_runs import FOLDER, MAX_ENTRY_BYTES, read_runs

BEGAN = dt.datetime(2026, 1, 15, 2, tzinfo=dt.UTC)


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


def log_of(store: Store, pipeline: str = "daily", dataset: str = "flights") -> RunLog:
    return RunLog(store=store, dataset=dataset, pipeline=pipeline)


def run(
    log: RunLog,
    number: int = 0,
    *,
    error: lakebed.LakebedError | None = None,
    facts: dict[str, object] | None = None,
) -> None:
    """Record a run of one step."""
    began_at = BEGAN + dt.timedelta(hours=number)
    run_id = f"{number:016x}"
    log.begin(run_id, began_at)
    step = StepReport(
        step="ingest",
        status="done" if error is None else "failed",
        summary="3 rows",
        facts=facts or {},
        error=error,
    )
    log.end(
        PipelineReport(
            name=log.pipeline,
            dataset=log.dataset,
            run_id=run_id,
            began_at=began_at,
            duration_s=2.5,
            steps=(step,),
        )
    )


def test_a_run_is_recorded_with_its_steps(store: Store) -> None:
    log = log_of(store)

    run(log, facts={"row_count": 3, "left_out": [{"why": "rejects"}], "at": BEGAN})

    (found,) = read_runs(store)
    assert (found.pipeline, found.dataset, found.state) == ("daily", "flights", "ok")
    assert (found.began_at, found.duration_s, found.exit_code) == (BEGAN, 2.5, 0)
    assert found.ended_at == BEGAN + dt.timedelta(seconds=2.5)
    assert "@" in found.by
    assert found.steps[0]["facts"] == {
        "row_count": 3,
        "left_out": [{"why": "rejects"}],
        "at": "2026-01-15T02:00:00Z",
    }
    assert found.summary == "ingest done"
    assert "daily" in repr(found)


def test_a_failure_is_recorded_with_its_error_without_secrets(store: Store) -> None:
    run(log_of(store), error=lakebed.errors.StorageError("s3://key:secret@bucket is down."))

    (found,) = read_runs(store)

    assert (found.state, found.exit_code) == ("failed", 6)
    (step,) = found.steps
    assert step["error"] == {
        "code": "storage",
        "message": "s3://***@bucket is down.",
        "hint": "",
    }


def test_a_run_without_an_end_is_unfinished(store: Store) -> None:
    log = log_of(store)
    run(log)
    log.begin("f" * 16, BEGAN + dt.timedelta(days=1))

    last, first = read_runs(store)

    assert (last.state, last.exit_code, first.state) == ("unfinished", None, "ok")
    assert "killed" in last.summary
    success = log.last_success()
    assert success is not None
    assert success.run_id == first.run_id


def test_runs_of_all_pipelines_are_listed_newest_first(store: Store) -> None:
    run(log_of(store), 1)
    run(log_of(store, pipeline="hourly"), 2)
    run(log_of(store, dataset="planes"), 3)

    assert [(one.pipeline, one.dataset) for one in read_runs(store)] == [
        ("daily", "planes"),
        ("hourly", "flights"),
        ("daily", "flights"),
    ]
    assert len(read_runs(store, "flights")) == 2
    assert len(read_runs(store, "flights", "daily")) == 1
    assert len(read_runs(store, limit=2)) == 2
    assert read_runs(store, "nothing") == ()


@pytest.mark.parametrize("name", [".hidden", "a/b", "día 1", "x" * 180, "..", "a=b%"])
def test_a_pipeline_may_have_any_name(store: Store, name: str) -> None:
    run(log_of(store, pipeline=name))

    assert read_runs(store, "flights", name)[0].pipeline == name


def test_the_log_is_bounded_by_the_runs_themselves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "KEPT_RUNS", 5)
    log = log_of(store)
    run(log_of(store, pipeline="other"))

    run(log, 0)
    for number in range(1, 20):
        run(log, number, error=lakebed.errors.StorageError("Down."))

    kept = read_runs(store, "flights", "daily", limit=100)
    # The newest that has succeeded stays, so that its age is known.
    assert [one.began_at.hour - 2 for one in kept[:5]] == [19, 18, 17, 16, 15]
    assert [one.state for one in kept] == ["failed"] * 5 + ["ok"]
    assert len(list(store.list(f"{FOLDER}/"))) == 2 * len(kept) + 2


def test_long_lists_and_texts_are_cut(store: Store) -> None:
    left_out = [{"location": f"in/{n}.csv", "detail": "x" * 50_000} for n in range(5_000)]

    run(log_of(store), facts={"left_out": left_out})

    (info,) = (one for one in store.list(f"{FOLDER}/") if one.key.endswith(".ok.json"))
    assert info.size_bytes < MAX_ENTRY_BYTES
    (found,) = read_runs(store)
    listed = found.steps[0]["facts"]["left_out"]  # type: ignore[index]
    assert listed[-1] == "… 4,900 more"


GOOD = {
    "format": 1,
    "pipeline": "daily",
    "dataset": "flights",
    "run_id": "ab" * 8,
    "began_at": "2026-01-15T02:00:00Z",
    "ended_at": "2026-01-15T02:00:01Z",
    "duration_s": 1,
    "exit_code": 0,
    "steps": [],
}
BAD: dict[str, bytes] = {
    "no JSON": b"\xff\xfe",
    "empty": b"",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "another format": json.dumps(GOOD | {"format": 2}).encode(),
    "another dataset": json.dumps(GOOD | {"dataset": "planes"}).encode(),
    "no end": json.dumps({key: one for key, one in GOOD.items() if key != "ended_at"}).encode(),
    "a negative duration": json.dumps(GOOD | {"duration_s": -1}).encode(),
    "an exit code": json.dumps(GOOD | {"exit_code": 10**9}).encode(),
    "too many steps": json.dumps(
        GOOD | {"steps": [{"step": "x", "status": "done"}] * 1000}
    ).encode(),
    "large": b'{"pipeline": "' + b"x" * MAX_ENTRY_BYTES + b'"}',
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
def test_a_damaged_entry_is_reported_and_no_other_one_suffers(store: Store, data: bytes) -> None:
    log = log_of(store)
    run(log)
    store.put(f"{log.folder}/20260116T020000000000Z-{'ab' * 8}.ok.json", data)

    strange, good = read_runs(store)

    assert (strange.state, strange.run_id) == ("unreadable", "ab" * 8)
    assert strange.summary.startswith("its entry ")
    assert good.state == "ok"
    success = log.last_success()
    assert success is not None
    assert success.run_id == good.run_id


@pytest.mark.parametrize(
    "key",
    [
        "flights/run=daily/readme.txt",
        "flights/run=daily/20260116T020000000000Z-xyz.ok.json",
        "flights/run=daily/deep/20260116T020000000000Z-abababab.ok.json",
        "fli ghts/run=daily/20260116T020000000000Z-abababab.ok.json",
        "readme.txt",
    ],
)
def test_foreign_objects_are_passed_over_and_never_deleted(
    store: Store, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(run_log, "KEPT_RUNS", 1)
    store.put(f"{FOLDER}/{key}", b"{}")
    log = log_of(store)

    for number in range(3):
        run(log, number)

    assert [one.state for one in read_runs(store)] == ["ok"]
    assert store.get(f"{FOLDER}/{key}").data == b"{}"


def test_a_date_that_does_not_exist_is_unreadable_and_nothing_else(store: Store) -> None:
    store.put(f"{FOLDER}/flights/run=daily/20269999T999999999999Z-abababab.begun.json", b"{")

    (found,) = read_runs(store)

    assert found.state == "unreadable"


def test_a_log_that_cannot_be_written_fails_no_run(tmp_path: Path, caplog) -> None:
    log = log_of(FailingStore(open_store(tmp_path), fail_on="put", nth=1))

    run(log)

    assert "run not logged" in caplog.text


def test_the_log_is_in_nobodys_way(tmp_path: Path) -> None:
    sales = Sales(root=tmp_path)
    pipeline = sales.declare()
    sales.write_day("a", 1)
    pipeline.run()
    lake = lakebed.open_repository(sales.lake)

    assert lake.list() == ["sales"]
    assert len(pipeline.runs()) == 1
    assert not list(lake.open("sales").cleanup("0s").files)
    assert "_lakebed" not in lake.report(tmp_path / "page.html").read_text()
    lake.open("sales").unpublish("delta")
    lake.open("sales").unpublish("iceberg")
    lake.drop("sales")
    assert lake.list() == []
    assert len(pipeline.runs()) == 1


def test_the_age_of_the_last_success_is_compared_with_a_limit(tmp_path: Path) -> None:
    sales = Sales(root=tmp_path)
    pipeline = sales.declare()
    sales.write_day("a", 1)

    before = pipeline.last_run("1h")
    assert (before.is_overdue, before.age_s, before.last_run) == (True, None, None)

    pipeline.run()
    after = pipeline.last_run("1h")
    assert (after.is_overdue, after.max_age_s) == (False, 3600.0)
    assert after.age_s is not None
    assert after.age_s < 60
    assert pipeline.last_run("0s").is_overdue


def test_the_limit_of_a_pipeline_is_that_of_its_runs(tmp_path: Path) -> None:
    sales = Sales(root=tmp_path)
    pipeline = sales.declare()
    sales.write_day("a", 1)
    limited = dataclasses.replace(pipeline, max_age="2h")

    limited.run()

    assert limited.last_run().max_age_s == 7200.0
    assert limited.last_run("1h").max_age_s == 3600.0
    assert pipeline.last_run().max_age_s == 26 * 3600.0
    (run,) = limited.runs()
    assert (run.max_age_s, run.file) == (7200.0, str(sales.file))
    # A run that is at work has it, too, since the first entry of a run may be its only one.
    with_begin = RunLog(
        store=open_store(sales.lake), dataset="sales", pipeline="sales", max_age_s=60
    )
    with_begin.begin("ab" * 8, dt.datetime.now(dt.UTC))
    assert pipeline.runs()[0].max_age_s == 60
