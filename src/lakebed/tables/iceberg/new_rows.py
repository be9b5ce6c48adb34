"""Decisions whether rows of a client are new ones or changed ones, by its snapshots. No I/O.

Clients hand back whole files. If rows of these files are gone, and others are new, the new ones may
be changed rows, which stay with the run of the rows that they were. The functions here decide where
that is excluded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError

OVERWRITE = "lakebed.overwrite"  # a property that users set on snapshots
_REPLACES_PARTITIONS = "replace-partitions"
_MERGED = "spark.merge-into."
_UPDATED = f"{_MERGED}num-target-rows-updated"
_NUMBERS = re.compile(r"(?:Apache Iceberg )?(\d{1,4})\.(\d{1,4})\b")
# From these on, Spark counts in the summary what a MERGE has done.
_SPARK = 4, 1
_ICEBERG = 1, 11

Summaries = Sequence[Mapping[str, str]]
"""The summaries of the snapshots of one request, oldest first."""


def replaces_partitions(summaries: Summaries) -> bool:
    """Return whether the new rows replace all rows of the partitions that they are in.

    Raises:
        InvalidInputError: The property states that they may be changed rows.
    """
    replaces = len(summaries) == 1 and summaries[0].get(_REPLACES_PARTITIONS) == "true"
    if replaces and declared(summaries) is False:
        raise InvalidInputError(
            f"The snapshot property {OVERWRITE} is false, and {_REPLACES_PARTITIONS} is true.",
            hint="Leave the first one out: whole partitions are replaced, and none of their rows stays.",
        )
    return replaces


def declared(summaries: Summaries) -> bool | None:
    """Return whether new rows are new ones by the property of the snapshot; None without it.

    Raises:
        InvalidInputError: The property has another value than true or false.
    """
    values = {summary[OVERWRITE] for summary in summaries if OVERWRITE in summary}
    if not values:
        return None
    known = {value.casefold() for value in values}
    if known == {"true"} or known == {"false"}:
        return known == {"true"}
    raise InvalidInputError(
        f"The snapshot property {OVERWRITE} is {shown(', '.join(sorted(values)))}.",
        hint="Set it to true, if all rows that are not handed back unchanged are new ones; else "
        "leave it out.",
    )


def are_new(summaries: Summaries, added_row_count: int, removed_row_count: int) -> bool:
    """Return whether rows that no replaced file holds are new ones, and none is a changed row.

    They are if the user has set the property `lakebed.overwrite` to true, or if Spark has merged
    without an update, or if Spark has overwritten: a release that counts what it merges has not
    merged, and an UPDATE would have left as many rows as there were.

    Args:
        summaries: The summaries.
        added_row_count: Number of rows that the request hands back.
        removed_row_count: Number of rows of the files that it replaces.
    """
    given = declared(summaries)
    if given is not None:
        return given
    if len(summaries) != 1:
        return False
    summary = summaries[0]
    if any(name.startswith(_MERGED) for name in summary):
        return summary.get(_UPDATED) == "0"
    return _counts_merges(summary) and added_row_count != removed_row_count


def _counts_merges(summary: Mapping[str, str]) -> bool:
    return (
        summary.get("engine-name") == "spark"
        and _release(summary.get("engine-version")) >= _SPARK
        and _release(summary.get("iceberg-version")) >= _ICEBERG
    )


def _release(text: str | None) -> tuple[int, int]:
    found = _NUMBERS.match(text or "")
    return (int(found[1]), int(found[2])) if found else (0, 0)
