"""Folders of a file system that clients expect to exist before they write."""

from __future__ import annotations

from contextlib import suppress

from lakebed.store.base import Store


def make_local_folder(store: Store, folder: str) -> None:
    """Make a folder, if the store is a directory; elsewhere do nothing.

    DuckDB 1.5 makes the folder of its data files, but not that of its manifests. It expects the
    metadata file of the table to be there, which is missing in two cases: a table that the first
    commit creates, and uploads for a dataset. Then its commit failed with "No such file or directory".

    A folder that cannot be made is left to the client.

    Args:
        store: The store.
        folder: The folder as a key, without a slash at the end.

    Raises:
        AccessDeniedError: A symbolic link leads to the folder.
    """
    path = store.local_path(folder)
    if path is not None:
        with suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
