"""The cap of a dimension: how many values get a partition, which ones, and what is told of it."""

import collections
import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

import lakebed
from lakebed import by
from lakebed.cli import main

SCHEMA = pa.schema([("n", pa.int64()), ("version", pa.string()), ("channel", pa.string())])
FIVE = by.dimension("version", cap=5, name="v")


@pytest.fixture
def pings(tmp_path: Path) -> lakebed.Dataset:
    descriptor = lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[FIVE])
    return lakebed.open_repository(tmp_path).create("pings", descriptor)


def rows(*versions: str | None) -> pa.Table:
    return pa.table(
        {"n": range(len(versions)), "version": versions, "channel": [None] * len(versions)},
        schema=SCHEMA,
    )


def counts(dataset: lakebed.Dataset) -> dict[object, int | None]:
    return {
        partition.values["v"]: partition.row_count for partition in dataset.inspect.partitions()
    }


def test_values_up_to_the_cap_are_admitted_as_they_come(pings: lakebed.Dataset) -> None:
    commit = pings.append(rows("a", "b", "a", None, "c", "d", "e", "f", "g", "f", "a"))

    assert counts(pings) == {"a": 3, "b": 1, "c": 1, "d": 1, "e": 1, "OTHER": 3, "UNKNOWN": 1}
    (caught,) = commit.caught
    assert (caught.dimension, caught.cap, caught.row_count) == ("v", 5, 3)
    assert caught.values == ("f", "g")
    assert str(caught) == "v: 3 rows beyond 5 values, as f, g"


def test_values_that_have_a_partition_keep_it_in_later_writes(pings: lakebed.Dataset) -> None:
    first = pings.append(rows("a", "b", "c", "d"))
    second = pings.append(rows("x", "y", "a", "z", "b"))
    third = pings.append(rows("x", "y", "c"))

    assert first.caught == ()
    assert [one.row_count for one in second.caught] == [2]
    assert [one.values for one in third.caught] == [("y",)]
    assert counts(pings) == {"a": 2, "b": 2, "c": 2, "d": 1, "x": 2, "OTHER": 3}


def test_tokens_and_their_like_count_as_what_they_are(pings: lakebed.Dataset) -> None:
    pings.append(rows("a", "b", "c", "d", "OTHER", "UNKNOWN", None, "e"))

    assert counts(pings) == {
        "a": 1,
        "b": 1,
        "c": 1,
        "d": 1,
        "~OTHER": 1,
        "OTHER": 2,
        "UNKNOWN": 1,
    }


def test_what_was_caught_is_found_again(pings: lakebed.Dataset) -> None:
    versions = [f"v{n % 9}" for n in range(90)]
    pings.append(rows(*versions))

    for version, count in collections.Counter(versions).items():
        found = pings.where(f"version = '{version}'")
        assert found.count() == count
        assert len(found.plan()) in (1, 2)
        own = {file.partition["v"] for file in found.plan().files}
        assert own <= {version, "OTHER"}
    assert pings.where("version < 'v5'").count() == 50
    assert pings.where("version NOT IN ('v0', 'v8')").count() == 70


def test_lists_and_short_ranges_have_no_cap(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    descriptor = lakebed.DatasetDescriptor(
        schema=schema,
        partition_by=[by.dimension("n", {"min": 0, "max": 99}), by.dimension("s", ["a", "b"])],
    )
    dataset = lakebed.open_repository(tmp_path).create("d", descriptor)

    commit = dataset.append([{"n": n, "s": "abc"[n % 3]} for n in range(120)])

    assert commit.caught == ()
    numbers = {partition.values["n_dimension"] for partition in dataset.inspect.partitions()}
    assert numbers == {*map(str, range(100)), "OTHER"}


def test_writer_of_single_entities_counts_each_once(pings: lakebed.Dataset) -> None:
    with pings.kite.writer() as writer:
        for number, version in enumerate("abcdefgabc"):
            writer.write({"n": number, "version": version, "channel": None})

    assert counts(pings) == {"a": 2, "b": 2, "c": 2, "d": 1, "e": 1, "OTHER": 2}
    assert writer.commit is not None
    assert [one.row_count for one in writer.commit.caught] == [2]


def test_history_tells_what_was_caught(pings: lakebed.Dataset) -> None:
    commit = pings.append(rows(*"abcdefg"))
    pings.append(rows("a"))

    again = lakebed.open_repository(pings.uri.rpartition("/")[0]).open("pings")

    assert [one.caught for one in again.history()] == [(), commit.caught, ()]
    assert "v: 2 rows beyond 5 values" in commit._repr_html_()


def test_command_line_tells_what_was_caught(tmp_path: Path) -> None:
    lake, data = tmp_path / "lake", tmp_path / "pings.jsonl"
    dataset = lakebed.open_repository(lake).create(
        "pings", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by=[FIVE])
    )
    data.write_text(
        "".join(
            json.dumps({"n": n, "version": version, "channel": "x"}) + "\n"
            for n, version in enumerate("abcdefg")
        )
    )

    appended = CliRunner().invoke(main, ["append", dataset.uri, str(data), "-o", "json"])
    history = CliRunner().invoke(main, ["history", dataset.uri, "-o", "json"])

    expected = [{"dimension": "v", "cap": 5, "row_count": 2, "values": ["f", "g"]}]
    assert appended.exit_code == 0, appended.output
    assert json.loads(appended.stdout)["caught"] == expected
    assert [one["caught"] for one in json.loads(history.stdout)] == [[], expected]
