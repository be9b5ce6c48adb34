"""What a cleanup has given up stays given up: laws of the pure core, and damaged heads."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from heads import change_entries
from hypothesis import given
from hypothesis import strategies as st
from upkeep_lake import DESCRIPTOR, new_lake, row

from lakebed.errors import CorruptMetadataError
from lakebed.state.creation import first_state
from lakebed.state.head import HeadFormat
from lakebed.state.history import Entry, replay
from lakebed.state.protections import Protection
from lakebed.state.readable import is_readable, kept_files
from lakebed.state.state import Change, Listed, State, apply

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
IDS = range(1, 12)
HEADS = {
    "lakebed.horizon": ["", "-1", "x", "1.5", "9" * 30, 3],
    "lakebed.oldest_batch": ["", "x"],
    "lakebed.open_batches": ["", "[", '["a"]', "{}", "[1.5]"],
    "lakebed.protections": [
        "",
        "[{}]",
        '[{"reason": "x", "by": "y", "at": "2026-01-01T00:00:00"}]',
        '[{"reason": "x", "by": "y", "at": "soon"}]',
        '{"version": 1}',
    ],
}


def changes() -> st.SearchStrategy[Change]:
    return st.builds(
        Change,
        operation=st.just("cleanup"),
        commit_id=st.just("c"),
        base_version=st.just(0),
        horizon=st.integers(0, 5),
        oldest_batch=st.integers(0, 13),
        open_batches=st.lists(st.sampled_from(IDS), max_size=4).map(tuple),
    )


def allowed(state: State) -> set[int]:
    return {one for one in IDS if one >= state.oldest_batch or one in state.open_batches}


@given(st.lists(changes(), max_size=6))
def test_no_commit_lets_a_batch_in_that_was_shut_out(found: list[Change]) -> None:
    state = first_state("d", DESCRIPTOR, HeadFormat.JSON)
    for change in found:
        before = allowed(state), state.horizon

        state, _ = apply(state, change, NOW)

        assert allowed(state) <= before[0]
        assert state.horizon >= before[1]


@given(changes(), st.integers(1, 12))
def test_cleanup_shuts_out_what_it_says_and_nothing_that_is_open(change: Change, at: int) -> None:
    state = first_state("d", DESCRIPTOR, HeadFormat.JSON)

    after, _ = apply(state, change, NOW)

    wanted = at >= change.oldest_batch or at in change.open_batches
    assert (at >= after.oldest_batch or at in after.open_batches) == wanted


LABELS = st.frozensets(st.sampled_from("abcde"))


def history(steps: list[tuple[frozenset[str], frozenset[str]]]) -> list[Entry]:
    return [
        Entry(
            version=version,
            commit_id=str(version),
            operation="overwrite",
            committed_at=NOW,
            batch_id=version,
            added=tuple(sorted(added)),
            removed=tuple(sorted(removed)),
        )
        for version, (added, removed) in enumerate(steps)
    ]


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=9), st.data())
def test_kept_are_the_files_of_each_version_that_can_be_read_and_of_protected_batches(
    steps: list, data: st.DataObject
) -> None:
    entries = history(steps)
    versions = st.integers(0, len(entries) - 1)
    horizon, batches = data.draw(versions), data.draw(st.frozensets(versions))
    protected = data.draw(st.frozensets(versions))
    protections = [Protection(reason="x", by="y", at=NOW, version=one) for one in protected]
    protections += [Protection(reason="x", by="y", at=NOW, batch_id=one) for one in batches]
    state = replace(
        first_state("d", DESCRIPTOR, HeadFormat.JSON),
        version=len(entries) - 1,
        live=Listed(replay(entries, len(entries) - 1).labels),
        horizon=horizon,
        protections=tuple(protections),
    )

    kept = kept_files(entries, state)

    readable = [one.version for one in entries if is_readable(state, one.version)]
    wanted = {label for version in readable for label in replay(entries, version).labels}
    wanted |= {label for version in batches for label in entries[version].added}
    assert kept.labels == wanted | kept.retained
    of_horizon = set(replay(entries, horizon).labels)
    assert kept.retained == of_horizon.union(*(one.added for one in entries[horizon + 1 :]))


def test_history_is_read_as_often_for_many_protections_as_for_one() -> None:
    class Counted(list):
        passes = 0

        def __iter__(self) -> Iterator[Entry]:
            self.passes += 1
            return super().__iter__()

    passes = set()
    for count in (1, 50):
        entries = Counted(history([(frozenset("a"), frozenset("a"))] * 60))
        state = replace(
            first_state("d", DESCRIPTOR, HeadFormat.JSON),
            version=59,
            live=Listed(("a",)),
            horizon=59,
            protections=tuple(
                Protection(reason="x", by="y", at=NOW, version=one) for one in range(count)
            ),
        )
        kept_files(entries, state)
        passes.add(entries.passes)

    assert len(passes) == 1


def test_version_is_readable_from_the_horizon_on_or_while_it_is_protected() -> None:
    one = Protection(reason="x", by="y", at=NOW, version=2, until=NOW)
    state = first_state("d", DESCRIPTOR, HeadFormat.JSON)
    change = Change(operation="protect", commit_id="c", base_version=0, protect=(one,), horizon=4)

    after, entry = apply(state, change, NOW)

    assert [is_readable(after, version) for version in range(6)] == [
        False,
        False,
        True,  # though it has expired: only the commit of a cleanup takes it out
        False,
        True,
        True,
    ]
    assert entry.protected == ("version 2",)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in HEADS.items() for value in values]
)
def test_damaged_entry_of_the_head_is_named(tmp_path: Path, name: str, value: object) -> None:
    lake = new_lake(tmp_path)
    dataset = lake.create("d", DESCRIPTOR)
    dataset.append([row("a", 1)])
    change_entries(lake.store, "d", {name: value})

    with pytest.raises(CorruptMetadataError, match=name.replace(".", r"\.")):
        lake.open("d")
