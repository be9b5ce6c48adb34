"""The account of a plan: what became of every live file, and what it took to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.common.html import MAX_LENGTH
from lakebed.common.shown import counted, cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What planning dropped, and what it looked at.

    Attributes:
        dropped_by_partition: Files whose partition holds no match.
        dropped_by_schema: Files that lack a field, and have a value in its place that is no match.
        dropped_by_statistics: Files whose bounds and null counts rule out a match.
        dropped_by_index: Files in which an index knows of no match.
        statistics_segments: Segments of the file table that were asked.
        indices: For each index that was asked, of how many segments; an index file of other
            tools counts as one.
        ignored: What was not asked or could not be read, and why.
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
    """What a plan kept and dropped, and why. Prints as a few lines, in which long predicates are cut.

    Every live file is counted once: it is kept, or dropped by what ruled it out first.

    Attributes:
        dataset: Its name.
        version: That the plan reads.
        predicate: What was asked for.
        file_count: Live files.
        kept: Files to read.
        dropped_by_partition: Files whose partition holds no match.
        dropped_by_schema: Files that lack a field, and have a value in its place that is no match.
        dropped_by_statistics: Files whose bounds and null counts rule out a match.
        dropped_by_index: Files in which an index knows of no match.
        partition_count: Directories of live files.
        partitions_kept: Directories to read.
        statistics_segments: Segments of the file table that were asked.
        indices: For each index that was asked, of how many segments; an index file of other
            tools counts as one.
        ignored: What was not asked or could not be read, and why.
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
