"""Errors for statements that Lakebed does not carry out, each with what can be written instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from lakebed.common.shown import cut, shown
from lakebed.errors import InvalidInputError
from lakebed.model.sql_dialect import to_text

KNOWN = (
    "MERGE, UPDATE, DELETE, INSERT, CREATE TABLE, ALTER TABLE, DROP TABLE, TRUNCATE TABLE, SHOW "
    "TABLES, DESCRIBE, OPTIMIZE, VACUUM, RESTORE and SELECT"
)
_REMEDIES: Mapping[str, str] = {
    "ALTER": "Write ALTER TABLE t ADD, DROP or RENAME COLUMN, or SET TBLPROPERTIES.",
    "ANALYZE": "Leave it out: each commit records the statistics of its files.",
    "BEGIN": "Several verbs become one commit by `dataset.transaction()` in Python.",
    "CACHE": "Cache the frame in Spark, as by `dataset.spark().cache()`.",
    "CALL": "Write OPTIMIZE, VACUUM or RESTORE, or call the verb in Python.",
    "COMMENT": "Give the comment when the field is added.",
    "CONVERT": 'Use `lake.adopt("name", "path")`, or `lakebed adopt`.',
    "COPY": 'Use `lakebed append lake/t files`, or an `Ingest` with `select="new"`.',
    "CREATE": "Write CREATE TABLE t (columns) or CREATE TABLE t AS SELECT; views belong to Spark.",
    "DROP": "Write DROP TABLE t; views belong to Spark.",
    "FSCK": "Use `dataset.check()`, or `lakebed check`.",
    "GRANT": "Give rights on the storage: Lakebed keeps none.",
    "INSERT": "Write INSERT INTO t SELECT or VALUES, INSERT OVERWRITE t SELECT, or INSERT INTO t "
    "REPLACE WHERE condition SELECT.",
    "LOAD": "Use `lakebed append lake/t files`.",
    "MERGE": "Write MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *.",
    "MSCK": "Leave it out: the head names all files.",
    "REFRESH": "Leave it out: each statement reads the current head. Views of `attach` have refresh().",
    "REORG": "Write OPTIMIZE t.",
    "REPLACE": "Write DROP TABLE and CREATE TABLE, or INSERT OVERWRITE to keep the history.",
    "REVOKE": "Take rights on the storage: Lakebed keeps none.",
    "SET": "Set the options of Spark by `spark.conf.set`.",
    "SHOW": "Write SHOW TABLES, DESCRIBE TABLE t, DESCRIBE HISTORY t or DESCRIBE DETAIL t.",
    "TRUNCATE": "Write TRUNCATE TABLE t.",
    "UPSERT": "Write MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT "
    "MATCHED THEN INSERT *.",
    "USE": "Open the repository that is meant; a name stands for a dataset in it.",
}


def refused(what: object, instead: str) -> InvalidInputError:
    """Return the error for a form that Lakebed does not carry out.

    Args:
        what: The form, as text or as a part of a tree.
        instead: The remedy, as a sentence.
    """
    text = what if isinstance(what, str) else shown_sql(what)
    return InvalidInputError(f"Lakebed's SQL has no {text}.", hint=instead)


def check_parts(node: Any, known: Collection[str], instead: str) -> None:
    """Check that a part of a tree has no parts that would be left out of account.

    Args:
        node: The part, as sqlglot has read it.
        known: Names of its parts that are carried out, or refused elsewhere.
        instead: The remedy, as a sentence.

    Raises:
        InvalidInputError: It has others.
    """
    for name, part in node.args.items():
        if part and name not in known:
            raise refused(
                f"{name.strip('_').replace('_', ' ').upper()} in {shown_sql(node)}", instead
            )


def unknown_statement(verb: str) -> InvalidInputError:
    """Return the error for a statement of a known first word that has no form of ours."""
    hint = _REMEDIES.get(verb, f"Statements are {KNOWN}.")
    return InvalidInputError(f"Lakebed's SQL has no such {verb} statement.", hint=hint)


def unreadable(text: str, reason: str) -> InvalidInputError:
    """Return the error for a statement that cannot be parsed."""
    return InvalidInputError(
        f"The SQL cannot be read: {reason}.",
        hint=f"Write one statement in Spark's dialect; given was {shown(cut(text.strip()))}.",
    )


def shown_sql(node: object) -> str:
    """Return a part of a tree as text for a message."""
    return shown(to_text(node))
