"""Writing entities one by one, and committing what was staged."""

from __future__ import annotations

from typing import Self

import pyarrow as pa

from lakebed.arrow.entities import as_mapping, entities_to_batch
from lakebed.arrow.kernel import BatchTarget, KernelWriter, WriteOptions
from lakebed.commit import Commit
from lakebed.errors import InvalidInputError
from lakebed.model.keys import partition_of, split_label
from lakebed.state.scope import Nothing, Scope, ThesePartitions, WholeView
from lakebed.state.transaction import Transaction
from lakebed.view import Source

ENTITIES_PER_BATCH = 1_000  # of a writer, which holds each as a record batch of one row


def commit_staged(transaction: Transaction, facts: pa.Table, scope: Scope | None) -> Commit:
    """Check what was staged against the scope, and commit it.

    Args:
        transaction: That the files were staged for.
        facts: Of the files.
        scope: What they replace; None for the partitions that they touch.

    Raises:
        InvalidInputError: They lie outside the scope, or there are none to say what it is; they
            have been deleted.
        LakebedError: See `Transaction.commit`.
    """
    labels = facts.column("label").to_pylist()
    touched = {partition_of(split_label(label)[0]) for label in labels}
    base = transaction.base
    try:
        if scope is None:
            if not touched:
                raise InvalidInputError(
                    f"Overwrite of {base.name!r} with no rows says not what to replace.",
                    hint="Give the view that shall be empty: overwrite(data, view).",
                )
            scope = ThesePartitions(frozenset(touched))
        elif isinstance(scope, WholeView):
            outside = sorted(one for one in touched if not scope.covers(one))
            if outside:
                raise InvalidInputError(
                    f"Data of partition {outside[0]!r} lies outside the view {scope.predicate}.",
                    hint="Filter the data, or widen the view.",
                )
    except InvalidInputError:
        transaction.abort([base.key(label) for label in labels])
        raise
    return Commit.of(transaction.commit(facts, scope), base)


class EntityWriter:
    """Writes entities one by one and commits them as one batch on a clean exit."""

    def __init__(self, source: Source, transaction: Transaction, options: WriteOptions) -> None:
        """Use `Dataset.writer` instead."""
        self._transaction = transaction
        self._descriptor = transaction.base.descriptor
        self._kernel = KernelWriter(
            source.store,
            BatchTarget(
                dataset=source.name,
                batch_id=transaction.batch_id,
                descriptor=self._descriptor,
                options=options,
            ),
        )
        self._waiting: list[pa.RecordBatch] = []
        self._is_open = True
        self.commit: Commit | None = None

    def write(self, entity: object) -> None:
        """Add an entity: a dict or a dataclass instance.

        Raises:
            SchemaMismatchError: It does not fit; the writer can be used on.
            PartitionSpecError: It lacks a partition source, or its partition has too long a path.
            InvalidInputError: The writer is closed.
        """
        if not self._is_open:
            raise InvalidInputError("The writer is closed.", hint="Open another one.")
        # A batch of one is a copy, so that the caller may use the entity for the next one.
        row = entities_to_batch([as_mapping(entity)], self._descriptor)
        self._kernel.check(row)
        self._waiting.append(row)
        if len(self._waiting) >= ENTITIES_PER_BATCH:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._kernel.write(pa.concat_batches(self._waiting))
            self._waiting = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._is_open:
            return
        if kind is not None:
            self.abort()
            return
        try:
            self._flush()
            facts = self._kernel.finish()
        except BaseException:
            self.abort()
            raise
        self._is_open = False
        self.commit = commit_staged(self._transaction, facts, Nothing())

    def abort(self) -> None:
        """Delete what was written; nothing becomes visible."""
        self._is_open = False
        self._kernel.abort()
        self._transaction.abort([])
