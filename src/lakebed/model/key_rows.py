"""Conditions from rows of keys: a row is chosen if it has the values of one of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakebed.errors import InvalidInputError
from lakebed.model.predicate import (
    Comparison,
    Leaf,
    Membership,
    NullCheck,
    Op,
    Predicate,
    all_of,
    any_of,
    leaves,
)
from lakebed.model.values import Scalar

_FORM = "Give at least one key, such as {'user': 'ada@example.org'} or {'user': ['a', 'b']}."


def condition_of(keys: Mapping[str, Any]) -> Predicate:
    """Return the condition that a row has one of some keys.

    Args:
        keys: By column a value, or a list with one value for each key; lists are of equal length,
            and a single value stands for all keys. None stands for null.

    Raises:
        InvalidInputError: There is no key, or lists differ in length.

    >>> str(condition_of({"user": ["ada", "bob"]}))
    "user IN ('ada', 'bob')"
    >>> str(condition_of({"user": ["ada", "bob"], "site": 1}))
    "(user = 'ada' AND site = 1) OR (user = 'bob' AND site = 1)"
    >>> str(condition_of({"user": "ada"}))
    "user = 'ada'"
    """
    columns = {name: _listed(value) for name, value in keys.items()}
    lengths = {len(values) for values in columns.values() if isinstance(values, Sequence)}
    if not columns or len(lengths) > 1 or lengths == {0}:
        counts = ", ".join(
            f"{name}: {len(values)}"
            for name, values in columns.items()
            if isinstance(values, Sequence)
        )
        problem = f"Lists of keys differ in length ({counts})." if counts else "No key is given."
        raise InvalidInputError(problem, hint=_FORM)
    count = lengths.pop() if lengths else 1
    rows = [
        tuple(
            (name, values[row] if values is not None else keys[name])
            for name, values in columns.items()
        )
        for row in range(count)
    ]
    distinct = list(dict.fromkeys(rows))
    if len(columns) == 1:
        (column,) = columns
        values = tuple(row[0][1] for row in distinct if row[0][1] is not None)
        has_null = len(values) < len(distinct)
        listed: list[Leaf] = [Membership(column, values)] if len(values) > 1 else []
        single = [Comparison(column, Op.EQ, values[0])] if len(values) == 1 else []
        return any_of([*listed, *single, *([NullCheck(column)] if has_null else [])])
    return any_of([all_of([_leaf(name, value) for name, value in row]) for row in distinct])


def _listed(value: Any) -> Sequence[Any] | None:
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return None
    return value


def _leaf(column: str, value: Scalar) -> Leaf:
    return NullCheck(column) if value is None else Comparison(column, Op.EQ, value)


def named_values(predicate: Predicate) -> Iterator[tuple[str, Scalar]]:
    """Yield the values that a condition names by equality, each with its column.

    >>> list(named_values(condition_of({"user": ["ada", "bob"]})))
    [('user', 'ada'), ('user', 'bob')]
    """
    for leaf in leaves(predicate):
        match leaf:
            case Comparison(column, Op.EQ, value):
                yield column, value
            case Membership(column, values, negated=False):
                for value in values:
                    yield column, value
