"""Texts in SQL: each way to write one is read as Spark reads it, or refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import PredicateError
from lakebed.model.predicate import Comparison, Op, sql_literal
from lakebed.model.schema import Kind, Primitive
from lakebed.model.sql_dialect import parse, to_text
from lakebed.model.sql_predicates import parse_sql

TYPES = {"s": Primitive(Kind.STRING), "raw": Primitive(Kind.BYTES), "o'k": Primitive(Kind.LONG)}
# As Spark 4.3 reads them, with the settings that it has by default.
READ = {
    "'it''s'": "it's",
    "''''": "'",
    "''": "",
    r"'\\'''": "\\'",
    '"it""s"': 'it"s',
    '"it\'s"': "it's",
    "\"it''s\"": "it''s",
    '\'say ""x""\'': 'say ""x""',
    "'a' 'b'": "ab",
    "'a'\n-- c 'x'\n/* 'y' */ \"b\"": "ab",
    "'a' '' 'b'": "ab",
    r"'a\nb'": "a\nb",
    r"'a\tb'": "a\tb",
    r"'a\qb'": "aqb",
    r"'a\\b'": "a\\b",
    r"'a\'b'": "a'b",
    r"'a\%b\_c'": r"a\%b\_c",
    r"'\101'": "A",
    r"'\u0041'": "A",
    r"'\U0001F600'": "\U0001f600",
    r"r'a\nb'": r"a\nb",
    r"R'a\'": "a\\",
    'r"it\'s"': "it's",
    r"r'\'''": "\\",
    "'-- no comment /* '": "-- no comment /* ",
    "'?'": "?",
}


@pytest.mark.parametrize(("literal", "text"), READ.items())
def test_a_text_is_read_as_spark_reads_it(literal: str, text: str) -> None:
    wanted = Comparison("s", Op.EQ, text)

    assert parse_sql(f"s = {literal}", TYPES) == wanted
    assert parse_sql(f"s = ({literal}) -- it's a comment", TYPES) == wanted
    assert parse_sql(f"s = {literal} AND s = /* it's */ 'x'", TYPES).parts[0] == wanted


@pytest.mark.parametrize(
    "literal", ["E'a'", "e'a'", "b'a'", 'B"a"', "N'a'", "U&'a'", "$$a$$", "_utf8'a'"]
)
def test_a_text_of_another_dialect_is_refused(literal: str) -> None:
    with pytest.raises(PredicateError):
        parse_sql(f"s = {literal}", TYPES)


def test_the_error_for_a_foreign_text_names_it() -> None:
    with pytest.raises(PredicateError, match=r"E'…' is not a text of Spark's SQL"):
        parse_sql(r"s = E'a\nb'", TYPES)


def test_sequences_do_not_begin_in_one_literal_and_end_in_the_next() -> None:
    with pytest.raises(PredicateError, match="CONCAT"):
        parse_sql(r"s = '\1' '01'", TYPES)


@pytest.mark.parametrize("text", ["s = 'a' /* 'b' */, /* c */ 'd'", "raw = X'0A' 'b'", "s = 'a''"])
def test_texts_are_joined_only_where_nothing_is_between_them(text: str) -> None:
    with pytest.raises(PredicateError):
        parse_sql(text, TYPES)


def test_names_and_bytes_keep_their_quotes() -> None:
    assert parse_sql("`o'k` = 1 AND raw = X'0A'", TYPES).parts == (
        Comparison("o'k", Op.EQ, 1),
        Comparison("raw", Op.EQ, b"\n"),
    )


def test_a_second_text_is_refused() -> None:
    with pytest.raises(PredicateError, match="incomplete or wrong"):
        parse_sql("s = 'a'; s = 'b'", TYPES)


def test_double_quotes_around_the_name_of_a_column_are_refused() -> None:
    with pytest.raises(PredicateError, match="may be a text, as in Spark, or the column 'S'"):
        parse_sql("s = 'a' OR s = \"S\"", TYPES)

    assert parse_sql('s = \'"s"\' -- "s"', TYPES) == Comparison("s", Op.EQ, '"s"')


# All that sqlglot reads as types; Spark's own, or refused by Spark by this name.
_TYPES = """
    BIGINT BINARY BIT BLOB BOOLEAN BYTEA DATE DATETIME DECIMAL(9,2) DOUBLE FLOAT HUGEINT INET INT INTERVAL
    JSONB LONG LONGTEXT MEDIUMBLOB SHORT SMALLINT STRING TIME TIME(6) TIMESTAMP TIMESTAMP_LTZ TIMESTAMP_NTZ
    TIMETZ TINYINT UINT UUID VARBINARY VARCHAR(3) VARIANT VOID ARRAY<TIME> MAP<STRING,UUID> STRUCT<a:TIME>
""".split()


@pytest.mark.parametrize("name", _TYPES)
def test_each_type_is_written_as_a_text_that_is_read_back(name: str) -> None:
    """What Spark gets is this text: a TIME that became a TIMESTAMP would be another value."""
    (tree,) = parse(f"SELECT CAST(x AS {name})")

    assert parse(to_text(tree)) == [tree]


# Without the control characters for which sqlglot and Spark have no common sequence.
_TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")) | st.sampled_from("\n\t\\'\"%_r`-"))


@given(_TEXTS)
def test_each_text_has_literals_that_are_read_back(text: str) -> None:
    doubled = "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
    for literal in (sql_literal(text), doubled):
        assert parse_sql(f"s = {literal}", TYPES) == Comparison("s", Op.EQ, text)
        (tree,) = parse(f"SELECT {literal}")
        assert tree.expressions[0].name == text
        (again,) = parse(to_text(tree))
        assert again.expressions[0].name == text
