"""Functions of regular expressions, which are literals."""

from __future__ import annotations

import re

from lakebed.model.formulas.functions_base import FunctionCall, SqlFunction, declarer, taken
from lakebed.model.formulas.patterns import Pattern, read_pattern
from lakebed.model.formulas.typed import BOOLEAN, INT, TEXT, Typed, duck_text, joined
from lakebed.model.schema import ListOf, Type

declare = declarer("Patterns")

_AT_LINE_END = r"regexp_matches({0}, '[\n\r\x{{85}}\x{{2028}}\x{{2029}}]\z')"


def _pattern(value: Typed, call: FunctionCall) -> Pattern:
    if not isinstance(value.constant, str):
        raise call.refused("the pattern is not a literal")
    return read_pattern(value.constant)


def _matched(template: str, by_python: str, pattern: Pattern, *, always: bool = False) -> str:
    """Return an expression of RE2; by Python for texts where it may differ from Java.

    Args:
        template: The expression of RE2.
        by_python: The expression of Python.
        pattern: The pattern.
        always: Whether RE2 is never asked.
    """
    if always:
        return by_python
    return (
        f"CASE WHEN {_AT_LINE_END} THEN {by_python} ELSE {template} END"
        if pattern.has_end
        else template
    )


def _literal(text: str) -> str:
    """Return a literal in a template."""
    return duck_text(text).replace("{", "{{").replace("}", "}}")


def _like(call: FunctionCall) -> Typed:
    text, given = call.values(2)
    pattern = _pattern(given, call)
    template = _matched(
        f"regexp_matches({{0}}, {_literal(pattern.re2)})",
        f"lakebed_pattern_found({{0}}, {_literal(pattern.python)})",
        pattern,
    )
    return joined(template, [taken(text, "text", call)], BOOLEAN)


def _extract(call: FunctionCall) -> Typed:
    text, given, *rest = call.values(2, 3)
    pattern = _pattern(given, call)
    number = _group(rest, pattern, call)
    template = _matched(
        f"regexp_extract({{0}}, {_literal(pattern.re2)}, {number})",
        f"lakebed_pattern_group({{0}}, {_literal(pattern.python)}, {number})",
        pattern,
        always=pattern.repeats_empty or number > 9,
    )
    return joined(template, [taken(text, "text", call)], TEXT)


def _group(rest: list[Typed], pattern: Pattern, call: FunctionCall) -> int:
    number = rest[0].constant if rest else 1
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= pattern.groups:
        raise call.refused(f"the number of a group is a literal from 0 to {pattern.groups}")
    return number


def _repeated_pattern(value: Typed, call: FunctionCall) -> Pattern:
    """Return a pattern that is looked for again and again.

    Java finds empty texts between the two halves of a letter beyond 16 bits, too.
    """
    pattern = _pattern(value, call)
    if pattern.may_be_empty:
        raise call.refused("the pattern matches the empty text")
    return pattern


def _by_python(function: str, gives: Type) -> SqlFunction:
    """Return a function of a text and a pattern, which Python computes."""

    def call_it(call: FunctionCall) -> Typed:
        text, given = call.values(2)
        pattern = _repeated_pattern(given, call)
        sql = f"lakebed_pattern_{function}({{0}}, {_literal(pattern.python)})"
        return joined(sql, [taken(text, "text", call)], gives)

    return call_it


def _extract_all(call: FunctionCall) -> Typed:
    text, given, *rest = call.values(2, 3)
    pattern = _repeated_pattern(given, call)
    number = _group(rest, pattern, call)
    sql = f"lakebed_pattern_groups({{0}}, {_literal(pattern.python)}, {number})"
    return joined(sql, [taken(text, "text", call)], ListOf(TEXT))


def _instr(call: FunctionCall) -> Typed:
    text, given, *rest = call.values(2, 3)
    pattern = _pattern(given, call)
    if rest and rest[0].constant != 0:
        raise call.refused("only of the whole pattern")
    sql = f"lakebed_pattern_place({{0}}, {_literal(pattern.python)})"
    return joined(sql, [taken(text, "text", call)], INT)


_REFERENCE = re.compile(r"\\(.)|\$(\d)|([\\$])", re.DOTALL)


def _replace(call: FunctionCall) -> Typed:
    text, given, new, *rest = call.values(3, 4)
    pattern = _repeated_pattern(given, call)
    if rest and rest[0].constant != 1:
        raise call.refused("only from the start of the text")
    if not isinstance(new.constant, str):
        raise call.refused("the new text is not a literal")
    if pattern.groups > 9:
        raise call.refused("the pattern has more than 9 groups")

    def referred(found: re.Match[str]) -> str:
        if found[3] or (found[2] and int(found[2]) > pattern.groups):
            raise call.refused("the new text refers to no group")
        return "\\" + found[2] if found[2] else "\\\\" if found[1] == "\\" else found[1]

    replacement = _REFERENCE.sub(referred, new.constant)
    template = _matched(
        f"regexp_replace({{0}}, {_literal(pattern.re2)}, {_literal(replacement)}, 'g')",
        f"lakebed_pattern_replaced({{0}}, {_literal(pattern.python)}, {_literal(replacement)})",
        pattern,
        always=pattern.repeats_empty or pattern.has_end,
    )
    return joined(template, [taken(text, "text", call)], TEXT)


def _split(call: FunctionCall) -> Typed:
    text, given, *rest = call.values(2, 3)
    # Without a pattern, Spark itself splits between the letters.
    pattern = _repeated_pattern(given, call) if given.constant != "" else read_pattern("")
    limit = rest[0].constant if rest else -1
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise call.refused("the limit is not a literal")
    sql = f"lakebed_pattern_split({{0}}, {_literal(pattern.python)}, {limit})"
    return joined(sql, [taken(text, "text", call)], ListOf(TEXT))


_NOTE = "literal patterns, of what Java, RE2 and Python read alike"
declare("regexp_like rlike regexp", _like, _NOTE)
declare("regexp_extract", _extract, _NOTE)
declare("regexp_extract_all", _extract_all, _NOTE)
declare("regexp_replace", _replace, f"{_NOTE}; a literal replacement")
declare("regexp_count", _by_python("count", INT), _NOTE)
declare("regexp_substr", _by_python("part", TEXT), _NOTE)
declare("regexp_instr", _instr, _NOTE)
declare("split", _split, _NOTE)
