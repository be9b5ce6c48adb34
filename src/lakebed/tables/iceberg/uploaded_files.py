"""Files that clients of the catalog have uploaded: manifests to compare, and rows to read.

Clients write below a place of their own beside the metadata of a table. All that they write is
untrusted: no other place is read on their word, and all sizes are bounded.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import ManifestFile, read_manifest_list

from lakebed.arrow.avro_blocks import UncompressedAvro
from lakebed.common.shown import shown
from lakebed.errors import (
    AccessDeniedError,
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    ObjectNotFoundError,
)
from lakebed.store.base import Store, validate_key
from lakebed.store.root import plain_location
from lakebed.tables.iceberg.commit_requests import LOAD_AGAIN, UnsupportedCommitError
from lakebed.tables.iceberg.library_errors import reading
from lakebed.tables.iceberg.metadata_names import uploads_folder
from lakebed.tables.iceberg.store_io import StoreIO

MAX_LIST_BYTES = 16 << 20  # of a list of manifests
MAX_MANIFEST_BYTES = 64 << 20
MOST_MANIFESTS = 10_000  # that one request adds
MOST_FILES = 100_000  # that one request adds
_MOST_RECORDS = 1_000_000  # of a manifest, or a list of them
_ROWS_AT_ONCE = 2**16
_DATA = 0  # of the contents of a manifest, and of a data file
_DELETED = 2  # status of an entry
_T = TypeVar("_T")
_FIELD_ID = b"PARQUET:field_id"
_S3 = re.compile(r"^s3[an]?://")
_HINT = "Write the table again with pyiceberg or Spark: load it first."


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """A data file that a client has uploaded.

    Attributes:
        key: Key of the file.
        row_count: Number of its rows, as its manifest has it.
        size_bytes: Its size, as its manifest has it.
    """

    key: str
    row_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _DataFile:
    """A live entry of a client's manifest."""

    path: str
    format: str
    row_count: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotChanges:
    """The difference between a snapshot of a client and the one that it follows.

    Attributes:
        added: Data files that it adds.
        removed: Locations of the data files that it removes.
    """

    added: tuple[UploadedFile, ...]
    removed: frozenset[str]


class ClientFiles:
    """The files that clients have uploaded for one table, and the metadata that we have published."""

    def __init__(self, store: Store, dataset: str, root: str) -> None:
        """Read files of a table.

        Args:
            store: The store that holds the metadata, and the uploads beside it.
            dataset: Name of the dataset.
            root: URL of that store for clients.
        """
        self._store = store
        self._root = plain_location(_S3.sub("s3://", root))
        self._folder = uploads_folder(dataset)
        self._published = StoreIO(store, root)

    def _key(self, location: str, folder: str) -> str:
        """Return the key of an uploaded file.

        Raises:
            InvalidInputError: It lies elsewhere.
        """
        plain = location if ":" in location else f"file://{location}"
        plain = plain_location(_S3.sub("s3://", plain))
        begin = f"{self._root}/{self._folder}/{folder}/"
        if not plain.startswith(begin):
            raise InvalidInputError(
                f"The request names {shown(location)}, which is not in {begin}, where clients "
                "upload.",
                hint=_HINT,
            )
        key = plain.removeprefix(f"{self._root}/")
        try:
            validate_key(key)
        except LakebedError as exc:
            raise InvalidInputError(
                f"The request names {shown(location)}, which is not a valid location: {exc.message}",
                hint=_HINT,
            ) from exc
        is_inside = False
        with suppress(AccessDeniedError):  # a link, which the store does not follow
            path, home = self._store.local_path(key), self._store.local_path(self._folder)
            is_inside = not (path and home) or path.resolve().is_relative_to(home.resolve())
        if not is_inside:
            raise InvalidInputError(
                f"The request names {shown(location)}, a link to another place.", hint=_HINT
            )
        return key

    def changes(self, manifest_list: str, base: str | None) -> SnapshotChanges:
        """Compare a snapshot with the one that it follows.

        Args:
            manifest_list: List of the manifests of the snapshot, as a client has written it.
            base: List of the manifests of the snapshot before, as we have published it; None for
                no snapshot.

        Raises:
            InvalidInputError: A file is missing, is damaged, or lies elsewhere.
            UnsupportedCommitError: The snapshot has files that mark rows as deleted.
            CommitConflictError: The snapshot before has been deleted.
        """
        before = {} if base is None else self._published_manifests(base)
        now = self._client_manifests(manifest_list)
        added, removed = dict[str, _DataFile](), set[str]()
        for path in before.keys() - now:
            removed |= self._live_of_published(before[path])
        gone = frozenset(removed)
        new = sorted(now - before.keys())
        if len(new) > MOST_MANIFESTS:
            raise _unreadable(manifest_list, "list of manifests", f"{len(new):,} of them are new")
        for path in new:
            for file in self._live_of_client(path):
                if file.path in removed:
                    removed.discard(file.path)
                elif file.path in added or file.path in gone:
                    raise _unreadable(path, "manifest", f"it names {shown(file.path)} again")
                else:
                    added[file.path] = file
                if len(added) > MOST_FILES:
                    raise _unreadable(path, "manifest", f"more than {MOST_FILES:,} files are added")
        uploads = tuple(self._upload(file) for _, file in sorted(added.items()))
        return SnapshotChanges(added=uploads, removed=frozenset(removed))

    def _client_manifests(self, location: str) -> frozenset[str]:
        """Return the locations of the manifests that a client's list names."""
        key, kind = self._key(location, "metadata"), "list of manifests"
        named = set()
        for record in self._records(location, key, kind, MAX_LIST_BYTES):
            path = _member(location, kind, record, "manifest_path", str)
            if record.get("content") not in (None, _DATA):
                raise _merge_on_read(path)
            if path in named:
                raise _unreadable(location, kind, "it names a manifest twice")
            named.add(path)
        return frozenset(named)

    def _published_manifests(self, base: str) -> Mapping[str, ManifestFile]:
        try:
            with reading(base, "a list of manifests", hint=_HINT):
                listed = read_manifest_list(self._published.new_input(base))
                return {manifest.manifest_path: manifest for manifest in listed}
        except (CorruptMetadataError, ObjectNotFoundError) as exc:
            raise _gone(base) from exc

    def _live_of_published(self, manifest: ManifestFile) -> set[str]:
        try:
            with reading(manifest.manifest_path, "a manifest", hint=_HINT):
                entries = manifest.fetch_manifest_entry(self._published)
        except (CorruptMetadataError, ObjectNotFoundError) as exc:
            raise _gone(manifest.manifest_path) from exc
        return {entry.data_file.file_path for entry in entries}

    def _live_of_client(self, location: str) -> Iterator[_DataFile]:
        key, kind = self._key(location, "metadata"), "manifest"
        for record in self._records(location, key, kind, MAX_MANIFEST_BYTES):
            if _member(location, kind, record, "status", int) == _DELETED:
                continue
            file = _member(location, kind, record, "data_file", dict)
            path = _member(location, kind, file, "file_path", str)
            if file.get("content") not in (None, _DATA):
                raise _merge_on_read(path)
            yield _DataFile(
                path=path,
                format=_member(location, kind, file, "file_format", str),
                row_count=_member(location, kind, file, "record_count", int),
                size_bytes=_member(location, kind, file, "file_size_in_bytes", int),
            )

    def _records(self, location: str, key: str, kind: str, max_bytes: int) -> Iterator[Any]:
        """Yield the records of a client's Avro file.

        pyiceberg's own decoder trusts all lengths in it: damaged ones end the process.
        """
        import fastavro

        with _reading_upload(location, kind):
            size_bytes = self._store.size(key)
            if size_bytes > max_bytes:
                why = f"it has {size_bytes:,} bytes, more than {max_bytes:,}"
                raise _unreadable(location, kind, why)
            data = io.BytesIO(bytes(self._store.get(key).data))
            records = fastavro.reader(cast("IO[bytes]", UncompressedAvro(data)))
            for number, record in enumerate(records):
                if number >= _MOST_RECORDS:
                    raise _unreadable(location, kind, f"it has more than {_MOST_RECORDS:,} records")
                if not isinstance(record, dict):
                    raise _unreadable(location, kind, "a record is not a struct")
                yield record

    def _upload(self, file: _DataFile) -> UploadedFile:
        if file.format.upper() != "PARQUET":
            raise UnsupportedCommitError(
                f"The data file {shown(file.path)} has format {shown(file.format)}.",
                hint="Write Parquet: write.format.default=parquet.",
            )
        key = self._key(file.path, "data")
        return UploadedFile(key=key, row_count=file.row_count, size_bytes=file.size_bytes)

    def rows(
        self, uploads: Sequence[UploadedFile], ids: Mapping[str, int]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of data files, with the columns that the files have.

        Args:
            uploads: The files.
            ids: Ids of the columns of the table, by name.

        Raises:
            InvalidInputError: A file is missing or damaged, or differs from its manifest.
        """
        for upload in uploads:
            with _reading_upload(upload.key, "data file"):
                yield from self._rows_of(upload, ids)

    def _rows_of(self, upload: UploadedFile, ids: Mapping[str, int]) -> Iterator[pa.RecordBatch]:
        size_bytes = self._store.size(upload.key)
        if size_bytes != upload.size_bytes:
            why = (
                f"it has {size_bytes:,} bytes, and not those of its manifest, {upload.size_bytes:,}"
            )
            raise _unreadable(upload.key, "data file", why)
        with self._store.open_input(upload.key) as source:
            file = pq.ParquetFile(source)
            if file.metadata.num_rows != upload.row_count:
                why = f"it has {file.metadata.num_rows:,} rows, and not those of its manifest, "
                raise _unreadable(upload.key, "data file", f"{why}{upload.row_count:,}")
            _check_columns(upload.key, file.schema_arrow, ids)
            count = 0
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE):
                count += batch.num_rows
                yield batch.replace_schema_metadata(None)
            if count != upload.row_count:
                raise _unreadable(upload.key, "data file", f"{count:,} of its rows can be read")


def _check_columns(key: str, schema: pa.Schema, ids: Mapping[str, int]) -> None:
    """Check that columns have the ids of the table's: names alone may be those of others."""
    if len(set(schema.names)) < len(schema.names):
        raise _unreadable(key, "data file", "it has two columns of one name")
    for column in schema:
        given = (column.metadata or {}).get(_FIELD_ID)
        wanted = ids.get(column.name)
        if wanted is None or (given is not None and given != str(wanted).encode()):
            why = "is not in the table" if wanted is None else f"has not the id {wanted}"
            raise _unreadable(key, "data file", f"its column {shown(column.name)} {why}")


def _member(location: str, kind: str, record: Any, name: str, expected: type[_T]) -> _T:
    value = record.get(name)
    if not isinstance(value, expected):
        raise _unreadable(location, kind, f"{name} is {shown(value)}")
    return value


@contextmanager
def _reading_upload(location: str, kind: str) -> Iterator[None]:
    """Raise what goes wrong with a client's file as an error of the client."""
    try:
        yield
    except ObjectNotFoundError as exc:
        raise _unreadable(location, kind, "it is missing") from exc
    except LakebedError:
        raise
    except Exception as exc:
        raise _unreadable(location, kind, str(exc) or type(exc).__name__) from exc


def _unreadable(location: str, kind: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The {kind} {shown(location)} of the request cannot be used: {why}.", hint=_HINT
    )


def _merge_on_read(location: str) -> UnsupportedCommitError:
    return UnsupportedCommitError(
        f"{shown(location)} marks rows of other files as deleted, which Lakebed does not read.",
        hint="Let the client copy on write, as the table's properties ask for, or change rows by "
        "`lakebed sql --write`.",
    )


def _gone(location: str) -> CommitConflictError:
    return CommitConflictError(
        f"{location!r} of the snapshot that the request follows has been deleted.",
        hint=LOAD_AGAIN,
        expected=-1,
        actual=-1,
    )
