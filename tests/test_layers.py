"""Imports go down only, and the check that says so does see the ones that do not."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
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
    ("common", "from lakebed.model.schema import Schema", "lakebed.model"),
    ("work", "import lakebed.tables.engine", "lakebed.tables"),
    ("web", "from lakebed.repository import Repository", "lakebed.repository"),
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


def layers() -> dict[str, int]:
    """Return the floor of each room, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    checked = next(one["layers"] for one in contracts if one["id"] == "layers")
    return {
        room: floor for floor, layer in enumerate(checked) for room in re.findall(r"\w+", layer)
    }


def test_rooms_are_few() -> None:
    assert len(layers()) <= 32


def test_one_module_alone_names_higher_rooms_that_it_loads() -> None:
    """A text of two parts, such as `lakebed.dataset`, is a property of a published table."""
    floors, source = layers(), ROOT / "src" / "lakebed"
    upwards = set()
    for path in source.rglob("*.py"):
        relative = path.relative_to(source).with_suffix("")
        own = floors.get(relative.parts[0])
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if own is None or not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            named = re.fullmatch(r"lakebed\.(\w+)(\.\w+)+", node.value)
            is_module = named and source.joinpath(*node.value.split(".")[1:]).with_suffix(".py")
            if is_module and is_module.is_file() and floors[named[1]] < own:
                upwards.add((str(relative), node.value))

    loaded = {"lakebed.tables.automatic", "lakebed.work.judging", "lakebed.work.set_aside"}
    assert upwards == {("state/after", module) for module in loaded}
