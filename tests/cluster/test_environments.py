"""Workers that run another Python than the driver: every verb names that, and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from standalone import (
    PACKAGES,
    SOURCE,
    Cluster,
    Driver,
    Processes,
    other_release,
    python_environment,
)

import lakebed
from lakebed import Dataset, Repository, by

pytestmark = [pytest.mark.spark, pytest.mark.thorough, pytest.mark.timeout(900)]

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string()), ("text", pa.string())])
ROWS = 40_000  # more than the driver writes by itself
LACKING = "Spark's workers lack what Lakebed .* needs: No module named 'lakebed'"
REMEDIES = ("lakebed[spark]==", "spark.archives", "PYSPARK_PYTHON", "lakebed doctor --spark")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture
def numbers(repository: Repository) -> Dataset:
    """A dataset with several small files, written without Spark."""
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by=[by.dimension("part", ["p0"], name="kind")], index=["n"]
    )
    dataset = repository.create("numbers", descriptor)
    for n in range(4):
        dataset.append([{"n": n, "part": f"p{n % 2}", "text": str(n)}])
    dataset.delete(dataset.where("n = 0"))  # which leaves a file to the cleanup
    return dataset


@pytest.fixture
def raw_files(tmp_path: Path) -> list[str]:
    for number in range(2):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps({"n": 7, "part": "p", "text": ""}))
    return [str(tmp_path / "*.jsonl")]


def every_call(raw_files: list[str]) -> dict[str, dict[str, Any]]:
    """Every verb whose work is done by workers, with its arguments."""
    rows = {"start": 0, "count": ROWS}
    return {
        "append": rows,
        "append_scattered": rows,
        "merge": rows,
        "ingest_once": {"paths": raw_files},
        "compact": {},
        "build_index": {"column": "text"},
        "promote": {"allowed": {"part": ["p0", "p1"]}},
        "check": {},
        "cleanup": {},
    }


def check_refusal(error: dict[str, Any] | None, pattern: str) -> None:
    """Check that an error says what is wrong, and what to do, on its first line."""
    assert error is not None
    assert error["class"] == "WorkerEnvironmentError", error["text"]
    assert error["code"] == "worker-environment"
    check_text(error["text"], pattern)
    assert "\n" not in error["text"]


def check_text(text: str, pattern: str) -> None:
    assert re.search(pattern, text), text
    for remedy in REMEDIES:
        assert remedy in text


def check_verbs(
    driver: Driver,
    dataset: Dataset,
    calls: dict[str, dict[str, Any]],
    pattern: str,
) -> None:
    """Check that verbs refuse, and change nothing that can be seen."""
    before = contents(dataset)
    for function, arguments in calls.items():
        error = driver.ask("error_of", function=function, dataset=dataset.uri, **arguments)
        check_refusal(error, pattern)
        assert contents(dataset) == before, function


def contents(dataset: Dataset) -> tuple[list[str], list[str]]:
    """Return which data files lie there, and which of them the head names."""
    store = lakebed.open_repository(dataset.uri.rpartition("/")[0]).store
    there = [info.key for info in store.list(f"{dataset.name}/data")]
    return sorted(there), sorted(file.key for file in dataset.files())


@pytest.fixture(scope="module")
def processes(directory: Path) -> Iterator[Processes]:
    processes = Processes(directory / "programs")
    yield processes
    processes.end()


@pytest.fixture(scope="module")
def without_lakebed(directory: Path) -> Path:
    """As where the virtual environment is not activated, and the system has pyarrow."""
    return python_environment(directory / "without-lakebed", PACKAGES)


def test_a_session_whose_python_is_not_that_of_the_environment_is_told_what_to_do(
    processes: Processes, without_lakebed: Path, numbers: Dataset, raw_files: list[str]
) -> None:
    driver = Driver(processes, "not-activated", "local[2]", programs=without_lakebed)
    every = every_call(raw_files)
    some = {function: every[function] for function in ("append", "check")}

    with driver:
        check_verbs(driver, numbers, some, LACKING)
        read = driver.ask("error_of", function="read", dataset=numbers.uri)
        source = driver.ask("error_of", function="load", dataset=numbers.uri)
        (report,) = driver.ask("workers")

    check_text(read["text"], LACKING)
    # Spark itself looks for the format, in the same Python.
    assert "DATA_SOURCE_NOT_FOUND" in source["text"]
    assert report["lakebed"] is None
    assert report["pyarrow"] == pa.__version__
    assert Path(report["executable"]).is_relative_to(without_lakebed)
    check_text(" ".join(report["problems"]), LACKING)


@pytest.fixture(scope="module")
def lacking(directory: Path, without_lakebed: Path) -> Iterator[Cluster]:
    cluster = Cluster(directory / "lacking")
    cluster.add_worker("worker", without_lakebed)
    yield cluster
    cluster.end()


@pytest.fixture(scope="module")
def driver(lacking: Cluster, whole_environment: Path) -> Iterator[Driver]:
    with Driver(lacking, "driver", lacking.url, programs=whole_environment) as driver:
        yield driver


@pytest.mark.long
class TestClusters:
    """One worker has not what the driver has."""

    def test_every_verb(self, driver: Driver, numbers: Dataset, raw_files: list[str]) -> None:
        check_verbs(driver, numbers, every_call(raw_files), LACKING)
        read = driver.ask("error_of", function="read", dataset=numbers.uri)
        check_text(read["text"], LACKING)

    @pytest.mark.parametrize("function", ["load", "save", "stream"])
    def test_the_data_source(
        self, driver: Driver, numbers: Dataset, tmp_path: Path, function: str
    ) -> None:
        arguments = {
            "load": {"dataset": numbers.uri},
            "save": {"dataset": numbers.uri, "start": 0, "count": ROWS},
            "stream": {
                "source": numbers.uri,
                "into": numbers.uri,
                "checkpoint": str(tmp_path / "checkpoint"),
            },
        }[function]
        before = numbers.version

        error = driver.ask("error_of", function=function, **arguments)

        check_text(error["text"], LACKING)
        assert numbers.version == before


def on_a_cluster(directory: Path, programs: Path, driver_programs: Path) -> Iterator[Driver]:
    cluster = Cluster(directory)
    cluster.add_worker("worker", programs)
    try:
        with Driver(cluster, "driver", cluster.url, programs=driver_programs) as driver:
            yield driver
    finally:
        cluster.end()


@pytest.mark.long
def test_workers_of_another_release_are_refused_before_they_load_anything(
    directory: Path, whole_environment: Path, numbers: Dataset, raw_files: list[str]
) -> None:
    folder = other_release(directory / "older", "0.0.9")
    older = python_environment(directory / "older-environment", folder, PACKAGES)
    pattern = f"workers have Lakebed 0.0.9, and this session has {lakebed.__version__}"

    for driver in on_a_cluster(directory / "older-cluster", older, whole_environment):
        check_verbs(driver, numbers, every_call(raw_files), pattern)
        loaded = driver.ask("error_of", function="load", dataset=numbers.uri)
        (report,) = driver.ask("workers")

    check_text(loaded["text"], pattern)
    assert report["lakebed"] == "0.0.9"
    check_text(" ".join(report["problems"]), pattern)


@pytest.mark.long
def test_workers_with_a_bare_python_and_a_late_clock_are_told_and_asked(
    directory: Path, whole_environment: Path, numbers: Dataset, raw_files: list[str]
) -> None:
    late = directory / "late"
    late.mkdir()
    (late / "sitecustomize.py").write_text(
        "import time\nnow = time.time\ntime.time = lambda: now() - 3600\n"
    )
    bare = python_environment(directory / "bare", late)

    for driver in on_a_cluster(directory / "bare-cluster", bare, whole_environment):
        error = driver.ask("error_of", function="append", dataset=numbers.uri, start=0, count=ROWS)
        (report,) = driver.ask("workers")

    check_refusal(error, "Spark's workers lack what Lakebed .* needs: .*(?i:pyarrow|lakebed)")
    assert (report["lakebed"], report["pyarrow"]) == (None, None)
    assert 3500 < report["clock_s"] < 3700
    assert "Its clock differs by 3" in report["problems"][1]


@pytest.mark.long
def test_workers_of_another_python_are_told_and_asked(
    directory: Path, whole_environment: Path, numbers: Dataset
) -> None:
    """It says that it is of another release: there is no other Python on most machines."""
    other = directory / "other-python-site"
    other.mkdir()
    (other / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.version_info = type('V', (tuple,), {'major': 3, 'minor': 9, 'micro': 1})((3, 9, 1, 'final', 0))\n"
    )
    programs = python_environment(directory / "other-python", other, SOURCE, PACKAGES)

    for driver in on_a_cluster(directory / "python-cluster", programs, whole_environment):
        error = driver.ask("error_of", function="append", dataset=numbers.uri, start=0, count=ROWS)
        (report,) = driver.ask("workers")

    check_refusal(error, r"Spark's workers run Python 3\.9, and this session runs 3\.\d+\.")
    assert report["host"] == "127.0.0.1"
    assert report["executable"] is None
    check_text(" ".join(report["problems"]), r"workers run Python 3\.9")
