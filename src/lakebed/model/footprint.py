"""The footprint of a row: hidden columns that say which batch and run wrote it, and when.

They exist in SQL, where a dataset has no column of such a name itself.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence

from lakebed.model.keys import BATCH_ID, batch_id_of, started_ms
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import EPOCH, Scalar

BATCH_TIME = "batch_time"
RUN = "run"
_TYPES = {
    BATCH_ID: Primitive(Kind.LONG),
    BATCH_TIME: Primitive(Kind.TIMESTAMP),
    RUN: Primitive(Kind.STRING),
}
FOOTPRINT = tuple(_TYPES)


def hidden_columns(shown: Collection[str]) -> tuple[str, ...]:
    """Return the columns of the footprint that a table can have beside those that it shows.

    Engines of SQL ignore case in names.

    >>> hidden_columns(["n", "Run"])
    ('batch_id', 'batch_time')
    """
    taken = {name.casefold() for name in shown}
    return tuple(name for name in FOOTPRINT if name not in taken)


def types_of(names: Sequence[str]) -> dict[str, Type]:
    """Return the types of columns of the footprint."""
    return {name: _TYPES[name] for name in names}


def values_of(names: Sequence[str], label: str, run: str | None) -> dict[str, Scalar]:
    """Return the values that all rows of a data file have in columns of the footprint.

    Args:
        names: Columns of the footprint.
        label: Label of the file.
        run: Run that wrote its rows.

    >>> values_of(("batch_id", "run"), "dt=2013-01-01/batch_id=1449784608123/part-0", "daily")
    {'batch_id': 1449784608123, 'run': 'daily'}
    """
    if not names:
        return {}
    batch_id = batch_id_of(label)
    began = None if batch_id is None else started_at(batch_id)
    values: dict[str, Scalar] = {BATCH_ID: batch_id, BATCH_TIME: began, RUN: run}
    return {name: values[name] for name in names}


def started_at(batch_id: int) -> dt.datetime | None:
    """Return the start time of the run of a batch; None if its id is not a valid time.

    >>> started_at(1449784608123).isoformat(), started_at(1449784608).year
    ('2015-12-10T21:56:48.123000+00:00', 2015)
    """
    try:
        return EPOCH + dt.timedelta(milliseconds=started_ms(batch_id))
    except OverflowError:
        return None
