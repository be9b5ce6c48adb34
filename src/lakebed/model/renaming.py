"""Names of fields and of the columns that hold them in data files, which differ after a rename.

A rename changes the name of a field. Data files, statistics, indices and the schema file of plateau
keep the name with which the field was added, its stored name. So two schemas of a dataset have the
same field if its stored name is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.errors import InvalidInputError, PartitionSpecError, SchemaMismatchError
from lakebed.model import publishing
from lakebed.model.kite_forms import MAPPING
from lakebed.model.names import check_field_name
from lakebed.model.partition import PartitionFunction, PartitionStrategy
from lakebed.model.predicate import Formula, Leaf, Predicate, map_leaves
from lakebed.model.schema import Field, Schema, Type, dotted_types, path_of
from lakebed.model.sql_predicates import with_columns

if TYPE_CHECKING:
    from lakebed.model.descriptor import DatasetDescriptor

# Their tables show the columns of data files by name.
_BY_STORED_NAME = ("delta", "hive")


def with_field_renamed(descriptor: DatasetDescriptor, old: str, new: str) -> DatasetDescriptor:
    """Return a descriptor with a renamed field; see `DatasetDescriptor.rename_field`."""
    schema = descriptor.schema
    if old not in schema and old in dotted_types(schema):
        raise InvalidInputError(
            f"{old!r} lies in a record, and only top-level fields can be renamed.",
            hint="Rename the record, or add a field of the new name to it.",
        )
    field = schema.get(old)
    if old == new:
        return descriptor
    _check_can_be_renamed(descriptor, old, new)
    check_field_name(new)
    if new in schema:
        raise SchemaMismatchError(
            f"Field {old!r} cannot be renamed to {new!r}: there is such a field.",
            hint=f"Choose another name, or rename or remove {new!r} first.",
        )
    if new in descriptor.partition_types:
        raise PartitionSpecError(
            f"Field {old!r} cannot be renamed to {new!r}: a partition field has that name.",
            hint="Choose another name.",
        )
    named = replace(field, name=new, stored_as=field.stored_name)
    fields = tuple(named if one.name == old else one for one in schema)
    return _with_names(descriptor, Schema(fields=fields, name=schema.name), {old: new})


def _check_can_be_renamed(descriptor: DatasetDescriptor, old: str, new: str) -> None:
    """Check that a field may have another name than its column.

    Raises:
        InvalidInputError: It may not; the message names the reason.
    """
    if any(not one.stores_source and one.source == old for one in descriptor.partition_by):
        raise PartitionSpecError(
            f"Field {old!r} cannot be renamed to {new!r}: only the names of directories hold it.",
            hint="Add a field of the new name, and fill it with update_rows.",
        )
    if descriptor.format == "submissions":
        raise InvalidInputError(
            f"Field {old!r} cannot be renamed to {new!r}: the documents of submissions hold its name.",
            hint="Add a field of the new name.",
        )
    if f'"{old}"' in descriptor.properties.get(MAPPING, ""):
        raise InvalidInputError(
            f"Field {old!r} cannot be renamed to {new!r}: the property {MAPPING!r} names it.",
            hint="Remove the property, or the field from it.",
        )


def check_columns_apart(schema: Schema, names: Iterable[str]) -> None:
    """Check that no partition field has the name of a column that holds a renamed field.

    Raises:
        PartitionSpecError: One has: the value in the path would pass for that of the column.
    """
    for name in names if schema.is_renamed else ():
        field = schema.find_stored(name)
        if field is not None and field.name != name:
            raise PartitionSpecError(
                f"Partition field {name!r} has the name of the column that holds {field.name!r} in "
                "data files.",
                hint="Give it another name.",
            )


def check_renames(old: DatasetDescriptor, new: DatasetDescriptor) -> None:
    """Check the renames of an update, and that no table must be published that cannot show them.

    Args:
        old: The current descriptor.
        new: The new descriptor, with stored names.

    Raises:
        InvalidInputError: A field cannot be renamed, or a property asks for such a table.
    """
    for before, after in renames(old.schema, new.schema).items():
        _check_can_be_renamed(old, before, after)
    if not new.schema.is_renamed:
        return
    for target in publishing.targets(new.properties):
        if target.kind in _BY_STORED_NAME:
            raise unable_to_show(new.schema, target.kind.capitalize())


def unable_to_show(schema: Schema, table: str) -> InvalidInputError:
    """Return the error for a table whose readers find columns by their names in data files."""
    field = next(field for field in schema if field.stored_name != field.name)
    return InvalidInputError(
        f"{table} cannot show the renamed field {field.name!r}: its readers find columns by name, "
        f"and data files hold it as {field.stored_name!r}.",
        hint=f"Rename it back to {field.stored_name!r}, or publish to Iceberg, which can.",
    )


def check_shown_by_stored_name(schema: Schema, table: str) -> None:
    """Check that a table whose readers find columns by name can show a schema.

    Raises:
        InvalidInputError: A field was renamed.
    """
    if schema.is_renamed:
        raise unable_to_show(schema, table)


def renames(old: Schema, new: Schema) -> dict[str, str]:
    """Return the new names of renamed fields by their old ones."""
    found = ((field.name, new.find_stored(field.stored_name)) for field in old)
    return {name: now.name for name, now in found if now is not None and now.name != name}


def schema_named_as(old: Schema, new: Schema) -> Schema:
    """Return an earlier schema with the names that its fields have in a later one.

    A field that the later schema lacks keeps its name, unless another one has it now.
    """
    names = _names_in(old, new)
    if not names:
        return old
    fields = (
        replace(field, name=names.get(field.name, field.name), stored_as=field.stored_name)
        for field in old
    )
    plain = tuple(_stored_as(field, field.stored_name) for field in fields)
    return Schema(fields=plain, name=old.name)


def named_as(old: DatasetDescriptor, new: Schema) -> DatasetDescriptor:
    """Return an earlier descriptor with the names that its fields have in a later schema."""
    names = _names_in(old.schema, new)
    return _with_names(old, schema_named_as(old.schema, new), names) if names else old


def _names_in(old: Schema, new: Schema) -> dict[str, str]:
    """Return the names in a later schema by those in an earlier one, without equal ones."""
    names = renames(old, new)
    if not names and not new.is_renamed and not old.is_renamed:
        return {}
    taken = {*new.names, *(name for name in old.names if name not in names)}
    for field in old:
        if new.find_stored(field.stored_name) is None and field.name in new:
            names[field.name] = _unused(f"{field.name}_removed", taken)
            taken.add(names[field.name])
    return names


def _with_names(
    descriptor: DatasetDescriptor, schema: Schema, names: Mapping[str, str]
) -> DatasetDescriptor:
    """Return a descriptor of a schema whose fields have new names, given by their former ones."""
    functions = tuple(
        _with_source(function, names, descriptor.schema) for function in descriptor.partition_by
    )
    return replace(
        descriptor,
        schema=schema,
        partition_by=PartitionStrategy(functions),
        index=tuple(names.get(name, name) for name in descriptor.index),
        checks={name: check.renamed(names) for name, check in descriptor.checks.items()},
    )


def _with_source(
    function: PartitionFunction, names: Mapping[str, str], schema: Schema
) -> PartitionFunction:
    source = function.source
    root, dot, inner = (source, "", "") if source in schema else source.partition(".")
    return replace(function, source=f"{names[root]}{dot}{inner}") if root in names else function


def stored_path(column: str, types: Mapping[str, Type], schema: Schema) -> str:
    """Return a column, nested ones by dots, under the name that data files have for its field.

    Args:
        column: Name of the column, as in conditions.
        types: Types of at least the fields.
        schema: The schema with stored names.
    """
    root, *inner = path_of(column, types)
    return ".".join((schema.stored_name(root), *inner))


def with_stored_columns(
    predicate: Predicate, types: Mapping[str, Type], schema: Schema
) -> Predicate:
    """Return a condition on the columns of data files; see `stored_path`."""

    def change(leaf: Leaf) -> Predicate:
        return replace(leaf, column=stored_path(leaf.column, types, schema))

    def change_formula(formula: Formula) -> Predicate:
        stored = {name: stored_path(name, types, schema) for name in formula.columns}
        return with_columns(formula, stored)

    return map_leaves(predicate, change, change_formula) if schema.is_renamed else predicate


def without_stored_names(descriptor: DatasetDescriptor) -> DatasetDescriptor:
    """Return the descriptor for a new dataset, whose files have the present names."""
    if all(field.stored_as is None for field in descriptor.schema):
        return descriptor
    fields = tuple(replace(field, stored_as=None) for field in descriptor.schema)
    return replace(descriptor, schema=Schema(fields=fields, name=descriptor.schema.name))


def with_stored_names(new: DatasetDescriptor, old: DatasetDescriptor) -> DatasetDescriptor:
    """Return a new descriptor of a dataset with the stored name of each field.

    A field that names the column of a current field is that field; so is one with its name. Others
    are new: their column is named like the field, unless data files hold another field by that name.

    Args:
        new: The new descriptor, as the user gave it.
        old: The current descriptor, with stored names.
    """
    own = old.schema
    stored: dict[str, str] = {
        field.name: field.stored_as
        for field in new.schema
        if field.stored_as is not None and own.find_stored(field.stored_as) is not None
    }
    if len(set(stored.values())) < len(stored):
        raise _claimed_twice(stored)
    claimed = set(stored.values())
    for field in new.schema:
        known = own.find(field.name)
        if field.name not in stored and known is not None and known.stored_name not in claimed:
            stored[field.name] = known.stored_name
            claimed.add(known.stored_name)
    taken = {*claimed, *(field.stored_name for field in own), *new.partition_types}
    for field in new.schema:
        if field.name not in stored:
            stored[field.name] = _unused(field.name, taken - {*_paths(new)})
            taken.add(stored[field.name])
    fields = tuple(_stored_as(field, stored[field.name]) for field in new.schema)
    if fields == new.schema.fields:
        return new
    return replace(new, schema=Schema(fields=fields, name=new.schema.name))


def _paths(descriptor: DatasetDescriptor) -> Iterable[str]:
    """Return the fields that only the names of directories hold."""
    return (one.source for one in descriptor.partition_by if not one.stores_source)


def _stored_as(field: Field, stored: str) -> Field:
    return replace(field, stored_as=None if stored == field.name else stored)


def _claimed_twice(stored: Mapping[str, str]) -> SchemaMismatchError:
    columns = list(stored.values())
    twice = next(column for column in columns if columns.count(column) > 1)
    names = " and ".join(repr(name) for name, column in stored.items() if column == twice)
    return SchemaMismatchError(
        f"Fields {names} are both the column {twice!r} of data files.",
        hint="A column is one field: remove lakebed.stored_as from the other one.",
    )


def _unused(name: str, taken: Collection[str]) -> str:
    """Return the name, or one made of it that is not taken."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate
