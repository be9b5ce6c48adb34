"""File names by which a directory is recognised as a table with a log of live files. No I/O."""

from __future__ import annotations

import re
from enum import StrEnum

from lakebed.model.layout import DELTA_LOG

HUDI_FOLDER = ".hoodie"  # stores do not list it
ICEBERG_FOLDER, ICEBERG_FILE = "metadata", re.compile(r".*\.metadata\.json(\.gz)?")


class TableFormat(StrEnum):
    """Formats of tables with a log; their live files are not simply all files."""

    DELTA = "Delta"
    ICEBERG = "Iceberg"
    HUDI = "Hudi"
    LAKEBED = "Lakebed"

    @property
    def adopting(self) -> str:
        """Arguments of `adopt` and the command line that take a table over; empty if none do."""
        return _ADOPTING.get(self, "")


_ADOPTING = {
    TableFormat.DELTA: "adopt(…, delta=True), on the command line `lakebed adopt … --delta`",
    TableFormat.ICEBERG: "adopt(…, iceberg=True), on the command line `lakebed adopt … --iceberg`",
}


def table_of(key: str) -> tuple[TableFormat, str] | None:
    """Return the table whose log holds a key, with its directory; None if it is not in a log.

    >>> table_of("flights/_delta_log/00000000000000000000.json")
    (<TableFormat.DELTA: 'Delta'>, 'flights')
    >>> table_of("flights/dt=2013-01-01/metadata.json")
    """
    *levels, name = key.split("/")
    for level, format_ in ((DELTA_LOG, TableFormat.DELTA), (HUDI_FOLDER, TableFormat.HUDI)):
        if level in levels:
            return format_, "/".join(levels[: levels.index(level)])
    if levels[-1:] == [ICEBERG_FOLDER] and ICEBERG_FILE.fullmatch(name):
        return TableFormat.ICEBERG, "/".join(levels[:-1])
    return None
