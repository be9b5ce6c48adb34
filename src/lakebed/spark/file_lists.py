"""Hand planned files to Spark's own reader: by path, or by a list with sizes.

Both return the same rows; they differ in the work of Spark before it reads. Spark looks at each of
some paths, but uses a prepared list unchanged, wherever the files are. Whole directories, of which
Spark would list and read all files, are never faster than such a list; see bench/reading.py.

The sizes are those of the storage now. The file table has sizes too, but Spark silently drops rows
if a size is too small. One listing returns the sizes of a thousand files that are next to each
other.
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
from typing import TYPE_CHECKING, Any, Literal, cast
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
_FEW_SIZES = 32  # a HEAD of each takes one round of requests, as does a listing
_FILES_A_FOLDER = 8  # files of a folder, on average, that make its listing worth a request
_PAGE = 1_000  # objects per listing request
_SHOWN_A_FILE = 4  # listed objects per file, above which a HEAD of each file costs less

_log = logging.getLogger(__name__)

NativeWay = Literal["paths", "prepared"]
# Spark looks at each of 64 files faster than a list is made; for 256 files this is not certain. See
# bench/reading.py, action `create`.
_FEW_FILES = 200
# Spark's default: it looks at so many paths without a job, so the setting need not be changed.
_LISTED_WITHOUT_JOB = 32
# They override the settings of the session: a missing or damaged file is an error (only checksums
# of pages detect damage reliably), and dates and times are Gregorian, as Arrow reads them.
STRICT_OPTIONS = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
# A file sink of Spark's own streams writes it next to its files, and every read of them obeys it.
_SINK_LOG, _SINK_LOG_VERSION = "_spark_metadata", "v1"
_BLOCK_BYTES = 2**27  # only a hint on locality, which neither a directory nor a bucket has
_UNQUOTED = "/:@"  # separators of a URI; other characters of the path are quoted


def look_at(store: Store, keys: Sequence[str]) -> list[ObjectInfo]:
    """Return the stats of files in a store, in their order.

    Raises:
        CorruptMetadataError: A file is missing.

    Cost:
        In a directory one stat of each file. Elsewhere a LIST for each 1,000 files that are next to
        each other, and a HEAD for each other file, 32 at once.
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
    """Return the stats of files from listings, unless these hold many other objects."""
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
        """Return the list of some of the files, which keeps the stats that are known."""
        return replace(self, keys=[self.keys[place] for place in places])

    @property
    def is_local(self) -> bool:
        """Return whether the files lie in a local directory, where a stat is not a request."""
        return self.store.local_path(self.keys[0]) is not None

    @property
    def is_few(self) -> bool:
        """Return whether the files are local, and Spark lists them without a job."""
        return self.is_local and len(self.keys) <= _LISTED_WITHOUT_JOB

    @property
    def base_options(self) -> dict[str, str]:
        """Options that say where the levels of the paths begin."""
        return {} if self.root is None else {"basePath": self._uri(self.root)}

    def ways(self, spark: SparkSession) -> tuple[NativeWay, ...]:
        """Return the ways to read the files, the fastest first; the last one always works.

        A session on Connect never shows when it no longer needs a prepared list.
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
        # Not URIs with percent signs: Spark takes paths as they are.
        return self._load(spark, self.uris(), self.base_options)

    def _uri(self, key: str) -> str:
        uri = self.store.hadoop_uri(key)
        assert uri is not None  # checked by find_obstacle
        return uri

    def uris(self) -> list[str]:
        """Return the addresses of the files, as Hadoop has them."""
        return [self._uri(key) for key in self.keys]

    def _load(
        self, spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]
    ) -> DataFrame:
        # On remote storage, a stat of each file by the driver alone would take longer than a job.
        by_driver = (
            listing_by_driver() if self.is_local and len(paths) > _LISTED_WITHOUT_JOB else {}
        )
        with settings_for(spark, by_driver):
            reader = spark.read.schema(self.schema).options(**STRICT_OPTIONS, **options)
            frame = reader.parquet(*paths)
            if by_driver and not is_classic(spark):
                frame.schema  # noqa: B018 - only this looks at the files under the settings
        return frame

    def _read_prepared(self, spark: SparkSession) -> DataFrame | str:
        if not is_classic(spark):
            return "a session on Connect cannot use a prepared list of files"
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
        for key, uri in zip(self.keys, self.uris(), strict=True):
            look = self._looks[key]
            entry = {
                "path": quote(uri, safe=_UNQUOTED),
                # The true size: Spark would lose rows if it were too small.
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
        # One text: PySpark's own list takes two calls of the JVM for each file.
        session: Any = frame.sparkSession
        files = cast("Any", frame)._jdf.inputFiles()
        text = session._jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(files).mkString(
            "\n"
        )
        listed = [unquote(uri) for uri in text.split("\n") if uri]
        if len(listed) == len(self.keys) and set(listed) == set(self.uris()):
            return frame
        reason = f"Spark found {len(listed)} files instead of {len(self.keys)}"
        _log.warning("%s; they are read in another way", reason)
        return reason


__all__ = ["STRICT_OPTIONS", "FileList", "NativeWay"]
