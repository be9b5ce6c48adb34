"""UPDATE, MERGE and DELETE by Spark's own plan: it decides on rows, and our rewrite changes them.

Spark hands back all rows of the files that it has read. Its writers in the JVM would drop the
columns that name a row, so the rows are taken from the plan of the statement instead: a frame with
what happens to each row, its new values, and its name. Rows that stay as they are need no values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError
from lakebed.model.predicate import TRUE
from lakebed.spark.catalog.scans import GroupReads, LakeScanBuilder
from lakebed.spark.catalog.session_jvm import Jvm, Made, Proxied, interfaces, release_of
from lakebed.spark.catalog.streams import TableStream
from lakebed.spark.decided_rows import (
    FILE,
    OPERATION,
    ROW,
    UNCHANGED,
    RowOperation,
    RowStatement,
)
from lakebed.state.history import MERGE, UPDATE_ROWS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.spark.catalog.lake_tables import TableVersion

_OPERATIONS = {"UPDATE": UPDATE_ROWS, "MERGE": MERGE, "DELETE": "delete"}
_EXECUTION = "spark.sql.execution.id"  # a property of the thread
OPERATION_OF_SPARK = "__row_operation"


class RowChange(Proxied):
    """One statement that changes rows of a table."""

    Java = interfaces("connector.write.RowLevelOperation")

    def __init__(self, jvm: Jvm, opened: TableVersion, command: Any) -> None:
        """Keep the version that the statement reads.

        Args:
            jvm: The JVM of the session.
            opened: Version of the table.
            command: Kind of the statement, of Spark.
        """
        super().__init__(jvm)
        self._opened = opened
        self._command = command
        self._group = GroupReads()

    def command(self) -> Any:
        """Return the kind of the statement."""
        return self._command

    def description(self) -> str:
        """Return the text that plans show."""
        return f"lakebed {self._command.toString()}"

    def requiredMetadataAttributes(self) -> Any:
        """Return the columns that name a row, and the one that is null in a changed row."""
        return self._jvm.to_references((FILE, ROW, UNCHANGED))

    def newScanBuilder(self, _options: Any) -> Any:
        """Return the builder of the read of whole files."""
        stream = TableStream(self._jvm, self._opened, {})
        self._group.has_runtime_filter = not _reads_unresolved_view(self._jvm)
        return LakeScanBuilder(self._jvm, self._opened, stream, self._group)

    def newWriteBuilder(self, _info: Any) -> Any:
        """Return the builder of the write."""
        jvm = self._jvm
        write = Made(
            jvm,
            "connector.write.Write",
            toBatch=self._change,
            description=self.description,
            **jvm.no_metrics,
        )
        return Made(jvm, "connector.write.WriteBuilder", build=lambda: write)

    def _change(self) -> Any:
        """Carry the statement out, and return a write without rows for Spark."""
        jvm, opened = self._jvm, self._opened
        frame = take_rows(jvm, opened)
        operation = _OPERATIONS[self._command.toString()]
        if operation == UPDATE_ROWS:  # it removes no row, so the others need not be known
            frame = frame.where(f"`{OPERATION}` <> {RowOperation.COPY}")
        statement = RowStatement(
            operation=operation,
            base=opened.state,
            read=self._group.files,
            may_delete=operation != UPDATE_ROWS,
            condition=self._group.condition,
        )
        opened.dataset._change_rows(frame, statement)
        writers = jvm.sources.noop
        factory = getattr(getattr(writers, "NoopWriterFactory$"), "MODULE$")
        return Made(
            jvm,
            "connector.write.BatchWrite",
            createBatchWriterFactory=lambda _info: factory,
            useCommitCoordinator=False,
            commit=lambda *_messages: None,
            abort=lambda _messages: None,
        )


def insert_by_merge(opened: TableVersion, frame: DataFrame) -> None:
    """Add the rows of a MERGE that only inserts, which Spark plans as an append.

    Another commit since the version that the MERGE has read is a conflict: it may have added rows
    that match.
    """
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    nothing = F.lit(None).cast("long")
    rows = frame.select(
        F.lit(int(RowOperation.INSERT)).alias(OPERATION),
        *[F.col(f"`{name}`") for name in frame.columns],
        nothing.alias(FILE),
        nothing.alias(ROW),
    )
    statement = RowStatement(
        operation=MERGE, base=opened.state, read=(), may_delete=False, condition=TRUE
    )
    opened.dataset._change_rows(rows, statement)


def is_in_merge(jvm: Jvm) -> bool:
    """Return whether the statement that runs in this thread is a MERGE that only inserts."""
    execution = _find_execution(jvm)
    if execution is None:
        return False
    statement = execution.logical()
    kind = statement.getClass().getSimpleName()
    if kind != "AppendData":
        return bool(kind == "InsertOnlyMerge")
    # Spark before 4.2 has no name for it. The query of a MERGE reads the very columns that it
    # writes; that of an INSERT reads the table as another one.
    written, leaves = statement.table().outputSet(), statement.query().collectLeaves()
    read = (leaves.apply(number).outputSet() for number in range(leaves.size()))
    return any(written.subsetOf(columns) for columns in read)


def _find_execution(jvm: Jvm) -> Any:
    """Return Spark's execution that runs in this thread; None if there is none."""
    number = jvm.spark.sparkContext.getLocalProperty(_EXECUTION)
    return None if number is None else jvm.sql.execution.SQLExecution.getQueryExecution(int(number))


def _reads_unresolved_view(jvm: Jvm) -> bool:
    """Return whether Spark would fail if it looked for the files with a match of a MERGE.

    Spark 4.1 looks for them by a copy of the source. In the copy of a temporary view that was made
    of a DataFrame, it leaves the tables of catalogs unresolved, and then has no plan for them
    (SPARK-57539). Without that query, the statement reads all files that its condition leaves.
    """
    execution = _find_execution(jvm) if release_of(jvm.spark) == (4, 1) else None
    if execution is None:
        return False
    subqueries = execution.logical().subqueriesAll()
    for number in range(subqueries.size()):
        leaves = subqueries.apply(number).collectLeaves()
        names = (leaves.apply(n).getClass().getSimpleName() for n in range(leaves.size()))
        if "V2TableReference" in names:
            return True
    return False


def take_rows(jvm: Jvm, opened: TableVersion) -> DataFrame:
    """Return the rows that the statement of this thread is about to write, and leave none to Spark.

    Returns:
        What happens to each row, its columns, and its name, by the names of `OPERATION`, of the
        table's columns, and of `FILE` and `ROW`. The rows are computed when they are asked for.

    Raises:
        InvalidInputError: The plan of the statement has another form than Spark 4.0 to 4.3 give it.
    """
    execution = _find_execution(jvm)
    plan = None if execution is None else _find_write(execution.executedPlan())
    fields = {} if plan is None else {f.getName(): f for f in plan.getClass().getDeclaredFields()}
    if plan is None or "query" not in fields:
        raise _unknown_plan(jvm, opened, "plans the statement in another form")
    query = plan.query()
    names = list(query.schema().fieldNames())
    wanted = [OPERATION_OF_SPARK, *opened.columns]
    identity = names[len(wanted) :]
    if names[: len(wanted)] != wanted or set(identity) != {FILE, ROW, UNCHANGED}:
        raise _unknown_plan(jvm, opened, f"hands over other columns: {', '.join(names)}")
    rows = query.session().internalCreateDataFrame(query.execute(), query.schema(), False)  # noqa: FBT003
    nothing = jvm.session.emptyDataFrame().queryExecution().executedPlan()
    none = jvm.parts.copied(nothing, "output", query.output())
    fields["query"].setAccessible(True)
    fields["query"].set(plan, none)
    return _with_operations(jvm.to_frame(rows).toDF(OPERATION, *opened.columns, *identity))


def _with_operations(frame: DataFrame) -> DataFrame:
    """Return rows with what happens to each. Spark before 4.2 does not tell changed rows."""
    from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

    file, unchanged, said = (F.col(f"`{name}`") for name in (FILE, UNCHANGED, OPERATION))
    is_changed = unchanged.isNull() | (said == int(RowOperation.UPDATE))
    operation = (
        F.when(file.isNull(), int(RowOperation.INSERT))
        .when(is_changed, int(RowOperation.UPDATE))
        .otherwise(int(RowOperation.COPY))
    )
    return frame.withColumn(OPERATION, operation).drop(UNCHANGED)


def _unknown_plan(jvm: Jvm, opened: TableVersion, what: str) -> InvalidInputError:
    return InvalidInputError(
        f"This Spark {jvm.spark.version} {what}.",
        hint=f"Give the statement, with the name {opened.name!r} alone, to "
        "lake.sql(text, spark, write=True).",
    )


def _find_write(plan: Any) -> Any:
    """Return the node of a plan that replaces rows; None if there is none."""
    if plan.getClass().getSimpleName() == "ReplaceDataExec":
        return plan
    children = plan.children()
    found = (_find_write(children.apply(number)) for number in range(children.size()))
    return next((node for node in found if node is not None), None)


__all__ = ["RowChange", "insert_by_merge", "is_in_merge", "take_rows"]
