"""What is loaded when: a bare import and a call for help are quick, and names are where they were."""

import ast
import compileall
import os
import shutil
import subprocess
import sys
from collections.abc import Collection
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from heads import ON_TREES

import lakebed

SOURCE = Path(lakebed.__file__).parents[1]
LAZY_PACKAGES = [
    import_module(".".join(path.parent.relative_to(SOURCE).parts))
    for path in sorted(SOURCE.rglob("__init__.py"))
    if "lazily(" in path.read_text(encoding="utf-8")
]

# What reading a head takes. msgspec brings typing_extensions, Cython names modules of its own.
DATA = {"msgspec", "numpy", "pyarrow", "typing_extensions", "zstandard"}

OF_ARRAYS = frozenset({"dateutil", "pandas", "pytz", "six"})


def loaded_by(statement: str, *arguments: str, source: Path = SOURCE) -> set[str]:
    """Return the modules that a statement loads in a process of its own, but for Python's."""
    program = (
        f"import sys; before = set(sys.modules)\n{statement}\n"
        "print(*(set(sys.modules) - before), file=sys.stderr)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | {"PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    modules = answer.stderr.splitlines()[-1].split()
    return {
        module
        for module in modules
        if module.partition(".")[0] not in sys.stdlib_module_names
        and not module.startswith(("cython_runtime", "_cython_", "_sysconfigdata_"))
    }


def packages(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_bare_import_loads_nothing_but_itself() -> None:
    assert loaded_by("import lakebed") == {"lakebed", "lakebed.common", "lakebed.common.lazy"}


def check_reads_heads_only(loaded: set[str], given: Collection[str] = ()) -> None:
    """Check that nothing was loaded that reads or writes rows, or changes a dataset."""
    assert packages(loaded) <= {"click", "lakebed", *DATA, *given}
    assert "pyarrow.dataset" not in loaded
    assert given or "pyarrow.compute" not in loaded  # pandas imports it
    own = {module.removeprefix("lakebed.") for module in loaded if module.startswith("lakebed.")}
    rooms = {module.partition(".")[0] for module in own}
    assert rooms.isdisjoint({"archive", "arrow", "checks", "index", "pipeline", "spark", "testing"})
    assert own.isdisjoint(
        {"state.committing", "state.transaction", "state.updates", "store.object"}
    )
    # The value that a plan is, which a view takes as a base; and the defaults in signatures. Of
    # tables the names of what they leave beside a dataset, which a drop takes with it.
    assert {
        module for module in own if module.startswith(("batches.", "plan.", "tables.", "work."))
    } == {
        *("plan.plan",),
        *("tables.delta", "tables.hive", "tables.iceberg", "tables.trees"),
        *("tables.delta.log_names", "tables.iceberg.metadata_names"),
        *("tables.giving_up", "tables.signs"),
        "work.defaults",
    }


def test_opening_a_repository_loads_what_reading_a_head_takes() -> None:
    loaded = loaded_by("from lakebed import open_repository")

    check_reads_heads_only(loaded)
    assert packages(loaded) <= {"lakebed", *DATA}
    assert "pyarrow.parquet" not in loaded


def test_help_loads_no_verb_and_nothing_that_reads_data() -> None:
    loaded = loaded_by(
        "from lakebed.cli import main; main(sys.argv[1:], standalone_mode=False)", "-h"
    )

    assert packages(loaded) == {"click", "lakebed"}
    assert {module for module in loaded if module.startswith("lakebed.cli.")} == {
        "lakebed.cli.folding",
        "lakebed.cli.group",
        "lakebed.cli.main",
        "lakebed.cli.output",
        "lakebed.cli.verbs",
    }


def test_what_spark_imports_to_look_for_sources_loads_nothing_else_of_ours() -> None:
    loaded = loaded_by("import pyspark_lakebed")

    assert {module for module in loaded if module.startswith("lakebed")} == {
        "lakebed",
        "lakebed.common",
        "lakebed.common.lazy",
        "lakebed.datasource",
        "lakebed.datasource.source",
        "lakebed.errors",
    }


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Of a dataset that holds a row."""
    repository = lakebed.open_repository(tmp_path)
    descriptor = lakebed.DatasetDescriptor(schema=pa.schema([("n", pa.int64())]))
    repository.create("numbers", descriptor).append([{"n": 1}])
    return str(tmp_path / "numbers")


def test_questions_to_heads_load_what_reading_them_takes(address: str) -> None:
    location, _, name = address.rpartition("/")
    loaded = loaded_by(
        "import lakebed; repository = lakebed.open_repository(sys.argv[1])\n"
        "dataset = repository.open(sys.argv[2]); repository.list(), dataset.descriptor\n"
        "dataset.history(), dataset.inspect.schemas(), dataset.at(version=0).version",
        *(location, name),
    )

    check_reads_heads_only(loaded)
    assert ON_TREES or "pyarrow.parquet" not in loaded  # the facts in a leaf are Parquet


@pytest.mark.parametrize("output", ["table", "json"])
def test_show_loads_what_reading_a_head_takes(address: str, output: str) -> None:
    loaded = loaded_by(
        "from lakebed.cli import main; main(sys.argv[1:], standalone_mode=False)",
        *("show", address, "-o", output),
    )

    # The root of a tree has facts of files, and pyarrow imports pandas with the first array.
    given = OF_ARRAYS if ON_TREES else frozenset()
    assert packages(loaded) - given == {"click", "lakebed", *DATA}
    check_reads_heads_only(loaded, given)


def imports_of(package: ModuleType) -> list[tuple[str, str]]:
    """Return what a type checker sees: module and name of each import of a package."""
    tree = ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    return [
        (str(statement.module), alias.name)
        for statement in checked.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    ]


@pytest.mark.parametrize("package", LAZY_PACKAGES, ids=lambda package: package.__name__)
def test_type_checkers_see_what_is_loaded(package: ModuleType) -> None:
    seen = imports_of(package)

    assert sorted(name for _, name in seen) == sorted(package.__all__)
    for module, name in seen:
        if module == package.__name__:
            assert getattr(package, name) is import_module(f"{module}.{name}")
        else:
            assert getattr(package, name) is getattr(import_module(module), name)
    assert {name for name in dir(package) if not name.startswith("__")} == set(package.__all__)


@pytest.mark.thorough
def test_names_can_be_asked_for_before_they_are_loaded() -> None:
    statement = (
        "import lakebed; names = dir(lakebed); assert set(lakebed.__all__) <= set(names), names\n"
        "from lakebed import *; assert open_repository is lakebed.open_repository"
    )

    assert "lakebed.repository" in loaded_by(statement)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        *("batches.diff.Diff", "commit.Commit", "dataset.Dataset", "work.adoption.Adoption"),
        *("repository.Repository", "spark.session.local_session", "view.View"),
    ],
)
def test_modules_need_no_import_of_their_own(name: str) -> None:
    assert loaded_by(f"import lakebed; lakebed.{name}")


@pytest.mark.thorough
def test_all_names_load_from_bytecode_alone(tmp_path: Path) -> None:
    shutil.copytree(
        SOURCE, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    assert compileall.compile_dir(tmp_path, quiet=1, legacy=True)
    for path in tmp_path.rglob("*.py"):
        path.unlink()
    names = [f"{package.__name__}.{name}" for package in LAZY_PACKAGES for name in package.__all__]

    loaded = loaded_by(
        "import importlib, lakebed\n"
        "for name in sys.argv[1:]:\n"
        "    package, _, attribute = name.rpartition('.')\n"
        "    getattr(importlib.import_module(package), attribute)\n"
        "assert lakebed.__file__.endswith('.pyc'), lakebed.__file__\n"
        "import lakebed.cli.main, pyspark_lakebed",
        *names,
        source=tmp_path,
    )

    assert len(names) > 100
    assert {"lakebed.repository", "lakebed.archive.archive", "lakebed.tables.trees.kite"} <= loaded


def test_unknown_name_is_an_error_of_python() -> None:
    with pytest.raises(AttributeError, match="module 'lakebed' has no attribute 'opne_uri'"):
        lakebed.opne_uri  # noqa: B018 - asking for it is what is tested
    with pytest.raises(ImportError, match="cannot import name 'opne_uri' from 'lakebed'"):
        from lakebed import opne_uri  # noqa: F401


def modules_by_name() -> dict[str, ast.Module]:
    trees = {}
    for path in (SOURCE / "lakebed").rglob("*.py"):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        trees[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def imported_at_once(body: list[ast.stmt], known: set[str]) -> set[str]:
    """Return the modules that must be loaded before the body of a module can run."""
    found: set[str] = set()
    for statement in body:
        match statement:
            case ast.Import():
                found.update(alias.name for alias in statement.names)
            case ast.ImportFrom():
                parts = {f"{statement.module}.{alias.name}" for alias in statement.names}
                found.update({part for part in parts if part in known} or {str(statement.module)})
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                found |= imported_at_once(statement.orelse, known)
            case ast.If() | ast.Try():
                found |= imported_at_once(statement.body, known)
    return found & known


@pytest.mark.thorough
def test_every_module_can_be_the_first_that_is_imported() -> None:
    trees = modules_by_name()
    graph = {name: imported_at_once(tree.body, set(trees)) for name, tree in trees.items()}

    assert len(graph["lakebed.dataset"]) > 20
    TopologicalSorter(graph).prepare()  # raises, with the names, where modules need each other
