"""Access of SQL statements to a repository, which is a room above."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakebed.commit import Commit
from lakebed.dataset import Dataset
from lakebed.errors import DatasetNotFoundError, InvalidNameError
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SqlLake(Protocol):
    """A repository; its options of `create` are not repeated here."""

    @property
    def store(self) -> Store:
        """The store of the datasets."""

    def open(self, name: str) -> Dataset:
        """Return a dataset."""

    def list(self) -> list[str]:
        """Return the names of all datasets."""

    def exists(self, name: str) -> bool:
        """Return whether there is a dataset of this name."""

    @property
    def create(self) -> Callable[..., Dataset]:
        """Creates a dataset."""

    def drop(self, name: str, *, if_missing: Literal["error", "ignore"] = "error") -> bool:
        """Delete a dataset."""

    def _write_new(
        self, name: str, data: object, options: Mapping[str, Any], run: str | None
    ) -> Commit:
        """Create a dataset with its first rows."""

    def _on_dry_run(self) -> SqlLake:
        """Return the repository on a store that keeps all writes in this process."""


def open_table(lake: SqlLake, name: str) -> Dataset:
    """Return the dataset that a table of a query stands for.

    Raises:
        DatasetNotFoundError: There is none, as for a name that no dataset can have.
    """
    try:
        return lake.open(name)
    except InvalidNameError as exc:
        raise DatasetNotFoundError(exc.message, hint=exc.hint) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementOrder:
    """The repository, session and options of a statement.

    Attributes:
        lake: The repository.
        spark: The session that reads sources and writes; None for this process.
        tables: Arrow tables that a statement may name.
        run: Name of the run.
        may_write: Whether a statement may change datasets.
        is_dry_run: Whether nothing is written.
        must_purge: Whether DROP TABLE is refused without PURGE: in Spark it leaves the rows of a
            table that lies elsewhere.
    """

    lake: SqlLake
    spark: SparkSession | None = None
    tables: Mapping[str, Any]
    run: str | None = None
    may_write: bool = False
    is_dry_run: bool = False
    must_purge: bool = False


class PrefixedLake:
    """A repository whose datasets have a prefix before their names, as views of Spark have."""

    def __init__(self, lake: SqlLake, prefix: str) -> None:
        """Take the repository and the prefix, which may be empty."""
        self._lake = lake
        self._prefix = prefix

    @property
    def store(self) -> Store:
        """The store of the datasets."""
        return self._lake.store

    def open(self, name: str) -> Dataset:
        """Return a dataset.

        Raises:
            DatasetNotFoundError: The name lacks the prefix, or there is no such dataset.
        """
        return self._lake.open(self._own(name))

    def list(self) -> list[str]:
        """Return the names of all views."""
        return [self._prefix + name for name in self._lake.list()]

    def exists(self, name: str) -> bool:
        """Return whether there is a dataset of this name."""
        return self._has_prefix(name) and self._lake.exists(self._own(name))

    def create(self, name: str, schema: object, **options: Any) -> Dataset:
        """Create a dataset."""
        return self._lake.create(self._own(name), schema, **options)

    def drop(self, name: str, *, if_missing: Literal["error", "ignore"] = "error") -> bool:
        """Delete a dataset."""
        return self._lake.drop(self._own(name), if_missing=if_missing)

    def _has_prefix(self, name: str) -> bool:
        return name[: len(self._prefix)].casefold() == self._prefix.casefold()

    def _own(self, name: str) -> str:
        """Return the name of a dataset, as it is spelt; Spark ignores case in names.

        Raises:
            DatasetNotFoundError: The name lacks the prefix.
        """
        if not self._has_prefix(name):
            raise DatasetNotFoundError(
                f"There is no view {name!r} of a dataset.",
                hint=f"Views of datasets begin with {self._prefix!r}.",
            )
        own = name[len(self._prefix) :]
        if self._lake.exists(own):
            return own
        alike = [name for name in self._lake.list() if name.casefold() == own.casefold()]
        return alike[0] if len(alike) == 1 else own

    def _write_new(
        self, name: str, data: object, options: Mapping[str, Any], run: str | None
    ) -> Commit:
        return self._lake._write_new(self._own(name), data, options, run)

    def _on_dry_run(self) -> SqlLake:
        return PrefixedLake(self._lake._on_dry_run(), self._prefix)
