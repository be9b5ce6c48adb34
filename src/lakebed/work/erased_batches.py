"""Staged batches without erased rows: new files, facts, postings, and a manifest that names them.

The manifest is replaced under its etag. A commit that has read the old one is refused afterwards,
since the commit of the erasure marks the old files as taken out; if it was faster, the erasure
exchanges the files in the head as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import (
    CorruptMetadataError,
    ObjectNotFoundError,
    PreconditionFailedError,
    VersionNotFoundError,
)
from lakebed.index.postings_writer import merge_segments
from lakebed.index.segment import file_ids_of, open_segment
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import batch_id_of, file_ids
from lakebed.model.layout import TABLE
from lakebed.state import file_table, reservation
from lakebed.state.erased_files import mark_of, marks_in, without_samples
from lakebed.state.reservation import BatchRecord, Staging
from lakebed.state.state import State
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import Segment
from lakebed.work import staging
from lakebed.work.erased_rows import (
    ErasureCondition,
    HoldingFile,
    Rest,
    search,
    write_rest,
)
from lakebed.work.former_layouts import FormerLayouts


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedBatch:
    """A staged batch with rows to erase.

    Attributes:
        record: Its manifest.
        found: Its files with such rows.
    """

    record: BatchRecord
    found: tuple[HoldingFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFiles:
    """The staged batches of a dataset, as far as an erasure concerns them.

    Attributes:
        searched: Number of their files that were searched.
        batches: Batches with rows to erase.
        orphans: Files in the directories of staged batches that no manifest names any more, since
            an erasure was killed before its commit, and that hold such rows.
        unreadable: Keys of files that cannot be searched.
    """

    searched: int = 0
    batches: tuple[StagedBatch, ...] = ()
    orphans: tuple[HoldingFile, ...] = ()
    unreadable: tuple[str, ...] = ()


def find_staged(store: Store, layouts: FormerLayouts, condition: ErasureCondition) -> StagedFiles:
    """Search the files of staged batches.

    Cost:
        A LIST of the manifests, and one GET for each batch that is not committed. If a batch is
        staged, a LIST of the data files, and a search of its files.
    """
    records = staging.find_all(store, layouts.state, layouts.entries)
    if not records:
        return StagedFiles()
    batches: list[StagedBatch] = []
    searched = 0
    unreadable: list[str] = []
    named: set[str] = set()
    for record in records:
        labels = [file.label for file in record.files or ()]
        named.update(labels)
        result = search(store, layouts, condition, labels)
        searched += len(labels)
        unreadable += result.unreadable
        if result.found:
            batches.append(StagedBatch(record=record, found=result.found))
    ids = {record.batch_id for record in records}
    key, marks = layouts.state.layout.key, marks_in(layouts.entries)
    orphans = [
        label
        for label in _listed(store, layouts.state, ids)
        if label not in named and mark_of(key(label)) not in marks and layouts.knows(label)
    ]
    return StagedFiles(
        searched=searched,
        batches=tuple(batches),
        orphans=search(store, layouts, condition, orphans).found if orphans else (),
        unreadable=tuple(unreadable),
    )


def _listed(store: Store, state: State, ids: set[int]) -> Iterator[str]:
    """Yield the labels of the files in the directories of some batches."""
    prefix, suffix = f"{state.name}/{TABLE}/", state.descriptor.file_suffix
    for info in store.list(prefix):
        label = info.key.removeprefix(prefix).removesuffix(suffix)
        if info.key.endswith(suffix) and batch_id_of(label) in ids:
            yield label


def rewrite_staged(
    store: Store, layouts: FormerLayouts, batch: StagedBatch
) -> dict[str, tuple[str, ...]] | None:
    """Write a staged batch without rows, and replace its manifest.

    Returns:
        The labels that take the place of each file; None if the batch was committed or discarded
        meanwhile: then nothing has changed.

    Raises:
        LakebedError: A file cannot be read, or the store failed. The new files are deleted.
    """
    state, record = layouts.state, batch.record
    key = reservation.key_of(state.name, record.batch_id)
    try:
        stored = store.get(key)
        if reservation.decode_record(stored.data, key) != record or record.staging is None:
            return None
    except (ObjectNotFoundError, VersionNotFoundError):
        return None
    rest = write_rest(store, layouts, batch.found)
    written = [one for part in rest.by_label.values() for one in part.keys(state.layout)]
    try:
        erases = erases_of(batch.found, rest)
        after = _without(store, state, record, record.staging, batch.found, rest, written)
        store.replace(key, reservation.encode_record(after), if_match=stored.etag)
    except PreconditionFailedError:
        delete_or_leave(store, written)
        return None
    return erases


def erases_of(found: Sequence[HoldingFile], rest: Rest) -> dict[str, tuple[str, ...]]:
    """Return the labels that take the place of each file."""
    return {
        one.label: rest.by_label[one.label].labels if one.label in rest.by_label else ()
        for one in found
    }


def _without(
    store: Store,
    state: State,
    record: BatchRecord,
    staged: Staging,
    found: Sequence[HoldingFile],
    rest: Rest,
    written: list[str],
) -> BatchRecord:
    """Return a manifest after an erasure; write the segments that it names."""
    gone = {one.label for one in found}
    new = {label: part.manifest for label, part in rest.by_label.items()}
    files = tuple(
        one
        for file in record.files or ()
        for one in (new.get(file.label, ()) if file.label in gone else (file,))
    )
    facts = None
    if staged.facts is not None:
        table = file_table.decode(store.get(staged.facts).data, staged.facts)
        is_gone = pc.is_in(table.column("label"), pa.array(sorted(gone), pa.string()))
        parts = [table.filter(pc.invert(is_gone)), *(part.facts for part in rest.by_label.values())]
        data = file_table.encode_joined(parts)
        facts = _put(
            store, file_table.new_segment(state.name, file_table.decode(data, "")), data, written
        )
    postings = {
        column: (
            *_pairs(store, state, column, keys, gone, written),
            *(
                segment.key
                for part in rest.by_label.values()
                for segment in part.postings.get(column, ())
            ),
        )
        for column, keys in staged.postings.items()
    }
    return msgspec.structs.replace(
        record,
        files=files,
        staging=msgspec.structs.replace(
            without_samples(staged),
            row_count=sum(file.row_count for file in files),
            facts=facts,
            postings={column: keys for column, keys in postings.items() if keys},
        ),
    )


def _put(store: Store, segment: Segment | None, data: bytes, written: list[str]) -> str | None:
    if segment is None:
        return None
    written.append(segment.key)
    store.put(segment.key, data)
    return segment.key


def _pairs(
    store: Store,
    state: State,
    column: str,
    keys: Sequence[str],
    gone: set[str],
    written: list[str],
) -> Iterator[str]:
    """Yield the segments of a column without the pairs of some files.

    One that is damaged is left out, and so are those of a column that was dropped meanwhile.
    """
    types = state.layout.file_column_types
    if column not in types:
        return
    kind = type_to_arrow(types[column])
    for key in keys:
        segment = Segment.parse(key, state.name)
        try:
            ids, _ = file_ids_of(store, open_segment(store, segment)[0])
            kept = np.setdiff1d(ids, file_ids(sorted(gone)))
            if len(kept) == len(ids):
                yield key
            elif len(kept):
                merged = merge_segments(
                    store, state.name, column, [segment], kind, kept_ids=np.sort(kept)
                )
                written.append(merged.segment.key)
                store.put(merged.segment.key, merged.data)
                yield merged.segment.key
        except CorruptMetadataError:
            continue
