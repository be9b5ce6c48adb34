"""What a report names as needing attention: each fault is seeded, and a healthy lake has none."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_machine
from sales_days import Sales
from shown_page import ShownPage

import lakebed
from lakebed import by, checks
from lakebed.errors import StorageError
from lakebed.pipeline.pipeline_report import PipelineReport
from lakebed.pipeline.run_log import RunLog
from lakebed.state.published import Note
from lakebed.store import open_store
from lakebed.upkeep.step_report import StepReport
from lakebed.web import findings as rules
from lakebed.web.findings import MIB

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
SCHEMA = {
    "type": "record",
    "name": "row",
    "fields": [{"name": "p", "type": "string"}, {"name": "n", "type": "long"}],
}
DESCRIPTOR = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
Found = list[dict[str, str]]


@pytest.fixture
def found(cli, tmp_path: Path) -> Callable[..., Found]:
    """Return what reports the findings of a lake, or of one dataset."""

    def report(location: object = tmp_path / "lake", kind: str | None = None) -> Found:
        told = cli.json("report", location, "--file", tmp_path / "page.html", "-q")["findings"]
        page = ShownPage((tmp_path / "page.html").read_text("utf-8"))
        rows = page.tables["Needs attention"][1:]
        if told:
            # The page shows the same, and each command as a whole.
            assert rows == [
                [one["dataset"], f"{_shown(one['finding'])} {one['why']}", one["command"]]
                for one in told
            ]
        else:
            assert rows == [["none"]]
        return [one for one in told if kind in (None, one["kind"])]

    return report


def _shown(text: str) -> str:
    return " ".join(text.split())


def paste(cli: Any, command: str, exit_code: int | None = 0) -> Any:
    """Run the command of a finding as a shell would, and agree if it asks."""
    program, *arguments = shlex.split(command)
    assert program == "lakebed"
    return cli(*arguments, exit_code=exit_code, stdin="y\n")


def rows(count: int, p: str = "a") -> list[dict[str, Any]]:
    return [{"p": p, "n": n} for n in range(count)]


@pytest.fixture
def dataset(lake: lakebed.Repository) -> lakebed.Dataset:
    return lake.create("d", DESCRIPTOR)


# A healthy lake


def test_a_healthy_pipeline_needs_no_attention(tmp_path: Path, found) -> None:
    sales = Sales(root=tmp_path, checks='amounts = {rows = "amount >= 0"}\n')
    pipeline = sales.declare()

    for number in range(5):
        sales.write_day(f"file-{number}", 1, 2)
        assert pipeline.run().is_ok
        assert found() == []
    sales.dataset().protections.add(version=sales.dataset().version, reason="audit")
    sales.dataset().staged.add([{"day": dt.date(2026, 1, 1), "shop": "x", "amount": 1}])

    assert found() == []
    assert found(tmp_path / "lake" / "sales") == []


def test_a_dataset_without_a_pipeline_needs_none(dataset: lakebed.Dataset, found) -> None:
    dataset.append(rows(3))
    dataset.rerun(rows(2), run="daily", replace_all=True)

    assert found() == []


# Publications


def test_a_table_that_is_behind(cli, dataset: lakebed.Dataset, found) -> None:
    dataset.append(rows(1))
    dataset.publish("delta")
    assert found() == []
    dataset.append(rows(1))
    dataset.append(rows(1))

    (finding,) = found()
    assert finding["kind"] == "publication"
    assert re.fullmatch(
        r"delta shows version 1 of 3: 2 commits behind, since 20\d\d-\d\d-\d\d \d\d:\d\d\.",
        finding["finding"],
    )
    assert finding["command"].startswith("lakebed publish delta ")
    paste(cli, finding["command"])
    assert found() == []
    # A commit that changes neither files nor schema leaves the table as it should be.
    dataset.protections.add(version=1, reason="audit")
    assert found() == []


def test_a_table_that_each_commit_should_be_published_to(
    cli, lake: lakebed.Repository, found, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"publish.delta": "true"}
    dataset = lake.create("d", dataclasses.replace(DESCRIPTOR, properties=properties))
    dataset.append(rows(1))
    assert found() == []

    def fail(*_: object, **__: object) -> None:
        raise StorageError("Down.")

    with monkeypatch.context() as down:
        down.setattr("lakebed.tables.delta.to_delta.publish", fail)
        dataset.append(rows(1))

    (finding,) = found()
    assert "although each commit should be published to it: 1 commit behind" in finding["finding"]
    assert finding["command"].startswith("lakebed publish all ")
    paste(cli, finding["command"])
    assert found() == []


def test_a_publication_that_was_given_up(cli, dataset: lakebed.Dataset, found) -> None:
    dataset.append(rows(1))
    dataset.publish("delta")
    dataset.append(rows(1))
    note = Note(open_store(dataset.uri.removesuffix("/d")), "d", "d", kind="delta", name="_delta")
    (key,) = (
        info.key
        for info in open_store(dataset.uri.removesuffix("/d")).list("d/")
        if "ublished" in info.key
    )
    name = key.rpartition("/")[2].removesuffix(".json")
    note = Note(open_store(dataset.uri.removesuffix("/d")), "d", "d", kind="delta", name=name)
    note.read()
    assert note.begin(2)
    at_work = found(kind="publication")
    note.give_up()

    given_up = found(kind="publication")

    assert [one for one in at_work if "broken off" in one["finding"]] == []
    (finding,) = (one for one in given_up if "broken off" in one["finding"])
    assert finding["finding"].endswith("it shows version 1 or 2.")
    paste(cli, finding["command"])
    assert found() == []


def test_a_record_of_a_publication_that_is_damaged(dataset: lakebed.Dataset, found) -> None:
    dataset.append(rows(1))
    dataset.publish("delta")
    root = Path(dataset.uri.removeprefix("file://").removesuffix("/d"))
    (note,) = (path for path in root.rglob("*.json") if "published" in str(path.parent))
    note.write_text("{")

    told = [one["finding"] for one in found()]

    assert any(text.startswith("A record of a publication cannot be read: d/") for text in told)
    assert any(text.startswith("A cleanup is not possible: ") for text in told)


# Quarantine


def test_rows_that_wait_in_quarantine_and_their_growth(
    cli, dataset: lakebed.Dataset, found, tmp_path: Path
) -> None:
    def load(name: str, bad: int, run: str) -> None:
        lines = ['{"p": "a", "n": 1}'] * 20 + ['{"p": "a", "n": "x"}'] * bad
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        dataset.load(tmp_path / name, run=run)

    load("fit.jsonl", 0, "zero")
    assert found() == []
    load("one.jsonl", 2, "one")
    load("two.jsonl", 3, "two")

    (finding,) = found()
    assert (finding["dataset"], finding["kind"]) == ("d", "quarantine")
    assert finding["finding"].startswith(
        "5 rejects wait in d_quarantine. It grew by 5 in the last 2 runs, since "
    )
    assert "not" in paste(cli, finding["command"]).stdout
    # The report of one dataset has it, too.
    assert len(found(tmp_path / "lake" / "d")) == 1
    quarantine = lakebed.open_repository(tmp_path / "lake")["d_quarantine"]
    quarantine.delete(quarantine.where("run = 'two'"))
    assert found()[0]["finding"].startswith("2 rejects wait")
    quarantine.delete(quarantine.where("run = 'one'"))
    assert found() == []


def test_a_quarantine_of_another_name_is_known_from_the_runs(tmp_path: Path, found) -> None:
    sales = Sales(root=tmp_path)
    pipeline = sales.declare()
    sales.write_day("a", 1, count=40)
    with (tmp_path / "in" / "a.jsonl").open("a") as file:
        file.write("garbage\n")
    ingest = dataclasses.replace(pipeline.ingest, quarantine="bad_sales")
    dataclasses.replace(pipeline, ingest=ingest).run()

    (finding,) = found(kind="quarantine")

    assert finding["finding"].startswith("1 reject waits in bad_sales.")


# Files


def test_small_files_with_the_gain_of_a_compaction(cli, dataset: lakebed.Dataset, found) -> None:
    for _ in range(8):
        dataset.append(rows(2))
    assert found() == []
    dataset.append(rows(2))

    (finding,) = found()
    assert finding["kind"] == "small files"
    assert "A compaction makes 1 of 9 files of " in finding["finding"]
    paste(cli, finding["command"])
    assert found() == []


def test_small_files_of_runs_which_a_compaction_leaves_apart(
    cli, dataset: lakebed.Dataset, found
) -> None:
    for number in range(9):
        dataset.append(rows(2), run=f"run-{number}")

    (finding,) = found()

    assert "They belong to 9 runs, and a compaction leaves them apart." in finding["finding"]
    assert "stay apart" in paste(cli, finding["command"]).stderr


def test_a_partition_that_is_much_larger_than_the_others(
    dataset: lakebed.Dataset, found, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "READ_BEST_BYTES", (1, 100))
    for p in "abcd":
        dataset.append(rows(1, p))
    assert found() == []
    dataset.append([{"p": "e", "n": n * n * 7919 % 100_003} for n in range(20_000)])

    (finding,) = found()

    assert finding["kind"] == "partition size"
    assert finding["finding"].startswith("Partition p=e is ")


def test_dead_bytes_and_bytes_that_are_kept(
    cli, dataset: lakebed.Dataset, found, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        dataset.overwrite(rows(50))
    assert found() == []  # they are small
    monkeypatch.setattr(rules, "MIB", 1)
    (kept,) = found()
    assert MIB == 2**20
    assert kept["kind"] == "dead bytes"
    assert re.search(r"are kept beside .* of live files: .* retained", kept["finding"])
    paste(cli, kept["command"])

    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=20)
    with time_machine.travel(later, tick=True):
        (dead,) = found()
        assert re.fullmatch(r".* are dead, and .* are live\.", dead["finding"])
        paste(cli, dead["command"])
    root = Path(dataset.uri.removeprefix("file://"))
    assert len(list(root.glob("data/p=a/*/*.parquet"))) == 1


def test_an_index_that_lacks_files(cli, lake: lakebed.Repository, found) -> None:
    dataset = lake.create("d", dataclasses.replace(DESCRIPTOR, index=("n",)))
    dataset.append(rows(3))
    assert found() == []
    dataset.indices.drop("n")
    dataset.evolve(lambda old: dataclasses.replace(old, index=("n",)))

    (finding,) = found()
    assert (finding["kind"], finding["finding"]) == ("index", "The index of n lacks 1 file.")
    paste(cli, finding["command"])
    assert found() == []


# Checks


def test_a_check_that_only_warns(cli, dataset: lakebed.Dataset, found) -> None:
    check = checks.condition("n >= 0", on_failure="warn")
    dataset.evolve(lambda old: old.with_check("positive", check))
    dataset.append(rows(2))
    assert found() == []
    dataset.append([{"p": "a", "n": -5}, {"p": "a", "n": 5}])

    (finding,) = found()
    assert finding["kind"] == "check"
    assert finding["finding"] == (
        "Rows may fail check positive, condition('n >= 0'): it is warned in version 3, 1 row, such as "
        "n = -5."
    )
    assert paste(cli, f"{finding['command']} -o csv").stdout.splitlines()[1:] == ["a,-5"]
    dataset.where("n < 0").update_rows({"n": "0"})
    assert found() == []


def test_a_check_that_was_not_made(cli, dataset: lakebed.Dataset, found) -> None:
    dataset.append(rows(2))
    check = checks.not_null("n")
    dataset.evolve(lambda old: old.with_check("there", check), existing="unchecked")

    (finding,) = found()
    assert "not_null(n): it is not checked" in finding["finding"]
    assert paste(cli, f"{finding['command']} -o jsonl").stdout == ""
    dataset.evolve(lambda old: old.without_check("there"))
    dataset.evolve(lambda old: old.with_check("there", check))
    assert found() == []


def test_a_check_that_has_rejected_rows(cli, dataset: lakebed.Dataset, found) -> None:
    check = checks.condition("n >= 0", on_failure="reject")
    dataset.evolve(lambda old: old.with_check("positive", check))
    dataset.append([{"p": "a", "n": -5}, {"p": "a", "n": 5}])

    (finding,) = found()
    assert finding["finding"] == (
        "Check positive, condition('n >= 0'), has rejected 1 row in one commit with results of checks."
    )
    assert "n = -5" in paste(cli, finding["command"]).stdout
    for _ in range(10):
        dataset.overwrite(rows(1))
    assert found() == []  # it is long ago


# Protections and staged batches


def test_a_protection_that_has_expired(cli, dataset: lakebed.Dataset, found) -> None:
    with time_machine.travel(NOW, tick=True):
        dataset.append(rows(1))
        dataset.protections.add(version=1, reason="audit", until=NOW + dt.timedelta(days=2))
        assert found() == []
    with time_machine.travel(NOW + dt.timedelta(days=5), tick=True):
        (finding,) = found()
        assert finding["kind"] == "protection"
        assert finding["finding"] == "The protection of version 1 ended 3 days ago: audit."
        paste(cli, finding["command"])
        assert found() == []


def test_a_staged_batch_that_waits_too_long(cli, dataset: lakebed.Dataset, found) -> None:
    with time_machine.travel(NOW, tick=True):
        batch = dataset.staged.add(rows(3), run="daily", operation="rerun", replace_all=True)
        other = dataset.staged.add(rows(1, "b"))
    with time_machine.travel(NOW + dt.timedelta(hours=20), tick=True):
        assert found() == []
    with time_machine.travel(NOW + dt.timedelta(days=3), tick=True):
        first, _ = found()
        assert first["finding"].startswith(
            f"Batch {batch.batch_id} of run daily, 3 rows, is staged and has waited for 3 days; its "
            "lease ends 2026-03-08"
        )
        paste(cli, first["command"])
        assert dataset.count() == 3
        assert len(found()) == 1
    with time_machine.travel(NOW + dt.timedelta(days=9), tick=True):
        (second,) = found()
        assert f"Batch {other.batch_id}, 1 row" in second["finding"]
        assert "its lease ended 2026-03-08" in second["finding"]
        paste(cli, second["command"])
        assert found() == []


# Runs


def log(lake: lakebed.Repository, hours_ago: float, outcome: str = "ok", **more: Any) -> None:
    """Record a run of the pipeline `daily` of the dataset `d`, some hours before `NOW`."""
    facts = more.pop("facts", {})
    took = more.pop("took", 5.0)
    run_log = RunLog(store=lake.store, dataset=more.pop("dataset", "d"), pipeline="daily", **more)
    began_at = NOW - dt.timedelta(hours=hours_ago)
    run_id = f"{int(hours_ago * 3600):016x}"
    run_log.begin(run_id, began_at)
    if outcome == "unfinished":
        return
    error = StorageError("The bucket is down.") if outcome == "failed" else None
    step = StepReport(
        step="ingest",
        status="failed" if error else "attention" if facts else "done",
        summary="3 rows" if error is None else error.message,
        facts={"row_count": 3, **facts},
        error=error,
    )
    run_log.end(
        PipelineReport(
            name="daily",
            dataset=f"{lake.uri}/d",
            run_id=run_id,
            began_at=began_at,
            duration_s=took,
            steps=(step,),
        )
    )


@pytest.fixture
def at_noon():
    with time_machine.travel(NOW, tick=True):
        yield


@pytest.mark.usefixtures("at_noon")
def test_a_run_that_is_late_by_its_declared_limit(cli, lake, dataset, found) -> None:
    log(lake, 3, max_age_s=3600 * 4)
    assert found() == []
    log(lake, 2.5, max_age_s=3600 * 2)

    (finding,) = found()
    assert finding["kind"] == "run"
    assert finding["finding"] == (
        "Pipeline daily: the last successful run ended 2.5 hours ago, and the limit is 2 hours, as "
        "its max_age declares."
    )
    assert "daily" in paste(cli, finding["command"]).stdout


@pytest.mark.usefixtures("at_noon")
@pytest.mark.parametrize(("newest", "is_late"), [(1.9, False), (2.2, True)])
def test_a_run_that_is_late_by_the_usual_interval(lake, dataset, found, newest, is_late) -> None:
    for hour in range(6):
        log(lake, newest + hour)

    told = [one["finding"] for one in found()]

    assert len(told) == is_late
    if is_late:
        assert told[0].endswith("the limit is 2 hours, as it usually runs every 60 minutes.")


@pytest.mark.usefixtures("at_noon")
def test_a_few_runs_by_hand_have_no_usual_interval(lake, dataset, found) -> None:
    for days in (300, 200, 199):
        log(lake, 24 * days)

    assert found() == []


@pytest.mark.usefixtures("at_noon")
def test_a_run_that_failed(lake, dataset, found) -> None:
    log(lake, 2)
    log(lake, 1, "failed")

    (finding,) = found()
    assert finding["finding"] == (
        "Pipeline daily: the last run, of 2026-03-01 11:00, failed in ingest: The bucket is down."
    )
    log(lake, 0.5)
    assert found() == []


@pytest.mark.usefixtures("at_noon")
def test_a_pipeline_that_never_succeeded_even_without_a_dataset(lake, dataset, found) -> None:
    log(lake, 1, "failed", dataset="missing")

    told = found()

    assert [(one["dataset"], one["kind"]) for one in told] == [("missing", "run")] * 2
    assert "no run in the log has succeeded" in told[1]["finding"]


@pytest.mark.usefixtures("at_noon")
def test_a_run_that_has_not_ended(lake, dataset, found) -> None:
    log(lake, 6)
    log(lake, 0.5, "unfinished")
    assert found() == []  # it is at work
    log(lake, 5, "unfinished")
    assert found() == []  # another has begun since

    with time_machine.travel(NOW + dt.timedelta(hours=2), tick=True):
        (finding,) = found()
    assert finding["finding"].endswith("the run that began 2.5 hours ago has not ended.")


@pytest.mark.usefixtures("at_noon")
def test_a_run_that_usually_takes_long_is_not_taken_for_killed(lake, dataset, found) -> None:
    log(lake, 20, took=3600 * 2)
    log(lake, 6, "unfinished")

    assert found() == []


@pytest.mark.usefixtures("at_noon")
def test_runs_that_are_killed_again_and_again(lake, dataset, found) -> None:
    for number in range(9):
        log(lake, number + 1, "unfinished" if number in (2, 4) else "ok")
    assert found() == []
    log(lake, 10, "unfinished")

    (finding,) = found()

    assert "3 of 9 runs before the newest have not ended" in finding["finding"]


@pytest.mark.usefixtures("at_noon")
def test_a_raw_file_that_was_kept_back(lake, dataset, found) -> None:
    left_out = [{"location": "in/b.csv", "why": "truncated", "detail": "", "is_kept_back": True}]
    log(lake, 1, facts={"kept_back_count": 1, "left_out": left_out})

    (finding,) = found()

    assert finding["finding"].endswith("11:00, kept a raw file back, in/b.csv: truncated.")
    log(lake, 0.5)
    assert found() == []


@pytest.mark.usefixtures("at_noon")
def test_an_entry_of_the_log_that_is_damaged(lake, dataset, found) -> None:
    log(lake, 2)
    lake.store.put(f"_lakebed.runs/d/run=daily/20260301T110000000000Z-{'ab' * 8}.ok.json", b"{")

    (finding,) = found()

    assert "the newest entry of the log cannot be read" in finding["finding"]


def test_the_command_of_a_run_runs_its_declaration(cli, tmp_path: Path, found) -> None:
    sales = Sales(root=tmp_path / "with space")
    sales.declare()
    sales.write_day("a", 1)
    raw = sales.root / "in" / "a.jsonl"
    fit = raw.read_bytes()
    raw.write_bytes(b"\x00" * 100)
    cli("run", sales.file, exit_code=2)

    (finding,) = found(sales.lake, kind="run")
    assert finding["command"] == f"lakebed run {shlex.quote(str(sales.file))}"
    raw.write_bytes(fit)
    paste(cli, finding["command"])

    assert found(sales.lake, kind="run") == []


def test_the_result_counts_findings_and_a_hostile_name_stays_text(
    cli, lake, dataset, tmp_path: Path
) -> None:
    hostile = "<script>alert(1)</script>"
    with time_machine.travel(NOW, tick=True):
        run_log = RunLog(store=lake.store, dataset="d", pipeline=hostile, file=f"/{hostile}.toml")
        run_log.begin("ab" * 8, NOW - dt.timedelta(days=3))
        result = cli("report", tmp_path / "lake", "--file", tmp_path / "x.html")
    page = ShownPage((tmp_path / "x.html").read_text("utf-8"))

    assert "1 finding needs attention." in result.stderr
    assert "script" not in page.elements
    (row,) = page.rows("Needs attention")
    assert row["command"] == f"lakebed run '/{hostile}.toml'"
    assert json.loads(json.dumps(row))["finding"].startswith(f"Pipeline {hostile}: ")
