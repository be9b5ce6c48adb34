"""A tree of numbered files in memory: what HDFS promises, and nothing more."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from lakebed.errors import InvalidNameError, ObjectNotFoundError
from lakebed.store.numbered import Moved, NumberedStore, Tree, TreeEntry


@dataclass(slots=True)
class Node:
    number: int
    data: bytes | None = None  # None for a directory
    children: dict[str, Node] = field(default_factory=dict)
    modified_at: datetime = field(default_factory=lambda: datetime.now(UTC))


def _nothing(operation: str, path: str) -> None:
    """Let a step be taken at once."""


class MemoryTree(Tree):
    """Every call is one step, under a lock.

    Attributes:
        before: Called before each step, with what is to be done and its path.
    """

    def __init__(self) -> None:
        self.before: Callable[[str, str], None] = _nothing
        self._lock = threading.RLock()
        self._numbers = itertools.count(100)
        self._root = Node(next(self._numbers))

    def paths(self) -> list[str]:
        """Return the paths of all files, hidden ones included."""

        def walk(node: Node, path: str) -> Iterator[str]:
            for name, child in sorted(node.children.items()):
                if child.data is not None:
                    yield path + name
                yield from walk(child, f"{path}{name}/")

        return list(walk(self._root, ""))

    def _node(self, path: str) -> Node | None:
        node = self._root
        for name in filter(None, path.split("/")):
            if name not in node.children:
                return None
            node = node.children[name]
        return node

    def _parent(self, path: str) -> tuple[Node | None, str]:
        directory, _, name = path.rpartition("/")
        return self._node(directory), name

    def _entry(self, name: str, node: Node) -> TreeEntry:
        return TreeEntry(
            name=name,
            number=node.number,
            is_directory=node.data is None,
            size_bytes=len(node.data or b""),
            modified_at=node.modified_at,
            entry_count=len(node.children),
        )

    def find(self, path: str) -> TreeEntry | None:
        self.before("find", path)
        with self._lock:
            node = self._node(path)
            return None if node is None else self._entry(path.rpartition("/")[2], node)

    def entries(self, path: str) -> list[TreeEntry]:
        self.before("entries", path)
        with self._lock:
            node = self._node(path)
            return [] if node is None else [self._entry(*item) for item in node.children.items()]

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.before("read", path)
        with self._lock:
            node = self._node(path)
            if node is None or node.data is None:
                raise ObjectNotFoundError(f"No object {path!r}.")
            return node.data[start : None if length is None else start + length]

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        self.before("write", path)
        data = b"".join(pieces)
        with self._lock:
            parent = self._directories(path.rpartition("/")[0])
            name = path.rpartition("/")[2]
            assert name not in parent.children, path
            parent.children[name] = Node(next(self._numbers), data)
            parent.modified_at = datetime.now(UTC)

    def make_directory(self, path: str) -> None:
        self.before("make_directory", path)
        with self._lock:
            self._directories(path)

    def _directories(self, path: str) -> Node:
        node = self._root
        for name in filter(None, path.split("/")):
            if name not in node.children:
                node.children[name] = Node(next(self._numbers))
                node.modified_at = datetime.now(UTC)
            node = node.children[name]
            if node.data is not None:
                raise InvalidNameError(f"{name!r} of {path!r} is a file.")
        return node

    def move(self, source: str, target: str) -> Moved:
        self.before("move", source)
        return self._move(source, target, is_over=False)

    def move_over(self, source: str, target: str) -> Moved:
        self.before("move_over", source)
        return self._move(source, target, is_over=True)

    def _move(self, source: str, target: str, *, is_over: bool) -> Moved:
        with self._lock:
            (parent, name), (to, new_name) = self._parent(source), self._parent(target)
            if parent is None or name not in parent.children:
                return Moved.MISSING
            if to is None or to.data is not None:
                return Moved.MISSING
            there = to.children.get(new_name)
            if there is not None and (not is_over or there.data is None):
                return Moved.TAKEN
            to.children[new_name] = parent.children.pop(name)
            parent.modified_at = to.modified_at = datetime.now(UTC)
            return Moved.DONE

    def remove(self, path: str, *, recursive: bool = False) -> bool:
        self.before("remove", path)
        with self._lock:
            parent, name = self._parent(path)
            if parent is None or name not in parent.children:
                return False
            if parent.children[name].children and not recursive:
                return False
            del parent.children[name]
            parent.modified_at = datetime.now(UTC)
            return True


_trees: dict[str, MemoryTree] = {}


class MemoryTreeStore(NumberedStore):
    """A store over a tree of this process."""

    def __init__(self, name: str) -> None:
        self.uri = f"tree://{name}"
        self.tree = self.memory = _trees.setdefault(name, MemoryTree())

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return type(self), (self.uri.partition("://")[2],)
