"""What the caps of dimensions sent to `OTHER`.

It travels in the metadata of a writer's facts, so that a task's answer is one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pyarrow as pa

from lakebed.index.postings import joined, postings_in, with_postings

MAX_SAMPLE = 5
_METADATA = b"lakebed.caught"


class Caught(msgspec.Struct, frozen=True, kw_only=True):
    """What the cap of one dimension sent to `OTHER` in one write.

    Attributes:
        dimension: The partition field.
        cap: How many values may have a partition of their own.
        row_count: Entities that went to `OTHER` for it.
        values: Some of their values, at most `MAX_SAMPLE`.
    """

    dimension: str
    cap: int
    row_count: int
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(self.values)
        return f"{self.dimension}: {self.row_count} rows beyond {self.cap} values, as {shown}"


def total(caught: Iterable[Caught]) -> tuple[Caught, ...]:
    """Add up what several writers caught: one for each dimension."""
    found: dict[str, Caught] = {}
    for one in caught:
        before = found.get(one.dimension)
        if before is None:
            found[one.dimension] = one
            continue
        values = dict.fromkeys((*before.values, *one.values))
        found[one.dimension] = Caught(
            dimension=one.dimension,
            cap=one.cap,
            row_count=before.row_count + one.row_count,
            values=tuple(values)[:MAX_SAMPLE],
        )
    return tuple(found.values())


def with_caught(facts: pa.Table, caught: Iterable[Caught]) -> pa.Table:
    """Return facts that carry what was caught, beside what they carry already."""
    found = list(caught)
    metadata = dict(facts.schema.metadata or {})
    metadata.pop(_METADATA, None)
    if found:
        metadata[_METADATA] = msgspec.json.encode(found)
    return facts.replace_schema_metadata(metadata or None)


def concat_facts(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the facts of several writers as one table, with all that they carry.

    Args:
        tables: At least one.
    """
    caught = total(one for table in tables for one in caught_in(table))
    postings = joined([postings_in(table) for table in tables])
    return with_postings(with_caught(pa.concat_tables(tables), caught), postings)


def caught_in(facts: pa.Table) -> tuple[Caught, ...]:
    """Return what facts carry."""
    data = (facts.schema.metadata or {}).get(_METADATA)
    return () if data is None else msgspec.json.decode(data, type=tuple[Caught, ...])
