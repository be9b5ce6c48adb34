"""Where the objects of a dataset are: the one module that knows their physical names.

It is Kartothek's layout, so that plateau reads what we write, and ours beside it:

    flights.by-dataset-metadata.json     the head
    flights/data/_common_metadata        the schema, for plateau and kartothek
    flights/data/dt=…/batch_id=…/part-…  data files; see `lakebed.model.keys`
    flights/files/0000000012-….parquet   segments, in one of the folders of `Folder`
"""

from __future__ import annotations

import datetime as dt
import re
import urllib.parse
from enum import StrEnum

from lakebed.model.keys import ADOPTED_PREFIX, check_under

TABLE = "data"  # Kartothek's table name; gives Kite's /data/users/data/userId_hash=15
JSON_SUFFIX = ".by-dataset-metadata.json"
MSGPACK_SUFFIX = ".by-dataset-metadata.msgpack.zstd"
SCHEMA_FILE = "_common_metadata"
INDEX_SUFFIX = ".by-dataset-index.parquet"

_SEGMENT_NAME = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}[^/]*")


class Folder(StrEnum):
    """A folder of a dataset, beside that of its data files. Nobody else may keep files in it."""

    BATCHES = "batches"  # reservations, and manifests of what was committed
    CLEANUPS = "cleanups"  # what cleanups have deleted
    FILES = "files"  # the file table
    HISTORY = "history"
    HIVE = "hive"  # where tables of a metastore are said to be; nothing lies there
    INDICES = "indices"  # Kartothek's index files
    POSTINGS = "postings"  # the inverted indices
    PUBLISHED = "published"  # what tables of a metastore show
    RUNS = "runs"  # which run wrote what
    SIGNALS = "signals"  # which views are ready
    SOURCES = "sources"  # which raw files were read in
    STAGING = "staging"  # what tasks leave for each other before there are data files

    def of(self, dataset: str, *inner: str) -> str:
        """Return the folder of a dataset, or what lies in it.

        >>> Folder.FILES.of("flights"), Folder.SIGNALS.of("flights", "dt=2013-01-01")
        ('flights/files', 'flights/signals/dt=2013-01-01')
        """
        return "/".join((dataset, self, *inner))


def schema_key(dataset: str, table: str) -> str:
    """Return the key of the schema file."""
    return f"{dataset}/{table}/{SCHEMA_FILE}"


def data_key(dataset: str, table: str, label: str, suffix: str) -> str:
    """Return the key of a data file.

    Args:
        dataset: Name of the dataset.
        table: Kartothek's table name.
        label: Of the file.
        suffix: Of data files; an adopted file keeps its own.

    Raises:
        CorruptMetadataError: The label of an adopted file leads out of the dataset.

    >>> data_key("flights", "data", "dt=2013-01-01/batch_id=1/part-0a", ".parquet")
    'flights/data/dt=2013-01-01/batch_id=1/part-0a.parquet'
    >>> from lakebed.model.keys import adopted_file_name
    >>> label = "dt=2013-01-01/batch_id=1/" + adopted_file_name("dt=2013-01-01/000000_0")
    >>> data_key("flights", "data", label, ".parquet")
    'flights/dt=2013-01-01/000000_0'
    """
    name = label.rpartition("/")[2]
    if name.startswith(ADOPTED_PREFIX):
        path = urllib.parse.unquote(name[len(ADOPTED_PREFIX) :])
        return check_under(f"{dataset}/{path}", f"{dataset}/")
    return f"{dataset}/{table}/{label}{suffix}"


def postings_folder(dataset: str, column: str) -> str:
    """Return where the segments of the inverted index of a column lie."""
    return Folder.POSTINGS.of(dataset, urllib.parse.quote(column, safe=""))


def index_key(dataset: str, column: str, now: dt.datetime) -> str:
    """Return a key for an index file, as Kartothek writes it."""
    names = (urllib.parse.quote(one, safe="") for one in (column, now.isoformat()))
    return Folder.INDICES.of(dataset, *names) + INDEX_SUFFIX


def staging_folder(dataset: str, batch_id: int) -> str:
    """Return where the tasks of a batch leave files for each other."""
    return Folder.STAGING.of(dataset, str(batch_id))


def segment_key(folder: str, weight: int, name: str) -> str:
    """Return the key of a segment.

    Args:
        folder: Where it lies.
        weight: How many entries it holds.
        name: The rest of its name, which begins with 32 hexadecimal digits.
    """
    return f"{folder}/{weight:010d}-{name}"


def is_segment_name(name: str) -> bool:
    """Whether the name of an object is one of a segment, without its folder."""
    return _SEGMENT_NAME.fullmatch(name) is not None
