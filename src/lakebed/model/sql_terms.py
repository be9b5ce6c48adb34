"""Values that fields are set to, from SQL text, read by sqlglot in Spark's dialect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lakebed.common.shown import shown
from lakebed.errors import InvalidInputError, PredicateError
from lakebed.model.assignments import (
    Choice,
    Computed,
    Constant,
    Converted,
    Function,
    OfColumn,
    PairCondition,
    Rounded,
    Term,
)
from lakebed.model.predicate import Leaf, Predicate, bind, columns_of, leaves, map_leaves
from lakebed.model.schema import SMALLINT, TINYINT, Decimal, Field, Kind, Primitive, Struct, Type
from lakebed.model.sql_dialect import to_text
from lakebed.model.sql_predicates import (
    Compared,
    check_quotes,
    read_column,
    read_literal,
    read_predicate,
    read_tree,
)
from lakebed.model.values import FLOATS, INTEGERS

if TYPE_CHECKING:
    from sqlglot import expressions as exp

# Of the two rows, which are records where a condition is asked; what is in them is named beside.
RECORD = Struct((Field(name="row", type=Primitive(Kind.BOOLEAN)),))
SIDES = ("target", "source")

_REMEDY = (
    "Give columns, literals, +, -, *, /, ||, CASE WHEN … THEN … ELSE … END, IF, CAST, COALESCE, "
    "GREATEST, LEAST, UPPER, LOWER, TRIM, LTRIM, RTRIM, CONCAT, ABS or ROUND of them; compute "
    "anything else in Python or Spark, and merge the result."
)
_TEXT = Primitive(Kind.STRING)
_NUMBERS = INTEGERS | FLOATS
_OF_NUMBERS = frozenset(
    (Function.ADD, Function.SUBTRACT, Function.MULTIPLY, Function.DIVIDE, Function.ABS)
)
_OF_TEXTS = frozenset(
    (Function.UPPER, Function.LOWER, Function.TRIM, Function.LTRIM, Function.RTRIM, Function.CONCAT)
)
_MOST_PLACES = 38
# Conversions beside those among numbers, by the type of the result. Each value has one text.
_EXACT: Mapping[Kind, frozenset[Kind]] = {
    Kind.STRING: frozenset((Kind.BOOLEAN, Kind.DATE, *INTEGERS)),
    Kind.BOOLEAN: frozenset((Kind.STRING,)),
    Kind.DATE: frozenset((Kind.STRING, Kind.TIMESTAMP, Kind.TIMESTAMP_NTZ)),
    Kind.TIMESTAMP: frozenset((Kind.DATE,)),
    Kind.TIMESTAMP_NTZ: frozenset((Kind.DATE,)),
    **dict.fromkeys(INTEGERS, frozenset((Kind.STRING, Kind.BOOLEAN, *_NUMBERS))),
    Kind.FLOAT: frozenset((Kind.STRING, Kind.DOUBLE, *INTEGERS)),
    Kind.DOUBLE: frozenset((Kind.STRING, Kind.FLOAT, *INTEGERS)),
}
_FROM_DECIMAL = frozenset((Kind.STRING, *INTEGERS))
_TO_DECIMAL = frozenset((Kind.STRING, *INTEGERS))


def parse_term(
    text: str, types: Mapping[str, Type], kind: Type, column: str, *, prefix: str = ""
) -> Term:
    """Read the term that a field is set to from SQL text; literals get the type of the field.

    Args:
        text: The term, as after `SET x =`.
        types: Types of the columns that the text may name.
        kind: The type of the field.
        column: The name of the field.
        prefix: Put before the names of columns in the term, such as `target.`.

    Raises:
        PredicateError: As for `parse_sql`.
    """
    try:
        tree = read_tree(text)
    except PredicateError as exc:
        message = exc.message.replace("the predicate", f"the value of column {column!r},", 1)
        hint = 'Write what would stand behind SET x =, such as "delay + 1" or "\'UA\'".'
        raise PredicateError(message, hint=hint) from exc
    check_quotes(text, types)
    try:
        return _TermReader(text, types, column, prefix).read(tree, kind)
    except RecursionError as exc:
        raise PredicateError(
            f"Cannot read the value of column {column!r}: it is nested too deeply.",
            hint="Split it into several updates.",
        ) from exc


def decimal_of(node: exp.DataType) -> Decimal:
    """Return the type that DECIMAL stands for.

    Raises:
        InvalidInputError: Its precision or scale is not possible, or not a number.
    """
    given = [part.name for part in node.expressions]
    if len(given) > 2 or not all(text.isdecimal() and len(text) < 4 for text in given):
        raise InvalidInputError(
            f"Illegal {shown(to_text(node))}.",
            hint="Write DECIMAL(p, s), such as DECIMAL(10, 2).",
        )
    return Decimal(*[int(text) for text in given], *[10, 0][len(given) :])


def pair_condition(
    predicate: Predicate, compared: Mapping[str, Compared], types: Mapping[str, Type]
) -> PairCondition:
    """Return a condition on two rows, bound to their columns.

    Args:
        predicate: The condition, as it was read.
        compared: Comparisons of two columns that it holds.
        types: Types of all columns that it may name, as `target.x` and `source.x`.
    """
    all_types: dict[str, Type] = {
        **dict.fromkeys(SIDES, RECORD),
        **types,
        **dict.fromkeys(compared, Primitive(Kind.BOOLEAN)),
    }
    named = {
        *columns_of(predicate),
        *(name for pair in compared.values() for name in (pair.left, pair.right)),
    }
    # Tasks receive only the types that the condition needs.
    kept = {name: kind for name, kind in all_types.items() if name in named or name in SIDES}
    return PairCondition(predicate=bind(predicate, kept), compared=dict(compared), types=kept)


class _TermReader:
    def __init__(self, text: str, types: Mapping[str, Type], column: str, prefix: str) -> None:
        from sqlglot import expressions as exp

        self._exp = exp
        self._prefix = prefix
        self._text = text
        self._column = column
        self._types = types
        self._functions: dict[type[exp.Expr], Function] = {
            exp.Add: Function.ADD,
            exp.Sub: Function.SUBTRACT,
            exp.Mul: Function.MULTIPLY,
            exp.Div: Function.DIVIDE,
            exp.Coalesce: Function.COALESCE,
            exp.Greatest: Function.GREATEST,
            exp.Least: Function.LEAST,
            exp.Abs: Function.ABS,
            exp.Upper: Function.UPPER,
            exp.Lower: Function.LOWER,
            exp.Concat: Function.CONCAT,
            exp.DPipe: Function.CONCAT,
        }

    def read(self, node: exp.Expr, kind: Type) -> Term:
        """Return the term of a node, in a type."""
        exp = self._exp
        match node:
            case exp.Paren():
                return self.read(node.this, kind)
            case exp.Null():
                return Constant(None)
            case exp.Column() | exp.Dot():
                return OfColumn(self._prefix + self._name_of(node, kind))
            case exp.Case() | exp.If():
                return self._choice(node, kind)
            case exp.Round():
                return self._rounded(node, kind)
            case exp.Neg() if not isinstance(node.this, exp.Literal):
                self._check_numbers(node, kind)
                part = self.read(node.this, kind)
                if _is_of(kind, FLOATS):  # so that 0 becomes -0
                    return Computed(Function.MULTIPLY, (Constant(-1.0), part))
                zero = self._constant(exp.Literal.number(0), kind)
                return Computed(Function.SUBTRACT, (zero, part))
            case exp.Cast() if not self._is_literal_time(node):
                return self._converted(node, kind)
        function = self._function_of(node)
        if function is None:
            return self._constant(node, kind)
        if function in _OF_NUMBERS:
            self._check_numbers(node, kind)
        if function is Function.DIVIDE and not _is_of(kind, FLOATS):
            raise PredicateError(
                f"{self._shown(node)} is computed for column {self._column!r} as {kind}, which "
                "cannot hold a fraction.",
                hint="Convert the result: CAST(ROUND(CAST(x AS double) / 2) AS bigint).",
            )
        if function in _OF_TEXTS and kind != _TEXT:
            raise PredicateError(
                f"{self._shown(node)} is text, but column {self._column!r} is computed as {kind}.",
                hint=f"Convert it: CAST({to_text(node)} AS {_sql_type(kind)})."
                if isinstance(kind, Primitive | Decimal)
                else "Give a value of this type.",
            )
        return Computed(function, tuple(self.read(part, kind) for part in self._parts_of(node)))

    def _function_of(self, node: exp.Expr) -> Function | None:
        exp = self._exp
        if isinstance(node, exp.Trim):
            if node.args.get("expression") is not None or node.args.get("collation") is not None:
                return None  # of other characters than spaces
            return {
                "LEADING": Function.LTRIM,
                "TRAILING": Function.RTRIM,
            }.get(str(node.args.get("position") or ""), Function.TRIM)
        return self._functions.get(type(node))

    def _parts_of(self, node: exp.Expr) -> list[exp.Expr]:
        exp = self._exp
        match node:
            case exp.Binary():
                return [node.args["this"], node.args["expression"]]
            case exp.Concat():
                return list(node.expressions)
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                return [node.this, *node.expressions]
        return [node.this]

    def _name_of(self, node: exp.Column | exp.Dot, kind: Type) -> str:
        try:
            return read_column(node, self._text, self._types)
        except PredicateError as exc:
            if not exc.message.startswith("Unknown column"):
                raise
            message = exc.message.replace("the predicate", f"the value of {self._column!r}", 1)
            is_word = isinstance(node, self._exp.Column) and len(node.parts) == 1
            of_text = f" A text stands in single quotes: \"'{node.name}'\"."
            hint = exc.hint + (of_text if is_word and kind == _TEXT else "")
            raise PredicateError(message, hint=hint) from exc

    def _check_numbers(self, node: exp.Expr, kind: Type) -> None:
        if not isinstance(kind, Decimal) and not _is_of(kind, _NUMBERS):
            raise PredicateError(
                f"{self._shown(node)} is computed for column {self._column!r}, which is of type "
                f"{kind}.",
                hint="Compute with numbers only; join texts by ||.",
            )

    def _choice(self, node: exp.Case | exp.If, kind: Type) -> Choice:
        exp = self._exp
        compared_with = node.this if isinstance(node, exp.Case) else None
        branches = []
        for branch in [node] if isinstance(node, exp.If) else node.args["ifs"]:
            asked = branch.this
            if compared_with is not None:
                asked = exp.EQ(this=compared_with.copy(), expression=asked.copy())
            branches.append((self._condition(asked), self.read(branch.args["true"], kind)))
        rest = node.args.get("false" if isinstance(node, exp.If) else "default")
        otherwise: Term = Constant(None) if rest is None else self.read(rest, kind)
        return Choice(tuple(branches), otherwise)

    def _condition(self, node: exp.Expr) -> PairCondition:
        compared: dict[str, Compared] = {}
        predicate = read_predicate(node, self._text, self._types, compared)
        prefix = self._prefix
        if not prefix:
            return pair_condition(predicate, compared, self._types)
        renamed = {
            name: replace(pair, left=prefix + pair.left, right=prefix + pair.right)
            for name, pair in compared.items()
        }

        def prefixed(leaf: Leaf) -> Predicate:
            return leaf if leaf.column in compared else replace(leaf, column=prefix + leaf.column)

        has_leaves = any(leaves(predicate))
        types = {prefix + name: kind for name, kind in self._types.items()}
        return pair_condition(
            map_leaves(predicate, prefixed) if has_leaves else predicate, renamed, types
        )

    def _rounded(self, node: exp.Round, kind: Type) -> Term:
        places = self._places_of(node)
        own = self._own_type(node.this) or kind
        self._check_numbers(node, own)
        rounded = Rounded(self.read(node.this, own), places)
        return rounded if own == kind else self._as(rounded, own, kind, node)

    def _places_of(self, node: exp.Round) -> int:
        exp = self._exp
        given = node.args.get("decimals")
        match given:
            case None:
                return 0
            case exp.Literal(is_string=False) | exp.Neg(this=exp.Literal(is_string=False)):
                text = to_text(given)
                if text.lstrip("-").isdigit() and abs(int(text)) <= _MOST_PLACES:
                    return int(text)
        raise PredicateError(
            f"{self._shown(node)} rounds to {self._shown(given)} places.",
            hint=f"Give a whole number from -{_MOST_PLACES} to {_MOST_PLACES}.",
        )

    def _is_literal_time(self, node: exp.Cast) -> bool:
        """Return whether a cast is a literal such as DATE '2013-06-01'."""
        exp = self._exp
        is_text = isinstance(node.this, exp.Literal) and node.this.is_string
        return is_text and bool(node.to.is_type(*exp.DataType.TEMPORAL_TYPES))

    def _converted(self, node: exp.Cast, kind: Type) -> Term:
        if node.args.get("safe") or node.args.get("format"):
            raise self._refused(node)
        wanted = self._type_of(node)
        if wanted != kind:
            raise PredicateError(
                f"{self._shown(node)} is of type {wanted}, but is needed as {kind} for column "
                f"{self._column!r}.",
                hint=f"Write CAST({to_text(node.this)} AS {_sql_type(kind)})."
                if isinstance(kind, Primitive | Decimal)
                else "Give a value of this type.",
            )
        own = self._own_type(node.this) or wanted
        return self._as(self.read(node.this, own), own, wanted, node)

    def _as(self, part: Term, own: Type, kind: Type, node: exp.Expr) -> Term:
        if own == kind:
            return part
        if not _is_exact(own, kind):
            raise PredicateError(
                f"{self._shown(node)} converts {own} to {kind} for column {self._column!r}, which "
                "cannot be done without changing values.",
                hint="Compute it in Python or Spark, and merge the result.",
            )
        return Converted(part, own, kind)

    def _type_of(self, node: exp.Cast) -> Type:
        exp = self._exp
        if node.to.expressions and node.to.this != exp.DataType.Type.DECIMAL:
            raise self._refused(node)
        if node.to.this == exp.DataType.Type.DECIMAL:
            try:
                return decimal_of(node.to)
            except InvalidInputError as exc:
                raise PredicateError(f"{self._shown(node)}: {exc.message}", hint=exc.hint) from exc
        for type_, names in _sql_types(exp).items():
            if node.to.this in names:
                return type_
        raise PredicateError(
            f"{self._shown(node)} names the type {to_text(node.to)}, which no field has.",
            hint="Types are boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), string, binary, "
            "date, timestamp and timestamp_ntz.",
        )

    def _own_type(self, node: exp.Expr) -> Type | None:
        """Return the type of a term by itself; None if it has none, as NULL."""
        kinds = list(dict.fromkeys(self._leaf_types(node)))
        if not kinds:
            return self._literal_type(node)
        if len(kinds) == 1:
            return kinds[0]
        if all(_is_of(kind, _NUMBERS) for kind in kinds):
            return Primitive(Kind.DOUBLE if any(_is_of(k, FLOATS) for k in kinds) else Kind.LONG)
        raise PredicateError(
            f"{self._shown(node)} mixes the types {', '.join(map(str, kinds))} for column "
            f"{self._column!r}.",
            hint="Convert its parts to one type by CAST.",
        )

    def _leaf_types(self, node: exp.Expr) -> Iterable[Type]:
        """Yield the types of what is not a literal: literals take the type beside them."""
        exp = self._exp
        match node:
            case exp.Column() | exp.Dot():
                yield self._types[read_column(node, self._text, self._types)]
                return
            case exp.Cast():
                yield self._type_of(node)
                return
            case exp.Case():
                parts = [branch.args["true"] for branch in node.args["ifs"]]
                parts += [node.args["default"]] if node.args.get("default") is not None else []
            case exp.If():
                rest = node.args.get("false")
                parts = [node.args["true"], *([] if rest is None else [rest])]
            case exp.Paren() | exp.Round() | exp.Neg():
                parts = [node.this]
            case _ if self._function_of(node) in _OF_TEXTS:
                yield _TEXT
                return
            case _ if self._function_of(node) is Function.DIVIDE:
                yield Primitive(Kind.DOUBLE)
                return
            case _ if self._function_of(node) is not None:
                parts = self._parts_of(node)
            case _:
                return
        for part in parts:
            yield from self._leaf_types(part)

    def _literal_type(self, node: exp.Expr) -> Type | None:
        """Return the type of a term of literals alone."""
        exp = self._exp
        literals = list(node.find_all(exp.Literal, exp.Boolean, exp.HexString))
        if not literals:
            return None
        first = literals[0]
        if isinstance(first, exp.Boolean):
            return Primitive(Kind.BOOLEAN)
        if isinstance(first, exp.HexString):
            return Primitive(Kind.BYTES)
        if first.is_string:
            return _TEXT
        is_whole = all(part.name.isdigit() for part in literals if isinstance(part, exp.Literal))
        return Primitive(Kind.LONG if is_whole else Kind.DOUBLE)

    def _constant(self, node: exp.Expr, kind: Type) -> Term:
        # Literals have the type of the field, even if a column has the same name.
        types = {**self._types, self._column: kind}
        try:
            return Constant(read_literal(node, self._text, types, self._column))
        except PredicateError as exc:
            if not exc.message.startswith("Cannot use "):
                raise
            raise self._refused(node) from exc

    def _refused(self, node: exp.Expr) -> PredicateError:
        return PredicateError(
            f"Cannot use {self._shown(node)} for column {self._column!r} in {shown(self._text)}.",
            hint=_REMEDY,
        )

    def _shown(self, node: exp.Expr) -> str:
        return shown(to_text(node))


def _sql_types(expressions: object) -> Mapping[Primitive, tuple[object, ...]]:
    names = expressions.DataType.Type  # type: ignore[attr-defined]  # the module of sqlglot
    plain: Mapping[Kind, tuple[object, ...]] = {
        Kind.BOOLEAN: (names.BOOLEAN,),
        Kind.INT: (names.INT,),
        Kind.LONG: (names.BIGINT,),
        Kind.UNSIGNED_LONG: (names.UBIGINT,),
        Kind.FLOAT: (names.FLOAT,),
        Kind.DOUBLE: (names.DOUBLE,),
        Kind.STRING: (names.TEXT, names.VARCHAR),
        Kind.BYTES: (names.BINARY, names.VARBINARY),
        Kind.DATE: (names.DATE,),
        Kind.TIMESTAMP: (names.TIMESTAMP, names.TIMESTAMPTZ, names.TIMESTAMPLTZ),
        Kind.TIMESTAMP_NTZ: (names.TIMESTAMPNTZ,),
    }
    narrow = {TINYINT: (names.TINYINT,), SMALLINT: (names.SMALLINT,)}
    return narrow | {Primitive(kind): words for kind, words in plain.items()}


def _sql_type(kind: Type) -> str:
    """Return how SQL names a type."""
    words = {Kind.LONG: "bigint", Kind.UNSIGNED_LONG: "ubigint", Kind.BYTES: "binary"}
    return words.get(kind.kind, str(kind)) if isinstance(kind, Primitive) else str(kind)


def _is_of(kind: Type, kinds: frozenset[Kind] | set[Kind]) -> bool:
    return isinstance(kind, Primitive) and kind.kind in kinds


def _is_exact(own: Type, kind: Type) -> bool:
    """Return whether values keep their meaning; one that does not fit is an error at run time."""
    match own, kind:
        case Decimal(), Decimal():
            return True
        case Decimal(), Primitive(kind=wanted):
            return wanted in _FROM_DECIMAL
        case Primitive(kind=have), Decimal():
            return have in _TO_DECIMAL
        case Primitive(kind=have), Primitive(kind=wanted):
            return have in _EXACT.get(wanted, ())
    return False
