"""Errors of what cannot be read of a table: pyiceberg raises all kinds of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.errors import CorruptMetadataError, LakebedError

REMEDY = "Publish with repair, which begins the table again; the dataset itself is not affected."


@contextmanager
def reading(key: str, content: str) -> Iterator[None]:
    """Name what cannot be read.

    Args:
        key: Of the object, or where it is.
        content: Of which it should be.

    Raises:
        CorruptMetadataError: It cannot be read.
    """
    try:
        yield
    except LakebedError:
        raise
    except OSError as exc:
        if not isinstance(exc, FileNotFoundError):
            raise
        raise CorruptMetadataError(f"{key!r}, {content}, is missing.", hint=REMEDY) from exc
    except Exception as exc:
        raise CorruptMetadataError(
            f"{key!r} cannot be read as {content}: {exc or type(exc).__name__}.", hint=REMEDY
        ) from exc
