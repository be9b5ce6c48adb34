"""A dataset whose head is a tree is read as the document of the same history is."""

from __future__ import annotations

import datetime as dt
import pickle
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import zstandard
from effort import cases
from inside import state_of, store_of
from tree_copies import SMALL, Tree, to_tree

import lakebed
from lakebed import Dataset
from lakebed.errors import (
    CorruptMetadataError,
    DatasetExistsError,
    UnsupportedVersionError,
    VersionNotFoundError,
)
from lakebed.model.layout import Folder
from lakebed.state.head import HeadFormat
from lakebed.state.tree.find import StoredLeaves
from lakebed.state.tree.tree_files import TreeFiles, scrub
from lakebed.state.tree.tree_root import Root, Sizes
from lakebed.store import open_store
from lakebed.store.base import Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.testing import CountingStore

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("kind", pa.string()), ("v", pa.float64())]
)
DAYS = [dt.date(2013, 1, day) for day in range(1, 7)]
VIEWS = [
    "day = '2013-01-02'",
    "day >= '2013-01-04'",
    "day is null",
    "day = '1999-01-01'",
    "id < 30",
    "kind = 'a' and day > '2013-01-03'",
    "kind = 'b' or day = '2013-01-01'",
    "id is null",
    "batch_id > 0",
    "batch_id = 5 and day = '2013-01-02'",
]


def described(schema: pa.Schema) -> lakebed.DatasetDescriptor:
    return lakebed.DatasetDescriptor(schema=schema, partition_by="day")


def rows(rng: random.Random, count: int, days: list[dt.date | None] | None = None) -> pa.Table:
    columns = {
        "id": [rng.choice([None, *range(60)]) for _ in range(count)],
        "day": [rng.choice(days or [*DAYS, None]) for _ in range(count)],
        "kind": [rng.choice("abc") for _ in range(count)],
        "v": [rng.random() for _ in range(count)],
    }
    return pa.table(columns, schema=SCHEMA)


def play(dataset: Dataset, rng: random.Random, commits: int) -> None:
    """Make random commits of every kind."""
    for number in range(commits):
        match rng.randrange(8):
            case 0 | 1 | 2:
                dataset.append(rows(rng, rng.randint(1, 12)))
            case 3:
                dataset.append(rows(rng, 3, [rng.choice(DAYS)]))
            case 4:
                dataset.overwrite(rows(rng, rng.randint(1, 4)))
            case 5:
                dataset.where(f"day = '{rng.choice(DAYS)}'").delete()
            case 6:
                dataset.append(rows(rng, 2), run=f"run-{number % 3}-{number}")
            case 7 if dataset.version > 2:
                dataset.rollback(version=rng.randint(1, dataset.version))


@dataclass
class Pair:
    """Two datasets of the same history: one with a document, the other with a tree."""

    document: Dataset
    tree: Dataset
    made: Tree


def pair_of(
    folder: Path,
    seed: int,
    *,
    commits: int = 14,
    sizes: Sizes = SMALL,
    folds: Callable[[int, Root], bool] | None = None,
    change: Callable[[Dataset, random.Random], None] | None = None,
) -> Pair:
    rng = random.Random(seed)
    folder.mkdir(exist_ok=True)
    document = lakebed.open_repository(folder / "document").create("d", described(SCHEMA))
    play(document, rng, commits)
    if change is not None:
        change(document, rng)
        play(document, rng, 3)
    shutil.copytree(folder / "document", folder / "tree")
    made = to_tree(open_store(str(folder / "tree")), "d", sizes=sizes, folds=folds)
    return Pair(document, lakebed.open_repository(folder / "tree").open("d"), made)


def as_set(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def keys_of(dataset: Dataset | lakebed.View) -> list[tuple[str, int | None, int | None]]:
    return sorted((file.key, file.row_count, file.size_bytes) for file in dataset.files())


def check_alike(one: Dataset, other: Dataset) -> None:
    """Check that two datasets give the same answers."""
    assert other.version == one.version
    assert keys_of(other) == keys_of(one)
    assert other.count() == one.count()
    assert as_set(other.arrow()) == as_set(one.arrow())
    assert other.inspect.partitions() == one.inspect.partitions()
    for text in VIEWS:
        expected, found = one.where(text), other.where(text)
        assert as_set(found.arrow()) == as_set(expected.arrow()), text
        assert found.count() == expected.count(), text
        plans = [view.plan() for view in (expected, found)]
        assert len({frozenset(file.label for file in plan.files) for plan in plans}) == 1, text
        accounts = [
            (plan.account.dropped_by_statistics, plan.account.dropped_by_partition)
            for plan in plans
        ]
        assert accounts[0] == accounts[1], text


def history_of(dataset: Dataset) -> list[object]:
    """Return the history, with the files of each commit in an order that does not matter."""
    fields = ("version", "operation", "run", "row_count", "batch_id", "committed_at", "partitions")
    return [[getattr(commit, name, None) for name in fields] for commit in dataset.history()]


@pytest.mark.parametrize("seed", range(cases(6)))
def test_both_heads_give_the_same_answers(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pair = pair_of(tmp_path / "x", seed, folds=None if seed % 2 else lambda *_: rng.random() < 0.3)

    check_alike(pair.document, pair.tree)
    assert scrub(state_of(pair.tree).live) == pair.made.root.totals
    assert [str(one) for one in pair.tree.history()] == [
        str(one) for one in pair.document.history()
    ]
    assert [one.batch_id for one in pair.tree.batches()] == [
        one.batch_id for one in pair.document.batches()
    ]
    for version in range(pair.document.version + 1):
        older, expected = (one.at(version=version) for one in (pair.tree, pair.document))
        assert keys_of(older) == keys_of(expected)
        assert as_set(older.arrow()) == as_set(expected.arrow())
        assert older.count() == expected.count()
        assert older.inspect.partitions() == expected.inspect.partitions()
        day = f"day = '{DAYS[version % len(DAYS)]}' and id > 10"
        assert older.where(day).count() == expected.where(day).count()


@pytest.mark.parametrize("seed", range(cases(3)))
def test_versions_are_compared_alike(tmp_path: Path, seed: int) -> None:
    pair = pair_of(tmp_path / "x", seed)
    rng = random.Random(seed)

    for _ in range(6):
        first, last = sorted(rng.sample(range(1, pair.document.version + 1), 2))
        one, other = (dataset.diff(first, last) for dataset in (pair.document, pair.tree))
        assert str(other) == str(one)
        assert (other.rows_added, other.rows_removed) == (one.rows_added, one.rows_removed)
        assert sorted(other.files_added) == sorted(one.files_added)
        assert sorted(other.files_removed) == sorted(one.files_removed)
        assert other.partitions == one.partitions
        assert as_set(other.rows()) == as_set(one.rows())
        changes = (dataset.changes(first, last) for dataset in (pair.document, pair.tree))
        expected, found = (as_set(each.arrow()) for each in changes)
        assert found == expected


@pytest.mark.parametrize("seed", range(cases(3)))
def test_schema_may_change(tmp_path: Path, seed: int) -> None:
    def widen(dataset: Dataset, rng: random.Random) -> None:
        dataset.evolve(lambda _: described(SCHEMA.append(pa.field("extra", pa.int32()))))

    pair = pair_of(tmp_path / "x", seed, commits=6, change=widen)

    check_alike(pair.document, pair.tree)
    for version in range(pair.document.version + 1):
        older, expected = (one.at(version=version) for one in (pair.tree, pair.document))
        assert older.schema == expected.schema
        assert as_set(older.arrow()) == as_set(expected.arrow())
    extra = [one.where("extra is null").count() for one in (pair.document, pair.tree)]
    assert extra[0] == extra[1] > 0


def test_index_is_used_alike(tmp_path: Path) -> None:
    def build(dataset: Dataset, rng: random.Random) -> None:
        dataset.indices.build("id")

    pair = pair_of(tmp_path / "x", 2, commits=8, change=build)

    for text in ("id = 7", "id in (1, 2, 3)", "id = 7 and day = '2013-01-02'", "id = 999"):
        expected, found = (one.where(text).plan() for one in (pair.document, pair.tree))
        assert {file.label for file in found.files} == {file.label for file in expected.files}
        assert found.account.indices == expected.account.indices
        assert as_set(pair.tree.where(text).arrow()) == as_set(pair.document.where(text).arrow())


# What is read

REQUESTS_OF_HEAD = 1  # the process knows that it is a tree, so it looks for no JSON head


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A dataset of a day a commit, nearly all of which are in leaves."""

    def by_day(dataset: Dataset, rng: random.Random) -> None:
        for day in DAYS:
            for _ in range(4):
                dataset.append(rows(rng, 5, [day]))

    return pair_of(
        tmp_path_factory.mktemp("grown"),
        1,
        commits=0,
        sizes=Sizes(leaf=6, buffer=8, inline=6, fanout=100),
        folds=lambda version, _: version % 8 == 0,
        change=by_day,
    )


@pytest.fixture
def pair(grown: Pair, tmp_path: Path) -> Pair:
    """The same, with a copy of the tree that a test may change."""
    shutil.copytree(store_of(grown.tree).local_path("d").parent, tmp_path / "tree")
    return replace(grown, tree=lakebed.open_repository(tmp_path / "tree").open("d"))


def counted(pair: Pair) -> tuple[Dataset, CountingStore]:
    store = CountingStore(store_of(pair.tree))
    PROCESS_CACHE.clear()
    return lakebed.Repository(store).open("d"), store


def test_plan_of_a_day_reads_the_leaves_of_that_day(pair: Pair) -> None:
    dataset, store = counted(pair)
    live = state_of(dataset).live
    assert isinstance(live, TreeFiles)
    wanted = [ref for ref in live.root.refs if ref.low[0] <= "day=2013-01-02" <= ref.high[0]]
    assert 0 < len(wanted) < len(live.root.refs)
    view, before = dataset.where("day = '2013-01-02'"), store.counts.get

    plan = view.plan()

    assert store.counts.get - before == REQUESTS_OF_HEAD + len(wanted) == plan.requests
    expected = pair.document.where("day = '2013-01-02'").plan()
    assert plan.account.dropped_by_partition == expected.account.dropped_by_partition
    before = store.counts.get
    view.plan()
    assert store.counts.get - before == REQUESTS_OF_HEAD  # the process has the leaves


def test_number_of_rows_is_in_the_root(pair: Pair) -> None:
    dataset, store = counted(pair)
    before = store.counts.get

    assert dataset.count() == pair.document.count()
    assert store.counts.get - before == REQUESTS_OF_HEAD


def test_partitions_take_the_first_section_of_each_leaf(pair: Pair) -> None:
    dataset, store = counted(pair)
    live = state_of(dataset).live
    assert isinstance(live, TreeFiles)
    before = store.counts.get

    assert dataset.inspect.partitions() == pair.document.inspect.partitions()
    assert store.counts.get - before == REQUESTS_OF_HEAD + len(live.root.refs)


def test_root_is_not_read_again_while_it_is_the_same(pair: Pair) -> None:
    dataset, store = counted(pair)
    dataset.count()
    first = PROCESS_CACHE.find(("head", store.cache_name, HeadFormat.MSGPACK.key("d")), object)

    dataset.count()

    key = ("head", store.cache_name, HeadFormat.MSGPACK.key("d"))
    assert first is not None
    assert PROCESS_CACHE.find(key, object) is first


def test_state_and_plan_can_be_sent_to_a_task(pair: Pair) -> None:
    plan = pair.tree.where("day = '2013-01-02'").plan()

    sent = pickle.loads(pickle.dumps(state_of(pair.tree)))

    assert sorted(sent.labels) == sorted(state_of(pair.tree).labels)
    assert pickle.loads(pickle.dumps(plan)).files == plan.files


# Loss


def lose(pair: Pair, position: int) -> str:
    """Delete a leaf and return its key."""
    live = state_of(pair.tree).live
    assert isinstance(live, TreeFiles)
    key = live.root.refs[position].key("d")
    store_of(pair.tree).delete([key])
    PROCESS_CACHE.clear()
    return key


def test_lost_leaf_is_an_error_of_its_range_only(pair: Pair) -> None:
    key = lose(pair, 0)

    with pytest.raises(CorruptMetadataError, match=key):
        pair.tree.where("day = '2013-01-01'").plan()
    with pytest.raises(CorruptMetadataError, match=key):
        pair.tree.arrow()
    with pytest.raises(CorruptMetadataError, match=key):
        pair.tree.inspect.partitions()
    text = "day = '2013-01-06'"
    assert as_set(pair.tree.where(text).arrow()) == as_set(pair.document.where(text).arrow())


@pytest.mark.parametrize(
    "spoil",
    [lambda data: data[:-1] + bytes([data[-1] ^ 1]), lambda data: data[: len(data) // 2]],
)
def test_damaged_leaf_is_an_error(pair: Pair, spoil: Callable[[bytes], bytes]) -> None:
    live = state_of(pair.tree).live
    assert isinstance(live, TreeFiles)
    store, ref = store_of(pair.tree), live.root.refs[0]
    files = slice(ref.lengths[0], sum(ref.lengths[:2]))
    data = store.get(ref.key("d")).data
    store.put(ref.key("d"), data[: files.start] + spoil(data[files]) + data[files.stop :])
    PROCESS_CACHE.clear()

    with pytest.raises(CorruptMetadataError, match=ref.key("d")):
        pair.tree.arrow()


def test_lost_facts_are_only_unknown(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    live = state_of(pair.tree).live
    assert isinstance(live, TreeFiles)
    store, ref = store_of(pair.tree), live.root.refs[0]
    data = store.get(ref.key("d")).data
    store.put(ref.key("d"), data[: sum(ref.lengths[:2])] + bytes(ref.lengths[2]))
    PROCESS_CACHE.clear()

    found = pair.tree.where("id < 30")

    assert as_set(found.arrow()) == as_set(pair.document.where("id < 30").arrow())
    assert ref.key("d") in caplog.text


def test_lost_copy_of_the_head_hides_older_versions_only(pair: Pair) -> None:
    version = pair.made.root.copies[-2]
    store_of(pair.tree).delete([pair.made.root.copy_key("d", version)])

    with pytest.raises(CorruptMetadataError, match=pair.made.root.copy_key("d", version)):
        pair.tree.at(version=version).count()
    assert pair.tree.count() == pair.document.count()


def test_version_that_does_not_exist_is_refused(pair: Pair) -> None:
    with pytest.raises(VersionNotFoundError):
        pair.tree.at(version=pair.tree.version + 1)


# Writers


def objects_in(store: Store) -> dict[str, str]:
    return {info.key: store.get(info.key).etag for info in store.list()}


def test_dataset_is_not_created_again(pair: Pair) -> None:
    repository = lakebed.Repository(store_of(pair.tree))
    before = objects_in(store_of(pair.tree))

    for head_format in ("json", "msgpack.zstd"):
        with pytest.raises(DatasetExistsError):
            repository.create(
                "d", lakebed.DatasetDescriptor(schema=SCHEMA), head_format=head_format
            )

    assert repository.list() == ["d"]
    assert objects_in(store_of(pair.tree)) == before


def test_writer_that_began_before_the_move_is_committed(tmp_path: Path) -> None:
    pair = pair_of(tmp_path / "x", 1, commits=4)
    count = pair.document.count()

    with pair.document.transaction() as writing:
        writing.append(rows(random.Random(1), 2))
        to_tree(store_of(pair.document), "d")

    assert state_of(pair.document).is_tree
    assert pair.document.count() == count + 2


# Other heads of version 5


def test_head_of_version_five_that_is_no_tree_is_refused(pair: Pair) -> None:
    store, key = store_of(pair.tree), HeadFormat.MSGPACK.key("d")
    head = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(store.get(key).data))
    assert (head["dataset_metadata_version"], head["partitions"]) == (5, {})
    assert head["dataset_uuid"] == "d"
    head["metadata"]["lakebed.head"] = "msgpack.zstd"
    store.put(key, zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(head)))
    PROCESS_CACHE.clear()

    with pytest.raises(UnsupportedVersionError, match="dataset_metadata_version 5"):
        pair.tree.count()


def test_tree_of_version_four_is_refused(pair: Pair) -> None:
    store, key = store_of(pair.tree), HeadFormat.MSGPACK.key("d")
    head = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(store.get(key).data))
    head["dataset_metadata_version"] = 4
    store.put(key, zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(head)))
    PROCESS_CACHE.clear()

    with pytest.raises(UnsupportedVersionError, match="dataset_metadata_version 4"):
        pair.tree.count()


def test_version_of_the_head_is_that_of_its_tree(pair: Pair) -> None:
    store, key = store_of(pair.tree), HeadFormat.MSGPACK.key("d")
    head = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(store.get(key).data))
    head["metadata"]["lakebed.version"] = "3"
    del head["metadata"]["lakebed.checksum"]
    store.put(key, zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(head)))
    PROCESS_CACHE.clear()

    with pytest.raises(CorruptMetadataError, match="is of version 3, and its tree of version 27"):
        pair.tree.count()


def test_all_objects_of_a_tree_are_in_its_folders(pair: Pair) -> None:
    keys = objects_in(store_of(pair.tree))

    leaves = [key for key in keys if key.startswith(f"{Folder.LEAVES.of('d')}/")]
    copies = [key for key in keys if key.startswith(f"{Folder.ROOTS.of('d')}/")]
    assert leaves
    assert sorted(copies) == [
        pair.made.root.copy_key("d", version) for version in pair.made.root.copies
    ]
    assert StoredLeaves(store_of(pair.tree), "d").partitions(pair.made.root.refs[0])
