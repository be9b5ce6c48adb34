"""Where a file of the archive lies in its store."""

from __future__ import annotations

from lakebed.errors import InvalidInputError
from lakebed.store.base import validate_key

ATTRIBUTE = "datalake"  # what the metadata is called where objects have attributes of a user
MAX_ATTRIBUTE_BYTES = 1_900  # S3 takes 2 KB of them in all, names included

_DATA, _METADATA = "data", "metadata"


def check_file_id(file_id: object) -> str:
    """Return an id if files can lie under it.

    Raises:
        InvalidInputError: It is no text, or no legal name of one directory.
    """
    if not isinstance(file_id, str) or "/" in file_id:
        msg = f"{file_id!r} is no id of a file."
        raise InvalidInputError(msg, hint="An id is text without '/', or the whole URL of a file.")
    validate_key(file_id)
    return file_id


def data_key(file_id: str) -> str:
    """Return the key of the content."""
    return f"{check_file_id(file_id)}/{_DATA}"


def metadata_key(file_id: str) -> str:
    """Return the key of the metadata that lies beside the content."""
    return f"{check_file_id(file_id)}/{_METADATA}"


def file_id_of(key: str) -> str | None:
    """Return the id in the key of a content; None for keys of another form, as old ones are."""
    file_id, slash, name = key.partition("/")
    return file_id if slash and name == _DATA else None


def file_id_of_metadata(key: str) -> str | None:
    """Return the id in the key of metadata beside a content; None for keys of another form."""
    file_id, slash, name = key.partition("/")
    return file_id if slash and name == _METADATA else None


def is_metadata_key(key: str) -> bool:
    """Tell whether metadata may lie under a key, and no content."""
    return key.endswith(f"/{_METADATA}")
