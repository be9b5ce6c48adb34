"""Expressions over the rows of a batch, computed by DuckDB."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.common.shown import shown
from lakebed.errors import PredicateError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.compiler import column_sql, condition_of
from lakebed.model.formulas.macros import MACROS
from lakebed.model.formulas.number_texts import number_text
from lakebed.model.formulas.row_functions import ROW_FUNCTIONS, RowFunction
from lakebed.model.formulas.typed import TEXT, Typed, common_type, duck_text
from lakebed.model.predicate import Formula, Predicate, formulas_of
from lakebed.model.schema import Type
from lakebed.model.values import Scalar

if TYPE_CHECKING:
    import duckdb

# Expressions read no files and no objects of this process, and load nothing.
_SETTINGS: Final[dict[str, str | bool | int | float | list[str]]] = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "threads": "1",
    # They leave out parts that would raise: `-x < 5` is true for the least number, whose negation
    # is an error, and `1 / x * NULL` is NULL.
    "disabled_optimizers": "expression_rewriter,statistics_propagation",
}
_ROWS = "rows_of_a_batch"


def with_truths(batch: pa.RecordBatch, predicate: Predicate) -> pa.RecordBatch:
    """Return a batch with a column for each formula of a predicate, which holds its truth.

    Raises:
        PredicateError: See `evaluate`.
    """
    formulas = formulas_of(predicate)
    columns = {name: column_at(batch, name) for formula in formulas for name in formula.columns}
    truths = evaluate([condition_of(f) for f in formulas], columns, batch.num_rows)
    for formula, truth in zip(formulas, truths, strict=True):
        batch = batch.append_column(formula.name, truth)
    return batch


def column_at(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column by name; a nested one by its dotted name."""
    if name in batch.schema.names:
        return batch.column(name)
    root, *inner = name.split(".")
    return pc.struct_field(batch.column(root), inner)


def truths_of_rows(
    formula: Formula, columns: Sequence[str], rows: Sequence[tuple[Scalar, ...]]
) -> list[bool | None]:
    """Return for each row of values of some columns whether a formula is true, or unknown."""
    types, arrays = dict(formula.types), {}
    for place, name in enumerate(columns):
        if name in types:
            arrays[name] = pa.array([row[place] for row in rows], type_to_arrow(types[name]))
    truths: list[bool | None] = evaluate([condition_of(formula)], arrays, len(rows))[0].to_pylist()
    return truths


def evaluate(
    expressions: Sequence[str], columns: Mapping[str, pa.Array], row_count: int = 1
) -> list[pa.Array]:
    """Return the values of expressions for each row.

    Args:
        expressions: Expressions of DuckDB, as the compiler writes them.
        columns: The columns that they name, all of one length.
        row_count: Number of rows, if there are no columns.

    Raises:
        PredicateError: A value is an error, such as a division by zero, or a text in the place of a number.

    Cost:
        About a millisecond, and 10 to 30 ns a row for plain functions.
    """
    import duckdb

    read = {column_sql(name): _readable(column) for name, column in columns.items()}
    table = pa.table(read or {"nothing": pa.nulls(row_count, pa.bool_())})
    selected = ", ".join(f"{text} AS r{number}" for number, text in enumerate(expressions))
    with _cursor() as cursor:
        cursor.register(_ROWS, table)
        try:
            result = cursor.sql(f"SELECT {selected} FROM {_ROWS}").to_arrow_table()
        except duckdb.Error as exc:
            raise PredicateError(
                f"A row has a value that the expression cannot take: {_reason(exc)}.",
                hint="Leave such rows out by a condition before it, or use try_cast and CASE.",
            ) from exc
        finally:
            cursor.unregister(_ROWS)
    return [column.combine_chunks() for column in result.columns]


def check_text(text: str, types: Iterable[Type]) -> None:
    """Check that a text can be read as a value of the types that it is compared with.

    Raises:
        PredicateError: It cannot: no row could be compared with it.
    """
    for kind in types:
        _check(text, kind)


@lru_cache(maxsize=256)
def _check(text: str, kind: Type) -> None:
    wanted = common_type(TEXT, kind)
    if wanted not in (None, TEXT):
        evaluate([cast(Typed(sql=duck_text(text), type=TEXT), wanted).sql], {})


def _reason(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return shown(text.partition("Error: ")[2] or text)[1:-1].rstrip(".!")


def _readable(column: pa.Array) -> pa.Array:
    """Return a column in a type that DuckDB reads as it is; instants as clocks of UTC."""
    kind = _plain_type(column.type)
    return column if kind == column.type else column.cast(kind)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


_lock = threading.Lock()


@contextlib.contextmanager
def _cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    with _lock:
        cursor = _connection().cursor()
    try:
        yield cursor
    finally:
        cursor.close()


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    import duckdb
    from duckdb.func import FunctionNullHandling, PythonUDFType

    connection = duckdb.connect(config=_SETTINGS)
    atexit.register(connection.close)
    for function in (
        RowFunction("upper", ("VARCHAR",), "VARCHAR", str.upper),
        RowFunction("lower", ("VARCHAR",), "VARCHAR", str.lower),
        RowFunction("double_text", ("DOUBLE",), "VARCHAR", number_text),
        RowFunction("float_text", ("REAL",), "VARCHAR", _text_of_float),
        *ROW_FUNCTIONS,
    ):
        connection.create_function(
            f"lakebed_{function.name}",
            function.of_columns(),
            [duckdb.sqltype(kind) for kind in function.takes],
            duckdb.sqltype(function.gives),
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    connection.execute(MACROS)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _text_of_float(value: float) -> str:
    import numpy as np

    return number_text(value, str(np.float32(value)))
