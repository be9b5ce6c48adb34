"""Datasets that plateau and kartothek have written, with the truth about them."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lakebed

ROOT = Path(__file__).parent.parent / "data" / "golden-kartothek"
WRITERS = ("plateau-4.6.2", "kartothek-5.3.0")
NAMES = ("empty", "flat", "indexed", "indexed-msgpack", "keys", "updated")

Dnf = list[list[tuple[str, str, Any]]]


@dataclass(frozen=True)
class Query:
    """A question and the ids of the rows that match.

    Attributes:
        dnf: The predicate.
        sql: The same as SQL.
        ids: Sorted.
    """

    dnf: Dnf
    sql: str
    ids: list[int]


@dataclass(frozen=True)
class Golden:
    """A dataset and the truth about it.

    Attributes:
        writer: The library that wrote it.
        name: Of the dataset.
        types: Logical type of each column.
        partition_keys: In order.
        rows: Sorted by id, columns in the order of the schema.
        queries: With their answers.
    """

    writer: str
    name: str
    types: dict[str, str]
    partition_keys: list[str]
    rows: list[dict[str, Any]]
    queries: list[Query]

    @property
    def store(self) -> Path:
        return ROOT / self.writer / "store"

    def open(self) -> lakebed.Dataset:
        return lakebed.open_repository(self.store).open(self.name)


def load(writer: str, name: str) -> Golden:
    folder = ROOT / writer / name
    truth = json.loads((folder / "expected_queries.json").read_text(encoding="utf-8"))
    types: dict[str, str] = truth["types"]
    lines = (folder / "expected.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return Golden(
        writer=writer,
        name=name,
        types=types,
        partition_keys=truth["partition_keys"],
        rows=[{key: value_of(types[key], value) for key, value in row.items()} for row in rows],
        queries=[query_of(one, types) for one in truth["queries"]],
    )


def value_of(kind: str, value: Any) -> Any:
    """Read a value that JSON holds as text."""
    if isinstance(value, list):
        return [value_of(kind, one) for one in value]
    if isinstance(value, str) and kind == "date32":
        return dt.date.fromisoformat(value)
    if isinstance(value, str) and kind.startswith("timestamp"):
        return dt.datetime.fromisoformat(value)
    return value


def query_of(document: dict[str, Any], types: dict[str, str]) -> Query:
    dnf = [
        [(column, op, value_of(types[column], value)) for column, op, value in terms]
        for terms in document["predicates"]
    ]
    assert len(document["ids"]) == document["rows"]
    sql = " OR ".join("(" + " AND ".join(sql_of(*term) for term in terms) + ")" for terms in dnf)
    return Query(dnf, sql, document["ids"])


def sql_of(column: str, op: str, value: Any) -> str:
    """Return a term as SQL; null in a list is a question of its own there."""
    if value is None:
        return f"{column} IS {'NOT ' if op == '!=' else ''}NULL"
    if op not in ("in", "not in"):
        return f"{column} {'=' if op == '==' else op} {literal(value)}"
    present = [literal(one) for one in value if one is not None]
    found = f"{column} {op.upper()} ({', '.join(present)})" if present else "1 = 0"
    return f"({found} OR {column} IS NULL)" if len(present) < len(value) else found


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        return repr(value)
    text = value.isoformat() if isinstance(value, dt.date) else value
    return "'" + text.replace("'", "''") + "'"


@pytest.fixture(params=[f"{writer}/{name}" for writer in WRITERS for name in NAMES])
def golden(request: pytest.FixtureRequest) -> Golden:
    return load(*request.param.split("/"))


@pytest.fixture(params=WRITERS)
def copied_store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a whole store, to be changed."""
    return shutil.copytree(ROOT / request.param / "store", tmp_path / "store")


@pytest.fixture
def golden_of() -> Callable[[str, str], Golden]:
    return load
