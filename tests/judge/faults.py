"""Which request fails, and how: by a seed, and by the number of the request in its class."""

from __future__ import annotations

import collections
import random
import threading
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """A class of requests."""

    GET = "GET"
    LIST = "LIST"
    PUT = "PUT"
    CONDITIONAL_PUT = "conditional PUT"
    MULTIPART = "multipart"
    DELETE = "DELETE"


class Fault(StrEnum):
    """What happens to a request."""

    LOST = "request lost, connection closed"
    LOST_ANSWER = "request carried out, answer lost"
    ERROR_500 = "answered by 500, not carried out"
    ERROR_503 = "answered by 503 SlowDown, not carried out"
    DONE_500 = "answered by 500, and carried out"
    DONE_503 = "answered by 503, and carried out"
    CONFLICT_409 = "answered by 409 ConditionalRequestConflict, not carried out"
    SLOW = "held for up to a second and a half"
    CUT = "answer cut off in its body"
    TWICE = "carried out twice, answered as the first time"
    TWICE_LAST = "carried out twice, answered as the second time"
    LATE = "connection closed, and carried out up to two seconds later"
    EXPIRED = "token expired: 403 for this request and those after it"


_ANY = (Fault.LOST, Fault.LOST_ANSWER, Fault.ERROR_500, Fault.ERROR_503, Fault.SLOW, Fault.EXPIRED)
_WRITES = (*_ANY, Fault.DONE_500, Fault.DONE_503, Fault.TWICE, Fault.LATE)
FAULTS: Mapping[Kind, tuple[Fault, ...]] = {
    Kind.GET: (*_ANY, Fault.CUT),
    Kind.LIST: (*_ANY, Fault.CUT),
    Kind.PUT: _WRITES,
    Kind.CONDITIONAL_PUT: (*_WRITES, Fault.CONFLICT_409, Fault.TWICE_LAST),
    Kind.MULTIPART: _WRITES,
    Kind.DELETE: _WRITES,
}
SPELL = 4  # requests that find their token expired, one after the other
# Commits are few, and are what the judge is about.
RATES: Mapping[Kind, float] = {
    Kind.GET: 0.02,
    Kind.LIST: 0.03,
    Kind.PUT: 0.05,
    Kind.CONDITIONAL_PUT: 0.15,
    Kind.MULTIPART: 0.05,
    Kind.DELETE: 0.05,
}


def kind_of(method: str, target: str, headers: Mapping[str, str]) -> Kind:
    """Return the class of a request; names of headers are in lower case.

    >>> kind_of("PUT", "/lake/d.json", {"if-match": "etag"})
    <Kind.CONDITIONAL_PUT: 'conditional PUT'>
    >>> kind_of("GET", "/lake?list-type=2&prefix=d", {})
    <Kind.LIST: 'LIST'>
    """
    path, _, query = target.partition("?")
    asked = urllib.parse.parse_qs(query, keep_blank_values=True)
    if {"uploads", "uploadId", "partNumber"} & asked.keys():
        return Kind.MULTIPART
    if method == "DELETE" or "delete" in asked:
        return Kind.DELETE
    if method == "PUT":
        is_conditional = "if-match" in headers or "if-none-match" in headers
        return Kind.CONDITIONAL_PUT if is_conditional else Kind.PUT
    is_list = "list-type" in asked or "prefix" in asked or path.count("/") < 2
    return Kind.LIST if is_list else Kind.GET


@dataclass(slots=True)
class Plan:
    """The faults of a run.

    Attributes:
        seed: The n-th request of a class has the same fault in each run of this seed.
        rates: Share of the requests that fail, by class.
        only: The faults to choose from.
        at: Faults by the number of the request in its class, instead of chance.
        injected: How often each fault was chosen, by class.
        asked: Number of requests, by class.
    """

    seed: int
    rates: Mapping[Kind, float] = field(default_factory=lambda: RATES)
    only: frozenset[Fault] = frozenset(Fault)
    at: Mapping[tuple[Kind, int], Fault] | None = None
    injected: collections.Counter[tuple[Kind, Fault]] = field(default_factory=collections.Counter)
    asked: collections.Counter[Kind] = field(default_factory=collections.Counter)
    _expired: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, kind: Kind) -> Fault | None:
        """Return the fault of the next request of a class."""
        with self._lock:
            self.asked[kind] += 1
            if self._expired:
                self._expired -= 1
                fault: Fault | None = Fault.EXPIRED
            else:
                fault = self.chosen(kind, self.asked[kind])
                if fault is Fault.EXPIRED:
                    self._expired = SPELL - 1
            if fault is not None:
                self.injected[kind, fault] += 1
            return fault

    def chosen(self, kind: Kind, number: int) -> Fault | None:
        """Return the fault that the plan has for the n-th request of a class, counted from 1."""
        if self.at is not None:
            return self.at.get((kind, number))
        dice = random.Random(f"{self.seed} {kind} {number}")
        if dice.random() >= self.rates.get(kind, 0.0):
            return None
        choice = [fault for fault in FAULTS[kind] if fault in self.only]
        return dice.choice(choice) if choice else None
