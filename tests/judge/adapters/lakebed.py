"""Lakebed, with a document as the head."""

from __future__ import annotations

import importlib.metadata
import logging
from typing import Any

import pyarrow as pa

import lakebed
from judge.steps import REFUSED, UNKNOWN, Step
from lakebed import by
from lakebed.errors import ErrorCode, LakebedError

_SCHEMA = pa.schema(
    [("k", pa.string()), ("op", pa.string()), ("p", pa.string()), ("n", pa.int64())]
)


class Table:
    """A dataset on S3."""

    verbs = frozenset({"append", "delete", "merge", "overwrite", "compact", "clean"})
    head = "document"
    release = importlib.metadata.version("lakebed")

    def __init__(self, given: dict[str, Any]) -> None:
        logging.getLogger("lakebed").setLevel(logging.ERROR)
        storage = {
            "endpoint": given["endpoint"],
            "allow_http": "true",
            "region": "us-east-1",
            "access_key_id": "testing",
            "secret_access_key": "testing",
        }
        self._repository = lakebed.open_repository(given["location"], storage_options=storage)
        self._reads_each = given.get("versions", 0)

    def create(self) -> None:
        """Create the table."""
        self._repository.create("d", _SCHEMA, partition_by=[by.identity("p")], head=self.head)

    def open(self) -> lakebed.Dataset:
        """Open the dataset."""
        return self._repository.open("d")

    def do(self, found: lakebed.Dataset, step: Step) -> tuple[int, str] | None:
        """Take a step; return the version and the id of its commit."""
        if step.verb == "append":
            done = found.append(step.rows)
        elif step.verb == "delete":
            done = found.delete(f"op = '{step.target}'")
        elif step.verb == "merge":
            done = found.merge(step.rows, on=["k"]).commit
        elif step.verb == "overwrite":
            done = found.overwrite(step.rows)
        else:
            if step.verb == "compact":
                found.compact()
            else:
                found.cleanup(dry_run=False)
            return None
        if done is None:
            raise AssertionError(f"{step.verb} of {step.target} found no rows")
        return done.version, str(done.commit_id)

    def outcome_of(self, exc: BaseException) -> str:
        """Return UNKNOWN for a commit of unknown outcome, REFUSED for other errors of Lakebed."""
        if not isinstance(exc, LakebedError):
            return "broken"
        return UNKNOWN if exc.code == ErrorCode.COMMIT_UNKNOWN else REFUSED

    def rows(self) -> list[list[str]]:
        """Return key and step of each row."""
        return _pairs(self._repository.open("d").arrow(["k", "op"]))

    def history(self) -> dict[str, Any]:
        """Return the versions, the ids of their commits, and what a check of all objects finds."""
        found = self._repository.open("d")
        commits = list(found.history())
        problems = [str(one) for one in found.check(deep=True).problems]
        step = max(1, len(commits) // self._reads_each) if self._reads_each else len(commits) + 1
        for commit in commits[::step]:
            found.at(version=commit.version).arrow(["k"])
        return {
            "versions": [one.version for one in commits],
            "commits": [str(one.commit_id) for one in commits],
            "problems": problems,
        }


def _pairs(table: pa.Table) -> list[list[str]]:
    return [
        list(pair) for pair in zip(*(table.column(c).to_pylist() for c in ("k", "op")), strict=True)
    ]
