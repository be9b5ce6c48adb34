"""The quarantine: rejects, set aside with the reason, the raw file and the line.

It is a dataset like any other, partitioned by the run that set the rejects aside. Each commit
records its raw files, under a slot that names what the rejects belong to: one raw file of an
ingest, or the run of a load. New rejects of a slot replace the earlier ones; of two concurrent
writers of a slot, one finds the rejects of the other, or is refused.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import heapq
import itertools
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow import scan
from lakebed.arrow.kernel import write_batches
from lakebed.arrow.reading.rejects import QUARANTINED, REJECTS
from lakebed.arrow.reading.sift import ENOUGH_REJECTS, Counts, Sifted, read_rejects
from lakebed.commit import Commit
from lakebed.common.given import check_run_name
from lakebed.common.shown import counted
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    ObjectExistsError,
    RejectsError,
)
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import batch_id_of, encode_path
from lakebed.model.names import check_dataset_name
from lakebed.model.predicate import Membership, all_of
from lakebed.plan.plan import ScanPlan
from lakebed.plan.search import plan
from lakebed.state import file_table, history
from lakebed.state import sources as source_list
from lakebed.state.creation import create, first_state
from lakebed.state.head import HeadFormat
from lakebed.state.reader import list_names, read_head
from lakebed.state.scope import Nothing, Scope, TheseFiles
from lakebed.state.sources import FileRefusal, SourceFile, Sources
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.state.updates import update
from lakebed.store.base import Store, delete_or_leave
from lakebed.work.deletion import find_deleted, write_rest
from lakebed.work.ingest.due import Candidate
from lakebed.work.ingest.load_options import LoadOptions
from lakebed.work.writer import target_of

_SUFFIX = "_quarantine"
_LISTED_REJECTS = 3
MAX_RUN_BYTES = 150  # it is a directory, percent-encoded
_LOAD = "load:"  # prefix of the slots of loads; no location of a raw file begins with it

_DESCRIPTOR = DatasetDescriptor(schema=QUARANTINED, partition_by="run")
# Fields of earlier releases; such a dataset gets the other fields when rejects are set aside.
_OLD_NAMES = ("run", *REJECTS.names, "loaded_at")
_TEXT_LENGTH = 1_000  # of a line as text; the bytes are complete


def quarantines_of(store: Store, dataset: str) -> tuple[str, ...]:
    """Return the names of the datasets that hold rejects of a dataset.

    Cost:
        A LIST of the root, and the head of each dataset; of those with the fields of rejects, the
        record of their raw files.
    """
    found = []
    for name in list_names(store):
        if name == dataset:
            continue
        try:
            state = read_head(store, name).state
        except LakebedError:
            continue  # it is damaged, or being dropped
        if not state.is_ours or not set(_OLD_NAMES) <= set(state.descriptor.schema.names):
            continue
        noted = source_list.read(store, state.lists.sources)
        is_own = any(file.slot.startswith(f"{dataset}|") for file in noted.files)
        if is_own or name == f"{dataset}{_SUFFIX}":
            found.append(name)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectTotals:
    """Totals of rejects.

    Attributes:
        count: Number of rejects: lines, rests of damaged files, and whole files.
        rest_count: Number of rests of files that cannot be read to their end.
        file_count: Number of whole files.
        file_row_count: Number of rows of whole files, as far as they can be counted.
    """

    count: int = 0
    rest_count: int = 0
    file_count: int = 0
    file_row_count: int = 0

    @classmethod
    def of(cls, counts: Iterable[Counts]) -> Self:
        """Add up the rejects of some files."""
        parts = list(counts)
        return cls(
            count=sum(part.rejected_count for part in parts),
            rest_count=sum(part.rest_count for part in parts),
            file_count=sum(part.is_whole for part in parts),
            file_row_count=sum(part.refused_row_count or 0 for part in parts),
        )

    @property
    def line_count(self) -> int:
        """Number of single lines or rows that did not fit."""
        return self.count - self.rest_count - self.file_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One reading of raw files, which may have rejects.

    Attributes:
        run: Name of the run.
        operation: `ingest` or `load`.
        batch_id: Id of the batch of the rows.
        files: The files that were read.
        refusals: Reasons for files that were kept back, by location.
    """

    run: str
    operation: str
    batch_id: int
    files: tuple[Candidate, ...]
    refusals: Mapping[str, FileRefusal]

    @property
    def name(self) -> str:
        """Name of the attempt; a run may have many."""
        return f"{self.operation}-{self.batch_id}"


class Rejects:
    """Rejects in temporary, unreferenced files, until they are in quarantine.

    A context manager, which deletes the files at the end.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Each with the locations whose rejects count; None for all.
        self._parts: list[tuple[Sifted, frozenset[str] | None]] = []

    def add(self, sifted: Sifted) -> None:
        """Add the rejects of staged rows."""
        self._parts.append((sifted, None))

    def keep_only(self, locations: Collection[str]) -> None:
        """Keep only the rejects of some raw files in the last part."""
        sifted, _ = self._parts.pop()
        self._parts.append((sifted, frozenset(locations)))

    @property
    def by_location(self) -> dict[str, Counts]:
        """Counts of each raw file."""
        return {
            location: counts
            for sifted, kept in self._parts
            for location, counts in sifted.counts.items()
            if kept is None or location in kept
        }

    @property
    def totals(self) -> RejectTotals:
        """Totals of the rejects, by kind."""
        return RejectTotals.of(self.by_location.values())

    @property
    def count(self) -> int:
        """Number of rejects."""
        return self.totals.count

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yield all rejects."""
        for sifted, kept in self._parts:
            wanted = None if kept is None else pa.array(sorted(kept), pa.string())
            for batch in read_rejects(self._store, sifted.reject_keys):
                if wanted is None:
                    yield batch
                else:
                    yield batch.filter(pc.is_in(batch.column("source_file"), wanted))

    def refuse(self) -> None:
        """Raise an error if there are any rejects.

        Raises:
            RejectsError: There are rejects; it lists the first ones, since there is no quarantine.
        """
        if not self.count:
            return
        with contextlib.closing(self.batches()) as batches:
            every = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
            # Rejects are in order of detection, which is not that of the file.
            rows = heapq.nsmallest(
                _LISTED_REJECTS, every, key=lambda row: (row["source_file"], row["line_number"])
            )
        listed = "; ".join(
            f"{row['source_file']}, line {row['line_number']}: {row['reason'].rstrip('.')}"
            for row in rows
        )
        more = "; …" if self.count > len(rows) else ""
        way = "Correct them, or let rejects go to quarantine"
        if self.totals.rest_count:
            way += ", and load the readable part with allow_truncated, or --allow-truncated"
        raise RejectsError(
            f"{self._in_words()}: {listed}{more}. Nothing was committed.",
            hint=f"{way}. {rows[0]['hint']}".rstrip() + self.hint_for_unknown,
            rejected_count=self.count,
        )

    @property
    def hint_for_unknown(self) -> str:
        """A further sentence of a hint if a reject is for a field that the dataset lacks."""
        if not any(counts.unknown_count for counts in self.by_location.values()):
            return ""
        return (
            " Fields that the dataset lacks: unknown='keep' or --unknown keep adds them to the "
            "schema, 'ignore' leaves them out."
        )

    def _in_words(self) -> str:
        """Count the lines that do not fit, and apart from them files that are cut or unfit."""
        totals = self.totals
        parts = []
        if totals.line_count:
            lines = counted(totals.line_count, "line")
            if self.count >= ENOUGH_REJECTS:
                lines = f"{totals.line_count:,} or more lines"
            files = sum(1 for counts in self.by_location.values() if counts.line_count)
            verb = "does not fit" if totals.line_count == 1 else "do not fit"
            parts.append(f"{lines} of {counted(files, 'file')} {verb}")
        if totals.rest_count:
            parts.append(f"{counted(totals.rest_count, 'file')} cannot be read to the end")
        if totals.file_count:
            verb = "does not fit" if totals.file_count == 1 else "do not fit"
            parts.append(f"{counted(totals.file_count, 'file')} {verb} as a whole")
        return "; ".join(parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Delete the files."""
        delete_or_leave(
            self._store, [key for sifted, _ in self._parts for key in sifted.reject_keys]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """The quarantine of one reading of raw files.

    Attributes:
        name: Name of the quarantine, a dataset.
        of_dataset: Name of the dataset that the files are read into; several datasets may share a
            quarantine.
        is_by_file: Whether rejects belong to their raw file, regardless of the run, as for an
            ingest; else to the run, as for a load.
    """

    name: str
    of_dataset: str
    is_by_file: bool

    @classmethod
    def of(cls, of_dataset: str, name: str | None, *, is_by_file: bool) -> Quarantine:
        """Return the quarantine of a dataset, under the default name if none is given.

        Raises:
            InvalidInputError: The dataset would be its own quarantine.
        """
        name = check_dataset_name(name or f"{of_dataset}{_SUFFIX}")
        if name == of_dataset:
            raise InvalidInputError(
                f"Dataset {name!r} cannot be its own quarantine.", hint="Give another name."
            )
        return cls(name=name, of_dataset=of_dataset, is_by_file=is_by_file)

    def find(self, store: Store) -> State | None:
        """Return the state of the quarantine; None if it does not exist.

        Raises:
            InvalidInputError: The dataset of that name is not a quarantine.
        """
        try:
            state = read_head(store, self.name).state
        except DatasetNotFoundError:
            return None
        if state.descriptor.schema.names not in (_DESCRIPTOR.schema.names, _OLD_NAMES):
            raise InvalidInputError(
                f"Dataset {self.name!r} is not a quarantine: it has other fields.",
                hint="Give another name for the quarantine.",
            )
        return state

    def set_aside(
        self,
        store: Store,
        attempt: Attempt,
        rejects: Rejects,
        earlier: Collection[SourceFile],
        superseded: Collection[str],
        options: LoadOptions,
    ) -> Commit | None:
        """Commit the rejects, in place of earlier rejects of the same slots.

        Args:
            store: The store that holds the quarantine.
            attempt: The raw files that were read, and the run.
            rejects: The rejects.
            earlier: Raw files that those of the attempt replace.
            superseded: Locations of files that they replace; includes files that were never read.
            options: Options for writing and committing.

        Returns:
            The commit; None if there was nothing to do.

        Raises:
            CommitConflictError: Another writer has set rejects of the same slots aside meanwhile;
                nothing became visible.

        Cost:
            For an ingest, one column of the earlier rejects of its runs.
        """
        state = self.find(store)
        is_new = state is None or self._replaced(store, state, attempt, earlier, superseded) is None
        if not rejects.count and is_new:
            return None
        open_quarantine(store, self.name)
        with Transaction.begin(
            store, self.name, attempt.operation, run=attempt.run, options=options.commit
        ) as started:
            target = target_of(started, options.write)
            started.add(write_batches(store, target, _completed(rejects.batches(), attempt)))
            noted = source_list.read(store, started.base.lists.sources)
            notes = self._notes(attempt, rejects, started.batch_id, noted)
            # Search again: the state may have changed.
            replaced = self._replaced(store, started.base, attempt, earlier, superseded)
            scope: Scope = Nothing()
            if replaced is not None:
                deleted = find_deleted(store, replaced)
                started.add(write_rest(store, replaced, deleted, target))
                scope = TheseFiles.of(file.label for file in deleted)
            committed = started.commit(Change(scope=scope), sources=Sources(files=notes))
        return Commit.of(committed, started.base)

    def notes(self, store: Store) -> dict[str, SourceFile]:
        """Return the results of the last attempt for raw files of the dataset, by location.

        Cost:
            A read of the head, and one GET for each segment of the list of raw files.
        """
        state = self.find(store)
        if state is None:
            return {}
        current = source_list.read(store, state.lists.sources).current()
        own = self._slot("", "")
        return {
            file.location: file
            for slot, file in current.items()
            if slot.startswith(own) and not _is_of_load(file)
        }

    def _slot(self, location: str, run: str) -> str:
        return f"{self.of_dataset}|{location if self.is_by_file else f'{_LOAD}{run}'}"

    def _notes(
        self, attempt: Attempt, rejects: Rejects, batch_id: int, noted: Sources
    ) -> tuple[SourceFile, ...]:
        """Return records of the files with rejects in this attempt or in the one before."""
        counts, current = rejects.by_location, noted.current()
        notes: list[SourceFile] = []
        for candidate in attempt.files:
            location = candidate.file.location
            slot = self._slot(location, attempt.run)
            count = counts[location].rejected_count if location in counts else 0
            last = current.get(slot) if self.is_by_file else None
            if count or (last is not None and last.row_count):
                notes.append(
                    SourceFile(
                        key=f"{batch_id}-{len(notes)}",
                        location=location,
                        slot=slot,
                        fingerprint=candidate.fingerprint,
                        size_bytes=candidate.file.size_bytes,
                        batch_id=batch_id,
                        run=attempt.run,
                        row_count=count,
                        rejected_count=0,
                        refusal=attempt.refusals.get(location),
                        attempt=attempt.batch_id if self.is_by_file else None,
                    )
                )
        return tuple(notes)

    def _replaced(
        self,
        store: Store,
        state: State,
        attempt: Attempt,
        earlier: Collection[SourceFile],
        superseded: Collection[str],
    ) -> ScanPlan | None:
        """Return the plan of the earlier rejects to replace; None if there are none."""
        run = attempt.run
        noted = source_list.read(store, state.lists.sources)
        if not self.is_by_file:
            chosen = self._of_load(state, noted, run)
            return chosen if chosen.files else None
        current = noted.current()
        locations = {candidate.file.location for candidate in attempt.files}
        locations |= {file.location for file in earlier} | set(superseded)
        # The last rejects of the files may be from other runs.
        last = (current.get(self._slot(location, run)) for location in locations)
        runs = {run, *(file.run for file in (*earlier, *last) if file)}
        of_runs = Membership("run", tuple(sorted(runs)))
        loads = {file.batch_id for file in noted.files if _is_of_load(file)}

        def without_loads(chosen: ScanPlan) -> ScanPlan:
            kept = (file for file in chosen.files if batch_id_of(file.label) not in loads)
            return replace(chosen, files=tuple(kept))

        stale: set[str] = set()
        with scan.scan(
            store, without_loads(plan(state, of_runs, requests=0)), ["source_file"]
        ) as batches:
            for batch in batches:
                stale.update(batch.column(0).to_pylist())
        stale &= locations
        if not stale:
            return None
        where = all_of([of_runs, Membership("source_file", tuple(sorted(stale)))])
        return without_loads(plan(state, where, requests=0))

    def of_load(self, store: Store, run: str) -> tuple[int, Commit | None]:
        """Return the number of rejects of a named load, and the commit that set them aside."""
        state = self.find(store)
        if state is None:
            return 0, None
        chosen = self._of_load(state, source_list.read(store, state.lists.sources), run)
        if not chosen.files:
            return 0, None
        counts = file_table.read_counts(store, state.lists.files)
        entries = (
            entry
            for entry in reversed(history.read(store, state.lists.history))
            if entry.run == run and entry.operation in ("load", "overwrite")  # by older releases
        )
        entry = next(entries, None)
        commit = None if entry is None else Commit.of(entry, state)
        return sum(counts[file.label][0] for file in chosen.files), commit

    def _of_load(self, state: State, noted: Sources, run: str) -> ScanPlan:
        """Return the plan of the rejects that loads of a run have set aside.

        If nothing else with that run name has set rejects aside, these are all rejects of the run,
        including those that older releases did not record. Else they are the recorded ones.
        """
        chosen = plan(state, Membership("run", (run,)), requests=0)
        own = self._slot("", run)
        if any(file.run == run and file.slot != own for file in noted.files):
            batches = {file.batch_id for file in noted.files if file.slot == own}
            kept = (file for file in chosen.files if batch_id_of(file.label) in batches)
            chosen = replace(chosen, files=tuple(kept))
        return chosen


def open_quarantine(store: Store, name: str) -> None:
    """Create the quarantine of a dataset if it does not exist.

    Raises:
        InvalidInputError: The dataset of that name is not a quarantine.
    """
    quarantine = Quarantine(name=name, of_dataset="", is_by_file=False)
    state = quarantine.find(store)
    if state is None:
        try:
            create(store, name, lambda: first_state(name, _DESCRIPTOR, HeadFormat.JSON))
        except ObjectExistsError:
            state = quarantine.find(store)  # another writer was faster; raises for other fields
    if state is not None and state.descriptor.schema.names == _OLD_NAMES:
        update(store, name, lambda old: replace(old, schema=_DESCRIPTOR.schema))


def quarantine_name(dataset: str) -> str:
    """Return the default name of the quarantine of a dataset."""
    return check_dataset_name(f"{dataset}{_SUFFIX}")


def completed_rows(
    batches: Iterator[pa.RecordBatch], source: str, run: str
) -> Iterator[pa.RecordBatch]:
    """Extend rows that a declared check has set aside to rows of the quarantine.

    Args:
        batches: The rows, in the columns of rejects.
        source: Name of the write that they are from, in place of a raw file.
        run: Name of the run.
    """
    attempt = Attempt(run=run, operation=source, batch_id=0, files=(), refusals={})
    for batch in batches:
        place = batch.schema.get_field_index("source_file")
        column = pa.repeat(pa.scalar(source), batch.num_rows)
        named = batch.set_column(place, batch.schema.field(place), column)
        for row in _completed(iter([named]), attempt):
            spot = row.schema.get_field_index("attempt")
            yield row.set_column(spot, row.schema.field(spot), column)


def _is_of_load(file: SourceFile) -> bool:
    return file.slot.partition("|")[2].startswith(_LOAD)


def checked_run(run: str) -> str:
    """Return the name of a run if the quarantine can have a directory of that name.

    Raises:
        InvalidInputError: The name is not a string, or is empty or too long.
    """
    check_run_name(run)
    if not 1 <= len(encode_path({"run": run})) <= MAX_RUN_BYTES:
        raise InvalidInputError(
            f"Run name {run[:40]!r} of {len(run)} characters is empty or too long.",
            hint=f"The quarantine has a directory for each run: use at most {MAX_RUN_BYTES}.",
        )
    return run


def _completed(batches: Iterator[pa.RecordBatch], attempt: Attempt) -> Iterator[pa.RecordBatch]:
    """Extend rejects to rows of the quarantine."""
    now = dt.datetime.now(dt.UTC)
    records = {candidate.file.location: candidate.record for candidate in attempt.files}
    for batch in batches:
        locations = batch.column("source_file").to_pylist()
        found = [records.get(location) for location in locations]
        columns = {
            **{name: batch.column(name) for name in batch.schema.names},
            "text": [_as_text(line) for line in batch.column("line").to_pylist()],
            "path": [
                location if record is None else record.path
                for location, record in zip(locations, found, strict=True)
            ],
            "where": [None if record is None else record.where for record in found],
            "attempt": [attempt.name] * batch.num_rows,
            "run": [attempt.run] * batch.num_rows,
            "loaded_at": [now] * batch.num_rows,
        }
        schema = schema_to_arrow(_DESCRIPTOR.schema)
        yield pa.RecordBatch.from_arrays(
            [pa.array(columns[field.name], field.type) for field in schema], schema=schema
        )


def _as_text(line: bytes) -> str:
    """Return the beginning of a line as text; invalid UTF-8 is replaced."""
    text = line[: 4 * _TEXT_LENGTH].decode(errors="replace")
    return text if len(text) <= _TEXT_LENGTH else f"{text[:_TEXT_LENGTH]} …"
