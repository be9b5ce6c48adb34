"""Tests use public names: a module of `src` can be taken apart without an edit of most tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# Less is better; a new test uses public names, or what `inside.py` offers.
MOST_MODULES = 42
# Private by name, but a protocol: of Jupyter, of named tuples, of PySpark.
PROTOCOLS = {
    *("_repr_html_", "_ipython_key_completions_", "_asdict", "_fields", "_replace"),
    *("_fixtureinfo", "_jdf", "_jvm", "_jsc", "_jsparkSession", "_exit", "_getframe"),
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PROTOCOLS


def private_names(tree: ast.Module) -> Iterator[str]:
    """Yield the private names of others that a module imports, asks for or replaces."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "lakebed":
                parts = [*module.split("."), *(alias.name for alias in node.names)]
                yield from filter(is_private, parts)
            case ast.Import():
                for alias in node.names:
                    if alias.name.split(".")[0] == "lakebed":
                        yield from filter(is_private, alias.name.split("."))
            # What a store overrides is the contract of stores: `super()._put`.
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.Call(func=ast.Attribute(attr="setattr" | "delattr")):
                yield from _named(node.args[:2])
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr")):
                yield from _named(node.args[1:2])


def _named(arguments: list[ast.expr]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            yield from filter(is_private, argument.value.split("."))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from lakebed.state.state import _apply", ["_apply"]),
        ("import lakebed._speedups", ["_speedups"]),
        ("dataset._source.store", ["_source"]),
        ("monkeypatch.setattr('lakebed.view._LIMIT', 1)", ["_LIMIT"]),
        ("monkeypatch.setattr(view, '_LIMIT', 1)", ["_LIMIT"]),
        ("getattr(view, '_limit')", ["_limit"]),
        ("from lakebed.state.state import apply", []),
        ("view.__class__, view._repr_html_()", []),
        ("class Slow(MemoryStore):\n def _put(self): return super()._put()", []),
    ],
)
def test_private_names_are_found(code: str, expected: list[str]):
    assert list(private_names(ast.parse(code))) == expected


@pytest.mark.thorough
def test_few_modules_of_tests_reach_into_private_names():
    reaching = [
        path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("*.py"))
        if any(private_names(ast.parse(path.read_text(encoding="utf-8"))))
    ]

    assert len(reaching) <= MOST_MODULES, reaching
