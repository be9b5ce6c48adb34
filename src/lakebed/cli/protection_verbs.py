"""Verbs on protections from cleanup: list, add, remove."""

from __future__ import annotations

import datetime as dt

import click

from lakebed.cli.data import show_commit
from lakebed.cli.group import VerbGroup
from lakebed.cli.output import Output
from lakebed.cli.shared_options import Verb, dry_run_option, parse_time, takes_dataset, verb
from lakebed.repository import Repository

_PROTECTION_COLUMNS = ("target", "version", "batch_id", "reason", "by", "at", "until", "is_expired")


@click.group(
    "protection",
    cls=VerbGroup,
    epilog="\b\nExample:\n  lakebed protection add lake/flights --version 12 --reason 'audit 2026'",
)
def protection() -> None:
    """Protect versions and batches from cleanup."""


def _takes_target(function: Verb) -> Verb:
    for option in (
        click.option("--batch-id", type=int, help="All files that the commit of this batch added."),
        click.option("--version", type=int, help="All files of this version."),
    ):
        function = option(function)
    return function


@verb(
    "add",
    example="lakebed protection add lake/flights --version 12 --reason 'audit 2026' --until 2027-01-01",
)
@takes_dataset
@_takes_target
@click.option("--reason", required=True, help="The reason, shown to those who clean up.")
@click.option("--until", callback=parse_time, help="End of the protection. Without zone, UTC.")
@dry_run_option("Only check, and show the commit that would be made.")
def add(
    output: Output,
    *,
    repository: Repository,
    name: str,
    version: int | None,
    batch_id: int | None,
    reason: str,
    until: dt.datetime | None,
    is_dry_run: bool,
) -> None:
    """Protect a version or a batch from cleanup."""
    commit = repository.open(name).protections.add(
        version=version, batch_id=batch_id, reason=reason, until=until, dry_run=is_dry_run
    )
    if is_dry_run:
        output.note(f"Would protect {_target(version, batch_id)} of {repository.uri}/{name}.")
    show_commit(output, commit)


@verb("remove", example="lakebed protection remove lake/flights --version 12")
@takes_dataset
@_takes_target
@dry_run_option("Only check, and show the commit that would be made.")
def remove(
    output: Output,
    *,
    repository: Repository,
    name: str,
    version: int | None,
    batch_id: int | None,
    is_dry_run: bool,
) -> None:
    """Remove the protection of a version or a batch."""
    commit = repository.open(name).protections.remove(
        version=version, batch_id=batch_id, dry_run=is_dry_run
    )
    if is_dry_run:
        target = _target(version, batch_id)
        output.note(f"Would end the protection of {target} of {repository.uri}/{name}.")
    show_commit(output, commit)


def _target(version: int | None, batch_id: int | None) -> str:
    return f"batch {batch_id}" if version is None else f"version {version}"


@verb("list", example="lakebed protection list lake/flights")
@takes_dataset
def list_(output: Output, *, repository: Repository, name: str) -> None:
    """List the versions and batches protected from cleanup."""
    now = dt.datetime.now(dt.UTC)
    known = repository.open(name).protections.list()
    if not known:
        output.note("Nothing is protected.")
    output.rows(
        _PROTECTION_COLUMNS,
        (
            {
                "target": protection.target,
                "version": protection.version,
                "batch_id": protection.batch_id,
                "reason": protection.reason,
                "by": protection.by,
                "at": protection.at,
                "until": protection.until,
                "is_expired": protection.is_expired(now),
            }
            for protection in known
        ),
    )


for _command in (list_, add, remove):
    protection.add_command(_command)
