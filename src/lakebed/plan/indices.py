"""Look conditions up in the inverted indices."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lakebed.errors import CorruptMetadataError
from lakebed.index.kartothek_file import IndexFile, read_index_file
from lakebed.index.lookup import MAX_LOOKUP_BYTES, LiveIds, Lookup, lookup
from lakebed.model.predicate import Comparison, Leaf, Like, Membership, NullCheck, Op
from lakebed.model.schema import Type
from lakebed.state.state import State
from lakebed.store.at_once import at_once
from lakebed.store.base import Store
from lakebed.store.segments import Segment

_log = logging.getLogger(__name__)

_QUESTIONS_AT_ONCE = 4  # each reads its segments in parallel

Question = tuple[Leaf, ...]
"""Conditions on one column that one value must meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The results of index lookups.

    Attributes:
        lookups: The result of each question.
        lost: Reason for each segment that cannot be read, by key.
        requests: Number of requests to the store.
    """

    lookups: Mapping[Question, Lookup]
    lost: Mapping[str, str]
    requests: int

    def may(self, question: Question, file_ids: np.ndarray) -> np.ndarray:
        """Return for each file whether it may have a match.

        It may if the index found one, or does not cover the file.
        """
        answer = self.lookups[question]
        is_found = _is_in(file_ids, answer.found)
        is_open = file_ids < 0 if answer.is_complete else ~_is_in(file_ids, answer.covered)
        may: np.ndarray = is_found | is_open
        return may

    def covers(self, question: Question, file_ids: np.ndarray) -> bool:
        """Return whether the index covers all of these files."""
        return bool(_is_in(file_ids, self.lookups[question].covered).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAnswer:
    """The result of reading an index file of other tools.

    Attributes:
        file: Content of the file; None if it cannot be used.
        requests: Number of requests to the store.
        reason: The error if it cannot be read; empty if it is too large.
    """

    file: IndexFile | None
    requests: int
    reason: str = ""


def read_file(store: Store, state: State, column: str, max_bytes: int) -> FileAnswer:
    """Read the index file of a column, as plateau and kartothek use it; see `read_index_file`.

    A damaged or missing file is ignored with a warning.

    Args:
        store: The store that holds the file.
        state: The state that names it.
        column: The column, by its name in data files.
        max_bytes: See `read_index_file`.
    """
    key, kind = state.indices[column], state.layout.file_column_types[column]
    try:
        file, requests = read_index_file(
            store, state.name, column, key, kind, digest=state.digest, max_bytes=max_bytes
        )
    except CorruptMetadataError as exc:
        _log.warning("index file is ignored key=%s: %s", key, exc.message)
        return FileAnswer(file=None, requests=1, reason=exc.message)
    return FileAnswer(file=file, requests=requests)


def names_values(leaf: Leaf) -> bool:
    """Return whether a condition names the values, so that it probably matches few files."""
    match leaf:
        case Comparison(op=Op.EQ) | Membership(negated=False):
            return True
    return False


def is_range(leaf: Leaf) -> bool:
    """Return whether a condition is a bound on one side; a second one may leave few values."""
    return isinstance(leaf, Comparison) and leaf.op in (Op.LT, Op.LE, Op.GT, Op.GE)


def can_be_looked_up(leaf: Leaf) -> bool:
    """Return whether an index can drop files by a condition; nearly all files match `!=`."""
    match leaf:
        case Comparison(op=Op.NE):
            return False
        case Comparison():
            return True
        case Membership(negated=negated) | NullCheck(negated=negated):
            return not negated
        case Like():
            return False


def ask(
    store: Store,
    postings: Mapping[str, Sequence[Segment]],
    questions: Sequence[Question],
    types: Mapping[str, Type],
    max_bytes: int,
    live: LiveIds,
) -> Answers:
    """Look questions up in the indices.

    A damaged or missing segment is ignored with a warning: its files do not count as covered.

    Args:
        store: The store that holds the segments.
        postings: Segments of the indexed columns.
        questions: Bound conditions, each question on one column; at least one. If a column has no
            postings, no file is covered.
        types: Types of these columns.
        max_bytes: Limit for postings in memory, for a question that does not name values.
        live: The live files of the state.

    Cost:
        The cost of `lookup` for each question; questions run in parallel.
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
            live=live,
            max_bytes=limit,
            on_damage=note,
        )

    answers = list(at_once(look, questions, _QUESTIONS_AT_ONCE))
    for key, reason in sorted(lost.items()):
        _log.warning("index segment is ignored key=%s: %s", key, reason)
    return Answers(
        lookups=dict(zip(questions, answers, strict=True)),
        lost=dict(sorted(lost.items())),
        # Each lost segment took one request, too.
        requests=sum(answer.requests for answer in answers) + len(lost),
    )


def _is_in(ids: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return for each id whether it is among the sorted known ids."""
    if not len(known):
        return np.zeros(len(ids), dtype=bool)
    positions = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    is_known: np.ndarray = known[positions] == ids
    return is_known
