"""The raw files that the rows of a dataset came from, without the erased ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.archive import Archive
from lakebed.archive.erased import hashes_before, is_in_step, replace_content
from lakebed.archive.record import ArchiveRecord
from lakebed.common.shown import counted
from lakebed.errors import InvalidInputError, LakebedError, RecordNotFoundError
from lakebed.model.predicate import Predicate
from lakebed.state import sources as source_list
from lakebed.state.reader import read_own_head
from lakebed.state.sources import SourceFile
from lakebed.store.base import Store
from lakebed.work.certificate import RAW, ErasedPlace, LeftPlace
from lakebed.work.raw_contents import RowTest, UnreadableRowsError, without_rows

_DELETE = "Delete it by `lakebed archive delete`, or Archive.delete."


@dataclass(frozen=True, slots=True, kw_only=True)
class RawErasure:
    """The result of an erasure in raw files.

    Attributes:
        place: Counts of the files.
        left: Files that could not be searched or rewritten.
        fingerprints: The present hash and size of each rewritten file, by the hash that it had when
            it was read.
    """

    place: ErasedPlace
    left: tuple[LeftPlace, ...]
    fingerprints: Mapping[str, tuple[str, int]]


def raw_files_of(store: Store, names: Iterable[str]) -> tuple[SourceFile, ...]:
    """Return the raw files that were read into some datasets.

    Cost:
        The head of each, and the few objects that record its raw files.
    """
    return tuple(
        file
        for name in names
        for file in source_list.read(store, read_own_head(store, name).state.lists.sources).files
    )


def erase_raw(
    files: Sequence[SourceFile],
    archive: Archive | None,
    predicate: Predicate,
    *,
    is_dry_run: bool,
) -> RawErasure:
    """Erase rows from raw files of an archive; name the others.

    Args:
        files: The raw files.
        archive: The archive; None if none was given.
        predicate: The condition, bound to the types of the dataset.
        is_dry_run: Whether nothing is written.

    Cost:
        Each archived file, read once; those with such rows, written once. Memory: one file,
        unpacked.
    """
    work = _Work(archive, predicate, is_dry_run)
    work.run(files)
    return RawErasure(
        place=ErasedPlace(
            place=RAW,
            searched=work.searched,
            row_count=work.rows,
            rewritten=work.rewritten,
        ),
        left=tuple(work.left),
        fingerprints=work.fingerprints,
    )


class _Work:
    def __init__(self, archive: Archive | None, predicate: Predicate, is_dry_run: bool) -> None:  # noqa: FBT001 - private
        self._archive = archive
        self._test = RowTest.of(predicate)
        self._is_dry_run = is_dry_run
        self.searched = self.rows = self.rewritten = 0
        self.left: list[LeftPlace] = []
        self.fingerprints: dict[str, tuple[str, int]] = {}

    def run(self, files: Sequence[SourceFile]) -> None:
        of_archive: dict[str, list[SourceFile]] = {}
        root = None if self._archive is None else f"{self._archive.store.uri}/"
        by_location = {file.location: file.file_id for file in files if file.file_id is not None}
        others: dict[str, None] = {}
        for file in files:
            # The records of a quarantine have no ids.
            file_id = file.file_id or by_location.get(file.location)
            if file_id is None and root is not None and file.location.startswith(root):
                file_id = file.location
            if file_id is None:
                others[file.location] = None
            else:
                of_archive.setdefault(file_id, []).append(file)
        if others:
            self._leave(
                f"{counted(len(others), 'raw file')} outside of an archive, which are not searched.",
                "Rewrite or delete them yourself; `sources` lists them. With raw_files=False "
                "(--no-raw-files) they do not count.",
            )
        if not of_archive:
            return
        if self._archive is None:
            self._leave(
                f"{counted(len(of_archive), 'raw file')} of an archive, which are not searched.",
                "Give the archive: archive=open_archive(…), on the command line --archive.",
            )
        elif self._test is None:
            self._leave(
                "Raw files cannot be searched: the condition names no value by = or IN.",
                "Give keys.",
            )
        else:
            for file_id, known in of_archive.items():
                self._clear(self._archive, self._test, file_id, known)

    def _leave(self, what: str, remedy: str) -> None:
        self.left.append(LeftPlace(place=RAW, what=what, remedy=remedy))

    def _clear(
        self, archive: Archive, test: RowTest, file_id: str, known: Sequence[SourceFile]
    ) -> None:
        try:
            record = archive.record(file_id)
        except RecordNotFoundError:
            return  # it was deleted
        except InvalidInputError:
            self._leave(f"A raw file with an id of another form: {file_id}.", _DELETE)
            return
        self.searched += 1
        try:
            with archive.open_record(record, verify=False) as stream:
                data = stream.read()
            rest, count = without_rows(data, test)
        except (UnreadableRowsError, LakebedError) as error:
            self._leave(
                f"The raw file {file_id} cannot be rewritten: {error}.",
                "Delete it by `lakebed archive delete`, or store a copy without the rows.",
            )
            return
        if test.lines.match(record.metadata.to_json().encode()):
            self._leave(
                f"The metadata of the raw file {file_id} names a value.",
                f"Push it again under another path or work id. {_DELETE}",
            )
        self.rows += count
        self.rewritten += bool(count)
        if self._is_dry_run:
            return
        try:
            if count:
                record = replace_content(archive, record, rest, count)
            elif not is_in_step(archive, record):
                record = archive.ingest(record.id)
        except InvalidInputError as error:
            self._leave(error.message, error.hint or "")
            return
        self._note(record, known)

    def _note(self, record: ArchiveRecord, known: Sequence[SourceFile]) -> None:
        """Note the present hash of a file that erasures have rewritten since it was read."""
        before = hashes_before(record)
        for file in known:
            if file.fingerprint in before and file.fingerprint != record.hash:
                self.fingerprints[file.fingerprint] = (record.hash, record.size_bytes)
