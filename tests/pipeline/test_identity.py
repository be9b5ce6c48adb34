"""A raw file is itself, and takes the place of another only where somebody has said so."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from effort import examples_with_fixtures
from hypothesis import example, given
from hypothesis import strategies as st
from raw_files import Raw, lines

import lakebed
from lakebed import FromArchive, FromFiles
from lakebed.archive import FileMetadata
from lakebed.errors import CommitConflictError, InvalidInputError, RecordNotFoundError
from lakebed.state import sources


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


def reasons(report: lakebed.IngestReport) -> list[str]:
    return [one.why for one in report.left_out]


@pytest.mark.thorough
def test_all_files_of_one_start_are_read(raw: Raw) -> None:
    for n in range(12):
        raw.push(0, lines(0, [n]), path=f"/log/{n}.jsonl")

    report = raw.by(None).run()

    assert (report.file_count, report.row_count, report.left_out) == (12, 12, ())
    assert raw.rows() == [(0, n) for n in range(12)]
    assert raw.by(None).run().unchanged_count == 12


def test_files_of_equal_content_under_two_paths_are_two_files(raw: Raw) -> None:
    for name in ("a", "b"):
        raw.push(0, lines(0, [1]), path=f"/log/{name}.jsonl")

    raw.by(None).run()

    assert raw.rows() == [(0, 1), (0, 1)]


@pytest.mark.parametrize("supersede", ["path", "span"])
def test_what_was_set_aside_of_a_file_gives_way_to_the_file_that_takes_its_place(
    raw: Raw, supersede: str
) -> None:
    """Also where the file was kept back, so that no row of it was ever read."""
    few, many = lines(0, range(3), bad=[0]), lines(0, [], bad=range(9))
    raw.push(0, few)
    raw.push(1, few.replace(b"damaged 0", b"damaged 1"))
    raw.push(2, many)
    assert reasons(raw.by(supersede).run()) == ["rejects"]
    raw.push(0, many.replace(b"damaged", b"more"))
    raw.push(2, many.replace(b"damaged", b"more"))
    raw.by(supersede).run()
    assert {b"damaged 0 0", b"damaged 1 0", b"more 0 8"} <= {*map(bytes.strip, raw.rejected())}
    raw.push(0, lines(0, range(4)))
    raw.push(2, lines(2, range(4)))

    report = raw.by(supersede).run()

    assert (report.row_count, reasons(report)) == (8, ["superseded"] * 4)
    assert [line.strip() for line in raw.rejected()] == [b"damaged 1 0"]


@pytest.mark.parametrize("is_read_between", [False, True])
def test_a_file_that_is_pushed_again_as_it_is_is_read_once(raw: Raw, is_read_between: bool) -> None:
    raw.push(0, lines(0, range(3)))
    if is_read_between:
        raw.by(None).run()
    raw.push(0, lines(0, range(3)))

    report = raw.by(None).run()

    assert (reasons(report), report.kept_back) == (["copy"], ())
    assert raw.rows() == [(0, 0), (0, 1), (0, 2)]
    assert (report.copy_count, raw.events.version) == (1, 1)


@pytest.mark.parametrize("is_read_between", [False, True])
def test_a_file_that_is_pushed_again_with_another_content_is_kept_back(
    raw: Raw, is_read_between: bool
) -> None:
    raw.push(0, lines(0, range(3)))
    if is_read_between:
        raw.by(None).run()
    again = raw.push(0, lines(0, range(5)))

    report = raw.by(None).run()

    (left,) = report.kept_back
    assert (left.location, left.why) == (again.url, "unclear")
    assert "/log/0.jsonl of box, 2013-01-01" in left.detail
    assert raw.rows() == [(0, 0), (0, 1), (0, 2)]
    assert raw.by(None).check().left_out == report.left_out


@pytest.mark.parametrize(
    ("supersede", "numbers", "counts"),
    [
        ("path", [9, 3, 4], (1, 1, 2)),
        ("span", [9], (1, 2, 3)),
        ("id", [0, 1, 3, 4, 9], (2, 0, 0)),
    ],
)
def test_what_takes_the_place_of_what_is_as_it_was_said(
    raw: Raw, supersede: str, numbers: list[int], counts: tuple[int, int, int]
) -> None:
    raw.push(0, lines(0, [0, 1]), path="/a")
    raw.push(0, lines(0, [3]), path="/b")
    raw.by(None).run()
    raw.push(0, lines(0, [4]), path="/c")
    raw.push(0, lines(0, [9]), path="/a")

    report = raw.by(supersede).run()

    assert raw.rows() == sorted((0, n) for n in numbers)
    files = 2 if supersede != "span" else 1
    assert (report.file_count, report.replaced_count, report.replaced_row_count) == (
        files,
        *counts[1:],
    )
    again = raw.by(supersede).run()
    assert (again.file_count, again.kept_back) == (0, ())


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="supersede is 'newest'"):
        FromArchive(storage="raw", what="a", work_id="w", supersede="newest")  # type: ignore[arg-type]  # wrong


def note_as_of_old(raw: Raw) -> None:
    """Take out of the notes what earlier releases did not write."""
    for path in (raw.directory / "lake/events/sources").iterdir():
        known = sources.decode(path.read_bytes(), path.name)
        files = tuple(msgspec.structs.replace(file, path=None) for file in known.files)
        path.chmod(0o644)
        path.write_bytes(sources.encode(msgspec.structs.replace(known, files=files)))


def test_notes_of_the_rule_that_was_the_default_double_and_lose_nothing(raw: Raw) -> None:
    # Three files of one start, of which the old rule left two out; and a day that was pushed again.
    for n in range(3):
        raw.push(0, lines(0, [n]), path=f"/log/{n}.jsonl")
    raw.push(1, lines(1, [0]))
    raw.by("span").run()
    raw.push(1, lines(1, [1]))
    raw.by("span").run()
    note_as_of_old(raw)

    report = raw.by(None).run()

    assert raw.rows() == [(0, 2), (1, 1)]
    assert sorted(reasons(report)) == ["superseded", "unclear", "unclear"]
    # Who says that each path is a file gets what was left out.
    assert raw.by("path").run().file_count == 2
    assert raw.rows() == [(0, 0), (0, 1), (0, 2), (1, 1)]
    assert raw.by(None).run().kept_back == ()


def test_a_file_of_an_old_note_that_is_gone_from_the_archive_may_be_any_of_its_start(
    raw: Raw,
) -> None:
    gone = raw.push(0, lines(0, [1]), path="/a")
    raw.by("span").run()
    note_as_of_old(raw)
    raw.archive.index.delete([gone.id])
    raw.push(0, lines(0, [1, 2]), path="/a")

    for rule in (None, "path"):
        assert reasons(raw.by(rule).run()) == ["unclear"]
    assert raw.by("span").run().replaced_count == 1
    assert raw.rows() == [(0, 1), (0, 2)]


def test_a_file_whose_metadata_was_mended_is_the_same_file(raw: Raw) -> None:
    record = raw.push(0, lines(0, [1]))
    raw.by("span").run()
    raw.archive.index.delete([record.id])
    fields = {**record.metadata, "start": record.metadata.start + 60_000, "path": "/log/new.jsonl"}
    raw.archive.index.put([dataclasses.replace(record, metadata=FileMetadata(fields))])

    for rule in (None, "path", "span", "id"):
        assert raw.by(rule).run().unchanged_count == 1
    assert raw.rows() == [(0, 1)]


@pytest.mark.parametrize("rules", [("span", "id"), (None, "span"), ("id", "path")])
def test_ingests_at_once_by_different_rules_do_not_read_a_file_twice(
    raw: Raw, rules: tuple[str | None, str | None]
) -> None:
    raw.push(0, lines(0, range(4)))
    lakebed.open_repository(raw.directory / "lake").create("events", raw.ingest.create)
    first, second = (raw.by(rule) for rule in rules)

    def meanwhile(progress: object) -> None:
        if progress.file_count == 1:
            second.run()

    with pytest.raises(CommitConflictError, match=r"read .* meanwhile"):
        first.run(on_progress=meanwhile)

    assert len(raw.rows()) == 4
    assert first.run().file_count == 0


def test_ingests_at_once_by_two_ways_to_a_folder_do_not_read_a_file_twice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real/a.jsonl").write_bytes(lines(0, range(4)))
    raw = Raw(tmp_path)
    lakebed.open_repository(tmp_path / "lake").create("events", raw.ingest.create)
    first, second = (
        dataclasses.replace(raw.ingest, source=FromFiles(paths=tmp_path / name), format=None)
        for name in ("link", "real")
    )

    def meanwhile(progress: object) -> None:
        if progress.file_count == 1:
            second.run()

    with pytest.raises(CommitConflictError, match=r"read .* meanwhile"):
        first.run(on_progress=meanwhile)

    assert len(raw.rows()) == 4


PUSH = st.tuples(st.just("push"), st.integers(0, 1), st.sampled_from("abc"), st.integers(0, 3))
RUN = st.tuples(st.just("run"), st.sampled_from([None, "path", "span", "id"]))
ROLLBACK = st.tuples(st.just("rollback"), st.integers(0, 5), st.booleans())


@example(
    # A rollback takes rows out of a file that stands for more than the one that it has replaced.
    [
        ("push", 0, "a", 1),
        ("run", None),
        ("push", 0, "a", 0),
        ("run", "span"),
        ("rollback", 0, False),
    ]
)
@given(st.lists(st.one_of(PUSH, PUSH, RUN, RUN, ROLLBACK), max_size=12))
@examples_with_fixtures(0.1)
def test_every_archived_file_is_read_once_or_named_as_left_out_whatever_rules_change(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    raw = Raw(tmp_path_factory.mktemp("law"))
    pushed: dict[str, list[tuple[int, int]]] = {}

    for step in [*steps, ("run", None), ("run", "path"), ("run", "id")]:
        match step:
            case ("push", int(day), str(path), int(content)):
                numbers = range(content, content + 3)
                record = raw.push(day, lines(day, numbers), path=f"/{path}")
                pushed[record.url] = [(day, n) for n in numbers]
            case ("rollback", int(version), bool(is_whole)):
                if pushed and lakebed.open_repository(raw.directory / "lake").exists("events"):
                    view = None if is_whole else raw.events.where("kind_dimension = 'a'")
                    raw.events.rollback(version=min(version, raw.events.version), view=view)
            case ("run", rule):
                report = raw.by(rule).run()
                left_out = {one.location for one in report.left_out}
                used = [rows for url, rows in pushed.items() if url not in left_out]
                assert Counter(raw.rows()) == Counter(row for rows in used for row in rows)
                assert rule != "id" or not left_out


def test_an_archived_file_is_held_by_its_id_and_its_correction_is_read(raw: Raw) -> None:
    first = raw.push(0, lines(0, [1]))
    raw.by(None).run()
    raw.by(None).dataset().rollback(version=0, hold=True)
    raw.push(0, lines(0, [2]))

    report = raw.by(None).run()

    assert (reasons(report), raw.rows()) == (["held"], [(0, 2)])
    raw.by(None).release(first.id)
    assert reasons(raw.by("path").run()) == ["superseded"]


@pytest.mark.parametrize("supersede", ["path", "span"])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_no_older_file_takes_the_place_of_one_that_is_held(
    raw: Raw, supersede: str, version: int
) -> None:
    pushed = []
    for n in range(3):
        pushed.append(raw.push(0, lines(0, [n])))
        raw.by(supersede).run()
    dataset = raw.by(supersede).dataset()
    if version == 3:
        dataset.sources.hold(pushed[-1].id)
    else:
        dataset.rollback(version=version, hold=True)
    before = raw.rows()

    report = raw.by(supersede).run()

    assert before == ([(0, version - 1)] if version else [])
    assert (raw.rows(), report.file_count) == (before, 0)
    assert set(reasons(report)) <= {"held", "superseded"}
    raw.push(0, lines(0, [9]))
    raw.by(supersede).run()
    assert raw.rows() == [(0, 9)]


@pytest.mark.parametrize("supersede", ["path", "span"])
def test_rows_of_a_file_that_is_retracted_stay_until_an_older_one_is_named(
    raw: Raw, supersede: str
) -> None:
    first = raw.push(0, lines(0, [1, 2]))
    raw.by(supersede).run()
    second = raw.push(0, lines(0, [3]))
    raw.by(supersede).run()
    raw.archive.retract(second.id, reason="torn")

    report = raw.by(supersede).run()

    assert (sorted(reasons(report)), raw.rows()) == (["held", "superseded"], [(0, 3)])
    raw.by(supersede).run(again=first.id)
    assert raw.rows() == [(0, 1), (0, 2)]


@pytest.mark.parametrize("supersede", ["path", "span"])
def test_a_file_is_read_where_the_later_one_that_is_held_never_was(
    raw: Raw, supersede: str
) -> None:
    raw.push(0, lines(0, [1]))
    second = raw.push(0, lines(0, [2]))
    raw.archive.retract(second.id, reason="torn")

    raw.by(supersede).run()

    assert raw.rows() == [(0, 1)]


def test_an_archived_file_that_was_never_read_is_held_by_its_id(raw: Raw) -> None:
    first = raw.push(0, lines(0, [1]))
    raw.push(1, lines(1, [2]))
    ingest = raw.by(None)
    ingest.hold(first.id, reason="wrong machine")

    report = ingest.run()

    assert (reasons(report), raw.rows()) == (["held"], [(1, 2)])
    with pytest.raises(RecordNotFoundError):
        ingest.hold("missing")


@pytest.mark.parametrize("supersede", [None, "path", "span"])
@pytest.mark.parametrize("how", ["rollback", "hold", "retract"])
def test_a_copy_of_a_file_that_is_held_or_retracted_brings_no_rows_until_it_is_named(
    raw: Raw, supersede: str | None, how: str
) -> None:
    ingest = raw.by(supersede)
    raw.push(1, lines(1, [8]))
    ingest.run()
    held = raw.push(0, lines(0, [1, 2]))
    if how == "rollback":
        ingest.run()
        ingest.dataset().rollback(version=1, hold=True, reason="torn")
    elif how == "hold":
        ingest.hold(held.id, reason="torn")
    else:
        raw.archive.retract(held.id, reason="torn")
    again = raw.push(0, lines(0, [1, 2]))

    report = ingest.run()

    assert raw.rows() == [(1, 8)]
    details = {one.location: one.detail for one in report.left_out if one.why == "held"}
    assert details.keys() == {held.url, again.url}
    assert details[again.url] == f"a copy of {held.url}, which is {details[held.url]}"
    assert ingest.run().held_count == 2
    ingest.run(again=again.id)
    assert raw.rows() == [(0, 1), (0, 2), (1, 8)]


def test_a_copy_whose_rows_are_there_stays_where_its_original_is_held(raw: Raw) -> None:
    raw.push(0, lines(0, [7]))
    first = raw.push(0, lines(0, [1]))
    raw.push(0, lines(0, [1]))
    raw.by("path").run()
    raw.by("path").hold(first.id)

    report = raw.by("path").run()

    assert (report.unchanged_count, report.file_count, raw.rows()) == (1, 0, [(0, 1)])


def test_each_copy_is_a_file_of_its_own_where_each_id_counts(raw: Raw) -> None:
    first = raw.push(0, lines(0, [1]))
    raw.by("id").hold(first.id)
    raw.push(0, lines(0, [1]))

    report = raw.by("id").run()

    assert (reasons(report), raw.rows()) == (["held"], [(0, 1)])
