"""CREATE, ALTER and DROP TABLE, SHOW TABLES and DESCRIBE as SQL text."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.checks import condition
from lakebed.commit import Commit, as_dry_run
from lakebed.dataset import Dataset
from lakebed.errors import DatasetExistsError, InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import Field, Schema
from lakebed.model.sql_dialect import to_text
from lakebed.sql.column_definitions import field_of, partitions_of, type_of
from lakebed.sql.lake_access import SqlLake, StatementOrder
from lakebed.sql.refusals import check_parts, refused, shown_sql
from lakebed.sql.session_meaning import SessionMeaning, column_types_of
from lakebed.sql.statement_columns import Sides, in_terms_of_target, target_name
from lakebed.sql.statement_source import QuerySource, check_distinguished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from sqlglot import expressions as exp

_FORMATS = ("PARQUET", "LAKEBED")


def create(order: StatementOrder, tree: exp.Create) -> Dataset | Commit:
    """Carry out a CREATE TABLE, with or without a query.

    Returns:
        The dataset; with a query the commit of its first rows.

    Raises:
        InvalidInputError: A form of it is not supported; the hint names another one.
        SchemaMismatchError: Two columns have names that differ in case only.
        DatasetExistsError: The name is taken.
    """
    from sqlglot import exp

    name, _ = target_name(tree.this, "CREATE TABLE")
    if tree.args.get("replace"):
        raise refused(
            "CREATE OR REPLACE TABLE",
            "Write DROP TABLE and CREATE TABLE; or INSERT OVERWRITE, which keeps the history.",
        )
    options = _options_of(tree)
    query = tree.args.get("expression")
    if query is None:
        if not isinstance(tree.this, exp.Schema):
            raise refused("CREATE TABLE without columns", "Give columns, or AS SELECT.")
        return _created(order, name, tree, options)
    if isinstance(tree.this, exp.Schema):
        raise refused("CREATE TABLE with columns and AS SELECT", "Leave one of them out.")
    if order.lake.exists(name):
        if tree.args.get("exists"):
            return order.lake.open(name)
        raise DatasetExistsError(
            f"There is a dataset {name!r} already.", hint="Choose another name, or INSERT INTO it."
        )
    source = QuerySource(order, query)
    try:
        columns = source.columns()
        check_distinguished("the query", columns)
        rows = source.rows(query, {}, columns)
        lake = order.lake._on_dry_run() if order.is_dry_run else order.lake
        if order.is_dry_run and order.spark is not None:
            rows = rows.toArrow()
        commit = lake._write_new(name, rows, options, order.run)
        return as_dry_run(commit, lake.store) if order.is_dry_run else commit  # type: ignore[arg-type]  # of a dry run
    finally:
        source.close()


def _created(
    order: StatementOrder, name: str, tree: exp.Create, options: dict[str, Any]
) -> Dataset:
    from sqlglot import exp

    fields = []
    for column in tree.this.expressions:
        if not isinstance(column, exp.ColumnDef):
            raise refused(
                f"{shown_sql(column)} in CREATE TABLE",
                "Give columns alone; checks are declared by ALTER TABLE t ADD CONSTRAINT.",
            )
        fields.append(field_of(column, order.spark))
    check_distinguished("the table", [field.name for field in fields])
    lake = order.lake._on_dry_run() if order.is_dry_run else order.lake
    if tree.args.get("exists") and lake.exists(name):
        return lake.open(name)
    return lake.create(name, Schema(fields=tuple(fields), name=_record(name)), **options)


def _record(name: str) -> str:
    """Return a name of the record that Avro accepts."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def _options_of(tree: exp.Create) -> dict[str, Any]:
    """Return the options of a new dataset."""
    from sqlglot import exp

    options: dict[str, Any] = {}
    given = tree.args.get("properties")
    properties: dict[str, str] = {}
    for part in [] if given is None else given.expressions:
        match part:
            case exp.FileFormatProperty() if part.name.upper() in _FORMATS:
                continue
            case exp.FileFormatProperty():
                raise refused(
                    f"USING {part.name}",
                    "Leave it out: a dataset can be published as Delta or Iceberg by the property "
                    "of its publication, see docs/delta-iceberg.md.",
                )
            case exp.PartitionedByProperty():
                options["partition_by"] = partitions_of(part.this.expressions)
            case exp.SchemaCommentProperty():
                raise refused(
                    "COMMENT of a table", "Give it as a property: TBLPROPERTIES ('comment' = …)."
                )
            case exp.Property() if type(part) is exp.Property:
                properties[part.name] = part.args["value"].name
            case _:
                raise refused(
                    f"{shown_sql(part)} in CREATE TABLE",
                    "Write columns, PARTITIONED BY, TBLPROPERTIES and AS SELECT alone; a dataset "
                    "lies in its repository.",
                )
    if properties:
        options["properties"] = properties
    return options


def alter(order: StatementOrder, tree: exp.Alter) -> Commit:
    """Carry out an ALTER TABLE, as one change of the descriptor.

    Raises:
        InvalidInputError: A form of it is not supported; the hint names another one.
        SchemaMismatchError: A field is unknown, or the new schema cannot read the rows.
    """
    name, _ = target_name(tree.this, "ALTER TABLE")
    known = ("this", "kind", "exists", "actions")
    check_parts(tree, known, "Write one action, such as ADD COLUMN x STRING.")
    dataset = order.lake.open(name)
    edits = [edit for action in tree.args["actions"] for edit in _edits(order, dataset, action)]

    def edited(old: DatasetDescriptor) -> DatasetDescriptor:
        new = old
        for edit in edits:
            new = edit(new)
        if not set(new.schema.names) <= set(old.schema.names):
            check_distinguished("the table", new.schema.names)
        return new

    return dataset.evolve(edited, dry_run=order.is_dry_run)


_Edit = Callable[[DatasetDescriptor], DatasetDescriptor]


def _edits(order: StatementOrder, dataset: Dataset, action: Any) -> list[_Edit]:
    from sqlglot import exp

    match action:
        case exp.ColumnDef():
            return [_adding(action, order.spark)]
        case exp.Schema():
            return [_adding(column, order.spark) for column in action.expressions]
        case exp.Drop() if action.args["kind"] in ("COLUMN", "COLUMNS") and not action.args.get(
            "exists"
        ):
            columns = action.args["tables"]
            if isinstance(columns[0], exp.Schema):
                columns = columns[0].expressions
            return [_dropping(_name_of(column)) for column in columns]
        case exp.RenameColumn():
            return [_renaming(_name_of(action.this), _name_of(action.args["to"]))]
        case exp.AlterColumn() if action.args.get("dtype") is not None:
            known = ("this", "dtype")
            check_parts(action, known, "Give the type alone; set values by UPDATE.")
            return [_widening(action.name, action.args["dtype"])]
        case exp.AlterSet() if action.expressions:
            return [_setting(action.expressions)]
        case exp.AddConstraint():
            return [_checking(order, dataset, constraint) for constraint in action.expressions]
    raise refused(
        f"ALTER TABLE … {to_text(action) if hasattr(action, 'sql') else action}",
        "Write ADD COLUMN, DROP COLUMN, RENAME COLUMN, ALTER COLUMN x TYPE …, SET TBLPROPERTIES or "
        "ADD CONSTRAINT name CHECK (condition); a dataset keeps its name and its partitions.",
    )


def _name_of(column: Any) -> str:
    """Return the name of a field that an action changes.

    Raises:
        InvalidInputError: It is a part of a record.
    """
    from sqlglot import exp

    if isinstance(column, exp.Dot) or (isinstance(column, exp.Column) and len(column.parts) > 1):
        raise refused(
            f"change of {shown_sql(column)}, a part of a record",
            "Change the record by `evolve` in Python, with a function of the old descriptor.",
        )
    return str(column.name)


def _adding(column: exp.ColumnDef, spark: SparkSession | None) -> _Edit:
    field = field_of(column, spark)
    return lambda old: old.add_field(
        field.name, _arrow(field), nullable=field.nullable, default=field.default, doc=field.doc
    )


def _arrow(field: Field) -> pa.DataType:
    from lakebed.model.arrow_types import type_to_arrow

    return type_to_arrow(field.type)


def _dropping(name: str) -> _Edit:
    return lambda old: old.drop_field(name)


def _renaming(old_name: str, new_name: str) -> _Edit:
    return lambda old: old.rename_field(old_name, new_name)


def _widening(name: str, dtype: exp.DataType) -> _Edit:
    kind = type_of(dtype)
    return lambda old: old.change_type(name, kind)


def _setting(nodes: list[Any]) -> _Edit:
    from sqlglot import exp

    pairs: dict[str, str] = {}
    for node in nodes:
        parts = node.expressions if isinstance(node, exp.Properties) else [node]
        for part in parts:
            if type(part) is not exp.Property:
                raise refused(f"SET {to_text(part)}", "Write SET TBLPROPERTIES ('a' = 'b').")
            pairs[part.name] = part.args["value"].name
    return lambda old: dataclasses.replace(old, properties={**old.properties, **pairs})


def _checking(order: StatementOrder, dataset: Dataset, constraint: Any) -> _Edit:
    from sqlglot import exp

    checks = [
        part for part in constraint.expressions if isinstance(part, exp.CheckColumnConstraint)
    ]
    if len(checks) != 1 or len(constraint.expressions) != 1:
        raise refused(constraint, "Write ADD CONSTRAINT name CHECK (condition).")
    node = checks[0].this
    if order.spark is not None:
        types = column_types_of(dataset)
        sides = Sides(dataset.name, types)
        meant = SessionMeaning(order.spark, sides, types).condition(node, is_lasting=True)
        node = in_terms_of_target(meant, sides, in_view=True)
    text = to_text(node)
    return lambda old: old.with_check(constraint.name, condition(text))


def drop(order: StatementOrder, tree: exp.Drop) -> bool:
    """Carry out a DROP TABLE; return whether there was something to drop.

    Raises:
        InvalidInputError: It drops several, or a part.
        DatasetNotFoundError: There is no such dataset.
    """
    tables = tree.args["tables"]
    if len(tables) != 1:
        raise refused("DROP of several tables", "Drop one after the other.")
    name, _ = target_name(tables[0], "DROP TABLE")
    if not order.is_dry_run:
        return order.lake.drop(name, if_missing="ignore" if tree.args.get("exists") else "error")
    if tree.args.get("exists") and not order.lake.exists(name):
        return False
    order.lake.open(name)
    return True


def tables_like(lake: SqlLake, pattern: str | None) -> pa.Table:
    """Return the names of the datasets that fit a pattern, such as `fl*|air*`, in a table."""
    names = lake.list()
    if pattern is not None:
        parts = [part.casefold() for part in pattern.split("|")]
        names = [n for n in names if any(fnmatch.fnmatchcase(n.casefold(), p) for p in parts)]
    return pa.table({"name": pa.array(names, pa.string())})


def history_of(dataset: Dataset, limit: int | None) -> pa.Table:
    """Return the commits of a dataset, the newest first."""
    commits = sorted(dataset.history(), key=lambda commit: commit.version, reverse=True)[:limit]
    names = (
        *("version", "committed_at", "operation", "run", "batch_id"),
        *("inserted_row_count", "updated_row_count", "deleted_row_count", "rewritten_row_count"),
    )
    kinds = [pa.int64(), pa.timestamp("us", "UTC"), pa.string(), pa.string(), *[pa.int64()] * 5]
    rows = [{name: getattr(commit, name) for name in names} for commit in commits]
    schema = pa.schema(list(zip(names, kinds, strict=True)))
    return pa.Table.from_pylist(rows, schema=schema)


def detail_of(dataset: Dataset) -> pa.Table:
    """Return facts of a dataset as one row."""
    files = dataset.files()
    descriptor = dataset.descriptor
    sizes = [file.size_bytes for file in files]
    row = {
        "name": dataset.name,
        "uri": dataset.uri,
        "version": dataset.version,
        "format": descriptor.format,
        "partition_by": [str(function) for function in descriptor.partition_by],
        "file_count": len(files),
        "row_count": dataset.count(),
        "size_bytes": None if None in sizes else sum(size for size in sizes if size is not None),
        "properties": json.dumps(dict(descriptor.properties)),
    }
    schema = pa.schema(
        [
            *(("name", pa.string()), ("uri", pa.string()), ("version", pa.int64())),
            *(("format", pa.string()), ("partition_by", pa.list_(pa.string()))),
            *(("file_count", pa.int64()), ("row_count", pa.int64()), ("size_bytes", pa.int64())),
            ("properties", pa.string()),
        ]
    )
    return pa.Table.from_pylist([row], schema=schema)


def columns_of(dataset: Dataset) -> pa.Table:
    """Return the columns of a dataset as rows, partition fields last."""
    descriptor = dataset.descriptor
    rows = [
        {"name": f.name, "type": str(f.type), "nullable": f.nullable, "comment": f.doc or None}
        for f in descriptor.schema
    ]
    own = set(descriptor.schema.names)
    rows += [
        {"name": name, "type": str(kind), "nullable": None, "comment": "partition field"}
        for name, kind in descriptor.partition_types.items()
        if name not in own
    ]
    schema = pa.schema(
        [("name", pa.string()), ("type", pa.string()), ("nullable", pa.bool_()),
         ("comment", pa.string())]
    )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=schema)


def check_limit(text: str | None) -> int | None:
    """Return the number of LIMIT.

    Raises:
        InvalidInputError: It is 0.
    """
    if text is None:
        return None
    if int(text) < 1:
        raise InvalidInputError("LIMIT is 0.", hint="Give a number from 1 on, or leave it out.")
    return int(text)
