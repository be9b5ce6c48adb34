"""Runs of a pipeline: what each step does, twice, in a dry run, after a failure and in a race."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import time_machine
from sales_days import KEEP_DAYS, TODAY, Sales, rows_in
from table_doors import by_deltalake, by_pyiceberg

import lakebed
from lakebed import DatasetDescriptor, Pipeline, StepReport, by
from lakebed.errors import (
    CommitConflictError,
    InvalidInputError,
    LakebedError,
    NotPublishedError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.model.retention import find_time
from lakebed.pipeline.pipeline_report import STEPS
from lakebed.state.after import NotPublished


@pytest.fixture
def sales(tmp_path: Path) -> Sales:
    sales = Sales(root=tmp_path)
    sales.declare()
    return sales


def statuses(report: lakebed.PipelineReport) -> list[str]:
    return [one.status for one in report.steps]


def assert_tables_are_right(sales: Sales) -> None:
    expected = sales.expected()
    assert sales.rows() == expected
    assert rows_in(by_deltalake(sales.lake / "sales").to_pylist()) == expected
    assert rows_in(by_pyiceberg(sales.lake / "sales").to_pylist()) == expected


def test_a_run_does_all_steps_and_a_second_one_finds_nothing_to_do(sales: Sales) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1, 2, KEEP_DAYS + 5)
    sales.write_day("b", 1, 3)

    report = pipeline.run()

    assert ["checks", *(one.step for one in report.steps)] == list(STEPS)
    assert statuses(report) == ["done", "done", "nothing", "done", "done"]
    assert (report.exit_code, report.is_ok) == (0, True)
    assert report["ingest"].facts["row_count"] == 20
    # Three old rows and the one of the test shop with them; then those of the test shop.
    assert report["retain"].facts["row_count"] == 8
    assert_tables_are_right(sales)

    version = sales.dataset().version
    again = pipeline.run()
    assert statuses(again) == ["nothing"] * 5
    assert sales.dataset().version == version


def test_later_runs_merge_small_files_and_delete_the_old_ones(sales: Sales) -> None:
    pipeline = sales.declare()
    for number in range(3):
        sales.write_day(f"file-{number}", 1, 2)
        report = pipeline.run()

        assert report.is_ok
        assert_tables_are_right(sales)
    assert report["compact"].status == "done"
    assert len(sales.dataset().files()) == 2  # one a day
    # Of the data files, those of the version that tables show are left, and no others.
    live = {file.key for file in sales.dataset().files()}
    stored = {str(path.relative_to(sales.lake)) for path in sales.lake.glob("sales/data/day=*/*/*")}
    assert stored == live


def test_a_partition_is_compacted_only_when_it_has_enough_small_files(sales: Sales) -> None:
    import dataclasses

    pipeline = dataclasses.replace(
        sales.declare(), layout=lakebed.LayoutRule(min_files=4), retention=None
    )
    done = []
    for number in range(4):
        sales.write_day(f"file-{number}", 1)
        done.append(pipeline.run()["compact"].facts["files_before"])

    assert done == [0, 0, 0, 4]


def test_retention_deletes_whole_partitions_by_metadata_alone(sales: Sales) -> None:
    import dataclasses

    pipeline = dataclasses.replace(
        sales.declare(), retention=lakebed.RetentionRule(keep=f"{KEEP_DAYS}d"), layout=None
    )
    sales.write_day("a", KEEP_DAYS - 1, KEEP_DAYS, KEEP_DAYS + 1, 400)

    with time_machine.travel(dt.datetime.combine(TODAY, dt.time(12), dt.UTC)):
        facts = pipeline.run()["retain"].facts

    assert facts["cutoff"] == str(TODAY - dt.timedelta(days=KEEP_DAYS))
    assert (facts["partition_count"], facts["file_count"], facts["row_count"]) == (2, 2, 8)
    assert facts["written_file_count"] == 0
    kept = {row["day"] for row in sales.dataset().arrow().to_pylist()}
    assert kept == {TODAY - dt.timedelta(days=days) for days in (KEEP_DAYS - 1, KEEP_DAYS)}


def test_rows_that_retention_has_deleted_are_not_read_again(sales: Sales) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1, 400)
    pipeline.run()

    again = pipeline.run()
    sales.write_day("a", 1, 400, 2)  # it has grown, so that all of it is read
    changed = pipeline.run()

    assert again["ingest"].status == "nothing"
    assert (changed["ingest"].facts["file_count"], changed["retain"].status) == (1, "done")
    assert sales.rows() == sales.expected()


def test_protections_win_over_retention_and_cleanup(sales: Sales) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1, 400)
    pipeline.run(only="ingest")
    version = sales.dataset().version
    sales.dataset().protections.add(version=version, reason="audit")

    report = pipeline.run()

    assert report["retain"].facts["protection_count"] == 1
    assert sales.rows() == sales.expected()
    protected = sales.dataset().at(version=version)
    assert rows_in(protected.arrow().to_pylist()).total() == 8


STRATEGIES: dict[str, tuple[Any, str | None, str]] = {
    "date of a timestamp": (by.date("at"), None, "2020-02-29T00:00:00"),
    "day": ("day", None, "2020-02-29"),
    "year and month": ("year(at), month(at)", None, "2020-02-01T00:00:00"),
    "year": ("year(at)", None, "2020-01-01T00:00:00"),
    "year to hour": ("year(at), month(at), day(at) as d, hour(at)", None, "2020-02-29T13:00:00"),
    "date and hour": ("date(at) as dt, hour(at)", None, "2020-02-29T13:00:00"),
    "text of a day": ("date_format(at, 'yyyy-MM-dd') as dt", None, "2020-02-29T00:00:00"),
    "text of a month": ("date_format(at, 'yyyyMM') as dt", None, "2020-02-01T00:00:00"),
    "text of a month with words": (
        "date_format(at, '''dt=''yyyyMM') as dt",
        None,
        "2020-02-01T00:00:00",
    ),
    "local": ("date(wall) as dt", None, "2020-02-29T00:00:00"),
    "seconds": ("date(seconds, unit=s) as dt", None, "1582934400"),
    "one of two": ("date(at) as dt, day", "day", "2020-02-29"),
    "by the name of a partition": ("date(at) as dt, day", "dt", "2020-02-29T00:00:00"),
    "no partition": ("shop", "at", "2020-02-29T00:00:00"),
}


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_the_time_to_keep_by_is_cut_to_whole_partitions(
    strategy: tuple[Any, str | None, str],
) -> None:
    partition_by, field, expected = strategy
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", tz="UTC")),
            ("wall", pa.timestamp("us")),
            ("day", pa.date32()),
            ("seconds", pa.int64()),
            ("shop", pa.string()),
        ]
    )
    descriptor = DatasetDescriptor(schema=schema, partition_by=partition_by)
    cutoff = dt.datetime(2020, 2, 29, 13, 45, tzinfo=dt.UTC)

    condition = find_time(descriptor, field).condition(cutoff)

    value = condition.value  # type: ignore[union-attr]
    text = value.isoformat() if isinstance(value, dt.date) else str(value)
    assert text.removesuffix("+00:00") == expected


@pytest.mark.parametrize("partition_by", ["year(at), month(at)", "date(at) as dt", "hash(n, 2)"])
def test_rows_before_the_cutoff_go_and_all_others_stay(partition_by: str) -> None:
    now = dt.datetime.now(dt.UTC)
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("n", pa.int64())])
    name = f"memory://retention-{partition_by[:4]}/rows"
    rows = lakebed.open_repository(name.rpartition("/")[0]).create(
        "rows", DatasetDescriptor(schema=schema, partition_by=partition_by)
    )
    moments = [now - dt.timedelta(days=n * 9) for n in range(60)] + [None]
    rows.append([{"at": moment, "n": n} for n, moment in enumerate(moments)])
    ingest = lakebed.Ingest(
        name="rows", into=name, source=lakebed.FromFiles(paths="none", may_be_empty=True)
    )
    rule = lakebed.RetentionRule(keep="100d", by="at")

    Pipeline(ingest=ingest, retention=rule).run(only="retain")

    kept = {row["n"] for row in rows.arrow().to_pylist()}
    cutoff = now - dt.timedelta(days=100)
    first = cutoff.replace(day=1) if "month" in partition_by else cutoff
    floor = first.replace(hour=0, minute=0, second=0, microsecond=0)
    assert kept == {n for n, moment in enumerate(moments) if moment is None or moment >= floor}


# Dry runs


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_a_dry_run_plans_every_step_and_writes_nothing(sales: Sales) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1, 2)
    pipeline.run()
    sales.write_day("b", 1, 2, 3)
    lakebed.Ingest.from_toml(sales.file).run()  # without the other steps
    sales.dataset().append(
        [{"day": TODAY - dt.timedelta(days=400), "shop": "x", "amount": n} for n in range(5)]
    )
    sales.write_day("c", 1)
    before = contents(sales.lake)

    plan = pipeline.run(dry_run=True)

    assert contents(sales.lake) == before
    assert plan.is_dry_run
    assert plan["ingest"].facts["new_count"] == 1
    assert plan["ingest"].facts["size_bytes"] == (sales.root / "in/c.jsonl").stat().st_size
    planned = {one.step: one for one in plan.steps}
    done = {one.step: one for one in pipeline.run().steps}
    # The five old rows and three of the test shop were there; one came with the new file.
    assert planned["retain"].facts["row_count"] == 8
    assert done["retain"].facts["row_count"] == 9
    assert planned["retain"].facts["size_bytes"] > 0
    assert planned["retain"].facts["request_count"] > 0
    assert planned["compact"].facts["files_before"] >= 4
    assert planned["compact"].facts["request_count"] > planned["compact"].facts["files_before"]
    assert planned["publish"].status == "done"
    assert {one["kind"] for one in planned["publish"].facts["tables"]} == {"delta", "iceberg"}


def test_a_dry_run_of_a_first_run_creates_nothing(sales: Sales) -> None:
    sales.write_day("a", 1)

    plan = sales.declare().run(dry_run=True)

    assert statuses(plan) == ["done", *["skipped"] * 4]
    assert plan["ingest"].facts["creates_dataset"] is True
    assert not sales.lake.exists()


# Some steps


def test_steps_can_be_chosen(sales: Sales) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1)

    assert [one.step for one in pipeline.run(only="ingest").steps] == ["ingest"]
    assert [one.step for one in pipeline.run(only=["cleanup", "retain"]).steps] == [
        "retain",
        "cleanup",
    ]
    assert [one.step for one in pipeline.run(start_at="publish").steps] == ["publish", "cleanup"]
    with pytest.raises(InvalidInputError, match="'compat' is not a step") as caught:
        pipeline.run(only="compat")  # type: ignore[arg-type]
    assert "'compact'" in caught.value.hint
    with pytest.raises(InvalidInputError, match="does not declare the step publish"):
        Pipeline(ingest=pipeline.ingest).run(only="publish")


def test_tables_of_the_properties_are_published_to_without_a_rule(tmp_path: Path) -> None:
    sales = Sales(root=tmp_path)
    pipeline = Pipeline(ingest=sales.declare().ingest)
    sales.write_day("a", 1)
    pipeline.run()
    sales.dataset().evolve(
        lambda descriptor: __import__("dataclasses").replace(
            descriptor, properties={"publish.delta": "true"}
        )
    )

    report = pipeline.run()

    assert [one.step for one in report.steps] == ["ingest", "publish"]
    assert rows_in(by_deltalake(sales.lake / "sales").to_pylist()) == sales.rows()


# Failures


def test_a_file_that_is_kept_back_needs_attention_and_the_steps_go_on(sales: Sales) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1, 2)
    (sales.root / "in" / "bad.jsonl").write_text("garbage\n" * 20)

    report = pipeline.run()

    assert report["ingest"].status == "attention"
    assert report["ingest"].facts["left_out"][0]["why"] == "rejects"
    assert (report.exit_code, report.is_ok) == (2, True)
    assert_tables_are_right(sales)
    assert report["cleanup"].facts["quarantine_object_count"] == 0


def test_a_step_that_fails_stops_no_other_one_but_the_cleanup(
    sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1, 400)
    pipeline.run(only="ingest")
    (sales.root / "sale.avsc").unlink()
    seen: list[StepReport] = []

    def fail(*_: object, **__: object) -> None:
        message = "The raw files cannot be read."
        raise SchemaMismatchError(message, hint="Look.")

    with monkeypatch.context() as patch:
        patch.setattr(lakebed.Ingest, "run", fail)
        with pytest.raises(SchemaMismatchError, match="cannot be read") as caught:
            pipeline.run(on_step=seen.append)

    assert [one.status for one in seen] == ["failed", "done", "nothing", "done", "skipped"]
    assert "after the failure of ingest" in seen[-1].summary
    assert any("step ingest" in note for note in caught.value.__notes__)
    last = pipeline.runs(1)[0]
    assert (last.state, last.exit_code) == ("failed", 2)
    assert pipeline.run().is_ok


def test_a_table_that_cannot_be_published_to_is_a_failure_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another test of this process may have started one.
    monkeypatch.setattr("lakebed.tables.automatic.is_session_running", lambda: False)
    sales = Sales(root=tmp_path, tables='delta = true\nhive = "lake.sales"\n')
    pipeline = sales.declare()
    sales.write_day("a", 1)

    report = pipeline.run(fail=False)

    assert (report["publish"].status, report.exit_code) == ("failed", 9)
    assert isinstance(report["publish"].error, NotPublishedError)
    assert rows_in(by_deltalake(sales.lake / "sales").to_pylist()) == sales.expected()
    assert report["cleanup"].status == "skipped"


def test_rules_that_do_not_fit_the_dataset_stop_the_run_before_it_begins(sales: Sales) -> None:
    sales.write_day("a", 1)
    sales.declare().run()
    text = sales.file.read_text().replace('schema = "sale.avsc"\npartition_by = "day"\n', "")
    sales.file.write_text(text.replace("shop = 'test'", "shp = 'test'"))
    before = contents(sales.lake)

    with pytest.raises(LakebedError, match="shp"):
        Pipeline.from_toml(sales.file).run()

    assert contents(sales.lake) == before


def test_rules_that_do_not_fit_the_declared_dataset_stop_the_first_run(sales: Sales) -> None:
    import dataclasses

    rules = lakebed.RetentionRule(keep="9d", by="shop", delete_where="shp = 'test'")
    pipeline = dataclasses.replace(sales.declare(), retention=rules)

    with pytest.raises(InvalidInputError, match="'shop' is a string") as caught:
        pipeline.run()

    assert any("retention.delete_where" in note for note in caught.value.__notes__)
    assert not sales.lake.exists()


def test_an_interrupt_is_recorded_and_raised(sales: Sales, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(lakebed.Ingest, "run", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()

    assert pipeline.runs(1)[0].state == "failed"


# Races


@pytest.mark.parametrize(
    "error",
    [
        CommitConflictError("Another commit was faster.", expected=1, actual=2),
        StorageError("The store is busy.", retryable=True),
    ],
    ids=["conflict", "store"],
)
def test_a_step_that_loses_a_race_is_tried_again(
    sales: Sales, monkeypatch: pytest.MonkeyPatch, error: LakebedError
) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1)
    real, calls = lakebed.Ingest.run, []

    def run(self: lakebed.Ingest, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) < 3:
            raise error
        return real(self, *given, **named)

    monkeypatch.setattr(lakebed.Ingest, "run", run)
    monkeypatch.setattr("lakebed.upkeep.upkeep_steps.time.sleep", lambda _: None)

    report = pipeline.run()

    assert (report["ingest"].attempts, report["ingest"].status) == (3, "done")


def test_work_that_another_run_did_is_reported_as_such(
    sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = sales.declare()
    sales.write_day("a", 1)
    real, calls = lakebed.Ingest.run, []

    def run(self: lakebed.Ingest, *given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            real(self)  # the other run
            message = "The files were read by another."
            raise CommitConflictError(message, expected=1, actual=2)
        return real(self, *given, **named)

    monkeypatch.setattr(lakebed.Ingest, "run", run)
    monkeypatch.setattr("lakebed.upkeep.upkeep_steps.time.sleep", lambda _: None)

    report = pipeline.run(only="ingest")

    assert report["ingest"].summary == "no new file: another run did it"


def in_threads(count: int, work: Callable[[], lakebed.PipelineReport]) -> list[Any]:
    barrier = threading.Barrier(count)

    def run(_: int) -> lakebed.PipelineReport:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_runs_at_once_read_each_file_once(sales: Sales) -> None:
    pipeline = sales.declare()
    for round_ in range(3):
        for number in range(3):
            sales.write_day(f"file-{round_}-{number}", 1, 2, 400)

        reports = in_threads(2, lambda: pipeline.run(fail=False))

        assert [report.exit_code for report in reports] == [0, 0], [
            one for report in reports for one in report.to_records() if one["error"]
        ]
        assert sales.rows() == sales.expected()
    assert pipeline.run().is_ok
    assert_tables_are_right(sales)
    assert sales.dataset().check(deep=True).is_ok


# The objects in Python


def test_a_report_shows_its_steps(sales: Sales) -> None:
    sales.write_day("a", 1)

    report = sales.declare().run()

    assert "ingest done" in repr(report)
    assert "1 file, 4 rows" in report._repr_html_()
    with pytest.raises(KeyError):
        Pipeline(ingest=sales.declare().ingest).run()["cleanup"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: lakebed.LayoutRule(min_files=1), "min_files is 1"),
        (lambda: lakebed.LayoutRule(target_bytes=0), "target_bytes is 0"),
        (lambda: lakebed.RetentionRule(), "neither keep nor delete_where"),
        (lambda: lakebed.RetentionRule(keep="4 days"), "not a valid age"),
        (lambda: lakebed.CleanupRule(older_than="-1d"), "not a valid age"),
        (lambda: lakebed.CleanupRule(published="never"), "published is 'never'"),  # type: ignore[arg-type]
        (lambda: lakebed.PublishRule(hive="a.b.c"), "Illegal table name"),
        (lambda: lakebed.PublishRule(hive={"tabel": "x"}), "has no 'tabel'"),
        (lambda: lakebed.PublishRule(hive={}), "name of the Hive table is missing"),
        (lambda: lakebed.PublishRule(iceberg={"table": "a.b"}), "Only table"),
        (lambda: lakebed.PublishRule(delta="yes"), "delta is 'yes'"),  # type: ignore[arg-type]
        (lambda: Pipeline(ingest="sales.toml"), "ingest is 'sales.toml'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_rule_is_refused_by_name(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()

    assert said in caught.value.message
    assert caught.value.hint


def test_a_table_beside_the_data_is_published_to_again_after_a_race(
    sales: Sales, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.tables import automatic

    pipeline = sales.declare()
    sales.write_day("a", 1)
    real, calls = automatic.publish_to, []

    def publish_to(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            failure = NotPublished(dataset="sales", table="delta", reason="Others published.")
            return automatic.PublishedTo(done=(), failures=(failure,))
        return real(*given, **named)

    monkeypatch.setattr(automatic, "publish_to", publish_to)

    assert pipeline.run()["publish"].status == "done"
    assert len(calls) == 2
