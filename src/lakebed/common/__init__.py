"""Helpers that every room may use and that are no values: arguments, progress, texts for people."""
