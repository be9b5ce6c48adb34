"""The lineage of a data file: its commits, batch, runs and raw files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.batches.diff import view_of_files
from lakebed.commit import Commit, File
from lakebed.dataset import Dataset
from lakebed.errors import LakebedError, NotFoundError
from lakebed.state import runs, sources
from lakebed.state.sources import SourceFile
from lakebed.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOrigin:
    """A data file and its lineage.

    Attributes:
        file: The file.
        version: A version that has the file; the current one if possible.
        is_live: True if the current version has it.
        added_by: The commit that added it; None if the history does not name it.
        removed_by: The last commit that removed it.
        run: Name of the run whose rows it holds; None if they have none.
        sources: Raw files of its rows, with the number of rows in this file, or None if only the
            batch is known to have read them.
        view: The rows of the file.
    """

    file: File
    version: int
    is_live: bool
    added_by: Commit | None
    removed_by: Commit | None
    run: str | None
    sources: Sequence[tuple[SourceFile, int | None]]
    view: View


def find_file(dataset: Dataset, key: str) -> FileOrigin:
    """Return a data file of a dataset with its lineage.

    Args:
        dataset: The dataset.
        key: Key of the file.

    Raises:
        NotFoundError: No version that can be read has the file.

    Cost:
        The head, the history, the file table, and what is noted of runs and raw files.
    """
    current = dataset.snapshot()
    history = current._commits()
    added_by = next((each for each in reversed(history) if key in each.files_added), None)
    removed_by = next((each for each in reversed(history) if key in each.files_removed), None)
    versions = [current.version]
    if added_by is not None:
        versions.append(added_by.version)
    for version in versions:
        try:
            pinned = current if version == current.version else dataset.at(version=version)
        except LakebedError:
            continue  # cleaned up
        file = next((each for each in pinned.files() if each.key == key), None)
        if file is not None:
            break
    else:
        raise NotFoundError(
            f"Dataset {dataset.name!r} has no data file {key!r}.",
            hint="A cleanup may have deleted it; the page of rows links to files that exist.",
        )
    source = pinned._source
    state = source.load().state
    label = next(label for label in state.labels if state.layout.naming.key(label) == key)
    return FileOrigin(
        file=file,
        version=pinned.version,
        is_live=pinned.version == current.version,
        added_by=added_by,
        removed_by=removed_by,
        run=runs.shown_run(runs.read(source.store, state.lists).of(label)),
        sources=_sources_of(pinned, label, file),
        view=view_of_files(source.store, state, (label,)),
    )


def _sources_of(
    dataset: Dataset, label: str, file: File
) -> Sequence[tuple[SourceFile, int | None]]:
    noted = sources.read(dataset._source.store, dataset._source.load().state.lists.sources)
    origins = noted.runs.get(label)
    if origins is None:
        return [(each, None) for each in noted.files if each.batch_id == file.batch_id]
    by_key = {each.key: each for each in noted.files}
    counts: dict[str, int] = {}
    for key, count in origins:
        counts[key] = counts.get(key, 0) + count
    return [(by_key[key], count) for key, count in counts.items() if key in by_key]
