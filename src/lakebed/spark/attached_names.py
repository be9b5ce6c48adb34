"""Calls of PySpark that name a table, for sessions with attached datasets.

Spark lets a temporary view and a table of the catalog have the same name: `saveAsTable("t")` beside
an attached view `t` would write another table, and leave the dataset as it is. What changes a view
by SQL is refused by Spark without a word on what to do. There is no hook for it in the JVM, so the
methods of PySpark are wrapped, once in a process; they do nothing else for sessions without
attached datasets.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError
from lakebed.model.sql_heads import head_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, eq=False)
class Attachment:
    """Datasets that are attached to a session.

    Attributes:
        spark: The session.
        names: Returns the names of the views.
        dataset_of: Returns the dataset whose view has a name in SQL; None if there is none.
        catch_up: Brings views to the versions that this process has committed since.
        give_up: Leaves views, by their names, to a later attachment.
    """

    spark: SparkSession
    names: Callable[[], Collection[str]]
    dataset_of: Callable[[str], str | None]
    catch_up: Callable[[], None]
    give_up: Callable[[Collection[str]], None]


_lock = threading.Lock()
_attachments: list[Attachment] = []
# Modules, classes, methods, and the attribute that has the session.
_WRITERS = (
    ("pyspark.sql.readwriter", "DataFrameWriter", "saveAsTable", "_spark"),
    ("pyspark.sql.readwriter", "DataFrameWriter", "insertInto", "_spark"),
    ("pyspark.sql.readwriter", "DataFrameWriterV2", "__init__", "_spark"),
    ("pyspark.sql.streaming.readwriter", "DataStreamWriter", "toTable", "_spark"),
    ("pyspark.sql.catalog", "Catalog", "createTable", "_sparkSession"),
    ("pyspark.sql.catalog", "Catalog", "createExternalTable", "_sparkSession"),
    ("pyspark.sql.connect.readwriter", "DataFrameWriter", "saveAsTable", "_spark"),
    ("pyspark.sql.connect.readwriter", "DataFrameWriter", "insertInto", "_spark"),
    ("pyspark.sql.connect.readwriter", "DataFrameWriterV2", "__init__", "_spark"),
    ("pyspark.sql.connect.streaming.readwriter", "DataStreamWriter", "toTable", "_session"),
    ("pyspark.sql.connect.catalog", "Catalog", "createTable", "_sparkSession"),
    ("pyspark.sql.connect.catalog", "Catalog", "createExternalTable", "_sparkSession"),
)
_READERS = (
    ("pyspark.sql.readwriter", "DataFrameReader", "table", "_spark"),
    ("pyspark.sql.session", "SparkSession", "table", ""),
    ("pyspark.sql.connect.readwriter", "DataFrameReader", "table", "_client"),
    ("pyspark.sql.connect.session", "SparkSession", "table", ""),
)
_STATEMENTS = (
    ("pyspark.sql.session", "SparkSession", "sql", ""),
    ("pyspark.sql.connect.session", "SparkSession", "sql", ""),
)
_CHANGING = frozenset(
    ("MERGE", "UPDATE", "DELETE", "INSERT", "TRUNCATE", "OPTIMIZE", "VACUUM", "RESTORE")
)
_wrapped: set[str] = set()


def add_attachment(attachment: Attachment) -> None:
    """Guard the names of an attachment, and keep its views up to date, from now on."""
    spark = attachment.spark
    with _lock:
        package = "pyspark.sql.connect" if _is_connect(spark) else "pyspark.sql"
        if package not in _wrapped:
            for place in _WRITERS:
                _wrap(place, package, _guarded)
            for place in _READERS:
                _wrap(place, package, _current)
            for place in _STATEMENTS:
                _wrap(place, package, _checked)
            _wrapped.add(package)
        for earlier in _attachments_of(spark):
            earlier.give_up(attachment.names())
        _attachments.append(attachment)


def remove_attachment(attachment: Attachment) -> None:
    """Undo `add_attachment`."""
    with _lock:
        _attachments[:] = [known for known in _attachments if known is not attachment]


def catch_up(spark: Any) -> None:
    """Bring the views of a session to the versions that this process has committed."""
    for attachment in _attachments_of(spark):
        attachment.catch_up()


def check_free(spark: Any, name: object, call: str) -> None:
    """Check that a call does not name an attached dataset as its table.

    Raises:
        InvalidInputError: It names one.
    """
    plain = name.strip().strip("`") if isinstance(name, str) else ""
    for attachment in _attachments_of(spark):
        dataset = attachment.dataset_of(plain)
        if dataset is not None:
            raise InvalidInputError(
                f"{plain!r} is the view of the attached dataset {dataset!r}, which {call} does not "
                "write: it would make another table of that name.",
                hint=f"Write lake[{dataset!r}].append(frame), or likewise overwrite and merge; or the "
                f'table lake.{dataset} of a catalog: attach(spark, lake, catalog="lake"). For another '
                "table take another name.",
            )


def _check_statement(spark: Any, text: object) -> None:
    """Check that a statement does not change an attached view.

    Raises:
        InvalidInputError: It would, or would make another table of the name of a view.
    """
    head = head_of(text) if isinstance(text, str) else None
    if head is None or head.name in ("", "?") or head.qualifier:
        return
    if head.verb == "CREATE":
        check_free(spark, head.name, "CREATE TABLE")
    if head.verb not in _CHANGING:
        return
    for attachment in _attachments_of(spark):
        dataset = attachment.dataset_of(head.name)
        if dataset is not None:
            raise InvalidInputError(
                f"{head.verb} of {head.name!r}, the view of the attached dataset {dataset!r}: "
                "Spark only reads it.",
                hint='A catalog takes it: attach(spark, lake, catalog="lake"), and the table '
                f"lake.{dataset}. So does lake.sql(text, spark, write=True).",
            )


def _attachments_of(spark: Any) -> list[Attachment]:
    return [attachment for attachment in list(_attachments) if attachment.spark is spark]


def _is_connect(spark: Any) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _wrap(
    place: tuple[str, str, str, str],
    package: str,
    wrapper_of: Callable[[Callable[..., Any], str, str], Callable[..., Any]],
) -> None:
    module, class_name, method, attribute = place
    if module.startswith("pyspark.sql.connect") != (package == "pyspark.sql.connect"):
        return
    class_ = getattr(importlib.import_module(module), class_name)
    original = getattr(class_, method, None)
    if original is not None:
        setattr(class_, method, wrapper_of(original, attribute, f"{class_name}.{method}"))


def _guarded(original: Callable[..., Any], attribute: str, call: str) -> Callable[..., Any]:
    if call.endswith("__init__"):
        # The session is known after it. The table has another position on Spark Connect.
        signature = inspect.signature(original)

        @functools.wraps(original)
        def begin(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            table = signature.bind(self, *args, **kwargs).arguments["table"]
            check_free(getattr(self, attribute), table, "writeTo")

        return begin

    @functools.wraps(original)
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        name = args[0] if args else kwargs.get("name", kwargs.get("tableName"))
        check_free(getattr(self, attribute), name, call.partition(".")[2])
        return original(self, *args, **kwargs)

    return write


def _current(original: Callable[..., Any], attribute: str, call: str) -> Callable[..., Any]:  # noqa: ARG001 - as of _guarded
    @functools.wraps(original)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        catch_up(getattr(self, attribute) if attribute else self)
        return original(self, *args, **kwargs)

    return read


def _checked(original: Callable[..., Any], attribute: str, call: str) -> Callable[..., Any]:  # noqa: ARG001 - as of _guarded
    @functools.wraps(original)
    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _attachments_of(self):
            catch_up(self)
            _check_statement(self, args[0] if args else kwargs.get("sqlQuery"))
        return original(self, *args, **kwargs)

    return ask
