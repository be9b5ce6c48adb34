"""The logs of cleanups: what each deleted, and which segments the head named then.

A cleanup may delete a segment that no head names if all readers have begun since it was last named.
The head does not show when that was. So each log records the segments that are named, and a later
cleanup, whose retention begins after the log, knows that the others were unnamed before.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
import zstandard

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.model.layout import Folder
from lakebed.state.state import State
from lakebed.store.base import ObjectInfo, Store
from lakebed.store.segments import Segment, unpack

MOST_LOGS = 500  # older ones are deleted
_SUFFIX = ".json.zst"

_log = logging.getLogger(__name__)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The segments that a head named.

    Attributes:
        named: Their keys, and those of segments that the commit of a staged batch will name.
        settled_at: No commit will ever name another segment that was written before this time.
    """

    named: frozenset[str]
    settled_at: Annotated[dt.datetime, msgspec.Meta(tz=True)]

    def shows_unnamed(self, info: ObjectInfo) -> bool:
        """Return whether a segment was unnamed then, and stays so."""
        return info.modified_at < self.settled_at and info.key not in self.named


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    segments: Observation | None = None  # earlier releases do not record it


def logs_in(objects: Iterable[ObjectInfo], dataset: str) -> list[ObjectInfo]:
    """Return the logs of cleanups among the objects of a dataset, newest first."""
    folder = f"{Folder.CLEANUPS.of(dataset)}/"
    logs = [info for info in objects if info.key.startswith(folder)]
    return sorted(logs, key=lambda info: (info.modified_at, info.key), reverse=True)


def surplus(logs: Sequence[ObjectInfo], cutoff: dt.datetime) -> frozenset[str]:
    """Return the keys of the logs that are too many.

    Args:
        logs: All logs, newest first.
        cutoff: Begin of the retention; the newest log before it stays.
    """
    young = sum(1 for info in logs if info.modified_at > cutoff)
    return frozenset(info.key for info in logs[max(MOST_LOGS, young + 1) :])


def observation_before(
    store: Store, logs: Sequence[ObjectInfo], cutoff: dt.datetime
) -> Observation | None:
    """Return the last observation before a moment; None if there is none.

    Cost:
        One GET if there is a log from before that moment.
    """
    log = next((info for info in logs if info.modified_at <= cutoff), None)
    if log is None:
        return None
    try:
        data = store.get(log.key).data
        return unpack(data, _Document, f"Log {log.key!r}", "It is a log alone.").segments
    except ObjectNotFoundError:
        return None  # another cleanup was faster
    except CorruptMetadataError as exc:
        _log.warning("log of a cleanup left out key=%s: %s", log.key, exc.message)
        return None


def write(
    store: Store, state: State, files: Sequence[object], observed: Observation | None
) -> None:
    """Log the objects that are about to be deleted, to explain missing files later.

    Args:
        store: The store that holds the dataset.
        state: The state of the head by which they are dead.
        files: A document for each of the objects.
        observed: The segments that the head names.
    """
    segment = Segment.new(Folder.CLEANUPS.of(state.name), state.version, _SUFFIX)
    document = {
        "version": state.version,
        "deleted_at": dt.datetime.now(dt.UTC),
        "files": files,
        **({} if observed is None else {"segments": observed}),
    }
    store.put(
        segment.key,
        zstandard.ZstdCompressor().compress(msgspec.json.encode(document, order="deterministic")),
    )
