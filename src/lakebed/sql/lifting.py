"""Parts of clauses that concern the source alone, which become columns of its query.

In a session of Spark, what only the source decides is computed there, with all of its functions and
settings. Else only columns are taken from the source, and all is computed in the language of
conditions: DuckDB, which reads the source, gives some expressions another meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from lakebed.model.merging import Side
from lakebed.model.predicate import sql_name
from lakebed.model.schema import Type
from lakebed.model.sql_dialect import to_text
from lakebed.model.sql_predicates import operands_of
from lakebed.sql.refusals import refused
from lakebed.sql.statement_columns import (
    Sides,
    check_no_query,
    column_of,
    in_terms_of_sides,
)


class Lifted:
    """The columns that the query of the source must have.

    Attributes:
        wanted: Types of fields that columns are converted to, by the names of the columns.
    """

    def __init__(self, sides: Sides, fields: Sequence[str], *, is_of_session: bool) -> None:
        """Start without columns.

        Args:
            sides: The tables of the statement.
            fields: Columns of the dataset, whose names only keys may have.
            is_of_session: Whether a session of Spark reads the source.
        """
        self._sides = sides
        self._is_of_session = is_of_session
        self._taken = set(fields)
        self._columns: dict[str, exp.Expr] = {}
        self._known: dict[tuple[str, str], str] = {}
        self.wanted: dict[str, Type] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    def query_of(self, using: exp.Expr) -> exp.Select:
        """Return the query of the source, with these columns."""
        columns = [
            exp.alias_(value.copy(), name, quoted=True) for name, value in self._columns.items()
        ]
        return exp.select(*columns).from_(using.copy())

    def add_key(self, field: str, value: exp.Expr, kind: Type) -> None:
        """Add the key of a field of the dataset."""
        self._columns[field] = value
        self.wanted[field] = kind

    def column(self, value: exp.Expr, kind: Type | None = None) -> str:
        """Return the name of the column that holds a value, in the type of a field."""
        key = (to_text(value), "" if kind is None else str(kind))
        if key in self._known:
            return self._known[key]
        found = self._sides.find(value)
        stem = "source_" + ("value" if found is None else "_".join(found.path))
        name, number = stem, 1
        while name in self._taken or name in self._columns:
            number += 1
            name = f"{stem}_{number}"
        self._known[key] = name
        self._columns[name] = value
        if kind is not None:
            self.wanted[name] = kind
        return name

    def as_typed(self, text: str) -> str:
        """Return the text of an error with the columns and aliases of the statement.

        A merge names columns of the source as its query has them, and both rows by their sides.
        """
        for name in sorted(self.wanted.keys() | self._known.values(), key=len, reverse=True):
            if name in self._taken:
                continue  # a key, which has the name of its field
            typed = self._typed(self._columns[name])
            text = re.sub(rf"(?:`?\bsource`?\.)?(`?)\b{re.escape(name)}\b\1", lambda _: typed, text)  # noqa: B023 - used at once
        return re.sub(r"`?\btarget`?\.(?=[\w`])", lambda _: f"{self._sides.target}.", text)

    def _typed(self, value: exp.Expr) -> str:
        found = self._sides.find(value)
        if found is None:
            return to_text(value)
        return sql_name(".".join((self._sides.source, *found.path)))

    def condition(self, node: exp.Expr) -> str:
        """Return a condition on both rows as text for a merge."""
        check_no_query(node)
        return to_text(self._condition(node))

    def value(self, node: exp.Expr, kind: Type) -> str:
        """Return the value of a field as text for a merge."""
        check_no_query(node)
        # A time that a session means is a text here, which the merge reads as the type of its field.
        is_read = isinstance(node, exp.Null) or (isinstance(node, exp.Literal) and node.is_string)
        if self._is_lifted(node) and self._sides.of(node) <= {Side.SOURCE} and not is_read:
            return to_text(column_of(Side.SOURCE, self.column(node, kind)))
        return to_text(self._value(node, kind))

    def _is_lifted(self, node: exp.Expr) -> bool:
        """Return whether a part that concerns the source alone is a column of its query."""
        return self._is_of_session or self._sides.find(node) is not None

    def _of_source(self, node: exp.Expr, kind: Type | None = None) -> exp.Expr:
        return column_of(Side.SOURCE, self.column(node, kind))

    def _condition(self, node: exp.Expr) -> exp.Expr:
        match node:
            case exp.Paren():
                return exp.Paren(this=self._condition(node.this))
            case exp.And() | exp.Or():
                joined, *others = [self._condition(part) for part in operands_of(node)]
                for other in others:
                    joined = type(node)(this=joined, expression=other)
                return joined
            case exp.Not():
                return exp.Not(this=self._condition(node.this))
        sides = self._sides.of(node)
        if sides == {Side.SOURCE} and self._is_lifted(node):
            return self._of_source(node)
        if Side.SOURCE not in sides:
            return in_terms_of_sides(node, self._sides)
        if not self._is_of_session:
            return self._value(node, None)
        match node:
            case exp.Between() if node.args.get("symmetric"):
                raise refused(
                    "BETWEEN SYMMETRIC of two tables",
                    "Write (x BETWEEN a AND b OR x BETWEEN b AND a).",
                )
            case exp.Between():
                low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
                high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
                return exp.Paren(this=self._condition(exp.And(this=low, expression=high)))
            case exp.In() if node.expressions:
                parts: list[exp.Expr] = [
                    exp.EQ(this=node.this.copy(), expression=item.copy())
                    for item in node.expressions
                ]
                either = parts[0]
                for part in parts[1:]:
                    either = exp.Or(this=either, expression=part)
                return exp.Paren(this=self._condition(either))
        return self._value(node, None)

    def _value(self, node: Any, kind: Type | None) -> exp.Expr:
        """Return a value, whose parts of the source alone are columns of the type, if it has one."""
        sides = self._sides.of(node)
        if sides == {Side.SOURCE} and self._is_lifted(node):
            return self._of_source(node, kind if self._is_of_session else None)
        own: exp.Expr = node.copy()
        if not sides:
            return own
        found = self._sides.find(node)
        if found is not None:
            return column_of(found.side, *found.path)
        if isinstance(node, exp.Case | exp.If):
            return self._choice(node, kind)
        inner = None if isinstance(node, exp.Cast | exp.Round) else kind
        for name, part in node.args.items():
            if isinstance(part, list):
                own.set(name, [self._value(one, inner) if _is_part(one) else one for one in part])
            elif _is_part(part) and not isinstance(part, exp.DataType):
                own.set(name, self._value(part, inner))
        return own

    def _choice(self, node: Any, kind: Type | None) -> exp.Expr:
        own: exp.Expr = node.copy()
        for branch in [own] if isinstance(own, exp.If) else own.args["ifs"]:
            asked = branch.this
            if isinstance(own, exp.Case) and own.this is not None:
                asked = exp.EQ(this=own.this.copy(), expression=asked.copy())
            branch.set("this", self._condition(asked))
            branch.set("true", self._value(branch.args["true"], kind))
        rest = "false" if isinstance(own, exp.If) else "default"
        if own.args.get(rest) is not None:
            own.set(rest, self._value(own.args[rest], kind))
        if isinstance(own, exp.Case):
            own.set("this", None)
        return own


def _is_part(node: object) -> bool:
    return hasattr(node, "iter_expressions")
