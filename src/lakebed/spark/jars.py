"""Jars on the path of Python workers, which make every task slow.

What `spark.jars.packages` names comes to lie on `sys.path` of the workers, since a jar may hold
Python too. A worker forgets at the beginning of each task what it knows of its path, and Python
before 3.13 then reads the directory of each jar at once: a third of a second a task for the jars of
two table formats. A jar does not change while Spark runs, so that this is time for nothing.
"""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.spark.few import Task


def without_jars(task: Task) -> Task:
    """Return a task after which the next one in its worker does not read the jars again.

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
