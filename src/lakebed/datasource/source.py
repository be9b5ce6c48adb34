"""The data source as Spark sees it: a name, and who reads and writes.

Spark makes one in a Python process of its driver for each call that names the format, and pickles
it from process to process. So it holds its options and nothing else.
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
# What the caller mends: where in this library it was noticed is of no use to anybody.
_MENDED_BY_CALLER = (AlreadyExistsError, InvalidInputError, MissingDependencyError, NotFoundError)


def _told_first(
    method: Callable[Concatenate[LakebedDataSource, _P], _R],
) -> Callable[Concatenate[LakebedDataSource, _P], _R]:
    """Leave our own calls out of an error that the caller mends.

    Spark shows the traceback before the error, as part of one text. So the error with its remedy
    stands on the first lines instead of below dozens. Others keep their traceback and their cause.
    """

    @functools.wraps(method)
    def told_first(self: LakebedDataSource, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except _MENDED_BY_CALLER as exc:
            raise exc.with_traceback(None) from None

    return told_first


class LakebedDataSource(DataSource):
    """Datasets of Lakebed under the format `lakebed`; see docs/spark-sql.md for the options.

    What a method needs is loaded by it: Spark imports this module before anybody asks for it.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Keep the options, as plain text; each method reads those that it knows."""
        super().__init__(options)
        self._texts = dict(options.items())

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a function that raises a clear error in a worker without Lakebed: Spark sends it to those, too."""
        from lakebed.spark.travel import parcel

        return parcel(self)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "lakebed"

    @_told_first
    def schema(self) -> StructType:
        """Return what a read gives whose schema the caller has not declared."""
        from lakebed.datasource import frame_source, stream_options, stream_source

        if stream_options.is_of_stream(self._texts):
            return stream_source.declared_schema(self._texts)
        return frame_source.declared_schema(self._texts)

    @_told_first
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a version of a dataset."""
        from lakebed.datasource import frame_source

        return frame_source.reader_for(self._texts, schema)

    @_told_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark's signature
        """Return what writes a batch."""
        from lakebed.datasource import frame_sink

        return frame_sink.LakebedWriter.begin(self._texts, schema, is_overwrite=overwrite)

    @_told_first
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what streams the commits of a dataset."""
        from lakebed.datasource.stream_source import LakebedStreamReader

        return LakebedStreamReader(self._texts, schema)

    @_told_first
    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark's signature
    ) -> DataSourceStreamWriter:
        """Return what writes the epochs of a stream."""
        from lakebed.datasource.stream_sink import LakebedStreamWriter, is_committing

        writer = LakebedStreamWriter(self._texts, schema, is_overwrite=overwrite)
        return writer if is_committing() else writer.reserve()
