"""The whole way on HDFS: real NameNodes and a real DataNode."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hdfs_cluster import Cluster, cluster

import lakebed
from lakebed import by
from lakebed.cli.main import main
from lakebed.store import Store, open_store
from lakebed.store.trial import try_store
from lakebed.testing import CountingStore

pytestmark = pytest.mark.long  # fetches a jar, and starts a JVM

WORKER = Path(__file__).parent / "store" / "hdfs_worker.py"
SOURCE = Path(lakebed.__file__).parents[1]
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])
DESCRIPTOR = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("k")])


def rows(count: int) -> list[dict[str, object]]:
    return [{"k": "abc"[n % 3], "n": n} for n in range(count)]


@pytest.fixture
def root() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def store(hdfs_cluster: Cluster, root: str) -> Store:
    return open_store(hdfs_cluster.url(root), storage_options=hdfs_cluster.options)


def hidden_of(running: Cluster, root: str) -> list[str]:
    """Return the names of everything hidden, as HDFS itself tells them."""
    hadoop = running.jvm.org.apache.hadoop.fs
    found = running.hdfs.getFileSystem()
    if not found.exists(hadoop.Path(f"/{root}")):
        return []

    def walk(path: object) -> Iterator[str]:
        for status in found.listStatus(path):
            name = status.getPath().getName()
            if name.startswith(".") and name != ".lakebed":
                yield name
            elif status.isDirectory():
                names = [one.getPath().getName() for one in found.listStatus(status.getPath())]
                yield from names if name == ".lakebed" else walk(status.getPath())

    return list(walk(hadoop.Path(f"/{root}")))


def test_batches_are_written_read_back_cleaned_up_and_dropped(
    store: Store, hdfs_cluster: Cluster, root: str
) -> None:
    repository = lakebed.Repository(store)
    dataset = repository.create("letters", DESCRIPTOR)

    dataset.append(rows(9), run="first")
    dataset.overwrite(rows(3))
    dataset.rerun(rows(12), run="first", replace_all=True)
    dataset.compact()
    dataset.indices.build("n")

    numbers = sorted(repository.open("letters").arrow()["n"].to_pylist())
    assert numbers == sorted([*range(3), *range(12)])
    assert dataset.where("n = 7").arrow()["n"].to_pylist() == [7]
    assert dataset.at(version=1).count() == 9
    assert dataset.check().is_ok
    assert dataset.cleanup(older_than="0s", dry_run=False).files
    assert dataset.check().is_ok
    assert hidden_of(hdfs_cluster, root) == []
    assert repository.list() == ["letters"]
    repository.drop("letters")
    assert list(store.list()) == []


def test_what_others_find_at_the_name_of_the_head_is_the_last_commit(
    store: Store, hdfs_cluster: Cluster, root: str
) -> None:
    dataset = lakebed.Repository(store).create("letters", DESCRIPTOR)

    for number in range(1, 4):
        dataset.append(rows(3))
        url = (
            f"http://{hdfs_cluster.http_address}/webhdfs/v1/{root}/letters.by-dataset-metadata.json"
        )
        with urllib.request.urlopen(f"{url}?op=OPEN&user.name=other") as answer:
            head = json.load(answer)
        assert len(head["partitions"]) == 3 * number


def test_a_head_that_another_tool_has_written_is_recognised_and_committed_to(
    store: Store,
) -> None:
    repository = lakebed.Repository(store)
    dataset = repository.create("letters", DESCRIPTOR)
    dataset.append(rows(3))
    key = "letters.by-dataset-metadata.json"
    head = json.loads(store.get(key).data)
    head["metadata"]["note"] = "of somebody else"
    store.put(key, json.dumps(head).encode())  # with no regard for anybody

    dataset.append(rows(3))

    assert dataset.count() == 6
    assert json.loads(store.get(key).data)["metadata"]["note"] == "of somebody else"


def test_the_command_line_takes_both_names_of_a_repository(
    store: Store, hdfs_cluster: Cluster, root: str
) -> None:
    lakebed.Repository(store).create("letters", DESCRIPTOR).append(rows(3))
    address = hdfs_cluster.http_address

    for url, options in (
        (hdfs_cluster.url(root), [f"--storage-option=http_address={address}"]),
        (f"webhdfs://{address}/{root}", []),
    ):
        result = CliRunner().invoke(main, ["query", f"{url}/letters", *options, "-o", "jsonl"])
        assert result.exit_code == 0, result.output
        assert sorted(json.loads(line)["n"] for line in result.stdout.splitlines()) == [0, 1, 2]


def test_a_trial_finds_that_hdfs_keeps_writers_apart_and_leaves_nothing(
    store: Store, hdfs_cluster: Cluster, root: str
) -> None:
    store.put("mine", b"x")

    trial = try_store(store.uri, storage_options=hdfs_cluster.options, rounds=3)

    assert trial.keeps_writers_apart, trial.checks
    assert trial.is_complete
    hadoop = hdfs_cluster.jvm.org.apache.hadoop.fs
    left = hdfs_cluster.hdfs.getFileSystem().listStatus(hadoop.Path(f"/{root}"))
    assert [one.getPath().getName() for one in left] == ["mine"]


def test_an_object_is_read_and_replaced_in_as_many_requests_as_documented(store: Store) -> None:
    etag = store.create("d/a", b"one")
    asked: list[str] = []
    send = store.tree._send

    def count(method: str, url: str, **more: object) -> object:
        asked.append("node" if "namenoderpcaddress" in url else "name")
        return send(method, url, **more)

    store.tree._send = count
    costs = {}
    for name, act in {
        "get": lambda: store.get("d/a"),
        "unchanged": lambda: store.get_if_changed("d/a", etag=etag),
        "claim": lambda: store.finish_claim("d/a", etag=etag),
        "range": lambda: store.get_range("d/a", 0, 1),
        "put": lambda: store.put("d/b", b"1"),
        "create": lambda: store.create("d/c", b"1"),
        "replace": lambda: store.replace("d/a", b"two", if_match=etag),
        "list": lambda: list(store.list("d", recursive=False)),
    }.items():
        asked.clear()
        act()
        costs[name] = (asked.count("name"), asked.count("node"))

    assert costs == {
        "get": (3, 1),
        "unchanged": (1, 0),
        "claim": (1, 0),
        "range": (1, 1),
        "put": (2, 1),
        "create": (3, 1),
        "replace": (7, 1),
        "list": (1, 0),
    }


def test_a_plan_by_partition_takes_one_read_of_the_head(store: Store) -> None:
    dataset = lakebed.Repository(store).create("letters", DESCRIPTOR)
    for number in range(5):
        dataset.append([{"k": "a", "n": number}])
    counting = CountingStore(store)
    view = lakebed.Repository(counting).open("letters").where("k = 'a'")
    counting.reset()

    assert len(view.plan()) == 5
    assert counting.counts.get == 1
    assert counting.counts.list == counting.counts.head == counting.counts.put == 0


# A process that is killed before each of its requests, whatever it is


class Writer:
    """A process that forks children, which die before one of their requests."""

    def __init__(self, running: Cluster, root: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), running.url(root), json.dumps(running.options)],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def order(self, **order: object) -> tuple[str, int]:
        """Let a child work; return the request before which it died, and how it ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        request, status = json.loads(self._process.stdout.readline())
        return request, status

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0


@pytest.fixture
def writer(hdfs_cluster: Cluster, root: str) -> Iterator[Writer]:
    started = Writer(hdfs_cluster, root)
    yield started
    started.close()


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_killed_before_each_request_a_commit_happened_or_not(
    store: Store, writer: Writer, operation: str
) -> None:
    dataset = lakebed.Repository(store).create("letters", DESCRIPTOR)
    dataset.append(rows(3))
    news = []
    for request in range(1, 200):
        version, old = dataset.version, sorted(dataset.arrow()["n"].to_pylist())
        added = list(range(request * 10, request * 10 + 3))

        died_at, status = writer.order(operation=operation, request=request, numbers=added)

        assert status in (0, -signal.SIGKILL)
        both = sorted([*old, *added]) if operation == "append" else added
        now = (dataset.version, sorted(dataset.arrow()["n"].to_pylist()))
        assert now in [(version, old), (version + 1, both)]
        # What was claimed and not done was done by the reader, so nothing appears later.
        assert dataset.overwrite(rows(3)).version == now[0] + 1
        assert sorted(dataset.arrow()["n"].to_pylist()) == [0, 1, 2]
        if status == 0:
            break
        news.append((died_at, now[0] - version))

    assert status == 0
    assert [what for what, is_new in news if is_new]  # died after its claim, or later
    assert len(news) > 30
    store.remove_leftovers("letters", older_than=timedelta(0))
    assert dataset.check().is_ok


# Clusters of other kinds


def test_commits_go_on_when_another_name_node_takes_over(tmp_path: Path) -> None:
    with cluster(tmp_path, is_available=True) as running:
        both = ",".join(running.http_addresses)
        options = {"http_address": both, "user": "lake"}
        store = open_store("hdfs://lakes/lake", storage_options=options)
        dataset = lakebed.Repository(store).create("letters", DESCRIPTOR)
        for active in (0, 1, 0):
            running.hdfs.transitionToStandby(1 - active)
            running.hdfs.transitionToActive(active)
            for _ in range(3):
                dataset.append(rows(3))

        assert dataset.count() == 27
        assert [one.version for one in dataset.history()] == list(range(10))


@pytest.mark.spark
def test_spark_reads_the_files_natively_and_writes_through_its_workers(
    spark: object, store: Store
) -> None:
    dataset = lakebed.Repository(store).create("letters", DESCRIPTOR)
    frame = spark.createDataFrame(pa.Table.from_pylist(rows(30), schema=SCHEMA))

    dataset.append(frame)

    assert sorted(row.n for row in dataset.spark(spark).collect()) == list(range(30))
    paths = [store._hadoop_uri(file.key) for file in dataset.files()]
    assert sorted(row.n for row in spark.read.parquet(*paths).collect()) == list(range(30))
