"""Scopes of commits: the files that they replace, and the changes that conflict with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from lakebed.errors import CorruptMetadataError
from lakebed.model.evaluate import matches
from lakebed.model.keys import decode_path, partition_of_label
from lakebed.model.predicate import Predicate
from lakebed.model.schema import Type


class Scope(Protocol):
    """The files that a commit removes, and the partitions that no other commit may change meanwhile."""

    def covers(self, partition: str) -> bool:
        """Return whether a change of this partition since the base is a conflict."""
        ...

    def removes(self, label: str) -> bool:
        """Return whether the commit removes the file."""
        ...


class WholePartitions(ABC):
    """A scope that removes all files of the partitions that it covers."""

    __slots__ = ()

    @abstractmethod
    def covers(self, partition: str) -> bool:
        """Return whether the commit replaces the partition."""

    def removes(self, label: str) -> bool:
        """Return whether the file is in one of the partitions."""
        return self.covers(partition_of_label(label))


@dataclass(frozen=True, slots=True)
class Nothing(WholePartitions):
    """The scope of an append, which replaces nothing and conflicts with nothing."""

    def covers(self, partition: str) -> bool:  # noqa: ARG002 - see Scope
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class ThesePartitions(WholePartitions):
    """The partitions that new data touches."""

    partitions: frozenset[str]

    def covers(self, partition: str) -> bool:
        """Return whether the partition is one of them."""
        return partition in self.partitions


@dataclass(frozen=True, slots=True)
class TheseFiles:
    """Some files, which a delete or a rewrite removes.

    Attributes:
        labels: Labels of the files.
        partitions: The partitions of the files. A change of one of them since the base is a
            conflict: files that were added to it have not been examined.
    """

    labels: frozenset[str]
    partitions: frozenset[str]

    @classmethod
    def of(cls, labels: Iterable[str]) -> Self:
        """Return the scope of some files."""
        known = frozenset(labels)
        return cls(known, frozenset(partition_of_label(label) for label in known))

    def covers(self, partition: str) -> bool:
        """Return whether one of the files is in the partition."""
        return partition in self.partitions

    def removes(self, label: str) -> bool:
        """Return whether the file is one of them."""
        return label in self.labels


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """Some files, all of whose rows are written again, unchanged.

    Files that were added to their partitions meanwhile do not matter, so appends and rewrites never
    conflict. It is a conflict if one of the files is no longer live.

    Attributes:
        labels: Labels of the files.
    """

    labels: frozenset[str]

    def covers(self, partition: str) -> bool:  # noqa: ARG002 - see Scope
        """Return False."""
        return False

    def removes(self, label: str) -> bool:
        """Return whether the file is one of them."""
        return label in self.labels

    @property
    def needed(self) -> frozenset[str]:
        """The files that must still be live."""
        return self.labels

    def misses(self, label: str) -> bool:  # noqa: ARG002 - see PromotedFiles
        """Return whether a file that was added since the base should have been examined."""
        return False


@dataclass(frozen=True, slots=True)
class PromotedFiles(RewrittenFiles):
    """Files whose rows move to other partitions, from directories that may not get new files.

    Attributes:
        levels: Directories, such as `channel_dimension=OTHER`. A new file in one of them is a
            conflict.
        known: New files that are not a conflict, since they have been examined.
    """

    levels: frozenset[str]
    known: frozenset[str]

    def misses(self, label: str) -> bool:
        """Return whether a file that was added since the base should have been examined."""
        return label not in self.known and not self.levels.isdisjoint(label.split("/"))


@dataclass(frozen=True, slots=True)
class ReroutedFiles(RewrittenFiles):
    """Files whose rows move because dimensions have changed, after all files were examined.

    Attributes:
        known: Files that have been examined. Any other new file is a conflict.
    """

    known: frozenset[str]

    def misses(self, label: str) -> bool:
        """Return whether a file that was added since the base should have been examined."""
        return label not in self.known


@dataclass(frozen=True, slots=True)
class MergedFiles(RewrittenFiles):
    """Files that a merge removes, and the files that it has examined.

    A file that was added meanwhile must have been examined if it may hold one of the keys;
    otherwise a row that exists by now would be inserted again.

    Attributes:
        matched: Files that hold a matching row and stay unchanged. They must still be live;
            otherwise the matching row may be gone.
        partitions: The partitions that keys of the data may be in.
        known: New files that have been examined.
    """

    matched: frozenset[str]
    partitions: Unchanged
    known: frozenset[str]

    @property
    def needed(self) -> frozenset[str]:
        """The files that must still be live."""
        return self.labels | self.matched

    def misses(self, label: str) -> bool:
        """Return whether a file that was added since the base should have been examined."""
        return label not in self.known and self.partitions.covers(partition_of_label(label))


@dataclass(frozen=True, slots=True)
class RunFiles:
    """All files that hold rows of a named run.

    They are only known when the commit is tried: files that a compaction rewrote meanwhile belong
    to the run, too. So no change of a partition is a conflict, but every other write of the same
    run is.

    Attributes:
        run: Name of the run.
        labels: Labels of the files, once they are known.
        replaces: Whether the files are removed. Otherwise they stay, and the scope only excludes
            other writes of the run meanwhile.
        partitions: Partitions that are replaced as a whole as well, with the rows of any run; None
            for those that the new rows touch, until these are known.
        replaces_all: Whether rows of the run may go that the new rows do not stand for; see
            `lakebed.state.rerun_guard`.
    """

    run: str
    labels: frozenset[str] = frozenset()
    replaces: bool = True
    partitions: frozenset[str] | None = frozenset()
    replaces_all: bool = True

    def covers(self, partition: str) -> bool:
        """Return whether the partition is replaced as a whole."""
        return self.partitions is not None and partition in self.partitions

    def removes(self, label: str) -> bool:
        """Return whether the file holds rows of the run, or is in a partition that is replaced."""
        return label in self.labels or (
            bool(self.partitions) and self.covers(partition_of_label(label))
        )


@dataclass(frozen=True, slots=True)
class WholeView(WholePartitions):
    """Every partition of a view, including those that do not exist yet.

    Attributes:
        predicate: Predicate on partition fields alone.
        types: Partition fields without the batch level.
    """

    predicate: Predicate
    types: Mapping[str, Type]
    _known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def covers(self, partition: str) -> bool:
        """Return whether the view holds the partition, or may hold rows that it had.

        Partitions of a time when directories had other levels may have held any rows.
        """
        try:
            return self.holds(partition)
        except CorruptMetadataError:
            return True

    def holds(self, partition: str) -> bool:
        """Return whether the view holds a live partition.

        Raises:
            CorruptMetadataError: The partition has other levels than the view.
        """
        if partition not in self._known:
            values = decode_path(partition, self.types)
            self._known[partition] = matches(self.predicate, values)
        return self._known[partition]

    def removes(self, label: str) -> bool:
        """Return whether the file is in one of the partitions.

        Raises:
            CorruptMetadataError: Its partition has other levels than the view.
        """
        return self.holds(partition_of_label(label))


@dataclass(frozen=True, slots=True)
class Unchanged(WholeView):
    """The partitions of a view that no other commit may change, although none of their files is removed."""

    def removes(self, label: str) -> bool:  # noqa: ARG002 - see Scope
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class Several:
    """Scopes of a commit that does several things; each conflicts by its own rules.

    Attributes:
        parts: The scopes; none of them is a `Several` itself.
    """

    parts: tuple[Scope, ...]

    def covers(self, partition: str) -> bool:
        """Return whether one of the scopes does."""
        return any(part.covers(partition) for part in self.parts)

    def removes(self, label: str) -> bool:
        """Return whether one of the scopes does."""
        return any(part.removes(label) for part in self.parts)
