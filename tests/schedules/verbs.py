"""What actors do: real public verbs, with choices drawn from the salt of their step."""

from __future__ import annotations

import atexit
import datetime as dt
import functools
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from inside import cached_state_of, is_pinned

import lakebed
from lakebed import by
from lakebed.errors import LakebedError
from lakebed.state.committing import CommitOptions
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from schedules.world import Actor, Attempt, Step

NAME = "d"
LEVEL = "c_dimension"
AT_FIRST = ("a", "d")  # values of `c` that have partitions of their own from the start
VALUES = ("a", "b", "d", "x")
RUNS = ("monday", "tuesday")
ROOT = "s3://lake"  # as readers of Iceberg would spell the memory that all is in
SCHEMA = pa.schema([("c", pa.string()), ("n", pa.int64()), ("k", pa.int64())])

EPOCH_ROWS = {
    number: {"c": value, "n": number, "k": number % 3}
    for number, value in ((7001, "a"), (7002, "x"))
}
RAW_ROWS = {
    number: {"c": value, "n": number, "k": number % 3}
    for number, value in ((9001, "a"), (9002, "x"), (9003, "d"))
}
BROKEN_LINE = "broken"
RAW_LINES = {
    "one.jsonl": [*(json.dumps(RAW_ROWS[n]) for n in (9001, 9002)), BROKEN_LINE],
    "two.jsonl": [json.dumps(RAW_ROWS[9003])],
}

# `Rows` are what a verb was given, by their id.
Rows = dict[int, dict[str, Any]]


@dataclass
class Doing:
    """A verb while it is done: who does it, with what luck, and what is noted of it."""

    actor: Actor
    rng: random.Random
    attempt: Attempt

    @property
    def repository(self) -> lakebed.Repository:
        return lakebed.Repository(self.actor.store)

    def open(self) -> lakebed.Dataset:
        return self.repository.open(NAME)

    def note(self, **what: Any) -> None:
        self.attempt.intent.update(what)

    def answered(self, answer: Any) -> None:
        self.attempt.answers.append(answer)

    @property
    def options(self) -> CommitOptions:
        return CommitOptions(deadline_s=self.rng.choice([0.5, 5.0, 120.0]))

    def rows(self, values: Sequence[str] | None = None, *, dataset: lakebed.Dataset) -> list[Any]:
        """Make rows that nobody else has, of some values of `c`."""
        chosen = self.rng.sample(
            values or VALUES, self.rng.randint(1, min(2, len(values or VALUES)))
        )
        extra = [
            name for name in cached_state_of(dataset).descriptor.schema.names if name[0] == "f"
        ]
        rows: Rows = {}
        for value in chosen:
            for _ in range(self.rng.randint(1, 2)):
                number = self.actor.number("rows")
                rows[number] = {"c": value, "n": number, "k": number % 3}
                rows[number] |= dict.fromkeys(extra, number * 10)
        self.note(rows=rows)
        return list(rows.values())


def play(actor: Actor, step: Step, attempt: Attempt) -> None:
    """Do the verb of a step."""
    VERBS[step.verb](Doing(actor, random.Random(step.salt), attempt))


def create(doing: Doing) -> None:
    index = ("k",) if doing.rng.random() < 0.3 else ()
    head_format: Any = doing.rng.choice(["json", "msgpack.zstd"])
    doing.note(index=index, head_format=head_format)
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("c", list(AT_FIRST))], index=index
    )
    doing.repository.create(NAME, descriptor, head_format=head_format)


def create_tree(doing: Doing) -> None:
    doing.note(index=(), head_format="msgpack.zstd")
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("c", list(AT_FIRST))]
    )
    doing.repository.create(NAME, descriptor, head="tree")


def drop(doing: Doing) -> None:
    doing.repository.drop(NAME)


def append(doing: Doing) -> None:
    dataset = doing.open()
    run = doing.rng.choice([None, *RUNS])
    doing.note(run=run)
    rows = doing.rows(dataset=dataset)
    commit = dataset.with_options(commit=doing.options).append(rows, run=run)
    doing.actor.last_append = (commit, doing.attempt.intent["rows"], run)
    doing.answered(commit)


def append_lost(doing: Doing) -> None:
    """Append what an actor that was killed has not appended, after a look for it."""
    killed = [one for one in doing.actor.world.attempts if one.outcome == "killed"]
    rows = killed[-1].intent.get("rows") if killed else None
    dataset = doing.open()
    if rows and not rows.keys() & set(dataset.arrow(["n"])["n"].to_pylist()):
        doing.note(rows=rows)
        doing.answered(dataset.append(list(rows.values())))


def overwrite(doing: Doing) -> None:
    dataset = doing.open()
    rows = doing.rows(dataset=dataset)
    doing.note(replaces="touched")
    doing.answered(dataset.with_options(commit=doing.options).overwrite(rows))


def overwrite_view(doing: Doing) -> None:
    dataset = doing.open()
    levels = doing.rng.sample(["a", "d", "OTHER"], doing.rng.randint(1, 2))
    doing.note(replaces=tuple(levels), rows={})
    rows: list[Any] = []
    values = [one for one in levels if one != "OTHER"]
    if values and doing.rng.random() < 0.6:
        rows = doing.rows(values, dataset=dataset)
    view = dataset.kite.with_(LEVEL, *levels)
    doing.answered(dataset.with_options(commit=doing.options).overwrite(rows, view=view))


def transact(doing: Doing) -> None:
    """Read a partition and write to one, in a transaction."""
    dataset = doing.open()
    read, level = (doing.rng.choice(["a", "d", "OTHER"]) for _ in range(2))
    is_appending = doing.rng.random() < 0.5
    with dataset.with_options(commit=doing.options).transaction() as t:
        doing.note(reads=(read,), read_version=t.version, replaces=(), rows={})
        t.kite.with_(LEVEL, read).arrow()
        if is_appending:
            t.append(doing.rows(dataset=dataset))
        else:
            doing.note(replaces=(level,))
            rows = [] if level == "OTHER" else doing.rows([level], dataset=dataset)
            t.overwrite(rows, t.kite.with_(LEVEL, level))
    doing.answered(t.commit)


def write_from(doing: Doing) -> None:
    """Read a partition, and write to it what was made of that, by its `base`."""
    dataset = doing.open()
    level = doing.rng.choice(["a", "d", "OTHER"])
    view = dataset.kite.with_(LEVEL, level)
    read = view.snapshot()
    read.arrow()
    doing.note(read_version=read.version, rows={})
    rows = doing.rows(["x" if level == "OTHER" else level], dataset=dataset)
    if doing.rng.random() < 0.5:
        doing.answered(dataset.with_options(commit=doing.options).append(rows, base=read))
        return
    doing.note(replaces=(level,))
    doing.answered(dataset.with_options(commit=doing.options).overwrite(rows, view, base=read))


def rerun(doing: Doing) -> None:
    dataset = doing.open()
    run = doing.rng.choice(RUNS)
    doing.note(run=run, rows={})
    rows = doing.rows(dataset=dataset) if doing.rng.random() < 0.75 else []
    doing.answered(dataset.with_options(commit=doing.options).rerun(rows, run, replace_all=True))


def delete(doing: Doing) -> None:
    dataset = doing.open()
    column, value = doing.rng.choice(
        [("k", 0), ("k", 1), ("k", 2), ("c", "a"), ("c", "x"), (LEVEL, "d"), (LEVEL, "OTHER")]
    )
    doing.note(deletes=(column, (value,)))
    commit = dataset.kite.with_(column, value).with_options(commit=doing.options).delete()
    if commit is not None:
        doing.answered(commit)


def merge(doing: Doing) -> None:
    """Insert new rows and delete some that are there, by their keys."""
    dataset = doing.open()
    run = doing.rng.choice([None, *RUNS])
    doing.note(run=run)
    there = sorted(dataset.arrow(["n"])["n"].to_pylist())
    gone = doing.rng.sample(there, min(len(there), doing.rng.randint(0, 2)))
    new = doing.rows(dataset=dataset)
    doing.note(removes=tuple(gone))
    data = [{**row, "op": "I"} for row in new] + [{"n": n, "op": "D"} for n in gone]
    report = dataset.with_options(commit=doing.options).merge(
        data,
        "n",
        matched="delete",
        delete_where="source.op = 'D'",
        insert_where="source.op = 'I'",
        run=run,
    )
    if report.commit is not None:
        doing.answered(report.commit)


def undo(doing: Doing) -> None:
    """Take back what the actor has just appended: by going back, by deleting, or by a rerun."""
    last = doing.actor.last_append
    if last is None:
        return
    commit, rows, run = last
    dataset = doing.open()
    way = doing.rng.choice(["rollback", "delete", "rerun"])
    if way == "rerun" and run is not None:
        doing.note(run=run, rows={})
        doing.answered(dataset.with_options(commit=doing.options).rerun([], run, replace_all=True))
    elif way == "delete":
        doing.note(deletes=("n", tuple(rows)))
        gone = dataset.kite.with_("n", *rows).with_options(commit=doing.options).delete()
        if gone is not None:
            doing.answered(gone)
    else:
        doing.note(restores=commit.version - 1, level=None)
        gone = dataset.with_options(commit=doing.options).rollback(version=commit.version - 1)
        if gone is not None:
            doing.answered(gone)


def stage(doing: Doing) -> None:
    dataset = doing.open()
    operation: Any = doing.rng.choice(["append", "append", "overwrite", "rerun"])
    run = doing.rng.choice(RUNS) if operation == "rerun" else None
    rows = doing.rows(dataset=dataset)
    doing.note(run=run, stages=operation, replaces="touched" if operation == "overwrite" else None)
    batch = dataset.staged.add(
        rows,
        operation,
        run=run,
        replace_all=operation == "rerun",
        lease=doing.rng.choice(["2h", "7d"]),
    )
    doing.note(batch=batch.batch_id)
    doing.actor.world.notes.setdefault("staged", []).append(batch.batch_id)


def _a_batch(doing: Doing, dataset: lakebed.Dataset) -> Any:
    told = doing.actor.world.notes.get("staged", [])
    dataset = dataset.with_options(commit=doing.options)
    if told and doing.rng.random() < 0.5:
        return dataset.staged.open(doing.rng.choice(told))
    batches = dataset.staged.list()
    return doing.rng.choice(batches) if batches else None


def commit_staged(doing: Doing) -> None:
    batch = _a_batch(doing, doing.open())
    if batch is not None:
        doing.note(batch=batch.batch_id)
        doing.answered(batch.commit())


def discard_staged(doing: Doing) -> None:
    batch = _a_batch(doing, doing.open())
    if batch is not None:
        doing.note(batch=batch.batch_id)
        batch.discard()
        doing.note(discarded=batch.batch_id)


def compact(doing: Doing) -> None:
    report = (
        doing.open().with_options(commit=doing.options).compact(gather=doing.rng.random() < 0.3)
    )
    for commit in report.commits:
        doing.answered(commit)


def compact_metadata(doing: Doing) -> None:
    doing.open().with_options(commit=doing.options).compact(metadata=True)


def promote(doing: Doing) -> None:
    values = [*AT_FIRST, *doing.rng.choice([["b"], ["x"], ["b", "x"]])]
    doing.note(allows=tuple(values))
    report = doing.open().with_options(commit=doing.options).dimensions.promote({"c": values})
    if report.commit is not None:
        doing.answered(report.commit)


def rollback(doing: Doing) -> None:
    dataset = doing.open()
    version = max(0, dataset.version - doing.rng.choice((1, 1, 2, 4)))
    level = doing.rng.choice([None, None, "a", "OTHER"])
    doing.note(restores=version, level=level)
    view = None if level is None else dataset.kite.with_(LEVEL, level)
    commit = dataset.with_options(commit=doing.options).rollback(version=version, view=view)
    if commit is not None:
        doing.answered(commit)


def build_index(doing: Doing) -> None:
    column = doing.rng.choice(["k", "n"])
    doing.note(indexes=column)
    doing.open().with_options(commit=doing.options).indices.build(column)


def drop_index(doing: Doing) -> None:
    dataset = doing.open()
    indexed = cached_state_of(dataset).descriptor.index
    column = doing.rng.choice(indexed or ("k",))
    doing.note(unindexes=column)
    doing.answered(dataset.with_options(commit=doing.options).indices.drop(column))


def _updated(old: lakebed.DatasetDescriptor, **others: Any) -> lakebed.DatasetDescriptor:
    return lakebed.DatasetDescriptor(
        schema=others.get("schema", old.schema),
        partition_by=old.partition_by,
        index=old.index,
        properties=others.get("properties", old.properties),
    )


def add_field(doing: Doing) -> None:
    dataset = doing.open()
    read = dataset.snapshot()
    old = read.descriptor
    number = doing.actor.number("fields")
    doing.note(adds=f"f{number}")
    schema = lakebed.Schema(
        fields=(
            *old.schema.fields,
            *lakebed.DatasetDescriptor(
                schema=pa.schema([(f"f{number}", pa.int64())])
            ).schema.fields,
        ),
        name=old.schema.name,
    )
    commit = dataset.with_options(commit=doing.options).evolve(
        _updated(old, schema=schema), base=read
    )
    doing.answered(commit)


def set_property(doing: Doing) -> None:
    dataset = doing.open()
    read = dataset.snapshot()
    old = read.descriptor
    name, value = doing.rng.choice(["owner", "unit"]), f"{doing.rng.random():.6f}"
    doing.note(sets=(name, value))
    properties = {**old.properties, name: value}
    commit = dataset.with_options(commit=doing.options).evolve(
        _updated(old, properties=properties), base=read
    )
    doing.answered(commit)


def protect(doing: Doing) -> None:
    dataset = doing.open()
    version = max(0, dataset.version - doing.rng.randint(0, 2))
    doing.note(protects=version)
    doing.answered(
        dataset.with_options(commit=doing.options).protections.add(version=version, reason="audit")
    )


def unprotect(doing: Doing) -> None:
    dataset = doing.open()
    held = [one.version for one in dataset.protections.list() if one.version is not None]
    if held:
        version = doing.rng.choice(held)
        doing.note(unprotects=version)
        doing.answered(
            dataset.with_options(commit=doing.options).protections.remove(version=version)
        )


def cleanup(doing: Doing) -> None:
    age = doing.rng.choice(["0s", "10m", "1d"])
    doing.note(older_than=age)
    report = doing.open().with_options(commit=doing.options).cleanup(age, dry_run=False)
    doing.note(gave_up=report.version)


def move_head(doing: Doing) -> None:
    target = doing.rng.choice(list(HeadFormat))
    doing.note(moves_to=str(target))
    hand_over(doing.actor.store, NAME, target, doing.options)


def publish(doing: Doing) -> None:
    """Bring the Delta log into step, as every publication is: by one engine."""
    doing.actor.world.notes["published"] = True
    done = doing.open().publish("delta", repair=doing.rng.random() < 0.1)
    doing.note(shows=done.version)


def unpublish(doing: Doing) -> None:
    doing.open().unpublish("delta")


def publish_iceberg(doing: Doing) -> None:
    doing.actor.world.notes["iceberg"] = True
    done = doing.open().publish("iceberg", root=ROOT, repair=doing.rng.random() < 0.1)
    doing.note(shows=done.version)


def unpublish_iceberg(doing: Doing) -> None:
    doing.open().unpublish("iceberg")


def read(doing: Doing) -> None:
    dataset = doing.open()
    version = dataset.version
    if doing.rng.random() < 0.4:
        version = max(0, version - doing.rng.randint(1, 3))
        dataset = dataset.at(version=version)
    doing.note(of=version if is_pinned(dataset) else None)
    table = dataset.arrow()
    doing.note(read=sorted(table.column("n").to_pylist()))


def begin_document(doing: Doing) -> None:
    """Create what systematic schedules begin with: a dataset with an index."""
    _begin(doing)


def begin_tree(doing: Doing) -> None:
    _begin(doing, head="tree")


def begin_packed(doing: Doing) -> None:
    """Create a dataset with a packed head, which has no commit yet, and no index."""
    _begin(doing, index=(), head_format="msgpack.zstd")


def _begin(doing: Doing, index: tuple[str, ...] = ("k",), **options: Any) -> None:
    doing.note(index=index)
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("c", list(AT_FIRST))], index=index
    )
    doing.repository.create(NAME, descriptor, **options)


def change_kind(doing: Doing) -> None:
    """Change the head from a document to a tree, or back."""
    dataset = doing.open()
    kind: Any = "document" if cached_state_of(dataset).is_tree else "tree"
    commit = dataset.with_options(commit=doing.options).compact(head=kind)
    if commit is not None:
        doing.answered(commit)


def epoch(doing: Doing) -> None:
    """Commit the epoch of a query that every driver of it commits, with the same rows."""
    doing.note(epoch=1, rows=EPOCH_ROWS)
    dataset = doing.open().with_options(commit=doing.options)
    commit = dataset.sink(list(EPOCH_ROWS.values()), 1, query="numbers")
    if commit is not None:
        doing.answered(commit)


def ingest(doing: Doing) -> None:
    """Read in the raw files, which every run of the ingest finds."""
    doing.note(rows=RAW_ROWS, ingests=True)
    report = lakebed.Ingest(
        name="raw",
        into=f"memory://schedule/{NAME}",
        source=lakebed.FromFiles(paths=f"{raw_folder()}/*.jsonl", supersede="path"),
        format="json",
        max_rejects=0.9,
        commit=doing.options,
    ).run()
    doing.note(ingested=report.row_count)


@functools.cache
def raw_folder() -> str:
    """Return a folder of raw files: of two, one with a line that cannot be read."""
    folder = tempfile.TemporaryDirectory(prefix="lakebed-raw-")
    atexit.register(folder.cleanup)
    for name, lines in RAW_LINES.items():
        Path(folder.name, name).write_text("".join(f"{line}\n" for line in lines))
    return folder.name


def erase(doing: Doing) -> None:
    """Erase the first row that was ever written from all versions."""
    doing.note(erases=(1,))
    dataset = doing.open().with_options(commit=doing.options)
    report = dataset.erase({"n": [1]}, reason="asked for", grace="0s")
    doing.note(erased=not report.left)


def settle(doing: Doing) -> None:
    """Show that everybody can go on: as the last one, append and clean up."""
    dataset = doing.open()
    doing.answered(dataset.append(doing.rows(["a"], dataset=dataset)))
    # A commit of a dataset that was dropped may have landed far ahead, where only a repair looks.
    is_repairing = any(one.verb == "drop" for one in doing.actor.world.attempts)
    if "published" in doing.actor.world.notes:
        dataset.publish("delta", repair=is_repairing)
    if "iceberg" in doing.actor.world.notes:
        dataset.publish("iceberg", root=ROOT, repair=is_repairing)


def sweep(doing: Doing) -> None:
    """As the very last, by a clock that is years ahead: delete all that is dead."""
    doing.note(older_than="0s")
    doing.open().cleanup("0s", dry_run=False)


VERBS: dict[str, Callable[[Doing], None]] = {
    one.__name__: one
    for one in (
        create,
        create_tree,
        drop,
        append,
        append_lost,
        overwrite,
        overwrite_view,
        transact,
        write_from,
        rerun,
        delete,
        merge,
        undo,
        stage,
        commit_staged,
        discard_staged,
        compact,
        compact_metadata,
        promote,
        rollback,
        build_index,
        drop_index,
        add_field,
        set_property,
        protect,
        unprotect,
        cleanup,
        move_head,
        publish,
        unpublish,
        publish_iceberg,
        unpublish_iceberg,
        read,
        begin_document,
        begin_tree,
        begin_packed,
        change_kind,
        epoch,
        ingest,
        erase,
        settle,
        sweep,
    )
}

__all__ = ["VERBS", "LakebedError", "dt", "play"]
