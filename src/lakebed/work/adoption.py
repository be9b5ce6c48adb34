"""Adoption: existing files of Parquet or Avro become a dataset in place.

A dataset refers to objects in its own directory only. So a table can be adopted in place if its
files lie in a directory of the repository: the directory becomes the dataset's, and its name the
dataset's name. The head is written next to it, new batches go into it, and no file is moved. Only
the footers of Parquet files are read; Avro has none, so its files are read whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import hashlib
import os
import re
import stat
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakebed import by
from lakebed.arrow.footers import (
    THREADS,
    difference,
    find_damaged_text,
    read_footers,
    sound_footers,
    unreadable_times,
    widest,
    without_nulls,
)
from lakebed.arrow.formats.avro_files import AvroReader
from lakebed.arrow.formats.parquet import column_facts, with_instants
from lakebed.arrow.workers import Threads, Workers
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    NotFoundError,
    PartitionSpecError,
    SchemaMismatchError,
)
from lakebed.model.arrow_types import schema_from_arrow, without_uuids
from lakebed.model.declared import Check
from lakebed.model.descriptor import COMPRESSIONS, DatasetDescriptor
from lakebed.model.keys import (
    BATCH_ID,
    BATCH_IDS,
    NULL_VALUE,
    BatchIds,
    adopted_file_name,
    encode_level,
    encode_path,
    started_ms,
)
from lakebed.model.layout import Folder, is_copy_name, is_segment_name
from lakebed.model.lineage import Lineage
from lakebed.model.partition import PartitionStrategy
from lakebed.model.predicate import TRUE
from lakebed.model.schema import (
    MISSING,
    Field,
    Kind,
    Primitive,
    Schema,
    Type,
    limits_of,
    without_limits,
)
from lakebed.model.totals import known_total
from lakebed.model.values import Scalar, parse_value
from lakebed.state import file_table
from lakebed.state.facts import FileFacts, facts_table
from lakebed.state.lists import Lists
from lakebed.state.reader import Head, read_own_head
from lakebed.state.scope import Nothing, Scope, Several, TheseFiles, Unchanged
from lakebed.state.state import Change, State
from lakebed.state.taking_over import take_over
from lakebed.state.transaction import Transaction
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, is_listed
from lakebed.store.root import key_at, plain_location
from lakebed.work.batch_directories import (
    AdoptedBatch,
    FoundDirectory,
    FoundFile,
    Taken,
    judge_partition,
    limit_history,
    steps_of,
)
from lakebed.work.foreign import ForeignLog

# A batch id may be a date and a time with a `T` between them, which is dropped from the number.
_BATCH_NUMBER = r"([0-9]{8}T[0-9]{4}(?:[0-9]{2})?|[0-9]{1,18})"
_LEVEL_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# A field of `dt date, carrier`, and its type.
_KEY = re.compile(r"[\s,]*(?:`((?:[^`]|``)+)`|([^\s`,]+))([^`,]*)(?:,|\Z)")
_LIKE_A_BATCH = re.compile(rf"({_LEVEL_NAME.pattern})={_BATCH_NUMBER}")
# Directories that a dataset reserves for its own files.
OWN_FOLDERS = frozenset(Folder)

Footers = Mapping[str, pq.FileMetaData]

AVRO_MAGIC = b"Obj\x01"  # the first bytes of every Avro file
_AVRO_AT_ONCE = 4  # files, each of which is in memory
_REASONS = 3  # that a summary names; the batches list them all


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedVersion:
    """A version of a table that becomes one of the dataset.

    Attributes:
        operation: The operation that made it, such as `delta delete`.
        made_at: When, as the log of the table has it.
        batch_id: The batch of the files that no earlier version has; None if there are none.
        added: Keys of the files that it added.
        removed: Keys of the files that it removed.
    """

    operation: str
    made_at: dt.datetime
    batch_id: int | None
    added: tuple[str, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Files to adopt, and the role of each; returned by `Repository.adopt`.

    Attributes:
        name: Name of the dataset.
        descriptor: Descriptor of the new dataset.
        batches: The files of each batch in each partition, in order of both.
        files: All files that become part of the dataset or its history, in order of key.
        facts: Facts about these files; see `lakebed.state.facts`.
        batch_id: Batch id of files whose directories do not name one.
        log: Log of the table, if the files belong to one of another format.
        head: Head of the dataset of Kartothek, if the files belong to one; it is replaced.
        indices: Index files of that dataset under the labels of the new one, by column.
        versions: The versions of that table, oldest first, if they are adopted.
        notes: Remarks for the user.
        lineage: Lineage of the schema, if the columns of the files have ids; None for a new one.
    """

    name: str
    descriptor: DatasetDescriptor
    batches: tuple[AdoptedBatch, ...]
    files: tuple[FoundFile, ...]
    facts: pa.Table
    batch_id: int
    log: ForeignLog | None = None
    head: Head | None = None
    indices: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    versions: tuple[AdoptedVersion, ...] = ()
    notes: tuple[str, ...] = ()
    lineage: Lineage | None = None

    def taken_for(self, taken: Taken) -> tuple[AdoptedBatch, ...]:
        """Return the batches of one role: `current`, `history` or `left`."""
        return tuple(one for one in self.batches if one.taken_for == taken)

    def __str__(self) -> str:
        """Return a summary in a few sentences."""
        lines = [f"{_total(self.taken_for('current'))} become the dataset."]
        older, left = self.taken_for("history"), self.taken_for("left")
        if self.versions:
            lines.append(
                f"{_total(older)} that its newest version has no more become its history, of which a "
                "cleanup takes what is older than its retention."
            )
        elif older:
            lines.append(
                f"{_total(older)}, of {len({one.batch_id for one in older}):,} older batches, become "
                "its history; a cleanup deletes the part that is older than its retention."
            )
        if left:
            count = sum(len(one.files) for one in left)
            reasons = tuple(dict.fromkeys(one.reason for one in left))
            summary = "; ".join(reasons[:_REASONS]) + ("; …" if len(reasons) > _REASONS else "")
            lines.append(f"{count:,} files are left where they are: {summary}.")
        return " ".join((*lines, *self.notes))

    def __repr__(self) -> str:
        return f"<Adoption of {self.name!r}: {self}>"


def _total(batches: Sequence[AdoptedBatch]) -> str:
    rows = sum(one.row_count or 0 for one in batches)
    return f"{rows:,} rows in {sum(len(one.files) for one in batches):,} files"


@dataclass(frozen=True, slots=True)
class TablePartitions:
    """Directories of the files of a table, with their partition values.

    Attributes:
        directories: Each with the values of its partition fields as text, if they are known.
        keys: Types of the partition fields, by name and in order.
        schema: Schema of all columns; None to read it from the files.
    """

    directories: Sequence[tuple[str, Mapping[str, str | None] | None]]
    keys: Mapping[str, Type]
    schema: Schema | None


def find_adoption(
    store: Store,
    name: str,
    source: str | os.PathLike[str] | None,
    partition_by: Mapping[str, str] | Iterable[str] | str,
    read_table: Callable[[], TablePartitions] | None,
    current: Literal["newest", "all"] = "newest",
    batch_level: str = BATCH_ID,
    on_progress: OnProgress = NO_PROGRESS,
    workers: Workers | None = None,
) -> Adoption:
    """Inspect the files to adopt, and prove that they can be adopted; nothing is written.

    Args:
        store: The store of the repository.
        name: Name of the dataset, and of its directory.
        source: The directory; None for `<repository>/<name>`.
        partition_by: Names of the partition fields of a directory, in order, each with an optional
            type, as in `"dt date, carrier"`; the default type is string.
        read_table: Reads the partitions from a metastore, to adopt a table of one.
        current: The batches of a partition that are current.
        batch_level: Name of the directories of batches.
        on_progress: Callback for progress; receives the number of footers read so far.
        workers: Workers that read the files; None for threads.
    """
    pattern = _batch_pattern(batch_level)
    if current not in ("newest", "all"):
        raise InvalidInputError(f"current is {current!r}.", hint="Give 'newest' or 'all'.")
    if read_table is None:
        home = name if source is None else key_of(store, name, str(os.fspath(source)))
        table = TablePartitions([(home, None)], _parse_keys(partition_by, batch_level), None)
    else:
        table = read_table()
    keys = table.keys
    directories = [
        one
        for home, texts in table.directories
        for one in _directories(store, home, keys, texts, pattern)
    ]
    if not any(one.files for one in directories):
        raise NotFoundError(
            f"There is no file to adopt in {store.uri}/{name}.",
            hint="Name the directory that holds the partitions, or create a dataset.",
        )
    now = dt.datetime.now(dt.UTC)
    batches = _judged(directories, keys, now, current, batch_level)
    strategy = PartitionStrategy(tuple(by.identity(key) for key in keys))
    if _is_avro(store, batches):
        return _proven_avro(store, name, batches, strategy, table, on_progress, workers)
    return proven(
        store,
        name,
        batches,
        strategy,
        lambda live: table.schema or _schema_of(dict(sorted(live.items())), keys),
        on_progress=on_progress,
        workers=workers,
    )


def _batch_pattern(batch_level: str) -> re.Pattern[str]:
    """Return the pattern of the name of a batch directory, with the batch id as first group."""
    if not isinstance(batch_level, str) or _LEVEL_NAME.fullmatch(batch_level) is None:
        raise InvalidInputError(
            f"batch_level is {batch_level!r}.",
            hint="Give the name before the `=`, such as 'batchid' of batchid=1449784608.",
        )
    return re.compile(f"{re.escape(batch_level)}={_BATCH_NUMBER}")


def _parse_keys(
    partition_by: Mapping[str, str] | Iterable[str] | str, batch_level: str
) -> dict[str, Type]:
    if isinstance(partition_by, str):
        partition_by = [partition_by]
    if isinstance(partition_by, Mapping):
        pairs = list(partition_by.items())
    else:
        pairs = [pair for text in partition_by for pair in _pairs_in(text)]
    found: dict[str, Type] = {}
    for name, kind in pairs:
        if name in (BATCH_ID, batch_level):
            raise PartitionSpecError(
                f"Partition field {name!r} is taken: every batch has one of that name.",
                hint="Leave it out: a batch directory right above the files is recognized.",
            )
        try:
            found[name] = Primitive(Kind(kind.strip().lower() or "string"))
        except ValueError as exc:
            raise PartitionSpecError(
                f"Unknown type {kind.strip()!r} of partition field {name!r}.",
                hint=f"Known are: {', '.join(Kind)}.",
            ) from exc
    return found


def _pairs_in(text: str) -> list[tuple[str, str]]:
    """Return the fields of `dt date, carrier`, each with its type or the empty text."""
    pairs, start = [], 0
    while text[start:].strip(" ,"):
        match = _KEY.match(text, start)
        if match is None:
            raise PartitionSpecError(
                f"Cannot read the partition fields {text!r} at {text[start:].strip()[:40]!r}.",
                hint="Write them as 'dt date, carrier'; a name with other characters than letters, "
                "digits and '_' in backticks, as in '`flight no` long'.",
            )
        quoted, word, kind = match.groups()
        pairs.append((word if quoted is None else quoted.replace("``", "`"), kind))
        start = match.end()
    return pairs


def key_of(store: Store, name: str, location: str) -> str:
    """Return the key of a directory that must be the dataset's, or lie in it.

    Raises:
        InvalidInputError: The directory is elsewhere.
    """
    if ":" not in location.partition("/")[0]:
        location = f"file://{os.path.abspath(location)}"  # noqa: PTH100 - links in it must stay
    here = plain_location(location)
    key = key_at(store, here)
    if key is not None and (key == name or key.startswith(f"{name}/")):
        return key
    parent, _, directory = here.rpartition("/")
    raise InvalidInputError(
        f"{here} cannot be adopted in place as {name!r}: a dataset refers only to files in its own "
        f"directory, {store.uri}/{name}.",
        hint=f"Open the repository {parent} and adopt it there under the name {directory!r}; or "
        "read it in with append.",
    )


def _directories(
    store: Store,
    home: str,
    keys: Mapping[str, Type],
    texts: Mapping[str, str | None] | None,
    batch_pattern: re.Pattern[str],
) -> list[FoundDirectory]:
    """Return the directories under a home: a partition if `texts` are given, else a table."""
    levels_of_home = home.split("/")[1:]
    if levels_of_home and levels_of_home[0] in OWN_FOLDERS:
        raise InvalidInputError(
            f"{home!r} cannot be adopted: {levels_of_home[0]}/ is the dataset's own.",
            hint="Rename the directory.",
        )
    check_all_listed(store, home)
    found: dict[str, FoundDirectory] = {}
    for info in store.list(f"{home}/"):
        *levels, file = info.key[len(home) + 1 :].split("/")
        is_own = is_segment_name(file) or (levels[:1] == [Folder.ROOTS] and is_copy_name(file))
        if not levels_of_home and levels and levels[0] in OWN_FOLDERS and is_own:
            continue  # left by a failed attempt to adopt the directory, or by its creation
        mark = next((one for one in (*levels, file) if one.startswith(("_", "."))), None)
        if mark is not None:  # Spark and Hive do not read it
            levels = [*levels, file][: [*levels, file].index(mark)]
        directory = "/".join((home, *levels))
        is_partition = texts is not None or not keys
        batch = levels_of_home[-1] if is_partition and levels_of_home else ""
        if levels and batch_pattern.fullmatch(levels[-1]):
            batch = levels.pop()
        match = batch_pattern.fullmatch(batch)
        names = [level.partition("=")[0] for level in levels]
        if mark is not None and (texts is not None or match is None or names != list(keys)):
            continue  # ignored: for a table, the metastore names the current files
        if texts is not None and levels:
            raise _strange(info.key, "it lies deeper than its partition")
        if directory not in found:
            found[directory] = FoundDirectory(
                key=directory,
                texts=_texts(info.key, levels, keys) if texts is None else texts,
                batch_id=int(match[1].replace("T", "")) if match else None,
            )
        one = found[directory]
        if mark is not None:
            one.marks.add(mark)
        else:
            one.files.append(
                FoundFile(
                    key=info.key,
                    size_bytes=info.size_bytes,
                    texts=one.texts,
                    batch_id=one.batch_id,
                )
            )
    return list(found.values())


def check_all_listed(store: Store, home: str) -> None:
    """Refuse files that a listing leaves out: their rows would be missing silently.

    Names that begin with a dot are allowed: the writer of the directory hides them.

    Raises:
        InvalidInputError: There is a symbolic link, something else than a file or a directory, or a
            name that no key can have.
    """
    local_home = store.local_path(home)
    if local_home is None:
        return
    for directory, folders, names in os.walk(local_home):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *(name for name in names if not name.startswith("."))):
            path = os.path.join(directory, name)  # noqa: PTH118 - runs for each file of a table
            with contextlib.suppress(OSError):  # what is gone by now is none
                _check_regular(path, os.lstat(path).st_mode)
            if not is_listed(name):
                raise InvalidInputError(
                    f"{path!r} cannot be adopted: its name has a backslash, a control character or "
                    "invalid UTF-8, which no key of a store can have.",
                    hint="Rename it, or move it out of the directory.",
                )


def _check_regular(path: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise InvalidInputError(
            f"{path!r} is a symbolic link, and cannot be adopted: a dataset refers only to files in its "
            "own directory.",
            hint="Replace the link by its target, or remove it.",
        )
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InvalidInputError(
            f"{path!r} is a pipe, a socket or a device, and cannot be adopted: only regular files hold "
            "rows that stay.",
            hint="Remove it, or move it out of the directory.",
        )


def _texts(key: str, levels: Sequence[str], keys: Mapping[str, Type]) -> dict[str, str | None]:
    pairs = [level.partition("=") for level in levels]
    names = [urllib.parse.unquote(name) for name, _, _ in pairs]
    if names != list(keys) or not all(sign for _, sign, _ in pairs):
        wanted = "/".join(f"{one}=…" for one in keys) or "the directory itself"
        batch = _LIKE_A_BATCH.fullmatch(levels[-1]) if len(levels) == len(keys) + 1 else None
        raise _strange(key, f"it does not lie in {wanted}", "" if batch is None else batch[1])
    return {
        name: None if value == NULL_VALUE else urllib.parse.unquote(value)
        for name, (_, _, value) in zip(names, pairs, strict=True)
    }


def _strange(key: str, reason: str, batch_level: str = "") -> InvalidInputError:
    named = f" If {batch_level}=… are batches, give batch_level={batch_level!r}, or --batch-level."
    return InvalidInputError(
        f"{key!r} cannot be adopted: {reason}.",
        hint="Give the partition fields of the directory with partition_by, or --partition-by 'dt "
        f"date', and move other files out of it.{named if batch_level else ''}",
    )


def _judged(
    directories: Iterable[FoundDirectory],
    keys: Mapping[str, Type],
    now: dt.datetime,
    current: Literal["newest", "all"],
    batch_level: str,
) -> list[AdoptedBatch]:
    """Return the batches of each partition, each with its role."""
    found: dict[str, dict[int | None, list[FoundDirectory]]] = {}
    for one in directories:
        if one.batch_id is not None and started_ms(one.batch_id) > now.timestamp() * 1000:
            where = one.files[0].key if one.files else one.key
            raise _strange(where, f"its batch {one.batch_id} has not begun yet")
        path = _partition(one, keys)
        found.setdefault(path, {}).setdefault(one.batch_id, []).append(one)
    judged: list[AdoptedBatch] = []
    for path, by_id in sorted(found.items()):
        batches = [
            AdoptedBatch(
                partition=path,
                batch_id=number,
                files=tuple(file for one in same for file in one.files),
                taken_for="current",
                reason="no directory names its batch" if number is None else "all are current",
                marks=frozenset(mark for one in same for mark in one.marks),
            )
            for number, same in by_id.items()
        ]
        if current == "newest":
            judged += judge_partition(path, batches, batch_level)
        else:
            judged += [one for one in batches if one.files]
    return limit_history(judged)


def _partition(directory: FoundDirectory, keys: Mapping[str, Type]) -> str:
    values: dict[str, Scalar] = {}
    for name, kind in keys.items():
        text = directory.texts[name]
        try:
            values[name] = None if text is None else parse_value(text, kind, name)
        except InvalidInputError as exc:
            where = directory.files[0].key if directory.files else directory.key
            raise _strange(where, f"{exc.message.rstrip('.')}") from exc
    return encode_path(values)


def proven(
    store: Store,
    name: str,
    batches: Sequence[AdoptedBatch],
    strategy: PartitionStrategy,
    schema_of: Callable[[Footers], Schema],
    check_file: Callable[[str, pq.FileMetaData], None] = lambda _key, _footer: None,
    on_progress: OnProgress = NO_PROGRESS,
    *,
    differs: Callable[[pq.FileMetaData, Schema], str] = difference,
    index: Sequence[str] = (),
    known: Mapping[str, pq.FileMetaData] | None = None,
    remedy: str = "",
    checks: Mapping[str, Check] | None = None,
    workers: Workers | None = None,
) -> Adoption:
    """Read the footers of Parquet files, prove that their schemas match, and return the adoption.

    Args:
        store: The store that holds the files.
        name: Name of the dataset.
        batches: The batches with their roles.
        strategy: Partitioning of the dataset.
        schema_of: Returns the schema of the dataset for the footers of the current files.
        check_file: Raises an error if a current file differs from the log of its table.
        on_progress: Callback for progress; receives the number of footers read so far.
        differs: Returns why a file does not fit the fields that files hold; empty if it does.
        index: Indexed columns of the dataset.
        known: Footers that were read before, by key.
        remedy: Advice on a table that has a file that does not fit; empty for plain files.
        checks: Checks that the dataset declares.
        workers: Workers that read the footers; None for threads.

    Raises:
        NotFoundError: No file is current.
        SchemaMismatchError: A current file is not Parquet, has another schema, or has a bound
            that is not UTF-8.
    """
    sizes = {
        file.key: file.size_bytes
        for one in batches
        if one.taken_for != "left"
        for file in one.files
    }
    tally = Tally(on_progress, f"adopt {name}", sizes)
    footers = {
        **read_footers(store, sorted(sizes.keys() - (known or {}).keys()), tally.listener, workers),
        **(known or {}),
    }
    live = sound_footers(
        {
            file.key: footers[file.key]
            for one in batches
            if one.taken_for == "current"
            for file in sorted(one.files, key=lambda file: file.key)
        }
    )
    if not live:
        raise NotFoundError(
            f"The newest batch of each partition of {name!r} is empty, so the schema is unknown.",
            hint="Create a dataset; or treat all batches as current: --current all.",
        )
    form = _form_of(batches)
    descriptor = DatasetDescriptor(
        schema=schema_of(live),
        partition_by=strategy,
        index=index,
        checks=checks,
        properties={} if form is BatchIds.MILLISECONDS else {BATCH_IDS: str(form)},
    )
    stored = descriptor.stored_schema
    unread = unreadable_times(store, footers)
    for key, footer in live.items():
        check_file(key, footer)
        reason = differs(footer, stored) or unread.get(key, "")
        if reason:
            place = "does not fit the schema" if len(live) > 1 else "cannot be adopted"
            raise SchemaMismatchError(
                f"{key!r} {place}: {reason}.",
                hint=f"Nothing was written. {remedy or _remedy(store, name, key, reason)}",
            )
        damage = find_damaged_text(footer, stored)
        if damage:
            raise SchemaMismatchError(
                f"{key!r} cannot be adopted: {damage}.",
                hint="Nothing was written. Correct the file, such as with make_valid_utf8 in Spark.",
            )
    judged = tuple(_counted(one, footers, stored, differs, unread) for one in batches)
    taken = [file.key for one in judged if one.taken_for != "left" for file in one.files]
    sound = sound_footers({key: footers[key] for key in sorted(taken)})
    return _adoption_of(
        name,
        descriptor,
        judged,
        form,
        lambda file, label: _facts_of(file, sound[file.key], label, stored),
    )


def _remedy(store: Store, name: str, key: str, reason: str) -> str:
    """Return what to do with plain files of which one does not fit."""
    if "microseconds" in reason:
        file = repr(str(store.local_path(key) or f"{store.uri}/{key}"))
        return (
            "Cut its times, and adopt the directory then: `pyarrow.parquet.write_table("
            f"pyarrow.parquet.ParquetFile({file}).read(), {file}, coerce_timestamps='us', "
            "allow_truncated_timestamps=True)`."
        )
    if "is of type" not in reason:
        return f"Write the file {key!r} again so that it fits, or move it out of the directory."
    folder = store.local_path(name) or f"{store.uri}/{name}"
    if "of type UUID" in reason:
        return (
            "Import the files into another dataset, which makes texts of UUIDs: "
            f"`lakebed import {store.uri}/{name}_copy {folder}`."
        )
    return (
        "Write the rows as another dataset, which converts them: "
        f"`repository.write({f'{name}-copy'!r}, pyarrow.dataset.dataset({str(folder)!r}, "
        "partitioning='hive'))`."
    )


def _adoption_of(
    name: str,
    descriptor: DatasetDescriptor,
    judged: tuple[AdoptedBatch, ...],
    form: BatchIds,
    facts_of: Callable[[FoundFile, str], FileFacts],
) -> Adoption:
    """Return the adoption of batches whose roles are known.

    Args:
        name: Name of the dataset.
        descriptor: Descriptor of the dataset.
        judged: All batches.
        form: Form of their batch ids.
        facts_of: Returns the facts of a file that is taken, under a label.
    """
    newest = max(one.batch_id or 0 for one in judged)
    batch_id = max(form.of(dt.datetime.now(dt.UTC)), form.after(newest))
    taken = sorted(
        ((file, one.partition) for one in judged if one.taken_for != "left" for file in one.files),
        key=lambda pair: pair[0].key,
    )
    facts = [facts_of(file, label_of(file, partition, batch_id)) for file, partition in taken]
    return Adoption(
        name=name,
        descriptor=descriptor,
        batches=judged,
        files=tuple(file for file, _ in taken),
        facts=facts_table(facts, descriptor.stored_schema),
        batch_id=batch_id,
    )


def _is_avro(store: Store, batches: Iterable[AdoptedBatch]) -> bool:
    """Return whether the first current file is of Avro; names of Hive's files do not tell."""
    keys = sorted(f.key for one in batches if one.taken_for == "current" for f in one.files)
    if not keys:
        return False
    with store.open_input(keys[0]) as source:
        return bytes(source.read(len(AVRO_MAGIC))) == AVRO_MAGIC


def _proven_avro(
    store: Store,
    name: str,
    batches: Sequence[AdoptedBatch],
    strategy: PartitionStrategy,
    table: TablePartitions,
    on_progress: OnProgress,
    workers: Workers | None,
) -> Adoption:
    """Read all rows of Avro files under the schema of all of them, and return the adoption.

    The schemas are those that the files hold: a metastore does not have all types of Avro.

    Raises:
        InvalidInputError: A current file cannot be read.
    """
    reader = AvroReader()
    taken = {f.key: f for one in batches if one.taken_for != "left" for f in one.files}
    live = sorted(f.key for one in batches if one.taken_for == "current" for f in one.files)

    def header(key: str) -> tuple[Schema, str]:
        try:
            with store.open_input(key) as source:
                return reader.header(source)
        except (CorruptMetadataError, SchemaMismatchError) as exc:
            raise _unfit_avro(key, exc) from exc

    headers = list(at_once(header, live, THREADS))
    compression = headers[-1][1]
    form = _form_of(batches)
    descriptor = DatasetDescriptor(
        schema=_avro_schema([schema for schema, _ in headers], table),
        partition_by=strategy,
        format="avro",
        compression=compression if compression in COMPRESSIONS["avro"] else None,
        properties={} if form is BatchIds.MILLISECONDS else {BATCH_IDS: str(form)},
    )
    stored = descriptor.stored_schema
    tally = Tally(
        on_progress, f"adopt {name}", {key: file.size_bytes for key, file in taken.items()}
    )

    workers = workers or Threads(_AVRO_AT_ONCE)
    report = workers.listening(tally.listener)

    def read(keys: tuple[str, ...]) -> _ReadAvro:
        proof: dict[str, tuple[int, str]] = {}
        wrong: dict[str, InvalidInputError] = {}
        for key in keys:
            data = store.get(key).data
            try:
                row_count = sum(b.num_rows for b in reader.batches(pa.BufferReader(data), stored))
            except (CorruptMetadataError, SchemaMismatchError, pa.ArrowException) as exc:
                wrong[key] = _unfit_avro(key, exc)
                continue
            report(key)
            proof[key] = row_count, f"sha256:{hashlib.sha256(data).hexdigest()}"
        return _ReadAvro(proof=proof, wrong=wrong)

    proof: dict[str, tuple[int, str]] = {}
    wrong: dict[str, InvalidInputError] = {}
    for part in workers.map(read, workers.shares(tuple(taken)), _ReadAvro):
        proof |= part.proof
        wrong |= part.wrong
    unfit = next((wrong[key] for key in live if key in wrong), None)
    if unfit is not None:
        raise unfit
    judged = tuple(_avro_counted(one, proof, wrong) for one in batches)
    return _adoption_of(
        name,
        descriptor,
        judged,
        form,
        lambda file, label: FileFacts(
            label=label,
            row_count=proof[file.key][0],
            size_bytes=file.size_bytes,
            checksum=proof[file.key][1],
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadAvro:
    """Rows and checksums of files of Avro by key, and the errors."""

    proof: dict[str, tuple[int, str]]
    wrong: dict[str, InvalidInputError]


def _avro_schema(written: Iterable[Schema], table: TablePartitions) -> Schema:
    """Return the fields of all files, then those that only the table has, then the keys."""
    fields: dict[str, Field] = {}
    for schema in written:
        for field in schema:
            # Nulls are possible: another file may lack the field.
            first = fields.setdefault(field.name, replace(field, nullable=True, default=MISSING))
            if limits_of(first.type) != limits_of(field.type):  # such as other symbols
                (fields[field.name],) = without_limits([first])
    known = {name.lower() for name in (*fields, *table.keys)}
    for field in table.schema or ():
        if field.name.lower() not in known:
            fields[field.name] = replace(field, nullable=True)
    own = (Field(name=name, type=kind) for name, kind in table.keys.items())
    return Schema(
        fields=(*(field for name, field in fields.items() if name not in table.keys), *own)
    )


def _unfit_avro(key: str, exc: Exception) -> InvalidInputError:
    error = exc if isinstance(exc, LakebedError) else None
    reason = (str(exc) if error is None else error.message).split("\n")[0].rstrip(".")
    return InvalidInputError(
        f"{key!r} cannot be adopted: {reason}.",
        hint="Nothing was written. Read the files in with import, which converts them.",
    )


def _avro_counted(
    one: AdoptedBatch,
    proof: Mapping[str, tuple[int, str]],
    wrong: Mapping[str, InvalidInputError],
) -> AdoptedBatch:
    """Return a batch with its row count; one with a file that cannot be read gets the role `left`."""
    if one.taken_for == "left":
        return one
    unfit = next((wrong[file.key] for file in one.files if file.key in wrong), None)
    if unfit is not None:
        return one.left(unfit.message.rstrip("."))
    return replace(one, row_count=sum(proof[file.key][0] for file in one.files))


def _facts_of(file: FoundFile, footer: pq.FileMetaData, label: str, stored: Schema) -> FileFacts:
    return FileFacts(
        label=label,
        row_count=footer.num_rows,
        size_bytes=file.size_bytes,
        checksum="",  # unknown: only the footer was read
        columns={
            column: known
            for column, known in column_facts(footer).items()
            if column in stored and stored.get(column).type not in _UNCERTAIN
        },
    )


def _form_of(batches: Iterable[AdoptedBatch]) -> BatchIds:
    """Return the form of the batch ids of other tools if all batches share one; else ours."""
    forms = {
        BatchIds.MILLISECONDS if one.batch_id is None else BatchIds.written_as(one.batch_id)
        for one in batches
    }
    return forms.pop() if len(forms) == 1 else BatchIds.MILLISECONDS


def _counted(
    one: AdoptedBatch,
    footers: Mapping[str, pq.FileMetaData | SchemaMismatchError],
    stored: Schema,
    differs: Callable[[pq.FileMetaData, Schema], str],
    unread: Mapping[str, str],
) -> AdoptedBatch:
    """Return a batch with its row count; an older one of another schema gets the role `left`."""
    if one.taken_for == "left":
        return one
    rows = 0
    for file in one.files:
        footer = footers[file.key]
        if isinstance(footer, SchemaMismatchError):
            return one.left(f"{footer.message.rstrip('.')}")
        reason = differs(footer, stored) or unread.get(file.key, "")
        if reason:
            return one.left(f"{file.key!r} is of another schema: {reason}")
        rows += footer.num_rows
    return replace(one, row_count=rows)


# Another writer may order values of these types differently, so their bounds are not used. Old
# releases of Arrow wrote the bounds of unsigned numbers as those of signed ones.
_UNCERTAIN = (
    Primitive(Kind.STRING),
    Primitive(Kind.BYTES),
    Primitive(Kind.UNSIGNED_LONG),
)


def _schema_of(footers: Mapping[str, pq.FileMetaData], keys: Mapping[str, Type]) -> Schema:
    """Return the fields of the first file, then those that only later files have, then the keys."""
    fields: dict[str, pa.Field] = {}
    for key, footer in footers.items():
        # INT96 has no time zone, but Spark reads it as an instant.
        for field in with_instants(footer.schema.to_arrow_schema(), footer):
            if field.name in keys:
                continue
            known = fields.get(field.name)
            own = without_uuids(field.type)
            kind = own if known is None else widest(known.type, own)
            fields[field.name] = pa.field(field.name, kind)
            try:
                schema_from_arrow(pa.schema([pa.field(field.name, without_nulls(kind))]))
            except InvalidInputError as exc:
                exc.message = f"{key!r} cannot be adopted: {exc.message}"
                exc.hint = f"Nothing was written. {exc.hint}"
                raise
    # A field without values is text, as where a schema is inferred.
    found = schema_from_arrow(
        pa.schema([field.with_type(without_nulls(field.type)) for field in fields.values()])
    )
    own = tuple(Field(name=name, type=kind) for name, kind in keys.items())
    return Schema(fields=(*found.fields, *own))


def label_of(file: FoundFile, partition: str, batch_id: int) -> str:
    """Return the label of an adopted file.

    Args:
        file: The file.
        partition: Path of its partition.
        batch_id: Batch id of the adoption, for a file whose directory does not name one.
    """
    level = encode_level(BATCH_ID, batch_id if file.batch_id is None else file.batch_id)
    path = file.key.partition("/")[2]
    return "/".join(filter(None, (partition, level, adopted_file_name(path))))


def commit_adoption(store: Store, dataset: str, adoption: Adoption) -> None:
    """Commit the adopted files and their history to a dataset that was just created.

    All versions become visible by one put. No failure deletes a file of the table: the commit has
    no batch of its own.

    Raises:
        CommitConflictError: Another writer has written to the dataset, or adopted the files,
            meanwhile.
        CommitUnknownError: The store stopped answering.
    """
    created = read_own_head(store, dataset).state
    if created.version:
        raise CommitConflictError(
            f"Dataset {dataset!r} was written to before its files could be adopted.",
            hint="Its files are part of it already; there is nothing to adopt.",
            expected=0,
            actual=created.version,
        )
    segment = file_table.new_segment(dataset, adoption.facts)
    assert segment is not None  # there is at least one file
    *earlier, last = _changes(created, adoption)
    with Transaction.on(store, created, "adopt") as transaction:
        transaction.put(segment.key, file_table.encode(adoption.facts))
        if adoption.log is not None:
            adoption.log.check_unmoved(store)
        edits = Lists(files=(segment,)).additions()
        transaction.commit(msgspec.structs.replace(last, edits=edits, earlier=tuple(earlier)))


def take_over_kartothek(store: Store, adoption: Adoption, head: Head) -> State:
    """Make a dataset of Kartothek one of ours, by one put of its head.

    Raises:
        CommitConflictError: The dataset was written to meanwhile; nothing was adopted.
        CommitUnknownError: The store stopped answering.
    """
    partitions = {file.key: one.partition for one in adoption.batches for file in one.files}
    labels = tuple(
        label_of(file, partitions[file.key], adoption.batch_id) for file in adoption.files
    )
    return take_over(
        store,
        head,
        adoption.descriptor,
        labels=labels,
        facts=adoption.facts,
        batch_id=adoption.batch_id,
        indices=adoption.indices,
    )


def _changes(created: State, adoption: Adoption) -> list[Change]:
    """Return the change that makes each version, the current one last."""
    # Two concurrent adoptions find the same files; only one of them may commit.
    alone = Unchanged(TRUE, created.layout.partition_level_types)
    if adoption.versions:
        return [*_changes_of_log(adoption), Change(scope=alone)]
    steps = steps_of(adoption.batches)
    live: dict[str, tuple[str, ...]] = {}
    counts: dict[str, int | None] = {}  # of the entities that are live, by partition
    changes: list[Change] = []
    for step in steps:
        is_last = step is steps[-1]
        added: dict[str, list[str]] = {}
        for one in step.batches:
            added.setdefault(one.partition, []).extend(
                label_of(file, one.partition, adoption.batch_id) for file in one.files
            )
        replaced = frozenset(label for path in added for label in live.get(path, ()))
        scope: Scope = TheseFiles.of(replaced) if replaced else Nothing()
        changes.append(
            Change(
                batch_id=adoption.batch_id if is_last and step.batch_id is None else step.batch_id,
                added=tuple(label for labels in added.values() for label in labels),
                row_count=sum(one.row_count or 0 for one in step.batches),
                removed_row_count=known_total([counts[path] for path in added if path in live])
                if replaced
                else None,
                scope=Several((scope, alone)) if is_last else scope,
            )
        )
        live.update({path: tuple(labels) for path, labels in added.items()})
        counts |= {
            path: known_total([one.row_count for one in step.batches if one.partition == path])
            for path in added
        }
    return changes


def _changes_of_log(adoption: Adoption) -> Iterator[Change]:
    """Yield the change for each version of the table, with its own time."""
    partitions = {file.key: one.partition for one in adoption.batches for file in one.files}
    labels = {
        file.key: label_of(file, partitions[file.key], adoption.batch_id) for file in adoption.files
    }
    counts = dict(zip(labels, adoption.facts.column("row_count").to_pylist(), strict=True))
    for version in adoption.versions:
        gone = frozenset(labels[key] for key in version.removed)
        yield Change(
            operation=version.operation,
            made_at=version.made_at,
            batch_id=version.batch_id,
            added=tuple(labels[key] for key in version.added),
            row_count=sum(counts[key] for key in version.added),
            removed_row_count=sum(counts[key] for key in version.removed) if gone else None,
            scope=TheseFiles.of(gone) if gone else Nothing(),
        )
