"""Few rows of a Spark frame: the driver writes them, and no Python need start for it.

A task of Python costs more than to write a hundred rows: its process starts and imports, and rows
of many partitions travel once more. So rows come to the driver instead, in three cases:

- The plan *proves* that there are few. Spark collects them, and no task of ours runs at all.
- The plan is *quickly begun*: nothing but Spark's own operators, over files of a moderate size. So
  the driver asks for a few rows, and for one more than it would write. If that comes too, or a row
  is large, what came is thrown away, and tasks do all of it.
- Otherwise each task sees how many rows it has: it gives few of them to the driver in its answer,
  and writes more by itself.

What is written is of one evaluation of the query, also if it gives other rows each time. It is
evaluated once, but where the driver has begun it in vain; user code is never begun so. What the
driver receives is bounded: by the rows that it asks for and the size that each may have, or by the
number of tasks that may give rows times what each may give.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

# A task of few rows imports this module of Lakebed and `jars`, and no other: the kernel takes longer
# to load than to write them.

FEW_ROWS = 2_000
_FEW_BYTES = 256 * 2**10  # of a task
_GIVING_TASKS = 64  # the first of them; so that the driver receives at most 16 MiB

DRIVER_ROWS = 2**14  # that the driver asks for, at most
_ROW_BYTES = 4 * 2**10  # that each of them may have; so that it receives at most 64 MiB
# Of the files that a query reads, so that what was begun in vain is little beside the write.
_NARROW_BYTES = 256 * 2**20  # where each task stops as soon as it has enough rows
_WIDE_BYTES = 16 * 2**20  # where it must come to an end before the first row is known
_UNFILTERED_BYTES = 2**20  # larger files surely have more rows, where nothing is filtered
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
    """Return the rows of a frame that has few; None of any other, and where it is not known.

    Cost:
        To look at the plan. Where it has few rows, the Spark job of the frame itself; where it
        may have few and has not, some of that, see above.
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
    """Return how many rows a frame has at most, as its plan proves it; None if it is not known.

    It is what lets Spark's optimizer take a limit out of a plan, and no estimate. Without a JVM in
    this process, as on Spark Connect, that is not known.
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
    """Return as many rows as the driver takes, and one more, none of which is large.

    Of a row that is larger than the driver takes, nothing comes but the mark that it is.

    Returns:
        The rows, with a column `_IS_LARGE` if they may be large; None where rows may be large in
        a way that a query cannot see.
    """
    if len({name.casefold() for name in frame.columns}) < len(frame.columns):
        return None
    fixed_bytes, texts = 0, dict[str, list[str]]()
    for field in frame.schema.fields:
        measured = _measured(field.dataType, _quoted(field.name))
        if measured is None:
            return None
        fixed_bytes += measured[0]
        texts[field.name] = measured[1]
    if fixed_bytes >= _ROW_BYTES:
        return None
    sizes = [size for of_column in texts.values() for size in of_column]
    if sizes:
        # As text, since each part of an expression would be a call to the JVM.
        mark = _quoted(_IS_LARGE)
        marked = frame.selectExpr(
            "*", f"{' + '.join(sizes)} > {_ROW_BYTES - fixed_bytes} AS {mark}"
        )
        kept = [
            f"CASE WHEN NOT {mark} THEN {_quoted(name)} END AS {_quoted(name)}"
            if texts[name]
            else _quoted(name)
            for name in frame.columns
        ]
        frame = marked.selectExpr(*kept, mark)
    return frame.limit(DRIVER_ROWS + 1)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _measured(kind: DataType, place: str) -> tuple[int, list[str]] | None:
    """Return the bytes that a value has at least, and the sizes of its texts; None if unknown."""
    from pyspark.sql import types

    # Spark 4.0 has no name for all types of time together.
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
        part = _measured(field.dataType, f"{place}.{_quoted(field.name)}")
        if part is None:
            return None
        total_bytes += part[0]
        sizes += part[1]
    return total_bytes, sizes


def _is_quickly_begun(frame: DataFrame) -> bool:
    """Return whether it costs little to begin the query of a frame, and to begin it again.

    Without a JVM in this process, as on Spark Connect, that is not known.
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
    """Return the operators of an optimized plan, and the bytes of what it reads."""
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
    """Return a task that gives few rows to the driver, and leaves more of them to another task.

    What the other task needs is loaded only where it runs.

    Args:
        task: Task for the remaining rows.
        message: The columns of its messages. Rows come as the `answer` of one: as what
            `lakebed.spark.tasks.TaskAnswer` is on the wire.
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
    """Return the first batches that hold rows, and whether they are all, and few."""
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
