"""Hive: publish a dataset to a metastore, and adopt tables that are there."""
