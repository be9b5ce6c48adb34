"""The content of a data file in the making."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakebed.store.base import Store
from lakebed.store.growing import GrowingFile

_MIB = 2**20
_PIECE_BYTES = _MIB // 4  # smaller ones are gathered
_HELD_BYTES = 8 * _MIB  # in memory, before a store that supports it gets a growing file


def _nowhere() -> None:
    return None


class Content(io.RawIOBase):
    """Collects the bytes of a file, and their checksum, as a stream for its writer.

    A few bytes stay in memory until they are put: a buffer that grows is moved whenever it is full,
    and takes up to three times their size. More bytes go to a file of the store, if it supports
    that.
    """

    def __init__(self, begin: Callable[[], GrowingFile | None] = _nowhere) -> None:
        """Start without bytes.

        Args:
            begin: Begins the file; see `Store.begin_file`. It is called once there are many bytes.
        """
        super().__init__()
        self._begin = begin
        self._is_discarded = False
        self._restart()

    def _restart(self) -> None:
        self._file: GrowingFile | None = None
        self._is_asked = False
        self._pieces: list[bytes | bytearray] = []
        self._gathered = bytearray()
        self._digest = hashlib.sha256()
        self.size_bytes = 0

    @property
    def is_on_disk(self) -> bool:
        """True if the bytes are in a file."""
        return self._file is not None

    @property
    def held_bytes(self) -> int:
        """Bytes in memory."""
        return 0 if self.is_on_disk else self.size_bytes

    @property
    def checksum(self) -> str:
        """Checksum of the bytes, in the form of the file table."""
        return f"sha256:{self._digest.hexdigest()}"

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes."""
        return self.size_bytes

    def write(self, data: Any, /) -> int:
        """Add a copy of bytes.

        Raises:
            StorageError: The store failed.
        """
        size = memoryview(data).nbytes
        if self._is_discarded:  # by an abort; writers end their files even so
            return size
        self._digest.update(data)
        self.size_bytes += size
        if size < _PIECE_BYTES:
            self._gathered += data
        if size >= _PIECE_BYTES or len(self._gathered) >= _PIECE_BYTES:
            self._gather()
        if size >= _PIECE_BYTES:
            self._keep(data)
        return size

    def _gather(self) -> None:
        if self._gathered:
            self._keep(self._gathered)
            self._gathered = bytearray()

    def _keep(self, piece: Any) -> None:
        if self._file is not None:
            self._file.write(piece)
            return
        self._pieces.append(piece if isinstance(piece, bytearray) else bytes(piece))
        if self.size_bytes > _HELD_BYTES and not self._is_asked:
            self._is_asked = True
            self._file = self._begin()
            if self._file is not None:
                for waiting in self._pieces:
                    self._file.write(waiting)
                self._pieces.clear()

    def getvalue(self) -> bytes:
        """Return the bytes in memory."""
        self._gather()
        return b"".join(self._pieces)

    def take(self) -> pa.NativeFile:
        """Return what was written so far, for reading, and start again without bytes."""
        self._gather()
        if self._file is None:
            source: pa.NativeFile = pa.BufferReader(self.getvalue())
        else:
            self._file.flush()
            source = pa.OSFile(str(self._file.path))
            self._file.discard()  # it stays for as long as it is read
        self._restart()
        return source

    def put(self, store: Store, key: str) -> None:
        """Make an object of the bytes, and discard them.

        Raises:
            StorageError: The store failed.
        """
        self._gather()
        if self._file is not None:
            try:
                self._file.close()
                store.adopt(self._file.path, key)
            except BaseException:
                self._file.discard()
                raise
        elif self.size_bytes <= _HELD_BYTES:
            store.put(key, self.getvalue())
        else:
            store.put_stream(key, self._pieces, size_bytes=self.size_bytes)

    def discard(self) -> None:
        """Discard the bytes, and all that are written later."""
        self._is_discarded = True
        if self._file is not None:
            self._file.discard()
        self._restart()
