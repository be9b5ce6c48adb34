"""Datasets of Lakebed that plateau has changed in between."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import by
from lakebed.arrow.kernel import WriteOptions
from lakebed.errors import CommitConflictError, CorruptMetadataError

pytestmark = pytest.mark.interop

# The types that a pandas frame holds as they are; test_plateau_limits has the others.
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("word", pa.string()),
        ("day", pa.date32()),
        ("small", pa.int32()),
        ("ratio", pa.float32()),
        ("price", pa.float64()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("tags", pa.list_(pa.string())),
    ]
)


def entity(number: int, word: str) -> dict[str, Any]:
    return {
        "id": number,
        "word": word,
        "day": dt.date(2013, 1, 1 + number % 3),
        "small": -number,
        "ratio": number / 4,
        "price": number * 1.1,
        "flag": number % 2 == 0,
        "raw": bytes([number]),
        "at": dt.datetime(2013, 1, 1, number, 0, 0, 123456, dt.UTC),
        "wall": dt.datetime(1965, 1, 1, number, 0, 0, 7),
        "tags": ["a", f"b{number}"],
    }


FIRST = [entity(1, "é %=+"), entity(2, "b"), entity(3, "c")]
FOREIGN = [entity(4, "é %=+"), entity(5, "d")]
FOREIGN_BATCH = 7
WALL_DAY = dt.date(1965, 1, 1)


@pytest.fixture(params=["json", "msgpack.zstd"])
def dataset(request, repository) -> lakebed.Dataset:
    created = repository.create(
        "flights",
        lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by=[by.identity("word"), by.date("wall", name="wall_day")]
        ),
        head_format=request.param,
    )
    created.append(FIRST)
    return created


def with_keys(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the partition fields, which plateau takes from columns."""
    return [row | {"wall_day": WALL_DAY, "batch_id": FOREIGN_BATCH} for row in rows]


def heads(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*.by-dataset-metadata.*"))


def entities(view: lakebed.View) -> list[dict[str, Any]]:
    return sorted(view.kite.reader(), key=lambda row: row["id"])


def ids(view: lakebed.View) -> list[int]:
    return [row["id"] for row in entities(view)]


def test_what_plateau_added_is_read(plateau, dataset, tmp_path):
    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN))

    assert entities(dataset) == FIRST + FOREIGN
    assert dataset.count() == 5
    assert ids(dataset.where("word = 'é %=+'")) == [1, 4]
    assert ids(dataset.where([[("wall_day", "==", WALL_DAY), ("id", ">", 3)]])) == [4, 5]
    assert ids(dataset.where(f"batch_id = {FOREIGN_BATCH}")) == [4, 5]


def test_what_plateau_removed_is_not_read(plateau, dataset, tmp_path):
    batch_id = dataset.history()[-1].batch_id
    scope = [{"word": "b"}, {"word": "c", "wall_day": WALL_DAY, "batch_id": batch_id}]

    plateau.update(tmp_path, "flights", rows=[], delete_scope=scope)

    assert entities(dataset) == FIRST[:1]
    assert dataset.where("word IN ('b', 'c')").count() == 0


def test_next_commit_adopts_what_plateau_did_as_a_version(plateau, dataset, tmp_path):
    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN[:1]), delete_scope=[{"word": "b"}])
    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN[1:]))

    commit = dataset.append([entity(6, "b")])

    assert commit.version == 3
    history = dataset.history()
    assert [one.operation for one in history] == ["create", "append", "foreign", "append"]
    assert [one.version for one in history] == [0, 1, 2, 3]
    assert len(history[2].files_added) == 2
    assert history[2].files_removed == tuple(
        key for key in history[1].files_added if "/word=b/" in key
    )
    assert history[2].batch_id is None
    assert [ids(dataset.at(version=number)) for number in range(4)] == [
        [],
        [1, 2, 3],
        [1, 3, 4, 5],
        [1, 3, 4, 5, 6],
    ]
    assert entities(dataset.at(version=1)) == FIRST
    assert entities(dataset) == [FIRST[0], FIRST[2], *FOREIGN, entity(6, "b")]


def test_older_version_is_right_before_the_change_is_adopted(plateau, dataset, tmp_path):
    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN), delete_scope=[{"word": "b"}])

    assert entities(dataset.at(version=1)) == FIRST
    assert dataset.version == 1


def test_one_head_remains_and_plateau_reads_it(plateau, dataset, tmp_path):
    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN), delete_scope=[{"word": "b"}])

    dataset.append([entity(6, "b")])

    assert len(heads(tmp_path)) == 1
    assert plateau.ids(tmp_path, "flights") == [1, 3, 4, 5, 6]
    assert plateau.ids(tmp_path, "flights", [[("word", "==", "é %=+")], [("id", ">", 5)]]) == [
        1,
        4,
        6,
    ]


def test_lakebed_and_plateau_take_turns(plateau, dataset, tmp_path):
    for number in range(10, 16, 2):
        plateau.update(tmp_path, "flights", rows=with_keys([entity(number, "turn")]))
        dataset.append([entity(number + 1, "turn")])

    assert len(heads(tmp_path)) == 1
    assert ids(dataset) == [1, 2, 3, *range(10, 16)]
    assert plateau.ids(tmp_path, "flights") == ids(dataset)
    operations = [one.operation for one in dataset.history()]
    assert operations == ["create", "append", *(["foreign", "append"] * 3)]
    assert ids(dataset.at(version=4)) == [1, 2, 3, 10, 11, 12]


def test_partition_that_plateau_touched_can_be_overwritten(plateau, dataset, tmp_path):
    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN))

    dataset.overwrite([entity(8, "é %=+")])

    assert ids(dataset) == [2, 3, 5, 8]
    assert [one.operation for one in dataset.history()][2:] == ["foreign", "overwrite"]
    assert plateau.ids(tmp_path, "flights") == [2, 3, 5, 8]


def test_overwrite_conflicts_with_what_plateau_does_meanwhile(plateau, dataset, tmp_path):
    def rows() -> Iterator[dict[str, Any]]:
        yield entity(8, "é %=+")
        plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN[:1]))

    with pytest.raises(CommitConflictError, match="both touch word=%C3%A9"):
        dataset.overwrite(rows())

    assert ids(dataset) == [1, 2, 3, 4]


def test_overwrite_elsewhere_does_not_conflict_with_plateau(plateau, dataset, tmp_path):
    def rows() -> Iterator[dict[str, Any]]:
        yield entity(8, "b")
        plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN[:1]))

    dataset.overwrite(rows())

    assert ids(dataset) == [1, 3, 4, 8]
    assert [one.operation for one in dataset.history()][2:] == ["foreign", "overwrite"]


def test_metadata_that_plateau_set_is_kept(plateau, dataset, tmp_path):
    plateau.update(tmp_path, "flights", rows=[], metadata={"owner": "ops", "nested": {"a": [1]}})

    dataset.append([entity(6, "b")])

    found = plateau.metadata(tmp_path, "flights")
    assert found == {"creation_time": found["creation_time"], "owner": "ops", "nested": {"a": [1]}}
    assert ids(dataset) == [1, 2, 3, 6]


def test_index_that_plateau_built_is_named_only_while_it_is_complete(plateau, dataset, tmp_path):
    plateau.build_indices(tmp_path, "flights", columns=["small", "day"])
    built = plateau.indices(tmp_path, "flights")
    assert ids(dataset.where("small = -2")) == [2]

    dataset.append([entity(6, "b") | {"small": -2}])

    assert built == ["day", "small"]
    assert plateau.indices(tmp_path, "flights") == []
    assert plateau.ids(tmp_path, "flights", [[("small", "==", -2)]]) == [2, 6]
    assert len(heads(tmp_path)) == 1


def test_key_that_plateau_garbles_is_refused_and_the_past_stays_readable(
    plateau, dataset, tmp_path
):
    # B4: plateau does not encode the slash, so that the path has a level too many.
    plateau.update(tmp_path, "flights", rows=with_keys([entity(4, "a/b")]))

    with pytest.raises(CorruptMetadataError, match="a/b") as caught:
        dataset.arrow()

    assert "word=…/wall_day=…/batch_id=…" in str(caught.value)
    assert ids(dataset.at(version=1)) == [1, 2, 3]


def test_schema_file_that_plateau_rewrote_does_not_change_our_types(plateau, dataset, tmp_path):
    before = dataset.schema

    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN))
    dataset.append([entity(6, "b")])

    assert dataset.schema == before
    assert dataset.arrow().schema.equals(SCHEMA)


@pytest.mark.spark
def test_spark_reads_what_plateau_changed(plateau, dataset, tmp_path, spark):
    plateau.update(tmp_path, "flights", rows=with_keys(FOREIGN), delete_scope=[{"word": "b"}])
    dataset.append([entity(6, "b")])
    columns = [*SCHEMA.names, "wall_day", "batch_id"]

    frame = dataset.spark(spark, columns)

    found = sorted(frame.toArrow().to_pylist(), key=lambda row: row["id"])
    assert found == sorted(dataset.arrow(columns).to_pylist(), key=lambda row: row["id"])
    assert [row["id"] for row in found] == [1, 3, 4, 5, 6]
    assert dataset.where("word = 'é %=+' AND id > 1").spark(spark).count() == 1


class TestGarbage:
    """plateau's collector sweeps the data files and index files that the head does not name."""

    SIDE = ("batches", "files", "history")

    @pytest.fixture
    def swept(self, plateau, dataset, tmp_path) -> lakebed.Dataset:
        dataset.overwrite([entity(8, "b")])
        self.before = self.side_objects(tmp_path)
        plateau.collect_garbage(tmp_path, "flights")
        return dataset

    def side_objects(self, root: Path) -> list[str]:
        folder = root / "flights"
        return sorted(
            str(path.relative_to(folder))
            for side in self.SIDE
            for path in (folder / side).rglob("*")
            if path.is_file()
        )

    def test_current_version_and_side_objects_stay(self, plateau, swept, tmp_path):
        assert ids(swept) == [1, 3, 8]
        assert plateau.ids(tmp_path, "flights") == [1, 3, 8]
        assert self.side_objects(tmp_path) == self.before
        assert {path.split("/")[0] for path in self.before} == set(self.SIDE)
        assert [one.operation for one in swept.history()] == ["create", "append", "overwrite"]
        assert (tmp_path / "flights" / "data" / "_common_metadata").is_file()

    def test_older_version_is_a_named_error(self, swept):
        older = swept.at(version=1)

        with pytest.raises(CorruptMetadataError, match="missing"):
            older.arrow()

        # How many rows there were is still known from the file table.
        assert older.count() == 3
        with pytest.raises(CorruptMetadataError, match="missing"):
            older.where("tags IS NOT NULL").count()
        # What both versions share is still there.
        assert ids(older.where("word = 'c'")) == [3]

    @pytest.mark.spark
    def test_older_version_is_an_error_in_spark_too(self, swept, spark):
        # Spark looks at its files in its own time and in its own words.
        with pytest.raises(Exception, match=r"(?i)missing|exist|not found"):
            swept.at(version=1).spark(spark).collect()

        assert swept.spark(spark).count() == 3

    def test_collecting_again_changes_nothing_and_commits_go_on(self, plateau, swept, tmp_path):
        plateau.collect_garbage(tmp_path, "flights")

        swept.append([entity(9, "c")])

        assert ids(swept) == [1, 3, 8, 9]
        assert ids(swept.at(version=2)) == [1, 3, 8]
        assert plateau.ids(tmp_path, "flights") == [1, 3, 8, 9]

    def test_files_of_a_writer_in_flight_are_lost_and_reading_says_so(
        self, plateau, dataset, tmp_path
    ):
        # B11: the collector has no age limit, and nothing that a writer could hold against it.
        data = tmp_path / "flights" / "data"
        live = set(data.rglob("*.parquet"))

        def rows() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist([entity(9, "c")], schema=SCHEMA)
            # Files are put by threads of the writer: collect when this one's are there.
            for _ in range(600):
                if set(data.rglob("*.parquet")) - live:
                    break
                time.sleep(0.05)
            plateau.collect_garbage(tmp_path, "flights")
            yield pa.RecordBatch.from_pylist([entity(10, "c")], schema=SCHEMA)

        reader = pa.RecordBatchReader.from_batches(SCHEMA, rows())
        dataset.with_options(write=WriteOptions(target_bytes=1)).append(reader)

        with pytest.raises(CorruptMetadataError, match="missing"):
            dataset.arrow()
        assert ids(dataset.at(version=1)) == [1, 2, 3]
