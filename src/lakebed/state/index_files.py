"""Kartothek's index files, which a commit keeps up where that does not take it long.

Other tools believe that the index of a column knows every live file. So the file that was named
before is right for the next version once it has lost the files that are taken out, and knows those
that are added; their postings come with the commit. A chain that is broken, as by a commit of very
many values, begins anew with the next compaction or build of the index.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakebed.errors import CorruptMetadataError, ObjectExistsError, StorageFullError
from lakebed.index.kartothek_file import (
    IndexFile,
    extended,
    hold_index_file,
    most_bytes,
    read_index_file,
)
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import file_ids
from lakebed.model.layout import index_key
from lakebed.state.history import Entry, net_labels
from lakebed.state.lists import column_of
from lakebed.state.state import Change, State
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.segments import Segment

_log = logging.getLogger(__name__)

PROPERTY = "kartothek.indices"
# kartothek 5.3 cannot read the large type; plateau 4.6 reads both, and refuses to update a dataset
# beside an index of the small one.
_TEXTS = {"string": pa.string(), "large_string": pa.large_string()}
_OFF = "off"
_COLUMNS_AT_ONCE = 4


def text_type(descriptor: DatasetDescriptor) -> pa.DataType | None:
    """Return the type that texts have in index files; None if there shall be no such files."""
    wanted = descriptor.properties.get(PROPERTY, "string")
    if wanted == _OFF:
        return None
    if wanted not in _TEXTS:
        known = ", ".join((*_TEXTS, _OFF))
        _log.warning("unknown property %s=%s; known: %s", PROPERTY, wanted, known)
    return _TEXTS.get(wanted, pa.string())


def put_index_file(
    store: Store, dataset: str, column: str, data: bytes, now: dt.datetime, *, digest: str
) -> str:
    """Write an index file under a key that nobody else has; return the key.

    The key is a time, as Kartothek has it: two writers may have the same.

    Args:
        store: Where the dataset is.
        dataset: Its name.
        column: That the file is of.
        data: The file.
        now: The time.
        digest: Of the labels of all files that it knows.

    Cost:
        One conditional PUT.
    """
    while True:
        key = index_key(dataset, column, now)
        try:
            store.create(key, data)
        except ObjectExistsError:
            now += dt.timedelta(microseconds=1)
        else:
            hold_index_file(store, key, data, digest)
            return key


@dataclass(frozen=True, slots=True)
class _Step:
    """From one version to the next.

    Attributes:
        before: What the head says.
        after: What it is to say.
        changes: That lead there.
        added: Labels of new files, by id.
        removed: Labels of files that are gone.
    """

    before: State
    after: State
    changes: Sequence[Change]
    added: dict[int, str]
    removed: Sequence[str]


def kept_up(
    store: Store,
    before: State,
    after: State,
    changes: Sequence[Change],
    entries: Sequence[Entry],
    written: list[str],
) -> dict[str, str]:
    """Return the index files to name after a commit that changes files, by column.

    Args:
        store: Where the dataset is.
        before: What the head says.
        after: What it is to say, with its postings.
        changes: That the commit makes.
        entries: Of these.
        written: Takes the key of each file that is written.

    Cost:
        Nothing where no index file was named. Else, for each, two requests if this process does
        not hold it, a GET for each new segment of postings, and one PUT.
    """
    texts = text_type(after.descriptor)
    has_same_schema = after.descriptor.schema == before.descriptor.schema
    columns = [
        column for column in after.descriptor.index if column in before.indices or not before.labels
    ]
    is_parquet = after.descriptor.format == "parquet"
    if not (columns and after.labels and texts and has_same_schema and is_parquet):
        return {}
    added, removed = net_labels(entries)
    ids = file_ids(added)
    if (ids < 0).any():
        return {}
    by_id = dict(zip(ids.tolist(), added, strict=True))
    step = _Step(before, after, changes, by_id, removed)

    now = dt.datetime.now(dt.UTC)

    def keep_up(column: str) -> str | None:
        data = _extended(store, step, column, texts)
        if data is None:
            return None
        try:
            key = put_index_file(store, after.name, column, data, now, digest=after.digest)
        except StorageFullError as exc:
            _log.warning("index is not written for other tools column=%s: %s", column, exc)
            return None
        written.append(key)
        return key

    keys = zip(columns, at_once(keep_up, columns, _COLUMNS_AT_ONCE), strict=True)
    return {column: key for column, key in keys if key is not None}


def _extended(store: Store, step: _Step, column: str, texts: pa.DataType) -> bytes | None:
    kind = step.after.layout.column_types[column]
    segments = _new_segments(step, column)
    try:
        base: IndexFile | None = None
        if step.before.labels:
            base, _ = read_index_file(
                store,
                step.before.name,
                column,
                step.before.indices[column],
                kind,
                digest=step.before.digest,
                max_bytes=most_bytes(segments),
            )
            if base is None:
                return None
        return extended(store, column, base, step.removed, segments, kind, step.added, texts)
    except (CorruptMetadataError, pa.ArrowException) as exc:
        _log.warning("index is not kept up for other tools column=%s: %s", column, exc)
        return None


def _new_segments(step: _Step, column: str) -> tuple[Segment, ...]:
    """Return the segments that know the new files: those of the commit, or all.

    What a rollback brings back has its postings already.
    """
    own = tuple(
        segment
        for change in step.changes
        for edit in change.edits
        if column_of(edit.name) == column
        for segment in edit.added
    )
    return own or (step.after.lists.postings.get(column, ()) if step.added else ())
