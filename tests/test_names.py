"""A word stands for one thing: no two types have one public name, and no two modules."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import lakebed

SOURCE = Path(lakebed.__file__).parents[1]

# What may have the name of another module or folder, and why.
SAME_NAME = {
    "archive": "the archive itself, in its room",
    "plan": "the plan itself, in its room",
    "state": "the state itself, in its room",
    "index": "of a dataset, and of an archive: both find what is asked for",
    "ingest": "the declaration of it, and the engine that does it",
    "pipeline": "the pipeline itself, in its room",
    "telemetry": "of Lakebed itself, and the trees of a tool of that name",
}


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


@pytest.mark.thorough
def test_no_two_types_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted((SOURCE / "lakebed").rglob("*.py")):
        for name in public_types(ast.parse(path.read_text(encoding="utf-8"))):
            homes[name].append(str(path.relative_to(SOURCE)))

    assert len(homes) > 200
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    assert twice == {}


def test_no_two_modules_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    root = SOURCE / "lakebed"
    for path in sorted(root.rglob("*.py")):
        if path.name == "__init__.py" and path.parent != root:
            homes[path.parent.name].append(f"{path.parent.relative_to(root)}/")
        elif not path.name.startswith("__"):
            homes[path.stem].append(str(path.relative_to(root)))

    assert len(homes) > 200
    twice = {name: where for name, where in homes.items() if len(where) > 1}
    assert {name: where for name, where in twice.items() if name not in SAME_NAME} == {}
    assert set(SAME_NAME) <= set(twice), "names that need no leave any more"
