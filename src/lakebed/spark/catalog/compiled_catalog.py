"""A class of Java for the setting `spark.sql.catalog.NAME`, made by Spark's own compiler.

Spark makes the catalogs of a setting by itself. So each session of the JVM has them, also where
Python does not see it begin, as on Spark Connect. The class passes all calls on to the Python
object of the session that runs.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

from lakebed.spark.catalog.compiled_class import PACKAGE, define_class
from lakebed.spark.catalog.lake_catalog import LakeCatalog
from lakebed.spark.catalog.lake_tables import CatalogRepository
from lakebed.spark.catalog.session_jvm import Jvm, Proxied

_NAME = "LakebedCatalog"
CATALOG_CLASS = f"{PACKAGE}.{_NAME}"  # value of spark.sql.catalog.NAME

_TEXT = """
package {package};

public class {name} implements {interfaces} {{
  public static java.util.function.BiFunction catalogs;
  private String name;

  public void initialize(String name, org.apache.spark.sql.util.CaseInsensitiveStringMap options) {{
    this.name = name;
  }}

  private Object inner() {{
    return catalogs.apply(name, org.apache.spark.sql.classic.SparkSession.active().sessionUUID());
  }}
{methods}
}}
"""


class SessionCatalogs(Proxied):
    """The catalogs of a repository: one for each session of the JVM, made when it is first used."""

    Java = type("Java", (), {"implements": ("java.util.function.BiFunction",)})

    def __init__(self, jvm: Jvm, repository: CatalogRepository) -> None:
        """Keep the repository.

        Args:
            jvm: The JVM of the sessions.
            repository: The repository, which has the same name in all sessions.
        """
        super().__init__(jvm)
        self._repository = repository
        self._catalogs: dict[str, LakeCatalog] = {}
        self._lock = threading.Lock()

    def apply(self, name: str, session_id: str) -> LakeCatalog:
        """Return the catalog of the session that calls.

        Args:
            name: Name of the catalog.
            session_id: Identifies the session, whose thread calls.
        """
        from pyspark.sql import SparkSession

        with self._lock:
            catalog = self._catalogs.get(session_id)
            if catalog is None:
                session = self._jvm.sql.classic.SparkSession.active()
                spark = SparkSession(self._jvm.spark.sparkContext, session)
                catalog = self._catalogs[session_id] = LakeCatalog(spark, name, self._repository)
        return catalog

    def retain(self, session_ids: Collection[str]) -> None:
        """Forget the catalogs of all sessions but some; a session that is used again gets another."""
        with self._lock:
            self._catalogs = {k: v for k, v in self._catalogs.items() if k in session_ids}


def define_catalog_class(jvm: Jvm, catalogs: SessionCatalogs) -> None:
    """Let `CATALOG_CLASS` be a class of the JVM, whose objects pass calls on.

    Args:
        jvm: The JVM.
        catalogs: Finds the object of a session; takes the place of the former one.

    Cost:
        Some hundred calls into the JVM, and a compilation, once in a JVM.
    """
    class_ = define_class(jvm.root, _NAME, lambda: _class_text(jvm))
    class_.getField("catalogs").set(None, catalogs.to_java())


def _class_text(jvm: Jvm) -> str:
    """Return the text of the class, with each method that the interfaces of this release have."""
    java: Any = LakeCatalog.Java
    methods: dict[tuple[str, ...], str] = {}
    for interface in java.implements:
        for method in jvm.java.lang.Class.forName(interface).getMethods():
            is_static = jvm.java.lang.reflect.Modifier.isStatic(method.getModifiers())
            if is_static or method.getName() == "initialize":
                continue
            types = tuple(type_.getCanonicalName() for type_ in method.getParameterTypes())
            methods.setdefault((method.getName(), *types), _method_text(interface, method, types))
    return _TEXT.format(
        package=PACKAGE,
        name=_NAME,
        interfaces=", ".join(java.implements),
        methods="\n".join(methods.values()),
    )


def _method_text(interface: str, method: Any, types: tuple[str, ...]) -> str:
    name, returned = method.getName(), method.getReturnType().getCanonicalName()
    parameters = ", ".join(f"{type_} a{number}" for number, type_ in enumerate(types))
    arguments = ", ".join(f"a{number}" for number in range(len(types)))
    errors = ", ".join(error.getCanonicalName() for error in method.getExceptionTypes())
    throws = f" throws {errors}" if errors else ""
    call = f"(({interface}) inner()).{name}({arguments});"
    body = call if returned == "void" else f"return {call}"
    return f"  public {returned} {name}({parameters}){throws} {{ {body} }}"
