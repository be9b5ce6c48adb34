"""An archive of days, and an ingest of them; and a store that lets something happen in between."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import itertools
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from heads import ON_TREES

import lakebed
from lakebed import DatasetDescriptor, FromArchive, Ingest, Repository, by
from lakebed.errors import DatasetNotFoundError
from lakebed.state.head import HeadFormat, decode_head
from lakebed.store.base import Store
from lakebed.testing import DelegatingStore

EVENTS = DatasetDescriptor(
    schema=pa.schema([("day", pa.int32()), ("kind", pa.string()), ("n", pa.int64())]),
    partition_by=[by.dimension("kind", ["a", "b"])],
)


def lines(day: int, numbers, bad=()) -> bytes:
    rows = [
        json.dumps({"day": day, "kind": "abcd"[n % 4], "n": n}).encode() + b"\n" for n in numbers
    ]
    return b"".join([*rows, *(b"damaged %d %d\n" % (day, n) for n in bad)])


class Raw:
    """An archive of days, and an ingest of them."""

    def __init__(self, directory) -> None:
        self.directory = directory
        self.storage = str(directory / "raw")
        self.archive = lakebed.open_archive(self.storage)
        self.archive.init()
        self.ingest = Ingest(
            name="events",
            into=f"{directory}/lake/events",
            source=FromArchive(
                storage=self.storage,
                what="events",
                start="2013-01-01",
                end="2013-12-31",
                supersede="path",
            ),
            format="json",
            create=EVENTS,
            max_rejects=0.5,
        )
        self._clock = itertools.count()

    def push(self, day: int, content: bytes, *, where="box", path=None, work_id=None):
        start = dt.datetime(2013, 1, 1, tzinfo=dt.UTC) + dt.timedelta(days=day)
        record = self.archive.push(
            io.BytesIO(content),
            where=where,
            what="events",
            start=start,
            end=start + dt.timedelta(hours=23),
            path=path or f"/log/{day}.jsonl",
            work_id=work_id,
        )
        # Clocks of storages are coarse: say for sure which file came later.
        later = lakebed.ArchiveRecord(
            url=record.url,
            metadata=record.metadata,
            create_time_ms=1_600_000_000_000 + next(self._clock),
            size_bytes=record.size_bytes,
        )
        self.archive.index.put([later])
        return later

    def by(self, supersede, **others) -> Ingest:
        """Return the ingest with another rule of what takes the place of what."""
        source = dataclasses.replace(self.ingest.source, supersede=supersede)
        return dataclasses.replace(self.ingest, source=source, **others)

    @property
    def events(self):
        return self.ingest.dataset()

    def rows(self) -> list[tuple[int, int]]:
        """Return the rows, none while no run has created the dataset."""
        try:
            events = self.events
        except DatasetNotFoundError:
            return []
        return sorted((row["day"], row["n"]) for row in events.kite.reader())

    def rejected(self) -> list[bytes]:
        repository = lakebed.open_repository(self.directory / "lake")
        if not repository.exists("events_quarantine"):
            return []
        return sorted(row["line"] for row in repository.open("events_quarantine").kite.reader())


class MeanwhileStore(DelegatingStore):
    """Lets something happen right before the first commit to a head, as if it were faster.

    The swap by which a creator claims the name is none.
    """

    def __init__(self, inner: Store, key: str, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self._key, self._act = key, act
        self.has_happened = False

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        if key == self._key and not self.has_happened and version_in(data) != "0":
            self.has_happened = True
            self._act()
        return super()._replace(key, data, if_match=if_match)


def version_in(head: memoryview) -> str:
    """Return the version that a head states."""
    head_format = HeadFormat.MSGPACK if ON_TREES else HeadFormat.JSON
    return decode_head(bytes(head), head_format, "head").metadata["lakebed.version"]


def run_through(store: Store, ingest: Ingest, **options: Any) -> lakebed.IngestReport:
    """Run an ingest with another store than that of its location."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakebed.pipeline.declared_dataset.open_store", lambda *_, **__: store)
        patch.setattr(
            "lakebed.pipeline.declared_dataset.open_repository", lambda *_, **__: Repository(store)
        )
        return ingest.run(**options)
