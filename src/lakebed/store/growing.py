"""A temporary file that grows beside the object that it becomes."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class GrowingFile:
    """A hidden file; once it is complete, `Store.adopt` turns it into an object.

    Attributes:
        path: Path of the hidden file.
    """

    def __init__(
        self, path: Path, descriptor: int, translating: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Wrap a new file.

        Args:
            path: Path of the file.
            descriptor: Descriptor of the open file, which this object closes.
            translating: Context manager that translates errors of the operating system.
        """
        self.path = path
        self._file = os.fdopen(descriptor, "wb")
        self._translating = translating

    def write(self, data: Buffer) -> None:
        """Add bytes.

        Raises:
            StorageFullError: There is no space.
        """
        with self._translating():
            self._file.write(data)

    def flush(self) -> None:
        """Make all bytes visible to readers of the file."""
        with self._translating():
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with self._translating():
            self._file.close()

    def discard(self) -> None:
        """Remove the file; if that fails, `Store.remove_leftovers` removes it later."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
