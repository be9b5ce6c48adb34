"""Names of datasets, files and tables by the naming rules of OpenLineage."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
# In these, a name is the key of an object, without the slash before it.
_OBJECT_STORES = frozenset({"s3", "gs", "az", "abfs", "abfss", "wasbs"})


class Named(NamedTuple):
    """Namespace and name of a dataset of OpenLineage.

    Attributes:
        namespace: The storage, such as `s3://bucket`; `file` for a local path.
        name: The name there, such as `lake/flights`.
    """

    namespace: str
    name: str


def place_of(location: str | os.PathLike[str]) -> Named:
    """Return the names of a file or a directory.

    Args:
        location: A path or a URL.

    >>> place_of("s3a://bucket/lake/flights")
    Named(namespace='s3://bucket', name='lake/flights')
    >>> place_of("file:///data/lake/flights")
    Named(namespace='file', name='/data/lake/flights')
    """
    text = os.fspath(location)
    if not _URL.match(text):
        return Named("file", str(Path(text).absolute()))
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Named("file", unquote(parts.path))
    scheme = _SAME.get(parts.scheme, parts.scheme)
    # A user and a password do not belong into a name.
    authority = (
        parts.netloc if scheme in _OBJECT_STORES - {"s3", "gs"} else parts.netloc.rpartition("@")[2]
    )
    path = parts.path.lstrip("/") if scheme in _OBJECT_STORES else parts.path
    return Named(f"{scheme}://{authority}", path or "/")


def dataset_of(location: str, name: str) -> Named:
    """Return the names of a dataset.

    Args:
        location: URI of its repository.
        name: Name of the dataset.
    """
    return place_of(f"{location.rstrip('/')}/{name}")


def table_of(kind: str, table: str, metastore: object = None) -> Named:
    """Return the names of a published table.

    Args:
        kind: `delta`, `iceberg` or `hive`.
        table: Its URL, path or name.
        metastore: The metastore of a Hive table, if it was given as text.

    >>> table_of("hive", "lake.flights", "thrift://meta:9083")
    Named(namespace='hive://meta:9083', name='lake.flights')
    """
    if kind == "hive":
        given = str(metastore) if isinstance(metastore, str) else ""
        is_server = given.startswith("thrift://")
        return Named(given.replace("thrift", "hive", 1) if is_server else "hive", table)
    if _URL.match(table) or "/" in table:
        return place_of(table)
    return Named(kind, table)
