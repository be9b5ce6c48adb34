"""Plans go by the index files that plateau and kartothek keep, as far as these know the files."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.index import kartothek_file

GOLDEN = Path(__file__).parent.parent / "data" / "golden-kartothek"
SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string()), ("x", pa.float64())])
ROWS: Sequence[Mapping[str, Sequence[Any]]] = (
    {"n": [1, 2], "word": ["a", "b"], "x": [0.5, -0.0]},
    {"n": [2, 3], "word": ["b", "ä/%"], "x": [1.5, math.nan]},
    {"n": [None, 9], "word": [None, "a"], "x": [None, 2.5]},
    {"n": [4, 5], "word": ["c", "d"], "x": [3.5, 4.5]},
    {"n": [None, None], "word": [None, None], "x": [None, None]},
)
LABELS = tuple(str(number) * 32 for number in range(1, len(ROWS) + 1))


class Store:
    """A dataset of another tool, made by hand: five files, and indices of some of them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.indices: dict[str, str] = {}
        (root / "old" / "table").mkdir(parents=True)
        pq.write_metadata(SCHEMA, root / "old" / "table" / "_common_metadata")
        for label, columns in zip(LABELS, ROWS, strict=True):
            # As a pandas frame has it: what is not a number there is null in the index alone.
            pq.write_table(pa.table(columns, SCHEMA), root / "old" / "table" / f"{label}.parquet")

    def index(
        self,
        column: str,
        *,
        of: Sequence[int] = range(len(ROWS)),
        kind: pa.DataType | None = None,
        more: Mapping[Any, Sequence[str]] | None = None,
    ) -> Path:
        """Write an index of some files, as plateau does: without null and NaN."""
        found: dict[Any, list[str]] = {}
        for number in of:
            for value in dict.fromkeys(ROWS[number][column]):
                if value is not None and value == value:
                    found.setdefault(value, []).append(LABELS[number])
        for value, labels in (more or {}).items():
            found.setdefault(value, []).extend(labels)
        table = pa.table(
            {
                column: pa.array(found, kind or SCHEMA.field(column).type),
                "partition": pa.array(found.values(), pa.list_(pa.string())),
            }
        )
        key = f"old/indices/{column}/2020-01-01.by-dataset-index.parquet"
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
        self.indices[column] = key
        return path

    def open(self) -> lakebed.Dataset:
        head = {
            "dataset_metadata_version": 4,
            "dataset_uuid": "old",
            "indices": self.indices,
            "metadata": {"creation_time": "2020-01-01T00:00:00"},
            "partitions": {one: {"files": {"table": f"old/table/{one}.parquet"}} for one in LABELS},
            "partition_keys": [],
        }
        (self.root / "old.by-dataset-metadata.json").write_text(json.dumps(head))
        return lakebed.open_repository(self.root).open("old")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def kept(view: lakebed.View) -> list[int]:
    """Return the numbers of the files that a plan keeps."""
    return sorted(LABELS.index(file.label) for file in view.plan().files)


NEVER = [4]  # only null: no index lists it, so that nothing is known of it


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("word = 'b'", [0, 1]),
        ("word = 'ä/%'", [1]),
        ("word = 'nothing'", []),
        ("word IN ('a', 'd')", [0, 2, 3]),
        ("word > 'b'", [1, 3]),
        ("n = 2 AND word = 'a'", [0]),
        ("n = 9 OR word = 'd'", [2, 3]),
        ("n >= 3 AND n < 5", [1, 3]),
        ("n > 3", [2, 3]),
        ("x = 0", [0]),
        ("x < 1", [0]),
        ("x > 1 AND x < 3", [1, 2]),
    ],
)
def test_file_that_an_index_lists_without_the_value_is_not_read(store, where, files):
    for column in SCHEMA.names:
        store.index(column)
    plain = lakebed.open_repository(store.root)

    dataset = store.open()

    assert kept(dataset.where(where)) == files + NEVER
    assert dataset.where(where).plan().account.dropped_by_index == len(ROWS) - len(files) - 1
    assert dataset.where(where).count() == _without_indices(plain, store, where)


def _without_indices(repository: lakebed.Repository, store: Store, where: str) -> int:
    indices, store.indices = store.indices, {}
    store.open()
    found = repository.open("old").where(where).count()
    store.indices = indices
    store.open()
    return found


@pytest.mark.parametrize(
    "where",
    [
        "word IS NULL",
        "n IS NULL OR n = 4",
        "n != 4",
        "NOT n IN (4)",
        # NaN is greater than every number, and no index of theirs has it.
        "x > 1",
        "x >= 100",
        [[("x", "in", [math.nan])]],
    ],
)
def test_what_their_index_does_not_hold_is_not_asked_of_it(store, where):
    for column in SCHEMA.names:
        store.index(column)

    dataset = store.open()

    assert kept(dataset.where(where)) == list(range(len(ROWS)))
    assert dataset.where(where).count() == _without_indices(
        lakebed.open_repository(store.root), store, where
    )


def test_file_that_an_index_does_not_list_is_read(store):
    store.index("word", of=[0, 3])

    dataset = store.open()

    assert kept(dataset.where("word = 'd'")) == [1, 2, 3, 4]
    assert dataset.where("word = 'ä/%'").count() == 1


def test_empty_index_knows_no_file(store):
    store.index("word", of=[])

    dataset = store.open()

    assert kept(dataset.where("word = 'd'")) == list(range(len(ROWS)))
    assert dataset.where("word = 'd'").plan().explain().indices == {"word": 1}


def test_label_of_no_file_is_ignored(store):
    store.index("word", more={"b": ["dead"], "new": ["dead", "dead2"]})

    dataset = store.open()

    assert kept(dataset.where("word = 'new'")) == NEVER
    assert kept(dataset.where("word = 'b'")) == [0, 1, 4]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_both_forms_of_text_are_read(store, kind):
    store.index("word", kind=kind)

    assert kept(store.open().where("word = 'ä/%'")) == [1, 4]


def test_index_that_answers_is_named_with_what_it_took(store):
    store.index("word")
    view = store.open().where("word = 'd'")
    store.index("n")
    before = store.open().where("word = 'c'").plan()  # the file is held now

    explained = view.plan().explain()

    assert explained.indices == {"word": 1}
    assert explained.ignored == ()
    assert before.requests - explained.requests == 2


@pytest.mark.parametrize(
    "damage", ["gone", "cut", "noise", "other", "lists", "type", "outside", "bit"]
)
def test_index_that_cannot_be_right_is_left_out_and_said(store, damage, caplog):
    path = store.index("n")
    match damage:
        case "gone":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:100])
        case "noise":
            path.write_bytes(b"PAR1" + bytes(200) + b"PAR1")
        case "other":
            pq.write_table(pa.table({"m": [1], "partition": [["a"]]}), path)
        case "lists":
            pq.write_table(pa.table({"n": [1], "partition": ["a"]}), path)
        case "type":
            pq.write_table(pa.table({"n": ["1"], "partition": [["a"]]}), path)
        case "outside":
            shutil.move(path, store.root / "n.parquet")
            store.indices["n"] = "n.parquet"
        case "bit":
            table = pq.read_table(path)
            plain = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
            pq.write_table(table, path, **plain)
            before = path.read_bytes()
            page = pq.ParquetFile(path).metadata.row_group(0).column(0).data_page_offset
            place = before.index((2).to_bytes(8, "little"), page)
            path.write_bytes(before[:place] + b"\x22" + before[place + 1 :])

    view = store.open().where("n = 2")

    assert kept(view) == list(range(len(ROWS)))
    assert view.count() == 2
    (reason,) = view.plan().explain().ignored
    assert store.indices["n"] in reason
    assert "index" in caplog.text


@pytest.mark.parametrize("key", ["old/", "old//n", "old/./n", "old/.n", "old/a\0b"])
def test_index_under_a_key_that_no_store_takes_is_left_out(store, key):
    store.indices["n"] = key

    view = store.open().where("n = 2")

    assert view.count() == 2
    (reason,) = view.plan().explain().ignored
    assert repr(key) in reason


@pytest.mark.thorough
def test_index_that_takes_more_than_the_files_is_not_read(store):
    store.index("n", more={number: ["dead" * 8] for number in range(100, 200_100)})

    plan = store.open().where("n = 2").plan()

    assert len(plan.files) == len(ROWS)
    assert plan.explain().indices == {}
    assert "is less work" in plan.explain().ignored[0]


def test_small_index_that_unpacks_to_very_much_is_not_read(store, monkeypatch):
    monkeypatch.setattr(kartothek_file, "MAX_BYTES", 2**20)
    path = store.index("n", more={7: [LABELS[0]] * 300_000})
    assert path.stat().st_size < 10_000  # equal labels take no room

    plan = store.open().where("n = 2").plan()

    assert len(plan.files) == len(ROWS)
    assert "300,007 pairs" in plan.explain().ignored[0]


@pytest.mark.parametrize("writer", ["plateau-4.6.2", "kartothek-5.3.0"])
def test_indices_of_the_originals_leave_the_files_that_hold_a_value(writer):
    dataset = lakebed.open_repository(GOLDEN / writer / "store").open("indexed")
    every = dataset.arrow(["id", "code"])
    assert len(dataset.files()) > 2

    plan = dataset.where("code = 'AB-1'").plan()

    assert 0 < len(plan.files) < len(dataset.files())
    assert plan.account.dropped_by_index == len(dataset.files()) - len(plan.files)
    found = dataset.where("code = 'AB-1'").arrow(["id"]).column("id").to_pylist()
    wanted = [row["id"] for row in every.to_pylist() if row["code"] == "AB-1"]
    assert sorted(found) == sorted(wanted)
