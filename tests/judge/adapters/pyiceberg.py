"""pyiceberg, with its catalog in SQLite and the files of its tables on S3."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import EqualTo
from pyiceberg.transforms import IdentityTransform

from judge.steps import REFUSED, UNKNOWN, Step

_SCHEMA = pa.schema(
    [("k", pa.string()), ("op", pa.string()), ("p", pa.string()), ("n", pa.int64())]
)


class Table:
    """A table on S3."""

    verbs = frozenset({"append", "delete", "merge", "overwrite", "clean"})
    release = importlib.metadata.version("pyiceberg")

    def __init__(self, given: dict[str, Any]) -> None:
        self._location = given["location"]
        self._catalog = SqlCatalog(
            "judged",
            uri=f"sqlite:///{given['folder']}/catalog.db",
            warehouse=given["location"],
            **{
                "s3.endpoint": given["endpoint"],
                "s3.region": "us-east-1",
                "s3.access-key-id": "testing",
                "s3.secret-access-key": "testing",
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            },
        )

    def create(self) -> None:
        """Create the table."""
        self._catalog.create_namespace("judged")
        made = self._catalog.create_table("judged.d", _SCHEMA, location=f"{self._location}/d")
        with made.update_spec() as spec:
            spec.add_field("p", IdentityTransform(), "p")

    def open(self) -> Any:
        """Open the table."""
        return self._catalog.load_table("judged.d")

    def do(self, found: Any, step: Step) -> tuple[int, str] | None:
        """Take a step."""
        rows = pa.Table.from_pylist(step.rows, _SCHEMA)
        if step.verb == "append":
            found.append(rows)
        elif step.verb == "delete":
            found.delete(EqualTo("op", step.target))
        elif step.verb == "merge":
            found.upsert(rows, join_cols=["k"])
        elif step.verb == "overwrite":
            found.overwrite(rows, overwrite_filter=EqualTo("p", step.partition))
        else:
            week_ago = dt.datetime.now(dt.UTC) - dt.timedelta(days=7)
            found.maintenance.expire_snapshots().older_than(week_ago).commit()
        return None

    def outcome_of(self, exc: BaseException) -> str:
        """Return REFUSED for a conflict, and UNKNOWN for any other error."""
        is_conflict = isinstance(exc, CommitFailedException | ValidationException)
        return REFUSED if is_conflict else UNKNOWN

    def rows(self) -> list[list[str]]:
        """Return key and step of each row."""
        table = self._catalog.load_table("judged.d").scan(selected_fields=("k", "op")).to_arrow()
        columns = (table.column(name).to_pylist() for name in ("k", "op"))
        return [list(pair) for pair in zip(*columns, strict=True)]

    def history(self) -> dict[str, Any]:
        """Return the sequence numbers of the snapshots."""
        found = self._catalog.load_table("judged.d").snapshots()
        return {"versions": sorted(one.sequence_number for one in found)}
