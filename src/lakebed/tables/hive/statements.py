"""Publication as text: statements that bring a Hive table into step, for another tool to run.

No metastore is accessed, and Spark is not started. The statements are right for every present state
of the table, and can be run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lakebed.errors import InvalidInputError
from lakebed.model.keys import decode_path
from lakebed.model.layout import Folder
from lakebed.model.publishing import TableName
from lakebed.state.reader import read_own_head
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.store.root import plain_location, root_of
from lakebed.tables.hive.directories import check_compatible, directories_of, problems
from lakebed.tables.hive.table import Column, Columns, Spec, columns_of, pairs, quoted
from lakebed.tables.since import find_since

_UNPARTITIONED = Spec("")


def statements(
    store: Store,
    dataset: str,
    table: str,
    *,
    since: int | None = None,
    root: str | None = None,
) -> tuple[str, ...]:
    """Return the statements that make a table show a dataset; see `Dataset.publish`."""
    name = TableName.parse(table)
    state = read_own_head(store, dataset).state
    columns = columns_of(state, "partitions")
    touched = None if since is None else _touched(store, state, since)
    wanted = directories_of(state, columns, touched)
    wrong = problems(store, state, wanted.values(), at_once=since is None)
    if wrong:
        key, reason = min(wrong.items())
        raise InvalidInputError(
            f"{len(wrong):,} directories of {dataset!r} do not hold exactly their live files, so "
            f"the table would show other rows: {key}: {reason}.",
            hint="`compact` with gather moves such partitions to directories of their own; if live "
            "files are missing, roll back or rerun.",
        )
    check_compatible(store, state, state.labels)
    here = root_of(store, root)
    quoted_name = f"`{name.database}`.`{name.table}`"
    empty = plain_location(f"{here}/{Folder.HIVE.of(dataset, str(name))}")
    locations = {
        spec: plain_location(f"{here}/{directory.key}") for spec, directory in wanted.items()
    }
    if not columns.keys:
        locations.setdefault(_UNPARTITIONED, empty)
    location_statements = tuple(_location_statements(quoted_name, columns, locations))
    if since is None:
        return (*_creation(name, quoted_name, columns, empty), *location_statements)
    removed = _specs_of(state, touched or frozenset(), columns) - wanted.keys()
    drops = (
        f"ALTER TABLE {quoted_name} DROP IF EXISTS {spec.sql(columns.keys)}"
        for spec in sorted(removed, key=str)
    )
    return (*location_statements, *drops)


def _touched(store: Store, state: State, since: int) -> frozenset[str]:
    if not 0 <= since <= state.version:
        raise InvalidInputError(
            f"Cannot list changes since version {since}: {state.name!r} has no such version.",
            hint=f"Give a version up to {state.version}, the last one.",
        )
    changes = find_since(store, state, since, state.created_at, "")
    if changes is None:
        raise InvalidInputError(
            f"The history of {state.name!r} no longer holds all changes since version {since}.",
            hint="Leave out since, to get the statements for all partitions.",
        )
    return changes.partitions


def _specs_of(state: State, partitions: frozenset[str], columns: Columns) -> frozenset[Spec]:
    if not columns.keys:
        return frozenset()
    levels = state.layout.partition_level_types
    return frozenset(
        Spec.of(decode_path(partition, levels), columns.keys) for partition in partitions
    )


def _creation(name: TableName, quoted_name: str, columns: Columns, location: str) -> Iterator[str]:
    """Yield the statements that create the table if it is missing, in Hive's own SQL."""
    yield f"CREATE DATABASE IF NOT EXISTS `{name.database}`"
    listed = ", ".join(map(_ddl, columns.data))
    keys = ", ".join(map(_ddl, columns.keys))
    yield (
        f"CREATE EXTERNAL TABLE IF NOT EXISTS {quoted_name} ({listed})"
        + (f" PARTITIONED BY ({keys})" if keys else "")
        + f" STORED AS {columns.format.upper()} LOCATION {quoted(location)}"
        + (f" TBLPROPERTIES ({pairs(columns.properties)})" if columns.properties else "")
    )


def _location_statements(
    quoted_name: str, columns: Columns, locations: Mapping[Spec, str]
) -> Iterator[str]:
    for spec, location in sorted(locations.items(), key=lambda pair: str(pair[0])):
        if spec == _UNPARTITIONED:
            yield f"ALTER TABLE {quoted_name} SET LOCATION {quoted(location)}"
            continue
        partition = spec.sql(columns.keys)
        yield f"ALTER TABLE {quoted_name} ADD IF NOT EXISTS {partition} LOCATION {quoted(location)}"
        yield f"ALTER TABLE {quoted_name} {partition} SET LOCATION {quoted(location)}"


def _ddl(column: Column) -> str:
    comment = f" COMMENT {quoted(column.doc)}" if column.doc else ""
    return f"`{column.name}` {column.type}{comment}"
