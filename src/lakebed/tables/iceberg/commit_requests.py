"""Requests of clients that commit to a table of the catalog: what they ask for, checked. No I/O.

A request adds one snapshot to the branch `main`, or several that follow each other, after the
snapshot that the table shows. Everything else is refused, with the verb that does it here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
from pyiceberg.table.refs import MAIN_BRANCH

from lakebed.common.decoding import UNREADABLE, from_json
from lakebed.common.shown import shown
from lakebed.errors import CommitConflictError, InvalidInputError
from lakebed.tables.iceberg.catalog_tables import ServedTable
from lakebed.tables.iceberg.metadata_names import LARGEST_ID, run_of
from lakebed.tables.iceberg.new_rows import Summaries, declared

LOAD_AGAIN = "Load the table again, and repeat the change if it is still right."
MAX_COMMIT_BYTES = 1 << 20  # of a request to commit
_MOST_SNAPSHOTS = 100  # that one request adds
_MOST_REQUIREMENTS = 100
_APPEND = "append"
_REPLACE = "replace"  # the operation of rewrites that change no row

_SCHEMA = "Change the schema by `lakebed schema`."
_PARTITIONS = "Create a dataset with the partitions, by `lakebed create`, and copy the rows."
_PROPERTIES = "Set properties by `lakebed schema update`."
_REFS = (
    "Keep a version by `lakebed protection`, or write rows that stay invisible by `lakebed staged`."
)
_ROLLBACK = "Make an older version current by `lakebed rollback`."
_CLEANUP = "Delete old versions by `lakebed cleanup`."
_NOT_KEPT = "Leave it out: Lakebed keeps its own."
_COMPACT = "Merge small files by `lakebed compact`."
_REFUSED = {
    "add-schema": ("changes the schema", _SCHEMA),
    "set-current-schema": ("changes the schema", _SCHEMA),
    "remove-schemas": ("changes the schema", _SCHEMA),
    "add-spec": ("changes the partitions", _PARTITIONS),
    "set-default-spec": ("changes the partitions", _PARTITIONS),
    "remove-partition-specs": ("changes the partitions", _PARTITIONS),
    "add-sort-order": ("changes the sort order", "Sort files by `lakebed compact --sort-by`."),
    "set-default-sort-order": (
        "changes the sort order",
        "Sort files by `lakebed compact --sort-by`.",
    ),
    "set-properties": ("changes properties", _PROPERTIES),
    "remove-properties": ("changes properties", _PROPERTIES),
    "remove-snapshots": ("removes snapshots", _CLEANUP),
    "remove-snapshot-ref": ("removes a branch or a tag", _REFS),
    "set-statistics": ("records statistics", _NOT_KEPT),
    "remove-statistics": ("removes statistics", _NOT_KEPT),
    "set-partition-statistics": ("records statistics", _NOT_KEPT),
    "remove-partition-statistics": ("removes statistics", _NOT_KEPT),
    "set-location": ("moves the table", "Copy the dataset, and serve the copy."),
    "assign-uuid": ("changes the id of the table", "Create a dataset by `lakebed create`."),
    "upgrade-format-version": ("changes the format", "Leave it out: tables have version 2."),
    "add-encryption-key": ("encrypts the table", "Encrypt the storage."),
    "remove-encryption-key": ("encrypts the table", "Encrypt the storage."),
}


_NONE = msgspec.Raw(b"null")


class UnsupportedCommitError(InvalidInputError):
    """A change of a table that the catalog does not make."""


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    manifest_list: str
    summary: dict[str, str]
    parent_snapshot_id: int | None = None


class _Update(msgspec.Struct, rename="kebab"):
    action: str
    snapshot: msgspec.Raw = _NONE
    ref_name: str = ""
    type: str = ""
    snapshot_id: int | None = None


class _Requirement(msgspec.Struct, rename="kebab"):
    type: str
    ref: str = ""
    uuid: str = ""
    snapshot_id: int | None = None
    last_assigned_field_id: int | None = None
    current_schema_id: int | None = None
    last_assigned_partition_id: int | None = None
    default_spec_id: int | None = None
    default_sort_order_id: int | None = None


class _Request(msgspec.Struct):
    updates: list[_Update]
    requirements: list[_Requirement] = []


_NUMBERS = {
    "assert-last-assigned-field-id": ("last_assigned_field_id", "last-column-id"),
    "assert-current-schema-id": ("current_schema_id", "current-schema-id"),
    "assert-last-assigned-partition-id": ("last_assigned_partition_id", "last-partition-id"),
    "assert-default-spec-id": ("default_spec_id", "default-spec-id"),
    "assert-default-sort-order-id": ("default_sort_order_id", "default-sort-order-id"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedCommit:
    """A commit that a client asks for.

    Attributes:
        snapshot_id: Id of the last snapshot that it adds, by which a repetition is recognized.
        parent_id: The snapshot that it follows; None for none.
        manifest_list: Location of the list of manifests of the last snapshot.
        is_append: True if each snapshot is an append by its summary.
        summaries: The summaries of its snapshots.
        requirements: Conditions on the table.
    """

    snapshot_id: int
    parent_id: int | None
    manifest_list: str
    is_append: bool
    summaries: Summaries
    requirements: tuple[_Requirement, ...]

    @property
    def run(self) -> str:
        """Name of the run under which the history of the dataset records it."""
        return run_of(self.snapshot_id)

    def check(self, table: ServedTable, version: int) -> None:
        """Check that the table is as the client has seen it.

        Args:
            table: The table as it is now.
            version: Version of the dataset that it shows.

        Raises:
            CommitConflictError: It is not, so the client should load the table and try again.
            InvalidInputError: A requirement is unknown.
        """
        for requirement in self.requirements:
            _check_requirement(requirement, table, version)
        if self.parent_id != table.current:
            raise _conflict(table, version, f"snapshot {table.current}, not {self.parent_id}")


def parse(body: bytes) -> AskedCommit:
    """Parse a request to commit.

    Raises:
        InvalidInputError: It is not such a request.
        UnsupportedCommitError: It asks for something that the catalog does not do.
    """
    try:
        request = from_json(body, _Request)
        snapshots = [
            from_json(update.snapshot, _Snapshot)
            for update in request.updates
            if update.action == "add-snapshot"
        ]
    except UNREADABLE as exc:
        raise _malformed(f"it cannot be read: {exc}") from exc
    if len(request.requirements) > _MOST_REQUIREMENTS:
        raise _malformed(f"it has {len(request.requirements):,} requirements")
    for update in request.updates:
        _check_update(update)
    return _asked(request, snapshots)


def _asked(request: _Request, snapshots: list[_Snapshot]) -> AskedCommit:
    refs = [update for update in request.updates if update.action == "set-snapshot-ref"]
    if not snapshots:
        if refs:
            raise UnsupportedCommitError(
                "The request makes another snapshot current, without a new one.", hint=_ROLLBACK
            )
        raise _malformed("it changes nothing")
    if len(snapshots) > _MOST_SNAPSHOTS:
        raise _malformed(f"it adds {len(snapshots):,} snapshots")
    for before, snapshot in zip([None, *snapshots], snapshots, strict=False):
        if not 0 < snapshot.snapshot_id <= LARGEST_ID:
            raise _malformed(f"its snapshot has the id {snapshot.snapshot_id}")
        if before is not None and snapshot.parent_snapshot_id != before.snapshot_id:
            raise _malformed(f"snapshot {snapshot.snapshot_id} does not follow the one before it")
        if snapshot.summary.get("operation") == _REPLACE:
            raise UnsupportedCommitError(
                "The request rewrites data files without a change of rows.", hint=_COMPACT
            )
    summaries = tuple(one.summary for one in snapshots)
    declared(summaries)  # checked, whether it is needed or not
    last = snapshots[-1]
    if not refs or refs[-1].snapshot_id != last.snapshot_id:
        raise UnsupportedCommitError(
            "The request adds a snapshot that does not become current.",
            hint="Write rows that stay invisible by `lakebed staged`.",
        )
    return AskedCommit(
        snapshot_id=last.snapshot_id,
        parent_id=snapshots[0].parent_snapshot_id,
        manifest_list=last.manifest_list,
        is_append=all(one.summary.get("operation") == _APPEND for one in snapshots),
        summaries=summaries,
        requirements=tuple(request.requirements),
    )


def _check_update(update: _Update) -> None:
    """Check that an update is one of those that add a snapshot to the branch `main`."""
    if update.action in _REFUSED:
        what, hint = _REFUSED[update.action]
        raise UnsupportedCommitError(f"The update {update.action!r} {what}.", hint=hint)
    match update.action:
        case "add-snapshot":
            return
        case "set-snapshot-ref" if update.ref_name == MAIN_BRANCH and update.type == "branch":
            return
        case "set-snapshot-ref":
            raise UnsupportedCommitError(
                f"The catalog has one branch, {MAIN_BRANCH!r}, and no tags; the request sets "
                f"{shown(update.ref_name)}.",
                hint=_REFS,
            )
    raise UnsupportedCommitError(
        f"The update {shown(update.action)} is unknown here.",
        hint="Append, overwrite or delete rows by snapshots on the branch 'main'.",
    )


def _check_requirement(requirement: _Requirement, table: ServedTable, version: int) -> None:
    match requirement.type:
        case "assert-create":
            raise _conflict(table, version, "a table, which exists")
        case "assert-table-uuid":
            if requirement.uuid.lower() != str(table.metadata["table-uuid"]).lower():
                raise _conflict(table, version, "another table of the same name")
        case "assert-ref-snapshot-id":
            current = table.current if requirement.ref == MAIN_BRANCH else None
            if requirement.snapshot_id != current:
                ref = shown(requirement.ref)
                raise _conflict(table, version, f"snapshot {current} as {ref}")
        case kind if kind in _NUMBERS:
            name, member = _NUMBERS[kind]
            if getattr(requirement, name) != table.metadata.get(member):
                raise _conflict(table, version, f"another {member}")
        case kind:
            raise _malformed(f"the requirement {shown(kind)} is unknown")


def _conflict(table: ServedTable, version: int, what: str) -> CommitConflictError:
    return CommitConflictError(
        f"The table {table.name!r} has changed since the client loaded it: it shows {what}.",
        hint=LOAD_AGAIN,
        expected=version,
        actual=version,
    )


def _malformed(why: str) -> InvalidInputError:
    return InvalidInputError(
        f"The request is not a commit of Iceberg's protocol: {why}.",
        hint="Send requirements and updates, as CommitTableRequest has them.",
    )


AllowedWrites = Literal["append", "all"]
"""The writes that a server allows."""


def check_allowed(allowed: AllowedWrites, asked: AskedCommit, removed_count: int) -> None:
    """Check that a request may remove files.

    Args:
        allowed: The writes that the server allows.
        asked: The request.
        removed_count: Number of data files that it removes.

    Raises:
        UnsupportedCommitError: It may only add rows.
    """
    if not removed_count:
        return
    if asked.is_append:
        raise _malformed(f"it removes {removed_count:,} data files, and its snapshots are appends")
    if allowed != "all":
        raise UnsupportedCommitError(
            f"The request removes {removed_count:,} data files, and the server allows only appends.",
            hint="Change rows by lake.sql or `lakebed sql --write`, or serve with "
            "--allow-writes all.",
        )
