"""Damage of each kind of object: no wrong rows without an error, and nothing is deleted by it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from damage.matrix import DAMAGES, KINDS, Damage, Kind, Outcome, damages, tried
from damage.silent import SILENT, UNNOTICED, reason_of
from lakebed.store.cache import PROCESS_CACHE

OTHERS = "other ranges: another partition"


@pytest.fixture(autouse=True)
def _own_cache() -> Iterator[None]:
    yield
    PROCESS_CACHE.clear()


def is_noticed_in(outcome: Outcome) -> bool:
    return bool(outcome.errors or outcome.check or outcome.deep)


@cache
def without(kind: Kind, lake: str, key: str) -> Outcome:
    """Return what becomes of the loss of an object."""
    return tried(Damage(kind, "lost", lake, key, None), is_written_to=False)


@cache
def first_ones() -> frozenset[tuple[str, str]]:
    """Return lake and key of the first object of each kind, which the newest version needs."""
    return frozenset((one.lake, one.key) for one in damages())


def is_first(damage: Damage) -> bool:
    return (damage.lake, damage.key) in first_ones()


def is_needed(damage: Damage) -> bool:
    """Return whether anybody needs the object; what no version names any more may be lost."""
    return is_first(damage) or is_noticed_in(without(damage.kind, damage.lake, damage.key))


def has_other_range(damage: Damage) -> bool:
    """Return whether the object has what the probe of another partition reads."""
    if is_first(damage) or damage.kind.name == "data file":
        return "p=d" in damage.key
    return OTHERS in without(damage.kind, damage.lake, damage.key).errors


def faults(outcome: Outcome) -> Iterator[str]:
    """Yield what breaks a rule."""
    damage = outcome.damage
    name = f"{damage.kind.name}, {damage.how}, {damage.lake}, {damage.key}"
    allowed = SILENT.get((damage.kind.name, damage.how), frozenset())
    wrong = {one: text[:300] for one, text in outcome.others.items() if one not in allowed}
    if wrong:
        yield f"{name}: another answer without an error: {wrong}"
    is_noticed = is_noticed_in(outcome)
    if not is_noticed and not reason_of(damage.kind.name, damage.how) and is_needed(damage):
        yield f"{name}: nothing notices it"
    of_head = damage.kind.name.startswith("head,")
    if OTHERS in outcome.errors and not of_head and not has_other_range(damage):
        yield f"{name}: other ranges cannot be read"
    if outcome.deleted and (damage.kind.name, damage.how) not in UNNOTICED:
        yield f"{name}: a cleanup deletes {outcome.deleted}"
    if outcome.written and not allowed:
        yield f"{name}: {outcome.written}"


def test_damage_is_named_and_gives_no_wrong_rows() -> None:
    found = [
        fault
        for damage in damages()
        for fault in faults(tried(damage, is_written_to=damage.how == "lost"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_each_object_in_each_way(kind: object) -> None:
    found = [
        fault
        for damage in damages(thorough=True)
        if damage.kind == kind
        for fault in faults(tried(damage))
    ]
    assert not found, "\n".join(found)


def test_exceptions_are_of_kinds_that_there_are() -> None:
    names = {kind.name for kind in KINDS}
    assert {name for name, _ in (*SILENT, *UNNOTICED)} <= names
    assert {how for _, how in (*SILENT, *UNNOTICED)} <= {*DAMAGES, "*"}
