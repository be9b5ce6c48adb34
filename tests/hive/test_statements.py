"""Publication as text: what others run on a metastore that Lakebed never meets."""

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import DatasetDescriptor
from lakebed.errors import InvalidInputError

SCHEMA = pa.schema([("dt", pa.string()), ("n", pa.int64())])


@pytest.fixture
def sales(tmp_path: Path) -> lakebed.Dataset:
    repository = lakebed.open_repository(tmp_path / "lake")
    sales = repository.create("sales", DatasetDescriptor(schema=SCHEMA, partition_by="dt"))
    sales.overwrite([{"dt": f"2015-12-{day}", "n": day} for day in (9, 10)])
    return sales


def test_all_partitions_are_told_of_a_table_that_is_yet_to_be(sales: lakebed.Dataset) -> None:
    told = sales.publish("hive", table="lake.sales", root="s3://bucket/lake", print_sql=True)

    batch = sales.history()[-1].batch_id
    assert told[:2] == (
        "CREATE DATABASE IF NOT EXISTS `lake`",
        "CREATE EXTERNAL TABLE IF NOT EXISTS `lake`.`sales` (`n` bigint) PARTITIONED BY (`dt` string) "
        "STORED AS PARQUET LOCATION 's3://bucket/lake/sales/hive/lake.sales'",
    )
    assert told[-1] == (
        "ALTER TABLE `lake`.`sales` PARTITION (`dt`='2015-12-9') SET LOCATION "
        f"'s3://bucket/lake/sales/data/dt=2015-12-9/batch_id={batch}'"
    )
    assert len(told) == 6


def test_since_a_version_only_what_was_touched_is_told(sales: lakebed.Dataset) -> None:
    shown = sales.version
    sales.overwrite([{"dt": "2015-12-10", "n": 11}])
    sales.overwrite([], sales.where("dt = '2015-12-9'"))

    told = sales.publish("hive", table="sales", since=shown, print_sql=True)

    assert [statement.split(" LOCATION")[0] for statement in told] == [
        "ALTER TABLE `default`.`sales` ADD IF NOT EXISTS PARTITION (`dt`='2015-12-10')",
        "ALTER TABLE `default`.`sales` PARTITION (`dt`='2015-12-10') SET",
        "ALTER TABLE `default`.`sales` DROP IF EXISTS PARTITION (`dt`='2015-12-9')",
    ]
    assert sales.publish("hive", table="sales", since=sales.version, print_sql=True) == ()


def test_partition_of_several_batches_is_refused(sales: lakebed.Dataset) -> None:
    sales.append([{"dt": "2015-12-9", "n": 1}])

    with pytest.raises(InvalidInputError, match="several live batches"):
        sales.publish("hive", table="sales", print_sql=True)


def test_file_that_is_not_live_is_refused(sales: lakebed.Dataset, tmp_path: Path) -> None:
    home = next((tmp_path / "lake" / "sales" / "data").glob("dt=2015-12-9/batch_id=*"))
    (home / "stray.parquet").write_bytes(b"")

    with pytest.raises(InvalidInputError, match="not live"):
        sales.publish("hive", table="sales", print_sql=True)


@pytest.mark.parametrize("since", [99, -1])
def test_version_that_nobody_knows_is_refused(sales: lakebed.Dataset, since: int) -> None:
    with pytest.raises(InvalidInputError, match=f"since version {since}") as caught:
        sales.publish("hive", table="sales", since=since, print_sql=True)
    assert caught.value.hint == f"Give a version up to {sales.version}, the last one."


def test_table_without_partitions_moves_as_a_whole(tmp_path: Path) -> None:
    repository = lakebed.open_repository(tmp_path / "lake")
    flat = repository.create("flat", DatasetDescriptor(schema=SCHEMA))

    assert flat.publish("hive", table="flat", print_sql=True)[-1].endswith(
        "/flat/hive/default.flat'"
    )
    flat.append([{"dt": "1", "n": 1}])
    assert "/flat/data/batch_id=" in flat.publish("hive", table="flat", since=0, print_sql=True)[-1]


ODD = ["a;b", "it's", "back\\", "${env:HOME}", "two\nlines", "日本"]


@pytest.fixture
def odd(tmp_path: Path) -> lakebed.Dataset:
    """Values that a shell or a parser may take for something else."""
    doc = "it's a 'doc';\r\nDROP TABLE ${env:HOME}\\"
    fields = [
        {"name": "dt", "type": "string"},
        {"name": "k", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "n", "type": "long", "doc": doc},
    ]
    schema = {"type": "record", "name": "odd", "fields": fields}
    descriptor = DatasetDescriptor(schema=schema, partition_by="dt, k, big")
    odd = lakebed.open_repository(tmp_path / "lake").create("odd", descriptor)
    odd.append({"dt": value, "k": -n, "big": n - 2, "n": n} for n, value in enumerate(ODD))
    return odd


def test_statement_is_one_line_that_no_shell_cuts_or_fills_in(odd: lakebed.Dataset) -> None:
    told = odd.publish("hive", table="odd", print_sql=True)

    assert not [one for one in told if "\n" in one or ";" in one or "${" in one]
    assert r"COMMENT 'it\'s a \'doc\'\u003B\r\nDROP TABLE \u0024{env:HOME}\\'" in told[1]
    for text in (r"a\u003Bb", r"it\'s", r"back\\", r"\u0024{env:HOME}", r"two\nlines", "日本"):
        assert [one for one in told if "SET LOCATION" in one and f"`dt`='{text}'" in one]


def test_negative_number_is_a_text_since_hive_takes_no_sign(odd: lakebed.Dataset) -> None:
    told = [
        one for one in odd.publish("hive", table="odd", print_sql=True) if "SET LOCATION" in one
    ]

    assert any("`k`=0, `big`='-2')" in one for one in told)
    assert any("`k`='-5', `big`=3L)" in one for one in told)


@pytest.mark.spark
def test_hive_and_spark_read_every_statement_as_it_is_meant(spark, odd: lakebed.Dataset) -> None:
    told = odd.publish("hive", table="odd_statements.odd", print_sql=True)
    hive = spark._jvm.org.apache.hadoop.hive.ql.parse.ParseDriver
    for statement in told:
        hive().parse(statement)
    spark.sql("CREATE DATABASE IF NOT EXISTS odd_statements")
    spark.sql(
        "CREATE TABLE odd_statements.odd (n BIGINT, dt STRING, k INT, big BIGINT) USING parquet "
        f"PARTITIONED BY (dt, k, big) LOCATION '{odd.uri}/hive/none'"
    )

    for statement in told[2:]:
        spark.sql(statement)

    rows = spark.sql("SELECT dt, k, big, n FROM odd_statements.odd ORDER BY n").collect()
    assert [tuple(row) for row in rows] == [(text, -n, n - 2, n) for n, text in enumerate(ODD)]
    spark.sql("DROP TABLE odd_statements.odd")


@pytest.mark.spark
def test_statements_make_a_table_show_the_current_version(spark, sales: lakebed.Dataset) -> None:
    spark.sql("CREATE DATABASE IF NOT EXISTS statement_tests")
    # The session of the tests has no Hive, whose words those of the creation are.
    spark.sql(
        "CREATE TABLE statement_tests.sales (n BIGINT, dt STRING) USING parquet PARTITIONED BY (dt) "
        f"LOCATION '{sales.uri}/hive/none'"
    )

    def run(since: int | None) -> dict[str, int]:
        told = sales.publish("hive", table="statement_tests.sales", since=since, print_sql=True)
        for statement in told if since is not None else told[2:]:
            spark.sql(statement)
        rows = spark.sql("SELECT dt, n FROM statement_tests.sales").collect()
        return {row["dt"]: row["n"] for row in rows}

    assert run(None) == {"2015-12-9": 9, "2015-12-10": 10}
    shown = sales.version
    sales.overwrite([{"dt": "2015-12-10", "n": 11}, {"dt": "2015-12-11", "n": 12}])
    sales.overwrite([], sales.where("dt = '2015-12-9'"))

    assert run(shown) == {"2015-12-10": 11, "2015-12-11": 12}
    assert run(shown) == {"2015-12-10": 11, "2015-12-11": 12}  # once more does no harm
    spark.sql("DROP TABLE statement_tests.sales")
