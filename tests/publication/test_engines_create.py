"""Clients of Iceberg that create, fill and drop tables by a started `lakebed serve --iceberg`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

import lakebed

TOKEN = "a-token-for-writes"


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.write("flights", [{"id": 1}])
    return lake


@pytest.fixture
def url(lake: lakebed.Repository, tmp_path: Path) -> Iterator[str]:
    words = ("serve", lake.uri, "--iceberg", "--iceberg-metadata", str(tmp_path / "metadata"))
    words += ("--allow-writes", "all", "--port", "0", "-o", "jsonl")
    with subprocess.Popen(
        [sys.executable, "-m", "lakebed", *words],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "LAKEBED_WRITE_TOKEN": TOKEN,
        },
    ) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"].rstrip("/")
        process.kill()


def files_of(lake: lakebed.Repository, folder: str) -> list[str]:
    """Return the keys of a namespace, without the small objects that the catalog keeps."""
    keys = (info.key for info in lake.store.list(folder))
    return [key for key in keys if not key.endswith((".iceberg-table.json", ".namespace.json"))]


@pytest.mark.thorough
def test_pyiceberg_creates_fills_renames_and_purges(url: str, lake: lakebed.Repository) -> None:
    settings = {"token": TOKEN, "scan-planning-mode": "client"}
    catalog = load_catalog("lb", type="rest", uri=url, **settings)
    rows = pa.table({"id": [1, 2], "kind": ["a", None]})

    catalog.create_namespace("sales")
    catalog.create_table("sales.orders", rows.schema).append(rows)
    catalog.create_table("sales.kept", rows.schema)
    catalog.rename_table("sales.orders", "sales.bought")

    found = catalog.load_table("sales.bought").scan().to_arrow()
    assert found.sort_by("id").to_pylist() == rows.to_pylist()
    assert sorted(catalog.list_tables("sales")) == [("sales", "bought"), ("sales", "kept")]
    catalog.purge_table("sales.bought")
    assert not [key for key in files_of(lake, "sales") if key.startswith("sales/orders")]
    catalog.drop_table("sales.kept")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("sales.kept")
    catalog.drop_namespace("sales")
    assert catalog.list_namespaces() == [("lake",)]
    assert catalog.load_table("lake.flights").scan().to_arrow().to_pylist() == [{"id": 1}]
