"""What verbs have done after the same answers is what their code does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from schedules import play as player
from schedules import verbs
from schedules.interleavings import Pair, failing_orders, orders, schedule_from, standing_orders
from schedules.play import Played, play, simulated
from schedules.replays import Memory, recalling
from schedules.triples import Triple, failing_orders_of_three, orders_of_three
from schedules.verbs import Doing


@pytest.fixture
def all_are_played_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "is_played_twice", lambda _: True)


@pytest.mark.usefixtures("all_are_played_twice")
@pytest.mark.parametrize(
    "schedules",
    [
        lambda: orders(Pair("document", "rollback", "cleanup")),
        lambda: orders(Pair("dropped", "create+append", "create")),
        lambda: failing_orders(Pair("document", "publish_iceberg", "add_field")),
        lambda: standing_orders(Pair("tree", "discard_staged", "commit_staged")),
        lambda: orders_of_three(Triple("tree", ("rollback", "compact_metadata", "discard_staged"))),
        lambda: orders_of_three(Triple("document", ("drop+create", "epoch", "move_head"))),
        lambda: failing_orders_of_three(Triple("tree", ("overwrite", "erase", "epoch"))),
    ],
    ids=["pair", "creators", "faults", "standing", "three", "dropped", "failing three"],
)
def test_what_is_recalled_is_what_the_code_of_verbs_does(
    schedules: Callable[[], Iterator[Played]],
) -> None:
    memory = Memory()
    with simulated(), recalling(memory):
        played = list(itertools.islice(schedules(), 15))

    assert [one.violations for one in played if one.violations] == []
    assert memory.twice >= len(played)
    assert memory.recalled > len(played) // 2
    assert memory.diverged == 0


@pytest.mark.usefixtures("all_are_played_twice")
def test_verb_that_is_not_decided_by_its_answers_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = itertools.count(1)

    def append(doing: Doing) -> None:
        row = {"c": "a", "n": 299 + next(counts), "k": 1}
        doing.note(rows={row["n"]: row})
        doing.answered(doing.open().append([row]))

    monkeypatch.setitem(verbs.VERBS, "append", append)
    with simulated(), recalling(Memory()):
        played = [play(schedule_from("document: append | read")) for _ in range(2)]

    assert [violation.rule for one in played for violation in one.violations] == [
        "what is recalled is what a verb does"
    ] * 2


def test_schedule_whose_verb_does_something_else_is_played_with_its_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = itertools.count()

    def look(doing: Doing) -> None:
        if next(counts):
            list(doing.actor.store.list("d/"))
        doing.open()
        doing.open()

    monkeypatch.setitem(verbs.VERBS, "compact_metadata", look)
    memory = Memory()
    with simulated(), recalling(memory):
        play(schedule_from("document: compact_metadata | append"))
        # The append comes in between, so the code of the verb runs: from its beginning.
        played = play(schedule_from("document: compact_metadata | append ; ann 1"))

    assert memory.diverged == 1
    assert not played.violations
    assert next(call.operation for call in played.calls if call.actor == "ann") == "list"
