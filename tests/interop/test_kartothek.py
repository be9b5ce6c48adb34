"""kartothek 5.3.0, the original, on Python 3.9 and pyarrow 6: it reads ours, and we read its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shown_rows import as_pandas_sees, by_id
from specimens import Dnf, columns_of

import lakebed
from lakebed.errors import ReadOnlyError, UnsupportedVersionError

pytestmark = pytest.mark.interop

WORDS = pa.schema([("id", pa.int64()), ("word", pa.string()), ("part", pa.string())])


def test_kartothek_reads_every_row_and_column(kartothek, lake, specimen):
    dataset = lakebed.open_repository(lake).open(specimen.name)
    expected = as_pandas_sees(
        dataset.arrow(columns_of(dataset)), dataset.descriptor.partition_types
    )

    rows = kartothek.read(lake, specimen.name)

    assert by_id(rows) == by_id(expected)


def test_kartothek_and_lakebed_agree_on_predicates(kartothek, lake, specimen):
    dataset = lakebed.open_repository(lake).open(specimen.name)
    predicates = [dnf for dnf in specimen.predicates if is_known_there(dnf)]
    ours = {
        str(dnf): sorted(dataset.where(dnf).arrow(["id"]).column("id").to_pylist())
        for dnf in predicates
    }

    theirs = {str(dnf): kartothek.ids(lake, specimen.name, dnf) for dnf in predicates}

    assert theirs == ours


def is_known_there(dnf: Dnf) -> bool:
    """Whether kartothek has the operators: plateau has added `not in`."""
    return all(op != "not in" for terms in dnf for _, op, _ in terms)


def row(number: int) -> dict[str, Any]:
    return {"id": number, "word": f"wörd {number % 7}", "part": f"p {number % 3}"}


@pytest.fixture
def words(tmp_path: Path) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=WORDS, partition_by="part", index=["word", "id"])
    dataset = lakebed.open_repository(tmp_path).create("words", descriptor)
    for start in range(0, 60, 20):
        dataset.append([row(number) for number in range(start, start + 20)])
    return dataset


COMMITS: dict[str, Callable[[lakebed.Dataset], object]] = {
    "append": lambda words: words.append([row(70)]),
    "overwrite": lambda words: words.overwrite([row(3)]),
    "delete": lambda words: words.delete(words.where("id < 5")),
    "compaction": lambda words: words.compact(),
    "rollback": lambda words: words.rollback(version=1),
}


@pytest.mark.parametrize("commit", COMMITS.values(), ids=COMMITS.keys())
def test_kartothek_looks_up_by_an_index_of_texts_after_every_commit(
    kartothek, words, tmp_path, commit
):
    commit(words)

    assert kartothek.indices(tmp_path, "words") == ["id", "word"]
    for value in ("wörd 0", "wörd 3", "absent"):
        where: Dnf = [[("word", "==", value)]]
        known = kartothek.query_index(tmp_path, "words", column="word", value=value)
        assert known == sorted(file_labels(words, where)), value
        assert kartothek.dispatch(tmp_path, "words", predicates=where) == known
        assert kartothek.ids(tmp_path, "words", where) == sorted(
            one["id"] for one in words.where(where).kite.reader()
        )


def file_labels(dataset: lakebed.Dataset, where: Dnf) -> list[str]:
    """Return the labels of the files that hold a match, by a look into each."""
    ids = {one["id"] for one in dataset.where(where).kite.reader()}
    location = Path(dataset.uri.removeprefix("file://")).parent
    held = [
        file.key
        for file in dataset.files()
        if ids & set(pq.ParquetFile(location / file.key).read(["id"])["id"].to_pylist())
    ]
    return [key.removeprefix("words/data/").removesuffix(".parquet") for key in held]


def test_kartothek_cannot_read_an_index_of_large_texts(kartothek, tmp_path):
    descriptor = lakebed.DatasetDescriptor(
        schema=WORDS, index=["word"], properties={"kartothek.indices": "large_string"}
    )
    words = lakebed.open_repository(tmp_path).create("words", descriptor)
    words.append([row(1)])

    assert kartothek.ids(tmp_path, "words") == [1]
    with pytest.raises(kartothek.Error, match="large_string"):
        kartothek.ids(tmp_path, "words", [[("word", "==", "wörd 1")]])


def test_what_kartothek_adds_beside_an_index_of_texts_is_found_by_both(kartothek, words, tmp_path):
    kartothek.update(tmp_path, "words", rows=[row(100) | {"batch_id": 7}])
    words.append([row(101)])

    where = [[("word", "==", row(100)["word"])]]
    expected = [n for n in (*range(60), 100, 101) if row(n)["word"] == row(100)["word"]]
    assert sorted(one["id"] for one in words.where(where).kite.reader()) == expected
    assert kartothek.ids(tmp_path, "words", where) == expected
    assert "word" in kartothek.indices(tmp_path, "words")
    assert [one.operation for one in words.history()][-2:] == ["foreign", "append"]


TABLES = {
    "core": [{"id": n, "word": f"w{n % 3}", "part": f"p{n % 2}"} for n in range(12)],
    "extra": [{"id": n, "part": f"p{n % 2}", "amount": n / 4} for n in range(4, 12)],
}


@pytest.mark.parametrize("head", ["json", "msgpack"])
def test_each_table_of_a_dataset_of_several_is_read(kartothek, tmp_path, head):
    kartothek.store_tables(
        tmp_path,
        "several",
        tables=TABLES,
        partition_on=["part"],
        secondary_indices=["id"],
        metadata_storage_format=head,
    )
    repository = lakebed.open_repository(tmp_path)

    for table, rows in TABLES.items():
        dataset = repository.open(f"several:{table}")
        assert sorted(dataset.kite.reader(), key=lambda one: one["id"]) == rows
        assert dataset.count() == len(rows)
        assert dataset.where("part = 'p1' AND id > 8").count() == len(
            [one for one in rows if one["part"] == "p1" and one["id"] > 8]
        )
        theirs = kartothek.read(tmp_path, "several", table=table)
        assert sorted(theirs, key=lambda one: one["id"]) == rows
    with pytest.raises(UnsupportedVersionError, match="several tables: core, extra"):
        repository.open("several")
    with pytest.raises(ReadOnlyError):
        repository.open("several:core").append(TABLES["core"])


def test_plans_keep_the_files_that_kartothek_dispatches(kartothek, tmp_path):
    rows = [
        {"id": n, "word": f"w{n % 11}", "part": f"p{n % 12}", "day": dt.date(2020, 1, 1 + n % 9)}
        for n in range(240)
    ]
    kartothek.store(
        tmp_path,
        "theirs",
        rows=rows,
        partition_on=["part"],
        secondary_indices=["word", "id", "day"],
    )
    theirs = lakebed.open_repository(tmp_path).open("theirs")

    for where in (
        [[("id", "==", 77)]],
        [[("id", "in", [5, 100, 239])]],
        [[("word", "==", "w3"), ("part", "==", "p3")]],
        [[("id", "<", 7)]],
        [[("id", "==", 1)], [("id", "==", 200), ("part", "==", "p8")]],
        [[("day", "==", dt.date(2020, 1, 4)), ("id", ">", 200)]],
        [[("id", "==", 10_000)]],
    ):
        plan = theirs.where(where).plan()
        kept = {file.label for file in plan.files}
        dispatched = set(kartothek.dispatch(tmp_path, "theirs", predicates=where))
        assert kept == dispatched, where
        assert sorted(one["id"] for one in theirs.where(where).kite.reader()) == kartothek.ids(
            tmp_path, "theirs", where
        )
