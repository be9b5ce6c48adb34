"""Names in the log of a Delta table, and the commits and checkpoints that can be deleted."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

from lakebed.model.layout import delta_folder
from lakebed.state.published import OldMetadata
from lakebed.store.base import ObjectInfo

COMMIT = re.compile(r"([0-9]{20})\.json")
CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint\.parquet")
LAST_CHECKPOINT = "_last_checkpoint"
SIDECARS = "_sidecars"  # folder of the parts of checkpoints
MOST = 10**18  # numbers have 63 bits; no log gets that far commit by commit


def number_in(name: str, pattern: re.Pattern[str]) -> int | None:
    """Return the number of a commit or checkpoint; None for other names."""
    match = pattern.fullmatch(name)
    return int(match[1]) if match else None


def number_of(key: str) -> int | None:
    """Return the number of an object of a log; None if it has no number that a log can reach."""
    name = key.rpartition("/")[2]
    numbers = (number_in(name, pattern) for pattern in (COMMIT, CHECKPOINT))
    return next((number for number in numbers if number is not None and number < MOST), None)


def dead_log_keys(dataset: str, objects: Sequence[ObjectInfo], cutoff: dt.datetime) -> OldMetadata:
    """Return the objects before the last checkpoint that is not newer than the cutoff.

    A reader that began after the cutoff needs nothing before that checkpoint. A checkpoint without
    its commit does not count: it belongs to a table that was dropped, and was written late.

    Args:
        dataset: Name of the dataset.
        objects: The objects of the dataset, as listed.
        cutoff: Time before which no reader that still reads has begun.
    """
    folder = f"{delta_folder(dataset)}/"
    names = {info: info.key[len(folder) :] for info in objects if info.key.startswith(folder)}
    commits = {number_in(name, COMMIT) for name in names.values()}
    checkpoints = (
        number_in(name, CHECKPOINT) for info, name in names.items() if info.modified_at <= cutoff
    )
    numbers = (number for number in checkpoints if number is not None)
    first = max((number for number in numbers if number in commits), default=0)
    dead = set()
    for info, name in names.items():
        for pattern in (COMMIT, CHECKPOINT):
            number = number_in(name, pattern)
            if number is not None and number < first:
                dead.add(info.key)
    return OldMetadata(dead=frozenset(dead))
