"""What a repository is called by readers of its tables."""

from __future__ import annotations

import re

from lakebed.errors import InvalidInputError
from lakebed.model.given import check_given
from lakebed.model.locations import refuse_credentials
from lakebed.store.base import Store

# Any object will do to ask for a name.
_OBJECT = "/x"
_LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:/|/)[^\x00-\x1f]*")
_BUCKET = re.compile(r"^s3[an]?://")


def root_of(store: Store, root: str | None, *, s3: str = "s3a") -> str:
    """Return the repository as the readers of a table spell it: as the file systems of Hadoop do.

    Args:
        store: The repository.
        root: As they spell it, if somebody has said so.
        s3: The scheme by which they know S3; all others are Hadoop's.

    Raises:
        InvalidInputError: The store has no name that others could use; or what somebody has said is
            none, or holds a key.
    """
    if root is not None:
        return _checked(root).rstrip("/")
    if not store.is_shared:
        raise InvalidInputError(
            f"{store.uri} cannot be published: no other process sees it.",
            hint="Publish from a directory or an object store.",
        )
    named = store.hadoop_uri(_OBJECT[1:])
    if named is None and not store.uri.startswith("az://"):
        named = f"{store.uri}{_OBJECT}"  # a store that others have added has its own name
    if named is None:
        raise InvalidInputError(
            f"{store.uri} has no name in the file systems of Hadoop, by which readers of a table "
            "find its files.",
            hint="Give root, the repository as these readers spell it; of Azure, open it with the "
            "storage option account_name, of which the name is made.",
        )
    return _BUCKET.sub(f"{s3}://", named.removesuffix(_OBJECT))


def _checked(root: str) -> str:
    check_given("root", root, (str,), "Give a URL.", or_none=False)
    refuse_credentials(root)  # it is written into each table
    if _LOCATION.fullmatch(root) is None:
        raise InvalidInputError(
            f"root is {root!r}, which is neither a URL nor an absolute path.",
            hint="Give the repository as the readers of the table spell it, such as "
            "s3a://bucket/lake.",
        )
    return root


def key_at(store: Store, location: str) -> str | None:
    """Return the key of what has a location in a metastore; None if it is not in the store.

    The schemes of S3 are one, and buckets and containers are known by both their names: that of
    Hadoop and that of Lakebed.
    """
    here = _BUCKET.sub("s3a://", location)
    roots = [store.hadoop_uri(_OBJECT[1:])]
    if store.local_path(_OBJECT[1:]) is None:
        roots.append(f"{store.uri}{_OBJECT}")
    for root in roots:
        if root is not None:
            prefix = _BUCKET.sub("s3a://", root.removesuffix(_OBJECT[1:]))
            if here.startswith(prefix):
                return here.removeprefix(prefix)
    return None
