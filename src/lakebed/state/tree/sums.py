"""Totals of sets of files, with a checksum that is conserved: sums add up, in any order.

The checksum of a set is the sum of a 128-bit number of each label, in two lanes of 64 bits. So a
commit, a fold or a merge can prove that it neither lost nor doubled a file, without the labels.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Collection, Sequence

import msgspec
import numpy as np

NAME_BYTES = 16  # of a file's name, or of its hash
_LANES = 2
_MASK = 2**64 - 1
# The constants of splitmix64, which spreads each bit of its input over all bits of its output.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class Totals(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Totals of some files; those of two sets can be added and subtracted.

    Attributes:
        files: Number of the files.
        rows: Number of entities in the files for which it is known.
        bytes: Length of these files.
        unknown: Number of files whose rows are not known.
        low: First lane of the checksum.
        high: Second lane of the checksum.

    >>> a, b = Totals(files=2, rows=20, low=2**64 - 1), Totals(files=1, rows=5, low=3)
    >>> a + b == Totals(files=3, rows=25, low=2), a + b - b == a
    (True, True)
    """

    files: int = 0
    rows: int = 0
    bytes: int = 0
    unknown: int = 0
    low: int = 0
    high: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(
            self.files + other.files,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.unknown + other.unknown,
            (self.low + other.low) & _MASK,
            (self.high + other.high) & _MASK,
        )

    def __sub__(self, other: Totals) -> Totals:
        return Totals(
            self.files - other.files,
            self.rows - other.rows,
            self.bytes - other.bytes,
            self.unknown - other.unknown,
            (self.low - other.low) & _MASK,
            (self.high - other.high) & _MASK,
        )

    @property
    def checksum(self) -> str:
        """The checksum as text."""
        return f"{self.low:016x}{self.high:016x}"


def added_up(parts: Collection[Totals]) -> Totals:
    """Return the totals of several sets of files."""
    files, rows, size, unknown, low, high = (
        sum(map(operator.attrgetter(name), parts)) for name in Totals.__struct_fields__
    )
    return Totals(files, rows, size, unknown, low & _MASK, high & _MASK)


def hash_of(text: str) -> bytes:
    """Return the hash of a directory, or of a name that is not of our form."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=NAME_BYTES).digest()


def lanes_of(directories: Sequence[str]) -> np.ndarray:
    """Return the two lanes of each directory."""
    hashes = b"".join(map(hash_of, directories))
    return np.frombuffer(hashes, dtype="<u8").reshape(-1, _LANES)


def checksum_of(directories: np.ndarray, names: np.ndarray, schemas: np.ndarray) -> tuple[int, int]:
    """Return the lanes of the checksum of some files.

    Args:
        directories: The lanes of the directory of each file.
        names: The 16 bytes of each name.
        schemas: Schema number of each file, which is a part of its name.
    """
    lanes = np.ascontiguousarray(names).view("<u8").reshape(-1, _LANES) ^ directories
    # Unsigned numbers wrap, which the sum of a lane is meant to do.
    lanes = lanes + schemas.astype(np.uint64)[:, None] * _STEP
    lanes = (lanes ^ (lanes >> np.uint64(30))) * _FIRST
    lanes = (lanes ^ (lanes >> np.uint64(27))) * _SECOND
    lanes = lanes ^ (lanes >> np.uint64(31))
    low, high = lanes.sum(axis=0, dtype=np.uint64).tolist()
    return low, high
