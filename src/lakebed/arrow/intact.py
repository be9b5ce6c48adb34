"""Opening of data files whose content is verified.

The file table has the size and a checksum of every file that Lakebed wrote. A rewrite of rows must
compare them first: a bit that flipped on storage would otherwise become the valid content of a new
file, under a good checksum. Formats whose parts have no checksums of their own are compared at
every read.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.arrow.formats.footer_seal import verify_footer, verify_local_footer
from lakebed.arrow.formats.parquet import open_parquet
from lakebed.arrow.reasons import reason_of
from lakebed.errors import (
    AccessDeniedError,
    CorruptMetadataError,
    DamagedFileError,
    ObjectNotFoundError,
    StorageError,
)
from lakebed.plan.plan import DataFile
from lakebed.state import file_table
from lakebed.state.facts import Recorded
from lakebed.store.base import SeekableReader, Store
from lakebed.store.segments import Segment

_MIB = 2**20
_PIECE_BYTES = 8 * _MIB  # of a file, hashed at a time
CHECKSUM_DIFFERS = "the checksum differs"
HELD_BYTES = 256 * _MIB  # compared files up to this size are held; larger ones are read twice


def with_recorded(
    store: Store, segments: Sequence[Segment], files: Iterable[DataFile]
) -> tuple[DataFile, ...]:
    """Return files with the recorded facts of their content, where there are any.

    Args:
        store: Store that holds the file table.
        segments: Segments of the file table.
        files: Files to look up; those with recorded facts are not looked up again.

    Cost:
        See `lakebed.state.file_table.read_recorded`.
    """
    files = tuple(files)
    labels = [file.label for file in files if file.recorded is None]
    known = file_table.read_recorded(store, segments, labels)
    return tuple(replace(file, recorded=known.get(file.label, file.recorded)) for file in files)


def open_intact(store: Store, dataset: str, file: DataFile) -> pa.NativeFile:
    """Open a data file after its whole content was compared with the recorded facts, if any.

    For files of other tools nothing is recorded, for adopted ones only the size: what cannot be
    compared is accepted.

    Raises:
        ObjectNotFoundError: The file is missing.
        DamagedFileError: Its content differs from the recorded facts.

    Cost:
        One GET of the whole file, which is held in memory; of a file of more than 256 MiB several,
        and then those of its reader.
    """
    recorded = file.recorded
    if recorded is None:
        return store.open_input(file.key)
    if recorded.size_bytes > HELD_BYTES or recorded.sha256 is None:
        problem = difference(store, file.key, recorded)
        if problem:
            raise DamagedFileError.of(dataset, file.key, f"is damaged: {problem}.")
        return store.open_input(file.key)
    # One byte more than recorded, to detect a longer file.
    data = store.get_range(file.key, 0, recorded.size_bytes + 1)
    problem = _difference(recorded, len(data), hashlib.sha256(data).hexdigest())
    if problem:
        raise DamagedFileError.of(dataset, file.key, f"is damaged: {problem}.")
    return pa.BufferReader(data)


def difference(store: Store, key: str, recorded: Recorded) -> str:
    """Return how a file differs from its recorded facts; empty if it does not.

    Raises:
        ObjectNotFoundError: The file is missing.

    Cost:
        One HEAD, and one GET for each 8 MiB of the file if a checksum was recorded.
    """
    size_bytes = store.size(key)
    if size_bytes != recorded.size_bytes or recorded.sha256 is None:
        return _difference(recorded, size_bytes, None)
    digest = hashlib.sha256()
    for piece in _pieces(store, key, size_bytes):
        digest.update(piece)
    return _difference(recorded, size_bytes, digest.hexdigest())


def _pieces(store: Store, key: str, size_bytes: int) -> Iterator[bytes]:
    for start in range(0, size_bytes, _PIECE_BYTES):
        yield store.get_range(key, start, _PIECE_BYTES)


def _difference(recorded: Recorded, size_bytes: int, found_hash: str | None) -> str:
    if size_bytes != recorded.size_bytes:
        return f"it does not have the {recorded.size_bytes} bytes that it was written with"
    return "" if recorded.sha256 in (None, found_hash) else CHECKSUM_DIFFERS


class _HeldTail(SeekableReader):
    """A file of a remote store whose last bytes were read already: they cost no second request."""

    def __init__(self, source: pa.NativeFile, size_bytes: int, tail: bytes) -> None:
        super().__init__(size_bytes)
        self._source = source
        self._tail = tail
        self._begin = size_bytes - len(tail)

    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self.size_bytes - self.position)
        size = left if size < 0 else min(size, left)
        if self.position >= self._begin:
            at = self.position - self._begin
            data = self._tail[at : at + size]
        else:
            data = self._source.read_at(size, self.position)
        self.position += len(data)
        return data

    def close(self) -> None:
        self._source.close()
        super().close()


# Files without a seal whose pages could be read with their footers: location, size, and a checksum
# of the footer. A footer that is damaged later is judged again: Arrow would wait for it for ever.
_JUDGED: set[tuple[str, int, int]] = set()
_MOST_JUDGED = 100_000


def open_verified(store: Store, key: str) -> pa.NativeFile:
    """Open a Parquet file after its footer was compared with its seal.

    A file without a seal, of another tool, is judged once by this process, and again if its footer
    changes: rows of its first row group are read, which raises a proper error where questions for
    bounds would end the process.

    Raises:
        ObjectNotFoundError: The file is missing.
        OSError: The footer differs from the seal, or the file cannot be read.

    Cost:
        The read of the footer, which Arrow does not repeat; of a file without a seal also the first
        pages of its columns.
    """
    source = store.open_input(key)
    size_bytes = source.size()
    tail, is_sealed = verify_footer(
        lambda count: source.read_at(count, size_bytes - count), size_bytes
    )
    if not is_sealed:
        _judge(source, f"{store.uri}/{key}", tail)
    return pa.PythonFile(_HeldTail(source, size_bytes, tail), mode="r")


def verify_footers(store: Store, dataset: str, keys: Iterable[str]) -> None:
    """Verify the footers of Parquet files on this machine, which Arrow opens by itself.

    Raises:
        DamagedFileError: The footer of a file differs from its seal, or a file cannot be read.
    """
    keys, key = list(keys), ""
    paths = store.local_paths(keys)
    assert paths is not None
    with translating(dataset, lambda: key):
        for key, path in zip(keys, paths, strict=True):  # noqa: B007 - the error names it
            tail, is_sealed = verify_local_footer(path)
            if not is_sealed:
                with pa.OSFile(path) as source:
                    _judge(source, path, tail)


def _judge(source: pa.NativeFile, location: str, tail: bytes) -> None:
    name = location, source.size(), zlib.crc32(tail)
    if name in _JUDGED:
        return
    file = open_parquet(source)
    if file.num_row_groups:
        next(file.iter_batches(batch_size=1, row_groups=[0]), None)
    _check_types(file.metadata)  # after the read, which raises for footers that end it
    source.seek(0)
    if len(_JUDGED) >= _MOST_JUDGED:
        _JUDGED.clear()
    _JUDGED.add(name)


def _check_types(footer: pq.FileMetaData) -> None:
    """Check that row groups have the types of the schema: to ask others for bounds ends the process.

    Raises:
        OSError: A column has another type.
    """
    wanted = [footer.schema.column(number).physical_type for number in range(footer.num_columns)]
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for place, kind in enumerate(wanted):
            column = group.column(place)
            if column.physical_type != kind:
                raise OSError(
                    f"column {column.path_in_schema!r} is {column.physical_type} in row group "
                    f"{number}, and {kind} in the schema"
                )


@contextmanager
def translating(dataset: str, find_damaged: Callable[[], str] = str) -> Iterator[None]:
    """Translate Arrow's errors for missing and damaged files.

    Args:
        dataset: Name of the dataset that the files belong to.
        find_damaged: Returns the key of the damaged file, as far as it is known.
    """
    try:
        yield
    except (ObjectNotFoundError, FileNotFoundError) as exc:
        raise CorruptMetadataError(
            f"A data file of {dataset!r} is missing: {exc}",
            hint="A cleanup deletes files of older versions. If `check` misses it in the current "
            "version, it was deleted from outside.",
        ) from exc
    except PermissionError as exc:
        raise AccessDeniedError(f"A data file of {dataset!r} cannot be read: {exc}") from exc
    # A name of a column in a damaged footer need not be UTF-8.
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
        if isinstance(exc, OSError) and exc.errno is not None:
            raise StorageError(
                f"A data file of {dataset!r} cannot be read: {exc}", retryable=True
            ) from exc
        how = f"is damaged, or of another type than its column: {reason_of(exc)}."
        raise DamagedFileError.of(dataset, find_damaged(), how) from exc
