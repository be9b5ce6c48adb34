"""Properties and entries of other tools in the metadata of a head: each is seen by the other side."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from heads import change_entries, head_key
from inside import store_of

import lakebed
from lakebed.cli import main
from lakebed.state.head import HeadFormat, decode_head

ROWS = pa.table({"id": [1]})


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path)


@pytest.fixture
def dataset(lake: lakebed.Repository) -> lakebed.Dataset:
    owned = {"owner": "web team", "tier": "1"}
    created = lake.create("d", lakebed.DatasetDescriptor(schema=ROWS.schema, properties=owned))
    created.append(ROWS)
    return created


def entries(dataset: lakebed.Dataset, name: str | None = None) -> dict[str, object]:
    """Return the entries of a head that other tools look at."""
    key = head_key("d") if name is None else HeadFormat.MSGPACK.key(name)
    form = HeadFormat.JSON if key.endswith("json") else HeadFormat.MSGPACK
    metadata = decode_head(store_of(dataset).get(key).data, form, key).metadata
    return {name: value for name, value in metadata.items() if not name.startswith("lakebed.")}


def with_properties(dataset: lakebed.Dataset, **properties: str) -> None:
    dataset.evolve(lambda old: dataclasses.replace(old, properties=properties))


def test_properties_are_entries_that_other_tools_see(dataset: lakebed.Dataset) -> None:
    assert list(entries(dataset)) == ["creation_time", "owner", "tier"]

    with_properties(dataset, owner="ops")
    dataset.append(ROWS)

    assert {**entries(dataset), "creation_time": ""} == {"creation_time": "", "owner": "ops"}
    assert dataset.inspect.annotations() == {}


def test_property_cannot_take_the_place_of_an_entry_of_the_format(lake: lakebed.Repository) -> None:
    taken = {"creation_time": "never", "lakebed.version": "9"}
    dataset = lake.create("d", lakebed.DatasetDescriptor(schema=ROWS.schema, properties=taken))

    dataset.append(ROWS)

    again = lake["d"]
    assert (again.version, again.descriptor.properties) == (1, taken)
    assert entries(dataset)["creation_time"] != "never"


def test_entries_of_other_tools_are_kept_and_shown(
    dataset: lakebed.Dataset, tmp_path: Path
) -> None:
    change_entries(store_of(dataset), "d", {"contact": "ann", "nested": {"a": [1]}})

    dataset.append(ROWS)

    assert dataset.inspect.annotations() == {"contact": "ann", "nested": {"a": [1]}}
    assert dataset.descriptor.properties == {"owner": "web team", "tier": "1"}
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "d"), "-o", "json"])
    assert json.loads(shown.stdout)["annotations"] == {"contact": "ann", "nested": {"a": [1]}}
    assert "contact=ann" in CliRunner().invoke(main, ["show", str(tmp_path / "d")]).stdout


def test_value_that_another_tool_gives_a_property_stays_until_the_property_changes(
    dataset: lakebed.Dataset,
) -> None:
    change_entries(store_of(dataset), "d", {"owner": "ann"})

    dataset.append(ROWS)
    with_properties(dataset, owner="web team", tier="2")

    assert entries(dataset)["owner"] == "ann"
    assert dataset.inspect.annotations() == {"owner": "ann"}
    assert dataset.descriptor.properties["owner"] == "web team"

    with_properties(dataset, owner="ops")

    assert entries(dataset)["owner"] == "ops"
    assert dataset.inspect.annotations() == {}


def test_published_dataset_of_kartothek_has_the_properties(dataset: lakebed.Dataset) -> None:
    dataset.publish("kartothek")

    assert entries(dataset, "d-kartothek")["owner"] == "web team"
