"""Base class of seekable readers that are not files."""

from __future__ import annotations

import io


class SeekableReader(io.RawIOBase):
    """A seekable stream with a position; subclasses implement `read`."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.size_bytes = size_bytes
        self.position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position and return it; one before the start means the start."""
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size_bytes}
        self.position = max(0, origin[whence] + offset)
        return self.position
