"""A worker does not read the jars on its path anew for each task, and finds what is in them."""

from __future__ import annotations

import importlib
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed.spark.travel import without_jars

ROWS = pa.record_batch({"n": [1, 2]})


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "table-format.jar"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("from_the_jar.py", "NAME = 'found'\n")
    monkeypatch.syspath_prepend(str(path))
    yield path
    sys.path_importer_cache.pop(str(path), None)
    sys.modules.pop("from_the_jar", None)


def look_for_a_module_that_nobody_has(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("lakebed_has_no_such_module")
    yield from batches


def test_jars_are_forgotten_after_a_task_and_found_again(jar: Path) -> None:
    assert list(look_for_a_module_that_nobody_has([ROWS])) == [ROWS]
    assert str(jar) in sys.path_importer_cache

    assert list(without_jars(look_for_a_module_that_nobody_has)([ROWS])) == [ROWS]

    assert str(jar) not in sys.path_importer_cache
    assert importlib.import_module("from_the_jar").NAME == "found"


def test_they_are_forgotten_after_a_task_that_fails_too(jar: Path) -> None:
    def fail(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(look_for_a_module_that_nobody_has([]))
        yield ROWS
        raise OSError("the disk is away")

    with pytest.raises(OSError, match="the disk is away"):
        list(without_jars(fail)([ROWS]))

    assert str(jar) not in sys.path_importer_cache
