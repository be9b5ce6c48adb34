"""Declared checks of single rows, as a writer applies them to its rows."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.arrow.as_python import plain_columns
from lakebed.arrow.reading.rejects import WAITING
from lakebed.arrow.sieve import RowFilter
from lakebed.common.plain import to_text
from lakebed.model.declared import Check, predicate_of, rows_checked
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.evaluate import value_of
from lakebed.model.layout import staging_folder
from lakebed.model.predicate import (
    Leaf,
    NullCheck,
    columns_of,
    formulas_of,
    roots_of,
)
from lakebed.model.schema import dotted_types
from lakebed.plan.expression import to_arrow_expression
from lakebed.state.check_results import MOST_EXAMPLES, CheckOutcome, failed, passed
from lakebed.state.file_table import Bounds
from lakebed.state.statistics import combined, evidence_of
from lakebed.store.base import Store

_WIDTH = 80  # characters of a value in an example
# From about here on, the bounds of a column take less time than a comparison of its values.
ROWS_FOR_BOUNDS = 50_000
_BYTES_ASIDE = 32 * 2**20


class _BoundsOfRows:
    """Bounds of the columns of a batch, in the form of those of a file."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows
        self._ends: dict[str, tuple[pa.Array, pa.Array]] = {}
        self.row_count = pa.chunked_array([pa.array([rows.num_rows])])

    def of(self, leaf: Leaf) -> Bounds:
        """Return the bounds that a part of a condition needs, unknown where they are costly."""
        column = self._rows.column(leaf.column)
        low = high = pa.nulls(1, column.type)
        if not isinstance(leaf, NullCheck):
            if leaf.column not in self._ends:
                self._ends[leaf.column] = _ends(column)
            low, high = self._ends[leaf.column]
        return Bounds(
            min=pa.chunked_array([low]),
            max=pa.chunked_array([high]),
            null_count=pa.chunked_array([pa.array([column.null_count])]),
        )


def _ends(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the least and the greatest value of a column of numbers, null where unknown."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        low, high = pc.min_max(column).values()
        return pa.array([low], kind), pa.array([high], kind)
    if pa.types.is_floating(kind) and not column.null_count:
        # Arrow takes twenty times as long for floats. NaN, once, makes both ends NaN.
        values = column.to_numpy()
        low, high = values.min(), values.max()
        if not np.isnan(low):
            return pa.array([low], kind), pa.array([high], kind)
    return pa.nulls(1, kind), pa.nulls(1, kind)


class _Rule:
    """One check, ready to be applied to batches."""

    def __init__(self, name: str, check: Check, descriptor: DatasetDescriptor) -> None:
        types = dotted_types(descriptor.schema)
        predicate = predicate_of(check, descriptor.schema)
        self.name = name
        self.check = check
        self.named = columns_of(predicate)
        self.roots = roots_of(predicate, types)
        self.predicate = predicate
        self._kinds = {name: types[name] for name in self.named if name in self.roots}
        self.is_met = to_arrow_expression(predicate, types)
        self.rows = RowFilter.of(predicate, types) if formulas_of(predicate) else None
        self.count = 0
        self.examples: list[str] = []
        self.is_refused = False

    def is_proven(self, bounds: _BoundsOfRows) -> bool:
        """Return whether the bounds of the columns alone prove that all rows meet the check."""
        surely = combined(
            self.predicate, 1, lambda leaf: self._surely(leaf, bounds), formulas=False
        )
        return bool(surely[0])

    def _surely(self, leaf: Leaf, bounds: _BoundsOfRows) -> np.ndarray:
        if leaf.column not in self._kinds:  # inside a struct
            return np.zeros(1, dtype=bool)
        known, kind = bounds.of(leaf), self._kinds[leaf.column]
        return evidence_of(leaf, known, bounds.row_count, kind).surely

    def status(self) -> CheckOutcome:
        """Return the result so far."""
        if not self.count:
            return passed(self.name, self.check)
        status = failed(self.name, self.check, self.count, self.examples)
        return msgspec.structs.replace(status, outcome="refused") if self.is_refused else status

    def note(self, rows: pa.RecordBatch, places: np.ndarray) -> None:
        """Count failing rows, and keep the values of the first ones that decide."""
        self.count += len(places)
        room = MOST_EXAMPLES - len(self.examples)
        if room > 0:
            self.examples += self.shown(rows, places[:room])

    def shown(self, rows: pa.RecordBatch, places: np.ndarray) -> list[str]:
        """Return the values of rows that decide."""
        named = rows.select(self.roots).take(pa.array(places)) if self.roots else None
        if named is None:
            return ["it is false for every row"] * len(places)
        return [self._shown(row) for row in _plain_rows(named)]

    def _shown(self, row: Mapping[str, object]) -> str:
        return ", ".join(
            f"{name} = {shorten(_shown_value(value_of(row, name)), _WIDTH)}" for name in self.named
        )


def _shown_value(value: object) -> str:
    return "null" if value is None else to_text(value)


def _plain_rows(rows: pa.RecordBatch) -> list[dict[str, object]]:
    columns = plain_columns(rows)
    return [
        dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows of a batch that checks leave out.

    Attributes:
        is_kept: Mask of the rows to write.
        quarantined: Positions of the rows for the quarantine.
        reasons: The reason of each of these.
    """

    is_kept: np.ndarray
    quarantined: np.ndarray
    reasons: tuple[str, ...] = field(default=())


class RowChecks:
    """Applies the declared checks of rows to the batches of one writer, and counts."""

    def __init__(self, descriptor: DatasetDescriptor) -> None:
        """Prepare the checks.

        Raises:
            PredicateError: A stored condition cannot be parsed.
        """
        self._rules = [
            _Rule(name, check, descriptor) for name, check in rows_checked(descriptor).items()
        ]
        roots = dict.fromkeys(root for rule in self._rules for root in rule.roots)
        self._roots = list(roots)

    @classmethod
    def find(cls, descriptor: DatasetDescriptor) -> RowChecks | None:
        """Return the checks of a descriptor; None if it declares none of rows."""
        return cls(descriptor) if rows_checked(descriptor) else None

    @property
    def is_refused(self) -> bool:
        """True if a check refuses the write."""
        return any(rule.status().outcome == "refused" for rule in self._rules)

    def statuses(self) -> tuple[CheckOutcome, ...]:
        """Return the results so far."""
        return tuple(rule.status() for rule in self._rules)

    def judge(self, rows: pa.RecordBatch) -> Judged | None:
        """Apply the checks to new rows; return None if all pass or only warn.

        Args:
            rows: Rows with all fields of the schema.
        """
        failing = self._failing(rows)
        if not failing:
            return None
        is_kept = np.ones(rows.num_rows, dtype=bool)
        reasons: dict[int, list[str]] = {}
        for rule, places in failing:
            rule.note(rows, places)
            if rule.check.on_failure not in ("reject", "quarantine"):
                continue
            is_kept[places] = False
            if rule.check.on_failure == "quarantine":
                shown = rule.shown(rows, places)
                for place, values in zip(places.tolist(), shown, strict=True):
                    reason = f"Check {rule.name}, {rule.check}, fails: {values}."
                    reasons.setdefault(place, []).append(reason)
        if is_kept.all():
            return None
        quarantined = sorted(reasons)
        return Judged(
            is_kept=is_kept,
            quarantined=np.array(quarantined, dtype=np.int64),
            reasons=tuple(" ".join(reasons[place]) for place in quarantined),
        )

    def judge_changed(self, rows: pa.RecordBatch) -> None:
        """Apply the checks to rows that were changed, which cannot be left out: they are refused.

        Args:
            rows: Rows with all fields of the schema, as they will be written.
        """
        for rule, places in self._failing(rows):
            rule.note(rows, places)
            rule.is_refused |= rule.check.on_failure != "warn"

    def refusing(self, rows: pa.RecordBatch) -> tuple[CheckOutcome, ...]:
        """Return the results of the checks that would refuse rows, without counting them."""
        results = []
        for rule, places in self._failing(rows):
            if rule.check.on_failure == "refuse":
                shown = rule.shown(rows, places[:MOST_EXAMPLES])
                results.append(failed(rule.name, rule.check, len(places), shown))
        return tuple(results)

    def _unproven(self, rows: pa.RecordBatch) -> list[_Rule]:
        """Return the checks that some of the rows may fail."""
        if not rows.num_rows:
            return []
        if rows.num_rows < ROWS_FOR_BOUNDS:
            return self._rules
        bounds = _BoundsOfRows(rows)
        return [rule for rule in self._rules if not rule.is_proven(bounds)]

    def _failing(self, rows: pa.RecordBatch) -> list[tuple[_Rule, np.ndarray]]:
        """Return the checks that rows fail, each with their positions."""
        rules = self._unproven(rows)
        return self.evaluated(rules, rows) if rules else []

    def evaluated(
        self, rules: Sequence[_Rule], rows: pa.RecordBatch
    ) -> list[tuple[_Rule, np.ndarray]]:
        """Evaluate checks on each row; return those that rows fail, each with their positions."""
        named = rows.select(self._roots or rows.schema.names[:1])
        met = _met([rule for rule in rules if rule.rows is None], named)
        found = []
        for rule in rules:
            if rule.rows is not None:
                is_met = rule.rows.mask(named)
            elif sum(chunk.true_count for chunk in met[rule.name].chunks) == rows.num_rows:
                continue
            else:  # unknown, as for null, counts as failed
                is_met = pc.fill_null(met[rule.name], pa.scalar(value=False)).to_numpy()
            places = np.flatnonzero(~is_met)
            if len(places):
                found.append((rule, places))
        return found


def _met(rules: Sequence[_Rule], rows: pa.RecordBatch) -> dict[str, pa.ChunkedArray]:
    """Return for each check of comparisons alone whether rows meet it, by name."""
    if not rules:
        return {}
    from pyarrow import acero  # it loads pyarrow.dataset

    conditions, names = [rule.is_met for rule in rules], [rule.name for rule in rules]
    # A filter by the expressions would take twice as long: it also selects rows.
    steps = [
        acero.Declaration(
            "table_source", acero.TableSourceNodeOptions(pa.Table.from_batches([rows]))
        ),
        acero.Declaration("project", acero.ProjectNodeOptions(conditions, names)),
    ]
    met = acero.Declaration.from_sequence(steps).to_table(use_threads=False)
    return dict(zip(names, met.columns, strict=True))


class RowsAside:
    """Writes rows for the quarantine to temporary files of a batch, in the form of rejects."""

    def __init__(self, store: Store, dataset: str, batch_id: int) -> None:
        self._store = store
        self._folder = staging_folder(dataset, batch_id)
        self._rows: list[dict[str, object]] = []
        self._size_bytes = 0
        self.keys: list[str] = []

    def add(self, rows: pa.RecordBatch, reasons: Sequence[str], numbers: Sequence[int]) -> None:
        """Add rows with the reason and the number of each."""
        for row, reason, number in zip(_plain_rows(rows), reasons, numbers, strict=True):
            line = msgspec.json.encode(row, enc_hook=str)
            self._rows.append(
                {
                    "reason": reason,
                    "source_file": "",
                    "line_number": number,
                    "line": line,
                    "kind": "row",
                    "row_count": None,
                    "hint": "",
                }
            )
            self._size_bytes += len(line) + len(reason)
        if self._size_bytes >= _BYTES_ASIDE:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows."""
        if not self._rows:
            return
        sink = pa.BufferOutputStream()
        rows = pa.Table.from_pylist(self._rows, WAITING)
        pq.write_table(rows, sink, compression="zstd", write_page_checksum=True)
        key = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        self.keys.append(key)
        self._store.put(key, sink.getvalue())
        self._rows, self._size_bytes = [], 0
