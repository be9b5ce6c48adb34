"""Differences of two versions: partitions, files, and on request rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakebed.arrow.conform import with_one_zero_and_nan
from lakebed.common.given import given_names
from lakebed.common.html import facts_to_html, shortened
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError
from lakebed.model.keys import partition_of_label
from lakebed.model.schema import ListOf, MapOf, Struct, Type
from lakebed.model.totals import known_total
from lakebed.state import file_table
from lakebed.state.snapshot import Snapshot, Source
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.view import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OPERATION = "operation"
ADDED, REMOVED = "added", "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDiff:
    """The changes in one partition.

    Attributes:
        path: Directory relative to the table; empty if unpartitioned.
        files_added: Data files that only the second version has.
        files_removed: Data files that only the first version has.
        rows_added: Entities in the added files; None if unknown.
        rows_removed: Entities in the removed files; None if unknown.
    """

    path: str
    files_added: int
    files_removed: int
    rows_added: int | None
    rows_removed: int | None


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The difference of two versions of a dataset.

    The counts are of files and of the rows in them: a row that was only rewritten counts on both
    sides. `rows` and `spark` read the files, and return the rows that really differ.

    Attributes:
        dataset: Name of the dataset.
        from_version: The first version.
        to_version: The second version; for a staged batch, the one that its commit would make.
        files_added: Keys of the data files that only the second version has.
        files_removed: Keys of the data files that only the first version has.
        partitions: The partitions that differ, ordered by path.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-diff").create("numbers", descriptor)
    >>> commits = [numbers.overwrite([{"n": 1}, {"n": n}]) for n in (2, 3)]
    >>> diff = numbers.diff(1, 2)
    >>> diff.rows_added, diff.rows_removed
    (2, 2)
    >>> diff.rows().to_pylist()
    [{'operation': 'added', 'n': 3}, {'operation': 'removed', 'n': 2}]
    """

    dataset: str
    from_version: int
    to_version: int
    files_added: tuple[str, ...]
    files_removed: tuple[str, ...]
    partitions: tuple[PartitionDiff, ...]
    _added: View = field(repr=False, compare=False)
    _removed: View = field(repr=False, compare=False)

    @property
    def rows_added(self) -> int | None:
        """Entities in the added files; None if unknown."""
        return known_total([partition.rows_added for partition in self.partitions])

    @property
    def rows_removed(self) -> int | None:
        """Entities in the removed files; None if unknown."""
        return known_total([partition.rows_removed for partition in self.partitions])

    @property
    def is_empty(self) -> bool:
        """True if both versions have the same files."""
        return not self.files_added and not self.files_removed

    def rows(self, columns: str | Sequence[str] | None = None) -> pa.Table:
        """Return the added and removed rows, with a column `operation`: added or removed.

        Equal rows on both sides cancel each other out, one for one: the result is the difference
        of two multisets. Null equals null and NaN equals NaN.

        Args:
            columns: Fields or partition fields, including `batch_id`; None for all fields. Rows
                are compared by these alone. Those of the newer version exist; a partition field is
                null for a version whose directories lack it.

        Raises:
            SchemaMismatchError: A column is unknown or named twice, or there is none.
            InvalidInputError: A column is called `operation`.
            CorruptMetadataError: A data file is missing or damaged.

        Cost:
            Reads the files that only one of the versions has. Memory: all their rows.
        """
        added, removed = self._added.arrow(columns), self._removed.arrow(columns)
        _check_names(added.column_names)
        table, words = rows_apart(added, removed)
        return table.add_column(0, OPERATION, pa.array(words, pa.string()))

    def spark(
        self, spark: SparkSession | None = None, columns: str | Sequence[str] | None = None
    ) -> DataFrame:
        """Return the same as `rows`, as a Spark DataFrame.

        Raises:
            SchemaMismatchError: A column is unknown or named twice, or there is none.
            InvalidInputError: A column is called `operation`, or is or holds a map, which Spark
                does not compare.
            MissingDependencyError: pyspark or Java is not installed.

        Cost:
            No Spark job until the DataFrame is used, which then reads both sides twice.
        """
        schema = self._added._source.cached().descriptor.schema
        names = list(schema.names if columns is None else given_names("columns", columns))
        _check_names(names)
        for column in schema:
            if column.name in names and _holds_map(column.type):
                word = "is" if isinstance(column.type, MapOf) else "holds"
                raise InvalidInputError(
                    f"Spark cannot compare column {column.name!r}, which {word} a map.",
                    hint="Leave it out of columns=.",
                )
        from lakebed.spark.difference import marked_difference

        added = self._added.spark(spark, columns)
        removed = self._removed.spark(spark, columns)
        return marked_difference(added, removed, OPERATION, (ADDED, REMOVED))

    def __repr__(self) -> str:
        return (
            f"<Diff of {self.dataset!r}, version {self.from_version} to {self.to_version}: "
            f"+{len(self.files_added):,} -{len(self.files_removed):,} files in "
            f"{counted(len(self.partitions), 'partition')}>"
        )

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Diff of {self.dataset}",
            {
                "versions": f"{self.from_version} to {self.to_version}",
                "files added": f"{len(self.files_added):,}",
                "files removed": f"{len(self.files_removed):,}",
                "rows in files added": _shown(self.rows_added),
                "rows in files removed": _shown(self.rows_removed),
                "partitions": shortened(
                    partition.path or "the only one" for partition in self.partitions
                )
                or "none",
            },
        )


def _shown(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _holds_map(kind: Type) -> bool:
    if isinstance(kind, Struct):
        return any(_holds_map(field.type) for field in kind.fields)
    return isinstance(kind, MapOf) or (isinstance(kind, ListOf) and _holds_map(kind.element))


def _check_names(names: Sequence[str]) -> None:
    if OPERATION in names:
        raise InvalidInputError(
            f"The dataset has a column {OPERATION!r}, which the result adds too.",
            hint="Leave it out of columns=.",
        )


def rows_apart(added: pa.Table, removed: pa.Table) -> tuple[pa.Table, Sequence[str]]:
    """Return the rows that only one of two tables has, and for each `added` or `removed`.

    Equal rows cancel each other out, one against one.

    Args:
        added: Rows of the second version.
        removed: Rows of the first version, with the same columns.
    """
    both = pa.concat_tables([added, removed]).combine_chunks()
    side = np.repeat([1, -1], [added.num_rows, removed.num_rows])
    numbers, firsts = _numbered(both)
    surplus = np.bincount(numbers, weights=side, minlength=len(firsts)).astype(np.int64)
    rows = np.repeat(firsts, np.abs(surplus))
    words = np.repeat(np.where(surplus > 0, ADDED, REMOVED), np.abs(surplus))
    order = np.lexsort((rows, words))
    return both.take(pa.array(rows[order])), words[order].tolist()


def _numbered(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return a number for each row, the same for equal rows, and the first row of each number."""
    numbers = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        codes = _codes(column)
        # Combine pair by pair, so that numbers stay small for any number of columns.
        _, numbers = np.unique(numbers * (codes.max(initial=0) + 1) + codes, return_inverse=True)
    _, firsts = np.unique(numbers, return_index=True)
    return numbers, firsts


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Return a number for each value, the same for equal values."""
    column = with_one_zero_and_nan(column)
    if pa.types.is_nested(column.type):
        # Arrow does not compare nested values; these texts are equal if the values are.
        texts = [repr(_with_one_zero(value)) for value in column.to_pylist()]
        column = pa.chunked_array([texts], pa.string())
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    codes: np.ndarray = encoded.indices.to_numpy(zero_copy_only=False)
    return codes.astype(np.int64)


def _with_one_zero(value: object) -> object:
    """Return a nested value in which -0.0 is 0.0; the text of NaN is the same for all of them."""
    match value:
        case float():
            return value + 0.0
        case dict():
            return {name: _with_one_zero(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_with_one_zero(inner) for inner in value]
    return value


def difference(store: Store, one: State, other: State) -> Diff:
    """Compare two states of a dataset.

    Args:
        store: The store that holds the dataset.
        one: The first state.
        other: The second state.

    Cost:
        The file table, which is few objects.
    """
    before, after = frozenset(one.labels), frozenset(other.labels)
    added = tuple(label for label in other.labels if label not in before)
    removed = tuple(label for label in one.labels if label not in after)
    newer = max(one, other, key=lambda state: (state.lineage.number, state.version))
    # A staged batch has a segment that the other state does not name.
    segments = tuple(dict.fromkeys((*one.lists.files, *other.lists.files)))
    counts = file_table.read_counts(store, segments) if added or removed else {}
    rows_added, rows_removed = _by_partition(added, counts), _by_partition(removed, counts)
    return Diff(
        dataset=one.name,
        from_version=one.version,
        to_version=other.version,
        files_added=tuple(map(other.layout.naming.key, added)),
        files_removed=tuple(map(one.layout.naming.key, removed)),
        partitions=tuple(
            PartitionDiff(
                path=path,
                files_added=len(rows_added.get(path, ())),
                files_removed=len(rows_removed.get(path, ())),
                rows_added=known_total(rows_added.get(path, ())),
                rows_removed=known_total(rows_removed.get(path, ())),
            )
            for path in sorted({*rows_added, *rows_removed})
        ),
        # Both sides are read with one schema, that of the newer state.
        _added=_view(store, _under(newer, other, added)),
        _removed=_view(store, _under(newer, one, removed)),
    )


def _by_partition(
    labels: Sequence[str], counts: Mapping[str, tuple[int, int]]
) -> dict[str, list[int | None]]:
    by_path: dict[str, list[int | None]] = {}
    for label in labels:
        rows = counts[label][0] if label in counts else None
        by_path.setdefault(partition_of_label(label), []).append(rows)
    return by_path


def view_of_files(store: Store, state: State, labels: tuple[str, ...]) -> View:
    """Return the rows of some data files of a state, as a pinned view."""
    return _view(store, state.with_labels(labels))


def _under(newer: State, own: State, labels: tuple[str, ...]) -> State:
    """Return some files of a state under the schema of a newer one."""
    is_alike = own.descriptor.partition_by == newer.descriptor.partition_by
    return newer.with_labels(labels) if is_alike else newer.with_older_files(labels)


def _view(store: Store, state: State) -> View:
    return View(Source(store, state.name, Snapshot(state, 0)))
