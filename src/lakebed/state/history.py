"""History: one small entry a commit, from which every older state can be told."""

from __future__ import annotations

import bisect
import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from lakebed.errors import CorruptMetadataError, VersionNotFoundError
from lakebed.model.keys import BatchId
from lakebed.state.caps import Caught
from lakebed.store.base import Store
from lakebed.store.segments import Segment

SUFFIX = ".json"


def folder(dataset: str) -> str:
    """Return where the entries of a dataset lie."""
    return f"{dataset}/history"


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one commit did.

    Attributes:
        version: The version that it made.
        commit_id: Stable over retries.
        operation: Such as `append` or `cleanup`, or `foreign` for changes of other tools; docs/format.md lists them.
        committed_at: By the committer's clock, never before the commit before.
        batch_id: The batch that it made visible, if any.
        run: Name of the run, if it had one.
        row_count: Entities in the files that it added.
        added: Labels of the files that it added.
        removed: Labels of the files that it took out.
        partitions: Partitions that it touched.
        carried: By label of a file that was written anew: the run whose rows it holds.
        horizon: Of a cleanup: versions before it can only be read if they are protected.
        protected: What a protection keeps from now on, in words.
        unprotected: What lost its protection, in words.
        caught: What the caps of dimensions sent to `OTHER`.
        descriptor: The descriptor from this version on, where it changed.
    """

    version: Annotated[int, msgspec.Meta(ge=0)]
    commit_id: str
    operation: str
    committed_at: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    batch_id: BatchId | None = None
    run: str | None = None
    row_count: int = 0
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    caught: tuple[Caught, ...] = ()
    carried: dict[str, str] = {}
    horizon: int | None = None
    protected: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    descriptor: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastState:
    """What is needed to read an older version."""

    labels: tuple[str, ...]
    descriptor: dict[str, Any]
    entry: Entry


def encode_entries(entries: Sequence[Entry]) -> bytes:
    """Return the bytes of a segment."""
    return msgspec.json.encode({"entries": entries})


class _Document(msgspec.Struct):
    entries: tuple[Entry, ...]


def decode_entries(data: bytes, key: str) -> tuple[Entry, ...]:
    """Read a segment.

    Raises:
        CorruptMetadataError: It is truncated or of a wrong form.
    """
    try:
        return msgspec.json.decode(data, type=_Document).entries
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise CorruptMetadataError(
            f"History {key!r} cannot be read: {exc}.",
            hint="The current version is not affected; older versions and conflicts are.",
        ) from exc


def merge(parts: Sequence[bytes]) -> bytes:
    """Return several segments as one."""
    entries = [one for part in parts for one in decode_entries(part, "history segment")]
    return encode_entries(entries)


def read(store: Store, segments: Sequence[Segment], *, after: int = -1) -> tuple[Entry, ...]:
    """Return the entries of versions above `after`, oldest first.

    Segments are read from the newest back, as far as needed.

    Cost:
        One GET a segment; for recent versions usually one.
    """
    found: list[tuple[Entry, ...]] = []
    for segment in reversed(segments):
        entries = decode_entries(store.get(segment.key).data, segment.key)
        found.append(tuple(entry for entry in entries if entry.version > after))
        if entries and entries[0].version <= after + 1:
            break
    return tuple(entry for entries in reversed(found) for entry in entries)


def labels_of(entries: Sequence[Entry], versions: Collection[int]) -> frozenset[str]:
    """Return the files of any of some versions, in one pass over the history.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    missing = frozenset(versions).difference(entry.version for entry in entries)
    if missing:
        raise _no_version(entries, min(missing))
    wanted = sorted(versions)
    added_in: dict[str, int] = {}  # of the files that are there
    found = set()
    for entry in entries:
        for label in entry.removed:
            added = added_in.pop(label, entry.version)
            place = bisect.bisect_left(wanted, added)
            if place < len(wanted) and wanted[place] < entry.version:
                found.add(label)
        for label in entry.added:
            added_in.setdefault(label, entry.version)
    last = wanted[-1] if wanted else -1
    found.update(label for label, added in added_in.items() if added <= last)
    return frozenset(found)


def _no_version(entries: Sequence[Entry], version: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"There is no version {version}.",
        hint=f"Versions are 0 to {max((entry.version for entry in entries), default=0)}.",
    )


def replay(entries: Sequence[Entry], version: int) -> PastState:
    """Return the state after the commit that made `version`.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    labels: dict[str, None] = {}
    descriptor: dict[str, Any] = {}
    last: Entry | None = None
    for entry in entries:
        if entry.version > version:
            break
        for label in entry.removed:
            labels.pop(label, None)
        labels.update(dict.fromkeys(entry.added))
        descriptor = entry.descriptor or descriptor
        last = entry
    if last is None or last.version != version:
        raise _no_version(entries, version)
    return PastState(labels=tuple(labels), descriptor=descriptor, entry=last)
