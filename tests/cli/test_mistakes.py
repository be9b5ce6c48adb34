"""What people get wrong on the command line, and the words that put them right.

Where a command is proposed as it is to be typed, it is run.
"""

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from command_tree import COMMANDS

import lakebed
from lakebed.cli.other_words import OPTIONS, option_here


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the lake `lake`, its dataset `events`, and a file of its rows."""
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"id": [1, 2, 3], "region": ["eu", "eu", "us"]})
    events = lakebed.open_repository("lake").create(
        "events", lakebed.DatasetDescriptor(schema=rows.schema, partition_by="region")
    )
    events.append(rows)
    Path("a.csv").write_text("id,region\n4,eu\n")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("lake/events", "The command comes first: lakebed show lake/events"),
        ("lake/events query --limit 2", "comes first: lakebed query lake/events --limit 2"),
        ("index lake/events", "The command comes first: lakebed index show lake/events"),
        ("schema lake/events", "The command comes first: lakebed schema show lake/events"),
        ("archive a.csv", "The command comes first: lakebed archive COMMAND a.csv"),
        ("archiv list", "Did you mean 'archive'?"),
        ("append a.csv lake/events", "The dataset comes first: lakebed append lake/events a.csv"),
        ("append lake/evnts a.csv", "Did you mean 'events'?"),
        ("create lake/events --like a.csv", "--if-exists, with the value 'open'"),
        ("create lake/x --like a.csv --partition-by regio", "Did you mean 'region'?"),
        ("query lake/events --format csv", "In Lakebed it is --output."),
        ("query lake/events -o out.csv", "'out.csv' is a file; give a format: -o csv > out.csv"),
        ("query lake/events --filter id=1", "In Lakebed it is --where."),
        ("query lake/events 'id < 3'", '--where "id < 3", in double quotes'),
        ("delete lake/events 'id < 3'", '--where "id < 3", in double quotes'),
        ("query lake/events --where id = 3", "--where \"carrier = 'UA'\", in double quotes"),
        ("query lake/events 1", "Give a version as --version 1"),
        ("rollback lake/events 1", "Give a version as --version 1"),
        ("query lake/events --columns regio", "Did you mean 'region'?"),
        ("query lake/events --batch-id 5", "`batches` lists the existing ones."),
        ("query lake/events --version 9", "The last one is 1."),
        ("merge lake/events a.csv --key id", "In Lakebed it is --on."),
        ("merge lake/events a.csv --on idd", "Did you mean 'id'?"),
        ("check lake/events --fix", "In Lakebed it is --repair."),
        ("drop lake/events --force", "In Lakebed it is --yes."),
        ("cleanup lake/events --force", "In Lakebed it is --yes."),
        ("cleanup lake/events --delete", "leave --delete out"),
        ("list lake --region eu-west-1", "it is --storage-option region=VALUE."),
        ("query lake/events@1", "A version has an option: lake/events --version 1"),
        (
            "query --dataset lake/events",
            "is an argument, given without a name: lakebed query DATASET",
        ),
        ("archive list --what y --storage raw", "without a name: lakebed archive list WHAT"),
        ("history lake", "Write lake/NAME, such as lake/events; `lakebed show lake` lists all."),
        ("list lake/events", "`lakebed show "),
        ("sql 'SELECT 1'", "lakebed sql REPOSITORY 'SELECT 1'"),
        ("sql lake", 'lakebed sql lake "SELECT …"'),
        ("sql lake/events 'SELECT * FROM events'", 'lakebed sql lake "SELECT … FROM events"'),
        ("sql lake 'DELETE FROM events'", "on the command line --write"),
        ("sql lake 'EXPLAIN SELECT 1'", "use `explain`"),
        ("staged commit lake/events 5", "`staged list` lists the staged batches"),
        ("ingest a.csv", "--into LOCATION/NAME"),
        ("ingest a.csv --into lake/sales", "--schema; `lakebed schema infer` finds one."),
        ("adopt ./lake", "Open 'events' in the repository"),
        ("publish lake/events", "lakebed publish all lake/events"),
        ("--json show lake/events", "lakebed show --json"),
        ("help query", "`lakebed query --help`"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(cli, home, line: str, told: str) -> None:
    stderr = cli(*shlex.split(line), exit_code=None).stderr

    assert told in stderr
    for command in re.findall(r"(?<=`)lakebed [^`]+|(?<=first: )lakebed .+?(?=\. |\n|$)", stderr):
        if not re.search("…|COMMAND|publish|infer", command):
            cli(*shlex.split(command)[1:])


def test_a_question_goes_to_the_repository_of_the_environment(cli, home, monkeypatch) -> None:
    monkeypatch.setenv("LAKEBED_REPOSITORY", "lake")

    assert cli.json("sql", "SELECT count(*) AS n FROM events") == [{"n": 3}]


@pytest.mark.parametrize("ours", OPTIONS)
def test_every_option_that_is_pointed_to_is_one_of_a_verb(ours: str) -> None:
    having = [
        {option for parameter in command.params for option in parameter.opts}
        for command in COMMANDS.values()
    ]

    assert any(ours in known for known in having)
    for name in OPTIONS[ours].split():
        assert option_here(name, [ours]).startswith(ours)
        assert any(ours in known and name not in known for known in having), name
