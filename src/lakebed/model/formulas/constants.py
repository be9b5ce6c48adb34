"""Literals that are compared with columns of other types."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from lakebed.model.formulas.casts import cast
from lakebed.model.formulas.computation import evaluate
from lakebed.model.formulas.typed import TEXT, Typed, common_type, duck_text
from lakebed.model.schema import Type


def check_text(text: str, types: Iterable[Type]) -> None:
    """Check that a text can be read as a value of the types that it is compared with.

    Raises:
        PredicateError: It cannot: no row could be compared with it.
    """
    for kind in types:
        _check(text, kind)


@lru_cache(maxsize=256)
def _check(text: str, kind: Type) -> None:
    wanted = common_type(TEXT, kind)
    if wanted not in (None, TEXT):
        evaluate([cast(Typed(sql=duck_text(text), type=TEXT), wanted).sql], {})
