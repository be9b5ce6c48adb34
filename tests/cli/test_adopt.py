"""Adopting a table whose partitions hold several batches."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
