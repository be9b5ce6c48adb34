"""Partition strategies: the ordered partition functions of a dataset."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Self

import pyarrow as pa

from lakebed.common.html import MAX_LENGTH, facts_to_html
from lakebed.common.shown import cut, shown
from lakebed.errors import PartitionSpecError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.evaluate import value_of
from lakebed.model.keys import BATCH_ID
from lakebed.model.names import nearest
from lakebed.model.partition.document import functions_from_document, functions_from_json
from lakebed.model.partition.function import PartitionFunction, flat, text_error
from lakebed.model.partition.order import chains, project_order
from lakebed.model.partition.text import parse_functions
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Formula,
    Leaf,
    Op,
    Or,
    Predicate,
    all_of,
    any_of,
    columns_of,
    formulas_of,
    map_leaves,
)
from lakebed.model.schema import Kind, Primitive, Schema, Type
from lakebed.model.values import Scalar, check_value

NOTHING_PROVIDED: Mapping[str, Scalar] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PartitionStrategy:
    """An ordered list of partition functions; their order is the order of directories.

    >>> strategy = PartitionStrategy.parse("date(time_hour) as dt, hash(user_id, 64)")
    >>> [function.name for function in strategy]
    ['dt', 'user_id_hash']
    """

    functions: tuple[PartitionFunction, ...] = ()

    def __post_init__(self) -> None:
        for function in self.functions:
            if not isinstance(function, PartitionFunction):
                raise PartitionSpecError(
                    f"{shown(function)} is not a partition function.",
                    hint="Make functions with lakebed.by, or write text such as "
                    "'date(time_hour) as dt, carrier'.",
                )
        names = [function.name for function in self.functions]
        for name in names:
            if names.count(name) > 1:
                raise PartitionSpecError(
                    f"Partition field {name!r} appears twice.",
                    hint="Give one of them another name, as in 'date(ts) as dt'.",
                )
            if name == BATCH_ID:
                raise PartitionSpecError(
                    f"Partition field {name!r} is reserved: every batch adds it.",
                    hint="Choose another name.",
                )

    def __iter__(self) -> Iterator[PartitionFunction]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __str__(self) -> str:
        """Return the short form, which `parse` reads."""
        return ", ".join(str(function) for function in self.functions)

    def __repr__(self) -> str:
        return f"PartitionStrategy({cut(str(self), MAX_LENGTH)!r})"

    def _repr_html_(self) -> str:
        return facts_to_html(
            "PartitionStrategy", {function.name: function for function in self.functions}
        )

    def check(self, schema: Schema) -> None:
        """Check the strategy against the schema.

        Raises:
            PartitionSpecError: A source is missing or of a type that its function does not
                support, a partition field has the name of a data field, or no field is left
                for the data files.
        """
        for function in self.functions:
            kind = function.source_type(schema)
            call = function.call
            if not isinstance(kind, Primitive) or kind.kind not in function.kinds:
                raise PartitionSpecError(
                    f"{call} does not take field {function.source!r} of type {kind}.",
                    hint=f"It takes {', '.join(sorted(function.kinds))}.",
                )
            function.result_type(kind)
            if function.stores_source and function.name in schema:
                raise PartitionSpecError(
                    f"Partition field {function.name!r} of {call} has the name of a data field.",
                    hint="Give it another name, as in "
                    f"'{call} as {flat(function.source)}_{function.type_name}'.",
                )
        if all(name in self._taken_out() for name in schema.names):
            raise PartitionSpecError(
                "Every field is a partition field, so no field is left for data files.",
                hint="Partition by fewer fields.",
            )
        if BATCH_ID in schema:
            raise PartitionSpecError(
                f"The schema has a field {BATCH_ID!r}, which every batch adds.",
                hint="Rename the field.",
            )

    def _taken_out(self) -> frozenset[str]:
        return frozenset(f.source for f in self.functions if not f.stores_source)

    def types(self, schema: Schema) -> dict[str, Type]:
        """Return the partition fields in order, with their types."""
        return {f.name: f.result_type(f.source_type(schema)) for f in self.functions}

    def stored_names(self, schema: Schema) -> tuple[str, ...]:
        """Return the fields that data files hold; the others are in the path."""
        taken_out = self._taken_out()
        return tuple(name for name in schema.names if name not in taken_out)

    def caps(self, schema: Schema) -> dict[str, int]:
        """Return, for partition fields with a cap, how many values may have a partition."""
        caps = {f.name: f.capped_at(f.source_type(schema)) for f in self.functions}
        return {name: cap for name, cap in caps.items() if cap is not None}

    @property
    def cardinality(self) -> int | None:
        """The number of possible partitions besides those of nulls; None if unknown."""
        counts = [function.cardinality for function in self.functions]
        known = [count for count in counts if count is not None]
        return prod(known) if len(known) == len(counts) else None

    def values(
        self,
        entity: Mapping[str, Any],
        schema: Schema,
        provided: Mapping[str, Scalar] = NOTHING_PROVIDED,
    ) -> dict[str, Scalar]:
        """Return the partition of one entity; a missing source counts as null.

        Args:
            entity: The values of the entity, with records as nested mappings.
            schema: The schema of the dataset.
            provided: The values of provided partition fields.

        Raises:
            PartitionSpecError: A provided value is missing, or a value has no partition.
            InvalidInputError: A provided value is not of its type.
        """
        given = self.check_provided(provided)
        partition: dict[str, Scalar] = {}
        for function in self.functions:
            value = value_of(entity, function.source) if function.takes_source else None
            if function.name in given:
                value = given[function.name]
            if value is None:
                partition[function.name] = function.null_value
            else:
                partition[function.name] = function.value(value, function.source_type(schema))
        return partition

    def arrays(
        self,
        batch: pa.RecordBatch,
        schema: Schema,
        provided: Mapping[str, Scalar] = NOTHING_PROVIDED,
    ) -> list[pa.Array]:
        """Return the partition fields of a record batch, one column per function.

        Args:
            batch: A record batch with the columns of the schema.
            schema: The schema of the dataset.
            provided: The values of provided partition fields.

        Raises:
            PartitionSpecError: A provided value is missing, or a value has no partition.
            InvalidInputError: A provided value is not of its type.
        """
        given = self.check_provided(provided)
        arrays = []
        for function in self.functions:
            kind = function.source_type(schema)
            result = type_to_arrow(function.result_type(kind))
            if function.takes_source:
                try:
                    column = function.array(_column(batch, function.source), kind)
                except UnicodeDecodeError as exc:
                    raise text_error(exc, function.call) from exc
                arrays.append(column.cast(result))
            else:
                arrays.append(pa.repeat(pa.scalar(given[function.name], result), batch.num_rows))
        return arrays

    def check_provided(self, provided: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Return the values of provided partition fields, converted to their types.

        Raises:
            PartitionSpecError: A value is missing, or is not for a provided partition field.
            InvalidInputError: A value does not have the type of its field.
        """
        wanted = {f.name: f for f in self.functions if not f.takes_source}
        for name in provided:
            if name not in wanted:
                raise PartitionSpecError(
                    f"A value was given for {name!r}, which is not a provided partition field.",
                    hint=nearest(name, wanted)
                    or f"Provided fields are: {', '.join(wanted) or 'none'}.",
                )
        values: dict[str, Scalar] = {}
        for name, function in wanted.items():
            if name not in provided:
                raise PartitionSpecError(
                    f"Partition field {name!r} needs a value with each write.",
                    hint=f"Write through a view that sets it, as in with_({name!r}, …).",
                )
            value = provided[name]
            kind = function.result_type(Primitive(Kind.STRING))
            values[name] = None if value is None else check_value(value, kind, name)
        return values

    def project(
        self, predicate: Predicate, schema: Schema, own: Collection[str], *, strict: bool
    ) -> Predicate:
        """Project a predicate on entities to one on partition fields.

        Args:
            predicate: A predicate that is bound to the schema and the partition fields.
            schema: The schema of the dataset.
            own: The partition fields; conditions on them are kept unchanged.
            strict: Select partitions that surely match, instead of those that may match.
        """
        if isinstance(predicate, And | Or):
            parts = [self.project(part, schema, own, strict=strict) for part in predicate.parts]
            if isinstance(predicate, And):
                return all_of([*parts, *([] if strict else self._jointly(predicate, schema, own))])
            return any_of([*parts, *(self._jointly(predicate, schema, own) if strict else [])])
        if isinstance(predicate, Formula):
            is_own = all(column in own for column in predicate.columns)
            return predicate if is_own else FALSE if strict else TRUE
        if predicate.column in own:
            return predicate
        projections = list(self._projections(predicate, schema, strict=strict))
        return any_of(projections) if strict else all_of(projections)

    def _jointly(
        self, predicate: And | Or, schema: Schema, own: Collection[str]
    ) -> Iterator[Predicate]:
        """Project the conditions on one source together, if that is tighter than one by one.

        A partition that may match each of several conditions need not be able to match all of them
        at once, and a partition can surely match an OR without surely matching one of its parts.
        """
        columns = [columns_of(part) for part in predicate.parts]
        for function in self.functions:
            alone = (function.source,)
            if function.source in own or columns.count(alone) < 2:
                continue
            parts = [
                part
                for part, named in zip(predicate.parts, columns, strict=True)
                if named == alone and not formulas_of(part)
            ]
            joint = all_of(parts) if isinstance(predicate, And) else any_of(parts)
            projection = function.project_jointly(
                joint, function.source_type(schema), strict=isinstance(predicate, Or)
            )
            if projection is not None:
                yield projection

    def exact(self, predicate: Predicate, schema: Schema, own: Collection[str]) -> Predicate | None:
        """Return the condition on partitions that is equal to the predicate, or None.

        It exists if every condition falls on partition boundaries: then each partition matches the
        predicate as a whole or not at all.
        """
        unaligned: list[Leaf] = []

        def exact_leaf(leaf: Leaf) -> Predicate:
            if leaf.column in own:
                return leaf
            permissive = list(self._projections(leaf, schema, strict=False))
            for projection in self._projections(leaf, schema, strict=True):
                if projection in permissive:
                    return projection
            unaligned.append(leaf)
            return leaf

        projected = map_leaves(predicate, exact_leaf)
        return None if unaligned or formulas_of(predicate) else projected

    def _projections(self, leaf: Leaf, schema: Schema, *, strict: bool) -> Iterator[Predicate]:
        functions = [f for f in self.functions if f.takes_source and f.source == leaf.column]
        if not functions:
            return
        kind = functions[0].source_type(schema)
        for function in functions:
            projection = function.project(leaf, kind, strict=strict)
            if projection is not None:
                yield projection
        if isinstance(leaf, Comparison) and leaf.op not in (Op.EQ, Op.NE):
            for chain in chains(functions, kind):
                yield from project_order(chain, leaf, kind, strict=strict)

    def to_json(self) -> str:
        """Return Kite's JSON form, which `from_json` reads."""
        return json.dumps(self.to_document())

    def to_document(self) -> list[dict[str, Any]]:
        """Return Kite's JSON form, parsed."""
        return [function.to_document() for function in self.functions]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read Kite's JSON form.

        Raises:
            PartitionSpecError: The text is not JSON, or not of that form.
        """
        return cls(functions_from_json(text))

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read Kite's JSON form, parsed.

        Raises:
            PartitionSpecError: The document is not of that form.
        """
        return cls(functions_from_document(document))

    @classmethod
    def of(cls, source: object) -> Self:
        """Read a strategy from any form that a descriptor accepts.

        Args:
            source: A strategy, a function, text, or any number of functions and texts.

        Raises:
            PartitionSpecError: The source has another form, or the text is not of the short form.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str):
            return cls.parse(source)
        if isinstance(source, PartitionFunction):
            return cls((source,))
        if not isinstance(source, Iterable) or isinstance(source, Mapping | bytes):
            raise PartitionSpecError(
                f"Cannot read a partition strategy from {shown(source)}.",
                hint="Give functions of lakebed.by, or text such as "
                "'date(time_hour) as dt, carrier'.",
            )
        return cls(
            tuple(
                function
                for part in source
                for function in (cls.parse(part) if isinstance(part, str) else (part,))
            )
        )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the short form: `date(time_hour) as dt, hash(user_id, 64), carrier`.

        A bare field name is its identity; empty text is an empty strategy.

        Raises:
            PartitionSpecError: The text is not of that form; the message names the part.
        """
        return cls(parse_functions(text) if text.strip() else ())


def _column(batch: pa.RecordBatch, source: str) -> pa.Array:
    """Return a column, which may be nested; null if the record that holds it is null."""
    if source in batch.schema.names:
        return batch.column(source)
    import pyarrow.compute as pc

    root, *path = source.split(".")
    return pc.struct_field(batch.column(root), path)
