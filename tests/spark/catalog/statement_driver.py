"""A driver with a catalog that runs one statement, on a store that kills it at its nth write.

Takes an order as JSON: the directory of the lake, a folder for the numbers of writes, `at`, and the
statement.
"""

import json
import sys
from pathlib import Path

from numbered_writes import EndingStore

import lakebed
from lakebed.spark.session import local_session


def main(root, writes, at, statement) -> None:
    spark = local_session(
        "2",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    lake = lakebed.Repository(EndingStore(Path(root), Path(writes), at))
    lakebed.spark.attach(spark, lake, catalog="lake")
    spark.sql(statement)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
