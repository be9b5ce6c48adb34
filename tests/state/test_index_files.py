"""Index files of Kartothek, as commits keep them up: each value with the files that hold it."""

from __future__ import annotations

import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import time_machine

import lakebed
from lakebed.index import kartothek_file
from lakebed.state.reader import read_head
from lakebed.store import cache
from lakebed.testing import CountingStore

SCHEMA = pa.schema(
    [("id", pa.int64()), ("word", pa.string()), ("part", pa.string()), ("ratio", pa.float64())]
)
INDEXED = ("id", "word", "ratio")


def row(number: int, **values: Any) -> dict[str, Any]:
    whole = {"id": number, "word": f"w{number % 7}", "part": f"p{number % 3}", "ratio": number / 4}
    return whole | values


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [row(number) for number in numbers]


@pytest.fixture
def words(tmp_path: Path) -> lakebed.Dataset:
    return created(tmp_path)


def created(root: Path, **options: Any) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(
        schema=SCHEMA, partition_by="part", index=INDEXED, **options
    )
    return lakebed.open_repository(root).create("words", descriptor)


def named(root: Path) -> dict[str, str]:
    return dict(read_head(lakebed.open_repository(root).store, "words").state.indices)


def held(root: Path, column: str) -> dict[Any, set[str]]:
    """Return what the index file of a column says: the files that hold each value."""
    table = pq.read_table(root / named(root)[column])
    pairs = zip(table[column].to_pylist(), table["partition"].to_pylist(), strict=True)
    told = dict(pairs)
    assert len(told) == table.num_rows
    assert all(len(labels) == len(set(labels)) for labels in told.values())
    return {value: set(labels) for value, labels in told.items()}


def truth(root: Path, column: str) -> dict[Any, set[str]]:
    """Return the same by a look into every live file."""
    labels: dict[Any, set[str]] = defaultdict(set)
    for label in read_head(lakebed.open_repository(root).store, "words").state.labels:
        file = pq.ParquetFile(root / f"words/data/{label}.parquet")
        for value in file.read([column])[column].to_pylist():
            labels[value].add(label)
    return dict(labels)


def check_all(root: Path, columns: tuple[str, ...] = INDEXED) -> None:
    assert set(named(root)) == set(columns)
    for column in columns:
        assert held(root, column) == truth(root, column)


def appended_in_a_transaction(words: lakebed.Dataset) -> None:
    with words.transaction() as transaction:
        transaction.overwrite(rows(93, 96))
        transaction.append(rows(90, 91))


def committed_staged(words: lakebed.Dataset) -> None:
    words.staged.add(rows(80, 81)).commit()


COMMITS: dict[str, Callable[[lakebed.Dataset], object]] = {
    "append": lambda words: words.append(rows(70, 71)),
    "append of no rows": lambda words: words.append([]),
    "overwrite": lambda words: words.overwrite(rows(3, 6, 99)),
    "rerun": lambda words: words.rerun(rows(1, 2), run="first", replace_all=True),
    "delete of a partition": lambda words: words.delete(words.where("part = 'p1'")),
    "delete of rows": lambda words: words.delete(words.where("id IN (4, 5)")),
    "merge": lambda words: words.merge([row(4, word="new"), row(60)], on=["id"]),
    "compaction": lambda words: words.compact(),
    "rollback": lambda words: words.rollback(version=1),
    "rollback of a rollback": lambda words: (words.rollback(version=1), words.rollback(version=2)),
    "transaction": appended_in_a_transaction,
    "staged batch": committed_staged,
    "metadata": lambda words: words.compact(metadata=True),
}


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS.keys())
def test_index_files_are_complete_after_every_commit(words, tmp_path, commit):
    words.append(rows(*range(10)), run="first")
    words.append(rows(*range(10, 20)), run="second")
    check_all(tmp_path)

    commit(words)

    check_all(tmp_path)
    assert words.check().problems == ()
    words.append(rows(200))
    check_all(tmp_path)


def test_a_dataset_without_files_names_none_and_begins_anew(words, tmp_path):
    words.append(rows(1, 2))

    words.delete(words)

    assert named(tmp_path) == {}
    words.append(rows(5))
    check_all(tmp_path)


@pytest.mark.parametrize("value", [None, float("nan")])
def test_null_and_nan_have_no_place_so_that_the_index_goes_until_it_is_built_anew(
    words, tmp_path, value
):
    words.append(rows(1, 2))

    words.append([row(3, ratio=value)])

    check_all(tmp_path, ("id", "word"))
    words.delete(words.where("id = 3"))
    check_all(tmp_path, ("id", "word"))
    words.compact(metadata=True)
    check_all(tmp_path)
    words.append(rows(4))
    check_all(tmp_path)


def test_an_index_that_became_too_dear_is_left_out_and_the_next_compaction_names_it(
    words, tmp_path, monkeypatch
):
    monkeypatch.setattr(kartothek_file, "COMMIT_PAIRS", 5)
    monkeypatch.setattr(kartothek_file, "PAIRS_OF_NEW", 2)
    words.append(rows(0, 21, 42))
    check_all(tmp_path)  # few enough beside what the commit brings

    words.append(rows(63))
    words.append(rows(84))

    # Each id is a pair of its own; the word is always the same, in three files by now.
    check_all(tmp_path)
    words.append(rows(105))
    assert "id" not in named(tmp_path)
    assert held(tmp_path, "word") == truth(tmp_path, "word")
    words.compact(metadata=True)
    assert held(tmp_path, "id") == truth(tmp_path, "id")
    words.append(rows(126))
    assert "id" not in named(tmp_path)


def test_an_index_in_which_a_bit_flipped_is_not_what_the_next_one_is_made_of(words, tmp_path):
    words.append(rows(*range(9)))
    path = tmp_path / named(tmp_path)["id"]
    plain = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    pq.write_table(pq.read_table(path), path, **plain)
    data = path.read_bytes()
    path.write_bytes(data.replace((2).to_bytes(8, "little"), (34).to_bytes(8, "little"), 1))
    lakebed_in_a_new_process()

    words.append(rows(50))

    check_all(tmp_path, ("word", "ratio"))
    words.compact(metadata=True)
    check_all(tmp_path)


def test_an_index_under_a_key_that_no_store_takes_is_let_go(words, tmp_path):
    words.append(rows(1, 2))
    head = tmp_path / "words.by-dataset-metadata.json"
    key = named(tmp_path)["id"]
    head.write_text(head.read_text().replace(key, "words/.indices//id"))

    assert [one.key for one in words.check().problems] == ["words/.indices//id"]
    words.append(rows(3))

    check_all(tmp_path, ("word", "ratio"))
    assert words.check().problems == ()


def test_a_new_schema_takes_the_names_out(words, tmp_path):
    words.append(rows(1, 2))
    wider = lakebed.DatasetDescriptor(
        schema=SCHEMA.append(pa.field("more", pa.string())), partition_by="part", index=INDEXED
    )

    words.evolve(wider, base=words.version)

    assert named(tmp_path) == {}


@pytest.mark.parametrize(
    ("wanted", "kind"), [("string", pa.string()), ("large_string", pa.large_string())]
)
def test_a_property_says_of_which_type_texts_are(tmp_path, wanted, kind):
    words = created(tmp_path, properties={"kartothek.indices": wanted})

    for number in range(3):
        words.append(rows(number))

    check_all(tmp_path)
    assert pq.read_schema(tmp_path / named(tmp_path)["word"]).field("word").type == kind


def test_a_property_turns_index_files_off(tmp_path):
    words = created(tmp_path, properties={"kartothek.indices": "off"})

    words.append(rows(1, 2))
    words.compact(metadata=True)

    assert named(tmp_path) == {}
    assert not (tmp_path / "words/indices").exists()
    assert len(words.where("id = 1").plan().files) == 1


def test_an_unknown_property_is_told_and_means_the_default(tmp_path, caplog):
    words = created(tmp_path, properties={"kartothek.indices": "yes"})

    words.append(rows(1, 2))

    check_all(tmp_path)
    assert "unknown property kartothek.indices=yes" in caplog.text


def test_files_that_plateau_cannot_read_have_no_index_for_it(tmp_path):
    words = created(tmp_path, format="avro")

    words.append(rows(1, 2))

    assert named(tmp_path) == {}


def test_a_damaged_index_file_is_left_out_and_the_commit_is_made(words, tmp_path, caplog):
    words.append(rows(1, 2))
    (tmp_path / named(tmp_path)["id"]).write_bytes(b"PAR1 and no more")
    lakebed_in_a_new_process()

    words.append(rows(3))

    check_all(tmp_path, ("word", "ratio"))
    assert words.count() == 3
    assert "index is not kept up" in caplog.text


def lakebed_in_a_new_process() -> None:
    cache.PROCESS_CACHE.clear()


def test_writers_of_one_moment_do_not_take_the_file_of_each_other(words, tmp_path):
    words.append(rows(0))
    with time_machine.travel(dt.datetime(2013, 1, 1, tzinfo=dt.UTC), tick=False):
        threads = [
            threading.Thread(target=lambda n=number: words.append(rows(n)))
            for number in range(1, 7)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert words.count() == 7
    check_all(tmp_path)


def test_what_a_process_holds_is_not_taken_for_what_another_one_has_written_since(
    words, tmp_path, monkeypatch
):
    """A clock that stands still gives a key again, once its object is deleted."""
    with time_machine.travel(dt.datetime(2013, 1, 1, tzinfo=dt.UTC), tick=False):
        words.append(rows(1, 2))
        key = named(tmp_path)["id"]
        with monkeypatch.context() as another_process:
            for module in (cache, kartothek_file):
                another_process.setattr(module, "PROCESS_CACHE", cache.Cache())
            lakebed.open_repository(tmp_path).drop("words")
            created(tmp_path).append(rows(7, 8))
        assert named(tmp_path)["id"] == key

        lakebed.open_repository(tmp_path).open("words").append(rows(9))

    check_all(tmp_path)


def test_files_that_only_lost_races_wrote_are_deleted(words, tmp_path):
    def slowly() -> Iterator[dict[str, Any]]:
        yield row(1)
        words.append(rows(2))

    words.append(slowly())

    check_all(tmp_path)
    # One each for the first commit and the second.
    assert len(list((tmp_path / "words/indices/id").iterdir())) == 2


def test_cleanup_takes_the_files_that_no_head_names_any_more(words, tmp_path):
    for number in range(4):
        words.append(rows(number))
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=30)

    with time_machine.travel(later):
        words.cleanup(older_than="1d", dry_run=False)

    assert sorted(map(str, (tmp_path / "words/indices").rglob("*.parquet"))) == sorted(
        str(tmp_path / key) for key in named(tmp_path).values()
    )
    check_all(tmp_path)


def test_a_commit_reads_no_index_file_that_this_process_has_written(tmp_path):
    created(tmp_path)
    store = CountingStore(lakebed.open_repository(tmp_path).store)
    words = lakebed.Repository(store).open("words")
    words.append(rows(0))
    counts = []
    for number in range(1, 4):
        store.reset()
        words.append(rows(number))
        counts.append(store.counts)

    # Heads are read under their etags; what else is there is known.
    assert [count.head for count in counts] == [0, 0, 0]
    assert len({count.get for count in counts}) == 1
