"""Sessions that know a Hive metastore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lakebed.errors import InvalidInputError
from lakebed.spark.session import find_running, local_session, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "spark.sql.catalogImplementation"
_URIS = "spark.hadoop.hive.metastore.uris"
_CONNECTION = "spark.hadoop.javax.jdo.option.ConnectionURL"
_SCHEME = "thrift://"


def session_of(metastore: SparkSession | str | os.PathLike[str] | None) -> SparkSession:
    """Return a session that reaches a metastore.

    Args:
        metastore: A session, which is returned as it is; `thrift://host:port`; a directory for
            Spark's embedded metastore, which one process at a time can use; or None for the
            session that runs in this process.

    Raises:
        InvalidInputError: No session runs, or one that runs reaches another metastore.
        MissingDependencyError: pyspark or Java is not installed.

    Cost:
        Nothing for a session that runs; else a JVM.
    """
    if metastore is not None and not isinstance(metastore, str | os.PathLike):
        return metastore
    require_pyspark()
    running = find_running()
    if metastore is None:
        if running is None:
            raise InvalidInputError(
                "There is no Spark session to say which metastore.",
                hint="Give a session, thrift://host:port (--metastore), or a directory for an embedded "
                "one (--warehouse).",
            )
        return running
    settings = _settings(os.fspath(metastore))
    if running is None:
        return local_session(settings=settings)
    wrong = [name for name, value in settings.items() if _setting(running, name) != value]
    if wrong:
        raise InvalidInputError(
            f"A Spark session runs that has another metastore than {os.fspath(metastore)!r}: "
            f"{wrong[0]} is {_setting(running, wrong[0])!r}.",
            hint="Give that session, or stop it: there is one a process.",
        )
    return running


def _setting(spark: SparkSession, name: str) -> str | None:
    return spark.conf.get(name, None)


def _settings(metastore: str) -> dict[str, str]:
    if metastore.startswith(_SCHEME):
        return {_CATALOG: "hive", _URIS: metastore}
    if "://" in metastore:
        raise InvalidInputError(
            f"{metastore!r} is no metastore.", hint="Give thrift://host:port or a directory."
        )
    directory = Path(metastore).absolute()
    if ";" in str(directory):
        raise InvalidInputError(
            f"Derby takes no directory with ';' in its name: {directory}.", hint="Choose another."
        )
    directory.mkdir(parents=True, exist_ok=True)
    return {
        _CATALOG: "hive",
        "spark.sql.warehouse.dir": f"{directory}/tables",
        _CONNECTION: f"jdbc:derby:;databaseName={directory}/metastore_db;create=true",
    }
