"""A store as a file system for Arrow's scanner."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from pyarrow import fs

from lakebed.errors import ObjectNotFoundError, ReadOnlyError
from lakebed.store.base import Store
from lakebed.store.last_reads import READS

OpenInput = Callable[[str], pa.NativeFile]


class _StoreHandler(fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow's classes are untyped
    """Read access for the scanner: opens files and returns their sizes. Nothing is listed."""

    def __init__(self, store: Store, open_input: OpenInput) -> None:
        self._store = store
        self._open_input = open_input

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _StoreHandler)
            and other._store.uri == self._store.uri
            and other._open_input == self._open_input
        )

    def __hash__(self) -> int:
        return hash(self._store.uri)

    def get_type_name(self) -> str:
        return "lakebed"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: Iterable[str]) -> list[fs.FileInfo]:
        READS.check()
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            return fs.FileInfo(path, type=fs.FileType.File, size=self._store.size(path))
        except ObjectNotFoundError:
            return fs.FileInfo(path, type=fs.FileType.NotFound)

    def open_input_file(self, path: str) -> pa.NativeFile:
        READS.check()
        return self._open_input(path)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def get_file_info_selector(self, selector: Any) -> list[fs.FileInfo]:
        raise self._refused(str(selector.base_dir))

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: ARG002, FBT001 - pyarrow's signature
        raise self._refused(path)

    def delete_dir(self, path: str) -> None:
        raise self._refused(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - pyarrow's signature
        raise self._refused(path)

    def delete_root_dir_contents(self) -> None:
        raise self._refused("/")

    def delete_file(self, path: str) -> None:
        raise self._refused(path)

    def move(self, src: str, dest: str) -> None:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(src)

    def copy_file(self, src: str, dest: str) -> None:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(src)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(path)

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:  # noqa: ARG002 - pyarrow's signature
        raise self._refused(path)

    def _refused(self, path: str) -> ReadOnlyError:
        return ReadOnlyError(
            f"The scanner asked to list or change {path!r}.", hint="It reads planned files only."
        )


def filesystem_for(store: Store, open_input: OpenInput | None = None) -> fs.FileSystem:
    """Return a read-only file system whose paths are the store's keys.

    Args:
        store: Store that holds the files.
        open_input: Opens the file of a key; None to open it from the store.
    """
    root = store.local_path("x")
    if root is not None and open_input is None:
        return fs.SubTreeFileSystem(str(root.parent), fs.LocalFileSystem())
    return fs.PyFileSystem(_StoreHandler(store, open_input or store.open_input))
