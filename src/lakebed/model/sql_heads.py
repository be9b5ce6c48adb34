"""The first words of SQL statements that change or describe a dataset, and the name of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakebed.model.sql_dialect import PIECES

_SPACE = r"(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)"
_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[^\W\d]\w*)"
# First words, and what may stand between them and the name; None for a statement without a name.
_VERBS: tuple[tuple[str, str | None], ...] = (
    ("MERGE", "(?:WITH +SCHEMA +EVOLUTION +)?INTO "),
    ("UPDATE", ""),
    ("DELETE", "FROM "),
    ("TRUNCATE", "TABLE "),
    ("INSERT", "(?:INTO|OVERWRITE) (?:TABLE )?"),
    ("CREATE", "(?:OR REPLACE )?TABLE (?:IF NOT EXISTS )?"),
    ("ALTER", "TABLE (?:IF EXISTS )?"),
    ("DROP", "TABLE (?:IF EXISTS )?"),
    ("DESCRIBE", "(?:HISTORY|DETAIL|(?:TABLE )?EXTENDED|TABLE) "),
    ("DESC", "(?:HISTORY|DETAIL|(?:TABLE )?EXTENDED|TABLE) "),
    ("OPTIMIZE", ""),
    ("VACUUM", ""),
    ("RESTORE", "(?:TABLE )?"),
    ("SHOW", None),
)
_WITH = re.compile(
    rf"\)\s*(INSERT\s+(?:INTO|OVERWRITE)(?:\s+TABLE)?|MERGE\s+INTO)\s+({_NAME})", re.I
)
# Statements of other systems; their remedies are named where they are refused.
_OTHERS = frozenset(
    (
        *("ANALYZE", "BEGIN", "CACHE", "CALL", "CLEAR", "CLONE", "COMMENT", "COMMIT", "CONVERT"),
        *("COPY", "CREATE", "DROP", "EXECUTE", "FSCK", "GRANT", "LOAD", "MSCK", "REFRESH"),
        *("REORG", "REPLACE", "REVOKE", "ROLLBACK", "SET", "START", "SYNC", "UNCACHE", "UNDROP"),
        *("USE", "ALTER", "INSERT", "MERGE", "TRUNCATE", "SHOW", "UPSERT"),
    )
)
_READING = frozenset(("SHOW", "DESCRIBE"))


@dataclass(frozen=True, slots=True)
class FirstWords:
    """The first words of a statement.

    Attributes:
        verb: First word, in capitals; `DESCRIBE` also for DESC.
        name: Name of the dataset; empty if the statement has none.
        qualifier: Names before it, as they are written; empty for a name alone.
    """

    verb: str
    name: str = ""
    qualifier: str = ""


def head_of(text: str) -> FirstWords | None:
    r"""Return the first words of a statement; None for a query, or something else.

    A statement that is known but has no form of ours has a head without a name.

    >>> head_of("-- nightly\nMERGE INTO `flights` t USING s ON t.id = s.id")
    FirstWords(verb='MERGE', name='flights', qualifier='')
    >>> head_of("SELECT 1")
    """
    first = re.match(rf"{_SPACE}*(\w+)", text)
    if first is None:
        return None
    word = first[1].upper()
    for verb, between in _VERBS:
        if verb != word:
            continue
        named = "DESCRIBE" if verb == "DESC" else verb
        if between is None:
            is_tables = re.match(rf"{_SPACE}+TABLES\b", text[first.end() :], re.I)
            return FirstWords(named, "" if is_tables else "?")
        found = _matched(between, text[first.end() :])
        if found is not None:
            return FirstWords(named, *found)
    if word == "WITH" and (behind := _WITH.search(without_texts(text))):
        return FirstWords(behind[1].split()[0].upper(), _plain(behind[2]))
    return FirstWords(word) if word in _OTHERS else None


def without_texts(text: str) -> str:
    """Return a statement without its texts in quotes and its comments.

    >>> without_texts("SELECT 'VERSION AS OF', `it's` FROM flights -- VERSION AS OF 3")
    "SELECT  , `it's` FROM flights  "
    """
    return PIECES.sub(lambda found: found["name"] or " ", text)


def without_comments(text: str) -> str:
    """Return a statement without its comments.

    >>> without_comments("OPTIMIZE flights WHERE x = '--' -- nightly")
    "OPTIMIZE flights WHERE x = '--'  "
    """
    return PIECES.sub(lambda found: " " if found["comment"] else found[0], text)


def changes(text: str) -> str | None:
    """Return the first word of a statement that changes something; None for one that reads.

    >>> changes("DELETE FROM flights"), changes("SELECT 1"), changes("DESCRIBE HISTORY flights")
    ('DELETE', None, None)
    """
    head = head_of(text)
    return None if head is None or head.verb in _READING else head.verb


def _matched(between: str, text: str) -> tuple[str, str] | None:
    words = between.replace(" +", " ").replace(" ", rf"{_SPACE}+")
    found = re.match(rf"{_SPACE}+{words}((?:{_NAME}\.)*)({_NAME})(?=\W|$)", text, re.I)
    return None if found is None else (_plain(found[2]), found[1].rstrip("."))


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name
