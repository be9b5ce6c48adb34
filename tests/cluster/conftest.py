"""What the tests of clusters share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from standalone import PACKAGES, SOURCE, Cluster, python_environment


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def whole_environment(directory: Path) -> Path:
    """The programs of an environment that has all that Lakebed needs."""
    return python_environment(directory / "whole", SOURCE, PACKAGES)


@pytest.fixture(scope="module")
def cluster(directory: Path) -> Iterator[Cluster]:
    """A cluster without workers."""
    cluster = Cluster(directory / "processes")
    yield cluster
    cluster.end()
