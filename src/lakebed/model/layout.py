"""Where the objects of a dataset are: the one module that knows their physical names.

`Layout` is what one must know of a dataset to find and to read its data files, whichever there are.

It is Kartothek's layout, so that plateau reads what we write, and ours beside it:

    flights.by-dataset-metadata.json     the head
    flights/data/_common_metadata        the schema, for plateau and kartothek
    flights/data/dt=…/batch_id=…/part-…  data files; see `lakebed.model.keys`
    flights/data/_delta_log/…            a log by which the data files are a Delta table
    flights/files/0000000012-….parquet   segments, in one of the folders of `Folder`
"""

from __future__ import annotations

import datetime as dt
import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import (
    ADOPTED_PREFIX,
    BATCH_ID,
    check_under,
    decode_path,
    is_own_name,
    partition_of_label,
    split_label,
)
from lakebed.model.lineage import Lineage
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Field, Schema, Type, dotted_types
from lakebed.model.values import Scalar

TABLE = "data"  # Kartothek's table name; gives Kite's /data/users/data/userId_hash=15
JSON_SUFFIX = ".by-dataset-metadata.json"
MSGPACK_SUFFIX = ".by-dataset-metadata.msgpack.zstd"
SCHEMA_FILE = "_common_metadata"
INDEX_SUFFIX = ".by-dataset-index.parquet"
DELTA_LOG = (
    "_delta_log"  # in the table's folder, as Delta wants it; its readers hide what begins so
)

_SEGMENT_NAME = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}[^/]*")


class Folder(StrEnum):
    """A folder of a dataset, beside that of its data files. Nobody else may keep files in it."""

    BATCHES = "batches"  # reservations, and manifests of what was committed
    CLEANUPS = "cleanups"  # what cleanups have deleted
    FILES = "files"  # the file table
    HISTORY = "history"
    HIVE = "hive"  # where tables of a metastore are said to be; nothing lies there
    ICEBERG = "iceberg"  # metadata by which the data files are an Iceberg table
    INDICES = "indices"  # Kartothek's index files
    POSTINGS = "postings"  # the inverted indices
    PUBLISHED = "published"  # what tables of other formats show
    RUNS = "runs"  # which run wrote what
    SIGNALS = "signals"  # which views are ready
    SOURCES = "sources"  # which raw files were read in
    STAGING = "staging"  # what tasks leave for each other before there are data files

    def of(self, dataset: str, *inner: str) -> str:
        """Return the folder of a dataset, or what lies in it.

        >>> Folder.FILES.of("flights"), Folder.SIGNALS.of("flights", "dt=2013-01-01")
        ('flights/files', 'flights/signals/dt=2013-01-01')
        """
        return "/".join((dataset, self, *inner))


def schema_key(dataset: str, table: str) -> str:
    """Return the key of the schema file."""
    return f"{dataset}/{table}/{SCHEMA_FILE}"


def delta_folder(dataset: str) -> str:
    """Return where the log of the Delta table of a dataset lies."""
    return f"{dataset}/{TABLE}/{DELTA_LOG}"


def postings_folder(dataset: str, column: str) -> str:
    """Return where the segments of the inverted index of a column lie."""
    return Folder.POSTINGS.of(dataset, urllib.parse.quote(column, safe=""))


def index_key(dataset: str, column: str, now: dt.datetime) -> str:
    """Return a key for an index file, as Kartothek writes it."""
    names = (urllib.parse.quote(name, safe="") for name in (column, now.isoformat()))
    return Folder.INDICES.of(dataset, *names) + INDEX_SUFFIX


def staging_folder(dataset: str, batch_id: int) -> str:
    """Return where the tasks of a batch leave files for each other."""
    return Folder.STAGING.of(dataset, str(batch_id))


def segment_key(folder: str, weight: int, name: str) -> str:
    """Return the key of a segment.

    Args:
        folder: Where it lies.
        weight: How many entries it holds.
        name: The rest of its name, which begins with 32 hexadecimal digits.
    """
    return f"{folder}/{weight:010d}-{name}"


def is_own_key(key: str) -> bool:
    """Whether a key in the directory of a dataset is one that Lakebed gives.

    >>> is_own_key("flights/history/0001"), is_own_key("flights/dt=2013-01-01/000000_0")
    (True, False)
    """
    _, folder, *rest = key.split("/")
    if folder != TABLE:
        return bool(rest) and folder in frozenset(Folder)
    return rest[:1] in ([SCHEMA_FILE], [DELTA_LOG]) or is_own_name(
        key.rpartition("/")[2].partition(".")[0]
    )


def is_segment_name(name: str) -> bool:
    """Whether the name of an object is one of a segment, without its folder."""
    return _SEGMENT_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Naming:
    """What leads from a label to the key of its file.

    Attributes:
        dataset: Its name.
        table: Of Kartothek.
        suffix: Of data files.
    """

    dataset: str
    table: str
    suffix: str

    @property
    def prefix(self) -> str:
        """What keys begin with, before the label."""
        return f"{self.dataset}/{self.table}/"

    def key(self, label: str) -> str:
        """Return the key of a file.

        Raises:
            CorruptMetadataError: The label of an adopted file leads out of the dataset.

        >>> naming = Naming("flights", "data", ".parquet")
        >>> naming.key("dt=2013-01-01/batch_id=1/part-0a")
        'flights/data/dt=2013-01-01/batch_id=1/part-0a.parquet'
        >>> from lakebed.model.keys import adopted_file_name
        >>> naming.key("dt=2013-01-01/batch_id=1/" + adopted_file_name("dt=2013-01-01/000000_0"))
        'flights/dt=2013-01-01/000000_0'
        """
        name = label.rpartition("/")[2]
        if name.startswith(ADOPTED_PREFIX):
            path = urllib.parse.unquote(name[len(ADOPTED_PREFIX) :])
            return check_under(f"{self.dataset}/{path}", f"{self.dataset}/")
        return f"{self.dataset}/{self.table}/{label}{self.suffix}"

    def is_plain(self, labels: Sequence[str]) -> bool:
        """Whether all keys are the label between prefix and suffix, in characters that are bytes."""
        bare = "/".join((*labels, self.prefix, self.suffix))
        # Also false for a label that only looks so; those are encoded one by one.
        return bare.isascii() and ADOPTED_PREFIX not in bare


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What a dataset is: enough to find and to read any of its data files. Travels to Spark tasks.

    Attributes:
        name: Of the dataset.
        table: Kartothek's table name; `data` in datasets of ours.
        descriptor: What the dataset is.
        partition_keys: Directory levels in order, `batch_id` last in datasets of ours.
        lineage: Number of the current schema, and how files of older ones are read.
        is_ours: Whether Lakebed created the dataset, so that it can commit to it.
    """

    name: str
    table: str
    descriptor: DatasetDescriptor
    partition_keys: tuple[str, ...]
    lineage: Lineage = field(default_factory=Lineage)
    is_ours: bool

    @classmethod
    def of_ours(
        cls, name: str, descriptor: DatasetDescriptor, lineage: Lineage | None = None
    ) -> Layout:
        """Return the layout of a dataset that Lakebed created; without lineage a new one."""
        return cls(
            name=name,
            table=TABLE,
            descriptor=descriptor,
            partition_keys=tuple(descriptor.partition_types),
            lineage=lineage or Lineage(),
            is_ours=True,
        )

    def as_of(self, descriptor: DatasetDescriptor, lineage: Lineage | None = None) -> Layout:
        """Return the layout of the same dataset under another descriptor."""
        keys = tuple(descriptor.partition_types) if self.is_ours else self.partition_keys
        return replace(
            self, descriptor=descriptor, lineage=lineage or self.lineage, partition_keys=keys
        )

    @property
    def naming(self) -> Naming:
        """What leads from a label to the key of its file."""
        return Naming(self.name, self.table, self.descriptor.file_suffix)

    def key(self, label: str) -> str:
        """Return the key of a data file."""
        return self.naming.key(label)

    @property
    def column_types(self) -> dict[str, Type]:
        """All columns that can be asked for, with their types."""
        fields = {field.name: field.type for field in self.descriptor.schema}
        return {**fields, **self.partition_types}

    def fields_of(self, names: Sequence[str]) -> Schema:
        """Return columns as what a read gives: nullable, with their comments.

        Args:
            names: Of columns that there are.
        """
        types = self.column_types
        declared = map(self.descriptor.schema.find, names)
        return Schema(
            fields=tuple(
                Field(name=name, type=types[name], doc=field.doc if field else "")
                for name, field in zip(names, declared, strict=True)
            )
        )

    @property
    def predicate_types(self) -> dict[str, Type]:
        """All columns that can stand in a predicate, nested ones by dots, with their types."""
        return {**dotted_types(self.descriptor.schema), **self.partition_types}

    @property
    def partition_types(self) -> dict[str, Type]:
        """Directory levels in order, with their types."""
        declared = self.descriptor.column_types
        return {name: declared[name] for name in self.partition_keys}

    @property
    def partition_level_types(self) -> dict[str, Type]:
        """Directory levels of a partition: all but the batch."""
        levels = self.partition_types
        if self.is_ours:
            levels.pop(BATCH_ID, None)
        return levels

    def partition_of(self, label: str) -> str:
        """Return the partition that a data file lies in: its directory, without that of its batch.

        In a dataset of another tool a level `batch_id` is one like any other.
        """
        return partition_of_label(label) if self.is_ours else split_label(label)[0]

    def directory_values(self, directory: str) -> dict[str, Scalar]:
        """Return the typed values of a directory's levels.

        Raises:
            CorruptMetadataError: The directory does not fit the schema.
        """
        return decode_path(directory, self.partition_types)

    @property
    def sure_strategy(self) -> PartitionStrategy:
        """The partition functions that tell something of the rows under every path."""
        return self.lineage.sure_strategy(self.descriptor.partition_by)

    @property
    def stored_schema(self) -> Schema:
        """The fields that data files hold."""
        schema = self.descriptor.schema
        return schema.select(tuple(n for n in schema.names if n not in self.partition_keys))
