"""SQL queries on the datasets of a repository, with DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.arrow.planned import PlannedDataset, planned_dataset
from lakebed.arrow.pushed import on_large_stack
from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    LakebedError,
    SchemaMismatchError,
)
from lakebed.model.footprint import FOOTPRINT, hidden_columns
from lakebed.model.names import find_alike
from lakebed.model.schema import Type, find_alike_fields
from lakebed.model.sql_predicates import why_unreadable
from lakebed.model.values import is_unicode
from lakebed.plan.footprint_columns import with_footprint
from lakebed.sql.hidden_columns import named_footprints, without_hidden

if TYPE_CHECKING:
    import duckdb
    from sqlglot import exp

    from lakebed.view import View

OpenTable = Callable[[str, Collection[str]], object]
"""Returns the rows of a table by name, in a form that DuckDB reads, always of one version. It has the
given columns of the footprint, as far as it has none of these names itself."""

_FEW_LEVELS = 60  # fit into every stack
_MOST_LEVELS = 5_000  # of more, DuckDB takes minutes
# Names in a query must not refer to objects of this process, files, or extensions of the network.
_SETTINGS = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def ask(
    query: str,
    open_table: OpenTable,
    read: tuple[exp.Expr, tuple[str, ...]] | None = None,
) -> pa.Table:
    """Return the result of a query.

    Args:
        query: A single SELECT; only the tables that it names are opened.
        open_table: Opens the tables, by the names that the query has for them.
        read: Its tree and the names of its tables, if the caller has them; None to read the text.

    Raises:
        InvalidInputError: It is not a single SELECT, it has too many levels, or DuckDB rejects it.
        DatasetNotFoundError: The query names a table that does not exist.
        DamagedFileError: A data file is damaged.
    """
    import duckdb

    if read is None:
        tree = tree_of(query)
        names = tables_of(tree)
    else:
        _check_kind(query)
        tree, names = read
    level_count = _level_count(tree)
    if level_count > _MOST_LEVELS:
        raise _unreadable(
            f"{level_count} of its parts are nested in each other, or joined by AND, OR, UNION "
            f"or another operator; at most {_MOST_LEVELS} can be.",
            "List the values of a column by IN. Write other alternatives as rows of a table, or of "
            "VALUES, and join it.",
        )
    missing: dict[str, DatasetNotFoundError] = {}
    with duckdb.connect(config=dict(_SETTINGS)) as connection:
        connection.execute("SET TimeZone = 'UTC'")  # as in predicates
        tables = _QueryTables(connection, open_table)
        for name in names:
            try:
                tables.register(name)
            except DatasetNotFoundError as exc:
                missing[name] = exc  # it may be the name of a part of the query itself
        # From here on the query can read only the registered tables, and cannot change settings.
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            try:
                return _answered(connection, query, level_count)
            except duckdb.BinderException as exc:
                # Only now, so that a column of another table, and an alias, keep their meaning.
                return _with_footprint(tables, query, tree, level_count, exc)
        except duckdb.CatalogException as exc:
            unknown = [missing[name] for name in missing if f"name {name} " in str(exc)]
            raise unknown[0] if unknown else _refused(exc) from exc
        except duckdb.Error as exc:
            raise tables.find_failure() or _refused(exc) from exc


class _QueryTables:
    """The tables of a query, as DuckDB sees them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, open_table: OpenTable) -> None:
        self.connection = connection
        self._open_table = open_table
        self._shown: dict[str, frozenset[str]] = {}
        self._datasets: list[PlannedDataset] = []

    def register(self, name: str) -> None:
        """Make a table known by its name."""
        self._shown[name] = frozenset(self._register(name, ()))

    def find_failure(self) -> LakebedError | None:
        """Return the first error of a read, of which DuckDB reports the text alone."""
        return next((failure for rows in self._datasets for failure in rows.failures), None)

    def show(self, wanted: Collection[str]) -> dict[str, tuple[str, ...]]:
        """Give the tables columns of the footprint; return these by the names of the tables."""
        return {
            name: tuple(column for column in self._register(name, wanted) if column not in shown)
            for name, shown in self._shown.items()
        }

    def _register(self, name: str, wanted: Collection[str]) -> list[str]:
        import duckdb

        rows: Any = self._open_table(name, wanted)
        if isinstance(rows, PlannedDataset):
            self._datasets.append(rows)
        try:
            self.connection.register(name, rows)
        except duckdb.Error as exc:
            raise InvalidInputError(
                f"DuckDB cannot read the table {name!r}: {_first_paragraph(exc)}",
                hint="Cast its columns to other types, or leave them out.",
            ) from exc
        return list(rows.schema.names)


def _with_footprint(
    tables: _QueryTables, query: str, tree: exp.Expr, level_count: int, rejected: Exception
) -> pa.Table:
    """Return the result of a query that names columns of the footprint.

    Raises:
        InvalidInputError: Another part of the query would show them.
        duckdb.BinderException: It names none, or is wrong all the same.
    """
    import duckdb

    for wanted in named_footprints(tree):
        text = without_hidden(query, tree, tables.show(wanted))
        if not text:
            raise InvalidInputError(
                f"DuckDB rejected the query: {_first_paragraph(rejected)}",
                hint=f"The hidden columns {', '.join(FOOTPRINT)} cannot be named beside PIVOT, "
                "COLUMNS, NATURAL JOIN or a row as one value: name them in a subquery.",
            ) from rejected
        try:
            return _answered(tables.connection, text, level_count)
        except duckdb.BinderException as exc:
            rejected = exc
    raise rejected


def _answered(connection: duckdb.DuckDBPyConnection, query: str, level_count: int) -> pa.Table:
    def answer() -> pa.Table:
        return connection.sql(query).to_arrow_table()

    # DuckDB walks a query by recursion.
    return answer() if level_count <= _FEW_LEVELS else on_large_stack(answer, connection.interrupt)


def _level_count(tree: exp.Expr) -> int:
    """Return how deep parts of a query are nested; each word of a chain of ORs is a level."""
    most, waiting = 0, [(tree, 1)]
    while waiting:
        node, level = waiting.pop()
        most = max(most, level)
        waiting += [(child, level + 1) for child in node.iter_expressions()]
    return most


def rows_of(view: View, wanted: Collection[str] = ()) -> object:
    """Return the rows of a dataset or view, all its columns, in a form that DuckDB reads.

    Args:
        view: The dataset or view.
        wanted: Columns of the footprint to add, unless the dataset has columns of these names.

    Raises:
        SchemaMismatchError: DuckDB cannot distinguish two of its columns.
    """
    chosen = view.plan()
    layout = chosen.layout
    columns = layout.table_columns
    types = layout.column_types
    check_columns(view._source.name, {column: types[column] for column in columns})
    if wanted:
        chosen = with_footprint(chosen.store, chosen, wanted)
        hidden = hidden_columns(columns)
        columns += tuple(name for name in wanted if name in hidden)
    try:
        return planned_dataset(chosen.store, chosen, columns)
    except InvalidInputError:
        return chosen.record_batches(columns).read_all()


def check_columns(name: str, types: Mapping[str, Type]) -> None:
    """Check that DuckDB can distinguish the columns of a table, and the fields of their records.

    It ignores case in names, and uses the first of several that are equal then.

    Raises:
        SchemaMismatchError: Two names differ only in case.
    """
    alike = find_alike_fields(types)
    if alike is not None:
        raise SchemaMismatchError(
            f"DuckDB cannot distinguish the fields {alike[0]!r} and {alike[1]!r} of {name!r}.",
            hint="Use `where` and `select`, or `lakebed query`, which distinguish them.",
        )


def _refused(error: duckdb.Error) -> InvalidInputError:
    return InvalidInputError(
        f"DuckDB rejected the query: {_first_paragraph(error)}",
        hint="Tables are the datasets of the repository, by name; files cannot be queried.",
    )


def tables_of(tree: exp.Expr) -> tuple[str, ...]:
    """Return the names of the tables in a query, and of its own parts.

    Raises:
        InvalidInputError: Two names differ only in case, which DuckDB ignores.

    >>> tables_of(
    ...     tree_of("WITH late AS (FROM flights WHERE delay > 60) FROM late JOIN planes USING (id)")
    ... )
    ('late', 'planes', 'flights')
    """
    from sqlglot import exp

    names = dict.fromkeys(_name(table) for table in tree.find_all(exp.Table))
    names.pop("", None)
    check_tables(names)
    return tuple(names)


def tree_of(query: str) -> exp.Expr:
    """Return the tree of a query.

    Raises:
        InvalidInputError: It is not a single SELECT.
    """
    # Here, not above: the import takes a tenth of a second.
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    _check_kind(query)
    try:
        statements = sqlglot.parse(query, dialect="duckdb")
    except (SqlglotError, RecursionError) as exc:
        raise _unreadable(f"{why_unreadable(exc)}.") from exc
    statement = statements[0]
    writing = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Copy)
    asking = (exp.Query, exp.Values, exp.Describe, exp.Summarize)
    if not isinstance(statement, asking) or any(True for _ in statement.find_all(*writing)):
        raise _no_select()
    return statement


def check_tables(names: Collection[str]) -> None:
    """Check that DuckDB, which ignores case, can distinguish the tables of a query.

    Raises:
        InvalidInputError: Two names differ only in case.
    """
    alike = find_alike(names)
    if alike is not None:
        raise InvalidInputError(
            f"DuckDB cannot distinguish {alike[0]!r} and {alike[1]!r}.",
            hint="Query one of them at a time, and spell its name the same each time.",
        )


def _name(table: Any) -> str:
    """Return the name of a table; empty for a table function."""
    from sqlglot import exp

    return str(table.name) if isinstance(table.this, exp.Identifier) else ""


def _check_kind(query: str) -> None:
    """Check, before any other step, that DuckDB parses a text as a single SELECT.

    Raises:
        InvalidInputError: It does not.
    """
    import duckdb

    if not is_unicode(query):
        raise _unreadable("it has bytes that are not UTF-8.")
    try:
        kinds = [statement.type for statement in duckdb.extract_statements(query)]
    except duckdb.Error as exc:
        raise _unreadable(_first_paragraph(exc)) from exc
    if kinds == [duckdb.StatementType.EXPLAIN]:
        raise _no_select("To see which files a condition reads, use `explain`.")
    if kinds != [duckdb.StatementType.SELECT]:
        raise _no_select()


def _no_select(
    hint: str = "Statements such as MERGE, UPDATE and INSERT stand alone; docs/sql.md lists them.",
) -> InvalidInputError:
    return InvalidInputError("Only a single SELECT is allowed here.", hint=hint)


def _unreadable(reason: str, hint: str = "Write one SELECT for DuckDB.") -> InvalidInputError:
    return InvalidInputError(f"The SQL cannot be read: {reason}", hint=hint)


def _first_paragraph(error: Exception) -> str:
    """Return the text of an error as a sentence, without the excerpt of the query below it."""
    text = " ".join(str(error).strip().partition("\n\n")[0].split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
