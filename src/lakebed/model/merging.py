"""Clauses of a merge: the keys, and the actions for rows that match and rows that do not.

Conditions and values are SQL text over a pair of matching rows: `target.x` is a column of the
dataset, `source.x` one of the data. Columns have the types of the dataset or the data; values are
computed in the type of the field that they set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, get_args

from lakebed.common.given import check_given
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError, SchemaMismatchError
from lakebed.model.assignments import (
    Computed,
    Constant,
    OfColumn,
    PairCondition,
    Term,
    columns_in,
)
from lakebed.model.formulas.storing import parse_term
from lakebed.model.names import nearest
from lakebed.model.predicate import (
    TRUE,
    Formula,
    Leaf,
    Predicate,
    any_of,
    bind,
    columns_of,
    map_leaves,
)
from lakebed.model.schema import Decimal, Field, Kind, Primitive, Schema, Struct, Type
from lakebed.model.sql_predicates import parse_sql, with_columns
from lakebed.model.values import Scalar, check_value, parameter_value

IfMatched = Literal["update", "delete", "ignore"]
IfNotMatched = Literal["insert", "ignore"]
IfMissing = Literal["keep", "update", "delete"]


class Side(StrEnum):
    """The row that a column belongs to; the prefix of its name."""

    TARGET = "target"
    SOURCE = "source"

    def named(self, column: str) -> str:
        """Return the name of a column in a condition."""
        return f"{self}.{column}"

    def own(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names that belong to this side, without the prefix."""
        prefix = f"{self}."
        return tuple(name.removeprefix(prefix) for name in names if name.startswith(prefix))


@dataclass(frozen=True, slots=True)
class Assignment:
    """A field of the dataset, and the term that it is set to."""

    name: str
    term: Term


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeClauses:
    """The arguments of a merge; see `View.merge`.

    Attributes:
        on: Key fields; two rows match if they agree in them.
        matched: Action for rows of the dataset that match a row of the data.
        update: The columns that an update sets, or their new values; None for all of the data.
        update_where: Condition for updating a matching row.
        delete_where: Condition for deleting a matching row.
        not_matched: Action for rows of the data that match no row of the dataset.
        insert_where: Condition for inserting such a row.
        missing: Action for rows of the dataset that match no row of the data.
        missing_update: New values of such rows, by field.
        missing_where: Condition for the action on such a row.
    """

    on: tuple[str, ...]
    matched: IfMatched = "update"
    update: Sequence[str] | Mapping[str, object] | None = None
    update_where: str | None = None
    delete_where: str | None = None
    not_matched: IfNotMatched = "insert"
    insert_where: str | None = None
    missing: IfMissing = "keep"
    missing_update: Mapping[str, object] | None = None
    missing_where: str | None = None

    def __post_init__(self) -> None:
        for name, kinds in (
            ("matched", IfMatched),
            ("not_matched", IfNotMatched),
            ("missing", IfMissing),
        ):
            value, allowed = getattr(self, name), get_args(kinds)
            if value not in allowed:
                raise InvalidInputError(
                    f"{name} is {shown(value)}.", hint=f"Give one of {', '.join(allowed)}."
                )
        for name in ("update_where", "delete_where", "insert_where", "missing_where"):
            remedy = "Give a condition as SQL text, such as \"source.op = 'D'\"."
            check_given(name, getattr(self, name), str, remedy)
        remedy = 'Give values by field, such as {"is_current": False}.'
        check_given("missing_update", self.missing_update, Mapping, remedy)
        if not self.on:
            raise InvalidInputError(
                "merge() needs at least one column in `on`.", hint='Give on=["id"].'
            )
        for name in self.on:
            if not isinstance(name, str):
                raise InvalidInputError(
                    f"`on` names {shown(name)}.", hint='Give names of columns: on=["id"].'
                )
            if self.on.count(name) > 1:
                raise InvalidInputError(f"`on` names {name!r} twice.", hint="Name it once.")
        self._check_used("update", self.matched == "update", "matched", "update")
        self._check_used("update_where", self.matched == "update", "matched", "update")
        self._check_used("delete_where", self.matched != "ignore", "matched", "update or delete")
        self._check_used("insert_where", self.not_matched == "insert", "not_matched", "insert")
        self._check_used("missing_update", self.missing == "update", "missing", "update")
        self._check_used("missing_where", self.missing != "keep", "missing", "update or delete")
        if self.missing == "update" and not self.missing_update:
            raise InvalidInputError(
                "missing is 'update', but no new values are given.",
                hint='Give missing_update, such as {"is_current": False}.',
            )
        if self.update is not None and not self.update:
            raise InvalidInputError(
                "update names no column.",
                hint="Leave it out for all columns, or give matched as ignore.",
            )

    def _check_used(self, name: str, is_used: bool, by: str, needed: str) -> None:  # noqa: FBT001 - a helper
        if getattr(self, name) is not None and not is_used:
            raise InvalidInputError(
                f"{name} is given, but {by} is {getattr(self, by)!r}.",
                hint=f"Give {by} as {needed}, or leave {name} out.",
            )


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """Arguments of `update_rows`; see `View.update_rows`.

    Attributes:
        values: New value of each field, as SQL text over the columns of the row or as a value.
    """

    values: Mapping[str, object]

    def __post_init__(self) -> None:
        remedy = 'Give values by field, such as {"delay": "delay + 1"}.'
        if not isinstance(self.values, Mapping):
            raise InvalidInputError(f"update_rows() with {shown(self.values)}.", hint=remedy)
        if not self.values:
            raise InvalidInputError("update_rows() with no field to set.", hint=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowClause:
    """One clause for rows of the dataset: the first one whose condition is true is carried out.

    Attributes:
        where: Condition as SQL text, on `target.x` and, where rows match, `source.x`; None for all.
        values: New value of each field, as in `MergeClauses.update`; None deletes the row.
    """

    where: str | None = None
    values: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedClauses:
    """The clauses of a MERGE as SQL has it: in order, and of each kind as many as are wanted.

    A key may occur several times in the data, unless two of its rows would change the same row.

    Attributes:
        on: Key fields; two rows match if they agree in them.
        on_computed: Further keys: expressions on `target.x`, by the columns of the data that they
            are equal to.
        match_where: Further condition for a match, on both rows; None for none.
        matched: Clauses for rows of the dataset that match.
        missing: Clauses for those that match none; their conditions are on `target.x`.
        inserted: The column of the data that each field of a new row is taken from; None inserts
            none.
        insert_where: Condition for inserting a row, on the data alone.
    """

    on: tuple[str, ...] = ()
    on_computed: Mapping[str, str] = field(default_factory=dict)
    match_where: str | None = None
    matched: tuple[RowClause, ...] = ()
    missing: tuple[RowClause, ...] = ()
    inserted: Mapping[str, str] | None = None
    insert_where: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRule:
    """A clause for rows of the dataset, bound: the first one that fits is carried out.

    Attributes:
        where: Condition on the pair, or on the row alone; None for all.
        target: Condition on the row of the dataset alone, as in a view: it selects files.
        updates: Assignments; None deletes the row.
    """

    where: PairCondition | None = None
    target: Predicate = TRUE
    updates: tuple[Assignment, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """The clauses of a merge, bound to the columns of both sides. They are sent to Spark tasks.

    Attributes:
        on: As in `MergeClauses`; and the columns of the data that computed keys are equal to.
        computed: Expressions of these keys over the row of the dataset.
        match_where: Further condition for a match; None for none.
        match_target: Its part on the row of the dataset alone, as in a view.
        matched: Rules for rows of the dataset that match, in order.
        inserted: The column of the data that each field of a new row is taken from, in the order of
            the schema; None inserts none.
        insert_where: Condition of an insert, on the data alone; None for all rows.
        missing: Rules for rows of the dataset that match none, in order.
        constraint: Constraint of the view that is merged into; rows outside it neither match nor
            are missing.
        is_distinct: Whether a key of the data may occur only once, even if it matches no row.
    """

    on: tuple[str, ...]
    computed: Mapping[str, Computed] = field(default_factory=dict)
    match_where: PairCondition | None = None
    match_target: Predicate = TRUE
    matched: tuple[RowRule, ...] = ()
    inserted: Mapping[str, str] | None = None
    insert_where: PairCondition | None = None
    missing: tuple[RowRule, ...] = ()
    constraint: Predicate = TRUE
    is_distinct: bool = True

    @property
    def conditions(self) -> tuple[PairCondition, ...]:
        """The conditions on pairs of matching rows."""
        given = (self.match_where, *(rule.where for rule in self.matched))
        return tuple(condition for condition in given if condition is not None)

    @property
    def missing_where(self) -> Predicate:
        """A condition that each row meets which matches none and changes."""
        return any_of([rule.target for rule in self.missing])

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """The assignments of all updates."""
        rules = (*self.matched, *self.missing)
        return tuple(assignment for rule in rules for assignment in rule.updates or ())

    @property
    def changed(self) -> tuple[str, ...]:
        """The fields that an update may set."""
        return tuple(dict.fromkeys(a.name for a in self.assignments))

    def looked_at(self, side: Side) -> tuple[str, ...]:
        """Return the columns of a side that keys and conditions read, nested ones by dots."""
        alone = [rule.where for rule in self.missing if rule.where is not None]
        conditions = (*self.conditions, *alone)
        named = [name for condition in conditions for name in side.own(condition.names)]
        if side is Side.TARGET:
            named += columns_of(self.constraint)
            named += [name for rule in self.missing for name in columns_of(rule.target)]
            named += [name for term in self.computed.values() for name in side.own(term.columns)]
            return tuple(dict.fromkeys((*self.plain_keys, *named)))
        return tuple(dict.fromkeys((*self.on, *named)))

    @property
    def plain_keys(self) -> tuple[str, ...]:
        """The keys that are fields of the dataset."""
        return tuple(name for name in self.on if name not in self.computed)

    def taken(self, side: Side) -> tuple[str, ...]:
        """Return the columns of a side that updates take values from, nested ones by dots."""
        terms = [a.term for a in self.assignments]
        return side.own(dict.fromkeys(name for term in terms for name in columns_in(term)))


def bind_clauses(
    clauses: MergeClauses,
    data: Mapping[str, Type],
    schema: Schema,
    columns: Mapping[str, Type],
    constraint: Predicate = TRUE,
) -> MergeRules:
    """Read the conditions and values of clauses, and check them against the columns of both sides.

    Args:
        clauses: The clauses as given by the caller.
        data: Types of the columns of the data, nested ones by dots.
        schema: The schema of the dataset.
        columns: Types of all columns of the dataset that a predicate may name.
        constraint: The bound constraint of the view that is merged into.

    Raises:
        InvalidInputError: A key is not a plain field of both sides.
        SchemaMismatchError: A column of the data is unknown, and no clause names it.
        PredicateError: A condition or a value cannot be read, or names an unknown column.
    """
    whole = frozenset(name for name in data if "." not in name)
    _check_keys(clauses.on, data, schema)
    both, of_data, of_target = _sides(data, columns)
    matched: list[RowRule] = []
    if clauses.delete_where is not None or clauses.matched == "delete":
        matched.append(RowRule(where=_condition(clauses.delete_where, both)))
    if clauses.matched == "update":
        updates = _assignments(clauses.update, whole, schema, both)
        matched.append(RowRule(where=_condition(clauses.update_where, both), updates=updates))
    missing: tuple[RowRule, ...] = ()
    if clauses.missing != "keep":
        resets = _set(clauses.missing_update or {}, schema, of_target)
        target = _of_target(clauses.missing_where, of_target)
        missing = (RowRule(target=target, updates=resets if clauses.missing == "update" else None),)
    rules = MergeRules(
        on=clauses.on,
        matched=tuple(matched),
        inserted=_in_order({name: name for name in whole}, schema)
        if clauses.not_matched == "insert"
        else None,
        insert_where=_condition(clauses.insert_where, of_data),
        missing=missing,
        constraint=constraint,
    )
    _check_named(whole.difference(schema.names), rules, schema)
    return rules


def bind_update(
    update: RowUpdate, schema: Schema, columns: Mapping[str, Type], where: Predicate
) -> MergeRules:
    """Return an update of rows as a merge without data.

    Args:
        update: The fields to set, and their values.
        schema: Schema of the dataset.
        columns: Types of all its columns that may stand in a predicate.
        where: Condition of the rows, bound.

    Raises:
        InvalidInputError: A value does not fit its field.
        PredicateError: A value cannot be read, or names an unknown column.
        SchemaMismatchError: A field is unknown.
    """
    return MergeRules(
        on=(),
        missing=(
            RowRule(
                target=where, updates=_set(update.values, schema, columns, prefix=f"{Side.TARGET}.")
            ),
        ),
    )


def bind_ordered(
    clauses: OrderedClauses,
    data: Mapping[str, Type],
    schema: Schema,
    columns: Mapping[str, Type],
    constraint: Predicate = TRUE,
) -> MergeRules:
    """Read the conditions and values of ordered clauses; arguments and errors as `bind_clauses`."""
    _check_keys(clauses.on, data, schema)
    both, of_data, of_target = _sides(data, columns)
    match_target, _ = _narrowing(clauses.match_where, both)
    matched = tuple(
        RowRule(where=_condition(clause.where, both), updates=_updates(clause, schema, both))
        for clause in clauses.matched
    )
    missing = []
    for clause in clauses.missing:
        target, where = _narrowing(clause.where, of_target)
        updates = _updates(clause, schema, of_target)
        missing.append(RowRule(where=where, target=target, updates=updates))
    computed = {
        name: _computed_key(name, text, data[name], of_target)
        for name, text in clauses.on_computed.items()
    }
    return MergeRules(
        on=(*clauses.on, *computed),
        computed=computed,
        match_where=_condition(clauses.match_where, both),
        match_target=match_target,
        matched=matched,
        inserted=None if clauses.inserted is None else _in_order(clauses.inserted, schema),
        insert_where=_condition(clauses.insert_where, of_data),
        missing=tuple(missing),
        constraint=constraint,
        is_distinct=False,
    )


def _computed_key(name: str, text: str, kind: Type, of_target: Mapping[str, Type]) -> Computed:
    """Return a key that is computed of the row of the dataset, in the type of the data's column.

    Raises:
        PredicateError: It is of another type, or cannot be computed.
    """
    try:
        term = parse_term(text, of_target, kind, name)
    except PredicateError as exc:
        raise PredicateError(
            f"{shown(text)} is compared with a value of type {kind}: {exc.message}", hint=exc.hint
        ) from exc
    if isinstance(term, Computed):
        return term
    return Computed(text, tuple((column, of_target[column]) for column in columns_in(term)), kind)


def _in_order(inserted: Mapping[str, str], schema: Schema) -> dict[str, str]:
    return {name: inserted[name] for name in schema.names if name in inserted}


def _updates(
    clause: RowClause, schema: Schema, types: Mapping[str, Type]
) -> tuple[Assignment, ...] | None:
    return None if clause.values is None else _set(clause.values, schema, types)


def _narrowing(
    text: str | None, types: Mapping[str, Type]
) -> tuple[Predicate, PairCondition | None]:
    """Return what a condition demands of the row of the dataset alone, and the condition.

    The condition is None where the first part is all of it.
    """
    if text is None:
        return TRUE, None
    parsed = _parsed(text, types)
    own = {name: kind for name, kind in types.items() if Side.TARGET.own([name])}

    def certain(leaf: Leaf) -> Predicate:
        return leaf if leaf.column in own else TRUE

    def certain_formula(formula: Formula) -> Predicate:
        return formula if own.keys() >= set(formula.columns) else TRUE

    # Predicates have no negation above their leaves, so a leaf that is true can only widen them.
    wider = map_leaves(parsed, certain, certain_formula)
    target = _as_of_view(bind(wider, own))
    return target, None if wider == parsed else _pair_condition(parsed, types)


# Of the two rows, which are records where a condition is asked; what is in them is named beside.
_RECORD = Struct((Field(name="row", type=Primitive(Kind.BOOLEAN)),))


def _pair_condition(predicate: Predicate, types: Mapping[str, Type]) -> PairCondition:
    """Return a condition on two rows, bound to their columns, `target.x` and `source.x`."""
    named, sides = columns_of(predicate), dict.fromkeys(map(str, Side), _RECORD)
    # Tasks receive only the types that the condition needs.
    kept = {**sides, **{name: kind for name, kind in types.items() if name in named}}
    return PairCondition(predicate=bind(predicate, kept), types=kept)


def _sides(
    data: Mapping[str, Type], columns: Mapping[str, Type]
) -> tuple[dict[str, Type], dict[str, Type], dict[str, Type]]:
    """Return the types of the columns of both sides, of the data, and of the dataset."""
    of_target = {Side.TARGET.named(name): kind for name, kind in columns.items()}
    of_data = {Side.SOURCE.named(name): kind for name, kind in data.items()}
    return {**of_target, **of_data}, of_data, of_target


def _check_keys(on: Sequence[str], data: Mapping[str, Type], schema: Schema) -> None:
    for name in on:
        if name not in schema and "," in name:
            names = [part.strip() for part in name.split(",")]
            raise InvalidInputError(
                f"`on` names {name!r}, which is not a column.", hint=f"Give on={names}."
            )
        kind = schema.get(name).type
        if not isinstance(kind, Primitive | Decimal):
            raise InvalidInputError(
                f"Column {name!r} of type {kind} cannot be a key of a merge.",
                hint="Name fields of plain types: numbers, text, bytes, dates and times.",
            )
        if name not in data:
            raise SchemaMismatchError(
                f"The data lacks column {name!r}, a key of the merge.",
                hint=nearest(name, tuple(data)) or f"It has: {', '.join(data) or 'none'}.",
            )


def _check_named(extra: Collection[str], rules: MergeRules, schema: Schema) -> None:
    """Check that a condition or a value uses each column that the dataset lacks."""
    named = {*rules.looked_at(Side.SOURCE), *rules.taken(Side.SOURCE)}
    if rules.insert_where is not None:
        named.update(Side.SOURCE.own(rules.insert_where.names))
    roots = {name.split(".")[0] for name in named}
    for name in sorted(set(extra) - roots):
        raise SchemaMismatchError(
            f"Unknown column {name!r} in the data.",
            hint=nearest(name, schema.names)
            or f"To add the field: in Python unknown, as 'keep'; or `evolve`, `lakebed schema add`. Or "
            f"drop the column, or name source.{name} in a condition.",
        )


def _condition(text: str | None, types: Mapping[str, Type]) -> PairCondition | None:
    if text is None:
        return None
    return _pair_condition(_parsed(text, types), types)


def _parsed(text: str, types: Mapping[str, Type]) -> Predicate:
    try:
        return parse_sql(text, types)
    except PredicateError as exc:
        raise _naming_sides(exc, text, types) from exc


def _naming_sides(exc: PredicateError, text: str, types: Mapping[str, Type]) -> PredicateError:
    """Return the error; for a column without its side, with a better hint."""
    if not exc.message.startswith("Unknown column"):
        return exc
    sides = sorted({name.split(".")[0] for name in types})
    names = " or ".join(f"{side}.x" for side in sides)
    return PredicateError(f"{exc.message[:-1]} {shown(text)}.", hint=f"Write {names}. {exc.hint}")


def _of_target(text: str | None, types: Mapping[str, Type]) -> Predicate:
    """Read a condition on the dataset alone, in the form of a view's, which can exclude files."""
    if text is None:
        return TRUE
    return _as_of_view(bind(_parsed(text, types), types))


def _as_of_view(bound: Predicate) -> Predicate:
    """Return a condition on `target.x` as one on `x`."""
    prefix = f"{Side.TARGET}."

    def plain(leaf: Leaf) -> Predicate:
        return replace(leaf, column=leaf.column.removeprefix(prefix))

    def plain_formula(formula: Formula) -> Predicate:
        return with_columns(formula, {name: name.removeprefix(prefix) for name in formula.columns})

    return map_leaves(bound, plain, plain_formula)


def _assignments(
    update: Sequence[str] | Mapping[str, object] | None,
    data: Collection[str],
    schema: Schema,
    both: Mapping[str, Type],
) -> tuple[Assignment, ...]:
    if isinstance(update, Mapping):
        return _set(update, schema, both)
    names = [name for name in schema.names if name in data] if update is None else list(update)
    for name in names:
        schema.get(name)
        if name not in data:
            raise SchemaMismatchError(
                f"The data lacks column {name!r}, which the update sets.",
                hint=nearest(name, tuple(data)) or f"It has: {', '.join(sorted(data))}.",
            )
    return tuple(Assignment(name, OfColumn(Side.SOURCE.named(name))) for name in names)


def _set(
    values: Mapping[str, object], schema: Schema, types: Mapping[str, Type], prefix: str = ""
) -> tuple[Assignment, ...]:
    return tuple(
        Assignment(name, _term(value, schema.get(name).type, name, types, prefix))
        for name, value in values.items()
    )


def _term(value: object, kind: Type, name: str, types: Mapping[str, Type], prefix: str) -> Term:
    if isinstance(value, str):
        try:
            return parse_term(value, types, kind, name, prefix=prefix)
        except PredicateError as exc:
            raise exc if prefix else _naming_sides(exc, value, types) from exc
    return Constant(_constant(value, kind, name))


def _constant(value: object, kind: Type, name: str) -> Scalar:
    value = parameter_value(value, kind)
    return None if value is None else check_value(value, kind, name)
