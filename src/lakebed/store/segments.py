"""Lists of immutable segments that grow by one a commit and merge geometrically.

The file table, the history and the postings of a column are such lists. A commit writes one small segment and names it in
the head; when a level of the list is full, the commit merges it into one segment of the next.
So beyond the lowest level every entry is rewritten a logarithmic number of times, and the list stays short.
"""

from __future__ import annotations

import itertools
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError, StorageFullError
from lakebed.model.keys import check_under
from lakebed.model.layout import segment_key
from lakebed.store.base import Store, StoredObject, is_listed

_log = logging.getLogger(__name__)

_WEIGHT = re.compile(r"[0-9]{1,18}")
FANOUT = 8  # segments of a level before they merge into one of the next
# A segment of fewer entries than this counts as the lowest level, whatever it has been merged of:
# to write so few again costs less than the requests that more levels would cost each reader.
SMALL = 512


@dataclass(frozen=True, slots=True)
class Segment:
    """One immutable object of a list.

    Attributes:
        key: Where it is; `<folder>/<weight>-<id><suffix>`.
        weight: How many entries it holds.
    """

    key: str
    weight: int

    @classmethod
    def new(cls, folder: str, weight: int, suffix: str) -> Self:
        """Return a segment under a key that nobody else uses."""
        return cls(segment_key(folder, weight, f"{uuid.uuid4().hex}{suffix}"), weight)

    @classmethod
    def parse(cls, key: str, dataset: str) -> Self:
        """Read a segment back from its key.

        Raises:
            CorruptMetadataError: The key is not of that form, or lies outside the dataset.
        """
        check_under(key, f"{dataset}/")
        weight, separator, _ = key.rpartition("/")[2].partition("-")
        if not separator or not _WEIGHT.fullmatch(weight) or not is_listed(key):
            raise CorruptMetadataError(
                f"Segment key {key!r} is not legal, or its name does not begin with its weight.",
                hint="The head was damaged or written by something else.",
            )
        return cls(key, int(weight))


def read_segment(store: Store, segment: Segment, what: str, loss: str) -> StoredObject:
    """Return the object of a segment that a head names.

    Args:
        store: Where it is.
        segment: Of a list.
        what: The list, for errors.
        loss: What its loss means, for errors.

    Raises:
        CorruptMetadataError: It is missing.
    """
    try:
        return store.get(segment.key)
    except ObjectNotFoundError as exc:
        raise CorruptMetadataError(
            f"{what} {segment.key!r} cannot be read: it is missing.", hint=loss
        ) from exc


@dataclass(frozen=True, slots=True)
class EncodedSegment:
    """A segment ready to be put under its key."""

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
    """Return how many segments at the end of the list should become one; 0 for none.

    A merge takes everything at the end that is not above the full level, so that levels fall
    towards the end, but for what a large commit added last. Full is a level that has `FANOUT`
    segments of its own: if those below counted, the heaviest would be written again for each few
    of the lightest.
    """
    levels = [level_of(segment.weight) for segment in segments]
    for level in sorted(set(levels)):
        tail = list(itertools.takewhile(level.__ge__, reversed(levels)))
        if tail.count(level) >= FANOUT:
            return len(tail)
    return 0


def due_end(segments: Sequence[Segment]) -> Sequence[Segment]:
    """Return the end of a list that is due to become one segment; empty if no level is full."""
    return segments[len(segments) - count_to_merge(segments) :]


def compact(
    store: Store,
    segments: Sequence[Segment],
    merge: Callable[[Sequence[Segment]], EncodedSegment],
    written: list[str],
    *,
    find_due: Callable[[Sequence[Segment]], Sequence[Segment]] = due_end,
) -> tuple[Segment, ...]:
    """Merge the end of a list that is due, if all of it can be read and there is room for it.

    Args:
        store: Where the segments are.
        segments: The list.
        merge: Makes one segment of several.
        written: Takes the key of the merged segment before it is written.
        find_due: Tells the end that is due.

    Returns:
        The list to name in the head.

    Cost:
        What `find_due` and `merge` cost, and one PUT; nothing where no level is full.
    """
    try:
        tail = find_due(segments)
        if len(tail) < 2:
            return tuple(segments)
        merged = merge(tail)
        written.append(merged.segment.key)
        store.put(merged.segment.key, merged.data)
    except (CorruptMetadataError, ObjectNotFoundError, StorageFullError) as exc:
        # Whoever needs what is lost says so; a commit does not, and goes on with a longer list.
        folder = segments[-1].key.rpartition("/")[0]
        _log.warning("segments stay unmerged folder=%s: %s", folder, exc)
        return tuple(segments)
    return (*segments[: -len(tail)], merged.segment)
