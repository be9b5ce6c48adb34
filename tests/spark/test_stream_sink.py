"""The streaming sink: each epoch once, whatever Spark begins again."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StructType
from stream_rows import (
    DESCRIPTOR,
    forget_commits,
    frames,
    numbers_of,
    push,
    run,
    wait_until,
)

import lakebed
from lakebed.datasource.source import LakebedDataSource

pytestmark = pytest.mark.spark


@pytest.fixture
def lake(tmp_path):
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def dataset(lake):
    return lake.create("numbers", DESCRIPTOR)


@pytest.fixture
def incoming(tmp_path):
    return tmp_path / "in"


@pytest.fixture
def checkpoint(tmp_path):
    return tmp_path / "checkpoint"


def test_each_epoch_is_a_batch_of_its_own_under_the_id_of_the_query(
    spark, dataset, incoming, checkpoint
):
    for place in range(3):
        push(incoming, str(place), 2 * place, 2 * place + 1)

    query = run(frames(spark, incoming), dataset.uri, checkpoint)

    assert numbers_of(dataset) == [0, 1, 2, 3, 4, 5]
    history = dataset.history()[1:]
    assert [commit.operation for commit in history] == ["append"] * 3
    assert [commit.run for commit in history] == [f"stream:{query.id}:{n}" for n in range(3)]


@pytest.mark.thorough
def test_each_epoch_reserves_one_batch_and_leaves_none_behind(
    spark, tmp_path, dataset, incoming, checkpoint
):
    for place in range(3):
        push(incoming, str(place), place)

    run(frames(spark, incoming), dataset.uri, checkpoint)

    committed = {commit.batch_id for commit in dataset.history()[1:]}
    directories = tmp_path.glob("lake/numbers/**/batch_id=*")
    records = tmp_path.glob("lake/numbers/batches/*")
    assert len(committed) == 3
    assert {int(path.name.partition("=")[2]) for path in directories} == committed
    assert len(list(records)) <= 3


def test_a_writer_is_pickled_without_a_request(tmp_path, dataset):
    schema = StructType().add("p", "string").add("n", "long")
    source = LakebedDataSource({"path": dataset.uri})
    writer = source.streamWriter(schema, overwrite=False)
    before = sorted(tmp_path.rglob("*"))

    copy = cloudpickle.loads(cloudpickle.dumps(writer))

    assert sorted(tmp_path.rglob("*")) == before
    message = copy.write(iter([pa.record_batch({"p": ["x"], "n": [1]})]))
    copy.commit([replace(message, query="q")], 0)
    assert dataset.count() == 1


def test_an_epoch_that_spark_begins_again_comes_once(spark, dataset, incoming, checkpoint):
    push(incoming, "0", 0)
    last = push(incoming, "1", 1, 2)
    run(frames(spark, incoming), dataset.uri, checkpoint)
    dataset.append([{"p": "p0", "n": 100}])  # another writer, after the epoch
    version = dataset.version

    forget_commits(checkpoint, 1)
    run(frames(spark, incoming), dataset.uri, checkpoint)
    assert numbers_of(dataset) == [0, 1, 2, 100]
    assert dataset.version == version, "the same rows make no version"

    # Other rows under the same offsets: a source that changed between two starts.
    forget_commits(checkpoint, 1)
    changed = last.read_text().replace("2", "3")
    last.write_text(changed)
    push(incoming, "2", 4)
    run(frames(spark, incoming), dataset.uri, checkpoint)
    assert numbers_of(dataset) == [0, 1, 3, 4, 100]


def test_a_checkpoint_that_went_back_is_refused_by_name(spark, dataset, incoming, checkpoint):
    for place in range(3):
        push(incoming, str(place), place)
    run(frames(spark, incoming), dataset.uri, checkpoint)
    forget_commits(checkpoint, 1, 2)
    for log in ("offsets", "sources/0"):
        (checkpoint / log / "2").unlink()
        (checkpoint / log / ".2.crc").unlink(missing_ok=True)

    with pytest.raises(Exception, match=r"StaleRerunError[\s\S]*its epoch 2 has been committed"):
        run(frames(spark, incoming), dataset.uri, checkpoint)

    assert numbers_of(dataset) == [0, 1, 2]


@pytest.mark.thorough
@pytest.mark.classic("there a query must be named")
def test_foreach_batch_takes_the_sink_of_a_dataset(spark, dataset, incoming, checkpoint):
    def start(sink):
        writer = frames(spark, incoming).writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        started = query.start()
        started.awaitTermination()
        return started

    push(incoming, "0", 0, 1)
    push(incoming, "1", 2)
    query = start(dataset.sink)
    forget_commits(checkpoint, 1)
    again = start(dataset.sink)

    assert again.id == query.id
    assert numbers_of(dataset) == [0, 1, 2]
    assert dataset.history()[-1].run == f"stream:{query.id}:1"
    assert dataset.version == 2


@pytest.mark.thorough
def test_compaction_beside_keeps_files_few_and_loses_no_epoch(spark, dataset, incoming, checkpoint):
    for place in range(8):
        push(incoming, str(place), 2 * place)

    run(frames(spark, incoming), dataset.uri, checkpoint, compactEvery=4)

    wait_until(lambda: "compact" in [commit.operation for commit in dataset.history()])
    wait_until(lambda: len(dataset.files()) <= 5)
    assert numbers_of(dataset) == list(range(0, 16, 2))


@pytest.mark.thorough
def test_output_mode_complete_replaces_all_at_once(spark, lake, incoming, checkpoint):
    push(incoming, "0", 0, 1, 2)
    push(incoming, "1", 4, 3)
    counts = frames(spark, incoming).groupBy("p").count()
    writer = counts.writeStream.format("lakebed").outputMode("complete").option("partitionBy", "")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query.start(f"{lake.store.uri}/counts").awaitTermination()

    dataset = lake.open("counts")
    assert sorted((row["p"], row["count"]) for row in dataset.kite.reader()) == [
        ("p0", 3),
        ("p1", 2),
    ]
    assert [commit.operation for commit in dataset.history()[1:]] == ["overwrite"] * 2
    assert sorted(row["count"] for row in dataset.at(version=1).kite.reader()) == [1, 2]


@pytest.mark.thorough
def test_rows_that_do_not_fit_end_the_query_by_name_and_leave_nothing(
    spark, dataset, incoming, checkpoint
):
    push(incoming, "0", 0)
    wrong = frames(spark, incoming).withColumnRenamed("n", "m")

    with pytest.raises(Exception, match=r"SchemaMismatchError[\s\S]*'m'"):
        run(wrong, dataset.uri, checkpoint)

    assert dataset.version == 0


def test_an_option_that_is_none_is_refused_with_the_nearest_one(
    spark, dataset, incoming, checkpoint
):
    push(incoming, "0", 0)

    with pytest.raises(Exception, match=r"no option 'compactevry'[\s\S]*'compactEvery'"):
        run(frames(spark, incoming), dataset.uri, checkpoint, compactEvry=5)


@pytest.mark.thorough
def test_streams_run_over_spark_connect(tmp_path):
    worker = Path(__file__).with_name("stream_connect_worker.py")

    done = subprocess.run(
        [sys.executable, str(worker), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["sink"] == found["foreach"] == found["streamed"] == [0, 1, 2, 3]
    assert "functools.partial" in found["unnamed"]
