"""Spark sessions that use a Hive metastore."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakebed.errors import InvalidInputError, StorageError
from lakebed.spark.session import find_running, local_session, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG = "spark.sql.catalogImplementation"
_WAREHOUSE = "spark.sql.warehouse.dir"
_URIS = "spark.hadoop.hive.metastore.uris"
_CONNECTION = "spark.hadoop.javax.jdo.option.ConnectionURL"
_SCHEME = "thrift://"
# An address without its scheme, or with half of it; write ./hive:9083 for a directory hive:9083.
_ADDRESS = re.compile(r"[^/\\]+:\d{1,5}|thrift:.*", re.IGNORECASE)
_CONNECT_TIMEOUT_S = 5.0


def is_session_running() -> bool:
    """Return whether a Spark session runs in this process, whose metastore can be used.

    Raises:
        MissingDependencyError: pyspark is not installed.
    """
    require_pyspark()
    return find_running() is not None


def session_of(metastore: SparkSession | str | os.PathLike[str] | None) -> SparkSession:
    """Return a session that uses a metastore.

    Args:
        metastore: A session, which is returned as it is; `thrift://host:port`; a directory for
            Spark's embedded metastore, which one process at a time can use; or None for the
            session that runs in this process.

    Raises:
        InvalidInputError: No session runs, or the running one uses another metastore.
        StorageError: No metastore answers at the address.
        MissingDependencyError: pyspark or Java is not installed.

    Cost:
        Nothing for a running session; else a JVM.
    """
    if metastore is not None and not isinstance(metastore, str | os.PathLike):
        return metastore
    require_pyspark()
    running = find_running()
    if metastore is None:
        if running is None:
            raise InvalidInputError(
                "No metastore is given, and no Spark session is running.",
                hint="Give a session, thrift://host:port (--metastore), or a directory for an embedded "
                "metastore (--warehouse).",
            )
        return running
    settings = _settings(os.fspath(metastore))
    if running is None:
        if _URIS in settings:
            _check_answers(settings[_URIS])
        return local_session(settings=settings)
    wrong = [name for name, value in settings.items() if _setting(running, name) != value]
    if wrong:
        raise InvalidInputError(
            f"The running Spark session uses another metastore than {os.fspath(metastore)!r}: "
            f"{wrong[0]} is {_setting(running, wrong[0])!r}.",
            hint="Give that session, or stop it: a process can have only one.",
        )
    return running


def _setting(spark: SparkSession, name: str) -> str | None:
    value = spark.conf.get(name, None)
    if name == _WAREHOUSE and value is not None:
        return value.removeprefix("file://").removeprefix("file:")  # Spark makes it a URI
    return value


def _check_answers(uris: str) -> None:
    """Check that a metastore answers; a session would start first and then retry for minutes."""
    trouble = OSError()
    for address in _addresses(uris):
        try:
            socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
        except OSError as exc:
            trouble = exc
        else:
            return
    raise StorageError(
        f"No metastore answers at {uris}: {trouble.strerror or trouble}.",
        hint="Check host and port, and that this machine reaches them.",
        retryable=True,
    ) from trouble


def _addresses(uris: str) -> Iterator[tuple[str, int]]:
    for uri in uris.split(","):
        parts = urlsplit(uri.strip())
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if f"{parts.scheme}://" != _SCHEME or not host or not port:
            raise _not_a_metastore(uris)
        yield host, port


def _not_a_metastore(given: str) -> InvalidInputError:
    return InvalidInputError(
        f"{given!r} does not name a metastore.", hint="Give thrift://host:port or a directory."
    )


def _settings(metastore: str) -> dict[str, str]:
    if metastore.startswith(_SCHEME):
        return {_CATALOG: "hive", _URIS: metastore}
    if "://" in metastore or _ADDRESS.fullmatch(metastore):
        raise _not_a_metastore(metastore)
    directory = Path(metastore).absolute()
    if ";" in str(directory):
        raise InvalidInputError(
            f"Derby does not accept a directory with ';' in its name: {directory}.",
            hint="Choose another directory.",
        )
    directory.mkdir(parents=True, exist_ok=True)
    return {
        _CATALOG: "hive",
        _WAREHOUSE: f"{directory}/tables",
        _CONNECTION: f"jdbc:derby:;databaseName={directory}/metastore_db;create=true",
    }
