"""Test of whether a session reaches a store through a file system of Hadoop.

A store has the name of its Hadoop file system, but cannot know whether a session has the connector,
the credentials and the endpoint. So the session is asked to look for a file; that works with and
without Spark Connect.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from lakebed.errors import redacted
from lakebed.spark.spark_errors import spark_errors
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# A connector without credentials or with a wrong endpoint may try for minutes.
_LIMIT_S = 60.0
_REASON_LENGTH = 300  # of an answer of a session
_NO_FILE = "PATH_NOT_FOUND"  # Spark's condition for it
_PACKAGES = {"s3a": "hadoop-aws", "gs": "hadoop-gcp", "abfss": "hadoop-azure"}

# By session, the reason why it does not reach each store; empty if it does.
_known: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()


def find_unreachable(spark: SparkSession, store: Store, key: str, *, retry: bool) -> str:
    """Return why a session does not reach the files of a store; empty if it does.

    Args:
        spark: The session that looks for the file.
        store: Store of the file, with its name in Hadoop.
        key: Key of an existing file.
        retry: True to ask a session again that did not reach the store before.

    Cost:
        Nothing for a directory. Else, once for a session and a store, some requests of Spark's
        driver, and at most a minute.
    """
    uri = store.hadoop_uri(key)
    if uri is None:
        return f"no file system of Hadoop is known to have {store.uri}"
    if store.local_path(key) is not None:
        return ""
    reasons = _known.setdefault(spark, {})
    root = uri.removesuffix(key)
    reason = reasons.get(root)
    if reason is None or (reason and retry):
        reason = _ask(spark, store, uri)
        if reason:
            _log.info("Spark's own reader is not used store=%s reason=%s", store.uri, reason)
        if (
            _NO_FILE not in reason
        ):  # which may be no more than one file that another process has deleted
            reasons[root] = reason
    return reason


def _ask(spark: SparkSession, store: Store, uri: str) -> str:
    """Let a session look for a file; return why it does not see it."""
    scheme = uri.partition(":")[0]
    # Hadoop would keep a file system that was opened before the caller has set its keys.
    options = {f"fs.{scheme}.impl.disable.cache": "true"}

    def look() -> str:
        try:
            # With a schema nothing is read; on Connect only the schema makes the server look.
            spark.read.schema("a INT").options(**options).parquet(uri).schema  # noqa: B018
        except spark_errors() as exc:
            return _reason(exc)
        return ""

    answer = _within(_LIMIT_S, look)
    if answer is None:
        return f"Spark's connector for {store.uri} gave no answer within {_LIMIT_S:.0f} s"
    if "ClassNotFoundException" in answer or "No FileSystem for scheme" in answer:
        package = f" (org.apache.hadoop:{_PACKAGES[scheme]})" if scheme in _PACKAGES else ""
        return (
            f"Spark has no connector for {scheme}://{package}, by which it would read {store.uri}"
        )
    return answer and f"Spark does not reach {store.uri} by {scheme}://: {redacted(answer)}"


def _reason(exc: Exception) -> str:
    """Return the first message of a session, and its last cause."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    messages = [line for line in lines if not line.startswith(("at ", "...", "Caused by:"))]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return " ".join([*messages[:2], *causes[-1:]])[:_REASON_LENGTH]


def _within(limit_s: float, work: Callable[[], str]) -> str | None:
    """Return the result of a function; None if it takes too long, while it continues to run."""
    answers: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put(work())
        except BaseException as exc:  # noqa: BLE001 - raised below
            answers.put(exc)

    threading.Thread(target=run, name="lakebed-connector", daemon=True).start()
    try:
        answer = answers.get(timeout=limit_s)
    except queue.Empty:
        return None
    if isinstance(answer, BaseException):
        raise answer
    return answer
