"""Index lookups: find the files with a value, one of many values, a value in a range, or null.

Order and equality are those of predicates: NaN equals itself and is greater than every other
number, negative zero is zero, and null matches no comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pat

from lakebed.errors import CorruptMetadataError
from lakebed.index.covered_files import BUCKETS, bucket_of, counts_of, sums_of
from lakebed.index.segment import (
    Footer,
    file_ids_at,
    file_ids_in,
    has_specials,
    homes_at,
    open_segment,
    read_groups,
    with_directory,
)
from lakebed.model.arrow_types import type_to_arrow
from lakebed.model.predicate import Comparison, Leaf, Like, Membership, NullCheck, Op
from lakebed.model.schema import Type
from lakebed.model.values import Scalar, is_nan
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.segments import Segment

# Limit for row groups in memory, all segments together: more would take longer than it saves.
MAX_LOOKUP_BYTES = 256 * 2**20
# Limit for the part of a segment in memory. A range, or a list of very many values, begins with a
# small one: if its values are scattered, all files are soon found, and the rest need not be read.
_PORTION_BYTES = 32 * 2**20
_FIRST_BYTES = 2**20
# Beyond so many files that may match, the leaves are read one after the other.
MOST_HOMES = 10_000
_MANY = 4  # values of a list for each file of a segment, in its first portion
_THREADS = 8
# The ids of the covered files in so few buckets are read, rather than compared by their sums.
_FEW_BUCKETS = 8

OnDamage = Callable[[Segment, CorruptMetadataError], None]
_A = TypeVar("_A")
_B = TypeVar("_B")


@dataclass(frozen=True)
class LiveIds:
    """The ids of the live files that a lookup is made for.

    Attributes:
        candidates: Ids of the files that may be dropped, ascending.
        all_ids: Function that returns the ids of all live files, ascending. It is called only if
            there are too many candidates to read the ids that a segment covers.
    """

    candidates: np.ndarray
    all_ids: Callable[[], np.ndarray]

    @cached_property
    def sums(self) -> np.ndarray:
        """The checksums of all live files."""
        return sums_of(self.all_ids())

    @cached_property
    def buckets(self) -> np.ndarray:
        """The buckets that have a candidate, ascending."""
        return np.flatnonzero(counts_of(self.candidates))

    def outside(self, buckets: np.ndarray) -> np.ndarray:
        """Return the candidates that are not in some buckets, ascending."""
        is_outside = np.ones(BUCKETS, dtype=bool)
        is_outside[buckets] = False
        chosen: np.ndarray = self.candidates[is_outside[bucket_of(self.candidates)]]
        return chosen


def unproven_buckets(parts: Iterable[np.ndarray], live: LiveIds) -> np.ndarray:
    """Return the buckets of candidates in which the covered files may differ from the live ones.

    Args:
        parts: The checksums of the covered files of each segment.
        live: The live files.
    """
    total = np.zeros((BUCKETS, 2), dtype=np.uint64)
    for part in parts:
        total += part
    differs = (total != live.sums).any(axis=1)
    unproven: np.ndarray = live.buckets[differs[live.buckets]]
    return unproven


@dataclass(frozen=True, slots=True)
class Lookup:
    """The result of an index lookup.

    Attributes:
        covered: Ids of the files whose values the index knows completely, ascending; the result
            does not apply to other files. For a lookup that names live files, those among the
            candidates, and perhaps others.
        found: Ids of the covered files with a value that meets the condition, ascending.
        requests: Number of requests to the store.
        refused: Number of segments that were not read, because too many values could match.
        is_complete: True if all candidates are known to be covered.
    """

    covered: np.ndarray
    found: np.ndarray
    requests: int
    refused: int = 0
    is_complete: bool = False


_NO_FILES = np.zeros(0, dtype=np.int64)


def lookup(
    store: Store,
    segments: Sequence[Segment],
    leaf: Leaf | Sequence[Leaf],
    kind: Type,
    *,
    live: LiveIds | None = None,
    max_bytes: int = MAX_LOOKUP_BYTES,
    on_damage: OnDamage | None = None,
) -> Lookup:
    """Find the files with a value that meets a condition, or all of several conditions.

    A file that is covered but not found has no such value, so it need not be read.

    Args:
        store: The store that holds the index.
        segments: All segments of one column.
        leaf: A condition on that column, bound to `kind`, or several that one value must meet.
        kind: The current type of the column; segments may have an earlier, narrower one.
        live: The live files; None for all files that the segments cover, whose ids are then read.
        max_bytes: Limit for the row groups that can match, in memory. If all segments together
            exceed it, those with the fewest such bytes are read.
        on_damage: Receives each segment that is missing or damaged, and its error; the segment is
            then left out. Without it, the error is raised.

    Returns:
        The combined result of the segments. The files of a segment that was not read do not count
        as covered.

    Raises:
        CorruptMetadataError: A segment is missing or damaged, and `on_damage` is not given.

    Cost:
        For each segment one GET of the footer, unless it is cached, and a few for the row groups
        that can match; a small segment needs one GET in total. A segment of many files needs a GET
        for the ids of those that were found, and for the ids of all only if some of its files are
        no longer live, or live files are not covered. Requests for several segments run in
        parallel. Memory: 32 MiB of values for each of eight segments.
    """
    leaves = leaf if isinstance(leaf, Sequence) else (leaf,)
    questions = [_question(condition, type_to_arrow(kind)) for condition in leaves]
    opened: list[_Opened] = []
    parts: list[_Answer] = []

    def note(segment: Segment, exc: CorruptMetadataError) -> None:
        if on_damage is None:
            raise exc
        on_damage(segment, exc)

    footers = _side_by_side(
        lambda segment: _open(store, segment, questions, needs_ids=True), segments
    )
    for segment, footer in zip(segments, footers, strict=True):
        if isinstance(footer, _Opened):
            opened.append(footer)
        else:
            note(segment, footer)
    chosen = _smallest(opened, max_bytes)
    answers = _side_by_side(lambda candidate: _answer(store, candidate, questions), chosen)
    for candidate, answer in zip(chosen, answers, strict=True):
        if isinstance(answer, _Answer):
            parts.append(answer)
        else:
            note(candidate.segment, answer)
    is_complete = live is not None and _covers_all(parts, live)
    if is_complete and live is not None:
        covered, requests = live.candidates, 0
    else:
        covered, requests = _covered(store, parts, live, note)
    return Lookup(
        covered=covered,
        found=np.unique(np.concatenate([_NO_FILES, *(part.found for part in parts)])),
        requests=requests
        + sum(part.requests for part in parts)
        + sum(candidate.requests for candidate in opened),
        refused=len(opened) - len(chosen),
        is_complete=is_complete,
    )


@dataclass(frozen=True, slots=True)
class Homes:
    """Files that hold a value, and where they are.

    Attributes:
        ids: Ids of the files.
        directories: Directory of each.
        requests: Number of requests to the store.
    """

    ids: np.ndarray
    directories: Sequence[str]
    requests: int


def find_homes(store: Store, segments: Sequence[Segment], leaf: Leaf, kind: Type) -> Homes | None:
    """Find the files with a value that meets a condition, with their directories.

    The result does not depend on the live files, and neither does its cost.

    Args:
        store: The store that holds the index.
        segments: All segments of one column.
        leaf: A condition on that column, bound to `kind`.
        kind: The current type of the column.

    Returns:
        The files; None if a segment lacks directories, is lost or damaged, or if too many values or
        files could match.

    Cost:
        For each segment one GET of the footer, unless it is cached, and for those with the value a
        few for row groups and directories.
    """
    questions = [_question(leaf, type_to_arrow(kind))]
    footers = _side_by_side(
        lambda segment: _open(store, segment, questions, needs_ids=False), segments
    )
    opened = [one for one in footers if isinstance(one, _Opened) and one.footer.homes is not None]
    if len(opened) < len(segments) or len(_smallest(opened, MAX_LOOKUP_BYTES)) < len(opened):
        return None

    def look(one: _Opened) -> Homes:
        places, requests = _places(store, one, questions)
        if len(places) > MOST_HOMES:
            return Homes(places, (), requests)
        ids, directories, more = homes_at(store, one.footer, places)
        return Homes(ids, directories, requests + more)

    parts = _side_by_side(look, opened)
    found = [part for part in parts if isinstance(part, Homes)]
    ids = np.concatenate([_NO_FILES, *(part.ids for part in found)])
    if len(found) < len(opened) or len(ids) > MOST_HOMES:
        return None
    return Homes(
        ids=ids,
        directories=[directory for part in found for directory in part.directories],
        requests=sum(one.requests for one in opened) + sum(part.requests for part in found),
    )


def match_values(values: pa.ChunkedArray, leaves: Sequence[Leaf]) -> pa.ChunkedArray | None:
    """Return for each value whether it meets all conditions.

    Args:
        values: Values of a column, without null and NaN.
        leaves: Bound conditions on that column.

    Returns:
        A boolean for each value; None if null or NaN would meet the conditions, so that these
        values are not enough.
    """
    questions = [_question(leaf, values.type) for leaf in leaves]
    has_nan = pat.is_floating(values.type)
    if all(question.wants_null for question in questions) or (
        has_nan and all(question.wants_nan for question in questions)
    ):
        return None
    return _all_match(values, questions)


def _side_by_side(work: Callable[[_A], _B], items: Sequence[_A]) -> list[_B | CorruptMetadataError]:
    def attempt(item: _A) -> _B | CorruptMetadataError:
        try:
            return work(item)
        except CorruptMetadataError as exc:
            return exc

    return list(at_once(attempt, items, _THREADS))


@dataclass(frozen=True, slots=True)
class _Question:
    """A condition in the form for a search in segments.

    Attributes:
        kind: Current Arrow type of the column.
        points: Values to find, ascending and distinct, neither NaN nor null; None for a range.
        low: Lower bound of the range; None for no bound.
        high: Upper bound of the range; None for no bound.
        has_low: True if the range includes its lower bound.
        has_high: True if the range includes its upper bound.
        excluded: Values within the range that do not meet the condition.
        wants_nan: True if NaN meets the condition.
        wants_null: True if null meets the condition.
        wants_values: True if any other value can meet it.
    """

    kind: pa.DataType
    points: pa.Array | None = None
    low: pa.Scalar | None = None
    high: pa.Scalar | None = None
    has_low: bool = True
    has_high: bool = True
    excluded: pa.Array | None = None
    wants_nan: bool = False
    wants_null: bool = False
    wants_values: bool = True


def _question(leaf: Leaf, kind: pa.DataType) -> _Question:
    match leaf:
        case NullCheck(negated=False):
            return _Question(kind, wants_null=True, wants_values=False)
        case NullCheck():
            return _Question(kind, wants_nan=True)
        case Membership(values=values, negated=negated):
            return _question_of_values(values, kind, negated=negated)
        case Comparison(op=Op.EQ | Op.NE as op, value=value):
            return _question_of_values((value,), kind, negated=op is Op.NE)
        case Comparison(op=op, value=value):
            return _question_of_range(op, value, kind)
        case Like():
            raise AssertionError  # never looked up


def _question_of_values(values: Sequence[Scalar], kind: pa.DataType, *, negated: bool) -> _Question:
    has_nan = any(is_nan(value) for value in values)
    points = _array([value for value in values if not is_nan(value)], kind)
    if negated:
        return _Question(kind, excluded=points, wants_nan=not has_nan)
    return _Question(kind, points=points, wants_nan=has_nan, wants_values=len(points) > 0)


def _question_of_range(op: Op, value: Scalar, kind: pa.DataType) -> _Question:
    is_above = op in (Op.GT, Op.GE)
    has_bound = op in (Op.GE, Op.LE)
    if is_nan(value):
        # Nothing is above NaN, and every number is below it.
        return _Question(kind, wants_nan=has_bound, wants_values=not is_above)
    bound = _array([value], kind)[0]
    if is_above:
        return _Question(kind, low=bound, has_low=has_bound, wants_nan=True)
    return _Question(kind, high=bound, has_high=has_bound)


def _array(values: Sequence[Scalar], kind: pa.DataType) -> pa.Array:
    if pat.is_floating(kind):
        values = [value + 0.0 for value in values]  # type: ignore[operator]  # bound: numbers
    return pa.array(values, kind)


@dataclass(frozen=True, slots=True)
class _Opened:
    """A segment whose footer was read.

    Attributes:
        numbers: Numbers of the row groups that can match, ascending.
        size_bytes: Size of these row groups in memory.
        requests: Number of requests so far.
    """

    segment: Segment
    footer: Footer
    numbers: list[int]
    size_bytes: int
    requests: int


def _open(
    store: Store, segment: Segment, questions: Sequence[_Question], *, needs_ids: bool
) -> _Opened:
    footer, requests = open_segment(store, segment, needs_ids=needs_ids)
    footer, more = with_directory(store, footer, lambda pages: _entries_for(pages, questions))
    numbers = _entries_for(footer.groups, questions)
    size = int(footer.raw_sizes[numbers].sum())
    return _Opened(segment, footer, numbers, size, requests + more)


def _entries_for(directory: pa.Table, questions: Sequence[_Question]) -> list[int]:
    """Return the numbers of the entries of a directory that can match all questions, ascending."""
    numbers = set(_entries_of(directory, questions[0]))
    for question in questions[1:]:
        numbers &= set(_entries_of(directory, question))
    return sorted(numbers)


def _smallest(opened: Sequence[_Opened], max_bytes: int) -> list[_Opened]:
    """Return the segments with the least to read, as many as fit."""
    chosen = sorted(opened, key=lambda candidate: candidate.size_bytes)
    totals = np.cumsum([candidate.size_bytes for candidate in chosen])
    return chosen[: int(np.searchsorted(totals, max_bytes, side="right"))]


@dataclass(frozen=True, slots=True)
class _Answer:
    """The result of a lookup in one segment.

    Attributes:
        found: Ids of the covered files with a matching value.
        requests: Number of requests after the footer.
    """

    segment: Segment
    footer: Footer
    found: np.ndarray
    requests: int


def _answer(store: Store, opened: _Opened, questions: Sequence[_Question]) -> _Answer:
    places, requests = _places(store, opened, questions)
    found, more = file_ids_at(store, opened.footer, places)
    return _Answer(opened.segment, opened.footer, found, requests + more)


def _places(
    store: Store, opened: _Opened, questions: Sequence[_Question]
) -> tuple[np.ndarray, int]:
    """Return the positions of the files of a segment that match, and the number of requests."""
    footer = opened.footer
    is_found = np.zeros(footer.files.count, dtype=bool)
    is_wide = _ends_soon(opened, questions)
    requests = 0
    for numbers in _portions(footer, opened.numbers, _FIRST_BYTES if is_wide else _PORTION_BYTES):
        pairs, more = read_groups(store, footer, numbers)
        requests += more
        matches = _all_match(pairs.column("value"), questions)
        positions = np.unique(pairs.filter(matches).column("file"))
        if len(positions) and not 0 <= positions[0] <= positions[-1] < len(is_found):
            key = opened.segment.key
            raise CorruptMetadataError(f"Index segment {key!r} refers to files that it lacks.")
        is_found[positions] = True
        if is_found.all():
            break
    return np.flatnonzero(is_found), requests


def _covers_all(parts: Sequence[_Answer], live: LiveIds) -> bool:
    """Return whether sums prove that all candidates are covered."""
    return (
        _has_stored_ids(parts)
        and len(live.buckets) > _FEW_BUCKETS
        and not len(_unproven(parts, live))
    )


def _covered(
    store: Store, parts: Sequence[_Answer], live: LiveIds | None, note: OnDamage
) -> tuple[np.ndarray, int]:
    """Return the ids of the covered files, or of those among the candidates, and the requests."""
    sure, buckets = _NO_FILES, np.arange(BUCKETS)
    if live is not None and _has_stored_ids(parts):
        buckets = live.buckets
        if len(buckets) > _FEW_BUCKETS:
            buckets = _unproven(parts, live)
            sure = live.outside(buckets)
    wanted = buckets.tolist()
    answers = _side_by_side(lambda part: file_ids_in(store, part.footer, wanted), parts)
    known, requests = [_NO_FILES, sure], 0
    for part, answer in zip(parts, answers, strict=True):
        if isinstance(answer, CorruptMetadataError):
            note(part.segment, answer)
        else:
            known.append(answer[0])
            requests += answer[1]
    return np.unique(np.concatenate(known)), requests


def _ends_soon(opened: _Opened, questions: Sequence[_Question]) -> bool:
    """Return whether a small portion may find all files of a segment.

    It may for a range, and for a list with several values for each file in such a portion.
    """
    lengths = [len(question.points) for question in questions if question.points is not None]
    share = _FIRST_BYTES / max(1, opened.size_bytes)
    return not lengths or min(lengths) * share >= _MANY * opened.footer.files.count


def _has_stored_ids(parts: Sequence[_Answer]) -> bool:
    """Return whether the ids of some segment are not in its footer."""
    return any(part.footer.files.ids is None for part in parts)


def _unproven(parts: Sequence[_Answer], live: LiveIds) -> np.ndarray:
    return unproven_buckets((part.footer.files.sums for part in parts), live)


def _portions(footer: Footer, numbers: Sequence[int], size_bytes: int) -> Iterator[Sequence[int]]:
    """Split row groups into portions by their size in memory, each larger than the one before."""
    sizes = footer.raw_sizes
    while numbers:
        totals = np.cumsum(sizes[numbers])
        count = max(1, int(np.searchsorted(totals, size_bytes, side="right")))
        yield numbers[:count]
        numbers = numbers[count:]
        size_bytes = min(4 * size_bytes, _PORTION_BYTES)


def _entries_of(directory: pa.Table, question: _Question) -> list[int]:
    """Return the numbers of the entries of a directory that can match, ascending."""
    count = directory.num_rows - has_specials(directory)
    specials = [count] if count < directory.num_rows else []
    numbers: list[int] = []
    if question.wants_values and count:
        firsts, lasts = (
            _keys(directory.column(name).slice(0, count), question.kind)
            for name in ("first", "last")
        )
        if question.points is not None:
            points = _keys(question.points, question.kind)
            begins, ends = np.searchsorted(lasts, points), np.searchsorted(firsts, points, "right")
            is_within = begins < ends
            # How many more values are in a row group than in the one before.
            steps = np.bincount(begins[is_within], minlength=count + 1)
            steps -= np.bincount(ends[is_within], minlength=count + 1)
            numbers = np.flatnonzero(np.cumsum(steps)).tolist()
        else:
            low, high = question.low, question.high
            begin = 0 if low is None else int(np.searchsorted(lasts, _key(low))[0])
            end = count if high is None else int(np.searchsorted(firsts, _key(high), "right")[0])
            numbers = list(range(begin, end))
    if question.wants_nan or question.wants_null:
        numbers += specials
    return numbers


def _keys(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> np.ndarray:
    """Return values as numbers or Python objects whose order is that of the column."""
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    values = values.cast(pa.binary() if pat.is_string(kind) else kind)
    if pat.is_temporal(kind):
        values = values.view(pa.int32() if pat.is_date32(kind) else pa.int64())
    if pat.is_integer(values.type) or pat.is_floating(values.type):
        numbers: np.ndarray = values.to_numpy()
        return numbers
    keys = np.empty(len(values), dtype=object)
    keys[:] = values.to_pylist()
    return keys


def _key(value: pa.Scalar) -> np.ndarray:
    """Return one value likewise; NumPy would change a single text."""
    return _keys(pa.array([value.as_py()], value.type), value.type)


def _all_match(values: pa.ChunkedArray, questions: Sequence[_Question]) -> pa.ChunkedArray:
    truths = _matches(values, questions[0])
    for question in questions[1:]:
        truths = pc.and_(truths, _matches(values, question))
    return truths


def _matches(values: pa.ChunkedArray, question: _Question) -> pa.ChunkedArray:
    """Return for each value of a segment whether it meets the condition."""
    values = values.cast(question.kind)
    is_null = values.is_null()
    is_nan_ = _is_nan(values)
    truths = pc.invert(pc.or_(is_null, is_nan_))
    if not question.wants_values:
        truths = pc.and_(truths, pa.scalar(value=False))
    elif question.points is not None:
        truths = pc.and_(truths, pc.is_in(values, value_set=question.points))
    else:
        if question.low is not None:
            above = pc.greater_equal if question.has_low else pc.greater
            truths = pc.and_(truths, pc.fill_null(above(values, question.low), fill_value=False))
        if question.high is not None:
            below = pc.less_equal if question.has_high else pc.less
            truths = pc.and_(truths, pc.fill_null(below(values, question.high), fill_value=False))
        if question.excluded is not None:
            truths = pc.and_(truths, pc.invert(pc.is_in(values, value_set=question.excluded)))
    if question.wants_nan:
        truths = pc.or_(truths, is_nan_)
    return pc.or_(truths, is_null) if question.wants_null else truths


def _is_nan(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pat.is_floating(values.type):
        return pc.fill_null(pc.is_nan(values), fill_value=False)
    return pc.and_(values.is_null(), pa.scalar(value=False))
