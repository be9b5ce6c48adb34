"""Staged batches of a dataset: list, add, open."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Literal

from lakebed import batches, work
from lakebed.common.items import Items
from lakebed.dataset import Dataset, scope_of_run
from lakebed.errors import InvalidInputError
from lakebed.groups.dataset_group import FormerMethod
from lakebed.model.drift import Types, UnknownColumns
from lakebed.state.scope import Nothing, Scope
from lakebed.view import Base, View

if TYPE_CHECKING:
    from lakebed.batches.staged import Staged


class StagedGroup(FormerMethod):
    """The batches of a dataset that are written, but not committed yet."""

    _NAME = "staged"

    def add(
        self,
        data: object,
        operation: Literal["append", "overwrite", "rerun"] = "append",
        *,
        run: str | None = None,
        partitions: bool = False,
        replace_all: bool = False,
        view: View | None = None,
        unknown: UnknownColumns = "reject",
        types: Types = "strict",
        base: Base | None = None,
        lease: str | dt.timedelta = "7d",
        dry_run: bool = False,
    ) -> Staged[Dataset]:
        """Write a batch that stays invisible until this process or another one commits it.

        Args:
            data: As for `append`.
            operation: The operation that the commit performs.
            run: Name of the run, which a rerun needs.
            partitions: As for `rerun`.
            replace_all: As for `rerun`.
            view: For an append, the view that all data must lie in; for an overwrite, the view to
                replace.
            unknown: As for `append`. The fields are added when the batch is staged.
            types: As for `append`. The fields are widened when the batch is staged.
            base: The version that the data of an overwrite was made from, as for `overwrite`.
            lease: Time for which cleanup spares the batch, such as `7d` or `12h`.
            dry_run: Write nothing; return the batch that would be staged. It exists only in this
                object: its rows cannot be read, and its commit changes nothing.

        Raises:
            SchemaMismatchError: The data does not fit; nothing is staged.
            PartitionSpecError: The source of a partition function is missing.
            InvalidInputError: As for `append`, `overwrite` and `rerun`; or the operation is
                unknown.
            PredicateError: The view is not aligned with partition boundaries.

        Cost:
            Besides the data files: a read of the head and three small objects, and one Spark job
            for a DataFrame.
        """
        if dry_run:
            dry, _ = self._dataset._on_dry_run()
            return dry.staged.add(
                data,
                operation,
                run=run,
                partitions=partitions,
                replace_all=replace_all,
                view=view,
                unknown=unknown,
                types=types,
                base=base,
                lease=lease,
            )
        kept_for = work.cleanup.parse_age(lease)
        if not kept_for:
            raise InvalidInputError(f"lease is {lease!r}.", hint="Give a positive duration.")
        if base is not None and operation != "overwrite":
            raise InvalidInputError(
                f"Cannot stage {operation} with a base.",
                hint="Stage an overwrite, or write at once: append and rerun take a base.",
            )
        if replace_all and operation != "rerun":
            raise InvalidInputError(
                f"Cannot stage an {operation} with replace_all=True: only a rerun takes it.",
                hint="Leave it out.",
            )
        if partitions and operation != "rerun":
            raise InvalidInputError(
                f"Cannot stage an {operation} with partitions=True: only a rerun takes it.",
                hint="Leave it out. An overwrite without a view replaces the partitions that its "
                "rows touch.",
            )
        read = self._dataset._base_of(base)
        narrowed: View = self._dataset
        if view is not None:
            self._dataset._check_own(view)
            narrowed = self._dataset._refined_to(view.constraint)
        scope: Scope | None
        match operation:
            case "append":
                scope = Nothing()
            case "overwrite":
                scope = None if view is None else narrowed._whole()
            case "rerun" if view is None:
                scope = scope_of_run(run, partitions=partitions, replace_all=replace_all)
            case _:
                raise InvalidInputError(
                    f"Cannot stage {operation}{' for a view' if view else ''}.",
                    hint="Stage an append, an overwrite, or a rerun of the dataset as a whole.",
                )
        data = narrowed._fitted(data, unknown, types)
        with narrowed._begin(operation, run) as transaction:
            transaction.add(narrowed._stage(data, narrowed._narrow_target(transaction)))
            work.writer.keep_staged(transaction, scope, kept_for, read)
        record = work.staging.read(
            self._dataset._source.store, transaction.base, transaction.batch_id
        )
        return batches.staged.Staged(
            self._dataset._source, record, Dataset, self._dataset._commit_options
        )

    def open(self, batch_id: int) -> Staged[Dataset]:
        """Return a staged batch, to inspect, commit or discard it.

        Raises:
            VersionNotFoundError: There is no such staged batch.

        Cost:
            A read of the head, and one GET.
        """
        self._dataset._check_writable()
        state = self._dataset._source.load().state
        record = work.staging.read(self._dataset._source.store, state, batch_id)
        return batches.staged.Staged(
            self._dataset._source, record, Dataset, self._dataset._commit_options
        )

    def list(self) -> Items[Staged[Dataset]]:
        """Return the staged batches that wait for their commit, oldest first.

        Cost:
            The head, the history, a LIST of the manifests, and a GET for each batch that is not
            committed.
        """
        self._dataset._check_writable()
        store, state = self._dataset._source.store, self._dataset._source.load().state
        records = work.staging.find_all(store, state, self._dataset._entries(state))
        return Items(
            batches.staged.Staged(
                self._dataset._source, record, Dataset, self._dataset._commit_options
            )
            for record in records
        )
