"""What calls of a tree read: it depends on the files that they need, and not on their number."""

from __future__ import annotations

import datetime as dt
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from inside import state_of, store_of
from tree_copies import shrink

import lakebed
from lakebed import Dataset
from lakebed.index.segment import file_count_of
from lakebed.model.predicate import And, Comparison, Membership, NullCheck, Op, Or, Predicate
from lakebed.model.schema import Primitive
from lakebed.state import state as states
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.find import TreeFacts
from lakebed.state.tree.leaf_files import Files
from lakebed.state.tree.leaf_ranges import Ranges
from lakebed.state.tree.sums import Totals
from lakebed.state.tree.tree_files import TreeFiles
from lakebed.state.tree.tree_root import Ref, Sizes
from lakebed.store.cache import PROCESS_CACHE
from lakebed.testing import CountingStore

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("v", pa.float64())])
FIRST = dt.date(2013, 1, 1)
DAYS = 12
SIZES = Sizes(leaf=6, buffer=4, inline=4, fanout=100)
FILES_A_DAY = 2


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    # No merges: the leaves of the load stay apart, so that each holds a few days.
    shrink(monkeypatch, SIZES)


def day(number: int) -> dt.date:
    return FIRST + dt.timedelta(days=number)


def rows(ids: list[int], of: dt.date) -> pa.Table:
    return pa.table({"id": ids, "day": [of] * len(ids), "v": [0.5] * len(ids)}, schema=SCHEMA)


def grown(place: Path, head: str = "tree") -> Dataset:
    """Return a dataset with two files a day, of two ids each."""
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA,
        partition_by="day",
        index=["id"],
        properties={"kartothek.indices": "off"},
    )
    dataset = lakebed.open_repository(place).create("d", descriptor, head=head)
    for number in range(DAYS):
        for part in range(FILES_A_DAY):
            first = 10 * (FILES_A_DAY * number + part)
            dataset.append(rows([first, first + 1], day(number)), run=f"run {number}")
    return dataset


@pytest.fixture(scope="module")
def first_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tree")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, SIZES)
        grown(place)
    return place


@pytest.fixture
def tree(first_tree: Path, tmp_path: Path) -> Dataset:
    """Return a copy of a tree, which a test may change."""
    shutil.copytree(first_tree, tmp_path, dirs_exist_ok=True)
    return lakebed.open_repository(tmp_path).open("d")


class Reads:
    """Counts the labels that leaves are turned into, and the requests."""

    def __init__(self, dataset: Dataset) -> None:
        self.store = CountingStore(store_of(dataset))
        self.labels = 0

    def fresh(self) -> Dataset:
        """Return the dataset, opened by a process that has read nothing."""
        PROCESS_CACHE.clear()
        self.store.reset()
        self.labels = 0
        return lakebed.Repository(self.store).open("d")


@pytest.fixture
def reads(tree: Dataset, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    counted, labels = Reads(tree), Files.labels

    def counting(files: Files) -> list[str]:
        found = labels(files)
        counted.labels += len(found)
        return found

    monkeypatch.setattr(Files, "labels", counting)
    yield counted
    PROCESS_CACHE.clear()


def leaves_of(dataset: Dataset) -> int:
    live = state_of(dataset).live
    assert isinstance(live, TreeFiles)
    return len(live.root.refs)


def ids_found(dataset: Dataset, condition: str) -> list[int]:
    return sorted(dataset.where(condition).arrow().column("id").to_pylist())


def refuse_all_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: TreeFiles) -> tuple[str, ...]:
        message = "the labels of all files"
        raise AssertionError(message)

    monkeypatch.setattr(TreeFiles, "labels", property(refuse))
    monkeypatch.setattr(TreeFiles, "pieces", refuse)


# Plans and writes


def test_plan_of_a_day_makes_the_labels_of_that_day_only(tree: Dataset, reads: Reads) -> None:
    found = reads.fresh().kite.with_("day", day(3)).plan()

    assert len(found) == FILES_A_DAY
    assert leaves_of(tree) > 3
    assert reads.labels == FILES_A_DAY


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(
            lambda one: one.kite.with_("day", day(3)).overwrite(rows([1], day(3))), id="overwrite"
        ),
        pytest.param(lambda one: one.delete(f"day = '{day(3)}'"), id="delete"),
        pytest.param(
            lambda one: one.rerun(rows([7], day(3)), run="run 3", replace_all=True), id="rerun"
        ),
        pytest.param(lambda one: one.rollback(version=one.version - 2), id="rollback"),
        pytest.param(
            lambda one: one.kite.with_("day", day(3)).upsert(rows([60], day(3)), "id"), id="merge"
        ),
        pytest.param(lambda one: one.staged.add(rows([7], day(3))).commit(), id="staged"),
    ],
)
def test_write_reads_the_leaves_that_it_changes(
    tree: Dataset, reads: Reads, act: Callable[[Dataset], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_all_labels(monkeypatch)
    with_files: list[str] = []
    files_of = type(state_of(tree).live.leaves).files  # type: ignore[attr-defined]

    def counting(leaves: object, ref: Ref) -> Files:
        with_files.append(ref.id.hex())
        return files_of(leaves, ref)

    monkeypatch.setattr("lakebed.state.tree.find.StoredLeaves.files", counting)

    act(reads.fresh())

    assert len(set(with_files)) <= 3 < leaves_of(tree)


def test_rerun_and_rollback_give_the_rows_of_a_document(tmp_path: Path) -> None:
    answers = []
    for head in ("document", "tree"):
        dataset = grown(tmp_path / head, head)
        before = dataset.version
        dataset.rerun(rows([7], day(3)), run="run 3", replace_all=True)
        dataset.delete(f"day = '{day(5)}'")
        seen = [sorted(dataset.arrow().column("id").to_pylist())]
        dataset.rollback(version=before)
        seen.append(sorted(dataset.arrow().column("id").to_pylist()))
        dataset.rollback(version=before + 1)
        seen.append(sorted(dataset.arrow().column("id").to_pylist()))
        assert all(file.row_count for file in dataset.files())
        answers.append(seen)

    assert answers[0] == answers[1]


# Lookups


def test_lookup_reads_the_leaf_of_the_file_that_it_finds(tree: Dataset, reads: Reads) -> None:
    assert state_of(tree).indexed == ("id",)

    dataset = reads.fresh()
    found = dataset.where("id = 101").plan()

    assert [file.partition["day"] for file in found.files] == [day(5)]
    assert reads.labels <= FILES_A_DAY
    account = found.account
    assert account.dropped_by_index == DAYS * FILES_A_DAY - 1
    segments = len(state_of(tree).lists.postings["id"])
    assert account.indices == {"id": segments}
    # Beside the head: a GET for each segment, which is small, and one for the leaf.
    assert found.requests <= segments + 1 + 2


def test_lookup_finds_what_is_there_after_each_kind_of_commit(tree: Dataset) -> None:
    tree.delete(f"day = '{day(5)}'")
    assert ids_found(tree, "id = 101") == []
    tree.rollback(version=tree.version - 1)
    # The postings of files that came back are not proved to be there.
    assert state_of(tree).indexed == ()
    assert ids_found(tree, "id = 101") == [101]
    tree.compact(metadata=True)
    assert state_of(tree).indexed == ("id",)
    assert ids_found(tree, "id in (101, 11, 12)") == [11, 101]
    tree.kite.with_("day", day(5)).overwrite(rows([9_000], day(5)))
    assert (ids_found(tree, "id = 101"), ids_found(tree, "id = 9000")) == ([], [9_000])
    tree.compact()
    assert state_of(tree).indexed == ("id",)
    assert ids_found(tree, "id in (9000, 11)") == [11, 9_000]


def test_lookup_beside_a_condition_on_the_day(tree: Dataset) -> None:
    assert ids_found(tree, f"id in (101, 201) and day >= '{day(7)}'") == [201]
    assert ids_found(tree, f"id = 101 and day = '{day(7)}'") == []
    assert ids_found(tree, "id = 101 or id = 201") == [101, 201]


def test_index_that_lacks_files_drops_none_of_them(tree: Dataset, tmp_path: Path) -> None:
    store = store_of(tree)
    tree.evolve(
        lambda old: lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by="day", properties=old.properties
        )
    )
    tree.append(rows([7_000], day(3)))

    again = lakebed.open_repository(tmp_path).open("d")
    again.indices.build("id")
    assert state_of(again).indexed == ("id",)
    assert ids_found(again, "id = 7000") == [7_000]
    segment = state_of(again).lists.postings["id"][0]
    store.delete([segment.key])
    PROCESS_CACHE.clear()
    assert ids_found(again, "id = 7000") == [7_000]


def test_document_that_becomes_a_tree_gets_directories_by_a_compaction(tmp_path: Path) -> None:
    dataset = grown(tmp_path, "document")
    assert state_of(dataset).indexed == ()
    assert all(file_count_of(one) is None for one in state_of(dataset).lists.postings["id"])
    dataset.compact(head="tree")
    assert state_of(dataset).indexed == ()
    assert ids_found(dataset, "id = 101") == [101]

    dataset.compact(metadata=True)

    assert state_of(dataset).indexed == ("id",)
    assert all(file_count_of(one) for one in state_of(dataset).lists.postings["id"])
    assert ids_found(dataset, "id = 101") == [101]
    dataset.compact(head="document")
    assert state_of(dataset).indexed == ()
    assert ids_found(dataset, "id = 101") == [101]


def test_file_of_an_older_schema_is_found_by_the_value_of_all_its_rows(tree: Dataset) -> None:
    wider = SCHEMA.append(pa.field("w", pa.int64()))
    tree.evolve(
        lambda old: lakebed.DatasetDescriptor(
            schema=wider, partition_by="day", index=["id"], properties=old.properties
        )
    )
    tree.indices.build("w")
    more = rows([8_000], day(2)).append_column("w", pa.array([5], pa.int64()))
    tree.append(more)

    assert ids_found(tree, "w = 5") == [8_000]
    assert tree.where("w is null").count() == DAYS * FILES_A_DAY * 2


# Commits


def test_commit_of_one_file_takes_nine_requests(reads: Reads) -> None:
    dataset = reads.fresh()

    dataset.append(rows([900], day(3)))

    # Looks for both heads, and for changes at the write and at the swap; then the reservation, the
    # data, the postings, the manifest and the head.
    assert (reads.store.counts.get, reads.store.counts.put) == (4, 5)


def test_calls_that_need_few_leaves_make_no_segments_of_facts_for_all(
    reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(facts: TreeFacts) -> None:
        raise AssertionError(len(facts))

    monkeypatch.setattr(TreeFacts, "_segments", property(refuse))
    dataset = reads.fresh()

    dataset.append(rows([900], day(3)))
    dataset.kite.with_("day", day(4)).overwrite(rows([901], day(4)))
    assert len(dataset.where(f"day = '{day(3)}'").plan()) == FILES_A_DAY + 1
    assert len(dataset.at(version=9).where(f"day = '{day(3)}'").plan()) == FILES_A_DAY
    assert dataset.count() == 2 * DAYS * FILES_A_DAY + 1 + 1 - 2 * FILES_A_DAY


# Ranges


def some_refs(rng: random.Random, count: int) -> list[Ref]:
    refs, number = [], 0
    for run in range(3):
        number = rng.randrange(50)
        for _ in range(count):
            first = number + rng.randrange(3)
            number = first + rng.randrange(3)
            low, high = (f"day={day(one)}" for one in (first, number))
            refs.append(
                Ref(
                    id=rng.randbytes(16),
                    level=0,
                    run=run,
                    totals=Totals(files=5),
                    first=f"{low}/batch_id=1",
                    last=f"{high}/batch_id=9",
                    low=(low, "batch_id=1"),
                    high=(high, "batch_id=9"),
                    nulls=(0, 0),
                    lengths=(1, 1, 1),
                    hashes=(bytes(16), bytes(16), bytes(16)),
                    since=1,
                )
            )
    return refs


def order_of() -> DirectoryOrder:
    return DirectoryOrder({"day": Primitive("date"), "batch_id": Primitive("long")})


@pytest.mark.parametrize("seed", range(2))
def test_blocks_of_leaves_leave_out_none_that_may_match(seed: int) -> None:
    rng = random.Random(seed)
    refs, order = some_refs(rng, 30), order_of()
    questions: list[Predicate] = []
    for _ in range(4):
        one, other = (day(rng.randrange(150)) for _ in range(2))
        questions += [
            Comparison("day", Op.EQ, one),
            And((Comparison("day", Op.GE, one), Comparison("day", Op.LT, other))),
            Or((Comparison("day", Op.LT, one), Membership("batch_id", (12,)))),
            Membership("day", (one, other)),
            NullCheck("day"),
        ]

    for question in questions:
        found = Ranges(refs, order).may([question])
        # Each leaf by itself is in no block.
        alone = [ref for ref in refs if Ranges([ref], order).may([question])]
        assert found == alone


@pytest.mark.parametrize("seed", range(2))
def test_directories_are_found_in_all_leaves_that_may_hold_them(seed: int) -> None:
    rng = random.Random(seed)
    refs, order = some_refs(rng, 40), order_of()
    for number in range(150):
        directory = f"day={day(number)}/batch_id={rng.randrange(1, 12)}"
        key = order(directory)
        expected = [ref for ref in refs if order(ref.first) <= key <= order(ref.last)]
        found = [ref for ref, _ in Ranges(refs, order).by_directory([directory])]
        assert found == expected
        of_day = Ranges(refs, order).of_partitions([f"day={day(number)}"])
        assert set(map(id, expected)) <= set(map(id, of_day))
        assert all(ref.low[0] <= f"day={day(number)}" <= ref.high[0] for ref in of_day)


def test_few_ranges_are_decoded_of_very_many_leaves() -> None:
    refs, order = some_refs(random.Random(1), 400), order_of()

    found = Ranges(refs, order).may([Comparison("day", Op.EQ, day(300))])

    assert found
    assert len(order._levels) < 300 < 2 * len(refs) // 3


# The recommendation


def test_document_of_many_files_is_recommended_to_become_a_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(states, "MOST_LISTED", 3)
    document = grown(tmp_path / "document", "document")
    grown(tmp_path / "tree")

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            lakebed.open_repository(tmp_path / "document").open("d")
            lakebed.open_repository(tmp_path / "tree").open("d")

    (text,) = [one.getMessage() for one in caplog.records if "many files" in one.getMessage()]
    assert f"files={DAYS * FILES_A_DAY}" in text
    assert "lakebed compact" in text
    assert "--head tree" in text
    assert states.should_be_tree(state_of(document))
