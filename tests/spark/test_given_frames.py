"""DataFrames that are given to verbs: what is not taken is refused by name, before anything is written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.spark.task_kernel import check_frame

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.int64())])
VERBS: dict[str, Callable[[lakebed.Dataset, Any], Any]] = {
    "append": lambda dataset, frame: dataset.append(frame),
    "append, dry": lambda dataset, frame: dataset.append(frame, dry_run=True),
    "overwrite": lambda dataset, frame: dataset.overwrite(frame),
    "overwrite, dry": lambda dataset, frame: dataset.overwrite(frame, dry_run=True),
    "rerun": lambda dataset, frame: dataset.rerun(frame, "run"),
    "upsert": lambda dataset, frame: dataset.upsert(frame, on="id"),
    "merge, dry": lambda dataset, frame: dataset.merge(frame, on="id", dry_run=True),
    "staged": lambda dataset, frame: dataset.staged.add(frame, "append"),
    "sink": lambda dataset, frame: dataset.sink(frame, 1, query="query"),
}


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Any:
    spark.range(1).selectExpr("id", "id AS p").write.json(str(tmp_path / "in"))
    return spark.readStream.schema("id LONG, p LONG").json(str(tmp_path / "in"))


def test_stream_is_refused_by_every_verb(lake: lakebed.Repository, stream: Any) -> None:
    dataset = lake.create("d", SCHEMA)
    for verb in VERBS.values():
        with pytest.raises(InvalidInputError, match="The DataFrame is a stream"):
            verb(dataset, stream)
    with pytest.raises(InvalidInputError, match="The DataFrame is a stream"):
        lake.write("new", stream)
    assert dataset.version == 0
    assert not lake.exists("new")


def test_frame_of_a_session_that_is_stopped_is_refused() -> None:
    classic = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(InvalidInputError, match="session of the DataFrame is stopped"):
        check_frame(SimpleNamespace(sparkSession=classic))  # type: ignore[arg-type]


@pytest.fixture
def case_sensitive(spark: Any) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


ALIKE = "SELECT id, id + 1 AS ID, id % 50 AS p FROM range(2000)"


def test_columns_that_differ_in_case_are_refused(spark: Any, lake: lakebed.Repository) -> None:
    for options in ({}, {"partition_by": "p"}, {"index": ["p"]}):
        with pytest.raises(InvalidInputError, match=r"Columns 'id' and 'ID' .* in case only"):
            lake.write("new", spark.sql(ALIKE), **options)
    assert not lake.exists("new")


def test_columns_that_differ_in_case_are_taken_by_a_session_that_tells_them_apart(
    spark: Any, lake: lakebed.Repository, case_sensitive: None
) -> None:
    lake.write("plain", spark.sql(ALIKE))
    lake.write("parts", spark.sql(ALIKE), partition_by="p")

    for name in ("plain", "parts"):
        rows = lake.open(name).where("p = 7").arrow().to_pylist()
        assert len(rows) == 40
        assert all(row["ID"] == row["id"] + 1 for row in rows)


def test_column_that_tasks_cannot_receive_is_refused(spark: Any, lake: lakebed.Repository) -> None:
    frame = spark.sql("SELECT id AS `*`, id % 50 AS p FROM range(2000)")
    dataset = lake.create("d", frame, partition_by="p")

    for write in (
        lambda: dataset.append(frame),
        lambda: dataset.overwrite(frame, dry_run=True),
        lambda: dataset.upsert(frame, on="p"),
    ):
        with pytest.raises(InvalidInputError, match=r"called '\*', and Spark cannot pass it"):
            write()
    assert dataset.count() == 0


def test_every_part_of_a_dataset_that_a_frame_makes_may_be_null(
    spark: Any, lake: lakebed.Repository
) -> None:
    first = "id, 'web' AS channel, named_struct('n', 1) AS r, array(named_struct('n', 1)) AS a, map('k', 1) AS m"
    frame = spark.sql(f"SELECT {first} FROM range(3)")
    lake.write("written", frame, run="1")
    lake.create("created", frame)
    lake.create("described", lakebed.DatasetDescriptor(schema=frame))
    path = f"{lake.uri.removeprefix('file://')}/saved"
    frame.write.format("lakebed").mode("append").option("partitionBy", "").save(path)

    nulls = (
        "CAST(NULL AS LONG) AS id, CAST(NULL AS STRING) AS channel, "
        "named_struct('n', CAST(NULL AS INT)) AS r, "
        "array(named_struct('n', CAST(NULL AS INT)), NULL) AS a, map('k', CAST(NULL AS INT)) AS m"
    )
    for name in ("written", "created", "described", "saved"):
        dataset = lake.open(name)
        assert all(field.nullable for field in dataset.schema)
        dataset.append(spark.sql(f"SELECT {nulls}"))
        assert dataset.where("channel IS NULL").count() == 1
    # A schema that is given as such says what must be there.
    strict = lake.create("strict", frame.schema)
    assert not any(field.nullable for field in strict.schema)


@pytest.mark.classic("the query of a micro-batch is unknown there")
def test_append_of_a_run_that_a_micro_batch_repeats_is_refused(
    spark: Any, lake: lakebed.Repository, stream: Any, tmp_path: Path
) -> None:
    dataset = lake.create("d", SCHEMA)
    errors: list[str] = []

    def repeat(frame: Any, epoch: int) -> None:
        dataset.append(frame)
        dataset.append(frame, run=f"epoch {epoch}")
        try:
            dataset.append(frame, run=f"epoch {epoch}")
        except InvalidInputError as error:
            errors.append(error.message)
        dataset.rerun(frame, f"epoch {epoch}")

    query = stream.writeStream.foreachBatch(repeat).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()

    assert len(errors) == 1
    assert errors[0].startswith("Run 'epoch 0' has rows already. Inside foreachBatch")
    assert dataset.count() == 2
    dataset.append(spark.range(1).selectExpr("id", "id AS p"), run="epoch 0")  # elsewhere a note
    assert dataset.count() == 3
