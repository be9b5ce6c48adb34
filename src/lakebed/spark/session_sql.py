"""Statements on datasets in `spark.sql` of a session, for as long as its tables are attached."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lakebed.errors import InvalidInputError
from lakebed.model.sql_heads import FirstWords, head_of
from lakebed.spark.attached_names import catch_up

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Carry = Callable[[str], "pa.Table"]
"""Carries out a statement, and returns its result as a table."""
Take = Callable[[FirstWords], Carry | None]
"""Returns what carries out a statement of some first words; None to leave it to Spark."""


class SessionSql:
    """Replacement of `spark.sql`: statements on datasets go to Lakebed, all others to Spark."""

    def __init__(self, spark: SparkSession, take: Take) -> None:
        """Take over `spark.sql` of a session.

        Args:
            spark: The session.
            take: Decides about the statements that name a table alone.
        """
        self._spark = spark
        self._take: Take | None = take
        self._had = vars(spark).get("sql")  # of an attachment before
        self._before = spark.sql
        spark.sql = self  # type: ignore[method-assign]  # the point of it

    def __call__(self, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
        """Run a statement, as `SparkSession.sql`.

        Raises:
            InvalidInputError: A statement on a dataset has parameters, or is not taken.
        """
        if self._take is None:
            return self._before(sqlQuery, *args, **kwargs)
        catch_up(self._spark)
        head = head_of(sqlQuery) if isinstance(sqlQuery, str) else None
        is_named = head is not None and head.name not in ("", "?") and not head.qualifier
        carry = self._take(head) if head is not None and is_named else None
        if carry is None or head is None:
            return self._before(sqlQuery, *args, **kwargs)
        if any(args) or any(kwargs.values()):
            raise InvalidInputError(
                f"{head.verb} of dataset {head.name!r} has parameters.",
                hint="Write literals, or name a view of Spark that holds the values.",
            )
        return self._spark.createDataFrame(carry(sqlQuery))

    def give_back(self) -> None:
        """Give `spark.sql` back, or pass all on if another attachment has taken it since."""
        self._take = None
        if vars(self._spark).get("sql") is not self:
            return
        if self._had is None:
            del self._spark.sql
        else:
            self._spark.sql = self._had
