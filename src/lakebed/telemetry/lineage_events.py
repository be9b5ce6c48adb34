"""Run events of OpenLineage as plain values: dicts of the specification's JSON."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import lakebed
from lakebed.commit import ChangedRows
from lakebed.errors import redacted
from lakebed.state.check_results import CheckOutcome
from lakebed.state.committing import Committed
from lakebed.state.sources import SourceFile
from lakebed.state.state import State
from lakebed.tables.outcome import Publication
from lakebed.telemetry.lineage_names import Named, dataset_of, place_of

EventType = Literal["START", "COMPLETE", "FAIL"]
Life = Literal["CREATE", "DROP"]
Facet = dict[str, Any]
EventFacts = dict[str, Any]

_SPEC = "https://openlineage.io/spec"
PRODUCER = f"https://github.com/lakebed/lakebed/tree/v{lakebed.__version__}"
_OWN_FACETS = f"https://github.com/lakebed/lakebed/blob/v{lakebed.__version__}/docs/lineage-facets.schema.json"
# Versions of the facets, as in the specification 2-0-2.
_VERSIONS = {
    "SchemaDatasetFacet": "1-2-0",
    "DatasetVersionDatasetFacet": "1-0-1",
    "StorageDatasetFacet": "1-0-1",
    "LifecycleStateChangeDatasetFacet": "1-0-1",
    "OutputStatisticsOutputDatasetFacet": "1-0-2",
    "InputStatisticsInputDatasetFacet": "1-0-0",
    "SymlinksDatasetFacet": "1-0-1",
    "ParentRunFacet": "1-2-0",
    "ProcessingEngineRunFacet": "1-1-1",
    "ErrorMessageRunFacet": "1-0-1",
    "JobTypeJobFacet": "2-0-4",
}
_LIFECYCLE = {"overwrite": "OVERWRITE", "evolve": "ALTER"}


def facet(name: str, /, **facts: object) -> Facet:
    """Return a facet of the specification; facts that are None are left out."""
    url = f"{_SPEC}/facets/{_VERSIONS[name]}/{name}.json#/$defs/{name}"
    return _with_schema(url, facts)


def own_facet(name: str, /, **facts: object) -> Facet:
    """Return a facet of Lakebed's own; `docs/lineage-facets.schema.json` describes it."""
    return _with_schema(f"{_OWN_FACETS}#/$defs/{name}", facts)


def _with_schema(url: str, facts: Mapping[str, object]) -> Facet:
    known = {name: value for name, value in facts.items() if value is not None}
    return {"_producer": PRODUCER, "_schemaURL": url, **known}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A run of a job.

    Attributes:
        namespace: Namespace of the job.
        job: Name of the job.
        run_id: Id of the run.
        parent: The run that it is part of; None if there is none.
    """

    namespace: str
    job: str
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    parent: JobRun | None = None

    @classmethod
    def parse(cls, text: str) -> JobRun | None:
        """Read a parent in the form `namespace/job/run_id`, as schedulers pass it; None if it is none.

        >>> JobRun.parse("default/nightly/01941a3b-0000-7000-8000-000000000000").job
        'nightly'
        >>> JobRun.parse("nightly") is None
        True
        """
        others, _, run_id = text.strip().rpartition("/")
        namespace, _, job = others.rpartition("/")
        try:
            uuid.UUID(run_id)
        except ValueError:
            return None
        return cls(namespace=namespace, job=job, run_id=run_id) if namespace and job else None

    def named(self) -> dict[str, Any]:
        """Return run and job as a facet names them."""
        return {
            "run": {"runId": self.run_id},
            "job": {"namespace": self.namespace, "name": self.job},
        }


def run_event(
    kind: EventType,
    run: JobRun,
    at: dt.datetime,
    *,
    inputs: Iterable[Mapping[str, Any]] = (),
    outputs: Iterable[Mapping[str, Any]] = (),
    facets: Mapping[str, Facet] | None = None,
) -> EventFacts:
    """Return a run event."""
    of_run: dict[str, Facet] = {
        "processing_engine": facet(
            "ProcessingEngineRunFacet", name="lakebed", version=lakebed.__version__
        ),
        **(facets or {}),
    }
    if run.parent is not None:
        of_run["parent"] = facet("ParentRunFacet", **run.parent.named())
    job_type = facet(
        "JobTypeJobFacet", processingType="BATCH", integration="LAKEBED", jobType="JOB"
    )
    return {
        "eventType": kind,
        "eventTime": at.isoformat(),
        "producer": PRODUCER,
        "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        "run": {"runId": run.run_id, "facets": of_run},
        "job": {"namespace": run.namespace, "name": run.job, "facets": {"jobType": job_type}},
        "inputs": list(inputs),
        "outputs": list(outputs),
    }


def error_facet(error: BaseException) -> Facet:
    """Return the facet of a run that failed."""
    message = redacted(str(error)) or type(error).__name__
    return facet("ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON")


def raw_file(records: Sequence[tuple[str, SourceFile]]) -> dict[str, Any]:
    """Return a raw file as an input.

    Args:
        records: The datasets that it was read into, such as one and its quarantine, each with the
            record of the file there.
    """
    file = records[-1][1]
    archived = {
        name: getattr(file, name) for name in ("file_id", "path", "what", "where", "work_id")
    }
    times = {name: getattr(file, name) for name in ("start", "end")}
    archived |= {name: moment and moment.isoformat() for name, moment in times.items()}
    batches = [
        {
            "dataset": dataset,
            "batch_id": one.batch_id,
            "row_count": one.row_count,
            "rejected_count": one.rejected_count,
        }
        for dataset, one in records
    ]
    # A quarantine records the attempt that a file was read for.
    row_count = sum(one.row_count for _, one in records if one.attempt is None)
    return {
        **place_of(file.location)._asdict(),
        "facets": {
            "version": _version(file.fingerprint),
            "lakebed_rawFile": own_facet(
                "LakebedRawFile", run=file.run, batches=batches, **archived
            ),
        },
        "inputFacets": _statistics(file.size_bytes, row_count),
    }


def unrecorded_file(location: str, size_bytes: int) -> dict[str, Any]:
    """Return a raw file whose reading the dataset does not record as an input."""
    return {
        **place_of(location)._asdict(),
        "facets": {},
        "inputFacets": _statistics(size_bytes, None),
    }


def spark_table(
    name: str, location: str | None, version: str | None, row_count: int | None
) -> dict[str, Any]:
    """Return a table of Spark as an input: by the place of its files if that is known, else by name.

    Args:
        name: Name of the table in its catalog.
        location: URL of its files; None if it is unknown.
        version: Version that was read; None if it is unknown.
        row_count: Rows that were read; None if they are unknown.
    """
    facets: dict[str, Facet] = {}
    if version is not None:
        facets["version"] = _version(version)
    if location is not None:
        same = {"namespace": "spark", "name": name, "type": "TABLE"}
        facets["symlinks"] = facet("SymlinksDatasetFacet", identifiers=[same])
    named = Named("spark", name) if location is None else place_of(location)
    statistics = facet("InputStatisticsInputDatasetFacet", rowCount=row_count)
    return {
        **named._asdict(),
        "facets": facets,
        "inputFacets": {} if row_count is None else {"inputStatistics": statistics},
    }


def _statistics(size_bytes: int, row_count: int | None) -> dict[str, Facet]:
    name = "InputStatisticsInputDatasetFacet"
    return {"inputStatistics": facet(name, rowCount=row_count, size=size_bytes, fileCount=1)}


def earlier_version(location: str, dataset: str, version: int) -> dict[str, Any]:
    """Return a version of a dataset as an input."""
    return {**dataset_of(location, dataset)._asdict(), "facets": {"version": _version(version)}}


def _version(version: int | str) -> Facet:
    return facet("DatasetVersionDatasetFacet", datasetVersion=str(version))


def _change(change: str) -> Facet:
    return facet("LifecycleStateChangeDatasetFacet", lifecycleStateChange=change)


@dataclass(slots=True, kw_only=True)
class CommittedTo:
    """The commits of a run to one dataset.

    Attributes:
        location: URI of the repository.
        dataset: Name of the dataset.
        commits: The commits, each with the size of its files if that is known.
    """

    location: str
    dataset: str
    commits: list[tuple[Committed, int | None]] = field(default_factory=list)

    def output(self) -> dict[str, Any]:
        """Return the dataset as an output, with its version after the last of the commits."""
        last = self.commits[-1][0]
        sizes = [size for _, size in self.commits]
        known = [size for size in sizes if size is not None]
        entries = [made.entry for made, _ in self.commits]
        facets = {"version": _version(last.entry.version)}
        if last.state is not None:
            facets |= _of_state(last.state)
        change = _LIFECYCLE.get(last.entry.operation)
        if change is not None:
            facets["lifecycleStateChange"] = _change(change)
        return {
            **dataset_of(self.location, self.dataset)._asdict(),
            "facets": facets,
            "outputFacets": {
                "outputStatistics": facet(
                    "OutputStatisticsOutputDatasetFacet",
                    rowCount=sum(entry.row_count for entry in entries),
                    size=sum(known) if len(known) == len(sizes) else None,
                    fileCount=sum(len(entry.added) for entry in entries),
                ),
                "lakebed_batches": own_facet(
                    "LakebedBatches", batches=[_batch(made) for made, _ in self.commits]
                ),
            },
        }


def _batch(made: Committed) -> dict[str, Any]:
    entry, changed = made.entry, ChangedRows.of(made.entry)
    facts = {
        "batch_id": entry.batch_id,
        "commit_id": entry.commit_id,
        "version": entry.version,
        "operation": entry.operation,
        "run": entry.run,
        "inserted_row_count": changed.inserted,
        "updated_row_count": changed.updated,
        "deleted_row_count": changed.deleted,
        "added_file_count": len(entry.added),
        "removed_file_count": len(entry.removed),
        "checks": [_outcome(one) for one in entry.checks] or None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _outcome(result: CheckOutcome) -> dict[str, Any]:
    return {"name": result.name, "outcome": result.outcome, "count": result.count}


def _of_state(state: State) -> dict[str, Facet]:
    descriptor = state.descriptor
    columns = [
        {"name": one.name, "type": str(one.type), **({"description": one.doc} if one.doc else {})}
        for one in descriptor.schema
    ]
    return {
        "schema": facet("SchemaDatasetFacet", fields=columns),
        "storage": facet(
            "StorageDatasetFacet", storageLayer="lakebed", fileFormat=descriptor.format
        ),
    }


def life_output(location: str, dataset: str, change: Life, state: State | None) -> dict[str, Any]:
    """Return a dataset that was created or dropped as an output."""
    facets = {"lifecycleStateChange": _change(change)}
    if state is not None:
        facets |= {"version": _version(state.version), **_of_state(state)}
    return {**dataset_of(location, dataset)._asdict(), "facets": facets}


def table_output(done: Publication, named: Named) -> dict[str, Any]:
    """Return a published table as an output."""
    table_version = done.version if done.table_version is None else done.table_version
    facets = {
        "version": _version(table_version),
        "storage": facet("StorageDatasetFacet", storageLayer=done.kind),
        "lakebed_publication": own_facet(
            "LakebedPublication",
            format=done.kind,
            version=done.version,
            added_count=done.added_count,
            removed_count=done.removed_count,
        ),
    }
    if done.created:
        facets["lifecycleStateChange"] = _change("CREATE")
    return {**named._asdict(), "facets": facets}
