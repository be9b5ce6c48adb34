"""Raw files: lookup of files, and access to their bytes and lines, compressed or not."""

from __future__ import annotations

import contextlib
import datetime as dt
import fnmatch
import glob
import hashlib
import io
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, Self, cast, get_args
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from lakebed.arrow.many_streams import MANY_STREAM_CODECS, open_streams
from lakebed.arrow.reading.dialect import CsvOptions
from lakebed.arrow.reading.hashes import HASH_BYTES, check_hash, content_hash
from lakebed.arrow.reading.levels import AS_FOLDERS, batch_home, is_hidden, levels_of
from lakebed.arrow.reading.owners import check_no_owner, keys_above, keys_near
from lakebed.arrow.reading.transcoding import Transcoded, is_utf8, marked_encoding
from lakebed.arrow.reasons import reason_of
from lakebed.common import advice
from lakebed.common.redaction import StorageOptions
from lakebed.common.shown import counted, shown
from lakebed.errors import InvalidInputError, ObjectNotFoundError, SchemaMismatchError
from lakebed.model.keys import BATCH_ID, is_own_name
from lakebed.state.sources import RawContent
from lakebed.store.base import ObjectInfo, Store
from lakebed.store.locate import allows_links, effective_options, open_store

FileFormat = Literal["csv", "json", "submissions", "avro", "parquet"]
FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)

STDIN = "-"
MOST_COLUMNS = 10_000  # 50,000 took a minute and 1 GB to read one row
MOST_EMPTY_LINES = 10_000_000  # 60 million fit into 275 kB of gzip, and take a minute
MAX_LINE_BYTES = 64 * 2**20  # a longer line is not a record, and would fill the memory
READ_BYTES = 256 * 2**10
_NEWLINE, _SPACE = b"\n "
_HELD_BYTES = 64 * 2**20  # for a file that is checked before it is used
_PIECE_BYTES = 4 * 2**20

_FORMAT_OF_SUFFIX: dict[str, FileFormat] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".geojson": "json",
    ".tsv": "submissions",
    ".avro": "avro",
    ".parquet": "parquet",
    ".pq": "parquet",
}
# Also read where this format is asked for.
_OTHER_FORMAT_OF_SUFFIX: dict[str, FileFormat] = {".tsv": "csv", ".tab": "csv", ".psv": "csv"}
_CODEC_OF_SUFFIX = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".lz4": "lz4",
    ".xz": "xz",
    ".lzma": "xz",
}
_CODEC_OF_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ": "xz",
}
_MAGIC_BYTES = 6
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\f\r\x1b\x1e")
_DELIMITERS = (",", ";", "\t", "|")  # the usual ones of CSV


class Watch:
    """Follows what has been read of a file.

    Attributes:
        raw: Open file with its raw bytes.
        bytes_read: The uncompressed bytes that the last opening has read; None if they are not hashed.
    """

    def __init__(self, *, is_hashing: bool = False, first_bytes: int | None = None) -> None:
        """Prepare to follow a file.

        Args:
            is_hashing: Whether its bytes are hashed.
            first_bytes: Number of the first bytes that are hashed as well.
        """
        self.raw: pa.NativeFile | None = None
        self.bytes_read: HashingStream | None = None
        self._is_hashing, self._first_bytes = is_hashing, first_bytes

    def watched(self, raw: pa.NativeFile, stream: Any) -> Any:
        """Return the uncompressed bytes of a file that was opened, as a stream that is watched."""
        self.raw = raw
        if not self._is_hashing:
            return stream
        self.bytes_read = HashingStream(stream, self._first_bytes)
        return self.bytes_read

    @property
    def position(self) -> int:
        """Number of bytes that were read; 0 while the file is not open."""
        if self.raw is None or self.raw.closed or not self.raw.seekable():
            return 0
        return int(self.raw.tell())


class HashingStream:
    """A stream that hashes its bytes as they are read.

    Attributes:
        size_bytes: Number of bytes that were read so far.
        is_ended: True if it was read to its end, or as far as it can be.
        first: Its first bytes, so many as asked for; None if fewer were read.
    """

    def __init__(self, source: Any, first_bytes: int | None = None) -> None:
        self._source = source
        self._digest = hashlib.sha256()
        self.size_bytes = 0
        self._first_bytes = first_bytes
        self.is_ended = False
        self.first: RawContent | None = None

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        try:
            data = bytes(self._source.read(size) if size >= 0 else self._source.read())
        except Exception:
            self.is_ended = True
            raise
        self.is_ended = not data and size != 0
        self._add(data)
        return data

    def _add(self, data: bytes) -> None:
        missing = -1 if self._first_bytes is None else self._first_bytes - self.size_bytes
        if 0 <= missing <= len(data) and self.first is None:
            head = self._digest.copy()
            head.update(data[:missing])
            self.first = _content_of(head, self.size_bytes + missing)
        self._digest.update(data)
        self.size_bytes += len(data)

    @property
    def content(self) -> RawContent:
        """The bytes that were read so far."""
        return _content_of(self._digest, self.size_bytes)


def _content_of(digest: Any, size_bytes: int) -> RawContent:
    return RawContent(size_bytes=size_bytes, hash=digest.hexdigest()[: 2 * HASH_BYTES])


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """A file to be read in. Travels to Spark tasks.

    Attributes:
        location: A path of a file system that all readers see, or a URL.
        size_bytes: Size in storage, where it may be compressed.
        storage_options: Options for the store of a URL.
        modified_at: Time of the last change; aware, UTC. None if unknown.
        levels: Texts of the folders `name=value` above it, which belong to its rows; None for null.
        encoding: Encoding of its text; a byte order mark takes precedence.
        line_end: End of its lines: a newline, with or without a carriage return, or that alone.
        first_bytes: Number of its first uncompressed bytes whose hash is wanted too; None for none.
        watch: Follows how much of it is read; None if nothing does.
    """

    location: str
    size_bytes: int
    storage_options: Mapping[str, str] = field(default_factory=dict)
    modified_at: dt.datetime | None = None
    levels: Mapping[str, str | None] = field(default_factory=dict)
    encoding: str = "utf-8"
    line_end: str = "\n"
    first_bytes: int | None = None
    watch: Watch | None = field(default=None, repr=False, compare=False)

    @property
    def codec(self) -> str | None:
        """Compression by its suffix; None for plain bytes."""
        return _codec_of(self.location)

    def open_raw(self) -> pa.NativeFile:
        """Open the raw bytes for random access.

        Raises:
            InvalidInputError: The file does not exist.
        """
        if self.location == STDIN:
            return pa.PythonFile(sys.stdin.buffer, mode="r")
        if not _is_url(self.location):
            return pa.OSFile(self.location)
        parent, _, name = self.location.rpartition("/")
        try:
            return open_store(parent, storage_options=self.storage_options).open_input(name)
        except ObjectNotFoundError as exc:
            raise _no_file(self.location) from exc

    def looked_at(self) -> RawFile:
        """Return the file with the facts that only its content shows."""
        return self

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the text, uncompressed and in UTF-8."""
        with self.open_bytes() as stream:
            yield cast(BinaryIO, Transcoded(stream, self.encoding, self.line_end))

    @contextmanager
    def open_bytes(self) -> Iterator[BinaryIO]:
        """Open the uncompressed bytes."""
        with self.open_raw() as raw, uncompressed(raw, self.codec_in(raw)) as stream:
            yield stream if self.watch is None else self.watch.watched(raw, stream)

    def codec_in(self, raw: pa.NativeFile) -> str | None:
        """Return the compression of open bytes: by the first ones, where they are near.

        Cost:
            Of a URL nothing: its suffix counts.
        """
        if _is_url(self.location) or self.location == STDIN:
            return self.codec
        head = raw.read(_MAGIC_BYTES)
        raw.seek(0)
        return codec_of(head) or (None if _is_text(head) else self.codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile(RawFile):
    """A file in a store that is open already, under a key that does not describe its content.

    Attributes:
        store: Store that holds it.
        key: Key in the store.
        name: Former path, whose suffix may name the compression.
        expected_hash: Hash that the content must have; None if it is unknown.
        content_codec: Compression by its first bytes.
        content: Its whole content, if it was held by an earlier check.
    """

    store: Store
    key: str
    name: str
    expected_hash: str | None = None
    content_codec: str | None = None
    content: pa.Buffer | None = field(default=None, repr=False, compare=False)

    @property
    def codec(self) -> str | None:
        """Compression by its content, or else by the suffix of its name."""
        return self.content_codec or _codec_of(self.name)

    def codec_in(self, raw: pa.NativeFile) -> str | None:  # noqa: ARG002 - looked at before
        """Return the compression that `looked_at` has found."""
        return self.codec

    def open_raw(self) -> pa.NativeFile:
        """Open the raw bytes for random access.

        Raises:
            InvalidInputError: The file does not exist.
        """
        if self.content is not None:
            return pa.BufferReader(self.content)
        try:
            return self.store.open_input(self.key, size_bytes=self.size_bytes)
        except ObjectNotFoundError as exc:
            raise _no_file(self.location) from exc

    def looked_at(self) -> Self:
        """Return the file with the facts that only its content shows.

        If its hash is known, all of it is read before any of it is used: written rows cannot be
        taken back when its end turns out to be damaged.

        Raises:
            FormatError: It does not have the expected hash.

        Cost:
            With a hash, all of it: up to 64 MiB are held, so that they are read once. Otherwise the
            first bytes, unless its name shows the compression.
        """
        with reading(self.location):
            return self._verified()._with_codec()

    def _verified(self) -> Self:
        if self.expected_hash is None:
            return self
        with self.open_raw() as raw:
            held = raw.read_buffer(_HELD_BYTES + 1)
            digest = content_hash(chain([held], _pieces(raw)))
        hint = "Restore the file, or push it again; until then every run reads it."
        check_hash(digest, self.expected_hash, self.location, hint)
        return replace(self, content=held) if held.size <= _HELD_BYTES else self

    def _with_codec(self) -> Self:
        if self.codec is not None:
            return self
        with self.open_raw() as raw:
            codec = codec_of(raw.read(_MAGIC_BYTES))
        return self if codec is None else replace(self, content_codec=codec)


def _pieces(raw: pa.NativeFile) -> Iterator[bytes]:
    while piece := raw.read(_PIECE_BYTES):
        yield piece


def contents_of(
    file: RawFile, sizes: Iterable[int] = ()
) -> tuple[RawContent, dict[int, RawContent]]:
    """Return the uncompressed content of a file, and its first bytes of some sizes.

    Sizes beyond its end are left out. Of a damaged file the readable part counts.

    Cost:
        All of it.
    """
    parts: dict[int, RawContent] = {}
    with file.open_bytes() as stream:
        hashing = HashingStream(stream)
        try:
            for size in sorted(set(sizes)):
                while hashing.size_bytes < size:
                    if not hashing.read(min(_PIECE_BYTES, size - hashing.size_bytes)):
                        break
                if hashing.size_bytes == size:
                    parts[size] = hashing.content
            while hashing.read(_PIECE_BYTES):
                pass
        except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as exc:
            if isinstance(exc, OSError) and exc.errno is not None:
                raise
    return hashing.content, parts


def _is_text(head: bytes) -> bool:
    """Return whether bytes can begin a text; those of compressed files hold control characters."""
    return bool(head) and not _CONTROLS.intersection(head)


def _codec_of(path: str) -> str | None:
    return _CODEC_OF_SUFFIX.get(last_suffix(path.lower()))


def last_suffix(location: str) -> str:
    """Return the suffix of a path or URL, as `PurePosixPath` does, which takes ten times as long."""
    name = location.rpartition("/")[2]
    dot = name.rfind(".")
    return name[dot:] if 0 < dot < len(name) - 1 else ""


def codec_of(head: bytes) -> str | None:
    """Return the codec of a compressed file by its first bytes; None for another file."""
    return next((codec for magic, codec in _CODEC_OF_MAGIC.items() if head.startswith(magic)), None)


def uncompressed(raw: pa.NativeFile, codec: str | None) -> Any:
    """Return a file as a stream of its uncompressed bytes, of all its frames."""
    if codec is None:
        return raw
    if codec in MANY_STREAM_CODECS:
        return open_streams(raw, codec)
    return pa.CompressedInputStream(raw, codec)


def _is_url(location: str) -> bool:
    return "://" in location


class _NothingThere(Exception):  # noqa: N818 - not an error where files may be missing
    """A location has no file."""

    def __init__(self, error: InvalidInputError) -> None:
        super().__init__(error)
        self.error = error


def _no_file(location: str) -> InvalidInputError:
    return InvalidInputError(f"No file {location!r}.", hint="Check the path.")


def find_files(
    given: object,
    format: FileFormat | None = None,  # noqa: A002 - the word of the option
    *,
    storage_options: Mapping[str, str] | None = None,
    may_be_empty: bool = False,
    levels: bool = True,
    is_continued: bool = False,
) -> tuple[FileFormat, tuple[RawFile, ...]]:
    """Find the requested files, and their format.

    Args:
        given: A path, a pattern such as `in/*.tsv.gz` (`**` for any depth), a directory, which is
            searched at any depth, a URL of a file, or of a folder if it ends with `/`, or a file
            that was found before; or several of them. A directory yields the files whose suffix
            names the format, except names that begin with `.` or `_`; with a format also those that
            have only the suffix of a compression, such as `part-r-00000.gz`, and `part-…` without
            any; for submissions also `.log`. Only regular files are read.
        format: None to derive it from the suffixes.
        storage_options: Options for the store of a URL.
        may_be_empty: True if some paths, or all of them, may lead to no file.
        levels: True if folders `name=value` below a path, and directly above it, hold values of the
            rows. Of folders `batch_id=…` only the newest of each partition is read. False to read
            them as plain folders.
        is_continued: True if later searches find further files for the same rows. Folders
            `batch_id=…` are then an error, since rows of older batches would stay.

    Returns:
        The format, and the files in the order given; those of a directory by name.

    Raises:
        InvalidInputError: A file is missing, or no regular file, or belongs to a dataset or table;
            or a search met a symbolic link, and `storage_options` do not allow `links`; or the format
            is unknown.

    Cost:
        One file status for each file; a LIST for each URL of a folder or pattern, and two HEADs and
        two LISTs for each folder above it.
    """
    files = _found_files(
        given,
        format,
        storage_options=storage_options,
        may_be_empty=may_be_empty,
        levels=levels,
        is_continued=is_continued,
        takes_any=False,
    )
    return format or ("json" if not files else common_format(files)), files


def find_any_files(
    given: object,
    format: FileFormat | None = None,  # noqa: A002 - the word of the option
    *,
    storage_options: Mapping[str, str] | None = None,
    levels: bool = True,
    is_continued: bool = False,
) -> tuple[RawFile, ...]:
    """Find the requested files, of which a look at their first bytes shows the format.

    As `find_files`; but of a directory without a file whose suffix names a format, all visible
    files are found.

    Raises:
        InvalidInputError: As for `find_files`, but for an unknown format.

    Cost:
        As for `find_files`.
    """
    return _found_files(
        given,
        format,
        storage_options=storage_options,
        may_be_empty=False,
        levels=levels,
        is_continued=is_continued,
        takes_any=format is None,
    )


def passed_over(given: Iterable[str], files: Iterable[RawFile]) -> dict[str, str]:
    """Return what lies in some directories and is not among the files that were found, with its kind.

    Names that begin with `.` or `_` are left out.

    Cost:
        A walk through each directory, and a status of each entry that was not found.
    """
    found = {file.location for file in files}
    passed: dict[str, str] = {}
    for text in given:
        path = Path(_plain_path(text))
        for entry in sorted(_walk(path, allows_links=True)) if path.is_dir() else ():
            location = without_parents(str(entry.absolute()))
            if location in found:
                continue
            with contextlib.suppress(FileNotFoundError):
                mode = entry.stat().st_mode
                kind = next((name for test, name in _KINDS if test(mode)), "another suffix")
                passed[str(entry)] = kind
    return passed


_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def _found_files(
    given: object,
    format: FileFormat | None,  # noqa: A002 - the word of the option
    *,
    storage_options: Mapping[str, str] | None,
    may_be_empty: bool,
    levels: bool,
    is_continued: bool,
    takes_any: bool,
) -> tuple[RawFile, ...]:
    if format is not None and format not in FILE_FORMATS:
        raise InvalidInputError(
            f"Unknown file format {format!r}.", hint=f"Known formats: {', '.join(FILE_FORMATS)}."
        )
    if isinstance(given, str | os.PathLike | RawFile):
        given = [given]
    if not isinstance(given, Iterable):
        raise InvalidInputError(
            f"Cannot read files from {type(given).__name__}.", hint="Give paths or a pattern."
        )
    options = StorageOptions(storage_options or {})
    by_location: dict[str, RawFile] = {}
    for path in given:
        if isinstance(path, RawFile):
            by_location.setdefault(path.location, path)
            continue
        text = os.fspath(path)
        try:
            found = _expand(text, format, options, takes_any=takes_any)
        except _NothingThere as nothing:
            if not may_be_empty:
                if is_continued and not takes_any:
                    nothing.error.hint += (
                        " If there may be no file, set may_be_empty = true in [source], or "
                        "FromFiles(may_be_empty=True)."
                    )
                raise nothing.error from nothing.__cause__
            continue
        base = _base_of(text)
        for file in found:
            above = levels_of(file.location, base) if levels and file.location != STDIN else {}
            by_location.setdefault(file.location, replace(file, levels=above) if above else file)
    if may_be_empty and not by_location:
        return ()
    if not by_location:
        raise InvalidInputError("No file is given.", hint="Give paths or a pattern.")
    return _newest_batches(tuple(by_location.values()), is_continued=is_continued)


def _base_of(text: str) -> str:
    """Return the folder at which a search begins; for a file, the folder that holds it."""
    if _is_url(text) and not text.startswith("file:"):
        root = text.rpartition("/")[0]
    else:
        path = Path(_plain_path(text))
        root = str((path if path.is_dir() else path.parent).absolute())
    while _PATTERN.intersection(root) and not Path(root).exists():
        root = root.rpartition("/")[0]
    return root if _is_url(root) else without_parents(root)


def _newest_batches(files: tuple[RawFile, ...], *, is_continued: bool) -> tuple[RawFile, ...]:
    """Return files without those of older batches, and without the level of the batch.

    Raises:
        InvalidInputError: The newest batches are unknown, or may change with the next search.
    """
    batched = [file for file in files if BATCH_ID in file.levels]
    if not batched:
        return files
    whole = f"{batched[0].location!r} lies in a batch, one state of its partition"
    if is_continued:
        raise InvalidInputError(
            f"{whole}; an ingest would keep the rows of older batches.",
            hint="Adopt the directory of the table (`lakebed adopt`), which knows batches; or load "
            f"it with `lakebed import`, which reads the newest ones. {AS_FOLDERS}",
        )
    if any(is_own_name(PurePosixPath(file.location).name.partition(".")[0]) for file in batched):
        raise InvalidInputError(
            f"{whole} of a dataset of Lakebed, whose head lists the batches that count.",
            hint=f"Restore the head, and read the dataset. {AS_FOLDERS}",
        )
    newest: dict[str, int] = {}
    for file in batched:
        number = _batch_number(file)
        home = batch_home(file.location)
        newest[home] = max(number, newest.get(home, number))
    current = tuple(
        replace(file, levels={name: file.levels[name] for name in file.levels if name != BATCH_ID})
        for file in files
        if BATCH_ID not in file.levels or _batch_number(file) == newest[batch_home(file.location)]
    )
    if len(current) < len(files):
        kept = {file.location for file in current}
        first = next(file.location for file in files if file.location not in kept)
        advice.warn(
            f"{counted(len(files) - len(current), 'file')} of older batches did not count, such as "
            f"{first}: only the newest {BATCH_ID}=… of each partition does. To keep the history, "
            f"adopt the directory instead. {AS_FOLDERS}"
        )
    return current


def _batch_number(file: RawFile) -> int:
    text = file.levels[BATCH_ID]
    if text is None or not (text.isascii() and text.isdecimal()):
        raise InvalidInputError(
            f"{file.location!r} lies in a batch whose id is not a number, so that the newest batch of "
            "its partition is unknown.",
            hint=f"Rename the folder, or give the files of the current batches. {AS_FOLDERS}",
        )
    return int(text)


def _expand(
    text: str, wanted: FileFormat | None, options: Mapping[str, str], *, takes_any: bool
) -> Iterable[RawFile]:
    if text == STDIN:
        return [RawFile(location=STDIN, size_bytes=0)]
    text = _plain_path(text)
    if _is_url(text):
        return _expand_url(text, wanted, options, takes_any=takes_any)
    path = Path(text)
    if path.is_dir():
        # As paths are compared, but each of them is split once.
        inside = sorted(_walk(path, allows_links=allows_links(options)), key=attrgetter("parts"))
        fitting = _fitting(text, list(_still_there(inside)), wanted, takes_any=takes_any)
        _check_no_owner(text, fitting, keys_near(file.location for file in fitting))
        return fitting
    if path.is_file():
        return [_local(path)]
    if path.exists():
        raise InvalidInputError(
            f"{text!r} is not a regular file: a pipe, a socket or a device can be read only once.",
            hint="Write its content to a file; or give JSON lines on standard input to `lakebed "
            "append`, as the file '-'.",
        )
    matches = [Path(entry) for entry in sorted(_glob(text))]
    matches = [entry for entry in matches if not _is_hidden_match(entry, text)]
    if not allows_links(options):
        _check_no_links(matches, text)
    files = list(_still_there(matches))
    if not files:
        raise _NothingThere(_no_file(text))
    _check_no_owner(text, files, keys_near(file.location for file in files))
    return files


def _plain_path(text: str) -> str:
    return unquote(urlsplit(text).path) if text.startswith("file:") else text


def _is_hidden_match(path: Path, pattern: str) -> bool:
    """Return whether a pattern reached a hidden file or folder that it does not name."""
    named = re.split(r"[/\\]", pattern)
    return any(is_hidden(part) and part not in named for part in path.parts if part.strip("./\\"))


def _check_no_owner(given: str, files: Iterable[RawFile], keys: Iterable[str]) -> None:
    check_no_owner(given, [file.location for file in files], keys)


def _glob(pattern: str) -> list[str]:
    return glob.glob(pattern, recursive=True)  # noqa: PTH207 - the pattern may be absolute


def _local(path: Path) -> RawFile:
    status = path.stat()
    modified_at = dt.datetime.fromtimestamp(status.st_mtime, dt.UTC)
    location = without_parents(str(path.absolute()))
    return RawFile(location=location, size_bytes=status.st_size, modified_at=modified_at)


def _still_there(paths: Iterable[Path]) -> Iterator[RawFile]:
    """Yield the regular files that still exist since they were listed."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():  # a pipe or socket would be waited for
                yield _local(path)


def without_parents(path: str) -> str:
    """Return a path without `..`, unless that changes its meaning, as behind a link.

    >>> without_parents("/data/other/../in/a.jsonl")
    '/data/in/a.jsonl'
    """
    if ".." not in path or ".." not in Path(path).parts:
        return path
    plain = os.path.normpath(path)
    return plain if os.path.realpath(plain) == os.path.realpath(path) else path


def _walk(directory: Path, *, allows_links: bool) -> Iterator[Path]:
    met: set[str] = set()
    for root, folders, names in os.walk(directory, followlinks=allows_links):
        real = os.path.realpath(root) if allows_links else root
        if real in met:  # by a link to a folder above, or to one that was read
            folders.clear()
            continue
        met.add(real)
        folders[:] = [name for name in folders if not is_hidden(name)]
        files = [Path(root) / name for name in names if not is_hidden(name)]
        if not allows_links:
            _check_no_link(*(Path(root) / name for name in folders), *files)
        yield from files


def _check_no_links(matches: Iterable[Path], pattern: str) -> None:
    """Refuse symbolic links on the way from the folder of a pattern to what it matches."""
    parts = Path(pattern).parts
    fixed = next((n for n, part in enumerate(parts) if _PATTERN.intersection(part)), len(parts))
    ways = {
        entry.parts[:count]: None
        for entry in matches
        for count in range(fixed + 1, len(entry.parts) + 1)
    }
    _check_no_link(*(Path(*way) for way in ways))


def _check_no_link(*paths: Path) -> None:
    """Refuse symbolic links that a search meets: they may lead to files of others, or to a folder twice.

    Raises:
        InvalidInputError: One of the paths is a symbolic link.
    """
    for path in paths:
        if path.is_symlink():
            raise InvalidInputError(
                f"{str(path)!r} is a symbolic link, which a search does not follow: it may lead to "
                "files of others.",
                hint="Name the file itself, leave the link out of the folder or pattern, or allow links "
                "by the storage option links=true.",
            )


def _expand_url(
    url: str, wanted: FileFormat | None, options: Mapping[str, str], *, takes_any: bool
) -> Iterable[RawFile]:
    options = effective_options(url, options)  # tasks may lack options of their own
    root, _, name = url.rpartition("/")
    pattern = _PATTERN.intersection(url)
    if name and not pattern:
        store = open_store(root, storage_options=options)
        try:
            info = store.stat(name)
        except ObjectNotFoundError as exc:
            raise _NothingThere(_no_file(url)) from exc
        return [_remote(url, info, options)]
    while _PATTERN.intersection(root):
        root = root.rpartition("/")[0]
    listed = list(open_store(root, storage_options=options).list())
    keys = [f"{root}/{info.key}" for info in listed]
    named = url.split("/")
    files = [
        _remote(key, info, options)
        for key, info in zip(keys, listed, strict=True)
        if not any(is_hidden(part) and part not in named for part in info.key.split("/"))
    ]
    if not pattern:
        fitting = _fitting(url, files, wanted, takes_any=takes_any)
        _check_no_owner(url, fitting, chain(keys, keys_above(root, options)))
        return fitting
    parts = url.split("/")
    matching = [file for file in files if _matches(file.location.split("/"), parts)]
    if not matching:
        raise _NothingThere(_no_file(url))
    _check_no_owner(url, matching, chain(keys, keys_above(root, options)))
    return matching


def _matches(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the parts of a URL match a pattern, where `**` matches any number of parts."""
    if not pattern:
        return not parts
    first, *rest = pattern
    if first == "**":
        return any(_matches(parts[start:], rest) for start in range(len(parts) + 1))
    if not parts or not fnmatch.fnmatchcase(parts[0], first):
        return False
    return _matches(parts[1:], rest)


def _remote(url: str, info: ObjectInfo, options: Mapping[str, str]) -> RawFile:
    return RawFile(
        location=url,
        size_bytes=info.size_bytes,
        storage_options=options,
        modified_at=info.modified_at,
    )


_PATTERN = frozenset("*?[")


def _fitting(
    directory: str, files: Sequence[RawFile], wanted: FileFormat | None, *, takes_any: bool
) -> list[RawFile]:
    fitting = [file for file in files if _fits(file, wanted)]
    if takes_any and not fitting:
        fitting = list(files)
    if not fitting:
        error = InvalidInputError(
            f"No {wanted or 'CSV, JSON lines, submissions, Avro or Parquet'} file in {directory!r}.",
            hint="The suffix decides which files of a directory are read; with a format, also "
            "those that have none, or only that of a compression.",
        )
        raise _NothingThere(error)
    return fitting


def _fits(file: RawFile, wanted: FileFormat | None) -> bool:
    found = format_of(file.location)
    if wanted is not None and _OTHER_FORMAT_OF_SUFFIX.get(_suffix_of(file.location)) == wanted:
        return True
    if found is not None:
        return wanted in (None, found)
    if wanted == "submissions":
        return file.codec is not None or file.location.lower().endswith(".log")
    return wanted is not None and _has_no_suffix(file)


def _has_no_suffix(file: RawFile) -> bool:
    """Return whether a name has no suffix but that of a compression, as `part-r-00000.gz` has."""
    path = PurePosixPath(file.location)
    is_part = path.name.startswith("part-") and not path.suffix
    return is_part or (file.codec is not None and not path.with_suffix("").suffix)


def format_of(location: str) -> FileFormat | None:
    """Return the format of a file by its suffix; None if unknown.

    A compression is ignored, and what a rotation has appended.

    >>> format_of("app.jsonl.gz"), format_of("app.jsonl.1"), format_of("app.csv-20240101.zst")
    ('json', 'json', 'csv')
    """
    return _FORMAT_OF_SUFFIX.get(_suffix_of(location))


def without_codec(location: str) -> str:
    """Return a path or URL without the suffix of a compression."""
    suffix = last_suffix(location)
    return location.removesuffix(suffix) if suffix.lower() in _CODEC_OF_SUFFIX else location


# A number or a date behind the suffix.
_ROTATED = re.compile(r"(?<=[a-z])[.-]\d[\d.\-_t:]*$")


def _suffix_of(location: str) -> str:
    return last_suffix(_ROTATED.sub("", without_codec(location.lower())))


def common_format(files: Sequence[RawFile]) -> FileFormat:
    """Return the format that the suffixes of all files name.

    Raises:
        InvalidInputError: They name several, or none.
    """
    if files[0].location == STDIN:
        return "json"
    formats = {file.location: format_of(file.location) for file in files}
    first = formats[files[0].location]
    for location, file_format in formats.items():
        if file_format is None:
            raise InvalidInputError(
                f"Cannot derive the format of {location!r} from its suffix.",
                hint=f"Give format, or --format: {', '.join(FILE_FORMATS)}.",
            )
        if file_format != first:
            raise InvalidInputError(
                f"{files[0].location!r} and {location!r} are of different formats.",
                hint="Load one format at a time.",
            )
    assert first is not None
    return first


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Prefix errors of the input with a location.

    Raises:
        InvalidInputError: An error of the input, with the location in its message.
    """
    try:
        yield
    except InvalidInputError as exc:
        exc.message = f"{place}: {exc.message}"
        raise


@contextmanager
def reading(location: str | os.PathLike[str]) -> Iterator[None]:
    """Turn errors of a file into errors of the input that name the file.

    Raises:
        InvalidInputError: The file cannot be read, or holds something else.
    """
    place = os.fspath(location)
    try:
        with naming(place):
            yield
    except (pa.ArrowException, UnicodeError, EOFError, lzma.LZMAError) as exc:
        raise InvalidInputError(f"{place}: {reason_of(exc)}.", hint="Correct the file.") from exc
    except OSError as exc:
        reason = exc.strerror or reason_of(exc)
        raise InvalidInputError(f"Cannot read {place}: {reason}.", hint="Check the file.") from exc


def read_text(path: Path) -> str:
    """Read a small text file.

    Raises:
        InvalidInputError: The file cannot be read.
    """
    with reading(path):
        return path.read_text(encoding="utf-8-sig")


def check_header(names: tuple[str, ...], options: CsvOptions) -> tuple[str, ...]:
    """Return the names of a header.

    Raises:
        SchemaMismatchError: The header is missing, or uses another delimiter.
    """
    if not names:
        raise SchemaMismatchError(
            "The file is empty and lacks even a header.", hint="Leave the file out."
        )
    if len(names) > MOST_COLUMNS:
        raise SchemaMismatchError(
            f"The header has {len(names):,} columns; at most {MOST_COLUMNS:,} are read.",
            hint="Split the file by columns, or write its rows as JSON lines with few fields each.",
        )
    # Field names hold none of these characters.
    between = next((delimiter for delimiter in _DELIMITERS if delimiter in names[0]), None)
    if len(names) == 1 and between is not None:
        raise SchemaMismatchError(
            f"The header {shown(names[0])} is one column: it has no {options.delimiter!r}.",
            hint=f"Give the character between the cells by delimiter, or --delimiter {between!r}.",
        )
    return names


@dataclass(frozen=True, slots=True)
class Line:
    """A line, or the readable part of one.

    Attributes:
        number: Number of the line, from 1 on.
        data: Bytes without the newline.
        problem: Reason why it is incomplete; empty if it is complete.
        is_rest: True if nothing after it can be read.
        is_open: True if the file ends in it, without a newline.
    """

    number: int
    data: bytes
    problem: str = ""
    is_rest: bool = False
    is_open: bool = False


def lines_of(file: RawFile) -> Iterator[Line]:
    """Yield the lines of a file, compressed or not.

    In a damaged file, the lines before the damage come whole. The last line then has a problem,
    which describes the damage and its position. A line that is too long comes in pieces.
    """
    pending: list[bytes] = []
    pending_bytes, number, is_cut = 0, 1, False
    try:
        for chunk in pieces_of(file):
            *whole, tail = chunk.split(b"\n")
            for data in whole:
                problem = TOO_LONG if is_cut else ""
                yield Line(number, b"".join([*pending, data]), problem)
                pending, pending_bytes, is_cut = [], 0, False
                number += 1
            pending.append(tail)
            pending_bytes += len(tail)
            if pending_bytes > MAX_LINE_BYTES:
                yield Line(number, b"".join(pending), TOO_LONG)
                pending, pending_bytes, is_cut = [], 0, True
    except DamageError as exc:
        yield Line(number, b"".join(pending), str(exc), is_rest=True)
        return
    if pending_bytes:
        yield Line(number, b"".join(pending), TOO_LONG if is_cut else "", is_open=True)


TOO_LONG = f"The line is longer than {MAX_LINE_BYTES:,} bytes; it is kept in pieces."


class DamageError(Exception):
    """A compressed file does not decode from this point on."""


def head_of(file: RawFile, size_bytes: int) -> bytes:
    """Return at most so many of the first bytes of a text; perhaps none of a damaged file.

    They are no more than a line may have.

    Cost:
        As many bytes of the file at most. Arrow's decompressor of gzip always reads 64 KiB.
    """
    size_bytes = min(size_bytes, MAX_LINE_BYTES)
    with file.open_raw() as raw:
        codec = file.codec_in(raw)
        try:
            if codec == "gzip":
                head = io.BytesIO(_gunzip().decompress(raw.read(size_bytes), size_bytes))
                return Transcoded(head, file.encoding, file.line_end).read(size_bytes)
            with uncompressed(raw, codec) as stream:
                return Transcoded(stream, file.encoding, file.line_end).read(size_bytes)
        except (OSError, EOFError, lzma.LZMAError, zlib.error, pa.ArrowException) as exc:
            if codec is None or (isinstance(exc, OSError) and exc.errno is not None):
                raise
            return b""


def small_text_of(file: RawFile, most_bytes: int) -> bytes | None:
    """Return the text of a small file, which is read at once.

    Args:
        file: A file in a store or a file system.
        most_bytes: Largest size of the file and of the text.

    Returns:
        The bytes; more than `most_bytes` of a larger text, which are not all. None if the text is to
        be read in pieces: where it is compressed by another codec than gzip, or damaged, or needs a
        conversion.
    """
    if file.codec not in (None, "gzip"):
        return None
    with file.open_raw() as raw:
        codec = file.codec_in(raw)
        if codec not in (None, "gzip"):
            return None
        data: bytes | None = raw.read(most_bytes + 1)
        if codec is not None and data is not None:
            data = _gunzipped(data, most_bytes)
        if data is None or file.line_end == "\r" or len(data) > MOST_EMPTY_LINES:
            return None
        if not is_utf8(marked_encoding(data) or file.encoding):
            return None
        if file.watch is None:
            return data
        stream = file.watch.watched(raw, io.BytesIO(data))
        while stream.read():
            pass  # to its end, which the watch notes
    return data


def _gunzip() -> Any:
    return zlib.decompressobj(16 + zlib.MAX_WBITS)  # 16 for gzip


def _gunzipped(data: bytes, most_bytes: int) -> bytes | None:
    """Return the text of a file of gzip, or its begin with more than so many bytes; None if damaged."""
    texts, size_bytes = [], 0
    while size_bytes <= most_bytes:
        decompressor = _gunzip()
        try:
            texts.append(decompressor.decompress(data, most_bytes + 1 - size_bytes))
        except zlib.error:
            return None
        size_bytes += len(texts[-1])
        if size_bytes <= most_bytes and not decompressor.eof:
            return None
        data = decompressor.unused_data
        if not data:
            break
    return texts[0] if len(texts) == 1 else b"".join(texts)


def pieces_of(file: RawFile) -> Generator[bytes, None, None]:
    """Yield the bytes of a file that can be read before any damage, or before too many empty lines.

    Raises:
        DamageError: The rest cannot be read, or is not.
    """
    good = empty_count = 0
    if file.codec is not None and not file.size_bytes and file.location != STDIN:
        raise DamageError("The file is empty: compressed text has at least a header.")
    try:
        with file.open() as stream:
            while chunk := stream.read(READ_BYTES):
                yield chunk
                good += len(chunk)
                # So many at least: a line with content has a byte of it or more.
                empty_count += _count_empty_lines(chunk)
                if empty_count > MOST_EMPTY_LINES:
                    raise DamageError(
                        f"More than {MOST_EMPTY_LINES:,} lines are empty within the first {good:,} "
                        "bytes of text. The rest was not read: leave the empty lines out."
                    )
        return
    except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as exc:
        with file.open_raw() as raw:
            codec = file.codec_in(raw)
        if codec is None or (isinstance(exc, OSError) and exc.errno is not None):
            raise
        cause = reason_of(exc)
    # A failed read returns nothing of what it decoded; reading single bytes returns it all.
    last = b"".join(_bytes_after(file.open, good))
    if last:
        yield last
    raise DamageError(
        f"The file is damaged after {good + len(last):,} bytes of text: {cause}. "
        "The rest could not be read."
    )


def _count_empty_lines(data: bytes) -> int:
    """Return the number of newlines less that of bytes other than white space, at least 0."""
    codes = np.frombuffer(data, np.uint8)
    content_count = int(np.count_nonzero(codes > _SPACE))
    if 2 * content_count >= len(data):
        return 0
    line_count = int(np.count_nonzero(codes == _NEWLINE))
    # Measured: the exact count takes six times as long, and few texts have other control characters.
    if line_count > content_count:
        content_count = len(data.translate(None, b" \t\r\n"))
    return max(0, line_count - content_count)


def _bytes_after(open_file: Callable[[], object], good: int) -> Iterator[bytes]:
    with open_file() as stream:  # type: ignore[attr-defined]  # a context manager
        for start in range(0, good, READ_BYTES):
            stream.read(min(READ_BYTES, good - start))
        try:
            while byte := stream.read(1):
                yield byte
        except (OSError, EOFError, lzma.LZMAError, pa.ArrowException):
            return
