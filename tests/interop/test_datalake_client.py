"""datalake's own client works with an archive of Lakebed: it pushes to S3, S3 tells Lakebed by a
notification, and `lakebed archive serve` answers what the client asks."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click.testing
import pytest

import lakebed
from lakebed.archive import ArchiveRecord, FileMetadata, open_index, to_epoch_ms
from lakebed.archive.file_keys import KeyForm
from lakebed.cli import main
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.interop

HERE = Path(__file__).parent
BIN = HERE.parent.parent / ".venv-datalake" / "bin"
TIMEOUT_S = 120
T0 = 1426809600000  # 2015-03-20
DAY = 86_400_000
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
}


class DatalakeError(Exception):
    """An error that datalake has raised; `kind` is the name of its class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Client:
    """Calls of `datalake_worker.py` as methods."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.http_url = ""

    def call(self, verb: str, **arguments: Any) -> Any:
        timer = threading.Timer(TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"call": verb, "arguments": arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert line, f"datalake's process ended in {verb}({arguments})"
        answer = json.loads(line)
        if "error" in answer:
            raise DatalakeError(answer["error"], answer["message"])
        return answer["result"]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda **arguments: self.call(name, http_url=self.http_url, **arguments)


@dataclass(frozen=True)
class Lake:
    """A bucket that tells a queue of what is stored in it, and the archive over it."""

    storage: str
    index: str
    sqs: str
    endpoint: str
    options: dict[str, str]

    @property
    def arguments(self) -> list[str]:
        given = [f"--storage-option={name}={value}" for name, value in self.options.items()]
        return ["--storage", self.storage, "--index", self.index, *given]

    def open(self) -> lakebed.Archive:
        return lakebed.open_archive(self.storage, index=self.index, storage_options=self.options)

    def ingest(self) -> list[dict[str, Any]]:
        """Follow the notifications, as an operator does."""
        queue = ["--sqs", self.sqs, "--sqs-endpoint", self.endpoint, "--sqs-region", "us-east-1"]
        result = click.testing.CliRunner(env=CREDENTIALS).invoke(
            main, ["archive", "ingest", *queue, "--sqs-wait", "0", *self.arguments, "--json"]
        )
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def environment(s3_endpoint: str) -> dict[str, str]:
    # With a region the client would talk to AWS itself.
    hidden = {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_S3_HOST", "AWS_PROFILE"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in hidden and not name.startswith(("DATALAKE_", "LAKEBED_"))
    }
    return {
        **kept,
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": s3_endpoint,
        "DATALAKE_CHUNK_SIZE_MB": "5",  # parts of S3 are not smaller
        "DATALAKE_CONFIG": os.devnull,
    }


@pytest.fixture(scope="module")
def lake(
    s3_endpoint: str, s3_options: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    import boto3

    name = f"dl-{uuid.uuid4().hex}"
    session = boto3.Session("testing", "testing", region_name="us-east-1")
    s3, sqs = (session.client(one, endpoint_url=s3_endpoint) for one in ("s3", "sqs"))
    s3.create_bucket(Bucket=name)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    s3.put_bucket_notification_configuration(
        Bucket=name,
        NotificationConfiguration={
            "QueueConfigurations": [{"QueueArn": arn["QueueArn"], "Events": ["s3:ObjectCreated:*"]}]
        },
    )
    for client in (s3, sqs):
        client.close()
    lake = Lake(
        storage=f"s3://{name}",
        index=f"sqlite://{tmp_path_factory.mktemp('index')}/raw.db",
        sqs=url,
        endpoint=s3_endpoint,
        options=s3_options,
    )
    lake.open().init()
    return lake


@contextmanager
def serving(arguments: list[str], environment: dict[str, str], log: Path) -> Iterator[str]:
    """Run `lakebed archive serve` in a process of its own."""
    command = [Path(sys.executable).parent / "lakebed", "archive", "serve", "--port", "0"]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, *arguments, "-o", "jsonl"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            line = process.stdout.readline()
            assert line, log.read_text()
            yield json.loads(line)["url"]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def http_url(
    lake: Lake, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    log = tmp_path_factory.mktemp("serve") / "stderr"
    with serving(lake.arguments, environment, log) as url:
        yield url


@pytest.fixture(scope="module")
def worker(
    lake: Lake, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    if not (BIN / "python").exists():
        pytest.fail(f"datalake's environment {BIN.parent} is missing: make compat-env")
    log = tmp_path_factory.mktemp("datalake") / "stderr"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [BIN / "python", HERE / "datalake_worker.py"],
            env={**environment, "DATALAKE_STORAGE_URL": lake.storage},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        client = Client(process)
        try:
            assert client.call("version") == "2.5.11", "run: make compat-env"
        except (AssertionError, BrokenPipeError) as error:
            process.kill()
            pytest.fail(f"datalake does not start ({error}):\n{log.read_text()}")
        yield client
        process.stdin.close()


@pytest.fixture
def client(worker: Client, http_url: str) -> Client:
    worker.http_url = http_url
    return worker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "access.log"
    path.write_bytes(b"mwahaha")
    return path


def fields(**changes: Any) -> dict[str, Any]:
    what = f"log-{uuid.uuid4().hex}"  # apart from other tests
    given = {"where": "nebraska", "what": what, "start": T0, "end": None, "work_id": None}
    return {**given, **changes}


def test_pushed_file_is_found_by_time_work_id_and_place_after_its_notification(
    client: Client, lake: Lake, file: Path
) -> None:
    given = fields(start="2015-03-20T10:00", end="2015-03-21T09:00", work_id="job-7")
    asked = {"what": given["what"], "start": "2015-03-21", "end": "2015-03-22"}
    url = client.push(path=str(file), fields=given)
    assert client.list_files(**asked) == []

    reports = lake.ingest()

    assert [one for report in reports for one in report["urls"]] == [url]
    (record,) = client.list_files(**asked)
    file_id = url.split("/")[-2]
    http = f"{client.http_url}/v0/archive/files/{file_id}/data"
    assert {name: record[name] for name in ("url", "http_url", "size")} == {
        "url": url,
        "http_url": http,
        "size": 7,
    }
    assert record["metadata"] == {
        "version": 0,
        "id": file_id,
        "hash": "a3e75ee4f45f676422e038f2c116d000",
        "path": str(file),
        "where": "nebraska",
        "what": given["what"],
        "work_id": "job-7",
        "start": T0 + 36_000_000,
        "start_iso": "2015-03-20T10:00:00.000Z",
        "end": T0 + DAY + 32_400_000,
        "end_iso": "2015-03-21T09:00:00.000Z",
    }
    assert client.list_files(**asked, where="nebraska") == [record]
    assert client.list_files(**asked, where="kansas") == []
    by_work = {"what": given["what"], "work_id": "job-7"}
    assert client.list_files(**by_work) == [record]
    assert client.list_files(**by_work, where="nebraska") == [record]
    assert client.list_files(**by_work, where="kansas") == []
    assert client.list_files(what=given["what"], work_id="job-8") == []
    assert client.list_files(what=given["what"], start=0, end="2015-03-19") == []


@pytest.mark.parametrize("stream", [False, True])
def test_content_is_fetched_from_storage_and_from_the_server(
    client: Client, lake: Lake, file: Path, stream: bool
) -> None:
    given = fields()
    client.push(path=str(file), fields=given)
    lake.ingest()
    (record,) = client.list_files(what=given["what"], start="2015-03-20", end="2015-03-21")

    by_s3 = client.fetch(url=record["url"], stream=stream)
    by_http = client.fetch(url=record["http_url"], stream=stream)

    assert by_s3["content"] == by_http["content"] == b"mwahaha".hex()
    iso = {"start_iso": "2015-03-20T00:00:00.000Z", "end_iso": None}
    assert by_http["metadata"] == record["metadata"] == {**by_s3["metadata"], **iso}


def test_upload_in_parts_is_ingested_and_comes_back_whole(
    client: Client, lake: Lake, tmp_path: Path
) -> None:
    content = os.urandom(1024) * (6 * 1024)
    big = tmp_path / "big.bin"
    big.write_bytes(content)
    given = fields()
    url = client.push(path=str(big), fields=given)

    reports = lake.ingest()  # moto tells of such a file twice

    assert {(one["status"], *one["urls"]) for one in reports} >= {("success", url)}
    (record,) = client.list_files(what=given["what"], start=T0, end=T0)
    assert record["size"] == len(content)
    for one in (record["url"], record["http_url"]):
        # As a stream: otherwise the client leaves a first answer of S3 unread, on which moto waits.
        assert bytes.fromhex(client.fetch(url=one, stream=True)["content"]) == content


def test_gzip_comes_unpacked_over_http_as_the_original_api_sent_it(
    client: Client, lake: Lake, tmp_path: Path
) -> None:
    packed = tmp_path / "a.log.gz"
    packed.write_bytes(gzip.compress(b"mwahaha"))
    given = fields()
    url = client.push(path=str(packed), fields=given)
    lake.ingest()

    (record,) = client.list_files(what=given["what"], start=T0, end=T0)

    assert bytes.fromhex(client.fetch(url=url)["content"]) == packed.read_bytes()
    assert bytes.fromhex(client.fetch(url=record["http_url"])["content"]) == b"mwahaha"


def test_client_follows_all_pages_and_sees_each_file_once(client: Client, lake: Lake) -> None:
    given = fields(work_id="big")
    metadata = {**given, "path": "/a", "hash": "0" * 32}
    records = [
        ArchiveRecord(
            url=f"{lake.storage}/{given['what']}-{number}/data",
            metadata=FileMetadata(
                {**metadata, "id": f"{given['what']}-{number}", "start": T0 + number}
                | {"end": T0 + number + 3 * DAY}
            ),
            create_time_ms=T0,
            size_bytes=0,
        )
        for number in range(250)
    ]
    open_index(lake.index).put(records)

    by_time = client.list_files(what=given["what"], start=T0, end=T0 + 9 * DAY)
    by_work = client.list_files(what=given["what"], work_id="big")

    expected = sorted(one.url for one in records)
    assert sorted(one["url"] for one in by_time) == expected
    assert sorted(one["url"] for one in by_work) == expected


def test_latest_is_the_latest_start_within_the_lookback(
    client: Client, lake: Lake, file: Path
) -> None:
    now = to_epoch_ms("now")
    given = fields()
    for start in (now - 2 * DAY, now - DAY, now - 20 * DAY):
        client.push(path=str(file), fields={**given, "start": start})
    old = fields(start=now - 20 * DAY)
    client.push(path=str(file), fields=old)
    lake.ingest()

    found = client.latest(what=given["what"], where="nebraska")

    assert found["metadata"]["start"] == now - DAY
    assert set(found) == {"url", "http_url", "metadata"}
    asked = {"what": old["what"], "where": "nebraska"}
    assert client.latest(**asked, lookback=20)["metadata"]["start"] == now - 20 * DAY
    with pytest.raises(DatalakeError, match=r"\(NoSuchFile\)") as error:
        client.latest(**asked, lookback=19)
    assert error.value.kind == "DatalakeHttpError"


@pytest.mark.parametrize(
    ("call", "arguments", "code"),
    [
        ("list_files", {"what": "log"}, "NoWorkInterval"),
        ("list_files", {"what": None}, "NoArgs"),
        ("list_files", {"what": None, "start": T0}, "NoWhat"),
        ("list_files", {"what": "log", "start": T0}, "InvalidWorkInterval"),
        ("list_files", {"what": "log", "start": T0, "end": T0 - 1}, "InvalidWorkInterval"),
        ("list_files", {"what": "log", "start": T0, "work_id": "w"}, "InvalidWorkInterval"),
        ("latest", {"what": "log", "where": "box", "lookback": "nine"}, "InvalidLookback"),
        ("latest", {"what": "log", "where": "nowhere"}, "NoSuchFile"),
    ],
)
def test_client_understands_every_error(
    client: Client, call: str, arguments: dict[str, Any], code: str
) -> None:
    with pytest.raises(DatalakeError, match=rf"\({code}\)$") as error:
        getattr(client, call)(**arguments)

    assert error.value.kind == "DatalakeHttpError"


def test_missing_file_is_an_error_that_the_client_understands(client: Client) -> None:
    with pytest.raises(DatalakeError, match=r"\(NoSuchFile\)$"):
        client.fetch(url=f"{client.http_url}/v0/archive/files/missing/data")


def test_client_writes_files_under_names_made_of_metadata(
    client: Client, lake: Lake, file: Path, tmp_path: Path
) -> None:
    given = fields()
    url = client.push(path=str(file), fields=given)
    lake.ingest()
    (record,) = client.list_files(what=given["what"], start=T0, end=T0)
    template = "{where}/{start_iso}-{end_iso}"

    for number, one in enumerate((url, record["http_url"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        name = client.fetch_to_filename(url=one, template=template, folder=str(folder))
        assert name == "nebraska/2015-03-20T00:00:00.000-None"
        assert (folder / name).read_bytes() == b"mwahaha"


@pytest.mark.parametrize("keys", ["id", "original"])
def test_file_that_lakebed_has_pushed_is_the_client_s_too(
    client: Client, lake: Lake, file: Path, keys: KeyForm
) -> None:
    given = fields(extra={"owner": "ops"})
    opened = lake.open()
    record = lakebed.Archive(opened.store, opened.index, keys=keys).push(file, **given)
    is_original = re.search(r"/[0-9a-f]-[a-z0-9_-]+/[a-z0-9_-]+/\d+/[0-9a-f]{32}-", record.url)
    assert (is_original is not None) == (keys == "original")

    (found,) = client.list_files(what=given["what"], start=T0, end=T0)

    assert (found["url"], found["metadata"]["owner"]) == (record.url, "ops")
    assert client.fetch(url=found["url"])["content"] == b"mwahaha".hex()
    assert client.fetch(url=found["http_url"])["content"] == b"mwahaha".hex()


@pytest.mark.parametrize("keys", ["id", "original"])
@pytest.mark.parametrize(
    "given", [{}, {"end": T0 + 3 * DAY}, {"work_id": "job-7"}, {"end": T0, "work_id": "job-8"}]
)
def test_records_of_a_file_are_those_that_datalake_makes_of_it(
    client: Client, lake: Lake, file: Path, keys: KeyForm, given: dict[str, Any]
) -> None:
    opened = lake.open()
    archive = lakebed.Archive(opened.store, opened.index, keys=keys)
    record = archive.push(file, **fields(**given))

    theirs = client.records(url=record.url)

    # Without a work id both have the word null and the id of the file.
    assert [dict(one) for one in record.to_documents()] == theirs


def test_files_of_a_directory_are_listed_and_fetched_over_http(
    client: Client, environment: dict[str, str], file: Path, tmp_path: Path
) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    archive.push(file, where="box", what="log", start=T0)

    with serving(["--storage", str(tmp_path / "raw")], environment, tmp_path / "log") as url:
        client.http_url = url
        (found,) = client.list_files(what="log", start=T0, end=T0)
        content = client.fetch(url=found["url"])["content"]

    assert found["url"] == found["http_url"]
    assert content == b"mwahaha".hex()


def test_token_goes_with_the_session_of_the_client(
    client: Client, lake: Lake, environment: dict[str, str], tmp_path: Path
) -> None:
    question = {"what": "log", "start": T0, "end": T0}
    environment = {**environment, "LAKEBED_ARCHIVE_TOKEN": "a-long-secret"}
    with serving([*lake.arguments, "-vv"], environment, tmp_path / "log") as url:
        client.http_url = url
        assert client.list_with_token(token="a-long-secret", **question) == []
        with pytest.raises(DatalakeError, match="Unauthorized"):
            client.list_files(**question)
        with pytest.raises(DatalakeError, match="Unauthorized"):
            client.list_with_token(token="a-wrong-secret", **question)

    log = (tmp_path / "log").read_text()
    assert "status=401" in log
    assert "secret" not in log


def test_command_line_of_datalake_does_it_all(
    lake: Lake, http_url: str, environment: dict[str, str], file: Path, tmp_path: Path
) -> None:
    known = {"DATALAKE_STORAGE_URL": lake.storage, "DATALAKE_HTTP_URL": http_url}

    def datalake(*arguments: str) -> str:
        done = subprocess.run(
            [BIN / "datalake", *arguments],
            env={**environment, **known},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    what = fields()["what"]
    of = ("--start", "2015-05-15", "--end", "2015-05-16", "--where", "box", "--what", what)
    url = datalake("push", *of, "--work-id", "job77", str(file)).split()[-1]
    lake.ingest()

    asked = ("list", what, "--work-id", "job77")
    http = datalake(*asked, "--format", "http")
    assert datalake("list", what, "--start", "2015-05-15", "--end", "2015-05-15T01:00:00") == url
    assert datalake(*asked) == url
    assert json.loads(datalake(*asked, "--format", "json"))["url"] == url
    assert "start: 2015-05-15T00:00:00+00:00" in datalake(*asked, "--format", "human")
    assert datalake("latest", what, "box", "--lookback", "30000") == url
    assert datalake("cat", url) == datalake("cat", http) == "mwahaha"
    datalake("fetch", http, "--filename-template", "out/{where}")
    assert (tmp_path / "out" / "box").read_bytes() == b"mwahaha"


def test_times_mean_the_same_to_both(client: Client) -> None:
    values = [
        "2015-03-20", "2015-12-27T11:01:20.954", "2015-12-21T09:11:14.08Z", "1426809600",
        1426809600123, 1426809600.25, 99999999999, 100000000000, "20/03/2015", "03/04/2015", "Fri Mar 20 00:00:00 UTC 2015",
        "9999-12-31T23:59:59.999Z", "0001-01-01", "2015-03-20T23:59.114Z", "10:30", "bxfl230",
        "nan", "2015-W12", "NOW", "now ", "today", "", " ", "2015-13-01", "2015-03-20 24:00:00",
        "99999-01-01", None, [], "2015-03-20T00:00:05:32.345Z",
    ]  # fmt: skip

    theirs = client.normalize_date(values=values)

    def ours(value: Any) -> Any:
        try:
            return to_epoch_ms(value)
        except InvalidInputError:
            return "InvalidDatalakeMetadata"

    assert dict(zip(map(repr, values), map(ours, values), strict=True)) == dict(
        zip(map(repr, values), theirs, strict=True)
    )
