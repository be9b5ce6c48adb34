"""Deleting the entities of a view."""

import datetime as dt
import functools
import os
import random
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from copies import copy_of
from effort import examples
from heads import ON_TREES
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates
from writing_calls import writing_calls

import lakebed
from lakebed import Dataset, DatasetDescriptor, Repository, WriteOptions, by
from lakebed.arrow.rewrite import RewriteJob, kept_parts
from lakebed.errors import (
    AccessDeniedError,
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    StorageError,
)
from lakebed.model.evaluate import matches
from lakebed.model.predicate import Predicate, complement
from lakebed.store.base import Store
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore, DelegatingStore, FailingStore
from lakebed.work import deletion

SCHEMA = pa.schema(
    [
        pa.field("p", pa.string()),
        pa.field("x", pa.float64()),
        pa.field("spot", pa.struct([("y", pa.float64())])),
        pa.field("n", pa.int64()),
    ]
)
NAN = float("nan")


@pytest.fixture
def store() -> Store:
    return MemoryStore(uuid.uuid4().hex)


def make(store: Store, *functions: Any, **others: Any) -> Dataset:
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=list(functions), **others)
    return Repository(store).create("d", descriptor)


@pytest.fixture
def dataset(store: Store) -> Dataset:
    return make(store, by.identity("p"))


def row(n: int, p: str | None = "a", x: float | None = 0.0, y: float | None = 0.0) -> Any:
    return {"p": p, "x": x, "spot": None if y is None else {"y": y}, "n": n}


def numbers(view: lakebed.View) -> list[int]:
    return sorted(view.arrow(["n"])["n"].to_pylist())


def data_files(store: Store) -> set[str]:
    return {info.key for info in store.list("d/data") if not info.key.endswith("_metadata")}


def test_whole_partitions_go_by_metadata_alone(dataset: Dataset, store: Store) -> None:
    dataset.append([row(1), row(2, "b"), row(3, None)])
    dataset.append([row(4)])
    before = data_files(store)

    commit = dataset.delete(dataset.where("p = 'a' OR p IS NULL"))

    assert numbers(dataset) == [2]
    assert data_files(store) == before
    assert commit is not None
    assert (commit.operation, commit.version, commit.row_count) == ("delete", 3, 0)
    assert commit.files_added == ()
    assert len(commit.files_removed) == 3
    assert set(commit.partitions) == {"p=a", "p=__HIVE_DEFAULT_PARTITION__"}
    assert numbers(dataset.at(version=2)) == [1, 2, 3, 4]


def test_of_other_files_only_those_concerned_are_written_anew(dataset: Dataset) -> None:
    dataset.append([row(1), row(2), row(3, "b")])
    dataset.append([row(4), row(5, "b")])
    dataset.append([row(2), row(2, "c")])

    commit = dataset.where("n = 2").delete(run="tidy")

    assert numbers(dataset) == [1, 3, 4, 5]
    assert commit is not None
    # Of p=a the file with 1 and 2 is written anew, that of 2 alone goes, that of 4 stays; p=c goes.
    assert len(commit.files_removed) == 3
    assert [key.split("/")[2] for key in commit.files_added] == ["p=a"]
    assert (commit.row_count, commit.run) == (1, "tidy")
    assert len(dataset.history()) == 5
    assert f"batch_id={commit.batch_id}" in commit.files_added[0]


def test_rows_for_which_the_constraint_is_unknown_stay(dataset: Dataset) -> None:
    rows = [row(1, x=None), row(2, x=NAN), row(3, x=5.0), row(4, x=1.0), row(5, y=None, x=None)]
    dataset.append(rows)

    dataset.where("x < 2").delete()
    assert numbers(dataset) == [1, 2, 3, 5]

    dataset.where("NOT x < 6").delete()  # NaN is greater than every number
    assert numbers(dataset) == [1, 3, 5]

    dataset.where("spot.y >= 0").delete()
    assert numbers(dataset) == [5]

    dataset.where("x IS NULL").delete()
    assert numbers(dataset) == []


VALUES: dict[str, list[Any]] = {
    "n": [0, 1, 2, 5],
    "p": ["a", "b", ""],
    "x": [0.0, -0.0, 1.5, NAN],
    "spot.y": [0.0, 1.5, NAN],
}
ROWS = st.builds(
    row,
    st.sampled_from(VALUES["n"]),
    st.none() | st.sampled_from(VALUES["p"]),
    st.none() | st.sampled_from(VALUES["x"]),
    st.none() | st.sampled_from(VALUES["spot.y"]),
)


def as_text(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


@examples(0.5)
@given(
    batches=st.lists(st.lists(ROWS, max_size=8), min_size=1, max_size=3),
    predicate=predicates(VALUES, max_leaves=4),
    is_partitioned=st.booleans(),
    row_group_bytes=st.sampled_from([1, 2**20]),
)
def test_what_stays_are_the_rows_for_which_the_constraint_is_not_true(
    batches: list[list[dict[str, Any]]],
    predicate: Predicate,
    is_partitioned: bool,
    row_group_bytes: int,
) -> None:
    dataset = make(MemoryStore(uuid.uuid4().hex), *([by.identity("p")] if is_partitioned else []))
    for batch in batches:
        dataset.with_options(write=lakebed.WriteOptions(row_group_bytes=row_group_bytes)).append(
            batch
        )
    rows = [one for batch in batches for one in batch]
    before = dataset.version
    view = dataset.where(predicate)
    doomed = [one for one in rows if view.kite.includes(one)]

    commit = view.delete()

    kept = [one for one in rows if not view.kite.includes(one)]
    assert as_text(dataset.arrow().to_pylist()) == as_text(kept)
    assert view.kite.is_empty()
    assert (commit is None) is (not doomed)
    assert dataset.version == before + bool(doomed)


@given(predicate=predicates(VALUES, max_leaves=6), entity=ROWS)
def test_complement_is_true_where_the_predicate_is_not(
    predicate: Predicate, entity: dict[str, Any]
) -> None:
    assert matches(complement(predicate), entity) is not matches(predicate, entity)


def test_nothing_to_delete_is_no_new_version(dataset: Dataset, store: Store) -> None:
    dataset.append([row(1)])
    before = {info.key for info in store.list("")}

    assert dataset.where("n = 5").delete() is None  # which a look into the file tells
    assert dataset.where("p = 'z'").delete() is None  # which the head tells

    assert dataset.version == 1
    assert {info.key for info in store.list("")} == before


def test_dataset_is_emptied_only_by_its_own_name(dataset: Dataset, store: Store) -> None:
    dataset.append([row(1)])
    other = Repository(store).create("e", dataset.descriptor)

    with pytest.raises(InvalidInputError, match="without a condition"):
        dataset.delete()
    with pytest.raises(InvalidInputError, match="not a view of 'd'"):
        dataset.delete(other)
    with pytest.raises(InvalidInputError, match="Parameters are given beside"):
        dataset.delete(dataset, [1])
    assert dataset.version == 1

    dataset.delete(dataset)

    assert numbers(dataset) == []


def test_condition_as_text_with_parameters_deletes_what_it_selects(store: Store) -> None:
    dataset = make(store, by.identity("p"))
    dataset.append([row(n, "a") for n in range(5)])

    assert dataset.delete("n > 100") is None
    commit = dataset.delete("n IN ? OR n = ?", [[0, 1], 4])

    assert commit is not None
    assert commit.deleted_row_count == 3
    assert sorted(numbers(dataset)) == [2, 3]


def test_rows_stay_in_their_partition_and_keep_their_values(store: Store) -> None:
    dataset = make(store, by.identity("p"), by.hash("n", 4, name="bucket"))
    rows = [row(n, p) for n in range(20) for p in ("a/b", "", None, "é")]
    dataset.append(rows)
    before = {one.path: one.values for one in dataset.inspect.partitions()}

    dataset.where("n < 2 AND p = 'a/b'").delete()

    assert {one.path: one.values for one in dataset.inspect.partitions()}.items() <= before.items()
    kept = [one for one in rows if not (one["n"] < 2 and one["p"] == "a/b")]
    assert as_text(dataset.arrow().to_pylist()) == as_text(kept)


def test_old_versions_can_be_read(dataset: Dataset) -> None:
    dataset.append([row(1), row(2)])

    dataset.where("n = 1").delete()

    assert numbers(dataset.at(version=1)) == [1, 2]
    assert numbers(dataset.at(version=2)) == [2]


def test_files_that_are_written_anew_are_cut_as_asked(dataset: Dataset) -> None:
    dataset.append([row(n) for n in range(1000)])

    options = lakebed.WriteOptions(target_bytes=2_000, row_group_bytes=2_000)
    commit = dataset.where("n = 5").with_options(write=options).delete()

    assert commit is not None
    assert len(commit.files_added) > 1
    assert numbers(dataset) == [n for n in range(1000) if n != 5]


@pytest.mark.parametrize("share", [0.0001, 0.3])
def test_several_threads_write_the_rest_in_order(
    store: Store, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion, "LEAST_AT_ONCE", 1)
    monkeypatch.setattr(deletion.os, "cpu_count", lambda: 4)
    works: list[int] = []
    rewrite_all = deletion.rewrite_all

    def counted(workers: Any, store: Store, job: RewriteJob, works_: Any) -> Any:
        works.append(len(works_))
        # Those that run at a time may together hold what one writer may.
        running = min(workers.count, len(works_))
        assert running * job.target.options.memory_bytes <= WriteOptions().memory_bytes
        return rewrite_all(workers, store, job, works_)

    monkeypatch.setattr(deletion, "rewrite_all", counted)
    dataset = make(store, by.identity("p"), index=["n"])
    for run in ("one", "other"):
        dataset.append([row(n, "abcdefgh"[n % 8], n) for n in range(40_000)], run=run)
    gone = set(random.Random(1).sample(range(40_000), int(40_000 * share)))

    dataset.where(f"n IN ({', '.join(map(str, gone))})").delete()

    assert works == [works[0]]
    assert works[0] > 1
    for letter in "abcdefgh":
        kept = [n for n in range(40_000) if n not in gone and n % 8 == "abcdefgh".index(letter)]
        assert dataset.where(f"p = '{letter}'").arrow(["n"])["n"].to_pylist() == [*kept, *kept]
    assert len(dataset.where(f"n = {kept[5]}").plan().files) == 2
    assert dataset.rerun([row(1)], run="one", replace_all=True).deleted_row_count == 40_000 - len(
        gone
    )


def test_ranges_between_few_gaps_are_the_rows_of_a_mask() -> None:
    numbers_ = np.arange(100_000)
    for gone in ([], [0], [99_999], [0, 1, 2, 50_000, 99_999], range(0, 100_000, 7), numbers_):
        is_kept = ~np.isin(numbers_, list(gone))
        parts = [numbers_ if rows is None else numbers_[rows] for rows in kept_parts(is_kept)]
        assert np.array_equal(np.concatenate(parts), numbers_[is_kept])
    assert any(isinstance(rows, slice) for rows in kept_parts(~np.isin(numbers_, [5])))


def test_only_the_columns_of_the_constraint_are_read_of_files_without_a_match() -> None:
    counting = CountingStore(MemoryStore(uuid.uuid4().hex))
    dataset = make(counting)
    dataset.append([{"p": os.urandom(320).hex(), "x": 0.0, "n": 2 * n} for n in range(2000)])
    counting.reset()

    assert dataset.where("n = 5").delete() is None

    assert counting.counts.bytes_read < sum(file.size_bytes or 0 for file in dataset.files()) / 5


class _Interfering(DelegatingStore):
    """Lets somebody else commit just before the first swap of the head."""

    def __init__(self, inner: Store, interfere: Any) -> None:
        super().__init__(inner)
        self._interfere = interfere

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        interfere, self._interfere = self._interfere, None
        if interfere is not None and "by-dataset-metadata" in key:
            interfere()
        else:
            self._interfere = interfere
        return super()._replace(key, data, if_match=if_match)


@pytest.mark.parametrize("text", ["n = 1", "p = 'a'"])
@pytest.mark.parametrize(("other", "is_conflict"), [("a", True), ("b", False)])
def test_commit_to_one_of_its_partitions_meanwhile_is_a_conflict(
    dataset: Dataset, store: Store, text: str, other: str, is_conflict: bool
) -> None:
    dataset.append([row(1), row(2)])
    interfering = _Interfering(store, lambda: dataset.append([row(1, other)]))
    view = Repository(interfering).open("d").where(text)

    if is_conflict:
        with pytest.raises(CommitConflictError) as caught:
            view.delete()
        assert caught.value.partitions == ("p=a",)
        assert numbers(dataset) == [1, 1, 2]
    else:
        view.delete()
        assert 1 in numbers(dataset.where("p = 'b'"))
        assert 1 not in numbers(dataset.where("p = 'a'"))
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert data_files(store) <= known


def test_damaged_file_stops_the_delete_and_nothing_is_left(dataset: Dataset, store: Store) -> None:
    dataset.append([row(1), row(2), row(1, "b"), row(2, "b")])
    broken = dataset.files()[1].key
    store.put(broken, b"no Parquet")
    before = data_files(store)

    with pytest.raises(CorruptMetadataError):
        dataset.where("n = 1").delete()

    assert data_files(store) == before
    assert dataset.version == 1


# A delete on a store that fails at any of its calls

QUICK = lakebed.CommitOptions(deadline_s=0.15, first_wait_ms=1, longest_wait_ms=5)
LOST = StorageError("The answer was lost.", retryable=True)
DENIED = AccessDeniedError("Access was denied.")


def lake() -> tuple[Store, Dataset]:
    store = copy_of(four_rows())
    return store, Repository(store).open("d")


@functools.cache
def four_rows() -> Store:
    store = MemoryStore(uuid.uuid4().hex)
    make(store, by.identity("p")).append([row(1), row(2), row(1, "b"), row(3, "c")])
    return store


def calls_of_a_delete() -> list[tuple[str, int]]:
    store, _ = lake()
    return writing_calls(store, lambda lake: lake.open("d").where("n = 1").delete())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("error", "landed"), [(LOST, False), (LOST, True), (DENIED, False)], ids=["lost", "late", "no"]
)
def test_delete_on_a_failing_store_happens_once_or_not_at_all(
    subtests: pytest.Subtests, error: StorageError, landed: bool
) -> None:
    for name, nth in calls_of_a_delete():
        with subtests.test(call=name, nth=nth):
            delete_on_a_failing_store(name, nth, error, landed=landed)


def delete_on_a_failing_store(name: Any, nth: int, error: StorageError, *, landed: bool) -> None:
    store, dataset = lake()
    failing = FailingStore(store, fail_on=name, nth=nth, landed=landed, error=error)
    failure: LakebedError | None = None

    try:
        Repository(failing).open("d").where("n = 1").with_options(commit=QUICK).delete()
    except LakebedError as exc:
        failure = exc

    assert failing.has_failed
    assert numbers(dataset) == ([2, 3] if failure is None else [1, 1, 2, 3])
    assert dataset.version == (2 if failure is None else 1)
    known = {key for commit in dataset.history() for key in commit.files_added}
    assert data_files(store) == known
    dataset.append([row(9, "z")])
    assert 9 in numbers(dataset)


def test_matrix_holds_every_kind_of_call() -> None:
    assert {name for name, _ in calls_of_a_delete()} == {"create", "put", "replace"}
    assert len(calls_of_a_delete()) >= (4 if ON_TREES else 6)  # a tree has no lists to write


@pytest.mark.parametrize("format_", ["parquet", "avro"])
def test_every_format_is_rewritten(store: Store, format_: str) -> None:
    descriptor = DatasetDescriptor(
        schema=pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("n", pa.int64())]),
        partition_by=[by.date("ts", name="dt")],
        format=format_,
        compression="uncompressed",
    )
    dataset = Repository(store).create("d", descriptor)
    day = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
    dataset.append([{"ts": day, "n": n} for n in range(5)])
    dataset.append([{"ts": None, "n": 5}])

    dataset.where("n >= 3 AND dt IS NOT NULL").delete()

    assert numbers(dataset) == [0, 1, 2, 5]


@pytest.mark.parametrize(
    ("where", "row_count", "deleted_row_count"),
    [("n = 3", 9, 1), ("n >= 0", 0, 10), ("p = 'even'", 0, 5), ("p = 'odd' AND n > 6", 3, 2)],
)
def test_commit_of_a_delete_says_how_many_rows_are_gone(
    where: str, row_count: int, deleted_row_count: int
) -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.string())])
    by_parity = "p" if where.startswith("p") else ""
    numbers = lakebed.open_repository(f"memory://{uuid.uuid4().hex}").create(
        "numbers", lakebed.DatasetDescriptor(schema=schema, partition_by=by_parity)
    )
    numbers.append([{"n": n, "p": ("even", "odd")[n % 2]} for n in range(10)])

    commit = numbers.where(where).delete()

    assert (commit.row_count, commit.deleted_row_count) == (row_count, deleted_row_count)
    assert numbers.history()[-1] == commit
    assert numbers.count() == 10 - deleted_row_count
