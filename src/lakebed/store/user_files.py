"""Optional files in the user's home directory, which itself may not exist."""

from __future__ import annotations

from pathlib import Path


def find_user_file(path: str) -> Path | None:
    """Return the path of an optional file, with `~` expanded; None if there is none.

    It is also None if the user has no home directory, or if the process may not read the home of
    the user who started it.
    """
    try:
        expanded = Path(path).expanduser()
        return expanded if expanded.is_file() else None
    except (OSError, RuntimeError):
        return None
