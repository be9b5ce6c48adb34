"""The head document: a complete Kartothek v4 document, typed on the way in and out.

Lakebed adds only `metadata` entries of its own, all of them text.

A head of a million files is a fifth of a gigabyte of text, nearly all of it implied: the key of
a file is its label between a prefix and a suffix: `{label: {"files": {"data": prefix + label +
suffix}}}`. So `partitions` stays bytes in the document. These bytes are a function of the labels:
reading finds the labels and then proves them, by encoding them again and comparing byte for byte.
Bytes in another form, from another tool or from damage, are read entry by entry.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

import msgspec
import zstandard

from lakebed.common.decoding import UNREADABLE, from_json, from_msgpack
from lakebed.errors import CorruptMetadataError, UnsupportedVersionError
from lakebed.model.layout import JSON_SUFFIX, MSGPACK_SUFFIX, Naming
from lakebed.store.segments import compress, decompress

METADATA_VERSION = 4  # of the Kartothek specification
# Of a head that is a tree: neither earlier releases nor other tools read or write such a dataset.
TREE_VERSION = 5
# Formats that the specification of Kartothek allows, and its implementations do not write.
UNREAD_FORMATS = (".csv", ".csv.gz", ".h5", ".hdf5", ".feather", ".orc")
_ENTRY_PREFIX = "lakebed."
HEAD_ENTRY, TREE = "lakebed.head", "tree"
CHECKSUM_ENTRY = "lakebed.checksum"
_CREATED = "creation_time"  # Kartothek's entry
# In the head of a Kartothek dataset: the dataset that it was published from, whose files it names.
PUBLISHED_FROM = "lakebed.published_from"
MAX_HEAD_BYTES = 2**30  # decompressed; a head of a million files takes a fifth of that

_MISSING = msgspec.Raw(b"")
_NULL = {b"null", b"\xc0"}
_LEVEL = 1  # zstd; higher levels match hex digits as repetitions: slower, and larger
_T = TypeVar("_T")

_CHUNK = 10_000  # labels at a time, which keeps the comparison within a few megabytes
_FIXSTR, _STR16 = 32, 2**16  # msgpack: lengths from which the next larger header is needed


class HeadFormat(StrEnum):
    """The format of a head; chosen at creation, never both at once."""

    JSON = "json"
    MSGPACK = "msgpack.zstd"

    def key(self, dataset: str) -> str:
        """Return the key of the head of `dataset`."""
        return dataset + (JSON_SUFFIX if self is HeadFormat.JSON else MSGPACK_SUFFIX)


class Partitions(msgspec.Struct, frozen=True):
    """The entry `partitions` as it is encoded in a head of some format."""

    encoded: bytes
    head_format: HeadFormat

    def decode(self, kind: type[_T]) -> _T:
        """Decode it; msgspec raises its own errors if it has another form."""
        return _decode(self.encoded, kind, self.head_format)

    def encode_as(self, head_format: HeadFormat) -> bytes:
        """Return its encoding in a head of this format."""
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
    tree: bytes | None = None


class _Written(msgspec.Struct, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """A head as it is encoded and decoded.

    The specification has no other keys. One that is unknown here is a damaged name of a key, and
    its content would be taken for missing: a head without `partitions` has no files.
    """

    dataset_metadata_version: int
    dataset_uuid: str
    indices: dict[str, str | dict[str, list[str]]] | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    partitions: msgspec.Raw = _MISSING
    partition_keys: list[str] | None = None
    tree: msgspec.Raw = _MISSING


class _VersionOnly(msgspec.Struct):
    dataset_metadata_version: int


def encode_head(document: HeadDocument, head_format: HeadFormat) -> bytes:
    """Return the bytes of a head; msgpack has a checksum, which zstd verifies."""
    partitions = document.partitions
    payload = _encode(
        _Written(
            dataset_metadata_version=document.dataset_metadata_version,
            dataset_uuid=document.dataset_uuid,
            indices=document.indices,
            metadata=_with_checksum(document.metadata),
            partitions=_MISSING
            if partitions is None
            else msgspec.Raw(partitions.encode_as(head_format)),
            partition_keys=document.partition_keys,
            tree=_MISSING if document.tree is None else msgspec.Raw(document.tree),
        ),
        head_format,
    )
    if head_format is HeadFormat.JSON:
        return payload
    return compress(payload, level=_LEVEL)


def decode_head(data: bytes, head_format: HeadFormat, key: str) -> HeadDocument:
    """Read the bytes of a head.

    Args:
        data: The stored bytes.
        head_format: The format, which the suffix of `key` names.
        key: The key, for error messages.

    Raises:
        CorruptMetadataError: It is truncated, or an entry has the wrong type; nothing is
            converted, and the message names the entry.
        UnsupportedVersionError: It has another version of the specification.
    """
    payload = _decompress(data, key) if head_format is HeadFormat.MSGPACK else data
    try:
        written = _decode(payload, _Written, head_format)
    except UNREADABLE as exc:
        _check_version(_find_version(payload, head_format), key)
        raise CorruptMetadataError(
            f"Head {key!r} cannot be read: {exc}.",
            hint="Restore the object from a copy; no data file was touched.",
        ) from exc
    is_tree = head_format is HeadFormat.MSGPACK and written.metadata.get(HEAD_ENTRY) == TREE
    _check_version(written.dataset_metadata_version, key, is_tree=is_tree)
    partitions = bytes(written.partitions)
    metadata = _without_checksum(written.metadata, key)
    return HeadDocument(
        dataset_metadata_version=written.dataset_metadata_version,
        dataset_uuid=written.dataset_uuid,
        indices=written.indices,
        metadata=metadata,
        partitions=Partitions(partitions, head_format)
        if partitions and partitions not in _NULL
        else None,
        partition_keys=written.partition_keys,
        tree=bytes(written.tree) if is_tree else None,
    )


def _with_checksum(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries with one more, if some of them are of Lakebed: their checksum."""
    checksum = _checksum_of(entries)
    return {**entries, CHECKSUM_ENTRY: checksum} if checksum else dict(entries)


def _without_checksum(entries: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the entries without their checksum, which other tools copy unchanged.

    A flipped bit in a JSON head may leave a valid document: another value, or an entry of another
    name. An entry that is missing has a meaning, such as a dataset of another tool.

    Raises:
        CorruptMetadataError: The entries differ from the checksum.
    """
    known = entries.pop(CHECKSUM_ENTRY, None)
    if known is not None and known != _checksum_of(entries):
        raise CorruptMetadataError(
            f"Head {key!r} is damaged: the entries of Lakebed in its metadata differ from their "
            "checksum.",
            hint="Restore the object from a copy; no data file was touched.",
        )
    return entries


def _checksum_of(entries: Mapping[str, Any]) -> str:
    """Return the checksum of the entries of Lakebed, and of the time of creation; empty for none."""
    ours = sorted(
        (name, value)
        for name, value in entries.items()
        if name.startswith(_ENTRY_PREFIX) and name != CHECKSUM_ENTRY
    )
    if not ours:
        return ""
    ours.append((_CREATED, entries.get(_CREATED)))
    return f"crc32:{zlib.crc32(msgspec.json.encode(ours)):08x}"


def _encode(value: object, head_format: HeadFormat) -> bytes:
    if head_format is HeadFormat.JSON:
        return msgspec.json.encode(value)
    return msgspec.msgpack.encode(value)


def _decode(payload: bytes, kind: type[_T], head_format: HeadFormat) -> _T:
    if head_format is HeadFormat.JSON:
        return from_json(payload, kind)
    return from_msgpack(payload, kind)


def _find_version(payload: bytes, head_format: HeadFormat) -> int:
    """Return the version alone, since a newer document may differ in everything else."""
    try:
        return _decode(payload, _VersionOnly, head_format).dataset_metadata_version
    except UNREADABLE:
        return METADATA_VERSION


def _check_version(version: int, key: str, *, is_tree: bool = False) -> None:
    if version != (TREE_VERSION if is_tree else METADATA_VERSION):
        raise UnsupportedVersionError(
            f"Head {key!r} has dataset_metadata_version {version}; "
            f"this release reads {METADATA_VERSION}.",
            hint="Upgrade Lakebed if the version is newer; rewrite the head with plateau if older.",
        )


def _decompress(data: bytes, key: str) -> bytes:
    try:
        return decompress(data, MAX_HEAD_BYTES)
    except (zstandard.ZstdError, MemoryError) as exc:
        raise CorruptMetadataError(
            f"Head {key!r} is not a zstd frame of a head: {exc}.",
            hint="Restore the object from a copy; no data file was touched.",
        ) from exc


class PartitionEntry(msgspec.Struct, gc=False):
    """One entry of `partitions`: the files of one label, by table."""

    files: dict[str, str]


class _Skipped(msgspec.Struct, gc=False):
    """An entry of which only the label is read."""


def encode_partitions(labels: Sequence[str], naming: Naming, head_format: HeadFormat) -> Partitions:
    """Return the entry for `labels`, which are distinct, in their order."""
    return Partitions(b"".join(_pieces(labels, naming, head_format)), head_format)


def read_entries(document: HeadDocument, key: str) -> dict[str, PartitionEntry] | None:
    """Decode all entries; return None if there are none.

    Raises:
        CorruptMetadataError: They have another form.
    """
    if document.partitions is None:
        return None
    return _decode_partitions(document.partitions, dict[str, PartitionEntry], key)


def labels_of(document: HeadDocument, naming: Naming, key: str) -> tuple[str, ...]:
    """Return the labels of a head, each of which must name its own key.

    Raises:
        CorruptMetadataError: A label refers to another key, perhaps outside the dataset.
        UnsupportedVersionError: A label has files of several tables.
    """
    partitions = document.partitions
    if partitions is None:
        return ()
    labels = tuple(_decode_partitions(partitions, dict[str, _Skipped], key))
    if are_sound(labels) and _is_encoding(partitions, labels, naming):
        return labels
    return checked_labels(
        _decode_partitions(partitions, dict[str, PartitionEntry], key), naming, key
    )


def checked_labels(
    entries: Mapping[str, PartitionEntry], naming: Naming, key: str
) -> tuple[str, ...]:
    """Return the labels of entries; see `labels_of`."""
    for label, entry in entries.items():
        if len(entry.files) > 1:
            raise UnsupportedVersionError(
                f"Head {key!r} has several tables: {', '.join(sorted(entry.files))}.",
                hint="Lakebed reads datasets of one table; split it with kartothek.",
            )
        wanted = naming.key(label)
        if entry.files.get(naming.table) != wanted or not are_sound([label, wanted]):
            file = entry.files.get(naming.table, "")
            if file.removeprefix(naming.prefix + label) in UNREAD_FORMATS:
                raise unread_format_error(naming.dataset, file)
            raise CorruptMetadataError(
                f"Head {key!r}, label {label!r} refers to {next(iter(entry.files.items()), None)}.",
                hint=f"It must refer to {wanted}, in table {naming.table!r}.",
            )
    return tuple(entries)


def unread_format_error(dataset: str, file: str) -> UnsupportedVersionError:
    """Return the error for a file of a format that Kartothek allows and Lakebed does not read."""
    suffix = next(
        one for one in sorted(UNREAD_FORMATS, key=len, reverse=True) if file.endswith(one)
    )
    return UnsupportedVersionError(
        f"Dataset {dataset!r} has files in the format {suffix[1:]}: {file}.",
        hint="Lakebed reads Parquet from datasets of other tools; load files of CSV by "
        "`lakebed import`.",
    )


def _decode_partitions(partitions: Partitions, kind: type[_T], key: str) -> _T:
    try:
        return partitions.decode(kind)
    except UNREADABLE as exc:
        raise CorruptMetadataError(
            f"Head {key!r} cannot be read: {exc}, in partitions.",
            hint="Restore the object from a copy; no data file was touched.",
        ) from exc


def are_sound(labels: Sequence[str]) -> bool:
    """Return whether all labels are relative paths; two dots within a partition value are fine."""
    padded = f"/{'/'.join(labels)}/"
    # Two searches are enough for labels without a dot at the start of a component.
    if not labels or not ("/." in padded or "//" in padded):
        return True
    return not ("/../" in padded or "/./" in padded or "//" in padded)


def _is_encoding(partitions: Partitions, labels: Sequence[str], naming: Naming) -> bool:
    at = 0
    for piece in _pieces(labels, naming, partitions.head_format):
        if not partitions.encoded.startswith(piece, at):
            return False
        at += len(piece)
    return at == len(partitions.encoded)


def _pieces(labels: Sequence[str], naming: Naming, head_format: HeadFormat) -> Iterator[bytes]:
    """Yield the entry in pieces."""
    if head_format is HeadFormat.JSON:
        return _json_pieces(labels, naming)
    return _msgpack_pieces(labels, naming)


def _json_pieces(labels: Sequence[str], naming: Naming) -> Iterator[bytes]:
    yield b"{"
    for at, chunk in _chunks(labels):
        entries = _plain_json(chunk, naming)
        if entries is None:
            entries = msgspec.json.encode(_entries(chunk, naming))[1:-1]
        yield b"," + entries if at else entries
    yield b"}"


def _plain_json(labels: Sequence[str], naming: Naming) -> bytes | None:
    """Return the entries of labels without a character that JSON escapes."""
    texts = (*labels, naming.table, naming.prefix, naming.suffix)
    quoted_size = sum(map(len, texts)) + len("[]") + len('"",') * len(texts) - len(",")
    if not naming.is_plain(labels) or len(msgspec.json.encode(texts)) != quoted_size:
        return None
    middle = f'":{{"files":{{"{naming.table}":"{naming.prefix}'
    end = f'{naming.suffix}"}}}}'
    return ",".join([f'"{label}{middle}{label}{end}' for label in labels]).encode()


def _msgpack_pieces(labels: Sequence[str], naming: Naming) -> Iterator[bytes]:
    yield _header(len(labels), (0x80, 16), (0xDE, 2), (0xDF, 4))
    for _, chunk in _chunks(labels):
        yield _plain_msgpack(chunk, naming) or b"".join(
            msgspec.msgpack.encode(part)
            for label, entry in _entries(chunk, naming).items()
            for part in (label, entry)
        )


def _plain_msgpack(labels: Sequence[str], naming: Naming) -> bytes | None:
    """Return the entries of labels that have one byte a character."""
    if not naming.is_plain(labels):
        return None
    more = len(naming.prefix) + len(naming.suffix)
    entries: list[str] = []
    inner = (
        b"\x81" + msgspec.msgpack.encode("files") + b"\x81" + msgspec.msgpack.encode(naming.table)
    )
    # Header bytes are not text, but Latin-1 has a character for each.
    for length, group in itertools.groupby(labels, len):
        if length + more >= _STR16:
            return None
        begin = _text_header(length).decode("latin-1")
        middle = (inner + _text_header(length + more)).decode("latin-1") + naming.prefix
        entries += [f"{begin}{label}{middle}{label}{naming.suffix}" for label in group]
    return "".join(entries).encode("latin-1")


def _text_header(length: int) -> bytes:
    return _header(length, (0xA0, _FIXSTR), (0xD9, 1), (0xDA, 2))


def _header(length: int, short: tuple[int, int], *longer: tuple[int, int]) -> bytes:
    """Return the smallest header of msgpack for a length, as msgpack encoders choose it."""
    first, limit = short
    if length < limit:
        return bytes((first + length,))
    for mark, size in longer[:-1]:
        if length < 256**size:
            return bytes((mark,)) + length.to_bytes(size)
    mark, size = longer[-1]
    return bytes((mark,)) + length.to_bytes(size)


def _entries(labels: Iterable[str], naming: Naming) -> dict[str, PartitionEntry]:
    return {label: PartitionEntry({naming.table: naming.key(label)}) for label in labels}


def _chunks(labels: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    return ((at, labels[at : at + _CHUNK]) for at in range(0, len(labels), _CHUNK))
