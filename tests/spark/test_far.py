"""Spark's own reader on what is no directory: a mount of Hadoop's own, and a bucket of S3.

The mount (viewfs) needs no connector, so that every run of the tests shows what a store far away
goes through. The bucket needs hadoop-aws, which Spark fetches.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from far_cases import CASES, create, is_native, table
from frames import comparable, setting, spark_rows

import lakebed
from lakebed.errors import InvalidInputError
from lakebed.testing import DelegatingStore

pytestmark = pytest.mark.spark


def mounted(lake: lakebed.Repository, mount: str) -> lakebed.Repository:
    """Return a repository that says no path, and what Hadoop calls it by a mount."""

    # Here, so that tasks get the class by value: they do not find the modules of tests.
    class MountedStore(DelegatingStore):
        def _local_path(self, key: str) -> None:
            """Hide it."""

        def _hadoop_uri(self, key: str) -> str:
            return f"viewfs://{mount}/lake/{key}"

    return lakebed.Repository(MountedStore(lake.store))


@contextlib.contextmanager
def mounting(spark: Any, mount: str, place: Path) -> Iterator[None]:
    with setting(spark, f"fs.viewfs.mounttable.{mount}.link./lake", place.as_uri()):
        yield


@pytest.fixture(params=["directory", "mount"])
def lake(
    request: pytest.FixtureRequest, spark: Any, tmp_path: Path
) -> Iterator[lakebed.Repository]:
    place = tmp_path / "a lake é, 100%" / "x%20y=1"
    place.mkdir(parents=True)
    lake = lakebed.open_repository(place)
    if request.param == "directory":
        yield lake
        return
    mount = f"m{uuid.uuid4().hex}"
    with mounting(spark, mount, place):
        yield mounted(lake, mount)


@pytest.mark.parametrize("check", CASES.values(), ids=CASES)
@pytest.mark.thorough
def test_near(check: Callable[[Any, lakebed.Repository], None], spark: Any, lake: Any) -> None:
    check(spark, lake)


def test_a_session_that_does_not_reach_a_store_reads_it_through_arrow(
    spark: Any, tmp_path: Path
) -> None:
    mount = f"m{uuid.uuid4().hex}"
    lake = mounted(lakebed.open_repository(tmp_path / "lake"), mount)
    dataset = create(lake, "events", "date(at) as dt")
    dataset.append(table())
    wanted = comparable(dataset.arrow())

    assert not is_native(dataset.spark(spark))
    assert spark_rows(dataset.spark(spark)) == wanted
    with pytest.raises(InvalidInputError, match=r"Spark does not reach file:.* by viewfs://"):
        dataset.spark(spark, way="native")

    with mounting(spark, mount, tmp_path / "lake"):
        # Who names the way asks the session again.
        assert not is_native(dataset.spark(spark))
        assert spark_rows(dataset.spark(spark, way="native")) == wanted
        assert is_native(dataset.spark(spark))


def test_a_store_that_hadoop_does_not_know_is_read_through_arrow(
    spark: Any, tmp_path: Path
) -> None:
    class UnknownStore(DelegatingStore):
        def _local_path(self, key: str) -> None:
            """Hide it."""

        def _hadoop_uri(self, key: str) -> None:
            """Nor say another name."""

    lake = lakebed.Repository(UnknownStore(lakebed.open_repository(tmp_path).store))
    dataset = create(lake, "events")
    dataset.append(table())

    assert spark_rows(dataset.spark(spark)) == comparable(dataset.arrow())
    with pytest.raises(InvalidInputError, match="no file system of Hadoop is known"):
        dataset.spark(spark, way="native")


@pytest.fixture(scope="module", params=["classic", "connect"])
def in_a_bucket(
    request: pytest.FixtureRequest, s3_endpoint: str, s3_options: dict[str, str]
) -> Any:
    """What each case said in a bucket."""
    worker = Path(__file__).with_name("far_worker.py")
    question = {"endpoint": s3_endpoint, "remote": request.param == "connect"}
    done = subprocess.run(
        [sys.executable, str(worker), json.dumps(question)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"case"')]
    assert lines, done.stderr[-5000:]
    return {answer["case"]: answer["error"] for answer in map(json.loads, lines)}


@pytest.mark.long
@pytest.mark.classic("it starts sessions of its own")
@pytest.mark.parametrize(
    "name",
    [
        *CASES,
        "nothing_given_to_lakebed_is_told_to_spark",
        "a_bucket_that_the_session_does_not_reach_is_read_through_arrow",
    ],
)
def test_in_a_bucket(in_a_bucket: dict[str, str], name: str) -> None:
    assert in_a_bucket[name] == ""
