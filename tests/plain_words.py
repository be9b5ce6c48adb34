"""Constructions that our English avoids, and a search for them.

`python tests/plain_words.py src/lakebed/state docs/views.md` prints a line for each.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# A summary begins with a verb or names the thing with a noun.
HEADLESS = re.compile(
    r"(?:Who|What|Where|Which|Whose|Whoever|Whatever|Whether|Of|That|Those|From|How|When|If|All that)\b"
)
# The line of an argument makes sense alone; "Whether …" and "How long …" do.
STUB = re.compile(r"(?:Of|What|Where|Which|Whose|Who|That|Those|All that)\b(?! is,)")
CONSTRUCTIONS = {
    # "There is no dataset" denies that one exists; "5 is no name" should negate the verb.
    "is no X": re.compile(
        r"(?<!there )(?<!There )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|one\b)\w+"
    ),
    "tell/say": re.compile(r"\b(?:tell|tells|told|telling|say|says|said|saying)\b", re.IGNORECASE),
    "nobody/somebody": re.compile(
        r"\b(?:nobody|somebody|whoever|whatever|anew|thereby)\b", re.IGNORECASE
    ),
}
_CODE = re.compile(
    r"^```.*?^```$|``[^`]+``|`[^`\n]+`|\{(?:[^{}]|\{[^{}]*\})*\}", re.MULTILINE | re.DOTALL
)
_NOT_PROSE = re.compile(
    r"^```.*?^```$|<!--.*?-->|`[^`\n]+`|\]\([^)\s]*\)|^::: .*$|https?://\S+",
    re.MULTILINE | re.DOTALL,
)
# From Python 3.12 on an f-string is many tokens, and from 3.14 on a t-string.
_STARTS, _ENDS = (
    {
        getattr(tokenize, f"{kind}STRING_{edge}")
        for kind in "FT"
        if hasattr(tokenize, f"{kind}STRING_{edge}")
    }
    for edge in ("START", "END")
)


class Use(NamedTuple):
    """A construction that stands somewhere."""

    construction: str
    path: Path
    line: int
    text: str


def uses_in_source(path: Path) -> Iterator[Use]:
    """Yield the constructions in the docstrings, comments and texts of a module."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _uses_in_docstring(path, node)
    for line, text in _list_texts(source):
        yield from _uses_in_prose(path, line, _CODE.sub(_blank, text))


def _list_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield each comment and string literal with its line; an f-string comes whole, as one text."""
    lines = source.splitlines(keepends=True)
    begin, depth = (1, 0), 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in _STARTS:
            begin = token.start if depth == 0 else begin
            depth += 1
        elif token.type in _ENDS:
            depth -= 1
            if depth == 0:
                yield begin[0], _cut(lines, begin, token.end)
        elif depth == 0 and token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def _cut(lines: list[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    part = lines[begin[0] - 1 : end[0]]
    part[-1] = part[-1][: end[1]]
    part[0] = part[0][begin[1] :]
    return "".join(part)


def _uses_in_docstring(path: Path, node: ast.AST) -> Iterator[Use]:
    docstring = ast.get_docstring(node)
    if not docstring:
        return
    line = node.body[0].lineno
    lines = docstring.splitlines()
    if HEADLESS.match(lines[0]):
        yield Use("headless summary", path, line, lines[0])
    for offset, text in enumerate(lines):
        argument = re.match(r"    \*{0,2}\w+: (.*)", text)
        if argument and STUB.match(argument[1]):
            yield Use("stub argument", path, line + offset, text.strip())


def uses_in_page(path: Path) -> Iterator[Use]:
    """Yield the constructions in the prose of a page."""
    yield from _uses_in_prose(path, 1, _NOT_PROSE.sub(_blank, path.read_text(encoding="utf-8")))


def _uses_in_prose(path: Path, first_line: int, prose: str) -> Iterator[Use]:
    lines = prose.split("\n")
    for construction, pattern in CONSTRUCTIONS.items():
        for found in pattern.finditer(prose):
            offset = prose.count("\n", 0, found.start())
            yield Use(construction, path, first_line + offset, lines[offset].strip())


def _blank(found: re.Match[str]) -> str:
    return "·" + "\n" * found[0].count("\n")


def uses(path: Path) -> Iterator[Use]:
    """Yield the constructions in a module or page, or in all of a folder."""
    if path.is_dir():
        for inside in sorted([*path.rglob("*.py"), *path.rglob("*.md")]):
            yield from uses(inside)
    elif path.suffix == ".py":
        yield from uses_in_source(path)
    else:
        yield from uses_in_page(path)


if __name__ == "__main__":
    for use in (use for name in sys.argv[1:] for use in uses(Path(name))):
        sys.stdout.write(f"{use.path}:{use.line}: {use.construction}: {use.text}\n")
