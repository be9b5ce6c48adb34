"""Files in the home of the user, which need not be there, nor the home."""

from __future__ import annotations

from pathlib import Path


def find_user_file(path: str) -> Path | None:
    """Return a file that may be there, `~` expanded; None if this process has none.

    So has one whose user has no home, or that may not look into the home of another user, whom it
    was started by.
    """
    try:
        expanded = Path(path).expanduser()
        return expanded if expanded.is_file() else None
    except (OSError, RuntimeError):
        return None
