"""A word stands for one thing: no two classes, nor types of another kind, have one public name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed

SOURCE = Path(lakebed.__file__).parents[1]


def public_types(tree: ast.Module) -> Iterator[str]:
    """Yield the classes of a module, and what it calls a type."""
    for statement in tree.body:
        match statement:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) if (
                name[0].isupper() and not name.isupper()
            ):
                yield name


@pytest.mark.slow
def test_no_two_types_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted((SOURCE / "lakebed").rglob("*.py")):
        for name in public_types(ast.parse(path.read_text(encoding="utf-8"))):
            homes[name].append(str(path.relative_to(SOURCE)))

    assert len(homes) > 200
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    assert twice == {}
