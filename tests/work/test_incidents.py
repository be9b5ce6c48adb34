"""What has destroyed tables elsewhere, one test for each; the names are those of the incidents."""

import pytest
from heads import change_entries
from upkeep_lake import (
    DESCRIPTOR,
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
from lakebed.errors import CommitUnknownError, CorruptMetadataError, StorageError
from lakebed.store import open_store
from lakebed.testing import DelegatingStore, FailingStore


@pytest.fixture
def dataset(lake: lakebed.Repository) -> lakebed.Dataset:
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(2):
        dataset.overwrite([row("a", n), row("b", n)])
    return dataset


class SilentStore(DelegatingStore):
    """Carries out the swap of the head, and then answers nothing any more."""

    has_swapped = False

    def _replace(self, key, data, *, if_match):
        etag = super()._replace(key, data, if_match=if_match)
        if "by-dataset-metadata" in key:
            self.has_swapped = True
            raise StorageError("no answer", retryable=True)
        return etag

    def _get(self, key):
        if self.has_swapped:
            raise StorageError("no answer", retryable=True)
        return super()._get(key)

    def _get_if_changed(self, key, etag):
        if self.has_swapped:
            raise StorageError("no answer", retryable=True)
        return super()._get_if_changed(key, etag)


def test_f1_lost_answer_to_the_swap_is_no_reason_to_delete_what_is_live(dataset, lake) -> None:
    silent = lakebed.Repository(SilentStore(lake.store)).open("d")

    with pytest.raises(CommitUnknownError):
        silent.with_options(commit=lakebed.CommitOptions(deadline_s=0)).append([row("c", 1)])
    sweep(dataset)

    assert content(dataset) == [("a", 1), ("b", 1), ("c", 1)]
    assert dataset.check(deep=True).is_ok


def test_f1_lost_answer_to_the_swap_of_the_cleanup_itself_deletes_nothing_twice(
    dataset, lake
) -> None:
    silent = lakebed.Repository(SilentStore(lake.store)).open("d")
    before = data_keys(lake.store)

    with pytest.raises(CommitUnknownError):
        sweep(silent.with_options(commit=lakebed.CommitOptions(deadline_s=0)))
    assert data_keys(lake.store) == before
    report = sweep(dataset)

    assert report.counts == {"superseded": 2}
    assert data_keys(lake.store) == live_keys(dataset)


def test_f2_commit_that_is_tried_again_after_a_cleanup_lands_once(dataset, lake) -> None:
    failing = FailingStore(
        lake.store, fail_on="replace", matching="by-dataset-metadata", landed=True
    )
    store = HaltingStore(failing, "get", "by-dataset-metadata")

    def rows():
        yield row("c", 1)
        store.then = lambda: sweep(dataset)

    lakebed.Repository(store).open("d").append(rows())

    assert content(dataset) == [("a", 1), ("b", 1), ("c", 1)]
    assert [one.operation for one in dataset.history()].count("append") == 1


def test_f4_vacuum_leaves_the_files_of_a_running_writer(dataset, lake) -> None:
    with dataset.kite.writer() as writer:
        for n in range(2_500):
            writer.write(row("c", n))
        report = sweep(dataset)
        assert report.kept_counts["reserved"] >= 1

    assert len(content(dataset)) == 2_502
    assert dataset.check(deep=True).is_ok


@pytest.mark.parametrize("neighbour", ["d2", "d-", "dd", "d_quarantine"])
def test_f5_datasets_whose_names_begin_alike_are_not_touched(dataset, lake, neighbour) -> None:
    other = lake.create(neighbour, DESCRIPTOR)
    other.append([row("a", 5)])
    lake.store.put(f"{neighbour}/data/p=a/batch_id=1/part-{'0' * 32}.parquet", b"x")
    before = {one.key for one in lake.store.list(neighbour)}

    report = sweep(dataset)

    assert {one.key for one in lake.store.list(neighbour)} == before
    assert all(key.startswith("d/") for key in reasons(report))


def test_f5_links_out_of_the_dataset_are_not_followed(dataset, tmp_path) -> None:
    outside = tmp_path / "outside" / "batch_id=1"
    outside.mkdir(parents=True)
    victim = outside / f"part-{'0' * 32}.parquet"
    victim.write_bytes(b"of somebody else")
    (tmp_path / "d" / "data" / "p=link").symlink_to(outside.parent, target_is_directory=True)
    (tmp_path / "d" / "data" / "p=a" / "batch_id=1").mkdir()
    link = tmp_path / "d" / "data" / "p=a" / "batch_id=1" / f"part-{'1' * 32}.parquet"
    link.symlink_to(victim)
    age(tmp_path / "outside", days=400)

    report = sweep(dataset)

    assert victim.read_bytes() == b"of somebody else"
    assert link.is_symlink()
    assert report.counts == {"superseded": 2}


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_f5_one_bucket_spelled_two_ways_is_one_dataset(s3_options, scheme) -> None:
    first = lakebed.Repository(open_store("s3://lake/f5", storage_options=s3_options))
    dataset = first.create(f"d{scheme}", DESCRIPTOR)
    for n in range(2):
        dataset.overwrite([row("a", n)])
    second = lakebed.Repository(open_store(f"{scheme}://lake/f5", storage_options=s3_options))

    report = sweep(second.open(f"d{scheme}"))

    assert report.counts == {"superseded": 1}
    assert content(dataset) == [("a", 1)]
    assert data_keys(first.store, f"d{scheme}") == live_keys(dataset)


def test_f6_side_objects_are_references(lake, tmp_path) -> None:
    import dataclasses

    dataset = lake.create("d", dataclasses.replace(DESCRIPTOR, index=("n",)))
    for n in range(10):
        dataset.overwrite([row("a", n), row("b", n)], run="nightly")
    dataset.kite.with_("p", "a").kite.signal_ready()
    dataset.protections.add(version=3, reason="audit")
    age(tmp_path / "d", days=400)

    sweep(dataset)

    assert dataset.check(deep=True).is_ok
    assert len(dataset.history()) == 13
    assert dataset.where("n = 9").count() == 2
    assert dataset.kite.with_("p", "a").kite.is_ready()
    assert content(dataset.at(version=3)) == [("a", 2), ("b", 2)]


def test_f7_what_is_derived_can_be_lost_and_answers_stay_right(dataset, lake) -> None:
    for one in list(lake.store.list("d/files")):
        lake.store.put(one.key, b"damaged")

    assert content(dataset) == [("a", 1), ("b", 1)]
    report = dataset.check(repair=True)

    assert report.is_ok
    assert any(one.is_repaired for one in report.findings)
    assert [file.row_count for file in dataset.files()] == [1, 1]


def test_f8_cleanup_changes_no_row_and_hides_no_failure(dataset, lake) -> None:
    before = content(dataset)
    failing = FailingStore(lake.store, fail_on="delete")

    with pytest.raises(StorageError):
        sweep(lakebed.Repository(failing).open("d"))

    assert content(dataset) == before


def test_f15_odd_names_and_empty_directories_do_not_stop_a_cleanup(dataset, lake, tmp_path) -> None:
    odd = ["d/data/%00/x", "d/data/p=%zz/batch_id=1/part-x.parquet", "d/data/日本/🙂", "d/-rf"]
    for key in odd:
        lake.store.put(key, b"x")
    (tmp_path / "d" / "data" / "p=a" / "empty").mkdir()
    (tmp_path / "d" / "data" / ".hidden").touch()

    report = sweep(dataset)

    assert report.counts == {"superseded": 2}
    assert {key: reasons(report)[key] for key in odd} == dict.fromkeys(odd, "unknown")
    assert (tmp_path / "d" / "data" / "p=a" / "empty").is_dir()
    assert (tmp_path / "d" / "data" / ".hidden").exists()


def test_f17_unreadable_index_keeps_files_and_is_reported(lake) -> None:
    import dataclasses

    dataset = lake.create("d", dataclasses.replace(DESCRIPTOR, index=("n",)))
    dataset.append([row("a", 1), row("b", 2)])
    for one in list(lake.store.list("d/postings")):
        lake.store.put(one.key, b"damaged" + bytes(one.size_bytes - 7))

    report = dataset.check()

    assert [one.severity for one in report.problems] == ["warning"]
    assert dataset.check(repair=True).is_ok
    assert dataset.where("n = 2").count() == 1
    assert dataset.check(deep=True).is_ok


def test_unreadable_history_stops_a_cleanup(dataset, lake) -> None:
    """Iceberg and Delta deleted what an unreadable manifest or log did not list."""
    before = data_keys(lake.store)
    for one in list(lake.store.list("d/history")):
        lake.store.put(one.key, b"damaged")

    with pytest.raises(CorruptMetadataError):
        sweep(dataset)

    assert data_keys(lake.store) == before


def test_unreadable_reservation_keeps_the_files_of_its_batch(dataset, lake, tmp_path) -> None:
    key = f"d/data/p=a/batch_id=77/part-{'0' * 32}.parquet"
    lake.store.put(key, b"x")
    lake.store.put("d/batches/77.json", b"damaged")
    age(tmp_path / "d", days=400)

    report = sweep(dataset)

    assert reasons(report)[key] == reasons(report)["d/batches/77.json"] == "unknown"
    assert lake.store.size(key)


def test_delta_3645_batch_that_lived_for_a_year_and_was_replaced_now_stays(dataset) -> None:
    """Age counts from losing the reference, never from the batch id."""
    dataset.overwrite([row("a", 9)])

    report = dataset.cleanup("1m", dry_run=False)

    assert report.files == ()
    assert content(dataset.at(version=2)) == [("a", 1), ("b", 1)]


def test_damaged_protections_stop_a_cleanup(dataset, lake) -> None:
    """seaweedfs dropped tags in silence, and deleted what they kept."""
    change_entries(lake.store, "d", {"lakebed.protections": '[{"reason":"x"}]'})

    with pytest.raises(CorruptMetadataError, match=r"lakebed\.protections"):
        sweep(dataset)
