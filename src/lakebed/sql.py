"""Questions in SQL, which DuckDB answers over the datasets of a repository."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import (
    DatasetNotFoundError,
    InvalidInputError,
    MissingDependencyError,
    SchemaMismatchError,
)
from lakebed.model.names import find_alike
from lakebed.model.schema import Type, find_alike_fields

if TYPE_CHECKING:
    import duckdb

_EXTRA = "duckdb"
# Nothing that a question names may be found in this process, on disk, or in the network.
_SETTINGS = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def ask(query: str, open_table: Callable[[str], object]) -> pa.Table:
    """Return what DuckDB answers.

    Args:
        query: One SELECT; the tables that it names are asked for, and no others exist.
        open_table: Returns the rows of a name in a form that DuckDB reads.

    Raises:
        MissingDependencyError: DuckDB is not installed.
        InvalidInputError: It is no single SELECT, or DuckDB does not understand it.
        DatasetNotFoundError: There is no table of a name.
    """
    if importlib.util.find_spec("duckdb") is None:
        raise MissingDependencyError.for_extra("duckdb", _EXTRA, "SQL")
    import duckdb

    names = tables_of(query)
    missing: dict[str, DatasetNotFoundError] = {}
    with duckdb.connect(config=dict(_SETTINGS)) as connection:
        connection.execute("SET TimeZone = 'UTC'")  # as predicates are read
        for name in names:
            try:
                connection.register(name, open_table(name))
            except DatasetNotFoundError as exc:
                missing[name] = exc  # perhaps it is the name of a part of the question itself
        # From here on it can read what is registered, and nothing else; nor be told otherwise.
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        try:
            answer: pa.Table = connection.sql(query).to_arrow_table()
        except duckdb.CatalogException as exc:
            unknown = [missing[name] for name in missing if f"name {name} " in str(exc)]
            raise unknown[0] if unknown else _refused(exc) from exc
        except duckdb.Error as exc:
            raise _refused(exc) from exc
    return answer


def check_columns(name: str, types: Mapping[str, Type]) -> None:
    """Check that DuckDB tells the columns of a table apart, and the fields of records in them.

    It takes names that differ in case only for one, and answers from the first.

    Raises:
        SchemaMismatchError: It does not.
    """
    alike = find_alike_fields(types)
    if alike is not None:
        raise SchemaMismatchError(
            f"DuckDB does not tell the fields {alike[0]!r} and {alike[1]!r} of {name!r} apart.",
            hint="Ask by `where` and `select`, or by `lakebed query`, which tell them apart.",
        )


def _refused(error: duckdb.Error) -> InvalidInputError:
    return InvalidInputError(
        f"DuckDB does not answer: {_first_paragraph(error)}",
        hint="Tables are the datasets of the repository, by name; files cannot be named.",
    )


def tables_of(query: str) -> tuple[str, ...]:
    """Return the names of the tables that a question is about, and of its own parts.

    Raises:
        InvalidInputError: It is no single SELECT, or two names differ by their case only, in which
            DuckDB sees no difference.

    >>> tables_of("WITH late AS (FROM flights WHERE delay > 60) FROM late JOIN planes USING (id)")
    ('late', 'planes', 'flights')
    """
    # Where they are asked for: it takes a tenth of a second.
    import sqlglot
    from sqlglot import exp

    _check_kind(query)
    try:
        statements = sqlglot.parse(query, dialect="duckdb")
    except sqlglot.ParseError as exc:
        raise _unreadable(exc) from exc
    statement = statements[0]
    writing = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Copy)
    asking = (exp.Query, exp.Values, exp.Describe, exp.Summarize)
    if not isinstance(statement, asking) or any(True for _ in statement.find_all(*writing)):
        raise _no_select()
    names = dict.fromkeys(_name(table) for table in statement.find_all(exp.Table))
    names.pop("", None)
    alike = find_alike(names)
    if alike is not None:
        raise InvalidInputError(
            f"DuckDB does not tell {alike[0]!r} from {alike[1]!r}.",
            hint="Ask about one of them at a time, and write its name the same each time.",
        )
    return tuple(names)


def _name(table: Any) -> str:
    """Return the name of a table; empty for a function that gives one."""
    from sqlglot import exp

    return str(table.name) if isinstance(table.this, exp.Identifier) else ""


def _check_kind(query: str) -> None:
    """Check that a text is one SELECT to DuckDB, before anything else reads it.

    Raises:
        InvalidInputError: It is not.
    """
    import duckdb

    try:
        kinds = [statement.type for statement in duckdb.extract_statements(query)]
    except duckdb.Error as exc:
        raise _unreadable(exc) from exc
    if kinds == [duckdb.StatementType.EXPLAIN]:
        raise _no_select("Which files are read for a condition is told by explain().")
    if kinds != [duckdb.StatementType.SELECT]:
        raise _no_select()


def _no_select(
    hint: str = "To write, use append, overwrite, merge or delete.",
) -> InvalidInputError:
    return InvalidInputError("Only one SELECT can be asked; nothing is changed by SQL.", hint=hint)


def _unreadable(error: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"The SQL cannot be read: {_first_paragraph(error)}", hint="Write one SELECT for DuckDB."
    )


def _first_paragraph(error: Exception) -> str:
    """Return the text of an error as a sentence, without the picture of the place below it."""
    text = " ".join(str(error).strip().partition("\n\n")[0].split()) or type(error).__name__
    return text if text.endswith((".", "!", "?")) else f"{text}."
