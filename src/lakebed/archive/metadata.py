"""Metadata of files in the archive: one JSON object each, checked rule by rule."""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lakebed.arrow.reading.hashes import can_verify
from lakebed.errors import InvalidInputError, UnsupportedVersionError
from lakebed.model.moments import stored_to_epoch_ms, to_epoch_ms

METADATA_VERSION = 0
REQUIRED = ("version", "start", "where", "what", "id", "hash", "path")
RESERVED_WORK_ID = "null"  # used in the keys of files without a work id

_HASH = re.compile(r"[0-9a-fA-F]+")  # the originals accept any length
_SLUG = re.compile(r"[a-z0-9_-]+")
_WINDOWS_PATH = re.compile(r"[A-Za-z]:\\.+", re.DOTALL)
_SLUG_HINT = "Use lower-case letters, digits, '-' and '_' only."


class FileMetadata(Mapping[str, Any]):
    """Metadata of one file: an immutable mapping that obeys all rules.

    Unknown keys are kept. Two instances are equal if their JSON is.

    Examples:
        >>> metadata = FileMetadata(
        ...     {
        ...         "start": "2015-03-20", "where": "nebraska", "what": "apache", "work_id": None,
        ...         "path": "/var/log/access.log", "hash": "a3e75ee4f45f676422e038f2c116d000",
        ...     }
        ... )
        >>> metadata.start, metadata.end, metadata["version"]
        (1426809600000, None, 0)
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, object], *, is_stored: bool = False) -> None:
        """Check and complete the fields; the argument is copied and never changed.

        A missing `id` is generated, a missing `version` is 0, `start` and `end` are normalised by
        `lakebed.archive.to_epoch_ms`, and a missing `end` is set to None.

        Args:
            fields: The metadata.
            is_stored: True for metadata from a storage: a whole number is milliseconds, however
                early, and the hash is that of the program that stored the file, of any length.

        Raises:
            InvalidInputError: A field is missing or breaks its rule; the first one is reported, in
                the order version, where, what, work_id, path, hash, start, end, interval.
            UnsupportedVersionError: `version` is not 0.
        """
        if not isinstance(fields, Mapping):
            msg = f"Metadata is a {type(fields).__name__}, not an object of fields."
            raise InvalidInputError(msg, hint='Write it as {"where": …, "what": …, "start": …}.')
        values: dict[str, Any] = _copy(fields)
        values.setdefault("id", uuid.uuid4().hex)
        values.setdefault("version", METADATA_VERSION)
        for name in REQUIRED:
            if values.get(name) is None:
                msg = f"Metadata without {name!r}."
                raise InvalidInputError(msg, hint=f"Required are {', '.join(REQUIRED)}.")
        _check_version(values["version"])
        for name in ("where", "what"):
            _check_slug(name, values[name])
        _check_work_id(values)
        _check_path(values["path"])
        if not is_stored:
            _check_own_hash(values["hash"])
        normalised = stored_to_epoch_ms if is_stored else to_epoch_ms
        values["start"] = normalised(values["start"])
        end = values.get("end")
        values["end"] = None if end is None else normalised(end)
        if values["end"] is not None and values["end"] < values["start"]:
            msg = f"Metadata has end {values['end']} before start {values['start']}."
            raise InvalidInputError(msg, hint="Leave end out for a file of one moment.")
        _check_json(values)
        self._fields = values

    @classmethod
    def from_json(cls, text: str | bytes | None) -> FileMetadata:
        """Read metadata from JSON, where whole numbers are milliseconds, as `to_json` writes them.

        Raises:
            InvalidInputError: It is not a JSON object, or breaks a rule of metadata.
            UnsupportedVersionError: Its `version` is not 0.
        """
        try:
            fields = json.loads(text if text is not None else "", parse_constant=_refuse_constant)
        except (ValueError, TypeError, RecursionError) as exc:
            msg = f"Metadata is not JSON: {exc}"
            raise InvalidInputError(msg, hint="It must be one JSON object in UTF-8.") from exc
        if not isinstance(fields, dict):
            msg = f"Metadata is the JSON {_shortened(fields)}, not an object."
            raise InvalidInputError(msg, hint='Write it as {"where": …, "what": …, "start": …}.')
        return cls(fields, is_stored=True)

    def check_hash(self) -> None:
        """Check that the hash consists of hex digits, of any number.

        Raises:
            InvalidInputError: It has other characters.
        """
        if not _HASH.fullmatch(self.hash):
            msg = f"Metadata has the hash {_shortened(self.hash)}, which is not hex digits."
            raise InvalidInputError(msg, hint="Give BLAKE2b of the content, 16 bytes in hex.")

    def with_hash(self, found_hash: str) -> FileMetadata:
        """Return a copy with another hash."""
        return FileMetadata({**self._fields, "hash": found_hash}, is_stored=True)

    def to_json(self) -> str:
        """Return the JSON, in ASCII, so that it can be a header of an object."""
        return json.dumps(self._fields, allow_nan=False)

    @property
    def id(self) -> str:
        """The id of the file; unique in an archive."""
        return str(self._fields["id"])

    @property
    def hash(self) -> str:
        """BLAKE2b of the content, 16 bytes in hex, unless the caller gave something else."""
        return str(self._fields["hash"])

    @property
    def where(self) -> str:
        """The place or machine that the file comes from."""
        where: str = self._fields["where"]
        return where

    @property
    def what(self) -> str:
        """The program or process that made the file."""
        what: str = self._fields["what"]
        return what

    @property
    def work_id(self) -> str | None:
        """The caller's own id of the work that the file belongs to."""
        work_id: str | None = self._fields["work_id"]
        return work_id

    @property
    def path(self) -> str:
        """The absolute path that the file had."""
        path: str = self._fields["path"]
        return path

    @property
    def start(self) -> int:
        """The time of the first event, in milliseconds since the epoch."""
        start: int = self._fields["start"]
        return start

    @property
    def end(self) -> int | None:
        """The time of the last event, in ms since the epoch; None for a file of one moment."""
        end: int | None = self._fields["end"]
        return end

    def __getitem__(self, name: str) -> Any:
        return copy.deepcopy(self._fields[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __hash__(self) -> int:
        return hash((self.id, self.hash))

    def __repr__(self) -> str:
        return f"FileMetadata({self._fields!r})"

    def __reduce__(self) -> tuple[Callable[..., FileMetadata], tuple[dict[str, Any]]]:
        return _restored, (self._fields,)


def _restored(fields: dict[str, Any]) -> FileMetadata:
    return FileMetadata(fields, is_stored=True)


def _copy(fields: Mapping[str, object]) -> dict[str, Any]:
    try:
        return copy.deepcopy(dict(fields))
    except (TypeError, RecursionError) as exc:
        msg = f"Metadata has a value that JSON cannot hold: {exc}"
        raise InvalidInputError(
            msg, hint="Use text, numbers, true, false, lists and objects."
        ) from exc


def _check_version(version: object) -> None:
    if version != METADATA_VERSION or isinstance(version, str | bool):
        msg = f"Metadata is of version {_shortened(version)}; this release knows version 0."
        raise UnsupportedVersionError(msg, hint="Use a newer release, or write version 0.")


def _check_own_hash(value: object) -> None:
    if not isinstance(value, str) or not can_verify(value):
        msg = f"Metadata has the hash {_shortened(value)}, which is not 16 bytes in hex."
        raise InvalidInputError(
            msg, hint="Give BLAKE2b of the content: `lakebed.archive.content_hash([content])`."
        )


def _check_slug(name: str, value: object) -> None:
    if not isinstance(value, str) or not _SLUG.fullmatch(value):
        msg = f"Metadata has {name} {_shortened(value)}."
        raise InvalidInputError(msg, hint=_SLUG_HINT)


def _check_work_id(fields: Mapping[str, Any]) -> None:
    if "work_id" not in fields:
        msg = "Metadata without 'work_id'."
        raise InvalidInputError(msg, hint="It is required, but may be null.")
    if fields["work_id"] is None:
        return
    _check_slug("work_id", fields["work_id"])
    if fields["work_id"] == RESERVED_WORK_ID:
        msg = "Metadata has work_id 'null', which is reserved for files without one."
        raise InvalidInputError(msg, hint="Leave it None, or start it with a word of your own.")


def is_absolute(path: str) -> bool:
    """Return whether a path is absolute, on POSIX or on Windows."""
    return path.startswith("/") or _WINDOWS_PATH.fullmatch(path) is not None


def _check_path(path: object) -> None:
    if not isinstance(path, str) or not is_absolute(path):
        msg = f"Metadata has path {_shortened(path)}, which is not absolute."
        raise InvalidInputError(msg, hint=r"Write it as /var/log/syslog, or C:\logs\syslog.")


def _check_json(fields: Mapping[str, Any]) -> None:
    if not all(isinstance(name, str) for name in fields):
        names = [name for name in fields if not isinstance(name, str)]
        msg = f"Metadata has fields whose names are not text: {_shortened(names)}."
        raise InvalidInputError(msg, hint="Use text as names of fields.")
    for name, value in fields.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as exc:
            msg = f"Metadata has {name} {_shortened(value)}, which JSON cannot hold: {exc}"
            raise InvalidInputError(
                msg, hint="Use text, finite numbers, lists and objects."
            ) from exc


def _refuse_constant(name: str) -> None:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
