"""Where descriptors are kept: by default in the heads, and in a place of the user's besides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from lakebed.errors import (
    CorruptMetadataError,
    DatasetExistsError,
    DatasetNotFoundError,
    FormatError,
    InvalidInputError,
    MetadataProviderError,
    SchemaMismatchError,
)
from lakebed.model.descriptor import DatasetDescriptor


class MetadataProvider(ABC):
    """Keeps the descriptors of datasets by name, such as in a catalog of the user's own.

    Give one to `open_repository`. It is told of every dataset that is created, updated or
    dropped, after the head has changed, and where others write it, `Repository.follow_metadata`
    makes the datasets what it says. What a reader or writer of rows goes by is always the head,
    which tells schema and files of one moment; so a provider is the truth of what datasets shall
    be, and the head of what they are. It keeps what it is given; the rules of evolution are the
    dataset's.

    `Repository.metadata` is one too: by default that of the heads themselves. Others are
    `FileMetadataProvider` and `HiveMetadataProvider`; one of your own has `save`, `load` and
    `delete`, and `list` if it can say which datasets it keeps.

    >>> class Catalog(MetadataProvider):
    ...     def __init__(self):
    ...         self.descriptors = {}
    ...     def save(self, name, descriptor):
    ...         self.descriptors[name] = descriptor
    ...     def load(self, name):
    ...         if name not in self.descriptors:
    ...             raise DatasetNotFoundError(f"The catalog has no {name!r}.", hint="Save it.")
    ...         return self.descriptors[name]
    ...     def delete(self, name):
    ...         return self.descriptors.pop(name, None) is not None
    ...     def list(self):
    ...         return sorted(self.descriptors)
    >>> from lakebed import open_repository
    >>> Catalog().exists("flights")
    False
    >>> repository = open_repository("memory://doctest-provider", metadata=Catalog())
    >>> fields = [{"name": "n", "type": "long"}]
    >>> descriptor = DatasetDescriptor(schema={"type": "record", "name": "flight", "fields": fields})
    >>> flights = repository.create("flights", descriptor)
    >>> repository.metadata.list()
    ['flights']
    """

    @abstractmethod
    def save(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Keep the descriptor of a dataset, in place of the one that was kept before."""

    @abstractmethod
    def load(self, name: str) -> DatasetDescriptor:
        """Return the descriptor of a dataset.

        Raises:
            DatasetNotFoundError: None is kept for this name.
        """

    @abstractmethod
    def delete(self, name: str) -> bool:
        """Forget the descriptor of a dataset; False if none was kept."""

    def list(self) -> list[str]:
        """Return the names for which a descriptor is kept, sorted.

        Raises:
            InvalidInputError: The provider has no `list` of its own.
        """
        raise InvalidInputError(
            f"{type(self).__name__} does not list what it keeps: it has no `list` of its own.",
            hint="Name the datasets, as in follow_metadata(['flights']), or give the class a `list`.",
        )

    def exists(self, name: str) -> bool:
        """Whether a descriptor is kept for this name."""
        try:
            self.load(name)
        except DatasetNotFoundError:
            return False
        return True

    def create(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Keep the descriptor of a dataset of which none is kept.

        Raises:
            DatasetExistsError: One is kept, and stays.
        """
        if self.exists(name):
            raise DatasetExistsError(
                f"The metadata provider has a dataset {name!r}.", hint="Update it instead."
            )
        self.save(name, descriptor)

    def update(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Keep another descriptor of a dataset of which one is kept.

        Raises:
            DatasetNotFoundError: None is kept.
        """
        if not self.exists(name):
            raise not_kept(name)
        self.save(name, descriptor)


def not_kept(name: str, where: str = "The metadata provider") -> DatasetNotFoundError:
    """Return the error for a name for which no descriptor is kept."""
    return DatasetNotFoundError(f"{where} has no dataset {name!r}.", hint="`list` names them.")


def read_kept(data: bytes | str, what: str, remedy: str) -> DatasetDescriptor:
    """Return a descriptor from the JSON of `DatasetDescriptor.to_document`, which anybody may write.

    Args:
        data: The JSON.
        what: Holds it, and how that describes; begins the message of an error.
        remedy: Against one.

    Raises:
        CorruptMetadataError: It describes no dataset.
    """
    try:
        return DatasetDescriptor.from_document(msgspec.json.decode(data, type=dict))
    except (
        msgspec.MsgspecError,
        UnicodeDecodeError,
        RecursionError,
        InvalidInputError,
        SchemaMismatchError,
        FormatError,
    ) as exc:
        raise CorruptMetadataError(f"{what} no dataset: {exc}.", hint=remedy) from exc


@contextmanager
def telling(name: str, what_happened: str, remedy: str) -> Iterator[None]:
    """Say what has already happened if a provider that is told of it fails.

    Raises:
        MetadataProviderError: The provider raised something.
    """
    try:
        yield
    except Exception as exc:
        raise MetadataProviderError(
            f"Dataset {name!r} was {what_happened}, but the metadata provider failed to note it: "
            f"{type(exc).__name__}: {exc}.",
            hint=remedy,
        ) from exc
