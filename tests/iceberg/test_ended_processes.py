"""Changes of the tables that a catalog keeps, by processes that end at any of their writes."""

from __future__ import annotations

import contextlib
import json

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakebed
from lakebed.errors import (
    AlreadyExistsError,
    CommitConflictError,
    InvalidInputError,
    NotFoundError,
)
from lakebed.tables.iceberg.pointer_tables import PointerTables
from lakebed.testing.stores import DelegatingStore

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))


class Killed(BaseException):
    """The end of the process."""


class DyingStore(DelegatingStore):
    """A store whose process ends at the nth write, before or after it; nothing is written later."""

    def __init__(self, inner, nth: int, *, landed: bool) -> None:
        super().__init__(inner)
        self._left, self._landed, self.is_dead = nth, landed, False

    def _write(self, write):
        if self.is_dead:
            raise Killed
        self._left -= 1
        self.is_dead = self._left == 0
        if self.is_dead and not self._landed:
            raise Killed
        result = write()
        if self.is_dead:
            raise Killed
        return result

    def _create(self, key, data):
        return self._write(lambda: self.inner.create(key, data))

    def _replace(self, key, data, *, if_match):
        return self._write(lambda: self.inner.replace(key, data, if_match=if_match))

    def _put(self, key, data):
        return self._write(lambda: self.inner.put(key, data))

    def _delete(self, keys):
        return self._write(lambda: self.inner.delete(keys))


def _request(**document) -> bytes:
    return json.dumps(document).encode()


_SCHEMA = json.loads(SCHEMA.model_dump_json())
_PROPERTIES = [{"action": "set-properties", "updates": {"a": "new"}}]
_CHANGES = {
    "create": lambda tables, _: tables.create("", _request(name="made", schema=_SCHEMA)),
    "commit": lambda tables, _: tables.commit(
        "orders", _request(requirements=[], updates=_PROPERTIES), only_appends=False
    ),
    "rename": lambda tables, _: tables.rename("orders", "bought"),
    "drop": lambda tables, _: tables.drop("orders", purge=False),
    "register": lambda tables, location: tables.register(
        "", _request(**{"name": "again", "metadata-location": location})
    ),
}


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("change", _CHANGES)
def test_a_change_whose_process_ends_at_any_write_is_made_or_not(change, landed) -> None:
    ends = set()
    for nth in range(1, 10):
        store = lakebed.open_repository(f"memory://ended-{change}-{landed}-{nth}").store
        tables = PointerTables(store, store.uri)
        tables.create("", _request(name="orders", schema=_SCHEMA))
        tables.create("", _request(name="past", schema=_SCHEMA))
        past = tables.find("past").location
        tables.drop("past", purge=False)
        dying = DyingStore(store, nth, landed=landed)
        try:
            _CHANGES[change](PointerTables(dying, store.uri), past)
        except Killed:
            assert dying.is_dead
        found = {}
        for name in tables.list(""):
            try:
                found[name] = dict(tables.find(name).metadata.properties)
            except CommitConflictError:
                assert change == "rename"
                found[name] = "renaming"
        ends.add(json.dumps(found, sort_keys=True))
        # The same request ends it, or finds it done.
        try:
            _CHANGES[change](tables, past)
        except (AlreadyExistsError, NotFoundError):
            assert change != "commit"
        last = {name: dict(tables.find(name).metadata.properties) for name in tables.list("")}
        assert last == _AFTER[change]
        if not dying.is_dead:
            break
    else:
        pytest.fail("the change has no end")
    before, after = ({"orders": {}}, _AFTER[change])
    allowed = [before, after]
    if change == "rename":
        allowed += [{"orders": "renaming"}, {"orders": "renaming", "bought": {}}]
    assert ends <= {json.dumps(one, sort_keys=True) for one in allowed}
    assert json.dumps(after, sort_keys=True) in ends


_AFTER = {
    "create": {"orders": {}, "made": {}},
    "commit": {"orders": {"a": "new"}},
    "rename": {"bought": {}},
    "drop": {},
    "register": {"orders": {}, "again": {}},
}


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("after", [None, "table", "dataset"])
def test_a_purge_that_ends_halfway_is_ended_by_the_next_one(after, landed) -> None:
    """The name is free, what takes it stays whole, and no file of the purged table is left."""
    for nth in range(1, 30):
        store = lakebed.open_repository(f"memory://purged-{after}-{landed}-{nth}").store
        tables = PointerTables(store, store.uri)
        tables.create("", _request(name="orders", schema=_SCHEMA))
        tables.commit("orders", _request(requirements=[], updates=_PROPERTIES), only_appends=False)
        for number in range(3):
            store.put(f"orders/data/{number}.parquet", b"rows")
        store.put("orders-other/data/0.parquet", b"of another table")
        dying = DyingStore(store, nth, landed=landed)
        try:
            PointerTables(_OneByOne(dying), store.uri).drop("orders", purge=True)
        except Killed:
            assert dying.is_dead
        if tables.exists("orders"):  # the process has ended before the change
            tables.drop("orders", purge=True)

        if after == "table":
            tables.create("", _request(name="orders", schema=_SCHEMA))
        elif after == "dataset":
            # Metadata that is left keeps the name from a dataset until the next purge.
            with contextlib.suppress(InvalidInputError):
                lakebed.Repository(store).write("orders", [{"id": 1}])
        try:
            tables.drop("orders", purge=True)
        except NotFoundError:
            assert after != "table"

        left = {info.key for info in store.list("orders")}
        if after == "dataset":
            if not left:
                lakebed.Repository(store).write("orders", [{"id": 1}])
            orders = lakebed.Repository(store)["orders"]
            assert orders.check().is_ok
            assert orders.count() == 1
            lakebed.Repository(store).drop("orders")
            assert {info.key for info in store.list("orders")} <= left
        else:
            assert left == set()
        assert list(store.list("orders-other"))
        tables.create("", _request(name="orders", schema=_SCHEMA))
        if not dying.is_dead:
            break
    else:
        pytest.fail("the purge has no end")
    assert nth > 6


class _OneByOne(DelegatingStore):
    """Deletes objects one after the other, so that a process can end between two of them."""

    def _delete(self, keys):
        for key in keys:
            super()._delete([key])
