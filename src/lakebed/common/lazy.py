"""Names of a package that load their module when they are first used.

`import lakebed` and `lakebed --help` must be quick, so a package does not import its public names.
It lists them twice: as imports, for type checkers and readers, and as a mapping, which needs no
source file at run time. A test keeps the two equal.

    if TYPE_CHECKING:
        from lakebed.archive.archive import Archive as Archive
    else:
        __getattr__, __dir__, __all__ = lazily(__name__, {"Archive": "lakebed.archive.archive"})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping


def lazily(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package.

    The package's own modules can be used as attributes too, listed or not.

    Args:
        package: Its `__name__`, while it is loaded.
        homes: The module that defines each name; for a module, the package itself.
    """
    module = sys.modules[package]

    def __getattr__(name: str) -> object:  # noqa: N807 - becomes the package's __getattr__
        home = homes.get(name)
        if home in (None, package) and not name.startswith("_"):
            try:
                return importlib.import_module(f"{package}.{name}")  # also sets the attribute
            except ModuleNotFoundError as exc:
                if exc.name != f"{package}.{name}":
                    raise
        if home is None:
            # The same form as Python's own, so that `from package import module` works.
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=module)
        value = getattr(importlib.import_module(home), name)
        setattr(module, name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807 - same
        return sorted({*filter(_is_special, vars(module)), *homes})

    return __getattr__, __dir__, sorted(homes)


def _is_special(name: str) -> bool:
    return name.startswith("__")
