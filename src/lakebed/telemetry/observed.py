"""The calls that are observed: public verbs, and the few functions that all of them go through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakebed.errors import LakebedError

CallKind = Literal["verb", "step", "plan", "reading", "commit", "publication"]
"""Kind of an observed call.

`step` is a step of a pipeline, `publication` the publication to one table, `reading` the reading of
raw files. These, `plan` and `commit` are parts of verbs, and occur without one where the command
line, Spark or a transaction goes past the verbs.
"""

Place = tuple[str | None, str]
"""Name of a dataset, if the call has one, and the URI of its repository or archive."""

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verbs:
    """Public verbs of one class.

    Attributes:
        module: The module of the class.
        owner: Name of the class.
        names: Names of the verbs in telemetry, by name of the method.
        place: Function that returns the place of a call from its arguments.
    """

    module: str
    owner: str
    names: Mapping[str, str]
    place: Callable[[Arguments], Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFunction:
    """A function that is observed wherever it is called.

    Attributes:
        module: The module that defines it.
        name: Its name there.
        kind: Kind of the call.
        title: Name of the call in telemetry, with `{argument}` for the value of an argument.
        place: Function that returns the place of a call from its arguments.
    """

    module: str
    name: str
    kind: CallKind
    title: str
    place: Callable[[Arguments], Place]


def _of_view(given: Arguments) -> Place:
    source = given["self"]._source
    return source.name, source.store.uri


def _of_group(given: Arguments) -> Place:
    return _of_view({"self": given["self"]._dataset})


def _of_repository(given: Arguments) -> Place:
    return given.get("name"), given["self"].uri


def _of_trees(given: Arguments) -> Place:
    return given["view"]._source.name, given["self"]._repository.uri


def _of_archive(given: Arguments) -> Place:
    return None, given["self"].store.uri


def _of_declaration(given: Arguments) -> Place:
    """Return the dataset of an ingest or a pipeline."""
    declared = given["self"]
    ingest: Any = getattr(declared, "ingest", declared)
    location, name = ingest._address()
    try:
        return name, ingest._store().uri
    except LakebedError:  # the verb raises it again, as its own error
        return name, location


def _of_step(given: Arguments) -> Place:
    setting = given["setting"]
    return setting.name, setting.store.uri


def _of_terms(given: Arguments) -> Place:
    return given["terms"].base.name, given["store"].uri


def _of_state(given: Arguments) -> Place:
    store = given.get("store")
    return given["state"].name, "" if store is None else store.uri


def _of_dataset(given: Arguments) -> Place:
    return given["dataset"], given["store"].uri


def _of_reading(given: Arguments) -> Place:
    return given["first"].name, given["self"].store.uri


def _of_name(given: Arguments) -> Place:
    return given["name"], given["store"].uri


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _in_group(group: str, *names: str) -> dict[str, str]:
    return {name: f"{group}.{name}" for name in names}


def _publication_of(table_format: str) -> SharedFunction:
    room = "trees" if table_format == "kartothek" else table_format
    return SharedFunction(
        module=f"lakebed.tables.{room}.to_{table_format}",
        name="publish",
        kind="publication",
        title=f"publish.{table_format}",
        place=_of_dataset,
    )


VERBS = (
    Verbs(
        module="lakebed.selection",
        owner="Readable",
        names=_same("arrow", "pandas", "polars", "head"),
        place=lambda given: _of_view({"self": getattr(given["self"], "_view", given["self"])}),
    ),
    Verbs(
        module="lakebed.view",
        owner="View",
        names=_same(
            *("spark", "count", "append", "overwrite", "delete"),
            *("merge", "upsert", "update_rows"),
        ),
        place=_of_view,
    ),
    Verbs(
        module="lakebed.dataset",
        owner="Dataset",
        names=_same(
            *("diff", "changes", "rollback", "load", "evolve", "overwrite", "rerun", "delete"),
            *("erase", "cleanup", "check", "publish", "unpublish", "compact"),
        ),
        place=_of_view,
    ),
    Verbs(
        module="lakebed.repository",
        owner="Repository",
        names=_same("create", "write", "adopt", "drop", "sql", "maintain", "report"),
        place=_of_repository,
    ),
    Verbs(
        module="lakebed.repository",
        owner="TreeGroup",
        names=_in_group("trees", "export"),
        place=_of_trees,
    ),
    Verbs(
        module="lakebed.groups.index_group",
        owner="IndexGroup",
        names={"build": "indices.build", "drop": "indices.drop"},
        place=_of_group,
    ),
    Verbs(
        module="lakebed.groups.dimension_group",
        owner="DimensionGroup",
        names=_in_group("dimensions", "promote"),
        place=_of_group,
    ),
    Verbs(
        module="lakebed.groups.protection_group",
        owner="ProtectionGroup",
        names=_in_group("protections", "add", "remove"),
        place=_of_group,
    ),
    Verbs(
        module="lakebed.groups.source_group",
        owner="SourceGroup",
        names=_in_group("sources", "hold", "release"),
        place=_of_group,
    ),
    Verbs(
        module="lakebed.groups.staged_group",
        owner="StagedGroup",
        names=_in_group("staged", "add"),
        place=_of_group,
    ),
    Verbs(
        module="lakebed.batches.staged",
        owner="Staged",
        names=_in_group("staged", "check", "commit", "discard"),
        place=_of_view,
    ),
    Verbs(
        module="lakebed.archive.archive",
        owner="Archive",
        names=_in_group("archive", "push", "retract", "restore", "delete", "reindex"),
        place=_of_archive,
    ),
    Verbs(
        module="lakebed.pipeline.ingest",
        owner="Ingest",
        names={"check": "ingest.check", "run": "ingest"},
        place=_of_declaration,
    ),
    # A first ingest or load creates its dataset without the verb of the repository.
    Verbs(
        module="lakebed.work.ingest.execution",
        owner="_Reading",
        names={"_create": "create"},
        place=_of_reading,
    ),
    Verbs(
        module="lakebed.pipeline.table_ingest",
        owner="TableIngest",
        names={"run": "ingest"},
        place=_of_declaration,
    ),
    Verbs(
        module="lakebed.pipeline.pipeline",
        owner="Pipeline",
        names={"run": "run"},
        place=_of_declaration,
    ),
)

FUNCTIONS = (
    SharedFunction(
        module="lakebed.plan.search",
        name="plan",
        kind="plan",
        title="plan",
        place=_of_state,
    ),
    SharedFunction(
        module="lakebed.state.group_commit",
        name="commit_change",
        kind="commit",
        title="commit",
        place=_of_terms,
    ),
    # The command line and the steps of a pipeline call these without the verb of a dataset.
    SharedFunction(
        module="lakebed.work.ingest.load",
        name="load",
        kind="verb",
        title="load",
        place=_of_name,
    ),
    SharedFunction(
        module="lakebed.work.compaction",
        name="compact",
        kind="verb",
        title="compact",
        place=_of_name,
    ),
    SharedFunction(
        module="lakebed.work.ingest.execution",
        name="read_in",
        kind="reading",
        title="read_in",
        place=_of_dataset,
    ),
    *map(_publication_of, ("delta", "iceberg", "hive", "kartothek")),
    SharedFunction(
        module="lakebed.pipeline.steps",
        name="run_step",
        kind="step",
        title="run.{step}",
        place=_of_step,
    ),
)
