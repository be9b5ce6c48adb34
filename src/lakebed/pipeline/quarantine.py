"""What does not fit, set aside by raw file."""

from __future__ import annotations

from collections.abc import Collection

from lakebed.arrow import scan
from lakebed.arrow.reading.sift import Sifted, read_rejects
from lakebed.arrow.write import write_batches
from lakebed.deletion import find_deleted, write_rest
from lakebed.loading import LoadOptions, create_quarantine, find_quarantine, target_of, with_run
from lakebed.model.predicate import Membership, Predicate, all_of
from lakebed.plan.plan import plan
from lakebed.state.caps import concat_facts
from lakebed.state.scope import Nothing, TheseFiles
from lakebed.state.state import State
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store
from lakebed.writer import commit_staged


def set_aside(
    store: Store,
    name: str,
    run: str,
    sifted: Sifted,
    locations: Collection[str],
    earlier_runs: Collection[str],
    options: LoadOptions,
) -> None:
    """Commit what did not fit, in place of what was set aside of the same raw files before.

    Args:
        store: Where the quarantine is.
        name: Of the quarantine.
        run: Of the ingest.
        sifted: What did not fit.
        locations: The raw files that were read, and those that they replace.
        earlier_runs: Which ingests have read those that are replaced.
        options: How files are cut.

    Cost:
        Where these runs have set something aside before, one column of that.
    """
    state = find_quarantine(store, name)
    of_runs = Membership("run", tuple(sorted({run, *earlier_runs})))
    stale = set() if state is None else _set_aside_before(store, state, of_runs, locations)
    if not sifted.rejected_count and not stale:
        return
    if state is None:
        create_quarantine(store, name)
    started = Transaction.begin(store, name, "ingest", run=run, options=options.commit)
    target = target_of(started, options.write)
    base = started.base
    staged: list[str] = []
    try:
        facts = write_batches(store, target, with_run(read_rejects(store, sifted.reject_keys), run))
        staged += facts.column("label").to_pylist()
        # Looked for again: the state may be another than before.
        stale = _set_aside_before(store, base, of_runs, locations)
        if stale:
            where = all_of([of_runs, Membership("source_file", tuple(sorted(stale)))])
            chosen = plan(base, where, requests=0)
            deleted = find_deleted(store, chosen)
            rest = write_rest(store, chosen, deleted, target)
    except BaseException:
        started.abort([base.key(label) for label in staged])
        raise
    # From here on an error proves nothing of what was written: the commit itself cleans up.
    if not stale:
        commit_staged(started, facts, Nothing())
        return
    scope = TheseFiles.of(file.label for file in deleted)
    started.commit(concat_facts([facts, rest.facts]), scope, rest.sources, carried=rest.carried)


def _set_aside_before(
    store: Store, state: State, of_runs: Predicate, locations: Collection[str]
) -> set[str]:
    chosen = plan(state, of_runs, requests=0)
    wanted = frozenset(locations)
    found: set[str] = set()
    with scan.scan(store, chosen, ["source_file"]) as batches:
        for batch in batches:
            found.update(wanted.intersection(batch.column(0).to_pylist()))
    return found
