"""Recovery of the facts of data files that are on storage already."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrow.formats.file_format import find_reader
from lakebed.arrow.formats.parquet import column_facts
from lakebed.errors import CorruptMetadataError
from lakebed.model.layout import Layout
from lakebed.state.facts import ColumnFacts, FileFacts
from lakebed.store.base import Store


def facts_of_file(store: Store, layout: Layout, label: str) -> FileFacts:
    """Compute the facts of a data file from its content.

    The checksum covers the present content, which may differ from the written one. So pages with
    checksums of their own are verified first.

    Raises:
        ObjectNotFoundError: The file is missing.
        CorruptMetadataError: It cannot be read.

    Cost:
        One GET of the whole file, in memory, and all of it decoded.
    """
    key = layout.key(label)
    data = store.get(key).data
    columns: dict[str, ColumnFacts] = {}
    reader = find_reader(layout.descriptor.format)
    with pa.BufferReader(data) as source:
        if reader is None:
            try:
                footer = _read_through(source)
            except (pa.ArrowException, OSError, ValueError) as exc:
                raise CorruptMetadataError(
                    f"Data file {key!r} cannot be read: {exc}.", hint="Restore it from a copy."
                ) from exc
            row_count, columns = footer.num_rows, column_facts(footer)
        else:
            row_count = reader.count(source)
    return FileFacts(
        label=label,
        row_count=row_count,
        size_bytes=len(data),
        checksum=f"sha256:{hashlib.sha256(data).hexdigest()}",
        columns=columns,
    )


def _read_through(source: pa.NativeFile) -> pq.FileMetaData:
    """Return the footer of a file all of whose pages can be read."""
    file = pq.ParquetFile(source, page_checksum_verification=True)
    for _ in file.iter_batches():
        pass
    return file.metadata
