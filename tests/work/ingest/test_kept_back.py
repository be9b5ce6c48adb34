"""A file with little that fits replaces no good rows; and on demand what does not fit stops all."""

from __future__ import annotations

import dataclasses
import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raw_files import EVENTS, Raw, lines

import lakebed
from lakebed import DatasetDescriptor, FromFiles, Ingest, LoadOptions
from lakebed.errors import InvalidInputError, RejectsError
from lakebed.store import open_store

GOOD = [(0, n) for n in range(3)]


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


def objects(directory: Path) -> set[str]:
    """Return what lies in a lake: heads, data files, facts, postings and notes."""
    return {info.key for info in open_store(f"{directory}/lake").list("")}


BROKEN = {
    "nothing fits": b"\x00garbage\n" * 249,
    "more than half does not fit": lines(0, range(100, 102), bad=range(3)),
    "it ends in the middle": gzip.compress(lines(0, range(100, 4100)))[:-40],
    "it is empty": b"",
    "it has blank lines alone": b"\n\n",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_replaces_nothing_and_the_other_files_are_read(
    raw: Raw, content: bytes
) -> None:
    raw.push(0, lines(0, range(3), bad=[9]))
    raw.push(1, lines(1, [1]))
    raw.ingest.run()
    broken = raw.push(0, content)
    raw.push(1, lines(1, [2]))
    raw.push(2, lines(2, [2], bad=[1]))

    report = raw.ingest.run()

    assert raw.rows() == [*GOOD, (1, 2), (2, 2)]
    (left,) = report.kept_back
    assert left.location == broken.url
    assert left.why == ("truncated" if content.startswith(b"\x1f\x8b") else "rejects")
    assert "the 3 rows that it would replace stay" in left.detail
    assert (report.file_count, report.replaced_count, report.row_count) == (2, 1, 2)
    # The rejects of the file that is current, and those of the one that is kept back.
    assert b"damaged 0 9" in raw.rejected()
    assert len(raw.rejected()) == 1 + report.rejected_count
    assert {one.location for one in raw.events.sources.list()}.isdisjoint({broken.url})


def test_nothing_is_left_of_what_was_staged_of_a_file_that_is_kept_back(raw: Raw) -> None:
    indexed = dataclasses.replace(EVENTS, index=("n",))
    ingest = dataclasses.replace(raw.ingest, create=indexed)
    raw.push(0, lines(0, range(3)))
    raw.push(1, lines(1, [1]))
    ingest.run()
    before = objects(raw.directory)
    raw.push(0, lines(0, range(100, 102), bad=range(3)))

    ingest.run()

    assert {one for one in objects(raw.directory) - before if one.startswith("events/")} == set()
    assert raw.events.version == 1


def test_a_file_that_is_kept_back_is_looked_at_again_until_it_is_mended(raw: Raw) -> None:
    raw.push(0, lines(0, range(3)))
    raw.ingest.run()
    raw.push(0, b"garbage\n" * 3)

    for _ in range(2):
        assert [one.why for one in raw.ingest.run().kept_back] == ["rejects"]
        assert raw.rejected() == [b"garbage"] * 3
    raw.push(0, lines(0, [7]))
    report = raw.ingest.run()

    assert (report.kept_back, report.replaced_count) == ((), 1)
    assert raw.rows() == [(0, 7)]


@pytest.mark.parametrize(
    ("max_rejects", "is_kept_back"), [(0, True), (0.39, True), (0.4, False), (1, False)]
)
def test_what_share_may_be_unfit_can_be_said(
    raw: Raw, max_rejects: float, is_kept_back: bool
) -> None:
    raw.push(0, lines(0, range(3)))
    raw.ingest.run()
    raw.push(0, lines(0, range(3, 6), bad=[1, 2]))

    report = dataclasses.replace(raw.ingest, max_rejects=max_rejects).run()

    assert bool(report.kept_back) == is_kept_back
    assert raw.rows() == (GOOD if is_kept_back else [(0, 3), (0, 4), (0, 5)])


def test_a_share_of_one_lets_everything_replace(raw: Raw) -> None:
    raw.push(0, lines(0, range(3)))
    raw.ingest.run()
    raw.push(0, b"")

    assert dataclasses.replace(raw.ingest, max_rejects=1).run().kept_back == ()
    assert raw.rows() == []


@pytest.mark.parametrize("max_rejects", [-0.1, 1.5, 2.5, float("nan"), float("inf"), True, "0.5"])
def test_a_share_that_is_none_is_refused(raw: Raw, max_rejects: float) -> None:
    with pytest.raises(InvalidInputError, match="max_rejects"):
        dataclasses.replace(raw.ingest, max_rejects=max_rejects)


def test_a_broken_file_of_a_folder_replaces_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    ingest = Ingest(
        name="numbers",
        into=f"{tmp_path}/lake/numbers",
        source=FromFiles(paths=file, supersede="path"),
        create=DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
    )
    pq.write_table(pa.table({"n": range(5)}), file)
    ingest.run()
    pq.write_table(pa.table({"m": range(5)}), file)  # another schema
    os.utime(file, (1, 1))

    assert [one.why for one in ingest.run().kept_back] == ["refused"]
    assert ingest.dataset().count() == 5


# Nothing at all where something does not fit.


def test_nothing_is_committed_where_something_does_not_fit_and_that_was_asked_for(
    raw: Raw,
) -> None:
    raw.push(0, lines(0, range(3)))
    raw.ingest.run()
    before = objects(raw.directory)
    raw.push(0, lines(0, range(5)))
    bad = raw.push(1, lines(1, range(3), bad=range(5)))

    with pytest.raises(RejectsError, match=r"5 lines of 1 file do not fit") as caught:
        raw.ingest.run(fail_on_rejects=True)

    assert caught.value.rejected_count == 5
    assert f"{bad.url}, line 4: " in caught.value.message
    assert objects(raw.directory) == before
    assert raw.rows() == GOOD
    assert dataclasses.replace(raw.ingest, max_rejects=5).run().row_count == 8


def test_a_load_commits_nothing_where_something_does_not_fit_and_that_was_asked_for(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\nbad\n')
    lake = lakebed.open_repository(tmp_path / "lake")
    schema = pa.schema([("n", pa.int64())])
    dataset = lake.create("d", DatasetDescriptor(schema=schema, index=["n"]))
    before = objects(tmp_path)

    with pytest.raises(RejectsError, match=r"a\.jsonl, line 2: [^.]+\. Nothing"):
        dataset.load(path, run="r", options=LoadOptions(fail_on_rejects=True))

    assert dataset.version == 0
    assert objects(tmp_path) == before
    path.write_text('{"n": 1}\n')
    assert dataset.load(path, run="r", options=LoadOptions(fail_on_rejects=True)).row_count == 1
