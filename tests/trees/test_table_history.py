"""Older versions of Delta and Iceberg tables that are taken over with the table."""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, Schema, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

import lakebed
from lakebed.cli import main
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    DatasetExistsError,
    InvalidInputError,
    StorageError,
    VersionNotFoundError,
)
from lakebed.testing import FailingStore

DAYS = [dt.date(2013, 1, 1), dt.date(2013, 1, 2), None]
COMMITS = 200


def rows(first: int, count: int = 6) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "day": [DAYS[n % 3] for n in numbers],
            "name": ["ü %", "a/b", None][:1] * count,
            "n": pa.array(numbers, pa.int64()),
        }
    )


def numbers(view: lakebed.View) -> list[int]:
    return sorted(view.arrow(["n"]).column("n").to_pylist())


def of_delta(home: Path, version: int | None = None) -> list[int]:
    table = DeltaTable(home, version=version)
    return sorted(table.to_pyarrow_table(columns=["n"]).column("n").to_pylist())


def held(home: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()
    }


def set_time(home: Path, version: int, moment: dt.datetime) -> None:
    path = home / "_delta_log" / f"{version:020}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = int(moment.timestamp() * 1000)
    path.write_text("\n".join(map(json.dumps, lines)))


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    (tmp_path / "wh").mkdir()
    return lakebed.open_repository(tmp_path / "wh")


@pytest.fixture
def delta(tmp_path: Path, lake) -> Path:
    """A table of five versions: two appends, a delete, an overwrite, an append."""
    home = tmp_path / "wh" / "d"
    write_deltalake(home, rows(0), partition_by=["day", "name"])
    write_deltalake(home, rows(6), mode="append")
    DeltaTable(home).delete("n % 4 = 0")
    write_deltalake(home, rows(20), mode="overwrite")
    write_deltalake(home, rows(30), mode="append")
    for version in range(5):
        set_time(home, version, dt.datetime(2020, 1, 1 + version, tzinfo=dt.UTC))
    return home


@pytest.mark.thorough
def test_200_commits_with_deletes_read_equal_at_each_version_and_time(tmp_path, lake):
    home = tmp_path / "wh" / "d"
    for number in range(COMMITS):
        if number % 10 == 9:
            DeltaTable(home).delete(f"n % 7 = {number // 10 % 7}")
        elif number == 150:
            DeltaTable(home).optimize.compact()
        else:
            write_deltalake(home, rows(number * 6), mode="append", partition_by=["day"])
    before = held(home)

    taken = lake.adopt("d", delta=True, history=True)

    assert numbers(taken) == of_delta(home)
    commits = taken.history()
    assert [commit.version for commit in commits] == list(range(COMMITS + 2))
    theirs = DeltaTable(home).history()
    operations = [f"delta {one['operation'].lower()}" for one in reversed(theirs)]
    assert [commit.operation for commit in commits] == ["create", *operations, "adopt"]
    for one in theirs[::9]:
        version = one["version"]
        moment = dt.datetime.fromtimestamp(one["timestamp"] / 1000, dt.UTC)
        assert commits[version + 1].committed_at == moment
        known = of_delta(home, version)
        assert numbers(taken.at(version=version + 1)) == known
        assert numbers(taken.at(time=moment)) == known
    assert {key: held(home)[key] for key in before} == before
    assert not taken.check(deep=True).problems


def test_moments_between_commits_are_answered_as_the_table_did(lake, delta):
    taken = lake.adopt("d", delta=True, history=True)

    for version in range(5):
        moment = dt.datetime(2020, 1, 1 + version, 13, tzinfo=dt.UTC)
        assert numbers(taken.at(time=moment)) == of_delta(delta, version)
    assert numbers(taken.at(time="2024-02-29")) == of_delta(delta)
    with pytest.raises(VersionNotFoundError) as caught:
        taken.at(time=dt.datetime(2019, 1, 1, tzinfo=dt.UTC))
    assert "created at 2020-01-01" in caught.value.hint
    batch = taken.history()[2].batch_id
    assert batch == dt.datetime(2020, 1, 2, tzinfo=dt.UTC).timestamp() * 1000
    assert numbers(taken.at(batch_id=batch)) == of_delta(delta, 1)


def test_rows_of_a_commit_are_told_where_its_log_tells_them(lake, delta):
    commits = lake.adopt("d", delta=True, history=True).history()

    assert [commit.row_count for commit in commits][:3] == [0, 6, 6]
    assert commits[1].inserted_row_count == 6
    # A delete writes files again, and the log does not say how many rows stayed.
    assert commits[3].inserted_row_count is commits[3].deleted_row_count is None


def test_dataset_with_the_history_of_a_table_is_written_rolled_back_and_cleaned_up(lake, delta):
    taken = lake.adopt("d", delta=True, history=True)
    known = of_delta(delta, 1)

    taken.append(rows(50))
    taken.rollback(version=2)
    assert numbers(taken) == known
    taken.protections.add(version=4, reason="to compare")
    taken.cleanup(older_than="0s", dry_run=False)
    assert numbers(taken) == known
    assert numbers(taken.at(version=4)) == list(range(20, 26))
    with pytest.raises(VersionNotFoundError, match="was cleaned up"):
        taken.at(version=3).count()
    assert not taken.check(deep=True).problems


def test_without_the_word_no_older_version_is_taken_over(lake, delta):
    taken = lake.adopt("d", delta=True)

    assert [commit.operation for commit in taken.history()] == ["create", "adopt"]


def test_versions_whose_files_were_vacuumed_are_left_out_and_told(lake, delta):
    gone = set(DeltaTable(delta, version=1).file_uris()) - set(
        DeltaTable(delta, version=2).file_uris()
    )
    assert gone
    for uri in gone:
        Path(uri.removeprefix("file://")).unlink()

    found = lake.adopt("d", delta=True, history=True, dry_run=True)
    assert "3 versions, 2 to 4, become versions 1 to 3" in str(found)
    assert "Older ones are left out, since they cannot be read: version 1: its file" in str(found)
    taken = lake.adopt("d", found)

    for version in (2, 3, 4):
        assert numbers(taken.at(version=version - 1)) == of_delta(delta, version)
    assert taken.history()[0].committed_at == dt.datetime(2020, 1, 3, tzinfo=dt.UTC)


def test_gap_ends_the_history_so_that_no_moment_finds_a_wrong_version(lake, delta):
    only = set(DeltaTable(delta, version=3).file_uris()) - set(
        DeltaTable(delta, version=4).file_uris()
    )
    assert not only  # an append keeps all
    set_of = [set(DeltaTable(delta, version=number).file_uris()) for number in range(5)]
    of_second = set_of[2] - set_of[1] - set_of[3]
    Path(of_second.pop().removeprefix("file://")).unlink()

    taken = lake.adopt("d", delta=True, history=True)

    # Versions 0 and 1 still have all their files, but 2 comes between them and the rest.
    assert [commit.operation for commit in taken.history()] == [
        "create",
        "delta write",
        "delta write",
        "adopt",
    ]
    with pytest.raises(VersionNotFoundError):
        taken.at(time=dt.datetime(2020, 1, 2, 12, tzinfo=dt.UTC))


def test_log_whose_first_commits_are_gone_begins_with_a_checkpoint(lake, delta):
    DeltaTable(delta, version=2).create_checkpoint()
    DeltaTable(delta).create_checkpoint()
    for version in (0, 1):
        (delta / "_delta_log" / f"{version:020}.json").unlink()

    taken = lake.adopt("d", delta=True, history=True)

    for version in (2, 3, 4):
        assert numbers(taken.at(version=version - 1)) == of_delta(delta, version)
    assert taken.history()[1].operation == "delta delete"


def test_log_that_begins_after_its_checkpoints_has_no_history(lake, delta):
    DeltaTable(delta).create_checkpoint()
    for version in range(4):
        (delta / "_delta_log" / f"{version:020}.json").unlink()

    found = lake.adopt("d", delta=True, history=True, dry_run=True)
    taken = lake.adopt("d", found)

    assert "1 versions, 4 to 4" in str(found) or "1 version" in str(found)
    assert numbers(taken.at(version=1)) == of_delta(delta)


def test_column_that_was_added_reads_as_null_in_older_versions(lake, delta):
    more = rows(60).append_column("more", pa.array([1.5] * 6))
    write_deltalake(delta, more, mode="append", schema_mode="merge")

    taken = lake.adopt("d", delta=True, history=True)

    assert numbers(taken.at(version=1)) == of_delta(delta, 0)
    assert set(taken.at(version=1).arrow(["more"]).column("more").to_pylist()) == {None}
    assert taken.arrow(["more"]).column("more").null_count == taken.count() - 6


def test_versions_of_other_columns_are_left_out_and_told(lake, delta):
    write_deltalake(
        delta,
        pa.table({"day": DAYS, "name": ["x"] * 3, "n": ["1", "2", "3"]}),
        mode="overwrite",
        schema_mode="overwrite",
    )
    write_deltalake(
        delta,
        pa.table({"day": DAYS, "name": ["x"] * 3, "n": ["4", "5", "6"]}),
        mode="append",
    )

    found = lake.adopt("d", delta=True, history=True, dry_run=True)
    taken = lake.adopt("d", found)

    assert "version 4: its column 'n' has another type" in str(found)
    assert numbers(taken) == list("123456")
    assert numbers(taken.at(version=1)) == list("123")


def test_versions_with_deletion_vectors_are_left_out_and_told(lake, delta):
    log = (delta / "_delta_log" / f"{1:020}.json").read_text()
    path = next(line["add"]["path"] for line in map(json.loads, log.splitlines()) if "add" in line)
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    for version in range(5):
        log = delta / "_delta_log" / f"{version:020}.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            for action in (line.get("add"), line.get("remove")):
                if action is not None and action["path"] == path:
                    action["deletionVector"] = vector
        log.write_text("\n".join(map(json.dumps, lines)))

    found = lake.adopt("d", delta=True, history=True, dry_run=True)

    assert "has a deletion vector" in str(found)
    # The file may also be one that a delete has taken out.
    operations = [version.operation for version in found.versions]
    assert operations[-2:] == ["delta write", "delta write"]
    assert len(operations) < 5


def test_clock_that_ran_ahead_or_backwards_keeps_the_order(lake, delta):
    set_time(delta, 2, dt.datetime(2019, 1, 1, tzinfo=dt.UTC))
    set_time(delta, 4, dt.datetime(2999, 1, 1, tzinfo=dt.UTC))

    taken = lake.adopt("d", delta=True, history=True)

    times = [commit.committed_at for commit in taken.history()]
    assert times == sorted(times)
    assert times[-1] <= dt.datetime.now(dt.UTC)
    batches = [commit.batch_id for commit in taken.history() if commit.batch_id]
    assert batches == sorted(set(batches))
    taken.append(rows(90))
    assert numbers(taken) == [*of_delta(delta), *range(90, 96)]


def test_commit_that_cannot_be_read_is_named(lake, delta):
    (delta / "_delta_log" / f"{1:020}.json").write_text("{")

    with pytest.raises(CorruptMetadataError, match="cannot be read"):
        lake.adopt("d", delta=True, history=True)


def test_history_of_other_files_is_refused(lake, delta):
    for options in ({}, {"kite": True}, {"kartothek": True}):
        with pytest.raises(InvalidInputError, match="have a history that can be adopted"):
            lake.adopt("d", history=True, **options)


def test_table_that_is_written_to_meanwhile_is_refused_with_its_history(lake, delta):
    found = lake.adopt("d", delta=True, history=True, dry_run=True)
    write_deltalake(delta, rows(90), mode="append")

    with pytest.raises(CommitConflictError, match="was written to while it was adopted"):
        lake.adopt("d", found)
    assert lake.list() == []


@pytest.mark.parametrize("operation", ["create", "put", "replace"])
def test_adoption_that_fails_leaves_the_source_and_can_be_repeated(lake, delta, operation):
    before = held(delta)
    for nth in range(1, 12):
        store = FailingStore(
            lake.store,
            fail_on=operation,
            nth=nth,
            error=StorageError("The disk is full.", hint="", retryable=False),
        )
        try:
            lakebed.Repository(store).adopt("d", delta=True, history=True)
        except StorageError:
            assert {key: data for key, data in held(delta).items() if key in before} == before
            assert not lake.exists("d") or lake["d"].version == 0
        if not store.has_failed:
            break
        if lake.exists("d") and lake["d"].version == 0:
            lake.drop("d")
        if lake.exists("d"):
            break
    else:
        pytest.fail("it fails for ever")
    assert numbers(lake["d"].at(version=3)) == of_delta(delta, 2)


def test_empty_dataset_of_a_plain_adoption_is_not_given_an_older_history(lake, delta, monkeypatch):
    def fail(*_):
        raise StorageError("The disk is full.", hint="")

    with monkeypatch.context() as patched:
        patched.setattr("lakebed.work.adoption.commit_adoption", fail)
        with pytest.raises(StorageError):
            lake.adopt("d", delta=True)
    assert lake["d"].version == 0

    with pytest.raises(DatasetExistsError, match="after the first version of the table") as caught:
        lake.adopt("d", delta=True, history=True)
    assert "drop it" in caught.value.hint
    lake.drop("d")
    assert lake.adopt("d", delta=True, history=True).version == 6


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    uri = f"sqlite:///{tmp_path}/c.db"
    with SqlCatalog("tests", uri=uri, warehouse=f"file://{tmp_path}/wh") as catalog:
        catalog.create_namespace("web")
        yield catalog


@pytest.fixture
def iceberg(tmp_path: Path, lake, catalog) -> Table:
    """A table of four snapshots, whose schema has gained and lost a column."""
    first = rows(0).append_column("old", pa.array(["x"] * 6))
    table = catalog.create_table("web.e", first.schema, location=f"file://{tmp_path}/wh/e")
    table.append(first)
    with table.update_schema() as schema:
        schema.add_column("more", LongType())
    table.append(first.append_column("more", pa.array(range(6), pa.int64())))
    with table.update_schema() as schema:
        schema.delete_column("old")
        schema.add_column("note", StringType())
    table.delete("n < 3")
    table.append(table.scan().to_arrow().slice(0, 2))
    return table


def test_snapshots_of_a_table_whose_schema_evolved_read_equal(lake, iceberg):
    snapshots = iceberg.snapshots()

    found = lake.adopt("e", iceberg=True, history=True, dry_run=True)
    taken = lake.adopt("e", found)

    def plain(table: pa.Table) -> list[dict]:
        columns = ["day", "name", "n", "more"]
        kept = table.select([name for name in columns if name in table.column_names])
        return sorted(({"more": None} | row for row in kept.to_pylist()), key=str)

    assert plain(taken.arrow()) == plain(iceberg.scan().to_arrow())
    assert "old" not in taken.arrow().column_names
    assert set(taken.arrow(["note"]).column("note").to_pylist()) == {None}
    commits = taken.history()
    assert len(commits) == len(snapshots) + 2
    assert {commit.operation for commit in commits[1:-1]} >= {"iceberg append"}
    for version, snapshot in enumerate(snapshots, start=1):
        known = iceberg.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        moment = dt.datetime.fromtimestamp(snapshot.timestamp_ms / 1000, dt.UTC)
        assert commits[version].committed_at == moment
        assert plain(taken.at(version=version).arrow()) == plain(known)
    taken.append([{"n": 99}])
    assert taken.count() == iceberg.scan().count() + 1
    assert not taken.check(deep=True).problems


def test_snapshots_before_a_change_of_partitions_are_left_out_and_told(lake, catalog, tmp_path):
    three = pa.table({"n": [1, 2, 3], "m": [1, 2, 3]})
    table = catalog.create_table("web.e", three.schema, location=f"file://{tmp_path}/wh/e")
    table.append(three)
    with table.update_spec() as spec:
        spec.add_identity("n")
    table.overwrite(three)
    table.append(three)
    assert len(table.snapshots()) > 3

    found = lake.adopt("e", iceberg=True, history=True, dry_run=True)
    taken = lake.adopt("e", found)

    assert "Older ones are left out" in str(found)
    assert "older partition spec" in str(found)
    assert numbers(taken) == [1, 1, 2, 2, 3, 3]
    assert numbers(taken.at(version=1)) == [1, 2, 3]


def test_snapshots_that_were_expired_are_left_out(lake, iceberg):
    first = iceberg.snapshots()[0].snapshot_id
    iceberg.maintenance.expire_snapshots().by_id(first).commit()

    taken = lake.adopt("e", iceberg=True, history=True)

    assert len(taken.history()) == len(iceberg.snapshots()) + 2


def test_command_line_takes_the_history_over(lake, delta):
    run = CliRunner().invoke
    done = run(main, ["adopt", str(delta), "--delta", "--history", "--yes", "--json"])

    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["version"] == 6
    assert "5 versions, 0 to 4, become versions 1 to 5" in done.stderr
    refused = run(main, ["adopt", str(delta.parent / "x"), "--history"])
    assert refused.exit_code != 0
    assert "Only tables of Delta and Iceberg" in refused.stderr


def test_schema_text_of_the_log_is_read_as_the_library_writes_it():
    text = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'

    assert json.loads(Schema.from_json(text).to_json()) == json.loads(text)
