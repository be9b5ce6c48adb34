"""Tables of other formats as their own logs describe them: the live files and the columns.

The libraries of the formats read the logs. Their findings are converted to the classes of this
module, so one proof serves all formats.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.parquet as pq

from lakebed.arrow.footers import difference
from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.model.declared import Check
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Schema
from lakebed.model.values import Scalar
from lakebed.store.base import Store

CheckFooter = Callable[[pq.FileMetaData], str]
"""Returns the reason why a file cannot be read by the names of its columns; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """A live file of a table.

    Attributes:
        size_bytes: Length of the file, from the log.
        row_count: Number of rows, from the log; None if the log does not have it.
        values: Values of the partition fields.
    """

    size_bytes: int
    row_count: int | None
    values: Mapping[str, Scalar]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignLog:
    """The versions of a table that a folder holds, at one moment.

    Attributes:
        title: Name of the table in messages.
        folder: The directory of the log.
        pattern: Regular expression for the names of objects that make a version.
        names: Names of the objects that were there.
    """

    title: str
    folder: str
    pattern: str
    names: frozenset[str]

    @classmethod
    def read(cls, store: Store, title: str, folder: str, pattern: str) -> ForeignLog:
        """List the versions that are there now.

        Cost:
            One LIST for each thousand objects of the log.
        """
        listed = (info.key.rpartition("/")[2] for info in store.list(folder, recursive=False))
        names = frozenset(name for name in listed if re.fullmatch(pattern, name))
        return cls(title=title, folder=folder, pattern=pattern, names=names)

    def check_unmoved(self, store: Store) -> None:
        """Check that no version was made since.

        Raises:
            CommitConflictError: The log has a new version.
        """
        later = ForeignLog.read(store, self.title, self.folder, self.pattern).names - self.names
        if later:
            raise CommitConflictError(
                f"{self.title} was written to while it was adopted: {max(later)!r} is new in "
                f"{self.folder!r}.",
                hint="Nothing was adopted. Stop the writers of the table, and adopt it again.",
                expected=len(self.names),
                actual=len(self.names) + len(later),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignVersion:
    """A version of a table, as the difference from the version before it.

    Attributes:
        name: Name or number of the version in its format.
        operation: The operation that made it, such as `delta delete`.
        made_at: When, as its log has it.
        added: The files that it added, by key.
        removed: Keys of the files that it removed.
        obstacle: Why the rows of this version cannot be read from its files; empty if they can.
    """

    name: str
    operation: str
    made_at: dt.datetime
    added: Mapping[str, ForeignFile]
    removed: frozenset[str]
    obstacle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTable:
    """The newest version of a table of another format.

    Attributes:
        title: Name of the table in messages, such as `Delta table 'flights'`.
        version: The version as its format names it.
        schema: All columns.
        strategy: Partitions of the table, as far as a dataset can have them.
        files: The live files by key.
        log: The versions that were there when the table was read.
        check_footer: Check for the footer of each live file.
        differs: Returns why a file does not fit the fields that files hold; empty if it does.
        notes: Differences between the table and the dataset.
        history: The versions of its log, oldest first, up to this one; empty if not requested.
        field_ids: Ids of the columns by path, if files have them; see
            `lakebed.model.field_ids.FieldIds`.
        last_field_id: The highest id that the table ever assigned.
        checks: Rules of the table that the dataset declares.
        remedy: How to read the rows of the table in, if its files cannot be adopted.
    """

    title: str
    version: str
    schema: Schema
    strategy: PartitionStrategy
    files: Mapping[str, ForeignFile]
    log: ForeignLog
    check_footer: CheckFooter
    differs: Callable[[pq.FileMetaData, Schema], str] = difference
    notes: tuple[str, ...] = ()
    history: tuple[ForeignVersion, ...] = ()
    field_ids: Mapping[str, int] | None = None
    last_field_id: int = 0
    checks: Mapping[str, Check] = field(default_factory=dict)
    remedy: str = "Read its rows by a library of the format, and append them."


def readable_history(
    history: Sequence[ForeignVersion], unfit: Mapping[str, str]
) -> tuple[tuple[ForeignVersion, ...], str]:
    """Return the longest end of a history in which every version can be read.

    A gap would make a question for a time in it find the wrong version.

    Args:
        history: Versions, oldest first.
        unfit: Files that cannot be read, by key, each with the reason.

    Returns:
        The versions, of which the first adds all of its files, and why the version before them
        cannot be read; empty if they are all.
    """
    live: dict[str, ForeignFile] = {}
    unfit_live: dict[str, str] = {}
    first, reason, held = 0, "", live
    for number, version in enumerate(history):
        for key in version.removed:
            live.pop(key, None)
            unfit_live.pop(key, None)
        live.update(version.added)
        unfit_live.update((key, unfit[key]) for key in version.added if key in unfit)
        obstacle = version.obstacle or next(iter(unfit_live.values()), "")
        if obstacle:
            first, reason = number + 1, f"version {version.name}: {obstacle}"
        elif number == first:
            held = dict(live)
    if first == len(history):
        return (), reason
    start = replace(history[first], added=held, removed=frozenset())
    return (start, *history[first + 1 :]), reason


def cannot_adopt(title: str, reason: str, remedy: str) -> InvalidInputError:
    """Return the error that refuses a table, with a remedy by the table's own tool."""
    return InvalidInputError(
        f"{title} cannot be adopted: {reason}.",
        hint=remedy
        if "repository.write" in remedy
        else f"{remedy} Or read its rows by a library of the format, and append them.",
    )
