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
    """

    lake: SqlLake
    spark: SparkSession | None = None
    tables: Mapping[str, Any]
    run: str | None = None
    may_write: bool = False
    is_dry_run: bool = False
