"""All partition functions by their names in text and in `lakebed.by`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakebed.errors import PartitionSpecError
from lakebed.model.names import nearest
from lakebed.model.partition.calendar import CALENDAR_UNITS, CalendarPart, Date
from lakebed.model.partition.date_format import DateFormat
from lakebed.model.partition.dimension import Dimension
from lakebed.model.partition.function import Identity, PartitionFunction
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


def build_function(
    type_name: str,
    source: str,
    arguments: Sequence[object] | Mapping[str, object] = (),
    name: str | None = None,
) -> PartitionFunction:
    """Build a function from its parts; without a name it gets the default one.

    Args:
        type_name: One of `FUNCTIONS`.
        source: The field.
        arguments: The arguments after the source in the text form, in order; or by name.
        name: The partition field, or None for the default.

    Raises:
        PartitionSpecError: The type is unknown, or the arguments do not fit it.
        InvalidNameError: The name of the partition field is not legal.
    """
    function_type = _find(type_name)
    if not isinstance(arguments, Mapping):
        arguments = arguments_by_name(type_name, source, arguments)
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
    function_type = _find(type_name)
    keys = (*function_type.required, *function_type.optional)
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
            hint=nearest(type_name, FUNCTIONS) or f"Functions are: {', '.join(FUNCTIONS)}.",
        )
    return function_type


def _usage(function_type: type[PartitionFunction], type_name: str) -> str:
    arguments = ["field", *function_type.required]
    more = ", …" if function_type.gathers else ""
    optional = "".join(f"[, {key}]" for key in function_type.optional)
    return f"Write it as {type_name}({', '.join(arguments)}{more}{optional})."
