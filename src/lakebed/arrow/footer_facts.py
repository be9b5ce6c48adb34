"""Recovery of the facts of data files that are on storage already."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrow.formats.file_format import find_reader
from lakebed.arrow.formats.parquet import column_facts, open_parquet
from lakebed.arrow.fragments import scanned_format, types_in
from lakebed.arrow.older import OlderFiles
from lakebed.errors import CorruptMetadataError
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import schema_number_of
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
                footer = _read_through(source, layout, label)
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


def _read_through(source: pa.NativeFile, layout: Layout, label: str) -> pq.FileMetaData:
    """Return the footer of a file all of whose pages can be read, also as the types of the dataset."""
    file = open_parquet(source)
    for _ in file.iter_batches():
        pass
    older = OlderFiles.of(layout, schema_number_of(label, newest=layout.lineage.number))
    types = {
        name: type_to_arrow(kind)
        for name, kind in types_in(layout, older).items()
        if name not in layout.partition_types
    }
    fragment = scanned_format().make_fragment(source)
    for _ in fragment.to_batches(schema=pa.schema(list(types.items()))):
        pass
    return file.metadata
