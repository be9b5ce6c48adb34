"""All verbs in a row, by a fixed clock and with fixed ids: what they leave on storage.

    python tests/bytes/operations.py OUT             leave every object that an operation writes in OUT
    python tests/bytes/operations.py OUT --decoded   leave what is in them instead, as text
    python tests/bytes/operations.py --listing       print what they do in short

Two checkouts do the same if `diff -r` finds nothing between what they leave, each with its `src` as
PYTHONPATH:

    PYTHONPATH=old/src python new/tests/bytes/operations.py /tmp/old
    PYTHONPATH=new/src python new/tests/bytes/operations.py /tmp/new
    diff -r /tmp/old /tmp/new

`OUT/017-overwrite-of-a-view/` has the objects that this operation has written or changed, each under
its key. Beside them `~removed` names those that it has deleted, `~result` is what it returned or
raised, and `~requests` is what it has asked the store for. What is printed are the same objects with
their SHA-256.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import decimal
import hashlib
import io
import json
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from contents import decoded, name_without_sizes
from fixed_world import BEGIN, fixed_world

import lakebed
from lakebed import by, checks
from lakebed.cli import main as command
from lakebed.errors import LakebedError, StorageError
from lakebed.store import Store, open_store
from lakebed.tables.delta import to_delta
from lakebed.testing import CountingStore, DelegatingStore, FailingStore

HOUR = dt.timedelta(hours=1)
HEADS = (".by-dataset-metadata.json", ".by-dataset-metadata.msgpack.zstd")
LAKE, RAW = "memory://bytes-of-operations", "memory://bytes-of-operations-raw"


class RacingStore(CountingStore):
    """Lets somebody else act right before the next put of a head, or loses the answer to it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.first: Callable[[], object] | None = None
        self.loses_answer = False

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        if key.endswith(HEADS):
            act, self.first = self.first, None
            if act is not None:
                act()
        etag = super()._replace(key, data, if_match=if_match)
        if self.loses_answer and key.endswith(HEADS):
            self.loses_answer = False
            raise StorageError(f"The answer to the put of {key!r} was lost.", retryable=True)
        return etag


class Calls(logging.Handler):
    """Counts what any store is asked for, by folder, as it tells its log.

    A call through `RacingStore` is told twice, by it and by the store that it asks.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: collections.Counter[str] = collections.Counter()

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(record.args, tuple) and record.msg.startswith("store call "):
            operation, key, _ = record.args
            self.counts[f"{operation} {_folder(str(key))}"] += 1

    def take(self) -> str:
        told = [f"{name}: {count}" for name, count in sorted(self.counts.items())]
        self.counts.clear()
        return "\n".join(told)

    @classmethod
    @contextlib.contextmanager
    def told(cls) -> Iterator[Calls]:
        log, calls = logging.getLogger("lakebed.store"), cls()
        level = log.level
        log.addHandler(calls)
        log.setLevel(logging.DEBUG)
        try:
            yield calls
        finally:
            log.removeHandler(calls)
            log.setLevel(level)


class Lake:
    """The repository that the operations work on, and the raw files that they read."""

    def __init__(self, index: Path) -> None:
        self.store = RacingStore(open_store(LAKE))
        self.raw = open_store(RAW)
        for store in (self.store, self.raw):  # of an earlier run in this process
            store.delete([info.key for info in store.list("")])
        self.repository = lakebed.Repository(self.store)
        self.staged: dict[str, int] = {}  # batch ids by name
        self.index = index  # of the archive

    def __getitem__(self, name: str) -> lakebed.Dataset:
        return self.repository.open(name)

    def objects(self, before: dict[str, bytes], since: dt.datetime) -> dict[str, bytes]:
        """Return all that lies there; what was not written since is what it was before."""
        return {
            info.key: before[info.key]
            if info.modified_at < since
            else self.store.get(info.key).data
            for info in self.store.list("")
        }

    def put_raw(self, key: str, *lines: object) -> None:
        texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
        self.raw.put(key, "".join(f"{text}\n" for text in texts).encode())

    def ingest(self, **others: Any) -> lakebed.Ingest:
        told = {
            "name": "sensors",
            "into": f"{LAKE}/readings",
            "create": READINGS,
            "max_rejects": 0.5,
        }
        source = lakebed.FromFiles(paths=f"{RAW}/readings/", supersede="path")
        return lakebed.Ingest(**{**told, "source": source, **others})

    def command(self, *words: str) -> str:
        told = io.StringIO()
        silence = contextlib.redirect_stderr(io.StringIO())
        with contextlib.redirect_stdout(told), silence, contextlib.suppress(SystemExit):
            command([*words, "-o", "json"])
        return told.getvalue()


Operation = Callable[[Lake], object]
OPERATIONS: list[tuple[str, Operation]] = []


def operation(function: Operation) -> Operation:
    number, name = len(OPERATIONS) + 1, function.__name__.replace("_", "-")
    OPERATIONS.append((f"{number:03d}-{name}", function))
    return function


# What is written

FLIGHTS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("carrier", pa.string()),
        pa.field("tail", pa.string()),
        pa.field("distance", pa.int32()),
        pa.field("delay", pa.float64()),
        pa.field("fare", pa.decimal128(9, 2)),
        pa.field("booked", pa.date32()),
        pa.field("cancelled", pa.bool_()),
        pa.field("stops", pa.list_(pa.string())),
        pa.field("seen", pa.struct([("lat", pa.float64()), ("lon", pa.float64())])),
    ]
)
FLIGHT = lakebed.DatasetDescriptor(
    schema=FLIGHTS,
    partition_by=[by.date("time", name="dt"), by.dimension("carrier", ["UA", "B6"])],
    index=["tail", "distance"],
    properties={"owner": "ops"},
)
EVENT = lakebed.DatasetDescriptor(
    schema={
        "type": "record",
        "name": "event",
        "fields": [
            {"name": "user_id", "type": "long"},
            {"name": "kind", "type": "string"},
            {"name": "size", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "country", "type": ["null", "string"], "default": None},
            {"name": "note", "type": "string", "default": "none"},
        ],
    },
    partition_by=[
        by.hash("user_id", 2),
        by.range("size", [10, 1000]),
        by.fixed_range("user_id", 8),
        by.values("kind", [["open", "close"], ["move"]]),
        by.identity("country"),
        by.year("at"),
        by.month("at"),
        by.day("at"),
        by.hour("at"),
        by.minute("at"),
        by.date_format("at", "yyyy-MM"),
        by.provided("source"),
    ],
    index=["user_id", "note"],
    compression="snappy",
)
PING = lakebed.DatasetDescriptor(
    schema=pa.schema([("id", pa.int64()), ("channel", pa.string()), ("build", pa.int64())]),
    partition_by=[by.dimension("channel", "*", cap=3), by.dimension("build", {"min": 1, "max": 9})],
)
SUBMISSION = lakebed.DatasetDescriptor(
    schema=pa.schema([("uuid", pa.string()), ("document", pa.string()), ("reason", pa.string())]),
    partition_by=[by.identity("reason")],
    format="submissions",
)
RECORD = lakebed.DatasetDescriptor(
    schema=pa.schema([("n", pa.int64()), ("word", pa.string())]),
    partition_by=[by.fixed_range("n", 10)],
    format="avro",
    index="word",
)
TRIP = lakebed.DatasetDescriptor(
    schema=pa.schema([("id", pa.int64()), ("car", pa.string())]),
    partition_by=[by.hash("car", 7)],
    index=["id", "car"],
)
READINGS = lakebed.DatasetDescriptor(
    schema=pa.schema([("sensor", pa.string()), ("n", pa.int64()), ("value", pa.float64())]),
    partition_by=[by.identity("sensor")],
    index=["n"],
)


def flight(number: int, *, day: int | None = None) -> dict[str, Any]:
    """Return the flight of a number; every seventh has nulls."""
    is_null = number % 7 == 6
    hour = dt.datetime(2013, 1, day or 1 + number % 3, number % 24, tzinfo=dt.UTC)
    return {
        "id": number,
        "time": hour,
        "carrier": ["UA", "B6", "DL", "AA", None][number % 5],
        "tail": None if is_null else f"N{number % 11:03d}é",
        "distance": None if is_null else number * 100,
        "delay": None if is_null else number * 0.5 if number % 10 else float("nan"),
        "fare": None if is_null else decimal.Decimal(number) + decimal.Decimal("0.25"),
        "booked": None if is_null else dt.date(2012, 12, 1 + number % 28),
        "cancelled": None if is_null else number % 2 == 0,
        "stops": None if is_null else ["EWR", "é/☺"][: number % 3],
        "seen": None if is_null else {"lat": number / 4, "lon": -number / 8},
    }


def flights(first: int, end: int, **others: Any) -> list[dict[str, Any]]:
    return [flight(number, **others) for number in range(first, end)]


def flight_table(first: int, end: int, **others: Any) -> pa.Table:
    return pa.Table.from_pylist(flights(first, end, **others), schema=FLIGHTS)


def events(first: int, end: int) -> list[dict[str, Any]]:
    return [
        {
            "user_id": number % 20,
            "kind": ["open", "close", "move"][number % 3],
            "size": number * 7 % 1000,
            "at": dt.datetime(2024, 2, 28 + number % 2, number % 3, 59, tzinfo=dt.UTC),
            "country": ["de", "a/b", None][number % 3],
            "note": f"note {number % 4}",
        }
        for number in range(first, end)
    ]


def pings(first: int, end: int) -> list[dict[str, Any]]:
    channels = ["beta", "esr", "nightly", "own", "OTHER", None]
    return [
        {"id": number, "channel": channels[number % 6], "build": number % 12}
        for number in range(first, end)
    ]


# Creating, and rows of every kind


@operation
def create_with_a_json_head(lake):
    return lake.repository.create("flights", FLIGHT)


@operation
def create_with_a_packed_head(lake):
    return lake.repository.create("events", EVENT, head_format="msgpack.zstd")


@operation
def create_with_a_capped_dimension(lake):
    return lake.repository.create("pings", PING)


@operation
def create_what_is_there_opens_it(lake):
    return lake.repository.create("flights", FLIGHT, if_exists="open")


@operation
def create_what_is_there_is_refused(lake):
    return lake.repository.create("flights", FLIGHT)


@operation
def append_an_arrow_table(lake):
    return lake["flights"].append(flight_table(0, 40))


@operation
def append_dicts_of_a_run(lake):
    return lake["flights"].append(flights(40, 60), run="monday")


@operation
def append_by_a_writer(lake):
    with lake["flights"].kite.writer() as writer:
        for one in flights(60, 75):
            writer.write(one)
    return writer.commit


@operation
def append_record_batches_in_several_files(lake):
    reader = pa.RecordBatchReader.from_batches(
        FLIGHTS, flight_table(75, 115, day=3).to_batches(max_chunksize=7)
    )
    return lake["flights"].with_options(write=lakebed.WriteOptions(target_bytes=1)).append(reader)


@operation
def append_that_does_not_fit_is_refused(lake):
    return lake["flights"].append([flight(1), {**flight(2), "distance": "far"}])


@operation
def append_through_a_view(lake):
    view = lake["events"].kite.with_("source", "web")
    return view.append(events(0, 30), run="first")


@operation
def append_through_another_view(lake):
    return lake["events"].kite.with_("source", "app/é").append(events(30, 50))


@operation
def append_to_a_capped_dimension(lake):
    return lake["pings"].append(pings(0, 24), run="caps")


@operation
def append_beyond_the_cap(lake):
    return lake["pings"].append([{"id": 90 + n, "channel": f"c{n}", "build": 3} for n in range(5)])


@operation
def append_only_where_the_view_is_empty(lake):
    view = lake["flights"].where("dt = '2013-02-01'")
    data = [{**one, "time": dt.datetime(2013, 2, 1, 4, tzinfo=dt.UTC)} for one in flights(200, 204)]
    return view.append(data, if_not_empty="error")


@operation
def signal_that_a_view_is_ready(lake):
    return lake["flights"].where("dt = '2013-02-01'").kite.signal_ready()


# Replacing and deleting


@operation
def overwrite_the_partitions_that_are_touched(lake):
    return lake["flights"].overwrite(flights(300, 306, day=1), run="monday")


@operation
def overwrite_a_view(lake):
    dataset = lake["flights"]
    return dataset.overwrite(flight_table(310, 320, day=2), dataset.where("dt = '2013-01-02'"))


@operation
def overwrite_a_view_with_nothing(lake):
    dataset = lake["flights"]
    return dataset.overwrite([], dataset.where("dt = '2013-02-01'"))


@operation
def rerun_of_what_a_run_wrote(lake):
    return lake["flights"].rerun(flights(40, 52), run="monday", replace_all=True)


@operation
def rerun_of_a_new_run(lake):
    return lake["flights"].rerun(flights(400, 410), run="tuesday", replace_all=True)


@operation
def rerun_without_rows(lake):
    return lake["flights"].rerun([], run="tuesday", replace_all=True)


@operation
def delete_of_whole_partitions(lake):
    return lake["flights"].delete(lake["flights"].where("dt = '2013-01-02' AND carrier = 'UA'"))


@operation
def delete_that_writes_files_anew(lake):
    return lake["flights"].where("id >= 40 AND id < 45").delete(run="tidy")


@operation
def delete_of_rows_of_several_runs(lake):
    return lake["events"].where("size < 200").delete()


@operation
def delete_of_nothing(lake):
    return lake["flights"].where("id = 123456").delete()


# Batches that wait, and transactions


@operation
def stage_an_append(lake):
    staged = lake["flights"].staged.add(flights(500, 510), run="wednesday")
    lake.staged["append"] = staged.batch_id
    return staged


@operation
def stage_an_overwrite_of_a_view(lake):
    dataset = lake["flights"]
    staged = dataset.staged.add(
        flights(510, 514, day=2), "overwrite", view=dataset.where("dt = '2013-01-02'"), lease="9d"
    )
    lake.staged["overwrite"] = staged.batch_id
    return staged


@operation
def stage_a_rerun(lake):
    staged = lake["flights"].staged.add(flights(46, 49), "rerun", run="monday", replace_all=True)
    lake.staged["rerun"] = staged.batch_id
    return staged


@operation
def overwrite_through_a_view(lake):
    return lake["events"].kite.with_("source", "web").overwrite(events(3, 6))


@operation
def stage_an_overwrite_of_what_is_touched(lake):
    staged = lake["pings"].staged.add(pings(100, 104), "overwrite", base=lake["pings"].version)
    lake["pings"].append([{"id": 105, "channel": "esr", "build": 7}])
    return staged, lake["pings"].staged.list()


@operation
def commit_a_staged_overwrite_that_is_in_conflict(lake):
    return lake["pings"].staged.list()[0].commit()


@operation
def commit_a_staged_batch_that_fails_its_checks(lake):
    return lake["pings"].staged.list()[0].commit(checks=[checks.row_count(min=99)])


@operation
def append_beside_staged_batches(lake):
    return lake["flights"].append(flights(520, 524, day=3))


@operation
def commit_a_staged_append_with_checks(lake):
    staged = lake["flights"].staged.open(lake.staged["append"])
    return staged.commit(checks=[checks.row_count(min=1), checks.unique("id", of="dataset")])


@operation
def commit_a_staged_rerun(lake):
    return lake["flights"].staged.open(lake.staged["rerun"]).commit()


@operation
def discard_a_staged_overwrite(lake):
    return lake["flights"].staged.open(lake.staged["overwrite"]).discard()


@operation
def transaction_of_several_writes(lake):
    with lake["flights"].transaction() as t:
        count = t.where("dt = '2013-01-01'").count()
        t.overwrite([flight(600 + count, day=2)], t.where("dt = '2013-01-02'"))
        t.delete(t.where("id >= 75 AND id < 90 AND carrier = 'UA'"))
        t.append(flights(620, 622, day=1))
    return t.commit


@operation
def transaction_that_fails(lake):
    with lake["flights"].transaction() as t:
        t.append(flights(630, 634))
        raise lakebed.errors.InvalidInputError("It was not to be.", hint="Try again.")


@operation
def transaction_that_writes_nothing(lake):
    with lake["flights"].transaction() as t:
        t.count()
    return t.commit


@operation
def transaction_beside_an_append(lake):
    with lake["flights"].transaction() as t:
        t.append(flights(640, 644, day=1))
        lake["flights"].append(flights(650, 652, day=3))
    return t.commit


@operation
def transaction_whose_reads_have_changed(lake):
    with lake["flights"].transaction() as t:
        t.append([flight(660 + t.where("dt = '2013-01-03'").count())])
        lake["flights"].append(flights(670, 672, day=3))


@operation
def overwrite_that_comes_too_late(lake):
    base = lake["flights"].where("dt = '2013-01-01'")
    base.count()
    lake["flights"].append(flights(680, 682, day=1))
    return lake["flights"].overwrite(flights(690, 692, day=1), base=base)


# What the dataset is


@operation
def update_of_the_schema(lake):
    wide = [field.with_type(pa.int64()) if field.name == "distance" else field for field in FLIGHTS]
    schema = pa.schema([*wide, pa.field("gate", pa.string())])
    return lake["flights"].evolve(described(FLIGHT, schema=schema), base=lake["flights"].version)


@operation
def append_under_the_new_schema(lake):
    data = [{**one, "gate": "A1", "distance": 2**40} for one in flights(700, 708)]
    return lake["flights"].append(data, run="monday")


@operation
def update_of_a_field_with_a_default(lake):
    def edit(now: lakebed.DatasetDescriptor) -> lakebed.DatasetDescriptor:
        fields = [
            {"name": "user_id", "type": "long"},
            {"name": "kind", "type": "string"},
            {"name": "size", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "country", "type": ["null", "string"], "default": None},
            {"name": "rank", "type": "int", "default": 7},
        ]
        schema = {"type": "record", "name": "event", "fields": fields}
        return described(now, schema=schema, index=["user_id"], properties={"team": "web"})

    return lake["events"].evolve(edit)


@operation
def update_that_is_refused(lake):
    schema = pa.schema([field for field in FLIGHTS if field.name != "time"])
    return lake["flights"].evolve(described(FLIGHT, schema=schema), base=lake["flights"].version)


@operation
def update_that_changes_nothing(lake):
    return lake["flights"].evolve(lambda now: now)


@operation
def delete_under_two_schemas(lake):
    return lake["flights"].where("id >= 640 AND id < 705").delete()


def described(now: lakebed.DatasetDescriptor, **others: Any) -> lakebed.DatasetDescriptor:
    same = ("schema", "partition_by", "format", "compression", "index", "properties")
    return lakebed.DatasetDescriptor(**{**{name: getattr(now, name) for name in same}, **others})


@operation
def promote_that_only_tells(lake):
    return lake["flights"].dimensions.promote({"carrier": ["UA", "B6", "DL"]}, dry_run=True)


@operation
def promote_a_dimension(lake):
    return lake["flights"].dimensions.promote({"carrier": ["UA", "B6", "DL"]})


@operation
def promote_a_range_and_a_cap(lake):
    return lake["pings"].dimensions.promote({"build": {"min": 1, "max": 11}})


# Indices


@operation
def build_an_index(lake):
    return lake["flights"].indices.build("delay")


@operation
def build_an_index_in_several_commits(lake):
    return lake["flights"].indices.build("fare", commit_bytes=1)


@operation
def append_to_an_index(lake):
    data = [{**one, "gate": "B2"} for one in flights(720, 730)]
    return lake["flights"].append(data)


@operation
def drop_an_index(lake):
    return lake["flights"].indices.drop("delay")


@operation
def indices_are_told(lake):
    return lake["flights"].indices.list()


# Many small commits: every list merges


@operation
def twenty_small_appends(lake):
    for number in range(20):
        data = [{**one, "gate": None} for one in flights(800 + number, 801 + number)]
        last = lake["flights"].append(data, run=f"hour-{number % 4}")
    return last


@operation
def ten_small_appends_to_a_packed_head(lake):
    view = lake["events"].kite.with_("source", "web")
    for number in range(10):
        data = [{**one, "rank": number} for one in events(100 + number, 102 + number)]
        last = view.append([{k: v for k, v in one.items() if k != "note"} for one in data])
    return last


@operation
def compact_that_only_tells(lake):
    return lake["flights"].compact(dry_run=True)


@operation
def compact_some_partitions(lake):
    dataset = lake["flights"]
    return dataset.compact(dataset.where("dt = '2013-01-02'"), sort_by=["id"])


@operation
def compact_in_several_commits(lake):
    return lake["flights"].compact(commit_bytes=1)


@operation
def compact_and_gather(lake):
    return lake["events"].compact(gather=True)


@operation
def compact_of_a_capped_dimension(lake):
    lake["pings"].append(pings(24, 60), run="caps")
    return lake["pings"].compact()


@operation
def append_beyond_the_memory(lake):
    trips = lake.repository.create("trips", TRIP)
    rows = pa.table({"id": range(6_000), "car": [f"car {n * 7 % 100}" for n in range(6_000)]})
    trips.with_options(write=lakebed.WriteOptions(memory_bytes=60_000)).append(rows)
    return trips.append(rows.slice(0, 2_000), run="again")


@operation
def delete_from_many_files(lake):
    return lake["trips"].where("car = 'car 7' OR car = 'car 9'").delete()


@operation
def compact_of_many_partitions(lake):
    return lake["trips"].compact(sort_by="id")


@operation
def compact_metadata_that_only_tells(lake):
    return lake["flights"].compact(metadata=True, dry_run=True)


@operation
def compact_metadata(lake):
    return lake["flights"].compact(metadata=True)


@operation
def compact_metadata_of_a_packed_head(lake):
    return lake["events"].compact(metadata=True)


# Going back, protecting


@operation
def rollback_to_a_version(lake):
    return lake["flights"].rollback(version=lake["flights"].version - 12)


@operation
def rollback_of_a_view(lake):
    dataset = lake["flights"]
    return dataset.rollback(version=dataset.version - 1, view=dataset.where("dt = '2013-01-03'"))


@operation
def rollback_that_changes_nothing(lake):
    return lake["flights"].rollback(version=lake["flights"].version)


@operation
def rollback_to_a_time(lake):
    return lake["trips"].rollback(time=lake["trips"].history()[3].committed_at)


@operation
def rollback_over_a_promotion_is_refused(lake):
    return lake["pings"].rollback(time=BEGIN + 14 * HOUR)


@operation
def protect_a_version(lake):
    return lake["flights"].protections.add(version=7, reason="audit")


@operation
def protect_a_batch_for_a_while(lake):
    batch = lake["flights"].batches()[0].batch_id
    until = BEGIN + dt.timedelta(days=30)
    return lake["flights"].protections.add(batch_id=batch, reason="the first", until=until)


@operation
def protect_again_and_unprotect(lake):
    dataset = lake["flights"]
    dataset.protections.add(version=9, reason="for a moment")
    return dataset.protections.remove(version=9)


@operation
def versions_and_batches_are_told(lake):
    dataset = lake["flights"]
    last = dataset.version
    return dataset.history(), dataset.batches(), dataset.files(), dataset.diff(last - 3, last)


# Raw files


@operation
def load_a_named_run(lake):
    lake.put_raw("csv/a.csv", "sensor,n,value", "north,1,0.5", "south,2,", "north,x,1.5")
    lake.put_raw("csv/b.csv", "sensor,n,value", "east,3,2.5")
    lake.repository.create("readings", READINGS)
    return lake["readings"].load(f"{RAW}/csv/", run="2026-03")


@operation
def load_it_again(lake):
    return lake["readings"].load(f"{RAW}/csv/", run="2026-03")


@operation
def load_without_a_name(lake):
    lake.put_raw("json/a.jsonl", {"sensor": "west", "n": 4, "value": 1}, "{broken", {"n": "five"})
    return lake["readings"].load(f"{RAW}/json/a.jsonl")


@operation
def load_that_is_refused(lake):
    options = lakebed.LoadOptions(fail_on_rejects=True)
    return lake["readings"].load(f"{RAW}/json/a.jsonl", run="strict", options=options)


@operation
def load_after_an_empty_rerun(lake):
    lake["readings"].rerun([], run="2026-03", replace_all=True)
    return lake["readings"].load(f"{RAW}/csv/", run="2026-03")


def readings(first: int, end: int, **others: Any) -> list[dict[str, Any]]:
    names = ["north", "south", "east"]
    return [
        {"sensor": names[number % 3], "n": number, "value": number / 4, **others}
        for number in range(first, end)
    ]


@operation
def ingest_raw_files(lake):
    lake.put_raw("readings/a.jsonl", *readings(0, 20), {"sensor": "north", "n": "no number"})
    lake.put_raw("readings/b.jsonl", *readings(20, 40))
    lake.put_raw("readings/c.jsonl", *readings(40, 50), "broken", "also broken")
    return lake.ingest().run()


@operation
def ingest_finds_nothing_new(lake):
    return lake.ingest().run()


@operation
def ingest_a_file_in_place_of_another(lake):
    lake.put_raw("readings/a.jsonl", *readings(0, 9, value=9.5), {"sensor": "south", "n": "eight"})
    lake.put_raw("readings/d.jsonl", *readings(50, 60))
    return lake.ingest().run()


@operation
def ingest_keeps_back_what_is_mostly_unfit(lake):
    lake.put_raw("readings/b.jsonl", "what", "is", "this", *readings(20, 21))
    return lake.ingest().run()


@operation
def ingest_check(lake):
    return lake.ingest().check()


@operation
def compact_what_was_ingested(lake):
    return lake["readings"].compact()


@operation
def ingest_in_place_of_what_was_compacted(lake):
    lake.put_raw("readings/b.jsonl", *readings(20, 36, value=3.5))
    lake.put_raw("readings/c.jsonl", *readings(40, 44))
    return lake.ingest().run()


@operation
def delete_of_ingested_rows(lake):
    return lake["readings"].where("n = 21 OR n = 50").delete()


@operation
def rollback_of_an_ingest(lake):
    return lake["readings"].rollback(version=lake["readings"].version - 2)


@operation
def ingest_after_a_rollback(lake):
    return lake.ingest().run()


@operation
def ingest_of_another_name(lake):
    lake.put_raw("more/e.jsonl", *readings(70, 75))
    source = lakebed.FromFiles(paths=f"{RAW}/more/")
    return lake.ingest(name="others", source=source).run()


@operation
def compact_metadata_of_what_was_ingested(lake):
    return lake["readings"].compact(metadata=True), lake["readings"].sources.list()


# Other formats, other tools


@operation
def submissions(lake):
    dataset = lake.repository.create("submissions", SUBMISSION)
    documents = [
        {
            "uuid": f"u{n}",
            "document": json.dumps({"reason": ["crash", "idle", None][n % 3], "n": n}),
        }
        for n in range(12)
    ]
    dataset.append(documents[:6])
    dataset.append(documents[6:])
    dataset.where("reason = 'crash'").delete()
    return dataset.compact()


@operation
def records_of_avro(lake):
    dataset = lake.repository.create("records", RECORD, head_format="msgpack.zstd")
    dataset.append([{"n": n, "word": f"w{n % 5}"} for n in range(30)], run="words")
    dataset.where("word = 'w3'").delete()
    dataset.append([{"n": n, "word": None} for n in range(5, 15)], run="words")
    return dataset.compact()


@operation
def adopt_a_directory(lake):
    for path, numbers in [
        ("dt=2013-01-01/carrier=UA/000000_0", [1, 2]),
        ("dt=2013-01-01/carrier=a%2Fb/part-0.parquet", [3]),
        ("dt=2013-01-02/carrier=UA/batch_id=1449784608/000000_0", [4, 5]),
        ("dt=2013-01-02/carrier=UA/batch_id=1449784700/000000_0", [6]),
    ]:
        sink = io.BytesIO()
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), sink)
        lake.store.put(f"table/{path}", sink.getvalue())
    return lake.repository.adopt("table", partition_by="dt date, carrier")


@operation
def append_to_what_was_adopted(lake):
    data = [{"n": 7, "dt": dt.date(2013, 1, 2), "carrier": "UA"}]
    lake["table"].append(data, run="after")
    return lake["table"].where("n = 2").delete()


@operation
def compact_what_was_adopted(lake):
    return lake["table"].compact(gather=True)


@operation
def files_of_another_tool(lake):
    """As plateau does it: a file, and an entry of `partitions` in the head."""
    key = "readings.by-dataset-metadata.json"
    head = json.loads(lake.store.get(key).data)
    label = "sensor=north/batch_id=5/other"
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": pa.array([99]), "value": pa.array([0.5])}), sink)
    lake.store.put(f"readings/data/{label}.parquet", sink.getvalue())
    head["partitions"][label] = {"files": {"data": f"readings/data/{label}.parquet"}}
    lake.store.put(key, json.dumps(head).encode())
    return lake["readings"].append(readings(80, 82))


@operation
def check_and_index_files_of_another_tool(lake):
    found = lake["readings"].check(repair=True)
    return found, lake["readings"].where("n = 99").count()


# The head's format


@operation
def hand_over_to_a_packed_head(lake):
    return lake.command("compact", f"{LAKE}/flights", "--head", "msgpack")


@operation
def append_to_the_moved_head(lake):
    data = [{**one, "gate": "C3"} for one in flights(900, 906)]
    return lake["flights"].append(data)


@operation
def hand_over_to_a_json_head(lake):
    return lake.command("compact", f"{LAKE}/flights", "--head", "json")


# Upkeep


@operation
def cleanup_that_only_tells(lake):
    return lake["flights"].cleanup("60h")


@operation
def cleanup(lake):
    return lake["flights"].cleanup("60h", dry_run=False)


@operation
def cleanup_of_what_was_ingested(lake):
    return lake["readings"].cleanup("6h", dry_run=False)


@operation
def compact_metadata_after_a_cleanup(lake):
    return lake["flights"].compact(metadata=True)


@operation
def check_of_everything(lake):
    names = lake.repository.list()
    return [(name, lake[name].check(deep=True).findings) for name in names]


@operation
def check_that_repairs_lost_facts(lake):
    doomed = next(info.key for info in lake.store.list("pings/files/"))
    lake.store.delete([doomed, "pings/data/_common_metadata"])
    return lake["pings"].check(repair=True)


@operation
def check_that_repairs_lost_postings(lake):
    lake.store.delete([next(info.key for info in lake.store.list("records/postings/word/"))])
    return lake["records"].check(repair=True)


@operation
def append_after_repairs(lake):
    lake["pings"].append(pings(30, 36))
    return lake["records"].append([{"n": 3, "word": "w"}])


@operation
def unprotect_and_clean_up_again(lake):
    lake["flights"].protections.remove(version=7)
    return lake["flights"].cleanup("30h", dry_run=False)


@operation
def drop(lake):
    return lake.repository.drop("events")


@operation
def create_a_namesake(lake):
    lake.repository.create("events", EVENT, head_format="msgpack.zstd")
    return lake["events"].kite.with_("source", "web").append(events(0, 3))


# Races, and stores that fail


def trips(first: int, end: int) -> list[dict[str, Any]]:
    return [{"id": number, "car": f"car {number % 9}"} for number in range(first, end)]


@operation
def append_that_loses_a_race(lake):
    lake.store.first = lambda: lake["trips"].append(trips(7_000, 7_010), run="faster")
    return lake["trips"].append(trips(7_010, 7_020), run="slower")


@operation
def append_whose_answer_is_lost(lake):
    lake.store.loses_answer = True
    return lake["trips"].append(trips(7_020, 7_030))


@operation
def overwrite_that_loses_a_race_to_a_conflict(lake):
    lake.store.first = lambda: lake["trips"].append(trips(7_030, 7_040))
    return lake["trips"].overwrite(trips(7_040, 7_050), run="never")


@operation
def delete_that_loses_a_race_to_a_conflict(lake):
    lake.store.first = lambda: lake["trips"].append(trips(7_050, 7_060))
    return lake["trips"].where("id < 100").delete()


@operation
def compact_that_loses_a_race_to_a_delete(lake):
    lake.store.first = lambda: lake["trips"].where("car = 'car 3' AND id > 7000").delete()
    return lake["trips"].compact()


@operation
def rerun_that_loses_a_race_to_an_update(lake):
    properties = {"owner": "fleet"}
    lake.store.first = lambda: lake["trips"].evolve(
        described(TRIP, properties=properties), base=lake["trips"].version
    )
    return lake["trips"].rerun(trips(7_060, 7_070), run="faster", replace_all=True)


@operation
def protect_that_loses_a_race(lake):
    lake.store.first = lambda: lake["trips"].append(trips(7_070, 7_071))
    return lake["trips"].protections.add(version=2, reason="audit")


@operation
def compact_metadata_that_loses_a_race(lake):
    lake.store.first = lambda: lake["trips"].append(trips(7_071, 7_072))
    return lake["trips"].compact(metadata=True)


@operation
def append_to_a_store_that_fails(lake):
    """Nothing is left of an append one request of which fails; the others are done."""
    told = []
    for matching in ("/batches/", "/data/", "/files/", "/postings/", "/history/", *HEADS[:1]):
        for fail_on in ("create", "put", "put_stream", "replace"):
            error = StorageError("The store is broken.", retryable=False)
            store = FailingStore(lake.store, fail_on=fail_on, matching=matching, error=error)
            try:
                lakebed.Repository(store).open("trips").append(trips(8_000, 8_005))
            except LakebedError as exc:
                told.append(f"{matching} {fail_on}: {type(exc).__name__}")
    return told


# An archive


@operation
def ingest_from_an_archive(lake):
    return archived(lake, None, {"a": readings(0, 10), "b": readings(10, 20)})


@operation
def ingest_from_an_archive_by_path(lake):
    return archived(lake, "path", {"a": readings(0, 12), "c": [*readings(20, 25), {"n": "x"}]})


@operation
def merge_into_what_is_there(lake):
    known = [{**flight(number), "delay": -1.5, "carrier": "B6"} for number in range(40, 46)]
    changes = [{**one, "op": "D" if one["id"] == 41 else "U"} for one in known]
    changes += [{**one, "op": "U"} for one in flights(900, 903)]
    return lake["flights"].merge(
        changes,
        "id",
        delete_where="source.op = 'D'",
        update_where="target.delay IS NULL OR source.delay < target.delay",
        missing="update",
        missing_where="target.id IN (60, 61) AND target.carrier IS NOT NULL",
        missing_update={"distance": "target.distance + 1", "booked": "'2013-01-01'"},
        run="changes",
    )


@operation
def merge_that_changes_nothing(lake):
    return lake["flights"].merge(flights(900, 903), "id", matched="ignore")


@operation
def merge_that_only_tells(lake):
    return lake["trips"].merge([{"id": 1, "car": "a"}], on=["id"], dry_run=True)


@operation
def rerun_of_a_merge(lake):
    return lake["flights"].rerun([], "changes", replace_all=True)


def archived(lake: Lake, supersede: str | None, contents: dict[str, list[Any]]) -> object:
    """Push raw files, and ingest what there is by then."""
    archive = lakebed.open_archive(RAW, index=f"sqlite://{lake.index}")
    for name, rows in contents.items():
        data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
        archive.push(
            io.BytesIO(data), where="nyc", what=name, start="2026-03-01", path=f"/log/{name}.jsonl"
        )
    reports = []
    for name in contents:
        source = lakebed.FromArchive(
            storage=RAW,
            index=f"sqlite://{lake.index}",
            what=name,
            start="2026-01-01",
            end="2026-12-31",
            supersede=supersede,
        )
        told = {"into": f"{LAKE}/archived", "source": source, "format": "json"}
        reports.append(lake.ingest(name=f"archive-{name}", **told).run())
    return reports


# Tables of other formats


class Shared(DelegatingStore):
    """The lake by a name that other processes could use, as Iceberg's metadata wants one."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.uri, self.is_shared = "s3://lake", True


def shown(lake: Lake) -> lakebed.Dataset:
    return lakebed.Repository(Shared(lake.store)).open("shown")


@operation
def create_what_is_to_be_published(lake):
    schema = pa.schema([*FLIGHTS][:-2])
    lake.repository.create(
        "shown",
        lakebed.DatasetDescriptor(
            schema=schema, partition_by=[by.date("time", name="dt"), by.identity("carrier")]
        ),
    )
    rows = [{name: row[name] for name in schema.names} for row in flights(0, 60)]
    return lake["shown"].append([*rows, {**rows[0], "carrier": "ü/%=", "delay": None}], run="a")


@operation
def publish_to_delta(lake):
    return shown(lake).publish("delta")


@operation
def publish_to_iceberg(lake):
    return shown(lake).publish("iceberg")


@operation
def publish_what_a_merge_has_changed(lake):
    lake["shown"].merge([{"id": 1, "delay": 2.5}], "id", not_matched="ignore")
    return shown(lake).publish("delta"), shown(lake).publish("iceberg")


@operation
def publish_what_a_rerun_has_replaced(lake):
    names = lake["shown"].arrow().schema.names
    lake["shown"].rerun([{name: flight(99)[name] for name in names}], run="a", replace_all=True)
    return shown(lake).publish("delta"), shown(lake).publish("iceberg")


@operation
def publish_with_a_new_field(lake):
    now = lake["shown"].descriptor
    schema = pa.schema([*FLIGHTS][:-1])
    lake["shown"].evolve(
        lakebed.DatasetDescriptor(schema=schema, partition_by=now.partition_by),
        base=lake["shown"].version,
    )
    return shown(lake).publish("delta"), shown(lake).publish("iceberg")


@operation
def publish_what_is_in_step(lake):
    return shown(lake).publish("delta"), shown(lake).publish("iceberg")


@operation
def publish_a_checkpoint(lake):
    rows = [flight(98), {**flight(98), "carrier": None}]
    names = lake["shown"].arrow().schema.names
    lake["shown"].append([{name: row[name] for name in names} for row in rows])
    with mock.patch.object(to_delta, "COMMITS_A_CHECKPOINT", 1):
        return shown(lake).publish("delta")


@operation
def clean_up_what_is_published(lake):
    return shown(lake).cleanup("0s", dry_run=False, clock_skew="0s")


@operation
def unpublish_iceberg_and_delta(lake):
    return shown(lake).unpublish("iceberg"), shown(lake).unpublish("delta")


# Telling what was done


@dataclass(frozen=True)
class Done:
    """What an operation has left."""

    operation: str
    written: dict[str, bytes]
    removed: list[str]
    result: str
    requests: str


def run() -> Iterator[Done]:
    """Do all operations."""
    with (
        tempfile.TemporaryDirectory() as folder,
        fixed_world() as (ids, traveller),
        Calls.told() as calls,
    ):
        lake = Lake(Path(folder, "archive.db"))
        before: dict[str, bytes] = {}
        for number, (name, function) in enumerate(OPERATIONS):
            ids.begin(name)
            began = BEGIN + number * HOUR
            traveller.move_to(began, tick=False)
            lake.store.reset()
            calls.counts.clear()
            try:
                result = _DURATION.sub("duration_s=0", repr(function(lake)))
            except LakebedError as exc:
                result = f"{type(exc).__name__}: {exc}"
            requests = f"{lake.store.reset()}\n{calls.take()}"
            now = lake.objects(before, began)
            written = {key: data for key, data in now.items() if before.get(key) != data}
            removed = sorted(before.keys() - now.keys())
            yield Done(name, written, removed, result, requests)
            before = now


_DURATION = re.compile(r"duration_s=[0-9.e-]+")


def listing() -> list[str]:
    """Return a line for each folder in which an operation has written or removed something.

    It has the number of objects, and a digest of their names and of what they say.
    """
    lines = []
    for done in run():
        folders: dict[str, list[str]] = {}
        for key, data in done.written.items():
            text = f"{name_without_sizes(key)} {decoded(key, data)}"
            folders.setdefault(_folder(key), []).append(text)
        for key in done.removed:
            folders.setdefault(_folder(key), []).append(f"{name_without_sizes(key)} removed")
        for folder, texts in sorted(folders.items()):
            digest = hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]
            lines.append(f"{done.operation} {folder} {len(texts)} {digest}")
    return lines


def _folder(key: str) -> str:
    return "/".join(key.split("/")[:-1][:2]) or key


def main(folder: Path, *, is_decoded: bool) -> None:
    """Leave what operations write in a folder, and list it."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # which is the order of sets
        os.execve(
            sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    shutil.rmtree(folder, ignore_errors=True)
    for done in run():
        here = folder / done.operation
        told = {
            "~result": done.result,
            "~requests": done.requests,
            "~removed": "\n".join(done.removed),
        }
        objects = {name: f"{text}\n".encode() for name, text in told.items()}
        for key, data in done.written.items():
            objects[key] = f"{decoded(key, data)}\n".encode() if is_decoded else data
        for key, data in sorted(objects.items()):
            path = here / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print(done.operation, key, hashlib.sha256(data).hexdigest())  # noqa: T201


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--listing"]:
            sys.stdout.writelines(f"{line}\n" for line in listing())
        case [folder, *options] if folder[:1] != "-" and set(options) <= {"--decoded"}:
            main(Path(folder), is_decoded=bool(options))
        case _:
            raise SystemExit(__doc__)
