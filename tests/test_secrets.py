"""No log, display, error or result shows a key or a password that somebody gave to open a store."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click.testing
import pyarrow as pa
import pytest

import lakebed
from lakebed.archive import open_archive, open_index
from lakebed.cli import main
from lakebed.common.redaction import StorageOptions
from lakebed.errors import InvalidInputError, LakebedError, redacted, to_document
from lakebed.store import open_store

SOURCE = Path(lakebed.__file__).parents[1]
SECRET = "pLaNtEd/SeCrEt+0123"
GIVEN = {"secret_access_key": SECRET, "session_token": SECRET, "region": "eu-west-1"}


def everything_of(error: BaseException) -> str:
    """Return all that may be shown of an error: also its causes, notes and what travels."""
    shown = ["".join(traceback.format_exception(error)), repr(error), repr(error.args)]
    seen: BaseException | None = error
    while seen is not None:
        shown += [str(seen), repr(seen), repr(seen.args), *getattr(seen, "__notes__", ())]
        if isinstance(seen, LakebedError):
            arrived = pickle.loads(pickle.dumps(seen))
            shown += [repr(vars(seen)), repr(vars(arrived)), json.dumps(to_document(seen))]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(shown)


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Log everything, and look into it afterwards."""
    caplog.set_level(logging.DEBUG, logger="lakebed")
    yield
    assert SECRET not in caplog.text
    assert SECRET not in "".join(repr(record.args) for record in caplog.records)


# Displays

HOLDERS: dict[str, Callable[[Mapping[str, str]], object]] = {
    "FromFiles": lambda given: lakebed.FromFiles(paths="in", storage_options=given),
    "FromArchive": lambda given: lakebed.FromArchive(
        storage="raw", what="x", work_id="1", storage_options=given
    ),
    "Ingest": lambda given: lakebed.Ingest(
        name="n",
        into="lake/n",
        source=lakebed.FromFiles(paths="in", storage_options=given),
        storage_options=given,
    ),
    "LoadOptions": lambda given: lakebed.LoadOptions(storage_options=given),
    "Store": lambda given: open_store("s3://lake/pre", storage_options=given),
    "Repository": lambda given: lakebed.open_repository("s3://lake", storage_options=given),
    "Archive": lambda given: open_archive("s3://lake", index="sqlite://", storage_options=given),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_display_of_what_holds_options_does_not_show_them(name: str) -> None:
    holder = HOLDERS[name]({"access_key_id": "me", **GIVEN})

    assert SECRET not in repr(holder) + str(holder) + f"{holder}"
    assert SECRET not in getattr(holder, "_repr_html_", str)()
    held = getattr(holder, "storage_options", None)
    assert held is None or dict(held) == {"access_key_id": "me", **GIVEN}


def test_files_that_were_found_do_not_show_the_options_that_lead_to_them(
    s3_options: dict[str, str],
) -> None:
    from lakebed.arrow.reading.files import find_files

    place = f"s3://lake/{uuid.uuid4().hex}"
    options = {**s3_options, "secret_access_key": SECRET}
    open_store(place, storage_options=options).put("a.jsonl", b"{}")

    _, files = find_files(f"{place}/a.jsonl", storage_options=options)

    assert SECRET not in repr(files)
    assert SECRET not in repr(pickle.loads(pickle.dumps(files)))
    assert files[0].storage_options["secret_access_key"] == SECRET


def test_options_are_shown_by_name_and_values_only_where_they_are_known_to_be_harmless() -> None:
    options = StorageOptions(
        {
            "AWS_REGION": "eu-west-1",
            "endpoint": "http://minio:9000",
            "proxy_url": f"http://me:{SECRET}@proxy",
            "azure_storage_account_key": SECRET,
            "a_setting_of_somebody_else": SECRET,
        }
    )

    assert repr(options) == (
        "{'AWS_REGION': 'eu-west-1', 'endpoint': 'http://minio:9000', 'proxy_url': '***', "
        "'azure_storage_account_key': '***', 'a_setting_of_somebody_else': '***'}"
    )
    assert f"{options}" == repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


# URLs

URLS = [
    f"s3://KEY:{SECRET}@lake/pre",
    f"s3a://{SECRET.replace('/', '')}@lake",
    f"S3://KEY:{SECRET}/pre",
    f"gs://me:{SECRET}@lake",
    f"az://acc:{SECRET}@lake/pre",
    f"http://me:{SECRET}@minio:9000/lake",
    f"ftp://me:{SECRET.replace('/', '')}@host/lake",
]
OPENERS: dict[str, Callable[[str], object]] = {
    "open_store": open_store,
    "open_repository": lakebed.open_repository,
    "open_archive": lambda url: open_archive(url, index="sqlite://"),
    "open_uri": lambda url: lakebed.open_uri(f"dataset:{url}/d"),
    "view": lambda url: lakebed.open_uri(f"view:{url}/d?a=1&b"),
    "repo": lambda url: lakebed.open_uri(f"repo:{url}?a=1"),
    "FromFiles": lambda url: lakebed.FromFiles(paths=[f"{url}/a.jsonl"]),
    "FromArchive": lambda url: lakebed.FromArchive(storage=url, what="x", work_id="1").open(),
    "Ingest": lambda url: lakebed.Ingest(
        name="n", into=f"{url}/d", source=lakebed.FromFiles(paths="in")
    ),
    "infer_schema": lambda url: lakebed.infer_schema(f"{url}/a.jsonl"),
}


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize("url", URLS, ids=[url.partition("://")[0] for url in URLS])
def test_url_with_a_key_is_refused_by_an_error_that_does_not_show_it(url: str, opener: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        OPENERS[opener](url)

    shown = everything_of(caught.value)
    assert SECRET not in shown
    assert SECRET.replace("/", "") not in shown
    assert "pLaNtEd" not in shown


@pytest.mark.parametrize(
    "url",
    [
        f"dynamodb://KEY:{SECRET}@raw",
        f"dynamodb://raw?endpoint=http://me:{SECRET}@host:8000",
    ],
)
def test_url_of_an_index_with_a_key_is_refused_likewise(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_index(url)

    assert "pLaNtEd" not in everything_of(caught.value)


@pytest.mark.parametrize(
    "url",
    ["s3://lake/a@b:c", "memory://secrets/a@b", "file:///tmp/a:b@c", "./a:b@c", "gs://lake/x@y"],
)
def test_key_or_path_with_odd_characters_is_no_credential(url: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        assert open_store(url)


@pytest.mark.parametrize("name", ["endpoint", "aws_endpoint_url_s3", "AWS_ENDPOINT_URL"])
def test_endpoint_with_a_password_is_refused_by_an_error_that_does_not_show_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://me:pLaNtEd@minio:9000"
    options = {name: url}
    if name.isupper():
        monkeypatch.setenv(name, url)
        options = {}

    with pytest.raises(InvalidInputError, match=name) as caught:
        open_store("s3://lake", storage_options=options)

    assert "pLaNtEd" not in everything_of(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GET http://me:x@host:1/a failed", "GET http://***@host:1/a failed"),
        ("http://host:9000/a@b", "http://host:9000/a@b"),
        ("s3://KEY:a/b+c@lake/x", "s3://***@lake/x"),
        ("https://token@host/a", "https://***@host/a"),
        ("az://c/a?sig=ab%3D&sv=1", "az://c/a?sig=***&sv=1"),
        ("region 'a;secret_access_key=b/c+d'", "region 'a;secret_access_key=***'"),
        ("AccountName=a;AccountKey=c2Vj==;x", "AccountName=a;AccountKey=***"),
        ("AWS_SESSION_TOKEN=b at key=c", "AWS_SESSION_TOKEN=*** at key=c"),
        ("'http://me:12345@host'", "'http://***@host'"),
        ("abfss://container@account", "abfss://container@account"),
        ("at 10:30 me@example.org", "at 10:30 me@example.org"),
    ],
)
def test_text_loses_what_opens_a_store_and_nothing_else(text: str, expected: str) -> None:
    assert redacted(text) == expected
    assert LakebedError(text, hint=text).message == expected
    assert LakebedError(text, hint=text).hint == expected


# What the client of the service says

ANSWERS = {
    "denied": (403, {}, f"<Error><Code>Denied</Code><Token>{SECRET}</Token></Error>".encode()),
    "failed": (500, {}, f"<Error>{SECRET}</Error>".encode()),
    "missing": (404, {}, f"<Error><Code>NoSuchBucket</Code>{SECRET}</Error>".encode()),
    "busy": (503, {}, SECRET.encode()),
}


@pytest.mark.parametrize("by", ["options", "environment"])
@pytest.mark.parametrize("name", ANSWERS)
def test_error_of_the_service_and_its_causes_show_no_secret(
    name: str, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    status, _, body = ANSWERS[name]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    given = {"allow_http": "true", "max_retries": "0"}
    for setting, value in {"access_key_id": "me", **GIVEN}.items():
        if by == "options":
            given[setting] = value
        else:
            monkeypatch.setenv(f"AWS_{setting.upper()}", value)
    store = open_store(
        "s3://lake",
        storage_options={**given, "endpoint": f"http://127.0.0.1:{server.server_port}"},
    )

    try:
        with pytest.raises(LakebedError) as caught:
            store.get("a")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert caught.value.__cause__ is not None
    assert SECRET not in everything_of(caught.value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://lake", {"service_account_key": json.dumps(SECRET)}),
        ("gs://lake", {"service_account_key": json.dumps({"private_key": SECRET})}),
        ("az://lake", {"account_name": "acc", "account_key": SECRET + "?"}),
        ("az://lake", {"account_name": "acc", "sas_token": SECRET}),
        ("s3://lake", {"secret_access_key": SECRET}),
        ("s3://lake", {**GIVEN, "access_key_id": "me", "bogus": SECRET}),
        ("s3://lake", {**GIVEN, "access_key_id": "me\n"}),
        ("s3://lake", {**GIVEN, "access_key_id": "me", "proxy_url": f"me:{SECRET}@[:"}),
        ("s3://lake", {"region": f"eu-west-1;secret_access_key={SECRET}"}),
        ("s3://lake", {"allow_http": f"true;secret_access_key={SECRET}"}),
        ("s3://lake", {"endpoint": f"http://a:1;secret_access_key={SECRET}"}),
        ("s3://lake", {f"secret_access_key:{SECRET}": ""}),
        ("hdfs://name", {f"delegation_token {SECRET}": ""}),
        ("memory://secrets", GIVEN),
        ("file:///tmp/secrets", GIVEN),
    ],
    ids=lambda value: value if isinstance(value, str) else ",".join(value),
)
def test_options_that_cannot_be_used_are_refused_without_their_values(
    url: str, options: dict[str, str]
) -> None:
    with pytest.raises(LakebedError) as caught:
        open_store(url, storage_options=options).get("a")

    assert SECRET not in everything_of(caught.value)


def test_file_of_credentials_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")

    with pytest.raises(InvalidInputError, match=r"/nowhere/key\.json"):
        open_store("gs://lake")


def test_document_of_credentials_where_its_file_is_to_be_named_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = json.dumps({"type": "service_account", "private_key": SECRET})
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", document)

    with pytest.raises(InvalidInputError) as caught:
        open_store("gs://lake")

    assert SECRET not in everything_of(caught.value)


# The command line


def run(*arguments: str) -> str:
    result = click.testing.CliRunner().invoke(main, list(arguments), prog_name="lakebed")
    assert result.exit_code != 0
    return result.output + (everything_of(result.exception) if result.exception else "")


LINES = {
    "doctor": ["doctor", f"s3://KEY:{SECRET}@lake"],
    "doctor with an endpoint": [
        "doctor",
        "s3://lake",
        "--storage-option=endpoint=http://me:pLaNtEd@127.0.0.1:9",
    ],
    "list by a slip": ["list", "s3://lake", f"--storage-option=account_key:{SECRET}=="],
    "list": ["list", f"s3://KEY:{SECRET}@lake"],
    "show": ["show", f"s3://KEY:{SECRET}@lake/d"],
    "show nothing": ["show", f"http://KEY:{SECRET}@lake"],
    "query a uri": ["query", f"view:s3://KEY:{SECRET}@lake/d?a"],
    "ingest": ["ingest", "in", "--into", f"s3://KEY:{SECRET}@lake/d"],
    "archive": ["archive", "list", "x", "--storage", f"s3://KEY:{SECRET}@lake", "--index", "i.db"],
    "archive index": [
        "archive",
        "list",
        "x",
        "--storage",
        ".",
        "--index",
        f"dynamodb://K:{SECRET}@t",
    ],
    "option without a sign": [
        "list",
        "s3://lake",
        "--storage-option",
        f"secret_access_key {SECRET}",
    ],
    "option without a name": ["list", "s3://lake", "--storage-option", f"={SECRET}"],
    "try a store": [
        "doctor",
        "--store=s3://lake",
        f"--storage-option=secret_access_key={SECRET}",
        "--storage-option=access_key_id=me",
        "--storage-option=endpoint=http://127.0.0.1:9",
        "--storage-option=allow_http=true",
        "--storage-option=max_retries=0",
        "-vv",
    ],
    "try a place that is none": ["doctor", f"s3://KEY:{SECRET}@lake", "--races"],
    "former option": ["doctor", f"--store=s3://KEY:{SECRET}@lake"],
    "bogus option": ["list", "s3://lake", f"--storage-option=bogus={SECRET}"],
    "unreachable": [
        "list",
        "s3://lake",
        f"--storage-option=secret_access_key={SECRET}",
        "--storage-option=access_key_id=me",
        "--storage-option=endpoint=http://127.0.0.1:9",
        "--storage-option=allow_http=true",
        "--storage-option=max_retries=0",
        "-vv",
    ],
}


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("line", LINES)
def test_command_line_shows_no_secret(line: str, form: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        shown = run(*LINES[line], "-o", form)

    assert "pLaNtEd" not in shown


@pytest.mark.parametrize("by", ["variable", "file"])
@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("line", ["doctor PLACE --races --rounds=2", "doctor PLACE", "list PLACE"])
def test_command_line_shows_no_secret_that_was_given_once(
    line: str,
    form: str,
    by: str,
    s3_options: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = {**s3_options, "secret_access_key": SECRET, "session_token": SECRET}
    give_once(by, options, tmp_path, monkeypatch)
    place = f"s3://lake/{uuid.uuid4().hex}"

    result = click.testing.CliRunner().invoke(
        main, [*line.replace("PLACE", place).split(), "-o", form, "-vv"], prog_name="lakebed"
    )

    assert result.exit_code == 0
    assert place in result.output
    assert "pLaNtEd" not in result.output


def give_once(
    by: str, options: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give storage options by the variable or by the file."""
    if by == "variable":
        monkeypatch.setenv("LAKEBED_STORAGE_OPTIONS", json.dumps(options))
        return
    lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
    path = folder / "config.toml"
    path.write_text("\n".join(['[storage."s3://"]', *lines]))
    monkeypatch.setenv("LAKEBED_CONFIG", str(path))


@pytest.mark.parametrize("by", ["variable", "file"])
def test_error_of_what_was_given_once_shows_no_secret(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"secret_access_key": SECRET, "access_key_id": "me", "max_retries": "0"}
    address = {"endpoint": "http://127.0.0.1:9", "allow_http": "true"}
    give_once(by, {**given, **address}, tmp_path, monkeypatch)
    with pytest.raises(LakebedError) as unreachable:
        open_store("s3://lake").get("a")
    give_once(by, {**given, "secret_acess_key": SECRET}, tmp_path, monkeypatch)
    with pytest.raises(LakebedError) as unknown:
        open_store("s3://lake")

    assert "secret_acess_key" in everything_of(unknown.value)
    assert SECRET not in everything_of(unknown.value) + everything_of(unreachable.value)


@pytest.mark.parametrize("by", ["call", "variable", "file"])
def test_whole_way_on_a_store_says_nothing_of_its_secrets(
    by: str,
    s3_options: dict[str, str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = f"s3://lake/{uuid.uuid4().hex}"
    options = {**s3_options, "secret_access_key": SECRET}
    if by != "call":
        (tmp_path / by).mkdir()
        give_once(by, options, tmp_path / by, monkeypatch)
        options = {}
    Path(tmp_path, "a.jsonl").write_text('{"n": 1}\n{"n": "x"}\n')
    ingest = lakebed.Ingest(
        name="n",
        into=f"{place}/numbers",
        source=lakebed.FromFiles(paths=tmp_path),
        create=lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
        storage_options=options,
    )

    report = ingest.run()
    dataset = ingest.dataset()
    archive = open_archive(place, index="sqlite://", storage_options=options)
    record = archive.push(io.BytesIO(b"x"), path="/x", where="w", what="x", start="2026-01-01")

    shown = [report, dataset, dataset.plan(), dataset.plan().explain(), dataset.history()]
    shown += [ingest, archive, record, dataset.files(), ingest.source]
    assert SECRET not in "".join(f"{one!r}{one}" for one in shown)
    assert caplog.text  # and the fixture looks into it
    stored = open_store(place, storage_options=s3_options)
    assert not [info.key for info in stored.list() if SECRET.encode() in stored.get(info.key).data]


@pytest.mark.spark
def test_spark_shows_no_secret(spark: Any, s3_options: dict[str, str]) -> None:
    options = {**s3_options, "secret_access_key": SECRET}
    repository = lakebed.open_repository(f"s3://lake/{uuid.uuid4().hex}", storage_options=options)
    dataset = repository.create(
        "numbers", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    )

    dataset.append(spark.range(10).withColumnRenamed("id", "n"))
    frame = dataset.where("n < 5").spark(spark)

    assert frame.count() == 5
    plan = frame._jdf.queryExecution().toString()
    settings = dict(spark.sparkContext.getConf().getAll())
    hadoop = spark.sparkContext._jsc.hadoopConfiguration().iterator()
    while hadoop.hasNext():
        entry = hadoop.next()
        settings[entry.getKey()] = entry.getValue()
    settings.update(spark.conf.getAll)
    assert settings["spark.app.name"]
    assert SECRET not in plan + repr(settings)


@pytest.mark.spark
@pytest.mark.long
def test_event_log_of_spark_shows_no_secret(
    s3_options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
import sys
import lakebed
from lakebed.spark.session import local_session

place, events = sys.argv[1:]
settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events, "spark.eventLog.compress": "false"}
spark = local_session("2", settings=settings)
repository = lakebed.open_repository(place)
schema = {"type": "record", "name": "n", "fields": [{"name": "n", "type": "long"}]}
dataset = repository.create("numbers", lakebed.DatasetDescriptor(schema=schema))
dataset.append(spark.range(10).withColumnRenamed("id", "n"))
assert dataset.where("n < 5").spark(spark).count() == 5
frame = spark.read.format("lakebed").load(f"{place}/numbers")
assert frame.where("n < 5").count() == 5
frame.explain(mode="extended")
spark.stop()
"""
    options = {**s3_options, "secret_access_key": SECRET}
    give_once("variable", options, tmp_path, monkeypatch)
    events = tmp_path / "events"
    events.mkdir()

    done = subprocess.run(
        [sys.executable, "-c", program, f"s3://lake/{uuid.uuid4().hex}", events.as_uri()],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        check=True,
        capture_output=True,
        text=True,
    )

    logs = [path for path in events.rglob("*") if path.is_file()]
    assert logs
    assert "MapInArrow" in "".join(path.read_text(errors="replace") for path in logs)
    shown = [done.stdout, done.stderr, *(path.read_text(errors="replace") for path in logs)]
    assert SECRET not in "".join(shown)
