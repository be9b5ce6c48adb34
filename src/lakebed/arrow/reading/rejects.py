"""The columns of rows and lines that are set aside for a quarantine."""

from __future__ import annotations

import pyarrow as pa

REJECTS = pa.schema(
    [
        pa.field("reason", pa.string(), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("line_number", pa.int64(), nullable=False),
        pa.field("line", pa.binary(), nullable=False),
    ]
)
# Fields of a quarantine. The most useful ones come first: a terminal may have room for only some.
QUARANTINED = pa.schema(
    [
        pa.field("line_number", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("path", pa.string()),
        pa.field("where", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("row_count", pa.int64()),
        pa.field("attempt", pa.string()),
        pa.field("run", pa.string(), nullable=False),
        pa.field("loaded_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("source_file", pa.string(), nullable=False),
        pa.field("line", pa.binary(), nullable=False),
    ]
)
# While rejects wait, their extent and hint are kept as well.
WAITING = pa.schema(
    [
        *REJECTS,
        pa.field("kind", pa.string(), nullable=False),
        pa.field("row_count", pa.int64()),
        pa.field("hint", pa.string(), nullable=False),
    ]
)
