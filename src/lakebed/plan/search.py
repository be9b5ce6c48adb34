"""The search for files that may have matching rows, step by step and for all files at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from lakebed.index.kartothek_file import FILE_REQUESTS, IndexFile
from lakebed.index.lookup import LiveIds
from lakebed.index.segment import is_small
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import file_ids, level_names, schema_number_of, split_label
from lakebed.model.lineage import simplify
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    And,
    Comparison,
    Formula,
    Leaf,
    Membership,
    Or,
    Predicate,
    all_of,
    columns_of,
    conjuncts,
    key_list,
    leaves,
)
from lakebed.model.schema import Decimal, Primitive
from lakebed.plan import indices
from lakebed.plan.paths import Paths
from lakebed.plan.plan import Account, DataFile, Scan, ScanPlan
from lakebed.state import file_table
from lakebed.state.state import State
from lakebed.state.statistics import Evidence, combined, evidence_of
from lakebed.store.base import Store
from lakebed.store.segments import Segment

# Requests to open a data file: its size, its footer, and columns.
_REQUESTS_A_FILE = 3
# Measured: this much of an index, in memory, is read in the time of one such request.
_INDEX_BYTES_A_REQUEST = 128 * 1024
# Measured: facts of this many files are read in the time of opening one data file.
_FACTS_A_REQUEST = 25_000
# A single file is opened in the time of a lookup, which might not even drop it.
_FEW_FILES = 2
_UNKNOWN = -1  # for an unknown number of rows
# Measured: to choose files by each of 10,000 combinations takes two seconds. Of so many, the lists
# of the single columns, which are conditions too, choose nearly the same files.
_MANY_KEYS = 256


def plan(
    state: State, predicate: Predicate, *, requests: int, store: Store | None = None
) -> ScanPlan:
    """Choose the data files that may have matching rows.

    The first step uses the partitions, which are in the head. The next steps use an index if the
    predicate names values of its column, the file table if that is less work than opening the
    remaining files, and other indices that may still help. The same state and predicate give the
    same files, unless a segment is damaged: then its files are kept.

    Args:
        state: The version to read.
        predicate: A predicate bound to the columns of the dataset.
        requests: Number of requests for reading the state, for the account.
        store: The store that holds the file table and the indices; None to use only the head.

    Raises:
        CorruptMetadataError: A directory of the head does not fit the schema.

    Cost:
        Time in proportion to the live files, a second or two for a million. One GET for each
        segment of the file table, eight at a time, and a few for an index, unless the process has
        read them before. Without a store no request.
    """
    search = _search(state, predicate, store)
    return ScanPlan(
        layout=state.layout,
        files=search.files(),
        residual=search.residual(),
        file_table=search.file_table,
        state=state,
        predicate=predicate,
        requests=requests + search.requests,
        account=search.account(),
    )


def _search(state: State, predicate: Predicate, store: Store | None) -> Search:
    if state.layout.has_former_levels:
        _check_levels(state, predicate)
    search = Search(state, predicate, store)
    search.ask_partitions()
    if store is not None:
        search.ask_indices(store, only_for_values=True)
        search.ask_statistics(store)
        search.ask_indices(store)
    return search


def _check_levels(state: State, predicate: Predicate) -> None:
    """Check that all directories have the levels that a condition names.

    Raises:
        PredicateError: One lacks a level: the condition would leave out its rows.
    """
    functions = {one.name: one for one in state.descriptor.partition_by}
    named = [name for name in columns_of(predicate) if name in functions]
    if not named:
        return
    for directory in state.directories():
        levels = level_names(directory)
        for name in named:
            if name not in levels:
                raise functions[name].missing_in(levels)


def count_known_rows(state: State, predicate: Predicate, store: Store) -> tuple[int, Scan]:
    """Count the rows of the files whose rows all match, from the file table.

    Args:
        state: The version to read.
        predicate: A predicate bound to the columns of the dataset.
        store: The store that holds the file table and the indices.

    Returns:
        The number, and the plan of the files that remain to be counted.

    Raises:
        CorruptMetadataError: The directory of a remaining file does not fit the schema.

    Cost:
        As `plan`, and one GET for each segment of the file table, which is not read if that would
        be more work than opening the files. A file whose rows are known gets no object.
    """
    if predicate == TRUE and state.is_tree:
        from lakebed.plan.leaves import rows_in_root

        row_count = rows_in_root(state)
        if row_count is not None:
            return row_count, Scan(layout=state.layout, files=(), residual=None, file_table=())
    search = _search(state, predicate, store)
    known = search.take_known_rows(store)
    remaining = Scan(
        layout=state.layout,
        files=search.files(),
        residual=search.residual(),
        file_table=search.file_table,
    )
    return known, remaining


class Search:
    """The live files that may have matching rows, after the steps that were made so far.

    Files of one schema form a group, since the same question applies to them.
    """

    def __init__(self, state: State, predicate: Predicate, store: Store | None = None) -> None:
        """Start with all live files; of a tree with those that its ranges or an index leave.

        Args:
            state: The state to plan from.
            predicate: A bound predicate.
            store: The store that holds the indices; None to use only the head.
        """
        self._conditions = conjuncts(predicate)
        self._whole, self._left_out, self.requests = state, 0, 0
        by_index: Leaf | None = None
        paths = Paths(state)
        if state.is_tree:
            # Most datasets have no tree: a plan of them must not import it.
            from lakebed.plan.leaves import looked_up, narrowed

            questions = _partition_questions(state, self._conditions)
            by_index = self._named_values() if store is not None else None
            few = None
            if by_index is not None and store is not None:
                few = looked_up(state, questions, by_index, store)
            if few is None:
                by_index, few = None, narrowed(state, questions)
            self._left_out, self.requests = few.left_out, few.requests
            state, paths = few.state, few.paths
        self._state, self._paths = state, paths
        # Both by the name of the field; a head has them by that of the column in data files.
        names = state.layout.field_names((*state.lists.postings, *state.indices))
        self._postings = {
            names[column]: segments
            for column, segments in state.lists.postings.items()
            if column in names
        }
        self._files_of_indices = {
            names[column]: column for column in state.indices if column in names
        }
        self._groups: list[_Group] = []
        self._live_count = state.live.count
        self._dropped = {"partition": 0, "schema": 0, "statistics": 0, "index": 0}
        self._dropped["partition" if by_index is None else "index"] = self._left_out
        self._statistics_segments = 0
        self._indices: dict[str, int] = {}
        self._index_files: dict[str, IndexFile | None] = {}
        self._ignored: dict[str, None] = {}
        self._asked: set[Leaf] = set()
        if by_index is not None:
            self._asked.add(by_index)
            self._indices[by_index.column] = len(self._postings[by_index.column])

    def _named_values(self) -> Leaf | None:
        """Return a condition that every row must meet, and that names values of an indexed column."""
        state = self._whole
        if not state.indexed:
            return None
        columns = state.layout.field_names(state.indexed).values()
        # A file of an older schema may lack the column, and have one value for all its rows.
        numbers = (*range(1, state.lineage.number + 1), None)
        known = [_question_for(state, self._conditions, number).conditions for number in numbers]
        for condition in self._conditions:
            if (
                isinstance(condition, Comparison | Membership)
                and indices.names_values(condition)
                and condition.column in columns
                and all(condition in conditions for conditions in known)
            ):
                return condition
        return None

    @property
    def file_table(self) -> tuple[Segment, ...]:
        """The segments that may have facts of the remaining files."""
        return tuple(self._state.lists.files)

    def ask_partitions(self) -> None:
        """Drop the files whose directory, or whose schema, rules out a match."""
        for number, positions in self._by_schema():
            question = _question_for(self._state, self._conditions, number)
            if question.is_impossible:
                self._dropped["schema"] += len(positions)
                continue
            may = self._matching_paths(question.permissive, positions)
            self._dropped["partition"] += int(np.count_nonzero(~may))
            positions = positions[may]
            if not len(positions):
                continue
            surely = [self._matching_paths(condition, positions) for condition in question.strict]
            group = _Group(question, number, positions, surely)
            for leaf in group.open_leaves():
                may, strictly = (
                    self._matching_paths(_project(self._state, leaf, strict=strict), positions)
                    for strict in (False, True)
                )
                group.evidence[leaf] = Evidence(may, strictly)
            self._groups.append(group)

    def _matching_paths(self, predicate: Predicate, positions: np.ndarray) -> np.ndarray:
        truths: np.ndarray = self._paths.matching(predicate)[positions]
        return truths

    def _by_schema(self) -> Iterator[tuple[int | None, np.ndarray]]:
        newest = self._state.lineage.number
        if newest == 1:
            # Files of other tools need no group of their own: there is only one schema.
            yield 1, np.arange(self._live_count)
            return
        numbers = np.fromiter(
            (schema_number_of(label, newest=newest) or 0 for label in self._state.labels),
            np.int64,
            self._live_count,
        )
        for number in np.unique(numbers).tolist():
            yield number or None, np.flatnonzero(numbers == number)

    def ask_statistics(self, store: Store) -> None:
        """Drop the files whose facts rule out a match; record those whose rows all match.

        Nothing is read if that would be more work than opening the remaining files.
        """
        state = self._state
        plain = {
            column.name: column.type
            for column in state.layout.stored_schema
            if isinstance(column.type, Primitive | Decimal)
        }
        useful = self._useful(lambda leaf: leaf.column in plain)
        wanted = {leaf.column: plain[leaf.column] for leaves_ in useful for leaf in leaves_}
        if (
            not wanted
            or self._file_count < _FEW_FILES
            or not facts_take_less(state.lists.files, self._file_count)
        ):
            return
        labels = self._labels_at(np.concatenate([group.positions for group in self._groups]))
        name_of = state.descriptor.schema.stored_name
        types = {name_of(name): type_to_arrow(kind) for name, kind in wanted.items()}
        facts = file_table.find(store, state.lists.files, labels, types)
        self.requests += facts.requests
        self._statistics_segments = len(state.lists.files) - len(facts.lost)
        for reason in facts.lost.values():
            self._ignore(reason)
        start = 0
        for group in self._groups:
            count = len(group.positions)
            rows = facts.row_count.slice(start, count)
            for leaf in group.open_leaves():
                if leaf.column in wanted:
                    bounds = facts.columns[name_of(leaf.column)].slice(start, count)
                    group.learn(leaf, evidence_of(leaf, bounds, rows, wanted[leaf.column]))
            group.row_counts = rows.fill_null(_UNKNOWN).to_numpy()
            start += count
        self._narrow("statistics")

    def ask_indices(self, store: Store, *, only_for_values: bool = False) -> None:
        """Drop the files in which an index finds no match.

        Args:
            store: The store that holds the indices.
            only_for_values: Look up only conditions that name the values, since these probably
                match few files.
        """
        can = indices.names_values if only_for_values else indices.can_be_looked_up
        budget = _Budget(self._file_count)
        asked: list[indices.Question] = []
        for questions in self._questions(
            lambda leaf: (
                (leaf.column in self._postings or leaf.column in self._files_of_indices)
                and can(leaf)
                and leaf not in self._asked
            )
        ):
            if budget.takes(questions, self._postings):
                asked += [question for question in questions if question not in asked]
            elif not only_for_values:
                for column in dict.fromkeys(question[0].column for question in questions):
                    self._ignore(f"index on {column}: {_less_work(self._file_count)}")
        if asked:
            self._look_up(store, asked, budget.left * _INDEX_BYTES_A_REQUEST)
        if not only_for_values:
            self._note_idle_indices()

    def _questions(self, can: Callable[[Leaf], bool]) -> Iterator[Sequence[indices.Question]]:
        """Yield groups of questions; indices may drop files if all questions of a group are asked."""
        ranges: dict[str, list[Leaf]] = {}
        joined: list[list[Leaf]] = []
        for leaves_ in self._useful(can):
            # Every row must meet these conditions, so those of a column form one question.
            if leaves_[0] in self._conditions and indices.is_range(leaves_[0]):
                ranges.setdefault(leaves_[0].column, []).append(leaves_[0])
            else:
                joined.append(leaves_)
        yield from ([tuple(bounds)] for bounds in ranges.values())
        yield from ([(leaf,) for leaf in leaves_] for leaves_ in joined)

    def _look_up(self, store: Store, asked: list[indices.Question], max_bytes: int) -> None:
        state = self._state
        labels_of = [self._labels_at(group.positions) for group in self._groups]
        ids_of = [file_ids(labels) for labels in labels_of]
        answers = indices.ask(
            store,
            self._postings,
            asked,
            state.layout.predicate_types,
            max_bytes // len(asked),
            self._live_files(ids_of),
        )
        self._note_answers(asked, answers)
        for group, labels, ids in zip(self._groups, labels_of, ids_of, strict=True):
            known = set(group.open_leaves())
            for question in asked:
                may = answers.may(question, ids)
                column = question[0].column
                if column in self._files_of_indices and not answers.covers(question, ids):
                    file = self._index_file(store, column, max_bytes)
                    may = may if file is None else may & file.may(question, labels)
                for leaf in known.intersection(question):
                    group.learn(leaf, Evidence(may, np.zeros(len(may), dtype=bool)))
        self._narrow("index")

    def _live_files(self, ids_of: Sequence[np.ndarray]) -> LiveIds:
        """Return the live files, of which the candidates have the ids of the groups."""
        candidates = _own(np.concatenate(ids_of))

        def all_ids() -> np.ndarray:
            if self._left_out:
                return _own(file_ids(self._whole.labels))
            is_all = self._file_count == self._live_count
            return candidates if is_all else _own(file_ids(self._paths.labels))

        return LiveIds(candidates, all_ids)

    def _note_answers(self, asked: list[indices.Question], answers: indices.Answers) -> None:
        """Record the questions for the explanation, and the segments without an answer."""
        self.requests += answers.requests
        for question in asked:
            column, refused = question[0].column, answers.lookups[question].refused
            self._asked.update(question)
            count = len(self._postings.get(column, ()))
            if refused < count:
                self._indices[column] = max(self._indices.get(column, 0), count - refused)
            if refused:
                self._ignore(
                    f"index on {column}: too many values match in {refused} of {count} segments"
                )
        for reason in answers.lost.values():
            self._ignore(reason)

    def _index_file(self, store: Store, column: str, max_bytes: int) -> IndexFile | None:
        """Return the index file of the column, as other tools use it, if it can be used."""
        if column not in self._index_files:
            held = self._files_of_indices[column]
            answer = indices.read_file(store, self._state, held, max_bytes)
            self.requests += answer.requests
            self._index_files[column] = answer.file
            if answer.file is not None:
                self._indices[column] = self._indices.get(column, 0) + 1
            else:
                self._ignore(answer.reason or f"index on {column}: {_less_work(self._file_count)}")
        return self._index_files[column]

    def _labels_at(self, positions: np.ndarray) -> pa.LargeStringArray:
        labels = self._paths.labels
        is_all = len(positions) == len(labels) and len(self._groups) == 1
        return labels if is_all else labels.take(pa.array(positions))

    def _note_idle_indices(self) -> None:
        """Record the reason for each index on a column of the predicate that was not used."""
        open_columns = {leaf.column for group in self._groups for leaf in group.open_leaves()}
        for column in dict.fromkeys((*self._state.descriptor.index, *self._files_of_indices)):
            if column not in open_columns or column in (*self._indices, *self._index_files):
                continue
            if column not in self._postings and column not in self._files_of_indices:
                self._ignore(f"index on {column}: it has no segments")
            elif not any(reason.startswith(f"index on {column}: ") for reason in self._ignored):
                self._ignore(f"index on {column}: no condition by which it could drop a file")

    def _useful(self, can: Callable[[Leaf], bool]) -> list[list[Leaf]]:
        """Return the parts of each condition whose answer may drop a file.

        Some conditions have parts that cannot be looked up.
        """
        by_condition: dict[int, dict[Leaf, None]] = {}
        for group in self._groups:
            for number, leaves_ in group.useful_leaves(can):
                by_condition.setdefault(number, {}).update(dict.fromkeys(leaves_))
        return [list(leaves_) for _, leaves_ in sorted(by_condition.items())]

    @property
    def _file_count(self) -> int:
        return sum(len(group.positions) for group in self._groups)

    def _narrow(self, by: str) -> None:
        before = self._file_count
        for group in self._groups:
            group.narrow()
        self._groups = [group for group in self._groups if len(group.positions)]
        self._dropped[by] += before - self._file_count

    def _ignore(self, reason: str) -> None:
        self._ignored[reason] = None

    def take_known_rows(self, store: Store) -> int:
        """Drop the files whose rows all match and whose number is known; return their number.

        The file table is not read if that would be more work than opening the files.
        """
        whole = [~group.is_filtered() for group in self._groups]
        unknown = [
            is_whole & (group.row_counts == _UNKNOWN)
            for group, is_whole in zip(self._groups, whole, strict=True)
        ]
        count = sum(int(np.count_nonzero(is_unknown)) for is_unknown in unknown)
        segments = self._state.lists.files
        if facts_take_less(segments, count):
            positions = [
                group.positions[is_unknown]
                for group, is_unknown in zip(self._groups, unknown, strict=True)
            ]
            labels = self._labels_at(np.concatenate(positions))
            rows = file_table.find(store, segments, labels, {}).row_count
            found, start = rows.fill_null(_UNKNOWN).to_numpy(), 0
            for group, is_unknown in zip(self._groups, unknown, strict=True):
                end = start + int(np.count_nonzero(is_unknown))
                group.row_counts = group.row_counts.copy()
                group.row_counts[is_unknown] = found[start:end]
                start = end
        return sum(
            group.take_rows(is_whole & (group.row_counts != _UNKNOWN))
            for group, is_whole in zip(self._groups, whole, strict=True)
        )

    def residual(self) -> Predicate | None:
        """Return the filter for files that may have rows outside the view; None if there are none.

        Conditions that all rows of the files meet are left out.
        """
        unsure = {number for group in self._groups for number in group.open_conditions()}
        return all_of([self._conditions[number] for number in sorted(unsure)]) if unsure else None

    def files(self) -> tuple[DataFile, ...]:
        """Return the remaining files, by directory, in the order of the head."""
        if not self._groups:
            return ()
        positions = np.concatenate([group.positions for group in self._groups])
        numbers = np.repeat(
            np.arange(len(self._groups)), [len(group.positions) for group in self._groups]
        )
        is_filtered = np.concatenate([group.is_filtered() for group in self._groups])
        rows = np.concatenate([group.row_counts for group in self._groups])
        by_directory: dict[str, list[DataFile]] = {}
        order = np.argsort(positions)
        key_of, labels = self._state.layout.naming.key, self._state.labels
        for position, number, filtered, row_count in zip(
            *(column[order].tolist() for column in (positions, numbers, is_filtered, rows)),
            strict=True,
        ):
            label, group = labels[position], self._groups[number]
            directory = split_label(label)[0]
            alike = by_directory.setdefault(directory, [])
            partition = alike[0].partition if alike else self._paths.values(directory)
            alike.append(
                DataFile(
                    key=key_of(label),
                    label=label,
                    partition=partition,
                    is_filtered=filtered,
                    schema_number=self._schema_number(label, group),
                    constants=group.question.constants,
                    row_count=None if row_count == _UNKNOWN else row_count,
                )
            )
        return tuple(file for alike in by_directory.values() for file in alike)

    def _schema_number(self, label: str, group: _Group) -> int | None:
        newest = self._state.lineage.number
        return schema_number_of(label, newest=newest) if newest == 1 else group.number

    def account(self) -> Account:
        """Return the numbers of dropped files by reason, and the metadata that was used."""
        return Account(
            dropped_by_partition=self._dropped["partition"],
            dropped_by_schema=self._dropped["schema"],
            dropped_by_statistics=self._dropped["statistics"],
            dropped_by_index=self._dropped["index"],
            statistics_segments=self._statistics_segments,
            indices=dict(sorted(self._indices.items())),
            ignored=tuple(self._ignored),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A predicate in the form for the files of one schema.

    Attributes:
        constants: Fields that the files lack, with their values.
        conditions: The conditions that remain once the constants are inserted.
        permissive: Predicate on partition fields that is true where rows may match.
        strict: For each condition, a predicate on partition fields that is true where all rows
            surely match.
        is_impossible: True if the constants alone rule out a match.
        only_rows: Numbers of the conditions that choose rows, but no files.
    """

    constants: Mapping[str, Any]
    conditions: tuple[Predicate, ...]
    permissive: Predicate
    strict: tuple[Predicate, ...]
    is_impossible: bool
    only_rows: frozenset[int]


def _question_for(state: State, conditions: tuple[Predicate, ...], number: int | None) -> _Question:
    constants = state.lineage.reading(state.layout.stored_schema, number).constants
    known = tuple(simplify(condition, constants) for condition in conditions)
    only_rows = frozenset(
        place for place, part in enumerate(known) if key_list(part, _MANY_KEYS) is not None
    )
    asked = [part for place, part in enumerate(known) if place not in only_rows]
    return _Question(
        constants=constants,
        conditions=known,
        only_rows=only_rows,
        permissive=_project(state, all_of(asked), strict=False),
        strict=tuple(
            FALSE if place in only_rows else _project(state, part, strict=True)
            for place, part in enumerate(known)
        ),
        # The predicate itself may be impossible: then the files count as dropped by partition.
        is_impossible=all_of(known) == FALSE != all_of(conditions),
    )


def _partition_questions(state: State, conditions: tuple[Predicate, ...]) -> tuple[Predicate, ...]:
    """Return the predicates on partition fields that are true where rows of some schema may match."""
    numbers = (*range(1, state.lineage.number + 1), None)
    questions = (_question_for(state, conditions, number) for number in numbers)
    return tuple(one.permissive for one in questions if not one.is_impossible)


def _project(state: State, predicate: Predicate, *, strict: bool) -> Predicate:
    schema, own = state.descriptor.schema, state.layout.partition_types
    return state.layout.sure_strategy.project(predicate, schema, own, strict=strict)


@dataclass(slots=True)
class _Group:
    """The remaining files of one schema, and the evidence on them.

    Attributes:
        question: The predicate for these files.
        number: Number of the schema; None for files of other tools.
        positions: Positions of the files in the head, ascending.
        surely: For each condition and file, whether all rows surely meet it.
        evidence: Evidence on each part of the conditions that are not sure for every file.
        row_counts: Row counts of the files, or `_UNKNOWN`.
    """

    question: _Question
    number: int | None
    positions: np.ndarray
    surely: list[np.ndarray]
    evidence: dict[Leaf, Evidence] = field(default_factory=dict)
    row_counts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.row_counts = np.full(len(self.positions), _UNKNOWN)

    def open_conditions(self) -> list[int]:
        """Return the numbers of the conditions that some file may not meet in every row."""
        return [number for number, surely in enumerate(self.surely) if not surely.all()]

    def asked_conditions(self) -> list[int]:
        """Return the numbers of these conditions without those that choose no files."""
        return [place for place in self.open_conditions() if place not in self.question.only_rows]

    def open_leaves(self) -> tuple[Leaf, ...]:
        """Return the parts of the conditions that may still drop files."""
        all_leaves = (
            leaf
            for number in self.asked_conditions()
            for leaf in leaves(self.question.conditions[number])
        )
        return tuple(dict.fromkeys(all_leaves))

    def useful_leaves(self, can: Callable[[Leaf], bool]) -> Iterator[tuple[int, list[Leaf]]]:
        """Yield numbers of conditions with the parts whose answer may drop a file."""
        for number in self.asked_conditions():
            useful = self._useful(self.question.conditions[number], can)
            if useful:
                yield number, useful

    def _useful(self, predicate: Predicate, can: Callable[[Leaf], bool]) -> list[Leaf]:
        match predicate:
            case And(parts):
                return [leaf for part in parts for leaf in self._useful(part, can)]
            case Or(parts):
                # If every file may meet one part, the other parts cannot drop a file.
                useful = [self._useful(part, can) for part in parts]
                is_closed = all(
                    leaves_ or not self._may(part).all()
                    for part, leaves_ in zip(parts, useful, strict=True)
                )
                return [leaf for leaves_ in useful for leaf in leaves_] if is_closed else []
            case Formula():
                return []
            case _:
                return [predicate] if can(predicate) else []

    def learn(self, leaf: Leaf, evidence: Evidence) -> None:
        """Add evidence on a part of a condition."""
        self.evidence[leaf] = self.evidence[leaf].also(evidence)

    def narrow(self) -> None:
        """Drop the files that cannot match, and record the conditions that are surely met."""
        may = np.ones(len(self.positions), dtype=bool)
        for number in self.asked_conditions():
            condition = self.question.conditions[number]
            may &= self._may(condition)
            self.surely[number] = self.surely[number] | self._surely(condition)
        self._keep(may)

    def take_rows(self, chosen: np.ndarray) -> int:
        """Drop some files, and return the number of their rows."""
        row_count = int(self.row_counts[chosen].sum())
        self._keep(~chosen)
        return row_count

    def _keep(self, chosen: np.ndarray) -> None:
        self.positions, self.row_counts = self.positions[chosen], self.row_counts[chosen]
        self.surely = [is_met[chosen] for is_met in self.surely]
        self.evidence = {leaf: evidence.of(chosen) for leaf, evidence in self.evidence.items()}

    def _may(self, predicate: Predicate) -> np.ndarray:
        count = len(self.positions)
        return combined(predicate, count, lambda leaf: self.evidence[leaf].may, formulas=True)

    def _surely(self, predicate: Predicate) -> np.ndarray:
        count = len(self.positions)
        return combined(predicate, count, lambda leaf: self.evidence[leaf].surely, formulas=False)

    def is_filtered(self) -> np.ndarray:
        """Return for each file whether some of its rows may miss a condition."""
        unsure = np.zeros(len(self.positions), dtype=bool)
        for surely in self.surely:
            unsure |= ~surely
        return unsure


class _Budget:
    """The requests that indices may make: fewer than opening the remaining files would take."""

    def __init__(self, file_count: int) -> None:
        self.left = file_count * _REQUESTS_A_FILE if file_count >= _FEW_FILES else 0
        self._opened: set[str] = set()

    def takes(
        self, questions: Sequence[indices.Question], postings: Mapping[str, Sequence[Segment]]
    ) -> bool:
        """Reserve requests for some questions, and return False if they exceed the budget.

        The first question on a column needs one request for the footer of each segment, which
        also fetches all of a small segment; each question needs one for the row groups of each
        larger segment. A column without segments has an index file.
        """
        columns = [question[0].column for question in questions]
        segments = {column: postings.get(column, ()) for column in columns}
        needed = sum(
            len(segments[column]) or FILE_REQUESTS for column in set(columns) - self._opened
        )
        needed += sum(not is_small(segment) for column in columns for segment in segments[column])
        if needed >= self.left:
            return False
        self.left -= needed
        self._opened.update(columns)
        return True


def _own(ids: np.ndarray) -> np.ndarray:
    """Return the ids of files of ours, ascending; files of other tools have none."""
    return np.unique(ids[ids >= 0])


def _less_work(count: int) -> str:
    files = "remaining file" if count == 1 else f"{count} remaining files"
    return f"opening the {files} is less work"


def facts_take_less(segments: Sequence[Segment], file_count: int) -> bool:
    """Return whether reading the file table is less work than opening some data files."""
    if not segments:
        return False
    weight = sum(segment.weight for segment in segments)
    return len(segments) + weight // _FACTS_A_REQUEST < file_count * _REQUESTS_A_FILE


def take_known_rows(store: Store, plan: Scan) -> tuple[int, Scan]:
    """Count the rows of unfiltered files from the file table.

    Returns:
        The number, and the plan of the files that remain to be counted.

    Cost:
        Nothing if planning has read the facts, else one GET for each segment of the file table,
        which is not read if that would be more work than opening the files.
    """
    whole = [file for file in plan.files if not file.is_filtered]
    counts = {file.label: file.row_count for file in whole}
    unknown = [label for label, count in counts.items() if count is None]
    if facts_take_less(plan.file_table, len(unknown)):
        labels = pa.array(unknown, pa.large_string())
        facts = file_table.find(store, plan.file_table, labels, {})
        counts.update(zip(unknown, facts.row_count.to_pylist(), strict=True))
    files = tuple(file for file in plan.files if counts.get(file.label) is None)
    known = sum(count for count in counts.values() if count is not None)
    return known, replace(plan, files=files)
