"""Spark's own reader with our planner, which chooses the files of a query while Spark plans it.

Spark skips files by their partition columns only. It cannot know which files `time_hour >= …`,
bounds of columns, or an inverted index exclude. But it asks an object for the files of a relation
and passes it the filters of the query. On a classic session, that object can be a Python object. It
returns Spark's own list of the remaining files, so nothing else changes.

These interfaces are not public, so they are used only if all of them are found. If an answer fails,
only the pruning is lost.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.common.recent import Recent
from lakebed.model.predicate import Predicate, all_of
from lakebed.model.schema import Type
from lakebed.spark.callbacks import note_thread, start_callbacks, watch_threads
from lakebed.spark.session import is_classic
from lakebed.spark.spark_errors import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

_KEPT_LISTS = 16  # lists of files that are kept for repeated queries
_numbers = itertools.count(1)

Choose = Callable[[Predicate], Sequence[int]]
"""Returns the positions in a list of the files that may hold rows for which a predicate is true."""
Listing = Callable[[Sequence[int]], "DataFrame"]
"""Returns a frame of some files of the list."""


def with_pruning(
    spark: SparkSession,
    frame: DataFrame,
    types: Mapping[str, Type],
    choose: Choose,
    listing: Listing,
    file_count: int,
) -> DataFrame:
    """Return a frame that reads only the files that a query needs; else the given frame.

    Args:
        spark: Session of the frame.
        frame: Unchanged frame of Spark's own reader.
        types: Types of its columns.
        choose: Chooses the needed files.
        listing: Returns a frame of some files, with the same columns and the same reader.
        file_count: Number of all files.

    Cost:
        No request and no job; for each query with a filter the cost of `choose` and `listing`.
    """
    if not is_classic(spark):
        return frame
    try:
        return _with_pruning(spark, frame, types, choose, listing, file_count)
    except spark_errors(ImportError, AttributeError, TypeError) as exc:
        _log.info("no pruning by our planner in this release of Spark reason=%s", exc)
        return frame


def _with_pruning(
    spark: Any,
    frame: Any,
    types: Mapping[str, Type],
    choose: Choose,
    listing: Listing,
    file_count: int,
) -> DataFrame:
    from lakebed.spark.jvm_filters import said_by_jvm

    relation = _relation_of(frame)
    datasources = spark._jvm.org.apache.spark.sql.execution.datasources
    strategy = getattr(getattr(datasources, "DataSourceStrategy$"), "MODULE$")
    start_callbacks(spark._sc._gateway)
    watch_threads(spark._sc._gateway)

    def said_by(expression: Any) -> Predicate | None:
        translated = strategy.translateFilter(expression, True)  # noqa: FBT003 - Spark's signature
        return said_by_jvm(translated.get(), types) if translated.isDefined() else None

    files = PrunedFiles(
        whole=relation.location(),
        said_by=said_by,
        choose=choose,
        listing=lambda places: _relation_of(listing(places)).location(),
        file_count=file_count,
    )
    pruned = relation.copy(
        files,
        relation.partitionSchema(),
        relation.dataSchema(),
        relation.bucketSpec(),
        relation.fileFormat(),
        relation.options(),
        relation.sparkSession(),
    )
    made: DataFrame = type(frame)(spark._jsparkSession.baseRelationToDataFrame(pruned), spark)
    return made


def _relation_of(frame: Any) -> Any:
    """Return the relation of a frame that only reads files."""
    return frame._jdf.queryExecution().analyzed().relation()


class PrunedFiles:
    """The files of a relation; a `FileIndex` of Spark, with its method names."""

    def __init__(
        self,
        *,
        whole: Any,
        said_by: Callable[[Any], Predicate | None],
        choose: Choose,
        listing: Callable[[Sequence[int]], Any],
        file_count: int,
    ) -> None:
        self._whole = whole
        self._said_by = said_by
        self._choose = choose
        self._listing = listing
        self._file_count = file_count
        self._lists = Recent[tuple[int, ...], Any](_KEPT_LISTS)
        self._number = next(_numbers)

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: N802 - Spark's name
        """Return the files that a query needs, by partition."""
        try:
            note_thread()
            chosen = self._chosen(partition_filters, data_filters)
        except Exception as exc:  # noqa: BLE001 - a query is right without pruning
            _log.warning("files not pruned reason=%s: %s", type(exc).__name__, exc)
            chosen = self._whole
        if chosen is None:
            return self._whole.listFiles(partition_filters, data_filters).take(0)
        return chosen.listFiles(partition_filters, data_filters)

    def _chosen(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the list of the files to read; None if there are none."""
        filters = _elements(data_filters)
        if not filters:
            return self._whole  # Spark filters partitions itself
        filters += _elements(partition_filters)
        predicate = all_of([said for said in map(self._said_by, filters) if said is not None])
        places = tuple(self._choose(predicate))
        if len(places) == self._file_count:
            return self._whole
        if not places:
            return None
        listed = self._lists.get(places)
        if listed is None:
            listed = self._listing(places)
            self._lists.put(places, listed)
        return listed

    def rootPaths(self) -> Any:  # noqa: N802 - Spark's name
        """Return the paths that the reader received."""
        return self._whole.rootPaths()

    def inputFiles(self) -> Any:  # noqa: N802 - Spark's name
        """Return the URIs of all files."""
        return self._whole.inputFiles()

    def refresh(self) -> None:
        """Do nothing: files are immutable, and a view changes its version as a whole."""

    def sizeInBytes(self) -> Any:  # noqa: N802 - Spark's name
        """Return the size of all files."""
        return self._whole.sizeInBytes()

    def partitionSchema(self) -> Any:  # noqa: N802 - Spark's name
        """Return the columns of the path."""
        return self._whole.partitionSchema()

    def metadataOpsTimeNs(self) -> Any:  # noqa: N802 - Spark's name
        """Return the duration of the listing, if known."""
        return self._whole.metadataOpsTimeNs()

    def hashCode(self) -> int:  # noqa: N802 - Java's name
        """Return a hash code that is equal for equal objects."""
        return self._number

    def equals(self, other: Any) -> bool:
        """Return whether the other object is this one."""
        return other is self or (other is not None and other.toString() == self.toString())

    def toString(self) -> str:  # noqa: N802 - Java's name
        """Return the text that plans show."""
        return f"LakebedFiles({self._number})"

    class Java:
        """Return the form for py4j."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)


def _elements(sequence: Any) -> list[Any]:
    return [sequence.apply(number) for number in range(sequence.size())]
