"""The data source for Spark: its name, readers and writers.

Spark creates one in a Python process of its driver for each call that names the format, and sends
it from process to process as a pickle. So it holds only its options.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from pyspark.sql.datasource import DataSource

from lakebed.errors import (
    AlreadyExistsError,
    InvalidInputError,
    MissingDependencyError,
    NotFoundError,
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_P = ParamSpec("_P")
_R = TypeVar("_R")
# Errors that the caller can correct: the position in this library does not help.
_MENDED_BY_CALLER = (AlreadyExistsError, InvalidInputError, MissingDependencyError, NotFoundError)


def _message_first(
    method: Callable[Concatenate[LakebedDataSource, _P], _R],
) -> Callable[Concatenate[LakebedDataSource, _P], _R]:
    """Remove our own calls from the traceback of an error that the caller can correct.

    Spark shows the traceback before the error, in one text. So the error with its remedy is on the
    first lines instead of below dozens. Other errors keep their traceback and their cause.
    """

    @functools.wraps(method)
    def message_first(self: LakebedDataSource, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except _MENDED_BY_CALLER as exc:
            raise exc.with_traceback(None) from None

    return message_first


def _spark_schema(schema: Any) -> StructType:
    """Return a schema as Spark has it; Sail passes one of Arrow."""
    import pyarrow as pa

    if not isinstance(schema, pa.Schema):
        spark_schema: StructType = schema
        return spark_schema
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


class LakebedDataSource(DataSource):
    """Datasets of Lakebed under the format `lakebed`; see docs/spark.md for the options.

    Methods import the modules that they need: Spark imports this module early.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options as plain text; each method parses its own."""
        super().__init__(options)
        self._texts = dict(options.items())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a function that raises a clear error in a worker without Lakebed."""
        from lakebed.spark.travel import parcel

        return parcel(self)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lakebed"

    @_message_first
    def schema(self) -> StructType:
        """Return the schema of a read if the caller has not declared one."""
        from lakebed.datasource import frame_source, stream_options, stream_source

        if stream_options.is_of_stream(self._texts):
            return stream_source.declared_schema(self._texts)
        return frame_source.declared_schema(self._texts)

    @_message_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a version of a dataset."""
        from lakebed.datasource import frame_source

        return frame_source.reader_for(self._texts, _spark_schema(schema))

    @_message_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return the writer of a batch."""
        from lakebed.datasource import frame_sink

        declared = _spark_schema(schema)
        return frame_sink.LakebedWriter.begin(self._texts, declared, is_overwrite=overwrite)

    @_message_first
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader of a stream of the commits of a dataset."""
        from lakebed.datasource.stream_source import LakebedStreamReader

        return LakebedStreamReader(self._texts, schema)

    @_message_first
    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceStreamWriter:
        """Return the writer of the epochs of a stream."""
        from lakebed.datasource.stream_sink import LakebedStreamWriter, is_committing

        writer = LakebedStreamWriter(self._texts, schema, is_overwrite=overwrite)
        return writer if is_committing() else writer.reserve()
