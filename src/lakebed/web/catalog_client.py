"""Clients of the catalog that need answers of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PYICEBERG = re.compile(r"PyIceberg 0\.(?:[0-9]|1[0-2])(?:\..*)?")


def is_pyiceberg(headers: Mapping[str, str]) -> bool:
    """Return whether a request comes from pyiceberg 0.12 or older, also within Polars.

    >>> is_pyiceberg({"x-client-version": "PyIceberg 0.12.0"}), is_pyiceberg({})
    (True, False)
    """
    return _PYICEBERG.fullmatch(headers.get("x-client-version", "")) is not None
