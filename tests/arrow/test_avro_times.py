"""Times of Avro files are read as numbers: rows and rejects are those of a reader of Python's times."""

import datetime as dt
import io
import random
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest
from nasty_files import FLAT
from reading_twice import Reading, read_file

from lakebed import CsvOptions
from lakebed.arrow.reading import binary
from lakebed.arrow.reading.files import RawFile, find_files
from lakebed.arrow.reading.rows import open_reader
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Field, Schema

SYNC = bytes(range(100, 116))
US = {"type": "long", "logicalType": "timestamp-micros"}
MS = {"type": "long", "logicalType": "timestamp-millis"}
DAY = {"type": "int", "logicalType": "date"}
FIRST_US, LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
# Type of the time, its values, and whether the dataset requires it.
CASES = {
    "instants": (US, [0, 1, -1, FIRST_US, LAST_US], True),
    "before the first year": (US, [0, FIRST_US - 1, 1], True),
    "after the last year": (US, [0, LAST_US + 1, 1], True),
    "far beyond": (US, [0, 2**63 - 1, -(2**63)], True),
    "milliseconds": (MS, [0, -1, FIRST_US // 1_000, LAST_US // 1_000], True),
    "milliseconds too late": (MS, [0, LAST_US // 1_000 + 1], True),
    "null allowed": (["null", US], [0, None, 5], False),
    "null in a required field": (["null", US], [0, None, 5, 7, None], True),
    "null last": ([US, "null"], [None, 3], False),
    "days": (["null", DAY], [0, -1, FIRST_DAY, LAST_DAY, None], False),
    "day too early": (DAY, [0, FIRST_DAY - 1, 3], True),
    "day too late": (DAY, [0, LAST_DAY + 1, 3], True),
}


def write_rows(path: Path, kind: Any, values: list[int | None]) -> RawFile:
    """Write a file with any number as a time: the header of one with times, the blocks of numbers."""
    name = name_of(kind)
    parts = []
    for type_ in (kind, without_times(kind)):
        fields = [{"name": name, "type": type_}, {"name": "l", "type": "long"}]
        schema = {"type": "record", "name": "row", "fields": fields}
        rows = [{name: value, "l": n} for n, value in enumerate(values)] if parts else []
        file = io.BytesIO()
        fastavro.writer(file, schema, rows, "deflate", sync_interval=200, sync_marker=SYNC)
        parts.append(file.getvalue())
    header, whole = parts
    path.write_bytes(header + whole[whole.index(SYNC) + len(SYNC) :])
    _, (raw,) = find_files([str(path)], "avro")
    return raw


def without_times(kind: Any) -> Any:
    """Return a type of numbers."""
    if isinstance(kind, list):
        return [without_times(branch) for branch in kind]
    return kind["type"] if isinstance(kind, dict) else kind


def name_of(kind: Any) -> str:
    """Return the field for values of a type."""
    return "y" if "date" in str(kind) else "t"


def read_both(
    file: RawFile,
    kind: Any,
    *,
    is_required: bool,
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[Field, ...] = (),
) -> tuple[Reading, Reading]:
    """Return what is read with numbers, and what is read with Python's times."""
    name = name_of(kind)
    fields = (
        Field(name=name, type=FLAT[name], nullable=not is_required),
        Field(name="l", type=FLAT["l"]),
        *more,
    )
    descriptor = DatasetDescriptor(schema=Schema(fields=fields))
    with_numbers = read_file(open_reader("avro", descriptor, CsvOptions()), file, refused_share=5)
    with monkeypatch.context() as patch:
        patch.setattr(binary, "UNITS", {})
        with_times = read_file(open_reader("avro", descriptor, CsvOptions()), file, refused_share=5)
    return with_numbers, with_times


@pytest.mark.parametrize("rows_per_chunk", [1, 3, 4_096])
@pytest.mark.parametrize("name", CASES)
def test_numbers_give_the_rows_and_rejects_of_times(
    name: str, rows_per_chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, values, is_required = CASES[name]
    monkeypatch.setattr(binary, "ROWS_PER_CHUNK", rows_per_chunk)
    file = write_rows(tmp_path / "rows.avro", kind, [values[0]] * 10 + values * 3)

    found, expected = read_both(file, kind, is_required=is_required, monkeypatch=monkeypatch)

    assert found == expected
    assert found.rows


@pytest.mark.parametrize("seed", range(40))
def test_damage_gives_the_same_rows_and_rejects(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, path = random.Random(seed), tmp_path / "rows.avro"
    monkeypatch.setattr(binary, "ROWS_PER_CHUNK", chance.choice([1, 7, 4_096]))
    values = [chance.choice([None, 0, chance.randrange(FIRST_US, LAST_US)]) for _ in range(300)]
    write_rows(path, ["null", US], values)
    data = bytearray(path.read_bytes())
    for _ in range(chance.randint(0, 2)):
        data[chance.randrange(len(data) // 4, len(data))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.3:
        del data[chance.randrange(len(data) // 2, len(data)) :]
    path.write_bytes(bytes(data))
    _, (file,) = find_files([str(path)], "avro")

    found, expected = read_both(file, ["null", US], is_required=False, monkeypatch=monkeypatch)

    assert found == expected


def test_times_beside_values_that_need_a_look_are_those_of_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = [
        {"name": "t", "type": ["null", US]},
        {"name": "l", "type": "long"},
        {"name": "s", "type": {"type": "string", "logicalType": "uuid"}},
    ]
    at = dt.datetime(2024, 1, 1, 12, 30, 0, 123_456, dt.UTC)
    rows = [{"t": at if n % 3 else None, "l": n, "s": uuid.UUID(int=n)} for n in range(100)]
    path = tmp_path / "rows.avro"
    with path.open("wb") as out:
        fastavro.writer(out, {"type": "record", "name": "row", "fields": fields}, rows)
    _, (file,) = find_files([str(path)], "avro")

    found, expected = read_both(
        file,
        US,
        is_required=False,
        monkeypatch=monkeypatch,
        more=(Field(name="s", type=FLAT["s"]),),
    )

    assert found == expected
    assert len(found.rows) + len(found.rejects) == 100


def test_whole_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_rows(tmp_path / "rows.avro", US, list(range(10_000)))
    descriptor = DatasetDescriptor(
        schema=Schema(fields=(Field(name="t", type=FLAT["t"]), Field(name="l", type=FLAT["l"])))
    )
    monkeypatch.setattr(fastavro, "reader", lambda *_: pytest.fail("read again"))

    read = read_file(open_reader("avro", descriptor, CsvOptions()), file)

    assert [len(read.rows), len(read.rejects)] == [10_000, 0]
