"""Repositories on the command line: distinguished from datasets, and shown as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakebed.cli.output import Output, next_commands
from lakebed.cli.shared_options import split_address
from lakebed.common.shown import counted, human_size
from lakebed.dataset import Dataset
from lakebed.errors import InvalidInputError, LakebedError, NotFoundError
from lakebed.model.locations import shell_address
from lakebed.model.names import nearest
from lakebed.model.totals import known_total
from lakebed.repository import Repository, open_repository
from lakebed.state.reader import list_names
from lakebed.store.base import location_exists

_COLUMNS = (
    "name",
    "version",
    "row_count",
    "file_count",
    "size_bytes",
    "last_operation",
    "last_committed_at",
    "location",
)
# Columns of a table for people.
_TABLE_COLUMNS = ("name", "rows", "files", "size", "last_commit", "operation", "version")


def find_lake(location: str, storage_options: Mapping[str, str]) -> tuple[Repository, str | None]:
    """Return the repository at a location, and the name if the location is one dataset.

    Raises:
        NotFoundError: There is neither a repository nor a dataset.
    """
    repository = open_repository(location, storage_options=storage_options)
    if list_names(repository.store):
        return repository, None
    nearby = ""
    try:
        above, name = split_address(location)
        outer = open_repository(above, storage_options=storage_options)
        if outer.exists(name):
            return outer, name
        nearby = nearest(name, outer.list())
    except InvalidInputError:
        pass  # not a valid name of a dataset
    if not location_exists(repository.store):
        raise NotFoundError(
            f"There is neither a repository nor a dataset at {location}.",
            hint=nearby or "Write LOCATION or LOCATION/NAME; `lakebed create` creates both.",
        )
    return repository, None


def show_lake(output: Output, repository: Repository) -> None:
    """Show a row for each dataset of a repository; raise the first error at the end.

    Cost:
        One LIST, and for each dataset its head, file table and history.
    """
    failed: list[LakebedError] = []
    rows = _rows(output, repository, failed)
    if output.is_table:
        known = list(rows)
        output.rows(_TABLE_COLUMNS, map(_table_row, known))
        if known:
            _note_total(output, repository, known)
    else:
        output.rows(_COLUMNS, rows)
    if failed:
        raise failed[0]


def _rows(
    output: Output, repository: Repository, failed: list[LakebedError]
) -> Iterator[dict[str, object]]:
    for name in repository.list():
        try:
            row = _row(repository.open(name).snapshot())
        except LakebedError as error:
            failed.append(error)
            output.note(f"{name} cannot be read: {error.message}")
            row = {**dict.fromkeys(_COLUMNS), "name": name}
        yield {**row, "location": f"{repository.uri}/{name}"}


def _row(dataset: Dataset) -> dict[str, object]:
    files, history = dataset.files(), dataset._commits()
    return {
        "name": dataset.name,
        "version": dataset.version,
        "row_count": known_total([file.row_count for file in files]),
        "file_count": len(files),
        "size_bytes": known_total([file.size_bytes for file in files]),
        "last_operation": history[-1].operation if history else None,
        "last_committed_at": history[-1].committed_at if history else None,
    }


def _table_row(row: Mapping[str, Any]) -> dict[str, object]:
    return {
        "name": row["name"],
        "rows": row["row_count"],
        "files": row["file_count"],
        "size": None if row["size_bytes"] is None else human_size(row["size_bytes"]),
        "last_commit": row["last_committed_at"],
        "operation": row["last_operation"],
        "version": row["version"],
    }


def _note_total(output: Output, repository: Repository, rows: Sequence[Mapping[str, Any]]) -> None:
    row_count = known_total([row["row_count"] for row in rows])
    size_bytes = known_total([row["size_bytes"] for row in rows])
    counts = [counted(len(rows), "dataset")]
    if row_count is not None:
        counts.append(counted(row_count, "row"))
    if size_bytes is not None:
        counts.append(human_size(size_bytes))
    output.note(f"{', '.join(counts)} in {repository.uri}.")
    largest = max(rows, key=lambda row: row["row_count"] or 0)
    output.note(next_commands(f"show {shell_address(largest['location'])}"))
