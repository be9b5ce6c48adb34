"""Names of a package that load their module when they are first used.

`import lakebed` and `lakebed --help` shall be quick, so that a package imports nothing of what it
shows. It says once what that is, as type checkers and readers know it; the same lines tell `lazily`
where each name is at home:

    if TYPE_CHECKING:
        from lakebed.archive.archive import Archive as Archive
    else:
        __getattr__, __dir__, __all__ = lazily(__name__)
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from types import ModuleType


def lazily(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    Beside the names that it shows, its own modules can be asked for.

    Args:
        package: Its `__name__`, while it is loaded.
    """
    module = sys.modules[package]
    homes = _homes_of(_source_of(module))

    def __getattr__(name: str) -> object:  # noqa: N807 - what the package calls so
        home = homes.get(name)
        if home in (None, package) and not name.startswith("_"):
            try:
                return importlib.import_module(f"{package}.{name}")  # which makes it an attribute
            except ModuleNotFoundError as exc:
                if exc.name != f"{package}.{name}":
                    raise
        if home is None:
            # The form of Python itself, so that `from package import module` goes on.
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=module)
        value = getattr(importlib.import_module(home), name)
        setattr(module, name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807 - same
        return sorted({*vars(module), *homes})

    return __getattr__, __dir__, sorted(homes)


def _source_of(module: ModuleType) -> str:
    read = getattr(module.__loader__, "get_source", None)  # from files and from archives
    source: str | None = None if read is None else read(module.__name__)
    if source is None:
        message = f"{module.__name__} is installed without its source, which says what it shows."
        raise ImportError(message, name=module.__name__)
    return source


def _homes_of(source: str) -> dict[str, str]:
    """Return the modules of the names that a package imports for type checkers."""
    blocks = (node for node in ast.parse(source).body if isinstance(node, ast.If))
    return {
        alias.name: str(statement.module)
        for block in blocks
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
