"""Whether a store may be written by several: tried by real requests, in a place of its own.

Services that take conditions of puts are not all true to them. Some never look; some look first and
write then, so that of two at once both win. No answer to a single request tells, so the puts of
several writers are sent at the same moment, many times, and what is stored afterwards is compared
with what each of them was told. The rest of what a commit and a read rely on is tried as well.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial

from lakebed.errors import (
    ConflictError,
    LakebedError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
)
from lakebed.model.layout import JSON_SUFFIX, MSGPACK_SUFFIX
from lakebed.store.base import Store
from lakebed.store.locate import open_store
from lakebed.store.memory import MemoryStore

_log = logging.getLogger(__name__)

ROUNDS = 50
WRITERS = 8

# Begins with a dot, so that no listing shows it and no dataset can have the name.
_SCRATCH = ".lakebed-doctor-"
_STREAM_BYTES = 9 * 1024 * 1024  # more than what goes in one request
_LISTED = 20
_BEFORE = b"-"  # a race to replace
_MAX_CLOCK_DISTANCE = timedelta(minutes=1)
_START_TIMEOUT_S = 60.0
_UNKNOWN = "unknown"
_ANY_AGE = timedelta(days=-1)  # whatever the clock of the store says
_HEAD_SUFFIXES = (JSON_SUFFIX, MSGPACK_SUFFIX)
_KEPT = (
    "all that was tried was kept, under names of heads too; a service that does otherwise under "
    "other names or later is not found by a trial"
)
_REMEDY = (
    "Let one process write at a time, or use another service, or a version of this one that keeps "
    "If-Match and If-None-Match."
)


class CheckStatus(StrEnum):
    """How a check has ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """What was tried, and what came of it.

    Attributes:
        name: What was tried.
        status: Whether the store does what Lakebed needs; a warning is no reason not to use it.
        value: The result in a word or a number.
        detail: What happened.
        is_of_writers: Whether several writers rely on it.
    """

    name: str
    status: CheckStatus
    value: str
    detail: str
    is_of_writers: bool = False

    @property
    def is_broken(self) -> bool:
        """Whether the store has answered, and wrongly."""
        return self.status is CheckStatus.FAILED and self.value != _UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTrial:
    """What a store does.

    Attributes:
        uri: Of the store.
        checks: In the order in which they were made.
        is_complete: Whether all could be made; no other was begun after one that could not.
    """

    uri: str
    checks: tuple[StoreCheck, ...]
    is_complete: bool

    @property
    def keeps_writers_apart(self) -> bool:
        """Whether several may write, as far as a trial can tell."""
        return all(one.status is not CheckStatus.FAILED for one in self.checks if one.is_of_writers)

    @property
    def verdict(self) -> StoreCheck:
        """Whether several may write, as one more line."""
        if self.keeps_writers_apart and self.is_complete:
            return _verdict(CheckStatus.OK, "yes", _KEPT)
        if self.is_complete:
            return _verdict(CheckStatus.FAILED, "no", _REMEDY)
        return _verdict(CheckStatus.FAILED, _UNKNOWN, "the store could not be tried to the end")


def _verdict(status: CheckStatus, value: str, detail: str) -> StoreCheck:
    return StoreCheck(
        name="several writers", status=status, value=value, detail=detail, is_of_writers=True
    )


def try_store(
    url: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    rounds: int = ROUNDS,
    writers: int = WRITERS,
) -> StoreTrial:
    """Try what Lakebed relies on, in a place under the root of the store that is removed again.

    Other data is neither read nor written. An interrupt removes the place, too; a process that is
    killed leaves it behind, as `.lakebed-doctor-…`, where no listing of Lakebed shows it.

    Args:
        url: Of the store, as for `open_store`.
        storage_options: Same.
        rounds: Of each of the two races.
        writers: Who take part in a race.

    Raises:
        LakebedError: The store cannot be opened. What fails later is a check.

    Cost:
        Some 2 * `rounds` * (`writers` + 2) small requests, in as many threads as there are writers,
        and 18 MiB there and back. On a file system the same number of small files.
    """
    root = open_store(url, storage_options=storage_options)
    checks: list[StoreCheck] = []
    is_complete = True
    with _scratch(root, storage_options) as scratch:
        for check in _checks(root, rounds, writers):
            try:
                checks.append(check.run(scratch))
            except LakebedError as error:
                is_unknown = isinstance(error, StorageError)
                checks.append(check.failed(str(error), _UNKNOWN if is_unknown else "no"))
                if is_unknown:
                    is_complete = False
                    break  # what does not answer once is not to be asked a thousand times
    if any(check.is_of_writers and check.is_broken for check in checks):
        with suppress(LakebedError):
            root.try_conditions()  # what was noted before may be wrong by now
    return StoreTrial(uri=root.uri, checks=tuple(checks), is_complete=is_complete)


@contextmanager
def _scratch(root: Store, storage_options: Mapping[str, str] | None) -> Iterator[Store]:
    """Open a store below the root, and leave nothing of it."""
    name = f"{_SCRATCH}{secrets.token_hex(8)}"
    if isinstance(root, MemoryStore):
        name = name.removeprefix(".")
    scratch = open_store(f"{root.uri}/{name}", storage_options=storage_options)
    try:
        yield scratch
    finally:
        _remove(root, name, scratch)


def _remove(root: Store, name: str, scratch: Store) -> None:
    path = scratch.local_path("x")
    try:
        if path is not None:
            shutil.rmtree(path.parent, ignore_errors=True)
        else:
            scratch.delete(info.key for info in scratch.list())
            # Of HDFS directories would stay: with a last object they go, up to the root.
            scratch.remove_leftovers(older_than=_ANY_AGE)
            root._delete([f"{name}/last"])
    except LakebedError as exc:
        _log.warning("trial may leave objects behind store=%s error=%s", scratch.uri, exc)


_Look = Callable[[Store], tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A check that can be made.

    Attributes:
        name: Of the check.
        look: Tries; gives a value and a detail, or raises `_NotKeptError`, or what the store raises.
        is_of_writers: As in `StoreCheck`.
    """

    name: str
    look: _Look
    is_of_writers: bool = False

    def run(self, scratch: Store) -> StoreCheck:
        try:
            value, detail = self.look(scratch)
        except _NotKeptError as exc:
            return self.failed(exc.detail, exc.value, exc.status)
        return self._with(CheckStatus.OK, value, detail)

    def failed(
        self, detail: str, value: str = "no", status: CheckStatus = CheckStatus.FAILED
    ) -> StoreCheck:
        return self._with(status, value, detail)

    def _with(self, status: CheckStatus, value: str, detail: str) -> StoreCheck:
        return StoreCheck(
            name=self.name,
            status=status,
            value=value,
            detail=detail,
            is_of_writers=self.is_of_writers,
        )


class _NotKeptError(Exception):
    """The store does not do what it should."""

    def __init__(
        self, detail: str, *, value: str = "no", status: CheckStatus = CheckStatus.FAILED
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.value = value
        self.status = status


def _checks(root: Store, rounds: int, writers: int) -> Iterator[_Check]:
    of_writers: dict[str, _Look] = {
        "create": _look_at_create,
        "replace": _look_at_replace,
        "replace what is gone": _look_at_replace_of_nothing,
        "heads": partial(_look_at_heads, root),
        "race to create": partial(_race_to_create, rounds=rounds, writers=writers),
        "race to replace": partial(_race_to_replace, rounds=rounds, writers=writers),
        "read after write": _look_at_reads,
        "list after write": _look_at_lists,
    }
    for name, look in of_writers.items():
        yield _Check(name=name, look=look, is_of_writers=True)
    others: dict[str, _Look] = {
        "ranges": _look_at_ranges,
        "multipart": _look_at_stream,
        "clock": _look_at_clock,
    }
    for name, look in others.items():
        yield _Check(name=name, look=look)


# What follows calls what a store implements, not what it offers: that would refuse to write to a
# store that is known to be broken, and how it is broken is to be told.


def _look_at_create(store: Store, key: str = "create") -> tuple[str, str]:
    store._create(key, memoryview(b"first"))
    if _is_taken(lambda: store._create(key, memoryview(b"second"))):
        raise _NotKeptError("took a put with 'If-None-Match: *' for an object that exists")
    return "yes", "an object that exists is not written over"


def _look_at_replace(store: Store, key: str = "replace") -> tuple[str, str]:
    first = store._create(key, memoryview(b"first"))
    second = store._replace(key, memoryview(b"second"), if_match=first)
    if _is_taken(lambda: store._replace(key, memoryview(b"third"), if_match=first)):
        raise _NotKeptError("took a put whose If-Match has an etag that the object had before")
    if first == second:
        raise _NotKeptError("gave two contents the same etag")
    return "yes", "an object that has changed is not written over"


def _look_at_replace_of_nothing(store: Store, key: str = "gone") -> tuple[str, str]:
    etag = store._create(key, memoryview(b"first"))
    store._delete([key])
    if _is_taken(lambda: store._replace(key, memoryview(b"second"), if_match=etag)):
        raise _NotKeptError("took a put with If-Match for an object that was deleted")
    return "yes", "an object that was deleted is not written again"


def _look_at_heads(root: Store, scratch: Store) -> tuple[str, str]:
    """Try the same beside the heads of the repository, under a name that no dataset can have.

    A rule of the service, or a proxy, may treat names of some form in another way. A directory and
    the memory treat all names alike, and are tried where nothing can stay behind.
    """
    store, stem = root, f"{_SCRATCH}{secrets.token_hex(8)}"
    if isinstance(root, MemoryStore) or scratch.local_path("x") is not None:
        store, stem = scratch, "head"
    for suffix in _HEAD_SUFFIXES:
        key = f"{stem}{suffix}"
        for look in (_look_at_create, _look_at_replace, _look_at_replace_of_nothing):
            try:
                look(store, key)
            except _NotKeptError as exc:
                raise _NotKeptError(f"{exc.detail}, where its name ends with {suffix}") from None
            finally:
                store._delete([key])
    return "yes", f"the same for names that end with {' or '.join(_HEAD_SUFFIXES)}"


def _is_taken(put: Callable[[], str]) -> bool:
    try:
        put()
    except (ObjectExistsError, ConflictError, ObjectNotFoundError):
        return False
    return True


class _Answer(StrEnum):
    """What a writer was told of its put."""

    TAKEN = "taken"
    REFUSED = "refused"
    NONE = "no answer"


def _race_to_create(store: Store, *, rounds: int, writers: int) -> tuple[str, str]:
    def put(number: int, data: memoryview) -> str:
        return store._create(_race_key("race/create", number), data)

    return _race(store, "race/create", put, rounds=rounds, writers=writers)


def _race_to_replace(store: Store, *, rounds: int, writers: int) -> tuple[str, str]:
    # An object a round: some services take one write a second of an object, and no more.
    etags = [
        store._create(_race_key("race/replace", number), memoryview(_BEFORE))
        for number in range(rounds)
    ]

    def put(number: int, data: memoryview) -> str:
        return store._replace(_race_key("race/replace", number), data, if_match=etags[number])

    return _race(store, "race/replace", put, rounds=rounds, writers=writers)


def _race_key(name: str, number: int) -> str:
    """Return what a round races for, under the name of a head: that is what commits race for."""
    return f"{name}-{number}{JSON_SUFFIX}"


def _race(
    store: Store, name: str, put: Callable[[int, memoryview], str], *, rounds: int, writers: int
) -> tuple[str, str]:
    """Let all writers put at the same moment, round by round, and tell what they were told."""
    problems: list[str] = []
    answers = Counter[_Answer]()
    with ThreadPoolExecutor(writers, thread_name_prefix="lakebed-trial") as pool:
        for number in range(rounds):
            told = _put_at_once(pool, partial(put, number), writers)
            answers.update(told)
            problem = _problem_of_round(told, _content(store, _race_key(name, number)))
            if problem:
                problems.append(f"round {number + 1}: {problem}")
    value = f"{rounds - len(problems)} of {rounds}"
    if problems:
        shown = "; ".join(problems[:3])
        raise _NotKeptError(f"{writers} puts at a time; {shown}", value=value)
    unknown = answers[_Answer.NONE]
    tail = f"; {unknown} puts had no answer" if unknown else ""
    return value, f"of {writers} puts at a time one was taken{tail}"


def _put_at_once(
    pool: ThreadPoolExecutor, put: Callable[[memoryview], str], writers: int
) -> list[_Answer]:
    start = threading.Barrier(writers)

    def run(number: int) -> _Answer:
        start.wait(_START_TIMEOUT_S)
        try:
            put(memoryview(str(number).encode()))
        except (ObjectExistsError, ConflictError, ObjectNotFoundError):
            return _Answer.REFUSED
        except StorageError as exc:
            if not exc.retryable:
                raise
            return _Answer.NONE
        return _Answer.TAKEN

    try:
        puts = [pool.submit(run, number) for number in range(writers)]
        return [one.result() for one in puts]
    except BaseException:
        start.abort()  # an interrupt: who has not begun is not to wait for the others
        raise


def _content(store: Store, key: str) -> bytes | None:
    try:
        return store._get(key).data
    except ObjectNotFoundError:
        return None


def _problem_of_round(told: Sequence[_Answer], stored: bytes | None) -> str:
    taken = [number for number, answer in enumerate(told) if answer is _Answer.TAKEN]
    if len(taken) > 1:
        return f"{len(taken)} puts were taken, and {len(taken) - 1} of them are lost"
    may_be_stored = taken or [n for n, answer in enumerate(told) if answer is _Answer.NONE]
    if not may_be_stored:
        return "every put was refused"
    if stored in {str(number).encode() for number in may_be_stored}:
        return ""
    if taken:
        return f"put {taken[0]} was taken, and {_shown(stored)} is stored"
    return "" if stored in {None, _BEFORE} else f"{_shown(stored)} was refused, and is stored"


def _shown(stored: bytes | None) -> str:
    return "nothing" if stored is None else f"put {stored.decode('ascii', 'replace')}"


def _look_at_reads(store: Store) -> tuple[str, str]:
    etag = store._create("read", memoryview(b"0"))
    for number in range(1, _LISTED):
        etag = store._replace("read", memoryview(str(number).encode()), if_match=etag)
        if store._get("read").data != str(number).encode():
            raise _NotKeptError(f"after write {number} an older content was read")
    store._delete(["read"])
    if _content(store, "read") is not None:
        raise _NotKeptError("an object that was deleted could still be read")
    return "yes", f"{_LISTED} writes and a deletion were seen at once"


def _look_at_lists(store: Store) -> tuple[str, str]:
    keys = [f"list/{number:02}" for number in range(_LISTED)]
    for number, key in enumerate(keys, start=1):
        store._put(key, memoryview(b"x"))
        listed = [info.key for info in store.list("list")]
        if listed != keys[:number]:
            raise _NotKeptError(f"after put {number} the listing had {len(listed)} objects")
    store._delete(keys)
    if any(True for _ in store.list("list")):
        raise _NotKeptError("objects that were deleted were still listed")
    return "yes", f"{_LISTED} puts and their deletion were seen at once, in key order"


def _look_at_ranges(store: Store) -> tuple[str, str]:
    content = bytes(range(256)) * 4
    store._put("ranges", memoryview(content))
    for start, length in [(0, 1), (100, 300), (1000, 24), (1000, 1000), (1024, 5), (5000, 5)]:
        data = store.get_range("ranges", start, length)
        if data != content[start : start + length]:
            raise _NotKeptError(f"{length} bytes from {start} of 1,024 were not what was written")
    return "yes", "parts of an object are what was written, also at its end"


def _look_at_stream(store: Store) -> tuple[str, str]:
    piece = secrets.token_bytes(1024)
    content = piece * (_STREAM_BYTES // len(piece))
    store.put_stream("stream", [content[:100], content[100:]])
    if hashlib.sha256(store._get("stream").data).digest() != hashlib.sha256(content).digest():
        raise _NotKeptError("what was uploaded in parts was not what was read")
    return (
        "yes",
        f"{_STREAM_BYTES // 1024**2} MiB were uploaded in parts, where the store has parts",
    )


def _look_at_clock(store: Store) -> tuple[str, str]:
    begin = datetime.now(UTC)
    store._put("clock", memoryview(b"x"))
    end = datetime.now(UTC)
    stored_at = store.stat("clock").modified_at
    # Services tell full seconds.
    early, late = begin - stored_at - timedelta(seconds=1), stored_at - end
    distance = max(early, late, timedelta(0))
    value = f"{distance.total_seconds():.0f} s"
    direction = "behind" if early > late else "ahead of"
    if distance > _MAX_CLOCK_DISTANCE:
        raise _NotKeptError(
            f"the store's clock is {direction} this machine's; signatures and ages suffer",
            value=value,
            status=CheckStatus.WARNING,
        )
    return value, "between the store's clock and this machine's"
