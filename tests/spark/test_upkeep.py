"""What goes through many files does in Spark tasks what it does in threads, and tells how far it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from inside import ROWS_OF_A_REWRITE

import lakebed
from lakebed.common.progress import Progress
from lakebed.errors import StorageError
from lakebed.spark.session import described
from lakebed.testing import FailingStore

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from lakebed import Dataset, Repository

pytestmark = pytest.mark.spark

FILES = 6


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def events(repository: Repository) -> Dataset:
    fields = [{"name": "n", "type": "long"}, {"name": "plane", "type": "string"}]
    schema = {"type": "record", "name": "events", "fields": fields}
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by="hash(n, 1)", index=["n"])
    dataset = repository.create("events", descriptor)
    for n in range(FILES):
        dataset.append([{"n": n, "plane": f"N{n}"}])
    return dataset


def damage(repository: Repository, dataset: Dataset, number: int) -> str:
    """Change a byte of a data file, whose size stays what it was."""
    key = dataset.files()[number].key
    data = bytearray(repository.store.get(key).data)
    data[len(data) // 2] ^= 1
    path = repository.store.local_path(key)
    assert path is not None
    path.write_bytes(data)
    return key


def sizes(dataset: Dataset) -> int:
    return sum(file.size_bytes or 0 for file in dataset.files())


@pytest.mark.thorough
def test_a_deep_check_finds_what_threads_find(
    spark: SparkSession, repository: Repository, events: Dataset
) -> None:
    assert events.check(deep=True, spark=spark).is_ok
    damaged = {damage(repository, events, number) for number in (1, 4)}
    told: list[Progress] = []

    report = events.check(deep=True, spark=spark, on_progress=told.append)

    assert {finding.key for finding in report.problems} == damaged
    assert report.findings == events.check(deep=True).findings
    assert (told[0].file_count, told[-1].file_count) == (0, FILES)
    assert {progress.size_total_bytes for progress in told} == {sizes(events)}


def test_verbs_tell_of_all_files_and_bytes_and_give_what_threads_give(
    spark: SparkSession, events: Dataset
) -> None:
    told: list[Progress] = []
    before = sizes(events)

    built = events.indices.build("plane", spark, on_progress=told.append)

    assert built.is_complete
    assert (told[-1].file_count, told[-1].size_bytes) == (FILES, before)

    told.clear()
    report = events.compact(spark=spark, on_progress=told.append)

    assert (report.files_before, report.files_after) == (FILES, 1)
    assert (told[-1].file_count, told[-1].size_bytes) == (FILES, before)

    told.clear()
    cleaned = events.cleanup(
        "0s", dry_run=False, clock_skew="0s", spark=spark, on_progress=told.append
    )

    assert cleaned.counts["superseded"] == FILES
    assert (told[-1].file_count, told[-1].size_bytes) == (len(cleaned.files), cleaned.size_bytes)
    assert events.check(deep=True).is_ok
    assert events.where("plane = 'N3'").count() == 1


def test_what_tasks_could_not_delete_is_told_and_the_rest_is_gone(
    spark: SparkSession, repository: Repository, events: Dataset
) -> None:
    events.compact()
    failing = FailingStore(
        repository.store, fail_on="delete", error=StorageError("The disk is away.")
    )

    with pytest.raises(StorageError, match="The disk is away") as caught:
        lakebed.Repository(failing).open("events").cleanup(
            "0s", dry_run=False, clock_skew="0s", spark=spark
        )

    assert caught.value.__notes__ == [
        "The cleanup is incomplete; run it again for the remaining files."
    ]
    assert events.cleanup("0s", dry_run=False, clock_skew="0s").counts["superseded"] == FILES


@pytest.mark.classic("progress is told by accumulators, which Spark Connect has not")
def test_what_a_listener_raises_ends_the_verb_and_nothing_stays(
    spark: SparkSession, repository: Repository, events: Dataset
) -> None:
    before = {info.key for info in repository.store.list("events/data/")}

    def stop(progress: Progress) -> None:
        if progress.file_count:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        events.compact(spark=spark, on_progress=stop)

    assert {info.key for info in repository.store.list("events/data/")} == before
    assert events.compact(spark=spark).files_after == 1


@pytest.mark.classic("a session on Connect has tags instead")
def test_jobs_say_what_they_do_after_what_the_caller_says(spark: SparkSession) -> None:
    context, name = spark.sparkContext, "spark.job.description"

    with described(spark, "compact flights"):
        alone = context.getLocalProperty(name)
    after = context.getLocalProperty(name)
    context.setJobDescription("nightly")
    try:
        with described(spark, "compact flights"):
            both = context.getLocalProperty(name)
        kept = context.getLocalProperty(name)
    finally:
        context.setLocalProperty(name, None)

    assert (alone, after) == ("lakebed: compact flights", None)
    assert (both, kept) == ("nightly (lakebed: compact flights)", "nightly")


def test_tasks_delete_what_threads_delete(
    spark: SparkSession,
    repository: Repository,
    events: Dataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for n in range(FILES):
        events.append([{"n": 10 * n + m, "plane": f"N{m}"} for m in range(8)], run=f"run {n}")
    before = events.version
    expected = events.delete("plane = 'N3' OR n = 0", dry_run=True)
    threads = events.delete("plane = 'N3' OR n = 0")
    rows = sorted(row["n"] for row in events.arrow().to_pylist())
    events.rollback(version=before)

    with monkeypatch.context() as patched:
        # The tasks are other processes.
        patched.setattr("lakebed.arrow.scan.count", None)
        patched.setattr(ROWS_OF_A_REWRITE, None)
        tasks = events.delete("plane = 'N3' OR n = 0", spark=spark)

    assert expected is not None and threads is not None and tasks is not None  # noqa: PT018 - one thing
    assert tasks.deleted_row_count == threads.deleted_row_count == expected.deleted_row_count
    assert len(tasks.files_removed) == len(threads.files_removed)
    assert sorted(row["n"] for row in events.arrow().to_pylist()) == rows
    assert events.check(deep=True).is_ok
    events.rerun([{"n": 99, "plane": "new"}], "run 2")  # each row is still of its run
    assert events.where("n >= 20 AND n < 30").count() == 0
    assert events.delete("n = -1", spark=spark) is None


def test_retention_is_carried_out_by_tasks(
    spark: SparkSession,
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    descriptor = lakebed.DatasetDescriptor(
        schema={"type": "record", "name": "kept", "fields": [{"name": "n", "type": "long"}]},
        properties={"retention.delete_where": "n IN (3, 7)"},
    )
    kept = repository.create("kept", descriptor)
    kept.append([{"n": n} for n in range(10)])

    monkeypatch.setattr("lakebed.arrow.scan.count", None)  # the tasks are other processes
    report = repository.maintain(only="retain", spark=spark)

    assert report.exit_code == 0
    assert sorted(row["n"] for row in kept.arrow().to_pylist()) == [0, 1, 2, 4, 5, 6, 8, 9]
