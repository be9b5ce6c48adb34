"""The references of a root to its leaves, each of which is decoded when it is asked for.

A root of ten million files has some six hundred references. Each commit needs the totals of all of
them, and little else: a plan of a day needs about eighty in full. So only the first fields are
decoded of each reference, and a commit writes the others as they were read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Annotated, overload

import msgspec

from lakebed.common.decoding import from_msgpack
from lakebed.errors import CorruptMetadataError
from lakebed.model.layout import Folder, segment_key
from lakebed.state.tree.leaf import HASH_BYTES
from lakebed.state.tree.sums import Totals, added_up

ID_BYTES = 16
_MOST_LEVELS = 62  # more than any number of files can reach
Id = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
_Level = Annotated[int, msgspec.Meta(ge=0, le=_MOST_LEVELS)]
_Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A leaf, as the root refers to it.

    Attributes:
        id: Its random id.
        level: Level of its run.
        run: Number of its run, whose leaves hold ranges that follow each other.
        totals: Totals of all its files, gone ones included.
        first: The first directory in it.
        last: The last directory in it.
        low: The lowest level of each partition field, such as `dt=2013-01-01`; empty if unknown.
        high: The highest level of each partition field; empty if unknown.
        nulls: Number of files without a value, of each partition field.
        lengths: Lengths of the sections.
        hashes: Hashes of the sections.
        since: The newest version that added one of its files.
    """

    id: Id
    level: _Level
    run: Count
    totals: Totals
    first: str
    last: str
    low: tuple[str, ...]
    high: tuple[str, ...]
    nulls: tuple[Count, ...]
    lengths: tuple[Count, Count, Count]
    hashes: tuple[_Hash, _Hash, _Hash]
    since: Count

    @property
    def files(self) -> int:
        """Number of files in the leaf, gone ones included."""
        return self.totals.files

    def key(self, dataset: str) -> str:
        """Return the key of the leaf."""
        return self.key_in(Folder.LEAVES.of(dataset))

    def key_in(self, folder: str) -> str:
        """Return the key of the leaf in the folder of all leaves."""
        return segment_key(folder, self.files, self.id.hex())


class RefStart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The first fields of a reference, which are decoded of every leaf; see `Ref`."""

    id: Id
    level: _Level
    run: Count
    totals: Totals


class Refs(Sequence[Ref]):
    """The leaves of a root, in its order."""

    def __init__(
        self,
        starts: Sequence[RefStart | Ref],
        refs: Iterable[msgspec.Raw | Ref],
        key: str = "",
    ) -> None:
        """Take references that need not be decoded.

        Args:
            starts: The first fields of each.
            refs: The references, as they are stored or decoded.
            key: Key of the head, for errors.
        """
        self._starts = starts
        self._refs = list(refs)  # those that were asked for are replaced by the decoded ones
        self._key = key

    @classmethod
    def of(cls, refs: Iterable[Ref]) -> Refs:
        """Return some references as this collection; the same object if they are one."""
        if isinstance(refs, Refs):
            return refs
        known = tuple(refs)
        return cls(known, known)

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> Ref: ...

    @overload
    def __getitem__(self, place: slice) -> Refs: ...

    def __getitem__(self, place: int | slice) -> Ref | Refs:
        """Return a reference, or some that follow each other.

        Raises:
            CorruptMetadataError: It is malformed.
        """
        if isinstance(place, slice):
            return Refs(self._starts[place], self._refs[place], self._key)
        ref = self._refs[place]
        if isinstance(ref, msgspec.Raw):
            ref = self._refs[place] = decode_ref(ref, self._key)
        return ref

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refs | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Refs: {len(self)} leaves>"

    def __reduce__(self) -> tuple[Callable[[Iterable[Ref]], Refs], tuple[tuple[Ref, ...]]]:
        return Refs.of, (tuple(self),)

    @property
    def stored(self) -> list[msgspec.Raw | Ref]:
        """The references to encode, of which most were never decoded."""
        return self._refs

    @property
    def file_count(self) -> int:
        """Number of files in all leaves, gone ones included."""
        return sum(start.totals.files for start in self._starts)

    @cached_property
    def totals(self) -> Totals:
        """The totals of all leaves, gone files included."""
        return added_up([start.totals for start in self._starts])

    @cached_property
    def files(self) -> dict[bytes, Totals]:
        """The totals of each leaf by its id."""
        return {start.id: start.totals for start in self._starts}

    def runs(self) -> list[Refs]:
        """Return the leaves of each run, in the order of the root."""
        starts = self._starts
        edges = [
            place
            for place in range(len(starts) + 1)
            if place in (0, len(starts)) or starts[place].run != starts[place - 1].run
        ]
        return [self[begin:end] for begin, end in itertools.pairwise(edges)]

    def changed(self, added: Iterable[Ref] = (), *, without: Collection[bytes] = ()) -> Refs:
        """Return the leaves without some, which are named by id, and with others at the end."""
        new = tuple(added)
        if not new and not without:
            return self
        kept = [place for place, one in enumerate(self._starts) if one.id not in without]
        return Refs(
            (*(self._starts[place] for place in kept), *new),
            (*(self._refs[place] for place in kept), *new),
            self._key,
        )


def decode_ref(raw: msgspec.Raw, key: str) -> Ref:
    """Return a reference from its bytes.

    Raises:
        CorruptMetadataError: It is malformed.
    """
    try:
        ref = from_msgpack(raw, Ref)
        if not len(ref.low) == len(ref.high) == len(ref.nulls):
            raise ValueError("a range is incomplete")
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as exc:
        raise unreadable_root(key, exc) from exc
    return ref


def unreadable_root(key: str, cause: object) -> CorruptMetadataError:
    """Return the error for a head whose root cannot be read."""
    return CorruptMetadataError(
        f"Head {key!r} cannot be read: {cause}, in tree.",
        hint="Restore the object from a copy: each fold leaves one in the folder roots.",
    )
