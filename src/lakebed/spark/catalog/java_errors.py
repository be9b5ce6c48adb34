"""Errors on their way through the JVM: those of Lakebed reach the caller as they were raised."""

from __future__ import annotations

import functools
import logging
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from lakebed.common.recent import Recent
from lakebed.errors import InvalidInputError, LakebedError

_MARK = re.compile(r"\[lakebed-error:([0-9a-f]{32})\]")
_DEPTH = 20  # of causes
# Spark tests the rows of a table before it adds a constraint. A condition that it finds to be true
# for all rows leaves no scan of the table, and then Spark 4.3 has no plan: an internal error.
_CONSTANT_CHECK = re.compile(
    r"No plan for AddCheckConstraint checkconstraint\((?:true|null), (.*), ([^,]*), [^,]*, Constraint"
)

_errors = Recent[str, LakebedError](64)


class _Carried(logging.Filter):
    """Keep errors that the caller gets out of the log of py4j, which would print their traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not getattr(error, "is_of_lakebed", False)


def to_java_error(jvm: Any, error: LakebedError) -> Exception:
    """Return an exception of Java that stands for an error, and brings it back to the caller.

    Args:
        jvm: The gateway's view of the JVM.
        error: The error.
    """
    token = uuid.uuid4().hex
    _errors.put(token, error)
    mark = jvm.java.lang.RuntimeException(f"[lakebed-error:{token}]")
    text = f"{type(error).__name__}: {error}"  # what a client of Spark Connect shows
    return raised_in_java(jvm.java.lang.IllegalArgumentException(text, mark))


def raised_in_java(exception: Any) -> Exception:
    """Return an error whose exception of Java py4j raises in the JVM."""
    from py4j.protocol import Py4JJavaError

    error: Exception = Py4JJavaError("", exception)
    error.is_of_lakebed = True  # type: ignore[attr-defined]  # read by the filter
    return error


def install_errors() -> None:
    """Let PySpark raise the errors of this module as they were, once in a process."""
    from pyspark.errors import UnknownException
    from pyspark.errors.exceptions import captured

    before = captured.convert_exception
    if hasattr(before, "of_lakebed"):
        return

    @functools.wraps(before)
    def convert_exception(exception: Any) -> Exception:
        causes = list(_causes(exception))
        error = _find_error(causes) or _find_constant_check(causes)
        if error is not None:
            return error
        # The JVM wraps what an interface does not declare; below it is what stopped the statement,
        # in further ones where Spark waited for it.
        if exception.getClass().getSimpleName() == "UndeclaredThrowableException":
            for cause in causes[1:]:
                converted = before(cause)
                if not isinstance(converted, UnknownException):
                    return converted
        return before(exception)

    convert_exception.of_lakebed = True  # type: ignore[attr-defined]
    captured.convert_exception = convert_exception  # type: ignore[assignment]  # our errors, too
    for name in ("py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).addFilter(_Carried())


def _causes(exception: Any) -> Iterator[Any]:
    """Yield an exception of Java, and what caused it."""
    for _ in range(_DEPTH):
        if exception is None:
            return
        yield exception
        exception = exception.getCause()


def _find_error(causes: Iterable[Any]) -> LakebedError | None:
    for cause in causes:
        for token in _MARK.findall(str(cause.getMessage() or "")):
            error = _errors.get(token)
            if error is not None:
                return error
    return None


def _find_constant_check(causes: Iterable[Any]) -> LakebedError | None:
    """Return the error for a CHECK that no row can fail; None if the causes are other ones."""
    for cause in causes:
        match = _CONSTANT_CHECK.search(str(cause.getMessage() or ""))
        if match is not None:
            return InvalidInputError(
                f"ALTER TABLE: no row can fail the constraint {match[2]}, CHECK ({match[1]}), and "
                "Spark cannot add such a constraint.",
                hint="Leave it out, or compare a column with constants.",
            )
    return None
