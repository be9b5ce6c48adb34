"""The local session is quiet, takes the caller's settings, and leaves a running one alone."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakebed
from lakebed.spark.session import caller_setting, get_session, local_session, settings_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.classic("a local session is one with a JVM in this process"),
]

FRESH = """
from lakebed.spark.session import local_session
spark = local_session("1", settings={"spark.driver.extraJavaOptions": "-Dmine=7 -Dother=8"})
options = spark.conf.get("spark.driver.extraJavaOptions")
print(spark.range(3).count(), "-Dmine=7 -Dother=8" in options, "-Dderby.system.home" in options)
spark.stop()
"""
# Said by the JVM itself, before Spark has a word in it.
FROM_THE_JVM = "WARNING: Using incubator modules: jdk.incubator.vector"


@pytest.mark.thorough
def test_fresh_session_is_quiet_and_adds_java_options_of_the_caller(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FRESH]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout == "3 True True\n"
    assert [line for line in done.stderr.splitlines() if line != FROM_THE_JVM] == []
    assert list(tmp_path.iterdir()) == []


def test_running_session_is_returned_unchanged_to_every_thread(spark) -> None:
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "Asia/Tokyo")
    seen = []

    def look() -> None:
        seen.extend([local_session(), get_session()])

    try:
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        found = spark.conf.get(zone)
    finally:
        spark.conf.set(zone, before)

    assert all(session is spark for session in seen)
    assert len(seen) == 4
    assert found == "Asia/Tokyo"


def test_running_session_takes_the_settings_that_are_given(spark) -> None:
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)

    try:
        found = local_session(settings={name: "7"}).conf.get(name)
    finally:
        spark.conf.set(name, before)

    assert found == "7"


ONE, OTHER = "spark.lakebed.test.one", "spark.lakebed.test.other"
SETTINGS = [
    "spark.sql.execution.arrow.maxBytesPerBatch",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.parquet.writeLegacyFormat",
    "spark.sql.sources.parallelPartitionDiscovery.threshold",
]


@pytest.fixture
def session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which the caller has set one of two settings."""
    spark.conf.set(ONE, "the caller's")
    yield spark
    for name in (ONE, OTHER):
        spark.conf.unset(name)


def values(spark: SparkSession) -> tuple[str | None, str | None]:
    return spark.conf.get(ONE, None), spark.conf.get(OTHER, None)


def test_settings_stay_until_the_last_that_needs_them_is_done(session: SparkSession) -> None:
    # Another object for the same session, as Spark itself makes them.
    same = type(session)(session.sparkContext, session._jsparkSession)
    first, second = (settings_for(one, {ONE: "a", OTHER: "b"}) for one in (session, same))

    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    between = values(session)
    own = caller_setting(session, ONE), caller_setting(session, OTHER)
    second.__exit__(None, None, None)

    assert between == ("a", "b")
    assert own == values(session) == ("the caller's", None)


def test_a_setting_that_has_the_value_is_not_set_and_stays_so_for_those_that_need_it(
    spark: SparkSession,
) -> None:
    name = "spark.sql.parser.escapedStringLiterals"  # Spark warns whoever sets it
    assert spark.conf.get(name) == "false"
    seen: list[str | None] = []

    def look() -> None:
        with settings_for(spark, {name: "true"}):
            seen.append(spark.conf.get(name))

    thread = threading.Thread(target=look)
    with settings_for(spark, {name: "false"}):
        assert spark.conf.get(name, None) is None
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert spark.conf.get(name) == "false"
    thread.join(30)

    assert seen == ["true"]
    assert spark.conf.get(name, None) is None


def test_sessions_are_apart(session: SparkSession) -> None:
    other = session.newSession()

    with settings_for(session, {ONE: "a"}), settings_for(other, {ONE: "b"}):
        assert (session.conf.get(ONE), other.conf.get(ONE)) == ("a", "b")

    assert values(session) == ("the caller's", None)
    assert values(other) == (None, None)


def test_who_wants_another_value_waits_and_holds_nothing_meanwhile(session: SparkSession) -> None:
    seen: list[tuple[str | None, str | None]] = []

    def look() -> None:
        with settings_for(session, {OTHER: "b", ONE: "other"}):
            seen.append(values(session))

    thread = threading.Thread(target=look)
    with settings_for(session, {ONE: "a"}):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        # What waits has set nothing, not even what nobody else has set.
        assert values(session) == ("a", None)
        with settings_for(session, {OTHER: "c"}):
            assert values(session) == ("a", "c")
    thread.join(30)

    assert seen == [("other", "b")]
    assert values(session) == ("the caller's", None)


def test_a_setting_that_spark_refuses_leaves_the_others_as_they_were(session: SparkSession) -> None:
    refused = "spark.sql.shuffle.partitions"
    before = session.conf.get(refused)

    for _ in range(2):
        with (
            pytest.raises(Exception, match=r"(?i)shuffle\.partitions"),
            settings_for(session, {ONE: "a", refused: "many"}),
        ):
            pytest.fail("it was taken")

    assert (*values(session), session.conf.get(refused)) == ("the caller's", None, before)


def test_threads_that_write_and_read_leave_the_session_as_it_was(
    session: SparkSession, tmp_path: Path
) -> None:
    repository = lakebed.open_repository(tmp_path / "lake")
    kinds = [pa.int64(), pa.int64(), pa.list_(pa.int64())]
    descriptors = [
        lakebed.DatasetDescriptor(
            schema=pa.schema([("id", pa.int64()), ("more", kind)]),
            partition_by="hash(id, 3)" if number else [],
        )
        for number, kind in enumerate(kinds)
    ]
    frames = [
        session.range(30).selectExpr("id", "array(id) AS more" if number == 2 else "id AS more")
        for number in range(len(kinds))
    ]
    before = [session.conf.get(name, None) for name in SETTINGS]

    def work(number: int) -> int:
        dataset = repository.create(f"d{number}", descriptors[number % 3])
        dataset.append(frames[number % 3])
        return dataset.spark(session).count()

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, range(6)))

    assert found == [30] * 6
    assert [session.conf.get(name, None) for name in SETTINGS] == before
