"""The data plane on Spark; the only room that knows pyspark, besides `hive`."""
