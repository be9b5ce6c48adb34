"""Which verbs there are, by what they are for, and where each is at home.

A verb brings along what it works with, so that it is loaded when it is called, and not for
`lakebed --help` nor for other verbs. That is why the help has its line here; it is the first one
of the verb's own help.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.cli.group import Home

SECTIONS: Mapping[str, Mapping[str, Home]] = {
    "Everyday": {
        "create": Home("lakebed.cli.datasets", "create", "Create a dataset, empty."),
        "import": Home(
            "lakebed.cli.import_verb",
            "import_",
            "Load files, and create the dataset if it is missing.",
        ),
        "append": Home("lakebed.cli.data", "append", "Add the rows of files, without Spark."),
        "overwrite": Home(
            "lakebed.cli.data", "overwrite", "Replace partitions by files, without Spark."
        ),
        "merge": Home(
            "lakebed.cli.merge_verb",
            "merge",
            "Update, delete and insert rows by keys, in one commit.",
        ),
        "delete": Home("lakebed.cli.delete", "delete", "Delete the rows of a view, in one commit."),
        "query": Home("lakebed.cli.data", "query", "Read rows."),
        "sql": Home("lakebed.cli.data", "sql", "Ask in SQL, by DuckDB; nothing can be changed."),
        "explain": Home("lakebed.cli.data", "explain", "Tell which data files a query would read."),
        "files": Home("lakebed.cli.data", "files", "List the data files that a query would read."),
        "show": Home("lakebed.cli.datasets", "show", "Show what a lake or a dataset is and holds."),
        "report": Home(
            "lakebed.cli.report_verb",
            "report",
            "Write what a lake holds and what happened to one page.",
        ),
        "serve": Home(
            "lakebed.cli.serve",
            "serve",
            "Show a lake and an archive to browsers.",
        ),
        "history": Home(
            "lakebed.cli.datasets", "history", "List the commits of a dataset, oldest first."
        ),
        "list": Home("lakebed.cli.datasets", "list_", "List the datasets of a repository."),
        "schema": Home(
            "lakebed.cli.schema_verbs", "schema", "Show and change the schema of a dataset."
        ),
        "drop": Home("lakebed.cli.datasets", "drop", "Delete a dataset and all that it ever held."),
    },
    "Batches": {
        "batches": Home(
            "lakebed.cli.batch_verbs",
            "batches",
            "List when each batch began, was seen, was superseded.",
        ),
        "rerun": Home(
            "lakebed.cli.batch_verbs",
            "rerun",
            "Replace what a run wrote before, wherever it did.",
        ),
        "diff": Home(
            "lakebed.cli.batch_verbs", "diff", "Compare two versions, partition by partition."
        ),
        "rollback": Home(
            "lakebed.cli.batch_verbs",
            "rollback",
            "Make an older state current again, as a new commit.",
        ),
        "stage": Home(
            "lakebed.cli.batch_verbs",
            "stage",
            "Write a batch that nobody sees before its commit.",
        ),
        "staged": Home(
            "lakebed.cli.batch_verbs",
            "staged",
            "List the staged batches that wait for their commit.",
        ),
        "commit": Home(
            "lakebed.cli.batch_verbs",
            "commit",
            "Make a staged batch visible, if it passes all checks.",
        ),
        "discard": Home(
            "lakebed.cli.batch_verbs", "discard", "Delete a staged batch and its files."
        ),
    },
    "Raw files": {
        "archive": Home(
            "lakebed.cli.archive_verbs",
            "archive",
            "Keep raw files with metadata, found by time or work id.",
        ),
        "ingest": Home(
            "lakebed.cli.ingest_verb", "ingest", "Read raw files into a dataset, each once."
        ),
        "sources": Home(
            "lakebed.cli.sources_verb",
            "sources",
            "List the raw files that were ingested, and those held.",
        ),
    },
    "Upkeep": {
        "index": Home(
            "lakebed.cli.index_verbs",
            "index",
            "Build, drop and show indices: which files hold a value.",
        ),
        "compact": Home(
            "lakebed.cli.compact",
            "compact",
            "Make few files of many small ones, beside everybody.",
        ),
        "promote": Home(
            "lakebed.cli.compact",
            "promote",
            "Let dimensions allow more values, out of OTHER.",
        ),
        "cleanup": Home(
            "lakebed.cli.upkeep",
            "cleanup",
            "Delete dead files; without --delete only list them.",
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
        "check": Home(
            "lakebed.cli.upkeep", "check", "Compare what the head says with what is on storage."
        ),
    },
    "Other engines": {
        "publish": Home(
            "lakebed.cli.publish",
            "publish",
            "Create or update a published Hive, Delta or Iceberg table.",
        ),
        "unpublish": Home(
            "lakebed.cli.publish",
            "unpublish",
            "Drop a published table; dataset and files stay.",
        ),
        "adopt": Home("lakebed.cli.adopt", "adopt", "Make a dataset of files where they lie."),
        "export": Home(
            "lakebed.cli.export", "export", "Write submissions as a tree of files for other tools."
        ),
    },
    "This installation": {
        "doctor": Home(
            "lakebed.cli.doctor_verb", "doctor", "Look at the installation and at a store."
        ),
        "completion": Home(
            "lakebed.cli.completion",
            "completion",
            "Print what makes the shell complete what you type.",
        ),
    },
}
