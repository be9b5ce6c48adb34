"""Rules that have numbers, and tests that show them: here, or in the files of what they are about.

A test of rule 16 that stands among the rules has the letter and the number in its name, as
`test_b16_…`; a test elsewhere is named as `test_view.py::test_…` or
`work/ingest/test_load.py::TestCsv::test_…`, by its path in the directory of tests.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

TESTS = Path(__file__).parent
_IDLE = {"skip", "skipif", "xfail"}  # marks under which a test may show nothing


def numbers_of(names: Iterable[str], letter: str) -> set[int]:
    """Return the numbers of the rules that have tests among the names of a module."""
    found = (re.match(rf"test_{letter}(\d\d)_", name) for name in names)
    return {int(match[1]) for match in found if match}


def is_test(reference: str) -> bool:
    """Whether a test of that name is there and runs."""
    path, *names = reference.split("::")
    return tuple(names) in _tests_of(TESTS / path)


@functools.cache
def _tests_of(path: Path) -> frozenset[tuple[str, ...]]:
    if not path.is_file():
        return frozenset()
    return frozenset(_tests_in(ast.parse(path.read_text(encoding="utf-8")).body, ()))


def _tests_in(body: list[ast.stmt], outer: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests_in(node.body, (*outer, node.name))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            parts = [part for one in node.decorator_list for part in ast.walk(one)]
            marks = {part.attr for part in parts if isinstance(part, ast.Attribute)}
            if not marks & _IDLE:
                yield (*outer, node.name)
