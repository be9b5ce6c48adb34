"""Partition functions and strategies, which map entities to partitions and back."""

from lakebed.model.partition.calendar import CALENDAR_UNITS, CalendarPart, Date
from lakebed.model.partition.date_format import DateFormat
from lakebed.model.partition.dimension import Dimension
from lakebed.model.partition.function import Identity, MissingLevelError, PartitionFunction
from lakebed.model.partition.hash import Hash
from lakebed.model.partition.provided import Provided
from lakebed.model.partition.ranges import FixedRange, Range
from lakebed.model.partition.registry import build_function
from lakebed.model.partition.strategy import PartitionStrategy
from lakebed.model.partition.value_list import Values

__all__ = [
    "CALENDAR_UNITS",
    "CalendarPart",
    "Date",
    "DateFormat",
    "Dimension",
    "FixedRange",
    "Hash",
    "Identity",
    "MissingLevelError",
    "PartitionFunction",
    "PartitionStrategy",
    "Provided",
    "Range",
    "Values",
    "build_function",
]
