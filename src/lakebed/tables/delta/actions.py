"""The lines of a Delta commit, as the protocol of Delta says them. No I/O."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from lakebed.errors import InvalidInputError
from lakebed.model.keys import is_adopted, schema_number_of
from lakebed.model.layout import Naming
from lakebed.model.lineage import Lineage
from lakebed.model.values import Scalar
from lakebed.tables.delta.delta_schema import partition_text
from lakebed.tables.shown_facts import ShownColumn, ShownFiles, has_both_bounds

_ENCODER = msgspec.json.Encoder()
_MILLISECOND = dt.timedelta(milliseconds=1)


def encode(action: Mapping[str, Any]) -> bytes:
    """Return one line, without its end."""
    return _ENCODER.encode(action)


def path_of(label: str, naming: Naming) -> str:
    """Return the path of a data file, relative to the table and encoded as in a URL.

    Raises:
        InvalidInputError: The file lies outside the table's directory.

    >>> path_of("p=a%2Fb/batch_id=1/part-0", Naming("flights", "data", ".parquet"))
    'p=a%252Fb/batch_id=1/part-0.parquet'
    """
    if is_adopted(label):
        raise InvalidInputError(
            f"Data file {naming.key(label)!r} was adopted where it lay, outside the directory of "
            "the Delta table.",
            hint="`compact` with gather writes adopted files again, where the table can name them.",
        )
    return urllib.parse.quote(f"{label}{naming.suffix}", safe="/=")


def adds(
    files: ShownFiles, naming: Naming, lineage: Lineage, *, is_change: bool
) -> Iterator[dict[str, Any]]:
    """Yield what makes files part of the table, an `add` each.

    Args:
        files: Which.
        naming: Of the dataset.
        lineage: Of its schema.
        is_change: Whether their rows were not in the table before.
    """
    statistics = stats(files, lineage)
    texts: dict[int, dict[str, str | None]] = {}  # files of a directory share their values
    for place, label in enumerate(files.labels):
        values = files.values[place]
        if id(values) not in texts:
            texts[id(values)] = {n: partition_text(value, n) for n, value in values.items()}
        yield {
            "path": path_of(label, naming),
            "partitionValues": texts[id(values)],
            "size": files.size_bytes[place],
            "modificationTime": files.written_ms[place],
            "dataChange": is_change,
            "stats": statistics[place],
        }


def stats(files: ShownFiles, lineage: Lineage) -> list[str]:
    """Return what is known of the rows of each file, as Delta's JSON.

    Of a file of which not all is known only the rows are told: see `lakebed.tables.delta.delta_schema`.
    """
    columns = [(c, *_bounds(c)) for c in files.columns]
    result = []
    for place, row_count in enumerate(files.row_count):
        number = schema_number_of(files.labels[place], newest=lineage.number)
        known: dict[str, Any] = {"numRecords": row_count}
        low, high, nulls = {}, {}, {}
        is_whole = True
        for column, mins, maxs in columns:
            name, null_count = column.field.name, column.null_count[place]
            if mins[place] is not None:
                low[name] = mins[place]
            if maxs[place] is not None:
                high[name] = maxs[place]
            if null_count is not None:
                nulls[name] = null_count
            if has_both_bounds(column.field.type) and null_count != row_count:
                is_known = name in low and name in high and name in nulls
                is_whole &= is_known or (number is not None and lineage.lacks(name, number))
        if is_whole:
            known |= {"minValues": low, "maxValues": high, "nullCount": nulls}
        result.append(_ENCODER.encode(known).decode())
    return result


def _bounds(column: ShownColumn) -> tuple[Sequence[Any], Sequence[Any]]:
    return [_bound(value) for value in column.min], [
        _bound(value, is_max=True) for value in column.max
    ]


def _bound(value: Scalar, *, is_max: bool = False) -> Any:
    """Return a bound as JSON holds it; None if it cannot."""
    if isinstance(value, dt.datetime):
        # Readers take bounds of times for cut to milliseconds.
        cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if is_max and cut < value:
            with contextlib.suppress(OverflowError):  # at the end of time only they do it
                cut += _MILLISECOND
        zone = "Z" if value.tzinfo else ""
        return f"{cut.replace(tzinfo=None).isoformat(timespec='milliseconds')}{zone}"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, decimal.Decimal):
        # With an exponent, as Python writes zero and small numbers, deltalake reads null.
        return msgspec.Raw(format(value, "f").encode())
    return value
