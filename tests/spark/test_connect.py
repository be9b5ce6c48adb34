"""Spark Connect: the same calls, with no JVM in this process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import session_statements


@pytest.mark.spark
@pytest.mark.classic("it starts a server of its own")
@pytest.mark.thorough
def test_batches_are_written_and_read_over_spark_connect(tmp_path):
    worker = Path(__file__).with_name("connect_worker.py")

    # A process of its own: a session of the classic kind may run in this one.
    done = subprocess.run(
        [sys.executable, str(worker), str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )

    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["plain"] == 1000
    assert "a session on Connect cannot use a prepared list" in found["prepared"]
    assert found["active"] == 499_500
    assert found["local"] == found["native"] == found["arrow"] == 74
    assert found["source"] == [1000, 1010]
    assert found["attached"] == {"t_parts": 2, "t_plain": 1}
    assert found["statements"] == session_statements.EXPECTED
    assert found["sql"] == 77  # 3 of the 10 rows that were added
