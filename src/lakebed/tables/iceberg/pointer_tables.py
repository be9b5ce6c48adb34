"""Iceberg tables that clients of the catalog create: metadata files, and one pointer to each table.

The catalog needs no database. Each commit writes a new metadata file, and replaces the pointer of the
table under a condition. Requests and metadata are pyiceberg's models; what a request changes is
applied by pyiceberg. Manifests and data files are the clients' own: the server does not read them.

A name in this module is that of a table with the folder of its namespace, such as `sales/orders`.
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pydantic
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.rest import CreateTableRequest, RegisterTableRequest
from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest
from pyiceberg.table.metadata import (
    TableMetadata,
    TableMetadataUtil,
    TableMetadataV1,
    new_table_metadata,
)
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertCreate,
    SetLocationUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.typedef import IcebergBaseModel

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.common.shown import shown
from lakebed.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitUnknownError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    NotFoundError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
)
from lakebed.model.layout import is_own_key
from lakebed.model.names import check_dataset_name
from lakebed.model.table_signs import ICEBERG_FILE, ICEBERG_FOLDER
from lakebed.state.head import HeadFormat
from lakebed.state.namespaces import is_namespace, list_namespaces, was_namespace
from lakebed.state.table_pointers import (
    Pointer,
    StoredPointer,
    find_pointer,
    find_table,
    list_pointers,
    put_pointer,
)
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.root import key_at, plain_location
from lakebed.tables.iceberg.commit_requests import UnsupportedCommitError
from lakebed.tables.iceberg.iceberg_schema import ROOT
from lakebed.tables.iceberg.local_folders import make_local_folder
from lakebed.tables.iceberg.metadata_updates import apply_updates

_log = logging.getLogger(__name__)
_Model = TypeVar("_Model", bound=IcebergBaseModel)

MAX_TABLE_BYTES = 4 << 20  # of a request to create a table or to commit to one
MAX_FORMAT_VERSION = 2
MAX_METADATA_BYTES = 64 << 20  # of a metadata file, which is held in memory
_ATTEMPTS = 20  # of a commit, while other clients commit to the same table
_WAIT_SECONDS = 0.02  # before the second attempt, on average; it doubles up to 1 s
_MOST_UPDATES = 1000
# Iceberg's Java readers refuse snapshots whose times go back by more than a minute.
_MOST_BEHIND_MS = 60_000
_MOST_AHEAD_MS = 86_400_000  # clocks of clients may differ
_DELETES_OLD_METADATA = "write.metadata.delete-after-commit.enabled"
_GROWING = (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerTable:
    """A table as it was read.

    Attributes:
        name: Name of the table, with the folder of its namespace.
        metadata: The metadata.
        location: Location of the metadata file.
        pointer: The pointer; None for a table that is not created yet.
    """

    name: str
    metadata: TableMetadata
    location: str
    pointer: StoredPointer | None

    @property
    def document(self) -> Any:
        """The metadata as a document of JSON."""
        return msgspec.json.decode(self.metadata.model_dump_json(exclude_none=True))


class PointerTables:
    """The Iceberg tables of a lake, in all of its namespaces."""

    def __init__(self, store: Store, root: str) -> None:
        """Keep the tables of a store.

        Args:
            store: The store of the lake.
            root: URL of the lake for readers.
        """
        self._store = store
        self._root = plain_location(root)

    def list(self, folder: str) -> list[str]:
        """Return the names of the tables in a namespace, sorted, without its folder.

        Cost:
            A LIST, and a GET for each table.
        """
        return list_pointers(self._store, folder)

    def find(self, name: str) -> PointerTable | None:
        """Return a table; None if there is none of this name.

        Raises:
            CommitConflictError: A rename of the table has not ended.
            CorruptMetadataError: Its pointer or its metadata cannot be read.
            NotFoundError: Its metadata file is missing.

        Cost:
            Two GETs.
        """
        stored = find_table(self._store, name)
        if stored is None:
            return None
        _check_stays(name, stored)
        return self._read(name, stored)

    def exists(self, name: str) -> bool:
        """Return whether there is a table of this name.

        Cost:
            A GET.
        """
        return find_table(self._store, name) is not None

    def create(self, folder: str, body: bytes) -> PointerTable:
        """Create a table as a request asks for, or only return its metadata for a later commit.

        The location is the catalog's choice: a folder of the namespace that nothing else uses.

        Args:
            folder: Folder of the namespace.
            body: A CreateTableRequest.

        Raises:
            AlreadyExistsError: There is such a table, or a dataset of this name.
            InvalidInputError: The request cannot be used.
            InvalidNameError: The name is not legal.
            CommitUnknownError: The store did not report whether the table was created.

        Cost:
            A LIST, four GETs, a PUT and a conditional PUT; for a staged table a LIST and four GETs,
            and in a directory its folder for metadata.
        """
        request = _parse(
            CreateTableRequest,
            body,
            {"location": None, "partition-spec": None, "write-order": None},
        )
        name = folder + check_dataset_name(request.name)
        before = self._check_free(name)
        metadata = _translating(_new_metadata, request, self._new_location(name, before))
        if request.stage_create:
            make_local_folder(self._store, self._key(f"{metadata.location}/{ICEBERG_FOLDER}"))
            return PointerTable(name=name, metadata=metadata, location="", pointer=None)
        return self._put_first(name, metadata, before)

    def commit(self, name: str, body: bytes, *, only_appends: bool) -> PointerTable:
        """Commit what a request asks for.

        A request whose requirements hold for the newest metadata is applied to it, although others
        have committed since its client loaded the table.

        Args:
            name: Name of the table.
            body: A CommitTableRequest, which may create the table.
            only_appends: True refuses changes other than a creation, and snapshots that append.

        Raises:
            NotFoundError: There is no such table, and the request does not create one.
            AlreadyExistsError: The request creates a table that exists.
            CommitConflictError: A requirement does not hold, or others commit all the time.
            UnsupportedCommitError: The change is not allowed.
            InvalidInputError: The request cannot be used.
            CommitUnknownError: The store did not report whether the commit was made.

        Cost:
            Two GETs, a HEAD for each form of a dataset of the name, a PUT and a conditional PUT; as
            often as other clients commit meanwhile.
        """
        request = _parse(
            CommitTableRequest, body, {}, {"identifier": {"namespace": [], "name": name}}
        )
        if len(request.updates) > _MOST_UPDATES or len(request.requirements) > _MOST_UPDATES:
            raise _malformed(f"it has more than {_MOST_UPDATES:,} updates or requirements")
        is_creation = any(isinstance(one, AssertCreate) for one in request.requirements)
        if only_appends and not is_creation:
            _check_appends(request.updates)
        elif is_creation:
            self._check_namespace(name)
        for attempt in range(_ATTEMPTS):
            if attempt:
                time.sleep(random.uniform(0, min(1.0, _WAIT_SECONDS * 2**attempt)))
            if is_creation:
                try:
                    before = self._check_free(name)
                except AlreadyExistsError as exc:
                    raise AlreadyExistsError(
                        f"Requirement failed: table already exists: {dotted(name)}.",
                        hint="Choose another name.",
                    ) from exc
                metadata = self._first_metadata(name, request, before)
                return self._put_first(name, metadata, before)
            table = self.find(name)
            if table is None:
                raise table_not_found(name)
            done = self._try(table, request, only_appends=only_appends)
            if done is not None:
                return done
        raise _conflict(name, f"others have committed {_ATTEMPTS} times meanwhile")

    def drop(self, name: str, *, purge: bool) -> None:
        """Drop a table.

        Without a purge all of its files stay, and its pointer records the location of the metadata,
        which `register` takes. A purge also ends earlier purges of the name that have not ended; then
        there may be no table any more.

        Args:
            name: Name of the table.
            purge: True also deletes all files in the folder of the table.

        Raises:
            NotFoundError: There is no such table.
            UnsupportedCommitError: The folder of the table is not its own, so it cannot be purged.
            CommitConflictError: Other clients change the table all the time.

        Cost:
            Two GETs and a conditional PUT; with a purge two LISTs of the folder, the deletions, two
            LISTs of each namespace, four GETs for each table of the lake, and a GET and a
            conditional PUT more.
        """
        for _ in range(_ATTEMPTS):
            stored = find_table(self._store, name)
            if stored is None:
                if purge and self._end_purges(name):
                    return
                raise table_not_found(name)
            _check_stays(name, stored)
            self._end_former_rename(name, stored)
            if purge:
                self._own_folder(name, stored.pointer.metadata_location)
            after = stored.pointer.without_table(is_purged=purge)
            try:
                put_pointer(self._store, name, after, stored)
            except PreconditionFailedError:
                continue
            _log.info("dropped a table of the catalog table=%s purge=%s", name, purge)
            if purge:
                self._end_purges(name)
            return
        raise _conflict(name, f"others have committed {_ATTEMPTS} times meanwhile")

    def register(self, folder: str, body: bytes) -> PointerTable:
        """Give a name to a table whose metadata lies in the lake.

        Args:
            folder: Folder of the namespace.
            body: A RegisterTableRequest.

        Raises:
            AlreadyExistsError: There is a table or a dataset of this name; or the table has a name.
            InvalidInputError: The request, or the metadata, cannot be used; or the metadata is not in
                the lake, or that of a dataset.
            NotFoundError: There is no such metadata file.

        Cost:
            Four GETs, and a conditional PUT; a LIST of each namespace, and a GET for each table.
        """
        request = _parse(_Registration, body, {})
        name = folder + check_dataset_name(request.name)
        if request.overwrite:
            raise UnsupportedCommitError(
                f"The request replaces the table {name!r} by another one.",
                hint="Drop it first: without purge its files stay.",
            )
        before = self._check_free(name, is_registered=True)
        location = request.metadata_location
        metadata = self._read_metadata(location)
        if ROOT in metadata.properties:
            raise InvalidInputError(
                f"{location} is the metadata of a dataset, which the catalog shows by its own name.",
                hint="Use the table of the dataset.",
            )
        written = f"{metadata.location}/{ICEBERG_FOLDER}/x"  # commits write there
        if _folder_of(self._key(written)) != _folder_of(self._key(location)):
            raise InvalidInputError(
                f"{location} is the metadata of a table at {shown(metadata.location)}, whose metadata "
                "commits would write to another folder.",
                hint=f"Register metadata that lies in {shown(f'{metadata.location}/{ICEBERG_FOLDER}')}.",
            )
        self._check_unnamed(location)
        pointer = Pointer(
            metadata_location=location, dropped=() if before is None else before.pointer.dropped
        )
        self._put(name, pointer, before)
        return PointerTable(name=name, metadata=metadata, location=location, pointer=None)

    def rename(self, old: str, new: str) -> None:
        """Give a table another name; its files stay where they are.

        A rename that was interrupted is ended by the same rename; until then the table has no name
        that can be used, and nothing is lost.

        Raises:
            NotFoundError: There is no such table.
            AlreadyExistsError: There is a table or a dataset of the new name.
            CommitConflictError: Other clients change the table.
            CommitUnknownError: The store stopped answering: repeat the rename.

        Cost:
            Four GETs, and three conditional PUTs.
        """
        stored = find_table(self._store, old)
        if stored is None:
            raise table_not_found(old)
        pointer = stored.pointer
        if pointer.renaming_to != new:
            _check_stays(old, stored)
            self._check_free(new, is_registered=True)
            self._end_former_rename(old, stored)
            marked = msgspec.structs.replace(pointer, renaming_to=new)
            stored = self._put(old, marked, stored)
        self._point_new_name(stored, old, new)
        self._put(old, stored.pointer.without_table(renamed_to=new), stored)
        _log.info("renamed a table of the catalog table=%s to=%s", old, new)

    def _point_new_name(self, stored: StoredPointer, old: str, new: str) -> None:
        """Create the new pointer of a rename; take the mark back if the name is taken."""
        location = stored.pointer.metadata_location
        there = find_pointer(self._store, new)
        if there is not None and _folder_of(there.pointer.metadata_location) == _folder_of(
            location
        ):
            return  # by this rename, which was interrupted; others may have committed since
        try:
            before = self._check_free(new, is_registered=True)
            dropped = () if before is None else before.pointer.dropped
            pointer = Pointer(metadata_location=location, dropped=dropped, renamed_from=old)
            self._put(new, pointer, before)
        except (AlreadyExistsError, CommitConflictError):
            self._put(old, msgspec.structs.replace(stored.pointer, renaming_to=""), stored)
            raise

    def _end_former_rename(self, name: str, stored: StoredPointer) -> None:
        """End a rename that was interrupted after it gave a table its name.

        Else a repetition of that rename would bring back a table that has lost its new name since.
        """
        former = stored.pointer.renamed_from
        if not former:
            return
        there = find_pointer(self._store, former)
        if (
            there is not None
            and there.pointer.renaming_to == name
            and _folder_of(there.pointer.metadata_location)
            == _folder_of(stored.pointer.metadata_location)
        ):
            self._put(former, there.pointer.without_table(renamed_to=name), there)

    # Metadata files

    def _read(self, name: str, stored: StoredPointer) -> PointerTable:
        location = stored.pointer.metadata_location
        metadata = self._read_metadata(location)
        return PointerTable(name=name, metadata=metadata, location=location, pointer=stored)

    def _read_metadata(self, location: str) -> TableMetadata:
        key = self._key(location)
        if not ICEBERG_FILE.fullmatch(key) or key.endswith(".gz"):
            raise InvalidInputError(
                f"{location} is not the name of a metadata file.",
                hint="Give a file such as …/metadata/00003-….metadata.json.",
            )
        try:
            size_bytes = self._store.size(key)
            if size_bytes > MAX_METADATA_BYTES:
                raise InvalidInputError(
                    f"{location} has {size_bytes:,} bytes.",
                    hint=f"Metadata may have {MAX_METADATA_BYTES:,}: expire old snapshots.",
                )
            data = self._store.get(key).data
        except ObjectNotFoundError as exc:
            raise NotFoundError(
                f"The metadata file {location} does not exist.",
                hint="Restore it, or drop the table, and register an older file.",
            ) from exc
        try:
            from_json(data, dict[str, Any])
            return TableMetadataUtil.parse_raw(data.decode())
        except (*UNREADABLE, pydantic.ValidationError, ValidationError, ValueError) as exc:
            raise CorruptMetadataError(
                f"{location} cannot be read: {_first_line(exc)}",
                hint="Restore it, or drop the table, and register an older file.",
            ) from exc

    def _write_metadata(self, metadata: TableMetadata, number: int) -> str:
        content = metadata.model_dump_json(exclude_none=True).encode()
        if len(content) > MAX_METADATA_BYTES:
            raise InvalidInputError(
                f"The metadata of the table would need {len(content):,} bytes.",
                hint=f"It may have {MAX_METADATA_BYTES:,}: expire old snapshots.",
            )
        folder = plain_location(metadata.location)
        location = f"{folder}/{ICEBERG_FOLDER}/{number:05d}-{uuid.uuid4()}.metadata.json"
        self._store.put(self._key(location), content)
        return location

    def _key(self, location: str) -> str:
        """Return the key of a location.

        Raises:
            InvalidInputError: It is not in the lake.
        """
        prefix = f"{self._root}/"
        plain = plain_location(location)
        key = plain.removeprefix(prefix) if plain.startswith(prefix) else None
        key = key_at(self._store, plain) if key is None else key
        if key is None:
            raise InvalidInputError(
                f"{shown(location)} is not in the lake, {self._root}.",
                hint="The catalog reads and writes metadata in the lake only.",
            )
        return key

    # Pointers

    def _check_free(self, name: str, *, is_registered: bool = False) -> StoredPointer | None:
        """Return the pointer of a name that no table has; None if there is none.

        Raises:
            AlreadyExistsError: A table or a dataset has the name.
            InvalidInputError: The folder of this name is a namespace.
        """
        stored = find_pointer(self._store, name)
        if (stored is not None and stored.pointer.metadata_location) or self.is_dataset(name):
            raise table_exists(name)
        if not is_registered and is_namespace(self._store, name):
            raise InvalidInputError(
                f"{name!r} is a namespace, and its folder cannot be that of a table.",
                hint="Choose another name.",
            )
        return stored

    def _check_namespace(self, name: str) -> None:
        """Check that the namespace of a table still exists, when a staged table is created."""
        folder, _, _ = name.rpartition("/")
        if folder and not is_namespace(self._store, folder):
            raise NotFoundError(
                f"Namespace does not exist: {folder}.", hint="Create the namespace first."
            )

    def is_dataset(self, name: str) -> bool:
        """Return whether a dataset has the name, as one that was adopted from a table.

        Cost:
            A HEAD; two if none has.
        """
        for format_ in HeadFormat:
            try:
                self._store.size(format_.key(name))
            except ObjectNotFoundError:
                continue
            return True
        return False

    def _new_location(self, name: str, before: StoredPointer | None) -> str:
        """Return the location of a new table: a folder that is empty, and was never another's."""
        is_empty = before is None and next(iter(self._store.list(name)), None) is None
        unique = "" if is_empty else f"-{uuid.uuid4().hex[:12]}"
        return f"{self._root}/{name}{unique}"

    def _end_purges(self, name: str) -> bool:
        """Delete the files of tables that a name had, and that were dropped with a purge.

        Returns:
            Whether there were any.
        """
        stored = find_pointer(self._store, name)
        purged = [] if stored is None else [one for one in stored.pointer.dropped if one.is_purged]
        for table in purged:
            self._delete_files(table.metadata_location)
        for _ in range(_ATTEMPTS if purged else 0):
            stored = find_pointer(self._store, name)
            assert stored is not None  # a pointer is never deleted
            others = tuple(one for one in stored.pointer.dropped if one not in purged)
            try:
                after = msgspec.structs.replace(stored.pointer, dropped=others)
                put_pointer(self._store, name, after, stored)
            except PreconditionFailedError:
                continue
            break
        return bool(purged)

    def _delete_files(self, location: str) -> None:
        """Delete the files of a table that has no name any more, as far as they are its own.

        Args:
            location: Location of its last metadata.
        """
        key = self._key(location)
        folder = key.rpartition(f"/{ICEBERG_FOLDER}/")[0]
        # Listed before the check, so a dataset of this name that is created after it loses nothing;
        # and without what a load stages for a dataset that it is about to create.
        keys = [
            info.key
            for info in self._store.list(folder)
            if info.key.startswith(f"{folder}/{ICEBERG_FOLDER}/")
            or not is_own_key(f"t{info.key.removeprefix(folder)}")
        ]
        try:
            self._own_folder("", location)
        except UnsupportedCommitError as exc:
            _log.warning("the files of a purged table stay folder=%s: %s", folder, exc.message)
            return
        # The metadata first: nobody can register a table whose files are half deleted.
        self._store.delete([key])
        self._store.delete(keys)

    def _own_folder(self, name: str, location: str) -> str:
        """Return the folder of a table that can be deleted as a whole.

        Args:
            name: Name of the table; empty if it has none any more.
            location: Location of its metadata.

        Raises:
            UnsupportedCommitError: Other things may lie in it.
        """
        key = self._key(location)
        folder, _, last = key.rpartition(f"/{ICEBERG_FOLDER}/")
        namespace, _, own = folder.rpartition("/")
        is_own = own != "" and "/" not in last and "/" not in namespace
        if is_own and namespace:
            is_own = was_namespace(self._store, namespace)  # a renamed table stays in it
        if not is_own or is_namespace(self._store, folder) or self.is_dataset(folder):
            raise UnsupportedCommitError(
                f"The files of table {name!r} cannot be deleted: {shown(folder)} is not a folder that "
                "the catalog has made for it.",
                hint="Drop it without purge, which leaves the files.",
            )
        for other, known in self._locations():
            if other != name and self._key(known).startswith(f"{folder}/"):
                raise UnsupportedCommitError(
                    f"The files of table {name!r} cannot be deleted: those of table {other!r} are in "
                    "the same folder.",
                    hint="Drop it without purge, which leaves the files.",
                )
        return folder

    def _locations(self) -> Iterator[tuple[str, str]]:
        """Yield the names of all tables of the lake, and the locations of their metadata.

        Cost:
            A LIST of each namespace, and two GETs for each table.
        """
        for namespace in ("", *(f"{name}/" for name in list_namespaces(self._store))):
            for name in list_pointers(self._store, namespace):
                stored = find_table(self._store, namespace + name)
                if stored is not None:
                    yield namespace + name, stored.pointer.metadata_location

    def _check_unnamed(self, location: str) -> None:
        """Check that no table of the lake has its metadata in the folder of a metadata file."""
        folder = _folder_of(location)
        for name, known in self._locations():
            if _folder_of(known) == folder:
                raise AlreadyExistsError(
                    f"Table already exists: {dotted(name)} is the table of {location}.",
                    hint="Use it by that name, or rename it: two names would lose commits.",
                )

    def _put_first(
        self, name: str, metadata: TableMetadata, before: StoredPointer | None
    ) -> PointerTable:
        """Write the first metadata file and the pointer of a table."""
        location = self._write_metadata(metadata, 0)
        dropped = () if before is None else before.pointer.dropped
        try:
            stored = self._put(name, Pointer(metadata_location=location, dropped=dropped), before)
        except CommitUnknownError:
            raise
        except LakebedError as exc:
            delete_or_leave(self._store, [self._key(location)])
            if isinstance(exc, CommitConflictError):
                raise table_exists(name) from exc
            raise
        if self.is_dataset(name):  # created at the same time
            self._put(name, Pointer(dropped=dropped), stored)
            delete_or_leave(self._store, [self._key(location)])
            raise table_exists(name)
        _log.info("created a table of the catalog table=%s", name)
        return PointerTable(name=name, metadata=metadata, location=location, pointer=stored)

    def _put(self, name: str, pointer: Pointer, before: StoredPointer | None) -> StoredPointer:
        """Replace a pointer, and return it as it is stored.

        Raises:
            CommitConflictError: Another client has changed it.
            CommitUnknownError: The store did not report whether it was replaced.
        """
        try:
            return put_pointer(self._store, name, pointer, before)
        except (ObjectExistsError, PreconditionFailedError) as exc:
            raise _conflict(name, "another client has changed it meanwhile") from exc
        except StorageError as exc:
            if not exc.retryable:
                raise
            return self._after_lost_answer(name, pointer, before, exc)

    def _after_lost_answer(
        self,
        name: str,
        pointer: Pointer,
        before: StoredPointer | None,
        error: StorageError,
    ) -> StoredPointer:
        """Find out whether a pointer was replaced whose put had no answer."""
        try:
            stored = find_pointer(self._store, name)
            if stored is not None and stored.pointer == pointer:
                return stored
            if stored is not None and (before is None or stored.etag != before.etag):
                logged = self._logged(stored)
                if pointer.metadata_location in logged:
                    return StoredPointer(pointer=pointer, etag="")
                raise _conflict(name, "another client has changed it meanwhile") from error
        except StorageError:
            _log.warning("the pointer of a table cannot be read table=%s", name)
        raise CommitUnknownError(
            f"The store did not report whether the change of table {dotted(name)} was made: "
            f"{error.message}",
            hint="Load the table, and look whether it shows the change.",
            commit_id=pointer.metadata_location,
        ) from error

    def _logged(self, stored: StoredPointer) -> set[str]:
        if not stored.pointer.metadata_location:
            return {one.metadata_location for one in stored.pointer.dropped}
        metadata = self._read_metadata(stored.pointer.metadata_location)
        return {entry.metadata_file for entry in metadata.metadata_log}

    # Commits

    def _first_metadata(
        self, name: str, request: CommitTableRequest, before: StoredPointer | None
    ) -> TableMetadata:
        """Return the metadata of a table that a commit creates."""
        location = next(
            (one.location for one in request.updates if isinstance(one, SetLocationUpdate)), None
        )
        if location is None or not self._is_staged_location(name, location, before):
            location = self._new_location(name, before)
        others = (one for one in request.updates if not isinstance(one, SetLocationUpdate))
        updates: list[TableUpdate] = [*others, SetLocationUpdate(location=location)]
        base = MetastoreCatalog._empty_table_metadata()
        return _translating(apply_updates, base, updates, None)

    def _is_staged_location(self, name: str, location: str, before: StoredPointer | None) -> bool:
        """Return whether a location may be one that `create` has returned for a staged table.

        The client has written files there, so that it must stay. Such a folder has manifests and data
        files only: others are of a table of another format, and a purge would delete them.
        """
        plain = plain_location(location)
        begin = f"{self._root}/{name}"
        tail = plain.removeprefix(begin)
        is_unique = tail.startswith("-") and len(tail) == 13 and tail[1:].isalnum()
        if not plain.startswith(begin) or not (is_unique or (tail == "" and before is None)):
            return False
        folder = self._key(plain)
        inner = (info.key.removeprefix(f"{folder}/") for info in self._store.list(folder))
        return all(
            key.startswith(("data/", f"{ICEBERG_FOLDER}/")) and not key.endswith(".metadata.json")
            for key in inner
        )

    def _try(
        self, table: PointerTable, request: CommitTableRequest, *, only_appends: bool
    ) -> PointerTable | None:
        """Commit to a table once; None if another client was faster."""
        for requirement in request.requirements:
            try:
                requirement.validate(table.metadata)
            except CommitFailedException as exc:
                raise _requirement_error(requirement.type, str(exc)) from exc
        updates = [self._checked(table, update) for update in request.updates]
        _check_new_snapshots(table, updates)
        if only_appends:
            _check_follows(table, updates)
        metadata = _translating(apply_updates, table.metadata, updates, table.location)
        if metadata == table.metadata:
            return table
        assert table.pointer is not None  # it was read
        folder = self._key(f"{metadata.location}/x").rpartition("/")[0]
        if folder != table.name and self.is_dataset(folder):
            raise UnsupportedCommitError(
                f"The files of table {dotted(table.name)} were adopted as the dataset "
                f"{dotted(folder)}.",
                hint=f"Write to {dotted(folder)}, and drop {dotted(table.name)} without purge.",
            )
        location = self._write_metadata(metadata, _number(table.location) + 1)
        pointer = msgspec.structs.replace(table.pointer.pointer, metadata_location=location)
        try:
            stored = self._put(table.name, pointer, table.pointer)
        except CommitConflictError:
            delete_or_leave(self._store, [self._key(location)])
            return None
        except CommitUnknownError:
            raise
        except LakebedError:
            delete_or_leave(self._store, [self._key(location)])
            raise
        if self.is_dataset(table.name):
            raise CommitUnknownError(
                f"Table {dotted(table.name)} was adopted as a dataset while this commit was made.",
                hint="Load the table, and look whether it shows the change; else repeat it.",
                commit_id=location,
            )
        self._delete_old_metadata(table.metadata, metadata)
        return PointerTable(name=table.name, metadata=metadata, location=location, pointer=stored)

    def _checked(self, table: PointerTable, update: TableUpdate) -> TableUpdate:
        """Return an update; one that moves the table keeps it where it is."""
        if isinstance(update, SetLocationUpdate):
            return SetLocationUpdate(location=table.metadata.location)
        return update

    def _delete_old_metadata(self, before: TableMetadata, after: TableMetadata) -> None:
        """Delete metadata files that a commit has removed from the log, if the table asks for it."""
        if after.properties.get(_DELETES_OLD_METADATA, "").lower() != "true":
            return
        kept = {entry.metadata_file for entry in after.metadata_log}
        folder = f"{plain_location(after.location)}/{ICEBERG_FOLDER}/"
        keys = [
            self._key(entry.metadata_file)
            for entry in before.metadata_log
            if entry.metadata_file not in kept and entry.metadata_file.startswith(folder)
        ]
        delete_or_leave(self._store, [key for key in keys if ICEBERG_FILE.fullmatch(key)])


def dotted(name: str) -> str:
    """Return the name of a table as Iceberg writes it.

    >>> dotted("sales/orders"), dotted("orders")
    ('sales.orders', 'orders')
    """
    return name.replace("/", ".")


def table_not_found(name: str) -> NotFoundError:
    """Return the error for a table that does not exist."""
    return NotFoundError(f"Table does not exist: {dotted(name)}.", hint="Create it first.")


def table_exists(name: str) -> AlreadyExistsError:
    """Return the error for a name that a table or a dataset has."""
    return AlreadyExistsError(f"Table already exists: {dotted(name)}.", hint="Choose another name.")


def _check_stays(name: str, stored: StoredPointer) -> None:
    if stored.pointer.renaming_to:
        raise _conflict(
            name, f"a rename to {dotted(stored.pointer.renaming_to)} has not ended: repeat it"
        )


def _check_new_snapshots(table: PointerTable, updates: Iterable[TableUpdate]) -> None:
    """Check that new snapshots follow those of the table, as other clients expect when they read it.

    Raises:
        CommitConflictError: A snapshot has a sequence number that another commit has taken.
        InvalidInputError: A sequence number or a time is too large, or a time too small.
    """
    changed_ms = table.metadata.last_updated_ms
    last = None  # snapshots of version 1 have no sequence numbers
    if not isinstance(table.metadata, TableMetadataV1):
        last = table.metadata.last_sequence_number
    latest_ms = time.time_ns() // 1_000_000 + _MOST_AHEAD_MS
    for update in updates:
        if not isinstance(update, AddSnapshotUpdate):
            continue
        snapshot = update.snapshot
        if not changed_ms - _MOST_BEHIND_MS <= snapshot.timestamp_ms <= max(latest_ms, changed_ms):
            raise _malformed(
                f"the snapshot {snapshot.snapshot_id} has the time {snapshot.timestamp_ms}, and the "
                f"table was changed at {changed_ms}."
            )
        changed_ms = max(changed_ms, snapshot.timestamp_ms)
        if last is None:
            continue
        number = snapshot.sequence_number or 0
        if number <= last and number > 0 and snapshot.parent_snapshot_id is None:
            continue  # of a table that is replaced as a whole, as Iceberg's own catalogs allow
        if number <= last:
            raise _requirement_error(
                "sequence-number", f"the table has reached {last}, and the snapshot has {number}"
            )
        if number > last + 1:
            raise _malformed(f"the sequence number {number} does not follow {last}.")
        last = number


def _check_follows(table: PointerTable, updates: Iterable[TableUpdate]) -> None:
    """Check that `main` gets new snapshots that follow its newest one, so that no rows are taken away.

    Raises:
        CommitConflictError: A snapshot follows another one.
        UnsupportedCommitError: `main` gets an older snapshot, or another retention.
    """
    main = table.metadata.refs.get("main")
    current = None if main is None else main.snapshot_id
    for update in updates:
        if isinstance(update, AddSnapshotUpdate):
            if update.snapshot.parent_snapshot_id != current:
                raise _requirement_error(
                    "assert-ref-snapshot-id",
                    f"main is at {current}, and the new snapshot follows "
                    f"{update.snapshot.parent_snapshot_id}",
                )
            current = update.snapshot.snapshot_id
        elif isinstance(update, SetSnapshotRefUpdate):
            asked = (
                update.max_ref_age_ms,
                update.max_snapshot_age_ms,
                update.min_snapshots_to_keep,
            )
            kept: tuple[int | None, ...] = (None, None, None)
            if main is not None:
                kept = (main.max_ref_age_ms, main.max_snapshot_age_ms, main.min_snapshots_to_keep)
            if (
                update.snapshot_id != current
                or update.type != SnapshotRefType.BRANCH
                or asked not in ((None, None, None), kept)
            ):
                raise UnsupportedCommitError(
                    "The server allows only appends, and the request sets main to something else than "
                    "its new snapshot.",
                    hint="Serve with --allow-writes all.",
                )


def _check_appends(updates: Iterable[TableUpdate]) -> None:
    """Check that updates only add snapshots that append, to the branch `main`."""
    for update in updates:
        if not isinstance(update, _GROWING):
            raise UnsupportedCommitError(
                f"The server allows only appends, and the request has the update {update.action!r}.",
                hint="Serve with --allow-writes all.",
            )
        if isinstance(update, AddSnapshotUpdate):
            summary = update.snapshot.summary
            operation = None if summary is None else summary.operation
            if operation is None or operation.value != "append":
                raise UnsupportedCommitError(
                    "The server allows only appends, and the request has a snapshot of another kind.",
                    hint="Serve with --allow-writes all.",
                )
        elif update.ref_name != "main":
            raise UnsupportedCommitError(
                f"The server allows only appends, and the request sets the reference "
                f"{shown(update.ref_name)}.",
                hint="Serve with --allow-writes all.",
            )


class _Registration(RegisterTableRequest):
    """A RegisterTableRequest; that of pyiceberg 0.11 lacks the member."""

    overwrite: bool = False


def _parse(
    kind: type[_Model], body: bytes, defaults: dict[str, Any], own: dict[str, Any] | None = None
) -> _Model:
    """Return a request.

    Args:
        kind: Model of the request.
        body: The request.
        defaults: Members that clients may leave out, and the model needs.
        own: Members that replace those of the client.

    Raises:
        InvalidInputError: It is malformed.
    """
    try:
        # msgspec refuses documents that are nested too deeply, which pydantic would follow.
        document = from_json(body, dict[str, Any])
        _check_numbers(document)
        return kind.model_validate(defaults | document | (own or {}))
    except (*UNREADABLE, pydantic.ValidationError, ValidationError, ValueError, TypeError) as exc:
        raise _malformed(f"it cannot be read: {_first_line(exc)}") from exc


def _check_numbers(value: Any) -> None:
    """Check that all integers of a document have 64 bits, as other clients read them.

    Raises:
        ValueError: One is larger.
    """
    if isinstance(value, dict):
        for member in value.values():
            _check_numbers(member)
    elif isinstance(value, list):
        for element in value:
            _check_numbers(element)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        msg = f"the number {shown(value)} has more than 64 bits"
        raise ValueError(msg)


def _translating(make: Any, *arguments: Any) -> TableMetadata:
    """Return the metadata that a function of pyiceberg makes.

    Raises:
        InvalidInputError: The request has contradictions.
    """
    try:
        metadata: TableMetadata = make(*arguments)
    except (pydantic.ValidationError, ValidationError, ValueError, TypeError, LookupError) as exc:
        raise _malformed(_first_line(exc)) from exc
    if metadata.last_column_id >= 1 << 31 or (metadata.last_partition_id or 0) >= 1 << 31:
        raise _malformed("the ids of its fields have more than 32 bits")
    if metadata.format_version > MAX_FORMAT_VERSION:
        raise UnsupportedCommitError(
            f"The request makes a table of format version {metadata.format_version}.",
            hint=f"The catalog keeps tables up to version {MAX_FORMAT_VERSION}: pyiceberg writes no "
            "metadata of newer ones.",
        )
    return metadata


def _new_metadata(request: CreateTableRequest, location: str) -> TableMetadata:
    return new_table_metadata(
        schema=request.table_schema,
        partition_spec=request.partition_spec or UNPARTITIONED_PARTITION_SPEC,
        sort_order=request.write_order or UNSORTED_SORT_ORDER,
        location=location,
        properties=dict(request.properties),
    )


def _folder_of(location: str) -> str:
    """Return the folder of a metadata file, which is that of one table only; empty for none."""
    return plain_location(location).rpartition("/")[0]


def _number(location: str) -> int:
    begin = location.rpartition("/")[2].partition("-")[0].removeprefix("v").partition(".")[0]
    return int(begin) if begin.isascii() and begin.isdigit() and len(begin) < 10 else 0


def _first_line(error: Exception) -> str:
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    return str(error).partition("\n")[0] or type(error).__name__


# Words of Iceberg, which clients and its compatibility kit compare.
_REQUIREMENTS = {
    "assert-table-uuid": "UUID does not match",
    "assert-current-schema-id": "current schema changed",
    "assert-last-assigned-field-id": "last assigned field id changed",
    "assert-last-assigned-partition-id": "last assigned partition id changed",
    "assert-default-spec-id": "default partition spec changed",
    "assert-default-sort-order-id": "default sort order changed",
    "assert-ref-snapshot-id": "branch or tag has changed",
    "sequence-number": "another snapshot has this sequence number",
}


def _requirement_error(kind: str, why: str) -> CommitConflictError:
    what = _REQUIREMENTS.get(kind, kind)
    return CommitConflictError(
        f"Requirement failed: {what}: {why}.",
        hint="Load the table again, and repeat the change if it is still right.",
        expected=0,
        actual=0,
    )


def _malformed(why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The request cannot be carried out: {why}",
        hint="Send a request as Iceberg's REST protocol has it.",
    )


def _conflict(name: str, why: str) -> CommitConflictError:
    return CommitConflictError(
        f"Table {dotted(name)} cannot be changed: {why}.",
        hint="Load the table again, and repeat the change if it is still right.",
        expected=0,
        actual=0,
    )


__all__ = ["MAX_TABLE_BYTES", "PointerTable", "PointerTables", "dotted"]
