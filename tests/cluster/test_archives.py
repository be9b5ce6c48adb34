"""An environment that is packed and shipped by `spark.archives` serves workers that have nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from standalone import Cluster, Driver, python_environment

import lakebed

pytestmark = [
    pytest.mark.spark,
    pytest.mark.install,
    pytest.mark.long,
    pytest.mark.timeout(3600),
]

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([("n", pa.int64()), ("part", pa.string()), ("text", pa.string())])
ROWS = 40_000


@pytest.fixture(scope="module")
def environment(directory: Path) -> Path:
    """The folder of an environment with Lakebed as it is installed, and without pyspark."""
    programs = python_environment(directory / "environment")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--wheel-dir", str(directory), str(ROOT)], check=True
    )
    (wheel,) = directory.glob("lakebed-*.whl")
    packages = [str(wheel), "pandas<3", "venv-pack", "setuptools<81"]
    subprocess.run(
        [
            *pip,
            *("--python", str(programs / "python"), "install"),
            *("-c", str(ROOT / "constraints.txt"), *packages),
        ],
        check=True,
    )
    return programs.parent


@pytest.fixture(scope="module")
def archive(environment: Path) -> Path:
    packed = environment.with_name("environment.tar.gz")
    subprocess.run(
        [str(environment / "bin" / "venv-pack"), "--prefix", str(environment), "-o", str(packed)],
        check=True,
    )
    return packed


@pytest.fixture(scope="module")
def driver(cluster: Cluster, directory: Path, archive: Path) -> Iterator[Driver]:
    """A session in client mode, on workers that have a bare Python."""
    cluster.add_worker("worker", python_environment(directory / "bare"))
    with Driver(
        cluster,
        "driver",
        cluster.url,
        programs=python_environment(directory / "bare-too"),
        settings={"spark.archives": f"{archive}#environment"},
        environ={"PYSPARK_PYTHON": "./environment/bin/python"},
    ) as driver:
        yield driver


def test_rows_are_written_and_read_by_what_was_shipped(driver: Driver, tmp_path: Path) -> None:
    dataset = lakebed.open_repository(tmp_path / "lake").create(
        "numbers", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="part")
    )

    driver.ask("append", dataset=dataset.uri, start=0, count=ROWS)
    done = driver.ask("merge", dataset=dataset.uri, start=ROWS // 2, count=ROWS)
    read = driver.ask("read", dataset=dataset.uri)
    (report,) = driver.ask("workers", location=str(tmp_path / "lake"))

    assert done == [ROWS // 2, ROWS // 2]
    assert read[0] == dataset.count() == ROWS + ROWS // 2
    assert report["problems"] == []
    assert report["executable"].endswith("environment/bin/python")
    assert "/work/" in report["executable"]  # of the executor


def test_the_data_source_needs_the_environment_beside_the_driver_too(
    driver: Driver, cluster: Cluster, environment: Path, tmp_path: Path
) -> None:
    dataset = lakebed.open_repository(tmp_path / "lake").create(
        "numbers", lakebed.DatasetDescriptor(schema=SCHEMA)
    )
    arguments = {"dataset": dataset.uri, "start": 0, "count": ROWS}
    refused = driver.ask("error_of", function="save", **arguments)
    (cluster.directory / "driver" / "environment").symlink_to(environment)

    driver.ask("save", **arguments)

    assert refused is not None
    assert "environment/bin/python" in refused["text"]
    assert driver.ask("load", dataset=dataset.uri)[0] == dataset.count() == ROWS
