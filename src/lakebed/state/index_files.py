"""Kartothek's index files, which a commit keeps up to date if that is quick.

Other tools rely on the index of a column to know every live file. The file that was named before is
right for the next version once the removed files are taken out and the added ones are entered; their
postings come with the commit. A broken chain, for example after a commit of very many values,
starts again with the next compaction or build of the index.
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
# with an index of the small one.
_TEXTS = {"string": pa.string(), "large_string": pa.large_string()}
_OFF = "off"
_COLUMNS_AT_ONCE = 4


def text_type(descriptor: DatasetDescriptor) -> pa.DataType | None:
    """Return the type of texts in index files; None if index files are turned off."""
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
    """Write an index file under an unused key; return the key.

    The key is a time, as in Kartothek, so two writers may choose the same.

    Args:
        store: The store that holds the dataset.
        dataset: Name of the dataset.
        column: The indexed column.
        data: The bytes of the file.
        now: The time to try first.
        digest: The digest of the labels of all files that it covers.

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
    """The step from one version to the next.

    Attributes:
        before: The current state.
        after: The next state.
        changes: The changes between the two.
        added: Labels of new files, by id.
        removed: Labels of removed files.
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
        store: The store that holds the dataset.
        before: The current state.
        after: The next state, with its postings.
        changes: The changes of the commit.
        entries: The entries of these changes.
        written: Receives the key of each file that is written.

    Cost:
        Nothing if no index file was named. Else, for each, two requests if this process does
        not hold it, a GET for each new segment of postings, and one PUT.
    """
    texts = text_type(after.descriptor)
    has_same_schema = after.descriptor.schema == before.descriptor.schema
    columns = [
        column
        for column in after.descriptor.stored_index
        if column in before.indices or not before.live.count
    ]
    is_parquet = after.descriptor.format == "parquet"
    if not (columns and after.live.count and texts and has_same_schema and is_parquet):
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
    data_type = step.after.layout.file_column_types[column]
    segments = _new_segments(step, column)
    try:
        base: IndexFile | None = None
        if step.before.live.count:
            base, _ = read_index_file(
                store,
                step.before.name,
                column,
                step.before.indices[column],
                data_type,
                digest=step.before.digest,
                max_bytes=most_bytes(segments),
            )
            if base is None:
                return None
        return extended(store, column, base, step.removed, segments, data_type, step.added, texts)
    except (CorruptMetadataError, pa.ArrowException) as exc:
        _log.warning("index is not kept up for other tools column=%s: %s", column, exc)
        return None


def _new_segments(step: _Step, column: str) -> Sequence[Segment]:
    """Return the segments that cover the new files: those of the commit, or all.

    Files that a rollback restores have their postings already.
    """
    own = tuple(
        segment
        for change in step.changes
        for edit in change.edits
        if column_of(edit.name) == column
        for segment in edit.added
    )
    return own or (step.after.lists.postings.get(column, ()) if step.added else ())
