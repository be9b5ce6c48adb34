"""Adopting a table whose partitions hold several batches."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog

import lakebed


@pytest.fixture
def sales(tmp_path: Path) -> str:
    """One day that was run twice, one that was run once; return the address."""
    home = tmp_path / "sales"
    for batch in ("dt=1/batch_id=1449784608", "dt=1/batch_id=1449847129", "dt=2/batch_id=1"):
        (home / batch).mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2, 3]}), home / batch / "part-0.parquet")
    return str(home)


def count(address: str) -> int:
    location, _, name = address.rpartition("/")
    return lakebed.open_repository(location).open(name).count()


def test_dry_run_lists_what_each_file_is_taken_for(cli, sales) -> None:
    told = cli("adopt", sales, "--partition-by", "dt", "--dry-run").stderr
    files = cli.json("adopt", sales, "--partition-by", "dt", "--dry-run")

    assert "Would adopt: 6 rows in 2 files become the dataset. 3 rows in 1 files" in told
    assert [(one["batch_id"], one["row_count"], one["taken_for"]) for one in files] == [
        (1449784608, 3, "history"),
        (1449847129, 3, "current"),
        (1, 3, "current"),
    ]
    assert files[0]["reason"] == "superseded by batch 1449847129"
    assert not Path(f"{sales}.by-dataset-metadata.json").exists()


def test_asks_where_a_batch_is_superseded(cli, sales) -> None:
    refused = cli("adopt", sales, "--partition-by", "dt", stdin="n\n", exit_code=1)
    assert "become its history" in refused.stderr
    assert "Adopt them like this?" in refused.stderr
    assert not Path(f"{sales}.by-dataset-metadata.json").exists()

    cli("adopt", sales, "--partition-by", "dt", stdin="y\n")
    assert count(sales) == 6


def test_yes_does_not_ask(cli, sales) -> None:
    done = cli.json("adopt", sales, "--partition-by", "dt", "--yes")

    assert done["version"] == 3  # one for each batch
    assert count(sales) == 6


def test_where_all_are_current_there_is_nothing_to_ask(cli, sales) -> None:
    cli("adopt", sales, "--partition-by", "dt", "--current", "all")

    assert count(sales) == 9


def test_tables_of_delta_and_iceberg_are_refused_and_taken_over_by_their_logs(
    cli, tmp_path
) -> None:
    rows = pa.table({"n": [1, 2, 3]})
    write_deltalake(tmp_path / "d", rows)
    write_deltalake(tmp_path / "d", rows.slice(0, 1), mode="overwrite")
    uri = f"sqlite:///{tmp_path}/c.db"
    with SqlCatalog("c", uri=uri, warehouse=f"file://{tmp_path}") as catalog:
        catalog.create_namespace("web")
        table = catalog.create_table("web.e", rows.schema, location=f"file://{tmp_path}/e")
        table.append(rows)
        table.overwrite(rows.slice(0, 2))

    for name in ("d", "e"):
        refused = cli("adopt", f"{tmp_path}/{name}", "--dry-run", exit_code=2).stderr
        assert "cannot be adopted as plain files" in refused
        assert "--delta" in refused or "--iceberg" in refused
    (listed,) = cli.json("adopt", f"{tmp_path}/d", "--delta", "--dry-run")
    assert (listed["row_count"], listed["reason"]) == (1, "live in version 1")
    done = cli("adopt", f"{tmp_path}/d", "--delta")
    assert "Stop all writers and cleanups" in done.stderr
    cli("adopt", f"{tmp_path}/e", "--iceberg", "--dry-run")
    cli("adopt", f"{tmp_path}/e", "--iceberg", table.metadata_location)
    assert (count(f"{tmp_path}/d"), count(f"{tmp_path}/e")) == (1, 2)


def test_level_of_batches_has_a_name(cli, tmp_path) -> None:
    home = tmp_path / "old" / "dt=1" / "batchid=1449784608"
    home.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1, 2, 3]}), home / "part-0.parquet")

    hint = cli("adopt", f"{tmp_path}/old", "--partition-by", "dt", exit_code=2).stderr
    assert "--batch-level" in hint
    cli("adopt", f"{tmp_path}/old", "--partition-by", "dt", "--batch-level", "batchid")

    assert count(f"{tmp_path}/old") == 3
