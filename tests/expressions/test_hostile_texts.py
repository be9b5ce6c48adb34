"""No text of a condition reads a file, opens a connection, changes a setting or raises an unnamed error."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from random_expressions import Expressions, make_rows

from lakebed.errors import LakebedError, PredicateError
from lakebed.model.arrow_types import type_from_arrow
from lakebed.model.formulas.computation import evaluate
from lakebed.model.formulas.functions import FUNCTIONS
from lakebed.model.sql_predicates import parse_sql

TYPES = {field.name: type_from_arrow(field.type) for field in make_rows().schema}
PIECES = (
    "( ) ' \" ` -- /* */ ; || :: -> [ ] { } CASE WHEN END NOT IN NULL INTERVAL \\ \0 é 1e999 ? :x "
    "${x} SELECT @@x 0x1 .. % <=>"
).split(" ")


@pytest.mark.parametrize(
    "text",
    [
        "read_csv('/etc/passwd') = 1",
        "read_text('/etc/passwd') = s1",
        "s1 = (SELECT content FROM read_text('/etc/passwd'))",
        "s1 IN (SELECT 1)",
        "getenv('HOME') = s1",
        "current_setting('threads') = s1",
        "duckdb_settings() = s1",
        "l1 = error('x')",
        "lakebed_upper(s1) = 'A'",
        "spark_upper(s1) = 'A'",
        "l1 > 1; ATTACH 'x'",
        "query('SELECT 1') = 1",
        "load_extension('httpfs') = 1",
        "reflect('java.lang.System', 'exit', '1') = 1",
        "java_method('java.lang.System', 'getenv', 'HOME') = s1",
        "input_file_name() = s1",
        "rand() > 0.5",
        "uuid() = s1",
    ],
)
def test_what_reaches_outside_the_row_is_refused(text: str) -> None:
    with pytest.raises(PredicateError):
        parse_sql(text, TYPES)


@pytest.mark.parametrize(
    "sql",
    [
        "(SELECT count(*) FROM read_text('{file}'))",
        "(SELECT count(*) FROM '{file}')",
        "getenv('HOME')",
        "(SELECT count(*) FROM sys)",
    ],
)
def test_the_engine_itself_opens_nothing(sql: str, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a\n1\n")
    with pytest.raises(PredicateError):
        evaluate([sql.format(file=file)], {"l1": pa.array([1])})


def test_broken_texts_give_named_errors() -> None:
    expressions, chance = Expressions(11), random.Random(5)
    refused = []
    for text in [
        "l1 = 1E",
        "l1 = 1e+",
        "-1E > d1",
        *(_broken(expressions, chance) for _ in range(400)),
    ]:
        try:
            parse_sql(text, TYPES)
        except LakebedError as exc:
            refused.append(exc)
    assert len(refused) > 100
    assert all(error.hint for error in refused)


def _broken(expressions: Expressions, chance: random.Random) -> str:
    text = expressions.condition().text
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(text) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            text = text[:place] + chance.choice(PIECES) + text[place:]
        elif kind == 1:
            text = text[:place] + text[place + chance.randrange(1, 4) :]
        elif kind == 2:
            text = f"{chance.choice(sorted(FUNCTIONS))}({text}, NULL)"
        else:
            text = text[:place] + text[chance.randrange(len(text) + 1) :]
    return text
