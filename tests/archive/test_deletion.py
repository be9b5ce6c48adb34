"""Deleted files of an archive are gone for good, and only if no dataset needs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from raw_files import Raw, lines

import lakebed
from lakebed.archive import Archive, removal
from lakebed.errors import DatasetNotFoundError, InvalidInputError, RecordNotFoundError


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


def keys_of(archive: Archive) -> list[str]:
    return sorted(info.key for info in archive.store.list(""))


def test_a_file_goes_with_its_record_and_the_reason_stays(raw: Raw) -> None:
    record, other = raw.push(0, lines(0, [1])), raw.push(1, lines(1, [2]))
    before, stored = keys_of(raw.archive), raw.archive.record(record.id)

    planned = raw.archive.delete(record.id, reason="erasure 17")

    assert planned.retraction is not None
    assert (keys_of(raw.archive), raw.archive.record(record.id)) == (before, stored)
    gone = raw.archive.delete(record.url, reason="erasure 17", dry_run=False)
    assert gone.retraction is not None
    assert gone.retraction.reason == "deleted: erasure 17"
    with pytest.raises(RecordNotFoundError):
        raw.archive.record(record.id)
    with pytest.raises(RecordNotFoundError):
        raw.archive.delete(record.id, reason="again", dry_run=False)
    assert raw.archive.index.find(record.id) is None
    assert raw.archive.index.find(other.id) is not None
    left = set(keys_of(raw.archive)) - set(before)
    assert left == {f"retractions/ids/{record.id}"}
    assert [key for key in keys_of(raw.archive) if key.startswith(record.id)] == []
    raw.archive.reindex()
    assert raw.archive.index.find(record.id) is None


def test_a_reason_is_required_and_that_of_a_retraction_is_kept(raw: Raw) -> None:
    record = raw.push(0, lines(0, [1]))
    for reason in ("", "  ", None):
        with pytest.raises(InvalidInputError, match="The reason is"):
            raw.archive.delete(record.id, reason=reason, dry_run=False)  # type: ignore[arg-type]
    raw.archive.retract(record.id, reason="torn")

    gone = raw.archive.delete(record.id, reason="no use", dry_run=False)

    assert gone.retraction is not None
    assert gone.retraction.reason.startswith("deleted: no use (retracted 20")
    assert gone.retraction.reason.endswith(": torn)")


def test_a_file_that_a_dataset_has_not_read_stays(raw: Raw) -> None:
    record, late = raw.push(0, lines(0, [1, 2])), raw.push(1, lines(1, [3]))
    ingest = raw.by("path")
    with pytest.raises(DatasetNotFoundError):
        raw.archive.delete(record.id, reason="old", read_by=ingest.into, dry_run=False)
    ingest.run()
    rows = ingest.dataset().count()
    last = raw.push(2, lines(2, [4]))

    with pytest.raises(InvalidInputError, match=r"is not read by .*, so its rows would be lost"):
        raw.archive.delete(last.id, reason="old", read_by=[ingest.into], dry_run=True)
    for one in (record, late):
        raw.archive.delete(one.id, reason="old", read_by=[ingest.into], dry_run=False)

    assert ingest.dataset().count() == rows
    report = ingest.run()
    assert (report.file_count, report.kept_back) == (1, ())
    assert ingest.dataset().count() == rows + 1
    with pytest.raises(InvalidInputError, match="names no repository"):
        raw.archive.delete(last.id, reason="old", read_by="flights")


def test_an_older_state_of_a_file_is_not_brought_back(raw: Raw) -> None:
    first = raw.push(0, lines(0, [1]), path="/log/a.jsonl")
    last = raw.push(0, lines(0, [2]), path="/log/a.jsonl")
    other = raw.push(0, lines(0, [3]), path="/log/b.jsonl")
    ingest = raw.by("path")
    ingest.run()

    with pytest.raises(InvalidInputError, match=f"may be a later state of {first.id}") as caught:
        raw.archive.delete(last.id, reason="wrong")
    assert "retract" in caught.value.hint
    raw.archive.retract(first.id, reason="replaced")
    raw.archive.delete(last.id, reason="wrong", dry_run=False)
    raw.archive.delete(other.id, reason="wrong", dry_run=False)

    before = ingest.dataset().version
    assert ingest.run().file_count == 0
    assert ingest.dataset().version == before


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_a_call_that_is_broken_off_is_finished_by_the_next(
    raw: Raw, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    record = raw.push(0, lines(0, [1]))
    ingest, real, left = raw.by("path"), type(raw.archive.store).delete, calls

    def broken(self: object, keys: object) -> None:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        real(self, keys)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(raw.archive.store), "delete", broken)
        if calls == 2:
            patch.setattr(type(raw.archive.index), "delete", lambda *_: broken(None, ()))
        with pytest.raises(KeyboardInterrupt):
            raw.archive.delete(record.id, reason="old", dry_run=False)

    assert ingest.run().file_count == 0  # it is retracted
    gone = raw.archive.delete(record.id, reason="another", dry_run=False)
    assert gone.retraction is not None
    assert gone.retraction.reason == "deleted: old"
    assert raw.archive.index.find(record.id) is None
    assert [key for key in keys_of(raw.archive) if key.startswith(record.id)] == []


def test_what_a_dataset_needs(raw: Raw) -> None:
    record = raw.push(0, lines(0, [1]))
    ingest = raw.by("path")
    ingest.run()
    (read,) = removal.files_read_by(
        lakebed.open_repository(raw.directory / "lake").store, ingest.dataset().name
    ).values()

    assert removal.why_needed(record, read) is None
    assert removal.why_needed(record, None) == "not read"
    changed = raw.push(0, lines(0, [2]))
    assert removal.why_needed(changed, read) == "not read"


def test_the_command_line_asks(raw: Raw) -> None:
    from click.testing import CliRunner

    from lakebed.cli import main

    record = raw.push(0, lines(0, [1]))
    words = [
        "archive",
        "delete",
        record.id,
        "--reason",
        "old",
        "--storage",
        str(raw.archive.store.uri),
    ]
    if "://" in words[-1]:
        words[-1] = words[-1].removeprefix("file://")

    refused = CliRunner().invoke(main, words, input="n\n")

    assert refused.exit_code != 0
    assert "for good?" in refused.stderr
    assert isinstance(raw.archive.record(record.id), lakebed.ArchiveRecord)
    assert CliRunner().invoke(main, [*words, "--yes", "-o", "json"]).exit_code == 0
    with pytest.raises(RecordNotFoundError):
        raw.archive.record(record.id)
