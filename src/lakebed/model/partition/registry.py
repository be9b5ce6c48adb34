"""All partition functions by their names in text and in `lakebed.by`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lakebed.common.shown import shown
from lakebed.errors import PartitionSpecError
from lakebed.model.names import nearest
from lakebed.model.partition.calendar import CALENDAR_UNITS, CalendarPart, Date
from lakebed.model.partition.date_format import DateFormat
from lakebed.model.partition.dimension import Dimension
from lakebed.model.partition.function import Identity, PartitionFunction, flat
from lakebed.model.partition.hash import Hash
from lakebed.model.partition.provided import Provided
from lakebed.model.partition.ranges import FixedRange, Range
from lakebed.model.partition.value_list import Values

# A new function is one line here.
FUNCTIONS: dict[str, type[PartitionFunction]] = {
    "identity": Identity,
    "dimension": Dimension,
    "hash": Hash,
    "range": Range,
    "fixed_range": FixedRange,
    "values": Values,
    "date": Date,
    **dict.fromkeys(CALENDAR_UNITS, CalendarPart),
    "date_format": DateFormat,
    "provided": Provided,
}


class SqlName(NamedTuple):
    """A function under the name that SQL has for it.

    Attributes:
        type_name: The function, one of `FUNCTIONS`.
        arguments: Its arguments that the name implies.
        suffix: End of the default name of the partition field.
    """

    type_name: str
    arguments: Mapping[str, object]
    suffix: str


# The transforms of Spark and Iceberg. `bucket` is our own hash: Iceberg's has other buckets.
SQL_NAMES: Mapping[str, SqlName] = {
    "years": SqlName("year", {}, "year"),
    "months": SqlName("date_format", {"format": "yyyy-MM"}, "month"),
    "days": SqlName("date", {}, "day"),
    "hours": SqlName("date_format", {"format": "yyyy-MM-dd-HH"}, "hour"),
    "bucket": SqlName("hash", {}, "hash"),
}
# A part of a time, and the function for the time up to this part, which does not repeat.
_WHOLE_TIMES = {
    "year": "years(ts), as year(ts), is the year",
    "month": "months(ts) is the year and month, month(ts) alone is 1 to 12",
    "day": "days(ts), as date(ts), is the calendar day, day(ts) is the day of the month, 1 to 31",
    "hour": "hours(ts) is the day and hour, hour(ts) alone is 0 to 23",
    "minute": "date_format(ts, 'yyyy-MM-dd-HH-mm') is the time up to the minute, minute(ts) alone "
    "is 0 to 59",
}


def build_function(
    type_name: str,
    source: str,
    arguments: Sequence[object] | Mapping[str, object] = (),
    name: str | None = None,
) -> PartitionFunction:
    """Build a function from its parts; without a name it gets the default one.

    Args:
        type_name: One of `FUNCTIONS` or `SQL_NAMES`.
        source: The field.
        arguments: The arguments after the source in the text form, in order; or by name.
        name: The partition field, or None for the default.

    Raises:
        PartitionSpecError: The type is unknown, or the arguments do not fit it.
        InvalidNameError: The name of the partition field is not legal.
    """
    if not isinstance(source, str):
        order = "bucket(8, 'id')" if type_name == "bucket" else f"{type_name}('ts')"
        raise PartitionSpecError(
            f"{shown(source)} is not the name of a field.", hint=f"Write it as by.{order}."
        )
    if not isinstance(arguments, Mapping):
        arguments = arguments_by_name(type_name, source, arguments)
    if type_name in SQL_NAMES:
        sql_name = SQL_NAMES[type_name]
        default = f"{flat(source)}_{sql_name.suffix}"
        given = {**sql_name.arguments, **arguments}
        return build_function(sql_name.type_name, source, given, default if name is None else name)
    function_type = _find(type_name)
    known = (*function_type.required, *function_type.optional)
    missing = [key for key in function_type.required if key not in arguments]
    unknown = [key for key in arguments if key not in known]
    if missing or unknown:
        problem = f"lacks {missing[0]!r}" if missing else f"takes no {unknown[0]!r}"
        raise PartitionSpecError(
            f"{type_name}({source}) {problem}.", hint=_usage(function_type, type_name)
        )
    return function_type.from_parameters(type_name, source, name, arguments)


def arguments_by_name(
    type_name: str, source: str, arguments: Sequence[object]
) -> dict[str, object]:
    """Return the arguments of the text form by the names of the parameters.

    Raises:
        PartitionSpecError: The type is unknown, or there are too many arguments.
    """
    sql_name = SQL_NAMES.get(type_name)
    function_type = _find(sql_name.type_name if sql_name else type_name)
    implied = sql_name.arguments if sql_name else {}
    keys = [key for key in (*function_type.required, *function_type.optional) if key not in implied]
    if function_type.gathers:
        alone = len(function_type.required) - 1
        gathered = {function_type.required[-1]: tuple(arguments[alone:])}
        return dict(zip(keys[:alone], arguments, strict=False)) | gathered
    if len(arguments) > len(keys):
        raise PartitionSpecError(
            f"{type_name}({source}) has {len(arguments)} further arguments, which are too many.",
            hint=_usage(function_type, type_name),
        )
    return dict(zip(keys, arguments, strict=False))


def _find(type_name: str) -> type[PartitionFunction]:
    function_type = FUNCTIONS.get(type_name)
    if function_type is None:
        raise PartitionSpecError(
            f"Unknown partition function {type_name!r}.",
            hint=_hint_for(type_name),
        )
    return function_type


def _hint_for(type_name: str) -> str:
    """Return advice on an unknown name, with the meaning of each name that is near."""
    names = (*FUNCTIONS, *SQL_NAMES)
    near = nearest(type_name, names)
    for part, meanings in _WHOLE_TIMES.items():
        is_near = near in (f"Did you mean {part!r}?", f"Did you mean '{part}s'?")
        if is_near or type_name.lower().startswith(part):
            return f"Choose one: {meanings}."
    return near or f"Functions are: {', '.join(names)}."


def _usage(function_type: type[PartitionFunction], type_name: str) -> str:
    arguments = ["field", *function_type.required]
    more = ", …" if function_type.gathers else ""
    optional = "".join(f"[, {key}]" for key in function_type.optional)
    return f"Write it as {type_name}({', '.join(arguments)}{more}{optional})."
