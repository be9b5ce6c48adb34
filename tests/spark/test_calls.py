"""A small query asks Spark's JVM little: each call takes longer than its reading of a row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from frames import comparable, setting, spark_rows

import lakebed
from lakebed import by

pytestmark = pytest.mark.spark

THRESHOLD = "spark.sql.sources.parallelPartitionDiscovery.threshold"
WIDE, NARROW = 40, 3
needs_jvm = pytest.mark.classic("a session on Connect has no JVM to call")


@contextmanager
def calls_counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the calls into the JVM by method, without those that give objects back."""
    from py4j.clientserver import ClientServerConnection
    from py4j.java_gateway import GatewayConnection

    counts: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for kind in (ClientServerConnection, GatewayConnection):
            send = kind.send_command

            def counted(
                self: Any, command: str, *args: Any, _send: Any = send, **named: Any
            ) -> Any:
                what, *parts = command.split("\n")
                if what != "m":
                    counts[parts[1] if what == "c" else what] += 1
                return _send(self, command, *args, **named)

            patch.setattr(kind, "send_command", counted)
        yield counts


def days(root: Path, columns: int) -> lakebed.Dataset:
    """Return a dataset of four days with a file each, one float, and so many columns."""
    fields = [("at", pa.timestamp("us", tz="UTC")), ("x", pa.float64())]
    fields += [(f"n{number}", pa.int64()) for number in range(columns - len(fields))]
    descriptor = lakebed.DatasetDescriptor(
        schema=pa.schema(fields), partition_by=[by.date("at", name="dt")]
    )
    dataset = lakebed.open_repository(root / f"lake{columns}").create("days", descriptor)
    numbers = list(range(8))
    at = pa.array([number * 43_200_000_000 for number in numbers], fields[0][1])
    rest = [numbers] * (columns - len(fields[:2]))
    dataset.append(pa.table([at, [n / 2 for n in numbers], *rest], schema=pa.schema(fields)))
    return dataset


def two_days(dataset: lakebed.Dataset) -> lakebed.View:
    return dataset.where("at >= '1970-01-02' AND at < '1970-01-04'")


@needs_jvm
def test_a_small_read_calls_as_often_for_many_columns_as_for_few(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {}
    for columns in (NARROW, WIDE):
        view = two_days(days(tmp_path, columns))
        view.spark(spark)  # looks up classes of the JVM
        with calls_counted(monkeypatch) as counts[columns]:
            frame = view.spark(spark)
        assert len(frame.inputFiles()) == 2
        assert spark_rows(frame) == comparable(view.arrow())

    assert counts[WIDE] == counts[NARROW]
    assert counts[NARROW].total() < 45
    assert counts[NARROW]["parquet"] == 1


@needs_jvm
def test_few_files_need_no_setting_of_the_session(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = two_days(days(tmp_path, NARROW))
    with calls_counted(monkeypatch) as counts:
        view.spark(spark)
    assert not counts["set"]
    assert not counts["unset"]


def test_few_files_are_read_whatever_number_the_caller_lets_the_driver_list(
    spark: Any, tmp_path: Path
) -> None:
    view = two_days(days(tmp_path, NARROW))
    with setting(spark, THRESHOLD, "0"):
        assert spark_rows(view.spark(spark)) == comparable(view.arrow())
        assert spark.conf.get(THRESHOLD) == "0"


@pytest.mark.parametrize(
    "columns", [["at", "x", "n0"], ["n0", "x"], ["x"], ["n0"], ["n0", "at", "dt"]]
)
def test_columns_come_as_they_are_asked_for(spark: Any, tmp_path: Path, columns: list[str]) -> None:
    view = two_days(days(tmp_path, NARROW))

    frame = view.spark(spark, columns)

    assert frame.columns == columns
    assert spark_rows(frame) == comparable(view.arrow(columns))
