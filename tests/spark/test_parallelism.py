"""Tasks for a session, by its master and its settings; no session runs."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from lakebed.spark.raw_files import Parallelism, grouped_by_size
from lakebed.spark.task_workers import Tasks

MIB = 2**20


class Conf:
    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.settings.get(name, default)


def classic(settings: dict[str, str], parallelism: int) -> Any:
    context = SimpleNamespace(defaultParallelism=parallelism)
    return SimpleNamespace(conf=Conf(settings), sparkContext=context)


class ConnectSession:
    """A session of Spark Connect, which has no context."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.conf = Conf(settings)


ConnectSession.__module__ = "pyspark.sql.connect.session"

CLUSTERS = [
    "yarn",
    "spark://host:7077",
    "spark://a:7077,b:7077",
    "k8s://https://host:443",
    "mesos://host:5050",
    "databricks",
    "",
]
LOCAL = [("local", 1), ("local[3]", 3), ("local[*]", os.cpu_count()), ("local[5, 2]", 5)]


@pytest.mark.parametrize("master", CLUSTERS)
@pytest.mark.parametrize("parallelism", [2, 8, 400, 3_000])
def test_cluster_has_two_tasks_for_each_core(master: str, parallelism: int) -> None:
    session = classic({"spark.master": master}, parallelism)

    assert Tasks(session, "test").count == 2 * parallelism
    sizes = {str(n): 1_000 for n in range(10_000)}
    assert len(grouped_by_size(session, sizes)) == min(10_000, 2 * parallelism)


@pytest.mark.parametrize("master", CLUSTERS)
@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"spark.executor.instances": "50", "spark.executor.cores": "4"}, 200),
        ({"spark.dynamicAllocation.maxExecutors": "30", "spark.executor.cores": "8"}, 240),
        ({"spark.executor.instances": "7"}, 7),
        ({"spark.cores.max": "96"}, 96),
        ({"spark.default.parallelism": "24", "spark.cores.max": "96"}, 24),
    ],
)
def test_cluster_that_has_no_executors_yet_counts_those_that_are_announced(
    master: str, settings: dict[str, str], cores: int
) -> None:
    settings = {"spark.master": master, **settings}

    for session in (classic(settings, 2), ConnectSession(settings)):
        expected = 24 if "spark.default.parallelism" in settings else cores
        assert Parallelism.of(session).task_count == 2 * expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size_bytes", "file_count", "tasks"),
    [
        (0, 1, 1),
        (64 * MIB, 1, 1),
        (6_400 * MIB, 100, 100),
        (6_400 * MIB, 100_000, 1_000),
        (10**15, 10**6, 2_000),
    ],
)
def test_cluster_whose_cores_are_unknown_has_tasks_by_bytes_and_files(
    size_bytes: int, file_count: int, tasks: int
) -> None:
    session: Any = ConnectSession({"spark.master": "yarn"})

    assert Parallelism.of(session).tasks_for(size_bytes, file_count) == tasks
    assert Tasks(session, "test").count == 200  # Spark's own default for a shuffle
    few: Any = ConnectSession({"spark.master": "yarn", "spark.sql.shuffle.partitions": "64"})
    assert Tasks(few, "test").count == 64


def test_many_bytes_make_more_tasks_than_a_cluster_has_cores_as_yet() -> None:
    session = Parallelism.of(classic({"spark.master": "yarn"}, 2))

    assert session.tasks_for(6_400 * MIB, 10) == 100
    assert session.tasks_for(10**15, 10) == 2_000


@pytest.mark.parametrize(("master", "cores"), LOCAL)
def test_local_session_has_two_tasks_for_each_core_however_many_bytes(
    master: str, cores: int
) -> None:
    for session in (
        classic({"spark.master": master}, cores),
        ConnectSession({"spark.master": master}),
    ):
        found = Parallelism.of(session)  # type: ignore[arg-type]
        assert (found.task_count, found.tasks_for(10**15, 10**6)) == (2 * cores, 2 * cores)


def test_cluster_on_this_machine_has_the_cores_of_all_its_processes() -> None:
    settings = {"spark.master": "local-cluster[2, 3, 1024]"}

    for session in (classic(settings, 2), ConnectSession(settings)):
        assert Parallelism.of(session).task_count == 12  # type: ignore[arg-type]
