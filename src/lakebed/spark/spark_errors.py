"""The errors of a session, also where only the client of Spark Connect is installed."""

from __future__ import annotations


def spark_errors(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the classes of errors that calls of a session raise, and others.

    Those of py4j are among them if it is installed; the package pyspark-client does not need it.
    """
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return PySparkException, *others
    return PySparkException, Py4JError, *others
