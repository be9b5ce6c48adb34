"""Engines that read a served lake by one address answer as Lakebed does, right after each commit.

pyiceberg and Polars are always there; Spark, DuckDB and Daft are in an environment of their own
(make doors-env).
"""

import polars as pl
import pytest
from asking import Client
from engine_peers import NEEDS_ENGINES, Peers
from engine_questions import COMMITS, QUESTIONS, columns_of, fill, iceberg_of, polars_of, sql_of
from pyiceberg.catalog import load_catalog
from table_doors import rows_of

import lakebed
from lakebed.web import IcebergDoor, create_app

MODES = (
    "virtual",
    pytest.param("cache", marks=pytest.mark.thorough),
    pytest.param("beside", marks=pytest.mark.thorough),
)
PEERS = {
    "spark catalog": "spark",
    "spark planning": "spark",
    "duckdb catalog": "duckdb",
    "daft catalog": "daft",
}
NEED_MANIFESTS = ("pyiceberg planning", "spark planning", "duckdb catalog", "daft catalog")


class Served:
    """A lake by one address, and what engines answer."""

    def __init__(self, folder, mode: str) -> None:
        self.mode = mode
        self.uri = str(folder / "lake")
        lake = lakebed.open_repository(self.uri)
        fill(lake, "events", {"publish.iceberg": "true"} if mode == "beside" else {})
        metadata = str(folder / "cache") if mode == "cache" else None
        self.client = Client(create_app(lake, iceberg=IcebergDoor(metadata=metadata)))
        self.url = f"http://{self.client.place}"
        self.peers: Peers | None = None
        self.catalog = load_catalog(self.url, type="rest", uri=self.url)
        own = {"scan-planning-mode": "client"}
        self.planning = load_catalog(f"{self.url} own", type="rest", uri=self.url, **own)
        self.first = lake.open("events").version
        self.then = self.catalog.load_table("lake.events").metadata.current_snapshot_id

    @property
    def dataset(self) -> lakebed.Dataset:
        """The dataset as another process opens it."""
        return lakebed.open_repository(self.uri).open("events")

    def wanted(self, question):
        dataset = self.dataset
        view = dataset.at(version=self.first) if question.is_past else dataset
        view = view.where(sql_of(question.condition, "lakebed"))
        return view.select(*question.columns).arrow()

    def answer(self, engine: str, question):
        snapshot = self.then if question.is_past else None
        if engine in PEERS:
            return self.peers.read_at(
                engine,
                f"{self.url} lake.events",
                sql_of(question.condition, PEERS[engine]),
                columns=columns_of(question.columns, PEERS[engine]),
                snapshot=snapshot,
            )
        catalog = self.planning if engine == "pyiceberg planning" else self.catalog
        table = catalog.load_table("lake.events")
        if engine.startswith("polars"):
            reader = engine.removeprefix("polars ")
            frame = pl.scan_iceberg(table, reader_override=reader, snapshot_id=snapshot)
            frame = frame.filter(polars_of(question.condition))
            return frame.select(question.columns).collect().to_arrow()
        condition = iceberg_of(question.condition)
        return table.scan(condition, question.columns, snapshot_id=snapshot).to_arrow()


def assert_all_answer(served: Served, engines) -> None:
    """Ask each question of all engines, each right after a commit."""
    engines = [one for one in engines if served.mode != "virtual" or one not in NEED_MANIFESTS]
    wrong = []
    for number, question in enumerate(QUESTIONS):
        COMMITS[number % len(COMMITS)](served.dataset)
        wanted = rows_of(served.wanted(question), list(question.columns))
        assert bool(wanted) != question.is_empty, question.name
        for engine in engines:
            try:
                found = rows_of(served.answer(engine, question), list(question.columns))
            except Exception as exc:  # noqa: BLE001 - each engine has errors of its own
                found = [str(exc)]
            if found != wanted:
                wrong.append((engine, question.name, len(wanted), len(found), found[:1]))
    assert not wrong, "\n".join(map(repr, wrong))


@pytest.fixture(params=MODES)
def served(request, tmp_path, monkeypatch):
    # Polars warns where its own planner is not installed.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    served = Served(tmp_path, request.param)
    yield served
    served.client.stop()


def test_twenty_questions_have_the_answers_of_lakebed(served) -> None:
    engines = ("pyiceberg", "pyiceberg planning", "polars native", "polars pyiceberg")

    assert_all_answer(served, engines)


@pytest.mark.long
@pytest.mark.timeout(1800)
@NEEDS_ENGINES
def test_twenty_questions_have_the_same_answers_everywhere(served, peers) -> None:
    served.peers = peers

    assert_all_answer(served, ("pyiceberg", "polars native", *PEERS))
