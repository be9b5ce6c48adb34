"""A fact of a commit is declared once, and everything that carries it follows."""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from enum import Enum
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import lakebed
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.state import history
from lakebed.state.codec import from_document, to_document
from lakebed.state.creation import first_state
from lakebed.state.head import HeadFormat
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.state import HEAD_FACTS, Change, State, apply
from lakebed.state.transaction import Transaction
from lakebed.store.memory import MemoryStore

NOW = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
STATE = first_state(
    "d",
    DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
    HeadFormat.JSON,
)
# Facts that only the state knows: `apply` fills them in.
COMPUTED = {
    "version",
    "committed_at",
    "removed",
    "partitions",
    "protected",
    "unprotected",
    "descriptor",
    "erased",
}
SET = sorted({*Entry.__struct_fields__} - COMPUTED)


def sample(form: Any) -> Any:
    """Return a value of a type that is not its default, for facts yet to come too."""
    origin, parts = typing.get_origin(form), typing.get_args(form)
    if origin is typing.Annotated:
        return sample(parts[0])
    if origin in (typing.Union, types.UnionType):
        return sample(parts[0])
    if origin is typing.Literal:
        return parts[-1]
    if origin is tuple:
        return (sample(parts[0]),)
    if origin is dict:
        return {sample(parts[0]): sample(parts[1])}
    if form in (bool, int, str, dt.datetime):
        return {bool: True, int: 7, str: "x", dt.datetime: NOW}[form]
    if issubclass(form, Enum):
        return list(form)[-1]
    hints = typing.get_type_hints(form, include_extras=True)
    return form(**{name: sample(hints[name]) for name in form.__struct_fields__})


@pytest.mark.parametrize("name", SET)
def test_fact_of_the_history_passes_from_the_change_to_the_entry_that_is_read(name: str) -> None:
    hints = typing.get_type_hints(Entry, include_extras=True)
    value = sample(hints[name])
    change = Change(**{"operation": "append", "commit_id": "c", name: value})

    _, entry = apply(STATE, change, NOW)
    (read,) = history.decode(history.encode([entry]), f"key{history.SUFFIX}")

    assert getattr(read, name) == value
    assert read == entry


@pytest.mark.parametrize("name", HEAD_FACTS)
def test_fact_of_the_head_is_read_as_it_was_written(name: str) -> None:
    value = sample(HEAD_FACTS[name].form)
    state = dataclasses.replace(STATE, version=1, commit_id="c", committed_at=NOW, **{name: value})

    read = from_document(to_document(state), HeadFormat.JSON, "key")

    assert getattr(read, name) == value
    assert read == state


@pytest.mark.parametrize("name", HEAD_FACTS)
def test_fact_of_the_head_is_read_as_the_type_of_its_field(name: str) -> None:
    hint = typing.get_type_hints(State, include_extras=True)[name]

    assert HEAD_FACTS[name].form in (hint, *typing.get_args(hint))


@pytest.mark.parametrize("name", HEAD_FACTS)
def test_fact_of_the_head_that_has_its_default_is_not_written(name: str) -> None:
    assert f"lakebed.{name}" not in to_document(dataclasses.replace(STATE, moved_from="")).metadata


def test_facts_of_a_commit_stand_in_the_history_and_in_the_head() -> None:
    store = MemoryStore("facts")
    lakebed.Repository(store).create("d", STATE.descriptor)
    base = read_head(store, "d").state

    with Transaction.on(store, base, "cleanup") as transaction:
        transaction.commit(Change(horizon=1, oldest_batch=5, open_batches=(3,), restores=0))

    state = read_head(store, "d").state
    (entry,) = history.read(store, state.lists.history, after=0)
    assert (state.horizon, state.oldest_batch, state.open_batches) == (1, 5, (3,))
    assert (entry.horizon, entry.restores, entry.operation) == (1, 0, "cleanup")


def test_change_has_the_facts_of_an_entry_and_no_copy_of_them() -> None:
    redeclared = {*Change.__annotations__} & {*Entry.__struct_fields__}

    # Only what an entry must have, and a draft does not have yet.
    assert redeclared == {"version", "commit_id", "operation", "committed_at"}
    assert issubclass(Change, Entry)
    assert isinstance(Change(), msgspec.Struct)
