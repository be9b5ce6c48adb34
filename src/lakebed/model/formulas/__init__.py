"""Expressions of Spark SQL over the columns of one row, as expressions of DuckDB of the same meaning."""
