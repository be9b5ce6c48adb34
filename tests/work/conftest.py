"""What the tests of upkeep share: a small lake, and a dataset whose older versions are dead."""

from __future__ import annotations

from pathlib import Path

import pytest
from upkeep_lake import DESCRIPTOR, new_lake, row

import lakebed


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return new_lake(tmp_path)


@pytest.fixture
def dataset(lake: lakebed.Repository) -> lakebed.Dataset:
    """Three versions with data, of which the last one alone is live."""
    dataset = lake.create("d", DESCRIPTOR)
    for n in range(3):
        dataset.overwrite([row("a", n), row("b", n)])
    return dataset
