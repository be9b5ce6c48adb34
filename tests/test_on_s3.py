"""The whole way on an object store: the same calls as in a directory."""

import uuid

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.store.cache import PROCESS_CACHE
from lakebed.testing import CountingStore

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def rows(count):
    return [{"k": "abc"[i % 3], "n": i} for i in range(count)]


@pytest.fixture
def repository(s3_options):
    url = f"s3://lake/{uuid.uuid4().hex}"
    return lakebed.open_repository(url, storage_options=s3_options)


@pytest.fixture
def dataset(repository):
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="k")
    return repository.create("letters", descriptor)


def test_batches_are_appended_overwritten_and_read_back(repository, dataset):
    dataset.append(rows(9), run="first")
    commit = dataset.overwrite([{"k": "b", "n": 100}])

    assert commit.version == 2
    assert dataset.count() == 7
    assert dataset.where("k = 'b'").arrow()["n"].to_pylist() == [100]
    assert dataset.at(version=1).count() == 9
    assert repository.list() == ["letters"]
    repository.drop("letters")
    assert list(repository.store.list()) == []


def test_the_loser_of_two_overwrites_leaves_nothing(repository, dataset):
    dataset.append(rows(3))
    first = dataset.kite.writer()  # begins on version 1
    other = repository.open("letters")

    def late():
        other.overwrite([{"k": "a", "n": 7}])
        yield {"k": "a", "n": 8}

    with pytest.raises(CommitConflictError, match="both touch k=a"):
        dataset.overwrite(late())
    first.abort()

    assert dataset.where("k = 'a'").arrow()["n"].to_pylist() == [7]
    live = {file.key for file in dataset.files()}
    stored = {info.key for info in repository.store.list("letters/data") if "part-" in info.key}
    assert len(stored - live) == 1  # the file of version 1


def test_a_plan_by_partition_takes_one_request(repository, dataset):
    for number in range(20):
        dataset.append([{"k": "a", "n": number}])
    counting = CountingStore(repository.store)
    view = lakebed.Repository(counting).open("letters").where("k = 'a'")
    counting.reset()

    plan = view.plan()

    assert len(plan) == 20
    assert plan.requests == counting.counts.get == 1
    assert counting.counts.list == counting.counts.head == counting.counts.put == 0


def test_a_plan_by_statistics_reads_the_file_table_once(repository, dataset):
    for number in range(20):
        dataset.append([{"k": "a", "n": number}])
    counting = CountingStore(repository.store)
    view = lakebed.Repository(counting).open("letters").where("k = 'a' AND n > 3")
    PROCESS_CACHE.clear()
    counting.reset()

    plan = view.plan()

    assert len(plan) == 16
    assert plan.requests == counting.counts.get == 1 + len(plan.state.lists.files)
    assert view.plan().requests <= 2  # the head again, and of the file table nothing
    assert counting.counts.list == counting.counts.put == 0


@pytest.mark.spark
def test_spark_tasks_write_to_the_store_and_read_from_it(spark, dataset):
    frame = spark.createDataFrame(pa.Table.from_pylist(rows(300), schema=SCHEMA))

    commit = dataset.append(frame)
    found = dataset.where("k != 'c' AND n < 30").spark(spark)

    assert commit.row_count == 300
    assert sorted(row.n for row in found.collect()) == [n for n in range(30) if n % 3 != 2]
    with pytest.raises(InvalidInputError, match="no connector"):
        dataset.spark(spark, way="native")


def _delta_options(s3_options):
    return {
        "aws_endpoint_url": s3_options["endpoint"],
        "aws_access_key_id": "testing",
        "aws_secret_access_key": "testing",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
    }


def _iceberg_options(s3_options):
    return {
        "s3.endpoint": s3_options["endpoint"],
        "s3.access-key-id": "testing",
        "s3.secret-access-key": "testing",
        "s3.region": "us-east-1",
    }


def test_tables_of_other_formats_are_published_and_read_back(dataset, s3_options):
    import polars
    from pyiceberg.table import StaticTable

    dataset.append(rows(4), run="first")
    dataset.publish("delta")
    dataset.publish("iceberg")
    dataset.rerun(rows(6), run="first", replace_all=True)
    assert dataset.publish("delta").removed_count == dataset.publish("iceberg").removed_count > 0

    wanted = sorted(dataset.arrow()["n"].to_pylist())
    frame = polars.read_delta(f"{dataset.uri}/data", storage_options=_delta_options(s3_options))
    assert sorted(frame["n"].to_list()) == wanted
    table = StaticTable.from_metadata(f"{dataset.uri}/iceberg", _iceberg_options(s3_options))
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == wanted
    assert dataset.publish("delta", check=True).was_in_step
    assert dataset.publish("iceberg", check=True).was_in_step


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_of_other_formats_are_taken_over_where_they_lie(
    repository, s3_options, tmp_path, kind
):
    table = pa.table({"k": list("abcabc"), "n": range(6)})
    home = f"{repository.uri}/theirs"
    if kind == "delta":
        from deltalake import write_deltalake

        options = _delta_options(s3_options)
        write_deltalake(home, table, partition_by=["k"], storage_options=options)
        write_deltalake(home, table.slice(0, 3), mode="overwrite", storage_options=options)
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        options = {"uri": f"sqlite:///{tmp_path}/c.db", **_iceberg_options(s3_options)}
        with SqlCatalog("c", **options) as catalog:
            catalog.create_namespace("web")
            written = catalog.create_table("web.theirs", table.schema, location=home)
            written.append(table)
            written.overwrite(table.slice(0, 3))

    with pytest.raises(InvalidInputError, match="cannot be adopted as plain files"):
        repository.adopt("theirs", partition_by="k")
    deeper = lakebed.open_repository(home, storage_options=s3_options)
    with pytest.raises(InvalidInputError, match="cannot be adopted as plain files"):
        deeper.adopt("data")
    taken = repository.adopt("theirs", **{kind: True})

    assert sorted(taken.arrow()["n"].to_pylist()) == [0, 1, 2]
    taken.append(rows(4))
    assert taken.count() == 7
