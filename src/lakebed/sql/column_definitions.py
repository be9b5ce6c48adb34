"""Columns of CREATE TABLE and ALTER TABLE as fields, and partitions as functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError
from lakebed.model.formulas.type_names import find_plain_type
from lakebed.model.partition.function import field_text
from lakebed.model.schema import (
    MISSING,
    Field,
    ListOf,
    MapOf,
    Struct,
    Type,
    check_map_key,
)
from lakebed.model.sql_dialect import to_text
from lakebed.sql.refusals import refused, shown_sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlglot import expressions as exp


def field_of(column: exp.ColumnDef, spark: SparkSession | None = None) -> Field:
    """Return the field of the definition of a column.

    Args:
        column: The definition.
        spark: The session that the statement came with; None for none.

    Raises:
        InvalidInputError: A type or a constraint is not supported.
    """
    from sqlglot import exp

    if column.args.get("kind") is None:
        raise refused(f"column {column.name} without a type", f"Write {column.name} STRING.")
    if isinstance(column.this, exp.Dot):
        raise refused(
            f"column {shown_sql(column.this)}, a part of a record", "Give the whole record a type."
        )
    kind = type_of(column.args["kind"])
    nullable, doc = True, ""
    default: object = MISSING
    for constraint in column.args.get("constraints") or ():
        match constraint.kind:
            case exp.NotNullColumnConstraint():
                nullable = bool(constraint.kind.args.get("allow_null"))
            case exp.CommentColumnConstraint():
                doc = constraint.kind.name
            case exp.DefaultColumnConstraint():
                default = _default(constraint.kind.this, kind, column.name, spark)
            case _:
                raise refused(
                    f"{shown_sql(constraint)} of column {column.name!r}",
                    "Columns take NOT NULL, DEFAULT and COMMENT; checks are declared by ALTER TABLE t "
                    "ADD CONSTRAINT name CHECK (condition).",
                )
    if column.args.get("position") is not None:
        raise refused("FIRST or AFTER", "Leave it out: a new column is the last one.")
    return Field(name=column.name, type=kind, nullable=nullable, default=default, doc=doc)


def _default(node: exp.Expr, kind: Type, name: str, spark: SparkSession | None) -> object:
    from sqlglot import exp

    from lakebed.model.sql_predicates import read_literal
    from lakebed.sql.session_meaning import SessionMeaning
    from lakebed.sql.statement_columns import Sides

    if isinstance(node, exp.Null):
        return None
    if node.find(exp.CurrentDate, exp.CurrentTimestamp) is not None:
        raise refused(
            f"default {shown_sql(node)}, whose value changes", "Give the value with each row."
        )
    node = SessionMeaning(spark, Sides("", ()), {}).value(node, kind, is_lasting=True)
    return read_literal(node, to_text(node), {name: kind}, name)


def type_of(node: exp.DataType) -> Type:
    """Return the type that SQL text names.

    Raises:
        InvalidInputError: Fields have no such type.
    """
    from sqlglot import exp

    names = exp.DataType.Type
    parts = node.expressions
    match node.this:
        case names.ARRAY | names.LIST if len(parts) == 1:
            return ListOf(type_of(parts[0]))
        case names.MAP if len(parts) == 2:
            return MapOf(type_of(parts[1]), key=check_map_key(type_of(parts[0]), to_text(node)))
        case names.STRUCT if parts:
            return Struct(tuple(field_of(part) for part in parts))
    kind = find_plain_type(node)
    if kind is None:
        raise refused(
            f"type {_type_name(node)}",
            "Types are BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, "
            "BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, ARRAY<…>, MAP<…, …> and STRUCT<…>.",
        )
    return kind


def _type_name(node: exp.DataType) -> str:
    """Return a type as text; sqlglot writes some names without arguments as STRING or TIMESTAMP."""
    from sqlglot import exp

    is_plain = isinstance(node.this, exp.DataType.Type) and not node.expressions
    text = str(node.this.value) if is_plain else to_text(node)
    if node.expressions and text.isidentifier():
        return f"{text}({', '.join(map(to_text, node.expressions))})"
    return text


_TIMES = {
    "year": "years",
    "years": "years",
    "month": "months",
    "months": "months",
    "date": "days",
    "day": "days",
    "days": "days",
    "hour": "hours",
    "hours": "hours",
}


def partitions_of(nodes: list[Any]) -> str:
    """Return the partitions of PARTITIONED BY in the short form of Lakebed.

    Raises:
        InvalidInputError: A transform has no counterpart.
    """
    return ", ".join(map(_partition_of, nodes))


def _partition_of(node: Any) -> str:
    from sqlglot import exp

    match node:
        case exp.Identifier() | exp.Column():
            return _path_of(node)
        case exp.PartitionedByBucket():
            buckets, column = node.expression, node.this
            if isinstance(column, exp.Literal):
                buckets, column = column, buckets
            return f"bucket({buckets.name}, {_path_of(column)})"
        case exp.ColumnDef():
            raise refused(
                f"PARTITIONED BY ({to_text(node)}), which declares a column",
                "Declare the column among the others, and name it here.",
            )
    name = type(node).__name__.lower() if not isinstance(node, exp.Anonymous) else node.name.lower()
    columns = [*node.find_all(exp.Column)]
    function = _TIMES.get(name)
    if function is None or len(columns) != 1:
        raise InvalidInputError(
            f"Cannot partition by {shown(to_text(node))}.",
            hint="Write a column, years(ts), months(ts), days(ts), hours(ts) or bucket(8, id); for other "
            "functions create the dataset in Python, with partition_by.",
        )
    return f"{function}({_path_of(columns[0])})"


def _path_of(column: Any) -> str:
    """Return a column as partitions name it: a part of a record by dots."""
    parts = getattr(column, "parts", None) or [column]
    return field_text(".".join(part.name for part in parts))
