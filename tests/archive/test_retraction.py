"""Retracted files stay, can be fetched, and are read by no ingest until they are restored."""

import datetime as dt
import io
from pathlib import Path

import pytest

import lakebed
from lakebed.archive import Archive, ArchiveIndex
from lakebed.errors import CorruptMetadataError, InvalidInputError, RecordNotFoundError

everywhere = pytest.mark.parametrize("archive", ["directory", "s3", "s3-dynamodb"], indirect=True)
NOW = dt.datetime(2015, 3, 22)


def push(archive: Archive, day: int, content: bytes = b'{"n": 1}\n') -> lakebed.ArchiveRecord:
    return archive.push(
        io.BytesIO(content),
        path=f"/log/{day}.jsonl",
        where="box",
        what="n",
        start=f"2015-03-{day:02}",
        work_id="job",
    )


def listed(archive: Archive, *, retracted: bool = False) -> list[str]:
    found = archive.list("n", start="2015-03-01", end="2015-03-31", retracted=retracted)
    return sorted(record.path for record in found)


@everywhere
def test_a_retracted_file_is_hidden_and_can_be_fetched_until_it_is_restored(
    archive: Archive,
) -> None:
    archive.init()
    push(archive, 1)
    last = push(archive, 20)

    noted = archive.retract(last.id, reason="torn")

    assert noted.retraction is not None
    assert (noted.retraction.reason, noted.metadata) == ("torn", last.metadata)
    assert listed(archive) == ["/log/1.jsonl"]
    assert listed(archive, retracted=True) == ["/log/1.jsonl", "/log/20.jsonl"]
    assert [one.path for one in archive.list("n", work_id="job")] == ["/log/1.jsonl"]
    assert archive.latest("n", "box", now=NOW, lookback_days=30).path == "/log/1.jsonl"
    assert archive.latest("n", "box", now=NOW, lookback_days=30, retracted=True) == noted
    assert archive.record(last.id) == noted
    with archive.open(last.id) as content:
        assert content.read() == b'{"n": 1}\n'
    assert archive.restore(last.url) == last
    assert listed(archive) == ["/log/1.jsonl", "/log/20.jsonl"]
    with pytest.raises(InvalidInputError, match="is not retracted"):
        archive.restore(last.id)


@everywhere
def test_an_index_that_is_made_again_keeps_retractions(archive: Archive) -> None:
    archive.init()
    first, second = push(archive, 1), push(archive, 2)
    noted = archive.retract(first.id, reason="torn")
    archive.index.put([first])  # as a notification that comes late would in an older release

    archive.ingest(first.url)
    after_ingest = listed(archive)
    archive.index.delete([first.id, second.id])
    report = archive.reindex()

    assert after_ingest == listed(archive) == ["/log/2.jsonl"]
    assert (report.indexed_count, report.skipped) == (2, ())
    assert archive.index.find(first.id) == noted


def test_pages_are_full_beside_retracted_files(index: ArchiveIndex, tmp_path: Path) -> None:
    archive = Archive(lakebed.open_archive(tmp_path / "raw").store, index)
    records = [push(archive, day) for day in range(1, 11)]
    for record in records[:4] + records[6:7]:
        archive.retract(record.id, reason="torn")

    paths, cursor = [], None
    while True:
        page = archive.page("n", start="2015-03-01", end="2015-03-31", limit=2, cursor=cursor)
        paths.append([record.path for record in page.records])
        cursor = page.next_cursor
        if cursor is None:
            break

    assert [len(part) for part in paths] == [2, 2, 1]
    assert sorted(path for part in paths for path in part) == sorted(
        record.path for record in records[4:6] + records[7:]
    )
    assert archive.latest("n", "box", now=NOW, lookback_days=30) == records[9]


def test_a_second_retraction_keeps_the_first_reason(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    record = push(archive, 1)

    first = archive.retract(record.id, reason="torn")

    assert archive.retract(record.id, reason="other") == first
    for reason in ("", " ", None):
        with pytest.raises(InvalidInputError, match="The reason is"):
            archive.retract(record.id, reason=reason)
    with pytest.raises(RecordNotFoundError):
        archive.retract("missing", reason="torn")


def test_a_damaged_note_is_an_error_by_name_until_it_is_restored(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    record = push(archive, 1)
    archive.retract(record.id, reason="torn")
    archive.store.put(f"retractions/ids/{record.id}", b"{")

    with pytest.raises(CorruptMetadataError, match="cannot be read"):
        archive.record(record.id)
    assert archive.restore(record.id) == archive.record(record.id) == record


def test_no_ingest_reads_a_retracted_file_and_each_lists_it(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    push(archive, 1)
    bad = push(archive, 2, b'{"n": 2}\n')
    ingest = lakebed.Ingest(
        name="n",
        into=f"{tmp_path}/lake/n",
        source=lakebed.FromArchive(
            storage=tmp_path / "raw", what="n", start="2015-03-01", end="2015-03-31"
        ),
        format="json",
        create=lakebed.DatasetDescriptor(
            schema='{"type": "record", "name": "n", "fields": [{"name": "n", "type": "long"}]}'
        ),
    )
    archive.retract(bad.id, reason="wrong machine")
    archive.index.put([bad])  # an index that has not heard of it

    report = ingest.run()
    archive.restore(bad.id)
    again = ingest.run()

    assert (report.row_count, report.held_count) == (1, 1)
    assert "wrong machine" in report.left_out[0].detail
    assert (again.row_count, again.held_count) == (1, 0)
    assert ingest.dataset().count() == 2
