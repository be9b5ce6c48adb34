"""Test, by real requests in a scratch directory, whether a store is safe for concurrent writers.

Services that accept conditions on puts do not all honour them. Some ignore them; some check first
and write then, so that both of two concurrent puts succeed. A single request does not show this,
so the puts of several writers are sent at the same moment, many times, and the stored object is
compared with the answer to each of them. Other behaviour that commits and reads rely on is tested
as well.
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
_STREAM_BYTES = 9 * 1024 * 1024  # too many for one request
_LISTED = 20
_BEFORE = b"-"  # the content before a race to replace
_MAX_CLOCK_DISTANCE = timedelta(minutes=1)
_START_TIMEOUT_S = 60.0
_UNKNOWN = "unknown"
_ANY_AGE = timedelta(days=-1)  # works with any clock of the store
_HEAD_SUFFIXES = (JSON_SUFFIX, MSGPACK_SUFFIX)
_KEPT = (
    "all conditions were honoured, also for names of heads; a trial cannot find a service that "
    "ignores them for other names or later"
)
_REMEDY = (
    "Let one process write at a time, or use another service, or a version of this one that "
    "honours If-Match and If-None-Match."
)


class CheckStatus(StrEnum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """A check of a store with its result.

    Attributes:
        name: Name of the check.
        status: `ok` if the store behaves as Lakebed needs; with a warning it is usable.
        value: The result in a word or a number.
        detail: The result in a sentence.
        is_of_writers: True if concurrent writers rely on the behaviour.
    """

    name: str
    status: CheckStatus
    value: str
    detail: str
    is_of_writers: bool = False

    @property
    def is_broken(self) -> bool:
        """True if the store has answered, and the answer was wrong."""
        return self.status is CheckStatus.FAILED and self.value != _UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTrial:
    """The results of all checks of a store.

    Attributes:
        uri: URI of the store.
        checks: The checks in the order in which they were made.
        is_complete: True if all checks could be made; the first that could not ends the trial.
    """

    uri: str
    checks: tuple[StoreCheck, ...]
    is_complete: bool

    @property
    def keeps_writers_apart(self) -> bool:
        """True if concurrent writers are safe, as far as a trial can find out."""
        of_writers = [check for check in self.checks if check.is_of_writers]
        return all(check.status is not CheckStatus.FAILED for check in of_writers)

    @property
    def verdict(self) -> StoreCheck:
        """The conclusion about concurrent writers, in the form of a check."""
        if self.keeps_writers_apart and self.is_complete:
            return _verdict(CheckStatus.OK, "yes", _KEPT)
        if self.is_complete:
            return _verdict(CheckStatus.FAILED, "no", _REMEDY)
        return _verdict(CheckStatus.FAILED, _UNKNOWN, "the trial of the store was not completed")


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
    """Test the behaviour that Lakebed relies on, in a temporary directory under the store's root.

    Other data is neither read nor written. The directory is removed, also after an interrupt; a
    killed process leaves it behind as `.lakebed-doctor-…`, which no listing of Lakebed shows.

    Args:
        url: URL of the store, as for `open_store`.
        storage_options: Options of the store, as for `open_store`.
        rounds: Number of rounds of each of the two races.
        writers: Number of writers in a race.

    Raises:
        LakebedError: The store cannot be opened. Later errors are reported as failed checks.

    Cost:
        About 2 * `rounds` * (`writers` + 2) small requests, in one thread for each writer, and
        uploads and downloads of 18 MiB in total. On a file system the same number of small files.
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
                    break  # a store that does not answer must not get a thousand requests
    if any(check.is_of_writers and check.is_broken for check in checks):
        with suppress(LakebedError):
            root.try_conditions()  # an earlier note may be wrong by now
    return StoreTrial(uri=root.uri, checks=tuple(checks), is_complete=is_complete)


@contextmanager
def _scratch(root: Store, storage_options: Mapping[str, str] | None) -> Iterator[Store]:
    """Open a store below the root, and remove it on exit."""
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
            # On HDFS, directories would remain: deleting a last object removes them up to the root.
            scratch.remove_leftovers(older_than=_ANY_AGE)
            root._delete([f"{name}/last"])
    except LakebedError as exc:
        _log.warning("trial may leave objects behind store=%s error=%s", scratch.uri, exc)


_Look = Callable[[Store], tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """A check to make.

    Attributes:
        name: Name of the check.
        look: Function that makes the check. It returns a value and a detail, or raises
            `_NotKeptError` or an error of the store.
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
    """The store does not behave as it should."""

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


# The checks call the private methods of a store: the public ones refuse to write to a store that
# is known to be broken, and the trial must report how it is broken.


def _look_at_create(store: Store, key: str = "create") -> tuple[str, str]:
    store._create(key, memoryview(b"first"))
    if _is_taken(lambda: store._create(key, memoryview(b"second"))):
        raise _NotKeptError("accepted a put with 'If-None-Match: *' for an object that exists")
    return "yes", "an object that exists is not overwritten"


def _look_at_replace(store: Store, key: str = "replace") -> tuple[str, str]:
    first = store._create(key, memoryview(b"first"))
    second = store._replace(key, memoryview(b"second"), if_match=first)
    if _is_taken(lambda: store._replace(key, memoryview(b"third"), if_match=first)):
        raise _NotKeptError("accepted a put whose If-Match has an earlier etag of the object")
    if first == second:
        raise _NotKeptError("gave two contents the same etag")
    return "yes", "an object that has changed is not overwritten"


def _look_at_replace_of_nothing(store: Store, key: str = "gone") -> tuple[str, str]:
    etag = store._create(key, memoryview(b"first"))
    store._delete([key])
    if _is_taken(lambda: store._replace(key, memoryview(b"second"), if_match=etag)):
        raise _NotKeptError("accepted a put with If-Match for an object that was deleted")
    return "yes", "an object that was deleted is not written again"


def _look_at_heads(root: Store, scratch: Store) -> tuple[str, str]:
    """Make these checks beside the heads of the repository, under a name that no dataset can have.

    A rule of the service, or a proxy, may treat names of some form differently. A directory and
    memory treat all names alike, and are tested in the scratch directory, which is removed.
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
                raise _NotKeptError(f"{exc.detail}, if its name ends with {suffix}") from None
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
    """The answer to a put."""

    TAKEN = "taken"
    REFUSED = "refused"
    NONE = "no answer"


def _race_to_create(store: Store, *, rounds: int, writers: int) -> tuple[str, str]:
    def put(number: int, data: memoryview) -> str:
        return store._create(_race_key("race/create", number), data)

    return _race(store, "race/create", put, rounds=rounds, writers=writers)


def _race_to_replace(store: Store, *, rounds: int, writers: int) -> tuple[str, str]:
    # A new object for each round: some services limit an object to one write per second.
    etags = [
        store._create(_race_key("race/replace", number), memoryview(_BEFORE))
        for number in range(rounds)
    ]

    def put(number: int, data: memoryview) -> str:
        return store._replace(_race_key("race/replace", number), data, if_match=etags[number])

    return _race(store, "race/replace", put, rounds=rounds, writers=writers)


def _race_key(name: str, number: int) -> str:
    """Return the key of a round; it has the form of a head, since commits race for heads."""
    return f"{name}-{number}{JSON_SUFFIX}"


def _race(
    store: Store, name: str, put: Callable[[int, memoryview], str], *, rounds: int, writers: int
) -> tuple[str, str]:
    """Let all writers put at the same moment, round by round, and check the answers."""
    problems: list[str] = []
    answers = Counter[_Answer]()
    with ThreadPoolExecutor(writers, thread_name_prefix="lakebed-trial") as pool:
        for number in range(rounds):
            in_round = _put_at_once(pool, partial(put, number), writers)
            answers.update(in_round)
            problem = _problem_of_round(in_round, _content(store, _race_key(name, number)))
            if problem:
                problems.append(f"round {number + 1}: {problem}")
    value = f"{rounds - len(problems)} of {rounds}"
    if problems:
        shown = "; ".join(problems[:3])
        raise _NotKeptError(f"{writers} puts at a time; {shown}", value=value)
    unknown = answers[_Answer.NONE]
    tail = f"; {unknown} puts had no answer" if unknown else ""
    return value, f"of {writers} puts at a time one was accepted{tail}"


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
        return [future.result() for future in puts]
    except BaseException:
        start.abort()  # after an interrupt, waiting writers must not wait for the others
        raise


def _content(store: Store, key: str) -> bytes | None:
    try:
        return store._get(key).data
    except ObjectNotFoundError:
        return None


def _problem_of_round(answers: Sequence[_Answer], stored: bytes | None) -> str:
    taken = [number for number, answer in enumerate(answers) if answer is _Answer.TAKEN]
    if len(taken) > 1:
        return f"{len(taken)} puts were accepted, {len(taken) - 1} of them lost"
    may_be_stored = taken or [n for n, answer in enumerate(answers) if answer is _Answer.NONE]
    if not may_be_stored:
        return "every put was refused"
    if stored in {str(number).encode() for number in may_be_stored}:
        return ""
    if taken:
        return f"put {taken[0]} was accepted, but {_shown(stored)} is stored"
    return "" if stored in {None, _BEFORE} else f"{_shown(stored)} was refused, but is stored"


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
    return "yes", f"{_LISTED} writes and a deletion were visible at once"


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
    return "yes", f"{_LISTED} puts and their deletion were visible at once, in key order"


def _look_at_ranges(store: Store) -> tuple[str, str]:
    content = bytes(range(256)) * 4
    store._put("ranges", memoryview(content))
    for start, length in [(0, 1), (100, 300), (1000, 24), (1000, 1000), (1024, 5), (5000, 5)]:
        data = store.get_range("ranges", start, length)
        if data != content[start : start + length]:
            raise _NotKeptError(f"{length} bytes from {start} of 1,024 differ from those written")
    return "yes", "ranges of an object are as written, also at its end"


def _look_at_stream(store: Store) -> tuple[str, str]:
    piece = secrets.token_bytes(1024)
    content = piece * (_STREAM_BYTES // len(piece))
    store.put_stream("stream", [content[:100], content[100:]])
    if hashlib.sha256(store._get("stream").data).digest() != hashlib.sha256(content).digest():
        raise _NotKeptError("an object that was uploaded in parts was read back differently")
    return (
        "yes",
        f"{_STREAM_BYTES // 1024**2} MiB were uploaded, in parts if the store supports them",
    )


def _look_at_clock(store: Store) -> tuple[str, str]:
    begin = datetime.now(UTC)
    store._put("clock", memoryview(b"x"))
    end = datetime.now(UTC)
    stored_at = store.stat("clock").modified_at
    # Services return whole seconds.
    early, late = begin - stored_at - timedelta(seconds=1), stored_at - end
    distance = max(early, late, timedelta(0))
    value = f"{distance.total_seconds():.0f} s"
    direction = "behind" if early > late else "ahead of"
    if distance > _MAX_CLOCK_DISTANCE:
        raise _NotKeptError(
            f"the store's clock is {direction} this machine's; signatures and ages may be wrong",
            value=value,
            status=CheckStatus.WARNING,
        )
    return value, "between the store's clock and this machine's"
