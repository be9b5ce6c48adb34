"""Transport of functions to Spark's workers, which may run another Python than this process.

A pickle names modules. If a worker lacks one of them, it fails before any code of Lakebed has run,
and Spark reports a missing module in a hundred lines. So values are packed in a function that needs
only Python. It checks that the worker has the same release of Lakebed before it unpacks the value;
otherwise it reports the problem, the Python and host of the worker, and the remedy. Spark passes
that on as text, which `naming_worker_errors` turns into an error again.

The releases must be equal: the packed values are internal to Lakebed, and may differ between
releases.
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
from lakebed.spark.observed_tasks import observed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from lakebed.spark.few import Task


# By its name: importing the package would import all its public names.
_RELEASE: str = import_module("lakebed").__version__

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


def in_tasks(
    frame: DataFrame, task: Task, schema: str | StructType, *, is_observed: bool = False
) -> DataFrame:
    """Return the result of a function on the rows of a frame, run in Spark tasks.

    Args:
        frame: Frame whose rows the tasks receive, as record batches.
        task: Function that receives the batches of a task, and yields batches.
        schema: Schema of the batches that the tasks yield.
        is_observed: Whether the caller has prepared the task, or a part of it, by `observed`.
    """
    if not is_observed:
        task = observed(frame.sparkSession, task)
    return frame.mapInArrow(travelling(without_jars(task)), schema)


def travelling(function: Callable[[_Argument], _Result]) -> Callable[[_Argument], _Result]:
    """Return a function that a worker can load in any Python, and that reports missing packages."""
    load = loading(function)
    loaded: list[Callable[[_Argument], _Result]] = []

    # It is pickled by its code, and must not name anything of this module.
    def run(argument: _Argument) -> _Result:
        if not loaded:
            loaded.append(load())
        return loaded[0](argument)

    return run


def loading(thing: object) -> Callable[[], Any]:
    """Return a function that returns `thing` in a worker; any Python can load it.

    If Lakebed is missing there or has another release, it raises an error that
    `naming_worker_errors` recognises.
    """
    from pyspark import cloudpickle

    payload = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]  # of pyspark
    own, remedy = _RELEASE, remedy_of()

    # It is pickled by its code: it must not name anything of this module or of other packages.
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
    """A value that workers load only after a check of their packages."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a function that needs only Python."""
        return parcel(self)


def parcel(value: object) -> tuple[Any, ...]:
    """Return the result of `__reduce__` for a value that is sent to workers; see `Travels`."""
    return loading(_Itself(value)), ()


class _Itself:
    """A wrapper that pickles as the value that it holds, in Python's own way."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Any, ...]:
        value = self._value
        return _bare, (type(value),), value.__getstate__()


def _bare(kind: type[object]) -> object:
    return kind.__new__(kind)


def remedy_of() -> str:
    """Return the remedy if workers run a Python in which Lakebed cannot work."""
    return (
        f"Install 'lakebed[spark]=={_RELEASE}' there, ship an environment by spark.archives, or "
        "name a Python that has it by PYSPARK_PYTHON or spark.pyspark.python before the session "
        f"starts; this process runs {sys.executable}. `lakebed doctor --spark` asks all workers."
    )


_OURS = re.compile(r"lakebed\.errors\.WorkerEnvironmentError: (.+)")
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\]\D+?(\d[\d.]*)\D+?(\d[\d.]*\d)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"\n]*python[^"\n]*)"')
_NO_WORKER = re.compile(r"Error from python worker:\s+(.+)")
# Modules that Spark may miss before it loads a function of Lakebed.
_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named '(?:lakebed|pyarrow)\b.*')")
_NO_PACKAGE = re.compile(r"\[(?:PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION)\] (PyArrow.+)")


@contextmanager
def naming_worker_errors() -> Iterator[None]:
    """Name the errors of a worker's Python in which Lakebed cannot work.

    Raises:
        WorkerEnvironmentError: A worker reported it; the cause is the error of Spark.
    """
    try:
        yield
    except Exception as exc:
        error = find_worker_error(exc)
        if error is None:
            raise
        raise error from exc


def find_worker_error(exc: BaseException) -> WorkerEnvironmentError | None:
    """Return the error for a Spark exception about a worker's Python; None for any other."""
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

    Spark adds the jars of `spark.jars.packages` to `sys.path` of the workers, since a jar may hold
    Python code too. A worker clears the caches of its path at the beginning of each task, and
    Python before 3.13 then reads the directory of each jar at once: a third of a second per task
    for the jars of two table formats. A jar does not change while Spark runs.

    Modules in a jar are found as before: Python keeps the directories of jars elsewhere.
    """

    @wraps(task)
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from task(batches)
        finally:
            forget_jars()

    return run


def forget_jars() -> None:
    """Remove the jars from the importers whose caches Python clears."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter) and path.endswith(".jar"):
            sys.path_importer_cache.pop(path, None)
