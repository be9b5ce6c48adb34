"""Gathering beside a commit: one directory a partition, and each row as often as it was written."""

import contextlib
import json
import random
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath

import pyarrow as pa
import pytest
from inside import store_of

import lakebed
from lakebed.errors import LakebedError
from lakebed.state.runs import NO_RUN, Runs
from lakebed.state.state import Epoch
from lakebed.store.memory import MemoryStore
from lakebed.testing import FailingStore

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture(autouse=True)
def no_metastore(monkeypatch):
    """Let nobody answer for the metastore, so that no publication gathers afterwards."""
    monkeypatch.setenv("LAKEBED_METASTORE", "thrift://127.0.0.1:1")


@pytest.fixture
def store():
    return MemoryStore(uuid.uuid4().hex)


@pytest.fixture
def auto(store):
    properties = {"publish.hive": "true", "publish.hive.table": "a.b"}
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by="p", index=["n"], properties=properties
    )
    return lakebed.Repository(store).create("auto", descriptor)


def rows(numbers, partition="a"):
    return [{"p": partition, "n": n} for n in numbers]


def numbers_in(dataset) -> list[int]:
    return sorted(row["n"] for row in dataset.kite.reader())


def homes_of(dataset) -> Counter:
    """Return how many directories each partition has."""
    homes = {PurePosixPath(file.key).parent for file in dataset.files()}
    return Counter(home.parent.name for home in homes)


def assert_gathered(dataset) -> None:
    assert set(homes_of(dataset).values()) <= {1}
    by_home = Counter(PurePosixPath(file.key).parent for file in dataset.files())
    for home, count in by_home.items():
        on_storage = [info.key for info in store_of(dataset).list(f"{home}/")]
        assert len(on_storage) == count, f"{home} holds what is not live"


def test_random_verbs_leave_one_directory_a_partition_and_the_rows_of_the_model(auto):
    dice = random.Random(24)
    model: list[tuple[str | None, str, int]] = []
    for number in range(40):
        partition, run = dice.choice("abc"), dice.choice([None, "x", "y"])
        fresh = [(run, partition, 10 * number + n) for n in range(3)]
        data = [{"p": p, "n": n} for _, p, n in fresh]
        verb = dice.choice(["append", "append", "append", "rerun", "delete", "overwrite", "merge"])
        if verb == "rerun" and run is not None:
            auto.rerun(data, run=run, replace_all=True)
            model = [row for row in model if row[0] != run] + fresh
        elif verb == "delete":
            doomed = dice.randrange(10)
            auto.delete(auto.where(f"p = '{partition}' AND n >= {doomed * 40}"))
            model = [row for row in model if row[1] != partition or row[2] < doomed * 40]
        elif verb == "overwrite":
            auto.overwrite(data, run=run)
            model = [row for row in model if row[1] != partition] + fresh
        elif verb == "merge":
            auto.merge(data, ["p", "n"], run=run)
            model += fresh
        else:
            auto.append(data, run=run)
            model += fresh

        assert numbers_in(auto) == sorted(n for _, _, n in model)
        assert_gathered(auto)
        wanted = dice.randrange(10 * number + 3)
        assert auto.where(f"n = {wanted}").count() == sum(n == wanted for _, _, n in model)
    assert not auto.check(deep=True).findings


def test_writers_of_one_partition_at_the_same_time_lose_nothing(auto):
    auto.append(rows([0]))

    with ThreadPoolExecutor(4) as pool:
        commits = list(pool.map(lambda n: auto.append(rows([n]), run=f"run {n}"), range(1, 25)))
    auto.rerun(rows([100]), run="run 7", replace_all=True)

    assert {commit.row_count for commit in commits} == {1}
    assert numbers_in(auto) == [n for n in range(25) if n != 7] + [100]
    assert not auto.check(deep=True).findings


@pytest.mark.parametrize("verb", ["put", "create", "replace", "get"])
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.thorough
def test_each_request_that_fails_leaves_rows_as_they_were_or_as_they_are_to_be(
    auto, store, verb, landed
):
    auto.append(rows([0, 1]), run="first")
    before = numbers_in(auto)
    for nth in range(1, 30):
        failing = FailingStore(store, fail_on=verb, nth=nth, landed=landed)
        fresh = [10 * nth, 10 * nth + 1]
        with contextlib.suppress(LakebedError):
            lakebed.Repository(failing).open("auto").append(rows(fresh), run=f"run {nth}")
        after = numbers_in(auto)
        assert after in (before, sorted([*before, *fresh]))
        before = after
        if not failing.has_failed:
            break
    auto.append(rows([5000]), run="last")

    assert numbers_in(auto) == [*before, 5000]
    assert set(homes_of(auto).values()) == {1}
    assert not auto.check(deep=True).findings


def test_raw_file_is_replaced_after_its_rows_were_gathered(tmp_path):
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    properties = {"publish.hive": "true", "publish.hive.table": "a.b"}
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p", properties=properties)
    auto = lake.create("auto", descriptor)

    def ingest(**files: list[int]) -> None:
        for name, numbers in files.items():
            (tmp_path / f"{name}.jsonl").write_text(
                "".join(json.dumps(row) + "\n" for row in rows(numbers))
            )
        source = lakebed.FromFiles(paths=str(tmp_path / "*.jsonl"), supersede="path")
        lakebed.Ingest(name="places", into=auto.uri, source=source).run()

    ingest(north=[1, 2])
    ingest(south=[3, 4])
    auto.append(rows([5]))
    ingest(north=[6])

    assert numbers_in(auto) == [3, 4, 5, 6]
    assert_gathered(auto)
    ingest(south=[7])
    assert numbers_in(auto) == [5, 6, 7]
    assert not auto.check(deep=True).findings


def test_no_gathering_where_each_batch_is_a_partition_of_the_table(store):
    properties = {
        "publish.hive": "true",
        "publish.hive.table": "a.b",
        "publish.hive.mode": "batches",
    }
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p", properties=properties)
    auto = lakebed.Repository(store).create("auto", descriptor)
    for n in range(3):
        auto.append(rows([n]))

    assert homes_of(auto) == {"p=a": 3}
    assert auto.version == 3


def test_rows_without_a_run_stay_so_in_the_batch_of_a_run():
    gathered, own = "p=a/batch_id=1/part-1", "p=a/batch_id=1/part-2"
    runs = Runs(batches={1: "x"}, carried={gathered: NO_RUN})

    assert (runs.of(gathered), runs.of(own)) == (None, "x")
    assert runs.files_of("x", [gathered, own]) == (own,)


def test_rows_of_a_settled_epoch_do_not_become_those_of_the_batch_that_they_were_gathered_into():
    gathered = "p=a/batch_id=2/part-1"
    first, second, third = (Epoch("q", number).run for number in (1, 2, 3))
    runs = Runs(batches={1: first, 2: second}, carried={gathered: first}).settled()

    assert runs.of(gathered) is None
    assert runs.files_of(second, [gathered]) == ()
    later = Runs(batches={**runs.batches, 3: third}, carried=runs.carried).settled()
    assert later == Runs(batches={3: third})
