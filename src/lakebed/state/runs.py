"""Runs and the data files that they wrote, so that a rerun finds the files that it replaces.

A batch with a named run holds rows of that run. A file that a delete or a compaction rewrote holds
rows of the run of its original file, which the commit records as *carried*. The same holds for a
merge: an updated row stays with the run that first wrote it, so that a rerun of that run replaces
it, and inserted rows belong to the run of the merge. Both records are kept in segments that the
head names, apart from the history: a rerun reads in proportion to the number of runs, and not of
files.

A compaction may merge files of several old runs. The new file is carried under a name that lists these
runs (`merged_name`): every later rewrite keeps it, and a rerun of one of them is refused.

The epochs of a streaming query are runs, too, and there may be millions of them. Only the last of
each query can be replaced; see `lakebed.state.state`. The epochs before it are settled: they are
dropped from the record, like rows without a run, so that a compaction may join them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lakebed.common.shown import counted
from lakebed.errors import CorruptMetadataError, InvalidInputError
from lakebed.model.keys import BATCH_ID, batch_id_of, partition_of_label
from lakebed.model.layout import Folder
from lakebed.state import history
from lakebed.state.history import MERGE, REWRITING, Entry
from lakebed.state.lists import Lists
from lakebed.state.state import Live, epoch_of, newest_epochs
from lakebed.store.base import Store, StoredObject
from lakebed.store.segments import Segment, pack, read_segment, unpack

SUFFIX = ".json.zst"
NO_RUN = ""  # for a file that was carried into the batch of a run, but whose rows have no run
_LOSS = "Data files are not affected; only the record of the runs that wrote them is."


_MERGED = "\0merged "  # no name of a user's run begins so


def merged_name(names: Iterable[str | None]) -> str:
    """Return the name under which a file holds rows of several runs; None is for rows without one."""
    runs = {run for name in names if name for run in merged_runs(name) or (name,)}
    return _MERGED + json.dumps(sorted(runs))


def merged_runs(name: str | None) -> tuple[str, ...]:
    """Return the runs that such a name lists; none for the name of a single run."""
    if name is None or not name.startswith(_MERGED):
        return ()
    return tuple(json.loads(name.removeprefix(_MERGED)))


def shown_run(name: str | None) -> str | None:
    """Return the name of a run for display."""
    runs = merged_runs(name)
    return f"{counted(len(runs), 'run')}, merged" if runs else name


class Runs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The runs by batch, and by rewritten file.

    Attributes:
        batches: The run that wrote a batch, by batch id.
        carried: The run whose rows a rewritten file holds, or `NO_RUN`, by label of the file.
    """

    batches: dict[int, str] = {}
    carried: dict[str, str] = {}

    def settled(self) -> Runs:
        """Return the same without the epochs of streaming queries that can no longer be replaced."""
        last = newest_epochs(self.batches)
        if not last:
            return self

        def is_kept(run: str) -> bool:
            epoch = epoch_of(run)
            known = None if epoch is None else last.get(epoch.query)
            return epoch is None or known is None or epoch.number >= known.epoch

        batches = {batch_id: run for batch_id, run in self.batches.items() if is_kept(run)}
        carried = {label: run if is_kept(run) else NO_RUN for label, run in self.carried.items()}
        return Runs(
            batches=batches,
            # A file without an entry belongs to the run of its batch.
            carried={
                label: run
                for label, run in carried.items()
                if run != NO_RUN or batch_id_of(label) in batches
            },
        )

    def of(self, label: str) -> str | None:
        """Return the run whose rows a data file holds; None without a named run."""
        if label in self.carried:
            return self.carried[label] or None
        batch_id = batch_id_of(label)
        return None if batch_id is None else self.batches.get(batch_id)

    def files_of(self, run: str, labels: Sequence[str]) -> tuple[str, ...]:
        """Return the labels whose files hold rows of a run."""
        own = {f"{BATCH_ID}={batch_id}" for batch_id, name in self.batches.items() if name == run}
        carried = self.carried
        is_carried = run in carried.values()
        if not own and not is_carried:
            return ()  # without a pass over all labels
        batch_labels = [
            label
            for label in labels
            if label.rpartition("/")[0].rpartition("/")[2] in own and label not in carried
        ]
        if not is_carried:
            return tuple(batch_labels)
        kept = {label for label, name in carried.items() if name == run}
        kept.update(batch_labels)
        return tuple(label for label in labels if label in kept)

    def check_replaceable(self, dataset: str, run: str, live: Live) -> None:
        """Check that no compaction has merged rows of a run with those of others.

        Raises:
            InvalidInputError: One has: these rows cannot be found by the name of the run.
        """
        merged = [label for label, name in self.carried.items() if run in merged_runs(name)]
        found = sorted({partition_of_label(label) for label in live.holding(merged)})
        if not found:
            return
        more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
        partitions = f"{', '.join(path or 'the whole dataset' for path in found[:3])}{more}"
        raise InvalidInputError(
            f"Run {run!r} of {dataset!r} cannot be replaced by its name: a compaction across runs "
            f"has merged its rows with those of others, in {partitions}.",
            hint="Overwrite these partitions with all of their rows; or change single rows by upsert "
            "or delete; or roll the compaction back. New rows beside the old ones take another name.",
        )

    def live_files_of(self, run: str, live: Live) -> tuple[str, ...]:
        """Return the labels of the live files that hold rows of a run.

        Args:
            run: Name of the run.
            live: The live files. Of a tree the leaves whose range holds a batch of the run are read.
        """
        batches = [batch_id for batch_id, name in self.batches.items() if name == run]
        carried = [label for label, name in self.carried.items() if name == run]
        if not live.is_tree:
            return self.files_of(run, live.labels) if batches or carried else ()
        own = live.of_batches(batches) if batches else ()
        kept = dict.fromkeys(label for label in own if label not in self.carried)
        return tuple(kept | dict.fromkeys(sorted(live.holding(carried))))


def folder(dataset: str) -> str:
    """Return the folder of the segments of a dataset."""
    return Folder.RUNS.of(dataset)


def noted_by(entries: Iterable[Entry]) -> Runs:
    """Return the runs that commits record."""
    batches: dict[int, str] = {}
    carried: dict[str, str] = {}
    for entry in entries:
        carried.update(entry.carried)
        if entry.run and entry.batch_id is not None and entry.operation not in REWRITING:
            batches[entry.batch_id] = entry.run
    return Runs(batches=batches, carried=carried)


def encode(runs: Runs) -> bytes:
    """Return the bytes of a segment."""
    return pack(runs)


def decode(data: bytes, key: str) -> Runs:
    """Read a segment.

    Raises:
        CorruptMetadataError: The segment is truncated or malformed.
    """
    return unpack(data, Runs, f"Runs {key!r}", _LOSS)


def merge(parts: Sequence[StoredObject]) -> bytes:
    """Merge several segments into one."""
    return encode(_joined(decode(part.data, part.key) for part in parts))


def _joined(parts: Iterable[Runs]) -> Runs:
    batches: dict[int, str] = {}
    carried: dict[str, str] = {}
    for part in parts:
        batches.update(part.batches)
        carried.update(part.carried)
    return Runs(batches=batches, carried=carried).settled()


def new_segment(dataset: str, runs: Runs) -> Segment:
    """Return the segment for the runs of one commit."""
    return Segment.new(folder(dataset), len(runs.batches) + len(runs.carried), SUFFIX)


def read(store: Store, lists: Lists) -> Runs:
    """Return the runs of a state.

    Raises:
        CorruptMetadataError: A segment is missing, damaged or a copy of another one.

    Cost:
        One GET a segment, of which there are few. If the head names none, because no run has had a
        name so far or an older release wrote the head, a read of the history.
    """
    if not lists.runs:
        return noted_by(history.read_bare(store, lists.history))
    stored = [read_segment(store, segment, "Runs", _LOSS) for segment in lists.runs]
    parts = [decode(part.data, part.key) for part in stored]
    check_apart(lists.runs, parts)
    return _joined(parts)


def check_apart(segments: Sequence[Segment], parts: Sequence[Runs]) -> None:
    """Check that no two segments record the same batch.

    Raises:
        CorruptMetadataError: Two do, so that one of them is a copy of the other, in place of what
            it recorded.
    """
    known: set[int] = set()
    for segment, part in zip(segments, parts, strict=True):
        if not known.isdisjoint(part.batches):
            raise CorruptMetadataError(
                f"Runs {segment.key!r} cannot be read: another segment records the same batches.",
                hint=f"An object has taken the place of another one: restore it. {_LOSS}",
            )
        known.update(part.batches)


def with_noted(known: Runs, entries: Sequence[Entry]) -> Runs:
    """Return the runs after further commits, whose segments are not written yet."""
    return _joined([known, noted_by(entries)]) if entries else known


def written_by(entries: Iterable[Entry], run: str) -> Iterator[Entry]:
    """Return the commits in which a run wrote."""
    for entry in entries:
        has_written = entry.operation not in REWRITING or entry.operation == MERGE
        if entry.run == run and has_written:
            yield entry


def to_note(store: Store, lists: Lists, entries: Sequence[Entry]) -> Runs:
    """Return the runs that a commit must record.

    Args:
        store: The store that holds the dataset.
        lists: Lists of the state that the commit changes.
        entries: Entries that the commit adds to the history.

    Cost:
        Nothing, except for the first named run of a dataset: then a read of the history, whose runs
        go to the first segment, so that the segments are complete.
    """
    mine = noted_by(entries)
    if lists.runs or not (mine.batches or mine.carried):
        return mine
    return _joined([noted_by(history.read_bare(store, lists.history)), mine])
