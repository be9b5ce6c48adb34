"""`--dry-run` of every verb that writes: it writes nothing, and foretells what the verb then does."""

import gc
import json
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_tree import COMMANDS

READING = frozenset(
    {
        "query", "sql", "explain", "files", "show", "history", "list", "schema show", "batches",
        "diff", "changes", "staged list", "sources", "index show", "protection list", "archive list",
        "archive latest", "archive whats", "archive cat", "completion", "runs", "init", "schema checks",
    }
)  # fmt: skip
# Verbs that write, but have no dry run, and why.
EXCEPTIONS: Mapping[str, str] = {
    "serve": "It answers readers of a lake, and writes nothing to it.",
    "archive serve": "It answers clients until it is interrupted.",
    "report": "Its only effect is the page, in the file that is named.",
    "schema infer": "It reads files; --to names a file of the caller's own.",
    "archive fetch": "It copies out of the archive, to a folder of the caller's own.",
    "doctor": "To test whether a store can be written, it writes there and deletes it again.",
}

AVRO = json.dumps(
    {"type": "record", "name": "planes", "fields": [{"name": "seats", "type": "int"}]}
)
DIMENSIONS = json.dumps(
    {"version": 1, "dimensions": [{"field_name": "channel", "allowed_values": ["beta", "esr"]}]}
)
PUSHED = "--where box --what log --start 2015-03-20"


def of_record(planned: Any, done: Any) -> None:
    """All numbers of a record that both have, but those that name a moment."""
    numbers = {
        key
        for key in planned.keys() & done.keys()
        if isinstance(planned[key], int) and not isinstance(planned[key], bool) and key != "calls"
    }
    assert numbers, planned
    assert {key: planned[key] for key in numbers} == {key: done[key] for key in numbers}


def of_rows(planned: Any, done: Any) -> None:
    assert planned == done


def of_number_of_rows(planned: Any, done: Any) -> None:
    assert len(planned) == len(done) > 0


def of_nothing(planned: Any, done: Any) -> None:
    """There is no number: the text names the effect."""


def of_files_to_remove(planned: Any, done: Any) -> None:
    assert (
        len([one for one in planned if one["operation"] == "removed"]) == done["removed_file_count"]
    )


def of_rows_to_delete(planned: Any, done: Any) -> None:
    assert sum(one["row_count"] for one in planned) == done["deleted_row_count"] > 0


def of_partitions(planned: Any, done: Any) -> None:
    assert sum(one["inserted_row_count"] for one in planned) == done["inserted_row_count"] > 0
    assert sum(one["deleted_row_count"] for one in planned) == done["deleted_row_count"]
    assert sum(one["removed_file_count"] for one in planned) == done["removed_file_count"]


def of_index(planned: Any, done: Any) -> None:
    (before,), (after,) = planned, done
    assert (before["covered_count"], after["covered_count"]) == (0, after["file_count"])


def of_pushed(planned: Any, done: Any) -> None:
    names = ("what", "where", "start", "path", "size_bytes", "hash")
    assert [[one[name] for name in names] for one in planned] == [
        [one[name] for name in names] for one in done
    ]


def of_uploads(planned: Any, done: Any) -> None:
    assert [(one["bundle"], one["outcome"]) for one in planned] == [
        (one["bundle"], one["outcome"]) for one in done
    ]


def of_steps(planned: Any, done: Any) -> None:
    """The rows of the ingest are not read in a dry run; those to delete are counted."""
    (retained,) = (one["facts"] for one in planned if one["step"] == "retain")
    (deleted,) = (one["facts"] for one in done if one["step"] == "retain")
    names = ("row_count", "file_count", "partition_count", "size_bytes")
    assert [retained[name] for name in names] == [deleted[name] for name in names]


def of_messages(planned: Any, done: Any) -> None:
    names = ("status", "urls", "removed")
    assert [[one[name] for name in names] for one in planned] == [
        [one[name] for name in names] for one in done
    ]


def of_compaction(planned: Any, done: Any) -> None:
    names = ("name", "files_before", "files_after", "bytes_before")
    of_data = [
        [[one[name] for name in names] for one in rows if one["what"] == "partition"]
        for rows in (planned, done)
    ]
    assert of_data[0] == of_data[1] != []


def of_merge(planned: Any, done: Any) -> None:
    names = ("inserted_row_count", "updated_row_count", "deleted_row_count")
    assert [planned[name] for name in names] == [done[name] for name in names]


def of_erased_rows(planned: Any, done: Any) -> None:
    """What is found; what is deleted afterwards is only known then."""
    places = {row["place"]: row for row in done}
    assert sum(row["row_count"] for row in planned) == 1
    assert all(places[row["place"]] == row for row in planned)


@dataclass(frozen=True)
class Case:
    """A verb, and what its dry run foretells.

    Attributes:
        call: What follows the verb.
        text: What the dry run says of the effect.
        same: Compares the result of the dry run with that of the verb.
        real: Options that the verb takes besides, when it acts.
        before: Verbs to run first.
    """

    call: str
    text: str
    same: Callable[[Any, Any], None] = of_record
    real: str = ""
    before: tuple[str, ...] = ()


CASES: Mapping[str, Case] = {
    "create": Case("{lake}/planes --schema {schema}", "Would create file://{lake}/planes", of_nothing),
    "import": Case("{lake}/imported {csv}", "Would write 2 rows of 1 file in 1 data file"),
    "append": Case(
        "{lake}/flights {rows}",
        "Would commit version 2, append: 2 rows inserted; 2 files of",
    ),
    "overwrite": Case("{lake}/flights {rows}", "Would write 2 rows in place of 2", of_partitions),
    "merge": Case("{lake}/flights {rows} --on carrier", "Would merge: 1 rows inserted", of_merge),
    "update": Case(
        "{lake}/flights --set carrier='DL' --where flight=7",
        "Would commit version 2, update_rows: 1 row updated, 1 rewritten; 1 file of",
    ),
    "delete": Case(
        "{lake}/flights --where flight=7", "Would delete 1 row", of_rows_to_delete, real="--yes"
    ),
    "schema update": Case(
        "{lake}/flights --property owner=web", "Would change property owner=web", of_record
    ),
    "schema add": Case(
        "{lake}/flights note string", "Would change schema: +note: string", of_record
    ),
    "schema change-type": Case(
        "{lake}/flights flight long", "Would change schema: flight: int to long", of_record
    ),
    "schema drop": Case("{lake}/flights flight", "Would change schema: -flight", of_record),
    "schema rename": Case(
        "{lake}/flights flight number", "Would change schema: flight renamed to number", of_record
    ),
    "schema add-check": Case(
        "{lake}/flights known --not-null time_hour", "Would declare known: not_null", of_record
    ),
    "schema drop-check": Case(
        "{lake}/flights known",
        "Would remove the check known",
        of_record,
        before=("schema add-check {lake}/flights known --not-null time_hour",),
    ),
    "drop": Case("{lake}/flights", "Would delete", of_rows, real="--yes"),
    "rerun": Case(
        "{lake}/flights {rows} --run first --replace-all",
        "rerun of run 'first': 2 rows inserted, 4 deleted in 2 partitions; 2 files of",
    ),
    "rollback": Case("{lake}/flights --version 0", "Would add 0 files", of_files_to_remove),
    "staged add": Case("{lake}/flights {rows}", "Would stage 2 rows in 2 files of"),
    "staged commit": Case(
        "{lake}/flights {staged} --not-null time_hour",
        "Would commit version 2, append: 1 row inserted; 1 file of",
        of_nothing,
    ),
    "staged discard": Case("{lake}/flights {staged}", "batch_id", of_rows, real="--yes"),
    "archive init": Case(
        "--storage {new} --index sqlite:///{new}/index.db", "Would create sqlite://", of_rows
    ),
    "archive push": Case(
        f"{{csv}} {{rows}} {PUSHED} --storage {{raw}}", "Would store 2 files of", of_pushed
    ),
    "archive retract": Case(
        "{id} --reason torn --storage {raw}", "Would retract 1 file", of_rows
    ),
    "archive restore": Case(
        "{id} --storage {raw}",
        "Would restore 1 file",
        of_rows,
        before=("archive retract {id} --reason torn --storage {raw}",),
    ),
    "archive delete": Case(
        "{id} --reason torn --storage {raw}", "Would delete 1 file of", of_rows, real="--yes"
    ),
    "archive reindex": Case(
        "--storage {raw} --index sqlite:///{new}/other.db",
        "Would index 1 file",
        of_rows,
        before=("archive ingest {id} --storage {raw}",),
    ),
    "archive enqueue": Case(
        f"{{csv}} {PUSHED} --queue {{queue}}", "Would copy 1 file into", of_number_of_rows
    ),
    "archive upload": Case(
        "--queue {queue} --storage {raw}",
        "Would upload 1 bundle of 1",
        of_uploads,
        before=(f"archive enqueue {{csv}} {PUSHED} --queue {{queue}}",),
    ),
    "archive ingest": Case(
        "{id} --storage {raw} --index sqlite:///{new}/other.db",
        "Would index 1 file and remove 0",
        of_messages,
    ),
    "ingest": Case("{rows} --into {lake}/flights --local", "rows.jsonl", of_nothing),
    "run": Case("{pipeline}", "1 row in 1 partition, 1 file of", of_steps),
    "maintain": Case(
        "{lake} --dataset flights",
        "1 row in 1 partition, 1 file of",
        of_steps,
        before=("schema update {lake}/flights --property retention.delete_where=flight=7",),
    ),
    "index build": Case("{lake}/flights flight", "Would index 2 files of", of_index),
    "index drop": Case(
        "{lake}/flights flight",
        "Would drop the index of flight",
        before=("index build {lake}/flights flight",),
    ),
    "compact": Case(
        "{lake}/flights",
        "Would make",
        of_compaction,
        before=("append {lake}/flights {rows}", "append {lake}/flights {rows}"),
    ),
    "promote": Case("{lake}/pings {dimensions}", "Would move", of_rows),
    "cleanup": Case(
        "{lake}/flights --older-than 0s",
        "Would delete 2 objects of",
        of_rows,
        real="--yes",
        before=("delete {lake}/flights --where TRUE --yes",),
    ),
    "erase": Case(
        "{lake}/flights --where flight=7 --reason request --grace 0s",
        "Would erase 1 row in 1 file.",
        of_erased_rows,
        real="--yes",
    ),
    "protection add": Case(
        "{lake}/flights --version 1 --reason audit", "Would protect version 1 of file://{lake}/flights"
    ),
    "protection remove": Case(
        "{lake}/flights --version 1",
        "Would end the protection of version 1",
        before=("protection add {lake}/flights --version 1 --reason audit",),
    ),
    "check": Case(
        "{lake}/flights --repair",
        "Would repair 1 problem",
        of_rows,
        before=("DELETE {lake}/flights/data/_common_metadata",),
    ),
    "publish all": Case(
        "{lake}/flights",
        "Would publish version 2 to 1 table",
        of_number_of_rows,
        before=("schema update {lake}/flights --property publish.delta=true", "UNPUBLISH"),
    ),
    "publish delta": Case("{lake}/flights", "Nothing was changed"),
    "publish iceberg": Case("{lake}/flights", "Nothing was changed"),
    "publish kartothek": Case("{lake}/flights", "Nothing was changed"),
    "unpublish kartothek": Case(
        "{lake}/flights", "was_there", of_nothing, before=("publish kartothek {lake}/flights",)
    ),
    "unpublish delta": Case(
        "{lake}/flights", "was_there", of_nothing, before=("publish delta {lake}/flights",)
    ),
    "unpublish iceberg": Case(
        "{lake}/flights", "was_there", of_nothing, before=("publish iceberg {lake}/flights",)
    ),
    "adopt": Case("{plain}", "Would adopt", of_nothing),
    "export": Case(
        "{lines} {new}/tree --telemetry", "Would write 2 rows in 2 files of", of_record
    ),
}  # fmt: skip
# They need a metastore.
WITH_SPARK: Mapping[str, Case] = {
    "publish hive": Case("{lake}/flights --table lake.{table}", "Nothing was changed"),
    "unpublish hive": Case(
        "{lake}/flights --table lake.{table}",
        "was_there",
        of_nothing,
        before=("publish hive {lake}/flights --table lake.{table}",),
    ),
}


def writing_verbs() -> set[str]:
    verbs = {name for name, one in COMMANDS.items() if not isinstance(one, click.Group)}
    return verbs - READING - EXCEPTIONS.keys()


def test_every_verb_either_reads_or_has_a_dry_run_or_is_an_exception_with_a_reason() -> None:
    known = {name for name, one in COMMANDS.items() if not isinstance(one, click.Group)}
    assert known >= READING | EXCEPTIONS.keys()

    without = {
        verb
        for verb in writing_verbs()
        if not any("--dry-run" in option.opts for option in COMMANDS[verb].params)
    }

    assert without == set()
    assert writing_verbs() == CASES.keys() | WITH_SPARK.keys()


def test_option_is_named_and_spelled_alike_everywhere() -> None:
    for verb in writing_verbs():
        (option,) = (one for one in COMMANDS[verb].params if "--dry-run" in one.opts)

        assert option.opts == ["--dry-run"], verb
        assert option.secondary_opts == [], verb
        assert option.is_flag, verb
        assert option.default is not True, verb


class Place(dict[str, str]):
    """What the calls name, in a directory of which all is looked at; made when it is named."""

    def __init__(self, cli: Any, root: Path, write: Callable[[str, str], Path]) -> None:
        rows = (
            '{"time_hour": "2013-01-01T00:00:00", "carrier": "UA"}\n'
            '{"time_hour": "2013-01-03T00:00:00", "carrier": "new"}\n'
        )
        super().__init__(
            lake=str(root / "lake"),
            schema=str(write("planes.avsc", AVRO)),
            dimensions=str(write("dimensions.json", DIMENSIONS)),
            rows=str(write("rows.jsonl", rows)),
            csv=str(write("rows.csv", "a,b\n1,x\n2,y\n")),
            raw=str(root / "raw"),
            new=str(root / "new"),
            queue=str(root / "queue"),
            table=uuid.uuid4().hex,
        )
        self.cli, self.write = cli, write

    def __missing__(self, name: str) -> str:
        match name:
            case "id":
                pushing = ("archive", "push", self["rows"], *PUSHED.split())
                (pushed,) = self.cli.json(*pushing, "--storage", self["raw"])
                self[name] = pushed["id"]
            case "staged":
                row = self.write("row.jsonl", '{"time_hour": "2013-01-04T00:00:00"}\n')
                self[name] = str(
                    self.cli.json("staged", "add", f"{self['lake']}/flights", row)["batch_id"]
                )
            case "lines":
                lines = self.write("lines.tsv", 'a1\t{"channel": "beta"}\nb2\t{"channel": "esr"}\n')
                self[name] = f"{self['lake']}/lines"
                self.cli("import", self[name], lines, "--partition-by", "channel")
            case "pipeline":
                text = (
                    f'[source]\npaths = "{self["rows"]}"\n[dataset]\ninto = "{self["lake"]}/flights"\n'
                    '[retention]\ndelete_where = "flight = 7"\n'
                )
                self[name] = str(self.write("flights.toml", text))
            case "plain":
                self[name] = f"{self['lake']}/plain"
                pq.write_table(pa.table({"n": [1]}), self.write("lake/plain/rows.parquet", ""))
            case _:
                raise KeyError(name)
        return self[name]

    def words(self, text: str) -> list[str]:
        return text.format_map(self).split()


@pytest.fixture
def place(cli, flights, pings, write, tmp_path: Path) -> Place:
    return Place(cli, tmp_path, write)


def contents(root: Path) -> dict[str, bytes | None]:
    """Return every file and directory under a root, with its bytes."""
    if (root / "raw").exists():
        gc.collect()  # closes the index of an archive, so that its log is part of its file
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def prepare(cli, case: Case, place: Place) -> None:
    for line in case.before:
        verb, *arguments = place.words(line)
        match verb:
            case "DELETE":
                Path(arguments[0]).unlink()
            case "UNPUBLISH":
                cli("unpublish", "delta", f"{place['lake']}/flights")
            case _:
                cli(verb, *arguments)


@pytest.mark.parametrize(
    "verb", [*CASES, *(pytest.param(verb, marks=pytest.mark.spark) for verb in WITH_SPARK)]
)
def test_dry_run_writes_nothing_and_foretells_the_effect(
    cli, place, request, tmp_path: Path, verb: str
) -> None:
    if verb in WITH_SPARK:
        request.getfixturevalue("spark")
    case = {**CASES, **WITH_SPARK}[verb]
    prepare(cli, case, place)
    arguments = [*verb.split(), *place.words(case.call)]
    before = contents(tmp_path)

    planned = cli(*arguments, "--dry-run", "-o", "json")

    assert contents(tmp_path) == before
    said = " ".join((planned.stderr + planned.stdout).split())
    assert case.text.format_map(place) in said
    again = cli(*arguments, "--dry-run", "-o", "json").stdout
    assert stripped(again) == stripped(planned.stdout), "nothing stays in this process either"
    done = cli(*arguments, *case.real.split(), "-o", "json")
    assert contents(tmp_path) != before, "the verb itself does write"
    if planned.stdout:
        case.same(json.loads(planned.stdout), json.loads(done.stdout))


def stripped(text: str) -> Any:
    """Return the result without moments."""
    names = ("started_at", "duration_s", "seconds", "created_at", "batch_id")
    if not text:
        return None

    def leave_out(value: Any) -> Any:
        if isinstance(value, list):
            return [leave_out(one) for one in value]
        if isinstance(value, dict):
            return {key: leave_out(one) for key, one in value.items() if key not in names}
        return value

    return leave_out(json.loads(text))


REFUSALS = {
    "append": ("{lake}/flights {csv}", "schema-mismatch"),
    "import": ("{lake}/flights {csv}", "schema-mismatch"),
    "rerun": ("{lake}/flights {csv} --run first", "schema-mismatch"),
    "staged add": ("{lake}/flights {csv}", "schema-mismatch"),
    "create": ("{lake}/flights --schema {schema}", "dataset-exists"),
    "update": ("{lake}/flights --set nothing=1 --where TRUE", "schema-mismatch"),
    "schema update": ("{lake}/flights --schema {schema}", "partition-spec"),
    "schema add": ("{lake}/flights flight long", "schema-mismatch"),
    "schema drop": ("{lake}/flights nothing", "schema-mismatch"),
    "schema change-type": ("{lake}/flights nothing long", "schema-mismatch"),
    "schema rename": ("{lake}/flights nothing number", "schema-mismatch"),
    "protection add": ("{lake}/flights --version 9 --reason audit", "version-not-found"),
    "protection remove": ("{lake}/flights --version 1", "version-not-found"),
    "index build": ("{lake}/flights nothing", "schema-mismatch"),
    "index drop": ("{lake}/flights flight", "invalid-input"),
    "publish all": ("{lake}/flights", "invalid-input"),
    "archive push": (f"{{lake}}/missing {PUSHED} --storage {{raw}}", "invalid-input"),
    "archive retract": ("nothing --reason torn --storage {raw}", "record-not-found"),
    "archive restore": ("{id} --storage {raw}", "invalid-input"),
    "archive delete": ("nothing --reason torn --storage {raw}", "record-not-found"),
    "export": ("{lake}/flights {new}/tree --telemetry", "schema-mismatch"),
}


@pytest.mark.parametrize("verb", REFUSALS)
def test_dry_run_fails_as_the_verb_does(cli, place, tmp_path: Path, verb: str) -> None:
    call, code = REFUSALS[verb]
    arguments = [*verb.split(), *place.words(call)]
    before = contents(tmp_path)

    planned = cli.error(*arguments, "--dry-run")

    assert planned["code"] == code
    assert contents(tmp_path) == before
    assert planned == cli.error(*arguments)


def test_conflict_with_the_base_is_found(cli, place) -> None:
    cli("append", f"{place['lake']}/flights", place["rows"])

    arguments = ("append", f"{place['lake']}/flights", place["rows"], "--base", 1)
    assert (
        cli.error(*arguments, "--dry-run")["exit_code"] == cli.error(*arguments)["exit_code"] == 5
    )


def test_commit_of_a_batch_that_fails_its_checks_ends_with_the_same_code(cli, place) -> None:
    arguments = (
        "staged",
        "commit",
        f"{place['lake']}/flights",
        place["staged"],
        "--not-null",
        "carrier",
    )

    planned, done = cli(*arguments, "--dry-run", exit_code=None), cli(*arguments, exit_code=None)

    assert planned.exit_code == done.exit_code != 0
    assert "Would not commit: 1 check failed" in planned.stderr


def test_import_with_rejects_counts_them(cli, place, write, tmp_path: Path) -> None:
    rows = write("some.csv", "a,b\n" + "1,x\n" * 200 + "bad,y\n")
    cli("import", f"{place['lake']}/imported", place["csv"])
    arguments = ("import", f"{place['lake']}/imported", rows, "--quarantine")
    before = contents(tmp_path)

    planned = cli(*arguments, "--dry-run", "-o", "json")

    assert contents(tmp_path) == before
    assert "Would put 1 line that did not fit into" in " ".join(planned.stderr.split())
    of_record(json.loads(planned.stdout), cli.json(*arguments))


def test_import_of_a_run_that_was_loaded_says_so(cli, place, tmp_path: Path) -> None:
    arguments = ("import", f"{place['lake']}/imported", place["csv"], "--run", "monday")
    cli(*arguments)

    planned = cli(*arguments, "--dry-run")

    assert "was loaded before" in planned.stderr


def test_nothing_to_change_is_said(cli, place) -> None:
    flights = f"{place['lake']}/flights"

    planned = cli("update", flights, "--set", "flight=1", "--where", "flight=999", "--dry-run")
    same = cli("schema", "update", flights, "--property", "owner=ops", "--dry-run")

    assert "No row matches; no new version would be made." in planned.stderr
    assert "has this schema and these properties already" in same.stderr
    assert "Would" not in same.stderr


def test_publication_is_not_tried(cli, place, tmp_path: Path) -> None:
    flights = f"{place['lake']}/flights"
    cli("schema", "update", flights, "--property", "publish.delta=true")
    shutil.rmtree(tmp_path / "lake" / "flights" / "published")
    before = contents(tmp_path)

    cli("append", flights, place["rows"], "--dry-run")

    assert contents(tmp_path) == before


def test_former_option_of_cleanup_is_refused_by_name(cli, place) -> None:
    refused = cli("cleanup", f"{place['lake']}/flights", "--delete", exit_code=2).stderr

    assert "leave --delete out" in " ".join(refused.split())
    assert "--yes does not ask, --dry-run only lists" in " ".join(refused.split())


def test_cleanup_acts_as_all_verbs_do_but_asks_first(cli, place, tmp_path: Path) -> None:
    flights = f"{place['lake']}/flights"
    cli("delete", flights, "--where", "TRUE", "--yes")
    before = contents(tmp_path)

    refused = cli("cleanup", flights, "--older-than", "0s", stdin="n\n", exit_code=1)
    unasked = cli("cleanup", flights, "--older-than", "0s", stdin="", exit_code=1)

    assert "Delete 2 objects" in refused.stderr
    assert "Aborted" in unasked.stderr
    assert contents(tmp_path) == before


def test_stream_of_messages_is_not_read_dry(cli, place, tmp_path: Path) -> None:
    raw = ("--storage", place["raw"])
    for extra in (("--sqs", "https://sqs.example/q"), ("--queue-dir", tmp_path, "--watch")):
        refused = cli("archive", "ingest", *extra, *raw, "--dry-run", exit_code=2)
        assert "--dry-run cannot be combined with" in " ".join(refused.stderr.split())


def test_directory_of_messages_stays(cli, place, tmp_path: Path) -> None:
    messages = tmp_path / "messages"
    messages.mkdir()
    (messages / f"{uuid.uuid4().hex}.json").write_text("{}")
    arguments = ("archive", "ingest", "--queue-dir", messages, "--storage", place["raw"])
    before = contents(tmp_path)

    planned = cli(*arguments, "--dry-run", exit_code=1)

    assert contents(tmp_path) == before
    assert planned.exit_code == cli(*arguments, exit_code=None).exit_code
    assert contents(tmp_path) != before
