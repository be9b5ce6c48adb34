"""Datasets as tables in SQL: temporary views that Spark's own reader serves, where it can."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, cast, overload

from lakebed.common.given import given_names
from lakebed.common.html import facts_to_html
from lakebed.common.shown import shown
from lakebed.errors import DatasetNotFoundError, InvalidInputError
from lakebed.model.footprint import FOOTPRINT, hidden_columns
from lakebed.model.names import find_alike
from lakebed.model.predicate import TRUE, Predicate
from lakebed.plan.footprint_columns import with_footprint
from lakebed.plan.search import plan
from lakebed.spark.attached_names import Attachment, add_attachment, remove_attachment
from lakebed.spark.catalog.sessions import AttachedCatalog, attach_catalog
from lakebed.spark.planned_frame import read_frame
from lakebed.spark.session import get_session
from lakebed.state.own_commits import last_commits
from lakebed.state.reader import list_repository, read_head
from lakebed.state.state import State
from lakebed.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.spark.catalog.lake_tables import CatalogRepository


class HasStore(Protocol):
    """A repository."""

    @property
    def store(self) -> Store:
        """The store of the datasets."""


@dataclass(frozen=True, slots=True)
class _View:
    """A temporary view, and the version of the dataset that it shows.

    Attributes:
        name: Name of the view in Spark.
        version: Version of the dataset that the view shows.
        etag: Etag of the head that named the files. A version alone is not enough: a dataset that
            was dropped and created again counts from the start, and other tools count none.
        frame: Frame with the rows.
    """

    name: str
    version: int
    etag: str
    frame: DataFrame


class AttachedTables:
    """Temporary views of datasets, each of one version until it is refreshed.

    A context manager, which detaches at the end of its block.
    """

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        prefix: str,
        datasets: tuple[str, ...] | None,
        footprint: Collection[str],
    ) -> None:
        """Use `attach` instead."""
        self._spark = spark
        self._store = store
        self._prefix = prefix
        self._datasets = datasets
        self._footprint = footprint
        self._views: dict[str, _View] = {}
        self._commits: dict[str, int] = {}
        self._given_up: set[str] = set()  # in lower case
        self._attachment: Attachment | None = None
        self._lock = threading.RLock()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the views, sorted."""
        return tuple(sorted(self._views))

    @property
    def versions(self) -> Mapping[str, int]:
        """The version that each view shows, by the name of the view."""
        return {name: self._views[name].version for name in self.names}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} at {version}" for name, version in self.versions.items())
        return f"<AttachedTables of {self._store.uri}: {shown or 'none'}>"

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Tables of {self._store.uri}",
            {name: f"version {version}" for name, version in self.versions.items()},
        )

    def refresh(self) -> Self:
        """Bring the views to the current versions.

        What this process commits is seen by the next statement without it.

        Unless the datasets were named, new datasets are attached too, and views of missing ones are
        dropped. A view that DROP VIEW has removed comes back: `detach` ends an attachment.
        DataFrames that were made from a view before keep their version.

        Raises:
            DatasetNotFoundError: A named dataset is missing; no view has changed.
            LakebedError: A head cannot be read; no view has changed.

        Cost:
            A read of the head for each dataset, a question to Spark for each that has not changed,
            and the cost of `View.spark` for those that have; without named datasets one LIST of the
            root. No Spark job.
        """
        with self._lock:
            self._commits, self._given_up = last_commits(self._store.uri), set()
            views = {view.name: view for view in self._current_views()}
            for name, view in views.items():
                if view is not self._views.get(name) or not self._is_in_session(name):
                    view.frame.createOrReplaceTempView(_quoted(name))
            for name in self._views.keys() - views.keys():
                self._spark.catalog.dropTempView(name)
            self._views = views
        return self

    def _is_in_session(self, name: str) -> bool:
        """Return whether the session has a view: DROP VIEW may have removed it."""
        from pyspark.errors import AnalysisException

        try:
            return self._spark.catalog.getTable(_quoted(name)).isTemporary
        except AnalysisException:
            return False

    def _catch_up(self) -> None:
        """Bring the views to the versions that this process has committed since.

        Cost:
            As `refresh`, of the datasets that were committed to; nothing without such commits.
        """
        with self._lock:
            commits = last_commits(self._store.uri)
            changed = [
                name for name, number in commits.items() if self._commits.get(name) != number
            ]
            self._commits = commits
            for dataset in changed:
                name = self._prefix + dataset
                if name in self._views or (self._datasets is None and self._is_new(name)):
                    self._show(name, dataset)

    def _is_new(self, name: str) -> bool:
        taken = {*self._given_up, *(view.casefold() for view in self._views)}
        return name.casefold() not in taken

    def _show(self, name: str, dataset: str) -> None:
        try:
            view = self._view_of(dataset)
        except DatasetNotFoundError:
            if self._views.pop(name, None) is not None:
                self._spark.catalog.dropTempView(name)
            return
        if view is not self._views.get(name):
            view.frame.createOrReplaceTempView(_quoted(name))
            self._views[name] = view

    def _give_up(self, names: Collection[str]) -> None:
        """Leave views to a later attachment to the same session, which has replaced them."""
        with self._lock:
            folded = {name.casefold() for name in names}
            self._views = {n: view for n, view in self._views.items() if n.casefold() not in folded}
            self._given_up |= folded

    def _dataset_of(self, name: str) -> str | None:
        """Return the dataset whose view has a name in SQL, which ignores case; None without one."""
        folded = name.casefold()
        shown = (view for view in list(self._views) if view.casefold() == folded)
        return next((view[len(self._prefix) :] for view in shown), None)

    def detach(self) -> None:
        """Drop the views, and stop to guard their names; a second call does nothing."""
        if self._attachment is not None:
            remove_attachment(self._attachment)
            self._attachment = None
        for name in self.names:
            self._spark.catalog.dropTempView(name)
        self._views = {}

    def _begin(self) -> None:
        """Guard the names of the views in the session."""
        self._attachment = Attachment(
            spark=self._spark,
            names=lambda: self.names,
            dataset_of=self._dataset_of,
            catch_up=self._catch_up,
            give_up=self._give_up,
        )
        add_attachment(self._attachment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def _current_views(self) -> Iterator[_View]:
        names = list_repository(self._store) if self._datasets is None else self._datasets
        for name in _distinct(names, self._prefix):
            try:
                yield self._view_of(name)
            except DatasetNotFoundError:
                if self._datasets is not None:
                    raise  # a dataset that was not named may have been dropped after the listing

    def _view_of(self, dataset: str) -> _View:
        head = read_head(self._store, dataset)
        name = f"{self._prefix}{dataset}"
        attached = self._views.get(name)
        if attached is not None and attached.etag == head.etag:
            return attached
        return _View(name, head.state.version, head.etag, self._frame_of(head.state))

    def _frame_of(self, state: State) -> DataFrame:
        store = self._store

        def choose(predicate: Predicate) -> frozenset[str]:
            chosen = plan(state, predicate, requests=0, store=store)
            return frozenset(file.label for file in chosen.files)

        everything = plan(state, TRUE, requests=0, store=store)
        columns = state.layout.table_columns
        if self._footprint:
            everything = with_footprint(store, everything, self._footprint)
            columns += hidden_columns(columns)
        return read_frame(self._spark, store, everything, columns, choose=choose)


def _quoted(name: str) -> str:
    """Return a name of a view for a call that parses it; Sail takes backticks for a part of it."""
    return name if name.isidentifier() and name.isascii() else f"`{name}`"


def _distinct(datasets: Iterable[str], prefix: str) -> list[str]:
    """Return names of datasets that Spark distinguishes; it does not look at case.

    Raises:
        InvalidInputError: Spark does not distinguish two of the names.
    """
    names = list(dict.fromkeys(datasets))
    alike = find_alike(names)
    if alike is not None:
        one, other = (prefix + name for name in alike)
        raise InvalidInputError(
            f"Spark does not distinguish the views {one!r} and {other!r}.",
            hint="Name the datasets to attach, and give each a prefix of its own.",
        )
    return names


@overload
def attach(
    spark: SparkSession | None,
    repository: HasStore,
    *,
    prefix: str = "",
    datasets: str | Iterable[str] | None = None,
    footprint: bool = False,
    catalog: None = None,
    shared_host: bool = False,
) -> AttachedTables: ...


@overload
def attach(
    spark: SparkSession | None,
    repository: HasStore,
    *,
    catalog: str,
    shared_host: bool = False,
) -> AttachedCatalog: ...


def attach(
    spark: SparkSession | None,
    repository: HasStore,
    *,
    prefix: str = "",
    datasets: str | Iterable[str] | None = None,
    footprint: bool = False,
    catalog: str | None = None,
    shared_host: bool = False,
) -> AttachedTables | AttachedCatalog:
    """Make a temporary view of each dataset, or with `catalog` a catalog of all of them.

    **A catalog.** `attach(spark, lake, catalog="lake")` makes `lake.flights` a table of Spark's own
    planner, in all sessions of the application. SELECT reads the files that a query needs, with
    `VERSION AS OF` and `TIMESTAMP AS OF`. CREATE TABLE, also AS SELECT, REPLACE TABLE, INSERT with
    all its forms, `saveAsTable`, `insertInto`, `writeTo`, TRUNCATE and DELETE by a condition of
    columns and constants write. Other changes are refused, with the verb of Python that does them.
    Each statement sees the current version. A session needs Spark 4.0 or newer, without Connect.
    Its objects are in this process, so a process that calls the port of PySpark's callback server
    could change tables: that server gets a token, which only the JVM of this session knows.

    **Views.** Without `catalog`, SQL reads at the speed of Spark's own reader.

    A view shows the fields of its dataset and then the other partition fields, at the version that
    is current now. What this process commits is seen by the next statement of the session;
    `refresh` brings later versions of other processes. A view of the same name is replaced, as
    usual in Spark. Until `detach`, calls that would make another table of the name of a view, such
    as `saveAsTable` and CREATE TABLE, are refused.

    Files that a query does not need are not read, even if its filter is added later: by partition
    fields and by their sources (`time_hour >= …` on a dataset by date), by bounds of columns, and
    by inverted indices. On Spark Connect, Spark skips files by partition fields only, and row
    groups by bounds.

    Args:
        spark: The session; None for the active one, else one started in this process.
        repository: The repository whose datasets are attached.
        prefix: Start of the name of each view, before the name of the dataset. In SQL, a
            name with characters other than letters, digits and `_` needs backticks.
        datasets: Only these; None for all.
        footprint: Also show `batch_id`, `batch_time` and `run`, at the end: the batch that wrote
            a row, the time when it began, and its run. A column of the dataset of such a name takes
            its place. With a `prefix` of their own, such views can be beside others.
        catalog: Name of the catalog; None for views. No other option but `shared_host` goes with
            it. A catalog of this name that was attached before is replaced.
        shared_host: True to attach a catalog although this release of Spark cannot have the token,
            so that other processes of the machine could call it.

    Returns:
        The views, to refresh and detach; or the catalog, to detach.

    Raises:
        MissingDependencyError: pyspark or Java is not installed.
        DatasetNotFoundError: A named dataset does not exist.
        InvalidInputError: Spark would not distinguish two views, or `repository` is not one; or the
            session cannot have a catalog, or has another one of this name.

    Cost:
        See `AttachedTables.refresh`; a catalog costs no request.
    """
    if not hasattr(repository, "store"):
        raise InvalidInputError(
            f"repository is {shown(repository)}.",
            hint="Give a repository, as of lakebed.open_repository(...); datasets=[...] for some.",
        )
    if catalog is not None:
        if prefix or datasets is not None or footprint:
            raise InvalidInputError(
                f"catalog is {catalog!r}, beside options of views.",
                hint="Give catalog alone: its tables have the names of the datasets, and all of "
                "their columns.",
            )
        owner = cast("CatalogRepository", repository)
        return attach_catalog(get_session(spark), owner, catalog, is_shared_host=shared_host)
    if datasets is not None:
        datasets = given_names("datasets", datasets)
    session = get_session(spark)
    attached = AttachedTables(
        session, repository.store, prefix, datasets, FOOTPRINT if footprint else ()
    ).refresh()
    attached._begin()
    return attached
