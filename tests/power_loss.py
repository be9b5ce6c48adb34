"""A directory as a loss of power may leave it: what POSIX promises, and nothing more.

A recorder notes each change of names and contents below a root. `Disk` replays a part of the record
and builds the directory anew from what was synced: the content of a file by its own sync, a name by
a sync of the directory that holds it. A name that was removed is there again until that directory is
synced.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

Change = tuple[str, ...]


class Recorder:
    """Notes the changes that this process makes below a root, in their order.

    Attributes:
        changes: The changes so far.
        contents: The synced contents, by their number.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changes: list[Change] = []
        self.contents: list[bytes] = []
        self.is_paused = False
        # A change and its note are one step, or a file could come before its directory.
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record until the end of the block."""
        with contextlib.ExitStack() as stack:
            for name in ("link", "rename", "replace"):
                stack.enter_context(mock.patch.object(os, name, self._with_two_paths(name)))
            for name in ("unlink", "remove", "rmdir", "mkdir"):
                stack.enter_context(mock.patch.object(os, name, self._with_a_path(name)))
            stack.enter_context(mock.patch.object(os, "open", self._open(os.open)))
            stack.enter_context(mock.patch.object(os, "fsync", self._fsync(os.fsync)))
            yield

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing until the end of the block."""
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False

    def _path(self, path: Any) -> str | None:
        """Return the path below the root; None for others."""
        if self.is_paused or not isinstance(path, (str, os.PathLike)):
            return None
        absolute = os.path.abspath(path)  # noqa: PTH100 - links must stay
        return (
            os.path.relpath(absolute, self.root) if absolute.startswith(f"{self.root}/") else None
        )

    def _with_a_path(self, name: str) -> Any:
        real = getattr(os, name)

        def call(path: Any, *args: Any, **options: Any) -> None:
            with self._lock:
                real(path, *args, **options)
                if (below := self._path(path)) is not None:
                    self.changes.append((name, below))

        return call

    def _with_two_paths(self, name: str) -> Any:
        real = getattr(os, name)

        def call(begin: Any, end: Any, *args: Any, **options: Any) -> None:
            with self._lock:
                real(begin, end, *args, **options)
                if (below := self._path(end)) is not None:
                    self.changes.append((name, self._path(begin) or "", below))

        return call

    def _open(self, real: Any) -> Any:
        def call(path: Any, flags: int, *args: Any, **options: Any) -> int:
            with self._lock:
                below = self._path(path)
                is_new = below is not None and flags & os.O_CREAT and not os.path.lexists(path)
                descriptor: int = real(path, flags, *args, **options)
                if below is not None and is_new:
                    self.changes.append(("create", below))
            return descriptor

        return call

    def _fsync(self, real: Any) -> Any:
        def call(descriptor: int) -> None:
            with self._lock:
                real(descriptor)
                note(descriptor)

        def note(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            if path == self.root and not self.is_paused:
                self.changes.append(("sync directory", "."))
            elif (below := self._path(path)) is None:
                return
            elif path.is_dir():
                self.changes.append(("sync directory", below))
            else:
                self.contents.append(path.read_bytes())
                self.changes.append(("sync file", below, str(len(self.contents) - 1)))

        return call


@dataclass
class _File:
    synced: int | None = None


@dataclass
class _Directory:
    now: dict[str, _Directory | _File] = field(default_factory=dict)
    synced: dict[str, _Directory | _File] = field(default_factory=dict)
    # Changes of names since the last sync; None for a name that was removed.
    since: list[tuple[str, _Directory | _File | None]] = field(default_factory=list)

    def put(self, name: str, node: _Directory | _File) -> None:
        self.now[name] = node
        self.since.append((name, node))

    def remove(self, name: str) -> None:
        self.now.pop(name, None)
        self.since.append((name, None))


class Disk:
    """The directories and files after a part of the record."""

    def __init__(self, changes: Sequence[Change], contents: Sequence[bytes]) -> None:
        self._root = _Directory()
        self._contents = contents
        for what, *paths in changes:
            self._replay(what, *paths)

    def _at(self, path: str) -> _Directory | _File:
        node: _Directory | _File = self._root
        for name in path.split("/") if path not in ("", ".") else ():
            assert isinstance(node, _Directory)
            node = node.now[name]
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        above, _, name = path.rpartition("/")
        parent = self._at(above)
        assert isinstance(parent, _Directory)
        return parent, name

    def _replay(self, what: str, path: str, other: str = "") -> None:
        if what in ("create", "mkdir"):
            parent, name = self._parent(path)
            parent.put(name, _File() if what == "create" else _Directory())
        elif what == "link":
            parent, name = self._parent(other)
            parent.put(name, self._at(path))
        elif what in ("rename", "replace"):
            node = self._at(path)
            parent, name = self._parent(path)
            parent.remove(name)
            parent, name = self._parent(other)
            parent.put(name, node)
        elif what in ("unlink", "remove", "rmdir"):
            parent, name = self._parent(path)
            parent.remove(name)
        elif what == "sync file":
            file = self._at(path)
            assert isinstance(file, _File)
            file.synced = int(other)
        else:
            directory = self._at(path)
            assert isinstance(directory, _Directory)
            directory.synced, directory.since = dict(directory.now), []

    def build(self, target: Path, keeps: random.Random | None = None) -> None:
        """Build the directory as it is after a loss of power.

        Args:
            target: Where; what is there is removed.
            keeps: Chooses how many of the names that no sync has covered are there; None for none.
        """
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        self._build(self._root, target, keeps)

    def _build(self, directory: _Directory, target: Path, keeps: random.Random | None) -> None:
        names = dict(directory.synced)
        if keeps is not None:
            for name, node in directory.since[: keeps.randint(0, len(directory.since))]:
                if node is None:
                    names.pop(name, None)
                else:
                    names[name] = node
        for name, node in names.items():
            path = target / name
            if isinstance(node, _Directory):
                path.mkdir()
                self._build(node, path, keeps)
            else:
                path.write_bytes(b"" if node.synced is None else self._contents[node.synced])
