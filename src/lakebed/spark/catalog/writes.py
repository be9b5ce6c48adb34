"""Writes of a table: verbs of Lakebed on the frame that Spark hands over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.common.advice import warn
from lakebed.errors import InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import nearest
from lakebed.model.partition import PartitionFunction
from lakebed.model.predicate import Predicate
from lakebed.spark.catalog.columns import check_same_partitions, schema_of
from lakebed.spark.catalog.row_operations import insert_by_merge, is_in_merge
from lakebed.spark.catalog.scans import find_exact
from lakebed.spark.catalog.session_jvm import Jvm, Made, Proxied, interfaces, to_dict
from lakebed.spark.catalog.streams import streaming_write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.spark.catalog.lake_tables import CatalogRepository, HasNotes, TableVersion

_OPTIONS = ("run", "overwriteMode")


@dataclasses.dataclass(frozen=True, slots=True)
class StatementOptions:
    """Options of a write, with the names and meanings that the format `lakebed` gives them.

    Attributes:
        run: Name of the run; None for none.
        is_rerun: Whether the rows replace all rows that the run wrote before.
    """

    run: str | None = None
    is_rerun: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> StatementOptions:
        """Read the options of a write.

        Raises:
            InvalidInputError: An option is unknown: Spark would ignore it without a word.
        """
        by_lower = {name.lower(): name for name in _OPTIONS}
        found: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() not in by_lower:
                raise InvalidInputError(
                    f"A write by the catalog has no option {name!r}.",
                    hint=nearest(name, _OPTIONS) or f"There are {' and '.join(_OPTIONS)}.",
                )
            found[by_lower[name.lower()]] = value
        mode, run = found.get("overwriteMode"), found.get("run") or None
        if mode not in (None, "run") or (mode and run is None):
            raise InvalidInputError(
                f"overwriteMode is {mode!r}{' without a run' if mode == 'run' else ''}.",
                hint="With the catalog it can be 'run', beside the option run. INSERT OVERWRITE, "
                "REPLACE WHERE and overwritePartitions() select other rows to replace.",
            )
        return cls(run, mode == "run")


def verb_write(
    jvm: Jvm, write: Callable[[DataFrame], None], to_streaming: Callable[[], Any] | None = None
) -> Any:
    """Return a write of Spark that hands its rows to a function, as a frame.

    Args:
        jvm: The JVM of the session.
        write: The function.
        to_streaming: Function that returns the same write of a stream; None if there is none.
    """

    def insert(rows: Any, _is_overwrite: bool) -> None:  # noqa: FBT001 - Spark's signature
        write(jvm.to_frame(rows))

    relation = Made(jvm, "sources.InsertableRelation", insert=insert)
    streams = {} if to_streaming is None else {"toStreaming": to_streaming}
    return Made(
        jvm,
        "connector.write.V1Write",
        toInsertableRelation=lambda: relation,
        description="lakebed",
        **jvm.no_metrics,
        **streams,
    )


class LakeWriteBuilder(Proxied):
    """Receives what a write replaces; without a word it adds rows.

    What a statement replaces was decided by the version that it read. If others have written rows
    there since, that is a conflict.
    """

    Java = interfaces(
        "connector.write.SupportsOverwriteV2",
        "connector.write.SupportsDynamicOverwrite",
    )

    def __init__(self, jvm: Jvm, opened: TableVersion, info: Any) -> None:
        """Begin with an append.

        Args:
            jvm: The JVM of the session.
            opened: Version of the table.
            info: Options and columns of the write.
        """
        super().__init__(jvm)
        self._opened = opened
        self._info = info
        self._write: Callable[[DataFrame], None] = self._append
        self._condition: Predicate | None = None
        self._is_dynamic = False

    def truncate(self) -> Any:
        """Replace all rows."""
        self._write = self._overwrite
        return self

    def canOverwrite(self, predicates: Any) -> bool:
        """Return True.

        Raises:
            InvalidInputError: Lakebed's own overwrite could replace other rows than the condition
                names.
        """
        self._exact(predicates)
        return True

    def overwrite(self, predicates: Any) -> Any:
        """Replace the rows for which filters are true."""
        self._condition = self._exact(predicates)
        self._write = self._overwrite
        return self

    def overwriteDynamicPartitions(self) -> Any:
        """Replace the partitions that the rows touch."""
        self._is_dynamic = True
        return self

    def build(self) -> Any:
        """Return the write."""
        if self._is_dynamic:
            return self._dynamic_write()

        def to_streaming() -> Any:
            replaces_all = self._write == self._overwrite
            return streaming_write(self._jvm, self._opened, self._info, replaces_all=replaces_all)

        return verb_write(self._jvm, self._write, to_streaming)

    def _exact(self, predicates: Any) -> Predicate:
        condition = find_exact(self._jvm.find_filters(predicates), self._opened.types)
        if condition is None:
            raise InvalidInputError(
                f"The catalog cannot replace rows of {self._opened.name!r} by this condition.",
                hint="Compare columns without floats with constants; or compute the rows and call "
                f"lake[{self._opened.name!r}].overwrite(frame, view).",
            )
        return condition

    def _options(self) -> StatementOptions:
        return StatementOptions.parse(to_dict(self._info.options()))

    def _append(self, frame: DataFrame) -> None:
        options, dataset = self._options(), self._opened.dataset
        if options.is_rerun and options.run is not None:
            _warn_of(dataset.rerun(frame, options.run))
        elif is_in_merge(self._jvm):
            insert_by_merge(self._opened, frame)
        else:
            remedy = " In Spark, a rerun is the option overwriteMode=run."
            _warn_of(dataset.append(frame, options.run), remedy)

    def _overwrite(self, frame: DataFrame) -> None:
        options, dataset = self._options(), self._opened.dataset
        if options.is_rerun:
            raise InvalidInputError(
                "overwriteMode is 'run', and the statement replaces other rows.",
                hint="Append the rows of a rerun: writeTo(...).append().",
            )
        view = dataset if self._condition is None else dataset.where(self._condition)
        dataset.overwrite(frame, view, run=options.run, base=self._opened.state.version)

    def _dynamic_write(self) -> Any:
        """Return a write of the format `lakebed`: Spark asks a verb for no dynamic overwrite."""
        jvm, opened = self._jvm, self._opened
        given = StatementOptions.parse(to_dict(self._info.options()))
        if given.is_rerun:
            raise InvalidInputError(
                "overwriteMode is 'run', and the statement replaces partitions.",
                hint="Append the rows of a rerun: writeTo(...).append().",
            )
        options = {
            **opened.address,
            "partitionOverwriteMode": "dynamic",
            "base": str(opened.state.version),
            **({"run": given.run} if given.run else {}),
        }
        return jvm.writer_by_format(options, self._info).truncate().build()


def _warn_of(commit: HasNotes, remedy: str = "") -> None:
    """Give the notes of a commit, which Spark does not return, as warnings."""
    for note in commit.notes:
        warn(f"{note}{remedy}")


class StagedLakeTable(Proxied):
    """A table that becomes visible with its rows: CREATE and REPLACE TABLE, also AS SELECT."""

    Java = interfaces(
        "connector.catalog.StagedTable",
        "connector.catalog.SupportsWrite",
    )

    def __init__(
        self,
        jvm: Jvm,
        title: str,
        repository: CatalogRepository,
        name: str,
        wanted: Wanted,
        existing: TableVersion | None,
    ) -> None:
        """Keep what is to be made.

        Args:
            jvm: The JVM of the session.
            title: Name with the catalog's, for Spark's messages.
            repository: Repository of the dataset.
            name: Name of the dataset.
            wanted: Columns, partitions and properties.
            existing: The table to replace; None to create one.
        """
        super().__init__(jvm)
        self._title = title
        self._repository = repository
        self._name = name
        self._wanted = wanted
        self._existing = existing
        self._is_written = False
        self._options = wanted.write_options

    def name(self) -> str:
        """Return the name that Spark shows."""
        return self._title

    def schema(self) -> Any:
        """Return the columns."""
        return self._wanted.schema

    def capabilities(self) -> Any:
        """Return the kinds of writes."""
        return self._jvm.capabilities("BATCH_READ", "V1_BATCH_WRITE", "TRUNCATE")

    def newWriteBuilder(self, info: Any) -> Any:
        """Return the builder of the only write."""
        self._options = {**self._options, **to_dict(info.options())}
        builder: Made = Made(
            self._jvm,
            "connector.write.SupportsTruncate",
            build=lambda: verb_write(self._jvm, self._insert),
            truncate=lambda: builder,
        )
        return builder

    def commitStagedChanges(self) -> None:
        """Create or replace the table without rows, unless a write has done it."""
        if not self._is_written:
            struct = self._wanted.struct
            self._insert(self._jvm.spark.createDataFrame([], struct))

    def abortStagedChanges(self) -> None:
        """Do nothing: nothing was visible."""

    def _insert(self, frame: DataFrame) -> None:
        self._is_written = True
        options = StatementOptions.parse(self._options)
        if options.is_rerun:
            raise InvalidInputError(
                "overwriteMode is 'run', and the statement makes a table.",
                hint="Give the option run alone.",
            )
        if self._existing is None:
            self._repository._write_new(self._name, frame, self._wanted.options, options.run)
        else:
            self._replace(frame, self._existing, options.run)

    def _replace(self, frame: DataFrame, existing: TableVersion, run: str | None) -> None:
        """Replace rows, and let the columns become those of the rows; the history stays.

        If columns change, the rows are computed first: the query may read this table, and if it
        fails, no column has changed. New columns are added with the rows. Columns that are missing
        go after that, so that an error never takes values.
        """
        wanted, dataset = self._wanted, existing.dataset
        descriptor = existing.layout.descriptor
        check_same_partitions(self._name, wanted.partition_by, list(descriptor.partition_by))
        base = existing.state.version
        types = {field.name: field.type for field in schema_of(wanted.schema, {})}
        if types != {field.name: field.type for field in descriptor.schema}:
            frame = frame.localCheckpoint()
        dataset.overwrite(frame, dataset, run=run, unknown="keep", types="widen", base=base)
        names = frozenset(types)

        def edit(old: DatasetDescriptor) -> DatasetDescriptor:
            for name in old.schema.names:
                if name not in names:
                    old = old.drop_field(name)
            properties = {**old.properties, **wanted.properties}
            return dataclasses.replace(old, properties=properties)

        dataset.evolve(edit)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The description of a table that a statement makes.

    Attributes:
        schema: Columns as Spark's JVM has them, as a schema.
        columns: The same one by one, with their defaults.
        struct: The schema in Python.
        partition_by: Partitions.
        properties: Properties of the user.
        write_options: Options of the write that makes it.
        constraints: Constraints of the JVM.
    """

    schema: Any
    columns: Sequence[Any]
    struct: Any
    partition_by: Sequence[PartitionFunction]
    properties: Mapping[str, str]
    write_options: Mapping[str, str]
    constraints: Sequence[Any] = ()

    @property
    def options(self) -> dict[str, object]:
        """Options of a new dataset, besides its schema."""
        return {
            "partition_by": tuple(self.partition_by) or None,
            "properties": dict(self.properties) or None,
        }


__all__ = ["LakeWriteBuilder", "StagedLakeTable", "StatementOptions", "Wanted", "verb_write"]
