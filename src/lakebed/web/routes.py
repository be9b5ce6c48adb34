"""The routes of the server and their handlers."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import logging
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import quote, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lakebed.archive import Archive, ArchiveRecord
from lakebed.archive.http.answers import Refusal, is_known, page_arguments
from lakebed.archive.http.application import build_open
from lakebed.archive.http.content_answers import content_answer, find_record
from lakebed.archive.http.gate import Gate
from lakebed.archive.query import ArchiveQuery
from lakebed.common.shown import shown
from lakebed.dataset import Dataset
from lakebed.errors import (
    InvalidInputError,
    InvalidNameError,
    LakebedError,
    NotFoundError,
    StorageError,
    VersionNotFoundError,
)
from lakebed.selection import HEAD_ROWS
from lakebed.state.readable import is_readable
from lakebed.state.reader import read_head
from lakebed.state.sources import SourceFile
from lakebed.state.state import State
from lakebed.store.at_once import at_once
from lakebed.view import View
from lakebed.web import pages
from lakebed.web.catalog_answers import UNAUTHORIZED
from lakebed.web.comparison import compare
from lakebed.web.dataset_facts import DatasetFacts, Datasets, gather
from lakebed.web.downloads import KINDS, Download, FileKind
from lakebed.web.file_lineage import find_file
from lakebed.web.first_rows import Order, ShownRows, checked_count, first_rows, unhurried
from lakebed.web.iceberg_catalog import ROOT as CATALOG_ROOT
from lakebed.web.iceberg_catalog import build_catalog
from lakebed.web.iceberg_door import IcebergDoor
from lakebed.web.lake_page import (
    Lake,
    dataset_part,
    lake_part,
    plan_part,
    rows_part,
    style,
    title_of,
    whole,
)
from lakebed.web.limits import FEW_ROWS, MAX_DOWNLOADS, MAX_READS, MAX_ROWS, WAIT_SECONDS
from lakebed.web.markup import Markup, element, joined
from lakebed.web.pages import PageAddresses, Use, Uses
from lakebed.web.rows_page import (
    RowQuery,
    compare_form,
    compared_part,
    file_part,
    rows_form,
    shown_rows,
)
from lakebed.web.run_facts import gather_runs, newest_runs, runs_by_dataset
from lakebed.web.runs_part import ORDERS, RunLinks, runs_table, sorted_runs
from lakebed.work.pipeline_runs import list_entries, read_entries

_log = logging.getLogger(__name__)

DATASETS_A_PAGE = 50
RUNS_A_PAGE = 50
MAX_ASKED = 100  # datasets that are searched for uses of a raw file
_THREADS = 8  # that read datasets

_API = frozenset({"v0", "spec"})  # first parts of paths that the archive answers
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_VERSION = re.compile(r"[0-9]{1,9}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_ICON = element("link", rel="icon", href="data:,")  # keeps browsers from requesting one
_STYLE_HASH = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
_HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# Browsers may cache public pages, but must revalidate them each time.
_ASK_AGAIN = "private, no-cache"


def build(
    repository: Datasets | None,
    *,
    name: str | None,
    archive: Archive | None,
    token: str | None,
    public_url: str | None,
    hosts: frozenset[str] | None,
    iceberg: IcebergDoor | None = None,
) -> ASGIApp:
    """Return the application; the arguments are checked by `create_app`."""
    base = urlsplit(public_url or "").path
    shown = Starlette(
        routes=_Pages(
            repository, name, archive, PageAddresses(base=base), may_be_kept=token is None
        ).routes(),
        exception_handlers={
            LakebedError: _answer_error,
            Refusal: _answer_refusal,
            HTTPException: _answer_http_error,
            Exception: _answer_defect,
        },
    )
    shown.router.redirect_slashes = False
    api = (
        None
        if archive is None
        else build_open(archive, public_url=public_url, needs_token=token is not None)
    )
    catalog = (
        None if iceberg is None or repository is None else build_catalog(repository, name, iceberg)
    )
    return Gate(
        _Door(shown, api, catalog),
        token,
        hosts=hosts,
        asks_people=True,
        refusals={} if catalog is None else {CATALOG_ROOT: UNAUTHORIZED},
        other_tokens=()
        if iceberg is None or iceberg.write_token is None
        else (iceberg.write_token,),
    )


class _Door:
    """Leads to the pages, to the archive's own endpoints, or to the Iceberg catalog."""

    def __init__(
        self,
        shown: ASGIApp,
        api: ASGIApp | None,
        catalog: ASGIApp | None,
    ) -> None:
        self._shown = shown
        self._api = api
        self._catalog = catalog

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._shown
        if scope["type"] == "http":
            first = scope["path"].lstrip("/").partition("/")[0]
            if self._api is not None and first in _API:
                app = self._api
            elif self._catalog is not None and first == CATALOG_ROOT:
                app = self._catalog
        await app(scope, receive, send)


class _Pages:
    """The handlers of the pages of one lake, one archive or both."""

    def __init__(
        self,
        repository: Datasets | None,
        name: str | None,
        archive: Archive | None,
        addresses: PageAddresses,
        *,
        may_be_kept: bool,
    ) -> None:
        self._repository = repository
        self._name = name
        self._archive = archive
        self._addresses = addresses
        self._may_be_kept = may_be_kept
        self._reads = threading.BoundedSemaphore(MAX_READS)
        self._downloads = threading.BoundedSemaphore(MAX_DOWNLOADS)

    def routes(self) -> list[Route]:
        """Return the routes; all answer GET and HEAD."""
        routes = [Route("/", self._lake), Route("/health", _health), Route("/health/", _health)]
        if self._repository is not None:
            routes += [
                Route("/datasets/{name}", self._dataset),
                Route("/datasets/{name}/plan", self._plan),
                Route("/datasets/{name}/rows", self._rows),
                Route("/datasets/{name}/download", self._download),
                Route("/datasets/{name}/compare", self._compare),
                Route("/datasets/{name}/file", self._data_file),
                Route("/datasets/{name}/runs", self._runs_of_dataset),
                Route("/runs", self._runs_of_lake),
            ]
        else:
            routes += [
                Route("/datasets/{rest:path}", self._no_lake),
                Route("/runs", self._no_lake),
            ]
        if self._archive is not None:
            routes += [
                Route("/archive", self._search),
                # Ids of old archives may hold a slash, which arrives decoded.
                Route("/archive/files/{file_id:path}", self._file),
                Route("/archive/contents/{file_id:path}", self._content),
            ]
        else:
            routes += [
                Route("/archive", self._no_archive),
                Route("/archive/{rest:path}", self._no_archive),
            ]
        return routes

    def _lake(self, request: Request) -> Response:
        accepted = request.headers.get("accept", "")
        if self._archive and "application/json" in accepted and "text/html" not in accepted:
            return RedirectResponse(
                f"{self._addresses.base}/spec/"
            )  # like the archive's own server
        if self._repository is None:
            return RedirectResponse(self._addresses.search())
        names = self._names()
        count = max(1, -(-len(names) // DATASETS_A_PAGE))
        page = _page_of(request, count)
        shown = names[(page - 1) * DATASETS_A_PAGE : page * DATASETS_A_PAGE]
        lake = self._gathered(shown, set(names))
        steps = {"Pages before": page - 1, "Next page": page + 1}
        links = {
            text: self._addresses.lake(step) for text, step in steps.items() if 1 <= step <= count
        }
        summary = (
            f"Page {page} of {count} of {len(names):,} datasets by name. Sums cover this page only."
        )
        parts = [*lake_part(lake, self._addresses.dataset, run_links=self._run_links(names))]
        if count > 1:
            parts += [element("p", summary), pages.navigation("Pages", links)]
        return self._page(request, f"Lakebed: {title_of(self._repository.uri)}", parts)

    def _gathered(self, names: Sequence[str], existing: Collection[str]) -> Lake:
        assert self._repository is not None  # or there is no such route
        repository = self._repository
        recorded = runs_by_dataset(repository.store, self._name)

        def facts_of(name: str) -> DatasetFacts | tuple[str, str]:
            try:
                return gather(repository.open(name), recorded.get(name, ()))
            except LakebedError as error:
                # The page lists datasets that cannot be read, with the reason.
                return name, error.message

        known = list(at_once(facts_of, names, _THREADS))
        missing = {
            name: gather_runs(repository.store, entries)
            for name, entries in recorded.items()
            if name not in existing
        }
        read = [each.runs for each in known if isinstance(each, DatasetFacts)]
        return Lake(
            uri=repository.uri,
            made_at=dt.datetime.now(dt.UTC),
            datasets=[each for each in known if isinstance(each, DatasetFacts)],
            failures=[each for each in known if isinstance(each, tuple)],
            runs=newest_runs(run for each in (*read, *missing.values()) for run in each.runs),
            missing=missing,
        )

    def _run_links(self, names: Collection[str]) -> RunLinks:
        """Return the addresses that a table of runs leads to.

        Versions that a cleanup has given up have no page.

        Args:
            names: Names of the datasets that exist.

        Cost:
            The head of each dataset with a version in the table.
        """
        repository = self._repository
        assert repository is not None  # or there is no such route
        heads: dict[str, State | None] = {}

        def version_address(name: str, version: int) -> str | None:
            if name not in names:
                return None
            if name not in heads:
                try:
                    heads[name] = read_head(repository.store, name).state
                except LakebedError:
                    heads[name] = None  # the page of the dataset has the reason
            state = heads[name]
            if state is None:
                return None
            is_there = is_readable(state, version)
            return self._addresses.rows(name, version=str(version)) if is_there else None

        return RunLinks(
            dataset=lambda name: self._addresses.dataset(name) if name in names else None,
            version=version_address,
        )

    def _runs_of_lake(self, request: Request) -> Response:
        parts = [element("h1", "Runs of pipelines"), *self._runs(request, None, self._names())]
        return self._page(request, "Lakebed: runs", parts)

    def _runs_of_dataset(self, request: Request) -> Response:
        name = self._known_name(request)
        assert self._repository is not None  # or there is no such route
        names = self._names()
        if name not in names:
            try:
                self._repository.open(name)
            except LakebedError as error:
                return self._failed(request, f"Runs of {name}", error)
        parts = [
            element("h1", f"Runs of {name}"),
            self._views(request, name),
            *self._runs(request, name, names),
        ]
        return self._page(request, f"Lakebed: runs of {name}", parts)

    def _runs(self, request: Request, name: str | None, names: Collection[str]) -> Iterator[Markup]:
        """Yield a page of runs in the order of the request.

        Args:
            request: The request.
            name: The dataset; None for all.
            names: Names of the datasets that exist.
        """
        assert self._repository is not None  # or there is no such route
        sort, order = (request.query_params.get(key, "") for key in ("sort", "order"))
        if sort not in ("", *ORDERS) or order not in ("", "asc", "desc"):
            raise HTTPException(404)
        sort, order = sort or "began", order or "desc"
        entries = list_entries(self._repository.store, self._name if name is None else name)
        count = max(1, -(-len(entries) // RUNS_A_PAGE))
        page = _page_of(request, count)
        shown = entries[(page - 1) * RUNS_A_PAGE : page * RUNS_A_PAGE]
        runs = sorted_runs(read_entries(self._repository.store, shown), sort, order)

        def address(**question: str) -> str:
            given = {"sort": sort, "order": order, "page": str(page)} | question
            usual = {"sort": "began", "order": "desc", "page": "1"}
            asked = {key: value for key, value in given.items() if value != usual[key]}
            return self._addresses.runs(name, **asked)

        links = replace(
            self._run_links(names),
            sort=lambda column, direction: address(sort=column, order=direction),
        )
        first = (page - 1) * RUNS_A_PAGE + 1
        caption = f"Runs {first:,} to {first + len(shown) - 1:,} of {len(entries):,}"
        if not entries:
            caption = "Runs: none are recorded"
        yield runs_table(
            caption, runs, has_dataset=name is None, links=links, sort=sort, order=order
        )
        if count > 1:
            steps = {"Newer runs": page - 1, "Older runs": page + 1}
            yield pages.navigation(
                "Pages",
                {text: address(page=str(to)) for text, to in steps.items() if 1 <= to <= count},
            )
            yield element(
                "p", "The newest runs are on the first page; another order is that of a page."
            )

    def _dataset(self, request: Request) -> Response:
        name = self._known_name(request)
        assert self._repository is not None  # or there is no such route
        try:
            facts = gather(self._repository.open(name))
        except LakebedError as error:
            return self._failed(request, f"Dataset {name}", error)
        parts = [
            element("h1", title_of(self._repository.uri)),
            self._views(request, name),
            *dataset_part(
                facts,
                source_link=self._source_address,
                version_link=lambda version: self._addresses.rows(name, version=str(version)),
                rows=self._preview(facts),
                run_links=self._run_links([name]),
            ),
            element("h3", "Plan"),
            pages.plan_form(self._addresses, name),
        ]
        return self._page(request, f"Lakebed: {name}", parts)

    def _views(self, request: Request, name: str) -> Markup:
        """Return links to the pages of a dataset."""
        links = {
            "Overview": self._addresses.dataset(name),
            "Rows": self._addresses.rows(name),
            "Compare versions": self._addresses.compare(name),
            "Runs": self._addresses.runs(name),
            "Plan": self._addresses.plan(name),
        }
        here = self._here(request)
        return pages.navigation(f"Dataset {name}", links, current=here)

    def _preview(self, facts: DatasetFacts) -> Markup:
        """Return the first rows of the version that the facts describe."""
        read: ShownRows | str
        try:
            with self._reading():
                dataset = facts.dataset.at(version=facts.version)
                read = first_rows(dataset, dataset.schema.names, row_count=HEAD_ROWS)
        except LakebedError as error:
            read = error.message
        preview = rows_part(facts.name, read)
        assert preview is not None  # it was read
        more = element("a", "All rows", href=self._addresses.rows(facts.name))
        return joined([preview, element("p", more)])

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Wait until fewer than MAX_READS pages with rows are being read."""
        if not self._reads.acquire(timeout=WAIT_SECONDS):
            raise _TOO_MANY
        try:
            yield
        finally:
            self._reads.release()

    def _rows(self, request: Request) -> Response:
        name = self._known_name(request)
        assert self._repository is not None  # or there is no such route
        question = RowQuery.of(request.query_params)
        parts = [element("h1", f"Rows of {name}"), self._views(request, name)]
        status = 200
        try:
            dataset = self._repository.open(name)
            types = dataset._source.load().state.layout.column_types
            form = rows_form(self._addresses, name, question, types, dataset.history())
            parts.append(form)
            try:
                view, columns, order = _asked_view(dataset, question)
                with self._reading():
                    read = first_rows(view, columns, order, _row_count(question))
                types = read.plan.layout.column_types
                parts += [
                    element("h2", f"Version {read.version}"),
                    shown_rows(self._addresses, name, question, types, read),
                ]
            except (InvalidInputError, VersionNotFoundError) as error:
                parts.append(pages.alert(error))
                status = 404 if isinstance(error, NotFoundError) else 400
        except LakebedError as error:
            return self._failed(request, f"Rows of {name}", error)
        return self._page(request, f"Lakebed: rows of {name}", parts, status=status)

    def _download(self, request: Request) -> Response:
        name = self._known_name(request)
        assert self._repository is not None  # or there is no such route
        question = RowQuery.of(request.query_params)
        title = f"Download of {name}"
        try:
            kind = _kind_of(request)
            is_all = _is_all(request)
            view, columns, order = _asked_view(self._repository.open(name), question)
            view = view.snapshot()
            if is_all:
                rows = unhurried(view, columns)
            else:
                with self._reading():
                    read = first_rows(view, columns, order, _row_count(question))
                rows = read.rows.to_reader()
        except InvalidInputError as error:
            return self._failed(request, title, error, status=400)
        except LakebedError as error:
            return self._failed(request, title, error)
        headers = {
            **_HEADERS,
            "content-disposition": disposition(f"{name}-v{view.version}.{kind.suffix}"),
        }
        if request.method == "HEAD":
            return Response(headers=headers, media_type=kind.media_type)
        if not self._downloads.acquire(blocking=False):
            raise _TOO_MANY
        try:
            return Download(kind, rows, headers, on_end=self._downloads.release)
        except LakebedError as error:
            return self._failed(request, title, error)

    def _compare(self, request: Request) -> Response:
        name = self._known_name(request)
        assert self._repository is not None  # or there is no such route
        given = {key: request.query_params.get(key, "").strip() for key in ("from", "to", "where")}
        parts = [element("h1", f"Versions of {name}"), self._views(request, name)]
        status = 200
        try:
            dataset = self._repository.open(name).snapshot()
            is_asked = bool(given["from"] or given["to"])
            given["to"] = given["to"] or str(dataset.version)
            given["from"] = given["from"] or str(max(dataset.version - 1, 0))
            parts.append(compare_form(self._addresses, name, given, dataset.history()))
            try:
                if is_asked:
                    ends = (checked_version(given["from"]), checked_version(given["to"]))
                    with self._reading():
                        compared = compare(dataset, *ends, given["where"])
                    levels = dataset._source.load().state.layout.partition_level_types
                    parts.append(compared_part(self._addresses, name, compared, levels))
            except (InvalidInputError, VersionNotFoundError) as error:
                parts.append(pages.alert(error))
                status = 404 if isinstance(error, NotFoundError) else 400
        except LakebedError as error:
            return self._failed(request, f"Versions of {name}", error)
        return self._page(request, f"Lakebed: versions of {name}", parts, status=status)

    def _data_file(self, request: Request) -> Response:
        name = self._known_name(request)
        assert self._repository is not None  # or there is no such route
        key = request.query_params.get("key", "")
        try:
            facts = find_file(self._repository.open(name), key)
        except LakebedError as error:
            return self._failed(request, f"A data file of {name}", error)
        read: ShownRows | str
        try:
            with self._reading():
                columns = facts.view._source.cached().descriptor.schema.names
                read = first_rows(facts.view, columns)
        except LakebedError as error:
            read = error.message
        rows = rows_part("the file", read)
        assert rows is not None  # it was read
        parts = [
            element("h1", key),
            self._views(request, name),
            file_part(self._addresses, name, facts, self._source_address, rows),
        ]
        return self._page(request, f"Lakebed: file of {name}", parts)

    def _no_archive(self, request: Request) -> Response:
        return self._not_given(
            request,
            "No archive",
            "This server shows no archive, because it was started without --archive.",
            "lakebed serve LOCATION --archive URL",
        )

    def _no_lake(self, request: Request) -> Response:
        return self._not_given(
            request,
            "No lake",
            "This server shows no datasets, because it was started without a location.",
            "lakebed serve LOCATION --archive URL",
        )

    def _not_given(self, request: Request, title: str, text: str, command: str) -> Response:
        parts = [
            element("h1", title),
            element("p", text),
            element("p", "To show both: ", element("code", command)),
        ]
        return self._page(request, f"Lakebed: {title.lower()}", parts, status=404)

    def _plan(self, request: Request) -> Response:
        name = self._known_name(request)
        assert self._repository is not None  # or there is no such route
        where = request.query_params.get("where", "")
        parts = [
            element("h1", f"Plans of {name}"),
            self._views(request, name),
            pages.plan_form(self._addresses, name, where),
        ]
        status = 200
        try:
            dataset = self._repository.open(name)
            if where.strip():
                parts.append(plan_part(dataset.where(where).plan().explain()))
        except InvalidInputError as error:
            parts.append(pages.alert(error))
            status = 400
        except LakebedError as error:
            return self._failed(request, f"Plans of {name}", error)
        return self._page(request, f"Lakebed: plans of {name}", parts, status=status)

    def _search(self, request: Request) -> Response:
        assert self._archive is not None  # or there is no such route
        given = {name: request.query_params.get(name, "").strip() for name in pages.QUESTION}
        parts = [element("h1", "Archive"), pages.search_form(self._addresses, given)]
        status = 200
        if any(given.values()):
            try:
                parts.append(self._results(given, request.query_params.get("cursor")))
            except InvalidInputError as error:
                parts.append(pages.alert(error))
                status = 400
        return self._page(request, "Lakebed: archive", parts, status=status)

    def _results(self, given: Mapping[str, str], cursor: str | None) -> Markup:
        assert self._archive is not None  # or there is no such route
        asked = {name: text or None for name, text in given.items() if name != "what"}
        query = ArchiveQuery.of(given["what"], **asked)  # type: ignore[arg-type]  # text or None
        page = self._archive.index.page(query, cursor=cursor)
        following = (
            None
            if page.next_cursor is None
            else self._addresses.search(page_arguments(query, page.next_cursor))
        )
        return pages.results(self._addresses, page, following)

    def _file(self, request: Request) -> Response:
        record = self._record(request)
        parts = [element("h1", record.path), pages.record_part(self._addresses, record)]
        if self._repository is not None:
            parts.append(pages.uses_part(self._addresses, self._uses(record)))
        return self._page(request, f"Lakebed: {record.path}", parts)

    def _uses(self, record: ArchiveRecord) -> Uses:
        assert self._repository is not None  # asked by its only caller
        repository, names = self._repository, self._names()

        def uses_in(name: str) -> list[Use] | str:
            try:
                dataset = repository.open(name)
                read = dataset.sources.list(file=record.id)
                batches = {each.batch_id: each for each in dataset.batches()} if read else {}
            except LakebedError:
                return name
            return [
                Use(
                    dataset=name,
                    batch_id=source.batch_id,
                    version=batch.version if (batch := batches.get(source.batch_id)) else None,
                    is_live=batch is not None and batch.is_live,
                    run=source.run,
                    row_count=source.row_count,
                    rejected_count=source.rejected_count,
                )
                for source in read
                if source.file_id == record.id
            ]

        answers = list(at_once(uses_in, names[:MAX_ASKED], _THREADS))
        return Uses(
            found=[use for each in answers if isinstance(each, list) for use in each],
            asked_count=min(len(names), MAX_ASKED),
            dataset_count=len(names),
            unread=[each for each in answers if isinstance(each, str)],
        )

    def _content(self, request: Request) -> Response:
        assert self._archive is not None  # or there is no such route
        record = self._record(request)
        answer = content_answer(self._archive, record, request)
        for header, value in {**_HEADERS, "content-disposition": disposition(record.path)}.items():
            answer.headers[header] = value
        if self._may_be_kept:
            answer.headers["cache-control"] = _ASK_AGAIN
        if answer.status_code == 304:
            return answer
        answer.headers["content-type"] = "application/octet-stream"
        if record.path.lower().endswith((".gz", ".tgz")) and "content-encoding" in answer.headers:
            # The name is that of a compressed file, so the download keeps it compressed.
            del answer.headers["content-encoding"]
        return answer

    def _record(self, request: Request) -> ArchiveRecord:
        assert self._archive is not None  # or there is no such route
        return find_record(self._archive, request.path_params["file_id"])

    def _source_address(self, source: SourceFile) -> str | None:
        """Return the address of a raw file's page, if the file is in the archive shown."""
        if self._archive is None or source.file_id is None:
            return None
        is_ours = source.location.startswith(f"{self._archive.store.uri}/")
        return self._addresses.file(source.file_id) if is_ours else None

    def _names(self) -> list[str]:
        assert self._repository is not None  # asked by all callers
        return self._repository.list() if self._name is None else [self._name]

    def _known_name(self, request: Request) -> str:
        """Return the name of a dataset that may be shown."""
        name: str = request.path_params["name"]
        if self._name not in (None, name):
            raise HTTPException(404)
        return name

    def _page(
        self, request: Request, title: str, parts: Iterable[Markup], *, status: int = 200
    ) -> Response:
        links = {}
        if self._repository is not None:
            links["Lake"] = self._addresses.lake()
        if self._archive is not None:
            links["Archive"] = self._addresses.search()
        if self._repository is not None:
            links["Runs"] = self._addresses.runs()
        top = pages.navigation("Lakebed", links, current=self._here(request))
        answer = _html(title, parts, status, top=top)
        if status != 200 or not self._may_be_kept:
            return answer
        digest = hashlib.blake2b(bytes(answer.body), digest_size=16).hexdigest()
        answer.headers.update({"cache-control": _ASK_AGAIN, "etag": f'"{digest}"'})
        if is_known(request, answer.headers["etag"]):
            return Response(status_code=304, headers=_without_body(answer.headers))
        return answer

    def _here(self, request: Request) -> str:
        """Return the address of the page, without what was asked; empty if something was."""
        if request.scope["query_string"]:
            return ""
        return f"{self._addresses.base}{quote(request.scope['path'], safe='/')}"

    def _failed(
        self, request: Request, title: str, error: LakebedError, *, status: int | None = None
    ) -> Response:
        parts = [element("h1", title), pages.alert(error)]
        status = _status(error) if status is None else status
        _log_failure(request, error, status)
        return self._page(request, f"Lakebed: {title}", parts, status=status)


def _asked_view(dataset: Dataset, question: RowQuery) -> tuple[View, Sequence[str], Order]:
    """Return what a question asks for: rows of one version, columns and order.

    Raises:
        InvalidInputError: A part of the question is not valid.
        VersionNotFoundError: There is no such version.
    """
    pinned = (
        dataset.at(version=checked_version(question.version))
        if question.version
        else dataset.snapshot()
    )
    view = pinned.where(question.where) if question.where else pinned
    columns = [name.strip() for name in question.columns.split(",")] if question.columns else []
    if question.order not in ("", "desc"):
        raise InvalidInputError(
            f"There is no direction {shown(question.order)}.",
            hint="Give desc for the greatest first, or leave it out.",
        )
    order = Order(column=question.sort, is_descending=question.order == "desc")
    return view, columns or pinned.schema.names, order


def _row_count(question: RowQuery) -> int:
    if not question.rows:
        return FEW_ROWS
    if _NUMBER.fullmatch(question.rows):
        return checked_count(int(question.rows))
    raise InvalidInputError(
        f"{shown(question.rows)} is not a number of rows.",
        hint=f"Give a number from 1 to {MAX_ROWS}.",
    )


def checked_version(text: str) -> int:
    """Return the number of a version.

    Raises:
        InvalidInputError: The text is not the number of a version.
    """
    if _VERSION.fullmatch(text):
        return int(text)
    raise InvalidInputError(
        f"{shown(text)} is not a version.", hint="Give a number, such as 7, or leave it out."
    )


def _kind_of(request: Request) -> FileKind:
    asked = request.query_params.get("format", "csv")
    if asked in KINDS:
        return KINDS[asked]
    raise InvalidInputError(
        f"There is no download in the format {shown(asked)}.", hint=f"Give {', '.join(KINDS)}."
    )


def _is_all(request: Request) -> bool:
    asked = request.query_params.get("which", "shown")
    if asked in ("shown", "all"):
        return asked == "all"
    raise InvalidInputError(
        f"There is no download of the rows {shown(asked)}.", hint="Give shown or all."
    )


def disposition(path: str) -> str:
    r"""Return the header by which browsers save a file, under the last part of its path.

    >>> disposition('/logs/a b".html')
    'attachment; filename="a_b_.html"; filename*=UTF-8\'\'a%20b%22.html'
    """
    name = path.replace("\\", "/").rpartition("/")[2].lstrip(".")[-150:]
    name = "".join(letter if letter.isprintable() else "_" for letter in name) or "file"
    plain = _UNSAFE.sub("_", name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"


def _without_body(headers: Mapping[str, str]) -> dict[str, str]:
    kept = {*_HEADERS, "etag"}
    return {name: value for name, value in headers.items() if name in kept}


def _health(_request: Request) -> Response:
    return JSONResponse({}, headers=_HEADERS)


def _page_of(request: Request, count: int) -> int:
    text = request.query_params.get("page", "1")
    if not _NUMBER.fullmatch(text) or int(text) > count:
        raise HTTPException(404)
    return int(text)


def _html(
    title: str, parts: Iterable[Markup], status: int, *, top: Markup | None = None
) -> Response:
    text = "".join(whole(title, parts, head=_ICON, top=top))
    # Values of a form may hold half of a surrogate pair, which cannot be encoded.
    body = text.encode("utf-8", "backslashreplace")
    return Response(body, status, headers=_HEADERS, media_type="text/html")


def _status(error: LakebedError) -> int:
    if isinstance(error, NotFoundError | InvalidNameError):
        return 404
    return 503 if isinstance(error, StorageError) else 500


def _short_page(title: str, status: int, text: str = "") -> Response:
    return _html(f"Lakebed: {title}", [element("h1", title), element("p", text)], status)


def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, LakebedError)
    status = _status(error)
    _log_failure(request, error, status)
    return _html("Lakebed: not read", [element("h1", "Not read"), pages.alert(error)], status)


def _log_failure(request: Request, error: LakebedError, status: int) -> None:
    """Log in one line why a page was not made; a page that does not exist is no failure."""
    if status >= 500:
        _log.error("request failed path=%r error=%s", request.scope["path"], error)


def _answer_refusal(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    title = "Busy" if error.status == 503 else "Not here"
    page = _short_page(title, error.status, error.message)
    page.headers.update(error.headers)
    return page


def _answer_http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        page = _short_page("Not allowed", 405, "These pages are read-only.")
        page.headers["allow"] = "GET, HEAD"
        return page
    return _short_page("Not here", error.status_code, "There is no such page.")


def _answer_defect(_request: Request, _error: Exception) -> Response:
    return _short_page("The server failed", 500, "The reason is in its log.")


_TOO_MANY = Refusal(
    503,
    "TooManyReads",
    "The server is reading as many rows as it may at once. Try again in a moment.",
    headers={"retry-after": "5"},
)
