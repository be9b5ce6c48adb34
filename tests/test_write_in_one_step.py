"""A dataset is created in one step: from what has a schema, or with its first rows."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import duckdb
import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pydantic
import pytest

import lakebed
from lakebed import DatasetDescriptor, Repository
from lakebed.errors import (
    DatasetExistsError,
    InvalidInputError,
    InvalidNameError,
    SchemaMismatchError,
)

ROWS = [{"id": 1, "carrier": "UA"}, {"id": 2, "carrier": None}]


@dataclasses.dataclass
class Visit:
    id: int
    carrier: str | None = None


@attrs.define
class Landing:
    id: int
    carrier: str | None = None


class Inner(pydantic.BaseModel):
    weight: float


class Parcel(pydantic.BaseModel):
    id: int
    carrier: str | None = None
    inner: Inner | None = None


class Tick(msgspec.Struct):
    id: int
    carrier: str | None = None


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path)


def of_delta(directory: Path) -> Any:
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(directory / "delta", pa.Table.from_pylist(ROWS))
    return deltalake.DeltaTable(directory / "delta")


def of_iceberg(directory: Path) -> Any:
    catalogs = pytest.importorskip("pyiceberg.catalog.memory")
    with catalogs.InMemoryCatalog("c", warehouse=str(directory)) as catalog:
        catalog.create_namespace("n")
        rows = pa.Table.from_pylist(ROWS)
        table = catalog.create_table("n.t", rows.schema)
        table.append(rows)
        return table


GIVERS: dict[str, Any] = {
    "pandas": lambda _: pd.DataFrame(ROWS),
    "polars": lambda _: pl.DataFrame(ROWS),
    "lazy polars": lambda _: pl.LazyFrame(ROWS),
    "arrow table": lambda _: pa.Table.from_pylist(ROWS),
    "arrow stream": lambda _: pa.Table.from_pylist(ROWS).to_reader(),
    "arrow dataset": lambda _: pds.dataset(pa.Table.from_pylist(ROWS)),
    "arrow scanner": lambda _: pds.dataset(pa.Table.from_pylist(ROWS)).scanner(),
    "duckdb": lambda _: duckdb.connect().sql(
        "SELECT * FROM (VALUES (1::bigint, 'UA'), (2::bigint, NULL)) AS t(id, carrier)"
    ),
    "delta": of_delta,
    "iceberg": of_iceberg,
    "dicts": lambda _: ROWS,
    "generator": lambda _: (row for row in ROWS),
    "record batches": lambda _: [pa.RecordBatch.from_pylist(ROWS)],
    "dataclasses": lambda _: [Visit(**row) for row in ROWS],
    "attrs": lambda _: [Landing(**row) for row in ROWS],
    "msgspec": lambda _: [Tick(**row) for row in ROWS],
}


@pytest.mark.parametrize("giver", GIVERS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:pyiceberg")
def test_rows_of_any_kind_make_a_dataset_and_are_added_to_it(
    repository: Repository, tmp_path: Path, giver: str
) -> None:
    given = GIVERS[giver]
    for number in (1, 2):
        place = tmp_path / str(number)
        place.mkdir()
        commit = repository.write("visits", given(place))
        assert commit.row_count == 2

    rows = repository.open("visits").arrow().to_pylist()

    assert sorted(rows, key=lambda row: row["id"]) == [ROWS[0]] * 2 + [ROWS[1]] * 2


def test_models_of_pydantic_make_a_dataset_and_come_back(repository: Repository) -> None:
    parcels = [Parcel(id=1, inner=Inner(weight=1.5)), Parcel(id=2, carrier="UA")]

    repository.write("parcels", parcels)

    assert list(repository.open("parcels").kite.reader(type=Parcel)) == parcels


@pytest.mark.parametrize("cls", [Visit, Landing, Tick])
def test_instances_of_a_class_with_fields_come_back(repository: Repository, cls: type) -> None:
    given = [cls(id=1, carrier="UA"), cls(id=2)]

    repository.write("visits", given)

    assert list(repository.open("visits").kite.reader(type=cls)) == given


@pytest.mark.spark
def test_spark_frame_makes_a_dataset(repository: Repository, spark: Any) -> None:
    frame = spark.createDataFrame([(1, "UA"), (2, None)], "id long, carrier string")

    repository.write("visits", frame, partition_by="carrier", run="first")
    repository.write("visits", frame, partition_by="carrier", run="first")

    assert repository.open("visits").count() == 2


def test_named_levels_of_an_index_are_fields_and_others_are_not(repository: Repository) -> None:
    frame = pd.DataFrame({"id": [1, 2, 3], "v": [1.0, 2.0, 3.0]})

    repository.write("filtered", frame[frame.id > 1])
    repository.write("indexed", frame.set_index("id"))
    repository.write("indexed", frame.set_index("id"))

    assert repository.open("filtered").schema.names == ("id", "v")
    assert repository.open("indexed").schema.names == ("id", "v")
    assert repository.open("indexed").pandas()["id"].tolist() == [1, 2, 3] * 2


def test_written_run_is_replaced_when_it_is_written_again(repository: Repository) -> None:
    repository.write("visits", ROWS, run="monday")
    repository.write("visits", ROWS[:1], run="tuesday")

    again = repository.write("visits", ROWS[1:], run="monday")

    visits = repository.open("visits")
    assert again.operation == "rerun"
    assert sorted(row["id"] for row in visits.arrow().to_pylist()) == [1, 2]
    assert [commit.run for commit in visits.history()][1:] == ["monday", "tuesday", "monday"]


def test_partitions_and_indices_of_a_new_dataset_are_those_asked_for(
    repository: Repository,
) -> None:
    rows = [{"id": 1, "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)}]

    repository.write("visits", rows, partition_by="date(at) as day", index="id")
    repository.write("visits", rows, partition_by="date(at) as day", index=["id"])
    repository.write("visits", rows)

    descriptor = repository.open("visits").descriptor
    assert str(descriptor.partition_by.functions[0]) == "date(at) as day"
    assert descriptor.index == ("id",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": "id"}, "is not partitioned, and was to be partitioned by"),
        ({"index": "id"}, r"lacks an index on 'id'.*indices.build\('id'\)"),
    ],
)
def test_dataset_that_differs_from_what_is_asked_for_is_not_written_to(
    repository: Repository, options: dict[str, str], message: str
) -> None:
    repository.write("visits", ROWS)

    with pytest.raises(InvalidInputError, match=message):
        repository.write("visits", ROWS, **options)

    assert repository.open("visits").version == 1


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([], InvalidInputError, "there are no rows"),
        (iter(()), InvalidInputError, "there are no rows"),
        (
            [{"id": None}],
            SchemaMismatchError,
            "'id' cannot be inferred: its first 1 values are null",
        ),
        ([{"id": 1}, {"id": "x"}], SchemaMismatchError, "'id' cannot be inferred: Could not"),
        ([{1: 2}], SchemaMismatchError, "field 1, whose name is not a text"),
        ({"id": 1}, InvalidInputError, "Cannot write dict"),
        ("id", InvalidInputError, "Cannot write str"),
        (5, InvalidInputError, "Cannot write int"),
        ([{"a.b": 1}], InvalidNameError, "a.b"),
        (pd.DataFrame({"x": [1, "a"]}), SchemaMismatchError, "have no types: .*x"),
    ],
)
def test_rows_without_a_schema_make_no_dataset(
    repository: Repository, data: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        repository.write("visits", data)

    assert not repository.exists("visits")


def test_write_that_fails_in_the_middle_makes_no_dataset_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    def rows() -> Iterator[dict[str, object]]:
        yield from ({"id": number} for number in range(30_000))
        yield {"id": "no number"}

    repository = lakebed.open_repository(tmp_path)

    with pytest.raises(SchemaMismatchError, match="no number"):
        repository.write("visits", rows())

    assert not repository.exists("visits")
    assert not list(tmp_path.rglob("*.parquet"))
    assert repository.write("visits", ROWS).version == 1


def test_first_writers_that_race_all_write_to_one_dataset(repository: Repository) -> None:
    versions: list[int] = []
    together = threading.Barrier(6)

    def write(number: int) -> None:
        together.wait()
        versions.append(repository.write("visits", [{"id": number}]).version)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    visits = repository.open("visits")
    assert sorted(versions) == [1, 2, 3, 4, 5, 6]
    assert sorted(visits.arrow()["id"].to_pylist()) == list(range(6))
    assert not visits.check().problems


def test_first_writer_that_loses_to_another_descriptor_writes_nothing(
    repository: Repository,
) -> None:
    def rows() -> Iterator[dict[str, object]]:
        yield from ({"id": number} for number in range(10_000))
        repository.create("visits", Visit)
        yield {"id": 10_000}

    with pytest.raises(DatasetExistsError, match="just created by another writer"):
        repository.write("visits", rows())

    visits = repository.open("visits")
    assert (visits.version, visits.count()) == (0, 0)
    assert repository.write("visits", [Visit(1)]).version == 1


def test_first_writer_that_loses_to_an_equal_descriptor_adds_its_rows(
    repository: Repository,
) -> None:
    def rows() -> Iterator[dict[str, object]]:
        yield from ({"id": number} for number in range(10_000))
        repository.write("visits", [{"id": -1}])
        yield {"id": 10_000}

    commit = repository.write("visits", rows(), run="first")

    visits = repository.open("visits")
    assert (commit.version, visits.count()) == (2, 10_002)
    assert not visits.check().problems


@pytest.mark.parametrize(
    "given",
    [Visit, Landing, Tick, pd.DataFrame(ROWS), pl.DataFrame(ROWS), pl.LazyFrame(ROWS)],
    ids=["dataclass", "attrs", "msgspec", "pandas", "polars", "lazy polars"],
)
def test_dataset_is_created_from_what_has_a_schema(repository: Repository, given: object) -> None:
    visits = repository.create("visits", given, partition_by="carrier", index="id")

    assert visits.schema.names == ("id", "carrier")
    assert visits.descriptor.index == ("id",)
    assert visits.count() == 0
    assert (
        repository.create("visits", given, partition_by="carrier", index="id", if_exists="open").uri
        == visits.uri
    )


def test_dataset_is_created_with_the_fields_of_another(repository: Repository) -> None:
    repository.write("visits", ROWS)

    copies = repository.create("copies", repository.open("visits"))
    parts = repository.create("parts", repository.open("visits").where("id > 1"))

    assert copies.schema.names == parts.schema.names == ("id", "carrier")


def test_descriptor_with_options_beside_it_is_refused(repository: Repository) -> None:
    with pytest.raises(InvalidInputError, match="has a descriptor, and partition_by beside it"):
        repository.create("visits", DatasetDescriptor(schema=Visit), partition_by="carrier")


def test_upsert_takes_frames_of_polars_and_relations(repository: Repository) -> None:
    repository.write("visits", ROWS)
    visits = repository.open("visits")

    visits.upsert(pl.DataFrame({"id": [1], "carrier": ["B6"]}), on="id")
    visits.upsert(pl.LazyFrame({"id": [2], "carrier": ["DL"]}), on="id")
    visits.upsert(duckdb.connect().sql("SELECT 3::bigint AS id, 'AA' AS carrier"), on="id")

    assert {row["id"]: row["carrier"] for row in visits.arrow().to_pylist()} == {
        1: "B6",
        2: "DL",
        3: "AA",
    }


def test_rows_of_a_dataset_keep_its_partitions_and_indices() -> None:
    lake = lakebed.open_repository("memory://write-of-a-dataset")
    lake.write("a", ROWS, partition_by="carrier, hash(id, 4)", index="id")
    source = lake.open("a")

    lake.write("b", source)
    lake.write("c", source.where("id = 1"))
    lake.write("d", source, partition_by="id", index=())

    for name in "bc":
        made = lake.open(name)
        assert made.descriptor.partition_by == source.descriptor.partition_by
        assert made.descriptor.index == ("id",)
    assert lake.open("b").arrow().sort_by("id") == source.arrow().sort_by("id")
    assert (lake.open("c").count(), lake.open("d").count()) == (1, 2)
    assert str(lake.open("d").descriptor.partition_by) == "identity(id) as id"
    assert lake.open("d").descriptor.index == ()


def test_rows_without_their_provided_partition_field_are_refused() -> None:
    lake = lakebed.open_repository("memory://write-of-a-provided")
    source = lake.create(
        "a", DatasetDescriptor(schema=pa.schema([("id", pa.int64())]), partition_by="provided(dt)")
    )
    source.where("dt = 'x'").append([{"id": 1}])

    with pytest.raises(InvalidInputError, match="partition field 'dt'"):
        lake.write("b", source)

    assert lake.list() == ["a"]
    lake.write("b", source, partition_by=())
    assert lake.open("b").count() == 1
