"""Certificates of erasures: what was searched, rewritten and deleted, and what could not be.

They name no erased value. The condition is recorded as a hash with a salt: it can be compared with a
condition that is known.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from lakebed.common.html import facts_to_html
from lakebed.common.shown import counted
from lakebed.model.layout import Folder
from lakebed.store.base import Store

_SUFFIX = ".json"

EXIT_CODE = 11
"""Exit code of the command line if something is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasedPlace:
    """One place that an erasure has searched.

    Attributes:
        place: Name of the place, such as `older versions`.
        searched: Number of files or objects that were searched there.
        row_count: Number of rows that were erased, or would be.
        rewritten: Number of files or objects that were written again without these rows.
        removed: Number of files or objects of which nothing remains.
    """

    place: str
    searched: int = 0
    row_count: int = 0
    rewritten: int = 0
    removed: int = 0

    @property
    def is_clean(self) -> bool:
        """True if nothing was found in the place."""
        return not (self.row_count or self.rewritten or self.removed)

    def _row_(self) -> dict[str, object]:
        return {
            "place": self.place,
            "searched": self.searched,
            "rows": self.row_count,
            "rewritten": self.rewritten,
            "removed": self.removed,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftPlace:
    """Something that an erasure could not clear.

    Attributes:
        place: Name of the place.
        what: Description of the rest, without an erased value.
        remedy: How to clear it.
        until: Time from which the same call can clear it; None if another action is needed.
    """

    place: str
    what: str
    remedy: str
    until: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The result of an erasure, and its certificate.

    Attributes:
        dataset: Name of the dataset.
        erasure_id: Id of the certificate, under `<dataset>/erasures`; empty for a dry run.
        is_dry_run: True if nothing was changed.
        reason: Reason for the erasure.
        by: User and host that asked for it.
        began_at: Time of the call; aware, UTC.
        ended_at: Time of the end; aware, UTC.
        condition_hash: BLAKE2b of the salt and the condition, in hexadecimal.
        salt: Salt of the hash, in hexadecimal.
        version: Version of the dataset that was searched last.
        oldest_version: The oldest version that can be read, apart from protected ones.
        versions: Versions that the erasure made.
        places: The places that were searched.
        left: Places that could not be cleared.
        deleted: Number of deleted objects.
    """

    dataset: str
    erasure_id: str
    is_dry_run: bool
    reason: str
    by: str
    began_at: dt.datetime
    ended_at: dt.datetime
    condition_hash: str
    salt: str
    version: int
    oldest_version: int
    versions: tuple[int, ...]
    places: tuple[ErasedPlace, ...]
    left: tuple[LeftPlace, ...]
    deleted: int

    @property
    def is_finished(self) -> bool:
        """True if nothing is left of the rows, as far as the certificate names places."""
        return not self.left

    @property
    def row_count(self) -> int:
        """Number of rows that were erased from the current version."""
        return sum(place.row_count for place in self.places if place.place == CURRENT)

    def is_of(self, view: object) -> bool:
        """Return whether a view has the condition that was erased, such as `dataset.where(…)`."""
        condition = getattr(view, "constraint", view)
        return hash_of(str(condition), self.salt) == self.condition_hash

    def to_json(self) -> str:
        """Return the certificate as one JSON document."""
        return msgspec.json.encode({**asdict(self), "is_finished": self.is_finished}).decode()

    def __repr__(self) -> str:
        verb = "would erase" if self.is_dry_run else "erased"
        state = "finished" if self.is_finished else f"{counted(len(self.left), 'place')} left"
        return f"<Erasure of {self.dataset!r}: {verb} {counted(self.row_count, 'row')}, {state}>"

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {
            "reason": self.reason,
            "by": self.by,
            "at": self.ended_at,
            "finished": "yes" if self.is_finished else "no",
            **{
                one.place: f"{counted(one.row_count, 'row')}, {one.rewritten:,} rewritten, "
                f"{one.removed:,} removed"
                for one in self.places
            },
            **{f"left: {one.place}": f"{one.what} {one.remedy}" for one in self.left},
        }
        return facts_to_html(f"Erasure in {self.dataset}", facts)


CURRENT = "current version"
OLDER = "older versions"
STAGED = "staged batches"
RAW = "raw files"


def new_salt() -> str:
    """Return a random salt."""
    return secrets.token_hex(16)


def hash_of(condition: str, salt: str) -> str:
    """Return the hash of a condition.

    >>> len(hash_of("id = 1", "00"))
    32
    """
    salted = bytes.fromhex(salt) + condition.encode()
    return hashlib.blake2b(salted, digest_size=16).hexdigest()


def new_id(now: dt.datetime) -> str:
    """Return the id of a new certificate; ids of later moments are greater."""
    return f"{int(now.timestamp() * 1000):013d}-{secrets.token_hex(8)}"


def put(store: Store, erasure: Erasure) -> str:
    """Store a certificate, and return its key.

    Cost:
        One conditional PUT.
    """
    key = Folder.ERASURES.of(erasure.dataset, f"{erasure.erasure_id}{_SUFFIX}")
    store.create(key, erasure.to_json().encode())
    return key


def document_of(erasure: Erasure) -> Mapping[str, Any]:
    """Return the certificate as plain values."""
    document: Mapping[str, Any] = msgspec.json.decode(erasure.to_json())
    return document
