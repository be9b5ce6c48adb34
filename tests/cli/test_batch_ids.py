"""Batch ids and statements of a metastore on the command line."""

from pathlib import Path

import pytest

import lakebed


@pytest.fixture
def customers(cli, tmp_path: Path) -> str:
    schema = tmp_path / "customer.avsc"
    schema.write_text(
        '{"type": "record", "name": "customer", "fields": [{"name": "dt", "type": "string"}, '
        '{"name": "n", "type": "long"}]}'
    )
    (tmp_path / "rows.jsonl").write_text('{"dt": "20151210", "n": 1}\n')
    address = str(tmp_path / "lake" / "customers")
    cli("create", address, "--schema", schema, "--partition-by", "dt", "--batch-ids", "seconds")
    return address


def test_id_is_of_the_start_that_the_scheduler_tells(cli, customers: str, tmp_path: Path) -> None:
    begun = ("--begun-at", "2015-12-10T21:56:48")
    rows = tmp_path / "rows.jsonl"

    first = cli.json("append", customers, rows, "--run", "20151210", *begun)
    second = cli.json("rerun", customers, rows, "--run", "20151210", *begun)
    third = cli.json("overwrite", customers, rows, *begun)

    assert [one["batch_id"] for one in (first, second, third)] == [
        1449784608,
        1449784609,
        1449784610,
    ]


def test_merge_import_and_ingest_tell_their_start_too(cli, customers: str, tmp_path: Path) -> None:
    begun = ("--begun-at", "2015-12-10T21:56:48")
    rows = tmp_path / "rows.jsonl"

    cli("merge", customers, rows, "--on", "n", *begun)
    cli("import", customers, rows, "--run", "a", *begun)
    cli("ingest", rows, "--into", customers, *begun)
    refused = cli("ingest", rows, "--into", customers, "--follow", *begun, exit_code=2)

    told = cli.json("history", customers)
    assert sorted(one["batch_id"] for one in told if one["batch_id"]) == [
        1449784608,
        1449784609,
        1449784610,
    ]
    assert "--begun-at" in refused.stderr


def test_statements_are_printed_and_nothing_else(cli, customers: str, tmp_path: Path) -> None:
    cli("append", customers, tmp_path / "rows.jsonl", "--begun-at", "2015-12-10T21:56:48Z")

    told = cli(
        *("publish", "hive", customers, "--table", "lake.customers", "--print-sql"),
        *("--since", "0", "--root", "s3n://abc/def"),
    ).stdout.splitlines()

    assert told[-1] == (
        "ALTER TABLE `lake`.`customers` PARTITION (`dt`='20151210') SET LOCATION "
        "'s3n://abc/def/customers/data/dt=20151210/batch_id=1449784608';"
    )
    assert all(line.startswith("ALTER TABLE") and line.endswith(";") for line in told)


@pytest.mark.parametrize(
    "words",
    [
        ("--table", "t", "--since", "1"),
        ("--table", "t", "--print-sql", "--check"),
        ("--table", "t", "--print-sql", "--warehouse", "w"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(cli, customers: str, words) -> None:
    assert "--print-sql" in cli("publish", "hive", customers, *words, exit_code=2).stderr


def test_adopted_directories_of_dates_are_gone_on_with(cli, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    home = tmp_path / "sales"
    for batch in ("dt=1/batch_id=20151210T2359", "dt=2/batch_id=201512102358"):
        (home / batch).mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2, 3]}), home / batch / "part-0.parquet")

    cli("adopt", str(home), "--partition-by", "dt", "--yes")
    sales = lakebed.open_repository(tmp_path).open("sales")
    ids = sales.arrow(["batch_id"])["batch_id"].to_pylist()
    commit = sales.append([{"n": 4, "dt": "3"}])

    assert sorted(set(ids)) == [201512102358, 201512102359]
    assert sales.descriptor.properties == {"batch.ids": "yyyyMMddHHmm"}
    assert len(str(commit.batch_id)) == 12
    assert sales.count() == 7


def test_start_that_no_id_can_tell_is_refused(cli, customers: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"

    answer = cli("append", customers, rows, "--begun-at", "1969-12-31", exit_code=2)

    assert "1969-12-31T00:00:00+00:00, before 1990" in answer.stderr


def test_start_that_is_no_time_is_refused() -> None:
    with pytest.raises(lakebed.errors.InvalidInputError, match="begun_at is '2015-12-10'"):
        lakebed.CommitOptions(begun_at="2015-12-10")  # type: ignore[arg-type]
