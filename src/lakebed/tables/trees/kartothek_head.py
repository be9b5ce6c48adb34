"""Adopt datasets of Kartothek and plateau: the files that their head names, with their indices.

The head is replaced by one of ours under the same key. Until then nothing that Kartothek reads is
changed; from then on Lakebed is its only writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakebed import by
from lakebed.arrow.footers import kartothek_difference
from lakebed.arrow.workers import Workers
from lakebed.common.html import shortened
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.errors import (
    CommitConflictError,
    CorruptMetadataError,
    DatasetExistsError,
    NotFoundError,
    ObjectNotFoundError,
)
from lakebed.index.kartothek_file import MAX_BYTES, read_index_file, relabelled
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.keys import BATCH_ID, encode_path, split_label
from lakebed.model.layout import INDEX_SUFFIX, SCHEMA_FILE
from lakebed.model.names import check_field_name
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Decimal, Primitive, walk
from lakebed.state.head import HeadDocument, decode_head
from lakebed.state.index_files import text_type
from lakebed.state.reader import Head, read_head
from lakebed.state.state import State, digest_of
from lakebed.store.base import Store
from lakebed.work.adoption import OWN_FOLDERS, Adoption, label_of, proven
from lakebed.work.batch_directories import AdoptedBatch, FoundFile
from lakebed.work.foreign import cannot_adopt

_LIST_FILES = "Let plateau commit to it once, which makes its head name the files."


def find_kartothek(
    store: Store,
    name: str,
    on_progress: OnProgress = NO_PROGRESS,
    workers: Workers | None = None,
) -> Adoption:
    """Prepare the adoption of a dataset of Kartothek, and check all its files.

    Args:
        store: The store of the repository.
        name: Name of the dataset.
        on_progress: Callback for progress; receives the number of footers read so far.
        workers: Workers that read the files; None for threads.

    Raises:
        DatasetNotFoundError: There is no dataset of the name.
        DatasetExistsError: Lakebed created it.
        InvalidInputError: The dataset cannot be adopted; the message has the reason.
        SchemaMismatchError: A file does not fit the schema.
        FormatError: The head or the schema file cannot be read, or the dataset has several tables.
        CommitConflictError: The dataset was written to meanwhile.

    Cost:
        One LIST of the directory, three or four GETs, a footer for each file, and one GET of each
        index.
    """
    head = read_head(store, name)
    title = f"Kartothek dataset {name!r}"
    if head.state.is_ours:
        raise DatasetExistsError(
            f"Dataset {name!r} in {store.uri} was created by Lakebed, not by Kartothek.",
            hint="Open it; there is nothing to adopt.",
        )
    document = _document(store, head, title)
    _check_head(head, document, title)
    descriptor = _descriptor(head.state, title)
    found, left = _files(store, head.state, title)
    by_partition: dict[str, list[FoundFile]] = {}
    for label, file in found.items():
        by_partition.setdefault(_partition(head.state, label, title), []).append(file)
    batches = [
        AdoptedBatch(
            partition=partition,
            batch_id=None,
            files=tuple(files),
            taken_for="current",
            reason="named by the head of Kartothek",
        )
        for partition, files in sorted(by_partition.items())
    ]
    adoption = proven(
        store,
        name,
        batches,
        descriptor.partition_by,
        lambda _: descriptor.schema,
        on_progress=on_progress,
        differs=kartothek_difference,
        index=descriptor.index,
        workers=workers,
    )
    partitions = {file.key: batch.partition for batch in batches for file in batch.files}
    labels = {
        old: label_of(file, partitions[file.key], adoption.batch_id) for old, file in found.items()
    }
    indices, notes = _indices(store, head.state, document, adoption.descriptor, labels)
    return replace(adoption, head=head, indices=indices, notes=(*_notes(left), *notes))


def _document(store: Store, head: Head, title: str) -> HeadDocument:
    stored = store.get(head.key)
    if stored.etag != head.etag:
        raise CommitConflictError(
            f"{title} was written to while it was read.",
            hint="Nothing was adopted. Stop its writers, and adopt it again.",
            expected=0,
            actual=0,
        )
    return decode_head(stored.data, head.state.head_format, head.key)


def _check_head(head: Head, document: HeadDocument, title: str) -> None:
    state = head.state
    if not head.is_alone:
        raise cannot_adopt(
            title,
            "it has two heads, in JSON and in msgpack",
            "Delete the head that is out of date.",
        )
    if not state.labels:
        raise NotFoundError(
            f"{title} has no files.", hint="Drop it, and create a dataset of this schema."
        )
    if document.partitions is None:
        raise cannot_adopt(
            title,
            "its head does not name the files, so that a new one would join them",
            _LIST_FILES,
        )
    if state.layout.table in OWN_FOLDERS:
        raise cannot_adopt(
            title,
            f"its table is called {state.layout.table!r}, as a folder of Lakebed",
            "Copy it with plateau under another table name.",
        )


def _descriptor(state: State, title: str) -> DatasetDescriptor:
    schema, layout = state.descriptor.schema, state.layout
    if BATCH_ID in schema:
        raise cannot_adopt(
            title,
            f"it has a column {BATCH_ID!r}, as Lakebed calls the batch of each row",
            "Rename the column in a copy.",
        )
    for _, field in walk(schema.fields):
        check_field_name(field.name)  # or our own head could not be read
    return DatasetDescriptor(
        schema=schema,
        partition_by=PartitionStrategy(tuple(map(by.identity, layout.partition_keys))),
        index=[
            column
            for column in state.indices
            if column not in layout.partition_keys
            and column in schema
            and isinstance(schema.get(column).type, Primitive | Decimal)
        ],
    )


def _files(store: Store, state: State, title: str) -> tuple[dict[str, FoundFile], int]:
    """Return the files by label, and the number of files that the head does not name."""
    listed = {info.key: info.size_bytes for info in store.list(f"{state.name}/")}
    found: dict[str, FoundFile] = {}
    for label in state.labels:
        key = state.layout.key(label)
        if key not in listed:
            missing = ObjectNotFoundError(f"The store has no {key!r}.")
            raise cannot_adopt(
                title,
                f"its file {key!r} is missing",
                "Restore it, or let plateau remove its label.",
            ) from missing
        found[label] = FoundFile(key=key, size_bytes=listed[key], texts={}, batch_id=None)
    named = {file.key for file in found.values()}
    left = sum(
        key not in named and not key.endswith((f"/{SCHEMA_FILE}", INDEX_SUFFIX))
        for key in listed
        if key.startswith(state.layout.naming.prefix)
    )
    return found, left


def _partition(state: State, label: str, title: str) -> str:
    try:
        return encode_path(state.layout.directory_values(split_label(label)[0]))
    except CorruptMetadataError as exc:
        # Kartothek does not quote a slash, and then reads another value than was written.
        raise cannot_adopt(
            title, exc.message.rstrip("."), "Write the rows of this file again with plateau."
        ) from exc


def _indices(
    store: Store,
    state: State,
    document: HeadDocument,
    descriptor: DatasetDescriptor,
    labels: Mapping[str, str],
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the index files under new labels, and notes on those that are left out."""
    texts = text_type(descriptor)
    assert texts is not None  # no property turns them off
    indices: dict[str, bytes] = {}
    lost: dict[str, str] = {
        column: "it is embedded in the head"
        for column, known in (document.indices or {}).items()
        if not isinstance(known, str)
    }
    digest = digest_of(state.labels)
    for column, key in state.indices.items():
        if column not in descriptor.index:
            lost[column] = "its column cannot have one"
            continue
        kind = descriptor.schema.get(column).type
        try:
            file, _ = read_index_file(
                store, state.name, column, key, kind, digest=digest, max_bytes=MAX_BYTES
            )
        except CorruptMetadataError as exc:
            lost[column] = exc.message.rstrip(".")
            continue
        data = None if file is None else relabelled(file, column, kind, labels, texts)
        if file is None:
            lost[column] = "its file is too large"
        elif data is None:
            lost[column] = f"index files of type {kind} cannot be kept up to date"
        else:
            indices[column] = data
    notes = [
        f"The index of {column!r} is not taken over: {reason}."
        for column, reason in sorted(lost.items())
    ]
    if indices:
        notes.insert(0, f"Indices are taken over: {shortened(indices)}.")
    return indices, tuple(notes)


def _notes(left: int) -> tuple[str, ...]:
    unnamed = (f"{left:,} files that its head does not name stay where they are.",) if left else ()
    return (
        *unnamed,
        "Stop all writers and garbage collections of Kartothek and plateau: from now on Lakebed "
        "writes the dataset.",
    )
