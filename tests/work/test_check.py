"""What a check finds, and what a repair makes right."""

import dataclasses
import datetime as dt
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import time_machine
from upkeep_lake import DESCRIPTOR, HaltingStore, content, data_keys, row, sweep

import lakebed
from lakebed.errors import CorruptMetadataError, DatasetNotFoundError
from lakebed.work.check import CheckReport


@pytest.fixture
def dataset(lake: lakebed.Repository) -> lakebed.Dataset:
    dataset = lake.create("d", dataclasses.replace(DESCRIPTOR, index=("n",)))
    dataset.overwrite([row("a", 0)], run="first")
    dataset.overwrite([row("a", 1), row("b", 1)])
    return dataset


def found(report: CheckReport) -> dict[str, str]:
    """Return the severity of every problem by its key."""
    return {one.key: str(one.severity) for one in report.problems}


def key_of(dataset: lakebed.Dataset, partition: str) -> str:
    (key,) = (file.key for file in dataset.files() if file.partition == partition)
    return key


def test_dataset_as_it_was_written_has_no_problem(dataset) -> None:
    report = dataset.check(deep=True)

    assert report.is_ok
    assert report.findings == ()
    assert (report.version, report.file_count) == (2, 2)


def test_missing_data_file_is_an_error_and_no_repair_hides_it(dataset, lake) -> None:
    key = key_of(dataset, "p=a")
    lake.store.delete([key])

    assert found(dataset.check()) == {key: "error"}
    assert found(dataset.check(repair=True)) == {key: "error"}
    assert dataset.version == 2


def test_file_of_another_size_is_an_error(dataset, lake) -> None:
    key = key_of(dataset, "p=a")
    lake.store.put(key, lake.store.get(key).data + b"x")

    (problem,) = dataset.check().problems

    assert (problem.key, str(problem.severity)) == (key, "error")
    assert "was written with" in problem.what


def test_flipped_bit_is_found_by_the_deep_check_alone(dataset, lake) -> None:
    key = key_of(dataset, "p=b")
    data = bytearray(lake.store.get(key).data)
    data[len(data) // 2] ^= 1
    lake.store.put(key, bytes(data))

    assert dataset.check().is_ok
    (problem,) = dataset.check(deep=True).problems
    assert problem.key == key
    assert "checksum" in problem.what


def test_missing_file_of_an_older_version_is_an_error_until_it_is_cleaned_up(dataset, lake) -> None:
    (key,) = (file.key for file in dataset.at(version=1).files())
    lake.store.delete([key])

    assert found(dataset.check()) == {key: "error"}
    dataset.overwrite([row("a", 3)])
    sweep(dataset)
    assert dataset.check().is_ok


def test_file_that_a_cleanup_took_is_not_missing_by_a_clock_that_is_behind(tmp_path) -> None:
    """What readers of a table may still hold is kept by its note for a while, and only by cleanups."""
    days = lakebed.open_repository(tmp_path).create("days", DESCRIPTOR)
    now = dt.datetime.now(dt.UTC)
    with time_machine.travel(now + dt.timedelta(minutes=5)):
        days.append([row("a", 1)])
        days.publish("delta")
        days.overwrite([row("a", 2)])
        days.publish("delta")
    with time_machine.travel(now + dt.timedelta(minutes=5, seconds=5)):
        report = days.cleanup("0s", dry_run=False, clock_skew=dt.timedelta(0))
        assert report.counts == {"superseded": 1}

    assert days.check().is_ok


@pytest.mark.parametrize("target", ["version", "batch_id"])
@pytest.mark.parametrize("damage", ["missing", "longer", "flipped"])
def test_damaged_file_that_only_a_protection_keeps_is_an_error(
    dataset, lake, target, damage
) -> None:
    first = dataset.history()[1]
    (key,) = first.files_added
    dataset.protections.add(**{target: getattr(first, target)}, reason="audit")
    dataset.overwrite([row("a", 2), row("b", 2)])
    assert sweep(dataset).horizon > 1
    data = lake.store.get(key).data
    if damage == "missing":
        lake.store.delete([key])
    elif damage == "longer":
        lake.store.put(key, data + b"x")
    else:
        lake.store.put(key, bytes([data[0] ^ 1]) + data[1:])

    assert found(dataset.check(deep=True)) == {key: "error"}
    assert dataset.check().is_ok == (damage == "flipped")


def test_file_of_an_older_version_has_the_size_that_it_was_written_with(dataset, lake) -> None:
    (key,) = (file.key for file in dataset.at(version=1).files())
    lake.store.put(key, b"short")

    (problem,) = dataset.check().problems

    assert (problem.key, str(problem.severity)) == (key, "error")
    assert "It has 5 bytes" in problem.what


@pytest.mark.parametrize("is_live", [True, False])
def test_check_beside_a_cleanup_tells_of_nothing_that_is_given_up(dataset, lake, is_live) -> None:
    store = HaltingStore(lake.store, "list", "d/")

    def meanwhile() -> None:
        if is_live:
            dataset.overwrite([row("a", 2), row("b", 2)])
        sweep(dataset)

    store.then = meanwhile
    report = lakebed.Repository(store).open("d").check(deep=True)

    assert report.problems == ()
    assert len(data_keys(lake.store)) == 2  # the cleanup has deleted what the check knew


def test_check_beside_a_cleanup_still_tells_of_what_is_lost(dataset, lake) -> None:
    key = key_of(dataset, "p=b")
    lake.store.delete([key])
    store = HaltingStore(lake.store, "list", "d/")
    store.then = lambda: sweep(dataset)

    report = lakebed.Repository(store).open("d").check()

    assert found(report) == {key: "error"}


def test_unreadable_note_of_a_table_is_an_error_and_the_rest_is_checked(dataset, lake) -> None:
    lake.store.put("d/published/db.t.json", b"{")
    key = key_of(dataset, "p=b")
    lake.store.delete([key])

    report = dataset.check()

    assert found(report) == {"d/published/db.t.json": "error", key: "error"}
    (note,) = (one for one in report.problems if one.key != key)
    assert "publish" in note.remedy
    with pytest.raises(CorruptMetadataError, match=r"db\.t\.json"):
        dataset.cleanup()


@pytest.mark.parametrize("damage", ["truncated", "missing", "garbage"])
def test_facts_that_are_lost_are_rebuilt_from_the_files(dataset, lake, damage) -> None:
    wanted = dataset.files()
    keys = [one.key for one in lake.store.list("d/files")]
    for key in keys:
        if damage == "missing":
            lake.store.delete([key])
        else:
            lake.store.put(key, lake.store.get(key).data[:-9] if damage == "truncated" else b"?")

    before = dataset.check()
    repaired = dataset.check(repair=True)

    assert set(found(before).values()) == {"warning"}
    assert {*keys, *(file.key for file in wanted)} == set(found(before))
    assert repaired.is_ok
    assert all(one.is_repaired for one in repaired.findings)
    assert dataset.files() == wanted
    assert dataset.check(deep=True).is_ok
    assert dataset.where("n = 1").plan().explain()
    assert dataset.history()[-1].operation == "repair"


def test_rebuilt_facts_are_those_that_were_lost(dataset, lake) -> None:
    from lakebed.state import file_table
    from lakebed.state.reader import read_head

    def facts() -> list[dict]:
        from lakebed.store.cache import PROCESS_CACHE

        PROCESS_CACHE.clear()
        state = read_head(lake.store, "d").state
        rows = []
        for segment in state.lists.files:
            table = file_table.decode(lake.store.get(segment.key).data, segment.key)
            rows += [one for one in table.to_pylist() if one["label"] in state.labels]
        return sorted(rows, key=lambda one: one["label"])

    wanted = facts()
    for one in list(lake.store.list("d/files")):
        lake.store.put(one.key, b"?")

    dataset.check(repair=True)

    assert facts() == wanted


@pytest.mark.parametrize("file_format", ["avro", "submissions"])
def test_facts_of_other_formats_are_rebuilt_too(lake, file_format) -> None:
    fields = [("p", pa.string()), ("n", pa.int64())]
    rows = [row("a", 1)]
    if file_format == "submissions":
        fields += [("uuid", pa.string()), ("document", pa.string())]
        rows = [{"uuid": "u", "document": json.dumps(rows[0])}]
    descriptor = dataclasses.replace(
        DESCRIPTOR, format=file_format, schema=pa.schema(fields), compression="zstd"
    )
    dataset = lake.create("e", descriptor)
    dataset.append(rows)
    wanted = dataset.files()
    for one in list(lake.store.list("e/files")):
        lake.store.put(one.key, b"?")

    assert dataset.check(repair=True).is_ok
    assert dataset.files() == wanted


@pytest.mark.parametrize("content_of_file", [b"?", None, "other"])
def test_schema_file_is_written_anew(dataset, lake, content_of_file) -> None:
    key = "d/data/_common_metadata"
    right = lake.store.get(key).data
    if content_of_file is None:
        lake.store.delete([key])
    elif content_of_file == "other":
        sink = pa.BufferOutputStream()
        pq.write_metadata(pa.schema([("x", pa.int64())]), sink)
        lake.store.put(key, sink.getvalue().to_pybytes())
    else:
        lake.store.put(key, content_of_file)

    assert found(dataset.check()) == {key: "warning"}
    assert dataset.check(repair=True).is_ok
    assert lake.store.get(key).data == right


def test_damaged_postings_are_built_anew(dataset, lake) -> None:
    for one in list(lake.store.list("d/postings")):
        lake.store.delete([one.key])

    assert set(found(dataset.check()).values()) == {"warning"}
    assert dataset.check(repair=True).is_ok
    assert dataset.check(deep=True).is_ok
    assert dataset.where("n = 1").count() == 2
    assert list(lake.store.list("d/postings"))


def test_row_group_of_postings_is_looked_at_by_the_deep_check(dataset, lake) -> None:
    from lakebed.index.postings_writer import keys_of_postings
    from lakebed.state.reader import read_head

    key = keys_of_postings(read_head(lake.store, "d").state.lists.postings)[0]
    data = bytearray(lake.store.get(key).data)
    data[8] ^= 1
    lake.store.put(key, bytes(data))

    assert found(dataset.check(deep=True)) == {key: "warning"}


def test_damaged_history_is_an_error(dataset, lake) -> None:
    (key, *_) = (one.key for one in lake.store.list("d/history"))
    lake.store.put(key, b"?")

    report = dataset.check(repair=True)

    assert found(report) == {key: "error"}
    assert content(dataset) == [("a", 1), ("b", 1)]


def with_index(lake: lakebed.Repository, labels: list[str]) -> str:
    """Name an index file in the head, as plateau does."""
    key = "d/indices/n/2020-01-01.by-dataset-index.parquet"
    sink = pa.BufferOutputStream()
    table = pa.table({"n": pa.array([1]), "partition": pa.array([labels])})
    pq.write_table(table, sink)
    lake.store.put(key, sink.getvalue().to_pybytes())
    head_key = "d.by-dataset-metadata.json"
    head = json.loads(lake.store.get(head_key).data)
    lake.store.put(head_key, json.dumps({**head, "indices": {"n": key}}).encode())
    return key


@pytest.mark.parametrize("trouble", ["dangling", "incomplete", "unreadable", "missing"])
def test_index_of_plateau_that_is_not_right_is_taken_out(dataset, lake, trouble) -> None:
    head = json.loads(lake.store.get("d.by-dataset-metadata.json").data)
    labels = list(head["partitions"])
    key = with_index(
        lake, {"dangling": [*labels, "p=z/x"], "incomplete": labels[:1]}.get(trouble, labels)
    )
    assert trouble in ("dangling", "incomplete") or dataset.check().is_ok
    if trouble == "unreadable":
        lake.store.put(key, b"?")
    if trouble == "missing":
        lake.store.delete([key])

    assert found(dataset.check()) == {key: "error"}
    assert dataset.check(repair=True).is_ok
    assert not json.loads(lake.store.get("d.by-dataset-metadata.json").data).get("indices")


@pytest.mark.thorough
@pytest.mark.parametrize("is_complete", [True, False])
def test_index_file_is_checked_where_facts_of_many_dead_files_are_known_too(
    dataset, lake, is_complete: bool
) -> None:
    for n in range(20):
        dataset.rerun([row("z", n)], run="daily", replace_all=True)
    dataset.compact(metadata=True)
    head = json.loads(lake.store.get("d.by-dataset-metadata.json").data)
    assert head["indices"]
    if not is_complete:
        with_index(lake, list(head["partitions"])[:1])

    assert dataset.check().is_ok == is_complete
    assert dataset.check(repair=True).is_ok


def test_unreadable_head_is_found_and_missing_dataset_is_an_error(dataset, lake) -> None:
    lake.store.put("d.by-dataset-metadata.json", b'{"dataset_metadata_version": 4')

    report = dataset.check(repair=True)

    assert report.version is None
    assert not report.is_ok
    with pytest.raises(DatasetNotFoundError):
        lake.open("nothing").check()


def test_stale_second_head_is_a_warning(lake) -> None:
    dataset = lake.create("m", DESCRIPTOR, head_format="msgpack.zstd")
    dataset.append([row("a", 1)])
    old = lake.store.get("m.by-dataset-metadata.msgpack.zstd").data
    dataset.append([row("a", 2)])
    other = lake.create("j", DESCRIPTOR)
    other.append([row("a", 1)])
    lake.store.put("j.by-dataset-metadata.msgpack.zstd", old)

    (problem,) = other.check().problems

    assert problem.key == "j.by-dataset-metadata.msgpack.zstd"
    assert str(problem.severity) == "warning"


def test_what_is_not_needed_is_a_note_and_no_problem(dataset, lake) -> None:
    from lakebed.state.transaction import Transaction

    lake.store.put("d/readme.txt", b"x")
    Transaction.begin(lake.store, "d", "append")

    report = dataset.check()

    assert report.is_ok
    assert {str(one.severity) for one in report.findings} == {"note"}
    assert {one.what.partition(":")[0] for one in report.findings} == {"unknown", "reserved"}


def test_repair_deletes_nothing(dataset, lake) -> None:
    for one in list(lake.store.list("d/files")):
        lake.store.put(one.key, b"?")
    before = {one.key for one in lake.store.list("d/")}

    dataset.check(repair=True)

    assert before <= {one.key for one in lake.store.list("d/")}


def test_check_sees_what_another_process_has_damaged_since_this_one_read_it(dataset, lake) -> None:
    dataset.where("n = 1").count()
    for one in data_keys(lake.store):
        lake.store.size(one)
    for one in list(lake.store.list("d/files")):
        lake.store.delete([one.key])

    assert not dataset.check().is_ok


def test_report_is_json_and_html(dataset, lake) -> None:
    key = key_of(dataset, "p=a")
    lake.store.delete([key])
    report = dataset.check()

    document = json.loads(report.to_json())

    assert document["is_ok"] is False
    assert document["findings"][0]["key"] == key
    assert key in report._repr_html_()
    assert repr(report) == "<CheckReport of 'd': 2 files at version 2, 1 problem>"
