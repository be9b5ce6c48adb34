"""Names of files that are legal but bad are warned of, before anything is stored."""

import io
import warnings
from pathlib import Path

import pytest

import lakebed
from lakebed import LakebedWarning
from lakebed.archive import Archive, FileMetadata, UploadQueue

GOOD = {"where": "whirlyweb02-prod", "what": "rawfood-ingester", "start": "2015-03-20"}
BAD = [
    ("where", "localhost", "cannot be distinguished"),
    ("where", "vagrant", "cannot be distinguished"),
    ("what", "job", "too general"),
    ("what", "task", "too general"),
    ("work_id", "nullabc", "reserved for files without a work id"),
    ("work_id", "null-1", "reserved for files without a work id"),
    ("work_id", "20150320", "no word of its domain"),
    ("work_id", "2015-03_20", "no word of its domain"),
    ("work_id", "91dd2525a5924c6c972e3d67fee8cda9", "no word of its domain"),
    ("work_id", "91dd2525-a592-4c6c-972e-3d67fee8cda9", "no word of its domain"),
    ("where", "w" * 64, "longer than 63 letters"),
    ("what", "w" * 64, "longer than 63 letters"),
]


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> Archive:
    return lakebed.open_archive(f"memory://{request.node.name.translate(_PLAIN)}")


_PLAIN = {ord(letter): "-" for letter in "[]_ ."}


def push(archive: Archive, **fields: str | None) -> str:
    return archive.push(io.BytesIO(b"hello"), path="/var/log/a", **(GOOD | fields)).id


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"where": "localhost-02", "what": "job-runner", "work_id": "orders-12"},
        {"where": "w" * 63, "what": "jobber", "work_id": "cafe-12"},
        {"work_id": "annulled"},
    ],
)
def test_good_names_are_stored_without_a_word(memory: Archive, fields: dict[str, str]) -> None:
    assert push(memory, **fields)


@pytest.mark.parametrize(("name", "value", "problem"), BAD)
def test_bad_name_is_stored_and_warned_of(
    memory: Archive, name: str, value: str, problem: str
) -> None:
    with pytest.warns(LakebedWarning, match=problem) as caught:
        file_id = push(memory, **{name: value})

    (warning,) = caught
    assert str(warning.message).startswith(f"{name} '{value[:20]}")
    assert warning.filename == __file__
    assert memory.record(file_id).metadata[name] == value


def test_warning_that_is_made_an_error_stores_nothing(memory: Archive, tmp_path: Path) -> None:
    queue = UploadQueue(tmp_path / "queue")
    (tmp_path / "a.log").write_text("a")
    with warnings.catch_warnings():
        warnings.simplefilter("error", LakebedWarning)
        with pytest.raises(LakebedWarning):
            push(memory, what="job")
        with pytest.raises(LakebedWarning):
            memory.push_many([tmp_path / "a.log"], **(GOOD | {"what": "job"}))
        with pytest.raises(LakebedWarning):
            queue.enqueue(io.BytesIO(b"hello"), path="/a", **(GOOD | {"what": "job"}))

    assert list(memory.store.list("")) == []
    assert not list(tmp_path.rglob("*.tar"))


def test_many_files_are_warned_of_once(memory: Archive, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"a-{number}.log").write_text("a")
    work_ids = r".*a-(?P<n>\d)\.log$~{n}"

    with pytest.warns(LakebedWarning) as caught:
        memory.push_many(
            sorted(tmp_path.glob("*.log")), **(GOOD | {"what": "task", "work_id": work_ids})
        )

    assert sorted(str(one.message).partition(" ")[0] for one in caught) == ["what", "work_id"]


def test_names_that_are_stored_are_read_without_a_word(memory: Archive) -> None:
    with pytest.warns(LakebedWarning):
        file_id = push(memory, where="localhost", work_id="null1")

    record = memory.record(file_id)
    assert FileMetadata.from_json(record.metadata.to_json()) == record.metadata
    assert [one.id for one in memory.list("rawfood-ingester", work_id="null1")] == [file_id]
