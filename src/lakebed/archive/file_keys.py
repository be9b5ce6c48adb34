"""Keys of the files of an archive in its store.

The key is `<id>/data`, or that of datalake's first releases, which contains more fields and whose
first digit spreads the keys: `<digit>-<where>/<what>/<start>/<id>-<name>`.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from typing import Literal

from lakebed.archive.metadata import FileMetadata
from lakebed.errors import InvalidInputError
from lakebed.store.base import MAX_COMPONENT_BYTES, validate_key

KeyForm = Literal["id", "original"]

ATTRIBUTE = "datalake"  # user attribute of an object that holds the metadata
MAX_ATTRIBUTE_BYTES = 1_900  # S3 accepts 2 KB of attributes in all, names included

_DATA, _METADATA = "data", "metadata"
_ORIGINAL = re.compile(r"[0-9a-f]-[a-z0-9_-]+/[a-z0-9_-]+/-?[0-9]+/(?P<name>[^/]+)", re.DOTALL)
_MAX_NAME_BYTES = 160


def check_keys(keys: object) -> KeyForm:
    """Return the form of keys, if it is a known one.

    Raises:
        InvalidInputError: It is not a known form.
    """
    if keys == "id":
        return "id"
    if keys == "original":
        return "original"
    msg = f"keys is {keys!r}."
    raise InvalidInputError(msg, hint="Use 'id' for <id>/data, or 'original'.")


def content_key(metadata: FileMetadata, keys: KeyForm) -> str:
    """Return the key of a content."""
    return data_key(metadata.id) if keys == "id" else original_key(metadata)


def original_key(metadata: FileMetadata) -> str:
    """Return the key of a content in the form of datalake's first releases.

    Examples:
        >>> original_key(FileMetadata({
        ...     "id": "91dd2525a5924c6c972e3d67fee8cda9", "hash": "d2a5" * 8, "where": "nebraska",
        ...     "what": "nginx", "start": 1437375600000, "work_id": None,
        ...     "path": "/var/log/nginx-523.txt",
        ... }))
        'd-nebraska/nginx/1437375600000/91dd2525a5924c6c972e3d67fee8cda9-nginx-523.txt'
    """
    name = re.split(r"[/\\]", metadata.path)[-1]
    file_id = check_file_id(metadata.id)
    # Encode characters that a store may refuse, and keep the end of a long name.
    room = min(_MAX_NAME_BYTES, MAX_COMPONENT_BYTES - len(f"{file_id}-".encode()))
    safe = urllib.parse.quote(name, safe=" !$&'()+,;=@[]", errors="surrogatepass")
    safe = safe[-room:] if room > 0 else ""
    digit = metadata.hash[:1].lower()
    return f"{digit}-{metadata.where}/{metadata.what}/{metadata.start}/{file_id}-{safe}"


def ids_in(key: str) -> Iterator[str]:
    """Yield the ids that the content under a key may have; none for a key of another form."""
    file_id = file_id_of(key)
    if file_id is not None:
        yield file_id
    match = _ORIGINAL.fullmatch(key)
    if match is not None:
        parts = match["name"].split("-")
        yield from ("-".join(parts[:count]) for count in range(1, len(parts)))


def check_file_id(file_id: object) -> str:
    """Return an id if it is valid in keys.

    Raises:
        InvalidInputError: It is not text, or not a legal name of one directory.
    """
    if not isinstance(file_id, str) or "/" in file_id:
        msg = f"{file_id!r} is not an id of a file."
        raise InvalidInputError(msg, hint="An id is text without '/', or the whole URL of a file.")
    validate_key(file_id)
    return file_id


def data_key(file_id: str) -> str:
    """Return the key of the content."""
    return f"{check_file_id(file_id)}/{_DATA}"


def metadata_key(file_id: str) -> str:
    """Return the key of the metadata beside the content."""
    return f"{check_file_id(file_id)}/{_METADATA}"


def file_id_of(key: str) -> str | None:
    """Return the id in the key of a content; None for keys of another form, such as old ones."""
    file_id, slash, name = key.partition("/")
    return file_id if slash and name == _DATA else None


def file_id_of_metadata(key: str) -> str | None:
    """Return the id in the key of metadata beside a content; None for keys of another form."""
    file_id, slash, name = key.partition("/")
    return file_id if slash and name == _METADATA else None


def is_metadata_key(key: str) -> bool:
    """Return whether a key is one of metadata, not of a content."""
    return key.endswith(f"/{_METADATA}")
