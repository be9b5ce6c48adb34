"""The head document: a complete Kartothek v4 document, typed on the way in and out.

What Lakebed adds hangs on `metadata` entries of its own, all of them text.

A head of a million files is a fifth of a gigabyte of text that is nearly all implied: the key of
a file is its label between a prefix and a suffix. So `partitions` stays bytes in the document, and
`lakebed.state.partitions` reads and writes it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

import msgspec
import zstandard

from lakebed.errors import CorruptMetadataError, UnsupportedVersionError
from lakebed.model.layout import JSON_SUFFIX, MSGPACK_SUFFIX
from lakebed.state.packed import decompress

METADATA_VERSION = 4  # of the Kartothek specification
MAX_HEAD_BYTES = 2**30  # decompressed; a head of a million files has a fifth of that

_MISSING = msgspec.Raw(b"")
_NULL = {b"null", b"\xc0"}
_LEVEL = 1  # zstd; above it, hex digits are taken for repetitions: slower, and larger
_T = TypeVar("_T")


class HeadFormat(StrEnum):
    """How a head is written; chosen at creation, never both at once."""

    JSON = "json"
    MSGPACK = "msgpack.zstd"

    def key(self, dataset: str) -> str:
        """Return the key of the head of `dataset`."""
        return dataset + (JSON_SUFFIX if self is HeadFormat.JSON else MSGPACK_SUFFIX)


class Partitions(msgspec.Struct, frozen=True):
    """The entry `partitions` as it is written in a head of some format."""

    encoded: bytes
    head_format: HeadFormat

    def decode(self, kind: type[_T]) -> _T:
        """Read it; msgspec raises its own errors where it is of another form."""
        return _decode(self.encoded, kind, self.head_format)

    def encode_as(self, head_format: HeadFormat) -> bytes:
        """Return it as it is written in a head of this format."""
        if head_format is self.head_format:
            return self.encoded
        return _encode(self.decode(object), head_format)


class HeadDocument(msgspec.Struct, kw_only=True):
    """The head as the specification writes it; `None` stands for a missing key."""

    dataset_metadata_version: int
    dataset_uuid: str
    indices: dict[str, str | dict[str, list[str]]] | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    partitions: Partitions | None = None
    partition_keys: list[str] | None = None


class _Written(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A head on its way out or in."""

    dataset_metadata_version: int
    dataset_uuid: str
    indices: dict[str, str | dict[str, list[str]]] | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    partitions: msgspec.Raw = _MISSING
    partition_keys: list[str] | None = None


class _VersionOnly(msgspec.Struct):
    dataset_metadata_version: int


def encode_head(document: HeadDocument, head_format: HeadFormat) -> bytes:
    """Return the bytes of a head; as msgpack with a checksum, which zstd verifies."""
    partitions = document.partitions
    payload = _encode(
        _Written(
            dataset_metadata_version=document.dataset_metadata_version,
            dataset_uuid=document.dataset_uuid,
            indices=document.indices,
            metadata=document.metadata,
            partitions=_MISSING
            if partitions is None
            else msgspec.Raw(partitions.encode_as(head_format)),
            partition_keys=document.partition_keys,
        ),
        head_format,
    )
    if head_format is HeadFormat.JSON:
        return payload
    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(payload)


def decode_head(data: bytes, head_format: HeadFormat, key: str) -> HeadDocument:
    """Read the bytes of a head.

    Args:
        data: As stored.
        head_format: By the suffix of `key`.
        key: For errors.

    Raises:
        CorruptMetadataError: It is truncated, or an entry has the wrong type; nothing is
            converted, and the message names the entry.
        UnsupportedVersionError: It is of another version of the specification.
    """
    payload = _decompress(data, key) if head_format is HeadFormat.MSGPACK else data
    try:
        written = _decode(payload, _Written, head_format)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        _check_version(_find_version(payload, head_format), key)
        raise CorruptMetadataError(
            f"Head {key!r} cannot be read: {exc}.",
            hint="Restore the object from a copy; no data file was touched.",
        ) from exc
    _check_version(written.dataset_metadata_version, key)
    partitions = bytes(written.partitions)
    return HeadDocument(
        dataset_metadata_version=written.dataset_metadata_version,
        dataset_uuid=written.dataset_uuid,
        indices=written.indices,
        metadata=written.metadata,
        partitions=Partitions(partitions, head_format)
        if partitions and partitions not in _NULL
        else None,
        partition_keys=written.partition_keys,
    )


def _encode(value: object, head_format: HeadFormat) -> bytes:
    if head_format is HeadFormat.JSON:
        return msgspec.json.encode(value)
    return msgspec.msgpack.encode(value)


def _decode(payload: bytes, kind: type[_T], head_format: HeadFormat) -> _T:
    if head_format is HeadFormat.JSON:
        return msgspec.json.decode(payload, type=kind)
    return msgspec.msgpack.decode(payload, type=kind)


def _find_version(payload: bytes, head_format: HeadFormat) -> int:
    """A newer document may differ in everything else: ask for the version alone."""
    try:
        return _decode(payload, _VersionOnly, head_format).dataset_metadata_version
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return METADATA_VERSION


def _check_version(version: int, key: str) -> None:
    if version != METADATA_VERSION:
        raise UnsupportedVersionError(
            f"Head {key!r} has dataset_metadata_version {version}; "
            f"this release reads {METADATA_VERSION}.",
            hint="Upgrade Lakebed if the version is newer; rewrite it with plateau if older.",
        )


def _decompress(data: bytes, key: str) -> bytes:
    try:
        return decompress(data, MAX_HEAD_BYTES)
    except (zstandard.ZstdError, MemoryError) as exc:
        raise CorruptMetadataError(
            f"Head {key!r} is no zstd frame of a head: {exc}.",
            hint="Restore the object from a copy; no data file was touched.",
        ) from exc
