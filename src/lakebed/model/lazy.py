"""Names of a package that load their module when they are first used.

`import lakebed` and `lakebed --help` shall be quick, so that a package says where its names are
at home instead of importing them. Type checkers and readers see ordinary imports:

    if TYPE_CHECKING:
        from lakebed.archive.archive import Archive
    else:
        __getattr__, __dir__ = lazily(__name__, {"lakebed.archive.archive": ("Archive",)})
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping


def lazily(
    package: str, homes: Mapping[str, Iterable[str]], modules: Iterable[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: Its `__name__`.
        homes: Names that the package shows, by the module that they are of.
        modules: Names of its own modules that it shows.
    """
    home_of = {name: home for home, names in homes.items() for name in names}
    own = frozenset(modules)

    def __getattr__(name: str) -> object:  # noqa: N807 - what the package calls so
        if name in own:
            return importlib.import_module(f"{package}.{name}")  # which makes it an attribute
        if name not in home_of:
            # The form of Python itself, so that `from package import module` goes on.
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}",
                name=name,
                obj=sys.modules[package],
            )
        value = getattr(importlib.import_module(home_of[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:  # noqa: N807 - same
        return sorted({*vars(sys.modules[package]), *home_of, *own})

    return __getattr__, __dir__
