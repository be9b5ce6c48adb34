"""View.dataset: whoever reads it has the rows of the view, and opens no file in vain."""

import datetime as dt
import decimal
import uuid
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from strategies import predicates

import lakebed
from lakebed import Dataset, DatasetDescriptor, View, WriteOptions
from lakebed.errors import CorruptMetadataError, DamagedFileError, InvalidInputError
from lakebed.model.predicate import Predicate
from lakebed.store.memory import MemoryStore

UTC = dt.UTC
NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("carrier", pa.string()),
        ("delay", pa.float64()),
        ("seats", pa.int32()),
        ("price", pa.decimal128(8, 2)),
        ("day", pa.date32()),
        ("position", pa.struct([("latitude", pa.float64()), ("code", pa.string())])),
        ("n", pa.int64()),
    ]
)
PARTITIONS = "date(ts) as dt, hash(carrier, 3) as h"
VALUES: dict[str, list[Any]] = {
    "ts": [dt.datetime(2013, 6, day, hour, tzinfo=UTC) for day in (1, 2, 3) for hour in (0, 23)],
    "carrier": ["UA", "B6", "a/b=c%", "é", ""],
    "delay": [-1.0, 0.0, -0.0, 5.0, NAN],
    "seats": [-1, 0, 7],
    "price": [decimal.Decimal("1.50"), decimal.Decimal("-2.00")],
    "day": [dt.date(2013, 6, 1), dt.date(1969, 12, 31)],
}


def rows(count: int) -> list[dict[str, Any]]:
    """Rows in which every value of a column comes with every one of another, null among them."""
    columns = {name: [None, *values] for name, values in VALUES.items()}
    steps = dict(zip(columns, (1, 3, 5, 7, 11, 13), strict=True))
    return [
        {name: values[(n // steps[name] + n) % len(values)] for name, values in columns.items()}
        | {"position": None if n % 9 == 0 else {"latitude": n / 2, "code": "abc"[n % 3]}, "n": n}
        for n in range(count)
    ]


def make(root: object = None, **more: Any) -> Dataset:
    repository = (
        lakebed.Repository(MemoryStore(uuid.uuid4().hex))
        if root is None
        else lakebed.open_repository(str(root))
    )
    descriptor = DatasetDescriptor(**{"schema": SCHEMA, "partition_by": PARTITIONS, **more})
    return repository.create("flights", descriptor)


@pytest.fixture(scope="module")
def flights() -> Dataset:
    dataset = make()
    half = rows(120)
    dataset.with_options(write=WriteOptions(row_group_bytes=1)).append(half[:60])
    dataset.append(half[60:])
    dataset.where("seats = 7 AND delay = 5").delete()
    return dataset


def numbers(table: Any) -> list[int]:
    return sorted(table["n"].to_pylist() if isinstance(table, pa.Table) else table["n"].to_list())


# Conditions that engines push down, in DuckDB's SQL, for Polars, and for pyarrow.
FILTERS = [
    (
        "ts >= TIMESTAMPTZ '2013-06-02 00:00:00Z'",
        pl.col("ts") >= dt.datetime(2013, 6, 2, tzinfo=UTC),
        pc.field("ts") >= pc.scalar(pa.scalar(dt.datetime(2013, 6, 2, tzinfo=UTC))),
    ),
    ("carrier = 'UA'", pl.col("carrier") == "UA", pc.field("carrier") == "UA"),
    (
        "carrier IN ('B6', 'a/b=c%')",
        pl.col("carrier").is_in(["B6", "a/b=c%"]),
        pc.field("carrier").isin(["B6", "a/b=c%"]),
    ),
    ("carrier IS NULL", pl.col("carrier").is_null(), pc.field("carrier").is_null()),
    ("seats <> 7", pl.col("seats") != 7, pc.field("seats") != 7),
    (
        "seats > 0 OR carrier = ''",
        (pl.col("seats") > 0) | (pl.col("carrier") == ""),
        (pc.field("seats") > 0) | (pc.field("carrier") == ""),
    ),
    (
        "price = 1.5 AND n BETWEEN 20 AND 150",
        (pl.col("price") == decimal.Decimal("1.50")) & pl.col("n").is_between(20, 150),
        (pc.field("price") == decimal.Decimal("1.50"))
        & (pc.field("n") >= 20)
        & (pc.field("n") <= 150),
    ),
    (
        "day < DATE '2000-01-01'",
        pl.col("day") < dt.date(2000, 1, 1),
        pc.field("day") < dt.date(2000, 1, 1),
    ),
    ("delay < 5", None, pc.field("delay") < 5.0),
    (
        "position.code = 'b'",
        pl.col("position").struct.field("code") == "b",
        pc.field("position", "code") == "b",
    ),
]
VIEWS = [
    "n >= 0",
    "dt >= '2013-06-02'",
    "ts < '2013-06-02 12:00:00' AND seats >= 0",
    "delay > 0",
    "delay < 5 OR delay IS NULL",
    "NOT (delay <= 0)",
    "carrier IN ('UA', 'é') AND position.latitude > 20",
    "carrier IS NULL OR price > 0",
    "n < 0",
]


@pytest.mark.parametrize("where", VIEWS)
def test_engines_see_the_rows_of_the_view_whatever_they_push_down(
    flights: Dataset, where: str
) -> None:
    view = flights.where(where)
    truth, given = view.arrow(), view.dataset()
    frame = pl.DataFrame(truth)

    assert given.schema == truth.schema
    assert numbers(given.to_table()) == numbers(truth)
    assert given.count_rows() == truth.num_rows == view.count()
    assert numbers(given.to_table(columns=["n"])) == numbers(truth)
    doubled = given.to_table(columns={"n": pc.field("n"), "twice": pc.field("n") * 2})
    assert pc.sum(doubled["twice"]).as_py() == (2 * sum(numbers(truth)) or None)
    assert given.head(3).num_rows == min(3, truth.num_rows)
    for sql, lazy, expression in FILTERS:
        got = duckdb.sql(f"SELECT n FROM given WHERE {sql}").to_arrow_table()
        expected = duckdb.sql(f"SELECT n FROM truth WHERE {sql}").to_arrow_table()
        assert numbers(got) == numbers(expected), sql
        if lazy is not None:
            got_frame = pl.scan_pyarrow_dataset(given).filter(lazy).select("n").collect()
            assert numbers(got_frame) == numbers(frame.filter(lazy)), sql
        in_memory = ds.dataset(truth).to_table(filter=expression)
        assert numbers(given.to_table(filter=expression)) == numbers(in_memory), sql
        assert given.filter(expression).count_rows() == in_memory.num_rows, sql


ENTITIES = st.lists(
    st.fixed_dictionaries(
        {name: st.sampled_from([None, *values]) for name, values in VALUES.items()}
    ),
    max_size=10,
)


@examples(0.3)
@given(
    entities=ENTITIES,
    predicate=predicates(VALUES, max_leaves=5),
    pushed=predicates({**VALUES, "delay": [0.0, 5.0]}, max_leaves=4),
    row_group_bytes=st.sampled_from([1, 2**20]),
)
def test_any_view_reads_through_duckdb_as_by_itself(
    entities: list[dict[str, Any]], predicate: Predicate, pushed: Predicate, row_group_bytes: int
) -> None:
    dataset = make()
    held = [{**entity, "n": n} for n, entity in enumerate(entities)]
    dataset.with_options(write=WriteOptions(row_group_bytes=row_group_bytes)).append(held)
    view = dataset.where(predicate)
    given = view.dataset()
    sql = duckdb_sql(pushed)

    got = duckdb.sql(f"SELECT n FROM given WHERE {sql}").to_arrow_table()

    included = [one["n"] for one in held if view.where(pushed).kite.includes(one)]
    assert numbers(got) == included
    assert numbers(given.to_table()) == numbers(view.arrow())


def duckdb_sql(predicate: Predicate) -> str:
    """Spell a predicate for DuckDB, which agrees on null, NaN and the two zeros.

    It does not on empty lists: of null it says that nobody knows whether it is in one.
    """
    import sqlglot
    from sqlglot import exp

    def without_empty_lists(part: Any) -> Any:
        is_empty = isinstance(part, exp.In) and not part.expressions
        return exp.false() if is_empty else part

    tree = sqlglot.parse_one(str(predicate), dialect="spark").transform(without_empty_lists)
    return tree.sql(dialect="duckdb")


def remove_all_but(dataset: Dataset, root: Path, where: str) -> int:
    """Delete the files that a view need not read, and return how many are left."""
    kept = {file.key for file in dataset.where(where).plan().files}
    for file in dataset.files():
        if file.key not in kept:
            (root / file.key).unlink()
    return len(kept)


class TestFilesThatAreNotOpened:
    """What is deleted cannot be opened."""

    @pytest.fixture
    def local(self, tmp_path: Path) -> Dataset:
        dataset = make(tmp_path, index=["seats"])
        for _ in range(2):
            dataset.append(rows(120))
        return dataset

    @pytest.mark.parametrize(
        ("where", "sql"),
        [
            # A derived partition field, a hash and an identity, statistics.
            ("ts >= '2013-06-03'", "ts >= TIMESTAMPTZ '2013-06-03 00:00:00Z'"),
            ("carrier = 'B6'", "carrier = 'B6'"),
            ("carrier IN ('B6', 'é')", "carrier IN ('B6', 'é')"),
            ("n > 110", "n > 110"),
            ("carrier = 'B6' AND n > 100", "n > 100 AND carrier = 'B6'"),
        ],
    )
    def test_filter_that_is_pushed_down_reaches_the_planner(
        self, local: Dataset, tmp_path: Path, where: str, sql: str
    ) -> None:
        expected = numbers(local.where(where).arrow())
        given = local.dataset()

        left = remove_all_but(local, tmp_path, where)

        assert 0 < left < len(local.files())
        assert numbers(duckdb.sql(f"SELECT n FROM given WHERE {sql}").to_arrow_table()) == expected
        frame = pl.scan_pyarrow_dataset(given).sql(f"SELECT n FROM self WHERE {where}")
        assert where.startswith("ts") or numbers(frame.collect()) == expected

    def test_files_are_passed_over_by_an_index(self, tmp_path: Path) -> None:
        ids = make(
            tmp_path,
            schema=pa.schema([("id", pa.string()), ("n", pa.int64())]),
            partition_by=(),
            index=["id"],
        )
        for number in range(8):
            ids.append([{"id": f"{n * 7919 % 101}-{number}", "n": n} for n in range(101)])
        remove_all_but(ids, tmp_path, "id = '50-3'")

        given = ids.dataset()

        assert duckdb.sql("SELECT count(*) FROM given WHERE id = '50-3'").fetchall() == [(1,)]
        assert pl.scan_pyarrow_dataset(given).filter(pl.col("id") == "50-3").collect().height == 1

    def test_partition_fields_that_are_shown_can_be_filtered_by(
        self, local: Dataset, tmp_path: Path
    ) -> None:
        given = local.select("n", "dt", "h", "batch_id").dataset()
        expected = numbers(local.where("dt = '2013-06-02'").arrow())
        remove_all_but(local, tmp_path, "dt = '2013-06-02'")

        assert given.schema.field("dt").type == pa.date32()
        assert given.schema.field("h").type == pa.int32()
        got = duckdb.sql("SELECT n, batch_id FROM given WHERE dt = DATE '2013-06-02'")
        assert numbers(got.to_arrow_table()) == expected

    def test_partition_fields_are_hidden_unless_asked_for(self, local: Dataset) -> None:
        assert local.dataset().schema.names == list(local.columns) == SCHEMA.names


def maybe(kind: Any) -> list[Any]:
    return ["null", kind]


def described(**fields: Any) -> DatasetDescriptor:
    """Return a descriptor of fields by their Avro types; a tuple has a default too."""
    spelled = []
    for name, kind in fields.items():
        told, default = kind if isinstance(kind, tuple) else (maybe(kind), None)
        spelled.append({"name": name, "type": told, "default": default})
    return DatasetDescriptor(schema={"type": "record", "name": "row", "fields": spelled})


def place(*names: str) -> dict[str, Any]:
    """Return the Avro type of a record of texts."""
    fields = [{"name": name, "type": maybe("string"), "default": None} for name in names]
    return {"type": "record", "name": "place", "fields": fields}


def versions(*descriptors: DatasetDescriptor) -> Dataset:
    """Return a dataset with a file of each descriptor, of which `n` is the number."""
    repository = lakebed.Repository(MemoryStore(uuid.uuid4().hex))
    dataset = repository.create("rows", descriptors[0])
    for number, descriptor in enumerate(descriptors):
        dataset.evolve(descriptor, base=dataset.version)
        more = {"gone": "lost"} if number == 0 and "gone" in dataset.columns else {}
        dataset.append([{"n": number, "s": f"text {number}", **more}])
    return dataset


class TestOlderSchemas:
    """Files of older schemas read as files of the current one."""

    def test_added_promoted_dropped_and_added_again(self) -> None:
        dataset = versions(
            described(n="int", s="string", gone="string"),
            described(n="long", s="string", gone="string"),
            described(n="long", s="string", w=("int", 7)),
            described(n="long", s="string", w=("int", 7), gone="string"),
        )
        truth, given = dataset.arrow().sort_by("n"), dataset.dataset()

        fragments = [one.to_table(schema=given.schema) for one in given.get_fragments()]
        assert given.to_table().sort_by("n") == truth
        assert pa.concat_tables(fragments).sort_by("n") == truth
        assert truth["w"].to_pylist() == [7, 7, 7, 7]
        for condition, expected in [
            ("w = 7 AND gone IS NULL AND n > 0", [1, 2, 3]),
            ("w <> 7", []),
            ("gone IS NOT NULL", []),
            ("gone = 'lost' OR s = 'text 0'", [0]),
        ]:
            query = f"SELECT n FROM given WHERE {condition}"
            assert numbers(duckdb.sql(query).to_arrow_table()) == expected, condition
        lazy = pl.scan_pyarrow_dataset(given).filter(pl.col("gone").is_null(), pl.col("w") == 7)
        assert sorted(lazy.collect()["n"]) == [0, 1, 2, 3]
        assert dataset.where("w = 7 AND n < 2").dataset().count_rows() == 2

    def test_record_that_was_added_is_null_in_older_files(self) -> None:
        dataset = versions(
            described(n="int", s="string"), described(n="int", s="string", p=place("c"))
        )
        dataset.append([{"n": 5, "p": {"c": "x"}}])
        given = dataset.dataset()

        assert given.to_table().sort_by("n") == dataset.arrow().sort_by("n")
        assert duckdb.sql("SELECT n FROM given WHERE p.c = 'x'").fetchall() == [(5,)]
        assert dataset.where("p.c IS NULL").dataset().count_rows() == 2

    def test_record_in_place_of_another_one_is_refused_by_name(self) -> None:
        dataset = versions(
            described(n="int", s="string", p=place("c")),
            described(n="int", s="string"),
            described(n="int", s="string", p=place("c", "d")),
        )

        with pytest.raises(InvalidInputError, match="older files hold another 'p'"):
            dataset.dataset()
        assert dataset.select("n").dataset().count_rows() == 3

    def test_record_of_another_form_is_refused_by_name(self) -> None:
        dataset = versions(
            described(n="int", s="string", p=place("c")),
            described(n="int", s="string", p=place("c", "d")),
        )

        with pytest.raises(InvalidInputError, match=r"older files hold 'p' in another form.*Arrow"):
            dataset.dataset()
        with pytest.raises(InvalidInputError, match="'p'"):
            dataset.where("p.d = 'x'").select("n").dataset()
        assert dataset.select("n", "s").dataset().count_rows() == 2

    def test_list_with_a_default_is_refused_by_name(self) -> None:
        items = {"type": "array", "items": "string"}
        dataset = versions(
            described(n="int", s="string"), described(n="int", s="string", tags=(items, []))
        )

        with pytest.raises(InvalidInputError, match="older files lack 'tags'"):
            dataset.dataset()


class TestLimitsOfDatasets:
    def test_dataset_without_files_has_columns_and_no_rows(self) -> None:
        given = make().dataset()

        assert given.to_table() == SCHEMA.empty_table()
        assert duckdb.sql("SELECT count(*) FROM given WHERE carrier = 'UA'").fetchall() == [(0,)]
        assert pl.scan_pyarrow_dataset(given).collect().shape == (0, len(SCHEMA))

    def test_reads_are_of_one_version(self, tmp_path: Path) -> None:
        dataset = make(tmp_path)
        dataset.append(rows(10))
        given = dataset.dataset()

        dataset.overwrite(rows(3), dataset)

        assert given.count_rows() == 10
        assert duckdb.sql("SELECT count(*) FROM given WHERE n >= 0").fetchall() == [(10,)]
        assert dataset.dataset().count_rows() == 3

    def test_other_formats_are_refused_with_the_remedy(self) -> None:
        avro = make(format="avro", partition_by=(), schema=pa.schema([("n", pa.int64())]))
        avro.append([{"n": 1}])

        with pytest.raises(InvalidInputError, match=r"format avro.*Arrow table"):
            avro.dataset()

    def test_fragments_are_handed_out_only_if_all_their_rows_are_of_the_view(
        self, flights: Dataset
    ) -> None:
        whole = flights.where("dt = '2013-06-02'").dataset()

        assert sum(one.count_rows() for one in whole.get_fragments()) == whole.count_rows()
        with pytest.raises(ValueError, match="filtered"):
            list(flights.where("n > 100").dataset().get_fragments())

    def test_damaged_page_is_an_error_and_no_wrong_value(self, tmp_path: Path) -> None:
        dataset = make(tmp_path, compression="uncompressed", partition_by=())
        dataset.append([{"carrier": "DAMAGED-HERE", "n": n} for n in range(100)])
        path = tmp_path / dataset.files()[0].key
        content = path.read_bytes()
        place = content.index(b"DAMAGED-HERE")
        path.write_bytes(content[:place] + b"X" + content[place + 1 :])
        given = dataset.dataset()

        with pytest.raises(DamagedFileError, match=path.name):
            given.to_table(columns=["carrier"])
        with pytest.raises(duckdb.Error, match="is damaged"):
            duckdb.sql("SELECT carrier FROM given").fetchall()
        with pytest.raises((DamagedFileError, pl.exceptions.PolarsError), match="is damaged"):
            pl.scan_pyarrow_dataset(given).select("carrier").collect()

    def test_file_that_is_gone_is_an_error(self, tmp_path: Path) -> None:
        dataset = make(tmp_path)
        dataset.append(rows(20))
        given = dataset.dataset()
        (tmp_path / dataset.files()[0].key).unlink()

        with pytest.raises(CorruptMetadataError, match="is missing"):
            given.to_table()


def test_object_store_is_read_through_lakebed(s3_options: dict[str, str]) -> None:
    repository = lakebed.open_repository(
        f"s3://lake/{uuid.uuid4().hex}", storage_options=s3_options
    )
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=PARTITIONS)
    dataset = repository.create("flights", descriptor)
    dataset.append(rows(60))
    view: View = dataset.where("n < 50")
    given = view.dataset()
    truth = view.arrow()

    for name in ("given", "truth"):
        query = f"SELECT list(n ORDER BY n) FROM {name} WHERE carrier = 'UA'"
        assert (
            duckdb.sql(query).fetchall() == duckdb.sql(query.replace("given", "truth")).fetchall()
        )
    assert pl.scan_pyarrow_dataset(given).select(pl.len()).collect().item() == truth.num_rows


@pytest.mark.parametrize("partitioning", [None, ["carrier"]])
@pytest.mark.parametrize("narrowed", ["all", "view", "filter", "columns", "nothing"])
def test_pyarrow_writes_the_rows_and_no_others(
    tmp_path: Path, flights: Dataset, narrowed: str, partitioning: list[str] | None
) -> None:
    view = {
        "all": flights,
        "view": flights.where("seats = 7 AND n > 20"),
        "filter": flights,
        "columns": flights.select("n", "carrier", "seats"),
        "nothing": flights.where("n < 0"),
    }[narrowed]
    planned = view.dataset()
    wanted = view.arrow()
    if narrowed == "filter":
        planned, wanted = planned.filter(pc.field("n") > 50), flights.where("n > 50").arrow()

    ds.write_dataset(
        planned,
        tmp_path,
        format="parquet",
        partitioning=partitioning,
        partitioning_flavor="hive" if partitioning else None,
    )

    read = ds.dataset(tmp_path, format="parquet", partitioning="hive" if partitioning else None)
    if not wanted.num_rows:
        assert read.count_rows() == 0
        return
    table = read.to_table(columns=["n", "seats"]).sort_by("n")
    assert table.equals(wanted.select(["n", "seats"]).sort_by("n"))
    if partitioning:
        assert {path.name for path in tmp_path.iterdir()} >= {"carrier=UA"}


def test_pyarrow_writes_its_own_format_where_none_is_named(
    tmp_path: Path, flights: Dataset
) -> None:
    ds.write_dataset(flights.dataset(), tmp_path)

    assert ds.dataset(tmp_path, format="parquet").count_rows() == flights.count()
