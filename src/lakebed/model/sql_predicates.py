"""Predicates from SQL text, read by sqlglot in Spark's dialect."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from lakebed.common.shown import counted, shown
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.formulas.type_names import sql_type_of
from lakebed.model.monotone import find_range
from lakebed.model.names import nearest
from lakebed.model.predicate import (
    FALSE,
    TRUE,
    Comparison,
    Formula,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    check_columns,
    escaped,
    like,
    may_raise,
    negate,
    pieces_of,
    sql_name,
)
from lakebed.model.schema import Decimal, Kind, Primitive, Type
from lakebed.model.sql_dialect import NUMBER, parse_condition, quoted_words, to_text
from lakebed.model.sql_moments import MistakeError, SqlMoments, is_now
from lakebed.model.values import (
    FLOATS,
    INTEGERS,
    TIMES,
    Scalar,
    check_value,
    compared_value,
    listed_values,
    parameter_value,
    parse_value,
    plain_value,
)

if TYPE_CHECKING:
    from sqlglot import expressions as exp


class OtherFormError(PredicateError):
    """A condition is not a comparison of a column with values, and not wrong for that."""


def parse_sql(
    text: str,
    types: Mapping[str, Type],
    parameters: Parameters | None = None,
) -> Predicate:
    """Read a predicate from SQL text; literals get the types of the columns they are compared with.

    The language is that of Spark 4.3 in ANSI mode and UTC; docs/functions.md lists the functions. What
    compares a column with values is read as such, and chooses files. So does a function that keeps
    order, such as `date(seen)`. All else becomes a `Formula`. Text that is compared with a date or
    timestamp column is read as a date or timestamp. `now()`, `current_timestamp` and `current_date`
    are computed here, for all of the text at one moment.

    Args:
        text: The condition, as after WHERE.
        types: Types of the columns that the text may name.
        parameters: Values for the `?` in the text, in order, or for `:name`, by name. A list stands
            for all of its values after IN.

    Raises:
        PredicateError: The text does not parse, uses unsupported syntax, names an unknown column,
            or a literal does not fit its column.
    """
    given = _Given(text, parameters)
    tree = _tree_of(text)
    check_quotes(text, types)
    try:
        predicate = _Reader(text, types, given).read(tree)
        given.check_all_used()
        return predicate
    except RecursionError as exc:
        raise _unreadable(text, why_unreadable(exc)) from exc


def check_quotes(text: str, columns: Collection[str]) -> None:
    """Check that no text in double quotes, which Spark reads as a text, is the name of a column.

    Raises:
        PredicateError: One is, so that other systems would read the column.
    """
    folded = {column.casefold() for column in columns}
    for word in quoted_words(text):
        if word.casefold() in folded:
            raise PredicateError(
                f'"{word}" in {shown(text)} may be a text, as in Spark, or the column {word!r}.',
                hint=f"Write '{word}' for the text, and `{word}` for the column.",
            )


def _tree_of(text: str) -> exp.Expr:
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_condition(text)
        check_arguments(tree, text)
    except (SqlglotError, RecursionError) as exc:
        raise _unreadable(text, why_unreadable(exc)) from exc
    return tree


# The arguments of each node that the readers of conditions, values and moments look at, and those
# that do not change its meaning, by the name of its class in sqlglot.
READ_ARGUMENTS: Mapping[str, frozenset[str]] = {
    name: frozenset(arguments.split())
    for names, arguments in (
        ("Paren Not Boolean Null Neg Upper Lower Abs Var", "this"),
        ("And Or Dot EQ NEQ LT LTE GT GTE Add Sub Mul Mod IntDiv Escape", "this expression"),
        ("NullSafeEQ NullSafeNEQ RegexpLike", "this expression"),
        ("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot", "this expression"),
        ("Is Like ILike", "this expression negate"),
        ("In", "this expressions field"),
        ("Between", "this low high symmetric"),
        ("Column", "this table db catalog"),
        ("Identifier", "this quoted"),
        ("Literal", "this is_string"),
        ("HexString Placeholder DataTypeParam", "this"),
        ("Cast TryCast", "this to safe"),
        ("Bracket", "this expressions"),
        ("DataType", "this expressions nested"),
        ("CurrentDate CurrentTimestamp", ""),
        ("IntervalSpan", "this expression"),
        ("Anonymous", "this expressions"),
        ("Interval", "this unit"),
        ("TsOrDsAdd", "this expression unit"),
        ("Div", "this expression typed safe"),
        ("DPipe", "this expression safe"),
        ("Concat", "expressions safe coalesce"),
        ("Case", "this ifs default"),
        ("If", "this true false"),
        ("Round", "this decimals"),
        ("Coalesce", "this expressions is_nvl is_null"),
        ("Greatest Least", "this expressions ignore_nulls"),
        ("Trim", "this expression position collation"),
    )
    for name in names.split()
}


def check_arguments(tree: exp.Expr, text: str) -> None:
    """Check that no node has an argument that its reader would leave out of account.

    Nodes of other classes are refused by the readers.

    Raises:
        PredicateError: One has.
    """
    for node in tree.walk():
        read = READ_ARGUMENTS.get(type(node).__name__)
        if read is None or node.args.keys() <= read:
            continue
        for name, argument in node.args.items():
            if name in read or argument is None or argument is False or argument == []:
                continue
            word = name.strip("_").replace("_", " ").upper()
            raise PredicateError(
                f"Cannot use {shown(to_text(node))} in the predicate {shown(text)}: a part of it, "
                f"{word}, is not supported.",
                hint="Leave the part out, or compute the value in Python, DuckDB or Spark.",
            )


def why_unreadable(error: Exception) -> str:
    """Return why sqlglot cannot read a text, as a part of a message.

    Args:
        error: An error of sqlglot, or that of Python for a text that is nested too deeply.
    """
    from sqlglot.errors import ParseError

    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, ParseError):
        return "a quote is not closed"
    first = error.errors[0] if error.errors else {}
    near = f" near {shown(first['highlight'])}" if first.get("highlight") else ""
    return f"it is incomplete or wrong{near}"


def _unreadable(text: str, reason: str) -> PredicateError:
    return PredicateError(
        f"Cannot read the predicate {shown(text)}: {reason}.",
        hint="Write a condition as after WHERE, for example \"carrier = 'UA'\".",
    )


Parameters = Sequence[object] | Mapping[str, object]
"""Values for the `?` of a text, in order, or for its `:name`, by name."""


def plain_parameters(text: str, parameters: Parameters | None) -> Parameters | None:
    """Return the parameters of a text, of which each is a plain value or a list of such.

    A generator is read here, once; so the result may be used several times.

    Raises:
        PredicateError: They are not a list or a dict.
    """
    if parameters is None:
        return None
    if isinstance(parameters, Mapping):
        return {name: _plain_parameter(value) for name, value in parameters.items()}
    listed = None if isinstance(parameters, Set) else listed_values(parameters)
    if listed is None:
        raise PredicateError(
            f"The parameters of {shown(text)} are {shown(parameters)}.",
            hint="Give a list for `?`, or a dict for `:name`.",
        )
    return [_plain_parameter(value) for value in listed]


def _plain_parameter(value: object) -> object:
    plain = plain_value(value)
    listed = listed_values(plain)
    return plain if listed is None else listed


class _Given:
    """The parameters of a text, and which of them were used."""

    def __init__(self, text: str, parameters: Parameters | None) -> None:
        parameters = plain_parameters(text, parameters)
        self._text = text
        self._by_name = parameters if isinstance(parameters, Mapping) else None
        self._in_order = [] if parameters is None or self._by_name is not None else [*parameters]
        self._used: list[object] = []
        self._read: dict[int, tuple[exp.Placeholder, object]] = {}

    def value_of(self, node: exp.Placeholder) -> object:
        """Return the value of a placeholder, which may be asked for again."""
        if id(node) not in self._read:
            self._read[id(node)] = (node, self._value_of(node))
        return self._read[id(node)][1]

    def _value_of(self, node: exp.Placeholder) -> object:
        name = node.args.get("this")
        if not name:
            if self._by_name is not None or len(self._used) >= len(self._in_order):
                raise self._mismatch()
            self._used.append(None)
            return self._in_order[len(self._used) - 1]
        if self._by_name is None or name not in self._by_name:
            raise PredicateError(
                f"There is no parameter {name!r} for {shown(self._text)}.",
                hint=nearest(name, list(map(str, self._by_name or ())))
                or f"Give it by name: {{{name!r}: …}}.",
            )
        self._used.append(name)
        return self._by_name[name]

    def values_of(self, node: exp.Placeholder) -> list[object]:
        """Return the values of a placeholder behind IN: those of a list, or the one."""
        value = self.value_of(node)
        return value if isinstance(value, list) else [value]

    def check_all_used(self) -> None:
        """Check that no parameter is left.

        Raises:
            PredicateError: One is.
        """
        if self._by_name is None and len(self._used) < len(self._in_order):
            raise self._mismatch()
        for name in self._by_name or ():
            if name not in self._used:
                raise PredicateError(
                    f"The parameter {name!r} does not stand in {shown(self._text)}.",
                    hint=f"Write :{name} in the text, or leave it out.",
                )

    def _mismatch(self) -> PredicateError:
        asked = self._text.count("?")
        of_in = ' IN takes one parameter that is a list: ("id IN ?", [[1, 2, 3]]).'
        return PredicateError(
            f"{shown(self._text)} has {counted(asked, 'parameter')} of the form `?`, and "
            f"{len(self._in_order):,} were given.",
            hint="Give a list with a value for each `?`."
            + (of_in if " in ?" in self._text.lower() else ""),
        )


def _with_backslashes(pattern: str, escape: str) -> str:
    """Return a pattern with the default escape character in the place of another one."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            parts.append("\\" + next(characters, ""))
        else:
            parts.append("\\\\" if character == "\\" else character)
    return "".join(parts)


def _as_time(
    moment: dt.datetime | dt.date, kind: Type, column: str, *, is_literal: bool = False
) -> Scalar:
    """Return a moment as a value of a column of dates or times; a literal of midnight is a date."""
    if is_literal and _kind_of(kind) is Kind.DATE and isinstance(moment, dt.datetime):
        moment = moment.date() if moment.time() == dt.time() else moment
    is_moment = isinstance(moment, dt.datetime)
    if _kind_of(kind) is Kind.DATE:
        if is_moment:
            raise OtherFormError(
                f"Column {column!r} of type {kind} is compared with a time.",
                hint="Compare it with a day, such as DATE '2013-06-01', or current_date and whole days.",
            )
        return check_value(moment, kind, column)
    if not is_moment:
        moment = dt.datetime.combine(moment, dt.time(), dt.UTC)
    assert isinstance(moment, dt.datetime)
    if _kind_of(kind) is Kind.TIMESTAMP_NTZ:
        moment = moment.replace(tzinfo=None)
    return check_value(moment, kind, column)


_QUOTED = TIMES | {Kind.STRING}
# Replacements for hints of `check_value` that are about Python and not SQL.
_LITERAL_HINTS: Mapping[Kind | None, str] = {
    Kind.STRING: "Write text in single quotes, as in 'UA'.",
    Kind.BYTES: "Write bytes as hexadecimal digits, as in X'0aff'.",
    Kind.BOOLEAN: "Write TRUE or FALSE.",
    Kind.DATE: "Write it as '2013-06-01'.",
    Kind.TIMESTAMP: "Write it as '2013-06-01T12:30:00'; without a zone it is UTC, and it has up to "
    "six digits of a second.",
    Kind.TIMESTAMP_NTZ: "Write it as '2013-06-01T12:30:00', without a zone and with up to six "
    "digits of a second.",
}


# What stands before and after a text in the pattern of a function.
_AROUND = {"startswith": ("", "%"), "endswith": ("%", ""), "contains": ("%", "%")}


def _beside_fraction(column: str, op: Op, fraction: decimal.Decimal) -> Predicate:
    """Return the comparison of a whole number with a fraction, as one with a whole number."""
    below = math.floor(fraction)
    if below == fraction or op in (Op.LE, Op.GT):
        return Comparison(column, op, below)
    if op in (Op.EQ, Op.NE):
        # No whole number is equal to it, and null is neither.
        is_never = all_of([Comparison(column, Op.GT, below), Comparison(column, Op.LT, below)])
        return is_never if op is Op.EQ else negate(is_never)
    return Comparison(column, op, below + 1)


def _check_cased(node: object, value: object, whole: exp.Expr) -> None:
    """Check that `upper` or `lower` of something is compared with a text that it can give.

    Raises:
        MistakeError: It is compared with a text that has letters of the other case.
    """
    from sqlglot import expressions as exp

    cases = {"upper": str.upper, "ucase": str.upper, "lower": str.lower, "lcase": str.lower}
    name = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    text = value.name if isinstance(value, exp.Literal) and value.is_string else ""
    if name in cases and cases[name](text) != text:
        raise MistakeError(
            f"{shown(to_text(whole))} is never true: {name} gives no such letters.",
            hint=f"Write {shown(cases[name](text))}, or use ILIKE.",
        )


def _literal_node(value: object) -> exp.Expr:
    """Return the literal of a value, whose type Spark reads from it."""
    from sqlglot import expressions as exp

    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case bytes():
            return exp.HexString(this=value.hex())
        case float():
            return exp.cast(exp.Literal.string(repr(value)), "DOUBLE")
        case int() | decimal.Decimal():
            number = exp.Literal.number(
                f"{abs(value):f}" if isinstance(value, decimal.Decimal) else abs(value)
            )
            return exp.Neg(this=number) if value < 0 else number
        case dt.datetime():
            kind = "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
            return exp.cast(exp.Literal.string(value.isoformat(" ")), kind, dialect="spark")
        case dt.date():
            return exp.cast(exp.Literal.string(value.isoformat()), "DATE")
        case str():
            return exp.Literal.string(value)
    raise PredicateError(
        f"A parameter is {shown(value)}.",
        hint="Give a number, a text, bytes, a boolean, a date or a datetime.",
    )


class _Reader:
    def __init__(
        self,
        text: str,
        types: Mapping[str, Type],
        given: _Given | None = None,
    ) -> None:
        from sqlglot import expressions as exp

        self._exp = exp
        self._text = text
        self._types = types
        self._given = given or _Given(text, None)
        self._moments = SqlMoments(dt.datetime.now(dt.UTC))
        self._comparisons: dict[type[exp.Expr], tuple[Op, Op]] = {
            exp.EQ: (Op.EQ, Op.EQ),
            exp.NEQ: (Op.NE, Op.NE),
            exp.LT: (Op.LT, Op.GT),
            exp.LTE: (Op.LE, Op.GE),
            exp.GT: (Op.GT, Op.LT),
            exp.GTE: (Op.GE, Op.LE),
        }

    def read(self, node: exp.Expr) -> Predicate:
        exp = self._exp
        match node:
            case exp.Paren():
                return self.read(node.this)
            case exp.And():
                return all_of([self.read(part) for part in operands_of(node)])
            case exp.Or():
                either = any_of([self.read(part) for part in operands_of(node)])
                return self._in_order(node, either)
            case exp.Not():
                return self._in_order(node, negate(self.read(node.this)))
        try:
            return self._plain(node)
        except MistakeError as exc:
            raise PredicateError(exc.message, hint=exc.hint) from None
        except PredicateError as exc:
            return self._formula(node, exc)

    def _in_order(self, node: exp.Expr, predicate: Predicate) -> Predicate:
        """Return a condition of which no part is computed for rows that those before it decide.

        As `x = 0 OR 1 / x > 2`: a formula that holds all of it keeps to the order. Of conditions that
        AND joins, each looks only at rows that meet those before it.
        """
        if isinstance(predicate, Formula) or not may_raise(predicate):
            return predicate
        return self._formula(node, OtherFormError("It is computed as a whole.", hint=""))

    def _plain(self, node: exp.Expr) -> Predicate:
        """Return a condition that compares a column with values, by which files are chosen."""
        exp = self._exp
        match node:
            case exp.Boolean():
                return TRUE if node.this else FALSE
            case exp.Is():
                return negate(self._is(node)) if node.args.get("negate") else self._is(node)
            case exp.In() if node.expressions or isinstance(
                node.args.get("field"), exp.Placeholder
            ):
                return self._membership(node)
            case exp.Like() | exp.Escape():
                return self._like(node)
            case exp.Anonymous() if node.name.lower() in _AROUND and len(node.expressions) == 2:
                start, end = _AROUND[node.name.lower()]
                column, part = self._column(node.expressions[0]), node.expressions[1]
                pattern = escaped(self._text_of(part, node))
                return self._fits(column, f"{start}{pattern}{end}", node)
            case exp.Between() if self._found(node.this) is None and not node.args.get("symmetric"):
                low = exp.GTE(this=node.this.copy(), expression=node.args["low"].copy())
                high = exp.LTE(this=node.this.copy(), expression=node.args["high"].copy())
                return all_of([self._comparison(low), self._comparison(high)])
            case exp.Between():
                column = self._column(node.this)
                ends = [self._literal(node.args[end], column) for end in ("low", "high")]
                orders = [ends, ends[::-1]] if node.args.get("symmetric") else [ends]
                return any_of(
                    [
                        all_of([Comparison(column, Op.GE, low), Comparison(column, Op.LE, high)])
                        for low, high in orders
                    ]
                )
            case exp.Column() | exp.Dot():
                return self._bare_column(node)
        if type(node) in self._comparisons:
            return self._comparison(node)
        raise self._refused(node)

    def _formula(self, node: exp.Expr, refusal: PredicateError) -> Predicate:
        """Return a condition that an engine computes.

        Args:
            node: Its tree.
            refusal: Reason for which it is not a comparison of a column with values.

        Raises:
            PredicateError: It cannot be computed without Spark, or is wrong for any row.
        """
        from lakebed.model.formulas.compiler import formula_of
        from lakebed.model.formulas.computation import check_text

        is_other = isinstance(refusal, OtherFormError)
        try:
            tree = self._with_values(node)
            formula = formula_of(tree, self._types)
            for literal in tree.find_all(self._exp.Literal):
                if literal.is_string and formula.may_raise and not is_other:
                    check_text(literal.name, [kind for _, kind in formula.types])
        except PredicateError as exc:
            raise (exc if is_other else refusal) from exc
        return formula

    def _with_values(self, node: exp.Expr) -> exp.Expr:
        """Return a tree with literals in place of parameters and of the current time."""
        exp = self._exp
        copy = node.copy()
        for own, copied in zip(list(node.walk()), list(copy.walk()), strict=True):
            value: object
            if isinstance(own, exp.Placeholder):
                if isinstance(own.parent, exp.In) and own.arg_key == "field":
                    values = [_literal_node(value) for value in self._given.values_of(own)]
                    listed = copied.parent
                    assert listed is not None  # as that of the node
                    listed.set("expressions", values)
                    listed.set("field", None)
                    continue
                value = self._given.value_of(own)
            elif isinstance(own, exp.CurrentDate | exp.CurrentTimestamp) or is_now(own):
                value = self._moments.find(own)
            else:
                continue
            if copied is copy:
                return _literal_node(value)
            copied.replace(_literal_node(value))
        return copy

    def _comparison(self, node: exp.Expr) -> Predicate:
        op, flipped = self._comparisons[type(node)]
        left, right = node.args["this"], node.args["expression"]
        columns = (self._exp.Column, self._exp.Dot)
        # If one side is unquoted text, the known column is the other side.
        if isinstance(right, columns) and (
            not isinstance(left, columns) or (self._knows(right) and not self._knows(left))
        ):
            left, right, op = right, left, flipped
        for one, other in ((left, right), (right, left)):
            _check_cased(one, other, node)
        for one, other, sign in ((left, right, op), (right, left, flipped)):
            within = find_range(one, self._found, sign, lambda kind: self._as(other, kind))  # noqa: B023 - used at once
            if within is not None:
                return within
        column = self._column(left)
        fraction = self._fraction(right, self._types[column])
        if fraction is not None:
            return _beside_fraction(column, op, fraction)
        return Comparison(column, op, self._literal(right, column))

    def _found(self, node: exp.Expr) -> tuple[str, Type] | None:
        """Return the name and the type of a column; None for another part."""
        try:
            name = self._column(node)
        except PredicateError:
            return None
        return name, self._types[name]

    def _as(self, node: exp.Expr, kind: Type) -> Scalar:
        """Return a literal or a parameter as a value of a type."""
        return _Reader(self._text, {"the value": kind}, self._given)._literal(node, "the value")

    def _fraction(self, node: exp.Expr, kind: Type) -> decimal.Decimal | None:
        """Return a literal that is compared with whole numbers and is none; None for others."""
        sign = 1
        while isinstance(node, self._exp.Paren | self._exp.Neg):
            sign, node = -sign if isinstance(node, self._exp.Neg) else sign, node.this
        if _kind_of(kind) not in INTEGERS or not isinstance(node, self._exp.Literal):
            return None
        if node.is_string or not re.fullmatch(r"\d*\.\d*", node.name):
            return None
        return sign * decimal.Decimal(node.name)

    def _membership(self, node: exp.In) -> Predicate:
        exp = self._exp
        items: list[object] = []
        for item in node.expressions or [node.args["field"]]:
            if isinstance(item, exp.Placeholder):
                items += self._given.values_of(item)
            elif isinstance(item, exp.Null):
                raise self._refused(node)
            else:
                items.append(item)
        column = self._column(node.this)
        values = tuple(self._literal(item, column) for item in items)
        listed = Membership(column, tuple(dict.fromkeys(values)))
        return listed if values else FALSE

    def _like(self, node: exp.Expr) -> Predicate:
        """Return the condition of LIKE, with or without ESCAPE."""
        exp, escape = self._exp, "\\"
        whole = node
        if isinstance(node, exp.Escape):
            escape, node = self._text_of(node.expression, whole), node.this
        if not isinstance(node, exp.Like) or len(escape) != 1:
            raise self._refused(whole)
        pattern = self._text_of(node.expression, whole)
        if escape != "\\":
            pattern = _with_backslashes(pattern, escape)
        fitting = self._fits(self._column(node.this), pattern, whole)
        # In newer releases of sqlglot, NOT LIKE is not a negation around LIKE.
        return negate(fitting) if node.args.get("negate") else fitting

    def _fits(self, column: str, pattern: str, whole: exp.Expr) -> Predicate:
        kind = self._types[column]
        if kind != Primitive(Kind.STRING):
            raise OtherFormError(
                f"Column {column!r} of type {kind} is compared with text in "
                f"{shown(to_text(whole))}.",
                hint="Only text has patterns and letters; compare it with a value.",
            )
        pieces_of(pattern)
        return like(column, pattern)

    def _text_of(self, node: object, whole: exp.Expr) -> str:
        """Return a text that is given as a literal or a parameter."""
        exp = self._exp
        while isinstance(node, exp.Paren):
            node = node.this
        if isinstance(node, exp.Placeholder):
            node = self._given.value_of(node)
        elif isinstance(node, exp.Literal) and node.is_string:
            node = node.name
        if not isinstance(node, str):
            raise PredicateError(
                f"{shown(to_text(whole))} needs a text in {shown(self._text)}.",
                hint="Give a literal in single quotes, such as 'UA%', or a parameter.",
            )
        return node

    def _knows(self, node: exp.Column | exp.Dot) -> bool:
        return ".".join(part.name for part in node.parts) in self._types

    def _is(self, node: exp.Expr) -> Predicate:
        column = self._column(node.this)
        if isinstance(node.expression, self._exp.Null):
            return NullCheck(column)
        if isinstance(node.expression, self._exp.Boolean):
            # IS TRUE is never unknown, so its negation must select nulls: two leaves each way.
            wanted = bool(node.expression.this)
            return all_of([Comparison(column, Op.EQ, wanted), NullCheck(column, negated=True)])
        raise self._refused(node)

    def _bare_column(self, node: exp.Expr) -> Predicate:
        column = self._column(node)
        if self._types[column] != Primitive(Kind.BOOLEAN):
            raise PredicateError(
                f"Column {column!r} of type {self._types[column]} is used as a condition in "
                f"{self._text!r}.",
                hint=f"Only a boolean column can be a condition; compare it, as in {column} = ….",
            )
        return Comparison(column, Op.EQ, value=True)

    def _column(self, node: exp.Expr) -> str:
        while isinstance(node, self._exp.Paren):
            node = node.this
        if not isinstance(node, self._exp.Column | self._exp.Dot):
            raise self._refused(node)
        # A column of five names and more is a Dot, each part of it an identifier.
        parts = node.parts
        if not all(isinstance(part, self._exp.Identifier) for part in parts):
            raise self._refused(node)
        name = ".".join(part.name for part in parts)
        check_columns(NullCheck(name), self._types)
        return name

    def _literal(self, node: object, column: str) -> Scalar:
        try:
            if not isinstance(node, self._exp.Expression):  # of a list that is a parameter
                return self._value_of_parameter(node, column)
            return self._value(node, column)
        except PredicateError:
            raise
        except InvalidInputError as exc:
            hint = _LITERAL_HINTS.get(_kind_of(self._types[column]), exc.hint)
            raise PredicateError(exc.message, hint=hint) from exc

    def _no_literal(self, node: exp.Column | exp.Dot, column: str) -> PredicateError:
        """Return the error for a column, or for text without quotes, instead of a literal."""
        text = ".".join(part.name for part in node.parts)
        if text in self._types:
            return OtherFormError(
                f"Column {column!r} is compared with the column {text!r} in {shown(self._text)}.",
                hint="Compare a column with a literal; columns are compared after reading.",
            )
        example = f"{column} = '{text}'"
        return PredicateError(
            f"{text!r}, which column {column!r} is compared with, is neither a literal nor a "
            f"column in {shown(self._text)}.",
            hint=f"Put text into single quotes, as in {shown(example)}."
            if _kind_of(self._types[column]) in _QUOTED
            else _LITERAL_HINTS.get(_kind_of(self._types[column]), "Write a number."),
        )

    def _value(self, node: exp.Expr, column: str) -> Scalar:
        exp = self._exp
        kind = self._types[column]
        match node:
            case exp.Paren():
                return self._value(node.this, column)
            case exp.Null():
                raise MistakeError(
                    f"Column {column!r} is compared with NULL, which is never true.",
                    hint=f"Write {column} IS NULL.",
                )
            case exp.Boolean():
                return check_value(bool(node.this), kind, column)
            case exp.Column() | exp.Dot():
                raise self._no_literal(node, column)
            case exp.Neg(this=exp.Literal(is_string=False) as number):
                return _number("-" + number.name, kind, column)
            case exp.Literal(is_string=False):
                return _number(node.name, kind, column)
            case exp.Literal():
                return _text_value(node.name, kind, column)
            case exp.HexString():
                return check_value(_bytes(node.name, column), kind, column)
            case exp.Anonymous(expressions=[exp.Literal(is_string=True) as text]) if _is_timely(
                kind
            ) and node.name.lower() in ("date", "timestamp"):
                return self._value(exp.cast(text.copy(), node.name, dialect="spark"), column)
            case exp.Cast(this=exp.Literal(is_string=True)) if _is_timely(kind):
                # DATE '2013-06-01' is parsed as a cast.
                try:
                    moment = self._moments.read_literal(node, column)
                except InvalidInputError as exc:
                    raise MistakeError(
                        exc.message, hint=_LITERAL_HINTS.get(_kind_of(kind), exc.hint)
                    ) from exc
                if moment is not None:
                    return _as_time(moment, kind, column, is_literal=True)
            case exp.Placeholder():
                return self._value_of_parameter(self._given.value_of(node), column)
        if _is_timely(kind):
            moment = self._moments.find(node)
            if moment is not None:
                return _as_time(moment, kind, column)
        if isinstance(node, exp.Sub) and _kind_of(kind) in _QUOTED:
            raise self._unquoted_date(node, column)
        raise self._refused(node)

    def _value_of_parameter(self, value: object, column: str) -> Scalar:
        kind = self._types[column]
        value = parameter_value(value, kind)
        if value is None:
            raise MistakeError(
                f"Column {column!r} is compared with NULL, which is never true.",
                hint=f"Write {column} IS NULL.",
            )
        try:
            if isinstance(value, str) and _is_timely(kind):
                return parse_value(value, kind, column)
            return compared_value(value, kind, column)
        except InvalidInputError as exc:
            raise MistakeError(exc.message, hint=exc.hint) from exc

    def _unquoted_date(self, node: exp.Sub, column: str) -> PredicateError:
        """Return the error for a subtraction, which SQL reads in a date without quotes."""
        text = to_text(node).replace(" ", "")
        if not re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}", text):
            return self._refused(node)
        return MistakeError(
            f"Column {column!r} is compared with {text} without quotes, which is a difference of "
            f"numbers, in {shown(self._text)}.",
            hint=f"Put dates and times into single quotes: '{text}'.",
        )

    def _refused(self, node: exp.Expr) -> OtherFormError:
        return OtherFormError(
            f"Cannot use {shown(to_text(node))} in the predicate {shown(self._text)}.",
            hint="Compare columns with literals.",
        )


def read_tree(text: str) -> exp.Expr:
    """Return the tree of SQL text that stands behind WHERE, or behind `SET x =`.

    Raises:
        PredicateError: The text does not parse.
    """
    return _tree_of(text)


def with_columns(
    formula: Formula, names: Mapping[str, str], values: Mapping[str, Scalar] | None = None
) -> Formula:
    """Return a formula whose columns have other names, or are values.

    Args:
        formula: The formula.
        names: New names of columns, by the present ones, both with dots.
        values: Values of the other columns.
    """
    from sqlglot import expressions as exp

    others = {name: parse_condition(sql_name(other)) for name, other in names.items()}
    for name, value in (values or {}).items():
        kind = sql_type_of(dict(formula.types)[name])
        others[name] = exp.cast(_literal_node(value), kind, dialect="spark")
    tree = exp.Paren(this=parse_condition(formula.text))  # so that each part of it has a parent
    for node in list(tree.find_all(exp.Column, exp.Dot)):
        assert isinstance(node, exp.Column | exp.Dot)  # as searched for
        other = others.get(".".join(part.name for part in node.parts))
        if other is not None and not isinstance(node.parent, exp.Dot):
            node.replace(other.copy())
    types = tuple((names[name], kind) for name, kind in formula.types if name in names)
    return Formula(to_text(tree.this), types, formula.may_raise)


def with_columns_renamed(text: str, names: Mapping[str, str]) -> str | None:
    """Return the text of a condition with new names of fields, given by their former ones.

    Returns:
        The text; None if it names none of the fields.

    Raises:
        PredicateError: The text does not parse.

    >>> with_columns_renamed("carrier = 'UA' AND delay > 0", {"carrier": "airline"})
    "airline = 'UA' AND delay > 0"
    """
    from sqlglot import expressions as exp

    tree, is_renamed = _tree_of(text), False
    for node in tree.find_all(exp.Column, exp.Dot):
        assert isinstance(node, exp.Column | exp.Dot)  # as searched for
        root = node.parts[0]
        if isinstance(root, exp.Identifier) and root.name in names:
            root.replace(exp.to_identifier(names[root.name], quoted=root.args.get("quoted")))
            is_renamed = True
    return to_text(tree) if is_renamed else None


def with_values(node: exp.Expr, text: str, types: Mapping[str, Type]) -> exp.Expr:
    """Return a tree with literals in place of the current time."""
    return _Reader(text, types)._with_values(node)


def read_literal(node: exp.Expr, text: str, types: Mapping[str, Type], column: str) -> Scalar:
    """Read a literal from a part of a tree, as a value of a column."""
    check_arguments(node, text)
    value = _Reader(text, types)._literal(node, column)
    try:
        return check_value(value, types[column], column)
    except InvalidInputError as exc:  # a whole number that only a comparison takes
        raise PredicateError(exc.message, hint=exc.hint) from exc


def operands_of(node: exp.Connector) -> list[exp.Expr]:
    """Return what a chain of ANDs or ORs joins, which is a level of the tree for each word."""
    operands: list[exp.Expr] = []
    waiting: list[exp.Expr] = [node]
    while waiting:
        part = waiting.pop()
        if type(part) is type(node):
            waiting += (part.args["expression"], part.args["this"])
        else:
            operands.append(part)
    return operands


def _bytes(digits: str, column: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError as exc:
        raise PredicateError(
            f"X'{digits}' is not a sequence of bytes (column {column!r}).",
            hint="Write two hexadecimal digits per byte.",
        ) from exc


def _text_value(text: str, kind: Type, column: str) -> Scalar:
    is_number_by_name = _is_float(kind) and text.lower() in ("nan", "inf", "-inf")
    if _is_timely(kind) or is_number_by_name:
        return parse_value(text, kind, column)
    return check_value(text, kind, column)


def _number(text: str, kind: Type, column: str) -> Scalar:
    if not NUMBER.fullmatch(text):
        raise InvalidInputError(
            f"{shown(text)} is not a number.", hint="Write digits, as in 12, 1.5 or 1e3."
        )
    if isinstance(kind, Decimal):
        return check_value(decimal.Decimal(text), kind, column)
    if _is_float(kind):
        number = float(text)
        if math.isfinite(number):
            return check_value(number, kind, column)
    elif isinstance(kind, Primitive) and kind.kind in INTEGERS:
        return parse_value(text, kind, column, compared_value)
    raise InvalidInputError(
        f"The number {shown(text)[1:-1]} does not fit column {column!r} of type {kind}.",
        hint=f"Give a value of type {kind}.",
    )


def _kind_of(kind: Type) -> Kind | None:
    return kind.kind if isinstance(kind, Primitive) else None


def _is_float(kind: Type) -> bool:
    return _kind_of(kind) in FLOATS


def _is_timely(kind: Type) -> bool:
    return _kind_of(kind) in TIMES
