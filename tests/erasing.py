"""What tests of erasures share: rows of a person, a store as S3, and a search for what is left."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import time_machine
from planted import found_in, key

from lakebed import Dataset
from lakebed.store.base import ObjectInfo, ObjectStat, StoredObject
from lakebed.testing.stores import DelegatingStore
from lakebed.work.erasure import Erasure

NUMBERED = pa.schema([("uid", pa.int64()), ("user", pa.string())])
BOB, PERSON = {"uid": 1, "user": "bob"}, {"uid": 7, "user": key(7)}


def erased_without_trace(visits: Dataset, where: Any, root: Path) -> Erasure:
    """Erase, and check that nothing of planted keys is left, and that it takes one call."""
    done = visits.erase(where, reason="request 17", grace="0s")
    assert done.is_finished, done.left
    found = found_in(root)
    assert found == [], found
    assert visits.check(deep=True).is_ok
    assert visits.erase(where, reason="request 17", grace="0s").versions == ()
    return done


def gave_up(visits: Dataset) -> None:
    """Give up all versions but the current one."""
    with time_machine.travel(dt.datetime.now(dt.UTC) + dt.timedelta(days=30)):
        visits.cleanup(older_than="0s", dry_run=False)


class WholeSeconds(DelegatingStore):
    """A store that gives objects times in whole seconds, as S3 does."""

    def _get(self, key: str) -> StoredObject:
        return _cut(super()._get(key))

    def _get_if_changed(self, key: str, etag: str) -> StoredObject | None:
        found = super()._get_if_changed(key, etag)
        return None if found is None else _cut(found)

    def _stat(self, key: str) -> ObjectStat:
        return _cut(super()._stat(key))

    def _list(self, begins_with: str, *, recursive: bool) -> Iterator[ObjectInfo]:
        return map(_cut, super()._list(begins_with, recursive=recursive))


_T = TypeVar("_T", StoredObject, ObjectStat, ObjectInfo)


def _cut(found: _T) -> _T:
    if found.modified_at is None:
        return found
    return replace(found, modified_at=found.modified_at.replace(microsecond=0))
