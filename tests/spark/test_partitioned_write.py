"""Spark writes partitions as the kernel does, and a partition gets few files."""

import datetime as dt
import decimal
import math
import uuid
from types import SimpleNamespace

import pyarrow as pa
import pytest
from effort import examples
from frames import comparable, frame_of, spark_rows
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - pyspark's own convention

import lakebed
from lakebed import by
from lakebed.arrow.kernel import BatchTarget, write_batches
from lakebed.errors import ConflictError, InvalidInputError, PartitionSpecError, SchemaMismatchError
from lakebed.model.keys import partition_of, split_label
from lakebed.spark.task_results import results, table_to_bytes
from lakebed.spark.tasks import ROWS_A_MESSAGE, TaskAnswer, balanced, gathering_task, placing_task
from lakebed.store import open_store

pytestmark = [pytest.mark.spark, pytest.mark.thorough]

NOON = dt.datetime(2013, 6, 1, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("ratio", pa.float64()),
        ("exact", pa.decimal128(12, 2)),
        ("ok", pa.bool_()),
    ]
)
TEXTS = [
    None, "", "plain", "é/ü", "a=b", "100%", "x%2Fy", "日本 😀", "007", "..", ".hidden",
    "__HIVE_DEFAULT_PARTITION__", "null", "NULL", "two words", "tab\there", "~OTHER", "\\",
]  # fmt: skip
RATIOS = [None, math.nan, 0.0, -0.0, 1.5, -math.inf, 1e300]
CLUSTER = [None, True, False]


def rows(count):
    return pa.Table.from_pylist(
        [
            {
                "id": i,
                "text": TEXTS[i % len(TEXTS)],
                "at": NOON + dt.timedelta(hours=5 * i, microseconds=i) if i % 9 else None,
                "ratio": RATIOS[i % len(RATIOS)],
                "exact": decimal.Decimal(i % 5) / 4 if i % 4 else None,
                "ok": i % 2 == 0 if i % 3 else None,
            }
            for i in range(count)
        ],
        schema=SCHEMA,
    )


STRATEGIES = {
    "text": [by.identity("text")],
    "odd numbers": [by.identity("ratio"), by.identity("ok")],
    "times": [by.identity("at"), by.year("at")],
    "derived": [by.date("at", name="dt"), by.hash("text", 3), by.fixed_range("id", 50)],
    "dimension": [by.dimension("text", ["plain", "~OTHER", "é/ü"]), by.hash("id", 40)],
}


@pytest.fixture
def repository(tmp_path):
    return lakebed.open_repository(tmp_path / "a lake, 100%")


@pytest.fixture(autouse=True)
def _few_rows_by_the_driver(monkeypatch):
    """Let tasks write what is no more than the driver would take."""
    monkeypatch.setattr("lakebed.spark.few.DRIVER_ROWS", 2_000)


def new_dataset(repository, strategy, schema=SCHEMA):
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by=strategy)
    return repository.create(f"d{uuid.uuid4().hex}", descriptor)


def by_partition(dataset):
    return {one.path: one.row_count for one in dataset.inspect.partitions()}


def clustering(cluster):
    return lakebed.WriteOptions(cluster=cluster)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_row_lands_where_the_local_writer_puts_it(spark, repository, name):
    data = rows(150)
    local = new_dataset(repository, STRATEGIES[name])
    local.append(data)
    frame = frame_of(spark, data).repartition(3)

    for cluster in CLUSTER:
        dataset = new_dataset(repository, STRATEGIES[name])
        commit = dataset.with_options(write=clustering(cluster)).append(frame)

        assert commit.row_count == 150, cluster
        assert by_partition(dataset) == by_partition(local), cluster
        assert comparable(dataset.arrow()) == comparable(data), cluster


@pytest.mark.parametrize("name", ["derived", "dimension"])
def test_what_an_overwrite_replaces_is_counted_by_tasks(spark, repository, name):
    dataset = new_dataset(repository, STRATEGIES[name])
    dataset.append(rows(150))
    frame = frame_of(spark, rows(60)).repartition(3)

    before = {info.key for info in repository.store.list("")}
    found = dataset.overwrite(frame, dry_run=True)
    assert {info.key for info in repository.store.list("")} == before
    view = dataset.where("id < 50" if name == "derived" else "text = 'plain'")
    with pytest.raises(InvalidInputError, match=r"outside|aligned"):
        view.overwrite(frame, dry_run=True)
    commit = dataset.overwrite(frame)

    assert {one.partition for one in found.partitions} == set(commit.partitions)
    assert found.inserted_row_count == commit.inserted_row_count == 60
    assert found.deleted_row_count == commit.deleted_row_count


values = st.one_of(st.none(), st.sampled_from(TEXTS[1:]), st.text(max_size=6))
encodable = values.filter(lambda one: one is None or _is_unicode(one))


def _is_unicode(text):
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@examples(0.4)
@given(
    tasks=st.lists(
        st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), encodable), max_size=30), max_size=4
    ),
    cluster=st.sampled_from(CLUSTER[:2]),
)
def test_rows_that_travel_and_rows_that_stay_are_all_there_once(tasks, cluster):
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    descriptor = lakebed.DatasetDescriptor(
        schema=schema, partition_by=[by.identity("text"), by.hash("n", 50)]
    )
    store = open_store(f"memory://placing-{uuid.uuid4().hex}")
    target = BatchTarget(
        dataset="d", batch_id=1, descriptor=descriptor, options=clustering(cluster)
    )
    batches = [
        pa.RecordBatch.from_pylist([{"n": n, "text": text} for n, text in task], schema=schema)
        for task in tasks
    ]

    placed = [one for batch in batches for one in placing_task(store, target)([batch])]
    by_place = {}
    for batch in placed:
        for row in range(batch.num_rows):
            place = batch.column("place")[row].as_py()
            by_place.setdefault(place, []).append(batch.slice(row, 1))
    answers = [
        answer for batches in by_place.values() for answer in gathering_task(store, target)(batches)
    ]
    found = facts_of(answers)
    expected = write_batches(store, target, batches).facts

    assert counts(found) == counts([expected])
    if cluster:
        partitions = [path for table in found for path in partitions_of(table)]
        assert len(partitions) == len(set(partitions))


@pytest.mark.parametrize(("column_count", "row_count"), [(2, 200_000), (300, 2_000)])
def test_messages_of_rows_that_travel_are_small_though_all_go_to_one_place(column_count, row_count):
    numbers = pa.array(range(row_count), pa.int64())
    table = pa.table(
        {"key": pa.repeat(7, row_count)} | {f"column_{n}": numbers for n in range(column_count - 1)}
    )
    descriptor = lakebed.DatasetDescriptor(schema=table.schema, partition_by="key")
    store = open_store(f"memory://messages-{uuid.uuid4().hex}")
    target = BatchTarget(
        dataset="d", batch_id=1, descriptor=descriptor, options=clustering(cluster=True)
    )

    placed = list(placing_task(store, target)(table.to_batches(max_chunksize=2_000)))

    sizes = [len(row) for batch in placed for row in batch.column("rows").drop_null().to_pylist()]
    header = len(table_to_bytes(table.slice(0, 0)))
    assert max(sizes) * ROWS_A_MESSAGE <= max(2**26, 8 * header * ROWS_A_MESSAGE)
    assert sum(sizes) <= 2 * table.nbytes
    found = facts_of(gathering_task(store, target)(placed))
    assert sum(counts(found).values()) == row_count


@pytest.mark.parametrize(
    ("kept_of_first", "problem"),
    [("answers", "60000 appear twice"), ("rows", "60000 are missing")],
)
def test_an_attempt_that_decides_otherwise_than_the_one_before_fails_the_write(
    kept_of_first, problem
):
    """As where an executor dies after some have fetched what its task gave, and others have not."""
    schema = pa.schema([("n", pa.int64()), ("p", pa.string())])
    descriptor = lakebed.DatasetDescriptor(schema=schema, partition_by="p")
    store = open_store(f"memory://attempts-{uuid.uuid4().hex}")
    target = BatchTarget(dataset="d", batch_id=1, descriptor=descriptor)
    few = [pa.record_batch({"n": range(50_000), "p": ["p0"] * 50_000})]
    many = [pa.record_batch({"n": range(10_000), "p": [f"p{n % 40}" for n in range(10_000)]})]
    writes = list(
        placing_task(store, target)([*few, *many])
    )  # by itself: it has seen one partition
    gives = list(placing_task(store, target)([*many, *few]))
    first, second = (writes, gives) if kept_of_first == "answers" else (gives, writes)

    # What has no place is fetched by one task, and all rows by others.
    of_first = [batch.filter(batch.column("place").is_null()) for batch in first]
    of_second = [batch.filter(batch.column("place").is_valid()) for batch in second]
    answers = [
        *gathering_task(store, target)(of_first),
        *gathering_task(store, target)(of_second),
    ]

    with pytest.raises(ConflictError, match=problem):
        facts_of(answers)
    for attempt in (writes, gives):
        assert sum(counts(facts_of(gathering_task(store, target)(attempt))).values()) == 60_000


def facts_of(answers):
    """Return the facts of all that tasks have written; raise the error of one that failed."""
    rows = [SimpleNamespace(**row) for answer in answers for row in answer.to_pylist()]
    shares = balanced(results(rows, TaskAnswer))
    return [share.written.facts for share in shares if share.written is not None]


def partitions_of(facts):
    return [partition_of(split_label(label)[0]) for label in facts.column("label").to_pylist()]


def counts(tables):
    found = {}
    for table in tables:
        for path, count in zip(
            partitions_of(table), table.column("row_count").to_pylist(), strict=True
        ):
            found[path] = found.get(path, 0) + count
    return found


def events(spark, count, tasks):
    return spark.range(0, count, 1, tasks).select(
        "id",
        F.timestamp_micros(F.col("id") * 3_600_000_000).alias("at"),
        (F.col("id") * 7919 % 100).cast("int").alias("key"),
    )


def test_scattered_rows_give_each_partition_one_file(spark, repository):
    frame = events(spark, 4_000, 4)

    by_itself = new_dataset(repository, "key", frame).append(frame)
    by_wish = new_dataset(repository, "hash(key, 5)", frame)
    commit = by_wish.with_options(write=clustering(cluster=True)).append(frame)
    apart = (
        new_dataset(repository, "key", frame)
        .with_options(write=clustering(cluster=False))
        .append(frame)
    )

    assert len(by_itself.files_added) == 100
    assert len(commit.files_added) == len(commit.partitions) == 5
    assert len(apart.files_added) == 400
    assert by_itself.row_count == commit.row_count == apart.row_count == 4_000


@pytest.mark.parametrize("cluster", CLUSTER[:2])
def test_hot_partition_is_written_by_each_task_that_has_many_of_its_rows(monkeypatch, cluster):
    monkeypatch.setattr("lakebed.spark.tasks._HOT_BYTES", 100_000)
    schema = pa.schema([("n", pa.int64()), ("p", pa.int64())])
    store = open_store(f"memory://hot-{uuid.uuid4().hex}")
    target = BatchTarget(
        dataset="d",
        batch_id=1,
        descriptor=lakebed.DatasetDescriptor(schema=schema, partition_by="p"),
        options=clustering(cluster),
    )
    # 90 of 100 rows are of one partition, the others of 100, in each of four tasks.
    tasks = [
        pa.record_batch(
            {"n": range(10_000), "p": [n % 1_000 if n % 10 == 0 else 7_777 for n in range(10_000)]}
        )
        for _ in range(4)
    ]

    placed = [list(placing_task(store, target)([batch])) for batch in tasks]
    answers = list(gathering_task(store, target)([one for task in placed for one in task]))

    found = facts_of(answers)
    assert counts(found) == counts([write_batches(store, target, tasks).facts])
    files = [path for table in found for path in partitions_of(table)]
    assert files.count("p=7777") == (1 if cluster else 4)
    assert len(files) == 100 + files.count("p=7777")
    carried = sum(
        len(row) for one in placed[0] for row in one.column("rows").drop_null().to_pylist()
    )
    assert (carried < 100_000) is not cluster


def test_rows_in_order_are_written_by_the_tasks_that_have_them(spark, repository, monkeypatch):
    monkeypatch.setattr("lakebed.spark.tasks._ROWS_TO_DECIDE", 100)
    frame = events(spark, 2_400, 2)
    dataset = new_dataset(repository, "date(at) as dt", frame)

    commit = dataset.append(frame)

    assert len(commit.partitions) == len(commit.files_added) == 100
    assert spark_rows(dataset.spark(spark)) == spark_rows(frame)


def test_a_task_of_many_partitions_and_one_of_few_share_a_batch(spark, repository):
    few = events(spark, 2_500, 1).withColumn("key", F.lit(7))
    frame = events(spark, 6_000, 2).unionByName(few)
    dataset = new_dataset(repository, "key", frame)

    commit = dataset.append(frame)

    # Rows that were given on, and rows that the third task wrote itself.
    assert len(commit.files_added) == 101
    assert commit.row_count == 8_500
    assert dataset.where("key = 7").count() == 2_560
    assert spark_rows(dataset.spark(spark)) == spark_rows(frame)


@pytest.mark.parametrize("cluster", CLUSTER)
def test_a_value_without_a_partition_is_named_and_nothing_stays(
    spark, repository, tmp_path, cluster
):
    frame = events(spark, 2_000, 3)
    bounded = new_dataset(repository, [by.range("id", [500, 1_998]), by.identity("key")], frame)
    long = frame.withColumn("text", F.when(F.col("id") == 1_999, F.repeat(F.lit("x"), F.lit(300))))
    texts = new_dataset(repository, [by.identity("key"), by.identity("text")], long)

    with pytest.raises(PartitionSpecError, match="1999"):
        bounded.with_options(write=clustering(cluster)).append(frame)
    with pytest.raises(PartitionSpecError, match="'text' needs"):
        texts.with_options(write=clustering(cluster)).append(long)

    assert bounded.version == texts.version == 0
    assert not list(tmp_path.rglob("*.parquet"))
    assert not list(tmp_path.rglob("batches/*"))


@pytest.mark.parametrize("cluster", CLUSTER)
def test_a_null_where_none_may_be_is_refused_and_nothing_stays(
    spark, repository, tmp_path, cluster
):
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("key", pa.int32())])
    dataset = new_dataset(repository, "key", schema)
    frame = events(spark, 2_000, 3).select(
        F.when(F.col("id") != 1_500, F.col("id")).alias("id"), "key"
    )

    with pytest.raises(SchemaMismatchError, match="'id' is not nullable"):
        dataset.with_options(write=clustering(cluster)).append(frame)

    assert dataset.version == 0
    assert not list(tmp_path.rglob("*.parquet"))


def test_rows_that_travel_are_checked_against_the_view(spark, repository, tmp_path):
    frame = events(spark, 2_000, 2)
    dataset = new_dataset(repository, "key", frame)
    half = dataset.where("key < 50")

    with pytest.raises(InvalidInputError, match="outside the view"):
        dataset.with_options(write=clustering(cluster=True)).overwrite(frame, half)
    commit = dataset.with_options(write=clustering(cluster=True)).overwrite(
        frame.where("key < 50"), half
    )

    assert commit.row_count == 1_000
    assert len(commit.files_added) == len(list(tmp_path.rglob("*.parquet"))) - 1 == 50


def test_the_callers_settings_for_messages_are_kept(spark, repository):
    names = ["maxBytesPerBatch", "maxRecordsPerBatch"]
    settings = [f"spark.sql.execution.arrow.{name}" for name in names]
    frame = events(spark, 300, 2).withColumn("blob", F.repeat(F.lit("x"), F.lit(5_000)))
    for value in (None, "100000"):
        if value is not None:
            spark.conf.set(settings[0], value)
        before = [spark.conf.get(name, None) for name in settings]
        try:
            for blob in (F.col("blob"), F.col("blob").cast("binary")):
                data = frame.withColumn("blob", blob)
                dataset = new_dataset(repository, "key", data)
                assert dataset.append(data).row_count == 300

            assert [spark.conf.get(name, None) for name in settings] == before
        finally:
            spark.conf.unset(settings[0])


@pytest.mark.parametrize("strategy", [[], "hash(id, 4)"])
@pytest.mark.parametrize("cluster", CLUSTER[1:])
def test_a_session_with_large_texts_writes_too(spark, repository, strategy, cluster):
    data = rows(60)
    dataset = new_dataset(repository, strategy)
    frame = frame_of(spark, data).repartition(3)
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        commit = dataset.with_options(write=clustering(cluster)).append(frame)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")

    assert commit.row_count == 60
    assert comparable(dataset.arrow()) == comparable(data)


def test_large_rows_travel_too(spark, repository):
    frame = events(spark, 120, 2).withColumn("text", F.repeat(F.lit("xyz"), F.lit(300_000)))
    dataset = new_dataset(repository, "key", frame)

    commit = dataset.with_options(write=clustering(cluster=True)).append(frame)

    assert len(commit.files_added) == len(commit.partitions) == 100
    assert dataset.arrow(["text"]).column("text").nbytes > 120 * 900_000


@pytest.mark.long
def test_ten_thousand_partitions_in_one_write_have_a_file_each(spark, repository):
    frame = spark.range(0, 400_000, 1, 8).select(
        "id", (F.col("id") * 7919 % 10_000).cast("int").alias("key")
    )
    dataset = new_dataset(repository, "key", frame)

    commit = dataset.append(frame)

    assert len(commit.partitions) == len(commit.files_added) == 10_000
    assert {one.row_count for one in dataset.inspect.partitions()} == {40}
