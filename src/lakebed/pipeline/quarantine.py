"""What does not fit, set aside by raw file."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lakebed.arrow import scan
from lakebed.arrow.write import write_batches
from lakebed.deletion import find_deleted, write_rest
from lakebed.loading import (
    LoadOptions,
    Rejects,
    create_quarantine,
    find_quarantine,
    with_run,
)
from lakebed.model.predicate import Membership, Predicate, all_of
from lakebed.pipeline.candidates import Candidate
from lakebed.plan.plan import plan
from lakebed.state import sources as source_list
from lakebed.state.scope import Nothing, TheseFiles
from lakebed.state.sources import SourceFile, Sources
from lakebed.state.state import State
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written, joined
from lakebed.store.base import Store
from lakebed.writer import target_of


def set_aside(
    store: Store,
    name: str,
    run: str,
    rejects: Rejects,
    *,
    of_dataset: str,
    files: Sequence[Candidate],
    earlier: Collection[SourceFile],
    options: LoadOptions,
) -> None:
    """Commit what did not fit, in place of what was set aside of the same raw files before.

    The commit notes of which raw files it is. So of two ingests that read the same file at once,
    one finds what the other has set aside and replaces it, or is refused.

    Args:
        store: Where the quarantine is.
        name: Of the quarantine.
        run: Of the ingest.
        rejects: What did not fit.
        of_dataset: Name of the dataset that the files are read into.
        files: The raw files that were looked at.
        earlier: Those that they replace.
        options: How files are cut.

    Raises:
        CommitConflictError: Another ingest has set something aside of the same raw files
            meanwhile; nothing became visible.

    Cost:
        Where something has been set aside before by these runs, one column of that.
    """
    locations = {one.file.location for one in files} | {one.location for one in earlier}
    runs = {run, *(one.run for one in earlier)}
    state = find_quarantine(store, name)
    is_stale = state is not None and bool(
        _set_aside_before(
            store, state, _of_runs(store, state, of_dataset, locations, runs), locations
        )
    )
    if not rejects.count and not is_stale:
        return
    if state is None:
        create_quarantine(store, name)
    started = Transaction.begin(store, name, "ingest", run=run, options=options.commit)
    target = target_of(started, options.write)
    base = started.base
    written: list[Written] = []
    try:
        written.append(write_batches(store, target, with_run(rejects.batches(), run)))
        read = _notes(files, rejects, started.batch_id, run, of_dataset)
        # Looked for again: the state may be another than before.
        of_runs = _of_runs(store, base, of_dataset, locations, runs)
        stale = _set_aside_before(store, base, of_runs, locations)
        if stale:
            where = all_of([of_runs, Membership("source_file", tuple(sorted(stale)))])
            chosen = plan(base, where, requests=0)
            deleted = find_deleted(store, chosen)
            written.append(write_rest(store, chosen, deleted, target))
    except BaseException:
        started.abort(*written)
        raise
    # From here on an error proves nothing of what was written: the commit itself cleans up.
    scope = TheseFiles.of(file.label for file in deleted) if stale else Nothing()
    started.commit(joined(written), scope, Sources(files=read))


def _of_runs(
    store: Store, state: State, of_dataset: str, locations: Collection[str], runs: Collection[str]
) -> Predicate:
    """Return what chooses rows of some runs, and of those that have set aside of the files last."""
    current = source_list.read(store, state.lists.sources).current()
    noted = (current.get(_slot(of_dataset, location)) for location in locations)
    return Membership("run", tuple(sorted({*runs, *(one.run for one in noted if one)})))


def _set_aside_before(
    store: Store, state: State, of_runs: Predicate, locations: Collection[str]
) -> set[str]:
    chosen = plan(state, of_runs, requests=0)
    found: set[str] = set()
    with scan.scan(store, chosen, ["source_file"]) as batches:
        for batch in batches:
            found.update(batch.column(0).to_pylist())
    return found.intersection(locations)


def _slot(of_dataset: str, location: str) -> str:
    """Return what rejects of a raw file stand for: several datasets may have one quarantine."""
    return f"{of_dataset}|{location}"


def _notes(
    files: Sequence[Candidate], rejects: Rejects, batch_id: int, run: str, of_dataset: str
) -> tuple[SourceFile, ...]:
    counts = rejects.by_location
    return tuple(
        SourceFile(
            key=f"{batch_id}-{number}",
            location=one.file.location,
            slot=_slot(of_dataset, one.file.location),
            fingerprint=one.fingerprint,
            size_bytes=one.file.size_bytes,
            batch_id=batch_id,
            run=run,
            row_count=counts[one.file.location],
            rejected_count=0,
        )
        for number, one in enumerate(files)
        if counts.get(one.file.location)
    )
