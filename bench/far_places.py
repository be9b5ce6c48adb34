"""Where a dataset is far away: a bucket of S3 and a directory of HDFS, each question 20 ms away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

import lakebed

_HERE = Path(__file__).parent
_FAR_ADDRESS = "127.0.0.2"  # loopback as well, with ports of its own


class Place(ABC):
    """Serves a directory with a repository in it.

    Attributes:
        url: Of the repository, as Hadoop and Lakebed spell it.
        hadoop_url: The same as Spark's own reader wants it.
        storage_options: For Lakebed.
    """

    url: str
    hadoop_url: str
    storage_options: Mapping[str, str]

    @abstractmethod
    def take(self, directory: Path) -> None:
        """Serve what a directory holds, and nothing that was served before."""

    @abstractmethod
    def reset(self) -> None:
        """Put the distance between, and forget what was asked."""

    @abstractmethod
    def asked(self) -> int:
        """Return how many questions came since the last `reset`."""

    def settings(self, repository: lakebed.Repository) -> dict[str, str]:
        """Return what Spark has to know."""
        return dict(lakebed.spark.hadoop_options(repository))


class Bucket(Place):
    """S3; any number of requests wait side by side."""

    url, hadoop_url = "s3://lake", "s3a://lake"

    def __init__(self, home: Path, ms: float, jars: str | None) -> None:
        self._home, self._ms, self._jars = home / "lake", ms, jars
        self._home.mkdir()
        command = [sys.executable, str(_HERE / "far_server.py"), str(self._home)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._server = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.storage_options = {
            "endpoint": self._server,
            "allow_http": "true",
            "region": "us-east-1",
            "access_key_id": "bench",
            "secret_access_key": "bench",
        }

    def settings(self, repository: lakebed.Repository) -> dict[str, str]:
        connector = {"spark.jars.packages": f"org.apache.hadoop:hadoop-aws:{_hadoop_version()}"}
        if self._jars:
            connector = {"spark.jars": ",".join(map(str, Path(self._jars).glob("*.jar")))}
        return {**super().settings(repository), **connector}

    def take(self, directory: Path) -> None:
        shutil.rmtree(self._home)
        directory.rename(self._home)

    def reset(self) -> None:
        self._ask(f"reset?ms={self._ms}")

    def asked(self) -> int:
        return sum(self._ask("counts").values())

    def _ask(self, what: str) -> dict[str, int]:
        with urllib.request.urlopen(f"{self._server}/-/{what}") as answer:
            return json.load(answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


class Hdfs(Place):
    """A NameNode and a DataNode of Hadoop, whose ports are far away at another address."""

    def __init__(self, cluster: object, ms: float) -> None:
        self._cluster, self._ms = cluster, ms
        node = cluster.hdfs.getDataNodes().get(0)
        name_node, name_node_http = cluster.hdfs.getNameNodePort(), _port(cluster.http_address)
        ports = [name_node, name_node_http, node.getXferPort(), node.getInfoPort()]
        self.url = self.hadoop_url = f"hdfs://{_FAR_ADDRESS}:{name_node}/lake"
        self.storage_options = {
            "http_address": f"{_FAR_ADDRESS}:{name_node_http}",
            "user": "lake",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / "far_proxy.py"), _FAR_ADDRESS, *map(str, ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"ports {ports} cannot be had at {_FAR_ADDRESS}")

    def settings(self, repository: lakebed.Repository) -> dict[str, str]:
        # The DataNode is told to call itself by the far address.
        far = {"spark.hadoop.dfs.client.use.datanode.hostname": "true"}
        return {**super().settings(repository), **far}

    def take(self, directory: Path) -> None:
        paths = self._cluster.jvm.org.apache.hadoop.fs.Path
        files = self._cluster.hdfs.getFileSystem()
        # With all that is in it; and the directory here goes, and what is there is written over.
        files.delete(paths("/lake"), True)  # noqa: FBT003
        files.copyFromLocalFile(True, True, paths(str(directory)), paths("/lake"))  # noqa: FBT003

    def reset(self) -> None:
        self._say(self._ms)

    def asked(self) -> int:
        return self._say(self._ms)

    def _say(self, ms: float) -> int:
        self._process.stdin.write(f"{ms}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


@contextmanager
def place(name: str, home: Path, ms: float, jars: str | None) -> Iterator[Place]:
    """Start a place, of which there can be one in a process: Hadoop keeps what it has opened.

    Args:
        name: `s3` or `hdfs`.
        home: For its files, an empty directory.
        ms: How far it is away.
        jars: A directory with those of Hadoop's client of S3, which Spark fetches otherwise.
    """
    if name == "s3":
        bucket = Bucket(home, ms, jars)
        try:
            yield bucket
        finally:
            bucket.close()
        return
    sys.path.append(str(_HERE.parent / "tests"))
    from hdfs_cluster import cluster

    (home / "cluster").mkdir()
    # Lists come in pages of the usual length, and not in the tests' short ones.
    settings = {"dfs.datanode.hostname": _FAR_ADDRESS, "dfs.ls.limit": "1000"}
    with cluster(home / "cluster", settings=settings) as running:
        hdfs = Hdfs(running, ms)
        try:
            yield hdfs
        finally:
            hdfs.close()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _hadoop_version() -> str:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")
