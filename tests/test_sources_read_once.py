"""A source of rows is opened once, by every call that takes rows."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pds
import pytest

import lakebed
from lakebed import Repository
from lakebed.errors import InvalidInputError, LakebedError

OLD = pa.table({"id": [1, 2, 3], "v": [1, 2, 3]})
NEW = pa.table({"id": [1, 7], "v": [10, 70]})


class Once:
    """Gives a stream of rows; the second one is an error, or empty."""

    def __init__(self, *, is_empty_then: bool) -> None:
        self._is_empty_then = is_empty_then
        self._count = 0

    def _next(self) -> pa.Table:
        self._count += 1
        if self._count == 1:
            return NEW
        if not self._is_empty_then:
            raise RuntimeError("The stream has been released.")
        return NEW.slice(0, 0)


class OnceStream(Once):
    """Gives its rows by `__arrow_c_stream__` only."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._next().__arrow_c_stream__(requested_schema)


class OnceBatch(Once):
    """Gives its rows by `__arrow_c_array__` only."""

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        (batch,) = self._next().combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], schema=NEW.schema)
        ]
        return batch.__arrow_c_array__(requested_schema)


@dataclasses.dataclass
class Reading:
    id: int
    v: int


def generate() -> Iterator[dict[str, Any]]:
    yield from NEW.to_pylist()


def generate_frames() -> Iterator[pl.DataFrame]:
    for row in NEW.to_pylist():
        yield pl.DataFrame([row])


def lazy_frame() -> pl.LazyFrame:
    """Return a frame whose rows are made once."""
    made = iter([pl.DataFrame(NEW)])
    return pl.LazyFrame(NEW.slice(0, 0)).map_batches(
        lambda _: next(made), schema=pl.DataFrame(NEW).schema
    )


SOURCES: dict[str, Callable[[], Any]] = {
    "stream, then an error": lambda: OnceStream(is_empty_then=False),
    "stream, then empty": lambda: OnceStream(is_empty_then=True),
    "batch, then an error": lambda: OnceBatch(is_empty_then=False),
    "batch, then empty": lambda: OnceBatch(is_empty_then=True),
    "reader": NEW.to_reader,
    "reader of DuckDB": lambda: duckdb.from_arrow(NEW).to_arrow_reader(),
    "scanner of a reader": lambda: pds.Scanner.from_batches(NEW.to_reader()),
    "generator": generate,
    "generator of frames": generate_frames,
    "iterator": lambda: iter(NEW.to_pylist()),
    "map": lambda: map(dict, NEW.to_pylist()),
    "objects": lambda: (Reading(**row) for row in NEW.to_pylist()),
    "list of streams": lambda: [OnceStream(is_empty_then=True)],
    "lazy frame": lazy_frame,
}  # fmt: skip


def staged(lake: Repository, rows: Any) -> None:
    lake["t"].staged.add(rows).commit()


def in_transaction(lake: Repository, rows: Any) -> None:
    with lake["t"].transaction() as transaction:
        transaction.append(rows)


def statement(text: str) -> Callable[[Repository, Any], Any]:
    return lambda lake, rows: lake.sql(text, tables={"s": rows}, write=True)


MERGE = "MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
ADDED = [(1, 1), (1, 10), (2, 2), (3, 3), (7, 70)]
MERGED = [(1, 10), (2, 2), (3, 3), (7, 70)]
REPLACED = [(1, 10), (7, 70)]
# The call, and the rows of the dataset afterwards.
DOORS: dict[str, tuple[Callable[[Repository, Any], Any], list[tuple[int, int]]]] = {
    "write": (lambda lake, rows: lake.write("t", rows), ADDED),
    "append": (lambda lake, rows: lake["t"].append(rows), ADDED),
    "append to a view": (lambda lake, rows: lake["t"].where("v < 100").append(rows), ADDED),
    "rerun": (lambda lake, rows: lake["t"].rerun(rows, "r"), ADDED),
    "sink": (lambda lake, rows: lake["t"].sink(rows, 0, query="q"), ADDED),
    "staged": (staged, ADDED),
    "transaction": (in_transaction, ADDED),
    "overwrite": (lambda lake, rows: lake["t"].overwrite(rows), REPLACED),
    "overwrite of a view": (lambda lake, rows: lake["t"].overwrite(rows, lake["t"]), REPLACED),
    "upsert": (lambda lake, rows: lake["t"].upsert(rows, "id"), MERGED),
    "merge": (lambda lake, rows: lake["t"].merge(rows, "id", missing="delete"), REPLACED),
    "INSERT": (statement("INSERT INTO t SELECT * FROM s"), ADDED),
    "INSERT OVERWRITE": (statement("INSERT OVERWRITE t SELECT * FROM s"), REPLACED),
    "MERGE": (statement(MERGE + "WHEN NOT MATCHED THEN INSERT *"), MERGED),
    "MERGE, BY SOURCE": (
        statement(MERGE + "WHEN NOT MATCHED BY SOURCE THEN DELETE"),
        [(1, 10)],
    ),
    "INSERT of a join": (
        statement("INSERT INTO t SELECT a.id, b.v FROM s a JOIN s b ON a.id = b.id"),
        ADDED,
    ),
}
NEW_DOORS: dict[str, Callable[[Repository, Any], Any]] = {
    "write": lambda lake, rows: lake.write("u", rows),
    "write with a run": lambda lake, rows: lake.write("u", rows, run="r"),
    "CREATE TABLE AS": statement("CREATE TABLE u AS SELECT * FROM s"),
}
DRY_DOORS: dict[str, Callable[..., Any]] = {
    "append": lambda lake, rows, **dry: lake["t"].append(rows, **dry),
    "rerun": lambda lake, rows, **dry: lake["t"].rerun(rows, "r", **dry),
    "overwrite": lambda lake, rows, **dry: lake["t"].overwrite(rows, **dry),
    "overwrite of a view": lambda lake, rows, **dry: lake["t"].overwrite(rows, lake["t"], **dry),
    "upsert": lambda lake, rows, **dry: lake["t"].upsert(rows, "id", **dry),
    "merge": lambda lake, rows, **dry: lake["t"].merge(rows, "id", missing="delete", **dry),
    "INSERT": lambda lake, rows, **dry: lake.sql(
        "INSERT INTO t SELECT * FROM s", tables={"s": rows}, **dry, write=True
    ),
    "INSERT OVERWRITE": lambda lake, rows, **dry: lake.sql(
        "INSERT OVERWRITE t SELECT * FROM s", tables={"s": rows}, **dry, write=True
    ),
    "MERGE": lambda lake, rows, **dry: lake.sql(
        MERGE + "WHEN NOT MATCHED BY SOURCE THEN DELETE", tables={"s": rows}, **dry, write=True
    ),
}


@pytest.fixture
def lake() -> Repository:
    repository = lakebed.open_repository(f"memory://{uuid.uuid4().hex}")
    repository.write("t", OLD)
    return repository


def pairs(lake: Repository, name: str = "t") -> list[tuple[int, int]]:
    rows = lake[name].arrow(["id", "v"])
    return sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("door", DOORS)
def test_all_rows_of_a_source_that_is_read_once_arrive(
    lake: Repository, door: str, source: str
) -> None:
    write, expected = DOORS[door]

    write(lake, SOURCES[source]())

    assert pairs(lake) == expected


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("door", NEW_DOORS)
def test_new_dataset_has_all_rows_of_a_source_that_is_read_once(
    lake: Repository, door: str, source: str
) -> None:
    NEW_DOORS[door](lake, SOURCES[source]())

    assert pairs(lake, "u") == REPLACED


@pytest.mark.parametrize("source", SOURCES)
def test_select_reads_a_source_once_and_all_its_rows(lake: Repository, source: str) -> None:
    answer = lake.sql("SELECT sum(a.v + b.v) AS n FROM s a JOIN s b USING (id)",
                      tables={"s": SOURCES[source]()})  # fmt: skip

    assert answer["n"].to_pylist() == [160]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("door", DRY_DOORS)
def test_source_that_a_dry_run_has_read_is_written_whole_or_refused(
    lake: Repository, door: str, source: str
) -> None:
    rows = SOURCES[source]()
    DRY_DOORS[door](lake, rows, dry_run=True)
    assert pairs(lake) == [(1, 1), (2, 2), (3, 3)]

    with pytest.raises(LakebedError):
        # No source here gives its rows twice.
        DRY_DOORS[door](lake, rows)

    assert pairs(lake) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("rows", [NEW, pl.DataFrame(NEW), NEW.to_pylist(), NEW.to_pandas()])
def test_rows_that_can_be_read_again_are_written_after_a_dry_run(
    lake: Repository, rows: Any
) -> None:
    lake["t"].append(rows, dry_run=True)
    lake["t"].append(rows)

    assert pairs(lake) == ADDED


@pytest.mark.parametrize("source", ["reader", "generator", "iterator", "map"])
def test_source_that_was_written_is_refused_by_name_and_not_empty(
    lake: Repository, source: str
) -> None:
    rows = SOURCES[source]()
    lake["t"].append(rows)

    with pytest.raises(InvalidInputError, match="have been read before") as caught:
        lake["t"].append(rows)

    assert caught.value.hint
    assert pairs(lake) == ADDED


def test_source_that_was_never_begun_can_be_written_after_a_failure(lake: Repository) -> None:
    rows = NEW.to_reader()
    with pytest.raises(LakebedError):
        lake["t"].append(rows, if_not_empty="error")

    lake["t"].append(rows)

    assert pairs(lake) == ADDED


def test_stream_whose_schema_made_a_dataset_is_not_written_as_empty(lake: Repository) -> None:
    for is_empty_then in (False, True):
        rows = OnceStream(is_empty_then=is_empty_then)
        dataset = lake.create(f"made{is_empty_then}", rows)

        with pytest.raises(InvalidInputError, match="gives"):
            dataset.append(rows)

        assert dataset.count() == 0


def test_relation_whose_schema_made_a_dataset_is_not_run_for_it(lake: Repository) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE SEQUENCE numbers")
    relation = connection.sql("SELECT nextval('numbers') AS n FROM range(3)")

    lake.create("numbers", relation).append(relation)

    assert lake["numbers"].arrow()["n"].to_pylist() == [1, 2, 3]


def test_query_is_run_once_for_a_new_dataset(lake: Repository) -> None:
    connection = duckdb.connect()
    connection.execute("CREATE SEQUENCE numbers")

    lake.write("numbers", connection.sql("SELECT nextval('numbers') AS n FROM range(3)"))

    assert lake["numbers"].arrow()["n"].to_pylist() == [1, 2, 3]


def test_one_reader_under_two_names_is_refused(lake: Repository) -> None:
    rows = NEW.to_reader()

    with pytest.raises(InvalidInputError, match="have been read before"):
        lake.sql(
            "INSERT INTO t SELECT a.* FROM a JOIN b USING (id)",
            tables={"a": rows, "b": rows},
            write=True,
        )

    assert pairs(lake) == [(1, 1), (2, 2), (3, 3)]


@pytest.mark.parametrize("source", SOURCES)
def test_replaced_partition_has_all_rows_of_a_source_that_is_read_once(
    lake: Repository, source: str
) -> None:
    lake.write("p", OLD.append_column("g", pa.array(["a", "a", "b"])), partition_by="g")

    lake.sql("INSERT INTO p REPLACE WHERE g = 'a' SELECT id, v, 'a' FROM s",
             tables={"s": SOURCES[source]()}, write=True)  # fmt: skip

    assert pairs(lake, "p") == [(1, 10), (3, 3), (7, 70)]


def test_stream_is_read_in_pieces(lake: Repository) -> None:
    alive: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            alive.append(pa.total_allocated_bytes())
            ids = pa.array(range(number * 50_000, (number + 1) * 50_000))
            yield pa.record_batch({"id": ids, "v": ids})

    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    for write in (lake["t"].append, lambda rows: lake.write("u", rows)):
        alive.clear()
        write(pa.RecordBatchReader.from_batches(schema, batches()))
        size = 40 * 50_000 * 16
        assert len(alive) == 40
        assert max(alive) - alive[0] < size


def ended_generator() -> Any:
    rows = (row for row in [{"id": 1, "v": 10}])
    list(rows)
    return rows


@pytest.mark.parametrize("door", [*DOORS, *NEW_DOORS])
def test_generator_that_has_ended_is_refused(lake: Repository, door: str) -> None:
    call = DOORS[door][0] if door in DOORS else NEW_DOORS[door]
    before = lake["t"].version

    with pytest.raises(InvalidInputError, match="read before"):
        call(lake, ended_generator())

    assert lake["t"].version == before
    assert lake.list() == ["t"]


@pytest.mark.parametrize(
    "source",
    [
        lambda: iter([]),
        lambda: pa.table({"id": pa.array([], pa.int64())}).to_reader(),
        lambda: (row for row in ()),
        lambda: map(dict, []),
    ],
)
def test_reader_without_rows_deletes_no_missing_rows_of_a_view(
    lake: Repository, source: Callable[[], Any]
) -> None:
    view = lake["t"].where("id > 1")
    with pytest.raises(InvalidInputError, match="may have been read before"):
        view.merge(source(), "id", missing="delete")
    assert lake["t"].version == 1

    view.merge(source(), "id", missing="delete", missing_where="TRUE")
    assert lake["t"].where("id > 1").count() == 0


def test_empty_table_deletes_the_missing_rows_of_a_view(lake: Repository) -> None:
    lake["t"].where("id > 1").merge([], "id", missing="delete")

    assert [pair[0] for pair in pairs(lake)] == [1]
