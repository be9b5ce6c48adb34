"""Layouts that the files of a dataset were written under: schemas, and levels of directories.

A file of an older version is searched with the current schema. If a field of the condition is newer
than the file, it is also searched with its own schema, where other values may have had the name; and
with that alone if no version with the newer field ever had the file. The names of its directories
are read as the partition functions of that time made them: dimensions may allow other values since,
or be others altogether.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lakebed.errors import CorruptMetadataError, PartitionSpecError, PredicateError
from lakebed.model.allowed import PerhapsAllowed
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evaluate import matches
from lakebed.model.keys import level_names, schema_number_of, split_label
from lakebed.model.layout import Folder, Layout
from lakebed.model.lineage import Lineage
from lakebed.model.partition import (
    Dimension,
    MissingLevelError,
    PartitionFunction,
    PartitionStrategy,
    Provided,
)
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Formula,
    Leaf,
    Predicate,
    bind,
    columns_of,
    map_leaves,
    with_lists,
)
from lakebed.model.renaming import named_as
from lakebed.model.schema import Primitive, Schema, Type, dotted_types, path_of
from lakebed.model.sql_predicates import with_columns
from lakebed.state.history import Entry
from lakebed.state.state import State, descriptor_from

Levels = tuple[str, ...]
"""Names of the levels of directories, in order; that of the batch is the last one."""


def levels_of(label: str) -> Levels:
    """Return the names of the levels of the directory of a data file.

    >>> levels_of("dt=2013-01-01/batch_id=1/part-0a")
    ('dt', 'batch_id')
    """
    return level_names(split_label(label)[0])


@dataclass(frozen=True, slots=True)
class LayoutQuestion:
    """A condition, and the layout of the files that it is asked of.

    Attributes:
        predicate: The condition, bound to that layout.
        number: The number of its schema.
        levels: Its levels of directories.
    """

    predicate: Predicate
    number: int
    levels: Levels


@dataclass(frozen=True)
class FormerLayouts:
    """The layouts that files of a dataset were written under.

    Attributes:
        state: The current state.
        entries: The history.
    """

    state: State
    entries: Sequence[Entry]
    _searchable: dict[tuple[int, Levels], Layout] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    @cached_property
    def _declared(self) -> tuple[tuple[int, DatasetDescriptor, Lineage], ...]:
        """The descriptors of the history, each with its version; then the current one."""
        folder = Folder.HISTORY.of(self.state.name)
        known = [
            (entry.version, *descriptor_from(entry.descriptor, folder))
            for entry in self.entries
            if entry.descriptor is not None
        ]
        return (*known, (self.state.version + 1, self.state.descriptor, self.state.lineage))

    @cached_property
    def _known(self) -> Mapping[tuple[int, Levels], tuple[DatasetDescriptor, Lineage]]:
        """The last descriptor with each schema and levels."""
        return {
            (lineage.number, tuple(descriptor.partition_types)): (descriptor, lineage)
            for _, descriptor, lineage in self._declared
        }

    @cached_property
    def column_types(self) -> Mapping[str, Type]:
        """All columns that the dataset has or had, with their last types."""
        return {
            name: kind
            for _, declared, _ in self._declared
            for name, kind in declared.predicate_types.items()
        }

    @cached_property
    def level_sources(self) -> Mapping[str, frozenset[str]]:
        """The fields that each level of directories has been made of, by their names now."""
        now = self.state.descriptor.schema
        sources: dict[str, set[str]] = {}
        for _, declared, _ in self._declared:
            for one in declared.partition_by:
                root = one.source.partition(".")[0]
                kept = now.find_stored(declared.schema.stored_name(root))
                sources.setdefault(one.name, set()).add(root if kept is None else kept.name)
        return {level: frozenset(fields) for level, fields in sources.items()}

    @cached_property
    def former_names(self) -> Mapping[str, frozenset[str]]:
        """All names that each field of the current schema has had."""
        names: dict[str, set[str]] = {}
        for _, declared, _ in self._declared:
            for one in declared.schema:
                names.setdefault(one.stored_name, set()).add(one.name)
        schema = self.state.descriptor.schema
        return {one.name: frozenset(names[one.stored_name]) for one in schema}

    @cached_property
    def _number_at(self) -> Mapping[str, int]:
        """The schema when a file was first added, for files whose names hold none."""
        numbers: dict[str, int] = {}
        for entry, _, number in self._numbered_entries():
            for label in entry.added:
                numbers.setdefault(label, number)
        return numbers

    @cached_property
    def _last_number_of(self) -> Mapping[str, int]:
        """The schema of the last version that had a file, for files that are not live."""
        last: dict[str, int] = {}
        for entry, before, _ in self._numbered_entries():
            last.update(dict.fromkeys(entry.removed, before))
            for label in entry.added:
                last.pop(label, None)
        return last

    def _numbered_entries(self) -> Iterator[tuple[Entry, int, int]]:
        """Yield the entries, each with the numbers of the schema before it and after it."""
        since = {version: lineage.number for version, _, lineage in self._declared}
        number = 1
        for entry in self.entries:
            before, number = number, since.get(entry.version, number)
            yield entry, before, number

    def knows(self, label: str) -> bool:
        """Return whether a label is of a schema and of levels that the dataset has or had."""
        try:
            schema_number_of(label, newest=self.state.lineage.number)
        except CorruptMetadataError:
            return False
        levels = levels_of(label)
        return any(levels == known for _, known in self._known)

    def number_of(self, label: str) -> int:
        """Return the number of the schema that a file is written again with."""
        number = schema_number_of(label, newest=self.state.lineage.number)
        return self._number_at.get(label, 1) if number is None else number

    def layout_of(self, label: str) -> Layout:
        """Return the layout that a file is written again under.

        Raises:
            CorruptMetadataError: The history does not hold it.
        """
        written = self.number_of(label), levels_of(label)
        if written not in self._known:
            raise self._unknown(*written)
        return self.state.layout.as_of(*self._known[written])

    def holding(self, question: LayoutQuestion, labels: Iterable[str]) -> State:
        """Return a state of some files under the layout of a question, to plan reads of them."""
        layout = self._layout(question.number, question.levels)
        return replace(self.state.with_labels(labels), layout=layout, indices={})

    def questions(
        self, predicate: Predicate, labels: Iterable[str], *, skips: bool = False
    ) -> Mapping[LayoutQuestion, list[str]]:
        """Return some files by the questions that ask for rows of a condition in them.

        A row is one of the condition if the answer to one of the questions of its file is yes.

        Args:
            predicate: The condition.
            labels: Labels of the files.
            skips: Whether files are left out, instead of an error, whose directories lack a
                partition field of the condition.

        Raises:
            PredicateError: The condition names a partition field that directories of some files do
                not have.
            CorruptMetadataError: A file has a schema or levels that the history does not hold.
        """
        asked: dict[tuple[int, Levels, bool], tuple[LayoutQuestion, ...]] = {}
        newer: dict[int, int | None] = {}
        files: dict[LayoutQuestion, list[str]] = {}
        newest = self.state.lineage.number
        for label in labels:
            number = schema_number_of(label, newest=newest)
            number = newest if number is None else number
            if number not in newer:
                newer[number] = self._first_newer(predicate, number)
            first = newer[number]
            is_now = first is None or self._last_number_of.get(label, newest) >= first
            levels = levels_of(label)
            written = number, levels, is_now
            if written not in asked:
                try:
                    asked[written] = tuple(
                        self._questions(
                            predicate, number, levels, is_then=first is not None, is_now=is_now
                        )
                    )
                except MissingLevelError:
                    if not skips:
                        raise
                    asked[written] = ()
            for question in asked[written]:
                files.setdefault(question, []).append(label)
        return files

    def _first_newer(self, predicate: Predicate, number: int) -> int | None:
        """Return the first schema that has a field of a condition which files of a schema lack."""
        newer = [
            addition.since
            for column in columns_of(predicate)
            for path in self._paths(column)
            if (addition := self.state.lineage.additions.get(path)) and number < addition.since
        ]
        return min(newer, default=None)

    def _paths(self, column: str) -> Iterator[str]:
        """Yield the fields that a column is in, and itself; none of a partition field."""
        schema = self.state.descriptor.schema
        types = dotted_types(schema)
        parts = path_of(column, types) if column in types else ()
        yield from (".".join(parts[: end + 1]) for end in range(len(parts)))

    def _questions(
        self, predicate: Predicate, number: int, levels: Levels, *, is_then: bool, is_now: bool
    ) -> Iterator[LayoutQuestion]:
        """Yield the questions for files of a schema and levels.

        Args:
            predicate: The condition.
            number: The number of the schema.
            levels: The levels.
            is_then: Whether their own schema is asked: they lack a field of the condition.
            is_now: Whether the current schema is asked: they lack no such field, or a version that
                has one has had them.
        """
        if is_then:
            yield self._then(predicate, number, levels)
        if not is_now:
            return
        newest = self.state.lineage.number
        try:
            layout = self._layout(newest, levels)
        except PartitionSpecError:  # a field has the name of a level by now
            yield self._then(
                predicate, max(n for n, known in self._known if known == levels), levels
            )
            return
        for column in columns_of(predicate):
            self._check_level(column, layout)
        yield LayoutQuestion(bind(predicate, layout.predicate_types), newest, levels)

    def _then(self, predicate: Predicate, number: int, levels: Levels) -> LayoutQuestion:
        """Return the question for files as a former version shows them.

        A field that this version lacks has the value there that it has now in such files.
        """
        layout = self._layout(number, levels)

        def then(leaf: Leaf) -> Predicate:
            column = self._column_then(leaf.column, number, layout)
            if column is None:
                initial = self.state.lineage.initial(leaf.column)
                return TRUE if matches(leaf, {leaf.column: initial}) else FALSE
            try:
                return bind(replace(leaf, column=column), layout.predicate_types)
            except PredicateError:
                if column != leaf.column:
                    raise
                return FALSE  # values of that name were of another type

        def formula_then(formula: Formula) -> Predicate:
            columns = {name: self._column_then(name, number, layout) for name in formula.columns}
            names = {name: column for name, column in columns.items() if column is not None}
            initial = {
                name: self.state.lineage.initial(name) for name in columns if name not in names
            }
            try:
                return bind(with_columns(formula, names, initial), layout.predicate_types)
            except PredicateError:
                if any(name != column for name, column in names.items()):
                    raise
                return FALSE  # as above

        question = with_lists(map_leaves(predicate, then, formula_then))
        return LayoutQuestion(question, number, levels)

    def _column_then(self, column: str, number: int, layout: Layout) -> str | None:
        """Return the name of a column in a former layout; None if that has no such column."""
        paths = list(self._paths(column))
        if not paths:
            self._check_level(column, layout)
            return column
        schema = layout.descriptor.schema
        if any(self.state.lineage.lacks(path, number) for path in paths):
            return column if column in dotted_types(schema) else None
        root = schema.find_stored(self.state.descriptor.schema.stored_name(paths[0]))
        return None if root is None else f"{root.name}{column[len(paths[0]) :]}"

    def _check_level(self, column: str, layout: Layout) -> None:
        """Check that a column is one of a layout, if it is a partition field.

        Raises:
            PredicateError: It is a partition field that the directories do not have.
        """
        if column in layout.predicate_types:
            return
        for one in self.state.descriptor.partition_by:
            if one.name == column:
                raise one.missing_in(layout.partition_level_types)

    def _layout(self, number: int, levels: Levels) -> Layout:
        """Return the layout of a schema with some levels of directories, to search files.

        Raises:
            CorruptMetadataError: The history does not hold it.
            PartitionSpecError: A field of the schema has the name of a level.
        """
        if (number, levels) not in self._searchable:
            self._searchable[number, levels] = self._made(number, levels)
        return self._searchable[number, levels]

    def _made(self, number: int, levels: Levels) -> Layout:
        state = self.state
        if number == state.lineage.number:
            descriptor, lineage = state.descriptor, state.lineage
        elif (number, levels) in self._known:
            descriptor, lineage = self._known[number, levels]
        else:
            raise self._unknown(number, levels)
        functions = self._functions(descriptor, levels)
        return state.layout.as_of(
            replace(descriptor, partition_by=PartitionStrategy(functions)), lineage
        )

    def _functions(
        self, descriptor: DatasetDescriptor, levels: Levels
    ) -> tuple[PartitionFunction, ...]:
        """Return functions of some levels that hold for all directories that ever had them.

        Raises:
            CorruptMetadataError: The history does not hold these levels.
        """
        strategies = [
            named_as(one, descriptor.schema).partition_by
            for _, one, _ in self._declared
            if tuple(one.partition_types) == levels
        ]
        if not strategies:
            raise self._unknown(self.state.lineage.number, levels)
        return tuple(_common(known, descriptor.schema) for known in zip(*strategies, strict=True))

    def _unknown(self, number: int, levels: Levels) -> CorruptMetadataError:
        return CorruptMetadataError(
            f"The history of {self.state.name!r} does not hold its schema {number} with "
            f"directories of the levels {', '.join(levels) or 'none'}.",
            hint="Run check.",
        )


def _common(known: Sequence[PartitionFunction], schema: Schema) -> PartitionFunction:
    """Return a function of a level that holds for every directory, whichever function made it.

    Args:
        known: The functions that the level has had, in order.
        schema: The schema of the rows.
    """
    last = known[-1]
    if not isinstance(last, Dimension):
        return last
    kind = dotted_types(schema).get(last.source)
    is_same = all(one.source == last.source for one in known)
    if not is_same or not isinstance(kind, Primitive) or kind.kind not in last.kinds:
        return Provided(name=last.name)  # text, which no field decides
    return replace(last, allowed=PerhapsAllowed(), cap=None)
