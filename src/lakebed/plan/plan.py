"""The planner: which data files a view must read, and what is left to filter."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakebed.model.evaluate import matches
from lakebed.model.keys import schema_number_of
from lakebed.model.lineage import simplify
from lakebed.model.predicate import FALSE, TRUE, Predicate, all_of, conjuncts
from lakebed.model.values import Scalar
from lakebed.state.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a plan.

    Attributes:
        key: Where it is in the store.
        label: Its name in the head.
        partition: Typed values of its directory levels.
        is_filtered: Whether some of its rows may not belong to the view.
        schema_number: Of the schema that it is of; None for a file of another tool.
        constants: Fields that its schema lacks, and what all its rows have in their place.
    """

    key: str
    label: str
    partition: Mapping[str, Scalar]
    is_filtered: bool
    schema_number: int | None = 1
    constants: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a plan kept and dropped, and why. Prints as a few lines.

    Attributes:
        dataset: Its name.
        version: That the plan reads.
        predicate: What was asked for.
        file_count: Live files.
        kept: Files to read.
        dropped_by_partition: Files whose partition holds no match.
        dropped_by_schema: Files that lack a field, and have a value in its place that is no match.
        partition_count: Directories of live files.
        partitions_kept: Directories to read.
        residual: What is filtered row by row, and pushed down to row groups; empty if nothing.
        filtered_files: Files that the residual applies to.
        requests: Requests to the store that the plan took.
    """

    dataset: str
    version: int
    predicate: str
    file_count: int
    kept: int
    dropped_by_partition: int
    dropped_by_schema: int
    partition_count: int
    partitions_kept: int
    residual: str
    filtered_files: int
    requests: int

    def __str__(self) -> str:
        rest = (
            f"{self.residual}  (in {self.filtered_files} of {self.kept} files, by row group and row)"
            if self.residual
            else "nothing"
        )
        by_schema = f", {self.dropped_by_schema} by schema" if self.dropped_by_schema else ""
        return "\n".join(
            [
                f"plan of {self.dataset!r} version {self.version}: {self.predicate}",
                f"  files       {self.kept} of {self.file_count} kept, "
                f"{self.dropped_by_partition} dropped by partition{by_schema}",
                f"  directories {self.partitions_kept} of {self.partition_count} kept",
                f"  filter      {rest}",
                f"  requests    {self.requests}",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """The data files that a view must read.

    Attributes:
        state: What was planned from.
        predicate: What was asked for.
        files: To read, in the order of the head.
        residual: What is still to filter in files that are `is_filtered`; None if in none.
        requests: Requests to the store that planning took.
        dropped_by_schema: How many files were dropped since a field that they lack has a value
            that is no match.
    """

    state: State
    predicate: Predicate
    files: tuple[DataFile, ...]
    residual: Predicate | None
    requests: int
    dropped_by_schema: int = 0

    @property
    def version(self) -> int:
        """The version that the plan reads."""
        return self.state.version

    def __len__(self) -> int:
        return len(self.files)

    def explain(self) -> Explanation:
        """Say which files were kept and dropped, by what, and what it cost."""
        kept = {file.label.rpartition("/")[0] for file in self.files}
        return Explanation(
            dataset=self.state.name,
            version=self.version,
            predicate=str(self.predicate) if self.predicate != TRUE else "everything",
            file_count=len(self.state.labels),
            kept=len(self.files),
            dropped_by_partition=len(self.state.labels) - len(self.files) - self.dropped_by_schema,
            dropped_by_schema=self.dropped_by_schema,
            partition_count=len(self.state.directories()),
            partitions_kept=len(kept),
            residual="" if self.residual is None else str(self.residual),
            filtered_files=sum(file.is_filtered for file in self.files),
            requests=self.requests,
        )


def plan(state: State, predicate: Predicate, *, requests: int) -> ScanPlan:
    """Choose the data files that may hold matching rows.

    Args:
        state: The version to read.
        predicate: Bound to the columns of the dataset.
        requests: What reading the state took, for the account.

    Cost:
        No request; time in proportion to the directories of live files.
    """
    conditions = conjuncts(predicate)
    questions: dict[int | None, _Question] = {}
    open_conditions: set[int] = set()
    files: list[DataFile] = []
    dropped_by_schema = 0
    for directory, labels in state.directories().items():
        values = state.directory_values(directory)
        for number, of_schema in _by_schema(state, labels):
            question = questions.get(number)
            if question is None:
                question = questions[number] = _ask(state, conditions, number)
            if question.is_hopeless:
                dropped_by_schema += len(of_schema)
                continue
            if not matches(question.permissive, values):
                continue
            unsure = {i for i, one in enumerate(question.strict) if not matches(one, values)}
            open_conditions |= unsure
            files.extend(
                DataFile(
                    key=state.key(label),
                    label=label,
                    partition=values,
                    is_filtered=bool(unsure),
                    schema_number=number,
                    constants=question.constants,
                )
                for label in of_schema
            )
    # A condition that every chosen partition surely meets need not be asked of its rows.
    residual = all_of([conditions[i] for i in sorted(open_conditions)])
    return ScanPlan(
        state=state,
        predicate=predicate,
        files=tuple(files),
        residual=residual if open_conditions else None,
        requests=requests,
        dropped_by_schema=dropped_by_schema,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A predicate as it is to be asked of the files of one schema.

    Attributes:
        constants: Fields that they lack.
        permissive: On partition fields: what may match.
        strict: On partition fields, for each condition: what surely matches.
        is_hopeless: Whether the constants alone say that nothing matches.
    """

    constants: Mapping[str, Any]
    permissive: Predicate
    strict: tuple[Predicate, ...]
    is_hopeless: bool


def _ask(state: State, conditions: tuple[Predicate, ...], number: int | None) -> _Question:
    schema, own, strategy = state.descriptor.schema, state.partition_types, state.sure_strategy
    constants = state.lineage.reading(state.stored_schema, number).constants
    known = [simplify(one, constants) for one in conditions]
    return _Question(
        constants=constants,
        permissive=strategy.project(all_of(known), schema, own, strict=False),
        strict=tuple(strategy.project(one, schema, own, strict=True) for one in known),
        # The question itself may be hopeless: then partitions are what drops files.
        is_hopeless=all_of(known) == FALSE != all_of(conditions),
    )


def _by_schema(state: State, labels: list[str]) -> Iterator[tuple[int | None, list[str]]]:
    newest = state.lineage.number
    found = itertools.groupby(labels, lambda label: schema_number_of(label, newest=newest))
    return ((number, list(group)) for number, group in found)
