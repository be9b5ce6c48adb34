"""The commits of a dataset as a stream: each new row once, and nothing that is none."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from inside import store_of

import lakebed
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    SchemaMismatchError,
    VersionNotFoundError,
)
from lakebed.work.commits import CommitStream, StreamPosition, check_schema_kept

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("p", pa.string()), ("n", pa.int64())]), partition_by="p"
)


@pytest.fixture
def dataset(tmp_path):
    return lakebed.open_repository(tmp_path).create("numbers", DESCRIPTOR)


def rows(*numbers):
    return [{"p": f"p{n % 3}", "n": n} for n in numbers]


def stream(dataset, on_change="fail"):
    return CommitStream(store_of(dataset), dataset.name, on_change)


def versions(dataset, start, on_change="fail"):
    commits = stream(dataset, on_change)
    return [(one.version, one.operation) for one in commits.between(start, commits.end())]


def test_a_stream_begins_with_all_rows_and_goes_on_with_what_is_appended(dataset):
    dataset.append(rows(1))
    dataset.append(rows(2))
    start = stream(dataset).start()
    assert versions(dataset, start) == [(2, "snapshot")]

    dataset.append(rows(3))

    assert versions(dataset, start) == [(2, "snapshot"), (3, "append")]
    assert versions(dataset, stream(dataset).start_at_version(2)) == [(2, "append"), (3, "append")]


def test_what_only_lies_elsewhere_does_not_come(dataset):
    dataset.append(rows(0))
    dataset.append(rows(3))
    start = stream(dataset).start_at_version(1)
    dataset.compact()
    dataset.protections.add(version=1, reason="audit")
    dataset.cleanup(older_than="30d", dry_run=False)
    dataset.append(rows(6))

    assert [version for version, _ in versions(dataset, start)] == [1, 2, dataset.version]


def test_a_commit_that_takes_rows_out_is_an_error_that_names_it(dataset):
    dataset.append(rows(0, 1))
    dataset.overwrite(rows(3))

    with pytest.raises(
        CommitConflictError, match="Version 2 of 'numbers' is not an append"
    ) as caught:
        versions(dataset, stream(dataset).start_at_version(1))

    assert "onChange" in caught.value.hint
    assert "startingVersion=3" in caught.value.hint


def test_commits_that_take_rows_out_are_skipped_or_bring_their_rows(dataset):
    dataset.append(rows(0, 1))
    dataset.overwrite(rows(3))
    dataset.where("n = 1").delete()
    dataset.rerun(rows(4), "r", replace_all=True)  # replaces nothing
    dataset.rerun(rows(5), "r", replace_all=True)
    dataset.rollback(version=1)
    start = stream(dataset).start_at_version(0)

    assert versions(dataset, start, "skip") == [(1, "append"), (4, "rerun")]
    assert versions(dataset, start, "new") == [
        (1, "append"),
        (2, "overwrite"),
        (4, "rerun"),
        (5, "rerun"),
    ]


def test_a_merge_brings_what_it_wrote_and_one_that_only_inserts_is_no_change(dataset):
    dataset.append(rows(0, 1, 3))
    dataset.merge(rows(6), on="n")
    dataset.merge([{"p": "p2", "n": 1}], on="n")
    dataset.compact()
    start = stream(dataset).start_at_version(2)

    def brought(on_change):
        commits = stream(dataset, on_change)
        state = dataset.at(version=3)
        labels = {label for one in commits.between(start, commits.end()) for label in one.labels}
        written = {
            file.key: file.row_count for file in (*state.files(), *dataset.at(version=2).files())
        }
        return sum(written[key] for key in written if any(label in key for label in labels))

    with pytest.raises(CommitConflictError, match="merge"):
        brought("fail")
    assert versions(dataset, start, "skip") == [(2, "merge")]
    assert versions(dataset, start, "new") == [(2, "merge"), (3, "merge")]
    assert brought("skip") == 1  # the row that was inserted
    assert brought("new") == 2  # and the row that has moved


def test_what_comes_before_a_commit_that_takes_rows_out_is_read_first(dataset):
    dataset.append(rows(0))
    dataset.append(rows(1))
    dataset.overwrite(rows(3))
    commits = stream(dataset)
    start = commits.start_at_version(1)

    reached = commits.limited(start, commits.end(), max_files=None, max_bytes=None)

    assert (reached.version, reached.file) == (3, 0)
    with pytest.raises(CommitConflictError, match="Version 3"):
        commits.limited(reached, commits.end(), max_files=None, max_bytes=None)


def test_a_limit_of_files_cuts_a_large_commit(dataset):
    dataset.append(rows(*range(6)))  # a file for each of three partitions
    dataset.append(rows(6))
    commits = stream(dataset)
    position, seen = commits.start_at_version(1), []
    while position != commits.end():
        following = commits.limited(position, commits.end(), max_files=2, max_bytes=None)
        seen.append([len(one.labels) for one in commits.between(position, following)])
        position = following

    assert seen == [[2], [1, 1]]


def test_a_limit_of_bytes_lets_at_least_one_file_through(dataset):
    for n in range(3):
        dataset.append(rows(n))
    commits = stream(dataset)

    reached = commits.limited(commits.start(), commits.end(), max_files=None, max_bytes=1)

    assert reached == StreamPosition(
        created_at=commits.state.created_at, version=3, file=1, is_snapshot=True
    )


def test_a_stream_begins_at_a_time_or_a_batch(dataset):
    commits = [dataset.append(rows(n)) for n in range(3)]
    opened = stream(dataset)

    assert opened.start_at_time(commits[1].committed_at).version == 2
    assert opened.start_at_time(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)) == opened.end()
    assert opened.start_at_batch(commits[2].batch_id).version == 3
    assert opened.start_at_version(4) == opened.end()
    with pytest.raises(VersionNotFoundError, match="at version 5"):
        opened.start_at_version(5)
    with pytest.raises(VersionNotFoundError, match="at batch 17"):
        opened.start_at_batch(17)


def test_a_version_that_was_cleaned_up_is_named_with_what_to_do(dataset):
    dataset.append(rows(0))
    start = stream(dataset).start_at_version(1)
    beginning = stream(dataset).start()
    dataset.append(rows(3))
    dataset.compact()
    dataset.cleanup(older_than="0s", dry_run=False)

    for position in (start, beginning):
        with pytest.raises(VersionNotFoundError, match=r"is at version 1 .* was cleaned up") as e:
            versions(dataset, position)
        assert "new checkpoint" in e.value.hint
        assert "older_than" in e.value.hint


def test_rows_of_a_version_that_was_cleaned_up_come_if_their_files_are_there(dataset):
    dataset.append(rows(0))
    start = stream(dataset).start_at_version(1)
    dataset.append(rows(1))
    dataset.where("n = 1").delete()
    dataset.cleanup(older_than="0s", dry_run=False)

    commits = stream(dataset, "skip")
    until = commits.start_at_version(2)

    assert [one.version for one in commits.between(start, until)] == [1]


def test_another_dataset_of_the_name_is_not_taken_for_the_one_that_was_read(dataset, tmp_path):
    start = stream(dataset).start()
    repository = lakebed.open_repository(tmp_path)
    repository.drop("numbers")
    again = repository.create("numbers", DESCRIPTOR)

    with pytest.raises(CommitConflictError, match="dropped and created again"):
        versions(again, start)


def test_a_position_survives_as_an_offset_and_nothing_else_is_taken_for_one(dataset):
    dataset.append(rows(0))
    for position in (stream(dataset).start(), stream(dataset).end()):
        assert StreamPosition.from_offset(position.to_offset()) == position

    for offset in ({}, {"version": 1, "file": 0}, [], None, {"created_at": "x", "version": -1}):
        with pytest.raises(CorruptMetadataError, match="checkpoint"):
            StreamPosition.from_offset(offset)


def test_a_schema_that_changes_is_told_with_what_to_do(dataset):
    layout = stream(dataset).state.layout
    dataset.append(rows(0))
    check_schema_kept(layout, stream(dataset).state)
    more = pa.schema([("p", pa.string()), ("n", pa.int64()), ("more", pa.string())])
    dataset.evolve(lakebed.DatasetDescriptor(schema=more, partition_by="p"), base=dataset.version)

    with pytest.raises(SchemaMismatchError, match="number 1, and is 2") as caught:
        check_schema_kept(layout, stream(dataset).state)

    assert "Start the query again" in caught.value.hint


@examples(0.1)
@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=6),
    begins_with=st.integers(0, 6),
    max_files=st.integers(1, 4),
    compacts_after=st.integers(0, 8),
)
def test_however_a_stream_is_cut_each_row_comes_once(
    tmp_path_factory, sizes, begins_with, max_files, compacts_after
):
    dataset = lakebed.open_repository(tmp_path_factory.mktemp("lake")).create("numbers", DESCRIPTOR)
    fresh = iter(range(100))
    position, labels, step = None, [], 0
    for number, size in enumerate(sizes):
        if number == min(begins_with, len(sizes) - 1):
            position = stream(dataset).start()
        dataset.append(rows(*(next(fresh) for _ in range(size))))
        if position is not None:
            step += 1
            commits = stream(dataset)
            end = commits.limited(position, commits.end(), max_files=max_files, max_bytes=None)
            labels += [label for one in commits.between(position, end) for label in one.labels]
            position = end
        if step == compacts_after:
            dataset.compact()
    commits = stream(dataset)
    while position != commits.end():
        end = commits.limited(position, commits.end(), max_files=max_files, max_bytes=None)
        part = [label for one in commits.between(position, end) for label in one.labels]
        assert len(part) <= max_files
        labels += part
        position = end

    layout = commits.state.layout
    keys = [layout.key(label) for label in labels]
    assert len(keys) == len(set(keys))
    read = [n for key in keys for n in _numbers(store_of(dataset), key)]
    assert sorted(read) == sorted(row["n"] for row in dataset.kite.reader())


def _numbers(store, key):
    import pyarrow.parquet as pq

    return pq.read_table(pa.BufferReader(store.get(key).data)).column("n").to_pylist()
