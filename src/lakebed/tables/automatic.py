"""Publication after each commit, of datasets whose properties ask for it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from lakebed.errors import InvalidInputError, LakebedError
from lakebed.model import publishing
from lakebed.model.predicate import TRUE
from lakebed.model.publishing import Mode, PublicationTarget
from lakebed.state.after import Gathered, NotPublished, Pending
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.tables import delta, hive, iceberg, trees
from lakebed.tables.hive.directories import ScatteredError
from lakebed.tables.hive.metastore_session import is_session_running
from lakebed.tables.outcome import Publication
from lakebed.work.compaction import CompactionOptions, compact
from lakebed.work.gathering import gather_beside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

# Properties come from storage, so they do not name a place that a process connects to or writes to.
# The environment of the process names it, as pyiceberg's configuration defines a catalog.
METASTORE = "LAKEBED_METASTORE"

_ROUNDS = 5  # later rounds gather what others have appended meanwhile

_gathering: ContextVar[bool] = ContextVar("gathering", default=False)


def publish(
    store: Store,
    state: State,
    metastore: SparkSession | str | os.PathLike[str] | None = None,
    *,
    is_dry_run: bool = False,
) -> tuple[NotPublished, ...]:
    """Publish a dataset to the targets in its properties, independently of each other.

    Args:
        store: The store that holds the dataset.
        state: State of the dataset's head.
        metastore: Metastore of Hive tables; None for that of `LAKEBED_METASTORE`, else that of the
            running session.
        is_dry_run: Only check that each target can be published to.

    Returns:
        The targets that failed, with reasons. A failure does not stop the other targets.
    """
    if _gathering.get():
        return ()  # the caller that gathers publishes afterwards
    properties = state.descriptor.properties
    for error in publishing.misunderstood(properties):
        _log.warning("property without effect dataset=%s: %s", state.name, error)
    targets = publishing.targets(properties)
    return publish_to(store, state.name, targets, metastore, is_dry_run=is_dry_run).failures


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTo:
    """The result of a publication to several tables.

    Attributes:
        done: The publications, in the order of the tables.
        failures: Tables that were not published to, with reasons.
    """

    done: tuple[Publication, ...]
    failures: tuple[NotPublished, ...]


def publish_to(
    store: Store,
    dataset: str,
    targets: Sequence[PublicationTarget],
    metastore: SparkSession | str | os.PathLike[str] | None = None,
    *,
    is_dry_run: bool = False,
) -> PublishedTo:
    """Publish a dataset to several tables, independently of each other.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        targets: The tables.
        metastore: Metastore of Hive tables, as for `publish`.
        is_dry_run: Only check that each table can be published to.
    """
    beside = [target for target in targets if target.kind != "hive"]
    publisher = _Publisher(
        store, dataset, metastore or os.environ.get(METASTORE), is_dry_run=is_dry_run
    )
    failures = publisher.publish_to(beside)
    hive_failures = publisher.publish_to(target for target in targets if target.kind == "hive")
    if publisher.has_gathered:
        failures = publisher.publish_to(beside)
    return PublishedTo(done=tuple(publisher.done.values()), failures=(*failures, *hive_failures))


def gather(store: Store, pending: Pending) -> Gathered | None:
    """Gather files for the commit of a batch, if a table needs one directory for each partition.

    Raises:
        LakebedError: See `gather_beside`.
    """
    targets = publishing.targets(pending.base.descriptor.properties)
    if not any(target.gathers for target in targets):
        return None
    return gather_beside(store, pending)


@dataclass(slots=True)
class _Publisher:
    """Publishes one dataset.

    Attributes:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        metastore: Metastore of Hive tables; None for that of the running session.
        is_dry_run: True to change nothing.
        has_gathered: True if a commit was made so that a table can show the dataset.
        done: The last publication to each table, by the title of the table.
    """

    store: Store
    dataset: str
    metastore: SparkSession | str | os.PathLike[str] | None
    is_dry_run: bool = False
    has_gathered: bool = False
    done: dict[str, Publication] = field(default_factory=dict)

    def publish_to(self, targets: Iterable[PublicationTarget]) -> tuple[NotPublished, ...]:
        """Publish to tables; return those that could not be brought up to date."""
        failures = []
        for target in targets:
            try:
                target.check()
                published = self._publish(target)
                if published is not None:
                    self.done[target.title] = published
            except Exception as exc:  # noqa: BLE001 - the commit is made, and other targets follow
                reason, hint = (
                    (exc.message, exc.hint) if isinstance(exc, LakebedError) else (repr(exc), "")
                )
                title = _title_of(target)
                failures.append(
                    NotPublished(dataset=self.dataset, table=title, reason=reason, hint=hint)
                )
        return tuple(failures)

    def _publish(self, target: PublicationTarget) -> Publication | None:
        """Publish to a table; return None if a dry run cannot know the changes."""
        catalog, table, root = map(target.options.get, ("catalog", "table", "root"))
        match target.kind:
            case "delta":
                return delta.to_delta.publish(self.store, self.dataset, dry_run=self.is_dry_run)
            case "iceberg":
                return iceberg.to_iceberg.publish(
                    self.store,
                    self.dataset,
                    catalog=catalog,
                    table=table,
                    root=root,
                    dry_run=self.is_dry_run,
                )
            case "hive":
                return self._to_hive(target)
            case "kartothek":
                return trees.to_kartothek.publish(self.store, self.dataset, dry_run=self.is_dry_run)

    def _to_hive(self, target: PublicationTarget) -> Publication | None:
        """Publish to a metastore; rewrite files that a table cannot show where they lie."""
        if self.metastore is None and not is_session_running():
            raise InvalidInputError(
                f"No Spark session is running, and {METASTORE} does not name a metastore.",
                hint=f"Set the environment variable {METASTORE} to thrift://host:port, or to the "
                "directory of an embedded metastore.",
            )
        options = target.options
        how = hive.to_hive.PublishOptions(
            mode=cast("Mode | None", options.get("mode")),
            root=options.get("root"),
            dry_run=self.is_dry_run,
        )
        for rounds_left in reversed(range(_ROUNDS)):
            try:
                return hive.to_hive.publish(
                    self.store, self.dataset, self.metastore, options["table"], how
                )
            except ScatteredError as error:
                if self.is_dry_run:
                    return None  # a publication gathers the files first, and can then show them
                if not rounds_left:
                    raise
                self._gather(error.directories)
        raise AssertionError  # the last round returned or raised

    def _gather(self, directories: frozenset[str]) -> None:
        """Rewrite the files of directories by a commit, into one directory for each partition."""
        self.has_gathered = True
        token = _gathering.set(True)
        try:
            options = CompactionOptions(directories=directories)
            compact(self.store, self.dataset, TRUE, options, spark=None, is_dry_run=False)
        finally:
            _gathering.reset(token)


def _title_of(target: PublicationTarget) -> str:
    try:
        return target.title
    except LakebedError:
        return target.kind  # an older release accepted an invalid name
