"""Writers and readers of data files, by format."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakebed.arrow.formats.avro_files import AvroReader, AvroWriter
from lakebed.arrow.formats.file_format import Content, FileReader, FileWriter
from lakebed.arrow.formats.parquet import ParquetWriter
from lakebed.arrow.formats.submissions import SubmissionsReader, SubmissionsWriter
from lakebed.model.arrow_types import schema_to_arrow
from lakebed.model.descriptor import DatasetDescriptor


def open_writer(
    descriptor: DatasetDescriptor,
    content: Content | None = None,
    schema: pa.Schema | None = None,
    constants: Mapping[str, pa.Scalar] | None = None,
) -> FileWriter:
    """Begin a data file of a dataset.

    Args:
        descriptor: Descriptor of the dataset.
        content: Takes the bytes; None for memory.
        schema: Schema of a Parquet file, if it is more than that of the rows.
        constants: Values of the columns that only the file has, the same in all its rows.

    Raises:
        MissingDependencyError: The format needs a package that is not installed.
    """
    stored, compression = descriptor.file_schema, descriptor.compression
    match descriptor.format:
        case "avro":
            return AvroWriter(stored, compression, content)
        case "submissions":
            return SubmissionsWriter(stored, compression, content)
        case _:
            held = schema_to_arrow(stored) if schema is None else schema
            return ParquetWriter(held, compression, content, constants)


def find_reader(format: str) -> FileReader | None:  # noqa: A002 - the word of the descriptor
    """Return the reader of a format; None for Parquet, which Arrow's dataset scan reads."""
    match format:
        case "avro":
            return AvroReader()
        case "submissions":
            return SubmissionsReader()
        case _:
            return None
