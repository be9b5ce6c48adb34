"""Datasets of plateau and kartothek that Lakebed takes over, in place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from inside import state_of
from killed_adoptions import adopt_and_die

import lakebed
from lakebed.cli import main
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    NotFoundError,
    SchemaMismatchError,
    StorageError,
    UnsupportedVersionError,
)
from lakebed.testing import DelegatingStore, FailingStore

FILLED = ["flat", "indexed", "indexed-msgpack", "keys", "updated"]
HEAD = "indexed.by-dataset-metadata.json"


def sorted_rows(view, columns):
    return sorted(view.arrow(columns).to_pylist(), key=lambda row: row["id"])


def ids(view):
    return sorted(view.arrow(["id"]).column("id").to_pylist())


def files_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and ".lakebed" not in path.parts
    }


def edit_head(root: Path, **entries) -> None:
    document = json.loads((root / HEAD).read_text())
    document |= entries
    kept = {key: value for key, value in document.items() if value is not None}
    (root / HEAD).write_text(json.dumps(kept))


def refused(root: Path, error: type[LakebedError], match: str, **options) -> LakebedError:
    """Check that an adoption is refused, and changes nothing."""
    before = files_of(root)
    with pytest.raises(error, match=match) as caught:
        lakebed.open_repository(root).adopt("indexed", **{"kartothek": True} | options)
    assert files_of(root) == before
    return caught.value


@pytest.fixture
def indexed(golden_of, copied_store):
    """A copy of a store, and the truth about `indexed` in it."""
    golden = golden_of(copied_store and "plateau-4.6.2", "indexed")
    return copied_store, golden


def test_every_dataset_reads_equal_once_it_is_taken_over(golden, tmp_path):
    store = shutil.copytree(golden.store, tmp_path / "store")
    before = files_of(store)
    repository = lakebed.open_repository(store)
    if golden.name not in FILLED:
        with pytest.raises(NotFoundError, match="has no files"):
            repository.adopt(golden.name, kartothek=True)
        assert files_of(store) == before
        return

    taken = repository.adopt(golden.name, kartothek=True)

    assert sorted_rows(taken, list(golden.types)) == golden.rows
    assert taken.version == 1
    assert [commit.operation for commit in taken.history()] == ["create", "adopt"]
    found = {query.sql: ids(taken.where(query.dnf)) for query in golden.queries}
    assert found == {query.sql: query.ids for query in golden.queries}
    assert list(taken.descriptor.partition_types) == [*golden.partition_keys, "batch_id"]
    after = files_of(store)
    head = next(key for key in before if key.startswith(f"{golden.name}.by-dataset-metadata"))
    assert {key: after[key] for key in before if key != head} == {
        key: data for key, data in before.items() if key != head
    }
    assert not lakebed.open_repository(store)[golden.name].check(deep=True).problems


@pytest.mark.parametrize("name", ["indexed", "indexed-msgpack"])
def test_dataset_that_was_taken_over_is_written_as_any_other(copied_store, golden_of, name):
    rows = golden_of("plateau-4.6.2", name).rows
    taken = lakebed.open_repository(copied_store).adopt(name, kartothek=True)

    taken.append([{**rows[0], "id": 1000}, {**rows[1], "id": 1001}])
    assert ids(taken) == sorted([*(row["id"] for row in rows), 1000, 1001])
    taken.where(f"id = {rows[0]['id']}").delete()
    assert rows[0]["id"] not in ids(taken)
    taken.compact(gather=True)
    taken.cleanup(older_than="0s")
    assert ids(taken) == sorted([*(row["id"] for row in rows[1:]), 1000, 1001])
    assert all("/data/" in file.key for file in taken.files())
    taken = lakebed.open_repository(copied_store)[name]
    assert not taken.check(deep=True).problems
    assert sorted(state_of(taken).indices)


def test_indices_find_files_before_and_after_the_first_append(indexed):
    root, golden = indexed
    taken = lakebed.open_repository(root).adopt("indexed", kartothek=True)
    code = golden.rows[0]["code"]
    wanted = sorted(row["id"] for row in golden.rows if row["code"] == code)

    plan = taken.where(f"code = '{code}'").plan()
    assert plan.explain().indices == {"code": 1}
    assert 0 < len(plan) < len(taken.files())

    taken.append([{**golden.rows[0], "id": 1000}, {**golden.rows[0], "id": 1001, "code": "new"}])
    plan = taken.where(f"code = '{code}'").plan()
    assert len(plan) < len(taken.files())
    assert ids(taken.where(f"code = '{code}'")) == [*wanted, 1000]
    assert ids(taken.where("code = 'new'")) == [1001]
    assert len(taken.where("code = 'new'").plan()) == 1


def test_adoption_says_what_it_takes_over(copied_store):
    repository = lakebed.open_repository(copied_store)

    told = str(repository.adopt("indexed", kartothek=True, dry_run=True))
    left = str(repository.adopt("updated", kartothek=True, dry_run=True))

    assert "Indices are taken over: code, n." in told
    assert "The index of 'at' is not taken over: index files of type timestamp_ntz" in told
    assert "Stop all writers" in told
    assert "3 files that its head does not name stay where they are." in left


def test_time_of_creation_and_metadata_of_others_are_kept(indexed):
    root, _ = indexed
    document = json.loads((root / HEAD).read_text())
    document["metadata"] |= {"owner": {"team": ["ü"]}}
    edit_head(root, metadata=document["metadata"])

    lakebed.open_repository(root).adopt("indexed", kartothek=True)

    kept = json.loads((root / HEAD).read_text())["metadata"]
    assert kept["owner"] == {"team": ["ü"]}
    assert kept["creation_time"] == document["metadata"]["creation_time"]


def test_dataset_in_memory_is_taken_over_from_what_was_found(golden_of):
    golden = golden_of("kartothek-5.3.0", "updated")
    repository = lakebed.open_repository("memory://taken-over")
    for key, data in files_of(golden.store).items():
        repository.store.put(key, data)

    found = repository.adopt("updated", kartothek=True, dry_run=True)
    assert repository["updated"].version == 0
    taken = repository.adopt("updated", found)

    assert sorted_rows(taken, list(golden.types)) == golden.rows
    with pytest.raises(DatasetExistsError, match="exists"):
        repository.adopt("updated", kartothek=True)
    with pytest.raises(DatasetExistsError, match="exists"):
        repository.adopt("updated", found)


def test_file_whose_column_is_narrower_or_null_is_taken_over(golden_of, tmp_path):
    golden = golden_of("plateau-4.6.2", "flat")
    store = shutil.copytree(golden.store, tmp_path / "store")
    kinds = {
        str(field.type)
        for path in (store / "flat").rglob("*.parquet")
        for field in pq.read_schema(path)
    }
    assert {"int32", "uint8", "float", "null"} <= kinds

    taken = lakebed.open_repository(store).adopt("flat", kartothek=True)

    assert sorted_rows(taken, list(golden.types)) == golden.rows


def test_adoption_without_the_word_is_refused_and_names_it(indexed):
    root, _ = indexed

    for options in ({"partition_by": "region"}, {"delta": True}, {}):
        error = refused(root, DatasetExistsError, "by Kartothek", **{"kartothek": False} | options)
        assert "adopt(…, kartothek=True)" in error.hint


def test_head_that_does_not_name_its_files_is_refused(indexed):
    root, _ = indexed
    edit_head(root, partitions=None, indices=None)
    # Kartothek would take an index file for a partition.
    shutil.rmtree(root / "indexed" / "indices")

    error = refused(root, InvalidInputError, "head does not name the files")
    assert "plateau" in error.hint


def test_two_heads_are_refused(indexed):
    root, _ = indexed
    golden = root / "indexed-msgpack.by-dataset-metadata.msgpack.zstd"
    other = root / "indexed.by-dataset-metadata.msgpack.zstd"
    import msgspec
    import zstandard

    document = msgspec.msgpack.decode(zstandard.decompress(golden.read_bytes()))
    document |= json.loads((root / HEAD).read_text())
    other.write_bytes(zstandard.compress(msgspec.msgpack.encode(document)))

    assert "out of date" in refused(root, InvalidInputError, "has two heads").hint


def test_several_tables_are_refused(indexed):
    root, _ = indexed
    partitions = json.loads((root / HEAD).read_text())["partitions"]
    for label, entry in partitions.items():
        entry["files"]["other"] = f"indexed/other/{label}.parquet"
    edit_head(root, partitions=partitions)

    refused(root, UnsupportedVersionError, "several tables: other, table")


def test_file_that_is_missing_is_refused_by_name(indexed):
    root, _ = indexed
    label, entry = next(iter(json.loads((root / HEAD).read_text())["partitions"].items()))
    (root / entry["files"]["table"]).unlink()

    refused(root, InvalidInputError, f"its file 'indexed/table/{label}.parquet' is missing")


def test_file_that_does_not_fit_the_schema_is_refused_by_name(indexed):
    root, _ = indexed
    path = next((root / "indexed" / "table").rglob("*.parquet"))
    rows = pq.read_table(path)
    position = rows.schema.get_field_index("n")
    pq.write_table(rows.set_column(position, "n", rows.column("n").cast(pa.string())), path)

    refused(root, SchemaMismatchError, "column 'n' is of type string instead of int64")


def test_table_with_the_name_of_a_folder_of_lakebed_is_refused(indexed):
    root, _ = indexed
    text = (root / HEAD).read_text()
    (root / HEAD).write_text(
        text.replace("indexed/table/", "indexed/files/").replace('"table"', '"files"')
    )
    (root / "indexed" / "table").rename(root / "indexed" / "files")

    refused(root, InvalidInputError, "its table is called 'files'")


def test_table_with_the_name_of_ours_is_taken_over(indexed):
    root, golden = indexed
    text = (root / HEAD).read_text()
    (root / HEAD).write_text(
        text.replace("indexed/table/", "indexed/data/").replace('"table"', '"data"')
    )
    (root / "indexed" / "table").rename(root / "indexed" / "data")

    taken = lakebed.open_repository(root).adopt("indexed", kartothek=True)

    assert sorted_rows(taken, list(golden.types)) == golden.rows
    taken.cleanup(older_than="0s")
    assert ids(taken) == [row["id"] for row in golden.rows]


def test_column_of_the_name_of_the_batch_is_refused(indexed):
    root, _ = indexed
    path = root / "indexed" / "table" / "_common_metadata"
    schema = pq.read_schema(path)
    pq.write_metadata(schema.append(pa.field("batch_id", pa.int64())), path)

    refused(root, InvalidInputError, "has a column 'batch_id'")


@pytest.mark.parametrize(
    ("added", "match"),
    [
        (pa.field("a.b", pa.int64()), "Illegal field name 'a.b'"),
        (pa.field("r", pa.struct([pa.field("b`", pa.int64())])), "Illegal field name 'b`'"),
    ],
)
def test_column_whose_name_no_head_of_lakebed_can_hold_is_refused(indexed, added, match):
    root, _ = indexed
    path = root / "indexed" / "table" / "_common_metadata"
    pq.write_metadata(pq.read_schema(path).append(added), path)

    refused(root, InvalidNameError, match)


def test_index_that_cannot_be_read_is_left_out_and_named(indexed):
    root, golden = indexed
    index = next((root / "indexed" / "indices" / "code").iterdir())
    index.write_bytes(b"PAR1")
    repository = lakebed.open_repository(root)

    assert "index of 'code' is not taken over: Index file" in str(
        repository.adopt("indexed", kartothek=True, dry_run=True)
    )
    taken = repository.adopt("indexed", kartothek=True)

    found = {query.sql: ids(taken.where(query.dnf)) for query in golden.queries}
    assert found == {query.sql: query.ids for query in golden.queries}


def test_several_kinds_are_refused(indexed):
    root, _ = indexed

    for options in ({"delta": True}, {"kite": True}, {"partition_by": "region"}):
        refused(root, InvalidInputError, "a dataset of Kartothek cannot be combined", **options)


def test_head_keeps_its_format(copied_store):
    repository = lakebed.open_repository(copied_store)
    refused(copied_store, InvalidInputError, "keeps its head in json", head_format="msgpack.zstd")

    repository.adopt("indexed-msgpack", kartothek=True)

    assert (copied_store / "indexed-msgpack.by-dataset-metadata.msgpack.zstd").exists()
    assert not (copied_store / "indexed-msgpack.by-dataset-metadata.json").exists()


def test_name_without_a_dataset_and_a_dataset_of_ours_are_refused(copied_store):
    repository = lakebed.open_repository(copied_store)
    repository.create("own", lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))

    with pytest.raises(DatasetNotFoundError, match="indexe"):
        repository.adopt("indexe", kartothek=True)
    with pytest.raises(DatasetExistsError, match="was created by Lakebed"):
        repository.adopt("own", kartothek=True)


def test_dataset_that_is_written_to_meanwhile_is_refused(indexed):
    root, _ = indexed
    repository = lakebed.open_repository(root)
    found = repository.adopt("indexed", kartothek=True, dry_run=True)
    edit_head(root, metadata={"creation_time": "2020-01-01T00:00:00", "note": "new"})
    before = files_of(root)

    with pytest.raises(CommitConflictError, match="was written to while it was adopted"):
        repository.adopt("indexed", found)

    assert files_of(root) == before


def test_two_adoptions_at_once_make_one_dataset(indexed):
    root, golden = indexed
    repository = lakebed.open_repository(root)
    found = [repository.adopt("indexed", kartothek=True, dry_run=True) for _ in range(2)]

    class Busy(DelegatingStore):
        """Another process adopts the dataset right before the head is replaced."""

        def _replace(self, key: str, data: bytes, *, if_match: str) -> str:
            repository.adopt("indexed", found[0])
            return super()._replace(key, data, if_match=if_match)

    with pytest.raises(CommitConflictError, match="was written to"):
        lakebed.Repository(Busy(repository.store)).adopt("indexed", found[1])

    taken = lakebed.open_repository(root)["indexed"]
    assert taken.version == 1
    assert sorted_rows(taken, list(golden.types)) == golden.rows
    assert not taken.check(deep=True).problems


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("operation", ["put", "create", "replace"])
def test_source_stays_as_it_was_or_is_taken_over_whatever_fails(
    golden_of, tmp_path, operation, landed
):
    golden = golden_of("plateau-4.6.2", "indexed")
    outcomes = set()
    for nth in range(1, 20):
        root = shutil.copytree(golden.store, tmp_path / str(nth))
        before = files_of(root)
        store = FailingStore(
            lakebed.open_repository(root).store, fail_on=operation, nth=nth, landed=landed
        )
        try:
            lakebed.Repository(store).adopt("indexed", kartothek=True)
        except CommitUnknownError:
            pytest.fail("the store has answered again")
        except StorageError:
            pass
        if not store.has_failed:
            assert nth > 1
            break
        dataset = lakebed.open_repository(root)["indexed"]
        outcomes.add(dataset.version)
        after = files_of(root)
        kept = before if dataset.version == 0 else before.keys() - {HEAD}
        assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
        columns = list(golden.types)
        assert sorted_rows(dataset, columns) == golden.rows
        if dataset.version == 0:
            lakebed.open_repository(root).adopt("indexed", kartothek=True)
        assert lakebed.open_repository(root)["indexed"].version == 1
    else:
        pytest.fail("it fails for ever")
    # The head is put again where its answer was lost.
    assert outcomes == {1} if operation == "replace" else outcomes


def test_answer_that_never_comes_is_told_apart(golden_of, tmp_path):
    root = shutil.copytree(golden_of("plateau-4.6.2", "indexed").store, tmp_path / "store")

    class Dead(DelegatingStore):
        """Replaces the head, and never answers again."""

        def _replace(self, key: str, data: bytes, *, if_match: str) -> str:
            raise StorageError("The store does not answer.", hint="", retryable=True)

    with pytest.raises(CommitUnknownError, match="did not confirm the adoption"):
        lakebed.Repository(Dead(lakebed.open_repository(root).store)).adopt(
            "indexed", kartothek=True
        )


@pytest.mark.crash
def test_source_stays_as_it_was_or_is_taken_over_after_kill_9(golden_of, tmp_path):
    golden = golden_of("plateau-4.6.2", "indexed")
    before = files_of(golden.store)

    killed = adopt_and_die(golden.store, "indexed", tmp_path)

    versions = []
    for root in killed:
        dataset = lakebed.open_repository(root)["indexed"]
        versions.append(dataset.version)
        assert sorted_rows(dataset, list(golden.types)) == golden.rows
        after = files_of(root)
        kept = before.keys() - ({HEAD} if dataset.version else set())
        assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
        if not dataset.version:
            dataset = lakebed.open_repository(root).adopt("indexed", kartothek=True)
        dataset.append([{**golden.rows[0], "id": 1000}])
        assert dataset.count() == len(golden.rows) + 1
        assert not dataset.check(deep=True).problems
    assert versions == sorted(versions)
    assert {0, 1} == set(versions)


def test_command_line_takes_a_dataset_over(copied_store):
    run = CliRunner().invoke

    dry = run(main, ["adopt", f"{copied_store}/updated", "--kartothek", "--dry-run"])
    assert dry.exit_code == 0
    assert "named by the head of Kartothek" in dry.stdout
    done = run(main, ["adopt", f"{copied_store}/updated", "--kartothek", "--json"])

    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["version"] == 1
    assert "Indices are taken over: n, word." in done.stderr.replace("word, n", "n, word")
