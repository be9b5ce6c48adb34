"""Files of folders that grow, are rotated, copied, compressed and written anew, in any order.

Every line has a number of its own. So whatever happens between the runs, the dataset has each number
of each file that a run has read once, and no number twice.
"""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import lakebed
from lakebed import DatasetDescriptor, FromFiles, Ingest
from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.pipeline.lineages import base_name
from lakebed.work.ingest import execution

NUMBERS = DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))


def lines_of(numbers: list[int]) -> bytes:
    return b"".join(b'{"n": %d}\n' % n for n in numbers)


class Folder:
    """A folder with raw files, and an ingest of them."""

    def __init__(self, root: Path) -> None:
        self.path = root / "in"
        self.path.mkdir()
        self.ingest = Ingest(
            name="logs",
            into=f"{root}/lake/logs",
            source=FromFiles(paths=[self.path / "**/*json*"], may_be_empty=True),
            format="json",
            create=NUMBERS,
        )
        self._clock = 1_600_000_000

    def put(self, name: str, numbers: list[int]) -> Path:
        return self.write(name, lines_of(numbers))

    def write(self, name: str, data: bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self._clock += 1
        os.utime(path, (self._clock, self._clock))
        return path

    def run(self, supersede: str | None = None) -> lakebed.IngestReport:
        source = dataclasses.replace(self.ingest.source, supersede=supersede)
        return dataclasses.replace(self.ingest, source=source).run()

    def numbers(self) -> list[int]:
        return sorted(row["n"] for row in self.ingest.dataset().kite.reader())


@pytest.fixture
def folder(tmp_path) -> Folder:
    return Folder(tmp_path)


def test_a_file_that_grew_replaces_its_rows(folder) -> None:
    folder.put("app.jsonl", [1, 2])
    folder.run()
    folder.put("app.jsonl", [1, 2, 3])

    report = folder.run()

    assert (report.replaced_count, report.row_count) == (1, 3)
    assert folder.numbers() == [1, 2, 3]


def test_other_content_at_a_path_is_kept_back_and_removes_nothing(folder) -> None:
    folder.put("day.jsonl", [1, 2])
    folder.run()
    folder.put("day.jsonl", [3, 4, 5])

    (left,) = folder.run().kept_back

    assert (left.why, Path(left.location).name) == ("unclear", "day.jsonl")
    assert "2 rows stay" in left.detail
    assert folder.numbers() == [1, 2]


@pytest.mark.parametrize(("rule_", "expected"), [("path", [3, 4, 5]), ("id", [1, 2, 3, 4, 5])])
def test_supersede_says_what_other_content_means(folder, rule_, expected) -> None:
    folder.put("day.jsonl", [1, 2])
    folder.run()
    folder.put("day.jsonl", [3, 4, 5])
    folder.run()

    report = folder.run(rule_)

    assert (report.file_count, report.kept_back) == (1, ())
    assert folder.numbers() == expected
    assert folder.run(rule_).unchanged_count == 1
    folder.put("day.jsonl", [3, 4, 5, 6])
    folder.run()
    assert folder.numbers() == [*expected, 6]


def test_a_former_content_replaces_the_present_one_where_that_is_declared(folder) -> None:
    for numbers in ([1, 2], [3], [1, 2]):
        folder.put("day.jsonl", numbers)
        folder.run("path")

    assert folder.numbers() == [1, 2]


def test_each_content_of_a_path_counts_where_that_is_declared(folder) -> None:
    for numbers in ([1, 2], [3], [4, 2]):
        folder.put("day.jsonl", numbers)
        folder.run("id")

    assert folder.numbers() == [1, 2, 2, 3, 4]


def test_a_rotated_log_loses_and_doubles_nothing(folder) -> None:
    folder.put("app.jsonl", [1, 2, 3, 4, 5])
    folder.run()
    # It grew after the last run, before it was renamed.
    grown = folder.put("app.jsonl", [1, 2, 3, 4, 5, 6])
    grown.rename(folder.path / "app.jsonl.1")
    folder.put("app.jsonl", [7, 8, 9])
    report = folder.run()
    assert (report.kept_back, folder.numbers()) == ((), list(range(1, 10)))
    (folder.path / "app.jsonl.2.gz").write_bytes(
        gzip.compress((folder.path / "app.jsonl.1").read_bytes())
    )
    (folder.path / "app.jsonl").rename(folder.path / "app.jsonl.1")
    folder.put("app.jsonl", [10])

    report = folder.run()

    assert (report.file_count, report.copy_count, report.kept_back) == (1, 2, ())
    assert folder.numbers() == list(range(1, 11))


def test_copies_are_left_out_whenever_they_come(folder) -> None:
    folder.put("sales.jsonl", [1, 2])
    folder.put("sales (1).jsonl", [1, 2])
    report = folder.run()
    assert (report.file_count, report.copy_count) == (1, 1)
    assert [Path(one.location).name for one in report.left_out] == ["sales (1).jsonl"]
    folder.write("elsewhere/other.jsonl.gz", gzip.compress(lines_of([1, 2])))
    folder.write("again.jsonl.bz2", bz2.compress(lines_of([1, 2])))
    folder.put("new.jsonl", [3])

    report = folder.run()

    assert (report.file_count, report.copy_count) == (1, 3)
    assert folder.numbers() == [1, 2, 3]


def test_a_copy_counts_where_each_file_does(folder) -> None:
    folder.put("a.jsonl", [1])
    folder.put("b.jsonl", [1])

    folder.run("id")

    assert folder.numbers() == [1, 1]
    assert folder.run("id").unchanged_count == 2


def test_equal_files_in_different_levels_have_different_rows(folder) -> None:
    schema = pa.schema([("n", pa.int64()), ("dt", pa.string())])
    folder.ingest = dataclasses.replace(
        folder.ingest,
        source=FromFiles(paths=folder.path),
        create=DatasetDescriptor(schema=schema),
    )
    folder.put("dt=1/a.jsonl", [1])
    folder.put("dt=2/a.jsonl", [1])

    assert folder.run().row_count == 2


def test_a_renamed_file_of_which_a_rollback_left_some_rows_is_read_again(folder) -> None:
    schema = pa.schema([("n", pa.int64()), ("m", pa.int64())])
    descriptor = DatasetDescriptor(schema=schema, partition_by="n")
    folder.ingest = dataclasses.replace(folder.ingest, create=descriptor)
    folder.put("a.jsonl", [0])
    folder.run()
    former = folder.put("b.jsonl", [10, 11, 12])
    folder.run()
    dataset = folder.ingest.dataset()
    dataset.rollback(version=1, view=dataset.where("n = 10"))
    former.rename(folder.path / "c.jsonl")

    folder.run()

    assert folder.numbers() == [0, 10, 11, 12]


def test_a_held_file_stays_held_under_another_name(folder) -> None:
    path = folder.put("app.jsonl", [1])
    folder.run()
    folder.ingest.hold(str(path), reason="torn")
    path.rename(folder.path / "app.jsonl.1")

    report = folder.run()

    assert (report.held_count, report.file_count) == (1, 0)


def test_a_file_that_is_written_anew_while_it_is_read_replaces_nothing(folder, monkeypatch) -> None:
    folder.put("app.jsonl", [1, 2])
    folder.run()
    folder.put("app.jsonl", [1, 2, 3])
    sift_all = execution.sift_all

    def late(*args, **kwargs):
        folder.put("app.jsonl", [7, 8, 9])
        return sift_all(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(execution, "sift_all", late)
        (left,) = folder.run().kept_back

    assert left.why == "unclear"
    assert folder.numbers() == [1, 2]


def test_the_same_content_read_by_two_runs_at_once_is_added_once(folder) -> None:
    folder.put("first.jsonl", [0])
    folder.run()  # creates the dataset
    path = folder.put("app.jsonl", [1, 2])

    def meanwhile(progress) -> None:
        if progress.file_count and path.exists():
            path.rename(folder.path / "app.jsonl.1")
            folder.run()

    with pytest.raises(CommitConflictError, match=r"app\.jsonl"):
        folder.ingest.run(on_progress=meanwhile)

    assert folder.numbers() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("app.log", "app.log"),
        ("app.log.1", "app.log"),
        ("app.log.12.gz", "app.log"),
        ("app.log-20240101.zst", "app.log"),
        ("app.log.2024-01-01_12", "app.log"),
        ("app.log.old", "app.log"),
        ("app.log~", "app.log"),
        ("day-1.csv", "day-1.csv"),
        ("2024-01-01.csv", "2024-01-01.csv"),
        ("1", "1"),
    ],
)
def test_names_of_rotations(name, base) -> None:
    assert base_name(f"/var/log/{name}") == base


def test_an_unknown_rule_of_superseding_is_refused(tmp_path) -> None:
    with pytest.raises(InvalidInputError, match="supersede is 'span'"):
        FromFiles(paths=tmp_path, supersede="span")


class FolderMachine(RuleBasedStateMachine):
    """Random operations on the files of a folder, and runs between them."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.files: dict[str, list[int]] = {}
        self.read: dict[str, list[int]] = {}  # contents at the last run, by path
        self.expected: set[int] = set()

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.folder = Folder(Path(self.directory.name))
        self._put("first.jsonl", self._more(1))
        self.run()

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.directory.cleanup()

    def _more(self, count: int) -> list[int]:
        numbers = list(range(self.number + 1, self.number + count + 1))
        self.number += count
        return numbers

    def _put(self, name: str, numbers: list[int]) -> None:
        self.files[name] = numbers
        data = lines_of(numbers)
        self.folder.write(name, gzip.compress(data) if name.endswith(".gz") else data)

    @rule(log=st.sampled_from(["app.jsonl", "web.jsonl"]), count=st.integers(1, 3))
    def grow(self, log: str, count: int) -> None:
        self._put(log, self.files.get(log, []) + self._more(count))

    @rule(log=st.sampled_from(["app.jsonl", "web.jsonl"]), is_compressed=st.booleans())
    def rotate(self, log: str, is_compressed: bool) -> None:
        rotated = sorted((n for n in self.files if n.startswith(f"{log}.")), reverse=True)
        for name in rotated:
            number, _, suffix = name.removeprefix(f"{log}.").partition(".")
            new = f"{log}.{int(number) + 1}" + (f".{suffix}" if suffix else "")
            (self.folder.path / name).rename(self.folder.path / new)
            self.files[new] = self.files.pop(name)
        if log in self.files:
            numbers = self.files.pop(log)
            (self.folder.path / log).unlink()
            self._put(f"{log}.1" + ".gz" * is_compressed, numbers)

    @rule(data=st.data(), suffix=st.sampled_from([".jsonl", ".jsonl.gz"]))
    def copy_what_was_read(self, data, suffix: str) -> None:
        names = [name for name in self.files if self.files[name] == self.read.get(name)]
        if names:
            name = data.draw(st.sampled_from(sorted(names)))
            self._put(f"copy {self.number} of {name.partition('.')[0]}{suffix}", self.files[name])

    @rule(data=st.data())
    def write_anew(self, data) -> None:
        originals = [
            name for name in ("app.jsonl", "web.jsonl", "first.jsonl") if name in self.read
        ]
        self._put(data.draw(st.sampled_from(originals)), self._more(2))

    @rule(data=st.data())
    def remove(self, data) -> None:
        names = sorted(self.files.keys() - {"first.jsonl"})
        if names:
            name = data.draw(st.sampled_from(names))
            (self.folder.path / name).unlink()
            del self.files[name]

    @rule(data=st.data())
    def touch(self, data) -> None:
        name = data.draw(st.sampled_from(sorted(self.files)))
        self._put(name, self.files[name])

    @rule()
    def run(self) -> None:
        report = self.folder.run()
        kept_back = {Path(left.location).name for left in report.kept_back}
        for name, numbers in self.files.items():
            if name not in kept_back:
                self.expected.update(numbers)
                self.read[name] = numbers
        # Only files whose path had other content, which is not in the folder, are kept back.
        for name in kept_back:
            former = self.read[name]
            assert self.files[name][: len(former)] != former
            assert former not in [self.files[other] for other in self.files if other != name]

    @rule()
    def run_twice(self) -> None:
        self.run()
        report = self.folder.run()
        assert report.file_count == report.replaced_count == 0

    @invariant()
    def each_number_is_there_once(self) -> None:
        if hasattr(self, "folder"):
            assert self.folder.numbers() == sorted(self.expected)


TestFolders = FolderMachine.TestCase
TestFolders.settings = settings(max_examples=10, stateful_step_count=15, deadline=None)
