"""Upkeep by SQL: `CALL lake.compact('flights')` and others, each a verb of Lakebed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import InvalidInputError
from lakebed.model.names import nearest, split_names
from lakebed.model.values import from_micros
from lakebed.spark.catalog.session_jvm import Jvm, Proxied, interfaces
from lakebed.spark.catalog.streams import local_rows
from lakebed.spark.raw_files import table_frame

if TYPE_CHECKING:
    from lakebed.spark.catalog.lake_tables import CatalogDataset, CatalogRepository

_TEXT = pa.string()
_TEXTS = pa.list_(pa.string())
_NUMBER = pa.int64()
_TRUTH = pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScope:
    """The objects that a procedure works on.

    Attributes:
        repository: The repository of the procedure's namespace.
        dataset: The dataset; None if the call names none.
        spark: The session.
    """

    repository: CatalogRepository
    dataset: CatalogDataset | None
    spark: Any


_Arguments = dict[str, Any]
_Row = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Procedure:
    """A procedure: a verb with types.

    Attributes:
        description: Its effect.
        parameters: Types of its parameters after `table`, in the words of Spark's SQL.
        columns: Types of the columns of its result.
        run: The verb; receives the arguments that a call gives, and returns rows.
        needs_table: Whether a call must name a dataset.
        changes_rows: Whether the rows of the table may be others afterwards.
    """

    description: str
    parameters: Mapping[str, str]
    columns: Mapping[str, pa.DataType]
    run: Callable[[CallScope, _Arguments], Iterable[_Row]]
    needs_table: bool = True
    changes_rows: bool = False


def _view_of(dataset: Any, arguments: _Arguments) -> dict[str, Any]:
    """Return the arguments of a verb, with the view that `where` names."""
    where = arguments.pop("where", None)
    return arguments if where is None else {**arguments, "view": dataset.where(where)}


def _with_session(target: CallScope, arguments: _Arguments) -> dict[str, Any]:
    """Return the arguments of a verb, with the session if its tasks are to do the work."""
    uses_spark = arguments.pop("spark", False)
    return {**arguments, "spark": target.spark} if uses_spark else arguments


def _with_table(arguments: _Arguments) -> dict[str, Any]:
    """Return the arguments of a publication: `table` is the dataset in a call."""
    table = arguments.pop("as_table", None)
    return arguments if table is None else {**arguments, "table": table}


def _attributes(value: object, names: Iterable[str]) -> dict[str, object]:
    """Return attributes of a report as a row."""
    row = {}
    for name in names:
        found = getattr(value, name)
        row[name] = [str(part) for part in found] if isinstance(found, tuple) else found
    return row


_COMPACTION = {
    "is_dry_run": _TRUTH,
    "files_before": _NUMBER,
    "files_after": _NUMBER,
    "bytes_before": _NUMBER,
    "bytes_after": _NUMBER,
    "row_count": _NUMBER,
    "skipped": _TEXTS,
    "notes": _TEXTS,
}


def _compact(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    if "sort_by" in arguments:
        arguments["sort_by"] = split_names(arguments["sort_by"])
    report = dataset.compact(**_with_session(target, _view_of(dataset, arguments)))
    version = report.commits[-1].version if report.commits else None
    return [{"version": version, **_attributes(report, _COMPACTION)}]


_MERGED = {
    "name": _TEXT,
    "segments_before": _NUMBER,
    "segments_after": _NUMBER,
    "dropped_count": _NUMBER,
}


def _compact_metadata(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    return [_attributes(merged, _MERGED) for merged in dataset.compact(metadata=True, **arguments)]


_CHANGE = {
    "version": _NUMBER,
    "operation": _TEXT,
    "row_count": _NUMBER,
    "files_added": _NUMBER,
    "files_removed": _NUMBER,
    "notes": _TEXTS,
}


def _change(commit: Any) -> _Row:
    return {
        **_attributes(commit, ("version", "operation", "row_count", "notes")),
        "files_added": len(commit.files_added),
        "files_removed": len(commit.files_removed),
    }


def _rollback(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    result = dataset.rollback(**_view_of(dataset, dict(arguments)))
    if result is None:
        nothing = {"row_count": 0, "files_added": 0, "files_removed": 0, "notes": []}
        return [{"operation": "rollback", **nothing}]
    if arguments.get("dry_run"):  # a plan: no version is made
        plan = {
            "operation": "rollback",
            "row_count": result.row_count,
            "files_added": len(result.added),
            "files_removed": len(result.removed),
            "notes": list(result.notes(hold=bool(arguments.get("hold")))),
        }
        return [plan]
    return [_change(result)]


_CLEANUP = {
    "is_dry_run": _TRUTH,
    "version": _NUMBER,
    "cutoff": _TIME,
    "horizon": _NUMBER,
    "size_bytes": _NUMBER,
}


def _cleanup(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    report = dataset.cleanup(**_with_session(target, arguments))
    counts = [f"{count} {reason}" for reason, count in report.counts.items()]
    return [{**_attributes(report, _CLEANUP), "files": len(report.files), "reasons": counts}]


def _check(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    report = dataset.check(**_with_session(target, arguments))
    findings = [f"{finding.severity} {finding.key}: {finding.what}" for finding in report.findings]
    row = _attributes(report, ("version", "file_count", "is_ok"))
    return [{**row, "findings": findings}]


_PUBLICATION = {
    "kind": _TEXT,
    "table": _TEXT,
    "version": _NUMBER,
    "is_applied": _TRUTH,
    "created": _TRUTH,
    "added_count": _NUMBER,
    "removed_count": _NUMBER,
    "unchanged_count": _NUMBER,
    "schema_changes": _TEXTS,
    "foreign": _TEXTS,
    "damaged": _TEXTS,
}


def _publish(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    if arguments.get("target") == "hive":
        arguments["metastore"] = target.spark
    report = dataset.publish(**_with_table(arguments))
    return [_attributes(report, _PUBLICATION)]


def _unpublish(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    if arguments.get("target") == "hive":
        arguments["metastore"] = target.spark
    return [{"is_dropped": dataset.unpublish(**_with_table(arguments))}]


def _protect(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    return [_change(dataset.protections.add(**arguments))]


def _unprotect(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    dataset: Any = target.dataset
    return [_change(dataset.protections.remove(**arguments))]


_STEP = {"step": _TEXT, "status": _TEXT, "summary": _TEXT}


def _maintain(target: CallScope, arguments: _Arguments) -> list[_Row]:
    repository: Any = target.repository
    if target.dataset is not None:
        arguments["names"] = target.dataset.name
    if "only" in arguments:
        arguments["only"] = split_names(arguments["only"])
    report = repository.maintain(metastore=None, **_with_session(target, arguments))
    return [
        {"dataset": entry["dataset"], **{name: entry[name] for name in _STEP}}
        for entry in report.to_records()
    ]


def _retain(target: CallScope, arguments: _Arguments) -> Iterable[_Row]:
    steps = _maintain(target, {**arguments, "only": "retain"})
    if steps or target.dataset is None:
        return steps
    summary = "no retention is declared"
    name = target.dataset.name
    return [{"dataset": name, "step": "retain", "status": "nothing", "summary": summary}]


_DRY = {"dry_run": "BOOLEAN"}
_MOMENT = {"version": "BIGINT", "time": "TIMESTAMP", "batch_id": "BIGINT"}
_SESSION = {"spark": "BOOLEAN"}
_TABLE_OF_OTHERS = {"target": "STRING", "as_table": "STRING", "catalog": "STRING"}
_STEPS = {"dataset": _TEXT, **_STEP}

PROCEDURES = {
    "compact": _Procedure(
        description="Merges small files",
        parameters={
            "where": "STRING",
            "target_bytes": "STRING",
            "sort_by": "STRING",
            "across_runs_older_than": "STRING",
            **_SESSION,
            **_DRY,
        },
        columns={"version": _NUMBER, **_COMPACTION},
        run=_compact,
    ),
    "compact_metadata": _Procedure(
        description="Merges the lists of files and commits",
        parameters=_DRY,
        columns=_MERGED,
        run=_compact_metadata,
    ),
    "rollback": _Procedure(
        description="Makes an earlier version current, as a new commit",
        parameters={**_MOMENT, "where": "STRING", "hold": "BOOLEAN", "reason": "STRING", **_DRY},
        columns=_CHANGE,
        run=_rollback,
        changes_rows=True,
    ),
    "cleanup": _Procedure(
        description="Deletes files that no readable version needs; a dry run unless dry_run is false",
        parameters={"older_than": "STRING", **_SESSION, **_DRY},
        columns={**_CLEANUP, "files": _NUMBER, "reasons": _TEXTS},
        run=_cleanup,
    ),
    "check": _Procedure(
        description="Compares head, files, facts and indices",
        parameters={"repair": "BOOLEAN", "deep": "BOOLEAN", **_SESSION, **_DRY},
        columns={"version": _NUMBER, "file_count": _NUMBER, "is_ok": _TRUTH, "findings": _TEXTS},
        run=_check,
    ),
    "publish": _Procedure(
        description="Shows the dataset as a table of delta, iceberg, hive or kartothek",
        parameters={
            **_TABLE_OF_OTHERS,
            "root": "STRING",
            "check": "BOOLEAN",
            "repair": "BOOLEAN",
            **_DRY,
        },
        columns=_PUBLICATION,
        run=_publish,
    ),
    "unpublish": _Procedure(
        description="Drops a table that publish made; the dataset stays",
        parameters={**_TABLE_OF_OTHERS, **_DRY},
        columns={"is_dropped": _TRUTH},
        run=_unpublish,
    ),
    "protect": _Procedure(
        description="Keeps a version or a batch from cleanup",
        parameters={
            "version": "BIGINT",
            "batch_id": "BIGINT",
            "reason": "STRING",
            "until": "TIMESTAMP",
            **_DRY,
        },
        columns=_CHANGE,
        run=_protect,
    ),
    "unprotect": _Procedure(
        description="Allows cleanup of a protected version or batch",
        parameters={"version": "BIGINT", "batch_id": "BIGINT", **_DRY},
        columns=_CHANGE,
        run=_unprotect,
    ),
    "retain": _Procedure(
        description="Deletes rows that are past the declared retention",
        parameters=_DRY,
        columns=_STEPS,
        run=_retain,
        changes_rows=True,
    ),
    "maintain": _Procedure(
        description="Does the upkeep that is due, of a dataset or of all",
        parameters={"only": "STRING", **_SESSION, **_DRY},
        columns=_STEPS,
        run=_maintain,
        needs_table=False,
        changes_rows=True,
    ),
}
# Arguments without which the verb has no meaning.
_REQUIRED = {"publish": ("target",), "unpublish": ("target",), "protect": ("reason",)}


class LakeProcedure(Proxied):
    """A procedure of the datasets of a namespace."""

    Java = interfaces(
        "connector.catalog.procedures.UnboundProcedure",
        "connector.catalog.procedures.BoundProcedure",
    )

    def __init__(
        self,
        jvm: Jvm,
        name: str,
        catalog: str,
        repository: CatalogRepository,
        find_dataset: Callable[[Sequence[str]], CatalogDataset],
    ) -> None:
        """Look up the procedure.

        Args:
            jvm: The JVM of the session.
            name: Name of the procedure.
            catalog: Name of the catalog.
            repository: The repository of the procedure's namespace.
            find_dataset: Function that opens a dataset by the parts of its name.

        Raises:
            InvalidInputError: There is no such procedure.
        """
        super().__init__(jvm)
        if name not in PROCEDURES:
            raise InvalidInputError(
                f"The catalog has no procedure {name!r}.",
                hint=nearest(name, PROCEDURES) or f"There are {', '.join(PROCEDURES)}.",
            )
        self._name = name
        self._catalog = catalog
        self._repository = repository
        self._find_dataset = find_dataset
        self._procedure = PROCEDURES[name]
        self._types = {"table": "STRING", **self._procedure.parameters}

    def name(self) -> str:
        """Return the name."""
        return self._name

    def description(self) -> str:
        """Return what the procedure does."""
        return self._procedure.description

    def bind(self, _types: Any) -> Any:
        """Return the procedure itself: its parameters are the same for all arguments."""
        return self

    def isDeterministic(self) -> bool:
        """Return False: it changes the dataset."""
        return False

    def parameters(self) -> Any:
        """Return the parameters with their types; a parameter that is left out is null."""
        make = self._jvm.connector.catalog.procedures.ProcedureParameter
        from_text = self._jvm.sql.types.DataType.fromDDL
        needed = ["table"] if self._procedure.needs_table else []
        needed += _REQUIRED.get(self._name, ())
        # Spark takes parameters without a default first.
        names = sorted(self._types, key=lambda name: name not in needed)
        parameters = []
        for name in names:
            parameter = getattr(make, "in")(name, from_text(self._types[name]))
            if name not in needed:
                parameter = parameter.defaultValue("NULL")
            parameters.append(parameter.build())
        self._names = names
        return self._jvm.to_array(make, parameters)

    def call(self, row: Any) -> Any:
        """Run the verb, and return its report as rows.

        Cost:
            That of the verb.
        """
        arguments = self._arguments(row)
        table = arguments.pop("table", None)
        dataset = None if table is None else self._find_dataset(self._parts(table))
        target = CallScope(repository=self._repository, dataset=dataset, spark=self._jvm.spark)
        rows = [dict(found) for found in self._procedure.run(target, arguments)]
        if self._procedure.changes_rows and table is not None:
            self._refresh(table)
        result = pa.Table.from_pylist(rows, schema=pa.schema(self._procedure.columns))
        scans = self._jvm.java.util.ArrayList()
        scans.add(local_rows(self._jvm, table_frame(self._jvm.spark, result)))
        return scans.iterator()

    def _arguments(self, row: Any) -> _Arguments:
        """Return the arguments of a call that are not null."""
        arguments: _Arguments = {}
        for position, name in enumerate(self._names):
            if row.isNullAt(position):
                continue
            match self._types[name]:
                case "STRING":
                    arguments[name] = str(row.getUTF8String(position).toString())
                case "BOOLEAN":
                    arguments[name] = bool(row.getBoolean(position))
                case "BIGINT":
                    arguments[name] = int(row.getLong(position))
                case "TIMESTAMP":
                    micros = int(row.getLong(position))
                    arguments[name] = from_micros(micros)
        missing = [name for name in _REQUIRED.get(self._name, ()) if name not in arguments]
        if "table" not in arguments and self._procedure.needs_table:
            missing = ["table", *missing]
        if missing:
            raise InvalidInputError(
                f"CALL {self._name}: {' and '.join(missing)} is null.", hint="Give a value."
            )
        return arguments

    def _parts(self, table: str) -> list[str]:
        """Return the parts of a table's name, without the catalog's.

        Raises:
            InvalidInputError: The text is not a name.
        """
        from pyspark.errors import ParseException

        parser = self._jvm.session.sessionState().sqlParser()
        try:
            parsed = parser.parseMultipartIdentifier(table)
        except ParseException:  # it would point into the text of the statement
            raise InvalidInputError(
                f"CALL {self.name()}: {table!r} is not the name of a table.",
                hint="Write 'flights' or 'sales.orders'. Put a part with other characters into "
                "backticks.",
            ) from None
        parts = [str(parsed.apply(position)) for position in range(parsed.size())]
        return parts[1:] if len(parts) > 1 and parts[0] == self._catalog else parts

    def _refresh(self, table: str) -> None:
        """Let a table that Spark caches show its new rows."""
        name = ".".join(f"`{part.replace('`', '``')}`" for part in self._parts(table))
        title = f"`{self._catalog}`.{name}"
        catalog = self._jvm.spark.catalog
        if catalog.isCached(title):
            catalog.refreshTable(title)
