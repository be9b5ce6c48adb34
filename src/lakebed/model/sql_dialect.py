"""The dialect of SQL texts that Lakebed reads itself: conditions, values and statements.

It is Spark's. sqlglot parses and prints; how texts in quotes are written is settled here, before it
sees them: two literals side by side are one text, a doubled quote is a quote, and `r'…'` is raw.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from lakebed.errors import PredicateError

if TYPE_CHECKING:
    from sqlglot import expressions as exp

# Possessive, so that no text or comment ends early to make more of a statement fit.
_LITERAL = r"""(?<!\w)[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+\""""
_COMMENT = r"--[^\n]*+|(?>/\*.*?\*/)"
# Names in backticks, texts, and comments: what may hold the quotes and words of the others.
PIECES = re.compile(rf"(?P<name>`[^`]*`)|(?P<text>{_LITERAL})|(?P<comment>{_COMMENT})", re.S)
_TEXTS = re.compile(
    rf"(?P<skipped>`[^`]*`|{_COMMENT}|(?<!\w)[xX]'[^']*')"
    rf"|(?P<foreign>(?<!\w)(?:[bBeEnN]|[uU]&)(?=['\"]))|(?P<texts>(?:{_LITERAL})(?:(?:\s|{_COMMENT})*(?:{_LITERAL}))*)",
    re.S,
)
_ONE_TEXT = re.compile(rf"(?P<text>{_LITERAL})|{_COMMENT}", re.S)
# sqlglot also takes 1E for a number.
NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# A backslash whose sequence the next literal would continue, such as '\1' before '01'.
_OPEN_SEQUENCE = re.compile(r"(?<!\\)(?:\\\\)*\\[0-9uU][0-9a-fA-F]*$")


def parse(text: str, *, as_written: bool = False) -> list[exp.Expr]:
    """Return the trees of the statements in a text; sqlglot raises for one that does not parse.

    Args:
        text: The statements.
        as_written: Keep the names and arguments of calls, of which sqlglot has classes.

    Raises:
        PredicateError: A text in it is of another dialect.
    """
    dialect = _calls_as_written() if as_written else _dialect()
    trees = dialect.parse(_with_plain_texts(text))
    return [tree for tree in trees if tree is not None]


def parse_condition(text: str) -> exp.Expr:
    """Return the tree of a text that stands behind WHERE, or behind `SET x =`.

    sqlglot raises for a text that does not parse, or that is more than one.

    Raises:
        PredicateError: A text in it is of another dialect.
    """
    from sqlglot import expressions as exp
    from sqlglot.errors import ParseError

    parsed = _calls_as_written().parse_into(exp.Condition, _with_plain_texts(text))
    trees: list[exp.Expr] = [tree for tree in parsed if tree is not None]
    if len(trees) != 1:
        raise ParseError(f"{len(trees)} texts")
    return trees[0]


@cache
def _calls_as_written() -> Any:
    """Return the dialect whose calls keep their names and arguments.

    sqlglot has a class for many functions, and takes some of their arguments for others.
    """
    dialect: Any = type(_dialect())
    syntax = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")

    class Expressions(dialect):  # type: ignore[misc]  # of sqlglot
        """Spark's expressions."""

        class Parser(dialect.Parser):  # type: ignore[misc]  # of sqlglot
            """Reads words."""

            FUNCTIONS: ClassVar[dict[str, Any]] = {}
            FUNCTION_PARSERS: ClassVar = {
                name: parser
                for name, parser in dialect.Parser.FUNCTION_PARSERS.items()
                if name in syntax
            }
            NO_PAREN_FUNCTION_PARSERS: ClassVar = {
                name: parser
                for name, parser in dialect.Parser.NO_PAREN_FUNCTION_PARSERS.items()
                if name in ("ANY", "CASE")
            }

    return Expressions()


def to_text(node: Any) -> str:
    """Return a part of a tree as text, which is read back as the same."""
    text: str = node.sql(dialect=_dialect())
    return text


def quoted_words(text: str) -> Iterator[str]:
    """Yield the texts in double quotes, which other systems read as names.

    >>> list(quoted_words('carrier = "UA" -- not "AA"'))
    ['UA']
    """
    for piece in PIECES.finditer(text):
        if (piece["text"] or "").startswith('"'):
            yield piece["text"][1:-1]


@cache
def _dialect() -> Any:
    # Imported on first use: it takes a quarter of a second, which only SQL texts should cost.
    from sqlglot.dialects.databricks import Databricks
    from sqlglot.generators.databricks import DatabricksGenerator

    class LakebedSql(Databricks):
        """Spark's dialect with the statements of Delta."""

        class Tokenizer(Databricks.Tokenizer):
            """Reads words."""

            # Spark has no such word, which may be the name of a column.
            KEYWORDS: ClassVar = {
                word: token
                for word, token in Databricks.Tokenizer.KEYWORDS.items()
                if word != "MATCH_RECOGNIZE"
            }

        class Generator(DatabricksGenerator):
            """Writes trees."""

            # Types by the names that Spark has for them. Others keep their own, which Spark knows or
            # refuses: sqlglot would write TIME as TIMESTAMP, and UUID as STRING.
            TYPE_MAPPING: ClassVar = {
                kind: name
                for kind, name in DatabricksGenerator.TYPE_MAPPING.items()
                if kind.name in ("NULL", "TEXT") or kind.name.startswith("TIMESTAMP")
            }

    return LakebedSql()


def _with_plain_texts(text: str) -> str:
    r"""Return a text whose literals are each one pair of quotes, with backslashes before quotes.

    >>> _with_plain_texts("a = 'it''s' AND b = 'x' 'y' -- don't")
    "a = 'it\\'s' AND b = 'xy' -- don't"
    """

    def plain(found: re.Match[str]) -> str:
        if found["foreign"]:
            raise PredicateError(
                f"{found['foreign']}'…' is not a text of Spark's SQL.",
                hint="Write 'it''s', 'a\\nb' or, without sequences behind backslashes, r'a\\nb'; bytes "
                "are X'0aff'.",
            )
        return found["skipped"] or _plain_text(found["texts"])

    return _TEXTS.sub(plain, text)


def _plain_text(literals: str) -> str:
    contents: list[str] = []
    for found in _ONE_TEXT.finditer(literals):
        if found["text"] is None:
            continue
        content = _content_of(found["text"])
        if contents and not _OPEN_SEQUENCE.search(contents[-1]):
            contents[-1] += content
        else:
            contents.append(content)
    return " ".join(f"'{content}'" for content in contents)


def _content_of(literal: str) -> str:
    """Return what stands between single quotes to mean the same text."""
    if literal[0] in "rR":
        return literal[2:-1].replace("\\", "\\\\").replace("'", "\\'")
    quote, inner = literal[0], literal[1:-1]
    if quote == "'" and "'" not in inner:
        return inner
    parts = re.findall(r"\\.|''|\"\"|.", inner, re.S)
    return "".join(_within_single_quotes(part, quote) for part in parts)


def _within_single_quotes(part: str, quote: str) -> str:
    if part in ("''", '""'):
        part = quote if part[0] == quote else part
    return part if part[0] == "\\" else part.replace("'", "\\'")
