"""Options of the data source: text under names of any case, parsed once into checked values.

Spark passes options on as they were typed, again in every process. An unknown name is an error,
since the read or write would otherwise not do what the caller asked for.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self, get_args

from lakebed.arrow.kernel import WriteOptions as FileOptions
from lakebed.common.redaction import STORAGE_PREFIX, StorageOptions
from lakebed.common.sizes import parse_size
from lakebed.errors import InvalidInputError
from lakebed.model.drift import Types, UnknownColumns
from lakebed.model.moments import names_zone, to_moment
from lakebed.model.names import nearest, split_names
from lakebed.model.uri import KINDS, Address, parse_uri

MIB = 2**20

OverwriteMode = Literal["all", "partitions", "run", "run-partitions"]
_OVERWRITE_MODES_OF_SPARK: Mapping[str, OverwriteMode] = {
    "static": "all",
    "dynamic": "partitions",
}

# Options that Spark's catalogs add to those of a table.
_OF_CATALOGS = (
    *("collation", "comment", "external", "is_managed_location", "owner", "provider"),
    *("table_type",),
)

# Names of other formats; theirs are times in the zone of the session.
_IN_ZONE_OF_SESSION = ("timestampAsOf", "startingTimestamp")
_TRUE, _FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Other calls of the format, and options that only they have.

    Attributes:
        calls: Name of the calls in messages.
        verb: The call that a user writes, for errors.
        names: The options, spelled as in the documentation.
    """

    calls: str
    verb: str
    names: tuple[str, ...]

    def spelling_of(self, name: str) -> str:
        """Return an option as spelled in the documentation; empty if these calls do not have it.

        Spark passes names in lower case.
        """
        return next((one for one in self.names if one.lower() == name.lower()), "")


STREAM_READS = Elsewhere(
    "streaming reads",
    "spark.readStream",
    (
        *("startingVersion", "startingTimestamp", "startingBatchId"),
        *("maxFilesPerTrigger", "maxBytesPerTrigger", "onChange", "changeColumns"),
    ),
)
BATCH_READS = Elsewhere(
    "batch reads",
    "spark.read",
    ("version", "versionAsOf", "timestamp", "timestampAsOf", "batchId"),
)
STREAM_WRITES = Elsewhere(
    "streaming writes",
    "frame.writeStream",
    ("compactEvery", "compactTargetBytes", "checkpointLocation", "queryName"),
)
BATCH_WRITES = Elsewhere(
    "batch writes",
    "frame.write",
    (
        *("overwriteMode", "partitionOverwriteMode", "replaceWhere", "run", "replaceAll"),
        *("base", "expectedVersion", "staged", "begunAt", "unknown", "types"),
    ),
)


class OptionTexts:
    """The options of one call. Each is taken once; remaining options are unknown.

    >>> texts = OptionTexts({"PATH": "/lake/flights", "versionAsOf": "3"})
    >>> texts.whole_number("version", "versionAsOf")
    3
    >>> texts.address().name
    'flights'
    >>> texts.refuse_others(STREAM_READS)
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        """Start with all given options."""
        self._left = {name.lower(): (name, text) for name, text in options.items()}
        self._known: list[str] = []

    def text(self, *spellings: str) -> str | None:
        """Take an option; None if it was not given.

        Args:
            spellings: Accepted names of the option, our own first.

        Raises:
            InvalidInputError: The option was given in two spellings.
        """
        self._known += spellings
        given = [self._left.pop(name.lower()) for name in spellings if name.lower() in self._left]
        if len(given) > 1:
            names = " and ".join(repr(name) for name, _ in given)
            raise InvalidInputError(
                f"The options {names} have the same meaning.", hint=f"Give {spellings[0]!r} alone."
            )
        return given[0][1] if given else None

    def whole_number(self, *spellings: str, at_least: int = 0) -> int | None:
        """Take an option that is a whole number.

        Raises:
            InvalidInputError: The value is not a whole number, or too small.
        """
        text = self.text(*spellings)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            number = at_least - 1
        if number < at_least:
            raise InvalidInputError(
                f"Option {spellings[0]} is {text!r}.",
                hint=f"Give a whole number, {at_least} or more.",
            )
        return number

    def size(self, name: str) -> int | None:
        """Take an option that is a number of bytes, or a size such as `128MB`.

        Raises:
            InvalidInputError: The value is neither.
        """
        text = self.text(name)
        return None if text is None else parse_size(text, f"Option {name}")

    def flag(self, name: str) -> bool | None:
        """Take an option that is true or false.

        Raises:
            InvalidInputError: The value is neither.
        """
        text = self.text(name)
        if text is None:
            return None
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise InvalidInputError(f"Option {name} is {text!r}.", hint="Give true or false.")

    def moment(self, *spellings: str) -> dt.datetime | None:
        """Take an option that is a time or a day; without zone it is UTC.

        Under a name that Spark's users know from other formats, such a time would be one in the
        zone of the session, which Spark does not pass to a data source. So it is refused there.

        Raises:
            InvalidInputError: The value is not a time, or has no zone where it needs one.
        """
        spark_names = [name for name in spellings if name in _IN_ZONE_OF_SESSION]
        is_local = any(name.lower() in self._left for name in spark_names)
        text = self.text(*spellings)
        if text is None:
            return None
        try:
            moment = to_moment(text.strip())
        except InvalidInputError as exc:
            raise InvalidInputError(
                f"Option {spellings[0]}: {exc.message}", hint=exc.hint
            ) from None
        if is_local and not names_zone(text.strip()):
            others = [name for name in spellings if name not in spark_names]
            as_utc = "".join(
                f" Or give the option {name}, which takes it as UTC." for name in others
            )
            raise InvalidInputError(
                f"Option {spark_names[0]} is {text!r}, a time without a zone, and Spark does not pass "
                "the zone of the session to a data source.",
                hint="Add the zone, as in 2026-01-31T12:00:00+09:00 or 2026-01-31T12:00:00Z."
                + as_utc,
            )
        return moment

    def choice(self, name: str, allowed: Collection[str]) -> str | None:
        """Take an option that is one of a few words.

        Raises:
            InvalidInputError: The value is not one of them.
        """
        text = self.text(name)
        if text is None or text.lower() in allowed:
            return text and text.lower()
        raise InvalidInputError(
            f"Option {name} is {text!r}.",
            hint=nearest(text, allowed) or f"Give one of {', '.join(allowed)}.",
        )

    def names(self, name: str) -> tuple[str, ...] | None:
        """Take an option that names columns: ``a, `b, c` ``, or as JSON `["a", "b, c"]`.

        Raises:
            InvalidInputError: The value names no column, or is not such a list.
        """
        text = self.text(name)
        if text is None:
            return None
        names: object = split_names(text)
        if text.lstrip().startswith("["):
            try:
                names = json.loads(text)
            except ValueError:
                names = None
        if isinstance(names, list) and names and all(isinstance(one, str) and one for one in names):
            return tuple(names)
        raise InvalidInputError(
            f"Option {name} is {text!r}.", hint="Give names of columns, with commas between them."
        )

    def address(self) -> Address:
        """Take the option `path`: `LOCATION/NAME`, or a URI of a dataset or view.

        Raises:
            InvalidInputError: The option is missing, or does not name a dataset.
        """
        text, location = self.text("path"), self.text("location")
        text = location if text is None else text
        for name in _OF_CATALOGS:
            self._left.pop(name, None)
        if text is None:
            raise InvalidInputError(
                "No dataset is named.",
                hint="Give its path to load or save, or as option 'path'. A table of Spark's catalog "
                "does not keep the path: make views of datasets by lakebed.spark.attach(spark, lake), "
                "or write SELECT … FROM t WITH (path = '…').",
            )
        kind = text.partition(":")[0]
        address = parse_uri(text if kind in KINDS else f"dataset:{text}")
        if address.kind == "repo" or not address.name:
            raise InvalidInputError(
                f"{text!r} does not name a dataset.",
                hint="Give LOCATION/NAME, such as s3://bucket/lake/flights.",
            )
        return address

    def storage(self) -> StorageOptions:
        """Take the options of the store, such as `storage.region`."""
        names = [name for name in self._left if name.startswith(STORAGE_PREFIX)]
        self._known.append(f"{STORAGE_PREFIX}…")
        return StorageOptions(
            {name.removeprefix(STORAGE_PREFIX): self._left.pop(name)[1] for name in names}
        )

    def refuse_others(self, elsewhere: Elsewhere) -> None:
        """Check that no options remain.

        Args:
            elsewhere: Calls with other options.

        Raises:
            InvalidInputError: An option remains; the message names the calls that have it, or the
                nearest known option.
        """
        for name, _ in self._left.values():
            spelling = elsewhere.spelling_of(name)
            if spelling:
                raise InvalidInputError(
                    f"The option {spelling} is for {elsewhere.calls} only.",
                    hint=f"Use {elsewhere.verb}, or leave {spelling} out.",
                )
            known = sorted(self._known, key=str.lower)
            by_lower = {one.lower(): one for one in known}
            suggestion = nearest(name.lower(), by_lower)
            for lower, one in by_lower.items():
                suggestion = suggestion.replace(repr(lower), repr(one))
            raise InvalidInputError(
                f"The data source lakebed has no option {name!r} here.",
                hint=suggestion or f"Known are: {', '.join(known)}.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Options of a batch read.

    Attributes:
        address: Address of the dataset or view.
        columns: Fields or partition fields; `*` means all fields. None for all fields.
        where: A predicate as SQL; empty for everything.
        version: Version to read; None for the current one.
        time: Time whose current version is read.
        batch_id: Batch whose commit made the version to read.
        split_bytes: Approximate number of bytes of a task; None to choose by the dataset.
    """

    address: Address
    storage: StorageOptions = field(default_factory=StorageOptions)
    columns: tuple[str, ...] | None = None
    where: str = ""
    version: int | None = None
    time: dt.datetime | None = None
    batch_id: int | None = None
    split_bytes: int | None = None

    def __post_init__(self) -> None:
        given = [
            name
            for name, value in (
                ("version", self.version),
                ("timestamp", self.time),
                ("batchId", self.batch_id),
                ("@version of the URI", self.address.version),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise InvalidInputError(
                f"{' and '.join(given)} each select a version to read.", hint="Give one of them."
            )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them.

        Raises:
            InvalidInputError: An option is unknown, cannot be read, or contradicts another.
        """
        texts = OptionTexts(options)
        parsed = cls(
            address=texts.address(),
            storage=texts.storage(),
            columns=texts.names("columns"),
            where=texts.text("where") or "",
            version=texts.whole_number("version", "versionAsOf"),
            time=texts.moment("timestamp", "timestampAsOf"),
            batch_id=texts.whole_number("batchId"),
            split_bytes=texts.size("splitBytes"),
        )
        texts.refuse_others(STREAM_READS)
        return parsed


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationOptions:
    """Descriptor of a dataset that a write may create.

    Attributes:
        partition_by: Partition functions, as text; empty for none. None if the caller has named
            none, which creates nothing.
        index: Columns with an inverted index.
        format: Format of the data files.
        compression: Compression of the data files; None for the default of the format.
    """

    partition_by: str | None = None
    index: tuple[str, ...] = ()
    format: str = "parquet"
    compression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOptions:
    """Options of a batch write.

    Attributes:
        overwrite_mode: Scope of `mode("overwrite")`. By default None: everything, or the partitions
            of the rows if the session overwrites dynamically.
        replace_where: Condition of the rows to replace, as SQL.
        is_dynamic: Whether the mode was given by Spark's name for the partitions of the rows: then
            no rows replace nothing, as in Spark.
        run: Name of the run.
        replaces_all: With a rerun: whether rows of the run may go without new ones.
        unknown: Handling of columns that the dataset lacks.
        types: Handling of wider types.
        base: Version that the data was made from.
        is_staged: True if the batch waits for a commit of its own.
        lease: Time for which cleanups keep a batch; for a staged batch, it begins with the staging.
        begun_at: Start time of the process, which is encoded in the batch id.
        creation: Descriptor for a missing dataset; None to raise an error for it.
        files: Limits of the data files.
    """

    address: Address
    storage: StorageOptions = field(default_factory=StorageOptions)
    overwrite_mode: OverwriteMode | None = None
    replace_where: str | None = None
    is_dynamic: bool = False
    run: str | None = None
    replaces_all: bool = False
    unknown: UnknownColumns = "reject"
    types: Types = "strict"
    base: int | None = None
    is_staged: bool = False
    lease: str | None = None
    begun_at: dt.datetime | None = None
    creation: CreationOptions | None = None
    files: FileOptions = field(default_factory=FileOptions)

    def __post_init__(self) -> None:
        if self.address.kind != "dataset" or self.address.version is not None:
            raise InvalidInputError(
                "A write needs a whole dataset, not a view or a version.",
                hint="Give its path; the option replaceWhere selects rows to replace.",
            )
        if self.replace_where is not None and self.overwrite_mode is not None:
            raise InvalidInputError(
                "Both replaceWhere and overwriteMode select the rows to replace.", hint="Give one."
            )
        if self.overwrite_mode in ("run", "run-partitions") and not self.run:
            raise InvalidInputError(
                f"overwriteMode is {self.overwrite_mode!r}, but no run is named.",
                hint="Give the option run.",
            )
        if self.replaces_all and self.overwrite_mode not in ("run", "run-partitions"):
            raise InvalidInputError(
                "replaceAll is given, but overwriteMode is not 'run' or 'run-partitions'.",
                hint="Leave it out, or rerun a run.",
            )

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them.

        Raises:
            InvalidInputError: An option is unknown, cannot be read, or contradicts another.
        """
        texts = OptionTexts(options)
        of_spark = texts.choice("partitionOverwriteMode", _OVERWRITE_MODES_OF_SPARK)
        parsed = cls(
            address=texts.address(),
            storage=texts.storage(),
            overwrite_mode=_overwrite_mode(texts, of_spark),
            is_dynamic=of_spark == "dynamic",
            replace_where=texts.text("replaceWhere"),
            run=texts.text("run"),
            replaces_all=texts.flag("replaceAll") or False,
            unknown="keep"
            if texts.choice("unknown", get_args(UnknownColumns)) == "keep"
            else "reject",
            types="widen" if texts.choice("types", get_args(Types)) == "widen" else "strict",
            base=texts.whole_number("base", "expectedVersion"),
            is_staged=texts.flag("staged") or False,
            lease=texts.text("lease"),
            begun_at=texts.moment("begunAt"),
            creation=creation_options(texts),
            files=file_options(texts),
        )
        texts.refuse_others(STREAM_WRITES)
        return parsed


def _overwrite_mode(texts: OptionTexts, of_spark: str | None) -> OverwriteMode | None:
    chosen = texts.choice("overwriteMode", get_args(OverwriteMode))
    if of_spark is None:
        return next((mode for mode in get_args(OverwriteMode) if mode == chosen), None)
    if chosen is not None:
        raise InvalidInputError(
            "Both overwriteMode and partitionOverwriteMode select the rows to replace.",
            hint="Give overwriteMode alone.",
        )
    return _OVERWRITE_MODES_OF_SPARK[of_spark]


def creation_options(texts: OptionTexts) -> CreationOptions | None:
    """Take the options for creating a missing dataset; None if none allows it."""
    may_create = texts.flag("create")
    given = {
        "partition_by": texts.text("partitionBy"),
        "index": texts.names("index"),
        "format": texts.text("fileFormat"),
        "compression": texts.text("compression"),
    }
    named = {name: value for name, value in given.items() if value is not None}
    if may_create is False or (may_create is None and not named):
        return None
    return CreationOptions(**named)  # type: ignore[arg-type]  # each under its own name


def file_options(texts: OptionTexts) -> FileOptions:
    """Take the limits of data files."""
    usual = FileOptions()
    return FileOptions(
        target_bytes=texts.size("targetBytes") or usual.target_bytes,
        row_group_bytes=texts.size("rowGroupBytes") or usual.row_group_bytes,
        memory_bytes=texts.size("memoryBytes") or usual.memory_bytes,
    )
