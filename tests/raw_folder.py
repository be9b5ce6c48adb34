"""A folder of raw files and an ingest of them, and files of every format."""

from __future__ import annotations

import dataclasses
import io
import json
import os
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

import lakebed
from lakebed import Dataset, DatasetDescriptor, FromFiles, Ingest
from lakebed.errors import DatasetNotFoundError

NUMBERS = DatasetDescriptor(schema=pa.schema([("id", pa.int64()), ("amount", pa.int64())]))
WIDE = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("note", pa.string())])


class Folder:
    """A folder of raw files and an ingest of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "in"
        self.folder.mkdir()
        self.lake = folder / "lake"
        self.ingest = Ingest(
            name="daily",
            into=f"{self.lake}/numbers",
            source=FromFiles(paths=self.folder, supersede="path"),
            create=NUMBERS,
            max_rejects=0.5,
        )
        self._clock = 1_600_000_000

    def put(self, name: str, data: bytes | str) -> str:
        path = self.folder / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        self._clock += 1
        os.utime(path, (self._clock, self._clock))
        return str(path)

    def run(self, *, again: object = None, **changes: object) -> lakebed.IngestReport:
        return dataclasses.replace(self.ingest, **changes).run(again=again)

    @property
    def dataset(self) -> Dataset:
        return self.ingest.dataset()

    def ids(self) -> list[int]:
        """Return the ids of the rows, none while no run has created the dataset."""
        try:
            dataset = self.dataset
        except DatasetNotFoundError:
            return []
        return sorted(row["id"] for row in dataset.kite.reader())

    def quarantined(self) -> list[dict[str, object]]:
        repository = lakebed.open_repository(self.lake)
        if not repository.exists("numbers_quarantine"):
            return []
        rows = repository.open("numbers_quarantine").kite.reader()
        return sorted(rows, key=lambda row: (row["source_file"], row["line_number"]))

    def widen(self) -> None:
        self.dataset.evolve(lambda old: dataclasses.replace(old, schema=WIDE))


def objects(ids, **others: object) -> str:
    return "".join(json.dumps({"id": n, "amount": n, **others}) + "\n" for n in ids)


def csv_of(ids, *others: str) -> str:
    head = ",".join(["id", "amount", *others])
    return f"{head}\n" + "".join(f"{n},{n}{',x' * len(others)}\n" for n in ids)


def parquet_of(ids, **others: str) -> bytes:
    sink = io.BytesIO()
    columns = {name: [value] * len(ids) for name, value in others.items()}
    pq.write_table(pa.table({"id": list(ids), "amount": list(ids), **columns}), sink)
    return sink.getvalue()


def avro_of(ids, **others: str) -> bytes:
    fields = [{"name": name, "type": "long"} for name in ("id", "amount")]
    fields += [{"name": name, "type": "string"} for name in others]
    sink = io.BytesIO()
    schema = {"type": "record", "name": "n", "fields": fields}
    fastavro.writer(sink, schema, [{"id": n, "amount": n, **others} for n in ids])
    return sink.getvalue()
