"""Conditions and values of a statement, with the meaning that they have in a session of Spark.

Lakebed evaluates them by its own rules, where a time without a zone is UTC. Spark's rules depend on
the session: its zone, its type of TIMESTAMP, and whether it is ANSI. So the session computes the
constants that depend on it, and a form whose result would differ is refused by name.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from lakebed.common.shown import shown
from lakebed.dataset import Dataset
from lakebed.errors import PredicateError
from lakebed.model.merging import Side
from lakebed.model.schema import Decimal, Kind, Primitive, Struct, Type
from lakebed.model.sql_dialect import to_text
from lakebed.model.values import EPOCH, FLOATS, INTEGERS, TIMES, UTC_NAMES, from_micros
from lakebed.sql.refusals import shown_sql
from lakebed.sql.statement_columns import Sides

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IN_SOURCE = (
    "Let Spark compute it in a source: MERGE INTO t USING (SELECT …) s ON t.id = s.id WHEN MATCHED "
    "THEN …."
)
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_ISO_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(Z|[+-]\d\d:\d\d)?)?", re.ASCII
)
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
_TURNED: Mapping[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE
}  # fmt: skip
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div)
# What constants consist of: nothing whose value may differ from row to row.
_CONSTANT_PARTS = (
    *(exp.Literal, exp.Boolean, exp.Null, exp.Neg, exp.Paren, exp.Concat, exp.DPipe),
    *(exp.Cast, exp.DataType, exp.DataTypeParam, exp.Interval, exp.Var, *_ARITHMETIC),
    *(exp.CurrentDate, exp.CurrentTimestamp, exp.TsOrDsAdd, exp.TsOrDsToDate),
    *(exp.TimestampTrunc, exp.DateTrunc, exp.AddMonths, exp.LastDay),
)
_MOVING = (exp.CurrentDate, exp.CurrentTimestamp)
_CONSTANT_FUNCTIONS = frozenset(("NOW", "LOCALTIMESTAMP", "MAKE_DATE", "MAKE_TIMESTAMP"))
_CHUNK = 100  # constants of one query: Spark plans hundreds of columns slowly
_FLOAT, _STRING = Primitive(Kind.FLOAT), Primitive(Kind.STRING)
_DATE, _TIMESTAMP = Primitive(Kind.DATE), Primitive(Kind.TIMESTAMP)
_CLOCK = Primitive(Kind.TIMESTAMP_NTZ)
_SQL_OF_TIME = {
    Kind.DATE: "DATE",
    Kind.TIMESTAMP: "TIMESTAMP_LTZ",
    Kind.TIMESTAMP_NTZ: "TIMESTAMP_NTZ",
}
_INT_LIMIT = 2**31
_INTS = frozenset({Kind.INT})


class SessionMeaning:
    """Gives parts of a statement the meaning that they have in a session of Spark."""

    def __init__(self, spark: SparkSession | None, sides: Sides, types: Mapping[str, Type]) -> None:
        """Take a session.

        Args:
            spark: The session; None leaves all parts as they are.
            sides: The tables of the statement.
            types: Types of the columns of the dataset.
        """
        self._spark = spark
        self._sides = sides
        self._types = types
        self._answers: dict[tuple[str, str], tuple[str, Any]] = {}
        self._questions: dict[tuple[str, str], tuple[exp.Expr, Type | None]] = {}
        self._is_lasting = False

    def condition(self, node: exp.Expr, *, is_lasting: bool = False) -> exp.Expr:
        """Return a condition on rows of the dataset, and perhaps of a source.

        Args:
            node: The condition, with columns as they are written.
            is_lasting: Whether it is kept, as that of a check is; then it cannot hold `now()`.

        Raises:
            PredicateError: It means something else in Spark, or Spark cannot compute a constant.
        """
        if self._spark is None:
            return node
        self._is_lasting = is_lasting
        return self._answered(lambda: self._condition(node))

    def value(self, node: exp.Expr, type_: Type, *, is_lasting: bool = False) -> exp.Expr:
        """Return the value of a field of a type.

        Raises:
            PredicateError: As for `condition`.
        """
        if self._spark is None:
            return node
        self._is_lasting = is_lasting
        return self._answered(lambda: self._value(node, type_))

    def _answered(self, build: Callable[[], exp.Expr]) -> exp.Expr:
        """Build a part; if it has constants that the session computes, ask for all at once."""
        built = build()
        if not self._questions:
            return built
        assert self._spark is not None  # asked by the callers
        self._answers.update(_computed(self._spark, self._questions))
        self._questions = {}
        return build()

    # Conditions

    def _condition(self, node: exp.Expr) -> exp.Expr:
        match node:
            case exp.Paren() | exp.Not():
                return type(node)(this=self._condition(node.this))
            case exp.And() | exp.Or():
                return type(node)(
                    this=self._condition(node.left), expression=self._condition(node.right)
                )
        if Side.TARGET not in self._sides.of(node):
            return node.copy()  # computed by the session, or a constant, which is refused later
        match node:
            case exp.Column() | exp.Dot():
                return node.copy()
            case exp.Is():
                self._column(node.this, node)
                return node.copy()
            case exp.Between():
                return self._between(node)
            case exp.In() if node.expressions:
                return self._membership(node)
            case exp.Like() | exp.StartsWith() | exp.EndsWith() | exp.Contains():
                self._column(node.this, node)
                return node.copy()
            case exp.Escape() if isinstance(node.this, exp.Like):
                self._column(node.this.this, node)
                return node.copy()
        if isinstance(node, _COMPARISONS):
            return self._comparison(node)
        raise self._different(node)

    def _column(self, node: exp.Expr, whole: exp.Expr) -> Type:
        """Return the type of a column of the dataset; refuse anything else."""
        while isinstance(node, exp.Paren):
            node = node.this
        type_ = self._type_of(node)
        if type_ is None:
            raise self._different(whole)
        return type_

    def _type_of(self, node: exp.Expr) -> Type | None:
        """Return the type of a column of the dataset; None if it is something else."""
        found = self._sides.find(node)
        if found is None or found.side is not Side.TARGET:
            return None
        name, *inner = found.path
        type_ = self._types.get(name)
        for part in inner:
            if not isinstance(type_, Struct):
                return None
            alike = [field for field in type_.fields if field.name.casefold() == part.casefold()]
            exact = [field for field in alike if field.name == part]
            fields = exact or alike
            type_ = fields[0].type if len(fields) == 1 else None
        return type_

    def _comparison(self, node: exp.Expr) -> exp.Expr:
        left, right = node.args["this"], node.args["expression"]
        sides = self._sides.of(left), self._sides.of(right)
        if all(sides):
            self._check_columns(left, right, node)
            return node.copy()
        if not sides[0]:
            form = _TURNED.get(type(node), type(node))
            node = form(this=right.copy(), expression=left.copy())
        column, constant = node.args["this"], node.args["expression"]
        type_ = self._column(column, node)
        if type_ == _FLOAT:
            return self._float_comparison(node)
        return type(node)(this=column.copy(), expression=self._compared(constant, type_, node))

    def _check_columns(self, left: exp.Expr, right: exp.Expr, whole: exp.Expr) -> None:
        """Check that two columns of the dataset are compared as Spark compares them."""
        types = [self._type_of(side) for side in (left, right)]
        if None in types:  # of the source, whose types the merge compares
            for side in (left, right):
                if self._sides.of(side) != {Side.SOURCE}:
                    self._column(side, whole)
            return
        are_integers = all(_is_of(type_, INTEGERS) for type_ in types)
        are_floats = all(_is_of(type_, FLOATS) for type_ in types)
        are_exact = {getattr(one, "kind", None) for one in types} == {Kind.INT, Kind.DOUBLE}
        if types[0] != types[1] and not (are_integers or are_floats or are_exact):
            raise self._different(whole)

    def _between(self, node: exp.Between) -> exp.Expr:
        type_ = self._column(node.this, node)
        low, high = node.args["low"], node.args["high"]
        is_symmetric = bool(node.args.get("symmetric"))
        if type_ == _FLOAT and is_symmetric:
            raise self._different(node)
        if type_ == _FLOAT:
            pair = exp.And(
                this=self._comparison(exp.GTE(this=node.this.copy(), expression=low.copy())),
                expression=self._comparison(exp.LTE(this=node.this.copy(), expression=high.copy())),
            )
            return exp.Paren(this=pair)
        parts = {
            name: part.copy() if self._sides.of(part) else self._compared(part, type_, node)
            for name, part in (("low", low), ("high", high))
        }
        return exp.Between(this=node.this.copy(), symmetric=is_symmetric, **parts)

    def _membership(self, node: exp.In) -> exp.Expr:
        type_ = self._column(node.this, node)
        items = node.expressions
        if type_ == _FLOAT:
            equal = [
                self._comparison(exp.EQ(this=node.this.copy(), expression=item.copy()))
                for item in items
            ]
            return exp.Paren(this=exp.or_(*equal, copy=False))
        is_text = type_ == _STRING
        if not is_text and not self._is_ansi and any(_is_text(item) for item in items):
            raise self._different(
                node, "Without ANSI, Spark compares them as text", "Write typed literals."
            )
        if _is_of(type_, TIMES) and len({_written_type(item) for item in items}) > 1:
            raise self._different(
                node, "the values have several types", "Write all values in one form."
            )
        parts = [
            item.copy() if self._sides.of(item) else self._compared(item, type_, node)
            for item in items
        ]
        return exp.In(this=node.this.copy(), expressions=parts)

    def _compared(self, node: exp.Expr, type_: Type, whole: exp.Expr) -> exp.Expr:
        """Return a constant that a column of a type is compared with."""
        if isinstance(node, exp.Null):
            return node.copy()
        if _is_of(type_, TIMES):
            return self._moment(node, type_, whole)
        if isinstance(type_, Decimal) and _is_double(node):
            raise self._different(
                whole, "Spark compares them as DOUBLE", "Write the number without an exponent."
            )
        return node.copy()

    def _moment(self, node: exp.Expr, type_: Type, whole: exp.Expr) -> exp.Expr:
        """Return a date or time that the session means."""
        plain = self._plain_moment(node, type_)
        if plain is not None:
            return exp.Literal.string(plain)
        answer = self._answer(node, type_, whole)
        if answer is None:
            return node.copy()
        spark_type, value = answer
        assert isinstance(type_, Primitive)  # as the callers have checked
        kinds = {
            Kind.TIMESTAMP: ("string", "date", "timestamp", "timestamp_ntz"),
            Kind.TIMESTAMP_NTZ: ("string", "date", "timestamp_ntz"),
            Kind.DATE: ("string", "date"),
        }[type_.kind]
        if spark_type not in kinds:
            raise self._different(
                whole,
                f"{shown_sql(node)} is of type {spark_type}, and the column of type {type_}",
                f"Convert the constant: CAST({to_text(node)} AS {_SQL_OF_TIME[type_.kind]}).",
            )
        if value is None:
            raise self._different(
                whole, f"{shown_sql(node)} is NULL in Spark", f"Write a literal of type {type_}."
            )
        return exp.Literal.string(_text_of_time(value, type_.kind, node))

    def _plain_moment(self, node: exp.Expr, type_: Type) -> str | None:
        """Return the text of a literal that means the same in every session, or in this one."""
        cast = node.to if isinstance(node, exp.Cast) else None
        literal = node if cast is None else node.this
        if not isinstance(literal, exp.Literal) or not literal.is_string:
            return None
        text, types = literal.name, exp.DataType.Type
        is_date = cast is None or cast.is_type(types.DATE)
        if _ISO_DATE.fullmatch(text) and is_date and type_ in (_DATE, _CLOCK):
            return text
        found = _ISO_TIME.fullmatch(text)
        if found is None:
            return None
        is_clock = cast is None or cast.is_type(types.TIMESTAMPNTZ)
        if type_ == _CLOCK and is_clock and not found[1]:
            return text
        is_time = cast is None or cast.is_type(
            types.TIMESTAMP, types.TIMESTAMPLTZ, types.TIMESTAMPTZ
        )
        if type_ == _TIMESTAMP and is_time and (found[1] or self._is_utc):
            return text
        return None

    def _float_comparison(self, node: exp.Expr) -> exp.Expr:
        """Return a comparison of a FLOAT with a number, which Spark compares as two DOUBLEs.

        A number that no FLOAT is equal to lies between two of them.
        """
        column, constant = node.args["this"], node.args["expression"]
        text = _number_text(constant)
        if text is None:
            if isinstance(constant, exp.Null | exp.Literal):
                return node.copy()
            raise self._different(node)
        is_whole = text.lstrip("-").isdigit()
        number = float(text)
        with np.errstate(over="ignore"):
            nearest = np.float32(number)
        if (is_whole and not self._is_ansi) or float(nearest) == number:
            return node.copy()
        if not np.isfinite(nearest):
            raise self._different(node, "no FLOAT is that great", "Leave the comparison out.")
        low = nearest if float(nearest) < number else np.nextafter(nearest, np.float32("-inf"))
        below = exp.LTE(this=column.copy(), expression=_number(float(low)))
        above = exp.GT(this=column.copy(), expression=_number(float(low)))
        match node:
            case exp.LT() | exp.LTE():
                return below
            case exp.GT() | exp.GTE():
                return above
            case exp.EQ():  # false, but unknown for null
                return exp.Paren(this=exp.And(this=below, expression=above))
            case exp.NEQ():
                return exp.Paren(this=exp.Or(this=below, expression=above))
        return exp.false()  # <=>

    # Values

    def _value(self, node: exp.Expr, type_: Type) -> exp.Expr:
        sides = self._sides.of(node)
        if sides == {Side.SOURCE}:
            return node.copy()
        if not sides:
            return self._constant(node, type_)
        own = self._type_of(node)
        if own is not None:
            self._check_conversion(own, type_, node)
            return node.copy()
        match node:
            case exp.Paren():
                return exp.Paren(this=self._value(node.this, type_))
            case exp.Case() | exp.If():
                return self._choice(node, type_)
            case exp.Cast() if type(node) is exp.Cast:
                return self._cast(node, type_)
            case exp.Round():
                return self._round(node, type_)
            case exp.Neg() | exp.Abs():
                return type(node)(this=self._value(node.this, type_))
            case exp.Coalesce() | exp.Greatest() | exp.Least():
                return self._of_parts(node, type_)
            case exp.Upper() | exp.Lower() | exp.Trim() | exp.Concat() | exp.DPipe():
                return self._of_parts(node, _STRING)
        if isinstance(node, _ARITHMETIC):
            self._check_arithmetic(node, type_)
            return self._of_parts(node, type_)
        raise self._different(node)

    def _of_parts(self, node: exp.Expr, type_: Type) -> exp.Expr:
        own = node.copy()
        for name in ("this", "expression"):
            part = node.args.get(name)
            if isinstance(part, exp.Expression):
                own.set(name, self._value(part, type_))
        parts = node.args.get("expressions")
        if parts:
            own.set("expressions", [self._value(part, type_) for part in parts])
        return own

    def _choice(self, node: exp.Case | exp.If, type_: Type) -> exp.Expr:
        own = node.copy()
        asked_of = node.args.get("this") if isinstance(node, exp.Case) else None
        for branch in [own] if isinstance(own, exp.If) else own.args["ifs"]:
            asked = branch.this
            if asked_of is not None:
                asked = exp.EQ(this=asked_of.copy(), expression=asked.copy())
            branch.set("this", self._condition(asked))
            branch.set("true", self._value(branch.args["true"], type_))
        rest = "false" if isinstance(own, exp.If) else "default"
        if own.args.get(rest) is not None:
            own.set(rest, self._value(own.args[rest], type_))
        if asked_of is not None:
            own.set("this", None)
        return own

    def _cast(self, node: exp.Cast, type_: Type) -> exp.Expr:
        from lakebed.sql.column_definitions import type_of

        wanted = type_of(node.to)
        own = self._leaf_types(node.this)
        for one in own:
            self._check_conversion(one, wanted, node)
        inner = next(iter(own)) if len(own) == 1 else wanted
        cast = node.copy()
        cast.set("this", self._value(node.this, inner))
        self._check_conversion(wanted, type_, node)
        return cast

    def _round(self, node: exp.Round, type_: Type) -> exp.Expr:
        own = self._leaf_types(node.this)
        if any(_is_of(one, FLOATS) for one in own) and node.args.get("decimals") is not None:
            raise self._different(
                node,
                "Spark rounds the shortest decimal text of a DOUBLE",
                f"{_IN_SOURCE} Or keep DECIMALs.",
            )
        rounded = node.copy()
        rounded.set("this", self._value(node.this, next(iter(own)) if len(own) == 1 else type_))
        return rounded

    def _check_arithmetic(self, node: exp.Expr, type_: Type) -> None:
        """Check that numbers are computed in the type in which Spark computes them."""
        own = self._leaf_types(node)
        if type_ == _FLOAT or _FLOAT in own:
            raise self._different(
                node,
                "Spark computes with FLOATs and other numbers as DOUBLE",
                "Write CAST(CAST(x AS DOUBLE) * 2 AS FLOAT), with each column in a CAST.",
            )
        is_narrow = all(_is_of(one, _INTS) for one in own) and not any(
            _is_long(part) for part in node.find_all(exp.Literal)
        )
        is_division = isinstance(node, exp.Div)
        widest = max(own, key=_width, default=type_)
        if is_narrow and type_ != widest and not is_division:
            raise self._different(
                node,
                f"Spark computes it as {str(widest).upper()}, which may overflow",
                "Write CAST(x AS BIGINT).",
            )
        if is_division and any(isinstance(one, Decimal) for one in own):
            raise self._different(node, "Spark computes it as DECIMAL", _IN_SOURCE)

    def _leaf_types(self, node: exp.Expr) -> set[Type]:
        """Return the types of the columns of the dataset in a term, and of its casts."""
        if isinstance(node, exp.Cast) and self._sides.of(node):
            from lakebed.sql.column_definitions import type_of

            return {type_of(node.to)}
        own = self._type_of(node) if isinstance(node, exp.Column | exp.Dot) else None
        if own is not None:
            return {own}
        if isinstance(node, exp.Column | exp.Dot):
            return set()
        parts = list(node.iter_expressions())
        if isinstance(node, exp.Case):
            parts = [branch.args["true"] for branch in node.args["ifs"]]
            parts += [node.args["default"]] if node.args.get("default") is not None else []
        elif isinstance(node, exp.If):
            parts = [
                part for name in ("true", "false") if (part := node.args.get(name)) is not None
            ]
        return {type_ for part in parts for type_ in self._leaf_types(part)}

    def _check_conversion(self, own: Type, wanted: Type, whole: exp.Expr) -> None:
        if not _converts(own, wanted, is_utc=self._is_utc):
            zone = self._setting("spark.sql.session.timeZone")
            in_zone = {own, wanted} == {_DATE, _TIMESTAMP}
            why = f"{own} is converted to {wanted}"
            raise self._different(
                whole, f"{why} in the zone {zone} of the session" if in_zone else why, _IN_SOURCE
            )

    def _constant(self, node: exp.Expr, type_: Type) -> exp.Expr:
        if isinstance(node, exp.Null):
            return node.copy()
        if _is_of(type_, TIMES):
            if _is_text(node) and not self._is_ansi and node.parent is not None:
                raise self._different(
                    node.parent,
                    "Without ANSI, Spark compares times with text as text",
                    "Write a typed literal, such as DATE '2026-01-31'.",
                )
            return self._moment(node, type_, node)
        if isinstance(node, exp.Literal | exp.Boolean | exp.HexString) or _number_text(node):
            return node.copy()
        answer = self._answer(node, None, node)
        if answer is None:
            return node.copy()
        spark_type, text = answer
        if text is None:
            return exp.null()
        if spark_type == "string" or type_ == _STRING:
            return exp.Literal.string(text)
        if spark_type == "boolean":
            return exp.true() if text == "true" else exp.false()
        is_number = spark_type.split("(")[0] in (
            *("tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
        )
        if is_number and re.fullmatch(r"-?[0-9.]+(E-?[0-9]+)?", text):
            return (
                exp.Neg(this=exp.Literal.number(text[1:]))
                if text[0] == "-"
                else exp.Literal.number(text)
            )
        raise self._different(node, f"it is {text} of type {spark_type}", "Write a literal.")

    # The session

    def _answer(
        self, node: exp.Expr, type_: Type | None, whole: exp.Expr
    ) -> tuple[str, Any] | None:
        """Return the type and value that the session computes; None as long as it was not asked."""
        for part in node.walk():
            is_function = (
                isinstance(part, exp.Anonymous) and part.name.upper() in _CONSTANT_FUNCTIONS
            )
            if not is_function and not isinstance(part, _CONSTANT_PARTS):
                raise self._different(whole)
            if self._is_lasting and (is_function or isinstance(part, _MOVING)):
                raise self._different(
                    whole, "its value would be that of now for ever", "Write a literal."
                )
        key = (to_text(node), str(type_))
        if key not in self._answers:
            self._questions[key] = (node, type_)
            return None
        return self._answers[key]

    def _setting(self, name: str) -> str:
        assert self._spark is not None  # asked by the callers
        return str(self._spark.conf.get(name))

    @property
    def _is_utc(self) -> bool:
        return self._setting("spark.sql.session.timeZone") in UTC_NAMES

    @property
    def _is_ansi(self) -> bool:
        return self._setting("spark.sql.ansi.enabled") == "true"

    def _different(
        self,
        node: exp.Expr,
        why: str = "Lakebed evaluates it by other rules",
        instead: str = _IN_SOURCE,
    ) -> PredicateError:
        return PredicateError(
            f"Cannot use {shown_sql(node)} with a session of Spark: {why}.", hint=instead
        )


# Settings by which Spark reads texts otherwise, and what a statement must have for it to matter.
_TEXT_SETTINGS = {
    "spark.sql.parser.escapedStringLiterals": "\\",
    "spark.sql.legacy.consecutiveStringLiterals.enabled": "''",
    "spark.sql.ansi.doubleQuotedIdentifiers": '"',
}


def check_texts(spark: SparkSession, text: str) -> None:
    """Check that the session reads the texts in a statement as Lakebed does.

    Raises:
        PredicateError: A setting gives them another meaning.
    """
    for name, sign in _TEXT_SETTINGS.items():
        if sign in text and spark.conf.get(name, "false") == "true":
            raise PredicateError(
                f"The statement has {sign}, which means something else under {name}.",
                hint=f"Set it to false: spark.conf.set({name!r}, False).",
            )


def column_types_of(dataset: Dataset) -> Mapping[str, Type]:
    """Return the types of the columns that a statement may name: fields and partition fields."""
    descriptor = dataset.descriptor
    return {**descriptor.partition_types, **{f.name: f.type for f in descriptor.schema}}


def instant_of(spark: SparkSession, text: str) -> dt.datetime:
    """Return the moment that a text such as '2026-01-31 12:00' stands for in a session.

    Raises:
        PredicateError: It is not a time.
    """
    node = exp.Literal.string(text)
    ((_, micros),) = _computed(spark, {("", ""): (node, _TIMESTAMP)}).values()
    if micros is None:
        raise PredicateError(f"{shown(text)} is not a time.", hint="Write '2026-01-31 12:00:00'.")
    return dt.datetime.fromisoformat(_text_of_time(micros, Kind.TIMESTAMP, node))


def _computed(
    spark: SparkSession, questions: Mapping[tuple[str, str], tuple[exp.Expr, Type | None]]
) -> dict[tuple[str, str], tuple[str, Any]]:
    """Return the types and values of constants, as the session computes them.

    Raises:
        PredicateError: Spark cannot compute one.
    """
    from pyspark.errors import PySparkException

    forms = {
        Kind.TIMESTAMP: "unix_micros(CAST({} AS TIMESTAMP_LTZ))",
        Kind.TIMESTAMP_NTZ: "timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', "
        "CAST({} AS TIMESTAMP_NTZ))",
        Kind.DATE: "unix_date(CAST({} AS DATE))",
    }
    answers = {}
    pending = list(questions.items())
    for start in range(0, len(pending), _CHUNK):
        part = pending[start : start + _CHUNK]
        columns = []
        for _, (node, type_) in part:
            text = to_text(node)
            form = "CAST({} AS STRING)" if type_ is None else forms[type_.kind]  # type: ignore[union-attr]  # of a time
            columns += [f"typeof({text})", form.format(text)]
        try:
            row = spark.sql(f"SELECT {', '.join(columns)}").collect()[0]
        except PySparkException as exc:
            shown_constants = ", ".join(shown_sql(node) for _, (node, _) in part[:3])
            raise PredicateError(
                f"Spark cannot compute {shown_constants}: {str(exc).splitlines()[0]}",
                hint="Write a literal that Spark reads, such as DATE '2026-01-31'.",
            ) from exc
        for number, (key, _) in enumerate(part):
            answers[key] = (str(row[2 * number]).split(" collate")[0], row[2 * number + 1])
    return answers


def _text_of_time(value: int, kind: Kind, node: exp.Expr) -> str:
    try:
        if kind is Kind.DATE:
            return (EPOCH.date() + dt.timedelta(days=value)).isoformat()
        moment = from_micros(value)
    except OverflowError as exc:
        raise PredicateError(
            f"{shown_sql(node)} lies outside the years 1 to 9999.", hint="Give another time."
        ) from exc
    return (moment if kind is Kind.TIMESTAMP else moment.replace(tzinfo=None)).isoformat()


def _converts(own: Type, wanted: Type, *, is_utc: bool) -> bool:
    """Return whether Lakebed converts values of a type as Spark does, or names those that differ."""
    if own == wanted:
        return True
    match own, wanted:
        case Decimal(), Primitive(kind=kind):
            return kind in INTEGERS
        case Primitive(kind=kind), Decimal():
            return kind in INTEGERS
        case Decimal(), Decimal():
            return True
        case Primitive(kind=one), Primitive(kind=other):
            if {one, other} == {Kind.DATE, Kind.TIMESTAMP}:
                return is_utc
            return (
                {one, other} <= INTEGERS | FLOATS
                or {one, other} == {Kind.DATE, Kind.TIMESTAMP_NTZ}
                or (other is Kind.STRING and one in {Kind.BOOLEAN, Kind.DATE, *INTEGERS})
                or (one is Kind.BOOLEAN and other in INTEGERS)
            )
    return False


def _is_of(type_: Type | None, kinds: frozenset[Kind]) -> bool:
    return isinstance(type_, Primitive) and type_.kind in kinds


def _width(type_: Type) -> int:
    return (type_.bits or 32) if isinstance(type_, Primitive) else 0


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _is_double(node: exp.Expr) -> bool:
    """Return whether a number is a DOUBLE in Spark: one with an exponent."""
    text = _number_text(node)
    return text is not None and "e" in text.lower()


def _is_long(node: exp.Literal) -> bool:
    return not node.is_string and (not node.name.isdigit() or int(node.name) >= _INT_LIMIT)


def _number_text(node: exp.Expr) -> str | None:
    """Return the text of a number, with its sign; None for anything else."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal):
        return None if node.this.is_string else "-" + node.this.name
    return node.name if isinstance(node, exp.Literal) and not node.is_string else None


def _number(value: float) -> exp.Expr:
    literal = exp.Literal.number(repr(abs(value)))
    return exp.Neg(this=literal) if value < 0 else literal


def _written_type(node: exp.Expr) -> str:
    """Return how a constant is written: as text, or as a literal of a type."""
    return str(node.to.this) if isinstance(node, exp.Cast) else type(node).__name__
