"""Records that name erased rows beside the data: manifests, logs of cleanups, ready signals.

Manifests and logs list data files, and their directories may show a value. A file that an erasure
has taken out is known by its mark, others by their directories.
"""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import zstandard

from lakebed.common.decoding import UNREADABLE
from lakebed.errors import (
    CorruptMetadataError,
    LakebedError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from lakebed.model.key_rows import named_values
from lakebed.model.keys import BATCH_ID, new_file_name, partition_of_label
from lakebed.model.layout import TABLE, Folder
from lakebed.model.sql_predicates import parse_sql
from lakebed.model.values import format_value
from lakebed.state import reservation
from lakebed.state.erased_files import mark_of, marks_in, without_samples
from lakebed.state.reservation import BatchRecord, ScopeNote
from lakebed.state.state import State
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import MAX_DOCUMENT_BYTES, decompress
from lakebed.work.certificate import LeftPlace
from lakebed.work.erased_rows import ErasureCondition, told_by_path
from lakebed.work.former_layouts import FormerLayouts
from lakebed.work.inventory import Inventory


@dataclass(kw_only=True)
class Records:
    """The manifests, logs and signals of a dataset, after an erasure.

    Attributes:
        store: The store that holds the dataset.
        inventory: All objects of the dataset.
        condition: The condition on the rows.
        left: Receives what could not be changed.
    """

    store: Store
    inventory: Inventory
    condition: ErasureCondition
    left: list[LeftPlace] = field(default_factory=list)

    @property
    def _state(self) -> State:
        return self.inventory.state

    @cached_property
    def _layouts(self) -> FormerLayouts:
        return FormerLayouts(self._state, self.inventory.entries)

    @cached_property
    def _marks(self) -> frozenset[str]:
        return marks_in(self.inventory.entries)

    def scrub_manifests(self, batches: Collection[int]) -> int:
        """Take the files that will be deleted out of the manifests of their batches.

        Directories of partitions name values, also of files that were deleted long ago. So all
        manifests count if the condition is one on partitions.

        Returns:
            The number of manifests that were written again.

        Cost:
            One GET for each manifest, and one PUT for each that changes.
        """
        condition = self.condition
        if condition.lines is None and self._layouts.names_partitions(condition.predicate):
            batches = reservation.listed(self.store, self._state.name)
        count = 0
        for batch_id in batches:
            key = reservation.key_of(self._state.name, batch_id)
            try:
                stored = self.store.get(key)
                record = reservation.decode_record(stored.data, key)
            except (ObjectNotFoundError, CorruptMetadataError):
                continue
            after = self._without(record)
            if after != record:
                count += self._is_replaced(stored, reservation.encode_record(after))
        return count

    def _without(self, record: BatchRecord) -> BatchRecord:
        """Return a manifest without files that were taken out, and without samples.

        That of a batch that may still be committed has no such file; see
        `lakebed.work.erased_batches`.
        """
        files, staged = record.files or (), record.staging
        is_open = staged is not None and self._may_be_committed(record.batch_id)
        key = self._state.layout.key
        kept = [file for file in files if is_open or mark_of(key(file.label)) not in self._marks]
        if staged is not None:
            left = {partition_of_label(file.label) for file in kept}
            lost = {partition_of_label(file.label) for file in files} - left
            if is_open:
                scope = self._open_scope(record.batch_id, staged.scope, left)
            else:
                scope = self._closed_scope(record.batch_id, staged.scope, lost)
                staged = without_samples(staged)
            staged = msgspec.structs.replace(
                staged,
                scope=scope,
                foreign_added=self._unmarked(staged.foreign_added),
                foreign_removed=self._unmarked(staged.foreign_removed),
            )
        return msgspec.structs.replace(
            record, files=None if record.files is None else tuple(kept), staging=staged
        )

    def _may_be_committed(self, batch_id: int) -> bool:
        return batch_id in self.inventory.reserved and self._state.may_commit(batch_id)

    def _unmarked(self, labels: Iterable[str]) -> tuple[str, ...]:
        key = self._state.layout.key
        return tuple(label for label in labels if mark_of(key(label)) not in self._marks)

    def _open_scope(self, batch_id: int, scope: ScopeNote, left: Collection[str]) -> ScopeNote:
        """Return the scope of a batch that may still be committed.

        It loses partitions of which neither the batch nor the current version has a file. A view
        cannot be changed.
        """
        if scope.view is not None and self._is_named_in(scope.view):
            self.left.append(
                LeftPlace(
                    place="records of batches",
                    what=f"The staged batch {batch_id} replaces a view that names a value.",
                    remedy="Publish or discard the batch, and erase again.",
                )
            )
        return _with_partitions(scope, lambda path: path in left or path in self._live)

    def _closed_scope(self, batch_id: int, scope: ScopeNote, lost: Collection[str]) -> ScopeNote:
        """Return the scope of a batch that is committed, or cannot be: no commit needs it."""
        if scope.view is not None and (lost or self._is_named_in(scope.view)):
            return msgspec.structs.replace(scope, view=None)
        name = new_file_name(self._state.lineage.number)
        labels = {
            f"{path}/{BATCH_ID}={batch_id}/{name}": path for path in scope.partitions or () if path
        }
        told = {labels[one] for one in told_by_path(self._layouts, self.condition, labels)}
        return _with_partitions(scope, lambda path: path not in told and path not in lost)

    @cached_property
    def _live(self) -> frozenset[str]:
        return frozenset(map(partition_of_label, self._state.labels))

    def _is_named_in(self, view: str) -> bool:
        """Return whether a view of whole partitions names a value of the condition, or may do so."""
        try:
            predicate = parse_sql(view, self._layouts.level_types)
        except LakebedError:
            return True
        return any(self._is_named(column, format_value(v)) for column, v in named_values(predicate))

    @cached_property
    def _named(self) -> frozenset[tuple[str, str]]:
        values = named_values(self.condition.predicate)
        return frozenset((column, format_value(value)) for column, value in values)

    def _is_named(self, column: str, text: str) -> bool:
        """Return whether the condition names a value of a column, or of what the column is made of."""
        return any(
            (one, text) in self._named
            for one in (column, *self._layouts.level_sources.get(column, ()))
        )

    def named_signals(self) -> list[str]:
        """Return the keys of the ready signals of views that name an erased value."""
        folder = f"{Folder.SIGNALS.of(self._state.name)}/"
        found = []
        for info in self.inventory.objects if self._named else ():
            if not info.key.startswith(folder):
                continue
            try:
                document = msgspec.json.decode(self.store.get(info.key).data)
                pairs = urllib.parse.parse_qsl(document["constraints"])
            except (*UNREADABLE, KeyError, TypeError, AttributeError, ObjectNotFoundError):
                continue
            if any(
                self._is_named(column, one) for column, text in pairs for one in text.split(",")
            ):
                found.append(info.key)
        return found

    def scrub_logs(self) -> int:
        """Take keys whose directories name the rows out of the logs of cleanups."""
        folder = f"{Folder.CLEANUPS.of(self._state.name)}/"
        prefix = f"{self._state.name}/{TABLE}/"
        suffix = self._state.descriptor.file_suffix
        count = 0
        for info in self.inventory.objects:
            if not info.key.startswith(folder):
                continue
            try:
                stored = self.store.get(info.key)
            except ObjectNotFoundError:
                continue  # a cleanup keeps the newest logs alone
            try:
                document = msgspec.json.decode(decompress(stored.data, MAX_DOCUMENT_BYTES))
                labels = {
                    one["key"]: one["key"].removeprefix(prefix).removesuffix(suffix)
                    for one in document["files"]
                }
            except (
                *UNREADABLE,
                zstandard.ZstdError,
                MemoryError,
                KeyError,
                TypeError,
                AttributeError,
            ):
                self.left.append(
                    LeftPlace(
                        place="logs of cleanups",
                        what=f"{info.key} cannot be read.",
                        remedy="Delete it: it is a log alone.",
                    )
                )
                continue
            told = told_by_path(self._layouts, self.condition, labels.values())
            told |= {label for key, label in labels.items() if mark_of(key) in self._marks}
            if not told:
                continue
            document["files"] = [
                {**one, "key": f"{prefix}…/{_short(one['key'])}"}
                if labels[one["key"]] in told
                else one
                for one in document["files"]
            ]
            data = zstandard.ZstdCompressor().compress(msgspec.json.encode(document))
            count += self._is_replaced(stored, data)
        return count

    def _is_replaced(self, stored: StoredObject, data: bytes) -> bool:
        """Replace an object; return False if a cleanup has deleted it."""
        try:
            self.store.replace(stored.key, data, if_match=stored.etag)
        except PreconditionFailedError:
            try:
                self.store.get(stored.key)
            except ObjectNotFoundError:
                return False
            raise
        return True


def _with_partitions(scope: ScopeNote, is_kept: Callable[[str], bool]) -> ScopeNote:
    if scope.partitions is None:
        return scope
    return msgspec.structs.replace(scope, partitions=tuple(filter(is_kept, scope.partitions)))


def _short(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
