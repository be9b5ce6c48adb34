"""Pipelines whose source is a table of Spark: windows, repetitions, kills, and mistakes by line."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

import lakebed
from lakebed import FromTable, Pipeline, TableIngest
from lakebed.cli import main
from lakebed.errors import (
    ChecksFailedError,
    InvalidInputError,
    LakebedError,
    NotFoundError,
    SchemaMismatchError,
    StorageError,
)
from lakebed.pipeline.table_windows import MOST_PARTS, WindowUnit, parts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TODAY = dt.datetime.now(dt.UTC).date()
AVSC = {
    "type": "record",
    "name": "sale",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "shop", "type": "string"},
        {"name": "amount", "type": "long"},
    ],
}
DDL = "at TIMESTAMP, shop STRING, amount BIGINT"


def ago(days: int, hour: int = 12) -> dt.datetime:
    return dt.datetime.combine(TODAY - dt.timedelta(days=days), dt.time(hour), dt.UTC)


class Shop:
    """A folder of Parquet files that Spark reads as a table, and a pipeline from it."""

    def __init__(self, root: Path, spark: SparkSession | None = None) -> None:
        self.root, self.spark = root, spark
        self.folder = root / "table"
        self.file = root / "sales.toml"
        self.name = f"parquet.`{self.folder}`"
        (root / "sale.avsc").write_text(json.dumps(AVSC))

    def put(self, *rows: tuple[Any, ...], ddl: str = DDL) -> None:
        """Make these the rows of the table."""
        assert self.spark is not None
        frame = self.spark.createDataFrame(list(rows), ddl).coalesce(1)
        frame.write.mode("overwrite").parquet(str(self.folder))

    def declare(
        self, source: str = 'time = "at"', ingest: str = 'start = "-7d"', more: str = ""
    ) -> Pipeline:
        self.file.write_text(
            f"[source]\ntable = '{self.name}'\n{source}\n\n[ingest]\n{ingest}\n\n"
            f'[dataset]\ninto = "lake/sales"\nschema = "sale.avsc"\npartition_by = "date(at)"\n{more}'
        )
        return Pipeline.from_toml(self.file)

    @property
    def dataset(self) -> lakebed.Dataset:
        return lakebed.open_repository(self.root / "lake").open("sales")

    def rows(self, name: str = "sales") -> list[tuple[str, int]]:
        table = lakebed.open_repository(self.root / "lake").open(name).arrow()
        return sorted((row["shop"], row["amount"]) for row in table.to_pylist())


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> Shop:
    return Shop(tmp_path, spark)


@pytest.mark.spark
class TestWithSpark:
    def test_a_window_replaces_its_days_and_leaves_those_before(self, shop: Shop) -> None:
        shop.put((ago(9), "old", 1), (ago(2), "a", 1), (ago(2), "a", 2), (ago(0, 0), "b", 3))
        pipeline = shop.declare()

        plan = pipeline.run(dry_run=True)["ingest"]
        assert plan.summary == "3 rows in 2 parts, an unknown number of files of unknown size, " + (
            "creates the dataset"
        )
        assert plan.facts["size_bytes"] is None
        assert not (shop.root / "lake").exists()

        first = pipeline.run()["ingest"]
        assert (first.status, first.summary) == ("done", "3 rows in 2 parts")
        assert first.facts["size_bytes"] == sum(file.size_bytes for file in shop.dataset.files())
        runs = [part["run"] for part in first.facts["parts"]]  # type: ignore[attr-defined]
        assert runs == [
            f"sales: {shop.name} {TODAY - dt.timedelta(2)}",
            f"sales: {shop.name} {TODAY}",
        ]

        # The table has changed, and the window has moved on: the day that left it stays.
        shop.put((ago(2), "a", 4), (ago(0, 0), "b", 3), (ago(0, 1), "b", 5))
        later = shop.declare(ingest='start = "-1d"')
        plan = later.run(dry_run=True)["ingest"]
        assert plan.summary == "2 rows, at least 1 file of unknown size, 1 replaced"
        again = later.run()["ingest"]

        assert again.summary == "2 rows, 1 replaced"
        assert shop.rows() == [("a", 1), ("a", 2), ("b", 3), ("b", 5)]
        assert pipeline.run()["ingest"].summary == "3 rows in 2 parts, 4 replaced"
        assert pipeline.run()["ingest"].facts["replaced_row_count"] == 3
        assert shop.rows() == [("a", 4), ("b", 3), ("b", 5)]
        assert [run.state for run in pipeline.runs()] == ["ok"] * 4
        assert {part.run for part in pipeline.run()["ingest"].result.parts} == set(runs)  # type: ignore[attr-defined]

    def test_dates_and_times_without_a_zone_are_of_the_same_hours(
        self, shop: Shop, spark: SparkSession
    ) -> None:
        ddl = "at TIMESTAMP, ntz TIMESTAMP_NTZ, inner STRUCT<day: DATE>"
        moments = [
            dt.datetime(2026, 2, 28, 23, 59),
            dt.datetime(2026, 3, 1),
            dt.datetime(1969, 12, 31, 23),
        ]
        rows = [(one.replace(tzinfo=dt.UTC), one, (one.date(),)) for one in moments]
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            shop.put(*rows, ddl=ddl)
            for time, every, labels in (
                ("at", "day", {"2026-02-28": 1, "2026-03-01": 1}),
                ("ntz", "hour", {"2026-02-28T23": 1, "2026-03-01T00": 1}),
                ("inner.day", "month", {"2026-02": 1, "2026-03": 1}),
                ("inner.day", "hour", {"2026-02-28T00": 1, "2026-03-01T00": 1}),
            ):
                ingest = TableIngest(
                    name="n",
                    into=str(shop.root / f"lake/{time[0]}_{every}"),
                    source=FromTable(
                        table=shop.name,
                        time=time,
                        start="2026-02-20",
                        end="2026-03-01",
                        every=every,  # type: ignore[arg-type]
                    ),
                    create=lakebed.DatasetDescriptor(
                        schema='{"type": "record", "name": "r", "fields": [{"name": "ntz", "type": '
                        '["null", {"type": "long", "logicalType": "local-timestamp-micros"}]}]}'
                    ),
                    unknown="ignore",
                )
                report = ingest.run()
                found = {part.run.rpartition(" ")[2]: part.row_count for part in report.parts}
                assert found == labels
            written = ingest.dataset().arrow().column("ntz").to_pylist()
            assert sorted(written) == sorted(moments[:2])
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)

    def test_hours_of_one_day_are_added_to_it_without_a_warning(
        self, shop: Shop, caplog: pytest.LogCaptureFixture
    ) -> None:
        shop.put((ago(1, 3), "a", 1), (ago(1, 4), "b", 2))

        done = shop.declare('time = "at"\nevery = "hour"').run()["ingest"]

        assert done.summary == "2 rows in 2 parts"
        assert shop.rows() == [("a", 1), ("b", 2)]
        assert "were added to those of" not in caplog.text

    def test_a_part_that_lost_all_rows_is_kept_back(self, shop: Shop) -> None:
        shop.put((ago(1), "a", 1), (ago(0, 0), "b", 2))
        pipeline = shop.declare()
        pipeline.run()
        shop.put((ago(1), "a", 1))

        for dry_run in (True, False):
            report = pipeline.run(dry_run=dry_run)
            assert (report["ingest"].status, report.exit_code) == ("attention", 2)
            assert "1 part kept back" in report["ingest"].summary
        assert shop.rows() == [("a", 1), ("b", 2)]

        allowed = shop.declare('time = "at"\nmay_be_empty = true')
        assert allowed.run()["ingest"].facts["replaced_row_count"] == 2
        assert shop.rows() == [("a", 1)]
        assert allowed.run().exit_code == 0

    def test_rows_without_a_time_are_reported(self, shop: Shop) -> None:
        shop.put((ago(1), "a", 1), (None, "lost", 2), (None, "known", 3))
        report = shop.declare().run()

        assert (report["ingest"].status, report.exit_code) == ("attention", 2)
        assert report["ingest"].facts["timeless_row_count"] == 2
        known = shop.declare("time = \"at\"\nwhere = \"shop NOT IN ('lost', 'known')\"")
        assert known.run().exit_code == 0

    def test_checks_refuse_or_set_rows_aside_before_the_commit(self, shop: Shop) -> None:
        shop.put((ago(1), "a", 1), (ago(0, 0), "b", -2))
        strict = shop.declare(more='[checks]\nsane = "amount >= 0"\n')
        with pytest.raises(ChecksFailedError, match="sane"):
            strict.run()
        assert shop.rows() == [("a", 1)]  # the part before it is whole

        lenient = shop.declare(
            more='[checks]\nsane = {rows = "amount >= 0", on_failure = "quarantine"}\n'
        )
        for _ in range(2):
            step = lenient.run()["ingest"]
            assert step.facts["checks"] == [{"name": "sane", "outcome": "quarantined", "count": 1}]
        quarantined = lakebed.open_repository(shop.root / "lake").open("sales_quarantine")
        assert quarantined.count() == 1
        shop.put((ago(1), "a", -1), (ago(0, 0), "b", 2))
        kept = lenient.run()["ingest"]
        assert kept.status == "attention"
        assert kept.facts["parts"][0]["kept_back"].startswith("all of its rows fail a check")  # type: ignore[index]
        assert shop.rows() == [("a", 1), ("b", 2)]

    def test_columns_that_do_not_fit_are_refused_ignored_or_added(self, shop: Shop) -> None:
        shop.put((ago(1), "a", 1, 9), ddl=f"{DDL}, extra INT")
        with pytest.raises(SchemaMismatchError, match="extra"):
            shop.declare().run()
        ignored = shop.declare(ingest='start = "-7d"\nunknown = "ignore"').run()["ingest"]
        assert ignored.facts["ignored_fields"] == "extra"
        keeping = shop.declare(ingest='start = "-7d"\nunknown = "keep"')
        assert keeping.run(dry_run=True)["ingest"].facts["schema_changes"] == "+extra: int"
        assert keeping.run()["ingest"].facts["schema_changes"] == "+extra: int"
        assert shop.dataset.arrow().column("extra").to_pylist() == [9]

        shop.put((ago(1), "a", "one"), ddl="at TIMESTAMP, shop STRING, amount STRING")
        for dry_run in (True, False):
            with pytest.raises(SchemaMismatchError, match="amount"):
                keeping.run(dry_run=dry_run)

    def test_a_whole_table_and_a_window_of_it_are_not_mixed(self, shop: Shop) -> None:
        shop.put((ago(1), "a", 1))
        whole = shop.declare("", "")
        assert whole.run()["ingest"].summary == "1 row"
        assert whole.run()["ingest"].summary == "1 row, 1 replaced"
        window = shop.declare()
        for dry_run in (True, False):
            with pytest.raises(InvalidInputError, match="would add rows of the same time again"):
                window.run(dry_run=dry_run)
        shop.dataset.rerun([], run=f"sales: {shop.name}", replace_all=True)
        assert window.run()["ingest"].summary == "1 row"
        hours = shop.declare('time = "at"\nevery = "hour"', f'start = "{ago(1).isoformat()}"')
        with pytest.raises(InvalidInputError, match="same time again"):
            hours.run()

    def test_two_at_once_double_nothing(self, shop: Shop) -> None:
        shop.put((ago(1), "a", 1), (ago(0, 0), "b", 2))
        pipeline = shop.declare()
        reports: list[lakebed.PipelineReport] = []
        threads = [
            threading.Thread(target=lambda: reports.append(pipeline.run(fail=False)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert [report.exit_code for report in reports] == [0, 0]
        assert shop.rows() == [("a", 1), ("b", 2)]

    def test_what_spark_cannot_read_is_named(self, shop: Shop, spark: SparkSession) -> None:
        shop.put((ago(1), "a", 1))

        def run(**source: Any) -> None:
            TableIngest(
                name="n",
                into=str(shop.root / "lake/n"),
                source=FromTable(**source),
                create=lakebed.DatasetDescriptor(schema=AVSC),
            ).run(spark)

        with pytest.raises(NotFoundError, match=r"shop\.missing"):
            run(table="shop.missing")
        with pytest.raises(InvalidInputError, match="Spark cannot use a b"):
            run(table="a b")
        with pytest.raises(InvalidInputError, match="the condition 'nothing > 1'"):
            run(table=shop.name, where="nothing > 1")
        with pytest.raises(InvalidInputError, match="no column 'day'"):
            run(table=shop.name, time="day", start="-1d")
        with pytest.raises(InvalidInputError, match=r"'shop' .* has the type string"):
            run(table=shop.name, time="shop", start="-1d")
        with pytest.raises(StorageError, match="Spark cannot read the query"):
            run(query=f"SELECT at, shop, CAST(raise_error('x') AS BIGINT) amount FROM {shop.name}")
        assert (
            not (shop.root / "lake/n").exists()
            or not lakebed.open_repository(shop.root / "lake").open("n").count()
        )

    def test_a_query_is_a_source_and_a_draft_of_a_table_runs(
        self, shop: Shop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cli(*words: str) -> Result:
            result = CliRunner().invoke(main, words)
            assert result.exit_code == 0, result.stderr
            return result

        shop.put((ago(1), "a", 1), (ago(0, 0), "b", 2))
        monkeypatch.chdir(shop.root)
        assert shop.spark is not None
        shop.spark.read.parquet(str(shop.folder)).createOrReplaceTempView("drafted_sales")

        (shop.root / "draft.toml").write_text(cli("init", "--table", "drafted_sales").stdout)
        assert "date(at)" in (shop.root / "draft.toml").read_text()
        shown = json.loads(cli("run", "draft.toml", "--only", "ingest", "-o", "json").stdout)
        assert shown[0]["facts"]["row_count"] == 2
        assert shop.rows("drafted_sales") == [("a", 1), ("b", 2)]
        text = (shop.root / "draft.toml").read_text()
        text = text.replace('table = "drafted_sales"', 'query = "SELECT * FROM drafted_sales"')
        (shop.root / "draft.toml").write_text(text.replace("lake/drafted_sales", "lake/asked"))
        cli("run", "draft.toml", "--only", "ingest")
        assert shop.rows("asked") == [("a", 1), ("b", 2)]


KILLED = """
import os, signal, sys
from lakebed.pipeline.pipeline import Pipeline
from lakebed.store.posix import PosixStore
left = int(sys.argv[2])

def deadly(real):
    def write(*given, **named):
        global left
        left -= 1
        result = real(*given, **named)
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return write

if left:
    for name in ("_create", "_replace", "_put", "_put_stream", "_adopt"):
        setattr(PosixStore, name, deadly(getattr(PosixStore, name)))
sys.exit(Pipeline.from_toml(sys.argv[1]).run(fail=False).exit_code)
"""


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.parametrize("at", [2, 6, 9, 13])
def test_killed_in_the_middle_the_next_run_does_the_rest(shop: Shop, at: int) -> None:
    shop.put((ago(1), "a", 1), (ago(0, 0), "b", 2), (ago(0, 1), "b", 3))
    pipeline = shop.declare(more="[cleanup]\n")
    source = Path(lakebed.__file__).parents[1]
    command = [sys.executable, "-c", KILLED, str(shop.file), str(at)]

    killed = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(source)}, capture_output=True, check=False
    )

    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    if (shop.root / "lake/sales").exists() and lakebed.open_repository(shop.root / "lake").exists(
        "sales"
    ):
        assert shop.rows() in ([], [("a", 1)], [("a", 1), ("b", 2), ("b", 3)])
    assert pipeline.last_run().last_run.state == "unfinished"  # type: ignore[union-attr]
    assert pipeline.run().exit_code == 0
    assert shop.rows() == [("a", 1), ("b", 2), ("b", 3)]
    assert shop.dataset.check(deep=True).is_ok


def test_all_mistakes_are_reported_by_their_line(tmp_path: Path) -> None:
    text = """
[source]
table = "shop.sales"
storage = "raw"
format = "csv"
every = "week"
[ingest]
start = "-7d"
max_rejects = 0.1
supersede = "path"
[dataset]
into = "lake/sales"
[retention]
raw = "9d"
"""
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(InvalidInputError) as caught:
        Pipeline.from_toml(tmp_path / "wrong.toml")
    for said in (
        "line 2, [source]: both table, every and storage are given",
        "line 5, [source] format: it is for raw files",
        "line 6, [source] every: every is 'week'",
        "line 8, [ingest] start: A window of a table needs the column of its time",
        "line 9, [ingest] max_rejects: it is for raw files",
        "line 10, [ingest] supersede: it is for raw files",
        "line 14, [retention] raw: it is for files of an archive",
    ):
        assert (
            said.replace("table, every and storage", "table, every and storage")
            in caught.value.message
        )


@pytest.mark.parametrize(
    ("source", "ingest", "said"),
    [
        ('where = "x"', "", "[source] where: it is for an archive or a table"),
        ('table = "t"\nquery = "SELECT 1"', "", "[source] table: The source is a table or a query"),
        (
            'time = "at"',
            'start = "-1d"',
            "[source] table: The source is a table or a query, and neither",
        ),
        ('table = "t"\ntime = "at"', "", "[source] time: time is 'at', and there is no window"),
        ('table = "t"', 'end = "now"', "[ingest] end: The window has no start"),
        ('table = "t"\ntime = "at"', 'start = "soon"', "[ingest] start: "),
        (
            'table = "t"\ntime = "at"',
            "start = 1990-01-01",
            f"more than {MOST_PARTS:,} parts of one day",
        ),
        ('table = "t"\ntime = "at"', 'start = "now"\nend = "-1d"', "before its start"),
        ('table = " "', "", "[source] table: table is ' ', which is not a text"),
        (f'table = "{"t" * 200}"', "", "is empty or too long"),
    ],
)
def test_a_mistake_is_named(source: str, ingest: str, said: str) -> None:
    text = f'[source]\n{source}\n[ingest]\n{ingest}\n[dataset]\ninto = "lake/sales"\n'
    with pytest.raises(LakebedError) as caught:
        Pipeline.from_toml(text)
    assert said in caught.value.message


def test_an_ingest_of_raw_files_refuses_a_table() -> None:
    text = '[source]\ntable = "t"\n[dataset]\ninto = "lake/sales"\n'
    with pytest.raises(InvalidInputError, match="not a source of raw files") as caught:
        lakebed.Ingest.from_toml(text)
    assert "lakebed run" in caught.value.hint


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    pipeline = Pipeline.from_toml('[source]\ntable = "t"\n[dataset]\ninto = "memory://x/sales"\n')
    with pytest.raises(lakebed.errors.MissingDependencyError, match="lakebed\\[spark\\]"):
        pipeline.run()


def test_parts_are_whole_and_touch() -> None:
    for unit, start in (
        ("hour", "2026-02-27T10:59Z"),
        ("day", "2026-02-27"),
        ("month", "2025-11-30"),
    ):
        parts = parts_of(start, "2026-03-01T00:00Z", unit)  # type: ignore[arg-type]
        assert [part.end for part in parts[:-1]] == [part.start for part in parts[1:]]
        assert parts[-1].start == dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
        assert len({part.label for part in parts}) == len(parts)


@pytest.mark.parametrize("unit", ["hour", "day", "month"])
def test_a_window_into_the_last_year_is_refused_by_name(unit: WindowUnit) -> None:
    with pytest.raises(InvalidInputError, match="last year of a calendar"):
        parts_of("9999-12-31T22:00Z", "9999-12-31T23:30Z", unit)
