"""Names of the metadata files of an Iceberg table beside the data; works without pyiceberg."""

from __future__ import annotations

import re

from lakebed.model.layout import Folder

HINT = "version-hint.text"
_METADATA = re.compile(r"v([0-9]{1,18})\.metadata\.json")


def metadata_folder(dataset: str) -> str:
    """Return the folder of the metadata."""
    return Folder.ICEBERG.of(dataset, "metadata")


def hint_key(dataset: str) -> str:
    """Return the key of the hint that leads readers to the last version."""
    return f"{metadata_folder(dataset)}/{HINT}"


def metadata_name(number: int) -> str:
    """Return the name of a version of the metadata in its folder."""
    return f"v{number}.metadata.json"


def number_of(key: str) -> int | None:
    """Return the number of a version of the metadata; None for other keys."""
    match = _METADATA.fullmatch(key.rpartition("/")[2])
    return int(match[1]) if match else None
