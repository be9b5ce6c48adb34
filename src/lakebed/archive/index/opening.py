"""Opening of the index that a URL names."""

from __future__ import annotations

import os
import re

from lakebed.archive.index.archive_index import ArchiveIndex
from lakebed.archive.index.dynamodb import DynamoDbIndex
from lakebed.archive.index.sqlite import IN_MEMORY, SqliteIndex
from lakebed.errors import InvalidInputError

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)", re.DOTALL)


def open_index(url: str | os.PathLike[str]) -> ArchiveIndex:
    """Open the index at `url`; nothing is read or written yet.

    Args:
        url: `sqlite:///data/raw.db` or a path, `sqlite://` for one in memory, or
            `dynamodb://TABLE?region=REGION&endpoint=URL&daily=true`.

    Raises:
        InvalidInputError: The URL cannot be used.
        MissingDependencyError: The URL is of DynamoDB, and boto3 is not installed.

    Examples:
        >>> open_index("sqlite:///data/raw.db")
        SqliteIndex('sqlite:///data/raw.db')
    """
    text = os.fspath(url)
    url_match = _URL.fullmatch(text)
    if url_match is None and text and not re.match(r"(sqlite|dynamodb):", text):
        return SqliteIndex(text)
    match url_match.groups() if url_match else ():
        case ("sqlite", path):
            return SqliteIndex(path or IN_MEMORY)
        case ("dynamodb", _):
            return DynamoDbIndex(text)
    msg = f"{text!r} is not the URL of an index."
    raise InvalidInputError(msg, hint="Write sqlite:///PATH, or dynamodb://TABLE?region=REGION.")
