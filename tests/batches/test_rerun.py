"""Rerunning a named run: what it wrote before is replaced, wherever it lies."""

import datetime as dt
import json
import statistics
import threading
import time
import types
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from lakebed import Dataset, DatasetDescriptor, Repository, by, open_repository
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    ReadOnlyError,
    StaleRerunError,
)
from lakebed.state import history, reservation, runs
from lakebed.state.history import REWRITING
from lakebed.state.reader import read_head
from lakebed.state.reservation import reserve
from lakebed.state.runs import Runs, noted_by
from lakebed.state.scope import RunFiles
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.store.segments import FANOUT
from lakebed.testing import CountingStore, DelegatingStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return make(store)


def make(store: Store) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    return Repository(store).create("d", descriptor)


def rows(*pairs: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"p": p, "n": n} for p, n in pairs]


def content(dataset: Dataset) -> list[tuple[str, int]]:
    return sorted((row["p"], row["n"]) for row in dataset.arrow().to_pylist())


class _Interfering(DelegatingStore):
    """Lets somebody else commit just before the first swap of the head."""

    def __init__(self, inner: Store, interfere: Callable[[], object]) -> None:
        super().__init__(inner)
        self._interfere: Callable[[], object] | None = interfere

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        interfere = self._interfere
        if interfere is not None and "metadata" in key:
            self._interfere = None
            interfere()
        return super()._replace(key, data, if_match=if_match)


def test_rerun_replaces_what_the_run_wrote_in_every_partition_in_one_commit(
    dataset: Dataset,
) -> None:
    dataset.rerun(rows(("a", 1), ("b", 1), ("c", 1)), run="daily", replace_all=True)
    dataset.append(rows(("a", 7), ("d", 7)), run="other")
    dataset.append(rows(("b", 8)))

    commit = dataset.rerun(rows(("a", 2), ("d", 2)), run="daily", replace_all=True)

    assert content(dataset) == [("a", 2), ("a", 7), ("b", 8), ("d", 2), ("d", 7)]
    assert (commit.version, commit.operation, commit.run) == (4, "rerun", "daily")
    assert len(commit.files_removed) == 3
    assert set(commit.partitions) == {"p=a", "p=b", "p=c", "p=d"}
    assert content(dataset.at(version=3)) == [
        *(("a", 1), ("a", 7), ("b", 1), ("b", 8), ("c", 1), ("d", 7)),
    ]


def test_first_rerun_of_a_run_is_an_append(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1)))

    commit = dataset.rerun(rows(("a", 2)), "daily", replace_all=True)

    assert commit.files_removed == ()
    assert content(dataset) == [("a", 1), ("a", 2)]


def test_rerun_without_rows_empties(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1)), run="other")
    dataset.rerun(rows(("a", 2), ("b", 2)), "daily", replace_all=True)

    commit = dataset.rerun([], "daily", replace_all=True)

    assert content(dataset) == [("a", 1)]
    assert (commit.row_count, len(commit.files_removed)) == (0, 2)
    assert dataset.rerun(rows(("b", 3)), "daily", replace_all=True).files_removed == ()


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_appends_and_overwrites_of_the_run_count_as_its_writing(
    dataset: Dataset, operation: str
) -> None:
    dataset.append(rows(("a", 1)))
    getattr(dataset, operation)(rows(("a", 2), ("b", 2)), run="daily")

    dataset.rerun(rows(("c", 3)), "daily", replace_all=True)

    assert content(dataset) == ([("a", 1), ("c", 3)] if operation == "append" else [("c", 3)])


def test_rows_that_a_delete_wrote_anew_are_still_of_their_run(
    dataset: Dataset, store: Store
) -> None:
    dataset.append(rows(("a", 1), ("a", 2), ("b", 1)), run="daily")
    dataset.append(rows(("a", 1), ("a", 3)), run="other")
    dataset.append(rows(("a", 1), ("a", 4)))
    dataset.where("n = 1").delete(run="tidy")
    assert content(dataset) == [("a", 2), ("a", 3), ("a", 4)]

    dataset.rerun(rows(("c", 9)), "daily", replace_all=True)

    assert content(dataset) == [("a", 3), ("a", 4), ("c", 9)]
    dataset.rerun([], "tidy", replace_all=True)  # which has written nothing of its own
    assert content(dataset) == [("a", 3), ("a", 4), ("c", 9)]
    check_index(store)


def test_what_a_rollback_brings_back_is_still_of_its_run(dataset: Dataset) -> None:
    dataset.rerun(rows(("a", 1)), "daily", replace_all=True)
    dataset.rerun(rows(("a", 2)), "daily", replace_all=True)
    dataset.rollback(version=1)

    dataset.rerun(rows(("a", 3)), "daily", replace_all=True)

    assert content(dataset) == [("a", 3)]


def test_older_rerun_is_stale_once_a_newer_one_is_committed(dataset: Dataset, store: Store) -> None:
    dataset.rerun(rows(("a", 1)), "daily", replace_all=True)
    newer = []
    late = _Interfering(
        store, lambda: newer.append(dataset.rerun(rows(("b", 2)), "daily", replace_all=True))
    )

    with pytest.raises(StaleRerunError) as caught:
        Repository(late).open("d").rerun(rows(("a", 3)), "daily", replace_all=True)

    assert content(dataset) == [("b", 2)]
    assert caught.value.batch_id == newer[0].batch_id
    assert caught.value.commit_id == newer[0].commit_id
    assert f"batch {newer[0].batch_id}" in caught.value.message
    assert newer[0].commit_id in caught.value.message
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert {one.key for one in store.list("d/data/p=")} <= known


def test_rerun_that_began_before_another_one_was_visible_conflicts(
    dataset: Dataset, store: Store
) -> None:
    staged = dataset.staged.add(rows(("a", 1)), "rerun", run="daily", replace_all=True)
    late = _Interfering(store, staged.commit)

    with pytest.raises(CommitConflictError, match="belongs to the same run") as caught:
        Repository(late).open("d").rerun(rows(("a", 2)), "daily", replace_all=True)

    assert not isinstance(caught.value, StaleRerunError)
    assert content(dataset) == [("a", 1)]


def test_of_racing_reruns_of_a_run_one_wins_at_a_time(dataset: Dataset, store: Store) -> None:
    start = threading.Barrier(6)
    outcomes: list[str] = []

    def run(number: int) -> None:
        mine = Repository(store).open("d")
        start.wait()
        try:
            mine.rerun(rows(("a", number), ("b", number)), "daily", replace_all=True)
        except CommitConflictError:
            outcomes.append("lost")
        else:
            outcomes.append("won")

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes.count("won") >= 1
    assert dataset.version == outcomes.count("won")
    assert [p for p, _ in content(dataset)] == ["a", "b"]
    assert len({n for _, n in content(dataset)}) == 1


@pytest.mark.parametrize("what", ["append", "overwrite", "delete", "other rerun"])
def test_writing_of_others_meanwhile_is_no_conflict(
    dataset: Dataset, store: Store, what: str
) -> None:
    dataset.rerun(rows(("a", 1), ("a", 2), ("b", 1)), "daily", replace_all=True)
    others = {
        "append": lambda: dataset.append(rows(("a", 7))),
        "overwrite": lambda: dataset.overwrite(rows(("a", 7))),
        "delete": lambda: dataset.where("n = 1").delete(),
        "other rerun": lambda: dataset.rerun(rows(("a", 7)), "other", replace_all=True),
    }
    late = _Interfering(store, others[what])

    Repository(late).open("d").rerun(rows(("c", 3)), "daily", replace_all=True)

    seven = [] if what == "delete" else [("a", 7)]
    assert content(dataset) == [*seven, ("c", 3)]


def test_older_state_and_nameless_run_are_refused(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1)))

    with pytest.raises(ReadOnlyError):
        dataset.at(version=1).rerun([], "daily", replace_all=True)
    for run in ("", None, 7):
        with pytest.raises(InvalidInputError, match="not a valid name of a run"):
            dataset.rerun([], run, replace_all=True)  # type: ignore[arg-type]
    assert dataset.version == 1


# What is known of runs


def check_index(store: Store) -> None:
    """What the segments tell is what the whole history tells."""
    state = read_head(store, "d").state
    entries = history.read(store, state.lists.history)
    known = runs.read(store, state.lists)
    whole = noted_by(entries)
    told = {label: known.of(label) for entry in entries for label in entry.added}
    assert told == {label: whole.of(label) for label in told}
    for run in {entry.run for entry in entries if entry.run}:
        live = known.files_of(run, state.labels)
        assert set(live) == {one for one in state.labels if whole.of(one) == run}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "rerun", "overwrite", "delete", "rollback"]),
        st.sampled_from([None, "r1", "r2"]),
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=4),
    ),
    max_size=8,
)


@examples(0.6)
@given(steps=STEPS)
def test_runs_are_as_a_model_has_them(steps: list[Any]) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    dataset = make(store)
    model: list[tuple[str | None, str, int]] = []  # run, p, n
    past = {0: model}
    for operation, run, pairs in steps:
        new = [(run, p, n) for p, n in pairs]
        match operation:
            case "append":
                dataset.append(rows(*pairs), run)
                model = [*model, *new]
            case "rerun":
                dataset.rerun(rows(*pairs), run or "r1", replace_all=True)
                new = [(run or "r1", p, n) for p, n in pairs]
                model = [one for one in model if one[0] != (run or "r1")] + new
            case "overwrite" if pairs:
                dataset.overwrite(rows(*pairs), run=run)
                touched = {p for p, _ in pairs}
                model = [one for one in model if one[1] not in touched] + new
            case "delete":
                dataset.where("n = 1").delete(run=run)
                model = [one for one in model if one[2] != 1]
            case "rollback":
                target = dataset.version // 2
                dataset.rollback(version=target)
                model = past[target]
        past[dataset.version] = model
        assert content(dataset) == sorted((p, n) for _, p, n in model)
    check_index(store)


def test_older_release_that_forgot_the_index_does_no_harm(dataset: Dataset, store: Store) -> None:
    dataset.append(rows(("a", 1)), run="daily")
    head = json.loads(store.get("d.by-dataset-metadata.json").data)
    del head["metadata"]["lakebed.runs"], head["metadata"]["lakebed.checksum"]
    store.put("d.by-dataset-metadata.json", json.dumps(head).encode())
    assert read_head(store, "d").state.lists.runs == ()

    dataset.rerun(rows(("b", 2)), "daily", replace_all=True)

    assert content(dataset) == [("b", 2)]
    check_index(store)


def test_runs_without_names_need_no_index(dataset: Dataset, store: Store) -> None:
    for n in range(3):
        dataset.append(rows(("a", n)))

    assert read_head(store, "d").state.lists.runs == ()
    assert not list(store.list("d/runs/"))


def test_index_stays_a_short_list(dataset: Dataset, store: Store) -> None:
    for n in range(3 * FANOUT):
        dataset.rerun(rows(("a", n)), f"run {n % 5}", replace_all=True)

    assert len(read_head(store, "d").state.lists.runs) < 2 * FANOUT
    check_index(store)


def test_damaged_index_is_named_and_nothing_is_replaced(dataset: Dataset, store: Store) -> None:
    dataset.rerun(rows(("a", 1)), "daily", replace_all=True)
    (segment,) = read_head(store, "d").state.lists.runs
    store.put(segment.key, b"no segment")

    with pytest.raises(CorruptMetadataError, match="d/runs/"):
        Repository(store).open("d").rerun(rows(("a", 2)), "daily", replace_all=True)

    assert content(dataset) == [("a", 1)]


def test_rewriting_operations_are_never_the_run_that_they_are_called() -> None:
    assert {"delete", "compact", "merge", "promote"} <= REWRITING
    label = "p=a/batch_id=5/part-0"
    assert Runs(batches={5: "daily"}).of(label) == "daily"
    assert Runs(batches={5: "daily"}, carried={label: "other"}).of(label) == "other"
    assert Runs(batches={5: "daily"}).of("p=a/file-of-another-tool") is None


@pytest.mark.thorough
def test_rerun_reads_as_much_however_many_files_there_are() -> None:
    def cost(partitions: int) -> int:
        counting = CountingStore(MemoryStore(uuid.uuid4().hex))
        dataset = make(counting)
        dataset.append(rows(*((f"p{number}", 0) for number in range(partitions))), run="first")
        dataset.rerun(rows(("p1", 1)), "daily", replace_all=True)
        counting.reset()
        dataset.rerun(rows(("p1", 2)), "daily", replace_all=True)
        return counting.counts.total

    assert cost(10) == cost(1000)


# Batch ids


def test_batch_ids_increase_and_are_unique_while_the_clock_steps_back(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_clock(seconds: int) -> None:
        moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
        clock = types.SimpleNamespace(now=lambda _: moment)
        shown = types.SimpleNamespace(datetime=clock, UTC=dt.UTC, timedelta=dt.timedelta)
        monkeypatch.setattr(reservation, "dt", shown)

    ids = []
    for seconds in (1_700_000_000, 1_600_000_000, 1_600_000_000, 1_650_000_000, 1_500_000_000):
        set_clock(seconds)
        ids.append(dataset.append(rows(("a", seconds))).batch_id)

    assert ids == sorted(set(ids))
    assert ids[0] == 1_700_000_000_000
    assert ids[1] == ids[0] + 1


@pytest.mark.thorough
def test_parallel_runs_of_one_millisecond_have_ids_of_their_own(store: Store) -> None:
    ids: list[int] = []
    start = threading.Barrier(8)

    def run() -> None:
        start.wait()
        for _ in range(20):
            one = reserve(store, "d", above=10**15, commit_id="c", operation="append", run=None)
            ids.append(one.batch_id)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(ids) == list(range(10**15 + 1, 10**15 + 161))


def test_batch_id_is_a_column_on_request(dataset: Dataset) -> None:
    first = dataset.append(rows(("a", 1)))
    second = dataset.append(rows(("a", 2)))

    found = dataset.arrow(["n", "batch_id"]).to_pylist()

    assert found == [
        {"n": 1, "batch_id": first.batch_id},
        {"n": 2, "batch_id": second.batch_id},
    ]
    assert dataset.where(f"batch_id = {second.batch_id}").count() == 1


@pytest.mark.long
@pytest.mark.spark
def test_rerun_of_one_partition_takes_as_long_among_ten_thousand(tmp_path: Any, spark: Any) -> None:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("p")])
    frame = spark.range(1_000_000).selectExpr("'p1' as p", "id as n")
    datasets = {}
    for count in (10, 10_000):
        dataset = open_repository(tmp_path / str(count)).create("d", descriptor)
        dataset.append(rows(*((f"p{number}", 0) for number in range(count))), run="first")
        dataset.rerun(frame, "daily", replace_all=True)
        datasets[count] = dataset
    times: dict[int, list[float]] = {10: [], 10_000: []}

    for _ in range(9):  # in turn, so that a slow moment of the machine meets both
        for count, dataset in datasets.items():
            began = time.perf_counter()
            dataset.rerun(frame, "daily", replace_all=True)
            times[count].append(time.perf_counter() - began)

    few, many = (statistics.median(times[count]) for count in (10, 10_000))
    assert many / few < 1.5, f"{few:.3f} s among 10, {many:.3f} s among 10,000"


def test_the_first_rerun_of_a_name_says_beside_which_runs_it_adds_rows(
    dataset: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    dataset.append(rows(("a", 1), ("b", 1)), run="daily")
    dataset.append(rows(("a", 2)))

    elsewhere = dataset.rerun(rows(("c", 3)), run="fine", replace_all=True)
    first = dataset.rerun(rows(("a", 4), ("b", 4)), run="fix", replace_all=True)
    again = dataset.rerun(rows(("a", 5)), run="fix", replace_all=True)

    assert (elsewhere.notes, again.notes) == ((), ())
    assert first.notes[0].startswith(
        "The run 'fix' is new: its rows were added to those of 'daily', no named run in p=a, p=b."
    )
    assert first.notes[0] in caplog.text


def test_the_first_staged_rerun_of_a_name_says_it_too(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1)), run="daily")
    staged = dataset.staged.add(rows(("a", 2)), "rerun", run="fix", replace_all=True)

    first, again = staged.commit(), staged.commit()

    assert [note.partition(":")[0] for note in first.notes] == ["The run 'fix' is new"]
    assert again.notes == ()


def test_a_staged_rerun_of_partitions_replaces_what_others_wrote_there(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1), ("b", 1)), run="daily")
    staged = dataset.staged.add(
        rows(("a", 3)), "rerun", run="fix", partitions=True, replace_all=True
    )
    before = content(dataset)

    foreseen = content(staged.dataset)
    commit = dataset.staged.open(staged.batch_id).commit()

    assert before == [("a", 1), ("b", 1)]
    assert foreseen == content(dataset) == [("a", 3), ("b", 1)]
    assert commit.notes == ()


def test_a_staged_rerun_of_partitions_conflicts_with_what_came_since(dataset: Dataset) -> None:
    staged = dataset.staged.add(
        rows(("a", 3)), "rerun", run="fix", partitions=True, replace_all=True
    )
    dataset.append(rows(("a", 2)))

    with pytest.raises(CommitConflictError, match="p=a"):
        staged.commit()

    assert content(dataset) == [("a", 2)]


@pytest.mark.parametrize("operation", ["append", "overwrite"])
def test_only_a_rerun_is_staged_with_partitions(dataset: Dataset, operation: Any) -> None:
    with pytest.raises(InvalidInputError, match="only a rerun") as caught:
        dataset.staged.add(rows(("a", 1)), operation, partitions=True)

    assert "overwrite" in str(caught.value.hint)


def test_a_rerun_of_partitions_replaces_what_others_wrote_there(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1), ("b", 1)), run="daily")
    dataset.append(rows(("a", 2)))

    commit = dataset.rerun(rows(("a", 3)), run="fix", partitions=True, replace_all=True)
    after_first = content(dataset)
    dataset.append(rows(("a", 9)))
    dataset.rerun(rows(("a", 4)), run="fix", replace_all=True)
    by_run = content(dataset)
    dataset.rerun(rows(("b", 5)), run="fix", partitions=True, replace_all=True)

    assert commit.notes == ()
    assert after_first == [("a", 3), ("b", 1)]
    assert by_run == [("a", 4), ("a", 9), ("b", 1)]
    assert content(dataset) == [("a", 9), ("b", 5)]


def test_a_rerun_of_partitions_without_rows_takes_out_what_the_run_wrote(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1)))
    dataset.rerun(rows(("a", 2)), run="fix", replace_all=True)

    dataset.rerun([], run="fix", partitions=True, replace_all=True)

    assert content(dataset) == [("a", 1)]


def test_a_rerun_of_partitions_conflicts_with_whoever_touches_one(dataset: Dataset) -> None:
    dataset.append(rows(("a", 1), ("b", 1)))

    def late(p: str) -> Any:
        dataset.append(rows((p, 7)))
        yield from rows(("a", 2))

    with pytest.raises(CommitConflictError, match="both touch p=a"):
        dataset.rerun(late("a"), run="fix", partitions=True, replace_all=True)
    dataset.rerun(late("b"), run="fix", partitions=True, replace_all=True)

    assert content(dataset) == [("a", 2), ("b", 1), ("b", 7)]


def test_a_rerun_of_partitions_conflicts_with_what_came_since_its_base(dataset: Dataset) -> None:
    base = dataset.append(rows(("a", 1))).version
    dataset.append(rows(("a", 2)))

    with pytest.raises(CommitConflictError, match="p=a"):
        dataset.rerun(rows(("a", 3)), run="fix", partitions=True, base=base, replace_all=True)
    dataset.rerun(rows(("b", 3)), run="fix", partitions=True, base=base, replace_all=True)


def test_a_scope_of_a_run_and_partitions_is_read_back_as_it_was_noted() -> None:
    scope = RunFiles("fix", partitions=frozenset({"p=a"}))

    assert reservation.ScopeNote.of(scope).scope({}) == scope
    assert reservation.ScopeNote.of(RunFiles("fix")).scope({}) == RunFiles("fix")
