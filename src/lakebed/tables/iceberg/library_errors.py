"""Errors of pyiceberg as our own: on import, which reads its configuration, and on reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.errors import (
    CorruptMetadataError,
    InvalidInputError,
    LakebedError,
    MissingDependencyError,
)


@contextmanager
def importing_pyiceberg() -> Iterator[None]:
    """Raise our own error if pyiceberg cannot be imported.

    Raises:
        MissingDependencyError: pyiceberg is not installed.
        InvalidInputError: pyiceberg cannot read its configuration.
    """
    try:
        yield
    except LakebedError:
        raise
    except ImportError as exc:
        raise MissingDependencyError.for_extra("pyiceberg", "iceberg", "An Iceberg table") from exc
    except Exception as exc:  # noqa: BLE001 - the packages that read the file raise many types
        mark = getattr(exc, "problem_mark", None)
        problem = f"line {mark.line + 1} is not valid" if mark else type(exc).__name__
        # The original error is left out: its text quotes the file, secrets included.
        raise InvalidInputError(
            f"pyiceberg cannot read its configuration: {problem}.",
            hint="Correct the file .pyiceberg.yaml in PYICEBERG_HOME, the home directory or the "
            "current directory.",
        ) from None


REMEDY = "Publish with repair, which begins the table again; the dataset itself is not affected."


@contextmanager
def reading(key: str, content: str, *, hint: str = REMEDY) -> Iterator[None]:
    """Raise our own error if an object cannot be read.

    Args:
        key: Key or location of the object.
        content: Expected content of the object, for messages.
        hint: The remedy; by default that of a table that Lakebed publishes.

    Raises:
        CorruptMetadataError: The object is missing or cannot be read.
    """
    try:
        yield
    except LakebedError:
        raise
    except OSError as exc:
        if not isinstance(exc, FileNotFoundError):
            raise
        raise CorruptMetadataError(f"{key!r}, {content}, is missing.", hint=hint) from exc
    except Exception as exc:
        raise CorruptMetadataError(
            f"{key!r} cannot be read as {content}: {exc or type(exc).__name__}.", hint=hint
        ) from exc
