"""Descriptors in a metastore, as tables that everybody sees."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor, HiveMetadataProvider
from lakebed.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    DatasetExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    InvalidNameError,
)

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

USERS = DatasetDescriptor(
    schema=pa.schema([("user_id", pa.int64()), ("name", pa.string())]),
    partition_by="hash(user_id, 53)",
    properties={"owner": "ops"},
)
WIDER = DatasetDescriptor(
    schema=pa.schema([("user_id", pa.int64()), ("name", pa.string()), ("more", pa.float64())]),
    partition_by="hash(user_id, 53)",
)


@pytest.fixture
def database(spark) -> Iterator[str]:
    name = f"d{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP DATABASE IF EXISTS {name} CASCADE")


@pytest.fixture
def provider(spark, database: str, tmp_path: Path) -> HiveMetadataProvider:
    root = lakebed.open_repository(tmp_path / "lake").uri
    return HiveMetadataProvider(spark, database=database, root=root)


def test_descriptors_are_tables_with_their_columns(
    spark, provider: HiveMetadataProvider, database: str
) -> None:
    assert (provider.list(), provider.exists("users")) == ([], False)
    provider.create("users", USERS)

    assert (provider.load("users"), provider.list()) == (USERS, ["users"])
    assert spark.table(f"{database}.users").columns == ["user_id", "name", "user_id_hash"]
    with pytest.raises(DatasetExistsError):
        provider.create("users", WIDER)
    provider.update("users", WIDER)
    assert provider.load("users") == WIDER
    assert "more" in spark.table(f"{database}.users").columns
    assert [provider.delete("users"), provider.delete("users")] == [True, False]
    assert not spark.catalog.tableExists(f"{database}.users")
    with pytest.raises(DatasetNotFoundError):
        provider.load("users")
    with pytest.raises(DatasetNotFoundError):
        provider.update("users", USERS)


def test_repository_tells_it_and_publishes_to_its_tables(
    spark, provider: HiveMetadataProvider, database: str, tmp_path: Path
) -> None:
    lake = lakebed.open_repository(tmp_path / "lake", metadata=provider)
    users = lake.create("users", USERS)
    users.overwrite([{"user_id": 1234, "name": "jane"}])

    users.publish("hive", spark, table=f"{database}.users")

    rows = spark.sql(f"SELECT user_id, user_id_hash FROM {database}.users").collect()
    assert [tuple(row) for row in rows] == [(1234, 15)]
    users.evolve(WIDER, base=users.version)
    assert provider.load("users") == WIDER
    lake.drop("users")
    assert provider.list() == []


def test_datasets_follow_a_metastore_that_others_write(
    spark, provider: HiveMetadataProvider, database: str, tmp_path: Path
) -> None:
    lake = lakebed.open_repository(tmp_path / "lake", metadata=provider)
    provider.create("users", USERS)
    spark.sql(
        f"CREATE TABLE {database}.theirs (n BIGINT, dt STRING) USING parquet PARTITIONED BY (dt) "
        f"LOCATION '{tmp_path}/theirs'"
    )

    assert lake.trees.follow_metadata() == ("theirs", "users")

    theirs = lake.open("theirs").descriptor
    assert (list(theirs.schema.names), str(theirs.partition_by)) == (
        ["n", "dt"],
        "identity(dt) as dt",
    )
    assert lake.open("users").descriptor == USERS
    spark.sql(f"ALTER TABLE {database}.theirs ADD COLUMNS (more DOUBLE)")
    assert lake.trees.follow_metadata() == ("theirs",)
    assert "more" in lake.open("theirs").schema


def test_tables_of_others_are_read_and_never_changed(
    spark, provider: HiveMetadataProvider, database: str
) -> None:
    spark.sql(f"CREATE DATABASE {database}")
    spark.sql(f"CREATE TABLE {database}.theirs (n BIGINT) USING parquet")

    assert provider.load("theirs").schema.names == ("n",)
    with pytest.raises(AlreadyExistsError, match="not made by Lakebed"):
        provider.save("theirs", USERS)
    with pytest.raises(AlreadyExistsError, match="not made by Lakebed"):
        provider.delete("theirs")
    assert spark.table(f"{database}.theirs").columns == ["n"]


def test_what_a_table_cannot_be_is_refused(
    spark, provider: HiveMetadataProvider, database: str
) -> None:
    with pytest.raises(InvalidInputError, match="avro"):
        provider.save("users", DatasetDescriptor(schema=USERS.schema, format="avro"))
    with pytest.raises(InvalidNameError, match="case of names"):
        provider.save("Users", USERS)
    provider.save("users", USERS)
    with pytest.raises(InvalidInputError, match="in place"):
        provider.save("users", DatasetDescriptor(schema=USERS.schema, partition_by="name"))
    spark.sql(f"ALTER TABLE {database}.users SET TBLPROPERTIES ('lakebed.descriptor.0' = 'broken')")
    with pytest.raises(CorruptMetadataError, match="does not describe a dataset"):
        provider.load("users")


def test_wide_schema_is_kept_in_parts(provider: HiveMetadataProvider) -> None:
    wide = DatasetDescriptor(
        schema=pa.schema([(f"column_{number}", pa.int64()) for number in range(500)])
    )

    provider.save("wide", wide)

    assert provider.load("wide") == wide


def test_properties_that_describe_nothing_are_corrupt(
    provider: HiveMetadataProvider, database: str, spark
) -> None:
    provider.save("users", USERS)
    for text in ("{", "{}", '{"schema": 1}'):
        spark.sql(
            f"ALTER TABLE {database}.users SET TBLPROPERTIES ('lakebed.descriptor.0' = '{text}')"
        )
        with pytest.raises(
            CorruptMetadataError, match=r"properties of table .*users does not describe a dataset"
        ):
            provider.load("users")


def test_dataset_that_cannot_be_a_table_is_not_created(
    spark, provider: HiveMetadataProvider, database: str, tmp_path: Path
) -> None:
    lake = lakebed.open_repository(tmp_path / "lake", metadata=provider)
    spark.sql(f"CREATE DATABASE {database}")
    spark.sql(f"CREATE TABLE {database}.theirs (n BIGINT) USING parquet")
    time = pa.schema([("at", pa.timestamp("us"))])
    refused = {
        "times": DatasetDescriptor(schema=time, format="avro"),
        "Users": USERS,
        "theirs": USERS,
    }

    for name, descriptor in refused.items():
        with pytest.raises((InvalidInputError, InvalidNameError, AlreadyExistsError)):
            lake.create(name, descriptor)

    assert lake.list() == []
    assert list(lake.store.list("")) == []
    users = lake.create("users", USERS)
    with pytest.raises(InvalidInputError):
        users.evolve(
            DatasetDescriptor(schema=USERS.schema, partition_by="name"), base=users.version
        )
    assert (users.version, lake.open("users").descriptor) == (0, USERS)


@pytest.mark.parametrize("spelling", ["path", "file:/", "Path"])
def test_root_may_be_a_path(spark, database: str, tmp_path: Path, spelling: str) -> None:
    path = tmp_path / "lake"
    root = {"path": str(path), "file:/": f"file:{path}/", "Path": path}[spelling]
    metadata = HiveMetadataProvider(spark, database=database, root=root)
    lake = lakebed.open_repository(path, metadata=metadata)
    users = lake.create("users", USERS)
    users.overwrite([{"user_id": 1234, "name": "jane"}])

    users.publish("hive", spark, table=f"{database}.users")

    assert spark.table(f"{database}.users").count() == 1
    assert users.unpublish("hive", spark, table=f"{database}.users")
