"""The import of pyiceberg, which is optional, and reads its configuration as it is imported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakebed.errors import InvalidInputError, LakebedError, MissingDependencyError


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
