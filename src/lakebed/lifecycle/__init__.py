"""Upkeep: protect, clean up, compact, promote, check."""
