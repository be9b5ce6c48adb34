"""A client of Spark Connect without py4j and Java; prints what it found as JSON."""

import json
import sys

for absent in ("py4j", "pyspark.core"):  # as with pyspark-client alone
    sys.modules[absent] = None

from pyspark.errors import PySparkException  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402


class Client:
    """A session, and what its statements have shown."""

    def __init__(self, address: str) -> None:
        self.spark = SparkSession.builder.remote(address).getOrCreate()
        self.found: dict[str, object] = {}

    def ask(self, name: str, statement: str) -> None:
        """Keep the rows of a statement, or its error."""
        try:
            self.found[name] = [list(map(str, row)) for row in self.spark.sql(statement).collect()]
        except PySparkException as error:
            self.found[name] = str(error).partition("\nJVM stacktrace")[0]


def through_lakebed(spark: SparkSession, directory: str) -> dict[str, object]:
    """Return what calls of Lakebed in this process have done with frames of the session."""
    import lakebed
    from lakebed.errors import InvalidInputError

    lake = lakebed.open_repository(directory)
    frame = spark.range(5).selectExpr("id", "id * 2 AS twice")
    lake.write("thin", frame)
    thin = lake.open("thin")
    thin.append(frame.where("id < 2"))
    found: dict[str, object] = {
        "read": [thin.spark(spark, way=way).count() for way in ("native", "arrow")]
    }
    with lakebed.spark.attach(spark, lake, datasets=["thin"], prefix="of_") as tables:
        found["attached"] = tables.versions
        found["sql"] = spark.sql("SELECT count(*) FROM of_thin WHERE twice > 2").collect()[0][0]
    found["format"] = spark.read.format("lakebed").load(f"{directory}/thin").count()
    frame.write.format("lakebed").mode("append").save(f"{directory}/thin")
    found["appended"] = thin.count()
    lake.write("keyed", frame)
    lake.open("keyed").upsert(frame.selectExpr("id + 3 AS id", "0L AS twice"), on=["id"])
    found["upserted"] = sorted(
        (row["id"], row["twice"]) for row in lake.open("keyed").arrow().to_pylist()
    )
    try:
        lakebed.spark.attach(spark, lake, catalog="other")
    except InvalidInputError as error:
        found["catalog"] = error.hint
    return found


def main(address: str, directory: str) -> None:
    client = Client(address)
    spark, ask = client.spark, client.ask
    spark.catalog.setCurrentCatalog("lake")  # before any statement
    client.found["current"] = spark.catalog.currentCatalog()
    spark.catalog.setCurrentCatalog("spark_catalog")
    ask("tables", "SHOW TABLES IN lake")
    ask("rows", "SELECT count(*), sum(n) FROM lake.numbers WHERE part = 1")
    ask("insert", "INSERT INTO lake.numbers VALUES (9, 4)")
    ask(
        "create",
        "CREATE TABLE lake.parts AS SELECT part, count(*) AS n FROM lake.numbers GROUP BY 1",
    )
    ask("created", "SELECT * FROM lake.parts ORDER BY part")
    ask("update", "UPDATE lake.numbers SET n = 70 WHERE pmod(n, 9) = 7")
    ask(
        "merge",
        "MERGE INTO lake.numbers t USING (SELECT 70L AS n) s ON t.n = s.n WHEN MATCHED THEN DELETE",
    )
    ask("now", "SELECT count(*), sum(n) FROM lake.numbers")
    ask("before", "SELECT count(*), sum(n) FROM lake.numbers VERSION AS OF 1")
    ask("error", "SELECT count(*) FROM lake.numbers VERSION AS OF 999")
    ask("hint", "DROP TABLE lake.parts")
    ask("missing", "SELECT * FROM lake.missing")
    spark.range(5).write.saveAsTable("lake.saved")
    client.found["saved"] = spark.table("lake.saved").count()
    for _ in range(30):
        ask("again", "SHOW TABLES IN lake")
    spark.stop()
    later = Client(address)
    later.ask("later", "SELECT count(*) FROM lake.saved")
    client.found |= later.found | {"lakebed": through_lakebed(later.spark, directory)}
    sys.stdout.write(json.dumps(client.found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
