"""Protections: versions and batches in the head that no cleanup may give up."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec

from lakebed.model.keys import BatchId


class Protection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A protection of a version, or of the files of one batch, from cleanups.

    Attributes:
        reason: Reason for the protection.
        by: User and host that asked for it.
        at: Time of the request; aware, UTC.
        version: The protected version; None for a batch.
        batch_id: The protected batch; None for a version.
        until: End of the protection; None for no end.

    >>> import datetime as dt
    >>> made = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    >>> one = Protection(reason="audit", by="ann@host", at=made, version=3, until=made)
    >>> one.is_expired(made), one.target
    (True, 'version 3')
    """

    reason: str
    by: str
    at: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    version: Annotated[int, msgspec.Meta(ge=0)] | None = None
    batch_id: BatchId | None = None
    until: Annotated[dt.datetime, msgspec.Meta(tz=True)] | None = None

    @property
    def target(self) -> str:
        """The protected version or batch, in words."""
        return f"batch {self.batch_id}" if self.version is None else f"version {self.version}"

    def _row_(self) -> dict[str, object]:
        return {
            "target": self.target,
            "reason": self.reason,
            "by": self.by,
            "at": self.at,
            "until": self.until,
        }

    def is_expired(self, now: dt.datetime) -> bool:
        """Return whether the protection has ended."""
        return self.until is not None and self.until <= now

    def is_of(self, *, version: int | None, batch_id: int | None) -> bool:
        """Return whether it protects this version or this batch."""
        return (self.version, self.batch_id) == (version, batch_id)
