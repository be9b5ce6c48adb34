"""Raw files of an archive or a folder become batches, once each, and are replaced as a whole."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import io
import json
import lzma
import os
from collections import Counter

import fastavro
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from effort import examples_with_fixtures
from hypothesis import given
from hypothesis import strategies as st
from raw_files import EVENTS, Raw, lines, version_in

import lakebed
from lakebed import DatasetDescriptor, FromArchive, FromFiles, Ingest, WriteOptions
from lakebed.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptMetadataError,
    DatasetNotFoundError,
    FormatError,
    InvalidInputError,
    NotFoundError,
    PartitionSpecError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.pipeline.candidates import find_candidates
from lakebed.store import open_store
from lakebed.testing import DelegatingStore, FailingStore


@pytest.fixture
def raw(tmp_path) -> Raw:
    return Raw(tmp_path)


def test_good_lines_become_one_batch_and_the_others_go_to_quarantine_with_their_place(raw) -> None:
    first = raw.push(0, lines(0, range(10), bad=[1]))
    raw.push(1, lines(1, range(5)))

    report = raw.ingest.run()

    assert raw.rows() == [(0, n) for n in range(10)] + [(1, n) for n in range(5)]
    (reject,) = (
        lakebed.open_repository(raw.directory / "lake").open("events_quarantine").kite.reader()
    )
    assert (reject["line"], reject["line_number"]) == (b"damaged 0 1", 11)
    assert (reject["source_file"], reject["run"]) == (first.url, "events")
    assert reject["reason"]
    assert (report.file_count, report.row_count, report.rejected_count) == (2, 15, 1)
    assert report.commit is not None
    assert (report.commit.operation, report.commit.run) == ("ingest", "events")
    assert {file.batch_id for file in raw.events.files()} == {report.commit.batch_id}


def test_a_second_run_reads_nothing_and_makes_no_version(raw) -> None:
    raw.push(0, lines(0, range(10), bad=[1]))
    raw.ingest.run()

    report = raw.ingest.run()

    assert (report.file_count, report.unchanged_count, report.version) == (0, 1, 1)
    assert report.commit is None
    assert raw.events.version == 1
    assert raw.rejected() == [b"damaged 0 1"]


def test_releases_that_know_no_file_by_its_path_refuse_what_was_ingested(raw) -> None:
    raw.push(0, lines(0, range(3), bad=[1]))
    raw.ingest.run()
    raw.events.append([{"day": 9, "kind": "a", "n": 9}])

    heads = [
        json.loads((raw.directory / "lake" / f"{name}.by-dataset-metadata.json").read_text())
        for name in ("events", "events_quarantine")
    ]

    assert [head["metadata"]["lakebed.format_version"] for head in heads] == ["3", "3"]


def test_a_file_that_comes_later_is_added_as_a_batch_of_its_own(raw) -> None:
    raw.push(0, lines(0, range(10), bad=[1]))
    raw.ingest.run()
    raw.push(1, lines(1, range(3), bad=[2]))

    report = raw.ingest.run()

    assert (report.file_count, report.unchanged_count, report.row_count) == (1, 1, 3)
    assert report.carried_count == 0
    assert raw.rows() == [(0, n) for n in range(10)] + [(1, n) for n in range(3)]
    assert raw.rejected() == [b"damaged 0 1", b"damaged 1 2"]


def test_a_day_that_is_pushed_again_replaces_its_rows_and_rejects_and_no_others(raw) -> None:
    for day in range(4):
        raw.push(day, lines(day, range(8), bad=[day]))
    raw.ingest.run()
    raw.push(2, lines(2, range(100, 103), bad=[7, 8]))

    report = raw.ingest.run()

    assert (report.file_count, report.replaced_count, report.row_count) == (1, 1, 3)
    assert report.superseded_count == 1
    assert raw.events.version == 2
    others = [(day, n) for day in (0, 1, 3) for n in range(8)]
    assert raw.rows() == sorted([*others, *((2, n) for n in range(100, 103))])
    assert raw.rejected() == [
        b"damaged 0 0", b"damaged 1 1", b"damaged 2 7", b"damaged 2 8", b"damaged 3 3",
    ]  # fmt: skip
    assert raw.events.at(version=1).count() == 32


def test_a_day_is_replaced_again_after_its_data_files_were_written_anew(raw) -> None:
    for day in range(3):
        raw.push(day, lines(day, range(8)))
    raw.ingest.run()
    for day, numbers in ((1, range(4)), (0, range(2)), (1, range(20))):
        raw.push(day, lines(day, numbers))
        raw.ingest.run()

    rows = Counter(day for day, _ in raw.rows())

    assert rows == {0: 2, 1: 20, 2: 8}


def test_rows_that_are_carried_along_stay_those_of_the_run_that_read_them(raw) -> None:
    for day in range(2):
        raw.push(day, lines(day, range(4)))
    raw.ingest.run()
    raw.push(0, lines(0, range(10, 12)))
    late = Ingest(
        name="late",
        into=raw.ingest.into,
        source=raw.ingest.source,
        format="json",
        create=EVENTS,
    )
    assert late.run().carried_count > 0

    raw.events.rerun([], "late", replace_all=True)
    assert raw.rows() == [(1, n) for n in range(4)]

    raw.events.rerun([], "events", replace_all=True)
    assert raw.rows() == []


def test_the_same_content_pushed_again_is_nothing_new(raw) -> None:
    raw.push(0, lines(0, range(4)))
    raw.ingest.run()
    raw.push(0, lines(0, range(4)))

    report = raw.ingest.run()

    assert (report.file_count, report.superseded_count, report.version) == (0, 1, 1)


def test_files_of_one_span_are_all_read_where_each_is_one_of_its_own(raw) -> None:
    raw.push(0, lines(0, range(4)))
    raw.push(0, lines(0, range(4, 6)))
    source = FromArchive(
        storage=raw.storage, what="events", start="2013-01-01", end="2013-12-31", supersede="id"
    )
    ingest = Ingest(name="all", into=raw.ingest.into, source=source, format="json", create=EVENTS)

    report = ingest.run()

    assert (report.file_count, report.superseded_count) == (2, 0)
    assert raw.rows() == [(0, n) for n in range(6)]


def test_files_of_other_places_and_works_stand_beside_each_other(raw) -> None:
    raw.push(0, lines(0, [0]))
    raw.push(0, lines(0, [1]), where="other")
    raw.push(0, lines(0, [2]), work_id="job-1")

    assert raw.ingest.run().file_count == 3
    assert raw.rows() == [(0, 0), (0, 1), (0, 2)]


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.integers(0, 2),
                st.lists(st.integers(0, 40), max_size=8),
                st.lists(st.integers(0, 9), max_size=2),
            ),
            st.none(),
        ),
        max_size=8,
    )
)
@examples_with_fixtures(0.25)
def test_the_dataset_always_holds_what_the_last_push_of_each_day_held(
    tmp_path_factory, steps
) -> None:
    raw = Raw(tmp_path_factory.mktemp("law"))
    ingest = dataclasses.replace(raw.ingest, max_rejects=1)
    last: dict[int, tuple[list[int], list[int]]] = {}

    for step in [*steps, None]:
        if step is not None:
            day, numbers, bad = step
            raw.push(day, lines(day, numbers, bad))
            last[day] = (numbers, bad)
            continue
        ingest.run()
        rows = [(day, n) for day, (numbers, _) in last.items() for n in numbers]
        rejects = [b"damaged %d %d" % (day, n) for day, (_, bad) in last.items() for n in bad]
        assert raw.rows() == sorted(rows)
        assert raw.rejected() == sorted(rejects)


@pytest.mark.thorough
def test_rows_keep_their_source_over_spilling_and_several_row_groups(raw) -> None:
    for day in range(5):
        raw.push(day, lines(day, range(400)))
    small = WriteOptions(target_bytes=4_000, row_group_bytes=4_000, memory_bytes=30_000)
    ingest = Ingest(
        name="events",
        into=raw.ingest.into,
        source=raw.ingest.source,
        format="json",
        create=EVENTS,
        write=small,
    )
    ingest.run()
    raw.push(3, lines(3, range(1000, 1010)))

    ingest.run()

    assert Counter(day for day, _ in raw.rows()) == {0: 400, 1: 400, 2: 400, 3: 10, 4: 400}


def test_it_is_known_which_files_went_into_which_batch_and_the_reverse(raw) -> None:
    first = raw.push(0, lines(0, range(4), bad=[1]))
    one = raw.ingest.run()
    again = raw.push(0, lines(0, range(2)))
    two = raw.ingest.run()

    assert one.commit is not None
    assert two.commit is not None
    (source,) = raw.events.sources.list(batch_id=one.commit.batch_id)
    assert (source.location, source.file_id) == (first.url, first.id)
    assert (source.row_count, source.rejected_count, source.run) == (4, 1, "events")
    assert (source.what, source.where, source.start) == ("events", "box", first.start)
    assert raw.ingest.batches_of(first.id) == (one.commit.batch_id,)
    assert raw.ingest.batches_of(again.url) == (two.commit.batch_id,)
    assert [file.file_id for file in raw.events.at(version=1).sources.list()] == [first.id]
    assert raw.ingest.batches_of("nothing") == ()


@pytest.mark.thorough
def test_what_was_read_is_known_over_many_commits(raw) -> None:
    for day in range(12):  # more than make the list of segments merge
        raw.push(day, lines(day, [day]))
        raw.ingest.run()
        raw.events.append([{"day": 99, "kind": "a", "n": day}])

    assert len(raw.events.sources.list()) == 12
    assert raw.ingest.run().unchanged_count == 12


def test_a_file_whose_rows_were_written_anew_by_something_else_is_not_replaced_blindly(raw) -> None:
    raw.push(0, lines(0, range(8)))
    raw.ingest.run()
    raw.events.overwrite(raw.events.arrow())
    raw.push(0, lines(0, range(2)))

    with pytest.raises(InvalidInputError, match="overwrite of version 2 has rewritten their"):
        raw.ingest.run()

    assert raw.events.version == 2
    raw.events.where("day = 0").delete()
    raw.ingest.run(replace_rewritten=True)
    assert raw.rows() == [(0, 0), (0, 1)]


def test_rows_that_an_overwrite_moved_to_another_partition_are_not_doubled(raw) -> None:
    raw.push(0, lines(0, [0]))  # of partition a
    raw.push(1, lines(1, [1]))
    raw.ingest.run()
    moved = [{"day": 0, "kind": "b", "n": 0}, {"day": 1, "kind": "b", "n": 1}]
    raw.events.overwrite(moved, view=raw.events)
    raw.push(0, lines(0, [0, 4]))

    with pytest.raises(InvalidInputError, match="overwrite of version 2"):
        raw.ingest.run()

    assert raw.rows() == [(0, 0), (1, 1)]


def test_a_delete_that_also_writes_files_of_others_anew_hides_nothing(raw) -> None:
    raw.push(0, lines(0, [0]))
    raw.ingest.run()
    raw.events.append([{"day": 9, "kind": "b", "n": 8}, {"day": 9, "kind": "b", "n": 9}])
    raw.events.where("n = 0 OR n = 8").delete()
    raw.push(0, lines(0, [4]))

    raw.ingest.run()

    assert raw.rows() == [(0, 4), (9, 9)]


def test_a_file_of_which_some_rows_were_deleted_is_replaced_all_the_same(raw) -> None:
    raw.push(0, lines(0, range(8)))
    raw.push(1, lines(1, range(3)))
    raw.ingest.run()
    raw.events.where("n = 0").delete()
    raw.push(0, lines(0, range(2)))

    raw.ingest.run()

    assert raw.rows() == [(0, 0), (0, 1), (1, 1), (1, 2)]


@pytest.mark.thorough
@pytest.mark.parametrize("sort_by", [None, "n"])
def test_a_file_whose_rows_were_compacted_or_promoted_is_replaced_all_the_same(
    raw, sort_by: str | None
) -> None:
    for day in range(3):
        raw.push(day, lines(day, range(8)))
        raw.ingest.run()
    raw.events.append([{"day": 9, "kind": "a", "n": 9}])
    raw.events.compact(sort_by=sort_by)
    raw.events.dimensions.promote({"kind": "*"})
    assert len(raw.events.history()) == 7
    raw.push(1, lines(1, range(2)))

    raw.ingest.run()

    assert raw.rows() == [
        *((0, n) for n in range(8)),
        (1, 0),
        (1, 1),
        *((2, n) for n in range(8)),
        (9, 9),
    ]


def test_a_file_whose_rows_were_deleted_as_a_whole_can_be_replaced(raw) -> None:
    raw.push(0, lines(0, range(8)))
    raw.ingest.run()
    raw.events.where("kind_dimension = 'a'").delete()
    raw.push(0, lines(0, range(2)))

    raw.ingest.run()

    assert raw.rows() == [(0, 0), (0, 1)]


def test_two_ingests_of_the_same_files_at_once_do_not_add_them_twice(raw, monkeypatch) -> None:
    raw.push(0, lines(0, range(8)))
    raw.push(1, lines(1, range(8)))
    lakebed.open_repository(raw.directory / "lake").create("events", EVENTS)

    def meanwhile(progress) -> None:
        if progress.file_count == 2:
            raw.ingest.run()

    with pytest.raises(CommitConflictError, match=r"read .* meanwhile"):
        raw.ingest.run(on_progress=meanwhile)

    assert len(raw.rows()) == 16
    assert raw.ingest.run().file_count == 0


def test_ingests_of_other_files_at_once_do_not_conflict(raw) -> None:
    raw.push(0, lines(0, range(8)))
    other = raw.directory / "other.jsonl"
    other.write_bytes(lines(7, range(3)))
    files = Ingest(name="files", into=raw.ingest.into, source=FromFiles(paths=other), create=EVENTS)
    lakebed.open_repository(raw.directory / "lake").create("events", EVENTS)

    def meanwhile(progress) -> None:
        if progress.file_count == 1:
            files.run()

    raw.ingest.run(on_progress=meanwhile)

    assert Counter(day for day, _ in raw.rows()) == {0: 8, 7: 3}


@pytest.mark.thorough
@pytest.mark.parametrize("nth", range(1, 8))
def test_a_store_that_fails_leaves_old_or_new_and_the_next_run_completes(
    raw, nth, monkeypatch
) -> None:
    for day in range(2):
        raw.push(day, lines(day, range(6), bad=[day]))
    raw.ingest.run()
    before = raw.rows()
    raw.push(1, lines(1, range(3), bad=[5]))
    after = sorted([*((0, n) for n in range(6)), *((1, n) for n in range(3))])
    outage = StorageError("The store is out.", retryable=False)

    def failing(address, *, storage_options=None):
        store = open_store(address, storage_options=storage_options)
        return FailingStore(store, fail_on="put", nth=nth, error=outage)

    with monkeypatch.context() as patch:
        patch.setattr("lakebed.pipeline.declared_dataset.open_store", failing)
        try:
            raw.ingest.run()
        except StorageError:
            assert raw.rows() == before
        else:
            assert raw.rows() == after
    raw.ingest.run()

    assert raw.rows() == after
    assert raw.rejected() == [b"damaged 0 0", b"damaged 1 5"]


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".jsonl", bytes),
        (".jsonl.gz", gzip.compress),
        (".jsonl.bz2", bz2.compress),
        (".jsonl.xz", lzma.compress),
        (".jsonl.lz4", lambda data: _arrow(data, "lz4")),
        (".jsonl.zst", lambda data: _arrow(data, "zstd")),
        # The name tells nothing, as where the archive compressed it on push: the content does.
        (".log", gzip.compress),
        (".log", lambda data: _arrow(data, "zstd")),
    ],
)
def test_archived_files_are_decompressed_by_their_name_or_their_content(
    raw, suffix, compress
) -> None:
    raw.push(0, compress(lines(0, range(5))), path=f"/log/0{suffix}")

    raw.ingest.run()

    assert raw.rows() == [(0, n) for n in range(5)]


def _arrow(data: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


class SilentStore(DelegatingStore):
    """Swaps the head of the quarantine, and then answers nothing about it any more."""

    has_swapped = False

    def _replace(self, key, data, *, if_match):
        etag = super()._replace(key, data, if_match=if_match)
        if key.startswith("events_quarantine.by-") and version_in(data) != "0":
            self.has_swapped = True
            raise StorageError("No answer.", retryable=True)
        return etag

    def _get_if_changed(self, key, etag):
        if self.has_swapped and key.startswith("events_quarantine.by-"):
            raise StorageError("No answer.", retryable=False)
        return super()._get_if_changed(key, etag)


@pytest.mark.parametrize("earlier", [False, True], ids=["first", "again"])
def test_what_was_perhaps_set_aside_is_not_deleted(raw, monkeypatch, earlier) -> None:
    raw.push(0, lines(0, range(4), bad=[1]))
    if earlier:
        raw.ingest.run()
        raw.push(0, lines(0, range(4), bad=[2]))

    with monkeypatch.context() as patch:
        patch.setattr(
            "lakebed.pipeline.declared_dataset.open_store",
            lambda address, *, storage_options=None: SilentStore(open_store(address)),
        )
        with pytest.raises(CommitUnknownError):
            raw.ingest.run()

    assert raw.rejected() == [b"damaged 0 2" if earlier else b"damaged 0 1"]


def test_a_file_with_another_schema_goes_to_quarantine_as_a_whole(tmp_path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, column in (("good", "n"), ("bad", "m")):
        pq.write_table(pa.table({column: [1, 2]}), folder / f"{name}.parquet")
    ingest = Ingest(
        name="numbers",
        into=f"{tmp_path}/lake/numbers",
        source=FromFiles(paths=folder),
        create=DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
    )

    report = ingest.run()

    assert (report.row_count, report.rejected_count) == (2, 1)
    quarantine = lakebed.open_repository(tmp_path / "lake").open("numbers_quarantine")
    (reject,) = quarantine.kite.reader()
    assert reject["source_file"].endswith("bad.parquet")
    assert "'m'" in reject["reason"]


def test_a_file_of_a_folder_is_read_again_when_it_has_changed(tmp_path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("n\n1\n2\n")
    ingest = Ingest(
        name="numbers",
        into=f"{tmp_path}/lake/numbers",
        source=FromFiles(paths=tmp_path / "*.csv", supersede="path"),
        create=DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
    )
    ingest.run()
    assert ingest.run().file_count == 0
    file.write_text("n\n3\n4\n")
    os.utime(file, (1, 1))

    report = ingest.run()

    assert (report.file_count, report.replaced_count) == (1, 1)
    assert sorted(row["n"] for row in ingest.dataset().kite.reader()) == [3, 4]


def numbers_of(folder, paths, name: str = "numbers") -> Ingest:
    return Ingest(
        name=name,
        into=f"{folder}/lake/numbers",
        source=FromFiles(paths=paths, supersede="path"),
        create=DatasetDescriptor(schema=pa.schema([("n", pa.int64())])),
    )


def numbers_in(ingest: Ingest) -> list[int]:
    return sorted(row["n"] for row in ingest.dataset().kite.reader())


def test_a_declaration_run_from_another_folder_reads_nothing_again(tmp_path, monkeypatch) -> None:
    for name in ("conf", "conf/in", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf/in/a.jsonl").write_text('{"n": 1}\n')
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
    (tmp_path / "conf/n.avsc").write_text(json.dumps(schema))
    (tmp_path / "conf/i.toml").write_text(
        'name="d"\n[source]\npaths="in"\n[dataset]\ninto="../lake/n"\nschema="n.avsc"\n'
    )
    monkeypatch.chdir(tmp_path / "conf")
    Ingest.from_toml("i.toml").run()
    monkeypatch.chdir(tmp_path / "other")

    ingest = Ingest.from_toml("../conf/i.toml")
    report = ingest.run()

    assert (report.file_count, report.unchanged_count) == (0, 1)
    assert numbers_in(ingest) == [1]
    assert ".." not in ingest.sources()[0].location
    from_root = Ingest.from_toml(f"{tmp_path}/other/../conf/i.toml")
    assert from_root.into == f"{tmp_path}/lake/n"


def test_a_file_that_was_noted_under_a_roundabout_path_is_known_and_replaced(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in/a.jsonl"
    file.write_text('{"n": 1}\n')
    with monkeypatch.context() as patch:  # as earlier releases noted it
        patch.setattr("lakebed.arrow.reading.files.without_parents", str)
        numbers_of(tmp_path, tmp_path / "in/../in").run()
    ingest = numbers_of(tmp_path, tmp_path / "in")

    assert ingest.run().unchanged_count == 1
    for number in (2, 3):
        file.write_text(f'{{"n": {number}}}\n')
        os.utime(file, (number, number))
        assert ingest.run().replaced_count == 1
    assert numbers_in(ingest) == [3]


def test_a_folder_behind_a_link_is_the_same_folder(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real/a.jsonl").write_text('{"n": 1}\n')

    both = numbers_of(tmp_path, [tmp_path / "link", tmp_path / "real"]).run()
    again = numbers_of(tmp_path, tmp_path / "real").run()

    assert (both.row_count, again.unchanged_count) == (1, 1)


def test_a_file_that_is_a_link_stands_for_its_name(tmp_path) -> None:
    (tmp_path / "in").mkdir()
    for number in (1, 2):
        (tmp_path / f"version-{number}").write_text(f'{{"n": {number}}}\n')
        os.utime(tmp_path / f"version-{number}", (number, number))
    link = tmp_path / "in/a.jsonl"
    ingest = numbers_of(tmp_path, link)
    for number in (1, 2):
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path / f"version-{number}")
        ingest.run()

    assert numbers_in(ingest) == [2]


# Damage: what lies there is not what was stored.


def damage(raw, record, content: bytes) -> None:
    path = raw.directory / "raw" / record.id / "data"
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.parametrize("held_bytes", [64 * 2**20, 5])
def test_a_damaged_file_is_set_aside_as_a_whole_and_read_when_it_is_mended(
    raw, monkeypatch, held_bytes
) -> None:
    monkeypatch.setattr("lakebed.arrow.reading.files._HELD_BYTES", held_bytes)
    record = raw.push(0, lines(0, range(3)))
    raw.push(1, lines(1, range(2), bad=[7]))
    damage(raw, record, lines(0, range(4, 7)))

    report = raw.ingest.run()

    assert raw.rows() == [(1, 0), (1, 1)]
    assert (report.file_count, report.row_count, report.rejected_count) == (1, 2, 2)
    assert [one.location for one in raw.events.sources.list()] != [record.url]
    rejects = (
        lakebed.open_repository(raw.directory / "lake").open("events_quarantine").kite.reader()
    )
    (reason,) = [row["reason"] for row in rejects if row["source_file"] == record.url]
    assert record.hash in reason

    damage(raw, record, lines(0, range(3)))
    report = raw.ingest.run()

    assert (report.file_count, report.unchanged_count) == (1, 1)
    assert raw.rows() == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert raw.rejected() == [b"damaged 1 7"]


def test_what_a_damaged_file_would_replace_stays_and_there_is_no_new_version(raw) -> None:
    raw.push(0, lines(0, range(3), bad=[7]))
    raw.ingest.run()
    again = raw.push(0, lines(0, range(9)))
    damage(raw, again, b"")

    report = raw.ingest.run()

    assert (report.commit, report.file_count, report.replaced_count) == (None, 0, 0)
    assert (raw.events.version, report.rejected_count) == (1, 1)
    assert raw.rows() == [(0, 0), (0, 1), (0, 2)]
    assert raw.rejected() == [b"", b"damaged 0 7"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "avro"])
def test_every_format_is_compared_with_its_hash(raw, kind: str) -> None:
    table = pa.table({"day": pa.array([0], pa.int32()), "kind": ["a"], "n": [1]})
    good, bad = (
        _as_file(table.set_column(2, "n", pa.array([n])), kind, raw.directory) for n in (1, 2)
    )
    record = raw.push(0, good, path=f"/log/0.{kind}")
    damage(raw, record, bad)
    ingest = Ingest(
        name="x", into=raw.ingest.into, source=raw.ingest.source, format=kind, create=EVENTS
    )

    assert (ingest.run().row_count, raw.rows()) == (0, [])

    damage(raw, record, good)
    assert (ingest.run().row_count, raw.rows()) == (1, [(0, 1)])


def _as_file(table: pa.Table, kind: str, folder) -> bytes:
    path = folder / f"x.{kind}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        pacsv.write_csv(table, path)
    else:
        with path.open("wb") as file:
            fastavro.writer(file, dict(AVSC), table.to_pylist())
    return path.read_bytes()


def test_a_hash_that_is_none_of_ours_is_not_compared(raw) -> None:
    fields = {
        **raw.push(0, lines(0, range(2))).metadata,
        "id": "old", "hash": "12345", "where": "other",
    }  # fmt: skip
    of_another_program = lakebed.archive.FileMetadata(fields, is_stored=True)
    raw.archive.push_prepared(io.BytesIO(lines(5, [5])), of_another_program)

    raw.ingest.run()

    assert (5, 5) in raw.rows()


def test_rejects_of_a_replaced_file_go_whatever_ingest_has_set_them_aside(raw) -> None:
    raw.push(0, lines(0, range(3), bad=[1]))
    raw.push(1, lines(1, range(3), bad=[2]))
    raw.ingest.run()
    raw.push(0, lines(0, range(3)))
    other = Ingest(
        name="other", into=raw.ingest.into, source=raw.ingest.source, format="json", create=EVENTS
    )

    assert other.run().replaced_count == 1
    assert raw.rejected() == [b"damaged 1 2"]


def test_progress_tells_of_files_rows_bytes_and_rejects(raw) -> None:
    for day in range(3):
        raw.push(day, lines(day, range(4), bad=[day]))
    seen = []

    raw.ingest.run(on_progress=seen.append)

    assert [one.file_count for one in seen] == [0, 1, 2, 3]
    last = seen[-1]
    assert (last.file_total, last.row_count, last.rejected_count) == (3, 12, 3)
    assert last.size_bytes == last.size_total_bytes > 0


def test_check_says_what_would_be_done_and_writes_nothing(raw) -> None:
    raw.push(0, lines(0, range(4)))
    found = raw.ingest.check()
    assert found.creates_dataset
    assert len(found.new) == 1
    assert not (raw.directory / "lake").exists()

    raw.ingest.run()
    again, other = raw.push(0, lines(0, range(2))), raw.push(1, lines(1, [1]))
    found = raw.ingest.check()

    assert (found.new, found.changed) == ((other.url,), (again.url,))
    assert (found.unchanged_count, [one.why for one in found.left_out]) == (0, ["superseded"])
    assert raw.events.version == 1


# The declaration.

TOML = """
name = "events"

[source]
storage = "raw"
what = "events"
format = "json"

[dataset]
into = "lake/events"
schema = "events.avsc"
partition_by = ["dimension(kind, 'a', 'b')"]
compression = "snappy"

[ingest]
start = 2013-01-01
end = 2013-12-31T00:00:00Z
"""
AVSC = {
    "type": "record",
    "name": "event",
    "fields": [
        {"name": "day", "type": ["null", "int"]},
        {"name": "kind", "type": ["null", "string"]},
        {"name": "n", "type": ["null", "long"]},
    ],
}


def test_a_file_declares_the_same_as_python(raw, tmp_path) -> None:
    (tmp_path / "events.avsc").write_text(json.dumps(AVSC))
    path = tmp_path / "events.toml"
    path.write_text(TOML)
    raw.push(0, lines(0, range(4)))

    ingest = Ingest.from_toml(path)
    ingest.run()

    assert raw.rows() == [(0, n) for n in range(4)]
    assert ingest.into == str(tmp_path / "lake/events")
    assert raw.events.descriptor.compression == "snappy"
    assert raw.ingest.run().file_count == 0


@pytest.mark.parametrize("day", ["20130101", '"20130101"', '"20130101000000"'])
def test_digits_of_a_day_are_that_day_in_a_declaration(raw, tmp_path, day) -> None:
    (tmp_path / "events.avsc").write_text(json.dumps(AVSC))
    path = tmp_path / "events.toml"
    path.write_text(TOML.replace("start = 2013-01-01", f"start = {day}"))
    raw.push(0, lines(0, range(4)))

    Ingest.from_toml(path).run()

    assert raw.rows() == [(0, n) for n in range(4)]


def test_early_files_of_an_archive_are_ingested(raw, tmp_path) -> None:
    archive = lakebed.open_archive(raw.storage)
    for number, start in enumerate(("1969-12-31", "1970-01-02", "1985-01-01")):
        archive.push(
            io.BytesIO(lines(0, [number])), path=f"/{number}", where="w", what="old", start=start
        )

    source = FromArchive(
        storage=raw.storage, what="old", start="1969-01-01", end="1985-01-01", supersede="id"
    )

    assert len(find_candidates(source, "json").files) == 3


def test_dimensions_of_a_file_come_after_the_other_partitions(tmp_path) -> None:
    schema = {"version": 1, "dimensions": [{"field_name": "kind", "allowed_values": ["a"]}]}
    (tmp_path / "events.avsc").write_text(json.dumps(AVSC))
    (tmp_path / "dimensions.json").write_text(json.dumps(schema))
    path = tmp_path / "events.toml"
    text = TOML.replace("compression", 'dimensions = "dimensions.json"\ncompression')
    path.write_text(text.replace("[\"dimension(kind, 'a', 'b')\"]", '"day"'))

    ingest = Ingest.from_toml(path)

    assert ingest.create is not None
    assert [one.name for one in ingest.create.partition_by] == ["day", "kind_dimension"]


@pytest.mark.parametrize(
    ("old", "new", "error", "said"),
    [
        ('format = "json"', 'formt = "json"', InvalidInputError, "unknown key 'formt'"),
        (
            'what = "events"',
            'whta = "events"',
            InvalidInputError,
            r"line 6, \[source\] whta: unknown",
        ),
        ('format = "json"', 'format = "jsn"', InvalidInputError, "unknown file format 'jsn'"),
        ('format = "json"', "", InvalidInputError, "format of archived files is missing"),
        ('into = "lake/events"', "", InvalidInputError, "required key 'into' is missing"),
        ('name = "events"', "name = 3", InvalidInputError, "Expected `str"),
        ("start = 2013-01-01", 'start = "soon"', InvalidInputError, "soon"),
        ("start = 2013-01-01", 'start = "-7y"', InvalidInputError, "-7y"),
        ("start = 2013-01-01", "start = 2014-01-01", InvalidInputError, "after end"),
        ("start = 2013-01-01", "start = 123", InvalidInputError, "not a clear time"),
        ("start = 2013-01-01", "start = 20131301", InvalidInputError, "is not a time"),
        ("start = 2013-01-01", "", InvalidInputError, "no start"),
        ('into = "lake/events"', 'into = "lake/e v"', InvalidInputError, "e v"),
        ("dimension(kind", "dimenson(kind", PartitionSpecError, "dimenson"),
        ("dimension(kind", "dimension(knd", PartitionSpecError, "knd"),
        ('compression = "snappy"', 'compression = "zip"', InvalidInputError, "zip"),
        ('what = "events"', 'what = "events"\npaths = "in"', InvalidInputError, "both"),
        ("[source]", "[source", FormatError, "not valid TOML"),
        ("events.avsc", "other.avsc", Exception, "other.avsc"),
    ],
)
def test_a_wrong_declaration_is_refused_before_anything_runs(
    tmp_path, old, new, error, said
) -> None:
    (tmp_path / "events.avsc").write_text(json.dumps(AVSC))
    path = tmp_path / "events.toml"
    path.write_text(TOML.replace(old, new))

    with pytest.raises(error, match=said):
        Ingest.from_toml(path)


def test_near_keys_are_suggested(tmp_path) -> None:
    (tmp_path / "events.avsc").write_text(json.dumps(AVSC))
    path = tmp_path / "events.toml"
    path.write_text(TOML.replace("compression", "compresion"))

    with pytest.raises(InvalidInputError) as caught:
        Ingest.from_toml(path)

    assert "'compression'" in caught.value.hint


def test_a_missing_declaration_is_named(tmp_path) -> None:
    with pytest.raises(NotFoundError, match=r"none\.toml"):
        Ingest.from_toml(tmp_path / "none.toml")


def test_a_missing_dataset_is_an_error_where_nothing_says_what_it_is(raw) -> None:
    raw.push(0, lines(0, range(4)))
    ingest = Ingest(name="x", into=raw.ingest.into, source=raw.ingest.source, format="json")

    with pytest.raises(DatasetNotFoundError):
        ingest.run()


def test_a_dataset_that_is_another_than_declared_is_refused(raw) -> None:
    raw.push(0, lines(0, range(4)))
    other = DatasetDescriptor(schema=EVENTS.schema, partition_by="day")
    lakebed.open_repository(raw.directory / "lake").create("events", other)

    with pytest.raises(InvalidInputError, match="exists with the partitions"):
        raw.ingest.check()


def test_a_format_that_cannot_hold_the_rows_is_refused_before_anything_runs(raw) -> None:
    raw.push(0, lines(0, range(4)))
    nested = DatasetDescriptor(schema=pa.schema([("a", pa.list_(pa.int64()))]))
    ingest = Ingest(
        name="x", into=raw.ingest.into, source=raw.ingest.source, format="csv", create=nested
    )

    with pytest.raises(SchemaMismatchError):
        ingest.check()


def test_what_was_read_cannot_be_read_where_its_object_is_damaged(raw) -> None:
    raw.push(0, lines(0, range(4)))
    raw.ingest.run()
    (segment,) = (raw.directory / "lake/events/sources").iterdir()
    segment.write_bytes(segment.read_bytes()[:-5])

    with pytest.raises(CorruptMetadataError, match="Sources"):
        raw.ingest.run()
    assert raw.rows() == [(0, n) for n in range(4)]
