"""Values of dimensions that exceeded a cap and went to `OTHER`."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from lakebed.common.shown import counted

MAX_SAMPLE = 5


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """The values that the cap of one dimension sent to `OTHER` in one write.

    Attributes:
        dimension: The partition field.
        cap: The number of values that may have a partition of their own.
        row_count: Number of entities that went to `OTHER` because of the cap.
        values: A sample of their values, at most `MAX_SAMPLE`.
    """

    dimension: str
    cap: int
    row_count: int
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = f", as {', '.join(self.values)}" if self.values else ""
        return f"{self.dimension}: {counted(self.row_count, 'row')} beyond {counted(self.cap, 'value')}{shown}"


def total(caught: Iterable[Caught]) -> tuple[Caught, ...]:
    """Add up the caught values of several writers: one entry for each dimension."""
    totals: dict[str, Caught] = {}
    for part in caught:
        before = totals.get(part.dimension)
        if before is None:
            totals[part.dimension] = part
            continue
        values = dict.fromkeys((*before.values, *part.values))
        totals[part.dimension] = Caught(
            dimension=part.dimension,
            cap=part.cap,
            row_count=before.row_count + part.row_count,
            values=tuple(values)[:MAX_SAMPLE],
        )
    return tuple(totals.values())


def without_values(caught: Iterable[Caught]) -> tuple[Caught, ...]:
    """Return caught values without their samples."""
    return tuple(msgspec.structs.replace(one, values=()) for one in caught)
