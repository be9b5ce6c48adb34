"""Advice against names that are legal in metadata, but bad."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lakebed.archive.metadata import RESERVED_WORK_ID
from lakebed.common.advice import warn
from lakebed.common.shown import cut

# Source: the documentation of datalake-common, on `where`, `what` and the indices.
_BAD_WHERES = frozenset({"localhost", "vagrant"})
_BAD_WHATS = frozenset({"job", "jobs", "task", "tasks"})
_MOST_LETTERS = 63  # as in a label of a host name, RFC 1035
_BARE_ID = re.compile(r"[0-9_-]+|[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


def warn_of_names(files: Iterable[Mapping[str, object]]) -> None:
    """Warn the caller about bad names, once for each problem.

    Args:
        files: Metadata of the files to store, with `where`, `what` and `work_id`.
    """
    texts: dict[str, str] = {}
    for fields in files:
        for name in ("where", "what", "work_id"):
            value = fields[name]
            if isinstance(value, str) and (found := _problem(name, value)) is not None:
                problem, remedy = found
                texts.setdefault(
                    f"{name} {problem}", f"{name} {cut(value, 60)!r} {problem}. {remedy}"
                )
    for text in texts.values():
        warn(text)


def _problem(name: str, value: str) -> tuple[str, str] | None:
    """Return the problem of a name and its remedy; None if it is fine."""
    if name == "where" and value in _BAD_WHERES:
        return (
            "is the same on many machines, so their files cannot be distinguished",
            "Name the machine or place, as in 'whirlyweb02-prod'.",
        )
    if name == "what" and value in _BAD_WHATS:
        return (
            "is too general, so other programs may use it too",
            "Name the program, as in 'rawfood-ingester'.",
        )
    if name == "work_id" and value != RESERVED_WORK_ID and value.startswith(RESERVED_WORK_ID):
        return (
            f"begins with {RESERVED_WORK_ID!r}, which is reserved for files without a work id",
            "Start it with a word of your domain, as in 'orders-12'.",
        )
    if name == "work_id" and _BARE_ID.fullmatch(value):
        return (
            "has no word of its domain, so other work may have the same id",
            "Start it with such a word, as in 'orders-12'.",
        )
    if len(value) > _MOST_LETTERS:
        return (
            f"is longer than {_MOST_LETTERS} letters",
            "Use a concise name: it is part of keys and of queries.",
        )
    return None
