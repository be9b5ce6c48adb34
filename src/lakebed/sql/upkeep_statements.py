"""Statements that sqlglot has no form for: OPTIMIZE, VACUUM, RESTORE, SHOW and DESCRIBE."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from lakebed.errors import InvalidInputError
from lakebed.model.sql_heads import FirstWords, without_comments
from lakebed.sql import table_statements
from lakebed.sql.lake_access import StatementOrder
from lakebed.sql.refusals import unknown_statement

_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|\w+)"
_PATTERNS = {
    "OPTIMIZE": rf"OPTIMIZE\s+{_NAME}(?:\s+WHERE\s+(?P<where>.+?))?"
    r"(?:\s+ZORDER\s+BY\s*\(?(?P<columns>[^()]+)\)?)?",
    "VACUUM": rf"VACUUM\s+{_NAME}(?:\s+(?:FULL|LITE))?"
    r"(?:\s+RETAIN\s+(?P<hours>\d+(?:\.\d+)?)\s+HOURS?)?(?P<dry>\s+DRY\s+RUN)?",
    "RESTORE": rf"RESTORE\s+(?:TABLE\s+)?{_NAME}\s+(?:TO\s+)?(?P<kind>VERSION|TIMESTAMP)\s+AS\s+OF\s+"
    r"(?P<moment>\d+|'[^']*')",
    "SHOW": r"SHOW\s+TABLES(?:\s+(?:LIKE\s+)?'(?P<pattern>[^']*)')?",
    "DESCRIBE": rf"DESC(?:RIBE)?\s+(?:(?P<history>HISTORY)|(?P<detail>DETAIL)|(?:TABLE\s+)?EXTENDED|TABLE)"
    rf"\s+{_NAME}(?:\s+LIMIT\s+(?P<limit>\d+))?",
}
_FORMS = {
    "OPTIMIZE": "OPTIMIZE t [WHERE condition] [ZORDER BY (a, b)]",
    "VACUUM": "VACUUM t [RETAIN n HOURS] [DRY RUN]",
    "RESTORE": "RESTORE TABLE t TO VERSION AS OF 3, or TO TIMESTAMP AS OF '2026-01-31 12:00:00'",
    "SHOW": "SHOW TABLES [LIKE 'fl*']",
    "DESCRIBE": "DESCRIBE TABLE t, DESCRIBE DETAIL t, or DESCRIBE HISTORY t [LIMIT 3]",
}
VERBS = frozenset(_PATTERNS)


def run(order: StatementOrder, head: FirstWords, text: str) -> Any:
    """Carry out such a statement, and return the report of its verb.

    Raises:
        InvalidInputError: It has another form.
    """
    bare = without_comments(text).strip().removesuffix(";").strip()
    found = re.fullmatch(_PATTERNS[head.verb], bare, re.I | re.S)
    if found is None:
        error = unknown_statement(head.verb)
        raise InvalidInputError(error.message, hint=f"Write {_FORMS[head.verb]}.")
    if head.verb == "SHOW":
        return table_statements.tables_like(order.lake, found["pattern"])
    dataset = order.lake.open(head.name)
    match head.verb:
        case "OPTIMIZE":
            view = None if found["where"] is None else dataset.where(found["where"])
            columns = [name.strip().strip("`") for name in (found["columns"] or "").split(",")]
            return dataset.compact(
                view,
                sort_by=[name for name in columns if name] or None,
                spark=order.spark,
                dry_run=order.is_dry_run,
            )
        case "VACUUM":
            is_dry = order.is_dry_run or found["dry"] is not None
            if found["hours"] is None:
                return dataset.cleanup(dry_run=is_dry, spark=order.spark)
            age = dt.timedelta(hours=float(found["hours"]))
            return dataset.cleanup(age, is_dry, spark=order.spark)
        case "RESTORE":
            return _restored(order, dataset, found)
    if found["history"]:
        return table_statements.history_of(dataset, table_statements.check_limit(found["limit"]))
    if found["limit"]:
        raise InvalidInputError(
            "LIMIT stands without HISTORY.", hint=f"Write {_FORMS['DESCRIBE']}."
        )
    return (
        table_statements.detail_of(dataset)
        if found["detail"]
        else table_statements.columns_of(dataset)
    )


def _restored(order: StatementOrder, dataset: Any, found: re.Match[str]) -> Any:
    moment = found["moment"].strip("'")
    if found["kind"].upper() == "TIMESTAMP":
        return dataset.rollback(time=moment, dry_run=order.is_dry_run)
    if not moment.isdigit():
        raise InvalidInputError(
            f"The version is {moment!r}.", hint="Write a number: VERSION AS OF 3."
        )
    return dataset.rollback(version=int(moment), dry_run=order.is_dry_run)
