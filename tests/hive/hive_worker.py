"""A process with a session of a Hive metastore, which does what the tests ask for.

It reads one JSON document a line, `{"do": NAME, …}`, and answers each with one line of JSON.
"""

import json
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lakebed
from lakebed.tables.hive.metastore_session import session_of


def answer(spark: Any, do: str, given: dict[str, Any]) -> Any:
    if do == "sql":
        return [[str(one) for one in row] for row in spark.sql(given["text"]).collect()]
    if do == "fill":
        return fill(**given)
    if do == "publish":
        lake, name = given.pop("lake"), given.pop("name")
        done = lakebed.open_repository(lake).open(name).publish("hive", spark, **given)
        return {**asdict(done), "is_in_step": done.is_in_step}
    if do == "adopt":
        lake, name, table = given["lake"], given["name"], given["table"]
        dataset = lakebed.open_repository(lake).adopt(name, table, metastore=spark)
        return {"rows": dataset.count(), "schema": [f"{f.name}: {f.type}" for f in dataset.schema]}
    if do == "read":
        return read_until(spark, **given)
    if do == "race":
        return race(spark, **given)
    raise ValueError(do)


def fill(lake: str, name: str, batch: int, partitions: list[str]) -> int:
    """Overwrite some partitions with ten rows each, which all say which batch they are of."""
    rows = [{"dt": one, "batch": batch, "n": n} for one in partitions for n in range(10)]
    return lakebed.open_repository(lake).open(name).overwrite(rows).version


def read_until(spark: Any, table: str, stop: str, seconds: float) -> dict[str, Any]:
    """Read the table over and over; return what was wrong in any read."""
    reads, wrong, seen = 0, [], Counter()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not Path(stop).exists():
        rows = spark.sql(
            f"SELECT dt, count(*), min(batch), max(batch) FROM {table} GROUP BY dt"
        ).collect()
        reads += 1
        for dt, count, low, high in rows:
            seen[high] += 1
            if count != 10 or low != high:
                wrong.append([dt, count, low, high])
        seen[f"{len(rows)} partitions"] += 1
    return {"reads": reads, "wrong": wrong, "seen": {str(one): seen[one] for one in seen}}


def race(
    spark: Any, lake: str, name: str, table: str, batches: list[int], partitions: list[str]
) -> Any:
    """Overwrite and publish while another session of this process reads."""
    stop = Path(lake) / "stop"
    found: dict[str, Any] = {}

    def read() -> None:
        found.update(read_until(spark.newSession(), table, str(stop), 120))

    reader = threading.Thread(target=read)
    reader.start()
    for batch in batches:
        fill(lake, name, batch, partitions)
        lakebed.open_repository(lake).open(name).publish("hive", spark, table=table)
    stop.touch()
    reader.join()
    return found


def main(metastore: str) -> None:
    from lakebed.spark.session import local_session

    local_session(
        "2",
        settings={
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore,
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    spark = session_of(metastore)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        given = json.loads(line)
        try:
            told = {"answer": answer(spark, given.pop("do"), given)}
        except Exception as error:  # noqa: BLE001 - the test looks at it
            told = {"error": type(error).__name__, "message": str(error)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
