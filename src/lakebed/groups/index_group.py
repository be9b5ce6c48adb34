"""Inverted indices of a dataset: list, build, drop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lakebed import work
from lakebed.commit import Commit
from lakebed.common.progress import NO_PROGRESS, OnProgress
from lakebed.common.sizes import Size, parse_size
from lakebed.dataset import session_of
from lakebed.groups.dataset_group import FormerMethod
from lakebed.work.defaults import INDEX_COMMIT_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.work.indexing import InvertedIndex


class IndexGroup(FormerMethod):
    """The inverted indices of a dataset, which find the data files that hold a value."""

    _NAME = "indices"

    def build(
        self,
        column: str,
        spark: SparkSession | Literal[True] | None = None,
        *,
        on_progress: OnProgress = NO_PROGRESS,
        commit_bytes: Size = INDEX_COMMIT_BYTES,
        dry_run: bool = False,
    ) -> InvertedIndex:
        """Index a column, to find the data files that hold a value without opening them.

        From now on, writers index the files that they write. Then existing files are indexed, in
        groups that are committed one by one; an interrupted build resumes where it ended. Readers
        and writers are not disturbed: files that are not indexed yet are read.

        Args:
            column: A field of the schema with a scalar type. A partition field needs no build, and
                no commit: the paths are its index.
            spark: A session whose tasks do the work; True for the active session, else a local
                one. None for this process.
            on_progress: Callback for progress; receives the number of data files read, the total,
                and their bytes.
            commit_bytes: Data files of about this size become one commit.
            dry_run: Write nothing and read no data file; return the index as it is before the
                build, with the number and the bytes of the data files that a build would read.

        Returns:
            The index. It does not cover files of other tools, nor those of a writer that began
            before the build and ended after it: build it again for these.

        Raises:
            InvalidInputError: The column cannot have an index.
            SchemaMismatchError: The column is unknown.
            CorruptMetadataError: A data file is damaged; committed groups stay.
            CommitConflictError: Other writers changed the descriptor repeatedly.
            ReadOnlyError: The dataset cannot be written.

        Cost:
            Every data file that is not indexed yet, read in full to compare its checksum; a commit
            for each group of them, and the index read and written once more.
        """
        self._dataset._check_writable()
        if dry_run:
            return work.indexing.find_build(
                self._dataset._on_dry_run()[1],
                self._dataset.name,
                column,
                self._dataset._commit_options,
            )
        return work.indexing.build_index(
            self._dataset._source.store,
            self._dataset.name,
            column,
            spark=session_of(spark),
            on_progress=on_progress,
            commit_bytes=parse_size(commit_bytes, "commit_bytes"),
            options=self._dataset._commit_options,
        )

    def drop(self, column: str, *, dry_run: bool = False) -> Commit:
        """Drop the index of a column; a cleanup deletes its objects.

        Args:
            column: The indexed column.
            dry_run: Write nothing; return the commit that would be made.

        Raises:
            InvalidInputError: The column has no index.
            CommitConflictError: Another writer changed the descriptor meanwhile.
            ReadOnlyError: The dataset cannot be written.

        Cost:
            The head, the history and one commit.
        """
        if dry_run:
            return self._dataset._dry_run(lambda dry: dry.indices.drop(column))
        self._dataset._check_writable()
        made, base = work.indexing.drop_index(
            self._dataset._source.store, self._dataset.name, column, self._dataset._commit_options
        )
        return Commit.of(made, base)

    def list(self) -> tuple[InvertedIndex, ...]:
        """Return the coverage and size of the inverted indices, and whether they can help.

        Cost:
            The head; for each index one GET a segment, of its footer; the file table.
        """
        return work.indexing.describe_indices(
            self._dataset._source.store, self._dataset._source.load().state
        )
