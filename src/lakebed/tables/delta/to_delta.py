"""Publish to Delta: keep a Delta log over the data files in step with a dataset.

Each publication is one commit of the log, and says of which version of the dataset the table is
since. So a publication names the files that commits have added and removed since, and believes
the rest; `check` and `repair` compare all that the log names. What others have written to the log,
though its protocol asks them not to, is told, and only a repair takes it back.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from lakebed.model.keys import schema_number_of
from lakebed.state.published import Note, number_at
from lakebed.state.state import State
from lakebed.store.base import Store
from lakebed.tables.compatibility import check_compatible
from lakebed.tables.delta import checkpoint
from lakebed.tables.delta.actions import adds, encode, path_of
from lakebed.tables.delta.checkpoint import Checkpoint
from lakebed.tables.delta.delta_schema import TableMetadata, table_metadata, widens
from lakebed.tables.delta.log import LiveFiles, Log, LogCommit, Mark
from lakebed.tables.delta.log_names import number_of
from lakebed.tables.engine import Wish, bring_into_step, check_deadline
from lakebed.tables.giving_up import give_up
from lakebed.tables.outcome import TablePublication
from lakebed.tables.shown_facts import shown_files
from lakebed.tables.since import Since, find_since

_log = logging.getLogger(__name__)

NOTE = "delta"
COMMITS_A_CHECKPOINT = 50
_COMPARED = ("schemaString", "partitionColumns", "configuration")
_MANY_FILES = 2_000  # whose commit is long to read as JSON

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
) -> TablePublication:
    """Bring the Delta log of a dataset into step; see `Dataset.publish_delta`."""
    began = time.monotonic()
    wish = Wish(check=check, repair=repair, dry_run=dry_run)
    target = _DeltaTarget(store, dataset, on_progress, is_repairing=wish.repair)
    note = _note(store, dataset)
    done = bring_into_step(store, dataset, target, note, wish)
    done = replace(done, seconds=time.monotonic() - began)
    _log.info(
        "published dataset=%s to=delta version=%d added=%d removed=%d applied=%s",
        dataset,
        done.version,
        done.added_count,
        done.removed_count,
        done.is_applied,
    )
    return done


def unpublish(store: Store, dataset: str, *, dry_run: bool = False) -> bool:
    """Delete the Delta log of a dataset; see `Dataset.unpublish_delta`."""
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
        hint="It was not touched. Move it away, if nobody reads it any more.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one look at head and log says is to be done.

    Attributes:
        state: Of the dataset.
        metadata: What the table shall be.
        tip: The last commit of the log; None if there is no log.
        mark: Of the last commit of ours.
        added: Labels of files that the table lacks.
        removed: Paths, as in the log, that it shall not have.
        is_change: Whether rows come or go, and are not only in other files.
        schema_changes: What else differs.
        foreign: Commits of others.
        damaged: Why the log cannot be read.
        number: Of the commit to make.
        is_beginning: Whether the log begins with it, whatever there was before: that was given up,
            is another dataset's, or cannot be read.
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
        self._made = -1  # number of the last commit that this publisher has made

    @property
    def title(self) -> str:
        return f"Delta {self._dataset}"

    def look(self, state: State, note: Note, *, is_full: bool) -> _Look:
        metadata = table_metadata(state)
        place = number_at(note.place)
        commits = self._log.commits_since(place) if place is not None else ()
        if not commits:
            # Nobody has noted how far it goes, or somebody has taken it away.
            keys = self._log.keys()
            tip = self._log.last(keys)
            commits, is_full = (() if tip is None else (tip,)), True
            if tip is None:
                look = _Look(state=state, metadata=metadata, tip=None, mark=None)
                look = replace(look, added=state.labels)
                if keys or note.given_up >= 0:
                    # A checkpoint that landed late leads readers away from the first commit.
                    look = self._beginning(look, note)
                return self._proven(look)
        look = self._met(commits, state, metadata, is_noted=place is not None)
        if look.foreign and not is_full:
            raise self._written_by_others(look.foreign)
        if look.mark is not None:
            look = self._begun(look, look.mark, commits, note)
        since = None
        if look.mark is not None and not (is_full or look.is_beginning):
            since = self._since(state, look.mark)
        if since is None:
            return self._compared(look, note)
        added, removed = since.labels
        naming = state.layout.naming
        return self._proven(
            replace(
                look,
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
    ) -> _Look:
        """Say whose the last commits are.

        Args:
            commits: Up to the last one.
            state: Of the dataset.
            metadata: What the table shall be.
            is_noted: Whether the first of them is the one that was noted.
        """
        marks = [commit.mark for commit in commits if self._is_own(commit, state)]
        foreign = tuple(
            f"commit {commit.number}: {commit.told or 'nothing said'}"
            for commit in commits[is_noted:]
            if commit.mark is None
        )
        if not marks and not foreign and commits[-1].mark is not None:
            marks = [commits[-1].mark]  # of a dataset that was dropped and created again
        if not marks and not is_noted:
            raise _not_ours(self._log)
        mark = marks[-1] if marks else None
        differs = mark is None or mark.digest != metadata.digest
        return _Look(
            state=state,
            metadata=metadata,
            tip=commits[-1],
            mark=mark,
            schema_changes=("columns or properties of the table",) if differs else (),
            foreign=foreign,
            number=commits[-1].number + 1,
        )

    def _begun(self, look: _Look, mark: Mark, commits: Sequence[LogCommit], note: Note) -> _Look:
        """Say whether the log goes on, or begins again."""
        is_other = any(
            commit.number >= mark.begins_at and not self._is_own(commit, look.state)
            for commit in commits
            if commit.mark is not None
        )
        if is_other or mark.begins_at <= note.given_up:
            # Who drops the other dataset, or has given the log up, deletes it sooner or later.
            return self._beginning(replace(look, mark=None), note)
        trouble = self._log.trouble(commits[-1], mark)
        if not trouble and self._made > commits[-1].number:
            trouble = f"It lacks commits before {self._log.key(self._made)!r}."
        if trouble:
            return self._beginning(replace(look, damaged=(trouble,)), note)
        return look

    def _beginning(self, look: _Look, note: Note) -> _Look:
        number = max(self._log.next_number(), note.given_up + 1)
        return replace(look, number=number, is_beginning=True)

    def _since(self, state: State, mark: Mark) -> Since | None:
        return find_since(self._store, state, mark.version, mark.created_at, mark.commit_id)

    def _is_own(self, commit: LogCommit, state: State) -> bool:
        mark = commit.mark
        return mark is not None and mark.created_at == state.created_at

    def _compared(self, look: _Look, note: Note) -> _Look:
        """Compare all that the log names with the head."""
        state = look.state
        try:
            live = self._log.live_files()
        except CorruptMetadataError as exc:
            look = replace(look, damaged=(*look.damaged, exc.message))
            look, live = self._beginning(look, note), LiveFiles()
        naming = state.layout.naming
        by_path = {path_of(label, naming): label for label in state.labels}
        odd = {path for path, vector in live.files.items() if vector is not None}
        protocol, metadata = look.metadata.actions("", 0)
        wanted = {name: metadata["metaData"][name] for name in _COMPARED}
        has = {name: live.metadata.get(name) for name in _COMPARED}
        if has != wanted or live.protocol != protocol["protocol"]:
            look = replace(look, schema_changes=("columns or properties of the table",))
        return self._proven(
            replace(
                look,
                added=[
                    label
                    for path, label in by_path.items()
                    if path not in live.files or path in odd
                ],
                removed=[path for path in live.files if path not in by_path or path in odd],
            )
        )

    def _proven(self, look: _Look) -> _Look:
        """Prove that readers of the table read the new files as Lakebed does."""
        state, mark = look.state, look.mark
        is_same = mark is not None and mark.schema == state.lineage.number
        labels = look.added if is_same else state.labels
        number = state.lineage.number
        old = [label for label in labels if schema_number_of(label, newest=number) != number]
        if old:
            check_compatible(self._store, state, old, reader="Delta", widens=widens)
        return look

    def _written_by_others(self, foreign: Sequence[str]) -> InvalidInputError:
        return InvalidInputError(
            f"Others have written to the Delta log of {self._dataset!r}: {'; '.join(foreign[:3])}. "
            "The dataset knows nothing of it, and nothing was changed.",
            hint="Bring what they wrote into the dataset first, if it is wanted. Then publish with "
            "repair: that takes their changes out of the table; their files stay.",
        )

    def is_to_change(self, now: _Look) -> bool:
        return (
            now.is_beginning
            or now.mark is None
            or now.mark.version != now.state.version
            or now.mark.created_at != now.state.created_at
            or now.mark.commit_id != now.state.commit_id
            or bool(now.added or now.removed or now.schema_changes or now.foreign)
        )

    def apply(self, now: _Look, note: Note) -> bool:
        files = dict.fromkeys((*now.added, *now.removed), 0)
        tally = Tally(self._on_progress, f"publish to {self.title}", files)
        number = now.number
        mark = self._mark(now)
        added = self._adds_of(now.state, now.added, is_change=now.is_change)
        due = self._checkpoint(now, mark, added) if self._is_checkpoint_due(now) else None
        if due is not None:
            mark = msgspec.structs.replace(mark, checkpoint=number, checkpoint_digest=due.digest)
        lines = [encode(action) for action in self._actions(now, mark, added)]
        check_deadline(note, self.title)
        if not self._log.add(number, lines):
            return False
        self._made = number
        note.place = str(number)
        if due is not None:
            with self._warning_of_no_checkpoint(now):
                checkpoint.write(self._store, self._log, number, due)
        tally.finish()
        return True

    @contextlib.contextmanager
    def _warning_of_no_checkpoint(self, now: _Look) -> Iterator[None]:
        """Go on without a checkpoint, unless readers need it."""
        try:
            yield
        except LakebedError as exc:
            if now.is_beginning:
                raise
            _log.warning(
                "no checkpoint of a Delta log dataset=%s version=%d: %s",
                self._dataset,
                now.number,
                exc.message,
            )

    def _is_checkpoint_due(self, now: _Look) -> bool:
        last = -1 if now.mark is None else now.mark.checkpoint
        changes = len(now.added) + len(now.removed)
        return (
            now.number - max(last, 0) >= COMMITS_A_CHECKPOINT
            or changes >= _MANY_FILES
            or now.is_beginning
            or self._is_repairing
        )

    def _mark(self, now: _Look) -> Mark:
        """Return what the commit says of itself, if it is one without a checkpoint."""
        state, old = now.state, now.mark
        return Mark(
            dataset=self._dataset,
            created_at=state.created_at,
            version=state.version,
            commit_id=state.commit_id,
            digest=now.metadata.digest,
            schema=state.lineage.number,
            table_id=str(uuid.uuid4()) if old is None else old.table_id,
            created_ms=_now_ms() if old is None else old.created_ms,
            checkpoint=-1 if old is None else old.checkpoint,
            begins_at=now.number if now.is_beginning else 0 if old is None else old.begins_at,
        )

    def _actions(self, now: _Look, mark: Mark, added: Sequence[_Add]) -> Iterator[_Action]:
        moment = _now_ms()
        yield {
            "commitInfo": {
                "timestamp": moment,
                "operation": "CREATE TABLE" if now.tip is None else "WRITE",
                "operationParameters": {"lakebedVersion": str(mark.version)},
                "isBlindAppend": False,
                "engineInfo": "lakebed",
                "userMetadata": mark.to_text(),
            }
        }
        if now.mark is None or now.schema_changes or now.foreign or now.is_beginning:
            yield from now.metadata.actions(mark.table_id, mark.created_ms)
        yield _transaction(mark, moment)
        for path in now.removed:
            removed = {"path": path, "deletionTimestamp": moment, "dataChange": now.is_change}
            yield {"remove": removed}
        for add in added:
            yield {"add": add}

    def _checkpoint(self, now: _Look, mark: Mark, added: Sequence[_Add]) -> Checkpoint | None:
        """Return what the log will say, made of the last checkpoint where there is one."""
        state = now.state
        rest = (
            *now.metadata.actions(mark.table_id, mark.created_ms),
            _transaction(mark, _now_ms()),
        )
        is_alone = self._is_repairing or now.is_beginning
        with self._warning_of_no_checkpoint(now):
            if len(added) == len(state.labels):
                return checkpoint.encode(rest, checkpoint.adds_column(added))
            adds = None if is_alone else self._adds_from_last(now)
            if adds is None or len(adds) != len(state.labels):
                adds = checkpoint.adds_column(self._adds_of(state, state.labels))
            return checkpoint.encode(rest, adds)
        return None

    def _adds_from_last(self, now: _Look) -> pa.ChunkedArray | None:
        """Return the files of the last checkpoint with what came and went since; None if unknown."""
        if now.mark is None or now.mark.checkpoint < 0 or now.foreign:
            return None
        last = self._log.read(now.mark.checkpoint)
        if last is None or last.mark is None:
            return None
        since = self._since(now.state, last.mark)
        if since is None:
            return None
        added, removed = since.labels
        gone = [path_of(label, now.state.layout.naming) for label in removed]
        digest = last.mark.checkpoint_digest
        adds = checkpoint.read_adds(self._store, self._log, last.number, digest, without=gone)
        if adds is None:
            return None
        new = checkpoint.adds_column(self._adds_of(now.state, added))
        return pa.chunked_array([*adds.chunks, *new.chunks], adds.type)

    def _adds_of(
        self, state: State, labels: Sequence[str], *, is_change: bool = False
    ) -> list[_Add]:
        files = shown_files(self._store, state, labels)
        return list(adds(files, state.layout.naming, state.lineage, is_change=is_change))

    def report(self, now: _Look, *, is_applied: bool) -> TablePublication:
        return TablePublication(
            kind="delta",
            table=f"{self._store.uri}/{self._log.folder.rpartition('/')[0]}",
            version=now.state.version,
            table_version=now.number if is_applied and self.is_to_change(now) else None,
            is_applied=is_applied,
            created=now.tip is None or (now.is_beginning and not now.damaged),
            schema_changes=now.schema_changes,
            added_count=len(now.added),
            removed_count=len(now.removed),
            unchanged_count=len(now.state.labels) - len(now.added),
            foreign=now.foreign,
            damaged=now.damaged,
        )


def _transaction(mark: Mark, moment: int) -> dict[str, Any]:
    return {
        "txn": {
            "appId": f"lakebed:{mark.dataset}:{mark.created_at}",
            "version": mark.version,
            "lastUpdated": moment,
        }
    }


def _now_ms() -> int:
    return int(dt.datetime.now(dt.UTC).timestamp() * 1000)
