"""Connections of clients to a server: how long each may wait for a request, and how many may."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

# Longer than clients and proxies keep connections in their pools, which is mostly up to a minute:
# they do not repeat a POST on a connection that has ended meanwhile.
KEEP_ALIVE_S = 75
REQUEST_S = 75  # for all of a request, from its first byte on
MOST_WAITING = 500  # connections at once that wait for a request, or for the rest of one


def bounded_protocol(
    *, request_s: float = REQUEST_S, most_waiting: int = MOST_WAITING
) -> type[H11Protocol]:
    """Return uvicorn's protocol for one server, with bounds for clients that send nothing.

    uvicorn itself ends only connections that are idle after an answer. It waits for ever for the
    first request, and for the rest of one.

    Args:
        request_s: Seconds from the first byte of a request, or from the beginning of a connection,
            until the request must be there.
        most_waiting: Number of connections that may wait. Beyond it, the one that has waited
            longest is closed.
    """
    waiting: dict[_Bounded, None] = {}

    class _Bounded(H11Protocol):
        """A connection that is closed if no request comes."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._note(is_receiving=True)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._note(is_receiving=True)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # A request that was sent before this answer may have begun by now.
            self._note(is_receiving=not self.cycle.response_complete)

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_wait()
            super().connection_lost(exc)

        def _note(self, *, is_receiving: bool) -> None:
            """Note whether the server waits for the client, or works on a request of it."""
            cycle = self.cycle
            is_waiting = cycle is None or cycle.response_complete or cycle.more_body
            if not is_waiting or self.transport.is_closing():
                self._end_wait()
                return
            waiting.setdefault(self)
            if is_receiving and self._deadline is None:
                # Further bytes do not put it off: one at a time would keep the connection for ever.
                self._deadline = self.loop.call_later(request_s, self._give_up)
                waiting[self] = waiting.pop(self)
            if len(waiting) > most_waiting:
                next(iter(waiting))._give_up()

        def _end_wait(self) -> None:
            waiting.pop(self, None)
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            self._end_wait()
            self.transport.close()

    return _Bounded
