"""How callers are told how far something is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Is told how many are done, of how many."""


def NO_PROGRESS(*progress: object) -> None:  # noqa: N802 - stands for a value
    """Tell nobody, of whatever kind of progress."""
