"""Random predicates, for the tests of every layer that reads one."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from lakebed.model.predicate import (
    And,
    Comparison,
    Membership,
    NullCheck,
    Op,
    Or,
    Predicate,
    negate,
)


def leaves_of(column: str, value: st.SearchStrategy) -> st.SearchStrategy[Predicate]:
    """Every kind of condition on one column."""
    return (
        st.builds(Comparison, st.just(column), st.sampled_from(Op), value)
        | st.builds(
            Membership, st.just(column), st.lists(value, max_size=3).map(tuple), st.booleans()
        )
        | st.builds(NullCheck, st.just(column), st.booleans())
    )


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
