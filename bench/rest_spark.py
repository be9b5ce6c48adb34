"""Spark as a client of the Iceberg catalog, for rest.py: by its own plans, and by those of Lakebed.

It runs in the environment of `make doors-env`. Each line of its input is a JSON document,
`{"url": …, "planner": "client" or "server", "condition": …}`; the answer is the seconds of the query
and the number of its rows.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from typing import Any

from pyspark.sql import SparkSession

JAR = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"


@cache
def session() -> SparkSession:
    found = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", JAR)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .getOrCreate()
    )
    found.sparkContext.setLogLevel("OFF")
    return found


@cache
def catalog(url: str, planner: str) -> str:
    name = f"{planner}{url.rpartition(':')[2]}"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": url,
        ".cache-enabled": "false",
        ".scan-planning-mode": planner,
    }
    for key, value in settings.items():
        session().conf.set(f"spark.sql.catalog.{name}{key}", value)
    return name


def ask(url: str, planner: str, condition: str) -> dict[str, Any]:
    query = f"SELECT day, amount FROM {catalog(url, planner)}.lake.t WHERE {condition}"
    begin = time.perf_counter()
    rows = session().sql(query).toArrow()
    return {"seconds": time.perf_counter() - begin, "rows": rows.num_rows}


def main() -> None:
    for line in sys.stdin:
        sys.stdout.write(f"\n{json.dumps(ask(**json.loads(line)))}\n")
        sys.stdout.flush()


main()
