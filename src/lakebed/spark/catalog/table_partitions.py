"""Partitions of a table: SHOW PARTITIONS, ALTER TABLE … DROP PARTITION, TRUNCATE … PARTITION."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model.predicate import Membership, NullCheck, Predicate, all_of, any_of
from lakebed.model.schema import Kind, Primitive, Type
from lakebed.model.values import EPOCH, Scalar, from_micros, is_nan
from lakebed.spark.catalog.columns import level_type, table_struct
from lakebed.spark.catalog.java_errors import raised_in_java
from lakebed.spark.catalog.session_jvm import Proxied
from lakebed.spark.raw_files import table_frame

if TYPE_CHECKING:
    from lakebed.spark.catalog.lake_tables import PartitionFacts, TableVersion


class HasPartitions(Proxied):
    """The part of a table that shows and drops its partitions, each statement in one commit."""

    _opened: TableVersion
    _title: str

    def partitionSchema(self) -> Any:
        """Return the partition fields."""
        return self._jvm.to_schema(table_struct(self._opened.layout, list(self._types)))

    def listPartitionIdentifiers(self, names: Any, identifier: Any) -> Any:
        """Return the values of the partitions that have some values.

        Cost:
            See `InspectGroup.partitions`.
        """
        wanted = self._values(list(names), identifier)
        found = [
            partition.values
            for partition in self._opened.dataset.inspect.partitions()
            if _matches(partition, wanted)
        ]
        columns = [
            pa.array([values.get(name) for values in found], level_type(type_))
            for name, type_ in self._types.items()
        ]
        table = pa.Table.from_arrays(columns, names=list(self._types))
        return self._jvm.rows_of(table_frame(self._jvm.spark, table))

    def partitionExists(self, identifier: Any) -> bool:
        """Return whether a partition has rows."""
        wanted = self._values(list(self._types), identifier)
        partitions = self._opened.dataset.inspect.partitions()
        return any(_matches(partition, wanted) for partition in partitions)

    def loadPartitionMetadata(self, identifier: Any) -> Any:
        """Return the number of files, rows and bytes of a partition."""
        wanted = self._values(list(self._types), identifier)
        for partition in self._opened.dataset.inspect.partitions():
            if _matches(partition, wanted):
                facts = {
                    "file_count": partition.file_count,
                    "row_count": partition.row_count,
                    "size_bytes": partition.size_bytes,
                }
                return self._jvm.to_map(
                    {name: str(value) for name, value in facts.items() if value is not None}
                )
        raise self._missing(identifier)

    def dropPartition(self, identifier: Any) -> bool:
        """Delete the rows of a partition; the history stays."""
        return self._drop([identifier])

    def dropPartitions(self, identifiers: Any) -> bool:
        """Delete the rows of partitions in one commit."""
        return self._drop(identifiers)

    def truncatePartition(self, identifier: Any) -> bool:
        """Delete the rows of a partition, which must be there."""
        return self._truncate([identifier])

    def truncatePartitions(self, identifiers: Any) -> bool:
        """Delete the rows of partitions in one commit."""
        return self._truncate(identifiers)

    def purgePartition(self, _identifier: Any) -> bool:
        """Refuse it: the history would lose its files."""
        raise self._purge_error()

    def purgePartitions(self, _identifiers: Any) -> bool:
        """Refuse it: the history would lose its files."""
        raise self._purge_error()

    def createPartition(self, _identifier: Any, _properties: Any) -> None:
        """Refuse it: a partition is there when it has rows."""
        raise self._creation_error()

    def createPartitions(self, _identifiers: Any, _properties: Any) -> None:
        """Refuse it: a partition is there when it has rows."""
        raise self._creation_error()

    def renamePartition(self, _old: Any, _new: Any) -> bool:
        """Refuse it."""
        raise InvalidInputError(
            f"A partition of {self._opened.name!r} cannot be renamed: it is named by its rows.",
            hint="Give the rows another value, by UPDATE or View.update_rows.",
        )

    def replacePartitionMetadata(self, _identifier: Any, _properties: Any) -> None:
        """Refuse it."""
        raise InvalidInputError(
            f"A partition of {self._opened.name!r} has no properties, and no location of its own.",
            hint="Write rows into it; INSERT OVERWRITE … PARTITION replaces them.",
        )

    def _creation_error(self) -> LakebedError:
        return InvalidInputError(
            f"ADD PARTITION: a partition of {self._opened.name!r} appears with its first row.",
            hint="Insert rows. Files of others are taken over by lake.adopt(…), or read by an "
            "ingest.",
        )

    def _purge_error(self) -> LakebedError:
        return InvalidInputError(
            f"DROP PARTITION … PURGE of {self._opened.name!r} would take files from the history.",
            hint="Leave PURGE out; cleanup deletes the files once the retention has passed.",
        )

    @property
    def _types(self) -> Mapping[str, Type]:
        return self._opened.layout.partition_level_types

    def _values(self, names: Sequence[str], identifier: Any) -> dict[str, Scalar]:
        """Return the values of a row of the JVM by the names of its partition fields."""
        schema = self._jvm.to_schema(table_struct(self._opened.layout, names))
        values: dict[str, Scalar] = {}
        for position, name in enumerate(names):
            if identifier.isNullAt(position):
                values[name] = None
            else:
                value = identifier.get(position, schema.apply(position).dataType())
                values[name] = _value(value, self._types[name])
        return values

    def _missing(self, identifier: Any) -> Exception:
        exceptions = self._jvm.sql.catalyst.analysis
        error = exceptions.NoSuchPartitionException(self._title, identifier, self.partitionSchema())
        return raised_in_java(error)

    def _truncate(self, identifiers: Iterable[Any]) -> bool:
        for identifier in identifiers:
            if not self.partitionExists(identifier):
                raise self._missing(identifier)
        return self._drop(identifiers)

    def _drop(self, identifiers: Iterable[Any]) -> bool:
        names = list(self._types)
        condition = any_of([_condition(self._values(names, one)) for one in identifiers])
        view = self._opened.dataset.where(condition)
        view.delete(base=self._opened.state.version)
        return True


def _matches(partition: PartitionFacts, wanted: Mapping[str, Scalar]) -> bool:
    return all(_is_equal(partition.values.get(name), value) for name, value in wanted.items())


def _is_equal(left: Scalar, right: Scalar) -> bool:
    return left == right or (is_nan(left) and is_nan(right))


def _condition(values: Mapping[str, Scalar]) -> Predicate:
    """Return the predicate that is true for the rows of one partition."""
    return all_of(
        [
            NullCheck(name) if value is None else Membership(name, (value,))
            for name, value in values.items()
        ]
    )


def _value(value: Any, type_: Type) -> Scalar:
    """Return a value in Spark's own form as a Python value.

    Raises:
        InvalidInputError: It has no counterpart in Python, as a year after 9999.
    """
    kind = type_.kind if isinstance(type_, Primitive) else None
    try:
        match kind:
            case Kind.DATE:
                return EPOCH.date() + dt.timedelta(days=value)
            case Kind.TIMESTAMP:
                return from_micros(value)
            case Kind.TIMESTAMP_NTZ:
                return from_micros(value).replace(tzinfo=None)
            case Kind.STRING:
                return str(value.toString())
            case Kind.BYTES:
                return bytes(value)
            case Kind.UNSIGNED_LONG:
                return int(value.toString())  # Spark has a decimal instead
    except OverflowError:
        raise InvalidInputError(
            f"A partition value of type {type_} is outside the years 1 to 9999.",
            hint="Name a partition that SHOW PARTITIONS lists.",
        ) from None
    plain: Scalar = value
    return plain
