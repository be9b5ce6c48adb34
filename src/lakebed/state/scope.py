"""What a commit replaces, and so what it conflicts with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from lakebed.model.evaluate import matches
from lakebed.model.keys import decode_path, partition_of_label
from lakebed.model.predicate import Predicate
from lakebed.model.schema import Type


class Scope(Protocol):
    """Says which files a commit takes out, and in which partitions another one may not interfere."""

    def covers(self, partition: str) -> bool:
        """Whether a change of this partition since the base is a conflict."""
        ...

    def removes(self, label: str) -> bool:
        """Whether the commit takes out the file."""
        ...


class WholePartitions(ABC):
    """A scope that takes out all files of the partitions that it covers."""

    __slots__ = ()

    @abstractmethod
    def covers(self, partition: str) -> bool:
        """Whether the commit replaces the partition."""

    def removes(self, label: str) -> bool:
        """Whether the file is in one of the partitions."""
        return self.covers(partition_of_label(label))


@dataclass(frozen=True, slots=True)
class Nothing(WholePartitions):
    """An append replaces nothing and conflicts with nothing."""

    def covers(self, partition: str) -> bool:  # noqa: ARG002 - see Scope
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class ThesePartitions(WholePartitions):
    """The partitions that new data touches."""

    partitions: frozenset[str]

    def covers(self, partition: str) -> bool:
        """Whether the partition is one of them."""
        return partition in self.partitions


@dataclass(frozen=True, slots=True)
class TheseFiles:
    """Some files of some partitions, which a delete or a rewriting takes out.

    Attributes:
        labels: The files.
        partitions: The partitions that they are of. A change of one of them since the base is a
            conflict: what was added to it has not been looked at.
    """

    labels: frozenset[str]
    partitions: frozenset[str]

    @classmethod
    def of(cls, labels: Iterable[str]) -> Self:
        """Return the scope of some files."""
        known = frozenset(labels)
        return cls(known, frozenset(partition_of_label(label) for label in known))

    def covers(self, partition: str) -> bool:
        """Whether it takes a file out of the partition."""
        return partition in self.partitions

    def removes(self, label: str) -> bool:
        """Whether the file is one of them."""
        return label in self.labels


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """Some files whose rows are written anew, all of them and as they were.

    What was added to their partitions meanwhile does not matter, and so appends and rewriting
    never hinder each other. It is a conflict if one of the files is no longer live.

    Attributes:
        labels: The files.
    """

    labels: frozenset[str]

    def covers(self, partition: str) -> bool:  # noqa: ARG002 - see Scope
        """Return False."""
        return False

    def removes(self, label: str) -> bool:
        """Whether the file is one of them."""
        return label in self.labels

    @property
    def needed(self) -> frozenset[str]:
        """The files that must still be live."""
        return self.labels

    def misses(self, label: str) -> bool:  # noqa: ARG002 - see PromotedFiles
        """Whether a file that was added since the base should have been looked at."""
        return False


@dataclass(frozen=True, slots=True)
class PromotedFiles(RewrittenFiles):
    """Files whose rows move to other partitions, out of some that nothing else may be added to.

    Attributes:
        levels: Directories, such as `channel_dimension=OTHER`. A new file in one of them is a
            conflict.
        known: New files that are none, since they have been looked at.
    """

    levels: frozenset[str]
    known: frozenset[str]

    def misses(self, label: str) -> bool:
        """Whether a file that was added since the base should have been looked at."""
        return label not in self.known and not self.levels.isdisjoint(label.split("/"))


@dataclass(frozen=True, slots=True)
class ReroutedFiles(RewrittenFiles):
    """Files whose rows move since dimensions have changed, out of all that there are.

    Attributes:
        known: Files that have been looked at. Any other new one is a conflict.
    """

    known: frozenset[str]

    def misses(self, label: str) -> bool:
        """Whether a file that was added since the base should have been looked at."""
        return label not in self.known


@dataclass(frozen=True, slots=True)
class MergedFiles(RewrittenFiles):
    """Files that a merge takes out, and what it has found beside them.

    What has been added meanwhile must have been looked at, where it may hold one of the keys: else
    a row that is there by now would be inserted once more.

    Attributes:
        matched: Files that hold a row that matches, and stay as they are. They must still be
            live: else the row that matched may not be there.
        partitions: Where keys of the data may be.
        known: New files that have been looked at.
    """

    matched: frozenset[str]
    partitions: Unchanged
    known: frozenset[str]

    @property
    def needed(self) -> frozenset[str]:
        """The files that must still be live."""
        return self.labels | self.matched

    def misses(self, label: str) -> bool:
        """Whether a file that was added since the base should have been looked at."""
        return label not in self.known and self.partitions.covers(partition_of_label(label))


@dataclass(frozen=True, slots=True)
class RunFiles:
    """All that a named run wrote, wherever it lies by now.

    It is known when the commit is tried, not before: what a compaction wrote anew meanwhile is of
    the run too. So no change of a partition is a conflict, but every writing of the same run is.

    Attributes:
        run: Its name.
        labels: The files, once they are known.
        replaces: Whether the files are taken out. Else they stay, and only nobody may write of
            the run meanwhile.
        partitions: Partitions that are replaced as a whole, too, whoever wrote them; None for those
            that the new rows touch, until these are known.
    """

    run: str
    labels: frozenset[str] = frozenset()
    replaces: bool = True
    partitions: frozenset[str] | None = frozenset()

    def covers(self, partition: str) -> bool:
        """Whether the partition is replaced as a whole."""
        return self.partitions is not None and partition in self.partitions

    def removes(self, label: str) -> bool:
        """Whether the file holds rows of the run, or is in a partition that is replaced."""
        return label in self.labels or (
            bool(self.partitions) and self.covers(partition_of_label(label))
        )


@dataclass(frozen=True, slots=True)
class WholeView(WholePartitions):
    """Every partition that a view holds, also those that do not exist yet.

    Attributes:
        predicate: On partition fields alone.
        types: Partition fields without the batch level.
    """

    predicate: Predicate
    types: Mapping[str, Type]
    _known: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    def covers(self, partition: str) -> bool:
        """Whether the view holds the partition."""
        if partition not in self._known:
            values = decode_path(partition, self.types)
            self._known[partition] = matches(self.predicate, values)
        return self._known[partition]


@dataclass(frozen=True, slots=True)
class Unchanged(WholeView):
    """The partitions of a view that nobody else may touch, though nothing is taken out of them."""

    def removes(self, label: str) -> bool:  # noqa: ARG002 - see Scope
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class Several:
    """Scopes of a commit that does several things; each conflicts by its own rules.

    Attributes:
        parts: None of which is of several.
    """

    parts: tuple[Scope, ...]

    def covers(self, partition: str) -> bool:
        """Whether one of them does."""
        return any(part.covers(partition) for part in self.parts)

    def removes(self, label: str) -> bool:
        """Whether one of them does."""
        return any(part.removes(label) for part in self.parts)
