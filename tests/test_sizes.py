"""Sizes are bytes or text, and mean the same wherever one is taken."""

import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lakebed import Dataset, WriteOptions, open_repository
from lakebed.common.sizes import parse_size
from lakebed.datasource.options import SaveOptions
from lakebed.datasource.stream_options import StreamReadOptions, StreamWriteOptions
from lakebed.errors import InvalidInputError
from lakebed.tables.trees.telemetry import TelemetryOptions
from lakebed.upkeep.rules import LayoutRule

MIB = 2**20
SIZES: dict[str, int] = {
    "128MB": 128 * MIB,
    "128 MiB": 128 * MIB,
    " 64 mib ": 64 * MIB,
    "10g": 10 * 2**30,
    "1.5kb": 1536,
    "1TB": 2**40,
    "1000": 1000,
    "1000B": 1000,
}
NO_SIZES = ["", "MB", "12 parsecs", "-1MB", "0", "0.0001k", "1.5", "1e3", "12MBB"]


@pytest.mark.parametrize("text", SIZES)
def test_text_is_a_number_of_bytes(text: str) -> None:
    assert parse_size(text) == parse_size(SIZES[text]) == parse_size(np.int64(SIZES[text]))


@pytest.mark.parametrize("size", [*NO_SIZES, 0, -1, True, None, 1.5, b"1MB", [1]])
def test_anything_else_is_refused_with_the_name_of_the_argument(size: object) -> None:
    with pytest.raises(InvalidInputError, match=r"target_bytes is .* not a size") as raised:
        parse_size(size, "target_bytes")
    assert "128MB" in raised.value.hint


@pytest.fixture
def dataset() -> Dataset:
    lake = open_repository(f"memory://{uuid.uuid4().hex}")
    lake.write("t", [{"id": 1, "name": "a"}])
    lake.write("t", [{"id": 2, "name": "b"}])
    return lake["t"]


PATH = {"path": "memory://lake/t"}
DOORS: dict[str, Callable[[Dataset, Any], object]] = {
    "compact": lambda d, size: d.compact(target_bytes=size).files_after,
    "compact commits": lambda d, size: d.compact(commit_bytes=size).files_after,
    "index": lambda d, size: d.indices.build("id", commit_bytes=size).column,
    "sink": lambda d, size: d.sink([{"id": 3}], 0, query="q", compact_target_bytes=size),
    "write": lambda d, size: WriteOptions(target_bytes=size),
    "write groups": lambda d, size: WriteOptions(row_group_bytes=size),
    "write memory": lambda d, size: WriteOptions(memory_bytes=size),
    "layout": lambda d, size: LayoutRule(target_bytes=size),
    "tree": lambda d, size: TelemetryOptions(max_bytes=size),
    "spark write": lambda d, size: SaveOptions.parse(PATH | {"targetBytes": str(size)}),
    "spark groups": lambda d, size: SaveOptions.parse(PATH | {"rowGroupBytes": str(size)}),
    "spark memory": lambda d, size: SaveOptions.parse(PATH | {"memoryBytes": str(size)}),
    "stream": lambda d, size: StreamReadOptions.parse(PATH | {"maxBytesPerTrigger": str(size)}),
    "stream splits": lambda d, size: StreamReadOptions.parse(PATH | {"splitBytes": str(size)}),
    "stream sink": lambda d, size: StreamWriteOptions.parse(
        PATH | {"compactTargetBytes": str(size)}
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_takes_text_and_bytes_alike(dataset: Dataset, door: str) -> None:
    call = DOORS[door]
    as_text, as_bytes = call(dataset, "64 MiB"), call(dataset, 64 * MIB)
    if door in ("compact", "compact commits"):
        assert (as_text, as_bytes) == (1, 0)  # the second finds nothing to do
    elif door != "sink":
        assert as_text == as_bytes


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_what_is_not_a_size(dataset: Dataset, door: str) -> None:
    for size in ("12 parsecs", "0", "-1MB"):
        with pytest.raises(InvalidInputError, match="not a size"):
            DOORS[door](dataset, size)
