"""The quarantine: what does not fit, set aside with the reason, the raw file and the line.

A dataset like any other, partitioned by the run that set something aside. Each commit notes of which
raw files it is, under a slot that says what the rejects stand for: for one raw file that an ingest
reads, or for all that a load reads. Whatever was set aside for the same thing before gives way; and
of two writers for the same thing at once one finds what the other has set aside, or is refused.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import heapq
import itertools
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow import scan
from lakebed.arrow.reading.sift import ENOUGH_REJECTS, REJECTS, Sifted, read_rejects
from lakebed.arrow.write import write_batches
from lakebed.commit import Commit
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    ObjectExistsError,
    RejectsError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.given import check_run_name
from lakebed.model.keys import batch_id_of, encode_path
from lakebed.model.names import check_dataset_name
from lakebed.model.predicate import Membership, all_of
from lakebed.model.shown import counted
from lakebed.plan.plan import ScanPlan, plan
from lakebed.state import file_table, history
from lakebed.state import sources as source_list
from lakebed.state.creation import create, first_state
from lakebed.state.head import HeadFormat
from lakebed.state.reader import read_head
from lakebed.state.scope import Nothing, Scope, TheseFiles
from lakebed.state.sources import SourceFile, Sources
from lakebed.state.state import State
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store, delete_or_leave
from lakebed.work.deletion import find_deleted, write_rest
from lakebed.work.ingest.due import Candidate
from lakebed.work.ingest.options import LoadOptions
from lakebed.work.writer import target_of

_SUFFIX = "_quarantine"
_TOLD_REJECTS = 3
_MAX_RUN_BYTES = 150  # it is a directory, percent-encoded
_LOAD = "load:"  # begins what the rejects of a load stand for; no raw file is called so

_DESCRIPTOR = DatasetDescriptor(
    schema=pa.schema(
        [
            pa.field("run", pa.string(), nullable=False),
            *REJECTS,
            pa.field("loaded_at", pa.timestamp("us", tz="UTC"), nullable=False),
        ]
    ),
    partition_by="run",
)


class Rejects:
    """What did not fit, in files that nothing refers to, until it is in quarantine.

    A context manager, which deletes the files at the end.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # With the locations that count of each of them; None for all.
        self._parts: list[tuple[Sifted, frozenset[str] | None]] = []

    def add(self, sifted: Sifted) -> None:
        """Take what was set aside along with staged rows."""
        self._parts.append((sifted, None))

    def keep_only(self, locations: Collection[str]) -> None:
        """Let of the last part only what is of some raw files count."""
        sifted, _ = self._parts.pop()
        self._parts.append((sifted, frozenset(locations)))

    @property
    def by_location(self) -> dict[str, int]:
        """How many there are of each raw file."""
        return {
            location: counts.rejected_count
            for sifted, kept in self._parts
            for location, counts in sifted.counts.items()
            if kept is None or location in kept
        }

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(
            sifted.rejected_count
            if kept is None
            else sum(sifted.counts[location].rejected_count for location in kept)
            for sifted, kept in self._parts
        )

    def batches(self) -> Generator[pa.RecordBatch]:
        """Yield all of them."""
        for sifted, kept in self._parts:
            wanted = None if kept is None else pa.array(sorted(kept), pa.string())
            for batch in read_rejects(self._store, sifted.reject_keys):
                if wanted is None:
                    yield batch
                else:
                    yield batch.filter(pc.is_in(batch.column("source_file"), wanted))

    def refuse(self) -> None:
        """Raise if there are any.

        Raises:
            RejectsError: It tells the first of them, since there will be no quarantine to look at.
        """
        if not self.count:
            return
        with contextlib.closing(self.batches()) as batches:
            every = itertools.chain.from_iterable(batch.to_pylist() for batch in batches)
            # They come in the order in which they were noticed, which is not that of a file.
            rows = heapq.nsmallest(
                _TOLD_REJECTS, every, key=lambda row: (row["source_file"], row["line_number"])
            )
        told = "; ".join(
            f"{row['source_file']}, line {row['line_number']}: {row['reason'].rstrip('.')}"
            for row in rows
        )
        files = sum(1 for count in self.by_location.values() if count)
        more = "; …" if self.count > len(rows) else ""
        lines = counted(self.count, "line")
        if self.count >= ENOUGH_REJECTS:
            lines = f"{self.count:,} or more lines"
        verb = "does not fit" if self.count == 1 else "do not fit"
        raise RejectsError(
            f"{lines} of {counted(files, 'file')} {verb}: {told}{more}. Nothing was committed.",
            hint=f"Mend them, or let what does not fit go to quarantine. {rows[0]['hint']}".rstrip(),
            rejected_count=self.count,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Delete the files."""
        delete_or_leave(
            self._store, [key for sifted, _ in self._parts for key in sifted.reject_keys]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Where one reading of raw files sets aside what does not fit.

    Attributes:
        name: Of the dataset.
        of_dataset: Name of the dataset that the files are read into: several may have one
            quarantine.
        is_by_file: Whether rejects stand for their raw file, as those of an ingest, whatever run
            reads it; else for the run, as those of a load.
    """

    name: str
    of_dataset: str
    is_by_file: bool

    @classmethod
    def of(cls, of_dataset: str, name: str | None, *, is_by_file: bool) -> Quarantine:
        """Return the quarantine of a dataset, under its usual name unless it has another.

        Raises:
            InvalidInputError: The dataset would be its own.
        """
        name = check_dataset_name(name or f"{of_dataset}{_SUFFIX}")
        if name == of_dataset:
            raise InvalidInputError(f"{name!r} is its own quarantine.", hint="Give another name.")
        return cls(name=name, of_dataset=of_dataset, is_by_file=is_by_file)

    def find(self, store: Store) -> State | None:
        """Return the state; None if it is not there.

        Raises:
            InvalidInputError: The dataset of that name is something else.
        """
        try:
            state = read_head(store, self.name).state
        except DatasetNotFoundError:
            return None
        if state.descriptor.schema.names != _DESCRIPTOR.schema.names:
            raise InvalidInputError(
                f"Dataset {self.name!r} is no quarantine, its fields are others.",
                hint="Give the name of another quarantine.",
            )
        return state

    def set_aside(
        self,
        store: Store,
        run: str,
        rejects: Rejects,
        files: Sequence[Candidate],
        earlier: Collection[SourceFile],
        options: LoadOptions,
    ) -> Commit | None:
        """Commit what did not fit, in place of what was set aside for the same before.

        Args:
            store: Where it is.
            run: Of the ingest or the load.
            rejects: What did not fit.
            files: The raw files that were looked at.
            earlier: Those that they replace.
            options: How files are cut.

        Returns:
            The commit; None if there was nothing to do.

        Raises:
            CommitConflictError: Somebody else has set something aside for the same meanwhile;
                nothing became visible.

        Cost:
            Where something has been set aside before by the runs of an ingest, one column of that.
        """
        state = self.find(store)
        is_new = state is None or self._replaced(store, state, run, files, earlier) is None
        if not rejects.count and is_new:
            return None
        if state is None:
            try:
                create(
                    store, self.name, lambda: first_state(self.name, _DESCRIPTOR, HeadFormat.JSON)
                )
            except ObjectExistsError:
                self.find(store)  # somebody else was faster, perhaps with something else
        operation = "ingest" if self.is_by_file else "load"
        with Transaction.begin(
            store, self.name, operation, run=run, options=options.commit
        ) as started:
            target = target_of(started, options.write)
            started.add(write_batches(store, target, _with_run(rejects.batches(), run)))
            notes = self._notes(files, rejects, started.batch_id, run)
            # Looked for again: the state may be another than before.
            replaced = self._replaced(store, started.base, run, files, earlier)
            scope: Scope = Nothing()
            if replaced is not None:
                deleted = find_deleted(store, replaced)
                started.add(write_rest(store, replaced, deleted, target))
                scope = TheseFiles.of(file.label for file in deleted)
            committed = started.commit(scope=scope, sources=Sources(files=notes))
        return Commit.of(committed.entry, started.base)

    def _slot(self, location: str, run: str) -> str:
        return f"{self.of_dataset}|{location if self.is_by_file else f'{_LOAD}{run}'}"

    def _notes(
        self, files: Sequence[Candidate], rejects: Rejects, batch_id: int, run: str
    ) -> tuple[SourceFile, ...]:
        counts = rejects.by_location
        return tuple(
            SourceFile(
                key=f"{batch_id}-{number}",
                location=candidate.file.location,
                slot=self._slot(candidate.file.location, run),
                fingerprint=candidate.fingerprint,
                size_bytes=candidate.file.size_bytes,
                batch_id=batch_id,
                run=run,
                row_count=counts[candidate.file.location],
                rejected_count=0,
            )
            for number, candidate in enumerate(files)
            if counts.get(candidate.file.location)
        )

    def _replaced(
        self,
        store: Store,
        state: State,
        run: str,
        files: Sequence[Candidate],
        earlier: Collection[SourceFile],
    ) -> ScanPlan | None:
        """Return what was set aside before and gives way; None if that is nothing."""
        noted = source_list.read(store, state.lists.sources)
        if not self.is_by_file:
            chosen = self._of_load(state, noted, run)
            return chosen if chosen.files else None
        current = noted.current()
        locations = {candidate.file.location for candidate in files}
        locations |= {file.location for file in earlier}
        # Those that have set something aside of the files last may be others.
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
        """Return how many rejects of a named load there are, and the commit that set them aside."""
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
        """Return what loads of a run have set aside.

        Where nothing else of that name has set anything aside, that is all of the run, also what
        older releases have not noted. Else it is what was noted: the rest is kept.
        """
        chosen = plan(state, Membership("run", (run,)), requests=0)
        own = self._slot("", run)
        if any(file.run == run and file.slot != own for file in noted.files):
            batches = {file.batch_id for file in noted.files if file.slot == own}
            kept = (file for file in chosen.files if batch_id_of(file.label) in batches)
            chosen = replace(chosen, files=tuple(kept))
        return chosen


def _is_of_load(file: SourceFile) -> bool:
    return file.slot.partition("|")[2].startswith(_LOAD)


def checked_run(run: str) -> str:
    """Return the name of a run if the quarantine can have a directory of that name.

    Raises:
        InvalidInputError: It is no text, empty or too long.
    """
    check_run_name(run)
    if not 1 <= len(encode_path({"run": run})) <= _MAX_RUN_BYTES:
        raise InvalidInputError(
            f"Run name {run[:40]!r} of {len(run)} characters.",
            hint=f"The quarantine has a directory for each run: use at most {_MAX_RUN_BYTES}.",
        )
    return run


def _with_run(batches: Iterator[pa.RecordBatch], run: str) -> Iterator[pa.RecordBatch]:
    """Complete what was set aside to rows of the quarantine."""
    now = dt.datetime.now(dt.UTC)
    for batch in batches:
        rows = batch.select(REJECTS.names)
        yield rows.append_column("run", pa.array([run] * batch.num_rows)).append_column(
            "loaded_at", pa.array([now] * batch.num_rows, pa.timestamp("us", tz="UTC"))
        )
