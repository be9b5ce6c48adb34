"""How Spark's own reader is told of planned files: by path, or by a list with sizes.

Both give the same rows; they differ in what Spark does before it reads. Given paths, it looks at
each file. A prepared list it takes as it is, wherever the files lie. Whole directories, which it
would list and read whatever lies there, are never faster than such a list; see bench/reading.py.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from lakebed.errors import CorruptMetadataError
from lakebed.spark.session import is_classic, listing_by_driver, settings_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

NativeWay = Literal["paths", "prepared"]

# Of 64 files Spark looks at each faster than a list is made, of 256 no longer surely; see
# bench/reading.py, action `create`.
_FEW_FILES = 200

# Whatever the session says: a file that is missing or damaged is an error, which only checksums of
# pages tell for sure, and dates and times are those of one calendar, the Gregorian, as Arrow reads
# them.
_STRICT = {
    "parquet.page.verify-checksum.enabled": "true",
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
}
# What a file sink of Spark's own streams leaves beside its files, and every read of them obeys.
_SINK_LOG, _SINK_LOG_VERSION = "_spark_metadata", "v1"
_BLOCK_BYTES = 2**27  # only a hint on locality, which a directory of this machine does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class FileList:
    """Parquet files in a directory that all workers see.

    Attributes:
        paths: Of the files; absolute.
        schema: What to read, partition columns included.
        root: Directory under which levels of directories are partition columns; None if none of
            them is asked for.
    """

    paths: Sequence[Path]
    schema: StructType
    root: Path | None

    def ways(self, spark: SparkSession) -> tuple[NativeWay, ...]:
        """Return the ways to read the files, the fastest first; the last one always can.

        A session on Connect has no moment at which it is done with a prepared list.
        """
        if len(self.paths) <= _FEW_FILES or not is_classic(spark):
            return ("paths",)
        return ("prepared", "paths")

    def read(self, spark: SparkSession, way: NativeWay) -> DataFrame | str:
        """Return the rows, or say why they cannot be read in this way.

        Raises:
            CorruptMetadataError: A file is missing.
        """
        if way == "prepared":
            return self._read_prepared(spark)
        options = {} if self.root is None else {"basePath": f"file://{self.root}"}
        # Not URIs with percent signs: Spark takes paths as they are.
        return self._load(spark, [f"file://{path}" for path in self.paths], options)

    def _load(
        self, spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]
    ) -> DataFrame:
        with settings_for(spark, listing_by_driver()):
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
        for path in self.paths:
            try:
                # The true size: from one that is too small, Spark would lose rows.
                status = path.stat()
            except FileNotFoundError as exc:
                raise CorruptMetadataError(
                    f"Data file {path} is missing.",
                    hint="The head names it, so it was deleted from outside.",
                ) from exc
            entry = {
                "path": path.as_uri(),
                "size": status.st_size,
                "isDir": False,
                "modificationTime": status.st_mtime_ns // 10**6,
                "blockReplication": 1,
                "blockSize": _BLOCK_BYTES,
                "action": "add",
            }
            yield b"\n" + msgspec.json.encode(entry)

    def _checked(self, frame: DataFrame) -> DataFrame | str:
        """Return a frame if it reads exactly the planned files."""
        listed = [unquote(urlsplit(uri).path) for uri in frame.inputFiles()]
        if len(listed) == len(self.paths) and set(listed) == set(map(str, self.paths)):
            return frame
        reason = f"Spark found {len(listed)} files in place of {len(self.paths)}"
        _log.warning("%s; another way is taken to read them", reason)
        return reason


__all__ = ["FileList", "NativeWay"]
