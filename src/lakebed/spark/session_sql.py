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

    def __init__(self, spark: SparkSession) -> None:
        """Use `add` instead."""
        self._spark = spark
        self._takers: list[Take] = []
        self._had = vars(spark).get("sql")  # if another package has replaced it
        self._before = spark.sql
        spark.sql = self  # type: ignore[method-assign]  # the point of it

    @classmethod
    def add(cls, spark: SparkSession, take: Take) -> SessionSql:
        """Let a function decide about the statements of a session, before those that were added.

        A session has one replacement, whatever the number of attachments.

        Args:
            spark: The session.
            take: Decides about the statements that name a table alone.
        """
        current = vars(spark).get("sql")
        replacement = current if isinstance(current, cls) else cls(spark)
        replacement._takers.insert(0, take)
        return replacement

    def __call__(self, sqlQuery: str, *args: Any, **kwargs: Any) -> Any:  # noqa: N803 - PySpark's name
        """Run a statement, as `SparkSession.sql`.

        Raises:
            InvalidInputError: A statement on a dataset has parameters, or is not taken.
        """
        if not self._takers:
            return self._before(sqlQuery, *args, **kwargs)
        catch_up(self._spark)
        head = head_of(sqlQuery) if isinstance(sqlQuery, str) else None
        carry = self._carrier(head)
        if carry is None or head is None:
            return self._before(sqlQuery, *args, **kwargs)
        if any(args) or any(kwargs.values()):
            raise InvalidInputError(
                f"{head.verb} of dataset {head.name!r} has parameters.",
                hint="Write literals, or name a view of Spark that holds the values.",
            )
        return self._spark.createDataFrame(carry(sqlQuery))

    def _carrier(self, head: FirstWords | None) -> Carry | None:
        """Return what carries out a statement; None to leave it to Spark."""
        if head is None or head.name in ("", "?") or head.qualifier:
            return None
        return next(filter(None, (take(head) for take in list(self._takers))), None)

    def remove(self, take: Take) -> None:
        """Undo `add`; after the last, give `spark.sql` back if nobody has replaced it since."""
        self._takers.remove(take)
        if self._takers or vars(self._spark).get("sql") is not self:
            return
        if self._had is None:
            del self._spark.sql
        else:
            self._spark.sql = self._had
