"""What is set aside gives way to what is set aside for the same thing, and to nothing else."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed import Dataset, DatasetDescriptor, FromFiles, Ingest, Repository
from lakebed.errors import CommitConflictError, LakebedError, RejectsError, StorageError
from lakebed.store import open_store
from lakebed.testing import DelegatingStore, FailingStore
from lakebed.work.ingest.load import load
from lakebed.work.ingest.load_options import LoadOptions

NUMBERS = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))


class Lake:
    """A folder of raw files, a dataset of numbers, and who reads the one into the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repository = lakebed.open_repository(folder / "lake")
        self.repository.create("numbers", NUMBERS)

    def write(self, name: str, *bad: str) -> Path:
        path = self.folder / name
        # Files of different names differ, so that none is a copy.
        good = '{"n": 1}' + " " * (sum(name.encode()) % 97)
        path.write_text("".join(f"{one}\n" for one in (good, *bad)))
        return path

    @property
    def numbers(self) -> Dataset:
        return self.repository.open("numbers")

    def ingest(self, name: str, *paths: Path) -> None:
        source = FromFiles(paths=paths, supersede="path")
        into = f"{self.folder}/lake/numbers"
        Ingest(name=name, into=into, source=source, max_rejects=0.5).run()

    def load(self, run: str | None, *paths: Path) -> lakebed.LoadReport:
        return self.numbers.load(paths, run=run)

    @property
    def quarantine(self) -> Dataset:
        return self.repository.open("numbers_quarantine")

    def kept(self) -> list[str]:
        return sorted(row["line"].decode() for row in self.quarantine.kite.reader())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_load_and_an_ingest_of_one_name_leave_each_others_rejects_alone(lake: Lake) -> None:
    one, other = lake.write("a.jsonl", "a1"), lake.write("b.jsonl", "b1")
    lake.ingest("daily", one)

    report = lake.load("daily", other)

    assert (report.rejected_count, lake.kept()) == (1, ["a1", "b1"])
    # Now each of them again: the ingest reads a file that has changed, the load one of a run that
    # was rolled back.
    lake.numbers.rollback(version=1)
    lake.write("a.jsonl", "a2", "a3")
    lake.ingest("daily", one)
    assert lake.kept() == ["a2", "a3", "b1"]
    lake.write("b.jsonl", "b2")
    assert lake.load("daily", other).rejected_count == 1
    assert lake.kept() == ["a2", "a3", "b2"]
    assert (lake.load("daily", other).is_repeated, lake.load("daily", other).rejected_count) == (
        True,
        1,
    )


def test_a_load_and_an_ingest_of_one_name_and_one_file_each_keep_its_rejects(lake: Lake) -> None:
    path = lake.write("a.jsonl", "bad")
    for _ in range(2):
        lake.ingest("daily", path)
        lake.load("daily", path)

    assert lake.kept() == ["bad", "bad"]
    lake.write("a.jsonl", "worse", "worst")
    lake.ingest("daily", path)
    assert lake.kept() == ["bad", "worse", "worst"]


def test_a_load_takes_the_place_of_all_that_its_run_has_set_aside(lake: Lake) -> None:
    one, other = lake.write("a.jsonl", "a1"), lake.write("b.jsonl", "b1")
    lake.load("monday", one)
    lake.numbers.rollback(version=0)

    lake.load("monday", other)

    assert lake.kept() == ["b1"]
    lake.numbers.rollback(version=0)
    lake.load("monday", lake.write("c.jsonl"))
    assert lake.kept() == []


def test_loads_of_two_datasets_with_one_quarantine_and_one_run_both_keep_their_rejects(
    lake: Lake,
) -> None:
    others = lake.repository.create("others", NUMBERS)
    for name in ("a", "b"):
        lake.write(f"{name}.jsonl", f"{name}1")
        dataset = lake.numbers if name == "a" else others
        report = dataset.load(lake.folder / f"{name}.jsonl", run="x", quarantine="rejects")
        assert report.rejected_count == 1

    rejects = lake.repository.open("rejects")

    assert sorted(row["line"] for row in rejects.kite.reader()) == [b"a1", b"b1"]
    assert lake.numbers.load(lake.folder / "a.jsonl", run="x", quarantine="rejects").is_repeated


def test_what_an_older_release_has_set_aside_gives_way_to_a_load_of_its_run(lake: Lake) -> None:
    path = lake.write("a.jsonl", "bad")
    lake.load("monday", path)
    rows = lake.quarantine.arrow()
    lake.repository.drop("numbers_quarantine")
    # It wrote so: the whole partition, and no note.
    lake.load(None, lake.write("b.jsonl", "other"))
    lake.quarantine.overwrite(rows, run="monday")

    again = lake.load("monday", path)

    assert again.is_repeated
    assert again.rejected_count == 1
    assert again.quarantine_commit is not None
    lake.numbers.rollback(version=0)
    lake.load("monday", path)
    assert lake.kept() == ["bad", "other"]


def test_the_quarantine_tells_of_which_raw_files_a_load_is(lake: Lake) -> None:
    path = lake.write("a.jsonl", "bad", "worse")
    lake.load("monday", path, lake.write("good.jsonl"))

    lake.load("tuesday", path, lake.write("b.jsonl", "b1"))

    assert sorted(
        (one.location, one.run, one.row_count) for one in lake.quarantine.sources.list()
    ) == [
        (str(path), "monday", 2),
        (str(path), "tuesday", 2),
        (str(lake.folder / "b.jsonl"), "tuesday", 1),
    ]
    assert lake.quarantine.check().is_ok


@pytest.mark.thorough
def test_what_is_refused_as_a_whole_is_not_read_to_its_end(lake: Lake) -> None:
    paths = [lake.write(f"{n}.jsonl", *["bad"] * 3_000) for n in range(2)]

    with pytest.raises(RejectsError, match=r"^1,000 or more lines of 1 file do not fit: ") as told:
        lake.numbers.load(paths, options=LoadOptions(fail_on_rejects=True))

    assert told.value.rejected_count == 1_000
    assert lake.load(None, *paths).rejected_count == 6_000


def test_first_lines_that_do_not_fit_are_told_in_their_order(lake: Lake) -> None:
    # What is no JSON is noticed before what is of a wrong type.
    path = lake.write("a.jsonl", '{"n": "x"}', "no JSON", '{"n": "y"}', "nor this")

    with pytest.raises(RejectsError) as told:
        lake.numbers.load(path, options=LoadOptions(fail_on_rejects=True))

    assert re.findall(r"line (\d+): ", told.value.message) == ["2", "3", "4"]


# A dataset that is created for what is loaded.


class _CreatedMeanwhile(DelegatingStore):
    """Lets somebody else create the dataset while rows are staged for it."""

    def _put(self, key: str, data: memoryview) -> None:
        if key.endswith(".parquet"):
            Repository(self.inner).create("new", NUMBERS, "open")
        super()._put(key, data)


def load_new(store, path: Path, **options: bool) -> lakebed.LoadReport:
    return load(
        store,
        "new",
        path,
        None,
        run="first",
        spark=None,
        options=LoadOptions(**options),
        create=NUMBERS,
    )


def test_a_dataset_is_created_with_the_rows_that_it_is_for(lake: Lake) -> None:
    store = open_store(lake.folder / "lake")

    with pytest.raises(RejectsError):
        load_new(store, lake.write("a.jsonl", "bad"), fail_on_rejects=True)
    assert lake.repository.list() == ["numbers"]
    assert [info.key for info in store.list("new")] == []

    report = load_new(store, lake.write("a.jsonl", "bad"))

    made = lake.repository.open("new")
    assert (report.commit.version, made.version, made.count()) == (1, 1, 1)
    assert [entry.operation for entry in made.history()] == ["create", "load"]
    assert report.quarantine_commit is not None
    assert made.check().is_ok
    assert made.load(lake.folder / "a.jsonl", run="first").is_repeated


def test_of_two_who_create_a_dataset_for_their_rows_one_is_refused(lake: Lake) -> None:
    store = _CreatedMeanwhile(open_store(lake.folder / "lake"))

    with pytest.raises(CommitConflictError, match="just created by another writer"):
        load_new(store, lake.write("a.jsonl"))

    made = lake.repository.open("new")
    assert (made.version, made.count()) == (0, 0)
    assert made.check().is_ok
    assert made.load(lake.folder / "a.jsonl").row_count == 1


OUTAGE = StorageError("The store is out.", retryable=False)


@pytest.mark.thorough
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize(
    ("operation", "nth"),
    [
        (operation, nth)
        for operation, last in (("put", 11), ("create", 4), ("replace", 5))
        for nth in range(1, last)
    ],
)
def test_a_dataset_whose_creation_broke_off_is_imported_by_another_try(
    lake: Lake, operation: Literal["put", "create", "replace"], nth: int, landed: bool
) -> None:
    store, path = open_store(lake.folder / "lake"), lake.write("a.jsonl", "bad")
    lost = None if landed else OUTAGE  # else the store would say that it did not land
    failing = FailingStore(store, fail_on=operation, nth=nth, landed=landed, error=lost)

    with contextlib.suppress(LakebedError):
        load_new(failing, path)
    assert failing.has_failed
    if lake.repository.exists("new"):
        lake.repository.open("new").load(path, run="first")
    else:
        load_new(store, path)

    made = lake.repository.open("new")
    assert [row["n"] for row in made.kite.reader()] == [1]
    assert lake.repository.open("new_quarantine").count() == 1
    assert made.check().is_ok
