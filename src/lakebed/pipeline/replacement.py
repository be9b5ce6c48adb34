"""Taking out the rows of raw files that others have taken the place of.

A commit notes of which raw file each row of a data file is. So the data files that hold rows of a
replaced raw file are known without a look at them; they are written anew without these rows, in
the same commit that brings the new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from lakebed.arrow import scan
from lakebed.arrow.kernel import BatchTarget, KernelWriter
from lakebed.batches.rollback import OPERATION as ROLLBACK
from lakebed.errors import InvalidInputError
from lakebed.index.postings import keys_of, postings_in
from lakebed.model.keys import partition_of_label
from lakebed.model.predicate import TRUE
from lakebed.plan.plan import DataFile, plan
from lakebed.state import file_table, history
from lakebed.state.caps import concat_facts
from lakebed.state.facts import facts_schema
from lakebed.state.history import Entry
from lakebed.state.runs import REWRITING
from lakebed.state.sources import Runs, SourceFile, Sources
from lakebed.state.state import State
from lakebed.store.base import Store, delete_or_leave

OPERATION = "ingest"
# These note of which raw files the rows are that they write anew.
_TRACKED = REWRITING | {OPERATION}


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Rows that are taken out, and what was left of their data files.

    Attributes:
        facts: Of the data files that were written anew.
        runs: Of which raw files their rows are.
        labels: Of the data files that are taken out.
        carried: Which runs they are of.
        carried_count: Rows that were written anew.
    """

    facts: pa.Table
    runs: Mapping[str, Runs] = field(default_factory=dict)
    labels: frozenset[str] = frozenset()
    carried: Mapping[str, str] = field(default_factory=dict)
    carried_count: int = 0


def take_out(
    store: Store,
    base: State,
    known: Sources,
    replaced: Sequence[SourceFile],
    target: BatchTarget,
) -> Removal:
    """Write the data files that hold rows of replaced raw files anew, without these rows.

    Args:
        store: Where the dataset is.
        base: Its state.
        known: What was read into it.
        replaced: The raw files.
        target: Of the batch that the rest goes to.

    Raises:
        DamagedFileError: A data file is not what was recorded. What was written is deleted.
        LakebedError: A file cannot be read, or the store failed. What was written is deleted.

    Cost:
        The data files that hold such rows, read and written once, by this process.
    """
    empty = Removal(facts=facts_schema(base.descriptor.stored_schema).empty_table())
    keys = {file.key for file in replaced}
    if not keys:
        return empty
    live = frozenset(base.labels)
    labels = {label: runs for label, runs in _holding(keys, known).items() if label in live}
    if not labels:
        return empty
    return _write_rest(store, base, known, labels, keys, target)


def _holding(keys: Collection[str], known: Sources) -> dict[str, Runs]:
    """Return the data files that hold rows of raw files, or held them."""
    return {
        label: runs for label, runs in known.runs.items() if any(key in keys for key, _ in runs)
    }


def check_not_rewritten(
    store: Store, base: State, known: Sources, replaced: Sequence[SourceFile]
) -> None:
    """Check that the rows of replaced raw files are where a commit has noted them.

    Raises:
        InvalidInputError: Something else has written data files with such rows anew, so that
            nobody knows where they are.

    Cost:
        The history, if some of the data files are out of the dataset.
    """
    locations = {file.key: file.location for file in replaced}
    concerned = _holding(locations.keys(), known)
    doomed = concerned.keys() - frozenset(base.labels)
    if not doomed:
        return
    # By label of a data file that may hold such rows: one of those that held them before, and what
    # has written that one anew. Only a live one matters: a rollback may have undone it all.
    suspects: dict[str, tuple[str, Entry]] = {}
    for entry in history.read(store, base.lists.history):
        if entry.operation == ROLLBACK:
            continue  # what it has added is older
        found = next((suspects[label] for label in entry.removed if label in suspects), None)
        if found is None and entry.operation not in _TRACKED:
            found = next(((label, entry) for label in entry.removed if label in doomed), None)
        if found is not None:
            suspects.update((label, found) for label in entry.added if label not in known.runs)
    for label in base.labels:
        if label in suspects:
            before, entry = suspects[label]
            location = next(locations[key] for key, _ in concerned[before] if key in locations)
            raise InvalidInputError(
                f"Rows of {location} may be anywhere: the {entry.operation} of version "
                f"{entry.version} has written their data files anew.",
                hint="Delete what is left of them, then run once with replace_rewritten.",
            )


def _write_rest(
    store: Store,
    base: State,
    known: Sources,
    labels: Mapping[str, Runs],
    keys: set[str],
    target: BatchTarget,
) -> Removal:
    """Write the rest, run by run: no file may hold rows of several."""
    by_run: dict[str, set[str]] = {}
    of_run = {file.key: file.run for file in known.files}
    for runs in labels.values():
        for key, _ in runs:
            if key not in keys:
                by_run.setdefault(of_run.get(key, ""), set()).add(key)
    found = Removal(
        facts=facts_schema(base.descriptor.stored_schema).empty_table(), labels=frozenset(labels)
    )
    try:
        for run, kept in by_run.items():
            part = _write_kept(store, base, labels, kept, target)
            new = part.facts.column("label").to_pylist()
            found = replace(
                found,
                facts=concat_facts([found.facts, part.facts]),
                runs={**found.runs, **part.runs},
                carried={**found.carried, **(dict.fromkeys(new, run) if run else {})},
                carried_count=found.carried_count + part.carried_count,
            )
    except BaseException:
        written = found.facts.column("label").to_pylist()
        staged = [target.key(label) for label in written]
        delete_or_leave(store, [*staged, *keys_of(postings_in(found.facts))])
        raise
    return found


def _write_kept(
    store: Store, base: State, labels: Mapping[str, Runs], kept: set[str], target: BatchTarget
) -> Removal:
    """Write the rows of some sources anew."""
    numbers: dict[str, int] = {}
    everything = plan(base, TRUE, requests=0)
    recorded = file_table.read_recorded(store, base.lists.files, list(labels))
    writer = KernelWriter(store, replace(target, is_traced=True))
    carried_count = 0
    try:
        for file in everything.files:
            runs = labels.get(file.label)
            if runs is None or all(key not in kept for key, _ in runs):
                continue
            as_noted = replace(file, recorded=recorded.get(file.label))
            alone = replace(everything, files=(as_noted,))
            with scan.scan(store, alone) as batches:
                for key, rows in _by_source(batches, runs, file):
                    if key in kept:
                        number = numbers.setdefault(key, len(numbers))
                        writer.write_to(partition_of_label(file.label), rows, number)
                        carried_count += rows.num_rows
        facts = writer.finish()
    except BaseException:
        writer.abort()
        raise
    names = list(numbers)
    return Removal(
        facts=facts,
        runs={
            label: tuple((names[number], count) for number, count in found)
            for label, found in writer.runs.items()
        },
        carried_count=carried_count,
    )


def _by_source(
    batches: Iterable[pa.RecordBatch], runs: Runs, file: DataFile
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of a data file in pieces of one source each."""
    waiting = iter(runs)
    key, left = "", 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            while not left:
                key, left = next(waiting, ("", 0))
                if not key:
                    raise _disagree(file)
            length = min(left, batch.num_rows - start)
            yield key, batch.slice(start, length)
            start, left = start + length, left - length
    if left or next(waiting, None) is not None:
        raise _disagree(file)


def _disagree(file: DataFile) -> InvalidInputError:
    return InvalidInputError(
        f"Data file {file.key} has another number of rows than was noted when it was written.",
        hint="It was replaced from outside: restore it from a copy.",
    )
