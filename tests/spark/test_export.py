"""Export of telemetry trees by tasks: the same tree and report as by one process."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from telemetry_exports import exported

import lakebed
from lakebed import DatasetDescriptor, TelemetryOptions
from lakebed.errors import AlreadyExistsError, DamagedFileError
from lakebed.model.dimensions import DimensionSchema

pytestmark = pytest.mark.spark

DIMENSIONS = {
    "version": 1,
    "dimensions": [
        {"field_name": "channel", "allowed_values": ["nightly", "release"]},
        {"field_name": "system", "allowed_values": "*"},
    ],
}


@pytest.fixture
def pings(tmp_path: Path) -> lakebed.Dataset:
    fields = ["day", "channel", "system"]
    schema = {
        "type": "record",
        "name": "ping",
        "fields": [
            *({"name": name, "type": "string"} for name in ("uuid", "document")),
            *({"name": name, "type": ["null", "string"]} for name in fields),
        ],
    }
    descriptor = DatasetDescriptor(
        schema=schema,
        format="submissions",
        partition_by="dimension(day), dimension(channel, 'nightly', 'release')",
    )
    dataset = lakebed.open_repository(tmp_path / "lake").create("pings", descriptor)
    for batch in range(2):
        dataset.append(rows(batch))
    return dataset


def rows(batch: int) -> list[dict[str, Any]]:
    return [
        {
            "uuid": f"u{batch}-{number}",
            "document": {
                "day": f"2013061{number % 4}",
                "channel": ("nightly", "release", "own")[number % 3],
                "system": ("Linux", "Dar.win")[number % 2],
                "at": dt.date(2013, 6, 10 + number % 4).isoformat(),
            },
        }
        for number in range(200)
    ]


def contents(tree: Path) -> dict[str, bytes]:
    files = (path for path in tree.rglob("*") if path.is_file() and ".lakebed" not in str(path))
    return {str(path.relative_to(tree)): path.read_bytes() for path in files}


@pytest.mark.parametrize("schema", [None, DIMENSIONS])
def test_tree_and_report_are_those_of_one_process(
    spark: Any, pings: lakebed.Dataset, tmp_path: Path, schema: Any
) -> None:
    schema = None if schema is None else DimensionSchema.from_json(json.dumps(schema))
    options = TelemetryOptions(max_bytes=4096)

    alone = exported(pings, tmp_path / "alone", schema, options=options)
    by_tasks = exported(pings, tmp_path / "tasks", schema, options=options, spark=spark)

    assert contents(tmp_path / "tasks") == contents(tmp_path / "alone") != {}
    assert by_tasks.row_count == 400
    facts = ("row_count", "size_bytes", "files", "shared", "version")
    assert [getattr(by_tasks, one) for one in facts] == [getattr(alone, one) for one in facts]


def test_later_exports_add_and_name_what_they_add(
    spark: Any, pings: lakebed.Dataset, tmp_path: Path
) -> None:
    tree, named = tmp_path / "tree", TelemetryOptions(named=2)
    exported(pings, tree, options=named, spark=spark)
    before = contents(tree)

    again = exported(pings, tree, options=named, spark=spark)
    assert again.files == ()
    assert len(again.unchanged) == 12
    assert contents(tree) == before

    pings.append([{"uuid": "late", "document": {"day": "20130610", "channel": "own"}}])
    with pytest.raises(AlreadyExistsError, match="1 directory"):
        exported(pings, tree, options=named, spark=spark)
    assert contents(tree) == before
    replaced = exported(pings, tree, options=named, if_changed="replace", spark=spark)
    assert len(replaced.replaced) == 1
    assert len(contents(tree).keys() - before.keys()) == len(before.keys() - contents(tree).keys())


def test_failing_task_leaves_nothing(spark: Any, pings: lakebed.Dataset, tmp_path: Path) -> None:
    damaged = sorted(pings.files(), key=lambda file: file.key)[-1]
    (tmp_path / "lake" / damaged.key).write_bytes(b"damaged")

    with pytest.raises(DamagedFileError):
        exported(pings, tmp_path / "tree", spark=spark)

    assert contents(tmp_path / "tree") == {}
    assert not list((tmp_path / "tree").rglob("staged-*"))
