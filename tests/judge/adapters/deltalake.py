"""deltalake, which commits on S3 by conditional puts."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from judge.steps import REFUSED, UNKNOWN, Step

_SCHEMA = pa.schema(
    [("k", pa.string()), ("op", pa.string()), ("p", pa.string()), ("n", pa.int64())]
)


class Table:
    """A table on S3."""

    verbs = frozenset({"append", "delete", "merge", "overwrite", "compact", "clean"})
    release = importlib.metadata.version("deltalake")

    def __init__(self, given: dict[str, Any]) -> None:
        self._location = f"{given['location']}/d"
        self._storage = {
            "AWS_ENDPOINT_URL": given["endpoint"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
        }

    def create(self) -> None:
        """Create the table."""
        DeltaTable.create(
            self._location, schema=_SCHEMA, partition_by=["p"], storage_options=self._storage
        )

    def open(self) -> DeltaTable:
        """Open the table."""
        return DeltaTable(self._location, storage_options=self._storage)

    def do(self, found: DeltaTable, step: Step) -> tuple[int, str] | None:
        """Take a step."""
        rows = pa.Table.from_pylist(step.rows, _SCHEMA)
        if step.verb == "append":
            write_deltalake(found, rows, mode="append")
        elif step.verb == "delete":
            found.delete(f"op = '{step.target}'")
        elif step.verb == "merge":
            merger = found.merge(rows, predicate="s.k = t.k", source_alias="s", target_alias="t")
            merger.when_matched_update_all().when_not_matched_insert_all().execute()
        elif step.verb == "overwrite":
            write_deltalake(found, rows, mode="overwrite", predicate=f"p = '{step.partition}'")
        elif step.verb == "compact":
            found.optimize.compact()
        else:
            found.vacuum(dry_run=False)
        return None

    def outcome_of(self, exc: BaseException) -> str:
        """Return REFUSED for a conflict, and UNKNOWN for any other error."""
        return REFUSED if isinstance(exc, CommitFailedError) else UNKNOWN

    def rows(self) -> list[list[str]]:
        """Return key and step of each row."""
        table = self.open().to_pyarrow_table(columns=["k", "op"])
        columns = (table.column(name).to_pylist() for name in ("k", "op"))
        return [list(pair) for pair in zip(*columns, strict=True)]

    def history(self) -> dict[str, Any]:
        """Return the versions that the log holds, the oldest first."""
        found = sorted(int(one["version"]) for one in self.open().history())
        return {"versions": found}
