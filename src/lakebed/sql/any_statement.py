"""SQL statements on the datasets of a repository: reading, and the way to the verb of each."""

from __future__ import annotations

import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.sql_dialect import parse, quoted_words, to_text
from lakebed.model.sql_heads import FirstWords, changes, head_of, without_texts
from lakebed.model.sql_predicates import check_quotes, why_unreadable
from lakebed.sql import (
    asking,
    merge_statement,
    row_statements,
    table_statements,
    upkeep_statements,
)
from lakebed.sql.lake_access import StatementOrder, open_table
from lakebed.sql.refusals import KNOWN, refused, unknown_statement, unreadable
from lakebed.sql.session_meaning import check_texts
from lakebed.sql.statement_columns import Sides, in_terms_of_target
from lakebed.sql.statement_source import QuerySource, opener_by_name

if TYPE_CHECKING:
    from sqlglot import expressions as exp

    from lakebed.view import View

_OF_A_MOMENT = re.compile(r"\b(?:VERSION|TIMESTAMP)\s+AS\s+OF\b", re.I)
_EVOLUTION = re.compile(r"\bWITH\s+SCHEMA\s+EVOLUTION\b", re.I)
_REPLACING = re.compile(r"\bREPLACE\s+(?:USING|ON)\b", re.I)


def run(order: StatementOrder, text: str) -> Any:
    """Run one statement; see `Repository.sql`.

    Args:
        order: Repository, session and options.
        text: The statement.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"The SQL is a {type(text).__name__}.", hint="Give one statement.")
    try:
        return _run(order, text)
    except RecursionError as exc:
        raise unreadable(text, why_unreadable(exc)) from exc


def _run(order: StatementOrder, text: str) -> Any:
    if order.spark is not None:
        check_texts(order.spark, text)
    head = head_of(text)
    if head is None:
        return _answer(order, text)
    if head.qualifier:
        raise InvalidInputError(
            f"{head.verb} names {head.qualifier}.{head.name}.",
            hint=f"Name a dataset of the repository alone: {head.name}.",
        )
    if head.name == "" and not head == FirstWords("SHOW"):
        raise _not_ours(head)
    _check_allowed(order, text)
    if head.verb in upkeep_statements.VERBS:
        if head.name == "?":
            raise unknown_statement("SHOW")
        return upkeep_statements.run(order, head, text)
    # The expressions of these are computed in the language of conditions, but for those of a session.
    as_written = order.spark is None and head.verb in ("DELETE", "UPDATE", "MERGE")
    tree = _tree_of(text, as_written=as_written)
    if any(quoted_words(text)) and order.lake.exists(head.name):
        check_quotes(text, order.lake.open(head.name).descriptor.column_types)
    return _changed(order, tree, head)


def _check_allowed(order: StatementOrder, text: str) -> None:
    """Check that a statement changes nothing, unless that is allowed.

    Raises:
        InvalidInputError: It does.
    """
    verb = changes(text)
    if verb is not None and not (order.may_write or order.is_dry_run):
        raise InvalidInputError(
            f"{verb} may change datasets, and write=True is not given.",
            hint="Allow it: lake.sql(…, write=True), on the command line --write. With dry_run=True, "
            "or --dry-run, it shows what would change.",
        )


def _not_ours(head: FirstWords) -> InvalidInputError:
    if head.verb in ("UPDATE", "DELETE", "MERGE", "INSERT", "OPTIMIZE", "VACUUM", "RESTORE"):
        return InvalidInputError(
            f"{head.verb} names no dataset that can be read.",
            hint=f"Name a dataset alone, with other characters than letters, digits and _ in "
            f"backticks; statements are {KNOWN}.",
        )
    return unknown_statement(head.verb)


def _changed(order: StatementOrder, tree: exp.Expr, head: FirstWords) -> Any:
    from sqlglot import exp

    match tree:
        case exp.Merge():
            return merge_statement.merge(order, tree)
        case exp.Update():
            return row_statements.update(order, tree)
        case exp.Delete():
            return row_statements.delete(order, tree)
        case exp.Insert():
            return row_statements.insert(order, tree)
        case exp.TruncateTable():
            return row_statements.truncate(order, tree)
        case exp.Create() if tree.args["kind"] == "TABLE":
            return table_statements.create(order, tree)
        case exp.Alter() if tree.args["kind"] == "TABLE":
            return table_statements.alter(order, tree)
        case exp.Drop() if tree.args["kind"] == "TABLE":
            return table_statements.drop(order, tree)
    raise unknown_statement(head.verb)


def _answer(order: StatementOrder, text: str) -> pa.Table:
    """Return the result of a query: by DuckDB in its dialect, or of Spark's tables by Spark.

    DuckDB cannot read a dataset at a moment, so that a query with one is of Spark's dialect.
    """
    if order.spark is None:
        if not _OF_A_MOMENT.search(without_texts(text)):
            return _selected(order, text)
        word = next(quoted_words(text), None)
        if word is not None:
            raise refused(
                f"text in double quotes, as in {shown(word)}, beside VERSION AS OF and TIMESTAMP AS OF",
                f"Write '{word}' for a text, and `{word}` for a name.",
            )
    from sqlglot import exp

    tree = _tree_of(text)
    changing = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Command)
    if not isinstance(tree, exp.Query) or tree.find(*changing) is not None:
        raise refused("statement of this kind", f"Statements are {KNOWN}.")
    source = QuerySource(order, tree)
    try:
        return source.arrow(tree)
    finally:
        source.close()


def _selected(order: StatementOrder, text: str) -> pa.Table:
    """Return the result of a query that DuckDB runs.

    A condition on the rows of one dataset is left to the dataset, so that it has the meaning that it
    has in DELETE and UPDATE. DuckDB gives NULL for a division by zero, and rounds where Spark cuts.
    """
    from sqlglot import exp

    opener = opener_by_name(order)
    try:
        asked: Any = asking.tree_of(text)
    except InvalidInputError:
        asked = None  # for a text of Spark in the condition, such as 'x' 'y', or it is wrong
    if asked is None or (isinstance(asked, exp.Select) and asked.args.get("where") is not None):
        tree = _of_one_dataset(order, text)
        view = None if tree is None else _view_of(order, tree)
        if view is not None:
            whole: Any = tree if asked is None else asked
            whole.set("where", None)
            return asking.ask(whole.sql("duckdb"), lambda _, wanted: asking.rows_of(view, wanted))
    return asking.ask(text, opener, None if asked is None else (asked, asking.tables_of(asked)))


def _of_one_dataset(order: StatementOrder, text: str) -> Any | None:
    """Return the tree of a query of one dataset with a condition; None of another one."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    try:
        with _quiet:
            (tree,) = parse(text)
    except (SqlglotError, LakebedError, ValueError):
        return None  # of DuckDB alone, or wrong
    table = tree.find(exp.Table)
    if not isinstance(tree, exp.Select) or tree.args.get("where") is None or table is None:
        return None
    is_alone = len(list(tree.find_all(exp.Table, exp.Query))) == 2
    parts = {name for name, part in table.args.items() if part}
    is_plain = is_alone and tree.args["from_"].this is table and parts <= {"this", "alias"}
    is_given = table.name in order.tables or any(quoted_words(text))
    return tree if is_plain and not is_given else None


def _view_of(order: StatementOrder, tree: Any) -> View | None:
    """Return the rows of the dataset that meet the condition; None if only DuckDB can read it."""
    table = tree.args["from_"].this
    try:
        dataset = open_table(order.lake, table.name).snapshot()
        sides = Sides(table.alias or table.name, dataset.schema.names)
        condition = in_terms_of_target(tree.args["where"].this, sides, in_view=True)
        return dataset.where(to_text(condition))
    except LakebedError:
        return None  # DuckDB may know it, or raises an error of its own


class _Quiet(logging.Filter):
    """Keeps the log of sqlglot silent about forms that it does not know: these are refused by name.

    It is silent for as long as any thread is in the block.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            logging.getLogger("sqlglot").addFilter(self)

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._count -= 1
            if not self._count:
                logging.getLogger("sqlglot").removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - of the base class
        """Drop a record."""
        return False


_quiet = _Quiet()


def _tree_of(text: str, *, as_written: bool = False) -> Any:
    from sqlglot.errors import SqlglotError

    bare = without_texts(text)
    if _EVOLUTION.search(bare):
        raise refused(
            "WITH SCHEMA EVOLUTION", "Add the columns first: ALTER TABLE t ADD COLUMN x STRING."
        )
    if _REPLACING.search(bare):
        raise refused(
            "INSERT … REPLACE USING or ON",
            "Write INSERT INTO t REPLACE WHERE condition SELECT …, or MERGE.",
        )
    try:
        with _quiet:
            trees = parse(text, as_written=as_written)
    except SqlglotError as exc:
        raise unreadable(text, why_unreadable(exc)) from exc
    if len(trees) != 1:
        raise InvalidInputError(
            f"The text has {len(trees)} statements.", hint="Run one statement at a time."
        )
    return trees[0]
