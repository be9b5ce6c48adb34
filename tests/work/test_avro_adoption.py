"""Directories of Avro files, as Hive writes them, become datasets in place."""

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

import lakebed
from lakebed.errors import InvalidInputError

LONG, TEXT = ["null", "long"], ["null", "string"]
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
PRICE = decimal.Decimal("-2.50")
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
def lake(tmp_path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path)


def write(path: Path, rows: list[dict[str, Any]], codec: str = "snappy", **fields: Any) -> Path:
    document = {
        "type": "record",
        "name": "own",
        "namespace": "of.hive",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        fastavro.writer(out, document, rows, codec=codec)
    return path


@pytest.mark.parametrize("codec", ["snappy", "deflate", "null", "zstandard"])
def test_a_partitioned_directory_is_adopted_and_goes_on(lake, tmp_path, codec):
    first = write(
        tmp_path / "d/day=2013-01-01/000000_0",
        [{"n": 1, "name": "ä", "at": NOON, "price": PRICE}, {"n": None, "name": None, "at": NOON}],
        codec,
        n=LONG,
        name=TEXT,
        at=MICROS,
        price=["null", MONEY],
    )
    write(tmp_path / "d/day=2013-01-02/000000_0", [{"n": 3}], codec, n=LONG)
    write(tmp_path / "d/day=2013-01-02/_tmp", [{"n": 9}], codec, n=LONG)  # which Hive hides
    before = first.read_bytes()

    dataset = lake.adopt("d", partition_by="day date")

    assert dataset.descriptor.format == "avro"
    assert dataset.descriptor.compression == {
        "null": "uncompressed",
        "zstandard": "zstd",
    }.get(codec, codec)
    assert dataset.descriptor.schema.names == ("n", "name", "at", "price", "day")
    day = dt.date(2013, 1, 1)
    assert dataset.where("day = '2013-01-01'").arrow().to_pylist() == [
        {"n": 1, "name": "ä", "at": NOON, "price": PRICE, "day": day},
        {"n": None, "name": None, "at": NOON, "price": None, "day": day},
    ]
    dataset.append([{"n": 4, "name": "new", "day": day}])
    assert sorted(row["n"] or 0 for row in dataset.arrow().to_pylist()) == [0, 1, 3, 4]
    assert {finding.key for finding in dataset.check(deep=True).findings} == {
        "d/day=2013-01-02/_tmp"
    }
    dataset.overwrite([{"n": 5, "day": day}])
    assert dataset.count() == 2
    assert first.read_bytes() == before


def test_the_newest_batch_is_current_and_older_ones_are_history(lake, tmp_path):
    for number, batch in enumerate((1449784608, 1449847129)):
        write(tmp_path / f"d/batch_id={batch}/part.avro", [{"n": number}], n=LONG)

    dataset = lake.adopt("d")

    assert dataset.arrow().to_pylist() == [{"n": 1}]
    assert dataset.at(batch_id=1449784608).arrow().to_pylist() == [{"n": 0}]


def test_an_older_batch_of_another_type_is_left(lake, tmp_path):
    write(tmp_path / "d/batch_id=1449784608/part.avro", [{"n": "x"}], n=TEXT)
    write(tmp_path / "d/batch_id=1449847129/part.avro", [{"n": 1}], n=LONG)

    found = lake.adopt("d", dry_run=True)

    (left,) = found.taken_for("left")
    assert (left.batch_id, [file.key for file in left.files]) == (
        1449784608,
        ["d/batch_id=1449784608/part.avro"],
    )
    assert lake.adopt("d").arrow().to_pylist() == [{"n": 1}]


def test_files_that_do_not_fit_are_refused_by_name_and_nothing_is_written(lake, tmp_path):
    write(tmp_path / "d/a.avro", [{"n": 1}], n=LONG)
    other = write(tmp_path / "d/b.avro", [{"n": "x"}], n=TEXT)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(InvalidInputError, match=r"'d/b\.avro' cannot be adopted") as info:
        lake.adopt("d")
    assert "import" in info.value.hint
    other.unlink()
    write(other, [{"n": 2, "at": NOON}], n=LONG, at=MILLIS)
    with pytest.raises(InvalidInputError, match=r"'d/b\.avro' cannot be adopted: Times in milli"):
        lake.adopt("d")
    other.write_bytes((tmp_path / "d/a.avro").read_bytes()[:-5])
    with pytest.raises(InvalidInputError, match=r"'d/b\.avro' cannot be adopted: An Avro file is"):
        lake.adopt("d")
    other.write_bytes(b"PAR1 is Parquet")
    with pytest.raises(InvalidInputError, match=r"'d/b\.avro' cannot be adopted: An Avro file is"):
        lake.adopt("d")
    assert sorted(tmp_path.rglob("*")) == before
