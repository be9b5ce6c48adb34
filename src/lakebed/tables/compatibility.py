"""Checks that a table reads files of older schemas and of other tools as Lakebed does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pyarrow.parquet as pq

from lakebed.arrow.footers import difference, read_footers, sound_footers
from lakebed.arrow.older import OlderFiles
from lakebed.errors import InvalidInputError, SchemaMismatchError
from lakebed.model.arrow_types import field_ids_in, type_from_arrow
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import schema_number_of
from lakebed.model.layout import Folder
from lakebed.model.schema import Field, Kind, Primitive, Type
from lakebed.state import history
from lakebed.state.state import State, descriptor_from
from lakebed.store.base import Store

Widens = Callable[[Type, Type], bool]
"""Returns whether readers of a table widen the type in a file, the first, to that of the table."""


def check_compatible(
    store: Store,
    state: State,
    labels: Iterable[str],
    *,
    reader: str,
    widens: Widens,
    ids: Mapping[str, int] | None = None,
) -> None:
    """Check that readers of a table, which know no lineage, read files as Lakebed does.

    Args:
        store: The store that holds the files.
        state: State of the dataset.
        labels: Labels of the files.
        reader: Name of the table format, for errors.
        widens: Returns whether readers widen one type to another.
        ids: Ids of the table's columns by their paths in files, if readers find columns of files by
            ids; see `lakebed.model.field_ids.FieldIds`.

    Raises:
        InvalidInputError: A file would read differently; the message names the field.

    Cost:
        Nothing for files of the current schema; the history where there are older ones, and a
        footer for each file of another tool.
    """
    newest = state.lineage.number
    older, foreign = set[int](), list[str]()
    for label in labels:
        number = schema_number_of(label, newest=newest)
        if number is None:
            foreign.append(label)
        elif number < newest:
            older.add(number)
    if older:
        names = _names_by_schema(store, state)
        for number in sorted(older):
            _check_older(state, number, names.get(number), reader, widens)
    if foreign:
        stored = state.layout.file_schema
        for key, footer in sound_footers(
            read_footers(store, map(state.layout.key, foreign))
        ).items():
            reason = difference(footer, stored) or _id_difference(footer, ids or {})
            if reason:
                raise InvalidInputError(
                    f"{reader} would read data file {key!r} differently from Lakebed: {reason}.",
                    hint="Overwrite its partition with its own rows.",
                )


def _id_difference(footer: pq.FileMetaData, ids: Mapping[str, int]) -> str:
    """Return why readers find other columns in a file by ids than by names; empty if they do not.

    Readers map the names of a file in which no column has an id.
    """
    held = field_ids_in(footer.schema.to_arrow_schema())
    paths = {number: path for path, number in ids.items()}
    if all(number is None for number in held.values()):
        return ""
    for path, number in held.items():
        if path in ids and number != ids[path]:
            return f"column {path!r} has the field id {number} in it, and {ids[path]} in the table"
        if path not in ids and number in paths:
            return f"column {path!r} has the field id {number} in it, which is that of {paths[number]!r}"
    return ""


def dropped_fields(store: Store, state: State) -> tuple[Field, ...]:
    """Return the columns of older schemas that the current schema lacks, by their names in files.

    Cost:
        Nothing if there was one schema only; else the history.
    """
    dropped: dict[str, Field] = {}
    if state.lineage.number > 1:
        for descriptor in _descriptors(store, state).values():
            held, known = descriptor.schema.as_stored(), state.descriptor.schema
            missing = (field for field in held if known.find_stored(field.name) is None)
            dropped.update((field.name, field) for field in missing)
    return tuple(dropped.values())


def unknown_fields(store: Store, state: State, labels: Sequence[str]) -> tuple[Field, ...]:
    """Return columns of other tools' files that are not fields, such as an index of pandas.

    Cost:
        A footer for each file of another tool.
    """
    number = state.lineage.number
    foreign = [label for label in labels if schema_number_of(label, newest=number) is None]
    unknown: dict[str, Field] = {}
    footers = sound_footers(read_footers(store, map(state.layout.key, foreign)))
    for footer in footers.values():
        for column in footer.schema.to_arrow_schema():
            if column.name in state.layout.file_column_types or column.name in unknown:
                continue
            try:
                kind = type_from_arrow(column.type, place=column.name, strict_names=False)
            except SchemaMismatchError:
                kind = Primitive(Kind.STRING)  # any type will do: the column is never read
            unknown[column.name] = Field(name=column.name, type=kind)
    return tuple(unknown.values())


def _names_by_schema(store: Store, state: State) -> Mapping[int, frozenset[str]]:
    """Return the names that data files have for the fields of each schema."""
    return {
        number: frozenset(descriptor.schema.as_stored().names)
        for number, descriptor in _descriptors(store, state).items()
    }


def _descriptors(store: Store, state: State) -> Mapping[int, DatasetDescriptor]:
    """Return the descriptors of the dataset by schema number."""
    descriptors = {}
    for entry in history.read(store, state.lists.history):
        if entry.descriptor is not None:
            descriptor, lineage = descriptor_from(entry.descriptor, Folder.HISTORY.of(state.name))
            descriptors[lineage.number] = descriptor
    return descriptors


def _check_older(
    state: State, number: int, names: frozenset[str] | None, reader: str, widens: Widens
) -> None:
    older = OlderFiles.of(state.layout, number)
    reason = ""
    for name, value in older.reading.constants.items():
        if value is not None:
            reason = f"field {name!r} reads as {value!r} in them"
        elif names is None or older.schema.stored_name(name) in names:
            reason = f"they hold an earlier field of the name {name!r}"
    for name, kind in older.reading.promoted.items():
        wanted = state.descriptor.schema.get(name).type
        if not widens(kind, wanted):
            reason = f"they hold field {name!r} as {kind} instead of {wanted}"
    for name in older.reading.rebuilt:
        reason = f"they hold field {name!r} in another form"
    if reason:
        raise InvalidInputError(
            f"{reader} would read files of schema {number} of {state.name!r} differently from "
            f"Lakebed: {reason}.",
            hint="Overwrite their partitions with their own rows: new files have the new schema.",
        )
