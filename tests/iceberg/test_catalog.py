"""Iceberg tables of a catalog, by pyiceberg's own configuration."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from table_doors import rows_of

import lakebed
from lakebed.errors import AlreadyExistsError, InvalidInputError, InvalidNameError, StorageError
from lakebed.state import published

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int64())])
TABLE = {"catalog": "doors", "table": "web.days"}


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    """A catalog in SQLite, which the environment describes."""
    (tmp_path / "warehouse").mkdir()
    settings = {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}/warehouse",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__DOORS__{name}", value)
    with load_catalog("doors", **{name.lower(): value for name, value in settings.items()}) as one:
        monkeypatch.setattr("lakebed.iceberg.homes.load_catalog", lambda name: _known(name, one))
        yield one


def _known(name, catalog):
    if name != "doors":
        raise ValueError(name)
    return catalog


@pytest.fixture
def days(tmp_path):
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    return lake.create("days", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="p"))


def assert_shows(catalog, dataset) -> None:
    table = catalog.load_table("web.days").scan().to_arrow()
    assert rows_of(table, SCHEMA.names) == rows_of(dataset.arrow(), SCHEMA.names)


def test_table_of_a_catalog_is_kept_in_step(catalog, days):
    for do in (
        lambda: days.append([{"p": p, "n": n} for p in "ab" for n in range(3)]),
        lambda: days.overwrite([{"p": "b", "n": 9}]),
        lambda: days.delete(days.where("n = 0")),
        lambda: days.compact(),
        lambda: days.update(
            lambda old: lakebed.DatasetDescriptor(
                schema=pa.schema([*SCHEMA, ("more", pa.string())]), partition_by=old.partition_by
            )
        ),
        lambda: days.append([{"p": "c", "n": 1, "more": "x"}]),
    ):
        do()
        done = days.publish_iceberg(**TABLE)
        assert (done.table, done.version) == ("doors.web.days", days.version)
        assert_shows(catalog, days)
        assert days.publish_iceberg(**TABLE, check=True).was_in_step
    (note,) = published.read(days._source.store, "days")
    assert (note.kind, note.versions, note.title) == (
        "iceberg",
        (days.version,),
        "Iceberg doors.web.days",
    )


def test_publishers_at_once_give_one_result(catalog, days):
    days.append([{"p": "a", "n": 1}])
    days.publish_iceberg(**TABLE)
    days.overwrite([{"p": "a", "n": 2}])
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(days.publish_iceberg, **TABLE) for _ in range(2)]

    assert {task.result().version for task in tasks} == {days.version}
    assert_shows(catalog, days)


def test_unpublished_table_is_gone_from_the_catalog_and_files_stay(catalog, days):
    days.append([{"p": "a", "n": 1}])
    days.publish_iceberg(**TABLE)

    assert days.unpublish_iceberg(**TABLE)

    assert not catalog.table_exists("web.days")
    assert days.count() == 1
    assert published.read(days._source.store, "days") == ()


def test_table_of_others_is_not_touched(catalog, days):
    catalog.create_namespace("web")
    catalog.create_table("web.days", pa.schema([("x", pa.int64())]))
    days.append([{"p": "a", "n": 1}])

    with pytest.raises(AlreadyExistsError, match="does not show this dataset"):
        days.publish_iceberg(**TABLE)
    with pytest.raises(AlreadyExistsError, match="does not show this dataset"):
        days.unpublish_iceberg(**TABLE)
    assert catalog.load_table("web.days").current_snapshot() is None


def test_snapshot_of_others_is_told_and_only_taken_back_by_a_repair(catalog, days):
    days.append([{"p": "a", "n": 1}])
    days.publish_iceberg(**TABLE)
    catalog.load_table("web.days").delete("n = 1")

    with pytest.raises(InvalidInputError, match="Others have written"):
        days.publish_iceberg(**TABLE)
    assert days.publish_iceberg(**TABLE, repair=True).foreign
    assert_shows(catalog, days)


def test_what_names_no_table_is_refused(catalog, days):
    with pytest.raises(InvalidInputError, match="Only one of catalog and table"):
        days.publish_iceberg(catalog="doors")
    with pytest.raises(InvalidNameError, match=r"namespace\.table"):
        days.publish_iceberg(catalog="doors", table="days")
    with pytest.raises(InvalidInputError, match="knows no catalog 'nowhere'") as info:
        days.publish_iceberg(catalog="nowhere", table="web.days")
    assert "pyiceberg.yaml" in info.value.hint


def test_catalog_that_fails_is_a_storage_error(catalog, days, monkeypatch):
    days.append([{"p": "a", "n": 1}])

    def fail(*_):
        raise OSError("it burns")

    monkeypatch.setattr(type(catalog), "load_table", fail)
    with pytest.raises(StorageError, match="Catalog 'doors' failed: it burns"):
        days.publish_iceberg(**TABLE)
