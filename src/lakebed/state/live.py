"""The live files of a state, as callers ask for them."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakebed.model.keys import partition_of_label
from lakebed.state.scope import Nothing, Scope


class Live(Protocol):
    """The live files of a state."""

    @property
    def is_tree(self) -> bool:
        """True if leaves list the files, and not the head itself."""

    @property
    def count(self) -> int:
        """Number of the files."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all files, in the order of the state."""

    @property
    def digest(self) -> str:
        """A digest of all files."""

    @property
    def memory_bytes(self) -> int:
        """Approximate size in memory."""

    def pieces(self) -> Iterator[Sequence[str]]:
        """Yield the labels of all files piece by piece, in the order of the state."""

    def of(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Return the labels of the files in some partitions, in the order of the state."""

    def holding(self, labels: Collection[str]) -> frozenset[str]:
        """Return those of some labels whose files are live."""

    def removed_by(self, scope: Scope) -> tuple[str, ...]:
        """Return the labels of the files that a commit of a scope removes, in the order of the state."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The live files of a state that lists them all.

    Attributes:
        labels: Labels of the files.

    >>> live = Listed(("p=a/batch_id=1/x", "p=b/batch_id=1/y"))
    >>> live.count, live.of({"p=b"}), live.holding(["p=a/batch_id=1/x", "p=c/batch_id=1/z"])
    (2, ('p=b/batch_id=1/y',), frozenset({'p=a/batch_id=1/x'}))
    """

    labels: tuple[str, ...]

    @property
    def is_tree(self) -> bool:
        """False: the head lists them."""
        return False

    @property
    def count(self) -> int:
        """Number of the files."""
        return len(self.labels)

    @property
    def digest(self) -> str:
        """A digest of the labels in their order."""
        return digest_of(self.labels)

    @property
    def memory_bytes(self) -> int:
        """Approximate size in memory; a state refers to each label twice."""
        return sum(map(len, self.labels)) + 65 * len(self.labels)

    def pieces(self) -> Iterator[Sequence[str]]:
        """Yield the labels of all files, in one piece."""
        if self.labels:
            yield self.labels

    def of(self, partitions: Collection[str]) -> tuple[str, ...]:
        """Return the labels of the files in some partitions."""
        return tuple(label for label in self.labels if partition_of_label(label) in partitions)

    def holding(self, labels: Collection[str]) -> frozenset[str]:
        """Return those of some labels whose files are live."""
        wanted = labels if isinstance(labels, frozenset) else frozenset(labels)
        return frozenset(filter(wanted.__contains__, self.labels)) if wanted else wanted

    def removed_by(self, scope: Scope) -> tuple[str, ...]:
        """Return the labels of the files that a commit of a scope removes."""
        # An append need not iterate over a million files.
        is_append = isinstance(scope, Nothing)
        return () if is_append else tuple(filter(scope.removes, self.labels))


def digest_of(labels: tuple[str, ...]) -> str:
    """Return a digest of the labels in their order."""
    return hashlib.blake2b("\n".join(labels).encode(), digest_size=16).hexdigest()
