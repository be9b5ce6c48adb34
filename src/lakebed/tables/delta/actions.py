"""The lines of a Delta commit, as the Delta protocol defines them. No I/O."""

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
    """Return one line, without the line break."""
    return _ENCODER.encode(action)


def now_ms() -> int:
    """Return the time in epoch milliseconds, as actions have it."""
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)


def path_of(label: str, naming: Naming) -> str:
    """Return the path of a data file, relative to the table and encoded as in a URL.

    Raises:
        InvalidInputError: The file lies outside the table's directory.

    >>> path_of("p=a%2Fb/batch_id=1/part-0", Naming("flights", "data", ".parquet"))
    'p=a%252Fb/batch_id=1/part-0.parquet'
    """
    if is_adopted(label):
        raise InvalidInputError(
            f"Data file {naming.key(label)!r} was adopted in place, outside the directory of the "
            "Delta table.",
            hint="`compact` with gather rewrites adopted files inside that directory.",
        )
    return urllib.parse.quote(f"{label}{naming.suffix}", safe="/=")


def adds(
    files: ShownFiles, naming: Naming, lineage: Lineage, *, is_change: bool
) -> Iterator[dict[str, Any]]:
    """Yield an `add` action for each file.

    Args:
        files: The files to add to the table.
        naming: Names of the dataset's data files.
        lineage: Lineage of the dataset's schema.
        is_change: False if the rows were in the table before, in other files.
    """
    statistics = stats(files, lineage)
    texts: dict[int, dict[str, str | None]] = {}  # files of a directory share their values
    for position, label in enumerate(files.labels):
        values = files.values[position]
        if id(values) not in texts:
            texts[id(values)] = {n: partition_text(value, n) for n, value in values.items()}
        yield {
            "path": path_of(label, naming),
            "partitionValues": texts[id(values)],
            "size": files.size_bytes[position],
            "modificationTime": files.written_ms[position],
            "dataChange": is_change,
            "stats": statistics[position],
        }


def stats(files: ShownFiles, lineage: Lineage) -> list[str]:
    """Return the statistics of each file, as Delta's JSON.

    A file with incomplete statistics has only its row count: see `lakebed.tables.delta.delta_schema`.
    """
    columns = [(c, *_bounds(c)) for c in files.columns]
    result = []
    for position, row_count in enumerate(files.row_count):
        number = schema_number_of(files.labels[position], newest=lineage.number)
        known: dict[str, Any] = {"numRecords": row_count}
        low, high, nulls = {}, {}, {}
        is_whole = True
        for column, mins, maxs in columns:
            name, null_count = column.field.name, column.null_count[position]
            if mins[position] is not None:
                low[name] = mins[position]
            if maxs[position] is not None:
                high[name] = maxs[position]
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
    """Return a bound as a JSON value; None if JSON has no such value."""
    if isinstance(value, dt.datetime):
        # Readers expect bounds of times to be truncated to milliseconds.
        cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
        if is_max and cut < value:
            with contextlib.suppress(OverflowError):  # the greatest time of Python stays as it is
                cut += _MILLISECOND
        zone = "Z" if value.tzinfo else ""
        return f"{cut.replace(tzinfo=None).isoformat(timespec='milliseconds')}{zone}"
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return None
    if isinstance(value, decimal.Decimal):
        # Python writes zero and small numbers with an exponent, which deltalake reads as null.
        return msgspec.Raw(format(value, "f").encode())
    return value
