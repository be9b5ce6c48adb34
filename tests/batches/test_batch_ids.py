"""Batch ids of datasets that other tools share: seconds and dates, and when the process began."""

import dataclasses
import datetime as dt
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import CommitOptions, DatasetDescriptor
from lakebed.errors import InvalidInputError

SCHEMA = pa.schema([("dt", pa.string()), ("n", pa.int64())])
STARTED = dt.datetime(2015, 12, 10, 21, 56, 48, 123_000, tzinfo=dt.UTC)
OPTIONS = CommitOptions(begun_at=STARTED)


def make(form: str | None) -> lakebed.Dataset:
    properties = {} if form is None else {"batch.ids": form}
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by="dt", properties=properties)
    return lakebed.open_repository(f"memory://{uuid.uuid4().hex}").create("customers", descriptor)


@pytest.mark.parametrize(
    ("form", "first", "second"),
    [
        (None, 1449784608123, 1449784608124),
        ("milliseconds", 1449784608123, 1449784608124),
        ("seconds", 1449784608, 1449784609),
        ("yyyyMMddHHmm", 201512102156, 201512102157),
        ("yyyyMMddHHmmss", 20151210215648, 20151210215649),
    ],
)
def test_id_is_of_the_process_start_and_a_second_of_the_same_is_the_next(
    form: str | None, first: int, second: int
) -> None:
    customers = make(form)

    one = customers.with_options(commit=OPTIONS).append([{"dt": "20151210", "n": 1}], run="a")
    two = customers.with_options(commit=OPTIONS).rerun(
        [{"dt": "20151210", "n": 2}], run="a", replace_all=True
    )

    assert (one.batch_id, two.batch_id) == (first, second)
    assert [file.key.split("/")[-2] for file in customers.files()] == [f"batch_id={second}"]
    assert customers.at(batch_id=first).arrow()["n"].to_pylist() == [1]
    assert [one.started_at.date() for one in customers.batches()] == [STARTED.date()] * 2
    assert customers.where(f"batch_id = {second}").count() == 1


@pytest.mark.parametrize(
    ("form", "pattern"),
    [("seconds", "[0-9]{10}"), ("yyyyMMddHHmm", "2[0-9]{11}"), ("yyyyMMddHHmmss", "2[0-9]{13}")],
)
def test_writers_at_once_get_ids_of_the_form_and_each_its_own(form: str, pattern: str) -> None:
    customers = make(form)

    def write(n: int) -> int | None:
        return customers.append([{"dt": "20151210", "n": n}]).batch_id

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(write, range(8)))

    assert len(set(ids)) == 8
    assert all(re.fullmatch(pattern, str(batch_id)) for batch_id in ids)
    assert sorted(customers.arrow()["n"].to_pylist()) == list(range(8))


def test_start_in_the_future_is_now() -> None:
    customers = make(None)
    later = dt.datetime.now(dt.UTC) + dt.timedelta(hours=14)

    commit = customers.with_options(commit=CommitOptions(begun_at=later)).append(
        [{"dt": "1", "n": 1}]
    )

    assert commit.batch_id <= dt.datetime.now(dt.UTC).timestamp() * 1000


def test_start_before_a_batch_that_is_there_gives_the_next_id() -> None:
    customers = make("seconds")
    newest = customers.append([{"dt": "1", "n": 1}]).batch_id

    assert newest is not None
    commit = customers.with_options(commit=OPTIONS).append([{"dt": "1", "n": 2}])
    assert commit.batch_id == newest + 1


def test_every_verb_that_writes_takes_the_start_of_its_process(tmp_path: Path) -> None:
    customers = make("seconds")
    (tmp_path / "rows.jsonl").write_text('{"dt": "1", "n": 4}\n{"dt": "1", "n": "four"}\n')
    declared = lakebed.Ingest(
        name="nightly",
        into=customers.uri,
        source=lakebed.FromFiles(paths=str(tmp_path)),
        max_rejects=0.5,
    )
    with customers.with_options(commit=OPTIONS).kite.writer() as writer:
        writer.write({"dt": "1", "n": 1})
    with customers.with_options(commit=OPTIONS).transaction() as transaction:
        transaction.append([{"dt": "1", "n": 2}])
    customers.with_options(commit=OPTIONS).merge([{"dt": "2", "n": 2}], on="n")
    customers.load(tmp_path, options=lakebed.LoadOptions(commit=OPTIONS))
    declared.run(begun_at=STARTED)
    customers.with_options(commit=OPTIONS).staged.add([{"dt": "1", "n": 5}]).commit()

    rejects = lakebed.open_repository(customers.uri.rpartition("/")[0])["customers_quarantine"]
    first = int(STARTED.timestamp())
    assert [one.batch_id for one in customers.history()[1:]] == list(range(first, first + 6))
    assert [one.started_at.date() for one in rejects.batches()] == [STARTED.date()] * 2


def test_start_that_is_days_ahead_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"begun_at is 2999-12-10.*in the future"):
        CommitOptions(begun_at=STARTED.replace(year=2999))
    with pytest.raises(InvalidInputError, match="begun_at is 5"):
        lakebed.Ingest(
            name="a", into="memory://a/b", source=lakebed.FromFiles(paths="nowhere")
        ).run(begun_at=5)  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [None, "seconds", "yyyyMMddHHmm", "yyyyMMddHHmmss"])
def test_start_is_told_from_1990_on_and_refused_before(form: str | None) -> None:
    customers = make(form)
    first = dt.datetime(1990, 1, 1, tzinfo=dt.UTC)

    customers.with_options(commit=CommitOptions(begun_at=first)).append([{"dt": "1", "n": 1}])

    assert [one.started_at for one in customers.batches()] == [first]
    with pytest.raises(
        InvalidInputError, match="before 1990, which a batch id cannot always encode"
    ):
        CommitOptions(begun_at=first - dt.timedelta(seconds=1))


def test_start_needs_a_zone() -> None:
    with pytest.raises(InvalidInputError, match="without a time zone"):
        CommitOptions(begun_at=dt.datetime(2015, 12, 10))


def test_unknown_form_is_refused_before_anything_is_written() -> None:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    descriptor = DatasetDescriptor(schema=SCHEMA, properties={"batch.ids": "hours"})

    with pytest.raises(InvalidInputError, match="'hours'"):
        repository.create("customers", descriptor)

    assert repository.list() == []


def test_form_may_grow_and_not_shrink() -> None:
    customers = make("seconds")
    first = customers.append([{"dt": "1", "n": 1}]).batch_id
    described = customers.descriptor

    customers.evolve(
        dataclasses.replace(described, properties={"batch.ids": "milliseconds"}),
        base=customers.version,
    )
    second = customers.append([{"dt": "1", "n": 2}]).batch_id

    assert first is not None
    assert second is not None
    assert second > first * 100
    with pytest.raises(InvalidInputError, match="lower numbers"):
        customers.evolve(described, base=customers.version)


@pytest.mark.parametrize("form", ["seconds", "yyyyMMddHHmm"])
def test_cleanup_and_check_know_ids_of_every_form(form: str) -> None:
    customers = make(form)
    customers.with_options(commit=OPTIONS).rerun([{"dt": "1", "n": 1}], run="a", replace_all=True)
    customers.with_options(commit=OPTIONS).rerun([{"dt": "1", "n": 2}], run="a", replace_all=True)

    report = customers.cleanup(older_than="0s", dry_run=False)

    assert len([one for one in report.files if "/data/" in one.key]) == 1
    assert [one for one in customers.check().findings if one.severity != "note"] == []
    assert customers.arrow()["n"].to_pylist() == [2]
    third = customers.with_options(commit=OPTIONS).rerun(
        [{"dt": "1", "n": 3}], run="a", replace_all=True
    )
    assert third.batch_id is not None
    assert [batch.is_live for batch in customers.batches()][-1]
