"""Streams by the name of a table, which are those of the format `lakebed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lakebed.common.redaction import STORAGE_PREFIX
from lakebed.errors import InvalidInputError
from lakebed.model.predicate import TRUE
from lakebed.spark.catalog.session_jvm import Jvm, Made
from lakebed.spark.native_read import struct_of

if TYPE_CHECKING:
    from lakebed.spark.catalog.lake_tables import TableVersion

_READ_OPTIONS = frozenset(("versionasof", "timestampasof"))  # carried out by Spark itself


def batch_options_error(options: Mapping[str, str]) -> InvalidInputError | None:
    """Return the error of a read that is not a stream; None if Spark knows all of its options."""
    unknown = sorted({name.lower() for name in options} - _READ_OPTIONS)
    if not unknown:
        return None
    return InvalidInputError(
        f"A read by the catalog has no option {', '.join(map(repr, unknown))}.",
        hint="Write WHERE and the columns in the query; the format 'lakebed' has options.",
    )


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
        error = batch_options_error(self.options)
        if error is not None:
            raise error

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
        options = {**_without_path(self.options), **_address(opened)}
        schema = jvm.to_schema(struct_of(opened.choose(TRUE), opened.columns))
        table = jvm.source_table(options, schema)
        scan = table.newScanBuilder(jvm.to_options(options)).build()
        return scan.toMicroBatchStream(checkpoint)

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
            reportDriverMetrics=lambda: self._jvm.no_metrics[1],
        )

    def of_rows(self, rows: Callable[[], Any], schema: Any) -> Any:
        """Return a scan of rows that the driver has, which can also be read as a stream."""

        def checked_rows() -> Any:
            self.check_batch()
            return rows()

        return Made(
            self._jvm,
            "connector.read.LocalScan",
            readSchema=lambda: schema,
            rows=checked_rows,
            description=lambda: "lakebed rows",
            toMicroBatchStream=self.read,
            supportedCustomMetrics=lambda: self._jvm.no_metrics[0],
            reportDriverMetrics=lambda: self._jvm.no_metrics[1],
        )


def streaming_write(jvm: Jvm, opened: TableVersion, info: Any, *, replaces_all: bool) -> Any:
    """Return Spark's streaming write of the format `lakebed`.

    Args:
        jvm: The JVM of the session.
        opened: Version of the table.
        info: Options and columns of the write.
        replaces_all: Whether each epoch replaces all rows: output mode `complete`.
    """
    options = {**_without_path(dict(info.options())), **_address(opened)}
    to_options = jvm.to_options(options)
    inner = Made(
        jvm,
        "connector.write.LogicalWriteInfo",
        options=lambda: to_options,
        queryId=info.queryId,
        schema=info.schema,
        rowIdSchema=info.rowIdSchema,
        metadataSchema=info.metadataSchema,
    )
    builder = jvm.source_table(options, info.schema()).newWriteBuilder(inner)
    if replaces_all:
        builder = builder.truncate()
    return builder.build().toStreaming()


def _address(opened: TableVersion) -> dict[str, str]:
    """Return the options that lead the format to the dataset."""
    storage = {f"{STORAGE_PREFIX}{name}": value for name, value in opened.storage.items()}
    return {"path": opened.uri, **storage}


def _without_path(options: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in options.items() if name.lower() != "path"}
