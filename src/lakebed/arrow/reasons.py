"""Reasons from Arrow's errors about bad data, without its advice to programmers."""

from __future__ import annotations

import pyarrow as pa

# Errors of Arrow for values of no type, of several, or of another than the requested one.
VALUE_ERRORS = (pa.ArrowException, OverflowError, TypeError, ValueError)


def reason_of(error: BaseException) -> str:
    """Return the first sentence of an error, on one line and without a full stop.

    >>> reason_of(ValueError("Magic bytes not found. Either the file is corrupted or …"))
    'Magic bytes not found'
    """
    return " ".join(str(error).split()).partition(". ")[0].rstrip(".") or type(error).__name__
