"""Findings of a report: what a person should mend, why, and the command that does it."""

from __future__ import annotations

import datetime as dt
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from lakebed.commit import ChangedRows, Commit, File, Partition
from lakebed.common.shown import counted, human_size
from lakebed.dataset import Dataset
from lakebed.errors import CorruptMetadataError, LakebedError
from lakebed.model.declared import Check, Condition, NotNull
from lakebed.model.locations import shell_address, shell_text
from lakebed.model.predicate import TRUE
from lakebed.model.publishing import TableKind
from lakebed.plan.partition_totals import partition_totals
from lakebed.state import history, published
from lakebed.state.check_results import UNMET
from lakebed.state.history import Entry
from lakebed.state.protections import Protection
from lakebed.state.published import PublishedTable, Shown
from lakebed.state.state import State, should_be_tree
from lakebed.store.base import Store
from lakebed.work.cleanup import CleanupReport
from lakebed.work.compaction import CompactionOptions, CompactionReport, compact
from lakebed.work.defaults import READ_BEST_BYTES
from lakebed.work.indexing import InvertedIndex
from lakebed.work.ingest.quarantine import Quarantine

if TYPE_CHECKING:
    from lakebed.batches.staged import Staged

MIB = 1 << 20
_SKEW = 10  # times the median partition
_FEW = 8  # files of a partition that need no compaction
_MANY = 64  # small files of a dataset that need attention, even if no partition has many
_KEPT_TIMES = 4  # times the live bytes that may be kept for older versions
_WAITING = dt.timedelta(days=1)  # of a staged batch
_RECENT = 10  # commits with results of checks, and commits of a quarantine

AdviceKind = Literal[
    "run",
    "publication",
    "check",
    "quarantine",
    "staged batch",
    "protection",
    "small files",
    "partition size",
    "index",
    "dead bytes",
    "head",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A finding that a person should mend.

    Attributes:
        kind: Kind of the finding.
        text: The finding with its figures, as a sentence.
        why: The reason why it matters, as a sentence.
        command: The command that mends it, or that shows what to decide.
    """

    kind: AdviceKind
    text: str
    why: str
    command: str

    def to_record(self, dataset: str) -> dict[str, str]:
        """Return the finding of a dataset as a record with stable keys."""
        return {
            "dataset": dataset,
            "kind": self.kind,
            "finding": self.text,
            "why": self.why,
            "command": self.command,
        }


def lasting(duration: dt.timedelta) -> str:
    """Return a duration in the unit that suits it.

    >>> lasting(dt.timedelta(seconds=50)), lasting(dt.timedelta(hours=26))
    ('50 seconds', '26 hours')
    >>> lasting(dt.timedelta(days=3, hours=2)), lasting(dt.timedelta(minutes=150))
    ('3.1 days', '2.5 hours')
    """
    seconds = max(0.0, duration.total_seconds())
    units = (("day", 86_400), ("hour", 3_600), ("minute", 60))
    unit, length = next((one for one in units if seconds >= 2 * one[1]), ("second", 1))
    count = f"{seconds / length:.{0 if seconds >= 10 * length else 1}f}".removesuffix(".0")
    return f"{count} {unit}{'' if count == '1' else 's'}"


# Files


def of_files(
    address: str, dataset: Dataset, files: Sequence[File], partitions: Sequence[Partition]
) -> Iterator[Advice]:
    """Yield findings on small files, and on partitions of very different size.

    Cost:
        Nothing, unless there are many small files: then the plan of a compaction, which is a read of
        the head and of few objects.
    """
    small = Counter(
        file.partition
        for file in files
        if (file.size_bytes or READ_BEST_BYTES[0]) < READ_BEST_BYTES[0] / 2
    )
    crowded = {path: count for path, count in small.items() if count > _FEW}
    if crowded:
        text = (
            f"{counted(len(crowded), 'partition')} with more than {_FEW} small files each, "
            f"{counted(sum(crowded.values()), 'file')} in total"
        )
        yield _of_small_files(address, dataset, text)
    elif (count := sum(small.values())) >= _MANY and count * 2 > len(files):
        typical = human_size(int(median(file.size_bytes or 0 for file in files)))
        text = (
            f"{counted(count, 'small file')} of about {typical} each, in {len(partitions):,} "
            "partitions"
        )
        if count > 2 * len(partitions):
            yield _of_small_files(address, dataset, text)
        else:
            yield Advice(
                kind="small files",
                text=f"{text}: the partitions are too small. Coarser ones, such as months for days, "
                "have larger files.",
                why=_WHY_SMALL,
                command=f"lakebed show {address} --partitions",
            )
    sizes = [partition.size_bytes for partition in partitions if partition.size_bytes]
    if len(sizes) >= 4 and max(sizes) > _SKEW * median(sizes) and max(sizes) > READ_BEST_BYTES[1]:
        largest = max(partitions, key=lambda partition: partition.size_bytes or 0)
        yield Advice(
            kind="partition size",
            text=f"Partition {largest.path} is {max(sizes) / median(sizes):.0f} times as large as "
            "the median partition.",
            why="The task that reads or rewrites it takes as much longer than the others.",
            command=f"lakebed show {address} --partitions",
        )


_WHY_SMALL = "Every read opens each of them, which takes longer than their rows."


def _of_small_files(address: str, dataset: Dataset, text: str) -> Advice:
    """Return the finding on small files, with the gain of a compaction."""
    try:
        gain: CompactionReport | None = compact(
            dataset._source.store,
            dataset.name,
            TRUE,
            CompactionOptions(),
            spark=None,
            is_dry_run=True,
        )
    except LakebedError:
        gain = None  # such as of a dataset that another tool writes
    command = f"lakebed compact {address}"
    if gain is not None and gain.files_before > gain.files_after:
        text += (
            f". A compaction makes {gain.files_after:,} of {counted(gain.files_before, 'file')} "
            f"of {human_size(gain.bytes_before)}"
        )
    elif gain is not None and gain.apart_count:
        text += (
            f". They belong to {counted(gain.apart_run_count, 'run')}, and a compaction leaves them "
            "apart. Overwrite partitions that are complete with their own rows"
        )
        command += " --dry-run"
    return Advice(kind="small files", text=f"{text}.", why=_WHY_SMALL, command=command)


def of_indices(address: str, indices: Iterable[InvertedIndex]) -> Iterator[Advice]:
    """Yield findings on indices that do not know all files."""
    for index in indices:
        if index.lost or index.covered_count < index.file_count:
            left = index.file_count - index.covered_count
            yield Advice(
                kind="index",
                text=f"The index of {index.column} lacks {counted(left, 'file')}.",
                why="Every search for a value reads these files.",
                command=f"lakebed index build {address} {shlex.quote(index.column)}",
            )


def of_dead_files(
    address: str, report: CleanupReport | LakebedError, files: Sequence[File], *, is_ours: bool
) -> Iterator[Advice]:
    """Yield findings on bytes that no reader needs.

    Args:
        address: Address of the dataset on the command line.
        report: Plan of a cleanup, or the error that prevents one.
        files: The live files.
        is_ours: Whether Lakebed writes the dataset.
    """
    if isinstance(report, LakebedError):
        if is_ours:
            yield Advice(
                kind="dead bytes",
                text=f"A cleanup is not possible: {report.message}",
                why="Dead files stay, and the storage grows with every commit.",
                command=f"lakebed check {address}",
            )
        return
    live = sum(file.size_bytes or 0 for file in files)
    if report.size_bytes and report.size_bytes >= max(live // 2, MIB):
        yield Advice(
            kind="dead bytes",
            text=f"{human_size(report.size_bytes)} are dead, and {human_size(live)} are live.",
            why="They are paid for, and no reader needs them.",
            command=f"lakebed cleanup {address}",
        )
    kept: Counter[str] = Counter()
    for file in report.kept:
        kept[str(file.reason)] += file.size_bytes or 0
    if kept.total() >= max(_KEPT_TIMES * live, MIB):
        reasons = ", ".join(f"{human_size(size)} {reason}" for reason, size in kept.most_common(3))
        yield Advice(
            kind="dead bytes",
            text=f"{human_size(kept.total())} are kept beside {human_size(live)} of live files: "
            f"{reasons}.",
            why="Older versions take more room than the current one.",
            command=f"lakebed cleanup {address} --kept --dry-run",
        )


def of_head(address: str, state: State) -> Iterator[Advice]:
    """Yield a finding on a head that lists so many files that a tree would be faster."""
    if should_be_tree(state):
        yield Advice(
            kind="head",
            text=f"The head lists {state.live.count:,} files.",
            why="Each commit writes the whole list, and each plan reads it; a tree needs a part.",
            command=f"lakebed compact {address} --head tree",
        )


# Publications


def of_publications(
    address: str, store: Store, state: State, entries: Sequence[Entry]
) -> Iterator[Advice]:
    """Yield findings on tables of other formats that do not show the dataset.

    A table is behind if a later commit has changed files or the schema; a cleanup, for example,
    does not.

    Cost:
        One LIST, and one GET for each table.
    """
    notes = list(published.read_each(store, state.name))
    for table in published.tables_of(state, (note for _, note in notes)):
        finding = _of_table(address, table, entries)
        if finding is not None:
            yield finding
    now = dt.datetime.now(dt.UTC)
    for key, note in notes:
        if isinstance(note, CorruptMetadataError):
            yield Advice(
                kind="publication",
                text=f"A record of a publication cannot be read: {key}.",
                why="No cleanup is possible, as it is unknown which files the table shows.",
                command=f"lakebed check {address}",
            )
        elif len(note.versions) > 1 and not _is_at_work(note, now):
            versions = " or ".join(f"{version:,}" for version in note.versions)
            yield Advice(
                kind="publication",
                text=f"A publication to {note.title} was broken off: it shows version {versions}.",
                why="Cleanups keep the files of all these versions.",
                command=_publish_command(address, note.kind, note.table, state.name),
            )


def _is_at_work(note: Shown, now: dt.datetime) -> bool:
    return any(publisher.until > now for publisher in note.publishers.values())


def _of_table(address: str, table: PublishedTable, entries: Sequence[Entry]) -> Advice | None:
    """Return the finding on a table that is behind; None if it is not."""
    shown = -1 if table.version is None else table.version
    # A new dataset need not be published: its first entry has no file.
    missed = [
        entry
        for entry in entries
        if entry.version > max(shown, 0)
        and (entry.added or entry.removed or entry.descriptor is not None)
    ]
    if not missed or (table.version is None and not table.is_automatic):
        return None
    since = f"{missed[0].committed_at:%Y-%m-%d %H:%M}"
    text = str(table)
    command = _publish_command(address, table.kind, table.table, "")
    if table.is_automatic:
        text += ", although each commit should be published to it"
        command = f"lakebed publish all {address}"
    return Advice(
        kind="publication",
        text=f"{text}: {counted(len(missed), 'commit')} behind, since {since}.",
        why="Its readers see old rows.",
        command=command,
    )


def _publish_command(address: str, kind: TableKind, table: str, beside: str) -> str:
    """Return the command that publishes to a table; `beside` is its name if it has none."""
    command = f"lakebed publish {kind} {address}"
    if not table or (kind != "hive" and table == beside):
        return command
    if kind == "hive":
        return f"{command} --table {shlex.quote(table)}"
    catalog, _, name = table.partition(".")
    return f"{command} --catalog {shlex.quote(catalog)} --table {shlex.quote(name)}"


# Rows


def of_quarantine(lake: str, store: Store, dataset: str, names: Iterable[str]) -> Iterator[Advice]:
    """Yield findings on rejects that wait in quarantine.

    Args:
        lake: Address of the repository on the command line.
        store: The store of the repository.
        dataset: Name of the dataset.
        names: Names of quarantines beside the usual one, as runs record them.

    Cost:
        A read of the head; if there is a quarantine, also its history and its file table.
    """
    for name in dict.fromkeys((f"{dataset}_quarantine", *names)):
        try:
            quarantine = Quarantine.of(dataset, name, is_by_file=True)
            state = quarantine.find(store)
            if state is None or not state.live.count:
                continue
            totals = partition_totals(store, state)
            entries = history.read(store, state.lists.history)
        except LakebedError:
            continue  # the page of that dataset has the reason
        waiting = sum(part.row_count or 0 for part in totals)
        changes = [
            (entry, (changed.inserted or 0) - (changed.deleted or 0))
            for entry in entries
            if (entry.added or entry.removed) and (changed := ChangedRows.of(entry))
        ]
        recent = changes[-_RECENT:]
        growth = sum(change for _, change in recent)
        runs = "run" if len(recent) == 1 else f"{len(recent)} runs"
        since = f"{recent[0][0].committed_at:%Y-%m-%d}" if recent else ""
        grows = (
            f"It grew by {growth:,} in the last {runs}, since {since}."
            if growth > 0
            else f"It has not grown in the last {runs}."
        )
        if waiting:
            yield Advice(
                kind="quarantine",
                text=f"{counted(waiting, 'reject waits', 'rejects wait')} in {name}. {grows}",
                why="These rows are missing in the dataset until their raw file is mended.",
                command=f"lakebed query {shell_address(f'{lake}/{name}')} --columns "
                "reason,text,path --limit 20",
            )


def of_checks(
    address: str,
    commits: Sequence[Commit],
    checks: Mapping[str, Check],
    standing: Mapping[str, str],
) -> Iterator[Advice]:
    """Yield findings on declared checks that rows fail, or that have held rows back.

    Args:
        address: Address of the dataset on the command line.
        commits: The history, oldest first.
        checks: The declared checks by name.
        standing: For each check `passed`, `warned` or `not checked`.
    """
    for name, outcome in standing.items():
        if outcome in UNMET:
            yield _of_unmet(address, name, checks[name], outcome, commits)
    recent = [commit for commit in commits if commit.checks][-_RECENT:]
    for name, check in checks.items():
        lost = [
            result.count
            for commit in recent
            for result in commit.checks
            if result.name == name and result.outcome == "rejected"
        ]
        if lost:
            of = (
                f"{len(lost)} of the last {len(recent)} commits"
                if len(recent) > 1
                else "one commit"
            )
            yield Advice(
                kind="check",
                text=f"Check {name}, {check}, has rejected {counted(sum(lost), 'row')} in {of} with "
                "results of checks.",
                why="Rejected rows are kept nowhere.",
                command=f"lakebed history {address} -n {_RECENT} -o json",
            )


def _of_unmet(
    address: str, name: str, check: Check, outcome: str, commits: Sequence[Commit]
) -> Advice:
    last = next(
        (
            (commit.version, result)
            for commit in reversed(commits)
            for result in reversed(commit.checks)
            if result.name == name and result.outcome in UNMET
        ),
        None,
    )
    text = f"Rows may fail check {name}, {check}: it is {outcome}"
    if last is not None:
        version, result = last
        rows = f", {counted(result.count, 'row')}" if result.count else ""
        examples = f", such as {result.examples[0]}" if result.examples else ""
        text = f"{text} in version {version}{rows}{examples}"
    command = f"lakebed schema checks {address}"
    match check:
        case Condition():
            command = f"lakebed query {address} --where {shell_text(f'NOT ({check.sql})')}"
        case NotNull():
            condition = " OR ".join(f"{column} IS NULL" for column in check.columns)
            command = f"lakebed query {address} --where {shell_text(condition)}"
    return Advice(
        kind="check",
        text=f"{text}.",
        why="Readers rely on the declared checks.",
        command=command,
    )


# Batches and versions


def of_protections(
    address: str, protections: Iterable[Protection], now: dt.datetime
) -> Iterator[Advice]:
    """Yield findings on protections that have ended."""
    for protection in protections:
        if protection.is_expired(now) and protection.until is not None:
            target = (
                f"--batch-id {protection.batch_id}"
                if protection.version is None
                else f"--version {protection.version}"
            )
            yield Advice(
                kind="protection",
                text=f"The protection of {protection.target} ended "
                f"{lasting(now - protection.until)} ago: {protection.reason}.",
                why="The next cleanup deletes its files; until then they take room.",
                command=f"lakebed protection remove {address} {target}",
            )


def of_staged(
    address: str, staged: Iterable[Staged[Dataset]], now: dt.datetime
) -> Iterator[Advice]:
    """Yield findings on staged batches that wait for their commit too long."""
    for batch in staged:
        waits = now - batch.staged_at
        if waits < _WAITING:
            continue
        run = f" of run {batch.run}" if batch.run else ""
        is_over = batch.lease_until <= now
        lease = f"{batch.lease_until:%Y-%m-%d %H:%M}"
        verb = "discard" if is_over else "commit"
        yield Advice(
            kind="staged batch",
            text=f"Batch {batch.batch_id}{run}, {counted(batch.row_count, 'row')}, is staged and has "
            f"waited for {lasting(waits)}; its lease {'ended' if is_over else 'ends'} {lease}.",
            why="A cleanup deletes it, as its lease is over."
            if is_over
            else "Its rows are invisible; after its lease a cleanup deletes them.",
            command=f"lakebed staged {verb} {address} {batch.batch_id}",
        )
