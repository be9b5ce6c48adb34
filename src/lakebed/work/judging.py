"""Declared checks at the commit: keys, references, batches, and rows that no writer has checked.

Every commit of a dataset that declares checks passes here right before its head is put, and again
if another writer was faster. So the results hold for the version that the commit makes.

- Checks of rows were applied by the writer, see `lakebed.arrow.row_checks`. A batch that was written
  without one, by Spark's own writer or before the check was declared, is read here instead.
- Keys and references are read from the new files. Partitions, statistics and indices select the
  other files that may hold one of the keys; often there are none.
- A commit that removes the rows which failed a check that only warns ends its warning: the rest is
  searched for others, up to the first.
- A commit that only rewrites rows is not checked. A rollback restores rows as they were: checks that
  were declared otherwise at that version are recorded as not checked.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from textwrap import shorten
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.arrow import scan
from lakebed.arrow.as_python import plain_columns
from lakebed.arrow.conform import with_one_zero_and_nan
from lakebed.common.plain import to_text
from lakebed.common.shown import counted
from lakebed.errors import DatasetNotFoundError, InvalidInputError, ObjectNotFoundError
from lakebed.model.declared import (
    Check,
    Fresh,
    Reference,
    RowCount,
    RowCountWithin,
    Unique,
    predicate_of,
)
from lakebed.model.descriptor import DatasetDescriptor, new_checks
from lakebed.model.layout import Folder
from lakebed.model.predicate import (
    TRUE,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    bind,
    complement,
    roots_of,
)
from lakebed.model.renaming import named_as
from lakebed.model.schema import dotted_types
from lakebed.model.values import is_nan
from lakebed.plan.search import plan
from lakebed.state import history
from lakebed.state.check_results import (
    MOST_EXAMPLES,
    UNMET,
    CheckOutcome,
    UnmetCheck,
    covers,
    failed,
    not_checked,
    passed,
    require,
    unmet_after,
)
from lakebed.state.history import Entry
from lakebed.state.reader import read_head
from lakebed.state.state import Change, State, descriptor_from
from lakebed.store.base import Store

_log = logging.getLogger(__name__)

MOST_VALUES = 100_000  # of a key that are searched for one by one; of more, only the bounds
_WIDTH = 80  # characters of a value in an example
# Operations whose rows come from outside, as one batch.
_BATCHES = frozenset({"append", "load", "ingest", "overwrite", "rerun", "transaction"})
# Their files hold rows that the dataset had.
_ONLY_REWRITING = frozenset({"compact", "delete", "promote"})
_ONLY_MOVING = frozenset({"compact", "promote"})  # all rows stay
_ENTRIES_A_BATCH = 8  # of the history that are read for each batch at first


def judge(store: Store, state: State, change: Change) -> tuple[CheckOutcome, ...]:
    """Return the results of the declared checks for a change.

    Args:
        store: The store that holds the dataset.
        state: The state that the change is about to be committed on.
        change: The change, whose scope names the files that it removes. Its `checks` are the
            results of its writers.

    Raises:
        ChecksFailedError: A check refuses the change.
        LakebedError: A file cannot be read, or the store failed.

    Cost:
        Nothing for a change without new rows. Else the columns of keys, references and times of the
        new files; for keys also these columns of the older files that may hold one of them, and for
        references those of the other dataset; for the size of a batch the last entries of the
        history. A check that an update declares reads its columns of the whole dataset. A change
        that removes rows which failed a check of rows reads the columns of the check in the files
        that may hold others.
    """
    judging = _Judging(store, state, change)
    results = judging.results()
    require(state.name, results, are_existing=change.new_descriptor is not None)
    for result in results:
        if result.outcome == "warned":
            shown = "; ".join(result.examples)
            _log.warning("check warns dataset=%s check=%s: %s", state.name, result, shown)
    return results


@dataclass(frozen=True, slots=True)
class _Failure:
    """Rows that fail a check.

    Attributes:
        count: Number of the rows; 0 if the failure is not of single rows.
        examples: Values of some of them, or a description.
    """

    count: int
    examples: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Judging:
    """The checks of one change on one state."""

    store: Store
    state: State
    change: Change

    @property
    def descriptor(self) -> DatasetDescriptor:
        """The descriptor after the change."""
        return self.change.new_descriptor or self.state.descriptor

    def results(self) -> tuple[CheckOutcome, ...]:
        """Return the result of each check that applies."""
        if self.change.new_descriptor is not None:
            return self._of_update()
        return self._with_mended(self._of_rows_and_batch())

    def _of_rows_and_batch(self) -> tuple[CheckOutcome, ...]:
        if self.change.restores is not None:
            return self._of_rollback(self.change.restores)
        if self.change.operation in _ONLY_REWRITING or not self._is_write:
            return ()
        return tuple(
            self._of_rows(name, check) if check.is_of_rows else self._of_batch(name, check)
            for name, check in self.descriptor.checks.items()
        )

    def _with_mended(self, results: tuple[CheckOutcome, ...]) -> tuple[CheckOutcome, ...]:
        """Mark the checks that earlier rows failed, and that all rows pass after the change.

        Of the results of a write, the mark is for the version as a whole; a delete or a rollback
        gets a result for it.
        """
        warned = [one.name for one in self.state.unmet if one.outcome == "warned"]
        if not warned or self.change.operation in _ONLY_MOVING:
            return results
        removed = self.state.live.removed_by(self.change.scope)
        if not removed:
            return results
        by_name = {result.name: result for result in results}
        for name in warned:
            check = self.descriptor.checks.get(name)
            result = by_name.get(name)
            if check is None or not check.is_of_rows or (result and result.outcome in UNMET):
                continue
            if self._is_mended(check, removed):
                result = result or passed(name, check)
                by_name[name] = msgspec.structs.replace(result, is_of_all=True)
        return tuple(by_name.values())

    def _is_mended(self, check: Check, removed: Sequence[str]) -> bool:
        """Return whether a change removes rows that may fail a check, and no row of the rest fails it.

        Cost:
            Statistics of files, if the removed ones hold no row that fails. Else the columns of the
            check in the files that may hold one, up to the first that does.
        """
        if self.store.is_dry_run and not all(map(self._is_there, self.change.added)):
            return False  # the files of rows that Spark would write are only counted
        where = _failing(check, self.state)
        if not plan(
            self.state.with_labels(tuple(removed)), where, requests=0, store=self.store
        ).files:
            return False
        kept = plan(self._kept, where, requests=0, store=self.store)
        candidates = self.state.with_labels(tuple(file.label for file in kept.files))
        states = (self._added, candidates)
        rows = chain.from_iterable(_failing_rows(self.store, one, check) for one in states)
        return not any(batch.num_rows for batch in rows)

    @property
    def _is_write(self) -> bool:
        change = self.change
        return bool(change.added or change.checks) or change.operation in _BATCHES

    def _of_update(self) -> tuple[CheckOutcome, ...]:
        """Test the checks that an update declares on the rows that the dataset has."""
        new = new_checks(self.state.descriptor, self.descriptor)
        tested = []
        lineage = self.change.new_lineage or self.state.lineage
        later = self.state.as_of(self.descriptor, lineage)
        for name, check in new.items():
            if check.is_of_batch or not self.state.live.count:
                continue
            if self.change.leaves_unchecked:
                tested.append(not_checked(name, check))
                continue
            tested.append(_result(name, check, self._failure_in(later, check)))
        return tuple(tested)

    def _failure_in(self, state: State, check: Check) -> _Failure | None:
        if check.is_of_rows:
            return _rows_failing(self.store, state, check)
        if isinstance(check, Unique):
            if check.of == "batch":
                return None
            return _shared_keys(self.store, check, state, None)
        assert isinstance(check, Reference)  # the others are of a batch
        return _missing_references(self.store, check, state)

    def _of_rollback(self, version: int) -> tuple[CheckOutcome, ...]:
        """Record the checks that restored rows may fail."""
        entries = history.read(self.store, self.state.lists.history)
        past = history.replay(entries, version)
        described, _ = descriptor_from(past.descriptor, Folder.HISTORY.of(self.state.name))
        known = named_as(described, self.descriptor.schema).checks
        unmet = {one.name for one in _unmet_at(entries, version, self.state.name)}
        return tuple(
            not_checked(name, check)
            for name, check in self.descriptor.checks.items()
            if not check.is_of_batch and (name in unmet or str(known.get(name)) != str(check))
        )

    def _of_rows(self, name: str, check: Check) -> CheckOutcome:
        for result in self.change.checks:
            if result.name == name and covers(result, check):
                return result
        return _result(name, check, _rows_failing(self.store, self._added, check))

    def _of_batch(self, name: str, check: Check) -> CheckOutcome:
        return _result(name, check, self._batch_failure(check))

    def _batch_failure(self, check: Check) -> _Failure | None:
        match check:
            case Unique():
                others = None if check.of == "batch" else self._kept
                return _shared_keys(self.store, check, self._added, others)
            case Reference():
                return _missing_references(self.store, check, self._added)
        if self.change.operation not in _BATCHES:
            return None
        match check:
            case RowCount():
                return self._count_out_of_bounds(check)
            case RowCountWithin():
                return self._count_out_of_band(check)
            case Fresh():
                return self._stale(check)
        raise AssertionError(check)  # `check_declared` knows all kinds

    @property
    def _added(self) -> State:
        """The state with the new files alone."""
        labels = self.change.added
        if self.store.is_dry_run:
            # The files of rows that Spark would write are only counted.
            labels = tuple(label for label in labels if self._is_there(label))
        return self.state.with_labels(labels)

    def _is_there(self, label: str) -> bool:
        try:
            self.store.size(self.state.layout.key(label))
        except ObjectNotFoundError:
            return False
        return True

    @property
    def _kept(self) -> State:
        """The state without the files that the change removes."""
        removed = frozenset(self.state.live.removed_by(self.change.scope))
        if not removed:
            return self.state
        labels = tuple(label for label in self.state.labels if label not in removed)
        return self.state.with_labels(labels)

    def _count_out_of_bounds(self, check: RowCount) -> _Failure | None:
        count = _new_rows_of(self.change)
        is_few = check.min is not None and count < check.min
        is_many = check.max is not None and count > check.max
        return _Failure(0, [f"it has {counted(count, 'row')}"]) if is_few or is_many else None

    def _count_out_of_band(self, check: RowCountWithin) -> _Failure | None:
        before = self._last_counts(check.of_last)
        if not before:
            return None
        count, mean = _new_rows_of(self.change), sum(before) / len(before)
        if mean * (1 - check.share) <= count <= mean * (1 + check.share):
            return None
        batches = counted(len(before), "batch", "batches")
        return _Failure(0, [f"it has {counted(count, 'row')}; the last {batches} {mean:,.0f} each"])

    def _last_counts(self, most: int) -> list[int]:
        """Return the row counts of the last batches."""
        after = max(-1, self.state.version - most * _ENTRIES_A_BATCH)
        while True:
            entries = history.read(self.store, self.state.lists.history, after=after)
            counts = [_new_rows_of(entry) for entry in entries if entry.operation in _BATCHES]
            if len(counts) >= most or after < 0:
                return counts[-most:]
            after = -1

    def _stale(self, check: Fresh) -> _Failure | None:
        newest = None
        for batch in _read(self.store, self._added, [check.column]):
            value = pc.max(batch.column(0)).as_py()
            if value is not None and (newest is None or value > newest):
                newest = value
        if newest is None:
            return None if not self.change.added else _Failure(0, [f"{check.column} is null"])
        oldest: Any = dt.datetime.now(dt.UTC) - check.within
        if not isinstance(newest, dt.datetime):
            oldest = oldest.date()
        elif newest.tzinfo is None:
            oldest = oldest.replace(tzinfo=None)
        if newest >= oldest:
            return None
        return _Failure(0, [f"the newest {check.column} is {newest.isoformat()}"])


def _result(name: str, check: Check, failure: _Failure | None) -> CheckOutcome:
    """Return the result of a check of rows that are written, and so cannot be left out."""
    if failure is None:
        return passed(name, check)
    strict = check if check.on_failure == "warn" else replace(check, on_failure="refuse")
    return failed(name, strict, failure.count, failure.examples)


def _new_rows_of(entry: Entry) -> int:
    """Return how many rows of a batch are new."""
    return entry.row_count - entry.rewritten_row_count


def _unmet_at(entries: Iterable[Entry], version: int, dataset: str) -> tuple[UnmetCheck, ...]:
    """Return the checks that rows of a version may fail, from the history."""
    unmet: tuple[UnmetCheck, ...] = ()
    described: DatasetDescriptor | None = None
    live: set[str] = set()
    for entry in entries:
        if entry.version > version:
            break
        if entry.descriptor is not None:
            later, _ = descriptor_from(entry.descriptor, Folder.HISTORY.of(dataset))
            new = {} if described is None else new_checks(described, later)
            unmet = tuple(one for one in unmet if one.name not in new)
            described = later
        is_write = entry.descriptor is None and entry.checks_all_added
        replaces_all = is_write and live <= set(entry.removed)
        live.difference_update(entry.removed)
        live.update(entry.added)
        checks = {} if described is None else described.checks
        unmet = unmet_after(unmet, checks, entry.checks, replaces_all=replaces_all)
    return unmet


def _read(
    store: Store, state: State, columns: Sequence[str], where: Predicate = TRUE
) -> Iterator[pa.RecordBatch]:
    """Yield columns of the rows of a state; its file table may lack new files."""
    if not state.live.count:
        return
    chosen = plan(state, where, requests=0)
    with scan.scan(store, chosen, columns) as batches:
        yield from batches


def _failing(check: Check, state: State) -> Predicate:
    """Return the condition for the rows of a state that fail a check of rows."""
    condition = complement(predicate_of(check, state.descriptor.schema))
    return bind(condition, state.layout.predicate_types)


def _failing_rows(store: Store, state: State, check: Check) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a state that fail a check of rows, with the columns of the check."""
    schema = state.descriptor.schema
    roots = roots_of(predicate_of(check, schema), dotted_types(schema))
    return _read(store, state, roots or schema.names[:1], _failing(check, state))


def _rows_failing(store: Store, state: State, check: Check) -> _Failure | None:
    """Return the rows of a state that fail a check of rows; None if all pass."""
    count, examples = 0, list[str]()
    for batch in _failing_rows(store, state, check):
        count += batch.num_rows
        examples += _shown_rows(batch.slice(0, MOST_EXAMPLES - len(examples)))
    return _Failure(count, examples) if count else None


def _shown_rows(rows: pa.RecordBatch | pa.Table) -> list[str]:
    columns = plain_columns(rows)
    names = rows.schema.names
    return [
        ", ".join(
            f"{name} = {'null' if value is None else shorten(to_text(value), _WIDTH)}"
            for name, value in zip(names, values, strict=True)
        )
        for values in zip(*columns, strict=True)
    ]


def _keys_in(
    store: Store, state: State, columns: Sequence[str], where: Predicate = TRUE
) -> pa.Table:
    """Return the keys of the rows of a state, each with its number of rows."""
    parts = list(_read(store, state, columns, where))
    schema = scan.output_schema(state.layout, columns)
    rows = pa.Table.from_batches(parts, schema)
    whole = pa.table({name: with_one_zero_and_nan(rows[name]) for name in columns})
    return whole.group_by(list(columns)).aggregate([([], "count_all")])


def _shared_keys(store: Store, check: Unique, new: State, others: State | None) -> _Failure | None:
    """Return the rows of a state that share a key with one another, or with rows of another state."""
    columns = list(check.columns)
    own = _keys_in(store, new, columns)
    failing = own.filter(pc.greater(own["count_all"], 1))
    count, examples = pc.sum(failing["count_all"]).as_py() or 0, failing.select(columns)
    if others is not None and own.num_rows:
        where = bind(_condition_on(own, columns), others.layout.predicate_types)
        chosen = plan(others, where, requests=0, store=store)
        if chosen.files:
            labels = tuple(file.label for file in chosen.files)
            known = _keys_in(store, others.with_labels(labels), columns, where)
            shared = _in_both(own, known, columns)
            alone = shared.filter(pc.equal(shared["count_all"], 1))
            count += alone.num_rows
            examples = pa.concat_tables([examples, alone.select(columns)])
    return _Failure(count, _shown_rows(examples.slice(0, MOST_EXAMPLES))) if count else None


def _in_both(own: pa.Table, known: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return the keys of one table that another one has too; null equals null."""
    if not known.num_rows:
        return own.slice(0, 0)
    marked = [
        table.append_column("is_own", pa.repeat(is_own, table.num_rows))
        for table, is_own in ((own, 1), (known.cast(own.schema), 0))
    ]
    rows = pa.concat_tables(marked)
    # The count of the own rows: each key is in each table once.
    counts = pc.if_else(pc.equal(rows["is_own"], 1), rows["count_all"], 0)
    rows = rows.set_column(rows.schema.get_field_index("count_all"), "count_all", counts)
    found = rows.group_by(list(columns)).aggregate(
        [("is_own", "min"), ("is_own", "max"), ("count_all", "sum")]
    )
    is_both = pc.not_equal(found["is_own_min"], found["is_own_max"])
    both = found.filter(is_both).select([*columns, "count_all_sum"])
    return both.rename_columns([*columns, "count_all"])


def _condition_on(keys: pa.Table, columns: Sequence[str]) -> Predicate:
    """Return a condition that holds for every row with one of the keys."""
    return all_of([_among(name, keys[name]) for name in columns])


def _among(name: str, column: pa.ChunkedArray) -> Predicate:
    """Return the condition that a column has one of some values, or lies within their bounds."""
    values = column.unique()
    parts: list[Predicate] = [NullCheck(name)] if values.null_count else []
    values = values.drop_null()
    try:
        if len(values) <= MOST_VALUES:
            listed: list[Any] = values.to_pylist()
            parts += [Membership(name, tuple(listed))] if listed else []
        else:
            bounds = pc.min_max(values)
            low, high = bounds["min"].as_py(), bounds["max"].as_py()
            has_nan = pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py()
            above: Predicate = Comparison(name, Op.GE, low)
            is_open = has_nan or is_nan(high)  # NaN is the greatest value
            parts.append(above if is_open else all_of([above, Comparison(name, Op.LE, high)]))
    except (OverflowError, ValueError):
        return TRUE  # times that Python cannot represent: they drop no file
    return any_of(parts)


def _missing_references(store: Store, check: Reference, new: State) -> _Failure | None:
    """Return the rows of a state whose values are not in the other dataset; null is allowed."""
    own = _keys_in(store, new, [check.column])
    own = own.filter(own[check.column].is_valid())
    if not own.num_rows:
        return None
    try:
        other = read_head(store, check.dataset).state
    except DatasetNotFoundError as exc:
        raise DatasetNotFoundError(
            f"{check} refers to {check.dataset!r}: {exc.message}",
            hint="Create the dataset, or drop the check.",
        ) from exc
    types = other.layout.predicate_types
    where = bind(_among(check.target, own[check.column]), types)
    chosen = plan(other, where, requests=0, store=store)
    labels = tuple(file.label for file in chosen.files)
    known = _keys_in(store, other.with_labels(labels), [check.target], where)[check.target]
    try:
        values = known.cast(own[check.column].type)
    except pa.ArrowException as exc:
        raise InvalidInputError(
            f"{check} compares {own[check.column].type} with {known.type}.",
            hint="Refer to a column of the same type.",
        ) from exc
    missing = own.filter(pc.invert(pc.is_in(own[check.column], value_set=values.combine_chunks())))
    count = pc.sum(missing["count_all"]).as_py() or 0
    shown = _shown_rows(missing.select([check.column]).slice(0, MOST_EXAMPLES))
    return _Failure(count, shown) if count else None
