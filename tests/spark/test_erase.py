"""Erasure by tasks: the same rows leave the same versions as in one process."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.work import erased_rows

pytestmark = pytest.mark.spark


def make(root: Path, file_format: str) -> lakebed.Dataset:
    schema = pa.schema([("user", pa.string()), ("n", pa.int64()), ("day", pa.string())])
    descriptor = lakebed.DatasetDescriptor(
        schema=schema, partition_by="day", format=file_format, index=["user"]
    )
    dataset = lakebed.open_repository(root).create("d", descriptor)
    for batch in range(3):
        dataset.append(
            [{"user": f"u{n % 5}", "n": batch * 100 + n, "day": f"d{n % 4}"} for n in range(40)],
            run=f"run {batch}",
        )
    dataset.append([{"user": "u1", "n": 1000 + n, "day": "only"} for n in range(3)])
    dataset.overwrite([{"user": "u2", "n": -1, "day": "d0"}])
    return dataset


def rows_by_version(dataset: lakebed.Dataset) -> dict[int, list[tuple[Any, ...]]]:
    versions = range(1, dataset.version + 1)
    return {
        version: sorted(
            tuple(row.values()) for row in dataset.at(version=version).arrow().to_pylist()
        )
        for version in versions
    }


def erase(dataset: lakebed.Dataset, spark: Any) -> Any:
    return dataset.erase({"user": ["u1", "u3"]}, reason="request 7", grace="0s", spark=spark)


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
def test_rows_and_certificate_are_those_of_one_process(
    spark: Any, tmp_path: Path, file_format: str
) -> None:
    make(tmp_path / "tasks", file_format)
    shutil.copytree(tmp_path / "tasks", tmp_path / "alone")
    by_tasks, alone = (
        lakebed.open_repository(tmp_path / name).open("d") for name in ("tasks", "alone")
    )
    before = rows_by_version(alone)

    planned = by_tasks.erase({"user": ["u1", "u3"]}, reason="r", dry_run=True, spark=spark)
    certificates = [erase(by_tasks, spark), erase(alone, None)]

    done = {place.place: place for place in certificates[0].places}
    for place in planned.places:
        assert place.row_count == done[place.place].row_count
    assert [one.is_finished for one in certificates] == [True, True]
    assert certificates[0].places == certificates[1].places
    found = rows_by_version(by_tasks)
    assert found == rows_by_version(alone)
    for version, rows in before.items():
        assert found[version] == [row for row in rows if row[0] not in ("u1", "u3")]
    assert by_tasks.where("user = 'u2'").count() == alone.where("user = 'u2'").count() > 0
    assert by_tasks.check(deep=True).problems == ()
    assert [batch.run for batch in by_tasks.batches()] == [batch.run for batch in alone.batches()]


def test_file_that_cannot_be_searched_is_named_and_erased_by_a_later_call(
    spark: Any, tmp_path: Path
) -> None:
    dataset = make(tmp_path / "lake", "parquet")
    file = next(file for file in dataset.files() if "day=d1" in file.key)
    path = tmp_path / "lake" / file.key
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])

    certificate = erase(dataset, spark)
    assert not certificate.is_finished
    assert any(path.name in left.what for left in certificate.left)

    path.write_bytes(content)
    assert erase(dataset, spark).is_finished
    assert dataset.where("user IN ('u1', 'u3')").count() == 0
    assert dataset.count() == 1 + 3 * 30 * 3 // 5
    assert dataset.check(deep=True).problems == ()


def test_task_that_fails_to_write_leaves_no_file(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = make(tmp_path / "lake", "parquet")
    before = set((tmp_path / "lake").rglob("*.parquet"))
    version = dataset.version
    folder = next(file for file in dataset.files() if "day=only" in file.key).key
    monkeypatch.setattr(erased_rows, "rewrite", _failing_in(folder.rpartition("/")[0]))

    with pytest.raises(InvalidInputError, match="cannot be written"):
        dataset.erase("user = 'u1' AND n <> 1000", reason="r", grace="0s", spark=spark)

    assert dataset.version == version
    left = set((tmp_path / "lake").rglob("*.parquet")) - before
    assert not [path for path in left if "data" in path.parts]


def _failing_in(folder: str) -> Any:
    original = erased_rows.rewrite

    def rewrite(store: Any, job: Any, work: Any) -> Any:
        if folder in str(work):
            raise InvalidInputError("It cannot be written.")
        return original(store, job, work)

    return rewrite
