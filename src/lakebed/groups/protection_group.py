"""Protections of a dataset from cleanup: list, add, remove."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from lakebed import work
from lakebed.commit import Commit
from lakebed.common.given import naming_moment
from lakebed.common.items import Items
from lakebed.groups.dataset_group import FormerMethod

if TYPE_CHECKING:
    from lakebed.state.protections import Protection


class ProtectionGroup(FormerMethod):
    """The protections of versions and batches from cleanup."""

    _NAME = "protections"

    @naming_moment
    def add(
        self,
        *,
        version: int | None = None,
        batch_id: int | None = None,
        reason: str,
        until: dt.datetime | None = None,
        dry_run: bool = False,
    ) -> Commit:
        """Keep a version, or the files of one batch, from being cleaned up.

        While it is protected, a version can be read with `at(version=…)`, a batch with
        `at(batch_id=…, alone=True)`. A second protection of the same version or batch replaces the
        first.

        Args:
            version: Protect all files of this version.
            batch_id: Protect all files that the commit of this batch added, and no others.
            reason: Reason for the protection; a cleanup reports it.
            until: Time when the protection ends; without a zone it is UTC.
            dry_run: Write nothing; return the commit that would be made.

        Raises:
            VersionNotFoundError: There is no such version or batch, or it was cleaned up.
            InvalidInputError: Not exactly one of version and batch is given, the reason is
                missing, or the time is in the past.
            CommitConflictError: The race for the head was lost until the deadline.

        Cost:
            The head, the history, one PUT and one conditional PUT.
        """
        if dry_run:
            return self._dataset._dry_run(
                lambda dry: dry.protections.add(
                    version=version, batch_id=batch_id, reason=reason, until=until
                )
            )
        self._dataset._check_writable()
        made, base = work.protection.protect(
            self._dataset._source.store,
            self._dataset.name,
            version=version,
            batch_id=batch_id,
            reason=reason,
            until=until,
            options=self._dataset._commit_options,
        )
        return Commit.of(made, base)

    @naming_moment
    def remove(
        self,
        *,
        version: int | None = None,
        batch_id: int | None = None,
        dry_run: bool = False,
    ) -> Commit:
        """Allow a protected version or batch to be cleaned up once its retention is over.

        Args:
            version: The protected version.
            batch_id: The protected batch.
            dry_run: Write nothing; return the commit that would be made.

        Raises:
            VersionNotFoundError: There is no such protection.
            InvalidInputError: Not exactly one of version and batch is given.
            CommitConflictError: The race for the head was lost until the deadline.

        Cost:
            The head, one PUT and one conditional PUT.
        """
        if dry_run:
            return self._dataset._dry_run(
                lambda dry: dry.protections.remove(version=version, batch_id=batch_id)
            )
        self._dataset._check_writable()
        made, base = work.protection.unprotect(
            self._dataset._source.store,
            self._dataset.name,
            version=version,
            batch_id=batch_id,
            options=self._dataset._commit_options,
        )
        return Commit.of(made, base)

    def list(self) -> Items[Protection]:
        """Return the protections from cleanup, oldest first; a cleanup removes expired ones.

        Cost:
            The head.
        """
        return Items(self._dataset._source.load().state.protections)
