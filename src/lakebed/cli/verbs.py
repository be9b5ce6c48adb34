"""Which verbs there are, in the order of the help, and where each is at home.

A verb brings along what it works with, so that it is loaded when it is called, and not for
`lakebed --help` nor for other verbs. That is why the help has its line here; it is the first one
of the verb's own help.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.cli.group import Home

VERBS: Mapping[str, Home] = {
    "create": Home("lakebed.cli.datasets", "create", "Create a dataset, empty."),
    "import": Home(
        "lakebed.cli.load", "import_", "Load files, and create the dataset if it is missing."
    ),
    "ingest": Home("lakebed.cli.ingest", "ingest", "Read raw files into a dataset, each once."),
    "append": Home("lakebed.cli.data", "append", "Add the rows of files, without Spark."),
    "overwrite": Home(
        "lakebed.cli.data", "overwrite", "Replace partitions by files, without Spark."
    ),
    "merge": Home(
        "lakebed.cli.merge",
        "merge",
        "Update, delete and insert rows by the keys of files, in one commit.",
    ),
    "delete": Home("lakebed.cli.delete", "delete", "Delete the rows of a view, in one commit."),
    "show": Home("lakebed.cli.datasets", "show", "Show what a dataset is and how much it holds."),
    "history": Home(
        "lakebed.cli.datasets", "history", "List the commits of a dataset, oldest first."
    ),
    "schema": Home("lakebed.cli.schema", "schema", "Show and change the schema of a dataset."),
    "index": Home(
        "lakebed.cli.index",
        "index",
        "Build, drop and show inverted indices: which files hold a value.",
    ),
    "query": Home("lakebed.cli.data", "query", "Read rows."),
    "explain": Home("lakebed.cli.data", "explain", "Tell which data files a query would read."),
    "files": Home("lakebed.cli.data", "files", "List the data files that a query would read."),
    "sql": Home("lakebed.cli.data", "sql", "Ask in SQL, by DuckDB; nothing can be changed."),
    "list": Home("lakebed.cli.datasets", "list_", "List the datasets of a repository."),
    "drop": Home("lakebed.cli.datasets", "drop", "Delete a dataset and all that it ever held."),
    "batches": Home(
        "lakebed.cli.batches",
        "batches",
        "List the batches of a dataset: when each began, became visible, and was superseded.",
    ),
    "rerun": Home(
        "lakebed.cli.batches",
        "rerun",
        "Replace what a run wrote before, wherever it wrote it, without Spark.",
    ),
    "diff": Home("lakebed.cli.batches", "diff", "Compare two versions, partition by partition."),
    "rollback": Home(
        "lakebed.cli.batches", "rollback", "Make an older state current again, as a new commit."
    ),
    "stage": Home(
        "lakebed.cli.batches",
        "stage",
        "Write a batch that nobody sees before `lakebed commit`, without Spark.",
    ),
    "staged": Home(
        "lakebed.cli.batches",
        "staged",
        "List the batches that are staged and wait for their commit, oldest first.",
    ),
    "commit": Home(
        "lakebed.cli.batches", "commit", "Make a staged batch visible, if it passes all checks."
    ),
    "discard": Home("lakebed.cli.batches", "discard", "Delete a staged batch and its files."),
    "compact": Home(
        "lakebed.cli.compact",
        "compact",
        "Make few files of many small ones, beside readers and writers.",
    ),
    "promote": Home(
        "lakebed.cli.compact",
        "promote",
        "Let dimensions allow more values, and move their rows out of OTHER.",
    ),
    "protect": Home(
        "lakebed.cli.upkeep", "protect", "Keep a version or a batch from being cleaned up."
    ),
    "unprotect": Home(
        "lakebed.cli.upkeep", "unprotect", "Let a version or a batch be cleaned up again."
    ),
    "protections": Home(
        "lakebed.cli.upkeep", "protections", "List what is protected from cleanup, and why."
    ),
    "cleanup": Home(
        "lakebed.cli.upkeep",
        "cleanup",
        "Delete files that are proven dead; without --delete only list them.",
    ),
    "check": Home(
        "lakebed.cli.upkeep", "check", "Compare what the head says with what is on storage."
    ),
    "publish": Home(
        "lakebed.cli.hive",
        "publish",
        "Bring a Hive, Delta or Iceberg table into step with a dataset.",
    ),
    "unpublish": Home(
        "lakebed.cli.hive",
        "unpublish",
        "Drop the Hive, Delta or Iceberg table of a dataset; the dataset and its files stay.",
    ),
    "adopt": Home("lakebed.cli.hive", "adopt", "Make a dataset of files where they lie."),
    "export": Home(
        "lakebed.cli.export", "export", "Write submissions as a tree of files for other tools."
    ),
    "archive": Home(
        "lakebed.cli.archive", "archive", "Keep raw files with metadata, found by time or work id."
    ),
    "doctor": Home("lakebed.cli.doctor", "doctor", "Look at the installation and at a store."),
}
