"""Trees of Spark SQL as typed expressions of DuckDB.

Each node is read by the rules of Spark's ANSI mode in UTC. What has another meaning in DuckDB is
written in another way, or refused by name: no row gets another answer.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.functions import FUNCTIONS, REFUSED, FunctionCall
from lakebed.model.formulas.operators import (
    arithmetic,
    bitwise,
    compared,
    negative,
    shifted,
)
from lakebed.model.formulas.orders import Orders
from lakebed.model.formulas.typed import (
    BOOLEAN,
    BYTES,
    CLOCK,
    DATE,
    DOUBLE,
    INT,
    LONG,
    NULL,
    TEXT,
    TIMESTAMP,
    Typed,
    common_type,
    duck_text,
    duck_type,
    joined,
    named,
    places,
)
from lakebed.model.names import nearest
from lakebed.model.predicate import Formula, pieces_of
from lakebed.model.schema import SMALLINT, TINYINT, Decimal, Struct, Type
from lakebed.model.sql_dialect import NUMBER, parse_condition, to_text

if TYPE_CHECKING:
    from sqlglot import expressions as exp


_MOST_CHARACTERS = 400  # of a number


def column_sql(name: str) -> str:
    """Return the name that a column of the row has in DuckDB, which ignores case in names."""
    return "c_" + name.encode().hex()


@lru_cache(maxsize=256)
def compiled(text: str, types: tuple[tuple[str, Type], ...]) -> Typed:
    """Return the expression of a text over columns of these types.

    Raises:
        PredicateError: It cannot be read, or some part of it needs Spark.
    """
    return Compiler(text, dict(types)).read(parse_condition(text))


def formula_of(tree: exp.Expr | str, types: Mapping[str, Type]) -> Formula:
    """Return a condition that an engine computes, of columns that it names.

    Args:
        tree: The condition, as a tree or as text.
        types: Types of the columns that it may name.

    Raises:
        PredicateError: It cannot be read, or some part of it needs Spark.
    """
    text = tree if isinstance(tree, str) else to_text(tree)
    compiler = Compiler(text, types)
    condition = compiler.condition(parse_condition(tree) if isinstance(tree, str) else tree)
    formula = Formula(text, tuple(compiler.named.items()), may_raise=condition.may_raise)
    if condition_of(formula) != condition.sql:  # sqlglot has left a part out of the text
        raise compiler.refused(tree, "a part of it is not supported")
    return formula


def condition_of(formula: Formula) -> str:
    """Return the expression of DuckDB that computes a formula."""
    return _condition(formula.text, formula.types)


@lru_cache(maxsize=256)
def _condition(text: str, types: tuple[tuple[str, Type], ...]) -> str:
    return Compiler(text, dict(types)).condition(parse_condition(text)).sql


class Compiler:
    """Reads the tree of one text."""

    def __init__(self, text: str, types: Mapping[str, Type], prefix: str = "") -> None:
        """Start.

        Args:
            text: The text, for errors.
            types: Types of the columns, nested ones by dotted names.
            prefix: Put before the names of columns in the row, such as `target.`.
        """
        from sqlglot import expressions as exp

        self._exp = exp
        self._orders = Orders()
        self._text = text
        self._types = types
        self._prefix = prefix
        self.named: dict[str, Type] = {}
        self._variables: dict[str, Typed] = {}
        self._readers: dict[type[exp.Expr], Callable[[Any], Typed]] = {
            exp.Paren: lambda node: self.read(node.this),
            exp.Column: self._column,
            exp.Dot: self._column,
            exp.Identifier: self._variable,
            exp.Literal: self._literal,
            exp.Boolean: lambda node: Typed(
                sql="true" if node.this else "false", type=BOOLEAN, constant=bool(node.this)
            ),
            exp.Null: lambda _: NULL,
            exp.HexString: self._bytes,
            exp.And: lambda node: self._joined(node, "AND"),
            exp.Or: lambda node: self._joined(node, "OR"),
            exp.Not: lambda node: joined("(NOT {0})", [self.condition(node.this)], BOOLEAN),
            exp.Is: self._is,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.ILike: self._like,
            exp.Escape: self._like,
            exp.Case: self._case,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Bracket: self._element,
            exp.Anonymous: self._call,
            exp.Neg: self._negative,
        }
        signs: tuple[tuple[Callable[[str], Callable[[Any], Typed]], dict[str, type[exp.Expr]]], ...]
        signs = (
            (
                self._comparing,
                {
                    "=": exp.EQ,
                    "<>": exp.NEQ,
                    "<": exp.LT,
                    "<=": exp.LTE,
                    ">": exp.GT,
                    ">=": exp.GTE,
                    "IS NOT DISTINCT FROM": exp.NullSafeEQ,
                    "IS DISTINCT FROM": exp.NullSafeNEQ,
                },
            ),
            (
                self._computing,
                {
                    "+": exp.Add,
                    "-": exp.Sub,
                    "*": exp.Mul,
                    "/": exp.Div,
                    "%": exp.Mod,
                    "div": exp.IntDiv,
                },
            ),
            (
                self._bitwise,
                {"&": exp.BitwiseAnd, "|": exp.BitwiseOr, "^": exp.BitwiseXor},
            ),
        )
        for reader_of, classes in signs:
            self._readers |= {kind: reader_of(sign) for sign, kind in classes.items()}
        self._named: dict[type[exp.Expr], Callable[[Any], tuple[str, Sequence[object]]]] = {
            exp.CurrentDate: lambda _: ("current_date", ()),
            exp.CurrentTimestamp: lambda _: ("current_timestamp", ()),
            exp.DPipe: lambda node: ("||", (node.this, node.expression)),
            exp.BitwiseNot: lambda node: ("~", (node.this,)),
            exp.BitwiseLeftShift: lambda node: ("<<", (node.this, node.expression)),
            exp.BitwiseRightShift: lambda node: (">>", (node.this, node.expression)),
            exp.RegexpLike: lambda node: ("regexp_like", (node.this, node.expression)),
            exp.Extract: lambda node: (
                "date_part",
                (exp.Literal.string(node.name), node.expression),
            ),
            exp.StrPosition: lambda node: (
                "position",
                [
                    node.args["substr"],
                    node.this,
                    *([node.args["position"]] if node.args.get("position") else []),
                ],
            ),
            exp.Substring: lambda node: (
                "substring",
                [node.this, *(node.args[x] for x in ("start", "length") if node.args.get(x))],
            ),
            exp.Trim: self._trim,
            exp.Overlay: lambda node: (
                "overlay",
                [
                    node.this,
                    node.expression,
                    node.args["from_"],
                    *([node.args["for_"]] if node.args.get("for_") else []),
                ],
            ),
        }

    def read(self, node: object) -> Typed:
        """Return the expression of a node."""
        if self._orders.is_other(node):
            raise PredicateError(
                f"Spark computes {self._shown(node)} in another order than it is read here.",
                hint="Put the part that is computed first in parentheses.",
            )
        reader = self._readers.get(type(node))  # type: ignore[arg-type]  # any class may be asked for
        if reader is not None:
            return reader(node)
        named = self._named.get(type(node))  # type: ignore[arg-type]  # as above
        if named is not None:
            name, arguments = named(node)
            return self._function(name, arguments, node)
        raise self.refused(node)

    def is_column(self, node: Any) -> bool:
        """Return whether a node is the name of a column alone."""
        while isinstance(node, self._exp.Paren):
            node = node.this
        is_name = isinstance(node, self._exp.Column | self._exp.Dot)
        return is_name and ".".join(part.name for part in node.parts) in self._types

    # Names and literals

    def _column(self, node: Any) -> Typed:
        exp = self._exp
        root = node
        while isinstance(root, exp.Dot):
            if not isinstance(root.expression, exp.Identifier):
                raise self.refused(node)
            root = root.this
        if not isinstance(root, exp.Column | exp.Identifier):
            return self._field(self.read(node.this), node.expression.name, node)
        parts = node.parts
        names = [part.name for part in parts]
        if names[0] in self._variables:
            value = self._variables[names[0]]
            for name in names[1:]:
                value = self._field(value, name, node)
            return value
        path = ".".join(names)
        if path not in self._types:
            raise PredicateError(
                f"Unknown column {path!r} in {shown(self._text)}.",
                hint=nearest(path, list(self._types)) or "A text stands in single quotes.",
            )
        kind = self.named[path] = self._types[path]
        return Typed(sql=column_sql(self._prefix + path), type=kind)

    def _variable(self, node: Any) -> Typed:
        if node.name in self._variables:
            return self._variables[node.name]
        return self._column(self._exp.Column(this=node.copy()))

    def _field(self, value: Typed, name: str, node: object) -> Typed:
        if isinstance(value.type, Struct):
            for field in value.type.fields:
                if field.name == name:
                    return joined(f"struct_extract({{0}}, {duck_text(name)})", [value], field.type)
        raise self.refused(node)

    def _literal(self, node: Any) -> Typed:
        text = node.name
        if node.is_string:
            return Typed(sql=duck_text(text), type=TEXT, constant=text)
        return self._number(text)

    def _number(self, text: str) -> Typed:
        if len(text) > _MOST_CHARACTERS:
            raise PredicateError(
                f"The number {shown(text)[1:-1]} has too many digits.", hint="Give at most 38."
            )
        if not NUMBER.fullmatch(text):
            raise PredicateError(
                f"{shown(text)} is not a number.", hint="Write digits, as in 12, 1.5 or 1e3."
            )
        if text.lstrip("-").isdigit():
            number = int(text)
            if -(2**63) <= number < 2**63:
                kind = INT if -(2**31) <= number < 2**31 else LONG
                return Typed(sql=f"CAST({number} AS {duck_type(kind)})", type=kind, constant=number)
        if "e" in text.lower():
            return Typed(sql=f"CAST('{text}' AS DOUBLE)", type=DOUBLE, constant=float(text))
        exact = decimal.Decimal(text)
        _, digits, exponent = exact.as_tuple()
        scale = max(0, -int(exponent))
        try:
            kind_ = Decimal(max(len(digits), scale), scale)
        except InvalidInputError as exc:
            raise PredicateError(f"{text} has too many digits.", hint=exc.hint) from exc
        return Typed(sql=f"CAST('{exact:f}' AS {duck_type(kind_)})", type=kind_, constant=exact)

    def _negative(self, node: Any) -> Typed:
        inner = node.this
        if isinstance(inner, self._exp.Literal) and not inner.is_string:
            return self._number(f"-{inner.name}")
        signed = self._with_sign(inner)
        if signed is not None:
            return self._cast(signed)
        return negative(self.read(inner), self._refusal(node))

    def _with_sign(self, node: Any) -> Any | None:
        """Return the casts of a number with its sign; None of another part.

        As in -128Y and -1::string, where Spark takes the sign as a part of the number.
        """
        exp = self._exp
        if not isinstance(node, exp.Cast):
            return None
        if isinstance(node.this, exp.Literal):
            name = node.to.this.name
            is_number = not node.this.is_string or name in ("DECIMAL", "DOUBLE", "FLOAT")
            inner: Any = exp.Neg(this=node.this.copy()) if is_number else None
            if is_number and (node.this.is_string or name in ("DOUBLE", "FLOAT")):
                inner = exp.Literal.string(f"-{node.this.name}")
        else:
            inner = self._with_sign(node.this)
        if inner is None:
            return None
        signed = node.copy()
        signed.set("this", inner)
        return signed

    def _bytes(self, node: Any) -> Typed:
        digits = node.name
        if len(digits) % 2:
            digits = "0" + digits
        escaped = "".join(f"\\x{digits[at : at + 2]}" for at in range(0, len(digits), 2))
        return Typed(sql=f"CAST('{escaped}' AS BLOB)", type=BYTES, constant=bytes.fromhex(digits))

    # Logic

    def condition(self, node: object) -> Typed:
        """Return the expression of a condition."""
        value = self.read(node)
        if value.type in (BOOLEAN, TEXT, None):
            return cast(value, BOOLEAN)
        raise PredicateError(
            f"{self._shown(node)} of type {value.type} is used as a condition in "
            f"{shown(self._text)}.",
            hint="Compare it with a value.",
        )

    def _joined(self, node: Any, word: str) -> Typed:
        from lakebed.model.sql_predicates import operands_of

        parts = [self.condition(part) for part in operands_of(node)]
        return _in_order(parts, word)

    def _is(self, node: Any) -> Typed:
        exp, right = self._exp, node.expression
        negation = "NOT " if node.args.get("negate") else ""
        if isinstance(right, exp.Null):
            return joined(f"({{0}} IS {negation}NULL)", [self.read(node.this)], BOOLEAN)
        if isinstance(right, exp.Boolean):
            word = "TRUE" if right.this else "FALSE"
            return joined(f"({{0}} IS {negation}{word})", [self.condition(node.this)], BOOLEAN)
        raise self.refused(node)

    def _comparing(self, sign: str) -> Callable[[Any], Typed]:
        def compare(node: Any) -> Typed:
            left, right = self.read(node.this), self.read(node.expression)
            return compared(sign, left, right, self._refusal(node))

        return compare

    def _in(self, node: Any) -> Typed:
        if not node.expressions or node.args.get("query") is not None:
            raise self.refused(node)
        value, items = self.read(node.this), [self.read(item) for item in node.expressions]
        kind = self._type_in_common([value, *items], node)
        if kind is None:
            return Typed(sql="CAST(NULL AS BOOLEAN)", type=BOOLEAN)
        converted = [cast(part, kind) for part in (value, *items)]
        if any(item.may_raise for item in converted[1:]):
            return named(converted[0], lambda asked: _found_in(asked, converted[1:]))
        return joined(f"({{0}} IN ({places(items, 1)}))", converted, BOOLEAN)

    def _between(self, node: Any) -> Typed:
        if node.args.get("symmetric"):
            raise self.refused(node)
        low, high = self.read(node.args["low"]), self.read(node.args["high"])

        def between(value: Typed) -> Typed:
            least = compared(">=", value, low, self._refusal(node))
            return _in_order([least, compared("<=", value, high, self._refusal(node))], "AND")

        return named(self.read(node.this), between)

    def _like(self, node: Any) -> Typed:
        exp, escape = self._exp, "\\"
        whole = node
        if isinstance(node, exp.Escape):
            escape, node = node.expression.name, node.this
        if not isinstance(node, exp.Like | exp.ILike) or len(escape) != 1:
            raise self.refused(whole)
        pattern = node.expression
        if isinstance(pattern, exp.Any | exp.All):
            listed = (
                pattern.this.expressions
                if isinstance(pattern.this, exp.Tuple)
                else [pattern.this.this]
            )
            # Each of them is negated: NOT LIKE ANY is true where one of them does not fit.
            negation = "NOT " if node.args.get("negate") else ""
            text = self.read(node.this)
            parts = [
                joined(f"({negation}{{0}})", [self._fits(node, text, part, escape)], BOOLEAN)
                for part in listed
            ]
            return _in_order(parts, "OR" if isinstance(pattern, exp.Any) else "AND")
        result = self._fits(node, self.read(node.this), pattern, escape)
        return joined("(NOT {0})", [result], BOOLEAN) if node.args.get("negate") else result

    def _fits(self, node: Any, text: Typed, pattern: object, escape: str) -> Typed:
        wanted = self.read(pattern)
        if not isinstance(wanted.constant, str):
            raise self.refused(node)
        if escape == "\\":
            pieces_of(wanted.constant)  # for its error
        elif re.search(f"{re.escape(escape)}(?![%_])", wanted.constant.replace(escape * 2, "")):
            raise self.refused(node, f"{shown(escape)} stands before what it cannot escape")
        text = cast(text, TEXT)
        if isinstance(node, self._exp.ILike):
            text, wanted = (
                joined("spark_lower({0})", [text], TEXT),
                joined("spark_lower({0})", [wanted], TEXT),
            )
        return joined(f"({{0}} LIKE {{1}} ESCAPE {duck_text(escape)})", [text, wanted], BOOLEAN)

    def _case(self, node: Any) -> Typed:
        if node.this is not None:
            return named(self.read(node.this), lambda asked: self._chosen(node, asked))
        return self._chosen(node, None)

    def _chosen(self, node: Any, asked: Typed | None) -> Typed:
        """Return the value of a CASE, whose conditions are equal values if one is asked for."""
        conditions, values = [], []
        for branch in node.args["ifs"]:
            if asked is None:
                conditions.append(self.condition(branch.this))
            else:
                other = self.read(branch.this)
                conditions.append(compared("=", asked, other, self._refusal(node)))
            values.append(self.read(branch.args["true"]))
        rest = node.args.get("default")
        values.append(NULL if rest is None else self.read(rest))
        return self.choice(conditions, values, node)

    def choice(self, conditions: Sequence[Typed], values: Sequence[Typed], node: object) -> Typed:
        """Return the first value whose condition is true, else the last value."""
        *chosen, otherwise = self.in_one_type(values, node)
        branches = " ".join(
            f"WHEN {condition.sql} THEN {value.sql}"
            for condition, value in zip(conditions, chosen, strict=True)
        )
        raises = any(part.may_raise for part in (*conditions, *chosen, otherwise))
        sql = f"CASE {branches} ELSE {otherwise.sql} END"
        depth = max(part.depth for part in (*conditions, *chosen, otherwise))
        return Typed(sql=sql, type=otherwise.type, may_raise=raises, depth=depth)

    def _type_in_common(self, values: Sequence[Typed], node: object) -> Type | None:
        kind: Type | None = None
        # Spark looks at texts first, so that the order of the values does not matter.
        for value in sorted(values, key=lambda value: value.type != TEXT):
            if (
                kind is not None
                and value.type is not None
                and common_type(kind, value.type) is None
            ):
                raise self.refused(node)
            kind = common_type(kind, value.type)
        return kind

    def in_one_type(self, values: Sequence[Typed], node: object) -> list[Typed]:
        """Return values in the type that is common to them."""
        kind = self._type_in_common(values, node)
        return list(values) if kind is None else [cast(value, kind) for value in values]

    # Values

    def _cast(self, node: Any) -> Typed:
        from lakebed.model.formulas.type_names import type_of

        if node.args.get("format"):
            raise self.refused(node)
        is_safe = isinstance(node, self._exp.TryCast) or bool(node.args.get("safe"))
        kind = type_of(node.to, self._text)
        inner = node.this
        is_twice = isinstance(inner, self._exp.Cast) and isinstance(inner.this, self._exp.Literal)
        if kind in (DATE, TIMESTAMP, CLOCK) and is_twice and inner.this.is_string:
            # sqlglot reads DATE '2024-01-01'::STRING so that STRING comes first.
            raise self.refused(node, "a literal has a second type")
        value = self.read(inner)
        try:
            converted = cast(value, kind, safe=is_safe)
        except PredicateError as exc:
            raise PredicateError(f"{self._shown(node)}: {exc.message}", hint=exc.hint) from exc
        if isinstance(value.constant, str):
            return self._constant_moment(value.constant, kind, converted)
        if type(value.constant) is int and kind in (TINYINT, SMALLINT, LONG):  # such as 1L
            return replace(converted, constant=value.constant)
        return converted

    def _constant_moment(self, text: str, kind: Type, converted: Typed) -> Typed:
        """Return a literal such as DATE '2024-03-01', which is known to be one."""
        from lakebed.model.values import parse_value

        try:
            parse_value(text, kind, "the literal")
        except InvalidInputError:
            return converted
        return Typed(sql=converted.sql, type=kind)

    def _element(self, node: Any) -> Typed:
        (place,) = node.expressions
        return self._function("[]", (node.this, place), node)

    def _computing(self, sign: str) -> Callable[[Any], Typed]:
        def compute(node: Any) -> Typed:
            exp = self._exp
            left, right = node.args["this"], node.args["expression"]
            if sign in "+-" and isinstance(left, exp.Interval) and sign == "+":
                left, right = right, left
            if sign in "+-" and isinstance(right, exp.Interval):
                return shifted(self.read(left), right, sign, self._refusal(node))
            return arithmetic(sign, self.read(left), self.read(right), self._refusal(node))

        return compute

    def _bitwise(self, sign: str) -> Callable[[Any], Typed]:
        def compute(node: Any) -> Typed:
            left, right = node.args["this"], node.args["expression"]
            return bitwise(sign, self.read(left), self.read(right), self._refusal(node))

        return compute

    def _trim(self, node: Any) -> tuple[str, Sequence[object]]:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(
            str(node.args.get("position") or ""), "btrim"
        )
        characters = node.args.get("expression")
        if characters is None:
            return name, (node.this,)
        return name, ((node.this, characters) if name == "btrim" else (characters, node.this))

    def _call(self, node: Any) -> Typed:
        return self._function(node.name.lower(), node.expressions, node)

    def _function(self, name: str, arguments: Sequence[object], node: object) -> Typed:
        function = FUNCTIONS.get(name)
        if function is None and name in REFUSED:
            raise PredicateError(
                f"The function {name} in {shown(self._text)} is not computed without Spark: {REFUSED[name]}.",
                hint="Compute the value in Spark; docs/functions.md lists what is computed here.",
            )
        if function is None:
            raise PredicateError(
                f"The function {name} in {shown(self._text)} is not computed without Spark.",
                hint=nearest(name, list(FUNCTIONS)) or "docs/functions.md lists those that are.",
            )
        return function(FunctionCall(self, name, arguments, node))

    def lambda_of(self, node: Any, variables: Sequence[Typed]) -> Typed | None:
        """Return the body of a lambda whose variables have these values; None for another node."""
        if not isinstance(node, self._exp.Lambda) or len(node.expressions) != len(variables):
            return None
        names = [variable.name for variable in node.expressions]
        before = dict(self._variables)
        self._variables |= dict(zip(names, variables, strict=True))
        try:
            return self.read(node.this)
        finally:
            self._variables = before

    # Errors

    def _shown(self, node: object) -> str:
        return shown(to_text(node))

    def _refusal(self, node: object) -> Callable[[str], PredicateError]:
        return lambda reason: self.refused(node, reason)

    def refused(self, node: object, reason: str = "") -> PredicateError:
        """Return the error for a part that is not computed without Spark."""
        because = f": {reason}" if reason else ""
        text = self._shown(node) if hasattr(node, "sql") else shown(str(node))
        return PredicateError(
            f"Cannot compute {text} in {shown(self._text)} without Spark{because}.",
            hint="Write it in another way, or compute it in Spark.",
        )


def _in_order(parts: Sequence[Typed], word: str) -> Typed:
    """Return the truth of parts that AND or OR joins, as Spark computes it from left to right.

    A part that may raise is not computed where those before it have decided.
    """
    first, *rest = parts
    if not any(part.may_raise for part in rest):
        both = f" {word} ".join(f"{{{number}}}" for number in range(len(parts)))
        return joined(f"({both})", parts, BOOLEAN) if rest else first
    others = _in_order(rest, word)
    decided, truth = ("IS FALSE", "false") if word == "AND" else ("IS TRUE", "true")

    def decide(one: Typed) -> Typed:
        both = joined(f"({{0}} {word} {{1}})", [one, others], BOOLEAN)
        sql = f"CASE WHEN {one.sql} {decided} THEN {truth} ELSE {both.sql} END"
        return replace(both, sql=sql)

    return named(first, decide)


def _found_in(value: Typed, items: Sequence[Typed]) -> Typed:
    """Return whether items have a value, which are computed one after the other until one is it."""
    equal = [joined("({0} = {1})", [value, item], BOOLEAN) for item in items]
    found = _in_order(equal, "OR")
    sql = f"CASE WHEN {value.sql} IS NOT NULL THEN {found.sql} END"
    return replace(found, sql=sql)
