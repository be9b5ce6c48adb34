"""Options of streams, in addition to those of batch reads and writes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self, get_args

from lakebed.datasource.options import (
    BATCH_READS,
    BATCH_WRITES,
    STREAM_READS,
    OptionTexts,
    ReadOptions,
    SaveOptions,
    creation_options,
    file_options,
)
from lakebed.errors import InvalidInputError
from lakebed.work.commits import OnChange
from lakebed.work.epochs import SinkOptions

LATEST = "latest"
_OF_SPARK = ("checkpointLocation", "queryName")  # options that Spark adds to a query


def is_of_stream(options: Mapping[str, str]) -> bool:
    """Return whether only a streaming read has such options."""
    return any(STREAM_READS.spelling_of(name) for name in options)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions:
    """Options of a streaming read.

    Attributes:
        read: Options shared with batch reads: dataset or view, columns, condition.
        starting_version: The first version whose rows are read; None for another start.
        starts_latest: True to begin after the current version.
        starting_time: Time of the start: the first version that was committed then or later.
        starting_batch_id: Batch of the start: the version that its commit made.
        max_files: Data files of one micro-batch; None for no limit.
        max_bytes: Bytes of the data files of one micro-batch, which has at least one file; None for
            no limit.
        on_change: Reaction to a commit that removed rows.
        has_change_columns: True to add `_change`, `_version` and `_batch_id`.
    """

    read: ReadOptions
    starting_version: int | None = None
    starts_latest: bool = False
    starting_time: dt.datetime | None = None
    starting_batch_id: int | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    on_change: OnChange = "fail"
    has_change_columns: bool = False

    def __post_init__(self) -> None:
        if self.read.address.version is not None:
            raise InvalidInputError(
                "A stream cannot read a single version: it reads commits from a version on.",
                hint="Give the option startingVersion.",
            )
        given = [
            name
            for name, is_given in (
                ("startingVersion", self.starting_version is not None or self.starts_latest),
                ("startingTimestamp", self.starting_time is not None),
                ("startingBatchId", self.starting_batch_id is not None),
            )
            if is_given
        ]
        if len(given) > 1:
            raise InvalidInputError(
                f"{' and '.join(given)} each select a start.", hint="Give one of them."
            )

    @property
    def is_limited(self) -> bool:
        """Return whether a micro-batch has a limit."""
        return self.max_files is not None or self.max_bytes is not None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them.

        Raises:
            InvalidInputError: An option is unknown, cannot be read, or contradicts another.
        """
        texts = OptionTexts(options)
        starts_latest = _is_latest(options)
        version = None
        if starts_latest:
            texts.text("startingVersion")
        else:
            version = texts.whole_number("startingVersion")
        on_change = texts.choice("onChange", get_args(OnChange))
        parsed = cls(
            read=ReadOptions(
                address=texts.address(),
                storage=texts.storage(),
                columns=texts.names("columns"),
                where=texts.text("where") or "",
                split_bytes=texts.size("splitBytes"),
            ),
            starting_version=version,
            starts_latest=starts_latest,
            starting_time=texts.moment("startingTimestamp"),
            starting_batch_id=texts.whole_number("startingBatchId"),
            max_files=texts.whole_number("maxFilesPerTrigger", at_least=1),
            max_bytes=texts.size("maxBytesPerTrigger"),
            on_change=next((word for word in get_args(OnChange) if word == on_change), "fail"),
            has_change_columns=texts.flag("changeColumns") or False,
        )
        texts.refuse_others(BATCH_READS)
        return parsed


def _is_latest(options: Mapping[str, str]) -> bool:
    texts = {name.lower(): text.lower() for name, text in options.items()}
    return texts.get("startingversion") == LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWriteOptions:
    """Options of a streaming write.

    Attributes:
        write: Options shared with batch writes: dataset, lease, creation, files.
        sink: Settings of the sink, such as compaction.
    """

    write: SaveOptions
    sink: SinkOptions = field(default_factory=SinkOptions)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Self:
        """Parse options as Spark passes them.

        Raises:
            InvalidInputError: An option is unknown, cannot be read, or contradicts another.
        """
        texts = OptionTexts(options)
        for name in _OF_SPARK:
            texts.text(name)
        parsed = cls(
            write=SaveOptions(
                address=texts.address(),
                storage=texts.storage(),
                lease=texts.text("lease"),
                creation=creation_options(texts),
                files=file_options(texts),
            ),
            sink=SinkOptions(
                compact_every=texts.whole_number("compactEvery") or 0,
                compact_target_bytes=texts.size("compactTargetBytes"),
            ),
        )
        texts.refuse_others(BATCH_WRITES)
        return parsed
