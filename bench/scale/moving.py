"""The move of a dataset of many real files from a document to a tree and back, beside writers.

    python bench/scale/moving.py [--files 1000000] [--writers 4] [--seconds 20]

Every label is that of a data file: the first file is written as any other, the others are links to
its content in directories of their own, committed with their facts and manifests. Then processes
append all the time, and one reads, while the head becomes a tree, and a document again. At the end
each acknowledged row must be there once, the versions must follow each other, and a check must find
no problem. Prints the figures as JSON lines; fails if anything is missing.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime as dt
import hashlib
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import layout
import pyarrow as pa

import lakebed
from lakebed import Dataset, open_repository
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.state.facts import facts_schema
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.store import open_store

NAME = "t"
SCHEMA = pa.schema([("day", pa.date32()), ("writer", pa.int64()), ("number", pa.int64())])
FILES_A_BATCH = 100_000
LINKS_OF_A_FILE = 30_000  # a file system has a limit for them
ROWS_OF_AN_APPEND = 3
APPENDED_DAY = layout.FIRST_DAY - dt.timedelta(days=1)
# A writer that waits for its turn behind heads of 20 MB is no failure.
PATIENT = lakebed.CommitOptions(deadline_s=1_800)


def prepare(location: str, count: int) -> Dataset:
    """Make a dataset of a document with so many files."""
    repository = open_repository(location)
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="day")
    dataset = repository.create(NAME, descriptor, head_format=HeadFormat.MSGPACK)
    first = pa.table({"day": [layout.FIRST_DAY], "writer": [-1], "number": [0]}, schema=SCHEMA)
    dataset.append(first)
    (written,) = dataset.files()
    content = (Path(location) / written.key).read_bytes()
    for files in layout.batches(count - 1, FILES_A_BATCH):
        _commit_links(repository, location, content, files)
    return repository.open(NAME)


def _commit_links(
    repository: lakebed.Repository, location: str, content: bytes, files: range
) -> None:
    with Transaction.begin(repository.store, NAME, "append") as transaction:
        names = transaction.base.layout
        labels = [
            f"day={layout.day_of(file)}/batch_id={transaction.batch_id}/part-{uuid.uuid4().hex}"
            for file in files
        ]
        source = Path()
        for at, label in enumerate(labels):
            path = Path(location) / names.key(label)
            if at % LINKS_OF_A_FILE == 0:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                source = path
                continue
            try:
                os.link(source, path)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, path)
        schema = facts_schema(transaction.base.descriptor.stored_schema)
        stats = schema.field("stats").type
        value = {field.name: {"min": -1, "max": -1, "null_count": 0} for field in stats}
        if "number" in value:
            value["number"] = {"min": 0, "max": 0, "null_count": 0}
        facts = pa.table(
            {
                "label": labels,
                "row_count": [1] * len(labels),
                "size_bytes": [len(content)] * len(labels),
                "checksum": [f"sha256:{hashlib.sha256(content).hexdigest()}"] * len(labels),
                "stats": pa.array([value] * len(labels), stats),
            },
            schema=schema,
        )
        transaction.add(Written(facts=facts))
        transaction.commit()


def write(location: str, writer: int, record: str, stop: str) -> None:
    """Append until a file appears, and record what was acknowledged."""
    writer, numbers = time.time_ns() + writer, 0  # so that it is another one in each run
    with Path(record).open("w") as told:
        while not Path(stop).exists():
            rows = range(numbers, numbers + ROWS_OF_AN_APPEND)
            numbers = rows.stop
            table = pa.table(
                {
                    "day": [APPENDED_DAY] * len(rows),
                    "writer": [writer] * len(rows),
                    "number": list(rows),
                },
                schema=SCHEMA,
            )
            began, clock = time.time(), time.perf_counter()
            line: dict[str, Any] = {"at": began, "writer": writer, "first": rows.start}
            try:
                # Opened anew each time, as jobs do.
                dataset = open_repository(location).open(NAME).with_options(commit=PATIENT)
                line["version"] = dataset.append(table).version
            except lakebed.errors.LakebedError as exc:
                line["error"] = f"{type(exc).__name__}: {exc}"
            line["s"] = time.perf_counter() - clock
            told.write(json.dumps(line) + "\n")
            told.flush()


def read(location: str, files: int, record: str, stop: str) -> None:
    """Open, count and plan a day until a file appears, and record it."""
    version, day = 0, layout.day_to_ask(files)
    with Path(record).open("w") as told:
        while not Path(stop).exists():
            line: dict[str, Any] = {"at": time.time()}
            clock = time.perf_counter()
            try:
                dataset = open_repository(location).open(NAME)
                planned = len(dataset.kite.with_("day", day).plan())
                line |= {
                    "version": dataset.version,
                    "tree": read_head(open_store(location), NAME).state.is_tree,
                }
                if planned != layout.FILES_A_DAY or dataset.version < version:
                    line["error"] = f"{planned} files of a day, version after {version}"
                version = dataset.version
            except lakebed.errors.LakebedError as exc:
                line["error"] = f"{type(exc).__name__}: {exc}"
            line["s"] = time.perf_counter() - clock
            told.write(json.dumps(line) + "\n")
            told.flush()
            time.sleep(0.2)


@contextlib.contextmanager
def others(location: str, files: int, writers: int, scratch: Path) -> Iterator[dict[str, Path]]:
    """Let processes write and read meanwhile; yield the files of what they record."""
    stop = scratch / "stop"
    records = {f"writer {number}": scratch / f"writer-{number}" for number in range(writers)}
    records["reader"] = scratch / "reader"
    running = []
    for at, (name, record) in enumerate(records.items()):
        given = ["read", location, str(files)] if name == "reader" else ["write", location, str(at)]
        command = [sys.executable, __file__, *given, str(record), str(stop)]
        running.append(subprocess.Popen(command))
    try:
        yield records
    finally:
        stop.touch()
        codes = [one.wait() for one in running]
    if any(codes):
        message = f"a writer or the reader has failed: {codes}"
        raise RuntimeError(message)


def move(location: str, head: str) -> dict[str, Any]:
    """Change the head, in a process of its own."""
    command = [sys.executable, __file__, "move", location, head]
    before = os.times()
    began = time.time()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ended, after = time.time(), os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    told = {"head": head, "s": ended - began, "cpu_s": cpu, "code": done.returncode}
    told["retries"] = done.stderr.count("commit retries")
    if done.returncode:
        told["stderr"] = done.stderr[-2_000:]
    return told | {"from": began, "to": ended}


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return what a process has recorded."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def appended(dataset: Dataset) -> tuple[int, collections.Counter[tuple[int, int]]]:
    """Return the number of all rows, and those that writers have appended."""
    rows = dataset.kite.with_("day", APPENDED_DAY).arrow()
    pairs = zip(rows["writer"].to_pylist(), rows["number"].to_pylist(), strict=True)
    return dataset.count(), collections.Counter(pairs)


def problems(
    location: str,
    records: dict[str, Path],
    before: tuple[int, collections.Counter[tuple[int, int]]],
) -> list[str]:
    """Return what is wrong at the end, given what was there at the beginning."""
    dataset = open_repository(location).open(NAME)
    found = []
    lines = {name: lines_of(path) for name, path in records.items()}
    found += [
        f"{name}: {one['error']}" for name, of in lines.items() for one in of if "error" in one
    ]
    acknowledged: collections.Counter[tuple[int, int]] = collections.Counter()
    versions = []
    for one in itertools.chain(*(of for name, of in lines.items() if name != "reader")):
        if "version" in one:
            versions.append(one["version"])
            for number in range(one["first"], one["first"] + ROWS_OF_AN_APPEND):
                acknowledged[one["writer"], number] += 1
    count, there = appended(dataset)
    there -= before[1]
    if there != acknowledged:
        lost, more = acknowledged - there, there - acknowledged
        found.append(f"{len(lost)} acknowledged rows are lost, {len(more)} are there too often")
    if len(set(versions)) != len(versions):
        found.append("two appends have one version")
    history = [one.version for one in dataset.history()]
    if history != list(range(dataset.version + 1)):
        found.append(f"the history has {len(history)} entries at version {dataset.version}")
    wanted = before[0] + sum(acknowledged.values())
    if count != wanted:
        found.append(f"{count} rows, and not {wanted}")
    report = dataset.check()
    found += [f"check: {one}" for one in report.problems]
    return found


def _say(**figures: Any) -> None:
    sys.stdout.write(json.dumps(figures, default=str) + "\n")
    sys.stdout.flush()


def _phase(name: str, records: dict[str, Path], began: float, ended: float) -> None:
    """Print how often writers and reader were done in a time, and how long they took."""
    for who in ("writer", "reader"):
        took = [
            one["s"]
            for label, path in records.items()
            if label.startswith(who)
            for one in lines_of(path)
            if began <= one["at"] + one["s"] < ended
        ]
        if took:
            _say(
                phase=name,
                who=who,
                seconds=round(ended - began, 1),
                done=len(took),
                median_s=round(statistics.median(took), 3),
                most_s=round(max(took), 2),
            )


def main() -> None:
    """Make the dataset, move it, and print figures and problems."""
    if sys.argv[1:2] == ["write"]:
        logging.getLogger("lakebed").setLevel(logging.ERROR)
        write(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
        return
    if sys.argv[1:2] == ["move"]:
        dataset = open_repository(sys.argv[2]).open(NAME).with_options(commit=PATIENT)
        dataset.compact(head=sys.argv[3])
        return
    if sys.argv[1:2] == ["read"]:
        logging.getLogger("lakebed").setLevel(logging.ERROR)
        read(sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--place", help="a directory, whose dataset is used again if there is one")
    parser.add_argument("--seconds", type=float, default=20, help="before, between and after")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lakebed-moving-") as directory:
        scratch = Path(directory)
        location = given.place or str(scratch / "lake")
        Path(location).mkdir(exist_ok=True)
        began = time.time()
        if not open_repository(location).exists(NAME):
            prepare(location, given.files)
        before = appended(open_repository(location).open(NAME))
        _say(prepared=given.files, s=round(time.time() - began, 1))
        with others(location, given.files, given.writers, scratch) as records:
            edges = [time.time()]
            phases = []
            for head in ("tree", "document"):
                time.sleep(given.seconds)
                moved = move(location, head)
                _say(**moved)
                phases += [(f"before {head}", edges[-1], moved["from"])]
                phases += [(f"move to {head}", moved["from"], moved["to"])]
                edges.append(moved["to"])
            time.sleep(given.seconds)
            phases.append(("after", edges[-1], time.time()))
        for name, start, end in phases:
            _phase(name, records, start, end)
        found = problems(location, records, before)
        version = open_repository(location).open(NAME).version
        _say(version=version, problems=found[:20], number=len(found))
        if found:
            sys.exit(1)


if __name__ == "__main__":
    main()
