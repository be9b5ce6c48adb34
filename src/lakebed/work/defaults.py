"""Default settings of upkeep."""

from __future__ import annotations

import datetime as dt

MIB = 2**20
GIB = 2**30

TARGET_BYTES = 128 * MIB  # of a compacted file
READ_BEST_BYTES = (64 * MIB, 256 * MIB)  # the sizes at which data files are read best
# A long task commits this often: after a crash, committed work is not repeated.
COMPACTION_COMMIT_BYTES = 64 * GIB  # of old files
INDEX_COMMIT_BYTES = 4 * GIB  # of data files that are indexed

CLOCK_SKEW = dt.timedelta(hours=1)
GRACE = dt.timedelta(hours=1)  # for readers of files that an erasure took out
