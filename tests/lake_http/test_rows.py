"""Rows in the browser: first rows, orders, versions, comparisons, data files and downloads."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import http.client
import io
import json
import socket
import time
from urllib.parse import quote, unquote_plus

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from asking import Client, shown
from click.testing import CliRunner
from dimension_lake import new_store, three
from inside import state_of, store_of

import lakebed
from lakebed import by
from lakebed.cli import main
from lakebed.web import create_app, downloads, first_rows, limits, routes
from lakebed.web.comparison import condition_of
from lakebed.web.downloads import KINDS

HOSTILE = "<script>alert('x')</script>"
SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("name", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
    ]
)


def row(number: int) -> dict:
    return {
        "day": dt.date(2013, 1, 1 + number % 3),
        "name": None if number % 7 == 0 else f"näme, {number:03}",
        "n": number * 37 % 100,
        "x": float("nan") if number % 11 == 0 else number / 8,
        "price": decimal.Decimal(number) / 4,
        "at": dt.datetime(2013, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=number),
        "tags": [f"t{number}", HOSTILE] if number % 2 else None,
        "raw": bytes([number % 256]),
    }


@pytest.fixture(scope="module", params=["local", "memory"])
def repository(request, tmp_path_factory):
    place = (
        str(tmp_path_factory.mktemp("lake")) if request.param == "local" else "memory://seen-rows"
    )
    repository = lakebed.open_repository(place)
    dataset = repository.create(
        "d", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("day")])
    )
    for part in range(4):
        dataset.append([row(number) for number in range(part * 60, part * 60 + 60)], run=f"r{part}")
    dataset.delete(dataset.where("n = 37"))
    repository.create("empty", lakebed.DatasetDescriptor(schema=SCHEMA))
    return repository


@pytest.fixture(scope="module")
def client(repository):
    return Client(create_app(repository))


def data_rows(page) -> list[dict[str, str]]:
    """Return the rows of the only table of data, without their numbers."""
    (caption,) = [each for each in page.tables if page.tables[each][0][0] == "row"]
    return [
        {name.rstrip(" ↑↓"): value for name, value in each.items() if name != "row"}
        for each in page.rows(caption)
    ]


def test_page_shows_the_first_rows_and_how_many_there_are(client, repository) -> None:
    dataset = repository["d"]

    page = shown(client, "/datasets/d/rows")

    known = dataset.arrow(["n", "price"]).to_pylist()
    assert f"50 of {dataset.count()} rows" in page.text
    assert [each["n"] for each in data_rows(page)] == [str(each["n"]) for each in known[:50]]
    assert [each["price"] for each in data_rows(page)] == [
        str(each["price"]) for each in known[:50]
    ]


@pytest.mark.parametrize("order", ["", "desc"])
@pytest.mark.parametrize("column", ["day", "name", "n", "x", "price", "at", "batch_id"])
def test_rows_are_sorted_over_all_files_with_null_last(client, repository, column, order) -> None:
    rows = repository["d"].where("n > 10").arrow([*SCHEMA.names, "batch_id"])
    direction = "descending" if order else "ascending"
    wanted = rows.take(pc.sort_indices(rows, sort_keys=[(column, direction, "at_end")]))

    address = f"/datasets/d/rows?where=n+%3E+10&sort={column}&order={order}&rows=200"
    page = shown(client, address + f"&columns=n,{column}" * (column != "n"))

    texts = [each[column] for each in data_rows(page)]
    assert texts == [text(value) for value in wanted.column(column).to_pylist()[:200]]
    assert 'aria-sort="' + direction in client.get(address).text or column == "batch_id"


def text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, float) and value != value:
        return "NaN"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat() + "Z"
    return str(value)


def test_head_of_a_column_leads_to_its_order_and_then_to_the_opposite(client) -> None:
    first = shown(client, "/datasets/d/rows?where=n+%3E+10")
    (by_n,) = [link for link in first.turns if "sort=n" in link and "name" not in link]
    second = shown(client, by_n)
    (back,) = [link for link in second.turns if "sort=n" in link and "name" not in link]

    told = [int(each["n"]) for each in data_rows(shown(client, back))]
    assert told == sorted(told, reverse=True)
    assert "where=n%20%3E%2010" in back
    assert {link.partition("sort=")[2] for link in first.turns} == {*SCHEMA.names} - {"tags"}


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("sort=tags", ["cannot be sorted", "tags"]),
        ("sort=nam", ["nam", "Did you mean", "name"]),
        ("sort=n&order=up", ["no direction", "up"]),
        ("columns=n,nam", ["nam", "Did you mean"]),
        ("columns=n,n", ["2 times"]),
        ("columns=,", ["''"]),
        ("rows=0", ["number of rows"]),
        ("rows=201", ["201", "1 to 200"]),
        ("rows=ten", ["ten", "1 to 200"]),
        ("version=x", ["not a version"]),
        ("version=-1", ["not a version"]),
        ("where=nam+%3D+1", ["nam", "Did you mean"]),
        ("where=" + quote(HOSTILE), []),
    ],
)
def test_question_that_cannot_be_answered_says_why_and_stays_in_the_form(
    client, question, words
) -> None:
    page = shown(client, f"/datasets/d/rows?{question}", 400)

    for word in words:
        assert word in page.text
    assert "script" not in page.elements
    assert page.inputs["where"] == unquote_plus(question.partition("where=")[2])
    assert client.get(f"/datasets/d/download?{question}").status == 400


def test_version_is_picked_and_an_unknown_one_is_not_found(client, repository) -> None:
    old = shown(client, "/datasets/d/rows?version=2&rows=200")
    missing = shown(client, "/datasets/d/rows?version=99", 404)

    assert "Version 2" in old.text
    assert f"\n{repository['d'].at(version=2).count()} rows" in "\n".join(["", *old.tables])
    assert "99" in missing.text
    assert "1: append of r0" in missing.text  # to choose from
    assert "where" in missing.inputs


def test_commits_of_a_dataset_lead_to_its_versions(client, repository) -> None:
    page = shown(client, "/datasets/d")

    assert "/datasets/d/rows?version=2" in page.links
    assert page.rows("First rows of d: 5 of " + f"{repository['d'].count()} rows")


def test_null_nan_nested_and_bytes_are_told_apart(tmp_path) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    schema = pa.schema(
        [
            ("t", pa.string()),
            ("x", pa.float64()),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("s", pa.struct([("a", pa.int64())])),
            ("b", pa.binary()),
            ("d", pa.date32()),
            ("flag", pa.bool_()),
        ]
    )
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    far = pa.array([2**31 - 1000, None, None], pa.int32()).cast(pa.date32())
    dataset.append(
        pa.table(
            {
                "t": ["null", None, ""],
                "x": [float("nan"), None, float("inf")],
                "m": pa.array([[("k", 1)], None, []], schema.field("m").type),
                "s": [{"a": 1}, None, {"a": None}],
                "b": [b"\xff", None, b""],
                "d": far,
                "flag": [True, None, False],
            },
            schema=schema,
        )
    )
    client = Client(create_app(repository))

    first, second, third = data_rows(shown(client, "/datasets/d/rows"))

    assert first["m"] == '{"k": 1}'
    assert first["s"] == '{"a": 1}'
    assert (first["t"], first["x"], first["b"], first["flag"]) == ("null", "NaN", "/w==", "true")
    assert first["d"] not in ("", "null")  # beyond the years that Python knows
    assert set(second.values()) == {"null"}
    assert (third["t"], third["x"], third["m"]) == ("", "Infinity", "{}")
    assert client.get("/datasets/d/rows").text.count("<i>null</i>") == 8  # and a text null


def test_comparison_tells_rows_partitions_and_commits(client, repository) -> None:
    diff = repository["d"].diff(4, 5)
    rows = diff.rows(["n", "name"]).to_pylist()

    page = shown(client, "/datasets/d/compare?from=4&to=5")

    assert {each["operation"] for each in rows} == {"removed"}
    assert [(each["n"], each["name"]) for each in page.rows(f"Rows removed: {len(rows)}")] == [
        (str(each["n"]), text(each["name"])) for each in rows
    ]
    assert page.fact("files added") == str(len(diff.files_added))
    assert [each["partition"] for each in page.rows("Partitions that differ")] == [
        each.path
        for each in sorted(diff.partitions, key=lambda e: -(e.files_added + e.files_removed))
    ]
    assert [each["version"] for each in page.rows("Commits between the versions")] == ["5"]


def test_comparison_of_added_rows_is_narrowed_by_a_condition(client) -> None:
    page = shown(client, "/datasets/d/compare?from=0&to=4&where=n+%3D+37")
    back = shown(client, "/datasets/d/compare?from=4&to=0&where=n+%3D+37")

    (added,) = [caption for caption in page.tables if caption.startswith("Rows added: ")]
    assert {each["n"] for each in page.rows(added)} == {"37"}
    assert added.replace("added", "removed") in back.tables


def test_comparison_that_is_asked_for_first_offers_the_last_commit(client) -> None:
    page = shown(client, "/datasets/d/compare")

    assert page.tables == {}
    assert shown(client, "/datasets/empty/compare").tables == {}
    assert (
        "Both versions have the same rows" in shown(client, "/datasets/d/compare?from=5&to=5").text
    )


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("from=x&to=2", 400),
        ("from=1&to=99", 404),
        ("from=1&to=2&where=nam+%3D+1", 400),
        ("from=1&to=2&where=" + quote(HOSTILE), 400),
    ],
)
def test_comparison_that_cannot_be_made_says_why(client, question, status) -> None:
    page = shown(client, f"/datasets/d/compare?{question}", status)

    assert "where" in page.inputs
    assert "script" not in page.elements


def test_comparison_across_other_levels_of_directories_links_to_no_partition() -> None:
    dataset = three(new_store())
    dimensions = '{"version": 1, "dimensions": [{"field_name": "n", "allowed_values": "*"}]}'
    dataset.dimensions.promote(lakebed.DimensionSchema.from_json(dimensions), reroute=True)

    client = Client(create_app(lakebed.Repository(store_of(dataset))))
    page = shown(client, "/datasets/d/compare?from=3&to=4")

    assert "Both versions have the same rows" in page.text
    assert "n_dimension=0" in page.text
    assert not [link for link in page.links if "compare" in link and "where=" in link]


def test_comparison_beyond_the_limit_tells_partitions_and_each_can_be_compared(
    client, monkeypatch
) -> None:
    monkeypatch.setattr("lakebed.web.comparison.MAX_COMPARED_ROWS", 100)

    page = shown(client, "/datasets/d/compare?from=0&to=4")
    links = [link for link in page.links if "compare" in link and "where=day" in link]
    narrow = [shown(client, link) for link in links]

    assert "more rows than a page compares" in page.text
    assert len(links) == 3
    assert all("Rows added: 80" in " ".join(each.tables) for each in narrow)


def test_condition_of_a_partition_selects_it(repository) -> None:
    dataset = repository["d"]
    levels = state_of(dataset).layout.partition_level_types

    for partition in dataset.inspect.partitions():
        assert dataset.where(condition_of(partition.path, levels)).count() == partition.row_count


def test_row_leads_to_its_file_with_batch_run_and_raw_files(tmp_path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for name in ("a", "b"):
        (raw / f"{name}.jsonl").write_text(f'{{"name": "{name}"}}\n{{"name": "{name}{name}"}}\n')
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    schema = pa.schema([("name", pa.string())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    lakebed.Ingest(
        name="daily",
        into=f"{repository.uri}/d",
        source=lakebed.FromFiles(paths=[f"{raw}/*.jsonl"]),
        format="json",
    ).run()
    client = Client(create_app(repository))

    links = [link for link in shown(client, "/datasets/d/rows").links if "/file?" in link]
    page = shown(client, links[0])

    (file,) = dataset.files()
    assert page.fact("batch") == str(file.batch_id)
    assert page.fact("run of the batch") == "daily"
    assert page.fact("added in version").startswith("1, ingest")
    assert page.fact("live") == "yes"
    told = {
        each["raw file"].rpartition("/")[2]: each["rows in this file"]
        for each in page.rows("Raw files of its rows")
    }
    assert told == {"a.jsonl": "2", "b.jsonl": "2"}
    assert len(page.rows("First rows of the file: 4 rows")) == 4


def test_file_of_an_old_version_says_when_it_went(client, repository) -> None:
    dataset = repository["d"]
    key = dataset.history()[-1].files_removed[0]

    page = shown(client, f"/datasets/d/file?key={quote(key, safe='')}")

    assert page.fact("live") == "no"
    assert page.fact("removed in version").startswith("5, delete")
    assert page.fact("run of the rows").startswith("r")


@pytest.mark.parametrize(
    "key",
    ["", "x", "../../etc/passwd", "/etc/passwd", "d/data/../../d", "\x00", HOSTILE, "d" * 5000],
)
def test_file_that_the_dataset_does_not_have_is_not_found(client, key) -> None:
    page = shown(client, f"/datasets/d/file?key={quote(key, safe='')}", 404)

    assert "has no data file" in page.text
    assert "root:" not in page.text
    assert "script" not in page.elements


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("where", ["", "n > 30", "name is null"])
def test_download_of_all_rows_is_what_the_command_line_prints(
    client, repository, kind, where
) -> None:
    address = repository.uri.removeprefix("file://") + "/d"
    command = ["query", address, "-o", kind, *(["--where", where] if where else [])]

    answer = client.get(f"/datasets/d/download?format={kind}&which=all&where={quote(where)}")

    assert answer.text == CliRunner().invoke(main, command).stdout
    assert answer.headers["content-type"].partition(";")[0] == KINDS[kind].media_type
    assert answer.headers["content-disposition"].startswith(f'attachment; filename="d-v5.{kind}"')
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_download_of_parquet_keeps_types_and_rows(client, repository) -> None:
    answer = client.get("/datasets/d/download?format=parquet&which=all&where=n+%3E+30&version=4")

    table = pq.read_table(io.BytesIO(answer.body))
    wanted = repository["d"].at(version=4).where("n > 30").arrow()
    assert table.schema.equals(wanted.schema)
    assert table.drop_columns("x").equals(wanted.drop_columns("x"))  # NaN is not equal to NaN


def test_download_of_the_rows_shown_is_in_their_order(client) -> None:
    question = "sort=n&order=desc&rows=20&columns=n,name&where=n+%3C+50"
    page = shown(client, f"/datasets/d/rows?{question}")

    answer = client.get(f"/datasets/d/download?format=jsonl&{question}")

    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [{k: text(v) for k, v in each.items()} for each in lines] == data_rows(page)


def test_form_of_the_download_asks_for_what_the_page_shows(client) -> None:
    page = shown(client, "/datasets/d/rows?where=n+%3E+3&sort=n&order=desc&version=4")

    assert (page.inputs["where"], page.inputs["sort"]) == ("n > 3", "n")
    assert (page.inputs["order"], page.inputs["version"]) == ("desc", "4")
    assert "/datasets/d/download" in page.actions


@pytest.mark.parametrize(
    ("question", "words", "status"),
    [
        ("format=xlsx", "no download in the format 'xlsx'", 400),
        ("which=some", "no download of the rows 'some'", 400),
        ("where=nam+%3D+1", "Did you mean 'name'?", 400),
        ("version=99", "99", 404),
    ],
)
def test_download_that_cannot_be_made_says_why(client, question, words, status) -> None:
    assert words in shown(client, f"/datasets/d/download?{question}", status).text
    assert client.get(f"/datasets/none/download?{question}").status in (400, 404)


def test_head_of_a_download_reads_no_rows(client) -> None:
    answer = client.ask("/datasets/d/download?which=all&format=parquet", "HEAD")

    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize("kind", [*KINDS])
def test_empty_dataset_has_empty_pages_and_downloads(client, kind) -> None:
    page = shown(client, "/datasets/empty/rows")
    answer = client.get(f"/datasets/empty/download?which=all&format={kind}")

    assert "0 rows" in page.text
    assert answer.status == 200
    if kind == "parquet":
        assert pq.read_table(io.BytesIO(answer.body)).schema.equals(SCHEMA)
    else:
        assert answer.text == (",".join(SCHEMA.names) + "\n" if kind == "csv" else "")


@pytest.mark.parametrize("kind", [*KINDS])
def test_download_is_made_while_it_is_sent(kind) -> None:
    read = 0
    batch = pa.record_batch({"n": range(50_000 if kind == "parquet" else 5_000)})

    def batches():
        nonlocal read
        for _ in range(100):
            read += 1
            yield batch

    reader = pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())
    pieces = KINDS[kind].pieces(reader)
    sizes = [len(next(pieces)) for _ in range(5)]

    assert read <= 20
    assert max(sizes) < 4 << 20
    assert sum(map(len, pieces)) > 1 << 20
    assert read == 100


def lake_with_damage(tmp_path, number: int, damage) -> lakebed.Repository:
    """Return a lake of one dataset, one of whose two files is damaged."""
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA))
    for part in range(2):
        dataset.append([row(number) for number in range(part, part + 40)])
    damaged = tmp_path / "lake" / sorted(file.key for file in dataset.files())[number]
    damaged.write_bytes(damage(damaged.read_bytes()))
    return repository


@pytest.mark.parametrize("number", [0, 1])
def test_damaged_file_has_a_page_and_one_line_in_the_log(tmp_path, caplog, number) -> None:
    repository = lake_with_damage(tmp_path, number, lambda whole: whole[:-200] + b"x" * 200)
    client = Client(create_app(repository))
    pages = [
        "rows", "rows?sort=n", "rows?where=x > 6", "download", "download?which=all",
        "download?which=all&format=jsonl", "download?which=all&format=parquet",
    ]  # fmt: skip

    for page in pages:
        caplog.clear()

        answer = shown(client, f"/datasets/d/{quote(page, safe='?=&')}", 500)

        assert "damaged" in answer.text, page
        assert "check --deep" in answer.text, page
        (record,) = caplog.records
        assert "is damaged" in record.getMessage()
        assert record.exc_info is None

    # The page of the dataset shows rows of the first file.
    assert ("cannot be read" in shown(client, "/datasets/d").text) == (number == 0)
    assert client.get("/health").status == 200


def test_download_is_cut_off_at_a_damaged_file(tmp_path) -> None:
    def damage(whole: bytes) -> bytes:
        return whole[:100] + bytes([whole[100] ^ 1]) + whole[101:]

    client = Client(create_app(lake_with_damage(tmp_path, 1, damage)))

    with pytest.raises(http.client.IncompleteRead):
        client.get("/datasets/d/download?which=all")

    assert client.get("/health").status == 200


def test_no_more_downloads_are_sent_at_once_than_may_be(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(routes, "MAX_DOWNLOADS", 2)
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create(
        "d", lakebed.DatasetDescriptor(schema=pa.schema([("t", pa.string())]))
    )
    dataset.append(pa.table({"t": ["x" * 1000] * 100_000}))  # more than sockets hold
    client = Client(create_app(repository))

    with contextlib.ExitStack() as stack:
        for _ in range(2):
            begun(stack, client)
        refused = shown_busy(client)
    freed = wait_for(lambda: client.ask("/datasets/d/download?which=all", "GET").status == 200)

    assert refused.headers["retry-after"] == "5"
    assert "as many rows as it may" in refused.text
    assert freed


def test_download_that_its_client_does_not_take_ends(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(routes, "MAX_DOWNLOADS", 1)
    monkeypatch.setattr(downloads, "STALLED_SECONDS", 0.5)
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    dataset = repository.create(
        "d", lakebed.DatasetDescriptor(schema=pa.schema([("t", pa.string())]))
    )
    dataset.append(pa.table({"t": ["x" * 1000] * 100_000}))
    client = Client(create_app(repository))

    with contextlib.ExitStack() as stack:
        begun(stack, client)
        assert client.get("/datasets/d/download?which=all").status == 503
        # The first client still holds its connection, and takes nothing.
        assert wait_for(lambda: client.get("/datasets/d/download").status == 200)


def begun(stack: contextlib.ExitStack, client: Client) -> None:
    """Ask for a download, and take only its begin."""
    host, port = client.place.split(":")
    connection = stack.enter_context(socket.create_connection((host, int(port))))
    connection.sendall(b"GET /datasets/d/download?which=all HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"200 OK" in connection.recv(100)


def shown_busy(client: Client):
    answer = client.get("/datasets/d/download?which=all")
    assert answer.status == 503
    return answer


def wait_for(is_so, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.2)
    return False


def test_search_ends_after_its_time_and_says_so(client, monkeypatch) -> None:
    monkeypatch.setattr(first_rows, "READ_SECONDS", 0.0)

    page = shown(client, "/datasets/d/rows?where=x+%3E+1e9+or+tags+is+null")
    in_order = shown(client, "/datasets/d/rows?sort=n")

    assert "The search stopped after" in page.text
    assert "The order is that of the rows read by then" in in_order.text


def test_large_values_are_left_to_the_download(tmp_path) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    for start in (0, 40):
        numbers = range(start, start + 40)
        dataset.append(pa.table({"n": numbers, "t": [f"{n:03}" + "x" * 400_000 for n in numbers]}))
    client = Client(create_app(repository))

    for question, first in (("", 0), ("sort=n&order=desc", 79)):
        answer = client.get(f"/datasets/d/rows?{question}")
        page = shown(client, f"/datasets/d/rows?{question}")
        told = [int(each["n"]) for each in data_rows(page)]
        step = -1 if first else 1
        assert told == list(range(first, first + step * len(told), step))
        assert 1 <= len(told) <= 21
        assert f"at most {limits.MAX_PAGE_BYTES >> 20}.0 MiB" in page.text
        assert len(answer.body) < 100_000


def test_wide_dataset_shows_some_columns_and_names_the_way_to_others(tmp_path) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    names = [f"c{number}" for number in range(120)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    repository.create("d", lakebed.DatasetDescriptor(schema=schema)).append(
        [dict.fromkeys(names, 1)]
    )
    client = Client(create_app(repository))

    page = shown(client, "/datasets/d/rows")
    other = shown(client, "/datasets/d/rows?columns=c119,+c3")
    whole = client.get("/datasets/d/download?which=all").text

    assert len(data_rows(page)[0]) == limits.MAX_COLUMNS
    assert "70 others" in page.text
    assert [*data_rows(other)[0]] == ["c119", "c3"]
    assert whole.splitlines()[0] == ",".join(names)


def test_rows_of_avro_files_are_shown_too(tmp_path) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema, format="avro"))
    dataset.append(pa.table({"n": [3, 1, None], "t": ["a", None, "c"]}))
    client = Client(create_app(repository))

    page = shown(client, "/datasets/d/rows?sort=n")

    assert [each["n"] for each in data_rows(page)] == ["1", "3", "null"]


def test_pages_of_another_dataset_are_not_shown_where_one_is_served_alone(repository) -> None:
    client = Client(create_app(repository, name="empty"))

    for page in ("rows", "download", "compare?from=1&to=2", "file?key=x"):
        assert client.get(f"/datasets/d/{page}").status == 404
    assert client.get("/datasets/empty/rows").status == 200


@pytest.mark.parametrize("page", ["rows", "download?which=all", "compare", "file?key=x"])
def test_rows_are_behind_the_token_too(repository, page) -> None:
    client = Client(create_app(repository, token="s3cret-token"))
    authorized = {"authorization": "Bearer s3cret-token"}

    assert client.get(f"/datasets/d/{page}").status == 401
    answer = client.get(f"/datasets/d/{page}", headers=authorized)
    assert answer.status in (200, 404)
    assert answer.headers["cache-control"] == "no-store"


def test_page_says_which_part_the_server_was_not_given(repository, tmp_path) -> None:
    lake = Client(create_app(repository))
    archive = Client(create_app(None, archive=lakebed.open_archive(str(tmp_path / "raw"))))

    for path in ("/archive", "/archive/files/x", "/archive?what=log"):
        assert "started without --archive" in shown(lake, path, 404).text
    assert "started without a location" in shown(archive, "/datasets/d", 404).text


def test_version_and_file_that_a_cleanup_deleted_are_not_found(tmp_path) -> None:
    repository = lakebed.open_repository(str(tmp_path / "lake"))
    schema = pa.schema([("n", pa.int64())])
    dataset = repository.create("d", lakebed.DatasetDescriptor(schema=schema))
    for n in range(3):
        dataset.overwrite([{"n": n}])
    key = dataset.history()[1].files_added[0]
    dataset.cleanup("0s", dry_run=False)
    client = Client(create_app(repository))

    for path in ("rows?version=1", "compare?from=1&to=3", "download?version=1"):
        assert "1" in shown(client, f"/datasets/d/{path}", 404).text
    page = shown(client, f"/datasets/d/file?key={quote(key, safe='')}", 404)

    assert "cleanup may have deleted it" in page.text
