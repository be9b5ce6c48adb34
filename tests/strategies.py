"""Random predicates, for the tests of every layer that reads one."""

import datetime as dt
import decimal
import math
from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from lakebed.model.predicate import (
    And,
    Comparison,
    Like,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    escaped,
    negate,
)
from lakebed.model.schema import Decimal, Kind, Primitive

# A column of each type, and values of it that lie at its edges.
TYPES = {str(kind).replace(" ", "_"): Primitive(kind) for kind in Kind} | {"decimal": Decimal(9, 2)}
VALUES = {
    "boolean": [True, False],
    "int": [-(2**31), -1, 0, 5, 2**31 - 1],
    "long": [-(2**63), -1, 0, 5, 2**63 - 1],
    "unsigned_long": [0, 5, 2**63, 2**64 - 1],
    "float": [-math.inf, -0.0, 0.0, 0.10000000149011612, 5.0, math.inf, math.nan],
    "double": [-math.inf, -0.0, 0.0, 0.1, 5.0, math.inf, math.nan],
    "string": ["", "a", "b", "é", "z\U0001f600", "z\uffff"],
    "bytes": [b"", b"a", b"\xff", b"\xff\x00"],
    "date": [dt.date.min, dt.date(1969, 12, 31), dt.date(2013, 1, 1), dt.date.max],
    "timestamp": [
        moment.replace(tzinfo=dt.UTC)
        for moment in (dt.datetime.min, dt.datetime(2013, 1, 1), dt.datetime.max)
    ],
    "timestamp_ntz": [dt.datetime.min, dt.datetime(2013, 1, 1), dt.datetime.max],
    "decimal": [decimal.Decimal(text) for text in ("-9999999.99", "0.00", "0.10", "9999999.99")],
}


def leaves_of(column: str, value: st.SearchStrategy) -> st.SearchStrategy[Predicate]:
    """Every kind of condition on one column."""
    return (
        st.builds(Comparison, st.just(column), st.sampled_from(Op), value)
        | st.builds(
            Membership, st.just(column), st.lists(value, max_size=3).map(tuple), st.booleans()
        )
        | st.builds(NullCheck, st.just(column), st.booleans())
        | value.flatmap(lambda near: _like(column, near))
    )


def _like(column: str, near: object) -> st.SearchStrategy[Predicate]:
    """A pattern that fits a text, or nearly; another condition for a column that is not text."""
    if not isinstance(near, str):
        return st.builds(NullCheck, st.just(column), st.booleans())

    def pattern(begin: int, end: int, before: str, after: str, turned: bool) -> str:
        part = near[begin : begin + end]
        return before + escaped(part.swapcase() if turned else part) + after

    wild = st.sampled_from(["", "%", "_", "%_"])
    patterns = st.builds(pattern, st.integers(0, 2), st.integers(0, 4), wild, wild, st.booleans())
    return st.builds(Like, st.just(column), patterns, st.booleans(), st.booleans())


def predicates(columns: Mapping[str, Sequence], *, max_leaves: int) -> st.SearchStrategy[Predicate]:
    """Trees over columns, each with the values that its conditions may name."""
    leaf = st.sampled_from(sorted(columns)).flatmap(
        lambda column: leaves_of(column, st.sampled_from(columns[column]))
    )
    return st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda parts: And(tuple(parts)))
            | st.lists(inner, max_size=3).map(lambda parts: Or(tuple(parts)))
            | inner.map(negate)
        ),
        max_leaves=max_leaves,
    )
