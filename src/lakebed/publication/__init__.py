"""Keeping tables of other formats in step with a dataset: one engine, and a target for each format."""
