"""Lists of immutable segments that grow by one a commit and merge geometrically.

The file table, the history and the postings of a column are such lists. A commit writes one small
segment and names it in the head; when a level of the list is full, the commit merges it into one
segment of the next. So beyond the lowest level every entry is rewritten a logarithmic number of
times, and the list stays short.

Segments of JSON, and heads, are one zstd frame. A frame declares the size of its content, and the
declaration may be wrong. So all frames are unpacked by `decompress`, which limits the size.
"""

from __future__ import annotations

import itertools
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import msgspec
import zstandard

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.errors import CorruptMetadataError, ObjectNotFoundError, StorageFullError
from lakebed.model.keys import check_under
from lakebed.model.layout import segment_key
from lakebed.store.base import Store, StoredObject, is_listed

_log = logging.getLogger(__name__)

_WEIGHT = re.compile(r"[0-9]{1,18}")
MAX_DOCUMENT_BYTES = 2**30  # unpacked; a list of a million files has a quarter of that
_PIECE_BYTES = 4 * 2**20
_MAX_RATIO = 2**15  # a block of zstd takes at least four bytes, and holds at most 128 KiB
FANOUT = 8  # number of segments of a level that merge into one of the next
# A segment of fewer entries than this is of the lowest level, even if it is the result of a merge:
# rewriting so few costs less than the requests that more levels would cost each reader.
SMALL = 512

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Segment:
    """One immutable object of a list.

    Attributes:
        key: Key of the form `<folder>/<weight>-<id><suffix>`.
        weight: Number of entries.
    """

    key: str
    weight: int

    @classmethod
    def new(cls, folder: str, weight: int, suffix: str) -> Self:
        """Return a segment with a new, unique key."""
        return cls(segment_key(folder, weight, f"{uuid.uuid4().hex}{suffix}"), weight)

    @classmethod
    def parse(cls, key: str, dataset: str) -> Self:
        """Read a segment back from its key.

        Raises:
            CorruptMetadataError: The key is not of that form, or is outside the dataset.
        """
        check_under(key, f"{dataset}/")
        weight, separator, _ = key.rpartition("/")[2].partition("-")
        if not separator or not _WEIGHT.fullmatch(weight) or not is_listed(key):
            raise CorruptMetadataError(
                f"Segment key {key!r} is not valid, or its name does not begin with its weight.",
                hint="The head was damaged, or another program wrote it.",
            )
        return cls(key, int(weight))


def read_segment(store: Store, segment: Segment, what: str, loss: str) -> StoredObject:
    """Return the object of a segment that a head names.

    Args:
        store: The store that holds the segment.
        segment: The segment to read.
        what: Description of the segment, for errors.
        loss: Consequence of its loss, for the hint of the error.

    Raises:
        CorruptMetadataError: The object is missing.
    """
    try:
        return store.get(segment.key)
    except ObjectNotFoundError as exc:
        raise CorruptMetadataError(
            f"{what} {segment.key!r} cannot be read: it is missing.", hint=loss
        ) from exc


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A segment with its encoded content."""

    segment: Segment
    data: bytes


def level_of(weight: int) -> int:
    """Return the level of a segment: 0 if it is small, else one more for each factor `FANOUT`."""
    level = 0
    while weight >= SMALL:
        weight //= FANOUT
        level += 1
    return level


def count_to_merge(segments: Sequence[Segment]) -> int:
    """Return the number of segments at the end of the list that are due to merge; 0 for none.

    A merge takes all segments at the end up to the full level, so that levels decrease towards
    the end, except for those of large commits. A level is full if it has `FANOUT` segments of its
    own: if lower ones counted, the heaviest segments would be rewritten for a few of the lightest.
    """
    levels = [level_of(segment.weight) for segment in segments]
    for level in sorted(set(levels)):
        tail = list(itertools.takewhile(level.__ge__, reversed(levels)))
        if tail.count(level) >= FANOUT:
            return len(tail)
    return 0


def due_end(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the segments at the end of a list that are due to merge; empty if no level is full."""
    return segments[len(segments) - count_to_merge(segments) :]


def end_within(
    segments: Sequence[Segment], measure: Callable[[Segment], int], limit: int
) -> Sequence[Segment]:
    """Return the longest end of a list that does not exceed a limit.

    Args:
        segments: The list of segments.
        measure: Function that returns the part of the limit that a segment takes.
        limit: Limit for all segments of the end together.
    """
    length, total = 0, 0
    for segment in reversed(segments):
        total += measure(segment)
        if total > limit:
            break
        length += 1
    return segments[len(segments) - length :]


def compact(
    store: Store,
    segments: Sequence[Segment],
    merge: Callable[[Sequence[Segment]], EncodedSegment],
    written: list[str],
    *,
    find_due: Callable[[Sequence[Segment]], Sequence[Segment]] = due_end,
) -> tuple[Segment, ...]:
    """Merge the segments that are due, if all of them can be read and the store has space.

    Args:
        store: The store that holds the segments.
        segments: The list of segments.
        merge: Function that merges several segments into one.
        written: Receives the key of the merged segment before it is written.
        find_due: Function that returns the segments at the end that are due.

    Returns:
        The list to name in the head.

    Cost:
        The cost of `find_due` and `merge`, and one PUT; nothing if no level is full.
    """
    try:
        tail = find_due(segments)
        if len(tail) < 2:
            return tuple(segments)
        merged = merge(tail)
        written.append(merged.segment.key)
        store.put(merged.segment.key, merged.data)
    except (CorruptMetadataError, ObjectNotFoundError, StorageFullError) as exc:
        # Readers that need the lost segment report it; the commit succeeds with a longer list.
        folder = segments[-1].key.rpartition("/")[0]
        _log.warning("segments stay unmerged folder=%s: %s", folder, exc)
        return tuple(segments)
    return (*segments[: -len(tail)], merged.segment)


def pack(document: object, *, level: int = 3) -> bytes:
    """Return the bytes of a document.

    Args:
        document: The value that JSON represents.
        level: Level of zstd. Level 1 is best for labels: half of each is unpredictable digits, in
            which higher levels search in vain.
    """
    return compress(msgspec.json.encode(document), level=level)


def unpack(data: bytes, kind: type[_T], what: str, hint: str) -> _T:
    """Read a document.

    Args:
        data: The stored bytes.
        kind: Type of the document.
        what: Name of the object, for the error.
        hint: Consequence of its loss, for the error.

    Raises:
        CorruptMetadataError: The document is truncated, too large or malformed.
    """
    try:
        return from_json(decompress(data, MAX_DOCUMENT_BYTES), kind)
    except (*UNREADABLE, zstandard.ZstdError, MemoryError) as exc:
        raise CorruptMetadataError(f"{what} cannot be read: {exc}.", hint=hint) from exc


def compress(data: bytes, *, level: int) -> bytes:
    """Return a frame with a checksum, at a level of zstd."""
    # A compressor must not be shared by threads, so each call has its own.
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(data)


def decompress(data: bytes, max_bytes: int) -> bytes:
    """Return the content of a frame.

    Raises `zstandard.ZstdError` for data that is not a frame or is truncated, and for a frame with
    more than `max_bytes` of content, before that much has been unpacked.

    Args:
        data: The frame.
        max_bytes: Upper limit of the size of the content.

    Cost:
        Memory for the content, but never more than a frame of that size could hold.
    """
    declared = zstandard.get_frame_parameters(data).content_size
    if declared != zstandard.CONTENTSIZE_UNKNOWN:
        if declared > max_bytes:
            raise _too_large(max_bytes)
        if declared > len(data) * _MAX_RATIO:
            message = f"it declares {declared} bytes, which {len(data)} bytes cannot hold"
            raise zstandard.ZstdError(message)
        return zstandard.ZstdDecompressor().decompress(data)
    content = bytearray()
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        while piece := reader.read(_PIECE_BYTES):
            content += piece
            if len(content) > max_bytes:
                raise _too_large(max_bytes)
    return bytes(content)


def _too_large(max_bytes: int) -> zstandard.ZstdError:
    return zstandard.ZstdError(f"it unpacks to more than {max_bytes} bytes")
