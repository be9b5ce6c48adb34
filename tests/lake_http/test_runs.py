"""The pages of runs: what the log records, in any order, with links to versions that can be read."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from asking import Client, shown
from sales_days import Sales
from shown_page import ShownPage

import lakebed
from lakebed.errors import StorageError
from lakebed.pipeline.pipeline_report import PipelineReport
from lakebed.pipeline.run_log import RunLog
from lakebed.upkeep.step_report import StepReport
from lakebed.web import create_app
from lakebed.web.routes import RUNS_A_PAGE

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"
BEGAN = dt.datetime(2026, 1, 15, 2, tzinfo=dt.UTC)


def log(
    repository: lakebed.Repository,
    number: int,
    *,
    pipeline: str = "daily",
    dataset: str = "d",
    failed: bool = False,
) -> None:
    run_log = RunLog(store=repository.store, dataset=dataset, pipeline=pipeline, file=HOSTILE)
    began_at = BEGAN + dt.timedelta(hours=number)
    run_id = f"{number:016x}"
    run_log.begin(run_id, began_at)
    left_out = [{"location": HOSTILE, "why": "rejects", "detail": HOSTILE, "is_kept_back": True}]
    step = StepReport(
        step="ingest",
        status="failed" if failed else "done",
        summary=f"{number} rows {HOSTILE}",
        facts={"row_count": number, "rejected_count": number % 3, "left_out": left_out},
        error=StorageError("Down.", hint="Wait.") if failed else None,
    )
    report = PipelineReport(
        name=pipeline,
        dataset=f"{repository.uri}/{dataset}",
        run_id=run_id,
        began_at=began_at,
        duration_s=float((number * 7) % 11),
        steps=(step,),
    )
    run_log.end(report)


def runs_in(page: ShownPage, caption: str) -> list[dict[str, str]]:
    """Return the rows of a table of runs; its heads show the order."""
    rows = page.rows(caption)
    return [{name.rstrip(" ↑↓"): text for name, text in row.items()} for row in rows]


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Sales:
    sales = Sales(root=tmp_path_factory.mktemp("sales"))
    pipeline = sales.declare()
    for name in ("monday", "tuesday"):
        sales.write_day(name, 1, 2)
        pipeline.run()
    (sales.root / "in" / "bad.jsonl").write_text("garbage\n" * 20)
    pipeline.run()
    return sales


@pytest.fixture(scope="module")
def client(sales: Sales) -> Client:
    return Client(create_app(lakebed.open_repository(sales.lake)))


@pytest.fixture(scope="module")
def busy() -> lakebed.Repository:
    repository = lakebed.open_repository("memory://runs-of-many")
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    for number in range(RUNS_A_PAGE + 5):
        log(repository, number, failed=number % 10 == 9)
    log(repository, 200, pipeline=HOSTILE)
    log(repository, 201, dataset="missing")
    return repository


def test_runs_are_those_of_the_log_with_what_they_did(client: Client, sales: Sales) -> None:
    runs = lakebed.Pipeline.from_toml(sales.file).runs()

    rows = runs_in(shown(client, "/datasets/sales/runs"), "Runs 1 to 3 of 3")

    assert [row["began"] for row in rows] == [f"{run.began_at:%Y-%m-%d %H:%M:%S}" for run in runs]
    assert {row["pipeline"] for row in rows} == {"sales"}
    assert {row["state"] for row in rows} == {"ok"}
    assert [row["seconds"] for row in rows] == [f"{run.duration_s:,.1f}" for run in runs]
    assert [row["versions"] for row in rows] == [
        ", ".join(map(str, run.versions)) or "-" for run in runs
    ]
    assert rows[-1]["did"].startswith("ingest: 1 file, 8 rows; retain: 2 rows in 2 partitions")
    assert rows[0]["left out"] == "1 kept back, 20 rejected"
    assert "bad.jsonl (rejects) 20 of its 20 lines do not fit" in rows[0]["did"]
    assert f"declared in {sales.file}" in rows[0]["did"]


def test_each_version_of_the_dataset_is_of_a_run(sales: Sales) -> None:
    runs = lakebed.Pipeline.from_toml(sales.file).runs()
    history = sales.dataset().history()

    made = [version for run in runs for version in run.versions]

    assert sorted(made) == [commit.version for commit in history[1:]]
    of_ingests = {commit.version for commit in history if commit.operation == "ingest"}
    steps = [step for run in runs for step in run.steps if step["step"] == "ingest"]
    assert {version for step in steps for version in step["versions"]} == of_ingests


def test_versions_lead_to_their_rows_unless_they_are_cleaned_up(
    client: Client, sales: Sales
) -> None:
    page = shown(client, "/datasets/sales/runs")
    links = [link for link in page.links if "version=" in link]

    dataset = sales.dataset()
    horizon = dataset.cleanup("0s").horizon
    assert horizon > 1
    assert sorted(int(link.rpartition("=")[2]) for link in links) == list(
        range(horizon, dataset.version + 1)
    )
    for link in links:
        shown(client, link)


def test_pages_of_runs_are_found_from_the_lake_and_the_dataset(client: Client) -> None:
    lake, dataset = shown(client, "/"), shown(client, "/datasets/sales")

    assert "/runs" in lake.links
    assert "/datasets/sales/runs" in dataset.links
    assert len(lake.rows("The newest 3 runs of pipelines")) == 3
    assert len(dataset.rows("The newest 3 of 3 runs")) == 3
    assert "dataset" in lake.rows("The newest 3 runs of pipelines")[0]
    assert "dataset" not in dataset.rows("The newest 3 of 3 runs")[0]


def test_runs_of_an_ingest_are_told_apart_on_the_pages(client: Client, sales: Sales) -> None:
    page = shown(client, "/datasets/sales")

    runs = [row["run"] for row in page.rows("Commits") if row["operation"] == "ingest"]

    assert runs == ["sales: tuesday.jsonl", "sales: monday.jsonl"]
    rows = shown(client, "/datasets/sales/rows")
    assert "ingest of sales: tuesday.jsonl" in rows.text


def test_runs_are_sorted_by_each_column_in_both_directions(busy: lakebed.Repository) -> None:
    client = Client(create_app(busy))
    caption = f"Runs 1 to {RUNS_A_PAGE} of {RUNS_A_PAGE + 7}"

    def column(name: str, order: str) -> list[str]:
        page = shown(client, f"/runs?sort={name.replace(' ', '%20')}&order={order}")
        assert f"/runs?sort={name.replace(' ', '%20')}" in " ".join(page.turns) or name == "began"
        return [row[name] for row in runs_in(page, caption)]

    for name in ("began", "pipeline", "dataset", "state"):
        assert column(name, "asc") == sorted(column(name, "asc"))
        assert column(name, "desc") == sorted(column(name, "asc"), reverse=True)
    for name in ("seconds", "rows"):
        numbers = list(map(float, column(name, "desc")))
        assert numbers == sorted(numbers, reverse=True)
        assert len(set(numbers)) > 5
    left_out = [0 if text == "-" else int(text.split()[0]) for text in column("left out", "desc")]
    assert left_out == sorted(left_out, reverse=True)
    newest = [row["began"] for row in runs_in(shown(client, "/runs"), caption)]
    assert newest == column("began", "desc")


def test_older_runs_are_on_further_pages(busy: lakebed.Repository) -> None:
    client = Client(create_app(busy))
    count = RUNS_A_PAGE + 7

    first = shown(client, "/runs")
    (following,) = {link for link in first.links if "page=2" in link and "sort" not in link}
    second = shown(client, following)

    rows = [
        *runs_in(first, f"Runs 1 to {RUNS_A_PAGE} of {count}"),
        *runs_in(second, f"Runs {RUNS_A_PAGE + 1} to {count} of {count}"),
    ]
    assert len({row["began"] for row in rows}) == count
    for wrong in ("/runs?page=3", "/runs?sort=nothing", "/runs?order=up"):
        assert client.get(wrong).status == 404


def test_whatever_a_log_holds_stays_text(busy: lakebed.Repository) -> None:
    client = Client(create_app(busy))

    for address in ("/", "/runs", "/datasets/d/runs", "/datasets/d"):
        page = shown(client, address)
        assert HOSTILE in page.text
        assert not {"script", "img"} & page.elements


def test_runs_whose_dataset_is_missing_are_shown_without_links(busy: lakebed.Repository) -> None:
    client = Client(create_app(busy))

    page = shown(client, "/runs")

    assert page.rows(f"Runs 1 to {RUNS_A_PAGE} of {RUNS_A_PAGE + 7}")[0]["dataset"] == "missing"
    assert "/datasets/missing" not in page.links
    assert client.get("/datasets/missing/runs").status == 404


def test_a_server_of_one_dataset_shows_its_runs_alone(busy: lakebed.Repository) -> None:
    client = Client(create_app(busy, name="d"))

    page = shown(client, "/runs")

    assert "missing" not in page.text
    assert "missing" not in shown(client, "/").text
    assert client.get("/datasets/missing/runs").status == 404


def test_a_lake_without_runs_has_a_page_too(tmp_path: Path) -> None:
    client = Client(create_app(lakebed.open_repository(str(tmp_path))))

    assert shown(client, "/runs").tables["Runs: none are recorded"][1] == ["none"]


def test_a_server_of_an_archive_alone_has_no_runs(tmp_path: Path) -> None:
    client = Client(create_app(None, archive=lakebed.open_archive(str(tmp_path))))

    assert client.get("/runs").status == 404
