"""The lists of segments that a head names, and how a commit edits them. No I/O.

What grows with every commit is not in the head but in segments, and the head names them: the
history, the file table, which raw files were read in, which run wrote what, and the postings of
each indexed column. How the segments of a list are written is said in
`lakebed.state.committing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from lakebed.store.segments import Segment

Segments = tuple[Segment, ...]

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
    """What a commit changes in one list of segments, whatever the list is by then.

    A segment that is removed is taken out wherever it stands, and is not missed where it does not;
    what is added comes to the end, since nothing is known of what came in between. So edits of
    several commits never hinder each other. Two conditions make an edit do nothing instead:

    - `is_in_place`: the list does not begin with what is removed any more. Where it does, what is
      added takes that place. So a merged segment stands for the same as those that it was made of,
      in the same order, and a list that others have merged meanwhile stays as it is.
    - `is_for_base`: the commit is made on a later version than its base. So facts that nobody
      needed at the base stay, if a commit since has brought their files back.

    The list of a column that is not indexed when the commit is made is left out, whatever is added
    to it.

    Attributes:
        name: Of the list: `HISTORY`, `FILES`, `SOURCES`, `RUNS`, or what `postings_of` gives.
        removed: In the order of the list.
        added: Oldest first.
        is_in_place: Whether `removed` must be the begin of the list, and `added` takes its place.
        is_for_base: Whether it is right for the base alone.

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
        """Return what the edit makes of a list."""
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
        history: What each commit did.
        files: The file table: facts of the data files.
        sources: Which raw files were read in.
        runs: Which run wrote what.
        postings: The inverted indices, by column; none of them is empty.
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
        """Return the list of a name; empty where there is none."""
        return dict(self.items()).get(name, ())

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of all segments."""
        return tuple(segment.key for _, segments in self.items() for segment in segments)

    def additions(self) -> tuple[Edit, ...]:
        """Return the edits that add all of it to other lists."""
        return tuple(Edit(name=name, added=segments) for name, segments in self.items() if segments)

    def edited(self, edits: Iterable[Edit], columns: Iterable[str], *, is_base: bool) -> Lists:
        """Return the lists after a commit.

        Args:
            edits: That it makes, in this order.
            columns: That are indexed when it is made; the lists of others are left out.
            is_base: Whether it is made on its base.
        """
        lists = dict(self.items())
        for edit in edits:
            if is_base or not edit.is_for_base:
                lists[edit.name] = edit.of(lists.get(edit.name, ()))
        kept = (*(name for name in lists if column_of(name) is None), *map(postings_of, columns))
        return Lists.by_name({name: lists.get(name, ()) for name in kept})
