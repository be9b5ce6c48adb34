"""A commit tells how many rows it inserted, updated, deleted, and wrote again as they were."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from effort import examples
from heads import ON_TREES
from hypothesis import given
from hypothesis import strategies as st

import lakebed
from lakebed import Commit, Dataset, DatasetDescriptor, FromFiles, Ingest
from lakebed.commit import ChangedRows
from lakebed.state import committing
from lakebed.state.history import Entry
from lakebed.store.cache import PROCESS_CACHE

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64()), ("n", pa.int64())])

Counts = tuple[int | None, int | None, int | None, int | None]


def rows(part: str, ids: range, n: int = 0) -> list[dict]:
    return [{"p": part, "id": one, "n": n} for one in ids]


def counts(commit: Commit | None) -> Counts:
    assert commit is not None
    return (
        commit.inserted_row_count,
        commit.updated_row_count,
        commit.deleted_row_count,
        commit.rewritten_row_count,
    )


@pytest.fixture
def numbers(tmp_path) -> Dataset:
    """100 rows in partition a, of run first, and 50 in b."""
    dataset = lakebed.open_repository(tmp_path / "lake").create(
        "numbers", DatasetDescriptor(schema=SCHEMA, partition_by="p")
    )
    dataset.append(rows("a", range(100)), run="first")
    dataset.append(rows("b", range(50)))
    return dataset


def test_append_inserts_its_rows(numbers: Dataset) -> None:
    commit = numbers.append(rows("a", range(7)))

    assert counts(commit) == (7, 0, 0, 0)
    assert "append, 7 rows inserted, +1 -0 files" in repr(commit)


def test_delete_of_a_few_rows_tells_of_them_first(numbers: Dataset) -> None:
    commit = numbers.where("p = 'a' AND id < 5").delete()

    assert counts(commit) == (0, 0, 5, 95)
    assert "delete, 5 rows deleted, 95 rewritten, +1 -1 files" in repr(commit)
    assert commit is not None
    assert commit.row_count == 95


def test_delete_of_a_partition_rewrites_nothing(numbers: Dataset) -> None:
    assert counts(numbers.where("p = 'b'").delete()) == (0, 0, 50, 0)


def test_upsert_tells_inserted_and_updated_rows_apart_from_rewritten_ones(numbers) -> None:
    given = rows("a", range(95, 103), n=1)

    report = numbers.upsert(given, on=["p", "id"])
    dry = numbers.merge(given, on=["p", "id"], dry_run=True)

    assert counts(report.commit) == (3, 5, 0, 95)
    assert report.rewritten_row_count == 95
    assert dry.rewritten_row_count is None
    assert "merge, 3 rows inserted, 5 updated, 95 rewritten" in repr(report.commit)


def test_overwrite_tells_what_it_took_out(numbers: Dataset) -> None:
    commit = numbers.overwrite([*rows("a", range(3)), *rows("c", range(4))])

    assert counts(commit) == (7, 0, 100, 0)
    assert commit.replaced_partitions == ("p=a",)
    assert set(commit.partitions) == {"p=a", "p=c"}
    assert "7 rows inserted, 100 deleted" in repr(commit)


def test_rerun_tells_what_its_run_lost(numbers: Dataset) -> None:
    assert counts(numbers.rerun(rows("c", range(8)), run="first", replace_all=True)) == (
        8,
        0,
        100,
        0,
    )


def test_overwrite_of_a_view_by_nothing_deletes_its_rows(numbers: Dataset) -> None:
    assert counts(numbers.overwrite([], numbers.where("p = 'b'"))) == (0, 0, 50, 0)


def test_compaction_changes_no_row(numbers: Dataset) -> None:
    numbers.append(rows("a", range(9)))

    assert counts(numbers.compact(gather=True).commits[0]) == (0, 0, 0, 109)


def test_promotion_changes_no_row(tmp_path) -> None:
    dataset = lakebed.open_repository(tmp_path / "lake").create(
        "pings", DatasetDescriptor(schema=SCHEMA, partition_by="dimension(p, 'a')")
    )
    dataset.append([*rows("a", range(3)), *rows("z", range(2)), *rows("y", range(2))])

    report = dataset.dimensions.promote({"p": ["a", "z"]})

    assert counts(report.commit) == (0, 0, 0, 4)


def test_rollback_of_an_append_deletes_and_of_a_delete_inserts(numbers: Dataset) -> None:
    assert counts(numbers.rollback(version=1)) == (0, 0, 50, 0)
    assert counts(numbers.rollback(version=2)) == (50, 0, 0, 0)


def test_rollback_over_rewritten_files_tells_no_number_that_may_be_wrong(numbers) -> None:
    numbers.where("p = 'a' AND id < 5").delete()

    commit = numbers.rollback(version=2)

    assert counts(commit) == (None, None, None, None)
    assert "rollback, 100 rows in added files, +1 -1 files" in repr(commit)


def test_transaction_tells_of_all_its_calls_together(numbers: Dataset) -> None:
    with numbers.transaction() as t:
        t.delete(t.where("p = 'a' AND id < 5"))
        t.overwrite(rows("b", range(2)))
        t.append(rows("c", range(3)))

    assert counts(t.commit) == (5, 0, 55, 95)


def test_staged_overwrite_tells_what_it_took_out_by_the_time_of_its_commit(numbers) -> None:
    staged = numbers.staged.add(rows("b", range(2)), "overwrite")
    numbers.append(rows("a", range(1)))

    assert counts(staged.commit()) == (2, 0, 50, 0)


def test_first_load_and_ingest_insert_and_a_changed_file_replaces(tmp_path) -> None:
    lake = lakebed.open_repository(tmp_path / "lake")
    lake.create("raw", DatasetDescriptor(schema=pa.schema([("n", pa.int64())])))
    ingest = Ingest(
        name="raw",
        into=str(tmp_path / "lake/raw"),
        source=FromFiles(paths=[str(tmp_path / "in")], supersede="path"),
        format="json",
    )
    (tmp_path / "in").mkdir()
    for name, count in (("one", 5), ("two", 7)):
        text = "".join(f'{{"n": {n}}}\n' for n in range(count))
        (tmp_path / "in" / f"{name}.jsonl").write_text(text)
    first = ingest.run()
    (tmp_path / "in" / "one.jsonl").write_text('{"n": 1}\n{"n": 99}\n')

    second = ingest.run()

    assert counts(first.commit) == (12, 0, 0, 0)
    assert counts(second.commit) == (2, 0, 5, 7)


def test_verbs_without_rows_change_none(numbers: Dataset) -> None:
    commit = numbers.protections.add(version=1, reason="audit")

    assert counts(commit) == (0, 0, 0, 0)
    assert "protect, no rows, +0 -0 files" in repr(commit)


def test_history_says_the_same_as_the_commit_did(numbers: Dataset) -> None:
    made = [
        numbers.overwrite(rows("b", range(2))),
        numbers.where("id = 1").delete(),
        numbers.rollback(version=2),
    ]

    assert list(numbers.history()[-3:]) == made


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("append", ChangedRows(inserted=9)),
        ("overwrite", ChangedRows(inserted=9)),
        ("rerun", ChangedRows(inserted=9)),
        ("ingest", ChangedRows()),
        ("transaction", ChangedRows()),
        ("rollback", ChangedRows()),
        ("foreign", ChangedRows()),
        ("compact", ChangedRows(inserted=0, updated=0, deleted=0, rewritten=9)),
    ],
)
def test_entry_of_an_earlier_release_tells_no_number_that_it_does_not_have(operation, expected):
    entry = Entry(
        version=1,
        commit_id="c",
        operation=operation,
        committed_at="2026-01-01T00:00:00Z",  # type: ignore[arg-type]  # not looked at
        row_count=9,
        added=("a",),
        removed=("b",),
    )

    assert ChangedRows.of(entry) == expected


def test_row_count_of_a_file_that_is_not_known_makes_no_number(numbers: Dataset) -> None:
    store = lakebed.open_repository(numbers.uri.rpartition("/")[0]).store
    store.delete([info.key for info in store.list("numbers/files/")])
    PROCESS_CACHE.clear()

    commit = (
        lakebed.open_repository(numbers.uri.rpartition("/")[0])
        .open("numbers")
        .overwrite(rows("b", range(2)))
    )

    assert commit.deleted_row_count is None
    assert "2 rows inserted" in repr(commit)


_PARTS = st.sampled_from("abc")
_IDS = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda ends: range(*sorted(ends)))
_VERBS = st.sampled_from(["append", "overwrite", "delete", "rerun", "compact", "upsert"])


@examples(0.3)
@given(st.lists(st.tuples(_VERBS, _PARTS, _IDS, st.integers(0, 2)), max_size=8))
def test_counts_are_those_of_the_rows_before_and_after(steps) -> None:
    repository = lakebed.open_repository(f"memory://changed-{id(steps)}")
    dataset = repository.create(
        "t", DatasetDescriptor(schema=SCHEMA, partition_by="p"), if_exists="open"
    )
    start = dataset.version
    for verb, part, ids, n in steps:
        before = Counter(tuple(row.values()) for row in dataset.kite.reader())
        given_rows = rows(part, ids, n)
        match verb:
            case "append" | "overwrite":
                if given_rows:
                    getattr(dataset, verb)(given_rows)
            case "rerun":
                dataset.rerun(given_rows, run="r", replace_all=True)
            case "delete":
                dataset.where(f"p = '{part}' AND id <= {n}").delete()
            case "compact":
                dataset.compact()
            case "upsert":
                seen = Counter((row[0], row[1]) for row in before.elements())
                if max(seen.values(), default=0) <= 1:
                    dataset.upsert(given_rows, on=["p", "id"])
        after = Counter(tuple(row.values()) for row in dataset.kite.reader())
        for commit in dataset.history()[start + 1 :]:
            assert None not in counts(commit)
            assert all(count >= 0 for count in counts(commit))
        made = dataset.history()[start + 1 :]
        inserted = sum(commit.inserted_row_count for commit in made)
        deleted = sum(commit.deleted_row_count for commit in made)
        updated = sum(commit.updated_row_count for commit in made)
        assert inserted - deleted == after.total() - before.total()
        if verb in ("append", "delete", "compact"):
            assert inserted == (after - before).total()
            assert deleted == (before - after).total()
        if verb == "upsert":
            assert updated >= (before - after).total()
        start = dataset.version


def test_rows_that_an_overwrite_replaces_are_not_counted_in_a_large_dataset(
    numbers: Dataset, monkeypatch
) -> None:
    monkeypatch.setattr(committing, "MOST_COUNTED_FILES", 2)
    counted = numbers.overwrite(rows("a", range(3)))
    numbers.append(rows("b", range(50, 60)))

    uncounted = numbers.overwrite(rows("a", range(4)))

    assert counts(counted) == (3, 0, 100, 0)
    if ON_TREES:  # its leaves, which a commit reads anyway, have the counts
        assert counts(uncounted) == (4, 0, 3, 0)
        return
    assert counts(uncounted) == (4, None, None, None)
    assert "4 rows inserted, an unknown number deleted in 1 partition" in repr(uncounted)
