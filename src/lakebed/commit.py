"""Value types that describe commits, and the schemas, partitions and files of a version."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from lakebed.common.html import facts_to_html, shortened
from lakebed.common.items import Items
from lakebed.common.shown import counted, shown
from lakebed.model.keys import BATCH_ID, decode_path, partition_of_label, split_label
from lakebed.model.schema import Schema, Type
from lakebed.model.totals import known_total
from lakebed.model.values import Scalar
from lakebed.state.after import NotPublished
from lakebed.state.caught import Caught
from lakebed.state.check_results import CheckOutcome
from lakebed.state.history import MERGE, UPDATE_ROWS, Entry
from lakebed.state.sources import SourceFile
from lakebed.state.state import FOREIGN, State
from lakebed.store.base import Store, validate_key

if TYPE_CHECKING:
    from lakebed.plan.partition_totals import PartitionTotals
    from lakebed.state.committing import Committed
    from lakebed.store.dry_run import DryRunStore

# Their rows stay the same, in other files.
_REARRANGING = frozenset({"compact", "promote"})
# Added files may hold rows of the removed ones; the entry records how many.
_MIXED = frozenset({"ingest", "transaction"})
# Operations of adopted tables, whose logs do not name the rows that were only rewritten.
_OF_LOGS = ("delta ", "iceberg ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """Row counts of one commit; None where the history does not record them.

    Attributes:
        inserted: Number of new rows.
        updated: Number of changed rows.
        deleted: Number of removed rows.
        rewritten: Number of unchanged rows in rewritten files.
    """

    inserted: int | None = None
    updated: int | None = None
    deleted: int | None = None
    rewritten: int | None = None

    @classmethod
    def of(cls, entry: Entry) -> ChangedRows:
        """Read the counts from an entry of any release."""
        added = entry.row_count
        removed = entry.removed_row_count if entry.removed else 0
        is_of_log = entry.operation.startswith(_OF_LOGS)
        if entry.operation == FOREIGN or (is_of_log and entry.added and entry.removed):
            return cls()
        if entry.operation in _REARRANGING:
            return cls(inserted=0, updated=0, deleted=0, rewritten=added)
        if entry.operation == "delete":
            # An earlier release that merges segments of the history drops the count.
            return cls(
                inserted=0, updated=0, deleted=entry.deleted_row_count or None, rewritten=added
            )
        if entry.operation in (MERGE, UPDATE_ROWS):
            if not (entry.inserted_row_count or entry.updated_row_count or entry.deleted_row_count):
                return cls()
            return cls(
                inserted=entry.inserted_row_count,
                updated=entry.updated_row_count,
                deleted=entry.deleted_row_count,
                rewritten=added - entry.inserted_row_count - entry.updated_row_count,
            )
        if entry.erased:
            return cls(inserted=0, updated=0, deleted=entry.deleted_row_count)
        if entry.operation == "rollback":
            return cls._of_files(entry, removed)
        if removed is None:
            return cls() if entry.operation in _MIXED else cls(inserted=added)
        rewritten = entry.rewritten_row_count
        return cls(
            inserted=added - rewritten,
            updated=0,
            deleted=removed - rewritten,
            rewritten=rewritten,
        )

    @classmethod
    def _of_files(cls, entry: Entry, removed: int | None) -> ChangedRows:
        """Read the counts of a rollback: added and removed files may hold the same rows."""
        if not entry.added:
            return cls(inserted=0, updated=0, deleted=removed, rewritten=0)
        if not entry.removed and entry.inserted_row_count == entry.row_count:
            return cls(inserted=entry.row_count, updated=0, deleted=0, rewritten=0)
        return cls()


_NAME_LENGTH = 30  # of a raw file, in the words for a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFilesRead:
    """The raw files that an ingest has read in one commit, by which its runs differ.

    Attributes:
        file_count: Number of the files.
        first: Name of the first of them, without its folders.
        what: Program or process that all of them are of; None if it differs, or without an archive.
        start: Earliest time of the files, as the archive records it; aware, UTC. None if unknown.
        end: Latest time of the files; None if unknown.

    >>> str(RawFilesRead(file_count=3, first="monday.jsonl"))
    'monday.jsonl and 2 more'
    >>> day = dt.datetime(2013, 6, 1, tzinfo=dt.UTC)
    >>> str(RawFilesRead(file_count=2, first="a.log", what="weather", start=day, end=day))
    '2 files of weather, 2013-06-01'
    """

    file_count: int
    first: str
    what: str | None = None
    start: dt.datetime | None = None
    end: dt.datetime | None = None

    def __str__(self) -> str:
        if self.file_count > 1 and self.what is not None and self.start is not None:
            return f"{self.file_count:,} files of {_shortened(self.what)}, {self.window}"
        more = f" and {self.file_count - 1:,} more" if self.file_count > 1 else ""
        return f"{_shortened(self.first)}{more}"

    @property
    def window(self) -> str:
        """The time of the files, as days if they are whole ones; empty if unknown."""
        if self.start is None:
            return ""
        last = self.end or self.start
        is_of_days = all(moment.time() == dt.time() for moment in (self.start, last))
        begin, end = (
            moment.strftime("%Y-%m-%d" if is_of_days else "%Y-%m-%d %H:%M")
            for moment in (self.start, last)
        )
        return begin if begin == end else f"{begin} to {end}"

    @classmethod
    def of(cls, files: Sequence[SourceFile]) -> Self:
        """Return the record of the files of one batch, of which there is at least one."""
        starts = [file.start for file in files if file.start is not None]
        ends = [end for file in files if (end := file.end or file.start) is not None]
        has_window = len(starts) == len(files)
        kinds = {file.what for file in files}
        return cls(
            file_count=len(files),
            first=(files[0].path or files[0].location).rstrip("/").rpartition("/")[2],
            what=next(iter(kinds)) if len(kinds) == 1 else None,
            start=min(starts) if has_window else None,
            end=max(ends) if has_window else None,
        )


def _shortened(name: str) -> str:
    """Return a name, or the end of a long one, in which names differ."""
    return name if len(name) <= _NAME_LENGTH else f"…{name[1 - _NAME_LENGTH :]}"


_REPLACING = frozenset({"overwrite", "rerun"})  # all deleted rows were in the named partitions
_CHANGES = ("inserted", "updated", "deleted", "rewritten")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The change from one version to the next.

    Attributes:
        dataset: Name of the dataset.
        version: The version that the commit made.
        commit_id: Id of the commit, stable over retries.
        operation: Such as `append` or `cleanup`, or `foreign` for changes of other tools;
            docs/format.md lists them.
        committed_at: Time of the commit; aware, UTC.
        batch_id: The batch that the commit made visible, if any.
        run: Name of the run, if it had one.
        row_count: Entities in the added files, including unchanged entities that were rewritten.
        inserted_row_count: Number of new entities.
        updated_row_count: Number of changed entities.
        deleted_row_count: Number of removed entities.
        rewritten_row_count: Number of unchanged entities in rewritten files. These four are None
            where the history does not record them: for commits of earlier releases and of other
            tools, and for a rollback that both removes files and brings some back.
        files_added: Keys of the added data files.
        files_removed: Keys of the removed data files; they stay on storage.
        replaced_partitions: Paths of the partitions of the removed files.
        partitions: Paths of the touched partitions; empty text if unpartitioned.
        caught: The values that the caps of dimensions sent to `OTHER`, by dimension.
        checks: Results of the declared checks: of the new rows, or of the rows that a newly declared
            check was tested on; empty for a commit without either.
        read: The raw files that an ingest has read in the commit, by which its runs differ; None for
            other commits. Only a history has it.
        not_published: Tables that the properties of the dataset name and that do not show the
            commit, with the reason; empty in a history, which does not record it.
        notes: Further messages for the caller, in sentences; the history does not keep them.
        is_dry_run: True if nothing was written: the commit that the verb would make. Its version,
            rows, partitions and number of files are those of the real one, if no other writer is
            faster; its ids, times and names of files are not.
        size_bytes: Total size of the added files in a dry run; None if Spark would write them, and
            for a real commit, whose files `Dataset.files` lists.

    >>> from lakebed import DatasetDescriptor, open_repository
    >>> repository = open_repository("memory://doctest-commit")
    >>> import pyarrow as pa
    >>> schema = pa.schema([("carrier", pa.string()), ("n", pa.int64())])
    >>> descriptor = DatasetDescriptor(schema=schema, partition_by="carrier")
    >>> commit = repository.create("flights", descriptor).append([{"carrier": "UA", "n": 1}])
    >>> commit.version, commit.operation, commit.row_count, commit.partitions
    (1, 'append', 1, ('carrier=UA',))
    """

    dataset: str
    version: int
    commit_id: str
    operation: str
    committed_at: dt.datetime
    batch_id: int | None
    run: str | None
    row_count: int
    inserted_row_count: int | None
    updated_row_count: int | None
    deleted_row_count: int | None
    rewritten_row_count: int | None
    files_added: tuple[str, ...]
    files_removed: tuple[str, ...]
    partitions: tuple[str, ...]
    replaced_partitions: tuple[str, ...] = ()
    caught: tuple[Caught, ...] = ()
    checks: tuple[CheckOutcome, ...] = ()
    read: RawFilesRead | None = field(default=None, compare=False)
    not_published: tuple[NotPublished, ...] = ()
    notes: tuple[str, ...] = ()
    is_dry_run: bool = False
    size_bytes: int | None = None

    def __repr__(self) -> str:
        run = f" of run {shown(self.run)}" if self.run else ""
        dry = " would be" if self.is_dry_run else ""
        return (
            f"<Commit{dry} {self.version}: {self.operation}{run}, {self.rows_in_words()}, "
            f"+{len(self.files_added):,} -{len(self.files_removed):,} files>"
        )

    def run_in_words(self) -> str | None:
        """Return the name of the run, with the raw files that it has read if they are known.

        Runs of an ingest share its name, and differ in their files: `daily: monday.jsonl`.
        """
        return self.run if self.read is None else f"{self.run or self.operation}: {self.read}"

    def rows_in_words(self) -> str:
        """Return the row counts in words: `1 row inserted, 365 deleted in 1 partition`.

        For an overwrite and a rerun they include the number of partitions with deleted rows.
        """
        words = self._counts_in_words()
        is_replacing = self.operation in _REPLACING and any(self.replaced_partitions)
        if not is_replacing or self.deleted_row_count == 0:
            return words
        where = counted(len(self.replaced_partitions), "partition")
        unknown = ", an unknown number deleted" if self.deleted_row_count is None else ""
        return f"{words}{unknown} in {where}"

    def _counts_in_words(self) -> str:
        counts = [(name, getattr(self, f"{name}_row_count")) for name in _CHANGES]
        known = [(name, count) for name, count in counts if count]
        if not known:
            if all(count is None for _, count in counts):
                return f"{counted(self.row_count, 'row')} in added files"
            return "no rows"
        (name, count), *others = known
        words = [f"{counted(count, 'row')} {name}", *(f"{n:,} {word}" for word, n in others)]
        return ", ".join(words)

    def _row_(self) -> dict[str, object]:
        return {
            "version": self.version,
            "operation": self.operation,
            "committed at": self.committed_at,
            "batch_id": self.batch_id,
            "run": self.run_in_words(),
            "rows": self._counts_in_words(),
            "files added": f"{len(self.files_added):,}",
            "removed": f"{len(self.files_removed):,}",
            "of partitions": f"{len(self.replaced_partitions):,}",
        }

    def _repr_html_(self) -> str:
        return facts_to_html(
            f"Commit {self.version}",
            {
                "operation": self.operation,
                "committed at": self.committed_at,
                "batch_id": "none" if self.batch_id is None else self.batch_id,
                "run": self.run_in_words() or "none",
                **{f"rows {name}": _count_of(self, name) for name in _CHANGES},
                "rows in added files": f"{self.row_count:,}",
                "files added": f"{len(self.files_added):,}",
                "files removed": f"{len(self.files_removed):,}",
                "of partitions": shortened(map(_shown_path, self.replaced_partitions)) or "none",
                "partitions": shortened(self.partitions),
                "sent to OTHER by a cap": shortened(map(str, self.caught)) or "nothing",
                **({"checks": shortened(map(str, self.checks))} if self.checks else {}),
                "not published": shortened(map(str, self.not_published)) or "nothing",
                "commit_id": self.commit_id,
                **({"notes": " ".join(self.notes)} if self.notes else {}),
                **({"dry run": "yes: nothing was written"} if self.is_dry_run else {}),
            },
        )

    @classmethod
    def of(cls, made: Entry | Committed, state: State, notes: tuple[str, ...] = ()) -> Self:
        """Make a commit from its entry in the history, or from the result of the transaction."""
        entry = made if isinstance(made, Entry) else made.entry
        changed = ChangedRows.of(entry)
        return cls(
            dataset=state.name,
            version=entry.version,
            commit_id=entry.commit_id,
            operation=entry.operation,
            committed_at=entry.committed_at,
            batch_id=entry.batch_id,
            run=entry.run,
            row_count=entry.row_count,
            inserted_row_count=changed.inserted,
            updated_row_count=changed.updated,
            deleted_row_count=changed.deleted,
            rewritten_row_count=changed.rewritten,
            files_added=tuple(map(state.layout.naming.key, entry.added)),
            files_removed=tuple(map(state.layout.naming.key, entry.removed)),
            partitions=entry.partitions,
            replaced_partitions=tuple(dict.fromkeys(map(partition_of_label, entry.removed))),
            caught=entry.caught,
            checks=entry.checks,
            not_published=() if isinstance(made, Entry) else made.not_published,
            notes=notes,
        )


def with_raw_files(commits: Iterable[Commit], files: Iterable[SourceFile]) -> Iterator[Commit]:
    """Yield commits, those of ingests with the raw files that they have read.

    Args:
        commits: The commits.
        files: The raw files that the dataset records.
    """
    by_batch: dict[int, list[SourceFile]] = {}
    for file in files:
        by_batch.setdefault(file.batch_id, []).append(file)
    for commit in commits:
        read = None if commit.batch_id is None else by_batch.get(commit.batch_id)
        yield commit if read is None else replace(commit, read=RawFilesRead.of(read))


def as_dry_run(commit: Commit, store: DryRunStore) -> Commit:
    """Return a commit that a verb has made on the store of a dry run, marked as one."""
    size_bytes = store.written_bytes(commit.files_added)
    is_known = size_bytes > 0 or not commit.row_count
    return replace(commit, is_dry_run=True, size_bytes=size_bytes if is_known else None)


def _shown_path(partition: str) -> str:
    return partition or "(all)"


def _count_of(commit: Commit, name: str) -> str:
    count = getattr(commit, f"{name}_row_count")
    return "unknown" if count is None else f"{count:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """A current or former schema of a dataset.

    Attributes:
        number: Number of the schema, from 1; the name of a data file contains it.
        version: The version of the dataset that introduced the schema.
        committed_at: Time of that commit; aware, UTC. None in a dataset of another tool.
        schema: The fields of an entity.
    """

    number: int
    version: int
    committed_at: dt.datetime | None
    schema: Schema

    def _row_(self) -> dict[str, object]:
        return {
            "number": self.number,
            "version": self.version,
            "committed at": self.committed_at,
            "fields": shortened(self.schema.names),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The entities that share the strategy's values.

    Attributes:
        path: Directory relative to the table; empty if unpartitioned.
        values: Typed value of each partition field.
        file_count: Live data files.
        row_count: Entities, or None if another tool wrote a file.
        size_bytes: Bytes of the files, or None if another tool wrote a file.
    """

    path: str
    values: Mapping[str, Scalar]
    file_count: int
    row_count: int | None
    size_bytes: int | None

    def _row_(self) -> dict[str, object]:
        return {
            "partition": self.path or "(all)",
            "files": f"{self.file_count:,}",
            "rows": None if self.row_count is None else f"{self.row_count:,}",
            "bytes": None if self.size_bytes is None else f"{self.size_bytes:,}",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A live data file.

    Attributes:
        key: Key of the file, relative to the repository.
        location: Absolute location, for other tools: a local path or a URL.
        partition: Path of its partition; empty if unpartitioned.
        batch_id: Id of its batch; None in a dataset of another tool.
        row_count: Entities, or None if another tool wrote it.
        size_bytes: Length, or None if another tool wrote it.
    """

    key: str
    location: str
    partition: str
    batch_id: int | None
    row_count: int | None
    size_bytes: int | None

    def _row_(self) -> dict[str, object]:
        return {
            "partition": self.partition or "(all)",
            "batch_id": self.batch_id,
            "rows": None if self.row_count is None else f"{self.row_count:,}",
            "bytes": None if self.size_bytes is None else f"{self.size_bytes:,}",
            "file": self.key.rpartition("/")[2],
        }


def files_of(
    store: Store, state: State, labels: Iterable[str], counts: Mapping[str, tuple[int, int]]
) -> Items[File]:
    """Return data files of a state, in the order of their labels.

    Args:
        store: The store that holds the files.
        state: The state that the files belong to.
        labels: Labels of the files to return.
        counts: Rows and bytes of each file, by label; a file of unknown counts is omitted.
    """
    layout, key_of = state.layout, state.layout.naming.key
    batch_ids: dict[str, int | None] = {}
    partitions: dict[str, str] = {}  # shared by the files of a partition, to save memory
    homes: dict[str, str] = {}  # absolute location of each directory
    files = []
    for label in labels:
        directory, key = split_label(label)[0], key_of(label)
        if directory not in batch_ids:
            value = layout.directory_values(directory).get(BATCH_ID) if layout.is_ours else None
            batch_ids[directory] = value if isinstance(value, int) else None
            partitions[directory] = layout.partition_of(label)
        row_count, size_bytes = counts.get(label, (None, None))
        above, _, name = validate_key(key).rpartition("/")
        if above not in homes:
            path = store.local_path(above)
            homes[above] = f"{store.uri}/{above}" if path is None else str(path)
        files.append(
            File(
                key=key,
                location=f"{homes[above]}/{name}",
                partition=partitions[directory],
                batch_id=batch_ids[directory],
                row_count=row_count,
                size_bytes=size_bytes,
            )
        )
    return Items(files)


def partitions_with(
    totals: Iterable[PartitionTotals], level_types: Mapping[str, Type]
) -> Items[Partition]:
    """Return partitions by their totals.

    Args:
        totals: The totals, ordered by path.
        level_types: The types of the directory levels in the layout of the state.
    """
    return Items(
        Partition(
            path=total.path,
            values=decode_path(total.path, level_types),
            file_count=total.file_count,
            row_count=total.row_count,
            size_bytes=total.size_bytes,
        )
        for total in totals
    )


def partitions_of(files: Iterable[File], level_types: Mapping[str, Type]) -> Items[Partition]:
    """Return the partitions of files, ordered by path.

    Args:
        files: Files of one state.
        level_types: The types of the directory levels in the layout of the state.
    """
    by_path: dict[str, list[File]] = {}
    for file in files:
        by_path.setdefault(file.partition, []).append(file)
    return Items(
        Partition(
            path=path,
            values=decode_path(path, level_types),
            file_count=len(inside),
            row_count=known_total([file.row_count for file in inside]),
            size_bytes=known_total([file.size_bytes for file in inside]),
        )
        for path, inside in sorted(by_path.items())
    )
