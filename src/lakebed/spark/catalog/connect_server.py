"""A server of Spark Connect in this process, whose sessions have a repository as a catalog."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError, MissingDependencyError
from lakebed.spark.callbacks import watch_threads
from lakebed.spark.catalog.compiled_catalog import CATALOG_CLASS
from lakebed.spark.catalog.lake_tables import CatalogRepository
from lakebed.spark.catalog.sessions import check_catalog_name, declare_catalog
from lakebed.spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"
# Not a setting: those of the driver are on its command line, which other users can see.
_TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_UPKEEP_S = 10.0  # between two looks for threads and sessions that have ended


def serve_connect(
    repository: CatalogRepository,
    *,
    catalog: str,
    host: str,
    port: int,
    token: str | None,
    on_start: Callable[[str], None],
) -> None:
    """Serve Spark Connect until the process is interrupted.

    Args:
        repository: The catalog of all sessions.
        catalog: Name of the catalog.
        host: The address to listen on.
        port: A free port.
        token: Token that clients must send; None lets every client run any code as this user.
        on_start: Called with the address for clients when the server listens.

    Raises:
        InvalidInputError: The name of the catalog is not valid, or the environment names a Spark
            that cannot be served.
        MissingDependencyError: pyspark is not installed, or only its client is; or no Java 17 or
            newer is found.
    """
    check_catalog_name(catalog)
    if importlib.util.find_spec("py4j") is None:  # pyspark-client has none
        raise MissingDependencyError.for_extra("pyspark", "spark", "A server of Spark Connect")
    if "SPARK_REMOTE" in os.environ:
        raise InvalidInputError(
            f"SPARK_REMOTE names another server: {os.environ['SPARK_REMOTE']}.",
            hint="Unset it for this command.",
        )
    if token is not None:
        os.environ[_TOKEN_VARIABLE] = token
    with _interrupted():
        spark = start_session(
            {
                "spark.plugins": _PLUGIN,
                "spark.connect.grpc.binding.address": host,
                "spark.connect.grpc.binding.port": str(port),
                f"spark.sql.catalog.{catalog}": CATALOG_CLASS,
            }
        )
        try:
            catalogs = declare_catalog(spark, repository)
            watch = watch_threads(spark.sparkContext._gateway)
            on_start(f"sc://{_client_host(host)}:{port}")
            while True:
                threading.Event().wait(_UPKEEP_S)
                watch.close_ended()
                catalogs.retain(_session_ids(spark))
        finally:
            spark.stop()


@contextlib.contextmanager
def _interrupted() -> Iterator[None]:
    """End the block when the process is interrupted or asked to end."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _client_host(host: str) -> str:
    """Return the host for clients: without TLS, PySpark sends a token to this name alone."""
    if host == "127.0.0.1":
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _session_ids(spark: SparkSession) -> set[str]:
    """Return the sessions of the JVM that clients have open, and that of this process."""
    driver: Any = spark
    service = driver._jvm.org.apache.spark.sql.connect.service
    manager = getattr(getattr(service, "SparkConnectService$"), "MODULE$").sessionManager()
    sessions = manager.listActiveSessions()
    found = {driver._jsparkSession.sessionUUID()}
    for position in range(sessions.size()):
        info = sessions.apply(position)
        key = service.SessionKey(info.userId(), info.sessionId())
        holder = manager.getIsolatedSessionIfPresent(key)
        if holder.isDefined():
            found.add(holder.get().session().sessionUUID())
    return found
