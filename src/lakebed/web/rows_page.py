"""Parts of the pages that show rows: first rows, comparisons of versions, and data files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.commit import Commit
from lakebed.common.shown import counted, human_size
from lakebed.model.keys import level_names
from lakebed.model.schema import Decimal, Primitive, Type
from lakebed.state.sources import SourceFile
from lakebed.web.comparison import ComparedRows, condition_of, shown_columns
from lakebed.web.downloads import KINDS
from lakebed.web.file_lineage import FileOrigin
from lakebed.web.first_rows import ShownRows
from lakebed.web.lake_page import linked, moment, plan_lines
from lakebed.web.limits import (
    FEW_ROWS,
    MAX_COLUMNS,
    MAX_PAGE_BYTES,
    MAX_ROWS,
    MAX_VERSIONS,
    READ_SECONDS,
)
from lakebed.web.markup import (
    Markup,
    element,
    folded,
    joined,
    table,
)
from lakebed.web.markup import facts as pairs
from lakebed.web.pages import PageAddresses, choice, form_of, hidden, text_field
from lakebed.web.row_table import caption_of, table_of

_MAX_OFFERED = 200  # columns of the list to sort by
ADDED, REMOVED = "added", "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuery:
    """The question to a page of rows, as the texts of its form.

    Attributes:
        where: Condition; empty for all rows.
        sort: Column to sort by; empty for the order of the files.
        order: `desc` for the greatest first.
        version: Number of the version; empty for the current one.
        rows: Number of rows.
        columns: Names of columns with commas; empty for all.
    """

    where: str = ""
    sort: str = ""
    order: str = ""
    version: str = ""
    rows: str = ""
    columns: str = ""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> RowQuery:
        """Return the question of a request."""
        return cls(**{name: given.get(name, "").strip() for name in cls.__dataclass_fields__})

    def arguments(self) -> dict[str, str]:
        """Return what was given, by name."""
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in given.items() if value}


def rows_form(
    addresses: PageAddresses,
    name: str,
    question: RowQuery,
    types: Mapping[str, Type],
    history: Sequence[Commit],
) -> Markup:
    """Return the form of the page of rows.

    Args:
        addresses: Addresses of all pages.
        name: Name of the dataset.
        question: Texts of the form.
        types: Types of the columns by name.
        history: Commits of the dataset, oldest first.
    """
    sortable = [column for column, kind in types.items() if is_sortable(kind)][:_MAX_OFFERED]
    sizes = {str(count): str(count) for count in (20, FEW_ROWS, 100, MAX_ROWS)}
    return form_of(
        addresses.rows(name),
        [
            text_field("where", "Rows where …", question.where),
            choice("sort", "Sorted by", {"": "nothing"} | {each: each for each in sortable}, question.sort),
            choice("order", "Direction", {"": "ascending", "desc": "descending"}, question.order),
            choice("version", "Version", {"": "current"} | versions(history), question.version),
            text_field("columns", "Columns (a, b)", question.columns),
            choice("rows", "Rows", sizes, question.rows or str(FEW_ROWS)),
        ],
        "Show",
    )  # fmt: skip


def versions(history: Sequence[Commit]) -> dict[str, str]:
    """Return the newest versions with texts to choose from, by number."""
    return {
        str(commit.version): f"{commit.version}: {commit.operation}"
        f"{f' of {run}' if (run := commit.run_in_words()) else ''}, {moment(commit.committed_at)}"
        for commit in history[: -MAX_VERSIONS - 1 : -1]
    }


def is_sortable(kind: Type) -> bool:
    """Return True if rows can be sorted by a column of the type."""
    return isinstance(kind, Primitive | Decimal)


def shown_rows(
    addresses: PageAddresses, name: str, question: RowQuery, types: Mapping[str, Type], read: ShownRows
) -> Markup:  # fmt: skip
    """Return the rows of a dataset, with downloads and the plan of the read."""
    names = read.rows.column_names

    def head(column: str) -> str:
        if not is_sortable(types[column]):
            return column
        is_again = question.sort == column and question.order != "desc"
        turned = replace(question, sort=column, order="desc" if is_again else "")
        sign = ""
        if question.sort == column:
            sign = " ↓" if question.order == "desc" else " ↑"
        return element(
            "a", column + sign, href=addresses.rows(name, **turned.arguments()), rel="nofollow"
        )

    direction = "descending" if question.order == "desc" else "ascending"
    ends = {"from_": str(read.version - 1), "to": str(read.version)}
    changes = element(
        "a", f"Changes of version {read.version}", href=addresses.compare(name, **ends)
    )
    parts = [
        table_of(
            read.rows,
            caption_of(read),
            heads=[head(column) for column in names],
            link=lambda row: addresses.data_file(name, read.keys[row]),
            sorted_by=question.sort,
            direction=direction,
        ),
        *(element("p", note, class_="note") for note in _notes(read, question)),
        element("p", "The number of a row leads to its data file: batch, run and raw files."),
        *([element("p", changes)] if read.version else []),
        download_form(addresses, name, question),
        folded("The plan of this read", *plan_lines(read.plan.explain())),
    ]
    return joined(parts)


def _notes(read: ShownRows, question: RowQuery) -> Iterable[str]:
    if read.is_late:
        yield (
            f"The search stopped after {READ_SECONDS:.0f} seconds, in "
            f"{counted(read.read_count, 'file')} of {read.file_count:,}. "
            + ("The order is that of the rows read by then. " if question.sort else "")
            + "Give a condition that fewer files meet, or download the rows."
        )
    if read.is_large:
        yield f"A page shows at most {human_size(MAX_PAGE_BYTES)} of values; more rows are in the download."
    left_out = len(read.plan.layout.descriptor.schema.names) - MAX_COLUMNS
    if not question.columns and left_out > 0:
        yield (
            f"A page shows {MAX_COLUMNS} columns; {counted(left_out, 'other')} can be named under "
            "“Columns (a, b)”, and are in the download of all columns."
        )


def download_form(addresses: PageAddresses, name: str, question: RowQuery) -> Markup:
    """Return the form that downloads rows."""
    given = [hidden(key, value) for key, value in question.arguments().items()]
    kinds = {key: kind.label for key, kind in KINDS.items()}
    which = {"shown": "the rows shown", "all": "all rows of the condition, unsorted"}
    return form_of(
        addresses.download(name),
        [
            *given,
            choice("format", "Format", kinds, "csv"),
            choice("which", "Rows to download", which, "shown"),
        ],
        "Download",
    )


def compare_form(
    addresses: PageAddresses, name: str, given: Mapping[str, str], history: Sequence[Commit]
) -> Markup:
    """Return the form of the page of comparisons."""
    known = versions(history) | {"0": "0: creation"}
    return form_of(
        addresses.compare(name),
        [
            choice("from", "From version", known, given["from"]),
            choice("to", "To version", known, given["to"]),
            text_field("where", "Rows where …", given["where"]),
        ],
        "Compare",
    )


def compared_part(
    addresses: PageAddresses, name: str, compared: ComparedRows, level_types: dict[str, Type]
) -> Markup:
    """Return the difference of two versions."""
    diff = compared.diff
    ends = {"from_": str(diff.from_version), "to": str(diff.to_version)}
    # A condition on a level needs it on both sides.
    is_linked = all(level_names(each.path) == tuple(level_types) for each in diff.partitions)

    def narrowed(path: str) -> str:
        if not is_linked:
            return path or "(all)"
        condition = condition_of(path, level_types)
        if not condition:
            return "(all)"
        return element("a", path, href=addresses.compare(name, **ends, where=condition))

    left_out = len(diff.partitions) - len(compared.partitions)
    parts = [
        pairs(
            {
                "files added": len(diff.files_added),
                "files removed": len(diff.files_removed),
                "rows in added files": diff.rows_added,
                "rows in removed files": diff.rows_removed,
                "partitions": len(diff.partitions),
            }
        ),
        element("h2", "Rows"),
        *_compared_rows(compared),
        element("h2", "Partitions"),
        table(
            "Partitions that differ",
            ("partition", "files +", "files -", "rows in files +", "rows in files -"),
            [
                (
                    narrowed(each.path),
                    each.files_added,
                    each.files_removed,
                    each.rows_added,
                    each.rows_removed,
                )
                for each in compared.partitions
            ],
        ),
        *([element("p", f"{counted(left_out, 'other partition')} differ, too.")] if left_out > 0 else []),
        element("h2", "Commits"),
        table(
            "Commits between the versions",
            ("version", "operation", "at", "run", "rows"),
            [
                (
                    linked(str(each.version), addresses.rows(name, version=str(each.version))),
                    each.operation,
                    moment(each.committed_at),
                    each.run_in_words(),
                    each.rows_in_words(),
                )
                for each in compared.commits
            ],
        ),
    ]  # fmt: skip
    return joined(parts)


def _compared_rows(compared: ComparedRows) -> Iterable[Markup]:
    if compared.added is None or compared.removed is None:
        yield element("p", compared.note, class_="note")
        return
    if not compared.added_count and not compared.removed_count:
        yield element("p", "Both versions have the same rows.")
        return
    for rows, count, word in (
        (compared.added, compared.added_count, ADDED),
        (compared.removed, compared.removed_count, REMOVED),
    ):
        caption = f"Rows {word}: {count:,}"
        if rows.num_rows < count:
            caption += f", of which {rows.num_rows:,} are shown"
        yield table_of(shown_columns(rows), caption)


def file_part(
    addresses: PageAddresses,
    name: str,
    facts: FileOrigin,
    source_link: Callable[[SourceFile], str | None],
    rows: Markup,
) -> Markup:
    """Return a data file: where it came from, and its first rows."""
    file = facts.file

    def version(commit: Commit | None) -> str | None:
        if commit is None:
            return None
        return joined(
            [
                linked(str(commit.version), addresses.rows(name, version=str(commit.version))),
                f", {commit.operation}, {moment(commit.committed_at)}",
            ]
        )

    known = [
        (
            linked(source.location, source_link(source)),
            count,
            str(source.batch_id),
            source.run,
            source.row_count,
            source.rejected_count,
        )
        for source, count in facts.sources
    ]
    batch_run = None if facts.added_by is None else facts.added_by.run
    return joined(
        [
            pairs(
                {
                    "partition": file.partition or "(all)",
                    "rows": file.row_count,
                    "bytes": file.size_bytes,
                    "size": human_size(file.size_bytes),
                    "live": "yes" if facts.is_live else "no",
                    "added in version": version(facts.added_by),
                    "removed in version": None if facts.is_live else version(facts.removed_by),
                    "batch": None if file.batch_id is None else str(file.batch_id),
                    "run of the batch": batch_run,
                    "run of the rows": facts.run,
                }
            ),
            table(
                "Raw files of its rows",
                ("raw file", "rows in this file", "batch", "run", "rows", "rejected"),
                known,
            ),
            rows,
        ]
    )
