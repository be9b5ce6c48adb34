"""The planner: which data files a view must read, and what is left to filter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.model.evaluate import matches
from lakebed.model.predicate import TRUE, And, Predicate, all_of
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
    """

    key: str
    label: str
    partition: Mapping[str, Scalar]
    is_filtered: bool


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
        return "\n".join(
            [
                f"plan of {self.dataset!r} version {self.version}: {self.predicate}",
                f"  files       {self.kept} of {self.file_count} kept, "
                f"{self.dropped_by_partition} dropped by partition",
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
    """

    state: State
    predicate: Predicate
    files: tuple[DataFile, ...]
    residual: Predicate | None
    requests: int

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
            dropped_by_partition=len(self.state.labels) - len(self.files),
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
    strategy, schema = state.descriptor.partition_by, state.descriptor.schema
    own = state.partition_types
    permissive = strategy.project(predicate, schema, own, strict=False)
    conditions = predicate.parts if isinstance(predicate, And) else (predicate,)
    strict = [strategy.project(one, schema, own, strict=True) for one in conditions]
    open_conditions: set[int] = set()
    files: list[DataFile] = []
    for directory, labels in state.directories().items():
        values = state.directory_values(directory)
        if not matches(permissive, values):
            continue
        unsure = {i for i, projected in enumerate(strict) if not matches(projected, values)}
        open_conditions |= unsure
        files.extend(
            DataFile(key=state.key(label), label=label, partition=values, is_filtered=bool(unsure))
            for label in labels
        )
    # A condition that every chosen partition surely meets need not be asked of its rows.
    residual = all_of([conditions[i] for i in sorted(open_conditions)])
    return ScanPlan(
        state=state,
        predicate=predicate,
        files=tuple(files),
        residual=residual if open_conditions else None,
        requests=requests,
    )
