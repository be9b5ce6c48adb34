"""Record batches of older schemas, converted to batches of the current one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakebed.arrow.entities import offsets_of
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.layout import Layout
from lakebed.model.lineage import AS_IT_IS, Lineage, Reading
from lakebed.model.predicate import Predicate
from lakebed.model.renaming import stored_path, with_stored_columns
from lakebed.model.schema import MISSING, Field, ListOf, MapOf, Schema, Struct, Type


@dataclass(frozen=True, slots=True, kw_only=True)
class OlderFiles:
    """Files of one schema, and their conversion to the current one.

    Attributes:
        schema: The fields that data files hold now.
        lineage: History of that schema.
        number: Schema number of the files; None for files of other tools.
        reading: Conversions that their fields need.
    """

    schema: Schema
    lineage: Lineage
    number: int | None
    reading: Reading

    @classmethod
    def of(cls, layout: Layout, number: int | None) -> OlderFiles:
        """Return the files of one schema of a dataset."""
        stored, lineage = layout.stored_schema, layout.lineage
        reading = lineage.reading(stored, number)
        return cls(schema=stored, lineage=lineage, number=number, reading=reading)

    @property
    def is_current(self) -> bool:
        """True if the files need no conversion."""
        return self.reading == AS_IT_IS and not self.schema.is_renamed

    @property
    def columns(self) -> frozenset[str]:
        """The columns of files of the current schema, by their names in the files."""
        return frozenset(field.stored_name for field in self.schema)

    @property
    def defaults(self) -> dict[str, Any]:
        """Fields whose value, in a file that lacks their column, is not null."""
        added = self.lineage.additions
        values = {
            field.name: added[field.name].initial if field.name in added else field.default
            for field in self.schema
        }
        return {name: value for name, value in values.items() if value not in (None, MISSING)}

    def for_columns(self, names: Iterable[str]) -> OlderFiles:
        """Return the same files, limited to some requested columns."""
        needed, reading = frozenset(names), self.reading
        return replace(
            self,
            reading=Reading(
                constants={name: v for name, v in reading.constants.items() if name in needed},
                promoted={name: v for name, v in reading.promoted.items() if name in needed},
                rebuilt={name: v for name, v in reading.rebuilt.items() if name in needed},
            ),
        )

    def reads_as(self, other: OlderFiles) -> bool:
        """Return whether files of another schema can be read together with these."""
        is_plain = not self.reading.rebuilt or self.number == other.number
        return is_plain and self.reading == other.reading

    def held(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the columns of the files that must be read for `names`."""
        constants, name_of = self.reading.constants, self.schema.stored_name
        return tuple(name_of(name) for name in names if name not in constants)

    def held_fields(self, names: Iterable[str]) -> tuple[Field, ...]:
        """Return the stored fields among `names` that must be read, as the files hold them."""
        fields, added = [], self.lineage.additions
        for name in names:
            if name in self.reading.constants:
                continue
            field = self.schema.get(name)
            kind = self.reading.promoted.get(name) or self.reading.rebuilt.get(name) or field.type
            default = added[name].initial if name in added else field.default
            # Nullability may have been different in that schema.
            fields.append(Field(name=field.stored_name, type=kind, default=default))
        return tuple(fields)

    def countable_fields(self) -> tuple[Field, ...]:
        """Return one field to read where only the number of rows is requested.

        If the files hold no field of the current schema, it is one that they lack.
        """
        whole = replace(self, reading=self.lineage.reading(self.schema, self.number))
        return whole.held_fields(self.schema.names)[:1] or self.schema.as_stored().fields[:1]

    def in_files(
        self, predicate: Predicate, types: Mapping[str, Type]
    ) -> tuple[Predicate, dict[str, Type]]:
        """Return a condition, and the types of its columns, under the names in the files.

        Args:
            predicate: A bound condition.
            types: Types of the columns that it may name.
        """
        if not self.schema.is_renamed:
            return predicate, dict(types)
        held = {stored_path(name, types, self.schema): kind for name, kind in types.items()}
        return with_stored_columns(predicate, types, self.schema), held

    def complete(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """Return columns of the current schema from the columns of a file.

        Args:
            batch: Columns of `held`, under their names in the files and in any order; promoted
                columns in either type.
            names: Columns to return; may be fields that are not stored in files.
        """
        if self.is_current:
            return batch if tuple(batch.schema.names) == tuple(names) else batch.select(list(names))
        columns = [self._column(batch, name) for name in names]
        return pa.RecordBatch.from_arrays(columns, names=list(names))

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        reading = self.reading
        if name in reading.constants:
            kind = self.schema.get(name).type
            return constant(reading.constants[name], kind, batch.num_rows)
        column = batch.column(self.schema.stored_name(name))
        if name in reading.promoted:
            return column.cast(type_to_arrow(self.schema.get(name).type))
        if name in reading.rebuilt:
            assert self.number is not None  # files of other tools are read unchanged
            held, wanted = reading.rebuilt[name], self.schema.get(name).type
            return _Rebuilding(self.lineage, self.number).rebuild(column, held, wanted, name)
        return column


def constant(value: Any, kind: Type, length: int) -> pa.Array:
    """Return a column of one value; a value of a list or map is null or empty."""
    target = type_to_arrow(kind)
    if value is None:
        return pa.nulls(length, target)
    if isinstance(kind, ListOf | MapOf):
        return pa.array([list(value)] * length, target)
    return pa.repeat(pa.scalar(value, target), length)


@dataclass(frozen=True, slots=True)
class _Rebuilding:
    """Rebuilds a column of an older type, part by part.

    Arrow's own cast of records would take a part that was dropped and added again from the file,
    and does not fill in defaults.
    """

    lineage: Lineage
    number: int

    def rebuild(self, array: pa.Array, held: Type, wanted: Type, place: str) -> pa.Array:
        target = type_to_arrow(wanted)
        match held, wanted:
            case Struct(), Struct():
                return self._struct(array, held, wanted, place)
            case ListOf(), ListOf():
                values = self.rebuild(array.values, held.element, wanted.element, f"{place}[]")
                return pa.ListArray.from_arrays(
                    offsets_of(array), values, type=target, mask=array.is_null()
                )
            case MapOf(), MapOf():
                items = self.rebuild(array.items, held.value, wanted.value, f"{place}{{}}")
                return pa.MapArray.from_arrays(
                    offsets_of(array), array.keys, items, type=target, mask=array.is_null()
                )
        return array.cast(target)

    def _struct(self, array: pa.StructArray, held: Struct, wanted: Struct, place: str) -> pa.Array:
        types = {field.name: field.type for field in held.fields}
        columns = []
        for field in wanted.fields:
            here = f"{place}.{field.name}"
            if self.lineage.lacks(here, self.number):
                columns.append(constant(self.lineage.initial(here), field.type, len(array)))
            else:
                column = array.field(field.name)
                columns.append(self.rebuild(column, types[field.name], field.type, here))
        fields = list(type_to_arrow(wanted))
        return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())
