"""Lakebed with Sail, in its environment (make sail): no Java and no py4j. Prints what it found as JSON."""

import contextlib
import importlib.util
import io
import json
import os
import re
import sys
from pathlib import Path

import pyarrow as pa

import lakebed
from lakebed.datasource.source import LakebedDataSource
from lakebed.errors import InvalidInputError
from lakebed.spark.session import is_spark, local_session

ROOT = Path(__file__).parents[2]


def readme() -> list[str]:
    """Run the first block of README, and return what it prints."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block[1], "README.md", "exec"), {})
    return printed.getvalue().splitlines()


def main(directory: str) -> None:
    os.chdir(directory)
    found: dict[str, object] = {
        "java": importlib.util.find_spec("py4j") is not None,
        "readme": readme(),
    }
    spark = local_session()
    found["is_spark"] = is_spark(spark)
    lake = lakebed.open_repository(f"{directory}/other")
    rows = {"id": list(range(100)), "day": [n % 3 for n in range(100)], "s": ["x"] * 100}
    lake.write("rows", pa.table(rows), partition_by="day")
    dataset = lake.open("rows")
    found["where"] = sorted(
        (row.id, row.day) for row in dataset.where("day = 1 AND id < 9").spark(spark).collect()
    )
    with lakebed.spark.attach(spark, lake, prefix="of_"):
        found["attached"] = spark.sql("SELECT sum(day), count(*) FROM of_rows").collect()[0][:]
    try:
        dataset.spark(spark, way="native")
    except InvalidInputError as error:
        found["native"] = str(error)
    spark.dataSource.register(LakebedDataSource)
    source = spark.read.format("lakebed").load(f"{directory}/other/rows")
    found["source"] = source.selectExpr("sum(day)", "count(*)").collect()[0][:]
    frame = spark.sql("SELECT id + 98 AS id, id % 3 AS day, 'new' AS s FROM range(4)")
    frame.write.format("lakebed").mode("append").save(f"{directory}/other/rows")
    found["appended"] = dataset.count()
    lake.write("keyed", frame)
    lake.open("keyed").upsert(frame.selectExpr("id + 3 AS id", "day", "'newer' AS s"), on=["id"])
    found["keyed"] = sorted((row["id"], row["s"]) for row in lake.open("keyed").arrow().to_pylist())
    text = "MERGE INTO keyed USING s ON keyed.id = s.id WHEN MATCHED THEN DELETE"
    lake.sql(text, tables={"s": frame}, write=True)
    found["merged"] = lake.open("keyed").count()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
