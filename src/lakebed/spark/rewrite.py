"""Questions to many files, and their rewriting, by Spark tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pyarrow as pa

from lakebed.arrow.digest import RowDigest
from lakebed.arrow.rewrite import Job, Rewritten, Work, discard, rewrite
from lakebed.errors import LakebedError
from lakebed.spark.answers import read_error, table_from_bytes, table_to_bytes, write_error
from lakebed.spark.raw_files import cores_of
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Item = TypeVar("_Item")
_ANSWER = "answer binary, error string"
_TASKS_PER_CORE = 2  # so that the last of them do not keep the others waiting for long


def task_count(spark: SparkSession) -> int:
    """Return into how many tasks work is best divided."""
    return _TASKS_PER_CORE * cores_of(spark)


def run_in_tasks(
    spark: SparkSession, items: Sequence[_Item], work: Callable[[_Item], bytes]
) -> list[bytes | LakebedError]:
    """Return what `work` answers on each item, in their order; an error of ours as itself.

    Cost:
        One Spark job of a task an item.
    """
    if not items:
        return []

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _answer(number, items[number], work)

    numbers = spark.range(0, len(items), 1, len(items))
    rows = numbers.mapInArrow(run, f"number long, {_ANSWER}").collect()
    found: list[bytes | LakebedError] = [b""] * len(items)
    for row in rows:
        found[row.number] = bytes(row.answer) if row.error is None else read_error(row.error)
    return found


def _answer(number: int, item: _Item, work: Callable[[_Item], bytes]) -> pa.RecordBatch:
    answer, error = None, None
    try:
        answer = work(item)
    except LakebedError as exc:
        # An answer instead of a failure: Spark would only try the same again.
        error = write_error(exc)
    return pa.record_batch(
        {
            "number": pa.array([number], pa.int64()),
            "answer": pa.array([answer], pa.binary()),
            "error": pa.array([error], pa.string()),
        }
    )


class _Told(msgspec.Struct):
    """What a task tells of its work, besides the facts."""

    carried: dict[str, str]
    origins: dict[str, tuple[tuple[str, int], ...]]
    read: tuple[int, int, int]
    given: dict[str, tuple[int, int, int]]
    found: dict[str, tuple[int, int, int]]


def rewrite_with_spark(
    spark: SparkSession, store: Store, job: Job, works: Sequence[Work]
) -> list[Rewritten]:
    """Write files anew by tasks, a work each; see `lakebed.arrow.rewrite`.

    Returns:
        What each of the works has written.

    Raises:
        LakebedError: A file cannot be read, or the store failed. What other tasks have written
            is deleted.

    Cost:
        One Spark job. The driver receives some hundred bytes for each new file.
    """
    answers = run_in_tasks(spark, works, lambda work: _encode(rewrite(store, job, work)))
    parts = [_decode(answer) for answer in answers if isinstance(answer, bytes)]
    for answer in answers:
        if isinstance(answer, LakebedError):
            discard(store, job.target, parts)
            raise answer
    return parts


def _encode(part: Rewritten) -> bytes:
    told = _Told(
        carried=dict(part.carried),
        origins=dict(part.origins),
        read=_numbers(part.read),
        given={partition: _numbers(one) for partition, one in part.given.items()},
        found={partition: _numbers(one) for partition, one in part.found.items()},
    )
    return msgspec.msgpack.encode((table_to_bytes(part.facts), told))


def _numbers(digest: RowDigest) -> tuple[int, int, int]:
    return (digest.row_count, digest.first, digest.second)


def _decode(data: bytes) -> Rewritten:
    facts, told = msgspec.msgpack.decode(data, type=tuple[bytes, _Told])
    return Rewritten(
        facts=table_from_bytes(facts),
        carried=told.carried,
        origins=told.origins,
        read=RowDigest(*told.read),
        given={partition: RowDigest(*one) for partition, one in told.given.items()},
        found={partition: RowDigest(*one) for partition, one in told.found.items()},
    )
