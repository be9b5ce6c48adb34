"""The rows that a statement reads: queries over datasets, given tables and the views of Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.arrow.entities import table_of
from lakebed.common.given import check_given
from lakebed.common.shown import shown
from lakebed.dataset import Dataset
from lakebed.errors import (
    InvalidInputError,
    InvalidNameError,
    SchemaMismatchError,
)
from lakebed.model.names import find_alike
from lakebed.model.predicate import quoted_name
from lakebed.model.schema import Type
from lakebed.model.spark_types import spark_frame_of
from lakebed.model.sql_dialect import parse, to_text
from lakebed.sql.asking import OpenTable, ask, check_tables, rows_of
from lakebed.sql.lake_access import StatementOrder, open_table
from lakebed.sql.session_meaning import instant_of
from lakebed.sql.store_assignment import converted, converted_frame
from lakebed.view import View

if TYPE_CHECKING:
    from sqlglot import expressions as exp


class QuerySource:
    """A query, and the engine that runs it: the given session of Spark, else DuckDB.

    A dataset that it names is read at one version, that of the first use.
    """

    def __init__(self, order: StatementOrder, query: exp.Expr, target: str = "") -> None:
        """Take a query.

        Args:
            order: Repository, session and options.
            query: The query, as sqlglot has read it in Spark's dialect.
            target: Name of the dataset that the statement changes.

        Raises:
            InvalidInputError: The query uses a form that no engine here has.
        """
        self._order = order
        self._target = target
        self._query = query
        self._pinned: dict[str, Dataset | View] = {}
        self._views: dict[str, str] = {}
        self._given: dict[str, pa.Table] = {}

    @property
    def base(self) -> Dataset | View | None:
        """The version of the target that the query reads; None if it does not read it."""
        target = self._target.casefold()
        return next((self._pinned[key] for key in self._pinned if key.casefold() == target), None)

    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of the result.

        Raises:
            InvalidInputError: The query is wrong.
            DatasetNotFoundError: It names a table that does not exist.
        """
        from sqlglot import exp

        if self._order.spark is not None:
            return tuple(self._frame(self._query).columns)
        query = self._query.unnest() if isinstance(self._query, exp.Subquery) else self._query
        # Around it, DuckDB would give a second column of a name another one.
        if isinstance(query, exp.Select | exp.SetOperation):
            empty = query.limit(0)
        else:
            empty = exp.select("*").from_(_as_subquery(query)).limit(0)
        return tuple(self._ask(empty).column_names)

    def rows(
        self,
        query: exp.Expr,
        wanted: Mapping[str, Type],
        names: Sequence[str],
        keys: Collection[str] = (),
    ) -> Any:
        """Return the result of a query over the same tables: a table, or a frame of Spark.

        Args:
            query: The query.
            wanted: Types that columns of the result are converted to.
            names: Names of the columns of the result.
            keys: Columns that are compared with fields.

        Raises:
            InvalidInputError: The query is wrong.
            SchemaMismatchError: A column cannot be converted.
        """
        if self._order.spark is not None:
            return converted_frame(self._frame(query).toDF(*names), wanted, keys)
        return converted(self._ask(query).rename_columns(list(names)), wanted, keys)

    def arrow(self, query: exp.Expr) -> pa.Table:
        """Return the result of a query as a table."""
        if self._order.spark is not None:
            return self._frame(query).toArrow()
        return self._ask(query)

    def close(self) -> None:
        """Drop the views that were made for Spark."""
        for view in self._views.values():
            self._order.spark.catalog.dropTempView(view)  # type: ignore[union-attr]  # made by it
        self._views = {}

    def _ask(self, query: exp.Expr) -> pa.Table:
        names: dict[str, None] = {}

        def named(table: exp.Table) -> str:
            name = self._key_of(table)
            names[name] = None
            return name

        # Read again: the tree of a MERGE has calls as they are written, which DuckDB may call otherwise.
        (typed,) = parse(to_text(query))
        own = _renamed(typed, named, takes_qualified=False)
        _escape_patterns(own)
        check_tables(names)
        return ask(own.sql(dialect="duckdb"), self._open, (own, tuple(names)))

    def _open(self, key: str, wanted: Collection[str]) -> object:
        if key in self._order.tables:
            return self._given_table(key)
        return rows_of(self._snapshot(key), wanted)

    def _given_table(self, key: str) -> pa.Table:
        """Return a table of the caller, which is read once for the whole statement."""
        if key not in self._given:
            self._given[key] = _read_given(self._order, key)
        return self._given[key]

    def _key_of(self, table: exp.Table) -> str:
        """Return the name by which a table is registered: with its version, if it names one."""
        version = table.args.get("version")
        return (
            table.name if version is None else f"{table.name}@{version.this} {moment_of(version)}"
        )

    def _snapshot(self, key: str) -> Dataset | View:
        if key not in self._pinned:
            name, _, moment = key.partition("@")
            kind, _, value = moment.partition(" ")
            dataset = open_table(self._order.lake, name)
            if not moment:
                self._pinned[key] = dataset.snapshot()
            elif kind.upper() == "VERSION":
                self._pinned[key] = dataset.at(version=_whole(value))
            else:
                spark = self._order.spark
                time = value if spark is None else instant_of(spark, value)
                self._pinned[key] = dataset.at(time=time)
        return self._pinned[key]

    def _frame(self, query: exp.Expr) -> Any:
        spark = self._order.spark
        assert spark is not None  # asked by the callers
        return spark.sql(to_text(_renamed(query, self._in_spark)))

    def _in_spark(self, table: exp.Table) -> str | None:
        """Return the view of a table, which is made if Spark has none; None to leave it to Spark."""
        key, spark = self._key_of(table), self._order.spark
        assert spark is not None  # asked by the callers
        if key in self._views:
            return self._views[key]
        if key in self._order.tables:
            given = spark_frame_of(self._order.tables[key])
            is_frame = type(given).__module__.startswith("pyspark.sql.")
            frame = given if is_frame else spark.createDataFrame(self._given_table(key))
        else:
            is_view = (
                key == table.name
                and key.casefold() != self._target.casefold()
                and spark.catalog.tableExists(quoted_name(key))
            )
            if is_view or not self._is_dataset(table.name):
                return None
            pinned = self._snapshot(key)
            frame = pinned.spark(spark, pinned._source.load().state.layout.table_columns)
        view = f"lakebed_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(view)
        self._views[key] = view
        return view

    def _is_dataset(self, name: str) -> bool:
        try:
            return self._order.lake.exists(name)
        except InvalidNameError:
            return False


def opener_by_name(order: StatementOrder) -> OpenTable:
    """Return a function that opens given tables and datasets by name, each once.

    It raises DatasetNotFoundError if neither has the name.
    """
    given: dict[str, pa.Table] = {}
    pinned: dict[str, View] = {}

    def open_by_name(name: str, wanted: Collection[str]) -> object:
        if name in order.tables:
            if name not in given:
                given[name] = _read_given(order, name)
            return given[name]
        if name not in pinned:
            pinned[name] = open_table(order.lake, name).snapshot()
        return rows_of(pinned[name], wanted)

    return open_by_name


def _read_given(order: StatementOrder, name: str) -> pa.Table:
    given = order.tables[name]
    try:
        table = table_of(given, is_dry_run=order.is_dry_run)
    except InvalidInputError as exc:
        raise InvalidInputError(
            f"The table {name!r} is a {type(given).__name__}. {exc.message}", hint=exc.hint
        ) from exc
    check_distinguished(f"table {name!r}", table.column_names)
    return table


def moment_of(version: exp.Expr) -> str:
    """Return the literal of VERSION AS OF or TIMESTAMP AS OF.

    Raises:
        InvalidInputError: It is not a literal.
    """
    from sqlglot import exp

    given = version.expression
    if isinstance(given, exp.Cast):
        given = given.this
    if not isinstance(given, exp.Literal):
        raise InvalidInputError(
            f"The version of a table is {shown(to_text(given))}.",
            hint="Write a literal: VERSION AS OF 3, or TIMESTAMP AS OF '2026-01-31 12:00:00'.",
        )
    return str(given.name)


def _whole(text: str) -> int:
    if not text.isdigit():
        raise InvalidInputError(
            f"The version of a table is {shown(text)}.", hint="Write a number: VERSION AS OF 3."
        )
    return int(text)


def _escape_patterns(query: exp.Expr) -> None:
    """Give patterns of LIKE the escape that they have in Spark; in DuckDB they have none."""
    from sqlglot import exp

    for like in list(query.find_all(exp.Like, exp.ILike)):
        pattern = like.expression
        is_plain = isinstance(pattern, exp.Literal) and "\\" not in pattern.name
        if not is_plain and not isinstance(like.parent, exp.Escape):
            like.replace(exp.Escape(this=like.copy(), expression=exp.Literal.string("\\")))


def _as_subquery(query: exp.Expr) -> exp.Expr:
    from sqlglot import exp

    return exp.Subquery(this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier("q")))


def _renamed(
    query: exp.Expr, name_of: Callable[[Any], str | None], *, takes_qualified: bool = True
) -> exp.Expr:
    """Return a query with other names of its tables, except of its own parts."""
    from sqlglot import exp

    own = query.copy()
    parts = {cte.alias_or_name.casefold() for cte in own.find_all(exp.CTE)}
    for table in list(own.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier) or table.name.casefold() in parts:
            continue
        if table.args.get("db") is not None:
            if not takes_qualified:
                raise InvalidInputError(
                    f"A table is named {shown(to_text(table))}.",
                    hint="Name a dataset or a given table alone; files cannot be queried.",
                )
            continue  # of Spark's catalogs
        other = name_of(table)
        if other is None:
            continue
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
        table.set("this", exp.to_identifier(other, quoted=True))
        table.set("version", None)
    return own


def check_distinguished(source: str, names: Sequence[str]) -> None:
    """Check that SQL distinguishes the columns of a source, as it ignores case.

    Raises:
        SchemaMismatchError: Two have the same name, or names that differ in case only.
    """
    alike = find_alike(names)
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if alike is not None or twice is not None:
        first, second = alike or (twice, twice)
        raise SchemaMismatchError(
            f"SQL cannot distinguish the columns {first!r} and {second!r} of {source}.",
            hint="Give one of them another name; a query does it by SELECT … AS ….",
        )


def checked_tables(tables: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Check the tables that a caller gives by name.

    Raises:
        InvalidInputError: They are not a mapping from names to tables.
    """
    remedy = 'Give tables by name: {"changes": table}.'
    check_given("tables", tables, Mapping, remedy)
    for name in tables or {}:
        check_given("a name in tables", name, str, remedy)
    return dict(tables or {})
