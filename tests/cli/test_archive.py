"""The verbs of the archive."""

import csv
import gzip
import io
import json
import re
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.archive_verbs import archive as archive_group

T0 = 1426809600000

# What follows the verb; {root} is an archive with the file `one`.
CALLS = {
    "init": "--storage {root}",
    "push": "{file} --where box --what log --start 2015-03-20 --storage {root}",
    "list": "log --start 2015-03-20 --end 2015-03-21 --storage {root}",
    "whats": "--where box --storage {root}",
    "latest": "log box --lookback 36500 --storage {root}",
    "fetch": "one --to {root}/../out --storage {root}",
    "retract": "one --reason torn --storage {root}",
    "restore": "one --storage {root}",
    "delete": "one --reason torn --yes --storage {root}",
    "reindex": "--storage {root}",
    "enqueue": "{file} --where box --what log --start now --queue {root}/../queue",
    "upload": "--queue {root}/../queue --storage {root}",
    "ingest": "one --storage {root}",
}
WRITES_CONTENTS = {"cat"}
RUNS_ON = {"serve"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job-12.log"
    path.write_bytes(b"mwahaha")
    return path


@pytest.fixture
def root(tmp_path: Path) -> str:
    archive = lakebed.open_archive(tmp_path / "raw")
    archive.push(
        io.BytesIO(b"content\xff"), path="/a.log", where="box", what="log", start=T0, id="one"
    )
    archive.store.put("stray", b"x")
    archive.index.close()
    return str(tmp_path / "raw")


def check_rows(text: str, output: str) -> None:
    if output == "json":
        assert isinstance(json.loads(text), list | dict)
    elif output == "jsonl":
        assert all(isinstance(json.loads(line), dict) for line in text.splitlines())
    elif output == "csv":
        assert len({len(row) for row in csv.reader(io.StringIO(text), strict=True)}) == 1
    else:
        assert text.isascii()
        assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_every_verb_is_called_in_every_form() -> None:
    assert set(CALLS) | WRITES_CONTENTS | RUNS_ON == set(archive_group.commands)


@pytest.mark.parametrize(
    "output",
    [
        *("table", "json"),
        *(pytest.param(output, marks=pytest.mark.thorough) for output in ("jsonl", "csv")),
    ],
)
@pytest.mark.parametrize("verb", CALLS)
def test_result_is_valid(cli, root: str, file: Path, verb: str, output: str) -> None:
    arguments = CALLS[verb].format(root=root, file=file).split()
    if verb == "restore":
        cli("archive", "retract", *CALLS["retract"].format(root=root).split())

    result = cli("archive", verb, *arguments, "-o", output)

    check_rows(result.stdout, output)


@pytest.mark.thorough
@pytest.mark.parametrize("output", ["table", "json", "jsonl", "csv"])
def test_server_tells_where_it_is(root: str, output: str) -> None:
    lakebed_ = Path(sys.executable).parent / "lakebed"
    command = [lakebed_, "archive", "serve", "--storage", root, "--port", "0", "-o", output]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        told = ""
        while (url := re.search(r"http://127\.0\.0\.1:\d+", told)) is None:
            line = process.stdout.readline()
            assert line, told
            told += line
        # It answers after it has told all.
        with urllib.request.urlopen(f"{url[0]}/health/", timeout=30) as answer:
            assert answer.status == 200
        process.terminate()
        told += process.stdout.read()

    check_rows(told, output)


def test_group_explains_itself(cli) -> None:
    assert "--storage" in cli("archive", "--help").stdout
    assert "Did you mean 'push'?" in cli("archive", "psh", exit_code=2).stderr
    cli("archive", exit_code=2)


def test_pushed_file_is_listed_found_and_written(cli, root: str, file: Path, tmp_path) -> None:
    at = ("--storage", root)
    (pushed,) = cli.json(
        "archive", "push", file, "--where", "web1", "--what", "job", "--start", "2015-03-20",
        "--work-id", r".*job-(?P<n>\d+)\.log$~job-{n}", "--extra", "owner=ops", *at,
    )  # fmt: skip

    assert (pushed["work_id"], pushed["hash"]) == ("job-12", "a3e75ee4f45f676422e038f2c116d000")
    assert (pushed["start"], pushed["end"]) == ("2015-03-20T00:00:00Z", None)
    assert pushed["metadata"]["owner"] == "ops"
    assert cli.json("archive", "list", "job", "--work-id", "job-12", *at) == [pushed]
    assert cli.json("archive", "latest", "job", "web1", "--lookback", "36000", *at) == pushed
    cat = cli("archive", "cat", pushed["url"], "one", *at)
    assert cat.stdout_bytes == b"mwahahacontent\xff"
    template = ("--to", tmp_path / "out", "--template", "{where}/{what}-{start_iso}")
    (fetched,) = cli.json("archive", "fetch", "-", *template, *at, stdin=pushed["url"] + "\n")
    assert Path(fetched["path"]).read_bytes() == b"mwahaha"
    assert Path(fetched["path"]) == tmp_path / "out" / "web1" / "job-2015-03-20T00:00:00.000"


@pytest.mark.parametrize("verb", ["list", "push", "latest", "retract", "restore"])
def test_plain_is_the_url_which_cat_fetch_and_ingest_read(
    cli, root: str, file: Path, tmp_path: Path, verb: str
) -> None:
    at = ("--storage", root)
    if verb == "restore":
        cli("archive", "retract", "one", "--reason", "torn", *at)
    arguments = CALLS[verb].format(root=root, file=file).split()
    content = b"mwahaha" if verb == "push" else b"content\xff"

    urls = cli("archive", verb, *arguments, "-o", "plain").stdout

    assert urls.startswith("file:")
    assert cli("archive", "cat", *at, stdin=urls).stdout_bytes == content
    (copied,) = cli.json("archive", "fetch", "--to", tmp_path / "out", *at, stdin=urls)
    assert Path(copied["path"]).read_bytes() == content
    (indexed,) = cli.json("archive", "ingest", *at, stdin=urls)
    assert indexed["urls"] == urls.split()


def test_plain_of_a_dry_run_names_the_files_which_have_no_url_yet(cli, root, file) -> None:
    arguments = CALLS["push"].format(root=root, file=file).split()

    assert cli("archive", "push", *arguments, "--dry-run", "-o", "plain").stdout == f"{file}\n"


def test_whats_are_listed(cli, root: str, file: Path) -> None:
    at = ("--storage", root)
    cli("archive", "push", *CALLS["push"].format(root=root, file=file).split())

    assert cli.json("archive", "whats", *at) == [
        {
            "what": "log",
            "file_count": 2,
            "size_bytes": 15,
            "first": "2015-03-20T00:00:00Z",
            "last": "2015-03-20T00:00:00Z",
            "wheres": ["box"],
        }
    ]
    assert cli.json("archive", "whats", "--where", "elsewhere", *at) == []
    assert cli.json("archive", "whats", "--end", "2015-03-19", *at) == []


def test_variables_name_storage_index_place_and_queue(cli, file, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LAKEBED_ARCHIVE_STORAGE", str(tmp_path / "files"))
    monkeypatch.setenv("LAKEBED_ARCHIVE_INDEX", f"sqlite://{tmp_path}/index.db")
    monkeypatch.setenv("LAKEBED_ARCHIVE_WHERE", "box")
    monkeypatch.setenv("LAKEBED_ARCHIVE_QUEUE", str(tmp_path / "queue"))

    cli("archive", "enqueue", file, "--what", "log", "--start", T0, "--compress")
    (uploaded,) = cli.json("archive", "upload")
    (listed,) = cli.json("archive", "list", "log", "--start", T0, "--end", T0)

    assert uploaded["url"] == listed["url"]
    assert (tmp_path / "index.db").exists()
    content = cli("archive", "cat", listed["id"]).stdout_bytes
    assert gzip.decompress(content) == b"mwahaha"


@pytest.mark.parametrize(
    ("call", "code", "exit_code"),
    [
        ("cat missing", "record-not-found", 3),
        ("cat s3://elsewhere/x", "invalid-input", 2),
        ("cat stray", "record-not-found", 3),
        ("fetch one --template ../{{id}}", "invalid-input", 2),
        ("latest log nowhere", "record-not-found", 3),
        ("latest log box --lookback nine", "invalid-input", 2),
        ("list log", "invalid-input", 2),
        ("list log --start x --end now", "invalid-input", 2),
        ("push {file} --where Box --what log --start 2026-01-01", "invalid-input", 2),
        ("push {file} --where box --what log --start 2026-01-01 --id one", "record-exists", 4),
        ("push {file} {file} --where b --what l --start 2026-01-01 --id x", "invalid-input", 2),
        ("push {root}/nope --where box --what log --start 2026-01-01", "invalid-input", 2),
        ("ingest one --queue-dir {root}", "invalid-input", 2),
        ("init --index mysql://x", "invalid-input", 2),
        ("list log --work-id x --index {root}/nope.db", "storage", 6),
    ],
)
def test_error_is_named(cli, root, file, call: str, code: str, exit_code: int) -> None:
    arguments = call.format(root=root, file=file).split()

    result = cli("archive", *arguments, "--storage", root, "-o", "json", exit_code=exit_code)

    assert json.loads(result.stderr.splitlines()[-1])["error"]["code"] == code


def test_reindex_tells_what_it_did(cli, root: str) -> None:
    result = cli("archive", "reindex", "--dry-run", "--storage", root, "-o", "json")

    assert "Would index 1 file." in result.stderr
    (skipped,) = json.loads(result.stdout)
    assert (skipped["action"], skipped["url"].endswith("/stray")) == ("skipped", True)


def test_upload_ends_with_1_if_a_bundle_stays(cli, root: str, tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "bad.tar").write_bytes(b"x")

    result = cli(
        "archive", "upload", "--queue", tmp_path / "queue", "--storage", root, "--json", exit_code=1
    )

    (row,) = json.loads(result.stdout)
    assert (row["outcome"], row["url"]) == ("invalid", None)


@pytest.mark.thorough
def test_watching_upload_ends_with_0_if_what_had_failed_is_uploaded_at_last(
    cli, root: str, file: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index.db"
    index.write_bytes(b"no database" * 1_000)
    fields = ("--where", "box", "--what", "log", "--start", T0)
    cli("archive", "enqueue", file, *fields, "--queue", tmp_path / "queue")
    at = ("--queue", tmp_path / "queue", "--storage", root, "--index", index, "-o", "json")
    mended = threading.Timer(1.5, index.unlink)
    mended.start()

    result = cli("archive", "upload", "--watch", "--timeout", "5", *at)
    mended.join()

    assert json.loads(result.stdout) == []
    assert [line.split()[0] for line in result.stderr.splitlines()][-1] == "uploaded"
    assert "failed" in result.stderr


def test_watching_upload_tells_what_stays(cli, root: str, tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "bad.tar").write_bytes(b"x")
    at = ("--queue", tmp_path / "queue", "--storage", root, "-o", "json")

    result = cli("archive", "upload", "--watch", "--timeout", "0", *at, exit_code=1)

    assert [row["outcome"] for row in json.loads(result.stdout)] == ["invalid"]


def test_watching_ingest_notes_each_message_and_tells_what_cannot_be_used(
    cli, root: str, tmp_path: Path
) -> None:
    (tmp_path / "messages").mkdir()
    for name, text in (("1", "{"), ("2", '{"Event": "s3:TestEvent"}')):
        (tmp_path / "messages" / name).write_text(text)
    at = ("--storage", root, "--watch", "--timeout", "0.2", "-o", "json")

    result = cli("archive", "ingest", "--queue-dir", tmp_path / "messages", *at, exit_code=1)
    nothing = cli("archive", "ingest", *at, exit_code=2)

    assert [row["status"] for row in json.loads(result.stdout)] == ["error"]
    assert "nothing to do" in result.stderr
    assert "nothing to watch" in nothing.stderr


def test_reindex_notes_records_of_other_storages(cli, root: str, file: Path, tmp_path) -> None:
    index = ("--index", tmp_path / "index.db")
    fields = ("--where", "box", "--what", "log", "--start", T0)
    cli("archive", "push", file, *fields, "--storage", tmp_path / "other", *index)

    result = cli("archive", "reindex", "--storage", root, *index)

    assert "Left 1 record of files in other storages" in result.stderr


def test_ingest_reads_lines_and_directories(cli, root: str, tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "1").write_text('{"Event": "s3:TestEvent"}')
    at = ("--storage", root, "-o", "json")

    lines = cli("archive", "ingest", *at, stdin="one\nmissing\n", exit_code=1)
    directory = cli("archive", "ingest", "--queue-dir", tmp_path / "messages", *at)

    assert [row["status"] for row in json.loads(lines.stdout)] == ["success", "error"]
    assert [row["status"] for row in json.loads(directory.stdout)] == ["success"]


@pytest.fixture
def days(tmp_path: Path) -> list[str]:
    folder = tmp_path / "in"
    folder.mkdir()
    paths = [folder / f"sales-2026-01-{day:02d}.csv" for day in range(1, 32)]
    for number, path in enumerate(paths):
        path.write_text(f"n\n{number}\n")
    return [str(path) for path in paths]


DAY = r"\d{4}-\d\d-\d\d"


def test_many_files_are_pushed_in_one_process_with_the_times_of_their_names(
    cli, days: list[str], tmp_path: Path
) -> None:
    options = ["--where", "shop", "--what", "sales", "--storage", str(tmp_path / "raw")]

    pushed = cli("archive", "push", *days, *options, "--start-from-name", DAY, "-o", "jsonl")

    rows = [json.loads(line) for line in pushed.stdout.splitlines()]
    assert [row["start"][:10] for row in rows] == [f"2026-01-{day:02d}" for day in range(1, 32)]
    for times in ([], ["--start", "now", "--start-from-name", DAY]):
        refused = cli("archive", "push", *days, *options, *times, exit_code=2)
        assert "--start or --start-from-name" in refused.stderr


def test_new_files_lie_under_original_keys_if_asked(cli, days: list[str], tmp_path: Path) -> None:
    raw, queue = str(tmp_path / "raw"), str(tmp_path / "queue")
    fields = ["--where", "shop", "--what", "sales", "--start-from-name", DAY]
    keys = ["--storage", raw, "--keys", "original", "-o", "jsonl"]

    pushed = cli("archive", "push", days[0], *fields, *keys)
    cli("archive", "enqueue", days[1], *fields, "--queue", queue)
    uploaded = cli("archive", "upload", "--queue", queue, *keys)

    for answer in (pushed, uploaded):
        assert re.search(r"/[0-9a-f]-shop/sales/\d+/[0-9a-f]{32}-sales-2026", answer.stdout)


@pytest.mark.parametrize("text", ["20260901", "20260901000000", "2026-09-01", "1788220800"])
def test_day_is_the_same_however_it_is_written(cli, root, file, text) -> None:
    asked = ("archive", "list", "log", "--start", text, "--end", "20260902", "--storage", root)

    cli(
        *("archive", "push", str(file), "--where", "box", "--what", "log", "--start", text),
        *("--storage", root),
    )

    assert [row["start"] for row in cli.json(*asked)] == ["2026-09-01T00:00:00Z"]


@pytest.mark.parametrize("text", ["20261301", "202609", "123", "0", "473385600"])
def test_start_that_would_be_before_1990_is_refused_and_nothing_is_stored(
    cli, root, file, text
) -> None:
    error = cli.error(
        *("archive", "push", str(file), "--where", "box", "--what", "log", "--start", text),
        *("--storage", root),
    )

    assert (error["code"], error["exit_code"]) == ("invalid-input", 2)
    assert text in error["message"]
    assert "20150320" in error["hint"]
    everything = ("archive", "list", "log", "--start", "0", "--end", "now", "--storage", root)
    assert [row["id"] for row in cli.json(*everything)] == ["one"]


def test_a_file_is_retracted_listed_and_restored(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text("a")
    push = ("a.log", "--where", "box", "--what", "log", "--start", "2015-03-20")
    (pushed,) = cli.json("archive", "push", *push, "--storage", "raw")
    asked = ("log", "--start", "2015-03-20", "--end", "2015-03-21", "--storage", "raw")

    (told,) = cli.json("archive", "retract", pushed["id"], "--reason", "torn", "--storage", "raw")

    assert told["retracted"] == "torn"
    assert cli.json("archive", "list", *asked) == []
    assert [row["retracted"] for row in cli.json("archive", "list", *asked, "--retracted")] == [
        "torn"
    ]
    assert cli("archive", "cat", pushed["id"], "--storage", "raw").stdout == "a"
    (restored,) = cli.json("archive", "restore", pushed["id"], "--storage", "raw")
    assert restored["retracted"] is None
    assert len(cli.json("archive", "list", *asked)) == 1


def test_bad_names_are_noted_on_stderr_and_stored(cli, tmp_path):
    log = tmp_path / "a.log"
    log.write_text("a")
    names = ("--where", "localhost", "--what", "job", "--start", "2015-03-20")

    pushed = cli("archive", "push", log, *names, "--storage", tmp_path / "raw", "-o", "json")
    quiet = cli("archive", "push", log, *names, "--storage", tmp_path / "raw", "-q")

    notes = [line for line in pushed.stderr.splitlines() if line.startswith("Warning: ")]
    assert [line.split()[1] for line in notes] == ["where", "what"]
    assert [one["where"] for one in json.loads(pushed.stdout)] == ["localhost"]
    assert "Warning" not in quiet.stderr
