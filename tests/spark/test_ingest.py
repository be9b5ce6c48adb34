"""Raw files of an archive read by tasks of Spark."""

import gzip
import io
import json

import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor, FromArchive, Ingest, by
from lakebed.errors import InvalidInputError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("uuid", pa.string()), ("day", pa.int32()), ("kind", pa.string())])


def content(day: int, count: int) -> bytes:
    rows = [
        b"u%d-%d\t%s\n" % (day, n, json.dumps({"day": day, "kind": "abc"[n % 3]}).encode())
        for n in range(count)
    ]
    return gzip.compress(b"".join(rows) + b"damaged %d\n" % day)


@pytest.fixture
def archive(tmp_path):
    archive = lakebed.open_archive(tmp_path / "raw")
    for day in range(1, 9):
        push(archive, day, 100 * day)
    return archive


def push(archive, day: int, count: int, cut: int = 0):
    data = content(day, count)
    return archive.push(
        io.BytesIO(data[: len(data) - cut]),
        path=f"/log/{day}.log",
        where="box",
        what="events",
        start=f"2013-01-{day:02d}",
        end=f"2013-01-{day:02d}T23:59",
    )


def ingest_into(tmp_path, name: str) -> Ingest:
    return Ingest(
        name="events",
        into=f"{tmp_path}/lake/{name}",
        source=FromArchive(
            storage=tmp_path / "raw",
            what="events",
            start="2013-01-01",
            end="2013-01-31",
            supersede="path",
        ),
        format="submissions",
        create=DatasetDescriptor(schema=SCHEMA, partition_by=[by.dimension("kind", ["a", "b"])]),
        max_rejects=0.5,
    )


def rows_of(dataset):
    return sorted(row["uuid"] for row in dataset.kite.reader())


def test_tasks_ingest_what_one_process_ingests_and_replace_a_day(spark, tmp_path, archive) -> None:
    with_spark, alone = ingest_into(tmp_path, "one"), ingest_into(tmp_path, "two")
    seen = []

    report, expected = with_spark.run(spark, on_progress=seen.append), alone.run()

    assert (report.row_count, report.rejected_count) == (3600, 8)
    assert (report.row_count, report.rejected_count) == (
        expected.row_count,
        expected.rejected_count,
    )
    assert rows_of(with_spark.dataset()) == rows_of(alone.dataset())
    assert (seen[-1].file_count, seen[-1].row_count) == (8, 3600)
    assert [one.file_count for one in seen] == list(range(9))
    assert with_spark.run(spark).file_count == 0
    counts = {one.start.day: one.row_count for one in with_spark.sources()}
    assert counts == {day: 100 * day for day in range(1, 9)}

    push(archive, 5, 7)
    again = with_spark.run(spark)

    assert (again.file_count, again.replaced_count, again.row_count) == (1, 1, 7)
    days = [row["day"] for row in with_spark.dataset().kite.reader()]
    assert {day: days.count(day) for day in range(1, 9)} == {**counts, 5: 7}

    # One that was cut on its way is kept back; the tasks read the other once more, without it.
    push(archive, 1, 1)
    push(archive, 6, 3000, cut=40)
    last = with_spark.run(spark)

    assert [one.why for one in last.kept_back] == ["truncated"]
    assert (last.file_count, last.row_count, last.rejected_count) == (1, 1, 2)
    days = [row["day"] for row in with_spark.dataset().kite.reader()]
    assert {day: days.count(day) for day in range(1, 9)} == {**counts, 5: 7, 1: 1}


def test_tasks_keep_and_ignore_fields_and_keep_files_back_as_one_process_does(
    spark, tmp_path
) -> None:
    (tmp_path / "in").mkdir()
    for day in range(6):
        others = {"note": f"n{day}", "size": day} if day >= 3 else {}
        lines = [json.dumps({"day": day, "n": n, **others}) for n in range(50)]
        (tmp_path / "in" / f"{day}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "in" / "garbage.jsonl").write_text("garbage\n" * 30)
    (tmp_path / "in" / "cut.jsonl").write_text('{"day": 9, "n": 1}\n{"day": 9, "n')
    schema = pa.schema([("day", pa.int32()), ("n", pa.int64())])

    def ingest(name: str, unknown: str) -> Ingest:
        return Ingest(
            name="events",
            into=f"{tmp_path}/lake/{name}",
            source=lakebed.FromFiles(paths=tmp_path / "in"),
            create=DatasetDescriptor(schema=schema),
            max_rejects=0.5,
            unknown=unknown,
        )

    for unknown in ("reject", "ignore", "keep"):
        by_tasks = ingest(f"tasks_{unknown}", unknown).run(spark)
        alone = ingest(f"alone_{unknown}", unknown).run()

        told = [
            {key: value for key, value in one.to_record().items() if value is not None}
            for one in (by_tasks, alone)
        ]
        for one in told:
            for key in ("dataset", "duration_s", "quarantine", "batch_id"):
                one.pop(key)
        assert told[0] == told[1]
        assert sorted(one.why for one in by_tasks.kept_back)[-1] == "truncated"
        assert by_tasks.row_count == (150 if unknown == "reject" else 300)
    kept = ingest("tasks_keep", "keep")
    assert sum(row["note"] is not None for row in kept.dataset().kite.reader()) == 150
    assert kept.run(spark, again="rejected").row_count == 0


def test_records_lines_and_contents_are_data_frames(spark, archive) -> None:
    span = {"start": "2013-01-02", "end": "2013-01-03T12:00"}
    records = {one.id: one for one in archive.list("events", **span)}

    frame = archive.spark(spark, "events", **span)
    assert {row["id"]: row["path"] for row in frame.collect()} == {
        one.id: one.path for one in records.values()
    }
    assert frame.where("start < '2013-01-03'").count() == 1

    lines = archive.spark(spark, "events", **span, read="lines")
    bad = lines.where("line LIKE 'damaged%'").collect()
    assert sorted((row["line"], row["line_number"]) for row in bad) == [
        ("damaged 2", 201),
        ("damaged 3", 301),
    ]
    assert lines.count() == 201 + 301

    contents = archive.spark(spark, "events", **span, read="contents").collect()
    assert {row["id"] for row in contents} == set(records)
    for row in contents:
        with archive.open(row["id"]) as file:
            assert file.read() == bytes(row["content"])


def test_tasks_compare_the_hash_of_archived_files(spark, tmp_path, archive) -> None:
    (record,) = archive.list("events", start="2013-01-02", end="2013-01-02")
    path = tmp_path / "raw" / record.id / "data"
    path.chmod(0o644)
    path.write_bytes(content(2, 7))
    seen = []

    ingest = ingest_into(tmp_path, "one")
    report = ingest.run(spark, on_progress=seen.append)

    assert (report.file_count, report.row_count, seen[-1].file_count) == (7, 3400, 8)
    assert record.id not in {one.file_id for one in ingest.sources()}
    span = {"start": "2013-01-02", "end": "2013-01-02"}
    (line,) = archive.spark(spark, "events", **span, read="lines").collect()
    assert (line["line"], record.hash in line["problem"]) == ("", True)
    with pytest.raises(Exception, match=record.hash):
        archive.spark(spark, "events", **span, read="contents").collect()


def test_no_records_are_an_empty_frame(spark, archive) -> None:
    for read in ("records", "lines", "contents"):
        frame = archive.spark(spark, "events", start="1999-01-01", end="1999-01-02", read=read)
        assert frame.count() == 0

    with pytest.raises(InvalidInputError, match="words"):
        archive.spark(spark, "events", start="1999-01-01", end="1999-01-02", read="words")


def test_index_is_made_anew_by_tasks(spark, archive) -> None:
    records = sorted(archive.index.records(), key=lambda one: one.start)
    archive.index.delete(record.id for record in records[1:])
    archive.store.delete([f"{records[0].id}/data"])
    archive.store.put("stray", b"x")

    looked = archive.reindex(spark=spark, dry_run=True)
    report = archive.reindex(spark=spark)

    assert looked == report
    assert (report.indexed_count, report.removed) == (7, (records[0],))
    assert [one.url for one in report.skipped] == [f"{archive.store.uri}/stray"]
    assert sorted(archive.index.records(), key=lambda one: one.start) == records[1:]


def test_tasks_cannot_read_an_archive_in_memory(spark) -> None:
    archive = lakebed.open_archive("memory://reindex-by-tasks")

    with pytest.raises(InvalidInputError, match="cannot access"):
        archive.reindex(spark=spark)
