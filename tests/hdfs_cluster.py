"""A real NameNode and a real DataNode: Hadoop's own mini cluster, in a JVM of its own.

It takes one jar of Maven Central beside the jars of pyspark, fetched once and kept in the cache of
the user. Every port is chosen by the system, on loopback.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

JAR = "hadoop-client-minicluster-3.5.0.jar"
_SOURCE = "https://repo1.maven.org/maven2/org/apache/hadoop/hadoop-client-minicluster/3.5.0"
_SHA1 = "7688184cfbf679736d81f5642c6e80fca18a02c0"
_OPENED = "java.lang java.lang.reflect java.net java.nio java.util java.util.concurrent".split()
_CONFIGURATION = {
    "dfs.permissions.enabled": "false",
    "dfs.namenode.fs-limits.min-block-size": "1024",
    "dfs.ls.limit": "5",  # so that a short list takes several pages
    # A DataNode asks whether its block is known, and then again after this time: 400 by default.
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "5",
}


def jar() -> Path:
    """Return the jar of the mini cluster, fetched where it is not there yet."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lakebed" / "jars"
    path = home / JAR
    if not path.is_file():
        home.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{JAR}.{os.getpid()}")
        with urllib.request.urlopen(f"{_SOURCE}/{JAR}") as answer:
            part.write_bytes(answer.read())
        part.rename(path)
    assert hashlib.sha1(path.read_bytes()).hexdigest() == _SHA1, f"{path} is not what it should be"
    return path


class Cluster:
    """A running cluster.

    Attributes:
        hdfs: `org.apache.hadoop.hdfs.MiniDFSCluster`, through py4j.
        jvm: The Java of it.
    """

    def __init__(self, hdfs: Any, jvm: Any) -> None:
        self.hdfs = hdfs
        self.jvm = jvm

    @property
    def http_address(self) -> str:
        return self.http_addresses[0]

    @property
    def http_addresses(self) -> list[str]:
        count = self.hdfs.getNumNameNodes()
        return [
            f"127.0.0.1:{self.hdfs.getNameNode(n).getHttpAddress().getPort()}" for n in range(count)
        ]

    @property
    def rpc_address(self) -> str:
        return f"127.0.0.1:{self.hdfs.getNameNodePort()}"

    @property
    def options(self) -> dict[str, str]:
        return {"http_address": self.http_address, "user": "lake"}

    def url(self, path: str) -> str:
        return f"hdfs://{self.rpc_address}/{path}"


@contextmanager
def cluster(
    home: Path, *, settings: Mapping[str, str] | None = None, is_available: bool = False
) -> Iterator[Cluster]:
    """Start a cluster.

    Args:
        home: Where its files are.
        settings: Of Hadoop.
        is_available: Whether to start two NameNodes, of which one is active.
    """
    import pyspark
    from py4j.java_gateway import GatewayParameters, JavaGateway

    from lakebed.spark.java import ensure_java

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    command = [
        str(ensure_java().path / "bin" / "java"),
        "-Xmx1g",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *(f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in _OPENED),
        f"-Dtest.build.data={home}",
        f"-Dhadoop.log.dir={home}",
        "-cp",
        f"{jar()}{os.pathsep}{jars}",
        "py4j.GatewayServer",
        "--die-on-broken-pipe",
        "0",
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (home / "log").read_text()[-3000:]
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=int(line), auto_convert=True)
        )
        try:
            yield _started(gateway.jvm, home, {**_CONFIGURATION, **(settings or {})}, is_available)
        finally:
            gateway.close()
            assert process.stdin is not None
            process.stdin.close()
            process.stdout.close()
            process.kill()
            process.wait(timeout=30)


def _started(jvm: Any, home: Path, settings: Mapping[str, str], is_available: bool) -> Cluster:
    hdfs = jvm.org.apache.hadoop.hdfs
    configuration = hdfs.HdfsConfiguration()
    for name, value in settings.items():
        configuration.set(name, value)
    builder = getattr(hdfs, "MiniDFSCluster$Builder")(configuration, jvm.java.io.File(str(home)))
    builder = builder.numDataNodes(1)
    if is_available:
        builder = builder.nnTopology(hdfs.MiniDFSNNTopology.simpleHATopology())
    running = builder.build()
    if is_available:
        running.transitionToActive(0)
    running.waitActive()
    return Cluster(running, jvm)
