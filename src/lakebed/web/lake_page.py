"""The page of a lake: one file that needs no other file, no script and no network."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources

from lakebed.common.shown import counted, human_size
from lakebed.model.schema import MISSING
from lakebed.model.totals import known_total
from lakebed.plan.plan import Explanation
from lakebed.state.sources import SourceFile
from lakebed.web import charts, dataset_facts
from lakebed.web.dataset_facts import DatasetFacts
from lakebed.web.findings import Advice
from lakebed.web.first_rows import ShownRows
from lakebed.web.markup import Markup, command_line, element, folded, joined, table, whole_text
from lakebed.web.markup import facts as pairs
from lakebed.web.row_table import caption_of, table_of
from lakebed.web.run_facts import RunFacts
from lakebed.web.runs_part import RunLinks, runs_table
from lakebed.work.defaults import READ_BEST_BYTES
from lakebed.work.pipeline_runs import PipelineRun

MAX_DETAILED = 40  # datasets with their own section

Link = Callable[[str], str | None]  # from a name to an address, if it has one
SourceLink = Callable[[SourceFile], str | None]
VersionLink = Callable[[int], str | None]


def style() -> str:
    """Return the style of all pages."""
    return resources.files(__package__).joinpath("page.css").read_text("utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The contents of a page.

    Attributes:
        uri: URI of the repository.
        made_at: Time at which the facts were gathered; aware, UTC.
        datasets: Facts of the datasets, ordered by name.
        failures: Datasets that could not be read, with the reasons.
        plan: Plan of a view, if one was requested.
        rows: First rows by name of the dataset, or the reason why they could not be read.
        runs: The newest runs of all pipelines, newest first.
        missing: Runs of pipelines whose dataset does not exist, by its name.
    """

    uri: str
    made_at: dt.datetime
    datasets: Sequence[DatasetFacts]
    failures: Sequence[tuple[str, str]] = ()
    plan: Explanation | None = None
    rows: Mapping[str, ShownRows | str] = field(default_factory=dict)
    runs: Sequence[PipelineRun] = ()
    missing: Mapping[str, RunFacts] = field(default_factory=dict)

    @property
    def findings(self) -> list[tuple[str, Advice]]:
        """The findings that may need attention, each with the name of its dataset."""
        found = {each.name: each.findings for each in self.datasets}
        found |= {name: runs.findings for name, runs in self.missing.items()}
        return [(name, finding) for name, each in sorted(found.items()) for finding in each]

    @property
    def title(self) -> str:
        """Short name: the last part of the URI."""
        return title_of(self.uri)


def title_of(uri: str) -> str:
    """Return a short name of a repository: the last part of its URI.

    >>> title_of("s3://bucket/lake/"), title_of("file:///")
    ('lake', 'file:///')
    """
    name = uri.rstrip("/").rpartition("/")[2]
    return name if name and not name.endswith(":") else uri


def render(lake: Lake) -> Iterator[str]:
    """Return the page, piece by piece."""
    return whole(f"Lakebed: {lake.title}", _report(lake))


def whole(
    title: str, body: Iterable[Markup], *, head: Markup | None = None, top: Markup | None = None
) -> Iterator[str]:
    """Yield a page piece by piece.

    Args:
        title: Title of the page.
        body: Parts of the body.
        head: Additional elements of the head.
        top: Navigation before the body.
    """
    yield '<!doctype html>\n<html lang="en">'
    yield element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(style())),
        *([] if head is None else [head]),
    )
    yield "<body>"
    if top is not None:
        yield top
    yield "<main>"
    yield from body
    yield "</main></body></html>\n"


def _report(lake: Lake) -> Iterator[Markup]:
    detailed = names_in_detail(lake.datasets)
    shown = [each for each in lake.datasets if each.name in detailed]
    yield from lake_part(
        lake,
        lambda name: f"#{_anchor(name)}" if name in detailed else None,
        contents=_contents(lake, shown),
    )
    left_out = len(lake.datasets) - len(detailed)
    if left_out:
        yield element(
            "p",
            f"The {len(detailed)} largest datasets follow. {counted(left_out, 'other')} can be "
            "shown one by one: lakebed report LOCATION/NAME.",
        )
    for each in shown:
        yield from dataset_part(each, rows=rows_part(each.name, lake.rows.get(each.name)))
        if lake.plan is not None and lake.plan.dataset == each.name:
            yield plan_part(lake.plan)
    if lake.plan is not None and lake.plan.dataset not in detailed:
        yield plan_part(lake.plan)


def _contents(lake: Lake, shown: Sequence[DatasetFacts]) -> Markup:
    """Return the table of contents."""
    links = [("Needs attention", "attention"), ("Datasets", "datasets")]
    if lake.failures:
        links.append(("Not read", "not-read"))
    if lake.runs:
        links.append(("Runs", "runs"))
    links += [(each.name, _anchor(each.name)) for each in shown]
    if lake.plan is not None:
        links.append((f"Plan of {lake.plan.dataset}", "plan"))
    items = (element("li", element("a", text, href=f"#{anchor}")) for text, anchor in links)
    return element("nav", element("ul", *items), aria_label="Contents", class_="contents")


def names_in_detail(datasets: Sequence[DatasetFacts]) -> set[str]:
    """Return the names of the datasets with their own section: the largest ones.

    A dataset that is not chosen among some datasets is not chosen among more of them either.
    """
    by_size = sorted(datasets, key=lambda each: -(each.size_bytes or 0))
    return {each.name for each in by_size[:MAX_DETAILED]}


def lake_part(
    lake: Lake, link: Link, *, contents: Markup | None = None, run_links: RunLinks | None = None
) -> Iterator[Markup]:
    """Yield the overview of a lake.

    Args:
        lake: The facts to show.
        link: Returns the address of a dataset's section or page, by name.
        contents: Table of contents.
        run_links: Addresses that the table of runs leads to.
    """
    yield element(
        "header",
        element("h1", lake.title),
        element("p", element("code", lake.uri)),
        element(
            "p",
            f"{counted(len(lake.datasets), 'dataset')}, as they were at "
            f"{lake.made_at:%Y-%m-%d %H:%M:%S} UTC.",
        ),
    )
    rows = known_total([each.row_count for each in lake.datasets])
    size = known_total([each.size_bytes for each in lake.datasets])
    yield pairs(
        {
            "rows": rows,
            "bytes": size,
            "size": human_size(size),
            "data files": sum(each.file_count for each in lake.datasets),
            "protected": sum(len(each.protections) for each in lake.datasets),
        }
    )
    if contents is not None:
        yield contents
    known = {each.name for each in lake.datasets}
    found = [
        (
            linked(name, link(name) if name in known else None),
            joined([whole_text(finding.text), " ", _reason(finding)]),
            command_line(finding.command),
        )
        for name, finding in lake.findings
    ]
    columns = ("dataset", "finding", "command")
    yield _marked("attention", table("Needs attention", columns, found))
    if lake.failures:
        reasons = [(name, whole_text(reason)) for name, reason in lake.failures]
        yield _marked("not-read", table("Not read", ("dataset", "reason"), reasons))
    yield _marked("datasets", _datasets(lake.datasets, link))
    if lake.runs:
        caption = f"The newest {counted(len(lake.runs), 'run')} of pipelines"
        links = run_links or RunLinks(dataset=lambda name: link(name) if name in known else None)
        yield _marked("runs", runs_table(caption, lake.runs, has_dataset=True, links=links))


def _marked(anchor: str, part: Markup) -> Markup:
    """Return a part of a page that links can lead to."""
    return element("div", part, id=anchor)


def _datasets(datasets: Sequence[DatasetFacts], link: Link) -> Markup:
    columns = ("dataset", "rows", "bytes", "files", "version", "last commit", "protected")
    rows: list[list[str | int | None]] = []
    for each in datasets:
        last = each.last_commit
        rows.append(
            [
                linked(each.name, link(each.name)),
                each.row_count,
                each.size_bytes,
                each.file_count,
                each.version,
                f"{last.operation}, {moment(last.committed_at)}" if last else None,
                len(each.protections),
            ]
        )
    return table("Datasets", columns, rows)


def linked(text: str, address: str | None) -> str:
    """Return a text as a link to an address, if there is one."""
    return text if address is None else element("a", text, href=address)


def _anchor(name: str) -> str:
    return f"dataset-{name}"


def moment(time: dt.datetime | None) -> str | None:
    """Return a time as text, to the second."""
    return None if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def dataset_part(
    dataset: DatasetFacts,
    *,
    source_link: SourceLink | None = None,
    version_link: VersionLink | None = None,
    rows: Markup | None = None,
    run_links: RunLinks | None = None,
) -> Iterator[Markup]:
    """Yield the section of a dataset.

    Args:
        dataset: Facts of the dataset.
        source_link: Returns the address of a raw file's page.
        version_link: Returns the address of a version's page.
        rows: First rows of the dataset.
        run_links: Addresses that the table of runs leads to.
    """
    descriptor = dataset.dataset.descriptor
    last = dataset.last_commit
    anchor = _anchor(dataset.name)
    parts = {
        **({} if rows is None else {"Rows": [rows]}),
        "Schema": [_schema(dataset)],
        "Commits": _commits(dataset, version_link),
        **({"Runs": [_runs(dataset, run_links)]} if dataset.runs.run_count else {}),
        "Sizes of data files": _files(dataset),
        "Partitions": _partitions(dataset),
        "Batches": _batches(dataset, source_link),
        **({"Indices": [_indices(dataset)]} if dataset.indices else {}),
        "Dead files": _dead(dataset),
    }
    # Names need no escaping: they have only letters, digits and + - _, and paths a slash.
    yield Markup(f'<section id="{anchor}">')
    yield element("h2", dataset.name)
    yield pairs(
        {
            "version": dataset.version,
            "rows": dataset.row_count,
            "bytes": dataset.size_bytes,
            "size": human_size(dataset.size_bytes),
            "data files": dataset.file_count,
            "partitions": len(dataset.partitions),
            "last commit": f"{last.operation}, {moment(last.committed_at)}" if last else None,
            "format": f"{descriptor.format}, {descriptor.compression}",
        }
    )
    if dataset.findings:
        yield element(
            "ul",
            *(
                element(
                    "li", whole_text(one.text), " ", _reason(one), " ", command_line(one.command)
                )
                for one in dataset.findings
            ),
            class_="advice",
        )
    yield element(
        "nav",
        *(
            element("a", title, href=f"#part-{number}-of-{dataset.name}")
            for number, title in enumerate(parts, 1)
        ),
        aria_label=f"Sections of {dataset.name}",
    )
    for number, (title, inner) in enumerate(parts.items(), 1):
        yield element("h3", title, id=f"part-{number}-of-{dataset.name}")
        yield from inner
    yield Markup("</section>")


def rows_part(of: str, read: ShownRows | str | None) -> Markup | None:
    """Return the first rows of a dataset or a file, or the reason why they could not be read.

    Args:
        of: Name of the dataset, or words for the file.
        read: The rows or the reason; None if no rows were requested.
    """
    if read is None:
        return None
    if isinstance(read, str):
        return element("p", whole_text(f"The rows cannot be read: {read}"), class_="note")
    parts = [table_of(read.rows, f"First rows of {of}: {caption_of(read)}")]
    left_out = len(read.plan.layout.descriptor.schema.names) - read.rows.num_columns
    if left_out > 0:
        parts.append(element("p", f"{counted(left_out, 'other column')} are not shown."))
    return joined(parts)


def _schema(dataset: DatasetFacts) -> Markup:
    descriptor = dataset.dataset.descriptor
    sources = {function.source for function in descriptor.partition_by}
    has_comments = any(field.doc for field in dataset.fields[:200])
    rows = [
        (
            field.name,
            str(field.type),
            "yes" if field.nullable else "no",
            None if field.default is MISSING else repr(field.default),
            ", ".join(
                mark
                for mark, is_so in (
                    ("index", field.name in descriptor.index),
                    ("partitions", field.name in sources),
                )
                if is_so
            ),
            *((field.doc,) if has_comments else ()),
        )
        for field in dataset.fields[:200]
    ]
    strategy = ", ".join(map(str, descriptor.partition_by)) or "nothing"
    return joined(
        [
            element("p", "Partitioned by ", element("code", strategy), "."),
            table(
                f"Fields: {len(dataset.fields)}",
                ("field", "type", "nullable", "default", "used by")
                + (("comment",) if has_comments else ()),
                rows,
            ),
            *_checks(dataset),
        ]
    )


def _checks(dataset: DatasetFacts) -> Iterator[Markup]:
    """Yield the table of the declared checks, if there are any."""
    declared = dataset.dataset.inspect.checks()
    if declared:
        yield table(
            f"Declared checks: {len(declared)}",
            ("name", "check", "on failure", "rows"),
            [(one.name, one.check, one.on_failure, one.outcome) for one in declared],
        )


def _commits(dataset: DatasetFacts, version_link: VersionLink | None) -> Iterator[Markup]:
    history = dataset.history
    shown = history[-dataset_facts.MAX_COMMITS :]
    has_checks = any(commit.checks for commit in shown)
    yield charts.timeline("Commits by operation, over time", dataset_facts.events(history))
    yield folded(
        f"The newest {len(shown)} of {counted(len(history), 'commit')}",
        table(
            "Commits",
            (
                *("version", "operation", "at", "run", "batch", "rows", "files +", "files -"),
                *(("checks",) if has_checks else ()),
            ),
            [
                (
                    commit.version
                    if version_link is None
                    else linked(str(commit.version), version_link(commit.version)),
                    commit.operation,
                    moment(commit.committed_at),
                    commit.run_in_words(),
                    None if commit.batch_id is None else str(commit.batch_id),
                    commit.rows_in_words(),
                    len(commit.files_added),
                    len(commit.files_removed),
                    *((", ".join(map(str, commit.checks)),) if has_checks else ()),
                )
                for commit in reversed(shown)
            ],
        ),
    )


def _runs(dataset: DatasetFacts, links: RunLinks | None) -> Markup:
    shown = dataset.runs.runs
    caption = f"The newest {len(shown)} of {counted(dataset.runs.run_count, 'run')}"
    return runs_table(caption, shown, has_dataset=False, links=links)


def _reason(finding: Advice) -> Markup:
    return element("span", finding.why, class_="why")


def _files(dataset: DatasetFacts) -> Iterator[Markup]:
    bins = dataset_facts.size_bins(dataset.files)
    low, high = map(human_size, READ_BEST_BYTES)
    yield element("p", f"Files from {low} to {high} (shaded) are read fastest.")
    yield charts.histogram("Data files by size", bins)
    yield folded(
        "The numbers",
        table("Data files by size", ("from", "files"), [(each.label, each.count) for each in bins]),
    )


def _partitions(dataset: DatasetFacts) -> Iterator[Markup]:
    largest = dataset_facts.largest(dataset.partitions)
    written = dataset_facts.heat_map(dataset.files, largest)
    if len(largest) < len(dataset.partitions):
        yield element("p", f"The {len(largest)} largest of {len(dataset.partitions):,}.")
    yield charts.bars("Bytes by partition", dataset_facts.partition_bars(largest))
    yield folded(
        "The numbers",
        table(
            "Partitions",
            ("partition", "files", "rows", "bytes"),
            [
                (
                    partition.path or "(all)",
                    partition.file_count,
                    partition.row_count,
                    partition.size_bytes,
                )
                for partition in largest
            ],
        ),
    )
    if len(written.moments) > 1:
        yield element(
            "p", "Live bytes by time of writing: the stronger the colour, the more bytes."
        )
        labels = [path or "(all)" for path in written.partitions]
        yield charts.heat_map(
            "Live bytes by partition and time of writing",
            labels,
            written.moments,
            written.sizes,
        )
        cells = [
            (labels[row], written.moments[column], int(size))
            for (row, column), size in sorted(written.sizes.items())
        ]
        yield folded(
            "The numbers",
            table("Live bytes by time of writing", ("partition", "from", "bytes"), cells[:400]),
        )


def _batches(dataset: DatasetFacts, source_link: SourceLink | None) -> Iterator[Markup]:
    shown = dataset.batches[-dataset_facts.MAX_BATCHES :]
    runs = {commit.batch_id: commit.run_in_words() for commit in dataset.history}
    yield table(
        f"The newest {len(shown)} of {counted(len(dataset.batches), 'batch', 'batches')}",
        ("batch", "run", "operation", "version", "committed", "superseded", "rows", "live files"),
        [
            (
                str(batch.batch_id),
                runs.get(batch.batch_id, batch.run),
                batch.operation,
                "staged" if batch.is_staged else batch.version,
                moment(batch.committed_at),
                moment(batch.superseded_at),
                batch.row_count,
                f"{batch.live_file_count:,} of {batch.file_count:,}",
            )
            for batch in reversed(shown)
        ],
    )
    if dataset.holds:
        yield table(
            "Raw files held back from ingests until they are released",
            ("raw file", "held", "reason"),
            [(hold.location, moment(hold.held_at), hold.reason) for hold in dataset.holds],
        )
    if dataset.sources:
        versions = {batch.batch_id: batch.version for batch in dataset.batches}
        newest = dataset.sources[-dataset_facts.MAX_SOURCES :]
        yield folded(
            f"From raw file to version: the newest {len(newest)} of "
            f"{counted(len(dataset.sources), 'raw file')}",
            table(
                "Raw files",
                ("raw file", "batch", "version", "run", "rows", "rejected"),
                [
                    (
                        linked(
                            source.location, None if source_link is None else source_link(source)
                        ),
                        str(source.batch_id),
                        versions.get(source.batch_id),
                        source.run,
                        source.row_count,
                        source.rejected_count,
                    )
                    for source in reversed(newest)
                ],
            ),
        )


def _indices(dataset: DatasetFacts) -> Markup:
    live = dataset.file_count
    return table(
        "Costs and savings",
        ("column", "bytes", "files known", "values", "files read for a value, about"),
        [
            (
                index.column,
                index.size_bytes,
                f"{index.covered_count:,} of {index.file_count:,}",
                index.value_count,
                None
                if index.files_per_value is None
                else f"{index.files_per_value:,.1f} instead of {live:,}",
            )
            for index in dataset.indices
        ],
    )


def _dead(dataset: DatasetFacts) -> Iterator[Markup]:
    if dataset.dead_bytes is None:
        yield element("p", f"A cleanup is not possible: {dataset.dead_note}")
    else:
        yield element(
            "p",
            f"A cleanup now would delete {counted(dataset.dead_count, 'object')} of "
            f"{human_size(dataset.dead_bytes)}. {human_size(dataset.waiting_bytes)} are superseded "
            "and kept for one week. ",
            element("code", f"lakebed cleanup {dataset.address}"),
        )
    if dataset.protections:
        yield table(
            "Protected from cleanup",
            ("protected", "reason", "by", "until"),
            [
                (each.target, each.reason, each.by, moment(each.until) or "for ever")
                for each in dataset.protections
            ],
        )


def plan_part(explanation: Explanation) -> Markup:
    """Return the section of a plan: the files that a predicate keeps, and why others are dropped."""
    dropped = [
        ("partition", explanation.dropped_by_partition),
        ("schema", explanation.dropped_by_schema),
        ("statistics", explanation.dropped_by_statistics),
        ("index", explanation.dropped_by_index),
    ]
    parts = [("kept", explanation.kept), *((f"dropped by {by}", count) for by, count in dropped)]
    records = [
        charts.Bar(label=label, value=count, text=f"{count:,}")
        for label, count in parts
        if count or label == "kept"
    ]
    return element(
        "section",
        element("h2", f"Plan of {explanation.dataset}"),
        element("p", element("code", explanation.predicate)),
        charts.bars("Files kept and dropped", records),
        table("Files", ("outcome", "files"), parts),
        *plan_lines(explanation),
        id="plan",
    )


def plan_lines(explanation: Explanation) -> Sequence[Markup]:
    """Return a plan as the command line prints it."""
    return [element("pre", *(element("span", line) for line in str(explanation).splitlines()))]
