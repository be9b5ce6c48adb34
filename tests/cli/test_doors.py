"""Publication to Delta and Iceberg on the command line."""

import pytest


@pytest.mark.parametrize("door", ["--delta", "--iceberg"])
def test_table_is_published_checked_mended_and_dropped(cli, address, flights, door) -> None:
    done = cli.json("publish", address, door)
    assert (done["created"], done["is_in_step"], done["version"]) == (True, True, flights.version)
    assert done["kind"] == door[2:]
    assert cli.json("publish", address, door, "--check")["was_in_step"]

    flights.delete(flights.where("flight >= 0"))
    checked = cli("publish", address, door, "--check", "-o", "json", exit_code=1)
    assert "not in step" in checked.stderr
    assert cli.json("publish", address, door, "--repair")["removed_count"] > 0
    assert cli.json("unpublish", address, door)["is_dropped"]
    assert not cli.json("unpublish", address, door)["was_there"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Give --table for a Hive table, or --delta, or --iceberg"),
        (["--delta", "--iceberg"], "only one of --delta and --iceberg"),
        (["--delta", "--table", "a.b"], "no name"),
        (["--delta", "--catalog", "prod"], "--catalog is for --iceberg"),
        (["--delta", "--mode", "batches"], "--mode is for a Hive table"),
        (["--delta", "--root", "s3://b"], "leave --root out"),
        (["--delta", "--metastore", "thrift://h:1"], "--metastore is for a Hive table"),
        (["--delta", "--check", "--repair"], "only one of --check and --repair"),
    ],
)
def test_options_that_do_not_go_together_are_refused(cli, address, flights, options, said) -> None:
    done = cli("publish", address, *options, exit_code=2)

    assert said in done.stderr.replace("\n", " ")
