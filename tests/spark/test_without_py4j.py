"""The package pyspark-client has no py4j: nothing that a session of Spark Connect calls may need it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import lakebed

SOURCE = Path(lakebed.__file__).parent
# Where there is a JVM in the process: functions that ask before whether there is one.
OF_THE_JVM = {
    "spark/callbacks.py": {"start_callbacks", "_client_of"},
    "spark/catalog/compiled_class.py": {"define_class"},
    "spark/catalog/java_errors.py": {"raised_in_java"},
    "spark/catalog/time_travel.py": {"of", "asks_to_delete"},
    "spark/sized_tasks.py": {"_listed_by_rdd"},
    "spark/spark_errors.py": {"spark_errors"},
}


def imports_of_py4j(tree: ast.Module) -> set[str]:
    """Return the functions that import py4j; the empty text for the module itself."""
    found = set()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in ast.walk(tree):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        if any(name.partition(".")[0] == "py4j" for name in names):
            owners = [one.name for one in functions if node in ast.walk(one)]
            found.add(owners[-1] if owners else "")
    return found


def test_only_calls_of_a_jvm_import_py4j() -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): imports_of_py4j(ast.parse(path.read_text("utf-8")))
        for path in sorted(SOURCE.rglob("*.py"))
    }

    assert {name: functions for name, functions in found.items() if functions} == OF_THE_JVM


def test_errors_of_a_session_are_named_without_py4j() -> None:
    text = (
        "import sys\n"
        "sys.modules['py4j'] = sys.modules['pyspark.core'] = None\n"
        "from lakebed.spark.spark_errors import spark_errors\n"
        "print(*(error.__name__ for error in spark_errors(KeyError)))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", text],
        env=os.environ | {"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert answer.stdout.split() == ["PySparkException", "KeyError"]
