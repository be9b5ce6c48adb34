"""Descriptors: what they are made of, and the form that a head keeps."""

import dataclasses
import json
import pickle
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import by
from lakebed.errors import (
    InvalidInputError,
    InvalidNameError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.descriptor import DatasetDescriptor, read_schema
from lakebed.model.keys import BATCH_ID
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Field, Kind, ListOf, Primitive, Schema, Struct

AVRO = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "carrier", "type": ["null", "string"]},
        {"name": "delay", "type": "double", "default": 1.5, "doc": "minutes"},
    ],
}


@dataclasses.dataclass
class Flight:
    n: int


class SparkLike:
    """What a Spark StructType or DataFrame shows of itself."""

    def __init__(self, document: object) -> None:
        self._document = document

    def jsonValue(self) -> object:  # noqa: N802 - Spark's name
        return self._document


ONE_LONG = (Field(name="n", type=Primitive(Kind.LONG), nullable=False),)


@pytest.mark.parametrize(
    "source",
    [
        Schema(fields=ONE_LONG),
        pa.schema([pa.field("n", pa.int64(), nullable=False)]),
        pa.table({"n": [1]}, schema=pa.schema([pa.field("n", pa.int64(), nullable=False)])),
        {"type": "record", "name": "x", "fields": [{"name": "n", "type": "long"}]},
        ' {"type": "record", "name": "x", "fields": [{"name": "n", "type": "long"}]}',
        Flight,
        SparkLike({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": False}]}),
    ],
)
def test_schema_is_read_from_every_form(source: object) -> None:
    assert read_schema(source).fields == ONE_LONG


@pytest.mark.parametrize("as_path", [str, Path])
def test_schema_is_read_from_a_file(tmp_path: Path, as_path) -> None:
    file = tmp_path / "flight.avsc"
    file.write_text(json.dumps(AVRO))

    assert read_schema(as_path(file)).names == ("ts", "carrier", "delay")


@pytest.mark.parametrize(
    "source",
    [None, 5, [], Flight(1), int, "nowhere.avsc", "", "{", "{}", b"{}", SparkLike("long"), "\0"],
)
def test_schema_of_no_known_form_is_refused(source: object) -> None:
    with pytest.raises(SchemaMismatchError):
        read_schema(source)


@pytest.mark.parametrize(
    "partition_by",
    [
        "date(ts) as dt, hash(carrier, 3)",
        [by.date("ts", name="dt"), by.hash("carrier", 3)],
        (by.date("ts", name="dt"), by.hash("carrier", 3)),
        PartitionStrategy.parse("date(ts) as dt, hash(carrier, 3)"),
        ["date(ts) as dt", by.hash("carrier", 3)],
    ],
)
def test_strategy_is_read_from_every_form(partition_by: object) -> None:
    descriptor = DatasetDescriptor(schema=AVRO, partition_by=partition_by)

    assert list(descriptor.partition_types) == ["dt", "carrier_hash", BATCH_ID]


@pytest.mark.parametrize("nothing", ["", (), [], PartitionStrategy()])
def test_no_strategy_has_many_forms(nothing: object) -> None:
    descriptor = DatasetDescriptor(schema=AVRO, partition_by=nothing)

    assert descriptor == DatasetDescriptor(schema=AVRO)


def test_columns_are_fields_then_partition_fields() -> None:
    descriptor = DatasetDescriptor(schema=AVRO, partition_by="carrier, date(ts) as dt")

    assert list(descriptor.column_types) == ["ts", "carrier", "delay", "dt", BATCH_ID]
    assert descriptor.stored_schema.names == ("ts", "delay")


def test_descriptor_survives_the_form_that_the_head_keeps() -> None:
    descriptor = DatasetDescriptor(
        schema={**AVRO, "name": "com.example.Flight"},
        partition_by="date(ts) as dt, hash(carrier, 3), carrier",
        compression="snappy",
        properties={"owner": "ops"},
    )

    found = DatasetDescriptor.from_document(json.loads(json.dumps(descriptor.to_document())))

    assert found == descriptor
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor


def test_descriptor_cannot_be_changed() -> None:
    descriptor = DatasetDescriptor(schema=AVRO)

    with pytest.raises(dataclasses.FrozenInstanceError):
        descriptor.format = "avro"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"format": "parquett"}, InvalidInputError, "Did you mean 'parquet'"),
        ({"format": None}, InvalidInputError, "Known are: parquet"),
        ({"compression": "brotli"}, InvalidInputError, "Unknown compression"),
        ({"properties": {"a": 1}}, InvalidInputError, "is not text"),
        ({"properties": {1: "a"}}, InvalidInputError, "is not text"),
        ({"partition_by": "date(tss)"}, PartitionSpecError, "Did you mean 'ts'"),
        ({"partition_by": "date(ts) as _dt"}, InvalidNameError, "hide"),
        ({"partition_by": [{"ts": "date"}]}, PartitionSpecError, "lakebed.by"),
        ({"partition_by": {"ts": "date"}}, PartitionSpecError, "lakebed.by"),
        ({"partition_by": [None]}, PartitionSpecError, "lakebed.by"),
        ({"partition_by": 3}, PartitionSpecError, "lakebed.by"),
    ],
)
def test_descriptor_that_is_wrong_in_itself_is_refused(arguments, error, message: str) -> None:
    with pytest.raises(error, match=message):
        DatasetDescriptor(schema=AVRO, **arguments)


@pytest.mark.parametrize("name", ["a.b", "", " a"])
def test_field_that_no_reader_would_accept_is_refused(name: str) -> None:
    """A schema that was put together by hand has passed no other check."""
    inner = Field(name=name, type=Primitive(Kind.LONG))
    outer = Field(name="outer", type=ListOf(Struct((inner,))))

    for field in (inner, outer):
        with pytest.raises(InvalidNameError, match="Illegal field name"):
            DatasetDescriptor(schema=Schema(fields=(field,)))


@pytest.mark.parametrize(
    "change",
    [
        {"schema": None},
        {"schema": "x"},
        {"partition_by": "date(ts)"},
        {"partition_by": [{"type": "date"}]},
        {"format": 5},
        {"compression": []},
        {"properties": ["ab"]},
        {"properties": "x"},
        {"properties": {"a": None}},
    ],
)
def test_document_that_describes_no_dataset_is_refused(change) -> None:
    document = {**DatasetDescriptor(schema=AVRO).to_document(), **change}

    with pytest.raises(InvalidInputError):
        DatasetDescriptor.from_document(document)


def _in_lists(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int64()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


def _in_records(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.date32()
    for _ in range(depth):
        kind = pa.struct([("a", kind)])
    return kind


@pytest.mark.parametrize(
    ("kind", "format_"),
    [(_in_lists(49), "parquet"), (_in_lists(50), "avro"), (_in_records(49), "parquet")],
)
def test_types_that_are_just_not_too_deep_are_read_back(kind: pa.DataType, format_: str) -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    given = DatasetDescriptor(schema=pa.schema([("x", kind)]), format=format_)
    repository.create("d", given)

    assert repository.open("d").descriptor == given


@pytest.mark.parametrize(
    ("kind", "format_"),
    [
        (_in_lists(50), "parquet"),  # whose files Arrow does not read back
        (_in_lists(51), "avro"),
        (_in_records(50), "parquet"),
        (_in_records(1_000), "parquet"),
    ],
    ids=["lists", "lists in Avro", "records", "many records"],
)
def test_a_schema_that_could_not_be_read_back_is_refused(kind: pa.DataType, format_: str) -> None:
    with pytest.raises(SchemaMismatchError, match="nested"):
        DatasetDescriptor(schema=pa.schema([("x", kind)]), format=format_)
