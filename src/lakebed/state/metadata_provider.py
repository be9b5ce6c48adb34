"""Stores of descriptors: the heads by default, and optionally a catalog of the user."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.common.decoding import UNREADABLE, from_json
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
    """A store of the descriptors of datasets by name, for example a catalog of your own.

    Give one to `open_repository`. It receives every dataset that is created, updated or dropped,
    after the head has changed. If others write to it, `Repository.trees.follow_metadata` changes the
    datasets accordingly. Readers and writers of rows always use the head, which holds schema and
    files of the same moment. So a provider defines what datasets should be, and the head what they
    are. It stores what it is given; the dataset applies the rules of evolution.

    `Repository.metadata` is a provider, too: by default the one that reads the heads. Others are
    `FileMetadataProvider` and `HiveMetadataProvider`. Your own implements `save`, `load` and
    `delete`, `list` if it can list its datasets, and `check` if it refuses some.

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

    def check(self, name: str, descriptor: DatasetDescriptor) -> None:  # noqa: B027 - optional
        """Raise an error if the provider cannot store this descriptor.

        It is called before the head is created or updated, so that a refused dataset leaves
        nothing. By default every descriptor is accepted.
        """

    @abstractmethod
    def save(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Store the descriptor of a dataset, and replace an earlier one."""

    @abstractmethod
    def load(self, name: str) -> DatasetDescriptor:
        """Return the descriptor of a dataset.

        Raises:
            DatasetNotFoundError: No descriptor is stored under this name.
        """

    @abstractmethod
    def delete(self, name: str) -> bool:
        """Delete the descriptor of a dataset; return False if none was stored."""

    def list(self) -> list[str]:
        """Return the names that have a descriptor, sorted.

        Raises:
            InvalidInputError: The provider does not implement `list`.
        """
        raise InvalidInputError(
            f"{type(self).__name__} cannot list its datasets: it does not implement `list`.",
            hint="Name the datasets, as in follow_metadata(['flights']), or implement `list`.",
        )

    def exists(self, name: str) -> bool:
        """Return whether a descriptor is stored under this name."""
        try:
            self.load(name)
        except DatasetNotFoundError:
            return False
        return True

    def create(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Store the descriptor of a dataset that has none yet.

        Raises:
            DatasetExistsError: A descriptor is stored already, and stays.
        """
        if self.exists(name):
            raise DatasetExistsError(
                f"The metadata provider has a dataset {name!r}.", hint="Update it instead."
            )
        self.save(name, descriptor)

    def update(self, name: str, descriptor: DatasetDescriptor) -> None:
        """Replace the descriptor of a dataset.

        Raises:
            DatasetNotFoundError: No descriptor is stored under this name.
        """
        if not self.exists(name):
            raise not_kept(name)
        self.save(name, descriptor)


def not_kept(name: str, where: str = "The metadata provider") -> DatasetNotFoundError:
    """Return the error for a name that has no descriptor."""
    return DatasetNotFoundError(f"{where} has no dataset {name!r}.", hint="`list` names them.")


def read_kept(data: bytes | str, source: str, remedy: str) -> DatasetDescriptor:
    """Return a descriptor from the JSON of `DatasetDescriptor.to_document`, which others may write.

    Args:
        data: The JSON.
        source: Description of the object that holds the JSON, for the message of an error.
        remedy: Hint of an error.

    Raises:
        CorruptMetadataError: The JSON does not describe a dataset.
    """
    try:
        return DatasetDescriptor.from_document(from_json(data, dict))
    except (*UNREADABLE, InvalidInputError, SchemaMismatchError, FormatError) as exc:
        raise CorruptMetadataError(
            f"{source} does not describe a dataset: {exc}.", hint=remedy
        ) from exc


@contextmanager
def reporting_provider_errors(name: str, what_happened: str, remedy: str) -> Iterator[None]:
    """Report a failure of the provider together with the change that has already happened.

    Raises:
        MetadataProviderError: The provider raised something.
    """
    try:
        yield
    except Exception as exc:
        raise MetadataProviderError(
            f"Dataset {name!r} was {what_happened}, but the metadata provider failed to record it: "
            f"{type(exc).__name__}: {exc}.",
            hint=remedy,
        ) from exc
