"""Datasets of Kartothek's form that are rare, old or wrong, made by hand from the specification."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lakebed
from lakebed.cli import main
from lakebed.errors import (
    CorruptMetadataError,
    DatasetNotFoundError,
    InvalidNameError,
    PartitionSpecError,
    UnsupportedVersionError,
)
from lakebed.model.keys import split_label

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64()), ("v", pa.float64())])
FIRST, SECOND = "p=a%20b/" + "1" * 32, "p=c/" + "2" * 32


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A location with the schema and two data files of `old`, and no head."""
    write_schema(tmp_path, SCHEMA)
    write_file(tmp_path, FIRST, {"n": [1, 2], "v": [0.5, None]})
    write_file(tmp_path, SECOND, {"n": [3], "v": [1.5]})
    return tmp_path


def write_schema(root: Path, schema: pa.Schema, table: str = "table") -> None:
    path = root / "old" / table / "_common_metadata"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_metadata(schema, path)


def write_file(root: Path, label: str, columns: dict[str, Any], table: str = "table") -> None:
    path = root / "old" / table / f"{label}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def write_head(root: Path, **entries: Any) -> None:
    """Write a head; an entry of None is left out."""
    head = {
        "dataset_metadata_version": 4,
        "dataset_uuid": "old",
        "metadata": {"creation_time": "2020-01-01T00:00:00"},
        "partitions": {label: entry(label) for label in (FIRST, SECOND)},
        "partition_keys": ["p"],
    }
    head = {key: value for key, value in {**head, **entries}.items() if value is not None}
    (root / "old.by-dataset-metadata.json").write_text(json.dumps(head))


def entry(label: str, table: str = "table") -> dict[str, Any]:
    return {"files": {table: f"old/{table}/{label}.parquet"}}


def open_old(root: Path) -> lakebed.Dataset:
    return lakebed.open_repository(root).open("old")


def rows(root: Path) -> list[dict[str, Any]]:
    return sorted(open_old(root).arrow().to_pylist(), key=lambda row: row["n"])


ROWS = [
    {"p": "a b", "n": 1, "v": 0.5},
    {"p": "a b", "n": 2, "v": None},
    {"p": "c", "n": 3, "v": 1.5},
]


def test_partition_keys_are_taken_from_the_labels_where_the_head_has_none(root):
    write_head(root, partition_keys=None)

    assert rows(root) == ROWS
    assert open_old(root).where("p = 'a b'").count() == 2


def test_encoded_name_of_a_partition_key_is_found_without_the_head_too(root):
    write_schema(root, pa.schema([("a key", pa.int64()), ("n", pa.int64())]))
    label = "a%20key=7/" + "3" * 32
    write_file(root, label, {"n": [4]})
    write_head(root, partition_keys=None, partitions={label: entry(label)})

    assert rows(root) == [{"a key": 7, "n": 4}]


def test_files_are_listed_where_the_head_names_none_and_indices_are_none_of_them(root):
    # B13: plateau takes the index for a partition.
    write_head(root, partitions=None, partition_keys=None)
    index = root / "old" / "indices" / "n" / "2020.by-dataset-index.parquet"
    index.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1], "partition": [[FIRST]]}), index)

    assert rows(root) == ROWS


def test_only_required_entries_are_needed(root):
    write_head(root, partition_keys=None, metadata=None)

    assert rows(root) == ROWS
    assert open_old(root).history() == ()


def test_embedded_index_is_ignored(root):
    write_head(root, indices={"n": {"1": [FIRST]}})

    assert rows(root) == ROWS
    assert open_old(root).where("n = 3").count() == 1


def test_value_of_the_path_beats_a_column_of_the_file(root):
    write_file(root, SECOND, {"p": ["wrong"], "n": [3], "v": [1.5]})
    write_head(root)

    assert rows(root) == ROWS
    assert open_old(root).where("p = 'c'").count() == 1
    assert open_old(root).where("p = 'wrong'").count() == 0


def test_columns_are_cast_to_the_schema_and_strange_ones_ignored(root):
    narrow = {
        "n": pa.array([3], pa.int8()),
        "v": pa.nulls(1),
        "__index_level_0__": pa.array([9], pa.int64()),
    }
    write_file(root, SECOND, narrow)
    write_head(root)

    assert rows(root) == [*ROWS[:2], {"p": "c", "n": 3, "v": None}]
    assert open_old(root).where("v IS NULL").count() == 2


def test_column_that_a_file_lacks_is_null(root):
    write_file(root, SECOND, {"n": [3]})
    write_head(root)

    assert rows(root) == [*ROWS[:2], {"p": "c", "n": 3, "v": None}]


def test_another_table_name_is_taken_from_the_head(root):
    write_schema(root, SCHEMA, "core")
    write_file(root, FIRST, {"n": [8], "v": [8.0]}, "core")
    write_head(root, partitions={FIRST: entry(FIRST, "core")})

    assert rows(root) == [{"p": "a b", "n": 8, "v": 8.0}]


def test_date_only_and_full_timestamps_mix_in_a_key(root):
    write_schema(root, pa.schema([("at", pa.timestamp("us")), ("n", pa.int64())]))
    labels = [f"at=2020-01-01/{'4' * 32}", f"at=2020-01-02%2003%3A04%3A05.000006/{'5' * 32}"]
    for number, label in enumerate(labels):
        write_file(root, label, {"n": [number]})
    write_head(root, partition_keys=["at"], partitions={one: entry(one) for one in labels})

    assert rows(root) == [
        {"at": dt.datetime(2020, 1, 1), "n": 0},
        {"at": dt.datetime(2020, 1, 2, 3, 4, 5, 6), "n": 1},
    ]


@pytest.fixture(params=["named", "listed"])
def two_tables(request, root: Path) -> Path:
    """The same with a table `core` beside it, which has a file of the second partition alone."""
    write_schema(root, pa.schema([("p", pa.string()), ("x", pa.string())]), "core")
    write_file(root, SECOND, {"x": ["core"]}, "core")
    both = {"files": {**entry(SECOND)["files"], **entry(SECOND, "core")["files"]}}
    partitions = {FIRST: entry(FIRST), SECOND: both} if request.param == "named" else None
    write_head(root, partitions=partitions)
    return root


def test_each_of_several_tables_is_opened_by_its_name(two_tables):
    repository = lakebed.open_repository(two_tables)

    table, core = repository.open("old:table"), repository["old:core"]

    assert sorted(table.arrow().to_pylist(), key=lambda row: row["n"]) == ROWS
    assert core.arrow().to_pylist() == [{"p": "c", "x": "core"}]
    assert (core.name, core.schema.names) == ("old:core", ("p", "x"))
    assert core.where("p = 'a b'").count() == 0
    assert repository.list() == ["old"]
    assert "old:core" in repository
    assert "old:other" not in repository
    sql = 'SELECT t.n, c.x FROM "old:table" t JOIN "old:core" c USING (p)'
    assert repository.sql(sql, write=True).to_pylist() == [{"n": 3, "x": "core"}]


def test_one_of_several_tables_must_be_named(two_tables):
    with pytest.raises(UnsupportedVersionError, match="several tables: core, table") as caught:
        open_old(two_tables)

    assert "old:core, old:table" in caught.value.hint


def test_the_command_line_and_uris_name_a_table_the_same(two_tables):
    answer = CliRunner().invoke(main, ["query", f"{two_tables}/old:core", "-o", "jsonl"])

    assert (answer.exit_code, answer.stdout) == (0, '{"p": "c", "x": "core"}\n')
    view = lakebed.open_repository(two_tables).open("old:table").where("n = 3")
    assert lakebed.open_uri(view.kite.uri).arrow().to_pylist() == [ROWS[2]]


@pytest.mark.parametrize("name", ["old:", "old:a/b", "old:..", ":core", "old:core\n/x"])
def test_a_name_that_is_none_of_a_table_is_refused(two_tables, name):
    with pytest.raises(InvalidNameError):
        lakebed.open_repository(two_tables).open(name)


def test_a_table_that_is_not_there_is_told_with_those_that_are(root):
    write_head(root)

    with pytest.raises(DatasetNotFoundError, match="no table 'core'") as caught:
        lakebed.open_repository(root).open("old:core")

    assert caught.value.hint == "There is old:table."
    assert lakebed.open_repository(root).open("old:table").count() == 3


def test_a_dataset_of_ours_has_the_table_data_and_no_other(tmp_path):
    repository = lakebed.open_repository(tmp_path)
    descriptor = lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    repository.create("ours", descriptor).append([{"n": 1}])

    assert repository.open("ours:data").count() == 1
    with pytest.raises(DatasetNotFoundError, match="no table 'core'"):
        repository.open("ours:core")
    with pytest.raises(InvalidNameError):
        repository.create("theirs:core", descriptor)
    with pytest.raises(InvalidNameError):
        repository.drop("ours:data")


@pytest.mark.parametrize("version", [3, 5])
def test_other_versions_are_refused(root, version):
    write_head(root, dataset_metadata_version=version)

    with pytest.raises(UnsupportedVersionError, match=f"dataset_metadata_version {version}"):
        open_old(root)


def test_unequal_depth_of_labels_is_an_error(root):
    deep = "p=a/b/" + "6" * 32  # as plateau writes the value "a/b": B4
    write_file(root, deep, {"n": [4], "v": [0.0]})
    write_head(root, partitions={FIRST: entry(FIRST), deep: entry(deep)})

    with pytest.raises(CorruptMetadataError, match="p=a/b"):
        open_old(root).arrow()


def test_key_that_is_not_of_its_type_is_an_error(root):
    write_schema(root, pa.schema([("p", pa.int64()), ("n", pa.int64()), ("v", pa.float64())]))
    write_head(root)

    with pytest.raises(CorruptMetadataError, match="type long"):
        open_old(root).arrow()


def test_missing_schema_file_is_named(root):
    (root / "old" / "table" / "_common_metadata").unlink()
    write_head(root)

    with pytest.raises(CorruptMetadataError, match="old/table/_common_metadata"):
        open_old(root)


@pytest.mark.parametrize(
    "damaged", [b"", b"PAR1", b"PAR1" + bytes(200) + b"PAR1"], ids=["empty", "cut", "noise"]
)
def test_damaged_schema_file_is_named(root, damaged):
    (root / "old" / "table" / "_common_metadata").write_bytes(damaged)
    write_head(root)

    with pytest.raises(CorruptMetadataError, match="old/table/_common_metadata"):
        open_old(root)


def test_partition_key_without_a_column_is_named(root):
    write_schema(root, pa.schema([("n", pa.int64())]))
    write_head(root)

    with pytest.raises(CorruptMetadataError, match="'p'"):
        open_old(root)


@pytest.mark.parametrize(
    "key", ["../secret.parquet", f"other/table/{FIRST}.parquet", f"old/../x/{FIRST}.parquet"]
)
def test_reference_that_leaves_the_dataset_is_refused(root, key):
    write_head(root, partitions={FIRST: {"files": {"table": key}}})

    with pytest.raises(CorruptMetadataError, match="refers to"):
        open_old(root)


@pytest.mark.parametrize(
    ("keys", "labels"),
    [
        (["p", "batch_id"], ["p=a/batch_id=one", "p=b/batch_id=two"]),
        (["batch_id", "p"], ["batch_id=one/p=a", "batch_id=two/p=b"]),
    ],
)
def test_key_that_is_called_batch_id_is_a_key_like_any_other(root, keys, labels):
    write_schema(root, pa.schema([("batch_id", pa.string()), *SCHEMA]))
    labels = [f"{label}/{'7' * 32}" for label in labels]
    for number, label in enumerate(labels):
        write_file(root, label, {"n": [number], "v": [0.5]})
    write_head(root, partition_keys=keys, partitions={one: entry(one) for one in labels})

    old = open_old(root)

    assert rows(root) == [
        {"batch_id": "one", "p": "a", "n": 0, "v": 0.5},
        {"batch_id": "two", "p": "b", "n": 1, "v": 0.5},
    ]
    assert old.where("batch_id = 'two'").count() == 1
    assert [one.path for one in old.inspect.partitions()] == [
        split_label(label)[0] for label in labels
    ]
    assert [list(one.values) for one in old.inspect.partitions()] == [keys, keys]
    assert [one.path for one in old.kite.covering_partitions()] == [
        one.path for one in old.inspect.partitions()
    ]
    # There are no batches in it, whatever its columns are called.
    assert [(one.partition, one.batch_id) for one in old.files()] == [
        (split_label(label)[0], None) for label in labels
    ]
    assert old.batches() == ()


def test_column_that_is_called_batch_id_is_a_column_like_any_other(root):
    write_schema(root, pa.schema([*SCHEMA, ("batch_id", pa.float64())]))
    write_file(root, FIRST, {"n": [1, 2], "v": [0.5, None], "batch_id": [0.5, 1.5]})
    write_file(root, SECOND, {"n": [3], "v": [1.5], "batch_id": [None]})
    write_head(root)

    old = open_old(root)

    assert [row["batch_id"] for row in rows(root)] == [0.5, 1.5, None]
    assert [row["n"] for row in old.where("batch_id > 1").kite.reader()] == [2]
    assert old.where("batch_id IS NULL").count() == 1
    assert lakebed.open_uri(old.where("batch_id = 0.5").kite.uri).count() == 1
    assert (
        old.inspect.schemas()[0].schema.get("batch_id").type
        == old.descriptor.schema.get("batch_id").type
    )


def test_their_column_called_batch_id_gets_no_dataset_of_ours(root):
    write_schema(root, pa.schema([*SCHEMA, ("batch_id", pa.int64())]))
    write_head(root, partitions={})
    repository = lakebed.open_repository(root)
    theirs = repository.open("old").descriptor
    ours = repository.create("ours", lakebed.DatasetDescriptor(schema=SCHEMA))

    with pytest.raises(PartitionSpecError, match="'batch_id', which every batch adds"):
        repository.create("copy", theirs)
    with pytest.raises(PartitionSpecError, match="'batch_id', which every batch adds"):
        ours.evolve(theirs, base=0)

    assert repository.list() == ["old", "ours"]


@pytest.mark.spark
@pytest.mark.parametrize("keys", [["p", "batch_id"], ["batch_id", "p"], ["p"]])
def test_spark_reads_a_column_that_is_called_batch_id(root, keys, spark):
    write_schema(root, pa.schema([("batch_id", pa.string()), *SCHEMA]))
    values = {"p": "a", "batch_id": "one"}
    label = "/".join([*(f"{key}={values[key]}" for key in keys), "7" * 32])
    rest = {name: [value] for name, value in values.items() if name not in keys}
    write_file(root, label, {"n": [1], "v": [0.5], **rest})
    write_head(root, partition_keys=keys, partitions={label: entry(label)})

    found = open_old(root).where("batch_id = 'one'").spark(spark).collect()

    assert [row.asDict() for row in found] == [{"batch_id": "one", "p": "a", "n": 1, "v": 0.5}]


@pytest.mark.parametrize("suffix", ["csv", "h5", "csv.gz"])
@pytest.mark.parametrize("is_named", [True, False])
def test_files_of_another_format_are_unsupported_not_corrupt(
    root: Path, suffix: str, is_named: bool
) -> None:
    for label in (FIRST, SECOND):
        path = root / "old" / "table" / f"{label}.parquet"
        path.rename(path.with_name(path.name.replace("parquet", suffix)))
    partitions = {
        label: {"files": {"table": f"old/table/{label}.{suffix}"}} for label in (FIRST, SECOND)
    }
    write_head(root, partitions=partitions if is_named else None)

    with pytest.raises(UnsupportedVersionError, match=f"in the format {suffix}") as caught:
        lakebed.open_repository(root).open("old").arrow()

    assert "lakebed import" in caught.value.hint
