"""Whatever the order in which the requests of two verbs meet, and whatever fails, the model holds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import pytest

from schedules.bugs import PUT, TEXTS, put_in, reuse_an_earlier_look
from schedules.interleavings import (
    SINGLE,
    Pair,
    TextError,
    claimed_orders,
    failing_orders,
    killed_orders,
    named,
    orders,
    schedule_from,
    short_tier,
    sum_of,
    text_of,
    tried,
)
from schedules.play import Played, play, shrunk, simulated
from schedules.triples import Triple, orders_of_three, triples
from schedules.world import AT_ITS_END, Schedule, Switch, forget_setups

SHARES = 12  # of the short tier, for several workers
# Schedules that were hard to get right, or have failed once.
KEPT = (
    "document: append | append ; ann 12, bob 12",
    "document: drop+create | append ; ann 4, bob 9",
    "document: discard_staged | commit_staged ; ann 9",
    "document: append&append | cleanup ; ann 9 ; ann write 3 late after 2",
    "tree: append | compact ; ann 7 ; ann write 2 landed",
    "tree: epoch | epoch ; ann 9 ; ann write 3 kill after",
    "document: ingest | ingest ; ann 30, bob 40",
    # Of two commits the first had landed, and the error of the second did not report it.
    "document: change_kind | delete ; - ; ann call 24 stands 691200",
    # The first of two puts on the same head landed, right before the second.
    "document: append | read ; ann 15 ; ann write 9 late after 2",
    "tree: ingest | compact_metadata ; ann 70 ; ann write 18 late after 2",
    # The rerun had landed, and its note needed a leaf that was gone.
    "tree: erase | rerun ; ann 1, bob 3",
    # An erasure deleted segments that a commit was about to name, which had stood still for days.
    "document: erase | erase ; - ; ann call 74 stands 691200",
    # A writer completed its batch long after its lease, and an index segment of it was deleted.
    "tree: append&append | erase ; - ; ann call 7 stands 691200",
    # Two threads committed one staged batch by one put of the head, which made two versions of it.
    "document: commit_staged&commit_staged | read ; ann 1",
    # An epoch whose rows a promotion had moved was written again.
    "tree: promote | epoch | epoch ; ann 1, bob, ann",
    # A hand-over of a dropped dataset read both heads, of which only one was there at any time: it
    # replaced that of the dataset which had taken the name, and had been moved.
    "document: move_head | drop+create | move_head ; ann 6",
    "document: move_head | move_head | drop+create ; ann 14, bob 6, cyn, bob",
    # A hand-over confirmed the new head of a dropped dataset beside that of one created meanwhile.
    "document: move_head | drop | create ; ann 12, bob 7",
    # A drop came between the announcement of a move and the new head, whose writer then ended.
    "new: append | move_head#1 | drop ; ann 14, bob 13, cyn, bob ; bob write 2 kill after",
    # What was created is found again after somebody has moved its head.
    "tree: drop+create | move_head ; - ; ann write 10 landed",
)


def tell(failing: Sequence[Played]) -> str:
    with simulated():
        return "\n".join(str(shrunk(played)) for played in failing[:3])


@pytest.mark.parametrize("share", range(SHARES))
def test_no_pair_of_verbs_breaks_a_rule(share: int) -> None:
    with simulated():
        played = [tried(schedule) for schedule in short_tier()[share::SHARES]]
    failing = [one for one in played if one.violations]

    assert not failing, tell(failing)


def test_short_tier_has_each_pair_of_verbs() -> None:
    def verbs_of(schedule: Schedule) -> frozenset[str]:
        return frozenset(
            one.strip().replace(" ", "")
            for one in schedule.text.partition(":")[2].partition(";")[0].split("|")
        )

    met = {verbs_of(schedule) for schedule in short_tier()}

    assert met == set(map(frozenset, itertools.combinations_with_replacement(SINGLE, 2)))


@pytest.mark.parametrize("text", KEPT)
def test_kept_schedule_breaks_no_rule(text: str) -> None:
    with simulated():
        played = play(schedule_from(text))

    assert not played.violations, str(played)
    assert text_of(played.schedule).replace(" & ", "&") == text


@pytest.mark.parametrize("write", [18, 25], ids=["of the quarantine", "of the dataset"])
def test_commit_that_its_own_raw_files_refuse_is_found(write: int) -> None:
    """A put of the head is repeated on its way: the second one meets the first one's head."""
    with simulated():
        played = play(schedule_from(f"document: ingest | read ; - ; ann write {write} twice"))

    assert [call.key for call in played.calls if "sent twice" in call.outcome] == [
        {18: "d_quarantine.by-dataset-metadata.json", 25: "d.by-dataset-metadata.json"}[write]
    ]
    ends = [how for _, who, what, _, how in played.trace if (who, what) == ("ann", "ends")]
    assert ends == ["done"]
    assert not played.violations, str(played)


@pytest.mark.parametrize("first", ["append", "drop"])
def test_no_verb_breaks_a_rule_within_which_a_move_of_the_head_is_killed(first: str) -> None:
    with simulated():
        played = list(killed_orders(Pair("new", first, "move_head#1")))

    failing = [one for one in played if one.violations]
    assert not failing, tell(failing)
    assert len(played) >= 20
    assert all("kill after" in one.schedule.text for one in played)


@pytest.mark.parametrize("kind", ["document", "tree"])
@pytest.mark.parametrize("second", ["append_lost", "append", "drop+create"])
def test_no_verb_breaks_a_rule_that_meets_the_claim_of_a_killed_one(kind: str, second: str) -> None:
    with simulated():
        played = list(claimed_orders(Pair(kind, "append", second)))

    failing = [one for one in played if one.violations]
    assert not failing, tell(failing)
    outcomes = [call.outcome for one in played for call in one.calls]
    assert outcomes.count("killed after its claim") == len(played) >= 2
    assert "lands late" in outcomes


def test_commit_is_not_put_on_an_unconfirmed_head_whatever_was_read() -> None:
    text = TEXTS["an old head that was read before the new one proves it"]
    with put_in(reuse_an_earlier_look):
        played = play(schedule_from(text))

    assert not played.violations, str(played)
    assert played.trace[-1][4] == "done"


@pytest.mark.thorough
@pytest.mark.parametrize("way", [orders, failing_orders])
@pytest.mark.parametrize("kind", ["document", "tree"])
def test_no_order_of_two_appends_breaks_a_rule(kind: str, way) -> None:
    with simulated():
        played = list(way(Pair(kind, "append", "append")))

    failing = [one for one in played if one.violations]
    assert not failing, tell(failing)
    assert len({sum_of(one) for one in played}) > 5


def test_schedule_is_a_function_of_its_text() -> None:
    text = "document: overwrite | append ; ann 9, bob 4 ; ann write 2 late after 2"
    with simulated():
        first = play(schedule_from(text))
        forget_setups()
        second = play(schedule_from(text))

    assert first.calls == second.calls
    assert first.trace == second.trace


def test_actor_gives_way_where_the_schedule_says_so() -> None:
    with simulated():
        played = play(schedule_from("document: append | append ; ann 3, bob 2"))

    order = [name for name, _ in itertools.groupby(call.actor for call in played.calls)]
    assert order[:3] == ["ann", "bob", "ann"]
    assert [call.nth for call in played.calls[:5]] == [0, 1, 2, 0, 1]
    assert {call.actor for call in played.calls[3:5]} == {"bob"}


def test_schedule_says_who_goes_on() -> None:
    def order(text: str) -> list[str]:
        with simulated():
            played = play(schedule_from(f"document: add_field | drop_index | append ; {text}"))
        return [name for name, _ in itertools.groupby(call.actor for call in played.calls)]

    assert order("ann 3, bob 2")[:5] == ["ann", "bob", "cyn", "ann", "bob"]
    assert order("ann 3, bob 2, cyn, bob")[:5] == ["ann", "bob", "cyn", "bob", "ann"]
    assert order("ann 3, cyn, ann")[:4] == ["ann", "cyn", "ann", "bob"]


def test_orders_of_three_have_each_of_them_give_way() -> None:
    triple = Triple("document", ("read", "drop_index", "add_field"))
    with simulated():
        played = list(orders_of_three(triple))

    assert not [one for one in played if one.violations]
    texts = [one.schedule.text for one in played]
    assert len(texts) == len(set(texts))
    assert all(text_of(schedule_from(text)) == text for text in texts)
    given_way = {one.schedule.switches[0].actor for one in played if one.schedule.switches}
    begun = {one.schedule.parts[0].steps[0].verb for one in played}
    assert given_way == {"ann"}
    assert begun == {"read", "drop_index", "add_field"}
    assert any("cyn, bob" in text for text in texts)
    assert len({sum_of(one) for one in played}) > len(played) / 2


@pytest.mark.thorough
def test_orders_of_three_that_are_left_out_come_to_the_same() -> None:
    """All places at which two of three give way give no other sum than those that are played."""
    triple = Triple("document", ("add_field", "drop_index", "read"))
    with simulated():
        known = {sum_of(one) for one in orders_of_three(triple)}
        turns = play(triple.schedule).turns
        every = {
            sum_of(play(named(replace(triple.schedule, switches=switches))))
            for ann, bob in itertools.product(range(1, turns["ann"]), range(1, turns["bob"]))
            for switches in (
                (Switch("ann", ann), Switch("bob", bob)),
                (
                    Switch("ann", ann, "bob"),
                    Switch("bob", bob, "cyn"),
                    Switch("cyn", AT_ITS_END, "bob"),
                ),
            )
        }

    assert every <= known


def test_orders_that_are_left_out_come_to_the_same() -> None:
    """All switches of one actor, one by one, give no other sum than those that are played."""
    pair = Pair("document", "add_field", "append")
    with simulated():
        known = {sum_of(one) for one in orders(pair)}
        turns = play(pair.schedule).turns["ann"]
        every = {
            sum_of(play(named(replace(pair.schedule, switches=(Switch("ann", nth),)))))
            for nth in range(1, turns)
        }

    assert every <= known


def test_each_triple_has_a_schedule() -> None:
    for triple in triples():
        actors = [part.actor for part in triple.schedule.parts]
        assert len(set(actors)) == len(actors) == 3 + str(triple).count("&")


@pytest.mark.parametrize(
    "text",
    [
        "paper: append | append",
        "document: appendix | append",
        "document: append | append ; ann 3 ; ann write 2 lucky",
        "document: append | append ; ann 3 ; something",
    ],
)
def test_text_that_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(TextError):
        schedule_from(text)


def test_failing_schedule_becomes_small_and_fails_again() -> None:
    text = "document: read+append | append+read ; ann 4, ann 12, bob 10, bob 14"
    with put_in(PUT["the store skips the etag of a put"]):
        failing = play(schedule_from(text))
        small = shrunk(failing)
        again = play(schedule_from(small.schedule.text))

    assert failing.violations
    assert again.violations == small.violations
    assert len(small.schedule.switches or ()) < 4
    assert "read" not in small.schedule.text
    assert f"python -m schedules {small.schedule.text!r}" in str(small)
