"""Tables of other formats after an erasure: they show the other rows, and name no old file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from planted import MARK, found_in, key
from table_doors import by_deltalake

import lakebed
from lakebed.errors import StorageError
from lakebed.tables import targets

SCHEMA = pa.schema([("day", pa.string()), ("user", pa.string()), ("n", pa.int64())])
KEYS = [key(number) for number in range(10)]


@pytest.fixture
def visits(tmp_path: Path) -> lakebed.Dataset:
    lake = lakebed.open_repository(str(tmp_path / "lake"))
    visits = lake.create(
        "visits",
        lakebed.DatasetDescriptor(
            schema=SCHEMA, partition_by="day", properties={"publish.delta": "true"}
        ),
    )
    for number in range(3):
        users = ["bob", "cyd", *KEYS[3 * number : 3 * number + 3]]
        visits.append([{"day": f"d{number}", "user": user, "n": number} for user in users])
    visits.publish("iceberg", hide_batch_id=True)
    visits.delete("user = 'cyd'")
    visits.publish("iceberg")
    return visits


def users_in(visits: lakebed.Dataset, root: Path) -> dict[str, list[str]]:
    from pyiceberg.table import StaticTable

    delta = by_deltalake(root / "visits")
    table = StaticTable.from_metadata(str(root / "visits" / "iceberg")).scan().to_arrow()
    assert "batch_id" not in table.column_names
    return {
        "delta": sorted(delta["user"].to_pylist()),
        "iceberg": sorted(table["user"].to_pylist()),
        "lakebed": sorted(visits.arrow()["user"].to_pylist()),
    }


def test_tables_show_the_other_rows_and_name_no_old_file(
    visits: lakebed.Dataset, tmp_path: Path
) -> None:
    root = tmp_path / "lake"
    assert any("_delta_log" in one for one in found_in(root))

    done = visits.erase({"user": KEYS}, reason="request", grace="0s")

    assert done.is_finished, done.left
    assert found_in(root) == []
    assert users_in(visits, root) == dict.fromkeys(("delta", "iceberg", "lakebed"), ["bob"] * 3)
    assert all(table.is_in_step for table in visits.inspect.publications())
    logs = sorted((root / "visits" / "data" / "_delta_log").iterdir())
    visits.erase({"user": KEYS}, reason="request", grace="0s")
    assert sorted((root / "visits" / "data" / "_delta_log").iterdir()) == logs, "nothing to renew"
    visits.append([{"day": "d9", "user": "eve", "n": 1}])
    visits.publish("iceberg")
    assert users_in(visits, root)["delta"] == ["bob", "bob", "bob", "eve"]


def test_table_that_cannot_be_renewed_holds_on_to_its_files(
    visits: lakebed.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = targets.publish

    def fail(store: Any, dataset: str, target: Any, options: Any) -> Any:
        raise StorageError("The store is away.", hint="Wait.")

    monkeypatch.setattr(targets, "publish", fail)

    done = visits.erase({"user": KEYS}, reason="request", grace="0s")

    assert {one.place for one in done.left} >= {"table Delta visits", "table Iceberg visits"}
    assert any("published table still names" in one.what for one in done.left)
    assert not any(MARK in str(one) for one in done.left)
    monkeypatch.setattr(targets, "publish", real)
    again = visits.erase({"user": KEYS}, reason="request", grace="0s")
    assert again.is_finished, again.left
    assert found_in(tmp_path / "lake") == []
    assert users_in(visits, tmp_path / "lake")["iceberg"] == ["bob"] * 3
