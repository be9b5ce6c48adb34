"""Functions of dates and times, which are those of UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.functions_base import FunctionCall, SqlFunction, declarer, simple, taken
from lakebed.model.formulas.operators import MICROSECONDS
from lakebed.model.formulas.time_formats import UnknownFormatError, read_by, written_by
from lakebed.model.formulas.typed import (
    CLOCK,
    DATE,
    DOUBLE,
    INT,
    LONG,
    TEXT,
    TIMESTAMP,
    Typed,
    duck_text,
    duck_type,
    is_whole,
    joined,
    places,
)
from lakebed.model.schema import Decimal, Type
from lakebed.model.sql_moments import MONTHS

declare = declarer("Dates and times")
T = TypeVar("T")

_SECONDS: Final = Decimal(8, 6)


def _time(value: Typed, call: FunctionCall) -> Typed:
    """Return a time; midnight of a date."""
    return value if value.type == CLOCK else taken(value, "time", call)


def _of_date(template: str, kind: Type = INT) -> SqlFunction:
    return simple("date", kind, f"CAST({template} AS {duck_type(kind)})")


def _of_time(template: str, kind: Type = INT) -> SqlFunction:
    def call_it(call: FunctionCall) -> Typed:
        (value,) = call.values(1)
        return joined(f"CAST({template} AS {duck_type(kind)})", [_time(value, call)], kind)

    return call_it


# Parts

_SECOND = "CAST(microsecond({0}) AS DECIMAL(18, 0)) * CAST('0.000001' AS DECIMAL(7, 6))"
_BY_WORDS: Final[dict[str, tuple[str, Type]]] = {
    "year y years yr yrs": ("year({0})", INT),
    "yearofweek": ("isoyear({0})", INT),
    "quarter qtr": ("quarter({0})", INT),
    "month mon mons months": ("month({0})", INT),
    "week w weeks": ("weekofyear({0})", INT),
    "day d days": ("day({0})", INT),
    "dayofweek dow": ("dayofweek({0}) + 1", INT),
    "dayofweek_iso dow_iso": ("isodow({0})", INT),
    "doy": ("dayofyear({0})", INT),
    "hour h hours hr hrs": ("hour({0})", INT),
    "minute m min mins minutes": ("minute({0})", INT),
    "second s sec seconds secs": (_SECOND, _SECONDS),
}
_PARTS: Final = {word: part for words, part in _BY_WORDS.items() for word in words.split()}


def _date_part(call: FunctionCall) -> Typed:
    name, value = call.values(2)
    part = _PARTS.get(str(name.constant).lower())
    if part is None or value.type not in (DATE, TIMESTAMP, CLOCK):
        raise call.refused("it takes a part of a date or time, as a literal")
    template, kind = part
    return joined(f"CAST({template} AS {duck_type(kind)})", [_time(value, call)], kind)


# Distances

_UNITS: Final = {
    "year": "to_years", "quarter": "to_quarters", "month": "to_months", "week": "to_weeks",
    "day": "to_days", "dayofyear": "to_days", "hour": "to_hours", "minute": "to_minutes",
    "second": "to_seconds", "millisecond": "to_milliseconds", "microsecond": "to_microseconds",
}  # fmt: skip


def _unit(call: FunctionCall) -> str:
    node = call.arguments[0]
    name = str(getattr(node, "name", "")).lower()
    if name not in _UNITS or getattr(node, "is_string", False):
        raise call.refused("the first argument is a unit such as DAY")
    return name


def _added(call: FunctionCall) -> Typed:
    """Read `timestampadd(DAY, 3, x)`."""
    unit = _unit(call)
    count, value = (call.compiler.read(argument) for argument in call.arguments[1:])
    value = _time(value, call)
    kind = value.type
    template = f"CAST({{0}} + {_UNITS[unit]}({{1}}) AS {duck_type(kind)})"
    return joined(template, [value, taken(count, "int", call)], kind, raises=True)


def _between(call: FunctionCall) -> Typed:
    """Read `timestampdiff(DAY, x, y)`: the whole units between."""
    unit = _unit(call)
    first, last = (_time(call.compiler.read(node), call) for node in call.arguments[1:])
    if unit.upper() in MONTHS:
        template = f"CAST(spark_months({{0}}, {{1}}) // {MONTHS[unit.upper()]} AS BIGINT)"
    elif unit.upper() in MICROSECONDS:
        size = MICROSECONDS[unit.upper()]
        template = f"CAST((epoch_us({{1}}) - epoch_us({{0}})) // {size} AS BIGINT)"
    else:
        raise call.refused(f"the unit is {unit}")
    return joined(template, [first, last], LONG)


def _date_add(sign: str) -> SqlFunction:
    by_days = simple("date int", DATE, f"CAST({{0}} {sign} {{1}} AS DATE)", raises=True)

    def call_it(call: FunctionCall) -> Typed:
        return _added(call) if len(call.arguments) == 3 and sign == "+" else by_days(call)

    return call_it


_days_between = simple("date date", INT, "CAST({0} - {1} AS INTEGER)")


def _datediff(call: FunctionCall) -> Typed:
    return _between(call) if len(call.arguments) == 3 else _days_between(call)


def _three(function: SqlFunction) -> SqlFunction:
    def call_it(call: FunctionCall) -> Typed:
        if len(call.arguments) != 3:
            raise call.refused("it takes 3 arguments")
        return function(call)

    return call_it


def _months_between(call: FunctionCall) -> Typed:
    values = call.values(2, 3)
    is_rounded = values[2].constant if len(values) == 3 else True
    if not isinstance(is_rounded, bool):
        raise call.refused("whether it is rounded is a literal")
    parts = [_time(value, call) for value in values[:2]]
    template = "spark_months_between({0}, {1})"
    if is_rounded:
        template = f"floor({template} * 1e8 + 0.5) / 1e8"
    return joined(template, parts, DOUBLE)


# Starts of units

_TRUNCATED: Final = {
    word: unit
    for words, unit in {
        "year yyyy yy": "year", "quarter": "quarter", "month mon mm": "month", "week": "week",
        "day dd": "day", "hour": "hour", "minute": "minute", "second": "second",
        "millisecond": "millisecond", "microsecond": "microsecond",
    }.items()
    for word in words.split()
}  # fmt: skip


def _trunc(call: FunctionCall) -> Typed:
    value, unit = call.values(2)
    name = _unit_text(unit, call)
    if name not in ("year", "quarter", "month", "week"):
        raise call.refused("it takes year, quarter, month and week, as literals")
    return joined(f"CAST(date_trunc('{name}', {{0}}) AS DATE)", [taken(value, "date", call)], DATE)


def _date_trunc(call: FunctionCall) -> Typed:
    unit, value = call.values(2)
    part = taken(value, "time", call)
    return joined(f"date_trunc('{_unit_text(unit, call)}', {{0}})", [part], TIMESTAMP)


def _unit_text(unit: Typed, call: FunctionCall) -> str:
    name = _TRUNCATED.get(unit.constant.lower()) if isinstance(unit.constant, str) else None
    if name is None:
        raise call.refused("the unit is none of those known, as a literal")
    return name


# Texts


def _format(value: Typed, call: FunctionCall, read: Callable[[str], T]) -> T:
    if not isinstance(value.constant, str):
        raise call.refused("the format is not a literal")
    try:
        return read(value.constant)
    except UnknownFormatError as exc:
        raise call.refused(str(exc)) from exc


def _date_format(call: FunctionCall) -> Typed:
    value, given = call.values(2)
    template = _format(given, call, written_by)
    return joined(template, [taken(value, "time", call)], TEXT)


def _from_unixtime(call: FunctionCall) -> Typed:
    seconds, *rest = call.values(1, 2)
    template = (
        str(_format(rest[0], call, written_by)) if rest else written_by("yyyy-MM-dd HH:mm:ss")
    )
    time = joined(
        "make_timestamp({0} * 1000000)", [taken(seconds, "bigint", call)], TIMESTAMP, raises=True
    )
    return joined(template, [time], TEXT)


def _parsed(value: Typed, given: Typed, call: FunctionCall, *, is_try: bool) -> Typed:
    """Return a text as a time, by a format."""
    pattern, names = _format(given, call, read_by)
    text = taken(value, "text", call)
    template = f"lakebed_time_of_text({{0}}, {duck_text(pattern)}, '{' '.join(names)}')"
    template = (
        template.replace("{0}", "\0").replace("{", "{{").replace("}", "}}").replace("\0", "{0}")
    )
    if not is_try:
        template = f"spark_given({template}, {{0}}, 'is not in the format')"
    return joined(f"make_timestamp({template})", [text], TIMESTAMP, raises=not is_try)


def _to_time(kind: Type, *, is_try: bool = False) -> SqlFunction:
    """Return a function from a text, maybe in a format, to a date or time."""

    def call_it(call: FunctionCall) -> Typed:
        value, *rest = call.values(1, 2)
        if rest and value.type == TEXT:
            return cast(_parsed(value, rest[0], call, is_try=is_try), kind)
        return cast(value, kind, safe=is_try)

    return call_it


def _unix_timestamp(call: FunctionCall) -> Typed:
    value, *rest = call.values(1, 2)
    if value.type == TEXT:
        given = rest[0] if rest else Typed(sql="", type=TEXT, constant="yyyy-MM-dd HH:mm:ss")
        value = _parsed(value, given, call, is_try=False)
    # Towards zero, where unix_seconds goes down.
    return joined("(epoch_us({0}) // 1000000)", [_time(value, call)], LONG)


# Made of numbers


def _timestamp_of(factor: int) -> SqlFunction:
    def call_it(call: FunctionCall) -> Typed:
        (value,) = call.values(1)
        if not is_whole(value.type):
            raise call.refused("it takes whole numbers here")
        template = f"make_timestamp(CAST({{0}} AS BIGINT) * {factor})"
        return joined(template, [value], TIMESTAMP, raises=True)

    return call_it


def _make_timestamp(kind: Type) -> SqlFunction:
    def call_it(call: FunctionCall) -> Typed:
        values = call.values(6)
        parts = [taken(value, "int", call) for value in values[:5]]
        seconds = cast(taken(values[5], "number", call), Decimal(16, 6))
        template = f"spark_make_timestamp({places(values)})"
        return joined(template, [*parts, seconds], kind, raises=True)

    return call_it


# Parts
declare("year", _of_date("year({0})"))
declare("quarter", _of_date("quarter({0})"))
declare("month", _of_date("month({0})"))
declare("weekofyear", _of_date("weekofyear({0})"))
declare("day dayofmonth", _of_date("day({0})"))
declare("dayofyear", _of_date("dayofyear({0})"))
declare("dayofweek", _of_date("dayofweek({0}) + 1"))
declare("weekday", _of_date("isodow({0}) - 1"))
declare("dayname", simple("date", TEXT, "strftime({0}, '%a')"))
declare("monthname", simple("date", TEXT, "strftime({0}, '%b')"))
declare("hour", _of_time("hour({0})"))
declare("minute", _of_time("minute({0})"))
declare("second", _of_time("second({0})"))
declare("date_part datepart", _date_part, "`extract(part FROM x)` is the same")

# Distances
declare("date_add dateadd", _date_add("+"))
declare("date_sub", _date_add("-"))
declare("timestampadd", _three(_added))
declare("datediff date_diff", _datediff)
declare("timestampdiff", _three(_between))
declare("add_months", simple("date int", DATE, "CAST({0} + to_months({1}) AS DATE)", raises=True))
declare("months_between", _months_between)
declare("last_day", simple("date", DATE, "last_day({0})"))
declare(
    "next_day", simple("date text", DATE, "CAST(spark_next_day({0}, {1}) AS DATE)", raises=True)
)
declare("trunc", _trunc)
declare("date_trunc", _date_trunc)

# Texts
_FORMATS: Final = "literal formats of the letters yMdHms, and more to write"
declare("date_format", _date_format, _FORMATS)
declare("from_unixtime", _from_unixtime, _FORMATS)
declare("unix_timestamp to_unix_timestamp", _unix_timestamp, _FORMATS)
declare("to_date", _to_time(DATE), _FORMATS)
declare("to_timestamp to_timestamp_ltz", _to_time(TIMESTAMP), _FORMATS)
declare("to_timestamp_ntz", _to_time(CLOCK), _FORMATS)
declare("try_to_timestamp", _to_time(TIMESTAMP, is_try=True), _FORMATS)
declare("try_to_date", _to_time(DATE, is_try=True), _FORMATS)

# Numbers
declare("unix_seconds", _of_time("spark_floor(epoch_us({0}), 1000000)", LONG))
declare("unix_millis", _of_time("spark_floor(epoch_us({0}), 1000)", LONG))
declare("unix_micros", _of_time("epoch_us({0})", LONG))
declare("unix_date", _of_date("{0} - DATE '1970-01-01'"))
declare(
    "date_from_unix_date", simple("int", DATE, "CAST(DATE '1970-01-01' + {0} AS DATE)", raises=True)
)
declare("timestamp_seconds", _timestamp_of(1_000_000), "of whole numbers")
declare("timestamp_millis", _timestamp_of(1_000))
declare("timestamp_micros", _timestamp_of(1))
declare("make_date", simple("int int int", DATE, "make_date({0}, {1}, {2})", raises=True))
declare("make_timestamp make_timestamp_ltz", _make_timestamp(TIMESTAMP), "of six numbers, in UTC")
declare("make_timestamp_ntz", _make_timestamp(CLOCK), "of six numbers")
