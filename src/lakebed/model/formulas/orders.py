"""The order of operators, where sqlglot reads another one than Spark."""

from __future__ import annotations


class Orders:
    """Knows the parts of a tree that Spark would group in another way."""

    def __init__(self) -> None:
        """Start."""
        from sqlglot import expressions as exp

        self._not = exp.Not
        self._equalities = (exp.EQ, exp.NEQ)
        self._comparisons = (*self._equalities, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)
        # They are asked of a whole comparison in Spark, and of its second part in sqlglot.
        self._predicates = (
            exp.In, exp.Between, exp.Like, exp.ILike, exp.Escape, exp.RegexpLike, exp.Is,
        )  # fmt: skip
        self._sums = (exp.Add, exp.Sub)
        # From the one that is computed first.
        self._bits: tuple[tuple[type, ...], ...] = (
            (exp.DPipe,),
            (exp.BitwiseLeftShift, exp.BitwiseRightShift),
            (exp.BitwiseAnd,),
            (exp.BitwiseXor,),
            (exp.BitwiseOr,),
        )

    def is_other(self, node: object) -> bool:
        """Return whether Spark reads another tree from the text of a node without parentheses."""
        left, right = self._part(node, "this"), self._part(node, "expression")
        if isinstance(node, self._comparisons):
            # `a = b < c` is `(a = b) < c` in Spark, and `a = b IN (c)` is `(a = b) IN (c)`.
            is_chain = isinstance(right, self._comparisons)
            return (
                is_chain
                or isinstance(left, self._predicates)
                or isinstance(right, self._predicates)
            )
        rank = self._rank(node)
        if rank is None:
            return False
        inner = self._rank(left)
        is_sum = rank == 0 and isinstance(right, self._sums)  # `a || b + c` is `(a || b) + c`
        return is_sum or (inner is not None and inner > rank)

    def _part(self, node: object, name: str) -> object:
        part = getattr(node, "args", {}).get(name)
        return part.this if isinstance(part, self._not) else part

    def _rank(self, node: object) -> int | None:
        for rank, kinds in enumerate(self._bits):
            if isinstance(node, kinds):
                return rank
        return None
