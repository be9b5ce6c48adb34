"""One damaged object beside the dataset is told of, and stops nothing else."""

import datetime as dt
import json
import logging
import time

import msgspec
import pytest
from upkeep_lake import (
    DESCRIPTOR,
    age,
    content,
    data_keys,
    live_keys,
    reasons,
    row,
    sweep,
)

import lakebed
from lakebed.errors import CorruptMetadataError
from lakebed.state.reservation import BatchRecord, decode_record, encode_record
from lakebed.state.transaction import Transaction

RECORD = {
    "batch_id": 1,
    "commit_id": "c",
    "operation": "append",
    "writer": "host/1",
    "started_at": "2026-01-01T00:00:00Z",
    "lease_until": "2026-01-02T00:00:00Z",
}
DAMAGED = {
    "empty": b"",
    "truncated": json.dumps(RECORD).encode()[:40],
    "no text": b"\xff\xfe",
    "of another batch": json.dumps({**RECORD, "batch_id": 2}).encode(),
    "a time without zone": json.dumps({**RECORD, "lease_until": "2026-01-02T00:00:00"}).encode(),
}
DAMAGED["a name of a member with a flipped bit"] = encode_record(
    msgspec.convert(RECORD, BatchRecord)
).replace(b'"operation"', b'"operatinn"')
DAMAGED["without a checksum"] = json.dumps(RECORD).encode()
KEY = "d/batches/1.json"


@pytest.fixture(params=DAMAGED)
def dataset(lake: lakebed.Repository, request: pytest.FixtureRequest) -> lakebed.Dataset:
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(3):
        dataset.overwrite([row("a", n)])
    lake.store.put(KEY, DAMAGED[request.param])
    return dataset


@pytest.mark.parametrize("mask", [0x01, 0x80])
def test_every_flipped_bit_of_a_staged_batch_is_an_error_and_never_another_batch(
    lake: lakebed.Repository, mask: int
) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    staged = dataset.staged.add([row("a", 1)], "overwrite")
    key = f"d/batches/{staged.batch_id}.json"
    data = bytes(lake.store.get(key).data)
    others = []
    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
        try:
            others.append((place, decode_record(flipped, key)))
        except CorruptMetadataError:
            continue

    assert others == []


@pytest.mark.parametrize("member", ["files", "scope", "staging", "row_count", "completed_at"])
def test_a_staged_batch_with_a_damaged_member_is_not_committed(
    lake: lakebed.Repository, member: str
) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    dataset.append([row("a", 0)])
    staged = dataset.staged.add([row("a", 1)], "overwrite")
    key = f"d/batches/{staged.batch_id}.json"
    data = bytes(lake.store.get(key).data)
    lake.store.put(key, data.replace(f'"{member}"'.encode(), f'"{member[:-1]}_"'.encode(), 1))

    with pytest.raises(CorruptMetadataError, match="cannot be read"):
        dataset.staged.open(staged.batch_id).commit()
    with pytest.raises(CorruptMetadataError, match="cannot be read"):
        staged.commit()

    assert content(dataset) == [("a", 0)]


def test_batches_that_can_be_read_are_listed_and_the_log_names_the_other(dataset, caplog) -> None:
    staged = dataset.staged.add([row("a", 9)])

    with caplog.at_level(logging.WARNING, logger="lakebed"):
        listed = dataset.batches()
        waiting = dataset.staged.list()

    assert [batch.batch_id for batch in listed if batch.is_staged] == [staged.batch_id]
    assert len(listed) == 4
    assert [one.batch_id for one in waiting] == [staged.batch_id]
    assert f"Reservation {KEY!r} cannot be read" in caplog.text


def test_check_names_it_as_a_problem_with_a_remedy(dataset, lake) -> None:
    (problem,) = dataset.check().problems

    assert (problem.severity, problem.key) == ("warning", KEY)
    assert "cannot be read" in problem.what
    assert "delete it" in problem.remedy
    lake.store.delete([KEY])
    assert dataset.check().is_ok


def test_cleanup_and_writing_go_on_and_it_stays(dataset, lake) -> None:
    report = sweep(dataset)
    dataset.append([row("b", 1)])

    assert report.counts == {"superseded": 2}
    assert reasons(report)[KEY] == "unknown"
    assert lake.store.get(KEY)
    assert content(dataset) == [("a", 2), ("b", 1)]
    assert [commit.operation for commit in dataset.history()][-2:] == ["cleanup", "append"]


def test_segments_that_nobody_names_go_though_it_cannot_say_what_is_its_own(lake, tmp_path) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(20):
        dataset.append([row("a", n)])
    lake.store.put(KEY, b"damaged")

    assert reasons(sweep(dataset))[KEY] == "unknown"
    assert sweep(dataset).files == ()  # its writer may be at work for a day
    age(tmp_path / "d", days=3)
    report = sweep(dataset)

    assert set(report.counts) == {"unreferenced"}
    assert len(content(dataset)) == 20
    assert dataset.check().problems[0].key == KEY


def test_batch_of_it_keeps_its_files_and_cannot_be_committed_after_its_segments_went(
    lake, tmp_path
) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(20):
        dataset.append([row("a", n)])
    staged = dataset.staged.add([row("b", 1)], lease="30d")
    key = f"d/batches/{staged.batch_id}.json"
    intact = lake.store.get(key).data
    lake.store.put(key, intact[:-20])
    dataset.append([row("a", 20)])
    before = data_keys(lake.store)
    age(tmp_path / "d", days=3)

    sweep(dataset)
    lake.store.put(key, intact)

    assert data_keys(lake.store) == before
    with pytest.raises(lakebed.errors.CommitConflictError, match="cleanup has given it up"):
        staged.commit()
    assert len(content(dataset)) == 21


def test_it_does_not_drive_the_ids_of_new_batches_ahead_of_the_clock(lake, tmp_path) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(3):
        dataset.overwrite([row("a", n)])
    lake.store.put(f"d/batches/{10**17}.json", b"damaged")
    age(tmp_path / "d", days=3)

    sweep(dataset)
    commit = dataset.append([row("b", 1)])

    assert commit.batch_id <= time.time() * 1000
    assert data_keys(lake.store) == live_keys(dataset)


def test_times_of_a_reservation_may_be_as_far_apart_as_they_like(lake) -> None:
    dataset = lake.create("d", DESCRIPTOR)
    living = Transaction.begin(lake.store, "d", "append")
    key = f"d/batches/{living.batch_id}.json"
    record = msgspec.structs.replace(
        decode_record(lake.store.get(key).data, key),
        started_at=dt.datetime(1, 1, 1, tzinfo=dt.UTC),
        lease_until=dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
    )
    lake.store.put(key, encode_record(record))

    assert reasons(sweep(dataset))[key] == "reserved"
