"""Raw files that a dataset was made of: list, hold, release."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

from lakebed.commit import Commit
from lakebed.common.given import FileNames, given_files
from lakebed.common.items import Items
from lakebed.groups.dataset_group import FormerMethod
from lakebed.state.reader import read_own_head

if TYPE_CHECKING:
    from lakebed.state.sources import Hold, SourceFile


class SourceGroup(FormerMethod):
    """The raw files that were read into a dataset, and those that are held back."""

    _NAME = "sources"

    def hold(
        self,
        files: FileNames,
        *,
        reason: str = "",
    ) -> Commit | None:
        """Keep raw files from being read by any `Ingest` of the dataset, until they are released.

        Rows that were read already stay; `rollback` or `delete` removes them. A file of a folder
        is held by its path, even if its content changes later; an archived file by its id. An
        ingest that is already running does not commit rows of a file that is held meanwhile. Use
        `Ingest.hold` for a file that was never read. `load` reads the files that it is given, held
        or not.

        Args:
            files: One or several files that were read: the location or path of each, or its id in
                the archive.
            reason: Reason for the hold; `holds` and each run of an ingest show it.

        Returns:
            The commit, or None if all of them were held.

        Raises:
            InvalidInputError: No file of a name was read.

        Cost:
            The record of the files read, which is few objects; two PUTs and a conditional PUT.
        """
        return self._change_holds("hold", files, reason)

    def release(self, files: FileNames) -> Commit | None:
        """Release raw files that are held, so that an `Ingest` reads them again.

        Args:
            files: One or several files: the location of each, its path or its id in the archive.

        Returns:
            The commit, or None if no file was named.

        Raises:
            InvalidInputError: A file is not held.

        Cost:
            As for `hold`.
        """
        return self._change_holds("release", files, "")

    def _change_holds(
        self,
        operation: Literal["hold", "release"],
        files: FileNames,
        reason: str,
    ) -> Commit | None:
        from lakebed.state import sources
        from lakebed.work.ingest import holding

        self._dataset._check_writable()
        store = self._dataset._source.store
        noted = sources.read(store, read_own_head(store, self._dataset.name).state.lists.sources)
        named = [
            holding.hold_named(noted, name, self._dataset.name, operation, reason)
            for name in given_files("files", files)
        ]
        return holding.change_holds(
            store, self._dataset.name, operation, named, self._dataset._commit_options
        )

    def holds(self) -> Items[Hold]:
        """Return the raw files that no `Ingest` reads, in the order in which they were held.

        For an older version: the files that were held by then and still are.

        Cost:
            The head and the record of the files read; for an older version also the history.
        """
        from lakebed.state import sources

        state = self._dataset._source.load().state
        noted = sources.read(self._dataset._source.store, state.lists.sources)
        if self._dataset._source.pinned is None:
            return Items(noted.held.values())
        commits = {entry.commit_id for entry in self._dataset._entries(state)}
        return Items(hold for hold in noted.held.values() if hold.commit_id in commits)

    def list(
        self, *, batch_id: int | None = None, file: str | os.PathLike[str] | None = None
    ) -> tuple[SourceFile, ...]:
        """Return the raw files that an `Ingest` has read into the dataset, oldest first.

        Includes files that were superseded later. The last file of a `slot` is the current one,
        except after a rollback that made another one current again, or none. `is_held` marks the
        files that no ingest reads.

        Args:
            batch_id: Return only the files that were read into this batch.
            file: Return only this file, given by its location or path, or its id in the archive.

        Cost:
            The head and the record of the files read, which are few objects; for an older version
            also the history.
        """
        from msgspec.structs import replace

        from lakebed.state import sources

        state = self._dataset._source.load().state
        noted = sources.read(self._dataset._source.store, state.lists.sources)
        held = noted.held
        files = tuple(replace(file, is_held=file.name in held) for file in noted.files)
        if self._dataset._source.pinned is not None:
            batches = {entry.batch_id for entry in self._dataset._entries(state)}
            files = tuple(source for source in files if source.batch_id in batches)
        locations = () if file is None else (os.fspath(file), os.path.abspath(file))  # noqa: PTH100 - links in the path must stay
        return Items(
            source
            for source in files
            if batch_id in (None, source.batch_id)
            and (file is None or source.location in locations or source.file_id in locations)
        )
