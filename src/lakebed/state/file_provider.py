"""Descriptors in separate files: a metadata provider on any store."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from lakebed.errors import (
    ConflictError,
    DatasetExistsError,
    DatasetNotFoundError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.names import check_dataset_name
from lakebed.state.metadata_provider import MetadataProvider, not_kept, read_kept
from lakebed.store import open_store
from lakebed.store.base import StoredObject

SUFFIX = ".descriptor.json"
_TRIES = 10  # attempts to save while others save the same descriptor


class FileMetadataProvider(MetadataProvider):
    """A provider that keeps each descriptor in a file `<name>.descriptor.json`.

    The file can be read, edited and kept under version control; its schema is an Avro schema.
    `create` and `update` are conditional puts: if two callers create a descriptor, one wins, and if
    two update it at the same moment, one is refused. Of consecutive updates the last one stays,
    whichever descriptor was loaded before.

    >>> provider = FileMetadataProvider("memory://doctest-file-provider")
    >>> fields = [{"name": "n", "type": "long"}]
    >>> descriptor = DatasetDescriptor(schema={"type": "record", "name": "flight", "fields": fields})
    >>> provider.create("flights", descriptor)
    >>> provider.list(), provider.load("flights") == descriptor
    (['flights'], True)
    """

    def __init__(
        self, url: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None
    ) -> None:
        """Open a directory or bucket for descriptors.

        Args:
            url: A directory or a prefix of a bucket, as for `open_repository`; it may be that of the
                repository itself.
            storage_options: Options of the store, as for `open_repository`.
        """
        self._store = open_store(url, storage_options=storage_options)

    def __repr__(self) -> str:
        return f"<FileMetadataProvider {self._store.uri}>"

    def save(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Store the descriptor of a dataset, replacing any previous one.

        Raises:
            ConflictError: Other writers keep changing it.
        """
        for _ in range(_TRIES):
            try:
                self.create(name, descriptor)
            except DatasetExistsError:
                try:
                    self.update(name, descriptor)
                except (ConflictError, DatasetNotFoundError):
                    continue  # others have changed it, or deleted it
            return
        raise _changed(name)

    def create(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Store the descriptor of a dataset that has none yet.

        Raises:
            DatasetExistsError: A descriptor exists, and stays.
        """
        try:
            self._store.create(_key(name), _encode(descriptor))
        except ObjectExistsError as exc:
            raise DatasetExistsError(
                f"{self._store.uri} already has a descriptor of {name!r}.",
                hint="Update it instead.",
            ) from exc

    def update(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Replace the descriptor of a dataset.

        Raises:
            DatasetNotFoundError: No descriptor has this name.
            ConflictError: Another writer has just changed it; that change stays.
        """
        stored = self._get(name)
        try:
            self._store.replace(_key(name), _encode(descriptor), if_match=stored.etag)
        except PreconditionFailedError as exc:
            raise _changed(name) from exc

    def load(self, name: str) -> DatasetDescriptor:
        """Return the descriptor of a dataset.

        Raises:
            DatasetNotFoundError: No descriptor has this name.
            CorruptMetadataError: The file does not describe a dataset.
        """
        return read_kept(
            bytes(self._get(name).data),
            f"{_key(name)!r} in {self._store.uri}",
            "Repair the file; it has the form that `save` writes.",
        )

    def delete(self, name: str) -> bool:
        """Delete the descriptor of a dataset; return False if there was none."""
        for _ in range(_TRIES):
            try:
                etag = self._store.get(_key(name)).etag
            except ObjectNotFoundError:
                return False
            if self._store.delete_if_match(_key(name), etag=etag):
                return True
        raise _changed(name)

    def list(self) -> list[str]:
        """Return the names that have a descriptor, sorted."""
        keys = (info.key for info in self._store.list(recursive=False))
        return sorted(key.removesuffix(SUFFIX) for key in keys if key.endswith(SUFFIX))

    def _get(self, name: str) -> StoredObject:
        try:
            return self._store.get(_key(name))
        except ObjectNotFoundError as exc:
            raise not_kept(name, self._store.uri) from exc


def _key(name: str) -> str:
    return f"{check_dataset_name(name)}{SUFFIX}"


def _encode(descriptor: DatasetDescriptor) -> bytes:
    # Indented for people, who may keep the file under version control.
    return msgspec.json.format(msgspec.json.encode(descriptor.to_document()), indent=2) + b"\n"


def _changed(name: str) -> ConflictError:
    return ConflictError(
        f"Another writer is changing the descriptor of {name!r}.", hint="Load it, and try again."
    )
