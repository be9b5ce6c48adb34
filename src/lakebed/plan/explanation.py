"""The account of a plan: the files that were kept and dropped, the reasons, and the cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakebed.common.html import MAX_LENGTH
from lakebed.common.shown import counted, cut


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
