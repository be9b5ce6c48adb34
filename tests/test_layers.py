"""Imports go down only, and the check that says so does see the ones that do not."""

import os
import re
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


OFFENDERS = [
    ("model", "from lakebed.store import open_store", "lakebed.store"),
    ("store", "def late():\n    import lakebed.state", "lakebed.state"),
    ("errors", "import lakebed.model", "lakebed.model"),
    ("index", "import pyspark.sql.types", "pyspark"),
    ("archive", "from pyspark.sql import SparkSession", "pyspark"),
    ("state", "import obstore", "obstore"),
    ("plan", "import starlette", "starlette"),
]
CONTRACTS = [
    "Imports go down only",
    "Only lakebed.datasource, lakebed.tables.hive and lakebed.spark import pyspark",
    "Only lakebed.store imports obstore",
    "Only lakebed.archive.http and lakebed.web import starlette and uvicorn",
]


def copied(project: Path) -> Path:
    """Copy the source tree, so that a test may spoil it."""
    project.mkdir()
    shutil.copy(ROOT / "pyproject.toml", project)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "lakebed", project / "src" / "lakebed", ignore=ignored)
    return project


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is said of a tree in which all goes wrong that may: the broken contracts."""
    project = copied(tmp_path_factory.mktemp("layers") / "project")
    rooms = project / "src" / "lakebed"
    for importer, statement, _ in OFFENDERS:
        is_room = (rooms / importer).is_dir()
        offender = rooms / importer / "offender.py" if is_room else rooms / f"{importer}.py"
        with offender.open("a") as file:
            file.write(f"\n{statement}\n")
    (rooms / "attic.py").touch()

    report = lint_imports(project)

    assert report.returncode == 1, report.stdout + report.stderr
    for contract in CONTRACTS:
        assert f"{contract} BROKEN" in report.stdout
    return report.stdout.partition("Broken contracts")[2]


def test_imports_go_down_only(tmp_path: Path) -> None:
    report = lint_imports(copied(tmp_path / "project"))

    assert report.returncode == 0, report.stdout + report.stderr


@pytest.mark.parametrize(("importer", "statement", "imported"), OFFENDERS)
def test_import_that_goes_up_is_caught(
    broken: str, importer: str, statement: str, imported: str
) -> None:
    offender = rf"lakebed\.{importer}(\.offender)? -> {re.escape(imported)}\b"

    assert re.search(offender, broken), broken


def test_room_without_a_place_is_caught(broken: str) -> None:
    assert "attic" in broken
