"""Layout of the objects of a dataset: the one module that defines their physical names.

`Layout` holds all that is needed to find and read any data file of a dataset.

It is Kartothek's layout, so plateau can read our datasets, with our own objects beside it:

    flights.by-dataset-metadata.json     the head
    flights/data/_common_metadata        the schema, for plateau and kartothek
    flights/data/dt=…/batch_id=…/part-…  data files; see `lakebed.model.keys`
    flights/data/_delta_log/…            a log that makes the data files a Delta table
    flights/files/0000000012-….parquet   segments, in one of the folders of `Folder`
"""

from __future__ import annotations

import datetime as dt
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.footprint import types_of as footprint_types
from lakebed.model.keys import (
    ADOPTED_PREFIX,
    BATCH_ID,
    check_under,
    decode_path,
    is_own_name,
    level_names,
    partition_of_label,
    split_label,
)
from lakebed.model.lineage import Lineage
from lakebed.model.partition import Dimension, PartitionStrategy
from lakebed.model.schema import Field, Schema, Type, dotted_types
from lakebed.model.values import Scalar

TABLE = "data"  # Kartothek's table name; gives Kite's /data/users/data/userId_hash=15
JSON_SUFFIX = ".by-dataset-metadata.json"
MSGPACK_SUFFIX = ".by-dataset-metadata.msgpack.zstd"
SCHEMA_FILE = "_common_metadata"
INDEX_SUFFIX = ".by-dataset-index.parquet"
DELTA_LOG = (
    "_delta_log"  # in the table's folder, as Delta requires; readers hide names that begin with _
)

KARTOTHEK_SUFFIX = "-kartothek"  # of the name that a dataset is published under
KARTOTHEK_NOTE = "{}/published/kartothek.json"  # the note of that publication

_COPY_NAME = re.compile(r"[0-9]{19}-[0-9a-f]{32}")
_SEGMENT_NAME = re.compile(r"[0-9]{1,18}-[0-9a-f]{32}[^/]*")


class Folder(StrEnum):
    """Folders of a dataset, beside that of its data files. They hold only objects of Lakebed."""

    BATCHES = "batches"  # reservations, and manifests of commits
    CLEANUPS = "cleanups"  # reports of deleted files
    ERASURES = "erasures"  # certificates of erasures
    FILES = "files"  # the file table
    HISTORY = "history"
    HIVE = "hive"  # registered location of tables of a metastore; always empty
    ICEBERG = "iceberg"  # metadata that makes the data files an Iceberg table
    INDICES = "indices"  # Kartothek's index files
    LEAVES = "leaves"  # the files of a dataset whose head is a tree
    POSTINGS = "postings"  # the inverted indices
    PUBLISHED = "published"  # state of tables of other formats
    ROOTS = "roots"  # copies of heads that are trees, by version
    RUNS = "runs"  # batches by run
    SIGNALS = "signals"  # views that are ready
    SOURCES = "sources"  # raw files that were ingested
    STAGING = "staging"  # intermediate files of tasks, before there are data files

    def of(self, dataset: str, *inner: str) -> str:
        """Return the key of the folder of a dataset, or of an object in it.

        >>> Folder.FILES.of("flights"), Folder.SIGNALS.of("flights", "dt=2013-01-01")
        ('flights/files', 'flights/signals/dt=2013-01-01')
        """
        return "/".join((dataset, self, *inner))


_FOLDERS = frozenset(Folder)
_FOLDERS_OF_SEGMENTS = frozenset(
    {
        Folder.CLEANUPS,
        Folder.FILES,
        Folder.HISTORY,
        Folder.LEAVES,
        Folder.POSTINGS,
        Folder.RUNS,
        Folder.SOURCES,
    }
)


def is_data_key(key: str) -> bool:
    """Return whether a key is that of a data file, in the folder that Lakebed writes to.

    >>> is_data_key("flights/data/dt=2013-01-01/batch_id=1/part-0.parquet")
    True
    >>> is_data_key("flights/data/_delta_log/00.json"), is_data_key("flights/files/1.parquet")
    (False, False)
    """
    _, *inner = key.split("/")
    return len(inner) > 1 and inner[0] == TABLE and not inner[1].startswith("_")


def schema_key(dataset: str, table: str) -> str:
    """Return the key of the schema file."""
    return f"{dataset}/{table}/{SCHEMA_FILE}"


def kartothek_name(dataset: str) -> str:
    """Return the name of the Kartothek dataset that a dataset is published as."""
    return f"{dataset}{KARTOTHEK_SUFFIX}"


def delta_folder(dataset: str) -> str:
    """Return the folder of the log of the Delta table of a dataset."""
    return f"{dataset}/{TABLE}/{DELTA_LOG}"


def postings_folder(dataset: str, column: str) -> str:
    """Return the folder of the segments of the inverted index of a column."""
    return Folder.POSTINGS.of(dataset, urllib.parse.quote(column, safe=""))


def index_key(dataset: str, column: str, now: dt.datetime) -> str:
    """Return a key for an index file, in Kartothek's form."""
    names = (urllib.parse.quote(name, safe="") for name in (column, now.isoformat()))
    return Folder.INDICES.of(dataset, *names) + INDEX_SUFFIX


def staging_folder(dataset: str, batch_id: int) -> str:
    """Return the folder of the intermediate files that tasks of a batch exchange."""
    return Folder.STAGING.of(dataset, str(batch_id))


def segment_key(folder: str, weight: int, name: str) -> str:
    """Return the key of a segment.

    Args:
        folder: The folder of the segment.
        weight: The number of its entries.
        name: The remainder of its name, which begins with 32 hexadecimal digits.
    """
    return f"{folder}/{weight:010d}-{name}"


def copy_key(dataset: str, version: int, copy_id: str) -> str:
    """Return the key of a copy of the head of a tree at a version.

    Args:
        dataset: Name of the dataset.
        version: The version.
        copy_id: 32 hexadecimal digits; fewer are the beginning of a key.
    """
    return Folder.ROOTS.of(dataset, f"{version:019d}-{copy_id}")


def is_own_key(key: str) -> bool:
    """Return whether a key in the directory of a dataset has a form that Lakebed writes.

    >>> is_own_key("flights/hive/00"), is_own_key("flights/dt=2013-01-01/000000_0")
    (True, False)
    >>> is_own_key("flights/history/0000000001-0123456789abcdef0123456789abcdef.first.json.zst")
    True
    >>> is_own_key("flights/history/part-00000.parquet"), is_own_key("flights/files/a.csv")
    (False, False)
    """
    _, folder, *rest = key.split("/")
    if folder != TABLE:
        return bool(rest) and folder in _FOLDERS and _has_form_of(folder, rest)
    return rest[:1] in ([SCHEMA_FILE], [DELTA_LOG]) or is_own_name(
        key.rpartition("/")[2].partition(".")[0]
    )


def _has_form_of(folder: str, rest: Sequence[str]) -> bool:
    """Return whether the path of an object in a folder of a dataset has a form that is used there."""
    if folder in _FOLDERS_OF_SEGMENTS:
        return is_segment_name(rest[-1])
    if folder == Folder.ROOTS:
        return is_copy_name(rest[-1])
    if folder in (Folder.BATCHES, Folder.STAGING):
        return rest[0].partition(".")[0].isdecimal()
    return folder != Folder.INDICES or rest[-1].endswith(INDEX_SUFFIX)


def is_segment_name(name: str) -> bool:
    """Return whether the name of an object, without its folder, is that of a segment."""
    return _SEGMENT_NAME.fullmatch(name) is not None


def is_copy_name(name: str) -> bool:
    """Return whether the name of an object, without its folder, is that of a copy of a head."""
    return _COPY_NAME.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class Naming:
    """The mapping from the label of a file to its key.

    Attributes:
        dataset: The name of the dataset.
        table: Kartothek's table name.
        suffix: The suffix of data files.
    """

    dataset: str
    table: str
    suffix: str

    @property
    def prefix(self) -> str:
        """The part of keys before the label."""
        return f"{self.dataset}/{self.table}/"

    def key(self, label: str) -> str:
        """Return the key of a file.

        Raises:
            CorruptMetadataError: The label of an adopted file points outside the dataset.

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
        """Return whether each key is prefix, label and suffix, all of them ASCII."""
        bare = "/".join((*labels, self.prefix, self.suffix))
        # Also false for a label that only looks adopted; those labels are mapped one by one.
        return bare.isascii() and ADOPTED_PREFIX not in bare


def _unset() -> Any:
    return field(default=None, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The facts needed to find and read any data file of a dataset. They are sent to Spark tasks.

    Attributes:
        name: The name of the dataset.
        table: Kartothek's table name; `data` in datasets of Lakebed.
        descriptor: The descriptor of the dataset.
        partition_keys: Directory levels in order, `batch_id` last in datasets of Lakebed.
        lineage: Number of the current schema, and the history needed to read older files.
        is_ours: True if Lakebed created the dataset and can commit to it.
        has_former_levels: True if directories of former dimensions are read too. A level that such
            a directory lacks is null.
        footprint: Columns of the footprint of rows that a read may name; see
            `lakebed.model.footprint`.
    """

    name: str
    table: str
    descriptor: DatasetDescriptor
    partition_keys: tuple[str, ...]
    lineage: Lineage = field(default_factory=Lineage)
    is_ours: bool
    has_former_levels: bool = False
    footprint: tuple[str, ...] = ()
    # Computed once: loops over columns ask for them, and there may be 10,000 columns.
    _column_types: Mapping[str, Type] | None = _unset()
    _partition_types: Mapping[str, Type] | None = _unset()

    @classmethod
    def of_ours(
        cls, name: str, descriptor: DatasetDescriptor, lineage: Lineage | None = None
    ) -> Layout:
        """Return the layout of a dataset that Lakebed created; it is new if no lineage is given."""
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
        """The mapping from the label of a file to its key."""
        return Naming(self.name, self.table, self.descriptor.file_suffix)

    def key(self, label: str) -> str:
        """Return the key of a data file."""
        return self.naming.key(label)

    @property
    def column_types(self) -> Mapping[str, Type]:
        """All columns that can be read, with their types."""
        if self._column_types is None:
            fields = {field.name: field.type for field in self.descriptor.schema}
            types = {**fields, **self.partition_types, **footprint_types(self.footprint)}
            object.__setattr__(self, "_column_types", types)
            return types
        return self._column_types

    @property
    def file_column_types(self) -> dict[str, Type]:
        """The same columns by their names in data files."""
        name_of = self.descriptor.schema.stored_name
        return {name_of(name): kind for name, kind in self.column_types.items()}

    def fields_of(self, names: Sequence[str]) -> Schema:
        """Return columns as what a read gives: nullable, with their comments.

        Args:
            names: Names of existing columns.
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
        """All columns that a predicate may name, nested ones by dots, with their types."""
        return {**dotted_types(self.descriptor.schema), **self.partition_types}

    @property
    def partition_types(self) -> Mapping[str, Type]:
        """Directory levels in order, with their types."""
        if self._partition_types is None:
            declared = self.descriptor.column_types
            types = {name: declared[name] for name in self.partition_keys}
            object.__setattr__(self, "_partition_types", types)
            return types
        return self._partition_types

    @property
    def partition_level_types(self) -> dict[str, Type]:
        """Directory levels of a partition: all except the batch."""
        levels = dict(self.partition_types)
        if self.is_ours:
            levels.pop(BATCH_ID, None)
        return levels

    @property
    def table_columns(self) -> tuple[str, ...]:
        """Columns of a table in SQL: the fields, then the levels of a partition that are none."""
        return tuple(dict.fromkeys((*self.descriptor.schema.names, *self.partition_level_types)))

    def partition_of(self, label: str) -> str:
        """Return the partition that a data file lies in: its directory, without that of its batch.

        In a dataset of another tool, `batch_id` is an ordinary level.
        """
        return partition_of_label(label) if self.is_ours else split_label(label)[0]

    def directory_values(self, directory: str) -> dict[str, Scalar]:
        """Return the typed values of a directory's levels.

        Raises:
            CorruptMetadataError: The directory does not fit the schema.
        """
        types = self.partition_types
        if not self.has_former_levels:
            return decode_path(directory, types)
        found = dict(zip(level_names(directory), directory.split("/"), strict=False))
        lost = [name for name in types if name not in found]
        dimensions = {
            one.name for one in self.descriptor.partition_by if isinstance(one, Dimension)
        }
        if not dimensions.issuperset(lost):
            return decode_path(directory, types)  # raises an error that names it
        held = {name: kind for name, kind in types.items() if name in found}
        values = decode_path("/".join(found[name] for name in held), held)
        return {name: values.get(name) for name in types}

    @property
    def sure_strategy(self) -> PartitionStrategy:
        """The partition functions that hold for the rows under every path."""
        strategy = self.lineage.sure_strategy(self.descriptor.partition_by)
        if not self.has_former_levels:
            return strategy
        kept = (one for one in strategy if not isinstance(one, Dimension))
        return PartitionStrategy(tuple(kept))

    @property
    def field_ids(self) -> Mapping[str, int] | None:
        """Ids of the columns of new data files, by path; None if they have none."""
        ids = self.lineage.field_ids(self.descriptor) if self.is_ours else None
        return None if ids is None else ids.by_path

    @property
    def stored_schema(self) -> Schema:
        """The fields that data files hold."""
        schema = self.descriptor.schema
        return schema.select(tuple(n for n in schema.names if n not in self.partition_keys))

    @property
    def file_schema(self) -> Schema:
        """The columns of data files: the stored fields, by the names that they have there."""
        return self.stored_schema.as_stored()

    def field_names(self, columns: Iterable[str]) -> dict[str, str]:
        """Return the names of columns by their names in data files, without unknown ones."""
        schema = self.descriptor.schema
        found = {column: schema.find_stored(column) for column in columns}
        names = {
            # A name that was renamed away may be that of another field now.
            column: field.name if field is not None else "" if column in schema else column
            for column, field in found.items()
        }
        return {column: name for column, name in names.items() if name}
