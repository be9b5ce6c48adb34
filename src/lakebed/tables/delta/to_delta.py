"""Publish to Delta: keep a Delta log over the data files in step with a dataset.

Each publication is one commit of the log, which records the version of the dataset that the table
shows. The next publication adds and removes only the files that changed since that version and
trusts the rest; `check` and `repair` compare all files that the log names. Commits of other writers,
which the table's protocol does not allow, are reported, and only a repair reverts them.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa

from lakebed.common.progress import NO_PROGRESS, OnProgress, Tally
from lakebed.errors import (
    AlreadyExistsError,
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
)
from lakebed.state.published import Note, number_at
from lakebed.state.state import State
from lakebed.store.base import Store, delete_or_leave
from lakebed.store.segments import Segment
from lakebed.tables import engine
from lakebed.tables.compatibility import check_compatible
from lakebed.tables.delta import checkpoint
from lakebed.tables.delta.actions import adds, encode, now_ms, path_of
from lakebed.tables.delta.checkpoint import Checkpoint
from lakebed.tables.delta.delta_schema import (
    TableMetadata,
    has_sidecars,
    table_metadata,
    widens,
)
from lakebed.tables.delta.log import LiveFiles, Log, LogCommit, Mark
from lakebed.tables.delta.log_names import number_of
from lakebed.tables.delta.sidecars import Sidecar, known_in, of_tree
from lakebed.tables.engine import Request, check_deadline
from lakebed.tables.giving_up import give_up
from lakebed.tables.outcome import Publication
from lakebed.tables.shown_facts import shown_files
from lakebed.tables.since import Since, find_since

_log = logging.getLogger(__name__)

NOTE = "delta"
COMMITS_A_CHECKPOINT = 50
_COMPARED = ("schemaString", "partitionColumns", "configuration")
_MANY_FILES = 2_000  # a commit of so many takes long to read as JSON

_Action = Mapping[str, Any]
_Add = dict[str, Any]


def publish(
    store: Store,
    dataset: str,
    *,
    check: bool = False,
    repair: bool = False,
    dry_run: bool = False,
    on_progress: OnProgress = NO_PROGRESS,
) -> Publication:
    """Bring the Delta log of a dataset into step; see `Dataset.publish`."""
    began = time.monotonic()
    request = Request(check=check, repair=repair, dry_run=dry_run)
    target = _DeltaTarget(store, dataset, on_progress, is_repairing=request.repair)
    note = _note(store, dataset)
    return engine.publish(store, dataset, target, note, request, to="delta", began=began)


def unpublish(store: Store, dataset: str, *, dry_run: bool = False) -> bool:
    """Delete the Delta log of a dataset; see `Dataset.unpublish`."""
    log, note = Log(store, dataset), _note(store, dataset)
    note.read(is_damage_nothing=True)
    keys = log.keys()
    is_log = any(number_of(key) is not None for key in keys)
    if is_log and not note.is_there and not log.is_ours(keys):
        raise _not_ours(log)
    if not dry_run and (keys or note.is_there):
        give_up(store, note, log.keys, number_of=number_of, first=0, pointers=[log.pointer])
    return is_log


def _note(store: Store, dataset: str) -> Note:
    return Note(store, dataset, dataset, kind="delta", name=NOTE)


def _not_ours(log: Log) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"There is a Delta log at {log.folder!r} that Lakebed did not write.",
        hint="It was not touched. Move it away if it is no longer in use.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The changes that bring the log in step with the head.

    Attributes:
        state: State of the dataset.
        metadata: Metadata that the table needs.
        tip: The last commit of the log; None if there is no log.
        mark: Mark of the last commit that Lakebed made.
        added: Labels of files that the table lacks.
        removed: Paths, as in the log, of files to remove from the table.
        is_change: False if the same rows are only in other files.
        schema_changes: Differences other than files.
        foreign: Commits of other writers.
        damaged: Reasons why the log cannot be read.
        number: Number of the commit to make.
        is_beginning: True if the log begins with this commit, because an earlier log was given up,
            belongs to another dataset, or cannot be read.
    """

    state: State
    metadata: TableMetadata
    tip: LogCommit | None
    mark: Mark | None
    added: Sequence[str] = ()
    removed: Sequence[str] = ()
    is_change: bool = True
    schema_changes: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()
    number: int = 0
    is_beginning: bool = False


class _DeltaTarget:
    """The Delta log of one dataset."""

    def __init__(
        self, store: Store, dataset: str, on_progress: OnProgress, *, is_repairing: bool
    ) -> None:
        self._store = store
        self._on_progress = on_progress
        self._dataset = dataset
        self._log = Log(store, dataset)
        self._is_repairing = is_repairing
        self._made = -1  # number of the last commit that this publisher made

    @property
    def title(self) -> str:
        return f"Delta {self._dataset}"

    def plan(self, state: State, note: Note, *, is_full: bool) -> _Plan:
        metadata = table_metadata(state)
        place = number_at(note.place)
        commits = self._log.commits_since(place) if place is not None else ()
        if not commits:
            # The note names no commit, or the commit was deleted.
            keys = self._log.keys()
            tip = self._log.last(keys)
            commits, is_full = (() if tip is None else (tip,)), True
            if tip is None:
                plan = _Plan(state=state, metadata=metadata, tip=None, mark=None)
                plan = replace(plan, added=_all_labels(state))
                if keys or note.given_up >= 0:
                    # A checkpoint that was written late would hide the first commit from readers.
                    plan = self._beginning(plan, note)
                return self._proven(plan)
        plan = self._met(commits, state, metadata, is_noted=place is not None)
        if plan.foreign and not is_full:
            raise self._written_by_others(plan.foreign)
        if plan.mark is not None:
            plan = self._begun(plan, plan.mark, commits, note)
        since = None
        if plan.mark is not None and not (is_full or plan.is_beginning):
            since = self._since(state, plan.mark)
        if since is None:
            return self._compared(plan, note)
        added, removed = since.labels
        naming = state.layout.naming
        return self._proven(
            replace(
                plan,
                added=added,
                removed=[path_of(label, naming) for label in removed],
                is_change=any(entry.operation != "compact" for entry in since.entries),
            )
        )

    def _met(
        self,
        commits: Sequence[LogCommit],
        state: State,
        metadata: TableMetadata,
        *,
        is_noted: bool,
    ) -> _Plan:
        """Return a plan with the marks of our last commits and the commits of other writers.

        Args:
            commits: Commits up to the last one.
            state: State of the dataset.
            metadata: Metadata that the table needs.
            is_noted: True if the first commit is the one in the note.
        """
        marks = [commit.mark for commit in commits if self._is_own(commit, state)]
        foreign = tuple(
            f"commit {commit.number}: {commit.description or 'no description'}"
            for commit in commits[is_noted:]
            if commit.mark is None
        )
        if not marks and not foreign and commits[-1].mark is not None:
            marks = [commits[-1].mark]  # for a dataset that was dropped and created again
        if not marks and not is_noted:
            raise _not_ours(self._log)
        mark = marks[-1] if marks else None
        differs = mark is None or mark.digest != metadata.digest
        return _Plan(
            state=state,
            metadata=metadata,
            tip=commits[-1],
            mark=mark,
            schema_changes=("columns or properties of the table",) if differs else (),
            foreign=foreign,
            number=commits[-1].number + 1,
        )

    def _begun(self, plan: _Plan, mark: Mark, commits: Sequence[LogCommit], note: Note) -> _Plan:
        """Decide whether the log goes on or begins again."""
        is_other = any(
            commit.number >= mark.begins_at and not self._is_own(commit, plan.state)
            for commit in commits
            if commit.mark is not None
        )
        if is_other or mark.begins_at <= note.given_up:
            # The old log will be deleted, with the other dataset or because it was given up.
            return self._beginning(replace(plan, mark=None), note)
        trouble = self._log.trouble(commits[-1], mark)
        if not trouble and self._made > commits[-1].number:
            trouble = f"It lacks commits before {self._log.key(self._made)!r}."
        if trouble:
            return self._beginning(replace(plan, damaged=(trouble,)), note)
        return plan

    def _beginning(self, plan: _Plan, note: Note) -> _Plan:
        number = max(self._log.next_number(), note.given_up + 1)
        return replace(plan, number=number, is_beginning=True)

    def _since(self, state: State, mark: Mark) -> Since | None:
        return find_since(self._store, state, mark.version, mark.created_at, mark.commit_id)

    def _is_own(self, commit: LogCommit, state: State) -> bool:
        mark = commit.mark
        return mark is not None and mark.created_at == state.created_at

    def _compared(self, plan: _Plan, note: Note) -> _Plan:
        """Compare all that the log names with the head."""
        state = plan.state
        try:
            live = self._log.live_files()
        except CorruptMetadataError as exc:
            plan = replace(plan, damaged=(*plan.damaged, exc.message))
            plan, live = self._beginning(plan, note), LiveFiles()
        naming = state.layout.naming
        by_path = {path_of(label, naming): label for label in state.labels}
        odd = {path for path, vector in live.files.items() if vector is not None}
        protocol, metadata = plan.metadata.actions("", 0)
        wanted = {name: metadata["metaData"][name] for name in _COMPARED}
        has = {name: live.metadata.get(name) for name in _COMPARED}
        if has != wanted or live.protocol != protocol["protocol"]:
            plan = replace(plan, schema_changes=("columns or properties of the table",))
        return self._proven(
            replace(
                plan,
                added=[
                    label
                    for path, label in by_path.items()
                    if path not in live.files or path in odd
                ],
                removed=[path for path in live.files if path not in by_path or path in odd],
            )
        )

    def _proven(self, plan: _Plan) -> _Plan:
        """Prove that readers of the table read the new files as Lakebed does."""
        state, mark = plan.state, plan.mark
        is_same = mark is not None and mark.schema == state.lineage.number
        pieces = [plan.added] if is_same else state.live.pieces()
        labels = chain.from_iterable(pieces)
        check_compatible(self._store, state, labels, reader="Delta", widens=widens)
        return plan

    def _written_by_others(self, foreign: Sequence[str]) -> InvalidInputError:
        return InvalidInputError(
            f"Others have written to the Delta log of {self._dataset!r}: {'; '.join(foreign[:3])}. "
            "These changes are not in the dataset; nothing was published.",
            hint="If you want their rows, append them to the dataset first. Then publish with "
            "repair, which reverts their changes to the table and keeps their files.",
        )

    def is_to_change(self, plan: _Plan) -> bool:
        return (
            plan.is_beginning
            or plan.mark is None
            or plan.mark.version != plan.state.version
            or plan.mark.created_at != plan.state.created_at
            or plan.mark.commit_id != plan.state.commit_id
            or bool(plan.added or plan.removed or plan.schema_changes or plan.foreign)
        )

    def apply(self, plan: _Plan, note: Note) -> bool:
        if plan.tip is not None and not self.is_to_change(plan):
            # Only the note has to change: with a commit here, publishers of one version that meet
            # would each make commits that change nothing, and disturb each other by them.
            note.place = str(plan.tip.number)
            return True
        files = dict.fromkeys((*plan.added, *plan.removed), 0)
        tally = Tally(self._on_progress, f"publish to {self.title}", files)
        number = plan.number
        mark = self._mark(plan)
        added = self._adds_of(plan.state, plan.added, is_change=plan.is_change)
        sidecars: list[str] = []
        is_due = self._is_checkpoint_due(plan)
        due = self._checkpoint(plan, mark, added, sidecars) if is_due else None
        if due is not None:
            mark = msgspec.structs.replace(mark, checkpoint=number, checkpoint_digest=due.digest)
        lines = [encode(action) for action in self._actions(plan, mark, added)]
        check_deadline(note, self.title)
        if not self._log.add(number, lines):
            delete_or_leave(self._store, sidecars)  # each write of a sidecar has a key of its own
            return False
        self._made = number
        note.place = str(number)
        if due is not None:
            with self._warning_of_no_checkpoint(plan):
                checkpoint.write(self._store, self._log, number, due)
        tally.finish()
        return True

    @contextlib.contextmanager
    def _warning_of_no_checkpoint(self, plan: _Plan) -> Iterator[None]:
        """Log a warning if a checkpoint fails, or raise the error if readers need the checkpoint."""
        try:
            yield
        except LakebedError as exc:
            if plan.is_beginning:
                raise
            _log.warning(
                "no checkpoint of a Delta log dataset=%s version=%d: %s",
                self._dataset,
                plan.number,
                exc.message,
            )

    def _is_checkpoint_due(self, plan: _Plan) -> bool:
        last = -1 if plan.mark is None else plan.mark.checkpoint
        changes = len(plan.added) + len(plan.removed)
        return (
            plan.number - max(last, 0) >= COMMITS_A_CHECKPOINT
            or changes >= _MANY_FILES
            or plan.is_beginning
            or self._is_repairing
            # Readers of the new protocol may not know the form of the last checkpoint.
            or (plan.mark is not None and plan.mark.has_sidecars != has_sidecars(plan.state))
        )

    def _mark(self, plan: _Plan) -> Mark:
        """Return the mark of the commit, for a commit without a checkpoint."""
        state, old = plan.state, plan.mark
        return Mark(
            dataset=self._dataset,
            created_at=state.created_at,
            version=state.version,
            commit_id=state.commit_id,
            digest=plan.metadata.digest,
            schema=state.lineage.number,
            table_id=str(uuid.uuid4()) if old is None else old.table_id,
            created_ms=now_ms() if old is None else old.created_ms,
            checkpoint=-1 if old is None else old.checkpoint,
            begins_at=plan.number if plan.is_beginning else 0 if old is None else old.begins_at,
            has_sidecars=has_sidecars(state),
        )

    def _actions(self, plan: _Plan, mark: Mark, added: Sequence[_Add]) -> Iterator[_Action]:
        moment = now_ms()
        yield {
            "commitInfo": {
                "timestamp": moment,
                "operation": "CREATE TABLE" if plan.tip is None else "WRITE",
                "operationParameters": {"lakebedVersion": str(mark.version)},
                "isBlindAppend": False,
                "engineInfo": "lakebed",
                "userMetadata": mark.to_text(),
            }
        }
        if plan.mark is None or plan.schema_changes or plan.foreign or plan.is_beginning:
            yield from plan.metadata.actions(mark.table_id, mark.created_ms)
        yield _transaction(mark, moment)
        for path in plan.removed:
            removed = {"path": path, "deletionTimestamp": moment, "dataChange": plan.is_change}
            yield {"remove": removed}
        for add in added:
            yield {"add": add}

    def _checkpoint(
        self, plan: _Plan, mark: Mark, added: Sequence[_Add], sidecars: list[str]
    ) -> Checkpoint | None:
        """Return the checkpoint after the commit, built from the last one if there is one.

        Its sidecars are written before it; `sidecars` receives their keys.
        """
        state = plan.state
        other_actions = (
            *plan.metadata.actions(mark.table_id, mark.created_ms),
            _transaction(mark, now_ms()),
        )
        is_alone = self._is_repairing or plan.is_beginning
        with self._warning_of_no_checkpoint(plan):
            if has_sidecars(state):
                known = {} if is_alone else self._known_sidecars(plan)
                parts = of_tree(
                    self._store,
                    self._log,
                    state,
                    known,
                    lambda labels, facts: checkpoint.adds_column(
                        self._adds_of(state, labels, segments=facts)
                    ),
                    basis=f"{plan.metadata.digest} {state.lineage.number}",
                    written=sidecars,
                )
                return checkpoint.encode_of_sidecars(other_actions, parts, plan.number)
            if len(added) == state.live.count:
                return checkpoint.encode(other_actions, checkpoint.adds_column(added))
            adds = None if is_alone else self._adds_from_last(plan)
            if adds is None or len(adds) != state.live.count:
                adds = checkpoint.adds_column(self._adds_of(state, state.labels))
            return checkpoint.encode(other_actions, adds)
        return None

    def _known_sidecars(self, plan: _Plan) -> Mapping[str, Sidecar]:
        """Return the sidecars of the last checkpoint that Lakebed made."""
        last = self._before_checkpoint(plan, by_leaf=True)
        if last is None:
            return {}
        number, mark = last
        return known_in(self._store, self._log, number, mark.checkpoint_digest)

    def _before_checkpoint(self, plan: _Plan, *, by_leaf: bool) -> tuple[int, Mark] | None:
        """Return number and mark of the commit before the last checkpoint that Lakebed made.

        It is None if there is none, or if that checkpoint has the other form.
        """
        mark = plan.mark
        if mark is None or mark.checkpoint < 0 or mark.has_sidecars != by_leaf:
            return None
        last = self._log.read(mark.checkpoint)
        return None if last is None or last.mark is None else (last.number, last.mark)

    def _adds_from_last(self, plan: _Plan) -> pa.ChunkedArray | None:
        """Return the files of the last checkpoint with all later changes; None if unknown."""
        last = None if plan.foreign else self._before_checkpoint(plan, by_leaf=False)
        if last is None:
            return None
        number, mark = last
        since = self._since(plan.state, mark)
        if since is None:
            return None
        added, removed = since.labels
        paths = [path_of(label, plan.state.layout.naming) for label in removed]
        digest = mark.checkpoint_digest
        adds = checkpoint.read_adds(self._store, self._log, number, digest, without=paths)
        if adds is None:
            return None
        new = checkpoint.adds_column(self._adds_of(plan.state, added))
        return pa.chunked_array([*adds.chunks, *new.chunks], adds.type)

    def _adds_of(
        self,
        state: State,
        labels: Sequence[str],
        *,
        is_change: bool = False,
        segments: Sequence[Segment] | None = None,
    ) -> list[_Add]:
        files = shown_files(self._store, state, labels, segments)
        return list(adds(files, state.layout.naming, state.lineage, is_change=is_change))

    def report(self, plan: _Plan, *, is_applied: bool) -> Publication:
        return Publication(
            kind="delta",
            table=f"{self._store.uri}/{self._log.folder.rpartition('/')[0]}",
            version=plan.state.version,
            table_version=plan.number if is_applied and self.is_to_change(plan) else None,
            is_applied=is_applied,
            created=plan.tip is None or (plan.is_beginning and not plan.damaged),
            schema_changes=plan.schema_changes,
            added_count=len(plan.added),
            removed_count=len(plan.removed),
            unchanged_count=plan.state.live.count - len(plan.added),
            foreign=plan.foreign,
            damaged=plan.damaged,
        )


def _all_labels(state: State) -> Sequence[str]:
    """Return the labels of all files; of a tree in the order of its leaves."""
    return [label for piece in state.live.pieces() for label in piece]


def _transaction(mark: Mark, moment: int) -> dict[str, Any]:
    return {
        "txn": {
            "appId": f"lakebed:{mark.dataset}:{mark.created_at}",
            "version": mark.version,
            "lastUpdated": moment,
        }
    }
