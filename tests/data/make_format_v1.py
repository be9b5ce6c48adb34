"""Write `format-v1`: datasets as release 0.1 writes them, which every later release must read.

Run it only while version 1 of the format is not released. Afterwards the files stay as they are.
"""

from __future__ import annotations

import datetime as dt
import decimal
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

import lakebed
from lakebed import by

FOLDER = Path(__file__).with_name("format-v1")
SCHEMA = pa.schema(
    [
        pa.field("carrier", pa.string()),
        pa.field("time_hour", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("delay", pa.float64()),
        pa.field("distance", pa.int32()),
        pa.field("cancelled", pa.bool_()),
        pa.field("fare", pa.decimal128(9, 2)),
        pa.field("booked", pa.date32()),
        pa.field("stops", pa.list_(pa.string())),
    ]
)
DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=SCHEMA,
    partition_by=[by.date("time_hour", name="dt"), by.identity("carrier")],
    properties={"owner": "ops"},
)


def entity(number: int, *, day: int, carrier: str | None) -> dict[str, Any]:
    """Return the entity of a number; every third has nulls."""
    is_null = number % 3 == 0
    return {
        "carrier": carrier,
        "time_hour": dt.datetime(2013, 1, day, number % 24, tzinfo=dt.UTC),
        "delay": None if is_null else number * 1.5,
        "distance": None if is_null else number * 100,
        "cancelled": None if is_null else number % 2 == 0,
        "fare": None if is_null else decimal.Decimal(number) + decimal.Decimal("0.25"),
        "booked": None if is_null else dt.date(2012, 12, number),
        "stops": None if is_null else ["EWR", "é/☺"][: number % 3],
    }


# What each commit writes; the second replaces the partition that it touches.
FIRST = [
    *(entity(number, day=1, carrier="UA") for number in range(1, 5)),
    *(entity(number, day=2, carrier=None) for number in range(5, 9)),
]
SECOND = [entity(number, day=1, carrier="UA") for number in range(10, 12)]
THIRD = [entity(number, day=2, carrier=None) for number in range(20, 23)]


def main() -> None:
    """Write both datasets anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    repository = lakebed.open_repository(FOLDER)
    with mock.patch("socket.gethostname", return_value="writer"):  # a batch names its writer
        write(repository)
    shutil.rmtree(FOLDER / ".lakebed")


def write(repository: lakebed.Repository) -> None:
    """Write a dataset in each head format."""
    for name, head_format in (("flights", "json"), ("flights_packed", "msgpack.zstd")):
        dataset = repository.create(name, DESCRIPTOR, head_format=head_format)
        dataset.append(FIRST, run="first")
        dataset.overwrite(SECOND)
        dataset.append(THIRD)


if __name__ == "__main__":
    main()
