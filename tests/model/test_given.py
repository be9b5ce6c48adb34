"""An argument of a kind that no call takes is refused by name, before anything is written."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed import Dataset, DatasetDescriptor
from lakebed.errors import FormatError, InvalidInputError

ROWS = [{"n": 1}]


@pytest.fixture
def dataset() -> Dataset:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    dataset = repository.create("d", DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    dataset.append(ROWS)
    return dataset


CALLS: dict[str, Callable[[Any], object]] = {
    "run is 5": lambda d: d.append(ROWS, run=5),
    "run is 7": lambda d: d.load(__file__, "json", run=7),
    "run is 8": lambda d: d.kite.writer(run=8),
    "run is 9": lambda d: d.staged.add(ROWS, run=9),
    "write is 5": lambda d: d.with_options(write=5).append(ROWS),
    "options is 6": lambda d: d.load(__file__, "json", options=6),
    "commit is 5": lambda d: d.with_options(commit=5).overwrite(ROWS),
    "columns is 5": lambda d: d.pandas(5),
    "columns names 5, which is not a text": lambda d: d.record_batches(["n", 5]),
    "columns is 6": lambda d: d.select(6),
    "columns is 7": lambda d: d.diff(0).rows(7),
    "columns is 8": lambda d: d.diff(0).spark(columns=8),
    "on is 5": lambda d: d.merge(ROWS, on=5),
    "on is None": lambda d: d.merge(ROWS, on=None),
    "sort_by is 5": lambda d: d.compact(sort_by=5),
    "names is 5": lambda d: lakebed.open_repository(d.uri[:-2]).report("x", names=5),
    "spark is 'local', which is not a session": lambda d: d.spark("local"),
    "spark is False, which is not a session": lambda d: d.compact(spark=False),
    "version is '3'": lambda d: d.at(version="3"),
    "version is '4'": lambda d: d.rollback(version="4"),
    "version is '5'": lambda d: d.protections.add(version="5", reason="audit"),
    "batch_id is 'x'": lambda d: d.at(batch_id="x"),
    "'soon' is not a time": lambda d: d.at(time="soon"),
    "reason is 5": lambda d: d.protections.add(version=1, reason=5),
    "until is 'Friday'": lambda d: d.protections.add(version=1, reason="audit", until="Friday"),
    "The location is None": lambda _: lakebed.open_repository(None),  # type: ignore[arg-type]
    "index is 5": lambda d: DatasetDescriptor(schema=d.schema, index=5),  # type: ignore[arg-type]
    "index names None, which is not a text": lambda d: DatasetDescriptor(
        schema=d.schema,
        index=[None],  # type: ignore[list-item]
    ),
    "properties is 5": lambda d: DatasetDescriptor(schema=d.schema, properties=5),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", CALLS)
def test_an_argument_of_a_wrong_kind_is_named_and_nothing_is_written(
    dataset: Dataset, what: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        CALLS[what](dataset)

    assert caught.value.message == f"{what}."
    assert caught.value.hint
    assert [commit.version for commit in dataset.history()] == [0, 1]
    assert dataset.check(deep=True).is_ok


def test_a_text_is_one_name_wherever_names_are_asked_for(tmp_path: Path) -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    schema = pa.schema([("day", pa.string()), ("n", pa.int64())])
    days = repository.create("days", DatasetDescriptor(schema=schema, index="day"))
    days.append([{"day": "b", "n": 1}, {"day": "a", "n": 2}])

    assert days.descriptor.index == ("day",)
    for rows in (days.arrow("day"), days.select("day").arrow(), days.diff(0).rows("day")):
        assert rows["day"].to_pylist() == ["b", "a"]
        assert "n" not in rows.column_names
    assert list(days.pandas("day")) == days.polars("day").columns == ["day"]
    days.merge([{"day": "a", "n": 3}], on="day", update="n")
    days.compact(sort_by="day")
    assert sorted(days.arrow()["n"].to_pylist()) == [1, 3]
    page = repository.report(tmp_path / "page.html", names="days").read_text()
    assert "days" in page


def test_whole_numbers_of_other_libraries_name_a_version(dataset: Dataset) -> None:
    assert dataset.at(version=np.int64(1)).count() == 1


READERS: dict[str, Callable[[str], object]] = {
    "schema": lambda text: DatasetDescriptor(schema=text),
    "dimensions": lakebed.DimensionSchema.from_json,
    "ingest": lakebed.Ingest.from_toml,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_text_that_is_neither_a_document_nor_a_file_is_refused_by_name(reader, tmp_path) -> None:
    latin = tmp_path / "latin"
    latin.write_bytes("naïve".encode("latin-1"))

    for text in ("x" * 5000, "a\0b", "", str(tmp_path)):
        with pytest.raises(lakebed.LakebedError, match=r"^No ") as caught:
            reader(text)
        assert len(caught.value.message) < 600
    with pytest.raises(FormatError, match="latin' is not valid UTF-8"):
        reader(str(latin))


def test_schema_may_begin_with_the_mark_of_its_encoding(tmp_path) -> None:
    file = tmp_path / "user.avsc"
    text = '{"type": "record", "name": "U", "fields": [{"name": "n", "type": "long"}]}'
    file.write_text(text, encoding="utf-8-sig")

    assert DatasetDescriptor(schema=file).schema.names == ("n",)
