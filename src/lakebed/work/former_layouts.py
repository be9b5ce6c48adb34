"""Layouts that the files of a dataset were written under: schemas, and levels of directories.

A file of an older version is searched with the current schema. If that schema has a field under a
name that other values had before, files of those schemas are searched with their own. The names of
its directories are read as the partition functions of that time made them: dimensions may allow
other values since, or be others altogether.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lakebed.errors import (
    CorruptMetadataError,
    PartitionSpecError,
    PredicateError,
    SchemaMismatchError,
)
from lakebed.model.allowed import PerhapsAllowed
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import schema_number_of, split_label
from lakebed.model.layout import Folder, Layout
from lakebed.model.lineage import Lineage
from lakebed.model.partition import Dimension, PartitionFunction, PartitionStrategy, Provided
from lakebed.model.predicate import Predicate, bind, columns_of, roots_of
from lakebed.model.renaming import named_as
from lakebed.model.schema import Primitive, Schema, Type, dotted_types
from lakebed.state.history import Entry
from lakebed.state.state import State, descriptor_from

Levels = tuple[str, ...]
"""Names of the levels of directories, in order; that of the batch is the last one."""


def levels_of(label: str) -> Levels:
    """Return the names of the levels of the directory of a data file.

    >>> levels_of("dt=2013-01-01/batch_id=1/part-0a")
    ('dt', 'batch_id')
    """
    directory = split_label(label)[0]
    return tuple(urllib.parse.unquote(one.partition("=")[0]) for one in directory.split("/"))


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
    def level_types(self) -> Mapping[str, Type]:
        """All levels of directories that the dataset has or had, with their types."""
        return {
            name: kind
            for _, declared, _ in self._declared
            for name, kind in declared.partition_types.items()
        }

    @cached_property
    def level_sources(self) -> Mapping[str, frozenset[str]]:
        """The fields that each level of directories has been made of, by their names now."""
        schema = self.state.descriptor.schema
        sources: dict[str, set[str]] = {}
        for _, declared, _ in self._declared:
            for one in named_as(declared, schema).partition_by:
                sources.setdefault(one.name, set()).add(one.source)
        return {level: frozenset(fields) for level, fields in sources.items()}

    @cached_property
    def _number_at(self) -> Mapping[str, int]:
        """The schema when a file was first added, for files whose names hold none."""
        since = {version: lineage.number for version, _, lineage in self._declared}
        numbers: dict[str, int] = {}
        number = 1
        for entry in self.entries:
            number = since.get(entry.version, number)
            for label in entry.added:
                numbers.setdefault(label, number)
        return numbers

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
        self, predicate: Predicate, labels: Iterable[str]
    ) -> Mapping[LayoutQuestion, list[str]]:
        """Return some files by the question that asks for rows of a condition in them.

        Raises:
            PredicateError: The condition does not fit the current schema, or names a partition field
                that the directories of some files do not have.
            CorruptMetadataError: A file has a schema or levels that the history does not hold.
        """
        asked: dict[tuple[int, Levels], LayoutQuestion] = {}
        files: dict[LayoutQuestion, list[str]] = {}
        newest = self.state.lineage.number
        for label in labels:
            number = schema_number_of(label, newest=newest)
            written = (newest if number is None else number, levels_of(label))
            if written not in asked:
                asked[written] = self._question(predicate, *written)
            files.setdefault(asked[written], []).append(label)
        return files

    def names_partitions(self, predicate: Predicate) -> bool:
        """Return whether a condition is about a level of directories, or a field that one is of."""
        layout = self.state.layout
        roots = set(roots_of(bind(predicate, layout.predicate_types), layout.predicate_types))
        return any(
            not roots.isdisjoint({level, *(one.partition(".")[0] for one in fields)})
            for level, fields in self.level_sources.items()
        )

    def _question(self, predicate: Predicate, number: int, levels: Levels) -> LayoutQuestion:
        state = self.state
        newest = state.lineage.number
        try:
            layout = self._layout(newest, levels)
        except PartitionSpecError:  # a field has the name of a level by now
            return LayoutQuestion(
                self._bound(predicate, self._layout(number, levels)), number, levels
            )
        current = self._bound(predicate, layout)
        if any(
            state.lineage.lacks(root, number) for root in roots_of(current, layout.predicate_types)
        ):
            try:
                layout = self._layout(number, levels)
                return LayoutQuestion(bind(predicate, layout.predicate_types), number, levels)
            except (PredicateError, SchemaMismatchError):
                pass  # the field did not exist then
        return LayoutQuestion(current, newest, levels)

    def _bound(self, predicate: Predicate, layout: Layout) -> Predicate:
        types = layout.predicate_types
        functions = {one.name: one for one in self.state.descriptor.partition_by}
        for name in columns_of(predicate):
            if name not in types and name in functions:
                source = functions[name].source
                raise PredicateError(
                    f"The condition names the partition field {name!r}, and directories of older "
                    f"versions have the levels {', '.join(layout.partition_level_types) or 'none'}.",
                    hint=f"Name the field {source!r}, which it is made of, instead.",
                )
        return bind(predicate, types)

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
