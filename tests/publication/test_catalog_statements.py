"""Statements of the catalog on tables of Delta and Iceberg, which must give the rows that ours give.

The same statements run on Lakebed in tests/spark/catalog/test_statements.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from catalog_statements import CASES, flights
from engine_peers import NEEDS_ENGINES, Peers

# Statements about what only Lakebed has.
OF_LAKEBED = {
    "hidden batch": "batch_id is a column of Lakebed",
    "create": "Lakebed shows derived fields of partitions by name",
    "create by other transforms": "Lakebed shows derived fields of partitions by name",
    "hidden level": "Lakebed shows derived fields of partitions by name",
}


class Difference(NamedTuple):
    """What a format gives instead.

    Attributes:
        found: The rows, or words of the error.
        reason: Why.
    """

    found: list[tuple[Any, ...]] | str
    reason: str


SNAPSHOT = Difference(
    "Cannot find snapshot with ID 1", "a version of Iceberg is a snapshot's random id"
)
DIFFERENCES = {
    "delta": {
        "timestamp": Difference(
            "DELTA_TIMESTAMP_GREATER_THAN_COMMIT",
            "Delta refuses a time after its last commit, since a later commit may still have it",
        ),
        "replace keeps the history": Difference(
            [(1,)], "versions of Delta begin at 0, so version 1 is the replaced table"
        ),
        "add columns": Difference(
            "WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED",
            "Delta has no default for rows that are there",
        ),
    },
    "iceberg": {
        "version": SNAPSHOT,
        "replace keeps the history": SNAPSHOT,
        "create what was shown": Difference(
            "Syntax error at or near 'LIKE'", "the parser of Iceberg's extensions does not know it"
        ),
        "default": Difference(
            "does not support column default value", "Iceberg's catalog of Spark takes no defaults"
        ),
        "add columns": Difference(
            "setting default values in Spark is currently unsupported",
            "Iceberg's catalog of Spark takes no defaults",
        ),
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the first rows."""
    folder = tmp_path_factory.mktemp("flights")
    pq.write_table(flights(range(20)), folder / "flights.parquet")
    return folder


def rows_or_error(
    peers: Peers, folder: Path, format_: str, statements: tuple[str, ...]
) -> list[tuple[Any, ...]] | str:
    """Return the rows of statements as our catalog gives them, or the text of their error."""
    try:
        table = peers.run_on_flights(format_, folder, statements)
    except AssertionError as error:
        return str(error)
    # Tables of the others are in the namespace `flown`, ours in that of the catalog itself.
    columns = [["" if value == "flown" else value for value in one.to_pylist()] for one in table]
    return list(zip(*columns, strict=True))


@pytest.mark.long
@pytest.mark.timeout(1800)
@NEEDS_ENGINES
@pytest.mark.parametrize("name", [name for name in CASES if name not in OF_LAKEBED])
def test_statement_gives_the_rows_of_ours_or_a_named_difference(
    peers: Peers, folder: Path, name: str
) -> None:
    case = CASES[name]

    for format_, differences in DIFFERENCES.items():
        found = rows_or_error(peers, folder, format_, case.statements)

        if name not in differences:
            assert found == case.expected, format_
        elif isinstance(found, str):
            assert str(differences[name].found) in found, format_
        else:
            assert found == differences[name].found, format_


def test_no_difference_is_that_of_both_formats_or_of_no_statement() -> None:
    names = {name: set(differences) for name, differences in DIFFERENCES.items()}
    for name in names["delta"] & names["iceberg"]:
        both = [differences[name].found for differences in DIFFERENCES.values()]
        assert any(isinstance(found, str) for found in both) or both[0] != both[1], name
    assert names["delta"] | names["iceberg"] | OF_LAKEBED.keys() <= CASES.keys()
    for differences in DIFFERENCES.values():
        assert all(one.found != CASES[name].expected for name, one in differences.items())
