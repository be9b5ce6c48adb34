"""Hand planned files to Spark's own reader: by path, or by a list with sizes.

Both give the same rows; they differ in what Spark does before it reads. Given paths, it looks at
each file. A prepared list it takes as it is, wherever the files lie. Whole directories, which it
would list and read whatever lies there, are never faster than such a list; see bench/reading.py.

The sizes are those of the storage now. The file table knows sizes too, but from one that is too
small Spark drops rows without a word. A listing gives those of a thousand files at a time, where the
files lie together.
"""

from __future__ import annotations

import logging
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from posixpath import commonpath
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote

import msgspec

from lakebed.errors import CorruptMetadataError, ObjectNotFoundError
from lakebed.spark.session import is_classic, listing_by_driver, settings_for
from lakebed.store.at_once import at_once
from lakebed.store.base import ObjectInfo, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_THREADS = 32
_FEW_SIZES = 32  # a look at each takes one round of requests, and a listing no less
_FILES_A_FOLDER = 8  # on average, for which each folder is worth a request
_PAGE = 1_000  # objects that one request lists
_SHOWN_A_FILE = 4  # objects in a listing, before a look at each file costs less

_log = logging.getLogger(__name__)

NativeWay = Literal["paths", "prepared"]
# Of 64 files Spark looks at each faster than a list is made, of 256 no longer surely; see
# bench/reading.py, action `create`.
_FEW_FILES = 200
# Whatever the session's settings are: a file that is missing or damaged is an error, which only checksums of
# pages show for sure, and dates and times are those of one calendar, the Gregorian, as Arrow reads
# them.
_STRICT = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
# What a file sink of Spark's own streams leaves beside its files, and every read of them obeys.
_SINK_LOG, _SINK_LOG_VERSION = "_spark_metadata", "v1"
_BLOCK_BYTES = 2**27  # only a hint on locality, which neither a directory nor a bucket has
_UNQUOTED = "/:@"  # what parts a URI, whose path is text that is quoted here


def look_at(store: Store, keys: Sequence[str]) -> list[ObjectInfo]:
    """Return the stats of files in a store, in their order.

    Raises:
        CorruptMetadataError: One is missing.

    Cost:
        In a directory a look at each file. Elsewhere a LIST for each 1,000 files that lie together,
        and a HEAD, of which 32 run at once, for each that does not.
    """
    if store.local_path(keys[0]) is not None:
        return [_look(store, key) for key in keys]
    known = _listed(store, keys) if len(keys) > _FEW_SIZES else {}
    others = [key for key in keys if key not in known]
    for info in at_once(lambda key: _look(store, key), others, _THREADS):
        known[info.key] = info
    return [known[key] for key in keys]


def _look(store: Store, key: str) -> ObjectInfo:
    try:
        return store.stat(key)
    except ObjectNotFoundError as exc:
        raise CorruptMetadataError(
            f"Data file {store.uri}/{key} is missing.",
            hint="A cleanup deletes files of older versions. If `check` misses it in the current "
            "version, it was deleted from outside.",
        ) from exc


def _listed(store: Store, keys: Sequence[str]) -> dict[str, ObjectInfo]:
    """Return the stats of files from listings, as long as they show little else."""
    by_folder: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        by_folder[key.rpartition("/")[0]].add(key)
    folders: Mapping[str, Collection[str]] = by_folder
    if len(keys) < _FILES_A_FOLDER * len(by_folder):
        folders = {commonpath(keys): set(keys)}

    def listed(folder: str) -> dict[str, ObjectInfo]:
        wanted, found = folders[folder], {}
        shown = islice(store.list(folder), max(_PAGE, _SHOWN_A_FILE * len(wanted)))
        for info in shown:
            if info.key in wanted:
                found[info.key] = info
                if len(found) == len(wanted):
                    break
        return found

    every: dict[str, ObjectInfo] = {}
    for found in at_once(listed, list(folders), _THREADS):
        every |= found
    return every


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """Parquet files that a session reaches by a file system of Hadoop.

    Attributes:
        store: The store that holds the files.
        keys: Keys of the files.
        schema: Columns to read, partition columns included.
        root: Key of the directory under which levels of directories are partition columns; None if
            none of them is asked for.
    """

    store: Store
    keys: Sequence[str]
    schema: StructType
    root: str | None
    _looks: dict[str, ObjectInfo] = field(default_factory=dict, init=True, repr=False)

    def at(self, places: Sequence[int]) -> FileList:
        """Return the list of some of the files; those that were looked at are not again."""
        return replace(self, keys=[self.keys[place] for place in places])

    @property
    def is_local(self) -> bool:
        """Return whether the files lie in a local directory, where a look at one costs no request."""
        return self.store.local_path(self.keys[0]) is not None

    def ways(self, spark: SparkSession) -> tuple[NativeWay, ...]:
        """Return the ways to read the files, the fastest first; the last one always can.

        A session on Connect has no moment at which it is done with a prepared list.
        """
        if not is_classic(spark) or (self.is_local and len(self.keys) <= _FEW_FILES):
            return ("paths",)
        return ("prepared", "paths")

    def read(self, spark: SparkSession, way: NativeWay) -> DataFrame | str:
        """Return the rows, or why they cannot be read in this way.

        Raises:
            CorruptMetadataError: A file is missing.
        """
        if way == "prepared":
            return self._read_prepared(spark)
        options = {} if self.root is None else {"basePath": self._uri(self.root)}
        # Not URIs with percent signs: Spark takes paths as they are.
        return self._load(spark, self._uris(), options)

    def _uri(self, key: str) -> str:
        uri = self.store.hadoop_uri(key)
        assert uri is not None  # find_obstacle has asked
        return uri

    def _uris(self) -> list[str]:
        return [self._uri(key) for key in self.keys]

    def _load(
        self, spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]
    ) -> DataFrame:
        # Far away, a look at each file by the driver alone would take longer than a job does.
        by_driver = listing_by_driver() if self.is_local else {}
        with settings_for(spark, by_driver):
            reader = spark.read.schema(self.schema).options(**_STRICT, **options)
            frame = reader.parquet(*paths)
            frame.schema  # noqa: B018 - on Connect, only this looks at the files under the settings
        return frame

    def _read_prepared(self, spark: SparkSession) -> DataFrame | str:
        if not is_classic(spark):
            return "a session on Connect takes no prepared list of files"
        # Without a base path, Spark finds the levels above each file by itself.
        options = {"recursiveFileLookup": "true"} if self.root is None else {}
        with tempfile.TemporaryDirectory(prefix="lakebed-files-") as directory:
            log = Path(directory, _SINK_LOG)
            log.mkdir()
            with (log / "0").open("wb") as file:
                file.write(_SINK_LOG_VERSION.encode())
                file.writelines(self._entries())
            return self._checked(self._load(spark, [f"file://{directory}"], options))

    def _entries(self) -> Iterator[bytes]:
        new = [key for key in self.keys if key not in self._looks]
        if new:
            self._looks.update(zip(new, look_at(self.store, new), strict=True))
        for key, uri in zip(self.keys, self._uris(), strict=True):
            look = self._looks[key]
            entry = {
                "path": quote(uri, safe=_UNQUOTED),
                # The true size: from one that is too small, Spark would lose rows.
                "size": look.size_bytes,
                "isDir": False,
                "modificationTime": int(look.modified_at.timestamp() * 1000),
                "blockReplication": 1,
                "blockSize": _BLOCK_BYTES,
                "action": "add",
            }
            yield b"\n" + msgspec.json.encode(entry)

    def _checked(self, frame: DataFrame) -> DataFrame | str:
        """Return a frame if it reads exactly the planned files."""
        listed = [unquote(uri) for uri in frame.inputFiles()]
        if len(listed) == len(self.keys) and set(listed) == set(self._uris()):
            return frame
        reason = f"Spark found {len(listed)} files in place of {len(self.keys)}"
        _log.warning("%s; another way is taken to read them", reason)
        return reason


__all__ = ["FileList", "NativeWay"]
