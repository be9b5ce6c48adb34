"""Changed rows by SQL: `SELECT … FROM lake.t CHANGES FROM VERSION 1 TO VERSION 3`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError
from lakebed.spark.catalog.session_jvm import Jvm, Made, Proxied, interfaces
from lakebed.spark.catalog.streams import local_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakebed.spark.catalog.lake_tables import CatalogDataset

# Names that Spark asks for.
_COLUMNS = {
    "_change": "_change_type",
    "_version": "_commit_version",
    "_committed_at": "_commit_timestamp",
}
_OPTIONS = frozenset(  # carried out by Spark itself
    (
        *("startingversion", "endingversion", "startingtimestamp", "endingtimestamp"),
        *("startingboundinclusive", "endingboundinclusive", "deduplicationmode", "computeupdates"),
    )
)


class LakeChangelog(Proxied):
    """The rows that commits inserted and deleted, as `Dataset.changes` has them."""

    Java = interfaces("connector.catalog.Changelog")

    def __init__(
        self,
        jvm: Jvm,
        title: str,
        dataset: CatalogDataset,
        context: Any,
        options: Mapping[str, str],
    ) -> None:
        """Find the commits.

        Args:
            jvm: The JVM of the session.
            title: Name of the table, for Spark's messages.
            dataset: The dataset.
            context: Range and form of the changes, as Spark's JVM has them.
            options: Options of the read.

        Raises:
            InvalidInputError: The range or the form has no counterpart.
            VersionNotFoundError: There is no such version.
        """
        super().__init__(jvm)
        unknown = sorted({name.lower() for name in options} - _OPTIONS)
        if unknown:
            raise InvalidInputError(
                f"A read of changes has no option {', '.join(map(repr, unknown))}.",
                hint="Write WHERE and the columns in the query.",
            )
        if context.computeUpdates():
            raise InvalidInputError(
                f"CHANGES of {title} has no key that matches the images of an update.",
                hint="Leave computeUpdates out, or call Dataset.changes(…, on=key).spark(spark).",
            )
        self._title = title
        is_net = str(context.deduplicationMode().name()) == "NET_CHANGES"
        before, after = _versions(title, context.range())
        if before is not None and dataset._source.load().state.version <= before:
            dataset.at(version=before + 1)  # raises an error that names the newest version
        changes = dataset.changes(before or 0, after, net=is_net)
        frame: DataFrame = changes.spark(jvm.spark)
        self._frame = frame.withColumnsRenamed(_COLUMNS)
        self._schema = jvm.to_schema(self._frame.schema)

    def name(self) -> str:
        """Return the name that Spark shows."""
        return self._title

    def columns(self) -> Any:
        """Return the columns."""
        make = self._jvm.connector.catalog.Column
        return self._jvm.to_array(
            make,
            [
                make.create(field.name(), field.dataType(), field.nullable())
                for field in self._schema.fields()
            ],
        )

    def containsCarryoverRows(self) -> bool:
        """Return False: rows that were only rewritten are left out."""
        return False

    def containsIntermediateChanges(self) -> bool:
        """Return False: Spark would collapse changes by a row id, and ours are net if it asks."""
        return False

    def representsUpdateAsDeleteAndInsert(self) -> bool:
        """Return False: Spark would look for updates by a row id."""
        return False

    def newScanBuilder(self, _options: Any) -> Any:
        """Return the builder of a read."""
        return Made(
            self._jvm,
            "connector.read.ScanBuilder",
            build=lambda: local_rows(self._jvm, self._frame),
        )


def _versions(title: str, range_: Any) -> tuple[int | None, int | None]:
    """Return the version before the first change, and that after the last; None for no bound.

    Raises:
        InvalidInputError: The range is not of versions.
    """
    if range_.getClass().getSimpleName() != "VersionRange":
        raise InvalidInputError(
            f"CHANGES of {title} is by versions only.",
            hint=f"Write FROM VERSION … TO VERSION …; {title}.history has the times of versions.",
        )
    first = _number(str(range_.startingVersion()))
    ending = range_.endingVersion().orElse(None)
    before = first - 1 if range_.startingBoundInclusive() else first
    after = None if ending is None else _number(str(ending))
    if after is not None and not range_.endingBoundInclusive():
        after -= 1
    return (before if before >= 0 else None), after


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            f"CHANGES FROM VERSION {text!r}: a version is a whole number.",
            hint="lake['flights'].history() lists them.",
        ) from None
