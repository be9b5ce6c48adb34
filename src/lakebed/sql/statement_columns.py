"""Columns in the clauses of a statement: which side each belongs to, and how it is spelt there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.merging import Side
from lakebed.model.names import nearest
from lakebed.model.sql_dialect import to_text
from lakebed.sql.refusals import refused, shown_sql

if TYPE_CHECKING:
    from sqlglot import expressions as exp


@dataclass(frozen=True, slots=True)
class Found:
    """A column in a clause.

    Attributes:
        side: The side that it belongs to.
        path: Its name, and the fields of records in it.
    """

    side: Side
    path: tuple[str, ...]


class Sides:
    """The two tables of a statement, by their names in it."""

    def __init__(
        self,
        target: str,
        fields: Collection[str],
        source: str = "",
        columns: Collection[str] = (),
    ) -> None:
        """Take the names.

        Args:
            target: Name or alias of the dataset in the statement.
            fields: Its columns.
            source: Name or alias of the source; empty for a statement without one.
            columns: Columns of the source.
        """
        self._names = {Side.TARGET: target, Side.SOURCE: source}
        self._columns = {Side.TARGET: tuple(fields), Side.SOURCE: tuple(columns)}

    @property
    def target(self) -> str:
        """Name or alias of the dataset in the statement."""
        return self._names[Side.TARGET]

    @property
    def source(self) -> str:
        """Name or alias of the source in the statement."""
        return self._names[Side.SOURCE]

    def find(self, node: exp.Expr) -> Found | None:
        """Return the column that a node is; None if it is something else.

        Raises:
            PredicateError: The column is unknown, or of both sides.
        """
        from sqlglot import exp

        if not isinstance(node, exp.Column | exp.Dot):
            return None
        parts = node.parts
        if not all(isinstance(part, exp.Identifier) for part in parts):
            return None
        names = [part.name for part in parts]
        for side, alias in self._names.items():
            if len(names) > 1 and alias and names[0].casefold() == alias.casefold():
                return Found(side, (self.spelt(side, names[1]), *names[2:]))
        having = [side for side in self._names if _match(names[0], self._columns[side]) is not None]
        if len(having) == 1:
            return Found(having[0], (self.spelt(having[0], names[0]), *names[1:]))
        if having:
            aliases = " or ".join(f"{alias}.{names[0]}" for alias in self._names.values())
            raise PredicateError(
                f"The column {names[0]!r} is one of both tables.", hint=f"Write {aliases}."
            )
        known = [name for columns in self._columns.values() for name in columns]
        raise PredicateError(
            f"Unknown column {'.'.join(names)!r} in the statement.",
            hint=nearest(names[0], known) or f"Columns are: {', '.join(dict.fromkeys(known))}.",
        )

    def spelt(self, side: Side, name: str) -> str:
        """Return a column as its table spells it: in Spark's SQL, case does not matter.

        Raises:
            PredicateError: The table lacks the column.
        """
        found = _match(name, self._columns[side])
        if found is None:
            columns = self._columns[side]
            raise PredicateError(
                f"Unknown column {name!r} of {self._names[side] or str(side)!r}.",
                hint=nearest(name, columns) or f"It has: {', '.join(columns)}.",
            )
        return found

    def of(self, node: exp.Expr) -> frozenset[Side]:
        """Return the sides whose columns a part of a tree names."""
        return frozenset(found.side for _, found in self.within(node))

    def within(self, node: exp.Expr) -> Iterator[tuple[exp.Expr, Found]]:
        """Yield the columns in a part of a tree."""
        waiting = [node]  # no recursion: a long condition is a deep tree
        while waiting:
            part = waiting.pop()
            found = self.find(part)
            if found is not None:
                yield part, found
            else:
                waiting += reversed(list(part.iter_expressions()))


def _match(name: str, columns: Collection[str]) -> str | None:
    if name in columns:
        return name
    alike = [column for column in columns if column.casefold() == name.casefold()]
    return alike[0] if len(alike) == 1 else None


def column_of(side: Side, *path: str) -> exp.Expr:
    """Return a column as conditions and values of a merge name it, such as `target.x`."""
    return _column(str(side), *path)


def _column(*path: str) -> exp.Expr:
    from sqlglot import exp

    names = [exp.to_identifier(name, quoted=True) for name in path]
    if len(names) <= 4:
        return exp.Column(
            **dict(zip(("this", "table", "db", "catalog"), names[::-1], strict=False))
        )
    return exp.Dot.build([exp.Column(this=names[0]), *names[1:]])


def in_terms_of_sides(node: exp.Expr, sides: Sides) -> exp.Expr:
    """Return a part of a tree with its columns as `target.x` and `source.x`."""
    return _renamed(node, sides, lambda _, found: column_of(found.side, *found.path))


def in_terms_of_target(node: exp.Expr, sides: Sides, *, in_view: bool = False) -> exp.Expr:
    """Return a part of a tree with its columns as `target.x`, or as a view names them.

    Raises:
        InvalidInputError: It holds a query, or a column of another table.
        PredicateError: A column is unknown.
    """
    check_no_query(node)

    def named(column: exp.Expr, found: Found) -> exp.Expr:
        if found.side is not Side.TARGET:
            raise InvalidInputError(
                f"{shown_sql(column)} is a column of the source, in a clause without one.",
                hint="Rows that match none have no row of the source: use columns of the dataset.",
            )
        return _column(*found.path) if in_view else column_of(found.side, *found.path)

    return _renamed(node, sides, named)


def _renamed(
    node: exp.Expr, sides: Sides, name_of: Callable[[exp.Expr, Found], exp.Expr]
) -> exp.Expr:
    own = node.copy()
    for column, found in list(sides.within(own)):
        other = name_of(column, found)
        if column is own:
            return other
        column.replace(other)
    return own


def check_no_query(node: exp.Expr) -> None:
    """Check that a clause holds no query of its own.

    Raises:
        InvalidInputError: It does.
    """
    from sqlglot import exp

    query = node.find(exp.Query)
    if query is not None:
        raise refused(
            f"subquery in a condition or a value, such as {shown_sql(query)}",
            "Join it: MERGE INTO t USING (SELECT …) s ON t.id = s.id WHEN MATCHED THEN DELETE or "
            "UPDATE SET ….",
        )


def target_name(table: object, what: str) -> tuple[str, str]:
    """Return the name of the dataset that a statement changes, and its alias.

    Raises:
        InvalidInputError: It is not a name alone.
    """
    from sqlglot import exp

    if isinstance(table, exp.Schema):
        table = table.this
    if (
        not isinstance(table, exp.Table)
        or not isinstance(table.this, exp.Identifier)
        or any(part and name not in ("this", "alias") for name, part in table.args.items())
        or table.alias_column_names
    ):
        text = to_text(table) if isinstance(table, exp.Expression) else str(table)
        raise InvalidInputError(
            f"{what} names {shown(text)}.",
            hint="Name a dataset of the repository alone, at its current version: t, or `my-t`; join "
            "others by MERGE INTO t USING s.",
        )
    return table.name, table.alias or table.name
