"""Changes of a table by ALTER TABLE, as edits of a descriptor."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from typing import Any

from lakebed.errors import InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.schema import MISSING, Field
from lakebed.model.spark_types import schema_from_spark
from lakebed.spark.catalog.columns import constant_of
from lakebed.spark.catalog.lake_tables import VERSION_PROPERTY
from lakebed.spark.catalog.session_jvm import Jvm
from lakebed.spark.catalog.table_constraints import with_constraint

# Properties that Spark itself gives to a table.
OF_SPARK = frozenset(
    (
        *("provider", "owner", "location", "is_managed_location", "external", "table_type"),
        *("collation", "format", VERSION_PROPERTY),
    )
)


def with_changes(jvm: Jvm, old: DatasetDescriptor, changes: Iterable[Any]) -> DatasetDescriptor:
    """Return a descriptor with the changes of a statement.

    Args:
        jvm: The JVM of the session.
        old: The descriptor.
        changes: Changes as Spark's JVM has them.

    Raises:
        InvalidInputError: A change has no counterpart.
    """
    for change in changes:
        old = _with_change(jvm, old, change)
    return old


def _with_change(jvm: Jvm, old: DatasetDescriptor, change: Any) -> DatasetDescriptor:
    kind = str(change.getClass().getSimpleName())
    match kind:
        case "SetProperty" if change.property() in OF_SPARK:
            raise InvalidInputError(
                f"ALTER TABLE: the {change.property()} of a dataset cannot be set.",
                hint="A dataset stays in its repository. Leave the statement out.",
            )
        case "SetProperty":
            properties = {**old.properties, change.property(): change.value()}
            return dataclasses.replace(old, properties=properties)
        case "RemoveProperty":
            gone = change.property()
            properties = {name: text for name, text in old.properties.items() if name != gone}
            return dataclasses.replace(old, properties=properties)
        case "AddConstraint":
            return with_constraint(jvm, old, change.constraint(), "ALTER TABLE")
        case "DropConstraint" if change.ifExists() and change.name() not in old.checks:
            return old
        case "DropConstraint":
            return old.without_check(str(change.name()))
    path = list(change.fieldNames()) if "Column" in kind else []
    if len(path) == 1:
        name = str(path[0])
        match kind:
            case "AddColumn" if change.position() is None:
                return _with_fields(old, (*old.schema.fields, _added(jvm, name, change)))
            case "DeleteColumn":
                return old.drop_field(name)
            case "RenameColumn":
                return old.rename_field(name, str(change.newName()))
            case "UpdateColumnType":
                type_ = _field(jvm, name, change.newDataType()).type
                return _replaced(old, name, type=type_)
            case "UpdateColumnComment":
                return _replaced(old, name, doc=str(change.newComment()))
            case "UpdateColumnNullability":
                return _replaced(old, name, nullable=bool(change.nullable()))
    of = f" of {'.'.join(map(str, path))}" if path else ""
    raise InvalidInputError(
        f"ALTER TABLE: the catalog does not take {kind}{of}.",
        hint="A new column is a plain one, and the last. For other changes call Dataset.evolve.",
    )


def _added(jvm: Jvm, name: str, change: Any) -> Field:
    field = _field(jvm, name, change.dataType())
    default = change.defaultValue()
    value = None if default is None else constant_of(jvm, default, name, change.dataType())
    return dataclasses.replace(
        field,
        nullable=bool(change.isNullable()),
        default=MISSING if value is None else value,
        doc=str(change.comment() or ""),
    )


def _field(jvm: Jvm, name: str, type_: Any) -> Field:
    struct = jvm.sql.types.StructType().add(name, type_, True)  # noqa: FBT003 - Spark's signature
    return schema_from_spark(json.loads(struct.json())).fields[0]


def _replaced(old: DatasetDescriptor, name: str, **parts: Any) -> DatasetDescriptor:
    old.schema.get(name)  # raises an error that names it
    return _with_fields(
        old,
        [
            dataclasses.replace(field, **parts) if field.name == name else field
            for field in old.schema
        ],
    )


def _with_fields(old: DatasetDescriptor, fields: Sequence[Field]) -> DatasetDescriptor:
    schema = dataclasses.replace(old.schema, fields=tuple(fields))
    return dataclasses.replace(old, schema=schema)
