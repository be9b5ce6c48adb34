"""A plan: the data files that a view must read, how they were found, and the remaining row filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.common.html import MAX_LENGTH, facts_to_html
from lakebed.common.shown import counted, cut
from lakebed.model.layout import Layout
from lakebed.model.predicate import TRUE, Predicate
from lakebed.model.values import Scalar
from lakebed.state.facts import Recorded
from lakebed.state.state import State
from lakebed.store.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Numbers of files that planning dropped, and the metadata that it used.

    Attributes:
        dropped_by_partition: Files whose partition rules out a match.
        dropped_by_schema: Files that lack a field, and whose value in its place does not match.
        dropped_by_statistics: Files whose bounds and null counts rule out a match.
        dropped_by_index: Files in which an index found no match.
        statistics_segments: Number of segments of the file table that were read.
        indices: Number of segments that were read for each index; an index file of another tool
            counts as one.
        ignored: Metadata that was not used or could not be read, with the reason.
    """

    dropped_by_partition: int = 0
    dropped_by_schema: int = 0
    dropped_by_statistics: int = 0
    dropped_by_index: int = 0
    statistics_segments: int = 0
    indices: Mapping[str, int] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The files that a plan kept and dropped, and why. Prints as a few lines with long predicates cut.

    Every live file is counted once: as kept, or by the first step that ruled it out.

    Attributes:
        dataset: Name of the dataset.
        version: The version that the plan reads.
        predicate: The condition of the view.
        file_count: Number of live files.
        kept: Number of files to read.
        dropped_by_partition: Files whose partition rules out a match.
        dropped_by_schema: Files that lack a field, and whose value in its place does not match.
        dropped_by_statistics: Files whose bounds and null counts rule out a match.
        dropped_by_index: Files in which an index found no match.
        partition_count: Number of directories of live files.
        partitions_kept: Number of directories to read.
        statistics_segments: Number of segments of the file table that were read.
        indices: Number of segments that were read for each index; an index file of another tool
            counts as one.
        ignored: Metadata that was not used or could not be read, with the reason.
        residual: The condition that is applied to row groups and rows; empty if there is none.
        filtered_files: Number of files that the residual applies to.
        requests: Number of requests to the store for planning.
    """

    dataset: str
    version: int
    predicate: str
    file_count: int
    kept: int
    dropped_by_partition: int
    dropped_by_schema: int
    dropped_by_statistics: int
    dropped_by_index: int
    partition_count: int
    partitions_kept: int
    statistics_segments: int
    indices: Mapping[str, int]
    ignored: tuple[str, ...]
    residual: str
    filtered_files: int
    requests: int

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        dropped = [f"{self.dropped_by_partition} dropped by partition"]
        for count, by in (
            (self.dropped_by_schema, "schema"),
            (self.dropped_by_statistics, "statistics"),
            (self.dropped_by_index, "index"),
        ):
            if count:
                dropped.append(f"{count} by {by}")
        predicate, residual = (cut(text, MAX_LENGTH) for text in (self.predicate, self.residual))
        lines = [
            f"plan of {self.dataset!r} version {self.version}: {predicate}",
            f"  files       {self.kept} of {self.file_count} kept, {', '.join(dropped)}",
            f"  directories {self.partitions_kept} of {self.partition_count} kept",
        ]
        if self.statistics_segments:
            lines.append(f"  statistics  {counted(self.statistics_segments, 'segment')}")
        if self.indices:
            named = (
                f"{name} ({counted(count, 'segment')})" for name, count in self.indices.items()
            )
            lines.append(f"  indices     {', '.join(named)}")
        lines += [f"  ignored     {reason}" for reason in self.ignored]
        row_filter = (
            f"{residual}  (in {self.filtered_files} of {self.kept} files, by row group and row)"
            if self.residual
            else "nothing"
        )
        return "\n".join([*lines, f"  filter      {row_filter}", f"  requests    {self.requests}"])


@dataclass(frozen=True, slots=True)
class Share:
    """One of several disjoint parts of a data file, which together are the whole file.

    Attributes:
        number: Number of the part, from 0 on.
        count: Number of parts.
    """

    number: int
    count: int

    def row_groups(self, row_counts: Sequence[int]) -> list[int]:
        """Return the row groups that belong to the part: those whose middle is in it.

        Args:
            row_counts: Number of rows of each row group of the file.

        >>> [Share(number, 2).row_groups([10, 10, 10]) for number in (0, 1)]
        [[0], [1, 2]]
        """
        total, end = sum(row_counts), 0
        mine = []
        for number, row_count in enumerate(row_counts):
            middle, end = 2 * end + row_count, end + row_count  # in half rows
            if middle * self.count // max(1, 2 * total) == self.number:
                mine.append(number)
        return mine


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One file of a plan.

    Attributes:
        key: Key of the file in the store.
        label: Name of the file in the head.
        partition: Typed values of its directory levels.
        is_filtered: True if some of its rows may not belong to the view.
        schema_number: Number of its schema; None for a file of another tool.
        constants: Fields that its schema lacks, with the value that all its rows have for them.
        row_count: Number of its entities; None if the plan did not need it.
        recorded: Recorded size and checksum, which are verified before the content is used; None
            for no verification.
        share: The part of the file to read, in row groups of Parquet; None for all of it.
        run: Run that wrote its rows; None without a named run, and where no footprint is read.
    """

    key: str
    label: str
    partition: Mapping[str, Scalar]
    is_filtered: bool
    schema_number: int | None = 1
    constants: Mapping[str, Any] = field(default_factory=dict)
    row_count: int | None = None
    recorded: Recorded | None = None
    share: Share | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """Data files to read, with everything that a Spark task needs to read them.

    Attributes:
        layout: Layout of the dataset.
        files: The files to read, by directory, in the order of the head.
        residual: Filter for the rows of files with `is_filtered`; None if there are none.
        file_table: Segments of the file table, which hold the recorded facts of the files; empty
            if the files have their facts already, or need not be compared with them.
    """

    layout: Layout
    files: tuple[DataFile, ...]
    residual: Predicate | None = None
    file_table: tuple[Segment, ...] = ()

    def __len__(self) -> int:
        return len(self.files)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScanPlan(Scan):
    """The data files that a view must read, and the reasons for the choice.

    Attributes:
        state: The state that was planned from; a later write may name the plan as its base.
        predicate: The condition of the view.
        requests: Number of requests to the store for planning.
        account: The dropped files by reason, and the metadata that was used.
    """

    state: State
    predicate: Predicate
    requests: int
    account: Account = field(default_factory=Account)

    @property
    def version(self) -> int:
        """The version that the plan reads."""
        return self.state.version

    def __repr__(self) -> str:
        asked = "" if self.predicate == TRUE else f" for {cut(str(self.predicate))}"
        return (
            f"<Plan of {self.layout.name!r} version {self.version}{asked}: "
            f"{len(self.files):,} of {counted(self.state.live.count, 'file')}>"
        )

    def _repr_html_(self) -> str:
        """Return the result of `explain` as HTML; nothing is read for it."""
        title, *lines = str(self.explain()).splitlines()
        facts = (line.strip().partition("  ") for line in lines)
        return facts_to_html(cut(title), {name: cut(text.strip()) for name, _, text in facts})

    def explain(self) -> Explanation:
        """Return the files that were kept and dropped, the reasons, and the cost of the plan."""
        kept = {file.label.rpartition("/")[0] for file in self.files}
        account = self.account
        return Explanation(
            dataset=self.layout.name,
            version=self.version,
            predicate=str(self.predicate) if self.predicate != TRUE else "everything",
            file_count=self.state.live.count,
            kept=len(self.files),
            dropped_by_partition=account.dropped_by_partition,
            dropped_by_schema=account.dropped_by_schema,
            dropped_by_statistics=account.dropped_by_statistics,
            dropped_by_index=account.dropped_by_index,
            partition_count=len(self.state.directories()),
            partitions_kept=len(kept),
            statistics_segments=account.statistics_segments,
            indices=account.indices,
            ignored=account.ignored,
            residual="" if self.residual is None else str(self.residual),
            filtered_files=sum(file.is_filtered for file in self.files),
            requests=self.requests,
        )
