"""The files of a leaf in memory, as columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakebed.model.keys import OWN_FILE_PREFIX, split_label
from lakebed.state import file_table
from lakebed.state.tree.directory_order import DirectoryOrder
from lakebed.state.tree.sums import NAME_BYTES, Totals, checksum_of, hash_of, lanes_of

UNKNOWN = -1
MOST = 2**46  # of the rows or bytes of a file, so that the sum over a leaf stays a number of Arrow
# A name that 16 bytes and a schema number can be turned back into.
_OWN_NAME = re.compile(rf"{OWN_FILE_PREFIX}(?:([1-9][0-9]{{0,8}})-)?([0-9a-f]{{32}})")
OTHER_NAME = 0  # as schema number, of a file whose name has another form
# In the order of the table of `lakebed.state.facts`.
FACTS = pa.schema([("checksum", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Some files, grouped by directory.

    Attributes:
        directories: The directories, each of them once.
        counts: Number of files in each directory.
        names: The random 16 bytes of each file's name, or the hash of a name of another form.
        others: The names of another form, by position of the file.
        schemas: Schema number in the name of each file; `OTHER_NAME` for names of another form.
        since: The version that added each file.
        rows: Number of entities in each file, or `UNKNOWN`.
        sizes: Length of each file, or `UNKNOWN`.
        facts: Checksums and bounds of the files; None if they were not read.
    """

    directories: tuple[str, ...]
    counts: np.ndarray
    names: np.ndarray
    others: Mapping[int, str] = field(default_factory=dict)
    schemas: np.ndarray
    since: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray
    facts: pa.Table | None = None

    @property
    def count(self) -> int:
        """Number of the files."""
        return len(self.names)

    @property
    def homes(self) -> np.ndarray:
        """For each file the number of its directory."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def totals(self) -> Totals:
        """Return the totals of the files, computed from their names."""
        lanes = np.repeat(lanes_of(self.directories), self.counts, axis=0)
        low, high = checksum_of(lanes, self.names, self.schemas)
        is_known = self.rows != UNKNOWN
        return Totals(
            files=self.count,
            rows=int(self.rows[is_known].sum()),
            bytes=int(self.sizes[self.sizes != UNKNOWN].sum()),
            unknown=int(np.count_nonzero(~is_known | (self.sizes == UNKNOWN))),
            low=low,
            high=high,
        )

    def labels(self) -> list[str]:
        """Return the labels of the files."""
        digits = self.names.tobytes().hex()
        width = 2 * NAME_BYTES
        starts = range(0, len(digits), width)
        schemas = self.schemas.tolist()
        if not self.others and self.schemas.size and (self.schemas == schemas[0]).all():
            number = "" if schemas[0] == 1 else f"{schemas[0]}-"
            names = [f"{OWN_FILE_PREFIX}{number}{digits[at : at + width]}" for at in starts]
        else:
            names = [
                f"{OWN_FILE_PREFIX}{'' if schema == 1 else f'{schema}-'}{digits[at : at + width]}"
                for at, schema in zip(starts, schemas, strict=True)
            ]
            for place, name in self.others.items():
                names[place] = name
        labels, start = list[str](), 0
        for directory, count in zip(self.directories, self.counts.tolist(), strict=True):
            begin = f"{directory}/" if directory else ""
            labels += [begin + name for name in names[start : start + count]]
            start += count
        return labels

    def take(self, places: np.ndarray) -> Files:
        """Return some of the files.

        Args:
            places: Positions of the files, ascending.
        """
        counts = np.bincount(self.homes[places], minlength=len(self.counts))
        kept = np.flatnonzero(counts)
        others = {}
        if self.others:
            at = {place: new for new, place in enumerate(places.tolist())}
            others = {at[place]: name for place, name in self.others.items() if place in at}
        return Files(
            directories=tuple(self.directories[number] for number in kept.tolist()),
            counts=counts[kept],
            others=others,
            facts=None if self.facts is None else self.facts.take(pa.array(places)),
            **{name: getattr(self, name)[places] for name in _ARRAYS},
        )

    def within(self, holds: Callable[[str], bool]) -> Files:
        """Return the files in some directories.

        Args:
            holds: Function that returns whether the files of a directory are wanted.
        """
        return self.choose([holds(directory) for directory in self.directories])

    def choose(self, chosen: Sequence[bool]) -> Files:
        """Return the files in some directories, for each of which there is a boolean."""
        if all(chosen):
            return self
        return self.take(np.flatnonzero(np.repeat(np.array(chosen, bool), self.counts)))

    def without(self, places: np.ndarray) -> Files:
        """Return the files but those at some positions."""
        if not len(places):
            return self
        kept = np.ones(self.count, dtype=bool)
        kept[places] = False
        return self.take(np.flatnonzero(kept))

    def slice(self, start: int, end: int) -> Files:
        """Return the files from one position up to another."""
        return self.take(np.arange(start, min(end, self.count)))

    def find(self, labels: Iterable[str]) -> dict[str, int]:
        """Return the positions of those of some labels that are among the files."""
        starts = dict(
            zip(self.directories, (np.cumsum(self.counts) - self.counts).tolist(), strict=True)
        )
        ends = dict(zip(self.directories, np.cumsum(self.counts).tolist(), strict=True))
        keys = self.names.tobytes()
        found = {}
        for label in labels:
            directory, name = split_label(label)
            if directory not in starts:
                continue
            schema, raw = name_of(name)
            start, end = starts[directory], ends[directory]
            at = start * NAME_BYTES
            while (at := keys.find(raw, at, end * NAME_BYTES)) >= 0:
                place, rest = divmod(at, NAME_BYTES)
                if (
                    not rest
                    and self.schemas[place] == schema
                    and (schema != OTHER_NAME or self.others.get(place) == name)
                ):
                    found[label] = place
                    break
                at += 1
        return found


_ARRAYS = ("names", "schemas", "since", "rows", "sizes")


def name_of(name: str) -> tuple[int, bytes]:
    """Return the schema number and the 16 bytes of a file's name.

    >>> name_of("part-2-" + 32 * "0") == (2, bytes(16)), name_of("other")[0] == OTHER_NAME
    (True, True)
    """
    match = _OWN_NAME.fullmatch(name)
    # The first schema has no number in names, so `part-1-…` is a name of another form.
    if match is None or match[1] == "1":
        return OTHER_NAME, hash_of(name)
    return int(match[1] or 1), bytes.fromhex(match[2])


def files_of(
    labels: Sequence[str],
    order: DirectoryOrder,
    *,
    since: int | Sequence[int] = 0,
    rows: Sequence[int | None] | None = None,
    sizes: Sequence[int | None] | None = None,
    facts: pa.Table | None = None,
) -> Files:
    """Return files in the order of a leaf.

    Args:
        labels: Labels of the files, which are distinct.
        order: The order of the dataset.
        since: The version that added them, or that of each.
        rows: Number of entities in each; None for an unknown number.
        sizes: Length of each; None for an unknown one.
        facts: Their checksums and bounds, in the order of the labels.
    """
    places: dict[str, int] = {}
    homes = np.empty(len(labels), dtype=np.int64)
    names, schemas, others = [], np.empty(len(labels), dtype=np.int64), {}
    for position, label in enumerate(labels):
        directory, name = split_label(label)
        homes[position] = places.setdefault(directory, len(places))
        schemas[position], raw = name_of(name)
        if schemas[position] == OTHER_NAME:
            others[position] = name
        names.append(raw)
    return _sorted(
        list(places),
        homes,
        {
            "names": np.frombuffer(b"".join(names), np.uint8).reshape(-1, NAME_BYTES),
            "schemas": schemas,
            "since": np.broadcast_to(np.asarray(since, np.int64), (len(labels),)),
            "rows": _numbers(rows, len(labels)),
            "sizes": _numbers(sizes, len(labels)),
        },
        others,
        _no_facts(len(labels)) if facts is None else facts,
        order,
    )


def totals_of(
    labels: Sequence[str], rows: Sequence[int | None], sizes: Sequence[int | None]
) -> Totals:
    """Return the totals of some files, which need no order for that.

    Args:
        labels: Labels of the files, which are distinct.
        rows: Number of entities in each; None for an unknown number.
        sizes: Length of each; None for an unknown one.
    """
    pairs = [split_label(label) for label in labels]
    names = [name_of(name) for _, name in pairs]
    directories = dict.fromkeys(directory for directory, _ in pairs)
    numbers = {directory: number for number, directory in enumerate(directories)}
    homes = np.array([numbers[directory] for directory, _ in pairs], np.int64)
    raw = np.frombuffer(b"".join(raw for _, raw in names), np.uint8).reshape(-1, NAME_BYTES)
    schemas = np.array([schema for schema, _ in names], np.int64)
    low, high = checksum_of(lanes_of(tuple(numbers))[homes], raw, schemas)
    return Totals(
        files=len(labels),
        rows=sum(value for value in rows if value is not None),
        bytes=sum(value for value in sizes if value is not None),
        unknown=sum(None in pair for pair in zip(rows, sizes, strict=True)),
        low=low,
        high=high,
    )


def _numbers(values: Sequence[int | None] | None, count: int) -> np.ndarray:
    if values is None:
        return np.full(count, UNKNOWN, dtype=np.int64)
    return np.array([UNKNOWN if value is None else value for value in values], dtype=np.int64)


def _no_facts(count: int) -> pa.Table:
    return pa.table([pa.nulls(count, pa.string())], schema=FACTS)


def join(parts: Sequence[Files], order: DirectoryOrder) -> Files:
    """Return the files of several parts in the order of a leaf."""
    if len(parts) == 1:
        return parts[0]
    directories = list(dict.fromkeys(each for part in parts for each in part.directories))
    numbers = {directory: number for number, directory in enumerate(directories)}
    homes = [
        np.repeat(np.array([numbers[each] for each in part.directories], np.int64), part.counts)
        for part in parts
    ]
    others, start = {}, 0
    for part in parts:
        others.update({start + place: name for place, name in part.others.items()})
        start += part.count
    facts = None
    if all(part.facts is not None for part in parts):
        facts = file_table.joined([part.facts for part in parts])
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    return _sorted(directories, np.concatenate(homes), arrays, others, facts, order)


def _sorted(
    directories: Sequence[str],
    homes: np.ndarray,
    arrays: Mapping[str, np.ndarray],
    others: Mapping[int, str],
    facts: pa.Table | None,
    order: DirectoryOrder,
) -> Files:
    """Return files by directory, and within one by the version that added them."""
    ordered = sorted(range(len(directories)), key=lambda number: order(directories[number]))
    ranks = np.empty(len(directories), dtype=np.int64)
    ranks[ordered] = np.arange(len(directories))
    homes = ranks[homes]
    places = np.lexsort((arrays["since"], homes))
    back = {}
    if others:
        at = {place: new for new, place in enumerate(places.tolist())}
        back = {at[place]: name for place, name in others.items()}
    return Files(
        directories=tuple(directories[number] for number in ordered),
        counts=np.bincount(homes, minlength=len(directories)),
        others=back,
        facts=None if facts is None else facts.take(pa.array(places)),
        **{name: array[places] for name, array in arrays.items()},
    )
