"""Bundles: a content and its metadata in one file, to be uploaded later.

A bundle is a plain tar with the members `content`, `version` and `datalake-metadata.json`, as the
`datalake` client writes it. Nothing is ever unpacked: members are read in place.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from lakebed.archive.content import Hashed, opened, pieces_of, temporary_file, using
from lakebed.archive.file_keys import check_file_id
from lakebed.archive.kept_files import check_fields
from lakebed.archive.metadata import FileMetadata
from lakebed.errors import FormatError, RecordExistsError, UnsupportedVersionError

BUNDLE_VERSION = b"0"
BUNDLE_SUFFIX = ".tar"

_CONTENT, _VERSION, _METADATA = "content", "version", "datalake-metadata.json"
_MAX_METADATA_BYTES = 1024 * 1024
_MAX_MEMBERS = 16  # members that are read; a bundle has three, and a tar may have any number
_BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """An open bundle.

    Attributes:
        metadata: Metadata of the content.
        content: The content, which can be read from its start any number of times.
    """

    metadata: FileMetadata
    content: IO[bytes]


def write_bundle(
    directory: Path, file: IO[bytes], fields: Mapping[str, object], *, compress: bool = False
) -> Path:
    """Write a bundle named after the id, which appears only when it is complete and on disk.

    Args:
        directory: Directory of the bundle; created if missing.
        file: The content, from its current position to its end.
        fields: Metadata with `id` and without `hash`.
        compress: Compress the content with gzip.

    Raises:
        InvalidInputError: The metadata breaks a rule, or a file cannot be read or written.
        RecordExistsError: A bundle with this id is already waiting.
    """
    target = directory / f"{check_file_id(fields['id'])}{BUNDLE_SUFFIX}"
    with using(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with temporary_file(directory) as (temporary, out):
            content_hash = _write_content(out, pieces_of(file, compress=compress))
            metadata = FileMetadata({**fields, "hash": content_hash})
            with tarfile.open(fileobj=out, mode="a", format=tarfile.PAX_FORMAT) as tar:
                _add(tar, _VERSION, BUNDLE_VERSION)
                _add(tar, _METADATA, metadata.to_json().encode("ascii"))
            out.flush()
            os.fsync(out.fileno())
            try:
                os.link(temporary, target)  # unlike a rename it refuses a name that is taken
            except FileExistsError as exc:
                raise _waiting(target) from exc
        _sync(directory)
    return target


def check_bundle(directory: Path, fields: Mapping[str, object]) -> Path:
    """Return the bundle that `write_bundle` would write, after its checks.

    Raises:
        InvalidInputError: The metadata breaks a rule.
        RecordExistsError: A bundle of the id is waiting.
    """
    target = directory / f"{check_file_id(fields['id'])}{BUNDLE_SUFFIX}"
    check_fields(fields)
    if target.exists():
        raise _waiting(target)
    return target


def _waiting(target: Path) -> RecordExistsError:
    return RecordExistsError(
        f"{target} is already waiting for its upload.",
        hint="Leave the id out, or choose another one.",
    )


def _write_content(out: IO[bytes], pieces: Iterable[bytes]) -> str:
    """Write the first member, whose length is known only afterwards."""
    info = tarfile.TarInfo(_CONTENT)
    info.size = 1 << 40  # room for any length in the header, which is rewritten below
    header_bytes = len(info.tobuf(tarfile.GNU_FORMAT))
    out.write(b"\0" * header_bytes)
    content = Hashed(pieces)
    for piece in content:
        out.write(piece)
    info.size = content.size_bytes
    padding = -info.size % tarfile.BLOCKSIZE
    out.write(b"\0" * (padding + 2 * tarfile.BLOCKSIZE))
    out.seek(0)
    out.write(info.tobuf(tarfile.GNU_FORMAT))
    out.seek(0)
    return content.hash


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _sync(directory: Path) -> None:
    if os.name == "nt":  # a directory cannot be opened on Windows
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def open_bundle(path: str | os.PathLike[str]) -> Iterator[Bundle]:
    """Open a bundle.

    Raises:
        FormatError: It is not a bundle, or a member is missing or is not a plain file.
        UnsupportedVersionError: The bundle or its metadata is of another version.
        InvalidInputError: Its metadata breaks a rule, or the file cannot be read.
    """
    with opened(path) as file, read_bundle(file, Path(path)) as bundle:
        yield bundle


@contextlib.contextmanager
def read_bundle(file: IO[bytes], path: Path) -> Iterator[Bundle]:
    """Read a bundle from an open file; as `open_bundle`, and with its errors."""
    with contextlib.ExitStack() as stack:
        try:
            tar = stack.enter_context(tarfile.open(fileobj=file, mode="r:"))
            infos = {info.name: info for info in itertools.islice(tar, _MAX_MEMBERS)}
            members = {
                name: _member(tar, infos.get(name), name, path)
                for name in (_CONTENT, _VERSION, _METADATA)
            }
            version = members[_VERSION].read(_BLOCK_BYTES).strip()
            text = members[_METADATA].read(_MAX_METADATA_BYTES)
        except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError, MemoryError) as exc:
            raise _not_a_bundle(path, str(exc)) from exc
        if version != BUNDLE_VERSION:
            msg = f"{path} is a bundle of version {version[:20]!r}; this release knows 0."
            raise UnsupportedVersionError(msg)
        try:
            yield Bundle(metadata=FileMetadata.from_json(text), content=members[_CONTENT])
        except tarfile.TarError as exc:  # the content is truncated
            raise _not_a_bundle(path, str(exc)) from exc


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo | None, name: str, path: Path) -> IO[bytes]:
    if info is None:
        raise _not_a_bundle(path, f"it has no {name}")
    # Links are not followed: they would lead to another member, or nowhere. Holes of a sparse file
    # would make a content of any length from nothing.
    file = tar.extractfile(info) if info.isreg() and not info.issparse() else None
    if file is None:
        raise _not_a_bundle(path, f"{name} is not a plain file")
    return file


def _not_a_bundle(path: Path, reason: str) -> FormatError:
    return FormatError(f"{path} is not a bundle: {reason}.", hint="Write bundles with enqueue.")
