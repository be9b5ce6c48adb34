"""Datasets beside tables of other tools in one directory: none is mixed, none is deleted."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from heads import head_key

import lakebed
from lakebed.cli.main import main
from lakebed.errors import DatasetNotFoundError, InvalidInputError, LakebedWarning
from lakebed.repository import Repository
from lakebed.store.memory import MemoryStore

ROWS = pa.table({"n": pa.array(range(10), pa.int64())})


@pytest.fixture
def lake(tmp_path: Path) -> Repository:
    return lakebed.open_repository(tmp_path / "lake")


def held(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in files_of(directory)
        if ".lakebed" not in path.parts
    }


def files_of(directory: Path) -> list[Path]:
    return [Path(root, name) for root, _, names in os.walk(directory) for name in names]


def put_delta(directory: Path) -> None:
    write_deltalake(directory, ROWS)


def put_iceberg(directory: Path) -> None:
    (directory / "metadata").mkdir(parents=True)
    (directory / "metadata" / "v1.metadata.json").write_text("{}")
    (directory / "data").mkdir()
    pq.write_table(ROWS, directory / "data" / "00000-0.parquet")


def put_hudi(directory: Path) -> None:
    (directory / ".hoodie").mkdir(parents=True)
    (directory / ".hoodie" / "hoodie.properties").write_text("a=b")


TABLES = {"Delta": put_delta, "Iceberg": put_iceberg, "Hudi": put_hudi}
WRITES = {
    "create": lambda lake: lake.create("o", ROWS.schema),
    "open": lambda lake: lake.create("o", ROWS.schema, "open"),
    "write": lambda lake: lake.write("o", ROWS),
    "run": lambda lake: lake.write("o", ROWS, run="first"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("title", TABLES)
def test_no_dataset_is_created_beside_a_table(lake, tmp_path, title, write):
    TABLES[title](tmp_path / "lake" / "o")
    before = held(tmp_path)

    with pytest.raises(InvalidInputError, match=f"is a table of {title}") as caught:
        WRITES[write](lake)

    assert "nother name" in caught.value.hint
    assert ("adopt(" in caught.value.hint) == (title != "Hudi")
    assert held(tmp_path) == before


def test_rows_that_cannot_be_written_are_not_read(lake, tmp_path):
    put_delta(tmp_path / "lake" / "o")

    def rows():
        pytest.fail("a row was read")
        yield {}

    with pytest.raises(InvalidInputError, match="is a table of Delta"):
        lake.write("o", rows())


@pytest.mark.parametrize("title", ["Delta", "Iceberg"])
def test_open_of_a_table_names_the_adoption(lake, tmp_path, title):
    TABLES[title](tmp_path / "lake" / "o")
    lake.create("other", ROWS.schema)

    with pytest.raises(DatasetNotFoundError) as caught:
        lake.open("o")

    assert f"{title.lower()}=True" in caught.value.hint
    assert f"--{title.lower()}" in caught.value.hint


@pytest.mark.parametrize(
    "verb",
    [
        ["create", "{}/o", "--like", "{}/raw"],
        ["create", "{}/o", "--like", "{}/raw", "--dry-run"],
        ["import", "{}/o", "{}/raw"],
        ["import", "{}/o", "{}/raw", "--quarantine"],
    ],
    ids=" ".join,
)
def test_command_line_creates_no_dataset_beside_a_table(lake, tmp_path, verb):
    put_delta(tmp_path / "lake" / "o")
    (tmp_path / "lake" / "raw").mkdir()
    (tmp_path / "lake" / "raw" / "rows.csv").write_text("n\n1\n")
    before = held(tmp_path)

    done = CliRunner().invoke(main, [word.format(tmp_path / "lake") for word in verb])

    assert done.exit_code == 2, done.output
    assert "is a table of Delta" in done.stderr
    assert held(tmp_path) == before


def test_drop_leaves_the_files_of_other_programs_and_names_them(lake, tmp_path):
    orders = lake.write("o", ROWS)
    before = held(tmp_path / "lake")
    put_delta(tmp_path / "lake" / "o")
    for path in ("dt=2013-01-01/000000_0", "files/a.parquet", "data/b.parquet", "history/c.csv"):
        (tmp_path / "lake" / "o" / path).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "lake" / "o" / path).write_bytes(b"theirs")
    theirs = {path: data for path, data in held(tmp_path / "lake").items() if path not in before}
    assert orders.row_count == 10

    dry = CliRunner().invoke(main, ["drop", f"{tmp_path}/lake/o", "--dry-run", "-o", "json"])
    with pytest.warns(LakebedWarning, match=r"6 files of other programs stay: .*_delta_log/"):
        lake.drop("o")

    assert held(tmp_path / "lake") == theirs
    assert "6 files of other programs would stay" in dry.stderr
    assert "theirs" not in dry.stdout
    assert sorted(before) == sorted(
        line.split('"')[3] for line in dry.stdout.splitlines() if '"key"' in line
    )
    assert DeltaTable(tmp_path / "lake" / "o").to_pyarrow_table().num_rows == 10


def test_drop_of_an_adopted_table_deletes_its_files_also_those_that_were_replaced(lake, tmp_path):
    path = tmp_path / "lake" / "o"
    put_delta(path)
    orders = lake.adopt("o", delta=True)
    adopted = sorted(path.glob("*.parquet"))
    orders.overwrite(ROWS.slice(0, 2))
    write_deltalake(path, ROWS, mode="append")  # by a program that knows nothing of the adoption

    with pytest.warns(LakebedWarning, match="other programs stay"):
        lake.drop("o")

    left = {file.name for file in files_of(path)}
    assert adopted
    assert not left & {file.name for file in adopted}
    assert {"00000000000000000000.json", "00000000000000000001.json"} <= left
    assert len([name for name in left if name.endswith(".parquet")]) == 1


def test_drop_reads_no_history_for_a_dataset_alone_in_its_directory(monkeypatch):
    lake = Repository(MemoryStore("drop-reads"))
    for n in range(20):
        lake.write("o", ROWS.slice(n % 10, 1))
    monkeypatch.setattr("lakebed.work.owned.history.read", lambda *_: pytest.fail("read"))

    lake.drop("o")

    assert not list(lake.store.list("o/"))


def test_creation_does_not_list_the_directory():
    listed = []

    class Listing(MemoryStore):
        def list(self, prefix="", *, recursive=True):
            listed.append(recursive)
            return super().list(prefix, recursive=recursive)

    lake = Repository(Listing("creation-lists"))
    for n in range(3000):
        lake.store.put(f"o/dt={n}/000000_0", b"theirs")
    lake.create("o", ROWS.schema)

    assert listed
    assert set(listed) == {False}
    assert len(listed) <= 5


def test_leftovers_of_a_drop_that_was_interrupted_do_not_prevent_a_new_dataset(lake, tmp_path):
    lake.write("o", ROWS)
    lake.open("o").publish("delta")
    (tmp_path / "lake" / head_key("o")).unlink()

    assert lake.create("o", ROWS.schema).count() == 0


def test_check_reports_that_the_log_of_an_adopted_table_has_grown(lake, tmp_path):
    path = tmp_path / "lake" / "o"
    put_delta(path)
    orders = lake.adopt("o", delta=True)
    orders.append(ROWS)
    assert orders.check().is_ok

    write_deltalake(path, ROWS, mode="append")

    (problem,) = orders.check().problems
    assert problem.key == "o/_delta_log/00000000000000000001.json"
    assert "table of Delta that was adopted" in problem.what
    assert "VACUUM" in problem.remedy


def test_check_of_a_published_dataset_finds_no_adopted_table(lake):
    lake.write("o", ROWS)
    lake["o"].publish("delta")
    lake["o"].publish("iceberg")

    assert lake["o"].check().is_ok
