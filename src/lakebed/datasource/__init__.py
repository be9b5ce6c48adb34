"""The data source `lakebed` of Spark: `spark.read.format("lakebed")` and similar calls."""
