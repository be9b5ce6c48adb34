"""Helpers for all rooms other than values: arguments, progress, texts for people."""
