"""Lakebed keeps datasets on plain storage for people who work in PySpark."""

import logging

from lakebed import by, errors
from lakebed.arrow.kernel import WriteOptions
from lakebed.commit import Commit
from lakebed.dataset import Dataset
from lakebed.errors import LakebedError
from lakebed.model.descriptor import DatasetDescriptor
from lakebed.model.partition import PartitionStrategy
from lakebed.model.schema import Schema
from lakebed.repository import Repository, open_repository
from lakebed.state.transaction import CommitOptions
from lakebed.view import View

__all__ = [
    "Commit",
    "CommitOptions",
    "Dataset",
    "DatasetDescriptor",
    "LakebedError",
    "PartitionStrategy",
    "Repository",
    "Schema",
    "View",
    "WriteOptions",
    "by",
    "errors",
    "open_repository",
]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
