"""Facts of a dataset: its partitions, schemas and published tables, and charts of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.commit import Partition, SchemaVersion, partitions_with
from lakebed.common.items import Items
from lakebed.groups.dataset_group import DatasetGroup
from lakebed.model.layout import Folder
from lakebed.state.state import descriptor_from

if TYPE_CHECKING:
    from lakebed.model.declared import OnFailure
    from lakebed.plots import Plots
    from lakebed.state.check_results import Verdict
    from lakebed.state.published import PublishedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCheck:
    """A check that every write of a dataset must pass.

    Attributes:
        name: Name of the check.
        check: The check, such as `condition('delay >= -120')`.
        on_failure: Action of a write for failing rows: `refuse`, `reject`, `quarantine` or `warn`.
        outcome: `passed` if all rows pass; `warned` or `not checked` if some may fail.
    """

    name: str
    check: str
    on_failure: OnFailure
    outcome: Verdict

    def _row_(self) -> dict[str, object]:
        return {
            "name": self.name,
            "check": self.check,
            "on failure": self.on_failure,
            "rows": self.outcome,
        }


class InspectGroup(DatasetGroup):
    """Facts of a dataset, each as a list of records, and charts."""

    _NAME = "inspect"

    def annotations(self) -> dict[str, Any]:
        """Return the entries that other tools, such as plateau, have put into the head.

        A property is an entry as well, which is left out unless another tool has changed its value.

        Cost:
            A read of the head.
        """
        return dict(self._dataset._source.load().state.annotations)

    def checks(self) -> Items[DeclaredCheck]:
        """Return the declared checks, and whether all rows pass them; see docs/checks.md.

        Cost:
            A read of the head.
        """
        state = self._dataset._source.load().state
        standing = state.standing_of_checks()
        return Items(
            DeclaredCheck(
                name=name, check=str(check), on_failure=check.on_failure, outcome=standing[name]
            )
            for name, check in state.descriptor.checks.items()
        )

    @property
    def plot(self) -> Plots:
        """Charts by matplotlib: `plot.file_sizes()`, `plot.partitions()`, `plot.commits()`.

        Each takes `ax=` and returns the Axes that it drew on.

        Raises:
            MissingDependencyError: matplotlib is not installed; raised when a chart is drawn.

        Cost:
            As `Dataset.files`; for commits the head and the history, which are few objects.
        """
        from lakebed.plots import Plots

        return Plots(self._dataset.files, self._dataset._commits)

    def partitions(self) -> Items[Partition]:
        """Return the partitions that hold live files, ordered by path.

        Cost:
            The head and the file table, which are few objects.
        """
        from lakebed.plan.partition_totals import partition_totals

        source = self._dataset._source
        state = source.load().state
        totals = partition_totals(source.store, state)
        return partitions_with(totals, state.layout.partition_level_types)

    def publications(self) -> Items[PublishedTable]:
        """Return the tables of other formats that show the dataset, and the version of each.

        The answer comes from the notes that publications keep beside the data; no metastore or
        catalog is queried. If a property names a table that is behind, the next commit publishes
        to it again.

        Cost:
            The head, one LIST, and one GET a table.
        """
        from lakebed.state import published

        return Items(
            published.tables(self._dataset._source.store, self._dataset._source.load().state)
        )

    def quarantines(self) -> tuple[str, ...]:
        """Return the names of the datasets that hold rejects of this dataset, in order.

        Usually that is `<name>_quarantine` alone; none if no row was set aside.

        Cost:
            A LIST of the repository, and the head of each of its datasets; of those with the fields
            of rejects, the record of their raw files.
        """
        from lakebed.work.ingest.quarantine import quarantines_of

        return quarantines_of(self._dataset._source.store, self._dataset.name)

    def schemas(self) -> Items[SchemaVersion]:
        """Return the current and all former schemas, oldest first.

        Cost:
            The head and the history, which are few objects.
        """
        state = self._dataset._source.load().state
        if not state.is_ours:
            only = SchemaVersion(
                number=1,
                version=state.version,
                committed_at=None,
                schema=state.descriptor.schema,
            )
            return Items([only])
        by_number: dict[int, SchemaVersion] = {}
        for entry in self._dataset._entries(state):
            if entry.descriptor is None:
                continue
            descriptor, lineage = descriptor_from(
                entry.descriptor, Folder.HISTORY.of(self._dataset.name)
            )
            by_number.setdefault(
                lineage.number,
                SchemaVersion(
                    number=lineage.number,
                    version=entry.version,
                    committed_at=entry.committed_at,
                    schema=descriptor.schema,
                ),
            )
        return Items(by_number.values())
