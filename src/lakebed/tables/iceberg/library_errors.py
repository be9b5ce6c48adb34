"""Errors of pyiceberg as ours: when it is imported, which reads its configuration, and when it reads."""

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
    """Say as one of our errors what keeps pyiceberg from being imported.

    Raises:
        MissingDependencyError: It is not installed.
        InvalidInputError: It cannot read its configuration.
    """
    try:
        yield
    except LakebedError:
        raise
    except ImportError as exc:
        raise MissingDependencyError.for_extra("pyiceberg", "iceberg", "An Iceberg table") from exc
    except Exception as exc:  # noqa: BLE001 - of the packages that read the file
        mark = getattr(exc, "problem_mark", None)
        problem = f"line {mark.line + 1} is not understood" if mark else type(exc).__name__
        # Not as the cause: its text quotes the file, secrets included.
        raise InvalidInputError(
            f"pyiceberg cannot read its configuration: {problem}.",
            hint="Mend the file .pyiceberg.yaml in PYICEBERG_HOME, the home directory or the "
            "current one.",
        ) from None


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
