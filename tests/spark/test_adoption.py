"""Adoption with files that are read by tasks: the same result and errors as by threads."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from telemetry_exports import exported

import lakebed
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.dimensions import DimensionSchema

pytestmark = pytest.mark.spark

SCHEMA = '{"version": 1, "dimensions": [{"field_name": "day", "allowed_values": "*"}]}'


def make_parquet(root: Path) -> dict[str, Any]:
    for number in range(40):
        folder = root / "t" / f"dt=2026-01-{number % 20 + 1:02d}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [number, None]}), folder / f"{number:06d}_0")
    return {"partition_by": "dt date"}


def make_avro(root: Path) -> dict[str, Any]:
    import fastavro

    (root / "t").mkdir()
    fields = [{"name": "n", "type": ["null", "long"]}]
    for number in range(9):
        with (root / "t" / f"{number}.avro").open("wb") as file:
            schema = {"type": "record", "name": "r", "fields": fields}
            fastavro.writer(file, schema, [{"n": number}, {"n": None}])
    return {}


def make_tree(root: Path) -> dict[str, Any]:
    fields = [{"name": name, "type": "string"} for name in ("uuid", "document", "day")]
    descriptor = lakebed.DatasetDescriptor(
        schema={"type": "record", "name": "ping", "fields": fields},
        format="submissions",
        partition_by="dimension(day)",
    )
    pings = lakebed.open_repository(root / "other").create("pings", descriptor)
    pings.append([{"uuid": f"u{n}", "document": {"day": f"d{n % 7}"}} for n in range(30)])
    exported(pings, root / "t")
    return {"telemetry": DimensionSchema.from_json(SCHEMA)}


KINDS = {"parquet": make_parquet, "avro": make_avro, "tree": make_tree}


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_find_what_threads_find(spark: Any, tmp_path: Path, kind: str) -> None:
    options = KINDS[kind](tmp_path)
    lake = lakebed.open_repository(tmp_path)

    alone = lake.adopt("t", dry_run=True, **options)
    by_tasks = lake.adopt("t", dry_run=True, spark=spark, **options)

    assert str(by_tasks) == str(alone)
    assert by_tasks.batches == alone.batches
    assert by_tasks.files == alone.files
    assert by_tasks.facts.drop(["label"]) == alone.facts.drop(["label"])
    adopted = lake.adopt("t", spark=spark, **options)
    assert adopted.count() == {"parquet": 80, "avro": 18, "tree": 30}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_file_that_does_not_fit_is_named_and_nothing_is_written(
    spark: Any, tmp_path: Path, kind: str
) -> None:
    options = KINDS[kind](tmp_path)
    *_, last = sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file())
    last.write_bytes(b"Obj\x01 damaged" if kind == "avro" else b"damaged")
    lake = lakebed.open_repository(tmp_path)

    errors = []
    for session in (None, spark):
        with pytest.raises(LakebedError) as caught:
            lake.adopt("t", spark=session, **options)
        errors.append((type(caught.value), caught.value.message, caught.value.hint))

    assert errors[0] == errors[1]
    assert not lake.exists("t")


def test_progress_counts_the_files_that_tasks_read(spark: Any, tmp_path: Path) -> None:
    options = make_parquet(tmp_path)
    seen: list[Any] = []

    lakebed.open_repository(tmp_path).adopt(
        "t", spark=spark, on_progress=seen.append, dry_run=True, **options
    )

    assert seen[-1].file_count == seen[-1].file_total == 40


def test_error_of_a_listener_ends_the_adoption(spark: Any, tmp_path: Path) -> None:
    options = make_avro(tmp_path)

    def stop(progress: Any) -> None:
        if progress.file_count:
            raise InvalidInputError("stopped")

    with pytest.raises(InvalidInputError, match="stopped"):
        lakebed.open_repository(tmp_path).adopt("t", spark=spark, on_progress=stop, **options)
