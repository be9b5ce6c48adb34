"""Which other readers can read an exported tree, by the compression of its files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from telemetry_exports import exported

import lakebed
from lakebed import DatasetDescriptor, TelemetryOptions, by

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = {
    "type": "record",
    "name": "ping",
    "fields": [
        {"name": "uuid", "type": "string"},
        {"name": "document", "type": "string"},
        {"name": "day", "type": "string"},
    ],
}
DAYS = ("20130611", "20130612")
ROW_COUNT = 400
READ_BY_SPARK = {"gzip": True, "zstd": True, "uncompressed": True, "lz4": False, "xz": False}
READ_BY_PANDAS = READ_BY_SPARK | {"xz": True}
READ_BY_DUCKDB = READ_BY_SPARK


@pytest.fixture(scope="module")
def pings() -> lakebed.Dataset:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    descriptor = DatasetDescriptor(
        schema=SCHEMA, format="submissions", partition_by=[by.identity("day")]
    )
    pings = repository.create("pings", descriptor)
    pings.append(
        {
            "uuid": f"u{number}",
            "document": json.dumps({"day": DAYS[number % 2], "channel": "naïve", "number": number}),
        }
        for number in range(ROW_COUNT)
    )
    return pings


def lines(pings: lakebed.Dataset) -> list[str]:
    return sorted(f"{row['uuid']}\t{row['document']}" for row in pings.arrow().to_pylist())


@pytest.mark.spark
def test_spark_reads_the_lines_of_a_tree_of_the_default(
    spark: SparkSession, pings: lakebed.Dataset, tmp_path: Path
) -> None:
    done = exported(pings, tmp_path / "tree")

    found = spark.read.option("recursiveFileLookup", "true").text(str(tmp_path / "tree"))

    assert sorted(row.value for row in found.collect()) == lines(pings)
    assert done.notes == ()


@pytest.mark.parametrize("compression", READ_BY_SPARK)
def test_export_names_the_compressions_that_spark_does_not_read(
    pings: lakebed.Dataset, tmp_path: Path, compression: str
) -> None:
    options = TelemetryOptions(compression=compression)

    done = exported(pings, tmp_path / "tree", options=options, dry_run=True)

    assert (done.notes == ()) is READ_BY_SPARK[compression]
    assert all("gzip or zstd" in note and f".{compression}" in note for note in done.notes)


def read_by_pandas(file: Path) -> int:
    pandas = pytest.importorskip("pandas")
    return len(pandas.read_csv(file, sep="\t", header=None, quoting=3))


def read_by_duckdb(file: Path) -> int:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        query = f"SELECT count(*) FROM read_csv('{file}', delim='\t', header=false, quote='')"
        return int(connection.execute(query).fetchall()[0][0])


@pytest.mark.parametrize("compression", READ_BY_SPARK)
@pytest.mark.parametrize(
    ("reader", "reads"),
    [(read_by_pandas, READ_BY_PANDAS), (read_by_duckdb, READ_BY_DUCKDB)],
    ids=["pandas", "duckdb"],
)
def test_table_of_the_guide_says_what_readers_do(
    pings: lakebed.Dataset,
    tmp_path: Path,
    compression: str,
    reader: Callable[[Path], int],
    reads: dict[str, bool],
) -> None:
    options = TelemetryOptions(compression=compression)
    done = exported(pings, tmp_path / "tree", options=options)

    def count() -> int:
        return sum(reader(tmp_path / "tree" / path) for path in done.files)

    if reads[compression]:
        assert count() == ROW_COUNT
    else:
        with pytest.raises(Exception, match=r"decode|sniffing"):
            count()
