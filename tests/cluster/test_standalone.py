"""A standalone cluster of two workers does what one machine does, also where an executor dies."""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from standalone import PACKAGES, SOURCE, SPARK_HOME, Cluster, Driver, python_environment

import lakebed
from lakebed import Dataset, by

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("CLUSTER_KILLS", "6"))

SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string()), ("text", pa.string())])
SPARSE = 40_000  # rows a write: more than the driver writes by itself


@pytest.fixture(scope="module")
def workers(cluster: Cluster, directory: Path, whole_environment: Path) -> Cluster:
    """Two workers, each with an environment of its own."""
    other = python_environment(directory / "other", SOURCE, PACKAGES)
    cluster.add_worker("one", whole_environment)
    cluster.add_worker("two", other, host="127.0.0.2")  # Spark speculates on other hosts only
    return cluster


@pytest.fixture(scope="module")
def driver(workers: Cluster, whole_environment: Path) -> Driver:
    settings = {
        # Two rounds of a task that died with its executor are not four.
        "spark.task.maxFailures": "16",
        "spark.sql.streaming.checkpointLocation": str(workers.directory / "checkpoints"),
    }
    return Driver(workers, "driver", workers.url, programs=whole_environment, settings=settings)


@pytest.fixture
def numbers(tmp_path: Path) -> Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="part", index=["n"])
    return lakebed.open_repository(tmp_path / "lake").create("numbers", descriptor)


def uri(dataset: Dataset) -> str:
    return dataset.uri


def summary(count: int) -> list[int]:
    """Rows, their sum and how many differ, of the numbers below `count`."""
    return [count, count * (count - 1) // 2, count]


def held(dataset: Dataset) -> list[int]:
    return sorted(dataset.arrow(columns=["n"])["n"].to_pylist())


def write_files(folder: Path, count: int, rows: int) -> list[str]:
    folder.mkdir(parents=True)
    for number in range(count):
        values = range(number * rows, (number + 1) * rows)
        lines = (json.dumps({"n": n, "part": f"p{n % 5}", "text": str(n) * 20}) for n in values)
        (folder / f"{number:03}.jsonl").write_text("\n".join(lines) + "\n")
    return [str(folder / "*.jsonl")]


class TestVerbs:
    def test_both_workers_answer_with_the_python_of_their_own(
        self, driver: Driver, workers: Cluster, tmp_path: Path
    ) -> None:
        (tmp_path / "lake").mkdir()

        reports = driver.ask("workers", location=str(tmp_path / "lake"))

        assert driver.ask("master") == workers.url
        homes = {Path(report["executable"]).parents[1].name for report in reports}
        assert homes == {"whole", "other"}
        assert {report["lakebed"] for report in reports} == {lakebed.__version__}
        assert {report["store"] for report in reports} == {"reads and writes"}
        assert [report["problems"] for report in reports] == [[], []]
        assert [
            info.key for info in lakebed.open_repository(tmp_path / "lake").store.list("")
        ] == []

    def test_a_directory_that_is_another_one_for_workers_is_told(
        self, driver: Driver, workers: Cluster
    ) -> None:
        (workers.directory / "driver" / "lake").mkdir()

        reports = driver.ask("workers", location="/proc/self/cwd/lake")

        assert len(reports) == 2
        for report in reports:
            assert report["store"] is None
            assert "the same mount on all hosts" in report["problems"][0]

    def test_the_command_line_asks_a_master_that_is_named_and_works_on_one_of_the_environment(
        self, workers: Cluster, whole_environment: Path, numbers: Dataset
    ) -> None:
        for n in range(4):
            numbers.append([{"n": n, "part": "p", "text": ""}])
        location = uri(numbers).rpartition("/")[0]
        command = [whole_environment / "python", "-m", "lakebed"]
        environ = {
            "PATH": f"{whole_environment}:/usr/bin:/bin",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(SPARK_HOME),
        }

        asked = subprocess.run(
            [*command, "doctor", location, f"--spark={workers.url}", "-o", "json"],
            env=environ,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        submit = (
            f"--master {workers.url} --executor-memory 512m --total-executor-cores 1 pyspark-shell"
        )
        compacted = subprocess.run(
            [*command, "compact", uri(numbers), "--spark", "-o", "json"],
            env={**environ, "PYSPARK_SUBMIT_ARGS": submit},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

        assert asked.returncode == 0, asked.stdout + asked.stderr
        found = [row for row in json.loads(asked.stdout) if row["name"] in ("spark", "worker")]
        assert found[0]["detail"] == workers.url
        assert [row["status"] for row in found] == ["ok"] * 3
        assert all("reads and writes the store" in row["detail"] for row in found[1:])
        assert compacted.returncode == 0, compacted.stderr
        assert json.loads(compacted.stdout)[0]["files_after"] == len(numbers.files()) == 1
        assert "lakebed" in workers.log_of("master")  # the name of the application

    @pytest.mark.parametrize("scattered", [True, False])
    def test_rows_that_tasks_write_are_all_there(
        self, driver: Driver, numbers: Dataset, *, scattered: bool
    ) -> None:
        driver.ask("append", dataset=uri(numbers), start=0, count=SPARSE, scattered=scattered)

        assert held(numbers) == list(range(SPARSE))
        for way in ("arrow", "auto"):
            assert driver.ask("read", dataset=uri(numbers), way=way) == summary(SPARSE)

    def test_rows_that_sparks_own_writer_writes_are_all_there(
        self, driver: Driver, tmp_path: Path
    ) -> None:
        plain = lakebed.open_repository(tmp_path / "lake").create(
            "plain", lakebed.DatasetDescriptor(schema=SCHEMA)
        )

        driver.ask("append_natively", dataset=uri(plain), start=0, count=SPARSE)

        assert held(plain) == list(range(SPARSE))
        assert driver.ask("read", dataset=uri(plain), way="native") == summary(SPARSE)

    def test_a_merge_updates_and_inserts(self, driver: Driver, numbers: Dataset) -> None:
        driver.ask("append", dataset=uri(numbers), start=0, count=SPARSE)

        done = driver.ask("merge", dataset=uri(numbers), start=SPARSE // 2, count=SPARSE)

        assert done == [SPARSE // 2, SPARSE // 2]
        assert held(numbers) == list(range(SPARSE + SPARSE // 2))
        assert numbers.where("text = 'merged'").count() == SPARSE

    def test_raw_files_are_read_once(
        self, driver: Driver, numbers: Dataset, tmp_path: Path
    ) -> None:
        paths = write_files(tmp_path / "in", 6, 500)

        assert driver.ask("ingest", dataset=uri(numbers), paths=paths) == [3_000, 0]

        assert held(numbers) == list(range(3_000))

    def test_upkeep_leaves_the_rows_as_they_are(self, driver: Driver, numbers: Dataset) -> None:
        driver.ask("append", dataset=uri(numbers), start=0, count=SPARSE, times=3)

        before, after = driver.ask("compact", dataset=uri(numbers))
        driver.ask("build_index", dataset=uri(numbers), column="text")
        problems = driver.ask("check", dataset=uri(numbers))
        deleted = driver.ask("cleanup", dataset=uri(numbers))

        assert after < before
        assert deleted >= before
        assert problems == []
        assert held(numbers) == list(range(3 * SPARSE))
        assert {index.column for index in numbers.indices.list()} == {"n", "text"}

    def test_a_promotion_moves_rows(self, driver: Driver, tmp_path: Path) -> None:
        descriptor = lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by=[by.dimension("part", ["p0"], name="kind")]
        )
        kinds = lakebed.open_repository(tmp_path / "lake").create("kinds", descriptor)
        driver.ask("append", dataset=uri(kinds), start=0, count=SPARSE)

        rewritten = driver.ask("promote", dataset=uri(kinds), allowed={"part": ["p0", "p1"]})

        assert rewritten > 0
        assert kinds.where("kind = 'p1'").count() == SPARSE // 40
        assert held(kinds) == list(range(SPARSE))

    def test_the_data_source_writes_reads_and_streams(
        self, driver: Driver, numbers: Dataset, tmp_path: Path
    ) -> None:
        copy = lakebed.open_repository(tmp_path / "lake").create(
            "copy", lakebed.DatasetDescriptor(schema=SCHEMA)
        )
        for start in (0, SPARSE):
            driver.ask("save", dataset=uri(numbers), start=start, count=SPARSE)
        driver.ask(
            "stream",
            source=uri(numbers),
            into=uri(copy),
            checkpoint=str(tmp_path / "checkpoint"),
        )

        assert driver.ask("load", dataset=uri(numbers)) == summary(2 * SPARSE)
        assert held(copy) == list(range(2 * SPARSE))


class TestTwoDrivers:
    def test_two_drivers_write_one_dataset_in_a_bucket_and_lose_nothing(
        self,
        workers: Cluster,
        whole_environment: Path,
        s3_options: dict[str, str],
        tmp_path: Path,
    ) -> None:
        place = f"s3://lake/{tmp_path.name}"
        repository = lakebed.open_repository(place, storage_options=s3_options)
        dataset = repository.create(
            "numbers", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="hash(n, 2)")
        )
        settings = {"spark.cores.max": "1"}  # so that there is a worker for each
        given = {"programs": whole_environment, "settings": settings}
        times, uri = 4, f"{place}/numbers"
        arguments = {"dataset": uri, "count": SPARSE, "times": times, **s3_options}

        with (
            Driver(workers, "left", workers.url, **given) as left,
            Driver(workers, "right", workers.url, **given) as right,
        ):
            left.begin("append", start=0, **arguments)
            right.begin("append", start=times * SPARSE, **arguments)
            versions = [left.end(), right.end()]
            read = left.ask("read", dataset=uri, **s3_options)

        assert max(versions) == 2 * times
        assert held(dataset) == list(range(2 * times * SPARSE))
        assert read == summary(2 * times * SPARSE)


class Killing:
    """Lets a driver do something again and again, and kills an executor at a random moment of it."""

    def __init__(self, cluster: Cluster, driver: Driver) -> None:
        self._cluster = cluster
        self._driver = driver
        self._rng = random.Random(time.time_ns())
        self._takes_s = 0.0
        self.killed = 0
        self.count = 0  # of the numbers that `repeat` has written

    def ask(self, function: str, /, *, is_killed: bool = True, **arguments: Any) -> Any:
        began = time.monotonic()
        self._driver.begin(function, **arguments)
        if is_killed:
            time.sleep(self._rng.uniform(0, self._takes_s))
            self.killed += self._cluster.kill_executor(self._rng.randrange(2))
        answer = self._driver.end()
        if not is_killed:
            self._takes_s = time.monotonic() - began
        return answer

    def repeat(self, function: str, count: int, dataset: Dataset, **arguments: Any) -> None:
        """Write so many numbers at a time, until enough executors were killed."""
        while self.killed < KILLS:
            self.ask(
                function,
                start=self.count,
                count=count,
                dataset=uri(dataset),
                is_killed=self.count > 0,
                **arguments,
            )
            self.count += count


class TestKilledExecutors:
    """Each row is there exactly once, and what the killed have left is for the cleanup."""

    @pytest.fixture
    def killing(self, workers: Cluster, driver: Driver) -> Killing:
        return Killing(workers, driver)

    def check(self, driver: Driver, dataset: Dataset, count: int) -> None:
        assert held(dataset) == list(range(count))
        assert dataset.check(deep=True).problems == ()
        driver.ask("cleanup", dataset=uri(dataset))
        assert held(dataset) == list(range(count))

    @pytest.mark.parametrize("scattered", [True, False])
    def test_a_write(
        self, killing: Killing, driver: Driver, numbers: Dataset, *, scattered: bool
    ) -> None:
        killing.repeat("append", 40_000, numbers, scattered=scattered)

        self.check(driver, numbers, killing.count)

    def test_a_write_by_the_data_source(
        self, killing: Killing, driver: Driver, numbers: Dataset
    ) -> None:
        killing.repeat("save", 40_000, numbers)

        self.check(driver, numbers, killing.count)

    def test_a_write_by_sparks_own_writer(
        self, killing: Killing, driver: Driver, tmp_path: Path
    ) -> None:
        plain = lakebed.open_repository(tmp_path / "lake").create(
            "plain", lakebed.DatasetDescriptor(schema=SCHEMA)
        )
        killing.repeat("append_natively", 400_000, plain)

        self.check(driver, plain, killing.count)

    def test_an_ingest(
        self, killing: Killing, driver: Driver, numbers: Dataset, tmp_path: Path
    ) -> None:
        files, rows = 12, 5_000
        total = 0
        for number in range(100):
            if killing.killed >= KILLS:
                break
            folder = tmp_path / f"in-{number}"
            (pattern,) = write_files(folder, files, rows)
            loaded = killing.ask(
                "ingest_once", dataset=uri(numbers), paths=[pattern], is_killed=number > 0
            )
            assert loaded == files * rows
            total += files * rows

        assert len(held(numbers)) == total
        assert sorted(set(held(numbers))) == list(range(files * rows))
        assert numbers.check(deep=True).problems == ()

    def test_a_merge(self, killing: Killing, driver: Driver, numbers: Dataset) -> None:
        step = 10_000
        driver.ask("append", dataset=uri(numbers), start=0, count=step)
        rounds = 0
        while killing.killed < KILLS:
            # Half of the rows are there, half are new.
            done = killing.ask(
                "merge",
                dataset=uri(numbers),
                start=rounds * step // 2,
                count=step,
                is_killed=rounds > 0,
            )
            assert done == ([step, 0] if rounds == 0 else [step // 2, step // 2])
            rounds += 1

        self.check(driver, numbers, (rounds + 1) * step // 2)


SLEEP_S = 60
FAILING_ONCE = """
CLUSTER = {clustered}

def run(batches):
    from pyspark import TaskContext
    for number, batch in enumerate(batches):
        yield batch
        if number == 1 and TaskContext.get().attemptNumber() == 0:
            raise OSError("the first attempt dies after some rows")
"""
SLOW_ONCE = """
CLUSTER = {clustered}

def run(batches):
    import time
    from pyspark import TaskContext
    context = TaskContext.get()
    for number, batch in enumerate(batches):
        yield batch
        if number == 0 and context.attemptNumber() == 0 and context.partitionId() == 0:
            time.sleep({sleep_s})
"""


@pytest.fixture(scope="module")
def speculating(workers: Cluster, whole_environment: Path) -> Iterator[Driver]:
    settings = {
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.5",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    }
    given = {"programs": whole_environment, "settings": settings}
    with Driver(workers, "speculating", workers.url, **given) as driver:
        yield driver


class TestAttempts:
    """Rows of several attempts of a task are written, and those of one are there."""

    @pytest.mark.parametrize("clustered", [True, False, None])
    @pytest.mark.parametrize("code", [FAILING_ONCE, SLOW_ONCE], ids=["failing", "slow"])
    def test_of_a_write(
        self, speculating: Driver, numbers: Dataset, code: str, *, clustered: bool | None
    ) -> None:
        speculating.ask("master")  # it has begun
        began = time.monotonic()

        speculating.ask(
            "append_behind",
            dataset=uri(numbers),
            start=0,
            count=20_000,
            code=code.format(clustered=clustered, sleep_s=SLEEP_S),
        )

        assert held(numbers) == list(range(20_000))
        if code == SLOW_ONCE:
            assert time.monotonic() - began < SLEEP_S  # nobody has waited for that attempt
        assert numbers.check(deep=True).problems == ()

    @pytest.mark.parametrize("code", [FAILING_ONCE, SLOW_ONCE], ids=["failing", "slow"])
    def test_of_a_write_by_the_data_source(
        self, speculating: Driver, numbers: Dataset, code: str
    ) -> None:
        speculating.ask(
            "save_behind",
            dataset=uri(numbers),
            start=0,
            count=20_000,
            code=code.format(clustered=None, sleep_s=SLEEP_S),
        )

        assert held(numbers) == list(range(20_000))

    @pytest.mark.parametrize("code", [FAILING_ONCE, SLOW_ONCE], ids=["failing", "slow"])
    def test_of_a_write_by_sparks_own_writer(
        self, speculating: Driver, tmp_path: Path, code: str
    ) -> None:
        plain = lakebed.open_repository(tmp_path / "lake").create(
            "plain", lakebed.DatasetDescriptor(schema=SCHEMA)
        )

        speculating.ask(
            "append_behind",
            dataset=uri(plain),
            start=0,
            count=20_000,
            code=code.format(clustered=None, sleep_s=SLEEP_S),
        )

        assert held(plain) == list(range(20_000))
