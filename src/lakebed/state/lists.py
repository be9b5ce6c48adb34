"""The lists of segments that a head names, and how a commit edits them. No I/O.

Data that grows with every commit is kept in segments, and the head only names them: the history,
the file table, the raw files that were read in, the runs, and the postings of each indexed column.
`lakebed.state.committing` writes the segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from lakebed.store.segments import Segment

# A tuple; or for the files of a tree a sequence that makes each segment when it is asked for.
Segments = Sequence[Segment]

HISTORY, FILES, SOURCES, RUNS = "history", "files", "sources", "runs"
_POSTINGS = "postings of "


def postings_of(column: str) -> str:
    """Return the name of the list of an indexed column."""
    return _POSTINGS + column


def column_of(name: str) -> str | None:
    """Return the column whose postings a list holds; None if it holds something else."""
    return name.removeprefix(_POSTINGS) if name.startswith(_POSTINGS) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The edit of one list of segments by a commit; it applies to any later state of the list.

    A removed segment is taken out at any position, and may be absent. Added segments go to the end,
    since other commits may have added some in between. So edits of several commits never conflict.
    An edit has no effect in two cases:

    - With `is_in_place`, if the list no longer begins with the removed segments. If it does, the
      added segments replace them at the same position. So a merged segment stands for its parts in
      the same order, and a list that another commit merged meanwhile stays unchanged.
    - With `is_for_base`, if the commit is made on a later version than its base. So facts that were
      not needed at the base stay, if a commit since has brought their files back.

    If a column is not indexed when the commit is made, its list is left out, even if the edit adds
    to it.

    Attributes:
        name: Name of the list: `HISTORY`, `FILES`, `SOURCES`, `RUNS`, or a result of `postings_of`.
        removed: Segments to remove, in the order of the list.
        added: Segments to add, oldest first.
        is_in_place: Whether `removed` must be the start of the list, to be replaced by `added`.
        is_for_base: Whether the edit is valid on the base version only.

    >>> old, new = Segment("d/files/1-a.parquet", 1), Segment("d/files/1-b.parquet", 1)
    >>> Edit(name=FILES, removed=(old,)).of((old, new)) == (new,)
    True
    """

    name: str
    removed: Segments = ()
    added: Segments = ()
    is_in_place: bool = False
    is_for_base: bool = False

    def of(self, segments: Segments) -> Segments:
        """Return a list after the edit."""
        count = len(self.removed)
        if self.is_in_place:
            is_there = segments[:count] == self.removed
            return (*self.added, *segments[count:]) if is_there else segments
        removed = frozenset(self.removed)
        return (*(segment for segment in segments if segment not in removed), *self.added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """Segments by list, oldest first.

    Attributes:
        history: One entry for each commit.
        files: The file table: facts of the data files.
        sources: The raw files that were read in.
        runs: The batches and rewritten files of each run.
        postings: The inverted indices by column, without empty ones.
    """

    history: Segments = ()
    files: Segments = ()
    sources: Segments = ()
    runs: Segments = ()
    postings: Mapping[str, Segments] = field(default_factory=dict)

    @classmethod
    def by_name(cls, lists: Mapping[str, Segments]) -> Self:
        """Return the lists of these names, as `items` yields them."""
        columns = {column_of(name): segments for name, segments in lists.items() if segments}
        return cls(
            history=lists.get(HISTORY, ()),
            files=lists.get(FILES, ()),
            sources=lists.get(SOURCES, ()),
            runs=lists.get(RUNS, ()),
            postings={
                column: segments for column, segments in columns.items() if column is not None
            },
        )

    def items(self) -> Iterator[tuple[str, Segments]]:
        """Yield each list with its name, in the order in which a commit merges them."""
        yield HISTORY, self.history
        yield FILES, self.files
        yield SOURCES, self.sources
        yield RUNS, self.runs
        for column, segments in self.postings.items():
            yield postings_of(column), segments

    def __getitem__(self, name: str) -> Segments:
        """Return the list of a name; empty if there is none."""
        return dict(self.items()).get(name, ())

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all segments that are objects."""
        return tuple(
            segment.key for _, segments in self.items() for segment in segments if segment.key
        )

    def additions(self) -> tuple[Edit, ...]:
        """Return the edits that add all segments to other lists."""
        return tuple(Edit(name=name, added=segments) for name, segments in self.items() if segments)

    def edited(self, edits: Iterable[Edit], columns: Iterable[str], *, is_base: bool) -> Lists:
        """Return the lists after a commit.

        Args:
            edits: The edits of the commit, in order.
            columns: The indexed columns at the commit; the lists of others are left out.
            is_base: Whether the commit is made on its base version.
        """
        lists = dict(self.items())
        for edit in edits:
            if is_base or not edit.is_for_base:
                lists[edit.name] = edit.of(lists.get(edit.name, ()))
        kept = (*(name for name in lists if column_of(name) is None), *map(postings_of, columns))
        return Lists.by_name({name: lists.get(name, ()) for name in kept})
