"""The indices of an archive: SQLite and DynamoDB behind one small promise."""

from lakebed.archive.index.base import ArchiveIndex
from lakebed.archive.index.locate import open_index

__all__ = ["ArchiveIndex", "open_index"]
