"""A checksum of a Parquet footer, in the file itself: Parquet's checksums cover pages alone.

Arrow believes a footer. One flipped bit in it drops rows by wrong bounds, or ends the process: an
error of its C++ code in a thread is not caught. So the footer is compared before Arrow reads it.

    … row groups │ "LkbF" CRC-32 │ footer │ length │ "PAR1"

The CRC-32 (little endian) covers what follows it. Readers find a footer by its length, from the
end, so none of them sees the eight bytes before it. They travel with the file, wherever it is
copied or adopted, and cost no request.
"""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path

_SEAL = b"LkbF"
_CRC_BYTES = 4
_SEAL_BYTES = len(_SEAL) + _CRC_BYTES
_MAGIC = b"PAR1"
_END_BYTES = 4 + len(_MAGIC)  # the length of the footer, and the magic
TAIL_BYTES = 64 * 1024  # as many as Arrow reads first of a remote file

_O_NONBLOCK = getattr(os, "O_NONBLOCK", 0)  # Windows has none

FOOTER_DIFFERS = "its footer differs from its checksum"


def seal(ending: bytes) -> bytes:
    """Return the end of a file with a seal before the footer.

    Args:
        ending: Bytes up to the end of the file; the whole footer is among them.
    """
    begin = len(ending) - _END_BYTES - _footer_bytes(ending)
    footer = ending[begin:]
    return ending[:begin] + _SEAL + zlib.crc32(footer).to_bytes(4, "little") + footer


def seal_file(path: Path) -> None:
    """Write a seal into a file that another writer has just made."""
    with path.open("r+b") as file:
        size_bytes = file.seek(0, 2)
        file.seek(size_bytes - _END_BYTES)
        begin = size_bytes - _END_BYTES - _footer_bytes(file.read())
        file.seek(begin)
        ending = file.read()
        file.seek(begin)
        file.write(seal(ending))


def verify_footer(read_tail: Callable[[int], bytes], size_bytes: int) -> tuple[bytes, bool]:
    """Compare the footer of a file with its seal.

    Args:
        read_tail: Returns so many bytes from the end of the file.
        size_bytes: Size of the file.

    Returns:
        The last bytes of the file, and whether it has a seal. Files of other tools have none.

    Raises:
        OSError: The footer differs from the seal.
    """
    tail = read_tail(min(size_bytes, TAIL_BYTES))
    if not tail.endswith(_MAGIC):
        return tail, False  # no Parquet: the reader reports what it is
    wanted = _SEAL_BYTES + _footer_bytes(tail) + _END_BYTES
    if len(tail) < wanted <= size_bytes:
        tail = read_tail(wanted)
    begin = len(tail) - wanted
    if begin < 0 or not tail.startswith(_SEAL, begin):
        return tail, False
    footer = begin + _SEAL_BYTES
    expected = int.from_bytes(tail[footer - _CRC_BYTES : footer], "little")
    if zlib.crc32(memoryview(tail)[footer:]) != expected:
        raise OSError(FOOTER_DIFFERS)
    return tail, True


def verify_local_footer(path: str) -> tuple[bytes, bool]:
    """Compare the footer of a file on this machine with its seal; see `verify_footer`.

    Raises:
        OSError: The footer differs from the seal, or the file cannot be read.
    """
    # Plain calls: a scan of a thousand small files asks this a thousand times.
    descriptor = os.open(path, os.O_RDONLY | _O_NONBLOCK)  # a pipe is not waited for
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(errno.ENOENT, "it is not a regular file", path)
        size_bytes = status.st_size
        return verify_footer(
            lambda count: os.pread(descriptor, count, size_bytes - count), size_bytes
        )
    finally:
        os.close(descriptor)


def _footer_bytes(ending: bytes) -> int:
    return int.from_bytes(ending[-_END_BYTES : -len(_MAGIC)], "little")
