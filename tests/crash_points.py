"""A loss of power at each change of a directory, while verbs write: what was acknowledged stays.

cd tests && python -m crash_points --results FILE    every crash point: minutes
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from power_loss import Disk, Recorder
from schedules.sections import paragraph, table

import lakebed
from lakebed import by
from lakebed.errors import DatasetNotFoundError, LakebedError

TITLE = "## Loss of power\n"
SCHEMA = pa.schema([("id", pa.int64()), ("g", pa.string()), ("v", pa.int64())])
HEADS = ("document", "tree")
Rows = list[tuple[int, str, int]]


@dataclass(frozen=True)
class Acknowledged:
    """What a verb has promised at a point of the record."""

    at: int
    verb: str
    rows: Rows | None  # None: there is no dataset


@dataclass(frozen=True)
class Tried:
    """What became of the states after a loss of power.

    Attributes:
        what: What was written.
        verbs: Verbs that were acknowledged.
        changes: Changes of names and contents that they made.
        states: Directories that were built and judged.
        wrong: What broke a promise.
    """

    what: str
    verbs: list[str]
    changes: int
    states: int
    wrong: list[str]


def rows_of(dataset: lakebed.Dataset) -> Rows:
    return sorted((row["id"], row["g"], row["v"]) for row in dataset.arrow().to_pylist())


def some(begin: int, end: int, group: str, value: int = 0) -> list[dict]:
    return [{"id": number, "g": group, "v": value} for number in range(begin, end)]


def play(recorder: Recorder, head: str) -> list[Acknowledged]:
    """Call each verb that writes, and return what each has promised."""
    recorder.root.mkdir()
    lake = lakebed.open_repository(str(recorder.root))
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.identity("g")], index=["id"]
    )
    promised: list[Acknowledged] = []

    def promise(verb: str) -> None:
        with recorder.paused():
            rows = rows_of(lake.open("t")) if lake.exists("t") else None
            promised.append(Acknowledged(len(recorder.changes), verb, rows))

    def staged() -> None:
        dataset.staged.add(some(50, 52, "f")).commit()

    def transaction() -> None:
        with dataset.transaction() as t:
            t.append(some(60, 61, "a"))
            t.overwrite(some(61, 62, "g"))

    with recorder.recording():
        dataset = lake.create("t", descriptor, head=head)
        promise("create")
        steps: dict[str, Callable[[], object]] = {
            "append": lambda: dataset.append(some(0, 4, "a")),
            "append to another partition": lambda: dataset.append(some(4, 8, "b")),
            "overwrite": lambda: dataset.overwrite(some(10, 12, "a", 1)),
            "merge": lambda: dataset.merge(some(11, 14, "a", 2), on=["id"]),
            "first run": lambda: dataset.rerun(some(20, 22, "c"), run="r1"),
            "rerun": lambda: dataset.rerun(some(21, 24, "c", 3), run="r1"),
            "compact": lambda: dataset.compact(),
            "delete": lambda: dataset.delete("id = 5"),
            "index": lambda: dataset.indices.build("v"),
            "publish": lambda: dataset.publish("delta"),
            "rollback": lambda: dataset.rollback(version=4),
            "staged": staged,
            "transaction": transaction,
            "evolve": lambda: dataset.evolve(lambda d: d.add_field("w", "long")),
            "cleanup": lambda: dataset.cleanup(older_than="0s", dry_run=False),
            "erase": lambda: dataset.erase("id = 50", reason="r", grace="0s"),
            "append after it": lambda: dataset.append(some(40, 42, "e")),
            "drop": lambda: lake.drop("t"),
        }
        for verb, step in steps.items():
            step()
            promise(verb)
    return promised


def violation(folder: Path, before: Acknowledged, after: Acknowledged) -> str | None:
    """Return what is wrong with a directory after a loss of power between two promises."""
    lake = lakebed.open_repository(str(folder))
    try:
        dataset = lake.open("t")
        rows: Rows | None = rows_of(dataset)
    except DatasetNotFoundError:
        rows = None
    except LakebedError as exc:
        return f"cannot be read: {exc}"
    if rows not in (before.rows, after.rows):
        return f"{before.rows} or {after.rows} was promised, and {rows} is there"
    if before.verb in ("erase", "append after it") and rows is not None:
        for file in folder.glob("t/data/**/batch_id=*/*.parquet"):
            if 50 in pq.read_table(file)["id"].to_pylist():
                return f"an erased row is in {file.name}"
    if rows is None:
        return None
    errors = [one for one in dataset.check(deep=True).findings if str(one.severity) == "error"]
    if errors:
        return f"check: {errors[0]}"
    dataset.append(some(90, 91, "z"))
    if rows_of(lake.open("t")) != sorted([*rows, (90, "z", 0)]):
        return "the next commit adds other rows"
    return None


def states(
    recorder: Recorder, moments: Sequence[int], target: Path
) -> Iterator[tuple[int, random.Random | None]]:
    """Build the directory as each moment may leave it: without names that no sync covers, and with some."""
    for moment in moments:
        disk = Disk(recorder.changes[:moment], recorder.contents)
        for keeps in (None, random.Random(moment)):
            disk.build(target, keeps)
            yield moment, keeps


def lose_power_of_a_dataset(folder: Path, head: str, nth: int = 1) -> Tried:
    """Lose power right after each promise of a verb, and at every nth change."""
    recorder = Recorder(folder / "lake")
    promised = play(recorder, head)
    moments = sorted({*(one.at for one in promised), *range(0, len(recorder.changes) + 1, nth)})
    wrong, count = [], 0
    for moment, keeps in states(recorder, moments, folder / "after"):
        count += 1
        done = [one for one in promised if one.at <= moment]
        before = done[-1] if done else Acknowledged(0, "nothing", None)
        after = promised[len(done)] if len(done) < len(promised) else before
        found = violation(folder / "after", before, after)
        if found is not None:
            wrong.append(f"{moment}, {after.verb}, {'some' if keeps else 'no'} names: {found}")
    verbs = [one.verb for one in promised]
    return Tried(f"dataset, {head}", verbs, len(recorder.changes), count, wrong)


def lose_power_of_an_archive(folder: Path) -> Tried:
    """Lose power at each change that pushes, retractions and deletions of raw files make."""
    recorder = Recorder(folder / "archive")
    (folder / "raw.txt").write_text("secret")
    recorder.root.mkdir()
    archive = lakebed.open_archive(str(recorder.root), index=f"sqlite:///{folder}/index.db")
    # What is there once a verb is acknowledged: before the next one is, that or what it promises.
    promised: list[tuple[int, str, frozenset[str]]] = [(0, "nothing", frozenset())]

    def promise(verb: str, *names: str) -> None:
        promised.append((len(recorder.changes), verb, frozenset(names)))

    with recorder.recording():
        record = archive.push(folder / "raw.txt", where="here", what="log", start="2026-01-01")
        promise("push", "data", "metadata")
        archive.retract(record.id, reason="wrong")
        promise("retract", "data", "metadata", record.id)
        archive.restore(record.id)
        promise("restore", "data", "metadata")
        archive.delete(record.id, reason="wrong", dry_run=False)
        promise("delete", record.id)

    wrong, count = [], 0
    for moment, _ in states(recorder, range(len(recorder.changes) + 1), folder / "after"):
        count += 1
        done = [one for one in promised if one[0] <= moment]
        (_, verb, before), after = done[-1], promised[min(len(done), len(promised) - 1)][2]
        files = (path for path in (folder / "after").rglob("*") if path.is_file())
        paths = [path for path in files if path.parent.name != "locks"]
        names = {path.name for path in paths if not path.name.endswith(".tmp")}
        lost, more = (before & after) - names, names - (before | after)
        if lost or more or (moment == done[-1][0] and names != before):
            wrong.append(f"{moment}, {verb}: {sorted(lost)} is lost, {sorted(more)} is there")
        torn = [path for path in paths if path.name == "data" and path.read_text() != "secret"]
        if torn:
            wrong.append(f"{moment}, {verb}: other content")
    verbs = [verb for _, verb, _ in promised[1:]]
    return Tried("archive of raw files", verbs, len(recorder.changes), count, wrong)


def text_of(path: Path) -> str:
    """Return the section of `docs/reliability.md`."""
    results = json.loads(path.read_text(encoding="utf-8"))
    tried = [Tried(**one) for one in results["tried"]]
    verbs = ", ".join(dict.fromkeys(verb for one in tried for verb in one.verbs))
    return "".join(
        [
            TITLE,
            "\n",
            paragraph(
                f"Every change of names and contents that verbs make in a directory is recorded: {verbs}. Power is "
                "lost after each of these changes. What is left is what POSIX promises and nothing more: the content of "
                "a file by its own sync, a name by a sync of its directory. A name that was removed is back until that "
                "directory is synced. Each state is built twice: without all names that no sync covers, and with the first "
                "few of each directory, as many as chance says."
            ),
            paragraph(
                "What was acknowledged before must be whole: rows, drops, retractions, deletions and erasures. What was not "
                "must be there as a whole or not at all. `check --deep` must find no error, and the next commit must add its "
                f"rows and no others. Python {results['python']} on {results['machine']}, {results['day']}:"
            ),
            table(
                ("what is written", "verbs", "changes", "states judged", "that broke a promise"),
                [
                    (one.what, len(one.verbs), one.changes, one.states, len(one.wrong))
                    for one in tried
                ],
            ),
            "\n",
            paragraph(
                "`make test` judges every fortieth change, and `make thorough` each one. To repeat the run: `make "
                "reliability`, or `cd tests && python -m crash_points --results FILE`."
            ),
        ]
    )


def _main() -> None:
    parser = argparse.ArgumentParser(prog="crash_points", description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    given = parser.parse_args()
    tried = []
    with tempfile.TemporaryDirectory() as folder:
        for head in HEADS:
            (Path(folder) / head).mkdir()
            tried.append(lose_power_of_a_dataset(Path(folder) / head, head))
        tried.append(lose_power_of_an_archive(Path(folder)))
    for one in tried:
        sys.stdout.write(f"{one.what}: {one.states} states, {len(one.wrong)} broke a promise\n")
        sys.stdout.writelines(f"  {text}\n" for text in one.wrong)
    document = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "day": time.strftime("%Y-%m-%d"),
        "tried": [vars(one) for one in tried],
    }
    given.results.parent.mkdir(parents=True, exist_ok=True)
    given.results.write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    _main()
