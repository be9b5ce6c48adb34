"""Small queries about many objects, run by tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lakebed.spark.raw_files import Parallelism, table_frame
from lakebed.spark.travel import in_tasks, naming_worker_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS_PER_TASK = 1_000


def ask_tasks(
    spark: SparkSession, keys: Sequence[str], ask: Callable[[Sequence[str]], Iterable[str]]
) -> Iterator[str]:
    """Yield the results of `ask` for keys, in no particular order.

    Args:
        spark: Session that runs the tasks.
        keys: Keys of the objects.
        ask: Function that tasks call with some of the keys.

    Cost:
        One Spark job. The driver holds the keys, and the answers of one task.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            answers = list(ask(batch.column(0).to_pylist()))
            yield pa.record_batch({"answer": pa.array(answers, pa.string())})

    cores = Parallelism.of(spark).cores or 1
    count = max(1, min(len(keys), max(cores, -(-len(keys) // _KEYS_PER_TASK))))
    frame = table_frame(spark, pa.table({"key": pa.array(keys, pa.string())}))
    answers = in_tasks(frame.repartition(count), run, "answer string")
    with naming_worker_errors():
        for row in answers.toLocalIterator():
            yield row.answer
