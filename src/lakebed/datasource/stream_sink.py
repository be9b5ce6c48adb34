"""The sink of `writeStream.format("lakebed")`: each epoch is one batch, committed exactly once.

For each epoch, Spark creates a writer in a Python process of its driver and sends it to the tasks.
Then it creates another writer in another process, which receives the messages of the tasks and
commits. The second writer knows the first only through the tasks, and only tasks know the query.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.types import StructType

from lakebed.arrow.conform import check_columns, check_types
from lakebed.arrow.entities import to_batches
from lakebed.common.ages import parse_age
from lakebed.datasource.addresses import open_to_write
from lakebed.datasource.messages import TaskMessage, write_in_task, written_by
from lakebed.datasource.stream_options import StreamWriteOptions
from lakebed.errors import ConflictError, NotFoundError
from lakebed.model.spark_types import schema_from_spark
from lakebed.spark.session import QUERY_ID
from lakebed.spark.travel import Travels
from lakebed.state.committing import CommitOptions
from lakebed.state.state import Epoch
from lakebed.state.transaction import Suspended, Transaction
from lakebed.store.base import Store
from lakebed.work.epochs import commit_epoch
from lakebed.work.writer import target_of

if TYPE_CHECKING:
    from lakebed.arrow.kernel import BatchTarget

# Since Spark 4.1; before, tasks receive single rows.
_ArrowWriter: Any = getattr(
    datasource, "DataSourceStreamArrowWriter", datasource.DataSourceStreamWriter
)
_COMMITTING_RUNNER = ".python_streaming_sink_runner"  # Spark's module
_TAKES_ARROW = _ArrowWriter is not datasource.DataSourceStreamWriter


@dataclass
class EpochMessage(TaskMessage):
    """Files that a task of an epoch has written, and other facts that the commit needs.

    Attributes:
        begun: The transaction of the epoch.
        query: Id of the query.
    """

    begun: Suspended | None = None
    query: str = ""


class LakebedStreamWriter(Travels, _ArrowWriter):  # type: ignore[misc]  # its bases depend on Spark
    """Writer of the epochs of a streaming query."""

    def __init__(self, texts: dict[str, str], schema: StructType, *, is_overwrite: bool) -> None:
        """Check that the rows fit; nothing is written.

        Args:
            texts: The options of the query.
            schema: Schema of the rows of the query.
            is_overwrite: True if each epoch brings all rows of the result (output mode complete).

        Raises:
            LakebedError: An option is wrong, the dataset does not exist, or the rows do not fit it.
        """
        self._options = StreamWriteOptions.parse(texts)
        self._is_overwrite = is_overwrite
        opened = open_to_write(self._options.write, schema)
        given = schema_from_spark(schema.jsonValue(), opened.layout.descriptor.schema)
        check_columns(given.names, opened.layout.descriptor)
        check_types(given, opened.layout.descriptor)
        self._store: Store = opened.store
        # Sent to the tasks:
        self._target: BatchTarget | None = None
        self._begun: Suspended | None = None

    def reserve(self) -> Self:
        """Reserve the batch of the epoch for the tasks; the committing writer does not need one."""
        write = self._options.write
        transaction = Transaction.begin(
            self._store, write.address.name, "append", options=self._commit_options
        )
        self._target = target_of(transaction, write.files)
        self._begun = transaction.suspend()
        return self

    @property
    def _commit_options(self) -> CommitOptions:
        lease = self._options.write.lease
        return CommitOptions() if lease is None else CommitOptions(lease=parse_age(lease))

    def write(self, iterator: Iterator[Any]) -> EpochMessage:
        """Write the rows of a task."""
        assert self._target is not None  # set before it is sent
        assert self._begun is not None
        context = TaskContext.get()
        # Tasks cannot see one another: the first values fill the room under the caps of dimensions.
        is_first = context is None or context.partitionId() == 0
        target = replace(self._target, admitting_writers=1 if is_first else 0)
        message = write_in_task(self._store, target, self._batches(iterator))
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        return EpochMessage(message.answer, message.error, self._begun, query or "")

    def _batches(self, rows: Iterator[Any]) -> Iterable[pa.RecordBatch]:
        if _TAKES_ARROW:
            return rows
        assert self._target is not None
        entities = (row.asDict(recursive=True) for row in rows)
        return to_batches(entities, self._target.descriptor)

    def commit(
        self,
        messages: Sequence[datasource.WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Commit an epoch, unless it is committed already.

        Raises:
            LakebedError: A task failed, or see `commit_epoch`; nothing became visible.
        """
        first = _first(messages)
        if first is None:
            return
        epoch = Epoch(first.query, batchId)
        with self._resume(first, epoch) as transaction:
            for written in written_by(messages):
                transaction.add(written)
            commit_epoch(
                self._store,
                transaction,
                epoch,
                self._options.sink,
                replaces_all=self._is_overwrite,
            )

    def abort(
        self,
        messages: Sequence[datasource.WriterCommitMessage | None],
        batchId: int,  # noqa: N803
    ) -> None:
        """Delete the files that the tasks have reported; a cleanup deletes others."""
        first = _first(messages)
        if first is None:
            return
        try:
            transaction = self._resume(first, Epoch(first.query, batchId))
        except (NotFoundError, ConflictError):
            return  # the dataset was dropped with all its files
        answers = [one for one in messages if isinstance(one, TaskMessage) and one.error is None]
        for written in written_by(answers):
            transaction.add(written)
        transaction.give_up()

    def _resume(self, message: EpochMessage, epoch: Epoch) -> Transaction:
        assert message.begun is not None  # set by `write`
        return Transaction.resume(
            self._store, message.begun, epoch=epoch, options=self._commit_options
        )


def is_committing() -> bool:
    """Return whether Spark has started this process to commit epochs.

    Spark creates both writers of an epoch by the same call. A process that is not recognised
    reserves a batch that a cleanup will delete, without other consequences.
    """
    return any(name.endswith(_COMMITTING_RUNNER) for name in sys.modules)


def _first(messages: Sequence[datasource.WriterCommitMessage | None]) -> EpochMessage | None:
    return next((one for one in messages if isinstance(one, EpochMessage)), None)
