"""After a rollback a dataset knows the raw files whose rows it holds, and reads the others again."""

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import DatasetDescriptor, FromFiles, Ingest, IngestReport
from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.store import Store, open_store
from lakebed.testing import DelegatingStore

Rows = list[tuple[str, int]]
LINES = DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by="p"
)


class Folder:
    """A folder of raw files, each of rows (p, n), and an ingest of them."""

    def __init__(self, directory: Path) -> None:
        self.raw = directory / "in"
        self.raw.mkdir()
        self.ingest = Ingest(
            name="lines",
            into=f"{directory}/lake/d",
            source=FromFiles(paths=self.raw / "*.jsonl", supersede="path"),
            create=LINES,
            max_rejects=1,  # a file that is empty by now shall replace rows all the same
        )
        self._clock = itertools.count(1)

    def put(self, name: str, *rows: tuple[str, int]) -> None:
        path = self.raw / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"p": p, "n": n}) + "\n" for p, n in rows))
        self.touch(name)

    def touch(self, name: str) -> None:
        now = next(self._clock)
        os.utime(self.raw / f"{name}.jsonl", (now, now))

    def read(self, name: str, *rows: tuple[str, int]) -> IngestReport:
        """Put a file and read in what is new."""
        self.put(name, *rows)
        return self.ingest.run()

    @property
    def dataset(self) -> lakebed.Dataset:
        return self.ingest.dataset()

    def content(self) -> Rows:
        return sorted((row["p"], row["n"]) for row in self.dataset.arrow().to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_rows_that_a_rollback_brought_back_are_replaced_by_the_next_ingest(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("a", ("x", 2))
    folder.dataset.rollback(version=1)
    assert folder.content() == [("x", 1)]
    folder.touch("a")

    report = folder.ingest.run()

    assert folder.content() == [("x", 2)]
    assert (report.file_count, report.replaced_count, report.unchanged_count) == (1, 1, 0)


def test_a_file_whose_rows_a_rollback_took_out_is_read_again(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("b", ("x", 2))
    folder.dataset.rollback(version=1)
    check = folder.ingest.check()

    report = folder.ingest.run()

    assert folder.content() == [("x", 1), ("x", 2)]
    assert ([Path(one).name for one in check.new], check.changed) == (["b.jsonl"], ())
    assert (report.file_count, report.replaced_count, report.unchanged_count) == (1, 0, 1)
    assert folder.ingest.run().commit is None


def test_a_file_that_is_again_what_a_rollback_brought_back_is_not_read(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    first = (folder.raw / "a.jsonl").stat().st_mtime
    folder.read("a", ("x", 2))
    folder.dataset.rollback(version=1)
    folder.put("a", ("x", 1))
    os.utime(folder.raw / "a.jsonl", (first, first))

    report = folder.ingest.run()

    assert (report.unchanged_count, report.version) == (1, 3)


@pytest.mark.thorough
def test_what_a_rollback_made_current_is_known_over_many_commits(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    first = (folder.raw / "a.jsonl").stat().st_mtime
    folder.read("a", ("x", 2))
    folder.dataset.rollback(version=1)
    (folder.raw / "a.jsonl").unlink()
    for n in range(20):  # more than make the list of segments merge
        folder.read(f"b{n}", ("y", n))
    head = json.loads(Path(f"{folder.ingest.into}.by-dataset-metadata.json").read_text())
    assert len(json.loads(head["metadata"]["lakebed.sources"])) < 20
    folder.put("a", ("x", 1))
    os.utime(folder.raw / "a.jsonl", (first, first))

    assert folder.ingest.run().unchanged_count == 21


def test_a_file_without_rows_is_known_as_of_the_version_too(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("a")
    assert folder.content() == []
    folder.dataset.rollback(version=1)
    assert folder.content() == [("x", 1)]

    assert folder.ingest.run().replaced_count == 1
    assert folder.content() == []


def test_a_rollback_of_a_rollback_knows_what_was_known_before_it(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("a", ("x", 2))
    folder.dataset.rollback(version=1)  # version 3
    folder.dataset.rollback(version=2)
    assert folder.ingest.run().unchanged_count == 1

    folder.read("b", ("x", 9))
    folder.dataset.rollback(version=3)
    report = folder.ingest.run()

    assert (report.file_count, report.replaced_count) == (2, 1)
    assert folder.content() == [("x", 2), ("x", 9)]


def test_a_rollback_of_a_partition_lets_the_files_with_rows_in_it_be_read_again(
    folder: Folder,
) -> None:
    folder.put("a", ("x", 1), ("y", 1))
    folder.put("b", ("y", 3))
    folder.ingest.run()
    folder.put("b", ("y", 4))
    folder.read("a", ("x", 2), ("y", 2))
    dataset = folder.dataset
    dataset.rollback(version=1, view=dataset.where("p = 'x'"))
    assert folder.content() == [("x", 1), ("y", 2), ("y", 4)]

    report = folder.ingest.run()

    assert folder.content() == [("x", 2), ("y", 2), ("y", 4)]
    assert (report.file_count, report.replaced_count, report.unchanged_count) == (1, 1, 1)


def test_a_new_file_of_which_a_rollback_took_some_partitions_is_read_again(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("b", ("x", 2), ("y", 2))
    dataset = folder.dataset
    dataset.rollback(version=1, view=dataset.where("p = 'x'"))
    assert folder.content() == [("x", 1), ("y", 2)]

    report = folder.ingest.run()

    assert folder.content() == [("x", 1), ("x", 2), ("y", 2)]
    assert (report.file_count, report.replaced_count) == (1, 1)


def test_a_rollback_of_all_partitions_of_a_file_brings_it_back_as_it_was(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    first = (folder.raw / "a.jsonl").stat().st_mtime
    folder.read("a", ("x", 2))
    folder.read("b", ("y", 1))
    dataset = folder.dataset
    dataset.rollback(version=1, view=dataset.where("p = 'x'"))
    folder.put("a", ("x", 1))
    os.utime(folder.raw / "a.jsonl", (first, first))

    assert folder.ingest.run().unchanged_count == 2


@pytest.mark.parametrize("undone", ["delete", "compact", "overwrite"])
def test_a_rollback_over_no_ingest_lets_nothing_be_read_again(folder: Folder, undone: str) -> None:
    folder.read("a", ("x", 1), ("x", 2))
    folder.read("b", ("x", 3))
    dataset = folder.dataset
    if undone == "delete":
        dataset.where("n = 1").delete()
    elif undone == "compact":
        dataset.compact()
    else:
        dataset.overwrite([{"p": "x", "n": 7}])
    dataset.rollback(version=2)
    assert folder.ingest.run().unchanged_count == 2

    dataset.rollback(version=3)

    assert folder.ingest.run().unchanged_count == 2
    assert len(folder.content()) == {"delete": 2, "compact": 3, "overwrite": 1}[undone]


def test_what_an_overwrite_wrote_anew_is_no_obstacle_after_it_was_rolled_back(
    folder: Folder,
) -> None:
    folder.put("a", ("x", 1))
    folder.put("b", ("x", 2))
    folder.ingest.run()
    dataset = folder.dataset
    dataset.overwrite(dataset.arrow())
    dataset.rollback(version=1)
    folder.read("a", ("x", 3))  # writes the rows of b anew

    folder.read("b", ("x", 4))

    assert folder.content() == [("x", 3), ("x", 4)]


def test_what_an_overwrite_wrote_anew_is_an_obstacle_again_after_it_was_brought_back(
    folder: Folder,
) -> None:
    folder.read("a", ("x", 1))
    dataset = folder.dataset
    dataset.overwrite(dataset.arrow())
    dataset.compact()
    dataset.rollback(version=1)
    dataset.rollback(version=2)

    with pytest.raises(InvalidInputError, match="overwrite of version 2"):
        folder.read("a", ("x", 2))


def test_rejects_of_a_file_that_was_rolled_back_go_with_it_when_another_takes_its_place(
    folder: Folder,
) -> None:
    folder.read("a", ("x", 1))
    (folder.raw / "a.jsonl").write_text("no JSON\n")
    folder.touch("a")
    assert folder.ingest.run().rejected_count == 1
    folder.dataset.rollback(version=1)

    folder.read("a", ("x", 3))

    repository = lakebed.open_repository(Path(folder.ingest.into).parent)
    assert repository.open("d_quarantine").count() == 0
    assert folder.content() == [("x", 3)]


class _Interfering(DelegatingStore):
    """Does something once, right before the first swap of a head."""

    def __init__(self, inner: Store, interfere: Callable[[], object]) -> None:
        super().__init__(inner)
        self._interfere: Callable[[], object] | None = interfere

    def _replace(self, key: str, data: memoryview, *, if_match: str) -> str:
        interfere, self._interfere = self._interfere, None
        if interfere is not None:
            interfere()
        return super()._replace(key, data, if_match=if_match)


def test_a_rollback_conflicts_with_an_ingest_of_its_raw_files_meanwhile(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("a")  # no data file tells of it: only what is known of raw files does
    folder.put("a", ("y", 2))
    store = _Interfering(open_store(Path(folder.ingest.into).parent), folder.ingest.run)
    dataset = lakebed.Repository(store).open("d")

    with pytest.raises(CommitConflictError, match=r"run 'lines', which read .*a\.jsonl meanwhile"):
        dataset.rollback(version=1)

    assert folder.content() == [("y", 2)]
    assert folder.dataset.check().is_ok
    assert len(list(Path(folder.ingest.into, "sources").iterdir())) == 3


def test_an_ingest_conflicts_with_a_rollback_of_its_raw_files_meanwhile(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("a")
    folder.put("a", ("y", 2))

    def meanwhile(progress: lakebed.Progress) -> None:
        if progress.file_count:
            folder.dataset.rollback(version=1)

    with pytest.raises(CommitConflictError, match=r"conflicts with commit .* same raw files"):
        folder.ingest.run(on_progress=meanwhile)

    assert folder.content() == [("x", 1)]
    folder.ingest.run()
    assert folder.content() == [("y", 2)]


def test_an_ingest_of_other_raw_files_does_not_conflict_with_a_rollback(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("a", ("x", 2))
    folder.put("b", ("y", 2))

    def meanwhile(progress: lakebed.Progress) -> None:
        if progress.file_count:
            folder.dataset.rollback(version=1)

    folder.ingest.run(on_progress=meanwhile)
    assert folder.content() == [("x", 1), ("y", 2)]

    assert (folder.ingest.run().file_count, folder.content()) == (1, [("x", 2), ("y", 2)])


_row = st.tuples(st.sampled_from("xyz"), st.integers(0, 9))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.sampled_from("ab"), st.lists(_row, max_size=4)),
            st.tuples(st.just("rollback"), st.integers(0, 20), st.sampled_from(["", *"xyz"])),
            st.just(("ingest",)),
            st.just(("compact",)),
        ),
        max_size=10,
    )
)
@examples(0.25)
def test_an_ingest_after_any_rollbacks_leaves_what_the_raw_files_hold(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    folder = Folder(tmp_path_factory.mktemp("law"))
    last: dict[str, Rows] = {"a": [("x", 0)], "b": []}
    for name, rows in last.items():
        folder.put(name, *rows)
    folder.ingest.run()

    for step in [*steps, ("ingest",)]:
        dataset = folder.dataset
        match step:
            case ("put", name, rows):
                last[name] = rows
                folder.put(name, *rows)
            case ("rollback", number, partition):
                view = dataset.where(f"p = '{partition}'") if partition else None
                dataset.rollback(version=number % (dataset.version + 1), view=view)
            case ("compact",):
                dataset.compact()
            case _:
                folder.ingest.run()
                assert folder.content() == sorted([*last["a"], *last["b"]])
                assert folder.ingest.run().file_count == 0


def test_a_rollback_with_hold_keeps_the_next_ingest_from_reading_its_files(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.read("b", ("x", 2), ("y", 3))

    commit = folder.dataset.rollback(version=1, hold=True, reason="torn")
    folder.put("c", ("z", 4))
    report = folder.ingest.run()

    assert commit is not None
    assert "No ingest reads 1 raw file until released" in commit.notes[0]
    assert folder.content() == [("x", 1), ("z", 4)]
    assert (report.file_count, report.held_count, report.brought_back) == (1, 1, ())
    assert [file.why for file in report.left_out] == ["held"]
    assert "torn" in report.left_out[0].detail
    assert [hold.location for hold in folder.dataset.sources.holds()] == [
        report.left_out[0].location
    ]
    assert [source.is_held for source in folder.dataset.sources.list()] == [False, True, False]


def test_a_file_is_held_whatever_it_holds_later_until_it_is_released(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.dataset.rollback(version=0, hold=True)
    folder.put("a", ("x", 9))

    report = folder.ingest.run()
    folder.dataset.sources.release(f"{folder.raw}/a.jsonl")
    again = folder.ingest.run()

    assert "changed since" in report.left_out[0].detail
    assert (again.file_count, folder.content()) == (1, [("x", 9)])
    assert len(folder.dataset.sources.holds()) == 0
    with pytest.raises(InvalidInputError, match="is not held"):
        folder.ingest.release(f"{folder.raw}/a.jsonl")


def test_a_rollback_without_hold_and_the_next_ingest_name_what_comes_back(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    folder.read("a", ("x", 1))
    folder.read("b", ("x", 2))

    commit = folder.dataset.rollback(version=1)
    check = folder.ingest.check()
    report = folder.ingest.run()
    later = folder.ingest.run()

    assert commit is not None
    assert commit.notes == (
        f"The next ingest reads 1 raw file again, such as {folder.raw}/b.jsonl.",
    )
    assert commit.notes[0] in caplog.text
    assert "brings back files that a rollback removed" in caplog.text
    assert check.brought_back == report.brought_back == (f"{folder.raw}/b.jsonl",)
    assert later.brought_back == ()


def test_a_file_that_was_never_read_is_held(folder: Folder) -> None:
    folder.put("a", ("x", 1))
    folder.put("b", ("x", 2))

    commit = folder.ingest.hold(f"{folder.raw}/b.jsonl", reason="not yet")
    again = folder.ingest.hold(f"{folder.raw}/b.jsonl")
    report = folder.ingest.run()

    assert (commit is None, again) == (False, None)
    assert (report.file_count, folder.content()) == (1, [("x", 1)])
    assert "not yet" in report.left_out[0].detail
    with pytest.raises(InvalidInputError):
        folder.ingest.hold(f"{folder.raw}/missing.jsonl")


def test_what_is_there_of_a_held_file_stays(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.dataset.sources.hold(f"{folder.raw}/a.jsonl")

    report = folder.read("a", ("x", 2))

    assert (report.file_count, folder.content()) == (0, [("x", 1)])


def test_holds_are_known_over_many_commits_and_by_version(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.dataset.rollback(version=0, hold=True)
    held = folder.dataset.version
    for n in range(40):
        folder.read("b", ("y", n))
    folder.dataset.compact(metadata=True)

    assert folder.content() == [("y", 39)]
    assert len(folder.dataset.sources.holds()) == 1
    assert len(folder.dataset.at(version=held).sources.holds()) == 1
    assert len(folder.dataset.at(version=1).sources.holds()) == 0


def test_an_ingest_does_not_commit_a_file_that_is_held_meanwhile(folder: Folder) -> None:
    folder.read("b", ("y", 1))
    folder.put("a", ("x", 1))

    def meanwhile(progress: lakebed.Progress) -> None:
        if progress.file_count:
            folder.ingest.hold(f"{folder.raw}/a.jsonl")

    with pytest.raises(CommitConflictError, match=r"conflicts with a hold of .*a\.jsonl"):
        folder.ingest.run(on_progress=meanwhile)

    assert folder.ingest.run().held_count == 1
    assert folder.content() == [("y", 1)]


def test_a_rollback_of_a_partition_holds_the_files_with_rows_in_it(folder: Folder) -> None:
    folder.read("a", ("x", 1), ("y", 1))
    folder.read("b", ("x", 2), ("y", 2))
    folder.read("c", ("y", 3))

    folder.dataset.rollback(version=1, view=folder.dataset.where("p = 'x'"), hold=True)
    report = folder.ingest.run()

    assert [file.location for file in report.left_out] == [f"{folder.raw}/b.jsonl"]
    assert folder.content() == [("x", 1), ("y", 1), ("y", 2), ("y", 3)]


def test_a_rollback_with_hold_names_the_runs_that_it_cannot_hold(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.dataset.append([{"p": "x", "n": 2}], run="by hand")

    commit = folder.dataset.rollback(version=1, hold=True)

    assert commit is not None
    assert "the run 'by hand'" in commit.notes[0]


def test_load_reads_the_files_that_it_is_given_though_they_are_held(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    path = folder.raw / "a.jsonl"
    folder.dataset.sources.hold(str(path))
    folder.dataset.rollback(version=0)

    report = folder.dataset.load(path)

    assert (report.file_count, folder.content()) == (1, [("x", 1)])
    assert folder.ingest.run().held_count == 1


def test_a_file_is_held_and_released_by_a_path_also_when_it_is_gone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.read("a", ("x", 1))
    monkeypatch.chdir(folder.raw)
    path = Path("a.jsonl")

    folder.dataset.sources.hold(path)
    held = [file.is_held for file in folder.dataset.sources.list(file=path)]
    path.unlink()
    folder.dataset.sources.release([path])

    assert (held, folder.dataset.sources.holds()) == ([True], ())


def test_what_is_not_held_is_not_released(folder: Folder) -> None:
    folder.read("a", ("x", 1))

    for name in ("never-read.jsonl", str(folder.raw / "a.jsonl")):
        with pytest.raises(InvalidInputError, match="is not held in 'd'"):
            folder.dataset.sources.release(name)


@pytest.mark.parametrize("wrong", [5, [5]])
def test_what_names_no_file_is_refused(folder: Folder, wrong: object) -> None:
    folder.read("a", ("x", 1))

    with pytest.raises(InvalidInputError, match="files"):
        folder.dataset.sources.hold(wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="again"):
        folder.ingest.run(again=wrong)  # type: ignore[arg-type]


def test_a_rollback_of_a_second_reading_names_no_file_that_stays_as_it_was(folder: Folder) -> None:
    folder.read("a", ("x", 1))
    folder.ingest.run(again=str(folder.raw / "a.jsonl"))

    commit = folder.dataset.rollback(version=1)

    assert commit is not None
    assert commit.notes == ()
    assert folder.ingest.run().file_count == 0
