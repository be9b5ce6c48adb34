"""The example project of Spark Declarative Pipelines: run twice, each raw row comes once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lakebed

pytestmark = [pytest.mark.spark, pytest.mark.long]

PROJECT = Path(__file__).parents[2] / "examples" / "pipeline"


def _push(raw: Path, name: str, *flights: tuple[str, str, float]) -> None:
    raw.mkdir(exist_ok=True)
    lines = [
        json.dumps({"time_hour": hour, "carrier": carrier, "flight": 1, "dep_delay": delay})
        for hour, carrier, delay in flights
    ]
    (raw / name).write_text("\n".join(lines) + "\n")


def _run(project: Path) -> None:
    from lakebed.spark.java import ensure_java

    pipelines = Path(sys.executable).with_name("spark-pipelines")
    source = str(Path(lakebed.__file__).parents[1])
    environment = {
        **os.environ,
        "JAVA_HOME": str(ensure_java().path),
        "PYSPARK_PYTHON": sys.executable,
        "PATH": f"{pipelines.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": source,
    }
    done = subprocess.run(
        [str(pipelines), "run", "--spec", str(project / "spark-pipeline.yml")],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=project,
        timeout=500,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]


def test_the_example_project_brings_each_flight_once(tmp_path):
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/lakebed-pipeline", str(tmp_path)))
    raw = tmp_path / "raw"
    _push(raw, "a.json", ("2013-01-01T05:00:00Z", "UA", 2.0), ("2013-01-02T05:00:00Z", "AA", 90.0))

    _run(project)
    _push(raw, "b.json", ("2013-01-02T06:00:00Z", "UA", 120.0))
    _run(project)

    lake = lakebed.open_repository(tmp_path / "lake")
    flights, late = lake.open("flights"), lake.open("late_flights")
    assert sorted(row["dep_delay"] for row in flights.kite.reader()) == [2.0, 90.0, 120.0]
    assert [partition.path for partition in flights.inspect.partitions()] == [
        "dt=2013-01-01",
        "dt=2013-01-02",
    ]
    assert flights.descriptor.index == ("tailnum",)
    assert sorted((row["carrier"], row["hours_late"]) for row in late.kite.reader()) == [
        ("AA", 1.5),
        ("UA", 2.0),
    ]
