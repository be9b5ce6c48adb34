"""Sail instead of Spark: sessions of Spark Connect without Java, in an environment of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import lakebed

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-sail" / "bin" / "python"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not PYTHON.exists(), reason="make sail installs it"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("sail")
    done = subprocess.run(
        [PYTHON, Path(__file__).with_name("sail_worker.py"), directory],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        env={**os.environ, "PYTHONPATH": str(Path(lakebed.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_first_block_of_readme_prints_the_same(found: dict[str, Any]):
    text = (ROOT / "README.md").read_text("utf-8")
    expected = re.search(r"<!-- output -->\n```text\n(.*?)```", text, re.DOTALL)[1].splitlines()

    assert not found["java"]
    assert not found["is_spark"]
    shown = [line.rstrip() for line in found["readme"]]
    for line, wanted in zip(shown, expected, strict=True):
        pattern = re.escape(wanted).replace(r"\.\.\.", ".*")
        assert re.fullmatch(pattern, line), (line, wanted)


def test_partition_fields_are_read(found: dict[str, Any]):
    assert found["where"] == [[1, 1], [4, 1], [7, 1]]
    assert found["attached"] == found["source"] == [99, 100]
    assert "not Spark" in found["native"]


def test_frames_are_written(found: dict[str, Any]):
    assert found["appended"] == 104
    assert found["keyed"] == [
        [98, "new"],
        [99, "new"],
        [100, "new"],
        [101, "newer"],
        [102, "newer"],
        [103, "newer"],
        [104, "newer"],
    ]
    assert found["merged"] == 3
