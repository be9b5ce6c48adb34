"""Writing a batch: reserved in one process of the driver, written by tasks, committed in another.

Only the pickled writer and the messages of the tasks are passed from one process to the next. So
the writer carries a suspended transaction. Spark calls `abort` also after a failed commit: by then,
the committing process has deleted the files that are provably invisible, and left the others.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lakebed.arrow.conform import check_columns, check_types
from lakebed.arrow.kernel import BatchTarget
from lakebed.common.ages import parse_age
from lakebed.datasource.addresses import Opened, open_to_write
from lakebed.datasource.messages import TaskMessage, write_in_task, written_by
from lakebed.datasource.options import SaveOptions
from lakebed.errors import ConflictError, InvalidInputError, LakebedError, NotFoundError
from lakebed.model.allowed import TOKENS
from lakebed.model.drift import check_drift
from lakebed.model.keys import decode_path
from lakebed.model.spark_types import schema_from_spark
from lakebed.spark.travel import Travels
from lakebed.state.committing import CommitOptions
from lakebed.state.scope import Nothing, RunFiles, Scope
from lakebed.state.snapshot import Source
from lakebed.state.transaction import Suspended, Transaction
from lakebed.state.written import Written
from lakebed.store.base import Store
from lakebed.work.writer import commit_staged, keep_staged

_log = logging.getLogger(__name__)

_STAGED_FOR = "7d"  # the default, as for `Dataset.staged.add`
_OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


@dataclass
class BatchMessage(TaskMessage):
    """Files that a task of a batch has written, and a setting of the session that only tasks see.

    Attributes:
        is_dynamic: Whether the session overwrites dynamically: only the partitions of the rows.
    """

    is_dynamic: bool = False


@dataclass
class LakebedWriter(Travels, DataSourceArrowWriter):
    """Writer of one batch. It is sent to tasks, and to the process that commits.

    Attributes:
        store: The store that holds the dataset.
        target: Directory and format of the files of the batch.
        begun: The suspended transaction, which has reserved the batch.
        scope: The rows that the batch replaces; None for the partitions that it touches.
        is_dynamic: Whether the write names the partitions of the rows by Spark's option.
        asks_session: Whether the session decides between the scope and the partitions of the rows.
        base: Version that the data was made from, if the caller named one.
        commit_options: Retry and lease settings of the commit.
        kept_for: Time for which a staged batch waits for its commit; None to commit it at once.
    """

    store: Store
    target: BatchTarget
    begun: Suspended
    scope: Scope | None
    is_dynamic: bool
    asks_session: bool
    base: int | None
    commit_options: CommitOptions
    kept_for: dt.timedelta | None

    @classmethod
    def begin(cls, texts: Mapping[str, str], schema: StructType, *, is_overwrite: bool) -> Self:
        """Check the options and the schema, and reserve the batch.

        Args:
            texts: The options as Spark passes them.
            schema: Schema of the rows.
            is_overwrite: True for `mode("overwrite")`.

        Raises:
            SchemaMismatchError: The frame does not fit the dataset.
            LakebedError: An option cannot be used; see `SaveOptions.parse` and `open_to_write`.

        Cost:
            A read of the head and one PUT; to let the schema grow, another read, and a commit if it
            does.
        """
        options = SaveOptions.parse(texts)
        _check_mode(options, is_overwrite=is_overwrite)
        opened = open_to_write(options, schema)
        if check_drift(options.unknown, options.types):
            fields = schema_from_spark(schema.jsonValue(), opened.layout.descriptor.schema)
            opened.view._grow(fields, options.unknown, options.types)
            opened = open_to_write(options, schema)
        descriptor = opened.layout.descriptor
        given = schema_from_spark(schema.jsonValue(), descriptor.schema)
        check_columns(given.names, descriptor)
        check_types(given, descriptor)
        if options.base is not None:
            Source(opened.store, opened.layout.name).past_state(options.base)  # raises if unknown
        operation, scope = _what_to_do(options, opened, is_overwrite=is_overwrite)
        is_plain = options.overwrite_mode is None and options.replace_where is None
        commit_options, kept_for = _leases(options)
        view = opened.view.with_options(write=options.files, commit=commit_options)
        transaction = view._begin(operation, options.run)
        target = view._narrow_target(transaction)
        begun = transaction.suspend()
        return cls(
            store=opened.store,
            target=target,
            begun=begun,
            scope=scope,
            is_dynamic=options.is_dynamic,
            asks_session=is_overwrite and is_plain and bool(len(descriptor.partition_by)),
            base=options.base,
            commit_options=commit_options,
            kept_for=kept_for,
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> BatchMessage:
        """Write the rows of a task."""
        message = write_in_task(self.store, self.target, iterator)
        # The processes of the driver have no session. Spark gives its settings to tasks.
        context = TaskContext.get()
        mode = None if context is None else context.getLocalProperty(_OVERWRITE_MODE)
        return BatchMessage(message.answer, message.error, (mode or "").lower() == "dynamic")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the batch visible, or keep it for a later commit.

        Raises:
            LakebedError: The error of a task, or of `Transaction.commit`. Nothing became visible,
                unless it is a `CommitUnknownError`.
        """
        with Transaction.resume(self.store, self.begun, options=self.commit_options) as transaction:
            for written in written_by(messages):
                transaction.add(written)
            self._check_caps(transaction)
            scope = self.scope
            if self.is_dynamic or (self.asks_session and _is_dynamic(messages)):
                if not transaction.written.partitions:
                    transaction.require_checks()
                    return  # as in Spark: no partition has rows, so none is replaced
                scope = None
            base = None
            if self.base is not None:
                base = Source(self.store, self.begun.dataset).past_state(self.base)
            if self.kept_for is None:
                commit_staged(transaction, scope, base)
            else:
                keep_staged(transaction, scope, self.kept_for, base)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of tasks, unless a commit may have made them visible."""
        parts: list[Written] = []
        with contextlib.suppress(LakebedError):  # of a task; Spark has reported it already
            parts.extend(written_by(messages))
        try:
            transaction = Transaction.resume(self.store, self.begun)
        except (NotFoundError, ConflictError):
            return  # the dataset was dropped with all its files
        transaction.add(*parts)
        if not transaction.give_up():
            _log.warning(
                "batch left to cleanup dataset=%s batch_id=%s",
                self.begun.dataset,
                self.target.batch_id,
            )

    def _check_caps(self, transaction: Transaction) -> None:
        """Check that tasks, which cannot see one another, have not admitted too many values."""
        descriptor = self.target.descriptor
        for name, cap in descriptor.partition_by.caps(descriptor.schema).items():
            values = set(self.target.admitted.get(name, ()))
            for path in transaction.written.partitions:
                value = decode_path(path, transaction.base.layout.partition_level_types)[name]
                if isinstance(value, str) and value not in TOKENS:
                    values.add(value)
            if len(values) > cap:
                raise InvalidInputError(
                    f"Dimension {name!r} would have {len(values)} values, but is capped at {cap}.",
                    hint="Write by Dataset.append(frame), which chooses values before its tasks "
                    "begin, or coalesce the frame to one partition.",
                )


def _is_dynamic(messages: Sequence[WriterCommitMessage | None]) -> bool:
    return any(isinstance(message, BatchMessage) and message.is_dynamic for message in messages)


def _check_mode(options: SaveOptions, *, is_overwrite: bool) -> None:
    if not is_overwrite and (options.overwrite_mode or options.replace_where is not None):
        name = "overwriteMode" if options.overwrite_mode else "replaceWhere"
        raise InvalidInputError(
            f"Option {name} selects the rows to replace, but the mode is append.",
            hint='Write with mode("overwrite"), or leave it out.',
        )
    if options.is_staged and options.base is not None:
        is_partial = options.overwrite_mode in ("run", "run-partitions") or not is_overwrite
        if is_partial:
            raise InvalidInputError(
                "A batch that is staged to append or rerun cannot have a base.",
                hint="Stage an overwrite, or write at once.",
            )


def _what_to_do(
    options: SaveOptions, opened: Opened, *, is_overwrite: bool
) -> tuple[str, Scope | None]:
    """Return the operation and its scope; None for the partitions of the rows."""
    if not is_overwrite:
        return "append", Nothing()
    if options.overwrite_mode in ("run", "run-partitions"):
        assert options.run  # checked by SaveOptions
        partitions = frozenset[str]() if options.overwrite_mode == "run" else None
        scope = RunFiles(options.run, partitions=partitions, replaces_all=options.replaces_all)
        return "rerun", scope
    if options.overwrite_mode == "partitions":
        return "overwrite", None
    return "overwrite", opened.view._whole()


def _leases(options: SaveOptions) -> tuple[CommitOptions, dt.timedelta | None]:
    """Return the options of the commit, and the time for which a staged batch is kept."""
    commit_options = CommitOptions(begun_at=options.begun_at)
    if options.is_staged:
        return commit_options, parse_age(options.lease or _STAGED_FOR)
    if options.lease is None:
        return commit_options, None
    return replace(commit_options, lease=parse_age(options.lease)), None
