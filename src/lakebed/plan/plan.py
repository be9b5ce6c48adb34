"""The planner: choose the data files that a view must read, and the remaining row filter."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakebed.common.html import facts_to_html
from lakebed.common.shown import counted, cut
from lakebed.model.layout import Layout
from lakebed.model.predicate import TRUE, Predicate
from lakebed.plan.data_file import DataFile
from lakebed.plan.explanation import Account, Explanation
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.segments import Segment


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
            f"{len(self.files):,} of {counted(len(self.state.labels), 'file')}>"
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
            file_count=len(self.state.labels),
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
    from lakebed.plan.search import Search  # here: code that only reads heads does not need it

    search = Search(state, predicate)
    search.ask_partitions()
    if store is not None:
        search.ask_indices(store, only_for_values=True)
        search.ask_statistics(store)
        search.ask_indices(store)
    return ScanPlan(
        layout=state.layout,
        files=search.files(),
        residual=search.residual(),
        file_table=state.lists.files,
        state=state,
        predicate=predicate,
        requests=requests + search.requests,
        account=search.account(),
    )


__all__ = ["DataFile", "Scan", "ScanPlan", "plan"]
