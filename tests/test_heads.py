"""The list of tests that are of documents alone, which `make test-trees` leaves out."""

import ast
from pathlib import Path

import pytest
from heads import is_named_by, of_documents

ROOT = Path(__file__).parents[1]
ENTRIES = list(of_documents())


def names_in(module: str) -> set[str]:
    """Return the names of the tests in a module, those of classes after the name of the class."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            inner = (one.name for one in node.body if isinstance(one, ast.FunctionDef))
            names |= {node.name, *(f"{node.name}::{name}" for name in inner)}
    return names


@pytest.mark.parametrize("entry", [entry for entry, _ in ENTRIES])
def test_each_entry_is_a_test(entry: str) -> None:
    module, _, name = entry.partition("::")

    assert (ROOT / module).is_file()
    assert not name or name.partition("[")[0] in names_in(module)


def test_each_entry_has_a_reason_and_stands_for_no_other() -> None:
    assert all(reason for _, reason in ENTRIES)
    names = [entry for entry, _ in ENTRIES]
    assert len(names) == len(set(names))
    assert not [
        (one, other) for one in names for other in names if one != other and is_named_by(one, other)
    ]


def test_entry_names_a_test_with_its_parameters_and_no_longer_name() -> None:
    entry = "tests/test_a.py::test_b"

    assert is_named_by(entry, entry)
    assert is_named_by(entry, f"{entry}[c]")
    assert is_named_by("tests/test_a.py", entry)
    assert not is_named_by(entry, f"{entry}_d")
