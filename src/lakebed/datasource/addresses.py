"""Opening of the dataset or view that options name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.datasource.options import ReadOptions, SaveOptions
from lakebed.errors import DatasetNotFoundError, InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.layout import Layout
from lakebed.model.spark_types import as_nullable, schema_from_spark
from lakebed.model.uri import parse_constraints
from lakebed.repository import Repository, open_repository
from lakebed.store.base import Store
from lakebed.view import View

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Opened:
    """A dataset or view that options name.

    Attributes:
        view: The view that is read or written.
        store: The store that holds the dataset.
        layout: Layout of the dataset when it was opened.
    """

    view: View
    store: Store
    layout: Layout


def open_to_read(options: ReadOptions) -> Opened:
    """Open a dataset, at its current or an earlier version, and narrow it.

    Raises:
        DatasetNotFoundError: The dataset does not exist.
        VersionNotFoundError: The version does not exist.
        PredicateError: A condition names an unknown column, or does not fit it.
        InvalidInputError: Spark tasks could not access the dataset.

    Cost:
        A read of the head; for an older version also of the history.
    """
    address = options.address
    dataset = _open(address.location, options).open(address.name)
    version = options.version if address.version is None else address.version
    if (version, options.time, options.batch_id) != (None, None, None):
        dataset = dataset.at(version=version, time=options.time, batch_id=options.batch_id)
    view: View = dataset
    if address.constraints:
        types = dataset.descriptor.predicate_types
        view = view.where(parse_constraints(address.constraints, types))
    if options.where:
        view = view.where(options.where)
    return Opened(view, dataset._source.store, dataset._source.cached().layout)


def open_to_write(options: SaveOptions, given: StructType) -> Opened:
    """Open a dataset for a write; create a missing one if the options allow it.

    Args:
        options: Parsed options of the write.
        given: Schema of the rows, for a new dataset.

    Raises:
        DatasetNotFoundError: The dataset does not exist, and no option allows its creation.
        InvalidInputError: The dataset has other partitions than the option names; the partitions of
            a new dataset are not named; or Spark tasks could not access it.
        PredicateError: The condition of replaceWhere does not fit the columns.
        LakebedError: The dataset cannot be created; see `Repository.create`.

    Cost:
        A read of the head; for a new dataset the cost of `Repository.create`.
    """
    address, wanted = options.address, options.creation
    repository = _open(address.location, options)
    try:
        dataset = repository.open(address.name)
    except DatasetNotFoundError as exc:
        if wanted is None:
            raise DatasetNotFoundError(
                exc.message,
                hint=f"{exc.hint} To create it by this write, give the option partitionBy: partition "
                "functions such as 'date(ts) as dt', or '' for a dataset without partitions.".strip(),
            ) from None
        if wanted.partition_by is None:
            raise InvalidInputError(
                f"Cannot create {address.name!r}: its partitions are not named.",
                # Spark drops the latter for streams and for tables of its catalog.
                hint="Give the option partitionBy: partition functions such as 'date(ts) as dt', or "
                "'' for a dataset without partitions. Spark does not pass .partitionBy(…), "
                ".partitionedBy(…) and .clusterBy(…) to a data source in Python.",
            ) from None
        descriptor = DatasetDescriptor(
            schema=schema_from_spark(as_nullable(given.jsonValue())),
            partition_by=wanted.partition_by,
            index=wanted.index,
            format=wanted.format,
            compression=wanted.compression,
        )
        dataset = repository.create(address.name, descriptor, "open")
    else:
        if wanted is not None and wanted.partition_by is not None:
            _check_partitioning(dataset.descriptor, wanted.partition_by)
    where = options.replace_where
    view = dataset if where is None else dataset.where(where)
    return Opened(view, repository.store, dataset._source.cached().layout)


def _open(location: str, options: ReadOptions | SaveOptions) -> Repository:
    repository = open_repository(location, storage_options=options.storage)
    if not repository.store.is_shared:
        raise InvalidInputError(
            f"{location} is in the memory of one process, which Spark tasks cannot access.",
            hint="Keep the repository in a directory or a bucket.",
        )
    return repository


def _check_partitioning(descriptor: DatasetDescriptor, text: str) -> None:
    wanted = DatasetDescriptor(
        schema=descriptor.schema, partition_by=text, format=descriptor.format
    ).partition_by
    if wanted != descriptor.partition_by:
        has = ", ".join(map(str, descriptor.partition_by)) or "nothing"
        raise InvalidInputError(
            f"Option partitionBy is {text!r}, but the dataset is partitioned by {has}.",
            hint="Leave the option out: a dataset keeps the partitions that it was created with.",
        )
