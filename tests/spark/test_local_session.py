"""The local session is quiet, takes the caller's settings, and leaves a running one alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakebed.spark.session import get_session, local_session

pytestmark = pytest.mark.spark

FRESH = """
from lakebed.spark.session import local_session
spark = local_session("1", settings={"spark.driver.extraJavaOptions": "-Dmine=7 -Dother=8"})
options = spark.conf.get("spark.driver.extraJavaOptions")
print(spark.range(3).count(), "-Dmine=7 -Dother=8" in options, "-Dderby.system.home" in options)
spark.stop()
"""
# Said by the JVM itself, before Spark has a word in it.
FROM_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector"


def test_fresh_session_is_quiet_and_adds_java_options_of_the_caller(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FRESH]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == "3 True True\n"
    assert [line for line in done.stderr.splitlines() if line != FROM_THE_JVM] == []
    assert list(tmp_path.iterdir()) == []


def test_running_session_is_returned_unchanged_to_every_thread(spark) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "Asia/Tokyo")
    seen = []

    def look() -> None:
        seen.extend([local_session(), get_session()])

    try:
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        found = spark.conf.get(zone)
    finally:
        spark.conf.set(zone, before)

    assert all(session is spark for session in seen)
    assert len(seen) == 4
    assert found == "Asia/Tokyo"


def test_running_session_takes_the_settings_that_are_given(spark) -> None:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)

    try:
        found = local_session(settings={name: "7"}).conf.get(name)
    finally:
        spark.conf.set(name, before)

    assert found == "7"
