"""A file that grows beside the object that it will be."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


class GrowingFile:
    """A hidden file, which `Store.adopt` makes an object once it is whole.

    Attributes:
        path: Where it is.
    """

    def __init__(
        self, path: Path, descriptor: int, translating: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Take a new file.

        Args:
            path: Where it is.
            descriptor: Of the open file.
            translating: Translates what the system says of it.
        """
        self.path = path
        self._file = os.fdopen(descriptor, "wb")
        self._translating = translating

    def write(self, data: Buffer) -> None:
        """Add bytes.

        Raises:
            StorageFullError: There is no room.
        """
        with self._translating():
            self._file.write(data)

    def flush(self) -> None:
        """See that whoever reads the file finds all bytes."""
        with self._translating():
            self._file.flush()

    def close(self) -> None:
        """End the file."""
        with self._translating():
            self._file.close()

    def discard(self) -> None:
        """Remove the file; where that cannot be, it is left to `Store.remove_leftovers`."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)
