"""Contents as streams: read in pieces, hashed and compressed on the way, checked at the end."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import stat
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

import pyarrow as pa

from lakebed.arrow.reading.hashes import HASH_BYTES, check_hash
from lakebed.errors import InvalidInputError

if TYPE_CHECKING:
    from typing_extensions import Buffer

PIECE_BYTES = 1024 * 1024
_READ_AHEAD_BYTES = 4 * 1024 * 1024  # size of one request to an object store
_SPOOL_BYTES = 8 * 1024 * 1024
_GZIP = 31  # zlib's window bits for gzip; zlib writes no name and no time


class Hashed(Iterator[bytes]):
    """Pieces that are hashed and counted as they are taken.

    Attributes:
        size_bytes: Number of bytes taken so far.
    """

    def __init__(self, pieces: Iterable[bytes], *, expected: str | None = None) -> None:
        """Take the pieces of a content.

        Args:
            pieces: The content.
            expected: The hash of the content, if it is known; a different hash is an error at the
                end of the pieces.
        """
        self._pieces = iter(pieces)
        self._digest = hashlib.blake2b(digest_size=HASH_BYTES)
        self._expected = expected
        self.size_bytes = 0

    def __next__(self) -> bytes:
        piece = next(self._pieces, None)
        if piece is None:
            if self._expected is not None and self.hash != self._expected:
                msg = f"The content changed while it was read: {self._expected} became {self.hash}."
                raise InvalidInputError(msg, hint="Push it again when no process writes to it.")
            raise StopIteration
        self._digest.update(piece)
        self.size_bytes += len(piece)
        return piece

    @property
    def hash(self) -> str:
        """The hash of the pieces taken so far."""
        return self._digest.hexdigest()


def pieces_of(file: IO[bytes], *, compress: bool = False) -> Iterator[bytes]:
    """Yield the rest of a file; with `compress` as gzip whose bytes depend only on the content."""
    pieces = _read_pieces(file)
    return _compressed(pieces) if compress else pieces


def _read_pieces(file: IO[bytes]) -> Iterator[bytes]:
    while True:
        with using(getattr(file, "name", "the content")):
            piece = file.read(PIECE_BYTES)
        if not piece:
            return
        yield piece


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(wbits=_GZIP)
    for piece in pieces:
        if block := compressor.compress(piece):
            yield block
    yield compressor.flush()


@contextlib.contextmanager
def using(path: object) -> Iterator[None]:
    """Report an OSError on a file or folder of the caller as an error that names it."""
    try:
        yield
    except OSError as exc:
        raise _unusable_error(path, exc) from exc


def _unusable_error(path: object, exc: OSError) -> InvalidInputError:
    reason = os.strerror(exc.errno) if exc.errno else str(exc)
    return InvalidInputError(
        f"{path} cannot be used: {reason}.", hint="Check path, owner, mode and space."
    )


@contextlib.contextmanager
def opened(source: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    """Open a path; an open file is passed through and stays open.

    Raises:
        InvalidInputError: It cannot be opened.
    """
    if not isinstance(source, str | os.PathLike):
        yield source
        return
    with contextlib.ExitStack() as stack:
        with using(source):
            file = stack.enter_context(Path(source).open("rb"))
        yield file


@contextlib.contextmanager
def open_entry(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that was met in a directory to which other programs write.

    Raises:
        FileNotFoundError: It is gone.
        InvalidInputError: It cannot be opened, or is a symbolic link or not a regular file. A link
            may lead to a file that only this process may read, and a pipe would be waited for.
    """
    if path.is_symlink():
        raise _entry_error(path, "a symbolic link, which is not followed")
    with contextlib.ExitStack() as stack:
        try:
            # A link that takes the place of the file now is an error of `open`.
            file = stack.enter_context(open(path, "rb", opener=_open_at_once))
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise _unusable_error(path, exc) from exc
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _entry_error(path, "not a regular file")
        yield file


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _entry_error(path: Path, what: str) -> InvalidInputError:
    return InvalidInputError(f"{path} is {what}.", hint="Put a copy of the file in its place.")


@contextlib.contextmanager
def readable_twice(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a file that can be read twice: a copy on disk if `file` cannot seek."""
    with using(getattr(file, "name", "the content")):
        is_seekable = file.seekable()
    if is_seekable:
        yield file
        return
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as copy:
        for piece in pieces_of(file):
            copy.write(piece)
        copy.seek(0)
        yield copy


def open_verified(file: pa.NativeFile, where: str, expected_hash: str | None) -> BinaryIO:
    """Return a reader that checks the hash when the last byte has been read.

    Args:
        file: The content; closed with the reader.
        where: Name of the content in the error.
        expected_hash: The hash in the metadata; None checks nothing.
    """
    return io.BufferedReader(_VerifiedReader(file, where, expected_hash), _READ_AHEAD_BYTES)


class _VerifiedReader(io.RawIOBase):
    def __init__(self, file: pa.NativeFile, where: str, expected_hash: str | None) -> None:
        super().__init__()
        self._file = file
        self._where = where
        self._expected_hash = expected_hash
        self._digest = hashlib.blake2b(digest_size=HASH_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        target = memoryview(buffer).cast("B")
        data = self._file.read(len(target))
        self._digest.update(data)
        if not data and len(target):
            self._check()
        target[: len(data)] = data
        return len(data)

    def readall(self) -> bytes:
        # The inherited method reads 8 KiB at a time, each of which may be a request.
        pieces = []
        while True:
            piece = self._file.read(_READ_AHEAD_BYTES)
            if not piece:
                break
            self._digest.update(piece)
            pieces.append(piece)
        self._check()
        return b"".join(pieces)

    def _check(self) -> None:
        hint = "It was damaged or replaced; to read it anyway, do not verify."
        check_hash(self._digest.hexdigest(), self._expected_hash, self._where, hint)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


def write_file(source: IO[bytes], target: Path) -> None:
    """Copy a content to a file, which appears only when it is complete."""
    with using(target):
        _write_file(source, target)


def _write_file(source: IO[bytes], target: Path) -> None:
    with temporary_file(target.parent) as (temporary, file):
        shutil.copyfileobj(source, file, PIECE_BYTES)
        file.close()
        temporary.replace(target)


@contextlib.contextmanager
def temporary_file(directory: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """Yield a new hidden file, which is deleted afterwards unless it was renamed."""
    path = directory / f".{uuid.uuid4().hex}.tmp"
    # Not tempfile: its files are readable only by their owner, and stay so when they are renamed.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield path, file
    finally:
        path.unlink(missing_ok=True)
