"""What a cleanup deletes, and what it never deletes."""

import dataclasses
import datetime as dt
import json
import os
import time
import uuid

import pytest
import time_machine
from upkeep_lake import (
    DESCRIPTOR,
    NO_SKEW,
    SHORT,
    HaltingStore,
    age,
    content,
    data_keys,
    live_keys,
    reasons,
    row,
    sweep,
)

import lakebed
from lakebed.common.ages import parse_age
from lakebed.errors import CommitConflictError, InvalidInputError, ReadOnlyError, StorageError
from lakebed.state.reader import read_head
from lakebed.state.transaction import Transaction
from lakebed.testing import CountingStore, FailingStore
from lakebed.work.writer import commit_staged, target_of


def abandon(lake: lakebed.Repository, lease: lakebed.CommitOptions = SHORT) -> str:
    """Stage a file as a writer that dies before its commit; return its key."""
    transaction = Transaction.begin(lake.store, "d", "append", options=lease)
    key = f"d/data/p=a/batch_id={transaction.batch_id}/part-{'0' * 32}.parquet"
    lake.store.put(key, b"half a file")
    time.sleep(0.01)  # a short lease is over now
    return key


def test_dry_run_is_the_default_and_changes_nothing(dataset, lake) -> None:
    before = {one.key: one.modified_at for one in lake.store.list()}

    report = dataset.cleanup("0s")

    assert report.is_dry_run
    assert report.version is None
    assert len(report.files) == 4
    assert {one.key: one.modified_at for one in lake.store.list()} == before


def test_dry_run_says_what_the_cleanup_then_deletes(dataset, lake) -> None:
    abandon(lake)
    told = dataset.cleanup("0s", clock_skew=NO_SKEW)

    done = sweep(dataset)

    assert [file.key for file in done.files] == [file.key for file in told.files]
    assert [file.reason for file in done.files] == [file.reason for file in told.files]
    assert data_keys(lake.store) == live_keys(dataset)


def test_each_file_has_its_reason_size_and_the_version_since_which_it_is_dead(
    dataset, lake
) -> None:
    report = dataset.cleanup("0s")
    commits = {commit.version: commit for commit in dataset.history()}

    assert len(report.files) == 4
    for file in report.files:
        assert file.reason == "superseded"
        assert file.size_bytes == lake.store.size(file.key)
        assert file.key in commits[file.version].files_removed
        # By the clock of the storage, which here is that of the writer, but for its ticks.
        assert abs(file.since - commits[file.version].committed_at) < dt.timedelta(seconds=30)
        assert file.note == f"Taken out by the overwrite that made version {file.version}."


def test_files_are_kept_for_the_retention_after_they_were_superseded_not_written(dataset) -> None:
    report = dataset.cleanup("1h", dry_run=False)

    assert report.files == ()
    assert report.kept_counts["retained"] == 4
    assert content(dataset.at(version=1)) == [("a", 0), ("b", 0)]


def test_cleanup_with_nothing_to_do_makes_no_commit(dataset) -> None:
    sweep(dataset)
    version = dataset.version

    report = sweep(dataset)

    assert report.version is None
    assert report.files == ()
    assert dataset.version == version


def test_horizon_goes_no_further_than_files_are_lost(dataset) -> None:
    dataset.append([row("c", 1)])
    dataset.append([row("c", 2)])

    report = sweep(dataset)

    assert report.horizon == 3
    assert content(dataset.at(version=3)) == [("a", 2), ("b", 2)]
    assert content(dataset.at(version=4)) == [("a", 2), ("b", 2), ("c", 1)]


def test_file_that_a_rollback_brought_back_is_live(dataset, lake) -> None:
    dataset.rollback(version=1)

    sweep(dataset)

    assert content(dataset) == [("a", 0), ("b", 0)]
    assert data_keys(lake.store) == live_keys(dataset)


def test_files_of_a_dead_writer_go_once_its_lease_and_the_skew_of_clocks_are_over(
    dataset, lake
) -> None:
    key = abandon(lake)

    assert reasons(dataset.cleanup("0s"))[key] == "reserved"
    assert reasons(sweep(dataset))[key] == "abandoned"
    assert [one.key for one in lake.store.list("d/data/p=a") if "0" * 32 in one.key] == []


def test_files_of_a_living_writer_stay(dataset, lake) -> None:
    key = abandon(lake, lakebed.CommitOptions())

    report = sweep(dataset)

    assert reasons(report)[key] == "reserved"
    assert lake.store.size(key)


def test_dead_writer_is_cleaned_up_though_an_older_one_lives(dataset, lake) -> None:
    older = Transaction.begin(lake.store, "d", "append")
    key = abandon(lake)

    report = sweep(dataset)

    assert reasons(report)[key] == "abandoned"
    older.add(dataset._stage([row("x", 1)], target_of(older, None)))
    assert commit_staged(older, None).operation == "append"
    assert ("x", 1) in content(dataset)


def test_writer_that_outlasts_its_lease_fails_at_commit_and_does_no_harm(dataset, lake) -> None:
    def rows():
        yield row("x", 1)
        time.sleep(0.01)
        sweep(dataset)  # begins after the lease of a millisecond is over
        yield row("x", 2)

    before = content(dataset)

    with pytest.raises(CommitConflictError, match=r"outlasted its lease of 0:00:00.001") as info:
        dataset.with_options(commit=SHORT).append(rows())

    assert info.value.hint == "Write the data again, with a longer lease."
    assert content(dataset) == before
    assert data_keys(lake.store) == live_keys(dataset)
    dataset.append([row("x", 3)])  # the next one is not hindered


def test_writer_that_is_complete_and_comes_too_late_fails_too(dataset, lake) -> None:
    transaction = Transaction.begin(lake.store, "d", "append", options=SHORT)
    written = dataset._stage([row("x", 1)], target_of(transaction, None))
    transaction._complete(written)
    time.sleep(0.01)
    sweep(dataset)
    before = content(dataset)
    transaction._complete = lambda *_: None  # its manifest was there before the cleanup

    transaction.add(written)
    with pytest.raises(CommitConflictError, match=r"comes too late: its writer outlasted"):
        commit_staged(transaction, None)
    transaction.abort()

    assert content(dataset) == before


@pytest.mark.thorough
def test_long_write_keeps_its_lease(dataset, lake) -> None:
    # Longer than a round may take on a busy machine, shorter than all of them.
    options = lakebed.CommitOptions(lease=dt.timedelta(seconds=2))
    with dataset.with_options(commit=options).kite.writer() as writer:
        for n in range(4):
            for _ in range(1_000):
                writer.write(row("x", n))
            time.sleep(0.6)
            sweep(dataset)

    assert len(content(dataset)) == 2 + 4_000


def test_lease_must_be_positive() -> None:
    with pytest.raises(InvalidInputError, match="lease"):
        lakebed.CommitOptions(lease=dt.timedelta())


def test_file_of_a_batch_that_was_given_back_goes_when_it_is_old(dataset, lake, tmp_path) -> None:
    """A task may be slower than the writer that gave the batch up."""
    key = f"d/data/p=a/batch_id=1000/part-{'1' * 32}.parquet"
    lake.store.put(key, b"of a slow task")

    assert reasons(sweep(dataset))[key] == "too young"
    age(tmp_path / "d", days=3)

    assert reasons(sweep(dataset))[key] == "abandoned"
    assert data_keys(lake.store) == live_keys(dataset)
    assert sweep(dataset).files == ()


def test_file_of_a_batch_that_is_shut_out_goes_at_once(dataset, lake) -> None:
    key = abandon(lake)
    sweep(dataset)
    lake.store.put(key, b"the writer was not quite dead")

    assert reasons(sweep(dataset))[key] == "abandoned"
    assert data_keys(lake.store) == live_keys(dataset)


def test_debris_of_a_committed_batch_goes_when_it_is_old(dataset, lake, tmp_path) -> None:
    batch_id = dataset.history()[-1].batch_id
    key = f"d/data/p=a/batch_id={batch_id}/part-{'1' * 32}.parquet"
    staged = f"d/staging/{batch_id}/task-1/part-0"
    lake.store.put(key, b"of a task that ran twice")
    lake.store.put(staged, b"x")

    assert reasons(sweep(dataset))[key] == "too young"
    age(tmp_path / "d", days=3)
    report = sweep(dataset)

    assert reasons(report)[key] == reasons(report)[staged] == "debris"
    assert data_keys(lake.store) == live_keys(dataset)


def test_segments_that_no_head_names_go_when_they_are_old(lake, tmp_path) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(20):
        dataset.append([row("a", n)])
    assert sweep(dataset).files == ()
    age(tmp_path / "d", days=3)

    report = sweep(dataset)

    assert set(report.counts) == {"unreferenced"}
    folders = {file.key.split("/")[1] for file in report.files}
    assert folders == {"files", "history"}
    # A commit says so: whoever wrote one of them and slept since must not name it any more.
    assert [one.operation for one in dataset.history()[20:]] == ["append", "cleanup"]
    assert len(content(dataset)) == 20
    assert dataset.check().is_ok
    assert set(sweep(dataset).counts) == {"unreferenced"}  # what that commit has merged
    assert sweep(dataset).files == ()
    assert len(dataset.history()) == 22


def test_segments_of_an_index_are_references_too(lake, tmp_path) -> None:
    dataset = lake.create("d", dataclasses.replace(DESCRIPTOR, index=("n",)))
    for n in range(3):
        dataset.overwrite([row("a", n)], run=f"r{n}")
    postings = {one.key for one in lake.store.list("d/postings")}
    assert postings
    age(tmp_path / "d", days=3)

    report = sweep(dataset)

    from lakebed.index.postings_writer import keys_of_postings

    named = set(keys_of_postings(read_head(lake.store, "d").state.lists.postings))
    assert named <= {one.key for one in lake.store.list("d/postings")}
    assert not named & {file.key for file in report.files}
    assert dataset.check(deep=True).is_ok


def test_segment_that_a_reader_of_an_older_head_needs_stays_for_the_retention(
    lake, tmp_path
) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(6):
        dataset.append([row("a", n)])
    age(tmp_path / "d", days=30)
    pinned = dataset.at(version=6)
    dataset.append([row("a", 6)])  # merges the history
    dataset.append([row("a", 7)])  # merges the file table

    report = dataset.cleanup("7d", dry_run=False)

    assert report.files == ()
    assert report.kept_counts["retained"] >= 7
    assert len(pinned.files()) == 6


def test_index_files_of_many_commits_go_after_the_retention_and_those_of_its_heads_stay() -> None:
    lake = lakebed.open_repository(f"memory://{uuid.uuid4()}")
    start = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    named: dict[dt.datetime, set[str]] = {}  # by the time from which a head names them
    with time_machine.travel(start, tick=False) as clock:
        dataset = lake.create("d", dataclasses.replace(DESCRIPTOR, index=("n",)))
        for hour in range(100):
            clock.move_to(start + dt.timedelta(hours=hour))
            dataset.append([row("a", hour)])
            if hour % 3 == 0:
                dataset.evolve(
                    lambda old, hour=hour: dataclasses.replace(old, properties={"hour": str(hour)})
                )
            state = read_head(lake.store, "d").state
            named[start + dt.timedelta(hours=hour)] = set(state.indices.values())
            if hour % 10 == 9:
                dataset.cleanup("24h", dry_run=False)
                cutoff = start + dt.timedelta(hours=hour - 24)
                since = max((moment for moment in named if moment <= cutoff), default=start)
                needed = set().union(*(keys for moment, keys in named.items() if moment >= since))
                there = {info.key for info in lake.store.list("d/indices/")}
                assert needed <= there, hour
                assert len(there) <= 28, hour

    assert any(named.values())


def test_unfinished_writes_of_a_directory_go_when_they_are_old(dataset, tmp_path) -> None:
    leftover = tmp_path / "d" / "data" / f".part-0.{'0' * 32}.tmp"
    leftover.write_bytes(b"x")
    assert sweep(dataset).counts == {"superseded": 4}
    os.utime(leftover, (0, 0))

    told = dataset.cleanup("0s")
    done = sweep(dataset)

    assert told.counts == done.counts == {"temporary": 1}
    assert not leftover.exists()


def test_foreign_files_stay_and_are_reported_as_unknown(dataset, lake, tmp_path) -> None:
    strange = [
        "d/data/p=a/notes.txt",
        "d/data/p=a/part-0.parquet",
        f"d/data/p=a/batch_id=1/{'x' * 10}.parquet",
        f"d/data/q=a/batch_id=1/part-{'0' * 32}.parquet",
        f"d/data/p=a/batch_id=nine/part-{'0' * 32}.parquet",
        "d/batches/later.json",
        "d/batches/12.txt",
        "d/staging/here/a",
        "d/history/readme",
        "d/postings/a",
        "d/elsewhere/x",
        "d/x",
        "d/data/p=é%2F/ÿ/part-ü.parquet",
    ]
    for key in strange:
        lake.store.put(key, b"of somebody else")
    (tmp_path / "d" / "data" / "p=z").mkdir()
    age(tmp_path / "d", days=400)

    report = sweep(dataset)

    assert {key: reasons(report)[key] for key in strange} == dict.fromkeys(strange, "unknown")
    assert all(lake.store.size(key) for key in strange)
    assert (tmp_path / "d" / "data" / "p=z").is_dir()
    assert report.kept_counts["unknown"] == len(strange)


def test_signals_and_schema_file_stay(dataset, lake, tmp_path) -> None:
    dataset.kite.with_("p", "a").kite.signal_ready()
    before = {one.key for one in lake.store.list("d/") if "/data/p=" not in one.key}
    age(tmp_path / "d", days=400)

    sweep(dataset)

    kept = {one.key for one in lake.store.list("d/")}
    for folder in ("d/signals/", "d/data/_common_metadata"):
        named = {key for key in before if key.startswith(folder)}
        assert named
        assert named <= kept


def test_what_was_deleted_is_written_down(dataset, lake) -> None:
    import zstandard

    report = sweep(dataset)

    (log,) = lake.store.list("d/cleanups")
    document = json.loads(zstandard.ZstdDecompressor().decompress(lake.store.get(log.key).data))
    assert document["version"] == report.version
    assert [one["key"] for one in document["files"]] == [file.key for file in report.files]


@pytest.mark.thorough
def test_deletion_is_in_bulk_and_tells_of_its_progress() -> None:
    lake = lakebed.open_repository("memory://cleanup-in-bulk")
    dataset = lake.create("d", DESCRIPTOR)
    for _ in range(2):
        dataset.overwrite([row(f"p{n}", n) for n in range(1_050)])
    counting = CountingStore(lake.store)
    told: list[lakebed.Progress] = []

    report = sweep(lakebed.Repository(counting).open("d"), on_progress=told.append)

    assert len(report.files) == 1_050
    assert counting.counts.delete == 2
    between = told[1].file_count
    assert between in (50, 1_000)  # whichever request was answered first
    assert [progress.file_count for progress in told] == [0, between, 1_050]
    assert {progress.file_total for progress in told} == {1_050}
    assert {progress.size_total_bytes for progress in told} == {report.size_bytes}
    assert told[-1].share == 1.0


def test_what_could_not_be_deleted_is_deleted_by_the_next_cleanup(dataset, lake) -> None:
    failing = FailingStore(lake.store, fail_on="delete")

    with pytest.raises(StorageError) as info:
        sweep(lakebed.Repository(failing).open("d"))
    assert info.value.__notes__ == [
        "The cleanup is incomplete; run it again for the remaining files."
    ]
    version = dataset.version
    report = sweep(dataset)

    assert report.counts == {"superseded": 4}
    assert report.version is None  # it was given up already
    assert dataset.version == version
    assert data_keys(lake.store) == live_keys(dataset)


def test_facts_of_deleted_files_leave_the_file_table(lake) -> None:
    from lakebed.state import file_table
    from lakebed.state.reader import read_head

    dataset = lake.create("d", DESCRIPTOR)
    for n in range(6):
        dataset.overwrite([row("a", n), row("b", n)])
    dataset.append([row("c", 1)])

    sweep(dataset)

    state = read_head(lake.store, "d").state
    assert set(file_table.read_counts(lake.store, state.lists.files)) == set(state.labels)
    assert [file.row_count for file in dataset.files()] == [1, 1, 1]


def test_file_table_that_a_cleanup_has_named_stays_for_who_read_the_head_then(
    lake, tmp_path
) -> None:
    from lakebed.state.reader import read_head

    dataset = lake.create("d", DESCRIPTOR)
    for n in range(6):
        dataset.overwrite([row("a", n), row("b", n)])
    store = HaltingStore(lake.store, "replace", "by-dataset-metadata", after=True)
    seen = []

    def meanwhile() -> None:
        seen.append(read_head(lake.store, "d").state)
        for n in range(9):  # the last one merges the segments
            dataset.append([row("c", n)])

    store.then = meanwhile
    sweep(lakebed.Repository(store).open("d"))

    (state,) = seen
    stored = {one.key for one in lake.store.list("d/")}
    assert len(state.lists.files) == 1
    assert {one.key for one in (*state.lists.files, *state.lists.history)} <= stored
    now = {one.key for one in read_head(lake.store, "d").state.lists.files}
    assert state.lists.files[0].key not in now


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "7 days", None])
def test_age_is_a_number_and_a_unit(dataset, text) -> None:
    with pytest.raises(InvalidInputError, match="is not a valid age"):
        dataset.cleanup(text)


def test_ages_add_up() -> None:
    assert parse_age("2w") == parse_age("14d") == parse_age(dt.timedelta(days=14))
    assert parse_age("90m") == parse_age("5400s")
    with pytest.raises(InvalidInputError, match="negative"):
        parse_age(dt.timedelta(days=-1))


@pytest.mark.parametrize("long", ["999999d", "999999w", dt.timedelta.max])
def test_age_of_more_than_a_thousand_years_is_refused(dataset, long) -> None:
    with pytest.raises(InvalidInputError, match="thousand years"):
        dataset.cleanup(long)
    with pytest.raises(InvalidInputError, match="thousand years"):
        dataset.cleanup(clock_skew=parse_age("52w") * 1020)
    assert dataset.cleanup("52000w").files == ()


def test_expired_protection_goes_though_no_file_is_dead(dataset) -> None:
    sweep(dataset)
    soon = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=50)
    dataset.protections.add(version=dataset.version, reason="audit", until=soon)
    time.sleep(0.06)

    assert dataset.cleanup("0s").files == ()
    assert len(dataset.protections.list()) == 1  # a dry run changes nothing
    report = sweep(dataset)

    assert report.files == ()
    assert (report.version, dataset.protections.list()) == (dataset.version, ())
    assert sweep(dataset).version is None


def test_dataset_of_another_tool_is_not_cleaned_up(lake) -> None:
    head = {"dataset_metadata_version": 4, "dataset_uuid": "k", "partitions": {}}
    lake.store.put("k.by-dataset-metadata.json", json.dumps(head).encode())
    lake.store.put("k/table/_common_metadata", b"")

    with pytest.raises((ReadOnlyError, lakebed.LakebedError)):
        lake.open("k").cleanup()


def test_report_is_a_table_json_and_html(dataset) -> None:
    report = dataset.cleanup("0s")

    table = report.to_table().to_pylist()
    document = json.loads(report.to_json())
    html = report._repr_html_()

    assert [one["key"] for one in table if one["is_dead"]] == [file.key for file in report.files]
    assert [one["key"] for one in document["files"]] == [file.key for file in report.files]
    assert document["kept_counts"] == report.kept_counts
    assert document["size_bytes"] == report.size_bytes == sum(f.size_bytes for f in report.files)
    assert "would delete" in html
    assert report.files[0].key in html
    assert repr(report).startswith("<CleanupReport of 'd': would delete 4 objects of ")
