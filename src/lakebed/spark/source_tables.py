"""Tables of Spark as sources of rows: read as they are now, as a whole or by periods of a time."""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import InvalidInputError, NotFoundError, StorageError
from lakebed.model.predicate import quoted_name
from lakebed.model.schema import Kind, Primitive, Schema, dotted_types
from lakebed.model.spark_types import schema_from_spark
from lakebed.model.values import EPOCH, TIMES
from lakebed.spark.session import described, get_session
from lakebed.spark.spark_errors import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

_MISSING = frozenset(("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "NO_SUCH_CATALOG_EXCEPTION"))
_DAY = dt.timedelta(days=1)
_HOUR_S = 3600
_HOURS_A_DAY = 24
# A table without a catalog: its format, and the path of its files.
_BY_PATH = re.compile(r"\w+\.`([^`]+)`")
# Iceberg names its snapshot among the properties of a table.
_SNAPSHOT = re.compile(r"\bcurrent-snapshot-id=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """The storage of a table, as far as Spark can name it without reading rows.

    Attributes:
        location: URL of its files; None for a view, a query, and where Spark does not name it.
        version: Its version or snapshot, for formats that have one; None for others.
    """

    location: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A table, a view or a query of Spark, whose rows are read.

    Attributes:
        title: Its name, for messages and jobs.
        frame: Its rows, after the condition.
        schema: Their schema.
        time: Column of the time of a row; None if it is not declared.
        time_kind: Type of that column.
        state: Its storage.
    """

    title: str
    frame: DataFrame
    schema: Schema
    time: str | None
    time_kind: Kind | None
    state: SourceState

    @property
    def spark(self) -> SparkSession:
        """The session that reads it."""
        return self.frame.sparkSession

    def without(self, columns: tuple[str, ...]) -> DataFrame:
        """Return all rows, without some columns."""
        return self.frame.drop(*columns) if columns else self.frame

    def within(self, frame: DataFrame, start: dt.datetime, end: dt.datetime) -> DataFrame:
        """Return the rows of a frame from a time on, before another one."""
        from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

        return frame.where(F.expr(self._condition(start, end)))

    def _condition(self, start: dt.datetime, end: dt.datetime) -> str:
        column = self._column
        return f"{column} >= {self._literal(start)} AND {column} < {self._literal(end)}"

    @property
    def _column(self) -> str:
        assert self.time is not None  # callers have periods only with a time
        names = [self.time] if self.time in self.schema else self.time.split(".")
        return ".".join(quoted_name(name) for name in names)

    def _literal(self, moment: dt.datetime) -> str:
        moment = moment.astimezone(dt.UTC)
        text = moment.strftime("%Y-%m-%d %H:%M:%S")
        match self.time_kind:
            case Kind.DATE:
                # A date is the moment at which it begins: the first one that is not before.
                began = moment.time() == dt.time()
                return f"DATE '{moment.date() if began else moment.date() + _DAY}'"
            case Kind.TIMESTAMP_NTZ:
                return f"TIMESTAMP_NTZ '{text}'"
        return f"TIMESTAMP_LTZ '{text}+00:00'"

    def count(self) -> int:
        """Return the number of all rows.

        Cost:
            One Spark job.
        """
        with self.reading(), described(self.spark, f"count rows of {self.title}"):
            return self.frame.count()

    def count_by_hour(self, start: dt.datetime, end: dt.datetime) -> dict[dt.datetime | None, int]:
        """Return the number of rows by hour of their time, in UTC; None for rows without a time.

        Args:
            start: Start of the first hour.
            end: End of the last hour.

        Cost:
            One Spark job, which reads the column of the time.
        """
        from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

        column = self._column
        match self.time_kind:
            case Kind.DATE:
                hour = f"unix_date({column}) * {_HOURS_A_DAY}"
            case Kind.TIMESTAMP_NTZ:
                hour = f"unix_date(CAST({column} AS DATE)) * {_HOURS_A_DAY} + EXTRACT(HOUR FROM {column})"
            case _:
                hour = f"floor(unix_micros({column}) / {_HOUR_S * 1_000_000})"
        wanted = f"({self._condition(start, end)}) OR {column} IS NULL"
        counts = (
            self.frame.where(F.expr(wanted))
            .groupBy(F.expr(f"CAST({hour} AS BIGINT)").alias("hour"))
            .count()
        )
        with self.reading(), described(self.spark, f"count rows of {self.title} by time"):
            return {
                None if row[0] is None else EPOCH + dt.timedelta(hours=row[0]): row[1]
                for row in counts.collect()
            }

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Name errors of Spark after the table.

        Raises:
            StorageError: Spark failed.
        """
        with _naming_errors(self.title):
            yield


def open_source_table(
    spark: SparkSession | None,
    *,
    table: str | None,
    query: str | None,
    where: str | None,
    time: str | None,
) -> SourceTable:
    """Find a table, a view or the result of a query; no row is read.

    Args:
        spark: The session; None for the running one, else a new one.
        table: Name of the table or view, as Spark spells it; None for a query.
        query: The query; None for a table.
        where: Condition in Spark's SQL; None for all rows.
        time: Column of the time of a row; None if it is not needed.

    Raises:
        MissingDependencyError: pyspark or Java is not installed.
        NotFoundError: There is no such table.
        InvalidInputError: The name, the query, the condition or the column cannot be used.
        SchemaMismatchError: A column has a type that Lakebed lacks.
        StorageError: The catalog failed.

    Cost:
        Some calls of the catalog.
    """
    session = get_session(spark)
    title = table or "the query"
    with _naming_errors(title):
        frame = session.sql(query or "") if table is None else session.table(table)
        schema = schema_from_spark(frame.schema.jsonValue())
    if where is not None:
        with _naming_errors(title, f"the condition {where!r} of "):
            frame = frame.where(where)
            _ = frame.schema  # a session of Connect analyses it only now
    return SourceTable(
        title=title,
        frame=frame,
        schema=schema,
        time=time,
        time_kind=None if time is None else _kind_of(time, schema, title),
        state=SourceState() if table is None else _state_of(session, table),
    )


def _kind_of(time: str, schema: Schema, title: str) -> Kind:
    """Return the type of the column of a time.

    Raises:
        InvalidInputError: There is no such column, or it holds no times.
    """
    field = schema.find(time)
    kind = dotted_types(schema).get(time) if field is None else field.type
    if kind is None:
        raise InvalidInputError(
            f"{title} has no column {time!r}, by whose time its rows are chosen.",
            hint=f"Its columns are: {', '.join(schema.names)}.",
        )
    if not isinstance(kind, Primitive) or kind.kind not in TIMES:
        raise InvalidInputError(
            f"Column {time!r} of {title} has the type {kind}, which is not a time.",
            hint="Name a column of dates or timestamps; a query can convert one.",
        )
    return kind.kind


def _state_of(spark: SparkSession, table: str) -> SourceState:
    """Return what Spark knows of the storage of a table; it is only for the record."""
    by_path = _BY_PATH.fullmatch(table.strip())
    try:
        if by_path is not None and not spark.catalog.tableExists(table):
            return SourceState(location=by_path[1])
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()
        found = described_state([(str(row[0]), str(row[1])) for row in rows])
        if found.provider != "delta":
            return SourceState(location=found.location, version=found.version)
        newest = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").collect()
        return SourceState(location=found.location, version=str(newest[0]["version"]))
    except spark_errors(IndexError, ValueError) as exc:
        _log.debug("storage of a table is unknown table=%s reason=%r", table, exc)
        return SourceState()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTable:
    """The result of `DESCRIBE TABLE EXTENDED`.

    Attributes:
        provider: Format of the table, in lower case; empty for a view.
        location: As `SourceState`.
        version: As `SourceState`, where the description has it.
    """

    provider: str = ""
    location: str | None = None
    version: str | None = None


def described_state(rows: list[tuple[str, str]]) -> DescribedTable:
    """Read the names and values of `DESCRIBE TABLE EXTENDED`.

    Columns of the table come first, then a line that begins with `#`.

    >>> described_state([
    ...     ("Location", "string"), ("# Detailed Table Information", ""),
    ...     ("Location", "s3://bucket/sales"), ("Provider", "iceberg"),
    ...     ("Table Properties", "[current-snapshot-id=42,format=iceberg/parquet]"),
    ... ])
    DescribedTable(provider='iceberg', location='s3://bucket/sales', version='42')
    """
    starts = [number for number, (name, _) in enumerate(rows) if name.startswith("# Detailed")]
    facts = dict(rows[starts[-1] + 1 :]) if starts else {}
    provider = facts.get("Provider", "").lower()
    snapshot = _SNAPSHOT.search(facts.get("Table Properties", ""))
    return DescribedTable(
        provider=provider,
        location=facts.get("Location") or None,
        version=snapshot[1] if snapshot is not None and provider == "iceberg" else None,
    )


@contextmanager
def _naming_errors(title: str, of: str = "") -> Iterator[None]:
    """Raise errors of Spark as those of Lakebed.

    Raises:
        NotFoundError: There is no such table.
        InvalidInputError: A name, a query or a condition cannot be used.
        StorageError: Spark failed.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except AnalysisException as exc:  # also of a text that cannot be parsed
        if _condition_of(exc) in _MISSING:
            raise NotFoundError(
                f"Spark finds no table for {title}: {_first_line(exc)}",
                hint="Correct the name, or set up the catalog in the Spark session: see "
                "docs/pipeline.md, a table of Spark.",
            ) from exc
        raise InvalidInputError(
            f"Spark cannot use {of}{title}: {_first_line(exc)}", hint="Correct it."
        ) from exc
    except spark_errors() as exc:
        raise StorageError(
            f"Spark cannot read {title}: {_first_line(exc)}",
            hint="Nothing became visible. Spark's log has more.",
        ) from exc


def _condition_of(error: object) -> str:
    """Return the name of an error class of Spark, which older releases spell otherwise."""
    name = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    return str(name() or "").partition(".")[0] if callable(name) else ""


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return text[:300] + ("" if text.endswith(".") else ".")
