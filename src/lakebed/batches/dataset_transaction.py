"""Transactions: reads of one version, and several writes that become one commit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, Self

from lakebed.arrow.kernel import BatchTarget
from lakebed.arrow.partitioning import admitted_values
from lakebed.commit import Commit
from lakebed.errors import InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.drift import Types, UnknownColumns, check_drift
from lakebed.model.predicate import TRUE, Predicate, bind
from lakebed.model.sql_predicates import Parameters
from lakebed.plan.search import plan
from lakebed.state.check_results import require
from lakebed.state.conflicts import Read
from lakebed.state.reader import read_own_head
from lakebed.state.scope import Nothing, Scope, Several, TheseFiles
from lakebed.state.snapshot import Snapshot, Source
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.state.written import Written
from lakebed.view import View, ViewCondition, untouched
from lakebed.work.deletion import find_deleted, write_rest
from lakebed.work.writer import settled_scope

OPERATION = "transaction"


class _Watched(Source):
    """A source of one version that records the constraints that were read."""

    read_only = (
        "the snapshot of a transaction",
        "Write by the transaction itself: t.append(data), t.overwrite(data, view), t.delete(view). "
        "Other verbs make a commit of their own: call them on the dataset, after the transaction.",
    )

    def __init__(self, source: Source) -> None:
        head = read_own_head(source.store, source.name)
        super().__init__(
            source.store, source.name, Snapshot(head.state, head.requests, is_head=True)
        )
        self.state: State = head.state
        self.constraints: dict[Predicate, None] = {}

    def record_read(self, constraint: Predicate) -> None:
        """Record a constraint, for the check at the commit."""
        self.constraints[constraint] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    """The result of one writing call."""

    written: Written
    scope: Scope
    deleted_row_count: int = 0
    rewritten_row_count: int = 0


class DatasetTransaction(View):
    """One snapshot of a dataset, and one commit for all writes.

    A context manager: a clean exit commits, an error leaves nothing. The transaction is a view of
    the whole dataset as of its start, and so are views made from it; they do not show its own
    writes. The commit is refused if another commit has since changed a partition that was read or
    that is replaced. An interrupt within a write, such as Ctrl-C, ends the transaction without a
    commit, even if the block catches it and goes on.

    Attributes:
        commit: The commit; None before the end, and if nothing was written.

    >>> import pyarrow as pa
    >>> from lakebed import DatasetDescriptor, open_repository
    >>> descriptor = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    >>> numbers = open_repository("memory://doctest-transaction").create("numbers", descriptor)
    >>> with numbers.transaction() as t:
    ...     t.append([{"n": t.count() + 1}])
    >>> t.commit.version, numbers.arrow().to_pylist()
    (1, [{'n': 1}])
    """

    _NOT_OF_PINNED = View._NOT_OF_PINNED - {"append", "delete", "overwrite"}

    def __init__(self, of: View) -> None:
        """Use `Dataset.transaction` instead."""
        self._watched = _Watched(of._source)
        super().__init__(self._watched, TRUE)
        self._with_options_of(of)
        self._started: Transaction | None = None
        self._writes: list[_Write] = []
        self._calls = 0  # writing calls that have started but not ended
        self._condition = "not open"
        self.commit: Commit | None = None

    def __repr__(self) -> str:
        return f"<Transaction on {self._source.name!r} at version {self.version}>"

    @property
    def version(self) -> int:
        """The version that it reads."""
        return self._watched.state.version

    @property
    def descriptor(self) -> DatasetDescriptor:
        """The descriptor of the dataset in that version."""
        return self._watched.state.descriptor

    def with_options(self, **_options: object) -> NoReturn:
        """Raise an error: a transaction has the options of the dataset that started it."""
        raise InvalidInputError(
            f"{self!r} cannot be given other options.",
            hint="Set them with `with_options` on the dataset, and start a `transaction` of the result.",
        )

    def append(  # type: ignore[override]  # there is no commit yet
        self, data: object, *, unknown: UnknownColumns = "reject", types: Types = "strict"
    ) -> None:
        """Append rows. Raises as `Dataset.append` does; then this call has written nothing.

        Args:
            data: As for `Dataset.append`.
            unknown: Only `reject`: a transaction does not change the schema.
            types: Only `strict`.

        Raises:
            InvalidInputError: The transaction is not open, or the schema would change.
        """
        _check_schema_stays(unknown, types)
        self._add(data, Nothing())

    def overwrite(  # type: ignore[override]  # there is no commit yet
        self,
        data: object,
        view: View | None = None,
        *,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
    ) -> None:
        """Replace every partition that the data touches, or a whole view.

        Args:
            data: As for `Dataset.overwrite`.
            view: A view of this dataset, aligned with partition boundaries.
            unknown: Only `reject`: a transaction does not change the schema.
            types: Only `strict`.

        Raises:
            InvalidInputError: As for `Dataset.overwrite`; or the transaction has written to one of
                the partitions before, is not open, or would change the schema.
            PredicateError: The view is not aligned with partition boundaries.
        """
        _check_schema_stays(unknown, types)
        scope = None if view is None else self._own(view)._whole_of(self._watched.state)
        self._add(data, scope)

    def delete(  # type: ignore[override]  # there is no commit yet
        self, view: View | ViewCondition, parameters: Parameters | None = None
    ) -> int:
        """Delete the entities that meet a condition, as the snapshot shows them.

        Args:
            view: A condition, as for `where`; or a view of this dataset. The transaction itself is
                the view of everything.
            parameters: Values for the parameters of a condition, as for `where`.

        Returns:
            The number of deleted entities.

        Raises:
            InvalidInputError: The view is of another dataset; or the transaction has written to
                one of the partitions before; or it is not open.
        """
        doomed = view if isinstance(view, View) else self.where(view, parameters)
        with self._call() as started:
            target = self._target(started)
            store, state = self._source.store, self._watched.state
            constraint = bind(self._own(doomed).constraint, state.layout.predicate_types)
            chosen = plan(state, constraint, requests=0, store=store)
            deleted = find_deleted(store, chosen)
            if not deleted:
                return 0
            scope = TheseFiles.of(file.label for file in deleted)
            self._check_first(scope.partitions, scope)
            remaining = write_rest(store, chosen, deleted, target)
            started.add(remaining)
            count = sum(file.row_count for file in deleted)
            self._writes.append(
                _Write(
                    written=remaining,
                    scope=scope,
                    deleted_row_count=count,
                    rewritten_row_count=remaining.row_count,
                )
            )
            return count

    def _own(self, view: View) -> View:
        if not isinstance(view, View) or not view._is_of(self):
            raise InvalidInputError(
                f"{view!r} is not a view of {self._source.name!r}.",
                hint="Narrow the transaction itself, as in t.where(\"carrier = 'UA'\").",
            )
        return view

    @contextmanager
    def _call(self) -> Iterator[Transaction]:
        """Count a writing call, so that an interrupted one prevents the commit.

        A call that raises an error has undone its writes. An interrupt can come between any two
        steps, when a part may be written but not yet recorded. An interrupted call stays counted,
        so nothing is committed, even if the caller catches the interrupt.
        """
        self._calls += 1
        try:
            yield self._begin_once()
        except Exception:
            self._calls -= 1
            raise
        self._calls -= 1

    def _begin_once(self) -> Transaction:
        """Return the transaction of the batch, which starts with the first write."""
        if self._condition:
            raise InvalidInputError(
                f"The transaction is {self._condition}.",
                hint="Start another one with `with`, and write inside it.",
            )
        state = self._watched.state
        if self._started is None:
            self._started = Transaction.begin(
                self._source.store,
                state.name,
                OPERATION,
                options=self._commit_options,
                base=state,
            )
        self._started.keep_alive()
        return self._started

    def _target(self, started: Transaction) -> BatchTarget:
        state = self._watched.state
        target = self._narrow_target(started)
        # The cap of a dimension includes values that this transaction has written.
        written = [label for write in self._writes for label in write.written.labels]
        return replace(target, admitted=admitted_values(state, written))

    def _add(self, data: object, scope: Scope | None) -> None:
        """Write rows, and delete them again if they must not replace that scope."""
        with self._call() as started:
            written = self._stage(data, self._target(started))
            started.add(written)
            try:
                require(self._source.name, written.checks)
                settled = settled_scope(self._source.name, written.partitions, scope)
                if not isinstance(settled, Nothing):
                    self._check_first(written.partitions, settled)
            except Exception:
                started.discard(written)
                raise
            self._writes.append(_Write(written=written, scope=settled))

    def _check_first(self, partitions: frozenset[str], scope: Scope) -> None:
        """Check that this transaction has not written to the scope that it now replaces.

        Only files of the snapshot are removed: files that this transaction has written are not
        part of it, and would stay.
        """
        written = {part for write in self._writes for part in write.written.partitions}
        twice = {partition for partition in written if scope.covers(partition)}
        twice |= {
            partition
            for partition in partitions
            if any(w.scope.covers(partition) for w in self._writes)
        }
        if twice:
            shown = ", ".join(sorted(partition or "the whole dataset" for partition in twice)[:5])
            raise InvalidInputError(
                f"The transaction has already written to {shown}, and cannot replace that.",
                hint="Delete and overwrite first, each partition once, then append; or write in "
                "two transactions.",
            )

    def __enter__(self) -> Self:
        if self.commit is not None or self._condition in ("", "over"):
            raise InvalidInputError(
                f"{self!r} was started before.", hint="Start another one for another snapshot."
            )
        self._condition = ""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._condition = "over"
        started, state = self._started, self._watched.state
        if started is None:
            return
        with started:
            if kind is not None:
                return
            if self._calls:
                raise InvalidInputError(
                    "An interrupt has stopped a write of the transaction: nothing is committed.",
                    hint="Let the interrupt end the block, and start another transaction.",
                )
            if not self._writes:
                return
            scopes_read = tuple(
                untouched(constraint, state) for constraint in self._watched.constraints
            )
            committed = started.commit(
                Change(
                    scope=_joined([write.scope for write in self._writes]),
                    deleted_row_count=sum(write.deleted_row_count for write in self._writes),
                    rewritten_row_count=sum(write.rewritten_row_count for write in self._writes),
                ),
                reads=[Read(state=state, scope=Several(scopes_read))] if scopes_read else [],
            )
        self.commit = Commit.of(committed, state)


def _joined(scopes: Sequence[Scope]) -> Scope:
    parts = tuple(scope for scope in scopes if not isinstance(scope, Nothing))
    if len(parts) > 1:
        return Several(parts)
    return parts[0] if parts else Nothing()


def _check_schema_stays(unknown: UnknownColumns, types: Types) -> None:
    if check_drift(unknown, types):
        raise InvalidInputError(
            f"A transaction has the schema of its start: unknown={unknown!r} and types={types!r} "
            "cannot change it.",
            hint="Change it before the transaction, by evolve or change_type.",
        )
