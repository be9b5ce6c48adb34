"""The command line: the verbs of the library, a few lines around each."""

from lakebed.cli.main import main

__all__ = ["main"]
