"""The dataset that an ingest writes to, as it is declared."""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.dataset import Dataset
from lakebed.errors import DatasetExistsError, DatasetNotFoundError, InvalidInputError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evolution import has_partitions_of
from lakebed.model.locations import location_and_name, refuse_credentials
from lakebed.model.names import check_dataset_name
from lakebed.repository import Repository, open_repository
from lakebed.state.creation import check_place
from lakebed.store import Store, open_store
from lakebed.work.ingest.quarantine import Quarantine, checked_run


class DeclaredDataset:
    """The declaration of a dataset that rows are read into: its place, and how to create it."""

    __slots__ = ()

    name: str
    into: str
    create: DatasetDescriptor | None
    storage_options: Mapping[str, str]

    def _check_names(self) -> None:
        """Check the names of the run, the repository and the dataset.

        Raises:
            InvalidInputError: One of them cannot be used.
        """
        refuse_credentials(self.into)
        checked_run(self.name)
        check_dataset_name(self._address()[1])
        self._quarantine()

    def _address(self) -> tuple[str, str]:
        return location_and_name(self.into)

    @property
    def quarantine_name(self) -> str:
        """Name of the dataset for rejects."""
        return self._quarantine().name

    def _quarantine(self) -> Quarantine:
        return Quarantine.of(self._address()[1], None, is_by_file=True)

    def _repository(self) -> Repository:
        return open_repository(self._address()[0], storage_options=self.storage_options)

    def dataset(self) -> Dataset:
        """Open the dataset.

        Raises:
            DatasetNotFoundError: It does not exist.
        """
        return self._repository().open(self._address()[1])

    def _store(self) -> Store:
        return open_store(self._address()[0], storage_options=self.storage_options)

    def _find(self) -> Dataset | None:
        """Return the dataset, if it exists, after a check that it accepts the rows."""
        repository, name = self._repository(), self._address()[1]
        try:
            dataset = repository.open(name)
        except DatasetNotFoundError as missing:
            if self.create is None:
                missing.hint += (
                    " To create it, give its schema, with `create` or --schema; `lakebed schema "
                    "infer` finds one."
                )
                raise
            check_place(repository.store, name, missing)
            self._check_descriptor(self.create)
            return None
        descriptor = dataset.descriptor
        if self.create is not None and not has_partitions_of(descriptor, self.create):
            raise InvalidInputError(
                f"Dataset {name!r} exists with the partitions {descriptor.partition_by}, "
                f"but {self.create.partition_by} are declared.",
                hint="Declare its present partitions, or leave create out.",
            )
        self._check_descriptor(descriptor)
        self._quarantine().find(self._store())
        return dataset

    def _created(self) -> Dataset:
        """Create the dataset, or return the one that another run has created meanwhile."""
        try:
            return self._repository().create(self._address()[1], self.create)
        except DatasetExistsError:
            dataset = self._find()  # that run may have added fields to it
            if dataset is None:
                raise
            return dataset

    def _check_descriptor(self, descriptor: DatasetDescriptor) -> None:
        """Check that a dataset of a descriptor accepts the rows.

        Raises:
            LakebedError: It does not.
        """
