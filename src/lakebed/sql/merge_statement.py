"""MERGE as SQL text: clauses of a merge, and the query of its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp

from lakebed.dataset import Dataset
from lakebed.errors import LakebedError, SchemaMismatchError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.merging import OrderedClauses, RowClause, Side
from lakebed.model.names import nearest
from lakebed.model.schema import MISSING, Field, Schema
from lakebed.model.sql_dialect import to_text
from lakebed.model.sql_predicates import operands_of
from lakebed.sql.lake_access import StatementOrder
from lakebed.sql.lifting import Lifted
from lakebed.sql.refusals import check_parts, refused, shown_sql
from lakebed.sql.session_meaning import SessionMeaning, column_types_of
from lakebed.sql.statement_columns import (
    Sides,
    check_no_query,
    column_of,
    in_terms_of_sides,
    in_terms_of_target,
    target_name,
)
from lakebed.sql.statement_source import QuerySource, check_distinguished

if TYPE_CHECKING:
    from lakebed.work.merge import MergeReport


def merge(order: StatementOrder, tree: exp.Merge) -> MergeReport:
    """Carry out a MERGE.

    Raises:
        InvalidInputError: A form of it is not supported; the hint names another one.
        DuplicateKeyError: Two rows of the source would change the same row of the dataset.
    """
    name, alias = target_name(tree.this, "MERGE")
    dataset = order.lake.open(name)
    if tree.args.get("with_") is not None:
        query = tree.args["with_"]
        raise refused(
            f"{shown_sql(query)} before MERGE", "Put the query into USING: USING (SELECT …) s."
        )
    check_parts(tree, ("this", "using", "on", "whens"), "Give keys by ON t.id = s.id.")
    for when in tree.args["whens"].expressions:
        _check_action(when.args["then"])
    using = tree.args["using"]
    source = QuerySource(order, _query_of(using), name)
    try:
        columns = source.columns()
        check_distinguished(f"source {using.alias_or_name!r}", columns)
        statement = _Merge(order, dataset, alias, using, columns)
        clauses = statement.clauses(tree)
        query = statement.lifted.query_of(using)
        try:
            rows = source.rows(query, statement.lifted.wanted, statement.lifted.names, clauses.on)
            return dataset._merged(
                rows,
                clauses,
                run=order.run,
                base=source.base,
                spark=order.spark,
                dry_run=order.is_dry_run,
            )
        except LakebedError as exc:
            exc.message = statement.lifted.as_typed(exc.message)
            exc.hint = statement.lifted.as_typed(exc.hint)
            exc.args = (exc.message,)
            raise
    finally:
        source.close()


def _where_met(conditions: list[exp.Expr], value: exp.Expr) -> exp.Expr:
    """Return a key of the source, which is null and matches nothing where a condition is not true."""
    if not conditions:
        return value
    met = exp.and_(*(condition.copy() for condition in conditions))
    return exp.Case(ifs=[exp.If(this=met, true=value.copy())])


def _query_of(using: exp.Expr) -> exp.Expr:
    is_rows = isinstance(using, exp.Table | exp.Subquery | exp.Values)
    if not is_rows or not using.alias_or_name:
        raise refused(
            f"source such as {shown_sql(using)}",
            "Give a table, or a query with an alias: (SELECT …) s.",
        )
    if isinstance(using, exp.Subquery) and not using.alias_column_names:
        whole: exp.Expr = using.unnest()
        return whole
    return exp.select("*").from_(using.copy())


class _Merge:
    """The reading of one statement."""

    def __init__(
        self,
        order: StatementOrder,
        dataset: Dataset,
        alias: str,
        using: exp.Expr,
        columns: tuple[str, ...],
    ) -> None:
        descriptor = dataset.descriptor
        self._schema = descriptor.schema
        self._sources = sources_of(descriptor)
        fields = tuple(dict.fromkeys((*self._schema.names, *descriptor.column_types)))
        self._columns = columns
        self._sides = Sides(alias, fields, using.alias_or_name, columns)
        self._meaning = SessionMeaning(order.spark, self._sides, column_types_of(dataset))
        self.lifted = Lifted(self._sides, fields, is_of_session=order.spark is not None)

    def clauses(self, tree: exp.Merge) -> OrderedClauses:
        """Return the clauses, and note the columns of the source that they need."""
        on, on_computed, match_where = self._on(tree.args["on"])
        matched, missing, inserts = [], [], []
        _check_reached(tree.args["whens"].expressions)
        for when in tree.args["whens"].expressions:
            if when.args["matched"]:
                matched.append(self._matched(when))
            elif when.args.get("source"):
                missing.append(self._missing(when))
            else:
                inserts.append(when)
        inserted, insert_where = self._inserts(inserts)
        return OrderedClauses(
            on=on,
            on_computed=on_computed,
            match_where=match_where,
            matched=tuple(matched),
            missing=tuple(missing),
            inserted=inserted,
            insert_where=insert_where,
        )

    def _on(self, node: exp.Expr | None) -> tuple[tuple[str, ...], dict[str, str], str | None]:
        """Return the keys, those that are computed, and the rest of the condition."""
        if not node:
            raise refused("MERGE without ON", "Give keys: ON t.id = s.id.")
        check_no_query(node)
        keys: dict[str, exp.Expr] = {}
        computed: list[tuple[exp.Expr, exp.Expr]] = []
        of_source: list[exp.Expr] = []
        rest: list[exp.Expr] = []
        for part in _conjuncts(node):
            key = self._key(part)
            if key is not None and key[0] not in keys:
                keys[key[0]] = key[1]
            elif self._sides.of(part) == {Side.SOURCE}:
                of_source.append(part)
            elif (pair := self._computed_key(part)) is not None:
                computed.append(pair)
            else:
                rest.append(part)
        if not keys and not computed:
            raise refused(
                f"MERGE whose ON is {shown_sql(node)}",
                "Give at least one equality of a field and a value of the source, joined to the "
                "rest by AND: ON t.id = s.id AND ….",
            )
        for name, value in keys.items():
            self.lifted.add_key(name, _where_met(of_source, value), self._schema.get(name).type)
        on_computed = {
            self.lifted.column(_where_met(of_source, value)): to_text(
                in_terms_of_sides(self._meaning.condition(key), self._sides)
            )
            for key, value in computed
        }
        meant = [self._meaning.condition(part) for part in rest]
        text = " AND ".join(f"({self.lifted.condition(part)})" for part in meant)
        return tuple(keys), on_computed, text or None

    def _computed_key(self, node: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """Return an expression on the dataset, and the value of the source that it is equal to."""
        if not isinstance(node, exp.EQ):
            return None
        left, right = node.args["this"], node.args["expression"]
        for one, other in ((left, right), (right, left)):
            if self._sides.of(one) == {Side.TARGET} and self._sides.of(other) == {Side.SOURCE}:
                return one, other
        return None

    def _key(self, node: exp.Expr) -> tuple[str, exp.Expr] | None:
        """Return the field and the value of the source that an equality joins."""
        if not isinstance(node, exp.EQ):
            return None
        for one, other in (
            (node.args["this"], node.args["expression"]),
            (node.args["expression"], node.args["this"]),
        ):
            found = self._sides.find(one)
            is_field = found is not None and found.side is Side.TARGET and len(found.path) == 1
            if is_field and found is not None and self._sides.of(other) == {Side.SOURCE}:
                return (found.path[0], other) if found.path[0] in self._schema else None
        return None

    def _matched(self, when: exp.When) -> RowClause:
        condition = when.args.get("condition")
        where = None
        if condition is not None:
            where = self.lifted.condition(self._meaning.condition(condition))
        then = when.args["then"]
        if _is_delete(then):
            return RowClause(where=where)
        if not isinstance(then, exp.Update):
            raise refused(f"WHEN MATCHED THEN {to_text(then)}", "Write UPDATE SET … or DELETE.")
        values: dict[str, object] = {}
        if _is_star(then):
            for field in self._schema:
                column = self.lifted.column(self._own(field), field.type)
                values[field.name] = to_text(column_of(Side.SOURCE, column))
            return RowClause(where=where, values=values)
        for field, value in assignments(then.expressions, self._sides, self._schema):
            meant = self._meaning.value(value, field.type)
            values[field.name] = self.lifted.value(meant, field.type)
        return RowClause(where=where, values=values)

    def _missing(self, when: exp.When) -> RowClause:
        condition = when.args.get("condition")
        where = None
        if condition is not None:
            meant = self._meaning.condition(condition)
            where = to_text(in_terms_of_target(meant, self._sides))
        then = when.args["then"]
        if _is_delete(then):
            return RowClause(where=where)
        if not isinstance(then, exp.Update) or _is_star(then):
            raise refused(
                f"WHEN NOT MATCHED BY SOURCE THEN {to_text(then)}",
                "Write UPDATE SET x = value, or DELETE.",
            )
        values = {
            field.name: to_text(
                in_terms_of_target(self._meaning.value(value, field.type), self._sides)
            )
            for field, value in assignments(then.expressions, self._sides, self._schema)
        }
        return RowClause(where=where, values=values)

    def _inserts(self, whens: list[Any]) -> tuple[dict[str, str] | None, str | None]:
        """Return the columns of new rows, and the condition of their insertion."""
        if not whens:
            return None, None
        conditions = [self._of_source(when.args.get("condition")) for when in whens]
        rows = [self._row_of(when.args["then"]) for when in whens]
        names = [
            name
            for name in self._schema.names
            if name in self._sources or any(name in row for row in rows)
        ]
        inserted: dict[str, str] = {}
        for name in names:
            field = self._schema.get(name)
            values = [row.get(name) for row in rows]
            self._check_given(field, values)
            value = _first_of(conditions, [v or exp.Null() for v in values])
            inserted[name] = self.lifted.column(value, field.type)
        if None in conditions:
            return inserted, None
        is_any = _first_of(conditions, [exp.true() for _ in conditions])
        column = column_of(Side.SOURCE, self.lifted.column(is_any))
        return inserted, to_text(column)

    def _check_given(self, field: Field, values: list[Any]) -> None:
        if None in values and field.default is not MISSING:
            raise refused(
                f"INSERT clauses of which only some give {field.name!r}, which has a default",
                f"Give {field.name} in each clause.",
            )

    def _of_source(self, node: exp.Expr | None) -> exp.Expr | None:
        """Check that a condition or value of an insert concerns the source alone."""
        if node is None:
            return None
        check_no_query(node)
        if Side.TARGET in self._sides.of(node):
            raise refused(
                f"{shown_sql(node)} in WHEN NOT MATCHED, where no row of the dataset is there",
                "Use columns of the source.",
            )
        return node

    def _row_of(self, then: Any) -> dict[str, Any]:
        """Return the values of the fields of a new row."""
        if not isinstance(then, exp.Insert):
            raise refused(
                f"WHEN NOT MATCHED THEN {to_text(then)}",
                "Write INSERT * or INSERT (…) VALUES (…).",
            )
        if _is_star(then):
            return {field.name: self._own(field) for field in self._schema}
        values = then.expression
        columns = then.this.expressions if then.this is not None else []
        names = [self._field(column) for column in columns] or list(self._schema.names)
        given = values.expressions if isinstance(values, exp.Tuple) else []
        if len(names) != len(given):
            raise SchemaMismatchError(
                f"INSERT names {len(names)} columns and gives {len(given)} values.",
                hint="Give a value for each column: INSERT (id, name) VALUES (s.id, s.name).",
            )
        check_distinct(names, "INSERT")
        pairs = zip(names, given, strict=True)
        return {name: self._of_source(value) for name, value in pairs if not is_default(value)}

    def _field(self, column: exp.Expr) -> str:
        return field_of(column, self._sides, self._schema).name

    def _own(self, field: Field) -> exp.Expr:
        """Return the column of the source that has the name of a field."""
        return exp.column(self._same_named(field), table=self._sides.source, quoted=True)

    def _same_named(self, field: Field) -> str:
        alike = [name for name in self._columns if name.casefold() == field.name.casefold()]
        exact = [name for name in alike if name == field.name]
        if not exact and len(alike) != 1:
            raise SchemaMismatchError(
                f"The source lacks column {field.name!r}, which * stands for.",
                hint=nearest(field.name, self._columns)
                or "Name the columns: UPDATE SET x = s.x, INSERT (x) VALUES (s.x).",
            )
        return (exact or alike)[0]


def assignments(nodes: list[Any], sides: Sides, schema: Schema) -> list[tuple[Field, exp.Expr]]:
    """Return the fields that SET names, and their values.

    Raises:
        InvalidInputError: An assignment has another form.
        SchemaMismatchError: A field is unknown, or set twice.
    """
    pairs: list[tuple[Field, Any]] = []
    for node in nodes:
        if not isinstance(node, exp.EQ):
            raise refused(f"SET {to_text(node)}", "Write SET x = value, y = value.")
        value = node.args["expression"]
        if is_default(value):
            raise refused("SET x = DEFAULT", "Write the value.")
        pairs.append((field_of(node.args["this"], sides, schema), value))
    check_distinct([field.name for field, _ in pairs], "SET")
    return pairs


def field_of(column: exp.Expr, sides: Sides, schema: Schema) -> Field:
    """Return the field that SET or INSERT names.

    Raises:
        InvalidInputError: It is a part of a record.
        SchemaMismatchError: There is no such field.
    """
    parts = [part.name for part in column.parts] if hasattr(column, "parts") else [column.name]
    if len(parts) > 1 and parts[0].casefold() == sides.target.casefold():
        parts = parts[1:]
    if len(parts) > 1:
        raise refused(
            f"assignment to {'.'.join(parts)}, a part of a record",
            f"Set all of {parts[0]}, to a value of its type.",
        )
    exact = schema.find(parts[0])
    alike = [field for field in schema if field.name.casefold() == parts[0].casefold()]
    if exact is None and len(alike) == 1:
        return alike[0]
    return schema.get(parts[0])


def check_distinct(names: list[str], place: str) -> None:
    """Check that no field is named twice.

    Raises:
        SchemaMismatchError: One is.
    """
    for name in names:
        if names.count(name) > 1:
            raise SchemaMismatchError(f"{place} names {name!r} twice.", hint="Name it once.")


def sources_of(descriptor: DatasetDescriptor) -> frozenset[str]:
    """Return the fields that partitions derive from: a new row must have them, if only as null."""
    functions = descriptor.partition_by
    named = {function.source.split(".")[0] for function in functions if function.takes_source}
    return frozenset(
        field.name
        for field in descriptor.schema
        if field.name in named and field.default is MISSING
    )


def _check_reached(whens: list[Any]) -> None:
    """Check that no clause follows one of its kind that takes all rows.

    Raises:
        InvalidInputError: One does.
    """
    ended: set[tuple[bool, bool]] = set()
    for when in whens:
        kind = (bool(when.args["matched"]), bool(when.args.get("source")))
        if kind in ended:
            raise refused(
                f"clause behind one without a condition: {shown_sql(when)} is never reached",
                "Put the clause without a condition last, or give it one.",
            )
        if when.args.get("condition") is None:
            ended.add(kind)


def _conjuncts(node: Any) -> list[Any]:
    if isinstance(node, exp.Paren):
        return _conjuncts(node.this)
    if isinstance(node, exp.And):
        return [conjunct for part in operands_of(node) for conjunct in _conjuncts(part)]
    return [node]


def _first_of(conditions: list[Any], values: list[Any]) -> exp.Expr:
    """Return the value that belongs to the first condition that is true; None stands for true."""
    if conditions[0] is None:
        return values[0]  # type: ignore[no-any-return]  # a node
    ifs, default = [], None
    for condition, value in zip(conditions, values, strict=True):
        if condition is None:
            default = value.copy()
            break
        ifs.append(exp.If(this=condition.copy(), true=value.copy()))
    return exp.Case(ifs=ifs, default=default)


def _check_action(then: Any) -> None:
    """Check that an action has a form without more conditions, or columns left out of `*`."""
    if isinstance(then, exp.Insert | exp.Update):
        known = ("this", "expression", "expressions")
        check_parts(then, known, "Put the condition before THEN: WHEN MATCHED AND … THEN ….")
        for star in then.find_all(exp.Star):
            check_parts(star, (), "Name the columns: UPDATE SET x = s.x, INSERT (x) VALUES (s.x).")


def _is_delete(then: Any) -> bool:
    return bool(then.__class__.__name__ == "Var" and then.name.upper() == "DELETE")


def _is_star(then: Any) -> bool:
    stars = [then.this, *then.expressions] if isinstance(then, exp.Insert | exp.Update) else []
    return any(isinstance(one, exp.Star) for one in stars)


def is_default(value: Any) -> bool:
    """Return whether a value is the word DEFAULT."""
    is_word = isinstance(value, exp.Column | exp.Var) and value.name.upper() == "DEFAULT"
    return bool(is_word and not getattr(value, "table", ""))
