"""What travels to Spark's workers says what it lacks there, and what Spark tells of it is named."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.errors import PythonException, StreamingQueryException

import lakebed
from lakebed.datasource.source import LakebedDataSource
from lakebed.errors import InvalidInputError, MissingDependencyError, WorkerEnvironmentError
from lakebed.spark.travel import (
    Travels,
    find_worker_error,
    naming_worker_errors,
    travelling,
)

SOURCE = Path(lakebed.__file__).parent
# As Spark's executors put it on the path of workers.
ARCHIVES = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))

LOAD = """
import pickle, sys
sys.path[:0] = sys.argv[2:]
with open(sys.argv[1], "rb") as file:
    function = pickle.load(file)
print(function(20))
"""


def add_one(number: int) -> int:
    return number + 1


def run_elsewhere(
    tmp_path: Path, function: object, *paths: Path
) -> subprocess.CompletedProcess[str]:
    """Load and call a function in a Python that has no packages but Spark's archives and some paths."""
    pickled = tmp_path / "function.pickle"
    pickled.write_bytes(cloudpickle.dumps(function))
    return subprocess.run(
        [sys.executable, "-S", "-E", "-c", LOAD, str(pickled), *map(str, [*ARCHIVES, *paths])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_function_gives_in_a_worker_what_it_gives_here(tmp_path: Path) -> None:
    def double(number: int) -> int:
        return 2 * number

    there = run_elsewhere(tmp_path, travelling(double), SOURCE.parent)

    assert travelling(add_one)(20) == 21
    assert there.stdout == "40\n", there.stderr


def test_a_worker_without_lakebed_says_so_in_one_line(tmp_path: Path) -> None:
    there = run_elsewhere(tmp_path, travelling(add_one))

    last = there.stderr.splitlines()[-1]
    assert last.startswith(
        "lakebed.errors.WorkerEnvironmentError: Spark's workers lack what Lakebed"
    )
    assert "No module named 'lakebed'" in last
    assert f"({sys.executable}, Python " in last
    assert "spark.archives" in last


def test_a_worker_of_another_release_loads_nothing_of_what_was_sent(tmp_path: Path) -> None:
    package = tmp_path / "older" / "lakebed"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("__version__ = '0.0.9'\n")

    def tell(_: int) -> None:
        Path("loaded").touch()

    there = run_elsewhere(tmp_path, travelling(tell), package.parent)

    expected = f"Spark's workers have Lakebed 0.0.9, and this session has {lakebed.__version__}"
    assert expected in there.stderr
    assert not (tmp_path / "loaded").exists()


class Parcel(Travels):
    """A value that holds something, and leaves something else out."""

    def __init__(self, held: str) -> None:
        self.held = held
        self.left_out = "here"

    def __getstate__(self) -> dict[str, str]:
        return {"held": self.held}


def test_a_value_arrives_with_the_state_that_it_gives(tmp_path: Path) -> None:
    arrived = pickle.loads(cloudpickle.dumps(Parcel("rows")))
    there = run_elsewhere(tmp_path, Parcel("rows"))

    assert type(arrived) is Parcel
    assert vars(arrived) == {"held": "rows"}
    assert "WorkerEnvironmentError" in there.stderr


def test_the_data_source_itself_travels_so(tmp_path: Path) -> None:
    source = LakebedDataSource(options={"path": "lake/numbers"})

    arrived = pickle.loads(cloudpickle.dumps(source))
    there = run_elsewhere(tmp_path, source)

    assert type(arrived) is LakebedDataSource
    assert arrived.options == {"path": "lake/numbers"}
    assert "WorkerEnvironmentError" in there.stderr


def told_by_a_worker() -> str:
    """What Spark shows of an error that a worker has raised."""
    return (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1, in main\n'
        "lakebed.errors.WorkerEnvironmentError: Spark's workers lack what Lakebed 0.1.0 needs: "
        "No module named 'obstore' (/usr/bin/python3, Python 3.11.2, on node-7). Do this.\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (told_by_a_worker(), r"No module named 'obstore' \(/usr/bin/python3, .* on node-7\)"),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
            "worker has different version: 3.10 than that in driver: 3.12, PySpark cannot run with "
            "different minor versions.\nPlease check environment variables PYSPARK_PYTHON and "
            "PYSPARK_DRIVER_PYTHON are correctly set.",
            r"run Python 3\.10, and this session runs 3\.12\.",
        ),
        (
            'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such '
            "file or directory\n\tat java.base/java.lang.ProcessBuilder.start",
            r"cannot start \./environment/bin/python",
        ),
        (
            "org.apache.spark.SparkException: \nError from python worker:\n  /usr/bin/python3: No "
            "module named pyspark\nPYTHONPATH was:\n  /x",
            "does not start .*No module named pyspark",
        ),
        ("ModuleNotFoundError: No module named 'lakebed'", "No module named 'lakebed'"),
        (
            "[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.",
            "PyArrow >= 18",
        ),
    ],
)
@pytest.mark.parametrize("kind", [PythonException, StreamingQueryException])
def test_what_spark_tells_of_a_python_is_named_with_what_to_do(
    kind: type[Exception], text: str, message: str
) -> None:
    with pytest.raises(WorkerEnvironmentError, match=message) as caught, naming_worker_errors():
        raise kind(text)

    assert isinstance(caught.value, MissingDependencyError)
    assert caught.value.extra == "spark"
    assert sys.executable in caught.value.hint
    assert isinstance(caught.value.__cause__, kind)


@pytest.mark.parametrize(
    "error",
    [
        PythonException("ModuleNotFoundError: No module named 'my_package'"),
        PythonException("ModuleNotFoundError: No module named 'lakebeds'"),
        PythonException("ZeroDivisionError: division by zero"),
        OSError('Cannot run program "python3"'),
        InvalidInputError("No module named 'lakebed'"),
    ],
    ids=repr,
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert find_worker_error(error) is None
    with pytest.raises(type(error)) as caught, naming_worker_errors():
        raise error
    assert caught.value is error


def test_what_a_worker_said_and_the_remedy_are_apart(tmp_path: Path) -> None:
    told = run_elsewhere(tmp_path, travelling(add_one)).stderr

    error = find_worker_error(PythonException(told))

    assert error is not None
    assert re.search(r"No module named 'lakebed' \(.*\)\.$", error.message)
    assert error.hint.startswith("Install 'lakebed[spark]==")
    assert told.splitlines()[-1].endswith(str(error))


def test_all_that_goes_to_tasks_goes_by_one_door() -> None:
    calls = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\.(?:mapInArrow|mapInPandas|applyInArrow|applyInPandas)\(", path.read_text())
    }

    assert calls == {"spark/travel.py"}
