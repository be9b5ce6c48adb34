"""Small Spark frames: the driver writes their rows, without starting Python in the workers.

A Python task costs more than writing a hundred rows: its process starts and imports, and rows of
many partitions are shuffled once more. So the driver receives the rows instead, in three cases:

- The plan *proves* that there are few. Spark collects them, and no task of ours runs at all.
- The plan is *quickly begun*: only Spark's own operators, over files of a moderate size. So the
  driver asks for one row more than it would write. If it receives that row too, or a row is large,
  the received rows are dropped, and tasks write all rows.
- Otherwise each task counts its rows: it sends a few rows to the driver in its answer, and writes
  more rows itself.

The written rows are always those of one evaluation of the query, even if it returns other rows each
time. The query is evaluated once, except when the driver has begun it in vain; that never happens
with user code. The driver receives a bounded amount: the rows that it asks for times their maximal
size, or the number of tasks that may send rows times the maximal size of their answers.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from lakebed.model.predicate import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

# A task of few rows imports only this module of Lakebed and `jars`: loading the kernel takes longer
# than writing the rows.

FEW_ROWS = 2_000
_FEW_BYTES = 256 * 2**10  # sent by a task
_GIVING_TASKS = 64  # the first tasks; the driver receives at most 16 MiB

DRIVER_ROWS = 2**14  # maximal number of rows that the driver asks for
_ROW_BYTES = 4 * 2**10  # maximal size of such a row; the driver receives at most 64 MiB
# Limits of the files that a query reads, which keep the cost of a query begun in vain small.
_NARROW_BYTES = 256 * 2**20  # if each task stops as soon as it has enough rows
_WIDE_BYTES = 16 * 2**20  # if tasks must end before the first row is known
_UNFILTERED_BYTES = 2**20  # without a filter, larger files surely have more rows
_MOST_NODES = 40

_NARROW = frozenset({"GlobalLimit", "LocalLimit", "Project", "Filter", "Union"})
_WIDE = frozenset(
    {
        "Aggregate", "Distinct", "Except", "Expand", "Generate", "Intersect", "Join", "Offset",
        "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample", "Sort",
        "Window", "WindowGroupLimit",
    }
)  # fmt: skip
_LEAVES = frozenset({"InMemoryRelation", "LocalRelation", "LogicalRelation", "Range"})

_IS_LARGE = "lakebed.is_large"  # no field has a dot in its name

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def rows_if_few(frame: DataFrame) -> pa.Table | None:
    """Return the rows of a frame that has few; None if it has many, or their number is unknown.

    Cost:
        A look at the plan. For few rows, the Spark job of the frame itself; if there turn out to be
        many, a part of that job, see above.
    """
    bound = _bound(frame)
    if (bound is not None and bound > DRIVER_ROWS) or _has_required_parts(frame.schema):
        return None
    if _is_local(frame):
        # Its rows are values in the plan: there is no query that could run twice.
        rows = frame.limit(DRIVER_ROWS + 1).toArrow()
        return rows if rows.num_rows <= DRIVER_ROWS else None
    some = _some_rows(frame)
    if some is None or (bound is None and not _is_quickly_begun(some)):
        return None
    rows = some.toArrow()
    if rows.num_rows > DRIVER_ROWS:
        return None
    if _IS_LARGE in rows.column_names:
        if any(rows[_IS_LARGE].to_pylist()):
            return None
        rows = rows.drop_columns(_IS_LARGE)
    return rows


def _bound(frame: DataFrame) -> int | None:
    """Return the upper limit of rows that the plan of a frame proves; None if unknown.

    This is not an estimate: Spark's optimizer removes limits from plans by it. It is unknown
    without a JVM in this process, as on Spark Connect.
    """
    try:
        bound = frame._jdf.queryExecution().analyzed().maxRows()
        return int(bound.get()) if bound.isDefined() else None
    except Exception:  # noqa: BLE001 - internals of Spark, which each release may change
        return None


def _is_local(frame: DataFrame) -> bool:
    """Return whether the rows of a frame are values in its plan."""
    try:
        return frame.isLocal()
    except Exception:  # noqa: BLE001 - what is wrong with the frame shows when it is used
        return False


def _has_required_parts(schema: StructType) -> bool:
    """Return whether records have non-null fields: Spark's Arrow cannot cast null records."""
    inner = [cast("StructType", f.dataType) for f in schema.fields if hasattr(f.dataType, "fields")]
    return any(
        not all(field.nullable for field in record.fields) or _has_required_parts(record)
        for record in inner
    )


def _some_rows(frame: DataFrame) -> DataFrame | None:
    """Return as many rows as the driver writes, and one more, without the values of large rows.

    The driver receives only a mark instead of a row that is too large.

    Returns:
        The rows, with a column `_IS_LARGE` if they may be large; None if a query cannot measure
        the size of the rows.
    """
    if len({name.casefold() for name in frame.columns}) < len(frame.columns):
        return None
    fixed_bytes, texts = 0, dict[str, list[str]]()
    for field in frame.schema.fields:
        measured = _measured(field.dataType, quoted_name(field.name))
        if measured is None:
            return None
        fixed_bytes += measured[0]
        texts[field.name] = measured[1]
    if fixed_bytes >= _ROW_BYTES:
        return None
    sizes = [size for of_column in texts.values() for size in of_column]
    if sizes:
        # As text, since each part of an expression object would be a call to the JVM.
        mark = quoted_name(_IS_LARGE)
        marked = frame.selectExpr(
            "*", f"{' + '.join(sizes)} > {_ROW_BYTES - fixed_bytes} AS {mark}"
        )
        kept = [
            f"CASE WHEN NOT {mark} THEN {quoted_name(name)} END AS {quoted_name(name)}"
            if texts[name]
            else quoted_name(name)
            for name in frame.columns
        ]
        frame = marked.selectExpr(*kept, mark)
    return frame.limit(DRIVER_ROWS + 1)


def _measured(kind: DataType, place: str) -> tuple[int, list[str]] | None:
    """Return the minimal size of a value, and expressions for its texts; None if unknown."""
    from pyspark.sql import types

    # Spark 4.0 has no common class for all types of time.
    times = (types.DateType, types.TimestampType, types.TimestampNTZType)
    fixed = (types.NumericType, *times, types.BooleanType, types.NullType)
    if isinstance(kind, fixed):
        return 16, []
    if isinstance(kind, types.StringType):
        return 16, [f"CAST(COALESCE(OCTET_LENGTH({place}), 0) AS BIGINT)"]
    if not isinstance(kind, types.StructType):
        return None
    total_bytes, sizes = 0, []
    for field in kind.fields:
        part = _measured(field.dataType, f"{place}.{quoted_name(field.name)}")
        if part is None:
            return None
        total_bytes += part[0]
        sizes += part[1]
    return total_bytes, sizes


def _is_quickly_begun(frame: DataFrame) -> bool:
    """Return whether it costs little to begin the query of a frame, and to begin it again.

    False without a JVM in this process, as on Spark Connect.
    """
    try:
        names, size_bytes = _looked_at(frame._jdf.queryExecution().optimizedPlan())
    except Exception:  # noqa: BLE001 - internals of Spark, which each release may change
        return False
    if not names <= _NARROW | _WIDE | _LEAVES:
        return False
    if not names <= _NARROW | _LEAVES:
        return size_bytes <= _WIDE_BYTES
    return size_bytes <= (_NARROW_BYTES if "Filter" in names else _UNFILTERED_BYTES)


def _looked_at(plan: Any) -> tuple[set[str], int]:
    """Return the operators of an optimized plan, and the number of bytes that it reads."""
    if not plan.subqueriesAll().isEmpty():
        return {"a query within"}, 0
    names: set[str] = set()
    size_bytes = count = 0
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        name, children = node.nodeName(), node.children()
        count += 1
        if count > _MOST_NODES:
            return {"too much to look at"}, 0
        names.add(name)
        if name in _LEAVES:
            size_bytes += int(str(node.stats().sizeInBytes()))
        waiting += [children.apply(number) for number in range(children.size())]
    return names, size_bytes


def giving_few(task: Task, message: pa.Schema) -> Task:
    """Return a task that sends few rows to the driver, and passes more rows to another task.

    The imports of the other task are loaded only where it runs.

    Args:
        task: Task for the remaining rows.
        message: The columns of its messages. The rows are sent as the `answer` of a message, in
            the form of `lakebed.spark.tasks.TaskAnswer`.
    """
    from pyspark import cloudpickle

    pickled = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]  # of pyspark

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting = iter(batches)
        first, is_few = _first(waiting)
        if not is_few:
            yield from pickle.loads(pickled)(itertools.chain(first, waiting))
        elif first:
            yield _giving(first, message)

    return run


def _first(waiting: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
    """Return the first batches that hold rows, and whether they hold all rows and are few."""
    first: list[pa.RecordBatch] = []
    if not _may_give():
        return first, False
    row_count = size_bytes = 0
    for batch in waiting:
        if batch.num_rows:
            first.append(batch)
            row_count += batch.num_rows
            size_bytes += batch.nbytes
        if row_count > FEW_ROWS or size_bytes > _FEW_BYTES:
            return first, False
    return first, True


def _may_give() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.partitionId() < _GIVING_TASKS


def _giving(batches: Sequence[pa.RecordBatch], message: pa.Schema) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    given = msgspec.msgpack.encode({"rows": memoryview(sink.getvalue())})
    columns = [
        pa.array([given if field.name == "answer" else None], field.type) for field in message
    ]
    return pa.RecordBatch.from_arrays(columns, schema=message)
