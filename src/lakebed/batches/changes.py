"""Changes of rows between two versions, commit by commit: a batch change feed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.arrow.row_changes import CHANGE_FIELDS, ChangeStep, RowChanges
from lakebed.arrow.scan import output_schema
from lakebed.common.former_names import RefusesFormerNames
from lakebed.common.html import facts_to_html
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError, MissingDependencyError, VersionNotFoundError
from lakebed.model.predicate import TRUE
from lakebed.model.schema import Decimal, Primitive
from lakebed.plan.search import plan
from lakebed.state.history import Entry
from lakebed.state.readable import check_readable
from lakebed.state.state import State
from lakebed.store.base import Store

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.arrow.as_python import DtypeBackend

# Their rows stay the same, in other files.
_REARRANGING = frozenset({"compact", "promote"})


@dataclass(frozen=True, kw_only=True)
class Changes(RefusesFormerNames):
    """The rows that were inserted, deleted and updated between two versions of a dataset.

    Rows have the fields of the dataset, then `_change` (`insert`, `delete`, `update_before`,
    `update_after`), `_version` and `_committed_at`: the commit that made the change.

    Attributes:
        dataset: Name of the dataset.
        from_version: The version before the first change.
        to_version: The version after the last change.
        on: Key fields that match the two images of an update; empty for inserts and deletes only.
        is_net: True if only the two versions are compared, and not each commit between them.
        commit_count: Number of commits to read; those that only moved rows are left out.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-changes").create("numbers", descriptor)
    >>> commit = numbers.append([{"id": 1, "n": 5}, {"id": 2, "n": 6}])
    >>> commit = numbers.where("id = 2").update_rows({"n": "n + 1"})
    >>> numbers.changes(1, on="id").arrow().select(["id", "n", "_change", "_version"]).to_pylist()
    ... # doctest: +NORMALIZE_WHITESPACE
    [{'id': 2, 'n': 6, '_change': 'update_before', '_version': 2},
     {'id': 2, 'n': 7, '_change': 'update_after', '_version': 2}]
    """

    dataset: str
    from_version: int
    to_version: int
    on: tuple[str, ...]
    is_net: bool
    _changes: RowChanges = field(repr=False, compare=False)
    _steps: tuple[ChangeStep, ...] = field(repr=False, compare=False)

    @property
    def commit_count(self) -> int:
        """Number of commits to read."""
        return len(self._steps)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the rows."""
        return self._changes.schema

    def record_batches(self) -> pa.RecordBatchReader:
        """Return the changes as a stream of record batches, in the order of the commits.

        Of each commit the deleted rows and the images before an update come first.

        Raises:
            CorruptMetadataError: A data file is missing or damaged; while reading. A cleanup may
                have deleted it since `changes` was called.

        Cost:
            The files that the commits added or removed. Where a commit did both, rows are first
            compared with those at the same place of the other files, then the remaining ones by
            hashes of 64 bits: 16 bytes for each of up to 16 million rows at a time, and up to
            256 MiB of rows; what exceeds that is read again.
        """
        return pa.RecordBatchReader.from_batches(self.schema, self._changes.batches(self._steps))

    def arrow(self) -> pa.Table:
        """Return the changes as an Arrow table; as `record_batches`, all in memory."""
        return self.record_batches().read_all()

    def pandas(self, *, dtype_backend: DtypeBackend | None = None) -> pd.DataFrame:
        """Return the changes as a pandas DataFrame; like `arrow`.

        Args:
            dtype_backend: As for `View.pandas`.

        Raises:
            MissingDependencyError: pandas is not installed.
        """
        _check_installed("pandas", "Changes.pandas")
        from lakebed.arrow.as_python import pandas_frame

        return pandas_frame(self.arrow(), dtype_backend)

    def polars(self) -> pl.DataFrame:
        """Return the changes as a Polars DataFrame; like `arrow`.

        Raises:
            MissingDependencyError: Polars is not installed.
        """
        _check_installed("polars", "Changes.polars")
        import polars

        frame = polars.from_arrow(self.arrow())
        assert isinstance(frame, polars.DataFrame)  # of a table
        return frame

    if TYPE_CHECKING:  # aliases
        to_arrow = arrow
        to_pandas = pandas
        to_polars = polars

    def spark(self, spark: SparkSession | None = None) -> DataFrame:
        """Return the changes as a Spark DataFrame, read by its tasks.

        Args:
            spark: The session; None for the active one, else one started in this process.

        Raises:
            MissingDependencyError: pyspark or Java is not installed.

        Cost:
            No Spark job until the DataFrame is used. A commit that rewrote files is read by one
            task, the files of the others each by its own; see `record_batches` for its memory.
        """
        from lakebed.spark.changes_frame import changes_frame
        from lakebed.spark.session import get_session

        return changes_frame(get_session(spark), self._changes, self._steps)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over the changed rows, as dicts; as `record_batches`."""
        for batch in self.record_batches():
            yield from batch.to_pylist()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the changes as an Arrow stream, for consumers such as Polars and DuckDB."""
        return self.record_batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Return the schema of that stream."""
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        return (
            f"<Changes of {self.dataset!r}, version {self.from_version} to {self.to_version}: "
            f"{'net' if self.is_net else counted(self.commit_count, 'commit')}>"
        )

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Changes of {self.dataset}",
            {
                "versions": f"{self.from_version} to {self.to_version}",
                "read": "the two versions" if self.is_net else counted(self.commit_count, "commit"),
                "updates are matched by": ", ".join(self.on) or "nothing: inserts and deletes only",
                "files added": f"{sum(len(step.added) for step in self._steps):,}",
                "files removed": f"{sum(len(step.removed) for step in self._steps):,}",
            },
        )


def _check_installed(package: str, purpose: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingDependencyError.for_extra(package, package, purpose)


def find_changes(
    store: Store,
    before: State,
    after: State,
    *,
    current: State,
    entries: Sequence[Entry],
    on: tuple[str, ...],
    columns: tuple[str, ...] | None,
    is_net: bool,
) -> Changes:
    """Find the commits between two states, and the files that each exchanged.

    Args:
        store: The store that holds the dataset.
        before: State before the first change.
        after: State after the last change.
        current: The current state, which knows what cleanups gave up.
        entries: The history.
        on: Key fields.
        columns: Columns to return; None for all fields.
        is_net: True to compare the two states alone.

    Raises:
        VersionNotFoundError: A cleanup gave up a version between the two.
        InvalidInputError: The states are in the wrong order, or a column cannot be used.
        SchemaMismatchError: A column is unknown or named twice.
    """
    first, last = before.version, after.version
    if last < first:
        raise InvalidInputError(
            f"Version {last} comes before version {first}.",
            hint=f"Give the earlier version first: changes({last}, {first}).",
        )
    if last > current.version:
        raise InvalidInputError(
            f"Version {last} is a staged batch, which has changed nothing yet.",
            hint="Compare it with `diff`, or commit it first.",
        )
    names = tuple(output_schema(after.layout, columns).names)
    _check_columns(names, on, after)
    exchanged: list[tuple[Entry, tuple[str, ...], tuple[str, ...]]] = []
    if is_net:
        old, new = frozenset(before.labels), frozenset(after.labels)
        removed = tuple(label for label in before.labels if label not in new)
        added = tuple(label for label in after.labels if label not in old)
        if removed or added:
            entry = next(entry for entry in entries if entry.version == last)
            exchanged.append((entry, removed, added))
    else:
        for version in range(first, last):
            _check_kept(current, entries, version, first)
        exchanged = [
            (entry, tuple(entry.removed), tuple(entry.added))
            for entry in entries
            if first < entry.version <= last
            and entry.operation not in _REARRANGING
            and (entry.added or entry.removed)
        ]
    labels = dict.fromkeys(label for _, gone, came in exchanged for label in (*gone, *came))
    chosen = plan(after.with_older_files(labels), TRUE, requests=0, store=store)
    files = {file.label: file for file in chosen.files}
    steps = tuple(
        ChangeStep(
            version=entry.version,
            committed_at=entry.committed_at,
            removed=tuple(files[label] for label in removed),
            added=tuple(files[label] for label in added),
        )
        for entry, removed, added in exchanged
    )
    return Changes(
        dataset=after.name,
        from_version=first,
        to_version=last,
        on=on,
        is_net=is_net,
        _changes=RowChanges(store=store, layout=after.layout, columns=names, on=on),
        _steps=steps,
    )


def _check_kept(current: State, entries: Sequence[Entry], version: int, first: int) -> None:
    try:
        check_readable(current, entries, version)
    except VersionNotFoundError as error:
        if version == first:
            raise
        raise VersionNotFoundError(
            f"{error.message[:-1]}, and with it the changes of each commit since version {first}.",
            hint=f"{error.hint} Start there, or compare the two versions alone: net=True, or --net.",
        ) from error


def _check_columns(names: Sequence[str], on: Sequence[str], state: State) -> None:
    for added in CHANGE_FIELDS:
        if added.name in names:
            raise InvalidInputError(
                f"The dataset has a column {added.name!r}, which the changes add too.",
                hint="Leave it out of columns=.",
            )
    for name in names:
        if name not in state.descriptor.schema:
            raise InvalidInputError(
                f"Changes have no column {name!r}: it locates a row, and rewrites move rows.",
                hint="Name fields of the dataset.",
            )
    for name in on:
        kind = state.descriptor.schema.get(name).type
        if not isinstance(kind, Primitive | Decimal):
            raise InvalidInputError(
                f"Column {name!r} of type {kind} cannot be a key of changes.",
                hint="Name fields of plain types: numbers, text, bytes, dates and times.",
            )
        if on.count(name) > 1:
            raise InvalidInputError(f"`on` names {name!r} twice.", hint="Name it once.")
