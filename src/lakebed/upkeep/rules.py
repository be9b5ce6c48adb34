"""The rules of the steps of upkeep: layout, publication, cleanup; see also `model.retention`."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lakebed.common.ages import parse_age
from lakebed.common.given import check_given, given_names
from lakebed.common.sizes import Size, parse_size
from lakebed.errors import InvalidInputError
from lakebed.model.locations import refuse_credentials
from lakebed.model.names import nearest
from lakebed.model.publishing import PublicationTarget, TableKind
from lakebed.work.compaction import CompactionOptions
from lakebed.work.defaults import TARGET_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DUE_FILES = 8

TableSettings = Mapping[str, str]

_OPTIONS: Mapping[TableKind, tuple[str, ...]] = {
    "hive": ("table", "mode", "root"),
    "iceberg": ("catalog", "table", "root"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRule:
    """The rule by which a pipeline compacts.

    Attributes:
        target_bytes: Size of the new files, in bytes or as text such as `128MB`; files of at least
            half of it stay as they are.
        min_files: Number of small files from which on a partition is compacted. A smaller number
            rewrites the same rows more often.
        sort_by: Fields to sort the rows of the new files by.
        gather: Keep the files of a partition alone in one directory, as Hive tables need it. A
            pipeline that publishes to Hive does so by itself; give it for other readers of whole
            directories.
        across_runs_older_than: Age such as `30d` from which on small files of different runs are
            merged: these runs can then not be rerun by name. None keeps runs apart.

    >>> LayoutRule(min_files=20).target_bytes == 128 * 2**20
    True
    """

    target_bytes: int = TARGET_BYTES
    min_files: int = DUE_FILES
    sort_by: tuple[str, ...] = ()
    gather: bool = False
    across_runs_older_than: str | dt.timedelta | None = None

    if TYPE_CHECKING:  # a size may be given as text

        def __init__(
            self,
            *,
            target_bytes: Size = TARGET_BYTES,
            min_files: int = DUE_FILES,
            sort_by: str | Sequence[str] = (),
            gather: bool = False,
            across_runs_older_than: str | dt.timedelta | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "sort_by", given_names("sort_by", self.sort_by))
        size = parse_size(self.target_bytes, "target_bytes")
        object.__setattr__(self, "target_bytes", size)
        self.options()

    def options(self) -> CompactionOptions:
        """Return the settings of a compaction."""
        return CompactionOptions(
            target_bytes=self.target_bytes,
            sort_by=self.sort_by,
            is_gathering=self.gather,
            across_runs_older_than=None
            if self.across_runs_older_than is None
            else parse_age(self.across_runs_older_than),
            min_files=self.min_files,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRule:
    """The tables that a pipeline publishes to.

    Attributes:
        delta: Publish to a Delta table beside the data.
        iceberg: Publish to an Iceberg table beside the data; or its `catalog`, `table` and `root`.
        hive: Name of a Hive table, as `database.table`; or its `table`, `mode` and `root`.
        metastore: The metastore of the Hive table: `thrift://host:port`, a directory for Spark's
            embedded one, or a Spark session. None for `LAKEBED_METASTORE`, else the active session.
        require_checks: Whether versions whose rows may fail a declared check are not published, as
            the property `publish.require_checks` of the dataset has it: the step `checks` sets that.
            None to leave the property as it is.

    >>> rule = PublishRule(delta=True, hive="lake.flights")
    >>> [target.title for target in rule.targets()]
    ['delta', 'hive lake.flights']
    """

    delta: bool = False
    iceberg: bool | TableSettings = False
    hive: str | TableSettings | None = None
    metastore: str | os.PathLike[str] | SparkSession | None = None
    require_checks: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.metastore, str):
            refuse_credentials(self.metastore)
        check_given("delta", self.delta, bool, "Give True or False.", or_none=False)
        check_given(
            "iceberg",
            self.iceberg,
            (bool, Mapping),
            "Give True, or a mapping with catalog and table.",
            or_none=False,
        )
        check_given("require_checks", self.require_checks, bool, "Give True or False.")
        check_given("hive", self.hive, (str, Mapping), "Give the table as database.table.")
        for target in self.targets():
            _check_options(target)

    def targets(self) -> tuple[PublicationTarget, ...]:
        """Return the tables, in the order of publication."""
        found: list[PublicationTarget] = []
        if self.delta:
            found.append(PublicationTarget(kind="delta", options={}))
        if self.iceberg is not False:
            options = {} if self.iceberg is True else dict(self.iceberg)
            found.append(PublicationTarget(kind="iceberg", options=options))
        if self.hive is not None:
            options = {"table": self.hive} if isinstance(self.hive, str) else dict(self.hive)
            found.append(PublicationTarget(kind="hive", options=options))
        return tuple(found)


def _check_options(target: PublicationTarget) -> None:
    known = _OPTIONS.get(target.kind, ())
    for name in target.options:
        if name not in known:
            raise InvalidInputError(
                f"A table of {target.kind} has no {name!r}.",
                hint=nearest(name, known) or f"Known are: {', '.join(known)}.",
            )
    table, catalog = target.options.get("table"), target.options.get("catalog")
    if target.kind == "hive" and table is None:
        raise InvalidInputError(
            "The name of the Hive table is missing.", hint="Give table, as database.table."
        )
    if target.kind == "iceberg" and (table is None) != (catalog is None):
        raise InvalidInputError(
            f"Only {'table' if catalog is None else 'catalog'} of the Iceberg table is given.",
            hint="Give catalog and table for a table of a catalog, or neither for one beside the "
            "data.",
        )
    target.check()


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupRule:
    """The rule by which a pipeline deletes dead files.

    Attributes:
        older_than: Time for which files stay after the commit that removed them, as for
            `Dataset.cleanup`.
        published: `ask` or `noted`, as for `Dataset.cleanup`.

    >>> CleanupRule(older_than="30d").published
    'ask'
    """

    older_than: str | dt.timedelta = "7d"
    published: Literal["ask", "noted"] = "ask"

    def __post_init__(self) -> None:
        parse_age(self.older_than)
        if self.published not in ("ask", "noted"):
            raise InvalidInputError(
                f"published is {self.published!r}.", hint="Give 'ask' or 'noted'."
            )
