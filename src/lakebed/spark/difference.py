"""The difference of two DataFrames as multisets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name that everybody uses

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def marked_difference(
    one: DataFrame, other: DataFrame, column: str, words: tuple[str, str]
) -> DataFrame:
    """Return the rows that only one of two frames has, with a column that names the frame.

    Args:
        one: The first of two frames.
        other: Second frame, with the same columns.
        column: Name of the new first column.
        words: Its values for rows of the first and of the second frame.

    Cost:
        No Spark job until the frame is used.
    """
    parts = (
        (frame.exceptAll(without).select(F.lit(word).alias(column), "*"))
        for frame, without, word in ((one, other, words[0]), (other, one, words[1]))
    )
    first, second = parts
    return first.unionByName(second)
