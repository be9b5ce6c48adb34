"""Rows that fail a declared check with `on_failure="quarantine"`, set aside by a write.

They go to the dataset `<name>_quarantine`, in the form of the rejects of an ingest: the reason, and
the row as JSON. The quarantine is committed before the rows of the write, so that no row is lost if
the process dies in between; a repeated write with the name of a run replaces the rows that this run
has set aside.
"""

from __future__ import annotations

import logging

from lakebed.arrow.kernel import write_batches
from lakebed.arrow.reading.sift import read_rejects
from lakebed.model.keys import encode_path
from lakebed.state.reservation import BatchRecord
from lakebed.state.scope import Nothing, RunFiles, Scope
from lakebed.state.state import Change, State, epoch_of
from lakebed.state.transaction import Transaction
from lakebed.store.base import Store, delete_or_leave
from lakebed.work.ingest.quarantine import (
    MAX_RUN_BYTES,
    completed_rows,
    open_quarantine,
    quarantine_name,
)
from lakebed.work.writer import settled_scope, target_of

_log = logging.getLogger(__name__)


def set_rows_aside(store: Store, base: State, record: BatchRecord, keys: tuple[str, ...]) -> None:
    """Commit rows to the quarantine of a dataset; see `lakebed.state.after.quarantine`.

    Cost:
        A commit to the quarantine, which is created at first.
    """
    name = quarantine_name(base.name)
    open_quarantine(store, name)
    source = f"{record.operation}-{record.batch_id}"
    epoch = epoch_of(record.run)
    run = record.run if epoch is None else f"{epoch.query}:{epoch.number}"
    is_repeated = epoch is not None or record.operation == "rerun"
    if run is None or len(encode_path({"run": run})) > MAX_RUN_BYTES:
        run, is_repeated = source, False
    with Transaction.begin(store, name, record.operation, run=run) as started:
        rows = completed_rows(read_rejects(store, keys), source, run)
        started.add(write_batches(store, target_of(started, None), rows))
        scope: Scope = Nothing()
        if is_repeated:
            scope = settled_scope(name, started.written.partitions, RunFiles(run))
        started.commit(Change(scope=scope))
        _log.warning(
            "rows quarantined dataset=%s quarantine=%s rows=%d",
            base.name,
            name,
            started.written.row_count,
        )
    delete_or_leave(store, list(keys))
