"""Tables of other formats in a directory, found by the folder of their log."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakebed.model.layout import DELTA_LOG
from lakebed.model.table_signs import HUDI_FOLDER, ICEBERG_FILE, ICEBERG_FOLDER, TableFormat
from lakebed.store.base import Store

_LOGS = (
    (TableFormat.DELTA, DELTA_LOG, re.compile(r".*\.(json|parquet)")),
    (TableFormat.ICEBERG, ICEBERG_FOLDER, ICEBERG_FILE),
)


def tables_at(store: Store, directory: str = "") -> Iterator[tuple[TableFormat, str]]:
    """Yield the formats of the tables of a directory, each with the key of a file of its log.

    Args:
        store: The store that holds the directory.
        directory: The directory, without a final slash; empty for the root of the store.

    Cost:
        A LIST of each of two folders that only tables have; of Hudi none, since only the local file
        system shows its folder.
    """
    prefix = f"{directory}/" if directory else ""
    for format_, folder, pattern in _LOGS:
        for info in store.list(f"{prefix}{folder}", recursive=False):
            if pattern.fullmatch(info.key.rpartition("/")[2]):
                yield format_, info.key
                break
    path = store.local_path(directory) if directory else None
    if path is not None and (path / HUDI_FOLDER).is_dir():
        yield TableFormat.HUDI, f"{prefix}{HUDI_FOLDER}"
