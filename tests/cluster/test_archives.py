"""An environment that is packed and shipped by `spark.archives` serves workers that have nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from lock_files import write_constraints
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
    constraints = write_constraints("develop", directory / "constraints.txt")
    subprocess.run(
        [
            *pip,
            *("--python", str(programs / "python"), "install"),
            *("-c", str(constraints), *packages),
        ],
        check=True,
    )
    return programs.parent


@pytest.fixture(scope="module")
def archive(environment: Path) -> Path:
    packed = environment.with_name("environment.tar.gz")
    subprocess.run(
        [
            str(environment / "bin" / "venv-pack"),
            "--quiet",
            "--prefix",
            str(environment),
            "-o",
            str(packed),
        ],
        check=True,
    )
    return packed


@pytest.fixture(scope="module")
def bare_workers(cluster: Cluster, directory: Path) -> Cluster:
    cluster.add_worker("worker", python_environment(directory / "bare"))
    return cluster


def shipping(cluster: Cluster, directory: Path, name: str, archive: Path) -> Driver:
    """Begin a session in client mode, whose workers are to run what is shipped."""
    return Driver(
        cluster,
        name,
        cluster.url,
        programs=directory / "bare" / "bin",
        settings={"spark.archives": f"{archive}#environment"},
        environ={"PYSPARK_PYTHON": "./environment/bin/python"},
    )


def test_rows_are_written_and_read_by_what_was_shipped(
    bare_workers: Cluster, directory: Path, archive: Path, tmp_path: Path
) -> None:
    dataset = lakebed.open_repository(tmp_path / "lake").create(
        "numbers", lakebed.DatasetDescriptor(schema=SCHEMA, partition_by="part")
    )

    with shipping(bare_workers, directory, "driver", archive) as driver:
        driver.ask("append", dataset=dataset.uri, start=0, count=ROWS)
        done = driver.ask("merge", dataset=dataset.uri, start=ROWS // 2, count=ROWS)
        read = driver.ask("read", dataset=dataset.uri)
        reports = driver.ask("workers", location=str(tmp_path / "lake"))
        refused = driver.ask("error_of", function="load", dataset=dataset.uri)

    assert done == [ROWS // 2, ROWS // 2]
    assert read[0] == dataset.count() == ROWS + ROWS // 2
    for report in reports:
        assert report["problems"] == []
        assert report["executable"].endswith("environment/bin/python")
        assert "/work/" in report["executable"]  # of the executor
    # For the data source, Spark starts the same Python beside the driver, where it is not.
    assert "DATA_SOURCE_NOT_FOUND" in refused["text"]


def test_the_data_source_takes_the_environment_beside_the_driver(
    bare_workers: Cluster, directory: Path, archive: Path, environment: Path, tmp_path: Path
) -> None:
    dataset = lakebed.open_repository(tmp_path / "lake").create(
        "numbers", lakebed.DatasetDescriptor(schema=SCHEMA)
    )
    with shipping(bare_workers, directory, "beside", archive) as driver:
        (bare_workers.directory / "beside" / "environment").symlink_to(environment)

        driver.ask("save", dataset=dataset.uri, start=0, count=ROWS)
        loaded = driver.ask("load", dataset=dataset.uri)

    assert loaded[0] == dataset.count() == ROWS
