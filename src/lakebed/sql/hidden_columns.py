"""Hidden columns in queries of DuckDB, which has none: a query names them, and `*` leaves them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

from lakebed.model.footprint import FOOTPRINT

if TYPE_CHECKING:
    from sqlglot import exp


def named_footprints(tree: exp.Expr) -> Iterator[tuple[str, ...]]:
    """Yield the columns of the footprint that a query may mean, the fewest first.

    A name may also be that of a column of another table, or of an outer query.
    """
    from sqlglot import exp

    words = {word.name.casefold() for word in tree.find_all(exp.Identifier)}
    named = [name for name in FOOTPRINT if name in words]
    for count in range(1, len(named) + 1):
        yield from combinations(named, count)


def without_hidden(query: str, tree: exp.Expr, hidden: Mapping[str, tuple[str, ...]]) -> str:
    """Return a query whose `*` leaves hidden columns out; empty if another part would show them.

    Args:
        query: The text of the query.
        tree: Its tree.
        hidden: Hidden columns by the name of a table.
    """
    from sqlglot import exp
    from sqlglot.optimizer.scope import traverse_scope

    tree = tree.copy()
    if tree.find(exp.Pivot, exp.Columns, exp.Summarize, exp.Describe) is not None:
        return ""
    has_changed = False
    for scope in traverse_scope(tree):
        tables = {
            alias: hidden[source.name]
            for alias, (_, source) in scope.selected_sources.items()
            if isinstance(source, exp.Table) and source.name in hidden
        }
        if not tables:
            continue
        joins = scope.expression.args.get("joins") or ()
        if any(join.method == "NATURAL" for join in joins):
            return ""
        for join in joins:
            if join.kind in ("SEMI", "ANTI"):  # not part of `*`
                tables.pop(join.this.alias_or_name, None)
        rows = {alias.casefold() for alias in tables}
        if any(not one.table and one.name.casefold() in rows for one in scope.columns):
            return ""  # a whole row as one value
        for star in scope.find_all(exp.Star):
            holder = star.parent
            if isinstance(holder, exp.Count):
                continue
            is_listed = holder is scope.expression or (
                isinstance(holder, exp.Column) and holder.parent is scope.expression
            )
            if not is_listed:
                return ""
            has_changed |= _leave_out(star, tables)
    return tree.sql(dialect="duckdb") if has_changed else query


def _leave_out(star: exp.Expr, tables: Mapping[str, tuple[str, ...]]) -> bool:
    from sqlglot import exp

    table = star.parent.table if isinstance(star.parent, exp.Column) else None
    left_out = [
        exp.column(name, table=alias, quoted=True)
        for alias, names in tables.items()
        if table is None or alias.casefold() == table.casefold()
        for name in names
    ]
    star.set("except_", [*(star.args.get("except_") or ()), *left_out])
    return bool(left_out)
