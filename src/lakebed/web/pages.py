"""Parts of the server's pages: forms, results and records, in the style of the report."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from lakebed.archive import ArchiveRecord
from lakebed.archive.query import Page
from lakebed.common.shown import human_size
from lakebed.errors import LakebedError
from lakebed.web.lake_page import linked
from lakebed.web.markup import Markup, element, joined, lines, table
from lakebed.web.markup import facts as pairs

QUESTION = ("what", "where", "work_id", "start", "end")
_SHOWN = frozenset({"id", "what", "where", "work_id", "path", "hash", "start", "end", "version"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAddresses:
    """Addresses of the pages.

    Attributes:
        base: Path that a proxy puts before all others.
    """

    base: str

    def lake(self, page: int = 1) -> str:
        """Return the address of a page of datasets."""
        return f"{self.base}/" if page == 1 else f"{self.base}/?page={page}"

    def dataset(self, name: str) -> str:
        """Return the address of a dataset."""
        return f"{self.base}/datasets/{quote(name, safe='')}"

    def plan(self, name: str, where: str = "") -> str:
        """Return the address of a dataset's plans, or of one plan."""
        return f"{self.dataset(name)}/plan{_arguments({'where': where})}"

    def rows(self, name: str, **question: str) -> str:
        """Return the address of a dataset's rows."""
        return f"{self.dataset(name)}/rows{_arguments(question)}"

    def download(self, name: str) -> str:
        """Return the address that downloads rows of a dataset."""
        return f"{self.dataset(name)}/download"

    def runs(self, name: str | None = None, **question: str) -> str:
        """Return the address of the runs of a dataset, or of all pipelines."""
        start = f"{self.base}/runs" if name is None else f"{self.dataset(name)}/runs"
        return f"{start}{_arguments(question)}"

    def compare(self, name: str, **question: str) -> str:
        """Return the address of a comparison of versions; `from_` stands for `from`."""
        return f"{self.dataset(name)}/compare{_arguments(question)}"

    def data_file(self, name: str, key: str) -> str:
        """Return the address of a data file's page."""
        return f"{self.dataset(name)}/file{_arguments({'key': key})}"

    def search(self, arguments: str = "") -> str:
        """Return the address of the archive's search."""
        return f"{self.base}/archive" + (f"?{arguments}" if arguments else "")

    def file(self, file_id: str) -> str:
        """Return the address of a file's page in the archive."""
        return f"{self.base}/archive/files/{_quoted(file_id)}"

    def content(self, file_id: str) -> str:
        """Return the address of a file's download."""
        return f"{self.base}/archive/contents/{_quoted(file_id)}"


def _arguments(question: Mapping[str, str]) -> str:
    given = {name.rstrip("_"): value for name, value in question.items() if value}
    text = urlencode(given, quote_via=quote, safe="", errors="surrogatepass")
    return f"?{text}" if text else ""


def _quoted(file_id: str) -> str:
    return quote(file_id, safe="", errors="surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """The use of a raw file in a dataset.

    Attributes:
        dataset: Name of the dataset.
        batch_id: Id of the batch that the file was loaded into.
        version: Version that made the batch visible; None if no longer known.
        is_live: True if the newest version reads data files of the batch.
        run: Name of the run that loaded the file.
        row_count: Number of loaded rows.
        rejected_count: Number of rejected lines.
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
    """The uses of a raw file.

    Attributes:
        found: Uses in datasets.
        asked_count: Number of datasets searched.
        dataset_count: Number of all datasets.
        unread: Names of datasets that could not be read.
    """

    found: Sequence[Use]
    asked_count: int
    dataset_count: int
    unread: Sequence[str]


def navigation(label: str, links: Mapping[str, str], *, current: str = "") -> Markup:
    """Return links to other pages, with a label that distinguishes them from other links.

    Args:
        label: Label of the navigation.
        links: Addresses by text.
        current: Address of this page, which needs no link.
    """
    anchors = (
        element("a", text, href=to) if to != current else element("span", text, aria_current="page")
        for text, to in links.items()
    )
    return element("nav", *anchors, aria_label=label)


def alert(error: LakebedError) -> Markup:
    """Return the message and the hint of an error."""
    return element(
        "div",
        *(element("p", part) for part in lines(error.message)),
        *(element("p", part) for part in lines(error.hint)),
        class_="alert",
        role="alert",
    )


def form(action: str, fields: Mapping[str, str], given: Mapping[str, str], button: str) -> Markup:
    """Return a form that is sent by GET.

    Args:
        action: Address that the form is sent to.
        fields: Labels of the fields by name.
        given: Values of the fields by name.
        button: Text of the button.
    """
    inputs = [text_field(name, label, given.get(name, "")) for name, label in fields.items()]
    return form_of(action, inputs, button)


def form_of(action: str, controls: Sequence[Markup], button: str) -> Markup:
    """Return a form of some controls that is sent by GET."""
    return element(
        "form", *controls, element("button", button, type="submit"), method="get", action=action
    )


def text_field(name: str, label: str, value: str) -> Markup:
    """Return a field for text, with its label; the field of a condition is long."""
    field = element("input", type="text", name=name, value=value, autocomplete="off")
    return element("label", label, field, class_="long" if name == "where" else None)


def choice(name: str, label: str, options: Mapping[str, str], chosen: str) -> Markup:
    """Return a field for one of several values, with its label.

    Args:
        name: Name of the field.
        label: Label of the field.
        options: Texts of the options by value.
        chosen: Value that is chosen at first; an unknown one is offered, too.
    """
    known = options if chosen in options else {**options, chosen: chosen}
    items = [
        element("option", text, value=value, selected="" if value == chosen else None)
        for value, text in known.items()
    ]
    return element("label", label, element("select", *items, name=name))


def hidden(name: str, value: str) -> Markup:
    """Return a value that is sent with a form."""
    return element("input", type="hidden", name=name, value=value)


def plan_form(addresses: PageAddresses, name: str, where: str = "") -> Markup:
    """Return the form for a plan."""
    fields = {"where": "Show the files that are read for rows where …"}
    return form(addresses.plan(name), fields, {"where": where}, "Plan")


def search_form(addresses: PageAddresses, given: Mapping[str, str]) -> Markup:
    """Return the form that searches the archive."""
    fields = {"what": "What", "where": "Where", "work_id": "Work id", "start": "From", "end": "To"}
    return joined(
        [
            form(addresses.search(), fields, given, "Search"),
            element(
                "p",
                "“What” is required, and a work id or both times. ",
                "A time is 2015-03-20, 2015-03-20T10:00Z or now, in UTC.",
            ),
        ]
    )


def results(addresses: PageAddresses, page: Page, following: str | None) -> Markup:
    """Return the files of a search.

    Args:
        addresses: Addresses of all pages.
        page: The records to show.
        following: Address of the next page; None on the last one.
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
    """Return the metadata of a file, and a link to download it."""
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
    """Return the table of a file's uses in datasets."""
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
    parts = [table("Uses in datasets", columns, rows)]
    if uses.asked_count < uses.dataset_count:
        note = f"Only the first {uses.asked_count} of {uses.dataset_count} datasets were searched."
        parts.append(element("p", note))
    if uses.unread:
        parts.append(table("Not read", ("dataset",), [(name,) for name in uses.unread]))
    return joined(parts)


def _moment(moment: dt.datetime | None) -> str | None:
    """Return a time as text, with milliseconds if it has any."""
    if moment is None:
        return None
    text = f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{moment.microsecond // 1000:03}" if moment.microsecond else text
