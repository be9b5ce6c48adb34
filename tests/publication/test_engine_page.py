"""What docs/engines.md says of each engine is run against a served lake."""

import ast
import re
from pathlib import Path

import pytest
from asking import Client
from engine_peers import NEEDS_ENGINES

import lakebed
from lakebed.web import IcebergDoor, create_app

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
ADDRESS = "http://127.0.0.1:8181"
TOKEN = "a-long-secret"
ROW = {"id": "x", "kind": "a", "n": 0}


def blocks_of(engine: str) -> list[tuple[str, str]]:
    """Return language and text of the blocks of a section."""
    section = (
        PAGE.read_text(encoding="utf-8").partition(f"\n## {engine}\n")[2].partition("\n## ")[0]
    )
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    lake = lakebed.open_repository(str(folder / "lake"))
    lake.write("flights", [ROW, {"id": "y", "kind": None, "n": 1}], partition_by="kind")
    app = create_app(lake, token=TOKEN, iceberg=IcebergDoor(metadata=str(folder / "cache")))
    client = Client(app)
    yield f"http://{client.place}"
    client.stop()


@pytest.mark.parametrize("engine", ["pyiceberg", "Polars"])
def test_the_page_runs_here(address, engine, monkeypatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    ((language, text),) = blocks_of(engine)
    names: dict[str, object] = {}
    assert (language, ADDRESS in text) == ("python", True)
    exec(text.replace(ADDRESS, address), names)

    rows = names["rows"]
    table = rows if engine == "pyiceberg" else rows.to_arrow()
    assert table.select(list(ROW)).to_pylist() == [ROW]


@pytest.mark.long
@NEEDS_ENGINES
@pytest.mark.parametrize("engine", ["Spark", "DuckDB", "Daft"])
def test_the_page_runs_in_other_engines(address, peers, engine) -> None:
    blocks = [[language, text.replace(ADDRESS, address)] for language, text in blocks_of(engine)]
    assert any(address in text for _, text in blocks)

    answer = peers.ask(page=engine, blocks=blocks)
    assert "error" not in answer, answer
    (row,) = ast.literal_eval(answer["rows"])
    assert {name: row[name] for name in ROW} == ROW
