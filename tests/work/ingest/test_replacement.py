"""What shares data files with a replaced raw file is written anew, and looked at afterwards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from raw_files import Raw, lines

from lakebed.arrow.kernel import KernelWriter
from lakebed.errors import CorruptMetadataError
from lakebed.state import sources
from lakebed.state.reader import read_head
from lakebed.store import open_store
from lakebed.work.ingest import replacement


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    raw = Raw(tmp_path)
    for day in range(3):
        raw.push(day, lines(day, range(8)))
    raw.ingest.run()
    return raw


def objects(raw: Raw) -> set[str]:
    return {
        info.key
        for info in open_store(f"{raw.directory}/lake").list("events/")
        if not info.key.startswith("events/batches/")
    }


def lost(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.slice(1)


def doubled(rows: pa.RecordBatch) -> pa.RecordBatch:
    return pa.Table.from_batches([rows, rows.slice(0, 1)]).combine_chunks().to_batches()[0]


def changed(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.set_column(2, "n", pa.array([7] * rows.num_rows, pa.int64()))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lost, r"kind_dimension=a.* hold 3 rows instead of 4"),
        (doubled, r"kind_dimension=a.* hold 5 rows instead of 4"),
        (changed, r"kind_dimension=a.* hold rows with other values"),
    ],
)
def test_rows_that_are_not_what_they_were_stop_the_ingest(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, change: Any, told: str
) -> None:
    raw.push(1, lines(1, range(100, 103)))
    rows, before, write_to = raw.rows(), objects(raw), KernelWriter.write_to

    def altered(self: Any, partition: str, batch: pa.RecordBatch, source: Any = 0) -> None:
        if partition == "kind_dimension=a":
            batch = change(batch)
            source = [*source, 0][: batch.num_rows]
        write_to(self, partition, batch, source)

    with monkeypatch.context() as patch:
        patch.setattr(KernelWriter, "write_to", altered)
        with pytest.raises(CorruptMetadataError, match=told):
            raw.ingest.run()

    assert raw.events.version == 1
    assert raw.rows() == rows
    assert objects(raw) == before

    assert raw.ingest.run().carried_count == 16
    assert len(raw.rows()) == 19


@pytest.mark.parametrize(("noted", "told"), [(1, "rows or more, but"), (99, "rows, but")])
def test_a_data_file_with_other_rows_than_were_noted_stops_the_ingest(
    raw: Raw, noted: int, told: str
) -> None:
    store = open_store(f"{raw.directory}/lake")
    (segment,) = read_head(store, "events").state.lists.sources
    known = sources.decode(store.get(segment.key).data, segment.key)
    runs = {label: (*others, (key, noted)) for label, (*others, (key, _)) in known.runs.items()}
    store.put(segment.key, sources.encode(msgspec.structs.replace(known, runs=runs)))
    raw.push(0, lines(0, range(100, 103)))
    before = objects(raw)

    with pytest.raises(CorruptMetadataError, match=told):
        raw.ingest.run()

    assert objects(raw) == before


def test_several_writers_share_no_partition_and_know_whose_rows_they_write(
    raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replacement, "_BYTES_A_WRITER", 1)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    for day, numbers in ((1, range(100, 103)), (0, range(200, 206)), (1, range(4))):
        raw.push(day, lines(day, numbers))
        raw.ingest.run()

    assert Counter(day for day, _ in raw.rows()) == {0: 6, 1: 4, 2: 8}
    files = Counter((file.partition, file.batch_id) for file in raw.events.files())
    assert max(files.values()) <= 2  # what was read, and what was carried along
