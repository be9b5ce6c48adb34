"""Statements that sqlglot has no form for: OPTIMIZE, VACUUM, RESTORE, SHOW and DESCRIBE."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from lakebed.dataset import Dataset
from lakebed.errors import InvalidInputError
from lakebed.model.sql_dialect import to_text
from lakebed.model.sql_heads import FirstWords, without_comments
from lakebed.model.sql_predicates import read_tree
from lakebed.sql import table_statements
from lakebed.sql.lake_access import StatementOrder
from lakebed.sql.refusals import unknown_statement
from lakebed.sql.session_meaning import SessionMeaning, column_types_of, instant_of
from lakebed.sql.statement_columns import Sides, in_terms_of_target
from lakebed.view import View

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
            view = None if found["where"] is None else _view_of(order, dataset, found["where"])
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


def _view_of(order: StatementOrder, dataset: Dataset, text: str) -> View:
    if order.spark is None:
        return dataset.where(text)
    types = column_types_of(dataset)
    sides = Sides(dataset.name, types)
    condition = SessionMeaning(order.spark, sides, types).condition(read_tree(text))
    return dataset.where(to_text(in_terms_of_target(condition, sides, in_view=True)))


def _restored(order: StatementOrder, dataset: Any, found: re.Match[str]) -> Any:
    moment = found["moment"].strip("'")
    if found["kind"].upper() == "TIMESTAMP":
        time = moment if order.spark is None else instant_of(order.spark, moment)
        return dataset.rollback(time=time, dry_run=order.is_dry_run)
    if not moment.isdigit():
        raise InvalidInputError(
            f"The version is {moment!r}.", hint="Write a number: VERSION AS OF 3."
        )
    return dataset.rollback(version=int(moment), dry_run=order.is_dry_run)
