"""Setting fields of rows, and listing the changes of commits."""

import json

import pytest

ROW = '{"time_hour": "2013-01-01T00:00:00", "carrier": "UA", "flight": %d}\n'


def test_fields_of_rows_are_set(cli, flights, address) -> None:
    before = flights.count()

    done = cli.json(
        "update", address, "--set", "carrier=lower(carrier)", "--set", "flight = flight + 1",
        "--where", "flight = 7", "--run", "tidy",
    )  # fmt: skip

    assert (done["operation"], done["version"], done["run"]) == ("update_rows", 2, "tidy")
    assert (done["updated_row_count"], done["inserted_row_count"]) == (1, 0)
    assert flights.count() == before
    assert flights.where("flight = 8").count() == 1


def test_nothing_to_update_is_said(cli, flights, address) -> None:
    result = cli("update", address, "--set", "carrier='X'", "--where", "flight = 8", "-o", "json")

    assert "No row matches" in result.stderr
    assert json.loads(result.stdout)["version"] is None
    assert flights.version == 1


def test_a_view_uri_selects_the_rows(cli, flights, address) -> None:
    cli("update", flights.kite.with_("flight", 7).kite.uri, "--set", "carrier='ZZ'")

    assert flights.where("carrier = 'ZZ'").count() == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "carrier", "--where", "TRUE"), "FIELD=SQL"),
        (("--set", "=1", "--where", "TRUE"), "FIELD=SQL"),
        (("--set", "flight=1", "--set", "flight=2", "--where", "TRUE"), "twice"),
        (("--set", "flight=1"), "--where"),
        (("--where", "TRUE"), "--set"),
        (("--set", "carrier=UA", "--where", "TRUE"), "'UA'"),
        (("--set", "carier='UA'", "--where", "TRUE"), "Did you mean 'carrier'?"),
    ],
)
def test_what_cannot_be_set_is_said(cli, flights, address, options, message) -> None:
    assert message in cli("update", address, *options, exit_code=2).stderr
    assert flights.version == 1


def test_changes_are_listed_by_commit(cli, flights, address, write) -> None:
    rows = write("rows.jsonl", ROW % 9)
    cli("append", address, rows)
    cli("update", address, "--set", "carrier='ZZ'", "--where", "flight = 7")

    found = cli.json("changes", address, 1, "--on", "flight", "--columns", "flight,carrier")

    assert [(row["_version"], row["_change"]) for row in found] == [
        (2, "insert"),
        (3, "update_before"),
        (3, "update_after"),
    ]
    assert found[-1]["carrier"] == "ZZ"
    net = cli.json("changes", address, 1, 3, "--net")
    assert sorted(row["_change"] for row in net) == ["delete", "insert", "insert"]
    assert cli.json("changes", address, 3) == []
    assert "comes before" in cli("changes", address, 3, 1, exit_code=2).stderr


@pytest.mark.parametrize(
    ("word", "ours"), [("update-rows", "update"), ("table-changes", "changes"), ("cdf", "changes")]
)
def test_words_of_others_lead_here(cli, word, ours) -> None:
    assert f"lakebed {ours}" in cli(word, exit_code=2).stderr
