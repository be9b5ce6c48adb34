"""Selections: columns, limits, and the forms in which rows are handed out."""

import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from heads import ON_TREES

import lakebed
from lakebed import Dataset, DatasetDescriptor, by
from lakebed.errors import InvalidInputError, MissingDependencyError, SchemaMismatchError
from lakebed.store.memory import MemoryStore
from lakebed.testing import CountingStore

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("f", pa.float64())])
ROWS = [{"k": "abcde"[n % 5], "n": n, "f": n / 2} for n in range(50)]


def make(store=None) -> Dataset:
    repository = lakebed.Repository(store or MemoryStore(uuid.uuid4().hex))
    descriptor = DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("k")])
    return repository.create("letters", descriptor)


@pytest.fixture
def letters() -> Dataset:
    dataset = make()
    dataset.append(ROWS)
    return dataset


def test_polars_frame_holds_the_rows(letters: Dataset) -> None:
    frame = letters.where("k = 'b'").polars(["n", "k"])

    assert frame.sort("n").rows() == [(n, "b") for n in range(1, 50, 5)]


def test_polars_that_is_missing_is_named_with_its_extra(letters: Dataset, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(MissingDependencyError, match=r"polars.*lakebed\[polars\]"):
        letters.polars()


class TestSelect:
    def test_only_the_columns_come_in_the_order_asked_for(self, letters: Dataset) -> None:
        view = letters.where("n >= 45")

        assert view.columns == letters.columns == ("k", "n", "f")
        assert view.select("n", "k").columns == ("n", "k")
        assert view.select(["n", "k"]).arrow().column_names == ["n", "k"]
        assert view.select("n").arrow()["n"].to_pylist() == [45, 46, 47, 48, 49]

    def test_partition_fields_can_be_shown(self, letters: Dataset) -> None:
        batch_ids = set(letters.select("batch_id").arrow()["batch_id"].to_pylist())

        assert batch_ids == {letters.history()[-1].batch_id}

    def test_every_way_to_read_gives_the_same_rows(self, letters: Dataset) -> None:
        selection = letters.where("f > 20").select("n")
        expected = list(range(41, 50))

        assert sorted(selection.arrow()["n"].to_pylist()) == expected
        assert sorted(selection.pandas()["n"]) == expected
        assert sorted(selection.polars()["n"]) == expected
        assert sorted(pa.table(selection)["n"].to_pylist()) == expected
        assert sorted(selection.dataset().to_table()["n"].to_pylist()) == expected
        assert selection.dataset().schema.names == ["n"]
        assert selection.count() == 9
        assert [file.key for file in selection.files()] == [
            file.key for file in selection.plan().files
        ]

    def test_a_selection_narrows_further(self, letters: Dataset) -> None:
        selection = letters.select("n", "k")

        assert selection.select("n").columns == ("n",)
        assert selection.arrow(["k"]).column_names == ["k"]
        with pytest.raises(SchemaMismatchError, match="'f' is not in the selection"):
            selection.select("f")
        with pytest.raises(SchemaMismatchError, match="'f' is not in"):
            selection.arrow(["f"])

    def test_a_condition_may_come_after_the_columns(self, letters: Dataset) -> None:
        selection = letters.select("k").where("n < 7").where([[("k", "==", "a")]])

        assert selection.arrow().to_pydict() == {"k": ["a", "a"]}
        assert selection.count() == 2
        assert "n < 7 AND k = 'a'" in repr(selection)

    def test_a_condition_behind_a_limit_is_refused(self, letters: Dataset) -> None:
        with pytest.raises(InvalidInputError, match="has a limit") as refused:
            letters.select("k").limit(3).where("n < 7")

        assert "first, and the limit after it" in refused.value.hint

    @pytest.mark.parametrize("given", [3, ["k", 3], None, [["k"]]])
    def test_what_is_no_name_is_refused_by_name(self, letters: Dataset, given) -> None:
        with pytest.raises(InvalidInputError, match=r"columns (is|names) ") as refused:
            letters.select(given)

        assert '["id"]' in refused.value.hint

    @pytest.mark.parametrize(
        ("columns", "message"),
        [(["m"], "Unknown|no field"), (["n", "n"], "2 times"), ([], "names no column")],
    )
    def test_columns_that_are_not_there_are_refused_at_once(
        self, letters: Dataset, columns, message
    ) -> None:
        with pytest.raises(SchemaMismatchError, match=message):
            letters.select(*columns)


class TestLimit:
    @pytest.mark.parametrize("limit", [0, 1, 7, 49, 50, 51])
    def test_no_more_rows_come_than_asked_for(self, letters: Dataset, limit: int) -> None:
        expected = min(limit, 50)
        limited = letters.limit(limit)

        assert limited.arrow().num_rows == expected
        assert limited.count() == expected
        assert limited.dataset().count_rows() == expected
        assert pl.DataFrame(limited).height == expected
        assert set(limited.arrow()["n"].to_pylist()) <= set(range(50))

    def test_limit_counts_rows_of_the_view_only(self, letters: Dataset) -> None:
        limited = letters.where("f > 23").limit(3)

        assert limited.count() == 3
        assert all(value > 23 for value in limited.arrow()["f"].to_pylist())
        assert letters.where("f > 23").limit(30).count() == 3

    def test_the_smaller_limit_holds(self, letters: Dataset) -> None:
        assert letters.limit(3).limit(9).count() == letters.limit(9).limit(3).count() == 3
        assert letters.select("n").limit(3).columns == letters.limit(3).select("n").columns

    @pytest.mark.parametrize("row_count", [-1, 1.5, "2", True, None])
    def test_what_is_no_number_of_rows_is_refused(self, letters: Dataset, row_count) -> None:
        with pytest.raises(InvalidInputError, match="not a valid number of rows"):
            letters.limit(row_count)

    def test_head_opens_as_few_files_as_it_takes(self) -> None:
        store = CountingStore(MemoryStore(uuid.uuid4().hex))
        letters = make(store)
        for _ in range(10):
            letters.append(ROWS)
        letters.count()  # the head is known by now
        store.reset()
        whole = letters.limit(1_000).arrow()
        all_requests = store.reset().get

        few = letters.head(3)

        assert (whole.num_rows, few.num_rows) == (500, 3)
        assert store.reset().get < all_requests / 10

    def test_head_of_a_view_reads_on_until_it_has_enough(self) -> None:
        letters = make()
        for _ in range(6):
            letters.append(ROWS)

        assert letters.where("f = 24.5").head(5)["n"].to_pylist() == [49] * 5
        assert letters.where("f = 24.5").head(50).num_rows == 6

    def test_repr_says_what_is_selected(self, letters: Dataset) -> None:
        text = repr(letters.where("n > 3").select("n", "k").limit(2))

        assert text == "<Selection n, k, limit 2, of <View of 'letters': n > 3>>"


class TestStream:
    @pytest.mark.parametrize("of", ["dataset", "view", "plan", "selection"])
    def test_whoever_takes_arrow_takes_it(self, letters: Dataset, of: str) -> None:
        view = letters.where("f > 20")
        given = {
            "dataset": letters,
            "view": view,
            "plan": view.plan(),
            "selection": view.select("n", "f"),
        }[of]
        expected = sum(range(50)) if of == "dataset" else sum(range(41, 50))

        assert sum(pa.table(given)["n"].to_pylist()) == expected
        assert pl.DataFrame(given)["n"].sum() == expected
        assert duckdb.sql("SELECT sum(n) FROM given").fetchall() == [(expected,)]
        assert pa.schema(given).names == pa.table(given).column_names

    def test_stream_is_read_as_it_is_taken(self) -> None:
        store = CountingStore(MemoryStore(uuid.uuid4().hex))
        letters = make(store)
        for _ in range(4):
            letters.append(ROWS)
        letters.count()
        store.reset()

        reader = pa.RecordBatchReader.from_stream(letters)
        before = store.reset()
        rows = sum(batch.num_rows for batch in reader)

        # The head, of a tree a leaf in three sections, and nothing of a data file.
        assert (before.get, before.head) == (4 if ON_TREES else 1, 0)
        assert rows == 200
        assert store.counts.get > 20

    def test_requested_schema_is_honoured(self, letters: Dataset) -> None:
        wanted = pa.schema([("k", pa.large_string()), ("n", pa.int32()), ("f", pa.float64())])

        table = pa.RecordBatchReader.from_stream(letters, schema=wanted).read_all()

        assert table.schema == wanted
        assert sorted(table["n"].to_pylist()) == list(range(50))

    def test_requested_schema_that_loses_a_value_is_refused(self, letters: Dataset) -> None:
        wanted = pa.schema([("k", pa.string()), ("n", pa.int64()), ("f", pa.int64())])

        with pytest.raises((pa.ArrowInvalid, OSError), match=r"truncated|Float value"):
            pa.RecordBatchReader.from_stream(letters, schema=wanted).read_all()


class TestFiles:
    def test_planned_files_have_sizes_rows_and_partitions(self, tmp_path: Path) -> None:
        letters = lakebed.open_repository(tmp_path).create(
            "letters", DatasetDescriptor(schema=SCHEMA, partition_by=[by.identity("k")])
        )
        letters.append(ROWS)

        (file,) = letters.where("k = 'b' AND f > 3").files()

        assert Path(file.location) == tmp_path / file.key
        assert Path(file.location).stat().st_size == file.size_bytes
        assert (file.row_count, file.partition) == (10, "k=b")
        assert file.batch_id == letters.history()[-1].batch_id
        assert len(letters.files()) == 5
        assert set(letters.where("n >= 0").files()) == set(letters.files())

    def test_location_of_a_file_elsewhere_is_a_url(self, letters: Dataset) -> None:
        (file,) = letters.where("k = 'b'").files()

        assert file.location == f"{letters.uri.rpartition('/')[0]}/{file.key}"


@pytest.mark.spark
def test_spark_takes_columns_and_limit_along(spark, tmp_path: Path) -> None:
    letters = lakebed.open_repository(tmp_path).create("letters", DatasetDescriptor(schema=SCHEMA))
    letters.append(ROWS)

    frame = letters.where("n < 5").select("n", "k").limit(3).spark(spark)

    assert frame.columns == ["n", "k"]
    assert frame.count() == 3
    assert letters.where("n < 5").select("n").spark(spark).count() == 5


@pytest.mark.thorough
@pytest.mark.parametrize("given", ["view", "view.dataset()", "view.where('f > 3').dataset()"])
def test_process_that_stops_in_the_middle_of_a_read_ends_cleanly(tmp_path, given: str) -> None:
    numbers = pa.table({"n": range(300_000), "f": pa.array(range(300_000), pa.float64())})
    descriptor = DatasetDescriptor(
        schema=numbers.schema, partition_by=[by.fixed_range("n", 30_000)]
    )
    lakebed.open_repository(tmp_path).create("numbers", descriptor).append(numbers)
    program = (
        "import duckdb, lakebed, sys\n"
        "view = lakebed.open_repository(sys.argv[1])['numbers']\n"
        f"given = {given}\n"
        "print(len(duckdb.sql('SELECT * FROM given LIMIT 2').fetchall()))\n"
    )

    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


NUMBERS = {
    "small": pa.int32(),
    "large": pa.int64(),
    "single": pa.float32(),
    "double": pa.float64(),
    "flag": pa.bool_(),
    "text": pa.string(),
}


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_pandas_keeps_whole_numbers_with_nulls_exact_by_a_dtype_backend(backend: Any) -> None:
    schema = pa.schema(list(NUMBERS.items()))
    dataset = lakebed.open_repository(f"memory://{uuid.uuid4().hex}").create(
        "d", lakebed.DatasetDescriptor(schema=schema)
    )
    exact = 9007199254740993
    row = {"small": 1, "large": exact, "single": 0.5, "double": 2.5, "flag": True, "text": "a"}
    dataset.append([row, dict.fromkeys(NUMBERS)])

    for frame in (
        dataset.pandas(dtype_backend=backend),
        dataset.where("large > 0 OR large IS NULL").select(*NUMBERS).pandas(dtype_backend=backend),
    ):
        whole = frame[frame["large"].notna()]
        assert whole.to_dict("records") == [row]
        assert frame.isna().sum().to_dict() == dict.fromkeys(NUMBERS, 1)
        assert str(frame["large"].dtype) == {"numpy_nullable": "Int64"}.get(
            backend, "int64[pyarrow]"
        )
    assert dataset.pandas()["large"].dtype == "float64"  # as pandas has it by default
    with pytest.raises(InvalidInputError, match="dtype_backend is 'numpy'"):
        dataset.pandas(dtype_backend="numpy")  # type: ignore[arg-type]
