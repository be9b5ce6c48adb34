"""What the inverted indices say of conditions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lakebed.errors import CorruptMetadataError
from lakebed.index.kartothek import IndexFile, read_index_file
from lakebed.index.lookup import MAX_LOOKUP_BYTES, Lookup, lookup
from lakebed.model.predicate import Comparison, Leaf, Membership, NullCheck, Op
from lakebed.model.schema import Type
from lakebed.state.state import State
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.segments import Segment

_log = logging.getLogger(__name__)

_QUESTIONS_AT_ONCE = 4  # each asks its segments side by side

Question = tuple[Leaf, ...]
"""Conditions on one column that one value is to meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What the indices know.

    Attributes:
        lookups: For each question what its index says.
        lost: Segments that cannot be read, by key: the reason.
        requests: That it took.
    """

    lookups: Mapping[Question, Lookup]
    lost: Mapping[str, str]
    requests: int

    def may(self, question: Question, file_ids: np.ndarray) -> np.ndarray:
        """Return for each file whether it may hold a match.

        It may if the index knows of one, or does not know the file.
        """
        answer = self.lookups[question]
        may: np.ndarray = _is_in(file_ids, answer.found) | ~_is_in(file_ids, answer.covered)
        return may

    def covers(self, question: Question, file_ids: np.ndarray) -> bool:
        """Whether the index knows all of some files."""
        return bool(_is_in(file_ids, self.lookups[question].covered).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    """What became of an index file of other tools.

    Attributes:
        file: What it holds; None if it is not to be gone by.
        requests: That it took.
        reason: Why it cannot be read; empty if it takes too much.
    """

    file: IndexFile | None
    requests: int
    reason: str = ""


def read_file(store: Store, state: State, column: str, max_bytes: int) -> FileAnswer:
    """Read the index of a column as plateau and kartothek keep it; see `read_index_file`.

    One that is damaged or missing is left out, with a warning.
    """
    key, kind = state.indices[column], state.layout.predicate_types[column]
    try:
        file, requests = read_index_file(
            store, state.name, column, key, kind, digest=state.digest, max_bytes=max_bytes
        )
    except CorruptMetadataError as exc:
        _log.warning("index file is ignored key=%s: %s", key, exc.message)
        return FileAnswer(file=None, requests=1, reason=exc.message)
    return FileAnswer(file=file, requests=requests)


def names_values(leaf: Leaf) -> bool:
    """Whether few files can be expected to match: the condition names the values itself."""
    match leaf:
        case Comparison(op=Op.EQ) | Membership(negated=False):
            return True
    return False


def is_range(leaf: Leaf) -> bool:
    """Whether it bounds values on one side, so that a second bound may leave few of them."""
    return isinstance(leaf, Comparison) and leaf.op in (Op.LT, Op.LE, Op.GT, Op.GE)


def can_be_looked_up(leaf: Leaf) -> bool:
    """Whether an index can drop files by a condition; what is not one value nearly all hold."""
    match leaf:
        case Comparison(op=Op.NE):
            return False
        case Comparison():
            return True
        case Membership(negated=negated) | NullCheck(negated=negated):
            return not negated


def ask(
    store: Store,
    postings: Mapping[str, Sequence[Segment]],
    questions: Sequence[Question],
    types: Mapping[str, Type],
    max_bytes: int,
) -> Answers:
    """Look conditions up.

    A segment that is damaged or missing is left out, with a warning: its files are not covered.

    Args:
        store: Where the segments are.
        postings: Of the indexed columns.
        questions: Bound, each on one column; at least one. Without postings of it, no file is
            covered.
        types: Of these columns.
        max_bytes: Of postings in memory to read for a question that does not name values.

    Cost:
        For each question what `lookup` says; questions run side by side.
    """
    lost: dict[str, str] = {}

    def note(segment: Segment, exc: CorruptMetadataError) -> None:
        lost[segment.key] = exc.message

    def look(question: Question) -> Lookup:
        column = question[0].column
        limit = MAX_LOOKUP_BYTES
        if not names_values(question[0]):
            limit = min(limit, max_bytes)
        return lookup(
            store,
            postings.get(column, ()),
            question,
            types[column],
            max_bytes=limit,
            on_damage=note,
        )

    answers = list(at_once(look, questions, _QUESTIONS_AT_ONCE))
    for key, reason in sorted(lost.items()):
        _log.warning("index segment is ignored key=%s: %s", key, reason)
    return Answers(
        lookups=dict(zip(questions, answers, strict=True)),
        lost=dict(sorted(lost.items())),
        # That a segment is lost took a request, too.
        requests=sum(answer.requests for answer in answers) + len(lost),
    )


def _is_in(ids: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return for each id whether it is among sorted ones."""
    if not len(known):
        return np.zeros(len(ids), dtype=bool)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    is_known: np.ndarray = known[places] == ids
    return is_known
