"""`dry_run=True` means one thing in Python: the result of the verb, and no write."""

import dataclasses
import inspect
import io
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import Archive, Commit, Dataset, DatasetDescriptor, Repository, View, checks
from lakebed.archive import UploadQueue
from lakebed.batches.staged import Staged
from lakebed.errors import CommitConflictError, InvalidInputError, ReadOnlyError
from lakebed.groups.dimension_group import DimensionGroup
from lakebed.groups.index_group import IndexGroup
from lakebed.groups.protection_group import ProtectionGroup
from lakebed.groups.staged_group import StagedGroup
from lakebed.repository import TreeGroup
from lakebed.store import Store, open_store
from lakebed.testing import DelegatingStore

ROWS = [{"p": "ab"[n % 2], "n": n} for n in range(10)]
# It deletes what cannot be read again, and a call cannot ask.
DRY_BY_DEFAULT = {"Archive.delete", "Dataset.cleanup"}


class NoWrites(DelegatingStore):
    """A store that raises an error at each write."""

    def _fail(self, *given: object, **named: object) -> Any:
        raise AssertionError(given)

    _create = _replace = _put = _put_stream = _delete = _delete_if_match = _begin_file = _fail
    _adopt = _check_conditions = _try_conditions = _fail


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def dataset(store: Store) -> Dataset:
    descriptor = DatasetDescriptor(
        schema=pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by="p", index=["n"]
    )
    made = Repository(store).create("d", descriptor)
    made.append(ROWS, run="first")
    made.protections.add(version=0, reason="audit")
    return made


def snappy(old: DatasetDescriptor) -> DatasetDescriptor:
    return dataclasses.replace(old, compression="snappy")


VERBS: dict[str, Callable[..., Commit | None]] = {
    "append": lambda d, **dry: d.append(ROWS, **dry),
    "append to a view": lambda d, **dry: d.kite.with_("p", "a").append(ROWS[::2], **dry),
    "append to an empty view": lambda d, **dry: d.where("p = 'c'").append(
        [{"p": "c", "n": 1}], if_not_empty="error", **dry
    ),
    "rerun": lambda d, **dry: d.rerun(ROWS[:3], "first", replace_all=True, **dry),
    "rerun without rows": lambda d, **dry: d.rerun([], "first", replace_all=True, **dry),
    "update_rows": lambda d, **dry: d.where("n < 3").update_rows({"n": "n + 1"}, **dry),
    "update_rows to other partitions": lambda d, **dry: d.where("n < 3").update_rows(
        {"p": "'c'"}, **dry
    ),
    "update_rows of none": lambda d, **dry: d.where("n > 99").update_rows({"n": 1}, **dry),
    "delete": lambda d, **dry: d.delete("n < 3", **dry),
    "delete of a partition": lambda d, **dry: d.where("p = 'a'").delete(**dry),
    "evolve": lambda d, **dry: d.evolve(snappy, **dry),
    "evolve to the same": lambda d, **dry: d.evolve(lambda old: old, **dry),
    "protections.add": lambda d, **dry: d.protections.add(version=1, reason="audit", **dry),
    "protections.remove": lambda d, **dry: d.protections.remove(version=0, **dry),
    "indices.drop": lambda d, **dry: d.indices.drop("n", **dry),
}
FACTS = (
    "version", "operation", "run", "row_count", "inserted_row_count", "updated_row_count",
    "deleted_row_count", "rewritten_row_count", "partitions", "replaced_partitions",
)  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_dry_run_is_the_commit_that_is_made_then(store: Store, dataset: Dataset, verb: str) -> None:
    unwritable = Repository(NoWrites(store)).open("d")

    planned = VERBS[verb](unwritable, dry_run=True)
    before = dataset.version
    done = VERBS[verb](dataset)

    if planned is None or done is None or done.version == before:
        assert (planned and planned.version) == (done and done.version)
        assert not (planned and planned.is_dry_run)
        return
    assert {name: getattr(planned, name) for name in FACTS} == {
        name: getattr(done, name) for name in FACTS
    }
    assert len(planned.files_added) == len(done.files_added)
    assert planned.files_removed == done.files_removed
    sizes = {file.key: file.size_bytes for file in dataset.files()}
    assert planned.size_bytes == sum(sizes[key] or 0 for key in done.files_added)
    assert (planned.is_dry_run, done.is_dry_run, done.size_bytes) == (True, False, None)
    assert repr(planned).startswith("<Commit would be ")
    assert "nothing was written" in planned._repr_html_()
    assert "nothing was written" not in done._repr_html_()


def test_staged_batch_and_its_commit(store: Store, dataset: Dataset) -> None:
    unwritable = Repository(NoWrites(store)).open("d")

    planned = unwritable.staged.add(ROWS, dry_run=True)

    assert not dataset.staged.list()
    staged = dataset.staged.add(ROWS)
    assert (planned.row_count, planned.file_count, planned.size_bytes) == (
        staged.row_count,
        staged.file_count,
        staged.size_bytes,
    )
    assert planned.commit().version == 3, "in the object alone"
    assert dataset.version == 2
    with pytest.raises(InvalidInputError, match="not kept in a dry run"):
        planned.rows.arrow()
    batch = unwritable.staged.open(staged.batch_id)
    would_be = batch.commit(checks=[checks.row_count(min=1)], dry_run=True)
    assert (would_be.version, would_be.row_count, would_be.size_bytes) == (3, 10, staged.size_bytes)
    assert staged.commit().version == 3
    assert not staged.commit(dry_run=True).is_dry_run, "it is committed"


def test_index_build_counts_files_and_reads_none(store: Store, dataset: Dataset) -> None:
    dataset.indices.drop("n")
    planned = Repository(NoWrites(store)).open("d").indices.build("n", dry_run=True)

    sizes = [file.size_bytes or 0 for file in dataset.files()]
    assert (planned.missing_count, planned.missing_bytes) == (2, sum(sizes))
    assert (planned.covered_count, planned.is_dry_run) == (0, True)
    assert dataset.indices.build("n").covered_count == 2
    assert dataset.indices.build("n", dry_run=True).missing_count == 0
    assert dataset.indices.build("p", dry_run=True).is_dry_run


def test_check_marks_what_it_would_repair(store: Store, dataset: Dataset) -> None:
    (segment, *_) = [info.key for info in store.list("d/files")]
    store.put(segment, b"damaged")
    unwritable = Repository(NoWrites(store)).open("d")

    planned = unwritable.check(True, dry_run=True)

    assert not dataset.check().is_ok
    assert planned.findings == dataset.check(True).findings
    assert any(finding.is_repaired for finding in planned.findings)


def test_load_counts_rows_and_rejects(store: Store, dataset: Dataset, tmp_path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"p": "a", "n": 1}\n' * 20 + '{"p": "a", "n": "one"}\n')

    planned = Repository(NoWrites(store)).open("d").load(path, dry_run=True)

    done = dataset.load(path)
    names = ("row_count", "rejected_count", "file_count", "size_bytes", "quarantine")
    assert [getattr(planned, name) for name in names] == [getattr(done, name) for name in names]
    assert planned.commit.is_dry_run
    assert planned.quarantine_commit is not None
    assert planned.quarantine_commit.is_dry_run
    assert not done.commit.is_dry_run


def test_errors_are_those_of_the_verb(store: Store, dataset: Dataset) -> None:
    unwritable = Repository(NoWrites(store)).open("d")
    base = dataset.version
    dataset.append(ROWS)

    for view in (dataset, unwritable):
        with pytest.raises(CommitConflictError):
            view.append(ROWS, base=base, dry_run=True)
        with pytest.raises(ReadOnlyError, match="older state"):
            view.at(version=1).append(ROWS, dry_run=True)
        with pytest.raises(InvalidInputError, match="outside"):
            view.kite.with_("p", "a").append(ROWS, dry_run=True)


def test_provider_of_descriptors_hears_nothing(store: Store, tmp_path) -> None:
    provider = lakebed.FileMetadataProvider(tmp_path)
    repository = lakebed.open_repository(tmp_path / "lake", metadata=provider)
    made = repository.create("d", pa.schema([("n", pa.int64())]))

    assert made.evolve(snappy, dry_run=True).version == 1

    assert provider.load("d").compression != "snappy"


def test_archive(store: Store, tmp_path) -> None:
    archive = lakebed.open_archive(store.uri)
    fields = {"path": "/a.log", "where": "box", "what": "log", "start": "2015-03-20"}
    unwritable = Archive(NoWrites(store), archive.index)

    planned = unwritable.push(io.BytesIO(b"hello"), **fields, dry_run=True)

    assert list(archive.list("log", start="2015-03-20", end="2015-03-21")) == []
    done = archive.push(io.BytesIO(b"hello"), **fields)
    assert (planned.size_bytes, planned.metadata.hash) == (done.size_bytes, done.metadata.hash)
    unwritable = Archive(NoWrites(store), archive.index)
    retracted = unwritable.retract(done.id, reason="torn", dry_run=True)
    assert retracted.retraction is not None
    assert archive.record(done.id).retraction is None
    assert unwritable.ingest(done.id, dry_run=True) == archive.record(done.id)
    assert unwritable.init(dry_run=True) is False


def test_queue_of_an_archive(store: Store, tmp_path) -> None:
    archive = lakebed.open_archive(store.uri)
    fields = {"path": "/a.log", "where": "box", "what": "log", "start": "2015-03-20"}
    queue = UploadQueue(tmp_path / "queue")

    bundle = queue.enqueue(io.BytesIO(b"hello"), **fields, dry_run=True)
    assert not bundle.parent.exists()
    bundle = queue.enqueue(io.BytesIO(b"hello"), **fields, id="one")
    (tmp_path / "queue" / "bad.tar").write_bytes(b"no bundle")
    with pytest.raises(lakebed.errors.AlreadyExistsError, match="already waiting"):
        queue.enqueue(io.BytesIO(b"hello"), **fields, id="one", dry_run=True)

    planned = list(queue.upload(Archive(NoWrites(store), archive.index), dry_run=True))

    assert bundle.exists()
    assert [(one.path, one.outcome) for one in planned] == [
        (one.path, one.outcome) for one in queue.upload(archive)
    ]
    assert not bundle.exists()


@pytest.mark.parametrize(
    "of",
    [
        View, Dataset, DimensionGroup, IndexGroup, ProtectionGroup, StagedGroup, Staged, Archive,
        UploadQueue, Repository, TreeGroup,
    ],
)  # fmt: skip
def test_argument_means_and_looks_the_same_everywhere(of: type) -> None:
    for name, verb in inspect.getmembers(of, inspect.isfunction):
        parameter = inspect.signature(verb).parameters.get("dry_run")
        if parameter is None or name.startswith("_"):
            continue
        if f"{of.__name__}.{name}" in DRY_BY_DEFAULT:
            assert parameter.default is True
            continue
        assert parameter.default is False, name
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, name


def test_cleanup_is_a_dry_run_by_default(dataset: Dataset) -> None:
    dataset.delete(dataset)
    files = dataset.cleanup("0s", clock_skew=timedelta()).files

    assert len(files) == 2
    assert dataset.cleanup("0s", clock_skew=timedelta()).files == files
