"""The URI of a repository for readers of its tables, such as Spark and Hive."""

from __future__ import annotations

import re

from lakebed.common.given import check_given
from lakebed.errors import InvalidInputError
from lakebed.model.locations import refuse_credentials
from lakebed.store.base import Store

# Stores give URIs of objects; any key will do.
_ANY_KEY = "x"
_LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+:/|/)[^\x00-\x1f]*")
_BUCKET = re.compile(r"^s3[an]?://")


def root_of(store: Store, root: str | None, *, s3: str = "s3a") -> str:
    """Return the URI of a repository for the readers of a table, which is that of Hadoop.

    Args:
        store: The store of the repository.
        root: The URI, if the user gave one.
        s3: Scheme that the readers use for S3; the other schemes are those of Hadoop.

    Raises:
        InvalidInputError: The store has no URI that other programs could use, or `root` is not a
            valid URI or contains credentials.
    """
    if root is not None:
        return _checked(root).rstrip("/")
    if not store.is_shared:
        raise InvalidInputError(
            f"{store.uri} cannot be published: other processes cannot access it.",
            hint="Publish from a directory or an object store.",
        )
    named = _hadoop_root(store)
    if named is None and not store.uri.startswith("az://"):
        named = store.uri  # a store of another package has its own URI
    if named is None:
        raise InvalidInputError(
            f"{store.uri} has no URI in the file systems of Hadoop, which readers of a table need.",
            hint="Give root, the URI of the repository for these readers; for Azure, open it with "
            "the storage option account_name, which is part of the URI.",
        )
    return _BUCKET.sub(f"{s3}://", named)


def _checked(root: str) -> str:
    check_given("root", root, (str,), "Give a URL.", or_none=False)
    refuse_credentials(root)  # it is written into each table
    if _LOCATION.fullmatch(root) is None:
        raise InvalidInputError(
            f"root is {root!r}, which is neither a URL nor an absolute path.",
            hint="Give the URI of the repository for the readers of the table, such as "
            "s3a://bucket/lake.",
        )
    return root


def key_at(store: Store, location: str) -> str | None:
    """Return the key for a location in a metastore; None if it is not in the store.

    The schemes of S3 are equivalent, and the URIs of Hadoop and of Lakebed are both accepted.
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
    """Return a location in a normal form for comparison.

    >>> plain_location("file:/lake/flights/"), plain_location("s3a://bucket/lake")
    ('file:///lake/flights', 's3a://bucket/lake')
    """
    scheme, separator, path = location.partition(":")
    if separator and path.startswith("/") and not path.startswith("//"):
        location = f"{scheme}://{path}"
    return location.rstrip("/")


def _hadoop_root(store: Store) -> str | None:
    """Return the URI of the root of a store for Hadoop, without a final slash."""
    named = store.hadoop_uri(_ANY_KEY)
    return None if named is None else named.removesuffix(f"/{_ANY_KEY}")
