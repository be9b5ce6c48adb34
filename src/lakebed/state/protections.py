"""Protections: what the head says that no cleanup may take."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec

from lakebed.model.keys import BatchId


class Protection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Keeps a version, or the files of one batch, from being cleaned up.

    Attributes:
        reason: Why.
        by: Who asked for it: user and host.
        at: When; aware, UTC.
        version: What is kept; None for a batch.
        batch_id: What is kept; None for a version.
        until: From then on it counts no more; None for ever.

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
        """What it keeps, in words."""
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
        """Whether it counts no more."""
        return self.until is not None and self.until <= now

    def is_of(self, *, version: int | None, batch_id: int | None) -> bool:
        """Whether it keeps this version, or this batch."""
        return (self.version, self.batch_id) == (version, batch_id)
