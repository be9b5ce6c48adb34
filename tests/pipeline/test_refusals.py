"""What does not fit of new files: how much may be, what is kept back, and when it is tried again."""

from __future__ import annotations

import bz2
import contextlib
import dataclasses
import gzip
import io
import json
import logging
import lzma
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from heads import head_key
from raw_files import MeanwhileStore, run_through
from raw_folder import NUMBERS, Folder, avro_of, csv_of, objects, parquet_of

import lakebed
from lakebed import CsvOptions, DatasetDescriptor, FromFiles, Ingest
from lakebed.errors import InvalidInputError, LakebedError, StorageError
from lakebed.store import open_store
from lakebed.testing import FailingStore


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# How much may be unfit.


def test_a_new_file_of_garbage_is_kept_back_and_the_others_go_on(folder: Folder) -> None:
    garbage = folder.put("a.jsonl", "garbage\n" * 200)
    folder.put("b.jsonl", objects(range(3)))

    report = folder.run()

    (left,) = report.kept_back
    assert (left.location, left.why) == (garbage, "rejects")
    assert left.detail.startswith("200 of its 200 lines do not fit, the first: This is not JSON")
    assert (report.file_count, report.row_count, report.rejected_line_count) == (1, 3, 200)
    assert (folder.ids(), len(folder.quarantined())) == ([0, 1, 2], 200)


@pytest.mark.parametrize(
    ("good", "bad", "max_rejects", "is_kept_back"),
    [
        (1, 1, None, True),  # few lines are no exception
        (8, 1, None, True),
        (9, 1, None, False),
        (90, 10, None, False),
        (98, 11, None, True),
        (95, 5, 0.04, True),
        (95, 5, 5, False),
        (95, 5, 4, True),
        (0, 5, 1, False),
        (99, 1, 0, True),
    ],
)
def test_a_share_or_a_number_of_lines_may_be_unfit(
    folder: Folder, good: int, bad: int, max_rejects: float | None, is_kept_back: bool
) -> None:
    folder.put("a.jsonl", objects(range(good)) + "bad\n" * bad)

    report = folder.run(max_rejects=max_rejects)

    assert [one.why for one in report.kept_back] == ["rejects"] * is_kept_back
    assert len(folder.ids()) == (0 if is_kept_back else good)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "avro"])
@pytest.mark.parametrize(("good", "is_kept_back"), [(3, True), (98, True), (99, False)])
def test_values_that_do_not_fit_are_limited_to_a_hundredth(
    folder: Folder, suffix: str, good: int, is_kept_back: bool
) -> None:
    amounts = [str(n) for n in range(good)] + ["NA"]
    if suffix == "csv":
        data = "id,amount\n" + "".join(f"{n},{text}\n" for n, text in enumerate(amounts))
    elif suffix == "jsonl":
        data = "".join(
            json.dumps({"id": n, "amount": text if text == "NA" else int(text)}) + "\n"
            for n, text in enumerate(amounts)
        )
    else:
        # A null in a field that is not nullable is what single values of typed files can be.
        data = None
    if data is None:
        folder.ingest = dataclasses.replace(folder.ingest, create=_required())
        rows = [{"id": n, "amount": None if text == "NA" else n} for n, text in enumerate(amounts)]
        folder.put(f"a.{suffix}", typed_file(rows, suffix))
    else:
        folder.put(f"a.{suffix}", data)

    report = folder.run(max_rejects=None)

    assert [one.why for one in report.kept_back] == ["rejects"] * is_kept_back
    assert report.row_count == (0 if is_kept_back else good)
    assert folder.run(max_rejects=1).kept_back == ()
    assert len(folder.ids()) == good


def _required() -> lakebed.DatasetDescriptor:
    fields = [pa.field("id", pa.int64()), pa.field("amount", pa.int64(), nullable=False)]
    return lakebed.DatasetDescriptor(schema=pa.schema(fields))


def typed_file(rows: list[dict[str, object]], suffix: str) -> bytes:
    sink = io.BytesIO()
    if suffix == "parquet":
        schema = pa.schema([("id", pa.int64()), ("amount", pa.int64())])
        pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    else:
        fields = [{"name": name, "type": ["null", "long"]} for name in ("id", "amount")]
        fastavro.writer(sink, {"type": "record", "name": "r", "fields": fields}, rows)
    return sink.getvalue()


def test_a_file_that_is_kept_back_is_read_again_for_a_reason_only(folder: Folder) -> None:
    path = folder.put("a.jsonl", objects([1]) + "bad\n" * 2)
    folder.put("b.jsonl", objects([2]))  # it creates the dataset
    folder.run()
    quarantine = lakebed.open_repository(folder.lake).open("numbers_quarantine")
    before = quarantine.version

    again = folder.run()
    assert [one.why for one in again.kept_back] == ["rejects"]
    assert (again.rejected_count, quarantine.version) == (0, before)
    assert folder.ingest.check().new == ()
    # By name it is, and comes to the same.
    assert folder.run(again=path).rejected_count == 2
    # Another rule.
    assert folder.run(max_rejects=1).row_count == 1
    assert folder.run().kept_back == ()
    assert [row["line"] for row in folder.quarantined()] == [b"bad"] * 2


def test_while_the_dataset_is_missing_a_file_is_tried_by_every_run_and_quarantined_once(
    folder: Folder,
) -> None:
    folder.put("a.jsonl", objects([1]) + "bad\n" * 2)

    for _ in range(3):
        report = folder.run()
        assert [one.why for one in report.kept_back] == ["rejects"]
        assert (report.rejected_count, folder.ids()) == (2, [])
        assert [row["line"] for row in folder.quarantined()] == [b"bad"] * 2

    assert folder.run(max_rejects=1).row_count == 1
    assert (folder.run().unchanged_count, folder.ids()) == (1, [1])
    assert [row["line"] for row in folder.quarantined()] == [b"bad"] * 2


def test_a_file_that_was_mended_is_read_and_leaves_the_quarantine(folder: Folder) -> None:
    folder.put("a.jsonl", "bad\n" * 3)
    folder.run()
    folder.put("a.jsonl", objects([1, 2]))

    report = folder.run()

    assert (report.kept_back, report.row_count) == ((), 2)
    assert folder.quarantined() == []


# Files whose end is missing.


def noise(count: int) -> bytes:
    return b"".join(
        json.dumps({"id": n, "amount": n * 7919**3}).encode() + b"\n" for n in range(count)
    )


CUT: dict[str, Callable[[], bytes]] = {
    "a.jsonl.gz": lambda: gzip.compress(noise(8_000))[:-4_000],
    "a.jsonl.bz2": lambda: bz2.compress(noise(80_000))[:-4_000],
    "a.jsonl.xz": lambda: lzma.compress(noise(8_000))[:-4_000],
    "a.jsonl.zst": lambda: pa.compress(noise(8_000), "zstd", asbytes=True)[:-4_000],
    "second.jsonl.xz": lambda: lzma.compress(noise(1)) + lzma.compress(noise(8_000))[1:],
    "second.jsonl.bz2": lambda: bz2.compress(noise(1)) + bz2.compress(noise(80_000))[:-4_000],
    "a.jsonl": lambda: noise(100)[:-7],
    "a.csv": lambda: csv_of(range(100)).encode()[:-4],
    "b.csv": lambda: (csv_of(range(100)) + '7,"8').encode(),
    "a.parquet": lambda: parquet_of(range(100))[:-20],
    "a.avro": lambda: avro_of(range(50_000))[:-1_000],
}


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst", "lz4"])
def test_a_compressed_file_without_a_byte_is_truncated(folder: Folder, suffix: str) -> None:
    path = folder.put(f"a.jsonl.{suffix}", b"")
    folder.put("b.jsonl", objects([1]))

    report = folder.run()

    (left,) = report.kept_back
    assert (left.location, left.why, folder.ids()) == (path, "truncated", [1])


def test_a_file_of_several_streams_of_bz2_is_read_to_its_end(folder: Folder) -> None:
    streams = (bz2.compress(objects([n]).encode()) for n in range(3))
    folder.put("a.jsonl.bz2", b"".join(streams))

    report = folder.run()

    assert (report.kept_back, folder.ids()) == ((), [0, 1, 2])


@pytest.mark.parametrize("name", CUT)
@pytest.mark.thorough
def test_a_truncated_file_is_kept_back_and_named_so(folder: Folder, name: str) -> None:
    path = folder.put(name, CUT[name]())

    report = folder.run()

    (left,) = report.kept_back
    assert (left.location, left.why) == (path, "truncated")
    assert "cannot be read to its end" in left.detail
    assert (report.row_count, folder.ids()) == (0, [])
    assert (report.rest_count, report.rejected_line_count, report.rejected_file_count) == (1, 0, 0)
    assert [row["kind"] for row in folder.quarantined()] == ["rest"]

    taken = folder.run(allow_truncated=True, max_rejects=1)
    assert taken.kept_back == ()
    assert (taken.row_count > 0) == (not name.endswith("parquet"))
    assert len(folder.ids()) == taken.row_count


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", objects(range(9)) + '{"id": 9, "amount": 9}'),
        ("a.jsonl", objects(range(9)) + '{"id": 9, "amount": "many"}'),
        ("a.csv", csv_of(range(9)) + "9,9"),
        ("a.csv", csv_of(range(9)) + "9,many"),
    ],
)
def test_a_last_line_without_a_newline_is_a_line(folder: Folder, name: str, content: str) -> None:
    folder.put(name, content)

    report = folder.run()

    assert (report.kept_back, report.rest_count) == ((), 0)
    assert report.row_count == (10 if "many" not in content else 9)


# Whole files that do not fit.

WIDER = {
    "a.csv": lambda: csv_of(range(1_000), "note"),
    "a.parquet": lambda: parquet_of(range(1_000), note="x"),
    "a.avro": lambda: avro_of(range(1_000), note="x"),
}


@pytest.mark.parametrize("name", WIDER)
def test_a_file_with_a_further_column_is_kept_back_counted_and_read_under_a_newer_schema(
    folder: Folder, name: str
) -> None:
    path = folder.put(name, WIDER[name]())
    first = name.replace("a.", "b.")  # it creates the dataset
    folder.put(first, {"b.csv": csv_of, "b.parquet": parquet_of, "b.avro": avro_of}[first]([-1]))

    report = folder.run()

    (left,) = report.kept_back
    assert (left.location, left.why) == (path, "refused")
    assert "1,000 rows" in left.detail
    assert "'note'" in left.detail
    assert (report.rejected_file_count, report.rejected_file_row_count) == (1, 1_000)
    assert report.rejected_line_count == 0
    (row,) = folder.quarantined()
    assert (row["kind"], row["row_count"], row["path"]) == ("file", 1_000, path)
    assert [one.why for one in folder.run().kept_back] == ["refused"]

    folder.widen()
    report = folder.run()

    assert (report.kept_back, report.row_count) == ((), 1_000)
    notes = {row["id"]: row["note"] for row in folder.dataset.kite.reader()}
    assert notes == {-1: None, **dict.fromkeys(range(1_000), "x")}
    assert folder.quarantined() == []
    assert folder.run().unchanged_count == 2


def test_a_field_that_is_lost_is_null_or_the_file_is_refused(folder: Folder) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False), ("amount", pa.int64())])
    create = DatasetDescriptor(schema=required)
    folder.put("a.csv", "id\n1\n2\n")
    lost = folder.put("b.csv", "amount\n3\n")

    report = folder.run(create=create)

    assert [(row["id"], row["amount"]) for row in folder.dataset.kite.reader()] == [
        (1, None),
        (2, None),
    ]
    (left,) = report.kept_back
    assert (left.location, left.why) == (lost, "refused")
    assert "lacks column 'id', which is not nullable" in left.detail


def test_lines_with_a_further_field_are_read_under_a_newer_schema(folder: Folder) -> None:
    folder.put("a.jsonl", objects(range(20)) + objects([20, 21], note="x"))

    first = folder.run()
    assert (first.kept_back, first.row_count, first.rejected_line_count) == ((), 20, 2)
    assert folder.run().unchanged_count == 1

    folder.widen()
    report = folder.run()

    assert (report.replaced_count, report.row_count) == (1, 22)
    assert (folder.ids(), folder.quarantined()) == (list(range(22)), [])
    assert folder.run().unchanged_count == 1


def test_a_newer_schema_brings_nothing_back_that_was_deleted(folder: Folder) -> None:
    folder.put("a.jsonl", objects(range(20)) + objects([20], note="x"))
    folder.run()
    folder.dataset.where("id = 7").delete()
    folder.widen()

    assert folder.run().unchanged_count == 1
    assert 7 not in folder.ids()
    assert len(folder.quarantined()) == 1


# Again, by name.


def test_all_that_was_rejected_is_read_again_after_a_mend_of_the_rule(folder: Folder) -> None:
    semicolons = "id;amount\n1;1\n2;2\n"
    folder.put("a.csv", semicolons)
    folder.put("b.csv", "id,amount\n3,3\nx,y\n")
    folder.put("c.csv", "id,amount\n4,4\n")
    folder.run()

    report = folder.run(again="rejected")

    assert (report.file_count, report.unchanged_count) == (1, 1)
    assert [one.why for one in report.kept_back] == ["refused"]
    assert (folder.ids(), len(folder.quarantined())) == ([3, 4], 2)


def test_a_name_that_is_not_one_of_the_files_is_refused(folder: Folder) -> None:
    folder.put("a.jsonl", objects([1]))

    with pytest.raises(InvalidInputError, match=r"'b\.jsonl' is not among the raw files"):
        folder.run(again="b.jsonl")


def test_a_replay_that_broke_off_before_its_rows_is_finished_by_the_next_run(
    folder: Folder,
) -> None:
    path = folder.put("a.csv", "id,amount\n1,1\n2,-\n3,3\n")
    folder.run()
    assert len(folder.quarantined()) == 1
    mended = dataclasses.replace(folder.ingest, csv=lakebed.CsvOptions(null_text="-"))

    def stop() -> None:
        raise KeyboardInterrupt

    store = MeanwhileStore(open_store(folder.lake), head_key("numbers"), stop)
    with pytest.raises(KeyboardInterrupt):
        run_through(store, mended, again=path)
    assert folder.ids() == [1, 3]

    report = mended.run()

    assert (report.file_count, report.replaced_count) == (1, 1)
    assert (folder.ids(), folder.quarantined()) == ([1, 2, 3], [])
    assert mended.run().unchanged_count == 1


# For people.


def test_the_quarantine_shows_text_path_place_and_attempt(tmp_path: Path) -> None:
    archive = lakebed.open_archive(tmp_path / "raw")
    archive.push(
        io.BytesIO(objects(range(3)).encode() + b"caf\xe9\n"),
        where="box", what="n", start="2015-03-20", path="/log/a.jsonl",
    )  # fmt: skip
    ingest = Ingest(
        name="daily",
        into=f"{tmp_path}/lake/numbers",
        source=lakebed.FromArchive(
            storage=tmp_path / "raw", what="n", start="2015-01-01", end="now"
        ),
        format="json",
        create=NUMBERS,
        max_rejects=0.5,
    )

    report = ingest.run()

    (row,) = lakebed.open_repository(tmp_path / "lake").open("numbers_quarantine").kite.reader()
    assert list(row)[:5] == ["line_number", "reason", "text", "path", "where"]
    assert (row["text"], row["line"]) == ("caf\ufffd", b"caf\xe9")
    assert (row["path"], row["where"], row["kind"]) == ("/log/a.jsonl", "box", "line")
    assert row["attempt"] == f"ingest-{report.commit.batch_id}"


def test_a_quarantine_of_an_older_release_gets_the_further_fields(folder: Folder) -> None:
    old = pa.schema(
        [
            pa.field("run", pa.string(), nullable=False),
            pa.field("reason", pa.string(), nullable=False),
            pa.field("source_file", pa.string(), nullable=False),
            pa.field("line_number", pa.int64(), nullable=False),
            pa.field("line", pa.binary(), nullable=False),
            pa.field("loaded_at", pa.timestamp("us", tz="UTC"), nullable=False),
        ]
    )
    quarantine = lakebed.open_repository(folder.lake).create(
        "numbers_quarantine", DatasetDescriptor(schema=old, partition_by="run")
    )
    row = {"run": "r", "reason": "?", "source_file": "gone", "line_number": 1, "line": b"old"}
    moment = pa.scalar(0, pa.timestamp("us", tz="UTC")).as_py()
    quarantine.append([{**row, "loaded_at": moment}])
    folder.put("a.jsonl", objects(range(3)) + "bad\n")

    folder.run()

    texts = {row["line"]: row["text"] for row in folder.quarantined()}
    assert texts == {b"old": None, b"bad": "bad"}


def test_the_log_tells_lines_rests_and_files_apart(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.put("a.jsonl", objects(range(20)) + "bad\n")
    folder.put("b.jsonl", noise(100)[:-7])

    with caplog.at_level(logging.INFO, "lakebed.pipeline"):
        folder.run()

    (line,) = [one.getMessage() for one in caplog.records if "ingest done" in one.getMessage()]
    assert "rows=20 rejected_lines=1 rests=1 rejected_files=0 ignored_rows=0 kept_back=1" in line


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("operation", ["put", "replace"])
@pytest.mark.parametrize("unknown", ["reject", "keep"])
def test_a_replay_that_fails_at_any_call_loses_and_doubles_nothing(
    tmp_path: Path, operation: str, unknown: str, *, landed: bool
) -> None:
    for nth in range(1, 30):
        place = tmp_path / str(nth)
        place.mkdir()
        folder = Folder(place)
        folder.put("a.csv", "id,amount\n1,1\n2,-\n3,3\n")
        folder.put("b.jsonl", "")
        csv = dataclasses.replace(folder.ingest, source=FromFiles(paths=folder.folder / "*.csv"))
        csv.run()
        if unknown == "keep":
            folder.put("c.csv", "id,amount,note\n4,4,x\n")
        mended = dataclasses.replace(csv, csv=CsvOptions(null_text="-"), unknown=unknown)
        store = open_store(folder.lake)
        outage = None if landed else StorageError("The store is out.", retryable=False)
        failing = FailingStore(store, fail_on=operation, nth=nth, landed=landed, error=outage)

        with contextlib.suppress(LakebedError):
            run_through(failing, mended, again="rejected")

        assert folder.ids() in ([1, 3], [1, 2, 3], [1, 2, 3, 4])
        mended.run(again="rejected" if folder.quarantined() else None)
        assert folder.ids() == ([1, 2, 3, 4] if unknown == "keep" else [1, 2, 3])
        assert folder.quarantined() == []
        folder.dataset.check(repair=True)  # of the schema file, which no commit waits for
        assert folder.dataset.check().is_ok
        if not failing.has_failed:
            assert nth > 1
            return
    pytest.fail("the verb makes more calls than were tried")
