"""Files under the keys of datalake's first releases, and pushes of many files."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.archive import Archive, ingest_message, times_in_name, to_epoch_ms
from lakebed.errors import InvalidInputError, RecordExistsError, RecordNotFoundError
from lakebed.testing import CountingStore, FailingStore

T0 = 1426809600000
FIELDS = {"path": "/var/log/nginx-523.txt", "where": "nebraska", "what": "nginx", "start": T0}
KEY = re.compile(rf"[0-9a-f]-nebraska/nginx/{T0}/[0-9a-f]{{32}}-nginx-523\.txt")


@pytest.fixture(params=["directory", "bucket"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    """An archive with keys of the original form; a directory keeps no attributes."""
    if request.param == "directory":
        return lakebed.open_archive(tmp_path / "raw", keys="original")
    return lakebed.open_archive(
        f"s3://lake/{uuid.uuid4().hex}",
        index=f"sqlite://{tmp_path}/index.db",
        storage_options=request.getfixturevalue("s3_options"),
        keys="original",
    )


def push(archive: Archive, content: bytes = b"mwahaha", **changes: Any) -> Any:
    return archive.push(io.BytesIO(content), **(FIELDS | changes))


def contents(archive: Archive) -> list[str]:
    keys = (info.key for info in archive.store.list())
    return sorted(key for key in keys if not key.endswith("/metadata"))


def test_new_files_lie_under_the_key_of_the_first_datalake(archive):
    record = push(archive)

    (key,) = contents(archive)
    assert KEY.fullmatch(key)
    assert key.startswith(record.hash[0])
    assert record.url == f"{archive.store.uri}/{key}"


def test_such_a_file_is_found_by_time_url_and_id_and_read(archive, tmp_path):
    record = push(archive)

    assert list(archive.list("nginx", start=T0, end=T0)) == [record]
    assert archive.record(record.url) == archive.record(record.id) == record
    for name in (record.url, record.id):
        assert archive.open(name).read() == b"mwahaha"
    assert archive.fetch(record.id, tmp_path / "out").read_bytes() == b"mwahaha"


def test_an_archive_reads_files_of_both_forms_whatever_it_writes(archive):
    other = Archive(archive.store, archive.index)
    old, new = push(archive), push(other, b"hello")

    for opened in (archive, other):
        assert {opened.open(one.id).read() for one in (old, new)} == {b"mwahaha", b"hello"}
    assert new.url == f"{archive.store.uri}/{new.id}/data"


def test_an_index_made_anew_has_them(archive):
    record = push(archive)
    own = push(archive, b"own", id="an-id-with-dashes")
    archive.index.delete([record.id, own.id])

    report = archive.reindex()

    assert (report.indexed_count, report.skipped, report.removed) == (2, (), ())
    assert {one.id for one in archive.list("nginx", start=T0, end=T0)} == {record.id, own.id}
    assert archive.open("an-id-with-dashes").read() == b"own"


def test_a_push_that_is_repeated_changes_nothing_under_either_form(archive):
    first = push(archive, id="mine")

    again = push(archive, id="mine")
    otherwise = push(Archive(archive.store, archive.index), id="mine")

    assert first.url == again.url == otherwise.url
    assert len(contents(archive)) == 1
    with pytest.raises(RecordExistsError):
        push(archive, b"another", id="mine")


def test_a_missing_id_is_told_so(archive):
    push(archive)

    with pytest.raises(RecordNotFoundError):
        archive.record("nobody")
    with pytest.raises(RecordNotFoundError):
        archive.record(f"{archive.store.uri}/{'0-a/b/1/c-d'}")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/logs/two words ä.txt", "two words %C3%A4.txt"),
        ("C:\\logs\\x.txt", "x.txt"),
        ("/", ""),
        ("/logs/" + "x" * 250, "x" * 160),
        ("/logs/100%.txt", "100%25.txt"),
        ("/logs/a-b-c", "a-b-c"),
    ],
)
def test_names_are_such_that_every_store_takes_them(archive, path, name):
    record = push(archive, path=path)

    assert contents(archive)[0].rpartition("/")[2] == f"{record.id}-{name}"
    assert archive.open(record.id).read() == b"mwahaha"
    assert archive.record(record.url).path == path


@pytest.mark.parametrize(("length", "name"), [(94, 160), (200, 54), (253, 1), (254, 0)])
def test_name_gives_way_to_a_long_id_of_ones_own(archive, length, name):
    record = push(archive, path="/logs/" + "x" * 250, id="i" * length)

    assert contents(archive)[0].rpartition("/")[2] == f"{record.id}-{'x' * name}"
    assert archive.open(record.id).read() == b"mwahaha"


def test_notifications_of_such_a_key_bring_the_file_in_and_take_it_out(s3_options):
    archive = lakebed.open_archive(
        "s3://lake", index="sqlite://", storage_options=s3_options, keys="original"
    )
    record = push(archive)
    key = record.url.removeprefix("s3://lake/")
    archive.index.delete([record.id])

    stored = ingest_message(archive, event(key, "ObjectCreated:Put"))
    archive.store.delete([key])
    gone = ingest_message(archive, event(key, "ObjectRemoved:Delete"))

    assert [one.id for one in stored.records] == [record.id]
    assert (gone.status, gone.removed) == ("success", (record.id,))
    assert list(archive.list("nginx", start=T0, end=T0)) == []
    archive.store.delete([f"{record.id}/metadata"])


def event(key: str, name: str) -> str:
    s3 = {"bucket": {"name": "lake"}, "object": {"key": key}}
    return json.dumps({"Records": [{"eventVersion": "2.0", "eventName": name, "s3": s3}]})


def test_unknown_keys_are_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="keys is 'old'"):
        lakebed.open_archive(tmp_path, keys="old")


class TestMany:
    """Many files in one call."""

    @pytest.fixture
    def files(self, tmp_path: Path) -> list[Path]:
        folder = tmp_path / "in"
        folder.mkdir()
        paths = [folder / f"sales-2026-01-{day:02d}.csv" for day in range(1, 32)]
        for number, path in enumerate(paths):
            path.write_text(f"n\n{number}\n")
        return paths

    def test_each_file_has_the_time_of_its_name(self, files, tmp_path):
        archive = lakebed.open_archive(tmp_path / "raw")

        records = archive.push_many(
            files, where="shop", what="sales", start_from_name=r"\d+-\d+-\d+", work_id="job-1"
        )

        assert [record.path for record in records] == [str(path) for path in files]
        assert [record.start.day for record in records] == list(range(1, 32))
        listed = list(archive.list("sales", start="2026-01-05", end="2026-01-07"))
        assert [record.start.day for record in listed] == [5, 6, 7]
        assert {archive.open(record.url).read() for record in listed} == {
            path.read_bytes() for path in files[4:7]
        }

    def test_nothing_is_stored_if_one_cannot_be(self, files, tmp_path):
        archive = lakebed.open_archive(tmp_path / "raw")
        (tmp_path / "in" / "notes.txt").write_text("no time")
        given = {"where": "shop", "what": "sales"}

        with pytest.raises(InvalidInputError, match=r"does not match the name 'notes\.txt'"):
            archive.push_many(
                [*files, tmp_path / "in" / "notes.txt"], **given, start_from_name=r"\d{4}.*\d"
            )
        with pytest.raises(InvalidInputError, match="cannot be used"):
            archive.push_many([*files, tmp_path / "missing"], **given, start="2026-01-01")
        with pytest.raises(InvalidInputError, match="named twice"):
            archive.push_many([*files, files[0]], **given, start="2026-01-01")
        with pytest.raises(InvalidInputError, match="where"):
            archive.push_many(files, where="Not legal", what="sales", start="2026-01-01")

        assert not (tmp_path / "raw").exists()

    @pytest.mark.parametrize("given", [{}, {"start": "2026-01-01", "start_from_name": "."}])
    def test_the_time_is_given_in_one_way(self, files, tmp_path, given):
        archive = lakebed.open_archive(tmp_path / "raw")

        with pytest.raises(InvalidInputError, match="either directly or by a pattern"):
            archive.push_many(files, where="shop", what="sales", **given)

    def test_a_failure_names_what_is_not_stored_and_the_rest_is_found(self, files, tmp_path):
        store = FailingStore(lakebed.open_archive(tmp_path / "raw").store, fail_on="create", nth=10)
        archive = Archive(store, lakebed.open_archive(tmp_path / "raw").index)

        with pytest.raises(lakebed.LakebedError) as caught:
            archive.push_many(files, where="shop", what="sales", start_from_name=r"\d+-\d+-\d+")

        (note,) = [note for note in caught.value.__notes__ if "are stored" in note]
        found = {record.path for record in archive.list("sales", start=0, end="now")}
        assert note.startswith(f"{len(found)} of 31 files are stored.")
        assert 9 <= len(found) < 25
        missing = [str(path) for path in files if str(path) not in found]
        assert len(missing) > 5
        assert all(path in note for path in missing)

    def test_files_are_stored_though_nobody_looks_at_the_records(self, files, tmp_path):
        archive = lakebed.open_archive(tmp_path / "raw")

        archive.push_many(files, where="shop", what="sales", start="2026-01-01")

        assert len(list(archive.list("sales", start="2026-01-01", end="2026-01-01"))) == 31

    def test_a_push_of_many_asks_no_more_of_the_storage_than_each_alone(self, files, tmp_path):
        opened = lakebed.open_archive(tmp_path / "raw")
        store = CountingStore(opened.store)
        archive = Archive(store, opened.index)
        given = {"where": "shop", "what": "sales", "start": "2026-01-01"}
        archive.push(files[0], **given)
        alone = store.reset()

        archive.push_many(files[1:], **given)

        assert store.counts.total == 30 * alone.total


@pytest.mark.parametrize(
    ("pattern", "name", "start", "end"),
    [
        (r"\d{8}", "sales-20260102.csv", "2026-01-02", None),
        (r"\d+-\d+-\d+", "2026-01-02.log", "2026-01-02", None),
        (r"(\d{4}_\d\d_\d\d)", "x_2026_01_02_y", "2026-01-02", None),
        (r"\d{8}T\d{4}", "a20260102T0304.gz", "2026-01-02T03:04", None),
        (r"\d{14}", "a20260102030405.gz", "2026-01-02T03:04:05", None),
        (r"\d{8}-\d{6}Z?", "a20260102-030405Z", "2026-01-02T03:04:05", None),
        (r"-(\d+)\.", "a-1426809600.gz", "2015-03-20", None),
        (r"-(\d+)\.", "a-1426809600000.gz", "2015-03-20", None),
        (
            r"(?P<start>\d{8})-(?P<end>\d{8})",
            "week-20260105-20260111.csv",
            "2026-01-05",
            "2026-01-11",
        ),
        (r"(?P<start>\d{8})(-(?P<end>\d{8}))?", "20260105.csv", "2026-01-05", None),
    ],
)
def test_times_in_names(pattern, name, start, end):
    wanted = (to_epoch_ms(start), None if end is None else to_epoch_ms(end))

    # The folders are not asked.
    assert times_in_name(pattern, f"/data/1999-01-01/{name}") == wanted


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "broken"),
        (r"\d{9}", "does not match"),
        (r"(x)?sales", "finds no start"),
        ("sales", "time"),
    ],
)
def test_patterns_that_find_no_time(pattern, message):
    with pytest.raises(lakebed.LakebedError, match=message):
        times_in_name(pattern, "/in/sales-20260102.csv")


@pytest.mark.parametrize("name", ["20261399.csv", "20260230.csv", "01022026.csv", "2026_13_99.csv"])
def test_day_that_no_calendar_has_is_no_time_of_1970(name):
    with pytest.raises(lakebed.LakebedError, match=f"in the name '{name}' is not a time"):
        times_in_name(r"[\d_]+", f"/in/{name}")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (r"\d{6}", "sales-202601.csv"),
        (r"\d{4}-\d\d", "sales-2026-01.csv"),
        (r"\d{4}", "sales-2026.csv"),
        (r"\d+", "part-00017.csv"),
        (r"(jan|feb)\w+", "sales-february.csv"),
        ("now", "now.csv"),
    ],
)
def test_part_of_a_date_is_no_time_of_1970_and_takes_no_day_from_today(pattern, name):
    with pytest.raises(lakebed.LakebedError, match=f"in the name '{name}' is not a time") as caught:
        times_in_name(pattern, f"/in/{name}")

    assert "a whole date such as 20150320" in caught.value.hint


def test_group_of_another_name_is_refused():
    with pytest.raises(lakebed.LakebedError, match="group 'begin'"):
        times_in_name(r"(?P<begin>\d{4})", "/in/sales-20260102.csv")


def test_name_of_an_early_day_is_that_day_in_the_index(tmp_path):
    file = tmp_path / "sales-19710203-19710204.csv"
    file.write_text("a")
    archive = lakebed.open_archive(tmp_path / "raw")

    (record,) = archive.push_many(
        [file], where="shop", what="sales", start_from_name=r"(?P<start>\d{8})-(?P<end>\d{8})"
    )

    assert (record.start, record.end) == (
        dt.datetime(1971, 2, 3, tzinfo=dt.UTC),
        dt.datetime(1971, 2, 4, tzinfo=dt.UTC),
    )
