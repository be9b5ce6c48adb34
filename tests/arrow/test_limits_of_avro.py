"""Values of Avro's enum and fixed are checked by every write, and files of Avro name their types."""

import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

import lakebed
from lakebed import Dataset, DatasetDescriptor
from lakebed.errors import LakebedError, SchemaMismatchError


def declared(symbols: tuple[str, ...] = ("red", "blue"), size: int | None = 4) -> dict[str, Any]:
    colour = {"type": "enum", "name": "colour", "symbols": list(symbols)}
    code = "bytes" if size is None else {"type": "fixed", "name": "code", "size": size}
    inner = {"type": "record", "name": "in", "fields": [{"name": "c", "type": ["null", "colour"]}]}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "c", "type": ["null", colour]},
        {"name": "f", "type": ["null", code]},
        {"name": "l", "type": {"type": "array", "items": inner}},
        {"name": "m", "type": {"type": "map", "values": ["null", "colour"]}},
    ]
    return {"type": "record", "name": "r", "fields": fields}


GOOD = {"id": 1, "c": "red", "f": b"abcd", "l": [{"c": "blue"}, {"c": None}], "m": {"k": "red"}}
BAD: list[dict[str, Any]] = [
    {"c": "green"},
    {"c": "red "},
    {"f": b"abcde"},
    {"f": b""},
    {"l": [{"c": "x"}]},
    {"m": {"k": "x"}},
]


@pytest.fixture(params=["parquet", "avro"])
def dataset(tmp_path: Path, request: pytest.FixtureRequest) -> Dataset:
    descriptor = DatasetDescriptor(schema=declared(), format=request.param)
    return lakebed.open_repository(tmp_path).create("t", descriptor)


@pytest.mark.parametrize("bad", BAD)
def test_value_that_is_not_allowed_is_refused(dataset: Dataset, bad: dict[str, Any]) -> None:
    dataset.append([GOOD, {"id": 2, "c": None, "f": None, "l": [], "m": {}}])
    (name,) = bad

    for write in (
        lambda: dataset.append([{**GOOD, **bad}]),
        lambda: dataset.overwrite([{**GOOD, **bad}]),
        lambda: dataset.upsert([{"id": 1, **bad}], on="id"),
    ):
        with pytest.raises(SchemaMismatchError, match=f"does not fit column '{name}"):
            write()

    assert dataset.version == 1


def test_file_of_avro_has_the_types(tmp_path: Path) -> None:
    descriptor = DatasetDescriptor(schema=declared(), format="avro")
    dataset = lakebed.open_repository(tmp_path).create("t", descriptor)

    dataset.append([GOOD])

    (path,) = tmp_path.rglob("*.avro")
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        written = json.loads(reader.metadata["avro.schema"])
        assert list(reader) == [GOOD]
    of_field = {field["name"]: field["type"] for field in written["fields"]}
    assert of_field["c"][1]["symbols"] == ["red", "blue"]
    assert (of_field["f"][1]["type"], of_field["f"][1]["size"]) == ("fixed", 4)


def test_more_values_may_be_allowed_later_and_none_fewer(dataset: Dataset) -> None:
    dataset.append([GOOD])
    for symbols, size in ((("red",), 4), (("red", "blue"), 5)):
        narrower = DatasetDescriptor(
            schema=declared(symbols, size), format=dataset.descriptor.format
        )
        with pytest.raises(LakebedError, match="takes more values in schema 1"):
            dataset.evolve(narrower, base=dataset.version)

    wider = DatasetDescriptor(
        schema=declared(("red", "blue", "green"), None), format=dataset.descriptor.format
    )
    dataset.evolve(wider, base=dataset.version)
    again = lakebed.open_repository(dataset.uri.rpartition("/")[0]).open("t")
    again.append([{**GOOD, "c": "green", "f": b"x"}])
    again.compact()

    assert sorted(again.arrow().column("c").to_pylist()) == ["green", "red"]
    assert again.check(deep=True).is_ok


def test_adoption_and_import_take_the_symbols_of_all_files(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    for number, symbol in enumerate(("red", "green")):
        schema = declared((symbol,), None)
        row = {"id": number, "c": symbol, "f": None, "l": [], "m": {}}
        with (folder / f"{number}.avro").open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema(schema), [row])
    repository = lakebed.open_repository(tmp_path)

    adopted = repository.adopt("t")
    adopted.append([{"id": 3, "c": "red", "f": None, "l": [], "m": {}}])
    adopted.compact()

    assert sorted(adopted.arrow().column("c").to_pylist()) == ["green", "red", "red"]


def test_schema_of_avros_own_library_is_taken(tmp_path: Path) -> None:
    text = json.dumps(declared())
    # Its objects are JSON as text; the package itself is not needed.
    own = type("RecordSchema", (), {"__module__": "avro.schema", "__str__": lambda _: text})()

    dataset = lakebed.open_repository(tmp_path).create("t", own)

    assert dataset.columns == ("id", "c", "f", "l", "m")
