"""Tables that a dataset is published to after each commit, as named by its properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, get_args

from lakebed.errors import InvalidInputError, InvalidNameError
from lakebed.model.keys import BATCH_ID

if TYPE_CHECKING:
    from lakebed.model.descriptor import DatasetDescriptor

PREFIX = "publish."

TableKind = Literal["hive", "delta", "iceberg", "kartothek"]
Mode = Literal["partitions", "batches"]
MODES: tuple[Mode, ...] = get_args(Mode)

_NAME = re.compile(r"[A-Za-z0-9_]+")
_SWITCH = ("true", "false")
ICEBERG = f"{PREFIX}iceberg"
HIDE_BATCH_ID = f"{ICEBERG}.hide_batch_id"
REQUIRE_CHECKS = f"{PREFIX}require_checks"
CHECKPOINTS = f"{PREFIX}delta.checkpoints"
BY_LEAF, CLASSIC = "v2", "classic"  # Delta's names of the policies

# The fastest first: the slow Hive does not delay the others.
_OPTIONS: Mapping[TableKind, tuple[str, ...]] = {
    "delta": ("checkpoints",),
    "iceberg": ("catalog", "table", "root", "hide_batch_id"),
    "hive": ("table", "mode", "root"),
}
_KNOWN = (
    *(
        f"{PREFIX}{name}"
        for kind, options in _OPTIONS.items()
        for name in (kind, *(f"{kind}.{option}" for option in options))
    ),
    REQUIRE_CHECKS,
)


@dataclass(frozen=True, slots=True)
class TableName:
    """A table of a metastore.

    Attributes:
        database: Name of the database in lower case, as in metastores.
        table: Name of the table in lower case.
    """

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `database.table`; a bare name is a table of the database `default`.

        Raises:
            InvalidNameError: The text is not a name of a table.

        >>> str(TableName.parse("lake.Flights")), str(TableName.parse("flights"))
        ('lake.flights', 'default.flights')
        """
        parts = text.split(".")
        if len(parts) > 2 or not all(_NAME.fullmatch(part) for part in parts):
            raise InvalidNameError(
                f"Illegal table name {text!r}.",
                hint="Write database.table, each of letters, digits and '_'.",
            )
        database, table = parts if len(parts) == 2 else ("default", parts[0])
        return cls(database.lower(), table.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationTarget:
    """A table that each commit is published to.

    Attributes:
        kind: Format of the table.
        options: Values of the properties `publish.<kind>.<option>`, by option.
    """

    kind: TableKind
    options: Mapping[str, str]

    @property
    def table(self) -> str:
        """The name of the table; empty if it has none and lies next to the data."""
        name = self.options.get("table", "")
        if self.kind == "hive":
            return str(TableName.parse(name)) if name else ""
        catalog = self.options.get("catalog")
        return f"{catalog}.{name}" if catalog else name

    @property
    def title(self) -> str:
        """The name of the table in messages."""
        return f"{self.kind} {self.table}".rstrip()

    @property
    def gathers(self) -> bool:
        """True if the table shows each partition of the dataset as one directory."""
        return self.kind == "hive" and self.options.get("mode", "partitions") == "partitions"

    def check(self) -> None:
        """Check that the options name a table.

        Raises:
            InvalidInputError: The options do not name a table, or the mode is unknown.
        """
        name = f"{PREFIX}{self.kind}"
        table, catalog, mode = map(self.options.get, ("table", "catalog", "mode"))
        checkpoints = self.options.get("checkpoints")
        if checkpoints not in (None, BY_LEAF, CLASSIC):
            raise InvalidInputError(
                f"Unknown checkpoints {checkpoints!r} in the property '{CHECKPOINTS}'.",
                hint="Give 'v2', which the head of a tree has anyway, or 'classic', which every "
                "reader of Delta knows.",
            )
        if self.kind == "hive":
            if table is None:
                raise InvalidInputError(
                    f"The property '{name}.table' is missing.",
                    hint="Set it to the name of the table, as database.table.",
                )
            TableName.parse(table)
        elif (table is None) != (catalog is None):
            raise InvalidInputError(
                f"Only one of the properties '{name}.catalog' and '{name}.table' is set.",
                hint="Set both for a table of a catalog, or neither for a table next to the data.",
            )
        if mode not in (None, *MODES):
            raise InvalidInputError(
                f"Unknown mode {mode!r} in the property '{name}.mode'.",
                hint="Give 'partitions' or 'batches'.",
            )


def targets(properties: Mapping[str, str]) -> tuple[PublicationTarget, ...]:
    """Return the tables that properties enable, in the order of publication.

    >>> [target.title for target in targets({"publish.delta": "true", "publish.iceberg": "no"})]
    ['delta']
    """
    return tuple(
        PublicationTarget(kind=kind, options=_options_of(kind, properties))
        for kind in _OPTIONS
        if is_on(properties, f"{PREFIX}{kind}")
    )


def is_on(properties: Mapping[str, str], name: str) -> bool:
    """Return whether a property is set to true."""
    return properties.get(name, "").strip().lower() == "true"


def levels_in_files(descriptor: DatasetDescriptor) -> tuple[str, ...]:
    """Return the levels of directories that new data files hold as columns too.

    Readers of Iceberg are meant to take the values of partitions from the table's metadata.
    pyiceberg 0.12 does not where a filter names a column that is not selected, and finds no rows.
    """
    if descriptor.format != "parquet" or not is_on(descriptor.properties, ICEBERG):
        return ()
    is_hidden = is_on(descriptor.properties, HIDE_BATCH_ID)
    return tuple(name for name in descriptor.partition_types if name != BATCH_ID or not is_hidden)


def _options_of(kind: TableKind, properties: Mapping[str, str]) -> dict[str, str]:
    given = {option: properties.get(f"{PREFIX}{kind}.{option}") for option in _OPTIONS[kind]}
    return {option: value for option, value in given.items() if value is not None}


def misunderstood(properties: Mapping[str, str]) -> tuple[InvalidInputError, ...]:
    """Return an error for each property of publication that has no effect."""
    errors = []
    for name in properties:
        if name.startswith(PREFIX) and name not in _KNOWN:
            hint = f"Known are: {', '.join(_KNOWN)}."
            errors.append(InvalidInputError(f"Unknown property {name!r}.", hint=hint))
    for name in (*(f"{PREFIX}{kind}" for kind in _OPTIONS), HIDE_BATCH_ID, REQUIRE_CHECKS):
        value = properties.get(name, "false")
        if value.strip().lower() not in _SWITCH:
            message = f"The property {name!r} is {value!r}."
            errors.append(InvalidInputError(message, hint="Set it to true or false."))
    return tuple(errors)


def check(properties: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
    """Check the new properties of publication of a dataset.

    Args:
        properties: All new properties.
        before: The current properties. Unchanged ones are not checked: an older release may have
            accepted them.

    Raises:
        InvalidInputError: A property is unknown, or its value is not valid.
    """
    own = {name: value for name, value in properties.items() if name.startswith(PREFIX)}
    if before is not None and all(before.get(name) == value for name, value in own.items()):
        return
    for error in misunderstood(own):
        raise error
    for target in targets(own):
        target.check()
