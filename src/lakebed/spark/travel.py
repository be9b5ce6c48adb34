"""Functions on their way to Spark's workers, which may run another Python than this process.

What is pickled names modules. Where a worker lacks one of them it fails before a line of ours has
run, and Spark reports a missing module, in a hundred lines. So what travels is packed in a
function that needs nothing but Python. It looks whether Lakebed is there, in the release that packed
it, before it unpacks the rest; else it reports what is wrong in which Python of which host, and what to
do. Spark passes that on as text, of which `naming_worker_errors` makes an error again.

Both releases must be equal: what is packed are values of the inside of Lakebed, which may change
from one to the next.
"""

from __future__ import annotations

import re
import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.errors import WorkerEnvironmentError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakebed.spark.few import Task


# By its name: to import the package would be to import all that it shows.
_RELEASE: str = import_module("lakebed").__version__

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


def in_tasks(frame: DataFrame, task: Task, schema: str | StructType) -> DataFrame:
    """Return what a function gives of the rows of a frame; tasks of Spark run it.

    Args:
        frame: Frame whose rows the tasks get, as record batches.
        task: Takes those of a task, and yields batches.
        schema: Schema of the batches that the tasks yield.
    """
    return frame.mapInArrow(travelling(without_jars(task)), schema)


def travelling(function: Callable[[_Argument], _Result]) -> Callable[[_Argument], _Result]:
    """Return a function that a worker can load in any Python, and that reports what it lacks there."""
    load = loading(function)
    loaded: list[Callable[[_Argument], _Result]] = []

    # It travels by its code, and must name nothing of this module.
    def run(argument: _Argument) -> _Result:
        if not loaded:
            loaded.append(load())
        return loaded[0](argument)

    return run


def loading(thing: object) -> Callable[[], Any]:
    """Return a function that gives `thing` in a worker; it can be loaded in any Python.

    It raises there what `naming_worker_errors` knows. What the driver has of it is the object again.
    """
    from pyspark import cloudpickle

    payload = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]  # of pyspark
    own, remedy = _RELEASE, remedy_of()

    # It travels by its code: it must name nothing of this module, and nothing that is not Python's.
    def load() -> Any:
        import importlib
        import pickle
        import platform
        import sys

        try:
            there = importlib.import_module("lakebed").__version__
            problem = f"have Lakebed {there}, and this session has {own}"
            if there == own:
                return pickle.loads(payload)
        except (ImportError, AttributeError) as exc:
            problem = f"lack what Lakebed {own} needs: {' '.join(str(exc).split())}"
        where = f"{sys.executable}, Python {platform.python_version()}, on {platform.node()}"
        kind = type("WorkerEnvironmentError", (ImportError,), {"__module__": "lakebed.errors"})
        raise kind(f"Spark's workers {problem} ({where}). {remedy}") from None

    return load


class Travels:
    """A value that Spark pickles for its workers, which report what they lack before they load it."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as a function that needs nothing but Python."""
        return parcel(self)


def parcel(value: object) -> tuple[Any, ...]:
    """Return what `__reduce__` of a value gives that travels so; see `Travels`."""
    return loading(_Itself(value)), ()


class _Itself:
    """Pickles as the value that it holds, by the ways of Python."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        value = self._value
        return _bare, (type(value),), value.__getstate__()


def _bare(kind: type[object]) -> object:
    return kind.__new__(kind)


def remedy_of() -> str:
    """Return what to do where workers run a Python in which Lakebed cannot work."""
    return (
        f"Install 'lakebed[spark]=={_RELEASE}' there, ship an environment by spark.archives, or "
        "name a Python that has it by PYSPARK_PYTHON or spark.pyspark.python before the session "
        f"starts; this process runs {sys.executable}. `lakebed doctor --spark` asks all workers."
    )


_OURS = re.compile(r"lakebed\.errors\.WorkerEnvironmentError: (.+)")
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\]\D+?(\d[\d.]*)\D+?(\d[\d.]*\d)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"\n]*python[^"\n]*)"')
_NO_WORKER = re.compile(r"Error from python worker:\s+(.+)")
# What Spark itself, or what it loads before a function of ours, may miss.
_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named '(?:lakebed|pyarrow)\b.*')")
_NO_PACKAGE = re.compile(r"\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\] (PyArrow.+)")


@contextmanager
def naming_worker_errors() -> Iterator[None]:
    """Name the errors of a worker's Python in which Lakebed cannot work.

    Raises:
        WorkerEnvironmentError: A worker reported it; from what Spark has raised.
    """
    try:
        yield
    except Exception as exc:
        error = find_worker_error(exc)
        if error is None:
            raise
        raise error from exc


def find_worker_error(exc: BaseException) -> WorkerEnvironmentError | None:
    """Return what an exception of Spark reports of a worker's Python; None if that is not its reason."""
    if not type(exc).__module__.startswith(("pyspark.", "py4j.")):
        return None
    remedy, problem = remedy_of(), _problem_in(str(exc))
    if not problem:
        return None
    message = problem.strip().removesuffix(remedy).rstrip()
    return WorkerEnvironmentError(message, hint=remedy, extra="spark")


def _problem_in(text: str) -> str:
    if found := _OURS.search(text):
        return found[1]
    if found := _OTHER_PYTHON.search(text):
        return f"Spark's workers run Python {found[1]}, and this session runs {found[2]}."
    if found := _NO_PYTHON.search(text):
        return f"Spark's workers cannot start {found[1]}, which is set as their Python."
    if found := _NO_WORKER.search(text):
        return f"Python does not start in Spark's workers: {found[1]}."
    if (found := _NO_MODULE.search(text)) or (found := _NO_PACKAGE.search(text)):
        return f"Spark's workers lack what Lakebed {_RELEASE} needs: {found[1]}."
    return ""


def without_jars(task: Task) -> Task:
    """Return a task after which the next one in its worker does not read the jars again.

    What `spark.jars.packages` names comes to lie on `sys.path` of the workers, since a jar may hold
    Python too. A worker forgets at the beginning of each task what it knows of its path, and Python
    before 3.13 then reads the directory of each jar at once: a third of a second a task for the jars
    of two table formats. A jar does not change while Spark runs.

    What looks for a module in a jar finds it as before: Python keeps their directories elsewhere.
    """

    @wraps(task)
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batches)
        finally:
            forget_jars()

    return run


def forget_jars() -> None:
    """Take jars out of what Python asks to forget what it knows."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and path.endswith(".jar"):
            sys.path_importer_cache.pop(path, None)
