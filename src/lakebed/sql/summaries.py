"""The result of any statement as a table, as the command line shows it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.commit import Commit
from lakebed.dataset import Dataset
from lakebed.model.sql_heads import head_of

_SCHEMA = pa.schema(
    [
        *(("statement", pa.string()), ("dataset", pa.string()), ("version", pa.int64())),
        *(("inserted_row_count", pa.int64()), ("updated_row_count", pa.int64())),
        *(("deleted_row_count", pa.int64()), ("is_dry_run", pa.bool_()), ("report", pa.string())),
    ]
)


def as_table(result: Any, text: str, *, is_dry_run: bool = False) -> pa.Table:
    """Return the result of a statement: its rows, or one row about what has changed.

    Args:
        result: The result of `Repository.sql`.
        text: The statement.
        is_dry_run: Whether nothing was written.
    """
    if isinstance(result, pa.Table):
        return result
    head = head_of(text)
    assert head is not None  # queries give rows
    row: dict[str, object] = {
        "statement": head.verb,
        "dataset": head.name,
        "is_dry_run": is_dry_run,
        "report": "nothing has changed" if result is None else repr(result),
    }
    commit = result if isinstance(result, Commit) else getattr(result, "commit", None)
    if isinstance(commit, Commit):
        row["version"] = commit.version
    elif isinstance(result, Dataset):
        row["version"] = result.version
    for name in ("inserted_row_count", "updated_row_count", "deleted_row_count"):
        count = getattr(result, name, None)
        row[name] = count if isinstance(count, int) else None
    return pa.Table.from_pylist([row], schema=_SCHEMA)
