"""Indices of an archive: SQLite and DynamoDB behind one small interface."""

from lakebed.archive.index.archive_index import ArchiveIndex
from lakebed.archive.index.opening import open_index

__all__ = ["ArchiveIndex", "open_index"]
