"""Partition strategies as short text: `date(ts) as dt, hash(user_id, 64), carrier`.

::

    strategy  = function {"," function}
    function  = (field | name "(" field {"," argument} ")") ["as" field]
    argument  = value | word "=" value
    value     = number | 'text' | word | TRUE | FALSE | "[" [value {"," value}] "]"
    field     = word | `any text`      word: letters of any alphabet, digits, "_", "."
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lakebed.errors import PartitionSpecError
from lakebed.model.partition.function import PartitionFunction
from lakebed.model.partition.registry import arguments_by_name, build_function

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![\w.])
      | (?P<word>[\w.]+)
      | (?P<text>'(?:[^'\\]|\\.|'')*')
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<sign>[()\[\],=])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
_BOOLEANS = {"true": True, "false": False}
_END = "end"


class _Token(NamedTuple):
    kind: str
    text: str
    start: int


def parse_functions(text: str) -> tuple[PartitionFunction, ...]:
    """Read the short form.

    Raises:
        PartitionSpecError: The text is not of that form; the message names the place.
    """
    return _Parser(text).strategy()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._tokenize())
        self._position = 0

    def _tokenize(self) -> list[_Token]:
        tokens, start = [], 0
        end = len(self._text.rstrip())
        while start < end:
            match = _TOKEN.match(self._text, start)
            if match is None or match.lastgroup is None:
                raise self._error(start)
            tokens.append(_Token(match.lastgroup, match[match.lastgroup], start))
            start = match.end()
        return [*tokens, _Token(_END, "", end)]

    def _error(self, start: int) -> PartitionSpecError:
        place = f"at {self._text[start:].strip()[:40]!r}" if self._text[start:].strip() else "here"
        return PartitionSpecError(
            f"Cannot read the partition functions {self._text!r} {place}.",
            hint="Write them as 'date(time_hour) as dt, hash(user_id, 64)'; put a name with other "
            "characters than letters, digits and '_' into backticks, as in `air time`.",
        )

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self, *wanted: str) -> _Token:
        """Return the next token, which must be of one of these kinds, or one of these signs."""
        token = self._next
        if token.kind not in wanted and not (token.kind == "sign" and token.text in wanted):
            raise self._error(token.start)
        self._position += token.kind != _END
        return token

    def _find(self, sign: str) -> bool:
        """Consume a sign if it is next, and return whether it was."""
        is_next = self._next == ("sign", sign, self._next.start)
        self._position += is_next
        return is_next

    def strategy(self) -> tuple[PartitionFunction, ...]:
        functions = [self._function()]
        while self._find(","):
            functions.append(self._function())
        self._take(_END)
        return tuple(functions)

    def _function(self) -> PartitionFunction:
        head = self._take("word", "number", "quoted")
        if not self._find("("):
            return build_function("identity", _field(head), (), self._name())
        first = self._take("word", "number", "quoted")
        given: list[object] = []
        if head.text == "bucket" and first.kind == "number" and self._find(","):
            given, first = [_number(first.text)], self._take("word", "number", "quoted")
        source = _field(first)
        named: dict[str, object] = {}
        while self._find(","):
            is_named = self._next.kind == "word" and self._tokens[self._position + 1].text == "="
            if is_named:
                key = self._take("word").text
                self._take("=")
                named[key] = self._value()
            elif named:
                raise self._error(self._next.start)
            else:
                given.append(self._value())
        self._take(")")
        arguments = arguments_by_name(head.text, source, given) | named
        return build_function(head.text, source, arguments, self._name())

    def _name(self) -> str | None:
        if self._next.kind != "word" or self._next.text.lower() != "as":
            return None
        self._take("word")
        return _field(self._take("word", "number", "quoted"))

    def _value(self) -> object:
        if self._find("["):
            return self._list()
        token = self._take("number", "text", "word")
        if token.kind == "number":
            return _number(token.text)
        if token.kind == "text":
            return _ESCAPE.sub(lambda match: match[1] or "'", token.text[1:-1])
        return _BOOLEANS.get(token.text.lower(), token.text)

    def _list(self) -> tuple[object, ...]:
        values: list[object] = []
        if self._find("]"):
            return ()
        values.append(self._value())
        while self._find(","):
            values.append(self._value())
        self._take("]")
        return tuple(values)


def _field(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)
