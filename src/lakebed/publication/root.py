"""What a repository is called by readers of its tables."""

from __future__ import annotations

from lakebed.errors import InvalidInputError
from lakebed.store.base import Store

# Hadoop's name for a store, where it differs.
HADOOP_SCHEMES = {"s3": "s3a"}


def root_of(store: Store, root: str | None, schemes: dict[str, str]) -> str:
    """Return the repository as the readers of a table spell it.

    Args:
        store: The repository.
        root: As they spell it, if somebody has said so.
        schemes: Of locations, where they call them otherwise than Lakebed.

    Raises:
        InvalidInputError: The store has no name that others could use.
    """
    if root is not None:
        return root.rstrip("/")
    scheme, separator, location = store.uri.partition("://")
    if not store.is_shared or not separator:
        raise InvalidInputError(
            f"{store.uri} cannot be published: no other process sees it.",
            hint="Publish from a directory or an object store.",
        )
    if scheme == "file":
        path = store.local_path("x")
        assert path is not None  # a store of files has paths
        return f"file://{path.parent}"
    return f"{schemes.get(scheme, scheme)}://{location}"
