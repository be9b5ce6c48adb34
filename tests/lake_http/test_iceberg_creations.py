"""Namespaces and tables that clients of the Iceberg catalog create, change, rename and drop."""

from __future__ import annotations

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from asking import Answer, Client
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import lakebed
from lakebed.errors import DatasetNotFoundError, InvalidInputError
from lakebed.state.table_pointers import find_pointer
from lakebed.testing import FailingStore
from lakebed.web import IcebergDoor, create_app

TOKEN = "a-token-for-writes"
NAMESPACES = "/v1/lake/namespaces"
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType())
)
ROWS = pa.table(
    {"id": [1, 2, 3], "name": ["a", "b", None]},
    schema=pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]),
)
SMALLEST = {"name": "t", "schema": {"type": "struct", "fields": []}}
HOSTILE = (
    *(
        "..",
        ".",
        "a.b",
        "a%20b",
        "%2e%2e",
        "..%2f..%2fup",
        "a%2Fb",
        "%00",
        "_lakebed.runs",
        "gr%C3%B6",
    ),
    *("%5c", "a%0Ab", "%EF%BD%81", "x" * 300),
)


class Door:
    """A served lake, and a client of pyiceberg that may write."""

    def __init__(self, folder: Path, allowed: str = "all", **more) -> None:
        self.folder = folder
        self.lake = lakebed.open_repository(folder / "lake")
        self.client = self.serve(allowed, **more)
        self.catalog = self.connect()

    def serve(self, allowed: str | None = "all", lake=None, **more) -> Client:
        door = IcebergDoor(
            metadata=str(self.folder / "cache"),
            allow_writes=allowed,
            write_token=None if allowed is None else TOKEN,
        )
        return Client(create_app(lake or self.lake, iceberg=door, **more))

    def connect(self, client: Client | None = None, token: str | None = TOKEN) -> Catalog:
        uri = f"http://{(client or self.client).place}"
        given = {"scan-planning-mode": "client"} | ({} if token is None else {"token": token})
        return load_catalog(uuid.uuid4().hex, type="rest", uri=uri, **given)

    def ask(self, method: str, path: str, body: object = None) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return self.client.ask(path, method, {"authorization": f"Bearer {TOKEN}"}, data)

    @property
    def files(self) -> list[str]:
        paths = (self.folder / "lake").rglob("*")
        names = (str(path.relative_to(self.folder / "lake")) for path in paths if path.is_file())
        return sorted(name for name in names if not name.startswith(".lakebed"))


@pytest.fixture
def door(tmp_path):
    door = Door(tmp_path)
    yield door
    door.client.stop()


def error_of(answer: Answer) -> tuple[int, str, str]:
    document = json.loads(answer.body)["error"]
    assert document["code"] == answer.status
    return answer.status, document["type"], document["message"]


# Namespaces


def test_namespaces_are_created_changed_listed_and_dropped(door) -> None:
    catalog = door.catalog
    catalog.create_namespace("sales", {"owner": "ops"})
    assert catalog.list_namespaces() == [("lake",), ("sales",)]
    assert door.lake.namespaces.list() == ["sales"]
    loaded = catalog.load_namespace_properties("sales")
    assert loaded == {"owner": "ops", "location": f"{door.lake.uri}/sales"}

    changed = catalog.update_namespace_properties("sales", {"missing", "owner"}, {"team": "web"})

    assert (changed.updated, changed.removed, changed.missing) == (["team"], ["owner"], ["missing"])
    assert dict(door.lake.namespaces.properties("sales")) == {"team": "web"}
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace("sales")
    catalog.create_table("sales.orders", SCHEMA)
    with pytest.raises(NamespaceNotEmptyError, match="orders"):
        catalog.drop_namespace("sales")
    catalog.drop_table("sales.orders")
    catalog.drop_namespace("sales")
    assert catalog.list_namespaces() == [("lake",)]
    with pytest.raises(NoSuchNamespaceError):
        catalog.drop_namespace("sales")
    with pytest.raises(NoSuchNamespaceError):
        catalog.list_tables("sales")


def test_datasets_of_a_namespace_are_tables_that_can_be_read_and_written(door) -> None:
    sales = door.lake.namespaces.create("sales")
    sales.write("orders", ROWS)

    table = door.catalog.load_table("sales.orders")
    table.append(ROWS)

    assert door.catalog.list_tables("sales") == [("sales", "orders")]
    assert sales["orders"].count() == len(door.catalog.load_table("sales.orders").scan().to_arrow())
    assert sales["orders"].count() == 6
    with pytest.raises(NoSuchTableError):
        door.catalog.load_table("lake.orders")


def test_namespaces_come_in_pages(door) -> None:
    for number in range(5):
        door.lake.namespaces.create(f"n{number}")
    found, token = [], ""
    while True:
        page = json.loads(door.ask("GET", f"{NAMESPACES}?pageSize=2&pageToken={token}").body)
        found += [one for (one,) in page["namespaces"]]
        assert len(page["namespaces"]) <= 2
        token = page["next-page-token"]
        if token is None:
            break
    assert found == ["lake", "n0", "n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_named_errors_and_lead_nowhere(door, name) -> None:
    before = sorted(str(path) for path in door.folder.rglob("*"))
    plain = unquote(name)
    for method, path, body in (
        ("POST", NAMESPACES, {"namespace": [plain]}),
        ("POST", f"{NAMESPACES}/{name}/properties", {"updates": {"a": "b"}}),
        ("DELETE", f"{NAMESPACES}/{name}", None),
        ("GET", f"{NAMESPACES}/{name}", None),
        ("POST", f"{NAMESPACES}/{name}/tables", SMALLEST),
        ("POST", f"{NAMESPACES}/lake/tables", {**SMALLEST, "name": plain}),
        ("POST", f"{NAMESPACES}/lake/register", {"name": plain, "metadata-location": "x"}),
        ("DELETE", f"{NAMESPACES}/lake/tables/{name}?purgeRequested=true", None),
        ("POST", f"{NAMESPACES}/lake/tables/{name}", {"requirements": [], "updates": []}),
        ("GET", f"{NAMESPACES}/{name}/tables/t", None),
    ):
        answer = door.ask(method, path, body)
        status, kind, message = error_of(answer)
        assert 400 <= status < 500, (method, path, message)
        assert kind.endswith("Exception")
        assert "Traceback" not in message
    assert sorted(str(path) for path in door.folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", b"{"),
        ("", b"[]"),
        ("", {"namespace": "sales"}),
        ("", {"namespace": [5]}),
        ("", {"namespace": ["sales"], "properties": {"a": 1}}),
        ("", {"namespace": ["sales"], "properties": {"a": "x" * 70_000}}),
        ("", b'{"namespace": ' + b"[" * 50_000),
        ("/lake/tables", b"{"),
        ("/lake/tables", {}),
        ("/lake/tables", {**SMALLEST, "schema": 5}),
        ("/lake/tables", {**SMALLEST, "properties": {"format-version": "9"}}),
        ("/lake/tables", {**SMALLEST, "partition-spec": {"fields": [{"source-id": 7}]}}),
        ("/lake/tables", b'{"name": "t", "schema": ' + b'{"a":' * 50_000),
        ("/lake/register", {"name": "t", "metadata-location": "/etc/passwd"}),
        ("/lake/register", {"name": "t", "metadata-location": "s3://other/m.metadata.json"}),
        ("/lake/register", {"name": "t"}),
    ],
)
def test_malformed_requests_are_refused_and_write_nothing(door, path, body) -> None:
    status, kind, message = error_of(door.ask("POST", NAMESPACES + path, body))
    assert (status, kind) == (400, "BadRequestException"), message
    assert door.files == []


def test_long_requests_are_refused(door) -> None:
    for path, most in (("", 1 << 17), ("/lake/tables", 4 << 20), ("/lake/register", 1 << 16)):
        assert error_of(door.ask("POST", NAMESPACES + path, b" " * (most + 1)))[0] == 413


# Tables


def test_a_created_table_is_an_iceberg_table_with_all_that_clients_do(door) -> None:
    catalog = door.catalog
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = catalog.create_table("lake.orders", SCHEMA, partition_spec=spec, properties={"a": "b"})
    table.append(ROWS)
    table.append(ROWS)
    table.delete("id = 2")
    with table.update_schema() as update:
        update.add_column("price", LongType())
    with table.transaction() as change:
        change.set_properties(a="c", d="e")
        change.remove_properties("a")
    table.manage_snapshots().create_tag(table.history()[0].snapshot_id, "first").commit()

    again = door.connect().load_table("lake.orders")

    assert sorted(again.scan().to_arrow()["id"].to_pylist()) == [1, 1, 3, 3]
    assert again.schema().column_names == ["id", "name", "price"]
    assert (again.properties["d"], "a" in again.properties) == ("e", False)
    first = again.metadata.refs["first"].snapshot_id
    assert len(again.scan(snapshot_id=first).to_arrow()) == 3
    assert again.location() == f"{door.lake.uri}/orders"
    assert catalog.list_tables("lake") == [("lake", "orders")]
    assert catalog.table_exists("lake.orders")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("lake.orders", SCHEMA)


def test_a_table_becomes_a_dataset_by_adoption(door) -> None:
    table = door.catalog.create_table("lake.orders", SCHEMA)
    table.append(ROWS)
    assert door.lake.list() == []
    with pytest.raises(DatasetNotFoundError, match="'orders' not found"):
        door.lake.open("orders")

    door.lake.adopt("orders", iceberg=True)

    assert door.lake["orders"].count() == 3
    assert door.catalog.list_tables("lake") == [("lake", "orders")]
    door.catalog.load_table("lake.orders").append(ROWS)
    assert door.lake["orders"].count() == 6


def test_a_staged_table_appears_with_its_first_rows(door) -> None:
    with door.catalog.create_table_transaction("lake.orders", SCHEMA) as staged:
        assert not door.catalog.table_exists("lake.orders")
        assert door.files == []
        staged.append(ROWS)

    assert len(door.catalog.load_table("lake.orders").scan().to_arrow()) == 3
    answer = door.ask("POST", f"{NAMESPACES}/lake/tables", {**SMALLEST, "name": "orders"})
    assert error_of(answer)[:2] == (409, "AlreadyExistsException")
    assert "Table already exists: lake.orders" in error_of(answer)[2]


def test_a_staged_table_has_a_folder_for_manifests_which_duckdb_does_not_make(door) -> None:
    body = {**SMALLEST, "stage-create": True}
    answer = door.ask("POST", f"{NAMESPACES}/lake/tables", body)

    location = json.loads(answer.body)["metadata"]["location"]
    assert (Path(location.removeprefix("file://")) / "metadata").is_dir()
    assert door.lake.list() == []
    assert door.catalog.list_tables("lake") == []
    door.catalog.create_table("lake.t", SCHEMA)


def test_a_staged_table_does_not_take_the_folder_of_another_format(door) -> None:
    staged = door.catalog.create_table_transaction("lake.orders", SCHEMA)
    door.lake.store.put("orders/_delta_log/00000000000000000000.json", b"{}")

    staged.commit_transaction()
    door.catalog.purge_table("lake.orders")

    assert "orders/_delta_log/00000000000000000000.json" in door.files


def test_one_of_two_staged_tables_of_a_name_is_created(door) -> None:
    first = door.catalog.create_table_transaction("lake.orders", SCHEMA)
    second = door.connect().create_table_transaction("lake.orders", SCHEMA)
    first.commit_transaction()
    with pytest.raises(CommitFailedException, match="table already exists"):
        second.commit_transaction()
    assert len(list((door.folder / "lake/orders/metadata").glob("*.metadata.json"))) == 1


def test_a_drop_without_purge_keeps_all_files_and_can_be_taken_back(door) -> None:
    table = door.catalog.create_table("lake.orders", SCHEMA)
    table.append(ROWS)
    before = [name for name in door.files if not name.endswith(".iceberg-table.json")]

    door.catalog.drop_table("lake.orders")

    assert not door.catalog.table_exists("lake.orders")
    assert [name for name in door.files if not name.endswith(".iceberg-table.json")] == before
    (dropped,) = find_pointer(door.lake.store, "orders").pointer.dropped
    door.catalog.register_table("lake.orders", dropped.metadata_location)
    assert len(door.catalog.load_table("lake.orders").scan().to_arrow()) == 3


def test_a_table_of_a_name_that_was_used_has_a_folder_of_its_own(door) -> None:
    first = door.catalog.create_table("lake.orders", SCHEMA)
    first.append(ROWS)
    door.catalog.drop_table("lake.orders")
    second = door.catalog.create_table("lake.orders", SCHEMA)
    second.append(ROWS)
    door.catalog.purge_table("lake.orders")

    assert second.location() != first.location()
    (dropped,) = find_pointer(door.lake.store, "orders").pointer.dropped
    door.catalog.register_table("lake.again", dropped.metadata_location)
    assert len(door.catalog.load_table("lake.again").scan().to_arrow()) == 3
    assert not list(
        (door.folder / "lake" / second.location().rpartition("/")[2]).rglob("*.parquet")
    )


def test_a_purge_deletes_the_files_of_the_table_and_no_others(door) -> None:
    door.lake.write("flights", ROWS)
    door.catalog.create_namespace("sales")
    before = door.files
    door.catalog.create_table("sales.orders", SCHEMA).append(ROWS)

    door.catalog.purge_table("sales.orders")

    after = [name for name in door.files if name != "sales/orders.iceberg-table.json"]
    assert after == before
    with pytest.raises(NoSuchTableError):
        door.catalog.purge_table("sales.orders")


@pytest.mark.parametrize("folder", ["sales", "flights", "flights/data"])
def test_a_purge_never_deletes_a_namespace_or_a_dataset(door, folder) -> None:
    door.lake.write("flights", ROWS)
    door.lake.namespaces.create("sales").write("orders", ROWS)
    table = door.catalog.create_table("lake.t", SCHEMA)
    document = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    document["location"] = f"{door.lake.uri}/{folder}"
    key = f"{folder}/metadata/00000-{uuid.uuid4()}.metadata.json"
    door.lake.store.put(key, json.dumps(document).encode())
    door.catalog.register_table("lake.strange", f"{door.lake.uri}/{key}")
    before = door.files

    with pytest.raises(RESTError, match="is not a folder that the catalog has made"):
        door.catalog.purge_table("lake.strange")

    assert door.files == before
    assert door.lake["flights"].count() == door.lake["sales"]["orders"].count() == 3


def test_a_dataset_is_dropped_with_purge_only(door) -> None:
    door.lake.write("flights", ROWS)
    with pytest.raises(RESTError, match="Drop it with purge"):
        door.catalog.drop_table("lake.flights")
    assert door.lake["flights"].count() == 3

    door.catalog.purge_table("lake.flights")

    assert door.lake.list() == []


def test_a_table_is_renamed_and_a_dataset_is_not(door) -> None:
    door.catalog.create_namespace("sales")
    door.catalog.create_table("lake.orders", SCHEMA).append(ROWS)
    door.lake.write("flights", ROWS)

    renamed = door.catalog.rename_table("lake.orders", "sales.bought")

    assert len(renamed.scan().to_arrow()) == 3
    assert not door.catalog.table_exists("lake.orders")
    renamed.append(ROWS)
    door.catalog.create_table("lake.orders", SCHEMA)
    door.catalog.purge_table("lake.orders")
    assert len(door.catalog.load_table("sales.bought").scan().to_arrow()) == 6
    with pytest.raises(RESTError, match="flights is a dataset"):
        door.catalog.rename_table("lake.flights", "sales.flights")
    with pytest.raises(TableAlreadyExistsError, match="Table already exists"):
        door.catalog.rename_table("sales.bought", "lake.flights")
    with pytest.raises(NoSuchTableError):
        door.catalog.rename_table("lake.missing", "lake.x")
    assert len(door.catalog.load_table("sales.bought").scan().to_arrow()) == 6


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("landed", [False, True])
def test_a_rename_whose_answers_are_lost_is_ended_by_a_repetition(door, nth, landed) -> None:
    door.catalog.create_table("lake.orders", SCHEMA).append(ROWS)
    operation = "create" if nth == 2 else "replace"
    failing = FailingStore(
        door.lake.store,
        fail_on=operation,
        nth=2 if nth == 3 else 1,
        landed=landed,
        matching=".iceberg-table.json",
    )
    client = door.serve(lake=lakebed.Repository(failing))
    catalog = door.connect(client)
    try:
        catalog.rename_table("lake.orders", "lake.bought")
    except RESTError:
        assert failing.has_failed
        catalog.rename_table("lake.orders", "lake.bought")
    assert len(catalog.load_table("lake.bought").scan().to_arrow()) == 3
    assert not catalog.table_exists("lake.orders")
    client.stop()


def test_a_commit_to_the_new_name_of_an_interrupted_rename_is_kept(door) -> None:
    door.catalog.create_table("lake.orders", SCHEMA).append(ROWS)
    failing = FailingStore(
        door.lake.store, fail_on="replace", nth=2, matching=".iceberg-table.json"
    )
    client = door.serve(lake=lakebed.Repository(failing))
    with pytest.raises(RESTError):
        door.connect(client).rename_table("lake.orders", "lake.bought")
    client.stop()
    door.catalog.load_table("lake.bought").append(ROWS)
    with pytest.raises(RESTError, match="has not ended: repeat it"):
        door.catalog.load_table("lake.orders")

    door.catalog.rename_table("lake.orders", "lake.bought")

    assert len(door.catalog.load_table("lake.bought").scan().to_arrow()) == 6
    assert not door.catalog.table_exists("lake.orders")


def test_a_namespace_with_the_name_of_the_root_is_reported(door, caplog) -> None:
    door.lake.namespaces.create("lake")
    assert door.catalog.list_namespaces() == [("lake",)]
    assert "serve with another --namespace" in caplog.text


def test_a_table_has_one_name_only(door) -> None:
    table = door.catalog.create_table("lake.orders", SCHEMA)
    with pytest.raises(TableAlreadyExistsError, match="is the table of"):
        door.catalog.register_table("lake.again", table.metadata_location)


def test_metadata_of_a_dataset_is_not_registered(door) -> None:
    door.lake.write("flights", ROWS)
    door.lake["flights"].publish("iceberg")
    (file,) = (door.folder / "lake/flights/iceberg/metadata").glob("*.metadata.json")
    with pytest.raises(RESTError, match="is the metadata of a dataset"):
        door.catalog.register_table("lake.again", f"file://{file}")


def test_appends_at_once_are_all_kept(door) -> None:
    door.catalog.create_table("lake.orders", SCHEMA)

    def append(_number: int) -> None:
        table = door.connect().load_table("lake.orders")
        for _ in range(3):
            for _ in range(60):
                try:
                    table.append(ROWS)
                except CommitFailedException:
                    table.refresh()
                else:
                    break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    assert len(door.catalog.load_table("lake.orders").scan().to_arrow()) == 36


def test_a_commit_whose_answer_was_lost_is_acknowledged_if_it_landed(door) -> None:
    door.catalog.create_table("lake.orders", SCHEMA)
    failing = FailingStore(
        door.lake.store, fail_on="replace", landed=True, matching=".iceberg-table.json"
    )
    client = door.serve(lake=lakebed.Repository(failing))

    door.connect(client).load_table("lake.orders").append(ROWS)

    assert failing.has_failed
    assert len(door.catalog.load_table("lake.orders").scan().to_arrow()) == 3
    client.stop()


def test_a_dataset_and_a_table_do_not_share_a_name(door) -> None:
    door.lake.write("flights", ROWS)
    door.catalog.create_table("lake.orders", SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        door.catalog.create_table("lake.flights", SCHEMA)
    with pytest.raises(InvalidInputError):
        door.lake.write("orders", ROWS)


# Who may do what


def test_nothing_is_created_without_the_token_for_writes(tmp_path) -> None:
    door = Door(tmp_path, token="a-token-for-reads")
    reader = door.connect(token="a-token-for-reads")
    for call in (
        lambda: reader.create_namespace("sales"),
        lambda: reader.create_table("lake.t", SCHEMA),
        lambda: reader.drop_table("lake.t"),
        lambda: reader.rename_table("lake.t", "lake.u"),
        lambda: reader.drop_namespace("sales"),
    ):
        with pytest.raises(ForbiddenError):
            call()
    assert door.files == []
    door.client.stop()


def test_appends_alone_create_and_append_and_do_nothing_else(tmp_path) -> None:
    door = Door(tmp_path, "append")
    catalog = door.catalog
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", SCHEMA)
    table.append(ROWS)
    refused = "allows only appends"
    for call in (
        lambda: table.delete("id = 1"),
        lambda: table.update_schema().add_column("x", LongType()).commit(),
        lambda: table.manage_snapshots().create_tag(table.history()[0].snapshot_id, "x").commit(),
    ):
        with pytest.raises(RESTError, match=refused):
            call()
    orders = f"{NAMESPACES}/sales/tables/orders"
    for method, path, body in (
        ("DELETE", orders, None),
        ("DELETE", f"{orders}?purgeRequested=true", None),
        ("DELETE", f"{NAMESPACES}/sales", None),
        ("POST", f"{NAMESPACES}/sales/properties", {"updates": {"a": "b"}}),
        ("POST", f"{NAMESPACES}/sales/register", {"name": "t", "metadata-location": "x"}),
        ("POST", "/v1/lake/tables/rename", {}),
    ):
        status, kind, message = error_of(door.ask(method, path, body))
        assert (status, kind) == (406, "UnsupportedOperationException"), path
        assert refused in message
    assert len(catalog.load_table("sales.orders").scan().to_arrow()) == 3
    door.client.stop()


def test_readers_see_tables_of_a_server_without_writes(door) -> None:
    door.catalog.create_namespace("sales")
    door.catalog.create_table("sales.orders", SCHEMA).append(ROWS)
    client = door.serve(None)
    reader = door.connect(client, token=None)

    assert len(reader.load_table("sales.orders").scan().to_arrow()) == 3
    assert reader.list_namespaces() == [("lake",), ("sales",)]
    assert client.ask(f"{NAMESPACES}/sales/tables", "POST", {}, b"{}").status == 405
    client.stop()


def test_a_server_of_one_dataset_shows_and_changes_nothing_else(door) -> None:
    door.catalog.create_namespace("sales")
    door.catalog.create_table("lake.orders", SCHEMA)
    door.lake.write("flights", ROWS)
    client = door.serve(name="flights")
    alone = door.connect(client)

    assert alone.list_namespaces() == [("lake",)]
    assert alone.list_tables("lake") == [("lake", "flights")]
    with pytest.raises(NoSuchTableError):
        alone.load_table("lake.orders")
    for path in ("", "/lake/tables", "/lake/register"):
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert error_of(client.ask(NAMESPACES + path, "POST", headers, b"{}"))[0] == 406
    client.stop()


def test_metrics_are_accepted_and_views_are_refused_by_name(door) -> None:
    door.lake.write("flights", ROWS)
    metrics = f"{NAMESPACES}/lake/tables/flights/metrics"
    assert door.ask("POST", metrics, {"report-type": "scan-report"}).status == 204
    assert error_of(door.ask("POST", metrics, b"{"))[:2] == (400, "BadRequestException")
    for method, path in (
        ("GET", f"{NAMESPACES}/lake/views"),
        ("POST", f"{NAMESPACES}/lake/views"),
        ("GET", f"{NAMESPACES}/lake/views/v"),
        ("DELETE", f"{NAMESPACES}/lake/views/v"),
        ("POST", "/v1/lake/views/rename"),
        ("POST", "/v1/lake/transactions/commit"),
    ):
        body = None if method == "GET" else b"{}"
        assert error_of(door.ask(method, path, body))[:2] == (406, "UnsupportedOperationException")


def test_damaged_metadata_is_named_and_no_defect(door) -> None:
    table = door.catalog.create_table("lake.orders", SCHEMA)
    path = Path(table.metadata_location.removeprefix("file://"))
    path.write_bytes(b"{")
    load = f"{NAMESPACES}/lake/tables/orders"
    assert error_of(door.ask("GET", load))[:2] == (422, "UnprocessableEntityException")
    path.unlink()
    assert error_of(door.ask("GET", load))[0] == 404
    (door.folder / "lake/orders.iceberg-table.json").write_bytes(b"[]")
    assert error_of(door.ask("GET", load))[:2] == (422, "UnprocessableEntityException")


# Requests that would harm others


def metadata_of(table) -> dict:
    return json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())


def put_metadata(door, key: str, location: str) -> str:
    """Put metadata of a table that says to be elsewhere, and return its location."""
    source = metadata_of(door.catalog.create_table(f"lake.s{uuid.uuid4().hex[:8]}", SCHEMA))
    document = {**source, "table-uuid": str(uuid.uuid4()), "location": location}
    door.lake.store.put(key, json.dumps(document).encode())
    return f"{door.lake.uri}/{key}"


@pytest.mark.parametrize(
    "place",
    ["victim", "flights", "sales", "sales/inner", "flights/_delta_log", "", ".lakebed", "../up"],
)
def test_metadata_that_names_another_folder_is_not_registered(door, place) -> None:
    door.lake.write("flights", ROWS)
    door.lake.namespaces.create("sales")
    door.catalog.create_table("lake.victim", SCHEMA).append(ROWS)
    given = put_metadata(
        door, "evil/metadata/0.metadata.json", f"{door.lake.uri}/{place}".rstrip("/")
    )
    before = door.files

    answer = door.ask(
        "POST", f"{NAMESPACES}/lake/register", {"name": "evil", "metadata-location": given}
    )

    assert error_of(answer)[:2] == (400, "BadRequestException")
    assert door.files == before


def test_a_purge_keeps_tables_in_its_folder(door) -> None:
    door.catalog.create_table("lake.outer", SCHEMA).append(ROWS)
    location = f"{door.lake.uri}/outer/inner"
    given = put_metadata(door, "outer/inner/metadata/0.metadata.json", location)
    door.catalog.register_table("lake.inner", given)
    before = door.files

    with pytest.raises(RESTError, match="those of table 'inner' are in the same folder"):
        door.catalog.purge_table("lake.outer")

    assert door.files == before
    door.catalog.drop_table("lake.inner")
    door.catalog.purge_table("lake.outer")


def test_links_in_the_lake_lead_nowhere(door) -> None:
    outside = door.folder / "outside/metadata"
    outside.mkdir(parents=True)
    table = door.catalog.create_table("lake.orders", SCHEMA)
    (outside / "0.metadata.json").write_text(json.dumps(metadata_of(table)))
    for name in ("sales", "linked"):
        (door.folder / "lake" / name).symlink_to(outside.parent)
    before = sorted(outside.parent.rglob("*"))

    for path, body in (
        ("", {"namespace": ["sales"]}),
        ("/lake/tables", {**SMALLEST, "name": "linked"}),
        ("/lake/tables", {**SMALLEST, "name": "linked", "stage-create": True}),
        ("/sales/tables", SMALLEST),
        (
            "/lake/register",
            {
                "name": "r",
                "metadata-location": f"{door.lake.uri}/linked/metadata/0.metadata.json",
            },
        ),
    ):
        assert "symbolic link" in error_of(door.ask("POST", NAMESPACES + path, body))[2]

    assert sorted(outside.parent.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"parent-snapshot-id": None}, 409),
        ({"parent-snapshot-id": 1}, 409),
        ({"summary": {"operation": "delete"}}, 406),
        ({"summary": None}, 406),
        ({"sequence-number": 2}, 409),
        ({"sequence-number": (1 << 63) - 1}, 400),
        ({"snapshot-id": 1 << 63}, 400),
        ({"timestamp-ms": 1}, 400),
        ({"timestamp-ms": 1 << 61}, 400),
    ],
)
def test_an_append_that_takes_rows_away_or_harms_readers_is_refused(
    tmp_path, change, status
) -> None:
    door = Door(tmp_path, "append")
    table = door.catalog.create_table("lake.orders", SCHEMA)
    table.append(ROWS)
    table.append(ROWS)
    first, last = metadata_of(door.catalog.load_table("lake.orders"))["snapshots"]
    good = {**last, "snapshot-id": 77, "sequence-number": 3}
    good["parent-snapshot-id"] = last["snapshot-id"]
    good["summary"] = {"operation": "append"}
    orders = f"{NAMESPACES}/lake/tables/orders"

    def ask(snapshot: dict | None, snapshot_id: int, **more) -> Answer:
        added = [] if snapshot is None else [{"action": "add-snapshot", "snapshot": snapshot}]
        ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch"}
        ref |= {"snapshot-id": snapshot_id, **more}
        return door.ask("POST", orders, {"requirements": [], "updates": [*added, ref]})

    snapshot = {key: value for key, value in (good | change).items() if value is not None}
    assert error_of(ask(snapshot, snapshot["snapshot-id"]))[0] == status
    assert error_of(ask(None, first["snapshot-id"]))[0] == 406
    assert error_of(ask(good, first["snapshot-id"]))[0] == 406
    assert error_of(ask(good, 77, **{"max-snapshot-age-ms": 1}))[0] == 406
    assert len(door.connect().load_table("lake.orders").scan().to_arrow()) == 6
    assert ask(good, 77).status == 200
    door.client.stop()


@pytest.mark.parametrize(
    "update",
    [
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [{"source-id": 99}]}},
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [{"transform": "bucket[0]"}]}},
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [{"source-id": 99}]}},
        {
            "action": "add-schema",
            "schema": {"type": "struct", "schema-id": 1, "fields": [{"id": 1 << 40}]},
        },
    ],
)
def test_changes_that_other_clients_could_not_read_are_refused(door, update) -> None:
    field = {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "x", "type": "int"}
    field |= {"direction": "asc", "null-order": "nulls-first", "id": 9, "required": False}
    (member,) = {*update} - {"action"}
    fields = [field | changed for changed in update[member]["fields"]]
    update = {**update, member: {**update[member], "fields": fields}}
    door.catalog.create_table("lake.orders", SCHEMA)
    before = door.files

    answer = door.ask(
        "POST", f"{NAMESPACES}/lake/tables/orders", {"requirements": [], "updates": [update]}
    )

    assert error_of(answer)[:2] == (400, "BadRequestException")
    assert door.files == before


def test_a_staged_table_does_not_bring_a_dropped_namespace_back(door) -> None:
    door.catalog.create_namespace("sales")
    staged = door.catalog.create_table_transaction("sales.orders", SCHEMA)
    door.catalog.drop_namespace("sales")
    with pytest.raises((RESTError, NoSuchTableError), match="Namespace does not exist"):
        staged.commit_transaction()
    assert door.catalog.list_namespaces() == [("lake",)]


def test_a_dropped_dataset_does_not_appear_again_as_the_table_that_it_was(door) -> None:
    sales = door.lake.namespaces.create("sales")
    door.catalog.create_table("sales.orders", SCHEMA).append(ROWS)
    sales.adopt("orders", iceberg=True)

    with pytest.warns(lakebed.errors.LakebedWarning):
        sales.drop("orders")

    assert door.catalog.list_tables("sales") == []
    door.catalog.drop_namespace("sales")


def test_files_that_were_adopted_get_no_commits_by_another_name(door) -> None:
    door.catalog.create_table("lake.orders", SCHEMA).append(ROWS)
    door.catalog.rename_table("lake.orders", "lake.bought")
    door.lake.adopt("orders", iceberg=True)

    with pytest.raises(RESTError, match="were adopted as the dataset orders"):
        door.catalog.load_table("lake.bought").append(ROWS)

    assert door.lake["orders"].count() == 3


@pytest.mark.parametrize("end", ["drop", "purge", "rename"])
def test_an_interrupted_rename_does_not_bring_back_what_became_of_its_table(door, end) -> None:
    door.catalog.create_table("lake.orders", SCHEMA).append(ROWS)
    failing = FailingStore(
        door.lake.store, fail_on="replace", nth=2, matching=".iceberg-table.json"
    )
    client = door.serve(lake=lakebed.Repository(failing))
    with pytest.raises(RESTError):
        door.connect(client).rename_table("lake.orders", "lake.bought")
    client.stop()
    if end == "rename":
        door.catalog.rename_table("lake.bought", "lake.third")
    elif end == "purge":
        door.catalog.purge_table("lake.bought")
    else:
        door.catalog.drop_table("lake.bought")

    with pytest.raises(NoSuchTableError):
        door.catalog.rename_table("lake.orders", "lake.bought")

    left = [("lake", "third")] if end == "rename" else []
    assert door.catalog.list_tables("lake") == left


def test_damage_of_one_table_or_namespace_does_not_hide_the_others(door) -> None:
    for name in ("other", "sales"):
        door.catalog.create_namespace(name)
    for name in ("good", "orders"):
        door.catalog.create_table(f"sales.{name}", SCHEMA)
    (door.folder / "lake/sales/orders.iceberg-table.json").write_bytes(b"{")
    (door.folder / "lake/other/_lakebed.namespace.json").write_bytes(b"{")

    assert door.catalog.list_namespaces() == [("lake",), ("other",), ("sales",)]
    assert door.catalog.list_tables("sales") == [("sales", "good"), ("sales", "orders")]
    for path in ("other", "sales/tables/orders"):
        assert error_of(door.ask("GET", f"{NAMESPACES}/{path}"))[0] == 422
    with pytest.raises(NamespaceNotEmptyError):
        door.catalog.drop_namespace("sales")


@pytest.mark.parametrize("allowed", ["append", "all"])
def test_tables_of_format_version_1_take_appends(tmp_path, allowed) -> None:
    door = Door(tmp_path, allowed)
    table = door.catalog.create_table("lake.old", SCHEMA, properties={"format-version": "1"})
    table.append(ROWS)
    table.append(ROWS)
    assert table.format_version == 1
    assert len(door.connect().load_table("lake.old").scan().to_arrow()) == 6
    door.client.stop()


def test_a_table_that_was_renamed_is_purged_after_its_first_namespace(door) -> None:
    door.catalog.create_namespace("sales")
    door.catalog.create_table("sales.orders", SCHEMA).append(ROWS)
    door.catalog.rename_table("sales.orders", "lake.bought")
    door.catalog.drop_namespace("sales")
    assert len(door.catalog.load_table("lake.bought").scan().to_arrow()) == 3

    door.catalog.purge_table("lake.bought")

    assert not [name for name in door.files if name.startswith("sales/orders/")]


def test_a_replaced_table_keeps_its_sequence_numbers_rising(door) -> None:
    table = door.catalog.create_table("lake.orders", SCHEMA)
    for _ in range(3):
        table.append(ROWS)
    (first, *_) = metadata_of(door.catalog.load_table("lake.orders"))["snapshots"]
    snapshot = {**first, "snapshot-id": 77, "sequence-number": 2}
    snapshot["timestamp-ms"] += 30_000
    ref = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 77}
    updates = [{"action": "add-snapshot", "snapshot": snapshot}, ref]
    path = f"{NAMESPACES}/lake/tables/orders"

    assert door.ask("POST", path, {"requirements": [], "updates": updates}).status == 200

    replaced = door.connect().load_table("lake.orders")
    assert replaced.metadata.last_sequence_number == 3
    replaced.append(ROWS)
    assert replaced.metadata.last_sequence_number == 4
