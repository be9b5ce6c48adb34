"""Warnings to callers that point to their own line of code."""

from __future__ import annotations

import inspect
import warnings

from lakebed.errors import LakebedWarning

_OWN = frozenset({"lakebed", "pyspark_lakebed"})


def warn(message: str) -> None:
    """Issue a warning for the line of code that called Lakebed, at any depth of calls.

    Args:
        message: The possible problem, and what to do instead.

    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn("The name 'job' is too general. Use one such as 'rawfood-ingester'.")
    >>> caught[0].category.__name__
    'LakebedWarning'
    """
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, LakebedWarning, stacklevel=level)
