"""The pages as parts: forms, results and records, in the look of the report. No request here."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from lakebed.archive import ArchiveRecord
from lakebed.archive.query import Page
from lakebed.common.shown import human_size
from lakebed.errors import LakebedError
from lakebed.web.lake_page import linked
from lakebed.web.markup import Markup, element, joined, table
from lakebed.web.markup import facts as pairs

QUESTION = ("what", "where", "work_id", "start", "end")
_SHOWN = frozenset({"id", "what", "where", "work_id", "path", "hash", "start", "end", "version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAddresses:
    """Where the pages are.

    Attributes:
        base: Path that a proxy has put before all others.
    """

    base: str

    def lake(self, page: int = 1) -> str:
        """Return where a page of the datasets is."""
        return f"{self.base}/" if page == 1 else f"{self.base}/?page={page}"

    def dataset(self, name: str) -> str:
        """Return where a dataset is."""
        return f"{self.base}/datasets/{quote(name, safe='')}"

    def plan(self, name: str) -> str:
        """Return where plans of a dataset are."""
        return f"{self.dataset(name)}/plan"

    def search(self, arguments: str = "") -> str:
        """Return where the archive is searched."""
        return f"{self.base}/archive" + (f"?{arguments}" if arguments else "")

    def file(self, file_id: str) -> str:
        """Return where a file of the archive is told of."""
        return f"{self.base}/archive/files/{_quoted(file_id)}"

    def content(self, file_id: str) -> str:
        """Return where a file of the archive is downloaded."""
        return f"{self.base}/archive/contents/{_quoted(file_id)}"


def _quoted(file_id: str) -> str:
    return quote(file_id, safe="", errors="surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What became of a raw file in a dataset.

    Attributes:
        dataset: Its name.
        batch_id: Of the batch that it was read into.
        version: That made the batch visible; None if it is not known any more.
        is_live: Whether the newest version reads data files of the batch.
        run: That read it.
        row_count: Rows that were loaded.
        rejected_count: Lines that were not.
    """

    dataset: str
    batch_id: int
    version: int | None
    is_live: bool
    run: str
    row_count: int
    rejected_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """What became of a raw file.

    Attributes:
        found: In which datasets.
        asked_count: How many datasets were asked.
        dataset_count: How many there are.
        unread: Datasets that could not be asked.
    """

    found: Sequence[Use]
    asked_count: int
    dataset_count: int
    unread: Sequence[str]


def navigation(label: str, links: Mapping[str, str]) -> Markup:
    """Return links to other pages, under a name by which they are told from others."""
    anchors = (element("a", text, href=to) for text, to in links.items())
    return element("nav", *anchors, aria_label=label)


def alert(error: LakebedError) -> Markup:
    """Return what an error says, and its hint."""
    return element(
        "div",
        *(element("p", part) for part in _lines(error.message)),
        *(element("p", part) for part in _lines(error.hint)),
        class_="alert",
        role="alert",
    )


def _lines(text: str) -> list[str]:
    """Return a text in pieces that a page does not cut, at most ten."""
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 100:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return [line for line in lines if line][:10]


def form(action: str, fields: Mapping[str, str], given: Mapping[str, str], button: str) -> Markup:
    """Return a form that asks by GET.

    Args:
        action: Who answers.
        fields: Labels by name.
        given: Values by name.
        button: What is written on it.
    """
    inputs = [
        element(
            "label",
            label,
            element("input", type="text", name=name, value=given.get(name, ""), autocomplete="off"),
        )
        for name, label in fields.items()
    ]
    return element(
        "form", *inputs, element("button", button, type="submit"), method="get", action=action
    )


def plan_form(addresses: PageAddresses, name: str, where: str = "") -> Markup:
    """Return the form that asks for a plan."""
    fields = {"where": "Which files would be read for the rows where …"}
    return form(addresses.plan(name), fields, {"where": where}, "Plan")


def search_form(addresses: PageAddresses, given: Mapping[str, str]) -> Markup:
    """Return the form that searches the archive."""
    fields = {"what": "What", "where": "Where", "work_id": "Work id", "start": "From", "end": "To"}
    return joined(
        [
            form(addresses.search(), fields, given, "Search"),
            element(
                "p",
                "What is always needed, and a work id or both times. ",
                "A time is 2015-03-20, 2015-03-20T10:00Z or now, in UTC.",
            ),
        ]
    )


def results(addresses: PageAddresses, page: Page, following: str | None) -> Markup:
    """Return the files that answer a question.

    Args:
        addresses: Of all pages.
        page: The records.
        following: Where the next page is; None on the last one.
    """
    rows = [
        (
            linked(record.path, addresses.file(record.id)),
            record.what,
            record.where,
            _moment(record.start),
            _moment(record.end),
            record.work_id,
            record.size_bytes,
        )
        for record in page.records
    ]
    columns = ("file", "what", "where", "from", "to", "work id", "bytes")
    return joined(
        [
            table(f"Files on this page: {len(rows)}", columns, rows),
            *([navigation("Pages", {"Next page": following})] if following else []),
        ]
    )


def record_part(addresses: PageAddresses, record: ArchiveRecord) -> Markup:
    """Return what is told of a file."""
    further = [
        (name, value if isinstance(value, str) else json.dumps(value))
        for name, value in record.metadata.items()
        if name not in _SHOWN
    ]
    return joined(
        [
            pairs(
                {
                    "what": record.what,
                    "where": record.where,
                    "from": _moment(record.start),
                    "to": _moment(record.end),
                    "work id": record.work_id,
                    "bytes": record.size_bytes,
                    "size": human_size(record.size_bytes),
                    "stored": _moment(record.created_at),
                    "id": record.id,
                    "hash": record.hash,
                }
            ),
            element("p", element("a", "Download", href=addresses.content(record.id))),
            *([table("Further metadata", ("name", "value"), further)] if further else []),
        ]
    )


def uses_part(addresses: PageAddresses, uses: Uses) -> Markup:
    """Return what became of a file."""
    rows = [
        (
            linked(use.dataset, addresses.dataset(use.dataset)),
            str(use.batch_id),
            use.version,
            "yes" if use.is_live else "no",
            use.run,
            use.row_count,
            use.rejected_count,
        )
        for use in uses.found
    ]
    columns = ("dataset", "batch", "version", "batch is live", "run", "rows", "rejected")
    parts = [table("What became of it", columns, rows)]
    if uses.asked_count < uses.dataset_count:
        told = f"Only the first {uses.asked_count} of {uses.dataset_count} datasets were asked."
        parts.append(element("p", told))
    if uses.unread:
        parts.append(table("Not read", ("dataset",), [(name,) for name in uses.unread]))
    return joined(parts)


def _moment(moment: dt.datetime | None) -> str | None:
    """Return a time as the archive tells it, to the millisecond where it has any."""
    if moment is None:
        return None
    text = f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{moment.microsecond // 1000:03}" if moment.microsecond else text
