"""Records that name erased rows beside the data: manifests, logs of cleanups, ready signals.

Manifests and logs list data files, and their directories may show a value. A file that an erasure
has taken out is known by its mark, others by their directories.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
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
from lakebed.model.evaluate import matches
from lakebed.model.keys import partition_of_label
from lakebed.model.layout import TABLE, Folder
from lakebed.model.predicate import (
    And,
    Comparison,
    Leaf,
    Like,
    Membership,
    Or,
    Predicate,
    all_of,
    columns_of,
    formulas_of,
    leaves,
)
from lakebed.model.refinement import LOWER, UPPER
from lakebed.model.sql_predicates import parse_sql
from lakebed.model.uri import parse_constraints, parse_uri
from lakebed.model.values import Scalar, format_value
from lakebed.plan.indices import names_values
from lakebed.state import reservation
from lakebed.state.erased_files import mark_of, marks_in, without_samples
from lakebed.state.reservation import BatchRecord, ScopeNote
from lakebed.state.signals import UNBOUNDED
from lakebed.state.state import State
from lakebed.store.at_once import at_once
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import MAX_DOCUMENT_BYTES, decompress
from lakebed.work.certificate import LeftPlace
from lakebed.work.erased_rows import ErasureCondition, told_by_path
from lakebed.work.former_layouts import FormerLayouts
from lakebed.work.inventory import Inventory

_AT_ONCE = 8


@dataclass(kw_only=True)
class Records:
    """The manifests, logs and signals of a dataset, after an erasure.

    Attributes:
        store: The store that holds the dataset.
        inventory: All objects of the dataset.
        layouts: The layouts that its files were written under.
        condition: The condition on the rows.
        left: Receives what could not be changed.
    """

    store: Store
    inventory: Inventory
    layouts: FormerLayouts
    condition: ErasureCondition
    left: list[LeftPlace] = field(default_factory=list)

    @property
    def _state(self) -> State:
        return self.inventory.state

    @cached_property
    def _marks(self) -> frozenset[str]:
        return marks_in(self.inventory.entries)

    def scrub_manifests(self) -> int:
        """Take files that were taken out, samples and names of partitions out of all manifests.

        Directories of partitions name values, also of files that were deleted long ago.

        Returns:
            The number of manifests that were written again.

        Cost:
            A LIST; one GET for each manifest, eight at a time; one PUT for each that changes.
        """
        batches = list(reservation.listed(self.store, self._state.name))
        count = 0
        for stored, record in filter(None, at_once(self._read, batches, _AT_ONCE)):
            after = self._without(record)
            if after != record:
                count += self._is_replaced(stored, reservation.encode_record(after))
        return count

    def _read(self, batch_id: int) -> tuple[StoredObject, BatchRecord] | None:
        key = reservation.key_of(self._state.name, batch_id)
        try:
            stored = self.store.get(key)
            return stored, reservation.decode_record(stored.data, key)
        except (ObjectNotFoundError, CorruptMetadataError):
            return None

    def _without(self, record: BatchRecord) -> BatchRecord:
        """Return a manifest without files that were taken out, and without samples.

        That of a batch that may still be committed has no such file; see
        `lakebed.work.erased_batches`. No commit needs the scope of another one.
        """
        staged = record.staging
        is_open = staged is not None and self._may_be_committed(record.batch_id)
        if record.files is not None and not is_open:
            files = tuple(one for one in record.files if self._is_kept(one.label))
            record = msgspec.structs.replace(record, files=files)
        if staged is None:
            return record
        staged = msgspec.structs.replace(
            without_samples(staged),
            scope=self._open_scope(record, staged.scope) if is_open else ScopeNote(),
            foreign_added=tuple(filter(self._is_kept, staged.foreign_added)),
            foreign_removed=tuple(filter(self._is_kept, staged.foreign_removed)),
        )
        return msgspec.structs.replace(record, staging=staged)

    def _is_kept(self, label: str) -> bool:
        """Return whether no erasure has taken a file out."""
        return mark_of(self._state.layout.key(label)) not in self._marks

    def _may_be_committed(self, batch_id: int) -> bool:
        """Return whether a batch may be committed; it may have been staged after the inventory."""
        return batch_id not in self._committed and self._state.may_commit(batch_id)

    @cached_property
    def _committed(self) -> frozenset[int | None]:
        return frozenset(entry.batch_id for entry in self.inventory.entries)

    def _open_scope(self, record: BatchRecord, scope: ScopeNote) -> ScopeNote:
        """Return the scope of a batch that may still be committed.

        It loses partitions of which neither the batch nor the current version has a file. A view
        cannot be changed.
        """
        if scope.view is not None and self._names(self._parsed(scope.view)):
            self.left.append(
                LeftPlace(
                    place="records of batches",
                    what=f"The staged batch {record.batch_id} replaces a view that names a value.",
                    remedy="Publish or discard the batch, and erase again.",
                )
            )
        if scope.partitions is None:
            return scope
        own = {partition_of_label(file.label) for file in record.files or ()}
        kept = (path for path in scope.partitions if path in own or path in self._live)
        return msgspec.structs.replace(scope, partitions=tuple(kept))

    @cached_property
    def _live(self) -> frozenset[str]:
        return frozenset(map(partition_of_label, self._state.labels))

    def _parsed(self, view: str) -> Predicate | None:
        try:
            return parse_sql(view, self.layouts.column_types)
        except LakebedError:
            return None

    def _names(self, view: Predicate | None) -> bool:
        """Return whether a view names a value of the condition; True if that cannot be seen."""
        if view is None or any(
            name in self._naming for formula in formulas_of(view) for name in formula.columns
        ):
            return True
        return any(
            self._is_named(leaf.column, format_value(value))
            for leaf in leaves(view)
            for value in _values_of(leaf)
        )

    @cached_property
    def _naming(self) -> Mapping[str, list[Predicate]]:
        """Parts of the condition that name values, by the columns that views may have them under."""
        naming: dict[str, list[Predicate]] = {}
        for part in _parts_that_name(self.condition.predicate):
            (column,) = columns_of(part)
            root, dot, inner = column.partition(".")
            fields = {column, root, *self.layouts.former_names.get(root, ())}
            levels = (
                level
                for level, sources in self.layouts.level_sources.items()
                if not fields.isdisjoint(sources)
            )
            for one in {*levels, *(f"{name}{dot}{inner}" for name in fields), *fields}:
                naming.setdefault(one, []).append(part)
        return naming

    def _is_named(self, column: str, text: str) -> bool:
        """Return whether the condition names a value that a view has for a column."""
        for part in self._naming.get(column, ()):
            if isinstance(part, Comparison | Membership):
                if any(format_value(value) == text for value in _values_of(part)):
                    return True
            elif matches(part, {columns_of(part)[0]: text}):
                return True
        return False

    def named_signals(self) -> list[str]:
        """Return the keys of the ready signals of views that name an erased value."""
        folder = f"{Folder.SIGNALS.of(self._state.name)}/"
        return [
            info.key
            for info in self.inventory.objects
            if self._naming and info.key.startswith(folder) and self._is_of_named(info.key)
        ]

    def _is_of_named(self, signal: str) -> bool:
        """Return whether a ready signal is of a view that names an erased value."""
        try:
            text = msgspec.json.decode(self.store.get(signal).data)["constraints"]
            if text == UNBOUNDED:
                return False
            address = parse_uri(f"view:/{self._state.name}?{text}")
            view = parse_constraints(address.constraints, self.layouts.column_types)
        except LakebedError as exc:
            return not isinstance(exc, ObjectNotFoundError)
        except (*UNREADABLE, KeyError, TypeError):
            return False
        return self._names(view)

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
            told = told_by_path(self.layouts, self.condition, labels.values())
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


def _parts_that_name(condition: Predicate) -> Iterator[Predicate]:
    """Yield the parts of a condition that name values of one column.

    They are `=`, `IN`, LIKE, and ranges of texts, such as those of a common beginning.
    """
    match condition:
        case And(parts) | Or(parts):
            for part in parts:
                yield from _parts_that_name(part)
        case Like(negated=False):
            yield condition
        case Comparison() | Membership() if names_values(condition):
            yield condition
    if isinstance(condition, And):
        ends = [
            part
            for part in condition.parts
            if isinstance(part, Comparison) and isinstance(part.value, str)
        ]
        for column in dict.fromkeys(part.column for part in ends):
            of_column = [part for part in ends if part.column == column]
            if all(any(part.op in side for part in of_column) for side in (LOWER, UPPER)):
                yield all_of(of_column)


def _values_of(leaf: Leaf) -> tuple[Scalar, ...]:
    """Return the values that a condition is written with."""
    match leaf:
        case Comparison(value=value):
            return (value,)
        case Membership(values=values):
            return values
        case Like(pattern=pattern):
            return (pattern,)
    return ()


def _short(key: str) -> str:
    return hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
