"""Records of datasets and commits for output, with stable keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakebed.commit import Commit, File
from lakebed.common.plain import to_plain
from lakebed.common.shown import counted
from lakebed.dataset import Dataset
from lakebed.model import publishing
from lakebed.model.avro import schema_to_avro
from lakebed.model.partition import PartitionStrategy
from lakebed.model.retention import facts_of_retention
from lakebed.model.schema import MISSING, Field
from lakebed.model.totals import known_total
from lakebed.state.published import PublishedTable

COMMIT_COLUMNS = (
    "version",
    "operation",
    "committed_at",
    "inserted_row_count",
    "updated_row_count",
    "deleted_row_count",
    "rewritten_row_count",
    "batch_id",
    "run",
    "row_count",
    "added_file_count",
    "removed_file_count",
    "partition_count",
    "replaced_partition_count",
    "caught",
    "checks",
    "commit_id",
)
_COUNTS = tuple(column for column in COMMIT_COLUMNS if column.endswith("_row_count"))
# Of a history, which has the raw files that ingests have read, too.
HISTORY_RECORD_COLUMNS = (*COMMIT_COLUMNS, "read")
# Columns of a table for people: the four counts are one text.
HISTORY_COLUMNS = (
    "version",
    "operation",
    "rows",
    *(
        column
        for column in COMMIT_COLUMNS[2:]
        if column not in (*_COUNTS, "row_count", "replaced_partition_count", "checks")
    ),
)


# Of the declared checks of a dataset.
CHECK_COLUMNS = ("name", "check", "on_failure", "outcome")


def commit_record(commit: Commit) -> dict[str, object]:
    """Return the record of a commit, with the keys `COMMIT_COLUMNS`."""
    return {
        "version": commit.version,
        "operation": commit.operation,
        "committed_at": commit.committed_at,
        **{column: getattr(commit, column) for column in _COUNTS},
        "batch_id": commit.batch_id,
        "run": commit.run,
        "row_count": commit.row_count,
        "added_file_count": len(commit.files_added),
        "removed_file_count": len(commit.files_removed),
        "partition_count": len(commit.partitions),
        "replaced_partition_count": len(commit.replaced_partitions),
        "caught": [
            {
                "dimension": entry.dimension,
                "cap": entry.cap,
                "row_count": entry.row_count,
                "values": list(entry.values),
            }
            for entry in commit.caught
        ],
        "checks": [
            {
                "name": result.name,
                "check": result.check,
                "outcome": result.outcome,
                "row_count": result.count,
                "examples": list(result.examples),
            }
            for result in commit.checks
        ],
        "commit_id": commit.commit_id,
    }


def history_record(commit: Commit) -> dict[str, object]:
    """Return the record of a commit of a history, with the keys `HISTORY_RECORD_COLUMNS`."""
    read = commit.read
    return {
        **commit_record(commit),
        "read": None
        if read is None
        else {
            "file_count": read.file_count,
            "first": read.first,
            "what": read.what,
            "start": read.start,
            "end": read.end,
        },
    }


def dry_run_record(commit: Commit) -> dict[str, object]:
    """Return the record of a commit that would be made, without what only a real one has."""
    return {
        **commit_record(commit),
        **dict.fromkeys(("committed_at", "batch_id", "commit_id")),
        "size_bytes": commit.size_bytes,
        "partitions": list(commit.partitions),
        "is_dry_run": True,
    }


def dry_run_text(commit: Commit) -> str:
    """Return the effect of a commit that would be made, in words."""
    added, removed = len(commit.files_added), len(commit.files_removed)
    size = "" if commit.size_bytes is None else f" of {counted(commit.size_bytes, 'byte')}"
    files = f"{counted(added, 'file')}{size} added, {removed:,} removed"
    if added and commit.size_bytes is None:
        files += " (Spark decides the number of files; one for each partition is assumed)"
    run = f" of run {commit.run!r}" if commit.run else ""
    where = counted(len(commit.partitions), "partition")
    return (
        f"Would commit version {commit.version}, {commit.operation}{run}: "
        f"{commit.rows_in_words()}; {files}, in {where}."
    )


def automatic_publications(dataset: Dataset) -> list[PublishedTable]:
    """Return the tables to which each commit is published automatically.

    Cost:
        Nothing if no property asks for it; else as `Dataset.inspect.publications`.
    """
    if not publishing.targets(dataset.descriptor.properties):
        return []
    return [table for table in dataset.inspect.publications() if table.is_automatic]


def published_record(table: PublishedTable) -> dict[str, object]:
    """Return the record of a published table."""
    return {
        "kind": table.kind,
        "table": table.table or None,
        "version": table.version,
        "is_in_step": table.is_in_step,
    }


def no_commit_record() -> dict[str, object]:
    """Return the record of a write that changed nothing, with the keys `COMMIT_COLUMNS`."""
    return {
        **dict.fromkeys(COMMIT_COLUMNS),
        **dict.fromkeys((*_COUNTS, "row_count"), 0),
        "caught": [],
        "checks": [],
    }


def dataset_record(dataset: Dataset) -> dict[str, Any]:
    """Return the record of a dataset: its descriptor, counts and last commit.

    Cost:
        The head, the file table and the history, which are few objects.
    """
    descriptor = dataset.descriptor
    files = dataset.files()
    history = dataset._commits()
    return {
        "name": dataset.name,
        "location": dataset.uri,
        "version": dataset.version,
        "schema": schema_to_avro(descriptor.schema),
        "partition_by": descriptor.partition_by.to_document(),
        "format": descriptor.format,
        "compression": descriptor.compression,
        "index": list(descriptor.index),
        "properties": dict(descriptor.properties),
        "annotations": dataset.inspect.annotations(),
        "checks": check_records(dataset) if descriptor.checks else [],
        "file_count": len(files),
        "row_count": known_total([file.row_count for file in files]),
        "size_bytes": known_total([file.size_bytes for file in files]),
        "partition_count": _count_partitions(files),
        "held": [
            {"location": hold.location, "reason": hold.reason} for hold in dataset.sources.holds()
        ],
        "last_commit": commit_record(history[-1]) if history else None,
        "published": [published_record(table) for table in automatic_publications(dataset)],
    }


def check_records(dataset: Dataset) -> list[dict[str, str]]:
    """Return the records of the declared checks of a dataset, with the keys `CHECK_COLUMNS`."""
    return [
        {column: str(getattr(declared, column)) for column in CHECK_COLUMNS}
        for declared in dataset.inspect.checks()
    ]


def dataset_facts(dataset: Dataset, record: dict[str, Any]) -> dict[str, object]:
    """Return the record of a dataset in a form for people."""
    descriptor = dataset.descriptor
    last = to_plain(record["last_commit"])
    published = [_published_text(table, record["version"]) for table in record["published"]]
    return {
        "name": record["name"],
        "location": record["location"],
        "version": record["version"],
        "last commit": last and f"{last['operation']} at {last['committed_at']}",
        "fields": [_field_text(field) for field in descriptor.schema],
        "partition by": _strategy_texts(descriptor.partition_by) or None,
        "format": f"{record['format']}, {record['compression']}",
        "index": record["index"] or None,
        "properties": [f"{key}={value}" for key, value in record["properties"].items()] or None,
        **_annotation_facts(record["annotations"]),
        **facts_of_retention(descriptor),
        **_check_facts(record["checks"]),
        "partitions": record["partition_count"],
        "files": record["file_count"],
        "rows": record["row_count"],
        "bytes": record["size_bytes"],
        **({"published": published} if published else {}),
        **_held_facts(record["held"]),
    }


def _published_text(table: dict[str, Any], latest: int) -> str:
    title = f"{table['kind']} {table['table'] or ''}".rstrip()
    if table["version"] is None:
        return f"{title}: never" if latest else f"{title}: after the first commit"
    behind = "" if table["is_in_step"] else f" of {latest}, NOT in step"
    return f"{title}: version {table['version']}{behind}"


def _annotation_facts(annotations: Mapping[str, Any]) -> dict[str, object]:
    """Return the facts on entries of other tools in the head, if there are any."""
    texts = [f"{name}={value}" for name, value in annotations.items()]
    return {"annotations": texts} if texts else {}


def _check_facts(declared: Sequence[dict[str, str]]) -> dict[str, object]:
    """Return the facts on declared checks, if there are any."""
    texts = [
        f"{one['name']}: {one['check']}, {one['on_failure']}; {one['outcome']}" for one in declared
    ]
    return {"checks": texts} if texts else {}


def _held_facts(held: Sequence[dict[str, str]]) -> dict[str, object]:
    """Return the facts on held raw files, if there are any."""
    texts = [": ".join(filter(None, (hold["location"], hold["reason"]))) for hold in held]
    return {"held raw files": texts} if texts else {}


def _field_text(field: Field) -> str:
    text = f"{field.name}: {field.type}"
    if not field.nullable:
        text += ", not null"
    return text if field.default is MISSING else f"{text}, default {field.default!r}"


def _strategy_texts(strategy: PartitionStrategy) -> list[str]:
    """Return each function in the form that `PartitionStrategy.parse` reads."""
    return [str(function) for function in strategy]


def _count_partitions(files: Sequence[File]) -> int:
    return len({file.partition for file in files})
