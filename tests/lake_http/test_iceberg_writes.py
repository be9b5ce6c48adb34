"""Writes by the Iceberg catalog: rows and runs after them, requests again, and what it refuses."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asking import Answer, Client
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import CommitTableRequest, TableIdentifier
from pyiceberg.exceptions import (
    BadRequestError,
    CommitStateUnknownException,
    RESTError,
    ValidationException,
)

import lakebed
from lakebed import checks
from lakebed.cli import main
from lakebed.errors import InvalidInputError
from lakebed.tables.iceberg.catalog_tables import CatalogTables
from lakebed.web import IcebergDoor, create_app

TOKEN = "a-token-for-writes"
TABLE = "/v1/lake/namespaces/lake/tables/events"
SCHEMA = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("at", pa.timestamp("us", "UTC"))])
BEGIN = dt.datetime(2013, 1, 1, tzinfo=dt.UTC)
BESIDE = {"publish.iceberg": "true", "publish.iceberg.hide_batch_id": "true"}


def event(number: int, kind: str | None = None) -> dict[str, object]:
    kind = kind or ("click", "view", None)[number % 3]
    return {"id": number, "kind": kind, "at": BEGIN + dt.timedelta(hours=5 * number)}


def table_of(rows) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def events(numbers, kind: str | None = None) -> pa.Table:
    return table_of(event(number, kind) for number in numbers)


class Door:
    """A served lake with one dataset, and clients that write to it."""

    def __init__(
        self,
        folder: Path,
        mode: str = "cache",
        allowed: str = "all",
        *,
        rules=None,
        head: str = "document",
        **more,
    ) -> None:
        self.folder = folder
        self.lake = lakebed.open_repository(str(folder / "lake"))
        descriptor = lakebed.DatasetDescriptor(
            schema=SCHEMA,
            partition_by=["date(at) as day"],
            index=["id"],
            properties=BESIDE if mode == "beside" else {},
            checks=rules or {},
        )
        self.events = self.lake.create("events", descriptor, head=head)
        self.metadata = str(folder / "cache") if mode == "cache" else None
        self.client = self.serve(allowed, **more)

    def serve(self, allowed: str = "all", **more) -> Client:
        door = IcebergDoor(metadata=self.metadata, allow_writes=allowed, write_token=TOKEN)
        return Client(create_app(self.lake, iceberg=door, **more))

    def table(self, client: Client | None = None, token: str = TOKEN):
        uri = f"http://{(client or self.client).place}"
        catalog = load_catalog(uuid.uuid4().hex, type="rest", uri=uri, token=token)
        return catalog.load_table("lake.events")

    def request(self, rows: pa.Table) -> dict:
        """Upload files as a client does, and return its request to append them."""
        table, sent = self.table(), []

        def keep(_table, requirements, updates) -> None:
            sent.append(
                CommitTableRequest(
                    identifier=TableIdentifier(namespace=["lake"], name="events"),
                    requirements=requirements,
                    updates=updates,
                )
            )
            raise InterruptedError

        table.catalog.commit_table = keep
        with pytest.raises(InterruptedError):
            table.append(rows)
        return json.loads(sent[0].model_dump_json())

    def post(self, body: object, token: str | None = TOKEN, client: Client | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return (client or self.client).ask(TABLE, "POST", headers, data)

    @property
    def rows(self) -> Counter:
        rows = self.events.select(*SCHEMA.names).arrow().to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    @property
    def ids(self) -> list[int]:
        return sorted(self.events.select("id").arrow()["id"].to_pylist())

    def uploads(self, suffix: str) -> list[Path]:
        return sorted(self.folder.rglob(f"uploads/**/*{suffix}"))


def counter_of(*tables: pa.Table) -> Counter:
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


def error_of(answer: Answer) -> tuple[int, str, str]:
    document = json.loads(answer.body)["error"]
    assert document["code"] == answer.status
    return answer.status, document["type"], document["message"]


def assert_sound(door: Door) -> None:
    assert door.events.check().problems == ()
    for number in door.ids[:3]:
        plan = door.events.where(f"id = {number}").plan()
        assert len(plan.files) <= Counter(door.ids)[number], "the index is not complete"


@pytest.fixture
def door(tmp_path):
    door = Door(tmp_path)
    yield door
    door.client.stop()


@pytest.fixture(params=["cache", "beside"])
def either(request, tmp_path):
    door = Door(tmp_path, request.param)
    yield door
    door.client.stop()


# What clients write


def test_an_append_is_one_commit_with_a_run(either) -> None:
    either.events.append(events(range(10)), run="a")

    either.table().append(events(range(10, 30)))

    assert either.rows == counter_of(events(range(30)))
    last = list(either.events.history())[-1]
    assert (last.operation, last.row_count, last.version) == ("append", 20, 2)
    snapshot = either.table().metadata.current_snapshot()
    assert last.run == f"iceberg-{snapshot.snapshot_id}"
    assert either.events.where("id = 17").plan().files[0].partition["day"] == dt.date(2013, 1, 4)
    assert_sound(either)


def test_a_writable_table_has_a_folder_for_manifests_which_duckdb_does_not_make(either) -> None:
    for _ in range(2):  # a cleanup of uploads removes folders that it has emptied
        table = either.table()
        folder = Path(table.properties["write.metadata.path"].removeprefix("file://"))
        assert folder.is_dir()
        folder.rmdir()


def test_a_dataset_without_rows_takes_the_first(door) -> None:
    door.table().append(events(range(3)))

    assert door.ids == [0, 1, 2]
    assert_sound(door)


def test_compactions_join_what_many_appends_wrote(door) -> None:
    table = door.table()
    for number in range(4):
        table.append(events([number]))
    before = len(door.events.plan().files)

    door.events.compact()

    assert (before, len(door.events.plan().files)) == (4, 1)
    assert door.ids == [0, 1, 2, 3]


def test_rows_are_deleted_overwritten_and_upserted(either) -> None:
    either.events.append(events(range(12)), run="a")
    table = either.table()

    table.delete("id = 3")
    assert either.ids == [0, 1, 2, *range(4, 12)]
    table.overwrite(events([5], "sale"), overwrite_filter="id = 5")
    wanted = events([0, 1, 2, 4, *range(6, 12)])
    assert either.rows == counter_of(wanted, events([5], "sale"))
    given = pa.Table.from_pylist(
        [event(6, "sale"), event(40)], schema=SCHEMA.append(pa.field("day", pa.date32()))
    )
    table.upsert(given, join_cols=["id"])
    assert either.rows == counter_of(
        events([0, 1, 2, 4, *range(7, 12), 40]), events([5, 6], "sale")
    )
    assert_sound(either)


def test_reruns_afterwards_double_nothing(door) -> None:
    runs = {"a": range(8), "b": range(8, 16), None: range(16, 20)}
    for run, numbers in runs.items():
        door.events.append(events(numbers), run=run)
    table = door.table()

    table.delete("id = 2 or id = 9 or id = 17")  # rows of all of them
    table.overwrite(events([4], "sale"), overwrite_filter="id = 4")  # of one
    left = [*range(2), *range(3, 9), *range(10, 17), 18, 19]
    assert door.ids == left

    for run, numbers in runs.items():
        if run is not None:
            door.events.rerun(events(numbers), run, replace_all=True)
    assert door.rows == counter_of(events([*range(17), 18, 19]))
    assert_sound(door)


def test_new_rows_among_kept_ones_belong_to_no_other_run(door) -> None:
    day = [{**event(number), "at": BEGIN} for number in range(4)]
    door.events.append(table_of(day[:2]), run="a")
    door.events.append(table_of(day[2:]), run="b")
    door.events.compact()
    new = {**event(50), "at": BEGIN}

    # All rows are handed back, and one more.
    door.table().overwrite(table_of([*day, new]))
    door.events.rerun(table_of(day[:2]), "a", replace_all=True)

    assert door.ids == [0, 1, 2, 3, 50]


def test_changed_rows_of_several_runs_are_refused_by_name(door) -> None:
    door.events.append(events([1, 2]), run="a")
    door.events.append(events([3, 4]), run="b")

    with pytest.raises(BadRequestError, match=r"several runs.*'a', 'b'.*lakebed sql --write"):
        door.table().overwrite(events([1, 3], "sale"), overwrite_filter="id = 1 or id = 3")

    assert door.rows == counter_of(events([1, 2, 3, 4]))
    assert door.events.version == 2


def test_computed_columns_must_have_the_values_that_lakebed_computes(door) -> None:
    schema = SCHEMA.append(pa.field("day", pa.date32()))
    right = pa.Table.from_pylist([{**event(0), "day": BEGIN.date()}], schema=schema)
    wrong = pa.Table.from_pylist([{**event(1), "day": dt.date(2000, 1, 1)}], schema=schema)

    door.table().append(right)
    with pytest.raises(BadRequestError, match=r"'day'.*2000.*computes.*2013"):
        door.table().append(wrong)

    assert door.ids == [0]


def test_random_changes_equal_a_model_and_reruns_bring_runs_back(door) -> None:
    chosen, table = random.Random(5), door.table()
    by_run = {run: set(range(first, first + 10)) for run, first in (("a", 0), ("b", 10))}
    for run, numbers in by_run.items():
        door.events.append(events(numbers), run=run)
    live = set(range(20))
    for step in range(12):
        gone = set(chosen.sample(sorted(live), min(len(live), 2)))
        if step % 3:
            table.delete(" or ".join(f"id = {number}" for number in gone))
            live -= gone
        else:
            table.append(events([100 + step]))
            live.add(100 + step)
        assert door.ids == sorted(live)
    for run, numbers in by_run.items():
        door.events.rerun(events(numbers), run, replace_all=True)
        live |= numbers
    assert door.ids == sorted(live)
    assert_sound(door)


def test_changed_rows_that_fail_a_check_are_refused(tmp_path) -> None:
    rules = {"known": checks.condition("kind <> 'bad'", on_failure="reject")}
    door = Door(tmp_path, rules=rules)
    door.events.append(events(range(2)), run="a")
    table = door.table()

    table.append(events([3, 4], "bad"))  # rows that are new are left out
    with pytest.raises(BadRequestError, match="known"):
        table.overwrite(events([1], "bad"), overwrite_filter="id = 1")

    assert door.rows == counter_of(events(range(2)))
    door.client.stop()


def test_a_tree_takes_writes(tmp_path) -> None:
    door = Door(tmp_path, head="tree")
    door.events.append(events(range(6)), run="a")

    door.table().append(events([6]))
    door.table().delete("id = 2")

    assert door.ids == [0, 1, 3, 4, 5, 6]
    assert_sound(door)
    door.client.stop()


# Overwrites

SPARK_41 = {
    "engine-name": "spark",
    "engine-version": "4.1.3",
    "iceberg-version": "Apache Iceberg 1.11.0 (commit 6976e02)",
}
MERGE = {**SPARK_41, "spark.merge-into.num-target-rows-updated": "1"}
DYNAMIC = {**SPARK_41, "replace-partitions": "true"}


def replace(door: Door, condition: str, rows: pa.Table, properties: dict) -> None:
    """Replace files with matching rows in one snapshot, as Spark does, with a summary of its own."""
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    table = door.table()
    files = [task.file for task in table.scan(condition).plan_files()]
    with table.transaction() as transaction:
        change = transaction.update_snapshot(snapshot_properties=properties)
        with change.overwrite() as snapshot:
            for file in files:
                snapshot.delete_data_file(file)
            if not len(rows):
                return
            rows = rows.append_column("day", pa.nulls(len(rows), pa.date32()))
            for file in _dataframe_to_data_files(transaction.table_metadata, rows, table.io):
                snapshot.append_data_file(file)


def two_runs_a_day(door: Door) -> None:
    """Write three days, each with the rows of two runs."""
    for run, first in (("a", 0), ("b", 100)):
        rows = [{**event(first + day), "at": BEGIN + dt.timedelta(days=day)} for day in range(3)]
        door.events.append(table_of(rows), run=run)


def of_day(day: int, *numbers: int) -> pa.Table:
    return table_of({**event(one), "at": BEGIN + dt.timedelta(days=day)} for one in numbers)


def test_an_overwrite_of_a_day_replaces_rows_of_several_runs(either) -> None:
    two_runs_a_day(either)

    replace(either, "day = '2013-01-02'", of_day(1, 50, 51, 52), SPARK_41)

    assert either.ids == [0, 2, 50, 51, 52, 100, 102]
    last = list(either.events.history())[-1]
    assert (last.operation, last.version) == ("overwrite", 3)
    # A rerun brings the rows of its run back, as after an overwrite by Lakebed.
    either.events.rerun(of_day(1, 1), "a", replace_all=True)
    assert either.ids == [1, 50, 51, 52, 100, 102]
    assert_sound(either)


def test_rows_that_an_overwrite_hands_back_stay_with_their_runs(door) -> None:
    two_runs_a_day(door)

    replace(door, "day = '2013-01-02'", of_day(1, 1, 50, 51), SPARK_41)

    assert door.ids == [0, 1, 2, 50, 51, 100, 102]
    door.events.rerun(pa.concat_tables([of_day(n, n) for n in range(3)]), "a", replace_all=True)
    assert door.ids == [0, 1, 2, 50, 51, 100, 102]


def test_an_overwrite_of_the_whole_table_and_one_without_rows(door) -> None:
    two_runs_a_day(door)

    replace(door, "id >= 0", of_day(7, 60), SPARK_41)
    assert door.ids == [60]
    replace(door, "id >= 0", of_day(0), SPARK_41)

    assert door.ids == []
    assert door.events.version == 4
    assert_sound(door)


def test_a_dynamic_overwrite_replaces_the_days_of_its_rows_alone(either) -> None:
    two_runs_a_day(either)
    rows = pa.concat_tables([of_day(1, 50), of_day(9, 51)])

    # To the client the table has no partitions, so it removes all files.
    replace(either, "id >= 0", rows, DYNAMIC)

    assert either.ids == [0, 2, 50, 51, 100, 102]
    assert either.events.version == 3
    either.events.rerun(pa.concat_tables([of_day(0, 0), of_day(2, 2)]), "a", replace_all=True)
    assert either.ids == [0, 2, 50, 51, 100, 102]
    assert_sound(either)


def test_a_dynamic_overwrite_repeated_and_of_equal_rows_doubles_nothing(door) -> None:
    two_runs_a_day(door)

    for _ in range(2):
        replace(door, "id >= 0", of_day(1, 50), DYNAMIC)

    assert door.ids == [0, 2, 50, 100, 102]


def test_a_dynamic_overwrite_with_rows_that_may_be_changed_ones_is_refused(door) -> None:
    two_runs_a_day(door)

    with pytest.raises(BadRequestError, match=r"lakebed\.overwrite is false"):
        replace(door, "id >= 0", of_day(1, 50), {**DYNAMIC, "lakebed.overwrite": "false"})

    assert door.events.version == 2


def test_a_dynamic_overwrite_must_remove_all_files_of_its_days(door) -> None:
    two_runs_a_day(door)

    with pytest.raises(RESTError, match=r"leaves 1 of their data files"):
        replace(door, "id = 1", of_day(1, 50), DYNAMIC)

    assert door.events.version == 2


def test_a_dynamic_overwrite_whose_rows_all_fail_is_refused(tmp_path) -> None:
    rules = {"known": checks.condition("kind <> 'bad'", on_failure="reject")}
    door = Door(tmp_path, rules=rules)
    two_runs_a_day(door)

    with pytest.raises(BadRequestError, match="no row that may be written"):
        replace(door, "id >= 0", events([5], "bad"), DYNAMIC)

    assert door.events.version == 2
    door.client.stop()


def test_a_dynamic_overwrite_conflicts_with_what_comes_between(door, monkeypatch) -> None:
    two_runs_a_day(door)
    from lakebed.tables.iceberg import catalog_writes

    append_rows = catalog_writes.append_rows

    def append_late(*arguments):
        monkeypatch.setattr(catalog_writes, "append_rows", append_rows)
        door.events.append(of_day(1, 70))
        return append_rows(*arguments)

    monkeypatch.setattr(catalog_writes, "append_rows", append_late)
    with pytest.raises(ValidationException):  # after 409, pyiceberg looks at the other commit
        replace(door, "id >= 0", of_day(1, 50), DYNAMIC)

    assert 70 in door.ids
    assert 50 not in door.ids


@pytest.mark.parametrize(
    ("properties", "numbers"),
    [
        (SPARK_41, (50, 51)),  # as many rows as before: it may be an UPDATE
        (MERGE, (50, 51, 52)),
        ({**SPARK_41, "spark.merge-into.x": "0"}, (50, 51, 52)),
        ({**SPARK_41, "engine-version": "4.0.1"}, (50, 51, 52)),
        ({**SPARK_41, "iceberg-version": "Apache Iceberg 1.10.0"}, (50, 51, 52)),
        ({**SPARK_41, "engine-version": "four"}, (50, 51, 52)),
        ({**SPARK_41, "engine-name": "flink"}, (50, 51, 52)),
        ({**SPARK_41, "lakebed.overwrite": "false"}, (50, 51, 52)),
        ({}, (50, 51, 52)),
    ],
    ids=range(9),
)
def test_what_may_be_changed_rows_of_several_runs_is_refused(door, properties, numbers) -> None:
    two_runs_a_day(door)

    with pytest.raises(BadRequestError, match=r"several runs.*lakebed\.overwrite=true"):
        replace(door, "day = '2013-01-02'", of_day(1, *numbers), properties)

    assert door.events.version == 2


def test_rows_that_spark_merged_without_an_update_are_inserted_ones(door) -> None:
    two_runs_a_day(door)
    summary = {**MERGE, "spark.merge-into.num-target-rows-updated": "0"}

    replace(door, "day = '2013-01-02'", of_day(1, 1, 50), summary)  # 101 is deleted, 50 is inserted
    door.events.rerun(of_day(1, 101), "b", replace_all=True)

    assert door.ids == [0, 1, 2, 50, 101]


def test_the_property_of_a_snapshot_makes_an_overwrite(door) -> None:
    two_runs_a_day(door)
    table = door.table()
    overwrite = {"lakebed.overwrite": "True"}
    rows = of_day(1, 50, 51)

    table.overwrite(rows, overwrite_filter="id >= 0 and id < 102", snapshot_properties=overwrite)
    assert door.ids == [50, 51, 102]
    with pytest.raises(BadRequestError, match=r"lakebed\.overwrite is 'perhaps'"):
        table.overwrite(rows, snapshot_properties={"lakebed.overwrite": "perhaps"})

    assert door.ids == [50, 51, 102]
    assert_sound(door)


def test_rows_of_an_overwrite_that_fail_a_check_are_left_out(tmp_path) -> None:
    rules = {"known": checks.condition("kind <> 'bad'", on_failure="reject")}
    door = Door(tmp_path, rules=rules)
    two_runs_a_day(door)
    rows = pa.concat_tables([of_day(1, 51), events([5], "bad"), of_day(1, 52)])
    assert door.ids == [0, 1, 100, 102]  # the check refuses null, too

    replace(door, "day = '2013-01-02'", rows, SPARK_41)

    assert door.ids == [0, 51, 52, 100, 102]
    door.client.stop()


def test_random_overwrites_equal_a_model(door) -> None:
    chosen, model = random.Random(7), {day: Counter() for day in range(4)}
    door.events.append(of_day(0, 900), run="first")
    model[0][900] = 1
    for step in range(10):
        day, kind = chosen.randrange(4), chosen.choice(["day", "dynamic", "append", "whole"])
        numbers = [1000 + 10 * step + n for n in range(chosen.randrange(3, 6))]
        rows = of_day(day, *numbers)
        if kind == "append":
            door.events.append(rows, run=f"run {step}")
            model[day].update(numbers)
            continue
        if kind == "whole":
            model = {one: Counter() for one in range(4)}
        model[day] = Counter(numbers)
        date = (BEGIN + dt.timedelta(days=day)).date()
        condition = f"day = '{date}'" if kind == "day" else "id >= 0"
        properties = DYNAMIC if kind == "dynamic" else {"lakebed.overwrite": "true"}
        replace(door, condition, rows, properties)
        assert door.ids == sorted(number for one in model.values() for number in one)
    assert_sound(door)


# Requests again, and races


def test_a_repeated_request_changes_nothing(door) -> None:
    request = door.request(events([1, 2]))

    first, second = door.post(request), door.post(request)
    door.events.append(events([3]))
    third = door.post(request)

    assert [first.status, second.status, third.status] == [200, 200, 200]
    assert json.loads(second.body)["metadata"] == json.loads(first.body)["metadata"]
    assert door.ids == [1, 2, 3]


def test_an_answer_that_is_lost_leaves_one_commit(door, monkeypatch) -> None:
    load, version = CatalogTables.load, [door.events.version]

    def fail_after_a_commit(tables, name):
        if door.events.version > version[0]:
            raise RuntimeError
        return load(tables, name)

    first = door.request(events([1]))
    monkeypatch.setattr(CatalogTables, "load", fail_after_a_commit)
    table = door.table()
    with pytest.raises(CommitStateUnknownException):
        table.append(events([3]))
    version[0] = door.events.version
    assert door.post(first).status == 409
    monkeypatch.setattr(CatalogTables, "load", load)
    second = door.request(events([2]))
    monkeypatch.setattr(CatalogTables, "load", fail_after_a_commit)
    assert door.post(second).status == 500
    monkeypatch.setattr(CatalogTables, "load", load)

    assert door.post(second).status == 200
    assert door.ids == [2, 3]


SERVER = """
import os, sys
import lakebed
from lakebed.tables.iceberg.catalog_tables import CatalogTables
from lakebed.web import IcebergDoor, serve

folder, token = sys.argv[1:]
lake = lakebed.open_repository(f"{folder}/lake")
load, before = CatalogTables.load, lake.open("events").version


def die_after_a_commit(tables, name):
    if lake.open("events").version > before:
        os._exit(9)
    return load(tables, name)


CatalogTables.load = die_after_a_commit
serve(
    lake,
    port=0,
    iceberg=IcebergDoor(metadata=f"{folder}/cache", allow_writes="all", write_token=token),
    on_start=lambda url: print(url, flush=True),
)
"""


def test_a_server_killed_between_put_and_answer_leaves_one_commit(door) -> None:
    door.events.append(events([0]), run="a")
    request = door.request(events([1, 2]))
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(door.folder), TOKEN], stdout=subprocess.PIPE, text=True
    )
    place = process.stdout.readline().strip().removeprefix("http://")
    dying = object.__new__(Client)
    dying.place = place

    with pytest.raises(OSError):  # noqa: PT011 - however the connection ends
        door.post(request, client=dying)
    assert process.wait(30) == 9
    process.stdout.close()

    assert door.post(request).status == 200
    assert door.ids == [0, 1, 2]
    assert_sound(door)


def test_the_same_request_at_two_servers_at_once_is_one_commit(door) -> None:
    other = door.serve()
    for number in range(4):
        request, answers = door.request(events([number])), []

        def send(client, request=request, answers=answers) -> None:
            answers.append(door.post(request, client=client).status)

        threads = [threading.Thread(target=send, args=(one,)) for one in (door.client, other) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(answers) <= {200, 409}
        assert 200 in answers
    other.stop()
    assert door.ids == [0, 1, 2, 3]


def test_a_request_that_follows_another_snapshot_is_told_to_load_again(door) -> None:
    door.events.append(events([1]))
    request = door.request(events([2]))
    door.events.append(events([3]))

    status, kind, message = error_of(door.post(request))

    assert (status, kind) == (409, "CommitFailedException")
    assert "Load the table again" in message
    assert door.ids == [1, 3]


def test_pyiceberg_tries_again_after_the_commit_of_another(door) -> None:
    table = door.table()
    door.events.append(events([1]))

    table.append(events([2]))

    assert door.ids == [1, 2]


def test_four_clients_at_once_beside_writers_of_lakebed(door) -> None:
    door.events.append(events(range(4)), run="a")
    errors = []

    def append(first: int) -> None:
        try:
            table = door.table()
            for number in range(first, first + 4):
                table.append(events([number]))
        except Exception as exc:  # noqa: BLE001 - shown below
            errors.append(exc)

    def write(first: int) -> None:
        for number in range(first, first + 4):
            door.events.append(events([number]), run=f"w{number}")
            time.sleep(0.2)
        door.events.rerun(events(range(4)), "a", replace_all=True)

    threads = [threading.Thread(target=append, args=(100 * one,)) for one in range(1, 5)]
    threads.append(threading.Thread(target=write, args=(900,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    numbers = [100 * one + n for one in (1, 2, 3, 4, 9) for n in range(4)]
    assert door.rows == counter_of(events([*range(4), *numbers]))
    assert_sound(door)


def test_a_delete_is_refused_if_another_commit_came_between(door, monkeypatch) -> None:
    door.events.append(events(range(4)))
    from lakebed.tables.iceberg import catalog_writes

    take_back = catalog_writes.take_back

    def take_late(*arguments):
        monkeypatch.setattr(catalog_writes, "take_back", take_back)
        door.events.append(events([9]))
        return take_back(*arguments)

    monkeypatch.setattr(catalog_writes, "take_back", take_late)
    door.table().delete("id = 2")  # 409, and again

    assert door.ids == [0, 1, 3, 9]
    operations = [entry.operation for entry in door.events.history()]
    assert operations == ["create", "append", "append", "overwrite"]


# Strangers


def test_without_writes_nothing_is_offered(tmp_path) -> None:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    lake.create("events", lakebed.DatasetDescriptor(schema=SCHEMA))
    client = Client(create_app(lake, iceberg=IcebergDoor(metadata=str(tmp_path / "cache"))))

    offered = json.loads(client.get("/v1/config").body)["endpoints"]
    document = json.loads(client.get(TABLE).body)

    assert not any(one.endswith("/tables/{table}") and "POST" in one for one in offered)
    assert client.ask(TABLE, "POST", {}, b"{}").status == 405
    assert "write.data.path" not in document["metadata"]["properties"]


def test_the_token_for_writes_is_another_than_that_for_reads(tmp_path) -> None:
    door = Door(tmp_path, token="a-token-for-reads")
    request = door.request(events([1]))

    assert error_of(door.post(request, None))[:2] == (401, "NotAuthorizedException")
    assert error_of(door.post(request, "wrong"))[:2] == (401, "NotAuthorizedException")
    status, kind, message = error_of(door.post(request, "a-token-for-reads"))
    assert (status, kind) == (403, "ForbiddenException")
    assert TOKEN not in message
    assert door.table(token="a-token-for-reads").scan().count() == 0
    assert door.post(request).status == 200
    door.client.stop()


def test_reads_need_no_token_if_only_writes_have_one(door) -> None:
    request = door.request(events([1]))

    assert door.client.get(TABLE).status == 200
    assert error_of(door.post(request, None))[:2] == (401, "NotAuthorizedException")
    assert error_of(door.post(request, "None"))[:2] == (401, "NotAuthorizedException")
    assert error_of(door.post(request, "wrong"))[:2] == (403, "ForbiddenException")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"allow_writes": "some", "write_token": TOKEN}, "allow_writes is 'some'"),
        ({"allow_writes": "append"}, "without a token"),
        ({"write_token": TOKEN}, "none are allowed"),
        ({"allow_writes": "all", "write_token": "a b"}, "not allowed in a bearer token"),
    ],
)
def test_options_that_make_no_sense(options, said) -> None:
    with pytest.raises(InvalidInputError, match=said):
        IcebergDoor(**options)


def test_the_token_is_not_shown() -> None:
    assert TOKEN not in repr(IcebergDoor(allow_writes="all", write_token=TOKEN))


def test_the_command_line_needs_a_catalog_and_a_token(tmp_path) -> None:
    lake = str(tmp_path)
    ask = CliRunner().invoke

    alone = ask(main, ["serve", lake, "--allow-writes", "append"])
    without = ask(main, ["serve", lake, "--iceberg", "--allow-writes", "append"])

    assert "--allow-writes needs a catalog" in alone.output
    assert "LAKEBED_WRITE_TOKEN" in without.output
    assert (alone.exit_code, without.exit_code) == (2, 2)


def test_a_server_of_appends_refuses_all_else(tmp_path) -> None:
    door = Door(tmp_path, allowed="append")
    door.events.append(events(range(4)), run="a")

    door.table().append(events([4]))
    for change in (
        lambda table: table.delete("id = 2"),
        lambda table: table.overwrite(events([3], "sale"), overwrite_filter="id = 3"),
    ):
        with pytest.raises(RESTError, match=r"allows only appends.*lakebed sql --write"):
            change(door.table())

    assert door.ids == [0, 1, 2, 3, 4]
    door.client.stop()


def test_tables_that_cannot_be_written_say_why(tmp_path) -> None:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    lake.create("events", lakebed.DatasetDescriptor(schema=SCHEMA))
    shown = {"publish.iceberg": "true"}
    lake.create("shown", lakebed.DatasetDescriptor(schema=SCHEMA, properties=shown))
    client = Client(create_app(lake, iceberg=IcebergDoor(allow_writes="all", write_token=TOKEN)))
    snapshot = {"snapshot-id": 1, "manifest-list": "x", "summary": {"operation": "append"}}
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}
    body = json.dumps({"updates": [{"action": "add-snapshot", "snapshot": snapshot}, ref]})
    token = {"authorization": f"Bearer {TOKEN}"}

    virtual = client.ask(TABLE, "POST", token, body.encode())
    beside = client.ask(TABLE.replace("events", "shown"), "POST", token, body.encode())
    absent = client.ask(TABLE.replace("events", "other"), "POST", token, body.encode())

    assert error_of(virtual)[0] == error_of(beside)[0] == 406
    assert "--iceberg-metadata" in error_of(virtual)[2]
    assert "publish.iceberg.hide_batch_id" in error_of(beside)[2]
    assert error_of(absent)[:2] == (404, "NoSuchTableException")


def ref(**more: object) -> dict:
    own = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 5}
    return {**own, **more}


def snapshot(operation: str = "append", **more: object) -> dict:
    own = {"snapshot-id": 5, "manifest-list": "x", "summary": {"operation": operation}}
    return {"action": "add-snapshot", "snapshot": {**own, **more}}


REFUSED = [
    ([{"action": "add-schema", "schema": {}}], 406, "lakebed schema"),
    ([{"action": "set-properties", "updates": {"a": "b"}}], 406, "lakebed schema update"),
    ([{"action": "add-spec", "spec": {}}], 406, "lakebed create"),
    ([{"action": "remove-snapshots", "snapshot-ids": [1]}], 406, "lakebed cleanup"),
    ([snapshot(), ref(**{"ref-name": "audit"})], 406, "lakebed staged"),
    ([snapshot(), ref(type="tag")], 406, "lakebed protection"),
    ([ref()], 406, "lakebed rollback"),
    ([snapshot("replace"), ref()], 406, "lakebed compact"),
    ([snapshot()], 406, "lakebed staged"),
    ([snapshot(), ref(**{"snapshot-id": 6})], 406, "lakebed staged"),
    ([{"action": "conquer"}], 406, "'conquer'"),
    ([], 400, "changes nothing"),
    ([snapshot(**{"snapshot-id": 0}), ref()], 400, "the id 0"),
    ([snapshot(**{"snapshot-id": 2**63}), ref()], 400, ""),
    ([snapshot(), snapshot(**{"snapshot-id": 6}), ref()], 400, "does not follow"),
    ([snapshot(summary=5), ref()], 400, "cannot be read"),
    ([{"action": "add-snapshot"}], 400, "cannot be read"),
]


@pytest.fixture(scope="module")
def strange(tmp_path_factory):
    door = Door(tmp_path_factory.mktemp("strange"))
    door.events.append(events(range(4)), run="a")
    return door


@pytest.mark.parametrize(("updates", "status", "said"), REFUSED, ids=range(len(REFUSED)))
def test_other_changes_name_the_verb_that_makes_them(strange, updates, status, said) -> None:
    answer = error_of(strange.post({"updates": updates}))

    kind = "UnsupportedOperationException" if status == 406 else "BadRequestException"
    assert answer[:2] == (status, kind)
    assert said in answer[2]
    assert strange.events.version == 1


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("DELETE", TABLE, "Drop it with purge"),
        ("POST", "/v1/lake/tables/rename", "part of the key"),
        ("DELETE", "/v1/lake/namespaces/lake", "the lake itself"),
        ("POST", "/v1/lake/namespaces/lake/properties", "the lake itself"),
        ("POST", "/v1/lake/transactions/commit", "one table at a time"),
    ],
)
def test_what_a_dataset_does_not_do_is_refused_by_name(strange, method, path, said) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    source = {"namespace": ["lake"], "name": "events"}
    body = json.dumps({"source": source, "destination": source}).encode()

    answer = error_of(strange.client.ask(path, method, headers, body))

    assert answer[:2] == (406, "UnsupportedOperationException")
    assert said in answer[2]
    assert strange.events.version == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"updates": 5}',
        b'{"updates": [5]}',
        b'{"updates": [], "x": ' + b"[" * 100_000,
        b'{"updates": [{"action": "add-snapshot", "snapshot": ' + b'{"a":' * 50_000,
        json.dumps({"updates": [snapshot(), ref()] * 300}).encode(),
        json.dumps(
            {"requirements": [{"type": "x"}] * 500, "updates": [snapshot(), ref()]}
        ).encode(),
        json.dumps({"requirements": [{"type": "x"}], "updates": [snapshot(), ref()]}).encode(),
    ],
    ids=range(10),
)
def test_a_body_that_is_not_a_request(strange, body) -> None:
    assert error_of(strange.post(body))[:2] == (400, "BadRequestException")
    assert strange.events.version == 1


def test_a_long_body_is_refused(strange) -> None:
    assert error_of(strange.post(b" " * ((1 << 20) + 1)))[0] == 413


def set_list(request: dict, location: str) -> None:
    (own,) = (one for one in request["updates"] if one["action"] == "add-snapshot")
    own["snapshot"]["manifest-list"] = location


def list_of(request: dict) -> Path:
    (own,) = (one for one in request["updates"] if one["action"] == "add-snapshot")
    return Path(own["snapshot"]["manifest-list"].removeprefix("file://"))


def changed(path: Path, change) -> None:
    """Change the records of an Avro file."""
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    records = list(reader)
    for record in records:
        change(record)
    out = io.BytesIO()
    meta = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    fastavro.writer(out, reader.writer_schema, records, metadata=meta)
    path.write_bytes(out.getvalue())


def own_manifest(request: dict, door: Door) -> Path:
    (own,) = (
        record["manifest_path"]
        for record in fastavro.reader(io.BytesIO(list_of(request).read_bytes()))
        if "uploads" in record["manifest_path"]
    )
    return Path(own.removeprefix("file://"))


def list_elsewhere(door, request) -> None:
    set_list(request, "file:///etc/passwd")


def list_above(door, request) -> None:
    path = list_of(request)
    set_list(request, f"file://{path.parent}/../../../../../../etc/passwd")


def list_of_ours(door, request) -> None:
    current = door.table().metadata.current_snapshot()
    set_list(request, current.manifest_list)


def list_missing(door, request) -> None:
    list_of(request).unlink()


def list_of_garbage(door, request) -> None:
    list_of(request).write_bytes(random.Random(1).randbytes(5000))


def list_that_is_cut(door, request) -> None:
    path = list_of(request)
    path.write_bytes(path.read_bytes()[:-60])


def list_with_lying_lengths(door, request) -> None:
    path = list_of(request)
    data = bytearray(path.read_bytes())
    data[-40:-16] = b"\xfe\xff\xff\xff\x7f" * 4 + b"\x7f" * 4
    path.write_bytes(bytes(data))


def manifest_elsewhere(door, request) -> None:
    changed(list_of(request), lambda record: record.update(manifest_path="file:///etc/hosts"))


def manifest_of_ours(door, request) -> None:
    ours = next((door.folder / "cache").rglob("iceberg/metadata/*-m0.avro"))
    own = str(own_manifest(request, door))

    def change(record) -> None:
        if own in record["manifest_path"]:
            record["manifest_path"] = f"file://{ours}"

    before = list_of(request)
    changed(before, change)


def manifest_of_garbage(door, request) -> None:
    own_manifest(request, door).write_bytes(b"Obj\x01" + random.Random(1).randbytes(5000))


def manifest_of_deletes(door, request) -> None:
    changed(list_of(request), lambda record: record.update(content=1))


def of_files(**values):
    def change(door, request) -> None:
        changed(own_manifest(request, door), lambda record: record["data_file"].update(values))

    return change


def file_of_another_table(door, request) -> None:
    other = next((door.folder / "lake" / "events" / "data").rglob("*.parquet"))
    of_files(file_path=f"file://{other}")(door, request)


def data_of_request(request, door) -> Path:
    records = fastavro.reader(io.BytesIO(own_manifest(request, door).read_bytes()))
    (path,) = (record["data_file"]["file_path"] for record in records)
    return Path(path.removeprefix("file://"))


def data_missing(door, request) -> None:
    data_of_request(request, door).unlink()


def data_behind_a_link(door, request) -> None:
    path = data_of_request(request, door)
    other = path.rename(door.folder / "secret.parquet")
    path.symlink_to(other)


def data_of_garbage(door, request) -> None:
    path = data_of_request(request, door)
    path.write_bytes(random.Random(2).randbytes(path.stat().st_size))


def data_with_damage_inside(door, request) -> None:
    path = data_of_request(request, door)
    data = bytearray(path.read_bytes())
    data[4:60] = random.Random(3).randbytes(56)
    path.write_bytes(bytes(data))


def data_with_other_ids(door, request) -> None:
    path = data_of_request(request, door)
    table = pq.read_table(path)
    ids = [field.with_metadata({"PARQUET:field_id": "77"}) for field in table.schema]
    pq.write_table(table.cast(pa.schema(ids)), path)
    of_files(file_size_in_bytes=path.stat().st_size)(door, request)


def data_with_a_strange_column(door, request) -> None:
    path = data_of_request(request, door)
    table = pq.read_table(path).append_column("strange", pa.array([1, 2]))
    pq.write_table(table, path)
    of_files(file_size_in_bytes=path.stat().st_size)(door, request)


def data_with_computed(*columns: pa.Array):
    """Put other columns with the name and id of the partition field into the data."""

    def attack(door, request) -> None:
        path = data_of_request(request, door)
        table = pq.read_table(path)
        field = table.schema.field("day")
        table = table.drop_columns("day")
        for column in columns:
            table = table.append_column(field.with_type(column.type), column)
        pq.write_table(table, path)
        of_files(file_size_in_bytes=path.stat().st_size)(door, request)

    return attack


DAYS = pa.array([BEGIN.date()] * 2)
HOSTILE = {
    list_elsewhere: (400, "where clients upload"),
    list_above: (400, ""),
    list_of_ours: (400, "where clients upload"),
    list_missing: (400, "it is missing"),
    list_of_garbage: (400, "list of manifests"),
    list_that_is_cut: (400, "list of manifests"),
    list_with_lying_lengths: (400, "list of manifests"),
    manifest_elsewhere: (400, ""),
    manifest_of_ours: (400, ""),
    manifest_of_garbage: (400, "manifest"),
    manifest_of_deletes: (406, "lakebed sql --write"),
    of_files(content=1): (406, "lakebed sql --write"),
    of_files(file_format="ORC"): (406, "ORC"),
    of_files(file_path="file:///etc/passwd"): (400, "where clients upload"),
    of_files(file_path="/etc/passwd"): (400, "where clients upload"),
    of_files(file_path="s3://other/data/x.parquet"): (400, "where clients upload"),
    of_files(file_path="x.parquet"): (400, "where clients upload"),
    file_of_another_table: (400, "where clients upload"),
    of_files(record_count=1): (400, "rows, and not those of its manifest, 1"),
    of_files(file_size_in_bytes=10): (400, "bytes, and not those of its manifest, 10"),
    data_missing: (400, "it is missing"),
    data_behind_a_link: (400, "a link to another place"),
    data_of_garbage: (400, "data file"),
    data_with_damage_inside: (400, "data file"),
    data_with_other_ids: (400, "has not the id"),
    data_with_a_strange_column: (400, "is not in the table"),
    data_with_computed(pa.array(["x", "y"])): (400, "has type string, and not date32"),
    data_with_computed(pa.array([[1], [2]])): (400, "has type list"),
    data_with_computed(DAYS, DAYS): (400, "two columns of one name"),
}


@pytest.mark.parametrize(
    ("attack", "wanted"),
    HOSTILE.items(),
    ids=[f"{number}-{attack.__name__}" for number, attack in enumerate(HOSTILE)],
)
def test_hostile_files_are_refused(strange, attack, wanted) -> None:
    request = strange.request(events([8, 9]))
    attack(strange, request)

    status, kind, message = error_of(strange.post(request))

    assert status == wanted[0], message
    assert wanted[1] in message
    assert kind in ("BadRequestException", "UnsupportedOperationException")
    assert strange.events.version == 1
    assert strange.rows == counter_of(events(range(4)))
    left = strange.lake.open("events").check()
    assert left.problems == ()


@pytest.mark.parametrize("change", [lambda path: path.write_bytes(b"PAR1"), Path.unlink])
def test_a_later_change_of_an_upload_changes_nothing(either, change) -> None:
    either.table().append(events(range(5)))
    assert len(either.uploads(".parquet")) > 0

    for path in [*either.uploads(".parquet"), *either.uploads(".avro")]:
        change(path)

    assert either.rows == counter_of(events(range(5)))
    assert either.events.check(deep=True).problems == ()


def test_removed_files_must_be_live(strange) -> None:
    request = strange.request(events([8]))
    path = list_of(request)
    reader = fastavro.reader(io.BytesIO(path.read_bytes()))
    records = [one for one in reader if "uploads" in one["manifest_path"]]
    out = io.BytesIO()
    fastavro.writer(out, reader.writer_schema, records)
    path.write_bytes(out.getvalue())

    # The request says that it appends, and leaves out what the table has.
    status, _, message = error_of(strange.post(request))

    assert (status, "removes" in message) == (400, True)
    assert strange.events.version == 1


# Cleanup


@pytest.mark.parametrize("mode", ["cache", "beside"])
def test_cleanups_delete_uploads_after_a_while(tmp_path, mode) -> None:
    door = Door(tmp_path, mode)
    door.table().append(events([1]))
    door.request(events([2]))  # a client that has not committed yet
    assert len(door.uploads(".parquet")) == 2
    old = (dt.datetime.now() - dt.timedelta(days=8)).timestamp()
    first = min(door.uploads(".parquet"), key=lambda path: path.stat().st_mtime)
    lists = min(door.uploads(".avro"), key=lambda path: path.stat().st_mtime)
    for path in (first, lists):
        os.utime(path, (old, old))

    report = door.events.cleanup("0s", dry_run=False)
    door.events.append(events([3]))
    door.table()

    left = {*door.uploads(".parquet"), *door.uploads(".avro")}
    assert not left & {first, lists}
    assert len(door.uploads(".parquet")) == 1
    if mode == "beside":
        noted = {file.note for file in report.files if "/uploads/" in file.key}
        assert noted == {"A client of the Iceberg catalog has uploaded it, and is done."}
    assert door.ids == [1, 3]
    assert door.events.check().problems == ()
    door.client.stop()
