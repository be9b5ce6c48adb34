"""A bit that flips on storage, and readers and writers of Spark."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import lakebed
from lakebed.errors import DamagedFileError

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.float64()), ("few", pa.string())])


def table() -> pa.Table:
    rng = random.Random(5)
    rows = [{"n": rng.randrange(10**12), "x": rng.random(), "few": f"v{n % 5}"} for n in range(500)]
    return pa.Table.from_pylist(rows, SCHEMA)


def new_dataset(root: Path, **options: str) -> lakebed.Dataset:
    repository = lakebed.open_repository(root)
    return repository.create("d", lakebed.DatasetDescriptor(schema=SCHEMA, **options))


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("way", ["native", "arrow"])
@pytest.mark.parametrize("is_written_by_spark", [False, True])
def test_spark_reads_no_damaged_page(spark, tmp_path, way: str, is_written_by_spark: bool) -> None:
    dataset = new_dataset(tmp_path)
    frame = spark.createDataFrame(table().to_pandas()).coalesce(1)
    by_tasks = lakebed.WriteOptions(cluster=False)  # few rows the driver would write
    dataset.with_options(write=by_tasks).append(frame if is_written_by_spark else table())
    (file,) = dataset.files()
    path = tmp_path / file.key
    assert ("parquet-mr" in pq.read_metadata(path).created_by) == is_written_by_spark
    before = path.read_bytes()
    end = len(before) - 8 - int.from_bytes(before[-8:-4], "little")

    flip(path, random.Random(3).randrange(100, end))

    # Spark names the file by itself, and tasks of Lakebed do.
    with pytest.raises((PySparkException, Py4JJavaError), match=path.name):
        dataset.spark(spark, way=way).collect()


def test_spark_writes_page_checksums_whatever_the_session_says(spark, tmp_path) -> None:
    dataset = new_dataset(tmp_path)
    setting = "parquet.page.write-checksum.enabled"
    spark.conf.set(setting, "false")
    try:
        dataset.append(spark.createDataFrame(table().to_pandas()).coalesce(1))
    finally:
        spark.conf.unset(setting)
    (file,) = dataset.files()
    column = pq.read_metadata(tmp_path / file.key).row_group(0).column(1)
    flip(tmp_path / file.key, column.data_page_offset + column.total_compressed_size - 9)

    with pytest.raises(DamagedFileError, match="CRC checksum"):
        dataset.arrow()


@pytest.mark.parametrize("kind", ["avro", "submissions"])
def test_tasks_compare_files_of_other_formats_as_a_whole(spark, tmp_path, kind: str) -> None:
    if kind == "avro":
        dataset = new_dataset(tmp_path, format=kind, compression="uncompressed")
        dataset.append(table())
    else:
        repository = lakebed.open_repository(tmp_path)
        schema = pa.schema([("uuid", pa.string()), ("document", pa.string())])
        descriptor = lakebed.DatasetDescriptor(
            schema=schema, format=kind, compression="uncompressed"
        )
        dataset = repository.create("d", descriptor)
        dataset.append([{"uuid": f"u{n}", "document": f'{{"n": {n}}}'} for n in range(500)])
    (file,) = dataset.files()
    flip(tmp_path / file.key, file.size_bytes * 3 // 4)

    with pytest.raises(PySparkException, match="DamagedFileError"):
        dataset.spark(spark).collect()


def test_tasks_write_no_rows_of_a_damaged_file_anew(spark, tmp_path) -> None:
    dataset = new_dataset(tmp_path)
    for _ in range(2):
        dataset.append(table())
    path = tmp_path / dataset.files()[1].key
    other = table().set_column(1, "x", pa.array([1.0] * 500))
    data = path.read_bytes()
    pq.write_table(other, path)

    with pytest.raises(DamagedFileError, match=path.name):
        dataset.compact(spark=spark)
    with pytest.raises(DamagedFileError, match=path.name):
        dataset.indices.build("few", spark=spark)

    path.write_bytes(data)
    assert dataset.compact(spark=spark).row_count == 1000
