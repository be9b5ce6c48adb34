"""All verbs, by section, with their module, function and first line of help.

A verb imports the libraries that it needs, so its module is loaded only when it is called, neither
for `lakebed --help` nor for other verbs. That is why the first line of its help is repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakebed.cli.group import Home

WAYS_TO_LOAD: Mapping[str, str] = {
    "import": "once, by hand: it creates the dataset, runs in Spark too, and can set unfit rows aside",
    "append": "to add rows to a dataset, also from stdin; a row that does not fit is an error",
    "overwrite": "in place of the partitions that the rows touch, or of a view",
    "rerun": "for a job that runs again: in place of what its run wrote before",
    "ingest": "for files that keep coming and changing: each is read once",
    "staged add": "for rows that must pass checks before readers see them",
}

SECTIONS: Mapping[str, Mapping[str, Home]] = {
    "Everyday": {
        "create": Home("lakebed.cli.datasets", "create", "Create an empty dataset."),
        "import": Home(
            "lakebed.cli.import_verb",
            "import_",
            "Load files, and create the dataset if it is missing.",
        ),
        "append": Home("lakebed.cli.data", "append", "Add the rows of files, without Spark."),
        "overwrite": Home(
            "lakebed.cli.data",
            "overwrite",
            "Replace partitions with the rows of files, without Spark.",
        ),
        "merge": Home(
            "lakebed.cli.merge_verb",
            "merge",
            "Update, delete and insert rows by keys, in one commit.",
        ),
        "update": Home(
            "lakebed.cli.update_verb",
            "update",
            "Set fields of the rows of a view, in one commit.",
        ),
        "delete": Home("lakebed.cli.delete", "delete", "Delete the rows of a view, in one commit."),
        "query": Home("lakebed.cli.data", "query", "Read rows."),
        "sql": Home(
            "lakebed.cli.data",
            "sql",
            "Query datasets in SQL, or change them with --write.",
        ),
        "explain": Home(
            "lakebed.cli.data", "explain", "Show which data files a query would read, and why."
        ),
        "files": Home("lakebed.cli.data", "files", "List the data files that a query would read."),
        "show": Home("lakebed.cli.datasets", "show", "Show a dataset, or all datasets of a lake."),
        "report": Home(
            "lakebed.cli.report_verb",
            "report",
            "Write a report on a lake as one HTML page.",
        ),
        "serve": Home(
            "lakebed.cli.serve",
            "serve",
            "Serve a lake to browsers, Iceberg and Spark, and an archive.",
        ),
        "history": Home(
            "lakebed.cli.datasets", "history", "List the commits of a dataset, oldest first."
        ),
        "list": Home("lakebed.cli.datasets", "list_", "List the datasets of a repository."),
        "schema": Home(
            "lakebed.cli.schema_verbs", "schema", "Show and change the schema of a dataset."
        ),
        "drop": Home("lakebed.cli.datasets", "drop", "Delete a dataset and its whole history."),
    },
    "Batches": {
        "batches": Home(
            "lakebed.cli.batch_verbs",
            "batches",
            "List when each batch was started, committed and superseded.",
        ),
        "rerun": Home(
            "lakebed.cli.batch_verbs",
            "rerun",
            "Replace all rows that a run wrote before, in all partitions.",
        ),
        "diff": Home(
            "lakebed.cli.batch_verbs", "diff", "Compare two versions, partition by partition."
        ),
        "changes": Home(
            "lakebed.cli.batch_verbs",
            "changes",
            "List the rows that commits inserted, deleted and updated.",
        ),
        "rollback": Home(
            "lakebed.cli.batch_verbs",
            "rollback",
            "Make an older state current again, as a new commit.",
        ),
        "staged": Home(
            "lakebed.cli.staged_verbs",
            "staged",
            "Write batches that stay invisible until their commit.",
        ),
    },
    "Pipelines": {
        "run": Home(
            "lakebed.cli.run_verbs",
            "run",
            "Do the due steps of a pipeline, from ingest to cleanup.",
        ),
        "runs": Home("lakebed.cli.run_verbs", "runs", "List the last runs of pipelines."),
        "init": Home(
            "lakebed.cli.init_verb",
            "init",
            "Print a pipeline for raw files or a table, to start from.",
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
            "Build, drop and show indices, which find files by values.",
        ),
        "maintain": Home(
            "lakebed.cli.maintain_verb",
            "maintain",
            "Do what is due for all datasets: retention, merges, cleanup.",
        ),
        "compact": Home(
            "lakebed.cli.compact",
            "compact",
            "Merge small files while others read and write.",
        ),
        "promote": Home(
            "lakebed.cli.compact",
            "promote",
            "Move values from OTHER to partitions of their own.",
        ),
        "cleanup": Home(
            "lakebed.cli.cleanup_verb",
            "cleanup",
            "Delete dead files, after asking.",
        ),
        "erase": Home(
            "lakebed.cli.erase",
            "erase",
            "Remove rows from all versions, for good.",
        ),
        "protection": Home(
            "lakebed.cli.protection_verbs",
            "protection",
            "Protect versions and batches from cleanup.",
        ),
        "check": Home(
            "lakebed.cli.cleanup_verb",
            "check",
            "Compare a dataset's metadata with the files on storage.",
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
        "adopt": Home("lakebed.cli.adopt", "adopt", "Make a dataset of files without moving them."),
        "export": Home(
            "lakebed.cli.export", "export", "Write submissions as a tree of files for other tools."
        ),
    },
    "This installation": {
        "doctor": Home("lakebed.cli.doctor_verb", "doctor", "Check the installation and a store."),
        "completion": Home(
            "lakebed.cli.completion",
            "completion",
            "Print the script that completes commands in a shell.",
        ),
    },
}
