"""A lake to ask, and a way to ask it."""

import datetime as dt
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import click.testing
import pyarrow as pa
import pytest
from open_files import files_left_open, open_files

import lakebed
from lakebed import by
from lakebed.cli import main

SCHEMA = pa.schema(
    [
        pa.field("time_hour", pa.timestamp("us", tz="UTC"), nullable=False),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("delay", pa.float64()),
        ("price", pa.decimal128(8, 2)),
        ("day", pa.date32()),
    ]
)

ROWS: list[dict[str, Any]] = [
    {
        "time_hour": dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC),
        "carrier": "UA",
        "flight": 1545,
        "delay": 2.5,
        "price": Decimal("10.25"),
        "day": dt.date(2013, 1, 1),
    },
    {
        "time_hour": dt.datetime(2013, 1, 1, 6, tzinfo=dt.UTC),
        "carrier": 'a "quoted", name\nof two lines',
        "flight": None,
        "delay": float("nan"),
        "price": None,
        "day": None,
    },
    {
        "time_hour": dt.datetime(2013, 1, 2, 7, 30, 0, 250_000, tzinfo=dt.UTC),
        "carrier": None,
        "flight": -1,
        "delay": float("-inf"),
        "price": Decimal("-0.01"),
        "day": dt.date(1969, 12, 31),
    },
    {
        "time_hour": dt.datetime(2013, 1, 2, 8, tzinfo=dt.UTC),
        "carrier": "",
        "flight": 7,
        "delay": None,
        "price": Decimal("1.00"),
        "day": dt.date(2013, 1, 2),
    },
]


class Cli:
    """Runs command lines in this process."""

    def __call__(
        self, *arguments: object, exit_code: int | None = 0, stdin: str | bytes | None = None
    ) -> click.testing.Result:
        before = set(open_files())
        result = click.testing.CliRunner().invoke(
            main, [str(one) for one in arguments], input=stdin, prog_name="lakebed"
        )
        if result.exit_code == 0:  # else the traceback holds what was being read
            left = files_left_open(before)
            assert not left, f"{[str(one) for one in arguments]} leaves open: {left}"
        if exit_code is not None:
            assert result.exit_code == exit_code, result.output + repr(result.exception)
        return result

    def json(self, *arguments: object, **options: Any) -> Any:
        return json.loads(self(*arguments, "-o", "json", **options).stdout)

    def error(self, *arguments: object, **options: Any) -> dict[str, str]:
        """Return the error of a command line that must fail."""
        result = self(*arguments, "-o", "json", exit_code=None, **options)
        assert result.exit_code != 0, result.stdout
        assert result.stdout == ""
        document = json.loads(result.stderr.splitlines()[-1])
        assert set(document) == {"error"}
        assert set(document["error"]) == {"code", "message", "hint"}
        return {**document["error"], "exit_code": result.exit_code}


@pytest.fixture
def cli() -> Cli:
    return Cli()


@pytest.fixture
def lake(tmp_path: Path) -> lakebed.Repository:
    return lakebed.open_repository(tmp_path / "lake")


@pytest.fixture(scope="session")
def lake_of_flights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that is made once, to be copied."""
    root = tmp_path_factory.mktemp("flights")
    flights = lakebed.open_repository(root).create(
        "flights",
        lakebed.DatasetDescriptor(
            schema=SCHEMA,
            partition_by=[by.date("time_hour", name="dt")],
            properties={"owner": "ops"},
        ),
    )
    flights.append(ROWS, run="first")
    return root


@pytest.fixture
def flights(lake_of_flights: Path, lake: lakebed.Repository, tmp_path: Path) -> lakebed.Dataset:
    """A dataset of four rows in two days."""
    shutil.copytree(lake_of_flights, tmp_path / "lake", dirs_exist_ok=True)
    return lake.open("flights")


@pytest.fixture(scope="session")
def lake_of_pings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that is made once, to be copied."""
    root = tmp_path_factory.mktemp("pings")
    pings = lakebed.open_repository(root).create(
        "pings",
        lakebed.DatasetDescriptor(
            schema=pa.schema([("channel", pa.string()), ("n", pa.int64())]),
            partition_by=[by.dimension("channel", ["beta"])],
        ),
    )
    pings.append([{"channel": one, "n": n} for n, one in enumerate(["beta", "esr", "own"])])
    return root


@pytest.fixture
def pings(lake_of_pings: Path, lake: lakebed.Repository, tmp_path: Path) -> lakebed.Dataset:
    """A dataset of a dimension, with a value in OTHER that may be promoted."""
    shutil.copytree(lake_of_pings, tmp_path / "lake", dirs_exist_ok=True)
    return lake.open("pings")


@pytest.fixture
def address(flights: lakebed.Dataset, tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "flights")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a text file."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return write
