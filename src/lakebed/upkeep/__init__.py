"""Upkeep: what has to be done again and again for a dataset, and for all of a repository."""
