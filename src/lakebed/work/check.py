"""Check of a dataset: compares head, files, facts and indices, and repairs what it can.

Data files are the truth; facts and indices can be rebuilt from them, as commits. A repair never
deletes data.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.arrow.footer_facts import facts_of_file
from lakebed.arrow.intact import CHECKSUM_DIFFERS, difference
from lakebed.arrow.workers import Workers
from lakebed.common.grouping import balanced_groups
from lakebed.common.html import MAX_ITEMS, facts_to_html
from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.common.shown import counted
from lakebed.errors import (
    CorruptMetadataError,
    FormatError,
    InvalidNameError,
    ObjectNotFoundError,
)
from lakebed.index import segment as index_segment
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.keys import is_own_name
from lakebed.model.layout import Layout, schema_key
from lakebed.model.table_signs import table_of
from lakebed.spark.task_workers import workers_for
from lakebed.state import (
    file_table,
    history,
    kartothek,
    published,
    reservation,
    runs,
    schema_file,
)
from lakebed.state.committing import CODECS
from lakebed.state.facts import FileFacts, Recorded, facts_table
from lakebed.state.head import HeadFormat
from lakebed.state.lists import FILES, HISTORY, RUNS, SOURCES, Edit, column_of, postings_of
from lakebed.state.moving import find_leftover, remove_unchanged
from lakebed.state.published import Shown
from lakebed.state.reader import Head, read_own_head
from lakebed.state.state import Change, State
from lakebed.state.transaction import Transaction
from lakebed.store.at_once import at_once
from lakebed.store.base import ObjectInfo, Store
from lakebed.store.cache import PROCESS_CACHE
from lakebed.store.segments import Segment
from lakebed.work.defaults import CLOCK_SKEW
from lakebed.work.indexing import build_index
from lakebed.work.inventory import REQUESTS_AT_ONCE, Reason, Rules, take_inventory
from lakebed.work.metadata_compaction import kept_labels

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PAGE = 1_000  # objects in one answer of a LIST

_REMEDIES = {
    HISTORY: "Older versions cannot be read; restore it.",
    SOURCES: "Restore it; it records which raw files were read.",
    RUNS: "Restore it; a rerun needs it.",
}

_REBUILDS = "check(repair=True) rebuilds it, or names the reason why it cannot."
_LOST_NOW, _LOST_THEN = "reads that need it fail", "older versions that need it cannot be read"

EXIT_CODE = FormatError.exit_code


class Severity(StrEnum):
    """Severity of a finding."""

    ERROR = "error"  # a reader fails, or misses rows
    WARNING = "warning"  # results are right, but slower, or differ in other tools
    NOTE = "note"  # nothing is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A single finding of a check.

    Attributes:
        severity: Severity of the finding.
        key: Path of the object in the repository.
        what: Description of the finding.
        remedy: Advice to fix it; empty for a note.
        is_repaired: True if this check has repaired it.
    """

    severity: Severity
    key: str
    what: str
    remedy: str = ""
    is_repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The findings of a check.

    Attributes:
        dataset: Name of the dataset.
        version: The version that was checked; None if the head cannot be read.
        file_count: Number of live data files.
        is_deep: True if the content of data files was compared with its checksums.
        findings: The findings, in order of severity, then of key.

    >>> import lakebed
    >>> repository = lakebed.open_repository("memory://doctest-check-report")
    >>> fields = [{"name": "n", "type": "long"}]
    >>> descriptor = lakebed.DatasetDescriptor(
    ...     schema={"type": "record", "name": "numbers", "fields": fields}
    ... )
    >>> numbers = repository.create("numbers", descriptor)
    >>> _ = numbers.append([{"n": 1}])
    >>> numbers.check(deep=True)
    <CheckReport of 'numbers': 1 file at version 1, no problem>
    """

    dataset: str
    version: int | None
    file_count: int
    is_deep: bool
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> tuple[Finding, ...]:
        """Errors and warnings that remain."""
        return tuple(
            finding
            for finding in self.findings
            if finding.severity is not Severity.NOTE and not finding.is_repaired
        )

    @property
    def is_ok(self) -> bool:
        """True if no problem remains."""
        return not self.problems

    def __repr__(self) -> str:
        problems = counted(len(self.problems), "problem") if self.problems else "no problem"
        at = "" if self.version is None else f" at version {self.version}"
        return (
            f"<CheckReport of {self.dataset!r}: {counted(self.file_count, 'file')}{at}, {problems}>"
        )

    def _repr_html_(self) -> str:
        counts = Counter(str(finding.severity) for finding in self.findings)
        facts: dict[str, object] = {
            "version": "unknown" if self.version is None else self.version,
            "data files": f"{self.file_count:,}",
            "content compared": "yes" if self.is_deep else "no",
            "problems": len(self.problems),
            **{f"{severity}s": count for severity, count in sorted(counts.items())},
        }
        shown = self.findings[:MAX_ITEMS]
        facts.update(
            {
                finding.key: f"{finding.severity}: {finding.what} {finding.remedy}"
                for finding in shown
            }
        )
        if len(self.findings) > len(shown):
            facts["…"] = f"and {len(self.findings) - len(shown)} more"
        return facts_to_html(f"Check of {self.dataset}", facts)

    def to_json(self) -> str:
        """Return the report as one JSON document."""
        return msgspec.json.encode(
            {
                "dataset": self.dataset,
                "version": self.version,
                "file_count": self.file_count,
                "is_deep": self.is_deep,
                "is_ok": self.is_ok,
                "findings": [
                    {
                        "severity": str(finding.severity),
                        "key": finding.key,
                        "what": finding.what,
                        "remedy": finding.remedy,
                        "is_repaired": finding.is_repaired,
                    }
                    for finding in self.findings
                ],
            }
        ).decode()


def check(
    store: Store,
    dataset: str,
    *,
    is_repairing: bool = False,
    is_deep: bool = False,
    spark: SparkSession | None = None,
    on_progress: OnProgress = NO_PROGRESS,
) -> CheckReport:
    """Compare the head with the objects on storage; see `Dataset.check`."""
    PROCESS_CACHE.clear()  # check the storage itself
    try:
        head = read_own_head(store, dataset)
    except CorruptMetadataError as exc:
        finding = Finding(severity=Severity.ERROR, key=dataset, what=exc.message, remedy=exc.hint)
        return CheckReport(
            dataset=dataset, version=None, file_count=0, is_deep=is_deep, findings=(finding,)
        )
    findings = _findings_of_tree(store, head.state)
    if findings and is_repairing:
        findings, head = _repair_tree(store, head, findings)
    is_whole = all(finding.is_repaired for finding in findings)
    checker = _Checker(store, head) if is_whole else None
    if checker is not None:
        findings += checker.run(is_deep=is_deep, spark=spark, on_progress=on_progress)
    if is_repairing and checker is not None:
        findings = _repair(store, checker, findings, spark)
    order = list(Severity)
    return CheckReport(
        dataset=dataset,
        version=head.state.version,
        file_count=head.state.live.count,
        is_deep=is_deep,
        findings=tuple(
            sorted(findings, key=lambda finding: (order.index(finding.severity), finding.key))
        ),
    )


def _findings_of_tree(store: Store, state: State) -> list[Finding]:
    """Return findings about lost and damaged objects of a tree."""
    if not state.is_tree:
        return []
    from lakebed.state.tree.tree_check import troubles_of

    return [
        Finding(
            severity=Severity.ERROR,
            key=one.key,
            what=one.what,
            remedy=f"{_REBUILDS} Until then, {_LOST_NOW if one.is_current else _LOST_THEN}.",
        )
        for one in troubles_of(store, state)
    ]


def _repair_tree(
    store: Store, head: Head, findings: Sequence[Finding]
) -> tuple[list[Finding], Head]:
    """Rebuild lost objects of a tree; return the findings after that, and the head by then."""
    from lakebed.state.tree.tree_repair import TreeRepair

    state = head.state

    def facts_of(labels: Sequence[str]) -> pa.Table:
        return facts_table(_rebuilt_facts(store, state, labels), state.layout.file_schema)

    repair = TreeRepair(store, state, [one.key for one in findings], facts_of)
    repair.run()
    if repair.leaves:
        try:
            with Transaction.on(store, state, "repair") as transaction:
                transaction.commit(Change(leaves=repair.leaves))
        except CorruptMetadataError as exc:
            repair.missing |= dict.fromkeys(repair.keys, exc.message)
    PROCESS_CACHE.clear()
    head = read_own_head(store, state.name)
    left = {one.key: one for one in _findings_of_tree(store, head.state)}
    after = [
        replace(one, remedy=_remedy_after(repair.missing.get(one.key)))
        if one.key in left
        else replace(one, is_repaired=True)
        for one in findings
    ]
    known = {one.key for one in findings}
    return [*after, *(one for key, one in left.items() if key not in known)], head


def _remedy_after(missing: str | None) -> str:
    reason = f"It cannot be rebuilt: {missing.rstrip('.')}. " if missing else ""
    return f"{reason}Restore it from a copy; until then, reads that need it fail."


class _Checker:
    """Checks one version, and keeps the inputs of a repair."""

    def __init__(self, store: Store, head: Head) -> None:
        self._store = store
        self.head = head
        self.state = head.state
        self._live = frozenset(head.state.labels)
        self.lost_facts: list[str] = []  # labels of live files whose facts are missing or wrong
        # Unreadable segments of the file table and of postings, by the name of their list.
        self.lost: defaultdict[str, list[Segment]] = defaultdict(list)
        self.lost_indices: list[str] = []  # columns
        self.is_schema_file_wrong = False
        self.leftover: Head | None = None  # a second head that an earlier hand-over left

    def run(
        self, *, is_deep: bool, spark: SparkSession | None, on_progress: OnProgress
    ) -> list[Finding]:
        findings = [*self._check_heads()]
        objects = self._list_objects(NO_PROGRESS if is_deep else on_progress)
        findings += self._check_segments()
        table, damaged = self._read_file_table()
        findings += damaged
        present, of_files = self._check_files(self.state.labels, objects, table)
        findings += self._check_facts(present, table)
        shown, of_notes = self._read_notes()
        findings += of_notes
        has_history = not any(map(_is_history, findings))
        if has_history:
            kept = kept_labels(self._store, self.state, shown) - self._live
            if self.state.is_tree:
                self._add_older(table, kept.difference(table))
            older, of_older = self._check_files(sorted(kept), objects, table)
            present += older
            of_files = self._without_cleaned_up(of_files + of_older, objects)
        findings += of_files
        findings += self._check_postings(spark, is_deep=is_deep)
        findings += self._check_indices()
        findings += self._check_schema_file()
        if is_deep:
            sizes = {label: objects[self.state.layout.key(label)].size_bytes for label in present}
            findings += self._check_content(sizes, table, spark, on_progress)
        if has_history:
            findings += self._check_adopted_table(objects)
        if has_history and not of_notes:
            findings += self._note_others()
        return findings

    def _list_objects(self, on_progress: OnProgress) -> dict[str, ObjectInfo]:
        """Return the objects by key, and report the number of live files found so far."""
        name, sizes = self.state.name, dict.fromkeys(map(self.state.layout.key, self._live), 0)
        tally = Tally(on_progress, f"list files of {name}", sizes)
        objects: dict[str, ObjectInfo] = {}
        listed = iter(self._store.list(f"{name}/"))
        while page := {info.key: info for info in islice(listed, _PAGE)}:
            objects |= page
            tally.add(*page)
        return objects

    def _check_heads(self) -> Iterator[Finding]:
        keys = {form.key(self.state.name) for form in HeadFormat} - {self.head.key}
        for key in sorted(keys):
            try:
                self._store.size(key)
            except ObjectNotFoundError:
                continue
            yield Finding(
                severity=Severity.WARNING,
                key=key,
                what=f"There is a second head; {self.head.key!r} is the valid one.",
                remedy=self._remedy_of_second_head(),
            )
        if len(set(self.state.labels)) < len(self.state.labels):
            yield Finding(
                severity=Severity.ERROR,
                key=self.head.key,
                what="A data file is named more than once, so its rows count more than once.",
                remedy="Roll back to the last correct version.",
            )
        for name, outcome in self.state.standing_of_checks().items():
            if outcome != "passed":
                yield Finding(
                    severity=Severity.NOTE,
                    key=self.head.key,
                    what=f"Rows may fail the declared check {name!r}: it was {outcome}.",
                    remedy="Drop and add the check again: then it is tested on all rows.",
                )
        if self.state.is_changed_by_others and not self.state.live.count:
            yield Finding(
                severity=Severity.ERROR,
                key=self.head.key,
                what="Another tool has removed all data files from the head; commits are refused.",
                remedy=f"rollback(version={self.state.version}) restores them. If their removal is "
                "meant, an overwrite of the whole dataset accepts it.",
            )
        elif self.state.is_changed_by_others:
            yield Finding(
                severity=Severity.NOTE,
                key=self.head.key,
                what="Another tool has changed the data files since the last commit of Lakebed.",
            )

    def _remedy_of_second_head(self) -> str:
        if self.head.stale is not None:
            return "The next commit deletes it."
        with suppress(FormatError):
            self.leftover = find_leftover(self._store, self.head)
        if self.leftover is not None:
            return "check(repair=True) deletes it: an earlier change of the head format left it."
        return "Lakebed does not read it: delete it, unless another tool needs it."

    def _check_segments(self) -> list[Finding]:
        findings = []
        for name, remedy in _REMEDIES.items():
            segments, parts = self.state.lists[name], dict[str, Any]()

            def decode(data: bytes, key: str, name: str = name, parts: Any = parts) -> None:
                parts[key] = CODECS[name].decode(data, key)

            troubles = [
                (segment.key, error)
                for segment, error in self._each(segments, decode)
                if error is not None
            ]
            if not troubles:
                troubles = self._trouble_between(name, parts)
            findings += [
                Finding(severity=Severity.ERROR, key=key, what=error, remedy=remedy)
                for key, error in troubles
            ]
        return findings

    def _trouble_between(self, name: str, parts: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the last object of a list and what is wrong with its segments together."""
        segments = self.state.lists[name]
        try:
            others = {
                one.key: history.entries_of(self._store, one, labels_after=2**63)
                for one in segments
                if isinstance(one, history.OtherEntries)
            }
        except CorruptMetadataError:
            return []  # the check of the tree has reported it
        try:
            if name == HISTORY:
                found = {**parts, **others}
                entries = [entry for one in segments for entry in found[one.key]]
                history.check_whole(segments, entries, until=self.state.version)
            elif name == RUNS:
                runs.check_apart(segments, [parts[one.key] for one in segments])
        except CorruptMetadataError as exc:
            keys = [one.key for one in segments if one.key]  # the last commits of a tree have none
            return [(keys[-1] if keys else self.head.key, exc.message)]
        return []

    def _each(
        self, segments: Sequence[Segment], decode: Callable[[bytes, str], object]
    ) -> list[tuple[Segment, str | None]]:
        def inspect(segment: Segment) -> tuple[Segment, str | None]:
            if isinstance(segment, history.OtherEntries):
                return segment, None  # the check of the tree has read it
            try:
                decode(self._store.get(segment.key).data, segment.key)
            except ObjectNotFoundError:
                return segment, "It is missing."
            except CorruptMetadataError as exc:
                return segment, exc.message
            return segment, None

        return list(at_once(inspect, segments, REQUESTS_AT_ONCE))

    def _read_file_table(self) -> tuple[dict[str, tuple[int, str]], list[Finding]]:
        """Return size and checksum of every file in the file table, by label."""
        table: dict[str, tuple[int, str]] = {}

        def note(data: bytes, key: str) -> None:
            rows = file_table.decode(data, key)
            columns = (
                rows.column(name).to_pylist() for name in ("label", "size_bytes", "checksum")
            )
            table.update({label: (size, text) for label, size, text in zip(*columns, strict=True)})

        if self.state.is_tree:
            return self._read_leaves(), []
        findings = []
        for segment, error in self._each(self.state.lists.files, note):
            if error is not None:
                self.lost[FILES].append(segment)
                findings.append(
                    Finding(
                        severity=Severity.WARNING,
                        key=segment.key,
                        what=error,
                        remedy="check(repair=True) rebuilds the facts from the data files.",
                    )
                )
        return table, findings

    def _read_leaves(self) -> dict[str, tuple[int, str]]:
        """Return size and checksum of every file of a tree, as far as they are known, by label."""
        table: dict[str, tuple[int, str]] = {}
        names = ("label", "size_bytes", "checksum")
        for segment in self.state.lists.files:
            assert isinstance(segment, file_table.OtherFacts)
            table |= _recorded_in(segment.read(self._store, names)[0])
        return table

    def _add_older(self, table: dict[str, tuple[int, str]], labels: Collection[str]) -> None:
        """Add size and checksum of files of older versions, which no leaf of the root holds."""
        from lakebed.state.tree.tree_check import facts_of_older

        for rows in facts_of_older(self._store, self.state, labels):
            table |= _recorded_in(rows)

    def _check_files(
        self,
        labels: Iterable[str],
        objects: Mapping[str, ObjectInfo],
        table: Mapping[str, tuple[int, str]],
    ) -> tuple[list[str], list[Finding]]:
        """Return the files that exist, and findings about missing and wrong ones."""
        findings, present = [], []
        for label in labels:
            key = self.state.layout.key(label)
            info = objects.get(key)
            known = table.get(label)
            if info is not None:
                present.append(label)
            if info is None:
                what = "The data file is missing."
            elif known is not None and known[0] != info.size_bytes:
                what = f"It has {info.size_bytes} bytes, but was written with {known[0]}."
            else:
                continue
            findings.append(self._finding_of_file(label, what))
        return present, findings

    def _finding_of_file(self, label: str, what: str) -> Finding:
        remedy = (
            "Restore it from a copy, or roll back or rerun its partition."
            if label in self._live
            else "An older version needs it: restore it from a copy. The current version does not."
        )
        return Finding(
            severity=Severity.ERROR, key=self.state.layout.key(label), what=what, remedy=remedy
        )

    def _check_facts(
        self, present: Iterable[str], table: Mapping[str, tuple[int, str]]
    ) -> Iterator[Finding]:
        if self.state.is_tree:
            return
        for label in present:
            if label not in table and is_own_name(label):
                self.lost_facts.append(label)
                yield _without_facts(self.state.layout.key(label))

    def _read_notes(self) -> tuple[list[Shown], list[Finding]]:
        """Return the versions that tables of a metastore show, and findings about bad records."""
        shown, findings = [], []
        for key, note in published.read_each(self._store, self.state.name):
            if isinstance(note, Shown):
                shown.append(note)
                continue
            findings.append(
                Finding(
                    severity=Severity.ERROR,
                    key=key,
                    what=f"{note.message} Until then, no cleanup deletes anything.",
                    remedy=note.hint,
                )
            )
        return shown, findings

    def _without_cleaned_up(
        self, findings: list[Finding], objects: Mapping[str, ObjectInfo]
    ) -> list[Finding]:
        """Leave out findings about files that a cleanup has given up meanwhile."""
        if all(finding.key in objects for finding in findings):
            return findings
        state = read_own_head(self._store, self.state.name).state
        kept = kept_labels(self._store, state, self._read_notes()[0])
        keys = set(map(state.layout.naming.key, kept))
        return [finding for finding in findings if finding.key in objects or finding.key in keys]

    def _check_postings(self, spark: SparkSession | None, *, is_deep: bool) -> list[Finding]:
        findings = []
        workers = self._workers(spark if is_deep else None, "read indices of")
        store = self._store

        def inspect(segments: Sequence[Segment]) -> list[str]:
            return [_trouble_of_postings(store, segment, is_deep=is_deep) for segment in segments]

        for column, segments in self.state.lists.postings.items():
            step = 1 if spark is None else -(-len(segments) // workers.count) or 1
            groups = [segments[at : at + step] for at in range(0, len(segments), step)]
            answers = workers.map(inspect, groups, list[str])
            troubles = [what for of_group in answers for what in of_group]
            for segment, what in zip(segments, troubles, strict=True):
                if what:
                    self.lost[postings_of(column)].append(segment)
                    findings.append(
                        Finding(
                            severity=Severity.WARNING,
                            key=segment.key,
                            what=what,
                            remedy="check(repair=True) rebuilds it from the data files.",
                        )
                    )
        return findings

    def _check_indices(self) -> Iterator[Finding]:
        """Check that index files of Kartothek are complete, and name live files only."""
        for column, key in self.state.indices.items():
            what = self._trouble_of_index(column, key)
            if what:
                self.lost_indices.append(column)
                yield Finding(
                    severity=Severity.ERROR,
                    key=key,
                    what=what,
                    remedy="check(repair=True) removes it from the head: other tools then read "
                    "without an index.",
                )

    def _trouble_of_index(self, column: str, key: str) -> str:
        try:
            data = self._store.get(key).data
            table = pq.read_table(
                pa.BufferReader(data),
                page_checksum_verification=True,
                pre_buffer=False,
                use_threads=False,
            )
            labels = set(pc.list_flatten(table.column("partition")).to_pylist())
        except (InvalidNameError, ObjectNotFoundError):
            return f"The index of {column!r} is missing."
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as exc:
            return f"The index of {column!r} cannot be read: {exc}."
        strange = labels.difference(self.state.labels)
        if strange:
            return f"The index of {column!r} names files that are not live: {min(strange)!r}."
        kind = self.state.layout.file_column_types.get(column)
        if kind is None or column in self.state.layout.partition_keys or not self.state.labels:
            return ""
        live = pa.array(self.state.labels, pa.large_string())
        known = file_table.find(
            self._store, self.state.lists.files, live, {column: type_to_arrow(kind)}
        )
        has_values = pc.is_valid(known.columns[column].min).to_pylist()
        for label, has_some in zip(self.state.labels, has_values, strict=True):
            if has_some and label not in labels:
                return f"The index of {column!r} lacks {label!r}, so its rows are not found."
        return ""

    def _check_schema_file(self) -> Iterator[Finding]:
        state = self.state
        key = schema_key(state.name, state.layout.table)
        wanted = kartothek.encode_schema(state.descriptor.schema, state.descriptor.partition_types)
        try:
            is_right = _schema_of(self._store.get(key).data) == _schema_of(wanted)
            what = "It differs from the schema of the head, so other tools see another schema."
        except ObjectNotFoundError:
            is_right, what = False, "The schema file is missing; plateau needs it."
        except (pa.ArrowException, OSError, ValueError) as exc:
            is_right, what = False, f"The schema file cannot be read: {exc}."
        if not is_right:
            self.is_schema_file_wrong = True
            yield Finding(
                severity=Severity.WARNING,
                key=key,
                what=what,
                remedy="check(repair=True) writes it again.",
            )

    def _check_content(
        self,
        sizes: Mapping[str, int],
        table: Mapping[str, tuple[int, str]],
        spark: SparkSession | None,
        on_progress: OnProgress,
    ) -> Iterator[Finding]:
        """Read data files, and compare their content with their recorded checksums.

        Args:
            sizes: Size of each file in bytes, by label.
            table: Recorded size and checksum of each file, by label.
            spark: Session whose tasks read the files; None for threads.
            on_progress: Callback for progress; receives each file, as far as workers report it.
        """
        tally = Tally(on_progress, f"compare files of {self.state.name}", sizes)
        workers = self._workers(spark, "compare files of")
        store, layout, report = self._store, self.state.layout, workers.listening(tally.listener)
        recorded = {
            label: Recorded(size_bytes=table[label][0], checksum=table[label][1])
            for label in sizes
            if label in table
        }

        def compare(labels: Sequence[str]) -> list[tuple[str, str]]:
            troubles = []
            for label in labels:
                what = _trouble_of_content(store, layout, label, recorded.get(label))
                if what:
                    troubles.append((label, what))
                report(label)
            return troubles

        # Threads take one file at a time, to balance the load; tasks take groups of equal size.
        groups = [[label] for label in sizes]
        if spark is not None:
            count = workers.count_for(sum(sizes.values()), len(sizes))
            groups = balanced_groups(sizes, count)
        for troubles in workers.map(compare, groups, list[tuple[str, str]]):
            for label, what in troubles:
                yield self._finding_of_file(label, what)
        tally.add(*sizes)

    def _workers(self, spark: SparkSession | None, purpose: str) -> Workers:
        return workers_for(
            spark, self._store, threads=REQUESTS_AT_ONCE, purpose=f"{purpose} {self.state.name}"
        )

    def _check_adopted_table(self, objects: Mapping[str, ObjectInfo]) -> Iterator[Finding]:
        """Yield a finding if the log of the table that was adopted has grown since."""
        home = self.state.name
        logs = [
            (found[0], info)
            for info in objects.values()
            if (found := table_of(info.key)) is not None and found[1] == home
        ]
        if not logs:
            return
        entries = history.read(self._store, self.state.lists.history, until=self.state.version)
        adopted = next((entry for entry in entries if entry.operation == "adopt"), None)
        if adopted is None:
            return
        moment = adopted.stored_at or adopted.committed_at
        later = [(title, info) for title, info in logs if info.modified_at > moment]
        if later:
            title, info = max(later, key=lambda one: one[1].modified_at)
            yield Finding(
                severity=Severity.WARNING,
                key=info.key,
                what=f"The table of {title} that was adopted at {moment.isoformat()} was written to "
                f"since, last at {info.modified_at.isoformat()}: the dataset lacks these changes.",
                remedy="Stop the writers of the table, and its VACUUM or expiry, which would delete "
                "files of the dataset. Append the later rows, or write a copy of the table under "
                "another name.",
            )

    def _note_others(self) -> Iterator[Finding]:
        """Yield notes on objects that no version needs; `cleanup` reports more about them."""
        inventory = take_inventory(self._store, self.state.name)
        rules = Rules(now=dt.datetime.now(dt.UTC), retention=dt.timedelta(), clock_skew=CLOCK_SKEW)
        judge = inventory.judge_by(inventory.state, rules)
        for file in judge.judge(inventory.objects):
            if file.reason in (Reason.UNKNOWN, Reason.RESERVED, Reason.ABANDONED):
                yield Finding(
                    severity=Severity.NOTE, key=file.key, what=f"{file.reason}: {file.note}"
                )
        for batch_id, batch in sorted(inventory.reserved.items()):
            if batch.record is None:
                yield _unreadable_reservation(self.state.name, batch_id, batch.problem)
                continue
            if batch_id not in judge.expired_batches:
                continue
            yield Finding(
                severity=Severity.NOTE,
                key=reservation.key_of(self.state.name, batch_id),
                what="The writer of the batch is dead; a cleanup gives its files up.",
            )


def _trouble_of_content(store: Store, layout: Layout, label: str, recorded: Recorded | None) -> str:
    """Return how a data file differs from the file that was written; empty if it does not."""
    try:
        if recorded is None or recorded.sha256 is None:
            # There is no recorded checksum, but pages may have checksums of their own.
            facts_of_file(store, layout, label)
            return ""
        deviation = difference(store, layout.key(label), recorded)
    except ObjectNotFoundError:
        return ""  # a cleanup was faster, or the check of the listing has reported it
    except CorruptMetadataError as exc:
        return exc.message
    # The check of the listing has reported a wrong size.
    is_reported = deviation != CHECKSUM_DIFFERS
    return "" if is_reported else f"Its content is not what was written: {deviation}."


def _trouble_of_postings(store: Store, segment: Segment, *, is_deep: bool) -> str:
    """Return the reason why a segment of an index cannot be read; empty if it can."""
    try:
        # Bypass the cache: this process may hold a segment that is lost on storage.
        footer, _ = index_segment.open_segment(store, segment, is_fresh=True)
        if is_deep:
            footer, _ = index_segment.with_directory(store, footer, is_fresh=True)
            for number in range(footer.groups.num_rows):
                index_segment.read_groups(store, footer, [number])
            index_segment.file_ids_of(store, footer, is_fresh=True)
            if footer.homes is not None:
                positions = np.arange(footer.files.count)
                index_segment.homes_at(store, footer, positions, is_fresh=True)
    except CorruptMetadataError as exc:
        return exc.message
    return ""


def _repair(
    store: Store,
    checker: _Checker,
    findings: Sequence[Finding],
    spark: SparkSession | None,
) -> list[Finding]:
    """Repair facts and indices from the data files and the head, and mark repaired findings."""
    state = checker.state
    repaired: set[str] = set()
    if checker.is_schema_file_wrong:
        schema_file.put_or_leave(store, state.name, state.descriptor)
        repaired.add(schema_key(state.name, state.layout.table))
    if checker.leftover is not None and remove_unchanged(store, checker.leftover):
        repaired.add(checker.leftover.key)
    broken = [segment for segments in checker.lost.values() for segment in segments]
    if broken or checker.lost_facts or checker.lost_indices:
        rebuilt = _rebuilt_facts(store, state, checker.lost_facts)
        _commit_repair(store, checker, rebuilt)
        lost = sorted(filter(None, map(column_of, checker.lost)))
        for name in state.layout.field_names(lost).values():
            build_index(store, state.name, name, spark=spark)
        repaired.update(segment.key for segment in broken)
        repaired.update(state.layout.key(facts.label) for facts in rebuilt)
        repaired.update(state.indices[column] for column in checker.lost_indices)
    return [
        replace(
            finding,
            is_repaired=finding.is_repaired
            or (finding.key in repaired and finding.severity is not Severity.NOTE),
        )
        for finding in findings
    ]


def _rebuilt_facts(store: Store, state: State, labels: Sequence[str]) -> list[FileFacts]:
    def rebuild(label: str) -> FileFacts | None:
        try:
            return facts_of_file(store, state.layout, label)
        except (CorruptMetadataError, ObjectNotFoundError):
            return None  # the finding about the file stays a problem

    rebuilt = at_once(rebuild, labels, REQUESTS_AT_ONCE)
    return [facts for facts in rebuilt if facts is not None]


def _commit_repair(store: Store, checker: _Checker, rebuilt: Sequence[FileFacts]) -> None:
    """Commit rebuilt facts in place of lost ones, and drop unreadable segments and indices."""
    state = checker.state
    new = {}
    with Transaction.on(store, state, "repair") as transaction:
        if rebuilt:
            table = facts_table(rebuilt, state.layout.file_schema)
            segment = file_table.new_segment(state.name, table)
            assert segment is not None  # there are rows
            transaction.put(segment.key, file_table.encode(table))
            new[FILES] = (segment,)
        transaction.commit(
            Change(
                edits=tuple(
                    Edit(
                        name=name,
                        removed=tuple(checker.lost.get(name, ())),
                        added=new.get(name, ()),
                    )
                    for name in dict.fromkeys((*checker.lost, *new))
                ),
                lost_indices=frozenset(checker.lost_indices),
            )
        )


def _is_history(finding: Finding) -> bool:
    return finding.key.split("/")[1:2] == ["history"]


def _schema_of(data: bytes) -> pa.Schema:
    return pq.read_schema(pa.BufferReader(data))


def _unreadable_reservation(name: str, batch_id: int, problem: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        key=reservation.key_of(name, batch_id),
        what=f"{problem} The batch is not committed, and a cleanup keeps its files.",
        remedy="If it was staged, restore it from a copy; if the batch is not needed, delete it.",
    )


def _recorded_in(facts: pa.Table) -> dict[str, tuple[int, str]]:
    """Return size and checksum of the files in a table of facts of a tree that has both, by label."""
    columns = (facts.column(name).to_pylist() for name in ("label", "size_bytes", "checksum"))
    return {
        label: (size, text)
        for label, size, text in zip(*columns, strict=True)
        if size is not None and text is not None
    }


def _without_facts(key: str) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        key=key,
        what="There are no facts about the file, so no plan can skip it.",
        remedy="check(repair=True) rebuilds them from the file.",
    )
