"""Namespaces of a repository on each store, and the pointers of Iceberg tables in them."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path

import pytest

import lakebed
from lakebed.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
    NotFoundError,
    ObjectExistsError,
    PreconditionFailedError,
)
from lakebed.state import namespaces, table_pointers
from lakebed.state.table_pointers import Pointer
from lakebed.store import open_store
from lakebed.testing import CountingStore

HOSTILE = (
    *(
        "",
        ".",
        "..",
        "../up",
        "a/b",
        "/etc",
        "a.b",
        "a b",
        " a",
        "a\n",
        "%2e%2e",
        "a\\b",
        "~",
        "\x00",
    ),
    *(
        "_lakebed.transactions",
        "_lakebed",
        "_x",
        "größe",
        "\uff53ales",
        "a\u200b",
        "\ud800",
        "a" * 201,
    ),
    *(None, 7, b"sales"),
)


@pytest.fixture(params=["directory", "memory", "s3", pytest.param("hdfs", marks=pytest.mark.long)])
def lake(request: pytest.FixtureRequest, tmp_path: Path):
    if request.param == "directory":
        return lakebed.open_repository(tmp_path / "lake")
    if request.param == "memory":
        return lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    if request.param == "hdfs":
        cluster = request.getfixturevalue("hdfs_cluster")
        return lakebed.open_repository(f"webhdfs://{cluster.http_address}/{uuid.uuid4().hex}")
    options = request.getfixturevalue("s3_options")
    return lakebed.open_repository(f"s3://lake/{uuid.uuid4().hex}", storage_options=options)


def test_created_namespace_is_a_repository_and_stays_while_it_is_empty(lake) -> None:
    sales = lake.namespaces.create("sales")
    assert lake.namespaces.list() == ["sales"]
    assert sales.uri == lake["sales"].uri == f"{lake.uri}/sales"
    assert lake.namespaces.properties("sales") == {}

    sales.write("orders", [{"id": 1}])

    assert lake["sales"]["orders"].arrow().to_pylist() == [{"id": 1}]
    assert (lake.list(), sales.list(), lake.namespaces.list()) == ([], ["orders"], ["sales"])
    sales.drop("orders")
    assert lake.namespaces.list() == ["sales"]


def test_folder_with_a_dataset_is_a_namespace_without_a_marker(lake, request) -> None:
    is_s3 = lake.uri.startswith("s3:")
    child = lakebed.open_repository(
        f"{lake.uri}/web", storage_options=request.getfixturevalue("s3_options") if is_s3 else None
    )
    child.write("events", [{"id": 1}])
    lake.write("flights", [{"id": 1}])

    assert lake.namespaces.list() == ["web"]
    assert lake["web"]["events"].count() == lake["flights"].count() == 1
    with pytest.raises(AlreadyExistsError, match="Namespace 'web' exists"):
        lake.namespaces.create("web")
    assert lake.namespaces.create("web", if_exists="open").list() == ["events"]
    child.drop("events")
    assert not lake.namespaces.exists("web")


def test_folders_of_datasets_and_of_lakebed_are_no_namespaces(lake) -> None:
    lake.write("flights", [{"id": 1}])
    lake.store.put("_lakebed.runs/a", b"x")
    lake.store.put("raw/2026/a.csv", b"x")
    lake.store.put("a b/a.csv", b"x")

    assert lake.namespaces.list() == []
    assert not lake.namespaces.exists("raw")
    with pytest.raises(DatasetNotFoundError, match="'raw' not found"):
        lake["raw"]


def test_properties_are_kept_set_and_removed(lake) -> None:
    lake.namespaces.create("sales", properties={"owner": "ops", "größe": "ß 🤪"})

    changed = lake.namespaces.update("sales", properties={"owner": "web", "x": "1"}, remove=["y"])

    assert (
        changed
        == lake.namespaces.properties("sales")
        == {
            "owner": "web",
            "größe": "ß 🤪",
            "x": "1",
        }
    )
    assert lake.namespaces.update("sales", remove="owner") == {"größe": "ß 🤪", "x": "1"}
    with pytest.raises(InvalidInputError, match="'x' of namespace 'sales' is both set and removed"):
        lake.namespaces.update("sales", properties={"x": "2"}, remove=["x"])
    with pytest.raises(InvalidInputError, match=r"need 70,0\d\d bytes"):
        lake.namespaces.update("sales", properties={"x": "x" * 70_000})
    with pytest.raises(InvalidInputError, match="is not text"):
        lake.namespaces.update("sales", properties={"x": 7})
    assert lake.namespaces.properties("sales")["x"] == "1"


def test_only_an_empty_namespace_is_dropped(lake) -> None:
    sales = lake.namespaces.create("sales", properties={"owner": "ops"})
    sales.write("orders", [{"id": 1}])
    with pytest.raises(InvalidInputError, match="is not empty: it holds orders"):
        lake.namespaces.drop("sales")
    sales.drop("orders")
    sales.namespaces.create("inner")
    with pytest.raises(InvalidInputError, match="is not empty: it holds inner"):
        lake.namespaces.drop("sales")
    sales.namespaces.drop("inner")
    table_pointers.put_pointer(lake.store, "sales/t", Pointer(metadata_location="s3://b/m"), None)
    with pytest.raises(InvalidInputError, match="is not empty: it holds t"):
        lake.namespaces.drop("sales")
    found = table_pointers.find_pointer(lake.store, "sales/t")
    table_pointers.put_pointer(lake.store, "sales/t", found.pointer.without_table(), found)

    assert lake.namespaces.drop("sales")

    assert (lake.namespaces.list(), lake.namespaces.exists("sales")) == ([], False)
    assert not lake.namespaces.drop("sales", if_missing="ignore")
    with pytest.raises(NotFoundError, match="Namespace 'sales' not found"):
        lake.namespaces.drop("sales")
    with pytest.raises(NotFoundError):
        lake.namespaces.update("sales", properties={"a": "b"})
    with pytest.raises(NotFoundError):
        lake.namespaces.properties("sales")
    with pytest.raises(NotFoundError):
        lake.namespaces.open("sales")
    lake.namespaces.create("sales")
    assert lake.namespaces.properties("sales") == {}


def test_dataset_and_namespace_do_not_share_a_name(lake) -> None:
    lake.namespaces.create("sales")
    lake.write("flights", [{"id": 1}])

    with pytest.raises(InvalidInputError, match="'sales' is a namespace"):
        lake.write("sales", [{"id": 1}])
    with pytest.raises(AlreadyExistsError, match="'flights' is a dataset"):
        lake.namespaces.create("flights")
    lake.store.put("delta/_delta_log/00000000000000000000.json", b"{}")
    with pytest.raises(InvalidInputError, match="its folder holds a table of Delta"):
        lake.namespaces.create("delta")
    lake.namespaces.drop("sales")
    lake.write("sales", [{"id": 1}])


@pytest.mark.parametrize("name", HOSTILE, ids=repr)
def test_hostile_names_are_refused_and_lead_nowhere(tmp_path, name) -> None:
    lake = lakebed.open_repository(tmp_path / "up" / "lake")
    lake.write("flights", [{"id": 1}])
    before = sorted(tmp_path.rglob("*"))
    for call in (
        lake.namespaces.create,
        lake.namespaces.open,
        lake.namespaces.exists,
        lake.namespaces.drop,
        lake.namespaces.properties,
        lake.namespaces.update,
        lambda name: lake.namespaces.create(name, if_exists="open"),
        lambda name: lake.namespaces.drop(name, if_missing="ignore"),
    ):
        with pytest.raises(InvalidNameError, match="Illegal name of a namespace"):
            call(name)
    assert sorted(tmp_path.rglob("*")) == before


def test_one_of_two_creators_wins_and_updates_at_once_all_count(lake) -> None:
    won, barrier = [], threading.Barrier(4)

    def create(number: int) -> None:
        barrier.wait()
        try:
            lake.namespaces.create("sales", properties={"by": str(number)})
        except AlreadyExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lake.namespaces.properties("sales") == {"by": str(won[0])}
    assert len(won) == 1


def test_damaged_marker_is_named(lake) -> None:
    lake.namespaces.create("sales")
    lake.store.put(f"sales/{namespaces.MARKER}", b"{")
    with pytest.raises(CorruptMetadataError, match="cannot be read"):
        lake.namespaces.properties("sales")
    lake.store.put(f"sales/{namespaces.MARKER}", b'{"format-version": 2}')
    with pytest.raises(CorruptMetadataError, match="format version 2"):
        lake["sales"]


def test_listing_costs_two_lists_and_a_get_for_each_namespace() -> None:
    store = CountingStore(open_store(f"memory://{uuid.uuid4().hex}"))
    lake = lakebed.Repository(store)
    for number in range(5):
        lake.namespaces.create(f"n{number}")
    lake.write("flights", [{"id": 1}])
    store.reset()

    lake.namespaces.list()

    counts = store.reset()
    assert (counts.list, counts.get, counts.total) == (2, 5, 7)


def test_pointer_is_replaced_only_as_it_was_read(lake) -> None:
    store = lake.store
    assert table_pointers.find_pointer(store, "t") is None
    table_pointers.put_pointer(store, "t", Pointer(metadata_location="a"), None)
    with pytest.raises(ObjectExistsError):
        table_pointers.put_pointer(store, "t", Pointer(metadata_location="b"), None)
    first = table_pointers.find_pointer(store, "t")
    table_pointers.put_pointer(store, "t", first.pointer.without_table(), first)
    with pytest.raises(PreconditionFailedError):
        table_pointers.put_pointer(store, "t", Pointer(metadata_location="b"), first)

    found = table_pointers.find_pointer(store, "t").pointer
    assert (found.metadata_location, [one.metadata_location for one in found.dropped]) == (
        "",
        ["a"],
    )
    assert table_pointers.list_pointers(store) == []
    store.put("t.iceberg-table.json", b"[]")
    with pytest.raises(CorruptMetadataError, match="register the table"):
        table_pointers.find_pointer(store, "t")
    assert table_pointers.list_pointers(store) == ["t"]


def test_table_of_the_catalog_keeps_its_name_from_datasets(lake) -> None:
    pointer = Pointer(metadata_location=f"{lake.uri}/t/metadata/0.metadata.json")
    table_pointers.put_pointer(lake.store, "t", pointer, None)
    with pytest.raises(InvalidInputError, match="the Iceberg catalog has a table of this name"):
        lake.write("t", [{"id": 1}])
