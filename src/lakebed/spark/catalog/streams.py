"""Streams by the name of a table, which are those of the format `lakebed`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError
from lakebed.model.predicate import TRUE
from lakebed.spark.catalog.session_jvm import Jvm, Made, to_dict
from lakebed.spark.native_read import struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.spark.catalog.lake_tables import TableVersion

_READ_OPTIONS = frozenset(("versionasof", "timestampasof"))  # carried out by Spark itself


class TableStream:
    """A stream of the commits of a table.

    Attributes:
        options: Options of the read.
    """

    def __init__(self, jvm: Jvm, opened: TableVersion, options: Mapping[str, str]) -> None:
        """Keep the table.

        Args:
            jvm: The JVM of the session.
            opened: Version of the table, which gives the columns.
            options: Options of the read.
        """
        self._jvm = jvm
        self._opened = opened
        self.options = options

    def check_batch(self) -> None:
        """Check that a read that is not a stream has no option of one.

        Raises:
            InvalidInputError: It has one.
        """
        unknown = sorted({name.lower() for name in self.options} - _READ_OPTIONS)
        if unknown:
            raise InvalidInputError(
                f"A read by the catalog has no option {', '.join(map(repr, unknown))}.",
                hint="Write WHERE and the columns in the query; the format 'lakebed' has options.",
            )

    def read(self, checkpoint: str) -> Any:
        """Return Spark's stream of the format `lakebed`.

        Args:
            checkpoint: Location of the checkpoint of the source.
        """
        jvm, opened = self._jvm, self._opened
        if opened.is_pinned:
            raise InvalidInputError(
                f"A stream of {opened.name!r} reads all versions from one on, not a single one.",
                hint="Give the option startingVersion or startingTimestamp.",
            )
        options = {**_without_path(self.options), **opened.address}
        schema = jvm.to_schema(struct_of(opened.choose(TRUE), opened.columns))
        return jvm.scan_by_format(options, schema).toMicroBatchStream(checkpoint)

    def of_scan(self, scan: Any) -> Any:
        """Return a scan of the JVM that can also be read as a stream."""

        def to_batch() -> Any:
            self.check_batch()
            return scan.toBatch()

        return Made(
            self._jvm,
            "connector.read.Scan",
            readSchema=scan.readSchema,
            description=scan.description,
            toBatch=to_batch,
            toMicroBatchStream=self.read,
            supportedCustomMetrics=scan.supportedCustomMetrics,
            reportDriverMetrics=self._jvm.no_metrics["reportDriverMetrics"],
        )

    def of_rows(self, frame: DataFrame) -> Any:
        """Return a scan of rows that the driver has, which can also be read as a stream."""
        return local_rows(self._jvm, frame, self)


def local_rows(jvm: Jvm, frame: DataFrame, stream: TableStream | None = None) -> Any:
    """Return a scan of rows that the driver has.

    Args:
        jvm: The JVM of the session.
        frame: The rows.
        stream: The stream as which the scan can be read, too; None if there is none.
    """
    schema = jvm.to_schema(frame.schema)

    def rows() -> Any:
        if stream is not None:
            stream.check_batch()
        return jvm.rows_of(frame)

    return Made(
        jvm,
        "connector.read.LocalScan",
        readSchema=schema,
        rows=rows,
        description="lakebed rows",
        **({} if stream is None else {"toMicroBatchStream": stream.read}),
        **jvm.no_metrics,
    )


def streaming_write(jvm: Jvm, opened: TableVersion, info: Any, *, replaces_all: bool) -> Any:
    """Return Spark's streaming write of the format `lakebed`.

    Args:
        jvm: The JVM of the session.
        opened: Version of the table.
        info: Options and columns of the write.
        replaces_all: Whether each epoch replaces all rows: output mode `complete`.
    """
    options = {**_without_path(to_dict(info.options())), **opened.address}
    builder = jvm.writer_by_format(options, info)
    if replaces_all:
        builder = builder.truncate()
    return builder.build().toStreaming()


def _without_path(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() != "path"}
