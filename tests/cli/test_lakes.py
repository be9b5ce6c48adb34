"""Where a lake is named in place of a dataset, or a dataset in place of a lake."""

import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from heads import head_key

import lakebed

ROWS = pa.table({"id": [1, 2, 3], "day": ["a", "a", "b"]})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a repository `lake` of two datasets, which is the working directory."""
    home = tmp_path / "my home"
    home.mkdir()
    monkeypatch.chdir(home)
    repository = lakebed.open_repository("lake")
    descriptor = lakebed.DatasetDescriptor(schema=ROWS.schema, partition_by="day")
    repository.create("events", descriptor).append(ROWS)
    repository.create("planes", descriptor)
    return home


def commands_in(text: str) -> list[str]:
    """Return the command lines that notes propose, each on a line of its own."""
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line.startswith("lakebed ")]


@pytest.mark.parametrize("location", ["lake", "./lake", "lake/", "repo:lake"])
def test_a_repository_is_shown_with_a_row_for_each_dataset(cli, home, location) -> None:
    told = cli("show", location)

    header, _, *rows = told.stdout.splitlines()
    assert header.split() == [
        *("name", "rows", "files", "size", "last_commit", "operation", "version")
    ]
    assert [row.split()[:3] for row in rows] == [["events", "3", "2"], ["planes", "0", "0"]]
    assert "2 datasets, 3 rows, " in told.stderr


def test_what_a_program_gets_of_a_repository_is_a_row_for_each_dataset(cli, home) -> None:
    first, second = cli.json("show", "lake")

    assert (first["name"], first["version"], first["row_count"]) == ("events", 1, 3)
    assert first["location"] == lakebed.open_repository("lake").open("events").uri
    assert (second["name"], second["last_operation"]) == ("planes", "create")
    assert cli("show", "lake", "-o", "plain").stdout.splitlines() == ["events", "planes"]


def test_the_repository_of_the_environment_is_shown_without_an_argument(
    cli, home, monkeypatch
) -> None:
    monkeypatch.setenv("LAKEBED_REPOSITORY", "lake")

    assert cli("show", "-o", "plain").stdout.splitlines() == ["events", "planes"]
    assert cli.json("show", "events")["row_count"] == 3
    assert "Wrote 1 dataset" in cli("report", "events").stderr


def test_a_dataset_that_cannot_be_read_is_a_row_and_the_exit_code(cli, home) -> None:
    Path("lake", head_key("events")).write_text("{")

    told = cli("show", "lake", exit_code=7)

    assert [row.split()[:2] for row in told.stdout.splitlines()[2:]] == [
        ["events", "-"],
        ["planes", "0"],
    ]
    assert "events cannot be read: " in told.stderr


@pytest.mark.parametrize("option", [["--version", "1"], ["--partitions"], ["--time", "20260101"]])
def test_what_is_of_one_dataset_is_refused_for_a_repository(cli, home, option) -> None:
    assert "LOCATION/NAME" in cli("show", "lake", *option, exit_code=2).stderr.replace(
        "lake/NAME", "LOCATION/NAME"
    )


def test_commands_that_are_proposed_work_as_they_are_printed(cli, home) -> None:
    proposed = commands_in(cli("show", "lake").stderr)
    assert len(proposed) == 1
    proposed += commands_in(cli("show", "lake/events").stderr)

    assert len(proposed) == 4
    for command in proposed:
        cli(*shlex.split(command)[1:])


@pytest.mark.parametrize("location", ["lake/events", "lake/events/", "./lake/planes"])
def test_a_dataset_cannot_be_listed_and_is_told_to_be_shown(cli, home, location) -> None:
    told = cli("list", location, exit_code=2).stderr

    assert "is a dataset, not a repository" in told
    show, list_ = (shlex.split(part)[1:] for part in told.split("`")[1::2])
    assert cli.json(*show)["location"].endswith(location.strip("./"))
    assert [row["name"] for row in cli.json(*list_)] == ["events", "planes"]


def test_a_dataset_in_the_working_directory_cannot_be_listed(cli, home, monkeypatch) -> None:
    monkeypatch.chdir("lake")

    assert "is a dataset, not a repository" in cli("list", "events", exit_code=2).stderr


def test_a_mistyped_repository_names_what_is_near(cli, home) -> None:
    assert "Did you mean 'events'?" in cli("list", "lake/evnts", exit_code=3).stderr


@pytest.mark.parametrize(
    "words",
    [
        ["create", "./lake", "--like", "rows.csv"],
        ["import", "./lake", "rows.csv", "--local"],
        ["create", "lake/events/x", "--like", "rows.csv"],
        ["import", "lake/events/x", "rows.csv", "--local"],
    ],
)
def test_no_dataset_is_made_over_or_in_another_one(cli, home, words) -> None:
    Path("rows.csv").write_text("id,day\n1,a\n")
    before = sorted(home.rglob("*"))

    told = cli(*words, exit_code=2).stderr

    assert "cannot be created in" in told
    assert sorted(home.rglob("*")) == before


def test_list_shows_the_datasets_of_namespaces_by_their_paths(cli, tmp_path):
    lake = lakebed.open_repository(tmp_path)
    for repository in (
        lake,
        lake.namespaces.create("sales"),
        lake["sales"].namespaces.create("eu"),
    ):
        repository.write("orders", [{"n": 1}])
    lake.namespaces.create("empty")

    names = [row["name"] for row in cli.json("list", str(tmp_path))]

    assert names == ["orders", "sales/orders", "sales/eu/orders"]
    for name in names:
        assert cli.json("show", f"{tmp_path}/{name}")["row_count"] == 1
