"""Kite's words for views: refinements, readers and writers of entities, ready signals."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lakebed import work
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError
from lakebed.model.dataclass_types import builder, constructor_arguments, declared_fields
from lakebed.model.evaluate import matches, value_of
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import (
    TRUE,
    And,
    Comparison,
    Formula,
    Leaf,
    Like,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    all_of,
    columns_of,
    normalise,
)
from lakebed.model.refinement import refine
from lakebed.model.renaming import with_stored_columns
from lakebed.model.schema import Decimal, Primitive
from lakebed.model.uri import VERSION, view_query
from lakebed.model.values import Scalar, check_value
from lakebed.state import signals
from lakebed.state.snapshot import Source
from lakebed.state.state import State
from lakebed.view import Base, View

if TYPE_CHECKING:
    from lakebed.work.writer import EntityWriter


class KiteGroup:
    """Kite's words for a view or dataset.

    `where` takes the same conditions as SQL text; `append` writes and `arrow` reads any number of
    entities at once.

    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-kite").create("numbers", descriptor)
    >>> commit = numbers.append([{"n": n} for n in range(10)])
    >>> view = numbers.kite.from_("n", 7)
    >>> view, list(view.kite.reader())
    (<View of 'numbers': n >= 7>, [{'n': 7}, {'n': 8}, {'n': 9}])
    """

    def __init__(self, view: View) -> None:
        """Use `View.kite` instead."""
        self._view = view

    def __repr__(self) -> str:
        return f"<kite of {self._view!r}>"

    @property
    def uri(self) -> str:
        """The URI of the view, which `lakebed.open_uri` opens again."""
        source = self._view._source
        terms = []
        if self._view._constraint != TRUE:
            terms.append(view_query(self._view._constraint, source.cached().layout.predicate_types))
        if source.pinned is not None:
            terms.append(f"{VERSION}={source.pinned.state.version}")
        query = f"?{'&'.join(terms)}" if terms else ""
        # As in Kite: a view without a constraint is the dataset itself.
        kind = "dataset" if self._view._constraint == TRUE else "view"
        return f"{kind}:{source.store.uri}/{source.name}{query}"

    def with_(self, field: str, *values: Scalar) -> View:
        """Keep entities whose field has one of the values; without values, is not null.

        Raises:
            PredicateError: The field is unknown, or a value is not of its type or is not in
                the view.
        """
        if not values:
            return self._refine(NullCheck(field, negated=True))
        return self._refine(Membership(field, values))

    def from_(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is at least `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.GE, value))

    def from_after(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is greater than `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.GT, value))

    def to(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is at most `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.LE, value))

    def to_before(self, field: str, value: Scalar) -> View:
        """Keep entities whose field is less than `value`; raises as `with_` does."""
        return self._refine(Comparison(field, Op.LT, value))

    def _refine(self, leaf: Leaf) -> View:
        bound = self._view._bound(lambda types: normalise(leaf, types))
        assert not isinstance(bound, And | Or | Like | Formula)  # bind changes empty lists only
        return self._view._refined_to(refine(self._view._constraint, bound))

    def includes(self, entity: object) -> bool:
        """Return whether an entity belongs to the view.

        Args:
            entity: A dict, or an object with fields, as for a writer. A missing field is null.
                Partition fields are computed; the value of a provided one is taken from the
                entity, else from the view if the view fixes one value. `batch_id` is null, since
                the entity is in no batch.

        Raises:
            SchemaMismatchError: The entity has a field that the dataset lacks.
            InvalidInputError: It is not an entity, or a value that the constraint needs is not of
                its field's type.
            PartitionSpecError: A partition field that the constraint needs has no value.

        Cost:
            Nothing; the fields are those of the last read of the head.
        """
        from lakebed.arrow.entities import as_mapping

        state = self._view._source.cached()
        given = as_mapping(entity)
        own = state.layout.partition_level_types
        for name in given:
            if name not in own:
                state.descriptor.schema.get(name)
        values = _checked_values(given, state)
        supplied = self._view._supplied(state)
        named = columns_of(self._view._constraint)
        functions = [
            function for function in state.descriptor.partition_by if function.name in named
        ]
        provided = {
            function.name: values[function.name]
            if function.name in given
            else supplied.get(function.name)
            for function in functions
            if not function.takes_source
        }
        strategy = PartitionStrategy(tuple(functions))
        computed = strategy.values(values, state.descriptor.schema, provided)
        return matches(self._view._constraint, {**values, **computed})

    def is_of(self, other: View) -> bool:
        """Return whether both are views of one dataset, at any version."""
        mine, others = self._view._source, other._source
        return mine.name == others.name and mine.store.uri == others.store.uri

    def is_aligned(self) -> bool:
        """Return whether the view consists of whole partitions, as `overwrite` requires."""
        return self._view._exact(self._view._source.cached()) is not None

    def is_empty(self) -> bool:
        """Return whether the view contains no entities.

        Cost:
            A read of the head; then footers, and the columns of the filter, until an entity is
            found.
        """
        return self._view._is_empty(self._view.plan())

    def covering_partitions(self) -> tuple[PartitionView, ...]:
        """Return the partitions that may hold entities of the view, ordered by path.

        They are disjoint, and together contain the whole view.

        Cost:
            A read of the head, and nothing else.
        """
        chosen = self._view._plan(None)
        levels = chosen.layout.partition_level_types
        by_path: dict[str, Mapping[str, Scalar]] = {}
        for file in chosen.files:
            path = chosen.layout.partition_of(file.label)
            by_path[path] = {name: file.partition[name] for name in levels}
        views: dict[tuple[Scalar, ...], PartitionView] = {}
        for path, values in sorted(by_path.items()):
            # 0.0 and -0.0 are equal, so a view of one holds the rows of both.
            views.setdefault(
                tuple(values.values()),
                PartitionView(self._view._source, path, values)._with_options_of(self._view),
            )
        return tuple(views.values())

    def reader(self, type: type | None = None) -> EntityReader:  # noqa: A002 - the word of API.md
        """Return an iterator over the entities, as dicts or as instances of a class.

        Args:
            type: A class that declares its fields: a dataclass, or one of attrs, pydantic or msgspec,
                or a named tuple; only its fields are read.

        Raises:
            InvalidInputError: `type` is not such a class; or, during iteration, an entity has a date
                or time outside the years 1 to 9999, which Python cannot represent.
            SchemaMismatchError: It has a field that the dataset lacks.
        """
        if type is None:
            return EntityReader(self._view.record_batches(), None)
        if declared_fields(type) is None:
            raise InvalidInputError(
                f"{shown(type)} is not a class that declares fields.",
                hint="Give a class, such as one decorated with @dataclass, not an instance of it.",
            )
        names = list(constructor_arguments(type))
        return EntityReader(self._view.record_batches(names), builder(type))

    def writer(
        self,
        *,
        run: str | None = None,
        base: Base | None = None,
    ) -> EntityWriter:
        """Return a writer of single entities, for small amounts, in this process.

        It is a context manager: a clean exit commits one batch, an error leaves nothing. If the
        view is narrower than the dataset, every entity must be in it.

        Args:
            run: As for `append`.
            base: As for `append`.

        Raises:
            ReadOnlyError: The dataset cannot be written.
        """
        read = self._view._base_of(base)
        transaction = self._view._begin("append", run)
        target = self._view._narrow_target(transaction)
        return work.writer.EntityWriter(self._view._source.store, transaction, target, read)

    def signal_ready(self) -> dt.datetime:
        """Signal that the view is complete, for processes that wait for it.

        The signal applies to exactly this view, which may be empty. It stays until the dataset is
        dropped.

        Returns:
            The time of the signal, later than that of any earlier one; aware, UTC.

        Raises:
            ReadOnlyError: The view is of an older state.

        Cost:
            One GET and one PUT.
        """
        self._view._check_writable()
        source = self._view._source
        return signals.put(source.store, source.name, self._stored_constraint)

    def is_ready(self) -> bool:
        """Return whether exactly this view has been signalled ready; as `ready_at`."""
        return self.ready_at() is not None

    def ready_at(self) -> dt.datetime | None:
        """Return the time of the last ready signal of exactly this view, aware and UTC, or None.

        Raises:
            CorruptMetadataError: The signal cannot be read.

        Cost:
            One GET.
        """
        source = self._view._source
        return signals.find(source.store, source.name, self._stored_constraint)

    @property
    def _stored_constraint(self) -> Predicate:
        """The constraint by the names in data files, so that it is the same after a rename."""
        layout = self._view._source.cached().layout
        return with_stored_columns(
            self._view._constraint, layout.predicate_types, layout.descriptor.schema
        )


class PartitionView(View):
    """The view of one partition.

    Attributes:
        path: Directory relative to the table; empty if unpartitioned.
        values: Typed value of each partition field.
    """

    def __init__(self, source: Source, path: str, values: Mapping[str, Scalar]) -> None:
        """Use `View.kite.covering_partitions` instead."""
        terms: list[Predicate] = [
            NullCheck(name) if value is None else Membership(name, (value,))
            for name, value in values.items()
        ]
        super().__init__(source, all_of(terms))
        self.path = path
        self.values = values


def _checked_values(entity: Mapping[str, Any], state: State) -> dict[str, Any]:
    """Return the values of all columns that a predicate may name, checked against their types."""
    values: dict[str, Any] = {}
    for name, kind in state.layout.predicate_types.items():
        value = value_of(entity, name)
        is_plain = isinstance(kind, Primitive | Decimal)
        values[name] = check_value(value, kind, name) if is_plain and value is not None else value
    return values


class EntityReader:
    """An iterator over entities, open from the start; also a context manager that closes the files.

    It is closed by `close`, at the end of a `with`, or by reading to the end. `open`, `has_next`
    and `read` are Kite's names.
    """

    def __init__(
        self, batches: pa.RecordBatchReader, build: Callable[[dict[str, Any]], Any] | None
    ) -> None:
        """Use `View.kite.reader` instead."""
        self._batches = batches
        self._entities = self._read(build)
        self._ahead: list[Any] = []  # the next entity, if `has_next` has asked for it
        self._is_closed = False
        self._is_at_end = False

    def _read(self, build: Callable[[dict[str, Any]], Any] | None) -> Iterator[Any]:
        from lakebed.arrow.as_python import python_rows

        for batch in self._batches:
            for row in python_rows(batch):
                yield row if build is None else build(row)

    @property
    def is_open(self) -> bool:
        """True if there may be more to read."""
        return not (self._is_closed or self._is_at_end)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next entity.

        Raises:
            InvalidInputError: The reader was closed before the end.
            StopIteration: There are no more entities.
        """
        self._check_open()
        if self._ahead:
            return self._ahead.pop()
        try:
            return next(self._entities)
        except StopIteration:
            self._is_at_end = True
            raise

    def _check_open(self) -> None:
        if self._is_closed and not self._is_at_end:
            raise InvalidInputError("The reader is closed.", hint="Open another one.")

    def open(self) -> Self:
        """Return this reader, which is open from the start; a name of Kite's.

        Raises:
            InvalidInputError: The reader was closed before the end.
        """
        self._check_open()
        return self

    def has_next(self) -> bool:
        """Return whether there is another entity; reads it ahead.

        Raises:
            InvalidInputError: The reader was closed before the end.
        """
        if not self._ahead:
            try:
                self._ahead.append(next(self))
            except StopIteration:
                return False
        self._check_open()
        return True

    def read(self) -> Any:
        """Return the next entity, as `next` does.

        Raises:
            InvalidInputError: There are no more entities, or the reader was closed before the end.
        """
        try:
            return next(self)
        except StopIteration:
            raise InvalidInputError(
                "The reader is at its end.", hint="Call `has_next` before each `read`, or iterate."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; a second call does nothing."""
        self._is_closed = True
        self._ahead.clear()
        self._entities = iter(())
        self._batches.close()
