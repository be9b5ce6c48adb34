"""Observation of public verbs and of requests: wrappers that exist only while something observes.

As long as there is no observer, no function of Lakebed is replaced, so nothing costs anything. The
first observer wraps the methods and functions that `observed` lists, and the public methods of
stores; when the last observer has gone, all of them are what they were.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import inspect
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from lakebed.errors import redacted
from lakebed.model.layout import is_data_key
from lakebed.model.totals import known_total
from lakebed.spark.observed_tasks import observe_tasks
from lakebed.state.committing import Committed
from lakebed.store.base import Store
from lakebed.telemetry.observed import FUNCTIONS, VERBS, Arguments, CallKind, Place
from lakebed.telemetry.worker_requests import counting

if TYPE_CHECKING:
    from lakebed.spark.few import Task

_log = logging.getLogger(__name__)

RequestKind = Literal["get", "put", "list", "head", "delete"]

_PAGE = 1000  # objects in one LIST, keys in one bulk deletion


@dataclass(slots=True, kw_only=True)
class OfWorkers:
    """The part of a call that Spark's workers have done.

    Attributes:
        requests: Number of their requests to the store, by kind.
        read_bytes: Total size of the content that these read.
        written_bytes: Total size of the content that these wrote.
        row_count: Number of rows that they wrote.
    """

    requests: Counter[RequestKind] = field(default_factory=Counter)
    read_bytes: int = 0
    written_bytes: int = 0
    row_count: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class Call:
    """An observed call, while it runs and at its end.

    Attributes:
        kind: Kind of the call.
        name: Its name, such as `append`.
        dataset: Name of the dataset; None if it has none.
        location: URI of the repository or archive; empty if unknown.
        arguments: The given arguments, by name.
        parent: The observed call that made it; None if there is none.
        is_dry_run: True if nothing is changed.
        began_at: Start time; aware, UTC.
        duration_s: Duration, after the end.
        result: The result, after the end.
        error: The error that ended it; None if it did not fail.
        requests: Number of requests to the store so far, by kind, including those of inner calls.
        read_bytes: Total size of the content that these read.
        written_bytes: Total size of the content that these wrote.
        data_sizes: Sizes of the data files that these wrote, by key.
        of_workers: The requests and the bytes that Spark's workers have reported, which the numbers
            above include.
    """

    kind: CallKind
    name: str
    dataset: str | None
    location: str
    arguments: Arguments
    parent: Call | None
    is_dry_run: bool
    began_at: dt.datetime
    duration_s: float = 0.0
    result: Any = None
    error: BaseException | None = None
    requests: Counter[RequestKind] = field(default_factory=Counter)
    read_bytes: int = 0
    written_bytes: int = 0
    data_sizes: dict[str, int] = field(default_factory=dict)
    of_workers: OfWorkers = field(default_factory=OfWorkers)

    def and_outer(self) -> Iterator[Call]:
        """Yield the call and those that it is part of, from the inside out."""
        call: Call | None = self
        while call is not None:
            yield call
            call = call.parent

    def size_of(self, made: Committed) -> int | None:
        """Return the size of the files that a commit adds; None if Spark wrote some of them."""
        if made.state is None:
            return None
        *_, outermost = self.and_outer()
        keys = map(made.state.layout.naming.key, made.entry.added)
        return known_total([outermost.data_sizes.get(key) for key in keys])

    @property
    def failure(self) -> BaseException | None:
        """The error that ended it, or that of the report of a step."""
        if self.error is None and self.kind == "step" and self.result is not None:
            of_step: BaseException | None = self.result.error
            return of_step
        return self.error

    @property
    def verb(self) -> Call | None:
        """The innermost verb or step that it is part of; itself if it is one."""
        return next((call for call in self.and_outer() if call.kind in ("verb", "step")), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """Requests to a store, as an object store would bill them.

    Attributes:
        kind: Kind of the requests.
        count: Number of the requests.
        read_bytes: Size of the content that was read.
        written_bytes: Size of the content that was written.
        is_of_worker: True if a worker of Spark has sent them.
        row_count: Number of rows that a worker of Spark has written.
    """

    kind: RequestKind
    count: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    is_of_worker: bool = False
    row_count: int = 0


class Observer(Protocol):
    """A receiver of calls and requests. Its errors are logged, and change nothing else."""

    def begin(self, call: Call) -> None:
        """Note that a call begins."""

    def end(self, call: Call) -> None:
        """Note that a call has ended; it has the result or the error."""

    def request(self, request: SentRequest, call: Call | None) -> None:
        """Note requests, and the innermost call that sent them, if known. Calls come from any thread."""


_observers: tuple[Observer, ...] = ()
_undo: list[Callable[[], None]] = []
_changing = threading.RLock()
_counting = threading.Lock()
_current: ContextVar[Call | None] = ContextVar("observed", default=None)
_roots: set[Call] = set()  # outermost calls that run now


def watch(observer: Observer) -> None:
    """Add an observer."""
    global _observers
    with _changing:
        if not _observers:
            _wrap_all()
        _observers = (*_observers, observer)


def unwatch(observer: Observer) -> None:
    """Remove an observer; without any left, all functions are what they were before."""
    global _observers
    with _changing:
        _observers = tuple(one for one in _observers if one is not observer)
        if not _observers:
            while _undo:
                _undo.pop()()


def _tell(observers: Iterable[Observer], what: str, *given: Any) -> None:
    for observer in observers:
        try:
            getattr(observer, what)(*given)
        except Exception as exc:  # noqa: BLE001 - telemetry must not end what it observes
            name = type(observer).__name__
            _log.warning("telemetry failed observer=%s error=%s", name, redacted(repr(exc)))


def _wrap_all() -> None:
    for verbs in VERBS:
        owner = getattr(importlib.import_module(verbs.module), verbs.owner)
        for method, name in verbs.names.items():
            wrapped = _around(vars(owner)[method], "verb", name, verbs.place)
            _replace_attribute(owner, method, wrapped)
    for one in FUNCTIONS:
        function = getattr(importlib.import_module(one.module), one.name)
        _replace_everywhere(function, _around(function, one.kind, one.title, one.place))
    _wrap_stores()
    _undo.append(observe_tasks(_counted, _note_rows_of_workers))


def _wrap_stores() -> None:
    for method, wrap in _OF_STORES.items():
        _replace_attribute(Store, method, wrap(vars(Store)[method]))


@contextmanager
def watching_stores(observer: Observer) -> Iterator[None]:
    """Observe the requests of a block, and nothing else: for a worker of Spark."""
    global _observers
    with _changing:
        if not _observers:
            _wrap_stores()
        _observers = (*_observers, observer)
    try:
        yield
    finally:
        unwatch(observer)


def _counted(spark: Any, task: Task) -> Task:
    """Return a task that reports its requests to the call that sends it."""
    if not any(getattr(one, "counts_requests", True) for one in _observers):
        return task
    # Imported here: it needs pyspark, which is installed, since there is a session.
    from lakebed.spark.accumulated import accumulator_of

    call = _current.get()

    def note(kind: RequestKind, count: int, read_bytes: int, written_bytes: int) -> None:
        """Called by a thread of Spark's, while the job runs."""
        request = SentRequest(
            kind=kind,
            count=count,
            read_bytes=read_bytes,
            written_bytes=written_bytes,
            is_of_worker=True,
        )
        _note_for(call, request)

    report = accumulator_of(spark, note)
    return task if report is None else counting(task, report)


def _note_rows_of_workers(row_count: int) -> None:
    _note_for(_current.get(), SentRequest(kind="put", is_of_worker=True, row_count=row_count))


def _replace_attribute(owner: type, name: str, wrapped: Callable[..., Any]) -> None:
    original = vars(owner)[name]
    setattr(owner, name, wrapped)
    _undo.append(lambda: setattr(owner, name, original))


def _replace_everywhere(original: Callable[..., Any], wrapped: Callable[..., Any]) -> None:
    """Replace a function in all modules of Lakebed that have imported it; others import the new one."""
    _rebind(original, wrapped)
    _undo.append(lambda: _rebind(wrapped, original))


def _rebind(old: object, new: object) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("lakebed."):
            for attribute, value in list(vars(module).items()):
                if value is old:
                    setattr(module, attribute, new)


def _around(
    function: Callable[..., Any],
    kind: CallKind,
    title: str,
    place: Callable[[Arguments], Place],
) -> Callable[..., Any]:
    """Return a function that does the same as an observed call."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def observed(*args: Any, **kwargs: Any) -> Any:
        call = _new_call(signature, kind, title, place, args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        with _running(call):
            call.result = function(*args, **kwargs)
        return call.result

    return observed


def _new_call(
    signature: inspect.Signature,
    kind: CallKind,
    title: str,
    place: Callable[[Arguments], Place],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Call | None:
    """Return a call that is about to begin; None if it is a part of the same verb, or cannot begin."""
    parent = _current.get()
    try:
        given = signature.bind(*args, **kwargs).arguments
        name, (dataset, location) = title.format_map(given), place(given)
    except Exception:  # noqa: BLE001 - the call itself raises the error that names what is wrong
        return None
    if parent is not None and (parent.kind, parent.name, parent.dataset) == (kind, name, dataset):
        return None
    store = given.get("store")
    is_dry_run = (
        bool(given.get("dry_run") or given.get("is_dry_run"))
        or (store is not None and getattr(store, "is_dry_run", False))
        or (parent is not None and parent.is_dry_run)
    )
    return Call(
        kind=kind,
        name=name,
        dataset=dataset,
        location=location,
        arguments=given,
        parent=parent,
        is_dry_run=is_dry_run,
        began_at=dt.datetime.now(dt.UTC),
    )


@contextmanager
def _running(call: Call) -> Iterator[None]:
    if call.parent is None:
        _roots.add(call)
    token = _current.set(call)
    observers = _observers  # those that see the beginning see the end
    _tell(observers, "begin", call)
    began = time.perf_counter()
    try:
        yield
    except BaseException as exc:
        call.error = exc
        raise
    finally:
        call.duration_s = time.perf_counter() - began
        _tell(observers, "end", call)
        _current.reset(token)
        _roots.discard(call)


# Requests. Only the outermost store counts if one delegates to another, except that a dry run counts
# what it reads from the real store.


class _Depth(threading.local):
    """The state of a thread: whether it is inside a method of a store that counts."""

    is_inside = False


_depth = _Depth()


@contextmanager
def _inside(*, is_inside: bool = True) -> Iterator[None]:
    before, _depth.is_inside = _depth.is_inside, is_inside
    try:
        yield
    finally:
        _depth.is_inside = before


def _is_counted(store: Store) -> bool:
    return not (_depth.is_inside or store.is_dry_run)


def _note(request: SentRequest, sizes: dict[str, int] | None = None) -> None:
    call = _current.get()
    if call is None and len(_roots) == 1:
        # A thread of Arrow or of a pool, in a process that runs one call at a time.
        call = next(iter(_roots.copy()), None)
    _note_for(call, request, sizes)


def _note_for(call: Call | None, request: SentRequest, sizes: dict[str, int] | None = None) -> None:
    """Note requests of a call, and of those that it is part of."""
    with _counting:
        for one in () if call is None else call.and_outer():
            for counts in (one, one.of_workers) if request.is_of_worker else (one,):
                if request.count:
                    counts.requests[request.kind] += request.count
                counts.read_bytes += request.read_bytes
                counts.written_bytes += request.written_bytes
            one.of_workers.row_count += request.row_count
            one.data_sizes.update(sizes or {})
    _tell(_observers, "request", request, call)


def _size_of(data: Any) -> int:
    return memoryview(data).nbytes


def _written(key: str, size_bytes: int) -> None:
    request = SentRequest(kind="put", count=1, written_bytes=size_bytes)
    _note(request, {key: size_bytes} if is_data_key(key) else None)


def _reading(read_bytes: Callable[[Any], int]) -> Callable[[Any], Any]:
    """Return the wrapper of a method that sends one GET."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def get(self: Store, key: str, *args: Any, **kwargs: Any) -> Any:
            if not _is_counted(self):
                return method(self, key, *args, **kwargs)
            found = 0
            try:
                with _inside():
                    result = method(self, key, *args, **kwargs)
                found = read_bytes(result)
            finally:
                _note(SentRequest(kind="get", count=1, read_bytes=found))
            return result

        return get

    return wrap


def _get_range(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def get_range(self: Store, key: str, start: int, length: int) -> Any:
        if not _is_counted(self):
            return method(self, key, start, length)
        data = b""
        try:
            with _inside():
                data = method(self, key, start, length)
        finally:
            kind: RequestKind = "get" if length else "head"
            _note(SentRequest(kind=kind, count=1, read_bytes=len(data)))
        return data

    return get_range


def _sending(note: Callable[..., None]) -> Callable[[Any], Any]:
    """Return the wrapper of a method whose requests are known, and noted, before it sends them."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def sent(self: Store, *args: Any, **kwargs: Any) -> Any:
            if not _is_counted(self):
                return method(self, *args, **kwargs)
            note(*args, **kwargs)
            with _inside():
                return method(self, *args, **kwargs)

        return sent

    return wrap


def _note_head(*_given: Any, **_options: Any) -> None:
    _note(SentRequest(kind="head", count=1))


def _note_list(*_given: Any, **_options: Any) -> None:
    _note(SentRequest(kind="list", count=1))


def _note_opening(*_given: Any, size_bytes: int | None = None, **_options: Any) -> None:
    if size_bytes is None:
        _note_head()


def _note_whole(key: str, data: Any, **_options: Any) -> None:
    _written(key, _size_of(data))


def _note_adoption(path: Path, key: str) -> None:
    _written(key, path.stat().st_size)


def _note_deletion_if_match(*_given: Any, **_options: Any) -> None:
    _note(SentRequest(kind="get", count=1))
    _note(SentRequest(kind="delete", count=1))


def _put_stream(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def put_stream(self: Store, key: str, pieces: Iterable[Any], **kwargs: Any) -> None:
        if not _is_counted(self):
            method(self, key, pieces, **kwargs)
            return
        total = 0

        def counted() -> Iterator[Any]:
            nonlocal total
            source = iter(pieces)
            while True:
                with _inside(is_inside=False):  # what the pieces read is counted
                    try:
                        piece = next(source)
                    except StopIteration:
                        return
                total += _size_of(piece)
                yield piece

        try:
            with _inside():
                method(self, key, counted(), **kwargs)
        finally:
            _written(key, total)

    return put_stream


def _list(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def listing(self: Store, *args: Any, **kwargs: Any) -> Any:
        if not _is_counted(self):
            return method(self, *args, **kwargs)
        with _inside():
            entries = method(self, *args, **kwargs)
        return _by_page(iter(entries))

    return listing


def _by_page(entries: Iterator[Any]) -> Iterator[Any]:
    """Yield the entries of a listing; count a request for each page, also for an empty one."""
    _note(SentRequest(kind="list", count=1))
    number = 0
    while True:
        with _inside():
            try:
                entry = next(entries)
            except StopIteration:
                return
        if number and number % _PAGE == 0:
            _note(SentRequest(kind="list", count=1))
        number += 1
        yield entry


def _delete(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def delete(self: Store, keys: Iterable[str]) -> None:
        if not _is_counted(self) or isinstance(keys, str):
            method(self, keys)
            return
        unique = tuple(dict.fromkeys(keys))
        if unique:
            _note(SentRequest(kind="delete", count=-(-len(unique) // _PAGE)))
        with _inside():
            method(self, unique)

    return delete


_OF_STORES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "get": _reading(lambda stored: len(stored.data)),
    "get_if_changed": _reading(lambda stored: 0 if stored is None else len(stored.data)),
    "get_range": _get_range,
    "size": _sending(_note_head),
    "stat": _sending(_note_head),
    "open_input": _sending(_note_opening),
    "create": _sending(_note_whole),
    "replace": _sending(_note_whole),
    "put": _sending(_note_whole),
    "put_stream": _put_stream,
    "adopt": _sending(_note_adoption),
    "list": _list,
    "folders": _sending(_note_list),
    "delete": _delete,
    "delete_if_match": _sending(_note_deletion_if_match),
}
