"""Folders `name=value` above raw files, whose values belong to the rows. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from lakebed.errors import InvalidInputError
from lakebed.model.keys import BATCH_ID, NULL_VALUE

FolderLevels = dict[str, str | None]
"""Texts of the levels above a file, by name; None for null."""

AS_FOLDERS = (
    "To read all of them as plain folders, give levels=False, or --no-levels on the command line."
)
_COPYING = "._COPYING_"  # Hadoop's name for a file that is being uploaded


def is_hidden(name: str) -> bool:
    """Return whether a search leaves out a file or folder with this name, as Spark does.

    >>> [is_hidden(name) for name in ("_SUCCESS", ".a.crc", "_temporary", "_year=1", "a.csv")]
    [True, True, True, False, False]
    """
    is_level = "=" in name
    return (
        name.startswith(".") or (name.startswith("_") and not is_level) or name.endswith(_COPYING)
    )


def levels_of(location: str, base: str) -> FolderLevels:
    """Return the levels above a file.

    Args:
        location: Path or URL of the file.
        base: The folder of the search. Levels directly above it count too, so that a partition
            that is named by itself keeps its values.

    Raises:
        InvalidInputError: A level has no value, or two have one name.

    >>> levels_of("/in/dt=2013-01-01/at%20sea=no/a.csv", "/in")
    {'dt': '2013-01-01', 'at sea': 'no'}
    """
    folders, first = _folders(location), len(_parts(base))
    while first and _is_level(folders[first - 1]):
        first -= 1
    levels: FolderLevels = {}
    for folder in filter(_is_level, folders[first:]):
        raw_name, _, raw_value = folder.partition("=")
        try:
            name = unquote(raw_name, errors="strict")
            value = None if raw_value == NULL_VALUE else unquote(raw_value, errors="strict")
        except UnicodeDecodeError as exc:
            raise InvalidInputError(
                f"The folder {folder!r} above {location} is not UTF-8: {exc.reason}.",
                hint=f"Rename it. {AS_FOLDERS}",
            ) from exc
        if value == "":
            raise InvalidInputError(
                f"The folder {folder!r} above {location} has no value.",
                hint=f"Rename it; {NULL_VALUE} stands for null. {AS_FOLDERS}",
            )
        if name in levels:
            raise InvalidInputError(
                f"{location} lies in two folders {name}=….", hint=f"Rename one. {AS_FOLDERS}"
            )
        levels[name] = value
    return levels


def batch_home(location: str) -> str:
    """Return the folder that holds the batches of a file with a `batch_id=` level.

    >>> batch_home("/in/dt=1/batch_id=20/a.csv")
    '/in/dt=1'
    """
    return re.split(rf"[/\\]{BATCH_ID}=", location, maxsplit=1)[0]


def _is_level(folder: str) -> bool:
    return folder.find("=") > 0


def _folders(location: str) -> Sequence[str]:
    return _parts(location)[:-1]


def _parts(path: str) -> Sequence[str]:
    return re.split(r"[/\\]", path.rstrip("/\\"))
