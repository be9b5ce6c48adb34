"""Ports of this machine that are far away: what a client sends to them arrives later.

Each port of 127.0.0.1 that is named is also one of the other address that is named. What a client
sends there is held for a while, and what comes back is not, so that each question costs that while
once; any number of them wait side by side. A line on the input sets the delay in milliseconds; the
answer is the number of messages since the line before. Ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import os
import sys

_MESSAGE_BYTES = 2**16


class Distance:
    """The delay, and what passed."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.messages = 0
        # The loop itself only knows them weakly.
        self._connections: set[asyncio.Task[None] | None] = set()

    async def serve(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass on what comes over one connection, in both directions."""
        self._connections.add(asyncio.current_task())
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        try:
            await asyncio.gather(
                self._hold(reader, held),
                _pass_on_later(held, there_writer),
                _pass_on(there_reader, writer),
            )
        except ConnectionError:
            pass
        finally:
            there_writer.close()
            writer.close()
            self._connections.discard(asyncio.current_task())

    async def _hold(
        self, reader: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        message = b"-"
        while message:
            message = await reader.read(_MESSAGE_BYTES)
            self.messages += bool(message)
            held.put_nowait((asyncio.get_running_loop().time() + self.delay_s, message))


async def _pass_on_later(
    held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
) -> None:
    while True:
        due, message = await held.get()
        await asyncio.sleep(due - asyncio.get_running_loop().time())
        if not message:
            writer.write_eof()
            return
        writer.write(message)
        await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while message := await reader.read(_MESSAGE_BYTES):
        writer.write(message)
        await writer.drain()
    writer.write_eof()


async def main() -> None:
    """Serve the ports that are named."""
    here, *ports = sys.argv[1:]
    distance = Distance()
    for port in map(int, ports):

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port
        ) -> None:
            await distance.serve(port, reader, writer)

        await asyncio.start_server(serve, here, port)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        sys.stdout.write(f"{distance.messages}\n")
        sys.stdout.flush()
        distance.delay_s, distance.messages = float(line) / 1000, 0
    os._exit(0)  # connections are open, and nobody waits for their end


if __name__ == "__main__":
    asyncio.run(main())
