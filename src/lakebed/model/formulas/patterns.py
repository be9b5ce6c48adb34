"""Regular expressions of Java, as those of RE2 and of Python that match the same.

What the three read in different ways is refused by name: lookaround, references back, possessive
repeats, classes of Unicode, word boundaries, flags in the middle.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from lakebed.errors import PredicateError

# What ends a line in Java, which its `.` does not match and its `$` looks behind.
_LINE_ENDS_OF_CLASS: Final = "\\n\\r\\x85\\u2028\\u2029"

_CLASSES: Final = {
    "d": "0-9",
    "w": "a-zA-Z_0-9",
    "s": " \\t\\n\\x0b\\f\\r",
}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_MOST_REPEATS: Final = 1000  # of RE2


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of Java in the words of others.

    Attributes:
        re2: As RE2 reads it, where `$` is the very end of a text.
        python: As Python reads it, with the meaning of Java everywhere.
        groups: Number of its groups.
        has_end: Whether `$` is in it, which a line end at the end of a text may follow.
        may_be_empty: Whether it matches the empty text.
        repeats_empty: Whether it repeats what matches the empty text: groups differ then.
    """

    re2: str
    python: str
    groups: int
    has_end: bool
    may_be_empty: bool
    repeats_empty: bool


@lru_cache(maxsize=256)
def read_pattern(text: str) -> Pattern:
    """Return a pattern of Java as one of RE2 and of Python.

    Raises:
        PredicateError: It has a part whose meaning differs among them.
    """
    reader = _Reader(text)
    parts = reader.read_choice()
    if reader.at < len(text):
        raise reader.refused("a ) without (")
    return Pattern(
        re2=parts.re2,
        python=parts.python,
        groups=reader.groups,
        has_end=reader.has_end,
        may_be_empty=parts.may_be_empty,
        repeats_empty=reader.repeats_empty,
    )


@dataclass(frozen=True, slots=True)
class _Part:
    re2: str
    python: str
    may_be_empty: bool


class _Reader:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.groups = 0
        self.has_end = self.repeats_empty = False
        self.any_case = self.any_line = False
        self._depth = 0
        if text.startswith("(?") and (end := text.find(")")) > 2 and set(text[2:end]) <= set("is"):
            self.any_case, self.any_line = "i" in text[2:end], "s" in text[2:end]
            self.at = end + 1

    def refused(self, reason: str) -> PredicateError:
        return PredicateError(
            f"The pattern {self.text!r} has {reason}, which is not computed without Spark.",
            hint="Write it in another way, or compute it in Spark.",
        )

    def peek(self, text: str) -> bool:
        return self.text.startswith(text, self.at)

    def next(self) -> str:
        if self.at >= len(self.text):
            raise self.refused("an end in the middle")
        self.at += 1
        return self.text[self.at - 1]

    def read_choice(self) -> _Part:
        branches = [self.read_sequence()]
        while self.peek("|"):
            self.at += 1
            branches.append(self.read_sequence())
        return _Part(
            "|".join(branch.re2 for branch in branches),
            "|".join(branch.python for branch in branches),
            any(branch.may_be_empty for branch in branches),
        )

    def read_sequence(self) -> _Part:
        parts = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self.read_repeated())
        return _Part(
            "".join(part.re2 for part in parts),
            "".join(part.python for part in parts),
            all(part.may_be_empty for part in parts),
        )

    def read_repeated(self) -> _Part:
        start = self.at
        part = self.read_one()
        is_mark = self.text[start] in "^$" or self.text[start : start + 2] in ("\\A", "\\z")
        repeat = self.read_repeat()
        if not repeat:
            return part
        if is_mark:
            raise self.refused("a repeat of a place")
        if part.may_be_empty and repeat[0] != "?":
            self.repeats_empty = True
        if self.read_repeat() or self.peek("+"):
            raise self.refused("a repeat of a repeat")
        is_empty = part.may_be_empty or repeat[0] in "*?" or repeat.startswith(("{0,", "{0}"))
        return _Part(part.re2 + repeat, part.python + repeat, is_empty)

    def read_repeat(self) -> str:
        if self.at >= len(self.text) or self.text[self.at] not in "*+?{":
            return ""
        repeat = self.next()
        if repeat == "{":
            end = self.text.find("}", self.at)
            least, comma, most = self.text[self.at : end].partition(",")
            numbers = [number for number in (least, most) if number or number is least]
            if end < 0 or not all(n.isascii() and n.isdigit() for n in numbers):
                raise self.refused("a { that starts no repeat")
            if any(int(number) > _MOST_REPEATS for number in numbers):
                raise self.refused(f"more than {_MOST_REPEATS} repeats")
            if comma and most and int(most) < int(least):
                raise self.refused("a repeat of fewer times at most than at least")
            repeat += self.text[self.at : end + 1]
            self.at = end + 1
        if self.peek("+"):
            raise self.refused("a possessive repeat")
        if self.peek("?"):
            repeat += self.next()
        return repeat

    def read_one(self) -> _Part:
        letter = self.next()
        if letter == "(":
            return self.read_group()
        if letter == "[":
            text = self.read_class()
            return _Part(text, text, may_be_empty=False)
        if letter == ".":
            text = "[\\s\\S]" if self.any_line else f"[^{_LINE_ENDS_OF_CLASS}]"
            re2 = "(?s:.)" if self.any_line else "[^\\n\\r\\x{85}\\x{2028}\\x{2029}]"
            return _Part(re2, text, may_be_empty=False)
        if letter == "^":
            return _Part("\\A", "\\A", may_be_empty=True)
        if letter == "$":
            self.has_end = True
            line_end = "(?:\\r\\n|[\\r\\x85\\u2028\\u2029]|(?<!\\r)\\n)?"
            return _Part("\\z", f"(?={line_end}\\Z)", may_be_empty=True)
        if letter == "\\":
            return self.read_escape()
        if letter in "*+?{":
            raise self.refused(f"{letter} that repeats nothing")
        return self.literal(letter)

    def literal(self, letter: str) -> _Part:
        if self.any_case and letter.isascii() and letter.isalpha():
            text = f"[{letter.lower()}{letter.upper()}]"
        else:
            text = _escaped(letter)
        return _Part(text, text, may_be_empty=False)

    def read_escape(self) -> _Part:
        letter = self.next()
        if letter.lower() in _CLASSES:
            sign = "^" if letter.isupper() else ""
            text = f"[{sign}{_CLASSES[letter.lower()]}]"
            return _Part(text, text, may_be_empty=False)
        if letter in "Az":
            return _Part(f"\\{letter}", "\\A" if letter == "A" else "\\Z", may_be_empty=True)
        return self.literal(self.escaped_letter(letter))

    def escaped_letter(self, letter: str) -> str:
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter in "xu":
            size = 2 if letter == "x" else 4
            digits = self.text[self.at : self.at + size]
            if len(digits) == size and all(digit in string.hexdigits for digit in digits):
                self.at += size
                if not 0xD800 <= int(digits, 16) < 0xE000:
                    return chr(int(digits, 16))
        if letter.isascii() and not letter.isalnum():
            return letter
        raise self.refused(f"\\{letter}")

    def read_group(self) -> _Part:
        opening = "("
        if self.peek("?:"):
            self.at += 2
            opening = "(?:"
        elif self.peek("?"):
            raise self.refused("a group that begins with (?")
        else:
            self.groups += 1
        self._depth += 1
        if self._depth > 50:
            raise self.refused("more than 50 groups in each other")
        inner = self.read_choice()
        self._depth -= 1
        if not self.peek(")"):
            raise self.refused("a ( without )")
        self.at += 1
        return _Part(f"{opening}{inner.re2})", f"{opening}{inner.python})", inner.may_be_empty)

    def read_class(self) -> str:
        text = "["
        if self.peek("^"):
            self.at += 1
            text += "^"
        if self.peek("]"):
            raise self.refused("an empty class, or ] at its start")
        first = True
        while not self.peek("]"):
            letter = self.next()
            if letter == "[" or (letter == "&" and self.peek("&")):
                raise self.refused("a class in a class")
            if letter == "^" and first:
                raise self.refused("^^")
            first = False
            if letter == "\\":
                escape = self.next()
                if escape in _CLASSES:
                    text += _CLASSES[escape]
                    if self.peek("-") and not self.peek("-]"):
                        raise self.refused("a range from a class")
                    continue
                if escape.lower() in _CLASSES:
                    raise self.refused(f"\\{escape} in a class")
                letter = self.escaped_letter(escape)
            text += self.read_range(letter)
        self.at += 1
        return text + "]"

    def read_range(self, letter: str) -> str:
        if not self.peek("-") or self.peek("-]"):
            return "".join(_escaped(one) for one in self.cases(letter))
        self.at += 1
        last = self.next()
        if last == "\\":
            escape = self.next()
            if escape.lower() in _CLASSES:
                raise self.refused("a range to a class")
            last = self.escaped_letter(escape)
        if last == "[" or last < letter:
            raise self.refused("a range of no letters")
        ranges = [(letter, last)]
        if self.any_case:
            ranges += _other_cases(letter, last)
        return "".join(f"{_escaped(low)}-{_escaped(high)}" for low, high in ranges)

    def cases(self, letter: str) -> list[str]:
        if self.any_case and letter.isascii() and letter.isalpha():
            return [letter.lower(), letter.upper()]
        return [letter]


def _other_cases(low: str, high: str) -> list[tuple[str, str]]:
    found = []
    pairs: tuple[tuple[str, str, Callable[[str], str]], ...]
    pairs = (("a", "z", str.upper), ("A", "Z", str.lower))
    for first, last, change in pairs:
        start, end = max(low, first), min(high, last)
        if start <= end:
            found.append((change(start), change(end)))
    return found


def _escaped(letter: str) -> str:
    """Return a letter as both read it, within a class and outside."""
    if letter.isalnum() or letter in " _<>=!,;:'\"%@~`/" or (ord(letter) > 127):
        return letter
    if letter in string.punctuation:
        return f"\\{letter}"
    return f"\\x{ord(letter):02x}"
