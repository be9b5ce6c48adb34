"""Iceberg tables of a catalog, by pyiceberg's own configuration."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from inside import store_of
from pyiceberg.catalog import load_catalog
from table_doors import rows_of

import lakebed
from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidNameError,
    MissingDependencyError,
    StorageError,
)
from lakebed.state import published
from lakebed.tables.iceberg import to_iceberg

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])


@pytest.fixture
def days(tmp_path):
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    return lake.create("days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))


def assert_shows(known, dataset) -> None:
    table = known.catalog.load_table(known.table).scan().to_arrow()
    assert rows_of(table, SCHEMA.names) == rows_of(dataset.arrow(), SCHEMA.names)


def test_table_of_a_catalog_is_kept_in_step(known_catalog, days):
    for do in (
        lambda: days.append([{"p": p, "n": n} for p in "ab" for n in range(3)]),
        lambda: days.overwrite([{"p": "b", "n": 9}]),
        lambda: days.delete(days.where("n = 0")),
        lambda: days.compact(),
        lambda: days.evolve(
            lambda old: lakebed.DatasetDescriptor(
                schema=pa.schema([*SCHEMA, ("more", pa.string())]), partition_by=old.partition_by
            )
        ),
        lambda: days.append([{"p": "c", "n": 1, "more": "x"}]),
    ):
        do()
        done = days.publish("iceberg", **known_catalog.place)
        assert (done.table, done.version) == (f"doors.{known_catalog.table}", days.version)
        assert_shows(known_catalog, days)
        assert days.publish("iceberg", **known_catalog.place, check=True).was_in_step
    (note,) = published.read(store_of(days), "days")
    assert (note.kind, note.versions, note.title) == (
        "iceberg",
        (days.version,),
        f"Iceberg doors.{known_catalog.table}",
    )


def test_publishers_at_once_give_one_result(known_catalog, days):
    days.append([{"p": "a", "n": 1}])
    days.publish("iceberg", **known_catalog.place)
    days.overwrite([{"p": "a", "n": 2}])
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(days.publish, "iceberg", **known_catalog.place) for _ in range(2)]

    assert {task.result().version for task in tasks} == {days.version}
    assert_shows(known_catalog, days)


def test_unpublished_table_is_gone_from_the_catalog_and_files_stay(known_catalog, days):
    days.append([{"p": "a", "n": 1}])
    days.publish("iceberg", **known_catalog.place)

    assert days.unpublish("iceberg", **known_catalog.place)

    assert not known_catalog.catalog.table_exists(known_catalog.table)
    assert days.count() == 1
    assert published.read(store_of(days), "days") == ()


def test_table_of_others_is_not_touched(known_catalog, days):
    catalog, table = known_catalog.catalog, known_catalog.table
    catalog.create_namespace(table.partition(".")[0])
    catalog.create_table(table, pa.schema([("x", pa.int64())]))
    days.append([{"p": "a", "n": 1}])

    with pytest.raises(AlreadyExistsError, match="does not show this dataset"):
        days.publish("iceberg", **known_catalog.place)
    with pytest.raises(AlreadyExistsError, match="does not show this dataset"):
        days.unpublish("iceberg", **known_catalog.place)
    assert catalog.load_table(table).current_snapshot() is None


def test_snapshot_of_others_is_told_and_only_taken_back_by_a_repair(known_catalog, days):
    days.append([{"p": "a", "n": 1}])
    days.publish("iceberg", **known_catalog.place)
    known_catalog.catalog.load_table(known_catalog.table).delete("n = 1")

    with pytest.raises(InvalidInputError, match="Others have written"):
        days.publish("iceberg", **known_catalog.place)
    assert days.publish("iceberg", **known_catalog.place, repair=True).foreign
    assert_shows(known_catalog, days)


def test_what_names_no_table_is_refused(known_catalog, days):
    with pytest.raises(InvalidInputError, match="catalog and table must be given together"):
        days.publish("iceberg", catalog="doors")
    with pytest.raises(InvalidNameError, match=r"namespace\.table"):
        days.publish("iceberg", catalog="doors", table="days")
    with pytest.raises(InvalidInputError, match="does not know the catalog 'nowhere'") as info:
        days.publish("iceberg", catalog="nowhere", table="web.days")
    assert "pyiceberg.yaml" in info.value.hint


def test_catalog_that_fails_is_a_storage_error(known_catalog, days, monkeypatch):
    days.append([{"p": "a", "n": 1}])

    def fail(*_):
        raise OSError("it burns")

    monkeypatch.setattr(type(known_catalog.catalog), "load_table", fail)
    with pytest.raises(StorageError, match="Catalog 'doors' failed: it burns"):
        days.publish("iceberg", **known_catalog.place)


def test_catalog_whose_package_is_missing_names_it(days, monkeypatch):
    days.append([{"p": "a", "n": 1}])
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog.hive", None)
    monkeypatch.setattr(
        "lakebed.tables.iceberg.homes.load_catalog",
        lambda name: load_catalog(name, type="hive", uri="thrift://127.0.0.1:1"),
    )

    with pytest.raises(MissingDependencyError) as caught:
        days.publish("iceberg", catalog="prod", table="web.days")
    assert "pip install 'pyiceberg[hive]'" in caught.value.hint


@pytest.mark.parametrize("verb", ["publish", "cleanup"])
def test_configuration_that_cannot_be_read_is_told_without_what_stands_in_it(days, tmp_path, verb):
    days.append([{"p": "a", "n": 1}])
    days.publish("iceberg")
    (tmp_path / ".pyiceberg.yaml").write_text("catalog:\n  prod: {credential: pLaNtEd\n")
    words = ["publish", "iceberg"] if verb == "publish" else ["cleanup", "--dry-run"]

    done = subprocess.run(
        [sys.executable, "-m", "lakebed", *words, str(tmp_path / "lake/days")],
        env={
            **os.environ,
            "PYICEBERG_HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == (2 if verb == "publish" else 0), done.stderr
    assert "pyiceberg cannot read its configuration: line 2" in done.stderr
    assert "Traceback" not in done.stderr
    assert "pLaNtEd" not in done.stderr


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_commit_that_landed_and_was_refused_when_repeated_leaves_the_table_whole(
    known_catalog, days, monkeypatch, is_first
):
    days.append([{"p": "a", "n": 1}])
    if not is_first:
        days.publish("iceberg", **known_catalog.place)
        days.overwrite([{"p": "a", "n": 2}])
    kind = type(known_catalog.catalog)
    commit = kind.commit_table

    def commit_twice(*arguments):
        commit(*arguments)
        return commit(*arguments)

    monkeypatch.setattr(kind, "commit_table", commit_twice)

    done = days.publish("iceberg", **known_catalog.place)

    assert done.version == days.version
    assert_shows(known_catalog, days)


def metadata_of(known) -> set[str]:
    """Return the names of the objects that the metadata of a table consists of."""
    return names_in(known.catalog.load_table(known.table).metadata.location)


def names_in(location: str) -> set[str]:
    # Hadoop's own file system leaves a sum beside each file.
    paths = Path(urlsplit(location).path).rglob("*")
    return {path.name for path in paths if path.is_file() and not path.name.startswith(".")}


def a_day_later(monkeypatch):
    """Let snapshots of before be read by nobody any more."""
    monkeypatch.setattr("lakebed.tables.iceberg.snapshots._READ_BY_MS", -1)


@pytest.mark.thorough
def test_what_only_snapshots_named_that_were_given_up_is_deleted(known_catalog, days, monkeypatch):
    """A cleanup of the dataset knows no catalog: the next publication tidies up."""
    for n in range(6):
        days.overwrite([{"p": "ab"[n % 2], "n": n}])
        days.publish("iceberg", **known_catalog.place)
    before = metadata_of(known_catalog)
    days.cleanup("0s", dry_run=False)

    days.append([{"p": "a", "n": 10}])
    days.publish("iceberg", **known_catalog.place)
    assert before <= metadata_of(known_catalog), "readers may have begun a moment ago"
    a_day_later(monkeypatch)
    days.overwrite([{"p": "b", "n": 11}])
    days.publish("iceberg", **known_catalog.place)

    table = known_catalog.catalog.load_table(known_catalog.table)
    named = {snapshot.manifest_list for snapshot in table.metadata.snapshots}
    named |= {m.manifest_path for s in table.metadata.snapshots for m in s.manifests(table.io)}
    left = {name for name in metadata_of(known_catalog) if name.endswith(".avro")}
    assert left == {place.rpartition("/")[2] for place in named}
    assert len(left) < len({name for name in before if name.endswith(".avro")})
    assert_shows(known_catalog, days)
    assert days.publish("iceberg", **known_catalog.place, check=True).was_in_step


@pytest.mark.thorough
def test_metadata_of_old_versions_is_deleted(known_catalog, days, monkeypatch):
    monkeypatch.setitem(
        to_iceberg._PROPERTIES_IN_A_CATALOG, "write.metadata.previous-versions-max", "3"
    )
    for n in range(8):
        days.append([{"p": "a", "n": n}])
        days.publish("iceberg", **known_catalog.place)

    left = [name for name in metadata_of(known_catalog) if name.endswith(".metadata.json")]

    assert len(left) == 4
    assert_shows(known_catalog, days)


def test_manifest_that_a_branch_of_others_names_stays(known_catalog, days, monkeypatch):
    days.append([{"p": "a", "n": 1}])
    days.publish("iceberg", **known_catalog.place)
    table = known_catalog.catalog.load_table(known_catalog.table)
    kept = table.current_snapshot()
    table.manage_snapshots().create_tag(kept.snapshot_id, "audit").commit()
    a_day_later(monkeypatch)
    for n in range(3):
        days.overwrite([{"p": "a", "n": n}])
        days.cleanup("0s", dry_run=False)
        days.publish("iceberg", **known_catalog.place)

    table = known_catalog.catalog.load_table(known_catalog.table)
    assert [m.fetch_manifest_entry(table.io) for m in kept.manifests(table.io)]
    assert_shows(known_catalog, days)


def test_unpublished_table_leaves_no_metadata(known_catalog, days):
    for n in range(3):
        days.append([{"p": "a", "n": n}])
        days.publish("iceberg", **known_catalog.place)
    location = known_catalog.catalog.load_table(known_catalog.table).metadata.location

    days.unpublish("iceberg", **known_catalog.place)

    assert not names_in(location)


@pytest.mark.thorough
def test_catalog_is_the_one_that_the_configuration_of_pyiceberg_names(
    known_catalog, days, tmp_path
):
    """In a process of its own, as a user publishes."""
    settings = "".join(f"    {name}: {value}\n" for name, value in known_catalog.settings.items())
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  doors:\n{settings}")
    days.append([{"p": "a", "n": 1}, {"p": "b", "n": 2}])
    command = [
        *(sys.executable, "-m", "lakebed", "publish", "iceberg", f"{tmp_path}/lake/days"),
        *("--catalog", "doors", "--table", known_catalog.table, "--output", "json", "--quiet"),
    ]
    environ = {**os.environ, "PYICEBERG_HOME": str(tmp_path)}

    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["added_count"] == 2
    assert_shows(known_catalog, days)
