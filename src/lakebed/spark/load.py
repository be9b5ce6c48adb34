"""Raw files sifted by Spark tasks, each of which reads a group of files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from lakebed.arrow.reading.files import RawFile
from lakebed.arrow.reading.sift import Counts, Job, OnFile, Sifted, sift, tell_nobody
from lakebed.errors import InvalidInputError
from lakebed.index.postings import keys_of, postings_in
from lakebed.spark.answers import read_error, table_from_bytes, table_to_bytes, write_error
from lakebed.spark.raw_files import grouped_by_size
from lakebed.state.caps import concat_facts
from lakebed.state.facts import facts_schema
from lakebed.state.sources import Runs
from lakebed.store.base import Store, delete_or_leave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.spark.telling import Tell

_ANSWER = (
    "facts binary, reject_keys array<string>, rejected_count long, traces binary, error string"
)


def sift_with_spark(
    spark: SparkSession,
    store: Store,
    job: Job,
    files: Sequence[RawFile],
    on_file: OnFile = tell_nobody,
) -> Sifted:
    """Sift files by tasks; see `lakebed.arrow.reading.sift`.

    The files are divided into groups of about equal size. All workers must see them. `on_file` is
    called as tasks end; on Connect, when all of them have.

    Raises:
        InvalidInputError: A file cannot be opened, or its header does not fit; what was written
            is deleted.

    Cost:
        One Spark job. The driver receives some hundred bytes for each file that was written.
    """
    by_location = {file.location: file for file in files}
    names = grouped_by_size(spark, {file.location: file.size_bytes for file in files})
    groups = [[by_location[name] for name in group] for group in names]
    # Tasks cannot see one another: each admits its part of the values that caps leave room for.
    job = replace(job, target=replace(job.target, admitting_writers=len(groups)))
    # It needs pyspark to be imported, which is there, since there is a session.
    from lakebed.spark.telling import FilesTold, accumulator_of

    told = FilesTold(on_file)
    tell = accumulator_of(spark, told) if on_file is not tell_nobody else None
    numbers = spark.range(0, len(groups), 1, len(groups))
    answers = numbers.mapInArrow(_task(store, job, groups, tell), _ANSWER).collect()
    empty = facts_schema(job.target.descriptor.stored_schema).empty_table()
    facts = concat_facts(
        [empty, *(table_from_bytes(answer.facts) for answer in answers if answer.facts)]
    )
    keys = tuple(key for answer in answers for key in answer.reject_keys)
    for answer in answers:
        if answer.error is not None:
            staged = [job.target.key(label) for label in facts.column("label").to_pylist()]
            delete_or_leave(store, [*staged, *keys_of(postings_in(facts)), *keys])
            raise read_error(answer.error)
    traces = [msgspec.json.decode(answer.traces, type=_Traces) for answer in answers]
    counts = {location: one for trace in traces for location, one in trace.counts.items()}
    for location, one in counts.items():
        told(location, one)
    return Sifted(
        facts=facts,
        reject_keys=keys,
        rejected_count=sum(answer.rejected_count for answer in answers),
        counts=counts,
        runs={label: runs for trace in traces for label, runs in trace.runs.items()},
    )


class _Traces(msgspec.Struct):
    """Which files a task has read, and where their rows are."""

    counts: dict[str, Counts]
    runs: dict[str, Runs]


def _task(
    store: Store, job: Job, groups: list[list[RawFile]], tell: Tell | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield _answer(store, job, groups[number], tell)

    return run


def _answer(store: Store, job: Job, files: list[RawFile], tell: Tell | None) -> pa.RecordBatch:
    facts, count, error = b"", 0, None
    keys: tuple[str, ...] = ()
    traces = b""
    try:
        sifted = sift(store, job, files)
        facts, keys = table_to_bytes(sifted.facts), sifted.reject_keys
        count = sifted.rejected_count
        if tell is not None:
            tell(list(sifted.counts.items()))
        traces = msgspec.json.encode(_Traces(dict(sifted.counts), dict(sifted.runs)))
    except InvalidInputError as exc:
        # An answer instead of a failure: Spark would only read the same files again.
        error = write_error(exc)
    return pa.record_batch(
        {
            "facts": pa.array([facts], pa.binary()),
            "reject_keys": pa.array([list(keys)], pa.list_(pa.string())),
            "rejected_count": pa.array([count], pa.int64()),
            "traces": pa.array([traces], pa.binary()),
            "error": pa.array([error], pa.string()),
        }
    )
