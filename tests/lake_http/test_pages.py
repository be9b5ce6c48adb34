"""A lake and an archive over HTTP for browsers: what the pages tell, and what they let nobody do."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import hashlib
import http.client
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from asking import Client, shown
from shown_page import ShownPage

import lakebed
from lakebed import by
from lakebed.errors import InvalidInputError
from lakebed.web import create_app
from lakebed.web.routes import disposition

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"
SCHEMA = pa.schema([("day", pa.date32()), ("name", pa.string()), ("n", pa.int64())])
FORM = ("where", "sort", "order", "version", "rows", "columns")
HTML = b"<script>alert('mine')</script>"


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    repository = lakebed.open_repository(str(tmp_path_factory.mktemp("lake")))
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("day")], index=["n"]
    )
    dataset = repository.create("d", descriptor)
    for month in range(3):
        days = [dt.date(2013, 1, 1 + place % 5) for place in range(30)]
        rows = [{"day": day, "name": "x", "n": place} for place, day in enumerate(days)]
        dataset.append(rows, run=f"month-{month}")
    dataset.append([{"day": dt.date(2013, 1, 1), "name": HOSTILE, "n": 1}], run=HOSTILE)
    dataset.protections.add(version=2, reason=HOSTILE)
    repository.create("empty", lakebed.DatasetDescriptor(schema=SCHEMA))
    return repository


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    archive = lakebed.open_archive(str(tmp_path_factory.mktemp("raw")))

    def push(content: bytes, path: str, *, what: str = "log", **fields: object) -> None:
        given = {"where": "web1", "start": "2015-03-20", **fields}
        archive.push(io.BytesIO(content), path=path, what=what, **given)

    for number in range(130):
        work = "job" if number % 2 else None
        push(b"x" * number, f"/var/log/{number}.log", id=f"id-{number}", work_id=work)
    push(HTML, f"/a/{HOSTILE}.html", what="hostile", id="hostile", extra={"k": HOSTILE})
    push(b'{"n": 1}\n{"n": 2}\n', "/a/rows.jsonl", what="rows", id="rows")
    push(gzip.compress(b"hello", mtime=0), "/a/b.log.gz", what="gz", id="gz")
    return archive


@pytest.fixture(scope="module")
def ingested(repository, archive):
    repository.create("n", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    ingest = lakebed.Ingest(
        name="daily",
        into=f"{repository.uri}/n",
        source=lakebed.FromArchive(
            storage=archive.store.uri, what="rows", start="2015-03-20", end="2015-03-21"
        ),
        format="json",
    )
    ingest.run()
    return repository["n"]


@pytest.fixture(scope="module")
def client(repository, archive, ingested):
    return Client(create_app(repository, archive=archive))


def followed(client, *starts: str) -> dict[str, ShownPage]:
    """Follow every link from some pages on, and every link of those, but for other orders."""
    waiting, pages = list(starts), {}
    while waiting:
        address = waiting.pop()
        if address in pages:
            continue
        answer = client.get(address)
        assert answer.status == 200, address
        is_page = answer.headers["content-type"].startswith("text/html")
        pages[address] = ShownPage(answer.text if is_page else "")
        anchors = {link[1:] for link in pages[address].links if link.startswith("#")}
        assert anchors <= pages[address].ids, address
        waiting += set(pages[address].links) - {f"#{anchor}" for anchor in anchors}.union(
            pages[address].turns
        )
    return pages


SEARCH = "/archive?what=log&start=2015-03-20&end=2015-03-21"


def test_every_link_of_every_page_answers(client) -> None:
    pages = followed(
        client,
        *("/", SEARCH, "/datasets/d/plan?where=n+%3E+3", "/archive/files/rows"),
        "/archive?what=hostile&start=2015-03-20&end=now",
    )

    assert {
        "/datasets/d",
        "/datasets/n",
        "/archive/files/hostile",
        "/archive/contents/hostile",
    } <= {*pages}
    assert len(pages) > 260  # 130 records of two pages, each with its content


def test_lake_and_dataset_tell_what_the_repository_does(client, repository) -> None:
    lake = shown(client, "/").rows("Datasets")
    dataset = repository["d"]
    page = shown(client, "/datasets/d")

    assert [row["dataset"] for row in lake] == repository.list()
    for row in lake:
        files = repository[row["dataset"]].files()
        assert row["rows"] == f"{sum(file.row_count for file in files):,}"
        assert row["bytes"] == f"{sum(file.size_bytes for file in files):,}"
        assert int(row["files"]) == len(files)
    assert int(page.fact("version")) == dataset.version
    assert [int(row["version"]) for row in page.rows("Commits")] == [
        commit.version for commit in reversed(dataset.history())
    ]
    assert {row["partition"]: int(row["rows"]) for row in page.rows("Partitions")} == {
        partition.path: partition.row_count for partition in dataset.inspect.partitions()
    }


def test_pages_are_live(tmp_path) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))
    client = Client(create_app(repository))

    before = shown(client, "/datasets/d").fact("rows")
    dataset.append([{"day": None, "name": "a", "n": 1}])

    assert (before, shown(client, "/datasets/d").fact("rows")) == ("0", "1")


def test_plan_is_that_of_a_predicate_typed_into_the_form(client, repository) -> None:
    explanation = repository["d"].where("day = '2013-01-02' and n > 3").plan().explain()

    empty = shown(client, "/datasets/d/plan")
    page = shown(client, f"/datasets/d/plan?where={quote(explanation.predicate)}")
    told = {row["outcome"]: int(row["files"]) for row in page.rows("Files")}

    assert empty.inputs == {"where": ""}
    assert empty.tables == {}
    assert page.inputs == {"where": explanation.predicate}
    assert told["kept"] == explanation.kept
    assert told["dropped by partition"] == explanation.dropped_by_partition > 0


@pytest.mark.parametrize(
    "where",
    [
        "nobody = 3",
        "n >",
        "n = 'a'",
        HOSTILE,
        "\x00",
        pytest.param("(" * 500 + "n = 1" + ")" * 500, id="deep"),
    ],
)
def test_predicate_that_is_none_is_told_on_the_page_and_stays_in_the_form(client, where) -> None:
    page = shown(client, f"/datasets/d/plan?where={quote(where)}", 400)

    assert page.inputs["where"].replace("\ufffd", "\x00") == where
    assert "script" not in page.elements


def test_error_of_a_predicate_comes_with_its_hint(client, repository) -> None:
    with pytest.raises(InvalidInputError) as told:
        repository["d"].where("nam = 'x'").plan()

    text = " ".join(shown(client, "/datasets/d/plan?where=nam+%3D+'x'", 400).text.split())

    assert told.value.hint
    for word in f"{told.value.message} {told.value.hint}".split():
        assert word in text


QUESTIONS = [
    {"what": "log", "start": "2015-03-20", "end": "2015-03-21"},
    {"what": "log", "start": "2015-03-20", "end": "now", "where": "web1"},
    {"what": "log", "work_id": "job"},
    {"what": "log", "work_id": "job", "where": "nowhere"},
    {"what": "hostile", "start": "2015-03-20", "end": "2015-03-20", "where": "web1"},
    {"what": HOSTILE, "start": "2015-03-20", "end": "2015-03-20", "where": HOSTILE},
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_search_finds_what_list_does_over_all_pages(client, archive, question) -> None:
    address: str | None = "/archive?" + "&".join(
        f"{name}={quote(question.get(name, ''))}"
        for name in ("what", "where", "work_id", "start", "end")
    )
    ids, sizes = [], []
    while address is not None:
        page = shown(client, address)
        (caption,) = page.tables
        rows = [] if caption.endswith(": 0") else page.rows(caption)
        ids += [link.rpartition("/")[2] for link in page.links if "/files/" in link]
        sizes += [int(row["bytes"]) for row in rows]
        address = next((link for link in page.links if "cursor=" in link), None)

    records = list(archive.list(**question))
    assert ids == [record.id for record in records]
    assert sizes == [record.size_bytes for record in records]


@pytest.mark.parametrize(
    "question",
    ["what=log", "where=web1", "what=log&start=x&end=now", "what=log&work_id=a&cursor=b"],
)
def test_question_that_is_none_is_told_with_its_hint(client, question) -> None:
    page = shown(client, f"/archive?{question}", 400)

    assert page.tables == {}
    assert re.search(r"has no|has neither|not a time|no cursor|is no|'x'", page.text)


def test_record_tells_its_metadata_and_what_became_of_the_file(client, archive, ingested) -> None:
    record = archive.record("rows")
    (source,) = ingested.sources.list()
    (batch,) = ingested.batches()

    page = shown(client, "/archive/files/rows")
    (use,) = page.rows("Uses in datasets")

    assert page.fact("hash") == record.hash
    assert page.fact("bytes") == str(record.size_bytes)
    assert use == {
        "dataset": "n",
        "batch": str(batch.batch_id),
        "version": str(batch.version),
        "batch is live": "yes",
        "run": "daily",
        "rows": str(source.row_count),
        "rejected": "0",
    }
    assert "/archive/files/rows" in shown(client, "/datasets/n").links


def test_download_is_the_content_and_never_a_page_of_ours(client) -> None:
    answer = client.get("/archive/contents/hostile")

    assert answer.body == HTML
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith('attachment; filename="')
    assert "<" not in answer.headers["content-disposition"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    head = client.ask("/archive/contents/hostile", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(HTML))
    part = client.get("/archive/contents/hostile", headers={"range": "bytes=1-3"})
    assert (part.status, part.body) == (206, HTML[1:4])


def test_file_that_is_called_gz_arrives_as_it_is(client) -> None:
    answer = client.get("/archive/contents/gz")

    assert "content-encoding" not in answer.headers
    assert gzip.decompress(answer.body) == b"hello"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/b.log", "b.log"),
        ('/a/x"\r\nset-cookie: a=b', "x___set-cookie__a_b"),
        ("/a/ü\u202e.exe", "__.exe"),
        ("C:\\a\\.bashrc", "bashrc"),
        ("/a/", "file"),
    ],
)
def test_name_of_a_download_is_safe(path, name) -> None:
    header = disposition(path)

    assert f'filename="{name}"' in header
    assert header.isascii()
    assert header.isprintable()


def test_whatever_is_held_stays_text(client) -> None:
    pages = [
        "/",
        "/datasets/d",
        "/archive/files/hostile",
        f"/archive?what={quote(HOSTILE)}&work_id=x",
        "/datasets/d/rows?version=4&rows=200",
        "/datasets/d/compare?from=3&to=4",
        f"/datasets/d/rows?{'&'.join(f'{name}={quote(HOSTILE)}' for name in FORM)}",
        f"/datasets/d/compare?from={quote(HOSTILE)}&to={quote(HOSTILE)}",
        next(
            link for link in shown(client, "/datasets/d/rows?version=4").links if "/file?" in link
        ),
    ]
    for address in [*pages, f"/datasets/d/plan?where=name+%3D+{quote(repr(HOSTILE))}"]:
        answer = client.get(address)
        page = ShownPage(answer.text)
        assert not {"script", "img"} & page.elements, address
        assert "<script" not in answer.text
    assert shown(client, "/datasets/d").rows("Protected from cleanup")[0]["reason"] == HOSTILE
    assert shown(client, "/archive/files/hostile").rows("Further metadata") == [
        {"name": "k", "value": HOSTILE}
    ]


@pytest.mark.parametrize("address", ["/", "/datasets/d", "/archive", "/datasets/x", "/nothing"])
def test_page_may_load_nothing_and_run_nothing(client, address) -> None:
    answer = client.get(address)

    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", answer.text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("address", ["/datasets/d", SEARCH, "/archive/contents/hostile"])
def test_what_everybody_may_read_is_not_sent_again_to_who_has_it(client, address) -> None:
    first = client.get(address)
    etag = first.headers["etag"]

    assert first.headers["cache-control"] == "private, no-cache"
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = client.get(address, headers={"if-none-match": known, "range": "bytes=0-0"})
        assert (again.status, again.body) == (304, b""), known
        assert again.headers["etag"] == etag
        assert again.headers["content-security-policy"]
    other = client.get(address, headers={"if-none-match": '"other"'})
    assert (other.status, other.body) == (200, first.body)


def test_page_that_has_changed_is_sent_again(tmp_path) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))
    client = Client(create_app(repository))
    known = {"if-none-match": client.get("/datasets/d").headers["etag"]}

    same = client.get("/datasets/d", headers=known).status
    dataset.append([{"day": None, "name": "a", "n": 1}])

    assert (same, client.get("/datasets/d", headers=known).status) == (304, 200)


@pytest.mark.parametrize("address", ["/", "/datasets/d", SEARCH, "/archive/contents/hostile"])
def test_nothing_behind_a_token_is_kept(repository, archive, address) -> None:
    client = Client(create_app(repository, archive=archive, token="s3cret-token"))
    authorized = {"authorization": "Bearer s3cret-token"}

    answer = client.get(address, headers=authorized)

    assert answer.status == 200
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "/datasets/none",
        "/datasets/..",
        "/datasets/%2e%2e",
        "/datasets/..%2fraw",
        "/datasets/d%2f..%2fd",
        "/datasets/.lakebed",
        "/datasets/d/",
        "/datasets/a%00b",
        "/archive/files/none",
        "/archive/files/../../etc/passwd",
        "/archive/files/..%2f..%2fetc%2fpasswd",
        "/archive/files/%2Fetc%2Fpasswd",
        "/archive/files/file:%2F%2F%2Fetc%2Fpasswd",
        "/archive/contents/..%2frows%2fdata",
        "/archive/contents/rows%2fdata",
        "/archive/contents/%ff",
        "/?page=0",
        "/?page=2",
        "/nothing",
        "*",
        "//v1",
    ],
)
def test_no_path_leads_elsewhere(client, path) -> None:
    answer = client.get(path)

    assert answer.status == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "root:" not in answer.text


def test_link_out_of_the_archive_is_not_followed(tmp_path) -> None:
    archive = lakebed.open_archive(str(tmp_path / "raw"))
    archive.push(io.BytesIO(b"x"), path="/a", where="w", what="log", start="2015-03-20", id="a")
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "raw" / "a" / "data").unlink()
    (tmp_path / "raw" / "a" / "data").symlink_to(tmp_path / "secret")
    client = Client(create_app(None, archive=archive))

    for path in ("/archive/files/a", "/archive/contents/a"):
        answer = client.get(path)
        assert answer.status == 503
        assert "secret" not in answer.text


def test_only_get_and_head_are_answered(client) -> None:
    for address in ("/", "/datasets/d", "/archive", "/v0/archive/files/rows/data"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = client.ask(address, method)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        if not address.startswith("/v0"):
            assert client.ask(address, "HEAD").status == 200


def test_damaged_dataset_has_a_page_that_tells_and_the_others_are_there(
    repository, tmp_path
) -> None:
    copy = tmp_path / "lake"
    shutil.copytree(repository.uri.removeprefix("file://"), copy)
    for segment in (copy / "d" / "history").iterdir():
        segment.write_bytes(b"damaged")
    client = Client(create_app(lakebed.open_repository(str(copy))))

    lake = shown(client, "/")
    page = shown(client, "/datasets/d", 500)

    assert [row["dataset"] for row in lake.rows("Not read")] == ["d"]
    assert "empty" in [row["dataset"] for row in lake.rows("Datasets")]
    assert "cannot be read" in page.text or "damaged" in page.text.lower()


def test_lake_of_many_datasets_is_told_page_by_page(tmp_path) -> None:
    repository = lakebed.open_repository("memory://many-pages")
    for number in range(53):
        repository.create(f"d{number:02}", lakebed.DatasetDescriptor(schema=SCHEMA))
    client = Client(create_app(repository))

    first, second = shown(client, "/"), shown(client, "/?page=2")

    told = [row["dataset"] for page in (first, second) for row in page.rows("Datasets")]
    assert told == repository.list()
    assert "/?page=2" in first.links
    assert "Page 2 of 2" in second.text


def test_one_dataset_can_be_served_alone(repository) -> None:
    client = Client(create_app(repository, name="d"))

    assert [row["dataset"] for row in shown(client, "/").rows("Datasets")] == ["d"]
    assert client.get("/datasets/d").status == 200
    assert client.get("/datasets/empty").status == 404
    assert client.get("/datasets/empty/plan").status == 404
    assert client.get("/archive").status == 404


def test_archive_can_be_served_alone_and_its_clients_are_answered_beside(client, archive) -> None:
    alone = Client(create_app(None, archive=archive))

    assert "Archive" in shown(alone, "/").text  # led there
    for asked in (alone, client):
        question = "/v0/archive/files/?what=rows&start=2015-03-20&end=now"
        (record,) = json.loads(asked.get(question).body)["records"]
        assert asked.get(urlsplit(record["http_url"]).path).body == b'{"n": 1}\n{"n": 2}\n'
        answer = asked.get("/", headers={"accept": "application/json"})
        assert json.loads(answer.body)["openapi"]
        assert json.loads(asked.get("/v0/nothing").body)["code"] == "NoSuchEndpoint"
        assert asked.get("/health/").text == "{}"


def test_token_is_asked_for_as_password_or_bearer(repository, archive) -> None:
    secret = "s3cret-token"
    client = Client(create_app(repository, archive=archive, token=secret))

    def basic(text: str) -> str:
        return "Basic " + base64.b64encode(text.encode()).decode()

    for address in ("/", "/datasets/d", "/archive", "/v0/archive/", "/archive/contents/rows"):
        for given in (
            *("", f"Basic {secret}", "Basic !", "Bearer s3cret", basic(f"me:{secret}x")),
            *(basic(secret), basic(f"{secret}:"), basic(":"), "Basic ü"),
        ):
            answer = client.get(address, headers={"authorization": given.encode("latin-1")})
            assert answer.status == 401, given
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
            assert secret not in answer.text
        for given in (basic(f"me:{secret}"), basic(f":{secret}"), f"Bearer {secret}"):
            assert client.get(address, headers={"authorization": given}).status == 200
    assert client.get("/health").status == 200
    assert client.get(f"/?token={secret}").status == 401


def test_server_of_this_machine_answers_for_its_own_names_only(repository) -> None:
    app = create_app(repository, hosts=frozenset({"127.0.0.1", "localhost", "::1"}))

    for name, status in {
        "127.0.0.1:8080": 200,
        "localhost": 200,
        "[::1]:80": 200,
        "evil.example:8080": 421,
        "127.0.0.1.evil.example": 421,
        "[": 421,
    }.items():
        answer = Client(app).get("/", headers={"host": name})
        assert answer.status == status, name


def test_addresses_follow_the_path_of_a_proxy(repository, archive) -> None:
    app = create_app(repository, archive=archive, public_url="https://example.org/lake/")

    page = shown(Client(app), "/")

    assert page.links[0] == "/lake/archive"
    assert "/lake/datasets/d" in page.links
    assert all(link.startswith("/lake/") for link in page.links)


def test_nothing_to_serve_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="nothing to serve"):
        create_app(None)


def test_command_serves_a_lake_on_a_free_port_until_interrupted(repository, archive) -> None:
    command = [
        *(sys.executable, "-m", "lakebed", "serve", repository.uri.removeprefix("file://") + "/d"),
        *("--archive", archive.store.uri, "--port", "0", "-o", "json"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            told = ""
            while not (url := re.search(r"http://127\.0\.0\.1:\d+", told)):
                line = process.stdout.readline()
                assert line, "the server ended"
                told += line
            for path, status in {"/": 200, "/datasets/d": 200, "/datasets/empty": 404}.items():
                connection = http.client.HTTPConnection(urlsplit(url[0]).netloc, timeout=30)
                connection.request("GET", path)
                assert connection.getresponse().status == status
                connection.close()
            connection = http.client.HTTPConnection(urlsplit(url[0]).netloc, timeout=30)
            connection.request("GET", "/", headers={"Host": "evil.example"})
            assert connection.getresponse().status == 421
            connection.close()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def test_index_without_archive_is_refused(repository, cli_runner) -> None:
    answer = cli_runner("serve", repository.uri, "--index", "sqlite:///x")

    assert answer.exit_code == 2
    assert "--archive" in answer.output


@pytest.fixture
def cli_runner():
    import click.testing

    from lakebed.cli import main

    return lambda *words: click.testing.CliRunner().invoke(main, list(words))
