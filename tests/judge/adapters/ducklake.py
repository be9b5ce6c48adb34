"""DuckLake, with its catalog in SQLite and its files on S3: the rows of small changes, too."""

from __future__ import annotations

import importlib.metadata
from typing import Any

import duckdb

from judge.steps import REFUSED, UNKNOWN, Step

_EXTENSIONS = ("httpfs", "sqlite_scanner", "ducklake")


class Table:
    """A table on S3."""

    verbs = frozenset({"append", "delete", "merge", "overwrite", "compact", "clean"})
    release = importlib.metadata.version("duckdb")

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._connection: duckdb.DuckDBPyConnection | None = None

    def open(self) -> duckdb.DuckDBPyConnection:
        """Return a connection with the table."""
        if self._connection is None:
            self._connection = self._connected()
        return self._connection

    def _connected(self) -> duckdb.DuckDBPyConnection:
        from duckdb_extensions import import_extension

        for name in _EXTENSIONS:
            import_extension(name)
        found = duckdb.connect()
        for name in _EXTENSIONS:
            found.execute(f"LOAD {name}")
        host = self._given["endpoint"].removeprefix("http://")
        found.execute(
            "CREATE SECRET (TYPE s3, KEY_ID 'testing', SECRET 'testing', REGION 'us-east-1', "
            f"ENDPOINT '{host}', URL_STYLE 'path', USE_SSL false)"
        )
        found.execute(
            f"ATTACH 'ducklake:sqlite:{self._given['folder']}/catalog.db' AS lake "
            f"(DATA_PATH '{self._given['location']}/d/', DATA_INLINING_ROW_LIMIT 0, META_JOURNAL_MODE 'WAL', META_BUSY_TIMEOUT 5000)"
        )
        found.execute("USE lake")
        return found

    def create(self) -> None:
        """Create the table."""
        self.open().execute("CREATE TABLE d (k VARCHAR, op VARCHAR, p VARCHAR, n BIGINT)")
        self.open().execute("ALTER TABLE d SET PARTITIONED BY (p)")

    def do(self, found: duckdb.DuckDBPyConnection, step: Step) -> tuple[int, str] | None:
        """Take a step."""
        values = ", ".join(f"('{r['k']}', '{r['op']}', '{r['p']}', {r['n']})" for r in step.rows)
        if step.verb == "append":
            found.execute(f"INSERT INTO d VALUES {values}")
        elif step.verb == "delete":
            found.execute(f"DELETE FROM d WHERE op = '{step.target}'")
        elif step.verb == "merge":
            found.execute(
                f"MERGE INTO d USING (VALUES {values}) AS s(k, op, p, n) ON d.k = s.k "
                "WHEN MATCHED THEN UPDATE SET op = s.op, p = s.p, n = s.n "
                "WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.op, s.p, s.n)"
            )
        elif step.verb == "overwrite":
            self._replace(step, values)
        elif step.verb == "compact":
            found.execute("CALL ducklake_merge_adjacent_files('lake')")
        else:
            found.execute(
                "CALL ducklake_expire_snapshots('lake', older_than => now() - INTERVAL 7 DAY)"
            )
            found.execute(
                "CALL ducklake_cleanup_old_files('lake', older_than => now() - INTERVAL 7 DAY)"
            )
        return None

    def _replace(self, step: Step, values: str) -> None:
        found = self.open()
        found.execute("BEGIN")
        try:
            found.execute(f"DELETE FROM d WHERE p = '{step.partition}'")
            found.execute(f"INSERT INTO d VALUES {values}")
        except BaseException:
            found.execute("ROLLBACK")
            raise
        found.execute("COMMIT")

    def outcome_of(self, exc: BaseException) -> str:
        """Return REFUSED for a conflict, and UNKNOWN for any other error."""
        self._connection = None  # the next step connects anew, as a program would
        is_conflict = isinstance(exc, duckdb.TransactionException)
        return REFUSED if is_conflict else UNKNOWN

    def rows(self) -> list[list[str]]:
        """Return key and step of each row."""
        return [list(row) for row in self.open().execute("SELECT k, op FROM d").fetchall()]

    def history(self) -> dict[str, Any]:
        """Return the snapshots."""
        found = self.open().execute("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()
        return {"versions": sorted(row[0] for row in found)}
