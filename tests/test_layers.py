"""Imports go down only, and the check that says so does see the ones that do not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

needs_import_linter = pytest.mark.skipif(
    shutil.which("lint-imports", path=str(Path(sys.executable).parent)) is None,
    reason="import-linter is not installed",
)
pytestmark = needs_import_linter


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-logo", "--no-cache"],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(project / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the source tree that a test may spoil."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "lakebed", tmp_path / "src" / "lakebed", ignore=ignored)
    return tmp_path


def test_imports_go_down_only(project: Path) -> None:
    report = lint_imports(project)

    assert report.returncode == 0, report.stdout + report.stderr


@pytest.mark.parametrize(
    ("importer", "statement", "broken"),
    [
        ("model", "from lakebed.store import open_store", "Imports go down only"),
        ("store", "def late():\n    import lakebed.state", "Imports go down only"),
        ("errors", "import lakebed.model", "Imports go down only"),
        ("model", "import pyspark.sql.types", "Only lakebed.spark and lakebed.hive import pyspark"),
        (
            "store",
            "from pyspark.sql import SparkSession",
            "Only lakebed.spark and lakebed.hive import pyspark",
        ),
        ("state", "import obstore", "Only lakebed.store imports obstore"),
        ("archive", "import starlette", "Only lakebed.archive_http imports starlette and uvicorn"),
    ],
)
def test_import_that_goes_up_is_caught(
    project: Path, importer: str, statement: str, broken: str
) -> None:
    room = project / "src" / "lakebed" / importer
    offender = room / "offender.py" if room.is_dir() else room.with_suffix(".py")
    with offender.open("a") as file:
        file.write(f"\n{statement}\n")

    report = lint_imports(project)

    assert report.returncode == 1, report.stdout + report.stderr
    assert f"{broken} BROKEN" in report.stdout
    assert f"lakebed.{importer}" in report.stdout.partition("Broken contracts")[2]


def test_room_without_a_place_is_caught(project: Path) -> None:
    (project / "src" / "lakebed" / "attic.py").touch()

    report = lint_imports(project)

    assert report.returncode == 1, report.stdout + report.stderr
    assert "attic" in report.stdout
