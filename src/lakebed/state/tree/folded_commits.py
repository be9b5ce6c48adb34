"""The codec of a segment of the history of a tree: the commits that a fold took out of the buffer.

Unlike a segment of other datasets it also holds the facts of the files, so that an older version is
read as the current one is.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence

import msgspec
import zstandard

from lakebed.common.decoding import from_msgpack
from lakebed.errors import CorruptMetadataError
from lakebed.state import history
from lakebed.state.tree.tree_root import MOST_BYTES, Buffered, HistoryRef, check_buffered
from lakebed.store.segments import compress, decompress


def new_segment(commits: Sequence[Buffered]) -> HistoryRef:
    """Return a new segment for some commits."""
    return HistoryRef(
        id=uuid.uuid4().bytes,
        weight=history.weight_of(one.entry for one in commits),
        first=commits[0].entry.version,
        last=commits[-1].entry.version,
        has_leaves=any(one.entry.brought or one.entry.dropped for one in commits),
    )


def encode(buffer: Sequence[Buffered]) -> bytes:
    """Return the bytes of a segment."""
    return compress(msgspec.msgpack.encode(buffer), level=1)


def decode(data: bytes, segment: HistoryRef, key: str) -> tuple[Buffered, ...]:
    """Read a segment.

    Args:
        data: The stored bytes.
        segment: The segment, as the root names it.
        key: Its key, for errors.

    Raises:
        CorruptMetadataError: It is damaged, malformed, or another one.
    """
    return _read(data, key, lambda _: (segment.first, segment.last))


def decode_found(data: bytes, key: str) -> tuple[Buffered, ...]:
    """Read a segment that no root names any more.

    Args:
        data: The stored bytes.
        key: Its key, for errors.

    Raises:
        CorruptMetadataError: It is damaged or malformed, or has no consecutive versions.
    """
    return _read(data, key, lambda buffer: (buffer[0].entry.version, buffer[-1].entry.version))


def stamped(commits: tuple[Buffered, ...], stored_at: dt.datetime | None) -> tuple[Buffered, ...]:
    """Return commits with the time when the storage stored the last of them.

    Args:
        commits: The commits, oldest first.
        stored_at: A time at which the storage had them, if one is known: that of the object that
            they are in. The last one keeps a time that is known already.
    """
    if not commits or stored_at is None or commits[-1].entry.stored_at is not None:
        return commits
    last = msgspec.structs.replace(commits[-1].entry, stored_at=stored_at)
    return (*commits[:-1], Buffered(last, commits[-1].facts))


def _read(
    data: bytes, key: str, versions: Callable[[Sequence[Buffered]], tuple[int, int]]
) -> tuple[Buffered, ...]:
    try:
        raw = decompress(data, MOST_BYTES)
        buffer = from_msgpack(raw, tuple[Buffered, ...])
        check_buffered(buffer, *versions(buffer))
    except (
        zstandard.ZstdError,
        msgspec.MsgspecError,
        MemoryError,
        RecursionError,
        ValueError,
        OverflowError,
        IndexError,
    ) as exc:
        raise CorruptMetadataError(
            f"History {key!r} cannot be read: {exc}.", hint=history.LOSS
        ) from exc
    return buffer
