"""Names of the metadata files of an Iceberg table beside the data; works without pyiceberg."""

from __future__ import annotations

import re

from lakebed.model.layout import Folder

HINT = "version-hint.text"
UPLOADS = "uploads"  # folder of what clients of the catalog upload before they commit
LARGEST_ID = 2**63 - 1  # of a snapshot
_RUN, _ID = "iceberg-", re.compile(r"[1-9][0-9]{0,18}")
_METADATA = re.compile(r"v([0-9]{1,18})\.metadata\.json")


def metadata_folder(dataset: str) -> str:
    """Return the folder of the metadata."""
    return Folder.ICEBERG.of(dataset, "metadata")


def uploads_folder(dataset: str) -> str:
    """Return the folder of what clients of the catalog upload before they commit."""
    return Folder.ICEBERG.of(dataset, UPLOADS)


def is_upload(key: str, dataset: str) -> bool:
    """Return whether an object is in that folder."""
    return key.startswith(f"{uploads_folder(dataset)}/")


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


def run_of(snapshot_id: int) -> str:
    """Return the name of the run under which a commit of a client is recorded, by its snapshot."""
    return f"{_RUN}{snapshot_id}"


def snapshot_of(run: str | None) -> int | None:
    """Return the id of the client's snapshot that a run stands for; None for other runs.

    >>> snapshot_of(run_of(7)), snapshot_of("iceberg-0x7"), snapshot_of("nightly")
    (7, None, None)
    """
    number = (run or "").removeprefix(_RUN)
    if run is None or number == run or _ID.fullmatch(number) is None:
        return None
    return int(number) if int(number) <= LARGEST_ID else None
