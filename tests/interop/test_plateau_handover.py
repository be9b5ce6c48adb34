"""Heads that were handed over, as plateau reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import by
from lakebed.state.handover import hand_over
from lakebed.state.head import HeadFormat
from lakebed.store.posix import PosixStore

pytestmark = pytest.mark.interop

DESCRIPTOR = lakebed.DatasetDescriptor(
    schema=pa.schema([("id", pa.int64()), ("word", pa.string())]),
    partition_by=[by.identity("word")],
)


def test_plateau_reads_a_head_that_was_handed_over_there_and_back(plateau, tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    dataset = lakebed.Repository(store).create("d", DESCRIPTOR)
    dataset.append([{"id": 1, "word": "é /%"}])

    for number, target in enumerate([HeadFormat.MSGPACK, HeadFormat.JSON], 2):
        hand_over(store, "d", target)
        assert plateau.ids(tmp_path, "d") == list(range(1, number))
        dataset.append([{"id": number, "word": "b"}])
        assert plateau.ids(tmp_path, "d") == list(range(1, number + 1))
        assert plateau.ids(tmp_path, "d", [[("word", "==", "é /%")]]) == [1]
