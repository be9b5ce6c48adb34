"""A client of WebHDFS: files over HTTP, with requests to the NameNode and content to DataNodes.

Each request may be sent again: it changes nothing the second time, or names a source that no other
writer has. Requests without an answer are distinguished from requests that were not sent, so that
the outcome of a move is known where possible.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

from lakebed.errors import (
    AccessDeniedError,
    InvalidNameError,
    LakebedError,
    MissingDependencyError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    redacted,
)
from lakebed.store.hdfs_options import HdfsSettings
from lakebed.store.numbered import Moved, Tree, TreeEntry

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

_log = logging.getLogger(__name__)

# HDFS rejects a colon in a name. This character replaces it, as WSL and Cygwin do on Windows disks.
COLON = "\uf03a"

_T = TypeVar("_T")

_API = "/webhdfs/v1"
_CONNECTIONS = 32  # number of kept connections to one host
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 5.0
_HTTP_OK = range(200, 400)  # a NameNode that does not know noredirect answers with a redirect
_HTTP_REDIRECT = 300
_HTTP_UNAUTHORIZED = 401
_HTTP_THROTTLED = frozenset({429, 503})
_HTTP_SERVER_ERROR = 500
_OUTAGE_HINT = (
    "Check that the NameNode and the DataNodes are running, and try again. The storage option "
    "retry_timeout_s sets for how long requests are repeated."
)
_TOKEN_HINT = (
    "The cluster needs authentication. Get a delegation token, as by `curl --negotiate -u : "
    "'http://NAMENODE:9870/webhdfs/v1/?op=GETDELEGATIONTOKEN'` after kinit, and give its "
    "urlString as the storage option delegation_token."
)


class WebHdfs(Tree):
    """A directory of HDFS as a tree. Safe for threads, and after a fork."""

    def __init__(self, settings: HdfsSettings) -> None:
        """Prepare the client; nothing is sent yet.

        Raises:
            MissingDependencyError: urllib3 is not installed.
        """
        try:
            import urllib3
        except ImportError as exc:
            raise MissingDependencyError.for_extra("urllib3", "hdfs", settings.uri) from exc
        self._urllib3 = urllib3
        self._settings = settings
        self._secrets = (settings.token,) if settings.token else ()
        if self._secrets:
            logging.getLogger("urllib3.connectionpool").addFilter(_hide_tokens)
        self._active = 0  # index of the address that answered last
        self._has_answered = False
        self._pool: PoolManager | None = None
        self._pool_owner = 0
        self._lock = threading.Lock()

    # Methods of a tree

    def find(self, path: str) -> TreeEntry | None:
        """Return the entry of a file or directory; None if there is none."""
        try:
            answer = self._ask("GET", "GETFILESTATUS", path)
        except ObjectNotFoundError:
            return None
        return answer.parsed(lambda document: _entry(document["FileStatus"], path))

    def entries(self, path: str) -> list[TreeEntry]:
        """Return the entries of a directory, in any order; none if there is no such directory."""
        entries: list[TreeEntry] = []
        after: dict[str, str] = {}
        while True:
            try:
                answer = self._ask("GET", "LISTSTATUS_BATCH", path, **after)
            except ObjectNotFoundError:
                return entries
            page, is_last = answer.parsed(
                lambda document: _page(document["DirectoryListing"], path)
            )
            if entries and page and entries[-1].name == page[-1].name:
                raise StorageError(
                    f"The service repeats the same page in the listing of {self._where(path)!r}."
                )
            entries += page
            if not page or is_last:
                return entries
            # Hadoop's documentation has the first spelling, and Hadoop 3.5 supports the second.
            last = _spelled(page[-1].name)
            after = {"startAfter": last, "startafter": last}

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Read from a file; see `Tree`."""
        part = (
            {"offset": str(start)}
            if length is None
            else {"offset": str(start), "length": str(length)}
        )
        _, answer = self._at_datanode("GET", "OPEN", path, part)
        return answer.content_of(length)

    def write(self, path: str, pieces: Iterable[memoryview]) -> None:
        """Write a file of a new name; see `Tree`."""
        body = _Body(pieces)
        try:
            self._at_datanode("PUT", "CREATE", path, {"overwrite": "false"}, body=body)
        except _GoneError as exc:
            raise _bad_name(self._where(path), "a part of it is a file", was_sent=False) from exc
        if body.error is not None:
            raise body.error

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above, unless it is there."""
        try:
            self._ask("PUT", "MKDIRS", path)
        except _GoneError as exc:
            raise _bad_name(self._where(path), "a part of it is a file", was_sent=False) from exc

    def move(self, source: str, target: str) -> Moved:
        """Move a file or a directory to a name that is free."""
        return self._rename(source, target, "NONE")

    def move_over(self, source: str, target: str) -> Moved:
        """Move a file to a name, in the place of the file that has it, if one has."""
        return self._rename(source, target, "OVERWRITE")

    def _rename(self, source: str, target: str, option: str) -> Moved:
        destination = self._path(target)
        try:
            # Without the option it is another call, which moves into an existing directory.
            answer = self._ask(
                "PUT", "RENAME", source, destination=destination, renameoptions=option
            )
        except _TakenError:
            return Moved.TAKEN
        except _GoneError as exc:
            return Moved.MAYBE if exc.was_sent_before else Moved.MISSING
        if answer.content and not answer.parsed(lambda document: document["boolean"]):
            raise StorageError(
                f"The service of {self._settings.uri} cannot move {source!r} safely.",
                hint="Connect to the NameNode itself: gateways such as HttpFS ignore "
                "renameoptions.",
            )
        return Moved.DONE

    def remove(self, path: str, *, recursive: bool = False) -> bool:
        """Remove a file or directory; see `Tree`."""
        try:
            answer = self._ask("DELETE", "DELETE", path, recursive=str(recursive).lower())
        except (_TakenError, ObjectNotFoundError):
            return False
        return answer.parsed(lambda document: bool(document["boolean"]))

    # Requests

    def _path(self, path: str) -> str:
        parts = (self._settings.directory, _spelled(path))
        return "/" + "/".join(part for part in parts if part)

    def _where(self, path: str) -> str:
        return f"{self._settings.uri}/{path}"

    def _ask(self, method: str, operation: str, path: str, **params: str) -> _Answer:
        """Send a request to the NameNodes, the active one first, until one answers.

        Raises:
            ObjectNotFoundError: There is no such file; the error records whether the request was
                sent before.
            StorageError: The name is taken or the directory is not empty (`_TakenError`), no
                NameNode answers, or the answer is another error.
        """
        query = "&".join(
            f"{name}={quote(value, safe='')}"
            for name, value in {"op": operation, **self._identity(), **params}.items()
        )
        target = f"{quote(_API + self._path(path), safe='/')}?{query}"
        was_sent = False
        error: LakebedError | None = None
        for address in self._turns():
            if error is not None:
                _log.warning(
                    "webhdfs retries operation=%s path=%s error=%s", operation, path, error
                )
            try:
                answer = self._send(method, address + target)
            except _NotReachedError as exc:
                error = exc
            except _UnansweredError as exc:
                error, was_sent = exc, True
            else:
                refusal = answer.refusal(self._where(path), self._secrets, was_sent=was_sent)
                if isinstance(refusal, _NotWebHdfsError) and self._has_answered:
                    # A NameNode that stops or starts: its server runs a moment longer than it.
                    refusal = _UnansweredError(refusal.message, retryable=True)
                self._note_answer(address)
                if refusal is None:
                    return answer
                if not isinstance(refusal, _NotNowError | _UnansweredError):
                    is_outcome = isinstance(refusal, _TakenError | ObjectNotFoundError)
                    if was_sent and not is_outcome and method != "GET":
                        # An earlier request may have succeeded, as before a token has expired.
                        raise StorageError(refusal.message, hint=refusal.hint, retryable=True)
                    raise refusal
                error, was_sent = refusal, was_sent or isinstance(refusal, _UnansweredError)
        assert error is not None  # there is at least one turn
        raise self._final(error, path)

    def _identity(self) -> dict[str, str]:
        if self._settings.token:
            return {"delegation": self._settings.token}
        return {"user.name": self._settings.user or ""}

    def _turns(self) -> Iterator[str]:
        """Yield the next address to use, and wait between the rounds."""
        deadline = time.monotonic() + self._settings.retry_timeout_s
        addresses = self._settings.addresses
        wait_s = _FIRST_WAIT_S
        for attempt in range(self._settings.max_retries + 1):
            first = self._active
            for turn in range(len(addresses)):
                yield addresses[(first + turn) % len(addresses)]
            # If no address has ever answered, the address is wrong, and waiting does not help.
            is_late = time.monotonic() + wait_s > deadline
            if not self._has_answered or is_late or attempt == self._settings.max_retries:
                return
            time.sleep(random.uniform(wait_s / 2, wait_s))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _note_answer(self, address: str) -> None:
        self._active = self._settings.addresses.index(address)
        self._has_answered = True

    def _final(self, error: LakebedError, path: str) -> LakebedError:
        if not isinstance(error, _NotReachedError) or self._has_answered:
            return _given_up(error)
        tried = ", ".join(self._settings.addresses)
        return StorageError(
            f"No NameNode answers at {tried}, for {self._where(path)!r}: {error.message}",
            hint="Check the host and the port: WebHDFS uses the NameNode's HTTP port, 9870 unless "
            "configured; for hdfs:// set it by the storage option http_address=HOST:PORT.",
        )

    def _at_datanode(
        self,
        method: str,
        operation: str,
        path: str,
        params: Mapping[str, str],
        *,
        body: _Body | None = None,
    ) -> tuple[str, _Answer]:
        """Get a DataNode from the NameNode, and send the request to the DataNode."""
        excluded: list[str] = []
        for attempt in range(self._settings.max_retries + 1):
            avoid = {"excludedatanodes": ",".join(excluded)} if excluded else {}
            location = self._ask(
                method, operation, path, noredirect="true", **params, **avoid
            ).location
            is_last = attempt == self._settings.max_retries
            host = urlsplit(location).hostname or ""
            try:
                answer = self._send(method, location, body=body)
            except _NotReachedError as exc:
                if is_last or host in excluded:
                    raise self._unreachable_datanode(location, path, exc) from exc
                excluded.append(host)
                continue
            except _UnansweredError as exc:
                if is_last or body is not None:
                    raise _given_up(exc) from exc
                continue
            refusal = answer.refusal(self._where(path), self._secrets, was_sent=False)
            if refusal is None:
                answer.check_is_no_redirect()
                return location, answer
            if isinstance(refusal, _NotNowError | _UnansweredError):
                if not is_last and body is None:
                    continue
                raise _given_up(refusal)
            raise refusal
        raise AssertionError  # the last attempt returns or raises

    def _unreachable_datanode(
        self, location: str, path: str, exc: _NotReachedError
    ) -> StorageError:
        parts = urlsplit(location)
        return StorageError(
            f"The NameNode redirects to the DataNode {parts.hostname}:{parts.port} for "
            f"{self._where(path)!r}, which cannot be reached from here: {exc.message}",
            hint="This machine must be able to resolve the DataNodes' names and to reach their "
            "HTTP ports (9864 unless configured).",
            retryable=True,
        )

    def _send(self, method: str, url: str, *, body: _Body | None = None) -> _Answer:
        """Send one request, once.

        Raises:
            StorageError: Nothing was sent (`_NotReachedError`), or there is no complete answer
                (`_UnansweredError`).
        """
        exceptions = self._urllib3.exceptions
        parts = urlsplit(url)
        where = f"{parts.hostname}:{parts.port}"
        try:
            response = self._connections().request(
                method, url, body=None if body is None else body.content, redirect=False
            )
        except (
            exceptions.NewConnectionError,
            exceptions.ConnectTimeoutError,
            exceptions.LocationValueError,
            exceptions.SSLError,
        ) as exc:
            raise _NotReachedError(f"{where} cannot be reached: {self._reason(exc)}.") from exc
        except (exceptions.HTTPError, OSError) as exc:
            raise _UnansweredError(
                f"{where} did not answer: {self._reason(exc)}.", retryable=True
            ) from exc
        return _Answer(where, response)

    def _reason(self, exc: BaseException) -> str:
        text = redacted(str(exc), self._secrets)
        return text.partition(": ")[2] or text or type(exc).__name__

    def _connections(self) -> PoolManager:
        # A forked process must not read the answers to its parent on the same connection.
        if self._pool is None or self._pool_owner != os.getpid():
            with self._lock:
                self._pool = self._urllib3.PoolManager(
                    num_pools=_CONNECTIONS,
                    maxsize=_CONNECTIONS,
                    retries=False,
                    timeout=self._urllib3.Timeout(
                        connect=self._settings.connect_timeout_s, read=self._settings.read_timeout_s
                    ),
                )
                self._pool_owner = os.getpid()
        return self._pool


class _Body:
    """The body of a request that writes a file.

    Attributes:
        content: Bytes, or an iterator of them, for the HTTP client.
        error: Error of the source. The request then ends normally, so that the DataNode closes
            the file before the caller removes it.
    """

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self.error: Exception | None = None
        is_one = isinstance(pieces, Sequence) and len(pieces) == 1
        self.content: Any = (
            pieces[0] if is_one and isinstance(pieces, Sequence) else self._each(pieces)
        )

    def _each(self, pieces: Iterable[memoryview]) -> Iterator[memoryview]:
        try:
            yield from pieces
        except Exception as exc:  # noqa: BLE001 - raised again by `WebHdfs.write`
            self.error = exc


class _NotReachedError(StorageError):
    """The request was not sent."""


class _UnansweredError(StorageError):
    """The request was sent, and may have succeeded."""


class _NotNowError(StorageError):
    """The request was refused temporarily, or by a NameNode that is not the active one."""


class _NotWebHdfsError(StorageError):
    """The answer is not one of WebHDFS."""


class _TakenError(StorageError):
    """The name is taken, or the directory is not empty."""


class _GoneError(ObjectNotFoundError):
    """There is no such file or directory.

    Attributes:
        was_sent_before: True if the same request was sent before, without an answer.
    """

    was_sent_before = False


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of a node, whose name goes into errors."""

    node: str
    response: BaseHTTPResponse

    @property
    def content(self) -> bytes:
        return self.response.data

    def parsed(self, take: Callable[[Any], _T]) -> _T:
        """Return the part of the JSON document that a function takes out."""
        try:
            return take(json.loads(self.content))
        except (
            AttributeError,
            LookupError,
            OverflowError,
            RecursionError,
            TypeError,
            ValueError,
        ) as exc:
            raise self._not_webhdfs() from exc

    @property
    def location(self) -> str:
        """The URL that a NameNode redirects to."""
        header = self.response.headers.get("Location")
        location = header or self.parsed(lambda document: document["Location"])
        if not isinstance(location, str) or not _leads_to_a_host(location):
            raise self._not_webhdfs()
        return location

    def check_is_no_redirect(self) -> None:
        """Reject a redirect, which a DataNode never sends, but a gateway with a login does."""
        if self.response.status >= _HTTP_REDIRECT:
            raise self._not_webhdfs()

    def content_of(self, length: int | None) -> bytes:
        """Return the content; one longer than the requested length is rejected."""
        if length is not None and len(self.content) > length:
            raise self._not_webhdfs()
        return self.content

    def _not_webhdfs(self) -> StorageError:
        return _NotWebHdfsError(
            f"{self.node} answers, but not as WebHDFS does.",
            hint="Give the NameNode's HTTP port (9870 unless configured), not its RPC port "
            "(8020); dfs.webhdfs.enabled must not be false.",
        )

    def refusal(self, where: str, secrets: Sequence[str], *, was_sent: bool) -> LakebedError | None:
        """Return the error in the answer, or None."""
        status = self.response.status
        if status in _HTTP_OK:
            return None
        kind, message = self._remote_exception()
        message = redacted(message, secrets)
        for names, make in _REFUSALS.items():
            if kind in names:
                return make(where, message, was_sent)
        if "is not a directory" in message or "Parent path is not a directory" in message:
            return _gone(where, message, was_sent)
        if "Failed to find datanode" in message:
            return _not_now(where, message, was_sent)  # none has reported since the NameNode began
        if "must both be directories" in message:
            return _TakenError(message)
        if status == _HTTP_UNAUTHORIZED or kind in _DENIALS:
            hint = (
                _TOKEN_HINT
                if status == _HTTP_UNAUTHORIZED or kind in _UNKNOWN_USER
                else "Check the storage option user, and the owner and mode of the directory."
            )
            return AccessDeniedError(f"Access to {where!r} was denied: {message}", hint=hint)
        if not kind and status not in _HTTP_THROTTLED and status < _HTTP_SERVER_ERROR:
            return self._not_webhdfs()
        text = f"{self.node} refused the request for {where!r}: {kind} {message}".strip()
        if status in _HTTP_THROTTLED:
            return _NotNowError(text, retryable=True)
        if status >= _HTTP_SERVER_ERROR:
            return _UnansweredError(text, retryable=True)
        return StorageError(text, hint=f"See the log of {self.node}.")

    def _remote_exception(self) -> tuple[str, str]:
        try:
            remote = json.loads(self.content)["RemoteException"]
            return str(remote["exception"]), str(remote["message"]).partition("\n")[0]
        except (ValueError, TypeError, KeyError, RecursionError):
            return "", f"HTTP {self.response.status} {self.response.reason or ''}".strip()


def _leads_to_a_host(location: str) -> bool:
    try:
        parts = urlsplit(location)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number, or an unbalanced bracket
        return False


def _gone(where: str, message: str, was_sent: bool) -> LakebedError:  # noqa: ARG001, FBT001
    error = _GoneError(f"No object {where!r}.")
    error.was_sent_before = was_sent
    return error


def _taken(where: str, message: str, was_sent: bool) -> LakebedError:  # noqa: ARG001, FBT001
    return _TakenError(message)


def _not_now(where: str, message: str, was_sent: bool) -> LakebedError:  # noqa: ARG001, FBT001
    return _NotNowError(
        f"The NameNode cannot serve {where!r} at this moment: {message}", retryable=True
    )


def _given_up(error: LakebedError) -> StorageError:
    """Return the error for a request that was repeated for as long as it may be."""
    return StorageError(error.message, hint=error.hint or _OUTAGE_HINT, retryable=True)


def _unconnected(where: str, message: str, was_sent: bool) -> LakebedError:  # noqa: ARG001, FBT001
    return _UnansweredError(
        f"A node lost its connection to another one, for {where!r}: {message}", retryable=True
    )


def _full(where: str, message: str, was_sent: bool) -> LakebedError:  # noqa: ARG001, FBT001
    return StorageFullError(
        f"No space to write {where!r}: {message}", hint="Raise the quota, or free some space."
    )


def _bad_name(where: str, message: str, was_sent: bool) -> LakebedError:  # noqa: ARG001, FBT001
    return InvalidNameError(
        f"{where!r} cannot be written: {message}",
        hint="On a file system a name is either an object or a directory, not both.",
    )


_REFUSALS = {
    frozenset({"FileNotFoundException"}): _gone,
    frozenset({"FileAlreadyExistsException", "PathIsNotEmptyDirectoryException"}): _taken,
    frozenset(
        {
            "StandbyException",
            "RetriableException",
            "SafeModeException",
            "ObserverRetryOnActiveException",
        }
    ): _not_now,
    # Such as of a DataNode whose NameNode starts again.
    frozenset(
        {
            "ConnectException",
            "ConnectTimeoutException",
            "EOFException",
            "NoRouteToHostException",
            "SocketException",
            "SocketTimeoutException",
        }
    ): _unconnected,
    frozenset(
        {
            "ClusterStorageCapacityExceededException",
            "DSQuotaExceededException",
            "NSQuotaExceededException",
            "QuotaByStorageTypeExceededException",
            "QuotaExceededException",
        }
    ): _full,
    frozenset(
        {
            "FSLimitException",
            "InvalidPathException",
            "MaxDirectoryItemsExceededException",
            "PathComponentTooLongException",
        }
    ): _bad_name,
}
_UNKNOWN_USER = frozenset({"AuthenticationException", "InvalidToken", "SecurityException"})
_DENIALS = _UNKNOWN_USER | {"AccessControlException", "AuthorizationException"}


def _entry(status: Mapping[str, Any], path: str) -> TreeEntry:
    name = str(status["pathSuffix"]) or path.rpartition("/")[2]
    return TreeEntry(
        name=name.replace(COLON, ":"),
        number=int(status.get("fileId") or 0),
        is_directory=status["type"] == "DIRECTORY",
        size_bytes=int(status["length"]),
        modified_at=datetime.fromtimestamp(int(status["modificationTime"]) / 1000, UTC),
        entry_count=int(status.get("childrenNum") or 0),
    )


def _page(listing: Mapping[str, Any], path: str) -> tuple[list[TreeEntry], bool]:
    """Return some entries of a directory, and whether they are the last."""
    statuses = listing["partialListing"]["FileStatuses"]["FileStatus"]
    # The listing of a file contains the file itself.
    entries = [_entry(status, path) for status in statuses if status["pathSuffix"]]
    return entries, not listing["remainingEntries"]


def _spelled(path: str) -> str:
    return path.replace(":", COLON)


def _hide_tokens(record: logging.LogRecord) -> bool:
    """Redact the tokens in the URLs that the HTTP client logs."""
    record.msg, record.args = redacted(record.getMessage()), ()
    return True
