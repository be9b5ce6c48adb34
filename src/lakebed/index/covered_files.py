"""The files that a segment of an index covers, without reading the ids of all of them.

A lookup must know of each live file whether the index covers it, and of few files which id is at
which place of a segment. The ids of a million files are 8 MB. So a large segment stores them apart
from its footer, in buckets by their first bits, and the footer has a checksum of each bucket that
can be added: if the sums of all segments are those of the live files, exactly these are covered,
each by one segment, and no id is read. After files were removed, or while an index is built, the
sums of some buckets differ, and only these buckets are read.
"""

from __future__ import annotations

import numpy as np

BUCKETS = 256
_SHIFT = np.int64(63 - 8)  # ids have 63 bits
# Each id counts with two independent values of 64 bits, so that different ids do not have the same
# sums by accident. The mixing is that of splitmix64.
_SEEDS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD1B54A32D192ED03))
_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST_STEP = np.uint64(31)


def bucket_of(ids: np.ndarray) -> np.ndarray:
    """Return the number of the bucket of each id."""
    numbers: np.ndarray = ids >> _SHIFT
    return numbers


def counts_of(ids: np.ndarray) -> np.ndarray:
    """Return the number of ids in each bucket."""
    return np.bincount(bucket_of(ids), minlength=BUCKETS).astype(np.int64)


def sums_of(ids: np.ndarray) -> np.ndarray:
    """Return the checksums of each bucket: a row of two numbers for each.

    Args:
        ids: Distinct ids, ascending.

    >>> ids = np.array([3, 5, 1 << 60], dtype=np.int64)
    >>> parts = sums_of(ids[:1]) + sums_of(ids[1:])
    >>> bool((parts == sums_of(ids)).all()), bool((parts == sums_of(ids[:2])).all())
    (True, False)
    """
    ends = np.cumsum(counts_of(ids))
    sums = np.empty((BUCKETS, len(_SEEDS)), dtype=np.uint64)
    for lane, seed in enumerate(_SEEDS):
        # Sums are modulo 2**64, so those before a bucket can be subtracted.
        totals = np.concatenate([np.zeros(1, np.uint64), np.cumsum(_mixed(ids, seed))])
        sums[:, lane] = np.diff(totals[np.concatenate([[0], ends])])
    return sums


def _mixed(ids: np.ndarray, seed: np.uint64) -> np.ndarray:
    mixed = ids.astype(np.uint64) * np.uint64(2) + seed
    for shift, factor in _STEPS:
        mixed ^= mixed >> np.uint64(shift)
        mixed *= np.uint64(factor)
    mixed ^= mixed >> _LAST_STEP
    return mixed
