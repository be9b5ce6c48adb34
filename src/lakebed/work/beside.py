"""Compaction beside a streaming query: in a thread, so that no epoch waits for it."""

from __future__ import annotations

import logging
import threading

from lakebed.errors import LakebedError
from lakebed.model.predicate import TRUE
from lakebed.store.base import Store
from lakebed.work.compaction import CompactionOptions, compact
from lakebed.work.defaults import TARGET_BYTES

_log = logging.getLogger(__name__)

_running: dict[tuple[str, str], threading.Thread] = {}
_lock = threading.Lock()


def compact_beside(store: Store, dataset: str, target_bytes: int | None = None) -> None:
    """Begin to compact a dataset, unless this process is at it already; return at once.

    What goes wrong is logged, and the next time it is tried again: the epochs do not depend on it.
    A process that ends waits for the thread; one that is killed leaves files that nothing refers
    to, which a cleanup takes.

    Cost:
        As `Dataset.compact`, in a thread of its own.
    """
    place = (store.uri, dataset)
    with _lock:
        running = _running.get(place)
        if running is not None and running.is_alive():
            _log.info("compaction goes on dataset=%s", dataset)
            return
        options = CompactionOptions(target_bytes=target_bytes or TARGET_BYTES)
        thread = threading.Thread(
            target=_compact, args=(store, dataset, options), name=f"lakebed-compact-{dataset}"
        )
        _running[place] = thread
        thread.start()


def wait_for(store: Store, dataset: str) -> None:
    """Wait until no compaction of a dataset is at work in this process."""
    thread = _running.get((store.uri, dataset))
    if thread is not None:
        thread.join()


def _compact(store: Store, dataset: str, options: CompactionOptions) -> None:
    try:
        report = compact(store, dataset, TRUE, options, spark=None, is_dry_run=False)
    except LakebedError as exc:
        _log.warning("compaction failed dataset=%s reason=%s", dataset, exc.message)
    else:
        _log.info(
            "compacted dataset=%s files_before=%d files_after=%d",
            dataset,
            report.files_before,
            report.files_after,
        )
