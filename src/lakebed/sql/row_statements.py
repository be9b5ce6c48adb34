"""UPDATE, DELETE, TRUNCATE and INSERT as SQL text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from lakebed.commit import Commit
from lakebed.dataset import Dataset
from lakebed.errors import PredicateError, SchemaMismatchError
from lakebed.model.merging import OrderedClauses, RowClause
from lakebed.model.schema import Field
from lakebed.model.sql_dialect import to_text
from lakebed.sql.lake_access import StatementOrder
from lakebed.sql.merge_statement import (
    assignments,
    check_distinct,
    field_of,
    is_default,
    sources_of,
)
from lakebed.sql.refusals import check_parts, refused, shown_sql
from lakebed.sql.session_meaning import SessionMeaning, column_types_of
from lakebed.sql.statement_columns import Sides, in_terms_of_target, target_name
from lakebed.sql.statement_source import QuerySource
from lakebed.state.history import UPDATE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.view import View
    from lakebed.work.overwriting import Replacement


def update(order: StatementOrder, tree: exp.Update) -> Commit | None:
    """Carry out an UPDATE.

    Raises:
        InvalidInputError: A form of it is not supported; the hint names another one.
        PredicateError: The condition or a value cannot be read.
    """
    name, alias = target_name(tree.this, "UPDATE")
    check_parts(
        tree,
        ("this", "expressions", "where"),
        "Join by MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET …; choose rows by "
        "WHERE.",
    )
    dataset = order.lake.open(name)
    sides = _sides_of(dataset, alias)
    meaning = _meaning(order, dataset, sides)
    values: dict[str, object] = {
        field.name: to_text(in_terms_of_target(meaning.value(value, field.type), sides))
        for field, value in assignments(tree.expressions, sides, dataset.descriptor.schema)
    }
    where = tree.args.get("where")
    condition = None if where is None else meaning.condition(where.this)
    clause = RowClause(where=_paired(condition, sides), values=values)
    return _carried_out(order, dataset, clause, UPDATE_ROWS)


def delete(order: StatementOrder, tree: exp.Delete) -> Commit | None:
    """Carry out a DELETE.

    Raises:
        InvalidInputError: A form of it is not supported; the hint names another one.
        PredicateError: The condition cannot be read.
    """
    name, alias = target_name(tree.this, "DELETE")
    check_parts(
        tree,
        ("this", "where"),
        "Join by MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN DELETE; choose rows by WHERE.",
    )
    dataset = order.lake.open(name)
    sides = _sides_of(dataset, alias)
    where = tree.args.get("where")
    if where is None:
        return dataset.delete(dataset, run=order.run, dry_run=order.is_dry_run)
    condition = _meaning(order, dataset, sides).condition(where.this)
    try:
        doomed = dataset.where(_alone(condition, sides))
    except PredicateError:
        # Two columns may be compared, which a view does not do; else the error is raised again.
        clause = RowClause(where=_paired(condition, sides))
        return _carried_out(order, dataset, clause, "delete")
    return doomed.delete(run=order.run, dry_run=order.is_dry_run, spark=order.spark)


def truncate(order: StatementOrder, tree: exp.TruncateTable) -> Commit | None:
    """Delete all rows of a dataset.

    Raises:
        InvalidInputError: A form of it is not supported; the hint names another one.
    """
    if tree.args.get("partition") is not None or len(tree.expressions) != 1:
        raise refused(
            "TRUNCATE of a partition or of several tables", "Write DELETE FROM t WHERE …."
        )
    name, _ = target_name(tree.expressions[0], "TRUNCATE")
    dataset = order.lake.open(name)
    return dataset.delete(dataset, run=order.run, dry_run=order.is_dry_run)


def insert(order: StatementOrder, tree: exp.Insert) -> Commit | Replacement:
    """Carry out an INSERT.

    Raises:
        InvalidInputError: A form of it is not supported; the hint names another one.
        SchemaMismatchError: The columns do not fit.
    """
    _check_insert(tree)
    name, _ = target_name(tree.this, "INSERT")
    dataset = order.lake.open(name)
    query = _query_of(tree)
    source = QuerySource(order, query, name)
    try:
        fields = _fields_of(tree, dataset, source.columns())
        query, fields = _with_nulls(query, fields, dataset)
        names = [field.name for field in fields]
        rows = source.rows(query, {field.name: field.type for field in fields}, names)
        run, base, is_dry = order.run, source.base, order.is_dry_run
        whole: View = dataset
        condition = tree.args.get("where")
        if condition is not None:
            sides = _sides_of(dataset, name)
            condition = _meaning(order, dataset, sides).condition(condition)
            whole = dataset.where(_alone(condition, sides))
        elif tree.args.get("overwrite"):
            # Of the dataset itself an overwrite replaces the partitions of the rows.
            if not (len(dataset.descriptor.partition_by) and _is_dynamic(order.spark)):
                whole = dataset.where(dataset.constraint)
        else:
            return dataset.append(rows, run=run, base=base, dry_run=is_dry)
        if is_dry:
            return whole.overwrite(rows, run=run, base=base, dry_run=True)
        return whole.overwrite(rows, run=run, base=base)
    finally:
        source.close()


def _is_dynamic(spark: SparkSession | None) -> bool:
    """Return whether an overwrite in a session replaces only the partitions of the rows."""
    if spark is None:
        return False
    return (spark.conf.get("spark.sql.sources.partitionOverwriteMode") or "").lower() == "dynamic"


def _check_insert(tree: exp.Insert) -> None:
    table = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
    if table.args.get("partition") is not None:
        raise refused(
            "INSERT … PARTITION",
            "Give the columns of the partition in the SELECT; to replace one, write INSERT INTO t "
            "REPLACE WHERE x = … SELECT ….",
        )
    if tree.args.get("default"):
        raise refused("INSERT … DEFAULT VALUES", "Give the values: INSERT INTO t VALUES (…).")
    check_parts(
        tree,
        ("this", "expression", "source", "overwrite", "where", "by_name", "with_"),
        "Write MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *.",
    )


def _query_of(tree: exp.Insert) -> exp.Expr:
    """Return the query of an INSERT, with the queries that stand before it."""
    query: Any = tree.args.get("expression")
    if query is None and isinstance(tree.args.get("source"), exp.Table):
        query = exp.select("*").from_(tree.args["source"].copy())
    if isinstance(query, exp.Values):
        for row in query.expressions:
            if any(is_default(value) for value in getattr(row, "expressions", [row])):
                raise refused("DEFAULT in VALUES", "Leave the column out of the list of columns.")
        query = exp.select("*").from_(_named_values(query))
    if not isinstance(query, exp.Query):
        raise refused(
            f"INSERT of {shown_sql(query) if query is not None else 'nothing'}",
            "Write INSERT INTO t SELECT … or INSERT INTO t VALUES (…).",
        )
    with_ = tree.args.get("with_")
    if with_ is not None:
        query = query.copy()
        query.set("with_", with_.copy())
    whole: exp.Expr = query
    return whole


def _named_values(values: exp.Values) -> exp.Expr:
    own = values.copy()
    rows = [row if isinstance(row, exp.Tuple) else exp.Tuple(expressions=[row])
            for row in own.expressions]  # fmt: skip
    own.set("expressions", rows)
    columns = [exp.to_identifier(f"c{n}") for n in range(len(rows[0].expressions))]
    own.set("alias", exp.TableAlias(this=exp.to_identifier("given"), columns=columns))
    return own


def _fields_of(tree: exp.Insert, dataset: Dataset, columns: tuple[str, ...]) -> list[Field]:
    """Return the field of each column of the query."""
    schema = dataset.descriptor.schema
    sides = _sides_of(dataset, dataset.name)
    if isinstance(tree.this, exp.Schema):
        if tree.args.get("by_name"):
            raise refused("BY NAME beside a list of columns", "Leave one of them out.")
        fields = [field_of(column, sides, schema) for column in tree.this.expressions]
    elif tree.args.get("by_name"):
        fields = [field_of(exp.column(name), sides, schema) for name in columns]
    else:
        fields = list(schema)
    check_distinct([field.name for field in fields], "INSERT")
    if len(fields) != len(columns):
        raise SchemaMismatchError(
            f"The query has {len(columns)} columns, and {len(fields)} are inserted: "
            f"{', '.join(field.name for field in fields)}.",
            hint="Name the columns: INSERT INTO t (id, name) SELECT …, or INSERT INTO t BY NAME.",
        )
    return fields


def _with_nulls(
    query: exp.Expr, fields: list[Field], dataset: Dataset
) -> tuple[exp.Expr, list[Field]]:
    """Add the sources of partitions that the statement leaves out, which are null then."""
    descriptor = dataset.descriptor
    given = {field.name for field in fields}
    left = [descriptor.schema.get(name) for name in sorted(sources_of(descriptor) - given)]
    if not left:
        return query, fields
    inner = exp.Subquery(this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier("q")))
    nulls = [exp.alias_(exp.Null(), f"lakebed_null_{n}") for n in range(len(left))]
    return exp.select("*", *nulls).from_(inner), [*fields, *left]


def _carried_out(
    order: StatementOrder, dataset: Dataset, clause: RowClause, operation: str
) -> Commit | None:
    clauses = OrderedClauses(missing=(clause,))
    if order.is_dry_run:
        return dataset._dry_run(
            lambda dry: dry._merged([], clauses, run=order.run, operation=operation).commit
        )
    report = dataset._merged([], clauses, run=order.run, spark=order.spark, operation=operation)
    return report.commit


def _sides_of(dataset: Dataset, alias: str) -> Sides:
    descriptor = dataset.descriptor
    return Sides(alias, dict.fromkeys((*descriptor.schema.names, *descriptor.column_types)))


def _meaning(order: StatementOrder, dataset: Dataset, sides: Sides) -> SessionMeaning:
    return SessionMeaning(order.spark, sides, column_types_of(dataset))


def _paired(condition: exp.Expr | None, sides: Sides) -> str | None:
    """Return a condition with its columns as a merge names them."""
    return None if condition is None else to_text(in_terms_of_target(condition, sides))


def _alone(condition: exp.Expr, sides: Sides) -> str:
    """Return a condition with its columns as a view names them."""
    return to_text(in_terms_of_target(condition, sides, in_view=True))
