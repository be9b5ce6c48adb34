"""Module in which Spark finds the data source `lakebed`: it searches modules named `pyspark_…`.

Spark imports all of them before it first uses any data source, so that this one loads nothing but
what the class takes.
"""

from lakebed.datasource.source import LakebedDataSource as DefaultSource

__all__ = ["DefaultSource"]
