"""Predicates as a small tree.

Three-valued logic as in SQL: a comparison with null is unknown, and unknown rows are not
selected. NaN equals itself and is greater than every other number, as in Spark and PostgreSQL.

The tree has no negation node: `negate` pushes a negation down to the leaves, each of which has an
opposite.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import cast

from lakebed.common.html import shortened
from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.names import nearest
from lakebed.model.schema import Kind, Primitive, Type, path_of
from lakebed.model.values import (
    INTEGERS,
    Scalar,
    compared_value,
    integer_limits,
    is_nan,
    listed_values,
    parameter_value,
    plain_value,
)


class Op(StrEnum):
    """Comparison operators."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


_OPPOSITE = {
    Op.EQ: Op.NE,
    Op.NE: Op.EQ,
    Op.LT: Op.GE,
    Op.GE: Op.LT,
    Op.GT: Op.LE,
    Op.LE: Op.GT,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column op value`; the value is not None."""

    column: str
    op: Op
    value: Scalar

    def __str__(self) -> str:
        return f"{sql_name(self.column)} {self.op} {sql_literal(self.value)}"


@dataclass(frozen=True)  # no slots: a cached property needs a __dict__
class Membership:
    """`column [NOT] IN (values)`; no value is None.

    Nothing is in an empty list, not even null, so an empty NOT IN selects everything. SQL has no
    empty lists, so their text is TRUE or FALSE.
    """

    column: str
    values: tuple[Scalar, ...]
    negated: bool = False

    def __str__(self) -> str:
        if not self.values:
            return str(TRUE if self.negated else FALSE)
        values = ", ".join(sql_literal(value) for value in self.values)
        return f"{sql_name(self.column)} {'NOT IN' if self.negated else 'IN'} ({values})"

    def lists(self, value: Scalar) -> bool:
        """Return whether a value that is not None is in the list; NaN equals itself."""
        others, has_nan = self._listed
        return has_nan if is_nan(value) else value in others

    @cached_property
    def _listed(self) -> tuple[frozenset[Scalar], bool]:
        nans = [is_nan(value) for value in self.values]
        return frozenset(v for v, nan in zip(self.values, nans, strict=True) if not nan), any(nans)


@dataclass(frozen=True, slots=True)
class NullCheck:
    """`column IS [NOT] NULL`."""

    column: str
    negated: bool = False

    def __str__(self) -> str:
        return f"{sql_name(self.column)} IS {'NOT ' if self.negated else ''}NULL"


@dataclass(frozen=True, slots=True)
class Like:
    """`column [NOT] LIKE 'pattern'`, or ILIKE, of text.

    In the pattern `%` stands for any characters, `_` for one, and a backslash makes the character
    after it stand for itself. ILIKE compares letters by their lower case, one by one; see
    `lower_case`.
    """

    column: str
    pattern: str
    ignores_case: bool = False
    negated: bool = False

    def __str__(self) -> str:
        operator = "ILIKE" if self.ignores_case else "LIKE"
        negation = "NOT " if self.negated else ""
        return f"{sql_name(self.column)} {negation}{operator} {sql_literal(self.pattern)}"


@dataclass(frozen=True, slots=True)
class And:
    """All of the parts; true without parts."""

    parts: tuple[Predicate, ...] = ()

    def __str__(self) -> str:
        return _join(self.parts, " AND ") or "TRUE"


@dataclass(frozen=True, slots=True)
class Or:
    """Any of the parts; false without parts."""

    parts: tuple[Predicate, ...] = ()

    def __str__(self) -> str:
        return _join(self.parts, " OR ") or "FALSE"


@dataclass(frozen=True, slots=True)
class KeyList:
    """Combinations of values of several columns, one of which a row must have.

    Attributes:
        columns: The columns.
        rows: A value of each column, for each combination.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Scalar, ...], ...]

    def values_of(self, column: str) -> tuple[Scalar, ...]:
        """Return the distinct values of a column."""
        place = self.columns.index(column)
        return tuple(dict.fromkeys(row[place] for row in self.rows))


@dataclass(frozen=True, slots=True)
class Formula:
    """A condition of another form than a comparison of a column, in the language of Spark SQL.

    It is computed for each row that is read. No fact about a file decides it.

    Attributes:
        text: The condition.
        types: The columns that it reads, nested ones by dotted names, with their types.
        may_raise: Whether some rows end the evaluation by an error. Such a condition is computed
            only for rows that meet the conditions before it.
    """

    text: str
    types: tuple[tuple[str, Type], ...]
    may_raise: bool = False

    def __str__(self) -> str:
        return self.text

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for name, _ in self.types)

    @property
    def name(self) -> str:
        """Name of the boolean column that holds its truth for each row."""
        return f"lakebed.formula.{self.text}"  # no field has a dot in its name


Leaf = Comparison | Membership | NullCheck | Like
Predicate = Leaf | Formula | And | Or
# Arrow evaluates this many combinations one by one about as fast as it looks them up.
_FEWEST_KEYS = 17

TRUE = And()
FALSE = Or()


def _join(parts: tuple[Predicate, ...], word: str) -> str:
    return word.join(
        f"({part})"
        if isinstance(part, Formula) or (isinstance(part, And | Or) and part.parts)
        else str(part)
        for part in parts
    )


# Words that may not be read as a column, in the Spark dialect of sqlglot 25 to 30.
_RESERVED = frozenset(
    """
    all alter always analyze and any array as between call case connect_by_root create cross
    cube current_date current_time current_timestamp current_user describe distinct drop else
    except execute exists explain false fetch for from glob grant having if ilike in inner
    insert intersect interval into is join lateral like limit list lock map minus not notnull
    null nullable object on optimize or outer over partitioned_by prepare qualify range regexp
    rename returning revoke rlike rollback select serdeproperties session_user show some struct
    tablesample then true uncache union using vacuum values when where with xor
    """.split()
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sql_name(column: str) -> str:
    """Return the name of a column as SQL text, each part quoted if necessary."""
    return ".".join(_sql_name(part) for part in column.split("."))


def _sql_name(column: str) -> str:
    if _PLAIN_NAME.fullmatch(column) and column.lower() not in _RESERVED:
        return column
    return quoted_name(column)


def quoted_name(name: str) -> str:
    """Return a name as SQL text in backticks.

    >>> quoted_name("a`b")
    '`a``b`'
    """
    return "`{}`".format(name.replace("`", "``"))


def sql_literal(value: Scalar) -> str:
    """Return `value` as a literal of SQL text in Spark's dialect, where a backslash escapes."""
    if isinstance(value, bool) or value is None:
        return str(value).upper() if value is not None else "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return f"{value:f}"
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def all_of(parts: Sequence[Predicate]) -> Predicate:
    """Return the conjunction, flattened and without parts that are always true."""
    flat: list[Predicate] = []
    for part in parts:
        if part == FALSE:
            return FALSE
        flat.extend(part.parts if isinstance(part, And) else (part,))
    distinct = tuple(dict.fromkeys(flat))
    return distinct[0] if len(distinct) == 1 else And(distinct)


def any_of(parts: Sequence[Predicate]) -> Predicate:
    """Return the disjunction, flattened and without parts that are always false."""
    flat: list[Predicate] = []
    for part in parts:
        if part == TRUE:
            return TRUE
        flat.extend(part.parts if isinstance(part, Or) else (part,))
    distinct = tuple(dict.fromkeys(flat))
    return distinct[0] if len(distinct) == 1 else Or(distinct)


def negate(predicate: Predicate) -> Predicate:
    """Return the predicate that is true where this one is false, unknown where it is unknown."""
    match predicate:
        case Comparison(column, op, value):
            return Comparison(column, _OPPOSITE[op], value)
        case Membership(column, values, negated):
            return Membership(column, values, not negated)
        case NullCheck(column, negated):
            return NullCheck(column, not negated)
        case Like(column, pattern, ignores_case, negated):
            return Like(column, pattern, ignores_case, not negated)
        case Formula(text):
            return replace(predicate, text=f"NOT ({text})")
        case And(parts):
            return any_of([negate(part) for part in parts])
        case Or(parts):
            return all_of([negate(part) for part in parts])


def map_leaves(
    predicate: Predicate,
    change: Callable[[Leaf], Predicate],
    of_formula: Callable[[Formula], Predicate] = lambda formula: formula,
) -> Predicate:
    """Return the tree with each leaf replaced by the result of `change`, each formula by its own."""
    match predicate:
        case Formula():
            return of_formula(predicate)
        case And(parts):
            return all_of([map_leaves(part, change, of_formula) for part in parts])
        case Or(parts):
            return any_of([map_leaves(part, change, of_formula) for part in parts])
        case _:
            return change(predicate)


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Yield the leaves from left to right; no formula is one."""
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from leaves(part)
        case Formula():
            return
        case _:
            yield predicate


def formulas_of(predicate: Predicate) -> tuple[Formula, ...]:
    """Return the distinct formulas from left to right."""
    match predicate:
        case And(parts) | Or(parts):
            found = (formula for part in parts for formula in formulas_of(part))
            return tuple(dict.fromkeys(found))
        case Formula():
            return (predicate,)
    return ()


def may_raise(predicate: Predicate) -> bool:
    """Return whether some rows end the evaluation by an error."""
    return any(formula.may_raise for formula in formulas_of(predicate))


def without_formulas(predicate: Predicate) -> Predicate:
    """Return the weaker predicate in which each formula is TRUE."""
    return map_leaves(predicate, lambda leaf: leaf, lambda _: TRUE)


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the conditions that must all hold; none for TRUE."""
    return predicate.parts if isinstance(predicate, And) else (predicate,)


def complement(predicate: Predicate) -> Predicate:
    """Return the predicate that is true where this one is false or unknown."""

    def not_true(leaf: Leaf) -> Predicate:
        opposite = negate(leaf)
        is_never_unknown = isinstance(leaf, NullCheck) or (
            isinstance(leaf, Membership) and not leaf.values
        )
        return opposite if is_never_unknown else any_of([opposite, NullCheck(leaf.column)])

    match predicate:
        case And(parts):
            return any_of([complement(part) for part in parts])
        case Or(parts):
            return all_of([complement(part) for part in parts])
        case Formula(text):
            return replace(predicate, text=f"({text}) IS NOT TRUE")
        case _:
            return not_true(predicate)


def with_lists(predicate: Predicate) -> Predicate:
    """Return the predicate with comparisons of one column that OR joins merged into one list.

    A list is one lookup, instead of a thousand comparisons. A list of combinations gets the list
    of each column beside it, which files are chosen by. All are true, false and unknown for the
    same values.
    """
    match predicate:
        case And(parts):
            return all_of([with_lists(part) for part in parts])
        case Or(parts):
            flat = any_of([with_lists(part) for part in parts])
            listed = _listed(flat.parts) if isinstance(flat, Or) else flat
            keys = key_list(listed)
            if keys is None:
                return listed
            columns = [Membership(name, keys.values_of(name)) for name in keys.columns]
            return all_of([*columns, listed])
        case _:
            return predicate


def key_list(predicate: Predicate, fewest: int = _FEWEST_KEYS) -> KeyList | None:
    """Return the combinations of values that a condition lists; None if it is of another form.

    Args:
        predicate: A condition such as `a = 1 AND b = 2 OR a = 3 AND b = 4`.
        fewest: Number of combinations; of fewer, None is returned.
    """
    if not isinstance(predicate, Or) or len(predicate.parts) < fewest:
        return None
    rows: list[dict[str, Scalar]] = []
    for part in predicate.parts:
        if not isinstance(part, And):
            return None
        row = {
            leaf.column: leaf.value
            for leaf in part.parts
            if isinstance(leaf, Comparison) and leaf.op is Op.EQ
        }
        if len(row) < len(part.parts) or row.keys() != (rows[0] if rows else row).keys():
            return None
        rows.append(row)
    columns = tuple(rows[0])
    return KeyList(columns, tuple(tuple(row[name] for name in columns) for row in rows))


def _listed(parts: Sequence[Predicate]) -> Predicate:
    """Return the disjunction, with one list per column at the position of its first value."""
    alike: dict[str, list[Predicate]] = {}
    for part in parts:
        if _named_values(part):
            alike.setdefault(columns_of(part)[0], []).append(part)
    listed: list[Predicate] = []
    for part in parts:
        if not _named_values(part):
            listed.append(part)
            continue
        column = columns_of(part)[0]
        same = alike.pop(column, [])
        if len(same) > 1:
            values = dict.fromkeys(value for peer in same for value in _named_values(peer))
            listed.append(Membership(column, tuple(values)))
        else:
            listed += same
    return any_of(listed)


def _named_values(predicate: Predicate) -> tuple[Scalar, ...]:
    """Return the values that a condition selects; none if it is of another kind."""
    match predicate:
        case Comparison(op=Op.EQ, value=value):
            return (value,)
        case Membership(values=values, negated=False):
            return values
    return ()


def columns_of(predicate: Predicate) -> tuple[str, ...]:
    """Return the distinct columns in order of appearance."""
    return tuple(dict.fromkeys(_columns(predicate)))


def _columns(predicate: Predicate) -> Iterator[str]:
    match predicate:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _columns(part)
        case Formula():
            yield from predicate.columns
        case _:
            yield predicate.column


def roots_of(predicate: Predicate, types: Mapping[str, Type]) -> tuple[str, ...]:
    """Return the columns to read for a predicate; for a nested one, the top-level field."""
    return tuple(dict.fromkeys(path_of(column, types)[0] for column in columns_of(predicate)))


def check_columns(predicate: Predicate, known: Collection[str]) -> None:
    """Check that each column is known.

    Raises:
        PredicateError: A column is unknown; the message names the nearest.
    """
    for column in columns_of(predicate):
        if column not in known:
            raise PredicateError(
                f"Unknown column {column!r} in the predicate.",
                hint=nearest(column, known) or f"Columns are: {shortened(known)}.",
            )


def bind(predicate: Predicate, types: Mapping[str, Type]) -> Predicate:
    """Return the predicate in the form that evaluates it on columns of these types.

    A whole number that no field of the type holds is replaced by its nearest end: all values that
    are not null are less than 300 in a tinyint, and none is equal to it.

    Raises:
        PredicateError: See `normalise`.
    """

    def bind_leaf(leaf: Leaf) -> Predicate:
        kind = types[leaf.column]
        if not isinstance(kind, Primitive) or kind.kind not in INTEGERS:
            return leaf
        return _within(leaf, *integer_limits(kind))

    return map_leaves(normalise(predicate, types), bind_leaf)


def _within(leaf: Leaf, low: int, high: int) -> Leaf:
    """Return a condition on whole numbers with values between two limits only."""
    all_, none = Comparison(leaf.column, Op.LE, high), Comparison(leaf.column, Op.GT, high)
    match leaf:
        case Comparison(op=op, value=int(value)) if not low <= value <= high:
            met_by_all = (Op.NE, Op.LT, Op.LE) if value > high else (Op.NE, Op.GT, Op.GE)
            return all_ if op in met_by_all else none
        case Membership(column, values, negated):
            kept = tuple(value for value in values if low <= cast(int, value) <= high)
            if not kept:
                return all_ if negated else none
            return leaf if len(kept) == len(values) else Membership(column, kept, negated)
    return leaf


def normalise(predicate: Predicate, types: Mapping[str, Type]) -> Predicate:
    """Return the predicate with every value checked against its column's type.

    An empty list becomes TRUE or FALSE, since SQL text has no empty lists.

    Raises:
        PredicateError: A column is unknown or nested, or a value is not of its type.
    """
    check_columns(predicate, types)

    def normalise_leaf(leaf: Leaf) -> Predicate:
        kind = types[leaf.column]
        match leaf:
            case NullCheck():
                return leaf
            case Comparison(column, op, value):
                return Comparison(column, op, _normal_value(value, kind, column))
            case Membership(_, (), negated):
                return TRUE if negated else FALSE
            case Like(column):
                if kind != Primitive(Kind.STRING):
                    raise PredicateError(
                        f"Column {column!r} of type {kind} is compared with a pattern.",
                        hint="Only text has patterns; compare it with a value.",
                    )
                pieces_of(leaf.pattern)
                if leaf.ignores_case:
                    return leaf
                fits = like(column, leaf.pattern)
                return negate(fits) if leaf.negated else fits
            case Membership(column, values, negated):
                bound = tuple(_normal_value(value, kind, column) for value in values)
                return Membership(column, tuple(dict.fromkeys(bound)), negated)

    return with_lists(map_leaves(predicate, normalise_leaf, lambda formula: _typed(formula, types)))


def _typed(formula: Formula, types: Mapping[str, Type]) -> Formula:
    """Return a formula that reads columns of the given types."""
    own = tuple((name, types[name]) for name in formula.columns)
    if own == formula.types:
        return formula
    from lakebed.model.formulas.compiler import formula_of  # only then: it loads sqlglot

    return formula_of(formula.text, types)


def _normal_value(value: Scalar, kind: Type, column: str) -> Scalar:
    try:
        return compared_value(parameter_value(value, kind), kind, column)
    except InvalidInputError as exc:
        raise PredicateError(exc.message, hint=exc.hint) from exc


_ANY, _ONE = "%", "_"
_LAST_CHARACTER = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)  # stand for no character


def pieces_of(pattern: str) -> tuple[str, ...]:
    r"""Return the parts of a pattern: `%`, `_`, and each other character behind a backslash.

    Raises:
        PredicateError: The pattern ends with a backslash.

    >>> pieces_of(r"a%\%")
    ('\\a', '%', '\\%')
    """
    pieces: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character in (_ANY, _ONE):
            pieces.append(character)
        elif character == "\\":
            try:
                pieces.append("\\" + next(characters))
            except StopIteration:
                raise PredicateError(
                    f"The pattern {pattern!r} ends with a backslash, which has nothing to escape.",
                    hint="Write a backslash as two.",
                ) from None
        else:
            pieces.append("\\" + character)
    return tuple(pieces)


def escaped(text: str) -> str:
    """Return the pattern that fits a text and nothing else."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def lower_case(text: str) -> str:
    """Return a text with each letter in lower case, as many as before: `ß` and `ς` stay."""
    return "".join(map(str.lower, text.replace("\u0130", "i")))


def like(column: str, pattern: str) -> Predicate:
    """Return the condition that a text fits a pattern, as comparisons as far as these can express it.

    Raises:
        PredicateError: The pattern ends with a backslash.
    """
    pieces = pieces_of(pattern)
    plain = next((i for i, piece in enumerate(pieces) if piece in (_ANY, _ONE)), len(pieces))
    prefix = "".join(piece[1:] for piece in pieces[:plain])
    if plain == len(pieces):
        return Comparison(column, Op.EQ, prefix)
    within = begins_with(column, prefix)
    if within is not None and pieces[plain:] == (_ANY,):
        return within
    return all_of([*(() if within is None else within.parts), Like(column, pattern)])


def begins_with(column: str, prefix: str) -> And | None:
    """Return the range of texts with a prefix, in the order of their characters; None for all."""
    if not prefix or prefix.endswith(_LAST_CHARACTER):
        return None
    following = ord(prefix[-1]) + 1
    if following in _SURROGATES:
        following = _SURROGATES.stop
    end = prefix[:-1] + chr(following)
    return And((Comparison(column, Op.GE, prefix), Comparison(column, Op.LT, end)))


_DNF_OPS = {
    "==": Op.EQ,
    "=": Op.EQ,
    "!=": Op.NE,
    "<": Op.LT,
    "<=": Op.LE,
    ">": Op.GT,
    ">=": Op.GE,
}
Dnf = Sequence[Sequence[tuple[str, str, object]]]


def from_dnf(conjunctions: Dnf) -> Predicate:
    """Read Kartothek's form: an OR of ANDs of `(column, operator, value)`.

    A flat list of these is an AND, as for pyarrow and Dask.

    Operators are `== != < <= > >=`, `in` and `not in`. None is null: `==` None means IS NULL.

    Raises:
        PredicateError: The list or a conjunction is empty, a term is malformed, or an
            operator is unknown.
    """
    if _is_list(conjunctions) and conjunctions and all(map(_is_term, conjunctions)):
        conjunctions = [conjunctions]  # type: ignore[list-item]  # a flat list
    if not _is_list(conjunctions) or not all(_is_list(terms) for terms in conjunctions):
        raise PredicateError(
            f"Malformed predicate {conjunctions!r}.",
            hint='Write it as SQL text, or as lists: [[("column", "==", value)]].',
        )
    if not conjunctions or not all(conjunctions):
        raise PredicateError(
            f"The predicate list {conjunctions!r} is empty.",
            hint="Leave the predicate out to select everything.",
        )
    return any_of([all_of([_term(term) for term in terms]) for terms in conjunctions])


def _is_term(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 3 and isinstance(value[0], str)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _term(term: object) -> Predicate:
    if not isinstance(term, tuple | list) or len(term) != 3 or not isinstance(term[0], str):
        raise PredicateError(
            f"Malformed predicate term {term!r}.", hint='Write it as ("column", "==", value).'
        )
    column, op, value = term[0], term[1], plain_value(term[2])
    if not isinstance(op, str):
        op = repr(op)
    if op in ("in", "not in"):
        return _membership(column, value, negated=op == "not in")
    if op not in _DNF_OPS:
        raise PredicateError(
            f"Unknown operator {op!r} on column {column!r}.",
            hint=f"Operators are: {' '.join(_DNF_OPS)} in, not in.",
        )
    if value is None:
        if _DNF_OPS[op] not in (Op.EQ, Op.NE):
            raise PredicateError(
                f"Column {column!r} compared with None by {op!r}.",
                hint="Null has no order: use == or !=.",
            )
        return NullCheck(column, negated=_DNF_OPS[op] is Op.NE)
    if not isinstance(value, Hashable):
        raise PredicateError(
            f"Column {column!r} is compared with {shown(value)} by {op!r}.",
            hint="Give one value, or use 'in' for a list.",
        )
    return Comparison(column, _DNF_OPS[op], cast(Scalar, value))


def _membership(column: str, values: object, *, negated: bool) -> Predicate:
    listed = listed_values(values)
    if listed is None:
        raise PredicateError(
            f"Column {column!r}: 'in' needs a list, not {values!r}.", hint=f"Write [{values!r}]."
        )
    for value in listed:
        if not isinstance(value, Hashable):
            raise PredicateError(
                f"Column {column!r}: 'in' has the value {shown(value)}.",
                hint="Give a list of plain values.",
            )
    present = tuple(cast(Scalar, value) for value in listed if value is not None)
    membership: Predicate = Membership(column, present, negated)
    if len(present) == len(listed):
        return membership
    null = NullCheck(column, negated=negated)
    return all_of([membership, null]) if negated else any_of([membership, null])
