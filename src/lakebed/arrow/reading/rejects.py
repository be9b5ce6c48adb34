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
# While rejects wait, their extent and hint are kept as well.
WAITING = pa.schema(
    [
        *REJECTS,
        pa.field("kind", pa.string(), nullable=False),
        pa.field("row_count", pa.int64()),
        pa.field("hint", pa.string(), nullable=False),
    ]
)
