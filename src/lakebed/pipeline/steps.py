"""The steps of a pipeline: each can be repeated at any time, and finds nothing to do if it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.common.shown import counted, human_size
from lakebed.errors import DatasetNotFoundError
from lakebed.model import publishing
from lakebed.model.declared import Check
from lakebed.model.retention import in_force
from lakebed.pipeline.check_rules import with_checks
from lakebed.pipeline.ingest import Ingest
from lakebed.pipeline.pipeline_report import StepName
from lakebed.pipeline.raw_retention import retain_raw
from lakebed.pipeline.table_ingest import TableIngest, summary_of
from lakebed.state.after import wants_publication
from lakebed.state.reader import read_head
from lakebed.upkeep.step_report import StepReport, StepStatus
from lakebed.upkeep.upkeep_steps import (
    StepOutcome,
    UpkeepSetting,
    attempted,
    clean_up,
    compact_files,
    publish,
    retain,
)
from lakebed.work.ingest.due import LeftOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(UpkeepSetting):
    """The pipeline that steps work for, and the circumstances of the run.

    Attributes:
        ingest: The ingest; it names the dataset, too.
        checks: The checks of the step `checks`; None to leave those of the dataset.
    """

    ingest: Ingest | TableIngest
    checks: Mapping[str, Check] | None


def run_step(step: StepName, setting: Setting) -> StepReport:
    """Run a step; try again after a lost race or a failure of the store that may pass.

    Errors of Lakebed end in the report.
    """
    return attempted(step, lambda: _STEPS[step](setting), is_dry_run=setting.is_dry_run)


def _checks(setting: Setting) -> StepOutcome:
    is_required = None if setting.publish is None else setting.publish.require_checks
    try:
        dataset = setting.dataset()
    except DatasetNotFoundError:
        return StepOutcome(status="nothing", summary="ingest creates the dataset with them")
    before = dataset.descriptor
    wanted = with_checks(before, setting.checks, is_required=is_required)
    changes = {
        "added": [name for name in wanted.checks if name not in before.checks],
        "changed": [
            name for name, check in wanted.checks.items() if before.checks.get(name, check) != check
        ],
        "dropped": [name for name in before.checks if name not in wanted.checks],
    }
    words = [f"{len(names):,} {how}" for how, names in changes.items() if names]
    if wanted.properties != before.properties:
        words.append(f"publications {'wait' if is_required else 'do not wait'} for them")
    facts: dict[str, object] = {"check_count": len(wanted.checks), **changes}
    if not words:
        summary = f"{counted(len(wanted.checks), 'check')} in force"
        return StepOutcome(status="nothing", summary=summary, facts={**facts, "version": None})
    commit = dataset.evolve(
        lambda present: with_checks(present, setting.checks, is_required=is_required)
    )
    return StepOutcome(
        status="done",
        summary=", ".join(words),
        facts={**facts, "version": commit.version},
        result=commit,
    )


def _ingest(setting: Setting) -> StepOutcome:
    ingest = setting.ingest
    if isinstance(ingest, TableIngest):
        return _ingest_of_table(setting, ingest)
    if setting.is_dry_run:
        return _planned_ingest(ingest)
    report = ingest.run(setting.spark, on_progress=setting.on_progress)
    left_out = _left_out(report.left_out)
    words = [counted(report.file_count, "file"), counted(report.row_count, "row")]
    if report.replaced_count:
        words.append(f"{report.replaced_count:,} replaced")
    if report.rejected_count:
        words.append(counted(report.rejected_count, "reject"))
    if report.kept_back:
        words.append(f"{len(report.kept_back):,} kept back")
    results = () if report.commit is None else report.commit.checks
    words += [str(one) for one in results if one.outcome != "passed"]
    status: StepStatus = "done" if report.file_count or report.schema_changes else "nothing"
    if report.kept_back:
        status = "attention"
    return StepOutcome(
        status=status,
        summary=", ".join(words) if status != "nothing" else "no new file",
        facts={
            **report.to_record(),
            "left_out": left_out,
            "checks": [
                {"name": one.name, "outcome": one.outcome, "count": one.count} for one in results
            ],
        },
        result=report,
    )


def _ingest_of_table(setting: Setting, ingest: TableIngest) -> StepOutcome:
    report = ingest.run(setting.spark, dry_run=setting.is_dry_run, on_progress=setting.on_progress)
    is_done = report.commits or report.schema_changes or report.row_count
    status: StepStatus = "done" if is_done else "nothing"
    if report.kept_back or report.timeless_row_count:
        status = "attention"
    return StepOutcome(
        status=status,
        summary="no row" if status == "nothing" else summary_of(report),
        facts=report.to_record(),
        result=report,
    )


def _planned_ingest(ingest: Ingest) -> StepOutcome:
    check = ingest.check()
    kept_back = sum(one.is_kept_back for one in check.left_out)
    file_count = len(check.new) + len(check.changed)
    words = [f"{counted(file_count, 'file')} of {human_size(check.size_bytes)}"]
    if check.creates_dataset:
        words.append("creates the dataset")
    if kept_back:
        words.append(f"{kept_back:,} kept back")
    return StepOutcome(
        status="attention" if kept_back else "done" if file_count else "nothing",
        summary=", ".join(words) if file_count or kept_back else "no new file",
        facts={
            "format": check.format,
            "new_count": len(check.new),
            "changed_count": len(check.changed),
            "unchanged_count": check.unchanged_count,
            "kept_back_count": kept_back,
            "size_bytes": check.size_bytes,
            "request_count": file_count or None,  # to read the files; those of the commit are few
            "creates_dataset": check.creates_dataset,
            "new": list(check.new),
            "changed": list(check.changed),
            "left_out": _left_out(check.left_out),
        },
        result=check,
    )


def _left_out(left_out: Sequence[LeftOut]) -> list[dict[str, object]]:
    return [
        {
            "location": one.location,
            "why": one.why,
            "detail": one.detail,
            "is_kept_back": one.is_kept_back,
        }
        for one in left_out
    ]


def publishes(setting: Setting) -> bool:
    """Return whether a pipeline publishes: by its own rule, or by properties of the dataset."""
    if setting.publish is not None:
        return bool(setting.publish.targets())
    try:
        state = read_head(setting.store, setting.name).state
    except DatasetNotFoundError:
        create = setting.ingest.create
        return create is not None and bool(publishing.targets(create.properties))
    return wants_publication(state) and bool(setting.targets(state))


def retains(setting: Setting) -> bool:
    """Return whether a pipeline has a retention: its own, or that of properties of the dataset.

    Raises:
        InvalidInputError: A property is wrong, or differs from the rule of the pipeline.
    """
    try:
        properties = read_head(setting.store, setting.name).state.descriptor.properties
    except DatasetNotFoundError:
        create = setting.ingest.create
        properties = {} if create is None else create.properties
    return in_force(setting.retention, properties) is not None


def _retain(setting: Setting) -> StepOutcome:
    rows = retain(setting)
    rule = setting.retention
    ingest = setting.ingest
    if rule is None or rule.raw is None:  # which properties of the dataset cannot declare
        return rows
    assert isinstance(ingest, Ingest)  # a pipeline refuses it for others
    raw = retain_raw(ingest, setting.store, rule, setting.now, is_dry_run=setting.is_dry_run)
    facts = {**rows.facts, "raw": raw.to_record()}
    summaries = [rows.summary] if rows.status == "done" else []
    summaries += [raw.summary] if raw.file_count else []
    if not summaries:
        is_of_rows = bool(rows.facts)  # by the pipeline, or by properties of the dataset
        summaries = [rows.summary if is_of_rows else raw.summary]
    is_done = rows.status == "done" or raw.file_count
    return StepOutcome(
        status="done" if is_done else "nothing",
        summary=", ".join(summaries),
        facts=facts,
        result=rows.result,
    )


_STEPS: Mapping[StepName, Callable[[Setting], StepOutcome]] = {
    "checks": _checks,
    "ingest": _ingest,
    "retain": _retain,
    "compact": compact_files,
    "publish": publish,
    "cleanup": clean_up,
}
