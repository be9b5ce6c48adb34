"""Which epoch of a streaming query was committed last, so that one that comes again is known.

A query commits its epochs one after the other, each as a named run. After a failure it begins the
last one again, and never an earlier one. So the head names the last epoch of each query, and only
that one may still be replaced: what came before is settled, and its rows are like any others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from lakebed.common.given import check_given
from lakebed.errors import InvalidInputError
from lakebed.model.keys import BatchId

# Of queries that the head names. Of one that has not committed for so long, the runs still tell.
MOST_QUERIES = 256
_RUN = re.compile(r"stream:(.+):([0-9]{1,18})", re.DOTALL)
_LONGEST_QUERY = 200  # it is part of every entry of the history


class Epoch(msgspec.Struct, frozen=True, order=True):
    """One epoch of a streaming query.

    Attributes:
        query: Id of the query; it does not change when it is started again.
        number: From 0, one more an epoch.
    """

    query: str
    number: Annotated[int, msgspec.Meta(ge=0)]

    @property
    def run(self) -> str:
        """The name of the run that writes it."""
        return f"stream:{self.query}:{self.number}"

    def check(self) -> None:
        """Check that it can be committed.

        Raises:
            InvalidInputError: The query has no name, or too long a one, or the epoch no number.
        """
        number = "Give the epoch_id that foreachBatch passes, a whole number."
        check_given("epoch_id", self.number, int, number)
        if not self.query or len(self.query) > _LONGEST_QUERY or self.number < 0:
            raise InvalidInputError(
                f"Epoch {self.number} of the query {self.query[:_LONGEST_QUERY]!r} has no name.",
                hint=f"Name the query, in up to {_LONGEST_QUERY} characters; epochs begin at 0.",
            )


class QueryProgress(msgspec.Struct, frozen=True):
    """How far a query has come.

    Attributes:
        query: Its id.
        epoch: That was committed last.
        batch_id: The batch that holds it.
    """

    query: str
    epoch: Annotated[int, msgspec.Meta(ge=0)]
    batch_id: BatchId


def epoch_of(run: str | None) -> Epoch | None:
    """Return the epoch that a run has written; None if no streaming query did."""
    match = None if run is None else _RUN.fullmatch(run)
    return None if match is None else Epoch(match[1], int(match[2]))


def find_progress(known: Iterable[QueryProgress], query: str) -> QueryProgress | None:
    """Return how far a query has come; None if that is not told."""
    return next((progress for progress in known if progress.query == query), None)


def advanced(known: tuple[QueryProgress, ...], now: QueryProgress) -> tuple[QueryProgress, ...]:
    """Return what the head names after a commit of a query; the one of the newest batch is last."""
    others = [progress for progress in known if progress.query != now.query]
    latest = sorted((*others, now), key=lambda progress: progress.batch_id)
    return tuple(latest[-MOST_QUERIES:])


def newest(runs: Mapping[int, str]) -> dict[str, QueryProgress]:
    """Return the epoch that each query has written last, as runs by batch id tell it.

    It is the newest one, unless a rollback took out later ones and the query began them again.
    """
    latest: dict[str, QueryProgress] = {}
    for batch_id in sorted(runs):
        epoch = epoch_of(runs[batch_id])
        if epoch is not None:
            latest[epoch.query] = QueryProgress(epoch.query, epoch.number, batch_id)
    return latest
