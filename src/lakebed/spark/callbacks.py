"""The server of this process for calls from the JVM of a classic session, closed to other processes.

PySpark starts it without a token: any process of the machine can call the Python objects that the
JVM holds. The server and the client in the JVM both know tokens, so both get the same one.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from typing import Any

_lock = threading.Lock()
_noted = threading.local()
_watch: ThreadWatch | None = None  # that of this process
_CLIENT = "py4j.CallbackClient"  # the class that declares the token; others inherit it
CLOSE_EVERY_S = 10.0  # when new threads call


def start_callbacks(gateway: Any) -> str:
    """Start the server for calls from the JVM, unless it runs, and give it a token.

    Args:
        gateway: The gateway of a Spark context.

    Returns:
        Why the server takes calls without a token; empty if it refuses them.

    Cost:
        Some calls into the JVM; one attribute if it was called before.
    """
    from py4j.protocol import Py4JError
    from pyspark.java_gateway import ensure_callback_server_started

    with _lock:
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]  # pyspark's
        parameters = gateway.callback_server_parameters
        if parameters.auth_token is not None:
            return ""
        token = secrets.token_hex(32)
        try:
            # No public method: a client that gets a new port forgets its token.
            client = _client_of(gateway)
            _field_of(client, "authToken").set(client, token)
        except (Py4JError, AttributeError) as exc:
            return f"the JVM takes no token: {str(exc).splitlines()[0]}"
        parameters.auth_token = token
        return ""


class ThreadWatch:
    """Closes the connections of threads of the JVM that have ended, which py4j keeps open.

    Each thread of the JVM that calls has a connection, and a thread here. Spark plans broadcasts
    and subqueries in threads that end after a minute without work: a session with a query every
    two minutes got 16 threads more by each. Spark Connect runs each statement in a new thread.
    """

    def __init__(self, gateway: Any) -> None:
        """Use `watch_threads` instead."""
        self.gateway = gateway
        self._client = _client_of(gateway)
        self._kept = _field_of(self._client, "connections").get(self._client)
        self._numbers = itertools.count()
        self._threads: dict[int, tuple[Any, Any]] = {}  # each with its connection
        self._closed_at = time.monotonic()

    def note(self) -> None:
        """Remember the thread of the JVM that calls, and its connection.

        From time to time the connections of threads that have ended are closed.
        """
        if time.monotonic() >= self._closed_at + CLOSE_EVERY_S:
            self.close_ended()
        thread = self.gateway.jvm.java.lang.Thread.currentThread()
        self._threads[next(self._numbers)] = thread, self._client.getPerThreadConnection()

    def close_ended(self) -> int:
        """Close the connections of threads that have ended.

        Returns:
            The number of connections that stay open.

        Cost:
            A call into the JVM for each connection.
        """
        self._closed_at = time.monotonic()
        for number, (thread, connection) in list(self._threads.items()):
            # Another thread may do the same.
            if not thread.isAlive() and self._threads.pop(number, None) is not None:
                self._kept.remove(connection)
                connection.shutdown()
        return len(self._threads)


def watch_threads(gateway: Any) -> ThreadWatch:
    """Return what watches the threads that call from the JVM; from the first call on, they are noted.

    Args:
        gateway: The gateway of a Spark context.
    """
    global _watch
    with _lock:
        if _watch is None or _watch.gateway is not gateway:
            _watch = ThreadWatch(gateway)
        return _watch


def note_thread() -> None:
    """Let the watch of this process, if there is one, know the thread that calls."""
    watch = _watch
    if watch is not None and getattr(_noted, "watch", None) is not watch:
        _noted.watch = watch
        watch.note()


def _client_of(gateway: Any) -> Any:
    """Return the object in the JVM that calls this process."""
    from py4j.java_gateway import JavaObject

    return JavaObject("GATEWAY_SERVER", gateway._gateway_client).getCallbackClient()


def _field_of(client: Any, name: str) -> Any:
    class_ = client.getClass()
    while class_.getName() != _CLIENT:
        class_ = class_.getSuperclass()
    field = class_.getDeclaredField(name)
    field.setAccessible(True)
    return field
