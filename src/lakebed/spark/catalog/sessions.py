"""Catalogs of the sessions of an application: put into each of them, and taken out again."""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any, Self

from lakebed.common.html import facts_to_html
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError
from lakebed.model.predicate import quoted_name, sql_literal
from lakebed.spark.callbacks import start_callbacks, watch_threads
from lakebed.spark.catalog.compiled_catalog import SessionCatalogs, define_catalog_class
from lakebed.spark.catalog.java_errors import install_errors
from lakebed.spark.catalog.lake_catalog import LakeCatalog
from lakebed.spark.catalog.session_jvm import Jvm, release_of
from lakebed.spark.session import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.spark.catalog.lake_tables import CatalogRepository

# Spark before it has no procedures, and no metadata columns that show which rows were changed.
_FIRST_RELEASE = (4, 0)
_FIRST_OF_SERVER = (4, 3)  # a server of Spark Connect was tried with no earlier release
_OF_SPARK = ("spark_catalog", "system", "session", "global_temp")

_lock = threading.RLock()
_attached: dict[tuple[str, str], AttachedCatalog] = {}  # by application and name


class AttachedCatalog:
    """A repository as a catalog of all classic sessions of an application.

    A context manager, which detaches at the end of its block.
    """

    def __init__(self, spark: SparkSession, repository: CatalogRepository, name: str) -> None:
        """Use `attach` instead."""
        self._application = spark.sparkContext.applicationId
        self._repository = repository
        self._name = name
        self._sessions: list[SparkSession] = []

    @property
    def name(self) -> str:
        """Name of the catalog."""
        return self._name

    def __repr__(self) -> str:
        return f"<AttachedCatalog {self._name} of {self._repository.store.uri}>"

    def _repr_html_(self) -> str:
        return facts_to_html(f"Catalog {self._name}", {"repository": self._repository.store.uri})

    def detach(self) -> None:
        """Take the catalog out of all sessions; a second call does nothing.

        A session whose current catalog it is goes back to Spark's own.
        """
        with _lock:
            for spark in self._sessions:
                if spark.catalog.currentCatalog() == self._name:
                    spark.catalog.setCurrentCatalog(_OF_SPARK[0])
            self._take_out()

    def _take_out(self) -> list[SparkSession]:
        """Return the sessions that had the catalog."""
        key = self._application, self._name
        if _attached.get(key) is self:
            del _attached[key]
        sessions, self._sessions = self._sessions, []
        for spark in sessions:
            _catalogs_of(spark).remove(self._name)
        return sessions

    def _put_into(self, spark: SparkSession) -> None:
        """Make the repository a catalog of a session, unless it is one."""
        catalogs = _catalogs_of(spark)
        if not catalogs.contains(self._name):
            catalog = LakeCatalog(spark, self._name, self._repository)
            catalogs.put(self._name, catalog.to_java())
            self._sessions.append(spark)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()


def attach_catalog(
    spark: SparkSession, repository: CatalogRepository, name: str, *, is_shared_host: bool
) -> AttachedCatalog:
    """Make a repository a catalog of a session, and of all sessions that Python meets later.

    Args:
        spark: A classic session.
        repository: The repository.
        name: Name of the catalog; a former catalog of this name that was attached is detached.
        is_shared_host: Whether other processes of the machine may call it, if need be.

    Raises:
        InvalidInputError: The session, or its release of Spark, cannot have such a catalog; or the
            name is taken.

    Cost:
        No request and no job; some calls into the JVM.
    """
    _check_session(spark)
    with _lock:
        context: Any = spark.sparkContext
        former = _attached.get((context.applicationId, name))
        sessions = [] if former is None else former._take_out()
        _check_name(spark, name)
        _start_callbacks(spark, is_shared_host=is_shared_host)
        _follow_sessions()
        _list_default_namespaces()
        attached = AttachedCatalog(spark, repository, name)
        for session in (spark, *sessions):
            attached._put_into(session)
        _attached[context.applicationId, name] = attached
    return attached


def declare_catalog(spark: SparkSession, repository: CatalogRepository) -> SessionCatalogs:
    """Make a repository the catalog of all sessions whose settings name `CATALOG_CLASS`.

    Args:
        spark: A classic session, whose application gets the catalog.
        repository: The repository.

    Returns:
        The catalogs by session.

    Raises:
        InvalidInputError: The release of Spark cannot have such a catalog, or other processes of
            the machine could call it.

    Cost:
        As of `define_catalog_class`.
    """
    _check_session(spark, _FIRST_OF_SERVER)
    with _lock:
        _start_callbacks(spark, is_shared_host=False)
        jvm = Jvm(spark)
        catalogs = SessionCatalogs(jvm, repository)
        define_catalog_class(jvm, catalogs)
    return catalogs


def _start_callbacks(spark: SparkSession, *, is_shared_host: bool) -> None:
    """Let the JVM call this process, closed to other processes.

    Raises:
        InvalidInputError: Other processes of the machine could call it, and `is_shared_host` is
            False.
    """
    context: Any = spark.sparkContext
    why = start_callbacks(context._gateway)
    if why and not is_shared_host:
        raise InvalidInputError(
            f"Other processes of this machine could call the catalog: {why}.",
            hint="Give shared_host=True where no other user has an account; or attach views, "
            "without catalog=.",
        )
    watch_threads(context._gateway)
    # For all callbacks of the application: exceptions of Java stay what they are.
    context._gateway.callback_server_parameters.propagate_java_exceptions = True
    install_errors()


def _check_session(spark: SparkSession, first: tuple[int, int] = _FIRST_RELEASE) -> None:
    """Check that a session can have a catalog whose objects are in this process.

    Args:
        spark: The session.
        first: The first release of Spark that can have it.

    Raises:
        InvalidInputError: It cannot.
    """
    remedy = "Attach views instead: attach(spark, lake), without catalog=."
    if not is_classic(spark):
        raise InvalidInputError(
            "A session of Spark Connect cannot have a catalog of this process.",
            hint=f"Connect to a server that has it: lakebed serve LAKE --spark-connect. {remedy}",
        )
    if release_of(spark) < first:
        needed = ".".join(map(str, first))
        raise InvalidInputError(
            f"A catalog needs Spark {needed} or newer; this is {spark.version}.", hint=remedy
        )
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise InvalidInputError(
            "PYSPARK_PIN_THREAD is set to false: errors of a catalog would be lost.",
            hint=f"Leave it out. {remedy}",
        )


def check_catalog_name(name: object) -> None:
    """Check that a catalog can have a name.

    Raises:
        InvalidInputError: The name is not valid, or is of a catalog of Spark itself.
    """
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
        raise InvalidInputError(
            f"catalog is {shown(name)}.", hint="Give letters, digits and _, such as 'lake'."
        )
    if name in _OF_SPARK:
        raise InvalidInputError(f"Spark has a catalog {name!r}.", hint="Choose another name.")


def _check_name(spark: SparkSession, name: str) -> None:
    """Check that a catalog of this name is not one of Spark, or of another package.

    Raises:
        InvalidInputError: The name is taken, or is not valid.
    """
    check_catalog_name(name)
    is_declared = spark.conf.get(f"spark.sql.catalog.{name}", None) is not None
    if is_declared or _catalogs_of(spark).contains(name):
        raise InvalidInputError(
            f"The session has another catalog {name!r}.", hint="Choose another name."
        )


def _catalogs_of(spark: Any) -> Any:
    """Return the map of a session's catalogs by name, which Spark fills when it meets a name."""
    manager = spark._jsparkSession.sessionState().catalogManager()
    class_ = manager.getClass()
    while class_ is not None:
        for field in class_.getDeclaredFields():
            if field.getName() == "catalogs":
                field.setAccessible(True)
                return field.get(manager)
        class_ = class_.getSuperclass()
    raise InvalidInputError(
        f"This Spark {spark.version} keeps its catalogs elsewhere.",
        hint="Attach views instead: attach(spark, lake), without catalog=.",
    )


def _follow_sessions() -> None:
    """Let each session that Python makes have the catalogs: `newSession`, that of `foreachBatch`."""
    from pyspark.sql import SparkSession

    before = SparkSession.__init__
    if hasattr(before, "of_lakebed"):
        return

    @functools.wraps(before)
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        before(self, *args, **kwargs)
        with _lock:
            for (application, _), attached in list(_attached.items()):
                if application == self.sparkContext.applicationId:
                    attached._put_into(self)

    begin.of_lakebed = True  # type: ignore[attr-defined]
    SparkSession.__init__ = begin  # type: ignore[method-assign]


def _list_default_namespaces() -> None:
    """Let `listTables` and `listFunctions` of PySpark list a default namespace.

    The name of a default namespace is empty. Spark parses the namespace of each table, and that of
    functions, and fails.
    """
    from pyspark.sql.catalog import Catalog, Function, Table

    before, functions_before = Catalog.listTables, Catalog.listFunctions
    if hasattr(before, "of_lakebed"):
        return

    @functools.wraps(before)
    def list_tables(
        self: Any,
        dbName: str | None = None,  # noqa: N803 - PySpark's name
        pattern: str | None = None,
    ) -> list[Table]:
        catalog = _find_catalog(self, dbName)
        if catalog is None:
            return before(self, dbName, pattern)
        like = "" if pattern is None else f" LIKE {sql_literal(pattern)}"
        rows = self._sparkSession.sql(f"SHOW TABLES IN {catalog}{like}").collect()
        return [self.getTable(f"{catalog}.{quoted_name(row.tableName)}") for row in rows]

    @functools.wraps(functions_before)
    def list_functions(
        self: Any,
        dbName: str | None = None,  # noqa: N803 - PySpark's name
        pattern: str | None = None,
    ) -> list[Function]:
        if _find_catalog(self, dbName) is None:
            return functions_before(self, dbName, pattern)
        # A repository has no functions: these are Spark's own, and temporary ones.
        listed = functions_before(self, f"{_OF_SPARK[0]}.default", pattern)
        return [function for function in listed if not function.namespace]

    list_tables.of_lakebed = True  # type: ignore[attr-defined]
    Catalog.listTables = list_tables  # type: ignore[method-assign]
    Catalog.listFunctions = list_functions  # type: ignore[method-assign]


def _find_catalog(shown: Any, namespace: str | None) -> str | None:
    """Return the attached catalog whose default namespace is named; None if another one is.

    Args:
        shown: `spark.catalog`.
        namespace: Name of the namespace; None for the current one.
    """
    application = shown._sparkSession.sparkContext.applicationId
    if namespace is None:
        name = "" if shown.currentDatabase() else shown.currentCatalog()
    else:
        # As Spark does, take it for a database of the session's own catalog first.
        name = "" if shown.databaseExists(f"{_OF_SPARK[0]}.{namespace}") else namespace
    return name if (application, name) in _attached else None
