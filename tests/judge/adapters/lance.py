"""Lance, which commits on S3 by conditional puts."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import lance
import pyarrow as pa

from judge.steps import REFUSED, UNKNOWN, Step

_SCHEMA = pa.schema(
    [("k", pa.string()), ("op", pa.string()), ("p", pa.string()), ("n", pa.int64())]
)
_CONFLICTS = ("commit conflict", "concurrent transaction", "too much write contention")


class Table:
    """A dataset on S3. It replaces no part of its rows in one commit, other than by a merge."""

    verbs = frozenset({"append", "delete", "merge", "compact", "clean"})
    release = importlib.metadata.version("pylance")

    def __init__(self, given: dict[str, Any]) -> None:
        self._location = f"{given['location']}/d"
        self._storage = {
            "aws_endpoint": given["endpoint"],
            "allow_http": "true",
            "aws_region": "us-east-1",
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
        }

    def create(self) -> None:
        """Create the table."""
        lance.write_dataset(
            pa.Table.from_pylist([], _SCHEMA), self._location, storage_options=self._storage
        )

    def open(self) -> Any:
        """Open the table."""
        return lance.dataset(self._location, storage_options=self._storage)

    def do(self, found: Any, step: Step) -> tuple[int, str] | None:
        """Take a step."""
        rows = pa.Table.from_pylist(step.rows, _SCHEMA)
        if step.verb == "append":
            found.insert(rows, mode="append")
        elif step.verb == "delete":
            found.delete(f"op = '{step.target}'")
        elif step.verb == "merge":
            merge = found.merge_insert("k").when_matched_update_all()
            merge.when_not_matched_insert_all().execute(rows)
        elif step.verb == "compact":
            found.optimize.compact_files()
        else:
            found.cleanup_old_versions()
        return None

    def outcome_of(self, exc: BaseException) -> str:
        """Return REFUSED for a conflict, and UNKNOWN for any other error."""
        is_conflict = any(text in str(exc).lower() for text in _CONFLICTS)
        return REFUSED if is_conflict else UNKNOWN

    def rows(self) -> list[list[str]]:
        """Return key and step of each row."""
        table = self.open().to_table(columns=["k", "op"])
        columns = (table.column(name).to_pylist() for name in ("k", "op"))
        return [list(pair) for pair in zip(*columns, strict=True)]

    def history(self) -> dict[str, Any]:
        """Return the versions."""
        return {"versions": sorted(one["version"] for one in self.open().versions())}
