"""The entry `partitions` of a head: from labels to bytes and back, fast where it can be proven.

In a dataset of ours the label says everything: `{label: {"files": {"data": prefix + label +
suffix}}}`. So the bytes are a function of the labels, and reading is finding the labels and then
proving them: what they encode to must be what was read, byte for byte. Whatever is written in
another way, by another tool or by damage, is read entry by entry.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from lakebed.errors import CorruptMetadataError, UnsupportedVersionError
from lakebed.model.layout import Naming
from lakebed.state.head import HeadDocument, HeadFormat, Partitions

_CHUNK = 10_000  # labels at a time, which keeps a proof within a few megabytes
_FIXSTR, _STR16 = 32, 2**16  # msgpack: lengths from which the next header is needed

_T = TypeVar("_T")


class PartitionEntry(msgspec.Struct, gc=False):
    """One entry of `partitions`: the files of one label, by table."""

    files: dict[str, str]


class _Skipped(msgspec.Struct, gc=False):
    """An entry of which only the label is wanted."""


def encode_partitions(labels: Sequence[str], naming: Naming, head_format: HeadFormat) -> Partitions:
    """Return the entry for `labels`, which are distinct, in their order."""
    return Partitions(b"".join(_pieces(labels, naming, head_format)), head_format)


def read_entries(document: HeadDocument, key: str) -> dict[str, PartitionEntry] | None:
    """Read the entry as it stands; None if there is none.

    Raises:
        CorruptMetadataError: It is of another form.
    """
    if document.partitions is None:
        return None
    return _decode(document.partitions, dict[str, PartitionEntry], key)


def labels_of(document: HeadDocument, naming: Naming, key: str) -> tuple[str, ...]:
    """Return the labels of a head, each of which must name the key that belongs to it.

    Raises:
        CorruptMetadataError: A label refers to another key, perhaps outside the dataset.
        UnsupportedVersionError: A label has files of several tables.
    """
    partitions = document.partitions
    if partitions is None:
        return ()
    labels = tuple(_decode(partitions, dict[str, _Skipped], key))
    if _are_sound(labels) and _is_encoding(partitions, labels, naming):
        return labels
    return checked_labels(_decode(partitions, dict[str, PartitionEntry], key), naming, key)


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
        if entry.files.get(naming.table) != wanted or not _are_sound([label, wanted]):
            raise CorruptMetadataError(
                f"Head {key!r}, label {label!r} refers to {next(iter(entry.files.items()), None)}.",
                hint=f"It must refer to {wanted}, in table {naming.table!r}.",
            )
    return tuple(entries)


def _decode(partitions: Partitions, kind: type[_T], key: str) -> _T:
    try:
        return partitions.decode(kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise CorruptMetadataError(
            f"Head {key!r} cannot be read: {exc}, in partitions.",
            hint="Restore the object from a copy; no data file was touched.",
        ) from exc


def _are_sound(labels: Sequence[str]) -> bool:
    """Whether all are relative paths; two dots within a partition value are fine."""
    padded = f"/{'/'.join(labels)}/"
    # Two searches are enough for labels without a dot at the begin of a component.
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
    """Return the entries of labels whose characters are bytes."""
    if not naming.is_plain(labels):
        return None
    more = len(naming.prefix) + len(naming.suffix)
    entries: list[str] = []
    inner = (
        b"\x81" + msgspec.msgpack.encode("files") + b"\x81" + msgspec.msgpack.encode(naming.table)
    )
    # Header bytes are no text, but Latin-1 has a character for each.
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
    """Return the smallest header of msgpack for a length, as its encoders choose it."""
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
