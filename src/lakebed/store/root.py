"""What a repository is called by readers of its tables."""

from __future__ import annotations

import re

from lakebed.common.given import check_given
from lakebed.errors import InvalidInputError
from lakebed.model.locations import refuse_credentials
from lakebed.store.base import Store

# Stores are asked what an object is called; any one will do.
_ANY_KEY = "x"
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
    named = _hadoop_root(store)
    if named is None and not store.uri.startswith("az://"):
        named = store.uri  # a store that others have added has its own name
    if named is None:
        raise InvalidInputError(
            f"{store.uri} has no name in the file systems of Hadoop, by which readers of a table "
            "find its files.",
            hint="Give root, the repository as these readers spell it; of Azure, open it with the "
            "storage option account_name, of which the name is made.",
        )
    return _BUCKET.sub(f"{s3}://", named)


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
    roots = [_hadoop_root(store)]
    if store.local_path(_ANY_KEY) is None:
        roots.append(store.uri)
    for root in roots:
        if root is not None:
            prefix = _BUCKET.sub("s3a://", f"{root}/")
            if here.startswith(prefix):
                return here.removeprefix(prefix)
    return None


def plain_location(location: str) -> str:
    """Return a location in the one form in which two of them are compared.

    >>> plain_location("file:/lake/flights/"), plain_location("s3a://bucket/lake")
    ('file:///lake/flights', 's3a://bucket/lake')
    """
    scheme, separator, path = location.partition(":")
    if separator and path.startswith("/") and not path.startswith("//"):
        location = f"{scheme}://{path}"
    return location.rstrip("/")


def _hadoop_root(store: Store) -> str | None:
    """Return the root of a store as Hadoop spells it, without a slash at its end."""
    named = store.hadoop_uri(_ANY_KEY)
    return None if named is None else named.removesuffix(f"/{_ANY_KEY}")
